//! Properties of a topic: texts that programs keep with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::store::{Access, RetentionChange, Store, StoreOptions, TopicOptions};
use falaj::internals::topic::Topic;
use falaj_twin::memory::{MemoryStorage, every};

fn store(machine: &MemoryStorage) -> Store {
    Store::open_on(Arc::new(machine.clone()), "/store", &StoreOptions::default()).unwrap()
}

fn topic(store: &Store) -> Topic {
    let options = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    Topic::open(store, "orders", &options).unwrap()
}

fn texts(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn properties_are_read_by_all_processes_and_stay_through_restarts_and_other_changes() {
    let machine = MemoryStorage::new();
    {
        let (one, other) = (store(&machine), store(&machine));
        let (orders, same) = (topic(&one), topic(&other));
        let reader = StoreOptions { access: Access::Read, ..StoreOptions::default() };
        let reader = Store::open_on(Arc::new(machine.clone()), "/store", &reader).unwrap();
        let read = Topic::open(&reader, "orders", &TopicOptions::default()).unwrap();
        assert_eq!(orders.properties().unwrap(), BTreeMap::new());
        orders.set_properties(&[("type", Some("text/csv")), ("owner", Some("shop"))]).unwrap();
        same.set_properties(&[("größe", Some("\"\n\u{0}")), ("owner", None)]).unwrap();
        same.set_properties(&[("never", None)]).unwrap();
        same.set_retention(&RetentionChange::default().records(7)).unwrap();
        let wanted = texts(&[("type", "text/csv"), ("größe", "\"\n\u{0}")]);
        for topic in [&orders, &same, &read] {
            assert_eq!(topic.properties().unwrap(), wanted);
        }
        assert!(matches!(read.set_properties(&[("a", Some("b"))]), Err(Error::NotWritable { .. })));
        assert_eq!(store(&machine).topic_settings("orders").unwrap().revision, 3);
    }
    let store = store(&machine);
    let orders = topic(&store);
    assert_eq!(orders.properties().unwrap()["type"], "text/csv");
    store.delete_topic("orders").unwrap();
    assert!(matches!(orders.properties(), Err(Error::TopicDeleted { .. })));
    let next = topic(&store);
    assert_eq!(next.properties().unwrap(), BTreeMap::new(), "another topic has its own");
    assert!(matches!(orders.properties(), Err(Error::TopicDeleted { .. })));
    assert!(matches!(orders.set_properties(&[("a", Some("b"))]), Err(Error::TopicDeleted { .. })));
}

#[test]
fn properties_beyond_the_limits_are_refused_and_none_changes() {
    let store = store(&MemoryStorage::new());
    let orders = topic(&store);
    let large = "v".repeat((16 << 10) - 128 - 2);
    let name = "n".repeat(128);
    orders.set_properties(&[(&name, Some(&large)), ("a", Some("1"))]).unwrap();
    let before = orders.properties().unwrap();
    let refused = |changes: &[(&str, Option<&str>)], what: &str| {
        let told = orders.set_properties(changes).unwrap_err();
        assert!(matches!(told, Error::InvalidArgument { .. }), "{told}");
        assert!(told.to_string().contains(what), "{told}");
        assert_eq!(orders.properties().unwrap(), before);
    };
    refused(&[("a", Some("2")), ("b", Some(""))], "at most 16384 bytes together");
    refused(&[("a", Some("2")), ("", Some("x"))], "1 to 128 bytes");
    refused(&[("a", None), (&"n".repeat(129), None)], "1 to 128 bytes");
    orders.set_properties(&[("a", None), ("b", Some("1"))]).unwrap();
}

#[test]
fn processes_that_change_properties_at_once_lose_none() {
    let machine = MemoryStorage::new();
    let _first = topic(&store(&machine));
    let workers: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let machine = machine.clone();
            std::thread::spawn(move || {
                let orders = topic(&store(&machine));
                for n in 0..20 {
                    orders.set_properties(&[(name, Some(&n.to_string()))]).unwrap();
                }
            })
        })
        .into();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let found = topic(&store(&machine)).properties().unwrap();
    assert_eq!(found, texts(&[("a", "19"), ("b", "19"), ("c", "19")]));
}

#[test]
fn a_power_cut_leaves_all_properties_of_a_change_or_none_and_all_once_it_returned() {
    let machine = MemoryStorage::new();
    let store = self::store(&machine);
    let orders = topic(&store);
    orders.set_properties(&[("a", Some("0")), ("b", Some("0"))]).unwrap();
    let began = machine.events();
    let mut done = vec![began];
    for n in ["1", "2", "3"] {
        orders.set_properties(&[("a", Some(n)), ("b", Some(n)), (n, Some(n))]).unwrap();
        done.push(machine.events());
    }
    std::mem::forget((orders, store));
    let mut seen = std::collections::BTreeSet::new();
    for crash in machine.journal().crashes_from(began).step_by(every(3)) {
        crash.explore(16, 5, |selection, image| {
            let story = crash.describe(selection);
            let found = topic(&self::store(&image)).properties().unwrap();
            let n: usize = found["a"].parse().unwrap();
            let mut wanted = texts(&[("a", &n.to_string()), ("b", &n.to_string())]);
            (1..=n).for_each(|n| drop(wanted.insert(n.to_string(), n.to_string())));
            assert_eq!(found, wanted, "a part of a change was kept: {story}");
            let returned = done.iter().rposition(|events| *events <= crash.time()).unwrap();
            assert!(n >= returned, "{story}: {n}, although {returned} had returned");
            seen.insert(n);
        });
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}
