//! Consumer groups: cursors that survive and are believed only while the log knows them; partitions
//! with one owner at a time.

mod assignment;
mod crashes;
mod forgetting;
mod log_cursors;
mod metadata;
mod offsets;
mod reader;
mod subscription;

use std::path::Path;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use falaj::internals::consumer::{GroupMember, Start, delete_group, list_groups, seek_group};
use falaj::internals::error::Error;
use falaj::internals::format::consumer::{
    CURSOR_LEN, CursorEntry, SECTOR, at, encode_cursor, entry,
};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{RetentionChange, Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::memory::{MemoryStorage, every};

const MODES: [WriteMode; 2] = [WriteMode::Mapped, WriteMode::Pwrite];
const ROOT: &str = "/store";

fn store_in(machine: &MemoryStorage, mode: WriteMode) -> Store {
    let options = StoreOptions { write_mode: Some(mode), ..StoreOptions::default() };
    Store::open_on(Arc::new(machine.clone()), ROOT, &options).unwrap()
}

fn store(machine: &MemoryStorage) -> Store {
    Store::open_on(Arc::new(machine.clone()), ROOT, &StoreOptions::default()).unwrap()
}

fn topic(store: &Store, partitions: u32) -> Topic {
    let options = TopicOptions {
        partitions: Some(partitions),
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    Topic::open(store, "orders", &options).unwrap()
}

/// Append equal records.
fn append(topic: &Topic, partition: u32, records: u64) {
    for _ in 0..records {
        topic.append_to(partition, &NewRecord::new(b"tick"), Some(SyncMode::None)).unwrap();
    }
}

fn open(store: &Store, topic: &Topic) -> GroupMember {
    GroupMember::open(store, "billing", from_ref(topic), Start::Earliest).unwrap()
}

fn bytes_of(machine: &MemoryStorage) -> Vec<u8> {
    let file = machine.open(Path::new("/store/consumers/billing"), OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

#[test]
fn a_cursor_is_where_it_was_committed_when_the_consumer_opens_again() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let orders = topic(&store, 2);
        append(&orders, 0, 10);
        append(&orders, 1, 5);
        let mut billing = open(&store, &orders);
        assert_eq!(billing.lag("orders", 0).unwrap(), 10);
        for offset in 1..=7 {
            billing.commit("orders", 0, offset, false).unwrap();
        }
        billing.commit("orders", 1, 5, false).unwrap();
        billing.close().unwrap();
        let billing = open(&store, &orders);
        let next: Vec<_> = billing.parts().unwrap().iter().map(|part| part.next).collect();
        assert_eq!(next, [7, 5]);
        assert_eq!(billing.lag("orders", 0).unwrap(), 3);
        drop((billing, orders, store));
        let store = store_in(&machine.restart(), mode);
        assert_eq!(open(&store, &topic(&store, 2)).next("orders", 0).unwrap(), 7);
    }
}

#[test]
fn whatever_serial_a_cursor_says_the_next_commit_holds() {
    for serial in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
        let machine = MemoryStorage::new();
        let store = store(&machine);
        let orders = topic(&store, 1);
        append(&orders, 0, 10);
        let mut billing = open(&store, &orders);
        billing.commit("orders", 0, 1, false).unwrap();
        billing.close().unwrap();
        let sector = |serial: u64| entry(0) + at::CURSORS + (serial & 1) * SECTOR;
        let file =
            machine.open(Path::new("/store/consumers/billing"), OpenMode::ReadWrite).unwrap();
        let mut cursor =
            CursorEntry::decode(&bytes_of(&machine)[entry(0) as usize..]).cursor().unwrap();
        cursor.serial = serial;
        file.write_at(&[0; CURSOR_LEN], sector(serial.wrapping_add(1))).unwrap();
        file.write_at(&encode_cursor(&cursor), sector(serial)).unwrap();
        for offset in 2..6 {
            let mut billing = open(&store, &orders);
            assert_eq!(billing.committed("orders", 0).unwrap(), offset - 1, "{serial}");
            billing.commit("orders", 0, offset, false).unwrap();
        }
        assert_eq!(seek_group(&store, "billing", &orders, 0, Start::Offset(8)).unwrap(), 8);
        assert_eq!(open(&store, &orders).committed("orders", 0).unwrap(), 8, "{serial}");
    }
}

#[test]
fn a_start_counts_once_and_not_with_each_opening() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 4);
    let latest = |n: u64| {
        let opened =
            GroupMember::open(&store, "billing", from_ref(&orders), Start::Latest).unwrap();
        assert_eq!(opened.next("orders", 0).unwrap(), 4, "opened for the {n}. time");
    };
    latest(1);
    append(&orders, 0, 4);
    latest(2);
}

