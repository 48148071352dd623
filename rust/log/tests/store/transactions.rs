//! Transactions: records for several topics of one log, and cursors, become visible together or not
//! at all.

use falaj::internals::error::Error;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{CursorMove, CursorState, NewRecord, SyncMode, Topic, Transaction};
use falaj_twin::memory::MemoryStorage;
use std::sync::Arc;

fn store_at(path: &str) -> Store {
    let machine = MemoryStorage::new();
    Store::open_on(Arc::new(machine), path, &StoreOptions::default()).unwrap()
}

fn topic(store: &Store, name: &str, log: &str, partitions: u32) -> Topic {
    let options = TopicOptions {
        log: Some(log.into()),
        partitions: Some(partitions),
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap()
}

fn at(offset: u64) -> CursorState {
    CursorState { offset, ..CursorState::default() }
}

fn values(topic: &Topic, partition: u32) -> Vec<Vec<u8>> {
    let offsets = topic.first(partition).unwrap()..topic.end(partition).unwrap();
    let value = |offset| topic.get_in(partition, offset).unwrap().value().unwrap_or(b"-").to_vec();
    offsets.map(value).collect()
}

#[test]
fn what_is_in_a_transaction_is_there_when_it_commits_and_not_before() {
    let store = store_at("/store");
    let (paid, parts) = (topic(&store, "paid", "shop", 1), topic(&store, "parts", "shop", 3));
    let mut tx = Transaction::new(&store);
    tx.append(&paid, NewRecord::new(b"1")).unwrap();
    for key in [b"a", b"b", b"a"] {
        let record = NewRecord { key: Some(key), ..NewRecord::new(key) };
        assert_eq!(tx.append(&parts, record).unwrap(), parts.partition_of(key));
    }
    tx.append_to(&parts, 2, &NewRecord::new(b"x")).unwrap();
    // More than a value, after one.
    let headers = [("trace", Some(&b"t"[..]))];
    let rich = NewRecord { headers: &headers, event_time_ns: Some(7), ..NewRecord::new(b"2") };
    tx.append(&paid, rich).unwrap();
    tx.append(&paid, NewRecord { key: Some(b"k"), ..NewRecord::default() }).unwrap();
    tx.move_cursor(CursorMove { name: b"billing", to: at(4), from: None, metadata: b"" });
    tx.move_cursor(CursorMove { name: b"billing", to: at(5), from: None, metadata: b"" });
    assert_eq!((tx.records(), paid.end(0).unwrap()), (7, 0));
    assert_eq!(paid.cursor(b"billing").unwrap(), None);

    let committed = tx.commit().unwrap();
    assert_eq!(committed.offsets(&paid, 0), Some(0..3));
    assert_eq!(values(&paid, 0), [&b"1"[..], b"2", b"-"]);
    assert_eq!(paid.get_in(0, 1).unwrap().timestamp_ns(), 7);
    assert_eq!(parts.cursor(b"billing").unwrap(), Some(at(5)));
    let all: usize = (0..3).map(|partition| values(&parts, partition).len()).sum();
    assert_eq!((all, values(&parts, 2).last().map(Vec::as_slice)), (4, Some(&b"x"[..])));

    // Then it is empty, and starts over.
    assert_eq!((tx.records(), tx.commit().unwrap().parts().len()), (0, 0));
    tx.append(&paid, NewRecord::new(b"3")).unwrap();
    assert_eq!(tx.commit().unwrap().first(), 3);
    tx.append(&paid, NewRecord::new(b"never")).unwrap();
    drop(tx);
    assert_eq!(paid.end(0).unwrap(), 4);
}

#[test]
fn what_cannot_be_written_at_once_is_refused_and_the_rest_can_be_committed() {
    let store = store_at("/store");
    let (paid, elsewhere) = (topic(&store, "paid", "shop", 1), topic(&store, "else", "else", 1));
    let foreign = topic(&store_at("/another"), "paid", "shop", 1);
    let record = NewRecord::new(b"1");
    let mut tx = Transaction::new(&store);
    let refused = |error: Result<u32, Error>, words: &str| {
        let told = error.unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
    };
    refused(tx.append(&foreign, record), "one store");
    tx.append(&paid, record).unwrap();
    refused(tx.append(&foreign, record), "one store");
    refused(tx.append(&elsewhere, record), "same log=");
    refused(tx.keep_cursors_in(&elsewhere).map(|()| 0), "different logs");
    refused(tx.append_to(&paid, 1, &record).map(|()| 0), "no partition 1");
    assert_eq!(tx.commit().unwrap().offsets(&paid, 0), Some(0..1));
    // Without records it needs the log.
    tx.move_cursor(CursorMove { name: b"c", to: at(1), from: None, metadata: b"" });
    refused(tx.commit().map(|_| 0), "has to know the log");
    tx.keep_cursors_in(&elsewhere).unwrap();
    tx.commit().unwrap();
    assert_eq!(elsewhere.cursor(b"c").unwrap(), Some(at(1)));
    assert_eq!((paid.end(0).unwrap(), elsewhere.end(0).unwrap()), (1, 0));
}

#[test]
fn a_commit_that_was_refused_appends_nothing_and_can_be_tried_again() {
    let store = store_at("/store");
    let (paid, audit) = (topic(&store, "paid", "shop", 1), topic(&store, "audit", "shop", 1));
    let mut tx = Transaction::new(&store);
    tx.append(&paid, NewRecord::new(b"1")).unwrap();
    tx.append(&audit, NewRecord::new(b"2")).unwrap();
    tx.move_cursor(CursorMove { name: b"c", to: at(2), from: Some(at(1)), metadata: b"" });
    for _ in 0..2 {
        let told = tx.commit().unwrap_err();
        assert!(matches!(&told, Error::CursorMoved { name } if name == b"c"), "{told}");
        assert_eq!((paid.end(0).unwrap(), audit.cursor(b"c").unwrap()), (0, None));
    }
    let mut other = Transaction::new(&store);
    other.keep_cursors_in(&audit).unwrap();
    other.move_cursor(CursorMove {
        name: b"c",
        to: at(1),
        from: Some(CursorState::NONE),
        metadata: b"",
    });
    other.commit().unwrap();
    let committed = tx.commit().unwrap();
    assert_eq!(
        (committed.offsets(&paid, 0), committed.offsets(&audit, 0)),
        (Some(0..1), Some(0..1))
    );
    assert_eq!(paid.cursor(b"c").unwrap(), Some(at(2)));

    let large = vec![b'x'; 9000];
    tx.append(&paid, NewRecord::new(&large)).unwrap();
    tx.append(&audit, NewRecord::new(&large)).unwrap();
    assert!(matches!(tx.commit(), Err(Error::AppendTooLarge { .. })));
    store.delete_topic("audit").unwrap();
    let mut tx = Transaction::new(&store);
    tx.append(&paid, NewRecord::new(b"1")).unwrap();
    tx.append(&audit, NewRecord::new(b"2")).unwrap();
    let told = tx.commit().unwrap_err();
    assert!(matches!(&told, Error::TopicDeleted { name } if name == "audit"), "{told}");
    assert_eq!(paid.end(0).unwrap(), 1);
}

#[test]
fn the_strongest_mode_of_its_topics_decides_how_a_transaction_syncs() {
    let store = store_at("/store");
    let paid = topic(&store, "paid", "shop", 1).with_sync(SyncMode::None);
    let audit = topic(&store, "audit", "shop", 1).with_sync(SyncMode::Durable);
    let record = NewRecord::new(b"1");
    let mut tx = Transaction::new(&store);
    tx.append(&paid, record).unwrap();
    assert_eq!(tx.sync_mode(), SyncMode::None);
    tx.commit().unwrap();
    assert_eq!(paid.durable(0).unwrap(), 0);
    tx.append(&paid, record).unwrap();
    tx.append(&audit, record).unwrap();
    assert_eq!(tx.sync_mode(), SyncMode::Durable);
    tx.commit().unwrap();
    assert_eq!((paid.durable(0).unwrap(), audit.durable(0).unwrap()), (2, 1));
    let mut tx = Transaction::new(&store).with_sync(SyncMode::None);
    tx.append(&audit, record).unwrap();
    tx.commit().unwrap();
    assert_eq!(audit.durable(0).unwrap(), 1);
}
