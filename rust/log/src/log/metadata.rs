//! What the log notes of itself beside its records: topics that come and go, and cursors.
//!
//! Owns the meta blocks that say so, and reading what they said. Invariant: a fact is committed as
//! a block is, under the append lock. The control page says up to where facts about topics lie
//! before the block is there, so readers learn of them as they learn of trims. A number that was
//! given to a topic is never given again: each snapshot says the highest one. A cursor moves in an append,
//! with records or alone ([`super::preconditions`]). Which process may add and remove topics, and when
//! others learn of it, is left to the store. See `docs/PROTOCOL.md`, "Shared logs".

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
use super::recover::sound_step;
use super::{Control, Log, Member, enter};

/// Topics, or producers, that one block names at most.
pub(super) const FACTS_OF_A_BLOCK: usize = 256;

/// A cursor that moves with an append, or alone.
#[derive(Clone, Copy, Debug)]
pub struct CursorMove<'a> {
    /// What it is called.
    pub name: &'a [u8],
    /// Where it is to be; [`CursorState::NONE`] for nowhere.
    pub to: CursorState,
    /// Where it has to be for that, looked at under the append lock; `None` where that does not matter,
    /// [`CursorState::NONE`] where there must be none.
    pub from: Option<CursorState>,
}

/// Where each topic of a log ends, at one place of it.
#[derive(Clone, Debug)]
pub struct TopicEnds(pub(super) LogState);

impl TopicEnds {
    /// Offset behind the last record of a topic.
    pub fn get(&self, topic: u32) -> u64 {
        self.0.topic(topic).map_or(0, |topic| topic.next)
    }
}

impl Log {
    /// Where each topic ends at an address, by one walk over its segment.
    ///
    /// # Errors
    /// `CorruptData` where there is corruption on the way; `UnsupportedVersion`, `SystemCallFailed`.
    pub fn ends_at(&self, address: Address) -> Result<TopicEnds> {
        let mut segment = self.chain.segment(address.sequence())?;
        let mut walk = self.opening(&segment)?.clone();
        while walk.position < address.position() {
            if segment.exceeds_cache() {
                segment = Arc::new(segment.reopen_empty()?);
            }
            match walk.step(&segment, Check::Header).map_err(|bad| segment.error(bad))? {
                Some(_) => {}
                None => {
                    let position = walk.position;
                    return Err(segment.error(BlockError { position, what: NO_BLOCK }));
                }
            }
        }
        Ok(TopicEnds(walk.state))
    }

    /// Where a topic ends, if this process has the log open for writing, knows, and need not wait: in a
    /// log of many topics the last record of one may lie far behind the end.
    pub(super) fn known_end(&self, topic: u32, tail: Address) -> Option<u64> {
        let (control, member) = self.writing().ok()?;
        member.check().ok()?;
        let mut slot = self.writer.try_lock().ok()?;
        let writer = slot.as_mut().filter(|writer| writer.walk.state.next_number() > 1)?;
        writer.catch_up(self, control).ok()?;
        let is_known = writer.tail == tail && writer.walk.is_sure_of(topic);
        writer.walk.state.topic(topic).filter(|_| is_known).map(|topic| topic.next)
    }

    /// Add a topic with so many partitions; returns its number, and partition `p` has the number that
    /// is higher by `p`. It is on the disk when this returns. The caller keeps others from adding
    /// topics at the same time. A process that dies in between leaves topics that have no name, which do no harm.
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

    /// Say that the topics of these numbers were deleted, where they have this generation. From then on appends
    /// to them fail, readers learn of it, and their records hold no segment. It is on the disk when
    /// this returns. Doing it twice changes nothing.
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

    /// True once a topic of this number was deleted, or the whole log was.
    pub fn is_topic_deleted(&self, number: u32) -> bool {
        self.is_deleted() || self.has_lost(number)
    }

