//! Logs that several topics share: joining one, leaving one.
//!
//! Owns the special handling of a topic that shares its log. Invariant: the log records a topic, on
//! disk, before its `topic.json` exists, and `topic.json` is gone before the log records the
//! deletion. A death in between leaves topics without a name in the log. They keep no records and
//! no segments, and their numbers are not given again. An interrupted deletion leaves
//! `topic.json.deleted`. It is continued by the next deletion of a topic of that name, or the next
//! process that opens the store alone. All of it happens under the claim. (`docs/PROTOCOL.md`,
//! "Shared logs".)

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::claim::Claim;
use super::layout::deleted;
use super::options::TopicOptions;
use super::{Store, files, sweep};
use crate::error::{Error, Result};
use crate::format::names;
use crate::format::settings::TopicSettings;

/// One known topic of each log, so that a lookup need not read all topics. Only a hint: the topic
/// is read again.
#[derive(Debug, Default)]
pub(super) struct Siblings(Mutex<HashMap<String, String>>);

impl Siblings {
    /// Note that a topic is in its log.
    pub(super) fn note(&self, topic: &TopicSettings) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(topic.log.clone(), topic.name.clone());
    }

    fn of(&self, log: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(log).cloned()
    }
}

impl Store {
    /// Find a topic in the log of this name; `None` when there is no such log. A repeated lookup
    /// reads one topic, the first one all of them.
    ///
    /// # Errors
    /// `SystemCallFailed` when the topics cannot be listed.
    #[doc(hidden)]
    pub fn topic_in_log(&self, log: &str) -> Result<Option<TopicSettings>> {
        let shared = &*self.shared;
        if let Some(name) = shared.siblings.of(log) {
            let found = shared.topic(&name).ok().flatten();
            if let Some(found) = found.filter(|found| found.log == log) {
                return Ok(Some(found));
            }
        }
        // A topic without its log is not found, so without a log of that name no topic is.
        let logs = files::list(shared.storage(), &shared.layout.logs())?;
        let is_of_log = |dir: &String| names::parse_log_dir(dir).is_some_and(|(of, _)| of == log);
        if !logs.iter().any(is_of_log) {
            return Ok(None);
        }
        let all = shared.all_topics()?.into_iter().filter_map(|(_, topic)| topic.ok());
        let found = all.into_iter().find(|topic| topic.log == log);
        found.iter().for_each(|topic| shared.siblings.note(topic));
        Ok(found)
    }

    /// A topic that lives in the log of this generation; `None` when there is none any more.
    ///
    /// # Errors
    /// As [`Store::topic_in_log`].
    #[doc(hidden)]
    pub fn topic_in_generation(&self, log: &[u8; 16]) -> Result<Option<TopicSettings>> {
        let all = self.shared.all_topics()?.into_iter().filter_map(|(_, topic)| topic.ok());
        Ok(all.into_iter().find(|topic| topic.log_generation == *log))
    }

    /// Add a new topic to an existing log, and take over the settings that the log's topics share.
    pub(super) fn join_log(
        &self,
        claim: &Claim,
        topic: &mut TopicSettings,
        sibling: &TopicSettings,
        options: &TopicOptions,
    ) -> Result<()> {
        options.compare_log(&topic.name, sibling)?;
        topic.log_generation = sibling.log_generation;
        topic.segment_bytes = sibling.segment_bytes;
        topic.sync_interval_ms = sibling.sync_interval_ms;
        // Declared before the log, so dropped after it.
        let _closing;
        let log = self.open_log_under(claim, sibling)?;
        _closing = self.closing(&log)?;
        topic.number = log.add_topic(topic.generation, topic.partitions)?;
        Ok(())
    }

    /// Record in a shared log that a topic of it was deleted.
    pub(super) fn leave_log(&self, claim: &Claim, topic: &TopicSettings) -> Result<()> {
        let _closing;
        let log = self.open_log_under(claim, topic)?;
        _closing = self.closing(&log)?;
        let numbers = topic.number..topic.number + topic.partitions;
        log.remove_topic(topic.generation, numbers)?;
        self.bell().wake_all();
        Ok(())
    }

    /// Continue a deletion of a topic that died before it reached the log.
    pub(super) fn finish_deletion(&self, claim: &Claim, away: &Path) -> Result<()> {
        let shared = &*self.shared;
        if sweep::finish_deletion(shared.storage(), &shared.layout, away)? {
            return Ok(());
        }
        let Some(bytes) = files::read(shared.storage(), away)? else { return Ok(()) };
        let Ok(topic) = TopicSettings::decode(&bytes) else { return Ok(()) };
        let path = shared.layout.log(&topic)?;
        if files::is_dir(shared.storage(), &path)? {
            self.leave_log(claim, &topic)?;
        }
        Ok(())
    }

    /// Continue deletions that sweeping found, of topics in shared logs.
    pub(super) fn finish_deletions(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let shared = &*self.shared;
        let claim = shared.claim()?;
        if sweep::look_at_topics(shared.storage(), &shared.layout)?.unknown {
            // The log may be that of an unreadable topic, or of none.
            return Ok(());
        }
        for name in names {
            let path = shared.layout.topic_settings(name)?;
            self.finish_deletion(&claim, &deleted(&path))?;
            if files::stat(shared.storage(), &path)?.is_none() {
                sweep::remove_topic(shared.storage(), &shared.layout, name)?;
            } else {
                files::unlink(shared.storage(), &deleted(&path))?;
            }
        }
        claim.verify()
    }
}

/// Make the error for a topic that wants a log of its own, whose name a shared log has.
pub(super) fn taken_log(topic: &TopicSettings, sibling: &TopicSettings) -> Error {
    let (name, log, other) = (&topic.name, &topic.log, &sibling.name);
    Error::invalid(format!(
        "topic {name:?} would have a log of its own, but topic {other:?} lives in a log of that \
             name. Say log={log:?} to share it, name another log, or choose another name"
    ))
}
