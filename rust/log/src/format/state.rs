//! The state of a log at a point, and the bodies of the blocks that hold it.
//!
//! A snapshot block begins every segment. Its bulk is prepared early, and a second one has what
//! changed since. Meta blocks record facts in between. Both hold the same entries, so a reader that
//! walks a segment from its first block knows the whole [`LogState`] without the earlier segments.
//! For that reason retention may drop any older segment.
//!
//! ```text
//! body  = entry*        entry = type: varint, length: varint, payload
//! ```
//!
//! The base of a topic's relative offsets in a segment is the `next` of the last topic entry for it
//! in that segment. Layout: `docs/FORMAT.md`, "Snapshot and meta".

use std::collections::BTreeMap;
use std::ops::Range;

use crate::canary::{Canary, planted};

use super::address::Address;
use super::block::BlockHeader;
pub use super::expiring::{IdleProducer, LONGEST_STEP_US, encode_idle};
use super::kept_cursor::{CURSOR_LEN_MAX, KeptCursor, decode_cursor, encode_cursor};
pub use super::kept_cursor::{CursorState, MAX_CURSOR_NAME, MAX_METADATA, cursor_len};
pub use super::producer::{After, ProducerName, ProducerState, SequenceSpan, Standing};
use super::{DecodeError, Decoded, put, u32_at, u64_at, varint};

/// Most topics that one log holds.
pub const MAX_TOPICS: u32 = 10_000;
/// Most producers that a log remembers.
pub const MAX_PRODUCERS: usize = 65_536;
/// Most idempotency keys that a log remembers.
pub const MAX_TOKENS: usize = 1_024;
/// Most cursors that a log keeps.
pub const MAX_CURSORS: usize = 65_536;
/// Longest name of an idempotency key, bytes.
pub const MAX_TOKEN_NAME: usize = 512;
/// Sequences remembered of a producer.
pub const PRODUCER_SEQUENCES: usize = 5;
/// Longest entry of an idempotency key.
const TOKEN_LEN_MAX: usize = 20 + MAX_TOKEN_NAME;

mod kind {
    pub const TOPIC: u64 = 1;
    pub const TOPIC_DELETED: u64 = 2;
    pub const TRIMMED: u64 = 3;
    pub const PRODUCER: u64 = 4;
    pub const TOKEN: u64 = 5;
    pub const CURSOR: u64 = 6;
    pub const DOUBT: u64 = 7;
    pub const FINISHED: u64 = 8;
}

const TOPIC_LEN: usize = 56;
const END_LEN: usize = 24;

/// A log's knowledge of one of its topics (one partition of what users call a topic).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicState {
    /// Generation of the topic.
    pub generation: [u8; 16],
    /// Partition of the topic.
    pub partition: u32,
    /// Lowest offset that is left.
    pub first: u64,
    /// Offset of the next record.
    pub next: u64,
    /// CRC of the body of its last block.
    pub last_crc: u32,
    /// Highest timestamp so far, nanoseconds since 1970; `i64::MIN` before the first record.
    pub highest_ns: i64,
    /// No record comes after those that are there.
    pub finished: bool,
}

impl TopicState {
    /// Make the state of a topic without records.
    pub fn empty(generation: [u8; 16], partition: u32) -> Self {
        let (first, next, last_crc, highest_ns, finished) = (0, 0, 0, i64::MIN, false);
        Self { generation, partition, first, next, last_crc, highest_ns, finished }
    }
}

/// The last committed version under an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyState {
    /// Its number in the series: a repeat has one that is not higher.
    pub version: u64,
    /// When it was committed, milliseconds since 1970, for people.
    pub committed_ms: i64,
}

impl IdempotencyState {
    /// No idempotency key: to set one to this is to forget it.
    pub const NONE: Self = Self { version: u64::MAX, committed_ms: 0 };
}

/// Everything a log knows at a point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    topics: Vec<Option<TopicState>>,
    /// By producer and topic number; without a sequence if one is about to be noted.
    pub(super) producers: BTreeMap<(u64, u32), ProducerState>,
    /// By topic number and name.
    tokens: BTreeMap<(u32, Vec<u8>), IdempotencyState>,
    cursors: BTreeMap<Vec<u8>, KeptCursor>,
    /// Bytes of their entries.
    cursor_bytes: u64,
    /// Where corruption begins that may hide changes of cursors, idempotency keys and producers.
    doubt: Option<Address>,
    /// Last use of any expiring producer.
    pub(super) last_use_us: i64,
}