    /// What a topic whose number the log does not know means.
    #[cold]
    pub(super) fn unknown(&self, state: &LogState, topic: u32) -> Error {
        if topic < state.next_number() {
            return self.deleted();
        }
        let dir = self.dir.display();
        let what = format!("no topic of {dir} has the number {topic}: open the topic again");
        Error::InvalidArgument { what }
    }

    /// Where a cursor stands that is kept in this log; `None` for one that never moved here. Costs
    /// little where the log is open for writing, and else a walk over the newest segment.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`; `TopicDeleted` for a log that was deleted.
    pub fn cursor_of(&self, name: &[u8]) -> Result<Option<CursorState>> {
        self.with_metadata(|state| state.cursor(name))
    }

    /// All cursors that are kept in this log, by name. Costs as [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn cursors(&self) -> Result<Vec<(Vec<u8>, CursorState)>> {
        let own = |(name, cursor): (&[u8], CursorState)| (name.to_vec(), cursor);
        self.with_metadata(|state| state.cursors().map(own).collect())
    }

    /// Read what the log says of cursors, tokens and producers at its end, unless corruption may hide it.
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
        // With what a dead append left committed, which is not counted yet.
        self.repair_tail(writer, control).map_err(|error| self.unless_deleted(error))?;
        asked(&writer.walk.state)
    }

    /// The same for a log that is open for reading: as far as the newest segment is valid, whole groups alone. What
    /// is known to be committed, and what is on the disk, must be valid.
    fn state_by_reading(&self) -> Result<LogState> {
        loop {
            let tail = self.committed();
            let newest = self.newest()?;
            let segment = self.chain.segment(newest)?;
            let marked = segment.mark().map_or(0, |mark| mark.position);
            let in_it = tail.filter(|tail| tail.sequence() == newest).map_or(0, Address::position);
            let (state, end, is_followed) =
                self.state_in(Arc::clone(&segment), in_it.max(marked))?;
            // Where that one is damaged it was not listed.
            if !is_followed && tail.is_none_or(|tail| tail.sequence() <= newest) {
                return Ok(state);
            }
            // Unless it did not follow yet.
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

    /// What the log knows where a segment ends, which must be sound up to a position; that place, and
    /// whether the segment says that another one follows.
    fn state_in(&self, mut segment: Arc<Segment>, sound: u64) -> Result<(LogState, u64, bool)> {
        let mut walk = self.opening(&segment)?.clone();
        loop {
            if segment.exceeds_cache() {
                segment = Arc::new(segment.reopen_empty()?);
            }
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
        let what = format!(
            "the log {name:?} has given {used} of its {MAX_TOPICS} topic numbers, those of deleted \
             topics are not given again, and {wanted} more do not fit: name another log"
        );
        Error::InvalidArgument { what }
    }

    /// Commit a block of facts, made of what the log knows; none where it is empty.
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

    /// Commit a block of the log's own, made of what a writer knows of the end; none where there is none to
    /// make. It is made again when the log has moved on before the lock was taken.
    pub(super) fn append_own(
        &self,
        control: &Control,
        member: &dyn Member,
        kept: Kept,
        made: impl Fn(&Writer) -> Option<(BlockHeader, Vec<u8>)>,
    ) -> Result<()> {
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        loop {
            writer.catch_up(self, control)?;
            let Some((header, body)) = made(writer) else { return Ok(()) };
            let sequence = writer.tail.sequence();
            let guard = self.lock(Which::Append)?;
            pass(Point::AppendLocked);
            let outcome = writer.under_lock(self, control, &guard).and_then(|()| {
                match writer.tail.sequence() == sequence {
                    true => writer.write_own(control, kept, &header, &body),
                    false => Err(Blocked::Moved),
                }
            });
            drop(guard);
            match outcome {
                Ok(()) => {
                    pass(Point::AppendUnlocked);
                    control.notify(true);
                    return Ok(());
                }
                Err(obstacle) => self.resolve(obstacle, writer, control, member)?,
            }
        }
    }
}
