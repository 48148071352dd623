//! Options for opening a store or a topic, and their limits.
//!
//! Owns defaults, limits and the comparison of requested with stored settings. An explicit request
//! either succeeds or is refused by name: a setting that silently differs would lose data.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::PAGE;
use crate::format::address::MAX_POSITION;
use crate::format::names;
use crate::format::retention::Retention;
use crate::format::settings::{PARTITIONER, TopicSettings, WriteMode};
use crate::format::state::MAX_TOPICS;
use crate::log::Reading;

use super::configure::{RetentionChange, differ};

/// The purpose of opening a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Access {
    /// Reading only: nothing is ever created or changed, no lock is taken.
    Read,
    /// Reading and writing; what is missing is created.
    #[default]
    Write,
}

/// Options for opening a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The purpose.
    pub access: Access,
    /// Permission bits of the directories of a new store: 0o700, 0o750 (a group may read), 0o770 (a
    /// group may write), and so on. Those of its files follow.
    pub mode: u32,
    /// How processes write to it; `None` uses the stored mode, or the one that suits the file
    /// system.
    pub write_mode: Option<WriteMode>,
    /// Whether opening it for writing creates a missing store; true by default.
    pub create: bool,
    /// Use a file system on which falaj cannot keep its promises, such as NFS.
    pub allow_network_fs: bool,
    /// How long to wait for others that open or change the store now.
    pub lock_timeout: Duration,
    /// How segments are read: mapped, or by `pread` where a map is dangerous, which is on a dying
    /// disk or where other programs truncate files.
    pub reading: Reading,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            access: Access::Write,
            mode: 0o700,
            write_mode: None,
            create: true,
            allow_network_fs: false,
            lock_timeout: Duration::from_secs(10),
            reading: Reading::Map,
        }
    }
}

impl StoreOptions {
    /// Return the defaults for reading only.
    #[doc(hidden)]
    pub fn reading() -> Self {
        Self { access: Access::Read, ..Self::default() }
    }
}

/// Fewest bytes of a segment.
pub const MIN_SEGMENT_BYTES: u64 = 64 << 10;
/// Most bytes of a segment: the last whole page that an address can name.
pub const MAX_SEGMENT_BYTES: u64 = MAX_POSITION / PAGE * PAGE;
/// Bytes of a segment by default.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Milliseconds between two syncs by default.
pub const SYNC_INTERVAL_MS: u64 = 100;
/// Most milliseconds between two syncs: an hour.
pub const MAX_SYNC_INTERVAL_MS: u64 = 3_600_000;
/// Longest name of a codec.
pub const MAX_CODEC: usize = 64;
/// The codec that returns values unchanged.
pub const CODEC: &str = "bytes";

/// Options for opening a topic. `None` uses the stored setting, or the default for a new topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicOptions {
    /// Refuse to create the topic: [`Error::UnknownTopic`] if it does not exist.
    pub must_exist: bool,
    /// Name of its log, which several topics may share; by default a log of its own, with the
    /// topic's name. Segment size and interval are those of the log.
    pub log: Option<String>,
    /// How many partitions it has; 1 by default.
    pub partitions: Option<u32>,
    /// Name of the codec of its values. A topic that is created without one has [`CODEC`], unless `codec_later` is set.
    pub codec: Option<String>,
    /// True if a topic that is created without a codec takes the one that is named first, by an opening or an append.
    pub codec_later: bool,
    /// Bytes at which a segment is full; [`SEGMENT_BYTES`] by default.
    pub segment_bytes: Option<u64>,
    /// Milliseconds between syncs; [`SYNC_INTERVAL_MS`] by default.
    pub sync_interval_ms: Option<u64>,
    /// True when compaction may remove records; false by default.
    pub compacted: Option<bool>,
    /// Which records expire; none by default. Unlike the rest it can be
    /// [changed](super::Store::configure_topic) at any time.
    pub retention: RetentionChange,
}

impl TopicOptions {
    /// Check the arguments, before anything is read.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the limit, [`Error::InvalidName`] for a log's name.
    pub fn validate(&self) -> Result<()> {
        if let Some((name, why)) =
            self.log.as_ref().and_then(|name| Some((name, names::complaint(name)?)))
        {
            return Err(Error::InvalidName { what: "log", name: name.clone(), why });
        }
        if let Some(n) = self.partitions.filter(|n| !(1..=MAX_TOPICS).contains(n)) {
            return Err(Error::invalid(format!(
                "a topic has 1 to {MAX_TOPICS} partitions, not {n}"
            )));
        }
        if let Some(codec) = self.codec.as_ref().filter(|codec| !is_codec(codec)) {
            return Err(Error::invalid(format!(
                "{codec:?} cannot name a codec: 1 to {MAX_CODEC} letters, digits, `.`, `_` and `-`"
            )));
        }
        if let Some(bytes) = self.segment_bytes.filter(|bytes| !is_segment_bytes(*bytes)) {
            return Err(Error::invalid(format!(
                "a segment has {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes, a multiple of \
                 {PAGE}, not {bytes}"
            )));
        }
        if let Some(ms) = self.sync_interval_ms.filter(|ms| !is_sync_interval(*ms)) {
            return Err(Error::invalid(format!(
                "the sync interval is 1 to {MAX_SYNC_INTERVAL_MS} milliseconds, not {ms}"
            )));
        }
        self.retention.validate()
    }

