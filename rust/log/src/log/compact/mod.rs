//! Compaction: among records with the same key, only the last one stays.
//!
//! Owns the replacement of a run of sealed segments by fewer and smaller ones, while others read
//! and write. No existing segment is written to. The remaining records of a few neighbours are
//! written into a new file ([`fill`]). It takes sequence, salt and end of the *last* of them, and
//! continues what the first of them continued. So the next segment need not change. **The rename
//! over the last one's name is the swap**: before it the log is the old segments, after it the new
//! one. The other old segments, which nothing reaches any more, are removed once the new name is on
//! disk. Offsets stay: blocks say which offsets they cover, and records have their own. [`keys`]
//! finds the last records, [`plan`] chooses the segments.
//!
//! Invariants: a segment is replaced only below the durable end. A process that replaces or removes
//! segments holds the flock of the log's `lock` file meanwhile. It compares what it will replace
//! with what it read. One of two simultaneous compactions waits. Groups are replaced from the
//! oldest to the newest, so a tombstone is never removed before what it hides. See
//! `docs/PROTOCOL.md`, "Compaction", and
//! `docs/decisions/0013-compaction-renames-over-the-last-segment.md`.

mod fill;
mod keys;
mod plan;
mod source;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::names;
use crate::segment::Segment;
use crate::segment::pack::Packer;
use crate::storage::{File, OpenMode};

use super::chain::{Chain, list_segments};
use super::create::lock_mode;
use super::guard::wait_for_flock;
use super::{Log, Member, verify::Progress};
use keys::Marks;
use plan::SegmentGroup;
use source::Source;

/// The topic to compact, and how.
#[derive(Clone, Copy, Debug)]
pub struct Compacting<'a> {
    /// Numbers of its partitions in the log.
    pub topics: &'a Range<u32>,
    /// How long a tombstone stays once all that it hides is gone, microseconds; 0: no longer.
    pub tombstones_us: u64,
    /// Bytes for remembering keys. With more keys than that the log is read more often.
    pub memory: u64,
    /// True to begin a new segment first, so that all records so far are compacted.
    pub seal: bool,
    /// The last records of keys, if another program found them; `None`: find them.
    pub last: Option<&'a BTreeMap<u32, Last>>,
}

/// The last records of all keys of a partition, as another program found them.
#[derive(Clone, Debug, Default)]
pub struct Last {
    /// Records at or above this offset were not examined, and stay.
    pub end: u64,
    /// Offsets below that of the last record of each key, rising. Records without a key always
    /// stay.
    pub offsets: Vec<u64>,
    /// Those of them, rising, that are the first record of their key too.
    pub alone: Vec<u64>,
}

/// The result of a compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Records that it examined.
    pub records: u64,
    /// Records that it removed, for a later one with their key, or as tombstones.
    pub removed: u64,
    /// How many of those were tombstones whose time was over.
    pub tombstones: u64,
    /// Segments that it examined.
    pub segments: u64,
    /// How many of those it removed.
    pub segments_removed: u64,
    /// Bytes of those segments and their indexes on disk, before and after.
    pub bytes_before: u64,
    /// See `bytes_before`.
    pub bytes_after: u64,
}

impl Log {
    /// Keep only the last record of each key, in all segments but those that the end of the log
    /// needs. The result is on disk when this returns. Records committed meanwhile stay, and
    /// readers and writers continue. Reads what it compacts two or three times.
    ///
    /// # Errors
    /// `CorruptData` if the compacted part is corrupt, `UnsupportedVersion` for blocks of another
    /// codec, `LockTimeout` while another process compacts the log. `NoSpace`, `SystemCallFailed`,
    /// `NotWritable`, `TopicDeleted`, and the errors of `progress`. Segments swapped until then
    /// stay swapped; all else is as it was.
    pub fn compact(
        self: &Arc<Self>,
        how: &Compacting<'_>,
        progress: Progress<'_>,
    ) -> Result<Compacted> {
        let compacted = self.compact_alone(how, progress);
        compacted.map_err(|error| self.unless_deleted(error))
    }

    fn compact_alone(
        self: &Arc<Self>,
        how: &Compacting<'_>,
        progress: Progress<'_>,
    ) -> Result<Compacted> {
        let (control, member) = self.writing()?;
        member.check()?;
        if control.is_deleted() {
            return Err(self.deleted());
        }
        let alone = self.lock_of_compaction(member)?;
        let done = self.sweep_compacted(member).and_then(|()| {
            if how.seal {
                self.seal()?;
            }
            // The replaced part lies below a mark on disk, so no recovery cuts there.
            self.sync()?;
            self.mark_durable(control, member)?;
            self.compact_sealed(how, member, progress)
        });
        // The lock also ends with the descriptor.
        let _ = alone.unlock();
        done
    }