impl LogState {
    /// Return where corruption begins that may hide changes of cursors, idempotency keys and
    /// producers. It counts until a process declares the known ones valid ([`encode_trust`]).
    #[inline]
    pub fn doubt(&self) -> Option<Address> {
        self.doubt
    }

    /// Note such corruption; the first one counts.
    pub fn doubt_facts(&mut self, from: Address) {
        if !planted(Canary::NoDoubt) {
            self.doubt.get_or_insert(from);
        }
    }

    /// Iterate over the topics by number; numbers of deleted ones always stay empty.
    pub fn topics(&self) -> impl Iterator<Item = (u32, &TopicState)> {
        (0u32..).zip(&self.topics).filter_map(|(number, topic)| Some((number, topic.as_ref()?)))
    }

    /// Return the number that the next topic gets: above all that were ever given.
    pub fn next_number(&self) -> u32 {
        self.topics.len() as u32
    }

    /// Return a cursor that is kept in the log.
    pub fn cursor(&self, name: &[u8]) -> Option<CursorState> {
        self.cursors.get(name).map(|kept| kept.state)
    }

    /// Return the metadata beside a cursor that is kept in the log; empty if there is none.
    pub fn cursor_metadata(&self, name: &[u8]) -> &[u8] {
        self.cursors.get(name).map_or(&[], |kept| &kept.metadata)
    }

    /// Return the bytes of a cursor's entry in a snapshot; 0 if the log does not keep it.
    pub fn cursor_len(&self, name: &[u8]) -> u64 {
        self.cursors.get(name).map_or(0, |kept| cursor_len(name, &kept.metadata))
    }

    /// Return the bytes of all cursors' entries in a snapshot.
    pub fn cursor_bytes(&self) -> u64 {
        self.cursor_bytes
    }

    /// Keep a cursor, or forget it, and count its bytes.
    fn keep_cursor(&mut self, name: &[u8], kept: Option<KeptCursor>) {
        self.cursor_bytes -= self.cursor_len(name);
        match kept {
            Some(kept) => drop(self.cursors.insert(name.to_vec(), kept)),
            None => drop(self.cursors.remove(name)),
        }
        self.cursor_bytes += self.cursor_len(name);
    }

    /// Iterate over all cursors that are kept in the log, by name.
    pub fn cursors(&self) -> impl ExactSizeIterator<Item = (&[u8], CursorState)> {
        self.cursors.iter().map(|(name, kept)| (name.as_slice(), kept.state))
    }

    /// Return the state of an idempotency key, by topic number and name.
    pub fn token(&self, key: &(u32, Vec<u8>)) -> Option<IdempotencyState> {
        self.tokens.get(key).copied()
    }

