//! The chain: which segments belong to the log.
//!
//! Owns the list of segments that the newest connected one reaches backwards. A segment is
//! connected to its predecessor in two cases: the predecessor's end block names it, or its own
//! header says that it supersedes. Everything else in the directory is an orphan of a crash. A
//! segment's content ends where its successor says (`previous.end`), not where its bytes stop being
//! valid. See `docs/PROTOCOL.md`, "The chain".

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::error::{Error, IoResult, Result};
use crate::format::block::Kind;
use crate::format::segment::{Mark, Previous, SegmentHeader};
use crate::format::state::End;
use crate::format::{DecodeError, FIRST_BLOCK, names};
use crate::segment::{Reading, Segment, UNREAD, expect_own, read_header_pages};
use crate::storage::{OpenMode, Storage};

use super::open_segments::{self, OpenSegments, with_room};
use super::{LogSettings, enter};

#[path = "chain_elsewhere.rs"]
mod elsewhere;

#[derive(Debug)]
pub struct Chain {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    generation: [u8; 16],
    reach: u64,
    reading: Reading,
    /// Locked before `known` if both are.
    open: Arc<Mutex<OpenSegments>>,
    known: Mutex<KnownSegment>,
    /// Segments that have only their beginning on this machine, since the last listing.
    begun: Mutex<BTreeMap<u64, Arc<Segment>>>,
}

#[derive(Debug, Default)]
struct KnownSegment {
    sequences: Vec<u64>,
    /// From this one on, by its header, each segment continues the previous one in the list.
    linked_from: Option<u64>,
    headers: BTreeMap<u64, SegmentHeader>,
    /// Sequence and salt of segments with a valid beginning.
    whole: BTreeSet<(u64, u64)>,
    /// The newest segment in the last listing.
    newest: u64,
    /// How often a known fact turned out to have changed.
    changes: u64,
}

/// The state of a segment's first blocks.
enum Beginning {
    /// All of them are valid.
    Whole,
    /// A mark says that all were on disk: an error here is corruption.
    Marked,
    /// Some are missing, or the end block that names the segment is.
    Torn,
}

/// Segments that the newest connected one reaches backwards, oldest first.
#[derive(Debug)]
pub struct Connected {
    /// The segments of the log.
    pub whole: Vec<u64>,
    /// The later ones, from the first with a torn beginning on. They are not part of the log, and
    /// yet they may connect the ones before them.
    pub torn: Vec<u64>,
}

/// The successor of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The segment of this sequence; the one asked for ends at `end`.
    Segment { sequence: u64, end: u64 },
    /// None: it is the newest.
    Nothing,
    /// It is no longer part of the log: another segment has its content.
    Superseded,
    /// Retention deleted it, and its successor too.
    Removed,
}

impl Chain {
    pub fn new(storage: Arc<dyn Storage>, dir: &Path, settings: &LogSettings) -> Self {
        let (generation, reach) = (settings.generation, settings.segment_bytes);
        let (dir, reading, known) = (dir.to_path_buf(), settings.reading, Mutex::default());
        let open = open_segments::of_log(reading, reach);
        Self { storage, dir, generation, reach, reading, known, open, begun: Mutex::default() }
    }

    /// Return the log's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Open the same segment again with none of it in memory, for a reader without maps that has
    /// read much.
    pub fn reopen_empty(&self, segment: &Arc<Segment>) -> Result<Arc<Segment>> {
        let mut open = enter(&self.open);
        let other = open.peek(segment.sequence());
        // If compaction replaced it, the new one has other blocks.
        let is_same = other.as_ref().is_none_or(|other| is_same_file(other, segment));
        if let Some(other) = other.filter(|other| is_same && !other.exceeds_cache()) {
            return Ok(other);
        }
        let fresh = Arc::new(segment.reopen_empty()?);
        if is_same {
            open.insert(Arc::clone(&fresh));
        }
        Ok(fresh)
    }

    /// As [`Chain::reopen_empty`] where so much was read without a map; else the segment as it is.
    ///
    /// # Errors
    /// As [`Chain::segment`].
    pub fn refreshed(&self, segment: Arc<Segment>) -> Result<Arc<Segment>> {
        if segment.exceeds_cache() { self.reopen_empty(&segment) } else { Ok(segment) }
    }

