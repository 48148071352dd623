//! A consumer group forgets one topic: in all partitions or in none, whatever process dies and
//! when.

use falaj::internals::consumer::forget_topic;

use super::*;

/// The clock moves, as real ones do: after the crash it is later.
const LATER_US: i64 = 1_800_000_000_000_000;
const READ: u64 = 4;
const END: u64 = 6;

/// The place of a group's committed offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    InFile,
    InLog,
}

const BOTH: [Kept; 2] = [Kept::InFile, Kept::InLog];

fn named(store: &Store, name: &str) -> Topic {
    let options = TopicOptions {
        partitions: Some(if name == "refunds" { 3 } else { 2 }),
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap()
}

fn join(store: &Store, kept: Kept, topics: &[&str], start: Start) -> GroupMember {
    let topics: Vec<_> = topics.iter().map(|name| named(store, name)).collect();
    match kept {
        Kept::InFile => GroupMember::open(store, "billing", &topics, start),
        Kept::InLog => {
            GroupMember::open_in(store, "billing", &topics, start, &named(store, "sums"))
        }
    }
    .unwrap()
}

/// A group that read both topics; its committed offsets and the records are on the disk.
fn having_read_both(machine: &MemoryStorage, mode: WriteMode, kept: Kept) -> Store {
    let store = store_in(machine, mode);
    for name in ["orders", "refunds"] {
        let topic = named(&store, name);
        (0..topic.partitions()).for_each(|partition| append(&topic, partition, END));
        topic.flush().unwrap();
    }
    let mut billing = join(&store, kept, &["orders", "refunds"], Start::Earliest);
    for (name, partitions) in [("orders", 2), ("refunds", 3)] {
        for partition in 0..partitions {
            billing.commit(name, partition, READ, true).unwrap();
        }
    }
    billing.close().unwrap();
    store
}

/// The committed offsets of the group, as listed for users.
fn listed(store: &Store) -> Vec<(String, u32, u64)> {
    let listed = list_groups(store).unwrap();
    let cursors = listed[0].cursors.as_ref().unwrap().iter();
    cursors.map(|cursor| (cursor.topic.clone(), cursor.partition, cursor.committed)).collect()
}

fn of_orders() -> Vec<(String, u32, u64)> {
    [0, 1].map(|partition| ("orders".to_owned(), partition, READ)).into()
}

fn needs(store: &Store, name: &str) -> usize {
    store.needs(&named(store, name).settings().generation).unwrap().len()
}

/// Where a member begins that reads both topics; new topics start at their ends.
fn begins(store: &Store, kept: Kept) -> (Vec<u64>, Vec<u64>) {
    let billing = join(store, kept, &["orders", "refunds"], Start::Latest);
    let next = |name, partitions: u32| {
        (0..partitions).map(|partition| billing.next(name, partition).unwrap()).collect()
    };
    (next("orders", 2), next("refunds", 3))
}

#[test]
fn a_forgotten_topic_is_known_to_nothing_and_the_others_stay_where_they_are() {
    for (mode, kept) in MODES.into_iter().flat_map(|mode| BOTH.map(|kept| (mode, kept))) {
        let machine = MemoryStorage::new();
        let store = having_read_both(&machine, mode, kept);
        assert_eq!((listed(&store).len(), needs(&store, "refunds")), (5, 3));
        assert_eq!(forget_topic(&store, "billing", "refunds").unwrap(), 3);
        assert_eq!(listed(&store), of_orders(), "{mode:?}, {kept:?}");
        assert_eq!((needs(&store, "refunds"), needs(&store, "orders")), (0, 2));
        assert_eq!(begins(&store, kept), (vec![READ; 2], vec![END; 3]), "{mode:?}, {kept:?}");
        drop(store);
        let store = store_in(&machine.restart(), mode);
        assert_eq!(begins(&store, kept), (vec![READ; 2], vec![END; 3]), "and it must stay so");
    }
}

#[test]
fn forgetting_and_reading_again_does_not_make_the_file_grow() {
    for kept in BOTH {
        let machine = MemoryStorage::new();
        let store = having_read_both(&machine, WriteMode::Mapped, kept);
        let len = bytes_of(&machine).len();
        for _ in 0..3 {
            forget_topic(&store, "billing", "refunds").unwrap();
            assert_eq!(begins(&store, kept).1, [END; 3]);
            forget_topic(&store, "billing", "orders").unwrap();
            assert_eq!(begins(&store, kept).0, [END; 2]);
        }
        assert_eq!(bytes_of(&machine).len(), len, "{kept:?}");
    }
}

#[test]
fn a_topic_that_a_living_member_reads_is_not_forgotten_and_that_process_is_named() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = having_read_both(&machine, mode, Kept::InFile);
        let other = machine.process();
        let living = store_in(&other, mode);
        // More members than partitions: the last one owns none, and still reads the topics.
        let members: Vec<_> = (0..6)
            .map(|_| join(&living, Kept::InFile, &["orders", "refunds"], Start::Earliest))
            .collect();
        let spare = members.into_iter().next_back();
        let error = forget_topic(&store, "billing", "refunds").unwrap_err();
        let says = format!("process {}", std::process::id());
        let is_it = matches!(&error, Error::InvalidArgument { what } if what.starts_with(&says));
        assert!(is_it && error.to_string().contains("reads topic \"refunds\""), "{error}");
        assert_eq!(listed(&store).len(), 5);
        drop(spare);
        // A dead member does not count.
        let died = join(&living, Kept::InFile, &["orders", "refunds"], Start::Earliest);
        other.kill();
        std::mem::forget((died, living));
        assert_eq!(forget_topic(&store, "billing", "refunds").unwrap(), 3);
    }
}

