//! Queues in memory: which worker gets which job, power cuts and deaths at every event, corrupt files.

mod begun;
mod derived;
mod forged;
mod handing_back;
mod numbers;
mod reserved;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::state::StateFile;
use super::*;
use crate::storage::{Filesystem, OpenMode, Storage};
use crate::store::{StoreOptions, TopicOptions};
use crate::topic::{NewRecord, SyncMode};
use crate::twin::faulty::{FailureKind, Fault, FaultyStorage};
use crate::twin::memory::{MemoryStorage, every};

const LEASE: Duration = Duration::from_secs(30);
const NOW: i64 = 1_767_225_600_000_000;
const SMALL: QueueOptions = QueueOptions { ordered: None, capacity: 64 };
const KEYED: QueueOptions = QueueOptions { ordered: Some(true), capacity: 64 };

fn machine() -> MemoryStorage {
    MemoryStorage::with_capacity(4 << 20).seeded(5)
}

fn small_segments() -> TopicOptions {
    TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() }
}

fn topic_on(machine: &MemoryStorage) -> Result<Topic> {
    let storage = Arc::new(machine.clone());
    let options = StoreOptions { lock_timeout: Duration::from_secs(5), ..StoreOptions::default() };
    let store = Store::open_on(storage, "/store", &options)?;
    Topic::open(&store, "jobs", &small_segments())
}

fn filled(machine: &MemoryStorage, n: u64, sync: SyncMode) -> Topic {
    let topic = topic_on(machine).unwrap();
    for i in 0..n {
        let key = [b'a' + (i % 3) as u8];
        let value = i.to_le_bytes();
        let record = NewRecord { key: Some(&key), ..NewRecord::new(&value) };
        topic.append_to(0, &record, Some(sync)).unwrap();
    }
    topic
}

fn queue(topic: &Topic, options: QueueOptions) -> QueueFile {
    QueueFile::open(topic, "work", options).unwrap()
}

fn take(queue: &QueueFile, topic: &Topic, n: usize) -> Vec<LeasedJob> {
    queue.take(topic, n, LEASE).unwrap()
}

fn offsets(jobs: &[LeasedJob]) -> Vec<u64> {
    jobs.iter().map(|job| job.lease.offset).collect()
}

fn ack(queue: &QueueFile, topic: &Topic, jobs: &[LeasedJob]) -> Result<()> {
    queue.ack(topic, &jobs.iter().map(LeasedJob::to_ack).collect::<Vec<_>>())
}

fn leases(jobs: &[LeasedJob]) -> Vec<Lease> {
    jobs.iter().map(|job| job.lease).collect()
}

/// Take and ack all jobs that can be taken now; return their offsets.
fn drain(queue: &QueueFile, topic: &Topic) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let jobs = take(queue, topic, 10);
        if jobs.is_empty() {
            return all;
        }
        ack(queue, topic, &jobs).unwrap();
        all.extend(offsets(&jobs));
    }
}

#[test]
fn every_record_is_handed_out_once_in_order_and_acked_ones_never_again() {
    for filesystem in [Filesystem::Promises("ext4"), Filesystem::CopyOnWrite("btrfs")] {
        let machine = machine().on(filesystem);
        let topic = filled(&machine, 300, SyncMode::Durable);
        let queue = queue(&topic, SMALL);
        assert_eq!(drain(&queue, &topic), (0..300).collect::<Vec<_>>());
        assert!(take(&queue, &topic, 1).is_empty());
        let info = queue.info(&topic).unwrap();
        assert_eq!((info.head, info.ready, info.in_flight, info.delayed), (300, 0, 0, 0));
    }
}

#[test]
fn two_holders_have_different_jobs_and_cannot_ack_each_others() {
    let machine = machine();
    let first = filled(&machine, 20, SyncMode::Durable);
    let second = topic_on(&machine.process()).unwrap();
    let (a, b) = (queue(&first, SMALL), queue(&second, SMALL));
    let (mine, yours) = (take(&a, &first, 5), take(&b, &second, 5));
    assert_eq!((offsets(&mine), offsets(&yours)), ((0..5).collect(), (5..10).collect()));
    let refused = ack(&b, &second, &mine);
    assert!(matches!(refused, Err(Error::LeaseExpired { offset: 0, .. })), "{refused:?}");
    ack(&a, &first, &mine).unwrap();
    let again = ack(&a, &first, &mine);
    assert!(matches!(again, Err(Error::LeaseExpired { .. })), "{again:?}");
}

