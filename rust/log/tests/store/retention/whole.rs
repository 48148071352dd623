//! Deaths and power cuts during retention: the log stays whole, and the next run finishes.

use std::slice::from_ref;

use falaj::internals::consumer::{GroupMember, Start};
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

/// A power failure may take back a commit that was not made durable, but not behind retention.
#[test]
fn a_power_cut_in_or_after_retention_leaves_no_group_before_the_records_that_are_left() {
    let machine = MemoryStorage::new().seeded(8);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let (store, orders) = filled(&storage, Path::new("/store"), 480);
    let member = |store: &Store, orders: &Topic| {
        GroupMember::open(store, "billing", from_ref(orders), Start::Earliest).unwrap()
    };
    let mut billing = member(&store, &orders);
    billing.commit("orders", 0, 100, true).unwrap();
    store.configure_topic("orders", &records(10).waits(true), None).unwrap();
    for offset in [250, 333] {
        billing.commit("orders", 0, offset, false).unwrap();
    }
    let begun = machine.events();
    store.maintain(false).unwrap();
    assert_eq!(orders.first(0).unwrap(), 333);
    let (mut images, mut earlier) = (0, 0);
    for crash in machine.journal().crashes_from(begun).step_by(every(5)) {
        let explored = crash.explore(12, 11, |selection, image| {
            let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
            let storage: Arc<dyn Storage> = Arc::new(image);
            let store = open(&storage, Path::new("/store")).unwrap();
            let orders = topic(&store, "orders");
            let (first, next) =
                (orders.first(0).unwrap(), member(&store, &orders).parts().unwrap()[0].next);
            assert!(next >= first, "{story}: the group is at {next}, the first record at {first}");
            earlier += usize::from(next < 333);
        });
        images += explored.images;
    }
    assert!(images > 50 && earlier > 0, "{images} images, {earlier} with an earlier commit");
}