    /// Iterate over all idempotency keys: topic number, name, and state.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = (u32, &[u8], IdempotencyState)> {
        self.tokens.iter().map(|((topic, name), token)| (*topic, name.as_slice(), *token))
    }

    /// Return one topic.
    #[inline]
    pub fn topic(&self, number: u32) -> Option<&TopicState> {
        self.topics.get(number as usize)?.as_ref()
    }

    /// Return one topic, to be changed.
    #[inline]
    pub fn topic_mut(&mut self, number: u32) -> Option<&mut TopicState> {
        self.topics.get_mut(number as usize)?.as_mut()
    }

    /// Add or replace a topic; `false` when its number is beyond [`MAX_TOPICS`].
    pub fn set_topic(&mut self, number: u32, topic: TopicState) -> bool {
        let index = number as usize;
        if number >= MAX_TOPICS {
            return false;
        }
        if self.topics.len() <= index {
            self.topics.resize(index + 1, None);
        }
        self.topics[index] = Some(topic);
        true
    }

    /// Note that a topic was deleted: its number stays empty. `false` when it is beyond [`MAX_TOPICS`].
    fn forget_topic(&mut self, number: u32) -> bool {
        if number >= MAX_TOPICS {
            return false;
        }
        let index = number as usize;
        if self.topics.len() <= index {
            self.topics.resize(index + 1, None);
        }
        self.topics[index] = None;
        self.producers.retain(|(_, topic), _| *topic != number);
        self.find_last_use();
        self.tokens.retain(|(topic, _), _| *topic != number);
        true
    }

    /// Note a data block that starts at `first`: its header, the highest timestamp in it, and the
    /// time from which its own counts. Returns `false` when the log does not know the block's topic.
    #[inline]
    pub fn apply_data(
        &mut self,
        header: &BlockHeader,
        first: u64,
        highest_ns: i64,
        time_base_us: i64,
    ) -> bool {
        let Some(topic) = self.topic_mut(header.topic) else { return false };
        topic.next = first + u64::from(header.span);
        topic.last_crc = header.body_crc;
        topic.highest_ns = topic.highest_ns.max(highest_ns);
        if let Some(producer) = header.producer {
            let appended_us = time_base_us.saturating_add(header.time as i64);
            self.note_producer(header.topic, producer, first, appended_us);
        }
        true
    }

    /// Make space for a producer of a topic, so that noting it allocates nothing; `false` when
    /// there would be more than `limit`.
    pub fn expect_producer(&mut self, topic: u32, id: u64, limit: usize) -> bool {
        let is_known = self.producers.contains_key(&(id, topic));
        if !is_known && self.producers.len() >= limit {
            return false;
        }
        self.producers.entry((id, topic)).or_default();
        true
    }

    /// Free the space that [`LogState::expect_producer`] made for producers that then appended
    /// nothing.
    pub fn drop_expected(&mut self) {
        self.producers.retain(|_, known| known.len > 0);
    }

    /// Return true for a producer of a topic that is known, or expected.
    #[inline]
    pub fn expects_producer(&self, topic: u32, id: u64) -> bool {
        self.producers.contains_key(&(id, topic))
    }

    /// List the producers in these topics: by id, then by topic number.
    pub fn producers(
        &self,
        topics: Range<u32>,
    ) -> impl Iterator<Item = (u64, u32, &ProducerState)> {
        let known = self.producers.iter().map(|((id, topic), known)| (*id, *topic, known));
        known.filter(move |(_, topic, known)| topics.contains(topic) && known.len > 0)
    }

    /// Return the state of a producer in a topic.
    pub fn producer(&self, topic: u32, id: u64) -> Option<&ProducerState> {
        self.producers.get(&(id, topic))
    }

    /// Compare an append's sequences with those that its producer appended to any of these topics,
    /// which are the partitions of one.
    pub fn standing(&self, id: u64, span: SequenceSpan, topics: Range<u32>) -> Standing {
        span.standing(self.last_sequence(id, topics.clone()), || {
            let mut known = self.producers_of(id, topics);
            known.any(|producer| producer.first_of(span.last).is_some())
        })
    }

    /// Return a producer's highest sequence in any of these topics.
    pub fn last_sequence(&self, id: u64, topics: Range<u32>) -> Option<u64> {
        let last =
            |producer: &ProducerState| producer.known().last().map(|(sequence, _)| *sequence);
        self.producers_of(id, topics).filter_map(last).max()
    }

    pub(super) fn producers_of(
        &self,
        id: u64,
        topics: Range<u32>,
    ) -> impl Iterator<Item = &ProducerState> {
        self.producers.range((id, topics.start)..(id, topics.end)).map(|(_, producer)| producer)
    }

    /// Encode the entries that turn `since` into `self`; from the empty state, all entries.
    pub fn encode_since(&self, since: &LogState) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_since(since, &mut out);
        out
    }

    /// Do as [`LogState::encode_since`], after what `out` already holds; if `out` has enough space,
    /// nothing is allocated for topics.
    pub fn append_since(&self, since: &LogState, out: &mut Vec<u8>) {
        for (number, slot) in (0u32..).zip(&self.topics) {
            let known = since.topics.get(number as usize);
            let before = known.copied().flatten();
            // The highest number is recorded even for a deleted topic: it is not given again.
            let is_highest = known.is_none() && number + 1 == self.next_number();
            match slot {
                Some(topic) if before != Some(*topic) => {
                    entry(out, kind::TOPIC, &encode_topic(number, topic));
                }
                None if before.is_some() || is_highest => {
                    entry(out, kind::TOPIC_DELETED, &number.to_le_bytes());
                }
                _ => {}
            }
        }
        let producers = changed(&self.producers, &since.producers);
        let are_kept = !planted(Canary::ForgottenProducers);
        for ((id, topic), producer) in producers.filter(|(_, known)| known.len > 0 && are_kept) {
            entry(out, kind::PRODUCER, &producer.encode(*topic, *id));
        }
        let forgotten = since.producers.iter().filter(|((id, number), before)| {
            let is_known = self.producer(*number, *id).is_some_and(|known| known.len > 0);
            before.len > 0 && !is_known && self.topic(*number).is_some()
        });
        for ((id, number), _) in forgotten {
            forget_producer(out, *number, *id);
        }
        for ((topic, name), token) in changed(&self.tokens, &since.tokens) {
            entry(out, kind::TOKEN, &encode_token(*topic, name, *token));
        }
        for (topic, name) in since.tokens.keys().filter(|key| !self.tokens.contains_key(*key)) {
            entry(out, kind::TOKEN, &encode_token(*topic, name, IdempotencyState::NONE));
        }
        for (name, kept) in changed(&self.cursors, &since.cursors) {
            entry(out, kind::CURSOR, &encode_cursor(name, kept.state, &kept.metadata));
        }
        for name in since.cursors.keys().filter(|name| !self.cursors.contains_key(*name)) {
            entry(out, kind::CURSOR, &encode_cursor(name, CursorState::NONE, &[]));
        }
        if self.doubt != since.doubt {
            entry(out, kind::DOUBT, &self.doubt.unwrap_or_default().0.to_le_bytes());
        }
    }

    /// Apply the body of a snapshot or meta block; `seen_topic` gets the number and the new state
    /// of each topic that an entry sets.
    ///
    /// # Errors
    /// `Damaged` for entries that contradict themselves, `Unknown` for those of a newer version.
    /// The state is then half applied, and the caller must discard it.
    pub fn apply_body(
        &mut self,
        body: &[u8],
        mut seen_topic: impl FnMut(u32, &TopicState),
    ) -> Decoded<()> {
        let mut has_producers = false;
        entries(body, |kind, payload| {
            has_producers |= kind == kind::PRODUCER;
            self.apply_entry(kind, payload, &mut seen_topic)
        })?;
        if has_producers {
            self.find_last_use();
        }
        Ok(())
    }

    fn apply_entry(
        &mut self,
        kind: u64,
        payload: &[u8],
        seen_topic: &mut impl FnMut(u32, &TopicState),
    ) -> Decoded<()> {
        match (kind, payload.len()) {
            (kind::TOPIC, TOPIC_LEN) => {
                let (number, topic) = decode_topic(payload)?;
                if !self.set_topic(number, topic) {
                    return Err(BEYOND_THE_LIMIT);
                }
                seen_topic(number, &topic);
            }
            (kind::TOPIC_DELETED, 4) => {
                if !self.forget_topic(u32_at(payload, 0)) {
                    return Err(BEYOND_THE_LIMIT);
                }
            }
            (kind::TRIMMED, 12) => {
                if let Some(topic) = self.topic_mut(u32_at(payload, 0)) {
                    topic.first = topic.first.max(u64_at(payload, 4));
                }
            }
            (kind::PRODUCER, _) => {
                let (number, id, known) = ProducerState::decode(payload)?;
                match known.len {
                    0 => drop(self.producers.remove(&(id, number))),
                    _ => drop(self.producers.insert((id, number), known)),
                }
            }
            (kind::TOKEN, 21..=TOKEN_LEN_MAX) => {
                let key = (u32_at(payload, 0), payload[20..].to_vec());
                let (version, committed_ms) = (u64_at(payload, 4), u64_at(payload, 12) as i64);
                if version == IdempotencyState::NONE.version {
                    self.tokens.remove(&key);
                } else {
                    self.tokens.insert(key, IdempotencyState { version, committed_ms });
                }
            }
            (kind::CURSOR, 19..=CURSOR_LEN_MAX) => {
                let (name, state, metadata) = decode_cursor(payload)?;
                let is_kept = state.offset != CursorState::NONE.offset;
                let kept = is_kept.then(|| KeptCursor { state, metadata: metadata.into() });
                self.keep_cursor(name, kept);
            }
            (kind::DOUBT, 8) => {
                self.doubt = Some(Address(u64_at(payload, 0))).filter(|at| *at != NO_DOUBT);
            }
            (kind::FINISHED, 4) => {
                if let Some(topic) = self.topic_mut(u32_at(payload, 0)) {
                    topic.finished = true;
                }
            }
            (kind::TOPIC..=kind::FINISHED, _) => {
                return Err(WRONG_LENGTH);
            }
            _ => return Err(DecodeError::UnknownEntry(kind)),
        }
        Ok(())
    }
}