#[test]
fn a_lease_past_its_deadline_is_over_and_its_ack_is_refused() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let queue = queue(&topic, SMALL);
    let late = take(&queue, &topic, 1);
    queue.begin(&topic, &leases(&late)).unwrap();
    queue.extend(&topic, &leases(&late), 2 * LEASE).unwrap();
    machine.set_now_us(NOW + 31_000_000);
    assert_eq!(offsets(&take(&queue, &topic, 1)), [1], "it was extended");
    machine.set_now_us(NOW + 60_000_000);
    let refused = ack(&queue, &topic, &late).unwrap_err();
    assert!(refused.to_string().contains("its lease expired"), "{refused}");
    let again = take(&queue, &topic, 1);
    assert_eq!((again[0].lease.offset, again[0].lease.attempt), (0, 2));
    assert!(ack(&queue, &topic, &late).unwrap_err().to_string().contains("another worker has it"));
    ack(&queue, &topic, &again).unwrap();
}

#[test]
fn jobs_that_are_given_back_come_again_at_once_or_after_their_delay() {
    let machine = machine();
    let topic = filled(&machine, 3, SyncMode::Durable);
    let queue = queue(&topic, SMALL);
    let jobs = take(&queue, &topic, 3);
    queue.nack(&topic, &leases(&jobs[..1]), Duration::ZERO).unwrap();
    queue.nack(&topic, &leases(&jobs[1..2]), Duration::from_secs(5)).unwrap();
    let back = take(&queue, &topic, 9);
    assert_eq!((offsets(&back), back[0].lease.attempt), (vec![0], 2));
    machine.set_now_us(NOW + 5_000_000);
    assert_eq!(offsets(&take(&queue, &topic, 9)), [1]);
}

#[test]
fn a_record_that_says_so_is_not_handed_out_before_its_time_and_that_is_no_attempt() {
    let machine = machine();
    let topic = topic_on(&machine).unwrap();
    let until = (NOW + 7_000_000).to_string();
    let headers = [(NOT_BEFORE, Some(until.as_bytes()))];
    let record = NewRecord { headers: &headers, ..NewRecord::new(b"later") };
    topic.append_to(0, &record, None).unwrap();
    topic.append_to(0, &NewRecord::new(b"now"), None).unwrap();
    let queue = queue(&topic, SMALL);
    assert_eq!(offsets(&take(&queue, &topic, 9)), [1]);
    machine.set_now_us(NOW + 7_000_001);
    let jobs = take(&queue, &topic, 9);
    assert_eq!((offsets(&jobs), jobs[0].lease.attempt), (vec![0], 1));
}

#[test]
fn of_one_key_one_job_is_out_at_a_time_and_in_the_order_of_offsets() {
    let machine = machine();
    let topic = filled(&machine, 9, SyncMode::Durable);
    let queue = queue(&topic, KEYED);
    let first = take(&queue, &topic, 9);
    assert_eq!(offsets(&first), [0, 1, 2]);
    assert!(take(&queue, &topic, 9).is_empty());
    queue.nack(&topic, &leases(&first[..1]), Duration::ZERO).unwrap();
    assert_eq!(offsets(&take(&queue, &topic, 9)), [0], "not 3, which has the same key");
    ack(&queue, &topic, &first[1..]).unwrap();
    assert_eq!(offsets(&take(&queue, &topic, 9)), [4, 5]);
    let other = QueueFile::open(&topic, "work", QueueOptions { ordered: Some(false), ..SMALL });
    assert!(matches!(other, Err(Error::SettingsMismatch { setting: "order", .. })));
}

#[test]
fn a_process_in_a_dead_ones_slot_takes_back_what_that_had() {
    let machine = machine();
    let topic = filled(&machine, 4, SyncMode::Durable);
    let victim = machine.process();
    let theirs = topic_on(&victim).unwrap();
    take(&queue(&theirs, SMALL), &theirs, 2);
    victim.kill();
    // No process looked for the dead one before another took its slot.
    let heir = topic_on(&machine.process()).unwrap();
    assert_eq!(offsets(&take(&queue(&heir, SMALL), &heir, 9)), [0, 1, 2, 3]);
    drop(topic);
}

