//! What the memory twin leaves after a power cut, a kill and a restart: the rules that every crash
//! test of the engine stands on.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use falaj::storage::memory::{Choice, Crash, MemoryStorage, Undecided};
use falaj::storage::{Access, File, Filesystem, LockKind, Open, Storage};
use falaj::sync::SharedWord;

const SECTOR: u64 = 512;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn create(storage: &MemoryStorage, name: &str) -> Arc<dyn File> {
    storage.open(path(name), Open::CreateNew(0o600)).unwrap()
}

/// A file of that many bytes 'o', durable with its name.
fn durable(storage: &MemoryStorage, name: &str, len: u64) -> Arc<dyn File> {
    let file = create(storage, name);
    file.allocate(len).unwrap();
    file.write_at(&vec![b'o'; len as usize], 0).unwrap();
    file.sync_data().unwrap();
    storage.sync_dir(path("/")).unwrap();
    file
}

fn content(storage: &MemoryStorage, name: &str) -> Option<Vec<u8>> {
    let file = storage.open(path(name), Open::Read).ok()?;
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

fn now(storage: &MemoryStorage) -> Crash {
    storage.journal().crash_at(storage.events())
}

/// Everything that may be there after power is lost now, as seen by a closure.
fn possible<T: Ord>(storage: &MemoryStorage, see: impl Fn(&MemoryStorage) -> T) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    let explored = now(storage).explore(1 << 20, 1, |_, image| {
        seen.insert(see(&image));
    });
    assert!(explored.complete);
    seen
}

/// First bytes of some sectors of a file.
fn letters(storage: &MemoryStorage, name: &str, sectors: u64) -> String {
    let bytes = content(storage, name).unwrap();
    (0..sectors).map(|sector| char::from(bytes[(sector * SECTOR) as usize])).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(ToString::to_string).collect()
}

#[test]
fn an_unsynced_store_may_be_there_or_not() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 1024);
    assert_eq!(possible(&storage, |image| letters(image, "/f", 2)), set(&["oo"]));
    file.write_at(b"n", 0).unwrap();
    assert_eq!(possible(&storage, |image| letters(image, "/f", 2)), set(&["oo", "no"]));
}

#[test]
fn a_synced_store_is_on_every_image() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 1024);
    for sync in [File::sync_data, File::sync_all] {
        file.write_at(b"n", 0).unwrap();
        assert_eq!(now(&storage).combinations(), 2);
        sync(&*file).unwrap();
        assert_eq!(possible(&storage, |image| letters(image, "/f", 2)), set(&["no"]));
        file.write_at(b"o", 0).unwrap();
        sync(&*file).unwrap();
    }
}

#[test]
fn a_sync_makes_earlier_stores_sure_and_later_ones_not() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 1024);
    file.write_at(b"1", 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(b"2", 512).unwrap();
    assert_eq!(possible(&storage, |image| letters(image, "/f", 2)), set(&["1o", "12"]));
}

#[test]
fn a_sync_of_one_file_says_nothing_of_another() {
    let storage = MemoryStorage::new();
    let (one, two) = (durable(&storage, "/1", 512), durable(&storage, "/2", 512));
    one.write_at(b"n", 0).unwrap();
    two.write_at(b"n", 0).unwrap();
    two.sync_data().unwrap();
    assert_eq!(possible(&storage, |image| letters(image, "/1", 1)), set(&["o", "n"]));
    assert_eq!(possible(&storage, |image| letters(image, "/2", 1)), set(&["n"]));
}

#[test]
fn sectors_of_one_store_arrive_each_on_its_own() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 1536);
    file.write_at(&[b'n'; 1000], 500).unwrap();
    let seen = possible(&storage, |image| {
        let bytes = content(image, "/f").unwrap();
        [bytes[511], bytes[600], bytes[1100]].map(char::from).iter().collect::<String>()
    });
    let all = ["ooo", "oon", "ono", "onn", "noo", "non", "nno", "nnn"];
    assert_eq!(seen, set(&all));
}

