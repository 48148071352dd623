//! The contents of a built store: all that the pieces had, and a timeline of its own.

use std::slice::from_ref;
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::format::origin::Origin;
use falaj::internals::format::settings::{StoreSettings, WriteMode};
use falaj::internals::queue::{LeasedJob, QueueFile, QueueOptions};
use falaj::internals::storage::{Filesystem, Stat};
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{CompactOptions, NewRecord, SyncMode, Topic, Transaction};
use falaj_twin::memory::MemoryStorage;

use super::*;
use crate::stores::{assert_holds, fill, log_dir, on_both, open, open_to_read, topic};

fn is_sound(store: &Store) {
    let found = store.verify(None, &mut quietly).unwrap();
    assert!(found.is_sound(), "{found:#?}");
}

#[test]
fn a_store_built_from_pieces_in_any_order_has_all_of_them_and_goes_on() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        fill(&topic(&store, "orders"), 0, 400);
        fill(&topic(&store, "paid"), 0, 3);
        topic(&store, "empty");
        let settings = store.settings().clone();
        drop(store);
        let taken = take_apart(&**storage, &path);
        for seed in 0..4 {
            let copy = root.join(format!("copy-{seed}"));
            let report = build(storage, &taken, &copy, seed).unwrap();
            assert_eq!((report.topics, report.logs), (3, 3));
            assert_eq!(report.segments, taken.segments.len() as u64);
            let bytes: u64 = taken.segments.iter().map(|segment| segment.bytes.len() as u64).sum();
            assert_eq!(report.bytes, bytes);
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            // No process has opened it yet: a reader finds it as one that was closed in order.
            let reader = open_to_read(storage, &copy).unwrap();
            let copied = Topic::open(&reader, "orders", &Default::default()).unwrap();
            assert_holds(&copied, 400);
            assert_eq!(copied.durable(0).unwrap(), 400);
            is_sound(&reader);
            drop(reader);
            for end in [600, 800] {
                let writer = open(storage, &copy).unwrap();
                assert_eq!(writer.settings(), &settings);
                let orders = topic(&writer, "orders");
                fill(&orders, end - 200, end);
                assert_holds(&orders, end);
                assert_holds(&topic(&writer, "paid"), 3);
                fill(&topic(&writer, "empty"), (end - 600) / 200, (end - 400) / 200);
                is_sound(&writer);
            }
        }
        let names = beside(storage, root);
        assert_eq!(names, ["copy-0", "copy-1", "copy-2", "copy-3", "store"]);
    });
}

#[test]
fn a_built_store_says_which_state_of_which_origin_it_was_made_of() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        fill(&topic(&store, "orders"), 0, 7);
        let generation = topic(&store, "orders").settings().generation;
        drop(store);
        let taken = take_apart(&**storage, &path);
        let report = build(storage, &taken, &root.join("copy"), 1).unwrap();
        let origin = Origin::decode(&read(&**storage, &root.join("copy/origin"))).unwrap();
        assert_eq!(origin.id, report.origin);
        let parent = origin.parent.unwrap();
        assert_eq!((parent.origin, parent.number), (PARENT.origin, PARENT.number));
        let ends: Vec<_> =
            parent.ends.iter().map(|end| (end.topic, end.partition, end.next)).collect();
        assert_eq!(ends, [(generation, 0, 7)]);
        assert_ne!(parent.ends[0].checksum, 0);
        let builder = begin(storage, &root.join("alone")).unwrap();
        give_all(&builder, &taken, 2).unwrap();
        builder.finish(None, &mut quietly).unwrap();
        let alone = Origin::decode(&read(&**storage, &root.join("alone/origin"))).unwrap();
        assert!(alone.parent.is_none() && alone.id != origin.id);
    });
}

