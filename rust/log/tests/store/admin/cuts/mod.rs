//! Cuts of a store while processes write to it, and a place that has only what cuts brought there.

mod crashes;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::control::{at, flag};
use falaj::internals::log::SegmentCut;
use falaj::internals::queue::{QueueFile, QueueOptions};
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{MapAccess, OpenMode, Storage};
use falaj::internals::store::{Cut, CutLog, Store, TopicOptions};
use falaj::internals::topic::{CompactOptions, NewRecord, SyncMode, Topic};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;
use falaj_twin::place::Place;

use super::backup::step;
use crate::stores::{
    assert_holds, fill, log_dir, on_both, open, open_to_read, quietly, topic, value,
};

/// Bytes of the smallest segments.
pub(super) const SMALL: u64 = 64 << 10;

/// Build the store of a cut and check all of it; return that store.
fn check(place: &Place, cut: &Cut, storage: &Arc<dyn Storage>, path: &Path) -> Store {
    place.build(cut, storage, path).unwrap();
    let reader = open_to_read(storage, path).unwrap();
    let found = reader.verify(None, &mut quietly).unwrap();
    assert!(found.is_sound(), "{found:?}");
    let restored = open(storage, path).unwrap();
    for end in ends(cut) {
        let topic = Topic::open(&restored, &end.0, &TopicOptions::default()).unwrap();
        assert_eq!(topic.end(end.1).unwrap(), end.2, "{end:?}");
    }
    restored
}

/// Name, partition, next offset and checksum.
fn ends(cut: &Cut) -> Vec<(String, u32, u64, u32)> {
    let ends = cut.logs().iter().flat_map(CutLog::ends);
    ends.map(|end| (end.name.clone(), end.partition, end.next, end.checksum)).collect()
}

/// Check that a store has all ends of a cut.
fn assert_contains(store: &Store, cut: &Cut, why: &str) {
    for log in cut.logs() {
        for end in log.ends() {
            let has =
                store.contains(&log.directory(), &end.topic, end.partition, end.next, end.checksum);
            assert!(has.unwrap(), "{why}: {end:?}");
        }
    }
}

fn assert_rose(before: &Cut, after: &Cut) {
    for log in after.logs() {
        let was = before.logs().iter().find(|was| was.generation() == log.generation());
        assert!(was.is_none_or(|was| was.end() <= log.end()), "{was:?} {log:?}");
    }
}

pub(super) fn keyed(topic: &Topic, from: u64, to: u64, keys: u64) {
    for i in from..to {
        let (key, value) = (format!("key-{}", i % keys), value(i));
        let record =
            NewRecord { key: Some(key.as_bytes()), value: Some(&value), ..NewRecord::default() };
        assert_eq!(topic.append_to(0, &record, None).unwrap(), i);
    }
}

pub(super) fn compacted(store: &Store, name: &str, segment_bytes: u64) -> Topic {
    let options = TopicOptions {
        segment_bytes: Some(segment_bytes),
        compacted: Some(true),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap().with_sync(SyncMode::None)
}

pub(super) fn compact(topic: &Topic) -> u64 {
    topic.log().roll_now().unwrap();
    topic.flush().unwrap();
    topic.compact(&CompactOptions::default(), &mut quietly).unwrap().removed
}

/// Everything that changes a log happens between the cuts, and beside them.
#[test]
fn cuts_beside_writers_rise_and_each_one_restores_and_verifies() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        let trimmed = topic(&store, "trimmed").with_sync(SyncMode::None);
        let prices = compacted(&store, "prices", SMALL);
        let queue = QueueFile::open(&orders, "jobs", QueueOptions::default()).unwrap();
        let (mut place, mut before): (Place, Option<Cut>) = Default::default();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = 0;
                while !stop.load(Ordering::Relaxed) && next < 3000 {
                    fill(&orders, next, next + 10);
                    next += 10;
                }
            });
            for i in 0..8u64 {
                fill(&trimmed, i * 150, (i + 1) * 150);
                keyed(&prices, i * 150, (i + 1) * 150, 20);
                let least = orders.end(0).unwrap();
                let cut = store.cut(before.as_ref()).unwrap();
                place.ship(&cut).unwrap();
                before.iter().for_each(|before| assert_rose(before, &cut));
                let restored = check(&place, &cut, storage, &root.join(format!("copy-{i}")));
                let copy = topic(&restored, "orders");
                let end = copy.end(0).unwrap();
                assert!(end >= least, "{end} of {least}");
                assert_holds(&copy, end);
                assert!(QueueFile::open(&copy, "jobs", QueueOptions::default()).is_ok());
                assert_contains(&store, &cut, "the store itself");
                before = Some(cut);
                trimmed.trim_before(i * 150).unwrap();
                compact(&prices);
                if i == 4 {
                    store.delete_topic("trimmed").unwrap();
                    topic(&store, "later");
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let cut = store.cut(before.as_ref()).unwrap();
        let mut names: Vec<_> = ends(&cut).into_iter().map(|end| end.0).collect();
        names.sort_unstable();
        assert_eq!(names, ["later", "orders", "prices"]);
        place.ship(&cut).unwrap();
        check(&place, &cut, storage, &root.join("last"));
        assert_contains(&store, before.as_ref().unwrap(), "trimmed, compacted or deleted");
        drop(queue);
    });
}