#[test]
fn one_sector_is_never_torn() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 512);
    file.write_at(&[b'n'; 300], 100).unwrap();
    let mut new = vec![b'o'; 512];
    new[100..400].fill(b'n');
    let seen = possible(&storage, |image| content(image, "/f").unwrap());
    assert_eq!(seen, BTreeSet::from([vec![b'o'; 512], new]));
}

#[test]
fn a_sector_may_hold_any_version_since_its_sync() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 512);
    for version in ["1", "2", "3", "2"] {
        file.write_at(version.as_bytes(), 0).unwrap();
    }
    assert_eq!(possible(&storage, |image| letters(image, "/f", 1)), set(&["o", "1", "2", "3"]));
    let crash = now(&storage);
    assert_eq!((crash.choices()[0].arity, crash.choices()[0].latest), (4, 2));
    assert_eq!(letters(&crash.image(&crash.everything()), "/f", 1), "2");
}

#[test]
fn a_store_that_changes_nothing_leaves_no_choice() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 1024);
    file.write_at(b"oooo", 510).unwrap();
    assert_eq!(now(&storage).combinations(), 1);
}

#[test]
fn mapped_stores_and_words_are_pending_like_writes() {
    let storage = MemoryStorage::new();
    let file = create(&storage, "/f");
    file.allocate(8192).unwrap();
    file.sync_data().unwrap();
    storage.sync_dir(path("/")).unwrap();
    let map = file.map(8192, Access::Write).unwrap();
    map.write(0, b"bytes").unwrap();
    map.store(512, u64::from(b's')).unwrap();
    map.word(1024)
        .compare_exchange(0, u64::from(b'c'), Ordering::SeqCst, Ordering::SeqCst)
        .unwrap();
    map.word(1536).swap(u64::from(b'w'), Ordering::SeqCst);
    map.word(2048).fetch_add(u64::from(b'a'), Ordering::SeqCst);
    map.word(2560).store(u64::from(b't'), Ordering::SeqCst);
    assert_eq!(now(&storage).combinations(), 64);
    let crash = now(&storage);
    assert_eq!(letters(&crash.image(&crash.everything()), "/f", 6), "bscwat");
    assert_eq!(letters(&crash.image(&crash.nothing()), "/f", 6), "\0\0\0\0\0\0");
    file.sync_data().unwrap();
    assert_eq!(possible(&storage, |image| letters(image, "/f", 6)), set(&["bscwat"]));
}

#[test]
fn a_failed_compare_and_swap_is_no_event() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 4096);
    let map = file.map(4096, Access::Write).unwrap();
    let before = storage.events();
    map.word(0).compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst).unwrap_err();
    assert_eq!(storage.events(), before);
}

#[test]
fn a_length_that_was_not_synced_may_be_short_and_what_lay_beyond_is_lost() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 300);
    file.write_at(&[b'n'; 700], 300).unwrap();
    let lens = possible(&storage, |image| content(image, "/f").unwrap().len());
    assert_eq!(lens, BTreeSet::from([300, 1000]));
    now(&storage).explore(100, 0, |_, image| {
        let file = image.open(path("/f"), Open::ReadWrite).unwrap();
        if file.stat().unwrap().len == 300 {
            file.allocate(1000).unwrap();
            assert_eq!(content(&image, "/f").unwrap()[300..], [0; 700], "no old bytes come back");
        }
    });
}

#[test]
fn a_length_may_be_any_that_the_file_had_since_its_sync() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 4096);
    file.allocate(8192).unwrap();
    file.allocate(16384).unwrap();
    let seen = possible(&storage, |image| {
        let stat = image.stat(path("/f")).unwrap();
        (stat.len, stat.allocated)
    });
    assert_eq!(seen, BTreeSet::from([(4096, 4096), (8192, 8192), (16384, 16384)]));
    file.sync_data().unwrap();
    assert_eq!(possible(&storage, |image| image.stat(path("/f")).unwrap().len).len(), 1);
}

