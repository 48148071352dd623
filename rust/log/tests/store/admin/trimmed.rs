//! Administration of a store whose oldest segments were removed: it is whole, and verifies.

use std::sync::atomic::{AtomicBool, Ordering};

use falaj::internals::error::Error;
use falaj::internals::format::names;
use falaj::internals::store::{StoreOptions, repair};
use falaj::internals::topic::{SyncMode, Topic};

use crate::stores::{fill, log_dir, on_both, open, open_to_read, quietly, topic, value};

fn holds(topic: &Topic, first: u64, end: u64) {
    assert_eq!((topic.first(0).unwrap(), topic.end(0).unwrap()), (first, end));
    let mut scan = topic.scan_partition(0, first, None).unwrap();
    for i in first..end {
        let record = scan.next().transpose().unwrap().unwrap();
        assert_eq!((record.offset(), record.value()), (i, Some(value(i).as_slice())));
    }
    assert!(scan.next().transpose().unwrap().is_none());
    for gone in [0, first.saturating_sub(1)] {
        for error in
            [topic.get_in(0, gone).map(drop), topic.scan_partition(0, gone, None).map(drop)]
        {
            let error = error.unwrap_err();
            let Error::OffsetOutOfRange { topic: name, first: told, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((name.as_str(), *told), (topic.name(), first));
        }
    }
}

#[test]
fn a_trimmed_store_verifies_is_copied_recovered_and_repaired_whole() {
    on_both(|storage, root| {
        let (path, copy) = (root.join("store"), root.join("copy"));
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        fill(&orders, 0, 900);
        let planned = orders.plan_trim(&[(0, 777)]).unwrap();
        let removed = orders.trim(&[(0, 777)]).unwrap();
        assert!(removed.segments > 2, "{removed:?}");
        assert_eq!(planned.sequences.len() as u64, removed.segments);
        assert!(planned.bytes >= removed.bytes, "a sync frees the unused end of a segment");
        holds(&orders, 777, 900);
        let found = store.verify(None, &mut quietly).unwrap();
        assert!(found.is_sound(), "{found:?}");
        store.backup(&copy, &mut quietly).unwrap();
        drop((orders, store));
        for (path, end) in [(path, 900), (copy, 900)] {
            let reader = open_to_read(storage, &path).unwrap();
            holds(&Topic::open(&reader, "orders", &Default::default()).unwrap(), 777, end);
            assert!(reader.verify(None, &mut quietly).unwrap().is_sound());
            let store = open(storage, &path).unwrap();
            let orders = topic(&store, "orders");
            holds(&orders, 777, end);
            fill(&orders, end, end + 300);
            orders.trim(&[(0, end + 200)]).unwrap();
            drop((orders, store));
            let mended = repair(storage.clone(), &path, &StoreOptions::default(), false).unwrap();
            assert!(mended.logs.iter().all(|log| log.problem.is_none()), "{mended:?}");
            let store = open(storage, &path).unwrap();
            holds(&topic(&store, "orders"), end + 200, end + 300);
        }
    });
}

#[test]
fn a_trimmed_log_that_lost_more_than_was_trimmed_is_damaged() {
    on_both(|storage, root| {
        let (path, copy) = (root.join("store"), root.join("copy"));
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        fill(&orders, 0, 900);
        orders.trim(&[(0, 300)]).unwrap();
        drop((orders, store));
        let dir = log_dir(storage, &path, "orders");
        let names = storage.list(&dir).unwrap();
        let oldest = names.iter().find(|name| names::parse_segment(name).is_some()).unwrap();
        storage.unlink(&dir.join(oldest)).unwrap();
        let reader = open_to_read(storage, &path).unwrap();
        let found = reader.verify(None, &mut quietly).unwrap();
        assert!(!found.is_sound());
        let orders = Topic::open(&reader, "orders", &Default::default()).unwrap();
        assert!(matches!(orders.first(0), Err(Error::CorruptData { .. })));
        assert!(matches!(orders.get_in(0, 300), Err(Error::CorruptData { .. })));
        assert!(matches!(reader.backup(&copy, &mut quietly), Err(Error::CorruptData { .. })));
    });
}

#[test]
fn a_backup_and_a_verification_beside_trims_are_whole() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        fill(&orders, 0, 200);
        let (stop, other) = (AtomicBool::new(false), open_to_read(storage, &path).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = 200;
                while !stop.load(Ordering::Relaxed) && next < 4000 {
                    fill(&orders, next, next + 40);
                    next += 40;
                    orders.trim(&[(0, next - 150)]).unwrap();
                }
            });
            for round in 0..5 {
                let copy = root.join(format!("copy{round}"));
                // If segments are removed all the time, it may give up, and then names the missing
                // one.
                if other.backup(&copy, &mut quietly).is_ok() {
                    let copied = open(storage, &copy).unwrap();
                    let copied = topic(&copied, "orders");
                    let (first, end) = (copied.first(0).unwrap(), copied.end(0).unwrap());
                    assert!(first > 0 || end >= 200);
                    let mut scan = copied.scan_partition(0, first, None).unwrap();
                    for i in first..end {
                        let record = scan.next().transpose().unwrap().unwrap();
                        assert_eq!(record.value(), Some(value(i).as_slice()));
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(other.verify(None, &mut quietly).unwrap().is_sound());
    });
}
