//! Corruption that may hide moves of cursors, idempotency keys and producers: none of these is
//! believed in silence.

use std::ops::Range;
use std::sync::Arc;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::error::{Error, Result};
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::format::state::CursorState;
use falaj::internals::log::verify::{Severity, Subject, verify_log};
use falaj::internals::log::{CursorMove, Log, Precondition, RepairKind, Token, plan};

const NAME: &[u8] = b"billing";
const TOPICS: Range<u32> = 0..1;

fn at(offset: u64) -> CursorState {
    CursorState { offset, ..CursorState::default() }
}

fn move_to(log: &Log, offset: u64) -> Result<()> {
    let moved = CursorMove { name: NAME, to: at(offset), from: None, metadata: b"" };
    log.append_if(&[Precondition::Cursor(moved)], &[], false, &mut []).map(drop)
}

fn spend(log: &Log, version: u64) -> Result<bool> {
    let body = encode(&[b"of a job"]);
    let token = Token::new(0, "nightly", version).unwrap();
    let blocks = [block_of(0, 1, body.body())];
    log.commit_load(&blocks, Some(&token), &mut [0]).map(|appended| appended.is_some())
}

fn once(log: &Log, sequence: u64) -> Result<u64> {
    let body = encode(&[b"of a producer"]);
    let of = [Precondition::producer("p", sequence, TOPICS)];
    log.append_if(&of, &[block_of(0, 1, body.body())], false, &mut [0]).map(|it| it.first)
}

/// Everything that a log can be asked about these, and whether it answers.
fn asked(log: &Log) -> Vec<Result<()>> {
    vec![
        log.cursor_of(NAME).map(drop),
        log.cursors().map(drop),
        log.token_of(0, "nightly").map(drop),
        log.producers(TOPICS).map(drop),
    ]
}

/// A closed log in which the last moves of a cursor, an idempotency key and a producer are corrupt;
/// returns the place.
fn hurt(mode: WriteMode) -> (Place, u64) {
    let p = Place::new(1, mode);
    let log = p.open(TestMember::new(0, 1));
    move_to(&log, 1).unwrap();
    assert!(spend(&log, 1).unwrap());
    once(&log, 1).unwrap();
    let position = log.committed().unwrap().position();
    move_to(&log, 2).unwrap();
    assert!(spend(&log, 2).unwrap());
    once(&log, 2).unwrap();
    let end = log.committed().unwrap().position();
    append(&log, 0, &[b"behind it"]).unwrap();
    log.sync_clean().unwrap();
    drop(log);
    p.segment(0).write_at(&vec![0xee; (end - position) as usize], position).unwrap();
    (p, position)
}

fn is_refused(results: Vec<Result<()>>, position: u64) {
    for result in results {
        let Err(error) = result else { panic!("what damage may have set back was believed") };
        let at_it = matches!(&error, Error::CorruptData { position: at, .. } if *at == position);
        assert!(at_it, "{error}");
    }
}

fn findings(p: &Place) -> usize {
    let generation = LOG;
    let subject = Subject { dir: p.dir.clone(), generation, topics: Default::default() };
    let report = verify_log(&p.storage, &subject, &mut 0, 0, &mut |_, _| Ok(())).unwrap();
    let told = report.findings.iter().filter(|f| f.severity == Severity::Damage);
    told.filter(|found| found.what.contains("newer cursors, idempotency keys")).count()
}

