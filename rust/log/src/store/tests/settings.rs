//! Settings: which directory is a store, and which settings and names are allowed.

use super::*;

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
        assert!(matches!(error, Error::StoreNotFound { .. } | Error::NotAStore { .. }), "{error}");
        let _ = machine.create_dir(Path::new(ROOT), 0o700);
    }
    let writer = open(&machine).unwrap();
    let before = machine.events();
    let reader = open_with(&machine, &StoreOptions::reading()).unwrap();
    let missing = topic(&reader, "orders").unwrap_err();
    assert!(matches!(missing, Error::UnknownTopic { .. }), "{missing}");
    assert!(matches!(reader.membership(), Err(Error::NotWritable { .. })));
    assert!(matches!(reader.delete_topic("orders"), Err(Error::NotWritable { .. })));
    assert_eq!(machine.events(), before);
    assert_eq!((reader.access(), writer.access()), (Access::Read, Access::Write));
}

#[test]
fn a_directory_of_somebody_else_is_left_as_it_is() {
    for strange in ["notes.txt", "falaj.json.bak", "falaj", "lost+found"] {
        let machine = machine();
        machine.create_dir(Path::new(ROOT), 0o700).unwrap();
        machine.open(&Path::new(ROOT).join(strange), OpenMode::CreateNew(0o600)).unwrap();
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
        let body = "{\"format\":3";
        let sum = crate::format::checksum::crc32(body.as_bytes());
        format!("{body},\"checksum\":\"{sum:08x}\"}}\n").into_bytes()
    };
    let paths = [store.layout().settings(), topic_json.clone()];
    for path in &paths {
        let good = read(&machine, path);
        let mut flipped = good.clone();
        flipped[20] ^= 4;
        type Expected = fn(&Error) -> bool;
        let cases: [(&[u8], Expected); 4] = [
            (&flipped, |error| matches!(error, Error::CorruptData { .. })),
            (&good[..good.len() / 2], |error| matches!(error, Error::CorruptData { .. })),
            (b"", |error| matches!(error, Error::CorruptData { .. })),
            (&newer, |error| matches!(error, Error::UnsupportedVersion { .. })),
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
    assert!(matches!(topic(&store, "other"), Err(Error::CorruptData { .. })));
    overwrite(&machine, &path("other"), &good);
    let log = store.log_dir(&made).unwrap();
    sweep::remove_log(&machine, &log).unwrap();
    let error = topic(&store, "orders").unwrap_err();
    assert!(matches!(&error, Error::CorruptData { path, .. } if *path == log), "{error}");
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
            assert!(matches!(result, Err(Error::InvalidName { .. })), "{bad:?}");
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
    let segment_bytes = Some(64 << 10);
    let asked = TopicOptions { partitions: Some(3), segment_bytes, ..TopicOptions::default() };
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
    let more = store.open_topic("more", &shared).unwrap();
    assert_eq!((more.log_generation, more.number), (made.log_generation, 3));
}

#[test]
fn the_file_system_decides_how_a_store_is_written_to() {
    let opened = |kind: Filesystem, options: &StoreOptions| {
        let machine = machine().on(kind);
        open_with(&machine, options).map(|store| store.settings().write_mode)
    };
    let plain = StoreOptions::default();
    let mapped = StoreOptions { write_mode: Some(WriteMode::Mapped), ..plain.clone() };
    let forced = StoreOptions { allow_network_fs: true, ..plain.clone() };
    let forced_mapped = StoreOptions { allow_network_fs: true, ..mapped.clone() };
    assert_eq!(opened(Filesystem::Promises("p"), &plain).unwrap(), WriteMode::Mapped);
    for kind in [Filesystem::CopyOnWrite("c"), Filesystem::Unknown(5)] {
        assert_eq!(opened(kind.clone(), &plain).unwrap(), WriteMode::Pwrite);
        assert!(matches!(opened(kind.clone(), &mapped), Err(Error::UnsupportedFilesystem { .. })));
        assert_eq!(opened(kind, &forced_mapped).unwrap(), WriteMode::Mapped);
    }
    assert!(matches!(
        opened(Filesystem::Remote("nfs"), &plain),
        Err(Error::UnsupportedFilesystem { .. })
    ));
    assert_eq!(opened(Filesystem::Remote("nfs"), &forced).unwrap(), WriteMode::Pwrite);
    // A store that moved: refused for writing where it could crash, and always on a network.
    let moved = machine();
    open(&moved).unwrap();
    let moved = moved.on(Filesystem::CopyOnWrite("c"));
    assert!(matches!(open(&moved), Err(Error::UnsupportedFilesystem { .. })));
    open_with(&moved, &StoreOptions::reading()).unwrap();
    let moved = moved.on(Filesystem::Remote("nfs"));
    assert!(matches!(
        open_with(&moved, &StoreOptions::reading()),
        Err(Error::UnsupportedFilesystem { .. })
    ));
}

#[test]
fn a_mode_that_the_file_system_does_not_keep_is_refused() {
    let machine = machine().losing_modes(0o022);
    let asking = |mode| StoreOptions { mode, ..StoreOptions::default() };
    let error = open_with(&machine, &asking(0o770)).unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument { what } if what.contains("0o750")), "{error}");
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
