//! Files that are removed while a process has them open: real files, and a real `rm -r`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::error::{Error, Remedy, Result};
use falaj::internals::format::address::Address;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic, Transaction};

const MODES: [WriteMode; 2] = [WriteMode::Mapped, WriteMode::Pwrite];
/// Longer than any wait here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A store with one topic of one durable record.
struct Place {
    _root: tempfile::TempDir,
    path: PathBuf,
    store: Store,
    topic: Topic,
}

impl Place {
    fn new(mode: WriteMode) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store");
        let (store, topic) = opened(&path, mode);
        append(&topic, SyncMode::Durable).unwrap();
        Self { _root: root, path, store, topic }
    }

    /// As a person or a script does.
    fn remove_store(&self) {
        remove(&self.path);
    }
}

fn opened(path: &Path, mode: WriteMode) -> (Store, Topic) {
    let options = StoreOptions { write_mode: Some(mode), ..StoreOptions::default() };
    let store = Store::open_with(path, &options).unwrap();
    let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    let topic = Topic::open(&store, "orders", &small).unwrap();
    (store, topic)
}

fn append(topic: &Topic, mode: SyncMode) -> Result<u64> {
    topic.append_to(0, &NewRecord::new(b"two coffees"), Some(mode))
}

fn remove(path: &Path) {
    assert!(Command::new("rm").arg("-r").arg(path).status().unwrap().success());
}

#[track_caller]
fn expect_removed<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::FilesRemoved { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::FixMachine);
    assert!(error.to_string().contains("open the store again"), "{error}");
}

#[test]
fn a_durable_append_to_a_removed_store_raises_and_so_does_every_append_after_it() {
    for mode in MODES {
        let place = Place::new(mode);
        place.remove_store();
        expect_removed(append(&place.topic, SyncMode::Durable));
        assert_eq!(place.topic.durable(0).unwrap(), 1, "{mode:?}");
        for sync in [SyncMode::None, SyncMode::Interval, SyncMode::Durable] {
            expect_removed(append(&place.topic, sync));
        }
        expect_removed(place.topic.flush());
        expect_removed(place.topic.sync_clean());
        assert_eq!(place.topic.durable(0).unwrap(), 1, "{mode:?}");
    }
}

#[test]
fn a_log_whose_directory_alone_was_removed_is_noticed_too() {
    for mode in MODES {
        let place = Place::new(mode);
        let other = Topic::open(&place.store, "other", &TopicOptions::default()).unwrap();
        remove(place.topic.log().dir());
        expect_removed(append(&place.topic, SyncMode::Durable));
        append(&other, SyncMode::Durable).unwrap();
        other.flush().unwrap();
    }
}

#[test]
fn a_segment_alone_that_was_removed_is_noticed_and_nothing_is_put_in_its_place() {
    let place = Place::new(WriteMode::Mapped);
    let names = || {
        let names = std::fs::read_dir(place.topic.log().dir()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    let segments = || names().filter(|name| name.ends_with(".log")).collect::<Vec<_>>();
    let [segment] = <[String; 1]>::try_from(segments()).unwrap();
    std::fs::remove_file(place.topic.log().dir().join(segment)).unwrap();
    for _ in 0..3 {
        expect_removed(append(&place.topic, SyncMode::Durable));
    }
    assert_eq!(segments(), [""; 0]);
}

#[test]
fn a_flush_and_a_close_of_a_removed_store_raise_also_where_all_was_durable_before() {
    for mode in MODES {
        for by in [Topic::flush, Topic::sync_clean] {
            let place = Place::new(mode);
            by(&place.topic).unwrap();
            place.remove_store();
            expect_removed(by(&place.topic));
        }
    }
}

#[test]
fn a_flush_raises_for_what_was_appended_without_a_sync_and_then_the_store_was_removed() {
    for mode in MODES {
        let place = Place::new(mode);
        append(&place.topic, SyncMode::None).unwrap();
        place.remove_store();
        expect_removed(place.topic.wait_durable_in(0, 2, Some(SOON), &|| false));
        expect_removed(place.topic.flush());
        assert_eq!(place.topic.durable(0).unwrap(), 1, "{mode:?}");
    }
}

#[test]
fn the_background_sync_notices_and_the_next_append_raises() {
    let place = Place::new(WriteMode::Mapped);
    let before = place.topic.log().committed().unwrap();
    place.remove_store();
    let began = Instant::now();
    // Until the background thread of interval mode has synced.
    let told = loop {
        match append(&place.topic, SyncMode::Interval) {
            Err(error) => break Err::<u64, _>(error),
            Ok(_) => assert!(began.elapsed() < SOON, "the background sync must notice"),
        }
        let nap = Some(Duration::from_millis(50));
        let seen = place.topic.log().committed().unwrap();
        let _ = place.topic.log().wait_for_durable(seen, nap, &|| false);
    };
    expect_removed(told);
    let after = place.topic.log().committed().unwrap();
    assert_eq!(after.sequence(), before.sequence(), "the segment must not end");
    assert_eq!(place.topic.durable(0).unwrap(), 1);
}

#[test]
fn the_end_of_a_segment_notices_where_nothing_is_synced() {
    for mode in MODES {
        let place = Place::new(mode);
        place.remove_store();
        let told = (0..10_000).find_map(|_| append(&place.topic, SyncMode::None).err());
        expect_removed(told.map_or(Ok(()), Err));
        assert!(!place.path.exists(), "no file may be created where the store was");
    }
}

#[test]
fn all_who_wait_for_one_sync_are_told() {
    let place = Place::new(WriteMode::Mapped);
    place.remove_store();
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..8).map(|_| scope.spawn(|| append(&place.topic, SyncMode::Durable))).collect();
        waiting.into_iter().for_each(|thread| expect_removed(thread.join().unwrap()));
    });
}

