//! One suite that every storage must pass: the kernel's, the one in memory, and the faulty one
//! without faults.
//!
//! A difference between them would be one between tests and real use.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{File, Filesystem, LockKind, Map, MapAccess, OpenMode, Storage};
use falaj::internals::sync::{EVERYONE, SharedWord, Slept};
use falaj_twin::faulty::FaultyStorage;
use falaj_twin::memory::MemoryStorage;

const PAGE: u64 = 4096;

/// Run each test on every storage.
macro_rules! on_every_storage {
    ($($claim:ident)*) => {
        mod real {
            $(#[test] fn $claim() {
                let directory = tempfile::tempdir().unwrap();
                super::$claim(&super::RealStorage::new(), directory.path());
            })*
        }
        mod memory {
            $(#[test] fn $claim() {
                super::$claim(&super::MemoryStorage::new(), std::path::Path::new("/"));
            })*
        }
        mod faulty_without_faults {
            $(#[test] fn $claim() {
                let faulty = super::FaultyStorage::over_memory(super::MemoryStorage::new());
                super::$claim(&faulty, std::path::Path::new("/"));
            })*
        }
        mod faulty_over_real {
            $(#[test] fn $claim() {
                let directory = tempfile::tempdir().unwrap();
                let real = std::sync::Arc::new(super::RealStorage::new());
                super::$claim(&super::FaultyStorage::new(real), directory.path());
            })*
        }
    };
}

on_every_storage! {
    creating_refuses_what_exists
    opening_refuses_what_is_missing_or_a_directory
    rename_new_refuses_a_target_that_exists
    rename_over_replaces_the_target
    a_directory_is_renamed_with_what_is_in_it
    a_directory_cannot_be_moved_into_itself
    a_full_directory_is_neither_removed_nor_replaced
    names_are_listed_sorted
    identity_stays_with_the_file_not_with_the_name
    a_file_has_as_many_links_as_names_and_none_once_it_was_removed_or_renamed_over
    permission_bits_are_as_asked_for_whatever_the_umask
    writing_beyond_the_end_makes_the_file_longer
    reading_stops_at_the_end
    allocating_gives_length_and_zeros_and_takes_nothing_away
    a_punched_range_reads_zero_and_the_length_stays
    next_data_skips_holes
    a_file_opened_for_reading_refuses_stores
    a_map_may_reach_beyond_the_end
    an_empty_map_is_refused
    stores_into_a_map_are_seen_by_reads_and_other_maps
    words_are_changed_at_once_for_all_maps
    stores_through_pwrite_are_seen_by_maps_and_make_the_file_longer
    a_map_that_writes_through_refuses_compare_and_swap
    an_unlinked_file_stays_readable_through_its_map
    a_closed_file_stays_readable_through_its_map
    a_sleeper_on_one_map_is_woken_through_another
    an_exclusive_lock_excludes_other_opens_of_the_file
    shared_locks_go_together_and_keep_writers_out
    a_lock_ends_with_unlock_with_close_and_with_the_last_handle
    a_refused_change_of_kind_gives_the_old_lock_up
    a_map_keeps_the_lock_of_its_open_file
    a_closed_file_answers_every_call_with_ebadf
    syncs_of_files_and_directories_succeed
    the_kind_of_file_system_is_told
}

fn create(storage: &dyn Storage, path: &Path) -> Arc<dyn File> {
    storage.open(path, OpenMode::CreateNew(0o600)).unwrap()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.expect_err("this must be refused").raw_os_error().expect("the kernel's error number")
}

fn bytes(file: &dyn File, position: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let read = file.read_at(&mut bytes, position).unwrap();
    bytes.truncate(read);
    bytes
}

fn mapped(map: &Map, position: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    map.copy(position, &mut bytes);
    bytes
}

