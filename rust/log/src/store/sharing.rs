//! Logs that several topics share: joining one, leaving one.
//!
//! Owns what is special about a topic that is not alone in its log. Invariant: a topic is noted in its
//! log, on the medium, before its `topic.json` is there, and `topic.json` is away before the log says
//! that the topic was deleted. A death in between leaves topics in the log that nobody names: they
//! hold nothing and nobody, and their numbers are not given again. A deletion that died is known by its
//! `topic.json.deleted`, and gone on with by who deletes a topic of that name or opens the store next
//! while nobody else has it open. All of it happens under the claim. (`docs/PROTOCOL.md`, "Shared
//! logs".)

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

/// A topic of each log that was looked for, so that not all of them are looked at each time. Only a
/// hint: what it leads to is read.
#[derive(Debug, Default)]
pub(super) struct Siblings(Mutex<HashMap<String, String>>);

impl Siblings {
    /// Note that a topic lives in its log.
    pub(super) fn note(&self, topic: &TopicSettings) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(topic.log.clone(), topic.name.clone());
    }

    fn of(&self, log: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(log).cloned()
    }
}

impl Store {
    /// A topic that lives in the log of this name; `None` when there is no such log. Where it was looked
    /// for before it costs a look at one topic, else at all of them.
    ///
    /// # Errors
    /// `SystemCallFailed` when the topics cannot be listed.
    #[doc(hidden)]
    pub fn topic_in_log(&self, log: &str) -> Result<Option<TopicSettings>> {
        self.sibling(log)
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

    pub(super) fn sibling(&self, log: &str) -> Result<Option<TopicSettings>> {
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

    /// Note a new topic in a log that is there, and take from it what its topics have in common.
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
        // Declared before the log, so dropped behind it.
        let _closing;
        let log = self.open_log_under(claim, sibling)?;
        _closing = self.closing(&log)?;
        topic.number = log.add_topic(topic.generation, topic.partitions)?;
        Ok(())
    }

    /// Say in a log that others share that a topic of it was deleted.
    pub(super) fn leave_log(&self, claim: &Claim, topic: &TopicSettings) -> Result<()> {
        let _closing;
        let log = self.open_log_under(claim, topic)?;
        _closing = self.closing(&log)?;
        let numbers = topic.number..topic.number + topic.partitions;
        log.remove_topic(topic.generation, numbers)?;
        self.bell().wake_all();
        Ok(())
    }

    /// Go on with a deletion of a topic that died before it came to the log.
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

    /// Go on with deletions that sweeping found, of topics whose log others share.
    pub(super) fn finish_deletions(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let shared = &*self.shared;
        let claim = shared.claim()?;
        if sweep::look_at_topics(shared.storage(), &shared.layout)?.unknown {
            // The log may be that of one that cannot be read, or of nobody.
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

/// The error for a topic that would have a log of its own, of a name that others share.
pub(super) fn taken_log(topic: &TopicSettings, sibling: &TopicSettings) -> Error {
    let (name, log, other) = (&topic.name, &topic.log, &sibling.name);
    Error::InvalidArgument {
        what: format!(
            "topic {name:?} would have a log of its own, but topic {other:?} lives in a log of that \
             name; say log={log:?} to share it, name another log, or choose another name"
        ),
    }
}
