//! The commit word, which makes a block visible to all processes at once.
//!
//! Owns the one ordering that all reading rests on: **a reader that sees a commit word sees every
//! byte that was stored before it**. The writer stores bytes in any order and the word last, with
//! release. The reader loads the word first, with acquire. It reads nothing behind a word that is
//! zero.
//!
//! ```text
//! writer   bytes, bytes, bytes ──release──> word
//! reader                        word ──acquire──> bytes
//! ```
//!
//! In a group the words of all blocks but the first are published as they are written. The first
//! one, published last, makes the group visible. That uses the same promise twice: a reader that
//! sees the first word sees the bytes and the words of the whole group.
//!
//! The segment defines what a word holds, and which bytes follow it. After a restart the word is no
//! evidence, since pages reach the disk in any order; checksums are. The model is in `tests/loom`;
//! the protocol in `docs/PROTOCOL.md`, "Append".

use crate::canary::{Canary, planted};
use crate::sync::{Ordering, SharedWord};

/// Make earlier stores visible to a reader that [`observe`]s `value`.
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
    // Acquire: no later load of this thread may be satisfied before this one.
    word.load(Ordering::Acquire)
}
