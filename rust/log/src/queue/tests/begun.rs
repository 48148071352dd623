//! Attempts: work that was begun counts as one, and nothing else does. Suspects come alone.

use super::*;
use crate::format::queue::QueueHeader;

fn attempts(jobs: &[LeasedJob]) -> Vec<u32> {
    jobs.iter().map(|job| job.lease.attempt).collect()
}

fn begin(queue: &QueueFile, topic: &Topic, jobs: &[LeasedJob]) {
    queue.begin(topic, &leases(jobs)).unwrap();
}

/// Take all jobs that can be taken now; return them batch by batch, each as its offset and attempt.
fn batches(queue: &QueueFile, topic: &Topic) -> Vec<Vec<(u64, u32)>> {
    let mut all = Vec::new();
    loop {
        let jobs = take(queue, topic, 10);
        if jobs.is_empty() {
            return all;
        }
        all.push(jobs.iter().map(|job| (job.lease.offset, job.lease.attempt)).collect());
    }
}

#[test]
fn jobs_that_were_not_begun_come_back_uncounted_and_in_order() {
    for options in [SMALL, KEYED] {
        let machine = machine();
        let topic = filled(&machine, 3, SyncMode::Durable);
        let work = queue(&topic, options);
        for _ in 0..4 {
            let jobs = take(&work, &topic, 10);
            assert_eq!((offsets(&jobs), attempts(&jobs)), (vec![0, 1, 2], vec![1; 3]));
            work.put_back(&topic, &leases(&jobs), Duration::ZERO).unwrap();
        }
        let jobs = take(&work, &topic, 10);
        begin(&work, &topic, &jobs[..1]);
        work.put_back(&topic, &leases(&jobs), Duration::ZERO).unwrap();
        let jobs = take(&work, &topic, 10);
        assert_eq!((offsets(&jobs), attempts(&jobs)), (vec![1, 2, 0], vec![1, 1, 2]));
    }
}

#[test]
fn a_job_that_was_tried_in_vain_counts_once_begun_or_not() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 2);
    begin(&work, &topic, &jobs[..1]);
    begin(&work, &topic, &jobs[..1]);
    work.nack(&topic, &leases(&jobs), Duration::ZERO).unwrap();
    // The worker lives, so neither job is a suspect.
    assert_eq!(batches(&work, &topic), [[(0, 2), (1, 2)]]);
}

#[test]
fn after_a_death_what_was_begun_counts_and_comes_alone_and_the_rest_as_if_never_delivered() {
    for options in [SMALL, KEYED] {
        let machine = machine();
        let topic = filled(&machine, 3, SyncMode::Durable);
        let victim = machine.process();
        let theirs = topic_on(&victim).unwrap();
        let other = queue(&theirs, options);
        let jobs = take(&other, &theirs, 10);
        begin(&other, &theirs, &jobs[..2]);
        let work = queue(&topic, options);
        victim.kill();
        machine.set_now_us(NOW + 20_000);
        let mut batches = batches(&work, &topic);
        batches[1..].sort();
        assert_eq!(batches, [vec![(2, 1)], vec![(0, 2)], vec![(1, 2)]]);
    }
}

#[test]
fn after_the_death_of_all_what_was_begun_counts_and_comes_alone() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 10);
    begin(&work, &topic, &jobs[1..2]);
    machine.kill();
    let survivor = machine.process();
    let topic = topic_on(&survivor).unwrap();
    let work = queue(&topic, SMALL);
    assert_eq!(batches(&work, &topic), [vec![(0, 1)], vec![(1, 2)], vec![(2, 1)]]);
}

#[test]
fn a_worker_that_is_late_is_charged_for_what_it_began_and_for_nothing_else() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let late = take(&work, &topic, 10);
    begin(&work, &topic, &late[..1]);
    machine.set_now_us(NOW + 31_000_000);
    let refused = work.begin(&topic, &leases(&late[1..])).unwrap_err();
    assert!(refused.to_string().contains("its lease expired"), "{refused}");
    let mut again = batches(&work, &topic);
    again.sort();
    assert_eq!(again, [vec![(0, 2)], vec![(1, 1), (2, 1)]]);
    // The process and the attempt are the same, but the lease is another.
    for settled in [
        work.begin(&topic, &leases(&late[1..2])),
        ack(&work, &topic, &late[1..2]),
        work.nack(&topic, &leases(&late[1..2]), Duration::ZERO),
        work.extend(&topic, &leases(&late[1..2]), LEASE),
    ] {
        assert!(settled.unwrap_err().to_string().contains("another worker has it"));
    }
    assert_eq!(work.info(&topic).unwrap().in_flight, 3);
}

