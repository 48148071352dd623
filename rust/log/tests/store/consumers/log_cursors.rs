//! Cursors that are kept in a log: they move with the records that are appended there, from the
//! expected offset.

use falaj::internals::consumer::Move;
use falaj::internals::format::address::Address;
use falaj::internals::topic::Transaction;

use super::*;

/// The clock moves, as real ones do: after the crash it is later.
const LATER_US: i64 = 1_800_000_000_000_000;

fn in_log(store: &Store, name: &str, log: Option<&str>) -> Topic {
    let options = TopicOptions {
        segment_bytes: Some(64 << 10),
        log: log.map(Into::into),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap()
}

fn sums(store: &Store) -> Topic {
    in_log(store, "sums", None)
}

fn open_in(store: &Store, orders: &Topic, sums: &Topic) -> GroupMember {
    GroupMember::open_in(store, "billing", from_ref(orders), Start::Earliest, sums).unwrap()
}

/// As a poll does: deliver one more record of a partition.
fn hand_out(billing: &mut GroupMember, partition: u32) {
    let parts = billing.parts().unwrap();
    let mut part = *parts.iter().find(|part| part.partition == partition).unwrap();
    part.next += 1;
    billing.handed_out(&part);
}

/// Commit a result, and the cursors that move with it.
fn commit(
    sums: &Topic,
    moves: &[Move],
    sync: SyncMode,
) -> falaj::internals::error::Result<Address> {
    let mut tx = Transaction::new(sums.store()).with_sync(sync);
    tx.append(sums, NewRecord::new(b"a result"))?;
    moves.iter().try_for_each(|moved| moved.join(sums, &mut tx))?;
    Ok(tx.commit()?.end())
}

/// Read one record, and commit a result with the cursor.
fn work(billing: &mut GroupMember, sums: &Topic, sync: SyncMode) {
    hand_out(billing, 0);
    let moves = billing.moves().unwrap();
    let end = commit(sums, &moves, sync).unwrap();
    billing.moved(&moves, end);
}

/// Six durable records; each makes a result.
fn working(machine: &MemoryStorage, sync: impl Fn(u64) -> SyncMode) -> (usize, Vec<usize>) {
    let store = store(machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 6);
    orders.flush().unwrap();
    let began = machine.events();
    let mut billing = open_in(&store, &orders, &sums);
    let mut done = Vec::new();
    for n in 1..=6 {
        work(&mut billing, &sums, sync(n));
        done.push(machine.events());
        if n == 4 {
            sums.log().roll_now().unwrap();
        }
    }
    std::mem::forget((billing, orders, sums, store));
    (began, done)
}

/// The offset at which the group resumes, and how many results are there; retention keeps all
/// before it.
fn left(image: &MemoryStorage, story: &str) -> (u64, u64) {
    let store = store(image);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    // As the group's file has it, from which no partition was taken yet.
    let needs = store.needs(&orders.settings().generation).unwrap();
    let billing =
        GroupMember::open_in(&store, "billing", from_ref(&orders), Start::Earliest, &sums);
    let billing = billing.unwrap_or_else(|error| panic!("{story}: {error}"));
    let next = billing.next("orders", 0).unwrap_or_else(|error| panic!("{story}: {error}"));
    let kept = needs.iter().map(|need| need.offset).min();
    assert!(kept.is_none_or(|kept| kept <= next), "{story}: {kept:?}, it resumes at {next}");
    (next, sums.end(0).unwrap())
}

#[test]
fn a_process_that_dies_at_any_event_leaves_a_result_with_its_cursor_or_neither() {
    let machine = MemoryStorage::new();
    let (began, done) = working(&machine, |_| SyncMode::None);
    let journal = machine.journal();
    for time in began..=journal.len() {
        let (next, results) = left(&journal.killed_at(time), &format!("killed at {time}"));
        assert_eq!(next, results, "event {time}");
        let told = done.iter().filter(|event| **event <= time).count() as u64;
        assert!((told..=told + 1).contains(&results), "event {time}: {results} of {told}");
    }
}

#[test]
fn a_power_cut_at_any_event_leaves_a_result_with_its_cursor_or_neither() {
    let machine = MemoryStorage::new();
    let sync = |n| if n % 3 == 0 { SyncMode::Durable } else { SyncMode::None };
    let (began, done) = working(&machine, sync);
    let journal = machine.journal();
    let (mut images, mut fell_back) = (0, 0);
    for crash in journal.crashes_from(began).step_by(every(11)) {
        crash.explore(2, images, |selection, image| {
            images += 1;
            image.set_now_us(LATER_US);
            let story = crash.describe(selection);
            let (next, results) = left(&image, &story);
            assert_eq!(next, results, "{story}");
            fell_back += u64::from(next % 3 != 0);
        });
    }
    assert!(images > 60 && fell_back > 0 && done.len() == 6, "{images} images, {fell_back}");
}

#[test]
fn a_durable_commit_with_its_cursor_survives_every_power_cut_after_it() {
    let machine = MemoryStorage::new();
    let store = self::store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 5);
    let mut billing = open_in(&store, &orders, &sums);
    hand_out(&mut billing, 0);
    hand_out(&mut billing, 0);
    // The input was not synced: a durable commit syncs it first.
    billing.commit_all(true).unwrap();
    let durable = machine.events();
    work(&mut billing, &sums, SyncMode::None);
    std::mem::forget((billing, orders, sums, store));
    for crash in machine.journal().crashes_from(durable) {
        crash.explore(24, 3, |selection, image| {
            let (next, results) = left(&image, &crash.describe(selection));
            assert_eq!(next, 2 + results, "{}", crash.describe(selection));
        });
    }
}

