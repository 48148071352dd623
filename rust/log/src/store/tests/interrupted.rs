//! Deleting, sweeping, and creation that was interrupted anywhere.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::twin::memory::every;

#[test]
fn deleting_a_topic_removes_its_files_and_no_others() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let (gone, kept) = (topic(&store, "gone").unwrap(), topic(&store, "kept").unwrap());
    let log = store.log_dir(&gone).unwrap();
    for ours in ["control", "next.3.tmp", "quarantine/00000000000000000004.log.1"] {
        machine.open(&log.join(ours), OpenMode::CreateNew(0o600)).unwrap();
    }
    store.delete_topic("gone").unwrap();
    assert!(matches!(store.delete_topic("gone"), Err(Error::UnknownTopic { .. })));
    assert!(matches!(store.topic_settings("gone"), Err(Error::UnknownTopic { .. })));
    assert_eq!(store.topic_settings("kept").unwrap(), kept);
    assert_tidy(&machine);
    assert_ne!(topic(&store, "gone").unwrap().generation, gone.generation);
}

#[test]
fn sweeping_takes_leftovers_and_nothing_that_is_strange_or_may_be_needed() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let kept = topic(&store, "kept").unwrap();
    let orphan = topic(&store, "orphan").unwrap();
    let layout = store.layout().clone();
    let path = layout.topic_settings("orphan").unwrap();
    machine.rename_over(&path, &deleted(&path)).unwrap();
    let file = |path: &Path| drop(machine.open(path, OpenMode::CreateNew(0o600)).unwrap());
    let strange = [
        layout.logs().join("notes"),
        layout.logs().join("x@123.tmp"),
        layout.log(&kept).unwrap().join("notes"),
        layout.topics().join("a b"),
        layout.root().join("README"),
    ];
    strange.iter().for_each(|path| file(path));
    let unfinished = temporary(&layout.logs().join(names::log_dir("x", &[1; 16])));
    machine.create_dir(&unfinished, 0o700).unwrap();
    file(&unfinished.join(names::segment(0)));
    file(&temporary(&layout.settings()));
    machine.unlink(&layout.settled()).unwrap();
    file(&temporary(&layout.topic_settings("kept").unwrap()));
    drop(store);

    // While one topic cannot be read, no finished log is removed: it might be that one's.
    let kept_json = layout.topic_settings("kept").unwrap();
    let good = read(&machine, &kept_json);
    overwrite(&machine, &kept_json, b"");
    drop(open(&machine).unwrap());
    assert!(machine.stat(&layout.log(&orphan).unwrap()).is_ok());
    assert!(machine.stat(&unfinished).is_err());
    overwrite(&machine, &kept_json, &good);

    let store = open(&machine).unwrap();
    assert!(machine.stat(&layout.log(&orphan).unwrap()).is_err());
    assert!(machine.stat(&temporary(&layout.settings())).is_err());
    assert_eq!(list(&machine, "topics"), ["a b", "kept"]);
    assert_eq!(topic(&store, "kept").unwrap(), kept);
    for path in &strange {
        assert!(machine.stat(path).is_ok(), "{path:?}");
    }
}

/// Delete a topic. Meanwhile a call that looked the log's directory up before puts a segment there,
/// at the n-th step after the directory lost its name. False if there is no such step.
fn delete_while_a_segment_arrives_at(n: u32) -> bool {
    let machine = machine();
    let store = open(&machine.process()).unwrap();
    let log = store.log_dir(&topic(&store, "orders").unwrap()).unwrap();
    let arriving = temporary(&log).join(names::segment(1));
    let (late, has_come) = (machine.process(), Arc::new(AtomicBool::new(false)));
    let (writer, came, steps) = (late.clone(), has_come.clone(), AtomicU32::new(0));
    let is_in_it = AtomicBool::new(false);
    machine.watch(move |_| {
        if is_in_it.swap(true, Ordering::SeqCst) {
            return; // of the late one itself
        }
        let is_there = writer.stat(arriving.parent().unwrap()).is_ok();
        if is_there && steps.fetch_add(1, Ordering::SeqCst) == n {
            let file = writer.open(&arriving, OpenMode::CreateNew(0o600));
            came.store(file.is_ok(), Ordering::SeqCst);
        }
        is_in_it.store(false, Ordering::SeqCst);
    });
    store.delete_topic("orders").unwrap();
    assert_eq!(list(&late, "logs"), [""; 0], "step {n}: the deleted log still uses space");
    has_come.load(Ordering::SeqCst)
}

