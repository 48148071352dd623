//! Stores in memory: sharing, faults at every call, power cuts at every point.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::claim::Claim;
use super::layout::{deleted, temporary};
use super::*;
use crate::format::names;
use crate::format::settings::WriteMode;
use crate::lock::{Fate, GENERATION_MAX, Holders, Identity, SLOTS};
use crate::storage::faulty::{Fault, FaultyStorage, How};
use crate::storage::memory::MemoryStorage;
use crate::storage::{Filesystem, LockKind, Open};

const ROOT: &str = "/store";

fn machine() -> MemoryStorage {
    MemoryStorage::new().seeded(7)
}

fn open(storage: &MemoryStorage) -> Result<Store> {
    open_with(storage, &StoreOptions::default())
}

fn open_with(storage: &MemoryStorage, options: &StoreOptions) -> Result<Store> {
    Store::open_on(Arc::new(storage.clone()), ROOT, options)
}

fn impatient() -> StoreOptions {
    StoreOptions { lock_timeout: Duration::from_millis(20), ..StoreOptions::default() }
}

fn topic(store: &Store, name: &str) -> Result<TopicSettings> {
    store.open_topic(name, &TopicOptions::default())
}

fn list(storage: &dyn Storage, path: &str) -> Vec<String> {
    storage.list(&Path::new(ROOT).join(path)).unwrap()
}

/// Replace what is in a file, which may become shorter.
fn overwrite(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    let aside = Path::new("/aside");
    storage.open(aside, Open::CreateNew(0o600)).unwrap().write_at(bytes, 0).unwrap();
    storage.rename_over(aside, path).unwrap();
}

fn read(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    files::read(storage, path).unwrap().unwrap()
}

/// Nothing in the store is there that no topic needs.
fn assert_tidy(storage: &dyn Storage) {
    let topics = list(storage, "topics");
    for topic in &topics {
        assert_eq!(list(storage, &format!("topics/{topic}")), ["topic.json"]);
    }
    assert_eq!(list(storage, "logs").len(), topics.len());
    let known = ["claim", "consumers", "falaj.json", "logs", "presence", "slots", "topics", "wake"];
    assert_eq!(list(storage, ""), known);
}

#[test]
fn two_opens_in_one_process_share_a_slot() {
    let machine = machine();
    let (one, two) = (open(&machine).unwrap(), open(&machine).unwrap());
    let (a, b) = (one.membership().unwrap(), two.membership().unwrap());
    assert!(Arc::ptr_eq(&a, &b));
    assert_eq!(list(&machine, "slots"), ["0"]);
    drop((one, a));
    assert_eq!(two.membership().unwrap().identity(), b.identity());
}

#[test]
fn threads_that_open_at_once_end_up_in_one_slot() {
    let machine = machine();
    let stores: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&machine).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let identities: BTreeSet<_> =
        stores.iter().map(|store| store.membership().unwrap().identity().bits()).collect();
    assert_eq!(identities.len(), 1);
}

#[test]
fn two_processes_have_different_slots_and_one_incarnation() {
    let (one, two) = (machine(), machine());
    let other = one.process();
    let (a, b, stranger) = (open(&one).unwrap(), open(&other).unwrap(), open(&two).unwrap());
    let [a, b, stranger] = [a, b, stranger].map(|store| store.membership().unwrap());
    assert_eq!((a.identity().slot(), b.identity().slot()), (0, 1));
    assert_eq!(a.incarnation(), b.incarnation());
    assert!(!Arc::ptr_eq(&a, &stranger));
}

#[test]
fn a_new_incarnation_begins_only_when_nobody_is_there() {
    let machine = machine();
    let incarnation = |store: &Store| store.membership().unwrap().incarnation();
    let one = open(&machine).unwrap();
    let first = incarnation(&one);
    let two = open(&machine.process()).unwrap();
    drop(one);
    let three = open(&machine.process()).unwrap();
    assert_eq!((incarnation(&two), incarnation(&three)), (first, first));
    drop((two, three));
    let four = open(&machine).unwrap();
    assert_ne!(incarnation(&four), first);
    assert_ne!(incarnation(&four), 0);
}

