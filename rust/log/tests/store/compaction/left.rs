//! Records that a compaction keeps, and those that it removes.

use std::slice::from_ref;

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::format::control::{at, flag};
use falaj::internals::storage::{MapAccess, OpenMode};
use falaj_twin::faulty::{FailureKind, Fault, FaultyStorage};

use super::*;

#[test]
fn of_each_key_the_last_record_stays_at_its_offset_and_all_else_is_gone() {
    crate::stores::on_both(|storage, dir| {
        let path = dir.join("store");
        let store = open(storage, &path).unwrap();
        let (prices, mut history) = (topic(&store), History::new());
        for (records, keys) in [(3000, 50), (1500, 400), (0, 1), (2000, 10)] {
            fill(&prices, &mut history, records, keys);
            prices.flush().unwrap();
            let end = sealed_end(&prices);
            let story = format!("{} records", history.len());
            let before = prices.log().extent().unwrap();
            let done = compact(&prices).unwrap();
            let there = found(&prices, &history, &story);
            assert_eq!(there, last_of(&history, end), "{story}");
            look_up_all(&prices, &history, &there, &story);
            is_sound(&store, &story);
            let after = prices.log().extent().unwrap();
            assert!(after.segments.len() <= before.segments.len());
            assert_eq!(done.segments - done.segments_removed, after.segments.len() as u64 - 1);
            assert_eq!(prices.end(0).unwrap(), history.len() as u64);
            assert_eq!(prices.first(0).unwrap(), 0, "the log must begin where it did");
            drop(store.clone());
        }
        // A process that opens it again finds the same, also without maps.
        let there = found(&prices, &history, "before");
        drop((prices, store));
        for reading in
            [falaj::internals::segment::Reading::Map, falaj::internals::segment::Reading::Pread]
        {
            let options = falaj::internals::store::StoreOptions { reading, ..Default::default() };
            let store = Store::open_on(Arc::clone(storage), &path, &options).unwrap();
            let prices = topic(&store);
            assert_eq!(found(&prices, &history, "anew"), there);
            look_up_all(&prices, &history, &there, "anew");
        }
    });
}

#[test]
fn what_is_left_takes_less_room_and_fewer_segments() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    for i in 0..2000 {
        put(&prices, &mut history, i % 20, Some(300));
    }
    seal(&prices);
    let before = segments(&storage).len();
    let done = compact(&prices).unwrap();
    assert_eq!((done.records, done.removed, done.tombstones), (2000, 1980, 0));
    assert!(before > 8 && segments(&storage).len() <= 3, "{before}");
    assert!(done.bytes_after * 10 < done.bytes_before, "{done:?}");
    assert_eq!(found(&prices, &history, ""), (1980..2000).collect::<Vec<_>>());
    // A second compaction has nothing to do.
    let again = compact(&prices).unwrap();
    assert_eq!((again.records, again.removed, again.segments_removed), (20, 0, 0));
    assert_eq!(leftovers(&storage), [""; 0]);
}

