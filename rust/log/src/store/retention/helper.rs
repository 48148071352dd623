//! Retention by the process that rolls: a thread, after the roll.
//!
//! Owns what that thread does when the keeper wakes it. No append waits for it or fails because of
//! it: `info` has its error, until a later turn succeeds, and the next roll tries again. A turn is
//! short: it trims, and then removes a few files at a time. That is because a thread that closes
//! the log waits for the turn to end. If a process ends before all are removed, the next roll of
//! any process, or [`Store::maintain`], removes the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::super::membership::Membership;
use super::super::registry::MembershipRef;
use super::super::sweep::settled_id;
use super::super::topics::read_settings;
use super::super::{Store, StoreInner};
use super::is_gone;
use super::plan::{self, LogPlan};
use crate::error::{Error, Result};
use crate::format::names;
use crate::format::settings::TopicSettings;
use crate::log::Log;

/// Segments removed in one turn.
const A_FEW: usize = 4;

/// The thread's state: the store, and the logs that it has not finished.
#[derive(Debug)]
pub(in crate::store) struct Helper {
    shared: StoreInner,
    unfinished: BTreeSet<PathBuf>,
    /// Logs without a topic that has limits, while the store is unchanged.
    unlimited: BTreeMap<PathBuf, u64>,
}

impl Helper {
    /// Make it for the logs of this store.
    pub(in crate::store) fn new(store: &Store) -> Self {
        let (unfinished, unlimited) = Default::default();
        Self { shared: store.shared.without_seat(), unfinished, unlimited }
    }

    /// Work on logs that were rolled, or are unfinished; return true when there is more to do.
    pub(in crate::store) fn turn(&mut self, member: &Arc<Membership>, logs: &[Arc<Log>]) -> bool {
        let is_open = |dir: &PathBuf| logs.iter().any(|log| log.dir() == dir);
        self.unfinished.retain(is_open);
        self.unlimited.retain(|dir, _| is_open(dir));
        for log in logs {
            let dir = log.dir();
            let is_roll = log.take_retention_due();
            let done = if is_roll {
                self.store(member).retain(log, &mut self.unlimited)
            } else if self.unfinished.contains(dir) {
                log.remove_some(A_FEW).map(|removed| (removed.segments as usize == A_FEW, None))
            } else {
                continue;
            };
            match &done {
                Ok((true, _)) => drop(self.unfinished.insert(dir.to_path_buf())),
                _ => drop(self.unfinished.remove(dir)),
            }
            let problem = done.map_or_else(Some, |(_, uncounted)| uncounted);
            let problem = problem.filter(|error| !is_gone(error) && !log.is_deleted());
            // A turn that only removes files does not know about uncountable records.
            if !is_roll && problem.is_none() {
                continue;
            }
            member.logs().note_retention(dir, problem.map(|error| error.to_string()));
        }
        !self.unfinished.is_empty()
    }

    fn store(&self, member: &Arc<Membership>) -> Store {
        let seat = Some(MembershipRef::new(Arc::clone(member)));
        Store { shared: Arc::new(StoreInner { seat, ..self.shared.without_seat() }) }
    }
}

impl Store {
    /// Trim what is beyond the limits of a log; if the store has a limit, also in others. Returns
    /// true when there are files to remove; also why records could not be counted. In a log of many
    /// topics without limits, the topics are read once, and then only after one was changed.
    fn retain(
        &self,
        log: &Arc<Log>,
        unlimited: &mut BTreeMap<PathBuf, u64>,
    ) -> Result<(bool, Option<Error>)> {
        let most = self.stored_settings()?.retention_bytes;
        // Before the topics are read: a change meanwhile has another id.
        let id = settled_id(self.shared.storage(), self.layout());
        if most.is_none() && id.is_some() && unlimited.get(log.dir()).copied() == id {
            return Ok((false, None));
        }
        let topics = self.topics_in(log)?;
        if most.is_none() && topics.iter().all(|topic| !topic.retention.is_limited()) {
            unlimited.extend(id.map(|id| (log.dir().to_path_buf(), id)));
            return Ok((false, None));
        }
        let mut plan = self.plan(log.dir(), Arc::clone(log), topics)?;
        if let Some(most) = most.filter(|most| self.taken().is_ok_and(|taken| taken > *most)) {
            plan = self.fit(plan, most)?;
        }
        let firsts = plan.firsts();
        if !firsts.is_empty() {
            self.prepare(&plan)?;
            log.say_trimmed(&firsts)?;
        }
        Ok((true, plan.uncounted))
    }

    /// Trim all logs to the store's limit, but return this one's plan for later.
    fn fit(&self, own: LogPlan, most: u64) -> Result<LogPlan> {
        let dir = own.dir.clone();
        let mut plans = vec![own];
        for (other, topics) in self.by_log(&mut Vec::new())? {
            if other != dir {
                // A reader of an unreadable topic gets the error.
                let Ok(log) = self.log_to_read(&topics[0]) else { continue };
                plans.push(self.begin_plan(&other, log, topics)?);
            }
        }
        plan::apply_store(&mut plans, || self.taken(), most)?;
        let own = plans.remove(0);
        for mut plan in plans.into_iter().filter(|plan| !plan.firsts().is_empty()) {
            plan.log = self.open_log(&plan.tenants[0].settings)?;
            match self.carry_out(&plan) {
                Err(error) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(own)
    }

    /// List the topics of a log. Most logs have one topic of the same name: then no other topic is
    /// read.
    fn topics_in(&self, log: &Log) -> Result<Vec<TopicSettings>> {
        let generation = log.settings().generation;
        let lives_here = |topic: &TopicSettings| topic.log_generation == generation;
        let name = log.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((name, _)) = names::parse_log_dir(&name) {
            let own = read_settings(self.shared.storage(), self.layout(), name)?.filter(lives_here);
            let numbers = log.with_segments(|list| Ok(list.topic_numbers()?.len()))?;
            if let Some(own) = own.filter(|own| own.partitions as usize == numbers) {
                return Ok(vec![own]);
            }
        }
        let topics = self.topics()?.into_iter().filter_map(|(_, topic)| topic.ok());
        Ok(topics.filter(lives_here).collect())
    }
}

/// The last errors, by directory of the log.
pub(in crate::store) type Problems = BTreeMap<PathBuf, String>;
