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
//! this segment (its tag holds salt and position), and a header that [`BlockHeader::verify`] accepts is
//! what a writer wrote there, bit for bit. Layout: `docs/FORMAT.md`, "Block".

use crate::canary::{Canary, planted};

use super::address::{ALIGN, align};
use super::crc32c::crc32c_from;
use super::{DecodeError, Decoded, put, u32_at, u64_at};

/// Bytes of a header without extensions.
pub const HEADER_LEN: usize = 32;
/// Bytes of a header with every extension.
pub const MAX_HEADER_LEN: usize = HEADER_LEN + 4 + 4 + 4 + PRODUCER_LEN;
/// Bytes of the extension that says who sent the block.
pub const PRODUCER_LEN: usize = 24;
/// Relative times beyond this need a new segment.
pub const MAX_RELATIVE_TIME: u64 = (1 << 48) - 1;

/// Offset of each field, also used by the tests that hold `docs/FORMAT.md` against the code.
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

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Records of one topic.
    Data = 1,
    /// Covers what a dead writer left half done; skipped.
    Void = 2,
    /// Facts about the log: topics, trims, tokens, cursors.
    Meta = 3,
    /// What the log knows at this point, so that older segments may go.
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
    /// What the block is for.
    pub kind: Kind,
}

/// 24 bits that tie a commit word to its segment and position.
#[inline(always)]
fn tag(salt: u64, position: u64) -> u64 {
    let salt = if planted(Canary::CrcWithoutSalt) { 0 } else { salt };
    (salt ^ position).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// The commit word as the header's checksum covers it.
#[inline(always)]
fn covered_word(word: u64) -> [u8; 8] {
    if planted(Canary::CrcWithoutCommitWord) { [0; 8] } else { word.to_le_bytes() }
}

impl CommitWord {
    /// The word for a position of the segment with this salt.
    #[inline(always)]
    pub fn pack(self, salt: u64, position: u64) -> u64 {
        u64::from(self.len) | (self.kind as u64) << 32 | tag(salt, position) << 40
    }

    /// Take a non-zero word apart.
    ///
    /// # Errors
    /// `Damaged` when the tag, the length or the kind is none that a writer stores here. A kind of a
    /// newer version is no error yet: [`BlockHeader::refuse_newer`] says so once the checksum has spoken.
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

    /// Length of the data block that a word makes exist at a position; `None` for every other word,
    /// about which [`CommitWord::parse`] has more to say.
    #[inline(always)]
    pub fn data_len(word: u64, salt: u64, position: u64) -> Option<u32> {
        let data = Self { len: word as u32, kind: Kind::Data };
        let fits = data.len as usize >= HEADER_LEN;
        (fits && data.pack(salt, position) == word).then_some(data.len)
    }

    /// Bytes up to where the next block starts.
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
    /// Those that leave the header at its shortest.
    pub const PLAIN: u16 = CODEC | RICH | EVENT_TIME;
    /// All that this version knows.
    pub const KNOWN: u16 = CODEC | TOPIC | GROUP | MEMBER | SPARSE | PRODUCER | RICH | EVENT_TIME;
}

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Records one after the other, as [`super::record`] lays them out.
    Plain,
    /// Kept for bodies compressed with LZ4.
    Lz4,
    /// Kept for bodies compressed with Zstandard.
    Zstd,
    /// Kept for a Kafka record batch (magic 2), stored verbatim.
    KafkaBatch,
}

impl Codec {
    /// Number in the header.
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

/// Who sent a block, for dropping repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Id of the producer.
    pub id: u64,
    /// Its running number for this block: the last one where the block has several.
    pub sequence: u64,
    /// How many of its numbers the block has, that one counted; 0 where more than 32 bits can say.
    pub span: u32,
    /// Bits of [`producer_flag`].
    pub flags: u32,
}

/// Bits of a producer's flags.
pub mod producer_flag {
    /// The log may forget the producer by itself once it was not used for long.
    pub const EXPIRING: u32 = 1;
    /// All that this version knows.
    pub const KNOWN: u32 = EXPIRING;
}

impl Producer {
    /// Id of the producer of this name: its FNV-1a hash of 64 bits. Of 65,536 names, two are alike with
    /// a chance of one in eight thousand million.
    pub fn id_of(name: &str) -> u64 {
        let (basis, prime) = (0xcbf2_9ce4_8422_2325u64, 0x0100_0000_01b3);
        name.bytes().fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(prime))
    }
}

/// Everything that a block's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the block is for.
    pub kind: Kind,
    /// Bytes from the block's start to the end of its body.
    pub len: u32,
    /// CRC-32 of the body.
    pub body_crc: u32,
    /// First offset, relative to the topic's base in this segment.
    pub offset: u32,
    /// Number of records.
    pub count: u32,
    /// Offsets from the first to the last, both counted; equals `count` unless sparse.
    pub span: u32,
    /// Microseconds since the segment's time base.
    pub time: u64,
    /// Flags, codec included.
    pub flags: u16,
    /// Topic number in the log.
    pub topic: u32,
    /// Bytes of the whole group, padding counted, in the head of a group; else 0.
    pub group_len: u32,
    /// Who sent it.
    pub producer: Option<Producer>,
}

impl BlockHeader {
    /// A header for a block of this kind with nothing in it.
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

