//! Topics: creating, listing, deleting.
//!
//! Owns `topics/` and the names in `logs/`. Invariant: where a `topic.json` exists, the log that it
//! names is whole; a log that no `topic.json` names has no topic. So creation makes the log first
//! and `topic.json` last, and deletion renames `topic.json` away first, each step on disk before
//! the next. An interruption leaves only what [`super::sweep`] removes.
//!
//! ```text
//! create: topics/x/topic.json.tmp and logs/x@g.tmp ─> logs/x@g ─> topics/x/topic.json
//! share:  noted in logs/x@g ───────> topics/y/topic.json.tmp ─> topics/y/topic.json
//! delete: topics/x/topic.json ─> topic.json.deleted ─> log told and removed ─> topics/x removed
//! ```
//!
//! Several topics may name one log. It is removed with the last of them; until then a deletion is a
//! record in it.
//!
//! Creation and deletion happen under the claim; reading takes no lock. [`crate::log`] owns the
//! contents of a log's directory. (`docs/PROTOCOL.md`, "Topics".)

use std::path::{Path, PathBuf};

use super::claim::{Claim, Patience};
use super::layout::Layout;
use super::layout::{deleted, temporary};
use super::options::{TopicOptions, within_limits};
use super::sharing::taken_log;
use super::sweep::Change;
use super::{Store, StoreInner, files, sweep};
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::settings::{PARTITIONER, TopicSettings};
use crate::format::state::TopicState;
use crate::log::{self, LogSpec};
use crate::storage::Storage;

impl Store {
    /// Open a topic, and create a missing one if the store is open for writing.
    ///
    /// Requested settings are compared with those of an existing topic. When two processes create
    /// it at once, one does; the other gets the first one's, compared likewise.
    ///
    /// # Errors
    /// [`Error::InvalidName`]; [`Error::InvalidArgument`] for settings beyond their limits;
    /// [`Error::SettingsMismatch`]. [`Error::UnknownTopic`] when the store is open for reading, or
    /// the options refuse to create it. [`Error::CorruptData`] when `topic.json` or its log is
    /// corrupt or missing. [`Error::UnsupportedVersion`]; [`Error::LockTimeout`] when others change
    /// the store all the time; [`Error::NoSpace`].
    #[doc(hidden)]
    pub fn open_topic(&self, name: &str, options: &TopicOptions) -> Result<TopicSettings> {
        self.shared.layout.topic(name)?;
        options.validate()?;
        let found = match self.shared.topic(name)? {
            Some(found) if self.shared.seat.is_none() => found,
            Some(found) => self.shared.adopted(found)?,
            None if options.must_exist || self.shared.seat.is_none() => {
                return Err(self.shared.no_such_topic(name));
            }
            None => self.create_topic(name, options)?,
        };
        options.compare(&found)?;
        Ok(found)
    }

    /// Read the settings of an existing topic.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], and as for [`Store::open_topic`] when it is corrupt or newer.
    #[doc(hidden)]
    pub fn topic_settings(&self, name: &str) -> Result<TopicSettings> {
        self.shared.topic(name)?.ok_or_else(|| self.shared.no_such_topic(name))
    }

    /// Return true when a topic was deleted since its settings were read, even if another one has
    /// its name now. Then errors of its files need no report. False if the store itself was
    /// removed: that deletes no topic.
    #[doc(hidden)]
    pub fn is_gone(&self, topic: &TopicSettings) -> bool {
        let (storage, layout) = (self.shared.storage(), self.layout());
        match read_settings(storage, layout, &topic.name) {
            Ok(found) => {
                found.is_none_or(|found| found.generation != topic.generation)
                    && storage.stat(&layout.settings()).is_ok()
            }
            Err(_) => false,
        }
    }

