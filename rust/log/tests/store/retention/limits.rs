//! The meaning of each limit.

use std::slice::from_ref;
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::error::Error;
use falaj::internals::format::consumer;
use falaj::internals::log::Removed;
use falaj::internals::queue::{LeasedJob, QueueFile, QueueOptions};
use falaj::internals::storage::OpenMode;
use falaj::internals::store::{Limit, TopicOptions};
use falaj::internals::topic::NewRecord;
use falaj_twin::memory::MemoryStorage;

use super::*;
use crate::stores::{on_both, open_to_read, segment};

const DAY_US: i64 = 86_400_000_000;

#[test]
fn whole_segments_beyond_a_size_go_and_what_is_left_is_no_larger() {
    on_both(|storage, root| {
        let path = root.join("store");
        let (store, orders) = filled(storage, &path, 900);
        let before = segments(storage, &path, "orders");
        let (limit, held) = (taken(storage, &path, "orders") / 2, orders.get_in(0, 5).unwrap());
        store.configure_topic("orders", &bytes(limit), None).unwrap();
        assert_eq!(segments(storage, &path, "orders"), before, "configuring must remove nothing");
        let planned = store.maintain(true).unwrap();
        assert_eq!((planned.dry_run, orders.first(0).unwrap()), (true, 0));
        let done = store.maintain(false).unwrap();
        let (cut, left) = (&done.logs[0].cuts[0], segments(storage, &path, "orders"));
        assert_eq!(planned.logs[0].cuts[0], *cut);
        assert_eq!(planned.logs[0].removed.segments, done.logs[0].removed.segments);
        assert_eq!((cut.from, cut.to, cut.limit), (0, orders.first(0).unwrap(), Limit::Bytes));
        let size = taken(storage, &path, "orders");
        assert!(size <= limit && done.bytes == size, "{size} of {limit}");
        assert!(left.len() > 1 && left[..] == before[before.len() - left.len()..], "{left:?}");
        // One more segment would have been too much: the next smaller cut.
        let own = |sequence| {
            let path = segment(storage, &path, "orders", sequence);
            let files = [path.with_extension("idx"), path];
            files.iter().map(|file| storage.stat(file).unwrap().allocated).sum::<u64>()
        };
        assert!(size + own(left[0]) > limit, "too much was deleted");
        assert_eq!(held.value(), Some(value(5).as_slice()), "a view must stay valid");
        assert_whole(&orders);
        assert_eq!(store.maintain(false).unwrap().logs[0].removed, Removed::default());
    });
}

#[test]
fn the_active_segment_stays_under_the_smallest_limits() {
    on_both(|storage, root| {
        let path = root.join("store");
        let (store, orders) = filled(storage, &path, 400);
        let active = *segments(storage, &path, "orders").last().unwrap();
        store.configure_topic("orders", &bytes(1), None).unwrap();
        store.configure_topic("orders", &age(1), None).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(segments(storage, &path, "orders"), [active]);
        let first = orders.first(0).unwrap();
        assert!(0 < first && first < 400, "all its records must be there: {first}");
        assert_whole(&orders);
    });
}

/// A store in memory with a clock that the test sets, and its time.
fn on_a_clock() -> (MemoryStorage, i64, Store) {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let store = open(&storage, Path::new("/store")).unwrap();
    (memory.clone(), memory.now_us(), store)
}