    /// Return the segment with this sequence, open for reading.
    pub fn segment(&self, sequence: u64) -> Result<Arc<Segment>> {
        if !self.storage.is_elsewhere() {
            return self.segment_here(sequence);
        }
        let open = enter(&self.open).get(sequence);
        open.map_or_else(|| self.brought(sequence, || self.segment_here(sequence)), Ok)
    }

    /// Return the segment with this sequence, open for reading, if its bytes are on this machine.
    fn segment_here(&self, sequence: u64) -> Result<Arc<Segment>> {
        // Held until it is open, so that it is opened once.
        let mut open = enter(&self.open);
        if let Some(segment) = open.get(sequence) {
            return Ok(segment);
        }
        let segment = with_room(Some(&mut open), || self.open_segment(sequence))?;
        open.insert(Arc::clone(&segment));
        // Still under that lock: a thread that forgets a segment forgets its header with it.
        let mut known = enter(&self.known);
        if sequence < known.newest {
            segment.file().read_ahead();
        }
        let header = segment.header().clone();
        if known.headers.insert(sequence, header).is_some_and(|old| old != *segment.header()) {
            known.linked_from = None;
        }
        Ok(segment)
    }

    /// Do as [`Chain::segment`] for a single look: a segment that was not open does not stay open.
    pub fn open_uncached(&self, sequence: u64) -> Result<Arc<Segment>> {
        let open = enter(&self.open).peek(sequence);
        let new = || with_room(None, || self.open_segment(sequence));
        match open {
            Some(segment) => Ok(segment),
            None if self.storage.is_elsewhere() => self.brought(sequence, new),
            None => new(),
        }
    }

    /// Note that a reader moved from this segment to another one.
    pub fn leave(&self, sequence: u64) {
        enter(&self.open).leave(sequence);
    }

    /// Note that a scan read so many bytes of this segment.
    pub fn note_read(&self, sequence: u64, bytes: u64) {
        enter(&self.open).note_read(sequence, bytes);
    }

    fn open_segment(&self, sequence: u64) -> Result<Arc<Segment>> {
        let (storage, reading) = (&*self.storage, self.reading);
        let (generation, reach) = (self.generation, self.reach);
        let opened =
            Segment::open_to_read(storage, &self.dir, generation, sequence, reach, reading);
        Ok(Arc::new(opened.map_err(|e| unless_missing(e, &self.dir, sequence))?))
    }

    /// List the log's segments, oldest first, as the directory has them now.
    pub fn refresh(&self) -> Result<Vec<u64>> {
        enter(&self.begun).clear();
        let mut listed = list_segments(&*self.storage, &self.dir)?;
        let mut forgotten = Vec::new();
        let whole = loop {
            forgotten.extend(self.forget_replaced(&listed));
            let found = self.connected(&listed);
            let now = list_segments(&*self.storage, &self.dir)?;
            // Retention deletes the oldest segments, and compaction those before one that replaces
            // them. Such a deletion since the listing looked like a missing segment.
            if listed.iter().all(|sequence| now.binary_search(sequence).is_ok()) {
                break found?.whole;
            }
            listed = now;
        };
        let (mut open, mut known) = (enter(&self.open), enter(&self.known));
        let is_other = |header: &SegmentHeader| known.headers.get(&header.sequence) != Some(header);
        let is_changed = known.sequences != whole || forgotten.iter().any(is_other);
        known.changes += u64::from(is_changed);
        known.sequences.clone_from(&whole);
        let continues =
            |pair: &&[u64]| known.continued(pair[1]).is_some_and(|p| p.sequence == pair[0]);
        let linked = whole.windows(2).rev().take_while(continues).count();
        known.linked_from = whole.iter().rev().nth(linked).copied();
        open.retain(|segment| whole.binary_search(&segment.sequence()).is_ok());
        Ok(whole)
    }

