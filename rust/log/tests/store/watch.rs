//! One thread that waits for many topics: no append is missed, and nothing is reported twice.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use falaj::{Store, SyncMode, Topic, Visibility, Watched};

const NONE: [usize; 0] = [];
const AT_ONCE: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(60);

/// Topics with a log of their own each, synced only by hand.
fn topics(store: &Store, names: &[&str]) -> Vec<Topic> {
    names.iter().map(|name| store.topic(name).unwrap().with_sync(SyncMode::None)).collect()
}

fn watched(topics: &[Topic]) -> Vec<Watched> {
    topics.iter().map(Topic::watched).collect()
}

#[test]
fn the_topics_that_got_records_are_reported_once_each() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let topics = topics(&store, &["a", "b", "c"]);
    let (watch, mut all) = (store.watch(), watched(&topics));
    assert_eq!(watch.wait(&mut all, AT_ONCE), NONE);
    topics[1].append(b"1").unwrap();
    topics[2].append(b"1").unwrap();
    topics[1].append(b"2").unwrap();
    assert_eq!(watch.wait(&mut all, LONG), [1, 2]);
    assert_eq!(watch.wait(&mut all, AT_ONCE), NONE);
    topics[0].append(b"1").unwrap();
    assert_eq!(watch.wait(&mut all, LONG), [0]);
}

#[test]
fn a_watch_of_what_is_durable_has_news_after_a_sync_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let topics = topics(&store, &["a"]);
    let durable = topics[0].with_visibility(Visibility::Durable);
    let (watch, mut all) = (store.watch(), vec![durable.watched()]);
    topics[0].append(b"1").unwrap();
    assert_eq!(watch.wait(&mut all, AT_ONCE), NONE);
    topics[0].flush().unwrap();
    assert_eq!(watch.wait(&mut all, LONG), [0]);
    assert_eq!(durable.end_offset().unwrap(), 1);
}

#[test]
fn a_topic_that_is_deleted_has_news_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let topics = topics(&store, &["a", "b"]);
    let (watch, mut all) = (store.watch(), watched(&topics));
    store.delete_topic("a").unwrap();
    assert_eq!(watch.wait(&mut all, LONG), [0]);
    assert_eq!(watch.wait(&mut all, AT_ONCE), NONE);
    topics[1].append(b"1").unwrap();
    assert_eq!(watch.wait(&mut all, LONG), [1]);
}

#[test]
fn waking_ends_a_wait_that_goes_on_and_else_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let topics = topics(&store, &["a"]);
    let (watch, mut all) = (store.watch(), watched(&topics));
    watch.wake();
    assert_eq!(watch.wait(&mut all, LONG), NONE);
    let waker = watch.clone();
    thread::scope(|scope| {
        scope.spawn(move || waker.wake());
        assert_eq!(watch.wait(&mut all, LONG), NONE);
    });
}

#[test]
fn no_append_is_missed_however_it_falls_together_with_the_wait() {
    const EACH: u64 = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let topics = topics(&store, &["a", "b"]);
    let (seen, next) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        let appended = &topics;
        scope.spawn(move || {
            // The next append comes when the last one was seen: each falls on a thread that falls asleep.
            for i in 0..EACH {
                appended[(i % 2) as usize].append(b"x").unwrap();
                next.recv().unwrap();
            }
        });
        let (watch, mut all) = (store.watch(), watched(&topics));
        let mut end = 0;
        while end < EACH {
            let now = topics[0].end_offset().unwrap() + topics[1].end_offset().unwrap();
            (end..now).for_each(|_| seen.send(()).unwrap());
            end = now;
            if end < EACH {
                // With an append missed, this would return an empty list after a minute.
                assert_ne!(watch.wait(&mut all, LONG), NONE);
            }
        }
    });
}

#[test]
fn a_store_that_is_read_only_reports_news_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let topics = topics(&store, &["a"]);
    let reader = Store::options().read_only(true).open(dir.path()).unwrap();
    let (watch, mut all) = (reader.watch(), vec![reader.topic("a").unwrap().watched()]);
    topics[0].append(b"1").unwrap();
    assert_eq!(watch.wait(&mut all, LONG), [0]);
}
