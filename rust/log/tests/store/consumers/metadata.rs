//! Metadata that is committed with an offset, and read back by any process.

use falaj::internals::topic::{CursorMove, CursorState, Transaction};

use super::*;

fn sums(store: &Store) -> Topic {
    let options = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    Topic::open(store, "sums", &options).unwrap()
}

/// Open the group, whose offsets are in a log of their own or in its file.
fn group(store: &Store, is_in_log: bool) -> (Topic, GroupMember) {
    let orders = topic(store, 2);
    let billing = match is_in_log {
        false => open(store, &orders),
        true => {
            let home = sums(store);
            GroupMember::open_in(store, "billing", from_ref(&orders), Start::Earliest, &home)
                .unwrap()
        }
    };
    (orders, billing)
}

/// The committed offset of partition 0 and its metadata, as the overview of all groups says.
fn listed(store: &Store) -> (u64, String) {
    let found = list_groups(store).unwrap().remove(0).cursors.unwrap().remove(0);
    (found.committed, found.metadata)
}

fn told(billing: &GroupMember) -> (u64, String) {
    let of = ("orders", 0);
    (billing.committed(of.0, of.1).unwrap(), billing.metadata(of.0, of.1).unwrap())
}

#[test]
fn metadata_is_read_back_with_its_offset_until_the_next_commit_in_a_file_and_in_a_log() {
    for (mode, is_in_log) in [(MODES[0], false), (MODES[1], false), (MODES[0], true)] {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let (orders, mut billing) = group(&store, is_in_log);
        append(&orders, 0, 10);
        assert_eq!(told(&billing), (0, String::new()));
        let longest = "é".repeat(192);
        for (offset, metadata) in [(3, "invoice 17"), (3, "invoice 18"), (7, longest.as_str())] {
            billing.set_metadata(metadata).unwrap();
            billing.commit("orders", 0, offset, false).unwrap();
            assert_eq!(told(&billing), (offset, metadata.to_owned()));
            assert_eq!(listed(&store), told(&billing));
            assert_eq!(billing.metadata("orders", 1).unwrap(), "");
        }
        // The next member finds it, and so does a process that only reads.
        drop(billing);
        let (_, mut billing) = group(&store, is_in_log);
        assert_eq!(told(&billing), (7, longest.clone()));
        assert_eq!(listed(&store), (7, longest));
        // It is of that commit alone.
        billing.commit("orders", 0, 8, false).unwrap();
        assert_eq!(told(&billing), (8, String::new()));
        assert_eq!(listed(&store), told(&billing));
        // It is committed although no record was delivered since.
        billing.set_metadata("paused").unwrap();
        billing.commit_all(false).unwrap();
        assert_eq!(told(&billing), (8, "paused".into()));
        assert_eq!(billing.metadata("orders", 1).unwrap(), "paused");
        billing.commit_all(false).unwrap();
        assert_eq!(told(&billing), (8, "paused".into()), "nothing was committed");
        drop(billing);
        seek_group(&store, "billing", &orders, 0, Start::Offset(2)).unwrap();
        assert_eq!(listed(&store), (2, String::new()));
    }
}

#[test]
fn metadata_that_is_too_long_is_refused_and_nothing_is_committed() {
    let store = store(&MemoryStorage::new());
    let (orders, mut billing) = group(&store, false);
    append(&orders, 0, 1);
    let told = billing.set_metadata(&"x".repeat(385)).unwrap_err().to_string();
    assert!(told.contains("at most 384 bytes") && told.contains("has 385"), "{told}");
    assert_eq!(listed(&store), (0, String::new()));
}