    /// Forget segments that compaction replaced, as far as that is visible. An open one is no
    /// longer the file of its name. A known header continues a segment that is gone, although older
    /// ones exist. Returns the headers of the latter: the reason may also be a missing segment.
    fn forget_replaced(&self, listed: &[u64]) -> Vec<SegmentHeader> {
        let newest = listed.last().copied();
        let mut is_renamed = false;
        let (mut open, mut known) = (enter(&self.open), enter(&self.known));
        open.retain(|segment| {
            let sequence = segment.sequence();
            let renamed = Some(sequence) != newest
                && listed.binary_search(&sequence).is_ok()
                && matches!(segment.has_its_name(&*self.storage), Ok(false));
            if renamed {
                known.headers.remove(&sequence);
            }
            is_renamed |= renamed;
            !renamed
        });
        let lacks = |header: &&SegmentHeader| {
            header.previous.is_some_and(|previous| {
                listed.first().is_some_and(|first| *first < previous.sequence)
                    && listed.binary_search(&previous.sequence).is_err()
            })
        };
        let alone: Vec<_> = known.headers.values().filter(lacks).cloned().collect();
        known.changes += u64::from(is_renamed);
        for header in &alone {
            known.headers.remove(&header.sequence);
        }
        open.retain(|open| alone.iter().all(|gone| gone.sequence != open.sequence()));
        alone
    }

    /// Return a number that rises whenever a known fact about the log turned out to have changed.
    pub fn changes(&self) -> u64 {
        enter(&self.known).changes
    }

    /// Find the log's segments among the files of a directory, lowest first.
    pub fn connected(&self, listed: &[u64]) -> Result<Connected> {
        let mut found = listed.to_vec();
        self.drop_unconnected(&mut found)?;
        self.drop_superseded(&mut found);
        Ok(self.split_torn(found))
    }

    /// Find the end of the log among the files of a directory, lowest first: the segments that
    /// recovery must check, oldest first. It goes back to a mark that claims something, as all
    /// before that is on disk. It also goes back through all that the last incarnation wrote. The
    /// recovery after an earlier incarnation put that one's leftovers away before it made its own
    /// first mark. See `docs/PROTOCOL.md`, "Recovery".
    pub fn since_last_incarnation(&self, listed: &[u64]) -> Result<Connected> {
        let mut listed = listed.to_vec();
        self.drop_unconnected(&mut listed)?;
        let (mut found, mut last) = (Vec::new(), None);
        let mut reached = listed.last().copied();
        for &sequence in listed.iter().rev() {
            if reached.is_none_or(|reached| sequence > reached) {
                continue;
            }
            found.push(sequence);
            let Ok((header, mark)) = self.first_page(sequence) else {
                // As in `drop_superseded`.
                reached = sequence.checked_sub(1);
                continue;
            };
            reached = header.previous.map(|previous| previous.sequence);
            let Some(mark) = mark else { continue };
            let made_before = last.is_some_and(|last| mark.incarnation != last);
            if made_before && mark.position > 0 {
                break;
            }
            last = last.or((mark.incarnation != 0).then_some(mark.incarnation));
        }
        found.reverse();
        Ok(self.split_torn(found))
    }

    /// Drop the newest segments that nothing connects with the log.
    fn drop_unconnected(&self, sequences: &mut Vec<u64>) -> Result<()> {
        enter(&self.known).newest = sequences.last().copied().unwrap_or(0);
        while let Some(newest) = sequences.last().copied() {
            if sequences.len() == 1 || self.is_connected(newest, sequences)? {
                return Ok(());
            }
            sequences.pop();
        }
        Err(Error::corrupt(&self.dir, 0, "a log without any segment"))
    }

    /// Drop what the newest segment does not reach backwards: a cut left it out of the log. Before
    /// an unreadable header everything stays, so that its reader gets the error.
    fn drop_superseded(&self, sequences: &mut Vec<u64>) {
        let mut reached = sequences.last().copied();
        let mut kept: Vec<_> = std::mem::take(sequences);
        kept.reverse();
        kept.retain(|&sequence| {
            let part = reached.is_some_and(|reached| sequence <= reached);
            if part {
                reached = match self.header(sequence) {
                    Ok(header) => header.previous.map(|previous| previous.sequence),
                    Err(_) => sequence.checked_sub(1),
                };
            }
            part
        });
        kept.reverse();
        *sequences = kept;
    }

