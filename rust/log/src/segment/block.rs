//! A block as a segment gives it, where its body lies, and bytes that are no block.
//!
//! Owns these values alone. What makes one valid is checked where [`super::Segment`] makes it.

use crate::format::DecodeError;
use crate::format::block::BlockHeader;

/// A block of a segment: where it stands and what its header says.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Position of its commit word.
    pub position: u64,
    /// Its header.
    pub header: BlockHeader,
}

impl Block {
    /// Where the next block starts.
    #[inline]
    pub fn end(&self) -> u64 {
        self.position + self.header.padded()
    }

    /// Where its body starts.
    #[inline]
    pub fn body(&self) -> u64 {
        self.position + self.header.header_len() as u64
    }
}

/// Where the body of a block that was read lies in its segment; see [`super::Segment::extent`].
#[derive(Clone, Copy, Debug)]
pub struct BodyExtent {
    pub(super) block: u64,
    /// As the block's header says them.
    pub(super) len: u32,
    pub(super) flags: u16,
}

impl BodyExtent {
    /// Position of the block.
    #[inline]
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Where the next block starts.
    #[inline]
    pub fn end(&self) -> u64 {
        self.block + u64::from(self.len).next_multiple_of(8)
    }

    /// Flags of the block.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.flags
    }
}

/// Bytes at a position that are no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockError {
    /// Where.
    pub position: u64,
    /// What they are.
    pub what: DecodeError,
}
