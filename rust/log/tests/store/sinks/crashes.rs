//! A bulk load after deaths and power cuts at any event: all of it is there, or nothing.

use super::*;

/// The clock moves, as real ones do: after the crash it is later.
const LATER_US: i64 = 1_800_000_000_000_000;
/// As [`SIZES`], with as few records as possible.
const FEW: [u64; 2] = [12, 170];

/// A topic with some durable records, and a bulk load of so many that is staged and committed; an
/// append follows.
///
/// Returns when that began, and when the commit had returned.
fn committing(machine: &MemoryStorage, mode: WriteMode, records: u64) -> (usize, usize) {
    let store = open_in(machine, mode);
    let flights = topic(&store, 2);
    for number in 0..4 {
        flights.append_to(0, &NewRecord::new(&value(number)), None).unwrap();
    }
    flights.flush().unwrap();
    let began = machine.events();
    let job = BulkLoad::new(&flights, "j").unwrap();
    let parts = [stage(&job, "a", 0..records / 2), stage(&job, "b", records / 2..records)];
    job.commit(&parts, Some(("n", 1))).unwrap();
    let returned = machine.events();
    flights.append_to(0, &NewRecord::new(&value(9)), Some(SyncMode::None)).unwrap();
    std::mem::forget((job, flights, store));
    (began, returned)
}

/// Check that the load is there with its idempotency key, or not at all; run it again, and check
/// that it is there once.
fn look(image: &MemoryStorage, mode: WriteMode, records: u64, must: bool, story: &str) -> bool {
    let store = open_in(image, mode);
    let flights = topic(&store, 2);
    let token =
        last_idempotency_key(&flights, "n").unwrap_or_else(|error| panic!("{story}: {error}"));
    let found = |partition| held(&flights, partition);
    let of_job = |p: u64| (0..records).filter(move |n| n % 2 == p);
    let whole: Vec<_> = (0..4).chain(of_job(0)).collect();
    let (even, odd) = (found(0), found(1));
    if token.is_some() {
        assert!(even.starts_with(&whole), "{story}: key, but not all records");
        assert!(odd.iter().copied().eq(of_job(1)), "{story}: key, but not all records");
    } else {
        assert!(!must, "{story}: a finished commit is gone");
        assert_eq!((even, odd), (vec![0, 1, 2, 3], vec![]), "{story}: records without key");
    }
    let job = BulkLoad::new(&flights, "j").unwrap();
    let part = stage(&job, "a", 0..records);
    let done = job.commit(&[part], Some(("n", 1))).unwrap_or_else(|e| panic!("{story}: {e}"));
    assert_eq!(done.now, token.is_none(), "{story}");
    assert!(found(0).starts_with(&whole) && found(1).into_iter().eq(of_job(1)), "{story}");
    assert_eq!(staged(&flights), NOTHING, "{story}: staged parts are left");
    is_sound(&store);
    token.is_some()
}

#[test]
fn a_death_at_any_event_leaves_all_of_a_job_with_its_token_or_nothing() {
    for (mode, records) in MODES.into_iter().flat_map(|mode| FEW.map(|size| (mode, size))) {
        let machine = machine();
        let (began, returned) = committing(&machine, mode, records);
        let journal = machine.journal();
        let mut seen = [0, 0];
        for time in began..=journal.len() {
            let story = format!("{mode:?}, {records} records, death at {time}");
            let image = journal.killed_at(time);
            seen[usize::from(look(&image, mode, records, time >= returned, &story))] += 1;
        }
        assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
    }
}

