//! What must hold for an append to happen.
//!
//! Owns the list of preconditions that an append may have, and the one function that checks them. Each kind of fence
//! is a variant of [`Precondition`]: the offset that comes next, a producer's sequences, a token, a cursor.
//! They are checked under the append lock against what the log knows there ([`LogState`]), so what they say
//! is true of the place that the block gets. What an append changes of producers, tokens and cursors follows
//! from the same list, and is part of the append.
//! Invariant: an append stores nothing if a precondition is not met, and nothing if it repeats a producer's
//! append. A repeat returns the offsets of the first one. What the log knows of producers, tokens and cursors is in
//! its blocks and in each segment's snapshot: it outlives restarts and retention. See `docs/PROTOCOL.md`,
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
    CursorState, IdempotencyState, LogState, MAX_CURSOR_NAME, MAX_CURSORS, MAX_PRODUCERS,
    MAX_TOKEN_NAME, MAX_TOKENS, SequenceSpan, Standing, encode_cursors, encode_forgotten,
    encode_tokens,
};

use super::append::{Appended, Blocked, NewBlock, Writer};
use super::batch::{Batch, check_blocks};
use super::bulk_load::Token;
use super::metadata::{CursorMove, FACTS_OF_A_BLOCK};
use super::{Log, enter};

/// Bytes that a producer, a token and a cursor take at most in a segment's snapshot.
const PRODUCER_LEN: u64 = 126;
const TOKEN_LEN: u64 = MAX_TOKEN_NAME as u64 + 24;
const CURSOR_LEN: u64 = MAX_CURSOR_NAME as u64 + 22;

/// Something that must hold for an append to happen, checked under the append lock.
///
/// A producer, a token and a cursor also say what the append changes: its sequences count as appended, the
/// token is spent, the cursor moves.
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
    /// The append has these sequences of a producer, and they come next. If they were appended before, the
    /// append is a repeat, whatever else it requires. An append has at most one producer.
    #[doc(hidden)]
    Producer(Sequences<'a>),
    /// Neither this token nor a later one of its name was spent.
    #[doc(hidden)]
    Token(&'a Token),
    /// The log has room for the cursor, which is where it is to move from.
    #[doc(hidden)]
    Cursor(CursorMove<'a>),
}

/// Sequences of a producer that one append has.
#[derive(Clone, Debug)]
pub struct Sequences<'a> {
    name: &'a str,
    span: SequenceSpan,
    topics: Range<u32>,
    /// What the blocks say.
    pub(super) stamp: Producer,
}

impl Sequences<'_> {
    /// Name of the producer.
    pub fn name(&self) -> &str {
        self.name
    }
}

impl<'a> Precondition<'a> {
    /// The append has these sequences of the producer of this name, which run over the topics with these
    /// numbers: the partitions of one.
    #[doc(hidden)]
    pub fn producer(name: &'a str, span: impl Into<SequenceSpan>, topics: Range<u32>) -> Self {
        let span = span.into();
        let many = span.last.saturating_sub(span.first).saturating_add(1);
        let stamp = Producer {
            id: Producer::id_of(name),
            sequence: span.last,
            span: u32::try_from(many).unwrap_or(0),
            flags: 0,
        };
        Self::Producer(Sequences { name, span, topics, stamp })
    }

    /// Whether it holds where the log knows this. `room` says how many more cursors the log keeps.
    #[inline]
    fn check(
        &self,
        log: &Log,
        state: &LogState,
        room: &mut usize,
    ) -> std::result::Result<(), Found> {
        match self {
            Self::NextOffset { topic, offset } => match state.topic(*topic) {
                None => Err(Found::NoTopic(*topic)),
                Some(known) if known.next != *offset => Err(Found::Next(known.next)),
                Some(_) => Ok(()),
            },
            Self::Producer(of) => match state.standing(of.stamp.id, of.span, of.topics.clone()) {
                Standing::Next => Ok(()),
                Standing::Repeat => Err(Found::Repeat(of.stamp)),
                Standing::Old => Err(Found::Past),
                Standing::Other(next) => Err(Found::Next(next)),
            },
            Self::Token(token) => match state.token(&token.key) {
                // A topic that is gone takes no token: it could never be forgotten.
                _ if state.topic(token.key.0).is_none() => Err(Found::NoTopic(token.key.0)),
                Some(last) if token.version <= last.version => Err(Found::Past),
                None if state.tokens().len() >= log.max_tokens() => Err(Found::Full),
                _ => Ok(()),
            },
            Self::Cursor(moved) => {
                let at = state.cursor(moved.name);
                let is_fenced = moved.from.is_some() && !planted(Canary::UnfencedCursor);
                if is_fenced && moved.from != Some(at.unwrap_or(CursorState::NONE)) {
                    return Err(Found::Elsewhere);
                }
                if at.is_none() && moved.to != CursorState::NONE {
                    *room = room.checked_sub(1).ok_or(Found::Full)?;
                }
                Ok(())
            }
        }
    }
}

