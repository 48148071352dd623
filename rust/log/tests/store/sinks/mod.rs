//! Sinks: the parts that many writers stage become visible at once or not at all, and once.

mod crashes;
mod large;
mod left;
mod refused;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::sink::{BulkLoad, BulkLoadReport, last_idempotency_key};
use falaj::internals::storage::Storage;
use falaj::internals::store::{Store, StoreOptions, TopicOptions, staging_dir};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::memory::{MemoryStorage, every};

const MODES: [WriteMode; 2] = [WriteMode::Mapped, WriteMode::Pwrite];
const ROOT: &str = "/store";
/// Groups hold 16 KiB in segments of this size; a larger load becomes a segment.
const SEGMENT: u64 = 64 << 10;
/// The two ways of a commit, as numbers of records of 100 bytes.
const SIZES: [u64; 2] = [40, 400];
const NOTHING: [PathBuf; 0] = [];

fn machine() -> MemoryStorage {
    MemoryStorage::new().seeded(7)
}

fn open_in(machine: &MemoryStorage, mode: WriteMode) -> Store {
    let options = StoreOptions { write_mode: Some(mode), ..StoreOptions::default() };
    Store::open_on(Arc::new(machine.clone()), ROOT, &options).unwrap()
}

fn open(machine: &MemoryStorage) -> Store {
    Store::open_on(Arc::new(machine.clone()), ROOT, &StoreOptions::default()).unwrap()
}

fn topic(store: &Store, partitions: u32) -> Topic {
    let options = TopicOptions {
        partitions: Some(partitions),
        segment_bytes: Some(SEGMENT),
        ..TopicOptions::default()
    };
    Topic::open(store, "flights", &options).unwrap()
}

/// A record of 100 bytes with its number.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; 100];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Stage records with these numbers as one part, in turns over the topic's partitions.
fn stage(job: &BulkLoad, part: &str, numbers: std::ops::Range<u64>) -> Vec<u8> {
    let mut staged = job.stage(part, None).unwrap();
    let partitions = u64::from(job.topic().partitions());
    for number in numbers {
        let partition = Some((number % partitions) as u32);
        staged.append_to(&NewRecord::new(&value(number)), partition).unwrap();
    }
    staged.finish().unwrap()
}

/// The records of a partition.
fn held(topic: &Topic, partition: u32) -> Vec<u64> {
    let mut scan = topic.scan_partition(partition, topic.first(partition).unwrap(), None).unwrap();
    let mut found = Vec::new();
    while let Some(record) = scan.next().transpose().unwrap() {
        let value = record.value().unwrap();
        found.push(u64::from_le_bytes(value[..8].try_into().unwrap()));
        assert_eq!(value, self::value(*found.last().unwrap()).as_slice());
    }
    found
}

fn is_sound(store: &Store) {
    let found = store.verify(None, &mut |_, _| Ok(())).unwrap();
    let all: Vec<_> = found.all_findings().map(|finding| finding.what.clone()).collect();
    assert!(found.is_sound(), "{all:?}");
}

/// All files that are staged for a topic's log.
fn staged(topic: &Topic) -> Vec<PathBuf> {
    let storage = topic.store().storage();
    let root = staging_dir(topic.log().dir());
    let list = |dir: &Path| storage.list(dir).unwrap_or_default();
    let jobs = list(&root).into_iter().map(|name| root.join(name));
    jobs.flat_map(|job| list(&job).into_iter().map(move |name| job.join(name))).collect()
}

#[test]
fn a_job_is_seen_as_a_whole_when_it_is_committed_and_not_before() {
    for (mode, records) in MODES.into_iter().flat_map(|mode| SIZES.map(|size| (mode, size))) {
        let machine = machine();
        let store = open_in(&machine, mode);
        let flights = topic(&store, 3);
        flights.append_to(1, &NewRecord::new(&value(1_000_000)), None).unwrap();
        // Parts of other processes, and of two attempts at the same part.
        let theirs = topic(&open_in(&machine.process(), mode), 3);
        let (job, other) =
            (BulkLoad::new(&flights, "j").unwrap(), BulkLoad::new(&theirs, "j").unwrap());
        let half = records / 2;
        let second = stage(&other, "b", half..records);
        let given_up = stage(&other, "a", 0..half);
        let first = stage(&job, "a", 0..half);
        let empty = job.stage("c", None).unwrap().finish().unwrap();
        assert_ne!(given_up, first);
        assert_eq!((0..3).map(|p| flights.end(p).unwrap()).collect::<Vec<_>>(), [0, 1, 0]);
        let done = job.commit(&[first, second, empty], None).unwrap();
        let in_partition = |p: u64| (0..records).filter(|n| n % 3 == p).collect::<Vec<_>>();
        assert!(done.now && done.records == records, "{done:?}");
        for partition in 0..3u32 {
            let mut expected = in_partition(partition.into());
            let first = u64::from(partition == 1);
            assert_eq!(done.offsets[&partition], first..first + expected.len() as u64);
            if partition == 1 {
                expected.insert(0, 1_000_000);
            }
            assert_eq!(held(&flights, partition), expected, "{mode:?}, {records} records");
            assert_eq!(held(&theirs, partition), expected, "in another process");
        }
        // Durable, whatever the topic's mode, and no staged file is left.
        assert_eq!(flights.log().durable(), flights.log().committed());
        assert_eq!(staged(&flights), NOTHING);
        is_sound(&store);
        flights.append_to(0, &NewRecord::new(&value(7)), None).unwrap();
        theirs.append_to(0, &NewRecord::new(&value(8)), None).unwrap();
        let end = in_partition(0).into_iter().chain([7, 8]).collect::<Vec<_>>();
        assert_eq!((held(&flights, 0), held(&theirs, 0)), (end.clone(), end.clone()));
        drop((job, other, flights, theirs, store));
        let store = open_in(&machine.restart(), mode);
        assert_eq!(held(&topic(&store, 3), 0), end);
        is_sound(&store);
    }
}

