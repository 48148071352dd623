//! The lock word, step by step: what each process finds when the word changes between two of its
//! steps.
//!
//! Real threads meet these races rarely, and `tests/loom` meets all of them. Here each has a test
//! of its own. Nothing waits: the test owns the clock and decides which processes are dead.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use falaj::internals::lock::{
    ASK_EVERY, Acquired, Fate, HEIR_AFTER, Holders, Identity, LockError, LockWord, decode, held_by,
    lock, try_lock_or_sleep, unlock, unlock_to_all,
};
use falaj::internals::sync::{EVERYONE, SharedWord, Slept};

const FREE: u64 = 0;
const ALL: u32 = i32::MAX as u32;

fn process(slot: u16) -> Identity {
    Identity::new(slot, 3).unwrap()
}

/// A word as the table in `lock.rs` shows it.
fn word_of(owner: Identity, heir: Option<Identity>, sleepers: bool) -> u64 {
    let heir = heir.map_or(0, |heir| u64::from(heir.bits()) << 2);
    u64::from(owner.bits()) << 32 | heir | u64::from(sleepers) << 1 | 1
}

/// The next step on the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Load,
    /// An exchange, and the word that it would store.
    Exchange(u64),
    Sleep,
}

/// The change that other processes make to the word before a given step of ours.
type Others<'a> = Box<dyn FnMut(Step, &Cell<u64>) + 'a>;

struct Word<'a> {
    bits: Cell<u64>,
    others: RefCell<Others<'a>>,
    steps: Cell<u32>,
    sleeps: RefCell<Vec<(u32, u32, Duration)>>,
    wakes: RefCell<Vec<(u32, u32)>>,
}

impl<'a> Word<'a> {
    fn new(bits: u64) -> Self {
        Self::among(bits, |_, _| ())
    }

    fn among(bits: u64, others: impl FnMut(Step, &Cell<u64>) + 'a) -> Self {
        let others: RefCell<Others<'a>> = RefCell::new(Box::new(others));
        let (steps, sleeps, wakes) = Default::default();
        Self { bits: Cell::new(bits), others, steps, sleeps, wakes }
    }

    /// A word that others change once, before the first step for which `when` holds.
    fn changed_once(bits: u64, when: impl Fn(Step) -> bool + 'a, to: u64) -> Self {
        let mut done = false;
        Self::among(bits, move |step, word| {
            if !done && when(step) {
                done = true;
                word.set(to);
            }
        })
    }

    fn before(&self, step: Step) {
        self.steps.set(self.steps.get() + 1);
        assert!(self.steps.get() < 10_000, "a waiter that loops without end");
        self.others.borrow_mut()(step, &self.bits);
    }

    fn held(&self) -> Option<LockWord> {
        decode(self.bits.get()).unwrap()
    }
}

impl SharedWord for Word<'_> {
    fn load(&self, _: Ordering) -> u64 {
        self.before(Step::Load);
        self.bits.get()
    }
    fn store(&self, value: u64, _: Ordering) {
        self.bits.set(value);
    }
    fn swap(&self, value: u64, _: Ordering) -> u64 {
        self.bits.replace(value)
    }
    fn compare_exchange(&self, old: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        self.before(Step::Exchange(new));
        let found = self.bits.get();
        if found != old {
            return Err(found);
        }
        Ok(self.bits.replace(new))
    }
    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.bits.replace(self.bits.get().wrapping_add(value))
    }
    fn sleep(&self, low: u32, mask: u32, bound: Duration) -> Slept {
        self.sleeps.borrow_mut().push((low, mask, bound));
        self.before(Step::Sleep);
        Slept::Woken
    }
    fn wake(&self, count: u32, mask: u32) {
        self.wakes.borrow_mut().push((count, mask));
    }
}

/// The state of a lock's holder.
struct Fates<F>(F);

