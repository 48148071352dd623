//! Reading by records, by batches, and from several partitions at once: each record once, and
//! corruption at its place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::Error;
use falaj::internals::format::record::BodyWriter;
use falaj::internals::log::Wait;
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::store::{Store, TopicOptions};
use falaj::internals::topic::{NewRecord, ScanRange, SyncMode, Topic, Visibility};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{fill, flip, open, topic, value};

const STORE: &str = "/store";

fn memory() -> (Arc<dyn Storage>, Store) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = open(&storage, Path::new(STORE)).unwrap();
    (storage, store)
}

fn whole(partition: u32) -> ScanRange {
    ScanRange { partition, from: 0, end: None }
}

/// The next number of a xorshift generator.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Three partitions of records, some with times of their own, which rise in each partition.
fn partitioned(store: &Store, seed: u64) -> Topic {
    let options = TopicOptions {
        partitions: Some(3),
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    let topic = Topic::open(store, "clicks", &options).unwrap().with_sync(SyncMode::None);
    let (mut state, mut times) = (seed | 1, [0; 3]);
    for _ in 0..400 {
        let partition = (draw(&mut state) % 3) as usize;
        times[partition] += (draw(&mut state) % 5) as i64;
        let record = |time_ns| NewRecord { event_time_ns: Some(time_ns), ..NewRecord::new(b"v") };
        let records: Vec<_> =
            (0..draw(&mut state) % 4 + 1).map(|i| record(times[partition] + i as i64)).collect();
        times[partition] += records.len() as i64;
        topic.extend_to(partition as u32, &records, None).unwrap();
    }
    topic
}

fn place(record: &falaj::internals::topic::Record) -> (i64, u32, u64) {
    (record.timestamp_ns(), record.partition(), record.offset())
}

#[test]
fn a_merge_has_all_records_in_the_order_of_their_times() {
    let (_, store) = memory();
    let clicks = partitioned(&store, 0x5eed);
    let found: Vec<_> = clicks
        .scan_ranges(&[whole(0), whole(1), whole(2)])
        .unwrap()
        .map(|r| place(&r.unwrap()))
        .collect();
    let each = (0..3).flat_map(|p| clicks.scan_partition(p, 0, None).unwrap());
    let mut wanted: Vec<_> = each.map(|record| place(&record.unwrap())).collect();
    wanted.sort_unstable();
    assert!(wanted.len() > 500);
    assert_eq!(found, wanted, "at equal times the lower partition comes first");
}

#[test]
fn what_a_merge_did_not_return_is_read_from_where_its_ranges_say() {
    let (_, store) = memory();
    let clicks = partitioned(&store, 0xface);
    let all: Vec<_> = clicks
        .scan_ranges(&[whole(0), whole(1), whole(2)])
        .unwrap()
        .map(|r| place(&r.unwrap()))
        .collect();
    for returned in [0, 1, 2, 100, all.len() - 1, all.len()] {
        let mut merge = clicks.scan_ranges(&[whole(0), whole(1), whole(2)]).unwrap();
        (0..returned).for_each(|_| drop(merge.next().unwrap().unwrap()));
        let ranges: Vec<_> = merge.ranges().collect();
        let rest = clicks.scan_ranges(&ranges).unwrap().map(|record| place(&record.unwrap()));
        assert_eq!(rest.collect::<Vec<_>>(), all[returned..], "{returned}");
        // Also by batches, which read one partition at a time.
        let mut rest = Vec::new();
        while let Some(batch) = merge.next_batch(7).unwrap() {
            rest.extend(batch.offsets().map(|offset| (batch.partition(), offset)));
        }
        rest.sort_unstable();
        let mut wanted: Vec<_> = all[returned..].iter().map(|(_, p, o)| (*p, *o)).collect();
        wanted.sort_unstable();
        assert_eq!(rest, wanted, "{returned}");
    }
}

#[test]
fn records_and_batches_may_be_mixed_and_each_record_comes_once() {
    let (_, store) = memory();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    let mut state = 0xbead;
    while orders.end(0).unwrap() < 900 {
        let records = vec![NewRecord::new(b"v"); (draw(&mut state) % 9) as usize + 1];
        orders.extend_to(0, &records, None).unwrap();
    }
    let end = orders.end(0).unwrap();
    for _ in 0..50 {
        let (mut scan, mut next) = (orders.scan_partition(0, 0, Some(end - 3)).unwrap(), 0);
        while next < end - 3 {
            if draw(&mut state) % 4 == 0 {
                let batch = scan.next_batch((draw(&mut state) % 20) as usize).unwrap().unwrap();
                assert_eq!(batch.offsets().start, next);
                next = batch.offsets().end;
            } else {
                assert_eq!(scan.next().unwrap().unwrap().offset(), next);
                next += 1;
            }
            assert_eq!(scan.next_offset(), next);
        }
        assert!(scan.next().is_none() && scan.next_batch(1).unwrap().is_none());
    }
}

#[test]
fn a_batch_that_cannot_be_looked_up_again_passes_over_nothing_that_was_read_ahead() {
    let (_, store) = memory();
    let orders = topic(&store, "orders");
    fill(&orders, 0, 400);
    let mut scan = orders.scan_partition(0, 0, None).unwrap();
    assert_eq!(scan.next().unwrap().unwrap().offset(), 0);
    assert!(orders.trim(&[(0, 300)]).unwrap().segments > 0);
    for _ in 0..2 {
        let error = scan.next_batch(1).unwrap_err();
        assert!(matches!(error, Error::OffsetOutOfRange { offset: 1, .. }), "{error}");
        assert_eq!(scan.next_offset(), 1);
    }
    let error = scan.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::OffsetOutOfRange { offset: 1, .. }), "{error}");
}

