//! Callbacks around a change of partitions, and groups that read all topics of a pattern.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use falaj::internals::consumer::{Announcement, TopicPattern, forget_topic};
use falaj::internals::format::consumer::ENTRY_LEN;
use falaj::internals::topic::Visibility;
use falaj::{Consumer, ConsumerBuilder};

use super::*;

type Heard = Arc<Mutex<Vec<(&'static str, Vec<(String, u32)>)>>>;

/// Note what the callbacks get.
fn hearing(builder: ConsumerBuilder, heard: &Heard) -> ConsumerBuilder {
    let note = |what: &'static str| {
        let heard = Arc::clone(heard);
        move |_: &mut Consumer, parts: &[(String, u32)]| {
            heard.lock().unwrap().push((what, parts.to_vec()));
            Ok(())
        }
    };
    builder.on_assign(note("assign")).on_revoke(note("revoke"))
}

/// Poll these until a condition holds.
fn poll_until(members: &mut [&mut Consumer], is_so: impl Fn(&[&mut Consumer]) -> bool) {
    let began = Instant::now();
    while !is_so(members) {
        assert!(began.elapsed() < Duration::from_secs(30), "{members:?}");
        for member in &mut *members {
            member.poll(Duration::from_millis(1)).unwrap();
        }
    }
}

fn named(store: &Store, name: &str, partitions: u32) -> Topic {
    store.topic_options(name).partitions(partitions).segment_bytes(64 << 10).open().unwrap()
}

fn matching(store: &Store, pattern: &str) -> GroupMember {
    let (pattern, how) =
        (TopicPattern::new(pattern).unwrap(), (Visibility::default(), Start::Latest));
    GroupMember::open_matching(store, "billing", &pattern, how, None).unwrap()
}

fn reads(member: &GroupMember) -> Vec<(String, u32, u64)> {
    let part = |part: &falaj::internals::consumer::GroupPartition| {
        (member.topics()[part.topic].name().to_owned(), part.partition, part.next)
    };
    let mut parts: Vec<_> = member.parts().unwrap().iter().map(part).collect();
    parts.sort();
    parts
}

fn looks(member: &mut GroupMember) {
    member.look_for_topics();
    member.refresh().unwrap();
}

#[test]
fn a_commit_in_on_revoke_counts_and_nothing_is_delivered_twice_when_a_member_joins() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let orders = topic(&store, 2);
        append(&orders, 0, 3);
        append(&orders, 1, 3);
        let heard = Heard::default();
        let builder = store.consumer_options("billing", ["orders"]);
        let heard_now = Arc::clone(&heard);
        let mut first = hearing(builder, &heard)
            .on_revoke(move |member, parts| {
                heard_now.lock().unwrap().push(("revoke", parts.to_vec()));
                member.commit()
            })
            .open()
            .unwrap();
        for _ in 0..6 {
            first.poll(None).unwrap().unwrap();
        }
        assert_eq!(first.lag("orders", 0).unwrap() + first.lag("orders", 1).unwrap(), 6);
        let mut second = store.consumer("billing", ["orders"]).unwrap();
        // Only callbacks commit.
        poll_until(&mut [&mut first, &mut second], |all| all[1].assignment().len() == 1);
        let moved = second.assignment()[0].1;
        assert_eq!(second.poll(Duration::ZERO).unwrap().map(|found| found.offset()), None);
        assert_eq!(second.committed("orders", moved).unwrap(), 3, "the commit must not be lost");
        let told = heard.lock().unwrap().clone();
        let both = vec![("orders".to_owned(), 0), ("orders".to_owned(), 1)];
        // On a busy machine it may get the partition back before the other one took it.
        let gone = vec![("orders".to_owned(), moved)];
        let mut expected = vec![("assign", both), ("revoke", gone.clone())];
        while expected.len() < told.len() {
            expected.extend([("assign", gone.clone()), ("revoke", gone.clone())]);
        }
        assert_eq!(told, expected);
        first.close().unwrap();
        let left = heard.lock().unwrap().last().cloned().unwrap();
        assert_eq!(left, ("revoke", vec![("orders".to_owned(), 1 - moved)]));
    }
}

