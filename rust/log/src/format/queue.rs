//! The state file of a work queue: the state of each record's job, beside the topic that has the
//! records.
//!
//! ```text
//! page 0   header, written once │ ends (two slots) │ words, derived
//! page 1…  holders: a word for each slot of the store, derived
//!          entries: 64 bytes for each place of the ring, two versions of 32
//!          links:   16 bytes for each place: where in the heap, and the next in the lane, derived
//!          heap:    16 bytes for each place: when, which place, derived
//!          lanes:   16 bytes for each place, in queues with an order: first and last, derived
//! ```
//!
//! "No record is lost" relies on this invariant: a version of an entry counts only if its checksum
//! matches. The checksum covers the file's id and the record's offset. An entry without such a
//! version means that the record was never delivered. Derived parts can be rebuilt from the rest.
//! Layout: `docs/FORMAT.md`, "Queue".

use super::checksum::crc32_from;
use super::double_slot::{DoubleSlot, is_torn, widened};
use super::names::MAX_NAME;
use super::owned::{check_sealed, seal};
use super::{DecodeError, Decoded, PAGE, VERSION, put, u32_at, u64_at};

/// First bytes of every state file.
pub const MAGIC: [u8; 8] = *b"FALAJQUE";
/// Bytes of the part that never changes.
pub const HEADER_LEN: usize = 512;
const CAPACITY_AT: usize = 40;
/// Bytes of a version of an entry.
pub const VERSION_LEN: u64 = 32;
/// Bytes of an entry.
pub const ENTRY_LEN: u64 = 64;
/// Bytes of a slot of the ends.
pub const ENDS_LEN: usize = 64;
/// Smallest number of places.
pub const CAPACITY_MIN: u64 = 64;
/// Highest number of attempts that is counted.
pub const ATTEMPTS_MAX: u32 = (1 << 24) - 1;
/// Highest number of deliveries; beyond it the count wraps to 0.
pub const DELIVERIES_MAX: u32 = (1 << 31) - 1;
/// First bit of the deliveries in the word that also holds the lane.
const DELIVERIES_AT: u32 = 33;
const LANE: u64 = (1 << DELIVERIES_AT) - 1;
const BEGUN: u64 = 1 << 4;
const SUSPECT: u64 = 1 << 5;
const ORDERED_FLAG: u32 = 1;
const BEGINS_FLAG: u32 = 1 << 1;
/// Largest number of places: that many jobs may be in flight, delayed, or done after one that is
/// not done.
pub const CAPACITY_MAX: u64 = 1 << 26;

/// The error for a file that ends too early.
pub const CUT: &str = "the state of the queue was cut off; `falaj queue reset` creates a new one";
/// The error for a heap that is corrupt right after it was rebuilt.
pub const NO_HEAP: &str = "the heap of the queue leads nowhere, although it was just rebuilt";
/// The error for a lock word that no process writes.
pub const NO_LOCK_WORD: &str = "the lock word is not one that falaj writes";

/// Positions in the first page.
pub mod at {
    /// The two slots of the ends, in sectors of their own.
    pub const ENDS: [u64; 2] = [512, 1024];
    /// Lock of the queue.
    pub const LOCK: u64 = 2048;
    /// Incarnation for which the derived parts are valid; stored last by a review.
    pub const INCARNATION: u64 = 2112;
    /// Not 0 while the lock's owner changes derived parts, and from where they were found corrupt
    /// until they are rebuilt.
    pub const BUSY: u64 = 2120;
    /// Not 0 once another file has replaced this one.
    pub const REPLACED: u64 = 2128;
    /// Entries in the heap.
    pub const HEAP: u64 = 2176;
    /// Jobs in flight.
    pub const IN_FLIGHT: u64 = 2184;
    /// Jobs that are done, but that the lower bound has not passed yet.
    pub const DONE: u64 = 2192;
    /// Rises with each change that waiting workers may need.
    pub const CHANGES: u64 = 2240;
}

/// Positions of the parts of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Number of places, a power of two.
    pub capacity: u64,
    /// True when records of one key keep their order.
    pub ordered: bool,
}