#[test]
fn a_late_transaction_of_a_former_owner_is_refused_and_nothing_of_it_is_appended() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let (orders, sums) = (topic(&store, 1), sums(&store));
        append(&orders, 0, 5);
        let mut first = open_in(&store, &orders, &sums);
        work(&mut first, &sums, SyncMode::None);
        hand_out(&mut first, 0);
        let late = first.moves().unwrap();
        first.close().unwrap();

        let other = store_in(&machine.process(), mode);
        let (its_orders, its_sums) = (topic(&other, 1), self::sums(&other));
        let mut second = open_in(&other, &its_orders, &its_sums);
        // It has done nothing yet, and has read the cursor.
        let refused = commit(&sums, &late, SyncMode::None).unwrap_err();
        assert!(matches!(&refused, Error::PartitionNotAssigned { partition: 0, .. }), "{refused}");
        assert_eq!(sums.end(0).unwrap(), 1);
        work(&mut second, &its_sums, SyncMode::None);
        assert!(commit(&sums, &late, SyncMode::None).is_err());
        // Also where the offsets are the same as before.
        second.commit("orders", 0, 1, false).unwrap();
        assert!(commit(&sums, &late, SyncMode::None).is_err());
        assert_eq!((sums.end(0).unwrap(), second.committed("orders", 0).unwrap()), (2, 1));
    }
}

#[test]
fn a_transaction_that_comes_before_the_next_owner_is_seen_by_it() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 5);
    let mut first = open_in(&store, &orders, &sums);
    hand_out(&mut first, 0);
    let late = first.moves().unwrap();
    first.close().unwrap();
    commit(&sums, &late, SyncMode::None).unwrap();
    let mut second = open_in(&store, &orders, &sums);
    assert_eq!(second.next("orders", 0).unwrap(), 1);
    work(&mut second, &sums, SyncMode::None);
    assert_eq!(second.lag("orders", 0).unwrap(), 3);
}

#[test]
fn of_a_late_transaction_and_the_next_owner_at_once_one_is_first_and_nothing_is_done_twice() {
    const ROUNDS: u64 = 300;
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, ROUNDS);
    let mut next = 0;
    for _ in 0..ROUNDS {
        let mut former = open_in(&store, &orders, &sums);
        hand_out(&mut former, 0);
        let late = former.moves().unwrap();
        former.close().unwrap();
        let (committed, later) = std::thread::scope(|scope| {
            let late = scope.spawn(|| commit(&sums, &late, SyncMode::None).is_ok());
            let later = open_in(&store, &orders, &sums).next("orders", 0).unwrap();
            (late.join().unwrap(), later)
        });
        next += u64::from(committed);
        assert_eq!((later, sums.end(0).unwrap()), (next, next));
    }
    assert!((1..ROUNDS).contains(&next), "{next} of {ROUNDS} came before");
}