#[test]
fn a_log_keeps_cursors_with_metadata_of_an_eighth_of_a_segment_and_no_more() {
    let machine = MemoryStorage::new();
    let commit = |machine: &MemoryStorage, name: u8, offset: u64, metadata: &[u8]| {
        let store = store(machine);
        let to = CursorState { offset, ..CursorState::default() };
        let mut tx = Transaction::new(&store);
        tx.keep_cursors_in(&sums(&store)).unwrap();
        tx.move_cursor(CursorMove { name: &[name; 512], to, from: None, metadata });
        tx.commit().map(drop)
    };
    let long = [b'm'; 384];
    for name in 0..8 {
        commit(&machine, name, 1, &long).unwrap();
    }
    let full = commit(&machine, 8, 1, &long).unwrap_err().to_string();
    assert!(full.contains("keeps 8192 bytes of cursors and cannot take more"), "{full}");
    commit(&machine, 8, 1, b"").unwrap();
    // It has no space to grow, and needs none to move. Another process counts the same.
    for machine in [&machine, &machine.process()] {
        assert!(commit(machine, 8, 2, &long).is_err());
        commit(machine, 8, 2, b"").unwrap();
        commit(machine, 0, 2, &long).unwrap();
    }
    commit(&machine, 0, CursorState::NONE.offset, b"").unwrap();
    commit(&machine, 8, 3, &long).unwrap();
}

#[test]
fn metadata_moves_with_a_transaction_and_stays_through_rolls_and_a_claim() {
    let machine = MemoryStorage::new();
    let store = self::store(&machine);
    let (orders, mut billing) = group(&store, true);
    append(&orders, 0, 3);
    for n in 1..=3u64 {
        let mut part = billing.parts().unwrap().into_iter().find(|it| it.partition == 0).unwrap();
        part.next += 1;
        billing.handed_out(&part);
        billing.set_metadata(&format!("sum {n}")).unwrap();
        let mut tx = Transaction::new(&store);
        tx.append(&sums(&store), NewRecord::new(b"a result")).unwrap();
        let moves = billing.commit_in(&mut tx).unwrap();
        assert_eq!(listed(&store).0, n - 1);
        let end = tx.commit().unwrap().end();
        billing.moved(&moves, end);
        assert_eq!(told(&billing), (n, format!("sum {n}")));
        assert_eq!(listed(&store), told(&billing));
    }
    sums(&store).log().roll_now().unwrap();
    drop(billing);
    // The claim of the next member is a move of its own.
    let (_, mut billing) = group(&store, true);
    assert_eq!(told(&billing), (3, "sum 3".into()));
    billing.commit("orders", 0, 3, true).unwrap();
    assert_eq!(told(&billing), (3, String::new()));
}

#[test]
fn after_a_power_cut_at_any_event_of_commits_an_offset_has_its_own_metadata() {
    for is_in_log in [false, true] {
        let machine = MemoryStorage::new();
        let store = self::store(&machine);
        let (orders, mut billing) = group(&store, is_in_log);
        if is_in_log {
            append(&orders, 0, 8);
            orders.flush().unwrap();
        }
        let began = machine.events();
        for offset in 1..=8u64 {
            if !is_in_log {
                // A power failure may take the record, and then an earlier offset counts.
                append(&orders, 0, 1);
            }
            billing.set_metadata(&offset.to_string().repeat(100)).unwrap();
            billing.commit("orders", 0, offset, offset % 3 == 0).unwrap();
        }
        std::mem::forget((billing, orders, store));
        let journal = machine.journal();
        let (mut seen, mut without) = (std::collections::BTreeSet::new(), 0);
        for crash in journal.crashes_from(began).step_by(every(5)) {
            crash.explore(24, 7, |selection, image| {
                image.set_now_us(1_800_000_000_000_000);
                let story = crash.describe(selection);
                let store = self::store(&image);
                append(&topic(&store, 2), 0, 20);
                let before = listed(&store);
                let (_, billing) = group(&store, is_in_log);
                let (offset, metadata) = told(&billing);
                assert_eq!(before, (offset, metadata.clone()), "{story}");
                assert_eq!(listed(&store), before, "{story}");
                if metadata.is_empty() {
                    without += u64::from(offset > 0);
                } else {
                    let own = offset.to_string().repeat(100);
                    assert_eq!(metadata, own, "an offset has another one's metadata: {story}");
                    seen.insert(offset);
                }
            });
        }
        // An offset that was kept as the safe one has none; a log has no such offset.
        assert!(seen.len() > 4 && (without > 0) != is_in_log, "{seen:?}, {without} without");
    }
}
