//! Compaction of topics with several partitions, and of topics that once shared their log.

use super::*;

#[test]
fn partitions_are_compacted_each_by_itself_and_at_once() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let prices = Topic::open(&store, "prices", &options(3)).unwrap().with_sync(SyncMode::None);
    let mut last = HashMap::new();
    for i in 0..3000u64 {
        let (partition, number) = ((i % 3) as u32, i % 12);
        let (key, value) = (key(number), value(i, 200));
        let record = NewRecord { key: Some(&key), value: Some(&value), ..NewRecord::default() };
        let at = prices.append_to(partition, &record, None).unwrap();
        last.insert((partition, number), (at, i));
    }
    seal(&prices);
    compact(&prices).unwrap();
    for partition in 0..3 {
        assert_eq!(prices.end(partition).unwrap(), 1000);
        let mut scan = prices.scan_partition(partition, 0, None).unwrap();
        let mut there = Vec::new();
        while let Some(record) = scan.next().transpose().unwrap() {
            there.push((
                record.offset(),
                u64::from_le_bytes(record.value().unwrap()[..8].try_into().unwrap()),
            ));
        }
        let mut wanted: Vec<_> =
            last.iter().filter(|((p, _), _)| *p == partition).map(|(_, found)| *found).collect();
        wanted.sort_unstable();
        assert_eq!(there, wanted, "{partition}");
    }
    is_sound(&store, "partitions");
}

#[test]
fn a_topic_that_was_added_to_a_log_is_compacted_once_it_is_there_alone() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let shared = TopicOptions { log: Some("shop".into()), ..options(1) };
    let first = Topic::open(&store, "first", &shared).unwrap().with_sync(SyncMode::None);
    for _ in 0..2 {
        first
            .append_to(0, &NewRecord { key: Some(b"k"), ..NewRecord::new(&[7; 9000]) }, None)
            .unwrap();
        first.log().roll_now().unwrap();
    }
    first.append_to(0, &NewRecord { key: Some(b"k"), ..NewRecord::new(&[7; 9000]) }, None).unwrap();
    // Its first segment with it introduces it in the middle, and has none of its records.
    let prices = Topic::open(&store, "prices", &shared).unwrap().with_sync(SyncMode::None);
    seal(&prices);
    let mut history = History::new();
    fill(&prices, &mut history, 150, 30);
    seal(&prices);
    store.delete_topic("first").unwrap();
    compact(&prices).unwrap();
    assert_eq!(found(&prices, &history, "alone"), last_of(&history, 150));
    is_sound(&store, "alone");
}

#[test]
fn a_tombstone_stays_while_what_it_hides_lies_where_its_topic_was_introduced() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let shared = TopicOptions { log: Some("shop".into()), ..options(1) };
    let first = Topic::open(&store, "first", &shared).unwrap().with_sync(SyncMode::None);
    first.append_to(0, &NewRecord { key: Some(b"k"), ..NewRecord::new(&[7; 900]) }, None).unwrap();
    // A segment that introduces a topic behind its first blocks is not compacted.
    let prices = Topic::open(&store, "prices", &shared).unwrap().with_sync(SyncMode::None);
    let put = |value| {
        // Long, so that its segment would shrink without the tombstone.
        let record = NewRecord { key: Some(&[b'g'; 500]), value, ..NewRecord::default() };
        prices.append_to(0, &record, None).unwrap()
    };
    let old = put(Some(b"60"));
    seal(&prices);
    let tombstone = put(None);
    seal(&prices);
    store.delete_topic("first").unwrap();
    let how = CompactOptions::default().tombstones(std::time::Duration::ZERO);
    let done = prices.compact(&how, &mut quietly).unwrap();
    assert_eq!((done.removed, done.tombstones), (0, 0), "{done:?}");
    assert!(prices.get_in(0, old).is_ok() && prices.get_in(0, tombstone).is_ok());
    is_sound(&store, "it stays");
}