impl<F: Fn(Identity) -> io::Result<Fate<()>>> Holders for Fates<F> {
    type Proof = ();
    fn fate(&self, holder: Identity) -> io::Result<Fate<()>> {
        (self.0)(holder)
    }
}

fn alive() -> Fates<impl Fn(Identity) -> io::Result<Fate<()>>> {
    Fates(|_| Ok(Fate::Alive))
}

fn dead() -> Fates<impl Fn(Identity) -> io::Result<Fate<()>>> {
    Fates(|_| Ok(Fate::Dead(())))
}

/// A clock that advances by this much each time it is read.
fn steps_of(step: Duration) -> impl FnMut() -> Duration {
    let mut now = Duration::ZERO;
    move || {
        now += step;
        now - step
    }
}

const MS: Duration = Duration::from_millis(1);

// ---- unlocking ---------------------------------------------------------------------------------

#[test]
fn unlocking_wakes_no_waiter_one_or_the_heir_as_the_word_says() {
    let me = process(1);
    let heir = process(35);
    // The word before and after, and the wake: how many, under which bits.
    type Case<'a> = (u64, u64, &'a [(u32, u32)]);
    let cases: [Case<'_>; 4] = [
        (held_by(me), FREE, &[]),
        (word_of(me, None, true), FREE, &[(1, EVERYONE)]),
        (word_of(me, Some(heir), true), word_of(heir, None, true), &[(ALL, 1 << 3)]),
        (word_of(me, Some(process(0)), true), word_of(process(0), None, true), &[(ALL, 1)]),
    ];
    for (before, after, wakes) in cases {
        let word = Word::new(before);
        assert!(unlock(&word, me));
        assert_eq!((word.bits.get(), &word.wakes.borrow()[..]), (after, wakes), "{before:#x}");
    }
}

#[test]
fn unlocking_for_all_wakes_all_after_the_word_has_changed() {
    let me = process(1);
    let word = Word::new(word_of(me, None, true));
    assert!(unlock_to_all(&word, me));
    assert_eq!(word.bits.get(), FREE);
    assert_eq!(word.wakes.borrow().last(), Some(&(ALL, EVERYONE)));
    let word = Word::new(held_by(me));
    assert!(unlock_to_all(&word, me));
    assert_eq!(*word.wakes.borrow(), [(ALL, EVERYONE)]);
}

#[test]
fn an_heir_that_puts_itself_down_while_the_lock_is_given_back_gets_it() {
    let (me, heir) = (process(1), process(2));
    // The sleeper that was seen becomes heir before the word is freed.
    let word = Word::changed_once(
        word_of(me, None, true),
        |step| step == Step::Exchange(FREE),
        word_of(me, Some(heir), true),
    );
    let seen = word.bits.get();
    assert_eq!(seen, word_of(me, None, true));
    assert!(unlock(&word, me));
    assert_eq!(word.held().unwrap().owner, heir);
    // ... or between the first look and the exchange that follows it.
    let frees = Cell::new(0);
    let word = Word::among(word_of(me, None, true), |step, word| {
        frees.set(frees.get() + u32::from(step == Step::Exchange(FREE)));
        if frees.get() == 2 {
            word.set(word_of(me, Some(heir), true));
        }
    });
    assert!(unlock(&word, me));
    assert_eq!(word.held().unwrap().owner, heir);
    assert_eq!(*word.wakes.borrow(), [(ALL, 1 << 2)]);
}

// ---- taking ------------------------------------------------------------------------------------

#[test]
fn a_lock_had_at_once_reads_no_clock_and_asks_nobody() {
    let word = Word::new(FREE);
    let nobody = Fates(|_| panic!("asked"));
    let got = lock(&word, process(1), &nobody, None, || panic!("read"));
    assert_eq!(got.unwrap(), Acquired::Clean);
    assert_eq!(word.bits.get(), held_by(process(1)));
    assert!(word.sleeps.borrow().is_empty());
}

