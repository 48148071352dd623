//! Words of the state that no process writes: a call returns an error that says where, or work continues.
//!
//! If a call would never end, storage that fails after a number of calls ends it.

use super::*;
use crate::format::queue::{JobEntry, QueueEnds, VERSION_LEN};
use crate::twin::faulty::Call;

/// Number of calls that is more than any test here needs.
const PATIENCE: u64 = 20_000;

/// Append `n` records, and open their topic on storage that a test can make fail. Stores are writes there.
fn impatient(machine: &MemoryStorage, n: u64) -> (FaultyStorage, Topic) {
    drop(filled(machine, n, SyncMode::Durable));
    let faulty = FaultyStorage::over_memory(machine.process());
    let options = StoreOptions { lock_timeout: Duration::from_secs(5), ..StoreOptions::default() };
    let store = Store::open_on(Arc::new(faulty.clone()), "/store", &options).unwrap();
    (faulty, Topic::open(&store, "jobs", &small_segments()).unwrap())
}

fn copy_on_write() -> MemoryStorage {
    machine().on(Filesystem::CopyOnWrite("btrfs"))
}

fn be_patient(faulty: &FaultyStorage, call: Call) {
    let last = faulty.count(call) + PATIENCE;
    faulty.plan(Fault::at(last, FailureKind::Errno(libc::EIO)).forever().only(call));
}

fn state(topic: &Topic) -> StateFile {
    let path = topic.store().layout().queue("work").unwrap();
    StateFile::open(topic.store(), &path).unwrap().unwrap()
}

#[test]
fn a_file_that_has_its_name_is_gone_on_with_although_it_says_that_it_was_replaced() {
    let machine = copy_on_write();
    let (faulty, topic) = impatient(&machine, 4);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 2);
    for bit in [0, 17, 63] {
        state(&topic).set(at::REPLACED, 1 << bit).unwrap();
        be_patient(&faulty, Call::Lock);
        assert_eq!(work.info(&topic).unwrap().in_flight, 2, "bit {bit}");
        assert_eq!(state(&topic).load(at::REPLACED), 0, "others need not look again");
    }
    ack(&work, &topic, &jobs).unwrap();
    assert_eq!(drain(&work, &topic), [2, 3]);
}

#[test]
fn that_the_path_cannot_be_looked_at_does_not_make_a_file_one_that_was_replaced() {
    let machine = machine();
    let (faulty, topic) = impatient(&machine, 4);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 2);
    state(&topic).set(at::REPLACED, 1).unwrap();
    faulty.plan(Fault::at(faulty.total() + 1, FailureKind::Errno(libc::EIO)).forever());
    let told = work.info(&topic).unwrap_err();
    assert!(matches!(&told, Error::SystemCallFailed { .. }), "{told}");
    faulty.heal();
    ack(&work, &topic, &jobs).unwrap();
}

#[test]
fn a_heap_whose_first_place_is_not_where_its_link_says_is_made_anew() {
    for (link, what) in [(0, "none"), (2, "another"), (7, "beyond"), (u64::MAX, "nowhere")] {
        let machine = copy_on_write();
        let (faulty, topic) = impatient(&machine, 6);
        let work = queue(&topic, SMALL);
        let jobs = take(&work, &topic, 5);
        work.nack(&topic, &leases(&jobs[..3]), Duration::ZERO).unwrap();
        let file = state(&topic);
        file.set(file.parts().link(0), link).unwrap();
        be_patient(&faulty, Call::Write);
        assert_eq!(offsets(&take(&work, &topic, 9)), [0, 1, 2, 5], "{what}");
        assert_eq!((file.load(at::BUSY), work.info(&topic).unwrap().in_flight), (0, 6));
    }
}

#[test]
fn a_first_place_that_no_file_has_is_made_anew() {
    let machine = copy_on_write();
    let (faulty, topic) = impatient(&machine, 6);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 5);
    work.nack(&topic, &leases(&jobs[..3]), Duration::ZERO).unwrap();
    let file = state(&topic);
    for place in [64, 1 << 40, u64::MAX] {
        file.set(file.parts().heap(0) + 8, place).unwrap();
        be_patient(&faulty, Call::Write);
        let jobs = take(&work, &topic, 3);
        assert_eq!(offsets(&jobs), [0, 1, 2], "place {place}");
        work.nack(&topic, &leases(&jobs), Duration::ZERO).unwrap();
    }
}

