//! Sweeping: removing leftovers of interrupted work, and nothing else.
//!
//! Owns removal inside a store. Invariant: a thing is removed only if its name is exactly one that
//! falaj gives, in the place where falaj puts it. And no `topic.json` can refer to it. While a
//! single `topic.json` cannot be read, no finished log is touched. A log that no `topic.json` names
//! is removed only if it was deleted, or was never used. A log stays if another program removed its
//! `topic.json`, until that is restored. Symbolic links are never followed; unknown files stay, and
//! so do their directories. All of it happens under the claim, so no process is in the middle of
//! such work *now*.
//!
//! Reading each of many topics takes long. So a process that creates or deletes something first
//! removes the file `settled`, and makes it again afterwards. If the file exists, there are no
//! leftovers, and a process that opens the store looks no further. It is this way round because
//! removing a file needs no space.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::claim::Claim;
use super::layout::{Layout, TEMPORARY, TOPIC_SETTINGS, deleted, in_log, temporary, top};
use super::{files, staging};
use crate::error::{IoResult, Result};
use crate::format::names;
use crate::format::settings::TopicSettings;
use crate::log;
use crate::storage::{OpenMode, Storage};

/// A change of the store's contents, under the claim.
#[derive(Debug)]
pub(super) struct Change<'a> {
    storage: &'a dyn Storage,
    path: PathBuf,
    mode: u32,
    /// False if an earlier change was interrupted: its leftovers must be found.
    was_settled: bool,
}

impl<'a> Change<'a> {
    /// Record, on disk, that a change begins.
    pub(super) fn begin(
        storage: &'a dyn Storage,
        layout: &Layout,
        _claim: &Claim,
        mode: u32,
    ) -> Result<Self> {
        let path = layout.settled();
        let was_settled = files::stat(storage, &path)?.is_some();
        files::unlink(storage, &path)?;
        files::sync_parent(storage, &path)?;
        Ok(Self { storage, path, mode, was_settled })
    }

    /// Record that the change is complete and on disk.
    pub(super) fn end(self) {
        if self.was_settled {
            write_settled(self.storage, &self.path, self.mode);
        }
    }
}

/// Write the file. If this fails, or does not reach the disk, a later opening looks for leftovers
/// in vain. Its content differs each time, so that a process that has read all topics knows whether
/// one was changed since.
fn write_settled(storage: &dyn Storage, path: &Path, mode: u32) {
    let Ok(file) = storage.open(path, OpenMode::CreateNew(mode)) else { return };
    if let Ok(id) = storage.random() {
        let _ = file.write_at(format!("{id:016x}").as_bytes(), 0);
    }
}

/// Return an id that is the same, read before and after, only if no topic was created, deleted or
/// configured in between. `None` while that happens, and if unknown.
pub(super) fn settled_id(storage: &dyn Storage, layout: &Layout) -> Option<u64> {
    let bytes = files::read_up_to(storage, &layout.settled(), 17).ok()??;
    let text = std::str::from_utf8(&bytes).ok().filter(|text| text.len() == 16)?;
    u64::from_str_radix(text, 16).ok()
}

/// Sweep if there can be leftovers.
///
/// # Errors
/// As [`sweep`].
pub(super) fn sweep_if_interrupted(
    storage: &dyn Storage,
    layout: &Layout,
    claim: &Claim,
    mode: u32,
) -> Result<Vec<String>> {
    match files::stat(storage, &layout.settled())? {
        Some(_) => sweep_top(storage, layout).map(|()| Vec::new()),
        None => sweep(storage, layout, claim, mode),
    }
}

fn sweep_top(storage: &dyn Storage, layout: &Layout) -> Result<()> {
    for name in [top::SETTINGS, top::WAKE] {
        files::unlink(storage, &temporary(&layout.root().join(name)))?;
    }
    Ok(())
}