fn creating_refuses_what_exists(storage: &dyn Storage, base: &Path) {
    let path = base.join("a");
    create(storage, &path).write_at(b"first", 0).unwrap();
    assert_eq!(errno(storage.open(&path, OpenMode::CreateNew(0o600))), libc::EEXIST);
    let file = storage.open(&path, OpenMode::ReadWrite).unwrap();
    assert_eq!(bytes(&*file, 0, 9), b"first");
    storage.create_dir(&base.join("d"), 0o700).unwrap();
    assert_eq!(errno(storage.create_dir(&base.join("d"), 0o700)), libc::EEXIST);
    assert_eq!(errno(storage.create_dir(&path, 0o700)), libc::EEXIST);
    assert_eq!(errno(storage.open(&base.join("d"), OpenMode::CreateNew(0o600))), libc::EEXIST);
}

fn opening_refuses_what_is_missing_or_a_directory(storage: &dyn Storage, base: &Path) {
    let missing = storage.open(&base.join("none"), OpenMode::Read).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(
        errno(storage.open(&base.join("no/file"), OpenMode::CreateNew(0o600))),
        libc::ENOENT
    );
    storage.create_dir(&base.join("d"), 0o700).unwrap();
    assert_eq!(errno(storage.open(&base.join("d"), OpenMode::Read)), libc::EISDIR);
    assert_eq!(errno(storage.open(&base.join("d"), OpenMode::ReadWrite)), libc::EISDIR);
    create(storage, &base.join("f"));
    assert_eq!(errno(storage.open(&base.join("f/x"), OpenMode::Read)), libc::ENOTDIR);
    assert_eq!(errno(storage.stat(&base.join("none"))), libc::ENOENT);
    assert_eq!(errno(storage.list(&base.join("none"))), libc::ENOENT);
    assert_eq!(errno(storage.list(&base.join("f"))), libc::ENOTDIR);
    assert_eq!(errno(storage.sync_dir(&base.join("f"))), libc::ENOTDIR);
    assert_eq!(errno(storage.unlink(&base.join("none"))), libc::ENOENT);
    assert_eq!(errno(storage.remove_dir(&base.join("f"))), libc::ENOTDIR);
    assert_eq!(errno(storage.unlink(&base.join("d"))), libc::EISDIR);
}

fn rename_new_refuses_a_target_that_exists(storage: &dyn Storage, base: &Path) {
    let (from, to) = (base.join("from"), base.join("to"));
    create(storage, &from).write_at(b"from", 0).unwrap();
    create(storage, &to).write_at(b"to", 0).unwrap();
    let refused = storage.rename_new(&from, &to).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(storage.list(base).unwrap(), ["from", "to"]);
    assert_eq!(bytes(&*storage.open(&to, OpenMode::Read).unwrap(), 0, 9), b"to");
    storage.rename_new(&from, &base.join("other")).unwrap();
    assert_eq!(storage.list(base).unwrap(), ["other", "to"]);
    assert_eq!(errno(storage.rename_new(&from, &base.join("x"))), libc::ENOENT);
}

fn rename_over_replaces_the_target(storage: &dyn Storage, base: &Path) {
    let (from, to) = (base.join("from"), base.join("to"));
    create(storage, &from).write_at(b"new", 0).unwrap();
    let old = create(storage, &to);
    old.write_at(b"old", 0).unwrap();
    storage.rename_over(&from, &to).unwrap();
    assert_eq!(storage.list(base).unwrap(), ["to"]);
    assert_eq!(bytes(&*storage.open(&to, OpenMode::Read).unwrap(), 0, 9), b"new");
    assert_eq!(bytes(&*old, 0, 9), b"old", "an open handle must keep the replaced file");
    storage.create_dir(&base.join("d"), 0o700).unwrap();
    assert_eq!(errno(storage.rename_over(&to, &base.join("d"))), libc::EISDIR);
    assert_eq!(errno(storage.rename_over(&base.join("d"), &to)), libc::ENOTDIR);
    assert_eq!(errno(storage.rename_over(&base.join("none"), &to)), libc::ENOENT);
}

