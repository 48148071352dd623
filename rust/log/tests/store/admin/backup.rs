//! Copies of a store while processes write to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::error::Error;
use falaj::internals::format::control::at;
use falaj::internals::queue::{LeasedJob, QueueFile, QueueOptions};
use falaj::internals::storage::{MapAccess, OpenMode, Storage};
use falaj::internals::store::{Store, StoreOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic, Transaction};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use super::cuts::{SMALL, compact, compacted, keyed};
use crate::stores::{
    assert_holds, fill, log_dir, on_both, open, open_to_read, quietly, segment, snapshot, topic,
};

#[test]
fn a_copy_holds_what_was_committed_verifies_and_goes_on() {
    on_both(|storage, root| {
        let (path, copy) = (root.join("store"), root.join("copy"));
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        fill(&orders, 0, 400);
        fill(&topic(&store, "paid"), 0, 3);
        let mut told = (0, 0);
        let report = store
            .backup(&copy, &mut |done, total| {
                told = (done, total);
                Ok(())
            })
            .unwrap();
        assert_eq!((report.topics, report.logs), (2, 2));
        assert!(report.segments > 3 && report.bytes > 400 * 500, "{report:?}");
        assert_eq!(told, (report.bytes, report.bytes));
        fill(&orders, 400, 500);

        let reader = open_to_read(storage, &copy).unwrap();
        let copied = Topic::open(&reader, "orders", &Default::default()).unwrap();
        assert_holds(&copied, 400);
        assert_eq!(copied.durable(0).unwrap(), 400, "a copy must be durable");
        let found = reader.verify(None, &mut quietly).unwrap();
        assert!(found.is_sound(), "{found:?}");
        let writer = open(storage, &copy).unwrap();
        let again = topic(&writer, "orders");
        fill(&again, 400, 600);
        assert_holds(&again, 600);
        assert_holds(&orders, 500);
        let ours = store.membership().unwrap().incarnation();
        assert_ne!(writer.membership().unwrap().incarnation(), ours);
        assert!(writer.verify(None, &mut quietly).unwrap().is_sound());
        assert_eq!(writer.settings(), store.settings());
    });
}

#[test]
fn a_copy_knows_a_queues_finished_jobs_and_delivers_the_others() {
    on_both(|storage, root| {
        let (path, copy) = (root.join("store"), root.join("copy"));
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        fill(&orders, 0, 150);
        // The ring of its queue has 64 slots. The jobs that are open when it is copied lie across
        // its end.
        let small = QueueOptions { capacity: 64, ..QueueOptions::default() };
        let queue = QueueFile::open(&orders, "jobs", small).unwrap();
        let minute = Duration::from_secs(60);
        let take = |queue: &QueueFile, orders: &Topic, n| -> Vec<_> {
            queue.take(orders, n, minute).unwrap().iter().map(LeasedJob::to_ack).collect()
        };
        for _ in 0..2 {
            queue.ack(&orders, &take(&queue, &orders, 50)).unwrap();
        }
        let held = take(&queue, &orders, 40);
        queue.ack(&orders, &held[10..20]).unwrap();
        queue.ack(&orders, &held[35..]).unwrap();
        orders.flush().unwrap();
        store.backup(&copy, &mut |_, _| Ok(())).unwrap();

        let writer = open(storage, &copy).unwrap();
        let copied = topic(&writer, "orders");
        let again = QueueFile::open(&copied, "jobs", QueueOptions::default()).unwrap();
        let jobs = again.take(&copied, 100, minute).unwrap();
        let found: Vec<_> = jobs.iter().map(|job| (job.lease.offset, job.lease.attempt)).collect();
        // Work began on none of them, so the earlier leases do not count as attempts.
        let expected: Vec<_> =
            (100..110).chain(120..135).chain(140..150).map(|offset| (offset, 1)).collect();
        assert_eq!(found, expected);
        assert!(take(&queue, &orders, 100).len() == 10, "the store's own leases must hold");
    });
}

