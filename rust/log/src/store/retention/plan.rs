//! The records to delete from a log: by the limits of its topics, and by the store's.
//!
//! Owns the meaning of the limits, as offsets. Nothing is changed here. Size and age cut between
//! segments, a number of records anywhere. Each limit only raises a topic's first offset. None goes
//! beyond what is on disk; only the number of records cuts into the active segment. That one counts
//! existing records ([`Log::start_of_last`]). If they cannot be counted it deletes nothing, and the
//! reason is reported. Records that a consumer group still needs stay if the topic says so,
//! and what was not shipped up to a number of bytes ([`super::unshipped`]). The
//! store's limit deletes the oldest segment of all logs, by its newest record, and then the next,
//! until the rest fits. See `docs/PROTOCOL.md`, "Retention by limits".

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::needs::Need;
use super::unshipped::Unshipped;
use crate::error::{Error, Result};
use crate::format::settings::TopicSettings;
use crate::log::{Log, Removable, SegmentList};

/// How often the segments are listed again while others remove some.
const TRIES: u32 = 8;

/// The limit that deleted records.
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
    /// Return its name, as tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Bytes => "bytes",
            Limit::Age => "age",
            Limit::Records => "records",
            Limit::Store => "store",
        }
    }
}

/// A trim of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTrim {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// Topic number in the log.
    pub number: u32,
    /// Lowest offset before the trim.
    pub from: u64,
    /// Lowest offset after the trim.
    pub to: u64,
    /// The limit that reached furthest.
    pub limit: Limit,
    /// Where the limit would have cut, if no consumer group and no shipper needed earlier records;
    /// those stay.
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

    /// Return the offset beyond which no cut may go.
    fn held_at(&self, partition: u32) -> u64 {
        if !self.settings.retention.waits {
            return u64::MAX;
        }
        let of_it = self.needs.iter().filter(|need| need.partition == partition);
        of_it.map(|need| need.offset).min().unwrap_or(u64::MAX)
    }
}

/// A log, its topics, and what to delete from it.
#[derive(Debug)]
pub(super) struct LogPlan {
    pub(super) dir: PathBuf,
    pub(super) log: Arc<Log>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) cuts: BTreeMap<u32, PartitionTrim>,
    /// Why records could not be counted, so that more of them stay than the limit allows.
    pub(super) uncounted: Option<Error>,
    /// The records that stay because they were not shipped, if the store is shipped.
    pub(super) unshipped: Option<Unshipped>,
}

/// A segment that the store's limit could delete.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    log: usize,
    /// Sequence of the segment that the log would begin with. It is no index in a list, since
    /// others remove segments meanwhile.
    begin: u64,
    bytes: u64,
    newest_ns: i64,
}

impl LogPlan {
    pub(super) fn new(dir: PathBuf, log: Arc<Log>, tenants: Vec<Tenant>) -> Self {
        let (cuts, uncounted, unshipped) = Default::default();
        Self { dir, log, tenants, cuts, uncounted, unshipped }
    }

    /// Keep what was not shipped, in files of at most this many bytes.
    pub(super) fn keep_unshipped(&mut self, most: u64) -> Result<()> {
        let numbers: Vec<u32> = self.tenants.iter().flat_map(Tenant::numbers).collect();
        self.unshipped = Some(Unshipped::of(&self.log, &numbers, most)?);
        Ok(())
    }

    /// Return the offset beyond which no cut of a partition may go.
    fn held_at(&self, tenant: &Tenant, partition: u32) -> u64 {
        let number = tenant.settings.number + partition;
        let kept = self.unshipped.as_ref().map_or(u64::MAX, |kept| kept.kept_from(number));
        kept.min(tenant.held_at(partition))
    }

    /// Return the offsets to trim to.
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
        let to = wanted.min(self.held_at(tenant, partition)).max(from);
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

    /// List segments that the store's limit may delete, oldest first, enough to hold `excess`.
    /// Those that are deleted anyway are not among them.
    fn candidates(
        &self,
        list: &mut SegmentList<'_>,
        log: usize,
        gone: &Removable,
        excess: u64,
    ) -> Result<Vec<Candidate>> {
        let numbers: Vec<u32> = self.tenants.iter().flat_map(Tenant::numbers).collect();
        let free = self.tenants.iter().all(|tenant| !tenant.settings.retention.protected);
        // A topic with unreadable settings may be protected.
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

    /// Return true when a consumer group or the shipper needs a record before a cut.
    fn is_held(&self, list: &mut SegmentList<'_>, cut: usize) -> Result<bool> {
        let is_shipped = self.unshipped.is_some();
        let waits = |tenant: &&Tenant| is_shipped || tenant.settings.retention.waits;
        for tenant in self.tenants.iter().filter(waits) {
            for partition in 0..tenant.settings.partitions {
                let first = list.first(cut, tenant.settings.number + partition)?;
                if first.is_some_and(|first| first > self.held_at(tenant, partition)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Make the log begin with a segment, unless it begins after it by now.
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

/// Return where each partition of a topic would begin by the topic's size and age.
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

/// Return where a partition would begin by its number of records on disk.
fn by_records(log: &Arc<Log>, tenant: &Tenant, partition: u32) -> Result<Option<u64>> {
    let Some(records) = tenant.settings.retention.records else { return Ok(None) };
    let number = tenant.settings.number + partition;
    let durable = log.durable().map_or(Ok(0), |durable| log.offset_at(number, durable))?;
    let first = log.first_offset(number)?;
    log.start_of_last(number, first..durable, records).map(Some)
}

/// Return the first cut after which all segments, including the active one, have at most this many
/// bytes. If none is small enough, return the last one.
pub(super) fn by_size(list: &SegmentList<'_>, most: u64) -> usize {
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

/// Return the last cut before which all is older.
fn by_age(list: &mut SegmentList<'_>, before_ns: i64, numbers: &[u32]) -> Result<usize> {
    let mut cut = 0;
    while cut + 1 < list.cuts() && list.newest_ns(cut + 1, numbers)? < before_ns {
        cut += 1;
    }
    Ok(cut)
}

/// Apply the store's limit; `taken` returns the bytes of all logs now. Others may run too. If they
/// deleted something while this was planned, it is planned again, since both together would delete
/// too much.
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
    // Others keep deleting: the next roll handles the rest.
    Ok(())
}

/// Find what is beyond the store's limit: by log, the segment that it should begin with.
fn beyond(plans: &[LogPlan], taken: u64, most: u64) -> Result<BTreeMap<usize, u64>> {
    // Computed once: later trims by others delete too, but are not counted.
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
    // Within a log they stay in order: the known time before a cut only rises. But a file may have
    // been written later than the next one.
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
