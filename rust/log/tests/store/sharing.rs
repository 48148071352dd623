//! Several topics in one log: each behaves as if alone, whatever happens to the others.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::format::state::MAX_TOPICS;
use falaj::internals::storage::Storage;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::faulty::{FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::{MemoryStorage, every};

const ROOT: &str = "/store";

fn machine() -> MemoryStorage {
    MemoryStorage::new().seeded(7)
}

fn open_on(
    storage: Arc<dyn Storage>,
    access: &StoreOptions,
) -> falaj::internals::error::Result<Store> {
    Store::open_on(storage, ROOT, access)
}

fn open(storage: &MemoryStorage) -> Store {
    open_on(Arc::new(storage.clone()), &StoreOptions::default()).unwrap()
}

fn in_shop() -> TopicOptions {
    let segment_bytes = Some(64 << 10);
    TopicOptions { log: Some("shop".into()), segment_bytes, ..TopicOptions::default() }
}

fn shop(store: &Store, name: &str) -> Topic {
    Topic::open(store, name, &in_shop()).unwrap()
}

fn put(topic: &Topic, values: &[&str]) {
    for value in values {
        topic.append_to(0, &NewRecord::new(value.as_bytes()), Some(SyncMode::Durable)).unwrap();
    }
}

fn values(topic: &Topic) -> Vec<String> {
    let offsets = topic.first(0).unwrap()..topic.end(0).unwrap();
    let value = |offset| topic.get_in(0, offset).unwrap().value().unwrap().to_vec();
    offsets.map(|offset| String::from_utf8(value(offset)).unwrap()).collect()
}

fn logs(storage: &dyn Storage) -> Vec<String> {
    storage.list(&Path::new(ROOT).join("logs")).unwrap()
}

fn is_sound(store: &Store) {
    let found = store.verify(None, &mut |_, _| Ok(())).unwrap();
    let all: Vec<_> = found.all_findings().map(|finding| finding.what.clone()).collect();
    assert!(found.is_sound(), "{all:?}");
}

#[test]
fn topics_of_a_log_have_offsets_of_their_own_and_one_directory() {
    for write_mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let machine = machine();
        let options = StoreOptions { write_mode: Some(write_mode), ..StoreOptions::default() };
        let store = open_on(Arc::new(machine.clone()), &options).unwrap();
        let (orders, audit) = (shop(&store, "orders"), shop(&store, "audit"));
        put(&orders, &["a", "b"]);
        put(&audit, &["x"]);
        put(&orders, &["c"]);
        assert_eq!(values(&orders), ["a", "b", "c"]);
        assert_eq!(values(&audit), ["x"]);
        assert_eq!(logs(&machine).len(), 1);
        let reader = open_on(Arc::new(machine.clone()), &StoreOptions::reading()).unwrap();
        assert_eq!(values(&shop(&reader, "audit")), ["x"]);
        // A process that had it open before the other topic came works with both.
        let many = TopicOptions { partitions: Some(3), ..in_shop() };
        let late = Topic::open(&store, "late", &many).unwrap();
        late.append_to(2, &NewRecord::new(b"z"), None).unwrap();
        assert_eq!((late.end(2).unwrap(), late.end(1).unwrap()), (1, 0));
        is_sound(&store);
        drop((orders, audit, late, store, reader));
        let again = open(&machine.restart());
        assert_eq!(values(&shop(&again, "orders")), ["a", "b", "c"]);
        assert_eq!(values(&shop(&again, "audit")), ["x"]);
        is_sound(&again);
    }
}