/// A topic of 40 records, each in its block, one of them corrupt; returns its place.
fn damaged(at: u64) -> (Store, Topic, u64) {
    let (storage, store) = memory();
    let orders = topic(&store, "orders");
    fill(&orders, 0, 40);
    let record = orders.get_in(0, at).unwrap();
    let (path, position) = (record.block().path().to_owned(), record.block().position());
    flip(&storage, &path, position + 100);
    drop((orders, record, store));
    let store = open(&storage, Path::new(STORE)).unwrap();
    let orders = topic(&store, "orders");
    (store, orders, position)
}

#[test]
fn corruption_is_reported_at_its_place_however_far_a_scan_reads_ahead() {
    let (_store, orders, position) = damaged(20);
    let mut scan = orders.scan_partition(0, 0, None).unwrap();
    for i in 0..20 {
        assert_eq!(scan.next().unwrap().unwrap().value(), Some(value(i).as_slice()));
    }
    for _ in 0..3 {
        assert_eq!(scan.next_offset(), 20);
        let error = scan.next().unwrap().unwrap_err();
        assert!(
            matches!(error, Error::CorruptData { position: at, .. } if at == position),
            "{error}"
        );
    }
    let skipped = scan.step_over().unwrap();
    assert_eq!((skipped.position, skipped.offsets), (position, 20..21));
    let rest: Vec<_> = scan.map(|record| record.unwrap().offset()).collect();
    assert_eq!(rest, (21..40).collect::<Vec<_>>());
}

#[test]
fn damage_in_one_partition_is_stepped_over_and_the_others_lose_nothing() {
    let (storage, store) = memory();
    let options = TopicOptions {
        partitions: Some(2),
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    let clicks = Topic::open(&store, "clicks", &options).unwrap();
    for _ in 0..30 {
        for partition in 0..2 {
            clicks.append_to(partition, &NewRecord::new(&value(0)), None).unwrap();
        }
    }
    let record = clicks.get_in(1, 10).unwrap();
    let (path, position) = (record.block().path().to_owned(), record.block().position());
    drop((record, clicks, store));
    flip(&storage, &path, position + 100);
    let store = open(&storage, Path::new(STORE)).unwrap();
    let clicks = Topic::open(&store, "clicks", &TopicOptions::default()).unwrap();
    let mut merge = clicks.scan_ranges(&[whole(0), whole(1)]).unwrap();
    let (mut found, mut lost) = (vec![Vec::new(), Vec::new()], Vec::new());
    loop {
        match merge.next() {
            Some(Ok(record)) => found[record.partition() as usize].push(record.offset()),
            Some(Err(_)) => lost.extend(merge.step_over().unwrap()),
            None => break,
        }
    }
    // An unreadable block may belong to either partition, so both scans meet it.
    assert!(lost.iter().all(|(_, skipped)| skipped.position == position), "{lost:?}");
    assert_eq!(found[0], (0..30).collect::<Vec<_>>());
    assert_eq!(found[1], (0..30).filter(|offset| *offset != 10).collect::<Vec<_>>());
}

#[test]
fn a_record_cut_off_by_its_writer_is_reported_at_its_place_and_can_be_skipped() {
    let (_, store) = memory();
    let orders = topic(&store, "orders");
    orders.extend_to(0, &[NewRecord::new(b"a"), NewRecord::new(b"b")], None).unwrap();
    // Two values, and a third with no more than its length.
    let (mut body, mut bytes) = (BodyWriter::default(), Vec::new());
    body.begin(false, None);
    [b"c", b"d"].iter().for_each(|value| body.push_value(*value));
    bytes.extend_from_slice(body.body());
    bytes.push(100);
    let block = falaj::internals::log::NewBlock {
        topic: 0,
        flags: body.flags(),
        count: 3,
        body: &bytes,
        lead: &[],
        body_crc: Some(falaj::internals::format::checksum::crc32(&bytes)),
        highest_event_ns: None,
        uses_append_time: true,
        interval: true,
    };
    orders.log().append(&[block], &mut [0]).unwrap();
    orders.append_to(0, &NewRecord::new(b"z"), None).unwrap();
    let mut scan = orders.scan_partition(0, 0, None).unwrap();
    let found: Vec<_> = scan.by_ref().map_while(Result::ok).map(|r| r.offset()).collect();
    assert_eq!((found, scan.next_offset()), (vec![0, 1, 2, 3], 4));
    for _ in 0..2 {
        let error = scan.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::CorruptData { .. }), "{error}");
    }
    let skipped = scan.step_over().unwrap();
    assert_eq!(skipped.offsets, 4..5);
    assert_eq!(scan.next().unwrap().unwrap().value(), Some(b"z".as_slice()));
}

