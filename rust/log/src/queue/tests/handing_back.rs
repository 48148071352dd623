//! Jobs that return to the queue: those that a take leased and does not deliver, and perhaps those whose
//! records a failed sync moved. Also the size of the file, which is as large as it has to be.

use super::*;
use crate::twin::faulty::Call;

/// Open a topic of four records, one of them delayed, on storage whose calls fail as planned.
fn with_a_delayed_job(machine: &MemoryStorage) -> (FaultyStorage, Topic) {
    let faulty = FaultyStorage::over_memory(machine.process());
    let store = Store::open_on(Arc::new(faulty.clone()), "/store", &StoreOptions::default());
    let topic = Topic::open(&store.unwrap(), "jobs", &small_segments()).unwrap();
    let until = (NOW + 7_000_000).to_string();
    for i in 0..4 {
        let headers = [(NOT_BEFORE, Some(until.as_bytes()))];
        let headers = if i == 1 { &headers[..] } else { &[] };
        topic.append_to(0, &NewRecord { headers, ..NewRecord::new(b"job") }, None).unwrap();
    }
    (faulty, topic)
}

#[test]
fn a_take_that_does_not_get_the_lock_strands_no_job() {
    for lasts in [false, true] {
        for k in 1.. {
            let machine = machine().on(Filesystem::CopyOnWrite("btrfs"));
            let (faulty, topic) = with_a_delayed_job(&machine);
            let work = queue(&topic, SMALL);
            let fault = Fault::at(faulty.count(Call::Lock) + k, FailureKind::Errno(libc::EIO));
            let fault = fault.only(Call::Lock);
            faulty.plan(if lasts { fault.forever() } else { fault });
            let first = work.take(&topic, 9, LEASE);
            if faulty.failed() == 0 {
                assert!(k > 3, "no lock behind the first jobs was tried");
                break;
            }
            faulty.heal();
            let mut all = first.as_ref().map(|jobs| offsets(jobs)).unwrap_or_default();
            let jobs = take(&work, &topic, 9);
            all.extend(offsets(&jobs));
            assert_eq!(all, [0, 2, 3], "lock {k} failed: {first:?}");
            assert!(jobs.iter().all(|job| job.lease.attempt == 1), "lock {k}: {jobs:?}");
            machine.set_now_us(NOW + 7_000_001);
            let jobs = take(&work, &topic, 9);
            assert_eq!((offsets(&jobs), jobs[0].lease.attempt), (vec![1], 1), "lock {k}");
        }
    }
}

#[test]
fn jobs_are_buried_whole_or_not_at_all() {
    for k in 1.. {
        let machine = machine().on(Filesystem::CopyOnWrite("btrfs"));
        let (faulty, topic) = with_a_delayed_job(&machine);
        let work = queue(&topic, SMALL);
        let jobs: Vec<_> = take(&work, &topic, 2).iter().map(LeasedJob::to_ack).collect();
        let fault = Fault::at(faulty.count(Call::Lock) + k, FailureKind::Errno(libc::EIO));
        faulty.plan(fault.only(Call::Lock));
        let buried = work.bury(&topic, &jobs);
        if faulty.failed() == 0 {
            assert!(k > 1 && buried.is_ok(), "{buried:?}");
            break;
        }
        work.bury(&topic, &jobs).unwrap();
        assert_eq!(work.info(&topic).unwrap().dead, 2, "lock {k} failed");
        assert!(work.bury(&topic, &jobs).is_err());
        assert_eq!(work.info(&topic).unwrap().dead, 2, "what is over does not count");
    }
}

/// Flip a bit of a record; return a function that restores it. A process does not check a record again
/// that it read once. So only a process that has not read the record meets the corruption.
pub(super) fn damage(machine: &MemoryStorage, offset: u64) -> impl FnOnce() {
    let record = topic_on(&machine.process()).unwrap().get_in(0, offset).unwrap();
    let (path, position) = (record.block().path().to_owned(), record.block().position() + 40);
    drop(record);
    let file = machine.open(&path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, position).unwrap();
    file.write_at(&[byte[0] ^ 1], position).unwrap();
    move || file.write_at(&byte, position).unwrap()
}

