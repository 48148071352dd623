//! Compaction keeps the last record of each key, at its offset, whatever readers and writers do
//! meanwhile.

mod beside;
mod counting;
mod crashes;
mod given;
mod left;
mod shared;
mod tombstones;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::names;
use falaj::internals::storage::Storage;
use falaj::internals::store::{Store, TopicOptions};
use falaj::internals::topic::{CompactOptions, Compacted, NewRecord, SyncMode, Topic};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{log_dir, open, open_to_read, quietly};

const STORE: &str = "/store";

/// A record as it was appended: its key and the length of its value; `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    key: Option<u64>,
    len: Option<usize>,
}

/// All records that were appended, by offset.
type History = Vec<Made>;

fn options(partitions: u32) -> TopicOptions {
    TopicOptions {
        segment_bytes: Some(64 << 10),
        partitions: Some(partitions),
        compacted: Some(true),
        ..TopicOptions::default()
    }
}

fn topic(store: &Store) -> Topic {
    Topic::open(store, "prices", &options(1)).unwrap().with_sync(SyncMode::None)
}

fn machine() -> (MemoryStorage, Arc<dyn Storage>) {
    let machine = MemoryStorage::new().seeded(7);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    (machine, storage)
}

fn key(key: u64) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

fn value(offset: u64, len: usize) -> Vec<u8> {
    let mut value = vec![offset as u8; len.max(8)];
    value[..8].copy_from_slice(&offset.to_le_bytes());
    value
}

/// Append a record with this key, in a block of its own.
fn put(topic: &Topic, history: &mut History, number: u64, len: Option<usize>) {
    put_all(topic, history, &[Made { key: Some(number), len }]);
}

/// Append records as one block.
fn put_all(topic: &Topic, history: &mut History, made: &[Made]) {
    let first = history.len() as u64;
    let keys: Vec<_> = made.iter().map(|made| made.key.map(key)).collect();
    let values: Vec<_> =
        (first..).zip(made).map(|(at, made)| made.len.map(|len| value(at, len))).collect();
    let records: Vec<_> = keys
        .iter()
        .zip(&values)
        .map(|(key, value)| NewRecord {
            key: key.as_deref(),
            value: value.as_deref(),
            ..NewRecord::default()
        })
        .collect();
    assert_eq!(topic.extend_to(0, &records, None).unwrap().start, first);
    history.extend_from_slice(made);
}

