//! The API's answers about a store, compared with what was written into it.
//!
//! Owns the one judgement that the harness rests on. Each answer must be the original's, or a typed
//! error that names a path in the store. A record may be missing behind reported corruption. A
//! wrong record, or an early end without an error, is a finding.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::{Error, Result};
use falaj::internals::log::Reading;
use falaj::internals::storage::Storage;
use falaj::internals::store::{Severity, Store, StoreOptions, TopicOptions, verify};
use falaj::internals::topic::{Record, Topic};

use crate::beside::Beside;
use crate::example::{Example, ROOT, Written};

/// More records than any example's bytes could hold.
const MOST_STEPS: u64 = 1 << 21;

/// The content of a partition.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Each record and its timestamp, by offset; `None` for records that compaction removed.
    pub records: Vec<Option<(Written, i64)>>,
    /// The answer to `at` for the timestamp of each record, by its offset.
    pub at: Vec<u64>,
    /// How many of them a power failure may not take.
    pub synced: u64,
}

/// Topics, each with its partitions.
pub type Truths = BTreeMap<String, Vec<Truth>>;

/// True for a record that equals what was written, byte for byte.
fn same(record: &Record, written: &Written) -> bool {
    let mut headers = written.headers.iter();
    let mut is_next = |(name, value): (&str, Option<&[u8]>)| {
        headers.next().is_some_and(|next| (next.0.as_str(), next.1.as_deref()) == (name, value))
    };
    (record.key(), record.value()) == (written.key.as_deref(), written.value.as_deref())
        && record.headers().all(&mut is_next)
        && headers.next().is_none()
        && written.event_time_ns.is_none_or(|time| time == record.timestamp_ns())
}

/// True for the record that is the right answer, timestamp included.
fn is_right(record: &Record, right: &(Written, i64)) -> bool {
    record.timestamp_ns() == right.1 && same(record, &right.0)
}

/// Read an unharmed example, which must hold what was written.
pub fn truths(example: &Example) -> Truths {
    let storage: Arc<dyn Storage> = Arc::new(example.disk.clone());
    let store = Store::open_on(storage, ROOT, &StoreOptions::reading()).unwrap();
    let mut truths = Truths::new();
    for ((name, partition), written) in &example.written {
        let topic = Topic::open(&store, name, &TopicOptions::default()).unwrap();
        let mut scan = topic.scan_partition(*partition, 0, None).unwrap();
        let mut truth =
            Truth { synced: example.synced[&(name.clone(), *partition)], ..Truth::default() };
        let mut next = scan.next().transpose().unwrap();
        for (offset, record) in written.iter().enumerate() {
            let Some(found) = next.take_if(|found| found.offset() == offset as u64) else {
                let newer = written[offset + 1..].iter().any(|other| other.key == record.key);
                assert!(record.key.is_some() && newer, "{name} {partition}: {offset} is missing");
                truth.records.push(None);
                continue;
            };
            assert!(same(&found, record), "{name} {partition}: {found:?} is not {record:?}");
            truth.records.push(Some((record.clone(), found.timestamp_ns())));
            next = scan.next().transpose().unwrap();
        }
        assert!(next.is_none(), "{name} {partition}: {next:?} was not written");
        let times = || truth.records.iter().map(|record| record.as_ref().map(|(_, time)| *time));
        let first = |time| times().position(|other| other >= Some(time)).unwrap() as u64;
        truth.at = times().map(|time| time.map_or(0, first)).collect();
        truths.entry(name.clone()).or_default().push(truth);
    }
    truths
}

/// How strict the judgement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Checksums were forged: calls need only end, without a panic.
    Nothing,
    /// Several places were harmed, so the store may look shorter: each record that is returned must
    /// be right.
    Values,
    /// More than a bit of the files beside the logs was harmed: they may go back further, but no
    /// work may be lost.
    Behind,
    /// Every answer is the original's, or an error that reports corruption.
    All,
}

