//! Shipping: a waiter is woken by the acknowledgement, or by the end of the
//! shipper. It counts nothing that is not durable here.

use std::sync::Arc;

use falaj::internals::lock::Identity;
use falaj::internals::shipper::{self, Shipper, decode, encode};
use falaj::internals::sync::{Ordering, SharedWord};
use falaj::internals::wake;

use crate::word::ModelWord;
use crate::world::{Bytes, thread};
use crate::{FOREVER, every, model};

/// The words of one log, the word of the wake page, and what the place holds.
struct Log {
    durable: ModelWord,
    remote: ModelWord,
    counter: ModelWord,
    waiting: ModelWord,
    shipper: ModelWord,
    /// Whether the place has the bytes: stored before the acknowledgement.
    place: Bytes,
}

/// A step that is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// The acknowledgement wakes none.
    Silent,
    /// The end of the shipper wakes none.
    SilentEnd,
    /// A waiter that is about to sleep does not look at the shipper again.
    ShipperUnseen,
    /// REMOTE counts beyond DURABLE.
    Ahead,
    /// The acknowledgement comes before the place has the bytes.
    Early,
}

fn me() -> Identity {
    Identity::new(1, 1).unwrap()
}

impl Log {
    fn new(durable: u64) -> Arc<Self> {
        let named = encode(Shipper::Process(me()));
        Arc::new(Self {
            durable: ModelWord::new(durable),
            remote: ModelWord::new(0),
            counter: ModelWord::new(0),
            waiting: ModelWord::new(0),
            shipper: ModelWord::new(named),
            place: Bytes::new(),
        })
    }

    fn notify(&self) {
        if wake::is_awaited(&self.waiting) {
            wake::notify(&self.counter, &self.waiting, None);
        }
    }

    /// Send the bytes to the place, and acknowledge them.
    fn ship(&self, to: u64, broken: Option<Broken>) {
        if broken == Some(Broken::Early) {
            shipper::raise(&self.remote, to);
        }
        self.place.write(to);
        shipper::raise(&self.remote, to);
        if broken != Some(Broken::Silent) {
            self.notify();
        }
    }

    fn stop(&self, fenced: bool, broken: Option<Broken>) {
        assert!(shipper::end(&self.shipper, me(), fenced));
        if broken != Some(Broken::SilentEnd) {
            self.notify();
        }
    }

    fn is_remote(&self, target: u64, broken: Option<Broken>) -> bool {
        let remote = self.remote.load(Ordering::Acquire);
        let durable = self.durable.load(Ordering::Acquire);
        let reached = match broken {
            Some(Broken::Ahead) => remote,
            _ => shipper::reached(remote, durable),
        };
        reached >= target
    }

    /// Wait as an append in the remote mode does; false when the shipper stopped before.
    fn wait(&self, target: u64, broken: Option<Broken>) -> bool {
        loop {
            let ticket = wake::observe(&self.counter);
            if self.is_remote(target, broken) {
                return true;
            }
            let seen = self.shipper.load(Ordering::Acquire);
            if !matches!(decode(seen), Shipper::Process(_)) {
                // It may have acknowledged this, and then stopped.
                return self.is_remote(target, broken);
            }
            let stirred = || {
                broken != Some(Broken::ShipperUnseen)
                    && self.shipper.load(Ordering::Acquire) != seen
            };
            let news = || self.is_remote(target, broken) || stirred();
            wake::park(&self.counter, &self.waiting, wake::REMOTE_APPENDERS, ticket, FOREVER, news);
        }
    }
}

/// One process waits, another acknowledges.
fn acknowledge(broken: Option<Broken>) {
    every(move || {
        let log = Log::new(7);
        let shipper = Arc::clone(&log);
        let shipper = thread::spawn(move || shipper.ship(7, broken));
        assert!(log.wait(7, broken));
        assert_eq!(log.place.read(), 7, "the place must have it");
        shipper.join().unwrap();
    });
}

