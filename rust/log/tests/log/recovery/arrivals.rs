//! Power cuts: which writes reached the disk, and which did not.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::common::{create_log, log_dir, open, settings};
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::names;
use falaj::internals::log::{RepairKind, plan};
use falaj::internals::segment::Check;
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::{MemoryStorage, Undecided};

/// A power cut with one record in the first segment and one in the next, neither synced.
///
/// `lost` chooses, by segment, the sectors that did not arrive.
fn cut(lost: impl Fn(u64, u64) -> bool) -> (Arc<dyn Storage>, std::path::PathBuf) {
    let machine = MemoryStorage::new().seeded(5);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let dir = log_dir(Path::new("/"));
    create_log(&*storage, &dir, 1, WriteMode::Mapped);
    let log = open(&storage, &dir, TestMember::new(0, 1)).unwrap();
    for value in [b'a', b'b', b'c'] {
        append(&log, 0, &[&[value; 2000]]).unwrap();
    }
    log.roll_now().unwrap();
    append(&log, 0, &[&[b'd'; 2000]]).unwrap();
    let crash = machine.journal().crash_at_end();
    let selection = crash.choices().iter().map(|choice| {
        let sequence = choice.path.rsplit('/').next().and_then(names::parse_segment);
        match (&choice.what, sequence) {
            (Undecided::Sector(sector), Some(sequence)) if lost(sequence, *sector) => 0,
            _ => choice.latest,
        }
    });
    (Arc::new(crash.image(&selection.collect::<Vec<_>>())), dir)
}

#[test]
fn a_block_that_did_not_arrive_ends_the_log_also_where_the_next_segment_did() {
    // The place of the second record's commit word: a zero there is neither the end of the rest nor
    // valid.
    let (whole, dir) = cut(|_, _| false);
    let first = segment_of(&whole, &dir, 0);
    let mut position = FIRST_BLOCK;
    let mut blocks = Vec::new();
    while let Some(block) = first.block(position, Check::Full).unwrap() {
        blocks.push(position);
        position = block.end();
    }
    let [_, _, second, third, end] = blocks[..] else { panic!("{blocks:?}") };
    for (lost, kept) in [(second, 1), (third, 2), (end, 3)] {
        let (image, dir) = cut(|sequence, sector| sequence == 0 && sector == lost / 512);
        let told = plan(&image, &dir, &settings(WriteMode::Mapped), 2).unwrap();
        assert!(told.steps.iter().any(|step| step.mend == RepairKind::SetAside) || kept == 3);
        let log = open(&image, &dir, TestMember::new(0, 2)).unwrap();
        let found = values_of(&log, 0);
        // The sector also holds the end of the record before.
        assert!(found.len() <= kept, "{lost}: {}", found.len());
        assert!(found.iter().zip([b'a', b'b', b'c']).all(|(value, c)| *value == [c; 2000]));
        let next = found.len() as u64;
        assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, next, "{lost}");
        assert_eq!(values_of(&log, 0).len() as u64, next + 1);
    }
}

#[test]
fn a_commit_word_that_did_not_arrive_is_told_as_what_the_log_stops_before() {
    let (image, dir) = cut(|_, _| false);
    let first = segment_of(&image, &dir, 0);
    let introduced = first.block(FIRST_BLOCK, Check::Full).unwrap().unwrap();
    rewrite(&image, first.path(), introduced.end(), &[0; 8]);
    let told = plan(&image, &dir, &settings(WriteMode::Mapped), 2).unwrap();
    let cut = told.steps.iter().find(|step| step.mend == RepairKind::Cut).unwrap();
    assert_eq!(cut.why, "the log ends before the next segment");
    assert_eq!((cut.position, &*cut.path), (introduced.end(), first.path()));
    assert!(cut.bytes > 6000, "{cut:?}");
    assert_eq!(told.ends, [(0, 0)]);
    let log = open(&image, &dir, TestMember::new(0, 2)).unwrap();
    assert!(values_of(&log, 0).is_empty());
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 0);
}

