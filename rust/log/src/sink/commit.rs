//! Committing a bulk load: the staged parts are checked, then become part of the log in one step.
//!
//! Committing takes three calls, so that a caller can wait for locks in turns. [`BulkLoad::ready`]
//! reads the parts, and changes nothing. [`Ready::commit_visible`] appends, or finds that it was
//! done before. [`Ready::finish`] waits for the disk, and removes the staged files. Invariant:
//! committed bytes were checked after they were read and before the log's lock, so later changes to
//! the files do not matter. Small bulk loads are a group in the active segment, large ones are the
//! next segment.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::BulkLoad;
use super::read::PartReader;
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::block::{MAX_HEADER_LEN, Producer};
use crate::format::part::{FRAME_LEN, Frame, Manifest, file_name};
use crate::format::{DecodeError, VERSION};
use crate::log::{Blocks, Large, LargeBlock, NewBlock, Token};
use crate::store::options::CODEC;
use crate::store::{Stale, remove_load, sweep_staging};

/// Upper bound of the bytes of a group beside the body of one block.
pub(super) const OVERHEAD: u64 = 1024;

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkLoadReport {
    /// True when this call committed it; false if its idempotency key, or a later one, was spent
    /// before.
    pub now: bool,
    /// Records that were appended.
    pub records: u64,
    /// Their offsets, by partition.
    pub offsets: BTreeMap<u32, Range<u64>>,
}

/// A bulk load with all its parts, ready to be committed.
#[derive(Debug)]
pub struct Ready<'a> {
    load: &'a BulkLoad,
    token: Option<Token>,
    /// The idempotency key's name and version, as given.
    named: Option<(String, u64)>,
    /// True when the key was spent already: there is nothing to append.
    is_done: bool,
    /// Manifests of parts with records, in the order in which they are committed.
    manifests: Vec<Manifest>,
    /// Most bytes of the load's blocks.
    bytes: u64,
    /// The blocks, read already, if they fit into a group.
    group: Option<MemoryBlocks>,
}

/// Blocks in memory, in the order of their partitions.
#[derive(Debug, Default)]
struct MemoryBlocks {
    bodies: Vec<u8>,
    /// Where the body of each begins.
    frames: Vec<(usize, Frame)>,
}

/// The place of a bulk load in the log.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// Where it ends; `None` if it was committed before, or there was nothing to append.
    end: Option<Address>,
    offsets: BTreeMap<u32, Range<u64>>,
}

impl BulkLoad {
    /// Check the parts that manifests name; read a small load too. Nothing changes.
    ///
    /// # Errors
    /// As [`BulkLoad::commit`].
    #[doc(hidden)]
    pub fn ready(
        &self,
        manifests: &[impl AsRef<[u8]>],
        token: Option<(&str, u64)>,
    ) -> Result<Ready<'_>> {
        let mut ids = BTreeSet::new();
        let manifests = manifests.iter().map(|bytes| self.manifest(bytes.as_ref(), &mut ids));
        let mut manifests = manifests.collect::<Result<Vec<_>>>()?;
        manifests.retain(|manifest| manifest.len > 0);
        let named = token.map(|(name, version)| (name.to_owned(), version));
        let is_done = self.is_spent(token)?;
        let bytes = manifests.iter().map(most_of).fold(OVERHEAD, u64::saturating_add);
        let mut ready = Ready {
            load: self,
            token: self.token(token)?,
            named,
            is_done,
            manifests,
            bytes,
            group: None,
        };
        if !is_done {
            match ready.look() {
                // A faster commit with the same key has removed the parts.
                Err(Error::NotStaged { .. }) if self.is_spent(token)? => ready.is_done = true,
                looked => looked?,
            }
        }
        Ok(ready)
    }

    fn is_spent(&self, token: Option<(&str, u64)>) -> Result<bool> {
        let Some((name, version)) = token else { return Ok(false) };
        Ok(super::last_idempotency_key(&self.topic, name)?
            .is_some_and(|last| version <= last.version))
    }

    fn manifest(&self, bytes: &[u8], ids: &mut BTreeSet<u64>) -> Result<Manifest> {
        let refuse =
            |why: String| Err(Error::InvalidManifest { load: self.name().to_owned(), why });
        let manifest = match Manifest::decode(bytes) {
            Ok(manifest) => manifest,
            Err(DecodeError::Version(version)) => {
                return refuse(format!(
                    "a part has format version {version}, and this falaj reads version {VERSION}"
                ));
            }
            Err(what) => return refuse(what.to_string()),
        };
        let part = &manifest.part;
        if manifest.owner != self.owner(manifest.owner.id) {
            let name = self.topic.name();
            return refuse(format!(
                "part {part:?} was staged for another topic than the present {name:?}"
            ));
        }
        if manifest.load != self.name() {
            return refuse(format!("part {part:?} is of the load {:?}", manifest.load));
        }
        if !ids.insert(manifest.owner.id) {
            return refuse(format!("part {part:?} appears twice"));
        }
        let known = manifest.records.iter().all(|(p, _)| *p < self.topic.partitions());
        if !known || (manifest.len == 0) != manifest.records.is_empty() {
            return refuse(format!(
                "part {part:?} has records for a partition that the topic lacks"
            ));
        }
        Ok(manifest)
    }
}