    /// After the last mark, a power failure may have lost a segment, its beginning, or the end block
    /// that names it, and kept later ones. Those are lost with it, and the log ends before them. A reader that believed
    /// half a beginning would look there for offsets that lie before it.
    fn split_torn(&self, mut sequences: Vec<u64>) -> Connected {
        let mut whole = sequences.len();
        let newest = whole.saturating_sub(1);
        let follows = |i: usize, sequence: u64| {
            let previous = self.header(sequence).ok().and_then(|header| header.previous);
            previous.is_some_and(|previous| previous.sequence == sequences[i - 1])
        };
        for (i, sequence) in sequences.iter().enumerate().skip(1).rev() {
            match self.beginning(*sequence, i == newest) {
                Ok(Beginning::Marked) => break,
                Ok(Beginning::Whole) if follows(i, *sequence) => {}
                Ok(Beginning::Whole | Beginning::Torn) => whole = i,
                Err(Error::CorruptData { what, .. }) if what != MISSING && what != UNREAD => {
                    whole = i;
                }
                Err(_) => {}
            }
        }
        let torn = sequences.split_off(whole);
        Connected { whole: sequences, torn }
    }

    /// Check each segment once. Only the newest one stays open, since the caller is about to read
    /// it.
    fn beginning(&self, sequence: u64, is_newest: bool) -> Result<Beginning> {
        let salt = self.header(sequence)?.salt;
        if enter(&self.known).whole.contains(&(sequence, salt)) {
            return Ok(Beginning::Whole);
        }
        let segment =
            if is_newest { self.segment(sequence)? } else { self.open_uncached(sequence)? };
        if segment.read_mark()?.is_some_and(|mark| mark.position > 0) {
            return Ok(Beginning::Marked);
        }
        // The newest one is connected, or it would not be here.
        if introduced_until(&segment)?.is_none()
            || !is_newest && self.lacks_end_block(segment.header())
        {
            return Ok(Beginning::Torn);
        }
        enter(&self.known).whole.insert((sequence, salt));
        Ok(Beginning::Whole)
    }

    /// Return true if the segment before one is there, and its end block is not. False where that
    /// cannot be read: its reader gets the error.
    fn lacks_end_block(&self, header: &SegmentHeader) -> bool {
        let Some(previous) = header.previous.filter(|_| !header.supersedes) else { return false };
        // A segment that is elsewhere was on the disk there.
        if self.storage.is_elsewhere() {
            return false;
        }
        let before = self.open_uncached(previous.sequence);
        let named = before.and_then(|before| names_successor(&before, previous.end, header));
        matches!(named, Ok(false))
    }

    /// Return true for a segment that is part of the log, as the directory has it now.
    pub fn holds(&self, sequence: u64) -> Result<bool> {
        let listed = self.sequences()?.binary_search(&sequence).is_ok();
        Ok(listed || self.refresh()?.binary_search(&sequence).is_ok())
    }

    /// Return the sequences of the last listing.
    pub fn sequences(&self) -> Result<Vec<u64>> {
        let known = enter(&self.known).sequences.clone();
        if known.is_empty() { self.refresh() } else { Ok(known) }
    }

    /// Return true if the last listing goes beyond this segment, and its newest one is still what it
    /// was. A process that dies in a roll, a recovery or a carry-over leaves it so. Readers then need
    /// not list the segments again for each look. Costs two calls of the system.
    pub fn still_goes_beyond(&self, sequence: u64, listed: &[u64]) -> bool {
        let newest = listed.last().copied().filter(|newest| *newest > sequence);
        let is_there = |newest| {
            let newest = self.segment(newest);
            newest.is_ok_and(|newest| matches!(newest.has_its_name(&*self.storage), Ok(true)))
        };
        !self.storage.is_elsewhere() && newest.is_some_and(is_there)
    }

    /// Return true if compaction made a segment of the log, as far as its headers were read: those
    /// of the first listing all were.
    pub fn has_compacted(&self) -> Result<bool> {
        self.sequences()?;
        Ok(enter(&self.known).headers.values().any(|header| header.replaces.is_some()))
    }

