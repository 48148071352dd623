//! Verifying a store: its settings, each of its logs, its consumers and queues.
//!
//! Owns the report that `falaj verify` prints. It can be had of a store that does not open: nothing
//! here needs more than to read files, and what is damaged is a finding, not an error. What is in a
//! log is checked by [`crate::log::verify`], what stands beside the logs by [`super::sidecar_check`]; nothing
//is ! ever changed.

use std::path::Path;
use std::sync::Arc;

use super::catalog::{Catalog, CatalogLog};
use super::sweep::look_at_topics;
use super::{Store, staging, topics};
use crate::error::{Error, Result};
use crate::format::names;
use crate::format::settings::TopicSettings;
use crate::log;
use crate::log::verify::{CALLED_DELETED, UNKNOWN_NUMBER, content_len, verify_log};
use crate::storage::Storage;

pub use crate::log::verify::{Finding, LogReport, Progress, Severity, TopicReport};

/// What a verification found.
#[derive(Debug, Default)]
pub struct Verification {
    /// About the store itself: its settings, topics that cannot be read, logs that nobody names; files
    /// of consumers and queues.
    pub findings: Vec<Finding>,
    /// Each log that was looked at.
    pub logs: Vec<LogReport>,
}

impl Verification {
    /// True when everything that was written is there.
    pub fn is_sound(&self) -> bool {
        self.worst().is_none_or(|worst| worst < Severity::Unrecovered)
    }

    /// The worst of what was found; `None` when nothing was.
    pub fn worst(&self) -> Option<Severity> {
        self.all_findings().map(|finding| finding.severity).max()
    }

    /// All findings, the store's own first.
    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(self.logs.iter().flat_map(|log| &log.findings))
    }

    /// Segments, sound blocks, records and bytes that were looked at.
    pub fn counts(&self) -> [u64; 4] {
        self.logs.iter().fold([0; 4], |[segments, blocks, records, bytes], log| {
            [segments + log.segments, blocks + log.blocks, records + log.records, bytes + log.bytes]
        })
    }
}

impl Store {
    /// Verify the store, or the log of one topic: every checksum, the chain of segments, offsets,
    /// indexes, control pages, settings; of the whole store the files of consumers and queues, too.
    /// Nothing is mapped and nothing is changed; others may write meanwhile.
    ///
    /// ```
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let found = store.verify(None, &mut |_done, _total| Ok(()))?;
    /// assert!(found.is_sound());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`verify`].
    pub fn verify(&self, topic: Option<&str>, progress: Progress<'_>) -> Result<Verification> {
        verify(self.storage(), self.path(), topic, progress)
    }
}

/// As [`Store::verify`], of a store that need not open.
///
/// # Errors
/// `NotAStore`; `UnknownTopic` for a topic that is not there; `SystemCallFailed` when a directory cannot be listed;
/// what `progress` returns. All else is a finding.
pub fn verify(
    storage: &Arc<dyn Storage>,
    root: &Path,
    topic: Option<&str>,
    progress: Progress<'_>,
) -> Result<Verification> {
    let catalog = Catalog::read(storage, root)?;
    let mut found = Verification::default();
    if let Some(name) = topic {
        catalog.layout.topic(name)?;
        if !catalog.topics.iter().any(|(other, _)| other == name) {
            let (name, store) = (name.to_owned(), catalog.layout.root().to_path_buf());
            let topics = catalog.topics.into_iter().map(|(name, _)| name).collect();
            return Err(Error::UnknownTopic { name, store, topics });
        }
    }
    found.findings = settings(&catalog, topic);
    let is_asked_for = |entry: &CatalogLog| {
        topic.is_none_or(|name| entry.topics.iter().any(|topic| topic.name == name))
    };
    let logs: Vec<_> = catalog.logs.iter().filter(|(_, entry)| is_asked_for(entry)).collect();
    let total = logs.iter().map(|(dir, _)| content_len(&**storage, dir)).sum();
    let mut done = 0;
    for (dir, entry) in logs {
        if !entry.exists {
            found.findings.extend(missing(&catalog, dir, entry));
            continue;
        }
        if entry.topics.is_empty() {
            let Some(finding) = unnamed(&catalog, dir)? else { continue };
            let is_leftover = finding.remedy == SWEPT;
            found.findings.push(finding);
            if is_leftover {
                continue;
            }
        }
        let mut report = verify_log(storage, &entry.subject(dir), &mut done, total, progress)?;
        let mut tell = |bytes| {
            done += bytes;
            progress(done, total.max(done))
        };
        found.findings.extend(staging::look(&**storage, dir, &mut tell)?);
        // Unless it was deleted meanwhile, while others stay in its log.
        report.findings.retain(|finding| {
            let topic =
                entry.topics.iter().find(|topic| Some(&topic.name) == finding.topic.as_ref());
            !(finding.what.starts_with(UNKNOWN_NUMBER) || finding.what == CALLED_DELETED)
                || topic.is_none_or(|topic| {
                    let TopicSettings { name, generation, .. } = topic;
                    !topics::is_gone(&**storage, &catalog.layout, name, generation)
                })
        });
        found.logs.push(report);
    }
    if topic.is_none() {
        let mut tell = |bytes| {
            done += bytes;
            progress(done, total.max(done))
        };
        found.findings.extend(catalog.look_beside(&mut tell)?.findings);
    }
    Ok(found)
}

