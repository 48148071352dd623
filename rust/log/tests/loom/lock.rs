//! The lock of two words: exclusion, handing over, taking over from the dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Tally, Ordering::Relaxed as Counted};
use std::time::Duration;

use falaj::internals::lock::{self, Acquired, Fate, Holders, Identity, LockError, decode};
use falaj::internals::sync::{Ordering, SharedWord};

use crate::processes::{Nobody, Slots, always, process, ticking, word_of};
use crate::word::{Impatient, ModelWord};
use crate::world::{Bytes, thread};
use crate::{every, model};

struct Shared {
    lock: ModelWord,
    count: Bytes,
    slots: Slots,
}

impl Shared {
    fn new(word: u64) -> Arc<Self> {
        Arc::new(Self { lock: ModelWord::new(word), count: Bytes::new(), slots: Slots::new() })
    }

    /// Wait without a time limit: a lost wake-up is a deadlock.
    fn lock(&self, me: Identity, waited_ms: u64) {
        let got = lock::lock(&self.lock, me, &Nobody, None, always(waited_ms)).unwrap();
        assert_eq!(got, Acquired::Clean);
    }

    /// Wait in sleeps that always time out, and ask each time whether the owner lives.
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

/// Every process counts once under the lock; sleeps have no time limit.
fn count_under_the_lock(processes: u16, waited_ms: u64, unlock: Unlock) {
    let run = move || {
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
    };
    match processes {
        2 => every(run),
        _ => model(run),
    }
}

#[test]
fn two_processes_exclude_each_other_and_none_is_left_asleep() {
    count_under_the_lock(2, 0, Shared::unlock);
}

#[test]
fn two_processes_that_become_heirs_exclude_each_other() {
    count_under_the_lock(2, 1, Shared::unlock);
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

/// The owner unlocks when it sees an heir; no other process can come between.
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

/// One process died holding the lock; two wait.
///
/// The dead one's stores are visible, and exactly one of the two learns of the death.
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
    // The first to take over hands over to the dead heir, so the second takes over as well.
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
            // Check the owner first, but neither look at the word again nor exchange it.
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

/// The owner may also unlock before it dies; then the lock is not taken over.
fn owner_that_ends(dies_holding: bool) {
    every(move || {
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
    every(|| {
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

/// An heir that gives up either withdraws, or finds that it was given the lock.
///
/// Either way no process is left holding it.
#[test]
fn an_heir_that_gives_up_leaves_no_lock_behind() {
    static GAVE_UP: Tally = Tally::new(0);
    static WAS_HANDED_IT: Tally = Tally::new(0);
    every(|| {
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

/// `unlock` wakes one sleeper. If that one gives up, the other must still be woken.
#[test]
fn a_sleeper_that_gives_up_passes_its_wake_on() {
    model(|| {
        let (me, hasty, patient) = (process(0), process(1), process(2));
        let shared = Shared::new(word_of(me, None, false));
        let _life = shared.slots.live(me);
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let _life = other.slots.live(hasty);
            // Shorter than the time to become heir, so `unlock` frees the lock and wakes one.
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
