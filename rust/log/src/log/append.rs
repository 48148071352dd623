//! Appending: lock, catch up, place, commit, unlock.
//!
//! Owns what a writing process knows of the log's end ([`Writer`]) and the steps of an append. The
//! block is encoded and its body checksummed before the lock; under it nothing blocks, allocates or
//! can panic. Order of the stores: dirty end, body, header, commit word (release), tail. A reader
//! that sees the word sees the block; a successor that sees the dirty end knows what may be half
//! done. See `docs/PROTOCOL.md`, "Append".

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::error::{Error, Result};
use crate::format::address::{Address, align};
use crate::format::block::{HEADER_LEN, Header, Kind, MAX_HEADER_LEN, MAX_RELATIVE_TIME, flag};
use crate::format::control::{at, flag as state_flag};
use crate::format::index::Entry;
use crate::format::{Malformed, names, state};
use crate::segment::create::{Place, commit, own_len, put_block};
use crate::segment::index::{Index, Pacer};
use crate::segment::walk::{Step, Walk};
use crate::segment::{Bad, Check, Segment};

use super::guard::{Guard, Which};
use super::{Control, Log, Member, enter, write_access};

/// What always stays free behind the tail: a page, so that a reader may look at the word there, and
/// an end block.
pub const RESERVE: u64 = 4096 + HEADER_LEN as u64 + state::End::LEN as u64 + 8;

/// How far ahead of the tail pages are touched by the helper thread, bytes.
const TOUCH_AHEAD: u64 = 2 << 20;

const NOTHING_THERE: Malformed = Malformed::Damaged("nothing where a committed block should be");

/// Records on their way into the log: the encoded body of one block of one topic.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
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
    pub pacer: Pacer,
    pub walk: Walk,
    /// Address that `walk` has reached.
    pub tail: Address,
    pub prepared: Option<super::roll::Prepared>,
    /// Block times never fall: the last one, relative to the segment's time base.
    pub time: u64,
    /// Position up to which the segment was allocated at the last look.
    pub room: u64,
    /// Position up to which pages were asked to be touched ahead.
    pub touched: u64,
}

/// Why an attempt under the lock came to nothing.
pub enum Obstacle {
    /// The active segment is another one now.
    Moved,
    /// There is no room for this many bytes, or a field would overflow.
    Full { needs: u64 },
    /// A sync failed.
    Latched,
    /// The log was deleted.
    Deleted,
    /// A store failed.
    Failed(Error),
}

impl From<Error> for Obstacle {
    fn from(error: Error) -> Self {
        Obstacle::Failed(error)
    }
}

impl Log {
    /// Bytes that one append may take, headers included.
    pub fn max_group_len(&self) -> u64 {
        (self.settings.segment_bytes / 4).min(64 << 20)
    }

