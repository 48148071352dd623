//! Limits and seeks by a number of records count records that exist, wherever compaction left
//! offsets without any.

use std::ops::Range;
use std::slice::from_ref;
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::queue::{QueueFile, QueueOptions};
use falaj::internals::segment::Reading;
use falaj::internals::store::{CountFrom, Limit, RetentionChange, StoreOptions};
use falaj_twin::faulty::{Call, FaultyStorage};

use super::*;
use crate::retention::rolling::until;
use crate::stores::{flip, on_both, segment};

/// A topic with four records; the last one has the offset 5002.
fn sparse(store: &Store) -> Topic {
    let prices = topic(store);
    let of = |key: u64, value: u64| {
        let (key, value) = (key.to_string(), value.to_string());
        let record = NewRecord { key: Some(key.as_bytes()), ..NewRecord::new(value.as_bytes()) };
        prices.append_to(0, &record, None).unwrap();
    };
    (0..3).for_each(|number| of(number, number));
    (3..5003).for_each(|number| of(3, number));
    seal(&prices);
    compact(&prices).unwrap();
    assert_eq!(offsets(&prices), [0, 1, 2, 5002]);
    prices
}

fn offsets(topic: &Topic) -> Vec<u64> {
    let (mut found, first) = (Vec::new(), topic.first(0).unwrap());
    let mut scan = topic.scan_partition(0, first, Some(topic.end(0).unwrap())).unwrap();
    while let Some(record) = scan.next().transpose().unwrap() {
        found.push(record.offset());
    }
    found
}

fn records(limit: u64) -> RetentionChange {
    RetentionChange::default().records(limit)
}

/// Compare counts of a topic with the offsets that a read finds.
fn counts_as_read(topic: &Topic, there: &[u64], story: &str) {
    let (first, end) = (topic.first(0).unwrap(), topic.end(0).unwrap());
    let below = |at: u64| there.partition_point(|offset| *offset < at);
    let bounds: Vec<_> = (0..10).map(|i| first + (end - first) * i / 9).collect();
    for (i, from) in bounds.iter().enumerate() {
        for to in &bounds[i..] {
            let counted = topic.count_in(0, *from, Some(*to)).unwrap();
            assert_eq!(counted, (below(*to) - below(*from)) as u64, "{story}: {from}..{to}");
        }
        let before = &there[..below(*from)];
        for records in [0, 1, 2, 3, 7, 50, 999, 1024, 1025, 1100, 2500, before.len()] {
            let wanted = match before.len().checked_sub(records) {
                Some(_) if records == 0 => *from,
                Some(at) => before[at],
                None => first,
            };
            let found = topic.start_of_last(0, records as u64, Some(*from)).unwrap();
            let same = below(found) == below(wanted);
            assert!(same, "{story}: {records} before {from}: {found}, not {wanted}");
            let is_exact = records == 0 || found == wanted || found == first;
            assert!(is_exact, "{story}: {records} before {from}: {found}, not {wanted}");
        }
    }
    assert_eq!(topic.count_in(0, 0, None).unwrap(), there.len() as u64, "{story}");
}

#[test]
fn counting_says_what_reading_finds_whatever_was_compacted_and_trimmed() {
    on_both(|storage, dir| {
        // Small segments, and segments with many slots.
        for segment_bytes in [64 << 10, 512 << 10] {
            count_all(storage, &dir.join(segment_bytes.to_string()), segment_bytes);
        }
    });
}

fn count_all(storage: &Arc<dyn Storage>, path: &Path, segment_bytes: u64) {
    let store = open(storage, path).unwrap();
    let options = TopicOptions { segment_bytes: Some(segment_bytes), ..options(1) };
    let prices = Topic::open(&store, "prices", &options).unwrap().with_sync(SyncMode::None);
    let mut history = History::new();
    // Other processes that have it open learn of compactions only by looking.
    let other = Topic::open(&open_to_read(storage, path).unwrap(), "prices", &options);
    let other = other.unwrap();
    counts_as_read(&other, &[], "empty");
    for (records, keys, trim) in
        [(4000, 3000, 0), (1500, 400, 0), (0, 1, 333), (2000, 1500, 2100), (900, 5, 0)]
    {
        fill(&prices, &mut history, records, keys);
        prices.flush().unwrap();
        let there = offsets(&prices);
        counts_as_read(&prices, &there, "before it was compacted");
        counts_as_read(&other, &there, "before it was compacted, elsewhere");
        compact(&prices).unwrap();
        if trim > 0 {
            prices.trim(&[(0, trim)]).unwrap();
        }
        let there = offsets(&prices);
        let story = format!("{} records, {} are there", history.len(), there.len());
        counts_as_read(&prices, &there, &story);
        counts_as_read(&other, &there, &format!("{story}, elsewhere"));
    }
    let there = offsets(&prices);
    assert!(there.len() < history.len() / 2 && there.len() > 2400, "{}", there.len());
    drop((prices, store));
    for reading in [Reading::Map, Reading::Pread] {
        let how = StoreOptions { reading, ..StoreOptions::reading() };
        let store = Store::open_on(Arc::clone(storage), path, &how).unwrap();
        let prices = Topic::open(&store, "prices", &options).unwrap();
        counts_as_read(&prices, &there, "opened again");
    }
}

