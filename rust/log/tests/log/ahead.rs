//! Space and pages prepared ahead of the writer, by a helper that takes no lock and may fail.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::format::control::at;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, LogSettings};
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{MapAccess, OpenMode, Storage};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

const LARGE: u64 = 8 << 20;

struct Place {
    _root: tempfile::TempDir,
    faulty: FaultyStorage,
    dir: PathBuf,
}

impl Place {
    fn allocated(&self) -> Address {
        let control = self.faulty.open(&self.dir.join("control"), OpenMode::Read).unwrap();
        Address(control.map(4096, MapAccess::Read).unwrap().load(at::ALLOCATED))
    }

    fn len_of(&self, sequence: u64) -> u64 {
        self.faulty.stat(&self.dir.join(names::segment(sequence))).unwrap().len
    }
}

fn place(mode: WriteMode) -> (Place, Arc<Log>) {
    place_of(mode, LARGE)
}

fn place_of(mode: WriteMode, segment_bytes: u64) -> (Place, Arc<Log>) {
    let root = tempfile::tempdir().unwrap();
    let faulty = FaultyStorage::new(Arc::new(RealStorage::new()));
    let dir = log_dir(root.path());
    create_log_of(&faulty, &dir, 1, mode, segment_bytes);
    let settings = LogSettings { segment_bytes, ..settings(mode) };
    let (storage, member) = (Arc::new(faulty.clone()), TestMember::new(0, 1));
    let log = Log::open(storage, &dir, settings, Some(Arc::new(member))).unwrap();
    // The test plays the helper: it looks when the test wants.
    log.set_helper(std::thread::current());
    (Place { _root: root, faulty, dir }, log)
}

#[test]
fn room_is_there_before_the_writer_needs_it() {
    let (place, log) = place(WriteMode::Mapped);
    let value = vec![7; 100 << 10];
    for i in 0..70 {
        append(&log, 0, &[&value]).unwrap();
        log.prefault();
        let (end, room) = (log.committed().unwrap(), place.allocated());
        assert_eq!(room.sequence(), end.sequence());
        assert!(room.position() >= (end.position() + (128 << 10)).min(LARGE), "append {i}");
        assert!(place.len_of(room.sequence()) >= room.position());
    }
    let (found, ended) = read_all(&log, 0, 0);
    ended.unwrap();
    assert!(found.len() == 70 && found.iter().all(|(_, found)| *found == value));
}

#[test]
fn where_stores_are_writes_room_is_left_to_who_has_the_lock() {
    let (place, log) = place(WriteMode::Pwrite);
    let before = place.allocated();
    append(&log, 0, &[&vec![7; 200 << 10]]).unwrap();
    log.prefault();
    assert_eq!(place.allocated(), before);
}

#[test]
fn a_helper_that_gets_no_space_causes_no_error() {
    let (place, log) = place(WriteMode::Mapped);
    let before = place.allocated();
    append(&log, 0, &[&vec![7; 200 << 10]]).unwrap();
    let next = place.faulty.count(Call::Allocate) + 1;
    place.faulty.plan(Fault::at(next, FailureKind::Errno(libc::ENOSPC)).only(Call::Allocate));
    log.prefault();
    assert_eq!((place.faulty.failed(), place.allocated()), (1, before));
    append(&log, 0, &[&vec![7; 200 << 10]]).unwrap();
    assert!(place.allocated() > before);
}

#[test]
fn a_segment_that_was_sealed_meanwhile_grows_no_more() {
    let (place, log) = place(WriteMode::Mapped);
    let sealed = place.allocated().sequence();
    let len = || place.len_of(sealed);
    append(&log, 0, &[&vec![7; 200 << 10]]).unwrap();
    log.roll_now().unwrap();
    let (before, room) = (len(), place.allocated());
    log.prefault();
    assert_eq!((len(), place.allocated()), (before, room));
    assert!(room.sequence() > sealed);
}