#[test]
fn a_suspect_that_its_worker_survives_is_none_any_more() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    begin(&work, &topic, &take(&work, &topic, 2));
    machine.set_now_us(NOW + 31_000_000);
    let one = take(&work, &topic, 10);
    assert!(one.len() == 1 && one[0].lease.suspect);
    // The worker did not work on it, so it stays a suspect.
    work.put_back(&topic, &leases(&one), Duration::ZERO).unwrap();
    let one = take(&work, &topic, 10);
    assert!(one.len() == 1 && one[0].lease.suspect);
    work.nack(&topic, &leases(&one), Duration::ZERO).unwrap();
    let other = take(&work, &topic, 10);
    assert!(other.len() == 1 && other[0].lease.suspect);
    work.nack(&topic, &leases(&other), Duration::ZERO).unwrap();
    assert_eq!(batches(&work, &topic), [[(0, 3), (1, 3)]]);
}

#[test]
fn what_failed_together_counts_and_comes_alone_and_what_was_not_begun_does_neither() {
    for options in [SMALL, KEYED] {
        let machine = machine();
        let topic = filled(&machine, 3, SyncMode::Durable);
        let work = queue(&topic, options);
        let jobs = take(&work, &topic, 3);
        begin(&work, &topic, &jobs[..2]);
        work.suspect(&topic, &leases(&jobs[1..]), Duration::ZERO).unwrap();
        work.suspect(&topic, &leases(&jobs[..1]), Duration::from_secs(5)).unwrap();
        assert!(ack(&work, &topic, &jobs[..1]).is_err(), "it is back in the queue");
        let mut now = batches(&work, &topic);
        now.sort();
        assert_eq!(now, [vec![(1, 2)], vec![(2, 1)]]);
        machine.set_now_us(NOW + 5_000_000);
        assert_eq!(batches(&work, &topic), [[(0, 2)]]);
    }
}

#[test]
fn iteration_begins_each_job_that_it_reaches_and_gives_the_rest_back() {
    let machine = machine();
    let topic = filled(&machine, 4, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    for job in work.each(&topic, take(&work, &topic, 10)) {
        let job = job.unwrap();
        if job.lease.offset == 1 {
            break;
        }
        ack(&work, &topic, &[job]).unwrap();
    }
    assert_eq!(work.info(&topic).unwrap().in_flight, 1, "the one that was reached last");
    assert_eq!(batches(&work, &topic), [[(2, 1), (3, 1)]]);
    machine.set_now_us(NOW + 31_000_000);
    let mut each = work.each(&topic, take(&work, &topic, 10));
    assert!(each.next().unwrap().unwrap().lease.offset > 1);
    machine.set_now_us(NOW + 62_000_000);
    assert!(each.next().is_none(), "the others' leases are over");
}

#[test]
fn the_file_of_an_earlier_build_is_copied_and_its_attempts_count() {
    let machine = machine();
    let topic = filled(&machine, 5, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 3);
    ack(&work, &topic, &jobs[..1]).unwrap();
    work.nack(&topic, &leases(&jobs[1..]), Duration::ZERO).unwrap();
    drop(work);
    let path = topic.store().layout().queue("work").unwrap();
    let file = machine.open(&path, OpenMode::ReadWrite).unwrap();
    let mut bytes = [0; crate::format::queue::HEADER_LEN];
    file.read_at(&mut bytes, 0).unwrap();
    let header = QueueHeader::decode(&bytes).unwrap();
    let earlier = QueueHeader { counts_begun: false, ..header.clone() };
    file.write_at(&earlier.encode(), 0).unwrap();
    // A process that does not have the file open.
    let topic = topic_on(&machine.process()).unwrap();
    let work = queue(&topic, SMALL);
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(QueueHeader::decode(&bytes), Ok(earlier), "nothing is written to the file itself");
    machine.open(&path, OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    assert_eq!(QueueHeader::decode(&bytes), Ok(header));
    assert_eq!(batches(&work, &topic), [[(1, 2), (2, 2), (3, 1), (4, 1)]]);
    assert_eq!(work.info(&topic).unwrap().done, 1);
}