#[test]
fn a_full_ring_grows_and_others_go_on_in_the_larger_file() {
    for options in [SMALL, KEYED] {
        let machine = machine();
        let topic = filled(&machine, 400, SyncMode::Durable);
        let second = topic_on(&machine.process()).unwrap();
        let (a, b) = (queue(&topic, options), queue(&second, options));
        let stuck = take(&a, &topic, 1);
        let mut all: BTreeSet<u64> = drain(&b, &second).into_iter().collect();
        let info = a.info(&topic).unwrap();
        assert!(info.capacity == 512 && info.floor == 0, "{info:?}");
        ack(&a, &topic, &stuck).unwrap();
        all.extend(drain(&b, &second));
        all.insert(0);
        assert_eq!(all, (0..400).collect());
        assert_eq!(machine.list(std::path::Path::new("/store/queues")).unwrap(), ["work"]);
    }
}

#[test]
fn after_a_reset_all_who_have_it_open_go_on_with_the_new_one_and_old_leases_are_over() {
    for filesystem in [Filesystem::Promises("ext4"), Filesystem::CopyOnWrite("btrfs")] {
        let machine = machine().on(filesystem);
        let topic = filled(&machine, 6, SyncMode::Durable);
        let second = topic_on(&machine.process()).unwrap();
        let (keyed, as_it_is) = (queue(&topic, KEYED), queue(&second, SMALL));
        let (old, other) = (take(&keyed, &topic, 2), take(&as_it_is, &second, 1));
        let waited = keyed.next(&topic).unwrap().1;
        delete(second.store(), "work").unwrap();
        assert!(matches!(delete(second.store(), "work"), Err(Error::UnknownQueue { .. })));
        assert_ne!(keyed.changes(&topic), Some(waited), "who waits would sleep on");
        // The process and the attempt are the same, but the lease is another.
        let anew = take(&keyed, &topic, 2);
        assert_eq!(offsets(&anew), offsets(&old));
        for (queue, topic, jobs) in [(&keyed, &topic, &old), (&as_it_is, &second, &other)] {
            let told = ack(queue, topic, jobs).unwrap_err().to_string();
            assert!(told.contains("reset"), "{told}");
        }
        assert!(as_it_is.info(&second).unwrap().ordered, "it is what it was");
        ack(&keyed, &topic, &anew).unwrap();
        assert_eq!(drain(&as_it_is, &second), [2, 3, 4, 5]);
    }
}

#[test]
fn a_reset_that_dies_half_way_leaves_no_old_queue_to_go_on_with() {
    let machine = machine();
    let topic = filled(&machine, 4, SyncMode::Durable);
    let stays = queue(&topic, SMALL);
    ack(&stays, &topic, &take(&stays, &topic, 2)).unwrap();
    let dies = machine.process();
    let member = Store::open_on(Arc::new(dies.clone()), "/store", &StoreOptions::default());
    let member = member.unwrap();
    // A reset that is killed between its last two steps leaves this: no name, but still a file.
    let path = topic.store().layout().queue("work").unwrap();
    let file = StateFile::open(&member, &path).unwrap().unwrap();
    let held = file.lock(&member, &member.membership().unwrap()).unwrap().unwrap();
    file.set(at::BUSY, 1).unwrap();
    member.remove_queue_file(&path).unwrap();
    std::mem::forget(held);
    dies.kill();
    assert_eq!(drain(&stays, &topic), [0, 1, 2, 3], "all are to be done again");
    assert_eq!(drain(&queue(&topic, SMALL), &topic), [0; 0]);
}

#[test]
fn who_takes_the_file_away_by_hand_is_noticed_too() {
    let machine = machine();
    let topic = filled(&machine, 4, SyncMode::Durable);
    let queue = queue(&topic, SMALL);
    let old = take(&queue, &topic, 1);
    machine.unlink(std::path::Path::new("/store/queues/work")).unwrap();
    queue.looked.store(0, Ordering::Relaxed);
    assert_eq!(offsets(&take(&queue, &topic, 4)), [0, 1, 2, 3]);
    assert!(ack(&queue, &topic, &old).is_err());
}