#[test]
fn a_partition_is_released_only_after_its_release_was_announced() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let orders = topic(&store, 2);
        let mut first = open(&store, &orders);
        first.announce();
        let both = vec![("orders".to_owned(), 0), ("orders".to_owned(), 1)];
        assert_eq!(first.announcement(), Some(Announcement::Assigned(both)));
        let mut second = open(&store, &orders);
        for _ in 0..3 {
            first.refresh().unwrap();
            second.refresh().unwrap();
            assert_eq!((first.held_parts().len(), second.held_parts().len()), (2, 0));
        }
        let Some(Announcement::Revoked(parts)) = first.announcement() else { panic!("{first:?}") };
        assert_eq!((parts.len(), first.announcement()), (1, None));
        first.commit("orders", parts[0].1, 0, false).unwrap();
        // The asker dies: what was announced is released all the same, and assigned again.
        drop(second);
        let again = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1)); // sleep: it asks every 20 ms
            first.refresh().unwrap();
            first.announcement()
        });
        assert_eq!(again, Some(Announcement::Assigned(parts)), "each release has its announcement");
        assert_eq!(first.held_parts().len(), 2);
    }
}

#[test]
fn an_error_in_a_callback_ends_the_poll_and_loses_no_record() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    append(&topic(&store, 1), 0, 2);
    let builder = store.consumer_options("billing", ["orders"]);
    let mut billing = builder
        .on_assign(|_, _| Err(Error::InvalidArgument { what: "not today".to_owned() }))
        .open()
        .unwrap();
    let error = billing.poll(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("not today"), "{error}");
    assert_eq!(billing.poll(Duration::ZERO).unwrap().unwrap().offset(), 0);
}

#[test]
fn a_callback_may_seek_in_what_it_got() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    append(&topic(&store, 1), 0, 5);
    let builder = store.consumer_options("billing", ["orders"]);
    let mut billing = builder
        .on_assign(|billing, parts| {
            parts.iter().try_for_each(|(topic, part)| billing.seek(topic, *part, 3..).map(drop))
        })
        .open()
        .unwrap();
    assert_eq!(billing.poll(Duration::ZERO).unwrap().unwrap().offset(), 3);
}

#[test]
fn a_topic_created_later_joins_every_member_from_its_first_record() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let mut billing = matching(&store, "orders.*");
        assert_eq!(reads(&billing), []);
        append(&named(&store, "orders.eu", 2), 1, 4);
        append(&named(&store, "refunds", 1), 0, 4);
        let mut other = matching(&store, "orders.*");
        looks(&mut billing);
        let has = |member: &GroupMember| member.held_parts().len();
        for _ in 0..1000 {
            billing.refresh().unwrap();
            other.refresh().unwrap();
            if (has(&billing), has(&other)) == (1, 1) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1)); // sleep: members ask every 20 ms
        }
        assert_eq!((has(&billing), has(&other)), (1, 1));
        append(&named(&store, "orders.us", 1), 0, 4);
        // One finds it, and the other hears of it at its next refresh.
        looks(&mut billing);
        other.refresh().unwrap();
        let of = |topics: &[Topic]| topics.iter().map(|topic| topic.name().to_owned()).collect();
        let both: Vec<Vec<String>> = vec![of(billing.topics()), of(other.topics())];
        assert!(both.iter().all(|names| names.len() == 2), "{both:?}");
        let us: Vec<_> = reads(&billing)
            .into_iter()
            .chain(reads(&other))
            .filter(|p| p.0 == "orders.us")
            .collect();
        assert_eq!(us, [("orders.us".to_owned(), 0, 0)], "`start` is for topics of before");
    }
}