#[test]
fn what_damage_may_have_set_back_is_refused_until_repair() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let (p, position) = hurt(mode);
        is_refused(asked(&open_to_read(&p.storage, &p.dir).unwrap()), position);
        // Also in later segments, and after each opening.
        for incarnation in 2..5 {
            let log = p.open(TestMember::new(0, incarnation));
            is_refused(asked(&log), position);
            is_refused(asked(&open_to_read(&p.storage, &p.dir).unwrap()), position);
            let refused = [move_to(&log, 3), spend(&log, 2).map(drop), once(&log, 2).map(drop)];
            is_refused(refused.into(), position);
            is_refused(vec![log.last_sequence("p", TOPICS).map(drop)], position);
            append(&log, 0, &[b"records go on"]).unwrap();
            log.roll_now().unwrap();
            log.sync_clean().unwrap();
        }
        assert_eq!(findings(&p), 1);
        let told = plan(&p.storage, &p.dir, &settings(mode), 9).unwrap().steps;
        let log = p.open(TestMember::new(0, 9));
        let done = log.mend_offsets().unwrap();
        assert_eq!(told, done, "a dry run must list what a repair does");
        assert_eq!(done.iter().map(|step| step.mend).collect::<Vec<_>>(), [RepairKind::AsKnown]);
        assert_eq!((done[0].position, log.mend_offsets().unwrap()), (position, vec![]));
        assert!(
            done[0].why.contains("1 cursor, 1 idempotency key and 1 producer count"),
            "{}",
            done[0].why
        );
        let as_known = |log: &Log| {
            assert_eq!(log.cursor_of(NAME).unwrap(), Some(at(1)));
            assert_eq!(log.token_of(0, "nightly").unwrap().unwrap().version, 1);
            assert_eq!(log.producers(TOPICS).unwrap()[0].sequence, 1);
        };
        as_known(&log);
        as_known(&open_to_read(&p.storage, &p.dir).unwrap());
        drop(log);
        let log = p.open(TestMember::new(0, 10));
        as_known(&log);
        assert_eq!(findings(&p), 0);
        move_to(&log, 3).unwrap();
        assert!(spend(&log, 2).unwrap());
        once(&log, 2).unwrap();
    }
}

/// A process that knew the log before still has these facts, and its next segment records them for
/// all.
#[test]
fn a_process_that_knows_what_corruption_hides_writes_it_again() {
    let p = Place::new(1, WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let beside = member.beside(1);
    let log = p.open(member);
    let position = log.committed().unwrap().position();
    move_to(&log, 2).unwrap();
    append(&log, 0, &[b"behind it"]).unwrap();
    log.sync().unwrap();
    p.segment(0).write_at(&[0xee; 20], position).unwrap();
    let other = p.open(beside);
    is_refused(asked(&other), position);
    assert_eq!(log.cursor_of(NAME).unwrap(), Some(at(2)));
    move_to(&log, 3).unwrap();
    let done = log.mend_offsets().unwrap();
    let [step] = &done[..] else { panic!("{done:?}") };
    assert_eq!(step.mend, RepairKind::Save);
    assert!(step.why.contains("knows what the corruption hides"), "{}", step.why);
    for log in [log, other, open_to_read(&p.storage, &p.dir).unwrap()] {
        assert_eq!(log.cursor_of(NAME).unwrap(), Some(at(3)));
    }
}

#[test]
fn what_stands_in_a_lost_segment_is_doubted_too() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    move_to(&log, 1).unwrap();
    log.roll_now().unwrap();
    move_to(&log, 2).unwrap();
    log.sync_clean().unwrap();
    drop(log);
    p.storage.unlink(&p.dir.join(names::segment(1))).unwrap();
    let member = TestMember::new(0, 2);
    falaj::internals::log::mend(&p.storage, &p.dir, &settings(p.mode), &member).unwrap();
    let log = p.open(member);
    assert!(asked(&log).iter().all(|told| matches!(told, Err(Error::CorruptData { .. }))));
    let done = log.mend_offsets().unwrap();
    assert_eq!(done.last().map(|step| step.mend), Some(RepairKind::AsKnown));
    assert_eq!(log.cursor_of(NAME).unwrap(), Some(at(1)));
}

/// A torn end is not corruption: records that were not on disk had no promise.
#[test]
fn behind_a_torn_end_nothing_is_doubted() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    move_to(&log, 1).unwrap();
    log.sync().unwrap();
    let position = log.committed().unwrap().position();
    move_to(&log, 2).unwrap();
    // As a process that is killed leaves it: closing would sync.
    std::mem::forget(log);
    p.segment(0).write_at(&[0xee; 20], position).unwrap();
    let log: Arc<Log> = p.open(TestMember::new(0, 2));
    assert_eq!(log.cursor_of(NAME).unwrap(), Some(at(1)));
    assert_eq!(findings(&p), 0);
}