#[test]
fn commits_and_reopening_do_not_make_the_file_grow() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 3);
    append(&orders, 0, 100);
    drop(open(&store, &orders));
    let len = bytes_of(&machine).len();
    for round in 0..5 {
        let mut billing = open(&store, &orders);
        for offset in round * 20..round * 20 + 20 {
            billing.commit("orders", 0, offset, round % 2 == 0).unwrap();
        }
    }
    assert_eq!(bytes_of(&machine).len(), len);
}

#[test]
fn a_topic_that_was_deleted_and_made_anew_is_begun_anew_in_the_place_of_the_old_one() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 10, false).unwrap();
    drop(billing);
    let len = bytes_of(&machine).len();
    drop(orders);
    store.delete_topic("orders").unwrap();
    let orders = topic(&store, 1);
    append(&orders, 0, 20);
    assert_eq!(open(&store, &orders).next("orders", 0).unwrap(), 0);
    assert_eq!(bytes_of(&machine).len(), len);
}

#[test]
fn what_cannot_be_committed_is_refused_and_changes_nothing() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let orders = topic(&store, 1);
        append(&orders, 0, 3);
        let mut billing = open(&store, &orders);
        let before = bytes_of(&machine);
        let past = billing.commit("orders", 0, 4, false).unwrap_err();
        assert!(matches!(past, Error::OffsetOutOfRange { offset: 4, end: 3, .. }), "{past}");
        for foreign in [("audit", 0), ("orders", 1)] {
            let error = billing.commit(foreign.0, foreign.1, 1, false).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        }
        assert!(billing.seek("orders", 0, Start::Offset(9)).is_err());
        for name in ["", "..", "a/b", "a@b"] {
            let error =
                GroupMember::open(&store, name, from_ref(&orders), Start::Earliest).unwrap_err();
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
        let none = GroupMember::open(&store, "billing", &[], Start::Earliest).unwrap_err();
        assert!(matches!(none, Error::InvalidArgument { .. }), "{none}");
        let twice = [orders.clone(), orders.clone()];
        assert!(GroupMember::open(&store, "billing", &twice, Start::Earliest).is_err());
        assert_eq!(bytes_of(&machine), before);
        assert_eq!(machine.list(Path::new("/store/consumers")).unwrap(), ["billing"]);
    }
}

#[test]
fn a_cursor_of_which_the_log_knows_nothing_any_more_is_an_error_until_somebody_seeks() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    orders.flush().unwrap();
    let older = machine.restart();
    append(&orders, 0, 10);
    orders.flush().unwrap();
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 20, true).unwrap();
    let cursors = bytes_of(&machine);

    // An older copy of the log, beside the group's file as it was.
    let file = Path::new("/store/consumers/billing");
    let copied = older.open(file, OpenMode::CreateNew(0o600)).unwrap();
    copied.write_at(&cursors, 0).unwrap();
    older.set_now_us(1_800_000_000_000_000);
    for regrown in [0, 20] {
        let store = self::store(&older);
        let orders = topic(&store, 1);
        append(&orders, 0, regrown);
        let billing = open(&store, &orders);
        let error = billing.parts().unwrap_err();
        assert!(matches!(error, Error::LogTruncated { offset: 20, .. }), "{error}");
        assert!(error.to_string().contains("seek"));
    }
    let store = self::store(&older);
    let mut billing = open(&store, &topic(&store, 1));
    assert_eq!(billing.seek("orders", 0, Start::Offset(10)).unwrap(), 10);
    assert_eq!(billing.parts().unwrap()[0].next, 10);
    billing.rewind();
    assert!(billing.parts().is_err(), "the committed offset must be unknown");
    drop(billing);

    // A seek to its very offset: it is another record.
    let mut billing = open(&store, &topic(&store, 1));
    assert_eq!(billing.seek("orders", 0, Start::Offset(20)).unwrap(), 20);
    assert_eq!(billing.uncommitted().unwrap().len(), 1);
    billing.commit_all(false).unwrap();
    assert!(billing.uncommitted().unwrap().is_empty());
    drop((billing, store));
    let store = self::store(&older.restart());
    assert_eq!(open(&store, &topic(&store, 1)).parts().unwrap()[0].next, 20);
}

#[test]
fn retention_waits_where_the_log_has_other_records_than_were_committed() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    orders.flush().unwrap();
    let older = machine.restart();
    append(&orders, 0, 10);
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 20, false).unwrap();

    // As a power failure leaves it that kept the group's file, and lost the end of the log.
    let file = Path::new("/store/consumers/billing");
    let copied = older.open(file, OpenMode::CreateNew(0o600)).unwrap();
    copied.write_at(&bytes_of(&machine), 0).unwrap();
    older.set_now_us(1_800_000_000_000_000);
    let store = self::store(&older);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    orders.flush().unwrap();
    let limit = RetentionChange::default().records(1).waits(true);
    store.configure_topic("orders", &limit, None).unwrap();
    store.maintain(false).unwrap();
    assert!(orders.first(0).unwrap() <= 10, "the group may have to read the new ones");
}

