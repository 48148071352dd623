//! Repeats of appends that wait for another machine, while no process ships the store.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::{Error, Result};
use falaj::internals::storage::{Filesystem, Storage};
use falaj::internals::topic::{NewRecord, SyncMode, Topic, Transaction};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{open, topic};

/// A topic of a store that no process ships: one that is written by maps, and one by calls.
fn on_both_modes(test: impl Fn(&Topic)) {
    let copying = MemoryStorage::new().on(Filesystem::CopyOnWrite("btrfs"));
    for machine in [MemoryStorage::new(), copying] {
        let storage: Arc<dyn Storage> = Arc::new(machine);
        test(&topic(&open(&storage, Path::new("/store")).unwrap(), "orders"));
    }
}

/// Append a sequence of one producer alone, and of another in a transaction. Returns whether they are repeats.
fn append(orders: &Topic, sequence: u64, sync: SyncMode) -> [Result<bool>; 2] {
    let record = NewRecord::new(b"x");
    let once = [orders.expect_sequence("p", sequence).unwrap()];
    let alone = orders.commit_if(0, &record, &once, Some(sync));
    let mut transaction = Transaction::new(orders.store()).with_sync(sync);
    transaction.append_to(orders, 0, &record).unwrap();
    transaction.expect_sequence(orders, "q", sequence).unwrap();
    let together = transaction.commit_visible();
    [alone.map(|appended| appended.is_repeat), together.map(|committed| committed.is_repeat())]
}

#[test]
fn without_a_shipper_a_repeat_is_answered_and_a_new_append_is_refused() {
    on_both_modes(|orders| {
        assert_eq!(append(orders, 0, SyncMode::None).map(Result::unwrap), [false; 2]);
        assert_eq!(append(orders, 0, SyncMode::Remote).map(Result::unwrap), [true; 2]);
        for new in [1, 5] {
            for refused in append(orders, new, SyncMode::Remote) {
                let is_told = matches!(refused, Err(Error::NoShipper { offset: None, .. }));
                assert!(is_told, "{refused:?}");
            }
        }
        assert_eq!(orders.end(0).unwrap(), 2);
    });
}

#[test]
fn without_a_shipper_other_errors_of_an_append_that_may_be_a_repeat_are_told() {
    on_both_modes(|orders| {
        for sequence in 0..7 {
            assert_eq!(append(orders, sequence, SyncMode::None).map(Result::unwrap), [false; 2]);
        }
        for old in append(orders, 1, SyncMode::Remote) {
            let is_told = matches!(old, Err(Error::DuplicateSequence { highest: 6, .. }));
            assert!(is_told, "{old:?}");
        }
        orders.store().delete_topic("orders").unwrap();
        for sequence in [6, 7] {
            for gone in append(orders, sequence, SyncMode::Remote) {
                let is_told =
                    matches!(&gone, Err(Error::TopicDeleted { name }) if name == "orders");
                assert!(is_told, "{gone:?}");
            }
        }
    });
}
