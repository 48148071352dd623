//! Waiting for many logs at once, and background threads that wait for work.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::format::wake::at;
use falaj::internals::log::{Log, Visibility};
use falaj::internals::segment::{Reading, Segment};
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::store::{Store, StoreOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj::internals::wake::{KEEPERS, WATCHERS};

use crate::stores::{on_both, open, open_to_read, topic};

/// Longer than any wait here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn append(topic: &Topic, sync: SyncMode) {
    topic.append_to(0, &NewRecord::new(b"one"), Some(sync)).unwrap();
}

/// Return which of some logs has news; sleep until one has.
fn wait_for_any(store: &Store, logs: &[Arc<Log>], seen: &[Address]) -> usize {
    let (bell, began) = (store.bell(), Instant::now());
    for turn in 0.. {
        let ticket = bell.ticket();
        for (i, log) in logs.iter().enumerate() {
            if log.request_notification(Visibility::Visible, seen[i]).unwrap() {
                return i;
            }
        }
        assert!(began.elapsed() < SOON, "nothing comes");
        bell.sleep(ticket, turn);
    }
    unreachable!("the loop has no end")
}

#[test]
fn one_thread_hears_of_news_in_any_of_many_logs() {
    on_both(|storage, path| {
        let writing = open(storage, &path.join("store")).unwrap();
        let topics: Vec<_> = (0..20).map(|i| topic(&writing, &format!("t{i}"))).collect();
        let reading = open_to_read(storage, &path.join("store")).unwrap();
        let logs: Vec<_> = topics.iter().map(|topic| Arc::clone(topic.log())).collect();
        let again: Vec<_> = topics.iter().map(|t| t.reopen_to_read().unwrap()).collect();
        for i in [7, 0, 19, 7] {
            let seen: Vec<_> = logs.iter().map(|log| log.committed().unwrap()).collect();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| wait_for_any(&writing, &logs, &seen));
                // A waiter that may not leave its bit looks by itself.
                let reader = scope.spawn(|| wait_for_any(&reading, &again, &seen));
                append(&topics[i], SyncMode::None);
                assert_eq!((writer.join().unwrap(), reader.join().unwrap()), (i, i));
            });
        }
    });
}

fn rung(store: &Store) -> u64 {
    store.wake_page().unwrap().load(at::COUNTER)
}

#[test]
fn the_bell_is_rung_once_for_each_asking() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let path = root.path().join("store");
    let store = open(&storage, &path).unwrap();
    let asked = topic(&store, "asked");
    for _ in 0..3 {
        append(&asked, SyncMode::None);
        let seen = asked.log().committed().unwrap();
        assert!(!asked.log().request_notification(Visibility::Visible, seen).unwrap());
        // Asking again before the answer changes nothing.
        assert!(!asked.log().request_notification(Visibility::Visible, seen).unwrap());
        assert_eq!(waiting(&asked) & WATCHERS, WATCHERS);
        let before = rung(&store);
        append(&asked, SyncMode::None);
        assert!(rung(&store) > before);
        assert_eq!(waiting(&asked) & WATCHERS, 0);
        assert!(asked.log().request_notification(Visibility::Visible, seen).unwrap());
    }
}

/// The kinds of sleepers on a log, by the word in its control page.
fn waiting(topic: &Topic) -> u64 {
    let page = std::fs::read(topic.log().dir().join("control")).unwrap();
    let word = falaj::internals::format::control::at::WAITING as usize;
    u64::from_le_bytes(page[word..word + 8].try_into().unwrap())
}

fn wait_until(done: impl Fn() -> bool, what: &str) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < SOON, "{what}");
        // sleep: another thread needs a turn
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_waiter_on_the_bell_learns_that_a_topic_was_deleted() {
    on_both(|storage, path| {
        let store = open(storage, &path.join("store")).unwrap();
        let (kept, gone) = (topic(&store, "kept"), topic(&store, "gone"));
        let log = Arc::clone(gone.log());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let (bell, began) = (store.bell(), Instant::now());
                loop {
                    let ticket = bell.ticket();
                    for log in [kept.log(), &log] {
                        match log.request_notification(Visibility::Durable, Address(u64::MAX)) {
                            Ok(news) => assert!(!news),
                            Err(error) => return error,
                        }
                    }
                    assert!(began.elapsed() < SOON, "the waiter must get an error");
                    bell.sleep(ticket, 0);
                }
            });
            let before = rung(&store);
            store.delete_topic("gone").unwrap();
            assert!(rung(&store) > before);
            assert!(
                matches!(waiter.join().unwrap(), Error::TopicDeleted { name } if name == "gone")
            );
        });
    });
}

/// How often threads of this process with a name went to sleep.
fn sleeps_of(name: &str) -> u64 {
    let mut sleeps = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        if std::fs::read_to_string(task.join("comm")).unwrap_or_default().trim_end() != name {
            continue;
        }
        let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        sleeps += line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    }
    sleeps
}

/// Runs alone in a process, since the other tests have background threads too. Started by the next
/// test.
#[test]
#[ignore = "run by the next test"]
fn child_whose_keeper_has_nothing_to_do() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open_with(root.path().join("store"), &StoreOptions::default()).unwrap();
    let orders = topic(&store, "orders");
    append(&orders, SyncMode::Durable);
    wait_until(|| waiting(&orders) & KEEPERS != 0, "the background thread must leave its bit");
    let began = Instant::now();
    loop {
        let before = sleeps_of("falaj-keeper");
        assert_ne!(before, 0);
        // sleep: the time in which it should sleep
        std::thread::sleep(Duration::from_millis(1500));
        let slept = sleeps_of("falaj-keeper") - before;
        // It first brings the mark to the disk, which takes some time.
        if slept <= 6 {
            break;
        }
        assert!(began.elapsed() < SOON, "{slept} times in 1.5 s");
    }
    // It wakes when there is work.
    append(&orders, SyncMode::Interval);
    let target = orders.log().committed().unwrap();
    wait_until(|| orders.log().durable().unwrap() >= target, "nobody syncs");
}

#[test]
fn a_keeper_with_nothing_to_do_sleeps_until_somebody_appends() {
    let this = std::env::current_exe().unwrap();
    let name = "bell::child_whose_keeper_has_nothing_to_do";
    let child = std::process::Command::new(this).args(["--exact", name, "--ignored"]).output();
    let child = child.unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

/// The newest mark in a segment's file.
fn marked(dir: &Path, log: &Log) -> u64 {
    let (storage, settings) = (RealStorage::new(), log.settings());
    let (generation, bytes) = (settings.generation, settings.segment_bytes);
    let segment = Segment::open_to_read(&storage, dir, generation, 0, bytes, Reading::Pread);
    segment.unwrap().mark().map_or(0, |mark| mark.position)
}

#[test]
fn the_mark_of_a_log_that_rests_says_all_that_is_durable() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open_with(root.path().join("store"), &StoreOptions::default()).unwrap();
    let orders = topic(&store, "orders");
    let log = orders.log();
    for _ in 0..3 {
        for _ in 0..5 {
            append(&orders, SyncMode::Durable);
        }
        let end = log.committed().unwrap().position();
        wait_until(|| marked(log.dir(), log) == end, "the mark must reach the end");
    }
}
