//! Stress tests of the lock and the wake words, with real threads and real futexes.
//!
//! Each thread plays a process with an identity of its own. No test depends on the machine's speed:
//! a broken promise shows as a wrong count, a wrong answer, or a test that does not end.
#![allow(
    unsafe_code,
    reason = "the test shares plain memory between threads, as processes share a page"
)]

use std::io;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use falaj::internals::lock::{
    self, Acquired, Fate, Holders, Identity, LockError, decode, stopwatch,
};
use falaj::internals::sync::{SharedWord, Slept};
use falaj::internals::{publish, wake};
use rustix::io::Errno;
use rustix::thread::futex;

// ---- stand-ins for a mapped page and for the slots ----------------------------------------------

struct StdWord {
    value: AtomicU64,
    /// Its wakes never arrive: sleepers continue only at the end of their sleep.
    drowsy: bool,
}

impl StdWord {
    const fn new(value: u64) -> Self {
        Self { value: AtomicU64::new(value), drowsy: false }
    }

    fn low_half(&self) -> &AtomicU32 {
        // SAFETY: the low half of an aligned word (little-endian machines only) that `self` keeps
        // alive. The kernel compares it, and no thread stores through this reference.
        unsafe { AtomicU32::from_ptr(self.value.as_ptr().cast::<u32>()) }
    }
}

impl SharedWord for StdWord {
    fn load(&self, order: Ordering) -> u64 {
        self.value.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.value.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.value.swap(value, order)
    }
    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        yes: Ordering,
        no: Ordering,
    ) -> Result<u64, u64> {
        self.value.compare_exchange(old, new, yes, no)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.value.fetch_add(value, order)
    }

    fn sleep(&self, low: u32, mask: u32, bound: Duration) -> Slept {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        let until = futex::Timespec::try_from(now + bound).unwrap();
        let mask = NonZeroU32::new(mask).unwrap();
        match futex::wait_bitset(self.low_half(), futex::Flags::empty(), low, Some(&until), mask) {
            Ok(()) | Err(Errno::INTR) => Slept::Woken,
            Err(Errno::AGAIN) => Slept::Changed,
            Err(Errno::TIMEDOUT) => Slept::TimedOut,
            Err(other) => panic!("futex: {other}"),
        }
    }

    fn wake(&self, count: u32, mask: u32) {
        if self.drowsy {
            return;
        }
        let mask = NonZeroU32::new(mask).unwrap();
        futex::wake_bitset(self.low_half(), futex::Flags::empty(), count, mask).unwrap();
    }
}

/// A mutex for each process stands in for its slot's flock: held while the process lives.
struct Slots(Vec<Mutex<bool>>);

impl Slots {
    fn all_alive(count: usize) -> Self {
        Self((0..count).map(|_| Mutex::new(true)).collect())
    }
    fn dies(&self, who: Identity) {
        *self.0[usize::from(who.slot())].lock().unwrap() = false;
    }
}

impl<'a> Holders for &'a Slots {
    type Proof = std::sync::MutexGuard<'a, bool>;
    fn fate(&self, holder: Identity) -> io::Result<Fate<Self::Proof>> {
        let alive = self.0[usize::from(holder.slot())].lock().unwrap();
        Ok(if *alive { Fate::Alive } else { Fate::Dead(alive) })
    }
}

/// Nothing can be found out about any process.
struct Unknown;

impl Holders for Unknown {
    type Proof = ();
    fn fate(&self, _: Identity) -> io::Result<Fate<()>> {
        Err(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error()))
    }
}

/// To ask is itself a bug.
struct Panics;

impl Holders for Panics {
    type Proof = ();
    fn fate(&self, _: Identity) -> io::Result<Fate<()>> {
        panic!("the clock of this test has reached the owner's fate")
    }
}

fn process(slot: usize) -> Identity {
    Identity::new(slot as u16, 1 + slot as u32).unwrap()
}

fn is_free(word: &StdWord) -> bool {
    decode(word.load(Ordering::SeqCst)).unwrap().is_none()
}

