//! Closing: the last handle of a log waits for threads that hold the log, and a membership ends
//! with the last handle of its store.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

use super::super::logs::Served;
use super::*;

#[test]
fn of_two_last_handles_dropped_at_once_one_waits_for_the_helpers() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    let settings = store.open_topic("orders", &small).unwrap();
    let log = store.open_log(&settings).unwrap();
    let membership = store.membership().unwrap();
    for round in 0..2000 {
        let handles = [store.closing(&log).unwrap(), store.closing(&log).unwrap()];
        let (barrier, gone) = (Barrier::new(2), AtomicU32::new(0));
        // Imitate a serving thread that holds the log.
        let has_it = membership.logs().serving.read().unwrap();
        std::thread::scope(|scope| {
            for handle in handles {
                let (barrier, gone) = (&barrier, &gone);
                scope.spawn(move || {
                    barrier.wait();
                    drop(handle);
                    gone.fetch_add(1, Ordering::SeqCst);
                });
            }
            while gone.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            (0..20).for_each(|_| std::thread::yield_now());
            assert_eq!(gone.load(Ordering::SeqCst), 1, "round {round}: no thread waits");
            drop(has_it);
        });
        assert_eq!(gone.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn a_membership_ends_with_the_store_and_not_in_the_hands_of_who_serves_its_logs() {
    let machine = machine();
    for round in 0..300 {
        let store = open(&machine).unwrap();
        let membership = store.membership().unwrap();
        let (served, gone) = (Served::new(&membership), AtomicBool::new(false));
        let (weak, barrier) = (Arc::downgrade(&membership), Barrier::new(2));
        drop(membership);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                while !gone.load(Ordering::SeqCst) {
                    let _ = served.with(|logs| assert!(logs.is_empty()));
                    let _ = served.with_member(|_, _| unreachable!("there are no logs"));
                }
            });
            barrier.wait();
            drop(store);
            let left = weak.strong_count();
            gone.store(true, Ordering::SeqCst);
            assert_eq!(left, 0, "round {round}: somebody has it");
        });
    }
}