/// A log with appends until its next segment is prepared; returns how many records it has.
fn with_next_prepared(place: &Place, log: &Log) -> usize {
    let prepared = place.dir.join(names::prepared(0));
    // How fast the writer is depends on the machine, so it gets some segments to try.
    for count in 1..320 {
        append(log, 0, &[&vec![7; 1 << 20]]).unwrap();
        if place.faulty.stat(&prepared).is_ok() {
            return count;
        }
        log.prefault();
    }
    panic!("the next segment was never prepared before it was needed");
}

#[test]
fn a_fast_writer_finds_room_in_the_next_segment_too() {
    let (place, log) = place_of(WriteMode::Mapped, 32 << 20);
    let mut count = with_next_prepared(&place, &log);
    log.prefault();
    let (active, syncs) = (place.allocated().sequence(), place.faulty.count(Call::SyncAll));
    while place.allocated().sequence() == active {
        append(&log, 0, &[&vec![7; 1 << 20]]).unwrap();
        count += 1;
    }
    assert!(
        place.faulty.stat(&place.dir.join(names::prepared(0))).is_err(),
        "the prepared segment must be in use"
    );
    assert_eq!(place.faulty.count(Call::SyncAll), syncs, "the helper must have synced it");
    assert_eq!(place.allocated().position(), 16 << 20);
    assert_eq!(read_all(&log, 0, 0).0.len(), count);
}

#[test]
fn a_sync_that_failed_for_the_helper_is_told_to_the_writer_and_not_taken_for_done() {
    let (place, log) = place_of(WriteMode::Mapped, 32 << 20);
    let mut count = with_next_prepared(&place, &log);
    let next = place.faulty.count(Call::SyncAll) + 1;
    place.faulty.plan(Fault::at(next, FailureKind::Errno(libc::EIO)).only(Call::SyncAll));
    log.prefault();
    assert_eq!(place.faulty.failed(), 1);
    let active = place.allocated().sequence();
    let mut one_more = || append(&log, 0, &[&vec![7; 1 << 20]]).map(|_| count += 1).err();
    let error = (0..40).find_map(|_| one_more());
    assert!(matches!(error, Some(Error::SystemCallFailed { .. })), "{error:?}");
    assert_eq!(place.allocated().sequence(), active);
    append(&log, 0, &[&vec![7; 1 << 20]]).unwrap();
    assert!(place.allocated().sequence() > active, "the writer must create another segment");
    assert_eq!(read_all(&log, 0, 0).0.len(), count + 1);
}

// A helper that pauses between its look at the space and the allocation finds the segment full and
// sealed.
#[test]
fn a_helper_that_comes_too_late_takes_nothing_from_a_segment_that_others_filled() {
    let memory = MemoryStorage::with_capacity(2 * LARGE);
    let (dir, mode) = (PathBuf::from("/log"), WriteMode::Mapped);
    create_log_of(&memory, &dir, 1, mode, LARGE);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let open = |member: TestMember| {
        let settings = LogSettings { segment_bytes: LARGE, ..settings(mode) };
        Log::open(storage.clone(), &dir, settings, Some(Arc::new(member))).unwrap()
    };
    let member = TestMember::new(0, 1);
    let (other, log) = (open(member.beside(1)), open(member));
    log.set_helper(std::thread::current());
    append(&log, 0, &[&vec![0; 200 << 10]]).unwrap();
    let (stopped, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
    let (armed, counted) = (Arc::clone(&stopped), Arc::clone(&count));
    let sealed = other.committed().unwrap().sequence();
    memory.watch(move |_| {
        if !armed.swap(false, Ordering::SeqCst) {
            return;
        }
        while other.committed().unwrap().sequence() == sealed {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            append(&other, 0, &[&vec![number as u8; 200 << 10]]).unwrap();
        }
    });
    stopped.store(true, Ordering::SeqCst);
    log.prefault();
    let count = count.load(Ordering::SeqCst);
    assert!(count > 8 && !stopped.load(Ordering::SeqCst), "the segment must be full meanwhile");
    let (found, ended) = read_all(&log, 0, 0);
    ended.unwrap();
    assert_eq!(found.len() as u64, count);
    assert!((0..).zip(&found).all(|(i, (_, value))| *value == vec![i as u8; 200 << 10]));
}
