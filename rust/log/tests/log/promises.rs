//! Promises of `docs/GUARANTEES.md` that no other test covers: corruption, full and failing disks,
//! deleted topics, replaced files, views, clocks, copies.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, Wait, mark_deleted};
use falaj::internals::segment::Check;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::{self, MemoryStorage};

struct Place {
    memory: MemoryStorage,
    faulty: FaultyStorage,
    storage: Arc<dyn Storage>,
    dir: PathBuf,
}

fn place(mode: WriteMode) -> Place {
    let memory = MemoryStorage::new();
    let faulty = FaultyStorage::over_memory(memory.clone());
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let dir = PathBuf::from("/").join(names::log_dir("orders", &LOG));
    create_log(&*storage, &dir, 1, mode);
    Place { memory, faulty, storage, dir }
}

/// All calls of this kind fail from now on.
fn break_down(place: &Place, call: Call, errno: i32) {
    let nth = place.faulty.count(call) + 1;
    place.faulty.plan(Fault::at(nth, FailureKind::Errno(errno)).only(call).forever());
}

fn segment(dir: &Path, sequence: u64) -> PathBuf {
    dir.join(names::segment(sequence))
}

fn flip(storage: &Arc<dyn Storage>, path: &Path, position: u64) {
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, position).unwrap();
    file.write_at(&[byte[0] ^ 1], position).unwrap();
}

fn count(log: &Arc<Log>) -> usize {
    let (found, ended) = read_all(log, 0, 0);
    ended.unwrap();
    found.len()
}

/// Three records, and the position of the second one's last byte.
fn three(log: &Arc<Log>) -> u64 {
    append(log, 0, &[b"one"]).unwrap();
    let second = append(log, 0, &[&[b'2'; 100]]).unwrap().end.position() - 8;
    append(log, 0, &[b"three"]).unwrap();
    second
}

#[test]
fn damage_below_the_mark_is_named_and_can_be_stepped_over_and_is_never_cut() {
    let p = place(WriteMode::Mapped);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 1)).unwrap();
    let second = three(&log);
    log.sync_clean().unwrap();
    drop(log);
    flip(&p.storage, &segment(&p.dir, 0), second);
    let recovered = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    for log in [recovered, open_to_read(&p.storage, &p.dir).unwrap()] {
        let mut cursor = log.cursor_at(0, 0, Check::Full).unwrap();
        assert_eq!(values(cursor.next_block().unwrap().unwrap())[0].1, b"one");
        for _ in 0..2 {
            let error = cursor.next_block().unwrap_err();
            assert!(matches!(error, Error::CorruptData { position, .. } if position < second));
        }
        assert_eq!(cursor.skip_damage().unwrap(), 2);
        let third = cursor.next_block().unwrap().unwrap();
        assert_eq!(values(third), [(2, b"three".to_vec())]);
    }
}

#[test]
fn damage_behind_the_mark_asks_for_recovery_which_keeps_the_bytes_in_quarantine() {
    let p = place(WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let dies = member.obituary();
    let log = open(&p.storage, &p.dir, member).unwrap();
    let second = three(&log);
    log.roll_now().unwrap();
    append(&log, 0, &[b"four"]).unwrap();
    dies();
    std::mem::forget(log);
    flip(&p.storage, &segment(&p.dir, 0), second);
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let (found, ended) = read_all(&reader, 0, 0);
    assert_eq!(found.len(), 1);
    assert!(matches!(ended, Err(Error::NeedsRecovery { .. })), "{ended:?}");
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(count(&log), 1);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 1);
    let kept = p.storage.list(&p.dir.join("quarantine")).unwrap();
    assert_eq!(kept, [names::segment(1)]);
}

#[test]
fn a_missing_segment_that_was_on_the_medium_is_named() {
    let p = place(WriteMode::Mapped);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 1)).unwrap();
    append(&log, 0, &[b"one"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    log.sync_clean().unwrap();
    drop(log);
    let path = segment(&p.dir, 1);
    p.storage.unlink(&path).unwrap();
    let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
    assert!(matches!(&error, Error::CorruptData { path: named, .. } if *named == path), "{error}");
}

#[test]
fn a_failed_sync_is_made_good_in_a_new_segment_and_power_loss_then_takes_nothing() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let p = place(mode);
        let log = open_as(&p.storage, &p.dir, TestMember::new(0, 1), mode).unwrap();
        three(&log);
        let nth = p.faulty.count(Call::SyncData) + 1;
        p.faulty.plan(Fault::at(nth, FailureKind::Errno(libc::EIO)).only(Call::SyncData));
        log.sync().unwrap();
        assert_eq!(log.committed().unwrap().sequence(), 1, "the old file is not synced again");
        assert_eq!(append(&log, 0, &[b"four"]).unwrap().first, 3);
        let journal = p.memory.journal();
        let crash = journal.crash_at_end();
        let image: Arc<dyn Storage> = Arc::new(crash.image(&crash.nothing()));
        let after = open_as(&image, &p.dir, TestMember::new(0, 2), mode).unwrap();
        assert_eq!(count(&after), 3);
    }
}