/// Read the body of a snapshot or meta block for its topics alone, without a state to apply it to.
/// `seen_topic` gets each topic; the rest is only checked.
///
/// # Errors
/// As [`LogState::apply_body`].
pub fn topics_of(body: &[u8], mut seen_topic: impl FnMut(u32, &TopicState)) -> Decoded<()> {
    entries(body, |kind, payload| match (kind, payload.len()) {
        (kind::TOPIC, TOPIC_LEN) => {
            let (number, topic) = decode_topic(payload)?;
            if number >= MAX_TOPICS {
                return Err(BEYOND_THE_LIMIT);
            }
            seen_topic(number, &topic);
            Ok(())
        }
        (kind::TOPIC_DELETED, 4) if u32_at(payload, 0) >= MAX_TOPICS => Err(BEYOND_THE_LIMIT),
        (kind::TOPIC_DELETED, 4) => Ok(()),
        _ => LogState::default().apply_entry(kind, payload, &mut |_, _| ()),
    })
}

fn entries(body: &[u8], mut each: impl FnMut(u64, &[u8]) -> Decoded<()>) -> Decoded<()> {
    let mut at = 0;
    while at < body.len() {
        let kind = varint::get(body, &mut at).ok_or(CUT_OFF)?;
        let len = varint::get(body, &mut at).ok_or(CUT_OFF)?;
        let len = usize::try_from(len).map_err(|_| CUT_OFF)?;
        let end = at.checked_add(len).filter(|end| *end <= body.len()).ok_or(CUT_OFF)?;
        each(kind, &body[at..end])?;
        at = end;
    }
    Ok(())
}

