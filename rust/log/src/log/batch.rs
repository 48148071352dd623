//! The blocks of several topics that one append commits, and the facts that go with them.
//!
//! Owns the checks that need no lock, the size of a batch, and the headers of its blocks.
//! Invariant: a batch that passed these checks fits into one segment. It names each cursor at most
//! once and, unless it commits a bulk load, each topic at most once. [`super::append`] commits it;
//! [`super::metadata`] defines metadata.

use crate::canary::Canary;
use crate::error::{Error, Result};
use crate::format::address::{Address, align};
use crate::format::block::{BlockHeader, Kind, MAX_HEADER_LEN, Producer, flag};
use crate::format::checksum::crc32_of;
use crate::format::state;
use crate::segment::create::own_len;

use super::Log;
use super::preconditions::Precondition;

/// Records on their way into the log: the encoded body of one block of one topic.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock<'a> {
    /// Topic number in the log.
    pub topic: u32,
    /// Flags of the body, see [`crate::format::record::BodyWriter::flags`].
    pub flags: u16,
    /// Number of records.
    pub count: u32,
    /// The beginning of the body, if it lies apart from the rest: all that comes before a value.
    pub lead: &'a [u8],
    /// The rest of the body.
    pub body: &'a [u8],
    /// CRC-32 of both, or `None` for a short one: it is then computed together with the header's
    /// checksum.
    pub body_crc: Option<u32>,
    /// Highest event time in it, if any, nanoseconds since 1970.
    pub highest_event_ns: Option<i64>,
    /// True when some record has the time of the append.
    pub uses_append_time: bool,
    /// True when it must be on disk within the log's interval.
    pub interval: bool,
}

impl NewBlock<'_> {
    /// Return the bytes of the body.
    #[inline(always)]
    pub fn body_len(&self) -> usize {
        self.lead.len() + self.body.len()
    }

    /// Return the CRC-32 of the body.
    #[inline(always)]
    pub fn checksum(&self) -> u32 {
        self.body_crc.unwrap_or_else(|| crc32_of(self.lead, self.body))
    }

    /// Return the highest timestamp in it for this time of the append, nanoseconds since 1970.
    #[inline(always)]
    pub(super) fn highest_ns(&self, appended_ns: i64) -> i64 {
        let own = if self.uses_append_time { appended_ns } else { i64::MIN };
        self.highest_event_ns.map_or(own, |highest| highest.max(own))
    }

    /// Return the block with its checksum.
    #[must_use]
    pub fn sealed(&self) -> Self {
        Self { body_crc: Some(self.checksum()), ..*self }
    }
}

/// Where an append stored its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// First offset of the first block.
    pub first: u64,
    /// Where the group ends: durable once the durable end has reached it.
    pub end: Address,
    /// True if a producer's repeat stored nothing, and moved no cursor.
    pub is_repeat: bool,
}

/// The parts of one atomic commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// A block for each topic.
    pub blocks: &'a [NewBlock<'a>],
    /// Body of a block of facts, a member of the group; empty without facts.
    pub facts: &'a [u8],
    /// The producer of each block; empty if there is none.
    pub stamps: &'a [Producer],
    /// The conditions of the commit.
    pub preconditions: &'a [Precondition<'a>],
    /// True when it must be on disk within the log's interval.
    pub interval: bool,
    /// Most bytes that it needs.
    pub needs: u64,
}

impl Batch<'_> {
    /// Return true if no record comes after it in some topic.
    #[inline]
    pub(super) fn finishes(&self) -> bool {
        let finishes = |it: &Precondition<'_>| matches!(it, Precondition::Finish { .. });
        !self.facts.is_empty() && self.preconditions.iter().any(finishes)
    }

    /// Return the canary that splits these facts off the group.
    pub(super) fn outside(&self) -> Canary {
        let has_token = |it: &Precondition<'_>| matches!(it, Precondition::Token(_));
        match self.preconditions.iter().any(has_token) {
            true => Canary::TokenOutsideGroup,
            false => Canary::CursorOutsideGroup,
        }
    }
}

impl Log {
    /// Make a batch, and compute the bytes that it needs.
    pub(super) fn batch<'a>(
        &self,
        blocks: &'a [NewBlock<'a>],
        preconditions: &'a [Precondition<'a>],
        facts: &'a [u8],
        interval: bool,
    ) -> Result<Batch<'a>> {
        let limit = self.max_group_len();
        let mut needs = if facts.is_empty() { 0 } else { own_len(facts.len()) };
        for block in blocks {
            needs += align((MAX_HEADER_LEN + block.body_len()) as u64);
        }
        if needs > limit {
            return Err(Error::AppendTooLarge { bytes: needs, limit });
        }
        let interval = interval || blocks.iter().any(|block| block.interval);
        Ok(Batch { blocks, facts, stamps: &[], preconditions, interval, needs })
    }
}

/// Check all that can be wrong with the blocks, before the lock.
pub(super) fn check_blocks(blocks: &[NewBlock<'_>], firsts: &[u64]) -> Result<()> {
    if blocks.is_empty() || blocks.len() != firsts.len() || blocks.iter().any(|b| b.count == 0) {
        return Err(no_block());
    }
    if blocks.len() > 1 { check_topics(blocks) } else { Ok(()) }
}

#[cold]
pub(super) fn no_block() -> Error {
    Error::invalid("an append has at least one block, and no block without records")
}

/// Check that a topic appears once in a group: its blocks get their offsets before any of them is
/// stored.
fn check_topics(blocks: &[NewBlock<'_>]) -> Result<()> {
    let mut seen = [0u64; state::MAX_TOPICS as usize / 64 + 1];
    for block in blocks {
        let topic = block.topic;
        let Some(bits) = seen.get_mut(topic as usize / 64) else { continue };
        if *bits & 1 << (topic % 64) != 0 {
            return Err(Error::invalid(format!(
                "topic number {topic} appears twice in one append: make it one block"
            )));
        }
        *bits |= 1 << (topic % 64);
    }
    Ok(())
}

/// Return the flags of a block's header. `seat` is its place in a group: [`flag::GROUP`],
/// [`flag::MEMBER`] or 0.
#[inline(always)]
fn header_flags(block: &NewBlock<'_>, has_producer: bool, seat: u16) -> u16 {
    let topic = if block.topic == 0 { 0 } else { flag::TOPIC };
    let producer = if has_producer { flag::PRODUCER } else { 0 };
    block.flags | topic | seat | producer
}

/// Return the bytes of a block.
#[inline(always)]
pub(super) fn padded_len(block: &NewBlock<'_>, has_producer: bool, seat: u16) -> u64 {
    let flags = header_flags(block, has_producer, seat);
    align((BlockHeader::len_for(flags) + block.body_len()) as u64)
}

/// Make the header of a block of records, without the checksum of its body.
#[inline(always)]
pub(super) fn data_header(
    block: &NewBlock<'_>,
    producer: Option<Producer>,
    seat: u16,
    offset: u32,
    group_len: u32,
    time: u64,
) -> BlockHeader {
    let flags = header_flags(block, producer.is_some(), seat);
    BlockHeader {
        kind: Kind::Data,
        len: (BlockHeader::len_for(flags) + block.body_len()) as u32,
        body_crc: 0,
        offset,
        count: block.count,
        span: block.count,
        time,
        flags,
        topic: block.topic,
        group_len,
        producer,
    }
}
