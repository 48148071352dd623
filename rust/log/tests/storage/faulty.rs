//! The faulty storage fails the planned calls, and no others.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::storage::{File, LockKind, MapAccess, OpenMode, Storage};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

fn fresh() -> (MemoryStorage, FaultyStorage) {
    let memory = MemoryStorage::new();
    (memory.clone(), FaultyStorage::over_memory(memory))
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.expect_err("this must fail").raw_os_error().expect("an error number")
}

/// One call of each kind, in the order of [`KINDS`]; stops at the first that fails.
fn one_of_each(storage: &dyn Storage) -> std::io::Result<Arc<dyn File>> {
    let (a, b) = (Path::new("/a"), Path::new("/b"));
    let file = storage.open(a, OpenMode::CreateNew(0o600))?;
    file.allocate(8192)?;
    file.write_at(b"x", 0)?;
    file.read_at(&mut [0], 0)?;
    file.punch(4096, 4096)?;
    storage.rename_new(a, b)?;
    storage.list(Path::new("/"))?;
    file.sync_data()?;
    file.sync_all()?;
    storage.sync_dir(Path::new("/"))?;
    file.map(4096, MapAccess::Read)?;
    file.try_lock(LockKind::Exclusive)?;
    file.stat()?;
    storage.create_dir(Path::new("/d"), 0o700)?;
    storage.random()?;
    storage.unlink(b)?;
    Ok(file)
}

const KINDS: [Call; 16] = [
    Call::Open,
    Call::Allocate,
    Call::Write,
    Call::Read,
    Call::Punch,
    Call::Rename,
    Call::List,
    Call::SyncData,
    Call::SyncAll,
    Call::SyncDir,
    Call::Map,
    Call::Lock,
    Call::Stat,
    Call::CreateDir,
    Call::Random,
    Call::Unlink,
];

#[test]
fn every_call_is_counted_once() {
    let (_, faulty) = fresh();
    one_of_each(&faulty).unwrap();
    assert_eq!(faulty.total(), KINDS.len() as u64);
    for kind in KINDS {
        assert_eq!(faulty.count(kind), 1, "{kind:?}");
    }
    assert_eq!(faulty.failed(), 0);
}

#[test]
fn each_call_can_be_made_to_fail_by_number_and_by_kind() {
    for (index, kind) in KINDS.into_iter().enumerate() {
        let nth = index as u64 + 1;
        let plans = [Fault::at(nth, FailureKind::Errno(libc::EDQUOT)), {
            Fault::at(1, FailureKind::Errno(libc::EDQUOT)).only(kind)
        }];
        for plan in plans {
            let (_, faulty) = fresh();
            faulty.plan(plan);
            assert_eq!(errno(one_of_each(&faulty)), libc::EDQUOT, "{kind:?}");
            assert_eq!((faulty.total(), faulty.failed()), (nth, 1), "{kind:?}");
        }
    }
}

#[test]
fn a_failed_call_does_nothing_below() {
    for (index, kind) in KINDS.into_iter().enumerate() {
        let (memory, faulty) = fresh();
        faulty.plan(Fault::at(index as u64 + 1, FailureKind::Errno(libc::EIO)));
        assert_eq!(errno(one_of_each(&faulty)), libc::EIO);
        let forgot = u64::from(matches!(kind, Call::SyncData | Call::SyncAll));
        let changing = |kind: &&Call| {
            !matches!(kind, Call::Read | Call::List | Call::Map | Call::Lock | Call::Stat)
                && **kind != Call::Random
        };
        let before = KINDS[..index].iter().filter(changing).count() as u64;
        assert_eq!(memory.events() as u64, before + forgot, "{kind:?}");
    }
}

#[test]
fn a_fault_strikes_once_or_for_ever_until_healed() {
    let (_, faulty) = fresh();
    let file = faulty.open(Path::new("/a"), OpenMode::CreateNew(0o600)).unwrap();
    faulty.plan(Fault::at(2, FailureKind::Errno(libc::ENOSPC)).only(Call::Write));
    file.write_at(b"1", 0).unwrap();
    assert_eq!(errno(file.write_at(b"2", 0)), libc::ENOSPC);
    file.write_at(b"3", 0).unwrap();
    faulty.plan(Fault::at(4, FailureKind::Errno(libc::EROFS)).only(Call::Write).forever());
    assert_eq!(errno(file.write_at(b"4", 0)), libc::EROFS);
    assert_eq!(errno(file.write_at(b"5", 0)), libc::EROFS);
    file.sync_data().unwrap();
    faulty.heal();
    file.write_at(b"6", 0).unwrap();
    assert_eq!((faulty.count(Call::Write), faulty.failed()), (6, 3));
}