#[test]
fn a_backup_beside_busy_writers_is_a_prefix() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = 0;
                while !stop.load(Ordering::Relaxed) && next < 2000 {
                    fill(&orders, next, next + 10);
                    next += 10;
                }
            });
            for i in 0..8 {
                let copy = root.join(format!("copy-{i}"));
                let least = orders.end(0).unwrap();
                store.backup(&copy, &mut quietly).unwrap();
                let reader = open_to_read(storage, &copy).unwrap();
                assert!(reader.verify(None, &mut quietly).unwrap().is_sound());
                let copied = Topic::open(&reader, "orders", &Default::default()).unwrap();
                let end = copied.end(0).unwrap();
                assert!(end >= least, "{end} of {least}");
                assert_holds(&copied, end);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

/// The moment between an append's commit word and the tail, or the death of its writer then.
#[test]
fn what_readers_have_seen_behind_the_tail_is_copied() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders");
        fill(&orders, 0, 5);
        let before = orders.log().committed().unwrap();
        fill(&orders, 5, 6);
        let control = log_dir(storage, &path, "orders").join("control");
        let page = storage.open(&control, OpenMode::ReadWrite).unwrap();
        let page = page.map(4096, MapAccess::Write).unwrap();
        let tail = page.load(at::TAIL);
        page.store(at::TAIL, before.0).unwrap();
        let reader = open_to_read(storage, &path).unwrap();
        assert_eq!(Topic::open(&reader, "orders", &Default::default()).unwrap().end(0).unwrap(), 6);
        reader.backup(root.join("copy"), &mut quietly).unwrap();
        page.store(at::TAIL, tail).unwrap();
        assert_holds(&topic(&open(storage, &root.join("copy")).unwrap(), "orders"), 6);
    });
}

#[test]
fn a_reader_backs_up_as_well_and_changes_nothing() {
    on_both(|storage, root| {
        let path = root.join("store");
        let writer = open(storage, &path).unwrap();
        fill(&topic(&writer, "orders"), 0, 200);
        drop(writer);
        let before = snapshot(storage, &path);
        let reader = open_to_read(storage, &path).unwrap();
        reader.backup(root.join("copy"), &mut quietly).unwrap();
        reader.backup(root.join("copy-2"), &mut quietly).unwrap();
        assert!(before == snapshot(storage, &path));
        // A copy of a copy, without a control page.
        let copy = open_to_read(storage, &root.join("copy")).unwrap();
        copy.backup(root.join("copy-3"), &mut quietly).unwrap();
        let third = open_to_read(storage, &root.join("copy-3")).unwrap();
        assert_holds(&Topic::open(&third, "orders", &Default::default()).unwrap(), 200);
    });
}

#[test]
fn a_destination_that_is_taken_or_nested_is_refused() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        topic(&store, "orders");
        let taken = root.join("taken");
        storage.create_dir(&taken, 0o700).unwrap();
        storage.create_dir(&taken.join("x"), 0o700).unwrap();
        let before = snapshot(storage, root);
        for bad in [&path, &taken, &path.join("copy"), &path.join("logs").join("copy")] {
            let error = store.backup(bad, &mut quietly).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(&*bad.to_string_lossy()), "{error}");
        }
        assert!(before == snapshot(storage, root), "nothing may be left");
        let empty = root.join("empty");
        storage.create_dir(&empty, 0o700).unwrap();
        store.backup(&empty, &mut quietly).unwrap();
        assert!(open_to_read(storage, &empty).is_ok());
    });
}

#[test]
fn a_link_into_the_store_is_no_way_around_nesting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Store::open_with(&path, &StoreOptions::default()).unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(path.join("logs"), &link).unwrap();
    let error = store.backup(link.join("copy"), &mut quietly).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    // The other way round is allowed: a path through the store that leads out of it.
    store.backup(path.join("../beside"), &mut quietly).unwrap();
    assert!(directory.path().join("beside/falaj.json").exists());
}

