//! A builder goes on where an earlier one was stopped, killed, or lost its power.

use std::path::PathBuf;

use falaj::internals::format::checksum::crc32;
use falaj::internals::store::TopicOptions;
use falaj::internals::topic::{CompactOptions, NewRecord, SyncMode, Topic};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use super::*;
use crate::stores::{assert_holds, fill, open, open_to_read, topic};

const COPY: &str = "/copy";
/// Length of a piece in these tests.
const PIECE: u64 = 9_000;

fn pieces(machine: &MemoryStorage) -> Taken {
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    fill(&topic(&open(&storage, Path::new("/store")).unwrap(), "orders"), 0, 150);
    let taken = take_apart(&*storage, Path::new("/store"));
    assert!(taken.segments.len() > 1);
    taken
}

fn going_on(storage: &Arc<dyn Storage>, key: [u8; 16]) -> Result<PieceBuilder> {
    let options = PieceOptions { resume: Some(key), ..PieceOptions::default() };
    PieceBuilder::begin_on(Arc::clone(storage), Path::new(COPY), options)
}

/// Pieces that were written, and pieces that were there.
#[derive(Debug, Default)]
struct Count {
    written: u64,
    kept: u64,
}

/// Give all small files and begin all segments; then write the pieces that are not there, at most so
/// many.
fn give_rest(builder: &PieceBuilder, taken: &Taken, most: u64, count: &mut Count) -> Result<()> {
    taken.files.iter().try_for_each(|file| give_file(builder, file))?;
    taken.segments.iter().try_for_each(|segment| give_segment(builder, segment))?;
    for segment in &taken.segments {
        let (log, sequence) = (&segment.log, segment.sequence);
        for start in (FIRST_BLOCK..segment.bytes.len() as u64).step_by(PIECE as usize) {
            let end = (start + PIECE).min(segment.bytes.len() as u64);
            let bytes = &segment.bytes[start as usize..end as usize];
            if builder.keep(log, sequence, start, end - start, crc32(bytes))? {
                count.kept += 1;
            } else if count.written < most {
                builder.write(log, sequence, start, bytes)?;
                count.written += 1;
            }
        }
    }
    Ok(())
}

fn build_on(storage: &Arc<dyn Storage>, taken: &Taken) -> Result<Count> {
    let mut count = Count::default();
    let builder = going_on(storage, PARENT.origin)?;
    match give_rest(&builder, taken, u64::MAX, &mut count) {
        Ok(()) => builder.finish(Some(PARENT), &mut quietly).map(|_| count),
        Err(error) => {
            builder.leave();
            Err(error)
        }
    }
}

fn assert_whole(storage: &Arc<dyn Storage>, story: &str) {
    assert_eq!(beside(storage, Path::new("/")), ["copy", "store"], "{story}");
    let store = open(storage, Path::new(COPY)).unwrap_or_else(|e| panic!("{story}: {e}"));
    let orders = topic(&store, "orders");
    assert_holds(&orders, 150);
    fill(&orders, 150, 152);
    assert_holds(&orders, 152);
}

fn total(taken: &Taken) -> u64 {
    let lengths = taken.segments.iter().map(|segment| segment.bytes.len() as u64 - FIRST_BLOCK);
    lengths.map(|len| len.div_ceil(PIECE)).sum()
}

#[test]
fn a_builder_that_was_stopped_writes_only_what_is_missing() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let storage: Arc<dyn Storage> = Arc::new(machine);
    let mut written = 0;
    for most in [0, 1, 3, 2] {
        let mut count = Count::default();
        let builder = going_on(&storage, PARENT.origin).unwrap();
        give_rest(&builder, &taken, most, &mut count).unwrap();
        assert_eq!((count.kept, count.written), (written, most));
        written += most;
        builder.leave();
        assert_eq!(beside(&storage, Path::new("/")), ["copy.09090909.tmp", "store"]);
    }
    let count = build_on(&storage, &taken).unwrap();
    assert_eq!((count.kept, count.kept + count.written), (6, total(&taken)));
    assert_whole(&storage, "");
}

#[test]
fn a_builder_that_was_killed_anywhere_is_gone_on_with() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let began = machine.events();
    build_on(&storage, &taken).unwrap();
    let journal = machine.journal();
    let (mut kept, mut before) = (0, 0);
    for time in (began..journal.len()).step_by(3) {
        let image: Arc<dyn Storage> = Arc::new(journal.killed_at(time));
        let story = format!("event {time}");
        let is_whole = image.stat(Path::new(COPY)).is_ok();
        let again = build_on(&image, &taken);
        assert_eq!(again.is_err(), is_whole, "{story}: {again:?}");
        if let Ok(count) = again {
            assert!(count.kept >= before, "{story}: what was there is written again: {count:?}");
            (before, kept) = (count.kept, kept + count.kept);
        }
        assert_whole(&image, &story);
    }
    assert_eq!(before, total(&taken), "at the end all was there");
    assert!(kept > 50, "{kept}");
}

