//! Repair lists its steps, does them, and throws nothing away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::control::at;
use falaj::internals::format::names;
use falaj::internals::log::RepairKind;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{RepairReport, StoreOptions, repair, verify};
use falaj::internals::topic::{Record, SyncMode, Topic};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{
    assert_holds, fill, flip, log_dir, on_both, open, open_to_read, quietly, read_until_error,
    segment, snapshot, topic, value,
};

fn run(storage: &Arc<dyn Storage>, path: &Path, dry: bool) -> RepairReport {
    repair(Arc::clone(storage), path, &StoreOptions::default(), dry).unwrap()
}

/// Check that a dry run changes no file except `claim`.
///
/// The background thread of an open store may set its bit in control pages meanwhile.
fn rehearse(storage: &Arc<dyn Storage>, path: &Path) -> RepairReport {
    let quiet = |files: Vec<(PathBuf, Vec<u8>)>| -> Vec<_> {
        let left = files.into_iter().filter(|(file, _)| *file != path.join("claim"));
        left.map(|(file, mut bytes)| {
            if file.ends_with("control") {
                bytes[at::WAITING as usize..][..8].fill(0);
            }
            (file, bytes)
        })
        .collect()
    };
    let before = quiet(snapshot(storage, path));
    let report = run(storage, path, true);
    assert!(before == quiet(snapshot(storage, path)), "a dry run changed the store");
    assert!(report.dry_run);
    report
}

fn prepare(storage: &Arc<dyn Storage>, root: &Path, records: u64) -> PathBuf {
    let path = root.join("store");
    let store = open(storage, &path).unwrap();
    fill(&topic(&store, "orders"), 0, records);
    drop(store);
    path
}

#[test]
fn a_sound_store_needs_nothing() {
    on_both(|storage, root| {
        let path = prepare(storage, root, 300);
        let report = rehearse(storage, &path);
        assert!(report.is_complete() && report.steps().next().is_none(), "{report:?}");
        assert_eq!(report.in_use, Some(false));
        assert_eq!(report.logs[0].ends, [("orders".to_owned(), 0, 300)]);
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders");
        let report = rehearse(storage, &path);
        assert_eq!(report.in_use, Some(true));
        assert!(report.steps().next().is_none(), "{report:?}");
        drop(orders);
    });
}

#[test]
fn a_torn_tail_is_reported_cut_off_and_kept_aside() {
    let machine = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let path = prepare(&storage, Path::new("/"), 20);
    let store = open(&storage, &path).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 20, 30);
    let image: Arc<dyn Storage> = Arc::new(machine.survivor());
    drop((orders, store));
    let torn = segment(&image, &path, "orders", 0);
    // The last two records were not synced when all processes were killed and the power failed.
    let file = image.open(&torn, OpenMode::ReadWrite).unwrap();
    let mut bytes = vec![0; 60_000];
    file.read_at(&mut bytes, 0).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    flip(&image, &torn, end - 700);

    let told = rehearse(&image, &path);
    let cuts: Vec<_> = told.steps().filter(|step| step.mend == RepairKind::Cut).collect();
    assert_eq!(cuts.len(), 1, "{told:?}");
    assert_eq!(cuts[0].path, torn);
    assert!(cuts[0].position < end && cuts[0].bytes >= 1000, "{cuts:?}");
    assert_eq!(told.logs[0].ends, [("orders".to_owned(), 0, 28)]);

    let done = run(&image, &path, false);
    assert!(done.is_complete());
    let [told, done] = [&told, &done].map(|report| report.steps().cloned().collect::<Vec<_>>());
    assert_eq!(told, done, "a dry run must list what a repair does");
    let mut after = vec![0; 60_000];
    image.open(&torn, OpenMode::Read).unwrap().read_at(&mut after, 0).unwrap();
    let behind = cuts[0].position as usize;
    bytes[end as usize - 700] ^= 0x10;
    assert!(bytes[behind..] == after[behind..], "the bytes behind the cut must be kept");
    let store = open(&image, &path).unwrap();
    let orders = topic(&store, "orders");
    assert_holds(&orders, 28);
    fill(&orders, 28, 40);
    assert_holds(&orders, 40);
}