#[test]
fn a_punched_range_may_come_back_until_it_is_synced() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 8192);
    file.punch(4096, 4096).unwrap();
    let crash = now(&storage);
    assert_eq!(crash.choices().len(), 8);
    assert_eq!(letters(&crash.image(&crash.nothing()), "/f", 16), "o".repeat(16));
    file.sync_data().unwrap();
    let image = now(&storage).image(&[]);
    assert_eq!(letters(&image, "/f", 16), "o".repeat(8) + &"\0".repeat(8));
    let file = image.open(path("/f"), Open::Read).unwrap();
    assert_eq!((file.next_data(0).unwrap(), file.next_data(4096).unwrap()), (Some(0), None));
}

#[test]
fn a_created_name_may_vanish_until_its_directory_is_synced() {
    let storage = MemoryStorage::new();
    let file = create(&storage, "/f");
    file.write_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    let seen = possible(&storage, |image| content(image, "/f"));
    assert_eq!(
        seen,
        BTreeSet::from([None, Some(b"x".to_vec())]),
        "a file's sync is not its name's"
    );
    storage.sync_dir(path("/")).unwrap();
    assert_eq!(
        possible(&storage, |image| content(image, "/f")),
        BTreeSet::from([Some(b"x".into())])
    );
}

#[test]
fn a_created_file_that_was_never_synced_may_be_empty() {
    let storage = MemoryStorage::new();
    create(&storage, "/f").write_at(b"x", 0).unwrap();
    storage.sync_dir(path("/")).unwrap();
    let seen = possible(&storage, |image| content(image, "/f").unwrap());
    assert_eq!(seen, BTreeSet::from([vec![], b"x".to_vec(), vec![0]]));
}

#[test]
fn names_arrive_each_on_its_own() {
    let storage = MemoryStorage::new();
    for name in ["/a", "/b", "/c"] {
        create(&storage, name);
    }
    let seen = possible(&storage, |image| image.list(path("/")).unwrap().concat());
    assert_eq!(seen, set(&["", "a", "b", "c", "ab", "ac", "bc", "abc"]));
}