/// Return an upper bound of the bytes of a part in the log.
fn most_of(manifest: &Manifest) -> u64 {
    let more = (MAX_HEADER_LEN + 8).saturating_sub(FRAME_LEN) as u64;
    manifest.len.saturating_add(u64::from(manifest.frames) * more)
}

impl Ready<'_> {
    fn look(&mut self) -> Result<()> {
        let log = self.load.topic.log();
        if self.bytes > log.max_group_len() {
            let limit = log.max_job_len();
            if self.bytes > limit {
                return Err(Error::AppendTooLarge { bytes: self.bytes, limit });
            }
            // Checks that they exist and belong to this load; the rest is checked as it is copied.
            let mut all = self.manifests.iter();
            return all.try_for_each(|manifest| PartReader::open(self.load, manifest).map(drop));
        }
        let (mut group, mut body) = (MemoryBlocks::default(), Vec::new());
        for manifest in &self.manifests {
            let mut part = PartReader::open(self.load, manifest)?;
            while let Some(frame) = part.next(&mut body)? {
                group.frames.push((group.bodies.len(), frame));
                group.bodies.extend_from_slice(&body);
            }
        }
        // A stable sort: within a partition in the order of the given parts.
        group.frames.sort_by_key(|(_, frame)| frame.partition);
        self.group = Some(group);
        Ok(())
    }

    /// Make the records part of the log, all at once, without waiting for the disk. If a lock is
    /// not acquired in time nothing has happened, and a caller can try again.
    ///
    /// # Errors
    /// As [`BulkLoad::commit`].
    pub fn commit_visible(&self) -> Result<Placed> {
        let nothing = self.manifests.is_empty() && self.token.is_none();
        if self.is_done || nothing {
            return Ok(Placed::default());
        }
        self.load.topic.adopt_codec(CODEC)?;
        let placed = match &self.group {
            Some(group) => self.place_group(group),
            None => self.place_large(),
        };
        let placed = match placed {
            // As in `ready`; files that a large load makes on the way are removed with its parts.
            Err(error) if is_gone(&error) && self.load.is_spent(self.named())? => Placed::default(),
            placed => placed.map_err(|error| self.load.topic.topic_error(error))?,
        };
        pass(Point::JobCommitted);
        Ok(placed)
    }

    fn named(&self) -> Option<(&str, u64)> {
        self.named.as_ref().map(|(name, version)| (name.as_str(), *version))
    }

    fn place_group(&self, group: &MemoryBlocks) -> Result<Placed> {
        let number = self.load.topic.settings().number;
        let block = |(at, frame): &(usize, Frame)| NewBlock {
            topic: number + frame.partition,
            flags: frame.flags,
            count: frame.count,
            lead: &[],
            body: &group.bodies[*at..*at + frame.len as usize],
            body_crc: Some(frame.body_crc),
            highest_event_ns: frame.highest_ns,
            uses_append_time: frame.uses_append_time,
            interval: true,
        };
        let blocks: Vec<_> = group.frames.iter().map(block).collect();
        let mut firsts = vec![0; blocks.len()];
        let log = self.load.topic.log();
        let Some(appended) = log.commit_load(&blocks, self.token.as_ref(), &mut firsts)? else {
            return Ok(Placed::default());
        };
        let mut offsets = BTreeMap::<u32, Range<u64>>::new();
        for ((_, frame), first) in group.frames.iter().zip(firsts) {
            let end = first + u64::from(frame.count);
            offsets.entry(frame.partition).or_insert(first..end).end = end;
        }
        Ok(Placed { end: Some(appended.end), offsets })
    }

    fn place_large(&self) -> Result<Placed> {
        let (topic, dir) = (&self.load.topic, self.load.dir());
        let storage = topic.store().storage();
        let id = storage.random().doing("draw a random number for", &dir)?;
        let path = dir.join(file_name("segment", id, false));
        let number = topic.settings().number;
        let mut blocks = StagedBlocks { ready: self, number, at: 0, part: None };
        let mut large = Large { blocks: &mut blocks, bytes: self.bytes, path };
        let Some(landed) = topic.log().commit_large(&mut large, self.token.as_ref())? else {
            return Ok(Placed::default());
        };
        let offsets = landed.offsets.into_iter().map(|(topic, range)| (topic - number, range));
        Ok(Placed { end: Some(landed.end), offsets: offsets.collect() })
    }

    /// Wait until the committed records are on disk, then remove what the load staged, and
    /// leftovers of earlier ones.
    ///
    /// # Errors
    /// `DurabilityUnknown`; `LockTimeout`, after which a caller can try again. A caller that does
    /// not reports it by [`Ready::visible`].
    pub fn finish(&self, placed: &Placed) -> Result<BulkLoadReport> {
        let log = self.load.topic.log();
        let synced = match placed.end {
            Some(end) => log.sync_to(end),
            // The process that committed it may have died before it was on disk.
            None if self.token.is_some() => log.sync().map(drop),
            None => Ok(()),
        };
        synced.map_err(|error| match error {
            Error::LockTimeout { .. } => self.load.topic.topic_error(error),
            error => self.visible(placed, error),
        })?;
        pass(Point::JobDurable);
        self.clean();
        Ok(self.outcome(placed))
    }

    /// Return what was committed.
    pub fn outcome(&self, placed: &Placed) -> BulkLoadReport {
        let now = placed.end.is_some() || self.token.is_none();
        let records = placed.offsets.values().map(|range| range.end - range.start).sum();
        BulkLoadReport { now, records, offsets: placed.offsets.clone() }
    }

    /// Convert an error of [`Ready::finish`]: the records are visible.
    pub fn visible(&self, placed: &Placed, error: Error) -> Error {
        let offset = placed.offsets.values().next().map_or(0, |range| range.start);
        match (error, placed.end) {
            (error @ Error::DurabilityUnknown { .. }, _) => error,
            (error, Some(_)) => error.after_append(offset),
            (error, None) => self.load.topic.topic_error(error),
        }
    }

    /// A later sweep removes what cannot be removed now: the load is committed all the same.
    fn clean(&self) {
        let (topic, log) = (&self.load.topic, self.load.topic.log());
        let storage = &**topic.store().storage();
        let _ = remove_load(storage, &self.load.dir());
        pass(Point::JobSwept);
        let number = topic.settings().number;
        let spent = self.named().map(|(name, version)| (number, Producer::id_of(name), version));
        let _ = sweep_staging(storage, log.dir(), &Stale { spent, ..Stale::default() });
    }
}

/// Return true for a staged file that no longer exists.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::NotStaged { .. }) || error.is_not_found()
}

/// The blocks of a large load, read on request.
struct StagedBlocks<'a> {
    ready: &'a Ready<'a>,
    /// Number of the topic's first partition.
    number: u32,
    /// The next part.
    at: usize,
    part: Option<PartReader<'a>>,
}

impl Blocks for StagedBlocks<'_> {
    fn rewind(&mut self) {
        (self.at, self.part) = (0, None);
    }

    fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<LargeBlock>> {
        loop {
            if let Some(part) = &mut self.part {
                if let Some(frame) = part.next(body)? {
                    let Frame { partition, flags, count, body_crc, .. } = frame;
                    let topic = self.number + partition;
                    return Ok(Some(LargeBlock { topic, flags, count, body_crc }));
                }
                self.part = None;
            }
            let Some(manifest) = self.ready.manifests.get(self.at) else { return Ok(None) };
            self.part = Some(PartReader::open(self.ready.load, manifest)?);
            self.at += 1;
        }
    }
}