#[test]
fn what_was_trimmed_is_told_by_the_reader_and_retention_can_ask_before() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 4, true).unwrap();
    let needs = store.needs(&orders.settings().generation).unwrap();
    assert_eq!((needs.len(), needs[0].offset), (1, 4));
    drop(billing);
    orders.trim(&[(0, 6)]).unwrap();
    let billing = open(&store, &orders);
    assert_eq!(billing.lag("orders", 0).unwrap(), 4);
    let next = billing.next("orders", 0).unwrap();
    let error = orders.scan_partition(0, next, None).unwrap_err();
    assert!(matches!(error, Error::OffsetOutOfRange { offset: 4, first: 6, end: 10, .. }));
}

#[test]
fn what_was_delivered_can_be_committed_also_when_a_trim_has_passed_it() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    let mut billing = open(&store, &orders);
    orders.trim(&[(0, 6)]).unwrap();
    for (offset, durable) in [(3, false), (4, true)] {
        billing.commit("orders", 0, offset, durable).unwrap();
        assert_eq!(billing.committed("orders", 0).unwrap(), offset);
    }
    let beyond = billing.commit("orders", 0, 11, false).unwrap_err();
    assert!(matches!(beyond, Error::OffsetOutOfRange { offset: 11, end: 10, .. }));
    drop(billing);
    // Records that were not read and have expired are an error when it reads on, and not skipped
    // silently.
    let next = open(&store, &orders).next("orders", 0).unwrap();
    let error = orders.scan_partition(0, next, None).unwrap_err();
    assert!(matches!(error, Error::OffsetOutOfRange { offset: 4, first: 6, end: 10, .. }));
}

#[test]
fn a_member_commits_behind_records_that_were_trimmed_since_its_last_commit() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    let wide = [0; 2000];
    for _ in 0..100 {
        orders.append_to(0, &NewRecord::new(&wide), Some(SyncMode::None)).unwrap();
    }
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 5, false).unwrap();
    orders.trim(&[(0, 90)]).unwrap();
    // Near the last position, and segments that are gone lie between them.
    for offset in [89, 90, 93, 94, 100] {
        billing.commit("orders", 0, offset, offset == 100).unwrap();
        assert_eq!(billing.committed("orders", 0).unwrap(), offset);
    }
    drop((billing, orders, store));
    let store = self::store(&machine.restart());
    assert_eq!(open(&store, &topic(&store, 1)).next("orders", 0).unwrap(), 100);
}

#[test]
fn a_consumer_is_listed_reset_and_deleted_only_while_nobody_has_it_open() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let orders = topic(&store, 1);
        append(&orders, 0, 10);
        let mut billing = open(&store, &orders);
        billing.commit("orders", 0, 4, true).unwrap();
        let other = store_in(&machine.process(), mode);
        let theirs = topic(&other, 1);
        let found = list_groups(&other).unwrap();
        let cursors = found[0].cursors.as_ref().unwrap();
        assert_eq!((found.len(), found[0].members.len()), (1, 1));
        assert_eq!((cursors[0].committed, cursors[0].safe), (4, 4));
        assert_eq!(cursors[0].owner, Some(found[0].members[0]));
        for (refused, helps) in [
            (
                seek_group(&other, "billing", &theirs, 0, Start::Latest).unwrap_err(),
                "close it there first, or seek there",
            ),
            (delete_group(&other, "billing").unwrap_err(), "close it there first"),
        ] {
            assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
            assert!(refused.to_string().ends_with(helps), "{refused}");
        }
        let nobody = delete_group(&other, "nobody").unwrap_err();
        assert!(matches!(nobody, Error::UnknownGroup { .. }), "{nobody}");
        drop(billing);
        assert_eq!(seek_group(&other, "billing", &theirs, 0, Start::Latest).unwrap(), 10);
        assert_eq!(open(&store, &orders).next("orders", 0).unwrap(), 10);
        delete_group(&other, "billing").unwrap();
        assert!(list_groups(&store).unwrap().is_empty());
    }
}

#[test]
fn damage_to_one_cursor_costs_that_commit_and_to_both_is_an_error_that_a_reset_ends() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 4, true).unwrap();
    billing.commit("orders", 0, 5, true).unwrap();
    drop(billing);
    let file = machine.open(Path::new("/store/consumers/billing"), OpenMode::ReadWrite).unwrap();
    let newest = 8192 + 512;
    file.write_at(&[0xff; 8], newest).unwrap();
    assert_eq!(open(&store, &orders).next("orders", 0).unwrap(), 4);
    file.write_at(&[0xff; 8], newest).unwrap();
    file.write_at(&[0xff; 8], newest + 512).unwrap();
    let hurt =
        GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest).unwrap_err();
    assert!(matches!(hurt, Error::CorruptData { position: 8704, .. }), "{hurt}");
    let listed = list_groups(&store).unwrap().remove(0).cursors.unwrap_err();
    assert!(matches!(listed, Error::CorruptData { position: 8704, .. }), "{listed}");
    seek_group(&store, "billing", &orders, 0, Start::Offset(3)).unwrap();
    assert_eq!(open(&store, &orders).next("orders", 0).unwrap(), 3);
}

