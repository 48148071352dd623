//! A writer's own account of what it did, kept outside of falaj.
//!
//! The account is a shared map of a file of its own. Before each call the writer notes what it
//! *will* append; after it, the offset that the call returned. The kernel keeps what was stored
//! when the process is killed. A line has 48 bytes; its state is stored last, so a line with a
//! state is complete.
//!
//! ```text
//! page 0   records, calls, lines begun, refused, forks, stop!, …   64: what was told to be durable
//! then     state u32, count u32, seq u64, offset u64, crc u32, topic u16, partition u16,
//!          group u64, mode and time u64                             (one line a block)
//! ```

use std::io;
use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::MmapMut;

use crate::system;

const HEADER: usize = 4096;
const LINE: usize = 48;
/// Most lines of an account.
pub const LINES: usize = 1 << 20;
const LEN: u64 = (HEADER + LINES * LINE) as u64;
const TOLD: usize = 64;
const PARTITIONS_MAX: usize = 8;

/// Word of the header: records acknowledged.
pub const RECORDS: usize = 0;
/// Calls acknowledged.
pub const CALLS: usize = 8;
/// Lines begun.
pub const BEGUN: usize = 16;
/// Calls that raised, so that none of their records may be there.
pub const REFUSED: usize = 24;
/// Children forked.
pub const FORKS: usize = 32;
/// Not zero: the writer must close and end.
pub const STOP: usize = 40;

/// Trims that returned.
pub const TRIMS: usize = 48;

/// The known state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It began, and its result is not known.
    Intended = 1,
    /// It returned.
    Acknowledged = 2,
    /// It raised: nothing was appended.
    Refused = 3,
}

/// One block of one call.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The known state of its call.
    pub state: State,
    /// Records.
    pub count: u32,
    /// Number of the first.
    pub seq: u64,
    /// Its offset, once it is acknowledged.
    pub offset: u64,
    /// Checksum over all its records.
    pub crc: u32,
    /// Topic and partition.
    pub place: (u16, u16),
    /// 1 + the first line of its call, if that has several; [`BARE`] for a record without content.
    pub group: u64,
    /// Sync mode: 0 none, 1 interval, 2 durable.
    pub mode: u64,
    /// When it was acknowledged: microseconds of the monotonic clock.
    pub time_us: u64,
}

/// `group` of a record without content.
pub const BARE: u64 = u64::MAX;

/// An account, mapped.
#[derive(Debug)]
pub struct Acks(MmapMut);

impl Acks {
    /// Map an account, new or existing.
    pub fn open(path: &Path) -> io::Result<Self> {
        system::map_shared(path, LEN).map(Self)
    }

    /// A word of the header.
    pub fn word(&self, at: usize) -> u64 {
        compiler_fence(Ordering::SeqCst);
        read(&self.0, at)
    }

    /// Store a word of the header.
    pub fn set_word(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        compiler_fence(Ordering::SeqCst);
    }

    /// Add to a word of the header.
    pub fn add(&mut self, at: usize, more: u64) {
        self.set_word(at, self.word(at) + more);
    }

    /// Note what a call will append; return the line's number.
    pub fn intend(&mut self, line: &Line) -> usize {
        let i = self.word(BEGUN) as usize;
        let at = HEADER + i * LINE;
        let mut bytes = [0; LINE];
        bytes[4..8].copy_from_slice(&line.count.to_le_bytes());
        bytes[8..16].copy_from_slice(&line.seq.to_le_bytes());
        bytes[24..28].copy_from_slice(&line.crc.to_le_bytes());
        bytes[28..30].copy_from_slice(&line.place.0.to_le_bytes());
        bytes[30..32].copy_from_slice(&line.place.1.to_le_bytes());
        bytes[32..40].copy_from_slice(&line.group.to_le_bytes());
        bytes[40..].copy_from_slice(&(line.mode << 60).to_le_bytes());
        self.0[at..at + LINE].copy_from_slice(&bytes);
        compiler_fence(Ordering::SeqCst);
        self.set_state(i, State::Intended);
        self.set_word(BEGUN, i as u64 + 1);
        i
    }

    fn set_state(&mut self, i: usize, state: State) {
        let at = HEADER + i * LINE;
        self.0[at..at + 4].copy_from_slice(&(state as u32).to_le_bytes());
        compiler_fence(Ordering::SeqCst);
    }

