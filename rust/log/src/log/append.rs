//! Appending: lock, catch up, place, commit, unlock.
//!
//! Owns a writing process's knowledge of the log's end ([`Writer`]) and the steps of an append. The
//! block is encoded and its body checksummed before the lock; under it nothing blocks, allocates or
//! can panic. Order of the stores: dirty end, body, header, commit word (release), tail. A reader
//! that sees the word sees the block; a successor that sees the dirty end knows what may be half
//! done. See `docs/PROTOCOL.md`, "Append".

use std::io::ErrorKind;
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::block::{BlockHeader, HEADER_LEN, Kind, MAX_RELATIVE_TIME, flag};
use crate::format::control::{at, flag as state_flag};
use crate::format::index::IndexEntry;
use crate::format::state;
use crate::segment::create::{BlockPlace, LaidBlock, own_header, own_len};
use crate::segment::index::{Index, IndexSampler};
use crate::segment::walk::{SegmentWalker, Step};
use crate::segment::{Check, Segment};

pub use super::batch::{Appended, NewBlock};
use super::batch::{Batch, data_header, no_block, padded_len};
use super::clock::BlockClock;
use super::commit::{Kept, commit_block, commit_blocks, commit_tail};
use super::create::max_group_len;
use super::guard::{Guard, Which};
use super::preconditions::Unmet;
use super::prefault::PrefaultCursor;
use super::{Control, Log, Member, enter, write_access};

/// Bytes that always stay free after the tail: a page, so that a reader may look at the word there,
/// and an end block.
pub const RESERVE: u64 = 4096 + HEADER_LEN as u64 + state::End::LEN as u64 + 8;

/// A process's knowledge of the log's end, behind the process's mutex.
#[derive(Debug)]
pub struct Writer {
    pub segment: Arc<Segment>,
    pub index: Index,
    /// Entries of the index when it was opened that the control page does not count: those of
    /// blocks that the segment began with.
    pub filled: u64,
    pub pacer: IndexSampler,
    pub walk: SegmentWalker,
    /// Address that `walk` has reached.
    pub tail: Address,
    pub prepared: Option<super::roll::Prepared>,
    /// The clock that gives each block its time.
    pub clock: BlockClock,
    /// Position up to which the fast path may store: allocated at the last look, touched, and
    /// without the bytes that stay free. 0 if corruption hides an offset: then only the slow path
    /// appends.
    pub reach: u64,
    /// Position at which it asks for more pages.
    pub touched: u64,
    pub asked: PrefaultCursor,
    /// Last use of an expiring producer when this process last looked for some to forget.
    pub swept_us: i64,
}

/// Why an attempt under the lock did not append.
pub enum Blocked {
    /// The active segment has changed.
    Moved,
    /// The allocated space does not fit this many bytes.
    Tight { needs: u64 },
    /// A field would overflow: this segment accepts no more.
    Full { needs: u64 },
    /// A sync failed.
    Latched,
    /// The log was deleted.
    Deleted,
    /// The log has no topic of this number.
    Unknown { topic: u32 },
    /// The topic of this number is finished.
    Finished { topic: u32 },
    /// A precondition is not met.
    Unmet(Unmet),
    /// A store failed.
    Failed(Error),
}

impl From<Error> for Blocked {
    fn from(error: Error) -> Self {
        Blocked::Failed(error)
    }
}

impl Log {
    /// Return the most bytes of one append, headers included.
    pub fn max_group_len(&self) -> u64 {
        max_group_len(self.settings.segment_bytes)
    }