#[test]
fn what_was_trimmed_counts_as_done_and_is_told() {
    let machine = machine();
    let topic = filled(&machine, 20, SyncMode::Durable);
    let queue = queue(&topic, SMALL);
    let jobs = take(&queue, &topic, 3);
    queue.nack(&topic, &leases(&jobs[..1]), Duration::ZERO).unwrap();
    topic.trim(&[(0, 10)]).unwrap();
    assert_eq!(queue.info(&topic).unwrap().ready, 11, "one that came back counts until a take");
    assert_eq!(offsets(&take(&queue, &topic, 2)), [10, 11]);
    assert!(ack(&queue, &topic, &jobs[1..]).is_err());
    assert_eq!(queue.info(&topic).unwrap().trimmed, 10);
}

#[test]
fn a_topic_that_was_made_anew_has_all_its_records_to_be_done() {
    let machine = machine();
    let topic = filled(&machine, 5, SyncMode::Durable);
    let before = queue(&topic, SMALL);
    drain(&before, &topic);
    topic.store().delete_topic("jobs").unwrap();
    assert!(matches!(before.take(&topic, 1, LEASE), Err(Error::TopicDeleted { .. })));
    let anew = filled(&machine, 3, SyncMode::Durable);
    assert_eq!(drain(&queue(&anew, SMALL), &anew), [0, 1, 2]);
    let other = Topic::open(anew.store(), "other", &small_segments()).unwrap();
    let refused = QueueFile::open(&other, "work", SMALL);
    assert!(matches!(refused, Err(Error::SettingsMismatch { setting: "topic", .. })));
}

/// Run a workload; return the offsets that it acked, each with the number of events before.
fn workload(machine: &MemoryStorage, options: QueueOptions) -> Vec<(usize, u64)> {
    let topic = filled(machine, 12, SyncMode::Interval);
    let queue = queue(&topic, options);
    let mut acked = Vec::new();
    let path = topic.store().layout().queue("work").unwrap();
    let mut note = |jobs: &[LeasedJob]| {
        ack(&queue, &topic, jobs).unwrap();
        acked.extend(jobs.iter().map(|job| (machine.events(), job.lease.offset)));
        // The kernel may write back at any time: here the state, and not the log.
        machine.open(&path, OpenMode::ReadWrite).unwrap().sync_data().unwrap();
    };
    let jobs = take(&queue, &topic, 3);
    note(&jobs[..2]);
    queue.nack(&topic, &leases(&jobs[2..]), Duration::ZERO).unwrap();
    topic.flush().unwrap();
    note(&take(&queue, &topic, 2));
    note(&take(&queue, &topic, 2));
    for i in 12..16u64 {
        let value = i.to_le_bytes();
        topic.append_to(0, &NewRecord::new(&value), Some(SyncMode::Interval)).unwrap();
    }
    note(&take(&queue, &topic, 3));
    acked
}

/// Assert that each record of an image that was not acked is still to be done; others may be, too.
fn assert_nothing_lost(image: &MemoryStorage, acked: &BTreeSet<u64>, exact: bool, story: &str) {
    image.set_now_us(NOW + 1);
    let Ok(topic) = topic_on(image) else { panic!("{story}: the store does not open") };
    let work = QueueFile::open(&topic, "work", SMALL).unwrap_or_else(|e| panic!("{story}: {e}"));
    // Records appended in place of those that a power cut lost are new, and not done.
    let end = topic.end(0).unwrap();
    for _ in 0..6 {
        topic.append_to(0, &NewRecord::new(b"another"), None).unwrap();
    }
    let done: BTreeSet<u64> = drain(&work, &topic).into_iter().collect();
    for offset in 0..end + 6 {
        let is_new = offset >= end;
        let may_be_done = acked.contains(&offset) && !is_new;
        assert!(done.contains(&offset) || may_be_done, "{story}: {offset} of {end} is lost");
        if exact && may_be_done {
            assert!(!done.contains(&offset), "{story}: {offset} was acked");
        }
    }
}

