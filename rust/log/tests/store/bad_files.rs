//! Files of a store with foreign content: cut off, emptied, swapped, flipped, foreign, replaced,
//! missing, of a newer version.
//!
//! For each file and each harm, opening, reading, appending and verifying give the right result, or
//! an error that names a path in the store. Nothing hangs or crashes. With the file put back, all
//! records are there: none was lost on the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::internals::error::{Error, Remedy, Result};
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::names;
use falaj::internals::log::Reading;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Severity, Store, StoreOptions, TopicOptions, verify};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};

use crate::stores::{fill, flip, log_dir, on_both, open, quietly, read_until_error, topic, value};

const RECORDS: u64 = 400;

/// A closed store with a topic of several segments, and another of the same shape.
fn prepare(storage: &Arc<dyn Storage>, root: &Path) -> PathBuf {
    let path = root.join("store");
    let store = open(storage, &path).unwrap();
    for name in ["orders", "others"] {
        fill(&topic(&store, name), 0, RECORDS);
    }
    path
}

fn read(storage: &Arc<dyn Storage>, path: &Path) -> Vec<u8> {
    let file = storage.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Put another file in a file's place.
fn put(storage: &Arc<dyn Storage>, path: &Path, bytes: &[u8]) {
    let _ = storage.unlink(path);
    let file = storage.open(path, OpenMode::CreateNew(0o600)).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// The ways to harm a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Missing,
    Emptied,
    CutShort,
    CutInHalf,
    Flipped(u64),
    Foreign,
    Swapped,
}

const HARMS: [Harm; 9] = [
    Harm::Missing,
    Harm::Emptied,
    Harm::CutShort,
    Harm::CutInHalf,
    Harm::Flipped(3),
    Harm::Flipped(40),
    Harm::Flipped(4_200),
    Harm::Foreign,
    Harm::Swapped,
];

/// Harm a file; false if the file cannot be harmed in this way.
fn harm(storage: &Arc<dyn Storage>, path: &Path, twin: &Path, how: Harm) -> bool {
    let bytes = read(storage, path);
    match how {
        Harm::Missing => storage.unlink(path).unwrap(),
        Harm::Emptied => put(storage, path, &[]),
        Harm::CutShort => put(storage, path, &bytes[..bytes.len().min(20)]),
        Harm::CutInHalf => put(storage, path, &bytes[..bytes.len() / 2]),
        Harm::Flipped(at) if (at as usize) < bytes.len() => flip(storage, path, at),
        Harm::Flipped(_) => return false,
        Harm::Foreign => put(storage, path, b"#!/bin/sh\necho this is no file of falaj\n"),
        Harm::Swapped => put(storage, path, &read(storage, twin)),
    }
    true
}

/// Do everything that a user may do: each call succeeds, or fails with a useful error.
fn use_it(storage: &Arc<dyn Storage>, path: &Path, story: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    for reading in [Reading::Map, Reading::Pread] {
        let options = StoreOptions { reading, ..StoreOptions::reading() };
        let looked = Store::open_on(Arc::clone(storage), path, &options)
            .and_then(|store| Topic::open(&store, "orders", &TopicOptions::default()));
        match looked {
            Ok(topic) => {
                let (found, error) = read_until_error(&topic);
                let expected: Vec<u64> = (0..found.len() as u64).collect();
                assert_eq!(found, expected, "{story}: a gap without an error");
                assert!(
                    error.is_some() || found.len() as u64 >= RECORDS,
                    "{story}: an end without an error"
                );
                errors.extend(error);
            }
            Err(error) => errors.push(error),
        }
    }
    let appended = open(storage, path).and_then(|store| {
        let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
        let end = orders.end(0)?;
        let offset = orders.append_to(0, &NewRecord::new(&value(end)), Some(SyncMode::Durable))?;
        assert_eq!(offset, end, "{story}");
        let read = orders.get_in(0, offset)?;
        assert_eq!(read.value(), Some(value(end).as_slice()), "{story}");
        Ok(())
    });
    errors.extend(appended.err());
    for error in &errors {
        let said = error.to_string();
        assert!(said.contains(&*path.to_string_lossy()), "{story}: no path in the error {said:?}");
        assert!(!said.contains("Some(") && !said.contains("Error"), "{story}: {said:?}");
        let helps =
            matches!(error.remedy(), Remedy::Repair | Remedy::FixInput | Remedy::FixMachine)
                || matches!(error, Error::NeedsRecovery { .. });
        assert!(helps, "{story}: {said}");
    }
    errors
}

/// Harm a file of a fresh copy of the store, use it, verify it, and put the file back.
fn suffer(file: impl Fn(&Arc<dyn Storage>, &Path) -> PathBuf, twin: impl Fn(&Path) -> PathBuf) {
    on_both(|storage, root| {
        let original = prepare(storage, root);
        for (i, how) in HARMS.into_iter().enumerate() {
            let path = root.join(format!("harmed-{i}"));
            copy_of(storage, &original, &path);
            let hurt = file(storage, &path);
            let twin = twin(&hurt);
            let twin = if storage.stat(&twin).is_ok() { twin } else { path.join("falaj.json") };
            let story = format!("{how:?} {}", hurt.display());
            let before = read(storage, &hurt);
            if !harm(storage, &hurt, &twin, how) {
                continue;
            }
            let found = verify(storage, &path, None, &mut quietly);
            let errors = use_it(storage, &path, &story);
            if errors.iter().any(|error| matches!(error, Error::CorruptData { .. })) {
                let found = found.as_ref().unwrap_or_else(|error| panic!("{story}: {error}"));
                assert!(found.worst() >= Some(Severity::Rebuildable), "{story}: {found:?}");
            }
            put(storage, &hurt, &before);
            let again = open(storage, &path).unwrap_or_else(|e| panic!("{story}, put back: {e}"));
            let orders = Topic::open(&again, "orders", &TopicOptions::default()).unwrap();
            let (found, error) = read_until_error(&orders);
            assert!(found.len() as u64 >= RECORDS, "{story}, put back: {error:?}");
        }
    });
}

/// A copy of a closed store, file by file, lock files included.
fn copy_of(storage: &Arc<dyn Storage>, from: &Path, to: &Path) {
    storage.create_dir(to, 0o700).unwrap();
    for name in storage.list(from).unwrap() {
        let (source, target) = (from.join(&name), to.join(&name));
        if storage.stat(&source).unwrap().is_dir {
            copy_of(storage, &source, &target);
        } else {
            put(storage, &target, &read(storage, &source));
        }
    }
}

fn of_log(name: String) -> impl Fn(&Arc<dyn Storage>, &Path) -> PathBuf {
    move |storage, path| log_dir(storage, path, "orders").join(&name)
}

/// The file of the same name in the other topic's log.
fn of_others(hurt: &Path) -> PathBuf {
    let (dir, name) = (hurt.parent().unwrap(), hurt.file_name().unwrap());
    let logs = dir.parent().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(falaj::internals::storage::real::RealStorage::new());
    if storage.stat(logs).is_err() {
        // In the memory storage its other log cannot be found, so the settings stand in.
        return PathBuf::from("/nothing");
    }
    log_dir(&storage, logs.parent().unwrap(), "others").join(name)
}

#[test]
fn a_harmed_sealed_segment_is_an_error_with_its_place() {
    suffer(of_log(names::segment(1)), of_others);
}

#[test]
fn a_harmed_first_segment_is_an_error_with_its_place() {
    suffer(of_log(names::segment(0)), of_others);
}

#[test]
fn a_harmed_active_segment_is_an_error_with_its_place() {
    suffer(of_log(names::segment(3)), of_others);
}

#[test]
fn segments_of_one_log_that_changed_places_are_an_error() {
    suffer(of_log(names::segment(1)), |hurt| hurt.with_file_name(names::segment(2)));
}

#[test]
fn a_harmed_index_costs_time_only() {
    suffer(of_log(names::index(1)), of_others);
    suffer(of_log(names::index(3)), of_others);
}

#[test]
fn a_harmed_control_page_is_replaced_by_the_next_process_that_is_alone() {
    suffer(of_log("control".into()), of_others);
}

#[test]
fn harmed_settings_of_a_store_are_an_error() {
    suffer(
        |_, path| path.join("falaj.json"),
        |hurt| hurt.with_file_name("topics/orders/topic.json"),
    );
}

#[test]
fn harmed_settings_of_a_topic_are_an_error() {
    suffer(
        |_, path| path.join("topics/orders/topic.json"),
        |hurt| hurt.parent().unwrap().with_file_name("others").join("topic.json"),
    );
}

#[test]
fn harmed_lock_files_and_pages_between_uses_are_made_anew() {
    for name in ["claim", "presence", "slots/0", "wake"] {
        suffer(move |_, path| path.join(name), |_| PathBuf::from("/nothing"));
    }
}

#[test]
fn a_newer_format_version_is_named_and_nothing_is_touched() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let newer = |text: &str| {
            let (sealed, _) = text.rsplit_once(",\"checksum\"").unwrap();
            let sealed = sealed.replace("\"format\":2", "\"format\":3");
            format!("{sealed},\"checksum\":\"{:08x}\"}}\n", crc32(sealed.as_bytes()))
        };
        for file in ["topics/orders/topic.json", "falaj.json"] {
            let file = path.join(file);
            let text = String::from_utf8(read(storage, &file)).unwrap();
            put(storage, &file, newer(&text).as_bytes());
            let outcome: Result<()> = open(storage, &path).and_then(|store| {
                Topic::open(&store, "orders", &TopicOptions::default()).map(drop)
            });
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::UnsupportedVersion { .. }), "{error}");
            assert_eq!(error.remedy(), Remedy::FixMachine);
            assert!(error.to_string().contains(&*file.to_string_lossy()), "{error}");
            assert!(error.to_string().contains("version 3, and this falaj reads 2"), "{error}");
            put(storage, &file, text.as_bytes());
        }
        // A segment: version, checksum.
        let hurt = log_dir(storage, &path, "others").join(names::segment(1));
        let mut page = read(storage, &hurt)[..512].to_vec();
        page[8] = 3;
        let crc = crc32(&page[..508]);
        page[508..].copy_from_slice(&crc.to_le_bytes());
        storage.open(&hurt, OpenMode::ReadWrite).unwrap().write_at(&page, 0).unwrap();
        let found = verify(storage, &path, Some("others"), &mut quietly).unwrap();
        let told = found.all_findings().find(|finding| finding.path == hurt).unwrap();
        assert!(told.remedy.contains("upgrade") && told.what.contains("newer"), "{told:?}");
    });
}

