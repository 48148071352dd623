//! The words that the processes of a consumer share.
//!
//! Owns how a word changes in either write mode: by compare-and-swap where the file is mapped for
//! writing, under the store's claim where it is written by `pwrite`. A change that others have to look
//! at raises the counter *after* the word, so that who saw the counter and then the words missed none.

use std::path::PathBuf;

use crate::error::{IoResult, Result};
use crate::format::consumer::at;
use crate::storage::Map;
use crate::store::Store;
use crate::sync::{Ordering, SharedWord};

/// The mapped file, as words.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) map: Map,
    pub(super) path: PathBuf,
    pub(super) store: Store,
}

impl Words {
    pub(super) fn load(&self, position: u64) -> u64 {
        self.map.load(position)
    }

    /// How often members came, went, asked for a partition or let one go. One load.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.map.load(at::CHANGES)
    }

    /// Store a word that nobody else changes meanwhile: it is the caller's, or the claim is held.
    pub(super) fn set(&self, position: u64, value: u64) -> Result<()> {
        self.map.store(position, value).doing("write", &self.path)
    }

    /// Raise the counter, with the claim held.
    pub(super) fn tell_under_claim(&self) -> Result<()> {
        if self.map.shares_memory() {
            self.map.word(at::CHANGES).fetch_add(1, Ordering::AcqRel);
            return Ok(());
        }
        self.set(at::CHANGES, self.changes().wrapping_add(1))
    }

    /// Put `new` in the place of `old`; false when something else was there. Where it `tells`, others
    /// look at it.
    pub(super) fn replace(&self, position: u64, old: u64, new: u64, tells: bool) -> Result<bool> {
        if !self.map.shares_memory() {
            return self.store.under_claim(|| self.replace_under_claim(position, old, new, tells));
        }
        // Acquire: what the owner before stored is ours to read. Release: what we stored is the next
        // one's.
        let word = self.map.word(position);
        let replaced = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if replaced && tells {
            self.map.word(at::CHANGES).fetch_add(1, Ordering::AcqRel);
        }
        Ok(replaced)
    }

    fn replace_under_claim(&self, position: u64, old: u64, new: u64, tells: bool) -> Result<bool> {
        if self.load(position) != old {
            return Ok(false);
        }
        self.set(position, new)?;
        if tells {
            self.tell_under_claim()?;
        }
        Ok(true)
    }
}
