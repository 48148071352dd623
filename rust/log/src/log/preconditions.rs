//! The preconditions of an append.
//!
//! Owns the list of preconditions that an append may have, and the one function that checks them.
//! Each kind of fence is a variant of [`Precondition`]: the next offset, a producer's sequences, an
//! idempotency key, a cursor. They are checked under the append lock against the log's state there
//! ([`LogState`]), so they hold for the place that the block gets. The same list determines how an
//! append changes producers, keys and cursors, and that change is part of the append. Invariant: an
//! append stores nothing if a precondition fails, and nothing if it repeats a producer's append. A
//! repeat returns the offsets of the first one. A log's blocks and each segment's snapshot hold its
//! producers, keys and cursors, which outlive restarts and retention. See `docs/PROTOCOL.md`,
//! "Preconditions".
//!
//! [`LogState`]: crate::format::state::LogState

use std::collections::HashSet;
use std::ops::Range;

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::block::Producer;
use crate::format::state::{
    CursorState, IdempotencyState, LogState, MAX_CURSOR_NAME, MAX_CURSORS, MAX_METADATA,
    MAX_PRODUCERS, MAX_TOKEN_NAME, MAX_TOKENS, ProducerName, SequenceSpan, Standing, cursor_len,
    encode_cursors, encode_finished, encode_forgotten, encode_tokens,
};

use super::append::{Appended, Blocked, NewBlock, Writer};
use super::batch::{Batch, check_blocks};
use super::bulk_load::Token;
use super::metadata::{CursorMove, FACTS_OF_A_BLOCK};
use super::{Log, enter};

/// Most bytes of a producer and an idempotency key in a segment's snapshot.
const PRODUCER_LEN: u64 = 126;
const TOKEN_LEN: u64 = MAX_TOKEN_NAME as u64 + 24;

/// A condition of an append, checked under the append lock.
///
/// A producer, an idempotency key and a cursor also define a change: the sequences count as
/// appended, the key is spent, the cursor moves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Precondition<'a> {
    /// The next record of the topic with this number gets this offset.
    #[doc(hidden)]
    NextOffset {
        /// Number of the topic in the log.
        topic: u32,
        /// The offset.
        offset: u64,
    },
    /// The records for some topics have these sequences of a producer, and they come next. If they
    /// were appended before, the append is a repeat, whatever else it requires. A topic has at most
    /// one producer in an append. If one topic of it has a producer, all have one.
    #[doc(hidden)]
    Producer(Sequences<'a>),
    /// Neither this idempotency key nor a later one of its name was spent.
    #[doc(hidden)]
    Token(&'a Token),
    /// The log can keep the cursor, which is where the move begins.
    #[doc(hidden)]
    Cursor(CursorMove<'a>),
    /// The topics with these numbers exist. No record comes after this append in them.
    #[doc(hidden)]
    Finish {
        /// Their numbers.
        topics: Range<u32>,
    },
}

/// The sequences of a producer in one append.
#[derive(Clone, Debug)]
pub struct Sequences<'a> {
    name: ProducerName<'a>,
    span: SequenceSpan,
    topics: Range<u32>,
    /// The producer as the blocks name it.
    pub(super) stamp: Producer,
}

impl Sequences<'_> {
    /// Return the name of the producer.
    pub fn name(&self) -> &str {
        self.name.name()
    }
}

