//! Crews of concurrent processes: two or three write to one log, and take turns after any store or
//! call.
//!
//! Owns what each process does, and the check of the result. [`Turns`] decides which process runs.
//! The result is a [`History`]: the final log gives the order of the groups. Everything that was
//! acknowledged must be there, at the offset that was returned.

use std::path::Path;
use std::sync::{Arc, Mutex};

use falaj::internals::error::{Error, Result};
use falaj::internals::format::control::at as word;
use falaj::internals::log::{Appended, Log, is_overtaken};
use falaj::internals::segment::Check;
use falaj::internals::storage::{OpenMode, Storage};
use falaj_twin::memory::MemoryStorage;

use crate::actor::Actor;
use crate::cuts::{self, Shipper, Taken};
use crate::history::{Compactions, History, Moments, Trims, at};
use crate::machine::{CONTROL, Machine, append, append_at, compact, group, open, open_to_read};
use crate::op::Op;
use crate::random::Random;
use crate::truth::{Gone, Group, NOTHING, Truth};
use crate::turns::{Mortal, Turns, lock};

const STEPS: [Op; 13] = [
    Op::Append,
    Op::Extend,
    Op::Group,
    Op::Large,
    Op::Interval,
    Op::Durable,
    Op::Roll,
    Op::Sync,
    Op::Seal,
    Op::Compact,
    Op::Append,
    Op::Expect,
    Op::Cut,
];
/// Several processes that write to one log at the same time.
#[derive(Clone, Debug)]
pub struct Crew {
    seed: u64,
    /// The steps of each process, and whether it closes its log at the end.
    scripts: Vec<(Vec<Op>, bool)>,
    /// The process that dies, and after how many of its own steps.
    death: Option<(usize, usize)>,
}

impl Crew {
    /// Make the crew of a seed.
    pub fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 2 + random.below(2);
        let mut script = |_| {
            let len = 1 + random.below(3);
            ((0..len).map(|_| *random.pick(&STEPS)).collect(), random.below(2) == 0)
        };
        let scripts = (0..count).map(&mut script).collect();
        let death = (random.below(3) > 0).then(|| (random.below(count), 1 + random.below(120)));
        Self { seed, scripts, death }
    }

    /// The name that makes the same crew again.
    pub fn name(&self) -> String {
        format!("crew-{:x}", self.seed)
    }

    /// The crew of a name, if the name is valid.
    pub fn named(name: &str) -> Option<Self> {
        Some(Self::drawn(u64::from_str_radix(name.strip_prefix("crew-")?, 16).ok()?))
    }

    /// Run the crew.
    ///
    /// # Errors
    /// A failure without a crash of the machine: a violation.
    pub fn run(&self, empty: &Machine) -> std::result::Result<History, String> {
        let machine = empty.again();
        let storage = machine.storage.clone();
        let first = Actor::new(1);
        let seats: Vec<_> = (1..=self.scripts.len() as u16)
            .map(|slot| Seat { storage: storage.process(), actor: first.beside(slot) })
            .collect();
        let mortals = seats.iter().map(Seat::mortal).collect();
        let turns = Arc::new(Turns::new(self.seed, mortals, self.death));
        let gate = Arc::clone(&turns);
        storage.watch(move |process| gate.step(process));
        let notes = Mutex::new(Notes::default());
        let actors: Vec<_> = seats.iter().map(|seat| seat.actor.clone()).collect();
        std::thread::scope(|scope| {
            for (me, seat) in seats.iter().enumerate() {
                let (turns, notes, machine, actors) = (&turns, &notes, &machine, &actors[..]);
                let hand = Hand { me, seat, turns, notes, machine, actors };
                let (ops, closes) = &self.scripts[me];
                scope.spawn(move || hand.play(ops, *closes));
            }
            turns.await_all();
            let found = lock(&notes).found(&machine, &self.name(), self.scripts.len() as u16);
            // The dead may run on now, since nothing is judged any more: each of their calls fails.
            turns.release();
            found
        })
    }
}

/// A process of a crew.
struct Seat {
    storage: MemoryStorage,
    actor: Actor,
}

impl Seat {
    fn mortal(&self) -> Mortal {
        let actor = self.actor.clone();
        Mortal::new(&self.storage, move || actor.dies())
    }
}

/// Events at which appends began and were acknowledged.
#[derive(Default)]
struct Notes {
    groups: Vec<(Group, usize)>,
    /// Event, group, and the offsets that the append returned.
    acks: Vec<(usize, usize, Vec<u64>)>,
    /// When each sync ended, and what it promises.
    syncs: Vec<(usize, Promise)>,
    /// When compactions began.
    compactions: Vec<usize>,
    /// When each cut began, and what it had.
    cuts: Vec<(usize, Taken)>,
    wrong: Vec<String>,
}

/// The groups that a finished sync promises to be on disk.
enum Promise {
    /// Everything that was acknowledged before this event.
    Before(usize),
    /// A group and all before it; other processes may have appended since.
    Group(usize),
}