#[test]
fn a_lock_that_gets_free_while_it_is_looked_at_is_had_without_a_sleep() {
    let (me, other) = (process(1), process(2));
    let loads = Cell::new(0);
    let word = Word::among(held_by(other), |step, word| {
        loads.set(loads.get() + u32::from(step == Step::Load));
        if loads.get() == 20 {
            word.set(FREE);
        }
    });
    let nobody = Fates(|_| panic!("asked"));
    let got = lock(&word, me, &nobody, None, || panic!("read"));
    assert_eq!(got.unwrap(), Acquired::Clean);
    assert_eq!(word.bits.get(), held_by(me));
    assert!(word.sleeps.borrow().is_empty());
}

#[test]
fn a_lock_that_others_are_faster_to_take_is_waited_for() {
    let (me, other) = (process(1), process(2));
    let (looks, lost) = (Cell::new(0), Cell::new(0));
    let word = Word::among(held_by(other), |step, word| match step {
        // Free after every sleep, and taken by another process once more before this one gets it.
        Step::Sleep => word.set(FREE),
        Step::Exchange(new) if word.get() == FREE && lost.get() < 2 => {
            assert_eq!(decode(new).unwrap().unwrap().owner, me);
            lost.set(lost.get() + 1);
            word.set(held_by(other));
        }
        _ => looks.set(looks.get() + 1),
    });
    let got = lock(&word, me, &alive(), None, steps_of(Duration::ZERO));
    assert_eq!(got.unwrap(), Acquired::Clean);
    assert_eq!(lost.get(), 2);
    assert_eq!(
        word.bits.get(),
        word_of(me, None, true),
        "a waiter that slept must keep the bit for the others"
    );
}

#[test]
fn a_waiter_sleeps_on_what_it_left_in_the_word_and_under_its_own_bit() {
    let (me, other) = (process(37), process(2));
    let word = Word::among(held_by(other), |step, word| {
        if step == Step::Sleep && decode(word.get()).unwrap().unwrap().heir.is_some() {
            word.set(word_of(me, None, true));
        }
    });
    let got = lock(&word, me, &alive(), None, steps_of(Duration::from_micros(300)));
    assert_eq!(got.unwrap(), Acquired::Clean);
    let us = Duration::from_micros;
    let waits = word_of(other, None, true) as u32;
    let inherits = word_of(other, Some(me), true) as u32;
    let sleeps =
        [(waits, 1 << 5, us(500)), (waits, 1 << 5, us(200)), (inherits, 1 << 5, us(10_000 - 600))];
    assert_eq!(*word.sleeps.borrow(), sleeps);
}

#[test]
fn an_heir_that_is_there_already_stays_and_who_waits_does_not_write_for_nothing() {
    let (me, other, first) = (process(1), process(2), process(3));
    let writes = Cell::new(0);
    let word = Word::among(word_of(other, Some(first), true), |step, _| {
        writes.set(writes.get() + u32::from(matches!(step, Step::Exchange(_))));
    });
    let got = lock(&word, me, &alive(), Some(ASK_EVERY), steps_of(HEIR_AFTER));
    assert!(matches!(got, Err(LockError::Timeout { holder }) if holder == other), "{got:?}");
    assert_eq!(word.bits.get(), word_of(other, Some(first), true));
    assert_eq!(writes.get(), 1, "only the first try may write");
}

#[test]
fn a_word_that_changes_while_a_waiter_marks_it_is_looked_at_anew() {
    let (me, other, heir) = (process(1), process(2), process(3));
    let marked = word_of(other, None, true);
    let word = Word::changed_once(
        held_by(other),
        |step| step == Step::Exchange(marked),
        word_of(other, Some(heir), true),
    );
    let got = lock(&word, me, &alive(), Some(MS), steps_of(MS));
    assert!(got.is_err());
    assert_eq!(word.held().unwrap().heir, Some(heir), "the first heir must stay");
}

