//! Changing the settings of a store and its topics that may change: retention and properties.
//!
//! Owns the one way in which a settings file is rewritten. Invariant: at each moment, even after a
//! death or a power failure, the file is whole, either old or new. The new one is made beside it,
//! synced, and renamed over it, under the claim, so that no simultaneous change is lost. Its
//! revision distinguishes the versions. Processes that have the topic open read the file when there
//! is work to do ([`super::retention`]), so they need no notice. (`docs/PROTOCOL.md`, "Retention by
//! limits".)

use std::time::Duration;

use std::fmt;

use super::topics::{read_settings, topic_gone};
use super::{Store, files};
use crate::canary::{Canary, planted};
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::retention::{MAX_LIMIT, Retention, is_limit};
use crate::format::settings::{MAX_PROPERTIES, MAX_PROPERTY_NAME, StoreSettings, TopicSettings};

/// A change of a topic's retention, which says which records expire. Settings that it does not name
/// stay.
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
    /// Limit the bytes of the topic's segments on disk, or lift the limit.
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

    /// Check the arguments, before anything is read.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the limit.
    #[doc(hidden)]
    pub fn validate(&self) -> Result<()> {
        validate("retention_bytes", self.bytes.flatten())?;
        validate("retention_age_ms", self.age_ms.flatten())?;
        validate("retention_records", self.records.flatten())
    }

    /// Apply the change to stored settings.
    pub(super) fn apply(&self, stored: Retention) -> Retention {
        Retention {
            bytes: self.bytes.unwrap_or(stored.bytes),
            age_ms: self.age_ms.unwrap_or(stored.age_ms),
            records: self.records.unwrap_or(stored.records),
            waits: self.waits.unwrap_or(stored.waits),
            protected: self.protected.unwrap_or(stored.protected),
        }
    }

    /// Compare the requested settings with the stored ones.
    pub(super) fn compare(&self, topic: &str, stored: &Retention) -> Result<()> {
        let same = |setting, asked: Option<Option<u64>>, stored: Option<u64>| {
            differ(topic, setting, asked.map(LimitText).as_ref(), &LimitText(stored))
        };
        same("retention_bytes", self.bytes, stored.bytes)?;
        same("retention_age_ms", self.age_ms, stored.age_ms)?;
        same("retention_records", self.records, stored.records)?;
        differ(topic, "retention_waits", self.waits.as_ref(), &stored.waits)?;
        differ(topic, "retention_protected", self.protected.as_ref(), &stored.protected)
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

/// Compare what is asked for of one setting with what is stored.
pub(super) fn differ<T: PartialEq + fmt::Display>(
    topic: &str,
    setting: &'static str,
    asked: Option<&T>,
    stored: &T,
) -> Result<()> {
    let Some(asked) = asked.filter(|asked| *asked != stored) else { return Ok(()) };
    let (stored, asked) = (stored.to_string(), asked.to_string());
    Err(Error::SettingsMismatch { topic: topic.to_owned(), setting, stored, asked })
}

fn validate(name: &str, limit: Option<u64>) -> Result<()> {
    match limit.filter(|limit| !is_limit(*limit)) {
        Some(limit) => Err(Error::invalid(format!(
            "{name} is 1 to {MAX_LIMIT}, or no limit at all, not {limit}"
        ))),
        None => Ok(()),
    }
}

fn validate_property(name: &str) -> Result<()> {
    if (1..=MAX_PROPERTY_NAME).contains(&name.len()) {
        return Ok(());
    }
    let bytes = name.len();
    Err(Error::invalid(format!(
        "the name of a property has 1 to {MAX_PROPERTY_NAME} bytes of UTF-8, not {bytes}"
    )))
}

impl Store {
    /// Change which records of a topic expire. On disk when it returns. Processes that have the
    /// topic open apply it from their next roll on, [`Store::maintain`] at once. Nothing is removed
    /// by this alone. Returns the new settings. `of` is the generation of the topic, if only that
    /// one will do.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] beyond the limits, [`Error::UnknownTopic`],
    /// [`Error::TopicDeleted`] if the topic of this name has another generation.
    /// [`Error::NotWritable`], [`Error::LockTimeout`], [`Error::CorruptData`], [`Error::NoSpace`],
    /// [`Error::SystemCallFailed`]: the settings are the old ones or, if only the last sync failed,
    /// perhaps the new ones.
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

    /// Allow compaction to remove records of a topic, or forbid it. Readers of a compacted topic do
    /// not rely on each record; removed records stay removed. Otherwise as
    /// [`Store::configure_topic`].
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

    /// Change properties of a topic: each named property gets its value, or is removed. The others
    /// stay. Otherwise as [`Store::configure_topic`].
    ///
    /// # Errors
    /// As [`Store::configure_topic`]; `InvalidArgument` for a name without bytes or with too many,
    /// and if all properties together would have too many.
    #[doc(hidden)]
    pub fn set_properties(
        &self,
        name: &str,
        changes: &[(&str, Option<&str>)],
        of: Option<[u8; 16]>,
    ) -> Result<TopicSettings> {
        changes.iter().try_for_each(|(property, _)| validate_property(property))?;
        if planted(Canary::PropertiesOneByOne) && changes.len() > 1 {
            let mut one_by_one = changes.chunks(1);
            one_by_one.try_for_each(|one| self.set_properties(name, one, of).map(drop))?;
        }
        self.try_rewrite_topic(name, of, |mut topic| {
            for (property, value) in changes {
                match value {
                    Some(value) => {
                        topic.properties.insert((*property).to_owned(), (*value).to_owned());
                    }
                    None => drop(topic.properties.remove(*property)),
                }
            }
            let sizes = topic.properties.iter().map(|(name, value)| name.len() + value.len());
            let bytes: usize = sizes.sum();
            if bytes > MAX_PROPERTIES {
                return Err(Error::invalid(format!(
                    "the properties of a topic have at most {MAX_PROPERTIES} bytes together, and these \
                     of topic {name:?} would have {bytes}. Keep large values in a topic of their own"
                )));
            }
            Ok(topic)
        })
    }

    /// Rewrite a topic's file.
    pub(super) fn rewrite_topic(
        &self,
        name: &str,
        of: Option<[u8; 16]>,
        change: impl FnOnce(TopicSettings) -> TopicSettings,
    ) -> Result<TopicSettings> {
        self.try_rewrite_topic(name, of, |topic| Ok(change(topic)))
    }

    /// Do so, unless the change fails.
    fn try_rewrite_topic(
        &self,
        name: &str,
        of: Option<[u8; 16]>,
        change: impl FnOnce(TopicSettings) -> Result<TopicSettings>,
    ) -> Result<TopicSettings> {
        let shared = &*self.shared;
        let path = shared.layout.topic_settings(name)?;
        let claim = shared.claim()?;
        let found = read_settings(shared.storage(), &shared.layout, name)?;
        let Some(mut topic) = found else {
            return Err(match of {
                Some(_) => topic_gone(shared.storage(), &shared.layout, name),
                None => shared.no_such_topic(name),
            });
        };
        if of.is_some_and(|of| of != topic.generation) {
            return Err(topic_gone(shared.storage(), &shared.layout, name));
        }
        let changed = change(topic.clone())?;
        if changed != topic {
            topic = TopicSettings { revision: topic.revision + 1, ..changed };
            let change = shared.begin_change(&claim)?;
            self.put_over(&path, topic.encode().as_bytes())?;
            change.end();
        }
        claim.verify()?;
        Ok(topic)
    }

    /// Change the limit of the bytes of all logs together; `None` lifts it. Otherwise as
    /// [`Store::configure_topic`].
    ///
    /// # Errors
    /// As [`Store::configure_topic`].
    #[doc(hidden)]
    pub fn configure(&self, retention_bytes: Option<u64>) -> Result<StoreSettings> {
        validate("retention_bytes", retention_bytes)?;
        self.rewrite_store(|store| StoreSettings { retention_bytes, ..store })
    }

    /// Change how many bytes of files retention keeps in each log because they were not shipped;
    /// `None` is the default. Otherwise as [`Store::configure_topic`].
    ///
    /// # Errors
    /// As [`Store::configure_topic`].
    #[doc(hidden)]
    pub fn configure_shipping(&self, ship_backlog_bytes: Option<u64>) -> Result<StoreSettings> {
        validate("ship_backlog_bytes", ship_backlog_bytes)?;
        self.rewrite_store(|store| StoreSettings { ship_backlog_bytes, ..store })
    }

    /// Change how many places must have a record before an append in `sync=remote` returns; `None`
    /// is one. The next acknowledgement obeys it. Otherwise as [`Store::configure_topic`].
    ///
    /// # Errors
    /// As [`Store::configure_topic`].
    #[doc(hidden)]
    pub fn configure_min_sync(&self, ship_min_sync: Option<u64>) -> Result<StoreSettings> {
        validate("ship_min_sync", ship_min_sync)?;
        self.rewrite_store(|store| StoreSettings { ship_min_sync, ..store })
    }

    fn rewrite_store(
        &self,
        change: impl FnOnce(StoreSettings) -> StoreSettings,
    ) -> Result<StoreSettings> {
        let shared = &*self.shared;
        let claim = shared.claim()?;
        let mut store = self.stored_settings()?;
        let changed = change(store.clone());
        if changed != store {
            store = StoreSettings { revision: store.revision + 1, ..changed };
            self.put_over(&shared.layout.settings(), store.encode().as_bytes())?;
        }
        claim.verify()?;
        Ok(store)
    }

    /// Read the store's settings from its file; [`Store::settings`] has them as they were at
    /// opening.
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

    /// Return the error that another store has taken this one's place, where that is so. Its files are not corrupt
    /// then.
    #[cold]
    pub(crate) fn replaced_or(&self, error: Error) -> Error {
        match self.stored_settings() {
            Ok(stored) if stored.id != self.settings().id => {
                Error::LockFileReplaced { path: self.layout().settings() }
            }
            _ => error,
        }
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