/// How a store is questioned.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub truths: &'a Truths,
    pub topics: &'a [&'a str],
    pub reading: Reading,
    /// Look up each `stride`-th offset from `phase` on.
    pub stride: u64,
    pub phase: u64,
    /// Records at the end that were not synced may be gone.
    pub may_be_cut: bool,
    pub trust: Trust,
    /// `repair` ran, which may cut what cannot be read.
    pub mended: bool,
    /// Files beside the topics, if they are questioned too, and how strictly.
    pub beside: Option<(&'a Beside, Trust)>,
}

impl Asking<'_> {
    /// Report something wrong, if the judgement is that strict.
    pub fn wrong(&self, needs: Trust, what: impl FnOnce() -> String) -> Judged<()> {
        if self.trust >= needs { Err(what()) } else { Ok(()) }
    }

    /// Note an error in the place of an answer.
    pub fn error(&self, told: &mut Told, error: &Error, asked: &str) -> Judged<()> {
        if self.trust >= Trust::Behind {
            return told.error(error, asked);
        }
        *told.errors.entry(kind_of(error).unwrap_or("other")).or_default() += 1;
        if error.to_string().is_empty() { Err(format!("{asked}: no message")) } else { Ok(()) }
    }
}

/// The result of questioning a store without a wrong answer.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Errors, by kind.
    pub errors: BTreeMap<&'static str, u64>,
    /// Errors about files beside the topics.
    pub beside: BTreeMap<&'static str, u64>,
}

impl Told {
    pub fn is_same(&self) -> bool {
        self.errors.is_empty()
    }

    /// True if there was no error about files beside the topics either.
    pub fn is_all_same(&self) -> bool {
        self.is_same() && self.beside.is_empty()
    }

    /// Accept an error as an answer, if it is one that foreign bytes may cause.
    pub fn error(&mut self, error: &Error, asked: &str) -> std::result::Result<(), String> {
        let kind = kind_of(error);
        let said = error.to_string();
        // Readers believe a flag in the page that says so, although the page is corrupt elsewhere;
        // that error names the topic.
        let names = said.contains(ROOT) || matches!(error, Error::TopicDeleted { .. });
        if kind.is_none() || !names || said.contains("Some(") {
            return Err(format!("{asked}: not an error for corruption: {said}"));
        }
        *self.errors.entry(kind.unwrap_or_default()).or_default() += 1;
        Ok(())
    }
}

/// Errors that say that bytes are not what was written.
fn kind_of(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::CorruptData { .. } => "CorruptData",
        Error::UnsupportedVersion { .. } => "UnsupportedVersion",
        Error::OutdatedFormat { .. } => "OutdatedFormat",
        Error::NeedsRecovery { .. } => "NeedsRecovery",
        Error::NotAStore { .. } => "NotAStore",
        Error::LockFileReplaced { .. } => "LockFileReplaced",
        Error::FilesRemoved { .. } => "FilesRemoved",
        Error::TopicDeleted { .. } => "TopicDeleted",
        Error::SystemCallFailed { .. } => "SystemCallFailed",
        Error::NoSpace { .. } => "NoSpace",
        Error::DurabilityUnknown { source, .. } => return kind_of(source),
        _ => return None,
    })
}

type Judged<T> = std::result::Result<T, String>;

/// Judge an answer that must equal `right`; false for an error that is allowed instead.
fn judge<T: PartialEq + std::fmt::Debug>(
    asking: &Asking<'_>,
    told: &mut Told,
    asked: impl Fn() -> String,
    answer: &Result<T>,
    right: &T,
) -> Judged<bool> {
    match answer {
        Ok(found) if found == right => Ok(true),
        Ok(found) => asking
            .wrong(Trust::All, || format!("{}: {found:?} instead of {right:?}", asked()))
            .map(|()| true),
        Err(error) => asking.error(told, error, &asked()).map(|()| false),
    }
}

/// Open for reading, and ask everything.
pub fn ask_reader(storage: &Arc<dyn Storage>, asking: &Asking<'_>) -> Judged<Told> {
    let options = StoreOptions { reading: asking.reading, ..StoreOptions::reading() };
    let mut told = Told::default();
    match Store::open_on(Arc::clone(storage), ROOT, &options) {
        Ok(store) => {
            ask(&store, asking, &mut told)?;
            if let Some((beside, trust)) = asking.beside {
                told.beside = beside.ask(&store, &Asking { trust, ..*asking })?.errors;
            }
        }
        Err(error) => asking.error(&mut told, &error, "open for reading")?,
    }
    Ok(told)
}