#[test]
fn a_topic_that_the_living_members_do_not_read_is_forgotten_beside_them() {
    for (mode, kept) in MODES.into_iter().flat_map(|mode| BOTH.map(|kept| (mode, kept))) {
        let machine = MemoryStorage::new();
        let store = having_read_both(&machine, mode, kept);
        let living = store_in(&machine.process(), mode);
        let mut billing = join(&living, kept, &["orders"], Start::Earliest);
        assert_eq!(forget_topic(&store, "billing", "refunds").unwrap(), 3);
        forget_topic(&store, "billing", "orders").unwrap_err();
        billing.commit("orders", 1, READ + 1, true).unwrap();
        // Freed entries go to another topic, beside members that own the others.
        drop(join(&store, kept, &["orders"], Start::Earliest));
        assert_eq!(billing.committed("orders", 1).unwrap(), READ + 1);
        drop(billing);
        assert_eq!(begins(&store, kept), (vec![READ, READ + 1], vec![END; 3]));
    }
}

#[test]
fn a_topic_that_was_deleted_is_forgotten_by_its_name() {
    for kept in BOTH {
        let machine = MemoryStorage::new();
        let store = having_read_both(&machine, WriteMode::Mapped, kept);
        store.delete_topic("refunds").unwrap();
        assert_eq!(listed(&store).len(), 5);
        assert_eq!(forget_topic(&store, "billing", "refunds").unwrap(), 3);
        assert_eq!(listed(&store), of_orders());
    }
}

#[test]
fn what_the_group_never_read_is_said_and_nothing_changes() {
    let machine = MemoryStorage::new();
    let store = having_read_both(&machine, WriteMode::Mapped, Kept::InFile);
    named(&store, "sums");
    for topic in ["sums", "nothing"] {
        let error = forget_topic(&store, "billing", topic).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidArgument { what } if what.contains(topic)),
            "{error}"
        );
    }
    let error = forget_topic(&store, "nobody", "orders").unwrap_err();
    assert!(matches!(error, Error::UnknownGroup { .. }), "{error}");
    let error = forget_topic(&store, "billing", "../orders").unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    assert_eq!(listed(&store).len(), 5);
}

/// A crash leaves all of the topic's offsets or none, and every opening of the group agrees.
fn expect_all_or_none(image: &MemoryStorage, kept: Kept, story: &str) -> bool {
    image.set_now_us(LATER_US);
    let store = store(image);
    let before = listed(&store);
    assert_eq!(before[..2], of_orders(), "{story}");
    let is_forgotten = before.len() == 2;
    assert!(is_forgotten || before.len() == 5, "{story}: {before:?}");
    assert_eq!(needs(&store, "refunds"), if is_forgotten { 0 } else { 3 }, "{story}");
    let refunds = vec![if is_forgotten { END } else { READ }; 3];
    assert_eq!(begins(&store, kept), (vec![READ; 2], refunds), "{story}");
    assert_eq!(forget_topic(&store, "billing", "refunds").unwrap(), 3, "{story}");
    assert_eq!(begins(&store, kept), (vec![READ; 2], vec![END; 3]), "{story}");
    is_forgotten
}

