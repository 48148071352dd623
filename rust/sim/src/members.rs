//! Concurrent processes that share a consumer group: which has which partition, and where each
//! resumes.
//!
//! Owns a model of a group's promises. The model knows only the answers of calls. It checks these
//! promises:
//!
//! - A partition has one living owner, which keeps it until it gives it back.
//! - The next owner does not get committed records again.
//! - At the end, the processes that are left have all partitions.
//!
//! A seed decides what each process does, which one runs, and which one dies where.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use falaj::internals::consumer::{GroupMember, GroupPartition, Start};
use falaj::internals::error::{Error, Result};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::memory::MemoryStorage;

use crate::explore::guarded;
use crate::random::{Random, mix};
use crate::stores::{machine, settled, topic};
use crate::turns::{Mortal, Turns, lock};

/// Records of each partition.
const RECORDS: u64 = 4;

#[derive(Clone, Copy)]
enum Step {
    Look,
    Commit,
    Rejoin,
}

const STEPS: [Step; 6] =
    [Step::Look, Step::Look, Step::Look, Step::Commit, Step::Commit, Step::Rejoin];

/// Run the processes of a seed; return how often a process was seen to own a partition.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: u64, mode: WriteMode) -> std::result::Result<u64, String> {
    let failed = |error: Error| format!("make a topic: {error}");
    let machine = machine(seed);
    let mut random = Random::new(seed);
    let (count, partitions) = (2 + random.below(2), 2 + random.below(3) as u32);
    let owner = filled(&machine, mode, partitions).map_err(failed)?;
    let seats: Vec<_> = (0..count).map(|_| machine.process()).collect();
    let opened: Result<Vec<_>> = seats.iter().map(|seat| topic(seat, mode, partitions)).collect();
    let opened = opened.map_err(failed)?;
    let mortals = seats.iter().map(|seat| Mortal::new(seat, || ())).collect();
    let death = (random.below(3) > 0).then(|| (random.below(count), 1 + random.below(80)));
    let turns = Arc::new(Turns::new(seed, mortals, death));
    let gate = Arc::clone(&turns);
    machine.watch_events(move |process| gate.step(process));
    let notes = Mutex::new(Notes { has: vec![Vec::new(); count], ..Notes::default() });
    std::thread::scope(|scope| {
        for (me, topic) in opened.into_iter().enumerate() {
            let random = Random::new(mix(seed, me as u64));
            let (turns, notes) = (&turns, &notes);
            let hand = Hand { me, topic, turns, notes, random };
            scope.spawn(move || hand.play());
        }
        turns.await_all();
        let judged = guarded(|| judge(&machine, mode, &lock(&notes), partitions));
        // The dead may run on now, since nothing is judged any more: each of their calls fails.
        turns.release();
        judged
    })?;
    drop(owner);
    let notes = lock(&notes);
    Ok(notes.seen)
}

fn filled(machine: &MemoryStorage, mode: WriteMode, partitions: u32) -> Result<Topic> {
    let topic = topic(machine, mode, partitions)?;
    for partition in (0..partitions).cycle().take(partitions as usize * RECORDS as usize) {
        let record = NewRecord::new(b"something");
        settled(|| topic.append_to(partition, &record, Some(SyncMode::Durable)))?;
    }
    Ok(topic)
}

fn join(topic: &Topic) -> Result<GroupMember> {
    GroupMember::open(topic.store(), "readers", std::slice::from_ref(topic), Start::Earliest)
}

/// Judge once no process runs: what was seen, and what the next process finds.
fn judge(
    machine: &MemoryStorage,
    mode: WriteMode,
    notes: &Notes,
    partitions: u32,
) -> std::result::Result<(), String> {
    if let Some(wrong) = &notes.wrong {
        return Err(wrong.clone());
    }
    let heir = topic(&machine.process(), mode, partitions);
    let parts = heir.and_then(|topic| settled(|| join(&topic))).and_then(|heir| heir.parts());
    let parts = parts.map_err(|error| format!("join after all have left: {error}"))?;
    if parts.len() != partitions as usize {
        return Err(format!("the member after all have left owns {parts:?} of {partitions}"));
    }
    parts.iter().try_for_each(|part| notes.expect_place(part))
}