/// Whether an append changes tokens or cursors.
fn changes(preconditions: &[Precondition<'_>]) -> bool {
    preconditions.iter().any(|it| matches!(it, Precondition::Token(_) | Precondition::Cursor(_)))
}

/// The sequences of its producer that an append has.
pub(super) fn sequences<'a>(preconditions: &'a [Precondition<'_>]) -> Option<&'a Sequences<'a>> {
    preconditions.iter().find_map(|precondition| match precondition {
        Precondition::Producer(of) => Some(of),
        _ => None,
    })
}

/// Which precondition of an append is not met, and what is there instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    which: usize,
    pub(super) found: Found,
}

impl Unmet {
    /// Whether it is the offset that comes next.
    pub(super) fn is_offset(self, preconditions: &[Precondition<'_>]) -> bool {
        matches!(preconditions.get(self.which), Some(Precondition::NextOffset { .. }))
    }
}

/// What is there instead of what a precondition requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This offset, or this sequence of the producer, comes next.
    Next(u64),
    /// The producer appended these sequences before.
    Repeat(Producer),
    /// The sequence comes before those that are remembered, or the token was spent.
    Past,
    /// The producer appended these sequences to other partitions, or the cursor is at another place.
    Elsewhere,
    /// As many of its kind as the log remembers.
    Full,
    /// No topic of this number.
    NoTopic(u32),
}

/// What a log knows of a producer in one of its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producing {
    /// Its id: the name is not kept.
    pub id: u64,
    /// Number of the topic.
    pub topic: u32,
    /// The last sequence that it appended there.
    pub sequence: u64,
    /// The first offset that this got.
    pub first: u64,
}

impl Log {
    /// How many producers this log remembers.
    pub fn max_producers(&self) -> usize {
        self.most(PRODUCER_LEN, MAX_PRODUCERS)
    }

    /// How many tokens this log remembers.
    pub fn max_tokens(&self) -> usize {
        self.most(TOKEN_LEN, MAX_TOKENS)
    }

    /// How many cursors this log keeps.
    pub fn max_cursors(&self) -> usize {
        self.most(CURSOR_LEN, MAX_CURSORS)
    }

    /// So many that a snapshot of them takes at most an eighth of a segment.
    fn most(&self, len: u64, most: usize) -> usize {
        let fit = self.settings.segment_bytes / 8 / len;
        usize::try_from(fit).map_or(most, |fit| fit.min(most))
    }

    /// Append blocks as [`Log::append`] does if these preconditions hold, and change what they say. Without
    /// blocks, cursors and tokens change alone. For a producer's repeat, `firsts` gets the offsets of its
    /// first append, and the end is that of the log. `interval` asks for a sync within the log's interval,
    /// as a block can.
    ///
    /// # Errors
    /// As [`Log::append`]; `OffsetConflict`, `OutOfOrderSequence`, `DuplicateSequence`, `CursorMoved` for a
    /// precondition that is not met. `InvalidArgument` for one producer, token or cursor more than the log
    /// remembers, a cursor that is named twice or whose name is too long, a second producer, and where there
    /// is nothing to append and nothing to change.
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