/// Ask an open store everything; return the ends that were found.
pub fn ask(store: &Store, asking: &Asking<'_>, told: &mut Told) -> Judged<()> {
    for name in asking.topics {
        match Topic::open(store, name, &TopicOptions::default()) {
            Ok(topic) => ask_topic(&topic, asking, told)?,
            Err(error) => asking.error(told, &error, name)?,
        }
    }
    Ok(())
}

pub fn ask_topic(topic: &Topic, asking: &Asking<'_>, told: &mut Told) -> Judged<()> {
    let truths = &asking.truths[topic.name()];
    if topic.partitions() as usize != truths.len() {
        let what = || format!("{topic:?} has {} partitions", topic.partitions());
        return asking.wrong(Trust::Values, what);
    }
    for (partition, truth) in truths.iter().enumerate() {
        ask_partition(topic, partition as u32, truth, asking, told)?;
    }
    Ok(())
}

fn ask_partition(
    topic: &Topic,
    partition: u32,
    truth: &Truth,
    asking: &Asking<'_>,
    told: &mut Told,
) -> Judged<()> {
    let named = |what: &str| format!("{what} of {} {partition}", topic.name());
    let whole = truth.records.len() as u64;
    judge(asking, told, || named("first"), &topic.first(partition), &0)?;
    let mut end = whole;
    match topic.end(partition) {
        Ok(found) if asking.may_be_cut && (truth.synced..whole).contains(&found) => end = found,
        other => {
            judge(asking, told, || named("end"), &other, &whole)?;
        }
    }
    match topic.durable(partition) {
        Ok(durable) if durable > end => {
            let what = || format!("{}: {durable} past the end {end}", named("durable"));
            asking.wrong(Trust::All, what)?;
        }
        Ok(_) => {}
        Err(error) => asking.error(told, &error, &named("durable"))?,
    }
    let end = scan(topic, partition, truth, end, asking, told)?;
    look_up(topic, partition, truth, end, asking, told)?;
    look_up_times(topic, partition, truth, end, asking, told)
}

/// Read all records; return the offset up to which there are some.
fn scan(
    topic: &Topic,
    partition: u32,
    truth: &Truth,
    end: u64,
    asking: &Asking<'_>,
    told: &mut Told,
) -> Judged<u64> {
    let named = |what: &str| format!("{what} of {} {partition}", topic.name());
    let mut scan = match topic.scan_partition(partition, 0, None) {
        Ok(scan) => scan,
        Err(error) => {
            asking.error(told, &error, &named("scan"))?;
            return Ok(end);
        }
    };
    let mut next = 0;
    let mut steps = 0;
    loop {
        steps += 1;
        if steps > MOST_STEPS {
            return Err(named("no end to a scan"));
        }
        // By reference: a view is large to move, and a case has a thousand of them.
        match &scan.next().transpose() {
            Ok(Some(record)) => {
                let offset = record.offset();
                let right = truth.records.get(offset as usize);
                if offset < next {
                    return Err(format!("{}: {offset} after {next}", named("scan")));
                }
                if !right.and_then(Option::as_ref).is_some_and(|right| is_right(record, right)) {
                    let what = || format!("{}: a wrong record {offset}", named("scan"));
                    asking.wrong(Trust::Values, what)?;
                }
                let passed = truth.records.get(next as usize..(offset as usize).max(next as usize));
                let is_there = |passed: &[Option<_>]| passed.iter().any(Option::is_some);
                if passed.is_none_or(is_there) && told.is_same() {
                    let what = || format!("{}: {next}..{offset} passed over", named("scan"));
                    asking.wrong(Trust::All, what)?;
                }
                next = offset.saturating_add(1);
            }
            Ok(None) if next == end || !told.is_same() => return Ok(end),
            // Before recovery a page may claim more records than there are, never fewer.
            Ok(None) if asking.may_be_cut && next >= truth.synced => return Ok(next),
            Ok(None) => {
                let what = || format!("{}: ends at {next} of {end}", named("scan"));
                return asking.wrong(Trust::All, what).map(|()| end);
            }
            Err(error) => {
                asking.error(told, error, &named("scan"))?;
                match scan.skip_damage() {
                    Ok(skipped) if skipped.offsets.end < next => {
                        return Err(format!("{}: back to {skipped:?}", named("skip")));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        asking.error(told, &error, &named("skip"))?;
                        return Ok(end);
                    }
                }
            }
        }
    }
}

