//! A segment that tests lay out by hand, block by block.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::path::PathBuf;
use std::sync::Arc;

use crate::format::block::{BlockHeader, Kind, flag};
use crate::format::segment::{Mark, SegmentHeader};
use crate::format::state::{LogState, TopicState};
use crate::format::{FIRST_BLOCK, checksum, names};
use crate::segment::create::{Builder, own_header};
use crate::segment::{Reading, Segment};
use crate::storage::{File, MapAccess, OpenMode, Storage};
use crate::twin::memory::MemoryStorage;

pub const LOG: [u8; 16] = [7; 16];
pub const SEQUENCE: u64 = 3;
/// Bytes allocated at first.
pub const LEN: u64 = 64 << 10;
/// Bytes that it may grow to.
pub const REACH: u64 = 128 << 10;
pub const BASE_US: i64 = 1_000_000;
pub const BOTH: [Reading; 2] = [Reading::Map, Reading::Pread];

/// A segment that begins with a snapshot of topics 0 to 2, whose next offset is 10. A test adds the
/// other blocks, also while others read it.
pub struct Draft {
    pub memory: MemoryStorage,
    pub dir: PathBuf,
    pub builder: Builder,
    /// Positions of its blocks.
    pub blocks: Vec<u64>,
}

impl Draft {
    pub fn new() -> Self {
        Self::of(|_| ())
    }

    /// Make one with a changed header.
    pub fn of(change: impl FnOnce(&mut SegmentHeader)) -> Self {
        let (memory, dir) = (MemoryStorage::new(), PathBuf::from("/log"));
        memory.create_dir(&dir, 0o700).unwrap();
        let path = dir.join(names::segment(SEQUENCE));
        let made = Builder::new(&memory, path, LEN, REACH, 0o600, MapAccess::Write);
        let builder = made.unwrap();
        let mut header = SegmentHeader {
            log: LOG,
            sequence: SEQUENCE,
            salt: builder.salt(),
            supersedes: false,
            previous: None,
            replaces: None,
            time_base_us: BASE_US,
        };
        change(&mut header);
        let mark = Mark { serial: 1, position: FIRST_BLOCK, ..Mark::default() };
        builder.header(&header, &mark).unwrap();
        let mut draft = Self { memory, dir, builder, blocks: Vec::new() };
        let snapshot = snapshot(10);
        draft.put(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot);
        draft
    }

    /// Append a block; return where it begins.
    pub fn put(&mut self, header: &BlockHeader, body: &[u8]) -> u64 {
        let position = self.builder.position();
        self.builder.block(header, body).unwrap();
        self.blocks.push(position);
        position
    }

    /// Append a block of one record of a topic.
    pub fn data(&mut self, topic: u32, offset: u32, body: &[u8]) -> u64 {
        self.put(&data(topic, offset, 0, body), body)
    }

    pub fn path(&self) -> PathBuf {
        self.builder.path().to_path_buf()
    }

    pub fn end(&self) -> u64 {
        self.builder.position()
    }

    pub fn open(&self, reading: Reading) -> Segment {
        self.open_on(&self.memory, reading)
    }

    /// Open it through a storage that wraps its own.
    pub fn open_on(&self, storage: &dyn Storage, reading: Reading) -> Segment {
        Segment::open_to_read(storage, &self.dir, LOG, SEQUENCE, REACH, reading).unwrap()
    }

    pub fn file(&self) -> Arc<dyn File> {
        self.memory.open(&self.path(), OpenMode::ReadWrite).unwrap()
    }

    /// Change a byte.
    pub fn hurt(&self, position: u64) {
        let mut byte = [0];
        self.file().read_at(&mut byte, position).unwrap();
        self.file().write_at(&[byte[0] ^ 0x55], position).unwrap();
    }
}

/// Encode the state of topics 0 to 2 with this next offset.
pub fn snapshot(next: u64) -> Vec<u8> {
    let mut state = LogState::default();
    for number in 0..3 {
        let topic = TopicState { next, ..TopicState::empty([1; 16], number) };
        assert!(state.set_topic(number, topic));
    }
    state.encode_since(&LogState::default())
}

/// Make the header of a block of one record.
pub fn data(topic: u32, offset: u32, flags: u16, body: &[u8]) -> BlockHeader {
    let flags = flags | if topic == 0 { 0 } else { flag::TOPIC };
    BlockHeader {
        len: (BlockHeader::len_for(flags) + body.len()) as u32,
        body_crc: checksum::crc32(body),
        offset,
        count: 1,
        span: 1,
        flags,
        topic,
        ..BlockHeader::new(Kind::Data)
    }
}
