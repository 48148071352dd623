//! The judge: what is done to every machine that comes up after a crash.
//!
//! The first half is [`look_once`]: read before recovery, recover, read, append as much as was
//! lost, read. The second half is [`look_again`]: a second reader, a restart, a second recovery, a
//! read. The bytes that the first half leaves decide the second, so one of equal ones is enough.
//!
//! Invariant: each answer is compared with the truth. The engine's own words count
//! in one case only: records that a reader saw as durable before recovery must be there after it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use falaj::internals::format::settings::WriteMode;
use falaj::internals::format::state::ProducerName;
use falaj::internals::log::{Log, Member};
use falaj_twin::memory::MemoryStorage;

use crate::actor::Actor;
use crate::cuts::{self, Taken};
use crate::machine::{
    GROUPED, PRODUCER, SERIES, append_last, append_once, append_parts, commit, compact, ends_of,
    open, open_to_read, with_patience,
};
use crate::truth::{CURSOR, Found, Gone, Group, TOPICS, Truth};

/// The expected content of a machine.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    /// All groups that were appended.
    pub truth: &'a Truth,
    /// How many groups must be there.
    pub least: usize,
    /// How many groups may be there.
    pub most: usize,
    /// Records that must be gone, and those that may be.
    pub gone: Gone<'a>,
    /// The last incarnation.
    pub incarnation: u64,
    /// Cuts that were taken.
    pub cuts: &'a [Taken],
    /// Other content that a reader may see before recovery (`docs/GUARANTEES.md`, "Power failure").
    pub before: Option<Before<'a>>,
}

/// Content that a reader may see before recovery.
///
/// By the index it may find records behind the place where recovery will cut. A trim may be
/// recorded in a segment behind that place too.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    /// All groups that were appended before the first crash.
    pub truth: &'a Truth,
    /// [`Expected::gone`] at that time.
    pub gone: Gone<'a>,
}

impl Expected<'_> {
    /// How many groups may be found.
    pub fn allowed(&self) -> RangeInclusive<usize> {
        self.least..=self.most
    }
}

/// A process that ends without closing its log.
pub struct Process {
    /// The log that it has open.
    pub log: Arc<Log>,
    actor: Actor,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.actor.dies();
    }
}

/// The result of looking once.
pub struct Looked {
    /// The process that recovered the log and appended to it; it still runs.
    pub process: Process,
    /// The log's content now: the groups that were found, and one more.
    pub truth: Truth,
    /// Groups at the beginning that are trimmed.
    pub trimmed: usize,
    /// Groups that compaction may have reached.
    pub compacted: usize,
    /// Records that compaction had removed when the log was recovered.
    pub taken: Vec<(u32, u64)>,
    /// The event when recovery was done and nothing appended yet.
    pub recovered: usize,
    /// The incarnation that recovered the log.
    pub incarnation: u64,
}

impl Looked {
    /// Records that must be gone from now on, and those that may be.
    pub fn gone(&self) -> Gone<'_> {
        let (trimmed, compacted) = ((self.trimmed, self.trimmed), self.compacted);
        Gone { trimmed, compacted, taken: &self.taken }
    }
}

/// Start a process.
///
/// # Errors
/// The error of opening the log.
pub fn start(storage: &MemoryStorage, mode: WriteMode, actor: Actor) -> Result<Process, String> {
    let log = open(storage, mode, actor.clone()).map_err(|e| format!("open: {e}"))?;
    Ok(Process { log, actor })
}

/// Do everything that an image must pass after a power cut.
///
/// # Errors
/// The first check that failed.
pub fn look(
    image: &MemoryStorage,
    mode: WriteMode,
    expected: Expected<'_>,
) -> Result<Looked, String> {
    let looked = look_once(image, mode, expected)?;
    look_again(image, &image.restart(), mode, &looked, expected.cuts)?;
    Ok(looked)
}

