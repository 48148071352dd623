//! Reading and committing as a member: pauses, batches, automatic commits, corruption, finished and deleted topics.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj::internals::consumer::{GroupReader, Waiting};
use falaj::internals::topic::Transaction;
use falaj::{Consumer, NewRecord, RecordBatch};

use super::*;

const NOW: Duration = Duration::ZERO;

/// A store with equal records in both partitions of "orders", and in the one of "audit".
fn filled(records: u64) -> (MemoryStorage, Store) {
    let machine = MemoryStorage::new();
    let store = store(&machine);
    let orders = topic(&store, 2);
    let audit = store.topic_options("audit").segment_bytes(64 << 10).open().unwrap();
    for (topic, partition) in [(&orders, 0), (&orders, 1), (&audit, 0)] {
        append(topic, partition, records);
    }
    (machine, store)
}

/// Read all that is there, and return the offsets by topic and partition.
fn read(consumer: &mut Consumer) -> BTreeMap<(String, u32), Vec<u64>> {
    let mut found = BTreeMap::<_, Vec<u64>>::new();
    while let Some(record) = consumer.poll(NOW).unwrap() {
        let place = (record.topic().to_owned(), record.partition());
        found.entry(place).or_default().push(record.offset());
    }
    found
}

fn offsets(batch: &RecordBatch) -> (u32, std::ops::Range<u64>) {
    (batch.partition(), batch.offsets())
}

#[test]
fn a_paused_partition_delivers_nothing_until_it_is_resumed_and_stays_the_members() {
    let (_machine, store) = filled(3);
    let mut billing = store.consumer("billing", ["orders", "audit"]).unwrap();
    let first = billing.poll(NOW).unwrap().unwrap();
    let (name, part) = (first.topic().to_owned(), first.partition());
    billing.pause(&name, part).unwrap();
    let others = read(&mut billing);
    assert_eq!((others.len(), others.contains_key(&(name.clone(), part))), (2, false));
    assert!(others.values().all(|offsets| *offsets == [0, 1, 2]), "{others:?}");
    assert!(billing.poll_batch(8, NOW).unwrap().is_none());
    assert_eq!(billing.assignment().len(), 3);
    billing.commit().unwrap();
    assert_eq!(billing.committed(&name, part).unwrap(), 1, "what was delivered before it counts");
    billing.resume(&name, part).unwrap();
    assert_eq!(read(&mut billing), BTreeMap::from([((name, part), vec![1, 2])]));
    assert!(matches!(billing.pause("orders", 2), Err(Error::InvalidArgument { .. })));
}

#[test]
fn an_automatic_commit_commits_nothing_of_the_record_or_batch_that_was_just_returned() {
    let (_machine, store) = filled(300);
    let builder = store.consumer_options("billing", ["audit"]).commit_every(NOW);
    let mut billing = builder.clone().open().unwrap();
    for offset in 0..3 {
        assert_eq!(billing.poll(NOW).unwrap().unwrap().offset(), offset);
        assert_eq!(billing.committed("audit", 0).unwrap(), offset);
    }
    let batch = billing.poll_batch(100, NOW).unwrap().unwrap();
    assert_eq!((batch.topic(), batch.offsets().start), ("audit", 3));
    assert_eq!(billing.committed("audit", 0).unwrap(), 3);
    let end = batch.offsets().end;
    assert_eq!(billing.poll(NOW).unwrap().unwrap().offset(), end);
    assert_eq!(billing.committed("audit", 0).unwrap(), end);
    // One that is dropped, as by an error, commits nothing; one that is closed is done with what it got.
    drop(billing);
    let mut billing = builder.open().unwrap();
    assert_eq!(billing.poll(NOW).unwrap().unwrap().offset(), end);
    billing.close().unwrap();
    let mut billing = store.consumer("billing", ["audit"]).unwrap();
    assert_eq!(billing.poll(NOW).unwrap().unwrap().offset(), end + 1);
}

#[test]
fn a_member_that_commits_automatically_commits_what_it_has_read_when_nothing_comes() {
    let (_machine, store) = filled(3);
    let hour = Duration::from_secs(3600);
    let builder = store.consumer_options("billing", ["orders"]).commit_every(hour);
    let mut billing = builder.open().unwrap();
    for _ in 0..6 {
        billing.poll(NOW).unwrap().unwrap();
    }
    assert_eq!(billing.lag("orders", 0).unwrap() + billing.lag("orders", 1).unwrap(), 6);
    assert!(billing.poll(NOW).unwrap().is_none());
    assert_eq!(billing.lag("orders", 0).unwrap() + billing.lag("orders", 1).unwrap(), 0);
}