#[test]
fn a_transaction_in_a_removed_store_raises() {
    let place = Place::new(WriteMode::Mapped);
    let mut tx = Transaction::new(&place.store).with_sync(SyncMode::Durable);
    let record = NewRecord::new(b"two coffees");
    tx.append(&place.topic, record).unwrap();
    tx.commit().unwrap();
    place.remove_store();
    tx.append(&place.topic, record).unwrap();
    expect_removed(tx.commit());
}

#[test]
fn a_store_made_where_a_removed_one_was_gets_none_of_its_records() {
    for mode in MODES {
        let place = Place::new(mode);
        append(&place.topic, SyncMode::None).unwrap();
        place.remove_store();
        let (_store, new) = opened(&place.path, mode);
        assert_eq!(append(&new, SyncMode::Durable).unwrap(), 0);
        expect_removed(append(&place.topic, SyncMode::Durable));
        expect_removed(place.topic.flush());
        let told = Topic::open(&place.store, "another", &TopicOptions::default()).map(drop);
        assert!(matches!(told, Err(Error::LockFileReplaced { .. })), "{told:?}");
        assert_eq!((append(&new, SyncMode::Durable).unwrap(), new.end(0).unwrap()), (1, 2));
    }
}

#[test]
fn a_store_that_was_moved_keeps_what_is_synced_until_a_segment_ends() {
    for mode in MODES {
        let place = Place::new(mode);
        let away = place.path.with_extension("away");
        std::fs::rename(&place.path, &away).unwrap();
        if mode == WriteMode::Mapped {
            assert_eq!(append(&place.topic, SyncMode::Durable).unwrap(), 1);
            place.topic.flush().unwrap();
            let told = (0..10_000).find_map(|_| append(&place.topic, SyncMode::None).err());
            expect_removed(told.map_or(Ok(()), Err));
            place.topic.flush().unwrap();
        } else {
            // Its lock is a file that is opened by its path.
            expect_removed(append(&place.topic, SyncMode::Durable));
        }
        let end = place.topic.end(0).unwrap();
        drop((place.topic, place.store));
        assert_eq!(opened(&away, mode).1.end(0).unwrap(), end);
    }
}

#[test]
fn readers_and_followers_of_a_removed_store_are_told() {
    let place = Place::new(WriteMode::Mapped);
    let reading = Store::open_with(&place.path, &StoreOptions::reading()).unwrap();
    let reading = Topic::open(&reading, "orders", &TopicOptions::default()).unwrap();
    let logs = [&place.topic, &reading].map(Topic::log);
    let seen = logs.map(|log| log.committed().unwrap());
    place.remove_store();
    for (log, seen) in logs.into_iter().zip(seen) {
        expect_removed(log.wait_for_news(seen, Some(SOON), &|| false));
        let more = Address(seen.0 + 8);
        expect_removed(log.wait_for_durable(more, Some(SOON), &|| false));
    }
    let record = reading.scan_partition(0, 0, None).unwrap().next().transpose().unwrap().unwrap();
    assert_eq!(record.value(), Some(&b"two coffees"[..]), "open records must stay readable");
}

#[test]
fn a_durable_commit_of_a_consumer_whose_file_was_removed_raises() {
    for mode in MODES {
        let place = Place::new(mode);
        let topics = [place.topic.clone()];
        let mut billing =
            GroupMember::open(&place.store, "billing", &topics, Start::Earliest).unwrap();
        billing.commit("orders", 0, 1, true).unwrap();
        remove(&place.path.join("consumers"));
        expect_removed(billing.commit("orders", 0, 0, true));
        expect_removed(billing.commit_all(true));
    }
}

#[test]
fn a_deleted_topic_is_reported_as_deleted() {
    for mode in MODES {
        let place = Place::new(mode);
        append(&place.topic, SyncMode::None).unwrap();
        place.store.delete_topic("orders").unwrap();
        for told in [append(&place.topic, SyncMode::Durable).map(drop), place.topic.flush()] {
            assert!(matches!(told, Err(Error::TopicDeleted { .. })), "{mode:?}: {told:?}");
        }
    }
}

/// Retention removes files of durable, sealed segments too.
#[test]
fn trimming_segments_beside_durable_appends_raises_no_error() {
    for mode in MODES {
        let place = Place::new(mode);
        let removed = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..5_000).for_each(|_| append(&place.topic, SyncMode::None).map(drop).unwrap());
                (0..200).for_each(|_| append(&place.topic, SyncMode::Durable).map(drop).unwrap());
            });
            let mut removed = 0;
            while !writer.is_finished() {
                let end = place.topic.end(0).unwrap();
                removed += place.topic.trim(&[(0, end)]).unwrap().segments;
                place.topic.flush().unwrap();
            }
            writer.join().unwrap();
            removed
        });
        assert!(removed > 0, "{mode:?}");
    }
}