#[test]
fn a_limit_in_bytes_is_about_the_files_of_the_log_and_neighbours_fill_them_too() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let shared = |retention| {
            let (log, segment_bytes) = (Some("shop".into()), Some(64 << 10));
            TopicOptions { log, segment_bytes, retention, ..TopicOptions::default() }
        };
        let limit = 3 * (64 << 10);
        let opened = |name: &str, change| {
            Topic::open(&store, name, &shared(change)).unwrap().with_sync(SyncMode::None)
        };
        let quiet = opened("quiet", bytes(limit));
        fill(&quiet, 0, 5);
        let loud = opened("loud", RetentionChange::default());
        fill(&loud, 0, 600);
        fill(&quiet, 5, 10);
        quiet.flush().unwrap();
        let taken = store.maintain(false).unwrap().bytes;
        // Its own records take little space, and those outside the log's newest files are deleted.
        assert_eq!((quiet.first(0).unwrap(), quiet.end(0).unwrap()), (5, 10));
        // The neighbour has no limit, so it keeps all its records, and the files with them.
        assert_eq!((loud.first(0).unwrap(), loud.end(0).unwrap()), (0, 600));
        assert!(taken > limit);
        store.configure_topic("loud", &bytes(limit), None).unwrap();
        let taken = store.maintain(false).unwrap().bytes;
        assert!(taken <= limit && loud.first(0).unwrap() > 0);
        assert_whole(&quiet);
        assert_whole(&loud);
    });
}

#[test]
fn segments_of_which_every_record_is_too_old_go() {
    let (memory, began, store) = on_a_clock();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    for day in 0..4 {
        memory.set_now_us(began + day * DAY_US);
        fill(&orders, day as u64 * 300, day as u64 * 300 + 300);
    }
    orders.flush().unwrap();
    let days = |n: i64| age((n * DAY_US / 1000) as u64);
    for (most, oldest) in [(9, 0), (3, 0), (2, 300), (1, 600)] {
        store.configure_topic("orders", &days(most), None).unwrap();
        memory.set_now_us(began + 3 * DAY_US);
        store.maintain(false).unwrap();
        let first = orders.first(0).unwrap();
        assert!(first <= oldest, "{most} days: a young record was deleted: {first}");
        assert!(first + 130 > oldest, "{most} days: a whole segment too many was kept: {first}");
        assert_whole(&orders);
    }
}

#[test]
fn a_clock_that_ran_ahead_keeps_nothing_for_ever() {
    let (memory, began, store) = on_a_clock();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    let future = (began + 3650 * DAY_US) * 1000;
    orders
        .append_to(0, &NewRecord { event_time_ns: Some(future), ..NewRecord::new(&value(0)) }, None)
        .unwrap();
    fill(&orders, 1, 300);
    store.configure_topic("orders", &age(1000), None).unwrap();
    // Its file was last written now.
    orders.flush().unwrap();
    memory.set_now_us(began + DAY_US);
    store.maintain(false).unwrap();
    assert!(orders.first(0).unwrap() > 100);
}

#[test]
fn of_each_partition_so_many_records_stay() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        let (segment_bytes, partitions) = (Some(64 << 10), Some(3));
        let options = TopicOptions { segment_bytes, partitions, ..TopicOptions::default() };
        let orders = Topic::open(&store, "orders", &options).unwrap().with_sync(SyncMode::None);
        for i in 0..1000u64 {
            let partition = if i % 10 == 0 { 1 } else { 0 };
            orders.append_to(partition, &NewRecord::new(&value(i)), None).unwrap();
        }
        orders.flush().unwrap();
        store.configure_topic("orders", &records(50), None).unwrap();
        store.maintain(false).unwrap();
        let firsts: Vec<u64> = (0..3).map(|p| orders.first(p).unwrap()).collect();
        assert_eq!(firsts, [850, 50, 0]);
        // They share a log, and partition 1 reaches back to the middle.
        assert!(segments(storage, &root.join("store"), "orders")[0] > 0);
        store.configure_topic("orders", &records(5), None).unwrap();
        store.maintain(false).unwrap();
        assert_eq!((orders.first(0).unwrap(), orders.first(1).unwrap()), (895, 95));
        for partition in [0, 1] {
            let first = orders.first(partition).unwrap();
            let mut scan = orders.scan_partition(partition, first, None).unwrap();
            assert!((0..5).all(|_| scan.next().transpose().unwrap().is_some()));
            assert!(scan.next().transpose().unwrap().is_none());
        }
    });
}