    /// List the names in a directory that each store has; if the store was removed, that is the
    /// error.
    pub(crate) fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.shared.list(dir)
    }

    /// Make the error for a topic that is gone, though a handle of it is open.
    #[cold]
    pub(crate) fn topic_gone(&self, name: &str) -> Error {
        topic_gone(self.shared.storage(), self.layout(), name)
    }

    /// List all topics, sorted by name; a corrupt one does not hide the others.
    ///
    /// # Errors
    /// When the directory cannot be read. Errors of a single topic are beside its name.
    #[doc(hidden)]
    pub fn topics(&self) -> Result<Vec<(String, Result<TopicSettings>)>> {
        self.shared.all_topics()
    }

    /// List the names in the directory of topics, sorted. One may be of a topic that is being created
    /// or deleted: [`Store::topics`] knows, and reads a file for each.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(crate) fn listed_topics(&self) -> Result<Vec<String>> {
        let names = self.list(&self.layout().topics())?;
        Ok(names.into_iter().filter(|name| self.layout().topic(name).is_ok()).collect())
    }

    /// Delete a topic and its records. The log is removed with its last topic; in a shared log,
    /// retention removes the records with their segments. Costs a look at every topic.
    ///
    /// Values that were read stay valid. Processes that have it open get [`Error::TopicDeleted`] at
    /// their next append or read.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::UnknownTopic`], [`Error::NotWritable`],
    /// [`Error::LockTimeout`], [`Error::CorruptData`] when its log is unknown, or those of the file
    /// system. After an error the topic is whole, or it is gone and only its files still use space,
    /// until the next opening.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        let shared = &*self.shared;
        let path = shared.layout.topic_settings(name)?;
        let claim = shared.claim()?;
        let topic = self.topic_settings(name)?;
        let others = shared.all_topics()?;
        let change = shared.begin_change(&claim)?;
        let away = deleted(&path);
        // Before its name is overwritten: only that name shows that a log was deleted.
        self.finish_deletion(&claim, &away)?;
        shared.storage().rename_over(&path, &away).doing("rename", &path)?;
        files::sync_parent(shared.storage(), &path)?;
        pass(Point::TopicAway);
        // From here on the topic is gone. A log is removed with the last topic that names it; a
        // topic with unreadable settings might.
        let is_used =
            others.iter().filter(|(other, _)| other != name).any(|(_, other)| match other {
                Ok(other) => other.log_generation == topic.log_generation,
                Err(_) => true,
            });
        if is_used {
            self.leave_log(&claim, &topic)?;
        } else {
            let log = shared.layout.log(&topic)?;
            log::mark_deleted(shared.storage(), &log)?;
            pass(Point::TopicMarked);
            self.bell().wake_all();
            sweep::remove_log(shared.storage(), &log)?;
        }
        sweep::remove_topic(shared.storage(), &shared.layout, name)?;
        change.end();
        claim.verify()
    }

    /// Clear the deletion flag of a log that a topic names. Deletion removes `topic.json` before it
    /// marks the log, under the claim. If the file still exists under the claim, the flag is a
    /// flipped bit, and without this no process could append any more.
    ///
    /// # Errors
    /// `LockTimeout`, and as for [`Store::topic_settings`].
    pub(super) fn doubt_deletion(&self, topic: &TopicSettings, log: &log::Log) -> Result<()> {
        let shared = &*self.shared;
        let claim = shared.claim()?;
        self.doubt_deletion_under(&claim, topic, log)?;
        claim.verify()
    }

    /// Do as [`Store::doubt_deletion`]; the caller holds the claim.
    pub(super) fn doubt_deletion_under(
        &self,
        _claim: &Claim,
        topic: &TopicSettings,
        log: &log::Log,
    ) -> Result<()> {
        let shared = &*self.shared;
        let found = read_settings(shared.storage(), &shared.layout, &topic.name)?;
        if found.is_some_and(|found| found.log_generation == topic.log_generation) {
            log::mark_not_deleted(shared.storage(), log.dir())?;
        }
        Ok(())
    }

    fn create_topic(&self, name: &str, options: &TopicOptions) -> Result<TopicSettings> {
        let shared = &*self.shared;
        let claim = shared.claim()?;
        if let Some(found) = shared.topic(name)? {
            return shared.adopted(found);
        }
        let storage = shared.storage();
        let change = shared.begin_change(&claim)?;
        let ids = [
            files::random_id(storage, shared.layout.root())?,
            files::random_id(storage, shared.layout.root())?,
        ];
        let mut topic = options.resolve(name, ids, storage.now_us());
        let sibling = self.topic_in_log(&topic.log)?;
        if let Some(sibling) = &sibling {
            if options.log.is_none() {
                return Err(taken_log(&topic, sibling));
            }
            self.join_log(&claim, &mut topic, sibling, options)?;
        }
        // All of it is written before any of it is synced. A journaling file system then writes its
        // journal once, and not for each file.
        let directory = shared.layout.topic(name)?;
        files::make_dir(storage, &directory, shared.modes.directory)?;
        pass(Point::TopicDirectory);
        let path = shared.layout.topic_settings(name)?;
        let bytes = topic.encode().into_bytes();
        let (temporary, settings) =
            files::begin(storage, &path, &bytes, bytes.len() as u64, shared.modes.file)?;
        let log = if sibling.is_none() { Some(shared.fill_log(&topic)?) } else { None };
        files::sync(&*settings, &temporary)?;
        files::sync_parent(storage, &directory)?;
        if let Some((unfinished, log)) = log {
            pass(Point::TopicLog);
            files::rename_new(storage, &unfinished, &log)?;
            pass(Point::TopicNamed);
        }
        claim.verify()?;
        files::rename_new(storage, &temporary, &path)?;
        pass(Point::TopicSettings);
        change.end();
        shared.siblings.note(&topic);
        Ok(topic)
    }
}

