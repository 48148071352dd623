//! Retention by whoever rolls: a thread of its process, after the roll.
//!
//! Owns what that thread does when the keeper rouses it. No append waits for it, and none fails because
//! of it: what goes wrong is kept for `info`, until a later turn goes well, and the next roll tries
//! again. A turn is short: it says what is gone, and then files go a few at a time, because whoever
//! closes the log waits for the turn to end. A process that ends before all went leaves the rest to the
//! next roll, of any process, or to [`Store::maintain`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::super::membership::Membership;
use super::super::registry::MembershipRef;
use super::super::sweep::settled_id;
use super::super::topics::read_settings;
use super::super::{Store, StoreInner};
use super::plan::{self, LogPlan};
use super::{carry_out, is_gone};
use crate::error::{Error, Result};
use crate::format::names;
use crate::format::settings::TopicSettings;
use crate::log::Log;

/// Segments that go in one turn.
const A_FEW: usize = 4;

/// What the thread knows: where the store is, and which logs it has not done with.
#[derive(Debug)]
pub(in crate::store) struct Helper {
    shared: StoreInner,
    unfinished: BTreeSet<PathBuf>,
    /// Logs without a topic that has limits, while the store is as it was then.
    unlimited: BTreeMap<PathBuf, u64>,
}

impl Helper {
    /// For the logs of this store.
    pub(in crate::store) fn new(store: &Store) -> Self {
        let (unfinished, unlimited) = Default::default();
        Self { shared: store.shared.without_seat(), unfinished, unlimited }
    }

    /// See to the logs that were rolled, or are not done with; true when there is more to do.
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
            // A turn that only removes files knows nothing of what could not be counted.
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
    /// Say what of a log is beyond the limits; where the store has one, also of others. True when there
    /// are files to remove; and why records could not be counted. Of a log that many topics share, none with limits, the topics are looked at
    /// once, and then only after one was changed.
    fn retain(
        &self,
        log: &Arc<Log>,
        unlimited: &mut BTreeMap<PathBuf, u64>,
    ) -> Result<(bool, Option<Error>)> {
        let most = self.stored_settings()?.retention_bytes;
        // Before the topics are looked at: what changes meanwhile has another.
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
            log.say_trimmed(&firsts)?;
        }
        Ok((true, plan.uncounted))
    }

    /// Take what is beyond the store's limit from all logs, but leave this one's for later.
    fn fit(&self, own: LogPlan, most: u64) -> Result<LogPlan> {
        let dir = own.dir.clone();
        let mut plans = vec![own];
        for (other, topics) in self.by_log(&mut Vec::new())? {
            if other != dir {
                // What cannot be read is told to whoever reads it.
                let Ok(log) = self.log_to_read(&topics[0]) else { continue };
                plans.push(LogPlan::new(other, log, self.tenants(topics)?));
            }
        }
        plan::apply_store(&mut plans, || self.taken(), most)?;
        let own = plans.remove(0);
        for mut plan in plans.into_iter().filter(|plan| !plan.firsts().is_empty()) {
            plan.log = self.open_log(&plan.tenants[0].settings)?;
            match carry_out(&plan) {
                Err(error) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(own)
    }

    /// The topics that live in a log. Most have one of their own, of the same name: then no other needs
    /// to be looked at.
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

/// What went wrong last, by directory of the log.
pub(in crate::store) type Problems = BTreeMap<PathBuf, String>;
