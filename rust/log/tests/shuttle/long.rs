//! Writers, followers, rolls, syncs, deaths and a failing disk, many of them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::log::{Broken, Cursor, Death, Log, Process, Shape};
use crate::long;
use crate::world::thread;

const WRITERS: u16 = 3;
const RECORDS: u64 = 20;
const FOLLOWERS: usize = 2;

/// Seven records a segment, three of them allocated at first; no deaths, no errors.
const SHAPE: Shape =
    Shape { segments: 24, room: 8, allocated: 4, failing: 0, mortal: false, broken: None };

/// Writers append by turns, every other record durably; followers read to the end.
fn work(shape: Shape) {
    long(move || {
        let log = Arc::new(Log::new(shape));
        let total = u64::from(WRITERS) * RECORDS;
        let followers: Vec<_> = (0..FOLLOWERS)
            .map(|_| Arc::clone(&log))
            .map(|log| thread::spawn(move || log.follow(&mut Cursor::default(), total)))
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|slot| (slot, Arc::clone(&log)))
            .map(|(slot, log)| {
                thread::spawn(move || {
                    let who = Process::new(slot);
                    for n in 0..RECORDS {
                        let (record, end) = log.append(&who);
                        if (n + u64::from(slot)) % 2 == 0 {
                            log.sync_to(&who, end);
                            assert!(
                                log.survives() >= record,
                                "an acknowledged durable record must survive"
                            );
                        }
                    }
                })
            })
            .collect();
        for thread in writers.into_iter().chain(followers) {
            thread.join().unwrap();
        }
        let who = Process::new(0);
        let (record, end) = log.append(&who);
        log.sync_to(&who, end);
        assert_eq!((record, log.survives()), (total + 1, total + 1));
    });
}

#[test]
fn writers_that_roll_and_sync_together_lose_and_forget_nobody() {
    work(SHAPE);
}

#[test]
fn syncs_that_fail_now_and_then_lose_nothing_that_was_acknowledged_or_seen() {
    work(Shape { failing: 6, ..SHAPE });
}

#[test]
#[should_panic(expected = "not on the disk")]
fn broken_failed_syncs_that_are_tried_again_lose_what_was_acknowledged() {
    work(Shape { failing: 6, broken: Some(Broken::SyncedAgain), ..SHAPE });
}

#[test]
#[should_panic(expected = "appended in the failed-sync state")]
fn broken_failed_sync_state_that_waits_for_no_append_loses_one() {
    work(Shape { failing: 6, broken: Some(Broken::Unsettled), ..SHAPE });
}

#[test]
#[should_panic]
fn broken_sync_that_promises_what_came_meanwhile_is_found_out() {
    work(Shape { broken: Some(Broken::DurableTooFar), ..SHAPE });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_sync_lock_that_wakes_nobody_leaves_one_of_many_asleep() {
    work(Shape { broken: Some(Broken::CrowdAsleep), ..SHAPE });
}

#[test]
#[should_panic(expected = "no segment follows")]
fn broken_rolls_that_name_their_segment_last_are_found_out() {
    work(Shape { broken: Some(Broken::EndBeforeName), ..SHAPE });
}

/// Two processes append as long as a third one and its successors die with the lock, each in
/// another way.
///
/// One segment holds everything, since a roll that dies leaves an orphan, which is a matter of
/// files.
fn die_in_turn(broken: Option<Broken>) {
    const DEATHS: [Death; 4] = [Death::Committed, Death::Locked, Death::Written, Death::Dirty];
    long(move || {
        let shape = Shape { segments: 1, room: 64, allocated: 0, mortal: true, broken, ..SHAPE };
        let log = Arc::new(Log::new(shape));
        let committed = Arc::new(AtomicU64::new(0));
        let living: Vec<_> = (0..2)
            .map(|slot| (slot, Arc::clone(&log), Arc::clone(&committed)))
            .map(|(slot, log, committed)| {
                thread::spawn(move || {
                    let who = Process::new(slot);
                    let _life = log.slots().live(who.me);
                    for _ in 0..RECORDS {
                        log.append(&who);
                        committed.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        for (generation, death) in (1..).zip(DEATHS) {
            let (log, committed) = (Arc::clone(&log), Arc::clone(&committed));
            let mortal = thread::spawn(move || {
                let who = Process::again(2, generation);
                let _life = log.slots().live(who.me);
                assert!(log.append_or_die(&who, Some(death)).is_none());
                committed.fetch_add(u64::from(death == Death::Committed), SeqCst);
            });
            mortal.join().unwrap();
        }
        living.into_iter().for_each(|thread| thread.join().unwrap());
        log.append(&Process::new(3));
        let mut cursor = Cursor::default();
        while log.read(&mut cursor) {}
        assert_eq!(cursor.seen, committed.load(SeqCst) + 1);
    });
}

#[test]
fn writers_that_die_with_the_lock_in_turn_are_taken_over_from_and_mended() {
    die_in_turn(None);
}

#[test]
#[should_panic]
fn broken_heirs_that_mend_nothing_are_found_out() {
    die_in_turn(Some(Broken::Unrepaired));
}