impl StoreInner {
    /// Take the claim, for writing processes.
    pub(super) fn claim(&self) -> Result<Claim> {
        // If another store is at the path now, this process is not one of its members.
        self.membership()?.verify()?;
        let patience = Patience::new(self.lock_timeout);
        Claim::take(&self.storage, &self.layout, self.modes.lock, patience)
    }

    /// Record that a change begins.
    pub(super) fn begin_change(&self, claim: &Claim) -> Result<Change<'_>> {
        Change::begin(self.storage(), &self.layout, claim, self.modes.file)
    }

    /// Return an existing topic, for a process that may append to it. During a change its creator
    /// may not have synced its name yet, or may have failed to. Without its name, a power failure
    /// would lose all records that are acknowledged in it.
    pub(super) fn adopted(&self, topic: TopicSettings) -> Result<TopicSettings> {
        if topic.partitioner != PARTITIONER {
            let path = self.layout.topic_settings(&topic.name)?;
            let what = format!("partitioner {:?}", topic.partitioner);
            return Err(Error::UnsupportedVersion { path, position: None, what });
        }
        let storage = self.storage();
        if files::stat(storage, &self.layout.settled())?.is_none() {
            let directory = self.layout.topic(&topic.name)?;
            for path in [&self.layout.log(&topic)?, &directory] {
                files::sync_parent(storage, path)?;
            }
            let synced = files::sync_dir(storage, &directory);
            // Nothing needs to be kept of a topic that was deleted meanwhile. Its log says that it is gone.
            if !is_gone(storage, &self.layout, &topic.name, &topic.generation) {
                synced?;
            }
        }
        Ok(topic)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let removed = || expect_store(self.storage(), &self.layout).err();
        files::list(self.storage(), dir).map_err(|error| removed().unwrap_or(error))
    }

    /// Make the error for a name that no topic has; if the store was removed, that is the error.
    pub(super) fn no_such_topic(&self, name: &str) -> Error {
        if let Err(removed) = expect_store(self.storage(), &self.layout) {
            return removed;
        }
        let topics = files::list(self.storage(), &self.layout.topics()).unwrap_or_default();
        let there = topics.into_iter().filter(|topic| self.layout.topic(topic).is_ok()).collect();
        Error::UnknownTopic {
            name: name.to_owned(),
            store: self.layout.root().to_path_buf(),
            topics: there,
        }
    }

    /// Return a topic with its log; `None` when there is no such topic.
    pub(super) fn topic(&self, name: &str) -> Result<Option<TopicSettings>> {
        let mut missing = None;
        loop {
            let Some(topic) = read_settings(self.storage(), &self.layout, name)? else {
                return Ok(None);
            };
            let path = self.layout.log(&topic)?;
            match files::stat(self.storage(), &path)? {
                Some(stat) if stat.is_dir => return Ok(Some(topic)),
                // It may have been deleted, and created again, between the two looks.
                None if missing != Some(topic.generation) => missing = Some(topic.generation),
                None => {
                    return Err(Error::corrupt(&path, 0, "the topic's log is missing"));
                }
                Some(_) => {
                    return Err(Error::corrupt(&path, 0, "the topic's log is not a directory"));
                }
            }
        }
    }

    pub(super) fn all_topics(&self) -> Result<Vec<(String, Result<TopicSettings>)>> {
        let names = self.list(&self.layout.topics())?;
        let names = names.into_iter().filter(|name| self.layout.topic(name).is_ok());
        Ok(names
            .filter_map(|name| {
                let topic = self.topic(&name).transpose()?;
                Some((name, topic))
            })
            .collect())
    }

    /// Make a topic's log under a temporary name and sync all of it; return that name and its final
    /// one.
    fn fill_log(&self, topic: &TopicSettings) -> Result<(PathBuf, PathBuf)> {
        let path = self.layout.log(topic)?;
        let unfinished = temporary(&path);
        files::make_dir(self.storage(), &unfinished, self.modes.directory)?;
        let topics = (0..topic.partitions)
            .map(|p| (topic.number + p, TopicState::empty(topic.generation, p)))
            .collect();
        let spec = LogSpec {
            generation: topic.log_generation,
            segment_bytes: topic.segment_bytes,
            topics,
            write_mode: self.settings.write_mode,
            file_mode: self.modes.file,
        };
        log::create(self.storage(), &unfinished, &spec)?;
        Ok((unfinished, path))
    }
}