#[test]
fn records_keep_their_times_keys_headers_and_who_searches_by_time_finds_them() {
    let (memory, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let prices = topic(&store);
    let mut times = Vec::new();
    for i in 0..600u64 {
        let now = 1_800_000_000_000_000 + i as i64 * 1000;
        memory.set_now_us(now);
        let (key, value) = (key(i % 30), value(i, 300));
        let event = (i % 3 == 0).then_some(now * 1000 - 5);
        let headers = [("n", Some(&value[..8])), ("none", None)];
        let record = NewRecord {
            key: Some(&key),
            value: Some(&value),
            headers: if i % 2 == 0 { &headers } else { &[] },
            event_time_ns: event,
        };
        // Appended two at once, so that compaction splits blocks.
        prices.extend_to(0, &[record, NewRecord::new(b"no key")], None).unwrap();
        times.push((event.unwrap_or(now * 1000), now * 1000));
    }
    seal(&prices);
    compact(&prices).unwrap();
    for i in 0..600u64 {
        let unkeyed = prices.get_in(0, 2 * i + 1).unwrap();
        assert_eq!((unkeyed.value(), unkeyed.key()), (Some(&b"no key"[..]), None));
        assert_eq!(unkeyed.timestamp_ns(), times[i as usize].1);
        if i < 570 {
            assert!(matches!(prices.get_in(0, 2 * i), Err(Error::RecordCompacted { .. })), "{i}");
            continue;
        }
        let record = prices.get_in(0, 2 * i).unwrap();
        assert_eq!(record.timestamp_ns(), times[i as usize].0);
        assert_eq!(record.key(), Some(&key(i % 30)[..]));
        assert_eq!(record.headers().count(), if i % 2 == 0 { 2 } else { 0 });
    }
    for i in [0, 100, 569, 570, 599] {
        let at = prices.offset_at_time(0, times[i].1).unwrap().unwrap();
        let sought = if i < 570 { 2 * i as u64 + 1 } else { at };
        assert_eq!(at, sought, "{i}: the first remaining record");
        assert!(prices.get_in(0, at).unwrap().timestamp_ns() >= times[i].1);
        assert!(at == 0 || at as usize / 2 <= i);
    }
}

#[test]
fn more_keys_than_the_memory_holds_take_longer_and_leave_the_same() {
    let leave = |memory| {
        let (_, storage) = machine();
        let store = open(&storage, Path::new(STORE)).unwrap();
        let (prices, mut history) = (topic(&store), History::new());
        fill(&prices, &mut history, 1500, 300);
        seal(&prices);
        let how = CompactOptions::default().memory(memory);
        let done = prices.compact(&how, &mut quietly).unwrap();
        (done.removed, found(&prices, &history, ""))
    };
    let all = leave(1 << 20);
    for memory in [96 * 90, 96 * 299] {
        assert_eq!(leave(memory), all, "{memory} bytes");
    }
}

#[test]
fn positions_from_before_are_recognised_and_cursors_go_on() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 1500, 20);
    seal(&prices);
    let open = || GroupMember::open(&store, "reader", from_ref(&prices), Start::Earliest).unwrap();
    let mut reader = open();
    // Wherever the cursor is, the records before it may be merged with other blocks.
    for at in (0..1500).step_by(83) {
        reader.commit("prices", 0, at, true).unwrap();
    }
    reader.commit("prices", 0, 700, true).unwrap();
    drop(reader);
    compact(&prices).unwrap();
    let mut reader = open();
    assert_eq!(reader.next("prices", 0).unwrap(), 700, "the cursor must not go back");
    for at in (701..1500).step_by(83) {
        reader.commit("prices", 0, at, true).unwrap();
        fill(&prices, &mut history, 30, 20);
        seal(&prices);
        compact(&prices).unwrap();
        drop(reader);
        reader = open();
        assert_eq!(reader.next("prices", 0).unwrap(), at);
    }
    let there = found(&prices, &history, "");
    let mut scan = prices.scan_partition(0, 700, None).unwrap();
    let mut rest = std::iter::from_fn(|| scan.next().transpose().unwrap().map(|r| r.offset()));
    assert!(there.iter().copied().filter(|at| *at >= 700).eq(rest.by_ref()));
}

#[test]
fn a_topic_that_is_not_marked_for_it_or_shares_its_log_is_refused() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let plain = TopicOptions { compacted: None, ..options(1) };
    let orders = Topic::open(&store, "orders", &plain).unwrap();
    let error = compact(&orders).unwrap_err().to_string();
    assert!(error.contains("not marked compacted") && error.contains("compacted=True"), "{error}");
    store.mark_compacted("orders", true, None).unwrap();
    assert_eq!(compact(&orders).unwrap(), Compacted::default());
    store.mark_compacted("orders", false, None).unwrap();
    assert!(compact(&orders).is_err());
    let shared = TopicOptions { log: Some("shop".into()), ..options(1) };
    let [one, _other] = ["one", "other"].map(|name| Topic::open(&store, name, &shared).unwrap());
    let error = compact(&one).unwrap_err().to_string();
    assert!(error.contains("\"shop\"") && error.contains("\"other\""), "{error}");
    let reader = crate::stores::open_to_read(&storage, Path::new(STORE)).unwrap();
    let prices = topic(&store);
    drop(prices);
    let prices = Topic::open(&reader, "prices", &TopicOptions::default()).unwrap();
    assert!(matches!(compact(&prices), Err(Error::NotWritable { .. })));
}

#[test]
fn a_copy_of_a_compacted_store_is_the_same_and_as_small() {
    crate::stores::on_both(|storage, dir| {
        let path = dir.join("store");
        let store = open(storage, &path).unwrap();
        let (prices, mut history) = (topic(&store), History::new());
        for i in 0..3000 {
            put(&prices, &mut history, i % 5, Some(300));
        }
        seal(&prices);
        compact(&prices).unwrap();
        put(&prices, &mut history, 1, Some(9));
        let copy = dir.join("copy");
        store.backup(&copy, &mut quietly).unwrap();
        let copied = open(storage, &copy).unwrap();
        assert_eq!(found(&topic(&copied), &history, ""), found(&prices, &history, ""));
        is_sound(&copied, "copy");
        let taken = |store: &Path| {
            let file = crate::stores::segment(
                storage,
                store,
                "prices",
                *segments_in(storage, store).first().unwrap(),
            );
            storage.stat(&file).unwrap().allocated
        };
        assert!(taken(&copy) <= taken(&path) + (64 << 10), "{} {}", taken(&copy), taken(&path));
    });
}

