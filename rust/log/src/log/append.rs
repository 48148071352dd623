//! Appending: lock, catch up, place, commit, unlock.
//!
//! Owns what a writing process knows of the log's end ([`Writer`]) and the steps of an append. The
//! block is encoded and its body checksummed before the lock; under it nothing blocks, allocates or
//! can panic. Order of the stores: dirty end, body, header, commit word (release), tail. A reader
//! that sees the word sees the block; a successor that sees the dirty end knows what may be half
//! done. See `docs/PROTOCOL.md`, "Append".

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::block::{BlockHeader, HEADER_LEN, Kind, MAX_RELATIVE_TIME, Producer, flag};
use crate::format::control::{at, flag as state_flag};
use crate::format::index::IndexEntry;
use crate::format::{DecodeError, state};
use crate::segment::create::{BlockPlace, commit, own_header, own_len, put_block};
use crate::segment::index::{Index, IndexSampler};
use crate::segment::walk::{SegmentWalker, Step};
use crate::segment::{Check, Segment};

use super::batch::{Batch, len_of};
use super::create::max_group_len;
use super::guard::{Guard, Which};
use super::preconditions::{Unmet, sequences};
use super::prefault::PrefaultCursor;
use super::{Control, Log, Member, enter, write_access};

/// What always stays free behind the tail: a page, so that a reader may look at the word there, and
/// an end block.
pub const RESERVE: u64 = 4096 + HEADER_LEN as u64 + state::End::LEN as u64 + 8;

/// Records on their way into the log: the encoded body of one block of one topic.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock<'a> {
    /// Topic number in the log.
    pub topic: u32,
    /// Flags that belong to the body, see [`crate::format::record::BodyWriter::flags`].
    pub flags: u16,
    /// Number of records.
    pub count: u32,
    /// The body.
    pub body: &'a [u8],
    /// Its CRC-32.
    pub body_crc: u32,
    /// Highest event time in it, if any, nanoseconds since 1970.
    pub highest_event_ns: Option<i64>,
    /// True when some record goes by the time of the append.
    pub uses_append_time: bool,
    /// True when it is to be on the medium within the log's interval.
    pub interval: bool,
}

/// Where an append went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// First offset of the first block.
    pub first: u64,
    /// Where the group ends: durable once the durable end has reached it.
    pub end: Address,
}

/// What this process knows of the log's end. Behind the process's mutex.
#[derive(Debug)]
pub struct Writer {
    pub segment: Arc<Segment>,
    pub index: Index,
    /// Entries that the index had when it was opened, where the control page speaks of none: those of
    /// blocks that the segment began with.
    pub filled: u64,
    pub pacer: IndexSampler,
    pub walk: SegmentWalker,
    /// Address that `walk` has reached.
    pub tail: Address,
    pub prepared: Option<super::roll::Prepared>,
    /// Block times never fall: the last one, relative to the segment's time base.
    pub time: u64,
    /// Position up to which the segment was allocated at the last look.
    pub room: u64,
    /// Position at which more pages are to be asked for.
    pub touched: u64,
    pub asked: PrefaultCursor,
}

/// Why an attempt under the lock came to nothing.
pub enum Blocked {
    /// The active segment is another one now.
    Moved,
    /// There is no room for this many bytes in what is allocated.
    Tight { needs: u64 },
    /// A field would overflow: this segment takes no more.
    Full { needs: u64 },
    /// A sync failed.
    Latched,
    /// The log was deleted.
    Deleted,
    /// The log has no topic of this number.
    Unknown { topic: u32 },
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
    /// Bytes that one append may take, headers included.
    pub fn max_group_len(&self) -> u64 {
        max_group_len(self.settings.segment_bytes)
    }