#[test]
fn a_process_is_alive_until_its_slot_is_free() {
    let me = machine();
    let victim = me.process();
    let here = open(&me).unwrap();
    let there = open(&victim).unwrap().membership().unwrap();
    let here = here.membership().unwrap();
    let dead = there.identity();
    assert!(matches!(here.fate(dead), Ok(Fate::Alive)));
    assert!(matches!(here.fate(here.identity()), Ok(Fate::Alive)));
    victim.kill();
    let proof = here.fate(dead).unwrap();
    assert!(matches!(proof, Fate::Dead(_)));
    // While the proof is kept nobody claims the slot; the next one claims another.
    let third = open(&me.process()).unwrap();
    assert_eq!(third.membership().unwrap().identity().slot(), 2);
    drop(proof);
    let fourth = open(&me.process()).unwrap().membership().unwrap();
    assert_eq!(fourth.identity().slot(), dead.slot());
    assert_eq!(fourth.identity().generation(), dead.generation() + 1);
    // Its slot is locked again, and it is dead all the same.
    assert!(matches!(here.fate(dead), Ok(Fate::Dead(_))));
    assert!(matches!(here.fate(fourth.identity()), Ok(Fate::Alive)));
    assert!(here.describe(dead).contains("has ended"));
    assert!(here.describe(fourth.identity()).starts_with("process "));
}

#[test]
fn a_slots_generation_goes_round_past_the_highest() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let spare = store.layout().slot(1);
    let file = lockfile::LockFile::find_or_create(&machine, spare, 0o600).unwrap();
    file.write(&format!("generation {GENERATION_MAX} process 1 since_us 1")).unwrap();
    drop(file);
    let slots = slots::Slots::new(&storage, store.layout());
    let old = Identity::new(1, GENERATION_MAX).unwrap();
    let (_file, identity) = slots.take(store.modes(), 1).unwrap();
    assert_eq!((identity.slot(), identity.generation()), (1, 1));
    assert!(matches!(slots.fate(old), Ok(Fate::Dead(_))));
    assert!(matches!(slots.fate(identity), Ok(Fate::Alive)));
}

#[test]
fn a_slot_is_had_by_one_and_when_all_are_taken_that_is_said() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let slots = slots::Slots::new(&storage, store.layout());
    let taken: Vec<_> = (1..SLOTS).map(|_| slots.take(store.modes(), 0).unwrap()).collect();
    let distinct: BTreeSet<_> = taken.iter().map(|(_, identity)| identity.slot()).collect();
    assert_eq!(distinct.len(), usize::from(SLOTS) - 1);
    let full = open(&machine.process()).unwrap_err();
    assert!(matches!(full, Error::NoSlot { limit: 1024, .. }), "{full}");
}

#[test]
fn a_claim_that_is_not_had_in_time_is_an_error_that_names_the_holder() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let claim =
        Claim::take(store.storage(), store.layout(), 0o600, Patience::new(Duration::ZERO)).unwrap();
    let error = open_with(&machine.process(), &impatient()).unwrap_err();
    let named = format!("process {}", std::process::id());
    assert!(
        matches!(&error, Error::LockTimeout { holder, .. } if holder.starts_with(&named)),
        "{error}"
    );
    drop(claim);
    open_with(&machine.process(), &impatient()).unwrap();
}

#[test]
fn a_replaced_presence_file_is_noticed_while_somebody_is_there() {
    let machine = machine();
    let store = open(&machine).unwrap();
    for content in [b"".as_slice(), &read(&machine, &store.layout().presence())] {
        overwrite(&machine, &store.layout().presence(), content);
        let error = open(&machine.process()).unwrap_err();
        assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    }
    let member = store.membership().unwrap();
    assert!(matches!(member.verify(), Err(Error::LockFileReplaced { .. })));
    machine.unlink(&store.layout().presence()).unwrap();
    assert!(matches!(open(&machine.process()), Err(Error::LockFileReplaced { .. })));
    // Nobody there: nothing is lost by a new one.
    drop((store, member));
    open(&machine).unwrap();
}

