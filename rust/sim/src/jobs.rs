//! Concurrent processes that share a queue: which has which job, which jobs are done, what a crash
//! leaves.
//!
//! Owns a model of a queue's promises. The model knows only the answers of calls, and the time
//! before and after each. It checks these promises:
//!
//! - A job has one valid lease at a time.
//! - An ack counts only while its lease is valid, and only once.
//! - A job that is done is not delivered again. Every other job is, whichever process dies and
//!   whatever a power cut takes.
//! - An attempt is work that began or was given back, and nothing else.
//! - A job that was begun, and whose holder died or was late, is delivered alone.
//! - A reserved job goes to no other process before its time is over, although the process that
//!   reserved it dies. Any process may settle it until then.
//!
//! A seed decides what each process does, which one runs, and which one dies where.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::queue::{LeasedJob, QueueFile, QueueOptions};
use falaj::internals::storage::Storage;
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::memory::MemoryStorage;

use crate::explore::guarded;
use crate::pick::{selections, written};
use crate::random::{Random, mix};
use crate::stores::{NOW_US, machine, settled, topic};
use crate::turns::{Mortal, Turns, lock};

const LEASE_US: u64 = 10_000;
/// An extended lease ends later than it would have, whenever it is extended.
const LONGER_US: u64 = 2 * LEASE_US;
/// Longer than any lease lasts.
const LONG_US: i64 = 1_000_000;
const NAPS_US: [i64; 4] = [1_000, 4_000, 11_000, 21_000];
/// Slots of the queue at first: fewer than the jobs that may be done and not durable yet.
const OPTIONS: QueueOptions = QueueOptions { ordered: None, capacity: 64 };
/// Power cuts of each round, and the images of each that are judged.
const CUTS: (usize, usize) = (2, 3);
/// Records that are appended after a power cut that took some.
const ANOTHER: u64 = 6;

#[derive(Clone, Copy)]
enum Step {
    Take,
    Begin,
    Ack,
    GiveBack,
    PutBack,
    Extend,
    /// Reserve a job; some of them are passed on.
    Reserve,
    /// Go on with a reserved job that another process passed on, perhaps before it died.
    Fetch,
    Nap,
}

const STEPS: [Step; 14] = [
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
    Step::Reserve,
    Step::Reserve,
    Step::Fetch,
    Step::Nap,
];

/// Run the processes of a seed; return how often a job was delivered.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: u64, mode: WriteMode) -> std::result::Result<u64, String> {
    let failed = |error: Error| format!("make a queue: {error}");
    let machine = machine(seed);
    let mut random = Random::new(seed);
    let count = 2 + random.below(2);
    let records = 2 + random.below(5) as u64;
    // A power cut may take the last ones, but not the first.
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
        // The dead may run on now, since nothing is judged any more: each of their calls fails.
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

/// The jobs that are left, in the order of their delivery.
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

/// Judge the round once no process runs: what was seen, what is left, and what a power cut leaves.
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
    let left = left.map_err(|error| format!("take the jobs that are left: {error}"))?;
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

/// Where the topic ends after a power cut, and which jobs are left once other records follow.
///
/// The queue is opened before these records are appended, or after.
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

/// A lease, as far as other processes know of it.
struct Given {
    to: usize,
    delivery: u32,
    /// When its holder learned of it.
    noted: usize,
    /// Earliest and latest time at which it ends.
    until: (u64, u64),
    /// Whether its holder may have ended it.
    may_be_over: bool,
    /// Whether its holder knows that work began.
    is_begun: bool,
    /// Whether its holder knows that it is reserved: then the holder's end does not end it.
    is_reserved: bool,
}

/// The observations of a job.
#[derive(Default)]
struct Seen {
    given: Vec<Given>,
    /// The process that did it, and when that was known.
    done: Option<(usize, usize)>,
    /// Acks whose answer is not known.
    unanswered: usize,
    /// When each counted attempt became known.
    attempts: Vec<usize>,
    /// Attempts that may count, those that do included.
    may_count: usize,
}

