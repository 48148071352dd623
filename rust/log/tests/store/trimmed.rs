//! Trims beside readers that stand in a segment: none delivers what was trimmed before its call.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::format::address::Address;
use falaj::internals::format::control::at;
use falaj::internals::log::Reading;
use falaj::internals::storage::{MapAccess, OpenMode, Storage};
use falaj::internals::store::{StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, ScanRange};
use falaj::{Error, Start, Store, Topic};
use falaj_twin::faulty::{Call, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use crate::stores;

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("events")).unwrap();
    (dir, store)
}

fn whole(partition: u32) -> ScanRange {
    ScanRange { partition, from: 0, end: None }
}

/// The topic of twelve records as another process sees it: in one block, or in a block each.
fn beside(store: &Store, dir: &tempfile::TempDir, in_one: bool) -> Topic {
    let orders = store.topic("orders").unwrap();
    if in_one {
        orders.extend(["v"; 12]).unwrap();
    } else {
        for _ in 0..12 {
            orders.append("v").unwrap();
        }
    }
    let other = Store::open_with(dir.path().join("events"), &StoreOptions::reading()).unwrap();
    Topic::open(&other, "orders", &TopicOptions::default()).unwrap()
}

fn is_gone<T: Debug>(found: falaj::Result<T>, next: i128, begin: u64) {
    match found {
        Err(Error::OffsetOutOfRange { offset, first, .. }) => {
            assert_eq!((offset, first), (next, begin));
        }
        found => panic!("{found:?}"),
    }
}

#[test]
fn no_reader_delivers_what_was_trimmed_before_its_call_wherever_it_stands() {
    for in_one in [true, false] {
        let (dir, store) = store();
        let seen = beside(&store, &dir, in_one);
        let (mut scan, mut ended) =
            (seen.scan_partition(0, 0, None).unwrap(), seen.scan_partition(0, 0, Some(3)).unwrap());
        let mut merged = seen.scan_ranges(&[whole(0)]).unwrap();
        let mut follow =
            seen.follow_ranges(&[whole(0)]).unwrap().with_timeout(Some(Duration::ZERO));
        let mut billing = store.consumer("billing", ["orders"]).unwrap();
        for n in 0..3 {
            assert_eq!(scan.next().unwrap().unwrap().offset(), n);
            assert_eq!(ended.next().unwrap().unwrap().offset(), n);
            assert_eq!(merged.next().unwrap().unwrap().offset(), n);
            assert_eq!(follow.next().unwrap().unwrap().offset(), n);
            assert_eq!(billing.poll(Duration::ZERO).unwrap().unwrap().offset(), n);
        }
        store.topic("orders").unwrap().trim_before(6).unwrap();
        for _ in 0..2 {
            is_gone(scan.next().unwrap(), 3, 6);
            is_gone(scan.next_batch(2), 3, 6);
            is_gone(merged.next().unwrap(), 3, 6);
            is_gone(follow.next().unwrap(), 3, 6);
            is_gone(billing.poll(Duration::ZERO), 3, 6);
            is_gone(billing.poll_batch(2, Duration::ZERO), 3, 6);
            assert!(ended.next().is_none(), "it missed nothing");
        }
        billing.seek("orders", 0, Start::Earliest).unwrap();
        assert_eq!(billing.poll(Duration::ZERO).unwrap().unwrap().offset(), 6);
    }
}

#[test]
fn a_reader_beyond_a_trim_reads_on_and_the_next_trim_is_seen_as_well() {
    let (dir, store) = store();
    let seen = beside(&store, &dir, true);
    let orders = store.topic("orders").unwrap();
    let mut scan = seen.scan_partition(0, 0, None).unwrap();
    for n in 0..8 {
        // Up to and with the record that it has, and never further.
        orders.trim_before(n).unwrap();
        assert_eq!(scan.next().unwrap().unwrap().offset(), n);
    }
    orders.trim_before(9).unwrap();
    is_gone(scan.next().unwrap(), 8, 9);
}

#[test]
fn batches_end_where_a_trim_begins() {
    let (dir, store) = store();
    let seen = beside(&store, &dir, false);
    let mut scan = seen.scan_partition(0, 0, None).unwrap();
    assert_eq!(scan.next_batch(3).unwrap().unwrap().offsets(), 0..3);
    store.topic("orders").unwrap().trim_before(6).unwrap();
    is_gone(scan.next_batch(3), 3, 6);
}