#[test]
fn reads_can_be_cut_short_and_writes_stop_half_way() {
    let (_, faulty) = fresh();
    let file = faulty.open(Path::new("/a"), OpenMode::CreateNew(0o600)).unwrap();
    faulty.plan(Fault::at(1, FailureKind::HalfWritten(libc::ENOSPC)).only(Call::Write));
    assert_eq!(errno(file.write_at(b"01234567", 0)), libc::ENOSPC);
    assert_eq!(file.stat().unwrap().len, 4);
    file.write_at(b"01234567", 0).unwrap();
    faulty.plan(Fault::at(1, FailureKind::ShortRead).only(Call::Read));
    let mut bytes = [b'-'; 8];
    assert_eq!(file.read_some(&mut bytes, 0).unwrap(), 4);
    assert_eq!(&bytes, b"0123----");
    faulty.plan(Fault::at(2, FailureKind::ShortRead).only(Call::Read).forever());
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 8, "the read must continue");
    assert_eq!(&bytes, b"01234567");
    let mut more = [b'-'; 16];
    assert_eq!(file.read_at(&mut more, 3).unwrap(), 5, "the read must end with the file");
    assert_eq!(&more[..6], b"34567-");
    // 8 bytes are read as 4, 2, 1 and 1. A read of 16 returns the 5 that exist, then none.
    assert_eq!(faulty.count(Call::Read), 1 + 4 + 2);
}

#[test]
fn stores_through_pwrite_can_fail_and_stores_into_memory_cannot() {
    let (_, faulty) = fresh();
    let file = faulty.open(Path::new("/a"), OpenMode::CreateNew(0o600)).unwrap();
    file.allocate(4096).unwrap();
    let through = file.map(4096, MapAccess::WriteThrough).unwrap();
    let memory = file.map(4096, MapAccess::Write).unwrap();
    faulty.plan(Fault::at(1, FailureKind::Errno(libc::EIO)).only(Call::Write).forever());
    assert_eq!(errno(through.write(0, b"x")), libc::EIO);
    assert_eq!(errno(through.store(8, 1)), libc::EIO);
    memory.write(0, b"y").unwrap();
    memory.store(8, 2).unwrap();
    assert_eq!((memory.load(0), through.load(8)), (u64::from(b'y'), 2));
    assert_eq!(faulty.count(Call::Write), 2);
}

/// A store's own threads may store more, between the journal and the question.
#[test]
fn a_power_cut_at_a_journals_end_knows_nothing_of_what_came_after_it() {
    let memory = MemoryStorage::new();
    let file = memory.open(Path::new("/a"), OpenMode::CreateNew(0o600)).unwrap();
    file.write_at(b"old", 0).unwrap();
    memory.sync_dir(Path::new("/")).unwrap();
    let journal = memory.journal();
    file.write_at(b"new", 0).unwrap();
    assert!(memory.events() > journal.len());
    let crash = journal.crash_at_end();
    let image = crash.image(&crash.everything());
    let mut seen = [0; 3];
    image.open(Path::new("/a"), OpenMode::Read).unwrap().read_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"old");
}

/// Trap 12: the next sync succeeds, and the dirty bytes are not on the disk.
#[test]
fn after_a_failed_sync_the_next_one_succeeds_and_writes_nothing() {
    let (memory, faulty) = fresh();
    let file = faulty.open(Path::new("/a"), OpenMode::CreateNew(0o600)).unwrap();
    file.write_at(b"old", 0).unwrap();
    file.sync_data().unwrap();
    faulty.sync_dir(Path::new("/")).unwrap();
    file.write_at(b"new", 0).unwrap();
    faulty.plan(Fault::at(2, FailureKind::Errno(libc::EIO)).only(Call::SyncData));
    assert_eq!(errno(file.sync_data()), libc::EIO);
    file.sync_data().unwrap();
    let mut seen = [0; 3];
    file.read_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"new", "the page cache must still have it");
    let crash = memory.journal().crash_at_end();
    let image = crash.image(&crash.nothing());
    image.open(Path::new("/a"), OpenMode::Read).unwrap().read_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"old", "and the disk must not");
}

#[test]
fn a_failed_sync_is_reported_once_to_each_descriptor_that_was_open() {
    let (_, faulty) = fresh();
    let path = Path::new("/a");
    let file = faulty.open(path, OpenMode::CreateNew(0o600)).unwrap();
    let other = faulty.open(path, OpenMode::ReadWrite).unwrap();
    faulty.plan(Fault::at(1, FailureKind::Errno(libc::EIO)).only(Call::SyncData));
    file.write_at(b"x", 0).unwrap();
    assert_eq!(errno(file.sync_data()), libc::EIO);
    let later = faulty.open(path, OpenMode::ReadWrite).unwrap();
    later.sync_data().expect("a descriptor opened after the error");
    file.sync_data().expect("told already");
    assert_eq!(errno(other.sync_all()), libc::EIO);
    other.sync_all().expect("told once");
}
