//! Processes at once that work off a queue: who has which job, which are done, and what a crash leaves.
//!
//! Owns a model of what a queue promises, which knows nothing but what the calls answered, and the time
//! before and after each: of a job one lease lives at a time; an ack counts while its lease lives, and
//! once; what is done is not delivered again, and everything else is, whichever process dies and whatever
//! the power takes; an attempt is what was begun or given back, and nothing else; a job that was begun and
//! whose holder died or was late comes alone. A seed decides what each process does, whose turn it is,
//! and which dies where.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::queue::{LeasedJob, QueueFile, QueueOptions};
use falaj::internals::storage::Storage;
use falaj::internals::storage::memory::MemoryStorage;
use falaj::internals::topic::{NewRecord, SyncMode, Topic};

use crate::explore::guarded;
use crate::pick::{selections, written};
use crate::random::{Random, mix};
use crate::stores::{NOW_US, machine, settled, topic};
use crate::turns::{Mortal, Turns, lock};

const LEASE_US: u64 = 10_000;
/// A lease that was extended ends later than it would have, whenever that is done.
const LONGER_US: u64 = 2 * LEASE_US;
/// Longer than any lease lasts.
const LONG_US: i64 = 1_000_000;
const NAPS_US: [i64; 4] = [1_000, 4_000, 11_000, 21_000];
/// Places of the queue at first: fewer than what is done may wait for the medium.
const OPTIONS: QueueOptions = QueueOptions { ordered: None, capacity: 64 };
/// Power cuts of each round, and how many images of each are looked at.
const CUTS: (usize, usize) = (2, 3);
/// Records that are appended where a power cut took some.
const ANOTHER: u64 = 6;

#[derive(Clone, Copy)]
enum Step {
    Take,
    Begin,
    Ack,
    GiveBack,
    PutBack,
    Extend,
    Nap,
}

const STEPS: [Step; 11] = [
    Step::Take,
    Step::Take,
    Step::Take,
    Step::Begin,
    Step::Begin,
    Step::Ack,
    Step::Ack,
    Step::GiveBack,
    Step::PutBack,
    Step::Extend,
    Step::Nap,
];

/// Let the processes of a seed work; how often they were given a job.
///
/// # Errors
/// What was promised and is not so.
pub fn run(seed: u64, mode: WriteMode) -> std::result::Result<u64, String> {
    let failed = |error: Error| format!("make a queue: {error}");
    let machine = machine(seed);
    let mut random = Random::new(seed);
    let count = 2 + random.below(2);
    let records = 2 + random.below(5) as u64;
    // The last ones may be lost with the power, the first ones not.
    let durable = random.below(records as usize + 1) as u64;
    let owner = filled(&machine, mode, records, durable).map_err(failed)?;
    let seats: Vec<_> = (0..count).map(|_| machine.process()).collect();
    let opened: Result<Vec<_>> = seats.iter().map(|seat| open(seat, mode)).collect();
    let opened = opened.map_err(failed)?;
    let mortals = seats.iter().map(|seat| Mortal::new(seat, || ())).collect();
    let death = (random.below(3) > 0).then(|| (random.below(count), 1 + random.below(150)));
    let turns = Arc::new(Turns::new(seed, mortals, death));
    let gate = Arc::clone(&turns);
    machine.watch_events(move |process| gate.step(process));
    let notes = Mutex::new(Notes::of(records));
    let from = machine.events();
    std::thread::scope(|scope| {
        for (me, (topic, queue)) in opened.into_iter().enumerate() {
            let random = Random::new(mix(seed, me as u64));
            let (turns, notes, machine) = (&turns, &notes, &machine);
            let hand = Hand { me, topic, queue, turns, notes, machine, random, mine: Vec::new() };
            scope.spawn(move || hand.play());
        }
        turns.await_all();
        let judged = guarded(|| judge(&machine, mode, &lock(&notes), durable, (from, &mut random)));
        // The dead may run on now, with nobody looking: each call of theirs fails.
        turns.release();
        judged
    })?;
    drop(owner);
    let notes = lock(&notes);
    Ok(notes.jobs.iter().map(|job| job.given.len() as u64).sum())
}