#[test]
fn a_rename_may_be_undone_but_never_loses_the_file() {
    let storage = MemoryStorage::new();
    durable(&storage, "/old", 1);
    storage.rename_new(path("/old"), path("/new")).unwrap();
    let seen = possible(&storage, |image| image.list(path("/")).unwrap().join(" "));
    assert_eq!(seen, set(&["old", "new"]));
    storage.sync_dir(path("/")).unwrap();
    assert_eq!(possible(&storage, |image| image.list(path("/")).unwrap().join(" ")), set(&["new"]));
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one_never_absent() {
    let storage = MemoryStorage::new();
    durable(&storage, "/f", 1);
    let new = create(&storage, "/tmp");
    new.write_at(b"n", 0).unwrap();
    new.sync_data().unwrap();
    storage.rename_over(path("/tmp"), path("/f")).unwrap();
    let seen = possible(&storage, |image| letters(image, "/f", 1));
    assert_eq!(seen, set(&["o", "n"]));
}

#[test]
fn a_rename_between_directories_is_whole_and_either_sync_makes_it_sure() {
    for synced in ["/", "/d"] {
        let storage = MemoryStorage::new();
        storage.create_dir(path("/d"), 0o700).unwrap();
        durable(&storage, "/f", 1);
        storage.rename_new(path("/f"), path("/d/g")).unwrap();
        let seen = possible(&storage, |image| {
            let names = [image.list(path("/")).unwrap(), image.list(path("/d")).unwrap()];
            names.concat().join(" ")
        });
        assert_eq!(seen, set(&["d f", "d g"]));
        storage.sync_dir(path(synced)).unwrap();
        assert_eq!(now(&storage).combinations(), 1);
        assert_eq!(letters(&now(&storage).image(&[]), "/d/g", 1), "o");
    }
}

#[test]
fn of_two_renames_any_may_be_missing_and_one_name_stays() {
    let storage = MemoryStorage::new();
    durable(&storage, "/a", 1);
    storage.rename_new(path("/a"), path("/b")).unwrap();
    storage.rename_new(path("/b"), path("/c")).unwrap();
    let seen = possible(&storage, |image| image.list(path("/")).unwrap().join(" "));
    assert_eq!(seen, set(&["a", "b", "c"]));
}

#[test]
fn a_file_created_and_renamed_may_arrive_under_either_name_or_not_at_all() {
    let storage = MemoryStorage::new();
    create(&storage, "/tmp");
    storage.rename_new(path("/tmp"), path("/f")).unwrap();
    let seen = possible(&storage, |image| image.list(path("/")).unwrap().join(" "));
    assert_eq!(seen, set(&["", "tmp", "f"]));
}

#[test]
fn a_removed_name_may_come_back_until_its_directory_is_synced() {
    let storage = MemoryStorage::new();
    durable(&storage, "/f", 1);
    storage.unlink(path("/f")).unwrap();
    let seen = possible(&storage, |image| content(image, "/f").is_some());
    assert_eq!(seen, BTreeSet::from([false, true]));
    storage.sync_dir(path("/")).unwrap();
    let crash = now(&storage);
    assert_eq!(crash.combinations(), 1);
    assert!(content(&crash.image(&[]), "/f").is_none());
}

#[test]
fn what_lies_in_a_directory_without_a_name_is_lost() {
    let storage = MemoryStorage::new();
    storage.create_dir(path("/d"), 0o700).unwrap();
    create(&storage, "/d/f").sync_all().unwrap();
    storage.sync_dir(path("/d")).unwrap();
    let seen = possible(&storage, |image| image.list(path("/d")).map(|names| names.len()).ok());
    assert_eq!(seen, BTreeSet::from([None, Some(1)]));
}

#[test]
fn an_unlinked_file_that_nothing_can_bring_back_leaves_no_choices() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 512);
    storage.unlink(path("/f")).unwrap();
    file.write_at(b"n", 0).unwrap();
    assert_eq!(now(&storage).combinations(), 4);
    storage.sync_dir(path("/")).unwrap();
    assert_eq!(now(&storage).combinations(), 1);
}

#[test]
fn a_failed_sync_leaves_sectors_pending_for_ever() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 1024);
    file.write_at(b"1", 0).unwrap();
    storage.drop_dirty(file.stat().unwrap().inode).unwrap();
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(libc::EIO));
    file.sync_data().expect("told once");
    file.write_at(b"2", 512).unwrap();
    file.sync_data().unwrap();
    assert_eq!(possible(&storage, |image| letters(image, "/f", 2)), set(&["o2", "12"]));
    file.write_at(b"3", 0).unwrap();
    assert_eq!(possible(&storage, |image| letters(image, "/f", 2)), set(&["o2", "12", "32"]));
    file.sync_data().unwrap();
    assert_eq!(possible(&storage, |image| letters(image, "/f", 2)), set(&["32"]), "stored anew");
    assert!(storage.drop_dirty(u64::MAX).is_err());
}

#[test]
fn what_is_on_an_image_is_durable_there_and_a_second_cut_starts_from_it() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 1024);
    file.write_at(b"1", 0).unwrap();
    let mut deep = BTreeSet::new();
    now(&storage).explore(10, 0, |_, image| {
        assert_eq!(image.events(), 0);
        assert_eq!(now(&image).combinations(), 1);
        let file = image.open(path("/f"), Open::ReadWrite).unwrap();
        file.write_at(b"2", 512).unwrap();
        deep.extend(possible(&image, |image| letters(image, "/f", 2)));
    });
    assert_eq!(deep, set(&["oo", "o2", "1o", "12"]));
}