#[test]
fn damaged_presence_is_refused_among_others_and_written_anew_alone() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let path = store.layout().presence();
    machine.open(&path, Open::ReadWrite).unwrap().write_at(b"x", 3).unwrap();
    let error = open(&machine.process()).unwrap_err();
    assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    drop(store);
    open(&machine).unwrap();
}

#[test]
fn a_slot_file_that_is_gone_or_emptied_is_noticed() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let holder = open(&machine.process()).unwrap().membership().unwrap();
    let me = store.membership().unwrap();
    let path = store.layout().slot(holder.identity().slot());
    overwrite(&machine, &path, b"");
    assert!(me.fate(holder.identity()).is_err(), "an empty slot file proves nothing");
    assert!(matches!(holder.verify(), Err(Error::LockFileReplaced { .. })));
    assert!(matches!(open(&machine.process()), Err(Error::LockFileReplaced { .. })));
    machine.unlink(&path).unwrap();
    assert!(me.fate(holder.identity()).is_err(), "a missing slot file proves nothing");
    assert!(matches!(open(&machine.process()), Err(Error::LockFileReplaced { .. })));
}

#[test]
fn a_damaged_slot_file_is_passed_over_while_its_holder_may_live() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let victim = machine.process();
    let holder = open(&victim).unwrap().membership().unwrap();
    let path = store.layout().slot(1);
    machine.open(&path, Open::ReadWrite).unwrap().write_at(b"x", 3).unwrap();
    let me = store.membership().unwrap();
    assert!(matches!(me.fate(holder.identity()), Ok(Fate::Alive)));
    victim.kill();
    assert!(me.fate(holder.identity()).is_err());
    assert_eq!(open(&machine.process()).unwrap().membership().unwrap().identity().slot(), 2);
}

#[test]
fn a_store_without_lock_files_is_a_restored_backup() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let made = topic(&store, "orders").unwrap();
    let layout = store.layout().clone();
    drop(store);
    for path in [layout.claim(), layout.presence(), layout.wake(), layout.slot(0)] {
        machine.unlink(&path).unwrap();
    }
    machine.remove_dir(&layout.slots()).unwrap();
    let reader = open_with(&machine, &StoreOptions::reading()).unwrap();
    assert!(reader.wake_page().is_none());
    assert_eq!(reader.topic_settings("orders").unwrap(), made);
    let store = open(&machine).unwrap();
    assert_eq!(topic(&store, "orders").unwrap(), made);
    assert_tidy(&machine);
}

#[test]
fn a_deleted_store_is_not_mistaken_for_one_made_in_its_place() {
    let machine = machine();
    let before = open(&machine).unwrap();
    let gone = before.membership().unwrap();
    for name in list(&machine, "slots") {
        machine.unlink(&before.layout().slots().join(name)).unwrap();
    }
    for name in list(&machine, "") {
        let path = Path::new(ROOT).join(name);
        machine.unlink(&path).or_else(|_| machine.remove_dir(&path)).unwrap();
    }
    // The directory is the same one, by device and inode.
    let after = open(&machine).unwrap();
    assert!(!Arc::ptr_eq(&gone, &after.membership().unwrap()));
    assert_ne!(before.settings().id, after.settings().id);
}

#[test]
fn a_reader_creates_nothing_and_takes_no_slot() {
    let machine = machine();
    for _ in 0..2 {
        let error = open_with(&machine, &StoreOptions::reading()).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
        let _ = machine.create_dir(Path::new(ROOT), 0o700);
    }
    let writer = open(&machine).unwrap();
    let before = machine.events();
    let reader = open_with(&machine, &StoreOptions::reading()).unwrap();
    let missing = topic(&reader, "orders").unwrap_err();
    assert!(matches!(missing, Error::NoSuchTopic { .. }), "{missing}");
    assert!(matches!(reader.membership(), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.delete_topic("orders"), Err(Error::ReadOnly { .. })));
    assert_eq!(machine.events(), before);
    assert_eq!((reader.access(), writer.access()), (Access::Read, Access::Write));
}

