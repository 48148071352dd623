//! What a log knows of a producer in a topic, and how the sequences of its next append relate to that.

use std::ops::RangeInclusive;

use super::state::PRODUCER_SEQUENCES;

/// A producer's last sequences in a topic, oldest first, each with the first offset it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    known: [(u64, u64); PRODUCER_SEQUENCES],
    pub(super) len: usize,
}

impl ProducerState {
    /// What is known, oldest first.
    pub fn known(&self) -> &[(u64, u64)] {
        &self.known[..self.len]
    }

    /// Note one more; the oldest goes when there are [`PRODUCER_SEQUENCES`].
    pub fn note(&mut self, sequence: u64, first: u64) {
        if self.len == PRODUCER_SEQUENCES {
            self.known.rotate_left(1);
            self.len -= 1;
        }
        self.known[self.len] = (sequence, first);
        self.len += 1;
    }

    /// The first offset that a sequence got, if it is one of the last.
    pub fn first_of(&self, sequence: u64) -> Option<u64> {
        self.known().iter().rev().find(|(known, _)| *known == sequence).map(|(_, first)| *first)
    }
}

/// The sequences of a producer that one append carries, `first..=last`, and the one that comes before them.
///
/// A block says the last one, so that is what makes an append a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceSpan {
    /// The sequence that the producer must have appended last, if the log knows the producer; `None` for none.
    pub previous: Option<u64>,
    /// The first one.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

impl From<RangeInclusive<u64>> for SequenceSpan {
    /// These sequences, which come after the one below the first.
    fn from(sequences: RangeInclusive<u64>) -> Self {
        let (first, last) = sequences.into_inner();
        Self { previous: first.checked_sub(1), first, last }
    }
}

impl From<u64> for SequenceSpan {
    /// One sequence, which comes after the one below it.
    fn from(sequence: u64) -> Self {
        (sequence..=sequence).into()
    }
}

/// How an append's sequences relate to those that its producer appended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They come next, or are the producer's first.
    Next,
    /// They were appended before, and are among the last.
    Repeat,
    /// They were appended before, and are not among the last.
    Old,
    /// Another one comes next, this one: some are missing, or some of these were appended before.
    Other(u64),
}