#[test]
fn what_a_consumer_needs_stays_where_the_topic_waits_for_it() {
    on_both(|storage, root| {
        let (store, orders) = filled(storage, &root.join("store"), 900);
        let mut billing =
            GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest).unwrap();
        billing.commit("orders", 0, 333, true).unwrap();
        drop(billing);
        let waits = records(10).waits(true);
        store.configure_topic("orders", &waits, None).unwrap();
        for _ in 0..2 {
            let done = store.maintain(false).unwrap();
            let cut = &done.logs[0].cuts[0];
            assert_eq!((cut.to, cut.wanted, orders.first(0).unwrap()), (333, 890, 333));
        }
        store.configure(Some(1)).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 333, "the store's limit must wait too");
        let not = RetentionChange::default().waits(false);
        store.configure_topic("orders", &not, None).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 890);
    });
}

#[test]
fn what_a_consumer_with_offsets_in_a_log_needs_stays_and_no_more() {
    on_both(|storage, root| {
        let (store, orders) = filled(storage, &root.join("store"), 900);
        let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
        let sums = Topic::open(&store, "sums", &small).unwrap();
        let mut billing =
            GroupMember::open_in(&store, "billing", from_ref(&orders), Start::Earliest, &sums)
                .unwrap();
        let waits = records(10).waits(true);
        store.configure_topic("orders", &waits, None).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 0, "no record is read");
        billing.commit("orders", 0, 333, true).unwrap();
        billing.commit("orders", 0, 444, true).unwrap();
        store.maintain(false).unwrap();
        // The group's file says what is on the disk: a commit notes it of the commit before.
        assert_eq!(orders.first(0).unwrap(), 333);
    });
}

#[test]
fn what_a_queue_has_not_done_stays_where_the_topic_waits_for_it() {
    on_both(|storage, root| {
        let (store, orders) = filled(storage, &root.join("store"), 900);
        let queue = QueueFile::open(&orders, "jobs", QueueOptions::default()).unwrap();
        let waits = records(10).waits(true);
        store.configure_topic("orders", &waits, None).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 0, "no job is done");
        let lease = Duration::from_secs(60);
        let jobs = queue.take(&orders, 400, lease).unwrap();
        let jobs: Vec<_> = jobs.iter().map(LeasedJob::to_ack).collect();
        queue.ack(&orders, &jobs[..200]).unwrap();
        queue.ack(&orders, &jobs[250..]).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 200, "a job in flight is not done");
        queue.ack(&orders, &jobs[200..250]).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 400);
    });
}

/// Two records that are not on the disk, of a topic that keeps one and what is waited for.
fn two_unsynced(storage: &Arc<dyn Storage>, path: &Path) -> (Store, Topic) {
    let store = open(storage, path).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    store.configure_topic("orders", &records(1).waits(true), None).unwrap();
    for _ in 0..2 {
        orders.append_to(0, &NewRecord::new(b"v"), None).unwrap();
    }
    (store, orders)
}

#[test]
fn a_commit_counts_once_its_records_are_on_the_disk_without_another_commit() {
    on_both(|storage, root| {
        let (store, orders) = two_unsynced(storage, &root.join("store"));
        let mut billing =
            GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest).unwrap();
        billing.commit("orders", 0, 1, false).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 0, "no record is on the disk");
        orders.flush().unwrap();
        for _ in 0..2 {
            store.maintain(false).unwrap();
            assert_eq!(orders.first(0).unwrap(), 1);
        }
    });
}

/// A move is noted before the log has it, and a trim in between must not take where it goes.
#[test]
fn a_cursor_in_a_log_that_is_about_to_go_back_keeps_the_records_from_there() {
    on_both(|storage, root| {
        let (store, orders) = filled(storage, &root.join("store"), 900);
        let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
        let sums = Topic::open(&store, "sums", &small).unwrap();
        let mut billing =
            GroupMember::open_in(&store, "billing", from_ref(&orders), Start::Earliest, &sums)
                .unwrap();
        for offset in [333, 444] {
            billing.commit("orders", 0, offset, true).unwrap();
        }
        billing.seek_all(Some("orders"), Some(0), Start::Offset(100)).unwrap();
        let back = billing.moves().unwrap();
        store.configure_topic("orders", &records(10).waits(true), None).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 100);
        drop(back);
    });
}

