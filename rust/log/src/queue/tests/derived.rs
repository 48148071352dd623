//! Parts of a queue that are derived, and a file that another incarnation left: counts, lists of keys, the lock.

use super::*;

fn state(topic: &Topic) -> StateFile {
    let path = topic.store().layout().queue("work").unwrap();
    StateFile::open(topic.store(), &path).unwrap().unwrap()
}

#[test]
fn jobs_that_the_floor_passed_are_counted_as_done_once() {
    let machine = machine();
    let topic = filled(&machine, 10, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 10);
    // The first take that finds nothing asks how far the topic is on the disk.
    ack(&work, &topic, &jobs[..2]).unwrap();
    ack(&work, &topic, &jobs[2..3]).unwrap();
    ack(&work, &topic, &jobs[4..7]).unwrap();
    let before = work.info(&topic).unwrap();
    work.changed(&topic, |ring, _| ring.pass(10)).unwrap();
    let after = work.info(&topic).unwrap();
    assert_eq!((after.floor, after.done, before.done), (3, 6, 6), "{before:?}");
    ack(&work, &topic, &jobs[3..4]).unwrap();
    work.changed(&topic, |ring, _| ring.pass(10)).unwrap();
    let last = work.info(&topic).unwrap();
    assert_eq!((last.floor, last.done, last.in_flight), (7, 7, 3));
}

/// Records that take the place of lost ones may have other keys. The order of keys is theirs.
#[test]
fn after_a_power_failure_jobs_have_the_order_of_the_keys_that_their_records_have_now() {
    for returned in [false, true] {
        let machine = machine();
        let topic = filled(&machine, 2, SyncMode::Durable);
        let work = queue(&topic, KEYED);
        let put = |topic: &Topic, key: &[u8], sync| {
            let record = NewRecord { key: Some(key), ..NewRecord::new(b"job") };
            topic.append_to(0, &record, Some(sync)).unwrap();
        };
        put(&topic, b"p", SyncMode::None);
        put(&topic, b"q", SyncMode::None);
        let jobs = take(&work, &topic, 4);
        assert_eq!(offsets(&jobs), [0, 1, 2, 3]);
        if returned {
            work.nack(&topic, &leases(&jobs), Duration::ZERO).unwrap();
        }
        let path = topic.store().layout().queue("work").unwrap();
        machine.open(&path, OpenMode::ReadWrite).unwrap().sync_all().unwrap();
        let journal = machine.journal();
        let crash = journal.crash_at_end();
        let image = crash.image(&crash.nothing());
        image.set_now_us(NOW + 1);
        let topic = topic_on(&image).unwrap();
        assert_eq!(topic.end(0).unwrap(), 2, "the power failure took the last two");
        put(&topic, b"z", SyncMode::None);
        put(&topic, b"z", SyncMode::None);
        let work = queue(&topic, KEYED);
        assert_eq!(offsets(&take(&work, &topic, 4)), [0, 1, 2], "3 has the key of 2");
    }
}

#[test]
fn a_lock_word_of_an_earlier_incarnation_is_freed_although_it_names_this_process() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    drop(queue(&topic, SMALL));
    machine.kill();
    let topic = topic_on(&machine.survivor().process()).unwrap();
    let member = topic.store().membership().unwrap();
    let file = state(&topic);
    assert_ne!(file.load(at::INCARNATION), member.incarnation(), "nothing of it was looked over");
    file.set(at::LOCK, crate::lock::held_by(member.identity())).unwrap();
    assert_eq!(drain(&queue(&topic, SMALL), &topic), [0, 1]);
}

#[test]
fn a_lock_that_a_living_process_holds_is_not_freed_by_one_that_deletes_the_queue() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 1);
    let member = topic.store().membership().unwrap();
    let file = state(&topic);
    let held = file.lock(topic.store(), &member).unwrap().unwrap();
    let options =
        StoreOptions { lock_timeout: Duration::from_millis(50), ..StoreOptions::default() };
    let other = Store::open_on(Arc::new(machine.process()), "/store", &options).unwrap();
    assert!(matches!(delete(&other, "work"), Err(Error::LockTimeout { .. })));
    drop(held);
    ack(&work, &topic, &jobs).unwrap();
}

#[test]
fn a_corrupt_job_behind_another_of_its_key_is_not_given_up() {
    let machine = machine();
    let topic = filled(&machine, 9, SyncMode::Durable);
    let work = queue(&topic, KEYED);
    let held = take(&work, &topic, 9);
    assert_eq!(offsets(&held), [0, 1, 2]);
    drop(handing_back::damage(&machine, 3));
    let topic = topic_on(&machine.process()).unwrap();
    let work = queue(&topic, KEYED);
    assert_eq!(work.skip_damage(&topic).unwrap(), [], "0 has its key, and is in flight");
    assert_eq!(work.info(&topic).unwrap().dead, 0);
}

#[test]
fn what_the_process_before_in_the_same_slot_had_is_delivered_before_new_jobs() {
    let machine = machine();
    let topic = filled(&machine, 9, SyncMode::Durable);
    let first = queue(&topic, SMALL);
    let dies = machine.process();
    let theirs = topic_on(&dies).unwrap();
    let slot = |topic: &Topic| topic.store().membership().unwrap().identity().slot();
    let (mine, before) = (slot(&topic), slot(&theirs));
    assert_eq!((mine, before), (0, 1));
    assert_eq!(offsets(&take(&queue(&theirs, SMALL), &theirs, 3)), [0, 1, 2]);
    dies.kill();
    let topic = topic_on(&machine.process()).unwrap();
    assert_eq!(slot(&topic), before, "the slot was free");
    let work = queue(&topic, SMALL);
    // No look for dead holders comes first.
    work.looked.store(Now::of(topic.store()).steady, Ordering::Relaxed);
    assert_eq!(offsets(&take(&work, &topic, 2)), [0, 1]);
    assert_eq!(work.info(&topic).unwrap().in_flight, 2);
    drop(first);
}

#[test]
fn delayed_jobs_are_counted_apart_until_their_time_comes() {
    let machine = machine();
    let topic = filled(&machine, 200, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = leases(&take(&work, &topic, 150));
    work.nack(&topic, &jobs[..140], Duration::from_secs(5)).unwrap();
    work.nack(&topic, &jobs[140..143], Duration::ZERO).unwrap();
    let told = |info: QueueInfo| (info.ready, info.delayed, info.in_flight, info.done);
    assert_eq!(told(work.info(&topic).unwrap()), (53, 140, 7, 0));
    machine.set_now_us(NOW + 5_000_001);
    assert_eq!(told(work.info(&topic).unwrap()), (193, 0, 7, 0));
}
