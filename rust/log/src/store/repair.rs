//! Repair: reporting what recovery would do to a store, and doing it.
//!
//! Owns `falaj repair`. Opening a store for writing recovers its logs as they are opened. Repair
//! does the same to all of them at once, and also continues where opening fails because data on
//! disk is lost. It rebuilds bad indexes, and reports what it did. It deletes no bytes: what is cut
//! off stays in its file, or moves to `quarantine/` ([`crate::log::RepairKind`]). A dry run decides
//! everything and changes nothing.
//!
//! If others have the store open, each log that they use was recovered already. Then only
//! failed-sync states and indexes are left to repair.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalog::{Catalog, CatalogLog};
use super::claim::Patience;
use super::logs::{LogMembership, settings_to_read};
use super::options::{Access, StoreOptions};
use super::{Store, membership};
use crate::error::{Error, Result};
use crate::format::settings::TopicSettings;
use crate::log::{self, Log, LogSettings, RepairStep};
use crate::storage::Storage;

/// The repairs of a store, planned or done.
#[derive(Debug)]
pub struct RepairReport {
    /// True when nothing was changed.
    pub dry_run: bool,
    /// Whether another process has the store open for writing; `None` if unknown.
    pub in_use: Option<bool>,
    /// The logs.
    pub logs: Vec<LogRepair>,
    /// Unrepairable errors: corrupt settings of the store or of topics, and corrupt files of
    /// consumer groups and queues. Only their owner can say where those continue.
    pub problems: Vec<Error>,
}

impl RepairReport {
    /// Iterate over all steps, of all logs.
    pub fn steps(&self) -> impl Iterator<Item = &RepairStep> {
        self.logs.iter().flat_map(|log| &log.steps)
    }

    /// Return true when all errors were, or would be, repaired.
    pub fn is_complete(&self) -> bool {
        self.problems.is_empty() && self.logs.iter().all(|log| log.problem.is_none())
    }
}

/// The repairs of a log, planned or done.
#[derive(Debug)]
pub struct LogRepair {
    /// Its directory.
    pub dir: PathBuf,
    /// Its topics.
    pub topics: Vec<String>,
    /// The steps, in this order. Empty if nothing is needed.
    pub steps: Vec<RepairStep>,
    /// Topic, partition, and the offset with which it continues, if a recovery was due.
    pub ends: Vec<(String, u32, u64)>,
    /// Why it cannot be repaired.
    pub problem: Option<Error>,
}

impl Store {
    /// Find out what recovery would do to this store's logs, or do it; see [`repair`].
    ///
    /// # Errors
    /// As [`repair`].
    pub fn repair(&self, dry_run: bool) -> Result<RepairReport> {
        if dry_run {
            return rehearse(self.storage(), self.path(), self.shared.lock_timeout);
        }
        let catalog = Catalog::read(self.storage(), self.path())?;
        self.mend(catalog, Some(false))
    }

    fn mend(&self, catalog: Catalog, in_use: Option<bool>) -> Result<RepairReport> {
        let member = LogMembership(self.membership()?);
        let mend = |dir: &Path, topic: &TopicSettings| {
            let settings = self.log_settings(topic);
            let mut steps = log::mend(self.storage(), dir, &settings, &member)?;
            // Declared before the log, so dropped after it.
            let _closing;
            let log = self.open_log(topic)?;
            _closing = self.closing(&log)?;
            steps.extend(log.mend_latch()?);
            steps.extend(log.mend_offsets()?);
            steps.extend(log.restore_headers()?);
            steps.extend(log.mend_indexes()?);
            Ok((steps, Vec::new()))
        };
        Ok(report(catalog, false, in_use, mend))
    }
}

/// Find out how to repair a store, and repair it unless this is a dry run.
///
/// # Errors
/// `StoreNotFound`, `NotAStore`, `UnsupportedVersion`, `OutdatedFormat`, `LockTimeout`; without dry
/// run also those of [`Store::open`]. Errors of a single log or topic are in the report.
pub fn repair(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: &StoreOptions,
    dry_run: bool,
) -> Result<RepairReport> {
    if dry_run {
        return rehearse(&storage, path, options.lock_timeout);
    }
    let catalog = Catalog::read(&storage, path)?;
    let patience = Patience::new(options.lock_timeout);
    let writers = membership::somebody_writes(&storage, &catalog.layout, patience)?;
    let options = StoreOptions { access: Access::Write, ..options.clone() };
    let store = Store::open_on(storage, path, &options)?;
    store.mend(catalog, Some(writers.is_some()))
}