#[test]
fn a_record_that_cannot_be_read_keeps_no_other_from_being_had() {
    for options in [SMALL, KEYED] {
        let machine = machine();
        let topic = filled(&machine, 3, SyncMode::Durable);
        let work = queue(&topic, options);
        work.nack(&topic, &leases(&take(&work, &topic, 1)), Duration::ZERO).unwrap();
        let heal = damage(&machine, 1);
        // If keys keep their order, the queue cannot know what the jobs behind a corrupt one wait for.
        let (had, rest) =
            if options == SMALL { (vec![0, 2], vec![1]) } else { (vec![0], vec![1, 2]) };
        assert_eq!(offsets(&take(&work, &topic, 9)), had);
        let told = work.take(&topic, 9, LEASE);
        assert!(matches!(told, Err(Error::CorruptData { .. })), "{told:?}");
        assert_eq!(work.info(&topic).unwrap().in_flight, had.len() as u64, "{options:?}");
        heal();
        let jobs = take(&work, &topic, 9);
        assert!(jobs.iter().all(|job| job.lease.attempt == 1), "{jobs:?}");
        assert_eq!(offsets(&jobs), rest);
    }
}

#[test]
fn more_damaged_jobs_than_are_taken_keep_no_other_from_being_had() {
    let machine = machine();
    drop(filled(&machine, 8, SyncMode::Durable));
    for offset in [0, 1, 2, 5] {
        drop(damage(&machine, offset));
    }
    let topic = topic_on(&machine.process()).unwrap();
    let work = queue(&topic, SMALL);
    let had: Vec<_> = (0..4).flat_map(|_| offsets(&take(&work, &topic, 1))).collect();
    assert_eq!(had, [3, 4, 6, 7]);
    let info = work.info(&topic).unwrap();
    assert_eq!((info.in_flight, info.ready + info.delayed), (4, 4));
    assert!(matches!(work.take(&topic, 1, LEASE), Err(Error::CorruptData { .. })));
    let skipped = work.skip_damage(&topic).unwrap();
    assert_eq!(skipped.into_iter().flat_map(|lost| lost.offsets).collect::<Vec<_>>(), [0, 1, 2, 5]);
    assert!(take(&work, &topic, 1).is_empty());
}

#[test]
fn jobs_whose_records_are_damaged_are_given_up_when_told_to() {
    for options in [SMALL, KEYED] {
        let machine = machine();
        let topic = filled(&machine, 200, SyncMode::Durable);
        let work = queue(&topic, options);
        // Some jobs returned; others were never delivered, one of them past the ring's first places.
        let held = take(&work, &topic, 1);
        work.nack(&topic, &leases(&take(&work, &topic, 2)), Duration::ZERO).unwrap();
        for offset in [1, 2, 3, 64, 120] {
            drop(damage(&machine, offset));
        }
        let topic = topic_on(&machine.process()).unwrap();
        let other = queue(&topic, options);
        let (mut told, mut had) = (Vec::new(), Vec::new());
        loop {
            match other.take(&topic, 7, LEASE) {
                Ok(jobs) if jobs.is_empty() => break,
                Ok(jobs) => {
                    had.extend(offsets(&jobs));
                    ack(&other, &topic, &jobs).unwrap();
                }
                Err(Error::CorruptData { .. }) => {
                    let skipped = other.skip_damage(&topic).unwrap();
                    assert!(skipped.iter().all(|lost| machine.stat(&lost.path).is_ok()));
                    told.extend(skipped.into_iter().flat_map(|lost| lost.offsets));
                }
                Err(error) => panic!("{error}"),
            }
        }
        told.sort_unstable();
        had.sort_unstable();
        assert_eq!(told, [1, 2, 3, 64, 120], "{options:?}");
        // Jobs that have the key of the job in flight wait for it.
        let waits = |offset: &u64| options == KEYED && offset % 3 == 0;
        let all = (1..200).filter(|offset| !told.contains(offset) && !waits(offset));
        assert_eq!(had, all.collect::<Vec<_>>(), "{options:?}");
        assert_eq!(other.info(&topic).unwrap().dead, 5);
        assert!(other.skip_damage(&topic).unwrap().is_empty());
        drop(held);
    }
}