#[test]
fn only_what_came_since_the_cut_before_is_read_again() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        fill(&orders, 0, 500);
        let mut place = Place::default();
        let first = store.cut(None).unwrap();
        place.ship(&first).unwrap();
        let all = place.bytes;
        assert!(all > 250_000 && first.logs()[0].segments().len() > 3, "{all}");
        fill(&orders, 500, 501);
        let second = store.cut(Some(&first)).unwrap();
        place.ship(&second).unwrap();
        assert!(place.bytes - all < 1000, "{}", place.bytes - all);
        let last = &second.logs()[0].segments().last().unwrap();
        assert!(!last.sealed && last.end == last.len);
        let time_us = second.logs()[0].ends()[0].time_us;
        assert!((time_us - storage.now_us()).abs() < 60_000_000, "{time_us}");
    });
}

/// Two logs, each with the cursor of the pipeline that reads the other. Both grow at each call that a
/// cut makes.
#[test]
fn logs_that_keep_cursors_in_each_other_agree_in_every_cut() {
    let machine = MemoryStorage::new();
    let (of_cut, of_work) = (machine.process(), machine.process());
    let open_at = |process: &MemoryStorage, path: &str| {
        let storage: Arc<dyn Storage> = Arc::new(process.clone());
        open(&storage, path.as_ref()).unwrap()
    };
    let (store, working) = (open_at(&of_cut, "/store"), open_at(&of_work, "/store"));
    let [a, b] = ["a", "b"].map(|name| topic(&working, name).with_sync(SyncMode::None));
    a.append_to(0, &NewRecord::new(b"first"), None).unwrap();
    let there = |name: &str, from: &Topic, to: &Topic, store: &Store| {
        GroupMember::open_in(store, name, std::slice::from_ref(from), Start::Earliest, to).unwrap()
    };
    let mut both = (there("there", &a, &b, &working), there("back", &b, &a, &working));
    let mut round = move || {
        step(&mut both.0, &b);
        step(&mut both.1, &a);
    };
    (0..3).for_each(|_| round());
    let (begun, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0u64)));
    let (round, is_begun, counted) = (Mutex::new(round), Arc::clone(&begun), Arc::clone(&turns));
    let own_thread = std::thread::current().id();
    machine.watch(move |_| {
        let is_cut = std::thread::current().id() == own_thread;
        // Not at the calls that the pipeline itself makes.
        let Ok(mut round) = round.try_lock() else { return };
        if is_cut && is_begun.load(Ordering::SeqCst) {
            round();
            *counted.lock().unwrap() += 1;
        }
    });
    let (mut place, mut before): (Place, Option<Cut>) = Default::default();
    for i in 0..4 {
        begun.store(true, Ordering::SeqCst);
        let cut = store.cut(before.as_ref());
        begun.store(false, Ordering::SeqCst);
        let cut = cut.unwrap();
        before.iter().for_each(|before| assert_rose(before, &cut));
        place.ship(&cut).unwrap();
        let process: Arc<dyn Storage> = Arc::new(machine.process());
        let copy = check(&place, &cut, &process, format!("/copy-{i}").as_ref());
        let [a, b] = ["a", "b"].map(|name| topic(&copy, name));
        for (name, from, to) in [("there", &a, &b), ("back", &b, &a)] {
            let next = there(name, from, to, &copy).parts().unwrap()[0].next;
            assert!(next >= 3 && next <= from.end(0).unwrap(), "{name} at {next}");
            // Each result is there with its cursor, and no others.
            let results = to.end(0).unwrap() - u64::from(name == "back");
            assert_eq!(results, next, "{name}");
        }
        before = Some(cut);
    }
    assert!(*turns.lock().unwrap() > 20, "the logs did not grow meanwhile");
}

