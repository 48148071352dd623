//! Files that a bulk load stages beside a log: parts, and the manifests that name them.
//!
//! ```text
//! file     = header 80, frame*           frame = head 32, body
//! manifest = head 80, name of the load, name of the part, (partition: 4, records: 8)*, crc: 4
//! ```
//!
//! A frame has the body of a data block, and its checksum. Neither depends on its place in a log,
//! so a commit keeps both. The id of a part is random and in its name. The checksum of a frame's
//! head begins with that id, and a manifest has a checksum of all heads. So no frame can pass for
//! another part's. Layout: `docs/FORMAT.md`, "Staged parts".

use super::checksum::{crc32, crc32_from};
use super::owned::{check_sealed, seal};
use super::{DecodeError, Decoded, VERSION, check_version, names, put, u32_at, u64_at};

/// First bytes of a part's file.
pub const MAGIC: [u8; 8] = *b"FALAJPRT";
/// First bytes of a manifest.
pub const MANIFEST_MAGIC: [u8; 8] = *b"FALAJMAN";
/// Bytes before the first frame.
pub const HEADER_LEN: usize = 80;
/// Bytes of a frame before its body.
pub const FRAME_LEN: usize = 32;
/// Bytes of a manifest before its names.
pub const MANIFEST_LEN: usize = 80;
/// Longest name of a bulk load or a part, bytes.
pub const MAX_NAME: usize = 200;

/// File ending of a whole part.
const WHOLE: &str = ".part";
/// File ending of a part that is being written.
const UNFINISHED: &str = ".tmp";

const _: () = {
    // With all that follows it, a name stays within the 255 bytes that file systems allow.
    assert!(MAX_NAME + 1 + 16 + WHOLE.len() <= 255 && MAX_NAME + 1 + 5 <= 255);
    assert!(HEADER_LEN % 8 == 0 && FRAME_LEN % 8 == 0);
};

/// Return the directory in which a bulk load stages its parts, for the topic that begins with this
/// number.
pub fn load_dir(load: &str, number: u32) -> String {
    format!("{load}@{number}")
}

/// Split the name of such a directory; `None` for any other.
pub fn parse_load_dir(name: &str) -> Option<(&str, u32)> {
    let (load, digits) = name.rsplit_once('@')?;
    let number: u32 = digits.parse().ok()?;
    (complaint(load).is_none() && number.to_string() == digits).then_some((load, number))
}

/// Return the name of a part's file.
pub fn file_name(part: &str, id: u64, is_whole: bool) -> String {
    format!("{part}.{id:016x}{}", if is_whole { WHOLE } else { UNFINISHED })
}

/// Split the name of a part's file into its part, its id and whether it is whole; `None` for any
/// other.
pub fn parse_file_name(name: &str) -> Option<(&str, u64, bool)> {
    let whole = name.strip_suffix(WHOLE);
    let (part, digits) = whole.or_else(|| name.strip_suffix(UNFINISHED))?.rsplit_once('.')?;
    let id = u64::from_str_radix(digits, 16).ok()?;
    (complaint(part).is_none() && file_name(part, id, whole.is_some()) == name).then_some((
        part,
        id,
        whole.is_some(),
    ))
}

/// Say what is wrong with the name of a bulk load or a part; `None` when it is valid.
pub fn complaint(name: &str) -> Option<String> {
    match names::complaint(name) {
        None if name.len() > MAX_NAME => {
            Some(format!("it has at most {MAX_NAME} characters, this one has {}", name.len()))
        }
        complaint => complaint,
    }
}

/// The owner of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Generation of the log.
    pub log: [u8; 16],
    /// Generation of the topic.
    pub topic: [u8; 16],
    /// Random id of the part.
    pub id: u64,
}

/// The header of a part's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHeader {
    /// The part's owner.
    pub owner: Owner,
    /// Id of the name of the load's idempotency key, and its version; zeros without one.
    pub token: (u64, u64),
}

impl PartHeader {
    /// Lay it out.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 16, &self.owner.log);
        put(&mut out, 32, &self.owner.topic);
        put(&mut out, 48, &self.owner.id.to_le_bytes());
        put(&mut out, 56, &self.token.0.to_le_bytes());
        put(&mut out, 64, &self.token.1.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Read it.
    ///
    /// # Errors
    /// `Damaged` when it is torn or something else, `Version` for another version.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(DecodeError::Damaged("a staged part without a whole header"));
        };
        let damaged = "the checksum of a staged part's header does not match";
        check_sealed(bytes, HEADER_LEN, MAGIC, "not a staged part", damaged)?;
        let owner = owner_at(bytes);
        Ok(Self { owner, token: (u64_at(bytes, 56), u64_at(bytes, 64)) })
    }
}

/// A frame: all that belongs to a block's body except its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Partition of the topic.
    pub partition: u32,
    /// Number of records.
    pub count: u32,
    /// Bytes of the body.
    pub len: u32,
    /// CRC-32 of the body.
    pub body_crc: u32,
    /// Highest event time in it, nanoseconds since 1970, if any record has one.
    pub highest_ns: Option<i64>,
    /// Flags of the body.
    pub flags: u16,
    /// True when some record has the time of its append.
    pub uses_append_time: bool,
}

impl Frame {
    /// Lay its head out, for a place in the file of the part with this id.
    pub fn encode(&self, id: u64, position: u64) -> [u8; FRAME_LEN] {
        let mut out = [0; FRAME_LEN];
        put(&mut out, 0, &self.partition.to_le_bytes());
        put(&mut out, 4, &self.count.to_le_bytes());
        put(&mut out, 8, &self.len.to_le_bytes());
        put(&mut out, 12, &self.body_crc.to_le_bytes());
        put(&mut out, 16, &self.highest_ns.unwrap_or(i64::MIN).to_le_bytes());
        put(&mut out, 24, &self.flags.to_le_bytes());
        put(&mut out, 26, &u16::from(self.uses_append_time).to_le_bytes());
        let crc = head_crc(id, position, &out);
        put(&mut out, FRAME_LEN - 4, &crc.to_le_bytes());
        out
    }

