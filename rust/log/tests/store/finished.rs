//! Finished topics: no record comes after the end, and followers end there.

use std::sync::Arc;
use std::thread;

use falaj::internals::error::Error;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::sink::BulkLoad;
use falaj::internals::store::{Access, Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic, Transaction, Visibility};
use falaj_twin::memory::{MemoryStorage, every};

fn store(machine: &MemoryStorage, mode: WriteMode) -> Store {
    let options = StoreOptions { write_mode: Some(mode), ..StoreOptions::default() };
    Store::open_on(Arc::new(machine.clone()), "/store", &options).unwrap()
}

fn topic(store: &Store, name: &str, partitions: u32) -> Topic {
    let options = TopicOptions {
        log: Some("days".into()),
        partitions: Some(partitions),
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap().with_sync(SyncMode::None)
}

fn append(topic: &Topic, partition: u32) -> Result<u64, Error> {
    topic.append_to(partition, &NewRecord::new(b"x"), None)
}

/// Try all ways to append to partition 1 of a finished topic.
fn refuses_all(days: &Topic, end: u64) {
    let store = days.store();
    let record = NewRecord::new(b"late");
    let mut tx = Transaction::new(store);
    tx.append_to(days, 1, &record).unwrap();
    let load = |records: u64| {
        let load = BulkLoad::new(days, "load")?;
        let mut staged = load.stage("part", None)?;
        (0..records).try_for_each(|_| staged.append_to(&NewRecord::new(&[b'x'; 1000]), Some(1)))?;
        let part = staged.finish()?;
        load.commit(&[part], None).map(drop)
    };
    let expected = days.expect_offset_in(1, end).unwrap();
    let once = days.expect_sequence("p", 0).unwrap();
    let attempts = [
        append(days, 1).map(drop),
        days.extend_to(1, &[record, record], None).map(drop),
        days.append_if_to(1, &record, &[expected, once], None).map(drop),
        tx.commit().map(drop),
        load(1),
        load(100),
    ];
    for attempt in attempts {
        let told = attempt.expect_err("a record came after the end");
        let Error::TopicFinished { topic, partition: 1 } = &told else { panic!("{told}") };
        assert_eq!(topic, "days");
        assert!(told.to_string().contains("finished"), "{told}");
    }
    assert_eq!(days.end(1).unwrap(), end, "a record came after the end");
}

#[test]
fn no_record_comes_after_the_end_by_any_way_or_process_also_after_rolls_and_restarts() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let mut machine = MemoryStorage::new();
        {
            let (one, other) = (store(&machine, mode), store(&machine, mode));
            let (days, same) = (topic(&one, "days", 2), topic(&other, "days", 2));
            append(&same, 1).unwrap();
            append(&days, 1).unwrap();
            assert!(!days.is_finished() && !same.is_finished());
            days.finish().unwrap();
            // The other one appended before, and would do so on the fast path.
            refuses_all(&same, 2);
            refuses_all(&days, 2);
            days.finish().unwrap();
        }
        for turn in 0..3 {
            let store = store(&machine, mode);
            let (days, rest) = (topic(&store, "days", 2), topic(&store, "rest", 1));
            assert!(days.is_finished() && !rest.is_finished(), "turn {turn}");
            refuses_all(&days, 2);
            let offset = append(&rest, 0).unwrap();
            for _ in 0..150 {
                rest.append_to(0, &NewRecord::new(&[b'x'; 1000]), None).unwrap();
            }
            // The segment that has the note goes; the snapshots after it have it too.
            rest.trim(&[(0, offset)]).unwrap();
            refuses_all(&days, 2);
            assert_eq!(days.get_in(1, 1).unwrap().value(), Some(&b"x"[..]));
            drop((days, rest, store));
            machine = machine.restart();
        }
    }
}