/// The blocks that each of two stores wrote behind the same pieces: no byte of one passes in the other.
#[test]
fn two_stores_of_the_same_pieces_never_take_each_others_segments_for_their_own() {
    on_both(|storage, root| {
        let path = root.join("store");
        fill(&topic(&open(storage, &path).unwrap(), "orders"), 0, 30);
        let taken = take_apart(&**storage, &path);
        let newest = taken.segments.last().unwrap().sequence + 1;
        let mut files = Vec::new();
        for name in ["one", "two"] {
            let copy = root.join(name);
            build(storage, &taken, &copy, 5).unwrap();
            let store = open(storage, &copy).unwrap();
            let orders = topic(&store, "orders");
            for i in 0..5 {
                orders
                    .append_to(0, &NewRecord::new(format!("{name} {i}").as_bytes()), None)
                    .unwrap();
            }
            drop((orders, store));
            files.push(log_dir(storage, &copy, "orders").join(names::segment(newest)));
        }
        let [one, two] = [&files[0], &files[1]].map(|file| read(&**storage, file));
        let salt = |bytes: &[u8]| SegmentHeader::decode(bytes).unwrap().salt;
        assert_ne!(salt(&one), salt(&two));
        // The blocks of one in the file of the other, at the same places: the same lengths, offsets and topic.
        let file = storage.open(&files[1], OpenMode::ReadWrite).unwrap();
        file.write_at(&one[FIRST_BLOCK as usize..], FIRST_BLOCK).unwrap();
        let reader = open_to_read(storage, &root.join("two")).unwrap();
        let orders = Topic::open(&reader, "orders", &Default::default());
        let scanned = orders.and_then(|orders| {
            let mut scan = orders.scan_partition(0, 30, None)?;
            scan.next().transpose().map(drop)
        });
        assert!(scanned.is_err(), "a block of another timeline passed");
        assert!(!reader.verify(None, &mut quietly).unwrap().is_sound());
    });
}

#[test]
fn shared_logs_transactions_groups_and_queues_go_on_where_they_were() {
    on_both(|storage, root| {
        let path = root.join("store");
        let shared = |name: &str, partitions| TopicOptions {
            segment_bytes: Some(64 << 10),
            partitions: Some(partitions),
            log: Some(name.into()),
            ..TopicOptions::default()
        };
        let open_all = |path: &Path| {
            let store = open(storage, path).unwrap();
            let orders = Topic::open(&store, "orders", &shared("shop", 1)).unwrap();
            let sums = Topic::open(&store, "sums", &shared("shop", 3)).unwrap();
            (store, orders.with_sync(SyncMode::None), sums)
        };
        let (store, orders, sums) = open_all(&path);
        let small = QueueOptions { capacity: 64, ..QueueOptions::default() };
        let minute = Duration::from_secs(60);
        fill(&orders, 0, 150);
        let group = |orders: &Topic, sums: &Topic| {
            GroupMember::open_in(orders.store(), "billing", from_ref(orders), Start::Earliest, sums)
                .unwrap()
        };
        let mut billing = group(&orders, &sums);
        let in_file =
            || GroupMember::open(orders.store(), "mail", from_ref(&orders), Start::Earliest);
        let mut mail = in_file().unwrap();
        mail.commit("orders", 0, 17, true).unwrap();
        for n in 0..5 {
            let mut part = billing.parts().unwrap()[0];
            part.next += 10;
            billing.handed_out(&part);
            let mut tx = Transaction::new(&store);
            tx.append_to(&sums, n % 3, &NewRecord::new(b"sum")).unwrap();
            let moves = billing.commit_in(&mut tx).unwrap();
            billing.moved(&moves, tx.commit().unwrap().end());
        }
        let queue = QueueFile::open(&orders, "jobs", small).unwrap();
        let jobs: Vec<_> = queue.take(&orders, 20, minute).unwrap();
        let done: Vec<_> = jobs.iter().map(LeasedJob::to_ack).collect();
        queue.ack(&orders, &done[..12]).unwrap();
        orders.flush().unwrap();
        drop((mail, billing, queue, jobs, orders, sums, store));

        let taken = take_apart(&**storage, &path);
        let report = build(storage, &taken, &root.join("copy"), 3).unwrap();
        assert_eq!((report.topics, report.logs), (2, 1));
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let (store, orders, sums) = open_all(&root.join("copy"));
        is_sound(&store);
        assert_holds(&orders, 150);
        assert_eq!((0..3).map(|p| sums.end(p).unwrap()).sum::<u64>(), 5);
        assert_eq!(group(&orders, &sums).parts().unwrap()[0].next, 50);
        let mail = GroupMember::open(&store, "mail", from_ref(&orders), Start::Earliest).unwrap();
        assert_eq!(mail.next("orders", 0).unwrap(), 17);
        let queue = QueueFile::open(&orders, "jobs", small).unwrap();
        let jobs = queue.take(&orders, 10, minute).unwrap();
        let offsets: Vec<_> = jobs.iter().map(|job| job.lease.offset).collect();
        assert_eq!(
            offsets,
            (12..22).collect::<Vec<_>>(),
            "done jobs stay done, the others are ready"
        );
        let mut tx = Transaction::new(&store);
        tx.append(&orders, NewRecord::new(b"more")).unwrap();
        tx.append_to(&sums, 1, &NewRecord::new(b"more")).unwrap();
        tx.commit().unwrap();
        is_sound(&store);
    });
}