#[test]
fn every_point_of_the_past_can_be_the_crash_point() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 512);
    let begin = storage.events();
    file.write_at(b"1", 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(b"2", 0).unwrap();
    let journal = storage.journal();
    assert_eq!((journal.len(), journal.is_empty()), (begin + 3, false));
    let sizes: Vec<_> = journal.crashes().skip(begin).map(|crash| crash.combinations()).collect();
    assert_eq!(sizes, [1, 2, 1, 2]);
    for (time, crash) in journal.crashes().enumerate() {
        let again = journal.crash_at(time);
        assert_eq!((crash.time(), again.time()), (time, time));
        assert_eq!(crash.combinations(), again.combinations());
        let (one, two) = (crash.everything(), again.everything());
        assert_eq!(crash.fingerprint(&one), again.fingerprint(&two));
    }
}

#[test]
fn death_of_all_processes_keeps_stores_pending_and_frees_locks() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 512);
    file.write_at(b"n", 0).unwrap();
    assert!(file.try_lock(LockKind::Exclusive).unwrap());
    let survivor = storage.survivor();
    assert_eq!(letters(&survivor, "/f", 1), "n");
    assert_eq!(possible(&survivor, |image| letters(image, "/f", 1)), set(&["o", "n"]));
    let again = survivor.open(path("/f"), Open::ReadWrite).unwrap();
    assert!(again.try_lock(LockKind::Exclusive).unwrap());
    again.write_at(b"s", 0).unwrap();
    assert_eq!(letters(&storage, "/f", 1), "n", "the two go apart");
    assert_ne!(again.stat().unwrap().device, file.stat().unwrap().device);
}

#[test]
fn a_kill_between_any_two_stores_can_be_looked_at() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 4096);
    let map = file.map(4096, Access::Write).unwrap();
    let begin = storage.events();
    map.write(0, b"body").unwrap();
    map.store(8, u64::from(b'h')).unwrap();
    let journal = storage.journal();
    let seen: Vec<_> = (begin..=journal.len())
        .map(|time| content(&journal.killed_at(time), "/f").unwrap()[..9].to_vec())
        .collect();
    assert_eq!(seen, [b"ooooooooo".to_vec(), b"bodyooooo".to_vec(), b"bodyooooh".to_vec()]);
}

#[test]
fn a_killed_process_loses_its_locks_and_stores_no_more() {
    let storage = MemoryStorage::new();
    let mine = durable(&storage, "/f", 4096);
    let other = storage.process();
    let its = other.open(path("/f"), Open::ReadWrite).unwrap();
    let map = its.map(4096, Access::Write).unwrap();
    assert!(its.try_lock(LockKind::Exclusive).unwrap());
    assert!(!mine.try_lock(LockKind::Exclusive).unwrap());
    other.kill();
    assert!(mine.try_lock(LockKind::Exclusive).unwrap());
    assert!(map.write(0, b"x").is_err() && its.write_at(b"x", 0).is_err());
    assert!(other.open(path("/f"), Open::Read).is_err());
    drop(its);
    assert_eq!(letters(&storage, "/f", 1), "o");
}

#[test]
fn an_orderly_restart_makes_everything_durable() {
    let storage = MemoryStorage::new();
    create(&storage, "/f").write_at(b"x", 0).unwrap();
    let restarted = storage.restart();
    assert_eq!((restarted.events(), now(&restarted).combinations()), (0, 1));
    assert_eq!(restarted.fingerprint(), storage.fingerprint());
    assert_eq!(now(&restarted).image(&[]).fingerprint(), storage.fingerprint());
}

#[test]
fn exploring_visits_each_combination_once_when_they_fit() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 2048);
    for sector in 0..4 {
        file.write_at(b"1", sector * SECTOR).unwrap();
    }
    file.write_at(b"2", 0).unwrap();
    let mut selections = BTreeSet::new();
    let explored = now(&storage).explore(24, 0, |selection, _| {
        assert!(selections.insert(selection.to_vec()), "{selection:?} comes twice");
    });
    assert_eq!((explored.images, explored.complete, selections.len()), (24, true, 24));
}