impl<'a> Precondition<'a> {
    pub(super) fn sequences(&self) -> Option<&Sequences<'a>> {
        match self {
            Self::Producer(of) => Some(of),
            _ => None,
        }
    }

    /// Require that these sequences of the named producer come next, in the topics with these
    /// numbers: the partitions of one topic.
    #[doc(hidden)]
    pub fn producer(
        name: impl Into<ProducerName<'a>>,
        span: impl Into<SequenceSpan>,
        topics: Range<u32>,
    ) -> Self {
        let (name, span) = (name.into(), span.into());
        let many = span.last.saturating_sub(span.first).saturating_add(1);
        let stamp = Producer {
            id: name.id(),
            sequence: span.last,
            span: u32::try_from(many).unwrap_or(0),
            flags: name.flags(),
        };
        Self::Producer(Sequences { name, span, topics, stamp })
    }

    /// Check it against this state. `room` is the space for more cursors.
    #[inline]
    fn check(
        &self,
        log: &Log,
        state: &LogState,
        room: &mut Room,
    ) -> std::result::Result<(), Found> {
        match self {
            Self::NextOffset { topic, offset } => match state.topic(*topic) {
                None => Err(Found::NoTopic(*topic)),
                Some(known) if known.next != *offset => Err(Found::Next(known.next)),
                Some(_) => Ok(()),
            },
            Self::Producer(of) => match state.standing(of.stamp.id, of.span, of.topics.clone()) {
                Standing::Next => Ok(()),
                Standing::Repeat => Err(Found::Repeat),
                Standing::Old(highest) => Err(Found::Past(highest)),
                Standing::Other(highest) => Err(Found::Highest(highest)),
            },
            Self::Token(token) => match state.token(&token.key) {
                // A deleted topic accepts no key: that could never be forgotten.
                _ if state.topic(token.key.0).is_none() => Err(Found::NoTopic(token.key.0)),
                Some(last) if token.version <= last.version => Err(Found::Past(last.version)),
                None if state.tokens().len() >= log.max_tokens() => Err(Found::Full),
                _ => Ok(()),
            },
            Self::Finish { topics } => {
                let is_gone = |number: &u32| state.topic(*number).is_none();
                topics.clone().find(is_gone).map_or(Ok(()), |gone| Err(Found::NoTopic(gone)))
            }
            Self::Cursor(moved) => {
                let at = state.cursor(moved.name);
                let is_fenced = moved.from.is_some() && !planted(Canary::UnfencedCursor);
                if is_fenced && moved.from != Some(at.unwrap_or(CursorState::NONE)) {
                    return Err(Found::Elsewhere);
                }
                let is_kept = moved.to != CursorState::NONE;
                let len = if is_kept { cursor_len(moved.name, moved.metadata) } else { 0 };
                room.take(state.cursor_len(moved.name), len).ok_or(Found::Full)
            }
        }
    }
}

/// The space for more cursors in a log.
struct Room {
    cursors: usize,
    bytes: u64,
}

impl Room {
    /// Take the space of a cursor that had so many bytes, and 0 before it was kept.
    fn take(&mut self, before: u64, after: u64) -> Option<()> {
        if before == 0 && after > 0 {
            self.cursors = self.cursors.checked_sub(1)?;
        }
        self.bytes = self.bytes.checked_sub(after.saturating_sub(before))?;
        Some(())
    }
}

/// Return whether an append changes idempotency keys or cursors, or finishes topics.
fn changes(preconditions: &[Precondition<'_>]) -> bool {
    use Precondition::{Cursor, Finish, Token};
    preconditions.iter().any(|it| matches!(it, Token(_) | Cursor(_) | Finish { .. }))
}

/// Return an append's producers, by the topics of their sequences.
fn producers<'a>(preconditions: &'a [Precondition<'_>]) -> Vec<&'a Sequences<'a>> {
    let mut producers: Vec<_> = preconditions.iter().filter_map(Precondition::sequences).collect();
    producers.sort_unstable_by_key(|of| of.topics.start);
    producers
}

/// Return the producer of each block, or nothing if no block has one.
#[inline]
pub(super) fn stamps(preconditions: &[Precondition<'_>], blocks: &[NewBlock<'_>]) -> Vec<Producer> {
    if preconditions.iter().all(|it| it.sequences().is_none()) {
        return Vec::new();
    }
    let producers = producers(preconditions);
    blocks.iter().filter_map(|block| Some(producer_of(&producers, block.topic)?.stamp)).collect()
}

fn producer_of<'a>(producers: &[&'a Sequences<'a>], topic: u32) -> Option<&'a Sequences<'a>> {
    let behind = producers.partition_point(|of| of.topics.start <= topic);
    producers[..behind].last().filter(|of| of.topics.contains(&topic)).copied()
}

/// Check that each block has one producer, and each producer a block.
#[cold]
fn validate_producers(preconditions: &[Precondition<'_>], blocks: &[NewBlock<'_>]) -> Result<()> {
    let producers = producers(preconditions);
    let overlaps = producers.windows(2).any(|two| two[0].topics.end > two[1].topics.start);
    let has_block = |of: &&Sequences<'_>| blocks.iter().any(|b| of.topics.contains(&b.topic));
    let is_idle = !producers.iter().all(has_block);
    if overlaps || is_idle || blocks.iter().any(|b| producer_of(&producers, b.topic).is_none()) {
        return Err(Error::invalid(
            "an append with a producer needs records, and one producer for each topic that it \
                    writes to. Otherwise a repeat could not find the other records",
        ));
    }
    Ok(())
}

