//! Verification finds corruption, says where, and changes nothing.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::control::{at, flag};
use falaj::internals::format::names;
use falaj::internals::format::segment::HEADER_LEN;
use falaj::internals::format::{FIRST_BLOCK, PAGE};
use falaj::internals::log::{Reading, RepairKind};
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{
    Finding, Severity, Store, StoreOptions, Verification, repair, verify,
};
use falaj::internals::topic::{NewRecord, SyncMode};
use falaj_twin::faulty::FaultyStorage;
use falaj_twin::memory::MemoryStorage;

use crate::stores::{fill, flip, log_dir, on_both, open, quietly, segment, snapshot, topic};

/// A store of one topic with 600 records in several segments, closed.
fn prepare(storage: &Arc<dyn Storage>, root: &Path) -> std::path::PathBuf {
    let path = root.join("store");
    let store = open(storage, &path).unwrap();
    fill(&topic(&store, "orders"), 0, 600);
    drop(store);
    path
}

/// Verify, and check that nothing changed.
fn look(storage: &Arc<dyn Storage>, path: &Path) -> Verification {
    let before = snapshot(storage, path);
    let found = verify(storage, path, None, &mut quietly).unwrap();
    let after = snapshot(storage, path);
    let changed: Vec<_> =
        before.iter().filter(|file| !after.contains(file)).map(|file| &file.0).collect();
    assert!(before == after, "verification changed the store: {changed:?}");
    found
}

fn damage(found: &Verification) -> Vec<&Finding> {
    found.all_findings().filter(|finding| finding.severity == Severity::Damage).collect()
}

/// Only its name shows that the topic was being deleted, and the next deletion of a topic of that
/// name takes the name.
#[test]
fn a_deletion_that_died_is_finished_by_the_next_one_of_the_same_name() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        fill(&topic(&store, "orders"), 0, 10);
        let settings = path.join("topics/orders/topic.json");
        let away = path.join("topics/orders/topic.json.deleted");
        storage.rename_over(&settings, &away).unwrap();
        fill(&topic(&store, "orders"), 0, 10);
        store.delete_topic("orders").unwrap();
        let found: Vec<_> = look(storage, &path).all_findings().cloned().collect();
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(storage.list(&path.join("logs")).unwrap().len(), 0);
    });
}

#[test]
fn a_sound_store_is_counted_and_nothing_is_found() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let found = look(storage, &path);
        assert!(found.worst().is_none(), "{found:?}");
        let log = &found.logs[0];
        assert_eq!(log.records, 600);
        assert!(log.segments > 4 && log.blocks > 600 && log.bytes > 600 * 500);
        let topic = &log.topics[0];
        assert_eq!((topic.first, topic.end, topic.durable), (0, 600, 600));
        assert_eq!(log.committed, log.durable);
    });
}

#[test]
fn a_store_in_use_verifies_while_others_append() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| fill(&orders, 600, 1500));
            while !writer.is_finished() {
                let found = store.verify(Some("orders"), &mut quietly).unwrap();
                assert!(found.is_sound(), "{:?}", found.all_findings().collect::<Vec<_>>());
            }
        });
        let found = store.verify(None, &mut quietly).unwrap();
        assert_eq!(found.logs[0].topics[0].end, 1500);
    });
}

#[test]
fn a_flipped_bit_in_a_body_is_found_with_the_offset_that_it_took() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let hurt = segment(storage, &path, "orders", 1);
        flip(storage, &hurt, 20_000);
        let found = look(storage, &path);
        let damage = damage(&found);
        assert_eq!(damage.len(), 1, "{found:?}");
        let finding = damage[0];
        assert_eq!(finding.path, hurt);
        assert!((20_000 - 560..=20_000).contains(&finding.position), "{finding:?}");
        assert_eq!(finding.topic.as_deref(), Some("orders"));
        let lost = finding.offsets.clone().unwrap();
        assert_eq!(lost.end - lost.start, 1, "{finding:?}");
        assert!(finding.len >= 500 && finding.remedy.contains("backup"), "{finding:?}");
        assert_eq!(found.logs[0].records, 599);
        assert_eq!(found.logs[0].topics[0].end, 600);
    });
}