#[test]
fn a_sample_always_holds_all_none_and_each_choice_alone() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 40 * SECTOR);
    for sector in 0..40 {
        file.write_at(b"n", sector * SECTOR).unwrap();
    }
    file.write_at(b"m", 0).unwrap();
    file.write_at(b"o", 0).unwrap();
    let crash = now(&storage);
    let mut seen = Vec::new();
    let explored = crash.explore(500, 7, |selection, _| seen.push(selection.to_vec()));
    assert_eq!((explored.images, explored.complete), (500, false));
    let distinct: BTreeSet<_> = seen.iter().cloned().collect();
    assert!(distinct.len() > 400, "only {} of 500 differ", distinct.len());
    let (nothing, everything) = (crash.nothing(), crash.everything());
    assert!(distinct.contains(&nothing) && distinct.contains(&everything));
    for (one, choice) in crash.choices().iter().enumerate() {
        let with = |mut selection: Vec<usize>, picks: std::ops::Range<usize>| {
            picks.into_iter().any(|pick| {
                selection[one] = pick;
                distinct.contains(&selection)
            })
        };
        assert!(with(nothing.clone(), 1..choice.arity), "{one} alone");
        let other = if choice.latest == 0 { 1..choice.arity } else { 0..1 };
        assert!(with(everything.clone(), other), "all but {one}");
    }
    let mut again = Vec::new();
    crash.explore(500, 7, |selection, _| again.push(selection.to_vec()));
    assert_eq!(seen, again, "a seed can be replayed");
    let few = crash.explore(1, 7, |_, _| {});
    assert_eq!(few.images, 82);
}

#[test]
fn a_pinned_choice_is_not_varied() {
    let storage = MemoryStorage::new();
    let (file, control) = (durable(&storage, "/f", 512), durable(&storage, "/control", 1024));
    file.write_at(b"n", 0).unwrap();
    control.write_at(b"1", 0).unwrap();
    control.write_at(b"2", 512).unwrap();
    let derived = |choice: &Choice| (&*choice.path == "/control").then_some(choice.latest);
    let crash = now(&storage).pin(derived);
    assert_eq!((crash.choices().len(), crash.combinations()), (3, 2));
    let mut seen = BTreeSet::new();
    crash.explore(2, 0, |_, image| {
        seen.insert(letters(&image, "/f", 1) + &letters(&image, "/control", 2));
    });
    assert_eq!(seen, set(&["o12", "n12"]));
    let one = |choice: &Choice| (choice.what == Undecided::Sector(1)).then_some(0);
    let crash = now(&storage).pin(one);
    assert_eq!((crash.combinations(), crash.explore(4, 0, |_, _| {}).images), (4, 4));
    assert_eq!(crash.explore(1, 0, |selection, _| assert_eq!(selection[2], 0)).images, 6);
}

#[test]
fn a_selection_is_told_in_words() {
    let storage = MemoryStorage::new();
    durable(&storage, "/f", 512).write_at(b"n", 0).unwrap();
    create(&storage, "/g");
    let crash = now(&storage);
    let words = crash.describe(&crash.nothing());
    assert!(words.contains("/f Sector(0)") && words.contains("create g"), "{words}");
    assert!(!crash.describe(&crash.everything()).contains("/f"));
}

#[test]
fn fingerprints_tell_names_lengths_and_bytes_apart() {
    let print = |fill: &dyn Fn(&MemoryStorage)| {
        let storage = MemoryStorage::new();
        fill(&storage);
        storage.fingerprint()
    };
    let write = |name: &'static str, bytes: &'static [u8], at: u64| {
        print(&move |storage: &MemoryStorage| create(storage, name).write_at(bytes, at).unwrap())
    };
    let different = BTreeSet::from([
        print(&|_| ()),
        print(&|storage| drop(create(storage, "/f"))),
        print(&|storage| drop(create(storage, "/g"))),
        print(&|storage| storage.create_dir(path("/f"), 0o700).unwrap()),
        print(&|storage| create(storage, "/f").allocate(10).unwrap()),
        write("/f", b"a", 0),
        write("/f", b"b", 0),
        write("/f", b"a", 1),
        write("/f", b"a", 512),
        write("/f", b"a\0", 0),
    ]);
    assert_eq!(different.len(), 10);
    assert_eq!(write("/f", b"a", 0), write("/f", b"a", 0));
}