/// The data that a lock protects: a number that is not atomic.
struct Protected(std::cell::UnsafeCell<[u64; 2]>);

// SAFETY: only touched under the lock under test; this is what the test checks.
unsafe impl Sync for Protected {}

impl Protected {
    const fn new() -> Self {
        Self(std::cell::UnsafeCell::new([0, 0]))
    }
    /// Count one step in two halves, which only a sole owner sees equal.
    fn step(&self) -> u64 {
        // SAFETY: the caller has the lock.
        let both = unsafe { &mut *self.0.get() };
        assert_eq!(both[0], both[1], "two owners");
        both[0] += 1;
        std::hint::black_box(&mut *both);
        both[1] += 1;
        both[1]
    }
}

// ---- exclusion and fairness --------------------------------------------------------------------

#[test]
fn eight_hammering_threads_never_overlap_and_each_gets_its_share() {
    const THREADS: usize = 8;
    const EACH: u64 = 2_000;
    let word = StdWord::new(0);
    let protected = Protected::new();
    let slots = Slots::all_alive(THREADS);
    let unfinished = AtomicU32::new(THREADS as u32);
    let counts: Vec<u64> = thread::scope(|scope| {
        let work = |slot| {
            let (word, slots, protected, unfinished) = (&word, &slots, &protected, &unfinished);
            move || {
                let mut had = 0;
                // All threads continue until the last one has its share: slow threads must get the
                // lock from fast ones.
                while unfinished.load(Ordering::Relaxed) > 0 {
                    let got = lock::lock(word, process(slot), &slots, None, stopwatch()).unwrap();
                    assert_eq!(got, Acquired::Clean);
                    protected.step();
                    assert!(lock::unlock(word, process(slot)));
                    had += 1;
                    if had == EACH {
                        unfinished.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                had
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|slot| scope.spawn(work(slot))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(is_free(&word));
    let total: u64 = counts.iter().sum();
    assert_eq!(protected.step(), total + 1);
    assert!(counts.iter().all(|had| *had >= EACH), "{counts:?}");
}

/// The owner unlocks for some nanoseconds in every fraction of a millisecond.
///
/// Only heirs can get the lock then: a thread that must hit that moment by itself waits without
/// end.
#[test]
fn waiters_get_the_lock_from_one_that_lets_go_only_for_an_instant() {
    const WAITERS: usize = 3;
    const ROUNDS_MAX: u32 = 1_000;
    let word = StdWord { drowsy: true, ..StdWord::new(0) };
    let slots = Slots::all_alive(WAITERS + 1);
    let served = AtomicU32::new(0);
    let owner = process(WAITERS);
    assert!(lock::try_lock(&word, owner));
    let rounds = thread::scope(|scope| {
        for slot in 0..WAITERS {
            let (word, slots, served) = (&word, &slots, &served);
            scope.spawn(move || {
                let got = lock::lock(word, process(slot), &slots, None, stopwatch()).unwrap();
                assert_eq!(got, Acquired::Clean);
                served.fetch_add(1, Ordering::SeqCst);
                assert!(lock::unlock(word, process(slot)));
            });
        }
        let mut rounds = 0;
        while served.load(Ordering::SeqCst) < WAITERS as u32 && rounds < ROUNDS_MAX {
            // sleep: the owner works longer than an heir waits
            thread::sleep(Duration::from_micros(300));
            assert!(lock::unlock(&word, owner));
            let got = lock::lock(&word, owner, &&slots, None, stopwatch()).unwrap();
            assert_eq!(got, Acquired::Clean);
            rounds += 1;
        }
        assert!(lock::unlock(&word, owner));
        rounds
    });
    assert!(rounds < ROUNDS_MAX, "the waiters were overtaken {rounds} times");
}

// ---- death -------------------------------------------------------------------------------------

#[test]
fn every_owner_that_dies_is_replaced_by_exactly_one_that_learns_of_it() {
    const THREADS: usize = 4;
    const DEATHS: usize = 40;
    let word = StdWord::new(0);
    let slots = Slots::all_alive(THREADS + DEATHS);
    let told = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for slot in 0..THREADS {
            let (word, slots, told, stop) = (&word, &slots, &told, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let got = lock::lock(word, process(slot), &slots, None, stopwatch()).unwrap();
                    if let Acquired::TakenOver(dead) = got {
                        told.lock().unwrap().push(dead);
                    }
                    assert!(lock::unlock(word, process(slot)));
                }
            });
        }
        for mortal in THREADS..THREADS + DEATHS {
            let me = process(mortal);
            let got = lock::lock(&word, me, &&slots, None, stopwatch()).unwrap();
            if let Acquired::TakenOver(dead) = got {
                told.lock().unwrap().push(dead);
            }
            slots.dies(me);
        }
        // The threads take over from the last one too.
        while told.lock().unwrap().len() < DEATHS {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut told = told.into_inner().unwrap();
    told.sort_by_key(|dead| dead.slot());
    assert_eq!(told, (THREADS..THREADS + DEATHS).map(process).collect::<Vec<_>>());
    assert!(is_free(&word));
}

#[test]
fn a_dead_heir_costs_a_wait_but_not_the_lock() {
    let word = StdWord::new(0);
    let slots = Slots::all_alive(3);
    let (owner, heir, waiter) = (process(0), process(1), process(2));
    word.store(word_of(owner, Some(heir), true), Ordering::SeqCst);
    slots.dies(heir);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let got = lock::lock(&word, waiter, &&slots, None, stopwatch()).unwrap();
            assert!(lock::unlock(&word, waiter));
            got
        });
        // sleep: long enough for the waiter to ask about the living owner
        thread::sleep(3 * lock::ASK_EVERY);
        assert_eq!(decode(word.load(Ordering::SeqCst)).unwrap().unwrap().owner, owner);
        assert!(lock::unlock(&word, owner));
        assert_eq!(waiting.join().unwrap(), Acquired::TakenOver(heir));
    });
    assert!(is_free(&word));
}

#[test]
fn an_heir_that_takes_over_from_the_dead_does_not_inherit_from_itself() {
    let slots = Slots::all_alive(2);
    let (dead, me) = (process(0), process(1));
    slots.dies(dead);
    let word = StdWord::new(word_of(dead, Some(me), true));
    let got = lock::lock(&word, me, &&slots, None, stopwatch()).unwrap();
    assert_eq!(got, Acquired::TakenOver(dead));
    assert_eq!(decode(word.load(Ordering::SeqCst)).unwrap().unwrap().heir, None);
    assert!(lock::unlock(&word, me));
    assert!(is_free(&word));
}

#[test]
fn a_lock_left_behind_by_a_thread_of_this_process_is_reported_as_taken_over() {
    let me = process(5);
    let word = StdWord::new(word_of(me, None, false));
    let got = lock::lock(&word, me, &Panics, None, stopwatch()).unwrap();
    assert_eq!(got, Acquired::TakenOver(me));
    assert!(lock::unlock(&word, me));
}

// ---- giving up ---------------------------------------------------------------------------------

#[test]
fn a_lock_not_had_in_time_names_its_holder_and_leaves_no_heir() {
    let word = StdWord::new(0);
    let slots = Slots::all_alive(2);
    assert!(lock::try_lock(&word, process(0)));
    for timeout in [0, 1, 30].map(Duration::from_millis) {
        let start = Instant::now();
        let got = lock::lock(&word, process(1), &&slots, Some(timeout), stopwatch());
        assert!(
            matches!(got, Err(LockError::Timeout { holder }) if holder == process(0)),
            "{got:?}"
        );
        assert!(start.elapsed() >= timeout);
        let held = decode(word.load(Ordering::SeqCst)).unwrap().unwrap();
        assert_eq!((held.owner, held.heir), (process(0), None));
        assert!(got.unwrap_err().to_string().contains("slot 0 (generation 1)"));
    }
    assert!(lock::unlock(&word, process(0)));
    assert!(is_free(&word));
}

#[test]
fn a_timeout_too_short_to_sleep_still_takes_over_from_the_dead() {
    let word = StdWord::new(word_of(process(0), None, false));
    let slots = Slots::all_alive(2);
    slots.dies(process(0));
    let got = lock::lock(&word, process(1), &&slots, Some(Duration::ZERO), stopwatch()).unwrap();
    assert_eq!(got, Acquired::TakenOver(process(0)));
}

#[test]
fn waiters_that_give_up_all_the_time_leave_the_lock_to_the_others() {
    const THREADS: usize = 6;
    const EACH: usize = 300;
    let word = StdWord::new(0);
    let protected = Protected::new();
    let slots = Slots::all_alive(THREADS);
    let had = AtomicU64::new(0);
    thread::scope(|scope| {
        for slot in 0..THREADS {
            let (word, slots, protected, had) = (&word, &slots, &protected, &had);
            scope.spawn(move || {
                // Half of them give up about when they become heirs.
                let timeout =
                    (slot % 2 == 0).then_some(lock::HEIR_AFTER + Duration::from_micros(50));
                for round in 0..EACH {
                    match lock::lock(word, process(slot), &slots, timeout, stopwatch()) {
                        Ok(got) => assert_eq!(got, Acquired::Clean),
                        Err(LockError::Timeout { .. }) => continue,
                        Err(other) => panic!("{other}"),
                    }
                    protected.step();
                    had.fetch_add(1, Ordering::Relaxed);
                    if round % 16 == 0 {
                        // sleep: at times an owner keeps the lock long enough for heirs
                        thread::sleep(Duration::from_micros(600));
                    }
                    assert!(lock::unlock(word, process(slot)));
                }
            });
        }
    });
    assert!(is_free(&word));
    let had = had.into_inner();
    assert!(had >= (THREADS / 2 * EACH) as u64);
    assert_eq!(protected.step(), had + 1);
}

#[test]
fn when_nothing_can_be_found_out_about_the_owner_the_reason_is_told() {
    let word = StdWord::new(word_of(process(0), None, false));
    let got = lock::lock(&word, process(1), &Unknown, None, stopwatch());
    let Err(LockError::Io(source)) = got else { panic!("{got:?}") };
    assert_eq!(source.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    assert_eq!(decode(word.load(Ordering::SeqCst)).unwrap().unwrap().heir, None);
}

#[test]
fn a_panic_while_asking_leaves_no_heir_behind() {
    let word = StdWord::new(word_of(process(0), None, false));
    let asked = std::panic::catch_unwind(|| {
        lock::lock(&word, process(1), &Panics, None, stopwatch()).map(|_| ())
    });
    assert!(asked.is_err());
    assert_eq!(decode(word.load(Ordering::SeqCst)).unwrap().unwrap().heir, None);
}

#[test]
fn an_overwritten_word_is_an_error_and_not_a_wait() {
    for bits in [1, 2, u64::MAX, 0x0000_0000_dead_beef] {
        let word = StdWord::new(bits);
        let got = lock::lock(&word, process(1), &Panics, None, stopwatch());
        assert!(matches!(got, Err(LockError::Damaged { word }) if word == bits), "{got:?}");
        assert_eq!(word.load(Ordering::SeqCst), bits);
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "unlocks what it does not own"))]
fn unlocking_what_somebody_else_owns_changes_nothing() {
    let word = StdWord::new(word_of(process(0), None, false));
    assert!(!lock::unlock(&word, process(1)));
    assert_eq!(word.load(Ordering::SeqCst), word_of(process(0), None, false));
}

fn word_of(owner: Identity, heir: Option<Identity>, sleepers: bool) -> u64 {
    let heir = heir.map_or(0, Identity::bits);
    u64::from(owner.bits()) << 32 | u64::from(heir) << 2 | u64::from(sleepers) << 1 | 1
}

// ---- follow ------------------------------------------------------------------------------------

fn notify(counter: &StdWord, flag: &StdWord) {
    if wake::is_awaited(flag) {
        wake::notify(counter, flag, None);
    }
}

#[test]
fn followers_that_sleep_without_a_bound_see_every_publish() {
    const FOLLOWERS: usize = 3;
    const NEWS: u64 = 20_000;
    // A lost wake-up ends this test by this bound, with a failed assertion.
    const BOUND: Duration = Duration::from_secs(20);
    let (commit, counter, flag) = (StdWord::new(0), StdWord::new(0), StdWord::new(0));
    thread::scope(|scope| {
        for _ in 0..FOLLOWERS {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < NEWS {
                    let ticket = wake::observe(&counter);
                    let now = publish::observe(&commit);
                    if now > seen {
                        seen = now;
                        continue;
                    }
                    let has_news = || publish::observe(&commit) > seen;
                    let slept =
                        wake::park(&counter, &flag, wake::FOLLOWERS, ticket, BOUND, has_news);
                    assert_ne!(slept, Slept::TimedOut, "left asleep at {seen}");
                }
            });
        }
        for news in 1..=NEWS {
            publish::publish(&commit, news);
            notify(&counter, &flag);
            if news % 8 == 0 {
                thread::yield_now();
            }
        }
    });
}

