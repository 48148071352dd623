//! A cursor after the death of a process, and after a power cut, at any event.

use falaj::internals::format::consumer::{CursorEntry, entry};

use super::*;

/// The clock moves, as real ones do: after the crash it is later.
const LATER_US: i64 = 1_800_000_000_000_000;

/// Ten records, six of them durable, and a group that commits each of them.
fn committing(machine: &MemoryStorage, durable: bool) -> usize {
    let store = store(machine);
    let orders = topic(&store, 1);
    let mut billing = open(&store, &orders);
    let began = machine.events();
    for offset in 1..=10 {
        append(&orders, 0, 1);
        if offset == 3 || offset == 6 {
            orders.flush().unwrap();
        }
        billing.commit("orders", 0, offset, durable).unwrap();
    }
    std::mem::forget((billing, orders, store));
    began
}

#[test]
fn after_a_power_cut_at_any_event_of_commits_no_record_is_left_out() {
    let machine = MemoryStorage::new();
    let began = committing(&machine, false);
    let journal = machine.journal();
    let (mut images, mut fell_back) = (0, 0);
    for crash in journal.crashes_from(began).step_by(every(5)) {
        crash.explore(24, 7, |selection, image| {
            images += 1;
            image.set_now_us(LATER_US);
            let store = store(&image);
            let orders = topic(&store, 1);
            let kept = orders.end(0).unwrap();
            // The same number of records again, or more, before any process looks.
            append(&orders, 0, 20);
            let next = open(&store, &orders).next("orders", 0);
            let story = crash.describe(selection);
            let next = next.unwrap_or_else(|error| panic!("{story}: {error}"));
            assert!(next <= kept, "{story}: it resumes at {next}, the log kept {kept}");
            fell_back += u64::from(next < kept);
            goes_on_from(&image, &orders, next, &story);
        });
    }
    assert!(images > 200 && fell_back > 0, "{images} images, {fell_back}");
}

/// Check that every view of the group says `next`, and that it resumes there.
///
/// Then commit the offset from before the power cut, which has another record now: it must count.
fn goes_on_from(image: &MemoryStorage, orders: &Topic, next: u64, story: &str) {
    let listed = &list_groups(orders.store()).unwrap()[0];
    assert_eq!(listed.cursors.as_ref().unwrap()[0].committed, next, "{story}");
    let lost = CursorEntry::decode(&bytes_of(image)[entry(0) as usize..]).cursor().unwrap();
    let mut billing = open(orders.store(), orders);
    assert_eq!(billing.committed("orders", 0).unwrap(), next, "{story}");
    assert_eq!(billing.lag("orders", 0).unwrap(), orders.end(0).unwrap() - next, "{story}");
    let mut part = billing.parts().unwrap()[0];
    part.next = lost.committed.offset;
    billing.handed_out(&part);
    billing.rewind();
    assert_eq!(billing.next("orders", 0).unwrap(), next, "{story}");
    billing.handed_out(&part);
    billing.commit_all(false).unwrap();
    assert_eq!(billing.committed("orders", 0).unwrap(), part.next, "{story}");
    drop(billing);
    let again = open(orders.store(), orders);
    assert_eq!(again.next("orders", 0).unwrap(), part.next, "{story}: delivered twice");
}

#[test]
fn a_process_that_dies_at_any_event_of_a_commit_leaves_that_cursor_or_the_one_before() {
    let machine = MemoryStorage::new();
    let began = committing(&machine, false);
    let journal = machine.journal();
    let mut before = 0;
    for time in began..=journal.len() {
        let store = store(&journal.killed_at(time));
        let orders = topic(&store, 1);
        let next = open(&store, &orders).next("orders", 0).unwrap();
        let end = orders.end(0).unwrap();
        assert!(next <= end && end <= next + 1, "event {time}: {next} of {end}");
        assert!(next >= before, "event {time}: back from {before} to {next}");
        before = next;
    }
    assert_eq!(before, 10);
}

#[test]
fn a_durable_commit_survives_every_power_cut_after_it() {
    let machine = MemoryStorage::new();
    let store = self::store(&machine);
    let orders = topic(&store, 1);
    let mut billing = open(&store, &orders);
    append(&orders, 0, 5);
    billing.commit("orders", 0, 5, true).unwrap();
    let durable = machine.events();
    append(&orders, 0, 5);
    billing.commit("orders", 0, 9, false).unwrap();
    billing.commit("orders", 0, 10, false).unwrap();
    for crash in machine.journal().crashes_from(durable) {
        crash.explore(24, 3, |selection, image| {
            let store = self::store(&image);
            let next = open(&store, &topic(&store, 1)).next("orders", 0).unwrap();
            assert!((5..=10).contains(&next), "{}: {next}", crash.describe(selection));
        });
    }
}

#[test]
fn a_first_opening_cut_short_anywhere_is_gone_on_with() {
    let machine = MemoryStorage::new();
    let store = self::store(&machine);
    let orders = topic(&store, 2);
    append(&orders, 0, 5);
    orders.flush().unwrap();
    let began = machine.events();
    drop(open(&store, &orders));
    drop((orders, store));
    let journal = machine.journal();
    let works = |image: &MemoryStorage, story: &str| {
        let store = self::store(image);
        let billing = open(&store, &topic(&store, 2));
        let parts = billing.parts().unwrap_or_else(|error| panic!("{story}: {error}"));
        assert_eq!(parts.len(), 2, "{story}");
        assert!(parts.iter().all(|part| part.next == 0), "{story}: {parts:?}");
    };
    for time in began..=journal.len() {
        works(&journal.killed_at(time), &format!("killed at {time}"));
    }
    for crash in journal.crashes_from(began).step_by(every(5)) {
        crash.explore(24, 5, |selection, image| works(&image, &crash.describe(selection)));
    }
}
