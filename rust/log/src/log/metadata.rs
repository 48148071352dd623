//! The metadata that a log records beside its records: topics created and deleted, and cursors.
//!
//! Owns the meta blocks, and reading what they record. Invariant: a fact is committed as a block
//! is, under the append lock. The control page says up to where facts about topics lie before the
//! block is visible. So readers learn of them as they learn of trims. A topic's number is never
//! given again: each snapshot has the highest one. A cursor moves in an append, with records or
//! alone ([`super::preconditions`]). The store decides which process may add and remove topics, and
//! when others learn of it. See `docs/PROTOCOL.md`, "Shared logs".

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::DecodeError;
use crate::format::address::Address;
use crate::format::block::{BlockHeader, Kind};
use crate::format::state::{
    CursorState, LogState, MAX_TOPICS, TopicState, encode_deletions, encode_new_topics,
};
use crate::segment::create::own_header;
use crate::segment::walk::Step;
use crate::segment::{BlockError, Check, NO_BLOCK, Segment};

use super::append::{Blocked, Writer};
use super::commit::Kept;
use super::guard::Which;
use super::preconditions::Precondition;
use super::recover::sound_step;
use super::{Control, Log, Member, enter};

/// Most topics, or producers, that one block names.
pub(super) const FACTS_OF_A_BLOCK: usize = 256;

/// A cursor that moves with an append, or alone.
#[derive(Clone, Copy, Debug)]
pub struct CursorMove<'a> {
    /// The cursor's name.
    pub name: &'a [u8],
    /// Its new state; [`CursorState::NONE`] to forget it.
    pub to: CursorState,
    /// Its required state before the move, checked under the append lock. `None` if any state will
    /// do, [`CursorState::NONE`] if it must not exist.
    pub from: Option<CursorState>,
    /// A text that is kept beside it until it moves again, at most [`crate::format::state::MAX_METADATA`] bytes.
    pub metadata: &'a [u8],
}

/// A cursor that a log keeps, as people see it.
#[derive(Clone, Debug)]
pub struct KeptOffset {
    /// Offset of the next record to be read.
    pub offset: u64,
    /// The text that was committed with it.
    pub metadata: Vec<u8>,
}

/// The end of each topic of a log, at one place of it.
#[derive(Clone, Debug)]
pub struct TopicEnds(pub(super) LogState);

impl TopicEnds {
    /// Return the offset after the last record of a topic.
    pub fn get(&self, topic: u32) -> u64 {
        self.0.topic(topic).map_or(0, |topic| topic.next)
    }
}

impl Log {
    /// Find where each topic ends at an address, by one walk over its segment.
    ///
    /// # Errors
    /// `CorruptData` if there is corruption on the way; `UnsupportedVersion`, `SystemCallFailed`.
    pub fn ends_at(&self, address: Address) -> Result<TopicEnds> {
        let mut segment = self.chain.segment(address.sequence())?;
        let mut walk = self.opening(&segment)?.clone();
        while walk.position < address.position() {
            let position = walk.position;
            if walk.advance(&mut segment, Check::Header)?.is_none() {
                return Err(segment.lacks_block(position));
            }
        }
        Ok(TopicEnds(walk.state))
    }

    /// Return where a topic ends, if this process has the log open for writing, knows it, and need
    /// not wait. In a log of many topics the last record of one may lie far before the end.
    pub(super) fn known_end(&self, topic: u32, tail: Address) -> Option<u64> {
        let (control, member) = self.writing().ok()?;
        member.check().ok()?;
        let mut slot = self.writer.try_lock().ok()?;
        let writer = slot.as_mut().filter(|writer| writer.walk.state.next_number() > 1)?;
        writer.catch_up(self, control).ok()?;
        let is_known = writer.tail == tail && writer.walk.is_sure_of(topic);
        writer.walk.state.topic(topic).filter(|_| is_known).map(|topic| topic.next)
    }

    /// Add a topic with this many partitions; return its number. Partition `p` has the number that
    /// is higher by `p`. It is on disk when this returns. The caller keeps others from adding
    /// topics at the same time. A process that dies in between leaves topics without a name, which
    /// do no harm.
    ///
    /// # Errors
    /// `InvalidArgument` when the log has no numbers left; else as [`Log::append`] and [`Log::sync_to`].
    pub fn add_topic(&self, generation: [u8; 16], partitions: u32) -> Result<u32> {
        let (control, member) = self.writing()?;
        member.check()?;
        let number = self.next_number(control)?;
        if MAX_TOPICS - number < partitions {
            return Err(self.no_numbers(number, partitions));
        }
        let empty = |p| (number + p, TopicState::empty(generation, p));
        let topics: Vec<_> = (0..partitions).map(empty).collect();
        for part in topics.chunks(FACTS_OF_A_BLOCK) {
            let body = encode_new_topics(part.iter().copied());
            self.append_metadata(control, member, |_| body.clone())?;
        }
        pass(Point::TopicNoted);
        self.sync()?;
        Ok(number)
    }

