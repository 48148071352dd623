//! The commit word: how a block comes into existence for everybody at once.
//!
//! Owns the one ordering that all reading rests on: **who sees a commit word sees every byte that
//! was stored before it**. The writer stores bytes in any order and the word last, with release;
//! the reader loads the word first, with acquire. Nothing is read behind a word that is zero.
//!
//! ```text
//! writer   bytes, bytes, bytes ──release──> word
//! reader                        word ──acquire──> bytes
//! ```
//!
//! In a group the words of all blocks but the first are published as they are written; the first
//! one, published last, makes the group. That is the same promise used twice: who sees the first
//! word sees the bytes and the words of the whole group.
//!
//! What a word holds, and which bytes follow it, is for the segment to say. After a restart
//! the word proves nothing (pages reach the medium in any order); checksums do. The model is in
//! `tests/loom`; the protocol in `docs/PROTOCOL.md`, "Append".

use crate::canary::{Canary, planted};
use crate::sync::{Ordering, SharedWord};

/// Make what was stored before visible to whoever [`observe`]s `value`.
#[inline]
pub fn publish(word: &impl SharedWord, value: u64) {
    // Release: no earlier store of this thread may become visible after this one.
    let relaxed = planted(Canary::RelaxedCommitWord);
    word.store(value, if relaxed { Ordering::Relaxed } else { Ordering::Release });
}

/// Load a commit word; if it is not zero, the bytes it stands for may be read.
#[inline]
#[must_use]
pub fn observe(word: &impl SharedWord) -> u64 {
    // Acquire: no later load of this thread may be answered from before this one.
    word.load(Ordering::Acquire)
}
