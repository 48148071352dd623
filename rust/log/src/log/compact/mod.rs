//! Compaction: of all records that have the same key the last one stays.
//!
//! Owns the way from a run of sealed segments to fewer and smaller ones that stand in their place, while
//! others read and write. Nothing is written to a segment that is there. What is left of a few neighbours
//! is laid out in a new file ([`fill`]), which takes sequence, salt and end of the *last* of them, and
//! continues what the first of them continued; so what comes behind it need not change. **The rename over
//! the last one's name is the swap**: before it the log is the old segments, after it the new one, and the
//! others, which nothing leads to any more, are removed once it is on the medium. Offsets stay: blocks
//! tell which offsets they cover, and records their own. Which records are the last ones is found out by
//! [`keys`], which segments are worth it by [`plan`].
//!
//! Invariants: a segment is replaced only below the durable end; who replaces or removes segments holds
//! the flock of the log's `lock` file meanwhile, and compares what it is about to replace with what it
//! read; of two compactions at once one waits. Groups go from the oldest to the newest, so a tombstone
//! never goes before what it hides. See `docs/PROTOCOL.md`, "Compaction", and
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

/// What of a topic is compacted, and how.
#[derive(Clone, Copy, Debug)]
pub struct Compacting<'a> {
    /// Numbers of its partitions in the log.
    pub topics: &'a Range<u32>,
    /// For how long a tombstone stays once all that it hides is gone, microseconds; 0: no longer than
    /// that.
    pub tombstones_us: u64,
    /// Bytes that may be used to remember keys. With more keys than that the log is read more often.
    pub memory: u64,
    /// True to begin a new segment first, so that all that was appended is looked at.
    pub seal: bool,
    /// What was found out elsewhere about which records are the last of their keys; `None`: find out.
    pub last: Option<&'a BTreeMap<u32, Last>>,
}

/// The last records of all keys of a partition, as somebody else found them out.
#[derive(Clone, Debug, Default)]
pub struct Last {
    /// What lies at or above this offset was not looked at, and stays.
    pub end: u64,
    /// Offsets of the last record of each key below that, rising. A record without a key stays anyhow.
    pub offsets: Vec<u64>,
    /// Those of them, rising, before which no record has the key.
    pub alone: Vec<u64>,
}

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Records that it looked at.
    pub records: u64,
    /// Records that are gone, as a later one has their key, or as tombstones.
    pub removed: u64,
    /// How many of those were tombstones whose time was over.
    pub tombstones: u64,
    /// Segments that it looked at.
    pub segments: u64,
    /// How many of those are gone.
    pub segments_removed: u64,
    /// Bytes that those segments took on the disk before and after, with their indexes.
    pub bytes_before: u64,
    /// See `bytes_before`.
    pub bytes_after: u64,
}

impl Log {
    /// Leave of each key's records the last one, in all segments but those that the end of the log needs.
    /// On the medium when it returns. What is committed meanwhile stays as it is, and readers and writers
    /// go on. Reads what it compacts two or three times.
    ///
    /// # Errors
    /// `CorruptData` where what is to be compacted is damaged, `UnsupportedVersion` for blocks of another
    /// codec, `NoSpace`, `SystemCallFailed`, `NotWritable`, `TopicDeleted`; `LockTimeout` while somebody else
    /// compacts the log; what `progress` returns. What was swapped until then stays swapped; all else is as it
    /// was.
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
            // What is replaced lies below a mark that is on the medium, so that nothing cuts there.
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
            // What a tombstone hides stays for now, and so does the tombstone.
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

    /// The lock of who compacts this log.
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

    /// The lock of who gives segments other names, or takes names away.
    pub(super) fn lock_names(&self, member: &dyn Member) -> Result<Arc<dyn File>> {
        self.flock(member, "lock")
    }

    fn flock(&self, member: &dyn Member, name: &str) -> Result<Arc<dyn File>> {
        let path = self.dir.join(name);
        let file = member.open_to_lock(&*self.storage, &path).doing("open", &path)?;
        wait_for_flock(&*file, &path, self.settings.lock_timeout)?;
        Ok(file)
    }