    /// Append blocks as one group: all of them become visible at once, in this order. `firsts` gets
    /// the first offset of each. A topic may appear once in a group.
    ///
    /// # Errors
    /// `InvalidArgument`, `AppendTooLarge`, `NoSpace`, `SystemCallFailed`, `LockTimeout`, `SyncFailed`,
    /// `TopicDeleted`; then nothing was appended.
    pub fn append(&self, blocks: &[NewBlock<'_>], firsts: &mut [u64]) -> Result<Appended> {
        if let ([block], [first]) = (blocks, &mut *firsts) {
            let appended = self.append_block(block)?;
            *first = appended.first;
            return Ok(appended);
        }
        self.append_if(&[], blocks, false, firsts)
    }

    /// Append one block, as [`Log::append`].
    ///
    /// # Errors
    /// As [`Log::append`].
    #[inline(always)]
    pub fn append_block(&self, block: &NewBlock<'_>) -> Result<Appended> {
        match self.try_append(block) {
            Some(appended) => Ok(appended),
            None => self.append_slowly(block),
        }
    }

    #[cold]
    #[inline(never)]
    fn append_slowly(&self, block: &NewBlock<'_>) -> Result<Appended> {
        // Its checksum must not be computed under the lock.
        self.append_if(&[], &[block.sealed()], false, &mut [0])
    }

    /// Return the time of an append of this many records, microseconds since 1970. A single record
    /// gets the time of the kernel's tick, which costs a fraction of reading the clock.
    #[inline(always)]
    pub(super) fn block_time(&self, count: u32) -> i64 {
        if count == 1 { self.storage.tick_us() } else { self.storage.now_us() }
    }

    /// Append, unless a precondition fails.
    pub(super) fn attempt(
        &self,
        slot: &mut Option<Writer>,
        (control, member): (&Control, &dyn Member),
        batch: &Batch<'_>,
        firsts: &mut [u64],
    ) -> Result<std::result::Result<Appended, Unmet>> {
        let writer = self.writer_in(slot, control)?;
        loop {
            writer.catch_up(self, control)?;
            if !batch.stamps.is_empty() {
                self.place_producers(writer, (control, member), batch)?;
            }
            let before = match planted(Canary::ExpectBeforeLock) {
                true => self.check(&writer.walk.state, batch.preconditions),
                false => Ok(()),
            };
            let guard = self.lock(Which::Append)?;
            pass(Point::AppendLocked);
            let outcome = writer
                .under_lock(self, control, &guard)
                .and_then(|()| match before {
                    Err(unmet) if unmet.is_offset(batch.preconditions) => {
                        Err(Blocked::Unmet(unmet))
                    }
                    _ => writer.check(self, batch, firsts),
                })
                .and_then(|repeated| match repeated {
                    Some(repeated) => Ok((repeated, true)),
                    None => {
                        let appended = writer.write_blocks(self, control, batch, firsts);
                        appended.map(|appended| (appended, false))
                    }
                });
            drop(guard);
            match outcome {
                // It appended nothing, and changed no cursor.
                Ok((repeated, true)) => return Ok(Ok(repeated)),
                Ok((appended, false)) => {
                    pass(Point::AppendUnlocked);
                    control.notify(true);
                    writer.apply_metadata(batch.facts);
                    if writer.asked.reaches_next(self.settings.segment_bytes) {
                        self.prepare_ahead(writer, member);
                    }
                    return Ok(Ok(appended));
                }
                Err(Blocked::Unmet(unmet)) => return Ok(Err(unmet)),
                Err(obstacle) => self.resolve(obstacle, writer, control, member)?,
            }
        }
    }

    /// Return the writer behind this process's mutex; it is opened at its first use.
    pub(super) fn writer_in<'a>(
        &self,
        slot: &'a mut Option<Writer>,
        control: &Control,
    ) -> Result<&'a mut Writer> {
        if slot.is_none() {
            let opened = Writer::open(self, control).map_err(|error| self.unless_deleted(error))?;
            *slot = Some(opened);
        }
        slot.as_mut().ok_or(Error::HandleClosed { what: "log" })
    }

    /// Return the log's end, after completing or covering what a dead or failed append left half
    /// done. Works in the failed-sync state too.
    pub(super) fn repair_tail(&self, writer: &mut Writer, control: &Control) -> Result<Address> {
        loop {
            writer.catch_up(self, control)?;
            let guard = self.lock(Which::Append)?;
            match writer.repair_if_dirty(self, control, &guard) {
                Ok(()) => return Ok(writer.tail),
                Err(Blocked::Failed(error)) => return Err(error),
                // The active segment has changed.
                Err(_) => {}
            }
        }
    }

    #[cold]
    pub(super) fn resolve(
        &self,
        obstacle: Blocked,
        writer: &mut Writer,
        control: &Control,
        member: &dyn Member,
    ) -> Result<()> {
        match obstacle {
            Blocked::Moved => Ok(()),
            Blocked::Tight { needs } => self.make_room(writer, control, member, needs),
            Blocked::Full { needs } => self.make_segment(writer, control, member, needs),
            Blocked::Latched => self.clear_latch(writer),
            Blocked::Deleted => Err(self.deleted()),
            Blocked::Unknown { topic } => Err(self.unknown(&writer.walk.state, topic)),
            Blocked::Finished { topic: partition } => {
                Err(Error::TopicFinished { topic: self.name(), partition })
            }
            Blocked::Unmet(unmet) => Err(self.unmet_error(&[], unmet)),
            Blocked::Failed(error) => Err(error),
        }
    }
}