    fn compact_sealed(
        self: &Arc<Self>,
        how: &Compacting<'_>,
        member: &dyn Member,
        progress: Progress<'_>,
    ) -> Result<Compacted> {
        let sources = self.sources()?;
        let bytes_before = sources.iter().map(|s| self.allocated_for(s.sequence)).sum();
        let total = sources.iter().map(|source| source.end).sum::<u64>().saturating_mul(3);
        let mut told = 0;
        let mut tell = |bytes: u64| {
            told += bytes;
            progress(told.min(total), total)
        };
        let mut hurry = how.tombstones_us == 0;
        let (marks, groups) = loop {
            let marks = keys::mark(self, &sources, how, hurry, &mut tell)?;
            let plan = plan::plan(self, &sources, &marks, how, &mut tell)?;
            if !hurry || plan.blocked.is_empty() {
                break (marks, plan.groups);
            }
            // The records that a tombstone hides stay for now, and so does the tombstone.
            hurry = false;
        };
        let segments = sources.len() as u64;
        let records = marks.iter().map(|marks| marks.records).sum();
        let mut done = Compacted { records, segments, bytes_before, ..Compacted::default() };
        for group in &groups {
            if !self.replace(&sources, &marks, group, member)? {
                break;
            }
            for marks in &marks[group.sources.clone()] {
                done.removed += marks.gone;
                done.tombstones += marks.tombstones;
            }
            done.segments_removed += group.sources.len() as u64 - 1;
            tell(group.bytes)?;
        }
        done.bytes_after = sources.iter().map(|s| self.allocated_for(s.sequence)).sum();
        progress(total, total)?;
        Ok(done)
    }