/// Which precondition of an append failed, and what was found instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    which: usize,
    pub(super) found: Found,
}

impl Unmet {
    /// Return whether it is the offset that comes next.
    pub(super) fn is_offset(self, preconditions: &[Precondition<'_>]) -> bool {
        matches!(preconditions.get(self.which), Some(Precondition::NextOffset { .. }))
    }
}

/// The state that was found instead of the required one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This offset comes next.
    Next(u64),
    /// This is the highest sequence of the producer, and others come next.
    Highest(u64),
    /// The producer appended these sequences before.
    Repeat,
    /// The sequence is older than the remembered ones, or the key was spent. This is the highest
    /// one.
    Past(u64),
    /// The producer appended these sequences to other partitions, or without the rest of the
    /// append; or the cursor is at another place.
    Elsewhere,
    /// The log cannot remember more of this kind.
    Full,
    /// No topic of this number.
    NoTopic(u32),
}

/// A log's knowledge of a producer in one of its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producing {
    /// Its id: the name is not stored.
    pub id: u64,
    /// Number of the topic.
    pub topic: u32,
    /// Its last sequence there.
    pub sequence: u64,
    /// The first offset of that sequence.
    pub first: u64,
    /// The log may forget it by itself.
    pub expiring: bool,
}

impl Log {
    /// Return how many producers this log remembers.
    pub fn max_producers(&self) -> usize {
        self.most(PRODUCER_LEN, MAX_PRODUCERS)
    }

    /// Return how many idempotency keys this log remembers.
    pub fn max_tokens(&self) -> usize {
        self.most(TOKEN_LEN, MAX_TOKENS)
    }

    /// Return the space for more cursors in this state.
    fn room(&self, state: &LogState) -> Room {
        let cursors = MAX_CURSORS.saturating_sub(state.cursors().len());
        Room { cursors, bytes: self.eighth().saturating_sub(state.cursor_bytes()) }
    }

    /// Return how many of them take at most an eighth of a segment in its snapshot.
    fn most(&self, len: u64, most: usize) -> usize {
        usize::try_from(self.eighth() / len).map_or(most, |fit| fit.min(most))
    }

    fn eighth(&self) -> u64 {
        self.settings.segment_bytes / 8
    }

