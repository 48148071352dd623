//! The content of records: made from writer and number, so that the checker can make it again.
//!
//! A value begins with sixteen bytes, *writer, length, number*, and continues with bytes of a pool
//! that all processes of a run share. Values too short for that have the sixteen bytes as their
//! key. Bare records are empty. `worker.py` makes the same records; the checker compares both with
//! the same rules.

use crc32fast::Hasher;
use falaj::internals::topic::NewRecord;

use crate::random::Random;

/// Bytes that identify the writer of a record.
pub const ID: usize = 16;
/// Flag of the length: key and header beside the value.
const RICH: u32 = 1 << 31;
/// Offsets that one hash of a reader covers.
pub const BLOCK: u64 = 1000;
const POOL: usize = 128 << 10;
const NO_KEY: u32 = u32::MAX;

/// Longest value.
pub const MAX_VALUE: usize = 64 << 10;

/// Bytes that values are cut from.
pub struct Pool(Vec<u8>);

impl Pool {
    /// The pool of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 77);
        Self((0..POOL / 8).flat_map(|_| random.next().to_le_bytes()).collect())
    }

    /// Its bytes, for workers that are not written in Rust.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn cut(&self, writer: u32, seq: u64, len: usize) -> &[u8] {
        let mixed = seq
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(u64::from(writer).wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
        let start = (mixed >> 40) as usize & 0xffff;
        &self.0[start..start + len]
    }
}

/// The content of one record, to be written or as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Vec<u8>,
    /// Its one header, if it has any.
    pub header: Option<Vec<u8>>,
}

impl Made {
    /// Make the record `seq` of a writer, with a value of `len` bytes.
    pub fn fill(&mut self, pool: &Pool, writer: u32, seq: u64, len: usize, rich: bool) {
        self.value.clear();
        (self.key, self.header) = (None, None);
        let flags = if rich && len >= ID { RICH } else { 0 };
        let mut id = [0; ID];
        id[..4].copy_from_slice(&writer.to_le_bytes());
        id[4..8].copy_from_slice(&(len as u32 | flags).to_le_bytes());
        id[8..].copy_from_slice(&seq.to_le_bytes());
        if len < ID {
            self.key = Some(id.to_vec());
            self.value.extend_from_slice(pool.cut(writer, seq, len));
            return;
        }
        self.value.extend_from_slice(&id);
        self.value.extend_from_slice(pool.cut(writer, seq, len - ID));
        if flags != 0 {
            self.key = Some(pool.cut(writer, seq, 9).to_vec());
            self.header = Some(pool.cut(writer, seq, 5).to_vec());
        }
    }

    /// Make it an empty record.
    pub fn fill_bare(&mut self) {
        *self = Self::default();
    }

    /// The record, headers in `place`.
    pub fn record<'a>(&'a self, place: &'a mut [(&'a str, Option<&'a [u8]>); 1]) -> NewRecord<'a> {
        let headers: &[_] = match &self.header {
            Some(header) => {
                place[0] = ("h", Some(header));
                place
            }
            None => &[],
        };
        NewRecord { key: self.key.as_deref(), headers, ..NewRecord::new(&self.value) }
    }
}

/// The writer of a record; `None` for a bare one, an error for a record of no writer.
pub fn who(key: Option<&[u8]>, value: &[u8]) -> Result<Option<(u32, u64, usize, bool)>, ()> {
    let id = match key {
        None if value.is_empty() => return Ok(None),
        Some(key) if value.len() < ID => key,
        _ => value.get(..ID).ok_or(())?,
    };
    let id: &[u8; ID] = id.try_into().map_err(|_| ())?;
    let word = |at: usize| u32::from_le_bytes([id[at], id[at + 1], id[at + 2], id[at + 3]]);
    let seq = u64::from(word(8)) | u64::from(word(12)) << 32;
    let len = (word(4) & !RICH) as usize;
    if len != value.len() { Err(()) } else { Ok(Some((word(0), seq, len, word(4) & RICH != 0))) }
}

/// Update a checksum with a record.
pub fn crc_on(crc: u32, key: Option<&[u8]>, value: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    let mut lengths = [0; 8];
    lengths[..4].copy_from_slice(&key.map_or(NO_KEY, |key| key.len() as u32).to_le_bytes());
    lengths[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
    hasher.update(&lengths);
    hasher.update(key.unwrap_or_default());
    hasher.update(value);
    hasher.finalize()
}

/// Length of the next value: most about a hundred bytes, some none, a few very many.
pub fn length(random: &mut Random, limit: usize) -> usize {
    let drawn = match random.below(10_000) {
        0..8_000 => random.between(60, 140),
        8_000..8_300 => random.below(16),
        8_300..9_800 => random.between(16, 60),
        9_800..9_975 => random.between(140, 2_048),
        9_975..9_997 => random.between(2_048, 16_384),
        9_997 => limit as u64,
        _ => random.between(16_384, MAX_VALUE as u64),
    };
    (drawn as usize).min(limit).min(MAX_VALUE)
}