    /// Put one segment in the place of a group. False where that came to nothing: somebody else changed
    /// them meanwhile, or what is left of them is more than there is room for.
    fn replace(
        self: &Arc<Self>,
        sources: &[Source],
        marks: &[Marks],
        group: &SegmentGroup,
        member: &dyn Member,
    ) -> Result<bool> {
        let sources = &sources[group.sources.clone()];
        let marks = &marks[group.sources.clone()];
        // Held until the swap, so that none of their inodes is another file's.
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
            // A leftover is removed by the next who compacts, or recovers.
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
        // Where the lock's file was removed somebody else may be at work, and have a file of this name.
        if !packer.has_its_name(storage)? {
            return Err(Error::LockFileReplaced { path: dir.join(names::COMPACTION_LOCK) });
        }
        let Some((last, others)) = segments.split_last() else { return Ok(false) };
        // It tells places in the old one. A hint: who finds none makes it anew.
        let _ = storage.unlink(&dir.join(names::index(last.sequence())));
        storage.rename_over(packer.path(), last.path()).doing("rename", packer.path())?;
        // Whatever fails from here on: what was known of the old ones is of no use any more.
        self.chain.forget();
        pass(Point::CompactNamed);
        if !planted(Canary::UnlinkBeforeSwap) {
            storage.sync_dir(dir).doing("sync", dir)?;
        }
        pass(Point::CompactSynced);
        self.remove_replaced(others.iter().map(|segment| segment.sequence()).rev())?;
        self.chain.refresh()?;
        // A hint again: one that cannot be made is made by whoever needs it.
        if let Ok(segment) = self.chain.segment(last.sequence()) {
            self.index_of(&segment);
        }
        Ok(true)
    }

    /// Remove segments in whose place another one is, highest first: who still goes by the old ones then
    /// misses the one before the last, and looks again.
    fn remove_replaced(&self, sequences: impl Iterator<Item = u64>) -> Result<()> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        for sequence in sequences {
            // In this order, so that no index is left that nobody would look for.
            for name in [names::index(sequence), names::segment(sequence)] {
                let path = dir.join(name);
                storage.unlink(&path).if_there("remove", &path)?;
            }
            pass(Point::CompactRemoved);
        }
        storage.sync_dir(dir).doing("sync", dir)
    }

    /// Remove what a compaction left that ended half-way: its unfinished file, and segments in whose place
    /// another one is already. For who holds the lock of compactions.
    fn sweep_compacted(&self, member: &dyn Member) -> Result<()> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        let _ = storage.unlink(&dir.join(names::COMPACTED));
        // Somebody else may have come that far.
        self.chain.forget();
        // What stands in the place of others has its name on the medium before theirs go; and where one
        // alone was replaced this compaction says that it is on the medium, too.
        storage.sync_dir(dir).doing("sync", dir)?;
        if self.replaced()?.is_empty() {
            return Ok(());
        }
        let lock = self.lock_names(member)?;
        let swept = self.replaced().and_then(|it| self.remove_replaced(it.into_iter().rev()));
        let _ = lock.unlock();
        swept
    }

    /// Segments of the directory in whose place another one is.
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
    /// Whether every record of the segments was looked at by whoever says which are the last.
    fn knows_all(&self, log: &Log, sources: &[Source]) -> Result<bool> {
        let (Some(last), Some(newest)) = (self.last, sources.last()) else { return Ok(true) };
        let ends = newest.walk(log, |_, _, _| Ok(true))?.state;
        let mut topics = ends.topics().filter(|(number, _)| self.topics.contains(number));
        Ok(topics
            .all(|(number, topic)| last.get(&number).is_some_and(|last| last.end >= topic.next)))
    }
}

/// Of segments that are no part of a log those in whose place another one is, which needs no more than
/// their sequences.
pub(super) fn is_replaced(chain: &Chain, of_log: &[u64], sequence: u64) -> bool {
    let next = of_log.iter().find(|part| **part > sequence);
    let header = next.and_then(|next| chain.header(*next).ok());
    let replaces = header.and_then(|header| header.replaces);
    replaces.is_some_and(|replaces| replaces.first <= sequence)
}