/// Remove what interrupted creations and deletions left. Returns topics whose deletion must be
/// continued in a shared log, which cannot be done here.
///
/// # Errors
/// The first that occurs; the rest is left to the next sweep.
pub(super) fn sweep(
    storage: &dyn Storage,
    layout: &Layout,
    _claim: &Claim,
    mode: u32,
) -> Result<Vec<String>> {
    sweep_top(storage, layout)?;
    let found = look_at_topics(storage, layout)?;
    sweep_logs(storage, layout, &found)?;
    // Last: a `topic.json` that was renamed away says which log to delete or to update.
    let mut pending = Vec::new();
    for (names, are_finished) in [(found.unfinished, false), (found.finished, true)] {
        for name in names {
            let path = layout.topic_settings(&name)?;
            let log = found.leaving.get(&name);
            if log
                .is_some_and(|log| files::is_dir(storage, &layout.logs().join(log)).unwrap_or(true))
            {
                files::unlink(storage, &temporary(&path))?;
                pending.push(name);
            } else if are_finished {
                remove_leftovers(storage, &path)?;
                // The process that made it may have died before it was on disk.
                files::sync_parent(storage, &path)?;
            } else {
                remove_topic(storage, layout, &name)?;
            }
        }
    }
    if pending.is_empty() && !found.unknown {
        files::sync_dir(storage, &layout.topics())?;
        files::sync_dir(storage, &layout.logs())?;
        write_settled(storage, &layout.settled(), mode);
    }
    Ok(pending)
}

/// The contents of the directory of topics.
#[derive(Default)]
pub(super) struct FoundTopics {
    /// Directories of all logs that a `topic.json` names.
    pub(super) named: BTreeSet<String>,
    /// True when there may be more.
    pub(super) unknown: bool,
    /// Directories of logs whose topic was being deleted.
    pub(super) deleted: BTreeSet<String>,
    /// Those by the name of the topic.
    leaving: BTreeMap<String, String>,
    /// Complete topics.
    finished: Vec<String>,
    /// Topics without a `topic.json`.
    unfinished: Vec<String>,
}

pub(super) fn look_at_topics(storage: &dyn Storage, layout: &Layout) -> Result<FoundTopics> {
    let mut found = FoundTopics::default();
    for name in files::list(storage, &layout.topics())? {
        let Ok(path) = layout.topic_settings(&name) else { continue };
        if !files::is_dir(storage, &layout.topics().join(&name))? {
            // A link in place of a topic hides the log that it names.
            found.unknown = true;
            continue;
        }
        if let Some(log) = log_named_by(storage, &deleted(&path)) {
            found.deleted.insert(log.clone());
            found.leaving.insert(name.clone(), log);
        }
        match files::read(storage, &path) {
            Ok(None) => found.unfinished.push(name),
            Ok(Some(bytes)) => match TopicSettings::decode(&bytes) {
                Ok(topic) => {
                    found.named.insert(topic.log_dir());
                    found.finished.push(name);
                }
                Err(_) => found.unknown = true,
            },
            Err(_) => found.unknown = true,
        }
    }
    Ok(found)
}

/// Read the directory of the log from a settings file.
fn log_named_by(storage: &dyn Storage, path: &Path) -> Option<String> {
    let bytes = files::read(storage, path).ok()??;
    TopicSettings::decode(&bytes).ok().map(|topic| topic.log_dir())
}

/// Continue a deletion of the same topic that died before it reached the log, under the claim.
/// False if the log is, or may be, shared.
pub(super) fn finish_deletion(storage: &dyn Storage, layout: &Layout, away: &Path) -> Result<bool> {
    let Some(name) = log_named_by(storage, away) else { return Ok(true) };
    let (found, path) = (look_at_topics(storage, layout)?, layout.logs().join(&name));
    if !files::is_dir(storage, &path)? {
        return Ok(true);
    }
    if found.unknown || found.named.contains(&name) {
        return Ok(false);
    }
    log::mark_deleted(storage, &path)?;
    remove_log(storage, &path)?;
    Ok(true)
}

