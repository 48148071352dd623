//! Retention: trimmed records are gone for every reader, and no others are.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, Removed};
use falaj::internals::segment::Check;
use falaj::internals::storage::Storage;
use falaj_twin::faulty::Call;
use falaj_twin::memory::{Choice, Undecided};

const MODES: [WriteMode; 2] = [WriteMode::Mapped, WriteMode::Pwrite];

/// A log with this many segments, each with ten records of each topic; the last one is active.
fn filled(p: &Place, topics: u32, segments: u64) -> Arc<Log> {
    let log = p.open(TestMember::new(0, 1));
    fill(&log, topics, segments);
    log
}

fn fill(log: &Arc<Log>, topics: u32, segments: u64) {
    for segment in 0..segments {
        if segment > 0 {
            log.roll_now().unwrap();
        }
        for n in 0..10 {
            for topic in 0..topics {
                append(log, topic, &[format!("{topic}/{}", segment * 10 + n).as_bytes()]).unwrap();
            }
        }
    }
}

fn segments(storage: &dyn Storage, dir: &Path) -> Vec<u64> {
    storage.list(dir).unwrap().iter().filter_map(|name| names::parse_segment(name)).collect()
}

fn indexes(storage: &dyn Storage, dir: &Path) -> Vec<u64> {
    storage.list(dir).unwrap().iter().filter_map(|name| names::parse_index(name)).collect()
}

/// The error for an expired offset: the offsets that it says the topic holds.
fn bounds(error: &Error) -> (u64, u64) {
    match error {
        Error::OffsetOutOfRange { first, end, .. } => (*first, *end),
        other => panic!("{other}"),
    }
}

fn offsets(log: &Arc<Log>, topic: u32, from: u64) -> Vec<u64> {
    let (found, ended) = read_all(log, topic, from);
    ended.unwrap();
    found.into_iter().map(|(offset, _)| offset).collect()
}

#[test]
fn whole_segments_go_that_every_topic_was_trimmed_past_and_no_others() {
    for mode in MODES {
        let p = Place::new(2, mode);
        let log = filled(&p, 2, 5);
        assert_eq!(
            log.trim(&[(0, 35)]).unwrap(),
            Removed::default(),
            "topic 1 needs these segments"
        );
        assert_eq!(segments(&*p.storage, &p.dir), [0, 1, 2, 3, 4]);
        let removed = log.trim(&[(1, 25)]).unwrap();
        assert_eq!(removed.segments, 2);
        assert!(removed.bytes > 0);
        assert_eq!(segments(&*p.storage, &p.dir), [2, 3, 4]);
        assert_eq!(indexes(&*p.storage, &p.dir), [2, 3, 4]);
        assert_eq!((log.first_offset(0).unwrap(), log.first_offset(1).unwrap()), (35, 25));
        assert_eq!(offsets(&log, 0, 35), (35..50).collect::<Vec<_>>());
        assert_eq!(offsets(&log, 1, 25), (25..50).collect::<Vec<_>>());
        append(&log, 0, &[b"more"]).unwrap();
        assert_eq!(offsets(&log, 0, 49), [49, 50]);
    }
}

#[test]
fn the_active_segment_stays_also_when_all_of_it_was_trimmed() {
    for mode in MODES {
        let p = Place::new(1, mode);
        let log = filled(&p, 1, 3);
        assert_eq!(log.trim(&[(0, 30)]).unwrap().segments, 2);
        assert_eq!(segments(&*p.storage, &p.dir), [2]);
        assert_eq!((log.first_offset(0).unwrap(), log.end_offset(0).unwrap()), (30, 30));
        assert_eq!(append(&log, 0, &[b"more"]).unwrap().first, 30);
    }
}

#[test]
fn a_trim_only_rises_and_never_beyond_the_end() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = filled(&p, 1, 2);
    log.trim(&[(0, 7)]).unwrap();
    let before = log.committed();
    log.trim(&[(0, 3)]).unwrap();
    assert_eq!((log.first_offset(0).unwrap(), log.committed()), (7, before));
    assert_eq!(bounds(&log.trim(&[(0, 21)]).unwrap_err()), (7, 20));
    assert!(matches!(log.trim(&[(1, 1)]), Err(Error::InvalidArgument { .. })));
    assert_eq!((log.first_offset(0).unwrap(), log.committed()), (7, before));
}