#[test]
fn a_directory_of_somebody_else_is_left_as_it_is() {
    for strange in ["notes.txt", "falaj.json.bak", "falaj", "lost+found"] {
        let machine = machine();
        machine.create_dir(Path::new(ROOT), 0o700).unwrap();
        machine.open(&Path::new(ROOT).join(strange), Open::CreateNew(0o600)).unwrap();
        let error = open(&machine).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
        assert_eq!(list(&machine, ""), [strange]);
    }
}

#[test]
fn a_store_that_lost_its_settings_does_not_become_another() {
    let machine = machine();
    let store = open(&machine).unwrap();
    topic(&store, "orders").unwrap();
    machine.unlink(&store.layout().settings()).unwrap();
    drop(store);
    let error = open(&machine).unwrap_err();
    assert!(
        matches!(&error, Error::NotAStore { why, .. } if why.contains("falaj.json is missing")),
        "{error}"
    );
    assert!(!list(&machine, "").contains(&"falaj.json".to_owned()));
}

#[test]
fn damaged_emptied_and_newer_settings_are_told_apart() {
    let machine = machine();
    let store = open(&machine).unwrap();
    topic(&store, "orders").unwrap();
    topic(&store, "other").unwrap();
    let topic_json = store.layout().topic_settings("orders").unwrap();
    let newer = {
        let body = "{\"format\":2";
        let sum = crate::format::checksum::crc32(body.as_bytes());
        format!("{body},\"checksum\":\"{sum:08x}\"}}\n").into_bytes()
    };
    let paths = [store.layout().settings(), topic_json.clone()];
    for path in &paths {
        let good = read(&machine, path);
        let mut flipped = good.clone();
        flipped[20] ^= 4;
        let cases: [(&[u8], fn(&Error) -> bool); 4] = [
            (&flipped, |error| matches!(error, Error::Corrupt { .. })),
            (&good[..good.len() / 2], |error| matches!(error, Error::Corrupt { .. })),
            (b"", |error| matches!(error, Error::Corrupt { .. })),
            (&newer, |error| matches!(error, Error::Newer { .. })),
        ];
        for (bytes, expected) in cases {
            overwrite(&machine, path, bytes);
            for options in [StoreOptions::default(), StoreOptions::reading()] {
                let result =
                    open_with(&machine, &options).and_then(|store| topic(&store, "orders"));
                let error = result.unwrap_err();
                assert!(
                    expected(&error) && error.to_string().contains(path.to_str().unwrap()),
                    "{error}"
                );
            }
        }
        overwrite(&machine, path, &good);
    }
    overwrite(&machine, &topic_json, b"");
    let listed = store.topics().unwrap();
    assert_eq!(
        listed.iter().map(|(name, topic)| (name.as_str(), topic.is_ok())).collect::<Vec<_>>(),
        [("orders", false), ("other", true)]
    );
}

#[test]
fn settings_of_another_topic_and_a_missing_log_are_corruption() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let made = topic(&store, "orders").unwrap();
    topic(&store, "other").unwrap();
    let path = |name| store.layout().topic_settings(name).unwrap();
    let good = read(&machine, &path("other"));
    overwrite(&machine, &path("other"), &read(&machine, &path("orders")));
    assert!(matches!(topic(&store, "other"), Err(Error::Corrupt { .. })));
    overwrite(&machine, &path("other"), &good);
    let log = store.log_dir(&made).unwrap();
    machine.unlink(&log.join(names::segment(0))).unwrap();
    machine.remove_dir(&log).unwrap();
    let error = topic(&store, "orders").unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path, .. } if *path == log), "{error}");
    topic(&store, "other").unwrap();
}

