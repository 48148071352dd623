//! Committing a bulk load that is too large for a group: its blocks become the log's next segment.
//!
//! The segment is made whole outside the lock, as a roll makes one. It is filled with all blocks of
//! the load, its idempotency key last, and is on disk before it counts. Space is left after its
//! first snapshot for the second one. That one says with which offsets topics continue here, which
//! is known only under the lock; the blocks' offsets are relative to it. Under the lock the same
//! happens as in a roll: a snapshot, a header, a rename, an end block. **The end block is the
//! commit point**, of the roll and of the load. So all code that handles segments handles large
//! bulk loads too. See `docs/PROTOCOL.md`, "Bulk loads", and
//! `docs/decisions/0012-large-loads-are-the-next-segment.md`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::{Address, MAX_POSITION};
use crate::format::block::{BlockHeader, HEADER_LEN, Kind, flag};
use crate::format::names;
use crate::format::state::LogState;
use crate::segment::create::{Builder, own_header, own_len};
use crate::storage::LockKind;

use super::append::{Blocked, RESERVE, Writer};
use super::batch::Batch;
use super::bulk_load::Token;
use super::guard::Which;
use super::preconditions::{Found, Precondition, Unmet};
use super::roll::next_sequence;
use super::{Control, Log, Member, enter, write_access};

/// Bytes left free for changes while a segment is filled, beside the known state.
const SLACK: u64 = 64 << 10;
/// Most bytes of the blocks of a bulk load: with all else in a segment they must have a position.
const MAX_JOB: u64 = 30 << 30;

const _: () = assert!(MAX_JOB + (1 << 30) < MAX_POSITION);

/// A block on its way into a segment, without its body.
#[derive(Clone, Copy, Debug)]
pub struct LargeBlock {
    /// Topic number in the log.
    pub topic: u32,
    /// Flags of the body.
    pub flags: u16,
    /// Number of records.
    pub count: u32,
    /// CRC-32 of the body.
    pub body_crc: u32,
}

/// The source of a large load's blocks.
pub trait Blocks {
    /// Begin again with the first.
    fn rewind(&mut self);

    /// Return the next block, its body stored into `body`; `None` after the last.
    ///
    /// # Errors
    /// When it cannot be read, or is not what it should be: then the load is not committed.
    fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<LargeBlock>>;
}

/// A bulk load to commit as a segment.
#[allow(missing_debug_implementations, reason = "where blocks come from need not tell")]
pub struct Large<'a> {
    /// Its blocks.
    pub blocks: &'a mut dyn Blocks,
    /// Most bytes that they need, headers included.
    pub bytes: u64,
    /// The path at which to make the segment: a name on the log's file system that no other code
    /// uses.
    pub path: PathBuf,
}

/// Where a large load was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Where it ends.
    pub end: Address,
    /// The offsets of its records, by topic number.
    pub offsets: BTreeMap<u32, Range<u64>>,
}

/// A segment that holds a bulk load, and lacks only what is known under the lock.
#[derive(Debug)]
struct Filled {
    builder: Builder,
    /// The state in its first snapshot.
    state: LogState,
    time_base_us: i64,
    /// Space for the second one.
    room: Range<u64>,
    /// Records, by topic number.
    records: BTreeMap<u32, u64>,
}

type Outcome<T> = std::result::Result<T, Blocked>;

impl Log {
    /// Return the most bytes of the blocks of one load, headers included.
    pub fn max_job_len(&self) -> u64 {
        MAX_JOB
    }

    /// Do as [`Log::commit_load`], for a bulk load of any size: its blocks become the log's next
    /// segment. Their bytes are on disk when this returns, but not yet the end block that makes
    /// them part of the log.
    ///
    /// # Errors
    /// As [`Log::commit_load`]; the errors of `blocks`.
    pub fn commit_large(
        &self,
        load: &mut Large<'_>,
        token: Option<&Token>,
    ) -> Result<Option<Landed>> {
        let token = token.map(Precondition::Token);
        let committed = self.try_large(load, token.as_slice());
        // A file that is not part of the log by now never will be.
        let _ = self.storage.unlink(&load.path);
        committed.map_err(|error| self.unless_deleted(error))
    }