#[test]
fn a_power_cut_at_any_event_loses_no_job() {
    for filesystem in [Filesystem::Promises("ext4"), Filesystem::CopyOnWrite("btrfs")] {
        for options in [SMALL, KEYED] {
            let machine = machine().on(filesystem.clone());
            let acked = workload(&machine, options);
            let mut images = 0;
            for crash in machine.journal().crashes().step_by(every(51)) {
                // An ack that did not return may have been stored as well.
                let before: BTreeSet<u64> = acked
                    .iter()
                    .filter(|(at, _)| *at < crash.time() + 200)
                    .map(|(_, o)| *o)
                    .collect();
                images += crash
                    .explore(6, 11, |selection, image| {
                        let story =
                            format!("cut at {}: {}", crash.time(), crash.describe(selection));
                        assert_nothing_lost(&image, &before, false, &story);
                    })
                    .images;
            }
            assert!(images > 40, "{images}");
        }
    }
}

#[test]
fn records_that_take_the_place_of_lost_ones_are_handed_out() {
    let machine = machine();
    let topic = filled(&machine, 4, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    for _ in 0..5 {
        topic.append_to(0, &NewRecord::new(b"same"), Some(SyncMode::None)).unwrap();
    }
    assert_eq!(drain(&work, &topic).len(), 9);
    // The acks are on the disk, their records are not.
    let state =
        machine.open(std::path::Path::new("/store/queues/work"), OpenMode::ReadWrite).unwrap();
    state.sync_all().unwrap();
    let journal = machine.journal();
    let crash = journal.crash_at_end();
    let image = crash.image(&crash.nothing());
    image.set_now_us(NOW + 1);
    let topic = topic_on(&image).unwrap();
    assert_eq!(topic.end(0).unwrap(), 4);
    for _ in 0..7 {
        topic.append_to(0, &NewRecord::new(b"same"), None).unwrap();
    }
    assert_eq!(drain(&queue(&topic, SMALL), &topic), (4..11).collect::<Vec<_>>());
}

#[test]
fn the_death_of_all_at_any_event_keeps_what_was_acked_and_loses_nothing() {
    for filesystem in [Filesystem::Promises("ext4"), Filesystem::CopyOnWrite("btrfs")] {
        let machine = machine().on(filesystem);
        let acked = workload(&machine, SMALL);
        let journal = machine.journal();
        let segment = crate::format::names::segment(0);
        let mut kept = 0;
        for time in (0..=journal.len()).step_by(every(5)) {
            let image = journal.killed_at(time);
            let known: BTreeSet<u64> =
                acked.iter().filter(|(at, _)| *at <= time).map(|(_, o)| *o).collect();
            let perhaps: BTreeSet<u64> =
                acked.iter().filter(|(at, _)| *at < time + 200).map(|(_, o)| *o).collect();
            let story = format!("killed at {time}");
            assert_nothing_lost(&image, &perhaps, false, &story);
            let image = journal.killed_at(time);
            let topic = topic_on(&image).unwrap();
            let done = drain(&queue(&topic, SMALL), &topic);
            // A death in a sync leaves a log that is carried over: no process knows what was synced.
            let is_carried =
                |o: u64| !topic.get_in(0, o).unwrap().block().path().ends_with(&segment);
            let again = done.iter().filter(|o| known.contains(o) && !is_carried(**o));
            assert_eq!(again.count(), 0, "{story}: {done:?} although {known:?}");
            kept += known.iter().filter(|o| !is_carried(**o)).count();
        }
        assert!(kept > 30, "{kept}");
    }
}

#[test]
fn a_version_that_is_half_stored_leaves_the_entry_as_it_was() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    work.nack(&topic, &leases(&take(&work, &topic, 1)), Duration::ZERO).unwrap();
    let path = topic.store().layout().queue("work").unwrap();
    let file = StateFile::open(topic.store(), &path).unwrap().unwrap();
    let before = file.entry(0).entry;
    take(&work, &topic, 1);
    let entry = file.parts().entry(0);
    let halves = [entry, entry + 32].map(|half| file.load(half + 8) >> 32);
    let newer = if halves[0] > halves[1] { entry } else { entry + 32 };
    for word in 0..4 {
        let kept = file.load(newer + 8 * word);
        file.set(newer + 8 * word, kept ^ 1 << 7).unwrap();
        let found = file.entry(0);
        assert!(found.is_known && found.entry == before, "word {word}: {found:?}");
        file.set(newer + 8 * word, kept).unwrap();
    }
}