#[test]
fn bad_topic_names_are_refused_before_anything_is_made() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let long = "x".repeat(250);
    let before = machine.events();
    for bad in ["", ".", "..", "../x", "a/b", "/etc", "a\0", "a b", "ä", "a@b", "a\n", &long] {
        for result in [topic(&store, bad).map(drop), store.delete_topic(bad)] {
            assert!(matches!(result, Err(Error::BadName { .. })), "{bad:?}");
        }
    }
    assert_eq!(machine.events(), before);
    let longest = "x".repeat(249);
    for good in [&longest[..], "...", "topic.json", "a.tmp", "-"] {
        topic(&store, good).unwrap();
        assert_eq!(topic(&open(&machine).unwrap(), good).unwrap().name, good);
    }
    assert_tidy(&machine);
}

#[test]
fn other_settings_than_the_stored_ones_are_refused_by_name() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let asked = TopicOptions { partitions: Some(3), ..TopicOptions::default() };
    let made = store.open_topic("orders", &asked).unwrap();
    assert_eq!(store.open_topic("orders", &asked).unwrap(), made);
    assert_eq!(topic(&store, "orders").unwrap(), made);
    let other = TopicOptions { partitions: Some(4), ..TopicOptions::default() };
    let error = store.open_topic("orders", &other).unwrap_err().to_string();
    assert!(error.contains("partitions = 3, not 4"), "{error}");
    let options = StoreOptions { write_mode: Some(WriteMode::Pwrite), ..StoreOptions::default() };
    let error = open_with(&machine, &options).unwrap_err();
    assert!(matches!(error, Error::SettingsMismatch { setting: "write_mode", .. }), "{error}");
    let shared = TopicOptions { log: Some("orders".into()), ..TopicOptions::default() };
    assert!(matches!(store.open_topic("more", &shared), Err(Error::Invalid { .. })));
}

#[test]
fn the_file_system_decides_how_a_store_is_written_to() {
    let opened = |kind: Filesystem, options: &StoreOptions| {
        let machine = machine().on(kind);
        open_with(&machine, options).map(|store| store.settings().write_mode)
    };
    let plain = StoreOptions::default();
    let mapped = StoreOptions { write_mode: Some(WriteMode::Mapped), ..plain.clone() };
    let forced = StoreOptions { force_filesystem: true, ..plain.clone() };
    let forced_mapped = StoreOptions { force_filesystem: true, ..mapped.clone() };
    assert_eq!(opened(Filesystem::Promises("p"), &plain).unwrap(), WriteMode::Mapped);
    for kind in [Filesystem::CopyOnWrite("c"), Filesystem::Unknown(5)] {
        assert_eq!(opened(kind.clone(), &plain).unwrap(), WriteMode::Pwrite);
        assert!(matches!(opened(kind.clone(), &mapped), Err(Error::Filesystem { .. })));
        assert_eq!(opened(kind, &forced_mapped).unwrap(), WriteMode::Mapped);
    }
    assert!(matches!(opened(Filesystem::Remote("nfs"), &plain), Err(Error::Filesystem { .. })));
    assert_eq!(opened(Filesystem::Remote("nfs"), &forced).unwrap(), WriteMode::Pwrite);
    // A store that moved: refused for writing where it could crash, and everywhere on a network.
    let moved = machine();
    open(&moved).unwrap();
    let moved = moved.on(Filesystem::CopyOnWrite("c"));
    assert!(matches!(open(&moved), Err(Error::Filesystem { .. })));
    open_with(&moved, &StoreOptions::reading()).unwrap();
    let moved = moved.on(Filesystem::Remote("nfs"));
    assert!(matches!(open_with(&moved, &StoreOptions::reading()), Err(Error::Filesystem { .. })));
}