/// The observations of all processes.
#[derive(Default)]
struct Notes {
    /// Partitions that each process owns for certain.
    has: Vec<Vec<u32>>,
    /// Offset that was committed for each partition.
    committed: BTreeMap<u32, u64>,
    seen: u64,
    wrong: Option<String>,
}

impl Notes {
    fn say(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    /// Note that a call may take partitions from a process: until it returns, none is certain.
    fn may_change(&mut self, me: usize) -> Vec<u32> {
        std::mem::take(&mut self.has[me])
    }

    /// Note that a process owns these partitions now, and owned those before.
    fn has(&mut self, me: usize, before: &[u32], parts: &[GroupPartition], turns: &Turns) {
        for GroupPartition { partition, .. } in parts {
            let others = (0..self.has.len()).filter(|other| *other != me && !turns.is_dead(*other));
            let owner = others.into_iter().find(|other| self.has[*other].contains(partition));
            if let Some(owner) = owner {
                self.say(format!("partition {partition} is owned by processes {owner} and {me}"));
            }
        }
        for part in parts.iter().filter(|part| !before.contains(&part.partition)) {
            let placed = self.expect_place(part);
            placed.err().into_iter().for_each(|wrong| self.say(wrong));
        }
        self.seen += parts.len() as u64;
        self.has[me] = parts.iter().map(|part| part.partition).collect();
    }

    /// Check that the next owner resumes at the committed offset or behind it, and not past the
    /// end.
    fn expect_place(&self, part: &GroupPartition) -> std::result::Result<(), String> {
        let committed = self.committed.get(&part.partition).copied().unwrap_or(0);
        if (committed..=RECORDS).contains(&part.next) {
            return Ok(());
        }
        let GroupPartition { partition, next, .. } = part;
        Err(format!("partition {partition} resumes at {next}, and was committed up to {committed}"))
    }
}

/// A process at work.
struct Hand<'a> {
    me: usize,
    topic: Topic,
    turns: &'a Turns,
    notes: &'a Mutex<Notes>,
    random: Random,
}

impl Hand<'_> {
    fn play(self) {
        let (me, turns, notes) = (self.me, self.turns, self.notes);
        let says = |what| lock(notes).say(format!("process {me}: {what}"));
        let play = |hand: &mut Self| hand.try_to_play().map_err(|error| error.to_string());
        turns.play(me, self, play, says);
    }

    fn try_to_play(&mut self) -> Result<()> {
        let mut consumer = self.rejoin()?;
        for _ in 0..3 + self.random.below(6) {
            match *self.random.pick(&STEPS) {
                Step::Look => {
                    let before = lock(self.notes).may_change(self.me);
                    self.turns.patiently(self.me, || consumer.refresh())?;
                    self.tell(&consumer, &before)?;
                }
                Step::Commit => self.commit(&mut consumer)?,
                Step::Rejoin => {
                    lock(self.notes).may_change(self.me);
                    drop(consumer);
                    consumer = self.rejoin()?;
                }
            }
        }
        // Its partitions are gone with its consumer.
        lock(self.notes).may_change(self.me);
        Ok(())
    }

    fn rejoin(&self) -> Result<GroupMember> {
        let consumer = self.turns.patiently(self.me, || join(&self.topic))?;
        self.tell(&consumer, &[])?;
        Ok(consumer)
    }

    fn tell(&self, consumer: &GroupMember, before: &[u32]) -> Result<()> {
        let parts = consumer.parts()?;
        if !self.turns.is_dead(self.me) {
            lock(self.notes).has(self.me, before, &parts, self.turns);
        }
        Ok(())
    }

    /// Commit one more record of one of its partitions, which it must still own.
    fn commit(&mut self, consumer: &mut GroupMember) -> Result<()> {
        let parts = consumer.parts()?;
        let unread: Vec<_> = parts.iter().filter(|part| part.next < RECORDS).collect();
        if unread.is_empty() {
            return Ok(());
        }
        let GroupPartition { partition, next, .. } = **self.random.pick(&unread);
        let done =
            self.turns.patiently(self.me, || consumer.commit("jobs", partition, next + 1, false));
        if self.turns.is_dead(self.me) {
            return Ok(());
        }
        if let Err(Error::PartitionNotAssigned { .. }) = &done {
            let what =
                format!("partition {partition} was taken from process {}, which lives", self.me);
            lock(self.notes).say(what);
        }
        done?;
        lock(self.notes).committed.insert(partition, next + 1);
        Ok(())
    }
}