#[test]
fn one_partition_that_was_lost_takes_the_whole_transaction_with_it() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 2), sums(&store));
    append(&orders, 0, 5);
    append(&orders, 1, 5);
    let mut first = open_in(&store, &orders, &sums);
    hand_out(&mut first, 0);
    hand_out(&mut first, 1);
    let late = first.moves().unwrap();
    // The delivered records are returned, and half of the partitions move to the other member.
    first.rewind();
    let mut second = open_in(&store, &orders, &sums);
    first.refresh().unwrap();
    second.refresh().unwrap();
    let [its] = second.parts().unwrap()[..] else { panic!("it has a partition") };
    let refused = commit(&sums, &late, SyncMode::None).unwrap_err();
    assert!(
        matches!(&refused, Error::PartitionNotAssigned { partition, .. } if *partition == its.partition),
        "{refused}"
    );
    assert_eq!(sums.end(0).unwrap(), 0);
    for partition in 0..2 {
        assert_eq!(first.committed("orders", partition).unwrap(), 0);
    }
    hand_out(&mut first, 1 - its.partition);
    let own = first.moves().unwrap();
    let end = commit(&sums, &own, SyncMode::None).unwrap();
    first.moved(&own, end);
    hand_out(&mut second, its.partition);
    let theirs = second.moves().unwrap();
    commit(&sums, &theirs, SyncMode::None).unwrap();
    for partition in 0..2 {
        assert_eq!(first.committed("orders", partition).unwrap(), 1);
    }
}

#[test]
fn a_consumer_keeps_its_cursors_where_it_first_did() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 1), in_log(&store, "sums", Some("shop")));
    let beside = in_log(&store, "beside", Some("shop"));
    append(&orders, 0, 3);
    drop(open_in(&store, &orders, &sums));
    drop(open_in(&store, &orders, &beside));
    let refused = |home: Option<&Topic>, words: &str| {
        let error = match home {
            None => GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest),
            Some(home) => {
                GroupMember::open_in(&store, "billing", from_ref(&orders), Start::Earliest, home)
            }
        };
        let error = error.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(None, "cursor_in=\"shop\"");
    refused(Some(&orders), "cursor_in=\"shop\"");
    assert_eq!(list_groups(&store).unwrap()[0].cursor_in.as_deref(), Some("shop"));
    delete_group(&store, "billing").unwrap();
    drop(open(&store, &orders));
    refused(Some(&sums), "without cursor_in");
    delete_group(&store, "billing").unwrap();
    drop(open_in(&store, &orders, &sums));
    drop((sums, beside));
    for name in ["sums", "beside"] {
        store.delete_topic(name).unwrap();
    }
    let anew = in_log(&store, "sums", Some("shop"));
    refused(Some(&anew), "was deleted");
    assert!(list_groups(&store).unwrap()[0].cursors.is_err());
    delete_group(&store, "billing").unwrap();
    drop(open_in(&store, &orders, &anew));
    let options = StoreOptions::default();
    let elsewhere = Store::open_on(Arc::new(MemoryStorage::new()), "/other", &options).unwrap();
    refused(Some(&in_log(&elsewhere, "sums", None)), "own store");
}

/// Only the group's file says which log has its cursors.
#[test]
fn a_consumer_whose_file_is_damaged_is_forgotten_with_its_cursors_wherever_they_are() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 3);
    let path = Path::new("/store/consumers/billing");
    let away = || machine.rename_new(path, Path::new("/store/consumers/billing@gone")).unwrap();
    let forget = || delete_group(&store, "billing").unwrap();
    let ways: [(&str, &dyn Fn()); 3] = [
        ("deleted", &forget),
        ("by the next who opens it", &away),
        ("by a second deletion", &|| {
            away();
            forget();
        }),
    ];
    for (how, forgotten) in ways {
        let mut billing = open_in(&store, &orders, &sums);
        work(&mut billing, &sums, SyncMode::Durable);
        billing.close().unwrap();
        machine.open(path, OpenMode::ReadWrite).unwrap().write_at(&[9], 40).unwrap();
        forgotten();
        let billing = open_in(&store, &orders, &sums);
        assert_eq!(billing.next("orders", 0).unwrap(), 0, "{how}");
        billing.close().unwrap();
        forget();
        assert_eq!(machine.list(Path::new("/store/consumers")).unwrap().len(), 0);
    }
}

