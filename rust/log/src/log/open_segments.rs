//! Unused segments that stay open, so that the next reader finds them mapped.
//!
//! Owns how many these are and which is closed first. A map costs a descriptor, one of the maps
//! that the system allows, address space, and memory for each touched page. All logs of a process
//! share one allowance, which [`spare_maps`] computes from the limits of the process. If the system
//! refuses a map all the same, every log closes its unused segments and the caller tries again
//! ([`with_room`]). When a reader moves on to the next segment, the pages of the previous one are
//! released. A reader may also end within a segment. So the pages of all are released whenever
//! scans have read as much as a segment has, within [`KEPT`]. Resident memory thus does not grow
//! with what was read.
//!
//! A closed segment loses its notes of verified blocks: opened again, it is verified again. A
//! segment in use is never closed. [`super::chain`] decides which segments exist.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use crate::error::{Error, Result};
use crate::segment::{Reading, Segment};
use crate::storage::real::spare_maps;

/// Segments kept of a log that is read without maps: each is a copy in memory.
const COPIES: usize = 4;
/// Segments whose notes a log keeps after a reader moved on and the pages were released.
const BEHIND: usize = 64;
/// Bytes that scans of a log read before it releases their pages: as many as a segment has, within
/// these bounds. A topic that is small is so read many times before its pages are fetched again.
const KEPT: RangeInclusive<u64> = (16 << 20)..=(64 << 20);
/// Segments that a log may keep, however many other logs there are.
const LEAST: usize = 4;

/// The open segments of each log of this process.
static LOGS: Mutex<Vec<Weak<Mutex<OpenSegments>>>> = Mutex::new(Vec::new());
/// How many mapped segments they keep open together.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The open segments of one log.
#[derive(Debug)]
pub struct OpenSegments {
    by_sequence: BTreeMap<u64, Opened>,
    uses: u64,
    reading: Reading,
    reach: u64,
    /// Its part of [`OPEN`].
    counted: usize,
    /// Bytes that scans read since the last release.
    read: u64,
}

#[derive(Debug)]
struct Opened {
    segment: Arc<Segment>,
    used: u64,
    pages: Pages,
    /// A scan read a part of it since the last release.
    was_read: bool,
}

/// Whether the pages of a segment are worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// A reader asked for it, and none has moved on from it since.
    Wanted,
    /// A reader moved on from it.
    Passed,
    /// Its pages were released.
    Left,
}

impl Opened {
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.segment) == 1
    }

    /// Give up the pages if a reader went on from it and no reader uses it now.
    fn give_up_passed(&mut self) {
        if self.pages == Pages::Passed && self.is_unused() {
            self.segment.map().leave(0, u64::MAX);
            self.pages = Pages::Left;
        }
    }
}

/// Make the list of a new log, empty. `reach` is the bytes of one of its maps.
pub fn of_log(reading: Reading, reach: u64) -> Arc<Mutex<OpenSegments>> {
    let (by_sequence, uses, counted, read) = Default::default();
    let log = OpenSegments { by_sequence, uses, reading, reach, counted, read };
    let log = Arc::new(Mutex::new(log));
    if let Some(mut logs) = all_logs() {
        if logs.len() == logs.capacity() {
            logs.retain(|log| log.strong_count() > 0);
        }
        logs.push(Arc::downgrade(&log));
    }
    log
}

/// Open something that needs a map or a descriptor. If the system has none, unused segments are
/// closed in all logs, and it is tried once more. `own` is a log whose lock is held.
///
/// # Errors
/// Those of `open`.
pub fn with_room<T>(
    own: Option<&mut OpenSegments>,
    mut open: impl FnMut() -> Result<T>,
) -> Result<T> {
    match open() {
        Err(error) if is_shortage(&error) => {
            own.into_iter().for_each(|own| own.close_to(0));
            close_others_to(0);
            open()
        }
        done => done,
    }
}

/// Return true if fewer maps or descriptors would have helped.
fn is_shortage(error: &Error) -> bool {
    matches!(error.os_error(), Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE))
}

/// Close unused segments of each log whose lock is free, down to this many.
fn close_others_to(most: usize) {
    let logs: Vec<_> = all_logs().map_or_else(Vec::new, |logs| logs.clone());
    for log in logs.iter().filter_map(Weak::upgrade) {
        match log.try_lock() {
            Ok(mut log) => log.close_to(most),
            Err(TryLockError::Poisoned(log)) => log.into_inner().close_to(most),
            Err(TryLockError::WouldBlock) => {}
        };
    }
}