const WRONG_LENGTH: DecodeError = DecodeError::Damaged("a log fact of the wrong length");
const BEYOND_THE_LIMIT: DecodeError = DecodeError::Damaged("a topic number beyond the limit");
const CUT_OFF: DecodeError = DecodeError::Damaged("a log fact that reaches beyond its block");

/// The address that says that a doubt is over: no block can be there.
const NO_DOUBT: Address = Address(0);

fn changed<'a, K: Ord, V: PartialEq>(
    now: &'a BTreeMap<K, V>,
    before: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    now.iter().filter(|(key, value)| before.get(key) != Some(value))
}

fn entry(out: &mut Vec<u8>, kind: u64, payload: &[u8]) {
    varint::put(out, kind);
    varint::put(out, payload.len() as u64);
    out.extend_from_slice(payload);
}

/// Encode the body of a meta block that raises the lowest offsets of topics, by number.
pub fn encode_trims(firsts: impl Iterator<Item = (u32, u64)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, first) in firsts {
        let mut payload = [0; 12];
        put(&mut payload, 0, &number.to_le_bytes());
        put(&mut payload, 4, &first.to_le_bytes());
        entry(&mut out, kind::TRIMMED, &payload);
    }
    out
}

/// Encode the body of a meta block that ends a doubt: it declares the known cursors, idempotency
/// keys and producers valid.
pub fn encode_trust() -> Vec<u8> {
    let mut out = Vec::new();
    entry(&mut out, kind::DOUBT, &NO_DOUBT.0.to_le_bytes());
    out
}

/// Encode the body of a meta block that introduces topics without records, by number.
pub fn encode_new_topics(topics: impl Iterator<Item = (u32, TopicState)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, topic) in topics {
        entry(&mut out, kind::TOPIC, &encode_topic(number, &topic));
    }
    out
}