#[test]
fn while_nothing_can_be_synced_reads_go_on_and_appends_raise_latched() {
    let p = place(WriteMode::Mapped);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 1)).unwrap();
    three(&log);
    break_down(&p, Call::SyncData, libc::EIO);
    break_down(&p, Call::SyncAll, libc::EIO);
    assert!(matches!(log.sync(), Err(Error::SyncFailed { .. })));
    assert!(matches!(append(&log, 0, &[b"four"]), Err(Error::SyncFailed { .. })));
    assert_eq!(count(&log), 3);
    assert_eq!(count(&open_to_read(&p.storage, &p.dir).unwrap()), 3);
    p.faulty.heal();
    assert_eq!(append(&log, 0, &[b"four"]).unwrap().first, 3);
    assert_eq!(count(&log), 4);
}

#[test]
fn a_full_disk_is_an_error_that_loses_nothing_and_appends_go_on_once_there_is_space() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let p = place(mode);
        let log = open_as(&p.storage, &p.dir, TestMember::new(0, 1), mode).unwrap();
        let value = [b'x'; 4000];
        append(&log, 0, &[&value]).unwrap();
        break_down(&p, Call::Allocate, libc::ENOSPC);
        let mut appended = 1;
        let error = loop {
            match append(&log, 0, &[&value]) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert_eq!(count(&log), appended);
        p.faulty.heal();
        assert_eq!(append(&log, 0, &[&value]).unwrap().first, appended as u64);
    }
}

#[test]
fn a_deleted_topic_takes_no_appends_and_what_was_read_stays() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        deleted_while_open(mode);
    }
}

fn deleted_while_open(mode: WriteMode) {
    let p = place(mode);
    let log = open_as(&p.storage, &p.dir, TestMember::new(0, 1), mode).unwrap();
    three(&log);
    let view = log.cursor_at(0, 0, Check::Full).unwrap().next_block().unwrap().unwrap().clone();
    mark_deleted(&*p.storage, &p.dir).unwrap();
    for name in p.storage.list(&p.dir).unwrap() {
        // The test's directory in it stays.
        let _ = p.storage.unlink(&p.dir.join(name));
    }
    let error = append(&log, 0, &[b"four"]).unwrap_err();
    assert!(matches!(&error, Error::TopicDeleted { name } if name == "orders"), "{error}");
    drop(log);
    assert_eq!(values(&view), [(0, b"one".to_vec())]);
}