#[test]
fn bad_indexes_are_made_anew() {
    on_both(|storage, root| {
        let path = prepare(storage, root, 600);
        let dir = log_dir(storage, &path, "orders");
        storage.unlink(&dir.join(names::index(0))).unwrap();
        flip(storage, &dir.join(names::index(1)), 70);
        storage.unlink(&dir.join(names::index(2))).unwrap();
        storage.open(&dir.join(names::index(2)), OpenMode::CreateNew(0o600)).unwrap();
        let told = rehearse(storage, &path);
        assert_eq!(
            told.steps().filter(|step| step.mend == RepairKind::Reindex).count(),
            3,
            "{told:?}"
        );
        let done = run(storage, &path, false);
        assert_eq!(done.steps().count(), 3);
        let store = open(storage, &path).unwrap();
        let found = store.verify(None, &mut quietly).unwrap();
        assert!(found.worst().is_none(), "{found:?}");
        assert_holds(&topic(&store, "orders"), 600);
        assert!(storage.list(&dir).unwrap().iter().all(|name| !name.ends_with(".tmp")));
    });
}

#[test]
fn a_writer_that_meets_a_bad_index_makes_it_anew() {
    on_both(|storage, root| {
        let path = prepare(storage, root, 600);
        let index = log_dir(storage, &path, "orders").join(names::index(1));
        storage.unlink(&index).unwrap();
        let reader = crate::stores::open_to_read(storage, &path).unwrap();
        let read =
            falaj::internals::topic::Topic::open(&reader, "orders", &Default::default()).unwrap();
        assert_eq!(read.get_in(0, 150).unwrap().offset(), 150);
        assert!(storage.stat(&index).is_err(), "a reader must not write");
        let store = open(storage, &path).unwrap();
        assert_eq!(topic(&store, "orders").get_in(0, 150).unwrap().offset(), 150);
        assert!(storage.stat(&index).is_ok());
        assert!(store.verify(None, &mut quietly).unwrap().worst().is_none());
    });
}

#[test]
fn a_lost_segment_stops_opening_and_repair_goes_on_beyond_it() {
    on_both(|storage, root| {
        let path = prepare(storage, root, 600);
        let dir = log_dir(storage, &path, "orders");
        let count = storage.list(&dir).unwrap();
        let last = count.iter().filter_map(|name| names::parse_segment(name)).max().unwrap();
        storage.unlink(&dir.join(names::segment(last - 1))).unwrap();
        let store = open(storage, &path).unwrap();
        let settings = store.topic_settings("orders").unwrap();
        let error = store.open_log(&settings).unwrap_err();
        assert!(matches!(error, Error::CorruptData { .. }), "{error}");
        assert!(error.to_string().contains(&names::segment(last - 1)), "{error}");
        drop(store);
        let told = rehearse(storage, &path);
        assert!(told.steps().any(|step| step.mend == RepairKind::Cut), "{told:?}");
        let aside: Vec<_> = told.steps().filter(|step| step.mend == RepairKind::SetAside).collect();
        assert_eq!(aside.len(), 1);
        let kept = snapshot(storage, &dir);
        let kept = &kept.iter().find(|(path, _)| *path == aside[0].path).unwrap().1;
        let done = run(storage, &path, false);
        assert!(done.is_complete(), "{done:?}");
        let name = aside[0].path.file_name().unwrap();
        let now = snapshot(storage, &dir.join("quarantine"));
        assert!(now.iter().any(|(path, bytes)| path.ends_with(name) && bytes == kept));
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders");
        assert_eq!(done_end(&told), 600, "durable offsets must not be used again");
        let (found, error) = read_until_error(&orders);
        assert!(
            matches!(error, Some(Error::CorruptData { .. })),
            "the gap must be an error: {error:?}"
        );
        fill(&orders, 600, 700);
        let mut scan = orders.scan_partition(0, 0, None).unwrap();
        for i in 0..found.len() as u64 {
            assert_eq!(scan.next().transpose().unwrap().unwrap().offset(), i);
        }
        assert!(scan.next().transpose().is_err());
        assert_eq!(scan.skip_damage().unwrap().offsets, found.len() as u64..600);
        for i in 600..700 {
            assert_eq!(
                scan.next().transpose().unwrap().unwrap().value(),
                Some(value(i).as_slice())
            );
        }
        let found = store.verify(None, &mut quietly).unwrap();
        let lost: Vec<_> = found.all_findings().filter_map(|f| f.offsets.clone()).collect();
        assert!(lost.iter().any(|lost| lost.end == 600), "{found:?}");
    });
}

