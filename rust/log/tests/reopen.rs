//! Opening and closing repeatedly: one object for a log at a time, and nothing is left behind.
//!
//! A program of its own that runs one test at a time: one test counts the process's threads, and
//! the others start such threads too.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stores;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::store::{Store, StoreOptions};
use falaj::internals::topic::{NewRecord, SyncMode};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use stores::{on_both, open, topic};

/// Until it is dropped, no other test of this program has a store open.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pwrite() -> StoreOptions {
    StoreOptions { write_mode: Some(WriteMode::Pwrite), ..StoreOptions::default() }
}

#[test]
fn a_process_has_one_object_for_a_log_at_a_time_also_while_one_is_being_dropped() {
    let _alone = alone();
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        drop(topic(&store, "orders"));
        let appended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..200 {
                        let sync = if i % 3 == 0 { SyncMode::Durable } else { SyncMode::None };
                        let orders = topic(&store, "orders");
                        orders.append_to(0, &NewRecord::new(b"x"), Some(sync)).unwrap();
                        appended.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(topic(&store, "orders").end(0).unwrap(), appended.into_inner());
    });
}

/// Number of background threads in this process.
fn keepers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim() == "falaj-keeper").count()
}

/// If the bell cannot wake a background thread, it must still end with its store.
///
/// It used to sleep a tenth of a second more, with all the store's maps. A program that opened and
/// closed many stores had as many such threads.
#[test]
fn the_thread_that_keeps_a_stores_logs_ends_with_the_store() {
    let _alone = alone();
    const STORES: usize = 200;
    let machine: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut most = 0;
    for _ in 0..STORES {
        let store = Store::open_on(Arc::clone(&machine), "/store", &pwrite()).unwrap();
        topic(&store, "orders").append_to(0, &NewRecord::new(b"x"), Some(SyncMode::None)).unwrap();
        drop(store);
        most = most.max(keepers());
    }
    // The scheduler decides when each ends. If they slept on, as many would live as stores are
    // opened in a tenth of a second.
    assert!(most <= STORES / 8, "{most} keepers of {STORES} stores at once");
}

/// A disk fails every sync and is full: a process that tries again keeps nothing open of its tries.
#[test]
fn syncs_that_fail_on_a_full_disk_keep_no_descriptors() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let faulty = FaultyStorage::new(Arc::new(RealStorage::new()));
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let store = Store::open_on(storage, dir.path().join("store"), &pwrite()).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    orders.append_to(0, &NewRecord::new(b"one"), None).unwrap();
    faulty.plan(Fault::at(1, FailureKind::Errno(libc::EIO)).only(Call::SyncData).forever());
    // The first write of a sync is the lock's word, the next one the failed-sync flag.
    let second = faulty.count(Call::Write) + 2;
    faulty.plan(Fault::at(second, FailureKind::Errno(libc::ENOSPC)).only(Call::Write).forever());
    for _ in 0..20 {
        orders.flush().unwrap_err();
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let led = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let of_locks = |path: &std::path::PathBuf| {
        path.starts_with(dir.path()) && path.file_name() == Some("lock.sync".as_ref())
    };
    assert_eq!(led.filter(of_locks).count(), 0);
    faulty.heal();
    orders.flush().unwrap();
}
