//! What an append may demand of the log: that nobody was faster, and that nothing is appended twice.
//!
//! Both are looked at under the append lock, on what the log knows there ([`LogState`]), so whatever they
//! say is true of the place that the block then gets. Invariant: a demand that is not met appends
//! nothing, and neither does a repeat, which is told where the first of its kind went. What the log knows of
//! producers is in the blocks themselves and in each segment's snapshot: it outlives restarts and
//! retention. See `docs/PROTOCOL.md`, "Demands".
//!
//! [`LogState`]: crate::format::state::LogState

use std::collections::HashSet;
use std::ops::Range;

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::block::Producer;
use crate::format::state::{MAX_PRODUCERS, Standing, encode_forgotten};

use super::append::{Appended, Blocked, NewBlock, Writer};
use super::metadata::FACTS_OF_A_BLOCK;
use super::{Log, enter};

/// Bytes that a producer takes at most in a segment's snapshot.
const PRODUCER_LEN: u64 = 96;

/// What must be so for an append to happen.
#[derive(Clone, Debug, Default)]
pub struct Preconditions {
    /// The offset that the first record must get.
    pub expect: Option<u64>,
    /// Who appends, and which of its sequence.
    pub producer: Option<Sequenced>,
}

impl Preconditions {
    /// True when any append will do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.expect.is_none() && self.producer.is_none()
    }
}

/// One of a producer's appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequenced {
    /// Name of the producer, for messages.
    pub name: String,
    /// Its id, and the sequence.
    pub producer: Producer,
    /// Numbers of the topics over which its sequence runs: the partitions of one.
    pub topics: Range<u32>,
}

impl Sequenced {
    /// The append of a producer of this name with this sequence.
    pub fn new(name: &str, sequence: u64, topics: Range<u32>) -> Self {
        let producer = Producer { id: Producer::id_of(name), sequence };
        Self { name: name.to_owned(), producer, topics }
    }
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

/// Which demand is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The first record would get another offset.
    Conflict { next: u64 },
    /// Sequences in between are missing.
    Early { next: u64 },
    /// A repeat of which is not known any more where it went.
    Old,
    /// A repeat of what went to other partitions than this would.
    Elsewhere,
    /// The token was spent before, or a later one of its name.
    Spent,
    /// No more tokens are remembered.
    Tokens,
}

impl Log {
    /// How many producers this log remembers: so many that a snapshot of them takes no more than an
    /// eighth of a segment.
    pub fn max_producers(&self) -> usize {
        let fit = self.settings.segment_bytes / 8 / PRODUCER_LEN;
        usize::try_from(fit).map_or(MAX_PRODUCERS, |fit| fit.min(MAX_PRODUCERS))
    }

