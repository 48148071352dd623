//! Appends that are refused or fail: an append that raises left no record, and no other record is
//! lost.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::block::MAX_HEADER_LEN;
use falaj::internals::format::control::{at, flag};
use falaj::internals::format::record::{NewRecord, RecordLead};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::NewBlock;
use falaj::internals::segment::index::Index;
use falaj::internals::segment::{Check, Segment};
use falaj::internals::storage::MapAccess;
use falaj_twin::faulty::{Call, FailureKind, Fault};

#[test]
fn an_unknown_topic_is_an_error_and_not_an_endless_roll() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    let (tell, told) = channel();
    let other = Arc::clone(&log);
    std::thread::spawn(move || tell.send(append(&other, 7, &[b"x"]).map(drop)));
    let ended = told.recv_timeout(Duration::from_secs(5)).expect("it never returns");
    assert!(ended.unwrap_err().to_string().contains("number 7"));
    assert_eq!(p.segments(), [0]);
    assert!(append_groups(&log, &[(0, &[b"x"]), (7, &[b"y"])]).is_err());
    assert_eq!(read_all(&log, 0, 0).0, []);
    assert_eq!(append(&log, 0, &[b"x"]).unwrap().first, 0);
}

#[test]
fn the_fast_path_takes_nothing_that_the_slow_one_refuses() {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    let fast = |topic, count, body: &[u8]| {
        let block = block_of(topic, count, body);
        log.try_append(&block)
    };
    assert_eq!(fast(0, 1, b"\x01a"), None, "the log's end is not known yet");
    append(&log, 0, &[b"one"]).unwrap();
    let appended = fast(0, 1, b"\x01a").unwrap();
    assert_eq!((appended.first, Some(appended.end)), (1, log.committed()));
    let most = log.max_group_len() as usize - MAX_HEADER_LEN;
    for (topic, count, body) in [(0, 0, vec![]), (2, 1, vec![1, 0]), (0, 1, vec![0; most + 1])] {
        assert_eq!(fast(topic, count, &body), None, "{topic} {count} {}", body.len());
    }
    assert_eq!(log.committed(), Some(appended.end));
    for flag in [flag::LATCHED, flag::DELETED] {
        p.page().store(at::FLAGS, flag).unwrap();
        assert_eq!(fast(0, 1, b"\x01a"), None);
    }
    p.page().store(at::FLAGS, 0).unwrap();
    assert_eq!(fast(0, 1, &vec![0; most]).unwrap().first, 2);
}