    /// Append blocks as one group: all of them become visible at once, in this order. `firsts` gets
    /// the first offset of each.
    ///
    /// # Errors
    /// `TooLarge`, `NoSpace`, `Io`, `LockTimeout`, `Latched`, `TopicDeleted`; then nothing was
    /// appended.
    pub fn append(&self, blocks: &[Outgoing<'_>], firsts: &mut [u64]) -> Result<Appended> {
        let (control, member) = self.writing()?;
        member.check()?;
        let needs = self.check_size(blocks)?;
        let mut slot = enter(&self.writer);
        if slot.is_none() {
            *slot = Some(Writer::open(self, control.tail())?);
        }
        loop {
            let writer = slot.as_mut().ok_or(Error::Closed { what: "log" })?;
            writer.catch_up(self, control)?;
            let guard = self.lock(Which::Append)?;
            let outcome = writer
                .under_lock(self, control, &guard)
                .and_then(|()| writer.place(self, control, blocks, needs, firsts));
            drop(guard);
            match outcome {
                Ok(appended) => {
                    control.notify(true);
                    return Ok(appended);
                }
                Err(obstacle) => self.overcome(obstacle, writer, control, member)?,
            }
        }
    }

    fn check_size(&self, blocks: &[Outgoing<'_>]) -> Result<u64> {
        let limit = self.max_group_len();
        let mut needs = 0;
        for block in blocks {
            needs += align((MAX_HEADER_LEN + block.body.len()) as u64);
        }
        if needs > limit {
            return Err(Error::TooLarge { bytes: needs, limit });
        }
        Ok(needs)
    }

    #[cold]
    fn overcome(
        &self,
        obstacle: Obstacle,
        writer: &mut Writer,
        control: &Control,
        member: &dyn Member,
    ) -> Result<()> {
        match obstacle {
            Obstacle::Moved => Ok(()),
            Obstacle::Full { needs } => self.make_room(writer, control, member, needs),
            Obstacle::Latched => self.clear_latch(),
            Obstacle::Deleted => {
                let dir = self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let name =
                    names::parse_log_dir(&dir).map_or(dir.clone(), |(name, _)| name.to_owned());
                Err(Error::TopicDeleted { name })
            }
            Obstacle::Failed(error) => Err(error),
        }
    }
}

impl Writer {
    /// Open the active segment for writing.
    pub fn open(log: &Log, tail: Address) -> Result<Self> {
        let access = write_access(&log.settings);
        let (generation, reach) = (log.settings.generation, log.settings.segment_bytes);
        let storage = &*log.storage;
        let sequence = tail.sequence();
        let segment = Segment::open(storage, &log.dir, generation, sequence, access, reach)?;
        let segment = Arc::new(segment);
        enter(&log.syncer_files).note_open(&segment, tail);
        let index = open_index(log, &segment);
        let walk = segment.opening()?.clone();
        let tail = Address::new(sequence, walk.position);
        let (pacer, touched) = (Pacer::default(), walk.position);
        Ok(Self { segment, index, pacer, walk, tail, prepared: None, time: 0, room: 0, touched })
    }

    /// Walk over what others appended, outside the lock; the segment may change on the way.
    pub fn catch_up(&mut self, log: &Log, control: &Control) -> Result<()> {
        loop {
            let tail = control.tail();
            if self.tail.sequence() != tail.sequence() {
                let prepared = self.prepared.take();
                *self = Self { prepared, ..Self::open(log, tail)? };
            }
            if self.tail == tail {
                return Ok(());
            }
            self.walk_to(tail)?;
        }
    }

    /// Walk to an address in the active segment. Damage on the way is passed over: whoever reads it
    /// is told, and what follows says which offsets it held.
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
                Ok(None) => self.skip_damage(NOTHING_THERE, tail)?,
                Err(bad) => self.skip_damage(bad.what, tail)?,
            }
            debug_assert!(self.walk.position > position);
        }
        self.tail = Address::new(self.segment.sequence(), self.walk.position);
        Ok(())
    }

    #[cold]
    fn skip_damage(&mut self, what: Malformed, tail: Address) -> Result<()> {
        let position = self.walk.position;
        let sound = self.segment.next_sound(position + 8, tail.position());
        self.walk.position = sound.ok_or_else(|| self.segment.error(Bad { position, what }))?;
        Ok(())
    }

    /// First thing under the lock: flags, repair, and the last blocks of others.
    #[inline]
    pub fn under_lock(
        &mut self,
        log: &Log,
        control: &Control,
        guard: &Guard<'_>,
    ) -> std::result::Result<(), Obstacle> {
        let flags = control.flags();
        if flags != 0 {
            let deleted = flags & state_flag::DELETED != 0;
            return Err(if deleted { Obstacle::Deleted } else { Obstacle::Latched });
        }
        let tail = control.tail();
        if guard.taken_over || control.dirty() != tail {
            return self.repair(log, control, guard);
        }
        if tail == self.tail {
            return Ok(());
        }
        if tail.sequence() != self.tail.sequence() {
            return Err(Obstacle::Moved);
        }
        Ok(self.walk_to(tail)?)
    }

    #[inline]
    fn place(
        &mut self,
        log: &Log,
        control: &Control,
        blocks: &[Outgoing<'_>],
        needs: u64,
        firsts: &mut [u64],
    ) -> std::result::Result<Appended, Obstacle> {
        let start = self.tail.position();
        let sequence = self.tail.sequence();
        let allocated = control.allocated();
        let room = if allocated.sequence() == sequence { allocated.position() } else { 0 };
        self.room = room;
        if start + needs + RESERVE > room {
            return Err(Obstacle::Full { needs });
        }
        let time = self.next_time(log, blocks);
        if start + needs > self.touched {
            self.touch_ahead(log, start + needs);
        }
        if time > MAX_RELATIVE_TIME {
            return Err(Obstacle::Full { needs });
        }
        // An upper bound is enough: who comes after covers it with a void block.
        control.set(at::DIRTY, Address::new(sequence, start + needs).0)?;
        compiler_fence(Ordering::SeqCst);
        let mut position = start;
        let mut head_word = 0;
        let group_len = group_len(blocks);
        for (i, block) in blocks.iter().enumerate() {
            let header = self.header(block, i, group_len, time).ok_or(Obstacle::Full { needs })?;
            let place = self.place_at(position);
            let word = put_block(place, &header, block.body).map_err(|e| self.failed(e))?;
            if i == 0 {
                head_word = word;
            } else {
                commit(place, word).map_err(|e| self.failed(e))?;
            }
            firsts[i] = self.walk.bases.get(block.topic).unwrap_or(0) + u64::from(header.offset);
            position += header.padded();
        }
        commit(self.place_at(start), head_word).map_err(|e| self.failed(e))?;
        let end = Address::new(sequence, position);
        self.note_appended(control, blocks, firsts, start, time)?;
        control.set(at::TAIL, end.0)?;
        control.set(at::DIRTY, end.0)?;
        if blocks.iter().any(|block| block.interval) {
            control.set(at::WANTED, end.0)?;
        }
        self.walk.position = position;
        self.tail = end;
        Ok(Appended { first: firsts[0], end })
    }

    /// Time of the next block. A record on its own goes by the kernel's tick, which costs a fraction
    /// of reading the clock.
    #[inline]
    fn next_time(&mut self, log: &Log, blocks: &[Outgoing<'_>]) -> u64 {
        let single = blocks.len() == 1 && blocks[0].count == 1;
        let now = if single { log.storage.tick_us() } else { log.storage.now_us() };
        let relative = now.saturating_sub(self.segment.header().time_base_us);
        self.time = self.time.max(relative.max(0) as u64);
        self.time
    }

    #[cold]
    fn touch_ahead(&mut self, log: &Log, needed: u64) {
        let until = needed + TOUCH_AHEAD;
        log.ask_to_touch(&self.segment, self.touched.max(needed), until);
        self.touched = until - TOUCH_AHEAD / 2;
    }

    #[inline]
    pub fn place_at(&self, position: u64) -> Place<'_> {
        let segment = &self.segment;
        Place { map: segment.map(), position, salt: segment.salt(), seed: segment.seed() }
    }

    #[cold]
    pub fn failed(&self, source: std::io::Error) -> Obstacle {
        Obstacle::Failed(Error::io("append to", self.segment.path(), source))
    }

    /// Header of the `i`-th block of a group; `None` when a relative number no longer fits.
    #[inline]
    fn header(&self, block: &Outgoing<'_>, i: usize, group_len: u32, time: u64) -> Option<Header> {
        let next = self.walk.state.topic(block.topic)?.next;
        let offset = next - self.walk.bases.get(block.topic)?;
        let offset = u32::try_from(offset).ok()?;
        offset.checked_add(block.count)?;
        let flags = header_flags(block, i, group_len);
        Some(Header {
            kind: Kind::Data,
            len: (Header::len_for(flags) + block.body.len()) as u32,
            body_crc: block.body_crc,
            offset,
            count: block.count,
            span: block.count,
            time,
            flags,
            topic: block.topic,
            group_len: if i == 0 { group_len } else { 0 },
            producer: None,
        })
    }

    #[inline]
    fn note_appended(
        &mut self,
        control: &Control,
        blocks: &[Outgoing<'_>],
        firsts: &[u64],
        start: u64,
        time: u64,
    ) -> Result<()> {
        for (block, first) in blocks.iter().zip(firsts) {
            let appended_us = self.segment.header().time_base_us.saturating_add(time as i64);
            let appended_ns = block.uses_append_time.then(|| appended_us.saturating_mul(1000));
            let highest = block.highest_event_ns.max(appended_ns).unwrap_or(i64::MIN);
            let Some(topic) = self.walk.state.topic_mut(block.topic) else { continue };
            let before = topic.highest_ns;
            topic.next = first + u64::from(block.count);
            topic.last_crc = block.body_crc;
            topic.highest_ns = before.max(highest);
            if self.pacer.is_due(block.topic, start) {
                let entry = Entry {
                    topic: block.topic,
                    offset: *first,
                    position: start,
                    highest_ns: before,
                };
                self.put_entry(control, &entry)?;
            }
        }
        Ok(())
    }

    fn put_entry(&self, control: &Control, entry: &Entry) -> Result<()> {
        let i = control.indexed();
        let stored = self.index.put(i, entry);
        let path = self.segment.path();
        if stored.map_err(|e| Error::io("write the index of", path, e))? {
            control.set(at::INDEXED, i + 1)?;
        }
        Ok(())
    }
}

/// Bytes of the group that these blocks make; zero for a single one, which is no group.
#[inline]
fn group_len(blocks: &[Outgoing<'_>]) -> u32 {
    if blocks.len() < 2 {
        return 0;
    }
    let padded = |(i, block): (usize, &Outgoing<'_>)| {
        let flags = header_flags(block, i, 1);
        align((Header::len_for(flags) + block.body.len()) as u64)
    };
    blocks.iter().enumerate().map(padded).sum::<u64>() as u32
}

#[inline]
fn header_flags(block: &Outgoing<'_>, i: usize, group_len: u32) -> u16 {
    let topic = if block.topic == 0 { 0 } else { flag::TOPIC };
    let group = match (group_len, i) {
        (0, _) => 0,
        (_, 0) => flag::GROUP,
        _ => flag::MEMBER,
    };
    block.flags | topic | group
}

/// The index of the active segment, for writing; made anew when it is missing or damaged.
pub fn open_index(log: &Log, segment: &Segment) -> Index {
    let (storage, access) = (&*log.storage, write_access(&log.settings));
    Index::open_file(storage, &log.dir, segment, access).unwrap_or(Index::Built(Vec::new()))
}

/// Bytes that an end block takes.
pub fn end_len() -> u64 {
    own_len(state::End::LEN)
}
