//! Retention by limits: which records expire, and which process deletes them.
//!
//! Owns the way from the limits *now* in `topic.json` and `falaj.json` to a trim of each log.
//! Settings are read again each time, so a change applies from the next time on, for every process.
//! Two do it. A process that rolls does it right after that, by a thread that no append waits for
//! ([`helper`]). A caller of [`Store::maintain`] does it for all logs at once. Records that a
//! consumer group or a queue still needs stay if the topic says so ([`needs`]). Both may run at the
//! same time, in any number of processes. A trim only raises, and a second removal is no error. The
//! counts of a plan for the whole store are checked again before it is used. After a death in
//! between, the next run finishes. [`plan`] defines the limits, [`crate::log`] removes files. See
//! `docs/PROTOCOL.md`, "Retention by limits".

pub(super) mod helper;
mod needs;
mod plan;
mod settled;
#[cfg(test)]
mod tests;
mod unshipped;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use needs::Need;
pub use plan::{Limit, PartitionTrim};

use super::{Stale, Store, files, sweep, sweep_staging};
use crate::error::{Error, Result};
use crate::format::names;
use crate::format::settings::{SHIP_BACKLOG, TopicSettings};
use crate::log::{Log, Removed};
use plan::{LogPlan, Tenant};
use unshipped::note_gap;

/// The results of maintenance, planned or done.
#[derive(Debug)]
pub struct Maintenance {
    /// True when nothing was changed.
    pub dry_run: bool,
    /// The store's limit.
    pub retention_bytes: Option<u64>,
    /// Bytes of the segments and indexes of all logs, after the work.
    pub bytes: u64,
    /// The logs, by directory.
    pub logs: Vec<LogMaintenance>,
    /// Errors in a topic's settings or in the file of a consumer group or a queue, and of sweeping.
    pub problems: Vec<Error>,
}

/// The same for a log.
#[derive(Debug)]
pub struct LogMaintenance {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Its topics.
    pub topics: Vec<String>,
    /// Partitions with a new start.
    pub cuts: Vec<PartitionTrim>,
    /// Removed files.
    pub removed: Removed,
    /// Why some of the work was not done.
    pub problem: Option<Error>,
}

impl Store {
    /// Delete what is beyond the limits in all topics, and finish interrupted trims. Sweep what
    /// deletions left, and parts of bulk loads that were abandoned a day ago. Topics with writers
    /// do not need it: a process that rolls does the first for that log. Costs a look at each log,
    /// beside the removals.
    ///
    /// ```
    /// use falaj::{RetentionChange, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let last = RetentionChange::default().records(2);
    /// let orders = store.topic_options("orders").retention(last).open()?;
    /// orders.extend(["1", "2", "3"])?;
    /// orders.flush()?;
    /// let done = store.maintain(false)?;
    /// assert_eq!((done.logs[0].cuts[0].to, orders.start_offset()?), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotWritable` unless `dry_run`; `CorruptData`, `UnsupportedVersion`, `SystemCallFailed` for
    /// `falaj.json` and for directories that cannot be listed. Errors of one log are in its result,
    /// and the work continues with the others.
    pub fn maintain(&self, dry_run: bool) -> Result<Maintenance> {
        let mut problems = Vec::new();
        if !dry_run {
            let claim = self.shared.claim()?;
            problems.extend(
                sweep::sweep(self.shared.storage(), self.layout(), &claim, self.modes().file).err(),
            );
        }
        let retention_bytes = self.stored_settings()?.retention_bytes;
        let (mut plans, mut logs) = (Vec::new(), Vec::new());
        let by_log = self.by_log(&mut problems)?;
        let firsts: BTreeMap<_, _> =
            by_log.iter().map(|(dir, topics)| (dir.clone(), topics[0].clone())).collect();
        for (dir, topics) in by_log {
            let name = topics[0].log.clone();
            let names = topics.iter().map(|topic| topic.name.clone()).collect();
            let opened =
                if dry_run { self.log_to_read(&topics[0]) } else { self.open_log(&topics[0]) };
            let planned = opened.and_then(|log| self.plan(&dir, log, topics));
            let (plan, problem) = match planned {
                Ok(plan) => (Some(plan), None),
                Err(error) => (None, Some(error)),
            };
            plans.extend(plan);
            let (cuts, removed) = (Vec::new(), Removed::default());
            logs.push(LogMaintenance { name, dir, topics: names, cuts, removed, problem });
        }
        if let Some(most) = retention_bytes {
            let planned = plan::apply_store(&mut plans, || self.taken(), most);
            problems.extend(planned.err());
        }
        for log in logs.iter_mut().filter(|_| !dry_run) {
            let swept = sweep_staging(self.shared.storage(), &log.dir, &Stale::default());
            log.problem = log.problem.take().or(swept.err());
        }
        for plan in plans {
            let Some(told) = logs.iter_mut().find(|log| log.dir == plan.dir) else { continue };
            match if dry_run { would_remove(&plan) } else { self.carry_out(&plan) } {
                Ok(removed) => told.removed = removed,
                Err(error) => told.problem = Some(error),
            }
            told.problem = told.problem.take().or(plan.uncounted);
            told.cuts = plan.cuts.into_values().collect();
        }
        // A topic that was deleted since it was read has no problem.
        logs.retain(|log| log.problem.is_none() || !self.is_gone(&firsts[&log.dir]));
        problems.extend(self.problems_beside());
        let bytes = self.taken()?;
        Ok(Maintenance { dry_run, retention_bytes, bytes, logs, problems })
    }

