//! Readers of durable records: they see nothing that a power cut may take, and everything that a
//! sync adds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::format::control::at;
use falaj::internals::log::Wait;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{MapAccess, OpenMode, Storage};
use falaj::internals::topic::{PartitionScan, SyncMode, Topic, Visibility};
use falaj::internals::wake::{FOLLOWERS, SYNC_FOLLOWERS, SYNC_WATCHERS};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{fill, on_both, open, open_to_read, topic, value};

const STORE: &str = "/store";
const NOW: Option<Duration> = Some(Duration::ZERO);
const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// A topic that only the test syncs, except for sealed segments.
fn by_hand(storage: &Arc<dyn Storage>, path: &Path) -> (Topic, Topic) {
    let topic = topic(&open(storage, path).unwrap(), "orders").with_sync(SyncMode::None);
    let durable = topic.with_visibility(Visibility::Durable);
    (topic, durable)
}

/// Read on to the end; return how far it came.
fn drain(scan: &mut PartitionScan) -> u64 {
    while let Some(record) = scan.next().transpose().unwrap() {
        assert_eq!(record.value(), Some(value(record.offset()).as_slice()));
    }
    scan.next_offset()
}

#[test]
fn what_a_durable_reader_saw_no_power_cut_takes_back() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let (orders, durable) = by_hand(&storage, Path::new(STORE));
    let mut scan = durable.scan_partition(0, 0, None).unwrap();
    let mut end = 0;
    for step in 0..40_u64 {
        fill(&orders, end, end + step % 7);
        end += step % 7;
        if step % 3 == 0 {
            orders.flush().unwrap();
        }
        let seen = drain(&mut scan);
        let crash = memory.journal().crash_at_end();
        for selection in [crash.nothing(), crash.everything()] {
            let image: Arc<dyn Storage> = Arc::new(crash.image(&selection).restart());
            let early = open_to_read(&image, Path::new(STORE)).unwrap();
            let early = topic(&early, "orders").with_visibility(Visibility::Durable);
            let before_recovery = drain(&mut early.scan_partition(0, 0, None).unwrap());
            assert_eq!(early.end(0).unwrap(), before_recovery);
            let after = topic(&open(&image, Path::new(STORE)).unwrap(), "orders");
            let survived = drain(&mut after.scan_partition(0, 0, None).unwrap());
            assert!(survived >= seen, "step {step}: saw {seen}, {survived} are left");
            assert!(
                survived >= before_recovery,
                "step {step}: recovery cut records that were seen"
            );
        }
    }
    assert!(orders.durable(0).unwrap() > 90, "some records must be durable");
}

#[test]
fn all_that_a_durable_handle_says_ends_with_what_is_on_the_medium() {
    on_both(|storage, path| {
        let (orders, durable) = by_hand(storage, &path.join("store"));
        fill(&orders, 0, 3);
        orders.flush().unwrap();
        fill(&orders, 3, 5);
        assert_eq!((orders.end(0).unwrap(), durable.end(0).unwrap()), (5, 3));
        assert_eq!(durable.committed(0).unwrap(), 5);
        assert_eq!(durable.get_in(0, 2).unwrap().offset(), 2);
        let behind = durable.get_in(0, 3).unwrap_err();
        assert!(matches!(behind, Error::OffsetOutOfRange { offset: 3, end: 3, .. }), "{behind}");
        let last = orders.get_in(0, 4).unwrap().timestamp_ns();
        assert_eq!(durable.offset_at_time(0, last + 1).unwrap(), None);
        assert_eq!(durable.offset_at_time(0, 0).unwrap(), Some(0));

        // However the reading continues, and wherever its upper limit is.
        let scan = |end| durable.scan_partition(0, 1, end).unwrap();
        let (mut records, mut slices, mut runs) = (scan(None), scan(Some(4)), scan(None));
        assert_eq!(drain(&mut records), 3);
        while slices.next_batch(1).unwrap().is_some() {}
        while runs.next_batch(100).unwrap().is_some() {}
        assert_eq!((slices.next_offset(), runs.next_offset()), (3, 3));
        orders.flush().unwrap();
        assert_eq!((drain(&mut records), drain(&mut slices), drain(&mut runs)), (5, 4, 5));
        assert_eq!(durable.offset_at_time(0, last + 1).unwrap(), None);
        assert_eq!(durable.get_in(0, 4).unwrap().offset(), 4);
    });
}

