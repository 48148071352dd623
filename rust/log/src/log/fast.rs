//! The append that meets nothing in its way.
//!
//! Nine appends in ten are one block, of one topic, into a mapped segment with room, while nobody
//! else holds the lock. This room is that case alone: the same stores in the same order as
//! `append`, without a branch for anything else. The block is laid out for where this process knows
//! the log to end, before the lock, under which nothing is left to do but to see that it still ends
//! there and to store. Whatever is not so makes it give up before it has stored a byte, and `append`
//! does the work. See `docs/PROTOCOL.md`, "Append".

use std::sync::atomic::{Ordering as CompilerOrdering, compiler_fence};

use crate::canary::{Canary, planted};
use crate::failpoints::{Point, pass};
use crate::format::address::{Address, align};
use crate::format::block::{HEADER_LEN, Kind, MAX_HEADER_LEN, MAX_RELATIVE_TIME, PlainHeader};
use crate::format::checksum::crc32_of;
use crate::format::control::at;
use crate::format::index::IndexEntry;
use crate::format::varint::LengthPrefix;
use crate::lock::{self, Identity};
use crate::storage::{RawMap, StoreTarget};
use crate::sync::{Ordering, SharedWord};
use crate::wake;

use super::append::{Appended, NewBlock, RESERVE, Writer};
use super::{Control, Log};

/// Where no block ends.
const NOWHERE: Address = Address(0);

/// A block and the place for which it was laid out.
struct PlannedBlock {
    start: Address,
    end: Address,
    header: [u64; HEADER_LEN / 8],
    first: u64,
    highest_ns: i64,
    needs_entry: bool,
}

impl Log {
    /// Append one block if that needs no waiting, no system call and no bookkeeping; `None` when it
    /// does, or is wrong, and nothing was appended: [`Log::append`] then does it or says what is wrong.
    ///
    /// The body is `lead` and then the block's own `body`. Its checksum, which covers both, is `known`
    /// or else taken here, where that overlaps with the header's; `block.body_crc` does not matter.
    #[inline(always)]
    pub fn try_append(
        &self,
        lead: LengthPrefix,
        block: &NewBlock<'_>,
        known: Option<u32>,
    ) -> Option<Appended> {
        let (first, end) = self.append_plain(lead, block, known);
        (end != NOWHERE).then_some(Appended { first, end })
    }

    /// As [`Log::try_append`]: the first offset, and the end or [`NOWHERE`]. Two numbers come back in
    /// registers.
    fn append_plain(
        &self,
        lead: LengthPrefix,
        block: &NewBlock<'_>,
        known: Option<u32>,
    ) -> (u64, Address) {
        let (Some(control), Some(fast)) = (self.control.get(), &self.fast) else {
            return (0, NOWHERE);
        };
        // Counted as `append` counts, which tells what is too large.
        let needs = align((MAX_HEADER_LEN + lead.len() + block.body.len()) as u64);
        let is_plain = block.topic == 0 && block.count != 0 && needs <= fast.largest;
        // These mistakes are made where blocks take the longer way.
        let early = planted(Canary::CommitWordEarly) || planted(Canary::IndexBeforeData);
        if early || !is_plain || !fast.watch.is_same() {
            return (0, NOWHERE);
        }
        let now_us = self.storage.tick_us();
        let Some(mut slot) = self.writer.try_lock().ok() else {
            return (0, NOWHERE);
        };
        let placed = slot.as_mut().and_then(|writer| {
            let plan = writer.plan(now_us, lead, block, known)?;
            let (page, map) = (control.map(), writer.segment.map());
            match (RawMap::new(page), RawMap::new(map)) {
                (Some(page), Some(map)) => {
                    writer.carry_out(&plan, control, fast.me, (&page, &map), lead, block)
                }
                _ => writer.carry_out(&plan, control, fast.me, (page, map), lead, block),
            }?;
            Some(writer.note(&plan, block))
        });
        drop(slot);
        let Some(placed) = placed else { return (0, NOWHERE) };
        pass(Point::AppendUnlocked);
        match RawMap::new(control.map()) {
            Some(page) if !wake::is_awaited_after_unlock(&page.word(at::WAITING)) => {}
            Some(_) => control.wake_waiters(),
            None => control.notify(true),
        }
        placed
    }
}