    fn is_connected(&self, sequence: u64, listed: &[u64]) -> Result<bool> {
        // A header from memory counts only if the segment was connected then: an orphan's name may
        // go to another file.
        let known = enter(&self.known).headers.get(&sequence).cloned();
        let is_known = known.is_some();
        let header = match known.map_or_else(|| Ok(self.read_pages(sequence)?.0), Ok) {
            Ok(header) => header,
            Err(error) => return disconnects(error),
        };
        let previous = header.previous.filter(|previous| listed.contains(&previous.sequence));
        let Some(previous) = previous else { return Ok(false) };
        // The end block is here, even if the segment is elsewhere.
        let before = match self.storage.is_elsewhere() {
            true => self.open_stand_in(previous.sequence).map(Arc::new),
            false => self.segment(previous.sequence),
        };
        let before = match before {
            Ok(before) => before,
            Err(error) => return disconnects(error),
        };
        let connected = before.salt() == previous.salt
            && (header.supersedes || names_successor(&before, previous.end, &header)?);
        if connected && !is_known {
            enter(&self.known).headers.insert(sequence, header);
        }
        Ok(connected)
    }

    /// Return the header of a segment of the log.
    pub fn header(&self, sequence: u64) -> Result<SegmentHeader> {
        if let Some(header) = enter(&self.known).headers.get(&sequence) {
            return Ok(header.clone());
        }
        let (header, _) = self.read_pages(sequence)?;
        enter(&self.known).headers.insert(sequence, header.clone());
        Ok(header)
    }

    fn read_pages(&self, sequence: u64) -> Result<(SegmentHeader, Option<Mark>)> {
        let path = self.dir.join(names::segment(sequence));
        let file = self.storage.open(&path, OpenMode::Read).doing("open", &path);
        let file = file.map_err(|e| unless_missing(e, &self.dir, sequence))?;
        let (header, mark) = read_header_pages(&*file, &path)?;
        // A copy under a later name would seem to supersede its original.
        expect_own(&header, self.generation, sequence, &path)?;
        Ok((header, mark))
    }

    fn first_page(&self, sequence: u64) -> Result<(SegmentHeader, Option<Mark>)> {
        let open = enter(&self.open).peek(sequence);
        if let Some(segment) = open {
            return Ok((segment.header().clone(), segment.read_mark()?));
        }
        let (header, mark) = self.read_pages(sequence)?;
        enter(&self.known).headers.insert(sequence, header.clone());
        Ok((header, mark))
    }

    /// Return the segment that must continue this one, and where this one's content ends.
    ///
    /// # Errors
    /// `CorruptData` when there is none.
    pub fn successor(&self, segment: &Segment) -> Result<(u64, u64)> {
        match self.next(segment)? {
            Next::Segment { sequence, end } => Ok((sequence, end)),
            Next::Nothing | Next::Superseded | Next::Removed => {
                let what = "a segment that should have a successor";
                Err(Error::corrupt(segment.path(), segment.map().len(), what))
            }
        }
    }

    /// Find the successor of a segment, passing over orphans.
    pub fn next(&self, segment: &Segment) -> Result<Next> {
        if let Some(next) = enter(&self.known).linked(segment) {
            return Ok(next);
        }
        'look: for fresh in [false, true] {
            let listed = if fresh { self.refresh()? } else { self.sequences()? };
            let is_before = listed.first().is_some_and(|first| segment.sequence() < *first);
            if listed.binary_search(&segment.sequence()).is_err()
                && listed.first().is_some_and(|first| *first < segment.sequence())
            {
                if fresh {
                    return Ok(Next::Superseded);
                }
                continue;
            }
            let later = listed.iter().filter(|s| **s > segment.sequence()).rev();
            let mut wanted = None;
            // From the newest backwards: a segment that is not reached that way is not part of the
            // log.
            for &sequence in later {
                if wanted.is_some_and(|wanted| sequence > wanted) {
                    continue;
                }
                let header = match self.header(sequence) {
                    // It may have been superseded, and put away since the listing.
                    Err(_) if !fresh => continue 'look,
                    header => header?,
                };
                let Some(previous) = header.previous else { continue };
                if previous.sequence == segment.sequence() {
                    if previous.salt != segment.salt() {
                        let what = DecodeError::Damaged("a segment that continues another one");
                        let path = self.dir.join(names::segment(sequence));
                        return Err(Error::malformed(&path, 0, what));
                    }
                    return Ok(Next::Segment { sequence, end: previous.end });
                }
                wanted = Some(previous.sequence);
            }
            if is_before {
                if fresh {
                    return Ok(Next::Removed);
                }
                continue;
            }
            if let Some(sequence) = wanted.filter(|wanted| *wanted > segment.sequence()) {
                if fresh {
                    return Err(missing(&self.dir, sequence));
                }
                // Another one may have replaced it since the listing.
                continue;
            }
        }
        Ok(Next::Nothing)
    }

    /// Forget all that is known of files, as recovery or the end of a failed-sync state replaced
    /// some.
    pub fn forget(&self) {
        let (mut open, mut known) = (enter(&self.open), enter(&self.known));
        known.sequences.clear();
        known.headers.clear();
        open.retain(|_| false);
    }
}