/// Decide everything and change nothing.
fn rehearse(
    storage: &Arc<dyn Storage>,
    path: &Path,
    patience: std::time::Duration,
) -> Result<RepairReport> {
    let catalog = Catalog::read(storage, path)?;
    let patience = Patience::new(patience);
    let writers = match membership::somebody_writes(storage, &catalog.layout, patience) {
        // A user that may only read the store may still ask for its repairs.
        Err(Error::SystemCallFailed { .. }) => None,
        other => Some(other?),
    };
    let current = writers.flatten();
    let write_mode = catalog.write_mode();
    let plan = |dir: &Path, topic: &TopicSettings| {
        let settings = settings_to_read(topic, write_mode);
        // Any other incarnation than the log's own means that it will be recovered.
        let incarnation = current.unwrap_or(u64::MAX);
        plan_log(storage, dir, &settings, incarnation)
    };
    Ok(report(catalog, true, writers.map(|writers| writers.is_some()), plan))
}

/// Steps, and the offsets with which topics continue, by their number.
type Mended = (Vec<RepairStep>, Vec<(u32, u64)>);

fn plan_log(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    incarnation: u64,
) -> Result<Mended> {
    let log = Log::open(Arc::clone(storage), dir, settings.clone(), None)?;
    if log.extent().is_ok_and(|extent| extent.incarnation == incarnation) {
        let mut steps: Vec<_> = log.latch_to_mend().into_iter().collect();
        steps.extend(log.offsets_to_mend()?);
        steps.extend(log.headers_to_restore()?);
        steps.extend(log.indexes_to_mend()?);
        return Ok((steps, Vec::new()));
    }
    let planned = log::plan(storage, dir, settings, incarnation)?;
    Ok((planned.steps, planned.ends))
}

fn report(
    catalog: Catalog,
    dry_run: bool,
    in_use: Option<bool>,
    mut mend: impl FnMut(&Path, &TopicSettings) -> Result<Mended>,
) -> RepairReport {
    let logs = catalog.logs.iter().filter_map(|(dir, entry)| one(dir, entry, &mut mend)).collect();
    let beside = catalog.look_beside(&mut |_| Ok(()));
    let beside = beside.map_or_else(|error| vec![error], |found| found.problems);
    let of_topics = catalog.topics.into_iter().filter_map(|(_, topic)| topic.err());
    let problems = catalog.settings.err().into_iter().chain(of_topics).chain(beside).collect();
    RepairReport { dry_run, in_use, logs, problems }
}

fn one(
    dir: &Path,
    entry: &CatalogLog,
    mend: &mut impl FnMut(&Path, &TopicSettings) -> Result<Mended>,
) -> Option<LogRepair> {
    let topic = entry.topics.first()?;
    let topics = entry.topics.iter().map(|topic| topic.name.clone()).collect();
    let mut repair = LogRepair {
        dir: dir.to_path_buf(),
        topics,
        steps: Vec::new(),
        ends: Vec::new(),
        problem: None,
    };
    if !entry.exists {
        // It is missing, or a link, which leads to a log of another owner.
        repair.problem = Some(Error::corrupt(dir, 0, "the topic's log is missing"));
        return Some(repair);
    }
    match mend(dir, topic) {
        Ok((steps, ends)) => {
            // Only those with a topic.
            let name = |(number, end): (u32, u64)| {
                let holds =
                    |t: &&TopicSettings| (t.number..t.number + t.partitions).contains(&number);
                let topic = entry.topics.iter().find(holds)?;
                Some((topic.name.clone(), number - topic.number, end))
            };
            (repair.steps, repair.ends) = (steps, ends.into_iter().filter_map(name).collect());
        }
        Err(error) => repair.problem = Some(error),
    }
    Some(repair)
}
