//! The block: what one append writes.
//!
//! ```text
//!  0        8       12       16       20       24           30      32
//!  +--------+-------+--------+--------+--------+------------+-------+-- - - --+---------+-----+
//!  | commit | body  | header | offset | count  | time (µs,  | flags | by flag | body    | pad |
//!  | word   | CRC   | CRC    | (rel.) |        | rel., 48b) | codec |         |         | to 8|
//!  +--------+-------+--------+--------+--------+------------+-------+-- - - --+---------+-----+
//! ```
//!
//! The commit word makes the block exist: it is stored last, with release ordering; zero means
//! "never written". Invariant: a word that [`CommitWord::parse`] accepts was written for exactly
//! this segment, as its tag holds salt and position. A header that [`BlockHeader::verify`] accepts
//! is what a writer wrote there, bit for bit. Layout: `docs/FORMAT.md`, "Block".

use crate::canary::{Canary, planted};

use super::address::{ALIGN, align};
use super::crc32c::crc32c_from;
use super::{DecodeError, Decoded, put, u32_at, u64_at};

/// Bytes of a header without extensions.
pub const HEADER_LEN: usize = 32;
/// Bytes of a header with every extension.
pub const MAX_HEADER_LEN: usize = HEADER_LEN + 4 + 4 + 4 + PRODUCER_LEN;
/// Bytes of the extension that names the block's producer.
pub const PRODUCER_LEN: usize = 24;
/// Highest relative time; later blocks need a new segment.
pub const MAX_RELATIVE_TIME: u64 = (1 << 48) - 1;

/// Offset of each field, also used by the tests that check `docs/FORMAT.md` against the code.
pub mod at {
    /// Commit word, 8 bytes.
    pub const COMMIT: usize = 0;
    /// CRC-32 of the body, 4 bytes.
    pub const BODY_CRC: usize = 8;
    /// CRC-32C of the header, 4 bytes.
    pub const HEADER_CRC: usize = 12;
    /// First offset, relative to the topic's base in this segment, 4 bytes.
    pub const OFFSET: usize = 16;
    /// Number of records, 4 bytes.
    pub const COUNT: usize = 20;
    /// Microseconds since the segment's time base, 6 bytes.
    pub const TIME: usize = 24;
    /// Flags and codec, 2 bytes.
    pub const FLAGS: usize = 30;
}
const _: () = assert!(at::FLAGS + 2 == HEADER_LEN && HEADER_LEN % ALIGN as usize == 0);

/// The purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Records of one topic.
    Data = 1,
    /// Covers the half-done bytes of a dead writer; readers skip it.
    Void = 2,
    /// Facts about the log: topics, trims, idempotency keys, cursors.
    Meta = 3,
    /// The state of the log at this point, so that older segments can be deleted.
    Snapshot = 4,
    /// Last block of a segment; names the next one.
    End = 5,
    /// A kind of a newer version; never written by this one.
    Newer = 0xff,
}

/// The aligned eight bytes that make a block exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitWord {
    /// Bytes from the block's start to the end of its body, padding not counted.
    pub len: u32,
    /// The purpose of the block.
    pub kind: Kind,
}

