//! A Rust program that uses falaj: `use falaj::{Store, …}` and none of the engine's modules.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime};

use falaj::{CompactOptions, Error, NewRecord, Start, Store, SyncMode, Topic};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("events")).unwrap();
    (dir, store)
}

fn parted(store: &Store) -> Topic {
    store.topic_options("clicks").partitions(4).sync(SyncMode::None).open().unwrap()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn values(scan: falaj::Scan) -> Vec<String> {
    scan.map(|record| String::from_utf8(record.unwrap().value().unwrap().to_vec()).unwrap())
        .collect()
}

#[test]
fn a_key_chooses_the_partition_and_a_handle_for_one_takes_any_key() {
    let (_dir, store) = store();
    let clicks = parted(&store);
    for key in ["ann", "bob", "cid", "dan", "eve"] {
        let chosen = clicks.partition_of(key.as_bytes());
        assert_eq!(clicks.append(NewRecord::new("x").key(key)).unwrap().partition, chosen);
        let other = clicks.partition((chosen + 1) % 4).unwrap();
        let record = NewRecord::new("x").key(key);
        assert_eq!(other.append(record).unwrap().partition, (chosen + 1) % 4);
        assert_eq!(*other.extend([record]).unwrap().keys().next().unwrap(), (chosen + 1) % 4);
    }
    let turns: BTreeSet<u32> = (0..4).map(|_| clicks.append(b"x").unwrap().partition).collect();
    assert_eq!(turns.len(), 4, "records without a key take turns");
}

#[test]
fn an_offset_belongs_to_one_partition_and_the_error_says_how_to_take_one() {
    let (_dir, store) = store();
    let clicks = parted(&store);
    clicks.append(b"x").unwrap();
    let errors = [
        clicks.get(0).unwrap_err(),
        clicks.end_offset().unwrap_err(),
        clicks.scan(0..1).unwrap_err(),
        clicks.follow(0..).unwrap_err(),
        clicks.count(..1).unwrap_err(),
        clicks.trim_before(1).unwrap_err(),
        clicks.expect_offset(1).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains("topic.partition(0)"), "{error}");
    }
    let one = clicks.partition(2).unwrap();
    assert!(one.end_offset().is_ok() && one.scan(0..1).is_ok());
    assert!(clicks.partition(4).is_err() && one.partition(1).is_err());
}

#[test]
fn scans_and_followers_merge_partitions_by_time_and_ranges_of_times_hold_what_lies_between() {
    let (_dir, store) = store();
    let clicks = parted(&store);
    for n in 0..40_u64 {
        let (key, value) = (format!("user-{}", n % 7), n.to_string());
        clicks.append(NewRecord::new(&value).key(&key).timestamp(at(1000 + n))).unwrap();
    }
    let all: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    assert_eq!(values(clicks.scan(..).unwrap()), all);
    assert_eq!(values(clicks.scan_times(at(1010)..at(1020)).unwrap()), all[10..20]);
    assert_eq!(values(clicks.scan_times(..=at(1003)).unwrap()), all[..4]);
    assert_eq!(values(clicks.scan_times(at(1038)..).unwrap()), all[38..]);
    assert_eq!(clicks.count(..).unwrap(), 40);
    let follow = clicks.follow(at(1030)).unwrap().with_timeout(Some(Duration::ZERO));
    assert_eq!(follow.count(), 10);
    clicks.trim_before_time(at(1035)).unwrap();
    assert_eq!(values(clicks.scan(..).unwrap()), all[35..]);
}

#[test]
fn a_range_of_offsets_is_read_as_rust_writes_it() {
    let (_dir, store) = store();
    let orders = store.topic("orders").unwrap();
    assert!(orders.extend(Vec::<&str>::new()).unwrap().is_empty());
    assert_eq!(orders.extend(["0", "1", "2", "3"]).unwrap()[&0], 0..4);
    assert_eq!(values(orders.scan(1..3).unwrap()), ["1", "2"]);
    assert_eq!(values(orders.scan(1..=3).unwrap()), ["1", "2", "3"]);
    assert_eq!(values(orders.scan(..2).unwrap()), ["0", "1"]);
    assert_eq!((orders.count(1..).unwrap(), orders.count(..).unwrap()), (3, 4));
    let last = orders.follow(Start::Last(1)).unwrap().with_timeout(Some(Duration::ZERO));
    assert_eq!(last.map(|record| record.unwrap().offset()).collect::<Vec<_>>(), [3]);
    assert!(orders.wait_durable(4, None).unwrap());
    assert_eq!(orders.durable_offset().unwrap(), 4);
}

