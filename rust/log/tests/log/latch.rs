//! The failed-sync state, and everything that may go wrong until the records in doubt are saved.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

use crate::common::place::{Place, lock_word};
use crate::common::*;
use falaj::internals::error::{Error, Result};
use falaj::internals::format::address::Address;
use falaj::internals::format::control::{at, flag};
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::lock::{Fate, Identity, unlock};
use falaj::internals::log::{Log, LogSettings, Member, Watch, mark_deleted};
use falaj::internals::segment::{Check, Reading, Segment};
use falaj_twin::faulty::Call;

/// A process takes the append lock over from a writer that died between its commit word and the
/// tail.
#[test]
fn clearing_a_latch_keeps_what_readers_have_seen() {
    let p = Place::new(1, WriteMode::Mapped);
    let a = TestMember::new(0, 1);
    let b = a.beside(1);
    let dead = a.obituary();
    let (log_a, log_b) = (p.open(a), p.open(b));
    append(&log_a, 0, &[b"one"]).unwrap();
    let before = log_a.committed().unwrap();
    let appended = append(&log_a, 0, &[b"two"]).unwrap();
    let words = p.page();
    words.store(at::TAIL, before.0).unwrap();
    words.store(at::DIRTY, appended.end.0).unwrap();
    words.store(at::APPEND_LOCK, lock_word(0)).unwrap();
    p.set_latch();
    dead();
    std::mem::forget(log_a);
    let (seen, _) = read_all(&log_b, 0, 0);
    assert_eq!(seen.len(), 2, "a reader must see both");
    append(&log_b, 0, &[b"three"]).unwrap();
    let (now, _) = read_all(&log_b, 0, 0);
    assert_eq!(now[..2], seen[..], "records that were seen must stay");
    assert_eq!(now.len(), 3);
}

/// A kill between the new segment's name and the cleared flag, with the page's words stored in any
/// order.
#[test]
fn a_death_in_the_middle_of_clearing_a_latch_is_mended() {
    let words = [at::ALLOCATED, at::INDEXED, at::TAIL, at::DIRTY, at::DURABLE];
    for stored in 0..1 << words.len() {
        let p = Place::new(1, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"one"]).unwrap();
        let page = p.page();
        let before = words.map(|word| page.load(word));
        p.set_latch();
        log.sync().unwrap();
        assert!(log.committed().unwrap().sequence() > Address(before[2]).sequence());
        for (i, (word, value)) in words.iter().zip(before).enumerate() {
            if stored & 1 << i == 0 {
                page.store(*word, value).unwrap();
            }
        }
        p.set_latch();
        append(&log, 0, &[b"two"]).unwrap();
        let (seen, ended) = read_all(&log, 0, 0);
        assert_eq!((seen.len(), ended.is_ok()), (2, true), "stored: {stored:05b}");
        log.sync().unwrap();
        std::mem::forget(log);
        let after = p.after_power_cut();
        let log = open(&after, &p.dir, TestMember::new(0, 2)).unwrap();
        assert_eq!(read_all(&log, 0, 0).0, seen, "stored: {stored:05b}");
    }
}

/// The segment got its name, and a later step failed: the next attempt continues from there.
#[test]
fn an_error_in_the_middle_of_clearing_a_latch_is_mended() {
    for (call, nth) in [(Call::SyncDir, 1), (Call::Rename, 2), (Call::Open, 3), (Call::Stat, 2)] {
        let p = Place::new(1, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"one"]).unwrap();
        p.set_latch();
        p.fail(call, nth, libc::EIO);
        if append(&log, 0, &[b"two"]).is_err() {
            append(&log, 0, &[b"two"]).unwrap();
        }
        let (seen, ended) = read_all(&log, 0, 0);
        assert_eq!((seen.len(), ended.is_ok()), (2, true), "{call:?}");
        assert_eq!(read_all(&open_to_read(&p.storage, &p.dir).unwrap(), 0, 0).0, seen);
    }
}

/// A process that reports which of its threads wait for a lock.
#[derive(Debug)]
struct Watched {
    member: TestMember,
    asking: Sender<ThreadId>,
}

