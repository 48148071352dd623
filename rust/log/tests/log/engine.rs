//! The log on real files: appended records are there after rolls, process changes, deaths and
//! reopening.

use std::sync::Arc;

use crate::common::*;
use falaj::internals::format::PAGE;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::segment::{Check, Reading, Segment};
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;

struct Place {
    _root: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    dir: std::path::PathBuf,
}

fn place(topics: u32, write_mode: WriteMode) -> Place {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(root.path());
    create_log(&*storage, &dir, topics, write_mode);
    Place { _root: root, storage, dir }
}

fn value(i: u64) -> Vec<u8> {
    let mut value = format!("value {i} ").into_bytes();
    value.resize(20 + (i as usize * 37) % 300, b'x');
    value
}

fn in_both_modes(test: impl Fn(WriteMode)) {
    [WriteMode::Mapped, WriteMode::Pwrite].into_iter().for_each(test);
}

#[test]
fn what_is_appended_comes_back_across_rolls_and_reopening() {
    in_both_modes(|mode| {
        let Place { _root, storage, dir } = place(1, mode);
        for incarnation in 1..4u64 {
            let log = open_as(&storage, &dir, TestMember::new(0, incarnation), mode).unwrap();
            let start = (incarnation - 1) * 2000;
            for i in start..start + 2000 {
                assert_eq!(append(&log, 0, &[&value(i)]).unwrap().first, i);
            }
            let (found, ended) = read_all(&log, 0, 0);
            ended.unwrap();
            let wanted: Vec<_> = (0..start + 2000).map(|i| (i, value(i))).collect();
            assert_eq!(found.len(), wanted.len());
            assert!(found == wanted);
            if incarnation == 2 {
                log.sync_clean().unwrap();
            }
        }
        let segments = storage.list(&dir).unwrap();
        assert!(segments.iter().filter(|name| name.ends_with(".log")).count() > 10);
    });
}

#[test]
fn any_offset_is_found_through_the_index() {
    let Place { _root, storage, dir } = place(2, WriteMode::Mapped);
    let log = open(&storage, &dir, TestMember::new(0, 1)).unwrap();
    for i in 0..3000u64 {
        let (mine, other) = (value(i), value(i + 1));
        if i % 3 == 0 {
            append_groups(&log, &[(0, &[&mine]), (1, &[&other, &other])]).unwrap();
        } else {
            append(&log, 0, &[&mine]).unwrap();
        }
    }
    for log in [Arc::clone(&log), open_to_read(&storage, &dir).unwrap()] {
        for offset in (0..3000).step_by(7) {
            let mut cursor = log.cursor_at(0, offset, Check::Full).unwrap();
            let block = cursor.next_block().unwrap().unwrap();
            let parts = block.find(offset).unwrap().unwrap();
            assert_eq!(block.body()[parts.value().unwrap()], value(offset));
        }
        let mut cursor = log.cursor_at(1, 1999, Check::Full).unwrap();
        let block = cursor.next_block().unwrap().unwrap();
        assert_eq!((block.first(), block.end()), (1998, 2000));
        assert!(cursor.next_block().unwrap().is_none());
        let tail = log.committed().unwrap();
        assert_eq!(log.offset_at(0, tail).unwrap(), 3000);
        assert_eq!(log.offset_at(1, tail).unwrap(), 2000);
        assert_eq!(log.first_offset(0).unwrap(), 0);
    }
}

#[test]
fn two_processes_append_to_one_log_and_offsets_stay_dense() {
    in_both_modes(|mode| {
        let Place { _root, storage, dir } = place(1, mode);
        let member = TestMember::new(0, 1);
        let other = member.beside(1);
        let logs = [
            open_as(&storage, &dir, member, mode).unwrap(),
            open_as(&storage, &dir, other, mode).unwrap(),
        ];
        std::thread::scope(|scope| {
            for (w, log) in logs.iter().enumerate() {
                scope.spawn(move || {
                    for i in 0..1500u64 {
                        append(log, 0, &[format!("{w}:{i}").as_bytes()]).unwrap();
                    }
                });
            }
        });
        let (found, ended) = read_all(&logs[0], 0, 0);
        ended.unwrap();
        assert_eq!(found.len(), 3000);
        assert!(found.iter().enumerate().all(|(i, (offset, _))| i as u64 == *offset));
        for w in 0..2 {
            let prefix = format!("{w}:");
            let own = found.iter().map(|(_, v)| String::from_utf8(v.clone()).unwrap());
            let own: Vec<_> = own.filter(|v| v.starts_with(&prefix)).collect();
            let wanted: Vec<_> = (0..1500).map(|i| format!("{w}:{i}")).collect();
            assert_eq!(own, wanted, "per-writer order");
        }
    });
}