#[test]
fn a_topic_that_is_deleted_while_it_is_copied_is_left_out() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        fill(&topic(&store, "a"), 0, 300);
        fill(&topic(&store, "b"), 0, 300);
        let mut deleted = false;
        let mut deleting = |_: u64, _: u64| {
            if !std::mem::replace(&mut deleted, true) {
                store.delete_topic("b").unwrap();
            }
            Ok(())
        };
        let report = store.backup(root.join("copy"), &mut deleting).unwrap();
        assert_eq!((report.topics, report.logs), (1, 1));
        let copy = open(storage, &root.join("copy")).unwrap();
        assert_eq!(copy.topics().unwrap().len(), 1);
        assert_holds(&topic(&copy, "a"), 300);
        assert!(copy.verify(None, &mut quietly).unwrap().is_sound());
    });
}

/// A recovery moved a segment away that is being copied: it is missing, and missing again at the
/// second look.
#[test]
fn a_backup_starts_over_when_a_segment_disappears_meanwhile() {
    let machine = MemoryStorage::new();
    let memory: Arc<dyn Storage> = Arc::new(machine.clone());
    fill(&topic(&open(&memory, "/store".as_ref()).unwrap(), "a"), 0, 300);
    for times in [1, 4, 5] {
        let faulty = FaultyStorage::over_memory(machine.restart());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let reader = open_to_read(&storage, "/store".as_ref()).unwrap();
        let (mut whole, mut gone) = (0, 0);
        let report = reader.backup("/copy", &mut |done, _| {
            // The next segment is opened after the first.
            whole = whole.max(done);
            if done == whole && done > 60_000 && gone < times {
                (gone, whole) = (gone + 1, 0);
                for call in [Call::Open, Call::Stat] {
                    let next = faulty.count(call) + 1;
                    faulty.plan(Fault::at(next, FailureKind::Errno(libc::ENOENT)).only(call));
                }
            }
            Ok(())
        });
        assert_eq!((gone, faulty.failed()), (times, 2 * times), "{report:?}");
        if times == 5 {
            assert!(report.unwrap_err().to_string().contains("the segment is missing"));
            continue;
        }
        assert!(report.unwrap().segments > 2);
        assert_holds(&topic(&open(&storage, "/copy".as_ref()).unwrap(), "a"), 300);
    }
}

#[test]
fn a_store_of_which_a_segment_is_missing_is_not_copied_without_it() {
    on_both(|storage, root| {
        let path = root.join("store");
        fill(&topic(&open(storage, &path).unwrap(), "a"), 0, 500);
        for sequence in [0, 2] {
            let lost = segment(storage, &path, "a", sequence);
            storage.rename_over(&lost, &root.join("away")).unwrap();
            for store in [open_to_read(storage, &path), open(storage, &path)] {
                let error = store.unwrap().backup(root.join("copy"), &mut quietly).unwrap_err();
                let lost = lost.display().to_string();
                assert!(error.to_string().contains(&lost), "{error}");
                assert!(error.to_string().contains("the segment is missing"), "{error}");
            }
            storage.rename_over(&root.join("away"), &lost).unwrap();
        }
    });
}

#[test]
fn a_backup_that_is_stopped_leaves_nothing() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        fill(&topic(&store, "orders"), 0, 300);
        let before = storage.list(root).unwrap();
        let copy = root.join("copy");
        let error = store.backup(&copy, &mut |done, _| match done {
            0..50_000 => Ok(()),
            _ => Err(Error::Interrupted),
        });
        assert!(matches!(error, Err(Error::Interrupted)));
        assert_eq!(storage.list(root).unwrap(), before);
    });
}

#[test]
fn a_backup_that_fails_at_any_call_leaves_no_half_copy_under_its_name() {
    let machine = MemoryStorage::new();
    let root = std::path::Path::new("/");
    let plain: Arc<dyn Storage> = Arc::new(machine.clone());
    let store = open(&plain, &root.join("store")).unwrap();
    fill(&topic(&store, "orders"), 0, 150);
    drop(store);
    let run = |faulty: &FaultyStorage, name: &str| {
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        open_to_read(&storage, &root.join("store"))?.backup(root.join(name), &mut quietly)
    };
    let whole = FaultyStorage::over_memory(machine.restart());
    run(&whole, "copy").unwrap();
    for (how, errno) in [
        (FailureKind::Errno(libc::EIO), libc::EIO),
        (FailureKind::HalfWritten(libc::ENOSPC), libc::ENOSPC),
    ] {
        for k in 1..=whole.total() {
            let image = machine.restart();
            let faulty = FaultyStorage::over_memory(image.clone());
            faulty.plan(Fault::at(k, how));
            let outcome = run(&faulty, "copy");
            let image: Arc<dyn Storage> = Arc::new(image);
            let there = image.stat(&root.join("copy")).is_ok();
            if let Err(error) = &outcome {
                assert!(error.to_string().contains('/'), "the error has no path: {error}");
            }
            if there {
                let copy = open_to_read(&image, &root.join("copy")).unwrap();
                let copied = Topic::open(&copy, "orders", &Default::default()).unwrap();
                assert_holds(&copied, 150);
            } else {
                assert!(outcome.is_err(), "error {errno} at call {k}");
            }
        }
    }
}

