//! Deaths and power cuts during retention: the log stays whole, and the next run finishes.

use falaj_twin::memory::{MemoryStorage, every};

use super::*;

/// A store in which retention deletes most segments, and the event when that began.
fn retaining() -> (MemoryStorage, usize) {
    let machine = MemoryStorage::new().seeded(7);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let (store, _orders) = filled(&storage, Path::new("/store"), 480);
    store.configure_topic("orders", &records(50), None).unwrap();
    let begun = machine.events();
    store.maintain(false).unwrap();
    (machine, begun)
}

/// Check that it begins where it did or where it must, and after the next maintenance where it
/// must.
fn look(image: MemoryStorage, story: &str) {
    let (storage, path) = (Arc::new(image) as Arc<dyn Storage>, Path::new("/store"));
    let store = open(&storage, path).unwrap_or_else(|error| panic!("{story}: {error}"));
    let orders = topic(&store, "orders");
    let first = orders.first(0).unwrap_or_else(|error| panic!("{story}: {error}"));
    assert!([0, 430].contains(&first), "{story}: {first}");
    assert_eq!(orders.end(0).unwrap(), 480, "{story}");
    assert_whole(&orders);
    let done = store.maintain(false).unwrap();
    assert!(done.problems.is_empty() && done.logs[0].problem.is_none(), "{story}: {done:?}");
    assert_eq!(orders.first(0).unwrap(), 430, "{story}");
    let left = segments(&storage, path, "orders");
    assert!(left.len() <= 2, "{story}: not finished: {left:?}");
    assert_whole(&orders);
    assert!(store.verify(None, &mut |_, _| Ok(())).unwrap().is_sound(), "{story}");
}

#[test]
fn a_death_anywhere_in_retention_leaves_a_whole_log_and_maintenance_finishes_it() {
    let (machine, begun) = retaining();
    let journal = machine.journal();
    for time in (begun..=journal.len()).step_by(every(3)) {
        look(journal.killed_at(time), &format!("death at {time}"));
    }
    assert!(journal.len() - begun > 20);
}

#[test]
fn a_power_cut_anywhere_in_retention_leaves_a_whole_log_and_maintenance_finishes_it() {
    let (machine, begun) = retaining();
    let mut images = 0;
    for crash in machine.journal().crashes_from(begun).step_by(every(7)) {
        let explored = crash.explore(16, 11, |selection, image| {
            look(image, &format!("cut at {}: {}", crash.time(), crash.describe(selection)));
        });
        images += explored.images;
    }
    assert!(images > 50, "{images}");
}
