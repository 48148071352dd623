//! The append that meets nothing in its way.
//!
//! Nine appends in ten are one block, of one topic, into a mapped segment with room, while nobody
//! else holds the lock. This room is that case alone: the same stores in the same order as
//! `append`, without a branch for anything else. Whatever is not so makes it give up before it has
//! stored a byte, and `append` does the work. See `docs/PROTOCOL.md`, "Append".

use std::sync::atomic::{Ordering, compiler_fence};

use crate::format::address::{Address, align};
use crate::format::block::{HEADER_LEN, Kind, MAX_RELATIVE_TIME, PlainHeader};
use crate::format::control::at;
use crate::lock;
use crate::sync::{Ordering as WordOrdering, SharedWord};

use super::append::{Appended, Outgoing, RESERVE, Writer};
use super::{Control, Log};

impl Log {
    /// Append one block if that needs no waiting, no system call and no bookkeeping; `None` when it
    /// does, or is wrong, and nothing was appended: [`Log::append`] then does it or says what is wrong.
    #[inline(always)]
    pub fn try_append(&self, block: &Outgoing<'_>) -> Option<Appended> {
        let (control, me) = (self.control.get()?, self.fast?);
        self.member.as_ref()?.check().ok()?;
        let mut slot = self.writer.try_lock().ok()?;
        let writer = slot.as_mut()?;
        let word = control.word(at::APPEND_LOCK);
        if !lock::try_lock(&word, me) {
            return None;
        }
        let appended = writer.place_one(self, control, block);
        lock::unlock(&word, me);
        drop(slot);
        if appended.is_some() {
            control.notify(true);
        }
        appended
    }
}

impl Writer {
    /// Under the append lock.
    #[inline(always)]
    fn place_one(
        &mut self,
        log: &Log,
        control: &Control,
        block: &Outgoing<'_>,
    ) -> Option<Appended> {
        let tail = self.tail;
        let undisturbed = control.flags() == 0 && control.tail() == tail && control.dirty() == tail;
        let (sequence, start) = (tail.sequence(), tail.position());
        let len = HEADER_LEN + block.body.len();
        let end = start + align(len as u64);
        let has_room = end + RESERVE <= self.room && end <= self.touched;
        if !undisturbed || !has_room || block.topic != 0 || self.pacer.is_near(start) {
            return None;
        }
        let base = self.walk.bases.get(0)?;
        let time = self.tick(log);
        let appended_us = self.segment.header().time_base_us.saturating_add(time as i64);
        let topic = self.walk.state.topic_mut(0)?;
        let first = topic.next;
        let offset = u32::try_from(first - base).ok()?;
        offset.checked_add(block.count)?;
        if time > MAX_RELATIVE_TIME {
            return None;
        }
        let header = PlainHeader {
            kind: Kind::Data,
            len: len as u32,
            body_crc: block.body_crc,
            offset,
            count: block.count,
            time,
            flags: block.flags,
        };
        let end = Address::new(sequence, end);
        let store =
            |position, value: u64| control.word(position).store(value, WordOrdering::Release);
        store(at::DIRTY, end.0);
        if block.interval {
            store(at::WANTED, end.0);
        }
        compiler_fence(Ordering::SeqCst);
        let map = self.segment.map();
        let [word, rest @ ..] = header.encode(self.segment.salt(), self.segment.seed(), start);
        // Mapped memory takes every store; where it does not, this room is never entered.
        map.write(start + HEADER_LEN as u64, block.body).ok()?;
        map.write_words(start + 8, rest).ok()?;
        map.store(start, word).ok()?;
        topic.next = first + u64::from(block.count);
        topic.last_crc = block.body_crc;
        let appended_ns = appended_us.saturating_mul(1000);
        let own = if block.uses_append_time { appended_ns } else { i64::MIN };
        topic.highest_ns =
            topic.highest_ns.max(own.max(block.highest_event_ns.unwrap_or(i64::MIN)));
        store(at::TAIL, end.0);
        self.walk.position = end.position();
        self.tail = end;
        Some(Appended { first, end })
    }

    #[inline(always)]
    fn tick(&mut self, log: &Log) -> u64 {
        let relative = log.storage.tick_us().saturating_sub(self.segment.header().time_base_us);
        self.time = self.time.max(relative.max(0) as u64);
        self.time
    }
}
