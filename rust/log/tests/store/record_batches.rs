//! Batches: the same records as one by one, wherever a batch begins and ends.

use std::os::unix::fs::FileExt;

use falaj::internals::error::Error;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, PartitionScan, RecordBatch, RecordRefs, SyncMode, Topic};

type Told = (u64, Option<Vec<u8>>, Option<Vec<u8>>, i64);

/// Blocks of one and of many records, plain and with keys or headers, over several segments.
fn filled(root: &std::path::Path) -> Topic {
    let store = Store::open_with(root.join("store"), &StoreOptions::default()).unwrap();
    let options = TopicOptions { segment_bytes: Some(1 << 16), ..TopicOptions::default() };
    let topic = Topic::open(&store, "orders", &options).unwrap();
    let sync = Some(SyncMode::None);
    for i in 0..300u64 {
        let value = vec![b'v'; 100 + (i % 7) as usize * 60];
        let plain = NewRecord::new(&value);
        let own_time = (i % 10 == 0).then_some(i as i64);
        let rich = NewRecord { key: Some(b"key"), event_time_ns: own_time, ..plain };
        let gone = NewRecord { key: Some(b"gone"), ..NewRecord::default() };
        match i % 5 {
            0 => drop(topic.extend_to(0, &[plain, rich, gone], sync).unwrap()),
            1 => drop(topic.extend_to(0, &[plain, plain, plain, plain], sync).unwrap()),
            2 => assert!(topic.append_to(0, &rich, sync).is_ok()),
            _ => assert!(topic.append_to(0, &plain, sync).is_ok()),
        }
    }
    topic
}

fn one_by_one(mut scan: PartitionScan) -> Vec<Told> {
    let mut told = Vec::new();
    while let Some(record) = scan.next().transpose().unwrap() {
        let (value, key) = (record.value().map(<[u8]>::to_vec), record.key().map(<[u8]>::to_vec));
        told.push((record.offset(), value, key, record.timestamp_ns()));
    }
    told
}

fn tell(run: &RecordBatch) -> Vec<Told> {
    let (mut places, mut told) = (RecordRefs::default(), Vec::new());
    while let Some(place) = places.next(run).unwrap() {
        assert_eq!(run.record(told.len()).unwrap(), Some(place));
        let (value, key) = (run.value(&place), run.key(&place));
        let (value, key) = (value.map(<[u8]>::to_vec), key.map(<[u8]>::to_vec));
        told.push((run.offset(&place), value, key, run.timestamp_ns(&place)));
    }
    assert_eq!((run.len(), run.record(run.len()).unwrap()), (told.len(), None));
    let offsets: Vec<_> = told.iter().map(|record| record.0).collect();
    assert_eq!(offsets, run.offsets().collect::<Vec<_>>());
    told
}

#[test]
fn batches_hold_the_records_that_a_scan_returns_one_by_one() {
    let root = tempfile::tempdir().unwrap();
    let topic = filled(root.path());
    let end = topic.end(0).unwrap();
    for (from, until, size) in
        [(0, None, 1000), (0, None, 1), (0, None, 7), (1, Some(end - 1), 64), (2, Some(3), 9)]
    {
        let wanted = one_by_one(topic.scan_partition(0, from, until).unwrap());
        let mut scan = topic.scan_partition(0, from, until).unwrap();
        let (mut found, mut runs) = (Vec::new(), 0);
        while let Some(run) = scan.next_batch(size).unwrap() {
            found.extend(tell(&run));
            runs += 1;
        }
        assert_eq!(found, wanted, "from {from} until {until:?}");
        assert!(runs * (size + 3) >= found.len(), "a batch is much larger than requested");
    }
    let mut scan = topic.scan_partition(0, 0, None).unwrap();
    scan.next().transpose().unwrap();
    assert_eq!(scan.next_batch(1).unwrap().unwrap().offsets(), 1..3, "the rest of a block");
}

#[test]
fn a_batch_ends_before_corruption_and_the_next_call_raises() {
    let root = tempfile::tempdir().unwrap();
    let topic = filled(root.path());
    let mut scan = topic.scan_partition(0, 0, None).unwrap();
    let (at, path) = (scan.next_batch(20).unwrap().unwrap().offsets().end, scan.cursor().path());
    let position = scan.cursor().address().position();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0xff], position + 40).unwrap();
    let mut scan = topic.scan_partition(0, 0, None).unwrap();
    let run = scan.next_batch(1000).unwrap().unwrap();
    assert_eq!(run.offsets(), 0..at);
    drop(topic);
    assert_eq!(tell(&run).len() as u64, at, "a batch must outlive its topic");
    for _ in 0..2 {
        let error = scan.next_batch(1000).unwrap_err();
        assert!(matches!(error, Error::CorruptData { position: there, .. } if there == position));
    }
    let skipped = scan.skip_damage().unwrap();
    assert_eq!(scan.next_batch(1).unwrap().unwrap().offsets().start, skipped.offsets.end);
}