    /// Apply the limits of its topics to a log.
    fn plan(&self, dir: &Path, log: Arc<Log>, topics: Vec<TopicSettings>) -> Result<LogPlan> {
        let mut plan = self.begin_plan(dir, log, topics)?;
        plan.apply_own(self.storage().now_us())?;
        Ok(plan)
    }

    /// Begin a plan, without a limit yet.
    fn begin_plan(&self, dir: &Path, log: Arc<Log>, topics: Vec<TopicSettings>) -> Result<LogPlan> {
        let tenants = self.tenants(&log, topics)?;
        let mut plan = LogPlan::new(dir.to_path_buf(), log, tenants);
        if self.is_shipped()? {
            let most = self.stored_settings()?.ship_backlog_bytes.unwrap_or(SHIP_BACKLOG);
            plan.keep_unshipped(most)?;
        }
        Ok(plan)
    }

    fn tenants(&self, log: &Arc<Log>, topics: Vec<TopicSettings>) -> Result<Vec<Tenant>> {
        let tenant = |settings: TopicSettings| {
            let waits = settings.retention.waits;
            let needs = if waits { self.needs_in(log, &settings)? } else { Vec::new() };
            Ok(Tenant { settings, needs })
        };
        topics.into_iter().map(tenant).collect()
    }

    fn carry_out(&self, plan: &LogPlan) -> Result<Removed> {
        self.prepare(plan)?;
        plan.log.trim(&plan.firsts())
    }

    /// Put on the disk what must be there before records go: the commits and acks by which they may.
    fn prepare(&self, plan: &LogPlan) -> Result<()> {
        let waits = plan.tenants.iter().any(|tenant| tenant.settings.retention.waits);
        if waits && !plan.firsts().is_empty() {
            self.sync_needs()?;
        }
        note_gap(plan)
    }

    /// Group topics by log.
    fn by_log(&self, problems: &mut Vec<Error>) -> Result<BTreeMap<PathBuf, Vec<TopicSettings>>> {
        let mut logs = BTreeMap::<_, Vec<_>>::new();
        for (_, topic) in self.topics()? {
            match topic {
                Ok(topic) => logs.entry(self.log_dir(&topic)?).or_default().push(topic),
                Err(error) => problems.push(error),
            }
        }
        Ok(logs)
    }

    fn log_to_read(&self, topic: &TopicSettings) -> Result<Arc<Log>> {
        Log::open(Arc::clone(self.storage()), &self.log_dir(topic)?, self.log_settings(topic), None)
    }

    /// Return the bytes of the segments and indexes of all logs on disk.
    fn taken(&self) -> Result<u64> {
        let (storage, logs) = (self.shared.storage(), self.layout().logs());
        let mut bytes = 0;
        for log in files::list(storage, &logs)? {
            let dir = logs.join(&log);
            // It was deleted meanwhile, or is no log at all.
            let Ok(found) = storage.list(&dir) else { continue };
            let counts = |name: &&String| {
                names::parse_segment(name).is_some() || names::parse_index(name).is_some()
            };
            let stats = found.iter().filter(counts).map(|name| storage.stat(&dir.join(name)));
            bytes +=
                stats.filter_map(std::result::Result::ok).map(|stat| stat.allocated).sum::<u64>();
        }
        Ok(bytes)
    }
}

fn would_remove(plan: &LogPlan) -> Result<Removed> {
    let removable = plan.log.removable(&plan.firsts())?;
    Ok(Removed { segments: removable.sequences.len() as u64, bytes: removable.bytes })
}

/// Return true for errors of reading a topic while it is deleted.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::TopicDeleted { .. } | Error::UnknownTopic { .. })
}