/// Read a topic's `topic.json`; `None` when it does not exist.
pub(super) fn read_settings(
    storage: &dyn Storage,
    layout: &Layout,
    name: &str,
) -> Result<Option<TopicSettings>> {
    let path = layout.topic_settings(name)?;
    let directory = layout.topic(name)?;
    match files::stat(storage, &directory)? {
        None => return Ok(None),
        Some(stat) if stat.is_dir => {}
        Some(_) => return Err(Error::corrupt(&directory, 0, "the topic is not a directory")),
    }
    let Some(bytes) = files::read(storage, &path)? else { return Ok(None) };
    decode_settings(&bytes, name, &path).map(Some)
}

/// Decode the `topic.json` of the topic with this name; `path` is the file's.
///
/// # Errors
/// `CorruptData`, `UnsupportedVersion`.
pub(super) fn decode_settings(bytes: &[u8], name: &str, path: &Path) -> Result<TopicSettings> {
    let topic = TopicSettings::decode(bytes).in_file(path, 0)?;
    if topic.name != name {
        return Err(Error::corrupt(path, 0, "the settings of another topic"));
    }
    if !within_limits(&topic) {
        return Err(Error::corrupt(path, 0, "settings that no topic can have"));
    }
    Ok(topic)
}

/// Make the error for a topic that is gone, though a handle of it is open; if the store was
/// removed, that is the error.
#[cold]
pub(crate) fn topic_gone(storage: &dyn Storage, layout: &Layout, name: &str) -> Error {
    let deleted = Error::TopicDeleted { name: name.to_owned() };
    expect_store(storage, layout).err().unwrap_or(deleted)
}

/// Check that the store was not removed: its settings go with it, and nothing else removes them.
///
/// # Errors
/// `FilesRemoved`, `SystemCallFailed`.
pub(super) fn expect_store(storage: &dyn Storage, layout: &Layout) -> Result<()> {
    match files::stat(storage, &layout.settings())? {
        Some(_) => Ok(()),
        None => Err(Error::FilesRemoved { path: layout.root().to_path_buf() }),
    }
}

/// Return true if the topic of a generation is known to be gone: deleted, or another one has its
/// name.
pub(super) fn is_gone(
    storage: &dyn Storage,
    layout: &Layout,
    name: &str,
    generation: &[u8; 16],
) -> bool {
    let now = read_settings(storage, layout, name);
    now.is_ok_and(|now| now.is_none_or(|now| now.generation != *generation))
}