#[test]
fn records_keep_all_that_belongs_to_them_and_go_where_their_keys_say() {
    let machine = machine();
    let flights = topic(&open(&machine), 4);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let mut part = job.stage("a", None).unwrap();
    let headers: &[(&str, Option<&[u8]>)] = &[("trace", Some(b"1")), ("trace", None)];
    let whole = NewRecord {
        value: Some(b"EWR to IAH"),
        key: Some(b"UA"),
        headers,
        event_time_ns: Some(-5),
    };
    let gone = NewRecord { key: Some(b"UA"), ..NewRecord::default() };
    part.append_to(&NewRecord::new(b"first"), Some(flights.partition_of(b"UA"))).unwrap();
    part.append_to(&whole, None).unwrap();
    part.append_to(&gone, None).unwrap();
    for _ in 0..8 {
        part.append_to(&NewRecord::new(b"takes turns"), None).unwrap();
    }
    assert_eq!(part.count(), 11);
    job.commit(&[part.finish().unwrap()], None).unwrap();
    let partition = flights.partition_of(b"UA");
    let record = flights.get_in(partition, 1).unwrap();
    assert_eq!((record.value(), record.key()), (whole.value, whole.key));
    assert_eq!(record.timestamp_ns(), -5);
    assert!(record.headers().eq(headers.iter().copied()));
    assert_eq!(flights.get_in(partition, 2).unwrap().value(), None);
    let ends: Vec<_> = (0..4).map(|p| flights.end(p).unwrap()).collect();
    let more = |p: u32| if p == partition { 3 } else { 0 };
    assert_eq!(ends, (0..4).map(|p| 2 + more(p)).collect::<Vec<_>>());
}

#[test]
fn topics_that_share_a_log_have_jobs_and_tokens_of_their_own() {
    for records in SIZES {
        let machine = machine();
        let store = open(&machine);
        let shop = TopicOptions {
            log: Some("shop".into()),
            segment_bytes: Some(SEGMENT),
            ..TopicOptions::default()
        };
        let [paid, audit] = ["paid", "audit"].map(|name| Topic::open(&store, name, &shop).unwrap());
        let [one, other] = [&paid, &audit].map(|topic| BulkLoad::new(topic, "j").unwrap());
        let (first, second) = (stage(&one, "0", 0..records), stage(&other, "0", 0..records));
        let token = Some(("nightly", 1));
        assert!(matches!(other.commit(&[&first], token), Err(Error::InvalidManifest { .. })));
        assert!(one.commit(&[first], token).unwrap().now);
        assert!(other.commit(&[second], token).unwrap().now, "another topic's key");
        assert_eq!(held(&paid, 0), (0..records).collect::<Vec<_>>());
        assert_eq!(held(&audit, 0), held(&paid, 0));
        store.delete_topic("paid").unwrap();
        assert!(matches!(
            one.commit(&[[0u8; 0]; 0], Some(("x", 1))),
            Err(Error::TopicDeleted { .. })
        ));
        let paid = Topic::open(&store, "paid", &shop).unwrap();
        assert_eq!(
            last_idempotency_key(&paid, "nightly").unwrap(),
            None,
            "a new topic has no loads"
        );
        assert_eq!(
            last_idempotency_key(&audit, "nightly").unwrap().map(|token| token.version),
            Some(1)
        );
        is_sound(&store);
    }
}

#[test]
fn of_two_processes_that_commit_a_job_at_once_one_does_and_the_other_knows() {
    for records in SIZES {
        let machine = machine();
        let flights = topic(&open(&machine), 1);
        let others = topic(&open(&machine.process()), 1);
        let job = BulkLoad::new(&flights, "j").unwrap();
        let part = stage(&job, "0", 0..records);
        let done: Vec<BulkLoadReport> = std::thread::scope(|scope| {
            let commit = |topic: &Topic| {
                BulkLoad::new(topic, "j").unwrap().commit(&[&part], Some(("n", 1))).unwrap()
            };
            let threads = [&flights, &others].map(|topic| scope.spawn(move || commit(topic)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        assert_eq!(done.iter().filter(|done| done.now).count(), 1, "{done:?}");
        assert_eq!(held(&flights, 0), (0..records).collect::<Vec<_>>());
        assert_eq!(staged(&flights), NOTHING);
    }
}

#[test]
fn a_commit_is_on_the_medium_in_every_sync_mode() {
    for (sync, records) in [SyncMode::None, SyncMode::Interval].into_iter().zip(SIZES) {
        let machine = machine();
        let store = open(&machine);
        let flights = topic(&store, 2).with_sync(sync);
        let job = BulkLoad::new(&flights, "j").unwrap();
        let part = stage(&job, "0", 0..records);
        job.commit(&[part], Some(("n", 1))).unwrap();
        let crash = machine.journal().crash_at_end();
        let image = crash.image(&crash.nothing());
        let found = topic(&open(&image), 2);
        assert_eq!(held(&found, 0).len() + held(&found, 1).len(), records as usize);
        assert_eq!(last_idempotency_key(&found, "n").unwrap().map(|token| token.version), Some(1));
    }
}
