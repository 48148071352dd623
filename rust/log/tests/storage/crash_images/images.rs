//! The images themselves: moments of a crash, deaths of processes, selections, fingerprints.

use super::*;

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
        let file = image.open(path("/f"), OpenMode::ReadWrite).unwrap();
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
    let again = survivor.open(path("/f"), OpenMode::ReadWrite).unwrap();
    assert!(again.try_lock(LockKind::Exclusive).unwrap());
    again.write_at(b"s", 0).unwrap();
    assert_eq!(letters(&storage, "/f", 1), "n", "the image must be independent");
    assert_ne!(again.stat().unwrap().device, file.stat().unwrap().device);
}

#[test]
fn a_kill_between_any_two_stores_can_be_looked_at() {
    let storage = MemoryStorage::new();
    let file = durable(&storage, "/f", 4096);
    let map = file.map(4096, MapAccess::Write).unwrap();
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
    let its = other.open(path("/f"), OpenMode::ReadWrite).unwrap();
    let map = its.map(4096, MapAccess::Write).unwrap();
    assert!(its.try_lock(LockKind::Exclusive).unwrap());
    assert!(!mine.try_lock(LockKind::Exclusive).unwrap());
    other.kill();
    assert!(mine.try_lock(LockKind::Exclusive).unwrap());
    assert!(map.write(0, b"x").is_err() && its.write_at(b"x", 0).is_err());
    assert!(other.open(path("/f"), OpenMode::Read).is_err());
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
        assert!(selections.insert(selection.to_vec()), "{selection:?} was given twice");
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
    assert_eq!(seen, again, "a seed must give the same images");
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
    let file = image.open(path("/f"), OpenMode::ReadWrite).unwrap();
    file.allocate(12_288).unwrap();
    assert_eq!(file.allocate(12_289).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(file.write_at(b"xx", 12_287).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(file.map(16_384, MapAccess::Read).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
}

#[test]
#[should_panic(expected = "into a hole")]
fn a_mapped_store_into_a_hole_panics() {
    let storage = MemoryStorage::new();
    let file = create(&storage, "/f");
    file.write_at(b"x", 100_000).unwrap();
    file.map(100_000, MapAccess::Write).unwrap().write(50_000, b"x").unwrap();
}

#[test]
#[should_panic(expected = "beyond the end")]
fn a_mapped_store_beyond_the_end_panics() {
    let storage = MemoryStorage::new();
    let file = create(&storage, "/f");
    file.allocate(4096).unwrap();
    file.map(8192, MapAccess::Write).unwrap().store(4096, 1).unwrap();
}

/// Random numbers for the histories below.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// One random call, through any open handle; a refusal is fine.
fn act(storage: &MemoryStorage, dice: &mut Dice) {
    const NAMES: [&str; 6] = ["/a", "/b", "/d/a", "/d/b", "/e", "/d"];
    let pick = |dice: &mut Dice| path(NAMES[dice.roll(6) as usize]);
    let (one, two) = (pick(dice), pick(dice));
    let position = dice.roll(40) * 100;
    let bytes = vec![dice.roll(3) as u8; 1 + dice.roll(1500) as usize];
    let file = storage.open(one, OpenMode::ReadWrite);
    match (dice.roll(14), file) {
        (0, _) => drop(storage.open(one, OpenMode::CreateNew(0o600))),
        (1, _) => drop(storage.create_dir(path("/d"), 0o700)),
        (2, _) => drop(storage.rename_new(one, two)),
        (3, _) => drop(storage.rename_over(one, two)),
        (4, _) => drop(storage.unlink(one)),
        (5, _) => drop(storage.remove_dir(path("/d"))),
        (6, _) => drop(storage.sync_dir(path(["/", "/d"][dice.roll(2) as usize]))),
        (7 | 8, Ok(file)) => file.write_at(&bytes, position).unwrap(),
        (9, Ok(file)) => {
            file.allocate(position + 2000).unwrap();
            file.map(8192, MapAccess::Write).unwrap().write(position, &bytes[..1]).unwrap();
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
    assert!(choices > 10_000, "the histories leave only {choices} choices");
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
                    assert!(inodes.insert(told.inode), "a file has two names in seed {seed}");
                    if let Ok(file) = image.open(&file, OpenMode::ReadWrite) {
                        file.map(4096, MapAccess::Read).unwrap();
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
                let file = storage.open(&path(directory).join(name), OpenMode::ReadWrite);
                // A failed sync loses what was pending, so store it again.
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