impl Member for Watched {
    fn identity(&self) -> Identity {
        self.member.identity()
    }

    fn incarnation(&self) -> u64 {
        self.member.incarnation()
    }

    fn check(&self) -> Result<()> {
        self.member.check()
    }

    fn watch(&self) -> Option<Watch> {
        self.member.watch()
    }

    fn fate(&self, holder: Identity) -> io::Result<Fate<Box<dyn Any>>> {
        self.asking.send(std::thread::current().id()).unwrap();
        self.member.fate(holder)
    }

    fn describe(&self, holder: Identity) -> String {
        self.member.describe(holder)
    }
}

/// Threads of one process share one identity in the lock word, so a mutex guards it.
#[test]
fn one_thread_of_a_process_at_a_time_waits_for_the_append_lock() {
    let p = Place::new(1, WriteMode::Mapped);
    let (asking, asked) = channel();
    let member = Watched { member: TestMember::new(0, 1), asking };
    let other = member.member.beside(1).identity();
    let settings = settings(WriteMode::Mapped);
    let storage = Arc::clone(&p.storage);
    let log = Log::open(storage, &p.dir, settings, Some(Arc::new(member))).unwrap();
    append(&log, 0, &[b"one"]).unwrap();
    let words = p.page();
    words.store(at::APPEND_LOCK, lock_word(1)).unwrap();
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| append(&log, 0, &[b"two"]));
        assert_eq!(asked.recv().unwrap(), appending.thread().id());
        p.fail_next_sync();
        let syncing = scope.spawn(|| log.sync());
        while !p.is_latched() {
            std::thread::yield_now();
        }
        // Each of these is 10 ms of waiting, in which the other thread would ask too.
        for _ in 0..10 {
            assert_eq!(asked.recv().unwrap(), appending.thread().id());
        }
        unlock(&words.word(at::APPEND_LOCK), other);
        appending.join().unwrap().unwrap();
        syncing.join().unwrap().unwrap();
    });
    assert_eq!(read_all(&log, 0, 0).0.len(), 2);
}

/// A process's sync fails. It gets the error, and dies before it can set the flag.
#[test]
fn the_death_of_a_syncer_is_not_forgotten_by_a_process_that_needs_no_sync() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let p = Place::new(1, mode);
        let a = TestMember::new(0, 1);
        let (b, c) = (a.beside(1), a.beside(2));
        let dead = a.obituary();
        let log_a = p.open(a);
        let early = append(&log_a, 0, &[b"early"]).unwrap().end;
        let log_b = p.open(b);
        append(&log_a, 0, &[b"late"]).unwrap();
        let file = p.segment(0);
        p.fail_next_sync();
        file.sync_data().unwrap_err();
        let words = p.page();
        words.store(at::SYNC_LOCK, lock_word(0)).unwrap();
        dead();
        std::mem::forget(log_a);
        log_b.sync_clean().unwrap();
        assert!(words.load(at::SYNC_LOCK) == 0 && log_b.durable().unwrap() >= early);
        p.open(c).sync().unwrap();
        let after = p.after_power_cut();
        let log = open_as(&after, &p.dir, TestMember::new(0, 2), mode).unwrap();
        assert_eq!(
            read_all(&log, 0, 0).0.len(),
            2,
            "records reported as durable must be there: {mode:?}"
        );
    }
}

/// In a store written by `pwrite`, the flag cannot be stored either: the lock word shows it.
#[test]
fn a_latch_that_could_not_be_set_is_not_forgotten() {
    let p = Place::new(1, WriteMode::Pwrite);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    p.fail_next_sync();
    // The first write of the sync is the lock's word, the next one is the flag.
    p.fail(Call::Write, 2, libc::ENOSPC);
    log.sync().unwrap_err();
    assert!(!p.is_latched());
    log.sync().unwrap();
    let after = p.after_power_cut();
    let log = open_as(&after, &p.dir, TestMember::new(0, 2), WriteMode::Pwrite).unwrap();
    assert_eq!(read_all(&log, 0, 0).0.len(), 1, "records reported as durable must be there");
}

