//! Reading without maps: the same records, and an error where a map would raise a signal.

use std::path::Path;
use std::sync::Arc;

use crate::common::{LOG, append, log_dir, new_log, read_all, settings};
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, LogSettings, Wait};
use falaj::internals::segment::{CANNOT_READ, Check, Reading, Segment};
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{OpenMode, Storage};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

fn unmapped() -> LogSettings {
    LogSettings { reading: Reading::Pread, ..settings(WriteMode::Mapped) }
}

fn open_unmapped(storage: &Arc<dyn Storage>, dir: &Path) -> Arc<Log> {
    Log::open(Arc::clone(storage), dir, unmapped(), None).unwrap()
}

/// Run a test on the memory storage and on real files.
fn on_both(test: impl Fn(Arc<dyn Storage>, &Path)) {
    test(Arc::new(MemoryStorage::new()), Path::new("/"));
    let directory = tempfile::tempdir().unwrap();
    test(Arc::new(RealStorage::new()), directory.path());
}

fn fill(log: &Log, blocks: u32) {
    for i in 0..blocks {
        let values: Vec<Vec<u8>> = (0..3).map(|j| vec![i as u8 ^ j; 300]).collect();
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        append(log, 0, &values).unwrap();
    }
}

#[test]
fn a_reader_without_maps_sees_what_a_mapped_one_sees_across_segments() {
    on_both(|storage, root| {
        let dir = log_dir(root);
        let log = new_log(&storage, &dir);
        fill(&log, 400);
        let reader = open_unmapped(&storage, &dir);
        assert!(storage.list(&dir).unwrap().contains(&names::segment(3)), "several segments");
        for from in [0, 1, 599, 1199, 1200] {
            let (expected, whole) = read_all(&log, 0, from);
            whole.unwrap();
            let (found, whole) = read_all(&reader, 0, from);
            whole.unwrap();
            assert!(expected == found, "from {from}");
        }
    });
}

#[test]
fn a_reader_without_maps_follows_a_writer() {
    on_both(|storage, root| {
        let dir = log_dir(root);
        let log = new_log(&storage, &dir);
        let reader = open_unmapped(&storage, &dir);
        let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
        for i in 0..500u64 {
            assert!(cursor.next_block().unwrap().is_none());
            append(&log, 0, &[&[7; 200]]).unwrap();
            let seen = reader.wait_for_news(cursor.address(), None, &|| false).unwrap();
            assert_eq!(seen, Wait::News);
            assert_eq!(cursor.next_block().unwrap().unwrap().first(), i);
        }
    });
}

#[test]
fn a_disk_that_gives_bytes_no_longer_back_is_an_error_with_its_place() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dir = log_dir(Path::new("/"));
    let log = new_log(&memory, &dir);
    fill(&log, 100);
    log.sync().unwrap();
    let read = |faulty: &FaultyStorage| {
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let reader = Log::open(storage, &dir, unmapped(), None)?;
        let (found, end) = read_all(&reader, 0, 0);
        end.map(|()| found.len())
    };
    let whole = FaultyStorage::new(Arc::clone(&memory));
    assert_eq!(read(&whole).unwrap(), 300);
    let mut of_the_disk = 0;
    for nth in 1..=whole.count(Call::Read) {
        let faulty = FaultyStorage::new(Arc::clone(&memory));
        faulty.plan(Fault::at(nth, FailureKind::Errno(libc::EIO)).only(Call::Read).forever());
        let error = read(&faulty).unwrap_err().to_string();
        assert!(error.contains("/log"), "{error}");
        of_the_disk += u32::from(error.contains("the disk could not read"));
        faulty.heal();
        assert_eq!(read(&faulty).unwrap(), 300);
    }
    assert!(of_the_disk > 3);
}

#[test]
fn a_truncated_segment_is_an_error_and_no_signal() {
    let directory = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(directory.path());
    let log = new_log(&storage, &dir);
    fill(&log, 20);
    log.sync().unwrap();
    drop(log);
    let reader = open_unmapped(&storage, &dir);
    let mut cursor = reader.cursor_at(0, 0, Check::Full).unwrap();
    cursor.next_block().unwrap().unwrap();
    let path = dir.join(names::segment(0));
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
    // A clone of the file's beginning may be in memory already; a fresh reader has none of it.
    let reader = open_unmapped(&storage, &dir);
    let (found, end) = read_all(&reader, 0, 0);
    assert!(found.len() < 20 * 3);
    let error = end.unwrap_err();
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    assert!(storage.open(&path, OpenMode::Read).is_ok());
}

#[test]
fn a_file_that_ends_before_its_length_is_an_error_and_no_end_of_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(directory.path());
    let log = new_log(&storage, &dir);
    fill(&log, 20);
    log.sync().unwrap();
    let read = || Segment::open_to_read(&*storage, &dir, LOG, 0, 0, Reading::Pread).unwrap();
    let (tail, whole, path) =
        (log.committed().unwrap().position(), read(), dir.join(names::segment(0)));
    drop(log);
    // Empty space is read in a way of its own.
    assert!(whole.block(tail, Check::Full).unwrap().is_none());
    let cut = |len| std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len);
    cut(tail).unwrap();
    assert_eq!(whole.block(tail, Check::Full).unwrap_err().what, CANNOT_READ);
    assert_eq!(read().block(tail, Check::Full).unwrap().map(|block| block.position), None);
    let whole = read();
    assert!(whole.read_mark().unwrap().is_some());
    cut(300).unwrap();
    assert_eq!(whole.block(8192, Check::Full).unwrap_err().what, CANNOT_READ);
    let error = whole.read_mark().unwrap_err().to_string();
    assert!(error.contains("cut off") && error.contains("300"), "{error}");
}