#[test]
fn a_builder_that_was_killed_while_it_went_on_is_gone_on_with() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let builder = going_on(&storage, PARENT.origin).unwrap();
    give_rest(&builder, &taken, 5, &mut Count::default()).unwrap();
    builder.leave();
    let began = machine.events();
    build_on(&storage, &taken).unwrap();
    let journal = machine.journal();
    for time in began..journal.len() {
        let image: Arc<dyn Storage> = Arc::new(journal.killed_at(time));
        if image.stat(Path::new(COPY)).is_err() {
            let count = build_on(&image, &taken).unwrap();
            assert!(count.kept >= 5, "event {time}: {count:?}");
        }
        assert_whole(&image, &format!("event {time}"));
    }
}

#[test]
fn after_a_power_failure_torn_bytes_are_written_again() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let began = machine.events();
    build_on(&storage, &taken).unwrap();
    let (mut images, mut kept, mut written) = (0, 0, 0);
    for crash in machine.journal().crashes().filter(|crash| crash.time() >= began).step_by(4) {
        images += crash
            .explore(4, 7, |selection, image| {
                let image: Arc<dyn Storage> = Arc::new(image);
                let story = crash.describe(selection);
                if image.stat(Path::new(COPY)).is_err() {
                    let count = build_on(&image, &taken).unwrap_or_else(|e| panic!("{story}: {e}"));
                    kept += count.kept;
                    written += count.written;
                }
                assert_whole(&image, &story);
            })
            .images;
    }
    assert!(images > 30 && kept > 0 && written > 0, "{images}: {kept} kept, {written} written");
}

/// How bytes that were there are lost.
enum Spoiled {
    Zeroed,
    Unreadable,
}

/// The path of a segment in the builder's directory.
fn half_of(storage: &Arc<dyn Storage>, segment: &TakenSegment) -> PathBuf {
    let names = storage.list(Path::new("/")).unwrap();
    let half = names.iter().find(|name| name.ends_with(".tmp")).unwrap();
    Path::new("/").join(half).join("logs").join(&segment.log).join(names::segment(segment.sequence))
}

#[test]
fn bytes_that_are_wrong_torn_or_of_another_segment_are_not_kept() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let first = &taken.segments[0];
    let [header, blocks] = [0..512, FIRST_BLOCK..FIRST_BLOCK + 4096];
    let all = first.bytes.len() as u64 / PIECE;
    for (how, spoiled, lost) in [
        (Spoiled::Zeroed, blocks.clone(), 1),
        (Spoiled::Zeroed, header.clone(), all),
        (Spoiled::Unreadable, header, all),
    ] {
        let faulty = FaultyStorage::over_memory(machine.restart());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let builder = going_on(&storage, PARENT.origin).unwrap();
        give_rest(&builder, &taken, u64::MAX, &mut Count::default()).unwrap();
        let path = half_of(&storage, first);
        builder.leave();
        match how {
            Spoiled::Unreadable => faulty.spoil(&path, spoiled.clone()).unwrap(),
            Spoiled::Zeroed => {
                let zeros = vec![0; (spoiled.end - spoiled.start) as usize];
                let file = storage.open(&path, OpenMode::ReadWrite).unwrap();
                file.write_at(&zeros, spoiled.start).unwrap();
            }
        }
        let count = build_on(&storage, &taken).unwrap();
        assert!(count.written >= lost && count.kept > 0, "{spoiled:?}: {count:?}");
        assert!(spoiled != blocks || count.written == 1, "{count:?}");
        assert_whole(&storage, &format!("{spoiled:?}"));
    }
}

#[test]
fn a_segment_that_grew_or_was_sealed_meanwhile_keeps_what_it_had() {
    let machine = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(machine);
    let root = Path::new("/store");
    fill(&topic(&open(&storage, root).unwrap(), "orders"), 0, 20);
    let early = take_apart(&*storage, root);
    let builder = going_on(&storage, PARENT.origin).unwrap();
    give_rest(&builder, &early, u64::MAX, &mut Count::default()).unwrap();
    builder.leave();
    fill(&topic(&open(&storage, root).unwrap(), "orders"), 20, 150);
    let count = build_on(&storage, &take_apart(&*storage, root)).unwrap();
    let whole = early.segments.iter().map(|s| (s.bytes.len() as u64 - FIRST_BLOCK) / PIECE);
    assert!(count.kept >= whole.sum() && count.kept > 0, "{count:?}");
    assert_whole(&storage, "");
}