#[test]
fn a_trimmed_log_is_built_from_where_it_begins_and_goes_on() {
    on_both(|storage, root| {
        let path = root.join("store");
        let options = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
        let value = |i: u64| vec![i as u8; 900];
        let fill = |orders: &Topic, from: u64, to: u64| {
            for i in from..to {
                let value = value(i);
                assert_eq!(orders.append_to(0, &NewRecord::new(&value), None).unwrap(), i);
            }
        };
        let store = open(storage, &path).unwrap();
        let orders = Topic::open(&store, "orders", &options).unwrap().with_sync(SyncMode::None);
        fill(&orders, 0, 300);
        orders.flush().unwrap();
        let all = storage.list(&log_dir(storage, &path, "orders")).unwrap().len();
        orders.trim(&[(0, 150)]).unwrap();
        let left = storage.list(&log_dir(storage, &path, "orders")).unwrap().len();
        assert!(left < all, "no segment was removed");
        orders.flush().unwrap();
        drop((orders, store));
        let copy = root.join("copy");
        build(storage, &take_apart(&**storage, &path), &copy, 5).unwrap();
        let store = open(storage, &copy).unwrap();
        let orders = Topic::open(&store, "orders", &options).unwrap().with_sync(SyncMode::None);
        assert_eq!((orders.first(0).unwrap(), orders.end(0).unwrap()), (150, 300));
        fill(&orders, 300, 310);
        let scan = orders.scan_partition(0, 150, None).unwrap();
        let found: Vec<_> = scan.map(|record| record.unwrap()).collect();
        assert_eq!(found.len(), 160);
        for (i, record) in (150..).zip(&found) {
            assert_eq!((record.offset(), record.value()), (i, Some(value(i).as_slice())));
        }
        is_sound(&store);
    });
}

