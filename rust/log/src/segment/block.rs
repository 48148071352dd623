//! The values for a block of a segment, the place of its body, and bytes that are no block.
//!
//! Owns these values alone; [`super::Segment`] makes them, and checks that they are valid.

use crate::format::DecodeError;
use crate::format::block::BlockHeader;

/// A block of a segment: its place and its header.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Position of its commit word.
    pub position: u64,
    /// Its header.
    pub header: BlockHeader,
}

impl Block {
    /// Return where the next block starts.
    #[inline]
    pub fn end(&self) -> u64 {
        self.position + self.header.padded()
    }

    /// Return where its body starts.
    #[inline]
    pub fn body(&self) -> u64 {
        self.position + self.header.header_len() as u64
    }
}

/// The place of a block's body in its segment; see [`super::Segment::extent`].
#[derive(Clone, Copy, Debug)]
pub struct BodyExtent {
    pub(super) block: u64,
    /// As in the block's header.
    pub(super) len: u32,
    pub(super) flags: u16,
}

impl BodyExtent {
    /// Return the position of the block.
    #[inline]
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Return where the next block starts.
    #[inline]
    pub fn end(&self) -> u64 {
        self.block + u64::from(self.len).next_multiple_of(8)
    }

    /// Return the flags of the block.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.flags
    }
}

/// Bytes at a position that are no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockError {
    /// The position.
    pub position: u64,
    /// The error in them.
    pub what: DecodeError,
}