/// Forget a topic; return the events at which that began and ended.
fn forgetting(machine: &MemoryStorage, kept: Kept) -> [usize; 2] {
    let store = having_read_both(machine, WriteMode::Mapped, kept);
    let began = machine.events();
    forget_topic(&store, "billing", "refunds").unwrap();
    let ended = machine.events();
    std::mem::forget(store);
    [began, ended]
}

#[test]
fn a_death_anywhere_in_forgetting_leaves_all_partitions_or_none() {
    for kept in BOTH {
        let machine = MemoryStorage::new();
        let [began, ended] = forgetting(&machine, kept);
        let journal = machine.journal();
        let forgotten: Vec<_> = (began..=ended)
            .map(|time| {
                let image = journal.killed_at(time);
                expect_all_or_none(&image, kept, &format!("{kept:?}, killed at {time}"))
            })
            .collect();
        assert!(
            !forgotten[0] && forgotten.is_sorted() && forgotten[ended - began],
            "{forgotten:?}"
        );
    }
}

#[test]
fn a_power_cut_anywhere_in_forgetting_leaves_all_partitions_or_none_and_what_was_said_stays() {
    for kept in BOTH {
        let machine = MemoryStorage::new();
        let [began, ended] = forgetting(&machine, kept);
        let mut seen = [0; 2];
        for crash in machine.journal().crashes_from(began).step_by(every(3)) {
            crash.explore(12, 7, |selection, image| {
                let story = format!("{kept:?}, {}", crash.describe(selection));
                let forgotten = expect_all_or_none(&image, kept, &story);
                assert!(forgotten || crash.time() < ended, "{story}: it was reported done");
                seen[usize::from(forgotten)] += 1;
            });
        }
        assert!(seen.iter().all(|count| *count > 5), "{kept:?}: {seen:?}");
    }
}

#[test]
fn a_death_or_a_power_cut_while_a_forgotten_topic_is_read_again_brings_no_old_offset_back() {
    for kept in BOTH {
        let machine = MemoryStorage::new();
        let store = having_read_both(&machine, WriteMode::Mapped, kept);
        forget_topic(&store, "billing", "refunds").unwrap();
        let began = machine.events();
        std::mem::forget(join(&store, kept, &["orders", "refunds"], Start::Latest));
        std::mem::forget(store);
        let journal = machine.journal();
        let check = |image: &MemoryStorage, story: &str| {
            image.set_now_us(LATER_US);
            let store = self::store(image);
            assert_eq!(begins(&store, kept), (vec![READ; 2], vec![END; 3]), "{story}");
        };
        for time in (began..=journal.len()).step_by(every(3)) {
            check(&journal.killed_at(time), &format!("{kept:?}, killed at {time}"));
        }
        for crash in journal.crashes_from(began).step_by(every(11)) {
            crash.explore(8, 3, |selection, image| check(&image, &crash.describe(selection)));
        }
    }
}

#[test]
fn an_error_anywhere_in_forgetting_leaves_all_or_none_and_the_next_call_ends_it() {
    use falaj_twin::faulty::{FailureKind, Fault, FaultyStorage};
    for kept in BOTH {
        for nth in 1.. {
            let machine = MemoryStorage::new();
            drop(having_read_both(&machine, WriteMode::Mapped, kept));
            let faulty = FaultyStorage::over_memory(machine.clone());
            let options = StoreOptions::default();
            let store = Store::open_on(Arc::new(faulty.clone()), ROOT, &options).unwrap();
            faulty.plan(Fault::at(faulty.total() + nth, FailureKind::Errno(libc::ENOMEM)));
            let first = forget_topic(&store, "billing", "refunds");
            let struck = faulty.failed() > 0;
            faulty.heal();
            let left = listed(&store).len();
            assert!(left == 2 || (left == 5 && first.is_err()), "{kept:?}, call {nth}: {left}");
            if first.is_err() {
                let again = forget_topic(&store, "billing", "refunds");
                assert!(again.is_ok() || left == 2, "{kept:?}, call {nth}: {again:?}");
            }
            assert_eq!(listed(&store), of_orders(), "{kept:?}, call {nth}");
            assert_eq!(begins(&store, kept).1, [END; 3], "{kept:?}, call {nth}");
            if !struck {
                assert!(nth > 10, "nothing failed");
                break;
            }
        }
    }
}