fn filled(machine: &MemoryStorage, mode: WriteMode, records: u64, durable: u64) -> Result<Topic> {
    let topic = topic(machine, mode, 1)?;
    for number in 0..records {
        let sync = if number < durable { SyncMode::Durable } else { SyncMode::None };
        let value = number.to_le_bytes();
        settled(|| topic.append_to(0, &NewRecord::new(&value), Some(sync)))?;
    }
    Ok(topic)
}

fn open(storage: &MemoryStorage, mode: WriteMode) -> Result<(Topic, QueueFile)> {
    let topic = topic(storage, mode, 1)?;
    let queue = settled(|| QueueFile::open(&topic, "work", OPTIONS))?;
    Ok((topic, queue))
}

/// What is left to do, in the order in which it is handed out.
fn drained(storage: &MemoryStorage, (topic, queue): &(Topic, QueueFile)) -> Result<Vec<u64>> {
    storage.set_now_us(storage.now_us() + LONG_US);
    let mut all = Vec::new();
    loop {
        let jobs = settled(|| queue.take(topic, 4, Duration::from_micros(LEASE_US)))?;
        if jobs.is_empty() {
            return Ok(all);
        }
        let done: Vec<_> = jobs.iter().map(LeasedJob::to_ack).collect();
        settled(|| queue.ack(topic, &done))?;
        all.extend(jobs.iter().map(|job| job.lease.offset));
    }
}

/// Once nobody runs any more: what was seen, what is left, and what is left after a power cut.
fn judge(
    machine: &MemoryStorage,
    mode: WriteMode,
    notes: &Notes,
    durable: u64,
    (from, random): (usize, &mut Random),
) -> std::result::Result<(), String> {
    if let Some(wrong) = &notes.wrong {
        return Err(wrong.clone());
    }
    let journal = machine.journal();
    let heir = machine.process();
    let left = open(&heir, mode).and_then(|opened| drained(&heir, &opened));
    let left = left.map_err(|error| format!("work off what is left: {error}"))?;
    notes.judge_left(&left)?;
    for _ in 0..CUTS.0 {
        let time = from + random.below(journal.len() - from + 1);
        let crash = journal.crash_at(time);
        for selection in selections(&crash, CUTS.1, CUTS.1, random) {
            let image = crash.image(&selection);
            image.set_now_us(NOW_US);
            let after = after_a_cut(&image, mode, random.below(2) == 0);
            let after = after.map_err(|error| error.to_string());
            let judged = after.and_then(|(end, left)| notes.judge_cut(durable, end, &left));
            let place = || format!("power cut at event {time}, {}", written(&crash, &selection));
            judged.map_err(|what| format!("{}: {what}", place()))?;
        }
    }
    Ok(())
}

/// Where the topic ends after a power cut, and what is left to do once it has other records behind that.
/// The queue is opened before these come, or after.
fn after_a_cut(image: &MemoryStorage, mode: WriteMode, first: bool) -> Result<(u64, Vec<u64>)> {
    let early = first.then(|| open(image, mode)).transpose()?;
    let topic = topic(image, mode, 1)?;
    let end = topic.end(0)?;
    for _ in 0..ANOTHER {
        settled(|| topic.append_to(0, &NewRecord::new(b"another"), Some(SyncMode::None)))?;
    }
    let opened = early.map_or_else(|| open(image, mode), Ok)?;
    Ok((end, drained(image, &opened)?))
}

/// A lease, as far as those know who did not make it.
struct Given {
    to: usize,
    delivery: u32,
    /// When its holder had it.
    noted: usize,
    /// Until when it lives at least, and at most.
    until: (u64, u64),
    /// Its holder may have ended it.
    may_be_over: bool,
    /// Its holder knows that it began to work.
    is_begun: bool,
}