#[test]
fn a_compacted_segment_is_another_one_though_its_sequence_and_salt_stay() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        // Space for a hole that is worth leaving out.
        let prices = compacted(&store, "prices", 8 * SMALL);
        keyed(&prices, 0, 700, 7);
        prices.log().roll_now().unwrap();
        let first = store.cut(None).unwrap();
        assert!(compact(&prices) > 0);
        let second = store.cut(Some(&first)).unwrap();
        let is = second.logs()[0].segments()[0].clone();
        let same = |was: &&SegmentCut| was.header.sequence == is.header.sequence;
        let was = first.logs()[0].segments().iter().find(same).unwrap();
        assert_eq!((was.header.sequence, was.header.salt), (is.header.sequence, is.header.salt));
        assert_eq!(was.header.compaction(), 0);
        assert_ne!(is.header.compaction(), 0);
        let sequence = was.header.sequence;
        let read = |cut: &Cut| cut.read(0, sequence, FIRST_BLOCK..FIRST_BLOCK + 100);
        let error = read(&first).unwrap_err();
        assert!(matches!(error, Error::CorruptData { .. }), "{error}");
        assert!(first.logs()[0].extents(sequence, 0).is_ok(), "no hole, and no need to look");
        assert!(read(&second).is_ok());
        let extents = second.logs()[0].extents(sequence, 0).unwrap();
        let bytes: u64 = extents.iter().map(|extent| extent.end - extent.start).sum();
        let blocks = is.len - FIRST_BLOCK;
        assert!(bytes + SMALL < blocks, "{bytes} of {blocks}: the hole was read");
        let mut place = Place::default();
        place.ship(&second).unwrap();
        check(&place, &second, storage, &root.join("copy"));
        assert_contains(&store, &first, "compacted");
        // And once more, as the number is another one each time.
        keyed(&prices, 700, 800, 7);
        compact(&prices);
        let third = store.cut(Some(&second)).unwrap();
        place.ship(&third).unwrap();
        check(&place, &third, storage, &root.join("again"));
    });
}

/// Neither the segments nor the directory of the log is looked into.
#[test]
fn a_log_in_which_nothing_happened_costs_no_read() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let faulty = FaultyStorage::new(Arc::new(RealStorage::new()));
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let store = open(&storage, &root.join("store")).unwrap();
    let [quiet, busy] = ["quiet", "busy"].map(|name| topic(&store, name).with_sync(SyncMode::None));
    fill(&quiet, 0, 300);
    fill(&busy, 0, 10);
    store.cut(None).unwrap();
    // As if the last name was made a minute ago: a later one has another time.
    let old = |name: &str| {
        let dir = std::fs::File::open(log_dir(&storage, &root.join("store"), name)).unwrap();
        dir.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    };
    ["quiet", "busy"].iter().for_each(|name| old(name));
    let first = store.cut(None).unwrap();
    let calls = || [Call::Open, Call::Read, Call::List].map(|call| faulty.count(call));
    // The store's own threads make calls too, but not beside all of these cuts.
    let least = |before: &Cut, work: &mut dyn FnMut()| {
        let (mut least, mut last) = ([u64::MAX; 3], store.cut(Some(before)).unwrap());
        for _ in 0..10 {
            work();
            let began = calls();
            let cut = store.cut(Some(&last)).unwrap();
            let now = calls();
            (0..3).for_each(|kind| least[kind] = least[kind].min(now[kind] - began[kind]));
            last = cut;
        }
        (least, last)
    };
    let (idle, second) = least(&first, &mut || ());
    // `settled` twice, `falaj.json`, and the lists of consumers and queues.
    assert!(idle[0] <= 4 && idle[1] <= 6 && idle[2] <= 2, "{idle:?}");
    assert_eq!(ends(&first), ends(&second));
    let mut next = 10;
    let (grown, third) = least(&second, &mut || {
        fill(&busy, next, next + 1);
        next += 1;
    });
    assert!(grown[0] <= idle[0] + 6 && grown[2] == idle[2], "{grown:?} after {idle:?}");
    assert_eq!(ends(&third).iter().find(|end| end.0 == "busy").unwrap().2, 20);
    // A name that comes or goes is noticed, whatever else happens.
    quiet.trim_before(250).unwrap();
    let fourth = store.cut(Some(&third)).unwrap();
    let oldest = |cut: &Cut| {
        let log = cut.logs().iter().find(|log| log.directory().starts_with("quiet@"));
        log.unwrap().segments()[0].header.sequence
    };
    assert!(oldest(&fourth) > oldest(&third));
}

