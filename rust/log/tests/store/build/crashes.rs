//! Errors, deaths and power failures while a store is built: it is whole, or it is not there.

use falaj::internals::topic::Topic;
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use super::*;
use crate::stores::{assert_holds, fill, open, open_to_read, topic};

/// Pieces of a store with two segments.
fn pieces(machine: &MemoryStorage) -> Taken {
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    fill(&topic(&open(&storage, Path::new("/store")).unwrap(), "orders"), 0, 150);
    let taken = take_apart(&*storage, Path::new("/store"));
    assert!(taken.segments.len() > 1);
    taken
}

fn assert_whole(storage: &Arc<dyn Storage>, story: &str) {
    let reader =
        open_to_read(storage, Path::new("/copy")).unwrap_or_else(|e| panic!("{story}: {e}"));
    assert_holds(&Topic::open(&reader, "orders", &Default::default()).unwrap(), 150);
}

#[test]
fn a_build_that_fails_at_any_call_leaves_nothing_under_its_name() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let run = |faulty: &FaultyStorage| {
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        build(&storage, &taken, Path::new("/copy"), 1)
    };
    let whole = FaultyStorage::over_memory(machine.restart());
    run(&whole).unwrap();
    let mut failed = 0;
    for how in [FailureKind::Errno(libc::EIO), FailureKind::HalfWritten(libc::ENOSPC)] {
        for k in 1..=whole.total() {
            let image = machine.restart();
            let faulty = FaultyStorage::over_memory(image.clone());
            faulty.plan(Fault::at(k, how));
            let outcome = run(&faulty);
            let image: Arc<dyn Storage> = Arc::new(image);
            let story = format!("{how:?} at call {k}");
            if let Err(error) = &outcome {
                failed += 1;
                assert!(error.to_string().contains('/'), "{story}: the error has no path: {error}");
            }
            match image.stat(Path::new("/copy")) {
                Ok(_) => assert_whole(&image, &story),
                Err(_) => assert!(outcome.is_err(), "{story}"),
            }
        }
    }
    assert!(failed > 100, "{failed}");
}

#[test]
fn a_power_failure_while_a_store_is_built_leaves_it_whole_or_not_there() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let began = machine.events();
    build(&storage, &taken, Path::new("/copy"), 1).unwrap();
    let returned = machine.events();
    let (mut images, mut there) = (0, 0);
    for crash in machine.journal().crashes().filter(|crash| crash.time() >= began) {
        images += crash
            .explore(8, 5, |selection, image| {
                let image: Arc<dyn Storage> = Arc::new(image);
                let is_there = image.stat(Path::new("/copy")).is_ok();
                assert!(is_there || crash.time() < returned, "it returned, and is not there");
                if is_there {
                    there += 1;
                    assert_whole(&image, &crash.describe(selection));
                    // A process that writes takes it for one that was closed in order.
                    let store = open(&image, Path::new("/copy")).unwrap();
                    let orders = topic(&store, "orders");
                    fill(&orders, 150, 152);
                    assert_holds(&orders, 152);
                }
            })
            .images;
    }
    assert!(images > 100 && there > 0, "{images}, {there} of them whole");
}

#[test]
fn what_a_killed_builder_leaves_the_next_one_removes() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let began = machine.events();
    build(&storage, &taken, Path::new("/copy"), 1).unwrap();
    let journal = machine.journal();
    let mut left = 0;
    for time in (began..journal.len()).step_by(5) {
        let image: Arc<dyn Storage> = Arc::new(journal.killed_at(time));
        let root = Path::new("/");
        left += beside(&image, root).iter().filter(|name| name.ends_with(".tmp")).count();
        let whole = image.stat(Path::new("/copy")).is_ok();
        let again = build(&image, &taken, Path::new("/copy"), 2);
        assert_eq!(again.is_err(), whole, "event {time}: {again:?}");
        assert_eq!(beside(&image, root), ["copy", "store"], "event {time}");
        assert_whole(&image, &format!("event {time}"));
    }
    assert!(left > 5, "{left}");
}

