//! Names in directories: what a power cut may leave of them.

use super::*;

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
        "a file's sync does not cover its name"
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