#[test]
fn a_compacted_log_is_built_with_its_gaps_and_holes_and_compacts_again() {
    on_both(|storage, root| {
        let path = root.join("store");
        let options = TopicOptions {
            segment_bytes: Some(64 << 10),
            compacted: Some(true),
            ..TopicOptions::default()
        };
        let keyed = |orders: &Topic, from: u64, to: u64| {
            for i in from..to {
                let (key, value) = (format!("key-{}", i % 5), vec![i as u8; 900]);
                let record = NewRecord {
                    key: Some(key.as_bytes()),
                    value: Some(&value),
                    ..NewRecord::default()
                };
                assert_eq!(orders.append_to(0, &record, None).unwrap(), i);
            }
        };
        let all = |orders: &Topic| -> Vec<(u64, Option<Vec<u8>>)> {
            let scan = orders.scan_partition(0, orders.first(0).unwrap(), None).unwrap();
            let found = scan.map(|record| record.unwrap());
            found.map(|record| (record.offset(), record.value().map(<[u8]>::to_vec))).collect()
        };
        let store = open(storage, &path).unwrap();
        let orders = Topic::open(&store, "orders", &options).unwrap().with_sync(SyncMode::None);
        // Segments that are full: what is left of them leaves most of the last one void.
        keyed(&orders, 0, 300);
        orders.flush().unwrap();
        orders.compact(&CompactOptions::default(), &mut quietly).unwrap();
        keyed(&orders, 300, 400);
        orders.flush().unwrap();
        let before = all(&orders);
        assert!(before.len() < 200, "nothing was compacted");
        drop((orders, store));
        let taken = take_apart(&**storage, &path);
        let copy = root.join("copy");
        build(storage, &taken, &copy, 4).unwrap();
        let stats = taken.segments.iter().map(|segment| {
            let path = log_dir(storage, &copy, "orders").join(names::segment(segment.sequence));
            storage.stat(&path).unwrap()
        });
        let stats: Vec<_> = stats.collect();
        let is_sparse = |stat: &Stat| stat.allocated + (16 << 10) < stat.len;
        assert!(stats.iter().any(is_sparse), "no segment has a hole: {stats:?}");
        let store = open(storage, &copy).unwrap();
        let orders = Topic::open(&store, "orders", &options).unwrap().with_sync(SyncMode::None);
        assert_eq!(all(&orders), before);
        keyed(&orders, 400, 500);
        orders.log().roll_now().unwrap();
        orders.flush().unwrap();
        orders.compact(&CompactOptions::default(), &mut quietly).unwrap();
        assert!(all(&orders).len() < 100 && orders.end(0).unwrap() == 500);
        is_sound(&store);
        drop((orders, store));
        // And once more: the timeline began in the middle of what is compacted now.
        let taken = take_apart(&**storage, &copy);
        build(storage, &taken, &root.join("third"), 6).unwrap();
        let store = open(storage, &root.join("third")).unwrap();
        is_sound(&store);
    });
}

#[test]
fn how_the_store_is_written_follows_from_the_file_system_it_is_built_on() {
    let root = Path::new("/");
    let mapped = MemoryStorage::new();
    let machine: Arc<dyn Storage> = Arc::new(mapped.clone());
    fill(&topic(&open(&machine, &root.join("store")).unwrap(), "orders"), 0, 200);
    let taken = take_apart(&*machine, &root.join("store"));
    let mode = |storage: &Arc<dyn Storage>| {
        StoreSettings::decode(&read(&**storage, &root.join("copy/falaj.json"))).unwrap().write_mode
    };
    let other: Arc<dyn Storage> =
        Arc::new(MemoryStorage::new().on(Filesystem::CopyOnWrite("btrfs")).seeded(3));
    build(&other, &taken, &root.join("copy"), 1).unwrap();
    assert_eq!(mode(&other), WriteMode::Pwrite);
    let store = open(&other, &root.join("copy")).unwrap();
    let orders = topic(&store, "orders");
    fill(&orders, 200, 300);
    assert_holds(&orders, 300);
    is_sound(&store);
    drop((orders, store));
    // And back.
    let taken = take_apart(&*other, &root.join("copy"));
    build(&machine, &taken, &root.join("copy"), 1).unwrap();
    assert_eq!(mode(&machine), WriteMode::Mapped);
    let store = open(&machine, &root.join("copy")).unwrap();
    let orders = topic(&store, "orders");
    fill(&orders, 300, 320);
    assert_holds(&orders, 320);
    let remote: Arc<dyn Storage> = Arc::new(MemoryStorage::new().on(Filesystem::Remote("nfs")));
    let refused = begin(&remote, &root.join("copy")).unwrap_err();
    assert!(matches!(refused, Error::UnsupportedFilesystem { .. }), "{refused}");
    let options = PieceOptions { allow_network_fs: true, ..PieceOptions::default() };
    let builder = PieceBuilder::begin_on(Arc::clone(&remote), &root.join("copy"), options).unwrap();
    give_all(&builder, &taken, 2).unwrap();
    builder.finish(None, &mut quietly).unwrap();
    assert_eq!(mode(&remote), WriteMode::Pwrite);
}