#[test]
fn a_reader_that_needs_more_of_a_deleted_topic_is_told_that_it_was_deleted() {
    let p = place(WriteMode::Mapped);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 1)).unwrap();
    for _ in 0..12 {
        append(&log, 0, &[b"one"]).unwrap();
        log.roll_now().unwrap();
    }
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
    mark_deleted(&*p.storage, &p.dir).unwrap();
    for name in p.storage.list(&p.dir).unwrap() {
        // The test's directory in it stays.
        let _ = p.storage.unlink(&p.dir.join(name));
    }
    // It reads on in the files that it has open.
    let error = loop {
        match cursor.next_block() {
            Ok(block) => assert!(block.is_some(), "a deleted topic has no end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::TopicDeleted { name } if name == "orders"), "{error}");
    let error = reader.cursor_at(0, 5, Check::Full).map(drop).unwrap_err();
    assert!(matches!(&error, Error::TopicDeleted { name } if name == "orders"), "{error}");
}

#[test]
fn a_control_page_that_was_replaced_makes_no_second_writer() {
    let p = place(WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let second = member.beside(1);
    let log = open(&p.storage, &p.dir, member).unwrap();
    three(&log);
    p.storage.unlink(&p.dir.join("control")).unwrap();
    let refused = open(&p.storage, &p.dir, second).unwrap_err();
    assert!(matches!(refused, Error::LockFileReplaced { .. }), "{refused}");
    let tail = log.committed().unwrap();
    let waited = log.wait_for_news(tail, Some(Duration::from_secs(20)), &|| false);
    assert!(matches!(waited, Err(Error::FilesRemoved { .. })), "{waited:?}");
}

#[test]
fn a_process_that_died_in_interval_mode_is_synced_for_by_another() {
    let machine = MemoryStorage::new();
    let open = |process: &MemoryStorage| {
        let storage = Arc::new(process.clone());
        let store = Store::open_on(storage, "/events", &StoreOptions::default()).unwrap();
        let small = TopicOptions { segment_bytes: Some(SEGMENT), ..TopicOptions::default() };
        Topic::open(&store, "orders", &small).unwrap()
    };
    let (first, second) = (machine.process(), machine.process());
    let (dying, living) = (open(&first), open(&second));
    dying.append_to(0, &NewRecord::new(b"one"), Some(SyncMode::Interval)).unwrap();
    first.kill();
    std::mem::forget(dying);
    let log = living.log();
    let target = log.committed().unwrap();
    let waited = log.wait_for_durable(target, Some(Duration::from_secs(60)), &|| false);
    assert_eq!(waited.unwrap(), Wait::News);
}

#[test]
fn sealed_segments_get_to_the_medium_in_every_mode() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open_with(root.path().join("store"), &StoreOptions::default()).unwrap();
    let options = TopicOptions { segment_bytes: Some(1 << 16), ..TopicOptions::default() };
    let topic = Topic::open(&store, "orders", &options).unwrap();
    let log = topic.log();
    while log.committed().unwrap().sequence() < 3 {
        topic.append_to(0, &NewRecord::new(&[b'v'; 4000]), Some(SyncMode::None)).unwrap();
    }
    let began = std::time::Instant::now();
    while log.durable().unwrap().sequence() < 3 {
        assert!(began.elapsed() < Duration::from_secs(30), "the sealed segment must be synced");
        // sleep: the background thread looks ten times a second
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_log_is_closed_when_its_last_handle_is_gone_whatever_its_helpers_do() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = TopicOptions { sync_interval_ms: Some(1), ..TopicOptions::default() };
    for round in (0..100).step_by(memory::every(4)) {
        let store = Store::open_with(&path, &StoreOptions::default()).unwrap();
        let topic = Topic::open(&store, "orders", &options).unwrap();
        let began = std::time::Instant::now();
        // Long enough for the helpers to use the log at any moment.
        while began.elapsed() < Duration::from_micros(500 + 37 * round) {
            topic.append_to(0, &NewRecord::new(b"one"), Some(SyncMode::Interval)).unwrap();
        }
        drop((store, topic));
        let info = Store::open_with(&path, &StoreOptions::reading()).unwrap().info().unwrap();
        assert!(info.slots.iter().all(|slot| slot.alive != Some(true)), "round {round}");
    }
}

#[test]
fn followers_that_cannot_leave_a_flag_hear_by_looking() {
    let p = place(WriteMode::Pwrite);
    let member = TestMember::new(0, 1);
    let log = open_as(&p.storage, &p.dir, member, WriteMode::Pwrite).unwrap();
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    for waits in [&log, &reader] {
        let seen = log.committed().unwrap();
        let waited = std::thread::scope(|scope| {
            let wait = scope.spawn(|| waits.wait_for_news(seen, None, &|| false));
            append(&log, 0, &[b"one"]).unwrap();
            wait.join().unwrap()
        });
        assert_eq!(waited.unwrap(), Wait::News);
    }
}

#[test]
fn a_clock_that_goes_back_changes_no_order_and_hides_no_record() {
    let p = place(WriteMode::Mapped);
    let year_us = 31_557_600_000_000;
    p.memory.set_now_us(56 * year_us);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 1)).unwrap();
    for year in [56, 55, 54] {
        p.memory.set_now_us(year * year_us);
        append(&log, 0, &[b"x"]).unwrap();
        log.roll_now().unwrap();
        append(&log, 0, &[b"y"]).unwrap();
    }
    let (found, ended) = read_all(&log, 0, 0);
    ended.unwrap();
    let offsets: Vec<_> = found.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4, 5]);
    let first = log.offset_at_time(0, 56 * year_us * 1000, Check::Full).unwrap();
    assert_eq!(first, Some(0));
}

