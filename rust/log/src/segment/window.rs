//! Reading a segment with `pread`: into memory of our own, block by block.
//!
//! Owns the copy that replaces a map where a map is dangerous. Under a map a bad sector or a
//! truncation by another program is SIGBUS; here it is an error. The copy lies in private memory at
//! the positions that the bytes have in the file. So all code above works on it as on a map.
//! Invariant: a *held* byte of the copy never changes again; slices cover held bytes only.
//!
//! ```text
//! file    | header | block | block | block | zero …        (others may be appending)
//! memory  |        | held  | held  |                       filled on demand, never twice
//! ```
//!
//! A `pread` of many bytes is not ordered. So bytes that a commit word covers are read *after* the
//! word was seen. They are read first to find out how far the blocks reach, then again to keep.
//! [`super::Segment`] interprets the bytes. See `docs/PROTOCOL.md`, "Read".

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::format::block::CommitWord;
use crate::storage::{File, Map};

/// Most bytes read at once.
const CHUNK: usize = 64 << 10;
/// Bytes read ahead at first: a reader of one block does not pay for many.
const LITTLE: usize = 4 << 10;
/// Bytes of the smallest piece that a disk may fail to read alone.
const SECTOR_GROUP: u64 = 4096;
/// Held bytes after which a fresh window should replace this one.
const MUCH: u64 = 64 << 20;

/// The word of an unreadable place, which no writer stores.
pub const UNREADABLE: u64 = 1;

/// The part of a segment that was read.
pub struct Window {
    file: Arc<dyn File>,
    memory: Map,
    salt: u64,
    held: Mutex<HeldPages>,
    run: WindowRun,
    resident: AtomicU64,
}

/// A held range that a walk over read bytes finds without a lock. It began with the first bytes
/// that were kept, and only grows.
#[derive(Default)]
struct WindowRun {
    /// Set before `end`, and never changed.
    start: AtomicU64,
    end: AtomicU64,
}

impl WindowRun {
    #[inline]
    fn holds(&self, from: u64, to: u64) -> bool {
        // Acquire: with the end come the bytes before it, and the start.
        to <= self.end.load(Ordering::Acquire) && from >= self.start.load(Ordering::Relaxed)
    }

    /// Note that `[from, to)` is held, and its bytes stored. The caller has the lock.
    fn extend(&self, from: u64, to: u64) {
        let end = self.end.load(Ordering::Relaxed);
        if end == 0 {
            self.start.store(from, Ordering::Relaxed);
        }
        if end == 0 || end == from {
            self.end.store(to, Ordering::Release);
        }
    }
}

#[derive(Default)]
struct HeldPages {
    /// Start and end of the held ranges, disjoint, not touching each other.
    ranges: BTreeMap<u64, u64>,
    chunk: Vec<u8>,
    /// Bytes of the last read-ahead.
    ahead: usize,
    /// Where a word was zero last: a reader that waits there reads it alone.
    zero_at: u64,
    /// Where a read failed last.
    failed_at: Option<u64>,
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({} bytes held)", self.resident.load(Ordering::Relaxed))
    }
}

impl Window {
    /// Make a window with nothing read. `memory` is private memory as long as the segment may
    /// become.
    pub fn new(file: Arc<dyn File>, memory: Map, salt: u64) -> Self {
        let (held, run, resident) = Default::default();
        Self { file, memory, salt, held, run, resident }
    }

    fn held(&self) -> MutexGuard<'_, HeldPages> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return true when so much is held that a fresh window is better.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.resident.load(Ordering::Relaxed) > MUCH
    }

    /// Return true when the last read of this place failed.
    pub fn failed_at(&self, position: u64) -> bool {
        self.held().failed_at == Some(position)
    }

    /// Return the commit word at a position within the file's known length, as the file has it now.
    /// [`UNREADABLE`] if it cannot be read, or the file ends before it: zero would be an end.
    #[inline]
    pub fn word(&self, position: u64) -> u64 {
        if self.run.holds(position, position + 8) {
            return self.memory.load(position);
        }
        self.word_held(position)
    }

    fn word_held(&self, position: u64) -> u64 {
        let mut held = self.held();
        if held.gaps(position, position + 8).is_empty() {
            return self.memory.load(position);
        }
        match self.fresh_word(&mut held, position) {
            Ok(word) => word,
            Err(_) => {
                held.failed_at = Some(position);
                UNREADABLE
            }
        }
    }

    fn fresh_word(&self, held: &mut HeldPages, position: u64) -> io::Result<u64> {
        if held.zero_at == position {
            let mut word = [0; 8];
            if self.file.read_at(&mut word, position)? < word.len() {
                return Err(ends_early());
            }
            if word == [0; 8] {
                return Ok(0);
            }
        }
        // More each time, and no more than the segment has.
        let most = CHUNK.min(self.memory.len() as usize);
        held.ahead = (held.ahead * 2).clamp(LITTLE, most.max(LITTLE));
        let mut chunk = std::mem::take(&mut held.chunk);
        let seen = self.read_chunk(&mut chunk, position, held.ahead);
        let word = seen.as_ref().map_or(0, |seen| word_at(&chunk[..*seen], 0));
        let reached = seen.as_ref().map_or(0, |seen| reach(&chunk[..*seen], position, self.salt));
        let reached = if position + reached <= self.memory.len() { reached } else { 0 };
        held.chunk = chunk;
        if seen? < 8 {
            return Err(ends_early());
        }
        if word == 0 {
            held.zero_at = position;
        } else if reached > 0 {
            // A block that cannot be kept is read again, alone, when it is needed.
            let _ = self.keep(held, position, position + reached);
        }
        Ok(word)
    }

    /// Read bytes of the file from a position on; fewer if some cannot be read.
    fn read_chunk(&self, chunk: &mut Vec<u8>, position: u64, len: usize) -> io::Result<usize> {
        chunk.resize(len.max(chunk.len()), 0);
        match self.file.read_at(&mut chunk[..len], position) {
            Err(_) => {
                let near = (SECTOR_GROUP - position % SECTOR_GROUP) as usize;
                self.file.read_at(&mut chunk[..near], position)
            }
            read => read,
        }
    }

    /// Hold `[position, position + len)`, all of it committed. False when it cannot be read.
    #[inline]
    pub fn fetch(&self, position: u64, len: u64) -> bool {
        let end = position.checked_add(len);
        end.is_some_and(|end| self.run.holds(position, end)) || self.fetch_held(position, len)
    }

    fn fetch_held(&self, position: u64, len: u64) -> bool {
        let mut held = self.held();
        let fits = position.checked_add(len).is_some_and(|end| end <= self.memory.len());
        let kept = fits && matches!(self.keep(&mut held, position, position + len), Ok(true));
        if !kept {
            held.failed_at = Some(position);
            return false;
        }
        true
    }

    /// Read the bytes that are not held yet. False if the file is too short.
    fn keep(&self, held: &mut HeldPages, from: u64, to: u64) -> io::Result<bool> {
        for (start, end) in held.gaps(from, to) {
            let mut at = start;
            while at < end {
                let wanted = CHUNK.min((end - at) as usize);
                let mut bytes = std::mem::take(&mut held.chunk);
                bytes.resize(wanted.max(bytes.len()), 0);
                let read = self.file.read_at(&mut bytes[..wanted], at);
                let stored = match read {
                    Ok(got) if got == wanted => {
                        self.memory.write(at, &bytes[..wanted]).map(|()| true)
                    }
                    other => other.map(|_| false),
                };
                held.chunk = bytes;
                if !stored? {
                    return Ok(false);
                }
                held.insert(at, at + wanted as u64);
                self.run.extend(at, at + wanted as u64);
                self.resident.fetch_add(wanted as u64, Ordering::Relaxed);
                at += wanted as u64;
            }
        }
        Ok(true)
    }
}