#[test]
fn the_owner_is_asked_for_as_often_as_it_is_time_to() {
    let asked = Cell::new(0);
    let fates = Fates(|_| {
        asked.set(asked.get() + 1);
        Ok(Fate::Alive)
    });
    let word = Word::new(held_by(process(2)));
    let got = lock(&word, process(1), &fates, Some(ASK_EVERY * 4), steps_of(ASK_EVERY / 4));
    assert!(matches!(got, Err(LockError::Timeout { .. })), "{got:?}");
    assert_eq!(asked.get(), 4, "once at each interval, and at the timeout");
}

// ---- taking over -------------------------------------------------------------------------------

#[test]
fn a_dead_owner_is_replaced_and_what_others_left_in_the_word_stays() {
    let (me, gone, heir) = (process(1), process(2), process(3));
    for (heir_before, heir_after) in [(None, None), (Some(heir), Some(heir)), (Some(me), None)] {
        let word = Word::new(word_of(gone, heir_before, true));
        let got = lock(&word, me, &dead(), None, steps_of(ASK_EVERY));
        assert_eq!(got.unwrap(), Acquired::TakenOver(gone));
        let held = word.held().unwrap();
        assert_eq!((held.owner, held.heir, held.sleepers), (me, heir_after, true));
    }
}

#[test]
fn an_owner_that_took_the_lock_between_a_death_and_its_detection_keeps_it() {
    let (me, gone, heir) = (process(1), process(2), process(3));
    let word = Word::new(held_by(gone));
    let fates = Fates(|who| {
        if who != gone {
            return Ok(Fate::Alive);
        }
        // Another waiter was faster, and this one finds the word changed.
        word.bits.set(word_of(heir, None, true));
        Ok(Fate::Dead(()))
    });
    let got = lock(&word, me, &fates, Some(ASK_EVERY * 2), steps_of(ASK_EVERY));
    assert!(matches!(got, Err(LockError::Timeout { holder }) if holder == heir), "{got:?}");
    assert_eq!(word.held().unwrap().owner, heir);
    assert_eq!(word.held().unwrap().heir, None);
}

#[test]
fn an_heir_that_comes_while_a_dead_owner_is_replaced_is_kept() {
    let (me, gone, heir) = (process(1), process(2), process(3));
    let mine = word_of(me, None, true);
    let word = Word::changed_once(
        word_of(gone, Some(me), true),
        |step| step == Step::Exchange(mine),
        word_of(gone, Some(heir), true),
    );
    let got = lock(&word, me, &dead(), None, steps_of(ASK_EVERY));
    assert_eq!(got.unwrap(), Acquired::TakenOver(gone));
    assert_eq!(word.held().unwrap().heir, Some(heir));
}

#[test]
fn a_word_that_is_overwritten_while_a_dead_owner_is_replaced_is_damage() {
    let (me, gone) = (process(1), process(2));
    let word = Word::new(held_by(gone));
    let fates = Fates(|_| {
        word.bits.set(0xdead);
        Ok(Fate::Dead(()))
    });
    let got = lock(&word, me, &fates, None, steps_of(ASK_EVERY));
    assert!(matches!(got, Err(LockError::Damaged { word: 0xdead })), "{got:?}");
    assert_eq!(word.bits.get(), 0xdead);
}

// ---- giving up ---------------------------------------------------------------------------------

#[test]
fn a_waiter_that_gets_the_lock_while_its_time_runs_out_owns_it() {
    let (me, other) = (process(1), process(2));
    let word = Word::new(held_by(other));
    for answer in [Ok(()), Err(libc::EMFILE)] {
        word.bits.set(held_by(other));
        let fates = Fates(|_| {
            word.bits.set(word_of(me, None, true));
            answer.map(|()| Fate::Alive).map_err(io::Error::from_raw_os_error)
        });
        let got = lock(&word, me, &fates, Some(ASK_EVERY), steps_of(ASK_EVERY));
        assert_eq!(got.unwrap(), Acquired::Clean);
        assert_eq!(word.held().unwrap().owner, me);
    }
}

