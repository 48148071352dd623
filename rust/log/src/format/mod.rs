//! The layout of all bytes on disk and in shared pages, without any I/O.
//!
//! This module owns every layout of format version 2. `docs/FORMAT.md` has the byte tables, and
//! compile-time asserts beside each layout check them. Its functions take bytes and return values
//! or a [`DecodeError`]; they open no file, read no clock, hold no lock. All integers are
//! little-endian.
//!
//! | part | layout |
//! |---|---|
//! | [`segment`] | header page of a segment: identity, chain, durable mark |
//! | [`block`] | commit word, block header, extensions |
//! | [`record`] | records inside a data block |
//! | [`state`] | bodies of snapshot, meta and end blocks |
//! | [`index`] | sparse index beside a segment |
//! | [`control`] | words of the page that processes share |
//! | [`double_slot`] | two slots for one value, written in turns |
//! | [`queue`] | state of a work queue |
//! | [`owned`] | headers of a store's files other than logs |
//! | [`part`] | staged parts of bulk loads, and their manifests |
//! | [`wake`] | the page that waiters of a store share |
//! | [`consumer`] | members, owners and cursors of a consumer group |
//! | [`retention`] | limits of what a topic keeps |
//! | [`settings`] | `falaj.json`, `topic.json` |
//! | [`origin`] | the file `origin` |
//! | [`names`] | topic and file names |
//! | [`address`] | one number for a place in a log |

pub mod address;
pub mod block;
pub mod checksum;
pub mod consumer;
pub mod control;
pub mod crc32c;
pub mod double_slot;
mod expiring;
pub mod index;
mod kept_cursor;
pub mod names;
pub mod origin;
pub mod owned;
pub mod part;
mod producer;
pub mod queue;
pub mod record;
pub mod retention;
pub mod segment;
pub mod settings;
pub mod state;
pub mod varint;
pub mod wake;

use std::fmt;

/// The one format version that this crate writes and reads.
pub const VERSION: u32 = 2;

/// Bytes of the header page of a segment; its first block starts there.
pub const PAGE: u64 = 4096;
/// Position of the first block of a segment, behind two pages that say what it is ([`segment`]).
pub const FIRST_BLOCK: u64 = 2 * PAGE;

/// The ways in which bytes can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No writer of any version leaves such bytes: they are torn, flipped or foreign. Says what is
    /// wrong.
    Damaged(&'static str),
    /// Well formed, but written by a newer version. Says which feature.
    Unknown(&'static str),
    /// An entry of a snapshot or meta block of a kind that this version does not know, by its number.
    UnknownEntry(u64),
    /// Another version of the format, by its number.
    Version(u32),
}

impl DecodeError {
    /// True for what only a newer version understands.
    pub fn is_newer(self) -> bool {
        matches!(self, Self::Unknown(_) | Self::UnknownEntry(_))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(what) | Self::Unknown(what) => f.write_str(what),
            Self::UnknownEntry(kind) => write!(f, "an entry of kind {kind}"),
            Self::Version(found) => {
                write!(f, "format version {found}, and this falaj reads {VERSION}")
            }
        }
    }
}

/// Result of a decoder.
pub type Decoded<T> = Result<T, DecodeError>;

/// Refuse every version of the format but this one.
///
/// # Errors
/// `Version`, with the number that was found.
pub fn check_version(found: u32) -> Decoded<()> {
    if found == VERSION { Ok(()) } else { Err(DecodeError::Version(found)) }
}

/// Read a little-endian `u32` at a constant place of a slice that is long enough.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Read a little-endian `u64` at a constant place of a slice that is long enough.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]))
}

/// Write bytes at a constant place of a slice that is long enough.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// Read a little-endian `u64` at a place of a slice; 0 if the slice is too short.
pub(crate) fn u64_in(bytes: &[u8], at: u64) -> u64 {
    bytes
        .get(at as usize..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests;
