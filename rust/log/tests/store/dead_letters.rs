//! Jobs that fail: how long they wait, why they are dead letters, and putting them back.

use std::time::Duration;

use falaj::{Backoff, Error, Job, NewRecord, Queue, Record, Store};

/// A lease that is over soon, and on a busy machine not before a job is in its worker's hands.
const SHORT: Duration = Duration::from_millis(300);

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("events")).unwrap();
    (dir, store)
}

fn next(queue: &Queue) -> Option<Job> {
    queue.take(1, Duration::ZERO).unwrap().next().map(Result::unwrap)
}

fn header(record: &Record, name: &str) -> Option<String> {
    let mut headers = record.headers();
    let (_, value) = headers.find(|(known, _)| *known == name)?;
    Some(String::from_utf8_lossy(value?).into_owned())
}

#[test]
fn a_dead_letter_keeps_the_reason_of_the_last_attempt_and_a_redrive_puts_it_back_once() {
    let (_dir, store) = store();
    let letters = store.topic_options("mails.dead").partitions(3).open().unwrap();
    let queue = store.queue_options("mails").dead_letters(2, &letters).open().unwrap();
    let other = store.queue_options("copies").topic(queue.topic()).dead_letters(1, &letters);
    let other = other.open().unwrap();
    for name in ["ann", "bob", "cid"] {
        let headers = [("trace", Some(&b"7"[..]))];
        queue.put(NewRecord::new(name.as_bytes()).key(b"k").headers(&headers)).unwrap();
    }
    let fail = |job: Job| job.nack(None, &format!("attempt {} failed", job.attempt())).unwrap();
    while letters.scan(..).unwrap().next().is_none() {
        fail(next(&queue).unwrap());
    }
    next(&other).unwrap().nack(None, "not mine").unwrap();
    while let Some(job) = next(&queue) {
        fail(job);
    }
    let all: Vec<Record> = letters.scan(..).unwrap().map(Result::unwrap).collect();
    let mine: Vec<_> =
        all.iter().filter(|it| header(it, "falaj-queue").as_deref() == Some("mails")).collect();
    assert_eq!((all.len(), mine.len(), queue.info().unwrap().dead), (4, 3, 3));
    assert!(mine.iter().all(|it| header(it, "falaj-attempts").as_deref() == Some("2")));
    let reasons: Vec<_> = mine.iter().filter_map(|it| header(it, "falaj-reason")).collect();
    assert_eq!(reasons, ["attempt 2 failed"; 3]);
    // A letter of another queue lies between, so the sequences have a gap.
    assert_eq!(queue.redrive(1).unwrap(), 1);
    assert_eq!((queue.redrive(None).unwrap(), queue.redrive(None).unwrap()), (2, 0));
    let again = next(&queue).unwrap();
    assert_eq!((again.key(), again.attempt()), (Some(&b"k"[..]), 1));
    assert_eq!(again.headers().collect::<Vec<_>>(), [("trace", Some(&b"7"[..]))]);
    assert_eq!(other.redrive(None).unwrap(), 1);
    let none = store.queue("other").unwrap().redrive(None);
    assert!(matches!(none, Err(Error::InvalidArgument { .. })), "{none:?}");
}

#[test]
fn a_job_whose_last_worker_died_becomes_a_dead_letter_that_says_so_by_the_next_take() {
    let (_dir, store) = store();
    let letters = store.topic("dead").unwrap();
    let queue = store.queue_options("mails").lease(SHORT).dead_letters(1, &letters).open().unwrap();
    queue.put("ann").unwrap();
    let late = next(&queue).unwrap();
    while letters.end_offset().unwrap() == 0 {
        drop(queue.take(1, Duration::from_millis(5)).unwrap());
    }
    let letter = letters.get(0).unwrap();
    let reason = header(&letter, "falaj-reason");
    assert_eq!(reason.as_deref(), Some("its worker died, or its lease was over"));
    assert!(matches!(late.nack(None, "too late"), Err(Error::LeaseExpired { .. })));
}