fn done_end(report: &RepairReport) -> u64 {
    report.logs[0].ends[0].2
}

#[test]
fn what_cannot_be_mended_is_told() {
    on_both(|storage, root| {
        let path = prepare(storage, root, 10);
        flip(storage, &path.join("topics/orders/topic.json"), 20);
        let report = rehearse(storage, &path);
        assert!(!report.is_complete());
        assert!(report.problems[0].to_string().contains("topic.json"), "{report:?}");
    });
}

/// A reader's view of a topic: offsets, times and values.
fn all_of(topic: &Topic) -> Vec<(u64, i64, Vec<u8>)> {
    let mut scan = topic.scan_partition(0, 0, None).unwrap();
    let next = || scan.next().transpose().unwrap();
    let told = |record: Record| {
        let value = record.value().unwrap().to_vec();
        (record.offset(), record.timestamp_ns(), value)
    };
    std::iter::from_fn(next).map(told).collect()
}

#[test]
fn a_store_reads_on_without_a_segments_first_or_second_page_and_repair_restores_the_header() {
    on_both(|storage, root| {
        let path = prepare(storage, root, 600);
        let before = all_of(&topic(&open(storage, &path).unwrap(), "orders"));
        let harmed = segment(storage, &path, "orders", 2);
        let pages = || {
            let mut pages = vec![0; FIRST_BLOCK as usize];
            storage.open(&harmed, OpenMode::Read).unwrap().read_at(&mut pages, 0).unwrap();
            pages
        };
        let valid = pages();
        // The sector, the page with its mark, magic, salt, predecessor, time, checksum.
        let zeros = [(0, 512), (0, 4096), (0, 4), (40, 8), (64, 8), (88, 8), (508, 4)];
        for (copy, (at, len)) in [0, 4096].into_iter().flat_map(|at| zeros.map(|zero| (at, zero))) {
            let file = storage.open(&harmed, OpenMode::ReadWrite).unwrap();
            file.write_at(&vec![0; len], copy + at).unwrap();
            let orders = topic(&open_to_read(storage, &path).unwrap(), "orders");
            assert!(all_of(&orders) == before, "{copy}, {at}, {len}");
            let found = verify(storage, &path, None, &mut quietly).unwrap();
            assert!(found.is_sound() && found.all_findings().count() == 1, "{found:?}");
            let told = rehearse(storage, &path);
            assert!(told.is_complete(), "{copy}, {at}, {len}: {told:?}");
            let steps: Vec<_> = told.steps().cloned().collect();
            assert_eq!(steps.len(), 1, "{copy}, {at}, {len}: {steps:?}");
            assert_eq!((steps[0].mend, &steps[0].path), (RepairKind::RestoreHeader, &harmed));
            let done = run(storage, &path, false);
            assert_eq!(steps, done.steps().cloned().collect::<Vec<_>>());
            let copies = [0, 4096].map(|at| pages()[at..at + 512].to_vec());
            assert!(copies.iter().all(|copy| copy[..] == valid[..512]), "{copy}, {at}, {len}");
            let found = verify(storage, &path, None, &mut quietly).unwrap();
            assert_eq!(found.all_findings().count(), 0);
        }
        assert!(rehearse(storage, &path).steps().next().is_none());
    });
}

#[test]
fn a_segment_without_both_headers_is_named_and_left_as_it_is() {
    on_both(|storage, root| {
        let path = prepare(storage, root, 600);
        let harmed = segment(storage, &path, "orders", 2);
        let file = storage.open(&harmed, OpenMode::ReadWrite).unwrap();
        file.write_at(&[0; FIRST_BLOCK as usize], 0).unwrap();
        for dry in [true, false] {
            let report = run(storage, &path, dry);
            let problem = report.logs[0].problem.as_ref().expect("a problem");
            let named = matches!(problem, Error::CorruptData { path, .. } if *path == harmed);
            assert!(named, "{problem}");
        }
        let mut pages = vec![1; FIRST_BLOCK as usize];
        file.read_at(&mut pages, 0).unwrap();
        assert!(pages.iter().all(|byte| *byte == 0), "no header may be made up");
    });
}