/// Compute the 24 bits that tie a commit word to its segment and position.
#[inline(always)]
fn tag(salt: u64, position: u64) -> u64 {
    let salt = if planted(Canary::CrcWithoutSalt) { 0 } else { salt };
    (salt ^ position).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Return the commit word as the header's checksum covers it.
#[inline(always)]
fn covered_word(word: u64) -> [u8; 8] {
    if planted(Canary::CrcWithoutCommitWord) { [0; 8] } else { word.to_le_bytes() }
}

impl CommitWord {
    /// Make the word for a position of the segment with this salt.
    #[inline(always)]
    pub fn pack(self, salt: u64, position: u64) -> u64 {
        u64::from(self.len) | (self.kind as u64) << 32 | tag(salt, position) << 40
    }

    /// Decode a non-zero word.
    ///
    /// # Errors
    /// `Damaged` when no writer stores such a tag, length or kind here. A kind of a newer version
    /// is no error yet: [`BlockHeader::refuse_newer`] refuses it after the checksum has matched.
    #[inline]
    pub fn parse(word: u64, salt: u64, position: u64) -> Decoded<Self> {
        if word >> 40 != tag(salt, position) {
            return Err(DecodeError::Damaged("the commit word's tag is not this place's"));
        }
        let len = word as u32;
        if (len as usize) < HEADER_LEN {
            return Err(DecodeError::Damaged("a block shorter than its header"));
        }
        let kind = match (word >> 32) as u8 {
            1 => Kind::Data,
            2 => Kind::Void,
            3 => Kind::Meta,
            4 => Kind::Snapshot,
            5 => Kind::End,
            0 => return Err(DecodeError::Damaged("a block of no kind")),
            _ => Kind::Newer,
        };
        Ok(Self { len, kind })
    }

    /// Return the length of a data block whose commit word is at this position; `None` for every
    /// other word, for which [`CommitWord::parse`] has the reason.
    #[inline(always)]
    pub fn data_len(word: u64, salt: u64, position: u64) -> Option<u32> {
        let data = Self { len: word as u32, kind: Kind::Data };
        let fits = data.len as usize >= HEADER_LEN;
        (fits && data.pack(salt, position) == word).then_some(data.len)
    }

    /// Return the bytes up to where the next block starts.
    #[inline]
    pub fn padded(self) -> u64 {
        align(u64::from(self.len))
    }
}

/// Bits of the flags field.
pub mod flag {
    /// Codec number of the body, lowest four bits.
    pub const CODEC: u16 = 0x000f;
    /// A topic number follows (else the topic is 0).
    pub const TOPIC: u16 = 1 << 4;
    /// First block of a group; the group's length follows.
    pub const GROUP: u16 = 1 << 5;
    /// Later block of a group.
    pub const MEMBER: u16 = 1 << 6;
    /// Offsets have gaps: the span follows, each record carries its delta.
    pub const SPARSE: u16 = 1 << 7;
    /// A producer id and sequence follow.
    pub const PRODUCER: u16 = 1 << 8;
    /// Each record has an attribute byte (key, headers, event time, no value).
    pub const RICH: u16 = 1 << 9;
    /// The body begins with a base event time.
    pub const EVENT_TIME: u16 = 1 << 10;
    /// Flags without a header extension.
    pub const PLAIN: u16 = CODEC | RICH | EVENT_TIME;
    /// All flags that this version knows.
    pub const KNOWN: u16 = CODEC | TOPIC | GROUP | MEMBER | SPARSE | PRODUCER | RICH | EVENT_TIME;
}

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Records in sequence, as [`super::record`] lays them out.
    Plain,
    /// Reserved for bodies compressed with LZ4.
    Lz4,
    /// Reserved for bodies compressed with Zstandard.
    Zstd,
    /// Reserved for a Kafka record batch (magic 2), stored verbatim.
    KafkaBatch,
}

impl Codec {
    /// Return the codec's number in the header.
    pub fn number(self) -> u16 {
        match self {
            Codec::Plain => 0,
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
            Codec::KafkaBatch => 8,
        }
    }

    fn parse(flags: u16) -> Decoded<Self> {
        match flags & flag::CODEC {
            0 => Ok(Codec::Plain),
            1 => Ok(Codec::Lz4),
            2 => Ok(Codec::Zstd),
            8 => Ok(Codec::KafkaBatch),
            _ => Err(DecodeError::Unknown("a body codec of a newer version")),
        }
    }
}

/// The producer of a block, used to drop repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Id of the producer.
    pub id: u64,
    /// The producer's sequence of this block; of several, the last one.
    pub sequence: u64,
    /// How many sequences the block has, including that one; 0 for more than 32 bits can count.
    pub span: u32,
    /// Bits of [`producer_flag`].
    pub flags: u32,
}

/// Bits of a producer's flags.
pub mod producer_flag {
    /// The log may forget the producer by itself after it was unused for long.
    pub const EXPIRING: u32 = 1;
    /// All flags that this version knows.
    pub const KNOWN: u32 = EXPIRING;
}

