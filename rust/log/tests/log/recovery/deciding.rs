//! Recovery's decisions before it changes anything: which steps a dry run lists, and what is swept,
//! freed and moved away.
//!
//! A death in between loses nothing.

use super::*;
use crate::common::{create_log_of, log_dir, open};
use falaj::internals::format::control::{at, flag};
use falaj::internals::format::names;
use falaj_twin::memory::{MemoryStorage, Undecided};

/// A corrupt header below the mark may have held records of either topic.
///
/// Blocks behind the mark show where one topic continues. If these are torn, the cut jumps for
/// both.
#[test]
fn a_jump_of_offsets_is_reported_once_whatever_other_steps_there_are() {
    for (torn, in_doubt, leaps) in
        [(false, false, 1), (true, false, 2), (false, true, 1), (true, true, 2)]
    {
        let p = Place::new(2, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"seen"]).unwrap();
        let hurt = log.committed().unwrap().position();
        append(&log, 1, &[b"lost"]).unwrap();
        log.sync_clean().unwrap();
        let behind = log.committed().unwrap().position();
        append(&log, 0, &[b"behind the mark"]).unwrap();
        p.segment(0).write_at(&[0xee; 4], hurt + 12).unwrap();
        if torn {
            p.segment(0).write_at(&[0xee; 4], behind + 12).unwrap();
        }
        if in_doubt {
            p.set_latch();
        }
        let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
        let Planned { steps: told, ends } = told(&image, &p);
        let found = kinds(&told).into_iter().filter(|mend| *mend == RepairKind::GoBeyond).count();
        assert_eq!(found, leaps, "{torn}, {in_doubt}: {told:?}");
        let (done, log) = repaired(&image, &p);
        assert_eq!(told, done, "a dry run must list what a repair does");
        for (topic, end) in ends {
            assert_eq!(append(&log, topic, &[b"new"]).unwrap().first, end, "{torn}, {in_doubt}");
        }
    }
}

/// Every recovery builds the index of the active segment again.
#[test]
fn only_bad_indexes_of_sealed_segments_are_reported() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    for _ in 0..2 {
        log.roll_now().unwrap();
        append(&log, 0, &[b"more"]).unwrap();
    }
    log.sync_clean().unwrap();
    drop(log);
    let [sealed, last] = [1, 2].map(|sequence| p.dir.join(names::index(sequence)));
    [&sealed, &last].iter().for_each(|path| p.storage.unlink(path).unwrap());
    let told = told(&p.storage, &p).steps;
    assert_eq!(kinds(&told), [RepairKind::Reindex]);
    assert_eq!(told[0].path, sealed);
    let (done, log) = repaired(&p.storage, &p);
    assert_eq!(told, done);
    assert!([&sealed, &last].iter().all(|path| p.storage.stat(path).is_ok()));
    assert_eq!(values_of(&log, 0).len(), 3);
}

/// The page is in the failed-sync state, or a block lies behind the mark: one alone is no reason to
/// write anything again.
#[test]
fn nothing_is_saved_unless_it_is_in_doubt_and_not_on_the_medium() {
    for (latched, behind, saves) in [(true, false, false), (false, true, false), (true, true, true)]
    {
        let p = left();
        let log = p.open(TestMember::new(0, 1));
        if behind {
            append(&log, 0, &[b"two"]).unwrap();
        }
        if latched {
            p.set_latch();
        }
        let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
        let told = told(&image, &p).steps;
        let wanted: &[RepairKind] = if saves { &[RepairKind::Save] } else { &[] };
        assert_eq!(kinds(&told), wanted, "{latched}, {behind}");
        let (done, log) = repaired(&image, &p);
        assert_eq!(told, done);
        assert_eq!(values_of(&log, 0).len(), if behind { 2 } else { 1 });
    }
}