#[test]
fn a_repeat_without_a_key_goes_to_the_partition_of_the_record_that_it_repeats() {
    let (_dir, store) = store();
    let clicks = parted(&store);
    for producer in ["till-1", "till-2", "till-3"] {
        let once = [clicks.expect_sequence(producer, 1).unwrap()];
        let first = clicks.append_if(b"x", &once).unwrap();
        assert_eq!(clicks.append_if(b"x", &once).unwrap(), first);
    }
    let one = clicks.partition(3).unwrap();
    let next = [one.expect_offset(one.end_offset().unwrap()).unwrap()];
    assert_eq!(clicks.append_if(b"x", &next).unwrap().partition, 3);
    assert!(matches!(clicks.append_if(b"x", &next), Err(Error::OffsetConflict { .. })));
}

#[test]
fn a_topic_that_may_not_be_created_is_not() {
    let (dir, store) = store();
    let missing = store.topic_options("orders").create(false).open();
    assert!(matches!(missing, Err(Error::UnknownTopic { .. })));
    assert!(store.topic_names().unwrap().is_empty());
    store.topic("orders").unwrap();
    store.topic_options("orders").create(false).open().unwrap();
    let reader = Store::options().read_only(true).open(dir.path().join("events")).unwrap();
    assert!(matches!(reader.topic("orders").unwrap().append(b"x"), Err(Error::NotWritable { .. })));
    let other = store.topic_options("orders").partitions(2).open();
    assert!(matches!(other, Err(Error::SettingsMismatch { .. })));
}

#[test]
fn a_topic_says_of_itself_what_expires_and_what_compaction_may_remove() {
    let (_dir, store) = store();
    let prices = store.topic("prices").unwrap();
    prices.extend(["1", "2", "3"].map(|price| NewRecord::new(price).key("tea"))).unwrap();
    let options = CompactOptions::default().seal(true);
    assert!(prices.compact(&options, &mut |_, _| Ok(())).is_err());
    prices.set_compacted(true).unwrap();
    assert_eq!(prices.compact(&options, &mut |_, _| Ok(())).unwrap().removed, 2);
    prices.set_retention(&falaj::RetentionChange::default().records(1)).unwrap();
    prices.extend(["4", "5"].map(|price| NewRecord::new(price).key("fig"))).unwrap();
    prices.flush().unwrap();
    store.set_retention_bytes(1 << 30).unwrap();
    assert_eq!(store.maintain(false).unwrap().retention_bytes, Some(1 << 30));
    assert_eq!(prices.start_offset().unwrap(), 4);
}

#[test]
fn a_sync_mode_has_the_name_that_settings_have() {
    let names = [SyncMode::None, SyncMode::Interval, SyncMode::Durable].map(SyncMode::name);
    assert_eq!(names, ["none", "interval", "durable"]);
}

#[test]
fn a_conditional_append_goes_to_its_partition_and_is_on_the_disk_after_the_interval() {
    let (dir, store) = store();
    let options = store.topic_options("clicks").partitions(3).sync(SyncMode::Interval);
    let clicks = options.sync_interval(Duration::from_millis(10)).open().unwrap();
    let last = clicks.partition(2).unwrap();
    assert_eq!(last.append_if(b"x", &[last.expect_offset(0).unwrap()]).unwrap().offset, 0);
    let ends: Vec<u64> =
        (0..3).map(|n| clicks.partition(n).unwrap().end_offset().unwrap()).collect();
    assert_eq!(ends, [0, 0, 1]);
    // A reader does not sync.
    let reader = Store::options().read_only(true).open(dir.path().join("events")).unwrap();
    let last = reader.topic("clicks").unwrap().partition(2).unwrap();
    assert!(last.wait_durable(1, Some(Duration::from_secs(30))).unwrap());
    let missing = last.wait_durable(5, None).unwrap_err();
    assert!(matches!(missing, Error::OffsetOutOfRange { offset: 4, end: 1, .. }), "{missing}");
}

#[test]
fn a_group_goes_on_where_it_was_committed_and_delivers_the_rest_again() {
    let (_dir, store) = store();
    let clicks = parted(&store);
    for n in 0..20 {
        clicks.append(NewRecord::new("x").key(&format!("user-{n}"))).unwrap();
    }
    let mut group = store.consumer("pages", ["clicks"]).unwrap();
    let mut take = |n: usize, commits: bool| {
        let found: Vec<_> = (0..n).map(|_| group.poll(Duration::ZERO).unwrap().unwrap()).collect();
        if commits {
            group.commit().unwrap();
        } else {
            group.rewind();
        }
        found.iter().map(|record| (record.partition(), record.offset())).collect::<BTreeSet<_>>()
    };
    let first = take(5, true);
    let lost = take(15, false);
    assert_eq!((take(15, true), first.intersection(&lost).count()), (lost, 0));
    assert!(group.poll(Duration::ZERO).unwrap().is_none());
    assert_eq!(group.assignment().len(), 4);
    assert_eq!((0..4).map(|p| group.lag("clicks", p).unwrap()).sum::<u64>(), 0);
    group.close().unwrap();
    let mut again = store.consumer("pages", ["clicks"]).unwrap();
    assert!(again.poll(Duration::ZERO).unwrap().is_none());
    again.seek("clicks", 2, ..).unwrap();
    assert_eq!(store.groups().unwrap()[0].members.len(), 1);
    let there = clicks.partition(2).unwrap().count(..).unwrap();
    assert_eq!(
        (0..there).filter_map(|_| again.poll(Duration::ZERO).unwrap()).count() as u64,
        there
    );
}