    /// Mark the topics of these numbers deleted, if they have this generation. From then on appends
    /// to them fail, readers learn of it, and their records keep no segment. It is on disk when
    /// this returns. A repeat changes nothing.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Log::sync_to`].
    pub fn remove_topic(&self, generation: [u8; 16], numbers: Range<u32>) -> Result<()> {
        let (control, member) = self.writing()?;
        member.check()?;
        let numbers: Vec<_> = numbers.collect();
        for part in numbers.chunks(FACTS_OF_A_BLOCK) {
            self.append_metadata(control, member, |state| {
                let is_there = |number: &u32| {
                    state.topic(*number).is_some_and(|topic| topic.generation == generation)
                };
                encode_deletions(part.iter().copied().filter(is_there))
            })?;
        }
        pass(Point::TopicForgotten);
        self.sync()?;
        self.wake_all();
        Ok(())
    }

    /// Mark topics finished: no record comes after those that are there. It is on disk when this
    /// returns, and readers learn of it. A repeat changes nothing.
    ///
    /// # Errors
    /// `TopicDeleted`; as [`Log::append`] and [`Log::sync_to`].
    pub fn finish(&self, topics: Range<u32>) -> Result<()> {
        if !topics.clone().all(|topic| self.is_finished(topic)) {
            self.append_if(&[Precondition::Finish { topics }], &[], false, &mut [])?;
        }
        pass(Point::TopicFinished);
        self.sync()?;
        self.wake_all();
        Ok(())
    }

    /// Return true once a topic of this number was deleted, or the whole log was.
    pub fn is_topic_deleted(&self, number: u32) -> bool {
        self.is_deleted() || self.has_lost(number)
    }

    /// Make the error for a topic whose number the log does not know.
    #[cold]
    pub(super) fn unknown(&self, state: &LogState, topic: u32) -> Error {
        if topic < state.next_number() {
            return self.deleted();
        }
        let dir = self.dir.display();
        Error::invalid(format!("no topic of {dir} has the number {topic}: open the topic again"))
    }

    /// Return the state of a cursor that is kept in this log; `None` for one that never moved here.
    /// Costs little if the log is open for writing, and otherwise a walk over the newest segment.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`; `TopicDeleted` for a log that was deleted.
    pub fn cursor_of(&self, name: &[u8]) -> Result<Option<CursorState>> {
        self.with_metadata(|state| state.cursor(name))
    }

