//! Commits of chosen offsets, alone and in transactions that are repeated.

use std::time::Duration;

use falaj::{Consumer, Error, GroupOffset};

use super::*;

const NOW: Duration = Duration::ZERO;

/// A group of both partitions of "orders", with its offsets in its file or in the log of "sums".
fn group(store: &Store, is_in_log: bool) -> (Topic, Consumer) {
    let sums = store.topic_options("sums").segment_bytes(64 << 10).open().unwrap();
    let builder = store.consumer_options("billing", ["orders"]);
    let builder = if is_in_log { builder.offsets_in(&sums) } else { builder };
    (sums, builder.open().unwrap())
}

fn committed(billing: &Consumer) -> [(u64, String); 2] {
    [0, 1].map(|part| {
        (billing.committed("orders", part).unwrap(), billing.metadata("orders", part).unwrap())
    })
}

#[test]
fn chosen_offsets_are_all_checked_before_one_is_committed_in_a_file_and_in_a_log() {
    for is_in_log in [false, true] {
        let machine = MemoryStorage::new();
        let store = store(&machine);
        let orders = topic(&store, 2);
        (0..2).for_each(|part| append(&orders, part, 5));
        let (_sums, mut billing) = group(&store, is_in_log);
        let at = |part: u32, offset: u64| GroupOffset::new("orders", part, offset);
        let long = "x".repeat(385);
        for refused in [
            [at(0, 3), at(1, 6)],
            [at(0, 3), at(2, 0)],
            [at(0, 3), at(0, 4)],
            [at(0, 3), at(1, 1).metadata(&long)],
        ] {
            billing.commit_offsets(&refused, true).unwrap_err();
            assert_eq!(committed(&billing), [(0, String::new()), (0, String::new())]);
        }
        billing.commit_offsets(&[at(1, 2).metadata("b"), at(0, 3)], true).unwrap();
        assert_eq!(committed(&billing), [(3, String::new()), (2, "b".into())]);
        // It reads on after them, and goes back no further than a call asks for.
        let mut next = [5; 2];
        while let Some(record) = billing.poll(NOW).unwrap() {
            let part = record.partition() as usize;
            next[part] = next[part].min(record.offset());
        }
        assert_eq!(next, [3, 2], "in a log: {is_in_log}");
        billing.commit_offsets(&[at(0, 1)], false).unwrap();
        assert_eq!(committed(&billing)[0], (1, String::new()));
        billing.close().unwrap();
        let (_sums, again) = group(&store, is_in_log);
        assert_eq!(committed(&again), [(1, String::new()), (2, "b".into())]);
        let other = store.consumer("other", ["sums"]).unwrap().commit_offsets(&[at(0, 1)], false);
        assert!(matches!(other, Err(Error::InvalidArgument { .. })));
    }
}

#[test]
fn after_a_repeated_transaction_the_same_consumer_commits_on() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 2);
    (0..2).for_each(|part| append(&orders, part, 5));
    let (sums, mut billing) = group(&store, true);
    let commit = |billing: &mut Consumer, sequence: u64, offset: u64| {
        let mut tx = store.transaction();
        tx.append(&sums, b"a result").unwrap();
        tx.expect_sequence(&sums, "adder", sequence).unwrap();
        let at = [GroupOffset::new("orders", 0, offset)];
        let done = billing.commit_offsets_with(&mut tx, &at).unwrap();
        done.offsets(&sums, 0).unwrap()
    };
    assert_eq!(commit(&mut billing, 0, 2), 0..1);
    // The reply was lost.
    assert_eq!(commit(&mut billing, 0, 2), 0..1);
    assert_eq!(commit(&mut billing, 1, 4), 1..2);
    // Delivered records are committed from there on, too.
    while billing.poll(NOW).unwrap().is_some() {}
    for _ in 0..2 {
        let mut tx = store.transaction();
        tx.append(&sums, b"a result").unwrap();
        tx.expect_sequence(&sums, "adder", 2).unwrap();
        billing.commit_with(&mut tx).unwrap();
    }
    billing.seek("orders", 0, ..).unwrap();
    billing.poll(NOW).unwrap().unwrap();
    billing.commit().unwrap();
    assert_eq!(billing.committed("orders", 0).unwrap(), 1);
}