#[test]
fn a_group_is_moved_to_an_offset_that_the_call_returns() {
    let (_dir, store) = store();
    store.topic("orders").unwrap().extend(["1", "2", "3"]).unwrap();
    drop(store.consumer("billing", ["orders"]).unwrap());
    assert_eq!(store.seek_group("billing", "orders", 0, falaj::Start::Offset(2)).unwrap(), 2);
    assert_eq!(store.seek_group("billing", "orders", 0, falaj::Start::Latest).unwrap(), 3);
    let mut billing = store.consumer("billing", ["orders"]).unwrap();
    assert_eq!(billing.position("orders", 0).unwrap(), 3);
}

#[test]
fn members_of_a_group_share_the_partitions_and_each_record_is_read_once() {
    let (_dir, store) = store();
    let clicks = parted(&store);
    let mut members = [(); 2].map(|()| store.consumer("pages", ["clicks"]).unwrap());
    let mut seen = Vec::new();
    for n in 0.. {
        for member in &mut members {
            while let Some(record) = member.poll(Duration::from_millis(1)).unwrap() {
                seen.push((record.partition(), record.offset()));
            }
            member.commit().unwrap();
        }
        if members.iter().all(|member| member.assignment().len() == 2) && n > 100 {
            break;
        }
        clicks.append(NewRecord::new("x").key(&format!("user-{n}"))).unwrap();
    }
    let once: BTreeSet<_> = seen.iter().copied().collect();
    assert_eq!((once.len(), seen.len() as u64), (seen.len(), clicks.count(..).unwrap()));
}

#[test]
fn a_member_that_waits_wakes_for_a_record_of_any_topic() {
    let (_dir, store) = store();
    let (orders, refunds) = (store.topic("orders").unwrap(), store.topic("refunds").unwrap());
    let mut group = store.consumer("billing", ["orders", "refunds"]).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut names = [(); 2].map(|()| group.poll(None).unwrap().unwrap().topic().to_owned());
            names.sort();
            names
        });
        orders.append(b"x").unwrap();
        refunds.append(b"x").unwrap();
        assert_eq!(waiting.join().unwrap(), ["orders", "refunds"]);
    });
}

#[test]
fn a_topic_with_many_records_does_not_keep_those_of_another_waiting() {
    let (_dir, store) = store();
    for name in ["orders", "refunds"] {
        store.topic(name).unwrap().extend(vec!["x"; 20_000]).unwrap();
    }
    let mut group = store.consumer("billing", ["orders", "refunds"]).unwrap();
    let mut next = || group.poll(Duration::ZERO).unwrap().unwrap().topic().to_owned();
    let names: BTreeSet<_> = (0..20_000).map(|_| next()).collect();
    assert_eq!(names.len(), 2);
}

#[test]
fn records_and_a_groups_offsets_are_committed_together_or_not_at_all() {
    let (_dir, store) = store();
    let orders = store.topic("orders").unwrap();
    orders.extend(["1", "2"]).unwrap();
    let sums = store.topic("sums").unwrap();
    let mut adder = store.consumer_options("adder", ["orders"]).offsets_in(&sums).open().unwrap();
    adder.poll(None).unwrap().unwrap();
    let mut tx = store.transaction();
    tx.append(&sums, b"1").unwrap();
    let committed = adder.commit_with(&mut tx).unwrap();
    assert_eq!(committed.offsets(&sums, 0), Some(0..1));
    assert_eq!(adder.committed("orders", 0).unwrap(), 1);

    adder.poll(None).unwrap().unwrap();
    let mut elsewhere = store.transaction();
    elsewhere.append(&orders, b"3").unwrap();
    assert!(adder.commit_with(&mut elsewhere).is_err(), "in another log");
    assert_eq!((adder.committed("orders", 0).unwrap(), orders.end_offset().unwrap()), (1, 2));
}

