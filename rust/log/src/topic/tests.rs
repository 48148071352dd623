//! Opening a log that recovery has walked to its end: it begins with the same state as a walk of
//! its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod codec;

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::format::names;
use crate::storage::{OpenMode, Storage};
use crate::store::StoreOptions;
use crate::twin::memory::MemoryStorage;

const SEGMENT: u64 = 64 << 10;

fn open(machine: &MemoryStorage) -> Store {
    Store::open_on(Arc::new(machine.clone()), "/store", &StoreOptions::default()).unwrap()
}

fn topic(store: &Store, name: &str) -> Topic {
    let options = TopicOptions {
        log: Some("shop".into()),
        partitions: Some(3),
        segment_bytes: Some(SEGMENT),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap()
}

/// Fill a log with all that it can record: created and deleted topics, trims, producers, cursors,
/// groups and times.
fn fill(machine: &MemoryStorage, store: &Store, turns: u64) {
    let topics = ["paid", "audit", "orders"].map(|name| topic(store, name));
    drop(topic(store, "gone"));
    for turn in 0..turns {
        machine.set_now_us(machine.now_us() + 1000);
        let paid = &topics[(turn % 3) as usize];
        let value = vec![b'v'; (turn % 701) as usize];
        let record = NewRecord {
            event_time_ns: (turn % 5 == 0).then_some(turn as i64 * 7),
            ..NewRecord::new(&value)
        };
        paid.append_to((turn % 3) as u32, &record, Some(SyncMode::None)).unwrap();
        let once = [paid.expect_sequence("p", turn / 3).unwrap()];
        paid.append_if_to(0, &record, &once, Some(SyncMode::None)).unwrap();
        let mut tx = Transaction::new(store);
        for topic in &topics[..2] {
            tx.append_to(topic, 1, &NewRecord::new(b"of a group")).unwrap();
        }
        let to = CursorState { offset: turn, crc: 1, turn: 2 };
        tx.move_cursor(CursorMove { name: b"reader", to, from: None, metadata: b"" });
        tx.commit().unwrap();
    }
    topics[0].trim(&[(1, turns)]).unwrap();
    store.delete_topic("gone").unwrap();
}

/// Check that opening finds what a walk does; return whether it had to walk.
fn check(machine: &MemoryStorage) -> bool {
    let store = open(&machine.process());
    let paid = topic(&store, "paid");
    let (begun, walked, was_left) = paid.log().begun_and_walked().unwrap();
    assert_eq!(begun, walked);
    let end = paid.end(0).unwrap();
    assert_eq!(paid.append_to(0, &NewRecord::new(b"on"), None).unwrap(), end);
    was_left
}

#[test]
fn what_recovery_knows_of_the_end_is_what_a_walk_finds() {
    for turns in [1, 40, 400] {
        let machine = MemoryStorage::new().seeded(turns);
        let process = machine.process();
        let store = open(&process);
        fill(&machine, &store, turns);
        // Killed, and closed; then opened twice more.
        assert!(check(&machine.survivor()));
        drop(store);
        assert!(check(&machine));
        assert!(check(&machine));
        // A process that is not the first recovers nothing, and walks.
        let _held = topic(&open(&machine.process()), "paid");
        assert!(!check(&machine));
    }
}

#[test]
fn behind_damage_recovery_leaves_the_walk_to_who_appends() {
    let machine = MemoryStorage::new().seeded(5);
    fill(&machine, &open(&machine.process()), 40);
    let logs = machine.list(Path::new("/store/logs")).unwrap();
    let dir = Path::new("/store/logs").join(&logs[0]);
    let names = machine.list(&dir).unwrap();
    let newest = names.iter().filter_map(|name| names::parse_segment(name)).max().unwrap();
    let file = machine.open(&dir.join(names::segment(newest)), OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 10_096).unwrap();
    file.write_at(&[byte[0] ^ 1], 10_096).unwrap();
    let store = open(&machine.process());
    let paid = topic(&store, "paid");
    let (_, _, was_left) = paid.log().begun_and_walked().unwrap();
    assert!(!was_left);
}