#[test]
fn of_several_partitions_each_counts_its_own_records() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let prices = Topic::open(&store, "prices", &options(3)).unwrap().with_sync(SyncMode::None);
    for number in 0..3000u64 {
        let (key, value) = (key(number % 7), value(number, 60));
        let record = NewRecord { key: Some(&key), ..NewRecord::new(&value) };
        prices.append_to((number % 10 == 0).into(), &record, None).unwrap();
    }
    seal(&prices);
    compact(&prices).unwrap();
    let counted: Vec<_> = (0..3).map(|p| prices.count_in(p, 0, None).unwrap()).collect();
    let spanned: Vec<_> = (0..3).map(|p| prices.end(p).unwrap()).collect();
    assert_eq!((counted, spanned), (vec![7, 7, 0], vec![2700, 300, 0]));
    assert_eq!(
        prices.start_of_last(1, 7, None).unwrap(),
        prices.start_of_last(1, 99, None).unwrap() + 293
    );
}

#[test]
fn a_limit_by_number_keeps_as_many_records_on_a_compacted_topic() {
    on_both(|storage, dir| {
        let path = dir.join("store");
        let store = open(storage, &path).unwrap();
        drop((sparse(&store), store));
        // No roll waits for retention now, so only these calls delete.
        let store = open(storage, &path).unwrap();
        let prices = topic(&store);
        for (limit, kept) in
            [(1000, &[0, 1, 2, 5002][..]), (4, &[0, 1, 2, 5002]), (3, &[1, 2, 5002]), (1, &[5002])]
        {
            store.configure_topic("prices", &records(limit), None).unwrap();
            let planned = store.maintain(true).unwrap();
            let done = store.maintain(false).unwrap();
            assert_eq!(planned.logs[0].cuts, done.logs[0].cuts);
            assert!(done.logs[0].cuts.iter().all(|cut| cut.limit == Limit::Records));
            assert_eq!(offsets(&prices), kept, "limit {limit}");
        }
    });
}

#[test]
fn a_roll_keeps_as_many_records_on_a_compacted_topic() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let prices = sparse(&store);
    let beside = TopicOptions { log: Some("prices".into()), ..TopicOptions::default() };
    let ticks = Topic::open(&store, "ticks", &beside).unwrap().with_sync(SyncMode::None);
    for name in ["prices", "ticks"] {
        store.configure_topic(name, &records(1000), None).unwrap();
    }
    let fill = |topic: &Topic, count: u64| {
        let value = [7; 500];
        for _ in 0..count {
            topic.append_to(0, &NewRecord::new(&value), None).unwrap();
        }
    };
    // Rolls that trim nothing of this topic, while they trim the one beside it.
    fill(&prices, 900);
    fill(&ticks, 1800);
    until("a roll has trimmed the topic beside it", || ticks.first(0).unwrap() > 0);
    assert_eq!(offsets(&prices)[..4], [0, 1, 2, 5002]);
    fill(&prices, 900);
    until("the limit is reached", || prices.first(0).unwrap() > 5003);
    assert!(prices.count_in(0, 0, None).unwrap() >= 1000);
}

#[test]
fn a_consumer_seeks_and_lags_by_records_and_a_queue_waits_for_as_many_jobs() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let prices = sparse(&store);
    let mut group =
        GroupMember::open(&store, "billing", from_ref(&prices), Start::Last(2)).unwrap();
    assert_eq!(group.committed("prices", 0).unwrap(), 2);
    assert_eq!(group.lag("prices", 0).unwrap(), 2);
    assert_eq!(group.seek("prices", 0, Start::Last(3)).unwrap(), 1);
    assert_eq!(group.seek("prices", 0, Start::Last(99)).unwrap(), 0);
    // In a gap.
    group.commit("prices", 0, 3000, true).unwrap();
    assert_eq!(group.lag("prices", 0).unwrap(), 1);
    let queue = QueueFile::open(&prices, "jobs", QueueOptions::default()).unwrap();
    assert_eq!(queue.info(&prices).unwrap().ready, 4);
    assert_eq!(queue.take(&prices, 2, Duration::from_secs(60)).unwrap().len(), 2);
    assert_eq!(queue.info(&prices).unwrap().ready, 2);
    let from = |offset| CountFrom {
        topic: "prices".into(),
        generation: prices.settings().generation,
        partition: 0,
        offset,
    };
    let gone = CountFrom { generation: [9; 16], ..from(0) };
    let none = CountFrom { partition: 1, ..from(0) };
    let places = [from(0), from(3), from(5002), from(5003), from(u64::MAX), gone, none];
    let counted = store.count_from(&places);
    assert_eq!(counted, [Some(4), Some(1), Some(1), Some(0), Some(0), None, None]);
}