#[test]
fn a_copy_of_a_closed_store_is_a_store() {
    let root = tempfile::tempdir().unwrap();
    let (original, copy) = (root.path().join("events"), root.path().join("copy"));
    let write = |path: &Path, value: &[u8]| {
        let store = Store::open_with(path, &StoreOptions::default()).unwrap();
        let topic = Topic::open(&store, "orders", &TopicOptions::default()).unwrap();
        topic.append_to(0, &NewRecord::new(value), Some(SyncMode::Durable)).unwrap()
    };
    assert_eq!(write(&original, b"one"), 0);
    copy_all(&original, &copy);
    assert_eq!(write(&copy, b"two"), 1);
    assert_eq!(write(&original, b"another"), 1);
    let reader = Store::open_with(&copy, &StoreOptions::reading()).unwrap();
    let topic = Topic::open(&reader, "orders", &TopicOptions::default()).unwrap();
    let both = [0, 1].map(|offset| topic.get_in(0, offset).unwrap().value().unwrap().to_vec());
    assert_eq!(both, [b"one".to_vec(), b"two".to_vec()]);
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy_all(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

/// Which thread runs: the writer up to its `from`th call, then the deleter up to its `to`th, then
/// the writer to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Writer,
    Deleter,
    WriterAgain,
    All,
}

struct Turns {
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl Turns {
    fn pass_to(&self, next: Turn) {
        let mut turn = self.turn.lock().unwrap();
        *turn = next.max(*turn);
        self.changed.notify_all();
    }

    fn wait_for(&self, wanted: Turn) {
        drop(self.changed.wait_while(self.turn.lock().unwrap(), |turn| *turn < wanted).unwrap());
    }
}

/// Delete a topic during a roll: the writer's result, and how many calls each of both made.
fn deleted_in_a_roll(from: u64, to: u64) -> (Result<u64, Error>, [u64; 2]) {
    let machine = MemoryStorage::new();
    let store = || Store::open_on(Arc::new(machine.process()), "/store", &StoreOptions::default());
    let (own, other) = (store().unwrap(), store().unwrap());
    let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    let orders = Topic::open(&own, "orders", &small).unwrap().with_sync(SyncMode::None);
    let fill = |times: u64| {
        let record = NewRecord::new(&[7; 1000]);
        (0..times).try_fold(0, |_, _| orders.append_to(0, &record, None))
    };
    fill(45).unwrap();
    let turns = Arc::new(Turns { turn: Mutex::new(Turn::Writer), changed: Condvar::new() });
    let steps = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let told = thread::scope(|scope| {
        let deletes = scope.spawn(|| {
            turns.wait_for(Turn::Deleter);
            other.delete_topic("orders").unwrap();
            turns.pass_to(Turn::WriterAgain);
        });
        let (writer, deleter) = (thread::current().id(), deletes.thread().id());
        let (turns_of_both, counts) = (Arc::clone(&turns), Arc::clone(&steps));
        machine.watch(move |_| {
            let (me, turns) = (thread::current().id(), &turns_of_both);
            if me == writer && counts[0].fetch_add(1, Ordering::Relaxed) == from {
                turns.pass_to(Turn::Deleter);
                turns.wait_for(Turn::WriterAgain);
            } else if me == deleter && counts[1].fetch_add(1, Ordering::Relaxed) == to {
                turns.pass_to(Turn::WriterAgain);
                turns.wait_for(Turn::All);
            }
        });
        let told = fill(20);
        turns.pass_to(Turn::All);
        told
    });
    let left = machine.list(Path::new("/store/logs")).unwrap();
    assert!(left.is_empty(), "writer at {from}, deleter at {to}: {left:?} is left");
    let calls = [0, 1].map(|who: usize| steps[who].load(Ordering::Relaxed));
    (told, calls)
}

#[test]
fn a_roll_during_a_deletion_fails_or_comes_first_and_leaves_no_file_behind() {
    let (told, [rolling, deleting]) = deleted_in_a_roll(u64::MAX, u64::MAX);
    assert_eq!((told.unwrap(), rolling > 10, deleting > 10), (64, true, true));
    let (mut were_first, mut were_told) = (0, 0);
    for (from, to) in (0..rolling)
        .step_by(5)
        .flat_map(|from| (deleting / 2..deleting).step_by(3).map(move |to| (from, to)))
    {
        match deleted_in_a_roll(from, to).0 {
            Ok(64) => were_first += 1,
            Err(Error::TopicDeleted { .. }) => were_told += 1,
            other => panic!("writer at {from}, deleter at {to}: {other:?}"),
        }
    }
    assert!(
        were_first > 0 && were_told > 0,
        "{were_first} finished first, {were_told} got an error"
    );
}
