//! Every interleaving of the lock-free rooms, as far as three preemptions reach.
//!
//! The functions under test are the shipped ones, compiled over a word of loom's. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p falaj --release --test loom`. A model that cannot fail
//! proves nothing, so next to the models stand broken copies of single steps, which must fail.
#![cfg(loom)]
#![allow(
    unsafe_code,
    reason = "the models share plain memory between threads, as processes share a page"
)]

use std::io;
use std::sync::Arc; // loom's own cannot be dropped in the panic that a deadlock is
use std::sync::atomic::{AtomicUsize as Tally, Ordering::Relaxed as Counted};
use std::time::Duration;

use falaj::lock::{self, Acquired, Fate, Holders, Identity, LockError, decode};
use falaj::publish;
use falaj::sync::{AtomicU64, EVERYONE, Ordering, SharedWord, Slept, fence};
use falaj::wake;
use loom::cell::UnsafeCell;
use loom::sync::{Mutex, MutexGuard};
use loom::thread;

const PREEMPTIONS: usize = 3;
const FOREVER: Duration = Duration::from_secs(3600);

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(body);
}

// ---- the word ----------------------------------------------------------------------------------

/// A word whose sleepers are woken or sleep for ever: a lost wake-up is a deadlock, which loom
/// reports. The queue under the mutex is what the kernel's hash bucket is to a futex.
struct LoomWord {
    value: AtomicU64,
    asleep: Mutex<Vec<Sleeper>>,
}

struct Sleeper {
    mask: u32,
    thread: thread::Thread,
    ended: Arc<Mutex<Option<Slept>>>,
}

impl LoomWord {
    fn new(value: u64) -> Self {
        Self { value: AtomicU64::new(value), asleep: Mutex::new(Vec::new()) }
    }

    fn end(&self, count: u32, mask: u32, how: Slept) {
        let mut asleep = self.asleep.lock().unwrap();
        for _ in 0..count {
            let Some(first) = asleep.iter().position(|other| other.mask & mask != 0) else { break };
            let sleeper = asleep.remove(first);
            *sleeper.ended.lock().unwrap() = Some(how);
            sleeper.thread.unpark();
        }
    }

    /// The bound of all who sleep under this mask is reached.
    fn expire(&self, mask: u32) {
        self.end(u32::MAX, mask, Slept::TimedOut);
    }
}

impl SharedWord for LoomWord {
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

    fn sleep(&self, low: u32, mask: u32, _bound: Duration) -> Slept {
        let ended = Arc::new(Mutex::new(None));
        {
            let mut asleep = self.asleep.lock().unwrap();
            if self.value.load(Ordering::Relaxed) as u32 != low {
                return Slept::Changed;
            }
            asleep.push(Sleeper { mask, thread: thread::current(), ended: Arc::clone(&ended) });
        }
        loop {
            let how = *ended.lock().unwrap();
            match how {
                Some(how) => return how,
                None => thread::park(),
            }
        }
    }

    fn wake(&self, count: u32, mask: u32) {
        self.end(count, mask, Slept::Woken);
    }
}

/// The same word, slept on with a bound that is always reached at once.
struct Impatient<'a>(&'a LoomWord);

impl SharedWord for Impatient<'_> {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        yes: Ordering,
        no: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, yes, no)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn sleep(&self, _low: u32, _mask: u32, _bound: Duration) -> Slept {
        thread::yield_now();
        Slept::TimedOut
    }
    fn wake(&self, count: u32, mask: u32) {
        self.0.wake(count, mask);
    }
}

/// Bytes that one thread writes while no other looks; loom reports it if one does.
struct Bytes(UnsafeCell<u64>);

// SAFETY: every access goes through loom's cell, which fails the model when two of them race.
unsafe impl Sync for Bytes {}
// SAFETY: as above; the cell holds a plain number.
unsafe impl Send for Bytes {}

impl Bytes {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }
    fn write(&self, value: u64) {
        // SAFETY: loom checks that nobody reads or writes meanwhile.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }
    fn read(&self) -> u64 {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.0.with(|cell| unsafe { *cell })
    }
    fn add_one(&self) {
        // SAFETY: loom checks that nobody reads or writes meanwhile.
        self.0.with_mut(|cell| unsafe { *cell += 1 });
    }
}