impl Parts {
    /// Holders begin here.
    pub const HOLDERS: u64 = PAGE;
    const ENTRIES: u64 = Self::HOLDERS + 8 * SLOTS;

    /// Return the position of an offset's entry.
    #[inline]
    pub fn entry(&self, offset: u64) -> u64 {
        Self::ENTRIES + ENTRY_LEN * self.place(offset)
    }

    /// Return the place of an offset in the ring.
    #[inline]
    pub fn place(&self, offset: u64) -> u64 {
        offset & (self.capacity - 1)
    }

    /// Return the position of a place's links.
    #[inline]
    pub fn link(&self, place: u64) -> u64 {
        Self::ENTRIES + ENTRY_LEN * self.capacity + 16 * (place & (self.capacity - 1))
    }

    /// Return the position of an element of the heap.
    #[inline]
    pub fn heap(&self, index: u64) -> u64 {
        Self::ENTRIES + (ENTRY_LEN + 16) * self.capacity + 16 * (index & (self.capacity - 1))
    }

    /// Return the position of a lane.
    #[inline]
    pub fn lane(&self, lane: u64) -> u64 {
        Self::ENTRIES + (ENTRY_LEN + 32) * self.capacity + 16 * (lane & (self.capacity - 1))
    }

    /// Return the bytes of the file.
    pub fn file_len(&self) -> u64 {
        let each = ENTRY_LEN + if self.ordered { 48 } else { 32 };
        (Self::ENTRIES + each * self.capacity).next_multiple_of(PAGE)
    }
}

/// Slots of a store, each with a word among the holders.
pub const SLOTS: u64 = 1024;

/// The part of the file that never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueHeader {
    /// Generation of the topic.
    pub generation: [u8; 16],
    /// Random id of the file.
    pub id: u64,
    /// The number of places, and the order.
    pub parts: Parts,
    /// True if an attempt counts when the work begins. In files of earlier builds, it counted with
    /// the delivery. No build writes to such a file; it is copied first.
    pub counts_begun: bool,
    /// Name of the topic.
    pub topic: String,
}

impl QueueHeader {
    /// Lay it out.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        let begins = if self.counts_begun { BEGINS_FLAG } else { 0 };
        put(&mut out, 12, &(u32::from(self.parts.ordered) | begins).to_le_bytes());
        put(&mut out, 16, &self.generation);
        put(&mut out, 32, &self.id.to_le_bytes());
        put(&mut out, CAPACITY_AT, &self.parts.capacity.to_le_bytes());
        out[48] = self.topic.len() as u8;
        put(&mut out, 49, self.topic.as_bytes());
        seal(&mut out);
        out
    }

    /// Read it.
    ///
    /// # Errors
    /// `Damaged` when it is torn or no state file, `Version` for another version.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let no_such = "not the state of a queue; `falaj queue reset` creates a new one";
        let damaged = "the checksum of the queue's header does not match; `falaj queue reset` creates a new one";
        check_sealed(bytes, HEADER_LEN, MAGIC, no_such, damaged)?;
        let flags = u32_at(bytes, 12);
        if flags > ORDERED_FLAG | BEGINS_FLAG {
            return Err(DecodeError::Unknown("a flag of a newer version"));
        }
        let parts =
            Parts { capacity: u64_at(bytes, CAPACITY_AT), ordered: flags & ORDERED_FLAG != 0 };
        let counts_begun = flags & BEGINS_FLAG != 0;
        let name = bytes[49..49 + MAX_NAME].get(..usize::from(bytes[48])).map(<[u8]>::to_vec);
        let topic = name.and_then(|name| String::from_utf8(name).ok());
        let is_sound = parts.capacity.is_power_of_two()
            && (CAPACITY_MIN..=CAPACITY_MAX).contains(&parts.capacity);
        match topic {
            Some(topic) if is_sound => {
                let mut generation = [0; 16];
                generation.copy_from_slice(&bytes[16..32]);
                Ok(Self { generation, id: u64_at(bytes, 32), parts, counts_begun, topic })
            }
            _ => Err(DecodeError::Damaged(
                "a header that no queue has; `falaj queue reset` creates a new one",
            )),
        }
    }
}