#[test]
fn another_process_learns_of_a_trim_at_once_also_within_a_segment() {
    for mode in MODES {
        let p = Place::new(1, mode);
        let log = filled(&p, 1, 2);
        let beside = p.open(TestMember::new(0, 1).beside(1));
        let reader = Log::open(Arc::clone(&p.storage), &p.dir, settings(mode), None).unwrap();
        for first in [0, 3, 4, 12, 12, 20] {
            log.trim(&[(0, first)]).unwrap();
            for other in [&log, &beside, &reader] {
                assert_eq!(other.first_offset(0).unwrap(), first);
                assert_eq!(other.trimmed(0), first);
            }
        }
        append(&beside, 0, &[b"more"]).unwrap();
        beside.roll_now().unwrap();
        assert_eq!(
            (reader.trimmed(0), log.trimmed(0)),
            (20, 20),
            "a segment's snapshot must record it"
        );
        beside.trim(&[(0, 21)]).unwrap();
        assert_eq!((reader.trimmed(0), log.trimmed(0)), (21, 21));
        assert_eq!(segments(&*p.storage, &p.dir), [2]);
    }
}

#[test]
fn a_log_says_what_was_trimmed_after_it_was_closed_and_after_a_power_cut() {
    for mode in MODES {
        for clean in [true, false] {
            let p = Place::new(2, mode);
            let log = filled(&p, 2, 4);
            log.trim(&[(0, 33), (1, 12)]).unwrap();
            if clean {
                log.sync_clean().unwrap();
            }
            let storage: Arc<dyn Storage> = Arc::new(p.memory.restart());
            let reader = Log::open(Arc::clone(&storage), &p.dir, settings(mode), None).unwrap();
            assert_eq!((reader.trimmed(0), reader.trimmed(1)), (33, 12));
            assert_eq!(segments(&*storage, &p.dir), [1, 2, 3]);
            let log = open_as(&storage, &p.dir, TestMember::new(0, 2), mode).unwrap();
            assert_eq!((log.trimmed(0), log.trimmed(1)), (33, 12));
            log.roll_now().unwrap();
            assert_eq!(log.trim(&[(1, 39)]).unwrap().segments, 2);
            assert_eq!(offsets(&log, 0, 33), (33..40).collect::<Vec<_>>());
            assert_eq!(offsets(&log, 1, 39), [39]);
        }
    }
}

#[test]
fn an_offset_in_a_removed_segment_is_out_of_range_for_who_listed_it_before() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = filled(&p, 1, 6);
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    assert_eq!(offsets(&reader, 0, 55), (55..60).collect::<Vec<_>>());
    log.trim(&[(0, 45)]).unwrap();
    for offset in [0, 9, 10, 25, 39] {
        let gone = reader.cursor_at(0, offset, Check::Full).map(drop).unwrap_err();
        assert_eq!(bounds(&gone), (45, 60), "{offset}");
    }
    assert_eq!(offsets(&reader, 0, 45), (45..60).collect::<Vec<_>>());
}

#[test]
fn a_cursor_whose_next_segment_was_removed_is_told_so_and_skips_nothing() {
    for standing in [0, 5, 9] {
        let p = Place::new(1, WriteMode::Mapped);
        let log = filled(&p, 1, 5);
        let reader = open_to_read(&p.storage, &p.dir).unwrap();
        let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
        for wanted in 0..=standing {
            assert_eq!(cursor.next_block().unwrap().unwrap().first(), wanted);
        }
        log.trim(&[(0, 31)]).unwrap();
        // It reads what it holds to the end: `PartitionScan` asks for trims, a cursor does not.
        for wanted in standing + 1..10 {
            assert_eq!(cursor.next_block().unwrap().unwrap().first(), wanted);
        }
        for _ in 0..2 {
            assert_eq!(bounds(&cursor.next_block().map(drop).unwrap_err()), (31, 50));
        }
    }
}

