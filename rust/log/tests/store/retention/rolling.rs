//! Retention by a process that rolls: automatic, and no append fails or waits for it.

use std::time::{Duration, Instant};

use falaj::internals::storage::real::RealStorage;
use falaj::internals::topic::NewRecord;
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use super::*;
use crate::stores::on_both;

const LIMIT: u64 = 300 << 10;
/// Bytes that may exceed it until the next roll: a segment and its index.
const SEGMENT: u64 = 80 << 10;

/// Wait for the work of another thread.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        // sleep: no event reports that files were removed
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_topic_that_is_written_to_stays_within_its_limits_by_itself() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        store.configure_topic("orders", &bytes(LIMIT), None).unwrap();
        for round in 0..5 {
            fill(&orders, round * 1000, round * 1000 + 1000);
            until("the size is within the limit", || {
                taken(storage, &path, "orders") <= LIMIT + SEGMENT
            });
        }
        assert_whole(&orders);
        let problem = &store.info().unwrap().logs[0].retention_problem;
        assert_eq!(*problem, None);
    });
}

#[test]
fn a_process_that_lives_learns_of_other_limits_when_it_rolls() {
    on_both(|storage, root| {
        let path = root.join("store");
        let (store, orders) = filled(storage, &path, 200);
        // It rolls while no limits are set; that is remembered until something changes.
        fill(&orders, 200, 500);
        let other = open(storage, &path).unwrap();
        // The process that handles those rolls may do so before or after this.
        other.configure_topic("orders", &records(20), None).unwrap();
        fill(&orders, 500, 700);
        until("a limit set by another process is reached", || orders.first(0).unwrap() > 500);
        assert_whole(&orders);
        drop(store);
    });
}

#[test]
fn the_limit_of_the_store_is_kept_by_whoever_rolls_also_in_topics_it_has_not_open() {
    // The clock of the other storage stands still, so no record is older there.
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let storage = &storage;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(storage, &path).unwrap();
    let idle = topic(&store, "idle").with_sync(SyncMode::None);
    fill(&idle, 0, 600);
    idle.flush().unwrap();
    drop(idle);
    let busy = topic(&store, "busy").with_sync(SyncMode::None);
    store.configure(Some(LIMIT)).unwrap();
    fill(&busy, 0, 1200);
    let (mut end, mut pause) = (1200, Duration::from_millis(2));
    until("the idle topic's oldest segment is deleted", || {
        // Records that were not durable at the last roll are deleted by a later roll.
        fill(&busy, end, end + 100);
        end += 100;
        // sleep: however long a sync takes here, files are deleted sooner than another is filled
        std::thread::sleep(pause);
        pause *= 2;
        let [idle, busy] = ["idle", "busy"].map(|name| taken(storage, &path, name));
        segments(storage, &path, "idle").len() == 1 && idle + busy <= LIMIT + SEGMENT
    });
    assert_whole(&busy);
    assert_whole(&topic(&store, "idle"));
}

#[test]
fn a_retention_failure_is_reported_by_info_and_no_append_fails() {
    let memory = MemoryStorage::new();
    let faulty = FaultyStorage::over_memory(memory);
    let (storage, path) = (Arc::new(faulty.clone()) as Arc<dyn Storage>, Path::new("/store"));
    let store = open(&storage, path).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    store.configure_topic("orders", &records(100), None).unwrap();
    faulty.plan(Fault::at(1, FailureKind::Errno(libc::EACCES)).only(Call::Unlink).forever());
    fill(&orders, 0, 600);
    let problem = || store.info().unwrap().logs[0].retention_problem.clone();
    until("the failure is reported", || problem().is_some_and(|told| told.contains(".log")));
    assert!(orders.first(0).unwrap() > 0, "the start offset must rise");
    assert_eq!(segments(&storage, path, "orders")[0], 0);
    for i in 600..650 {
        assert_eq!(orders.append_to(0, &NewRecord::new(&value(i)), None).unwrap(), i);
    }
    faulty.heal();
    fill(&orders, 650, 1000);
    until("the report is cleared", || problem().is_none());
    until("the remaining segments are deleted", || segments(&storage, path, "orders")[0] > 4);
    assert_whole(&orders);
}

#[test]
fn nothing_is_removed_of_topics_without_limits() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let (kept, limited) = (topic(&store, "kept"), topic(&store, "limited"));
        store.configure_topic("limited", &records(1), None).unwrap();
        fill(&kept, 0, 800);
        fill(&limited, 0, 800);
        until("the limited topic is trimmed", || limited.first(0).unwrap() > 0);
        store.maintain(false).unwrap();
        assert_eq!(kept.first(0).unwrap(), 0);
        assert_eq!(segments(storage, &path, "kept")[0], 0);
        assert_whole(&kept);
    });
}
