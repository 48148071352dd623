//! Readers and writers while a topic is compacted: their segments stay readable, and they continue.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use falaj::internals::storage::OpenMode;

use super::*;

/// A store with two processes; the second one has read the topic.
fn two(memory: &MemoryStorage) -> (Store, Topic, Store, Topic, History) {
    let [one, two] = [memory.clone(), memory.process()].map(|it| Arc::new(it) as Arc<dyn Storage>);
    let store = open(&one, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 2500, 60);
    seal(&prices);
    fill(&prices, &mut history, 50, 60);
    let other = open(&two, Path::new(STORE)).unwrap();
    let others = topic(&other);
    (store, prices, other, others, history)
}

#[test]
fn a_scan_that_stands_anywhere_goes_on_and_misses_no_last_record() {
    for stands in (0..2550).step_by(171) {
        let (memory, _storage) = machine();
        let (_store, prices, _other, others, history) = two(&memory);
        let mut scan = others.scan_partition(0, 0, Some(2550)).unwrap();
        let mut read = Vec::new();
        while read.len() < stands {
            read.push(scan.next().transpose().unwrap().unwrap().offset());
        }
        let view = others.get_in(0, 0).unwrap();
        compact(&prices).unwrap();
        assert_eq!(
            view.value(),
            history[0].len.map(|len| value(0, len)).as_deref(),
            "a view must stay valid"
        );
        while let Some(record) = scan.next().transpose().unwrap_or_else(|e| panic!("{stands}: {e}"))
        {
            assert!(read.last().is_none_or(|last| *last < record.offset()), "{stands}");
            read.push(record.offset());
        }
        let wanted = last_of(&history, 2500);
        assert!(wanted.iter().all(|at| read.contains(at)), "{stands}: a last record was missed");
        // And a new scan, with all that the process knew of the former segments.
        assert!(found(&others, &history, "other").len() >= wanted.len());
    }
}

#[test]
fn a_reader_at_the_end_of_the_newest_segment_continues_in_a_merged_one() {
    let (memory, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 150, 90);
    // A reader has no background thread that would look at segments ahead of the scan.
    let process: Arc<dyn Storage> = Arc::new(memory.process());
    let other = open_to_read(&process, Path::new(STORE)).unwrap();
    let mut scan = topic(&other).scan_partition(0, 0, None).unwrap();
    let mut read = Vec::new();
    while let Some(record) = scan.next().transpose().unwrap() {
        read.push(record.offset());
    }
    // Its segment is sealed, and merged with the next one.
    topic(&store).log().roll_now().unwrap();
    fill(&prices, &mut history, 250, 90);
    seal(&prices);
    put(&prices, &mut history, 1, Some(8));
    assert_eq!(compact(&prices).unwrap().segments_removed, 1);
    while let Some(record) = scan.next().transpose().unwrap_or_else(|e| panic!("{read:?}: {e}")) {
        assert!(read.last() < Some(&record.offset()), "{} again", record.offset());
        read.push(record.offset());
    }
    let wanted = last_of(&history, 400);
    assert!(read.len() < 401 && wanted.iter().all(|at| read.contains(at)), "{read:?}");
}

#[test]
fn another_process_finds_every_record_that_is_left_whatever_it_knew_of_the_segments() {
    for known in 0..6u64 {
        let (memory, _storage) = machine();
        let (_store, prices, _other, others, mut history) = two(&memory);
        for i in 0..known {
            let _ = others.get_in(0, i * 499).unwrap();
        }
        compact(&prices).unwrap();
        let there = last_of(&history, 2500);
        for at in there.iter().step_by(3) {
            assert_eq!(others.get_in(0, *at).unwrap().offset(), *at, "{known}");
        }
        put(&others, &mut history, 7, Some(30));
        assert_eq!(prices.get_in(0, 2550).unwrap().key(), Some(&key(7)[..]));
        seal(&others);
        compact(&others).unwrap();
        let there = found(&prices, &history, "back");
        assert!(last_of(&history, 2551).iter().all(|at| there.contains(at)));
    }
}

#[test]
fn a_cursor_stays_where_it_is_while_segments_are_compacted_over_and_over() {
    let (memory, _storage) = machine();
    let (_store, prices, _other, others, mut history) = two(&memory);
    let mut scan = others.scan_partition(0, 0, None).unwrap();
    let mut state = HashMap::new();
    for round in 0..8 {
        for _ in 0..200 {
            let Some(record) = scan.next().transpose().unwrap_or_else(|e| panic!("{round}: {e}"))
            else {
                break;
            };
            state.insert(record.key().map(<[u8]>::to_vec), record.offset());
        }
        fill(&prices, &mut history, 150, 60);
        seal(&prices);
        compact(&prices).unwrap();
    }
    while let Some(record) = scan.next().transpose().unwrap() {
        state.insert(record.key().map(<[u8]>::to_vec), record.offset());
    }
    for at in last_of(&history, history.len() as u64) {
        let Some(number) = history[at as usize].key else { continue };
        assert_eq!(state.get(&Some(key(number))), Some(&at), "{number}");
    }
}

