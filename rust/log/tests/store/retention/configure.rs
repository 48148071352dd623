//! Changes of settings: each is whole, possible at any time, and visible to all processes.

use falaj::internals::error::Error;
use falaj::internals::format::retention::MAX_LIMIT;
use falaj::internals::store::TopicOptions;
use falaj_twin::memory::MemoryStorage;

use super::*;
use crate::stores::on_both;

fn asked(retention: RetentionChange) -> TopicOptions {
    TopicOptions { retention, ..TopicOptions::default() }
}

#[test]
fn limits_are_kept_from_creation_on_and_changed_any_day() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let made = store.open_topic("orders", &asked(bytes(1 << 20))).unwrap();
        assert_eq!((made.retention.bytes, made.revision), (Some(1 << 20), 0));
        let changed = store.configure_topic("orders", &age(5), Some(made.generation)).unwrap();
        assert_eq!((changed.retention.bytes, changed.retention.age_ms), (Some(1 << 20), Some(5)));
        let same = store.configure_topic("orders", &age(5), None).unwrap();
        assert_eq!((same.revision, store.configure(Some(9)).unwrap().revision), (1, 1));
        let none = RetentionChange::default().bytes(None);
        store.configure_topic("orders", &none, None).unwrap();
        drop(store);
        let store = open(storage, &path).unwrap();
        let found = store.topic_settings("orders").unwrap();
        assert_eq!((found.retention.bytes, found.retention.age_ms), (None, Some(5)));
        assert_eq!((found.revision, store.settings().retention_bytes), (2, Some(9)));
        assert_eq!(store.configure(None).unwrap().retention_bytes, None);
    });
}

#[test]
fn opening_asks_for_no_limits_unless_told_to_and_other_ones_are_refused_by_name() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        store.open_topic("orders", &asked(records(7))).unwrap();
        store.open_topic("orders", &TopicOptions::default()).unwrap();
        store.open_topic("orders", &asked(records(7))).unwrap();
        for (other, named) in [
            (records(8), "retention_records = 7, not 8"),
            (bytes(8), "retention_bytes = no limit, not 8"),
            (age(8), "retention_age_ms"),
            (RetentionChange::default().waits(true), "retention_waits"),
            (RetentionChange::default().protected(true), "retention_protected"),
        ] {
            let error = store.open_topic("orders", &asked(other)).unwrap_err();
            assert!(matches!(error, Error::SettingsMismatch { .. }), "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
    });
}

#[test]
fn what_cannot_be_is_refused_and_nothing_changes() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        let made = store.open_topic("orders", &asked(records(7))).unwrap();
        for limit in [0, MAX_LIMIT + 1] {
            for wrong in [bytes(limit), age(limit), records(limit)] {
                for refused in [
                    store.configure_topic("orders", &wrong, None).map(drop),
                    store.open_topic("new", &asked(wrong)).map(drop),
                    store.configure(Some(limit)).map(drop),
                ] {
                    let error = refused.unwrap_err();
                    assert!(error.to_string().contains(&limit.to_string()), "{error}");
                }
            }
        }
        let missing = store.configure_topic("new", &records(1), None).unwrap_err();
        assert!(matches!(missing, Error::UnknownTopic { .. }), "{missing}");
        store.delete_topic("orders").unwrap();
        let gone = |result: falaj::internals::error::Result<_>| match result {
            Err(Error::TopicDeleted { name }) => assert_eq!(name, "orders"),
            other => panic!("{other:?}"),
        };
        gone(store.configure_topic("orders", &records(1), Some(made.generation)).map(drop));
        let anew = store.open_topic("orders", &TopicOptions::default()).unwrap();
        gone(store.configure_topic("orders", &records(1), Some(made.generation)).map(drop));
        assert_eq!(store.topic_settings("orders").unwrap(), anew);
    });
}

#[test]
fn a_power_cut_or_a_death_leaves_the_settings_before_or_after_and_never_none() {
    let machine = MemoryStorage::new().seeded(7);
    let (storage, path) = (Arc::new(machine.clone()) as Arc<dyn Storage>, Path::new("/store"));
    let store = open(&storage, path).unwrap();
    let made = store.open_topic("orders", &TopicOptions::default()).unwrap();
    let begun = machine.events();
    let changed = store.configure_topic("orders", &age(5), None).unwrap();
    let topic_done = machine.events();
    store.configure(Some(9)).unwrap();
    let done = machine.events();
    let (journal, mut images) = (machine.journal(), 0);
    let look = |image: MemoryStorage, time: usize, is_dead: bool, story: &str| {
        let storage: Arc<dyn Storage> = Arc::new(image);
        let store = open(&storage, path).unwrap_or_else(|error| panic!("{story}: {error}"));
        let found =
            store.topic_settings("orders").unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(found == changed || (found == made && time < topic_done), "{story}: {found:?}");
        let limit = store.settings().retention_bytes;
        assert!(limit == Some(9) || (limit.is_none() && time < done), "{story}: {limit:?}");
        // A leftover of a death beside the file is removed, and the next change succeeds.
        assert_eq!(store.configure(Some(10)).unwrap().retention_bytes, Some(10), "{story}");
        store.configure_topic("orders", &age(6), None).unwrap();
        drop(store);
        let store = open(&storage, path).unwrap();
        let names = storage.list(&store.layout().topic("orders").unwrap()).unwrap();
        assert_eq!(names, ["topic.json"], "{story}, dead: {is_dead}");
    };
    for time in begun..=done {
        look(journal.killed_at(time), time, true, &format!("death at {time}"));
    }
    for crash in journal.crashes_from(begun) {
        let explored = crash.explore(64, 11, |selection, image| {
            let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
            look(image, crash.time(), false, &story);
        });
        images += explored.images;
    }
    assert!(images > 50, "{images}");
}
