//! Appends to a log with a corrupt or unreadable part: no offset is used twice.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::RepairKind;
use falaj::internals::storage::Storage;
use falaj::internals::store::{Store, StoreOptions, repair};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{fill, flip, open, segment, topic, value};

const PATH: &str = "/store";

#[test]
fn behind_any_flipped_byte_of_a_closed_log_no_offset_is_given_out_twice() {
    let machine = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let orders = topic(&open(&storage, Path::new(PATH)).unwrap(), "orders");
    for i in 0..7 {
        let values = [value(3 * i), value(3 * i + 1), value(3 * i + 2)];
        let event_time_ns = (i % 2 == 0).then_some(i as i64 * 1_000_000_000);
        let records = values
            .each_ref()
            .map(|value| NewRecord { event_time_ns, ..NewRecord::new(&value[..100]) });
        orders.extend_to(0, &records, None).unwrap();
    }
    // Records that are durable already still need their mark.
    orders.flush().unwrap();
    drop(orders);
    let closed = machine.restart();
    for position in (FIRST_BLOCK..FIRST_BLOCK + 21 * 110).step_by(37) {
        let storage: Arc<dyn Storage> = Arc::new(closed.restart());
        flip(&storage, &segment(&storage, Path::new(PATH), "orders", 0), position);
        let Ok(store) = open(&storage, Path::new(PATH)) else { continue };
        let Ok(orders) = Topic::open(&store, "orders", &Default::default()) else { continue };
        let appended = orders.append_to(0, &NewRecord::new(b"new"), Some(SyncMode::Durable));
        assert!(appended.as_ref().map_or(true, |offset| *offset >= 21), "{position}: {appended:?}");
    }
}

/// A machine with a killed process that had appended four records, not all of them durable.
fn killed() -> MemoryStorage {
    let machine = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(machine.process());
    let store = open(&storage, Path::new(PATH)).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    for _ in 0..2 {
        orders.append_to(0, &NewRecord::new(b"one"), Some(SyncMode::Durable)).unwrap();
        orders.log().roll_now().unwrap();
        orders.append_to(0, &NewRecord::new(b"two"), None).unwrap();
    }
    machine.survivor()
}

/// Recover after [`killed`] on a machine with these faults, and again without them.
///
/// Returns whether it failed, and whether the first recovery finished all the same.
fn recovered_in_spite_of(faults: &[Fault]) -> (bool, bool) {
    let faulty = FaultyStorage::over_memory(killed().process());
    faults.iter().for_each(|fault| faulty.plan(*fault));
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let first = open(&storage, Path::new(PATH))
        .and_then(|store| Topic::open(&store, "orders", &Default::default()));
    let ended = first.is_ok();
    drop(first);
    let struck = faulty.failed() > 0;
    faulty.heal();
    let store = open(&storage, Path::new(PATH)).unwrap();
    let orders = Topic::open(&store, "orders", &Default::default()).unwrap();
    assert_eq!(orders.end(0).unwrap(), 4, "{faults:?}");
    (struck, ended)
}

/// All records of a killed process are there, although the next one's recovery fails once.
#[test]
fn a_recovery_that_is_refused_a_look_loses_nothing() {
    for errno in [libc::EIO, libc::EMFILE, libc::ENOSPC] {
        for nth in 1..400 {
            let (struck, _) = recovered_in_spite_of(&[Fault::at(nth, FailureKind::Errno(errno))]);
            if !struck {
                break;
            }
        }
    }
}

/// The disk fails several times in a row, and then works: bytes that were not read do not count as
/// torn.
#[test]
fn a_recovery_that_is_refused_several_reads_in_a_row_loses_nothing() {
    for row in 2..5 {
        for nth in 1..400 {
            let failing = |nth| Fault::at(nth, FailureKind::Errno(libc::EIO)).only(Call::Read);
            let faults: Vec<_> = (nth..nth + row).map(failing).collect();
            if !recovered_in_spite_of(&faults).0 {
                break;
            }
        }
    }
}

#[test]
fn a_recovery_whose_reads_stop_early_reads_on() {
    for nth in 1..400 {
        let short = Fault::at(nth, FailureKind::ShortRead).only(Call::Read);
        let (struck, ended) = recovered_in_spite_of(&[short]);
        assert!(ended, "read {nth}");
        assert!(recovered_in_spite_of(&[short.forever()]).1, "from read {nth} on");
        if !struck {
            assert!(nth > 20, "only {nth} reads");
            break;
        }
    }
}

