//! A part of a bulk load under construction: records into frames, frames into a file.
//!
//! Invariant: the file has its lasting name only when it is whole and on disk. Until then it is
//! locked, so that no sweep removes it as a leftover. Its memory has a bound, however many
//! partitions there are; a process that writes many parts at once limits the sum of
//! [`StagedPart::held`]. Its name has a random id, so it never refers to another attempt at the
//! same part. [`super::commit`] handles finished parts.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::commit::OVERHEAD;
use super::{BulkLoad, expect_name};
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::block::Producer;
use crate::format::checksum::{crc32, crc32_from};
use crate::format::part::{FRAME_LEN, Frame, HEADER_LEN, Manifest, PartHeader, file_name};
use crate::format::record::{BodyWriter, NewRecord};
use crate::storage::{File, LockKind, OpenMode};
use crate::store::{fork, make_dir, staging_dir};
use crate::topic::Topic;

/// Bytes of a body after which a block ends.
const BLOCK: usize = 256 << 10;
/// Most bytes of memory of a part, over all partitions, without its last record.
const HELD: usize = 16 << 20;
/// How often a directory is made that sweeps remove meanwhile.
const TRIES: u32 = 16;

/// A part of a bulk load, written by one process.
#[derive(Debug)]
pub struct StagedPart {
    out: Out,
    /// The records of each partition that are not written yet.
    lanes: Vec<BodyWriter>,
    /// Records of each partition.
    records: Vec<u64>,
    /// Bytes of memory of all lanes: filled memory stays until it is released.
    held: usize,
    /// Bytes of a body after which a block ends, in this log.
    block: usize,
    /// Bytes of the largest record.
    limit: u64,
    /// The partition of the next record without a key.
    turn: u32,
    epoch: u64,
}

/// The destination of a part's blocks.
#[derive(Debug)]
struct Out {
    load: BulkLoad,
    name: String,
    header: PartHeader,
    /// Present from the first block on.
    file: Option<PartFile>,
    position: u64,
    frames: u32,
    heads_crc: u32,
}

/// A file that is being written.
#[derive(Clone, Debug)]
struct PartFile {
    file: Arc<dyn File>,
    path: PathBuf,
}

impl StagedPart {
    pub(super) fn begin(load: BulkLoad, name: &str, token: Option<(&str, u64)>) -> Result<Self> {
        expect_name("part", name)?;
        load.token(token)?;
        let log = load.topic.log();
        let id =
            load.topic.store().storage().random().doing("draw a random number for", log.dir())?;
        let token = token.map_or((0, 0), |(name, version)| (Producer::id_of(name), version));
        let limit = log.max_group_len();
        let partitions = load.topic.partitions() as usize;
        let header = PartHeader { owner: load.owner(id), token };
        let (turn, name) = (crc32(name.as_bytes()), name.to_owned());
        let (position, frames, heads_crc) = (HEADER_LEN as u64, 0, 0);
        Ok(Self {
            out: Out { load, name, header, file: None, position, frames, heads_crc },
            lanes: std::iter::repeat_with(BodyWriter::default).take(partitions).collect(),
            records: vec![0; partitions],
            held: 0,
            block: BLOCK.min(usize::try_from(limit / 4).unwrap_or(BLOCK)),
            limit,
            turn,
            epoch: fork::epoch(),
        })
    }

