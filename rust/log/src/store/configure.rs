//! Changing what may be changed of a store and its topics: retention.
//!
//! Owns the one way in which a settings file is written anew. Invariant: at each moment, also after a
//! death or a power cut, the file is there whole, as it was or as it is to be: the new one is made
//! beside it, synced, and renamed over it, under the claim, so that no change is lost to another one
//! made at the same time; its revision tells them apart. Processes that have the topic open look at the
//! file when there is something to do ([`super::retention`]), so nobody has to be told.
//! (`docs/PROTOCOL.md`, "Retention by limits".)

use std::time::Duration;

use std::fmt;

use super::topics::read_settings;
use super::{Store, files};
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::retention::{MAX_LIMIT, Retention, is_limit};
use crate::format::settings::{StoreSettings, TopicSettings};

/// What to change of a topic's retention: which records expire. What it does not name stays as it is.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use falaj::{RetentionChange, Store};
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path().join("events"))?;
/// let orders = store.topic("orders")?;
/// orders.set_retention(&RetentionChange::default().age(Duration::from_secs(7 * 86_400)).bytes(1 << 30))?;
/// orders.set_retention(&RetentionChange::default().bytes(None))?; // lifts that limit
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionChange {
    /// See [`Retention::bytes`].
    #[doc(hidden)]
    pub bytes: Option<Option<u64>>,
    /// See [`Retention::age_ms`].
    #[doc(hidden)]
    pub age_ms: Option<Option<u64>>,
    /// See [`Retention::records`].
    #[doc(hidden)]
    pub records: Option<Option<u64>>,
    /// See [`Retention::waits`].
    #[doc(hidden)]
    pub waits: Option<bool>,
    /// See [`Retention::protected`].
    #[doc(hidden)]
    pub protected: Option<bool>,
}

impl RetentionChange {
    /// Limit the bytes that the topic's segments take on the disk, or lift the limit.
    #[must_use]
    pub fn bytes(self, limit: impl Into<Option<u64>>) -> Self {
        Self { bytes: Some(limit.into()), ..self }
    }

    /// Limit the age of records, in whole milliseconds, or lift the limit. A segment expires with its newest record.
    #[must_use]
    pub fn age(self, limit: impl Into<Option<Duration>>) -> Self {
        let ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self { age_ms: Some(limit.into().map(ms)), ..self }
    }

    /// Limit the records of each partition, or lift the limit.
    #[must_use]
    pub fn records(self, limit: impl Into<Option<u64>>) -> Self {
        Self { records: Some(limit.into()), ..self }
    }

    /// Keep what a consumer group or a queue still needs, whatever the limits say.
    #[must_use]
    pub fn waits(self, waits: bool) -> Self {
        Self { waits: Some(waits), ..self }
    }

    /// Protect the topic from the limit of the whole store.
    #[must_use]
    pub fn protected(self, protected: bool) -> Self {
        Self { protected: Some(protected), ..self }
    }

    /// Check what is asked for, before anything is looked at.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the limit.
    #[doc(hidden)]
    pub fn validate(&self) -> Result<()> {
        validate("retention_bytes", self.bytes.flatten())?;
        validate("retention_age_ms", self.age_ms.flatten())?;
        validate("retention_records", self.records.flatten())
    }

    /// What there is, changed.
    pub(super) fn apply(&self, stored: Retention) -> Retention {
        Retention {
            bytes: self.bytes.unwrap_or(stored.bytes),
            age_ms: self.age_ms.unwrap_or(stored.age_ms),
            records: self.records.unwrap_or(stored.records),
            waits: self.waits.unwrap_or(stored.waits),
            protected: self.protected.unwrap_or(stored.protected),
        }
    }

    /// Compare what is asked for with what is stored.
    pub(super) fn compare(&self, topic: &str, stored: &Retention) -> Result<()> {
        let same = |setting, asked: Option<Option<u64>>, stored: Option<u64>| {
            differ(topic, setting, asked.map(LimitText), &LimitText(stored))
        };
        same("retention_bytes", self.bytes, stored.bytes)?;
        same("retention_age_ms", self.age_ms, stored.age_ms)?;
        same("retention_records", self.records, stored.records)?;
        differ(topic, "retention_waits", self.waits, &stored.waits)?;
        differ(topic, "retention_protected", self.protected, &stored.protected)
    }
}

/// A limit in words.
#[derive(PartialEq)]
struct LimitText(Option<u64>);

impl fmt::Display for LimitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => limit.fmt(f),
            None => f.write_str("no limit"),
        }
    }
}

fn differ<T: PartialEq + fmt::Display>(
    topic: &str,
    setting: &'static str,
    asked: Option<T>,
    stored: &T,
) -> Result<()> {
    let Some(asked) = asked.filter(|asked| asked != stored) else { return Ok(()) };
    let (stored, asked) = (stored.to_string(), asked.to_string());
    Err(Error::SettingsMismatch { topic: topic.to_owned(), setting, stored, asked })
}