#[test]
fn a_build_that_is_stopped_or_discarded_leaves_nothing() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let storage: Arc<dyn Storage> = Arc::new(machine);
    let at = Path::new("/copy");
    let builder = begin(&storage, at).unwrap();
    give_all(&builder, &taken, 1).unwrap();
    let stopped = builder.finish(None, &mut |_, _| Err(Error::Interrupted));
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert_eq!(beside(&storage, Path::new("/")), ["store"]);
    let builder = begin(&storage, at).unwrap();
    give_all(&builder, &taken, 1).unwrap();
    assert_eq!(beside(&storage, Path::new("/")).len(), 2);
    builder.discard();
    assert_eq!(beside(&storage, Path::new("/")), ["store"]);
    build(&storage, &taken, at, 1).unwrap();
}

#[test]
fn a_sync_that_failed_while_pieces_came_is_not_forgotten_at_the_end() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let run = |faulty: &FaultyStorage| {
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let builder = begin(&storage, Path::new("/copy")).unwrap();
        for file in &taken.files {
            give_file(&builder, file).unwrap();
        }
        let given = faulty.count(Call::SyncAll);
        let mut failed = 0;
        for segment in &taken.segments {
            give_segment(&builder, segment).unwrap();
            let bytes = &segment.bytes[FIRST_BLOCK as usize..];
            failed += u32::from(
                builder.write(&segment.log, segment.sequence, FIRST_BLOCK, bytes).is_err(),
            );
        }
        let written = faulty.count(Call::SyncAll);
        (given..written, failed, builder.finish(Some(PARENT), &mut quietly))
    };
    let whole = FaultyStorage::over_memory(machine.restart());
    let (syncs, failed, done) = run(&whole);
    assert_eq!(syncs.end - syncs.start, taken.segments.len() as u64, "each one, once it is whole");
    assert_eq!(failed, 0);
    done.unwrap();
    for nth in syncs {
        let faulty = FaultyStorage::over_memory(machine.restart());
        faulty.plan(Fault::at(nth + 1, FailureKind::Errno(libc::EIO)).only(Call::SyncAll));
        let (_, failed, done) = run(&faulty);
        assert_eq!(failed, 1, "sync {nth}");
        let error = done.expect_err("what was not synced is not a store");
        assert!(error.to_string().contains(".log"), "sync {nth}: {error}");
        assert!(faulty.stat(Path::new("/copy")).is_err(), "sync {nth}");
    }
}

#[test]
fn a_segment_is_checked_once_and_while_the_others_come() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    for early in [true, false] {
        let faulty = FaultyStorage::over_memory(machine.restart());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let builder = begin(&storage, Path::new("/copy")).unwrap();
        taken.files.iter().for_each(|file| give_file(&builder, file).unwrap());
        let (oldest, rest) = taken.segments.split_first().unwrap();
        let write = |segment: &TakenSegment| {
            let bytes = &segment.bytes[FIRST_BLOCK as usize..];
            builder.write(&segment.log, segment.sequence, FIRST_BLOCK, bytes).unwrap();
        };
        taken.segments.iter().for_each(|segment| give_segment(&builder, segment).unwrap());
        let spoil = || {
            let names = storage.list(Path::new("/")).unwrap();
            let half = names.iter().find(|name| name.ends_with(".tmp")).unwrap();
            let name = names::segment(oldest.sequence);
            let path = Path::new("/").join(half).join("logs").join(&oldest.log).join(name);
            faulty.spoil(&path, FIRST_BLOCK + 600..FIRST_BLOCK + 700).unwrap();
        };
        if early {
            spoil();
        }
        write(oldest);
        if !early {
            spoil();
        }
        rest.iter().for_each(write);
        let done = builder.finish(Some(PARENT), &mut quietly);
        assert_eq!(done.is_err(), early, "{done:?}");
    }
}