impl Producer {
    /// Compute the id of the producer of this name: the 64-bit FNV-1a hash of the name. Among
    /// 65,536 names, the chance that two are alike is one in eight thousand million.
    pub fn id_of(name: &str) -> u64 {
        Self::id_of_bytes(name.bytes())
    }

    pub(super) fn id_of_bytes(bytes: impl Iterator<Item = u8>) -> u64 {
        let (basis, prime) = (0xcbf2_9ce4_8422_2325u64, 0x0100_0000_01b3);
        bytes.fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(prime))
    }
}

/// The contents of a block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The purpose of the block.
    pub kind: Kind,
    /// Bytes from the block's start to the end of its body.
    pub len: u32,
    /// CRC-32 of the body.
    pub body_crc: u32,
    /// First offset, relative to the topic's base in this segment.
    pub offset: u32,
    /// Number of records.
    pub count: u32,
    /// Offsets from the first to the last, inclusive; equals `count` unless sparse.
    pub span: u32,
    /// Microseconds since the segment's time base.
    pub time: u64,
    /// Flags, including the codec.
    pub flags: u16,
    /// Topic number in the log.
    pub topic: u32,
    /// Bytes of the whole group including padding, in the group's first block; else 0.
    pub group_len: u32,
    /// The producer of the block.
    pub producer: Option<Producer>,
}

