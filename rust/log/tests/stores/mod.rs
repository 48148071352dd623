//! Helpers for tests of whole stores: both storages, a store with records, and its files.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::names;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, Topic};
use falaj_twin::memory::MemoryStorage;

/// Run a test on the memory storage and on real files, each time with an empty directory.
pub fn on_both(test: impl Fn(&Arc<dyn Storage>, &Path)) {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    memory.create_dir(Path::new("/t"), 0o700).unwrap();
    test(&memory, Path::new("/t"));
    let directory = tempfile::tempdir().unwrap();
    let real: Arc<dyn Storage> = Arc::new(RealStorage::new());
    test(&real, directory.path());
}

pub fn open(storage: &Arc<dyn Storage>, path: &Path) -> Result<Store> {
    Store::open_on(Arc::clone(storage), path, &StoreOptions::default())
}

pub fn open_to_read(storage: &Arc<dyn Storage>, path: &Path) -> Result<Store> {
    Store::open_on(Arc::clone(storage), path, &StoreOptions::reading())
}

/// A topic with small segments.
pub fn topic(store: &Store, name: &str) -> Topic {
    let options = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    Topic::open(store, name, &options).unwrap()
}

/// Append records `from..to` of 500 bytes with their numbers.
pub fn fill(topic: &Topic, from: u64, to: u64) {
    for i in from..to {
        assert_eq!(topic.append_to(0, &NewRecord::new(&value(i)), None).unwrap(), i);
    }
}

pub fn value(i: u64) -> Vec<u8> {
    let mut value = vec![i as u8; 500];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value
}

/// Check that a topic holds exactly the records of [`fill`] from 0 to `end`.
pub fn assert_holds(topic: &Topic, end: u64) {
    assert_eq!(topic.end(0).unwrap(), end);
    let mut scan = topic.scan_partition(0, 0, None).unwrap();
    for i in 0..end {
        let record = scan.next().transpose().unwrap().unwrap();
        assert_eq!((record.offset(), record.value()), (i, Some(value(i).as_slice())));
    }
    assert!(scan.next().transpose().unwrap().is_none());
}

/// Offsets that a scan finds up to its first error.
pub fn read_until_error(topic: &Topic) -> (Vec<u64>, Option<Error>) {
    let mut found = Vec::new();
    let mut scan = match topic.scan_partition(0, 0, None) {
        Ok(scan) => scan,
        Err(error) => return (found, Some(error)),
    };
    loop {
        match scan.next().transpose() {
            Ok(Some(record)) => found.push(record.offset()),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// Directory of the log of a topic.
pub fn log_dir(storage: &Arc<dyn Storage>, store: &Path, topic: &str) -> PathBuf {
    let logs = store.join("logs");
    let names = storage.list(&logs).unwrap();
    let own = |name: &&String| names::parse_log_dir(name).is_some_and(|(log, _)| log == topic);
    logs.join(names.iter().find(own).expect("a log of this name"))
}

pub fn segment(storage: &Arc<dyn Storage>, store: &Path, topic: &str, sequence: u64) -> PathBuf {
    log_dir(storage, store, topic).join(names::segment(sequence))
}

/// Flip a bit of a file.
pub fn flip(storage: &Arc<dyn Storage>, path: &Path, position: u64) {
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, position).unwrap(), 1);
    file.write_at(&[byte[0] ^ 0x10], position).unwrap();
}

/// All files below a directory with their contents.
pub fn snapshot(storage: &Arc<dyn Storage>, path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for name in storage.list(path).unwrap() {
        let inside = path.join(name);
        let stat = storage.stat(&inside).unwrap();
        if stat.is_dir {
            found.push((inside.clone(), Vec::new()));
            found.extend(snapshot(storage, &inside));
        } else {
            let mut bytes = vec![0; stat.len as usize];
            storage.open(&inside, OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
            found.push((inside, bytes));
        }
    }
    found
}

/// A progress callback that does nothing.
pub fn quietly(_done: u64, _total: u64) -> Result<()> {
    Ok(())
}