    /// Read a frame's head at a place in the file of the part with this id.
    ///
    /// # Errors
    /// `Damaged` when it is torn or another's, `Unknown` for flags of a newer version.
    pub fn decode(bytes: &[u8], id: u64, position: u64) -> Decoded<Self> {
        let Some(bytes) = bytes.first_chunk::<FRAME_LEN>() else {
            return Err(DecodeError::Damaged("a staged frame that is cut off"));
        };
        if head_crc(id, position, bytes) != u32_at(bytes, FRAME_LEN - 4) {
            return Err(DecodeError::Damaged("the checksum of a staged frame does not match"));
        }
        let highest = u64_at(bytes, 16) as i64;
        let frame = Self {
            partition: u32_at(bytes, 0),
            count: u32_at(bytes, 4),
            len: u32_at(bytes, 8),
            body_crc: u32_at(bytes, 12),
            highest_ns: (highest != i64::MIN).then_some(highest),
            flags: u16::from_le_bytes([bytes[24], bytes[25]]),
            uses_append_time: bytes[26] & 1 != 0,
        };
        use super::block::flag::{EVENT_TIME, RICH};
        if frame.flags & !(RICH | EVENT_TIME) != 0 || bytes[26] > 1 || bytes[27] != 0 {
            return Err(DecodeError::Unknown("a staged frame of a newer version"));
        }
        if frame.count == 0 || frame.len == 0 {
            return Err(DecodeError::Damaged("a staged frame without records"));
        }
        Ok(frame)
    }
}

fn head_crc(id: u64, position: u64, head: &[u8; FRAME_LEN]) -> u32 {
    let seeded = crc32_from(crc32(&id.to_le_bytes()), &position.to_le_bytes());
    crc32_from(seeded, &head[..FRAME_LEN - 4])
}

/// The description of a finished part; the committer of the load gets one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The part's owner.
    pub owner: Owner,
    /// Name of the load.
    pub load: String,
    /// Name of the part.
    pub part: String,
    /// Bytes of the file; 0 without one, as for a part without records.
    pub len: u64,
    /// Frames in it.
    pub frames: u32,
    /// CRC-32 of the heads of all frames, in sequence.
    pub heads_crc: u32,
    /// Records in each partition that has any, lowest partition first.
    pub records: Vec<(u32, u64)>,
}

impl Manifest {
    /// Lay it out.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; MANIFEST_LEN];
        put(&mut out, 0, &MANIFEST_MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 12, &(self.records.len() as u32).to_le_bytes());
        put(&mut out, 16, &self.owner.log);
        put(&mut out, 32, &self.owner.topic);
        put(&mut out, 48, &self.owner.id.to_le_bytes());
        put(&mut out, 56, &self.len.to_le_bytes());
        put(&mut out, 64, &self.frames.to_le_bytes());
        put(&mut out, 68, &self.heads_crc.to_le_bytes());
        put(&mut out, 72, &[self.load.len() as u8, self.part.len() as u8]);
        out.extend_from_slice(self.load.as_bytes());
        out.extend_from_slice(self.part.as_bytes());
        for (partition, records) in &self.records {
            out.extend(partition.to_le_bytes());
            out.extend(records.to_le_bytes());
        }
        out.extend(crc32(&out).to_le_bytes());
        out
    }

    /// Read it.
    ///
    /// # Errors
    /// `Damaged` when it is torn or something else, `Version` for another version.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        const CUT_OFF: DecodeError = DecodeError::Damaged("the manifest of a part is cut off");
        if bytes.get(..8) != Some(&MANIFEST_MAGIC[..]) {
            return Err(DecodeError::Damaged("these bytes are not the manifest of a part"));
        }
        let Some((rest, crc)) = bytes.split_last_chunk::<4>() else { return Err(CUT_OFF) };
        if rest.len() < MANIFEST_LEN {
            return Err(CUT_OFF);
        }
        if crc32(rest) != u32::from_le_bytes(*crc) {
            return Err(DecodeError::Damaged("the checksum of a part's manifest does not match"));
        }
        check_version(u32_at(rest, 8))?;
        let (load, part) = (usize::from(rest[72]), usize::from(rest[73]));
        let (head, behind) = rest.split_at(MANIFEST_LEN);
        let (load, behind) = behind.split_at_checked(load).ok_or(CUT_OFF)?;
        let (part, records) = behind.split_at_checked(part).ok_or(CUT_OFF)?;
        if records.len() as u64 != u64::from(u32_at(head, 12)) * 12 {
            return Err(CUT_OFF);
        }
        let records = records.chunks_exact(12).map(|pair| (u32_at(pair, 0), u64_at(pair, 4)));
        Ok(Self {
            owner: owner_at(head),
            load: name(load)?,
            part: name(part)?,
            len: u64_at(head, 56),
            frames: u32_at(head, 64),
            heads_crc: u32_at(head, 68),
            records: records.collect(),
        })
    }
}

fn name(bytes: &[u8]) -> Decoded<String> {
    let name = std::str::from_utf8(bytes).ok().filter(|name| complaint(name).is_none());
    let bad = DecodeError::Damaged("the manifest of a part names what no part is called");
    name.map(str::to_owned).ok_or(bad)
}

fn owner_at(bytes: &[u8]) -> Owner {
    let id = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
    Owner { log: id(16), topic: id(32), id: u64_at(bytes, 48) }
}

#[cfg(test)]
#[path = "part_tests.rs"]
mod tests;