impl BlockHeader {
    /// Make a header for an empty block of this kind.
    #[inline]
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            len: HEADER_LEN as u32,
            body_crc: 0,
            offset: 0,
            count: 0,
            span: 0,
            time: 0,
            flags: 0,
            topic: 0,
            group_len: 0,
            producer: None,
        }
    }

    /// Return the bytes of a header with these flags.
    #[inline]
    pub fn len_for(flags: u16) -> usize {
        if flags & !flag::PLAIN == 0 {
            return HEADER_LEN;
        }
        let quads = (flags & (flag::TOPIC | flag::GROUP | flag::SPARSE)).count_ones() as usize;
        HEADER_LEN + 4 * quads + if flags & flag::PRODUCER != 0 { PRODUCER_LEN } else { 0 }
    }

    /// Return the bytes of this header, where the body starts.
    #[inline]
    pub fn header_len(&self) -> usize {
        Self::len_for(self.flags)
    }

    /// Return the bytes of the body.
    #[inline]
    pub fn body_len(&self) -> usize {
        self.len as usize - self.header_len()
    }

    /// Return the bytes up to where the next block starts.
    #[inline]
    pub fn padded(&self) -> u64 {
        align(u64::from(self.len))
    }

    /// Return the encoding of the body.
    ///
    /// # Errors
    /// `Unknown` for a codec of a newer version.
    pub fn codec(&self) -> Decoded<Codec> {
        Codec::parse(self.flags)
    }

    /// Return true for the second and later blocks of a group.
    #[inline]
    pub fn is_member(&self) -> bool {
        self.flags & flag::MEMBER != 0
    }

    /// Lay the header out for a position. [`UnsealedHeader::seal`] adds its checksums.
    #[inline(always)]
    pub fn lay_out(&self, salt: u64, position: u64) -> UnsealedHeader {
        let word = CommitWord { len: self.len, kind: self.kind }.pack(salt, position);
        let numbers = u64::from(self.offset) | u64::from(self.count) << 32;
        let time_flags = self.time | u64::from(self.flags) << 48;
        let fixed = [word, (position / ALIGN) << 32, numbers, time_flags];
        let laid = LaidHeader { fixed, rest: [0; REST_WORDS], len: HEADER_LEN };
        let laid = match self.flags & (flag::TOPIC | flag::GROUP | flag::SPARSE | flag::PRODUCER) {
            0 => laid,
            flag::TOPIC => {
                let mut rest = [0; REST_WORDS];
                rest[0] = u64::from(self.topic);
                LaidHeader { rest, len: WITH_TOPIC, ..laid }
            }
            _ => self.extend(laid),
        };
        UnsealedHeader(laid)
    }

    #[inline(never)]
    fn extend(&self, mut laid: LaidHeader) -> LaidHeader {
        let quads =
            [(flag::TOPIC, self.topic), (flag::GROUP, self.group_len), (flag::SPARSE, self.span)];
        for (present, quad) in quads {
            if self.flags & present != 0 {
                laid.push(u64::from(quad), 4);
            }
        }
        if let Some(producer) = self.producer.filter(|_| self.flags & flag::PRODUCER != 0) {
            laid.push(producer.id, 8);
            laid.push(producer.sequence, 8);
            laid.push(u64::from(producer.span) | u64::from(producer.flags) << 32, 8);
        }
        laid
    }

    /// Lay the header out for a position, with its checksums. Returns the commit word, and the
    /// length of the header in `out`. The first eight bytes stay zero, since the commit word is
    /// stored last.
    #[inline]
    pub fn encode(
        &self,
        salt: u64,
        seed: u32,
        position: u64,
        out: &mut [u8; MAX_HEADER_LEN],
    ) -> (u64, usize) {
        let laid = self.lay_out(salt, position).seal(seed, || self.body_crc);
        laid.fill(0, out);
        (laid.word(), laid.len)
    }

    /// Read a header whose commit word is `word`. `bytes` starts at the block and holds at least
    /// the shorter of [`MAX_HEADER_LEN`] and the block's length. Checks structure, not the checksum.
    ///
    /// # Errors
    /// `Damaged` if no writer leaves such a header.
    #[inline]
    pub fn parse(word: CommitWord, bytes: &[u8]) -> Decoded<Self> {
        if bytes.len() < HEADER_LEN {
            return Err(DecodeError::Damaged("a block cut off in its header"));
        }
        let time_flags = u64_at(bytes, at::TIME);
        let flags = (time_flags >> 48) as u16;
        let count = u32_at(bytes, at::COUNT);
        let mut header = Self {
            kind: word.kind,
            len: word.len,
            body_crc: u32_at(bytes, at::BODY_CRC),
            offset: u32_at(bytes, at::OFFSET),
            count,
            span: count,
            time: time_flags & MAX_RELATIVE_TIME,
            flags,
            topic: 0,
            group_len: 0,
            producer: None,
        };
        if flags & !flag::PLAIN != 0 {
            header.parse_extensions(bytes)?;
        }
        Ok(header)
    }

    #[inline(never)]
    fn parse_extensions(&mut self, bytes: &[u8]) -> Decoded<()> {
        let len = self.header_len();
        if len > self.len as usize || len > bytes.len() {
            return Err(DecodeError::Damaged("a block shorter than its header"));
        }
        let mut at = HEADER_LEN;
        let mut take = |bytes_wanted: usize| {
            at += bytes_wanted;
            at - bytes_wanted
        };
        if self.flags & flag::TOPIC != 0 {
            self.topic = u32_at(bytes, take(4));
        }
        if self.flags & flag::GROUP != 0 {
            self.group_len = u32_at(bytes, take(4));
            let whole = u64::from(self.group_len);
            if self.is_member() || whole < self.padded() || whole % ALIGN != 0 {
                return Err(DecodeError::Damaged("a group that does not hold its first block"));
            }
        }
        if self.flags & flag::SPARSE != 0 {
            self.span = u32_at(bytes, take(4));
            if self.span < self.count {
                return Err(DecodeError::Damaged("more records than offsets"));
            }
        }
        if self.flags & flag::PRODUCER != 0 {
            let at = take(PRODUCER_LEN);
            let (id, sequence) = (u64_at(bytes, at), u64_at(bytes, at + 8));
            let (span, flags) = (u32_at(bytes, at + 16), u32_at(bytes, at + 20));
            self.producer = Some(Producer { id, sequence, span, flags });
        }
        Ok(())
    }

    /// Check the header's checksum against the bytes it was parsed from.
    #[inline]
    pub fn verify(&self, word: u64, bytes: &[u8], seed: u32, position: u64) -> bool {
        let len = self.header_len();
        let mut copy = [0; MAX_HEADER_LEN];
        copy[..len].copy_from_slice(&bytes[..len]);
        put(&mut copy, at::COMMIT, &covered_word(word));
        put(&mut copy, at::HEADER_CRC, &((position / ALIGN) as u32).to_le_bytes());
        crc32c_from(seed, &copy[..len]) == u32_at(bytes, at::HEADER_CRC)
    }

    /// Refuse what only a newer version understands. Call it after [`BlockHeader::verify`]: before
    /// that, a strange bit is more likely corruption.
    ///
    /// # Errors
    /// `Unknown`, with the name of the feature.
    #[inline]
    pub fn refuse_newer(&self) -> Decoded<()> {
        if self.kind == Kind::Newer {
            return Err(DecodeError::Unknown("a block kind of a newer version"));
        }
        if self.flags & !flag::KNOWN != 0 {
            return Err(DecodeError::Unknown("a block flag of a newer version"));
        }
        if self.producer.is_some_and(|producer| producer.flags & !producer_flag::KNOWN != 0) {
            return Err(DecodeError::Unknown("a flag of a producer of a newer version"));
        }
        Ok(())
    }

    /// Return true when a valid block must have a matching body checksum. A void block covers
    /// arbitrary bytes.
    #[inline]
    pub fn has_checked_body(&self) -> bool {
        self.kind != Kind::Void
    }
}