#[test]
fn a_backup_cut_short_by_a_power_cut_is_whole_or_not_there() {
    let machine = MemoryStorage::new();
    let root = std::path::Path::new("/");
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let store = open(&storage, &root.join("store")).unwrap();
    fill(&topic(&store, "orders"), 0, 150);
    let began = machine.events();
    store.backup(root.join("copy"), &mut quietly).unwrap();
    let returned = machine.events();
    let mut images = 0;
    for crash in machine.journal().crashes().filter(|crash| crash.time() >= began) {
        images += crash
            .explore(8, 5, |_, image| {
                let image: Arc<dyn Storage> = Arc::new(image);
                let there = image.stat(&root.join("copy")).is_ok();
                assert!(there || crash.time() < returned);
                if there {
                    let copy = open(&image, &root.join("copy")).unwrap();
                    assert_holds(&topic(&copy, "orders"), 150);
                }
            })
            .images;
    }
    assert!(images > 100, "{images}");
}

/// At whatever moment it is killed, the kernel releases the lock of the builder.
#[test]
fn what_a_killed_backup_leaves_the_next_one_removes() {
    let machine = MemoryStorage::new();
    let root = std::path::Path::new("/");
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let store = open(&storage, &root.join("store")).unwrap();
    fill(&topic(&store, "orders"), 0, 20);
    drop(store);
    let store = open_to_read(&storage, &root.join("store")).unwrap();
    let began = machine.events();
    store.backup(root.join("copy"), &mut quietly).unwrap();
    let journal = machine.journal();
    let mut left = 0;
    for time in began..journal.len() {
        let image: Arc<dyn Storage> = Arc::new(journal.killed_at(time));
        left += image.list(root).unwrap().iter().filter(|name| name.ends_with(".tmp")).count();
        let whole = image.stat(&root.join("copy")).is_ok();
        let reader = open_to_read(&image, &root.join("store")).unwrap();
        assert_eq!(reader.backup(root.join("copy"), &mut quietly).is_err(), whole, "event {time}");
        assert_eq!(image.list(root).unwrap(), ["copy", "store"], "event {time}");
    }
    assert!(left > 20, "{left}");
}

#[test]
fn what_somebody_builds_or_owns_is_not_swept() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        fill(&topic(&store, "orders"), 0, 20);
        let mine = root.join("copy.0123abcd.tmp");
        storage.create_dir(&mine, 0o700).unwrap();
        storage.create_dir(&mine.join("mine"), 0o700).unwrap();
        let mut inner = None;
        let outer = store.backup(root.join("copy"), &mut |_, _| {
            // In the middle of it another backup starts, and finishes first.
            inner.get_or_insert_with(|| store.backup(root.join("copy"), &mut quietly).unwrap());
            let names = storage.list(root).unwrap();
            let building =
                names.iter().find(|name| name.ends_with(".tmp") && !mine.ends_with(name));
            let building = root.join(building.expect("the outer one's must still be there"));
            assert!(storage.stat(&building.join("logs")).is_ok());
            Ok(())
        });
        assert!(matches!(outer, Err(Error::SystemCallFailed { .. })), "{outer:?}");
        assert!(inner.is_some() && open_to_read(storage, &root.join("copy")).is_ok());
        assert_eq!(storage.list(root).unwrap(), ["copy", "copy.0123abcd.tmp", "store"]);
    });
}