/// What was seen of a job.
#[derive(Default)]
struct Seen {
    given: Vec<Given>,
    /// By whom it was done, and when that was known.
    done: Option<(usize, usize)>,
    /// Acks that were not answered.
    unanswered: usize,
    /// When it was known of each attempt that it counts.
    attempts: Vec<usize>,
    /// Attempts that may count, those that do included.
    may_count: usize,
}

/// What all have seen.
struct Notes {
    jobs: Vec<Seen>,
    now: usize,
    wrong: Option<String>,
}

/// When a call began, and between which times it happened.
#[derive(Clone, Copy)]
struct Span {
    began: usize,
    clock: (u64, u64),
}

impl Notes {
    fn of(records: u64) -> Self {
        let jobs = (0..records).map(|_| Seen::default()).collect();
        Self { jobs, now: 0, wrong: None }
    }

    fn say(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    /// A process is about to go, which ends what it has.
    fn goes(&mut self, me: usize) {
        let given = self.jobs.iter_mut().flat_map(|job| &mut job.given);
        given.filter(|given| given.to == me).for_each(|given| given.may_be_over = true);
    }

    /// A process was given a job, alone or with others.
    fn taken(&mut self, me: usize, job: &LeasedJob, span: Span, (turns, is_alone): (&Turns, bool)) {
        self.now += 1;
        let (offset, delivery, noted) = (job.lease.offset, job.lease.delivery, self.now);
        let Some(seen) = self.jobs.get_mut(offset as usize) else {
            return self.say(format!("process {me} was handed job {offset}, which there is not"));
        };
        let lives = |given: &&Given| {
            let is_known = given.noted <= span.began && !given.may_be_over;
            is_known && span.clock.1 < given.until.0 && !turns.is_dead(given.to)
        };
        let wrong = match (seen.done, seen.given.iter().find(lives)) {
            (Some((by, known)), _) if known <= span.began => {
                Some(format!("job {offset} was handed to process {me} after process {by} did it"))
            }
            (_, Some(Given { to, .. })) => {
                Some(format!("job {offset} was handed to process {me} while process {to} had it"))
            }
            _ => None,
        };
        let counted = seen.attempts.iter().filter(|known| **known <= span.began).count();
        let before = job.lease.attempt as usize - 1;
        let wrong = wrong.or_else(|| {
            let is_right = (counted..=seen.may_count).contains(&before);
            let may = seen.may_count;
            (!is_right)
                .then(|| format!("job {offset} counts {before} attempts, not {counted} to {may}"))
        });
        let wrong = wrong.or_else(|| {
            // The last of those that are known is the last: no other process had it since.
            let last = seen.given.iter().max_by_key(|given| given.delivery)?;
            let is_suspect = last.is_begun && !last.may_be_over && last.delivery + 1 == delivery;
            let what = "was begun by a process that died or was late, and comes with others";
            (is_suspect && !is_alone).then(|| format!("job {offset} {what}"))
        });
        let until = (span.clock.0 + LEASE_US, span.clock.1 + LEASE_US);
        let (may_be_over, is_begun) = (false, false);
        seen.given.push(Given { to: me, delivery, noted, until, may_be_over, is_begun });
        wrong.into_iter().for_each(|wrong| self.say(wrong));
    }

    /// What the holder of a lease asked for was done, or refused.
    fn answered(&mut self, me: usize, what: &str, job: &LeasedJob, span: Span, granted: bool) {
        self.now += 1;
        let (offset, delivery, known) = (job.lease.offset, job.lease.delivery, self.now);
        let seen = &mut self.jobs[offset as usize];
        let place = seen.given.iter().position(|g| (g.to, g.delivery) == (me, delivery));
        let Some(place) = place else { return };
        let until = seen.given[place].until;
        // By deliveries: the process that got it first may hear of it last.
        let later = seen.given.iter().filter(|given| given.delivery > delivery);
        let next = later.min_by_key(|given| given.delivery).map(|next| (next.to, next.noted));
        let story = |why| format!("{what} of job {offset} by process {me} {why}");
        let wrong = match (granted, next) {
            (true, Some((to, noted))) if noted <= span.began => {
                Some(story(format!("counted after that was handed to process {to}")))
            }
            (true, _) if until.1 <= span.clock.0 => {
                Some(story("counted after its time".to_owned()))
            }
            (false, None) if span.clock.1 < until.0 && seen.done.is_none() => {
                Some(story("was refused in its time".to_owned()))
            }
            _ => None,
        };
        if granted && what == EXTENSION {
            seen.given[place].until = (span.clock.0 + LONGER_US, span.clock.1 + LONGER_US);
        }
        // What was begun before counts already.
        let counts = matches!(what, BEGINNING | NACK) && !seen.given[place].is_begun;
        match granted {
            true if counts => seen.attempts.push(known),
            false if counts => seen.may_count -= 1,
            _ => {}
        }
        seen.given[place].is_begun |= granted && what == BEGINNING;
        let twice = (granted && what == ACK).then(|| seen.done.replace((me, self.now))).flatten();
        let twice = twice.map(|(by, _)| format!("job {offset} was done by {by} and by {me}"));
        wrong.or(twice).into_iter().for_each(|wrong| self.say(wrong));
    }

    /// What was left in the end.
    fn judge_left(&self, left: &[u64]) -> std::result::Result<(), String> {
        for (offset, seen) in (0..).zip(&self.jobs) {
            match left.iter().filter(|other| **other == offset).count() {
                0 if seen.done.is_none() && seen.unanswered == 0 => {
                    return Err(format!(
                        "job {offset} is lost: nobody did it, nobody is handed it"
                    ));
                }
                1 if seen.done.is_some() => {
                    return Err(format!("job {offset} was done, and is handed out again"));
                }
                0 | 1 => {}
                count => return Err(format!("job {offset} was left {count} times")),
            }
        }
        Ok(())
    }

    /// What was left after a power cut that left the topic with this end, and others behind it.
    fn judge_cut(&self, durable: u64, end: u64, left: &[u64]) -> std::result::Result<(), String> {
        if end < durable || end > self.jobs.len() as u64 {
            return Err(format!("the topic ends at {end}, {durable} records were durable"));
        }
        for offset in 0..end + ANOTHER {
            let seen = self.jobs.get(offset as usize).filter(|_| offset < end);
            let may_be_done = seen.is_some_and(|seen| seen.done.is_some() || seen.unanswered > 0);
            if !may_be_done && !left.contains(&offset) {
                return Err(format!("job {offset} is lost: the topic ended at {end}"));
            }
        }
        Ok(())
    }
}

const ACK: &str = "an ack";
const NACK: &str = "the giving back";
const BEGINNING: &str = "the beginning";
const EXTENSION: &str = "an extension";

/// A process at work.
struct Hand<'a> {
    me: usize,
    topic: Topic,
    queue: QueueFile,
    turns: &'a Turns,
    notes: &'a Mutex<Notes>,
    machine: &'a MemoryStorage,
    random: Random,
    /// What it was handed and has not ended, in time or not.
    mine: Vec<LeasedJob>,
}