#[test]
fn a_merge_delivers_no_trimmed_record_that_it_had_compared_with_others() {
    let (_dir, store) = store();
    let clicks = store.topic_options("clicks").partitions(2).open().unwrap();
    let at =
        |event_time_ns| NewRecord { event_time_ns: Some(event_time_ns), ..NewRecord::new(b"v") };
    for n in 0..4 {
        clicks.append_to(0, &at(n), None).unwrap();
        clicks.append_to(1, &at(100 + n), None).unwrap();
    }
    let mut merged = clicks.scan_ranges(&[whole(0), whole(1)]).unwrap();
    assert_eq!(merged.next().unwrap().unwrap().partition(), 0);
    clicks.trim(&[(1, 2)]).unwrap();
    for _ in 0..2 {
        match merged.next().unwrap() {
            Err(Error::OffsetOutOfRange { partition: 1, offset: 0, first: 2, .. }) => {}
            found => panic!("{found:?}"),
        }
    }
}

/// A process dies in a roll, between the end block and the tail. The page stays so until the next
/// append. Readers look often, and list its directory once, whether they opened the log before or
/// after it.
#[test]
fn after_a_death_in_a_roll_readers_do_not_list_the_segments_again_for_each_look() {
    for reading in [Reading::Map, Reading::Pread] {
        let memory = MemoryStorage::new();
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        // It counts what the readers do, and no thread of a writer.
        let faulty = FaultyStorage::over_memory(memory);
        let store = stores::open(&storage, Path::new("/t")).unwrap();
        let orders = stores::topic(&store, "orders");
        stores::fill(&orders, 0, 20);
        let options = StoreOptions { reading, ..StoreOptions::reading() };
        let other = Store::open_on(Arc::new(faulty.clone()), Path::new("/t"), &options).unwrap();
        let seen = Topic::open(&other, "orders", &TopicOptions::default()).unwrap();
        assert_eq!(seen.scan_partition(0, 0, None).unwrap().count(), 20);
        stores::fill(&orders, 20, 300);
        let page = stores::log_dir(&storage, Path::new("/t"), "orders").join("control");
        let page = storage.open(&page, OpenMode::ReadWrite).unwrap();
        let page = page.map(4096, MapAccess::Write).unwrap();
        let words = [at::ALLOCATED, at::INDEXED, at::TAIL];
        let before = words.map(|word| page.load(word));
        orders.log().roll_now().unwrap();
        for (word, value) in words.iter().zip(before) {
            page.store(*word, value).unwrap();
        }
        // The next owner of the lock sees that a block may have been begun there.
        page.store(at::DIRTY, Address(before[2]).behind(64).0).unwrap();
        // The first look finds the new segment, and a walk how the others follow each other.
        assert_eq!(seen.end(0).unwrap(), 300);
        assert_eq!(seen.scan_partition(0, 0, None).unwrap().count(), 300);
        let late = Store::open_on(Arc::new(faulty.clone()), Path::new("/t"), &options).unwrap();
        let late = Topic::open(&late, "orders", &TopicOptions::default()).unwrap();
        assert_eq!(late.scan_partition(0, 0, None).unwrap().count(), 300);
        let listed = faulty.count(Call::List);
        for (i, topic) in (0..300).flat_map(|i| [(i, &seen), (i, &late)]) {
            assert_eq!(topic.get_in(0, i).unwrap().offset(), i);
            assert_eq!((topic.first(0).unwrap(), topic.end(0).unwrap()), (0, 300));
        }
        let looked = faulty.count(Call::Stat);
        assert_eq!(seen.scan_partition(0, 0, None).unwrap().count(), 300);
        assert_eq!(faulty.count(Call::List) - listed, 0);
        let looks = faulty.count(Call::Stat) - looked;
        assert!(looks < 30, "a scan of 300 records looked {looks} times");
        // The next process finishes the roll, appends and trims, and the readers see that.
        let next = stores::open(&storage, Path::new("/t")).unwrap();
        let next = stores::topic(&next, "orders");
        let mut scan = seen.scan_partition(0, 0, None).unwrap();
        assert_eq!(scan.next().unwrap().unwrap().offset(), 0);
        stores::fill(&next, 300, 310);
        next.trim(&[(0, 305)]).unwrap();
        is_gone(scan.next_batch(2), 1, 305);
        for topic in [seen, late] {
            assert_eq!((topic.first(0).unwrap(), topic.end(0).unwrap()), (305, 310));
        }
    }
}