#[test]
fn every_flipped_bit_of_a_segment_is_found_or_lies_where_nothing_is() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        for sequence in [0, 2] {
            let hurt = segment(storage, &path, "orders", sequence);
            // The file past the end block was never written.
            let content = 60_000;
            for position in (0..content).step_by(673) {
                flip(storage, &hurt, position);
                let found = verify(storage, &path, None, &mut quietly).unwrap();
                // Most of the header pages is reserved space, and header and marks are there twice.
                let in_pages = position < FIRST_BLOCK;
                let least = if in_pages { Severity::Rebuildable } else { Severity::Damage };
                let told = found.worst() >= Some(least);
                let is_room = in_pages && position % PAGE >= HEADER_LEN as u64;
                assert!(told || is_room, "byte {position} of {hurt:?}");
                flip(storage, &hurt, position);
            }
        }
        assert!(look(storage, &path).worst().is_none());
    });
}

#[test]
fn a_missing_segment_is_named_and_so_is_what_it_held() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let hurt = segment(storage, &path, "orders", 1);
        storage.unlink(&hurt).unwrap();
        let found = look(storage, &path);
        let damage = damage(&found);
        assert!(damage.iter().any(|finding| finding.path == hurt), "{damage:?}");
        let lost = damage.iter().find_map(|finding| finding.offsets.clone()).unwrap();
        assert!(lost.start > 0 && lost.end < 600, "{lost:?}");
        assert_eq!(found.logs[0].records, 600 - (lost.end - lost.start));
    });
}

#[test]
fn a_segment_without_its_header_is_checked_with_what_its_neighbours_know() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let hurt = segment(storage, &path, "orders", 2);
        let file = storage.open(&hurt, OpenMode::ReadWrite).unwrap();
        file.write_at(&[0; FIRST_BLOCK as usize], 0).unwrap();
        let found = look(storage, &path);
        let damage = damage(&found);
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!((&damage[0].path, damage[0].position), (&hurt, 0));
        assert_eq!(found.logs[0].records, 600, "all its blocks must be found");
    });
}

#[test]
fn indexes_are_held_against_the_blocks() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let dir = log_dir(storage, &path, "orders");
        storage.unlink(&dir.join(names::index(0))).unwrap();
        flip(storage, &dir.join(names::index(1)), 70);
        flip(storage, &dir.join(names::index(2)), 3);
        let swapped = [3, 4].map(|sequence| dir.join(names::index(sequence)));
        let aside = dir.join("aside");
        storage.rename_over(&swapped[0], &aside).unwrap();
        storage.rename_over(&swapped[1], &swapped[0]).unwrap();
        storage.rename_over(&aside, &swapped[1]).unwrap();
        let found = look(storage, &path);
        assert_eq!(found.worst(), Some(Severity::Rebuildable));
        for sequence in 0..5 {
            let path = dir.join(names::index(sequence));
            let told = found.all_findings().any(|finding| finding.path == path);
            assert!(told, "{path:?}");
        }
    });
}

#[test]
fn settings_that_cannot_be_read_hide_nothing_else() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        fill(&topic(&open(storage, &path).unwrap(), "paid"), 0, 5);
        flip(storage, &path.join("falaj.json"), 20);
        flip(storage, &path.join("topics/paid/topic.json"), 20);
        let found = look(storage, &path);
        let damage = damage(&found);
        assert_eq!(damage.len(), 2, "{damage:?}");
        assert!(damage.iter().any(|finding| finding.topic.as_deref() == Some("paid")));
        assert!(damage.iter().all(|finding| finding.remedy.contains("restore the file")));
        let records: u64 = found.logs.iter().map(|log| log.records).sum();
        assert_eq!(records, 605, "the log of an unreadable topic must be checked too");
    });
}