#[test]
fn automatic_commits_are_refused_where_transactions_commit() {
    let (_machine, store) = filled(1);
    let sums = store.topic_options("sums").segment_bytes(64 << 10).open().unwrap();
    let builder = store.consumer_options("adder", ["orders"]).offsets_in(&sums);
    let error = builder.commit_every(NOW).open().unwrap_err();
    assert!(error.to_string().contains("commit_with"), "{error}");
    assert!(store.groups().unwrap().is_empty(), "no group was made");
}

#[test]
fn batches_and_records_together_deliver_each_record_once_in_order() {
    let (_machine, store) = filled(100);
    let mut billing = store.consumer("billing", ["orders"]).unwrap();
    let mut next = [0, 0];
    while let Some(batch) = billing.poll_batch(7, NOW).unwrap() {
        let (partition, range) = offsets(&batch);
        assert_eq!(range.start, next[partition as usize]);
        next[partition as usize] = range.end;
        if let Some(record) = billing.poll(NOW).unwrap() {
            let next = &mut next[record.partition() as usize];
            assert_eq!(record.offset(), *next);
            *next += 1;
        }
    }
    assert_eq!(next, [100, 100]);
    billing.commit().unwrap();
    assert_eq!((0..2).map(|part| billing.committed("orders", part).unwrap()).sum::<u64>(), 200);
}

#[test]
fn a_part_of_a_batch_is_committed_and_a_record_that_was_not_processed_is_gone_back_to() {
    let (_machine, store) = filled(100);
    let mut billing = store.consumer("billing", ["audit"]).unwrap();
    let batch = billing.poll_batch(100, NOW).unwrap().unwrap();
    let end = batch.offsets().end;
    assert!(end > 10);
    billing.commit_offset("audit", 0, 5).unwrap();
    assert_eq!(billing.position("audit", 0).unwrap(), end, "what was delivered stays so");
    assert_eq!(billing.seek("audit", 0, 7..).unwrap(), 7);
    billing.commit().unwrap();
    assert_eq!(billing.committed("audit", 0).unwrap(), 7);
    assert_eq!(billing.poll(NOW).unwrap().unwrap().offset(), 7);
    billing.commit_offset("audit", 0, 50).unwrap();
    assert_eq!((billing.position("audit", 0).unwrap(), billing.lag("audit", 0).unwrap()), (50, 50));
    assert_eq!(billing.poll(NOW).unwrap().unwrap().offset(), 50, "ahead of what was delivered");
    let beyond = billing.commit_offset("audit", 0, 101).unwrap_err();
    assert!(matches!(beyond, Error::OffsetOutOfRange { .. }), "{beyond}");
}

#[test]
fn a_member_steps_over_corruption_and_loses_nothing_else() {
    let (machine, store) = filled(30);
    for (name, partition, offset) in [("orders", 1, 10), ("audit", 0, 20)] {
        let topic = Topic::open(&store, name, &TopicOptions::default()).unwrap();
        let record = topic.get_in(partition, offset).unwrap();
        let (path, position) = (record.block().path(), record.block().position());
        let file = machine.open(path, OpenMode::ReadWrite).unwrap();
        file.write_at(&[0xff], position + 36).unwrap();
    }
    drop(store);
    let store = super::store(&machine);
    let mut billing = store.consumer("billing", ["orders", "audit"]).unwrap();
    let (mut seen, mut lost) = (BTreeMap::<_, Vec<u64>>::new(), Vec::new());
    loop {
        match billing.poll(NOW) {
            Ok(None) => break,
            Ok(Some(record)) => {
                let place = (record.topic().to_owned(), record.partition());
                seen.entry(place).or_default().push(record.offset());
            }
            Err(Error::CorruptData { .. }) => {
                let skipped = billing.step_over().unwrap().into_iter();
                lost.extend(skipped.filter(|(_, _, lost)| !lost.offsets.is_empty()));
            }
            Err(error) => panic!("{error}"),
        }
    }
    let mut lost: Vec<_> = lost.into_iter().map(|(n, p, lost)| (n, p, lost.offsets)).collect();
    lost.sort_by_key(|(name, ..)| name.clone());
    assert_eq!(lost, [("audit".to_owned(), 0, 20..21), ("orders".to_owned(), 1, 10..11)]);
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 88);
    billing.commit().unwrap();
    assert_eq!(billing.committed("audit", 0).unwrap(), 30, "the commit covers what is lost");
    assert!(billing.step_over().unwrap().is_empty());
}