#[test]
fn what_was_counted_once_is_not_read_again() {
    let (memory, _) = machine();
    let faulty = FaultyStorage::over_memory(memory);
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 8000, 6000);
    seal(&prices);
    compact(&prices).unwrap();
    let there = offsets(&prices).len() as u64;
    let options = StoreOptions { reading: Reading::Pread, ..StoreOptions::reading() };
    let reader = Store::open_on(Arc::clone(&storage), STORE, &options).unwrap();
    let generation = prices.settings().generation;
    let place = CountFrom { topic: "prices".into(), generation, partition: 0, offset: 0 };
    let reads = || {
        let before = faulty.count(Call::Read);
        assert_eq!(reader.count_from(from_ref(&place)), [Some(there)]);
        faulty.count(Call::Read) - before
    };
    let (first, second) = (reads(), reads());
    assert!(first > 100, "the store is too small for this test: {first}");
    // Each opens the log, and so reads the beginnings of its files.
    assert!(second * 2 < first, "{first}, then {second}");
}

/// A compacted topic with an unreadable block in the middle of a sealed segment.
///
/// Returns the remaining offsets before and after the block in that segment, and the file.
fn corrupt(storage: &Arc<dyn Storage>) -> (Store, Topic, Vec<u64>, Range<u64>, std::path::PathBuf) {
    let store = open(storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 6000, 4000);
    seal(&prices);
    compact(&prices).unwrap();
    let there = offsets(&prices);
    let mut scan = prices.scan_partition(0, there[there.len() / 2], None).unwrap();
    let batch = scan.next_batch(1).unwrap().unwrap();
    let block = batch.block(0);
    assert!(block.is_compacted());
    flip(storage, block.path(), block.position() + 9);
    let (path, lost) = (block.path().to_path_buf(), block.first()..batch.offsets().end);
    drop((prices, scan, batch, store));
    let store = open(storage, Path::new(STORE)).unwrap();
    let prices = topic(&store);
    (store, prices, there, lost, path)
}

#[test]
fn where_corruption_hides_how_many_there_are_nothing_is_deleted_and_the_file_is_named() {
    let (_, storage) = machine();
    let (store, prices, there, lost, path) = corrupt(&storage);
    let behind = there.iter().filter(|at| **at >= lost.end).count() as u64;
    // Records after it are found, and numbers that depend on it are not guessed.
    let found = prices.start_of_last(0, behind, None).unwrap();
    assert_eq!(found, there[there.len() - behind as usize]);
    let error = prices.start_of_last(0, behind + 100, None).unwrap_err();
    let Error::CorruptData { path: named, .. } = &error else { panic!("{error}") };
    assert_eq!(*named, path);
    let many = there.len() as u64 * 10;
    assert_eq!(
        prices.start_of_last(0, many, None).unwrap(),
        0,
        "more records than there are offsets"
    );
    // A lag is still reported: each of those offsets counts.
    let counted = prices.count_in(0, 0, None).unwrap();
    let known = there.iter().filter(|at| !lost.contains(at)).count() as u64;
    assert_eq!(counted, known + (lost.end - lost.start));
    assert_eq!(prices.count_in(0, lost.end, None).unwrap(), behind);
    let inside = lost.start + (lost.end - lost.start) / 2;
    assert_eq!(prices.count_in(0, inside, None).unwrap(), behind + (lost.end - inside));

    store.configure_topic("prices", &records(behind + 100), None).unwrap();
    let done = store.maintain(false).unwrap();
    let problem = done.logs[0].problem.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(problem.contains(&*path.to_string_lossy()), "{problem}");
    assert_eq!((done.logs[0].cuts.len(), prices.first(0).unwrap()), (0, 0));
    // Another limit removes as usual.
    let bytes = RetentionChange::default().bytes(1);
    store.configure_topic("prices", &bytes, None).unwrap();
    let done = store.maintain(false).unwrap();
    assert!(done.logs[0].problem.is_some() && done.logs[0].removed.segments > 0, "{done:?}");
    assert!(prices.first(0).unwrap() > lost.end);
    assert!(store.maintain(false).unwrap().logs[0].problem.is_none());
}

#[test]
fn a_compacted_file_whose_beginning_is_corrupt_is_named_and_the_newer_ones_are_counted() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 9000, 6000);
    seal(&prices);
    compact(&prices).unwrap();
    let (there, files) = (offsets(&prices), segments(&storage));
    let middle = segment(&storage, Path::new(STORE), "prices", files[files.len() / 2]);
    flip(&storage, &middle, falaj::internals::format::FIRST_BLOCK + 9);
    drop((prices, store));
    let store = open(&storage, Path::new(STORE)).unwrap();
    let prices = topic(&store);
    let found = prices.start_of_last(0, 1100, None).unwrap();
    assert_eq!(found, there[there.len() - 1100]);
    let many = there.len() as u64;
    assert!(prices.count_in(0, 0, None).unwrap() > many, "the count must be an upper bound");
    let error = prices.start_of_last(0, many - 100, None).unwrap_err();
    assert!(error.to_string().contains(&*middle.to_string_lossy()), "{error}");
    store.configure_topic("prices", &records(many - 100), None).unwrap();
    assert!(store.maintain(false).unwrap().logs[0].problem.is_some());
    assert_eq!(prices.first(0).unwrap(), 0);
}