/// The observations of all processes.
struct Notes {
    jobs: Vec<Seen>,
    /// Reserved jobs that any process may go on with.
    passed: Vec<Mine>,
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
        Self { jobs, passed: Vec::new(), now: 0, wrong: None }
    }

    fn say(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    /// Note that a process is about to leave, which ends its leases, but for reserved jobs.
    fn goes(&mut self, me: usize) {
        let given = self.jobs.iter_mut().flat_map(|job| &mut job.given);
        let ends = |given: &&mut Given| given.to == me && !given.is_reserved;
        given.filter(ends).for_each(|given| given.may_be_over = true);
    }

    /// Note that a process was given a job, alone or with others.
    fn taken(&mut self, me: usize, job: &LeasedJob, span: Span, (turns, is_alone): (&Turns, bool)) {
        self.now += 1;
        let (offset, delivery, noted) = (job.lease.offset, job.lease.delivery, self.now);
        let Some(seen) = self.jobs.get_mut(offset as usize) else {
            return self.say(format!("process {me} was given job {offset}, which does not exist"));
        };
        let lives = |given: &&Given| {
            let is_known = given.noted <= span.began && !given.may_be_over;
            let is_kept = given.is_reserved || !turns.is_dead(given.to);
            is_known && span.clock.1 < given.until.0 && is_kept
        };
        let wrong = match (seen.done, seen.given.iter().find(lives)) {
            (Some((by, known)), _) if known <= span.began => {
                Some(format!("job {offset} went to process {me} after process {by} did it"))
            }
            (_, Some(Given { to, .. })) => {
                Some(format!("job {offset} went to process {me} while process {to} had it"))
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
            // The last known delivery is the last one: no other process had the job since.
            let last = seen.given.iter().max_by_key(|given| given.delivery)?;
            let is_suspect = last.is_begun && !last.may_be_over && last.delivery + 1 == delivery;
            let what = "was begun by a process that died or was late, and comes with others";
            (is_suspect && !is_alone).then(|| format!("job {offset} {what}"))
        });
        let until = (span.clock.0 + LEASE_US, span.clock.1 + LEASE_US);
        let (may_be_over, is_begun, is_reserved) = (false, false, false);
        let given = Given { to: me, delivery, noted, until, may_be_over, is_begun, is_reserved };
        seen.given.push(given);
        wrong.into_iter().for_each(|wrong| self.say(wrong));
    }

    /// Note that a request of a lease's holder was done or refused.
    fn answered(&mut self, me: usize, what: &str, job: &LeasedJob, span: Span, granted: bool) {
        self.now += 1;
        let (offset, delivery, known) = (job.lease.offset, job.lease.delivery, self.now);
        let seen = &mut self.jobs[offset as usize];
        let place = seen.given.iter().position(|g| (g.to, g.delivery) == (me, delivery));
        let Some(place) = place else { return };
        let until = seen.given[place].until;
        // Compare by deliveries: the process that got the job first may learn of it last.
        let later = seen.given.iter().filter(|given| given.delivery > delivery);
        let next = later.min_by_key(|given| given.delivery).map(|next| (next.to, next.noted));
        let story = |why| format!("{what} of job {offset} by process {me} {why}");
        let wrong = match (granted, next) {
            (true, Some((to, noted))) if noted <= span.began => {
                Some(story(format!("counted after process {to} got the job")))
            }
            (true, _) if until.1 <= span.clock.0 => {
                Some(story("counted after its lease ended".to_owned()))
            }
            (false, None) if span.clock.1 < until.0 && seen.done.is_none() => {
                Some(story("was refused while its lease was valid".to_owned()))
            }
            _ => None,
        };
        if granted && matches!(what, EXTENSION | RESERVATION) {
            seen.given[place].until = (span.clock.0 + LONGER_US, span.clock.1 + LONGER_US);
        }
        // Work that began earlier counts already.
        let counts = matches!(what, BEGINNING | NACK | RESERVATION) && !seen.given[place].is_begun;
        match granted {
            true if counts => seen.attempts.push(known),
            false if counts => seen.may_count -= 1,
            _ => {}
        }
        seen.given[place].is_begun |= granted && matches!(what, BEGINNING | RESERVATION);
        seen.given[place].is_reserved |= granted && what == RESERVATION;
        let twice = (granted && what == ACK).then(|| seen.done.replace((me, self.now))).flatten();
        let twice = twice.map(|(by, _)| format!("job {offset} was done by {by} and by {me}"));
        wrong.or(twice).into_iter().for_each(|wrong| self.say(wrong));
    }

    /// Judge which jobs were left at the end.
    fn judge_left(&self, left: &[u64]) -> std::result::Result<(), String> {
        for (offset, seen) in (0..).zip(&self.jobs) {
            match left.iter().filter(|other| **other == offset).count() {
                0 if seen.done.is_none() && seen.unanswered == 0 => {
                    return Err(format!(
                        "job {offset} is lost: it is not done, and no process gets it"
                    ));
                }
                1 if seen.done.is_some() => {
                    return Err(format!("job {offset} was done, and is delivered again"));
                }
                0 | 1 => {}
                count => return Err(format!("job {offset} was left {count} times")),
            }
        }
        Ok(())
    }

    /// Judge what a power cut left: the topic with this end, and other records behind it.
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
const RESERVATION: &str = "a reservation";

/// A job that a process has, and the process that it was delivered to.
#[derive(Clone)]
struct Mine {
    owner: usize,
    job: LeasedJob,
}

/// A process at work.
struct Hand<'a> {
    me: usize,
    topic: Topic,
    queue: QueueFile,
    turns: &'a Turns,
    notes: &'a Mutex<Notes>,
    machine: &'a MemoryStorage,
    random: Random,
    /// Jobs that it was given and has not ended, whether their leases are valid or not.
    mine: Vec<Mine>,
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
                Step::Reserve => self.reserve()?,
                Step::Fetch => self.mine.extend(lock(self.notes).passed.pop()),
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

    /// Do something and note when it was done; `None` for a process that died during it.
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
            self.mine.push(Mine { owner: self.me, job });
        }
        Ok(())
    }

    /// Begin work on one of its jobs, whether its lease is still valid or not.
    fn begin(&mut self) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let mine = self.random.pick(&self.mine).clone();
        Self::may_count(self.notes, &mine);
        let done = self.timed(|| self.queue.begin(&self.topic, &[mine.job.lease]));
        let Some((done, span)) = done else { return Ok(()) };
        self.answer(BEGINNING, &mine, done, span)
    }

    /// Reserve one of its jobs, whether its lease is still valid or not. Any process may go on with some of them.
    fn reserve(&mut self) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let place = self.random.below(self.mine.len());
        let mine = self.mine[place].clone();
        Self::may_count(self.notes, &mine);
        let longer = Duration::from_micros(LONGER_US);
        let done = self.timed(|| self.queue.reserve(&self.topic, &[mine.job.lease], longer));
        let Some((done, span)) = done else { return Ok(()) };
        let lease = done?.into_iter().flatten().next();
        let mut notes = lock(self.notes);
        notes.answered(mine.owner, RESERVATION, &mine.job, span, lease.is_some());
        if let Some(lease) = lease {
            self.mine[place].job.lease = lease;
            if self.random.below(2) == 0 {
                notes.passed.push(self.mine.swap_remove(place));
            }
        }
        Ok(())
    }

    /// Note that an attempt at a job may count from here on.
    fn may_count(notes: &Mutex<Notes>, mine: &Mine) {
        change(notes, mine, |seen, given| {
            seen.may_count += usize::from(!seen.given[given].is_begun);
        });
    }

    /// Give one of its jobs back unchanged.
    fn put_back(&mut self) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let mine = self.mine.swap_remove(self.random.below(self.mine.len()));
        change(self.notes, &mine, |seen, given| seen.given[given].may_be_over = true);
        let lease = [mine.job.lease];
        let done = self.timed(|| self.queue.put_back(&self.topic, &lease, Duration::ZERO));
        done.map_or(Ok(()), |(done, _)| done)
    }

    /// Ack one of its jobs or give it back, whether its lease is still valid or not.
    fn end(&mut self, what: &str) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let mine = self.mine.swap_remove(self.random.below(self.mine.len()));
        let (is_ack, job) = (what == ACK, &mine.job);
        change(self.notes, &mine, |seen, given| {
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
        change(self.notes, &mine, |seen, _| seen.unanswered -= usize::from(is_ack));
        self.answer(what, &mine, done, span)
    }

    fn extend(&mut self) -> Result<()> {
        if self.mine.is_empty() {
            return Ok(());
        }
        let mine = self.random.pick(&self.mine).clone();
        let longer = Duration::from_micros(LONGER_US);
        let done = self.timed(|| self.queue.extend(&self.topic, &[mine.job.lease], longer));
        let Some((done, span)) = done else { return Ok(()) };
        self.answer(EXTENSION, &mine, done, span)
    }

    fn answer(&self, what: &str, mine: &Mine, done: Result<()>, span: Span) -> Result<()> {
        let granted = match done {
            Err(Error::LeaseExpired { .. }) => false,
            done => done.map(|()| true)?,
        };
        lock(self.notes).answered(mine.owner, what, &mine.job, span, granted);
        Ok(())
    }
}

/// Change what was seen of a job.
fn change(notes: &Mutex<Notes>, mine: &Mine, change: impl FnOnce(&mut Seen, usize)) {
    let mut notes = lock(notes);
    let lease = &mine.job.lease;
    let seen = &mut notes.jobs[lease.offset as usize];
    let is_this = |given: &Given| (given.to, given.delivery) == (mine.owner, lease.delivery);
    if let Some(given) = seen.given.iter().position(is_this) {
        change(seen, given);
    }
}
