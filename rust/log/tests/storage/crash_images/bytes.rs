//! Bytes and lengths: what a power cut may leave of them.

use super::*;

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
    let map = file.map(8192, MapAccess::Write).unwrap();
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
    let map = file.map(4096, MapAccess::Write).unwrap();
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
        let file = image.open(path("/f"), OpenMode::ReadWrite).unwrap();
        if file.stat().unwrap().len == 300 {
            file.allocate(1000).unwrap();
            assert_eq!(
                content(&image, "/f").unwrap()[300..],
                [0; 700],
                "old bytes may not come back"
            );
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
    let file = image.open(path("/f"), OpenMode::Read).unwrap();
    assert_eq!((file.next_data(0).unwrap(), file.next_data(4096).unwrap()), (Some(0), None));
}

#[test]
fn a_restarted_machine_is_what_the_journal_says() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 3 * 4096);
    let kept = durable(&storage, "/kept", 700);
    let same = |what: &str| {
        let journal = storage.journal();
        let replayed = journal.killed_at(journal.len());
        let (restarted, replayed) = (storage.restart(), replayed);
        let prints = [&restarted, &replayed, &storage].map(MemoryStorage::fingerprint_with_space);
        assert_eq!([prints[0]; 2], [prints[1], prints[2]], "{what}");
        assert_eq!(content(&restarted, "/f"), content(&storage, "/f"), "{what}");
    };
    same("synced");
    file.write_at(&[b'n'; 1000], 500).unwrap();
    same("stored across sectors");
    let map = file.map(3 * 4096, MapAccess::Write).unwrap();
    map.write(4096, b"mapped").unwrap();
    same("stored into a map");
    map.store(8192, 0).unwrap();
    file.write_at(&[0; 512], 8192).unwrap();
    same("a sector of zeros");
    file.punch(4096, 4096).unwrap();
    same("punched");
    file.allocate(5 * 4096).unwrap();
    same("longer");
    kept.allocate(4096).unwrap();
    same("longer, and never touched");
    storage.unlink(path("/kept")).unwrap();
    create(&storage, "/new").write_at(b"x", 5000).unwrap();
    same("other names");
}

#[test]
fn what_is_allocated_tells_machines_of_the_same_bytes_apart() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 8192);
    file.write_at(&[0; 4096], 4096).unwrap();
    let before = (storage.fingerprint(), storage.fingerprint_with_space());
    file.punch(4096, 4096).unwrap();
    assert_eq!(storage.fingerprint(), before.0);
    assert_ne!(storage.fingerprint_with_space(), before.1);
}

#[test]
fn an_image_is_made_for_a_fingerprint_that_is_wanted() {
    let storage = MemoryStorage::new();
    durable(&storage, "/f", 1024).write_at(b"n", 0).unwrap();
    let crash = now(&storage);
    for selection in [crash.nothing(), crash.everything()] {
        let whole = crash.image(&selection);
        assert!(crash.image_if(&selection, |_| false).is_none());
        let mut asked = 0;
        let image = crash.image_if(&selection, |print| {
            asked = print;
            true
        });
        assert_eq!(content(&image.unwrap(), "/f"), content(&whole, "/f"));
        assert_eq!([asked; 2], [whole.fingerprint(), crash.fingerprint(&selection)]);
    }
}