    /// Return the metadata beside such a cursor; empty if there is none. Costs as
    /// [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn cursor_metadata_of(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.with_metadata(|state| state.cursor_metadata(name).to_vec())
    }

    /// List all cursors that are kept in this log, by name. Costs as [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn cursors(&self) -> Result<Vec<(Vec<u8>, CursorState)>> {
        let own = |(name, cursor): (&[u8], CursorState)| (name.to_vec(), cursor);
        self.with_metadata(|state| state.cursors().map(own).collect())
    }

    /// Get their offsets and metadata, by name.
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn kept_offsets(&self) -> Result<BTreeMap<Vec<u8>, KeptOffset>> {
        self.with_metadata(|state| {
            let own = |(name, CursorState { offset, .. }): (&[u8], CursorState)| {
                let metadata = state.cursor_metadata(name).to_vec();
                (name.to_vec(), KeptOffset { offset, metadata })
            };
            state.cursors().map(own).collect()
        })
    }

    /// Read the cursors, idempotency keys and producers at the log's end, unless corruption may
    /// hide some.
    pub(super) fn with_metadata<T>(&self, ask: impl FnOnce(&LogState) -> T) -> Result<T> {
        let asked = |state: &LogState| self.sure_of_facts(state).map(|()| ask(state));
        if self.member.is_none() {
            let known = self.state_by_reading().and_then(|state| asked(&state));
            return known.map_err(|error| self.unless_deleted(error));
        }
        let (control, member) = self.writing()?;
        member.check()?;
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        // This includes a block that a dead append committed and that the tail does not include
        // yet.
        self.repair_tail(writer, control).map_err(|error| self.unless_deleted(error))?;
        asked(&writer.walk.state)
    }

    /// Read the same of a log that is open for reading: as far as the newest segment is valid, and
    /// whole groups only. Blocks that are known to be committed or on disk must be valid.
    fn state_by_reading(&self) -> Result<LogState> {
        loop {
            let tail = self.committed();
            let newest = self.newest()?;
            let segment = self.chain.segment(newest)?;
            let marked = segment.mark().map_or(0, |mark| mark.position);
            let in_it = tail.filter(|tail| tail.sequence() == newest).map_or(0, Address::position);
            let (state, end, is_followed) =
                self.state_in(Arc::clone(&segment), in_it.max(marked))?;
            // If that segment is corrupt, it was not listed.
            if !is_followed && tail.is_none_or(|tail| tail.sequence() <= newest) {
                return Ok(state);
            }
            // The next segment may have come since.
            if self.newest()? == newest {
                let what = DecodeError::Damaged("the segment that follows is missing");
                return Err(self.doubted(&segment, BlockError { position: end, what }));
            }
        }
    }

    fn newest(&self) -> Result<u64> {
        let sequences = self.current_sequences()?;
        Ok(sequences[sequences.len() - 1])
    }

    /// Return the log's state at the end of a segment, which must be valid up to a position. Also
    /// return that end, and whether the segment names a successor.
    fn state_in(&self, mut segment: Arc<Segment>, sound: u64) -> Result<(LogState, u64, bool)> {
        let mut walk = self.opening(&segment)?.clone();
        loop {
            Segment::refresh(&mut segment)?;
            let position = walk.position;
            let step = sound_step(&segment, &mut walk, Check::Header, &mut |_| ());
            let bad = match step {
                Ok(Some(Step::End { .. })) => return Ok((walk.state, position, true)),
                Ok(Some(_)) => continue,
                Ok(None) => BlockError { position, what: NO_BLOCK },
                Err(bad) => bad,
            };
            if position < sound {
                return Err(self.doubted(&segment, bad));
            }
            let is_followed = segment.mark().is_some_and(|mark| mark.succeeded);
            return Ok((walk.state, position, is_followed));
        }
    }

    fn next_number(&self, control: &Control) -> Result<u32> {
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        self.repair_tail(writer, control).map_err(|error| self.unless_deleted(error))?;
        Ok(writer.walk.state.next_number())
    }

    #[cold]
    fn no_numbers(&self, used: u32, wanted: u32) -> Error {
        let name = self.name();
        Error::invalid(format!(
            "the log {name:?} has given {used} of its {MAX_TOPICS} topic numbers, including those of \
             deleted topics, and has none for {wanted} more: name another log"
        ))
    }

    /// Commit a block of facts, made from the log's state; none if it is empty.
    pub(super) fn append_metadata(
        &self,
        control: &Control,
        member: &dyn Member,
        body: impl Fn(&LogState) -> Vec<u8>,
    ) -> Result<()> {
        let made = |writer: &Writer| {
            let body = body(&writer.walk.state);
            (!body.is_empty()).then(|| (own_header(Kind::Meta, &body, 0), body))
        };
        self.append_own(control, member, Kept::Trimmed, made)
    }

    /// Commit a block of the log's own, made from the writer's state; none if there is nothing to
    /// record. It is made again if the log moved on before the lock was acquired.
    pub(super) fn append_own(
        &self,
        control: &Control,
        member: &dyn Member,
        kept: Kept,
        made: impl Fn(&Writer) -> Option<(BlockHeader, Vec<u8>)>,
    ) -> Result<()> {
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        let made = |writer: &Writer| made(writer).map(|(header, body)| (header, body, ()));
        self.append_own_by(writer, (control, member), kept, made, |_, ()| true).map(drop)
    }

    /// Do as [`Log::append_own`] with this writer. The block is made again too if it does not hold
    /// any more under the lock. Returns whether there was one.
    pub(super) fn append_own_by<T>(
        &self,
        writer: &mut Writer,
        (control, member): (&Control, &dyn Member),
        kept: Kept,
        made: impl Fn(&Writer) -> Option<(BlockHeader, Vec<u8>, T)>,
        holds: impl Fn(&Writer, &T) -> bool,
    ) -> Result<bool> {
        loop {
            writer.catch_up(self, control)?;
            let Some((header, body, of)) = made(writer) else { return Ok(false) };
            let sequence = writer.tail.sequence();
            let guard = self.lock(Which::Append)?;
            pass(Point::AppendLocked);
            let outcome = writer.under_lock(self, control, &guard).and_then(|()| {
                match writer.tail.sequence() == sequence && holds(writer, &of) {
                    true => writer.write_own(control, kept, &header, &body),
                    false => Err(Blocked::Moved),
                }
            });
            drop(guard);
            match outcome {
                Ok(()) => {
                    pass(Point::AppendUnlocked);
                    control.notify(true);
                    return Ok(true);
                }
                Err(obstacle) => self.resolve(obstacle, writer, control, member)?,
            }
        }
    }
}