    /// Note that the call returned, and its offset.
    pub fn acknowledge(&mut self, i: usize, offset: u64, mode: u64, time_us: u64) {
        let at = HEADER + i * LINE;
        self.0[at + 16..at + 24].copy_from_slice(&offset.to_le_bytes());
        self.0[at + 40..at + 48].copy_from_slice(&(mode << 60 | time_us).to_le_bytes());
        compiler_fence(Ordering::SeqCst);
        self.set_state(i, State::Acknowledged);
    }

    /// Note that the call raised.
    pub fn refuse(&mut self, i: usize) {
        self.set_state(i, State::Refused);
        self.add(REFUSED, 1);
    }

    /// Note that everything before an offset is on disk, as falaj reported.
    pub fn told_durable(&mut self, place: (u16, u16), offset: u64) {
        let at = told(place);
        let known = self.word(at);
        self.set_word(at, known.max(offset));
    }

    /// The offset up to which this writer knows everything to be on disk.
    pub fn durable(&self, place: (u16, u16)) -> u64 {
        self.word(told(place))
    }

    /// A line; `None` past the last one.
    pub fn line(&self, i: usize) -> Option<Line> {
        if i >= LINES {
            return None;
        }
        let at = HEADER + i * LINE;
        let word = |offset: usize| read(&self.0, at + offset);
        let state = match word(0) as u32 {
            1 => State::Intended,
            2 => State::Acknowledged,
            3 => State::Refused,
            _ => return None,
        };
        let (counts, places, last) = (word(0), word(24), word(40));
        Some(Line {
            state,
            count: (counts >> 32) as u32,
            seq: word(8),
            offset: word(16),
            crc: places as u32,
            place: ((places >> 32) as u16, (places >> 48) as u16),
            group: word(32),
            mode: last >> 60,
            time_us: last & !(0xf << 60),
        })
    }
}

fn told((topic, partition): (u16, u16)) -> usize {
    TOLD + (topic as usize * PARTITIONS_MAX + partition as usize) * 8
}

fn read(map: &MmapMut, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&map[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// The account of a reader: one hash for every [`crate::payload::BLOCK`] offsets of a partition.
#[derive(Debug)]
pub struct Seen(MmapMut);

/// Hashes kept of a partition.
pub const BLOCKS: usize = 1 << 16;
const SEEN: usize = 1 << 63;

impl Seen {
    /// Map an account, new or existing.
    pub fn open(path: &Path) -> io::Result<Self> {
        system::map_shared(path, (HEADER + 3 * PARTITIONS_MAX * BLOCKS * 8) as u64).map(Self)
    }

    /// Records read.
    pub fn records(&self) -> u64 {
        read(&self.0, 0)
    }

    /// Note how many more were read.
    pub fn add(&mut self, records: u64) {
        let all = self.records() + records;
        self.0[..8].copy_from_slice(&all.to_le_bytes());
    }

    /// True when the reader must end.
    pub fn is_to_stop(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        read(&self.0, STOP) != 0
    }

    /// Make the reader end.
    pub fn stop(&mut self) {
        self.0[STOP..STOP + 8].copy_from_slice(&1u64.to_le_bytes());
    }

    /// Note the hash of a block; a second look must have seen the same.
    pub fn note(&mut self, place: (u16, u16), block: u64, crc: u32) -> Result<(), String> {
        let Some(at) = seen(place, block) else { return Ok(()) };
        let before = read(&self.0, at);
        let now = SEEN as u64 | u64::from(crc);
        if before != 0 && before != now {
            return Err(format!("block {block} of {place:?} was read twice and differs"));
        }
        self.0[at..at + 8].copy_from_slice(&now.to_le_bytes());
        Ok(())
    }

    /// The hash of a block, if this reader saw all of it.
    pub fn block(&self, place: (u16, u16), block: u64) -> Option<u32> {
        let word = read(&self.0, seen(place, block)?);
        (word != 0).then_some(word as u32)
    }
}

fn seen((topic, partition): (u16, u16), block: u64) -> Option<usize> {
    let row = topic as usize * PARTITIONS_MAX + partition as usize;
    ((block as usize) < BLOCKS).then(|| HEADER + (row * BLOCKS + block as usize) * 8)
}