impl Writer {
    /// Open the active segment for writing.
    pub fn open(log: &Log, control: &Control) -> Result<Self> {
        loop {
            let tail = control.tail();
            match Self::open_at(log, control, tail) {
                // Another process rolled meanwhile, and the segment is gone.
                Err(_) if control.tail().sequence() != tail.sequence() => {}
                Err(Error::SystemCallFailed { path, source, .. })
                    if source.kind() == ErrorKind::NotFound =>
                {
                    return Err(Error::FilesRemoved { path });
                }
                opened => return opened,
            }
        }
    }

    fn open_at(log: &Log, control: &Control, tail: Address) -> Result<Self> {
        let access = write_access(&log.settings);
        let (generation, reach) = (log.settings.generation, log.settings.segment_bytes);
        let storage = &*log.storage;
        let sequence = tail.sequence();
        let segment = Segment::open(storage, &log.dir, generation, sequence, access, reach)?;
        let segment = Arc::new(segment);
        // Read after the opening: this descriptor gets no error from before it.
        enter(&log.syncer_files).note_open(&segment, control.tail());
        let (index, filled) = log.index_to_write(&segment, control);
        let (walk, pacer, time) = match log.take_recovered_tail(&segment, tail) {
            Some(known) => (known.walk, known.noted.pacer, known.noted.time),
            None => (segment.opening()?.clone(), IndexSampler::default(), 0),
        };
        let tail = Address::new(sequence, walk.position);
        let clock = BlockClock::new(segment.header().time_base_us, time);
        let (touched, asked) = (walk.position, PrefaultCursor::default());
        let (prepared, reach, swept_us) = (None, 0, 0);
        Ok(Self {
            segment,
            index,
            filled,
            pacer,
            walk,
            tail,
            prepared,
            clock,
            reach,
            touched,
            asked,
            swept_us,
        })
    }

    /// Walk over the blocks that others appended, outside the lock; the active segment may change
    /// on the way.
    pub fn catch_up(&mut self, log: &Log, control: &Control) -> Result<()> {
        loop {
            let tail = control.tail();
            if self.tail.sequence() != tail.sequence() {
                let opened = Self::open(log, control)?;
                *self = Self { prepared: self.prepared.take(), swept_us: self.swept_us, ..opened };
                continue;
            }
            // It lies beyond the tail when a store failed after the commit word.
            if self.tail >= tail {
                return Ok(());
            }
            self.walk_to(tail)?;
        }
    }

    /// Walk to an address in the active segment. The walk passes over corruption; a reader of it
    /// gets the error. A topic that may have records there accepts appends once its next offset is
    /// known, or in the next segment.
    pub fn walk_to(&mut self, tail: Address) -> Result<()> {
        let mut head = self.walk.position;
        while self.walk.position < tail.position() {
            let position = self.walk.position;
            match self.walk.step(&self.segment, Check::Header) {
                Ok(Some(Step::Data { block, .. })) => {
                    head = if block.header.is_member() { head } else { block.position };
                    self.clock.raise(block.header.time);
                    // Its writer decided by the same rule whether it got an entry.
                    self.pacer.is_due(block.header.topic, head);
                }
                Ok(Some(Step::Other(_) | Step::End { .. })) => {}
                Err(bad) if bad.what.is_newer() => {
                    return Err(self.segment.error(bad));
                }
                Ok(None) | Err(_) => self.pass_damage(tail),
            }
            debug_assert!(self.walk.position > position);
        }
        self.tail = Address::new(self.segment.sequence(), self.walk.position);
        Ok(())
    }

    #[cold]
    fn pass_damage(&mut self, tail: Address) {
        self.walk.pass_damage(&self.segment, tail.position());
        self.reach = 0;
    }

    /// Take the first steps under the lock: flags, repair, and the last blocks of others.
    #[inline]
    pub fn under_lock(
        &mut self,
        log: &Log,
        control: &Control,
        guard: &Guard<'_>,
    ) -> std::result::Result<(), Blocked> {
        let flags = control.flags();
        if flags != 0 {
            let deleted = flags & state_flag::DELETED != 0;
            return Err(if deleted { Blocked::Deleted } else { Blocked::Latched });
        }
        self.repair_if_dirty(log, control, guard)
    }

