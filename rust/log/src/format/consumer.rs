//! The file of a consumer group: its members, the owner of each partition, and the committed
//! offsets.
//!
//! A page has a header that never changes and words that do. A page with a row for each member
//! follows, then an entry for each partition. One sector of an entry says what it is of and has the
//! owner's word. Two more sectors hold cursors, written in turns, so that a tear hits the older
//! one. Words and rows are valid for one incarnation only; cursors always are. Layout:
//! `docs/FORMAT.md`, "Consumer".

use std::collections::BTreeSet;

use super::checksum::crc32;
use super::double_slot::{DoubleSlot, is_torn};
use super::names::{MAX_NAME, hex, unhex};
pub use super::owned::{HEADER_LEN, store_in};
use super::owned::{is_sealed, seal};
use super::state::MAX_METADATA;
use super::{Decoded, owned, put, u32_at, u64_at};

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"FALAJCON";
/// Bytes before the first entry.
pub const HEAD_LEN: u64 = 8192;
/// Most members of a consumer group, over all processes.
pub const MEMBERS_MAX: u64 = 256;
/// Bytes of a member's row.
pub const MEMBER_LEN: u64 = 16;
/// Bytes of an entry.
pub const ENTRY_LEN: u64 = 3 * SECTOR;
/// Most entries of a file.
pub const ENTRIES_MAX: u64 = 8192;
/// Bytes of a cursor: it fills a sector of its own.
pub const CURSOR_LEN: usize = SECTOR as usize;
/// Where a cursor holds the metadata of a committed offset, after its length.
const METADATA_AT: usize = 104;
/// The unit that a disk writes whole or not at all.
pub const SECTOR: u64 = 512;

/// The error for a file that ends too early.
pub const CUT: &str = "the consumer's file was cut off; `falaj group delete` forgets the consumer";
/// The error for an entry without a whole cursor.
pub const TORN: &str = "neither of the two cursors is whole; `falaj group seek` sets it again";
/// The error for an entry that has lost its name too.
pub const LOST: &str = "neither of the two cursors is whole, nor what they are of; `falaj group delete` \
                        forgets the consumer";

/// Positions in the file, in bytes, and in an entry.
pub mod at {
    /// Incarnation for which words and rows are valid.
    pub const INCARNATION: u64 = 64;
    /// Counter that rises when members join, leave, ask for a partition, or release one.
    pub const CHANGES: u64 = 128;
    /// For each row, how often its member has asked for a partition; 0 when it does not ask.
    pub const ASKS: u64 = 2048;
    /// First row of a member: its word, then the checksum of what it reads.
    pub const MEMBERS: u64 = 4096;
    /// In an entry: 1 when the living members read the partition, whichever owns it.
    pub const READ: u64 = 488;
    /// In an entry: the mark of the topic, while the entry is being forgotten.
    pub const FORGOTTEN: u64 = 496;
    /// In an entry: word of the member that owns the partition.
    pub const OWNER: u64 = 504;
    /// In an entry: the first of the two cursors.
    pub const CURSORS: u64 = super::SECTOR;
}

/// Bytes of the checked part of an entry's first sector.
const NAMED_LEN: usize = 284;

const _: () = {
    assert!(at::ASKS + MEMBERS_MAX * 8 == at::MEMBERS);
    assert!(at::MEMBERS + MEMBERS_MAX * MEMBER_LEN == HEAD_LEN);
    assert!(NAMED_LEN as u64 <= at::READ && at::READ + 8 == at::FORGOTTEN);
    assert!(at::FORGOTTEN + 8 == at::OWNER && at::OWNER + 8 == SECTOR);
    assert!(24 + MAX_NAME <= NAMED_LEN - 4 && METADATA_AT + MAX_METADATA < CURSOR_LEN);
};

/// Return where an entry begins.
pub const fn entry(index: u64) -> u64 {
    HEAD_LEN + index * ENTRY_LEN
}

/// Return where a member's row begins.
pub const fn member(index: u64) -> u64 {
    at::MEMBERS + index * MEMBER_LEN
}

/// Return where the member of a row asks.
pub const fn ask(index: u64) -> u64 {
    at::ASKS + index * 8
}

/// Return how many whole entries a file of this length has.
pub const fn entries_in(len: u64) -> u64 {
    len.saturating_sub(HEAD_LEN) / ENTRY_LEN
}

