//! Processes that die one after the other, each while it writes the end block of a roll.
//!
//! Each such death uses some bytes of the space that is kept free behind the segment's tail. That
//! space is limited. The log must still take appends from the next process.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::format::address::Address;
use falaj::internals::format::control::at;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, LogSettings, Member};
use falaj::internals::storage::{OpenMode, Storage as _};
use falaj_twin::memory::MemoryStorage;

use crate::common::{LOG, TestMember, append, create_log_of, read_all, settings};

const DIR: &str = "/log";
/// Bytes of a segment.
const SEGMENT: u64 = 16 << 10;
/// Deaths in a row: twice as many as the space behind the tail allows.
const DEATHS: u16 = 150;
/// That space: a page and an end block.
const RESERVE: u64 = 4096 + 64;
/// Records that are appended afterwards, by the next process and after a restart.
const MORE: usize = 300;

fn word(storage: &MemoryStorage, file: &str, position: u64) -> Address {
    let file = storage.open(&Path::new(DIR).join(file), OpenMode::Read).unwrap();
    let mut bytes = [0; 8];
    file.read_at(&mut bytes, position).unwrap();
    Address(u64::from_le_bytes(bytes))
}

fn end(storage: &MemoryStorage, which: u64) -> Address {
    word(storage, "control", which)
}

/// True if a death at this time of a roll leaves an end block that was begun and not committed.
fn in_end_block(image: &MemoryStorage) -> bool {
    let (tail, dirty) = (end(image, at::TAIL), end(image, at::DIRTY));
    let begun = dirty > tail && dirty.sequence() == tail.sequence();
    begun && word(image, &names::segment(tail.sequence()), tail.position()) == Address(0)
}

/// A log whose first segment has used all its allocated space. Process after process dies there in
/// the end block of its roll, at different steps.
fn dying(mode: WriteMode, segment_bytes: u64) {
    let settings = LogSettings { segment_bytes, generation: LOG, ..settings(mode) };
    let open = |storage: &MemoryStorage, member: Option<TestMember>| {
        let member = member.map(|member| Arc::new(member) as Arc<dyn Member>);
        Log::open(Arc::new(storage.clone()), Path::new(DIR), settings.clone(), member).unwrap()
    };
    let mut storage = MemoryStorage::with_capacity(segment_bytes * 4).seeded(7);
    create_log_of(&storage, Path::new(DIR), 1, mode, segment_bytes);
    let first = TestMember::new(0, 1);
    let log = open(&storage, Some(first.beside(0)));
    let records = use_up(&storage, &log);
    first.dies();
    drop(log);
    storage = storage.restart();
    for death in 1..=DEATHS {
        let member = first.beside(death);
        let obituary = member.obituary();
        let log = open(&storage, Some(member));
        let start = storage.events();
        log.roll_now().unwrap_or_else(|error| panic!("after {death} deaths: {error}"));
        let journal = storage.journal();
        obituary();
        drop(log);
        // The last of these times: earlier ones belong to the process that died before.
        let times = (start..=journal.len()).rev();
        let mut times = times.filter(|time| in_end_block(&journal.killed_at(*time)));
        storage = journal.killed_at(times.nth(usize::from(death % 3)).unwrap()).restart();
        let (all, ended) = read_all(&open(&storage, None), 0, 0);
        assert_eq!((all.len(), ended.is_ok()), (records, true), "{death}: {ended:?}");
        let (dirty, room) = (end(&storage, at::DIRTY), end(&storage, at::ALLOCATED));
        assert!(dirty <= room, "after {death} deaths at {dirty:?}, allocated to {room:?}");
    }
    let heirs = [first.beside(DEATHS + 1), TestMember::new(0, 2)];
    for (member, before) in heirs.into_iter().zip([records, records + MORE]) {
        let log = open(&storage, Some(member));
        for i in before..before + MORE {
            assert_eq!(append(&log, 0, &[&[b'y'; 40]]).unwrap().first, i as u64);
        }
        log.sync_clean().unwrap();
        let (all, ended) = read_all(&open(&storage, None), 0, 0);
        assert_eq!((all.len(), ended.is_ok()), (before + MORE, true), "{ended:?}");
    }
}

/// Append until nothing more fits behind the tail without an allocation; return how many records.
fn use_up(storage: &MemoryStorage, log: &Arc<Log>) -> usize {
    for records in 0.. {
        let room = end(storage, at::ALLOCATED).position() - end(storage, at::TAIL).position();
        let Some(free) = room.checked_sub(RESERVE + 128) else { return records };
        append(log, 0, &[&vec![b'x'; free.min(log.max_group_len() - 128) as usize]]).unwrap();
    }
    unreachable!()
}

#[test]
fn a_log_outlives_any_number_of_deaths_at_one_end_block_in_mapped_memory() {
    dying(WriteMode::Mapped, SEGMENT);
}

#[test]
fn a_log_outlives_any_number_of_deaths_at_one_end_block_written_through() {
    dying(WriteMode::Pwrite, SEGMENT);
}

/// A segment that can grow does so.
#[test]
fn a_segment_outlives_any_number_of_deaths_where_its_allocation_ends() {
    dying(WriteMode::Mapped, (1 << 20) + SEGMENT);
}