    /// Bytes of a header with these flags.
    #[inline]
    pub fn len_for(flags: u16) -> usize {
        if flags & !flag::PLAIN == 0 {
            return HEADER_LEN;
        }
        let quads = (flags & (flag::TOPIC | flag::GROUP | flag::SPARSE)).count_ones() as usize;
        HEADER_LEN + 4 * quads + if flags & flag::PRODUCER != 0 { PRODUCER_LEN } else { 0 }
    }

    /// Bytes of this header, where the body starts.
    #[inline]
    pub fn header_len(&self) -> usize {
        Self::len_for(self.flags)
    }

    /// Bytes of the body.
    #[inline]
    pub fn body_len(&self) -> usize {
        self.len as usize - self.header_len()
    }

    /// Bytes up to where the next block starts.
    #[inline]
    pub fn padded(&self) -> u64 {
        align(u64::from(self.len))
    }

    /// How the body is encoded.
    ///
    /// # Errors
    /// `Unknown` for a codec of a newer version.
    pub fn codec(&self) -> Decoded<Codec> {
        Codec::parse(self.flags)
    }

    /// True for the second and later blocks of a group.
    #[inline]
    pub fn is_member(&self) -> bool {
        self.flags & flag::MEMBER != 0
    }

    /// Lay the header out for a position. Its checksums come with [`UnsealedHeader::seal`].
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

    /// Lay the header out for a position, with its checksums. Returns the commit word and how many bytes
    /// of `out` are the header; the first eight stay zero, for the commit word is stored last.
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
    /// `Damaged` where no writer leaves such a header.
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

    /// Refuse what only a newer version understands. To be asked after [`BlockHeader::verify`]: before,
    /// a strange bit is more likely damage.
    ///
    /// # Errors
    /// `Unknown`, with what it is.
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

    /// True when the body's checksum is part of what makes the block valid. A void block covers
    /// what happened to be there.
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
    /// As in [`BlockHeader`], without those that announce an extension.
    pub flags: u16,
}

impl PlainHeader {
    /// Read the header of a data block of this length, from the words behind its commit word; `None`
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

    /// Check the checksum of the header in the words behind this commit word. Every bit of them is in
    /// one of the fields, so what [`UnsealedHeader::seal`] put there is what is checked.
    #[inline(always)]
    pub fn is_sound(word: u64, words: [u64; 3], seed: u32, position: u64) -> bool {
        let [crcs, numbers, time_flags] = words;
        let header_crc = (crcs >> 32) as u32;
        let crcs = u64::from(crcs as u32) | u64::from((position / ALIGN) as u32) << 32;
        crc32c_from(seed, &covered(word, [crcs, numbers, time_flags])) == header_crc
    }
}

/// Words that extensions take.
const REST_WORDS: usize = (MAX_HEADER_LEN - HEADER_LEN).div_ceil(8);

/// A header laid out for a place in a segment, as words: in registers, where it has no extension or the
/// topic's number alone.
#[derive(Clone, Copy, Debug)]
pub struct LaidHeader {
    /// The commit word, and the three words that every header has behind it.
    fixed: [u64; HEADER_LEN / 8],
    rest: [u64; REST_WORDS],
    len: usize,
}

/// Bytes of a header that has the topic's number as its only extension.
const WITH_TOPIC: usize = HEADER_LEN + 4;

impl LaidHeader {
    /// Put bytes behind what is there, all of them in one value, lowest first; those of the value behind
    /// `len` are zero.
    fn push(&mut self, value: u64, len: usize) {
        let behind = self.len - HEADER_LEN;
        let (at, shift) = (behind / 8, 8 * (behind % 8));
        self.rest[at] |= value << shift;
        if shift != 0 {
            self.rest[at + 1] |= value >> (64 - shift);
        }
        self.len += len;
    }

    /// What its checksum covers, if it has no extension or the topic's number alone.
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

    /// The commit word, which is stored last.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        self.fixed[0]
    }

    /// The checksum of the body.
    #[inline(always)]
    pub fn body_crc(&self) -> u32 {
        self.fixed[1] as u32
    }

    /// The three words that every header has behind its commit word.
    #[inline(always)]
    pub fn fixed(&self) -> [u64; 3] {
        let [_, fixed @ ..] = self.fixed;
        fixed
    }

    /// What stands behind these: the extensions; what the last word has more is zero.
    #[inline(always)]
    pub fn rest(&self) -> &[u64] {
        &self.rest[..self.rest_words()]
    }

    /// How many words that is.
    #[inline(always)]
    pub fn rest_words(&self) -> usize {
        (self.len - HEADER_LEN).div_ceil(8)
    }

    /// The first of them.
    #[inline(always)]
    pub fn first_of_rest(&self) -> u64 {
        self.rest[0]
    }

    /// How many bytes it is: where the body goes.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "there is none without a byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its bytes, with another first word.
    fn fill(&self, first: u64, out: &mut [u8; MAX_HEADER_LEN]) {
        let [_, fixed @ ..] = self.fixed;
        let words = std::iter::once(first).chain(fixed).chain(self.rest);
        for (bytes, word) in out.chunks_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
    }
}

/// A header whose checksums are not in it yet.
#[derive(Clone, Copy, Debug)]
pub struct UnsealedHeader(LaidHeader);

impl UnsealedHeader {
    /// Put the checksums in: that of the body, which is taken here, and its own, which starts from the
    /// segment's seed.
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

/// What the checksum of a plain header covers: its words, the position where that checksum stands.
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