fn sweep_logs(storage: &dyn Storage, layout: &Layout, found: &FoundTopics) -> Result<()> {
    for name in files::list(storage, &layout.logs())? {
        let path = layout.logs().join(&name);
        let whole = name.strip_suffix(TEMPORARY);
        if names::parse_log_dir(whole.unwrap_or(&name)).is_none() || !files::is_dir(storage, &path)?
        {
            continue;
        }
        if whole.is_none() {
            if found.unknown || found.named.contains(&name) {
                continue;
            }
            if !found.deleted.contains(&name) && !log::is_unused(storage, &path) {
                continue;
            }
            // A process may still have it open: the one that deleted it died before it marked it.
            log::mark_deleted(storage, &path)?;
        }
        remove_log(storage, &path)?;
    }
    Ok(())
}

/// Remove the directory of a topic without a `topic.json`.
pub(super) fn remove_topic(storage: &dyn Storage, layout: &Layout, name: &str) -> Result<()> {
    let directory = layout.topic(name)?;
    remove_leftovers(storage, &directory.join(TOPIC_SETTINGS))?;
    files::remove_dir(storage, &directory)?;
    files::sync_parent(storage, &directory)
}

fn remove_leftovers(storage: &dyn Storage, topic_settings: &Path) -> Result<()> {
    for path in [temporary(topic_settings), deleted(topic_settings)] {
        if files::stat(storage, &path)?.is_some() {
            files::unlink(storage, &path)?;
            files::sync_parent(storage, &path)?;
        }
    }
    Ok(())
}

/// Remove a log's directory that nothing names. Maps of its files stay valid. It loses its name
/// first. So a process that has the log open and is in the middle of a roll makes no file in it any
/// more. The next sweep removes what lies under the temporary name, however this one ends.
pub(super) fn remove_log(storage: &dyn Storage, path: &Path) -> Result<()> {
    if path.to_string_lossy().ends_with(TEMPORARY) {
        return remove_log_files(storage, path).map(drop);
    }
    let away = temporary(path);
    if files::is_dir(storage, &away)? {
        remove_log_files(storage, &away)?;
    }
    let renamed = storage.rename_new(path, &away);
    renamed.doing("rename", path)?;
    // A call that looked the directory up before it lost its name may still put a file of the log
    // there.
    while remove_log_files(storage, &away)? > 0 && files::is_dir(storage, &away)? {}
    if files::is_dir(storage, &away)? {
        // Files of other programs stay under the name where those look for them.
        storage.rename_new(&away, path).doing("rename", &away)?;
    }
    Ok(())
}

/// Remove a log's files, and the directory if nothing else is in it; return how many files of the
/// log itself there were.
fn remove_log_files(storage: &dyn Storage, path: &Path) -> Result<usize> {
    let mut removed = 0;
    let quarantine = path.join(in_log::QUARANTINE);
    if files::is_dir(storage, &quarantine)? {
        for name in files::list(storage, &quarantine)? {
            if is_quarantined(&name) {
                files::unlink(storage, &quarantine.join(name))?;
            }
        }
        files::remove_dir(storage, &quarantine)?;
    }
    staging::remove_all(storage, path)?;
    for name in files::list(storage, path)? {
        if names::is_log_file(&name) {
            files::unlink(storage, &path.join(name))?;
            removed += 1;
        }
    }
    files::remove_dir(storage, path)?;
    files::sync_parent(storage, path)?;
    Ok(removed)
}

/// Return true for a file of a log, perhaps with an ending that distinguishes several of them.
fn is_quarantined(name: &str) -> bool {
    let segment = name.get(..24).is_some_and(|head| {
        names::parse_segment(head).is_some() || names::parse_index(head).is_some()
    });
    segment || names::is_log_file(name)
}
