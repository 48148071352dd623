//! Verifying a store: its settings, each of its logs, its consumers and queues.
//!
//! Owns the report of `falaj verify`. It works on a store that does not open: it only reads files,
//! and corruption is a finding, not an error. [`crate::log::verify`] checks the contents of a log,
//! [`super::sidecar_check`] the files beside the logs; nothing is ever changed.

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

/// The result of verifying a store.
#[derive(Debug, Default)]
pub struct Verification {
    /// Findings about the store itself: its settings, unreadable topics, logs without a topic;
    /// files of consumer groups and queues.
    pub findings: Vec<Finding>,
    /// The logs that were checked.
    pub logs: Vec<LogReport>,
}

impl Verification {
    /// Return true when all written data is there.
    pub fn is_sound(&self) -> bool {
        self.worst().is_none_or(|worst| worst < Severity::Unrecovered)
    }

    /// Return the worst severity; `None` without findings.
    pub fn worst(&self) -> Option<Severity> {
        self.all_findings().map(|finding| finding.severity).max()
    }

    /// Iterate over all findings, the store's own first.
    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(self.logs.iter().flat_map(|log| &log.findings))
    }

    /// Return the numbers of checked segments, valid blocks, records and bytes.
    pub fn counts(&self) -> [u64; 4] {
        self.logs.iter().fold([0; 4], |[segments, blocks, records, bytes], log| {
            [segments + log.segments, blocks + log.blocks, records + log.records, bytes + log.bytes]
        })
    }
}

impl Store {
    /// Verify the store, or the log of one topic: every checksum, the chain of segments, offsets,
    /// indexes, control pages, settings. The whole store includes the files of consumer groups and
    /// queues. Nothing is mapped and nothing is changed; others may write meanwhile.
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

/// Verify as [`Store::verify`], without opening the store.
///
/// # Errors
/// `StoreNotFound`, `NotAStore`; `UnknownTopic` for a missing topic; `SystemCallFailed` when a
/// directory cannot be listed; the errors of `progress`. All else is a finding.
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
    let lens: Vec<_> = logs.iter().map(|(dir, _)| content_len(&**storage, dir)).collect();
    let total = lens.iter().sum();
    let (mut done, mut before) = (0, 0);
    for ((dir, entry), len) in logs.into_iter().zip(lens) {
        // A pass ends at the last block, and the segment may be allocated further.
        done = done.max(before);
        before += len;
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
    let all = total.max(done);
    if all > 0 {
        progress(all, all)?;
    }
    Ok(found)
}

const PUT_BACK: &str = "restore the file from a backup of this store: its contents are nowhere else, and the \
     logs are untouched";

/// Check the settings files.
fn settings(catalog: &Catalog, topic: Option<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    // No other file has their contents.
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

/// Note topics whose log is missing; a topic that was deleted just now is gone at the next look.
fn missing(catalog: &Catalog, dir: &Path, entry: &CatalogLog) -> Vec<Finding> {
    let still_there = |name: &str| {
        let path = catalog.layout.topic_settings(name);
        path.is_ok_and(|path| catalog.storage.stat(&path).is_ok())
    };
    let lost = entry.topics.iter().filter(|topic| still_there(&topic.name));
    let finding = |name: &String| Finding {
        topic: Some(name.clone()),
        remedy: format!(
            "restore the directory from a backup; if its records are not needed, remove the \
             directory `topics/{name}` while no process has the store open"
        )
        .into(),
        ..Finding::new(Severity::Damage, dir, 0, "the topic's log is missing")
    };
    lost.map(|topic| finding(&topic.name)).collect()
}

const SWEPT: &str = "the next process that opens the store for writing alone removes it";

/// Check a log that no topic names. It is harmless after an interrupted creation or deletion. It is
/// corruption if its records can no longer be reached by a name. `None` when a topic that came just
/// now names it, or it is gone.
fn unnamed(catalog: &Catalog, dir: &Path) -> Result<Option<Finding>> {
    let storage = &*catalog.storage;
    let now = look_at_topics(storage, &catalog.layout)?;
    let directory = dir.file_name().unwrap_or_default().to_string_lossy();
    if now.named.contains(&*directory) || storage.stat(dir).is_err() {
        return Ok(None);
    }
    let (severity, what, remedy) = if catalog.has_unknown_topics() || now.unknown {
        let what = "no topic that can be read names this log";
        (Severity::Note, what, "it may belong to an unreadable topic")
    } else if now.deleted.contains(&*directory) || log::is_unused(storage, dir) {
        let what = "a log that no topic names, left over from a creation or deletion cut short";
        (Severity::Note, what, SWEPT)
    } else {
        let what = "no topic names this log, and it was used: its records cannot be reached";
        let remedy =
            "restore the topic's `topic.json`, or remove the directory if it is not needed";
        (Severity::Damage, what, remedy)
    };
    let name = names::parse_log_dir(&directory).map_or("", |(name, _)| name);
    let what = if name.is_empty() { what.to_owned() } else { format!("{what} ({name})") };
    Ok(Some(Finding { remedy: remedy.into(), ..Finding::new(severity, dir, 0, what) }))
}