#[test]
fn a_job_whose_worker_was_late_is_a_suspect() {
    let (_dir, store) = store();
    let queue = store.queue_options("mails").lease(SHORT).open().unwrap();
    queue.put("ann").unwrap();
    let late = next(&queue).unwrap();
    let again = queue.take(1, Duration::from_secs(60)).unwrap().next().unwrap().unwrap();
    assert_eq!((late.is_suspect(), late.attempt()), (false, 1));
    assert_eq!((again.is_suspect(), again.attempt()), (true, 2));
}

#[test]
fn a_queue_that_may_not_be_created_is_opened_where_it_exists_and_refused_elsewhere() {
    let (_dir, store) = store();
    store.queue("mails").unwrap();
    let open = |name| store.queue_options(name).create(false).open();
    assert_eq!(open("mails").unwrap().name(), "mails");
    let refused = open("mials").map(drop).unwrap_err();
    assert!(matches!(refused, Error::UnknownQueue { .. }), "{refused}");
    assert!(refused.to_string().contains("mails"), "{refused}");
    assert_eq!(store.queues().unwrap(), ["mails"]);
}

#[test]
fn where_a_dead_letter_cannot_be_written_the_job_goes_back_and_a_take_says_why() {
    let (_dir, store) = store();
    let letters = store.topic("dead").unwrap();
    let queue = store.queue_options("mails").dead_letters(1, &letters).open().unwrap();
    queue.put("ann").unwrap();
    store.delete_topic("dead").unwrap();
    next(&queue).unwrap().nack(None, "timeout").unwrap();
    let told = queue.take(1, Duration::ZERO).map(drop).unwrap_err();
    assert!(matches!(told, Error::TopicDeleted { .. }), "{told}");
    let info = queue.info().unwrap();
    assert_eq!((info.dead, info.in_flight, info.ready + info.delayed), (0, 0, 1));
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let (_dir, store) = store();
    let letters = store.topic("dead").unwrap();
    let queue = store.queue_options("mails").dead_letters(1, &letters).open().unwrap();
    queue.put("ann").unwrap();
    next(&queue).unwrap().nack(None, &"ä".repeat(999)).unwrap();
    assert_eq!(header(&letters.get(0).unwrap(), "falaj-reason"), Some("ä".repeat(500)));
}

#[test]
fn a_backoff_doubles_up_to_its_longest_and_takes_off_at_most_a_half() {
    let backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(10));
    for (attempt, longest) in [(1, 2), (2, 4), (3, 8), (4, 10), (5, 10), (4_000_000_000, 10)] {
        let longest = Duration::from_secs(longest);
        assert_eq!(backoff.longest_delay(attempt), longest);
        assert_eq!(backoff.delay(attempt, 0), longest);
        let least = backoff.delay(attempt, u64::MAX);
        assert!(least.abs_diff(longest / 2) < Duration::from_micros(1), "{least:?}");
    }
}

#[test]
fn a_failed_job_waits_as_long_as_the_backoff_of_its_queue_says() {
    let (_dir, store) = store();
    let hour = Backoff::new(Duration::from_secs(3600), Duration::from_secs(3600));
    let queue = store.queue_options("mails").backoff(hour).open().unwrap();
    queue.put("ann").unwrap();
    next(&queue).unwrap().nack(None, "timeout").unwrap();
    assert_eq!(queue.info().unwrap().delayed, 1);
    queue.put("bob").unwrap();
    next(&queue).unwrap().nack(Duration::ZERO, "timeout").unwrap();
    assert_eq!(
        next(&queue).unwrap().value(),
        Some(&b"bob"[..]),
        "a delay that is given comes first"
    );
}

#[test]
fn dead_letters_that_would_be_jobs_again_are_refused_and_make_no_queue() {
    let (_dir, store) = store();
    let (jobs, letters) = (store.topic("jobs").unwrap(), store.topic("jobs.dead").unwrap());
    let backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(1));
    let of_jobs = || store.queue_options("work").topic(&jobs);
    for refused in [
        of_jobs().dead_letters(3, &jobs),
        of_jobs().dead_letters(0, &letters),
        of_jobs().dead_letters(1 << 24, &letters),
        of_jobs().backoff(backoff),
    ] {
        let error = refused.open().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
    assert!(store.queues().unwrap().is_empty());
    of_jobs().dead_letters(1, &letters).open().unwrap();
}