    /// Open the lock of a log's compactions.
    fn lock_of_compaction(&self, member: &dyn Member) -> Result<Arc<dyn File>> {
        let path = self.dir.join(names::COMPACTION_LOCK);
        let mode = lock_mode(self.settings.file_mode);
        match self.storage.open(&path, OpenMode::CreateNew(mode)) {
            Ok(made) => made.close(),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("create", &path, e)),
        }
        self.flock(member, names::COMPACTION_LOCK)
    }

    /// Take the lock for renaming and removing segments.
    pub(super) fn lock_names(&self, member: &dyn Member) -> Result<Arc<dyn File>> {
        self.flock(member, "lock")
    }

    fn flock(&self, member: &dyn Member, name: &str) -> Result<Arc<dyn File>> {
        let path = self.dir.join(name);
        let file = member.open_to_lock(&*self.storage, &path).doing("open", &path)?;
        wait_for_flock(&*file, &path, self.settings.lock_timeout)?;
        Ok(file)
    }

    /// Replace a group by one segment. False if that failed: another process changed the group
    /// meanwhile, or the remaining records do not fit.
    fn replace(
        self: &Arc<Self>,
        sources: &[Source],
        marks: &[Marks],
        group: &SegmentGroup,
        member: &dyn Member,
    ) -> Result<bool> {
        let sources = &sources[group.sources.clone()];
        let marks = &marks[group.sources.clone()];
        // Held until the swap, so that none of their inodes becomes another file's.
        let mut segments = Vec::with_capacity(sources.len());
        for source in sources {
            let Some(segment) = source.open(self)? else { return Ok(false) };
            segments.push(segment);
        }
        let packed = fill::fill(self, &segments, sources, marks, group, member);
        let swapped = match packed {
            Ok(Some(packer)) => {
                pass(Point::CompactFilled);
                self.swap(&packer, &segments, member)
            }
            other => other.map(|_| false),
        };
        if !matches!(swapped, Ok(true)) {
            // The next compaction or recovery removes a leftover.
            let _ = self.storage.unlink(&self.dir.join(names::COMPACTED));
        }
        swapped
    }

    fn swap(
        self: &Arc<Self>,
        packer: &Packer,
        segments: &[Arc<Segment>],
        member: &dyn Member,
    ) -> Result<bool> {
        let lock = self.lock_names(member)?;
        let swapped = self.swap_locked(packer, segments);
        let _ = lock.unlock();
        swapped
    }

    fn swap_locked(self: &Arc<Self>, packer: &Packer, segments: &[Arc<Segment>]) -> Result<bool> {
        let (control, _) = self.writing()?;
        let (storage, dir) = (&*self.storage, &*self.dir);
        control.check_in_place(storage)?;
        if control.is_deleted() {
            return Err(self.deleted());
        }
        for segment in segments {
            if !segment.has_its_name(storage)? {
                return Ok(false);
            }
        }
        // If the lock's file was removed, another compaction may be at work with a file of this
        // name.
        if !packer.has_its_name(storage)? {
            return Err(Error::LockFileReplaced { path: dir.join(names::COMPACTION_LOCK) });
        }
        let Some((last, others)) = segments.split_last() else { return Ok(false) };
        // The index has positions in the old segment. It is a hint: a reader that finds none
        // rebuilds it.
        let _ = storage.unlink(&dir.join(names::index(last.sequence())));
        storage.rename_over(packer.path(), last.path()).doing("rename", packer.path())?;
        // Whatever fails from here on: knowledge of the old segments is of no use any more.
        self.chain.forget();
        pass(Point::CompactNamed);
        if !planted(Canary::UnlinkBeforeSwap) {
            storage.sync_dir(dir).doing("sync", dir)?;
        }
        pass(Point::CompactSynced);
        self.remove_replaced(others.iter().map(|segment| segment.sequence()).rev())?;
        self.chain.refresh()?;
        // A hint again: a reader that needs it makes it if this fails.
        if let Ok(segment) = self.chain.segment(last.sequence()) {
            self.index_of(&segment);
        }
        Ok(true)
    }

    /// Remove replaced segments, highest first: a reader that still follows the old ones then
    /// misses the last but one, and lists again.
    fn remove_replaced(&self, sequences: impl Iterator<Item = u64>) -> Result<()> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        for sequence in sequences {
            // In this order, so that no index is left without a segment to find it by.
            for name in [names::index(sequence), names::segment(sequence)] {
                let path = dir.join(name);
                storage.unlink(&path).if_there("remove", &path)?;
            }
            pass(Point::CompactRemoved);
        }
        storage.sync_dir(dir).doing("sync", dir)
    }

    /// Remove the leftovers of an interrupted compaction: its unfinished file, and replaced
    /// segments. The caller holds the lock of compactions.
    fn sweep_compacted(&self, member: &dyn Member) -> Result<()> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        let _ = storage.unlink(&dir.join(names::COMPACTED));
        // Another process may have got that far.
        self.chain.forget();
        // The name of a replacement is on disk before the replaced ones are removed. If it replaced
        // one segment alone, this sync makes that durable too.
        storage.sync_dir(dir).doing("sync", dir)?;
        if self.replaced()?.is_empty() {
            return Ok(());
        }
        let lock = self.lock_names(member)?;
        let swept = self.replaced().and_then(|it| self.remove_replaced(it.into_iter().rev()));
        let _ = lock.unlock();
        swept
    }

    /// List the segments in the directory that were replaced.
    fn replaced(&self) -> Result<Vec<u64>> {
        let of_log = self.chain.refresh()?;
        let listed = list_segments(&*self.storage, &self.dir)?;
        let mut replaced = Vec::new();
        for sequence in of_log.iter().copied() {
            let Some(replaces) = self.chain.header(sequence)?.replaces else { continue };
            let range = listed.iter().filter(|s| (replaces.first..sequence).contains(s));
            replaced.extend(range.filter(|s| of_log.binary_search(s).is_err()));
        }
        Ok(replaced)
    }
}

impl Compacting<'_> {
    /// Return whether every record of the segments was examined by the program that found the last
    /// ones.
    fn knows_all(&self, log: &Log, sources: &[Source]) -> Result<bool> {
        let (Some(last), Some(newest)) = (self.last, sources.last()) else { return Ok(true) };
        let ends = newest.walk(log, |_| Ok(true))?.state;
        let mut topics = ends.topics().filter(|(number, _)| self.topics.contains(number));
        Ok(topics
            .all(|(number, topic)| last.get(&number).is_some_and(|last| last.end >= topic.next)))
    }
}

/// Return whether a segment outside the log was replaced, by nothing but its sequence.
pub(super) fn is_replaced(chain: &Chain, of_log: &[u64], sequence: u64) -> bool {
    let next = of_log.iter().find(|part| **part > sequence);
    let header = next.and_then(|next| chain.header(*next).ok());
    let replaces = header.and_then(|header| header.replaces);
    replaces.is_some_and(|replaces| replaces.first <= sequence)
}