#[test]
fn a_cursor_at_the_end_of_a_removed_segment_goes_on_where_the_log_begins() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = filled(&p, 1, 3);
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
    (0..10).for_each(|_| drop(cursor.next_block().unwrap().unwrap().clone()));
    log.trim(&[(0, 10)]).unwrap();
    assert_eq!(segments(&*p.storage, &p.dir), [1, 2]);
    for wanted in 10..30 {
        assert_eq!(cursor.next_block().unwrap().unwrap().first(), wanted);
    }
    assert!(cursor.next_block().unwrap().is_none());
}

#[test]
fn a_cursor_passes_over_removed_segments_that_held_nothing_of_its_topic() {
    let p = Place::new(2, WriteMode::Mapped);
    let log = filled(&p, 2, 1);
    let reader = open_to_read(&p.storage, &p.dir).unwrap();
    let mut cursor = reader.cursor_at(1, 0, Check::Full).unwrap();
    (0..10).for_each(|_| drop(cursor.next_block().unwrap().unwrap().clone()));
    for _ in 0..3 {
        log.roll_now().unwrap();
        append(&log, 0, &[b"another topic's"]).unwrap();
    }
    append(&log, 1, &[b"its own"]).unwrap();
    log.trim(&[(0, 13), (1, 10)]).unwrap();
    assert_eq!(segments(&*p.storage, &p.dir), [3]);
    assert_eq!(cursor.next_block().unwrap().unwrap().first(), 10);
}

#[test]
fn a_view_stays_valid_after_its_segment_is_gone() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = filled(&p, 1, 3);
    let view = log.cursor_at(0, 3, Check::Full).unwrap().next_block().unwrap().unwrap().clone();
    log.trim(&[(0, 30)]).unwrap();
    drop(log);
    assert_eq!(values(&view), [(3, b"0/3".to_vec())]);
}

#[test]
fn the_first_record_since_a_time_is_one_that_was_not_trimmed() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = filled(&p, 1, 3);
    assert_eq!(log.offset_at_time(0, 0, Check::Full).unwrap(), Some(0));
    log.trim(&[(0, 15)]).unwrap();
    assert_eq!(log.offset_at_time(0, 0, Check::Full).unwrap(), Some(15));
}

#[test]
fn what_a_removal_left_undone_the_next_one_does() {
    for mode in MODES {
        let p = Place::new(1, mode);
        let log = filled(&p, 1, 5);
        let start = p.memory.events();
        log.trim(&[(0, 35)]).unwrap();
        let journal = p.memory.journal();
        let mut partly = 0;
        for time in start..=journal.len() {
            let image = journal.killed_at(time);
            let storage: Arc<dyn Storage> = Arc::new(image);
            partly += usize::from((1..5).contains(&segments(&*storage, &p.dir)[0]));
            let dead = TestMember::new(0, 1);
            dead.dies();
            let reader = Log::open(Arc::clone(&storage), &p.dir, settings(mode), None).unwrap();
            let first = reader.first_offset(0).unwrap();
            assert!(first == 0 || first == 35, "{first}");
            assert_eq!(offsets(&reader, 0, first), (first..50).collect::<Vec<_>>());
            let log = open_as(&storage, &p.dir, dead.beside(1), mode).unwrap();
            log.remove_trimmed().unwrap();
            let first = log.first_offset(0).unwrap();
            let oldest = segments(&*storage, &p.dir)[0];
            // If the death was in a sync, all records in doubt are in a new segment.
            let expected: &[u64] = if first == 0 { &[0] } else { &[3, 5] };
            assert!(expected.contains(&oldest), "event {time}: {oldest}");
            assert_eq!(indexes(&*storage, &p.dir).first(), Some(&oldest));
            assert_eq!(offsets(&log, 0, first), (first..50).collect::<Vec<_>>(), "event {time}");
            assert_eq!(append(&log, 0, &[b"after"]).unwrap().first, 50);
        }
        assert!(partly > 3, "{partly}");
    }
}