/// The range of offsets that have entries, and the counts for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueEnds {
    /// Number of this version of the ends; it wraps around.
    pub serial: u64,
    /// The lower bound: all before it are done.
    pub floor: u64,
    /// No record from here on was ever delivered.
    pub head: u64,
    /// Records that were trimmed before they were done.
    pub trimmed: u64,
    /// Records that were dead-lettered.
    pub dead: u64,
}

impl QueueEnds {
    /// Lay out a slot.
    pub fn encode(&self, id: u64) -> [u64; ENDS_LEN / 8] {
        let words = [self.serial, self.floor, self.head, self.trimmed, self.dead, 0, 0];
        let crc = checksum(id, u64::MAX, &words);
        [words[0], words[1], words[2], words[3], words[4], words[5], words[6], u64::from(crc)]
    }

    /// Return true if each offset with an entry has a place: no queue has others.
    #[inline]
    pub fn fit(&self, capacity: u64) -> bool {
        self.floor <= self.head && self.head - self.floor <= capacity
    }

    /// Decode both slots from the first page of a file, after its header.
    pub fn in_page(page: &[u8], id: u64) -> [Option<Self>; 2] {
        let capacity = page.get(CAPACITY_AT..CAPACITY_AT + 8).map_or(0, |bytes| u64_at(bytes, 0));
        at::ENDS.map(|position| {
            let bytes = page.get(position as usize..position as usize + ENDS_LEN)?;
            let words = std::array::from_fn(|i| u64_at(bytes, 8 * i));
            Self::decode(&words, id).filter(|ends| ends.fit(capacity))
        })
    }

    /// Return a slot that was written and is not whole.
    pub fn torn_in(page: &[u8], id: u64) -> Option<usize> {
        let slots = Self::in_page(page, id);
        (0..2).find(|slot| {
            let bytes = page.get(at::ENDS[*slot] as usize..).unwrap_or_default();
            is_torn(&bytes[..bytes.len().min(ENDS_LEN)], slots[*slot].as_ref())
        })
    }

    /// Return the version that holds, and its slot.
    ///
    /// # Errors
    /// `Damaged` when neither is whole.
    pub fn newest(slots: [Option<Self>; 2]) -> Decoded<(Self, usize)> {
        let DoubleSlot { value, slot } = DoubleSlot::of(slots, |ends| ends.serial);
        let damaged = "the ends of the queue; `falaj queue reset` creates a new one";
        Ok((value.ok_or(DecodeError::Damaged(damaged))?, slot))
    }

    /// Read a slot; `None` when it is torn or was never written. The caller, which knows the file,
    /// checks whether it [fits](Self::fit).
    pub fn decode(words: &[u64; ENDS_LEN / 8], id: u64) -> Option<Self> {
        let sound = u64::from(checksum(id, u64::MAX, &words[..7])) == words[7];
        let found = Self {
            serial: words[0],
            floor: words[1],
            head: words[2],
            trimmed: words[3],
            dead: words[4],
        };
        (sound && found.floor <= found.head).then_some(found)
    }
}

/// The state of a record's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No process has it; it may be delivered.
    Ready,
    /// A process has it, until `when` of the machine's steady clock.
    InFlight,
    /// No process has it, and none gets it before `when` of the wall clock. If it was begun, it is reserved: the
    /// process that has its ticket works on it.
    Delayed,
    /// It was acked.
    Done,
}

/// A version of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEntry {
    /// The state of the job.
    pub state: State,
    /// True if the process that has it, or its ticket, began to work on it.
    pub begun: bool,
    /// True if the last process that worked on it died, or was late.
    pub suspect: bool,
    /// How often work on it began.
    pub attempts: u32,
    /// How often it was delivered, modulo 2³¹; 0 once it is done.
    pub deliveries: u32,
    /// Identity of the process that has it, else 0.
    pub holder: u32,
    /// Number of this version of the entry, whichever record is in its place.
    pub serial: u32,
    /// Microseconds: see [`State`].
    pub when: u64,
    /// If it is done: which record it was ([`crate::log::BatchBlock::fingerprint`]). Else: its
    /// lane, or 0.
    pub mark: u64,
}

