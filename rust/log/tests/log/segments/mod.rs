//! One segment, block by block: reads beside its blocks, past its end, through corruption, and from
//! a disk that fails.

mod blocks;
mod indexes;
mod making;
mod walks;

use std::path::PathBuf;
use std::sync::Arc;

use falaj::internals::format::block::{BlockHeader, Kind, flag};
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::names;
use falaj::internals::format::segment::{Mark, Replaces, SegmentHeader};
use falaj::internals::format::state::{LogState, TopicState};
use falaj::internals::segment::create::{Builder, own_header};
use falaj::internals::segment::{Reading, Segment};
use falaj::internals::storage::{File, MapAccess, OpenMode, Storage};
use falaj_twin::memory::MemoryStorage;

const LOG: [u8; 16] = [7; 16];
const LEN: u64 = 64 << 10;
const BASE_US: i64 = 1_000_000;

/// A segment in the making, which begins with a snapshot of topics 0 and 1; their next offset is
/// 10.
struct Draft {
    memory: MemoryStorage,
    dir: PathBuf,
    builder: Builder,
    /// Positions of its blocks.
    blocks: Vec<u64>,
}

impl Draft {
    fn new() -> Self {
        let (memory, dir) = (MemoryStorage::new(), PathBuf::from("/log"));
        memory.create_dir(&dir, 0o700).unwrap();
        let path = dir.join(names::segment(3));
        let builder = Builder::new(&memory, path, LEN, LEN, 0o600, MapAccess::Write).unwrap();
        let mut draft = Self { memory, dir, builder, blocks: Vec::new() };
        let mut state = LogState::default();
        for number in 0..2 {
            let topic = TopicState { next: 10, ..TopicState::empty([1; 16], number) };
            assert!(state.set_topic(number, topic));
        }
        let snapshot = state.encode_since(&LogState::default());
        draft.put(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot);
        draft
    }

    fn put(&mut self, header: &BlockHeader, body: &[u8]) -> u64 {
        let position = self.builder.position();
        self.builder.block(header, body).unwrap();
        self.blocks.push(position);
        position
    }

    fn data(&mut self, topic: u32, offset: u32, body: &[u8]) -> u64 {
        self.put(&data(topic, offset, 0, body), body)
    }

    fn finish(self, replaces: Option<Replaces>) -> Made {
        let header = SegmentHeader {
            log: LOG,
            sequence: 3,
            salt: self.builder.salt(),
            supersedes: false,
            previous: None,
            replaces,
            time_base_us: BASE_US,
        };
        self.builder.header(&header, &Mark { serial: 1, ..Mark::default() }).unwrap();
        self.builder.sync().unwrap();
        let end = self.builder.position();
        Made { memory: self.memory, dir: self.dir, blocks: self.blocks, end }
    }
}

/// Header of a block of one value.
fn data(topic: u32, offset: u32, flags: u16, body: &[u8]) -> BlockHeader {
    let flags = flags | if topic == 0 { 0 } else { flag::TOPIC };
    BlockHeader {
        len: (BlockHeader::len_for(flags) + body.len()) as u32,
        body_crc: crc32(body),
        offset,
        count: 1,
        span: 1,
        flags,
        topic,
        ..BlockHeader::new(Kind::Data)
    }
}

struct Made {
    memory: MemoryStorage,
    dir: PathBuf,
    blocks: Vec<u64>,
    end: u64,
}

impl Made {
    fn path(&self) -> PathBuf {
        self.dir.join(names::segment(3))
    }

    fn open(&self, reading: Reading) -> Segment {
        self.open_on(&self.memory, reading)
    }

    fn open_on(&self, storage: &dyn Storage, reading: Reading) -> Segment {
        Segment::open_to_read(storage, &self.dir, LOG, 3, 0, reading).unwrap()
    }

    fn file(&self) -> Arc<dyn File> {
        self.memory.open(&self.path(), OpenMode::ReadWrite).unwrap()
    }

    fn hurt(&self, position: u64) {
        let mut byte = [0];
        self.file().read_at(&mut byte, position).unwrap();
        self.file().write_at(&[byte[0] ^ 0x55], position).unwrap();
    }
}

const BOTH: [Reading; 2] = [Reading::Map, Reading::Pread];

/// Three records of topic 0 and one of topic 1 between them.
fn four_records() -> Made {
    let mut draft = Draft::new();
    draft.data(0, 0, b"\x01a");
    draft.data(1, 0, b"\x01b");
    draft.data(0, 1, &[&[0xf4, 3][..], &[7; 500]].concat());
    draft.data(0, 2, b"\x01d");
    draft.finish(None)
}