#[test]
fn a_log_that_was_put_in_the_place_of_another_loses_nothing_to_that_ones_trim() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = filled(&p, 1, 3);
    let (control, aside) = (p.dir.join("control"), p.dir.join("control.old"));
    p.storage.rename_new(&control, &aside).unwrap();
    assert!(log.trim(&[(0, 25)]).is_err());
    assert_eq!(segments(&*p.storage, &p.dir), [0, 1, 2]);
}

// Both segments continue a removed one. The one that was cut away must not look like the log's.
#[test]
fn a_segment_that_was_cut_away_goes_before_what_it_continued() {
    for mode in MODES {
        let p = Place::new(1, mode);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"0"]).unwrap();
        log.sync().unwrap();
        log.roll_now().unwrap();
        append(&log, 0, &[b"1"]).unwrap();
        p.fail(Call::SyncData, 1, libc::EIO);
        log.sync().unwrap();
        assert_eq!(append(&log, 0, &[b"2"]).unwrap().first, 2);
        assert_eq!(segments(&*p.storage, &p.dir), [0, 1, 2], "no segment may be cut away yet");
        log.trim(&[(0, 1)]).unwrap();
        assert_eq!(segments(&*p.storage, &p.dir), [2]);
        let fresh = Log::open(p.storage.clone(), &p.dir, settings(mode), None).unwrap();
        for log in [&log, &fresh] {
            assert_eq!((log.first_offset(0).unwrap(), offsets(log, 0, 1)), (1, vec![1, 2]));
        }
    }
}

// Its name was removed, and the removal not synced. Suppose the name came back, while the segment
// that it continued is gone. The log that continues both is gone too. Then it would count as the
// log.
#[test]
fn what_somebody_removed_before_a_trim_does_not_come_back_without_what_it_continued() {
    for mode in MODES {
        let p = Place::new(1, mode);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"0"]).unwrap();
        log.sync().unwrap();
        log.roll_now().unwrap();
        append(&log, 0, &[b"1"]).unwrap();
        p.fail(Call::SyncData, 1, libc::EIO);
        log.sync().unwrap();
        assert_eq!(append(&log, 0, &[b"2"]).unwrap().first, 2);
        p.storage.unlink(&p.dir.join(names::segment(1))).unwrap();
        let since = p.memory.events();
        log.trim(&[(0, 1)]).unwrap();
        assert_eq!(segments(&*p.storage, &p.dir), [2]);
        for crash in p.memory.journal().crashes_from(since) {
            let names = |choice: &Choice| matches!(choice.what, Undecided::Name(_));
            let names = crash.choices().iter().enumerate().filter(|(_, choice)| names(choice));
            for (name, _) in names {
                let mut picks = crash.everything();
                picks[name] = 0;
                let left = segments(&crash.image(&picks), &p.dir);
                assert!(left.first() != Some(&1), "{left:?}: {}", crash.describe(&picks));
            }
        }
    }
}

#[test]
fn a_segment_that_another_process_removes_meanwhile_is_no_error_for_a_trim() {
    let mut met = 0;
    for step in 0.. {
        let p = Place::new(1, WriteMode::Mapped);
        let log = filled(&p, 1, 6);
        log.say_trimmed(&[(0, 45)]).unwrap();
        let other = p.open(TestMember::new(1, 1));
        let (steps, me) = (Arc::new(AtomicU64::new(0)), thread::current().id());
        let over = Arc::new(AtomicBool::new(false));
        let (counted, inner) = (Arc::clone(&steps), Arc::clone(&over));
        p.memory.watch(move |_| {
            let is_at_it = thread::current().id() == me && !inner.load(Ordering::Relaxed);
            if is_at_it && counted.fetch_add(1, Ordering::Relaxed) == step {
                inner.store(true, Ordering::Relaxed);
                other.remove_trimmed().unwrap();
            }
        });
        let found = log.removable(&[]);
        over.store(true, Ordering::Relaxed);
        let found = found.unwrap_or_else(|error| panic!("removed at step {step}: {error}"));
        assert!(found.sequences.is_empty() || found.sequences == [0, 1, 2, 3], "{found:?}");
        met += u64::from(steps.load(Ordering::Relaxed) > step);
        if steps.load(Ordering::Relaxed) <= step {
            break;
        }
    }
    assert!(met > 3, "{met}");
}
