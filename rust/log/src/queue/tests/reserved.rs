//! Reserved jobs: they outlive the process that took them, and their tickets settle them from any process.

use super::*;
use crate::queue::{Queue, Ticket};

fn open(topic: &Topic, is_ordered: bool) -> Queue {
    let options = topic.store().queue_options("work").topic(topic);
    if is_ordered { options.ordered(true) } else { options }.open().unwrap()
}

/// Take jobs and reserve all of them; return their tickets, as texts.
fn reserve(queue: &Queue, n: usize) -> Vec<String> {
    let jobs = queue.take(n, Duration::ZERO).unwrap();
    jobs.reserve(n, LEASE).unwrap().iter().map(|(ticket, _)| ticket.to_string()).collect()
}

fn find(queue: &Queue, ticket: &str) -> Result<Option<falaj::Job>> {
    queue.reserved(&ticket.parse::<Ticket>()?)
}

fn job(queue: &Queue, ticket: &str) -> falaj::Job {
    let job = find(queue, ticket).unwrap().unwrap();
    assert_eq!(ticket.parse::<Ticket>().unwrap().offset(), job.offset());
    job
}

fn taken(queue: &Queue) -> Vec<u64> {
    queue.take(9, Duration::ZERO).unwrap().map(|job| job.unwrap().offset()).collect()
}

#[test]
fn a_reserved_job_outlives_all_processes_and_then_comes_alone_when_its_time_is_over() {
    for is_ordered in [false, true] {
        let machine = machine();
        let topic = filled(&machine, 4, SyncMode::Durable);
        let queue = open(&topic, is_ordered);
        let tickets = reserve(&queue, 2);
        drop((queue, topic));
        machine.kill();
        let machine = machine.survivor();
        machine.set_now_us(NOW + 29_000_000);
        let topic = topic_on(&machine).unwrap();
        let queue = open(&topic, is_ordered);
        let info = queue.info().unwrap();
        assert_eq!(info, topic.store().queue_info("work").unwrap());
        assert_eq!((info.in_flight, info.delayed, info.ready, info.done), (2, 0, 2, 0), "{info:?}");
        // The fourth record has the key of the first one.
        assert_eq!(taken(&queue), if is_ordered { vec![2] } else { vec![2, 3] });
        assert_eq!(job(&queue, &tickets[0]).attempt(), 1);
        job(&queue, &tickets[0]).ack().unwrap();
        machine.set_now_us(NOW + 30_000_000);
        let refused = find(&queue, &tickets[1]).unwrap_err();
        assert!(refused.to_string().contains("its lease expired"), "{refused}");
        if is_ordered {
            assert_eq!(taken(&queue), [3], "the first of its key is done");
        }
        let again: Vec<_> =
            queue.take(9, Duration::ZERO).unwrap().map(|job| job.unwrap()).collect();
        assert_eq!((again.len(), again[0].offset(), again[0].attempt()), (1, 1, 2));
        assert!(again[0].is_suspect());
        let refused = find(&queue, &tickets[1]).unwrap_err();
        assert!(refused.to_string().contains("another worker may have it"), "{refused}");
        again[0].ack().unwrap();
        assert!(find(&queue, &tickets[1]).unwrap().is_none(), "the job is done");
    }
}

#[test]
fn a_ticket_settles_its_job_from_any_process_and_once() {
    let machine = machine();
    let topic = filled(&machine, 5, SyncMode::Durable);
    let other = topic_on(&machine.process()).unwrap();
    let (mine, yours) = (open(&topic, false), open(&other, false));
    let tickets = reserve(&mine, 4);
    job(&yours, &tickets[0]).ack().unwrap();
    assert!(find(&mine, &tickets[0]).unwrap().is_none(), "it is done already");
    job(&yours, &tickets[1]).nack(Duration::ZERO, "no").unwrap();
    let refused = find(&mine, &tickets[1]).unwrap_err();
    assert!(matches!(refused, Error::LeaseExpired { offset: 1, .. }), "{refused}");
    job(&yours, &tickets[2]).extend(2 * LEASE).unwrap();
    machine.set_now_us(NOW + 30_000_000);
    let batches = [taken(&mine), taken(&mine), taken(&mine)];
    assert_eq!(batches, [vec![1], vec![3], vec![4]], "3 is a suspect, and 2 was extended");
    job(&mine, &tickets[2]).ack().unwrap();
    mine.topic().store().delete_queue("work").unwrap();
    let refused = find(&mine, &tickets[3]).unwrap_err();
    assert!(refused.to_string().contains("was reset"), "{refused}");
}