#[test]
fn an_ack_and_a_dead_letter_count_once_their_records_are_on_the_disk() {
    for buries in [false, true] {
        on_both(|storage, root| {
            let (store, orders) = two_unsynced(storage, &root.join("store"));
            let queue = QueueFile::open(&orders, "jobs", QueueOptions::default()).unwrap();
            let jobs = queue.take(&orders, 1, Duration::from_secs(60)).unwrap();
            let jobs: Vec<_> = jobs.iter().map(LeasedJob::to_ack).collect();
            if buries {
                queue.bury(&orders, &jobs).unwrap();
            } else {
                queue.ack(&orders, &jobs).unwrap();
            }
            orders.flush().unwrap();
            for _ in 0..2 {
                store.maintain(false).unwrap();
                assert_eq!(orders.first(0).unwrap(), 1, "a dead letter: {buries}");
            }
        });
    }
}

#[test]
fn when_needs_are_unknown_nothing_is_deleted_and_the_reason_is_reported() {
    on_both(|storage, root| {
        let (store, orders) = filled(storage, &root.join("store"), 900);
        let mut billing =
            GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest).unwrap();
        billing.commit("orders", 0, 333, true).unwrap();
        drop(billing);
        let path = root.join("store/consumers/billing");
        let file = storage.open(&path, OpenMode::ReadWrite).unwrap();
        for sector in [1, 2] {
            file.write_at(&[7; 8], consumer::entry(0) + sector * consumer::SECTOR).unwrap();
        }
        let waits = records(10).waits(true);
        store.configure_topic("orders", &waits, None).unwrap();
        let done = store.maintain(false).unwrap();
        let problem = done.logs[0].problem.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(problem.contains("billing") && problem.contains("falaj group seek"), "{problem}");
        assert_eq!(orders.first(0).unwrap(), 0);
        let not = RetentionChange::default().waits(false);
        store.configure_topic("orders", &not, None).unwrap();
        store.maintain(false).unwrap();
        assert_eq!(orders.first(0).unwrap(), 890, "a topic that does not wait needs no answer");
    });
}

#[test]
fn the_store_as_a_whole_stays_below_its_limit_and_the_oldest_records_go_first() {
    let memory = MemoryStorage::new();
    let (began, path) = (memory.now_us(), Path::new("/store"));
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let store = open(&storage, path).unwrap();
    let open_topic = |name: &str| topic(&store, name).with_sync(SyncMode::None);
    let (old, young, kept) = (open_topic("old"), open_topic("young"), open_topic("kept"));
    for (day, each) in [(0, &kept), (1, &old), (2, &young)] {
        memory.set_now_us(began + day * DAY_US);
        fill(each, 0, 600);
        each.flush().unwrap();
    }
    let protects = RetentionChange::default().protected(true);
    store.configure_topic("kept", &protects, None).unwrap();
    let all: u64 = ["old", "young", "kept"].map(|name| taken(&storage, path, name)).iter().sum();
    let one = storage.stat(&segment(&storage, path, "old", 0)).unwrap().allocated;
    store.configure(Some(all - 2 * one)).unwrap();
    let done = store.maintain(false).unwrap();
    assert!(done.bytes <= all - 2 * one, "{} of {}", done.bytes, all - 2 * one);
    assert_eq!((kept.first(0).unwrap(), young.first(0).unwrap()), (0, 0), "younger, protected");
    assert!(done.bytes + 2 * one > all - 2 * one, "too much was deleted: {} of {all}", done.bytes);
    assert!(done.logs.iter().flat_map(|log| &log.cuts).all(|cut| cut.limit == Limit::Store));
    let after = old.first(0).unwrap();
    assert!(after > 0);
    store.configure(Some(1)).unwrap();
    store.maintain(false).unwrap();
    let lengths = ["old", "young"].map(|name| segments(&storage, path, name).len());
    assert_eq!((lengths, kept.first(0).unwrap()), ([1, 1], 0));
    assert!(old.first(0).unwrap() > after && young.first(0).unwrap() > 0);
    [&old, &young, &kept].into_iter().for_each(assert_whole);
}