/// If stores are writes, a write may fail half-way, as after a death in the middle of it.
#[test]
fn a_write_that_ends_half_way_leaves_what_was_acked_and_loses_nothing() {
    let prepared = || {
        let machine = machine().on(Filesystem::CopyOnWrite("btrfs"));
        let topic = filled(&machine, 12, SyncMode::Durable);
        drop(queue(&topic, SMALL));
        machine
    };
    let attempt = |faulty: FaultyStorage| -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (mut acked, mut tried) = (BTreeSet::new(), BTreeSet::new());
        let _ = (|| -> Result<()> {
            let store = Store::open_on(Arc::new(faulty), "/store", &StoreOptions::default())?;
            let topic = Topic::open(&store, "jobs", &small_segments())?;
            let work = QueueFile::open(&topic, "work", SMALL)?;
            for n in [3, 2, 4] {
                let jobs = work.take(&topic, n, LEASE)?;
                work.nack(&topic, &leases(&jobs[..1]), Duration::ZERO)?;
                tried.extend(offsets(&jobs[1..]));
                ack(&work, &topic, &jobs[1..])?;
                acked.extend(offsets(&jobs[1..]));
            }
            Ok(())
        })();
        (acked, tried)
    };
    let whole = FaultyStorage::over_memory(prepared());
    attempt(whole.clone());
    for k in (1..=whole.total()).step_by(every(3)) {
        let machine = prepared();
        let victim = machine.process();
        let faulty = FaultyStorage::over_memory(victim.clone());
        faulty.plan(Fault::at(k, FailureKind::HalfWritten(libc::ENOSPC)).forever());
        let (acked, tried) = attempt(faulty);
        victim.kill();
        let topic = topic_on(&machine).unwrap();
        let done: BTreeSet<u64> = drain(&queue(&topic, SMALL), &topic).into_iter().collect();
        assert!(done.is_disjoint(&acked), "call {k}: {done:?} although {acked:?}");
        let all: BTreeSet<u64> = done.union(&tried).copied().collect();
        assert_eq!(all, (0..12).collect(), "call {k}");
    }
}

/// Flip bits of a small file that no process has open: the open fails, or no job is lost.
#[test]
fn a_flipped_bit_of_the_state_loses_no_job_and_crashes_nobody() {
    let machine = machine();
    let topic = filled(&machine, 8, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 6);
    ack(&work, &topic, &jobs[1..4]).unwrap();
    work.nack(&topic, &leases(&jobs[4..5]), Duration::from_secs(5)).unwrap();
    drop((jobs, work, topic));
    let path = std::path::Path::new("/store/queues/work");
    let len = machine.stat(path).unwrap().len;
    let whole = machine.restart();
    let mut errors = 0;
    // Derived state beyond the first places is rebuilt before a process looks at it.
    for bit in (0..4096 * 8).chain((len - 16384) * 8..len * 8).step_by(29 * every(4)) {
        let image = whole.restart();
        let file = image.open(path, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, bit / 8).unwrap();
        file.write_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).unwrap();
        image.set_now_us(NOW + 6_000_000);
        let topic = topic_on(&image).unwrap();
        match QueueFile::open(&topic, "work", SMALL) {
            Ok(work) => {
                let done: BTreeSet<u64> = drain(&work, &topic).into_iter().collect();
                assert!([0, 4, 5, 6, 7].iter().all(|o| done.contains(o)), "bit {bit}: {done:?}");
            }
            Err(Error::CorruptData { .. } | Error::UnsupportedVersion { .. }) => errors += 1,
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
    assert!(errors > 3, "{errors}");
}

#[test]
fn a_queue_that_exists_is_opened_over_its_own_topic_and_creates_none() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let store = topic.store();
    store.queue_options("mail").topic(&topic).open().unwrap();
    assert_eq!(store.queue("mail").unwrap().topic().name(), topic.name());
    assert!(store.topic_settings("mail").is_err(), "no topic of the queue's name was made");
}