/// The failed-sync state was cleared. Unknown bits are corrupt, or from a version that is gone. A
/// deletion stays.
#[test]
fn of_the_flags_only_that_of_a_deletion_outlives_a_recovery() {
    let p = left();
    p.page().store(at::FLAGS, flag::LATCHED | flag::DELETED | 1 << 40).unwrap();
    mend(&p.storage, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap();
    assert_eq!(p.page().load(at::FLAGS), flag::DELETED);
    assert_eq!(p.page().load(at::INCARNATION), 2);
}

#[test]
fn what_the_dead_left_behind_is_told_and_removed_and_what_is_not_ours_stays() {
    let p = left();
    let leftovers = ["supersede.tmp", &names::prepared(3), &names::index(9)];
    let others = ["notes.tmp", "notes", &names::index(0)].map(|name| p.dir.join(name));
    for name in leftovers.iter().copied().chain(["notes.tmp", "notes"]) {
        p.storage.open(&p.dir.join(name), OpenMode::CreateNew(0o600)).unwrap();
    }
    let told = told(&p.storage, &p).steps;
    assert!(told.iter().all(|step| step.mend == RepairKind::RemoveTemporary), "{told:?}");
    let mut found: Vec<_> = told.iter().map(|step| step.path.clone()).collect();
    let mut wanted = leftovers.map(|name| p.dir.join(name));
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    assert_eq!(told, repaired(&p.storage, &p).0);
    assert!(wanted.iter().all(|path| p.storage.stat(path).is_err()));
    assert!(others.iter().all(|path| p.storage.stat(path).is_ok()));
}

/// The end of a segment did not arrive, and perhaps not the block that names this segment.
#[test]
fn a_whole_segment_behind_the_end_stays_until_something_else_holds_the_chain() {
    for is_named in [true, false] {
        whole_segment_behind_the_end(is_named);
    }
}

fn whole_segment_behind_the_end(is_named: bool) {
    let machine = MemoryStorage::new().seeded(3);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let dir = log_dir(Path::new("/"));
    create_log_of(&*storage, &dir, 1, WriteMode::Mapped, crate::common::SEGMENT);
    let member = TestMember::new(0, 1);
    let dies = member.obituary();
    let log = open(&storage, &dir, member).unwrap();
    append(&log, 0, &[b"durable"]).unwrap();
    log.sync().unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"found"]).unwrap();
    let torn = log.committed().unwrap().position() + 2000;
    append(&log, 0, &[&[b'x'; 4000]]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"behind the end"]).unwrap();
    let journal = machine.journal();
    dies();
    let crash = journal.crash_at_end();
    let [naming, ending] = [0, 1].map(names::segment);
    let selection = crash.choices().iter().map(|choice| match choice.what {
        Undecided::Sector(8..) if !is_named && choice.path.ends_with(&naming) => 0,
        Undecided::Sector(lost) if choice.path.ends_with(&ending) && lost == torn / 512 => 0,
        _ => choice.latest,
    });
    let image = crash.image(&selection.collect::<Vec<_>>());
    let recovered = |storage: &MemoryStorage| {
        let storage: Arc<dyn Storage> = Arc::new(storage.process());
        values_of(&open(&storage, &dir, TestMember::new(0, 2)).unwrap(), 0)
    };
    let found = recovered(&image);
    let whole = [b"durable".to_vec(), b"found".to_vec()];
    assert_eq!(found, whole[..if is_named { 2 } else { 1 }]);
    assert!(image.stat(&dir.join(names::segment(2))).is_err(), "it must be moved away in the end");
    let recovery = image.journal();
    for time in 0..=recovery.len() {
        assert_eq!(recovered(&recovery.killed_at(time)), found, "dead after event {time}");
    }
}

/// A copy without reserved space: the file ends with its last block.
#[test]
fn a_segment_that_goes_on_gets_room_for_more_than_its_last_block() {
    const LARGE: u64 = 4 << 20;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::with_capacity(2 * LARGE));
    let dir = log_dir(Path::new("/"));
    create_log_of(&*storage, &dir, 1, WriteMode::Mapped, LARGE);
    let settings =
        falaj::internals::log::LogSettings { segment_bytes: LARGE, ..settings(WriteMode::Mapped) };
    let open = |incarnation| {
        let member = Some(Arc::new(TestMember::new(0, incarnation)) as _);
        Log::open(Arc::clone(&storage), &dir, settings.clone(), member).unwrap()
    };
    let log = open(1);
    for _ in 0..5 {
        append(&log, 0, &[&[b'x'; 250_000]]).unwrap();
    }
    log.sync_clean().unwrap();
    let end = log.committed().unwrap().position();
    drop(log);
    let path = dir.join(names::segment(0));
    let mut bytes = vec![0; end as usize];
    storage.open(&path, OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    storage.unlink(&path).unwrap();
    storage.open(&path, OpenMode::CreateNew(0o600)).unwrap().write_at(&bytes, 0).unwrap();
    let log = open(2);
    // Space that each append leaves behind it, for repairs after a death and for the end block.
    assert!(storage.stat(&path).unwrap().len >= end + 4096);
    append(&log, 0, &[b"new"]).unwrap();
    assert_eq!(values_of(&log, 0).len(), 6);
}