#[test]
fn an_image_draws_other_random_numbers_than_the_machine_goes_on_to() {
    let draw = |storage: &MemoryStorage| [(); 50].map(|()| storage.random().unwrap());
    let storage = MemoryStorage::new().seeded(3);
    let again = MemoryStorage::new().seeded(3);
    let image = now(&storage).image(&[]);
    let deeper = now(&image).image(&[]);
    let drawn: BTreeSet<u64> =
        [draw(&storage), draw(&image), draw(&deeper)].concat().into_iter().collect();
    assert_eq!(drawn.len(), 150);
    assert_eq!(draw(&again), draw(&MemoryStorage::new().seeded(3)));
}

#[test]
fn the_clock_stands_still_until_set_and_goes_on_in_images() {
    let storage = MemoryStorage::new();
    assert_eq!(storage.now_us(), storage.now_us());
    storage.set_now_us(-5);
    let file = create(&storage, "/f");
    assert_eq!((storage.now_us(), file.stat().unwrap().modified_us), (-5, -5));
    storage.set_now_us(77);
    file.write_at(b"x", 0).unwrap();
    assert_eq!(file.stat().unwrap().modified_us, 77);
    assert_eq!(now(&storage).image(&now(&storage).everything()).now_us(), 77);
}

#[test]
fn settings_are_handed_on_to_images() {
    let kind = Filesystem::CopyOnWrite("btrfs");
    let storage = MemoryStorage::with_capacity(10_000).on(kind.clone());
    create(&storage, "/f");
    let image = storage.restart();
    assert_eq!(image.filesystem(path("/")).unwrap(), kind);
    let file = image.open(path("/f"), Open::ReadWrite).unwrap();
    file.allocate(12_288).unwrap();
    assert_eq!(file.allocate(12_289).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(file.write_at(b"xx", 12_287).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(file.map(16_384, Access::Read).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
}

#[test]
#[should_panic(expected = "into a hole")]
fn a_mapped_store_into_a_hole_panics() {
    let storage = MemoryStorage::new();
    let file = create(&storage, "/f");
    file.write_at(b"x", 100_000).unwrap();
    file.map(100_000, Access::Write).unwrap().write(50_000, b"x").unwrap();
}

#[test]
#[should_panic(expected = "beyond the end")]
fn a_mapped_store_beyond_the_end_panics() {
    let storage = MemoryStorage::new();
    let file = create(&storage, "/f");
    file.allocate(4096).unwrap();
    file.map(8192, Access::Write).unwrap().store(4096, 1).unwrap();
}

/// Numbers for the random history below.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// One random call, through whatever handles there are. Refusals are fine.
fn act(storage: &MemoryStorage, dice: &mut Dice) {
    const NAMES: [&str; 6] = ["/a", "/b", "/d/a", "/d/b", "/e", "/d"];
    let pick = |dice: &mut Dice| path(NAMES[dice.roll(6) as usize]);
    let (one, two) = (pick(dice), pick(dice));
    let position = dice.roll(40) * 100;
    let bytes = vec![dice.roll(3) as u8; 1 + dice.roll(1500) as usize];
    let file = storage.open(one, Open::ReadWrite);
    match (dice.roll(14), file) {
        (0, _) => drop(storage.open(one, Open::CreateNew(0o600))),
        (1, _) => drop(storage.create_dir(path("/d"), 0o700)),
        (2, _) => drop(storage.rename_new(one, two)),
        (3, _) => drop(storage.rename_over(one, two)),
        (4, _) => drop(storage.unlink(one)),
        (5, _) => drop(storage.remove_dir(path("/d"))),
        (6, _) => drop(storage.sync_dir(path(["/", "/d"][dice.roll(2) as usize]))),
        (7 | 8, Ok(file)) => file.write_at(&bytes, position).unwrap(),
        (9, Ok(file)) => {
            file.allocate(position + 2000).unwrap();
            file.map(8192, Access::Write).unwrap().write(position, &bytes[..1]).unwrap();
        }
        (10, Ok(file)) => file.punch(position, 3000).unwrap(),
        (11 | 12, Ok(file)) => drop(file.sync_data()),
        (13, Ok(file)) => storage.drop_dirty(file.stat().unwrap().inode).unwrap(),
        _ => {}
    }
}

#[test]
fn whatever_happened_everything_arrived_is_what_processes_saw() {
    let mut choices = 0;
    for seed in 0..400 {
        let (storage, mut dice) = (MemoryStorage::new(), Dice(seed));
        let mut prints = vec![(0, storage.fingerprint())];
        for _ in 0..60 {
            act(&storage, &mut dice);
            prints.push((storage.events(), storage.fingerprint()));
        }
        let journal = storage.journal();
        for (time, print) in prints {
            let crash = journal.crash_at(time);
            let all = crash.everything();
            choices += all.len();
            assert_eq!(crash.fingerprint(&all), print, "seed {seed}, event {time}");
            assert_eq!(journal.killed_at(time).fingerprint(), print, "seed {seed}, event {time}");
        }
    }
    assert!(choices > 10_000, "the histories leave {choices} choices: too few to mean anything");
}

#[test]
fn whatever_was_picked_a_file_has_one_name_and_the_fingerprint_is_the_images() {
    for seed in 0..200 {
        let (storage, mut dice) = (MemoryStorage::new(), Dice(seed));
        for _ in 0..60 {
            act(&storage, &mut dice);
        }
        let crash = now(&storage);
        crash.explore(50, seed, |selection, image| {
            assert_eq!(crash.fingerprint(selection), image.fingerprint(), "seed {seed}");
            let mut inodes = BTreeSet::new();
            for directory in ["/", "/d", "/e", "/a", "/b"] {
                for name in image.list(path(directory)).unwrap_or_default() {
                    let file = path(directory).join(name);
                    let told = image.stat(&file).unwrap();
                    assert!(inodes.insert(told.inode), "two names in seed {seed}");
                    if let Ok(file) = image.open(&file, Open::ReadWrite) {
                        file.map(4096, Access::Read).unwrap();
                    }
                }
            }
            assert_eq!(crash.fingerprint(selection), image.fingerprint(), "seed {seed}, loaded");
        });
    }
}

#[test]
fn after_syncing_everything_there_is_one_image() {
    for seed in 0..200 {
        let (storage, mut dice) = (MemoryStorage::new(), Dice(seed));
        for _ in 0..60 {
            act(&storage, &mut dice);
        }
        let storage = storage.restart();
        for _ in 0..3 {
            act(&storage, &mut dice);
        }
        for directory in ["/d", "/"] {
            for name in storage.list(path(directory)).unwrap_or_default() {
                let file = storage.open(&path(directory).join(name), Open::ReadWrite);
                // What a failed sync has lost is lost: store it anew.
                if let Ok(file) = file {
                    let mut bytes = vec![0; file.stat().unwrap().len as usize];
                    file.read_at(&mut bytes, 0).unwrap();
                    file.write_at(&bytes, 0).unwrap();
                    file.sync_data().or_else(|_| file.sync_data()).unwrap();
                }
            }
            drop(storage.sync_dir(path(directory)));
        }
        let crash = now(&storage);
        assert_eq!(crash.image(&crash.nothing()).fingerprint(), storage.fingerprint(), "{seed}");
    }
}