/// The name is for users: the cursors also say which topic an entry is for.
#[test]
fn damage_to_the_name_of_what_is_read_hides_no_cursor() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 5, true).unwrap();
    drop(billing);
    let hurt = || {
        let file =
            machine.open(Path::new("/store/consumers/billing"), OpenMode::ReadWrite).unwrap();
        file.write_at(&[0xff; 3], 8192 + 24).unwrap();
    };
    let listed = || {
        let cursors = list_groups(&store).unwrap().remove(0).cursors.unwrap();
        cursors.into_iter().map(|c| (c.topic, c.committed)).collect::<Vec<_>>()
    };
    hurt();
    assert_eq!(listed(), [("orders".to_owned(), 5)]);
    seek_group(&store, "billing", &orders, 0, Start::Offset(3)).unwrap();
    assert_eq!(listed(), [("orders".to_owned(), 3)]);
    let latest = GroupMember::open(&store, "billing", from_ref(&orders), Start::Latest).unwrap();
    assert_eq!(latest.next("orders", 0).unwrap(), 3);
}

#[test]
fn a_cursor_being_stored_is_not_reported_as_corrupt_and_one_that_stays_torn_is() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    let mut billing = open(&store, &orders);
    billing.commit("orders", 0, 5, true).unwrap();
    drop(billing);
    let path = Path::new("/store/consumers/billing");
    // The group's member, another process.
    let file = machine.process().open(path, OpenMode::ReadWrite).unwrap();
    let at = 8192 + 512;
    let mut cursors = [0; 1024];
    file.read_at(&mut cursors, at).unwrap();
    let mut torn = cursors;
    for half in torn.chunks_exact_mut(512).filter(|half| half.iter().any(|byte| *byte != 0)) {
        half[8] ^= 1;
    }
    assert_ne!(torn, cursors);
    let listed = || list_groups(&store).unwrap().remove(0).cursors.err();
    let needed = || store.needs(&orders.settings().generation).err();
    let maintained = || store.maintain(true).unwrap().problems.pop();
    let looks: [&dyn Fn() -> Option<Error>; 3] = [&listed, &needed, &maintained];
    let calls = Arc::new(AtomicU32::new(0));
    let last = Arc::new(AtomicU32::new(u32::MAX));
    let (counted, ends) = (Arc::clone(&calls), Arc::clone(&last));
    let member = Arc::clone(&file);
    machine.watch(move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) == ends.load(Ordering::Relaxed) {
            member.write_at(&cursors, at).unwrap();
        }
    });
    for look in looks {
        file.write_at(&cursors, at).unwrap();
        calls.store(0, Ordering::Relaxed);
        assert!(look().is_none());
        let whole = calls.load(Ordering::Relaxed);
        file.write_at(&torn, at).unwrap();
        calls.store(0, Ordering::Relaxed);
        assert!(matches!(look(), Some(Error::CorruptData { position: 8704, .. })));
        assert!(calls.load(Ordering::Relaxed) > whole, "it must look again");
    }
    // With its first call after those that a look at whole cursors takes, the look lets the member
    // end.
    file.write_at(&cursors, at).unwrap();
    calls.store(0, Ordering::Relaxed);
    assert!(listed().is_none());
    last.store(calls.load(Ordering::Relaxed), Ordering::Relaxed);
    file.write_at(&torn, at).unwrap();
    calls.store(0, Ordering::Relaxed);
    assert!(listed().is_none());
}

#[test]
fn a_start_that_is_none_makes_no_consumer_and_is_not_asked_where_there_is_a_cursor() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&orders, 0, 10);
    let at = |offset: u64| {
        GroupMember::open(&store, "billing", from_ref(&orders), Start::Offset(offset))
    };
    let error = at(11).unwrap_err();
    assert!(matches!(error, Error::OffsetOutOfRange { offset: 11, .. }), "{error}");
    assert!(list_groups(&store).unwrap().is_empty());
    assert_eq!(at(2).unwrap().next("orders", 0).unwrap(), 2);
    orders.trim(&[(0, 5)]).unwrap();
    let mut billing = at(2).unwrap();
    assert_eq!(billing.seek("orders", 0, Start::Last(3)).unwrap(), 7);
    assert_eq!(billing.seek("orders", 0, Start::Last(99)).unwrap(), 5);
}