#[test]
fn times_lead_to_the_first_record_at_or_after_them() {
    let Place { _root, storage, dir } = place(1, WriteMode::Mapped);
    let log = open(&storage, &dir, TestMember::new(0, 1)).unwrap();
    for i in 0..1000 {
        append(&log, 0, &[&value(i)]).unwrap();
    }
    let mut cursor = log.cursor_at(0, 500, Check::Full).unwrap();
    let block = cursor.next_block().unwrap().unwrap();
    let found = log.offset_at_time(0, block.appended_ns(), Check::Full).unwrap().unwrap();
    let mut cursor = log.cursor_at(0, found, Check::Full).unwrap();
    assert_eq!(cursor.next_block().unwrap().unwrap().appended_ns(), block.appended_ns());
    assert!(found <= 500);
    if found > 0 {
        let mut before = log.cursor_at(0, found - 1, Check::Full).unwrap();
        assert!(before.next_block().unwrap().unwrap().appended_ns() < block.appended_ns());
    }
    assert_eq!(log.offset_at_time(0, i64::MIN + 1, Check::Full).unwrap(), Some(0));
    assert_eq!(log.offset_at_time(0, i64::MAX, Check::Full).unwrap(), None);
}

#[test]
fn durable_follows_committed_and_closing_cleanly_says_so() {
    in_both_modes(|mode| {
        let Place { _root, storage, dir } = place(1, mode);
        let log = open_as(&storage, &dir, TestMember::new(0, 1), mode).unwrap();
        for i in 0..2000 {
            append(&log, 0, &[&value(i)]).unwrap();
        }
        assert!(log.durable().unwrap() < log.committed().unwrap());
        log.sync().unwrap();
        assert_eq!(log.durable(), log.committed());
        assert_eq!(log.offset_at(0, log.durable().unwrap()).unwrap(), 2000);
        log.sync_clean().unwrap();
        drop(log);
        let log = open_as(&storage, &dir, TestMember::new(0, 2), mode).unwrap();
        assert_eq!(log.durable(), log.committed());
    });
}

#[test]
fn the_mark_lags_less_than_a_page_and_a_sync_behind_and_not_at_all_once_it_is_kept() {
    in_both_modes(|mode| {
        let Place { _root, storage, dir } = place(1, mode);
        let log = open_as(&storage, &dir, TestMember::new(0, 1), mode).unwrap();
        let marked = || {
            let segment = Segment::open_to_read(&*storage, &dir, LOG, 0, SEGMENT, Reading::Pread);
            segment.unwrap().mark().unwrap().position
        };
        let (mut marks, mut before) = (0, marked());
        for i in 0..200 {
            append(&log, 0, &[&value(i)]).unwrap();
            log.sync().unwrap();
            let (end, mark) = (log.committed().unwrap().position(), marked());
            assert!(end - mark < PAGE, "{mark} lags behind {end}");
            marks += usize::from(mark != before);
            before = mark;
        }
        assert!(marks < 50, "{marks} marks for 200 syncs");
        log.sync_mark().unwrap();
        assert_eq!(marked(), log.committed().unwrap().position());
    });
}

#[test]
fn a_record_too_large_for_a_block_is_refused_by_name_of_the_limit() {
    let Place { _root, storage, dir } = place(1, WriteMode::Mapped);
    let log = open(&storage, &dir, TestMember::new(0, 1)).unwrap();
    let limit = log.max_group_len();
    let error = append(&log, 0, &[&vec![0; limit as usize]]).unwrap_err();
    assert!(error.to_string().contains(&limit.to_string()), "{error}");
    let fits = append(&log, 0, &[&vec![1; limit as usize - 100]]).unwrap();
    assert_eq!(fits.first, 0);
}