/// The group needs everything from a segment's first record on.
///
/// So the records before it are deleted, and no more of this topic. The rest is deleted from a
/// younger topic, until the store is as small as its limit.
#[test]
fn what_a_consumer_needs_of_the_oldest_topic_is_deleted_of_a_younger_one_instead() {
    let memory = MemoryStorage::new();
    let (began, path) = (memory.now_us(), Path::new("/store"));
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let opened = || {
        let store = open(&storage, path).unwrap();
        let [old, young] =
            ["old", "young"].map(|name| topic(&store, name).with_sync(SyncMode::None));
        (store, old, young)
    };
    let (store, old, young) = opened();
    for (day, each) in [(0, &old), (1, &young)] {
        memory.set_now_us(began + day * DAY_US);
        fill(each, 0, 900);
        each.flush().unwrap();
    }
    // No roll waits for retention afterwards, so only these calls delete.
    drop((old, young, store));
    let (store, old, young) = opened();
    let all: u64 = ["old", "young"].map(|name| taken(&storage, path, name)).iter().sum();
    let one = storage.stat(&segment(&storage, path, "old", 0)).unwrap().allocated;
    store.configure(Some(all - 2 * one)).unwrap();
    let planned = store.maintain(true).unwrap();
    let cuts: Vec<_> = planned.logs.iter().flat_map(|log| &log.cuts).collect();
    let [cut] = cuts[..] else { panic!("{cuts:?}") };
    assert_eq!((&*cut.topic, old.first(0).unwrap()), ("old", 0));
    let needed = cut.to;
    let mut billing =
        GroupMember::open(&store, "billing", from_ref(&old), Start::Earliest).unwrap();
    billing.commit("old", 0, needed, true).unwrap();
    let waits = RetentionChange::default().waits(true);
    store.configure_topic("old", &waits, None).unwrap();
    store.configure(Some(all - 4 * one)).unwrap();
    let done = store.maintain(false).unwrap();
    assert_eq!(old.first(0).unwrap(), needed);
    assert!(young.first(0).unwrap() > 0);
    assert!(done.bytes <= all - 4 * one, "{} of {}", done.bytes, all - 4 * one);
    assert!(done.bytes + 2 * one > all - 4 * one, "too much was deleted: {} of {all}", done.bytes);
}

#[test]
fn a_reader_may_look_at_what_would_go_and_change_nothing() {
    on_both(|storage, root| {
        let path = root.join("store");
        let (store, _orders) = filled(storage, &path, 400);
        store.configure_topic("orders", &records(10), None).unwrap();
        let reader = open_to_read(storage, &path).unwrap();
        assert_eq!(reader.maintain(true).unwrap().logs[0].cuts[0].to, 390);
        for refused in [
            reader.maintain(false).map(drop),
            reader.configure(None).map(drop),
            reader.configure_topic("orders", &records(1), None).map(drop),
        ] {
            assert!(matches!(refused.unwrap_err(), Error::NotWritable { .. }));
        }
    });
}

#[test]
fn what_is_wrong_with_one_topic_does_not_keep_the_others_from_being_seen_to() {
    on_both(|storage, root| {
        let path = root.join("store");
        let (store, orders) = filled(storage, &path, 300);
        store.configure_topic("orders", &records(10), None).unwrap();
        let damaged = topic(&store, "damaged");
        let json = store.layout().topic_settings("damaged").unwrap();
        let file = storage.open(&json, OpenMode::ReadWrite).unwrap();
        file.write_at(b"?", 0).unwrap();
        let done = store.maintain(false).unwrap();
        assert!(done.problems[0].to_string().contains("damaged"), "{:?}", done.problems);
        assert_eq!((done.logs.len(), orders.first(0).unwrap()), (1, 290));
        drop(damaged);
    });
}