#[test]
fn jobs_that_the_iteration_does_not_reach_go_back_and_were_no_attempt() {
    let (_dir, store) = store();
    let emails = store.queue("emails").unwrap();
    for name in ["ann", "bob", "cid"] {
        emails.put(name).unwrap();
    }
    let first = emails.take(3, None).unwrap().next().unwrap().unwrap();
    assert_eq!((first.value().unwrap(), first.attempt()), (&b"ann"[..], 1));
    let rest: Vec<_> = emails.take(3, Duration::ZERO).unwrap().map(Result::unwrap).collect();
    assert_eq!(rest.iter().map(falaj::Job::attempt).collect::<Vec<_>>(), [1, 1]);
    first.nack(Duration::ZERO, "no address").unwrap();
    assert!(matches!(first.ack(), Err(Error::LeaseExpired { .. })));
    let again = emails.take(1, Duration::ZERO).unwrap().next().unwrap().unwrap();
    assert_eq!((again.offset(), again.attempt()), (0, 2));
    again.ack().unwrap();
    rest[0].bury().unwrap();
    rest[1].extend(Duration::from_secs(600)).unwrap();
    let info = emails.info().unwrap();
    assert_eq!((info.in_flight, info.dead), (1, 1));
}

#[test]
fn a_worker_that_waits_wakes_for_a_job_and_a_delayed_job_keeps_its_headers() {
    let (_dir, store) = store();
    let emails = store.queue_options("emails").lease(Duration::from_secs(5)).open().unwrap();
    thread::scope(|scope| {
        let worker = scope.spawn(|| emails.take(10, None).unwrap().next().unwrap().unwrap());
        emails.put(b"now").unwrap();
        assert_eq!(worker.join().unwrap().value(), Some(b"now".as_slice()));
    });
    let record = NewRecord::new("later").key("k").headers(&[("trace", Some(b"1"))]);
    emails.put_after(record, Duration::from_millis(20)).unwrap();
    let later = emails.take(10, None).unwrap().next().unwrap().unwrap();
    assert_eq!((later.key(), later.headers().count()), (Some(b"k".as_slice()), 2));
    later.ack().unwrap();
    emails.put_after(b"an hour", Duration::from_secs(3600)).unwrap();
    assert_eq!(emails.take(10, Duration::ZERO).unwrap().count(), 0);
    assert_eq!(store.queue_names().unwrap(), ["emails"]);
    store.delete_queue("emails").unwrap();
    assert!(store.queue_names().unwrap().is_empty());
}

#[test]
fn a_consumer_creates_no_topic() {
    let (_dir, store) = store();
    let error = store.consumer("billing", ["ordres"]).unwrap_err();
    assert!(matches!(error, Error::UnknownTopic { .. }), "{error}");
    assert!(store.topics().unwrap().is_empty());
    assert!(store.groups().unwrap().is_empty());
}

#[test]
fn a_topic_takes_no_precondition_of_another() {
    let (_dir, store) = store();
    let in_log = |name| store.topic_options(name).log("shop").open().unwrap();
    let (paid, audit) = (in_log("paid"), in_log("audit"));
    let alone = store.topic("alone").unwrap();
    let (_other_dir, other) = self::store();
    let elsewhere = other.topic("audit").unwrap();
    for foreign in [&paid, &alone, &elsewhere] {
        for condition in [foreign.expect_offset(0), foreign.expect_sequence("till-3", 1)] {
            let error = audit.append_if("x", &[condition.unwrap()]).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains("another topic's"), "{error}");
        }
    }
    assert_eq!(audit.end_offset().unwrap(), 0);
    // A topic that was deleted and created again is another topic.
    let condition = alone.expect_offset(0).unwrap();
    store.delete_topic("alone").unwrap();
    let again = store.topic("alone").unwrap();
    assert!(again.append_if("x", &[condition]).is_err());
    assert_eq!(again.append_if("x", &[again.expect_offset(0).unwrap()]).unwrap().offset, 0);
}

#[test]
fn a_sequence_of_one_partition_takes_its_records_there() {
    let (_dir, store) = store();
    let clicks = parted(&store);
    for partition in 0..4 {
        let once = clicks.expect_sequence_in(partition, "till-3", 1).unwrap();
        assert_eq!(clicks.append_if("x", &[once]).unwrap().partition, partition);
    }
}

#[test]
fn a_store_that_has_the_place_of_another_is_replaced_and_not_corrupt() {
    let (dir, store) = store();
    let fill = |store: &Store| {
        store.topic("orders").unwrap().append(b"x").unwrap();
        store.consumer("billing", ["orders"]).unwrap().close().unwrap();
    };
    fill(&store);
    std::fs::rename(store.path(), dir.path().join("old")).unwrap();
    let new = Store::open(store.path()).unwrap();
    fill(&new);
    let replaced = |error: Error| {
        assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    };
    replaced(store.forget_topic("billing", "orders").unwrap_err());
    replaced(store.group("billing").unwrap().cursors.unwrap_err());
    assert_eq!(new.group("billing").unwrap().cursors.unwrap().len(), 1);
}