impl Writer {
    /// Lay a block out for the end of the log as it is known.
    #[inline(always)]
    fn plan(
        &mut self,
        now_us: i64,
        lead: LengthPrefix,
        block: &NewBlock<'_>,
        known: Option<u32>,
    ) -> Option<PlannedBlock> {
        let (sequence, start) = (self.tail.sequence(), self.tail.position());
        let len = HEADER_LEN + lead.len() + block.body.len();
        let end = start + align(len as u64);
        let needs_entry = self.pacer.is_far(start);
        let has_room = end + RESERVE <= self.room && end <= self.touched;
        if !has_room || !self.pacer.has_seen(0) {
            return None;
        }
        let base = self.walk.bases.get(0)?;
        let topic = self.walk.state.topic(0)?;
        let first = topic.next;
        let offset = u32::try_from(first - base).ok()?;
        offset.checked_add(block.count)?;
        let time = self.time_at(now_us);
        if time > MAX_RELATIVE_TIME {
            return None;
        }
        let appended_us = self.segment.header().time_base_us.saturating_add(time as i64);
        let appended_ns = appended_us.saturating_mul(1000);
        let own = if block.uses_append_time { appended_ns } else { i64::MIN };
        let header = PlainHeader {
            kind: Kind::Data,
            len: len as u32,
            body_crc: 0,
            offset,
            count: block.count,
            time,
            flags: block.flags,
        };
        let laid = header.lay_out(self.segment.salt(), start);
        let body_crc = match known {
            Some(crc) => crc,
            None => lead.with_bytes(|bytes| crc32_of(bytes, block.body)),
        };
        Some(PlannedBlock {
            start: self.tail,
            end: Address::new(sequence, end),
            header: laid.seal(self.segment.seed(), body_crc),
            first,
            highest_ns: own.max(block.highest_event_ns.unwrap_or(i64::MIN)),
            needs_entry,
        })
    }

    /// Take the lock, and store the block if the log still ends where it was laid out for.
    #[inline(always)]
    fn carry_out<S: StoreTarget>(
        &self,
        plan: &PlannedBlock,
        control: &Control,
        me: Identity,
        (page, map): (&S, &S),
        lead: LengthPrefix,
        block: &NewBlock<'_>,
    ) -> Option<()> {
        let lock = page.word(at::APPEND_LOCK);
        if !lock::try_lock(&lock, me) {
            return None;
        }
        pass(Point::AppendLocked);
        let load = |position| page.word(position).load(Ordering::Acquire);
        let store = |position, value: u64| page.word(position).store(value, Ordering::Release);
        let start = plan.start.0;
        let undisturbed = load(at::FLAGS) == 0 && load(at::TAIL) == start;
        let mut stored = None;
        if undisturbed && load(at::DIRTY) == start {
            store(at::DIRTY, plan.end.0);
            if block.interval {
                store(at::WANTED, plan.end.0);
            }
            compiler_fence(CompilerOrdering::SeqCst);
            pass(Point::AppendDirty);
            // Mapped memory takes every store; where it does not, this room is never entered.
            stored = map.put_block(plan.start.position(), plan.header, lead, block.body).ok();
            if stored.is_some() {
                pass(Point::AppendCommitted);
                if plan.needs_entry {
                    self.index_it(plan, control);
                }
                store(at::TAIL, plan.end.0);
                pass(Point::AppendTail);
            }
        }
        lock::unlock(&lock, me);
        stored
    }

    #[inline(never)]
    fn index_it(&self, plan: &PlannedBlock, control: &Control) {
        let Some(topic) = self.walk.state.topic(0) else { return };
        let (offset, position) = (plan.first, plan.start.position());
        let entry = IndexEntry { topic: 0, offset, position, highest_ns: topic.highest_ns };
        // The index is a hint: without the entry it is a longer walk.
        let _ = self.put_entry(control, &entry);
    }

    /// Know the end that the log has now. Of this process alone, so it needs no lock of the log.
    #[inline(always)]
    fn note(&mut self, plan: &PlannedBlock, block: &NewBlock<'_>) -> (u64, Address) {
        if plan.needs_entry {
            self.pacer.note(0, plan.start.position());
        }
        if let Some(topic) = self.walk.state.topic_mut(0) {
            topic.next = plan.first + u64::from(block.count);
            topic.last_crc = plan.header[1] as u32;
            topic.highest_ns = topic.highest_ns.max(plan.highest_ns);
        }
        self.walk.position = plan.end.position();
        self.tail = plan.end;
        (plan.first, plan.end)
    }

    #[inline(always)]
    fn time_at(&mut self, now_us: i64) -> u64 {
        let relative = now_us.saturating_sub(self.segment.header().time_base_us);
        self.time = self.time.max(relative.max(0) as u64);
        self.time
    }
}
