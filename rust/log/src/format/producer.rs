//! A log's knowledge of a producer in a topic, and how an append's sequences relate to it.

use std::ops::RangeInclusive;

use super::block::{Producer, producer_flag};
use super::state::PRODUCER_SEQUENCES;
use super::{DecodeError, Decoded, u32_at, u64_at};

/// Bytes of an entry before its sequences, and of each of these.
const HEAD_LEN: usize = 24;
const SEQUENCE_LEN: usize = 20;
/// Bytes of the longest entry.
pub(super) const ENTRY_LEN_MAX: usize = HEAD_LEN + SEQUENCE_LEN * PRODUCER_SEQUENCES;

/// The name of a producer, and whether a log may forget that producer by itself.
///
/// A text is the name of a producer that a log remembers until a caller forgets it. An expiring
/// producer of the same name is another one.
///
/// ```
/// use falaj::{ProducerName, Store};
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path().join("events"))?;
/// let orders = store.topic("orders")?;
/// let session = ProducerName::expiring("web-7f3a");
/// let once = [orders.expect_sequence(session, 0)?];
/// let first = orders.append_if(b"10 apples", &once)?;
/// assert_eq!(orders.append_if(b"10 apples", &once)?, first); // not appended again
/// assert_eq!(orders.last_sequence("web-7f3a")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerName<'a> {
    name: &'a str,
    is_expiring: bool,
}

impl<'a> ProducerName<'a> {
    /// Name a producer that a log forgets by itself, a day after its last use. A log that is full
    /// of producers forgets those earlier that were used longest ago. This is for producers that
    /// get a new name at each start.
    pub const fn expiring(name: &'a str) -> Self {
        Self { name, is_expiring: true }
    }

    /// Return the name.
    pub const fn name(self) -> &'a str {
        self.name
    }

    /// Return true if the log forgets the producer by itself.
    pub const fn is_expiring(self) -> bool {
        self.is_expiring
    }

    /// Compute the id that the log keeps instead of the name.
    #[doc(hidden)]
    pub fn id(self) -> u64 {
        // No name ends in this byte, so an expiring producer has another id than a named one.
        let mark: &[u8] = if self.is_expiring { &[0xff] } else { &[] };
        Producer::id_of_bytes(self.name.as_bytes().iter().chain(mark).copied())
    }

    /// Return the flags of its blocks.
    pub(crate) const fn flags(self) -> u32 {
        if self.is_expiring { producer_flag::EXPIRING } else { 0 }
    }
}

impl<'a> From<&'a str> for ProducerName<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, is_expiring: false }
    }
}

impl<'a> From<&'a String> for ProducerName<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}

/// A producer's last sequences in a topic, oldest first, each with its first offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    known: [(u64, u64); PRODUCER_SEQUENCES],
    /// How many sequences each of them covers.
    spans: [u32; PRODUCER_SEQUENCES],
    pub(super) len: usize,
    /// Bits of [`producer_flag`].
    flags: u32,
    /// When it was last used, µs since 1970 by the log's time; 0 if unknown.
    pub(super) used_us: i64,
}

impl ProducerState {
    /// Return the known sequences with their offsets, oldest first.
    pub fn known(&self) -> &[(u64, u64)] {
        &self.known[..self.len]
    }

    /// Return how many sequences each of the known ones covers, including itself.
    pub fn spans(&self) -> &[u32] {
        &self.spans[..self.len]
    }

    /// Return true if the log may forget the producer by itself after it was unused for long.
    pub fn is_expiring(&self) -> bool {
        self.flags & producer_flag::EXPIRING != 0
    }

    /// Return when it was last used, µs since 1970 by the log's time, if known.
    pub fn used_us(&self) -> Option<i64> {
        Some(self.used_us).filter(|us| *us != 0)
    }

    /// Note a block of the producer that begins at `first`; beyond [`PRODUCER_SEQUENCES`] the
    /// oldest one is dropped.
    pub fn note(&mut self, of: Producer, first: u64) {
        if self.len == PRODUCER_SEQUENCES {
            self.known.rotate_left(1);
            self.spans.rotate_left(1);
            self.len -= 1;
        }
        (self.known[self.len], self.spans[self.len]) = ((of.sequence, first), of.span);
        self.len += 1;
        self.flags = of.flags;
    }