#[test]
fn what_is_no_store_is_said_to_be_none_and_left_alone() {
    on_both(|storage, root| {
        let (file, full) = (root.join("file"), root.join("full"));
        put(storage, &file, b"hello");
        storage.create_dir(&full, 0o700).unwrap();
        put(storage, &full.join("photo.jpg"), b"hello");
        let before = crate::stores::snapshot(storage, root);
        for bad in [&file, &full] {
            for options in [StoreOptions::default(), StoreOptions::reading()] {
                let error = Store::open_on(Arc::clone(storage), bad, &options).unwrap_err();
                assert!(matches!(error, Error::NotAStore { .. }), "{bad:?}: {error}");
                assert!(error.to_string().contains(&*bad.to_string_lossy()), "{error}");
            }
        }
        let nothing = root.join("nothing");
        let reading = StoreOptions::reading();
        let error = Store::open_on(Arc::clone(storage), &nothing, &reading).unwrap_err();
        assert!(matches!(error, Error::StoreNotFound { .. }), "{error}");
        assert!(before == crate::stores::snapshot(storage, root));
    });
}

#[test]
fn a_reader_that_skips_damage_is_told_what_it_lost() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let hurt = log_dir(storage, &path, "orders").join(names::segment(1));
        flip(storage, &hurt, 20_000);
        flip(storage, &hurt, 40_000);
        let store = crate::stores::open_to_read(storage, &path).unwrap();
        let orders = Topic::open(&store, "orders", &TopicOptions::default()).unwrap();
        let mut scan = orders.scan_partition(0, 0, None).unwrap();
        let (mut found, mut skipped) = (0, Vec::new());
        loop {
            match scan.next().transpose() {
                Ok(Some(_)) => found += 1,
                Ok(None) => break,
                Err(error) => {
                    let again = scan.next().transpose().unwrap_err();
                    assert_eq!(
                        again.to_string(),
                        error.to_string(),
                        "the scan must stay where it is"
                    );
                    let lost = scan.skip_damage().unwrap();
                    assert_eq!(lost.path, hurt);
                    assert_eq!(lost.offsets.end - lost.offsets.start, 1, "{lost:?}");
                    skipped.push(lost);
                }
            }
        }
        assert_eq!(skipped.len(), 2, "{skipped:?}");
        assert!(skipped[0].position < 20_000 && skipped[1].position < 40_000, "{skipped:?}");
        assert_eq!(found, RECORDS - 2);
    });
}