    /// Append a record. Its key chooses the partition; records without one take turns.
    ///
    /// # Errors
    /// `AppendTooLarge` for a record that is too large for any append: then nothing changed.
    /// `NoSpace`, `SystemCallFailed`; `HandleClosed` in a forked child.
    pub fn append<'a>(&mut self, record: impl Into<NewRecord<'a>>) -> Result<()> {
        self.append_to(&record.into(), None)
    }

    /// Append a record to this partition, or to the one that [`StagedPart::append`] chooses.
    ///
    /// # Errors
    /// `InvalidArgument` for a partition that the topic lacks, `AppendTooLarge` for a record that
    /// is too large for any append: then nothing changed. `NoSpace`, `SystemCallFailed`;
    /// `HandleClosed` in a forked child.
    #[doc(hidden)]
    pub fn append_to(&mut self, record: &NewRecord<'_>, partition: Option<u32>) -> Result<()> {
        self.check_process()?;
        let (len, limit) = (record.max_len(), self.limit);
        if len as u64 + OVERHEAD > limit {
            return Err(Error::AppendTooLarge { bytes: len as u64, limit });
        }
        let partition = self.choose(record, partition)?;
        let lane = &mut self.lanes[partition as usize];
        let is_timed = record.event_time_ns.is_some();
        let takes = lane.takes(record.is_rich(), is_timed) && lane.body().len() + len <= self.block;
        if lane.count() > 0 && !takes {
            self.out.put(partition, lane)?;
        }
        let before = lane.room();
        if lane.count() == 0 {
            // In the kind of the previous block: a plain record among others does not begin a block
            // of its own.
            lane.begin(record.is_rich() || lane.is_rich(), record.event_time_ns);
        }
        lane.push(record);
        self.held += lane.room() - before;
        self.records[partition as usize] += 1;
        if self.held > HELD { self.flush() } else { Ok(()) }
    }

    fn choose(&mut self, record: &NewRecord<'_>, partition: Option<u32>) -> Result<u32> {
        let (topic, partitions) = (&self.out.load.topic, self.lanes.len() as u32);
        match (partition, record.key) {
            (Some(given), _) if given < partitions => Ok(given),
            (Some(given), _) => {
                let (name, last) = (topic.name(), partitions - 1);
                Err(Error::invalid(format!(
                    "{name:?} has no partition {given}: they are numbered 0 to {last}"
                )))
            }
            (None, _) if partitions == 1 => Ok(0),
            (None, Some(key)) => Ok(topic.partition_of(key)),
            (None, None) => {
                self.turn = self.turn.wrapping_add(1);
                Ok(self.turn % partitions)
            }
        }
    }

    /// A child that was forked meanwhile has no part to go on with.
    fn check_process(&self) -> Result<()> {
        let is_same = fork::epoch() == self.epoch;
        if is_same { Ok(()) } else { Err(Error::HandleClosed { what: "part" }) }
    }

    /// Write the held blocks, and release their memory.
    fn flush(&mut self) -> Result<()> {
        for (partition, lane) in (0..).zip(&mut self.lanes) {
            if lane.count() > 0 {
                self.out.put(partition, lane)?;
            }
            lane.shrink(0);
        }
        self.held = 0;
        Ok(())
    }

    /// Return the bytes of memory for blocks that it has not written yet: up to 16 MiB, without its
    /// last record.
    #[inline]
    #[doc(hidden)]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Write the held blocks as they are, and release their memory: for a process that writes many
    /// parts at once. Blocks of many records are read faster, so do not call it after each record.
    ///
    /// # Errors
    /// `NoSpace`, `SystemCallFailed`; `HandleClosed` in a forked child.
    #[doc(hidden)]
    pub fn spill(&mut self) -> Result<()> {
        self.check_process()?;
        self.flush()
    }

    /// Finish the part, sync it, and return its manifest, for [`BulkLoad::commit`].
    ///
    /// # Errors
    /// `NotStaged` when the load was aborted or committed meanwhile; `NoSpace`, `SystemCallFailed`;
    /// `HandleClosed` in a forked child. The part is discarded then.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.check_process()?;
        self.flush()?;
        let records = (0..).zip(self.records.iter().copied()).filter(|(_, records)| *records > 0);
        let records = records.collect();
        let out = &mut self.out;
        let mut len = 0;
        if let Some(staged) = &out.file {
            out.name_file(staged)?;
            len = out.position;
        }
        // The finished file is no longer this value's to remove.
        out.file = None;
        let manifest = Manifest {
            owner: out.header.owner,
            load: out.load.name().to_owned(),
            part: out.name.clone(),
            len,
            frames: out.frames,
            heads_crc: out.heads_crc,
            records,
        };
        Ok(manifest.encode())
    }

    /// Delete what was written. Dropping it does the same.
    pub fn abort(self) {
        drop(self);
    }

    /// Count its records so far.
    pub fn count(&self) -> u64 {
        self.records.iter().sum()
    }

    /// Get the topic that it writes into.
    pub fn topic(&self) -> &Topic {
        &self.out.load.topic
    }
}