#[test]
fn a_wait_ends_behind_the_last_record_once_all_topics_are_finished() {
    let (_machine, store) = filled(2);
    let mut billing = store.consumer("billing", ["orders", "audit"]).unwrap();
    for name in ["orders", "audit"] {
        Topic::open(&store, name, &TopicOptions::default()).unwrap().finish().unwrap();
    }
    for _ in 0..6 {
        billing.poll(None).unwrap().unwrap();
    }
    assert!(billing.poll(None).unwrap().is_none());
    assert!(billing.poll_batch(10, None).unwrap().is_none());
    billing.rewind();
    billing.pause("audit", 0).unwrap();
    assert_eq!(read(&mut billing).len(), 2);
    let short = Duration::from_millis(1);
    assert!(billing.poll(short).unwrap().is_none(), "a paused partition may have more");
    billing.resume("audit", 0).unwrap();
    assert_eq!(read(&mut billing).len(), 1);
}

#[test]
fn a_wait_looks_once_more_for_records_that_came_before_the_last_topic_was_finished() {
    let (_machine, store) = filled(1);
    let audit = store.topic("audit").unwrap();
    let member = GroupMember::open(&store, "billing", from_ref(&audit), Start::Earliest);
    let mut reader = GroupReader::new(member.unwrap(), None);
    audit.finish().unwrap();
    assert!(reader.prepare().unwrap());
    while reader.next_ref().unwrap().is_some() {}
    let mut waiting = Waiting::new(None);
    assert_eq!(waiting.sleep(&reader), Some((Duration::ZERO, 0)), "look once more");
    assert_eq!(waiting.sleep(&reader), None);
}

#[test]
fn a_member_of_a_deleted_topic_gets_an_error_that_names_it() {
    let (_machine, store) = filled(2);
    let mut billing = store.consumer("billing", ["orders", "audit"]).unwrap();
    read(&mut billing);
    store.delete_topic("audit").unwrap();
    for _ in 0..2 {
        let error = billing.poll(Duration::from_secs(60)).unwrap_err();
        assert!(matches!(&error, Error::TopicDeleted { name } if name == "audit"), "{error}");
        let error = billing.poll_batch(10, None).unwrap_err();
        assert!(matches!(&error, Error::TopicDeleted { name } if name == "audit"), "{error}");
    }
    topic(&store, 2).append_to(0, &NewRecord::new(b"x"), None).unwrap();
    billing.pause("audit", 0).unwrap();
    assert_eq!(billing.poll(NOW).unwrap().unwrap().offset(), 2);
}

#[test]
fn a_transaction_of_another_thread_moves_the_cursor_before_the_reader_commits_again() {
    let (_machine, store) = filled(3);
    let audit = store.topic("audit").unwrap();
    let sums = store.topic_options("sums").segment_bytes(64 << 10).open().unwrap();
    let member = GroupMember::open_in(&store, "billing", from_ref(&audit), Start::Earliest, &sums);
    let mut reader = GroupReader::new(member.unwrap(), None);
    for offset in 0..2 {
        assert!(reader.prepare().unwrap());
        assert!(reader.next_ref().unwrap().is_some());
        let moves = reader.settled().moves().unwrap();
        let mut tx = Transaction::new(&store);
        tx.append(&sums, NewRecord::new(b"a result")).unwrap();
        moves.iter().try_for_each(|moved| moved.join(&sums, &mut tx)).unwrap();
        // Without the note the second transaction would expect the cursor where it no longer is.
        let end = tx.commit().unwrap().end();
        reader.moved().note(moves, end);
        assert_eq!(reader.settled().committed("audit", 0).unwrap(), offset + 1);
    }
}

#[test]
fn a_topic_is_read_for_a_while_before_the_next_one_has_its_turn() {
    let (_machine, store) = filled(100);
    let mut billing = store.consumer("billing", ["orders", "audit"]).unwrap();
    let topics: Vec<String> = std::iter::from_fn(|| billing.poll(NOW).unwrap())
        .map(|record| record.topic().to_owned())
        .collect();
    assert_eq!(topics.len(), 300);
    let changes = topics.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((1..20).contains(&changes), "{changes} changes of the topic: a turn has many records");
}