#[test]
fn a_transaction_finishes_topics_behind_its_records_or_not_at_all() {
    let store = store(&MemoryStorage::new(), WriteMode::Mapped);
    let (days, rest) = (topic(&store, "days", 2), topic(&store, "rest", 1));
    let mut tx = Transaction::new(&store);
    tx.append_to(&days, 0, &NewRecord::new(b"last")).unwrap();
    tx.append(&rest, NewRecord::new(b"done")).unwrap();
    tx.expect_offset(&rest, 2).unwrap();
    tx.finish(&days).unwrap();
    assert!(matches!(tx.commit(), Err(Error::OffsetConflict { .. })));
    assert!(!days.is_finished());
    append(&rest, 0).unwrap();
    assert_eq!(tx.commit().unwrap().offsets(&days, 0), Some(0..1));
    assert!(days.is_finished() && !rest.is_finished());
    refuses_all(&days, 0);
    tx.finish(&rest).unwrap();
    tx.commit().unwrap();
    assert!(rest.is_finished());
    let other = Store::open_on(Arc::new(MemoryStorage::new()), "/other", &StoreOptions::default());
    assert!(tx.finish(&topic(&other.unwrap(), "days", 1)).is_err());
}

#[test]
fn followers_end_behind_the_last_record_of_a_finished_topic() {
    let place = tempfile::tempdir().unwrap();
    let writer = Store::open_with(place.path(), &StoreOptions::default()).unwrap();
    let days = topic(&writer, "days", 2);
    let to_read = StoreOptions { access: Access::Read, ..StoreOptions::default() };
    let reader = Store::open_with(place.path(), &to_read).unwrap();
    let read = |store: &Store| Topic::open(store, "days", &TopicOptions::default()).unwrap();
    let durable = read(&writer).with_visibility(Visibility::Durable);
    thread::scope(|scope| {
        let handles = [read(&writer), durable, read(&reader)];
        let followers: Vec<_> = handles
            .into_iter()
            .map(|topic| {
                scope.spawn(move || {
                    topic.follow(..).unwrap().map(Result::unwrap).collect::<Vec<_>>().len()
                })
            })
            .collect();
        for _ in 0..50 {
            append(&days, 0).unwrap();
            append(&days, 1).unwrap();
        }
        let mut tx = Transaction::new(&writer).with_sync(SyncMode::None);
        tx.append_to(&days, 0, &NewRecord::new(b"last")).unwrap();
        tx.finish(&days).unwrap();
        tx.commit().unwrap();
        days.flush().unwrap();
        for follower in followers {
            assert_eq!(follower.join().unwrap(), 101);
        }
    });
    // One that begins later ends at once.
    assert_eq!(days.follow(..).unwrap().count(), 101);
}

#[test]
fn a_power_cut_leaves_a_topic_finished_with_all_its_records_or_open_and_finished_once_that_was_said()
 {
    let machine = MemoryStorage::new();
    let (began, said) = {
        let store = store(&machine, WriteMode::Mapped);
        let days = topic(&store, "days", 2);
        append(&days, 0).unwrap();
        days.flush().unwrap();
        let began = machine.events();
        let mut tx = Transaction::new(&store);
        tx.append_to(&days, 0, &NewRecord::new(b"last")).unwrap();
        tx.append_to(&days, 1, &NewRecord::new(b"last")).unwrap();
        tx.finish(&days).unwrap();
        tx.commit().unwrap();
        days.finish().unwrap();
        let said = machine.events();
        append(&topic(&store, "rest", 1), 0).unwrap();
        std::mem::forget((days, store));
        (began, said)
    };
    let (mut finished, mut open) = (0, 0);
    for crash in machine.journal().crashes_from(began).step_by(every(3)) {
        crash.explore(24, 7, |selection, image| {
            let store = self::store(&image, WriteMode::Mapped);
            let days = topic(&store, "days", 2);
            let story = crash.describe(selection);
            let ends = (days.end(0).unwrap(), days.end(1).unwrap());
            if days.is_finished() {
                finished += 1;
                assert_eq!(ends, (2, 1), "{story}");
                assert!(append(&days, 1).is_err(), "{story}");
            } else {
                open += 1;
                assert_eq!(ends, (1, 0), "{story}");
                append(&days, 1).unwrap();
            }
        });
    }
    assert!(finished > 10 && open > 10, "{finished}, {open}");
    for crash in machine.journal().crashes_from(said) {
        crash.explore(24, 7, |selection, image| {
            let store = self::store(&image, WriteMode::Mapped);
            assert!(topic(&store, "days", 2).is_finished(), "{}", crash.describe(selection));
        });
    }
}
