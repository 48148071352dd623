//! What one append commits: blocks of several topics, and the facts that go with them.
//!
//! Owns the checks that need no lock, the bytes that it takes, and the headers of its blocks. Invariant: what
//! passed them fits into a segment of its log, and neither a cursor nor, but in a job, a topic stands twice in
//! it. How it is committed is told in
//! [`super::append`], what metadata is in [`super::metadata`].

use crate::canary::Canary;
use crate::error::{Error, Result};
use crate::format::address::align;
use crate::format::block::{BlockHeader, Kind, MAX_HEADER_LEN, Producer, flag};
use crate::format::state;
use crate::segment::create::own_len;

use super::Log;
use super::append::{NewBlock, Writer};
use super::preconditions::Precondition;

/// What is to be committed at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// A block for each topic.
    pub blocks: &'a [NewBlock<'a>],
    /// Body of a block in which the log notes facts, a member of the group; empty where there are none.
    pub facts: &'a [u8],
    /// What must hold for that.
    pub preconditions: &'a [Precondition<'a>],
    /// True when it is to be on the medium within the log's interval.
    pub interval: bool,
    /// Bytes that it takes at most.
    pub needs: u64,
}

impl Batch<'_> {
    /// What it would be to leave the facts out of the group.
    pub(super) fn outside(&self) -> Canary {
        let has_token = |it: &Precondition<'_>| matches!(it, Precondition::Token(_));
        match self.preconditions.iter().any(has_token) {
            true => Canary::TokenOutsideGroup,
            false => Canary::CursorOutsideGroup,
        }
    }
}

impl Log {
    /// What is to be committed, and the bytes that it needs.
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
            needs += align((MAX_HEADER_LEN + block.body.len()) as u64);
        }
        if needs > limit {
            return Err(Error::AppendTooLarge { bytes: needs, limit });
        }
        let interval = interval || blocks.iter().any(|block| block.interval);
        Ok(Batch { blocks, facts, preconditions, interval, needs })
    }
}

/// Everything that could be wrong with the blocks, before the lock.
pub(super) fn check_blocks(blocks: &[NewBlock<'_>], firsts: &[u64]) -> Result<()> {
    if blocks.is_empty() || blocks.len() != firsts.len() || blocks.iter().any(|b| b.count == 0) {
        let what = "an append takes one block or more, none without records".to_owned();
        return Err(Error::InvalidArgument { what });
    }
    if blocks.len() > 1 { check_topics(blocks) } else { Ok(()) }
}

/// A topic stands once in a group: its blocks get their offsets before any of them is there.
fn check_topics(blocks: &[NewBlock<'_>]) -> Result<()> {
    let mut seen = [0u64; state::MAX_TOPICS as usize / 64 + 1];
    for block in blocks {
        let topic = block.topic;
        let Some(bits) = seen.get_mut(topic as usize / 64) else { continue };
        if *bits & 1 << (topic % 64) != 0 {
            let what =
                format!("topic number {topic} stands twice in one append: make it one block");
            return Err(Error::InvalidArgument { what });
        }
        *bits |= 1 << (topic % 64);
    }
    Ok(())
}

/// Bytes that these blocks take, as a group where they are several.
#[inline]
pub(super) fn len_of(blocks: &[NewBlock<'_>], has_producer: bool, in_group: bool) -> u64 {
    let in_group = u32::from(in_group);
    let padded = |(i, block): (usize, &NewBlock<'_>)| {
        let flags = header_flags(block, has_producer, i, in_group);
        align((BlockHeader::len_for(flags) + block.body.len()) as u64)
    };
    blocks.iter().enumerate().map(padded).sum()
}

#[inline]
pub(super) fn header_flags(
    block: &NewBlock<'_>,
    has_producer: bool,
    i: usize,
    group_len: u32,
) -> u16 {
    let topic = if block.topic == 0 { 0 } else { flag::TOPIC };
    let producer = if has_producer { flag::PRODUCER } else { 0 };
    let group = match (group_len, i) {
        (0, _) => 0,
        (_, 0) => flag::GROUP,
        _ => flag::MEMBER,
    };
    block.flags | topic | group | producer
}

impl Writer {
    /// Header of the `i`-th block of a group.
    #[inline]
    pub(super) fn header(
        &self,
        block: &NewBlock<'_>,
        producer: Option<Producer>,
        i: usize,
        first: u64,
        group_len: u32,
        time: u64,
    ) -> BlockHeader {
        let base = self.walk.bases.get(block.topic).unwrap_or(first);
        let flags = header_flags(block, producer.is_some(), i, group_len);
        BlockHeader {
            kind: Kind::Data,
            len: (BlockHeader::len_for(flags) + block.body.len()) as u32,
            body_crc: block.body_crc,
            offset: (first - base) as u32,
            count: block.count,
            span: block.count,
            time,
            flags,
            topic: block.topic,
            group_len: if i == 0 { group_len } else { 0 },
            producer,
        }
    }
}