#[test]
fn without_followers_an_append_makes_no_wake() {
    let (counter, flag) = (StdWord::new(41), StdWord::new(0));
    assert!(!wake::is_awaited(&flag) && !wake::is_awaited_after_unlock(&flag));
    notify(&counter, &flag);
    assert_eq!(counter.load(Ordering::SeqCst), 41);
}

#[test]
fn a_follower_that_was_killed_costs_one_wake() {
    // It set the flag, slept, and ended.
    let (counter, flag) = (StdWord::new(0), StdWord::new(1));
    for _ in 0..5 {
        notify(&counter, &flag);
    }
    assert_eq!(counter.load(Ordering::SeqCst), 1);
}

#[test]
fn a_watcher_that_was_killed_costs_one_ring_of_the_bell_and_no_wake_of_followers() {
    // It left its bit with two logs, slept, and ended.
    let (bell, counter) = (StdWord::new(0), StdWord::new(0));
    let flags = [StdWord::new(wake::WATCHERS), StdWord::new(wake::WATCHERS)];
    for _ in 0..5 {
        for flag in &flags {
            if wake::is_awaited(flag) {
                wake::notify(&counter, flag, Some(&bell));
            }
        }
    }
    assert_eq!(bell.load(Ordering::SeqCst), 2, "one for each log");
    assert_eq!(counter.load(Ordering::SeqCst), 0);
}