fn a_directory_is_renamed_with_what_is_in_it(storage: &dyn Storage, base: &Path) {
    storage.create_dir(&base.join("tmp"), 0o700).unwrap();
    create(storage, &base.join("tmp/f")).write_at(b"x", 0).unwrap();
    storage.rename_new(&base.join("tmp"), &base.join("log")).unwrap();
    assert_eq!(storage.list(base).unwrap(), ["log"]);
    assert_eq!(bytes(&*storage.open(&base.join("log/f"), OpenMode::Read).unwrap(), 0, 9), b"x");
}

fn a_directory_cannot_be_moved_into_itself(storage: &dyn Storage, base: &Path) {
    storage.create_dir(&base.join("d"), 0o700).unwrap();
    let into = storage.rename_over(&base.join("d"), &base.join("d/e"));
    assert_eq!(errno(into), libc::EINVAL);
}

fn a_full_directory_is_neither_removed_nor_replaced(storage: &dyn Storage, base: &Path) {
    for name in ["d", "e"] {
        storage.create_dir(&base.join(name), 0o700).unwrap();
    }
    create(storage, &base.join("d/f"));
    assert_eq!(errno(storage.remove_dir(&base.join("d"))), libc::ENOTEMPTY);
    assert_eq!(errno(storage.rename_over(&base.join("e"), &base.join("d"))), libc::ENOTEMPTY);
    storage.rename_over(&base.join("d"), &base.join("e")).unwrap();
    storage.unlink(&base.join("e/f")).unwrap();
    storage.remove_dir(&base.join("e")).unwrap();
    assert!(storage.list(base).unwrap().is_empty());
}

fn names_are_listed_sorted(storage: &dyn Storage, base: &Path) {
    for name in ["b", "00000000000000000010.log", "a", "00000000000000000002.log"] {
        create(storage, &base.join(name));
    }
    storage.create_dir(&base.join("aa"), 0o700).unwrap();
    let sorted = ["00000000000000000002.log", "00000000000000000010.log", "a", "aa", "b"];
    assert_eq!(storage.list(base).unwrap(), sorted);
}

fn identity_stays_with_the_file_not_with_the_name(storage: &dyn Storage, base: &Path) {
    let (path, moved) = (base.join("a"), base.join("b"));
    let file = create(storage, &path);
    let told = file.stat().unwrap();
    let identity = |stat: falaj::internals::storage::Stat| (stat.device, stat.inode);
    assert_eq!(identity(storage.stat(&path).unwrap()), identity(told));
    assert!(!told.is_dir && storage.stat(base).unwrap().is_dir);
    storage.rename_new(&path, &moved).unwrap();
    assert_eq!(identity(storage.stat(&moved).unwrap()), identity(told));
    let replaced = create(storage, &path).stat().unwrap();
    assert_ne!(identity(replaced), identity(told));
    assert_eq!(replaced.device, told.device);
}

fn permission_bits_are_as_asked_for_whatever_the_umask(storage: &dyn Storage, base: &Path) {
    for mode in [0o600, 0o660, 0o666] {
        let (file, directory) = (base.join(format!("f{mode:o}")), base.join(format!("d{mode:o}")));
        storage.open(&file, OpenMode::CreateNew(mode)).unwrap();
        assert_eq!(storage.stat(&file).unwrap().mode, mode);
        storage.create_dir(&directory, mode | 0o111).unwrap();
        assert_eq!(storage.stat(&directory).unwrap().mode, mode | 0o111);
    }
}

fn writing_beyond_the_end_makes_the_file_longer(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.write_at(b"end", 10_000).unwrap();
    assert_eq!(file.stat().unwrap().len, 10_003);
    assert_eq!(bytes(&*file, 9_999, 9), b"\0end");
    file.write_at(b"", 90_000).unwrap();
    assert_eq!(file.stat().unwrap().len, 10_003, "an empty write must not move the end");
}

fn reading_stops_at_the_end(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.write_at(b"0123456789", 0).unwrap();
    assert_eq!(bytes(&*file, 4, 100), b"456789");
    assert_eq!(bytes(&*file, 3, 2), b"34");
    assert_eq!(bytes(&*file, 10, 1), b"");
    assert_eq!(bytes(&*file, 1 << 40, 1), b"");
}