/// The first half of [`look`]: everything before the next restart.
///
/// # Errors
/// The first check that failed.
pub fn look_once(
    image: &MemoryStorage,
    mode: WriteMode,
    expected: Expected<'_>,
) -> Result<Looked, String> {
    let Expected { truth, incarnation, cuts, .. } = expected;
    with_patience(image);
    let draw = image.fingerprint();
    let durable = read_before_recovery(image, mode, expected, draw)?;
    let process = start(image, mode, Actor::new(incarnation + 1))?;
    let recovered = image.events();
    let Found { groups: found, trimmed, taken } = truth
        .found_and_asked(&process.log, expected.allowed(), expected.gone, draw)
        .map_err(|e| format!("after recovery: {e}"))?;
    for topic in 0..TOPICS {
        let (told, kept) = (durable[topic as usize], truth.count(topic, found));
        if told > kept {
            return Err(format!(
                "before recovery {told} records of topic {topic} were called durable; {kept} are left"
            ));
        }
    }
    cuts::holds(&process.log, cuts).map_err(|e| format!("after recovery: {e}"))?;
    // Append as much as was lost: if old bytes came back, they would come back behind this.
    let lost = truth.0.get(found).cloned();
    let mut ends = if lost.is_some() { ends_of(truth, found) } else { Vec::new() };
    let new = lost.unwrap_or(Group::one(0, vec![vec![b'~'; 40]])).twin(b'~');
    let longer = truth.first(found).and(new);
    let incarnation = incarnation + 1;
    let compacted = expected.gone.compacted;
    let truth = longer;
    let mut looked = Looked { process, truth, trimmed, compacted, taken, recovered, incarnation };
    go_on(&mut looked)?;
    if !cuts.is_empty() && compacted == 0 {
        // After a second crash the lost group may be one like the new one.
        let now = ends_of(&looked.truth, found);
        ends.retain(|end| !now.contains(end));
        cuts::misses(&looked.process.log, &ends)?;
    }
    Ok(looked)
}

/// The second half of [`look`]: a second reader, and what the next incarnation finds after a
/// restart. It takes a cut, too.
///
/// # Errors
/// The first check that failed.
pub fn look_again(
    image: &MemoryStorage,
    restarted: &MemoryStorage,
    mode: WriteMode,
    looked: &Looked,
    cuts: &[Taken],
) -> Result<(), String> {
    let Looked { truth, incarnation, .. } = looked;
    let (all, gone) = (truth.0.len(), looked.gone());
    let again = open_to_read(image, mode).map_err(|e| format!("open once more: {e}"))?;
    let draw = restarted.fingerprint();
    let same = truth.found_and_asked(&again, all..=all, gone, draw);
    same.map_err(|e| format!("a second reader after recovery: {e}"))?;
    with_patience(restarted);
    let next = start(restarted, mode, Actor::new(incarnation + 1))?;
    let same = truth.found(&next.log, all..=all, gone);
    same.map_err(|e| format!("after recovering what was recovered: {e}"))?;
    cuts::rises(restarted, mode, &next.log, truth, gone, cuts)
}

fn read_before_recovery(
    image: &MemoryStorage,
    mode: WriteMode,
    expected: Expected<'_>,
    draw: u64,
) -> Result<[u64; TOPICS as usize], String> {
    let reader = open_to_read(image, mode).map_err(|e| format!("open to read: {e}"))?;
    let (allowed, gone) = (expected.allowed(), expected.gone);
    let seen = expected.truth.found_before_recovery(&reader, allowed, gone, draw);
    seen.or_else(|e| match expected.before {
        Some(before) => {
            let Before { truth, gone } = before;
            let allowed = expected.least..=truth.0.len();
            let seen = truth.found_before_recovery(&reader, allowed, gone, draw);
            seen.map_err(|other| format!("{e}; and as before the first crash: {other}"))
        }
        None => Err(e),
    })
}

/// Take over after the death of all processes, while the machine runs on.
///
/// Everything committed is there for the next process, and a sync makes it durable. Returns what
/// the log holds then.
///
/// # Errors
/// The first check that failed.
pub fn take_over(
    survivor: &MemoryStorage,
    mode: WriteMode,
    actor: Actor,
    expected: Expected<'_>,
) -> Result<Looked, String> {
    let Expected { truth, cuts, .. } = expected;
    let incarnation = actor.incarnation();
    with_patience(survivor);
    let draw = survivor.fingerprint();
    read_before_recovery(survivor, mode, expected, draw)?;
    let process = start(survivor, mode, actor)?;
    let recovered = survivor.events();
    let (log, allowed) = (&process.log, expected.allowed());
    let found = truth.found_and_asked(log, allowed, expected.gone, draw)?;
    let Found { groups, trimmed, taken } = found;
    cuts::holds(log, cuts)?;
    let truth = truth.first(groups).and(Group::one(0, vec![vec![b'~'; 40]]));
    let compacted = expected.gone.compacted;
    let mut looked = Looked { process, truth, trimmed, compacted, taken, recovered, incarnation };
    go_on(&mut looked)?;
    let log = &looked.process.log;
    log.sync().map_err(|e| format!("sync: {e}"))?;
    cuts::rises(survivor, mode, log, &looked.truth, looked.gone(), cuts)?;
    Ok(looked)
}