impl Hand<'_> {
    fn play(self) {
        let (me, turns, notes) = (self.me, self.turns, self.notes);
        let says = |what| lock(notes).say(format!("process {me}: {what}"));
        turns.play(
            me,
            self,
            |hand| {
                let played = guarded(|| hand.try_to_play().map_err(|error| error.to_string()));
                lock(notes).goes(me);
                played
            },
            says,
        );
    }

    fn try_to_play(&mut self) -> Result<()> {
        for _ in 0..3 + self.random.below(8) {
            match *self.random.pick(&STEPS) {
                Step::Take => self.take()?,
                Step::Begin => self.begin()?,
                Step::PutBack => self.put_back()?,
                Step::Ack => self.end(ACK)?,
                Step::GiveBack => self.end(NACK)?,
                Step::Extend => self.extend()?,
                Step::Nap => {
                    let nap = *self.random.pick(&NAPS_US);
                    self.machine.set_now_us(self.machine.now_us() + nap);
                }
            }
        }
        Ok(())
    }

    fn clock(&self) -> u64 {
        self.machine.now_us() as u64
    }

    /// Do something, and tell when it was done; `None` for who died in it.
    fn timed<T>(&self, call: impl FnMut() -> Result<T>) -> Option<(Result<T>, Span)> {
        let (began, before) = (lock(self.notes).now, self.clock());
        let done = self.turns.patiently(self.me, call);
        let span = Span { began, clock: (before, self.clock()) };
        (!self.turns.is_dead(self.me)).then_some((done, span))
    }

    fn take(&mut self) -> Result<()> {
        let n = 1 + self.random.below(3);
        let lease = Duration::from_micros(LEASE_US);
        let taken = self.timed(|| self.queue.take(&self.topic, n, lease));
        let Some((jobs, span)) = taken else { return Ok(()) };
        let jobs = jobs?;
        let is_alone = jobs.len() == 1;
        for job in jobs {
            lock(self.notes).taken(self.me, &job, span, (self.turns, is_alone));
            self.mine.push(job);
        }
        Ok(())
    }

    /// Begin work on one of its jobs, whether it has it still or not.
    fn begin(&mut self) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let job = self.random.pick(&self.mine).clone();
        self.change(&job, |seen, given| seen.may_count += usize::from(!seen.given[given].is_begun));
        let done = self.timed(|| self.queue.begin(&self.topic, &[job.lease]));
        let Some((done, span)) = done else { return Ok(()) };
        self.answer(BEGINNING, &job, done, span)
    }

    /// Give one of its jobs back as it is.
    fn put_back(&mut self) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let job = self.mine.swap_remove(self.random.below(self.mine.len()));
        self.change(&job, |seen, given| seen.given[given].may_be_over = true);
        let done = self.timed(|| self.queue.put_back(&self.topic, &[job.lease], Duration::ZERO));
        done.map_or(Ok(()), |(done, _)| done)
    }

    /// Ack one of its jobs or give it back, whether it has it still or not.
    fn end(&mut self, what: &str) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let job = self.mine.swap_remove(self.random.below(self.mine.len()));
        let is_ack = what == ACK;
        self.change(&job, |seen, given| {
            seen.unanswered += usize::from(is_ack);
            seen.may_count += usize::from(!is_ack && !seen.given[given].is_begun);
            seen.given[given].may_be_over = true;
        });
        let done = if is_ack {
            self.timed(|| self.queue.ack(&self.topic, &[job.to_ack()]))
        } else {
            self.timed(|| self.queue.nack(&self.topic, &[job.lease], Duration::ZERO))
        };
        let Some((done, span)) = done else { return Ok(()) };
        self.change(&job, |seen, _| seen.unanswered -= usize::from(is_ack));
        self.answer(what, &job, done, span)
    }

    fn extend(&mut self) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let job = self.random.pick(&self.mine).clone();
        let longer = Duration::from_micros(LONGER_US);
        let done = self.timed(|| self.queue.extend(&self.topic, &[job.lease], longer));
        let Some((done, span)) = done else { return Ok(()) };
        self.answer(EXTENSION, &job, done, span)
    }

    fn change(&self, job: &LeasedJob, change: impl FnOnce(&mut Seen, usize)) {
        let mut notes = lock(self.notes);
        let seen = &mut notes.jobs[job.lease.offset as usize];
        let mine = |given: &Given| (given.to, given.delivery) == (self.me, job.lease.delivery);
        if let Some(given) = seen.given.iter().position(mine) {
            change(seen, given);
        }
    }

    fn answer(&self, what: &str, job: &LeasedJob, done: Result<()>, span: Span) -> Result<()> {
        let granted = match done {
            Err(Error::LeaseExpired { .. }) => false,
            done => done.map(|()| true)?,
        };
        lock(self.notes).answered(self.me, what, job, span, granted);
        Ok(())
    }
}
