//! Limits in logs that several topics share, each with its own partitions.

use falaj::internals::store::TopicOptions;
use falaj::internals::topic::NewRecord;
use falaj_twin::memory::MemoryStorage;

use super::*;

const DAY_US: i64 = 86_400_000_000;

fn memory() -> (Arc<dyn Storage>, i64, Store) {
    let memory = MemoryStorage::new();
    let (now, storage): (_, Arc<dyn Storage>) = (memory.now_us(), Arc::new(memory));
    let store = open(&storage, Path::new("/store")).unwrap();
    (storage, now, store)
}

fn shared(store: &Store, name: &str, partitions: u32) -> Topic {
    let (segment_bytes, log) = (Some(64 << 10), Some("shop".into()));
    let partitions = Some(partitions);
    let options = TopicOptions { segment_bytes, partitions, log, ..TopicOptions::default() };
    Topic::open(store, name, &options).unwrap().with_sync(SyncMode::None)
}

/// Append a record of 500 bytes that is so many days old.
fn put(topic: &Topic, partition: u32, now_us: i64, days: i64) {
    let event_time_ns = Some((now_us - days * DAY_US) * 1000);
    let value = value(u64::from(partition));
    topic
        .append_to(partition, &NewRecord { event_time_ns, ..NewRecord::new(&value) }, None)
        .unwrap();
}

fn firsts(topic: &Topic) -> Vec<u64> {
    (0..topic.partitions()).map(|partition| topic.first(partition).unwrap()).collect()
}

#[test]
fn by_age_each_topic_of_a_log_goes_by_the_records_of_all_its_own_partitions_and_of_no_others() {
    let (_, now, store) = memory();
    // Numbers of partitions: 0, 1 and 2, 3, 4 and 5, 6.
    let (before, mixed) = (shared(&store, "before", 1), shared(&store, "mixed", 2));
    let (between, old) = (shared(&store, "between", 1), shared(&store, "old", 2));
    let young = shared(&store, "young", 1);
    for _ in 0..400 {
        put(&before, 0, now, 10);
        put(&mixed, 0, now, 10);
        put(&mixed, 1, now, 0);
        put(&between, 0, now, 10);
        put(&old, 0, now, 10);
        put(&old, 1, now, 9);
        put(&young, 0, now, 0);
    }
    young.flush().unwrap();
    for name in ["before", "mixed", "between", "old", "young"] {
        store.configure_topic(name, &age(DAY_US as u64 / 1000), None).unwrap();
    }
    store.maintain(false).unwrap();
    assert_eq!(firsts(&mixed), [0, 0], "a partition with young records keeps the files");
    assert_eq!(firsts(&young), [0]);
    for topic in [&before, &between, &old] {
        // All records outside the newest file.
        assert!(firsts(topic).iter().all(|first| *first > 350), "{topic:?}: {:?}", firsts(topic));
    }
}

#[test]
fn by_number_each_partition_of_each_topic_of_a_log_keeps_its_own() {
    let (storage, now, store) = memory();
    let (one, many) = (shared(&store, "one", 1), shared(&store, "many", 3));
    let last = shared(&store, "last", 1);
    for i in 0..600u32 {
        put(&one, 0, now, 0);
        put(&many, [0, 1, 1, 2, 2, 2][i as usize % 6], now, 0);
        put(&last, 0, now, 0);
    }
    last.flush().unwrap();
    store.configure_topic("many", &records(90), None).unwrap();
    store.maintain(false).unwrap();
    assert_eq!((firsts(&one), firsts(&last)), (vec![0], vec![0]));
    assert_eq!(firsts(&many), [10, 110, 210]);
    store.configure_topic("one", &records(7), None).unwrap();
    store.configure_topic("last", &records(600), None).unwrap();
    store.maintain(false).unwrap();
    assert_eq!(
        (firsts(&one), firsts(&many), firsts(&last)),
        (vec![593], vec![10, 110, 210], vec![0])
    );
    let before = segments(&storage, Path::new("/store"), "shop").len();
    store.configure_topic("last", &records(10), None).unwrap();
    store.configure_topic("many", &records(10), None).unwrap();
    store.maintain(false).unwrap();
    assert!(segments(&storage, Path::new("/store"), "shop").len() < before / 2);
}

#[test]
fn by_bytes_all_partitions_of_a_topic_begin_with_the_same_file() {
    let (_, now, store) = memory();
    let (one, two) = (shared(&store, "one", 1), shared(&store, "two", 2));
    let last = shared(&store, "last", 1);
    for _ in 0..400 {
        put(&one, 0, now, 0);
        put(&two, 0, now, 0);
        put(&two, 1, now, 0);
        put(&last, 0, now, 0);
    }
    last.flush().unwrap();
    store.configure_topic("two", &bytes(4 * (64 << 10)), None).unwrap();
    store.maintain(false).unwrap();
    assert_eq!((firsts(&one), firsts(&last)), (vec![0], vec![0]));
    let [a, b] = firsts(&two)[..] else { panic!("two partitions") };
    assert!(a.abs_diff(b) <= 1 && a > 200 && a < 400, "{a} and {b}");
}

#[test]
fn the_limit_of_the_store_goes_by_all_partitions_and_takes_of_all_of_them() {
    let (storage, now, store) = memory();
    let path = Path::new("/store");
    let (first, mixed) = (shared(&store, "first", 1), shared(&store, "mixed", 2));
    let other = topic(&store, "other").with_sync(SyncMode::None);
    for _ in 0..300 {
        put(&first, 0, now, 10);
        put(&mixed, 0, now, 10);
        put(&mixed, 1, now, 1);
        put(&other, 0, now, 5);
    }
    [&mixed, &other].into_iter().for_each(|topic| topic.flush().unwrap());
    let (shop, own) = (taken(&storage, path, "shop"), taken(&storage, path, "other"));
    // Half of `other` is enough, and each file of the shared log has a younger record.
    store.configure(Some(shop + own / 2)).unwrap();
    store.maintain(false).unwrap();
    assert!(other.first(0).unwrap() > 0);
    assert_eq!((firsts(&first), firsts(&mixed)), (vec![0], vec![0, 0]));
    store.configure(Some(shop / 2)).unwrap();
    assert!(store.maintain(false).unwrap().bytes <= shop / 2);
    let begin: Vec<_> = firsts(&first).into_iter().chain(firsts(&mixed)).collect();
    assert!(begin.iter().all(|at| *at > 50 && at.abs_diff(begin[0]) <= 1), "{begin:?}");
}