// ---- publish and observe -----------------------------------------------------------------------

fn read_what_is_published(publish: fn(&LoomWord, u64)) {
    model(move || {
        let shared = Arc::new((LoomWord::new(0), Bytes::new()));
        let writer = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            writer.1.write(7);
            publish(&writer.0, 1);
        });
        if publish::observe(&shared.0) != 0 {
            assert_eq!(shared.1.read(), 7);
        }
        writer.join().unwrap();
    });
}

#[test]
fn who_sees_the_commit_word_sees_the_bytes() {
    read_what_is_published(|word, value| publish::publish(word, value));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_relaxed_commit_word_shows_bytes_that_are_not_there() {
    read_what_is_published(|word, value| word.store(value, Ordering::Relaxed));
}

fn read_a_group(first_word_last: bool) {
    model(move || {
        let words = [LoomWord::new(0), LoomWord::new(0)];
        let group = Arc::new((words, [Bytes::new(), Bytes::new()]));
        let writer = Arc::clone(&group);
        let writer = thread::spawn(move || {
            let (words, bytes) = &*writer;
            bytes[0].write(1);
            bytes[1].write(2);
            let order = if first_word_last { [1, 0] } else { [0, 1] };
            for block in order {
                publish::publish(&words[block], 9);
            }
        });
        let (words, bytes) = &*group;
        if publish::observe(&words[0]) != 0 {
            assert_eq!(publish::observe(&words[1]), 9, "half a group");
            assert_eq!((bytes[0].read(), bytes[1].read()), (1, 2));
        }
        writer.join().unwrap();
    });
}

#[test]
fn who_sees_the_first_word_of_a_group_sees_the_whole_group() {
    read_a_group(true);
}

#[test]
#[should_panic(expected = "half a group")]
fn broken_group_published_in_order_is_seen_in_half() {
    read_a_group(false);
}

// ---- follow ------------------------------------------------------------------------------------

/// A log of one block, or of one per writer.
struct Log {
    commits: [LoomWord; 2],
    bytes: [Bytes; 2],
    counter: LoomWord,
    flag: LoomWord,
    lock: LoomWord,
}

impl Log {
    fn new() -> Self {
        Self {
            commits: [LoomWord::new(0), LoomWord::new(0)],
            bytes: [Bytes::new(), Bytes::new()],
            counter: LoomWord::new(0),
            flag: LoomWord::new(0),
            lock: LoomWord::new(0),
        }
    }

    fn append(&self, block: usize) {
        self.bytes[block].write(5);
        publish::publish(&self.commits[block], 1);
    }

    fn has(&self, block: usize) -> bool {
        publish::observe(&self.commits[block]) != 0
    }

    fn notify(&self) {
        wake::notify(&self.counter, &self.flag);
    }
}

/// One turn of a follower: true if the block is there, else it slept.
type Turn = fn(&Log, usize) -> bool;

fn turn(log: &Log, block: usize) -> bool {
    let ticket = wake::observe(&log.counter);
    if log.has(block) {
        return true;
    }
    wake::park(&log.counter, &log.flag, ticket, FOREVER, || log.has(block));
    false
}

fn turn_without_second_look(log: &Log, block: usize) -> bool {
    let ticket = log.counter.load(Ordering::Acquire) as u32;
    if log.has(block) {
        return true;
    }
    log.flag.store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    log.counter.sleep(ticket, EVERYONE, FOREVER);
    false
}

fn turn_without_fence(log: &Log, block: usize) -> bool {
    let ticket = log.counter.load(Ordering::Acquire) as u32;
    if log.has(block) {
        return true;
    }
    log.flag.store(1, Ordering::Release);
    if !log.has(block) {
        log.counter.sleep(ticket, EVERYONE, FOREVER);
    }
    false
}

fn turn_with_late_ticket(log: &Log, block: usize) -> bool {
    if log.has(block) {
        return true;
    }
    log.flag.store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    if !log.has(block) {
        let ticket = log.counter.load(Ordering::Acquire) as u32;
        log.counter.sleep(ticket, EVERYONE, FOREVER);
    }
    false
}

fn notify_without_fence(log: &Log) {
    if log.flag.load(Ordering::Relaxed) != 0 && log.flag.swap(0, Ordering::Acquire) != 0 {
        wake::rouse(&log.counter);
    }
}

/// Followers wait for all blocks; each writer appends one. Sleeps have no bound.
fn follow(turn: Turn, notify: fn(&Log), writers: usize, followers: usize) {
    model(move || {
        let log = Arc::new(Log::new());
        let follower = move |log: &Log| {
            for block in 0..writers {
                while !turn(log, block) {}
                assert_eq!(log.bytes[block].read(), 5);
            }
        };
        let spawned: Vec<_> = (1..followers)
            .map(|_| Arc::clone(&log))
            .map(|log| thread::spawn(move || follower(&log)))
            .collect();
        let writers: Vec<_> = (0..writers)
            .map(|block| (block, Arc::clone(&log)))
            .map(|(block, log)| {
                thread::spawn(move || {
                    log.append(block);
                    notify(&log);
                })
            })
            .collect();
        follower(&log);
        for thread in spawned.into_iter().chain(writers) {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_follower_is_never_left_asleep() {
    follow(turn, Log::notify, 1, 1);
}

#[test]
fn two_followers_are_both_woken_by_one_writer() {
    follow(turn, Log::notify, 1, 2);
}

#[test]
fn a_follower_of_two_writers_misses_neither() {
    follow(turn, Log::notify, 2, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_follower_that_does_not_look_again_sleeps_for_ever() {
    follow(turn_without_second_look, Log::notify, 1, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_follower_without_its_fence_sleeps_for_ever() {
    follow(turn_without_fence, Log::notify, 1, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_follower_that_takes_its_ticket_last_sleeps_for_ever() {
    follow(turn_with_late_ticket, Log::notify, 1, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_writer_without_its_fence_leaves_a_follower_asleep() {
    follow(turn, notify_without_fence, 1, 1);
}

#[test]
fn closing_wakes_a_follower_that_has_no_news() {
    model(|| {
        let log = Arc::new(Log::new());
        let closer = Arc::clone(&log);
        let closer = thread::spawn(move || {
            publish::publish(&closer.commits[1], 1); // stands for "closed"
            wake::rouse(&closer.counter);
        });
        loop {
            let ticket = wake::observe(&log.counter);
            if log.has(1) {
                break;
            }
            wake::park(&log.counter, &log.flag, ticket, FOREVER, || false);
        }
        closer.join().unwrap();
    });
}

// ---- the lock ----------------------------------------------------------------------------------

/// One mutex a process, held for life and let go of by death: what the kernel's flock is.
struct Slots([Mutex<()>; 4]);

impl Slots {
    fn new() -> Self {
        Self([Mutex::new(()), Mutex::new(()), Mutex::new(()), Mutex::new(())])
    }
    /// Live until the guard is dropped.
    fn live(&self, who: Identity) -> MutexGuard<'_, ()> {
        // A waiter that asks about a process that is not born yet finds nobody, as in a real store.
        self.0[usize::from(who.slot())].lock().unwrap()
    }
}

impl<'a> Holders for &'a Slots {
    type Proof = MutexGuard<'a, ()>;
    fn fate(&self, holder: Identity) -> io::Result<Fate<Self::Proof>> {
        Ok(match self.0[usize::from(holder.slot())].try_lock() {
            Ok(proof) => Fate::Dead(proof),
            Err(_) => Fate::Alive,
        })
    }
}

/// Nobody may be asked: in these models nobody waits long enough.
struct Nobody;

impl Holders for Nobody {
    type Proof = ();
    fn fate(&self, holder: Identity) -> io::Result<Fate<()>> {
        panic!("asked for {holder}")
    }
}

fn process(slot: u16) -> Identity {
    Identity::new(slot, 1).unwrap()
}

fn word_of(owner: Identity, heir: Option<Identity>, sleepers: bool) -> u64 {
    let heir = heir.map_or(0, Identity::bits);
    u64::from(owner.bits()) << 32 | u64::from(heir) << 2 | u64::from(sleepers) << 1 | 1
}

/// A clock that always shows the same.
fn always(millis: u64) -> impl FnMut() -> Duration {
    move || Duration::from_millis(millis)
}

/// A clock that goes on each time it is read.
fn ticking(millis: u64) -> impl FnMut() -> Duration {
    let mut now = Duration::ZERO;
    move || {
        now += Duration::from_millis(millis);
        now
    }
}

struct Shared {
    lock: LoomWord,
    count: Bytes,
    slots: Slots,
}

impl Shared {
    fn new(word: u64) -> Arc<Self> {
        Arc::new(Self { lock: LoomWord::new(word), count: Bytes::new(), slots: Slots::new() })
    }

    /// Wait without bounds: a lost wake-up is a deadlock.
    fn lock(&self, me: Identity, waited_ms: u64) {
        let got = lock::lock(&self.lock, me, &Nobody, None, always(waited_ms)).unwrap();
        assert_eq!(got, Acquired::Clean);
    }

    /// Wait in sleeps that always end by their bound, asking each time whether the owner lives.
    fn lock_asking(&self, me: Identity) -> Acquired {
        lock::lock(&Impatient(&self.lock), me, &&self.slots, None, ticking(10)).unwrap()
    }

    fn unlock(&self, me: Identity) {
        assert!(lock::unlock(&self.lock, me));
    }

    fn is_free(&self) -> bool {
        decode(self.lock.load(Ordering::Relaxed)).unwrap().is_none()
    }
}

type Unlock = fn(&Shared, Identity);

/// Every process counts once under the lock; sleeps have no bound.
fn count_under_the_lock(processes: u16, waited_ms: u64, unlock: Unlock) {
    model(move || {
        let shared = Shared::new(0);
        let work = move |shared: &Shared, me| {
            shared.lock(me, waited_ms);
            shared.count.add_one();
            unlock(shared, me);
        };
        let others: Vec<_> = (1..processes)
            .map(|slot| (process(slot), Arc::clone(&shared)))
            .map(|(me, shared)| thread::spawn(move || work(&shared, me)))
            .collect();
        work(&shared, process(0));
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(shared.count.read(), u64::from(processes));
        assert!(shared.is_free());
    });
}

#[test]
fn two_processes_exclude_each_other_and_none_is_left_asleep() {
    count_under_the_lock(2, 0, Shared::unlock);
}

#[test]
fn three_processes_exclude_each_other_and_none_is_left_asleep() {
    count_under_the_lock(3, 0, Shared::unlock);
}

#[test]
fn three_processes_that_become_heirs_exclude_each_other() {
    count_under_the_lock(3, 1, Shared::unlock);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_relaxed_unlock_hides_what_was_done_under_the_lock() {
    count_under_the_lock(2, 0, |shared, me| {
        let alone = word_of(me, None, false);
        let freed = shared.lock.compare_exchange(alone, 0, Ordering::Relaxed, Ordering::Relaxed);
        if freed.is_err() {
            shared.unlock(me);
        }
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_unlock_that_ignores_sleepers_leaves_one_asleep() {
    count_under_the_lock(2, 0, |shared, _| shared.lock.store(0, Ordering::Release));
}

/// The owner lets go when it sees an heir; nobody can come between.
#[test]
fn unlock_hands_over_to_the_heir() {
    static HANDED_OVER: Tally = Tally::new(0);
    model(|| {
        let (me, heir) = (process(0), process(1));
        let shared = Shared::new(word_of(me, None, false));
        let waiter = Arc::clone(&shared);
        let waiter = thread::spawn(move || {
            waiter.lock(heir, 1);
            waiter.count.add_one();
            waiter.unlock(heir);
        });
        shared.count.add_one();
        let named = decode(shared.lock.load(Ordering::Relaxed)).unwrap().unwrap().heir;
        shared.unlock(me);
        if named.is_some() {
            HANDED_OVER.fetch_add(1, Counted);
        }
        if lock::try_lock(&shared.lock, me) {
            if named.is_some() {
                assert_eq!(shared.count.read(), 2, "overtook the heir");
            }
            shared.unlock(me);
        }
        waiter.join().unwrap();
        assert_eq!(shared.count.read(), 2);
        assert!(shared.is_free());
    });
    assert!(HANDED_OVER.load(Counted) > 0, "no interleaving had an heir");
}

type TakeOver = fn(&Shared, Identity) -> Acquired;

/// One process died holding the lock; two wait. What the dead one did is there, and exactly one of
/// the two is told.
fn take_over_from_the_dead(word: fn() -> u64, dead: Identity, take: TakeOver) {
    model(move || {
        let shared = Shared::new(word());
        let work = move |shared: &Shared, me| {
            let _life = shared.slots.live(me);
            let got = take(shared, me);
            shared.count.add_one();
            shared.unlock(me);
            got
        };
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || work(&other, process(1)));
        let mine = work(&shared, process(2));
        let mut got = [mine, other.join().unwrap()];
        got.sort_by_key(|got| *got != Acquired::Clean);
        assert_eq!(got, [Acquired::Clean, Acquired::TakenOver(dead)]);
        assert_eq!(shared.count.read(), 2);
        assert!(shared.is_free());
    });
}

#[test]
fn exactly_one_of_two_waiters_takes_over_from_a_dead_owner() {
    take_over_from_the_dead(|| word_of(process(0), None, false), process(0), Shared::lock_asking);
}

#[test]
fn a_dead_owner_whose_heir_is_dead_too_is_taken_over_from() {
    // The first to take over hands over to the dead heir; so the second takes over as well.
    model(|| {
        let (dead, dead_heir) = (process(0), process(3));
        let shared = Shared::new(word_of(dead, Some(dead_heir), true));
        let work = |shared: &Shared, me| {
            let _life = shared.slots.live(me);
            let got = shared.lock_asking(me);
            shared.count.add_one();
            shared.unlock(me);
            got
        };
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || work(&other, process(1)));
        let mine = work(&shared, process(2));
        let mut got = [mine, other.join().unwrap()];
        got.sort_by_key(|got| *got != Acquired::TakenOver(dead));
        assert_eq!(got, [Acquired::TakenOver(dead), Acquired::TakenOver(dead_heir)]);
        assert_eq!(shared.count.read(), 2);
    });
}

#[test]
#[should_panic]
fn broken_take_over_by_store_makes_two_owners() {
    take_over_from_the_dead(
        || word_of(process(0), None, false),
        process(0),
        |shared, me| {
            // Proof first, but no second look at the word and no exchange.
            let seen = decode(shared.lock.load(Ordering::Acquire)).unwrap();
            let Some(seen) = seen else { return shared.lock_asking(me) };
            match (&shared.slots).fate(seen.owner).unwrap() {
                Fate::Alive => shared.lock_asking(me),
                Fate::Dead(_proof) => {
                    shared.lock.store(word_of(me, None, false), Ordering::Release);
                    Acquired::TakenOver(seen.owner)
                }
            }
        },
    );
}

/// The owner may also unlock before it dies: then it is not taken over from.
fn owner_that_ends(dies_holding: bool) {
    model(move || {
        let shared = Shared::new(0);
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            let me = process(0);
            let _life = owner.slots.live(me);
            if !lock::try_lock(&owner.lock, me) {
                return false;
            }
            owner.count.add_one();
            if !dies_holding {
                owner.unlock(me);
            }
            true
        });
        let me = process(1);
        let _life = shared.slots.live(me);
        let got = shared.lock_asking(me);
        shared.count.add_one();
        let count = shared.count.read();
        shared.unlock(me);
        let had_it = owner.join().unwrap();
        if dies_holding && had_it && count == 2 {
            assert_eq!(got, Acquired::TakenOver(process(0)));
        } else {
            assert_eq!(got, Acquired::Clean);
        }
    });
}

#[test]
fn an_owner_that_dies_is_taken_over_from_and_its_stores_are_seen() {
    owner_that_ends(true);
}

#[test]
fn an_owner_that_unlocks_and_dies_is_not_taken_over_from() {
    owner_that_ends(false);
}

#[test]
fn a_dead_heir_is_taken_over_from_as_a_dead_owner_is() {
    model(|| {
        let (me, waiter, dead_heir) = (process(0), process(1), process(3));
        let shared = Shared::new(word_of(me, Some(dead_heir), true));
        let _life = shared.slots.live(me);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let _life = other.slots.live(waiter);
            let got = other.lock_asking(waiter);
            other.count.add_one();
            other.unlock(waiter);
            got
        });
        shared.count.add_one();
        shared.unlock(me);
        assert_eq!(other.join().unwrap(), Acquired::TakenOver(dead_heir));
        assert_eq!(shared.count.read(), 2);
        assert!(shared.is_free());
    });
}

/// An heir that gives up either withdraws or finds that it was handed the lock; either way nobody
/// is left holding it.
#[test]
fn an_heir_that_gives_up_leaves_no_lock_behind() {
    static GAVE_UP: Tally = Tally::new(0);
    static WAS_HANDED_IT: Tally = Tally::new(0);
    model(|| {
        let (me, waiter) = (process(0), process(1));
        let shared = Shared::new(word_of(me, None, false));
        let _life = shared.slots.live(me);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let _life = other.slots.live(waiter);
            let timeout = Some(Duration::from_millis(2));
            let word = Impatient(&other.lock);
            match lock::lock(&word, waiter, &&other.slots, timeout, ticking(1)) {
                Ok(got) => {
                    assert_eq!(got, Acquired::Clean);
                    other.count.add_one();
                    other.unlock(waiter);
                    WAS_HANDED_IT.fetch_add(1, Counted);
                    1
                }
                Err(LockError::Timeout { holder }) => {
                    assert_eq!(holder, me);
                    GAVE_UP.fetch_add(1, Counted);
                    0
                }
                Err(other) => panic!("{other}"),
            }
        });
        shared.count.add_one();
        shared.unlock(me);
        let more = other.join().unwrap();
        assert!(shared.is_free(), "left behind: {:?}", decode(shared.lock.load(Ordering::Relaxed)));
        assert_eq!(shared.count.read(), 1 + more);
    });
    assert!(GAVE_UP.load(Counted) > 0 && WAS_HANDED_IT.load(Counted) > 0);
}

/// `unlock` wakes one sleeper. If that one gives up, the other must not be forgotten.
#[test]
fn a_sleeper_that_gives_up_passes_its_wake_on() {
    model(|| {
        let (me, hasty, patient) = (process(0), process(1), process(2));
        let shared = Shared::new(word_of(me, None, false));
        let _life = shared.slots.live(me);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let _life = other.slots.live(hasty);
            // Below the time of heirs, so that unlock frees the lock and wakes one.
            let timeout = Some(Duration::from_micros(300));
            let mut times = [Duration::from_micros(100), Duration::from_micros(400)].into_iter();
            let clock = || times.next().unwrap_or(Duration::from_micros(450));
            match lock::lock(&other.lock, hasty, &&other.slots, timeout, clock) {
                Ok(_) => other.unlock(hasty),
                Err(LockError::Timeout { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        });
        let third = Arc::clone(&shared);
        let third = thread::spawn(move || {
            let _life = third.slots.live(patient);
            third.lock(patient, 0);
            third.unlock(patient);
        });
        shared.unlock(me);
        if lock::try_lock(&shared.lock, me) {
            shared.unlock(me);
        }
        shared.lock.expire(1 << 1);
        third.join().unwrap();
        other.join().unwrap();
        assert!(shared.is_free());
    });
}

// ---- all of it ---------------------------------------------------------------------------------

#[test]
fn an_append_is_seen_by_a_sleeping_follower() {
    model(|| {
        let log = Arc::new(Log::new());
        let writers = [0, 1].map(|block| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let me = process(block as u16);
                lock::lock(&log.lock, me, &Nobody, None, always(0)).map(|_| ()).unwrap();
                log.append(block);
                assert!(lock::unlock(&log.lock, me));
                wake::notify_after_unlock(&log.counter, &log.flag);
            })
        });
        while !turn(&log, 1) {}
        assert_eq!(log.bytes[1].read(), 5);
        for writer in writers {
            writer.join().unwrap();
        }
    });
}