#[test]
fn a_power_cut_at_any_event_leaves_all_of_a_job_with_its_token_or_nothing() {
    let mut seen = [0, 0];
    for (mode, records) in MODES.into_iter().flat_map(|mode| FEW.map(|size| (mode, size))) {
        let machine = machine();
        let (began, returned) = committing(&machine, mode, records);
        for crash in machine.journal().crashes_from(began).step_by(every(29)) {
            crash.explore(2, 7, |selection, image| {
                image.set_now_us(LATER_US);
                let story = crash.describe(selection);
                let must = crash.time() >= returned;
                let story =
                    format!("{mode:?}, {records} records, cut at {}: {story}", crash.time());
                seen[usize::from(look(&image, mode, records, must, &story))] += 1;
            });
        }
    }
    assert!(seen[0] > 50 && seen[1] > 5, "{seen:?}");
}

#[test]
fn parts_that_were_finished_survive_a_power_cut_and_can_be_committed_after_it() {
    let machine = machine();
    let flights = topic(&open(&machine), 2);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let parts = [stage(&job, "a", 0..200), stage(&job, "b", 200..400)];
    let crash = machine.journal().crash_at_end();
    for selection in [crash.nothing(), crash.everything()] {
        let flights = topic(&open(&crash.image(&selection)), 2);
        let done = BulkLoad::new(&flights, "j").unwrap().commit(&parts, Some(("n", 1))).unwrap();
        assert_eq!((done.now, done.records), (true, 400));
    }
}

#[test]
fn a_process_that_dies_in_a_commit_beside_others_leaves_a_log_that_they_go_on_with() {
    for (mode, records) in MODES.into_iter().flat_map(|mode| FEW.map(|size| (mode, size))) {
        let calls = die_beside(mode, records, u64::MAX).0;
        let mut seen = [0, 0];
        for nth in 1..=calls {
            let (_, committed) = die_beside(mode, records, nth);
            seen[usize::from(committed)] += 1;
        }
        assert!(seen[0] > 5 && seen[1] > 1, "{mode:?}, {records}: {seen:?}");
    }
}

/// A process commits a load beside another process, and dies at its nth event.
///
/// Returns how many events there were, and whether the load is there.
fn die_beside(mode: WriteMode, records: u64, nth: u64) -> (u64, bool) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let machine = machine();
    let flights = topic(&open_in(&machine, mode), 1);
    flights.append_to(0, &NewRecord::new(&value(0)), None).unwrap();
    let process = machine.process();
    let store = open_in(&process, mode);
    let theirs = topic(&store, 1);
    let job = BulkLoad::new(&theirs, "j").unwrap();
    let part = stage(&job, "0", 0..records);
    let (number, victim) = (process.process_number(), process.clone());
    let events = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&events);
    machine.watch(move |who| {
        if who == number && counted.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            victim.kill();
        }
    });
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        job.commit(&[&part], Some(("n", 1))).is_ok()
    }));
    let events = events.load(Ordering::SeqCst);
    std::mem::forget((job, theirs, store));
    // A reader sees the dead one's committed records before any repair; they stay.
    let reading = Arc::new(machine.process()) as Arc<dyn Storage>;
    let reader = Store::open_on(reading, ROOT, &StoreOptions::reading()).unwrap();
    let read = held(&Topic::open(&reader, "flights", &TopicOptions::default()).unwrap(), 0);
    let committed = last_idempotency_key(&flights, "n").unwrap().is_some();
    assert_eq!(read.len() > 1, committed, "{mode:?}, {records} records, event {nth}");
    if matches!(done, Ok(true)) {
        assert!(committed, "event {nth}");
    }
    let job = BulkLoad::new(&flights, "j").unwrap();
    let again = job.commit(&[&part], Some(("n", 1)));
    let mut expected = vec![0];
    expected.extend(0..records);
    if committed {
        assert!(!again.unwrap().now, "event {nth}");
    } else {
        assert!(again.unwrap().now, "event {nth}");
    }
    flights.append_to(0, &NewRecord::new(&value(7)), None).unwrap();
    expected.push(7);
    assert_eq!(held(&flights, 0), expected, "{mode:?}, {records} records, event {nth}");
    is_sound(flights.store());
    (events, committed)
}
