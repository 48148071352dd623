//! What is to go of a log: by the limits of its topics, and by the store's.
//!
//! Owns what the limits mean, told in offsets. Nothing is changed here. Size and age cut between
//! segments, a number of records anywhere; each only ever raises a topic's first offset, and none
//! beyond what is on the disk or into the active segment, but for the number. That one counts records
//! that are there ([`Log::start_of_last`]); where they cannot be counted it deletes nothing, and the
//! reason is told. What a consumer still
//! needs is kept where the topic says so. The store's limit takes the oldest segment of all logs, by
//! its newest record, and then the next, until the rest fits. See `docs/PROTOCOL.md`, "Retention by
//! limits".

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::needs::Need;
use crate::error::{Error, Result};
use crate::format::settings::TopicSettings;
use crate::log::{Log, Removable, SegmentList};

/// How often it is looked at again, where others take segments meanwhile.
const TRIES: u32 = 8;

/// Which limit took something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The topic's bytes.
    Bytes,
    /// Its age.
    Age,
    /// Its number of records.
    Records,
    /// The store's bytes.
    Store,
}

impl Limit {
    /// Its name, as tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Bytes => "bytes",
            Limit::Age => "age",
            Limit::Records => "records",
            Limit::Store => "store",
        }
    }
}

/// What goes of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTrim {
    /// Its topic.
    pub topic: String,
    /// Which of its partitions.
    pub partition: u32,
    /// Topic number in the log.
    pub number: u32,
    /// Lowest offset before.
    pub from: u64,
    /// Lowest offset that stays.
    pub to: u64,
    /// Which limit went furthest.
    pub limit: Limit,
    /// Where the limit would have cut, had no consumer needed what lies before; nothing of that went.
    pub wanted: u64,
    /// How many records stay for that reason.
    pub needed: u64,
}

/// A topic of a log, and what is still needed of it.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) settings: TopicSettings,
    pub(super) needs: Vec<Need>,
}

impl Tenant {
    fn numbers(&self) -> Vec<u32> {
        (0..self.settings.partitions).map(|p| self.settings.number + p).collect()
    }

    /// No cut goes beyond this.
    fn held_at(&self, partition: u32) -> u64 {
        if !self.settings.retention.waits {
            return u64::MAX;
        }
        let of_it = self.needs.iter().filter(|need| need.partition == partition);
        of_it.map(|need| need.offset).min().unwrap_or(u64::MAX)
    }
}

/// A log, who lives in it, and what is to go of it.
#[derive(Debug)]
pub(super) struct LogPlan {
    pub(super) dir: PathBuf,
    pub(super) log: Arc<Log>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) cuts: BTreeMap<u32, PartitionTrim>,
    /// Why records could not be counted, so that more of them stay than the limit says.
    pub(super) uncounted: Option<Error>,
}

/// A segment that the store's limit could take.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    log: usize,
    /// Sequence of the segment that the log would begin with. No number of a list: others remove
    /// segments meanwhile.
    begin: u64,
    bytes: u64,
    newest_ns: i64,
}

impl LogPlan {
    pub(super) fn new(dir: PathBuf, log: Arc<Log>, tenants: Vec<Tenant>) -> Self {
        Self { dir, log, tenants, cuts: BTreeMap::new(), uncounted: None }
    }

    /// The offsets to trim to.
    pub(super) fn firsts(&self) -> Vec<(u32, u64)> {
        let raised = self.cuts.values().filter(|cut| cut.to > cut.from);
        raised.map(|cut| (cut.number, cut.to)).collect()
    }