fn allocating_gives_length_and_zeros_and_takes_nothing_away(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.write_at(b"kept", 0).unwrap();
    file.allocate(16 * PAGE).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!(stat.len, 16 * PAGE);
    assert!(stat.allocated >= 16 * PAGE, "{stat:?}");
    assert_eq!(bytes(&*file, 0, 6), b"kept\0\0");
    assert_eq!(bytes(&*file, 15 * PAGE, PAGE as usize), vec![0; PAGE as usize]);
    file.allocate(PAGE).unwrap();
    file.allocate(0).unwrap();
    assert_eq!(file.stat().unwrap().len, 16 * PAGE);
}

fn a_punched_range_reads_zero_and_the_length_stays(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(8 * PAGE).unwrap();
    file.write_at(&vec![7; 8 * PAGE as usize], 0).unwrap();
    let map = file.map(8 * PAGE, MapAccess::Read).unwrap();
    let before = file.stat().unwrap();
    file.punch(PAGE + 100, 4 * PAGE).unwrap();
    let after = file.stat().unwrap();
    assert_eq!(after.len, 8 * PAGE);
    assert!(after.allocated < before.allocated, "{before:?} {after:?}");
    for part in [bytes(&*file, 0, 8 * PAGE as usize), mapped(&map, 0, 8 * PAGE as usize)] {
        let zeros = PAGE as usize + 100..5 * PAGE as usize + 100;
        assert!(part[zeros.clone()].iter().all(|byte| *byte == 0));
        assert!(part[..zeros.start].iter().chain(&part[zeros.end..]).all(|byte| *byte == 7));
    }
    file.punch(0, 0).unwrap();
    assert_eq!(bytes(&*file, 0, 1), [7]);
}

fn next_data_skips_holes(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    assert_eq!(file.next_data(0).unwrap(), None, "an empty file has no data");
    file.write_at(b"x", 20 * PAGE).unwrap();
    let found = file.next_data(0).unwrap().unwrap();
    assert!(found > 0 && found <= 20 * PAGE, "{found}");
    assert_eq!(file.next_data(20 * PAGE).unwrap(), Some(20 * PAGE));
    file.punch(16 * PAGE, 5 * PAGE).unwrap();
    assert_eq!(file.next_data(0).unwrap(), None);
    file.write_at(b"x", 0).unwrap();
    assert_eq!(file.next_data(0).unwrap(), Some(0));
    assert_eq!(file.next_data(5).unwrap(), Some(5), "a position with data must be returned");
    assert_eq!(file.next_data(1 << 40).unwrap(), None);
}

fn a_file_opened_for_reading_refuses_stores(storage: &dyn Storage, base: &Path) {
    create(storage, &base.join("f")).allocate(PAGE).unwrap();
    let file = storage.open(&base.join("f"), OpenMode::Read).unwrap();
    assert_eq!(errno(file.write_at(b"x", 0)), libc::EBADF);
    assert_eq!(errno(file.allocate(PAGE)), libc::EBADF);
    assert_eq!(errno(file.punch(0, PAGE)), libc::EBADF);
    assert_eq!(errno(file.map(PAGE, MapAccess::Write)), libc::EACCES);
    assert_eq!(errno(file.map(PAGE, MapAccess::WriteThrough)), libc::EACCES);
    let map = file.map(PAGE, MapAccess::Read).unwrap();
    assert!(!map.writable());
    let store = std::panic::AssertUnwindSafe(|| map.store(0, 1));
    assert!(std::panic::catch_unwind(store).is_err(), "a store into a read-only map panics");
    assert!(file.try_lock(LockKind::Exclusive).unwrap(), "flock allows this");
}

fn a_map_may_reach_beyond_the_end(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(PAGE).unwrap();
    let map = file.map(64 * PAGE, MapAccess::Write).unwrap();
    assert_eq!(map.len(), 64 * PAGE);
    file.allocate(32 * PAGE).unwrap();
    map.write(31 * PAGE, b"grown").unwrap();
    assert_eq!(bytes(&*file, 31 * PAGE, 5), b"grown");
    assert_eq!(mapped(&map, 31 * PAGE, 5), b"grown");
}