/// The sync of a clean mark is a sync too, and its error is reported once.
#[test]
fn a_sync_that_fails_while_closing_latches_the_log() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    p.fail(Call::SyncData, 2, libc::EIO);
    log.sync_clean().unwrap_err();
    assert!(p.is_latched());
    append(&log, 0, &[b"two"]).unwrap();
}

#[test]
fn a_failed_sync_does_not_undo_a_deletion() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let p = Place::new(1, mode);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"one"]).unwrap();
        // A directory's name says which generation it is.
        let named =
            std::path::Path::new("/").join(falaj::internals::format::names::log_dir("shop", &LOG));
        p.storage.rename_new(&p.dir, &named).unwrap();
        mark_deleted(&*p.storage, &named).unwrap();
        p.storage.rename_new(&named, &p.dir).unwrap();
        p.fail_next_sync();
        let _ = log.sync();
        assert!(p.page().load(at::FLAGS) & flag::DELETED != 0, "{mode:?}");
        assert!(matches!(append(&log, 0, &[b"two"]), Err(Error::TopicDeleted { .. })));
    }
}

#[test]
fn a_latch_is_cleared_across_a_clock_that_jumped() {
    let p = Place::new(1, WriteMode::Mapped);
    p.memory.set_now_us(0);
    let log = p.open(TestMember::new(0, 1));
    log.roll_now().unwrap();
    append(&log, 0, &[b"in 1970"]).unwrap();
    let today = 1_795_219_200_000_000;
    p.memory.set_now_us(today);
    log.roll_now().unwrap();
    append(&log, 0, &[b"today"]).unwrap();
    p.set_latch();
    append(&log, 0, &[b"after"]).unwrap();
    let (seen, ended) = read_all(&log, 0, 0);
    assert_eq!((seen.len(), ended.map_err(|e| e.to_string())), (3, Ok(())));
    let mut cursor = log.cursor_at(0, 1, Check::Full).unwrap();
    let block = cursor.next_block().unwrap().unwrap();
    assert_eq!(block.appended_ns(), today * 1000, "the latest keeps its time");
}

/// A roll waits until the failed-sync state is cleared, and ends when the log is deleted.
#[test]
fn a_roll_of_a_latched_log_ends() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    p.set_latch();
    log.roll_now().unwrap();
    assert!(!p.is_latched());
    p.page().store(at::FLAGS, flag::DELETED).unwrap();
    assert!(matches!(log.roll_now(), Err(Error::TopicDeleted { .. })));
}

/// Segments that were superseded are not part of the log, and recovery moves them away.
#[test]
fn superseded_segments_are_put_away_by_the_next_recovery() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    p.set_latch();
    append(&log, 0, &[b"three"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"four"]).unwrap();
    let (seen, ended) = read_all(&open_to_read(&p.storage, &p.dir).unwrap(), 0, 0);
    assert_eq!((seen.len(), ended.is_ok(), p.segments()), (4, true, vec![0, 1, 2, 3]));
    std::mem::forget(log);
    let log = p.open(TestMember::new(0, 2));
    assert_eq!(p.segments(), [0, 2, 3]);
    assert_eq!(read_all(&log, 0, 0).0, seen);
}

/// This holds although their marks say that all of it is on disk.
///
/// Recovery looks back to what the last incarnation wrote, not only to the newest mark.
#[test]
fn superseded_segments_are_put_away_although_newer_ones_were_synced() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for _ in 0..3 {
        append(&log, 0, &[b"early"]).unwrap();
        log.roll_now().unwrap();
        log.sync().unwrap();
    }
    std::mem::forget(log);
    let log = p.open(TestMember::new(0, 2));
    append(&log, 0, &[b"one"]).unwrap();
    log.sync().unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    p.set_latch();
    for _ in 0..3 {
        append(&log, 0, &[b"late"]).unwrap();
        log.roll_now().unwrap();
        log.sync().unwrap();
    }
    let seen = read_all(&log, 0, 0).0;
    assert_eq!((seen.len(), p.segments()), (8, (0..9).collect()));
    std::mem::forget(log);
    let log = p.open(TestMember::new(0, 3));
    assert_eq!(p.segments(), [0, 1, 2, 3, 5, 6, 7, 8]);
    assert_eq!(read_all(&log, 0, 0).0, seen);
}

