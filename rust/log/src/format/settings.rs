//! The two JSON files of a store that hold settings: `falaj.json` and `topic.json`.
//!
//! Owns these, and the shape that the file `origin` has as well ([`super::origin`]). Each is one JSON object on one line. Its last member is `"checksum"`: the CRC-32, as eight
//! hexadecimal digits, of all bytes before the comma in front of that member. A person can read the
//! files, and an edit by hand is noticed. Members about retention are there only if it was set, and
//! `revision` only if they were changed since. Layout: `docs/FORMAT.md`, "Settings files".

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::checksum::crc32;
use super::retention::{Retention, is_limit};
use super::{DecodeError, Decoded, VERSION, check_version, names};

/// The name of the function that chooses the partition of a key: the CRC-32 of the key modulo the
/// number of partitions. This version knows no other.
pub const PARTITIONER: &str = "crc32";

/// Bytes of files that retention keeps in each log because they were not shipped, unless the store
/// says otherwise: 16 segments of the usual size. A place that is down for some minutes costs a busy
/// log nothing then, and one that is forgotten does not fill the disk.
pub const SHIP_BACKLOG: u64 = 1 << 30;

/// Most bytes of a topic's properties, names and values together.
pub const MAX_PROPERTIES: usize = 16 << 10;
/// Longest name of a property, bytes.
pub const MAX_PROPERTY_NAME: usize = 128;

/// How processes write to a store, fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// Stores into mapped memory; locks are words in it.
    Mapped,
    /// `pwrite`, and `flock` for the locks, for file systems where allocation reserves no space.
    Pwrite,
}

impl WriteMode {
    /// Return its name in `falaj.json`.
    pub fn name(self) -> &'static str {
        match self {
            WriteMode::Mapped => "mapped",
            WriteMode::Pwrite => "pwrite",
        }
    }
}

/// The contents of `falaj.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Random id of the store.
    pub id: [u8; 16],
    /// When it was created, microseconds since 1970.
    pub created_us: i64,
    /// How processes write to it.
    pub write_mode: WriteMode,
    /// Most bytes of the logs of all topics together; `None` is no limit.
    pub retention_bytes: Option<u64>,
    /// Most bytes of files that retention keeps in each log because they were not shipped; `None` is
    /// [`SHIP_BACKLOG`].
    pub ship_backlog_bytes: Option<u64>,
    /// How many places must have a record before an append in `sync=remote` returns; `None` is one.
    pub ship_min_sync: Option<u64>,
    /// How often the limits were changed.
    pub revision: u64,
}

/// The contents of `topic.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Its name.
    pub name: String,
    /// Random id that it got when it was created.
    pub generation: [u8; 16],
    /// Name of the log it lives in.
    pub log: String,
    /// Generation of that log.
    pub log_generation: [u8; 16],
    /// How many partitions it has; partition `p` has topic number `number + p` in the log.
    pub partitions: u32,
    /// Topic number of partition 0.
    pub number: u32,
    /// Name of the codec that converts payloads to values; the engine only stores it.
    pub codec: String,
    /// True while no program has named a codec, and so none has appended. Any codec may still be named then.
    pub codec_unnamed: bool,
    /// Name of the function that chooses the partition of a key. Every writer must know that
    /// function.
    pub partitioner: String,
    /// Values that applications store with the topic, by name.
    pub properties: BTreeMap<String, String>,
    /// Bytes at which a segment is full.
    pub segment_bytes: u64,
    /// Milliseconds between syncs in interval mode.
    pub sync_interval_ms: u64,
    /// True when compaction may remove records, so that offsets may have gaps.
    pub compacted: bool,
    /// When it was created, microseconds since 1970.
    pub created_us: i64,
    /// Its limits of retention.
    pub retention: Retention,
    /// How often the limits were changed.
    pub revision: u64,
}

impl StoreSettings {
    /// Encode the file's text.
    pub fn encode(&self) -> String {
        let mut members = vec![
            ("format", VERSION.into()),
            ("store", names::hex(&self.id).into()),
            ("created_us", self.created_us.into()),
            ("write_mode", self.write_mode.name().into()),
        ];
        let numbers = [
            ("retention_bytes", self.retention_bytes),
            ("ship_backlog_bytes", self.ship_backlog_bytes),
            ("ship_min_sync", self.ship_min_sync),
            revision(self.revision),
        ];
        members.extend(numbers.into_iter().filter_map(given));
        seal(&members)
    }