/// The index leads to the head of the group, past the entry that introduces the topic.
#[test]
fn a_topic_whose_first_records_came_in_a_group_is_read_by_whoever_opens_it_later() {
    let machine = machine();
    let store = open(&machine);
    let many = TopicOptions { partitions: Some(2), ..in_shop() };
    let (orders, late) = (shop(&store, "orders"), Topic::open(&store, "late", &many).unwrap());
    let (a, b) = ([NewRecord::new(b"a")], [NewRecord::new(b"b"), NewRecord::new(b"c")]);
    for _ in 0..3 {
        late.extend_partitions(&[(0, &a), (1, &b)], None).unwrap();
    }
    let time = late.get_in(1, 0).unwrap().timestamp_ns();
    drop((orders, late, store));
    let machine = machine.restart();
    for access in [StoreOptions::reading(), StoreOptions::default()] {
        let store = open_on(Arc::new(machine.clone()), &access).unwrap();
        let late = shop(&store, "late");
        let ends = [0, 1].map(|p| (late.end(p).unwrap(), late.durable(p).unwrap()));
        assert_eq!(ends, [(3, 3), (6, 6)]);
        assert_eq!(late.get_in(1, 5).unwrap().value(), Some(&b"c"[..]));
        assert_eq!(late.offset_at_time(1, time + 1).unwrap(), None);
        let mut scan = late.scan_partition(1, 3, None).unwrap();
        assert_eq!(scan.next().transpose().unwrap().unwrap().value(), Some(&b"c"[..]));
    }
}

#[test]
fn what_a_log_has_in_common_is_taken_from_it_or_refused_by_name() {
    let machine = machine();
    let store = open(&machine);
    shop(&store, "orders");
    let larger = TopicOptions { segment_bytes: Some(1 << 20), ..in_shop() };
    let error = Topic::open(&store, "audit", &larger).unwrap_err();
    assert!(matches!(&error, Error::SettingsMismatch { setting: "segment_bytes", .. }), "{error}");
    assert_eq!(store.topics().unwrap().len(), 1, "nothing may be created");
    let as_it_is = TopicOptions { segment_bytes: None, ..in_shop() };
    let audit = Topic::open(&store, "audit", &as_it_is).unwrap();
    assert_eq!(audit.settings().segment_bytes, 64 << 10);
    let elsewhere = TopicOptions { log: Some("other".into()), ..TopicOptions::default() };
    let error = Topic::open(&store, "audit", &elsewhere).unwrap_err();
    assert!(matches!(&error, Error::SettingsMismatch { setting: "log", .. }), "{error}");
    let error = Topic::open(&store, "shop", &TopicOptions::default()).unwrap_err();
    assert!(error.to_string().contains("log=\"shop\""), "{error}");
}

#[test]
fn a_deleted_topic_is_gone_for_its_handles_and_the_others_stay() {
    let machine = machine();
    let store = open(&machine);
    let other = open_on(Arc::new(machine.process()), &StoreOptions::default()).unwrap();
    let reader = open_on(Arc::new(machine.process()), &StoreOptions::reading()).unwrap();
    let (orders, audit) = (shop(&store, "orders"), shop(&store, "audit"));
    put(&orders, &["a"]);
    put(&audit, &["x"]);
    let handles = [shop(&other, "orders"), shop(&reader, "orders")];
    assert!(handles.iter().all(|topic| !topic.is_deleted()));
    store.delete_topic("orders").unwrap();
    for topic in handles.iter().chain([&orders]) {
        assert!(topic.is_deleted(), "{topic:?}");
    }
    for topic in [&handles[0], &orders] {
        let error = topic.append_to(0, &NewRecord::new(b"b"), None).unwrap_err();
        assert!(matches!(&error, Error::TopicDeleted { name } if name == "orders"), "{error}");
    }
    assert!(!audit.is_deleted());
    put(&audit, &["y"]);
    assert_eq!(values(&shop(&reader, "audit")), ["x", "y"]);
    is_sound(&store);
    // A topic that was created again starts empty, and handles of the old one stay invalid.
    let anew = shop(&store, "orders");
    put(&anew, &["new"]);
    assert_eq!(values(&anew), ["new"]);
    assert!(handles[1].is_deleted() && !anew.is_deleted());
    assert!(anew.settings().number > audit.settings().number);
    drop((handles, orders, anew));
    store.delete_topic("orders").unwrap();
    store.delete_topic("audit").unwrap();
    assert!(logs(&machine).is_empty(), "the log must be deleted with the last topic");
}