#[test]
fn a_take_in_the_middle_of_which_the_heap_ends_tells_what_it_has() {
    let machine = copy_on_write();
    let (faulty, topic) = impatient(&machine, 8);
    let work = queue(&topic, SMALL);
    let jobs = take(&work, &topic, 6);
    work.nack(&topic, &leases(&jobs), Duration::ZERO).unwrap();
    let file = state(&topic);
    // One of the first place's two children comes up next, and neither is a place of the file.
    for index in 1..3 {
        file.set(file.parts().heap(index) + 8, 1 << 32).unwrap();
    }
    be_patient(&faulty, Call::Write);
    let out = |leases: Vec<Lease>| leases.iter().map(|lease| lease.offset).collect::<Vec<_>>();
    let mut all = out(work.lease(&topic, (9, true), LEASE).unwrap());
    assert_eq!(all, [0], "told, for it is out");
    all.extend(out(work.lease(&topic, (9, true), LEASE).unwrap()));
    all.sort_unstable();
    assert_eq!(all, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_job_whose_link_is_damaged_is_acked_and_no_other_is_lost_for_it() {
    for link in [0, 1, 2, 6, 64, u64::MAX] {
        let machine = copy_on_write();
        let (faulty, topic) = impatient(&machine, 6);
        let work = queue(&topic, SMALL);
        let jobs = take(&work, &topic, 5);
        let file = state(&topic);
        file.set(file.parts().link(3), link).unwrap();
        be_patient(&faulty, Call::Write);
        ack(&work, &topic, &jobs[3..4]).unwrap();
        machine.set_now_us(NOW + 31_000_000);
        let mut others = drain(&work, &topic);
        others.sort_unstable();
        assert_eq!(others, [0, 1, 2, 4, 5], "link {link}");
    }
}

/// Set each word of the derived state to its edge values. Whatever the word says, no other worker gets a
/// job that is in flight. After a restart, all jobs that are not done are delivered.
#[test]
fn whatever_is_derived_says_takes_end_and_nothing_that_is_out_is_handed_out() {
    for options in [SMALL, KEYED] {
        let machine = copy_on_write();
        let topic = filled(&machine, 12, SyncMode::Durable);
        let work = queue(&topic, options);
        let out = take(&work, &topic, 3);
        work.nack(&topic, &leases(&out[..1]), Duration::ZERO).unwrap();
        work.nack(&topic, &leases(&out[1..2]), Duration::from_secs(5)).unwrap();
        let file = state(&topic);
        let parts = file.parts();
        let mut words = vec![at::HEAP, at::IN_FLIGHT, at::DONE];
        for place in 0..4 {
            words.extend([0, 8].map(|word| parts.link(place) + word));
            words.extend([0, 8].map(|word| parts.heap(place) + word));
        }
        for key in [b"a", b"b", b"c"] {
            let lane = 1 << 32 | u64::from(crate::format::checksum::crc32(key));
            words.extend(
                [0, 8].map(|word| parts.lane(lane) + word).iter().filter(|_| parts.ordered),
            );
        }
        for word in words {
            for value in [0, 1, 2, 3, 9, 20, 64, 65, 1 << 40, u64::MAX] {
                let image = machine.restart();
                let (faulty, topic) = impatient(&image, 0);
                let work = queue(&topic, SMALL);
                let out = take(&work, &topic, 1);
                state(&topic).set(word, value).unwrap();
                be_patient(&faulty, Call::Write);
                let story = format!("{word} says {value}, {options:?}");
                let mut all = offsets(&out);
                for _ in 0..20 {
                    let jobs =
                        work.take(&topic, 3, LEASE).unwrap_or_else(|e| panic!("{story}: {e}"));
                    all.extend(offsets(&jobs));
                    let _ = ack(&work, &topic, &jobs);
                }
                let count = all.len();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), count, "{story}: {all:?}");
                let image = image.restart();
                image.set_now_us(NOW + 6_000_000);
                let topic = topic_on(&image).unwrap();
                all.extend(drain(&queue(&topic, SMALL), &topic));
                all.sort_unstable();
                all.dedup();
                assert_eq!(all, (0..12).collect::<Vec<_>>(), "{story}");
            }
        }
    }
}

/// Store changed ends with a valid checksum.
fn forge_ends(file: &StateFile, slots: &[usize], change: impl Fn(&mut QueueEnds)) {
    let (mut ends, _) = file.ends().unwrap();
    change(&mut ends);
    slots.iter().for_each(|slot| file.put_ends(&ends, *slot).unwrap());
}