#[test]
fn a_waiter_is_woken_by_the_acknowledgement_and_finds_the_bytes_in_the_place() {
    acknowledge(None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_acknowledgement_that_wakes_none_leaves_a_waiter_asleep() {
    acknowledge(Some(Broken::Silent));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_acknowledgement_before_the_place_has_it_promises_too_much() {
    acknowledge(Some(Broken::Early));
}

/// One process waits, and the shipper stops without an acknowledgement, or right after one.
fn stop(shipped: bool, broken: Option<Broken>) {
    every(move || {
        let log = Log::new(7);
        let shipper = Arc::clone(&log);
        let shipper = thread::spawn(move || {
            if shipped {
                shipper.ship(7, None);
            }
            shipper.stop(true, broken);
        });
        assert_eq!(log.wait(7, broken), shipped);
        shipper.join().unwrap();
    });
}

#[test]
fn a_waiter_is_never_left_asleep_by_a_shipper_that_stops() {
    stop(false, None);
}

#[test]
fn what_a_shipper_acknowledged_before_it_stopped_counts() {
    stop(true, None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_end_of_the_shipper_that_wakes_none_leaves_a_waiter_asleep() {
    stop(false, Some(Broken::SilentEnd));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_waiter_that_does_not_look_at_the_shipper_again_sleeps_for_ever() {
    stop(false, Some(Broken::ShipperUnseen));
}

/// A hint of an earlier incarnation says more than is on this disk. A sync comes meanwhile.
fn look_ahead(broken: Option<Broken>) {
    every(move || {
        let log = Log::new(0);
        let disk = Arc::new(Bytes::new());
        log.remote.store(7, Ordering::Relaxed);
        let (syncer, medium) = (Arc::clone(&log), Arc::clone(&disk));
        let syncer = thread::spawn(move || {
            medium.write(7);
            syncer.durable.store(7, Ordering::Release);
        });
        if log.is_remote(7, broken) {
            assert_eq!(disk.read(), 7, "it must be on this disk");
        }
        syncer.join().unwrap();
    });
}

#[test]
fn nothing_counts_as_remote_before_it_is_durable() {
    look_ahead(None);
}

#[test]
#[should_panic]
fn broken_remote_without_durable_counts_what_is_not_on_the_disk() {
    look_ahead(Some(Broken::Ahead));
}

#[test]
fn two_that_acknowledge_never_lower_the_word_and_both_waiters_are_served() {
    model(|| {
        let log = Log::new(9);
        let waiter = Arc::clone(&log);
        let waiter = thread::spawn(move || assert!(waiter.wait(9, None)));
        let slow = Arc::clone(&log);
        let slow = thread::spawn(move || {
            shipper::raise(&slow.remote, 4);
            slow.notify();
        });
        shipper::raise(&log.remote, 9);
        log.notify();
        assert_eq!(log.remote.load(Ordering::Acquire), 9);
        waiter.join().unwrap();
        slow.join().unwrap();
    });
}

#[test]
fn of_two_that_begin_to_ship_at_once_one_is_named() {
    every(|| {
        let word = Arc::new(ModelWord::new(0));
        let other = Arc::clone(&word);
        let two = Identity::new(2, 1).unwrap();
        let other = thread::spawn(move || shipper::begin(&*other, two, 0));
        let first = shipper::begin(&*word, me(), 0);
        let second = other.join().unwrap();
        assert!(first != second, "one of them must begin");
        let named = if first { me() } else { two };
        assert_eq!(decode(word.load(Ordering::Acquire)), Shipper::Process(named));
    });
}

/// An order of steps in which an append is not seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unseen {
    /// The append wakes the shipper before it sets its bit.
    HurriedEarly,
    /// The append wakes no shipper.
    NotHurried,
    /// The shipper takes its ticket after it looked.
    LateTicket,
}

/// An append begins to wait, and the process that ships sleeps until it finds that.
fn hurry(broken: Option<Unseen>) {
    every(move || {
        let waiting = Arc::new(ModelWord::new(0));
        let bell = Arc::new(ModelWord::new(0));
        let append = (Arc::clone(&waiting), Arc::clone(&bell));
        let append = thread::spawn(move || {
            let (waiting, bell) = append;
            if broken == Some(Unseen::HurriedEarly) {
                wake::hurry(&*bell);
            }
            wake::register_waiter(&*waiting, wake::REMOTE_APPENDERS);
            if broken.is_none() || broken == Some(Unseen::LateTicket) {
                wake::hurry(&*bell);
            }
        });
        let is_awaited = || waiting.load(Ordering::Relaxed) & wake::REMOTE_APPENDERS != 0;
        loop {
            let ticket = wake::observe(&*bell);
            if is_awaited() {
                break;
            }
            let late = broken == Some(Unseen::LateTicket);
            let ticket = if late { wake::observe(&*bell) } else { ticket };
            wake::wait_for(&*bell, wake::SHIPPER, ticket, FOREVER);
        }
        append.join().unwrap();
    });
}

#[test]
fn a_shipper_that_sleeps_hears_of_an_append_that_waits() {
    hurry(None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_append_that_hurries_before_it_sets_its_bit_leaves_the_shipper_asleep() {
    hurry(Some(Unseen::HurriedEarly));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_append_that_hurries_nobody_leaves_the_shipper_asleep() {
    hurry(Some(Unseen::NotHurried));
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_shipper_that_takes_its_ticket_after_its_look_sleeps_for_ever() {
    hurry(Some(Unseen::LateTicket));
}