#[test]
fn a_durable_reader_without_the_right_to_write_sees_no_more() {
    on_both(|storage, path| {
        let (orders, _) = by_hand(storage, &path.join("store"));
        let reading = open_to_read(storage, &path.join("store")).unwrap();
        let reader = topic(&reading, "orders").with_visibility(Visibility::Durable);
        let mut scan = reader.scan_partition(0, 0, None).unwrap();
        fill(&orders, 0, 4);
        assert_eq!((drain(&mut scan), reader.end(0).unwrap()), (0, 0));
        let seen = reader.log().durable().unwrap();
        let more = |timeout| reader.log().wait_for_durable(Address(seen.0 + 1), timeout, &|| false);
        assert_eq!(more(NOW).unwrap(), Wait::TimedOut);
        orders.flush().unwrap();
        assert_eq!(more(SOON).unwrap(), Wait::News);
        assert_eq!((drain(&mut scan), reader.end(0).unwrap()), (4, 4));
    });
}

/// The word of the control page that says which sleepers there may be.
fn waiting(topic: &Topic) -> u64 {
    let storage = topic.store().storage();
    let page = storage.open(&topic.log().dir().join("control"), OpenMode::ReadWrite).unwrap();
    page.map(4096, MapAccess::Read).unwrap().load(at::WAITING)
}

/// True when a follower sleeps on the log.
pub fn is_asleep(topic: &Topic) -> bool {
    waiting(topic) & FOLLOWERS != 0
}

#[test]
fn a_durable_follower_sleeps_through_appends_and_is_woken_by_a_sync() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let (orders, durable) = by_hand(&storage, &root.path().join("store"));
    let mut scan = durable.scan_partition(0, 0, None).unwrap();
    let log = durable.log();
    for round in 0..3 {
        let seen = log.durable().unwrap();
        std::thread::scope(|scope| {
            let follower =
                scope.spawn(|| log.wait_for_durable(Address(seen.0 + 1), SOON, &|| false).unwrap());
            while waiting(&orders) & SYNC_FOLLOWERS == 0 {
                std::thread::yield_now();
            }
            let before = log.wakes();
            fill(&orders, round * 50, round * 50 + 50);
            assert_eq!(log.wakes(), before, "an append woke a reader that waits for a sync");
            // Nor when it wakes others.
            assert!(!log.request_notification(Visibility::Durable, seen).unwrap());
            assert_eq!(
                log.wait_for_news(log.committed().unwrap(), NOW, &|| false).unwrap(),
                Wait::TimedOut
            );
            assert_eq!(waiting(&orders) & SYNC_FOLLOWERS, SYNC_FOLLOWERS);
            orders.flush().unwrap();
            assert!(log.wakes() > before);
            assert_eq!(follower.join().unwrap(), Wait::News);
        });
        assert_eq!(waiting(&orders) & (SYNC_FOLLOWERS | SYNC_WATCHERS | FOLLOWERS), 0);
        assert_eq!(drain(&mut scan), round * 50 + 50);
    }
}

#[test]
fn behind_a_failed_sync_a_durable_reader_goes_on_at_the_same_offsets() {
    let faulty = FaultyStorage::over_memory(MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let (orders, durable) = by_hand(&storage, Path::new(STORE));
    fill(&orders, 0, 3);
    orders.flush().unwrap();
    let mut scan = durable.scan_partition(0, 0, None).unwrap();
    assert_eq!(drain(&mut scan), 3);
    fill(&orders, 3, 6);
    for call in [Call::SyncData, Call::SyncAll] {
        faulty.plan(Fault::at(faulty.count(call) + 1, FailureKind::Errno(5)).only(call).forever());
    }
    orders.flush().unwrap_err();
    assert_eq!((drain(&mut scan), durable.end(0).unwrap()), (3, 3), "in the failed-sync state");
    faulty.heal();
    orders.flush().unwrap();
    assert_eq!((drain(&mut scan), durable.end(0).unwrap()), (6, 6));
}