    fn try_large(
        &self,
        load: &mut Large<'_>,
        preconditions: &[Precondition<'_>],
    ) -> Result<Option<Landed>> {
        let (control, member) = self.writing()?;
        member.check()?;
        let limit = self.max_job_len();
        if load.bytes > limit {
            return Err(Error::AppendTooLarge { bytes: load.bytes, limit });
        }
        let mut slack = SLACK;
        loop {
            let state = {
                let mut slot = enter(&self.writer);
                let writer = self.writer_in(&mut slot, control)?;
                self.repair_tail(writer, control)?;
                writer.walk.state_beyond_damage().into_owned()
            };
            let mut filled = Some(self.fill(load, preconditions, state, slack)?);
            pass(Point::JobFilled);
            while filled.is_some() {
                let mut slot = enter(&self.writer);
                let writer = self.writer_in(&mut slot, control)?;
                writer.catch_up(self, control)?;
                match self.land(writer, (control, member), &mut filled, preconditions) {
                    Ok(landed) => return Ok(Some(landed)),
                    Err(Blocked::Unmet(Unmet { found: Found::Past(_), .. })) => return Ok(None),
                    Err(Blocked::Unmet(unmet)) => {
                        return Err(self.unmet_error(preconditions, unmet));
                    }
                    Err(obstacle) => self.resolve(obstacle, writer, control, member)?,
                }
            }
            // Too much changed meanwhile for the space that was left.
            slack = slack.saturating_mul(16);
        }
    }

    /// Make the segment, and sync all of it.
    fn fill(
        &self,
        load: &mut Large<'_>,
        preconditions: &[Precondition<'_>],
        state: LogState,
        slack: u64,
    ) -> Result<Filled> {
        let storage = &*self.storage;
        let snapshot = state.encode_since(&LogState::default());
        let facts = self.facts_of(preconditions);
        let room = own_len(snapshot.len()) + slack;
        let own = names_and_facts(&snapshot, &facts) + room + RESERVE;
        let len = (own + load.bytes).next_multiple_of(crate::format::PAGE);
        let (reach, mode) = (self.settings.segment_bytes, self.settings.file_mode);
        let access = write_access(&self.settings);
        let builder = Builder::new(storage, load.path.clone(), len, reach, mode, access)?;
        let time_base_us = storage.now_us();
        let room = 0..room;
        let records = BTreeMap::new();
        let mut filled = Filled { builder, state, time_base_us, room, records };
        // While it is held, no sweep removes the file as a leftover.
        filled.builder.file().try_lock(LockKind::Exclusive).doing("lock", &load.path)?;
        filled.put(load, &snapshot, &facts)?;
        filled.builder.sync()?;
        Ok(filled)
    }

    /// Try once to make the segment the log's next one. `filled` becomes `None` if it has no space
    /// for the changes meanwhile.
    fn land(
        &self,
        writer: &mut Writer,
        (control, member): (&Control, &dyn Member),
        filled: &mut Option<Filled>,
        preconditions: &[Precondition<'_>],
    ) -> Outcome<Landed> {
        control.check_in_place(&*self.storage).map_err(|error| self.unless_deleted(error))?;
        self.make_room_to_end(writer, control)?;
        let path = self.dir.join(names::segment(next_sequence(writer.tail.sequence())?));
        let Some(ready) = filled.as_ref() else { return Err(Blocked::Moved) };
        let most = ready.room.end - ready.room.start;
        let mut changes = Vec::with_capacity(most as usize);
        let guard = self.lock(Which::Append)?;
        pass(Point::RollLocked);
        writer.under_lock(self, control, &guard)?;
        self.check_room_to_end(writer, control)?;
        writer.check(self, &Batch { preconditions, ..Batch::default() }, &mut [])?;
        let known = writer.walk.state_beyond_damage();
        if let Some(topic) = ready.records.keys().find(|topic| known.topic(**topic).is_none()) {
            return Err(Blocked::Unknown { topic: *topic });
        }
        let is_finished = |topic: &&u32| known.topic(**topic).is_some_and(|it| it.finished);
        if let Some(topic) = ready.records.keys().find(is_finished) {
            return Err(Blocked::Finished { topic: *topic });
        }
        known.append_since(&ready.state, &mut changes);
        let until = ready.room.start + own_len(changes.len());
        if until != ready.room.end && until + HEADER_LEN as u64 > ready.room.end {
            drop(guard);
            *filled = None;
            return Err(Blocked::Moved);
        }
        drop(known);
        ready.begin(&changes, until)?;
        let time = ready.time_base_us;
        let named = self.name_next(writer, (control, member), &ready.builder, time, &path, &guard);
        let header = named?;
        drop(guard);
        pass(Point::RollUnlocked);
        let Some(ready) = filled.take() else { return Err(Blocked::Moved) };
        // This is the state under the lock, until the writer walks the new segment.
        let offsets = ready.offsets(&writer.walk.state_beyond_damage());
        let end = Address::new(header.sequence, ready.builder.position());
        let _ = ready.builder.file().unlock();
        let segment = ready.builder.into_segment(path, header);
        self.enter_next(writer, control, segment, 0)?;
        Ok(Landed { end, offsets })
    }
}

impl Filled {
    fn put(&mut self, load: &mut Large<'_>, snapshot: &[u8], facts: &[u8]) -> Result<()> {
        let builder = &mut self.builder;
        builder.block(&own_header(Kind::Snapshot, snapshot, 0), snapshot)?;
        let room = builder.leave(self.room.end);
        self.room = room..room + self.room.end;
        let limit = builder.position() + load.bytes;
        let mut body = Vec::new();
        load.blocks.rewind();
        while let Some(block) = load.blocks.next(&mut body)? {
            let records = self.records.entry(block.topic).or_default();
            let header = header_of(&block, *records, body.len())?;
            if builder.position() + header.padded() > limit {
                return Err(Error::invalid("a bulk load has more bytes than it said"));
            }
            builder.block(&header, &body)?;
            *records += u64::from(block.count);
        }
        if !facts.is_empty() {
            builder.block(&own_header(Kind::Meta, facts, 0), facts)?;
        }
        Ok(())
    }

    /// Store the segment's first blocks, as far as they were left open.
    fn begin(&self, changes: &[u8], until: u64) -> Result<()> {
        let header = own_header(Kind::Snapshot, changes, 0);
        self.builder.block_at(self.room.start, &header, changes)?;
        if until < self.room.end {
            self.builder.cover(until, self.room.end)?;
        }
        Ok(())
    }

    fn offsets(&self, known: &LogState) -> BTreeMap<u32, Range<u64>> {
        let records = self.records.iter();
        let range = |(topic, records): (&u32, &u64)| {
            let first = known.topic(*topic).map_or(0, |topic| topic.next);
            (*topic, first..first + records)
        };
        records.map(range).collect()
    }
}

fn names_and_facts(snapshot: &[u8], facts: &[u8]) -> u64 {
    crate::format::FIRST_BLOCK + own_len(snapshot.len()) + own_len(facts.len())
}

/// Make the header of a block that has this many records of its topic before it in the segment.
fn header_of(block: &LargeBlock, before: u64, body: usize) -> Result<BlockHeader> {
    let LargeBlock { topic, flags, count, body_crc } = *block;
    let flags = if topic == 0 { flags } else { flags | flag::TOPIC };
    let most = u64::from(u32::MAX);
    let Some(offset) = u32::try_from(before).ok().filter(|_| before + u64::from(count) <= most)
    else {
        return Err(Error::invalid(format!(
            "a bulk load has at most {most} records for one partition: commit it in several"
        )));
    };
    Ok(BlockHeader {
        len: (BlockHeader::len_for(flags) + body) as u32,
        body_crc,
        offset,
        count,
        span: count,
        flags,
        topic,
        ..BlockHeader::new(Kind::Data)
    })
}