#[test]
fn ends_further_apart_than_there_are_places_are_damaged_for_all_who_ask() {
    for head in [65, 1 << 40, u64::MAX] {
        let machine = machine();
        let topic = filled(&machine, 6, SyncMode::Durable);
        let work = queue(&topic, SMALL);
        let jobs = take(&work, &topic, 2);
        let file = state(&topic);
        let (_, slot) = file.ends().unwrap();
        // If one slot is corrupt, the other one counts.
        forge_ends(&file, &[1 - slot], |ends| (ends.serial, ends.head) = (ends.serial + 1, head));
        ack(&work, &topic, &jobs).unwrap();
        assert_eq!(work.info(&topic).unwrap().head, 2);
        forge_ends(&file, &[0, 1], |ends| ends.head = ends.floor + 64);
        let info = work.info(&topic).unwrap();
        assert_eq!(info.head - info.floor, 64, "each place may be needed");
        forge_ends(&file, &[0, 1], |ends| ends.head = ends.floor.max(head));
        file.set(at::BUSY, 1).unwrap();
        let is_told = |error: &Error| matches!(error, Error::CorruptData { path, position: 512, .. } if path.ends_with("queues/work"));
        let told = work.take(&topic, 1, LEASE).unwrap_err();
        assert!(is_told(&told), "{told}");
        let seen = overview(topic.store()).unwrap().remove(0).1.unwrap_err();
        assert!(is_told(&seen), "{seen}");
        let later = topic_on(&machine.restart()).unwrap();
        let told = QueueFile::open(&later, "work", SMALL).unwrap_err();
        assert!(is_told(&told), "{told}");
        delete(later.store(), "work").unwrap();
        assert_eq!(drain(&queue(&later, SMALL), &later), (0..6).collect::<Vec<_>>());
    }
}

#[test]
fn ends_that_were_counted_to_the_last_number_are_followed_by_the_first() {
    for serial in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
        let machine = machine();
        let topic = filled(&machine, 20, SyncMode::Durable);
        let work = queue(&topic, SMALL);
        take(&work, &topic, 2);
        forge_ends(&state(&topic), &[0, 1], |ends| ends.serial = serial);
        for at in [2, 5, 8] {
            assert_eq!(offsets(&take(&work, &topic, 3)), [at, at + 1, at + 2], "{serial}");
        }
        let later = topic_on(&machine.restart()).unwrap();
        let work = queue(&later, SMALL);
        assert_eq!(work.info(&later).unwrap().head, 11, "{serial}");
        for at in [0, 7, 14] {
            let jobs = take(&work, &later, 7);
            assert_eq!(offsets(&jobs)[0], at, "{serial}");
        }
    }
}

/// The serial of the corrupt version that a store replaces does not count. Otherwise a new version half of
/// the round behind it would not hold.
#[test]
fn whatever_serial_a_damaged_version_says_the_next_one_holds() {
    let machine = machine();
    let topic = filled(&machine, 2, SyncMode::Durable);
    let work = queue(&topic, SMALL);
    take(&work, &topic, 1);
    let file = state(&topic);
    // Seven values, twice: each value meets either half.
    for ahead in [0, 1, 2, 0x7fff_fffe, 0x7fff_ffff, 0x8000_0000, u32::MAX].repeat(2) {
        let found = file.entry(0);
        let other = file.parts().entry(0) + VERSION_LEN * found.next as u64;
        let held = u64::from(found.entry.serial.wrapping_add(ahead)) << 32;
        file.set(other + 8, held).unwrap();
        assert_eq!(file.entry(0).entry, found.entry, "{ahead:#x} ahead");
        let attempts = found.entry.attempts + 1;
        file.put(0, &file.entry(0), JobEntry { attempts, ..found.entry }).unwrap();
        assert_eq!(file.entry(0).entry.attempts, attempts, "{ahead:#x} ahead");
    }
}

#[test]
fn what_a_dead_one_left_half_changed_is_made_anew() {
    let machine = machine();
    let topic = filled(&machine, 6, SyncMode::Durable);
    let work = queue(&topic, KEYED);
    let jobs = take(&work, &topic, 3);
    work.nack(&topic, &leases(&jobs[..2]), Duration::ZERO).unwrap();
    let file = state(&topic);
    file.set(at::BUSY, 1).unwrap();
    file.set(at::HEAP, 1).unwrap();
    file.set(at::IN_FLIGHT, 7).unwrap();
    file.set(file.parts().heap(0) + 8, 63).unwrap();
    assert_eq!(offsets(&take(&work, &topic, 9)), [0, 1]);
    assert_eq!(work.info(&topic).unwrap().in_flight, 3);
    ack(&work, &topic, &jobs[2..]).unwrap();
    assert_eq!(offsets(&take(&work, &topic, 9)), [5]);
}
