//! The fast append, for when nothing is in its way.
//!
//! Nine appends in ten are one block, of one topic, into a mapped segment with space, while no
//! other thread or process holds the lock. This module lays such a block out for the end of the log
//! as this process knows it, before the lock. Under the lock it only checks that the log still ends
//! there and stores, by the function that stores all appends ([`super::commit`]). If any of that
//! does not hold, it stops before it has stored a byte, and `append` does the work. See
//! `docs/PROTOCOL.md`, "Append".

use crate::failpoints::{Point, pass};
use crate::format::address::{Address, align};
use crate::format::block::{MAX_HEADER_LEN, MAX_RELATIVE_TIME, flag};
use crate::format::control::at;
use crate::format::index::IndexEntry;
use crate::lock::{self, Identity};
use crate::segment::create::LaidBlock;
use crate::storage::{RawMap, StoreTarget};
use crate::sync::{Ordering, SharedWord};
use crate::wake;

use super::append::{Appended, NewBlock, Writer, put_entry};
use super::batch::{data_header, padded_len};
use super::commit::{Kept, commit_block, commit_tail};
use super::{Control, Log};

/// An address where no block ends.
const NOWHERE: Address = Address(0);

impl Log {
    /// Append one block if that needs no waiting, no system call and no bookkeeping. `None` when it
    /// does, or when the block is wrong; nothing was appended then. [`Log::append`] then appends it
    /// or returns the error.
    #[inline(always)]
    pub fn try_append(&self, block: &NewBlock<'_>) -> Option<Appended> {
        let (first, end) = self.append_plain(block);
        (end != NOWHERE).then_some(Appended { first, end, is_repeat: false })
    }

    /// Do as [`Log::try_append`]; return the first offset, and the end or [`NOWHERE`]. Two numbers
    /// come back in registers.
    fn append_plain(&self, block: &NewBlock<'_>) -> (u64, Address) {
        let (Some(control), Some(fast)) = (self.control.get(), &self.fast) else {
            return (0, NOWHERE);
        };
        // Counted as `append` counts, which returns the error for a large block.
        let needs = align((MAX_HEADER_LEN + block.body_len()) as u64);
        if block.count == 0 || needs > fast.largest || !fast.watch.is_same() {
            return (0, NOWHERE);
        }
        let now_us = self.block_time(block.count);
        let Some(mut slot) = self.writer.try_lock().ok() else {
            return (0, NOWHERE);
        };
        let Some(writer) = slot.as_mut() else { return (0, NOWHERE) };
        let Some(placed) = writer.append_plain(now_us, control, fast.me, block) else {
            return (0, NOWHERE);
        };
        drop(slot);
        pass(Point::AppendUnlocked);
        if placed.is_awaited {
            control.notify(true);
        }
        (placed.first, placed.end)
    }
}

/// Where a block was stored, and whether a process waits for it.
struct Placed {
    first: u64,
    end: Address,
    is_awaited: bool,
}

impl Writer {
    /// Lay a block out for the known end of the log, and store it if the log still ends there.
    #[inline(always)]
    fn append_plain(
        &mut self,
        now_us: i64,
        control: &Control,
        me: Identity,
        block: &NewBlock<'_>,
    ) -> Option<Placed> {
        // Only these flags from here on, so that no code is generated for what their header cannot
        // have.
        let plain = NewBlock { flags: block.flags & flag::PLAIN, ..*block };
        let position = self.tail.position();
        if position + padded_len(&plain, false, 0) > self.reach || block.flags != plain.flags {
            return None;
        }
        let Self { segment, index, filled, pacer, walk, clock, .. } = self;
        let (topic, base) = (walk.state.topic_mut(block.topic)?, walk.bases.get(block.topic)?);
        if topic.finished {
            return None;
        }
        let first = topic.next;
        let offset = u32::try_from(first.checked_sub(base)?).ok()?;
        offset.checked_add(block.count)?;
        let (time, appended_ns) = clock.at(now_us);
        if time > MAX_RELATIVE_TIME {
            return None;
        }
        let header = data_header(&plain, None, 0, offset, 0, time);
        let head = header.lay_out(segment.salt(), position).seal(segment.seed(), || {
            let taken = || segment.unseeded.crc32_of(block.lead, block.body);
            block.body_crc.unwrap_or_else(taken)
        });
        let laid = LaidBlock { position, head, lead: block.lead, body: block.body };
        let wants_entry = pacer.wants(block.topic, position);
        let index_it = || {
            let highest_ns = topic.highest_ns;
            let entry = IndexEntry { topic: block.topic, offset: first, position, highest_ns };
            put_entry(index, *filled, control, &entry);
        };
        let index_it = wants_entry.then_some(index_it);
        let kept = if block.interval { Kept::Wanted } else { Kept::Nothing };
        let what = (self.tail, kept, &laid, index_it);
        let (page, map) = (control.map(), segment.map());
        let (end, is_awaited) = match (RawMap::new(page), RawMap::new(map)) {
            (Some(page), Some(map)) => {
                let end = carry_out((&page, &map), me, what)?;
                (end, wake::is_awaited_after_unlock(&page.word(at::WAITING)))
            }
            // Other kinds of maps may have no such word.
            _ => (carry_out((page, map), me, what)?, true),
        };
        // Only this process knows the log's new end by its index, so that needs no lock of the log.
        if wants_entry {
            pacer.note(block.topic, position);
        }
        topic.next = first + u64::from(block.count);
        topic.last_crc = laid.head.body_crc();
        topic.highest_ns = topic.highest_ns.max(block.highest_ns(appended_ns));
        walk.position = end.position();
        self.tail = end;
        Some(Placed { first, end, is_awaited })
    }
}

/// Take the lock, and store the block if the log still ends where it was laid out.
#[inline(always)]
fn carry_out<S: StoreTarget>(
    (page, map): (&S, &S),
    me: Identity,
    (start, kept, laid, index_it): (Address, Kept, &LaidBlock<'_>, Option<impl FnOnce()>),
) -> Option<Address> {
    let lock = page.word(at::APPEND_LOCK);
    if !lock::try_lock(&lock, me) {
        return None;
    }
    pass(Point::AppendLocked);
    let load = |position| page.word(position).load(Ordering::Acquire);
    let mut stored = None;
    if load(at::FLAGS) == 0 && load(at::TAIL) == start.0 && load(at::DIRTY) == start.0 {
        // Mapped memory accepts every store; after a failed one, the next owner repairs.
        if let Ok(end) = commit_block((page, map), start, kept, laid) {
            if let Some(index_it) = index_it {
                index_it();
            }
            stored = commit_tail(page, end).ok().map(|()| end);
        }
    }
    lock::unlock(&lock, me);
    stored
}