    /// The highest sequence that a producer appended to any of these topics, up to now.
    ///
    /// # Errors
    /// `ReadOnly` for a log that was opened for reading; `Corrupt`, `Io`.
    pub fn last_sequence(&self, producer: &str, topics: Range<u32>) -> Result<Option<u64>> {
        let (control, member) = self.writing()?;
        member.check()?;
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        // With what a dead append left committed, which nobody has counted yet.
        self.repair_tail(writer, control).map_err(|error| self.unless_deleted(error))?;
        self.sure_of_facts(&writer.walk.state)?;
        Ok(writer.walk.state.last_sequence(Producer::id_of(producer), topics))
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
    /// of a new producer. On the medium when it returns; says how many were known. What one appends
    /// meanwhile may count as appended behind this.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Log::sync_to`]; some may be forgotten then.
    pub fn forget_producers(&self, ids: &[u64], topics: Range<u32>) -> Result<usize> {
        let (control, member) = self.writing()?;
        member.check()?;
        let wanted: HashSet<_> = ids.iter().collect();
        let mut known = self.producers(topics)?;
        known.retain(|known| wanted.contains(&known.id));
        // Where this ends in between, what is left of one still knows its last sequence: nothing that it
        // repeats passes for new.
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

    /// See to it that what is demanded can be kept, before the lock.
    pub(super) fn validate_preconditions(
        &self,
        blocks: &[NewBlock<'_>],
        demands: &Preconditions,
    ) -> Result<()> {
        if demands.expect.is_some() && blocks.len() > 1 {
            let what = "an append that expects an offset goes to one partition: name it";
            return Err(Error::Invalid { what: what.into() });
        }
        Ok(())
    }

    /// What a demand that is not met is told as.
    pub(super) fn unmet_error(&self, refusal: Unmet, demands: &Preconditions) -> Error {
        let (name, sequence) = match &demands.producer {
            Some(of) => (of.name.clone(), of.producer.sequence),
            None => (String::new(), 0),
        };
        match refusal {
            Unmet::Conflict { next } => {
                Error::Conflict { expected: demands.expect.unwrap_or(next), next }
            }
            Unmet::Early { next } => Error::OutOfSequence { producer: name, sequence, next },
            Unmet::Tokens => self.too_many_tokens(),
            Unmet::Old | Unmet::Spent => Error::DuplicateUnknownOffset { producer: name, sequence },
            Unmet::Elsewhere => Error::Invalid {
                what: format!(
                    "sequence {sequence} of producer {name:?} was appended before, to other \
                     partitions: repeat an append with the records and keys that it had"
                ),
            },
        }
    }
}

impl Writer {
    /// Have room to remember a producer, outside the lock.
    pub(super) fn expect_producer(
        &mut self,
        log: &Log,
        blocks: &[NewBlock<'_>],
        of: &Sequenced,
    ) -> Result<()> {
        let (id, limit) = (of.producer.id, log.max_producers());
        let state = &mut self.walk.state;
        let mut have_room =
            || blocks.iter().all(|block| state.expect_producer(block.topic, id, limit));
        if have_room() {
            return Ok(());
        }
        state.drop_expected();
        if blocks.iter().all(|block| state.expect_producer(block.topic, id, limit)) {
            return Ok(());
        }
        let what = format!(
            "{} remembers {limit} producers, and {:?} would be one more: forget those that append no \
             more (topic.producers(), topic.forget_producer(), `falaj producers`), and let the same ones \
             append again and again, each under one name",
            log.dir.display(),
            of.name
        );
        Err(Error::Invalid { what })
    }

    /// Under the lock: whether the demands are met. A repeat's place is the answer instead.
    #[inline]
    pub(super) fn check(
        &self,
        log: &Log,
        demands: &Preconditions,
        blocks: &[NewBlock<'_>],
        firsts: &mut [u64],
    ) -> std::result::Result<Option<Appended>, Blocked> {
        if demands.producer.is_some() {
            log.sure_of_facts(&self.walk.state)?;
        }
        // Where damage was passed over nobody knows what comes next: a new segment will say.
        let is_sure = |block: &NewBlock<'_>| self.walk.is_sure_of(block.topic);
        if demands.is_empty() || !blocks.iter().all(is_sure) {
            return Ok(None);
        }
        if let Some(of) = &demands.producer {
            match self.walk.state.standing(of.producer, of.topics.clone()) {
                // Somebody had it forgotten just now: room is made anew, outside the lock.
                Standing::Next if !blocks.iter().all(|b| self.expects(b, of)) => {
                    return Err(Blocked::Moved);
                }
                Standing::Next => {}
                Standing::Repeat => return self.repeat(of.producer, blocks, firsts).map(Some),
                Standing::Old => return Err(Blocked::Refused(Unmet::Old)),
                Standing::Early(next) => return Err(Blocked::Refused(Unmet::Early { next })),
            }
        }
        if planted(Canary::ExpectBeforeLock) {
            return Ok(None);
        }
        self.expect_offset(demands, blocks).map(|()| None).map_err(Blocked::Refused)
    }

    /// Whether the first record gets the offset that is expected, by what is known here.
    pub(super) fn expect_offset(
        &self,
        demands: &Preconditions,
        blocks: &[NewBlock<'_>],
    ) -> std::result::Result<(), Unmet> {
        let next = blocks.first().and_then(|block| self.walk.state.topic(block.topic));
        match (demands.expect, next.map(|topic| topic.next)) {
            (Some(expected), Some(next)) if expected != next => Err(Unmet::Conflict { next }),
            _ => Ok(()),
        }
    }

    #[inline]
    fn expects(&self, block: &NewBlock<'_>, of: &Sequenced) -> bool {
        self.walk.state.expects_producer(block.topic, of.producer.id)
    }

    fn repeat(
        &self,
        producer: Producer,
        blocks: &[NewBlock<'_>],
        firsts: &mut [u64],
    ) -> std::result::Result<Appended, Blocked> {
        for (block, first) in blocks.iter().zip(&mut *firsts) {
            let known = self.walk.state.producer(block.topic, producer.id);
            let known = known.and_then(|known| known.first_of(producer.sequence));
            *first = known.ok_or(Blocked::Refused(Unmet::Elsewhere))?;
        }
        Ok(Appended { first: firsts[0], end: self.tail })
    }
}