    /// Compare the requested settings with the stored ones.
    ///
    /// # Errors
    /// [`Error::SettingsMismatch`] naming the first that differs.
    pub fn compare(&self, stored: &TopicSettings) -> Result<()> {
        let name = &stored.name;
        differ(name, "log", self.log.as_ref(), &stored.log)?;
        differ(name, "partitions", self.partitions.as_ref(), &stored.partitions)?;
        let codec = self.codec.as_ref().filter(|_| !stored.codec_unnamed);
        differ(name, "codec", codec, &stored.codec)?;
        differ(name, "segment_bytes", self.segment_bytes.as_ref(), &stored.segment_bytes)?;
        differ(name, "sync_interval_ms", self.sync_interval_ms.as_ref(), &stored.sync_interval_ms)?;
        differ(name, "compacted", self.compacted.as_ref(), &stored.compacted)?;
        self.retention.compare(name, &stored.retention)
    }

    /// Compare the requested settings with those that the topics of a log share.
    ///
    /// # Errors
    /// As [`TopicOptions::compare`].
    pub(super) fn compare_log(&self, name: &str, sibling: &TopicSettings) -> Result<()> {
        differ(name, "segment_bytes", self.segment_bytes.as_ref(), &sibling.segment_bytes)?;
        differ(name, "sync_interval_ms", self.sync_interval_ms.as_ref(), &sibling.sync_interval_ms)
    }

    /// Return the settings of a new topic with these options, alone in a log.
    pub(super) fn resolve(&self, name: &str, ids: [[u8; 16]; 2], created_us: i64) -> TopicSettings {
        let [generation, log_generation] = ids;
        TopicSettings {
            name: name.to_owned(),
            generation,
            log: self.log.clone().unwrap_or_else(|| name.to_owned()),
            log_generation,
            partitions: self.partitions.unwrap_or(1),
            number: 0,
            codec: self.codec.clone().unwrap_or_else(|| CODEC.to_owned()),
            codec_unnamed: self.codec.is_none() && self.codec_later,
            partitioner: PARTITIONER.to_owned(),
            properties: BTreeMap::new(),
            segment_bytes: self.segment_bytes.unwrap_or(SEGMENT_BYTES),
            sync_interval_ms: self.sync_interval_ms.unwrap_or(SYNC_INTERVAL_MS),
            compacted: self.compacted.unwrap_or(false),
            created_us,
            retention: self.retention.apply(Retention::default()),
            revision: 0,
        }
    }
}

fn is_codec(name: &str) -> bool {
    name.len() <= MAX_CODEC && names::complaint(name).is_none()
}

fn is_segment_bytes(bytes: u64) -> bool {
    (MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&bytes) && bytes % PAGE == 0
}

fn is_sync_interval(ms: u64) -> bool {
    (1..=MAX_SYNC_INTERVAL_MS).contains(&ms)
}

/// Return true for settings that some version of falaj could have written.
pub(super) fn within_limits(topic: &TopicSettings) -> bool {
    let last = topic.number.checked_add(topic.partitions);
    last.is_some_and(|last| topic.partitions >= 1 && last <= MAX_TOPICS)
        && is_codec(&topic.codec)
        && is_segment_bytes(topic.segment_bytes)
        && is_sync_interval(topic.sync_interval_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_a_limit_is_refused_and_the_limit_named() {
        let with = |change: fn(&mut TopicOptions)| {
            let mut options = TopicOptions::default();
            change(&mut options);
            options.validate()
        };
        let refused: [(Result<()>, &str); 11] = [
            (with(|o| o.partitions = Some(0)), "10000"),
            (with(|o| o.partitions = Some(MAX_TOPICS + 1)), "10000"),
            (with(|o| o.segment_bytes = Some(MIN_SEGMENT_BYTES - PAGE)), "65536"),
            (with(|o| o.segment_bytes = Some(MIN_SEGMENT_BYTES + 8)), "4096"),
            (with(|o| o.segment_bytes = Some(MAX_SEGMENT_BYTES + PAGE)), "34359734272"),
            (with(|o| o.codec = Some(String::new())), "64"),
            (with(|o| o.codec = Some("x".repeat(65))), "64"),
            (with(|o| o.codec = Some("a/b".into())), "64"),
            (with(|o| o.sync_interval_ms = Some(0)), "3600000"),
            (with(|o| o.sync_interval_ms = Some(3_600_001)), "3600000"),
            (with(|o| o.log = Some("..".into())), "directories"),
        ];
        for (result, named) in refused {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(named), "{message}");
        }
        for good in [
            with(|o| o.partitions = Some(MAX_TOPICS)),
            with(|o| o.segment_bytes = Some(MIN_SEGMENT_BYTES)),
            with(|o| o.segment_bytes = Some(MAX_SEGMENT_BYTES)),
            with(|o| o.codec = Some("x".repeat(64))),
            with(|o| o.sync_interval_ms = Some(1)),
        ] {
            good.unwrap();
        }
    }

    #[test]
    fn each_setting_that_differs_is_named() {
        let stored = TopicOptions::default().resolve("orders", [[1; 16], [2; 16]], 0);
        let asked = |change: fn(&mut TopicOptions)| {
            let mut options = TopicOptions::default();
            change(&mut options);
            options.compare(&stored)
        };
        for (result, name) in [
            (asked(|o| o.log = Some("shop".into())), "log"),
            (asked(|o| o.partitions = Some(2)), "partitions"),
            (asked(|o| o.codec = Some("json".into())), "codec"),
            (asked(|o| o.segment_bytes = Some(1 << 20)), "segment_bytes"),
            (asked(|o| o.sync_interval_ms = Some(5)), "sync_interval_ms"),
            (asked(|o| o.compacted = Some(true)), "compacted"),
        ] {
            let error = result.unwrap_err();
            assert!(
                matches!(&error, Error::SettingsMismatch { setting, .. } if *setting == name),
                "{error}"
            );
        }
        asked(|o| o.partitions = Some(1)).unwrap();
    }
}