#[test]
fn holes_of_a_compacted_segment_stay_holes_when_a_builder_goes_on() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = open(&storage, Path::new("/store")).unwrap();
    let options = TopicOptions {
        segment_bytes: Some(64 << 10),
        compacted: Some(true),
        ..TopicOptions::default()
    };
    let latest = Topic::open(&store, "latest", &options).unwrap().with_sync(SyncMode::None);
    for i in 0..300_u64 {
        let (key, value) = (format!("key-{}", i % 5), vec![i as u8; 900]);
        let record =
            NewRecord { key: Some(key.as_bytes()), value: Some(&value), ..NewRecord::default() };
        latest.append_to(0, &record, None).unwrap();
    }
    latest.flush().unwrap();
    latest.compact(&CompactOptions::default(), &mut quietly).unwrap();
    drop((latest, store));
    let taken = take_apart(&*storage, Path::new("/store"));
    let builder = going_on(&storage, PARENT.origin).unwrap();
    give_all(&builder, &taken, 3).unwrap();
    builder.leave();
    let builder = going_on(&storage, PARENT.origin).unwrap();
    taken.files.iter().for_each(|file| give_file(&builder, file).unwrap());
    let mut draws = Draws(4);
    for segment in &taken.segments {
        give_segment(&builder, segment).unwrap();
        for (start, end) in chunks(segment, &mut draws) {
            let bytes = &segment.bytes[start as usize..end as usize];
            let (log, sequence) = (&segment.log, segment.sequence);
            assert!(builder.keep(log, sequence, start, end - start, crc32(bytes)).unwrap());
        }
    }
    builder.finish(Some(PARENT), &mut quietly).unwrap();
    let copy = open_to_read(&storage, Path::new(COPY)).unwrap();
    let found = copy.verify(None, &mut quietly).unwrap();
    assert!(found.is_sound(), "{found:#?}");
}

#[test]
fn a_second_builder_is_refused_while_the_first_works_and_other_keys_begin_from_nothing() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = going_on(&storage, [1; 16]).unwrap();
    let refused = going_on(&storage, [1; 16]).unwrap_err();
    assert!(matches!(refused, Error::LockTimeout { .. }), "{refused}");
    assert!(refused.to_string().contains("copy.01010101.tmp"), "{refused}");
    let other = going_on(&storage, [2; 16]).unwrap();
    assert_eq!(beside(&storage, Path::new("/")).len(), 2);
    builder.leave();
    other.leave();
    begin(&storage, Path::new(COPY)).unwrap().discard();
    assert_eq!(beside(&storage, Path::new("/")), Vec::<String>::new(), "both were dead");
}

#[test]
fn a_full_disk_keeps_what_came_and_wrong_pieces_or_a_failed_sync_keep_nothing() {
    let machine = MemoryStorage::new();
    let taken = pieces(&machine);
    let run = |faulty: &FaultyStorage, taken: &Taken| {
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let outcome = build_on(&storage, taken);
        (outcome, beside(&storage, Path::new("/")), storage)
    };
    let whole = FaultyStorage::over_memory(machine.restart());
    run(&whole, &taken).0.unwrap();
    let full = FaultyStorage::over_memory(machine.restart());
    full.plan(
        Fault::at(whole.count(Call::Write) * 2 / 3, FailureKind::Errno(libc::ENOSPC))
            .only(Call::Write),
    );
    let (outcome, names, storage) = run(&full, &taken);
    assert!(matches!(outcome, Err(Error::NoSpace { .. })), "{outcome:?}");
    assert_eq!(names, ["copy.09090909.tmp", "store"]);
    let count = build_on(&storage, &taken).unwrap();
    assert!(count.kept >= 5, "{count:?}");
    assert_whole(&storage, "after the disk was full");

    let mut wrong = taken.clone();
    wrong.segments[1].bytes[FIRST_BLOCK as usize + 100] ^= 1;
    let (outcome, names, _) = run(&FaultyStorage::over_memory(machine.restart()), &wrong);
    assert!(outcome.is_err_and(|error| is_corrupt_pieces(&error)));
    assert_eq!(names, ["store"]);

    for errno in [libc::EIO, libc::ENOSPC] {
        let lost = FaultyStorage::over_memory(machine.restart());
        // The first syncs are of small files, the last of the new timeline.
        let nth = whole.count(Call::SyncAll) / 2;
        lost.plan(Fault::at(nth, FailureKind::Errno(errno)).only(Call::SyncAll));
        let (outcome, names, _) = run(&lost, &taken);
        assert!(outcome.is_err(), "{errno}");
        assert_eq!(names, ["store"], "{errno}: what the kernel shows may not be on the disk");
    }
}
