//! Processes that want the same sync: one does it for all, and the others see that it is done.

use std::sync::Arc;

use falaj::internals::lock::{self, Acquired, Identity};
use falaj::internals::sync::{Ordering, SharedWord};

use crate::processes::{Nobody, always, process};
use crate::word::ModelWord;
use crate::world::{Bytes, thread};
use crate::{FOREVER, model, nearly_every};

struct Syncing {
    lock: ModelWord,
    durable: ModelWord,
    syncs: Bytes,
}

type Unlock = fn(&ModelWord, Identity) -> bool;

/// One sync covers everything that was appended; each process appends once before it begins.
fn sync_to_end(shared: &Syncing, me: Identity, unlock: Unlock) {
    while shared.durable.load(Ordering::Acquire) == 0 {
        if lock::try_lock_or_sleep(&shared.lock, me, FOREVER) {
            if shared.durable.load(Ordering::Acquire) == 0 {
                shared.syncs.add_one();
                shared.durable.store(1, Ordering::Release);
            }
            assert!(unlock(&shared.lock, me));
        }
    }
    assert_eq!(shared.syncs.read(), 1);
}

fn sync_together(processes: u16, one_in_line: bool, unlock: Unlock) {
    let run = move || {
        let (lock, durable, syncs) = (ModelWord::new(0), ModelWord::new(0), Bytes::new());
        let shared = Arc::new(Syncing { lock, durable, syncs });
        let others: Vec<_> = (1..processes)
            .map(|slot| (process(slot), Arc::clone(&shared)))
            .map(|(me, shared)| thread::spawn(move || sync_to_end(&shared, me, unlock)))
            .collect();
        if one_in_line {
            // As a process whose timeout passed, or that leaves a clean mark: it waits for the
            // lock, and is done without a sync.
            let got = lock::lock(&shared.lock, process(0), &Nobody, None, always(0)).unwrap();
            assert_eq!(got, Acquired::Clean);
            assert!(unlock(&shared.lock, process(0)));
        } else {
            sync_to_end(&shared, process(0), unlock);
        }
        for other in others {
            other.join().unwrap();
        }
    };
    match processes {
        2 => nearly_every(run),
        _ => model(run),
    }
}

#[test]
fn one_of_two_syncs_for_both_and_none_is_left_asleep() {
    sync_together(2, false, lock::unlock_to_all);
}

#[test]
fn one_of_three_syncs_for_all_and_none_is_left_asleep() {
    sync_together(3, false, lock::unlock_to_all);
}

#[test]
fn a_process_that_queues_for_the_lock_leaves_no_sleeper_asleep() {
    sync_together(2, true, lock::unlock_to_all);
    sync_together(3, true, lock::unlock_to_all);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_unlock_that_wakes_only_who_stands_in_line_leaves_others_asleep() {
    sync_together(2, false, |word, me| lock::unlock(word, me));
}
