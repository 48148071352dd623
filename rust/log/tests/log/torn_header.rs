//! Power cuts that take a segment's beginning, or bytes in its middle, and leave later segments.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{
    TestMember, append, create_log_of, log_dir, open, open_as, open_to_read, read_all, settings,
};
use falaj::internals::error::Error;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, LogCut};
use falaj::internals::storage::Storage;
use falaj_twin::memory::{MemoryStorage, Undecided};

const SEGMENTS: u64 = 4;

/// The disk after a process worked on a new log and the power failed.
///
/// Everything pending arrived, except what is named here: a path, and which of its bytes.
fn power_lost_after(
    topics: u32,
    mode: WriteMode,
    work: impl FnOnce(&Log),
    is_lost: impl Fn(&str, &Undecided) -> bool,
) -> MemoryStorage {
    let machine = MemoryStorage::new().seeded(4);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    create_log_of(&*storage, &dir(), topics, mode, crate::common::SEGMENT);
    let member = TestMember::new(0, 1);
    let dies = member.obituary();
    let log = open_as(&storage, &dir(), member, mode).unwrap();
    work(&log);
    let journal = machine.journal();
    dies();
    let crash = journal.crash_at_end();
    let selection = crash
        .choices()
        .iter()
        .map(|choice| if is_lost(&choice.path, &choice.what) { 0 } else { choice.latest });
    crash.image(&selection.collect::<Vec<_>>())
}

fn dir() -> PathBuf {
    log_dir(Path::new("/"))
}

fn is_segment(path: &str, number: u64) -> bool {
    path.ends_with(&names::segment(number))
}

/// Append a record that is synced, and one to each segment that is begun since.
fn roll_without_sync(log: &Log) {
    append(log, 0, &[b"0"]).unwrap();
    log.sync().unwrap();
    for segment in 1..=SEGMENTS {
        log.roll_now().unwrap();
        append(log, 0, &[segment.to_string().as_bytes()]).unwrap();
    }
}

/// Power takes the headers or names of some segments.
fn without_beginnings_of(lost: &[u64], names_too: bool) -> Arc<dyn Storage> {
    let is_one = |path: &str| lost.iter().any(|segment| is_segment(path, *segment));
    Arc::new(power_lost_after(1, WriteMode::Mapped, roll_without_sync, |path, what| match what {
        Undecided::Sector(0..16) => is_one(path),
        Undecided::Name(name) => names_too && is_one(name),
        _ => false,
    }))
}

#[test]
fn a_torn_header_behind_the_mark_ends_the_log_before_it() {
    the_log_ends_before(false);
}

#[test]
fn a_missing_segment_behind_the_mark_ends_the_log_before_it() {
    the_log_ends_before(true);
}

fn the_log_ends_before(names_too: bool) {
    let subsets = (1..1u64 << SEGMENTS)
        .map(|bits| (1..=SEGMENTS).filter(|s| bits >> (s - 1) & 1 == 1).collect::<Vec<_>>());
    for lost in subsets {
        let image = without_beginnings_of(&lost, names_too);
        let dir = dir();
        let (before, ended) = read_all(&open_to_read(&image, &dir).unwrap(), 0, 0);
        let told = ended.is_ok() || matches!(ended, Err(Error::NeedsRecovery { .. }));
        assert!(told && !before.is_empty(), "{lost:?}: {before:?}, {ended:?}");

        let log = open(&image, &dir, TestMember::new(0, 2)).unwrap();
        let (records, ended) = read_all(&log, 0, 0);
        ended.unwrap();
        let kept: Vec<_> = records.iter().map(|(_, value)| value[0] - b'0').collect();
        let whole: Vec<_> = (0..lost[0] as u8).collect();
        assert_eq!(kept, whole, "{lost:?}");
        append(&log, 0, &[b"new"]).unwrap();
        assert_eq!(read_all(&log, 0, lost[0]).0, [(lost[0], b"new".to_vec())], "{lost:?}");
    }
}

/// Power takes the end block of a segment, and nothing of the segments behind it.
///
/// Readers could go on by the headers of those. But a cut, a backup and `verify` want the end block.
#[test]
fn the_log_ends_before_a_segment_whose_end_block_was_lost_and_cuts_of_it_are_whole() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let image = power_lost_after(1, mode, roll_without_sync, |path, what| {
            matches!(what, Undecided::Sector(16..)) && is_segment(path, 0)
        });
        let (image, dir): (Arc<dyn Storage>, _) = (Arc::new(image), dir());
        let kept = [(0, b"0".to_vec())];
        let (records, ended) = read_all(&open_to_read(&image, &dir).unwrap(), 0, 0);
        assert_eq!(records, kept, "{ended:?}");
        let log = open_as(&image, &dir, TestMember::new(0, 2), mode).unwrap();
        assert_eq!(read_all(&log, 0, 0).0, kept);
        append(&log, 0, &[b"new"]).unwrap();
        log.roll_now().unwrap();
        log.sync().unwrap();
        let cut = LogCut::durable(&image, &log, &settings(mode), None).unwrap();
        assert!(cut.segments().len() > 1 && cut.end().sequence() > 0, "{cut:?}");
        assert_eq!(read_all(&log, 0, 0).0, [(0, b"0".to_vec()), (1, b"new".to_vec())]);
    }
}