    /// Apply the limits of its topics.
    pub(super) fn apply_own(&mut self, now_us: i64) -> Result<()> {
        let limited = |tenant: &&Tenant| tenant.settings.retention.is_limited();
        let tenants: Vec<Tenant> = self.tenants.iter().filter(limited).cloned().collect();
        for tenant in &tenants {
            let mut cuts = self.log.with_segments(|list| by_own_limits(list, tenant, now_us))?;
            for partition in 0..tenant.settings.partitions {
                match by_records(&self.log, tenant, partition) {
                    Ok(to) => cuts.extend(to.map(|to| (partition, to, Limit::Records))),
                    Err(error) => self.uncounted = Some(error),
                }
            }
            for (partition, to, limit) in cuts {
                self.note(tenant, partition, to, limit)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, tenant: &Tenant, partition: u32, wanted: u64, limit: Limit) -> Result<()> {
        let number = tenant.settings.number + partition;
        let from = self.log.first_offset(number)?;
        let to = wanted.min(tenant.held_at(partition)).max(from);
        let known = self.cuts.get(&number).map_or(from, |cut| cut.wanted);
        if wanted <= known {
            return Ok(());
        }
        let topic = tenant.settings.name.clone();
        let needed = if to < wanted { self.log.count(number, to..wanted)? } else { 0 };
        self.cuts.insert(
            number,
            PartitionTrim { topic, partition, number, from, to, limit, wanted, needed },
        );
        Ok(())
    }

    /// Segments that the store's limit may take beside those that go anyhow, oldest first, as many as
    /// hold `excess`.
    fn candidates(
        &self,
        list: &mut SegmentList<'_>,
        log: usize,
        gone: &Removable,
        excess: u64,
    ) -> Result<Vec<Candidate>> {
        let numbers: Vec<u32> = self.tenants.iter().flat_map(Tenant::numbers).collect();
        let free = self.tenants.iter().all(|tenant| !tenant.settings.retention.protected);
        // A topic whose settings could not be read may be protected.
        if !free || list.topic_numbers()?.iter().any(|number| !numbers.contains(number)) {
            return Ok(Vec::new());
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        for cut in 1..list.cuts() {
            if gone.sequences.last().is_some_and(|last| list.sequences()[cut - 1] <= *last) {
                continue;
            }
            if bytes >= excess || self.is_held(list, cut)? {
                break;
            }
            let newest_ns = list.newest_ns(cut, &numbers)?;
            let own = list.bytes(cut - 1);
            bytes += own;
            found.push(Candidate { log, begin: list.sequences()[cut], bytes: own, newest_ns });
        }
        Ok(found)
    }

    /// True when a consumer needs something that lies before a cut.
    fn is_held(&self, list: &mut SegmentList<'_>, cut: usize) -> Result<bool> {
        for tenant in self.tenants.iter().filter(|tenant| tenant.settings.retention.waits) {
            for partition in 0..tenant.settings.partitions {
                let first = list.first(cut, tenant.settings.number + partition)?;
                if first.is_some_and(|first| first > tenant.held_at(partition)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Have the log begin with a segment, if it does not begin behind it by now.
    fn cut_at(&mut self, begin: u64) -> Result<()> {
        let tenants = self.tenants.clone();
        let each =
            || tenants.iter().flat_map(|of| (0..of.settings.partitions).map(move |p| (of, p)));
        let firsts: Vec<_> = self.log.with_segments(|list| {
            let Some(cut) = list.cut_of(begin) else { return Ok(Vec::new()) };
            each().map(|(of, partition)| list.first(cut, of.settings.number + partition)).collect()
        })?;
        for ((tenant, partition), first) in each().zip(firsts) {
            first.map_or(Ok(()), |to| self.note(tenant, partition, to, Limit::Store))?;
        }
        Ok(())
    }
}

/// Where each partition of a topic would begin by the topic's size and age.
fn by_own_limits(
    list: &mut SegmentList<'_>,
    tenant: &Tenant,
    now_us: i64,
) -> Result<Vec<(u32, u64, Limit)>> {
    let (topic, limits) = (&tenant.settings, &tenant.settings.retention);
    let mut cuts = Vec::new();
    if let Some(bytes) = limits.bytes {
        cuts.push((by_size(list, bytes), Limit::Bytes));
    }
    if let Some(age_ms) = limits.age_ms {
        let before_ns =
            now_us.saturating_mul(1000).saturating_sub_unsigned(age_ms.saturating_mul(1_000_000));
        cuts.push((by_age(list, before_ns, &tenant.numbers())?, Limit::Age));
    }
    let mut found = Vec::new();
    for (cut, limit) in cuts.into_iter().filter(|(cut, _)| *cut > 0) {
        for partition in 0..topic.partitions {
            let first = list.first(cut, topic.number + partition)?;
            found.extend(first.map(|to| (partition, to, limit)));
        }
    }
    Ok(found)
}

/// Where a partition would begin by its number of records, of those that are on the disk.
fn by_records(log: &Arc<Log>, tenant: &Tenant, partition: u32) -> Result<Option<u64>> {
    let Some(records) = tenant.settings.retention.records else { return Ok(None) };
    let number = tenant.settings.number + partition;
    let durable = log.durable().map_or(Ok(0), |durable| log.offset_at(number, durable))?;
    let first = log.first_offset(number)?;
    log.start_of_last(number, first..durable, records).map(Some)
}

/// The first cut behind which all segments, the active one included, take no more than so many bytes;
/// the last one where none is small enough.
fn by_size(list: &SegmentList<'_>, most: u64) -> usize {
    let (mut cut, mut bytes) = (list.sequences().len(), 0u64);
    while cut > 0 {
        bytes = bytes.saturating_add(list.bytes(cut - 1));
        if bytes > most {
            break;
        }
        cut -= 1;
    }
    cut.min(list.cuts() - 1)
}

/// The last cut before which all is older.
fn by_age(list: &mut SegmentList<'_>, before_ns: i64, numbers: &[u32]) -> Result<usize> {
    let mut cut = 0;
    while cut + 1 < list.cuts() && list.newest_ns(cut + 1, numbers)? < before_ns {
        cut += 1;
    }
    Ok(cut)
}

/// Apply the store's limit; `taken` says how many bytes all logs take now. Others may be at it, too:
/// where they took something while it was found out what should go, it is found out again, for both
/// together would take more than there is too much.
pub(super) fn apply_store(
    plans: &mut [LogPlan],
    taken: impl Fn() -> Result<u64>,
    most: u64,
) -> Result<()> {
    let mut before = taken()?;
    for _ in 0..TRIES {
        let cuts = beyond(plans, before, most)?;
        let now = taken()?;
        if now >= before {
            return cuts.into_iter().try_for_each(|(log, begin)| plans[log].cut_at(begin));
        }
        before = now;
    }
    // They take without end: what is left is seen to with the next roll.
    Ok(())
}

/// What is beyond the store's limit: by log, the segment that it should begin with.
fn beyond(plans: &[LogPlan], taken: u64, most: u64) -> Result<BTreeMap<usize, u64>> {
    // Asked for once: what others say from here on goes as well, but was not counted.
    let gone = plans.iter().map(|plan| plan.log.removable(&plan.firsts()));
    let gone: Vec<Removable> = gone.collect::<Result<_>>()?;
    let left = taken.saturating_sub(gone.iter().map(|gone| gone.bytes).sum());
    let (mut cuts, mut freed) = (BTreeMap::new(), 0);
    let Some(excess) = left.checked_sub(most).filter(|excess| *excess > 0) else { return Ok(cuts) };
    let mut candidates = Vec::new();
    for (i, (plan, gone)) in plans.iter().zip(&gone).enumerate() {
        let of_log = plan.log.with_segments(|list| plan.candidates(list, i, gone, excess))?;
        candidates.extend(of_log);
    }
    // Within a log they stay in order: what is known of the time before a cut only rises, but a file
    // may have been written to later than the next one.
    for i in 1..candidates.len() {
        if candidates[i].log == candidates[i - 1].log {
            candidates[i].newest_ns = candidates[i].newest_ns.max(candidates[i - 1].newest_ns);
        }
    }
    candidates.sort_by_key(|candidate| (candidate.newest_ns, candidate.log, candidate.begin));
    for candidate in candidates {
        if freed >= excess {
            break;
        }
        freed += candidate.bytes;
        cuts.insert(candidate.log, candidate.begin);
    }
    Ok(cuts)
}