#[test]
fn the_last_attempt_of_a_reserved_job_leaves_a_dead_letter() {
    let machine = machine();
    let topic = filled(&machine, 1, SyncMode::Durable);
    let letters = Topic::open(topic.store(), "dead", &small_segments()).unwrap();
    let options = topic.store().queue_options("work").topic(&topic).dead_letters(1, &letters);
    let queue = options.open().unwrap();
    let tickets = reserve(&queue, 1);
    job(&queue, &tickets[0]).nack(None, "cannot be read").unwrap();
    let letter = letters.get(0).unwrap();
    let reason = letter.headers().find(|(name, _)| *name == "falaj-reason").unwrap().1;
    assert_eq!(reason, Some(&b"cannot be read"[..]));
    assert!(find(&queue, &tickets[0]).unwrap().is_none());
    assert_eq!(queue.info().unwrap().dead, 1);
}

#[test]
fn the_jobs_of_a_take_that_are_not_reserved_return_uncounted() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let queue = open(&topic, false);
    let jobs = queue.take(3, Duration::ZERO).unwrap();
    assert_eq!(jobs.records().map(crate::topic::Record::offset).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(jobs.reserve(1, LEASE).unwrap().len(), 1);
    let rest: Vec<_> = queue.take(3, Duration::ZERO).unwrap().map(|job| job.unwrap()).collect();
    let rest: Vec<_> = rest.iter().map(|job| (job.offset(), job.attempt())).collect();
    assert_eq!(rest, [(1, 1), (2, 1)]);
}

#[test]
fn a_ticket_settles_no_record_that_took_the_place_of_a_lost_one() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let queue = open(&topic, false);
    for _ in 0..3 {
        topic.append_to(0, &NewRecord::new(b"same"), Some(SyncMode::None)).unwrap();
    }
    let tickets = reserve(&queue, 5);
    // The reservations are on the disk, three of their records are not.
    let state =
        machine.open(std::path::Path::new("/store/queues/work"), OpenMode::ReadWrite).unwrap();
    state.sync_all().unwrap();
    let crash = machine.journal().crash_at_end();
    let image = crash.image(&crash.nothing());
    image.set_now_us(NOW + 1);
    let topic = topic_on(&image).unwrap();
    assert_eq!(topic.end(0).unwrap(), 2);
    // The queue is opened when others have the places already.
    for _ in 0..3 {
        topic.append_to(0, &NewRecord::new(b"same"), None).unwrap();
    }
    let queue = open(&topic, false);
    assert_eq!(queue.info().unwrap().in_flight, 5);
    for ticket in &tickets[2..] {
        let is_refused = matches!(find(&queue, ticket), Err(Error::LeaseExpired { .. }));
        assert!(is_refused, "a ticket counts for the record that took the place of its own");
    }
    for ticket in &tickets[..2] {
        job(&queue, ticket).ack().unwrap();
    }
    image.set_now_us(NOW + 30_000_001);
    let mut left = Vec::new();
    for _ in 0..3 {
        left.extend(taken(&queue));
    }
    left.sort_unstable();
    assert_eq!(left, [2, 3, 4], "each new record is a job that is still to be done");
}

#[test]
fn a_text_that_is_no_ticket_is_refused_and_a_forged_one_settles_nothing() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let queue = open(&topic, false);
    let ticket = reserve(&queue, 1).remove(0);
    let forged = ticket.replacen("0-1-", "1-1-", 1);
    for text in
        ["", "-", "0", "0-1", "0-1-0-0", "+0-1", &format!("{ticket} "), &format!("0{ticket}")]
    {
        let refused = text.parse::<Ticket>().unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{text:?}: {refused}");
    }
    for text in [forged, ticket.replacen("0-1-", "0-2-", 1), ticket.replacen("0-", "99-", 1)] {
        let refused = find(&queue, &text).unwrap_err();
        assert!(matches!(refused, Error::LeaseExpired { .. }), "{text:?}: {refused}");
    }
    assert_eq!(job(&queue, &ticket).offset(), 0);
}