/// A process prepares a segment, another one appends and syncs, and the first then rolls.
///
/// Only the parts of the new segment that were synced then arrive: its preparation, its header, its
/// name.
#[test]
fn a_torn_beginning_behind_the_mark_hides_nothing_that_lies_before_it() {
    let machine = MemoryStorage::new().seeded(3);
    let dir = dir();
    create_log_of(&machine, &dir, 1, WriteMode::Mapped, crate::common::SEGMENT);
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
            other.sync().unwrap();
        }
    });
    rolling.roll_now().unwrap();
    let journal = machine.journal();
    (0..2).for_each(|slot| member.beside(slot).dies());
    let crash = journal.crash_at_end();
    let selection = crash.choices().iter().map(|choice| match choice.what {
        Undecided::Sector(8..) if is_segment(&choice.path, 1) => 0,
        _ => choice.latest,
    });
    let image: Arc<dyn Storage> = Arc::new(crash.image(&selection.collect::<Vec<_>>()));
    assert!(image.stat(&dir.join(names::segment(1))).is_ok());
    let kept = [(0, b"kept".to_vec())];
    let (records, ended) = read_all(&open_to_read(&image, &dir).unwrap(), 0, 0);
    assert_eq!(records, kept, "{ended:?}");
    let log = open(&image, &dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(read_all(&log, 0, 0).0, kept);
}

/// The beginning of the newest segment is torn, and perhaps the block that names the one before did
/// not arrive.
#[test]
fn a_recovery_that_dies_leaves_the_next_one_all_that_it_had_found() {
    let modes = [WriteMode::Mapped, WriteMode::Pwrite];
    for (mode, lost) in modes.into_iter().flat_map(|mode| [(mode, &[2][..]), (mode, &[0, 2])]) {
        let work = |log: &Log| {
            append(log, 0, &[b"durable"]).unwrap();
            log.sync().unwrap();
            for value in [b"found", b"ended"] {
                log.roll_now().unwrap();
                append(log, 0, &[value]).unwrap();
            }
        };
        let image = power_lost_after(1, mode, work, |path, what| {
            let is_torn = lost.iter().any(|segment| is_segment(path, *segment));
            is_torn && matches!(what, Undecided::Sector(8..))
        });
        let recovered = |storage: &MemoryStorage| {
            let storage: Arc<dyn Storage> = Arc::new(storage.process());
            let log = open_as(&storage, &dir(), TestMember::new(0, 2), mode).unwrap();
            read_all(&log, 0, 0).0.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
        };
        let found = recovered(&image);
        // Without the end block before it, the second segment is no part of the log.
        let whole = [b"durable".to_vec(), b"found".to_vec()];
        assert_eq!(found, whole[..if lost.contains(&0) { 1 } else { 2 }]);
        let recovery = image.journal();
        for time in 0..=recovery.len() {
            assert_eq!(recovered(&recovery.killed_at(time)), found, "dead after event {time}");
        }
    }
}

/// Power takes the sector in which the second record begins, or also the page that the processes
/// shared.
///
/// The first record was synced. The second reaches into the next sector, and a third is in the next
/// segment.
fn with_a_hole(mode: WriteMode, page_too: bool) -> Arc<dyn Storage> {
    let work = |log: &Log| {
        append(log, 0, &[b"0"]).unwrap();
        log.sync().unwrap();
        append(log, 0, &[&[b'1'; 600]]).unwrap();
        log.roll_now().unwrap();
        append(log, 1, &[b"behind"]).unwrap();
    };
    Arc::new(power_lost_after(2, mode, work, |path, what| {
        is_second_sector(path, what) || page_too && is_of_the_page(path, what)
    }))
}

/// The sector in which the second record of a log begins here.
fn is_second_sector(path: &str, what: &Undecided) -> bool {
    is_segment(path, 0) && matches!(what, Undecided::Sector(16))
}

fn is_of_the_page(path: &str, what: &Undecided) -> bool {
    path.ends_with("control") && matches!(what, Undecided::Sector(_))
}

#[test]
fn a_hole_that_another_segment_follows_is_no_end_for_a_reader_before_recovery() {
    for (mode, page_too) in [
        (WriteMode::Mapped, false),
        (WriteMode::Mapped, true),
        (WriteMode::Pwrite, false),
        (WriteMode::Pwrite, true),
    ] {
        let image = with_a_hole(mode, page_too);
        let reader = open_to_read(&image, &dir()).unwrap();
        assert_eq!(read_all(&reader, 1, 0).0, [(0, b"behind".to_vec())], "{mode:?}");
        let (records, ended) = read_all(&reader, 0, 0);
        assert_eq!(records, [(0, b"0".to_vec())]);
        let told = matches!(&ended, Err(Error::NeedsRecovery { path, .. })
            if path.ends_with(names::segment(0)));
        assert!(told, "{mode:?}, {page_too}: {ended:?}");

        let log = open_as(&image, &dir(), TestMember::new(0, 2), mode).unwrap();
        for (topic, held) in [(0, 1), (1, 0)] {
            let (records, ended) = read_all(&log, topic, 0);
            ended.unwrap();
            assert_eq!(records.len(), held, "{mode:?}: topic {topic}");
        }
    }
}

/// If a reader treats a hole as the end, an index entry past it must not show half a group.
#[test]
fn the_index_leads_no_reader_past_a_hole_that_ends_the_log_before_recovery() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let work = |log: &Log| {
            append(log, 0, &[&[b'0'; 600]]).unwrap();
            // So many records that the index notes some of them.
            for _ in 0..200 {
                append(log, 1, &[&[b'1'; 200]]).unwrap();
            }
        };
        let image = power_lost_after(2, mode, work, |path, what| {
            is_second_sector(path, what) || is_of_the_page(path, what)
        });
        let image: Arc<dyn Storage> = Arc::new(image);
        let reader = open_to_read(&image, &dir()).unwrap();
        for topic in [0, 1] {
            for offset in [0, 1, 100, 199] {
                let (records, _) = read_all(&reader, topic, offset);
                assert_eq!(records, [], "{mode:?}: topic {topic} from {offset}");
            }
        }
    }
}