/// Lay out the part that never changes: the store's id, and the generation of the log that keeps
/// the cursors. Zeros mean that the file keeps them.
pub fn encode_header(store: [u8; 16], log: [u8; 16]) -> [u8; HEADER_LEN] {
    owned::encode_header(MAGIC, store, &log)
}

/// Check the part that never changes; return the generation of the log that keeps the cursors.
///
/// # Errors
/// `Damaged` when it is torn or another store's, `Version` for another version.
pub fn check_header(bytes: &[u8], store: [u8; 16]) -> Decoded<[u8; 16]> {
    let say = owned::Complaints {
        no_such: "not a consumer's file; `falaj group delete` forgets the consumer",
        damaged: "the checksum of the consumer's file does not match; `falaj group delete` \
                  forgets the consumer",
        foreign: "the consumer's file of another store; `falaj group delete` forgets the \
                  consumer",
    };
    owned::check_header(bytes, MAGIC, store, &say)?;
    Ok(bytes[owned::OWN..].first_chunk().copied().unwrap_or_default())
}

/// Return where a file ends too early: within its head, or within an entry that has begun. Space
/// that was allocated and never written is no such entry.
pub fn cut_at(file: &[u8]) -> Option<u64> {
    let len = file.len() as u64;
    let rest = file.get(entry(entries_in(len)) as usize..).unwrap_or_default();
    (len < HEAD_LEN || rest.iter().any(|byte| *byte != 0)).then_some(len)
}

/// Iterate over the entries of a file. Those that are being forgotten come out blank.
pub fn entries(file: &[u8]) -> impl Iterator<Item = CursorEntry> + '_ {
    let forgotten = forgotten_in(file);
    entries_as_stored(file).map(move |entry| entry.unless_forgotten(&forgotten))
}

fn entries_as_stored(file: &[u8]) -> impl Iterator<Item = CursorEntry> + '_ {
    let entries = file.get(HEAD_LEN as usize..).unwrap_or_default();
    entries.chunks_exact(ENTRY_LEN as usize).map(CursorEntry::decode)
}

/// List the generations of the topics that a file is forgetting: at least one entry of each is
/// marked.
pub fn forgotten_in(file: &[u8]) -> BTreeSet<[u8; 16]> {
    let marked = entries_as_stored(file).filter(CursorEntry::is_marked);
    marked.filter_map(|entry| Some(entry.of()?.0)).collect()
}

/// Compute the mark of a topic's entries while they are being forgotten; never 0.
pub fn mark_of(generation: &[u8; 16]) -> u64 {
    u64_at(generation, 0) | 1
}

/// The topic and partition of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Generation of the topic.
    pub generation: [u8; 16],
    /// Partition of the topic.
    pub partition: u32,
    /// Name of the topic, for people.
    pub topic: String,
}

/// Lay out an entry's name.
pub fn encode_named(named: &Named) -> [u8; NAMED_LEN] {
    let mut out = [0; NAMED_LEN];
    put(&mut out, 0, &named.generation);
    put(&mut out, 16, &named.partition.to_le_bytes());
    put(&mut out, 20, &(named.topic.len() as u32).to_le_bytes());
    put(&mut out, 24, named.topic.as_bytes());
    seal(&mut out);
    out
}

/// Read an entry's name; `None` unless it is whole.
pub fn decode_named(sector: &[u8]) -> Option<Named> {
    let bytes = sector.get(..NAMED_LEN).filter(|bytes| is_sealed(bytes))?;
    let name = bytes[24..24 + MAX_NAME].get(..u32_at(bytes, 20) as usize)?;
    let topic = std::str::from_utf8(name).ok()?.to_owned();
    let generation = *bytes.first_chunk()?;
    Some(Named { generation, partition: u32_at(bytes, 16), topic })
}

/// A recognisable place in a partition: an offset, and what lies before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorPosition {
    /// Offset of the first record that was not read.
    pub offset: u64,
    /// Checksum of the body of the block before it; 0 with `time_us` 0 if there was none.
    pub crc: u32,
    /// When that block was appended, µs since 1970: it distinguishes equal bodies, and has no other
    /// use.
    pub time_us: i64,
}

impl CursorPosition {
    /// Return true when nothing is known of the block before it.
    pub fn is_bare(&self) -> bool {
        (self.crc, self.time_us) == (0, 0)
    }
}

/// Compute what identifies a position whose cursor is kept in a log; 0 when nothing before it is
/// known.
pub fn fingerprint(position: &CursorPosition) -> u32 {
    if position.is_bare() {
        return 0;
    }
    let mut bytes = [0; 12];
    put(&mut bytes, 0, &position.crc.to_le_bytes());
    put(&mut bytes, 4, &position.time_us.to_le_bytes());
    crc32(&bytes).max(1)
}