impl Out {
    /// Write a block, and empty it.
    fn put(&mut self, partition: u32, body: &mut BodyWriter) -> Result<()> {
        let (highest_ns, uses_append_time) = body.times();
        let bytes = body.body();
        let frame = Frame {
            partition,
            count: body.count(),
            len: bytes.len() as u32,
            body_crc: crc32(bytes),
            highest_ns,
            flags: body.flags(),
            uses_append_time,
        };
        let head = frame.encode(self.header.owner.id, self.position);
        let PartFile { file, path } = self.staged()?;
        let behind = self.position + FRAME_LEN as u64;
        let written = file.write_at(&head, self.position);
        written.and_then(|()| file.write_at(bytes, behind)).doing("write", &path)?;
        self.heads_crc = crc32_from(self.heads_crc, &head);
        (self.position, self.frames) = (behind + bytes.len() as u64, self.frames + 1);
        body.begin(body.is_rich(), None);
        Ok(())
    }

    /// Return the file, made with the first block.
    fn staged(&mut self) -> Result<PartFile> {
        if let Some(staged) = &self.file {
            return Ok(staged.clone());
        }
        let staged = self.make()?;
        self.file = Some(staged.clone());
        Ok(staged)
    }

    fn make(&self) -> Result<PartFile> {
        let store = self.load.topic.store();
        let (storage, modes) = (&**store.storage(), store.modes());
        let (staging, dir) = (staging_dir(self.load.topic.log().dir()), self.load.dir());
        let path = dir.join(file_name(&self.name, self.header.owner.id, false));
        for _ in 0..TRIES {
            let made = make_dir(storage, &staging, modes.directory)
                .and_then(|_| make_dir(storage, &dir, modes.directory));
            match made {
                // A sweep removed one of them in between.
                Err(error) if error.is_not_found() => continue,
                made => made?,
            };
            // Users that may only read need not open it, and could lock it.
            let file = match storage.open(&path, OpenMode::CreateNew(modes.lock)) {
                // A sweep again.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.doing("create", &path)?,
            };
            if file.try_lock(LockKind::Exclusive).doing("lock", &path)? {
                file.write_at(&self.header.encode(), 0).doing("write", &path)?;
                pass(Point::PartMade);
                return Ok(PartFile { file, path });
            }
            let _ = storage.unlink(&path);
        }
        Err(self.gone())
    }

    fn name_file(&self, PartFile { file, path }: &PartFile) -> Result<()> {
        let storage = &**self.load.topic.store().storage();
        file.sync_all().doing("sync", path)?;
        pass(Point::PartSynced);
        let whole = path.with_file_name(file_name(&self.name, self.header.owner.id, true));
        storage.rename_new(path, &whole).map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.gone(),
            _ => Error::io("rename", path, error),
        })?;
        pass(Point::PartNamed);
        // From the innermost on: a durable name then leads to durable contents.
        for dir in whole.ancestors().skip(1).take(3) {
            match storage.sync_dir(dir) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.gone()),
                synced => synced.doing("sync", dir)?,
            }
        }
        Ok(())
    }

    fn gone(&self) -> Error {
        let (load, part) = (self.load.name().to_owned(), self.name.clone());
        Error::NotStaged { load, part, path: self.load.dir() }
    }
}

impl Drop for StagedPart {
    fn drop(&mut self) {
        if let Some(staged) = self.out.file.take().filter(|_| fork::epoch() == self.epoch) {
            // A later sweep removes what cannot be removed now.
            let storage = &**self.out.load.topic.store().storage();
            let _ = storage.unlink(&staged.path);
            let _ = storage.remove_dir(&self.out.load.dir());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, StoreOptions, TopicOptions};

    #[test]
    fn a_part_of_many_partitions_holds_what_it_says_and_no_more_than_its_bound() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open_with(place.path().join("store"), &StoreOptions::default()).unwrap();
        let options = TopicOptions { partitions: Some(80), ..TopicOptions::default() };
        let topic = Topic::open(&store, "t", &options).unwrap();
        let mut part = BulkLoad::new(&topic, "j").unwrap().stage("p", None).unwrap();
        let value = vec![7; 30_000];
        // One after the other, each with more than a block: memory that was filled once would stay.
        for partition in 0..80 {
            for _ in 0..10 {
                part.append_to(&NewRecord::new(&value), Some(partition)).unwrap();
                let room: usize = part.lanes.iter().map(BodyWriter::room).sum();
                assert_eq!(part.held(), room);
                assert!(room <= HELD, "{room} bytes");
            }
        }
        part.spill().unwrap();
        assert_eq!(part.held(), 0);
        assert!(part.lanes.iter().all(|lane| lane.room() == 0));
        assert_eq!(part.count(), 800);
        part.finish().unwrap();
    }
}