impl JobEntry {
    /// The entry of a record that was never delivered.
    pub const FRESH: Self = Self {
        state: State::Ready,
        begun: false,
        suspect: false,
        attempts: 0,
        deliveries: 0,
        holder: 0,
        serial: 0,
        when: 0,
        mark: 0,
    };

    /// Return true if work on it began and did not end, in an expired lease or before.
    #[inline]
    pub fn is_suspect(&self) -> bool {
        self.begun || self.suspect
    }

    /// Return true if a process has its ticket.
    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.state == State::Delayed && self.begun
    }

    /// Return the number of the next attempt.
    #[inline]
    pub fn next_attempt(&self) -> u32 {
        self.attempts.saturating_add(1).min(ATTEMPTS_MAX)
    }

    /// Lay it out, for a record of a file.
    #[inline]
    pub fn encode(&self, id: u64, offset: u64) -> [u64; 4] {
        let state = match self.state {
            State::Ready => 1,
            State::InFlight => 2,
            State::Delayed => 3,
            State::Done => 4,
        };
        let begun = if self.begun { BEGUN } else { 0 };
        let suspect = if self.suspect { SUSPECT } else { 0 };
        let last = state | begun | suspect | u64::from(self.attempts.min(ATTEMPTS_MAX)) << 8;
        let held = u64::from(self.holder) | u64::from(self.serial) << 32;
        let mark = match self.state {
            State::Done => self.mark,
            _ => self.mark & LANE | u64::from(self.deliveries) << DELIVERIES_AT,
        };
        let words = [self.when, held, mark, last];
        [words[0], words[1], words[2], last | u64::from(checksum(id, offset, &words)) << 32]
    }

    /// Return the version that holds.
    #[inline]
    pub fn newest(versions: &[[u64; 4]; 2], id: u64, offset: u64) -> DoubleSlot<Self> {
        let serials = [serial(&versions[0]), serial(&versions[1])].map(widened);
        DoubleSlot::read(serials, |half| Self::decode(&versions[half], id, offset))
    }

    /// Read it; `None` when it is torn, another record's or was never written.
    #[inline]
    pub fn decode(words: &[u64; 4], id: u64, offset: u64) -> Option<Self> {
        let last = words[3] & 0xffff_ffff;
        let crc = checksum(id, offset, &[words[0], words[1], words[2], last]);
        if u64::from(crc) != words[3] >> 32 {
            return None;
        }
        let state = match last & 0xff & !(BEGUN | SUSPECT) {
            1 => State::Ready,
            2 => State::InFlight,
            3 => State::Delayed,
            4 => State::Done,
            _ => return None,
        };
        let (mark, deliveries) = match state {
            State::Done => (words[2], 0),
            _ => (words[2] & LANE, (words[2] >> DELIVERIES_AT) as u32),
        };
        Some(Self {
            state,
            begun: last & BEGUN != 0,
            suspect: last & SUSPECT != 0,
            attempts: (last >> 8) as u32,
            deliveries,
            holder: words[1] as u32,
            serial: serial(words),
            when: words[0],
            mark,
        })
    }
}

/// Return the serial of a version, valid or not.
#[inline]
pub fn serial(words: &[u64; 4]) -> u32 {
    (words[1] >> 32) as u32
}

#[inline]
fn checksum(id: u64, offset: u64, words: &[u64]) -> u32 {
    let mut bytes = [0; 72];
    put(&mut bytes, 0, &id.to_le_bytes());
    put(&mut bytes, 8, &offset.to_le_bytes());
    let mut len = 16;
    for word in words {
        put(&mut bytes, len, &word.to_le_bytes());
        len += 8;
    }
    crc32_from(0, &bytes[..len])
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