/// Return the prefix of the names of a group's cursors that are kept in a log.
pub fn cursor_prefix(consumer: &str) -> Vec<u8> {
    format!("{consumer}\0").into_bytes()
}

/// Return the name of a cursor that is kept in a log.
pub fn cursor_name(consumer: &str, generation: &[u8; 16], partition: u32) -> Vec<u8> {
    format!("{consumer}\0{}\0{partition}", hex(generation)).into_bytes()
}

/// Read the topic's generation and the partition from a cursor's name; `None` for a name that falaj
/// does not give.
pub fn read_by(name: &[u8]) -> Option<([u8; 16], u32)> {
    let mut words = std::str::from_utf8(name).ok()?.split('\0');
    let (_, generation, partition) = (words.next()?, words.next()?, words.next()?);
    let found = (unhex(generation)?, partition.parse().ok()?);
    words.next().is_none().then_some(found)
}

/// A text that a committing member leaves beside an offset, for the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CommitMetadata {
    len: u16,
    bytes: [u8; MAX_METADATA],
}

impl CommitMetadata {
    /// No metadata.
    pub const NONE: Self = Self { len: 0, bytes: [0; MAX_METADATA] };

    /// Make it from bytes; `None` if they are too many.
    pub fn new(given: &[u8]) -> Option<Self> {
        let mut metadata = Self { len: given.len().try_into().ok()?, ..Self::NONE };
        metadata.bytes.get_mut(..given.len())?.copy_from_slice(given);
        Some(metadata)
    }

    /// Return the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Default for CommitMetadata {
    fn default() -> Self {
        Self::NONE
    }
}

impl std::fmt::Debug for CommitMetadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// A committed offset of a partition, as one of the two sectors holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCursor {
    /// Generation of the topic.
    pub generation: [u8; 16],
    /// Partition of the topic.
    pub partition: u32,
    /// Rises by one with each version; its lowest bit selects the sector.
    pub serial: u64,
    /// The position that was committed.
    pub committed: CursorPosition,
    /// The last position known to lie before the durable offset.
    pub safe: CursorPosition,
    /// Incarnation in which it was committed.
    pub incarnation: u64,
    /// The text of the committed position.
    pub metadata: CommitMetadata,
}

impl StoredCursor {
    /// Return the cursor where this position counts as committed: metadata of another one is not its.
    #[must_use]
    pub fn standing_at(self, position: CursorPosition) -> Self {
        let is_its = position == self.committed;
        let metadata = if is_its { self.metadata } else { CommitMetadata::NONE };
        Self { committed: position, metadata, ..self }
    }
}

/// Lay out a cursor.
pub fn encode_cursor(cursor: &StoredCursor) -> [u8; CURSOR_LEN] {
    let mut out = [0; CURSOR_LEN];
    put(&mut out, 0, &cursor.generation);
    put(&mut out, 16, &cursor.partition.to_le_bytes());
    put(&mut out, 24, &cursor.serial.to_le_bytes());
    for (base, position) in [(32, &cursor.committed), (56, &cursor.safe)] {
        put(&mut out, base, &position.offset.to_le_bytes());
        put(&mut out, base + 8, &position.time_us.to_le_bytes());
        put(&mut out, base + 16, &position.crc.to_le_bytes());
    }
    put(&mut out, 80, &cursor.incarnation.to_le_bytes());
    put(&mut out, METADATA_AT - 4, &cursor.metadata.len.to_le_bytes());
    put(&mut out, METADATA_AT, cursor.metadata.as_bytes());
    seal(&mut out);
    out
}

/// Read a cursor; `None` unless it is whole. A sector of zeros is none, as its checksum would
/// differ.
pub fn decode_cursor(bytes: &[u8]) -> Option<StoredCursor> {
    let bytes = bytes.get(..CURSOR_LEN).filter(|bytes| is_sealed(bytes))?;
    let len = usize::from(u16::from_le_bytes([bytes[100], bytes[101]]));
    let metadata = CommitMetadata::new(bytes[METADATA_AT..].get(..len)?)?;
    let position = |base: usize| CursorPosition {
        offset: u64_at(bytes, base),
        time_us: u64_at(bytes, base + 8) as i64,
        crc: u32_at(bytes, base + 16),
    };
    Some(StoredCursor {
        generation: *bytes.first_chunk()?,
        partition: u32_at(bytes, 16),
        serial: u64_at(bytes, 24),
        committed: position(32),
        safe: position(56),
        incarnation: u64_at(bytes, 80),
        metadata,
    })
}