impl KnownSegment {
    /// Return the segment that a segment's header says it continues.
    fn continued(&self, sequence: u64) -> Option<Previous> {
        self.headers.get(&sequence).and_then(|header| header.previous)
    }

    /// Find the successor of a segment if all later headers were read and agree with the list. Then
    /// there is no other way from the newest back to it.
    fn linked(&self, segment: &Segment) -> Option<Next> {
        let sequence = segment.sequence();
        self.linked_from.filter(|from| sequence >= *from)?;
        let next = *self.sequences.get(self.sequences.binary_search(&sequence).ok()? + 1)?;
        let previous = self.continued(next)?;
        let is_its = (previous.sequence, previous.salt) == (sequence, segment.salt());
        is_its.then_some(Next::Segment { sequence: next, end: previous.end })
    }
}

/// Return whether two segments of the same name are the same file.
pub fn is_same_file(one: &Segment, other: &Segment) -> bool {
    let id = |segment: &Segment| segment.file().stat().ok().map(|stat| stat.id());
    id(one) == id(other)
}

const MISSING: &str = "the segment is missing";

/// Return true for an error that says that a segment does not exist.
pub fn is_missing(error: &Error) -> bool {
    matches!(error, Error::CorruptData { what, .. } if *what == MISSING)
}

/// Make the error for a segment that the chain names and the directory lacks.
pub fn missing(dir: &Path, sequence: u64) -> Error {
    Error::corrupt(&dir.join(names::segment(sequence)), 0, MISSING)
}

/// Convert the kernel's error for such a segment to corruption.
pub fn unless_missing(error: Error, dir: &Path, sequence: u64) -> Error {
    if error.is_not_found() { missing(dir, sequence) } else { error }
}

/// Return where a segment's first blocks end. A roll syncs the bulk of the log's state, but not
/// what changed since. `None` if either is torn, since the offsets of the later blocks are then
/// unknown.
pub fn introduced_until(segment: &Segment) -> Result<Option<u64>> {
    if segment.header().snapshots() < 2 {
        return Ok(Some(FIRST_BLOCK));
    }
    let Some(bulk) = segment.sound(FIRST_BLOCK)? else { return Ok(None) };
    let changes = segment.sound(bulk.end())?;
    Ok(changes.filter(|block| block.header.kind == Kind::Snapshot).map(|block| block.end()))
}

/// Return true for an error that disconnects a segment: corruption. A segment that could not be
/// read just now, or that only a newer version understands, stays connected. Without it, recovery
/// would put the end of the log aside.
fn disconnects(error: Error) -> Result<bool> {
    match error {
        Error::CorruptData { .. } => Ok(false),
        _ => Err(error),
    }
}

/// Return true when the block at `end` is a valid end block that names this segment.
///
/// # Errors
/// When it could not be read.
pub fn names_successor(before: &Segment, end: u64, header: &SegmentHeader) -> Result<bool> {
    let Some(block) = before.sound(end)? else { return Ok(false) };
    if block.header.kind != Kind::End {
        return Ok(false);
    }
    let named = End::decode(before.body(&block));
    Ok(named == Ok(End { sequence: header.sequence, salt: header.salt }))
}

/// List the sequences of all segment files in a log's directory, lowest first.
pub fn list_segments(storage: &dyn Storage, dir: &Path) -> Result<Vec<u64>> {
    let names = storage.list(dir).doing("list", dir)?;
    Ok(segments_of(&names))
}

/// List the sequences of the segment files among these names, lowest first.
pub fn segments_of(names: &[String]) -> Vec<u64> {
    let mut sequences: Vec<_> =
        names.iter().filter_map(|name| names::parse_segment(name)).collect();
    sequences.sort_unstable();
    sequences
}

#[cfg(all(test, not(loom)))]
#[path = "chain_tests.rs"]
mod tests;