    /// Append blocks as [`Log::append`] does if these preconditions hold, and make their changes.
    /// Without blocks, cursors and idempotency keys change alone. For a producer's repeat, `firsts`
    /// gets the offsets of its first append, and the end is that of the log. `interval` asks for a
    /// sync within the log's interval, as a block can.
    ///
    /// # Errors
    /// As [`Log::append`]. `OffsetConflict`, `OutOfOrderSequence`, `DuplicateSequence`,
    /// `CursorMoved` for a failed precondition. `InvalidArgument` when the log cannot remember
    /// another producer, key or cursor. Also for a cursor that is named twice or has too long a
    /// name, and for a second producer. Also for an append that would change nothing.
    pub fn append_if(
        &self,
        preconditions: &[Precondition<'_>],
        blocks: &[NewBlock<'_>],
        interval: bool,
        firsts: &mut [u64],
    ) -> Result<Appended> {
        if !blocks.is_empty() || !changes(preconditions) {
            check_blocks(blocks, firsts)?;
        }
        validate(preconditions, blocks)?;
        let tried = self.try_append_if(preconditions, blocks, interval, firsts)?;
        tried.map_err(|unmet| self.unmet_error(preconditions, unmet))
    }

    /// Return where an append was stored that repeats one of its producer; `None` if it repeats
    /// none. Appends nothing.
    ///
    /// # Errors
    /// As [`Log::append_if`], except those that say that it is a new append.
    pub fn repeated(
        &self,
        preconditions: &[Precondition<'_>],
        blocks: &[NewBlock<'_>],
        firsts: &mut [u64],
    ) -> Result<Option<Appended>> {
        let Some(of) = preconditions.iter().find_map(Precondition::sequences) else {
            return Ok(None);
        };
        // No record gets this offset.
        let never = Precondition::NextOffset { topic: of.topics.start, offset: u64::MAX };
        let preconditions = [preconditions, &[never]].concat();
        match self.append_if(&preconditions, blocks, false, firsts) {
            Err(
                Error::OffsetConflict { .. }
                | Error::OutOfOrderSequence { .. }
                | Error::CursorMoved { .. },
            ) => Ok(None),
            appended => appended.map(Some),
        }
    }

    /// Append as [`Log::append_if`], with checked arguments.
    #[inline]
    pub(super) fn try_append_if(
        &self,
        preconditions: &[Precondition<'_>],
        blocks: &[NewBlock<'_>],
        interval: bool,
        firsts: &mut [u64],
    ) -> Result<std::result::Result<Appended, Unmet>> {
        let writing = self.writing()?;
        writing.1.check()?;
        let (facts, stamps) = (self.facts_of(preconditions), stamps(preconditions, blocks));
        let batch =
            Batch { stamps: &stamps, ..self.batch(blocks, preconditions, &facts, interval)? };
        let tried = self.attempt(&mut enter(&self.writer), writing, &batch, firsts);
        // Missing files of a deleted log are not corruption.
        tried.map_err(|error| self.unless_deleted(error))
    }

    /// Check that the log can keep cursors of these names, beside those that it has.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot; as [`Log::cursor_of`].
    pub fn expect_room_for_cursors(&self, names: &[Vec<u8>]) -> Result<()> {
        self.writing()?;
        let (to, from) = (CursorState::default(), None);
        let moved = |name| Precondition::Cursor(CursorMove { name, to, from, metadata: b"" });
        let preconditions: Vec<_> = names.iter().map(|name| moved(name.as_slice())).collect();
        validate(&preconditions, &[])?;
        let checked = self.with_metadata(|state| self.check(state, &preconditions))?;
        checked.map_err(|unmet| self.unmet_error(&preconditions, unmet))
    }

    /// Check preconditions against a state. A repeat comes before all that fails, if all producers
    /// of the append repeat.
    #[inline]
    pub(super) fn check(
        &self,
        state: &LogState,
        preconditions: &[Precondition<'_>],
    ) -> std::result::Result<(), Unmet> {
        let mut room = self.room(state);
        let (mut unmet, mut of_producer, mut repeated, mut is_new) = (None, None, None, false);
        for (which, precondition) in preconditions.iter().enumerate() {
            let is_producer = precondition.sequences().is_some();
            match precondition.check(self, state, &mut room) {
                Ok(()) => is_new |= is_producer,
                Err(Found::Repeat) => repeated = repeated.or(Some(which)),
                Err(found) => {
                    let found = Some(Unmet { which, found });
                    unmet = unmet.or(found);
                    of_producer = of_producer.or(found.filter(|_| is_producer));
                }
            }
        }
        let whole = repeated.map(|which| {
            // Where only a part of it was appended before, that was another append.
            let found = if is_new { Found::Elsewhere } else { Found::Repeat };
            of_producer.unwrap_or(Unmet { which, found })
        });
        whole.or(unmet).map_or(Ok(()), Err)
    }

    /// Make the error for a failed precondition.
    #[cold]
    pub(super) fn unmet_error(&self, preconditions: &[Precondition<'_>], unmet: Unmet) -> Error {
        let Some(precondition) = preconditions.get(unmet.which) else { return self.deleted() };
        match (precondition, unmet.found) {
            (precondition, Found::Full) => self.full(precondition),
            (Precondition::NextOffset { topic: partition, offset }, Found::Next(next)) => {
                let (topic, partition) = (self.name(), *partition);
                Error::OffsetConflict { topic, partition, expected: *offset, next }
            }
            (Precondition::NextOffset { .. }, _) => self.deleted(),
            (Precondition::Producer(Sequences { name, span, topics, .. }), found) => {
                let (topic, partition) = (self.name(), topics.start);
                let (producer, sequence) = (name.name().to_owned(), span.last);
                match found {
                    Found::Highest(highest) => {
                        let (sequence, next) = (span.first, highest.saturating_add(1));
                        Error::OutOfOrderSequence { topic, partition, producer, sequence, next }
                    }
                    Found::Past(highest) => {
                        Error::DuplicateSequence { topic, partition, producer, sequence, highest }
                    }
                    _ => Error::invalid(format!(
                        "producer {producer:?} appended sequence {sequence} to other partitions, or without \
                             the rest of this append. Repeat an append with the same records and \
                             keys"
                    )),
                }
            }
            (Precondition::Token(Token { key: (partition, name), version }), found) => {
                let (topic, partition) = (self.name(), *partition);
                let (producer, sequence) = (String::from_utf8_lossy(name).into_owned(), *version);
                let highest = if let Found::Past(highest) = found { highest } else { sequence };
                Error::DuplicateSequence { topic, partition, producer, sequence, highest }
            }
            (Precondition::Finish { .. }, _) => self.deleted(),
            (Precondition::Cursor(moved), _) => Error::CursorMoved { name: moved.name.to_vec() },
        }
    }

    /// Make the error for a log that cannot remember more of a kind.
    pub(super) fn full(&self, precondition: &Precondition<'_>) -> Error {
        let (kept, remedy) = match precondition {
            Precondition::Producer(_) => (
                format!("remembers {} producers", self.max_producers()),
                "forget producers that no longer append (topic.producers(), topic.forget_producer(), \
                 `falaj producer forget`), let each worker keep one name, or let producers expire",
            ),
            Precondition::Cursor(_) => (
                format!("keeps {} bytes of cursors", self.eighth()),
                "keep some in another log, or in one whose topics have larger segments, or commit less metadata",
            ),
            _ => (
                format!("remembers {} idempotency keys", self.max_tokens()),
                "let loads of one series share a name and count versions, and forget names that no load \
                 has any more",
            ),
        };
        Error::invalid(format!("{} {kept} and cannot take more: {remedy}", self.dir.display()))
    }

    /// Encode the block body with the changes that an append's preconditions define; empty without
    /// changes.
    #[inline]
    pub(super) fn facts_of(&self, preconditions: &[Precondition<'_>]) -> Vec<u8> {
        if !changes(preconditions) {
            return Vec::new();
        }
        let moves = preconditions.iter().filter_map(|precondition| match precondition {
            Precondition::Cursor(moved) => Some((moved.name, moved.to, moved.metadata)),
            _ => None,
        });
        let mut facts = encode_cursors(moves);
        for precondition in preconditions {
            if let Precondition::Token(Token { key: (topic, name), version }) = precondition {
                let committed_ms = self.storage.now_us() / 1000;
                let spent = IdempotencyState { version: *version, committed_ms };
                facts.extend(encode_tokens(*topic, name, spent));
            }
            if let Precondition::Finish { topics } = precondition {
                facts.extend(encode_finished(topics.clone()));
            }
        }
        facts
    }

    /// Return a producer's highest sequence in any of these topics, up to now.
    ///
    /// # Errors
    /// `NotWritable` for a log that was opened for reading; `CorruptData`, `SystemCallFailed`.
    pub fn last_sequence<'a>(
        &self,
        producer: impl Into<ProducerName<'a>>,
        topics: Range<u32>,
    ) -> Result<Option<u64>> {
        self.writing()?;
        let id = producer.into().id();
        self.with_metadata(|state| state.last_sequence(id, topics))
    }

    /// List the producers in these topics, by id and then by topic number. Costs as
    /// [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn producers(&self, topics: Range<u32>) -> Result<Vec<Producing>> {
        self.with_metadata(|state| {
            let known = state.producers(topics).filter_map(|(id, topic, known)| {
                let (sequence, first) = *known.known().last()?;
                let expiring = known.is_expiring();
                Some(Producing { id, topic, sequence, first, expiring })
            });
            known.collect()
        })
    }

    /// Forget the sequences of these producers in these topics: the next append under such a name
    /// is a new producer's. Returns how many were known, once that is on disk. An append meanwhile
    /// may count as one afterwards.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Log::sync_to`]; some may be forgotten then.
    pub fn forget_producers(&self, ids: &[u64], topics: Range<u32>) -> Result<usize> {
        let (control, member) = self.writing()?;
        member.check()?;
        let wanted: HashSet<_> = ids.iter().collect();
        let mut known = self.producers(topics)?;
        known.retain(|known| wanted.contains(&known.id));
        // If the process dies in between, each remaining entry still has the producer's last
        // sequence, so none of its repeats counts as new.
        known.sort_by_key(|known| known.sequence);
        for part in known.chunks(FACTS_OF_A_BLOCK) {
            self.append_metadata(control, member, |state| {
                let is_there = |known: &&Producing| state.producer(known.topic, known.id).is_some();
                encode_forgotten(part.iter().filter(is_there).map(|known| (known.topic, known.id)))
            })?;
        }
        pass(Point::ProducersForgotten);
        self.sync()?;
        Ok(known.iter().map(|known| known.id).collect::<HashSet<_>>().len())
    }
}

impl Writer {
    /// Check the preconditions of an append, under the lock. A producer's repeat returns where the
    /// first one was stored.
    #[inline]
    pub(super) fn check(
        &self,
        log: &Log,
        batch: &Batch<'_>,
        firsts: &mut [u64],
    ) -> std::result::Result<Option<Appended>, Blocked> {
        let Batch { blocks, preconditions, needs, .. } = *batch;
        if preconditions.is_empty() {
            return Ok(None);
        }
        let state = &self.walk.state;
        let mut topics = blocks.iter().map(|block| block.topic);
        let mut is_sure = topics.all(|topic| self.walk.is_sure_of(topic));
        for precondition in preconditions {
            match precondition {
                Precondition::NextOffset { topic, .. } => is_sure &= self.walk.is_sure_of(*topic),
                Precondition::Finish { topics } => {
                    is_sure &= topics.clone().all(|topic| self.walk.is_sure_of(topic));
                }
                _ => log.sure_of_facts(state)?,
            }
        }
        if !is_sure {
            // The walk passed over corruption, which may hold records: a new segment defines the
            // next offset.
            return Err(Blocked::Full { needs });
        }
        match log.check(state, preconditions) {
            Err(Unmet { which, found: Found::Repeat }) => {
                let repeated = self.repeat(batch, firsts);
                let unmet = Unmet { which, found: Found::Elsewhere };
                repeated.map(Some).ok_or(Blocked::Unmet(unmet))
            }
            Err(Unmet { found: Found::NoTopic(topic), .. }) => Err(Blocked::Unknown { topic }),
            Err(unmet) if planted(Canary::ExpectBeforeLock) && unmet.is_offset(preconditions) => {
                Ok(None)
            }
            Err(unmet) => Err(Blocked::Unmet(unmet)),
            // The producer was forgotten just now: its space is made again, outside the lock.
            Ok(()) if !self.has_reserved(batch) => Err(Blocked::Moved),
            Ok(()) => Ok(None),
        }
    }

    fn has_reserved(&self, batch: &Batch<'_>) -> bool {
        let mut stamped = batch.blocks.iter().zip(batch.stamps);
        stamped.all(|(block, of)| self.walk.state.expects_producer(block.topic, of.id))
    }

    fn repeat(&self, batch: &Batch<'_>, firsts: &mut [u64]) -> Option<Appended> {
        let stamped = batch.blocks.iter().zip(batch.stamps);
        for ((block, of), first) in stamped.zip(&mut *firsts) {
            *first = self.walk.state.producer(block.topic, of.id)?.first_of(of.sequence)?;
        }
        Some(Appended { first: *firsts.first()?, end: self.tail, is_repeat: true })
    }
}

/// Check the preconditions' arguments, before the lock.
#[inline]
fn validate(preconditions: &[Precondition<'_>], blocks: &[NewBlock<'_>]) -> Result<()> {
    let (mut names, mut has_producer) = (Vec::new(), false);
    for precondition in preconditions {
        match precondition {
            Precondition::Cursor(moved) if moved.metadata.len() > MAX_METADATA => {
                return Err(Error::long_metadata(moved.metadata.len()));
            }
            Precondition::Cursor(moved) => names.push(moved.name),
            Precondition::Producer(_) => has_producer = true,
            _ => {}
        }
    }
    if has_producer {
        validate_producers(preconditions, blocks)?;
    }
    if names.is_empty() {
        return Ok(());
    }
    names.sort_unstable();
    let refuse = |name: &[u8], why: &str| {
        let name = String::from_utf8_lossy(name);
        Err(Error::invalid(format!("the cursor {name:?} cannot move: {why}")))
    };
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return refuse(twice[0], "one append moves a cursor once");
    }
    match names.iter().find(|name| !(1..=MAX_CURSOR_NAME).contains(&name.len())) {
        Some(name) => refuse(name, &format!("a name has 1 to {MAX_CURSOR_NAME} bytes")),
        None => Ok(()),
    }
}