    /// As [`Log::append_if`], with arguments that were checked.
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
        let facts = self.facts_of(preconditions);
        let batch = self.batch(blocks, preconditions, &facts, interval)?;
        let tried = self.attempt(&mut enter(&self.writer), writing, &batch, firsts);
        // Missing files of a deleted log are not corruption.
        tried.map_err(|error| self.unless_deleted(error))
    }

    /// Fail unless there is room for cursors of these names, beside those that the log keeps.
    ///
    /// # Errors
    /// `InvalidArgument` where there is not; as [`Log::cursor_of`].
    pub fn expect_room_for_cursors(&self, names: &[Vec<u8>]) -> Result<()> {
        self.writing()?;
        let (to, from) = (CursorState::default(), None);
        let moved = |name| Precondition::Cursor(CursorMove { name, to, from });
        let preconditions: Vec<_> = names.iter().map(|name| moved(name.as_slice())).collect();
        validate(&preconditions, &[])?;
        let checked = self.with_metadata(|state| self.check(state, &preconditions))?;
        checked.map_err(|unmet| self.unmet_error(&preconditions, unmet))
    }

    /// Check preconditions against what the log knows. A repeat comes before all that is not met.
    #[inline]
    pub(super) fn check(
        &self,
        state: &LogState,
        preconditions: &[Precondition<'_>],
    ) -> std::result::Result<(), Unmet> {
        let mut room = self.max_cursors().saturating_sub(state.cursors().len());
        let mut checked = Ok(());
        for (which, precondition) in preconditions.iter().enumerate() {
            match precondition.check(self, state, &mut room) {
                Ok(()) => {}
                Err(found @ Found::Repeat(_)) => return Err(Unmet { which, found }),
                Err(found) => checked = checked.and(Err(Unmet { which, found })),
            }
        }
        checked
    }

    /// The error for a precondition that is not met.
    #[cold]
    pub(super) fn unmet_error(&self, preconditions: &[Precondition<'_>], unmet: Unmet) -> Error {
        let Some(precondition) = preconditions.get(unmet.which) else { return self.deleted() };
        match (precondition, unmet.found) {
            (precondition, Found::Full) => self.full(precondition),
            (Precondition::NextOffset { offset, .. }, Found::Next(next)) => {
                Error::OffsetConflict { expected: *offset, next }
            }
            (Precondition::NextOffset { .. }, _) => self.deleted(),
            (Precondition::Producer(Sequences { name, span, .. }), found) => {
                let (producer, sequence) = ((*name).to_owned(), span.last);
                match found {
                    Found::Next(next) => {
                        Error::OutOfOrderSequence { producer, sequence: span.first, next }
                    }
                    Found::Elsewhere => Error::InvalidArgument {
                        what: format!(
                            "producer {name:?} appended sequence {sequence} to other partitions: repeat \
                             an append with the records and keys that it had"
                        ),
                    },
                    _ => Error::DuplicateSequence { producer, sequence },
                }
            }
            (Precondition::Token(Token { key: (_, name), version }), _) => {
                let producer = String::from_utf8_lossy(name).into_owned();
                Error::DuplicateSequence { producer, sequence: *version }
            }
            (Precondition::Cursor(moved), _) => Error::CursorMoved { name: moved.name.to_vec() },
        }
    }

    /// The error where the log remembers as many of a kind as it can.
    fn full(&self, precondition: &Precondition<'_>) -> Error {
        let (kept, remedy) = match precondition {
            Precondition::Producer(_) => (
                format!("remembers {} producers", self.max_producers()),
                "forget producers that no longer append (topic.producers(), topic.forget_producer(), \
                 `falaj producer forget`), and let each worker keep one name",
            ),
            Precondition::Cursor(_) => (
                format!("keeps {} cursors", self.max_cursors()),
                "keep some in another log, or in one whose topics have larger segments",
            ),
            _ => (
                format!("remembers {} tokens", self.max_tokens()),
                "let jobs of one kind share a name and count versions, and forget names that no job has \
                 any more",
            ),
        };
        let what = format!("{} {kept} and has no room for more: {remedy}", self.dir.display());
        Error::InvalidArgument { what }
    }

    /// Body of the block that says what the preconditions of an append change; empty where they change nothing.
    #[inline]
    pub(super) fn facts_of(&self, preconditions: &[Precondition<'_>]) -> Vec<u8> {
        if !changes(preconditions) {
            return Vec::new();
        }
        let moves = preconditions.iter().filter_map(|precondition| match precondition {
            Precondition::Cursor(moved) => Some((moved.name, moved.to)),
            _ => None,
        });
        let mut facts = encode_cursors(moves);
        for precondition in preconditions {
            if let Precondition::Token(Token { key: (topic, name), version }) = precondition {
                let committed_ms = self.storage.now_us() / 1000;
                let spent = IdempotencyState { version: *version, committed_ms };
                facts.extend(encode_tokens(*topic, name, spent));
            }
        }
        facts
    }

    /// The highest sequence that a producer appended to any of these topics, up to now.
    ///
    /// # Errors
    /// `NotWritable` for a log that was opened for reading; `CorruptData`, `SystemCallFailed`.
    pub fn last_sequence(&self, producer: &str, topics: Range<u32>) -> Result<Option<u64>> {
        self.writing()?;
        self.with_metadata(|state| state.last_sequence(Producer::id_of(producer), topics))
    }

    /// What is known of producers in these topics, by id and then by topic number. Costs as
    /// [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn producers(&self, topics: Range<u32>) -> Result<Vec<Producing>> {
        self.with_metadata(|state| {
            let known = state.producers(topics).filter_map(|(id, topic, known)| {
                let (sequence, first) = *known.known().last()?;
                Some(Producing { id, topic, sequence, first })
            });
            known.collect()
        })
    }

    /// Forget what these producers appended to these topics: the next append under such a name is that
    /// of a new producer. It is on the disk when this returns how many were known. What a producer appends
    /// during this may count as appended behind it.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Log::sync_to`]; some may be forgotten then.
    pub fn forget_producers(&self, ids: &[u64], topics: Range<u32>) -> Result<usize> {
        let (control, member) = self.writing()?;
        member.check()?;
        let wanted: HashSet<_> = ids.iter().collect();
        let mut known = self.producers(topics)?;
        known.retain(|known| wanted.contains(&known.id));
        // If the process dies in between, what is left of a producer still has its last sequence, so none
        // of its repeats counts as new.
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
    /// Make room to note the producer of an append, outside the lock.
    #[inline]
    pub(super) fn reserve_producer(&mut self, log: &Log, batch: &Batch<'_>) -> Result<()> {
        let Some(of) = sequences(batch.preconditions) else { return Ok(()) };
        let (id, limit, state) = (of.stamp.id, log.max_producers(), &mut self.walk.state);
        for _ in 0..2 {
            if batch.blocks.iter().all(|block| state.expect_producer(block.topic, id, limit)) {
                return Ok(());
            }
            state.drop_expected();
        }
        Err(log.full(&Precondition::Producer(of.clone())))
    }

    /// Check the preconditions of an append, under the lock. A producer's repeat returns where the first
    /// one went.
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
                _ => log.sure_of_facts(state)?,
            }
        }
        if !is_sure {
            // Corruption was passed over, which may hold records: a new segment says what comes next.
            return Err(Blocked::Full { needs });
        }
        match log.check(state, preconditions) {
            Err(Unmet { which, found: Found::Repeat(of) }) => {
                let repeated = self.repeat(of, blocks, firsts);
                let unmet = Unmet { which, found: Found::Elsewhere };
                repeated.map(Some).ok_or(Blocked::Unmet(unmet))
            }
            Err(Unmet { found: Found::NoTopic(topic), .. }) => Err(Blocked::Unknown { topic }),
            Err(unmet) if planted(Canary::ExpectBeforeLock) && unmet.is_offset(preconditions) => {
                Ok(None)
            }
            Err(unmet) => Err(Blocked::Unmet(unmet)),
            // The producer was forgotten just now: its room is made again, outside the lock.
            Ok(()) if !self.has_reserved(batch) => Err(Blocked::Moved),
            Ok(()) => Ok(None),
        }
    }

    fn has_reserved(&self, batch: &Batch<'_>) -> bool {
        let Some(of) = sequences(batch.preconditions) else { return true };
        batch.blocks.iter().all(|b| self.walk.state.expects_producer(b.topic, of.stamp.id))
    }

    fn repeat(
        &self,
        of: Producer,
        blocks: &[NewBlock<'_>],
        firsts: &mut [u64],
    ) -> Option<Appended> {
        for (block, first) in blocks.iter().zip(&mut *firsts) {
            *first = self.walk.state.producer(block.topic, of.id)?.first_of(of.sequence)?;
        }
        Some(Appended { first: *firsts.first()?, end: self.tail })
    }
}

/// Check what can be wrong with preconditions, before the lock.
#[inline]
fn validate(preconditions: &[Precondition<'_>], blocks: &[NewBlock<'_>]) -> Result<()> {
    let (mut names, mut producers) = (Vec::new(), 0);
    for precondition in preconditions {
        match precondition {
            Precondition::Cursor(moved) => names.push(moved.name),
            Precondition::Producer(_) => producers += 1,
            _ => {}
        }
    }
    if producers > 1 || (producers == 1 && blocks.is_empty()) {
        let what = "a producer's append has one producer, and records".into();
        return Err(Error::InvalidArgument { what });
    }
    if names.is_empty() {
        return Ok(());
    }
    names.sort_unstable();
    let refuse = |name: &[u8], why: &str| {
        let name = String::from_utf8_lossy(name);
        Err(Error::InvalidArgument { what: format!("the cursor {name:?} cannot move: {why}") })
    };
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return refuse(twice[0], "one append moves a cursor once");
    }
    match names.iter().find(|name| !(1..=MAX_CURSOR_NAME).contains(&name.len())) {
        Some(name) => refuse(name, &format!("a name has 1 to {MAX_CURSOR_NAME} bytes")),
        None => Ok(()),
    }
}
