//! Followers that sleep, and writers that wake them.

use std::sync::Arc;

use falaj::internals::publish;
use falaj::internals::sync::{EVERYONE, Ordering, SharedWord, fence};
use falaj::internals::wake;

use crate::word::ModelWord;
use crate::world::{Bytes, thread};
use crate::{FOREVER, every, model};

/// A log of one block, or of one per writer.
pub struct Log {
    commits: [ModelWord; 2],
    pub bytes: [Bytes; 2],
    pub counter: ModelWord,
    pub flag: ModelWord,
    pub lock: ModelWord,
}

impl Log {
    pub fn new() -> Self {
        Self {
            commits: [ModelWord::new(0), ModelWord::new(0)],
            bytes: [Bytes::new(), Bytes::new()],
            counter: ModelWord::new(0),
            flag: ModelWord::new(0),
            lock: ModelWord::new(0),
        }
    }

    pub fn append(&self, block: usize) {
        self.bytes[block].write(5);
        publish::publish(&self.commits[block], 1);
    }

    fn has(&self, block: usize) -> bool {
        publish::observe(&self.commits[block]) != 0
    }

    fn notify(&self) {
        if wake::is_awaited(&self.flag) {
            wake::notify(&self.counter, &self.flag, None);
        }
    }
}

/// One turn of a follower: true if the block is there; otherwise it slept.
type Turn = fn(&Log, usize) -> bool;

pub fn turn(log: &Log, block: usize) -> bool {
    let ticket = wake::observe(&log.counter);
    if log.has(block) {
        return true;
    }
    wake::park(&log.counter, &log.flag, wake::FOLLOWERS, ticket, FOREVER, || log.has(block));
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
        wake::wake_all(&log.counter);
    }
}

/// Followers wait for all blocks; each writer appends one. Sleeps have no time limit.
fn follow(turn: Turn, notify: fn(&Log), writers: usize, followers: usize) {
    let run = move || {
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
    };
    match writers + followers {
        2 => every(run),
        _ => model(run),
    }
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
    every(|| {
        let log = Arc::new(Log::new());
        let closer = Arc::clone(&log);
        let closer = thread::spawn(move || {
            publish::publish(&closer.commits[1], 1); // stands for "closed"
            wake::wake_all(&closer.counter);
        });
        loop {
            let ticket = wake::observe(&log.counter);
            if log.has(1) {
                break;
            }
            wake::park(&log.counter, &log.flag, wake::FOLLOWERS, ticket, FOREVER, || false);
        }
        closer.join().unwrap();
    });
}

/// One process appends, another syncs, and a third sleeps until the sync.
///
/// A bit of others makes the append notify. Block 0 is the append; block 1 is what the sync makes
/// durable.
fn wait_for_a_sync(notify: fn(&ModelWord, &ModelWord, Option<&ModelWord>)) {
    model(move || {
        let log = Arc::new(Log::new());
        log.flag.store(wake::FOLLOWERS, Ordering::Relaxed);
        let (appending, syncing) = (Arc::clone(&log), Arc::clone(&log));
        let appender = thread::spawn(move || {
            appending.append(0);
            if wake::is_awaited_after_unlock(&appending.flag) {
                notify(&appending.counter, &appending.flag, None);
            }
        });
        let syncer = thread::spawn(move || {
            syncing.append(1);
            syncing.notify();
        });
        while !log.has(1) {
            let ticket = wake::observe(&log.counter);
            let (counter, flag) = (&log.counter, &log.flag);
            if !log.has(1) {
                wake::park(counter, flag, wake::SYNC_FOLLOWERS, ticket, FOREVER, || log.has(1));
            }
        }
        assert_eq!(log.bytes[1].read(), 5);
        appender.join().unwrap();
        syncer.join().unwrap();
    });
}

#[test]
fn who_waits_for_a_sync_is_woken_by_it_although_an_append_rings_for_others() {
    wait_for_a_sync(wake::notify_appended);
}

/// Takes all bits, and wakes only processes that wait for an append.
fn ring_that_takes_all(counter: &ModelWord, flag: &ModelWord, _: Option<&ModelWord>) {
    flag.swap(0, Ordering::Acquire);
    counter.fetch_add(1, Ordering::Release);
    counter.wake(1, wake::FOLLOWERS as u32);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_append_that_takes_the_bit_of_who_waits_for_a_sync_leaves_it_asleep() {
    wait_for_a_sync(ring_that_takes_all);
}