const PUT_BACK: &str = "put the file back as it was, from a backup of this store: nothing else says what it \
     held, and what lies in the logs is untouched";

/// What is wrong with the settings files.
fn settings(catalog: &Catalog, topic: Option<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    // What they said no other file does.
    let told = |path: &Path, error: &Error| {
        let mut finding = Finding::of_error(Severity::Damage, path, error);
        if matches!(error, Error::CorruptData { .. }) {
            finding.remedy = PUT_BACK.into();
        }
        finding
    };
    if let Err(error) = &catalog.settings {
        found.push(told(&catalog.layout.settings(), error));
    }
    for (name, settings) in &catalog.topics {
        if topic.is_some_and(|topic| topic != name) {
            continue;
        }
        if let Err(error) = settings {
            let path = catalog.layout.topics().join(name);
            found.push(Finding { topic: Some(name.clone()), ..told(&path, error) });
        }
    }
    found
}

/// A topic whose log is not there: unless it was deleted just now, which the next look shows.
fn missing(catalog: &Catalog, dir: &Path, entry: &CatalogLog) -> Vec<Finding> {
    let still_there = |name: &str| {
        let path = catalog.layout.topic_settings(name);
        path.is_ok_and(|path| catalog.storage.stat(&path).is_ok())
    };
    let lost = entry.topics.iter().filter(|topic| still_there(&topic.name));
    let finding = |name: &String| Finding {
        topic: Some(name.clone()),
        remedy: format!(
            "put the directory back from a backup; where nobody misses its records, remove the \
             directory `topics/{name}` while nobody has the store open"
        )
        .into(),
        ..Finding::new(Severity::Damage, dir, 0, "the topic's log is missing")
    };
    lost.map(|topic| finding(&topic.name)).collect()
}

const SWEPT: &str =
    "it is removed when the store is opened for writing and nobody else has it open";

/// A log that no topic names: harmless where a creation or deletion was cut short, and damage where
/// it holds records that nobody can reach by a name any more. `None` when a topic that came just now
/// names it, or it is gone.
fn unnamed(catalog: &Catalog, dir: &Path) -> Result<Option<Finding>> {
    let storage = &*catalog.storage;
    let now = look_at_topics(storage, &catalog.layout)?;
    let directory = dir.file_name().unwrap_or_default().to_string_lossy();
    if now.named.contains(&*directory) || storage.stat(dir).is_err() {
        return Ok(None);
    }
    let (severity, what, remedy) = if catalog.has_unknown_topics() || now.unknown {
        let what = "no topic that can be read names this log";
        (Severity::Note, what, "it may be that of a topic that cannot")
    } else if now.deleted.contains(&*directory) || log::is_unused(storage, dir) {
        let what = "a log that no topic names, left over from a creation or deletion cut short";
        (Severity::Note, what, SWEPT)
    } else {
        let what = "no topic names this log, and it was used: its records cannot be reached";
        let remedy =
            "put the topic's `topic.json` back, or remove the directory if nobody misses it";
        (Severity::Damage, what, remedy)
    };
    let name = names::parse_log_dir(&directory).map_or("", |(name, _)| name);
    let what = if name.is_empty() { what.to_owned() } else { format!("{what} ({name})") };
    Ok(Some(Finding { remedy: remedy.into(), ..Finding::new(severity, dir, 0, what) }))
}