#[test]
fn of_two_that_compact_at_once_one_waits_and_both_are_right() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Store::open_with(&path, &falaj::internals::store::StoreOptions::default()).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 4000, 80);
    seal(&prices);
    let history = &history;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let prices = prices.clone();
            scope.spawn(move || {
                for _ in 0..3 {
                    compact(&prices).unwrap();
                }
            });
        }
        for _ in 0..2 {
            let prices = prices.clone();
            scope.spawn(move || {
                for _ in 0..20 {
                    let there = scanned(&prices, history, "beside");
                    let wanted = last_of(history, 4000);
                    assert!(wanted.iter().all(|at| there.binary_search(at).is_ok()));
                }
            });
        }
    });
    assert_eq!(found(&prices, history, ""), last_of(history, 4000));
}

#[test]
fn a_segment_that_went_meanwhile_is_not_brought_back() {
    let (memory, storage) = machine();
    let (_store, prices, _other, others, history) = two(&memory);
    // Retention of the other process runs between the read and the swap.
    let mut trimmed = false;
    let mut between = |done: u64, total: u64| {
        if !trimmed && done * 2 > total {
            others.trim(&[(0, 2000)]).unwrap();
            trimmed = true;
        }
        Ok(())
    };
    let _ = prices.compact(&CompactOptions::default(), &mut between);
    assert!(trimmed);
    for topic in [&prices, &others] {
        assert_eq!(topic.first(0).unwrap(), 2000);
        assert!(found(topic, &history, "").iter().all(|at| *at >= 2000));
    }
    compact(&prices).unwrap();
    assert_eq!(leftovers(&storage), [""; 0]);
}

#[test]
fn of_two_that_compact_without_a_common_lock_one_gives_up_and_nothing_unfinished_becomes_the_log() {
    let (memory, storage) = machine();
    let (_store, prices, _other, _others, history) = two(&memory);
    let dir = log_dir(&storage, Path::new(STORE), "prices");
    let unfinished = dir.join(names::COMPACTED);
    // Another program removed the lock's file, so a second compaction could start a file of the
    // same name.
    let (begun, beside) = (AtomicBool::new(false), Arc::clone(&storage));
    memory.watch(move |_| {
        let is_there = || beside.stat(&unfinished).is_ok_and(|stat| stat.len > 4096);
        if begun.load(Relaxed) || begun.swap(true, Relaxed) {
            return;
        }
        if is_there() {
            let made = unfinished.with_file_name("made");
            beside.open(&made, OpenMode::CreateNew(0o600)).unwrap();
            beside.rename_over(&made, &unfinished).unwrap();
        } else {
            begun.store(false, Relaxed);
        }
    });
    let error = compact(&prices).unwrap_err();
    assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    assert_eq!(found(&prices, &history, "").len(), history.len());
    compact(&prices).unwrap();
    assert_eq!(found(&prices, &history, ""), last_of(&history, 2500));
    assert_eq!(leftovers(&storage), [""; 0]);
}

#[test]
fn an_index_of_a_replaced_segment_never_leads_to_a_wrong_record() {
    let (memory, storage) = machine();
    let (_store, prices, _other, others, history) = two(&memory);
    let dir = log_dir(&storage, Path::new(STORE), "prices");
    let indexes = || segments(&storage).into_iter().map(|s| dir.join(names::index(s)));
    let read = |path: &Path| {
        let file = storage.open(path, OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.stat().unwrap().len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let before: Vec<_> = indexes().map(|path| (read(&path), path)).collect();
    compact(&prices).unwrap();
    // A process that was building an index of the old segment stops when the new segment is there.
    for (bytes, path) in before.iter().filter(|(_, path)| storage.stat(path).is_ok()) {
        let made = dir.join("made");
        let file = storage.open(&made, OpenMode::CreateNew(0o600)).unwrap();
        file.write_at(bytes, 0).unwrap();
        storage.rename_over(&made, path).unwrap();
    }
    let process: Arc<dyn Storage> = Arc::new(memory.process());
    let fresh = open(&process, Path::new(STORE)).unwrap();
    let there = last_of(&history, 2500);
    for topic in [&prices, &others, &topic(&fresh)] {
        look_up_all(topic, &history, &there, "old index");
        assert_eq!(found(topic, &history, "old index"), there);
    }
    is_sound(&fresh, "old index");
}

#[test]
fn a_backup_and_a_verification_that_are_overtaken_by_compaction_at_any_step_are_right() {
    for step in (0..24).step_by(3) {
        let (memory, storage) = machine();
        let (_store, prices, other, _others, history) = two(&memory);
        let (mut steps, mut compacted) = (0, false);
        let mut beside = |_, _| {
            if steps == step {
                compact(&prices).unwrap();
                compacted = true;
            }
            steps += 1;
            Ok(())
        };
        let report = if step % 2 == 0 {
            other.verify(None, &mut beside).unwrap().is_sound()
        } else {
            other.backup("/copy", &mut beside).unwrap();
            true
        };
        assert!(report && (compacted || step > 9), "{step} of {steps}");
        if step % 2 != 0 {
            let copy = open(&storage, Path::new("/copy")).unwrap();
            let there = found(&topic(&copy), &history, "copy");
            let least = last_of(&history, history.len() as u64);
            assert!(least.iter().all(|at| there.binary_search(at).is_ok()), "{step}");
            is_sound(&copy, "copy");
        }
    }
}