/// Append the last group of `longer` and read everything; then finish a compaction that was under
/// way.
fn go_on(looked: &mut Looked) -> Result<(), String> {
    let (log, longer) = (&looked.process.log, &looked.truth);
    let all = longer.0.len();
    let new = &longer.0[all - 1];
    knows_who_was_there(log, longer, all - 1).map_err(|e| format!("before an append: {e}"))?;
    let (_, firsts) = append_last(log, longer, false).map_err(|e| format!("append: {e}"))?;
    let wanted: Vec<_> = new.0.iter().map(|(t, _)| longer.count(*t, all - 1)).collect();
    if firsts != wanted {
        return Err(format!("appended at {firsts:?} instead of {wanted:?}"));
    }
    let whole = longer.found(log, all..=all, looked.gone());
    whole.map(drop).map_err(|e| format!("after an append: {e}"))?;
    knows_who_was_there(log, longer, all).map_err(|e| format!("after an append: {e}"))?;
    if looked.compacted > 0 {
        compact(log, all).map_err(|e| format!("compact: {e}"))?;
        looked.compacted = all;
        let (log, longer) = (&looked.process.log, &looked.truth);
        let whole = longer.found(log, all..=all, looked.gone());
        whole.map(drop).map_err(|e| format!("after a compaction: {e}"))?;
        knows_who_was_there(log, longer, all).map_err(|e| format!("after a compaction: {e}"))?;
    }
    Ok(())
}

fn knows_who_was_there(log: &Arc<Log>, truth: &Truth, groups: usize) -> Result<(), String> {
    knows_its_producer(log, truth, groups)?;
    knows_its_parts(log, truth, groups)?;
    knows_its_job(log, truth, groups)
}

/// Check that a log of so many groups knows the idempotency key of its last bulk load and does not
/// commit it again.
fn knows_its_job(log: &Arc<Log>, truth: &Truth, groups: usize) -> Result<(), String> {
    let version = truth.jobs(groups);
    let token = log.token_of(0, SERIES).map_err(|e| e.to_string())?;
    let told = token.map_or(0, |token| token.version);
    if told != version {
        return Err(format!("the last job's token is {version}, not {told}"));
    }
    let Some(job) = truth.0[..groups].iter().rev().find(|group| group.is_job()) else {
        return Ok(());
    };
    match commit(log, job, version).map_err(|e| e.to_string())? {
        None => Ok(()),
        Some((_, first)) => Err(format!("job {version} was committed again, at {first}")),
    }
}

/// Check that a log of so many groups knows the producer's last sequence and treats it as a repeat.
fn knows_its_producer(log: &Arc<Log>, truth: &Truth, groups: usize) -> Result<(), String> {
    let last = truth.last_once(groups);
    let told = log.last_sequence(PRODUCER, 0..1).map_err(|e| e.to_string())?;
    let sequence = last.map(|(_, sequence)| sequence);
    if told != sequence {
        return Err(format!("the producer's last sequence is {sequence:?}, not {told:?}"));
    }
    let Some((number, sequence)) = last else { return Ok(()) };
    let repeated = append_once(log, &truth.0[number], sequence);
    let (first, wanted) = (repeated.map_err(|e| e.to_string())?.first, truth.count(0, number));
    if first != wanted {
        return Err(format!("sequence {sequence} is at {wanted}, its repeat at {first}"));
    }
    Ok(())
}

/// Check that a log of so many groups knows the sequence of each part of the last conditional one,
/// and that a repeat of it appends nothing and moves no cursor.
fn knows_its_parts(log: &Arc<Log>, truth: &Truth, groups: usize) -> Result<(), String> {
    let last = truth.last_conditional(groups);
    let sequence = last.map(|(_, sequence)| sequence);
    for topic in 0..TOPICS {
        let told = log
            .last_sequence(ProducerName::expiring(GROUPED), topic..topic + 1)
            .map_err(|e| e.to_string())?;
        if told != sequence {
            return Err(format!(
                "the last sequence in topic {topic} is {sequence:?}, not {told:?}"
            ));
        }
    }
    let Some((number, sequence)) = last else { return Ok(()) };
    let cursor = || log.cursor_of(CURSOR).map_err(|e| e.to_string());
    let (group, before) = (&truth.0[number], cursor()?);
    let (_, firsts) =
        append_parts(log, group, sequence, (None, false)).map_err(|e| e.to_string())?;
    let wanted: Vec<_> = group.0.iter().map(|(topic, _)| truth.count(*topic, number)).collect();
    if firsts != wanted || cursor()? != before {
        return Err(format!("parts {sequence} are at {wanted:?}, their repeat at {firsts:?}"));
    }
    Ok(())
}

/// The dead processes' heir, and the first process of the next incarnation.
pub fn successors(heir: Actor) -> [(Actor, &'static str); 2] {
    let next = Actor::new(heir.incarnation() + 1);
    [(heir, "heir"), (next, "next")]
}
