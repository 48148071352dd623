//! Stores in memory: sharing, faults at every call, power failures at every point.

mod closing;
mod interrupted;
mod origin;
mod presence;
mod settings;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::claim::Claim;
use super::layout::{deleted, temporary};
use super::*;
use crate::format::names;
use crate::format::settings::WriteMode;
use crate::lock::{Fate, GENERATION_MAX, Holders, Identity, SLOTS};
use crate::storage::{Filesystem, LockKind, OpenMode};
use crate::twin::faulty::{FailureKind, Fault, FaultyStorage};
use crate::twin::memory::MemoryStorage;

const ROOT: &str = "/store";

fn machine() -> MemoryStorage {
    MemoryStorage::new().seeded(7)
}

fn open(storage: &MemoryStorage) -> Result<Store> {
    open_with(storage, &StoreOptions::default())
}

fn open_with(storage: &MemoryStorage, options: &StoreOptions) -> Result<Store> {
    Store::open_on(Arc::new(storage.clone()), ROOT, options)
}

fn impatient() -> StoreOptions {
    StoreOptions { lock_timeout: Duration::from_millis(20), ..StoreOptions::default() }
}

fn topic(store: &Store, name: &str) -> Result<TopicSettings> {
    store.open_topic(name, &TopicOptions::default())
}

fn list(storage: &dyn Storage, path: &str) -> Vec<String> {
    storage.list(&Path::new(ROOT).join(path)).unwrap()
}

/// Replace the content of a file, which may become shorter.
fn overwrite(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    let aside = Path::new("/aside");
    storage.open(aside, OpenMode::CreateNew(0o600)).unwrap().write_at(bytes, 0).unwrap();
    storage.rename_over(aside, path).unwrap();
}

fn read(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    files::read(storage, path).unwrap().unwrap()
}

/// Check that the store has nothing that no topic needs.
fn assert_tidy(storage: &dyn Storage) {
    let topics = list(storage, "topics");
    for topic in &topics {
        assert_eq!(list(storage, &format!("topics/{topic}")), ["topic.json"]);
    }
    assert_eq!(list(storage, "logs").len(), topics.len());
    let known = [
        "claim",
        "consumers",
        "falaj.json",
        "logs",
        "presence",
        "settled",
        "slots",
        "topics",
        "wake",
    ];
    assert_eq!(list(storage, ""), known);
}