#[test]
fn what_a_call_in_flight_puts_into_a_deleted_log_goes_with_it() {
    let steps = (0..).take_while(|n| delete_while_a_segment_arrives_at(*n)).count();
    assert!(steps > 5, "{steps} steps only");
}

#[test]
fn nobody_sweeps_while_others_are_there() {
    let machine = machine();
    let _other = open(&machine.process()).unwrap();
    let store = open(&machine).unwrap();
    let unfinished = temporary(&store.layout().logs().join(names::log_dir("x", &[1; 16])));
    machine.create_dir(&unfinished, 0o700).unwrap();
    machine.unlink(&store.layout().settled()).unwrap();
    drop(store);
    let _store = open(&machine).unwrap();
    assert!(machine.stat(&unfinished).is_ok());
}

#[test]
fn who_opens_a_store_in_which_nothing_is_half_way_looks_at_no_topic() {
    let machine = machine();
    let store = open(&machine).unwrap();
    (0..20).for_each(|i| drop(topic(&store, &format!("t{i}")).unwrap()));
    store.delete_topic("t7").unwrap();
    drop(store);
    let calls = |topics: usize| {
        let faulty = FaultyStorage::over_memory(machine.clone());
        let storage = Arc::new(faulty.clone());
        let store = Store::open_on(storage, ROOT, &impatient()).unwrap();
        let opened = faulty.total();
        assert_eq!(store.topics().unwrap().len(), topics);
        assert!(faulty.total() > opened + topics as u64, "looking at topics is not counted");
        opened
    };
    let few = calls(19);
    let store = open(&machine).unwrap();
    (20..60).for_each(|i| drop(topic(&store, &format!("t{i}")).unwrap()));
    drop(store);
    assert_eq!(calls(59), few);
}

#[test]
fn who_creates_a_topic_looks_at_no_other_one() {
    let machine = machine();
    let calls = |name: &str| {
        let faulty = FaultyStorage::over_memory(machine.clone());
        let store = Store::open_on(Arc::new(faulty.clone()), ROOT, &impatient()).unwrap();
        let before = faulty.total();
        drop(topic(&store, name).unwrap());
        faulty.total() - before
    };
    let first = calls("first");
    let store = open(&machine).unwrap();
    (0..40).for_each(|i| drop(topic(&store, &format!("t{i}")).unwrap()));
    drop(store);
    assert_eq!(calls("later"), first);
}

#[test]
fn what_one_left_is_swept_although_another_changed_something_later() {
    let machine = machine();
    let _alive = open(&machine.process()).unwrap();
    let victim = machine.process();
    let store = open(&victim).unwrap();
    let unfinished = temporary(&store.layout().logs().join(names::log_dir("x", &[1; 16])));
    machine.unlink(&store.layout().settled()).unwrap();
    machine.create_dir(&unfinished, 0o700).unwrap();
    victim.kill();
    let other = open(&machine.process()).unwrap();
    topic(&other, "orders").unwrap();
    other.delete_topic("orders").unwrap();
    drop((_alive, other, store));
    assert!(machine.stat(&unfinished).is_ok(), "no process was alone");
    let _store = open(&machine).unwrap();
    assert!(machine.stat(&unfinished).is_err(), "it was forgotten");
    assert_tidy(&machine);
}

/// Do what users do first, and its reverse.
fn workload(storage: Arc<dyn Storage>) -> Result<()> {
    let store = Store::open_on(storage, ROOT, &impatient())?;
    topic(&store, "orders")?;
    topic(&store, "other")?;
    store.delete_topic("other")
}

/// Check that the next process finds a store that works, and tidies up.
fn assert_works(storage: &MemoryStorage, story: &str) {
    let store = open(storage).unwrap_or_else(|error| panic!("{story}: {error}"));
    let before = store.topics().unwrap();
    for (name, settings) in before {
        let settings = settings.unwrap_or_else(|error| panic!("{story}: {name}: {error}"));
        let segment = store.log_dir(&settings).unwrap().join(names::segment(0));
        assert!(storage.stat(&segment).is_ok(), "{story}: {name} has no log");
    }
    topic(&store, "orders").unwrap_or_else(|error| panic!("{story}: {error}"));
    assert_tidy(storage);
}