/// A header without extensions, as most blocks have it, for reading.
#[derive(Clone, Copy, Debug)]
pub struct PlainHeader {
    /// As in [`BlockHeader`].
    pub kind: Kind,
    /// As in [`BlockHeader`].
    pub len: u32,
    /// As in [`BlockHeader`].
    pub body_crc: u32,
    /// As in [`BlockHeader`].
    pub offset: u32,
    /// As in [`BlockHeader`].
    pub count: u32,
    /// As in [`BlockHeader`].
    pub time: u64,
    /// As in [`BlockHeader`], without flags that announce an extension.
    pub flags: u16,
}

impl PlainHeader {
    /// Read the header of a data block of this length, from the words after its commit word. `None`
    /// when it has extensions, or bits that this version does not know.
    #[inline(always)]
    pub fn parse(len: u32, [crcs, numbers, time_flags]: [u64; 3]) -> Option<Self> {
        let header = Self {
            kind: Kind::Data,
            len,
            body_crc: crcs as u32,
            offset: numbers as u32,
            count: (numbers >> 32) as u32,
            time: time_flags & MAX_RELATIVE_TIME,
            flags: (time_flags >> 48) as u16,
        };
        (header.flags & !flag::PLAIN == 0).then_some(header)
    }

    /// Check the header's checksum, given the words after this commit word. Every bit of them is in
    /// one of the fields, so the check covers all that [`UnsealedHeader::seal`] covered.
    #[inline(always)]
    pub fn is_sound(word: u64, words: [u64; 3], seed: u32, position: u64) -> bool {
        let [crcs, numbers, time_flags] = words;
        let header_crc = (crcs >> 32) as u32;
        let crcs = u64::from(crcs as u32) | u64::from((position / ALIGN) as u32) << 32;
        crc32c_from(seed, &covered(word, [crcs, numbers, time_flags])) == header_crc
    }
}

/// Words that extensions need.
const REST_WORDS: usize = (MAX_HEADER_LEN - HEADER_LEN).div_ceil(8);

/// A header laid out for a place in a segment, as words. Without an extension, or with the topic's
/// number alone, they stay in registers.
#[derive(Clone, Copy, Debug)]
pub struct LaidHeader {
    /// The commit word, and the three words that follow it in every header.
    fixed: [u64; HEADER_LEN / 8],
    rest: [u64; REST_WORDS],
    len: usize,
}

/// Bytes of a header that has the topic's number as its only extension.
const WITH_TOPIC: usize = HEADER_LEN + 4;

impl LaidHeader {
    /// Append bytes, given as one value, lowest first; those of the value beyond `len` are zero.
    fn push(&mut self, value: u64, len: usize) {
        let behind = self.len - HEADER_LEN;
        let (at, shift) = (behind / 8, 8 * (behind % 8));
        self.rest[at] |= value << shift;
        if shift != 0 {
            self.rest[at + 1] |= value >> (64 - shift);
        }
        self.len += len;
    }