    /// Read the file's bytes.
    ///
    /// # Errors
    /// `Damaged`, `Unknown` or `Version`, as the bytes are.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut members = JsonMembers::open(bytes)?;
        let write_mode = match members.text("write_mode")?.as_str() {
            "mapped" => WriteMode::Mapped,
            "pwrite" => WriteMode::Pwrite,
            _ => return Err(DecodeError::Unknown("a write mode of a newer version")),
        };
        let settings = Self {
            id: members.id("store")?,
            created_us: members.signed("created_us")?,
            write_mode,
            retention_bytes: members.optional_number("retention_bytes")?,
            ship_backlog_bytes: members.optional_number("ship_backlog_bytes")?,
            ship_min_sync: members.optional_number("ship_min_sync")?,
            revision: members.optional_number("revision")?.unwrap_or(0),
        };
        members.finish()?;
        // A limit of 0 would let retention delete everything, or an append wait for no place.
        let limits =
            [settings.retention_bytes, settings.ship_backlog_bytes, settings.ship_min_sync];
        if limits.into_iter().flatten().all(is_limit) { Ok(settings) } else { Err(NO_LIMIT) }
    }
}

impl TopicSettings {
    /// Encode the file's text.
    pub fn encode(&self) -> String {
        let mut members = vec![
            ("format", VERSION.into()),
            ("topic", self.name.as_str().into()),
            ("generation", names::hex(&self.generation).into()),
            ("log", self.log.as_str().into()),
            ("log_generation", names::hex(&self.log_generation).into()),
            ("partitions", self.partitions.into()),
            ("number", self.number.into()),
            ("codec", self.codec.as_str().into()),
            ("partitioner", self.partitioner.as_str().into()),
            ("segment_bytes", self.segment_bytes.into()),
            ("sync_interval_ms", self.sync_interval_ms.into()),
            ("compacted", self.compacted.into()),
            ("created_us", self.created_us.into()),
        ];
        let Retention { bytes, age_ms, records, waits, protected } = self.retention;
        let numbers = [
            ("retention_bytes", bytes),
            ("retention_age_ms", age_ms),
            ("retention_records", records),
        ];
        members.extend(numbers.into_iter().filter_map(given));
        let flags = [("retention_waits", waits), ("retention_protected", protected)];
        members
            .extend(flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, true.into())));
        if !self.properties.is_empty() {
            members.push(("properties", Map::from_iter(texts(&self.properties)).into()));
        }
        if self.codec_unnamed {
            members.push(("codec_unnamed", true.into()));
        }
        members.extend(given(revision(self.revision)));
        seal(&members)
    }

    /// Read the file's bytes.
    ///
    /// # Errors
    /// `Damaged`, `Unknown` or `Version`, as the bytes are.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut members = JsonMembers::open(bytes)?;
        let narrow = |n: u64| u32::try_from(n).map_err(|_| WRONG_MEMBER);
        let settings = Self {
            name: members.text("topic")?,
            generation: members.id("generation")?,
            log: members.text("log")?,
            log_generation: members.id("log_generation")?,
            partitions: narrow(members.number("partitions")?)?,
            number: narrow(members.number("number")?)?,
            codec: members.text("codec")?,
            codec_unnamed: members.optional_flag("codec_unnamed")?,
            partitioner: members.text("partitioner")?,
            properties: members.texts("properties")?,
            segment_bytes: members.number("segment_bytes")?,
            sync_interval_ms: members.number("sync_interval_ms")?,
            compacted: members.flag("compacted")?,
            created_us: members.signed("created_us")?,
            retention: Retention {
                bytes: members.optional_number("retention_bytes")?,
                age_ms: members.optional_number("retention_age_ms")?,
                records: members.optional_number("retention_records")?,
                waits: members.optional_flag("retention_waits")?,
                protected: members.optional_flag("retention_protected")?,
            },
            revision: members.optional_number("revision")?.unwrap_or(0),
        };
        members.finish()?;
        if !settings.retention.is_within_limits() {
            return Err(NO_LIMIT);
        }
        let named =
            names::complaint(&settings.name).is_none() && names::complaint(&settings.log).is_none();
        if named && settings.partitions > 0 {
            return Ok(settings);
        }
        Err(WRONG_MEMBER)
    }

    /// Return the directory of its log, under `logs/`.
    pub fn log_dir(&self) -> String {
        names::log_dir(&self.log, &self.log_generation)
    }
}

fn texts(texts: &BTreeMap<String, String>) -> impl Iterator<Item = (String, Value)> + '_ {
    texts.iter().map(|(name, text)| (name.clone(), text.as_str().into()))
}