#[test]
fn a_corrupt_record_is_skipped_also_where_all_places_of_the_queue_are_in_use() {
    let machine = machine();
    let topic = filled(&machine, 200, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let held = take(&work, &topic, 64);
    assert_eq!(held.len(), 64);
    drop(damage(&machine, 64));
    let other = topic_on(&machine.process()).unwrap();
    let skipped = queue(&other, SMALL).skip_damage(&other).unwrap();
    let lost: Vec<_> = skipped.into_iter().flat_map(|lost| lost.offsets).collect();
    assert_eq!(lost, [64]);
    ack(&work, &topic, &held).unwrap();
    assert_eq!(offsets(&take(&work, &topic, 1)), [65]);
}

#[test]
fn a_damaged_record_that_is_out_is_its_holders() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let held = take(&work, &topic, 2);
    drop(damage(&machine, 1));
    let topic = topic_on(&machine.process()).unwrap();
    let other = queue(&topic, SMALL);
    assert!(other.skip_damage(&topic).unwrap().is_empty());
    assert_eq!(other.info(&topic).unwrap().in_flight, held.len() as u64);
}

#[test]
fn a_queue_opens_anew_although_a_job_that_came_back_is_damaged() {
    let machine = machine();
    let topic = filled(&machine, 4, SyncMode::Durable);
    let work = queue(&topic, KEYED);
    work.nack(&topic, &leases(&take(&work, &topic, 2)), Duration::ZERO).unwrap();
    let state =
        machine.open(std::path::Path::new("/store/queues/work"), OpenMode::ReadWrite).unwrap();
    state.sync_all().unwrap();
    let crash = machine.journal().crash_at_end();
    let image = crash.image(&crash.nothing());
    image.set_now_us(NOW + 1);
    drop(damage(&image, 1));
    let topic = topic_on(&image.process()).unwrap();
    let work = queue(&topic, KEYED);
    assert_eq!(offsets(&take(&work, &topic, 9)), [0, 2]);
    assert!(matches!(work.take(&topic, 9, LEASE), Err(Error::CorruptData { .. })));
    let skipped = work.skip_damage(&topic).unwrap();
    assert_eq!((skipped.len(), &skipped[0].offsets), (1, &(1..2)));
}

#[test]
fn a_file_that_a_delay_made_large_is_small_again_when_it_is_over() {
    for options in [SMALL, KEYED] {
        let machine = machine();
        let topic = filled(&machine, 2000, SyncMode::Durable);
        let second = topic_on(&machine.process()).unwrap();
        let (a, b) = (queue(&topic, options), queue(&second, options));
        let first = take(&a, &topic, 1);
        a.nack(&topic, &leases(&first), Duration::from_secs(5)).unwrap();
        let held = take(&a, &topic, 1);
        drain(&b, &second);
        assert!(a.info(&topic).unwrap().capacity >= 1024);
        assert!(topic.store().storage().stat(&a.path).unwrap().len > 100_000);
        machine.set_now_us(NOW + 5_000_000);
        drain(&b, &second);
        let info = a.info(&topic).unwrap();
        assert_eq!(
            (info.in_flight, info.capacity),
            (1, 2048),
            "all behind the one that is out count"
        );
        ack(&a, &topic, &held).unwrap();
        drain(&b, &second);
        // Each take that finds nothing makes the file smaller by one step.
        assert!((0..4).all(|_| take(&b, &second, 1).is_empty()));
        // A lease stays valid while the file changes its size.
        topic.append_to(0, &NewRecord::new(b"new"), Some(SyncMode::Durable)).unwrap();
        let late = take(&b, &second, 1);
        assert_eq!((b.info(&second).unwrap().capacity, offsets(&late)), (64, vec![2000]));
        ack(&b, &second, &late).unwrap();
        assert!(topic.store().storage().stat(&a.path).unwrap().len < 50_000);
    }
}

#[test]
fn a_queue_that_can_grow_no_more_says_what_keeps_it() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let told = || work.changed(&topic, |ring, now| ring.larger(64, now)).unwrap_err().to_string();
    let jobs = take(&work, &topic, 1);
    assert!(told().contains("record 0, which is in flight: ack it"), "{}", told());
    work.nack(&topic, &leases(&jobs), Duration::from_secs(9)).unwrap();
    assert!(told().contains("which is delayed for 9 s more"), "{}", told());
    machine.set_now_us(NOW + 9_000_001);
    work.nack(&topic, &leases(&take(&work, &topic, 1)), Duration::ZERO).unwrap();
    assert!(told().contains("is not done: take and ack it"), "{}", told());
}