#[test]
fn a_cursor_in_a_log_is_listed_reset_and_forgotten_with_its_consumer() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let (orders, sums) = (topic(&store, 1), sums(&store));
        append(&orders, 0, 10);
        let mut billing = open_in(&store, &orders, &sums);
        work(&mut billing, &sums, SyncMode::Durable);
        let other = store_in(&machine.process(), mode);
        let found = list_groups(&other).unwrap();
        let cursors = found[0].cursors.as_ref().unwrap();
        assert_eq!((cursors[0].committed, found[0].cursor_in.as_deref()), (1, Some("sums")));
        let theirs = topic(&other, 1);
        assert!(seek_group(&other, "billing", &theirs, 0, Start::Latest).is_err());
        assert!(delete_group(&other, "billing").is_err());
        let late = {
            hand_out(&mut billing, 0);
            billing.moves().unwrap()
        };
        drop(billing);
        assert_eq!(seek_group(&other, "billing", &theirs, 0, Start::Offset(7)).unwrap(), 7);
        assert!(commit(&sums, &late, SyncMode::None).is_err(), "a reset must refuse it too");
        assert_eq!(open_in(&store, &orders, &sums).next("orders", 0).unwrap(), 7);
        assert_eq!(seek_group(&other, "billing", &theirs, 0, Start::Offset(3)).unwrap(), 3);
        assert_eq!(open_in(&store, &orders, &sums).next("orders", 0).unwrap(), 3);
        delete_group(&other, "billing").unwrap();
        assert!(sums.log().cursors().unwrap().is_empty());
        assert_eq!(open_in(&store, &orders, &sums).next("orders", 0).unwrap(), 0);
    }
}

#[test]
fn a_deletion_cut_short_anywhere_leaves_the_consumer_as_it_was_or_none() {
    let machine = MemoryStorage::new();
    let store = self::store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 3);
    orders.flush().unwrap();
    let mut billing = open_in(&store, &orders, &sums);
    work(&mut billing, &sums, SyncMode::Durable);
    drop(billing);
    let began = machine.events();
    delete_group(&store, "billing").unwrap();
    std::mem::forget((orders, sums, store));
    let journal = machine.journal();
    let mut seen = [0, 0];
    let mut check = |image: &MemoryStorage, story: &str| {
        image.set_now_us(LATER_US);
        let is_there = !list_groups(&self::store(image)).unwrap().is_empty();
        let (next, results) = left(image, story);
        assert_eq!((next, results), (u64::from(is_there), 1), "{story}");
        seen[usize::from(is_there)] += 1;
        assert_eq!(image.list(Path::new("/store/consumers")).unwrap(), ["billing"], "{story}");
    };
    for time in began..=journal.len() {
        check(&journal.killed_at(time), &format!("killed at {time}"));
    }
    for crash in journal.crashes_from(began).step_by(every(3)) {
        crash.explore(16, 5, |selection, image| check(&image, &crash.describe(selection)));
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

#[test]
fn a_topic_that_was_made_anew_is_begun_anew_and_the_log_forgets_the_cursor_of_the_old_one() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 3);
    let mut billing = open_in(&store, &orders, &sums);
    work(&mut billing, &sums, SyncMode::None);
    drop((billing, orders));
    store.delete_topic("orders").unwrap();
    let orders = topic(&store, 1);
    append(&orders, 0, 3);
    assert_eq!(open_in(&store, &orders, &sums).next("orders", 0).unwrap(), 0);
    assert_eq!(sums.log().cursors().unwrap().len(), 1);
}