/// Encode the body of a meta block that marks topics deleted.
pub fn encode_deletions(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.for_each(|number| entry(&mut out, kind::TOPIC_DELETED, &number.to_le_bytes()));
    out
}

/// Encode the body of a meta block that marks topics finished.
pub fn encode_finished(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.for_each(|number| entry(&mut out, kind::FINISHED, &number.to_le_bytes()));
    out
}

/// Encode the body of a meta block that forgets producers, by topic number and id.
pub fn encode_forgotten(producers: impl Iterator<Item = (u32, u64)>) -> Vec<u8> {
    let mut out = Vec::new();
    producers.for_each(|(number, id)| forget_producer(&mut out, number, id));
    out
}

fn forget_producer(out: &mut Vec<u8>, number: u32, id: u64) {
    entry(out, kind::PRODUCER, &ProducerState::default().encode(number, id));
}

/// Encode the body of a meta block that moves cursors: the name, state and metadata of each.
pub fn encode_cursors<'a>(
    cursors: impl Iterator<Item = (&'a [u8], CursorState, &'a [u8])>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, cursor, metadata) in cursors {
        entry(&mut out, kind::CURSOR, &encode_cursor(name, cursor, metadata));
    }
    out
}

/// Encode the body of a meta block that sets the last committed version of an idempotency key of a
/// topic.
pub fn encode_tokens(topic: u32, name: &[u8], token: IdempotencyState) -> Vec<u8> {
    let mut out = Vec::new();
    entry(&mut out, kind::TOKEN, &encode_token(topic, name, token));
    out
}

fn encode_token(topic: u32, name: &[u8], token: IdempotencyState) -> Vec<u8> {
    let mut payload = topic.to_le_bytes().to_vec();
    payload.extend(token.version.to_le_bytes());
    payload.extend(token.committed_ms.to_le_bytes());
    payload.extend_from_slice(name);
    payload
}

fn encode_topic(number: u32, topic: &TopicState) -> [u8; TOPIC_LEN] {
    let mut out = [0; TOPIC_LEN];
    put(&mut out, 0, &number.to_le_bytes());
    put(&mut out, 4, &topic.partition.to_le_bytes());
    put(&mut out, 8, &topic.generation);
    put(&mut out, 24, &topic.first.to_le_bytes());
    put(&mut out, 32, &topic.next.to_le_bytes());
    put(&mut out, 40, &topic.highest_ns.to_le_bytes());
    put(&mut out, 48, &topic.last_crc.to_le_bytes());
    put(&mut out, 52, &u32::from(topic.finished).to_le_bytes());
    out
}

fn decode_topic(payload: &[u8]) -> Decoded<(u32, TopicState)> {
    if u32_at(payload, 52) > 1 {
        return Err(DecodeError::Unknown("a flag of a topic of a newer version"));
    }
    let topic = TopicState {
        partition: u32_at(payload, 4),
        generation: payload[8..24].try_into().unwrap_or_default(),
        first: u64_at(payload, 24),
        next: u64_at(payload, 32),
        highest_ns: u64_at(payload, 40) as i64,
        last_crc: u32_at(payload, 48),
        finished: u32_at(payload, 52) == 1,
    };
    Ok((u32_at(payload, 0), topic))
}

/// The body of an end block, which names the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its sequence.
    pub sequence: u64,
    /// Its salt.
    pub salt: u64,
}

impl End {
    /// Bytes of the body.
    pub const LEN: usize = END_LEN;

    /// Lay it out.
    pub fn encode(&self) -> [u8; END_LEN] {
        let mut out = [0; END_LEN];
        put(&mut out, 0, &self.sequence.to_le_bytes());
        put(&mut out, 8, &self.salt.to_le_bytes());
        out
    }

    /// Read it.
    ///
    /// # Errors
    /// `Damaged` when it is too short. `Unknown` when it lists staged segments in between, which
    /// this version does not read.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        if body.len() < END_LEN {
            return Err(DecodeError::Damaged("an end block that names no successor"));
        }
        if u64_at(body, 16) != 0 || body.len() > END_LEN {
            return Err(DecodeError::Unknown("staged segments of a newer version"));
        }
        Ok(Self { sequence: u64_at(body, 0), salt: u64_at(body, 8) })
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
