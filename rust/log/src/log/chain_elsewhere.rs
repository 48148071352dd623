//! Segments of a chain whose bytes are elsewhere, for readers of a place.
//!
//! Owns the moments at which bytes are brought to this machine: before a segment is opened, and never
//! under a lock. Invariant: a segment that [`Chain`] opens to read is whole. For a search, only the
//! beginning comes. [`crate::storage::elsewhere`] knows which files stand for others.

use std::sync::Arc;

use crate::error::{Error, IoResult, Result};
use crate::format::names;
use crate::segment::Segment;
use crate::storage::Needed;

use super::{Chain, enter, unless_missing};

/// How often a segment is brought to this machine for one caller: it may be given up at once.
const BRINGS: u32 = 16;

impl Chain {
    /// Bring a segment, and open it. No lock is held while it is brought.
    #[cold]
    pub(super) fn brought<T>(&self, sequence: u64, open: impl Fn() -> Result<T>) -> Result<T> {
        let path = self.dir.join(names::segment(sequence));
        let mut left = BRINGS;
        loop {
            self.storage.bring(&path, Needed::Whole).doing("fetch", &path)?;
            left -= 1;
            match open() {
                // It was given up again before it was opened.
                Err(error) if is_stand_in(&error) && left > 0 => {}
                done => return done,
            }
        }
    }

    /// Return a segment for a look at its beginning. If its bytes are elsewhere, only the first of
    /// them are brought.
    pub fn beginning_of(&self, sequence: u64) -> Result<Arc<Segment>> {
        if !self.storage.is_elsewhere() {
            return self.segment(sequence);
        }
        let (open, begun) =
            (enter(&self.open).peek(sequence), enter(&self.begun).get(&sequence).cloned());
        if let Some(segment) = open.or(begun) {
            return Ok(segment);
        }
        let path = self.dir.join(names::segment(sequence));
        self.storage.bring(&path, Needed::Beginning).doing("fetch", &path)?;
        let segment = Arc::new(self.open_stand_in(sequence)?);
        // The beginning may be longer than what came, and the whole of it may have come.
        if !segment.file().is_stand_in() || segment.opening().is_err() {
            return self.segment(sequence);
        }
        enter(&self.begun).insert(sequence, Arc::clone(&segment));
        Ok(segment)
    }

    /// Open a segment without a map. If it is elsewhere, only the parts that are here can be read.
    pub(super) fn open_stand_in(&self, sequence: u64) -> Result<Segment> {
        let opened = Segment::open_stand_in(&*self.storage, &self.dir, self.generation, sequence);
        opened.map_err(|e| unless_missing(e, &self.dir, sequence))
    }

    /// Do as [`Chain::open_uncached`] for a look at its beginning.
    pub fn beginning_uncached(&self, sequence: u64) -> Result<Arc<Segment>> {
        let is_elsewhere = self.storage.is_elsewhere();
        if is_elsewhere { self.beginning_of(sequence) } else { self.open_uncached(sequence) }
    }
}

/// Return true for the error of a segment whose bytes are elsewhere.
fn is_stand_in(error: &Error) -> bool {
    error.os_error() == Some(libc::ESTALE)
}