/// Return the list of logs. A child that was forked while another thread held its lock never gets
/// it, and continues without it: so the wait has an end.
fn all_logs() -> Option<MutexGuard<'static, Vec<Weak<Mutex<OpenSegments>>>>> {
    for _ in 0..1000 {
        match LOGS.try_lock() {
            Ok(logs) => return Some(logs),
            Err(TryLockError::Poisoned(logs)) => return Some(logs.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

impl OpenSegments {
    /// Return the open segment with this sequence, for a reader.
    pub fn get(&mut self, sequence: u64) -> Option<Arc<Segment>> {
        self.uses += 1;
        let opened = self.by_sequence.get_mut(&sequence)?;
        // The search for an offset asks for segments that it does not read.
        opened.give_up_passed();
        opened.used = self.uses;
        if opened.pages != Pages::Passed {
            opened.pages = Pages::Wanted;
        }
        Some(Arc::clone(&opened.segment))
    }

    /// Do the same for a look that does not count as a use.
    pub fn peek(&self, sequence: u64) -> Option<Arc<Segment>> {
        self.by_sequence.get(&sequence).map(|opened| Arc::clone(&opened.segment))
    }

    /// Keep a segment open, in place of one with its sequence, and close the surplus.
    pub fn insert(&mut self, segment: Arc<Segment>) {
        self.uses += 1;
        let (sequence, used) = (segment.sequence(), self.uses);
        let opened = Opened { segment, used, pages: Pages::Wanted, was_read: false };
        self.by_sequence.insert(sequence, opened);
        self.recount();
        if self.reading == Reading::Pread {
            return self.close_to(COPIES);
        }
        let most = spare_maps(self.reach);
        if OPEN.load(Ordering::Relaxed) > most {
            let logs = all_logs().map_or(1, |logs| logs.len().max(1));
            let share = (most / logs).max(LEAST);
            self.close_to(share);
            // If there are so many logs that each has next to nothing, none has anything to close.
            if share > LEAST && OPEN.load(Ordering::Relaxed) > most {
                close_others_to(share);
            }
        }
    }

    /// Keep those that pass; the others are closed once they are unused.
    pub fn retain(&mut self, mut keep: impl FnMut(&Segment) -> bool) {
        self.by_sequence.retain(|_, opened| keep(&opened.segment));
        self.recount();
    }

    /// Note that a reader moved on from this segment. Its pages are released once it is unused. A
    /// live view may belong to the next record, and other readers would have to fetch their pages
    /// again. The released pages stay in the page cache.
    pub fn leave(&mut self, sequence: u64) {
        if let Some(opened) = self.by_sequence.get_mut(&sequence) {
            opened.pages = Pages::Passed;
        }
        let mut behind = 0;
        for opened in self.by_sequence.values_mut() {
            opened.give_up_passed();
            behind += usize::from(opened.pages == Pages::Left);
        }
        self.close_oldest(behind.saturating_sub(BEHIND), |opened| opened.pages == Pages::Left);
    }

    /// Note that a scan read so many bytes of a segment. After enough of them, the pages of all that
    /// scans read are released, also where a view lives: a touch maps a page again.
    pub fn note_read(&mut self, sequence: u64, bytes: u64) {
        let Some(opened) = self.by_sequence.get_mut(&sequence) else { return };
        opened.was_read = true;
        self.read = self.read.saturating_add(bytes);
        if self.read < self.reach.clamp(*KEPT.start(), *KEPT.end()) {
            return;
        }
        self.read = 0;
        for opened in self.by_sequence.values_mut() {
            if std::mem::take(&mut opened.was_read) {
                opened.segment.map().leave(0, u64::MAX);
            }
        }
    }

    /// Close unused segments, longest unused first, down to this many.
    fn close_to(&mut self, most: usize) {
        self.close_oldest(self.by_sequence.len().saturating_sub(most), |_| true);
    }

    fn close_oldest(&mut self, count: usize, may_go: impl Fn(&Opened) -> bool) {
        if count == 0 {
            return;
        }
        let unused = self.by_sequence.iter().filter(|(_, open)| open.is_unused() && may_go(open));
        let mut unused: Vec<_> = unused.map(|(sequence, open)| (open.used, *sequence)).collect();
        unused.sort_unstable();
        for (_, sequence) in unused.into_iter().take(count) {
            self.by_sequence.remove(&sequence);
        }
        self.recount();
    }

    fn recount(&mut self) {
        let now = if self.reading == Reading::Map { self.by_sequence.len() } else { 0 };
        OPEN.fetch_add(now, Ordering::Relaxed);
        OPEN.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = now;
    }
}

impl Drop for OpenSegments {
    fn drop(&mut self) {
        OPEN.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
impl OpenSegments {
    /// List the sequences of the open ones, lowest first.
    pub fn sequences(&self) -> Vec<u64> {
        self.by_sequence.keys().copied().collect()
    }
}