fn an_empty_map_is_refused(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    assert_eq!(errno(file.map(0, MapAccess::Read)), libc::EINVAL);
}

fn stores_into_a_map_are_seen_by_reads_and_other_maps(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(4 * PAGE).unwrap();
    let map = file.map(4 * PAGE, MapAccess::Write).unwrap();
    map.populate(0, 4 * PAGE);
    let other = storage.open(&base.join("f"), OpenMode::Read).unwrap();
    let other_map = other.map(4 * PAGE, MapAccess::Read).unwrap();
    map.write(1_001, b"seven b").unwrap();
    map.store(2_048, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(bytes(&*other, 1_000, 9), b"\0seven b\0");
    assert_eq!(mapped(&other_map, 1_000, 9), b"\0seven b\0");
    assert_eq!(other_map.load(2_048), 0x0102_0304_0506_0708);
    assert_eq!(bytes(&*file, 2_048, 8), [8, 7, 6, 5, 4, 3, 2, 1]);
    file.write_at(b"pwrite", 3_000).unwrap();
    assert_eq!(mapped(&map, 3_000, 6), b"pwrite");
}

fn words_are_changed_at_once_for_all_maps(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(PAGE).unwrap();
    let (one, two) =
        (file.map(PAGE, MapAccess::Write).unwrap(), file.map(PAGE, MapAccess::Write).unwrap());
    let (one, two) = (one.word(8), two.word(8));
    let (relaxed, acq) = (Ordering::Relaxed, Ordering::AcqRel);
    assert_eq!(one.compare_exchange(0, 5, acq, relaxed), Ok(0));
    assert_eq!(two.compare_exchange(0, 6, acq, relaxed), Err(5));
    assert_eq!(two.fetch_add(2, acq), 5);
    assert_eq!(one.swap(9, acq), 7);
    two.store(11, Ordering::Release);
    assert_eq!(one.load(Ordering::Acquire), 11);
    assert_eq!(bytes(&*file, 8, 8), 11u64.to_le_bytes());
}

fn stores_through_pwrite_are_seen_by_maps_and_make_the_file_longer(
    storage: &dyn Storage,
    base: &Path,
) {
    let file = create(storage, &base.join("f"));
    file.allocate(PAGE).unwrap();
    let map = file.map(4 * PAGE, MapAccess::WriteThrough).unwrap();
    assert!(map.writable());
    let reader = file.map(PAGE, MapAccess::Read).unwrap();
    map.write(17, b"through").unwrap();
    map.store(64, 42).unwrap();
    assert_eq!(mapped(&reader, 17, 7), b"through");
    assert_eq!((map.load(64), reader.load(64)), (42, 42));
    map.write(3 * PAGE, b"beyond").unwrap();
    assert_eq!(file.stat().unwrap().len, 3 * PAGE + 6);
    let outside = std::panic::AssertUnwindSafe(|| map.write(4 * PAGE - 1, b"xx"));
    assert!(std::panic::catch_unwind(outside).is_err(), "a store outside the map panics");
}

fn a_map_that_writes_through_refuses_compare_and_swap(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(PAGE).unwrap();
    let map = file.map(PAGE, MapAccess::WriteThrough).unwrap();
    let swap = std::panic::AssertUnwindSafe(|| map.word(0).swap(1, Ordering::SeqCst));
    assert!(std::panic::catch_unwind(swap).is_err());
    assert_eq!(map.load(0), 0);
}

fn a_file_has_as_many_links_as_names_and_none_once_it_was_removed_or_renamed_over(
    storage: &dyn Storage,
    base: &Path,
) {
    let [one, other, moved] = ["one", "other", "moved"].map(|name| base.join(name));
    let files = [&one, &other].map(|path| create(storage, path));
    let links = || files.each_ref().map(|file| file.stat().unwrap().links);
    assert_eq!(links(), [1, 1]);
    assert_eq!(storage.stat(&one).unwrap().links, 1);
    storage.rename_new(&one, &moved).unwrap();
    assert_eq!(links(), [1, 1]);
    storage.rename_over(&moved, &other).unwrap();
    assert_eq!(links(), [1, 0]);
    storage.unlink(&other).unwrap();
    create(storage, &other);
    assert_eq!(links(), [0, 0]);
}

fn an_unlinked_file_stays_readable_through_its_map(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.write_at(&[5; 100], 0).unwrap();
    let map = file.map(PAGE, MapAccess::Read).unwrap();
    storage.unlink(&base.join("f")).unwrap();
    assert!(storage.list(base).unwrap().is_empty());
    assert_eq!(bytes(&*file, 0, 100), [5; 100]);
    drop(file);
    create(storage, &base.join("f")).write_at(&[6; 100], 0).unwrap();
    assert_eq!(mapped(&map, 0, 100), [5; 100]);
}

fn a_closed_file_stays_readable_through_its_map(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(PAGE).unwrap();
    let map = file.map(PAGE, MapAccess::Write).unwrap();
    map.write(0, b"before").unwrap();
    file.close();
    map.write(6, b" after").unwrap();
    assert_eq!(mapped(&map, 0, 12), b"before after");
    let again = storage.open(&base.join("f"), OpenMode::Read).unwrap();
    assert_eq!(bytes(&*again, 0, 12), b"before after");
}

fn a_sleeper_on_one_map_is_woken_through_another(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(PAGE).unwrap();
    let reader = storage.open(&base.join("f"), OpenMode::Read).unwrap();
    let (map, sleeping) =
        (file.map(PAGE, MapAccess::Write).unwrap(), reader.map(PAGE, MapAccess::Read).unwrap());
    let changed = sleeping.word(0).sleep(1, EVERYONE, Duration::from_secs(60));
    assert_eq!(changed, Slept::Changed);
    let sleeper = std::thread::spawn(move || {
        while sleeping.load(0) == 0 {
            let slept = sleeping.word(0).sleep(0, EVERYONE, Duration::from_secs(60));
            assert_ne!(slept, Slept::TimedOut, "the wake was lost");
        }
    });
    // sleep: lets the sleeper fall asleep; a wake before that is seen as `Changed`
    std::thread::sleep(Duration::from_millis(20));
    map.word(0).fetch_add(1, Ordering::SeqCst);
    map.word(0).wake(u32::MAX, EVERYONE);
    sleeper.join().unwrap();
}

fn an_exclusive_lock_excludes_other_opens_of_the_file(storage: &dyn Storage, base: &Path) {
    let one = create(storage, &base.join("f"));
    let two = storage.open(&base.join("f"), OpenMode::ReadWrite).unwrap();
    assert!(one.try_lock(LockKind::Exclusive).unwrap());
    assert!(one.try_lock(LockKind::Exclusive).unwrap(), "the holder may lock again");
    assert!(!two.try_lock(LockKind::Exclusive).unwrap());
    assert!(!two.try_lock(LockKind::Shared).unwrap());
    two.unlock().unwrap();
    assert!(!two.try_lock(LockKind::Shared).unwrap(), "a handle must not release another's lock");
    let elsewhere = create(storage, &base.join("g"));
    assert!(elsewhere.try_lock(LockKind::Exclusive).unwrap(), "each file must have its own lock");
}

fn shared_locks_go_together_and_keep_writers_out(storage: &dyn Storage, base: &Path) {
    let one = create(storage, &base.join("f"));
    let two = storage.open(&base.join("f"), OpenMode::ReadWrite).unwrap();
    assert!(one.try_lock(LockKind::Shared).unwrap());
    assert!(two.try_lock(LockKind::Shared).unwrap());
    let three = storage.open(&base.join("f"), OpenMode::Read).unwrap();
    assert!(!three.try_lock(LockKind::Exclusive).unwrap());
    one.unlock().unwrap();
    assert!(!three.try_lock(LockKind::Exclusive).unwrap());
    assert!(two.try_lock(LockKind::Exclusive).unwrap(), "the only holder may change its kind");
    assert!(!one.try_lock(LockKind::Shared).unwrap());
}

fn a_lock_ends_with_unlock_with_close_and_with_the_last_handle(storage: &dyn Storage, base: &Path) {
    let open = || storage.open(&base.join("f"), OpenMode::ReadWrite).unwrap();
    drop(create(storage, &base.join("f")));
    let (holder, other) = (open(), open());
    assert!(holder.try_lock(LockKind::Exclusive).unwrap());
    holder.unlock().unwrap();
    assert!(other.try_lock(LockKind::Exclusive).unwrap());
    let kept = other.clone();
    other.close();
    assert!(holder.try_lock(LockKind::Exclusive).unwrap(), "an open handle must keep it");
    drop(kept);
    drop(holder);
    assert!(open().try_lock(LockKind::Exclusive).unwrap());
}

fn a_refused_change_of_kind_gives_the_old_lock_up(storage: &dyn Storage, base: &Path) {
    let one = create(storage, &base.join("f"));
    let two = storage.open(&base.join("f"), OpenMode::ReadWrite).unwrap();
    assert!(one.try_lock(LockKind::Shared).unwrap());
    assert!(two.try_lock(LockKind::Shared).unwrap());
    assert!(!one.try_lock(LockKind::Exclusive).unwrap());
    assert!(two.try_lock(LockKind::Exclusive).unwrap(), "no other handle may hold it");
}

fn a_map_keeps_the_lock_of_its_open_file(storage: &dyn Storage, base: &Path) {
    let holder = create(storage, &base.join("f"));
    holder.allocate(PAGE).unwrap();
    let other = storage.open(&base.join("f"), OpenMode::ReadWrite).unwrap();
    assert!(holder.try_lock(LockKind::Exclusive).unwrap());
    let map = holder.map(PAGE, MapAccess::Read).unwrap();
    holder.close();
    assert!(!other.try_lock(LockKind::Exclusive).unwrap(), "the map must keep the lock");
    drop(map);
    assert!(other.try_lock(LockKind::Exclusive).unwrap());
}

fn a_closed_file_answers_every_call_with_ebadf(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.allocate(PAGE).unwrap();
    let through = file.map(PAGE, MapAccess::WriteThrough).unwrap();
    file.close();
    file.close();
    assert_eq!(errno(file.stat()), libc::EBADF);
    assert_eq!(errno(file.read_at(&mut [0], 0)), libc::EBADF);
    assert_eq!(errno(file.write_at(&[0], 0)), libc::EBADF);
    assert_eq!(errno(file.allocate(PAGE)), libc::EBADF);
    assert_eq!(errno(file.punch(0, PAGE)), libc::EBADF);
    assert_eq!(errno(file.next_data(0)), libc::EBADF);
    assert_eq!(errno(file.sync_data()), libc::EBADF);
    assert_eq!(errno(file.sync_all()), libc::EBADF);
    assert_eq!(errno(file.map(PAGE, MapAccess::Read)), libc::EBADF);
    assert_eq!(errno(file.try_lock(LockKind::Shared)), libc::EBADF);
    assert_eq!(errno(file.unlock()), libc::EBADF);
    assert_eq!(errno(through.write(0, b"x")), libc::EBADF);
    assert_eq!(errno(through.store(0, 1)), libc::EBADF);
    assert!(!format!("{file:?}").is_empty());
}

fn syncs_of_files_and_directories_succeed(storage: &dyn Storage, base: &Path) {
    let file = create(storage, &base.join("f"));
    file.write_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    storage.sync_dir(base).unwrap();
    let reader = storage.open(&base.join("f"), OpenMode::Read).unwrap();
    reader.sync_data().unwrap();
    assert_eq!(errno(storage.sync_dir(&base.join("none"))), libc::ENOENT);
}

fn the_kind_of_file_system_is_told(storage: &dyn Storage, base: &Path) {
    let kind = storage.filesystem(base).unwrap();
    assert!(!matches!(kind, Filesystem::Remote(_)), "tests need a local disk: {kind:?}");
    assert_eq!(errno(storage.filesystem(&base.join("none"))), libc::ENOENT);
}