    /// Append blocks as one group: all of them become visible at once, in this order. `firsts` gets
    /// the first offset of each. A topic stands once in a group.
    ///
    /// # Errors
    /// `InvalidArgument`, `AppendTooLarge`, `NoSpace`, `SystemCallFailed`, `LockTimeout`, `SyncFailed`,
    /// `TopicDeleted`; then nothing was appended.
    pub fn append(&self, blocks: &[NewBlock<'_>], firsts: &mut [u64]) -> Result<Appended> {
        self.append_if(&[], blocks, false, firsts)
    }

    /// Append, unless a precondition is not met.
    pub(super) fn attempt(
        &self,
        slot: &mut Option<Writer>,
        (control, member): (&Control, &dyn Member),
        batch: &Batch<'_>,
        firsts: &mut [u64],
    ) -> Result<std::result::Result<Appended, Unmet>> {
        let writer = self.writer_in(slot, control)?;
        let producer = sequences(batch.preconditions).map(|of| of.stamp);
        loop {
            writer.catch_up(self, control)?;
            writer.reserve_producer(self, batch)?;
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
                    Some(repeated) => Ok(repeated),
                    None => writer.write_blocks(self, control, batch, producer, firsts),
                });
            drop(guard);
            match outcome {
                Ok(appended) => {
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

    /// What this process knows of the log's end, behind its mutex; opened when it is needed first.
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

    /// The log's end, with what a dead or failed append left half done made sound; also in a log that
    /// is latched.
    pub(super) fn repair_tail(&self, writer: &mut Writer, control: &Control) -> Result<Address> {
        loop {
            writer.catch_up(self, control)?;
            let guard = self.lock(Which::Append)?;
            match writer.repair_if_dirty(self, control, &guard) {
                Ok(()) => return Ok(writer.tail),
                Err(Blocked::Failed(error)) => return Err(error),
                // The active segment is another one.
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
                // It was another one's turn meanwhile, and this one is gone.
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
        // Read after the opening: of an error before it this descriptor is not told.
        enter(&log.syncer_files).note_open(&segment, control.tail());
        let (index, filled) = log.index_to_write(&segment, control);
        let (walk, pacer, time) = match log.take_recovered_tail(&segment, tail) {
            Some(known) => (known.walk, known.noted.pacer, known.noted.time),
            None => (segment.opening()?.clone(), IndexSampler::default(), 0),
        };
        let tail = Address::new(sequence, walk.position);
        let (touched, asked) = (walk.position, PrefaultCursor::default());
        let (prepared, room) = (None, 0);
        Ok(Self { segment, index, filled, pacer, walk, tail, prepared, time, room, touched, asked })
    }

    /// Walk over what others appended, outside the lock; the segment may change on the way.
    pub fn catch_up(&mut self, log: &Log, control: &Control) -> Result<()> {
        loop {
            let tail = control.tail();
            if self.tail.sequence() != tail.sequence() {
                let opened = Self::open(log, control)?;
                *self = Self { prepared: self.prepared.take(), ..opened };
                continue;
            }
            // Behind it, when a store failed behind the commit word.
            if self.tail >= tail {
                return Ok(());
            }
            self.walk_to(tail)?;
        }
    }

    /// Walk to an address in the active segment. Damage on the way is passed over: whoever reads it
    /// is told. A topic that may have records in it takes appends again once its next offset is
    /// known, or in the next segment.
    pub fn walk_to(&mut self, tail: Address) -> Result<()> {
        let mut head = self.walk.position;
        while self.walk.position < tail.position() {
            let position = self.walk.position;
            match self.walk.step(&self.segment, Check::Header) {
                Ok(Some(Step::Data { block, .. })) => {
                    head = if block.header.is_member() { head } else { block.position };
                    self.time = self.time.max(block.header.time);
                    // Whoever wrote it decided by the same rule whether it got an entry.
                    self.pacer.is_due(block.header.topic, head);
                }
                Ok(Some(Step::Other(_) | Step::End { .. })) => {}
                Err(bad) if matches!(bad.what, DecodeError::Unknown(_)) => {
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
        // The fast path knows nothing of doubt: without room it leaves all to the slow one.
        self.room = 0;
    }

    /// First thing under the lock: flags, repair, and the last blocks of others.
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

    /// Repair, and the last blocks of others.
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
        producer: Option<Producer>,
        firsts: &mut [u64],
    ) -> std::result::Result<Appended, Blocked> {
        let Batch { blocks, facts, interval, needs, .. } = *batch;
        let start = self.tail.position();
        let sequence = self.tail.sequence();
        let allocated = control.allocated();
        let room = if allocated.sequence() == sequence { allocated.position() } else { 0 };
        self.room = if self.walk.is_sure() { room } else { 0 };
        if start + needs + RESERVE > room {
            return Err(Blocked::Tight { needs });
        }
        let time = self.next_time(log, blocks);
        if start + needs > self.touched {
            self.touched = self.asked.request(log, &self.segment, start + needs);
        }
        if time > MAX_RELATIVE_TIME {
            return Err(Blocked::Full { needs });
        }
        let mut before = None;
        for (block, first) in blocks.iter().zip(&mut *firsts) {
            *first = self.first_offset(block, before, needs)?;
            before = Some((block.topic, *first + u64::from(block.count)));
        }
        let is_apart = planted(batch.outside()) && !blocks.is_empty();
        let own = if facts.is_empty() { 0 } else { own_len(facts.len()) };
        let in_group = blocks.len() > 1 || (blocks.len() == 1 && own > 0 && !is_apart);
        let len = len_of(blocks, producer.is_some(), in_group);
        let end = Address::new(sequence, start + len + own);
        control.set(at::DIRTY, end.0)?;
        if interval {
            control.set(at::WANTED, end.0)?;
        }
        compiler_fence(Ordering::SeqCst);
        pass(Point::AppendDirty);
        if planted(Canary::IndexBeforeData) {
            self.note_appended(control, blocks, producer, firsts, start, time);
            control.set(at::TAIL, end.0)?;
        }
        let mut position = start;
        let mut head_word = 0;
        let grouped = if is_apart { len } else { len + own };
        let group_len = if in_group { grouped as u32 } else { 0 };
        for (i, block) in blocks.iter().enumerate() {
            let header = self.header(block, producer, i, firsts[i], group_len, time);
            let place = self.place_at(position);
            let word = put_block(place, &header, block.body).map_err(|e| self.failed(e))?;
            if i == 0 {
                head_word = word;
            } else {
                commit(place, word).map_err(|e| self.failed(e))?;
                pass(Point::GroupMember);
            }
            position += header.padded();
        }
        let mut last_word = None;
        if own > 0 {
            let flags = if in_group && !is_apart { flag::MEMBER } else { 0 };
            let header = BlockHeader { flags, ..own_header(Kind::Meta, facts, time) };
            let place = self.place_at(position);
            let word = put_block(place, &header, facts).map_err(|e| self.failed(e))?;
            match (blocks.is_empty(), is_apart) {
                (true, _) => head_word = word,
                (false, true) => last_word = Some((position, word)),
                (false, false) => {
                    commit(place, word).map_err(|e| self.failed(e))?;
                    pass(Point::GroupMember);
                }
            }
            position += own;
        }
        debug_assert_eq!(position, end.position());
        pass(Point::BlockHeader);
        commit(self.place_at(start), head_word).map_err(|e| self.failed(e))?;
        if let Some((at, word)) = last_word {
            commit(self.place_at(at), word).map_err(|e| self.failed(e))?;
        }
        pass(Point::AppendCommitted);
        // It is there now, for everybody, so nothing that fails from here on fails the append. Where
        // the tail stays behind, whoever appends or syncs next finds the ends unequal and repairs.
        self.note_appended(control, blocks, producer, firsts, start, time);
        let _ = control.set(at::TAIL, end.0);
        pass(Point::AppendTail);
        self.walk.position = position;
        self.tail = end;
        Ok(Appended { first: firsts.first().copied().unwrap_or(0), end })
    }

    /// Apply the facts that were appended, outside the lock: it may allocate.
    fn apply_metadata(&mut self, facts: &[u8]) {
        let applied = self.walk.state.apply_body(facts, |_, _| ());
        debug_assert!(applied.is_ok(), "facts that were encoded here");
    }

    /// Time of the next block. A record on its own goes by the kernel's tick, which costs a fraction
    /// of reading the clock.
    #[inline]
    fn next_time(&mut self, log: &Log, blocks: &[NewBlock<'_>]) -> u64 {
        let single = blocks.len() == 1 && blocks[0].count == 1;
        let now = if single { log.storage.tick_us() } else { log.storage.now_us() };
        let relative = now.saturating_sub(self.segment.header().time_base_us);
        self.time = self.time.max(relative.max(0) as u64);
        self.time
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

    /// Offset of a block's first record, if its relative number fits the segment. `before` says where the
    /// block before it in the group ends, and of which topic it is.
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
        if !self.walk.is_sure_of(block.topic) {
            // A new segment begins beyond whatever the damage holds.
            return Err(Blocked::Full { needs });
        }
        let first =
            before.filter(|(topic, _)| *topic == block.topic).map_or(topic.next, |(_, end)| end);
        let last = first - base + u64::from(block.count);
        if last > u64::from(u32::MAX) {
            return Err(Blocked::Full { needs });
        }
        Ok(first)
    }

    #[inline]
    fn note_appended(
        &mut self,
        control: &Control,
        blocks: &[NewBlock<'_>],
        producer: Option<Producer>,
        firsts: &[u64],
        start: u64,
        time: u64,
    ) {
        for (block, first) in blocks.iter().zip(firsts) {
            if let Some(producer) = producer {
                self.walk.state.note_producer(block.topic, producer, *first);
            }
            let appended_us = self.segment.header().time_base_us.saturating_add(time as i64);
            let appended_ns = block.uses_append_time.then(|| appended_us.saturating_mul(1000));
            let highest = block.highest_event_ns.max(appended_ns).unwrap_or(i64::MIN);
            let Some(topic) = self.walk.state.topic_mut(block.topic) else { continue };
            let before = topic.highest_ns;
            topic.next = first + u64::from(block.count);
            topic.last_crc = block.body_crc;
            topic.highest_ns = before.max(highest);
            if self.pacer.is_due(block.topic, start) {
                let entry = IndexEntry {
                    topic: block.topic,
                    offset: *first,
                    position: start,
                    highest_ns: before,
                };
                // The index is a hint: without the entry it is a longer walk.
                let _ = self.put_entry(control, &entry);
            }
        }
    }

    pub fn put_entry(&self, control: &Control, entry: &IndexEntry) -> Result<()> {
        let i = control.indexed().max(self.filled);
        let stored = self.index.put(i, entry);
        let path = self.segment.path();
        if stored.map_err(|e| Error::io("write the index of", path, e))? {
            control.set(at::INDEXED, i + 1)?;
        }
        Ok(())
    }
}

/// Bytes that an end block takes.
pub fn end_len() -> u64 {
    own_len(state::End::LEN)
}