#[test]
fn a_number_is_never_given_twice_whatever_happens_to_the_segments() {
    let machine = machine();
    let store = open(&machine);
    let kept = shop(&store, "kept");
    let mut last = 0;
    for round in 0..4 {
        let topic = shop(&store, "passing");
        assert!(topic.settings().number > last, "round {round}");
        last = topic.settings().number;
        put(&topic, &["x"]);
        drop(topic);
        store.delete_topic("passing").unwrap();
        if round % 2 == 1 {
            kept.log().roll_now().unwrap();
            put(&kept, &["k"]);
            kept.trim(&[(0, kept.end(0).unwrap())]).unwrap();
        }
    }
    assert!(
        kept.log().extent().unwrap().segments.len() == 1,
        "deleted topics must not keep segments"
    );
    drop((kept, store));
    let store = open(&machine.restart());
    assert!(shop(&store, "passing").settings().number > last);
    is_sound(&store);
}

#[test]
fn one_topic_more_than_a_log_has_numbers_for_is_refused_and_nothing_changes() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open_with(place.path().join("store"), &StoreOptions::default()).unwrap();
    let most = TopicOptions { partitions: Some(MAX_TOPICS - 1), ..in_shop() };
    Topic::open(&store, "wide", &most).unwrap();
    let two = TopicOptions { partitions: Some(2), ..in_shop() };
    let error = Topic::open(&store, "two", &two).unwrap_err();
    assert!(error.to_string().contains("name another log"), "{error}");
    put(&shop(&store, "one"), &["fits"]);
    let error = Topic::open(&store, "more", &in_shop()).unwrap_err();
    assert!(error.to_string().contains("10000"), "{error}");
    assert_eq!(store.topics().unwrap().len(), 2);
    store.delete_topic("wide").unwrap();
    assert_eq!(values(&shop(&store, "one")), ["fits"]);
    is_sound(&store);
}

#[test]
fn info_backup_and_repair_count_a_shared_log_once() {
    let machine = machine();
    let store = open(&machine);
    for name in ["a", "b", "c"] {
        put(&shop(&store, name), &["1", "2"]);
    }
    store.delete_topic("b").unwrap();
    let info = store.info().unwrap();
    assert_eq!((info.topics.len(), info.logs.len()), (2, 1));
    assert_eq!(info.logs[0].topics, ["a", "c"]);
    for topic in &info.topics {
        let partitions = topic.partitions.as_ref().unwrap();
        let [only] = partitions[..] else { panic!("{partitions:?}") };
        assert_eq!((only.first, only.end, only.durable), (0, 2, 2));
    }
    let report = store.backup("/copy", &mut |_, _| Ok(())).unwrap();
    assert_eq!((report.topics, report.logs), (2, 1));
    let copy =
        Store::open_on(Arc::new(machine.clone()), "/copy", &StoreOptions::default()).unwrap();
    assert_eq!(values(&shop(&copy, "c")), ["1", "2"]);
    is_sound(&copy);
    let repaired = copy.repair(false).unwrap();
    assert!(repaired.is_complete() && repaired.logs.len() == 1);
    drop((copy, store));
    let storage: Arc<dyn Storage> = Arc::new(machine.restart());
    let root = Path::new(ROOT);
    let found =
        falaj::internals::store::repair(storage, root, &StoreOptions::default(), true).unwrap();
    let ends: Vec<_> = found.logs[0].ends.iter().map(|(name, _, end)| (&**name, *end)).collect();
    assert_eq!(ends, [("a", 2), ("c", 2)]);
}