    /// Encode the payload of its entry in a snapshot: topic number, flags, id, last use, sequences.
    pub(super) fn encode(&self, topic: u32, id: u64) -> Vec<u8> {
        let mut payload = topic.to_le_bytes().to_vec();
        payload.extend(self.flags.to_le_bytes());
        payload.extend(id.to_le_bytes());
        payload.extend(self.used_us.to_le_bytes());
        for ((sequence, offset), span) in self.known().iter().zip(self.spans()) {
            payload.extend(sequence.to_le_bytes());
            payload.extend(offset.to_le_bytes());
            payload.extend(span.to_le_bytes());
        }
        payload
    }

    /// Read such a payload: topic number, id, and the state.
    ///
    /// # Errors
    /// `Damaged` for one of another length, `Unknown` for flags of a newer version.
    pub(super) fn decode(payload: &[u8]) -> Decoded<(u32, u64, Self)> {
        let fits = (HEAD_LEN..=ENTRY_LEN_MAX).contains(&payload.len())
            && (payload.len() - HEAD_LEN) % SEQUENCE_LEN == 0;
        if !fits {
            return Err(DecodeError::Damaged("a log fact of the wrong length"));
        }
        let (flags, id) = (u32_at(payload, 4), u64_at(payload, 8));
        if flags & !producer_flag::KNOWN != 0 {
            return Err(DecodeError::Unknown("a flag of a producer of a newer version"));
        }
        let mut known = Self::default();
        for each in payload[HEAD_LEN..].chunks_exact(SEQUENCE_LEN) {
            let (sequence, span) = (u64_at(each, 0), u32_at(each, 16));
            known.note(Producer { id, sequence, span, flags }, u64_at(each, 8));
        }
        (known.flags, known.used_us) = (flags, u64_at(payload, 16) as i64);
        Ok((u32_at(payload, 0), id, known))
    }

    /// Return the first offset of a sequence, if it is among the last ones.
    pub fn first_of(&self, sequence: u64) -> Option<u64> {
        self.known().iter().rev().find(|(known, _)| *known == sequence).map(|(_, first)| *first)
    }
}

/// The producer's highest sequence before an append, if the log knows the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// There is none: the append is the producer's first.
    Nothing,
    /// It is this one, so that no sequence is missing.
    Exactly(u64),
    /// It is below this one, as where an epoch begins: some may be missing.
    Below(u64),
}

/// The sequences of one append, `first..=last`, and what must be known before them.
///
/// A block holds the last one, so that one decides whether an append is a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceSpan {
    /// The required highest sequence before them.
    pub after: After,
    /// The first one.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

impl SequenceSpan {
    /// Return true if it comes next, where this is the producer's highest sequence.
    fn follows(&self, highest: u64) -> bool {
        match self.after {
            After::Nothing => false,
            After::Exactly(before) => highest == before,
            After::Below(bound) => highest < bound,
        }
    }

    /// Compare it with the highest of the producer's sequences; `is_known` says whether the last of
    /// it is remembered.
    pub(super) fn standing(
        &self,
        highest: Option<u64>,
        is_known: impl FnOnce() -> bool,
    ) -> Standing {
        match highest {
            None => Standing::Next,
            Some(highest) if self.follows(highest) => Standing::Next,
            Some(highest) if highest < self.last => Standing::Other(highest),
            Some(_) if is_known() => Standing::Repeat,
            Some(highest) => Standing::Old(highest),
        }
    }
}

impl From<RangeInclusive<u64>> for SequenceSpan {
    /// Make a span that comes exactly after the sequence below its first.
    fn from(sequences: RangeInclusive<u64>) -> Self {
        let (first, last) = sequences.into_inner();
        let after = first.checked_sub(1).map_or(After::Nothing, After::Exactly);
        Self { after, first, last }
    }
}

impl From<u64> for SequenceSpan {
    /// Make a span of one sequence that comes exactly after the one below it.
    fn from(sequence: u64) -> Self {
        (sequence..=sequence).into()
    }
}

/// The relation of an append's sequences to those that its producer appended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They come next, or are the producer's first.
    Next,
    /// They were appended before, and are among the last.
    Repeat,
    /// They were appended before, and are not among the last. This is the highest known one.
    Old(u64),
    /// This is the highest known one: some are missing, or some of these were appended before.
    Other(u64),
}