#[test]
fn a_mode_that_the_umask_takes_from_is_refused() {
    // The memory twin's umask is 0o022.
    let machine = machine();
    let asking = |mode| StoreOptions { mode, ..StoreOptions::default() };
    let error = open_with(&machine, &asking(0o770)).unwrap_err();
    assert!(matches!(&error, Error::Invalid { what } if what.contains("0o750")), "{error}");
    let store = open_with(&machine, &asking(0o750)).unwrap();
    assert_eq!(store.modes(), Modes { directory: 0o750, file: 0o640, lock: 0o600 });
    let mode = |path: &Path| machine.stat(path).unwrap().mode;
    topic(&store, "orders").unwrap();
    let layout = store.layout();
    for path in [layout.claim(), layout.presence(), layout.slot(0)] {
        assert_eq!(mode(&path), 0o600, "{path:?}");
    }
    for path in [layout.settings(), layout.wake(), layout.topic_settings("orders").unwrap()] {
        assert_eq!(mode(&path), 0o640, "{path:?}");
    }
}

#[test]
fn deleting_a_topic_removes_its_files_and_no_others() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let (gone, kept) = (topic(&store, "gone").unwrap(), topic(&store, "kept").unwrap());
    let log = store.log_dir(&gone).unwrap();
    machine.create_dir(&log.join("quarantine"), 0o700).unwrap();
    for ours in ["control", "lock", "next.3.tmp", "quarantine/00000000000000000004.log.1"] {
        machine.open(&log.join(ours), Open::CreateNew(0o600)).unwrap();
    }
    store.delete_topic("gone").unwrap();
    assert!(matches!(store.delete_topic("gone"), Err(Error::NoSuchTopic { .. })));
    assert!(matches!(store.topic_settings("gone"), Err(Error::NoSuchTopic { .. })));
    assert_eq!(store.topic_settings("kept").unwrap(), kept);
    assert_tidy(&machine);
    assert_ne!(topic(&store, "gone").unwrap().generation, gone.generation);
}

#[test]
fn sweeping_takes_leftovers_and_nothing_that_is_strange_or_may_be_needed() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let kept = topic(&store, "kept").unwrap();
    let orphan = topic(&store, "orphan").unwrap();
    let layout = store.layout().clone();
    let path = layout.topic_settings("orphan").unwrap();
    machine.rename_over(&path, &deleted(&path)).unwrap();
    let file = |path: &Path| drop(machine.open(path, Open::CreateNew(0o600)).unwrap());
    let strange = [
        layout.logs().join("notes"),
        layout.logs().join("x@123.tmp"),
        layout.log(&kept).unwrap().join("notes"),
        layout.topics().join("a b"),
        layout.root().join("README"),
    ];
    strange.iter().for_each(|path| file(path));
    let unfinished = temporary(&layout.logs().join(names::log_dir("x", &[1; 16])));
    machine.create_dir(&unfinished, 0o700).unwrap();
    file(&unfinished.join(names::segment(0)));
    file(&temporary(&layout.settings()));
    file(&temporary(&layout.topic_settings("kept").unwrap()));
    drop(store);

    // As long as one topic cannot be read, no finished log goes: it might be that one's.
    let kept_json = layout.topic_settings("kept").unwrap();
    let good = read(&machine, &kept_json);
    overwrite(&machine, &kept_json, b"");
    drop(open(&machine).unwrap());
    assert!(machine.stat(&layout.log(&orphan).unwrap()).is_ok());
    assert!(machine.stat(&unfinished).is_err());
    overwrite(&machine, &kept_json, &good);

    let store = open(&machine).unwrap();
    assert!(machine.stat(&layout.log(&orphan).unwrap()).is_err());
    assert!(machine.stat(&temporary(&layout.settings())).is_err());
    assert_eq!(list(&machine, "topics"), ["a b", "kept"]);
    assert_eq!(topic(&store, "kept").unwrap(), kept);
    for path in &strange {
        assert!(machine.stat(path).is_ok(), "{path:?}");
    }
}

#[test]
fn nobody_sweeps_while_others_are_there() {
    let machine = machine();
    let _other = open(&machine.process()).unwrap();
    let store = open(&machine).unwrap();
    let unfinished = temporary(&store.layout().logs().join(names::log_dir("x", &[1; 16])));
    machine.create_dir(&unfinished, 0o700).unwrap();
    drop(store);
    let _store = open(&machine).unwrap();
    assert!(machine.stat(&unfinished).is_ok());
}

