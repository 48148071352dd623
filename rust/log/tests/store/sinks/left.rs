//! Leftovers of bulk loads that failed: they are removed, except those that a process may need.

use std::time::Duration;

use falaj::internals::sink::{STALE_AFTER, sweep};

use super::*;

const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;
const NOW_US: i64 = 1_767_225_600_000_000;

/// A load of another process, which staged a part of this many records and is writing another.
fn half_way(
    machine: &MemoryStorage,
    name: &str,
    token: Option<(&str, u64)>,
) -> falaj::internals::sink::StagedPart {
    let theirs = topic(&open(&machine.process()), 1);
    let job = BulkLoad::new(&theirs, name).unwrap();
    let mut whole = job.stage("whole", token).unwrap();
    let mut open = job.stage("open", token).unwrap();
    for number in 0..300 {
        whole.append_to(&NewRecord::new(&value(number)), None).unwrap();
        open.append_to(&NewRecord::new(&value(number)), None).unwrap();
    }
    whole.finish().unwrap();
    open
}

#[test]
fn staged_parts_untouched_for_a_day_are_removed_unless_they_are_being_written() {
    let machine = machine();
    let store = open(&machine);
    let flights = topic(&store, 1);
    let writing = half_way(&machine, "theirs", None);
    assert_eq!(staged(&flights).len(), 2);
    assert_eq!(sweep(&flights, STALE_AFTER).unwrap(), 0);
    machine.set_now_us(NOW_US + DAY_US - 1_000_000);
    store.maintain(false).unwrap();
    assert_eq!(staged(&flights).len(), 2, "not yet");
    machine.set_now_us(NOW_US + DAY_US + 1_000_000);
    store.maintain(true).unwrap();
    assert_eq!(staged(&flights).len(), 2, "told only");
    store.maintain(false).unwrap();
    let left = staged(&flights);
    assert!(left.len() == 1 && left[0].to_string_lossy().contains("/open."), "{left:?}");
    drop(writing);
    assert_eq!(staged(&flights).len(), 0, "a load that is given up must remove its parts");
}

#[test]
fn the_next_job_of_a_series_removes_what_is_left_of_earlier_ones_that_nobody_writes() {
    let machine = machine();
    let flights = topic(&open(&machine), 1);
    let earlier = half_way(&machine, "first", Some(("n", 1)));
    let later = half_way(&machine, "third", Some(("n", 3)));
    let others = half_way(&machine, "others", Some(("m", 1)));
    let job = BulkLoad::new(&flights, "second").unwrap();
    let part = stage(&job, "0", 0..10);
    job.commit(&[part], Some(("n", 2))).unwrap();
    let mut left: Vec<_> = staged(&flights)
        .iter()
        .map(|path| {
            let job = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            let part = path.file_name().unwrap().to_string_lossy();
            format!("{job} {}", part.split('.').next().unwrap())
        })
        .collect();
    left.sort();
    let expected =
        ["first@0 open", "others@0 open", "others@0 whole", "third@0 open", "third@0 whole"];
    assert_eq!(left, expected);
    drop((earlier, later, others));
}

#[test]
fn a_process_that_dies_leaves_nothing_that_is_held() {
    let machine = machine();
    let flights = topic(&open(&machine), 1);
    let process = machine.process();
    let theirs = topic(&open(&process), 1);
    let mut part = BulkLoad::new(&theirs, "j").unwrap().stage("0", None).unwrap();
    for number in 0..300 {
        part.append_to(&NewRecord::new(&value(number)), None).unwrap();
    }
    assert_eq!(sweep(&flights, Duration::ZERO).unwrap(), 0);
    process.kill();
    std::mem::forget((part, theirs));
    assert_eq!(sweep(&flights, Duration::ZERO).unwrap(), 1);
    assert_eq!(staged(&flights), NOTHING);
}

#[test]
fn foreign_files_among_staged_parts_stay_and_block_no_load() {
    let machine = machine();
    let store = open(&machine);
    let flights = topic(&store, 1);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let part = stage(&job, "0", 0..10);
    let dir = staged(&flights)[0].parent().unwrap().to_path_buf();
    let storage = store.storage();
    storage
        .open(&dir.join("notes.txt"), falaj::internals::storage::OpenMode::CreateNew(0o600))
        .unwrap();
    storage.create_dir(&dir.parent().unwrap().join("somebody's"), 0o700).unwrap();
    assert!(job.commit(&[part], None).unwrap().now);
    assert_eq!(sweep(&flights, Duration::ZERO).unwrap(), 0);
    assert_eq!(staged(&flights), [dir.join("notes.txt")]);
}