impl HeldPages {
    /// List the parts of `[from, to)` that are not held.
    fn gaps(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = from;
        let before = self.ranges.range(..=from).next_back().map(|(_, end)| *end);
        at = before.map_or(at, |end| at.max(end));
        for (start, end) in self.ranges.range(from..to) {
            if *start > at {
                gaps.push((at, *start));
            }
            at = at.max(*end);
        }
        if at < to {
            gaps.push((at, to));
        }
        gaps
    }

    /// Note that `[from, to)`, a gap until now, is held.
    fn insert(&mut self, from: u64, to: u64) {
        let (mut start, mut end) = (from, to);
        if let Some((before, _)) =
            self.ranges.range(..=from).next_back().filter(|(_, e)| **e == from)
        {
            start = *before;
        }
        if let Some(after) = self.ranges.remove(&to) {
            end = after;
        }
        self.ranges.insert(start, end);
    }
}

/// Make the error for a file that is shorter than its known length.
fn ends_early() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Return how many bytes from the beginning are whole blocks by their commit words.
fn reach(chunk: &[u8], position: u64, salt: u64) -> u64 {
    let mut at = 0u64;
    while at + 8 <= chunk.len() as u64 {
        let word = word_at(chunk, at as usize);
        let Ok(commit) = CommitWord::parse(word, salt, position + at) else { break };
        if word == 0 || at + commit.padded() > chunk.len() as u64 {
            break;
        }
        at += commit.padded();
    }
    at
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_told_from_what_is_not() {
        let mut held = HeldPages::default();
        assert_eq!(held.gaps(8, 24), [(8, 24)]);
        held.insert(8, 24);
        held.insert(40, 48);
        assert_eq!(held.gaps(8, 24), []);
        assert_eq!(held.gaps(0, 64), [(0, 8), (24, 40), (48, 64)]);
        assert_eq!(held.gaps(16, 44), [(24, 40)]);
        held.insert(24, 40);
        assert_eq!(held.ranges.iter().collect::<Vec<_>>(), [(&8, &48)]);
        assert_eq!(held.gaps(8, 48), []);
        assert_eq!(held.gaps(44, 50), [(48, 50)]);
    }

    #[test]
    fn blocks_are_reached_as_far_as_whole_ones_follow_each_other() {
        use crate::format::block::Kind;
        let (salt, position) = (77, 4096);
        let lens = [40u32, 33, 64];
        let mut chunk = vec![0; 256];
        let mut at = 0u64;
        let mut starts = Vec::new();
        for len in lens {
            let commit = CommitWord { len, kind: Kind::Data };
            let word = commit.pack(salt, position + at).to_le_bytes();
            chunk[at as usize..][..8].copy_from_slice(&word);
            starts.push(at);
            at += commit.padded();
        }
        assert_eq!(at, 144);
        assert_eq!(reach(&chunk, position, salt), 144, "up to the first zero");
        assert_eq!(reach(&chunk[..144], position, salt), 144, "or to the end");
        assert_eq!(reach(&chunk[..143], position, salt), 80, "a block that is cut off is left out");
        assert_eq!(reach(&chunk[..7], position, salt), 0);
        assert_eq!(reach(&chunk, position, salt + 1), 0);
        chunk[starts[1] as usize] ^= 1;
        chunk[starts[1] as usize + 7] ^= 1;
        assert_eq!(reach(&chunk, position, salt), 40, "nor is a damaged one passed over");
    }
}

#[cfg(all(test, not(loom)))]
#[path = "window_tests.rs"]
mod window_tests;