#[test]
fn creation_interrupted_by_an_error_at_any_call_is_gone_on_with() {
    let whole = FaultyStorage::over_memory(machine());
    workload(Arc::new(whole.clone())).unwrap();
    for (how, errno) in [
        (FailureKind::Errno(libc::EIO), libc::EIO),
        (FailureKind::HalfWritten(libc::ENOSPC), libc::ENOSPC),
    ] {
        for k in 1..=whole.total() {
            let machine = machine();
            let faulty = FaultyStorage::over_memory(machine.clone());
            faulty.plan(Fault::at(k, how));
            let story = format!("error {errno} at call {k}");
            match workload(Arc::new(faulty.clone())) {
                Ok(()) => {}
                Err(error) => assert!(error.to_string().contains('/'), "{story}, no path: {error}"),
            }
            assert_works(&machine, &story);
        }
    }
}

#[test]
fn a_topic_that_is_opened_after_its_creation_failed_outlasts_the_power() {
    let whole = FaultyStorage::over_memory(machine());
    workload(Arc::new(whole.clone())).unwrap();
    let (mut failed, mut there) = (0, 0);
    for k in 1..=whole.total() {
        for by_another in [false, true] {
            let machine = machine();
            let faulty = FaultyStorage::over_memory(machine.process());
            faulty.plan(Fault::at(k, FailureKind::Errno(libc::EIO)));
            let Ok(store) = Store::open_on(Arc::new(faulty), ROOT, &impatient()) else { continue };
            if topic(&store, "orders").is_ok() {
                continue;
            }
            failed += 1;
            there += usize::from(store.topic_settings("orders").is_ok());
            let other = if by_another { open(&machine.process()).unwrap() } else { store.clone() };
            let found = topic(&other, "orders").unwrap();
            let crash = machine.journal().crash_at_end();
            let nothing_arrived = vec![0; crash.choices().len()];
            let image = crash.image(&nothing_arrived);
            let after = open(&image).unwrap().topic_settings("orders");
            assert_eq!(after.unwrap(), found, "error at call {k}, opened by another: {by_another}");
        }
    }
    assert!(failed > 20 && there > 0, "{failed} failed, {there} were there afterwards");
}

#[test]
fn creation_interrupted_by_death_at_any_call_is_gone_on_with() {
    let whole = FaultyStorage::over_memory(machine());
    workload(Arc::new(whole.clone())).unwrap();
    for k in 1..=whole.total() {
        let machine = machine();
        let victim = machine.process();
        let faulty = FaultyStorage::over_memory(victim.clone());
        faulty.plan(Fault::at(k, FailureKind::Errno(libc::EIO)).forever());
        let _ = workload(Arc::new(faulty));
        victim.kill();
        assert_works(&machine, &format!("dead from call {k} on"));
    }
}

#[test]
fn creation_interrupted_by_a_power_cut_anywhere_leaves_whole_topics_only() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let orders = topic(&store, "orders").unwrap();
    let created = machine.events();
    topic(&store, "other").unwrap();
    store.delete_topic("other").unwrap();
    let deleted = machine.events();
    let journal = machine.journal();
    let mut images = 0;
    for crash in journal.crashes().step_by(every(4)) {
        images += crash
            .explore(64, 11, |selection, image| {
                let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
                assert_works(&image, &story);
                let store = open(&image).unwrap();
                let found = topic(&store, "orders").unwrap();
                // Acknowledged topics exist, and deleted ones do not.
                assert!(crash.time() < created || found == orders, "{story}");
                assert!(crash.time() < deleted || store.topics().unwrap().len() == 1, "{story}");
            })
            .images;
    }
    assert!(images > 500, "{images}");
}

#[test]
fn locks_of_a_store_are_gone_with_its_last_handle() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let member = store.membership().unwrap();
    let layout = store.layout().clone();
    let free = |path: &Path| {
        let file = machine.open(path, OpenMode::ReadWrite).unwrap();
        file.try_lock(LockKind::Exclusive).unwrap()
    };
    drop(store);
    assert!(!free(&layout.slot(0)) && !free(&layout.presence()));
    drop(member);
    assert!(free(&layout.slot(0)) && free(&layout.presence()) && free(&layout.claim()));
}