#[test]
fn a_log_that_cannot_be_synced_keeps_its_end_and_the_others_go_on() {
    let machine = MemoryStorage::new();
    let faulty = FaultyStorage::over_memory(machine.clone());
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let store = open(&storage, Path::new("/store")).unwrap();
    let [bad, good] = ["bad", "good"].map(|name| topic(&store, name).with_sync(SyncMode::None));
    fill(&bad, 0, 20);
    fill(&good, 0, 20);
    let first = store.cut(None).unwrap();
    fill(&bad, 20, 30);
    fill(&good, 20, 30);
    let control = log_dir(&storage, Path::new("/store"), "bad").join("control");
    let page = machine.open(&control, OpenMode::ReadWrite).unwrap();
    let page = page.map(4096, MapAccess::Write).unwrap();
    page.store(at::FLAGS, page.load(at::FLAGS) | flag::LATCHED).unwrap();
    // The bytes in doubt cannot be saved: no file can be made for them.
    let nth = faulty.count(Call::Allocate) + 1;
    faulty.plan(Fault::at(nth, FailureKind::Errno(libc::ENOSPC)).only(Call::Allocate).forever());
    let fresh = store.cut(None).unwrap_err();
    assert!(matches!(fresh, Error::SyncFailed { .. }), "{fresh}");
    let second = store.cut(Some(&first)).unwrap();
    let at =
        |cut: &Cut| -> BTreeMap<_, _> { ends(cut).into_iter().map(|end| (end.0, end.2)).collect() };
    assert_eq!(at(&second), [("bad".to_owned(), 20), ("good".to_owned(), 30)].into());
    let mut place = Place::default();
    place.ship(&second).unwrap();
    let memory: Arc<dyn Storage> = Arc::new(machine.process());
    check(&place, &second, &memory, Path::new("/copy"));
    faulty.heal();
    let third = store.cut(Some(&second)).unwrap();
    assert_eq!(at(&third), [("bad".to_owned(), 30), ("good".to_owned(), 30)].into());
    place.ship(&third).unwrap();
    check(&place, &third, &memory, Path::new("/saved"));
}

#[test]
fn a_store_with_another_history_does_not_contain_the_cut() {
    on_both(|storage, root| {
        let (path, old) = (root.join("store"), root.join("old"));
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders");
        fill(&orders, 0, 10);
        store.backup(&old, &mut quietly).unwrap();
        fill(&orders, 10, 20);
        let cut = store.cut(None).unwrap();
        let (log, end) = (cut.logs()[0].directory(), cut.logs()[0].ends()[0].clone());
        let older = open(storage, &old).unwrap();
        let has = |store: &Store, next, checksum| {
            store.contains(&log, &end.topic, 0, next, checksum).unwrap()
        };
        assert!(has(&store, 20, end.checksum));
        assert!(!has(&older, 20, end.checksum), "it ends before");
        assert!(!has(&store, 20, end.checksum ^ 1) && !has(&store, 21, end.checksum));
        assert!(!has(&store, 19, end.checksum), "another block ends there");
        // It ends as far, with other records.
        let others = topic(&older, "orders");
        for i in 10..20 {
            others.append_to(0, &NewRecord::new(&value(i + 100)), None).unwrap();
        }
        assert!(!has(&older, 20, end.checksum));
        // The end lies in the middle of a block.
        let longer = open(storage, &old).unwrap();
        let records = [NewRecord::new(b"a"), NewRecord::new(b"b")];
        let at = topic(&longer, "orders").extend_to(0, &records, None).unwrap();
        assert!(!has(&longer, at.start + 1, 0));
        // In another log there cannot be this topic.
        assert!(!store.contains("other@00", &end.topic, 0, 20, end.checksum).unwrap());
        // All of it is trimmed, and a deleted topic has no ends.
        orders.trim_before(20).unwrap();
        assert!(has(&store, 15, 77) && has(&store, 20, 77) && !has(&store, 21, 77));
        store.delete_topic("orders").unwrap();
        assert!(has(&store, 20, end.checksum));
    });
}

#[test]
fn a_reader_makes_no_cut_and_bytes_outside_of_one_are_refused() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        fill(&topic(&store, "orders"), 0, 10);
        let cut = store.cut(None).unwrap();
        let end = cut.logs()[0].segments()[0].len;
        for bytes in [0..100, FIRST_BLOCK..end + 8, end + 8..end + 16, end..FIRST_BLOCK] {
            let error = cut.read(0, 0, bytes).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        }
        assert!(matches!(cut.read(0, 7, 8192..8200), Err(Error::InvalidArgument { .. })));
        assert!(matches!(cut.read(1, 0, 8192..8200), Err(Error::InvalidArgument { .. })));
        let reader = open_to_read(storage, &root.join("store")).unwrap();
        assert!(matches!(reader.cut(None), Err(Error::NotWritable { .. })));
    });
}