/// A typical use: topics are created, share, and are deleted.
fn workload(storage: Arc<dyn Storage>) -> falaj::internals::error::Result<()> {
    let lock_timeout = std::time::Duration::from_millis(20);
    let store = open_on(storage, &StoreOptions { lock_timeout, ..StoreOptions::default() })?;
    let kept = Topic::open(&store, "kept", &in_shop())?;
    kept.append_to(0, &NewRecord::new(b"k"), Some(SyncMode::Durable))?;
    let passing = Topic::open(&store, "passing", &in_shop())?;
    passing.append_to(0, &NewRecord::new(b"p"), Some(SyncMode::Durable))?;
    drop(passing);
    store.delete_topic("passing")
}

/// Check that the next process finds whole topics, and sweeps.
fn assert_works(storage: &MemoryStorage, story: &str) {
    let options = StoreOptions::default();
    let store = open_on(Arc::new(storage.clone()), &options)
        .unwrap_or_else(|error| panic!("{story}: {error}"));
    for (name, settings) in store.topics().unwrap() {
        let settings = settings.unwrap_or_else(|error| panic!("{story}: {name}: {error}"));
        let log = store.open_log(&settings).unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(!log.is_topic_deleted(settings.number), "{story}: {name} is there and deleted");
    }
    let (kept, passing) = (shop(&store, "kept"), shop(&store, "passing"));
    put(&passing, &["after"]);
    let found = values(&kept);
    assert!(found.is_empty() || found == ["k"], "{story}: {found:?}");
    assert_eq!(values(&passing).last().unwrap(), "after", "{story}");
    assert_eq!(logs(storage).len(), 1, "{story}");
    for topic in ["kept", "passing"] {
        let files = storage.list(&Path::new(ROOT).join("topics").join(topic)).unwrap();
        assert_eq!(files, ["topic.json"], "{story}: {topic}");
    }
    let found = store.verify(None, &mut |_, _| Ok(())).unwrap();
    let all: Vec<_> = found.all_findings().map(|finding| finding.what.clone()).collect();
    assert!(found.is_sound(), "{story}: {all:?}");
}

#[test]
fn sharing_interrupted_by_an_error_or_a_death_at_any_call_is_gone_on_with() {
    let whole = FaultyStorage::over_memory(machine());
    workload(Arc::new(whole.clone())).unwrap();
    for k in 1..=whole.total() {
        for forever in [false, true] {
            let machine = machine();
            let victim = machine.process();
            let faulty = FaultyStorage::over_memory(victim.clone());
            let fault = Fault::at(k, FailureKind::Errno(libc::EIO));
            faulty.plan(if forever { fault.forever() } else { fault });
            let _ = workload(Arc::new(faulty));
            victim.kill();
            assert_works(&machine, &format!("call {k}, forever: {forever}"));
        }
    }
}

#[test]
fn sharing_interrupted_by_a_power_cut_anywhere_leaves_whole_topics_only() {
    let machine = machine();
    let store = open(&machine);
    put(&shop(&store, "kept"), &["k"]);
    let before = machine.events();
    let passing = shop(&store, "passing");
    let created = machine.events();
    put(&passing, &["p"]);
    drop(passing);
    let appended = machine.events();
    store.delete_topic("passing").unwrap();
    let deleted = machine.events();
    let journal = machine.journal();
    let mut images = 0;
    for crash in journal.crashes_from(before).step_by(every(7)) {
        let explored = crash.explore(48, 11, |selection, image| {
            let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
            {
                let store = open(&image);
                assert_eq!(values(&shop(&store, "kept")), ["k"], "{story}");
                let is_there = store.topic_settings("passing").is_ok();
                let must = (created..appended).contains(&crash.time());
                assert!(is_there || !must, "{story}: created, and gone");
                assert!(!is_there || crash.time() < deleted, "{story}: deleted, and there");
            }
            assert_works(&image, &story);
        });
        images += explored.images;
    }
    assert!(images > 200, "{images}");
}