#[test]
fn permissions_are_those_that_were_asked_for() {
    on_both(|storage, root| {
        let path = root.join("store");
        fill(&topic(&open(storage, &path).unwrap(), "orders"), 0, 3);
        let taken = take_apart(&**storage, &path);
        let copy = root.join("copy");
        let options = PieceOptions { mode: 0o750, ..PieceOptions::default() };
        let builder = PieceBuilder::begin_on(Arc::clone(storage), &copy, options).unwrap();
        give_all(&builder, &taken, 1).unwrap();
        builder.finish(None, &mut quietly).unwrap();
        let store = open(storage, &copy).unwrap();
        assert_eq!(store.modes().directory, 0o750);
        let mode = |path: &Path| storage.stat(path).unwrap().mode;
        let log = log_dir(storage, &copy, "orders");
        assert_eq!(mode(&copy.join("logs")), 0o750);
        assert_eq!(mode(&log), 0o750);
        for file in [names::segment(0), names::segment(1)] {
            assert_eq!(mode(&log.join(file)), 0o640);
        }
        assert_eq!(mode(&log.join("lock")), 0o600, "a reader could lock out writers");
        assert_eq!(mode(&copy.join("falaj.json")), 0o640);
        let options = PieceOptions { mode: 0o640, ..PieceOptions::default() };
        let refused = PieceBuilder::begin_on(Arc::clone(storage), &root.join("x"), options);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    });
}

#[test]
fn a_log_that_no_topic_names_is_left_out() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        fill(&topic(&store, "orders"), 0, 3);
        fill(&topic(&store, "gone"), 0, 3);
        drop(store);
        let mut taken = take_apart(&**storage, &path);
        taken.files.retain(|file| file.path != "topics/gone/topic.json");
        let report = build(storage, &taken, &root.join("copy"), 1).unwrap();
        assert_eq!((report.topics, report.logs), (1, 1));
        assert_eq!(storage.list(&root.join("copy/logs")).unwrap().len(), 1);
        is_sound(&open(storage, &root.join("copy")).unwrap());
    });
}

#[test]
fn threads_write_at_once_and_segments_beyond_the_open_files_are_whole() {
    let directory = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(falaj::internals::storage::real::RealStorage::new());
    let path = directory.path().join("store");
    let store = Store::open_with(&path, &StoreOptions::default()).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 0, 5000);
    orders.flush().unwrap();
    drop((orders, store));
    let taken = take_apart(&*storage, &path);
    assert!(taken.segments.len() > 36, "{}", taken.segments.len());
    let builder = begin(&storage, &directory.path().join("copy")).unwrap();
    taken.files.iter().for_each(|file| give_file(&builder, file).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (builder, taken) = (&builder, &taken);
            scope.spawn(move || {
                for segment in taken.segments.iter().skip(thread).step_by(4) {
                    give_segment(builder, segment).unwrap();
                    for (start, end) in chunks(segment, &mut Draws(segment.sequence)) {
                        let bytes = &segment.bytes[start as usize..end as usize];
                        builder.write(&segment.log, segment.sequence, start, bytes).unwrap();
                    }
                }
            });
        }
    });
    let mut told = Vec::new();
    builder
        .finish(None, &mut |done, total| {
            told.push((done, total));
            Ok(())
        })
        .unwrap();
    let (done, total) = *told.last().unwrap();
    assert!(done == total && told.len() > 10 && told.is_sorted(), "{done} of {total}");
    let store = open(&storage, &directory.path().join("copy")).unwrap();
    assert_holds(&topic(&store, "orders"), 5000);
}