/// A step of a pipeline: one record forward, with the cursor in the log of the results.
pub(super) fn step(consumer: &mut GroupMember, results: &Topic) {
    let mut part = consumer.parts().unwrap()[0];
    part.next += 1;
    consumer.handed_out(&part);
    let mut tx = Transaction::new(results.store()).with_sync(SyncMode::None);
    tx.append(results, NewRecord::new(b"result")).unwrap();
    let moves = consumer.commit_in(&mut tx).unwrap();
    consumer.moved(&moves, tx.commit().unwrap().end());
}

/// Its sequence and salt stay, and a block of it lies across the end of the copy.
#[test]
fn a_segment_that_is_compacted_before_it_is_copied_is_looked_at_again() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        fill(&topic(&store, "orders"), 0, 20);
        let prices = compacted(&store, "prices", SMALL);
        keyed(&prices, 0, 80, 7);
        let (copy, mut is_done) = (root.join("copy"), false);
        let between = &mut |_, _| {
            if !is_done {
                is_done = true;
                keyed(&prices, 80, 100, 7);
                assert!(compact(&prices) > 0);
            }
            Ok(())
        };
        store.backup(&copy, between).unwrap();
        let reader = open_to_read(storage, &copy).unwrap();
        let found = reader.verify(None, &mut quietly).unwrap();
        assert!(found.is_sound(), "{found:?}");
        let end = compacted(&open(storage, &copy).unwrap(), "prices", SMALL).end(0).unwrap();
        assert!((80..=100).contains(&end), "{end}");
    });
}

/// Two logs, each with the cursor of the pipeline that reads the other.
///
/// Both grow at each call that the backup makes.
#[test]
fn logs_that_keep_cursors_in_each_other_are_copied_up_to_ends_that_agree() {
    let machine = MemoryStorage::new();
    let (of_backup, of_work) = (machine.process(), machine.process());
    let open_at = |process: &MemoryStorage, path: &str| {
        let storage: Arc<dyn Storage> = Arc::new(process.clone());
        open(&storage, path.as_ref()).unwrap()
    };
    let (store, working) = (open_at(&of_backup, "/store"), open_at(&of_work, "/store"));
    let [a, b] = ["a", "b"].map(|name| topic(&working, name).with_sync(SyncMode::None));
    a.append_to(0, &NewRecord::new(b"first"), None).unwrap();
    let there = |name: &str, from: &Topic, to: &Topic, store: &Store| {
        GroupMember::open_in(store, name, std::slice::from_ref(from), Start::Earliest, to).unwrap()
    };
    let mut both = (there("there", &a, &b, &working), there("back", &b, &a, &working));
    let begun = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(Mutex::new(0u64));
    let mut round = move || {
        step(&mut both.0, &b);
        step(&mut both.1, &a);
    };
    (0..3).for_each(|_| round());
    let (round, is_begun, counted) = (Mutex::new(round), Arc::clone(&begun), Arc::clone(&turns));
    let backup_thread = std::thread::current().id();
    machine.watch(move |_| {
        let is_backup = std::thread::current().id() == backup_thread;
        // Not at the calls that the pipeline itself makes.
        let Ok(mut round) = round.try_lock() else { return };
        if is_backup && is_begun.load(Ordering::SeqCst) {
            round();
            *counted.lock().unwrap() += 1;
        }
    });
    begun.store(true, Ordering::SeqCst);
    let copied = store.backup("/copy", &mut |_, _| Ok(()));
    begun.store(false, Ordering::SeqCst);
    copied.unwrap();
    assert!(*turns.lock().unwrap() > 20, "the logs did not grow meanwhile");
    let copy = open_at(&machine.process(), "/copy");
    let [a, b] = ["a", "b"].map(|name| topic(&copy, name));
    for (name, from, to) in [("there", &a, &b), ("back", &b, &a)] {
        let consumer = there(name, from, to, &copy);
        let next = consumer.parts().unwrap()[0].next;
        assert!(next >= 3 && next <= from.end(0).unwrap(), "{name} at {next}");
        // Each result is there with its cursor, and no others.
        let results = to.end(0).unwrap() - u64::from(name == "back");
        assert_eq!(results, next, "{name}");
    }
}
