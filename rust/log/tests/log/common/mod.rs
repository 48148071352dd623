//! Helpers for tests of one log: a member of a store that does not exist, and a log.

pub mod place;

use std::any::Any;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::record::{BodyWriter, NewRecord};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::format::state::TopicState;
use falaj::internals::lock::{Fate, Identity};
use falaj::internals::log::{
    Appended, DataBlock, Log, LogSettings, LogSpec, Member, NewBlock, Watch, create,
};
use falaj::internals::segment::Check;
use falaj::internals::storage::Storage;

pub const LOG: [u8; 16] = [7; 16];
pub const SEGMENT: u64 = 64 << 10;

/// A process as a log sees it.
#[derive(Debug)]
pub struct TestMember {
    identity: Identity,
    incarnation: u64,
    dead: Arc<Mutex<HashSet<u32>>>,
}

impl TestMember {
    pub fn new(slot: u16, incarnation: u64) -> Self {
        let identity = Identity::new(slot, 1).unwrap();
        Self { identity, incarnation, dead: Arc::default() }
    }

    /// Another process of the same incarnation.
    pub fn beside(&self, slot: u16) -> Self {
        let identity = Identity::new(slot, 1).unwrap();
        Self { identity, incarnation: self.incarnation, dead: Arc::clone(&self.dead) }
    }

    pub fn dies(&self) {
        self.dead.lock().unwrap().insert(self.identity.bits());
    }

    pub fn obituary(&self) -> impl Fn() + use<> {
        let (dead, bits) = (Arc::clone(&self.dead), self.identity.bits());
        move || {
            dead.lock().unwrap().insert(bits);
        }
    }
}

impl Member for TestMember {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn check(&self) -> Result<()> {
        let dead = self.dead.lock().unwrap().contains(&self.identity.bits());
        if dead { Err(Error::HandleClosed { what: "store" }) } else { Ok(()) }
    }

    fn watch(&self) -> Option<Watch> {
        // A test's process does not fork, and its dead ones do not append.
        static SAME: AtomicU64 = AtomicU64::new(1);
        Some(Watch::new(&SAME, 1))
    }

    fn fate(&self, holder: Identity) -> io::Result<Fate<Box<dyn Any>>> {
        let dead = self.dead.lock().unwrap().contains(&holder.bits());
        Ok(if dead { Fate::Dead(Box::new(())) } else { Fate::Alive })
    }

    fn describe(&self, holder: Identity) -> String {
        format!("process in {holder}")
    }
}

pub fn settings(write_mode: WriteMode) -> LogSettings {
    LogSettings {
        generation: LOG,
        segment_bytes: SEGMENT,
        write_mode,
        file_mode: 0o600,
        lock_timeout: Some(Duration::from_secs(5)),
        sync_interval: Duration::from_millis(100),
        reading: falaj::internals::segment::Reading::Map,
    }
}

/// Create a log with this many topics at `dir`, synced, name included.
pub fn create_log(storage: &dyn Storage, dir: &Path, topics: u32, write_mode: WriteMode) {
    create_log_of(storage, dir, topics, write_mode, SEGMENT);
}

/// As [`create_log`], with segments of another size.
pub fn create_log_of(
    storage: &dyn Storage,
    dir: &Path,
    topics: u32,
    write_mode: WriteMode,
    segment_bytes: u64,
) {
    storage.create_dir(dir, 0o700).unwrap();
    let topics = (0..topics).map(|n| (n, TopicState::empty([1; 16], n))).collect();
    let spec = LogSpec { generation: LOG, segment_bytes, topics, write_mode, file_mode: 0o600 };
    create(storage, dir, &spec).unwrap();
    storage.sync_dir(dir.parent().unwrap()).unwrap();
}

/// A new log of one topic, open in the first process.
pub fn new_log(storage: &Arc<dyn Storage>, dir: &Path) -> Arc<Log> {
    create_log(&**storage, dir, 1, WriteMode::Mapped);
    open(storage, dir, TestMember::new(0, 1)).unwrap()
}

pub fn open(storage: &Arc<dyn Storage>, dir: &Path, member: TestMember) -> Result<Arc<Log>> {
    open_as(storage, dir, member, WriteMode::Mapped)
}

pub fn open_as(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    member: TestMember,
    write_mode: WriteMode,
) -> Result<Arc<Log>> {
    Log::open(Arc::clone(storage), dir, settings(write_mode), Some(Arc::new(member)))
}

pub fn open_to_read(storage: &Arc<dyn Storage>, dir: &Path) -> Result<Arc<Log>> {
    Log::open(Arc::clone(storage), dir, settings(WriteMode::Mapped), None)
}

/// Append values as one block of a topic.
pub fn append(log: &Log, topic: u32, values: &[&[u8]]) -> Result<Appended> {
    append_groups(log, &[(topic, values)]).map(|(appended, _)| appended)
}

/// Append one block for each topic, as one group.
pub fn append_groups(log: &Log, groups: &[(u32, &[&[u8]])]) -> Result<(Appended, Vec<u64>)> {
    let bodies: Vec<BodyWriter> = groups.iter().map(|(_, values)| encode(values)).collect();
    let blocks: Vec<_> = groups
        .iter()
        .zip(&bodies)
        .map(|((topic, _), body)| block_of(*topic, body.count(), body.body()))
        .collect();
    // As a topic appends: without an obstacle it takes the fast path.
    if let [block] = blocks.as_slice() {
        if let Some(appended) = log.try_append(block) {
            return Ok((appended, vec![appended.first]));
        }
    }
    let mut firsts = vec![0; groups.len()];
    log.append(&blocks, &mut firsts).map(|appended| (appended, firsts))
}

/// A block of plain values.
pub fn block_of(topic: u32, count: u32, body: &[u8]) -> NewBlock<'_> {
    NewBlock {
        topic,
        flags: 0,
        count,
        body,
        lead: &[],
        body_crc: Some(crc32(body)),
        highest_event_ns: None,
        uses_append_time: true,
        interval: false,
    }
}

pub fn encode(values: &[&[u8]]) -> BodyWriter {
    let mut body = BodyWriter::default();
    body.begin(false, None);
    values.iter().for_each(|value| body.push(&NewRecord::new(value)));
    body
}

/// Values of a block with their offsets.
pub fn values(block: &DataBlock) -> Vec<(u64, Vec<u8>)> {
    let mut records = block.records().unwrap();
    let body = block.body();
    std::iter::from_fn(|| records.next(body).unwrap())
        .map(|parts| {
            let value = body[parts.value.unwrap()].to_vec();
            (block.first() + u64::from(parts.offset_delta), value)
        })
        .collect()
}

/// Everything that a reader finds in a topic from an offset to the end, and how the read ended.
pub fn read_all(log: &Arc<Log>, topic: u32, from: u64) -> (Vec<(u64, Vec<u8>)>, Result<()>) {
    let mut found = Vec::new();
    let mut cursor = match log.cursor_at(topic, from, Check::Full) {
        Ok(cursor) => cursor,
        Err(error) => return (found, Err(error)),
    };
    loop {
        match cursor.next_block() {
            Ok(Some(block)) => found.extend(values(block)),
            Ok(None) => return (found, Ok(())),
            Err(error) => return (found, Err(error)),
        }
    }
}

pub fn log_dir(root: &Path) -> PathBuf {
    root.join("log")
}
