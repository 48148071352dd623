//! What is done to every machine that comes up after a crash: the judge.
//!
//! Read before anybody recovered it, recover, read, append something as long as what was lost, read
//! ([`look_once`]); a second reader, restart, recover again, read ([`look_again`], which is decided by
//! the bytes that the first left: of equal ones it is enough to look at one). Invariant: each answer on the way is held against the truth; nothing
//! here decides by what the engine says of itself, but for one thing: what a reader was told is
//! durable before recovery must be there after it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, Member};
use falaj::internals::storage::memory::MemoryStorage;

use crate::actor::Actor;
use crate::machine::{
    PRODUCER, SERIES, append_last, append_once, commit, compact, open, open_to_read, with_patience,
};
use crate::truth::{Found, Gone, Group, TOPICS, Truth};

/// What a machine is expected to hold.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    /// What was appended.
    pub truth: &'a Truth,
    /// So many groups of it must be there.
    pub least: usize,
    /// So many may be.
    pub most: usize,
    /// What must be gone of it, and what may be.
    pub gone: Gone<'a>,
    /// The incarnation that ended.
    pub incarnation: u64,
    /// What else a reader may see before recovery (`docs/GUARANTEES.md`, "Power failure").
    pub before: Option<Before<'a>>,
}

/// What a reader may see before recovery: by the index it may come to records behind the place where
/// recovery will cut, and to a trim in a segment behind it.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    /// What was appended before the first crash.
    pub truth: &'a Truth,
    /// As [`Expected::gone`], then.
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

/// What came of looking.
pub struct Looked {
    /// The process that recovered the log and appended to it; still there.
    pub process: Process,
    /// What the log holds now: what was found, and a group more.
    pub truth: Truth,
    /// Groups at the beginning that are trimmed away.
    pub trimmed: usize,
    /// Of so many groups compaction may have taken records.
    pub compacted: usize,
    /// What it had taken when the log was recovered.
    pub taken: Vec<(u32, u64)>,
    /// When it was recovered: nothing had been appended yet.
    pub recovered: usize,
    /// The incarnation that recovered it.
    pub incarnation: u64,
}

impl Looked {
    /// What must be gone from now on, and what may be.
    pub fn gone(&self) -> Gone<'_> {
        let (trimmed, compacted) = ((self.trimmed, self.trimmed), self.compacted);
        Gone { trimmed, compacted, taken: &self.taken }
    }
}

/// Start a process.
///
/// # Errors
/// Why the log does not open.
pub fn start(storage: &MemoryStorage, mode: WriteMode, actor: Actor) -> Result<Process, String> {
    let log = open(storage, mode, actor.clone()).map_err(|e| format!("open: {e}"))?;
    Ok(Process { log, actor })
}

/// After a power cut: everything that an image must pass.
///
/// # Errors
/// What was wrong.
pub fn look(
    image: &MemoryStorage,
    mode: WriteMode,
    expected: Expected<'_>,
) -> Result<Looked, String> {
    let looked = look_once(image, mode, expected)?;
    look_again(image, &image.restart(), mode, &looked)?;
    Ok(looked)
}

/// The first half of [`look`]: all that happens before the next restart.
///
/// # Errors
/// What was wrong.
pub fn look_once(
    image: &MemoryStorage,
    mode: WriteMode,
    expected: Expected<'_>,
) -> Result<Looked, String> {
    let Expected { truth, incarnation, .. } = expected;
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
    // As long as what was lost: where old bytes would come back, they do behind this.
    let lost = truth.0.get(found).cloned();
    let new = lost.unwrap_or(Group::one(0, vec![vec![b'~'; 40]])).twin(b'~');
    let longer = truth.first(found).and(new);
    let incarnation = incarnation + 1;
    let compacted = expected.gone.compacted;
    let truth = longer;
    let mut looked = Looked { process, truth, trimmed, compacted, taken, recovered, incarnation };
    go_on(&mut looked)?;
    Ok(looked)
}

/// The second half of [`look`]: a second reader on the machine, and what the next incarnation finds
/// when it was restarted.
///
/// # Errors
/// What was wrong.
pub fn look_again(
    image: &MemoryStorage,
    restarted: &MemoryStorage,
    mode: WriteMode,
    looked: &Looked,
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
    same.map(drop).map_err(|e| format!("after recovering what was recovered: {e}"))
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

/// After a death of all processes, the machine going on: everything committed is there for who comes
/// next, and a sync makes it durable. Returns what the log holds then.
///
/// # Errors
/// What was wrong.
pub fn take_over(
    survivor: &MemoryStorage,
    mode: WriteMode,
    actor: Actor,
    expected: Expected<'_>,
) -> Result<Looked, String> {
    let Expected { truth, .. } = expected;
    let incarnation = actor.incarnation();
    with_patience(survivor);
    let draw = survivor.fingerprint();
    read_before_recovery(survivor, mode, expected, draw)?;
    let process = start(survivor, mode, actor)?;
    let recovered = survivor.events();
    let (log, allowed) = (&process.log, expected.allowed());
    let found = truth.found_and_asked(log, allowed, expected.gone, draw)?;
    let Found { groups, trimmed, taken } = found;
    let truth = truth.first(groups).and(Group::one(0, vec![vec![b'~'; 40]]));
    let compacted = expected.gone.compacted;
    let mut looked = Looked { process, truth, trimmed, compacted, taken, recovered, incarnation };
    go_on(&mut looked)?;
    looked.process.log.sync().map_err(|e| format!("sync: {e}"))?;
    Ok(looked)
}

/// Append the last group of what the log is to hold, and read all of it; where it was being compacted,
/// finish that.
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
    knows_its_job(log, truth, groups)
}

/// A log that holds so many groups knows the token of its last job, and does not commit it again.
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

/// A log that holds so many groups knows the last sequence of the producer, and takes it for a repeat.
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
        return Err(format!(
            "sequence {sequence} stands at {wanted}, its repeat was put at {first}"
        ));
    }
    Ok(())
}

/// The heir of the dead, and the first process of the next incarnation.
pub fn successors(heir: Actor) -> [(Actor, &'static str); 2] {
    let next = Actor::new(heir.incarnation() + 1);
    [(heir, "heir"), (next, "next")]
}