#[test]
fn more_cursors_than_the_log_keeps_make_no_consumer() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (many, sums) = (topic(&store, 200), sums(&store));
    let refused = GroupMember::open_in(&store, "billing", from_ref(&many), Start::Earliest, &sums)
        .unwrap_err();
    assert!(refused.to_string().contains("keeps 8192 bytes of cursors"), "{refused}");
    assert!(list_groups(&store).unwrap().is_empty());
    assert!(sums.log().cursors().unwrap().is_empty());
}

#[test]
fn an_input_that_was_rewound_is_told_although_the_cursor_is_elsewhere() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 5);
    orders.flush().unwrap();
    let mut billing = open_in(&store, &orders, &sums);
    append(&orders, 0, 5);
    hand_out(&mut billing, 0);
    billing.commit("orders", 0, 8, false).unwrap();
    sums.flush().unwrap();
    std::mem::forget((billing, orders, sums, store));
    let mut rewound = 0;
    for crash in machine.journal().crashes_from(machine.journal().len()) {
        crash.explore(32, 3, |selection, image| {
            image.set_now_us(LATER_US);
            let story = crash.describe(selection);
            let store = self::store(&image);
            let (orders, sums) = (topic(&store, 1), self::sums(&store));
            let kept = orders.end(0).unwrap();
            // The same records again, at another time.
            append(&orders, 0, 10 - kept);
            let mut billing = open_in(&store, &orders, &sums);
            if kept >= 8 {
                assert_eq!(billing.next("orders", 0).unwrap(), 8, "{story}");
                return;
            }
            rewound += 1;
            let error = billing.parts().unwrap_err();
            assert!(matches!(error, Error::LogTruncated { offset: 8, .. }), "{story}: {error}");
            // A seek to its very offset: it is another record.
            billing.seek("orders", 0, Start::Offset(8)).unwrap();
            billing.commit_all(false).unwrap();
            drop(billing);
            let mut billing = open_in(&store, &orders, &sums);
            assert_eq!(billing.next("orders", 0).unwrap(), 8, "{story}");
            billing.seek("orders", 0, Start::Offset(kept)).unwrap();
            work(&mut billing, &sums, SyncMode::None);
            assert_eq!(billing.committed("orders", 0).unwrap(), kept + 1);
        });
    }
    assert!(rewound > 0);
}

#[test]
fn a_group_that_keeps_its_cursors_in_a_file_moves_none_with_a_transaction() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 1);
    let mut billing = open(&store, &orders);
    hand_out(&mut billing, 0);
    let refused = billing.moves().unwrap_err();
    assert!(
        matches!(&refused, Error::InvalidArgument { what } if what.contains("cursor_in=")),
        "{refused}"
    );
    billing.commit_all(false).unwrap();
    assert_eq!(billing.committed("orders", 0).unwrap(), 1);
}

/// The offset from which retention keeps records of the group's topic.
fn needed(store: &Store, orders: &Topic) -> u64 {
    let needs = store.needs(&orders.settings().generation).unwrap();
    needs.iter().map(|need| need.offset).min().unwrap()
}

#[test]
fn retention_waits_for_the_lower_of_a_cursor_and_of_where_a_transaction_moves_it() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let (orders, sums) = (topic(&store, 1), sums(&store));
    append(&orders, 0, 6);
    let mut billing = open_in(&store, &orders, &sums);
    for n in 1..=3 {
        work(&mut billing, &sums, SyncMode::Durable);
        assert_eq!(needed(&store, &orders), n, "a durable commit counts");
    }
    hand_out(&mut billing, 0);
    let forward = billing.moves().unwrap();
    assert_eq!(needed(&store, &orders), 3, "the log does not have the move yet");
    let end = commit(&sums, &forward, SyncMode::Durable).unwrap();
    billing.moved(&forward, end);
    assert_eq!(needed(&store, &orders), 4);
    billing.seek_all(Some("orders"), Some(0), Start::Offset(1)).unwrap();
    let back = billing.moves().unwrap();
    assert_eq!(back.len(), 1);
    assert_eq!(needed(&store, &orders), 1, "the cursor goes back as soon as the log has the move");
}
