//! A tombstone stays long enough for a reader that starts at the beginning and is not too slow.

use std::time::Duration;

use super::*;

const DAY_US: i64 = 86_400_000_000;

fn filled(memory: &MemoryStorage, storage: &Arc<dyn Storage>) -> (Store, Topic, History) {
    memory.set_now_us(1_800_000_000_000_000);
    let store = open(storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    for i in 0..500 {
        put(&prices, &mut history, i % 10, Some(300));
    }
    // Keys 3 and 7 are deleted.
    put(&prices, &mut history, 3, None);
    put(&prices, &mut history, 7, None);
    for _ in 0..10 {
        put(&prices, &mut history, 0, Some(300));
    }
    seal(&prices);
    (store, prices, history)
}

fn at(memory: &MemoryStorage, days: f64) {
    memory.set_now_us(1_800_000_000_000_000 + (days * DAY_US as f64) as i64);
}

#[test]
fn a_tombstone_takes_what_it_hides_with_it_at_once_and_goes_a_day_later() {
    let (memory, storage) = machine();
    let (store, prices, history) = filled(&memory, &storage);
    let done = compact(&prices).unwrap();
    assert_eq!((done.removed, done.tombstones), (502, 0));
    let there: Vec<_> = last_of(&history, 512);
    assert_eq!(found(&prices, &history, "at once"), there);
    assert!(there.ends_with(&[500, 501, 511]));
    // The day counts from the removal of the last record that it hides.
    for days in [0.5, 0.99] {
        at(&memory, days);
        assert_eq!(compact(&prices).unwrap().removed, 0, "{days}");
    }
    at(&memory, 1.01);
    let done = compact(&prices).unwrap();
    assert_eq!((done.removed, done.tombstones), (2, 2));
    assert_eq!(
        found(&prices, &history, "later"),
        there.iter().copied().filter(|at| ![500, 501].contains(at)).collect::<Vec<_>>()
    );
    assert_eq!(prices.end(0).unwrap(), 512);
    assert!(matches!(prices.get_in(0, 501), Err(Error::RecordCompacted { .. })));
    is_sound(&store, "later");
}

#[test]
fn what_is_compacted_often_counts_its_days_all_the_same() {
    let (memory, storage) = machine();
    let (_store, prices, mut history) = filled(&memory, &storage);
    for hour in 0..30 {
        at(&memory, f64::from(hour) / 24.0);
        for i in 0..200 {
            put(&prices, &mut history, 20 + i % 5, Some(300));
        }
        seal(&prices);
        compact(&prices).unwrap();
        let there = found(&prices, &history, &format!("hour {hour}"));
        assert_eq!(there.contains(&500), hour < 24, "hour {hour}");
        assert!(segments(&storage).len() < 12, "hour {hour}: {:?}", segments(&storage));
    }
}

#[test]
fn a_tombstone_whose_key_comes_back_goes_as_any_other_record() {
    let (memory, storage) = machine();
    let (_store, prices, mut history) = filled(&memory, &storage);
    put(&prices, &mut history, 3, Some(100));
    seal(&prices);
    let done = compact(&prices).unwrap();
    assert_eq!(done.tombstones, 0);
    assert!(matches!(prices.get_in(0, 500), Err(Error::RecordCompacted { .. })));
    assert_eq!(found(&prices, &history, ""), last_of(&history, 513));
}

#[test]
fn with_a_tombstone_retention_of_zero_tombstones_go_at_once() {
    let (memory, storage) = machine();
    let (_store, prices, history) = filled(&memory, &storage);
    let how = CompactOptions::default().tombstones(Duration::ZERO);
    let done = prices.compact(&how, &mut quietly).unwrap();
    assert_eq!((done.removed, done.tombstones), (504, 2));
    let there: Vec<_> =
        last_of(&history, 512).into_iter().filter(|at| ![500, 501].contains(at)).collect();
    assert_eq!(found(&prices, &history, ""), there);
}

/// Fill a segment that would take more space without the values that key 3 replaced. It has many
/// small records. Nearly all stay, and each would have to store its offset.
fn fill_tightly(storage: &Arc<dyn Storage>, prices: &Topic, history: &mut History) {
    let mut number = 100;
    while segments(storage).len() == 1 {
        let made: Vec<_> = (0..600)
            .map(|i| {
                number += 1;
                Made { key: Some(if i == 300 { 3 } else { number }), len: Some(8) }
            })
            .collect();
        put_all(prices, history, &made);
    }
}

#[test]
fn a_tombstone_stays_as_long_as_what_it_hides_cannot_go() {
    let (memory, storage) = machine();
    memory.set_now_us(1_800_000_000_000_000);
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill_tightly(&storage, &prices, &mut history);
    put(&prices, &mut history, 3, None);
    let hidden = (0..).zip(&history).filter(|(_, made)| made.key == Some(3));
    let hidden: Vec<u64> = hidden.map(|(at, _)| at).collect();
    let tombstone = *hidden.last().unwrap();
    seal(&prices);
    let how = CompactOptions::default().tombstones(Duration::ZERO);
    let done = prices.compact(&how, &mut quietly).unwrap();
    assert_eq!(done.tombstones, 0, "{done:?}");
    assert!(prices.get_in(0, tombstone).is_ok(), "the record that it hides would come back");
    assert!(
        hidden.iter().any(|at| *at != tombstone && prices.get_in(0, *at).is_ok()),
        "no tombstone was kept"
    );
    let _ = found(&prices, &history, "");
}

#[test]
fn a_segment_that_cannot_shrink_keeps_no_later_one_from_it() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill_tightly(&storage, &prices, &mut history);
    seal(&prices);
    fill(&prices, &mut history, 400, 5);
    seal(&prices);
    let done = compact(&prices).unwrap();
    assert!(done.removed > 300, "{done:?}");
    let _ = found(&prices, &history, "");
}

#[test]
fn of_a_topic_that_rests_small_segments_become_one_and_tombstones_go() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    let sealing = CompactOptions::default().seal(true).tombstones(Duration::ZERO);
    for day in 0..30 {
        put(&prices, &mut history, day % 3, Some(20));
        if day == 17 {
            put(&prices, &mut history, 9, None);
        }
        prices.compact(&sealing, &mut quietly).unwrap();
        assert!(segments(&storage).len() <= 4, "{day}: {:?}", segments(&storage));
    }
    // The very last record is all that is left, and no deleted key.
    let left: Vec<_> = last_of(&history, history.len() as u64);
    let left: Vec<_> = left.into_iter().filter(|at| history[*at as usize].len.is_some()).collect();
    assert_eq!(found(&prices, &history, ""), left);
    is_sound(&store, "");
}