/// A process at work.
struct Hand<'a> {
    me: usize,
    seat: &'a Seat,
    turns: &'a Turns,
    notes: &'a Mutex<Notes>,
    machine: &'a Machine,
    /// All processes of the crew.
    actors: &'a [Actor],
}

impl Hand<'_> {
    fn play(&self, ops: &[Op], closes: bool) {
        let says = |what| {
            lock(self.notes).wrong.push(format!("process {} of the crew: {what}", self.me));
        };
        let play = |hand: &mut &Self| hand.try_to_play(ops, closes).map_err(|e| e.to_string());
        self.turns.play(self.me, self, play, says);
    }

    fn try_to_play(&self, ops: &[Op], closes: bool) -> Result<()> {
        let (storage, mode) = (&self.seat.storage, self.machine.mode);
        let log = self.patiently(|| open(storage, mode, self.seat.actor.clone()))?;
        let mut shipper = Shipper::default();
        for op in ops {
            match op {
                Op::Cut => self.cut(&log, &mut shipper)?,
                op => self.step(&log, *op)?,
            }
        }
        if !closes {
            self.seat.actor.dies();
        }
        Ok(())
    }

    fn patiently<T>(&self, call: impl FnMut() -> Result<T>) -> Result<T> {
        self.turns.patiently(self.me, call)
    }

    fn step(&self, log: &Arc<Log>, op: Op) -> Result<()> {
        match op {
            Op::Roll => self.patiently(|| log.roll_now()),
            Op::Sync => self.sync(Promise::Before(self.now()), || log.sync().map(drop)),
            Op::Seal => self.patiently(|| self.when_free(|| log.sync_sealed())),
            Op::Compact => {
                let number = {
                    let mut notes = lock(self.notes);
                    notes.compactions.push(self.now() + 1);
                    notes.groups.len()
                };
                self.sync(Promise::Before(self.now()), || compact(log, number).map(drop))
            }
            op => {
                let number = {
                    let mut notes = lock(self.notes);
                    let number = notes.groups.len();
                    notes.groups.push((plain_group(op, number), self.now() + 1));
                    number
                };
                let new = plain_group(op, number);
                let (appended, firsts) = self.patiently(|| self.append(log, op, &new))?;
                if self.turns.is_dead(self.me) {
                    return Ok(());
                }
                lock(self.notes).acks.push((self.now(), number, firsts));
                match op {
                    Op::Interval => self.sync(Promise::Group(number), || log.sync_interval()),
                    Op::Durable => self.sync(Promise::Group(number), || log.sync_to(appended.end)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Take a cut, again if a compaction replaces a segment before the cut is shipped.
    fn cut(&self, log: &Arc<Log>, shipper: &mut Shipper) -> Result<()> {
        let began = self.now();
        self.sync(Promise::Before(began), || log.sync().map(drop))?;
        let (storage, mode) = (&self.seat.storage, self.machine.mode);
        let taken = loop {
            let ends = self.patiently(|| shipper.cut(storage, mode, log))?;
            match shipper.ship(self.now(), ends, None) {
                Err(error) if is_overtaken(&error) && !self.turns.is_dead(self.me) => {}
                done => break done?,
            }
        };
        if !self.turns.is_dead(self.me) {
            let now = self.now();
            let taken = taken.map(|taken| (began, taken.at(now)));
            lock(self.notes).cuts.extend(taken);
        }
        Ok(())
    }

    fn append(&self, log: &Arc<Log>, op: Op, new: &Group) -> Result<(Appended, Vec<u64>)> {
        if op != Op::Expect {
            return append(log, new, op == Op::Interval);
        }
        loop {
            let expected = log.end_offset(0)?;
            match append_at(log, new, expected) {
                // Another process was faster; the next step looks again.
                Err(Error::OffsetConflict { .. }) => {}
                Ok((_, first)) if first != expected => {
                    let what = format!("an append that expected offset {expected} went to {first}");
                    return Err(Error::InvalidArgument { what });
                }
                done => return done.map(|(appended, first)| (appended, vec![first])),
            }
        }
    }

    fn now(&self) -> usize {
        self.machine.storage.events()
    }

    fn sync(&self, promise: Promise, mut call: impl FnMut() -> Result<()>) -> Result<()> {
        self.patiently(|| self.when_free(&mut call))?;
        if !self.turns.is_dead(self.me) {
            lock(self.notes).syncs.push((self.now(), promise));
        }
        Ok(())
    }

    /// Try without waiting: a process that finds the sync lock held would sleep in real time, in
    /// vain.
    fn when_free(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let path = Path::new(CONTROL);
        let mut held = [0; 8];
        let file = self.seat.storage.open(path, OpenMode::Read);
        let read = file.and_then(|file| file.read_at(&mut held, word::SYNC_LOCK));
        read.map_err(|e| Error::io("read", path, e))?;
        let owner = falaj::internals::lock::decode(u64::from_le_bytes(held)).ok().flatten();
        let lives = owner.is_some_and(|held| {
            let whose = self.actors.iter().position(|actor| actor.is(held.owner));
            whose.is_some_and(|whose| whose != self.me && !self.turns.is_dead(whose))
        });
        if !lives {
            return call();
        }
        let (path, holder) = (path.to_path_buf(), "one of the crew".into());
        Err(Error::LockTimeout { path, waited: std::time::Duration::ZERO, holder })
    }
}

impl Notes {
    /// Build the history once no process runs any more.
    fn found(
        &self,
        machine: &Machine,
        name: &str,
        slots: u16,
    ) -> std::result::Result<History, String> {
        if let Some(wrong) = self.wrong.first() {
            return Err(wrong.clone());
        }
        let order = self.order(machine)?;
        let truth = Truth(order.iter().map(|number| self.groups[*number].0.clone()).collect());
        let place = |number: usize| order.iter().position(|other| *other == number);
        let mut committed = Moments::new();
        for (time, number, firsts) in &self.acks {
            let place = place(*number)
                .ok_or_else(|| format!("group {number} was acknowledged and is missing"))?;
            let group = &truth.0[place];
            let wanted: Vec<_> = group.0.iter().map(|(t, _)| truth.count(*t, place)).collect();
            if *firsts != wanted {
                return Err(format!("group {number} is at {wanted:?}, not at {firsts:?}"));
            }
            committed.push((*time, place + 1));
        }
        rise(&mut committed);
        let promised = |promise: &Promise| match promise {
            Promise::Before(began) => at(&committed, *began),
            Promise::Group(number) => place(*number).map_or(0, |place| place + 1),
        };
        let mut durable: Moments =
            self.syncs.iter().map(|(ended, promise)| (*ended, promised(promise))).collect();
        let mut cuts = Vec::new();
        for (began, taken) in &self.cuts {
            let groups = cuts::groups(&truth, taken.nexts())?;
            let least = at(&committed, *began);
            if groups < least {
                return Err(format!("a cut has {groups} groups, and {least} were acknowledged"));
            }
            durable.push((taken.time, groups));
            cuts.push(taken.clone());
        }
        cuts.sort_by_key(|cut| cut.time);
        rise(&mut durable);
        // Which records they took is not known: of what was there, those that are not the last of
        // their key.
        let mut compacted: Moments =
            self.compactions.iter().map(|time| (*time, order.len())).collect();
        rise(&mut compacted);
        let mut latest = 0;
        let mut begun = Moments::new();
        for (place, number) in order.iter().enumerate() {
            latest = latest.max(self.groups[*number].1);
            begun.push((latest, place + 1));
        }
        let (name, mode, journal) = (name.to_owned(), machine.mode, machine.storage.journal());
        let (from, incarnation) = (0, 1);
        Ok(History {
            name,
            mode,
            journal,
            from,
            truth,
            incarnation,
            slots,
            begun,
            committed,
            durable,
            trims: Trims::default(),
            compactions: Compactions { begun: compacted, done: Vec::new() },
            cuts,
        })
    }

    /// Numbers of the groups in the log's order. Each has records in topic 0, filled with a letter
    /// of its own.
    fn order(&self, machine: &Machine) -> std::result::Result<Vec<usize>, String> {
        let failed = |e: Error| format!("read what the crew wrote: {e}");
        let reader = open_to_read(&machine.storage, machine.mode).map_err(failed)?;
        let mut order = Vec::new();
        let mut cursor = reader.cursor_at(0, 0, Check::Full).map_err(failed)?;
        while let Some(block) = cursor.next_block().map_err(failed)? {
            // Compaction leaves records without a key, and blocks that hold none.
            let mut records = block.records().map_err(failed)?;
            let mut letter = None;
            let damaged = |what| format!("a record: {what:?}");
            while let Some(record) = records.next(block.body()).map_err(damaged)? {
                let value = record.value.and_then(|range| block.body()[range].first().copied());
                letter = letter.or(value);
            }
            let Some(letter) = letter else { continue };
            let number = usize::from(letter.wrapping_sub(b'a'));
            if number >= self.groups.len() || order.contains(&number) {
                return Err(format!("a block filled with {:?}", char::from(letter)));
            }
            order.push(number);
        }
        let truth = Truth(order.iter().map(|number| self.groups[*number].0.clone()).collect());
        let all = order.len();
        truth
            .found(&reader, all..=all, Gone { compacted: all, ..NOTHING })
            .map_err(|e| format!("what the crew wrote: {e}"))?;
        Ok(order)
    }
}

/// Moments in the order of time, none of them lower than one before.
fn rise(moments: &mut Moments) {
    moments.sort_unstable();
    let mut most = 0;
    for (_, groups) in moments {
        most = most.max(*groups);
        *groups = most;
    }
}

/// A group without a producer's sequence: with several processes, the sequence is only known at the
/// append.
fn plain(op: Op) -> Op {
    if op == Op::Durable { Op::Append } else { op }
}

/// The group of a step, without conditions: where it goes is only known at the append, too.
fn plain_group(op: Op, number: usize) -> Group {
    let mut group = group(plain(op), number);
    if group.is_conditional() {
        group.0[0].1[0].pop();
    }
    group
}