/// No record is lost with them, but they stop a process that meets them, and the error says to
/// verify.
#[test]
fn bad_shared_words_are_reported_and_gone_when_all_have_closed() {
    let storage: &Arc<dyn Storage> = &(Arc::new(MemoryStorage::new()) as _);
    let path = prepare(storage, Path::new("/"));
    let control = log_dir(storage, &path, "orders").join("control");
    let append = |store: &Store| topic(store, "orders").append_to(0, &NewRecord::new(b"x"), None);
    let hurts = [
        (&control, at::APPEND_LOCK, 2_u64),
        (&control, at::FLAGS, 1 << 9),
        (&control, at::FLAGS, flag::DELETED),
        (&path.join("wake"), 0, 0),
    ];
    for (file, position, word) in hurts {
        let store = open(storage, &path).unwrap();
        append(&store).unwrap();
        let hurt = storage.open(file, OpenMode::ReadWrite).unwrap();
        hurt.write_at(&word.to_le_bytes(), position).unwrap();
        // A writer that opens the log checks whether it was deleted, and clears that flag.
        let heals = (position, word) == (at::FLAGS, flag::DELETED);
        if *file == control && !heals {
            append(&store).unwrap_err();
        }
        let found = look(storage, &path);
        let told: Vec<_> = found.all_findings().collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((&told[0].path, told[0].position), (file, position), "{told:?}");
        assert_eq!(told[0].severity, Severity::Rebuildable);
        assert_eq!(told[0].remedy.contains("end all processes"), !heals, "{told:?}");
        if heals {
            append(&store).unwrap();
        }
        drop(store);
        append(&open(storage, &path).unwrap()).unwrap();
        assert!(look(storage, &path).worst().is_none(), "{position}");
    }
}

/// A backup of it fails, and a map of it raises a signal.
#[test]
fn unreadable_bytes_are_reported_with_a_way_to_read_the_rest() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let path = prepare(&memory, Path::new("/"));
    let faulty = FaultyStorage::new(Arc::clone(&memory));
    faulty.spoil(&segment(&memory, &path, "orders", 1), 20_000..20_512).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(faulty);
    let found = verify(&storage, &path, None, &mut quietly).unwrap();
    let damage = damage(&found);
    assert!(damage.len() == 1 && damage[0].remedy.contains("pread"), "{damage:?}");
    let options = StoreOptions { reading: Reading::Pread, ..StoreOptions::reading() };
    let store = Store::open_on(Arc::clone(&storage), &path, &options).unwrap();
    let failed = store.backup("/copy", &mut quietly).unwrap_err().to_string();
    assert!(failed.contains("`falaj verify` lists what cannot be read"), "{failed}");
    let orders = topic(&store, "orders");
    let (mut scan, mut read, mut lost) = (orders.scan_partition(0, 0, None).unwrap(), 0, 0..0);
    loop {
        match scan.next().transpose() {
            Ok(Some(_)) => read += 1,
            Ok(None) => break,
            Err(_) => lost = scan.skip_damage().unwrap().offsets,
        }
    }
    assert_eq!(damage[0].offsets, Some(lost.clone()));
    assert_eq!(read + lost.end - lost.start, 600);
}

#[test]
fn a_topic_whose_log_is_gone_is_reported_with_a_remedy() {
    let storage: &Arc<dyn Storage> = &(Arc::new(MemoryStorage::new()) as _);
    let path = prepare(storage, Path::new("/"));
    let dir = log_dir(storage, &path, "orders");
    storage.rename_new(&dir, Path::new("/away")).unwrap();
    let found = look(storage, &path);
    let remedy = &damage(&found)[0].remedy;
    assert!(remedy.contains("remove the directory `topics/orders`"), "{remedy}");
    storage.unlink(&path.join("topics/orders/topic.json")).unwrap();
    storage.remove_dir(&path.join("topics/orders")).unwrap();
    assert!(look(storage, &path).worst().is_none());
    fill(&topic(&open(storage, &path).unwrap(), "orders"), 0, 3);
}

#[test]
fn what_is_no_store_and_no_topic_is_an_error() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let error = verify(storage, root, None, &mut quietly).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
        let error = verify(storage, &root.join("nothing"), None, &mut quietly).unwrap_err();
        assert!(matches!(error, Error::StoreNotFound { .. }), "{error}");
        let error = verify(storage, &path, Some("other"), &mut quietly).unwrap_err();
        assert!(matches!(error, Error::UnknownTopic { .. }), "{error}");
    });
}

#[test]
fn verification_ends_when_its_progress_says_so() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let mut last = (0, 0);
        verify(storage, &path, None, &mut |done, total| {
            assert!(done >= last.0 && done <= total);
            last = (done, total);
            Ok(())
        })
        .unwrap();
        assert!(last.0 > 600 * 500);
        assert_eq!(last.0, last.1, "it ends with all of it done");
        let ended = verify(storage, &path, None, &mut |_, _| Err(Error::Interrupted));
        assert!(matches!(ended, Err(Error::Interrupted)));
    });
}