#[test]
fn a_deleted_topic_leaves_a_pattern_and_the_others_stay_where_they_are() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let store = store_in(&machine, mode);
        let heard = Heard::default();
        for name in ["orders.eu", "orders.us"] {
            append(&named(&store, name, 1), 0, 2);
        }
        let mut billing =
            hearing(store.consumer_matching("billing", "orders.*"), &heard).open().unwrap();
        for _ in 0..4 {
            billing.poll(Duration::ZERO).unwrap().unwrap();
        }
        store.delete_topic("orders.eu").unwrap();
        append(&store.topic("orders.us").unwrap(), 0, 1);
        // It finds out while it reads, whatever it looks at first.
        let found = billing.poll(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!((found.topic(), found.offset()), ("orders.us", 2));
        poll_until(&mut [&mut billing], |all| all[0].assignment() == [("orders.us", 0)]);
        let eu = vec![("orders.eu".to_owned(), 0)];
        assert_eq!(heard.lock().unwrap().last(), Some(&("revoke", eu.clone())));
        billing.commit_durable().unwrap();
        // Another topic of this name is another topic.
        append(&named(&store, "orders.eu", 1), 0, 1);
        let again = billing.poll(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!((again.topic(), again.offset()), ("orders.eu", 0));
        assert_eq!(heard.lock().unwrap().last(), Some(&("assign", eu)));
    }
}

#[test]
fn members_with_another_pattern_or_a_list_of_topics_are_refused() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    let of_pattern = |pattern: &str| store.consumer_matching("billing", pattern).open();
    let living = of_pattern("o*").unwrap();
    for refused in [of_pattern("ord*").map(drop), store.consumer("billing", ["orders"]).map(drop)] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("other topics or another pattern"), "{error}");
    }
    of_pattern("o*").unwrap().close().unwrap();
    let error = forget_topic(&store, "billing", "orders").unwrap_err().to_string();
    assert!(error.contains("reads topic \"orders\""), "{error}");
    drop(living);
    // The committed offsets are of the topics, whatever named them.
    let listed = open(&store, &orders);
    assert!(of_pattern("o*").unwrap_err().to_string().contains("another pattern"));
    drop(listed);
}

#[test]
fn a_member_that_is_refused_leaves_the_group_as_it_was() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 1);
    append(&named(&store, "audit", 1), 0, 3);
    let living = open(&store, &orders);
    let read = || {
        let group =
            store.groups().unwrap().into_iter().find(|group| group.name == "billing").unwrap();
        group.cursors.unwrap().into_iter().map(|part| part.topic).collect::<Vec<_>>()
    };
    let before = read();
    for refused in [
        store.consumer("billing", ["orders", "audit"]).map(drop),
        store.consumer("billing", ["audit"]).map(drop),
        store.consumer_matching("billing", "*").open().map(drop),
    ] {
        assert!(refused.unwrap_err().to_string().contains("other topics or another pattern"));
        assert_eq!(read(), before);
    }
    drop(living);
}

#[test]
fn an_entry_of_a_deleted_topic_is_not_used_again_while_another_member_may_know_it() {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    append(&named(&store, "orders.eu", 1), 0, 3);
    let mut first = matching(&store, "orders.*");
    let mut second = matching(&store, "orders.*");
    let one_entry = bytes_of(&machine).len();
    store.delete_topic("orders.eu").unwrap();
    append(&named(&store, "orders.us", 1), 0, 3);
    looks(&mut first);
    assert_eq!(bytes_of(&machine).len(), one_entry + ENTRY_LEN as usize, "a new entry");
    // `second` still knows the deleted topic's entry, and claims nothing there.
    second.refresh().unwrap();
    assert_eq!(reads(&first).len() + reads(&second).len(), 1);
    drop(second);
    let before = bytes_of(&machine).len();
    store.delete_topic("orders.us").unwrap();
    append(&named(&store, "orders.it", 1), 0, 3);
    looks(&mut first);
    assert_eq!(reads(&first), [("orders.it".to_owned(), 0, 0)]);
    assert_eq!(bytes_of(&machine).len(), before, "alone it uses an entry again");
}
