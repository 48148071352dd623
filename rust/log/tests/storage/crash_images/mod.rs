//! The content of the memory storage after a power cut, a kill and a restart: every crash test of
//! the engine relies on these rules.

mod bytes;
mod images;
mod names;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use falaj::internals::storage::{File, Filesystem, LockKind, MapAccess, OpenMode, Storage};
use falaj::internals::sync::SharedWord;
use falaj_twin::memory::{Choice, Crash, MemoryStorage, Undecided};

const SECTOR: u64 = 512;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn create(storage: &MemoryStorage, name: &str) -> Arc<dyn File> {
    storage.open(path(name), OpenMode::CreateNew(0o600)).unwrap()
}

/// A file of that many bytes `o`, durable, name included.
fn durable(storage: &MemoryStorage, name: &str, len: u64) -> Arc<dyn File> {
    let file = create(storage, name);
    file.allocate(len).unwrap();
    file.write_at(&vec![b'o'; len as usize], 0).unwrap();
    file.sync_data().unwrap();
    storage.sync_dir(path("/")).unwrap();
    file
}

fn content(storage: &MemoryStorage, name: &str) -> Option<Vec<u8>> {
    let file = storage.open(path(name), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

fn now(storage: &MemoryStorage) -> Crash {
    storage.journal().crash_at_end()
}

/// Everything that may be there after a power cut at this moment, as a closure sees it.
fn possible<T: Ord>(storage: &MemoryStorage, see: impl Fn(&MemoryStorage) -> T) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    let explored = now(storage).explore(1 << 20, 1, |_, image| {
        seen.insert(see(&image));
    });
    assert!(explored.complete);
    seen
}

/// The first bytes of some sectors of a file.
fn letters(storage: &MemoryStorage, name: &str, sectors: u64) -> String {
    let bytes = content(storage, name).unwrap();
    (0..sectors).map(|sector| char::from(bytes[(sector * SECTOR) as usize])).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(ToString::to_string).collect()
}