/// Opening a log whose end cannot be read changes nothing.
///
/// A repair lists its steps first. It loses what is behind the bad place, and uses no offset from
/// there again.
#[test]
fn only_repair_cuts_what_cannot_be_read_and_gives_no_offset_behind_it_again() {
    let machine = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(machine.process());
    let orders = topic(&open(&storage, Path::new(PATH)).unwrap(), "orders");
    let orders = orders.with_sync(SyncMode::None);
    orders.append_to(0, &NewRecord::new(&value(0)), Some(SyncMode::Durable)).unwrap();
    fill(&orders, 1, 20);
    let survivor = machine.survivor();
    for bad in [FIRST_BLOCK + 10 * 540..FIRST_BLOCK + 11 * 540, FIRST_BLOCK + 40 * 540..1 << 30] {
        let faulty = FaultyStorage::over_memory(survivor.survivor());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let path = segment(&storage, Path::new(PATH), "orders", 0);
        faulty.spoil(&path, bad.clone()).unwrap();
        for _ in 0..2 {
            let store = open(&storage, Path::new(PATH)).unwrap();
            let refused = Topic::open(&store, "orders", &Default::default());
            assert!(
                matches!(refused, Err(Error::CorruptData { .. } | Error::SystemCallFailed { .. })),
                "{bad:?}"
            );
        }
        let repaired = |dry_run| {
            let options = StoreOptions::default();
            let told = repair(Arc::clone(&storage), Path::new(PATH), &options, dry_run).unwrap();
            assert!(told.is_complete(), "{told:?}");
            told.steps().cloned().collect::<Vec<_>>()
        };
        let told = repaired(true);
        let cut = told.iter().find(|step| step.mend == RepairKind::Cut).unwrap();
        assert!(cut.position <= bad.start && cut.bytes > 0, "{bad:?}: {cut:?}");
        assert_eq!((cut.path.as_path(), cut.why.contains("disk")), (path.as_path(), true));
        assert_eq!(repaired(false), told);
        let store = open(&storage, Path::new(PATH)).unwrap();
        let orders = Topic::open(&store, "orders", &Default::default()).unwrap();
        let read = orders.scan_partition(0, 0, None).unwrap().next().transpose().unwrap().unwrap();
        assert_eq!(read.value(), Some(value(0).as_slice()));
        assert!(orders.append_to(0, &NewRecord::new(b"new"), None).unwrap() >= 20, "{bad:?}");
    }
}

/// A disk refuses one read, and returns the bytes at the second try: not even a repair loses
/// anything.
#[test]
fn a_repair_that_is_refused_a_read_once_cuts_nothing() {
    let repaired = |fault: Option<Fault>| {
        let faulty = FaultyStorage::over_memory(killed().process());
        fault.iter().for_each(|fault| faulty.plan(*fault));
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let told = repair(storage, Path::new(PATH), &StoreOptions::default(), false);
        let reads = faulty.count(Call::Read);
        faulty.heal();
        let storage: Arc<dyn Storage> = Arc::new(faulty);
        let store = open(&storage, Path::new(PATH)).unwrap();
        let orders = Topic::open(&store, "orders", &Default::default()).unwrap();
        let mut scan = orders.scan_partition(0, 0, None).unwrap();
        let found = (0..).take_while(|_| scan.next().transpose().unwrap().is_some()).count();
        assert_eq!((orders.end(0).unwrap(), found), (4, 4), "{fault:?}: {told:?}");
        reads
    };
    let reads = repaired(None);
    assert!(reads > 20, "{reads}");
    for nth in 1..=reads {
        for errno in [libc::EIO, libc::EACCES] {
            repaired(Some(Fault::at(nth, FailureKind::Errno(errno)).only(Call::Read)));
        }
    }
}

/// The word of the tail could not be stored; the record is there all the same.
#[test]
fn a_flush_covers_a_record_behind_which_the_tail_could_not_be_stored() {
    for nth in 1..60 {
        let machine = MemoryStorage::new();
        let faulty = FaultyStorage::over_memory(machine.clone());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let options = StoreOptions { write_mode: Some(WriteMode::Pwrite), ..Default::default() };
        let store = Store::open_on(Arc::clone(&storage), PATH, &options).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        orders.append_to(0, &NewRecord::new(b"before"), None).unwrap();
        faulty.plan(
            Fault::at(faulty.count(Call::Write) + nth, FailureKind::Errno(libc::ENOSPC))
                .only(Call::Write),
        );
        let appended = orders.append_to(0, &NewRecord::new(b"one"), None).is_ok();
        faulty.heal();
        orders.flush().unwrap();
        let crash = machine.journal().crash_at_end();
        let after: Arc<dyn Storage> = Arc::new(crash.image(&crash.nothing()));
        let found =
            Topic::open(&open(&after, Path::new(PATH)).unwrap(), "orders", &Default::default());
        assert_eq!(found.unwrap().end(0).unwrap(), 1 + u64::from(appended), "write {nth}");
    }
}