#[test]
fn a_waiter_that_gives_up_is_no_heir_even_if_the_word_changes_meanwhile() {
    let (me, other, next) = (process(1), process(2), process(3));
    let without = word_of(other, None, true);
    let word = Word::changed_once(
        held_by(other),
        |step| step == Step::Exchange(without),
        word_of(next, Some(me), true),
    );
    // It is late from the first look on: it becomes heir at once, and stops being one after that.
    let got = lock(&word, me, &alive(), Some(ASK_EVERY), || ASK_EVERY);
    assert!(matches!(got, Err(LockError::Timeout { .. })), "{got:?}");
    assert_eq!(word.bits.get(), word_of(next, None, true));
}

#[test]
fn a_waiter_that_gives_up_leaves_an_overwritten_word_as_it_is() {
    let (me, other) = (process(1), process(2));
    let word = Word::new(held_by(other));
    let fates = Fates(|_| {
        word.bits.set(0xdead);
        Ok(Fate::Alive)
    });
    let got = lock(&word, me, &fates, Some(ASK_EVERY), steps_of(ASK_EVERY));
    assert!(matches!(got, Err(LockError::Timeout { .. })), "{got:?}");
    assert_eq!(word.bits.get(), 0xdead);
}

#[test]
fn a_lock_that_is_handed_to_a_panicking_waiter_is_released() {
    let (me, other) = (process(1), process(2));
    let word = Word::new(held_by(other));
    let fates = Fates(|_| {
        word.bits.set(word_of(me, None, true));
        panic!("on purpose")
    });
    let wait = || lock(&word, me, &fates, None, steps_of(ASK_EVERY)).map(drop);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
    assert_eq!(word.bits.get(), FREE);
}

// ---- looking once ------------------------------------------------------------------------------

#[test]
fn a_single_try_takes_a_free_lock_and_else_sleeps_as_long_as_allowed() {
    let (me, other) = (process(1), process(2));
    let word = Word::new(FREE);
    assert!(try_lock_or_sleep(&word, me, MS));
    assert_eq!(word.bits.get(), held_by(me));
    assert!(word.sleeps.borrow().is_empty());

    let word = Word::new(held_by(other));
    assert!(!try_lock_or_sleep(&word, me, MS));
    assert_eq!(*word.sleeps.borrow(), [(held_by(other) as u32, EVERYONE, MS)]);
    assert_eq!(word.bits.get(), held_by(other), "the word must be unchanged");
}

#[test]
fn a_single_try_does_not_sleep_for_a_lock_that_was_released_meanwhile() {
    let word = Word::changed_once(held_by(process(2)), |step| step == Step::Load, FREE);
    assert!(!try_lock_or_sleep(&word, process(1), MS));
    assert!(word.sleeps.borrow().is_empty());
}

// ---- error messages ----------------------------------------------------------------------------

#[test]
fn an_error_names_the_holder_the_word_or_what_the_machine_said() {
    let holder = process(7);
    assert_eq!(holder.to_string(), "slot 7 (generation 3)");
    assert_eq!(format!("{holder:?}"), "Identity(7.3)");
    let timeout = LockError::Timeout { holder };
    assert_eq!(
        timeout.to_string(),
        "the lock is still held by the process in slot 7 (generation 3)"
    );
    let damaged = LockError::Damaged { word: 0xdead };
    assert!(damaged.to_string().contains("0x000000000000dead"), "{damaged}");
    assert!(timeout.source().is_none() && damaged.source().is_none());
    let failed = LockError::Io(io::Error::from_raw_os_error(libc::EMFILE));
    let source = failed.source().unwrap().to_string();
    assert!(failed.to_string().ends_with(&source), "{failed}");
}