/// An entry as read from the file.
#[derive(Debug, Default)]
pub struct CursorEntry {
    /// Its name, if a whole sector has it.
    pub named: Option<Named>,
    /// Word of the member that owns it.
    pub owner: u64,
    /// Its two cursors, if they are whole.
    pub cursors: [Option<StoredCursor>; 2],
    /// Whether the sector of its name has any bytes.
    pub is_named: bool,
    /// Which cursors' sectors are neither whole nor zero.
    pub torn: [bool; 2],
    /// Whether the living members read it; meaningless without living members.
    pub is_read: bool,
    /// The mark of an entry that is being forgotten.
    pub mark: u64,
}

impl CursorEntry {
    /// Decode an entry from all of its [`ENTRY_LEN`] bytes.
    pub fn decode(bytes: &[u8]) -> Self {
        let sector = |n: u64| bytes.get((at::CURSORS + n * SECTOR) as usize..).unwrap_or_default();
        let cursors = [0, 1].map(|n| decode_cursor(sector(n)));
        let torn = [0, 1].map(|n| {
            let sector = sector(n);
            is_torn(&sector[..sector.len().min(CURSOR_LEN)], cursors[n as usize].as_ref())
        });
        let word = |position: u64| {
            let word = bytes.get(position as usize..).and_then(|rest| rest.first_chunk().copied());
            word.map_or(0, u64::from_le_bytes)
        };
        Self {
            named: decode_named(bytes),
            owner: word(at::OWNER),
            is_read: word(at::READ) != 0,
            mark: word(at::FORGOTTEN),
            cursors,
            is_named: bytes.iter().take(NAMED_LEN).any(|byte| *byte != 0),
            torn,
        }
    }

    /// Return the newest whole cursor of the entry's own topic and partition.
    pub fn cursor(&self) -> Option<StoredCursor> {
        let named = self.named.as_ref().map(|named| (named.generation, named.partition));
        // A reused entry may have a cursor of its previous partition, with a higher serial.
        let ours = |cursor: &StoredCursor| {
            named.is_none_or(|of| of == (cursor.generation, cursor.partition))
        };
        DoubleSlot::of(self.cursors.map(|cursor| cursor.filter(ours)), |cursor| cursor.serial).value
    }

    /// Return the entry's generation and partition; a cursor has them too.
    pub fn of(&self) -> Option<([u8; 16], u32)> {
        let named = self.named.as_ref().map(|named| (named.generation, named.partition));
        named.or_else(|| self.cursor().map(|cursor| (cursor.generation, cursor.partition)))
    }

    /// Return true if no member ever committed for it: a crash kept its first cursor from the disk,
    /// or the entry is of something else.
    pub fn is_fresh_for(&self, named: &Named) -> bool {
        let same = self.of() == Some((named.generation, named.partition));
        !same || (self.cursor().is_none() && !self.is_torn())
    }

    /// Return true if a cursor's sector is neither whole nor zero.
    pub fn is_torn(&self) -> bool {
        self.torn != [false; 2]
    }

    /// Return what is wrong with an entry that has begun but lost its committed offset.
    pub fn complaint(&self) -> Option<&'static str> {
        match (self.is_torn() && self.cursor().is_none(), &self.named) {
            (false, _) => None,
            (true, Some(_)) => Some(TORN),
            (true, None) => Some(LOST),
        }
    }

    /// Return true for an entry that is being forgotten, even after it was wiped. A mark of another
    /// topic does not count: corruption or an earlier use of the entry left it.
    pub fn is_marked(&self) -> bool {
        let is_its = |(generation, _)| self.mark == mark_of(&generation);
        self.mark != 0 && self.of().map_or(!self.is_torn(), is_its)
    }

    /// Return the entry, or a blank one if it is marked or of one of these topics.
    pub fn unless_forgotten(self, topics: &BTreeSet<[u8; 16]>) -> Self {
        let is_of_these = || self.of().is_some_and(|(generation, _)| topics.contains(&generation));
        if self.is_marked() || is_of_these() { Self::default() } else { self }
    }

    /// Return true for an entry without a name, cursor or torn sector.
    pub fn is_blank(&self) -> bool {
        self.of().is_none() && !self.is_torn()
    }
}

#[cfg(test)]
#[path = "consumer_tests.rs"]
mod tests;