    /// Repair, and walk over the last blocks of others.
    #[inline]
    pub fn repair_if_dirty(
        &mut self,
        log: &Log,
        control: &Control,
        guard: &Guard<'_>,
    ) -> std::result::Result<(), Blocked> {
        let tail = control.tail();
        if guard.taken_over || control.dirty() != tail {
            return self.repair(log, control, guard);
        }
        if tail == self.tail {
            return Ok(());
        }
        if tail.sequence() != self.tail.sequence() {
            return Err(Blocked::Moved);
        }
        Ok(self.walk_to(tail)?)
    }

    #[inline]
    fn write_blocks(
        &mut self,
        log: &Log,
        control: &Control,
        batch: &Batch<'_>,
        firsts: &mut [u64],
    ) -> std::result::Result<Appended, Blocked> {
        let Batch { blocks, facts, stamps, interval, needs, .. } = *batch;
        let start = self.tail.position();
        let room = self.room_for(control, needs)?;
        // A single record gets the time of the kernel's tick.
        let count = if let [block] = blocks { block.count } else { 0 };
        let (time, appended_ns) = self.clock.at(log.block_time(count));
        if start + needs > self.touched {
            self.touched = self.asked.request(log, &self.segment, start + needs);
        }
        self.reach = if self.walk.is_sure() { self.touched.min(room - RESERVE) } else { 0 };
        if time > MAX_RELATIVE_TIME {
            return Err(Blocked::Full { needs });
        }
        let mut before = None;
        for (block, first) in blocks.iter().zip(&mut *firsts) {
            *first = self.first_offset(block, before, needs)?;
            before = Some((block.topic, *first + u64::from(block.count)));
        }
        let own = if facts.is_empty() { 0 } else { own_len(facts.len()) };
        let is_apart = planted(batch.outside()) && !blocks.is_empty() && own > 0;
        let in_group = blocks.len() > 1 || (blocks.len() == 1 && own > 0 && !is_apart);
        let seat = |i| match (in_group, i) {
            (false, _) => 0,
            (true, 0) => flag::GROUP,
            (true, _) => flag::MEMBER,
        };
        let len = |(i, block)| padded_len(block, !stamps.is_empty(), seat(i));
        let len: u64 = blocks.iter().enumerate().map(len).sum();
        let group_len = if is_apart { len } else { len + own };
        let mut position = start;
        let mut data = blocks.iter().zip(&*firsts).enumerate().map(|(i, (block, first))| {
            let offset = (first - self.walk.bases.get(block.topic).unwrap_or(*first)) as u32;
            let group_len = if seat(i) == flag::GROUP { group_len as u32 } else { 0 };
            let header =
                data_header(block, stamps.get(i).copied(), seat(i), offset, group_len, time);
            let header = BlockHeader { body_crc: block.checksum(), ..header };
            let laid = self.place_at(position).lay_out(&header, block.body);
            position += header.padded();
            LaidBlock { lead: block.lead, ..laid }
        });
        let noted = (own > 0).then(|| {
            let flags = if in_group && !is_apart { flag::MEMBER } else { 0 };
            let header = BlockHeader { flags, ..own_header(Kind::Meta, facts, time) };
            self.place_at(start + len).lay_out(&header, facts)
        });
        let kept = match (interval, batch.finishes()) {
            (false, false) => Kept::Nothing,
            (true, false) => Kept::Wanted,
            (false, true) => Kept::Trimmed,
            (true, true) => Kept::WantedAndTrimmed,
        };
        let maps = (control.map(), self.segment.map());
        // The first block to commit, and those with it: the facts too, unless a canary splits them
        // off.
        let mut noted = noted.into_iter();
        let Some(first) = data.next().or_else(|| noted.next()) else {
            return Err(Blocked::Failed(no_block()));
        };
        let first_len = first.end() - start;
        let stored = if is_apart {
            let stored = commit_blocks(maps, self.tail, kept, &first, (data, len - first_len));
            stored.and_then(|middle| {
                noted.try_fold(middle, |start, noted| commit_block(maps, start, kept, &noted))
            })
        } else {
            let members = (data.chain(noted), len + own - first_len);
            commit_blocks(maps, self.tail, kept, &first, members)
        };
        let end = stored.map_err(|e| self.failed(e))?;
        // All processes see the blocks now, so no later failure fails the append. If the tail stays
        // behind, the next process that appends or syncs finds the ends unequal and repairs.
        self.note_appended(control, batch, firsts, start, appended_ns);
        let _ = commit_tail(control.map(), end);
        self.walk.position = end.position();
        self.tail = end;
        Ok(Appended { first: firsts.first().copied().unwrap_or(0), end, is_repeat: false })
    }