/// This holds for any number of segments before those that the last incarnation wrote.
#[test]
fn recovery_opens_no_segment_that_an_earlier_incarnation_had_done_with() {
    let opened = |segments: u64| {
        let p = Place::new(1, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        for _ in 1..segments {
            append(&log, 0, &[b"value"]).unwrap();
            log.roll_now().unwrap();
            log.sync().unwrap();
        }
        drop(log);
        drop(p.open(TestMember::new(0, 2)));
        let (opens, lists) = (p.faulty.count(Call::Open), p.faulty.count(Call::List));
        let log = p.open(TestMember::new(0, 3));
        let taken = (p.faulty.count(Call::Open) - opens, p.faulty.count(Call::List) - lists);
        assert_eq!(read_all(&log, 0, 0).0.len() as u64, segments - 1);
        taken
    };
    assert_eq!(opened(40), opened(4));
}

/// No process tried to save anything: the error must say that, not that saving failed.
#[test]
fn a_process_that_cannot_lock_to_clear_a_failed_sync_gets_that_error() {
    let p = Place::new(1, WriteMode::Mapped);
    let a = TestMember::new(0, 1);
    let b = a.beside(1);
    let hasty = LogSettings { lock_timeout: Some(Duration::from_millis(50)), ..settings(p.mode) };
    let log_a = p.open(a);
    let log_b = Log::open(Arc::clone(&p.storage), &p.dir, hasty, Some(Arc::new(b))).unwrap();
    append(&log_a, 0, &[b"one"]).unwrap();
    p.page().store(at::APPEND_LOCK, lock_word(0)).unwrap();
    p.set_latch();
    let error = log_b.sync().unwrap_err();
    assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
    p.page().store(at::APPEND_LOCK, 0).unwrap();
    append(&log_b, 0, &[b"two"]).unwrap();
    assert_eq!(read_all(&log_a, 0, 0).0.len(), 2);
}

/// A process that dies after the mark and before the durable end has made everything before the
/// mark durable.
#[test]
fn a_latch_is_never_cleared_by_a_cut_before_a_mark() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    let before = log.sync().unwrap();
    append(&log, 0, &[&[7; 9000]]).unwrap();
    let marked = log.sync().unwrap();
    append(&log, 0, &[b"three"]).unwrap();
    p.page().store(at::DURABLE, before.0).unwrap();
    p.set_latch();
    append(&log, 0, &[b"four"]).unwrap();
    let first = Segment::open_to_read(&*p.storage, &p.dir, LOG, 0, 0, Reading::Map).unwrap();
    assert_eq!(first.mark().map(|mark| mark.position), Some(marked.position()));
    let second = Segment::open_to_read(&*p.storage, &p.dir, LOG, 1, 0, Reading::Map).unwrap();
    assert_eq!(second.header().previous.map(|previous| previous.end), Some(marked.position()));
    assert_eq!(read_all(&log, 0, 0).0.len(), 4);
}

/// No process that keeps to the protocol removes the log's last segment.
#[test]
fn a_sync_of_a_segment_that_was_removed_raises_for_all_and_says_nothing_is_durable() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let p = Place::new(1, mode);
        let a = TestMember::new(0, 1);
        let b = a.beside(1);
        let (log_a, log_b) = (p.open(a), p.open(b));
        append(&log_a, 0, &[b"one"]).unwrap();
        log_a.sync().unwrap();
        let durable = log_a.durable();
        append(&log_a, 0, &[b"two"]).unwrap();
        let active = names::segment(log_a.committed().unwrap().sequence());
        p.storage.unlink(&p.dir.join(active)).unwrap();
        let removed =
            |error: Error| assert!(matches!(error, Error::FilesRemoved { .. }), "{error}");
        removed(log_a.sync().unwrap_err());
        for log in [&log_a, &log_b] {
            removed(append(log, 0, &[b"three"]).map(drop).unwrap_err());
            removed(log.sync().unwrap_err());
            assert_eq!(log.durable(), durable);
        }
    }
}