#[test]
fn the_bell_is_rung_for_those_who_left_word_and_for_no_others() {
    const SHORT: Duration = Duration::from_millis(200);
    let (bell, counter) = (StdWord::new(0), StdWord::new(0));
    let flag = StdWord::new(wake::WATCHERS);
    let asleep = AtomicU64::new(0);
    thread::scope(|scope| {
        let keeper = scope.spawn(|| {
            let ticket = wake::observe(&bell);
            asleep.fetch_add(1, Ordering::SeqCst);
            wake::wait_for(&bell, wake::KEEPERS, ticket, SHORT)
        });
        while asleep.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        // sleep: lets it fall asleep; a ring before that is seen as `Changed`
        thread::sleep(Duration::from_millis(20));
        wake::notify(&counter, &flag, Some(&bell));
        assert_ne!(keeper.join().unwrap(), Slept::Woken);
    });
}

#[test]
fn a_writer_that_dies_before_it_wakes_costs_the_followers_bound() {
    let (commit, counter, flag) = (StdWord::new(0), StdWord::new(0), StdWord::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while flag.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            publish::publish(&commit, 1); // and no wake
        });
        // Ends by the bound or never.
        while publish::observe(&commit) == 0 {
            let ticket = wake::observe(&counter);
            let has_news = || publish::observe(&commit) != 0;
            wake::park(
                &counter,
                &flag,
                wake::FOLLOWERS,
                ticket,
                Duration::from_millis(20),
                has_news,
            );
        }
    });
    assert_eq!(counter.load(Ordering::SeqCst), 0, "no thread may be woken");
}