/// Append so many records with keys below `keys`: most singly, some in blocks, a few without a key.
fn fill(topic: &Topic, history: &mut History, records: u64, keys: u64) {
    let end = history.len() as u64 + records;
    while (history.len() as u64) < end {
        let at = history.len() as u64;
        let draw = |i: u64| (at + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let made = |i: u64| Made {
            key: (draw(i) % 97 != 0).then_some(draw(i) % keys),
            len: (draw(i) % 23 != 0).then_some((draw(i) % 400) as usize),
        };
        let block = if at % 7 == 0 { draw(0) % 40 + 1 } else { 1 };
        let made: Vec<_> = (0..block.min(end - at)).map(made).collect();
        put_all(topic, history, &made);
    }
}

/// Roll, and sync everything that was sealed.
fn seal(topic: &Topic) {
    topic.log().roll_now().unwrap();
    topic.flush().unwrap();
}

fn compact(topic: &Topic) -> Result<Compacted> {
    topic.compact(&CompactOptions::default(), &mut quietly)
}

/// Where the active segment begins: everything before is sealed.
fn sealed_end(topic: &Topic) -> u64 {
    let mut at = topic.first(0).unwrap();
    let active = topic.log().committed().unwrap().sequence();
    let mut scan = topic.scan_partition(0, at, None).unwrap();
    while let Some(batch) = scan.next_batch(1).unwrap() {
        if batch.block(0).address().sequence() == active {
            return at;
        }
        at = batch.offsets().end;
    }
    topic.end(0).unwrap()
}

/// The offsets that are left when everything before `end` was compacted.
fn last_of(history: &History, end: u64) -> Vec<u64> {
    let mut last = HashMap::new();
    for (at, made) in (0..end).zip(history) {
        last.insert(made.key, at);
    }
    let stays = |at: &u64| {
        let made = &history[*at as usize];
        *at >= end || made.key.is_none() || last[&made.key] == *at
    };
    (0..history.len() as u64).filter(stays).collect()
}

/// The offsets that are there, read as records and as batches.
fn found(topic: &Topic, history: &History, story: &str) -> Vec<u64> {
    let found = scanned(topic, history, story);
    let (first, end) = (topic.first(0).unwrap(), topic.end(0).unwrap());
    let mut runs = Vec::new();
    let mut scan = topic.scan_partition(0, first, Some(end)).unwrap();
    while let Some(run) = scan.next_batch(50).unwrap() {
        let mut places = falaj::internals::topic::RecordRefs::default();
        let before = runs.len();
        while let Some(place) = places.next(&run).unwrap() {
            assert_eq!(run.record(runs.len() - before).unwrap(), Some(place));
            runs.push(run.offset(&place));
        }
        assert_eq!(runs.len() - before, run.len(), "{story}");
    }
    assert!(runs == found, "{story}: batches and records differ");
    found
}

/// The offsets that are there; each record is compared with what was appended.
fn scanned(topic: &Topic, history: &History, story: &str) -> Vec<u64> {
    let (first, end) = (topic.first(0).unwrap(), topic.end(0).unwrap());
    let mut found = Vec::new();
    let mut scan = topic.scan_partition(0, first, Some(end)).unwrap();
    while let Some(record) = scan.next().transpose().unwrap_or_else(|e| panic!("{story}: {e}")) {
        let at = record.offset();
        let made = &history[at as usize];
        assert_eq!(record.key(), made.key.map(key).as_deref(), "{story}: {at}");
        assert_eq!(record.value(), made.len.map(|len| value(at, len)).as_deref(), "{story}: {at}");
        assert!(found.last().is_none_or(|last| *last < at), "{story}: {at} again");
        found.push(at);
    }
    assert_eq!(scan.next_offset(), end, "{story}");
    found
}

/// Look up every offset: the record is as appended, or expired.
fn look_up_all(topic: &Topic, history: &History, there: &[u64], story: &str) {
    for (at, made) in (0..).zip(history) {
        match topic.get_in(0, at) {
            Ok(record) => {
                assert!(there.binary_search(&at).is_ok(), "{story}: only a lookup finds {at}");
                assert_eq!(record.key(), made.key.map(key).as_deref(), "{story}: {at}");
            }
            Err(Error::RecordCompacted { offset, .. }) => {
                assert!(offset == at && there.binary_search(&at).is_err(), "{story}: {at}");
            }
            Err(error) => panic!("{story}: {at}: {error}"),
        }
    }
}

fn is_sound(store: &Store, story: &str) {
    let report = store.verify(None, &mut quietly).unwrap();
    assert!(report.is_sound(), "{story}: {report:#?}");
}

fn segments(storage: &Arc<dyn Storage>) -> Vec<u64> {
    let names = storage.list(&log_dir(storage, Path::new(STORE), "prices")).unwrap();
    names.iter().filter_map(|name| names::parse_segment(name)).collect()
}

/// Files of the log other than segments, indexes, and files that are always there.
///
/// A leftover of an unfinished index does not count: the next one reuses it.
fn leftovers(storage: &Arc<dyn Storage>) -> Vec<String> {
    let mut names = storage.list(&log_dir(storage, Path::new(STORE), "prices")).unwrap();
    let sequences = segments(storage);
    names.retain(|name| {
        let of_segment = names::parse_segment(name).or(names::parse_index(name));
        let locks = ["lock", "lock.append", "lock.sync", "lock.compact"];
        let usual = [&locks[..], &["control", "quarantine", "reindex.0.tmp"]].concat();
        !(of_segment.is_some_and(|s| sequences.contains(&s)) || usual.contains(&name.as_str()))
    });
    let dir = log_dir(storage, Path::new(STORE), "prices");
    names.extend(storage.list(&dir.join("quarantine")).unwrap());
    names
}