fn validate(name: &str, limit: Option<u64>) -> Result<()> {
    match limit.filter(|limit| !is_limit(*limit)) {
        Some(limit) => {
            let what = format!("{name} is 1 to {MAX_LIMIT}, or no limit at all, not {limit}");
            Err(Error::InvalidArgument { what })
        }
        None => Ok(()),
    }
}

impl Store {
    /// Change which records of a topic may go by themselves. On the medium when it returns; whoever has
    /// the topic open acts on it from the next roll on, [`Store::maintain`] at once. Nothing is removed
    /// by this alone. Returns the settings as they are now. `of` is the generation meant, where any will
    /// not do.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond the limits, [`Error::UnknownTopic`], [`Error::TopicDeleted`] where the
    /// topic of this name is of another generation; [`Error::NotWritable`], [`Error::LockTimeout`],
    /// [`Error::CorruptData`], [`Error::NoSpace`], [`Error::SystemCallFailed`]: as it was, or, after an error of the last
    /// sync alone, perhaps as it was to be.
    #[doc(hidden)]
    pub fn configure_topic(
        &self,
        name: &str,
        change: &RetentionChange,
        of: Option<[u8; 16]>,
    ) -> Result<TopicSettings> {
        change.validate()?;
        self.rewrite_topic(name, of, |topic| TopicSettings {
            retention: change.apply(topic.retention),
            ..topic
        })
    }

    /// Say that compaction may remove records of a topic, so that its readers do not count on each of them,
    /// or that it may no more; what it removed stays removed. Else as [`Store::configure_topic`].
    ///
    /// # Errors
    /// As [`Store::configure_topic`].
    #[doc(hidden)]
    pub fn mark_compacted(
        &self,
        name: &str,
        compacted: bool,
        of: Option<[u8; 16]>,
    ) -> Result<TopicSettings> {
        self.rewrite_topic(name, of, |topic| TopicSettings { compacted, ..topic })
    }

    /// Change what a topic's file says.
    fn rewrite_topic(
        &self,
        name: &str,
        of: Option<[u8; 16]>,
        change: impl FnOnce(TopicSettings) -> TopicSettings,
    ) -> Result<TopicSettings> {
        let shared = &*self.shared;
        let path = shared.layout.topic_settings(name)?;
        let claim = shared.claim()?;
        let found = read_settings(shared.storage(), &shared.layout, name)?;
        let Some(mut topic) = found else {
            return Err(match of {
                Some(_) => Error::TopicDeleted { name: name.to_owned() },
                None => shared.no_such_topic(name),
            });
        };
        if of.is_some_and(|of| of != topic.generation) {
            return Err(Error::TopicDeleted { name: name.to_owned() });
        }
        let changed = change(topic.clone());
        if changed != topic {
            topic = TopicSettings { revision: topic.revision + 1, ..changed };
            let change = shared.begin_change(&claim)?;
            self.put_over(&path, topic.encode().as_bytes())?;
            change.end();
        }
        claim.verify()?;
        Ok(topic)
    }

    /// Change how many bytes the logs of all topics may take together; `None` takes the limit away.
    /// Else as [`Store::configure_topic`].
    ///
    /// # Errors
    /// As [`Store::configure_topic`].
    #[doc(hidden)]
    pub fn configure(&self, retention_bytes: Option<u64>) -> Result<StoreSettings> {
        validate("retention_bytes", retention_bytes)?;
        let shared = &*self.shared;
        let claim = shared.claim()?;
        let mut store = self.stored_settings()?;
        if store.retention_bytes != retention_bytes {
            store = StoreSettings { retention_bytes, revision: store.revision + 1, ..store };
            self.put_over(&shared.layout.settings(), store.encode().as_bytes())?;
        }
        claim.verify()?;
        Ok(store)
    }

    /// What the store is, as its file says now; [`Store::settings`] is as it was opened.
    ///
    /// # Errors
    /// [`Error::NotAStore`] when the file is gone, [`Error::CorruptData`], [`Error::UnsupportedVersion`], [`Error::SystemCallFailed`].
    #[doc(hidden)]
    pub fn stored_settings(&self) -> Result<StoreSettings> {
        let path = self.layout().settings();
        let Some(bytes) = files::read(self.shared.storage(), &path)? else {
            let (path, why) = (self.path().to_path_buf(), "it holds no falaj.json".to_owned());
            return Err(Error::NotAStore { path, why });
        };
        StoreSettings::decode(&bytes).in_file(&path, 0)
    }

    fn put_over(&self, path: &std::path::Path, bytes: &[u8]) -> Result<()> {
        let (storage, modes) = (self.shared.storage(), self.shared.modes);
        let len = bytes.len() as u64;
        let made = files::prepare(storage, path, bytes, len, modes.file)?;
        pass(Point::SettingsPrepared);
        storage.rename_over(&made, path).doing("rename to", path)?;
        pass(Point::SettingsRenamed);
        files::sync_parent(storage, path)
    }
}