fn segments_in(storage: &Arc<dyn Storage>, store: &Path) -> Vec<u64> {
    let names = storage.list(&log_dir(storage, store, "prices")).unwrap();
    names.iter().filter_map(|name| names::parse_segment(name)).collect()
}

#[test]
fn a_damaged_segment_is_told_and_left_as_it_is() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 2000, 20);
    seal(&prices);
    let hurt = crate::stores::segment(&storage, Path::new(STORE), "prices", segments(&storage)[2]);
    crate::stores::flip(&storage, &hurt, 9000);
    let before = segments(&storage);
    let error = compact(&prices).unwrap_err();
    assert!(matches!(&error, Error::CorruptData { path, .. } if *path == hurt), "{error}");
    assert_eq!(segments(&storage), before);
    assert_eq!(leftovers(&storage), [""; 0]);
}

#[test]
fn a_call_that_fails_anywhere_is_told_and_leaves_a_whole_log() {
    let mut nth = 1;
    let mut told = 0;
    loop {
        let memory = MemoryStorage::new().seeded(7);
        let faulty = Arc::new(FaultyStorage::over_memory(memory));
        let storage: Arc<dyn Storage> = Arc::clone(&faulty) as _;
        let store = open(&storage, Path::new(STORE)).unwrap();
        let (prices, mut history) = (topic(&store), History::new());
        fill(&prices, &mut history, 700, 300);
        seal(&prices);
        let before = faulty.total();
        faulty.plan(Fault::at(before + nth, FailureKind::Errno(28)));
        let done = compact(&prices);
        let calls = faulty.total() - before;
        faulty.heal();
        told += u64::from(done.is_err());
        let story = format!("call {nth}: {done:?}");
        let there = found(&prices, &history, &story);
        let least = last_of(&history, history.len() as u64);
        assert!(least.iter().all(|at| there.contains(at)), "{story}");
        put(&prices, &mut history, 1, Some(30));
        compact(&prices).unwrap();
        assert_eq!(found(&prices, &history, &story), last_of(&history, 700), "{story}");
        assert_eq!(leftovers(&storage), [""; 0], "{story}");
        if nth > calls {
            break;
        }
        nth += 3;
    }
    assert!(told > 5, "{told}");
}

#[test]
fn retention_and_compaction_of_one_topic_get_along() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 3000, 200);
    seal(&prices);
    compact(&prices).unwrap();
    fill(&prices, &mut history, 1000, 200);
    seal(&prices);
    prices.trim(&[(0, 2500)]).unwrap();
    assert_eq!(prices.first(0).unwrap(), 2500);
    let there = found(&prices, &history, "trimmed");
    assert!(there.iter().all(|at| *at >= 2500) && !there.is_empty());
    compact(&prices).unwrap();
    let there = found(&prices, &history, "trimmed and compacted");
    let wanted: Vec<_> = last_of(&history, 4000).into_iter().filter(|at| *at >= 2500).collect();
    assert_eq!(there, wanted);
    prices.trim(&[(0, 4000)]).unwrap();
    assert_eq!(segments(&storage).len(), 1);
    assert_eq!(found(&prices, &history, "all trimmed"), [0; 0]);
    is_sound(&store, "all trimmed");
}

/// The sync before the segment ends carries records in doubt over, into a segment of its own.
///
/// That segment is the one to end, not the empty one before it.
#[test]
fn compaction_reads_everything_also_when_a_failed_sync_is_cleared_after_a_roll() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    for i in 0..500 {
        put(&prices, &mut history, i % 20, Some(300));
    }
    prices.log().roll_now().unwrap();
    let control = log_dir(&storage, Path::new(STORE), "prices").join("control");
    let page =
        storage.open(&control, OpenMode::ReadWrite).unwrap().map(4096, MapAccess::Write).unwrap();
    page.store(at::FLAGS, page.load(at::FLAGS) | flag::LATCHED).unwrap();
    let sealing = CompactOptions::default().seal(true);
    let done = prices.compact(&sealing, &mut quietly).unwrap();
    assert_eq!((done.records, done.removed), (500, 480), "{done:?}");
    assert_eq!(found(&prices, &history, ""), last_of(&history, 500));
    is_sound(&store, "");
}