/// Records that were not on the disk when a sync failed are carried over. They get another segment and
/// another mark.
#[test]
fn behind_a_failed_sync_what_was_acked_before_may_come_again_and_nothing_is_lost() {
    let machine = machine();
    let faulty = FaultyStorage::over_memory(machine.clone());
    let options = StoreOptions::default();
    let store = Store::open_on(Arc::new(faulty.clone()), "/store", &options).unwrap();
    let topic = Topic::open(&store, "jobs", &small_segments()).unwrap();
    for _ in 0..4 {
        topic.append_to(0, &NewRecord::new(b"job"), Some(SyncMode::None)).unwrap();
    }
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 4);
    // The first job stays in flight, so that the queue still keeps all acks.
    ack(&work, &topic, &jobs[1..3]).unwrap();
    let next = faulty.count(Call::SyncData) + 1;
    faulty.plan(Fault::at(next, FailureKind::Errno(libc::EIO)).only(Call::SyncData));
    topic.flush().unwrap();
    assert_eq!(faulty.failed(), 1);
    ack(&work, &topic, &jobs[3..]).unwrap();
    drop((work, topic, store));
    let topic = topic_on(&machine).unwrap();
    assert_eq!(drain(&queue(&topic, SMALL), &topic), [0, 1, 2, 3]);
}

#[test]
fn corrupt_jobs_that_were_skipped_before_a_failure_are_named() {
    let mut partly = 0;
    for k in 1.. {
        let machine = machine().on(Filesystem::CopyOnWrite("btrfs"));
        drop(filled(&machine, 4, SyncMode::Durable));
        for offset in [0, 1] {
            drop(damage(&machine, offset));
        }
        let faulty = FaultyStorage::over_memory(machine.process());
        let store = Store::open_on(Arc::new(faulty.clone()), "/store", &StoreOptions::default());
        let topic = Topic::open(&store.unwrap(), "jobs", &small_segments()).unwrap();
        let work = queue(&topic, SMALL);
        let fault = Fault::at(faulty.count(Call::Lock) + k, FailureKind::Errno(libc::EIO));
        faulty.plan(fault.only(Call::Lock));
        let skipped = work.skip_damage(&topic);
        let has_failed = faulty.failed() > 0;
        faulty.heal();
        let dead = work.info(&topic).unwrap().dead;
        assert_eq!(skipped.as_ref().map_or(0, Vec::len) as u64, dead, "lock {k}: {skipped:?}");
        if !has_failed {
            assert_eq!(dead, 2);
            break;
        }
        partly += u32::from(dead == 1);
    }
    assert!(partly > 0, "no lock failed between the first job and the second");
}

#[test]
fn a_job_whose_record_is_deleted_after_it_was_leased_is_passed_over() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let leases = work.lease(&topic, (3, true), LEASE).unwrap();
    topic.trim(&[(0, 2)]).unwrap();
    let (mut jobs, mut unread) = (Vec::new(), Vec::new());
    work.read(&topic, &leases, &mut jobs, &mut unread).unwrap();
    assert_eq!((offsets(&jobs), unread), (vec![2], vec![]));
    work.settle(&topic).unwrap();
    assert_eq!(work.info(&topic).unwrap().in_flight, 1);
}

#[test]
fn dead_letters_of_more_than_one_append_are_all_written() {
    let machine = machine();
    let topic = topic_on(&machine).unwrap();
    let options = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    let letters = Topic::open(topic.store(), "letters", &options).unwrap();
    let value = vec![7; letters.log().max_group_len() as usize * 2 / 5];
    for _ in 0..5 {
        topic.append_to(0, &NewRecord::new(&value), Some(SyncMode::Durable)).unwrap();
    }
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 5);
    assert!(work.dead_letter(&topic, &jobs, Some("no use"), &letters).unwrap());
    assert_eq!(letters.end(0).unwrap(), 5);
    assert_eq!(work.info(&topic).unwrap().dead, 5);
}
