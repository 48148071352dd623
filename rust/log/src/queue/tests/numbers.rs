//! The numbers that a queue reports of itself.

use super::*;

#[test]
fn the_numbers_name_each_process_that_holds_jobs_and_how_many() {
    let machine = machine();
    let topic = filled(&machine, 20, SyncMode::Durable);
    let (second, third) = (machine.process(), machine.process());
    let (second, third) = (topic_on(&second).unwrap(), topic_on(&third).unwrap());
    let [mine, yours, theirs] = [&topic, &second, &third].map(|topic| queue(topic, SMALL));
    assert_eq!(take(&mine, &topic, 3).len(), 3);
    assert_eq!(take(&yours, &second, 2).len(), 2);
    let done = take(&theirs, &third, 4);
    ack(&theirs, &third, &done).unwrap();
    let info = mine.info(&topic).unwrap();
    let mut counts: Vec<_> = info.holders.iter().map(|(_, count)| *count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3], "a process without jobs is not named: {info:?}");
    assert_eq!((info.in_flight, info.done, info.ready, info.delayed), (5, 4, 11, 0));
}

#[test]
fn a_new_queue_begins_at_the_first_record_that_the_topic_keeps() {
    let machine = machine();
    let topic = filled(&machine, 20, SyncMode::Durable);
    topic.trim(&[(0, 5)]).unwrap();
    let queue = queue(&topic, SMALL);
    let info = queue.info(&topic).unwrap();
    assert_eq!((info.floor, info.head, info.trimmed, info.ready), (5, 5, 0, 15));
    assert_eq!(offsets(&take(&queue, &topic, 2)), [5, 6]);
}

fn counts(machine: &MemoryStorage) -> QueueInfo {
    let options = StoreOptions::reading();
    let store = Store::open_on(Arc::new(machine.clone()), "/store", &options).unwrap();
    let mut all = overview(&store).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0).1.unwrap()
}

#[test]
fn a_look_from_outside_counts_the_jobs_of_each_process_and_those_that_are_done() {
    let machine = machine();
    let topic = filled(&machine, 200, SyncMode::Durable);
    let second = topic_on(&machine.process()).unwrap();
    let (mine, yours) = (queue(&topic, SMALL), queue(&second, SMALL));
    let jobs = take(&mine, &topic, 150);
    ack(&mine, &topic, &jobs[1..140]).unwrap();
    let theirs = take(&yours, &second, 2);
    ack(&yours, &second, &theirs).unwrap();
    let found = counts(&machine);
    assert_eq!((found.in_flight, found.done, found.ready), (11, 141, 0), "{found:?}");
    let held: Vec<_> = found.holders.iter().map(|(_, count)| *count).collect();
    assert_eq!(held, [11], "a process without jobs is not named: {found:?}");
    // In another incarnation the entries themselves are counted.
    machine.kill();
    let machine = machine.survivor();
    let found = counts(&machine);
    assert_eq!((found.in_flight, found.done, found.ready), (0, 141, 11), "{found:?}");
    let _begun = topic_on(&machine.process()).unwrap();
    assert_eq!(counts(&machine), found);
}

#[test]
fn work_that_is_begun_again_after_a_lease_ended_counts_again() {
    let machine = machine();
    let topic = filled(&machine, 1, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    for attempt in 1..4 {
        let jobs = take(&work, &topic, 1);
        assert_eq!(jobs[0].lease.attempt, attempt);
        work.begin(&topic, &leases(&jobs)).unwrap();
        machine.set_now_us(NOW + 31_000_000 * i64::from(attempt));
    }
}

#[test]
fn an_extended_lease_is_held_until_its_new_end() {
    let machine = machine();
    let topic = filled(&machine, 1, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 1);
    work.extend(&topic, &leases(&jobs), 2 * LEASE).unwrap();
    machine.set_now_us(NOW + 31_000_000);
    ack(&work, &topic, &jobs).unwrap();
}

#[test]
fn a_job_that_was_given_back_names_no_holder() {
    let machine = machine();
    let topic = filled(&machine, 1, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 1);
    work.nack(&topic, &leases(&jobs), Duration::ZERO).unwrap();
    let path = topic.store().layout().queue("work").unwrap();
    let entry = StateFile::open(topic.store(), &path).unwrap().unwrap().entry(0).entry;
    assert_eq!((entry.holder, entry.when), (0, 0), "{entry:?}");
}

#[test]
fn after_a_restart_a_delivery_has_a_new_number_and_keys_keep_their_order() {
    let machine = machine();
    let topic = filled(&machine, 9, SyncMode::Durable);
    let work = queue(&topic, KEYED);
    let before = take(&work, &topic, 9);
    assert_eq!(offsets(&before), [0, 1, 2]);
    work.begin(&topic, &leases(&before)).unwrap();
    machine.kill();
    let topic = topic_on(&machine.survivor().process()).unwrap();
    let work = queue(&topic, KEYED);
    let mut again = Vec::new();
    // A suspect comes alone.
    while let [job] = &take(&work, &topic, 9)[..] {
        again.push((job.lease.offset, job.lease.delivery));
    }
    assert_eq!(again, [(0, 2), (1, 2), (2, 2)], "and none of 3 to 8, which have the same keys");
}