/// A process prepares a segment, another one appends, and the first then rolls.
///
/// Everything of the new segment arrives, except what changed since it was prepared. A disk that
/// refuses a read must not make that half a beginning count as a whole one.
#[test]
fn half_a_beginning_is_not_believed_when_a_read_of_it_fails() {
    let image = with_half_a_beginning();
    let dir = log_dir(Path::new("/"));
    let kept = [(0, b"kept".to_vec())];
    for errno in [libc::EIO, libc::EMFILE] {
        for nth in 1.. {
            let faulty = FaultyStorage::over_memory(image.survivor());
            faulty.plan(Fault::at(nth, FailureKind::Errno(errno)));
            let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
            if let Ok(log) = open(&storage, &dir, TestMember::new(0, 2)) {
                let (found, _) = read_all(&log, 0, 0);
                assert!(found.is_empty() || found == kept, "call {nth}: {found:?}");
            }
            let struck = faulty.failed() > 0;
            faulty.heal();
            let log = open(&storage, &dir, TestMember::new(0, 3)).unwrap();
            assert_eq!(read_all(&log, 0, 0).0, kept, "call {nth}");
            assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 1, "call {nth}");
            if !struck {
                assert!(nth > 20, "only {nth} calls");
                break;
            }
        }
    }
}

fn with_half_a_beginning() -> MemoryStorage {
    let machine = MemoryStorage::new().seeded(3);
    let dir = log_dir(Path::new("/"));
    create_log(&machine, &dir, 1, WriteMode::Mapped);
    let [first, second] = [0, 1].map(|_| machine.process());
    let member = TestMember::new(0, 1);
    let processes = [(&first, member.beside(0)), (&second, member.beside(1))];
    let [rolling, appending] = processes.map(|(process, member)| {
        open(&(Arc::new(process.clone()) as Arc<dyn Storage>), &dir, member).unwrap()
    });
    let (waits, prepared) = (AtomicBool::new(true), dir.join(names::prepared(0)));
    let (number, world, other) = (first.process_number(), machine.clone(), Arc::clone(&appending));
    machine.watch(move |process| {
        let now = process == number && world.stat(&prepared).is_ok();
        if now && waits.swap(false, Ordering::SeqCst) {
            append(&other, 0, &[b"kept"]).unwrap();
        }
    });
    rolling.roll_now().unwrap();
    let journal = machine.journal();
    (0..2).for_each(|slot| member.beside(slot).dies());
    let crash = journal.crash_at_end();
    let selection = crash.choices().iter().map(|choice| match choice.what {
        Undecided::Sector(8..) if choice.path.ends_with(&names::segment(1)) => 0,
        _ => choice.latest,
    });
    crash.image(&selection.collect::<Vec<_>>())
}

/// The disk fails all reads from one of them on: bytes that could not be read do not count as torn.
#[test]
fn a_disk_that_stops_answering_during_a_recovery_costs_no_record() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"synced"]).unwrap();
    log.sync().unwrap();
    for value in [b"one", b"two"] {
        log.roll_now().unwrap();
        append(&log, 0, &[value]).unwrap();
    }
    let whole = [b"synced".to_vec(), b"one".to_vec(), b"two".to_vec()];
    for nth in 1.. {
        let faulty = FaultyStorage::over_memory(p.memory.survivor());
        faulty.plan(Fault::at(nth, FailureKind::Errno(libc::EIO)).only(Call::Read).forever());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let opened = open(&storage, &p.dir, TestMember::new(0, 2)).map(drop);
        let struck = faulty.failed() > 0;
        faulty.heal();
        let log = open(&storage, &p.dir, TestMember::new(0, 3)).unwrap();
        assert_eq!(values_of(&log, 0), whole, "from read {nth} on: {opened:?}");
        if !struck {
            assert!(nth > 10, "only {nth} reads");
            break;
        }
    }
}