#[test]
fn the_fast_path_takes_any_topic_and_any_number_of_records() {
    let p = Place::new(3, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    let (long, mut expected) = (vec![7; 300], [1, 0, 0]);
    for i in 0..400u32 {
        let topic = i % 3;
        let records = 1 + i % 4;
        let body = encode(&vec![&long[..i as usize % 300]; records as usize]);
        let block = NewBlock { interval: i % 5 == 0, ..block_of(topic, records, body.body()) };
        // A value alone is stored with its length in front. A body has a checksum, or none.
        let value = &long[..i as usize % 300];
        let mut room = RecordLead::empty();
        let lead = room.encode(&NewRecord::new(value)).unwrap();
        let block = match (records, i % 2) {
            (1, 0) => NewBlock { lead: lead.bytes(), body: value, body_crc: None, ..block },
            (_, 1) => NewBlock { body_crc: None, ..block },
            _ => block,
        };
        let first = match log.try_append(&block) {
            Some(appended) => appended.first,
            // The pages that were touched are used up, or the segment is full.
            None => log.append(&[block], &mut [0]).unwrap().first,
        };
        assert_eq!(first, expected[topic as usize]);
        expected[topic as usize] += u64::from(records);
    }
    for (topic, expected) in (0..).zip(expected) {
        let (records, ended) = read_all(&log, topic, 0);
        assert_eq!((records.len() as u64, ended.is_ok()), (expected, true));
    }
    let taken = |topic| log.try_append(&block_of(topic, 2, b"\x01a\x00")).map(|a| a.first);
    assert_eq!([0, 1, 2].map(taken), expected.map(Some));
}

#[test]
fn the_fast_path_stores_nothing_where_the_log_ends_elsewhere_than_was_known() {
    let p = Place::new(1, WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let beside = member.beside(1);
    let (log, other) = (p.open(member), p.open(beside));
    append(&log, 0, &[b"one"]).unwrap();
    let fast = || {
        let block = block_of(0, 1, b"\x01a");
        log.try_append(&block).map(|a| a.first)
    };
    assert_eq!(fast(), Some(1));
    append(&other, 0, &[b"theirs"]).unwrap();
    assert_eq!(fast(), None);
    append(&log, 0, &[b"two"]).unwrap();
    assert_eq!(fast(), Some(4));
    let end = log.committed().unwrap();
    p.page().store(at::DIRTY, end.0 + 8).unwrap();
    assert_eq!((fast(), log.committed()), (None, Some(end)));
    append(&log, 0, &[b"three"]).unwrap();
    let values: Vec<_> = read_all(&log, 0, 0).0.into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [&b"one"[..], b"a", b"theirs", b"two", b"a", b"three"]);
}

#[test]
fn index_entries_are_those_that_a_walk_would_make() {
    let p = Place::new(3, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for i in 0..400u32 {
        append(&log, i % 3, &[&vec![7; i as usize % 90]]).unwrap();
    }
    assert_eq!(p.segments(), [0]);
    let segment = Segment::open(&*p.storage, &p.dir, LOG, 0, MapAccess::Read, 0).unwrap();
    let (walked, stored) = (Index::build(&segment), p.page().load(at::INDEXED));
    assert!(walked.len() > 5);
    let kept = Index::open_existing(&*p.storage, &p.dir, &segment).unwrap();
    assert_eq!((walked.len(), kept.position(stored)), (stored, None));
    (0..stored).for_each(|i| assert_eq!(kept.position(i), walked.position(i)));
}

#[test]
fn what_is_no_group_is_refused_before_anything_is_stored() {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    let before = log.committed();
    let twice = append_groups(&log, &[(1, &[b"one"]), (0, &[b"x"]), (1, &[b"two"])]).unwrap_err();
    assert!(twice.to_string().contains("topic number 1 appears twice"), "{twice}");
    for nothing in [append_groups(&log, &[]), append_groups(&log, &[(0, &[])])] {
        assert!(matches!(nothing, Err(Error::InvalidArgument { .. })));
    }
    assert_eq!((p.page().load(at::DIRTY), log.committed()), (before.unwrap().0, before));
    append_groups(&log, &[(1, &[b"one"]), (0, &[b"x"])]).unwrap();
}

/// Each write of an append fails, in a store that writes by `pwrite`.
#[test]
fn an_append_that_raises_was_not_appended() {
    let mut writes = 0;
    for nth in 1..40 {
        let p = Place::new(1, WriteMode::Pwrite);
        let log = p.open(TestMember::new(0, 1));
        let reader = open_to_read(&p.storage, &p.dir).unwrap();
        drop(log.cursor_at(0, 0, Check::Full));
        append(&log, 0, &[b"before"]).unwrap();
        p.fail(Call::Write, nth, libc::ENOSPC);
        let failed = append(&log, 0, &[b"one"]).is_err();
        let struck = p.faulty.failed() > 0;
        p.faulty.heal();
        let seen = read_all(&reader, 0, 0).0.len();
        assert_eq!(seen, if failed { 1 } else { 2 }, "write {nth}");
        // The log still takes appends, from this process and from another one.
        let more = p.open(TestMember::new(0, 1).beside(1));
        assert_eq!(append(&log, 0, &[b"two"]).unwrap().first, seen as u64, "write {nth}");
        assert_eq!(append(&more, 0, &[b"three"]).unwrap().first, seen as u64 + 1);
        let (all, ended) = read_all(&reader, 0, 0);
        assert_eq!((all.len(), ended.is_ok()), (seen + 2, true));
        if !struck {
            break;
        }
        writes = nth;
    }
    assert!(writes > 4, "dirty end, body, header, word, tail: {writes}");
}

/// The tail could not be stored, so the ends show less than there is; a sync still finds it.
#[test]
fn a_durable_append_is_durable_although_the_tail_stayed_behind() {
    for nth in 1..40 {
        let p = Place::new(1, WriteMode::Pwrite);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"before"]).unwrap();
        p.fail(Call::Write, nth, libc::ENOSPC);
        let appended = append(&log, 0, &[b"one"]);
        let durable = appended.as_ref().is_ok_and(|a| log.sync_to(a.end).is_ok());
        let struck = p.faulty.failed() > 0;
        if durable {
            assert!(log.durable().unwrap() >= appended.unwrap().end, "write {nth}");
            let after = p.after_power_cut();
            let log = open_as(&after, &p.dir, TestMember::new(0, 2), WriteMode::Pwrite).unwrap();
            assert_eq!(read_all(&log, 0, 0).0.len(), 2, "write {nth}");
        }
        if !struck {
            return;
        }
    }
    panic!("an append does not write that often");
}

/// The end block is stored, but not the words of the page: the log has rolled.
#[test]
fn a_roll_that_fails_anywhere_is_finished_or_done_again() {
    for nth in 1..80 {
        let p = Place::new(1, WriteMode::Pwrite);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"before"]).unwrap();
        let nth = p.faulty.count(Call::Write) + nth;
        p.faulty.plan(Fault::at(nth, FailureKind::Errno(libc::ENOSPC)).only(Call::Write).forever());
        let _ = log.roll_now();
        let struck = p.faulty.failed() > 0;
        p.faulty.heal();
        let end = append(&log, 0, &[b"one"]).unwrap().end;
        log.sync_to(end).unwrap();
        let after = p.after_power_cut();
        for (storage, incarnation) in [(&p.storage, 1), (&after, 2)] {
            let member = TestMember::new(incarnation, incarnation.into());
            let log = open_as(storage, &p.dir, member, WriteMode::Pwrite).unwrap();
            let (all, ended) = read_all(&log, 0, 0);
            assert_eq!((all.len(), ended.is_ok()), (2, true), "write {nth}");
        }
        if !struck {
            return;
        }
    }
    panic!("a roll does not write that often");
}

/// A failed append may have wanted a sync of something that is not there: the interval has nothing
/// to do then.
#[test]
fn an_append_that_failed_leaves_no_interval_behind_that_never_ends() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    log.sync().unwrap();
    p.page().store(at::WANTED, log.committed().unwrap().0 + 100).unwrap();
    let syncs = p.faulty.count(Call::SyncData);
    log.sync_interval().unwrap();
    assert_eq!(p.faulty.count(Call::SyncData), syncs);
}
