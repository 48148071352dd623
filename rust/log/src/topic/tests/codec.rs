//! Naming a codec: no crash leaves a record without one, and no two processes name two.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::store::{Store, StoreOptions, TopicOptions};
use crate::topic::{SyncMode, Topic};
use crate::twin::faulty::{FailureKind, Fault, FaultyStorage};
use crate::twin::memory::{MemoryStorage, every};

fn machine() -> MemoryStorage {
    MemoryStorage::new().seeded(7)
}

fn open(storage: Arc<dyn Storage>) -> Result<Store> {
    Store::open_on(storage, "/store", &StoreOptions::default())
}

fn topic(store: &Store, name: &str, codec: Option<&str>) -> Result<Topic> {
    let options = TopicOptions {
        codec: codec.map(str::to_owned),
        codec_later: true,
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    Ok(Topic::open(store, name, &options)?.with_sync(SyncMode::Durable))
}

/// Create two topics without a codec, name one's by an opening, and append to both.
fn workload(storage: Arc<dyn Storage>) -> Result<()> {
    let store = open(storage)?;
    topic(&store, "orders", None)?;
    let plain = topic(&store, "plain", None)?;
    topic(&store, "orders", Some("json"))?.append(b"1")?;
    plain.append(b"1").map(drop)
}

/// Check that each record has a named codec, and that an empty topic still takes one.
fn assert_named(storage: &MemoryStorage, story: &str) {
    let store = open(Arc::new(storage.clone())).unwrap();
    for (name, codec) in [("orders", "json"), ("plain", "bytes")] {
        let Ok(settings) = store.topic_settings(name) else { continue };
        let topic = topic(&store, name, None).unwrap();
        let records = topic.committed(0).unwrap();
        assert!(!settings.codec_unnamed || records == 0, "{story}: {name} has {records} records");
        if !settings.codec_unnamed {
            assert_eq!(settings.codec, codec, "{story}");
        }
    }
}

#[test]
fn the_short_way_to_append_a_value_is_none_before_the_codec_has_a_name() {
    let store = open(Arc::new(machine())).unwrap();
    let orders = topic(&store, "orders", None).unwrap();
    let number = orders.number(0).unwrap();
    assert_eq!(orders.try_append_value(number, b"1", false), None);
    assert_eq!(orders.committed(0).unwrap(), 0);
    orders.append(b"1").unwrap();
    assert_eq!(orders.codec().unwrap(), Some("bytes"));
    assert_eq!(orders.try_append_value(number, b"2", false), Some(1));
}

#[test]
fn a_power_cut_anywhere_leaves_no_record_without_a_named_codec() {
    let machine = machine();
    workload(Arc::new(machine.clone())).unwrap();
    let (journal, mut images) = (machine.journal(), 0);
    for crash in journal.crashes().step_by(every(4)) {
        images += crash
            .explore(32, 11, |selection, image| {
                let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
                assert_named(&image, &story);
            })
            .images;
    }
    assert!(images > 300, "{images}");
}

/// A name that a killed process did not sync yet is synced before the next process appends.
#[test]
fn a_process_killed_at_any_call_leaves_a_codec_that_the_next_one_names_or_keeps() {
    let whole = FaultyStorage::over_memory(machine());
    workload(Arc::new(whole.clone())).unwrap();
    let mut renamed = 0;
    for (k, was_open) in (1..=whole.total()).flat_map(|k| [(k, false), (k, true)]) {
        let machine = machine();
        let survivor = machine.process();
        let early = was_open.then(|| {
            let store = open(Arc::new(survivor.clone())).unwrap();
            topic(&store, "orders", None).unwrap()
        });
        let victim = machine.process();
        let faulty = FaultyStorage::over_memory(victim.clone());
        faulty.plan(Fault::at(k, FailureKind::Errno(libc::EIO)).forever());
        let _ = workload(Arc::new(faulty));
        victim.kill();
        let story = format!("dead from call {k} on, open before: {was_open}");
        if !was_open {
            assert_named(&machine, &story); // which opens the topics, and so syncs their names
        }
        let store = open(Arc::new(survivor)).unwrap();
        let before = store.topic_settings("orders").ok().filter(|topic| !topic.codec_unnamed);
        renamed += usize::from(before.is_some());
        let orders = early.unwrap_or_else(|| topic(&store, "orders", Some("json")).unwrap());
        orders.name_codec("json").unwrap();
        let offset = orders.append(b"2").unwrap().offset;
        let crash = machine.journal().crash_at_end();
        let image = crash.image(&crash.nothing());
        let store = open(Arc::new(image)).unwrap();
        let after = store.topic_settings("orders").unwrap();
        assert_eq!((after.codec.as_str(), after.codec_unnamed), ("json", false), "{story}");
        assert!(topic(&store, "orders", None).unwrap().committed(0).unwrap() > offset, "{story}");
    }
    assert!(renamed > 5, "{renamed}");
}

#[test]
fn an_append_with_another_codec_than_the_first_one_is_refused_and_appends_nothing() {
    let machine = machine();
    let store = open(Arc::new(machine.process())).unwrap();
    let early = topic(&store, "orders", None).unwrap();
    let also = early.clone();
    let other = open(Arc::new(machine.process())).unwrap();
    topic(&other, "orders", Some("json")).unwrap();
    let mismatch = |result: Result<()>| match result {
        Err(Error::SettingsMismatch { setting: "codec", stored, asked, .. }) => (stored, asked),
        other => panic!("{other:?}"),
    };
    let expected = ("json".to_owned(), "bytes".to_owned());
    assert_eq!(mismatch(early.append(b"x").map(drop)), expected);
    let mut tx = crate::topic::Transaction::new(&store);
    tx.append(&early, b"x").unwrap();
    assert_eq!(mismatch(tx.commit().map(drop)), expected);
    assert_eq!(early.committed(0).unwrap(), 0);
    // A program that looks at the codec may append what that codec reads.
    assert_eq!(early.codec().unwrap(), Some("json"));
    assert_eq!(also.append(b"{}").unwrap().offset, 0);
    assert!(matches!(topic(&store, "orders", Some("str")), Err(Error::SettingsMismatch { .. })));
}

/// Only a foreign copy of `topic.json` can be without a name beside records.
#[test]
fn records_without_a_named_codec_are_bytes_and_stay_so() {
    let machine = machine();
    let store = open(Arc::new(machine.process())).unwrap();
    let path = store.layout().topic_settings("orders").unwrap();
    let orders = topic(&store, "orders", None).unwrap();
    let len = machine.stat(&path).unwrap().len;
    let mut before = vec![0; len as usize];
    let file = machine.open(&path, crate::storage::OpenMode::Read).unwrap();
    file.read_at(&mut before, 0).unwrap();
    orders.append(b"1").unwrap();
    machine.unlink(&path).unwrap();
    let file = machine.open(&path, crate::storage::OpenMode::CreateNew(0o600)).unwrap();
    file.write_at(&before, 0).unwrap();
    let refused = topic(&store, "orders", Some("json")).unwrap_err();
    assert!(refused.to_string().contains("codec = bytes, not json"), "{refused}");
}