/// What users do first, and its reverse.
fn workload(storage: Arc<dyn Storage>) -> Result<()> {
    let store = Store::open_on(storage, ROOT, &impatient())?;
    topic(&store, "orders")?;
    topic(&store, "other")?;
    store.delete_topic("other")
}

/// The next one who comes finds a store that works, and tidies up.
fn assert_works(storage: &MemoryStorage, story: &str) {
    let store = open(storage).unwrap_or_else(|error| panic!("{story}: {error}"));
    let before = store.topics().unwrap();
    for (name, settings) in before {
        let settings = settings.unwrap_or_else(|error| panic!("{story}: {name}: {error}"));
        let segment = store.log_dir(&settings).unwrap().join(names::segment(0));
        assert!(storage.stat(&segment).is_ok(), "{story}: {name} has no log");
    }
    topic(&store, "orders").unwrap_or_else(|error| panic!("{story}: {error}"));
    assert_tidy(storage);
}

#[test]
fn creation_interrupted_by_an_error_at_any_call_is_gone_on_with() {
    let whole = FaultyStorage::over_memory(machine());
    workload(Arc::new(whole.clone())).unwrap();
    for (how, errno) in
        [(How::Errno(libc::EIO), libc::EIO), (How::HalfWritten(libc::ENOSPC), libc::ENOSPC)]
    {
        for k in 1..=whole.total() {
            let machine = machine();
            let faulty = FaultyStorage::over_memory(machine.clone());
            faulty.plan(Fault::at(k, how));
            let story = format!("error {errno} at call {k}");
            match workload(Arc::new(faulty.clone())) {
                Ok(()) => {}
                Err(error) => assert!(error.to_string().contains('/'), "{story}, no path: {error}"),
            }
            assert_works(&machine, &story);
        }
    }
}

#[test]
fn creation_interrupted_by_death_at_any_call_is_gone_on_with() {
    let whole = FaultyStorage::over_memory(machine());
    workload(Arc::new(whole.clone())).unwrap();
    for k in 1..=whole.total() {
        let machine = machine();
        let victim = machine.process();
        let faulty = FaultyStorage::over_memory(victim.clone());
        faulty.plan(Fault::at(k, How::Errno(libc::EIO)).forever());
        let _ = workload(Arc::new(faulty));
        victim.kill();
        assert_works(&machine, &format!("dead from call {k} on"));
    }
}

#[test]
fn creation_interrupted_by_a_power_cut_anywhere_leaves_whole_topics_only() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let orders = topic(&store, "orders").unwrap();
    let created = machine.events();
    topic(&store, "other").unwrap();
    store.delete_topic("other").unwrap();
    let deleted = machine.events();
    let journal = machine.journal();
    let mut images = 0;
    for crash in journal.crashes() {
        images += crash
            .explore(64, 11, |selection, image| {
                let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
                assert_works(&image, &story);
                let store = open(&image).unwrap();
                let found = topic(&store, "orders").unwrap();
                // What was acknowledged is there, and what was deleted is not.
                assert!(crash.time() < created || found == orders, "{story}");
                assert!(crash.time() < deleted || store.topics().unwrap().len() == 1, "{story}");
            })
            .images;
    }
    assert!(images > 500, "{images}");
}

#[test]
fn locks_of_a_store_are_gone_with_its_last_handle() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let member = store.membership().unwrap();
    let layout = store.layout().clone();
    let free = |path: &Path| {
        let file = machine.open(path, Open::ReadWrite).unwrap();
        file.try_lock(LockKind::Exclusive).unwrap()
    };
    drop(store);
    assert!(!free(&layout.slot(0)) && !free(&layout.presence()));
    drop(member);
    assert!(free(&layout.slot(0)) && free(&layout.presence()) && free(&layout.claim()));
}