/// A store whose machine lost power: records from 20 on are not known to be durable.
fn unrecovered(hurt: u64) -> (Arc<dyn Storage>, std::path::PathBuf) {
    let machine = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let path = Path::new("/store").to_path_buf();
    let store = open(&storage, &path).unwrap();
    fill(&topic(&store, "orders"), 0, 20);
    drop(store);
    let store = open(&storage, &path).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 20, 30);
    let image: Arc<dyn Storage> = Arc::new(machine.survivor());
    let position = orders.get_in(0, hurt).unwrap().block().position();
    drop((orders, store));
    flip(&image, &segment(&image, &path, "orders", 0), position + 100);
    (image, path)
}

#[test]
fn the_end_of_a_log_is_told_as_recovery_will_leave_it() {
    for hurt in [20, 24, 28, 29] {
        let (image, path) = unrecovered(hurt);
        let found = look(&image, &path);
        let log = &found.logs[0];
        assert_eq!(found.worst(), Some(Severity::Unrecovered));
        let orders = &log.topics[0];
        let last = if hurt == 29 { 29 } else { 30 };
        assert_eq!((orders.end, orders.found, orders.durable), (hurt, last, 20), "{found:?}");
        let told = repair(Arc::clone(&image), &path, &StoreOptions::default(), true).unwrap();
        let cut = told.steps().find(|step| step.mend == RepairKind::Cut).unwrap();
        assert_eq!(log.recovered.unwrap().position(), cut.position);
        let cut_off: Vec<_> = found
            .all_findings()
            .filter(|f| f.offsets == Some(hurt..last) && f.position == cut.position)
            .collect();
        assert_eq!(cut_off.len(), usize::from(last > hurt), "{found:?}");
        let store = open(&image, &path).unwrap();
        assert_eq!(topic(&store, "orders").end(0).unwrap(), hurt, "recovery must do as reported");
        let found = store.verify(None, &mut quietly).unwrap();
        assert!(found.is_sound() && found.logs[0].recovered.is_none(), "{found:?}");
    }
}

#[test]
fn a_log_that_no_topic_names_is_damage_unless_nobody_ever_used_it() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let settings = path.join("topics/orders/topic.json");
        let hidden = root.join("hidden");
        storage.rename_new(&settings, &hidden).unwrap();
        let dir = log_dir(storage, &path, "orders");
        let found = look(storage, &path);
        let told = damage(&found);
        assert_eq!(told.len(), 1, "{found:?}");
        assert_eq!(told[0].path, dir);
        assert!(told[0].remedy.contains("topic.json"), "{told:?}");
        assert_eq!(found.logs[0].records, 600, "its records must be checked all the same");
        flip(storage, &segment(storage, &path, "orders", 1), 20_000);
        assert_eq!(damage(&look(storage, &path)).len(), 2, "corruption in it must be found");
        flip(storage, &segment(storage, &path, "orders", 1), 20_000);

        // A deletion that was cut short.
        storage.rename_new(&hidden, &settings.with_extension("json.deleted")).unwrap();
        let found = look(storage, &path);
        assert_eq!(found.worst(), Some(Severity::Note), "{found:?}");
        storage.rename_new(&settings.with_extension("json.deleted"), &settings).unwrap();
        assert!(look(storage, &path).worst().is_none());

        // A creation that was cut short: the log is whole, and its topic was never created.
        let store = open(storage, &path).unwrap();
        drop(store.open_topic("new", &Default::default()).unwrap());
        drop(store);
        storage.unlink(&path.join("topics/new/topic.json")).unwrap();
        storage.unlink(&path.join("settled")).unwrap();
        let found = look(storage, &path);
        assert_eq!(found.worst(), Some(Severity::Note), "{found:?}");
        let note = found.all_findings().next().unwrap();
        assert_eq!(note.path, log_dir(storage, &path, "new"));
        assert!(note.what.contains("cut short") && note.remedy.contains("removes it"), "{note:?}");
        drop(open(storage, &path).unwrap());
        assert!(look(storage, &path).worst().is_none(), "it must be swept, as reported");
    });
}