fn look_up(
    topic: &Topic,
    partition: u32,
    truth: &Truth,
    end: u64,
    asking: &Asking<'_>,
    told: &mut Told,
) -> Judged<()> {
    let stride = asking.stride.max(1);
    let wanted = (asking.phase % stride..end).step_by(stride as usize);
    for offset in wanted.chain(end.checked_sub(1)) {
        match &topic.get_in(partition, offset) {
            Ok(record) => {
                if record.offset() != offset {
                    return Err(format!("[{offset}] of {} is {}", topic.name(), record.offset()));
                }
                let right = truth.records[offset as usize].as_ref();
                if !right.is_some_and(|right| is_right(record, right)) {
                    let what = || format!("[{offset}] of {} {partition} is wrong", topic.name());
                    asking.wrong(Trust::Values, what)?;
                }
            }
            Err(Error::RecordCompacted { .. }) if truth.records[offset as usize].is_none() => {}
            // Records that were not recovered may be there or not.
            Err(Error::OffsetOutOfRange { .. }) if asking.may_be_cut && offset >= truth.synced => {}
            Err(error) => asking.error(told, error, &format!("[{offset}] of {}", topic.name()))?,
        }
    }
    match topic.get_in(partition, truth.records.len() as u64) {
        Err(Error::OffsetOutOfRange { .. }) => Ok(()),
        Err(error) => asking.error(told, &error, "[end]"),
        Ok(_) => {
            let what = || format!("[end] of {} {partition} is a record", topic.name());
            asking.wrong(Trust::Values, what)
        }
    }
}

fn look_up_times(
    topic: &Topic,
    partition: u32,
    truth: &Truth,
    end: u64,
    asking: &Asking<'_>,
    told: &mut Told,
) -> Judged<()> {
    let there = &truth.records[..end as usize];
    let stride = (asking.stride * 4).max(1);
    for offset in (asking.phase % stride..end).step_by(stride as usize) {
        let Some((_, time)) = there[offset as usize] else { continue };
        let right = Some(truth.at[offset as usize]);
        let asked = || format!("at({time}) of {} {partition}", topic.name());
        match topic.offset_at_time(partition, time) {
            Ok(found) if asking.may_be_cut && found.is_none() => {}
            answer => {
                judge(asking, told, asked, &answer, &right)?;
            }
        }
    }
    Ok(())
}

/// Check that `verify` reports corruption if readers met any.
pub fn ask_verify(
    storage: &Arc<dyn Storage>,
    told: &Told,
    topic: Option<&str>,
    asking: &Asking<'_>,
) -> Judged<Option<Severity>> {
    match verify(storage, Path::new(ROOT), topic, &mut |_, _| Ok(())) {
        Ok(found) => {
            // A check of one topic's log says nothing about the files beside it.
            let is_asked = asking.beside.is_some_and(|(_, trust)| trust >= Trust::Behind);
            let beside = told.beside.keys().filter(|_| topic.is_none() && is_asked);
            let mut kinds = told.errors.keys().chain(beside);
            let damaged = kinds.any(|kind| *kind == "CorruptData" || *kind == "UnsupportedVersion");
            if damaged && found.worst() < Some(Severity::Rebuildable) {
                let what = || format!("readers got {told:?}, and verify finds nothing");
                asking.wrong(Trust::All, what)?;
            }
            if let Some(stranger) =
                found.all_findings().find(|finding| !finding.path.starts_with(ROOT))
            {
                return Err(format!("verify names {}", stranger.path.display()));
            }
            Ok(found.worst())
        }
        Err(error) => {
            let mut told = Told::default();
            asking.error(&mut told, &error, "verify")?;
            Ok(Some(Severity::Damage))
        }
    }
}