#[test]
fn a_follower_returns_what_is_appended_while_it_sleeps() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let store = open(&storage, &root.path().join("store")).unwrap();
    let orders = topic(&store, "orders");
    fill(&orders, 0, 3);
    let mut follow = orders.follow(1..).unwrap();
    std::thread::scope(|scope| {
        let found = scope.spawn(move || {
            let offset =
                |record: falaj::internals::error::Result<falaj::internals::topic::Record>| {
                    let record = record.unwrap();
                    assert_eq!(record.value(), Some(value(record.offset()).as_slice()));
                    record.offset()
                };
            let found: Vec<_> = follow.by_ref().take(9).map(offset).collect();
            // Without news it ends after the timeout; then it continues.
            let mut follow = follow.with_timeout(Some(Duration::ZERO));
            assert!(follow.next().is_none());
            (found, follow)
        });
        for end in 4..11 {
            while !crate::visibility::is_asleep(&orders) && !found.is_finished() {
                std::thread::yield_now();
            }
            fill(&orders, end - 1, end);
        }
        let (found, mut follow) = found.join().unwrap();
        assert_eq!(found, (1..10).collect::<Vec<_>>());
        fill(&orders, 10, 11);
        assert_eq!(follow.next().unwrap().unwrap().offset(), 10);
        drop(orders);
        store.delete_topic("orders").unwrap();
        let error = follow.with_timeout(None).next().unwrap().unwrap_err();
        assert!(matches!(error, Error::TopicDeleted { .. }), "{error}");
    });
}

#[test]
fn a_durable_follower_returns_nothing_before_it_is_on_the_disk() {
    let (_, store) = memory();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    let durable = orders.with_visibility(Visibility::Durable);
    let mut follow = durable.follow(..).unwrap().with_timeout(Some(Duration::ZERO));
    fill(&orders, 0, 5);
    assert!(follow.next().is_none());
    orders.flush().unwrap();
    let found: Vec<_> = follow.map(|record| record.unwrap().offset()).collect();
    assert_eq!(found, (0..5).collect::<Vec<_>>());
}

#[test]
fn a_durable_follower_that_has_read_what_is_on_the_disk_sleeps_until_there_is_more() {
    let (_, store) = memory();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 0, 5);
    orders.flush().unwrap();
    let durable = orders.with_visibility(Visibility::Durable);
    let mut follow = durable.follow(..).unwrap().with_timeout(Some(Duration::ZERO));
    assert_eq!(follow.by_ref().count(), 5);
    let now = Some(Duration::ZERO);
    assert_eq!(follow.wait(now, &|| false).unwrap(), Wait::TimedOut);
    fill(&orders, 5, 6);
    assert_eq!(follow.wait(now, &|| false).unwrap(), Wait::TimedOut, "it is not on the disk");
    orders.flush().unwrap();
    assert_eq!(follow.wait(now, &|| false).unwrap(), Wait::News);
}

#[test]
fn a_durable_reader_meets_corruption_as_such_on_the_disk_and_none_beyond_it() {
    let (_, orders, _) = damaged(20);
    let durable = orders.with_visibility(Visibility::Durable);
    assert!(matches!(durable.get_in(0, 20), Err(Error::CorruptData { .. })));
    let end = orders.end(0).unwrap();
    assert!(matches!(durable.get_in(0, end), Err(Error::OffsetOutOfRange { .. })));
}
