//! Rolls: the work under the append lock, and the work that is left for later.

use std::path::Path;
use std::sync::Arc;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::format::address::Address;
use falaj::internals::format::control::at;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::segment::Check;
use falaj::internals::storage::{OpenMode, Storage};
use falaj_twin::faulty::Call;
use falaj_twin::memory::MemoryStorage;

fn word(storage: &MemoryStorage, position: u64) -> u64 {
    let page = storage.open(Path::new("/log/control"), OpenMode::Read).unwrap();
    let mut bytes = [0; 8];
    page.read_at(&mut bytes, position).unwrap();
    u64::from_le_bytes(bytes)
}

/// Names and sizes of the log's files.
fn files(storage: &MemoryStorage) -> Vec<(String, u64, u64)> {
    let names = storage.list(Path::new("/log")).unwrap().into_iter();
    let stat = |name: String| {
        let stat = storage.stat(&Path::new("/log").join(&name)).unwrap();
        (name, stat.len, stat.inode)
    };
    names.map(stat).collect()
}

#[test]
fn a_roll_changes_one_name_under_the_append_lock_and_no_size() {
    let p = Place::new(3, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"before"]).unwrap();
    let start = p.memory.events();
    log.roll_now().unwrap();
    let journal = p.memory.journal();
    let mut held = Vec::new();
    for time in start..=journal.len() {
        let image = journal.killed_at(time);
        if word(&image, at::APPEND_LOCK) != 0 {
            held.push(files(&image));
        }
    }
    held.dedup();
    let [before, after] = &held[..] else { panic!("changed {} times", held.len() - 1) };
    let new = names::segment(1);
    let old: Vec<_> = before.iter().filter(|file| !after.contains(file)).collect();
    let [(name, len, inode)] = old[..] else { panic!("{old:?}") };
    assert_eq!(*name, names::prepared(0));
    assert!(after.contains(&(new, *len, *inode)), "{after:?}");
}

#[test]
fn retention_is_due_after_a_roll_once_the_sealed_segment_is_durable() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for round in 0..2 {
        append(&log, 0, &[b"sealed"]).unwrap();
        let sealed = log.committed();
        log.roll_now().unwrap();
        assert!(!log.take_retention_due(), "round {round}: limits count only durable records");
        log.sync_sealed().unwrap();
        assert!(log.durable() >= sealed, "round {round}");
        assert!(log.take_retention_due() && !log.take_retention_due(), "round {round}: once");
        log.sync_sealed().unwrap();
        assert!(!log.take_retention_due(), "round {round}: nothing new may be due");
    }
}

#[test]
fn the_unused_rest_of_a_sealed_segment_goes_back_to_the_file_system_with_the_next_sync() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let p = Place::new(1, mode);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"sealed"]).unwrap();
        log.roll_now().unwrap();
        let punched = p.faulty.count(Call::Punch);
        log.sync_sealed().unwrap();
        assert_eq!(p.faulty.count(Call::Punch), punched + 1, "{mode:?}");
        log.sync_sealed().unwrap();
        assert_eq!(p.faulty.count(Call::Punch), punched + 1, "{mode:?}: once is enough");
    }
}

#[test]
fn a_roll_that_dies_before_its_index_is_made_leaves_that_to_the_next_append() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let p = Place::new(1, mode);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"before"]).unwrap();
        let start = p.memory.events();
        log.roll_now().unwrap();
        let journal = p.memory.journal();
        let mut without = 0;
        for time in start..=journal.len() {
            let image = journal.killed_at(time);
            let rolled = Address(word(&image, at::TAIL)).sequence() == 1;
            without += u32::from(rolled && image.stat(&p.dir.join(names::index(1))).is_err());
            let dead = TestMember::new(0, 1);
            dead.dies();
            let storage: Arc<dyn Storage> = Arc::new(image);
            let log = open_as(&storage, &p.dir, dead.beside(1), mode).unwrap();
            let active = append(&log, 0, &[b"after"]).unwrap().end.sequence();
            let mut entry = [0; 32];
            let index = storage.open(&p.dir.join(names::index(active)), OpenMode::Read).unwrap();
            index.read_at(&mut entry, 64).unwrap();
            assert_ne!(entry, [0; 32], "{mode:?}, event {time}");
            assert_eq!(read_all(&log, 0, 0).0.len(), 2);
        }
        assert!(without > 0, "there must be such a time");
    }
}

#[test]
fn a_lookup_before_there_is_an_index_finds_the_index_later() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"before"]).unwrap();
    log.roll_now().unwrap();
    let (index, aside) = (p.dir.join(names::index(1)), p.dir.join("aside"));
    p.storage.rename_new(&index, &aside).unwrap();
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let opened = |offset| {
        let before = p.faulty.count(Call::Open);
        reader.cursor_at(0, offset, Check::Full).unwrap();
        p.faulty.count(Call::Open) - before
    };
    opened(1);
    assert_eq!(opened(1), 1, "it must look again");
    p.storage.rename_new(&aside, &index).unwrap();
    append(&log, 0, &[b"after"]).unwrap();
    assert_eq!((opened(1), opened(1)), (1, 0), "it must have found it");
}

/// Otherwise the next segment of that number would begin with the index of another one.
#[test]
fn an_index_without_its_segment_does_not_outlive_a_recovery() {
    let p = Place::new(1, WriteMode::Mapped);
    drop(p.open(TestMember::new(0, 1)));
    let stale = p.dir.join(names::index(1));
    p.storage.rename_new(&p.dir.join(names::index(0)), &stale).unwrap();
    let log = p.open(TestMember::new(0, 2));
    assert!(p.storage.stat(&stale).is_err());
    log.roll_now().unwrap();
    append(&log, 0, &[b"one"]).unwrap();
    let mut entry = [0; 32];
    p.storage.open(&stale, OpenMode::Read).unwrap().read_at(&mut entry, 64).unwrap();
    assert_ne!(entry, [0; 32]);
}