    /// Return the bytes that its checksum covers, if it has no extension or the topic's number
    /// alone.
    #[inline(always)]
    fn covered(&self) -> [u8; WITH_TOPIC] {
        let [word, fixed @ ..] = self.fixed;
        let mut bytes = [0; WITH_TOPIC];
        put(&mut bytes, 0, &covered(word, fixed));
        put(&mut bytes, HEADER_LEN, &(self.rest[0] as u32).to_le_bytes());
        bytes
    }

    #[inline(never)]
    fn long_crc(&self, seed: u32) -> u32 {
        let mut bytes = [0; MAX_HEADER_LEN];
        self.fill(u64::from_le_bytes(covered_word(self.fixed[0])), &mut bytes);
        crc32c_from(seed, &bytes[..self.len])
    }

    /// Return the commit word, which is stored last.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        self.fixed[0]
    }

    /// Return the checksum of the body.
    #[inline(always)]
    pub fn body_crc(&self) -> u32 {
        self.fixed[1] as u32
    }

    /// Return the three words that follow the commit word in every header.
    #[inline(always)]
    pub fn fixed(&self) -> [u64; 3] {
        let [_, fixed @ ..] = self.fixed;
        fixed
    }

    /// Return the words after those: the extensions, padded with zeros.
    #[inline(always)]
    pub fn rest(&self) -> &[u64] {
        &self.rest[..self.rest_words()]
    }

    /// Return the number of those words.
    #[inline(always)]
    pub fn rest_words(&self) -> usize {
        (self.len - HEADER_LEN).div_ceil(8)
    }

    /// Return the first of those words.
    #[inline(always)]
    pub fn first_of_rest(&self) -> u64 {
        self.rest[0]
    }

    /// Return the length in bytes: where the body goes.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "there is none without a byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Write its bytes, with another first word.
    fn fill(&self, first: u64, out: &mut [u8; MAX_HEADER_LEN]) {
        let [_, fixed @ ..] = self.fixed;
        let words = std::iter::once(first).chain(fixed).chain(self.rest);
        for (bytes, word) in out.chunks_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
    }
}

/// A header without its checksums.
#[derive(Clone, Copy, Debug)]
pub struct UnsealedHeader(LaidHeader);

impl UnsealedHeader {
    /// Put the checksums in: that of the body, which is computed here, and the header's own, which
    /// starts from the segment's seed.
    #[inline(always)]
    #[must_use]
    pub fn seal(self, seed: u32, body_crc: impl FnOnce() -> u32) -> LaidHeader {
        let Self(mut laid) = self;
        laid.fixed[1] |= u64::from(body_crc());
        let header_crc = match laid.len {
            HEADER_LEN => crc32c_from(seed, &laid.covered()[..HEADER_LEN]),
            WITH_TOPIC => crc32c_from(seed, &laid.covered()),
            _ => laid.long_crc(seed),
        };
        let crcs = u64::from(laid.body_crc()) | u64::from(header_crc) << 32;
        laid.fixed[1] = crcs;
        laid
    }
}

/// Return the bytes that the checksum of a plain header covers: its words, with the position in
/// place of that checksum.
#[inline(always)]
fn covered(word: u64, [crcs, numbers, time_flags]: [u64; 3]) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    put(&mut bytes, at::COMMIT, &covered_word(word));
    put(&mut bytes, at::BODY_CRC, &crcs.to_le_bytes());
    put(&mut bytes, at::OFFSET, &numbers.to_le_bytes());
    put(&mut bytes, at::TIME, &time_flags.to_le_bytes());
    bytes
}

impl From<PlainHeader> for BlockHeader {
    #[inline(always)]
    fn from(plain: PlainHeader) -> Self {
        let PlainHeader { kind, len, body_crc, offset, count, time, flags } = plain;
        let span = count;
        Self { len, body_crc, offset, count, span, time, flags, ..Self::new(kind) }
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