pub(super) const WRONG_MEMBER: DecodeError =
    DecodeError::Damaged("a member is missing or of the wrong type");
const NO_LIMIT: DecodeError =
    DecodeError::Damaged("a limit of retention that is not 1 to 9223372036854775807");
const CHECKSUM: &str = ",\"checksum\":\"";

fn revision(revision: u64) -> (&'static str, Option<u64>) {
    ("revision", (revision > 0).then_some(revision))
}

fn given((name, number): (&'static str, Option<u64>)) -> Option<(&'static str, Value)> {
    number.map(|number| (name, number.into()))
}

pub(super) fn seal(members: &[(&str, Value)]) -> String {
    let members: Vec<_> =
        members.iter().map(|(name, value)| format!("{}:{value}", Value::from(*name))).collect();
    let text = format!("{{{}", members.join(","));
    format!("{text}{CHECKSUM}{:08x}\"}}\n", crc32(text.as_bytes()))
}

pub(super) struct JsonMembers(Map<String, Value>);

impl JsonMembers {
    pub(super) fn open(bytes: &[u8]) -> Decoded<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Damaged("not text"))?;
        let (sealed, rest) =
            text.rsplit_once(CHECKSUM).ok_or(DecodeError::Damaged("the checksum is missing"))?;
        if rest.trim_end() != format!("{:08x}\"}}", crc32(sealed.as_bytes())) {
            return Err(DecodeError::Damaged("the checksum does not match"));
        }
        let value = serde_json::from_str(text).map_err(|_| DecodeError::Damaged("not JSON"))?;
        let Value::Object(members) = value else {
            return Err(DecodeError::Damaged("not a JSON object"));
        };
        let mut members = Self(members);
        members.text("checksum")?;
        let version = members.number("format")?;
        check_version(u32::try_from(version).unwrap_or(u32::MAX))?;
        Ok(members)
    }

    fn take<T>(&mut self, name: &str, read: impl Fn(&Value) -> Option<T>) -> Decoded<T> {
        self.0.remove(name).as_ref().and_then(read).ok_or(WRONG_MEMBER)
    }

    pub(super) fn text(&mut self, name: &str) -> Decoded<String> {
        self.take(name, |v| v.as_str().map(str::to_owned))
    }

    pub(super) fn number(&mut self, name: &str) -> Decoded<u64> {
        self.take(name, Value::as_u64)
    }

    /// Take an optional number.
    pub(super) fn optional_number(&mut self, name: &str) -> Decoded<Option<u64>> {
        if self.0.contains_key(name) { self.number(name).map(Some) } else { Ok(None) }
    }

    fn optional_flag(&mut self, name: &str) -> Decoded<bool> {
        if self.0.contains_key(name) { self.flag(name) } else { Ok(false) }
    }

    /// Take an optional object of texts.
    fn texts(&mut self, name: &str) -> Decoded<BTreeMap<String, String>> {
        let Some(value) = self.0.remove(name) else { return Ok(BTreeMap::new()) };
        let Value::Object(members) = value else { return Err(WRONG_MEMBER) };
        let text = |(name, value): (String, Value)| match value {
            Value::String(text) => Ok((name, text)),
            _ => Err(WRONG_MEMBER),
        };
        members.into_iter().map(text).collect()
    }

    /// Take an optional array of arrays.
    pub(super) fn optional_arrays(&mut self, name: &str) -> Decoded<Option<Vec<Vec<Value>>>> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let Value::Array(rows) = value else { return Err(WRONG_MEMBER) };
        let cells = |row| match row {
            Value::Array(cells) => Ok(cells),
            _ => Err(WRONG_MEMBER),
        };
        rows.into_iter().map(cells).collect::<Decoded<_>>().map(Some)
    }

    pub(super) fn optional_id(&mut self, name: &str) -> Decoded<Option<[u8; 16]>> {
        if self.0.contains_key(name) { self.id(name).map(Some) } else { Ok(None) }
    }

    fn signed(&mut self, name: &str) -> Decoded<i64> {
        self.take(name, Value::as_i64)
    }

    fn flag(&mut self, name: &str) -> Decoded<bool> {
        self.take(name, Value::as_bool)
    }

    pub(super) fn id(&mut self, name: &str) -> Decoded<[u8; 16]> {
        self.take(name, |v| names::unhex(v.as_str()?))
    }

    pub(super) fn finish(self) -> Decoded<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(DecodeError::Unknown("a setting of a newer version"))
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