    /// Return how far the segment is allocated, if this many bytes fit before those that always
    /// stay free. The caller holds the lock.
    pub fn room_for(&self, control: &Control, needs: u64) -> std::result::Result<u64, Blocked> {
        let allocated = control.allocated();
        let room =
            if allocated.sequence() == self.tail.sequence() { allocated.position() } else { 0 };
        if self.tail.position() + needs + RESERVE > room {
            return Err(Blocked::Tight { needs });
        }
        Ok(room)
    }

    /// Store a block of the log's own, alone, and walk over it. The caller holds the lock.
    pub fn write_own(
        &mut self,
        control: &Control,
        kept: Kept,
        header: &BlockHeader,
        body: &[u8],
    ) -> std::result::Result<(), Blocked> {
        self.room_for(control, header.padded())?;
        let laid = self.place_at(self.tail.position()).lay_out(header, body);
        let maps = (control.map(), self.segment.map());
        let stored = commit_block(maps, self.tail, kept, &laid);
        let end = stored.map_err(|e| self.failed(e))?;
        // As in an append, later failures do not undo it.
        let _ = commit_tail(control.map(), end);
        Ok(self.walk_to(end)?)
    }

    /// Apply the facts that were appended, outside the lock: it may allocate.
    fn apply_metadata(&mut self, facts: &[u8]) {
        let applied = self.walk.state.apply_body(facts, |_, _| ());
        debug_assert!(applied.is_ok(), "facts that were encoded here");
    }

    #[inline]
    pub fn place_at(&self, position: u64) -> BlockPlace<'_> {
        let segment = &self.segment;
        BlockPlace { map: segment.map(), position, salt: segment.salt(), seed: segment.seed() }
    }

    #[cold]
    pub fn failed(&self, source: std::io::Error) -> Blocked {
        Blocked::Failed(Error::io("append to", self.segment.path(), source))
    }

    /// Return the offset of a block's first record, if its relative number fits the segment.
    /// `before` has the topic and the end of the previous block in the group.
    #[inline]
    fn first_offset(
        &self,
        block: &NewBlock<'_>,
        before: Option<(u32, u64)>,
        needs: u64,
    ) -> std::result::Result<u64, Blocked> {
        let (base, topic) = (self.walk.bases.get(block.topic), self.walk.state.topic(block.topic));
        let (Some(base), Some(topic)) = (base, topic) else {
            return Err(Blocked::Unknown { topic: block.topic });
        };
        if topic.finished && !planted(Canary::FinishedAppended) {
            return Err(Blocked::Finished { topic: block.topic });
        }
        if !self.walk.is_sure_of(block.topic) {
            // A new segment begins beyond all that the corruption may hold.
            return Err(Blocked::Full { needs });
        }
        let first =
            before.filter(|(topic, _)| *topic == block.topic).map_or(topic.next, |(_, end)| end);
        let last = first.checked_sub(base).map(|offset| offset + u64::from(block.count));
        if last.is_none_or(|last| last > u64::from(u32::MAX)) {
            return Err(Blocked::Full { needs });
        }
        Ok(first)
    }

    #[inline]
    fn note_appended(
        &mut self,
        control: &Control,
        batch: &Batch<'_>,
        firsts: &[u64],
        start: u64,
        appended_ns: i64,
    ) {
        for (i, (block, first)) in batch.blocks.iter().zip(firsts).enumerate() {
            if let Some(producer) = batch.stamps.get(i) {
                let appended_us = appended_ns / 1000;
                self.walk.state.note_producer(block.topic, *producer, *first, appended_us);
            }
            let highest = block.highest_ns(appended_ns);
            let Some(topic) = self.walk.state.topic_mut(block.topic) else { continue };
            let before = topic.highest_ns;
            topic.next = first + u64::from(block.count);
            topic.last_crc = block.checksum();
            topic.highest_ns = before.max(highest);
            if self.pacer.is_due(block.topic, start) {
                let entry = IndexEntry {
                    topic: block.topic,
                    offset: *first,
                    position: start,
                    highest_ns: before,
                };
                put_entry(&self.index, self.filled, control, &entry);
            }
        }
    }
}

/// Store an index entry. It is a hint: if the store fails, a search walks longer.
#[cold]
#[inline(never)]
pub fn put_entry(index: &Index, filled: u64, control: &Control, entry: &IndexEntry) {
    let i = control.indexed().max(filled);
    if let Ok(true) = index.put(i, entry) {
        let _ = control.set(at::INDEXED, i + 1);
    }
}

/// Return the bytes of an end block.
pub fn end_len() -> u64 {
    own_len(state::End::LEN)
}
