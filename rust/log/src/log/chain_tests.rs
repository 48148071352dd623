//! The chain of segments that were laid out by hand: which of them are the log, and what comes next.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use super::*;
use crate::format::block::Kind;
use crate::format::segment::Previous;
use crate::format::settings::WriteMode;
use crate::segment::create::{Builder, own_header};
use crate::storage::MapAccess;
use crate::twin::memory::MemoryStorage;

#[path = "chain_changed_tests.rs"]
mod changed;

const LOG: [u8; 16] = [7; 16];
const LEN: u64 = 64 << 10;

struct Place {
    memory: MemoryStorage,
    dir: PathBuf,
}

impl Place {
    fn new() -> Self {
        let (memory, dir) = (MemoryStorage::new(), PathBuf::from("/log"));
        memory.create_dir(&dir, 0o700).unwrap();
        Self { memory, dir }
    }

    /// Make a segment that supersedes all that lies after `previous`; return what a successor says
    /// of it.
    fn segment(&self, sequence: u64, previous: Option<Previous>, mark: Mark) -> Previous {
        let path = self.path(sequence);
        let made = Builder::new(&self.memory, path, LEN, LEN, 0o600, MapAccess::Write);
        let mut builder = made.unwrap();
        builder.block(&own_header(Kind::Snapshot, &[], 0), &[]).unwrap();
        let header = SegmentHeader {
            log: LOG,
            sequence,
            salt: builder.salt(),
            supersedes: previous.is_some(),
            previous,
            replaces: None,
            time_base_us: 0,
        };
        builder.header(&header, &mark).unwrap();
        Previous { sequence, salt: builder.salt(), end: builder.position() }
    }

    /// Make segments 0 to `last`, each continuing the previous one, all of them with a mark.
    fn row(&self, last: u64) -> Vec<Previous> {
        let mut made: Vec<Previous> = Vec::new();
        for sequence in 0..=last {
            made.push(self.segment(sequence, made.last().copied(), marked(1)));
        }
        made
    }

    fn path(&self, sequence: u64) -> PathBuf {
        self.dir.join(names::segment(sequence))
    }

    fn copy(&self, from: u64, to: u64) {
        let mut bytes = vec![0; LEN as usize];
        let read = self.memory.open(&self.path(from), OpenMode::Read).unwrap();
        let got = read.read_at(&mut bytes, 0).unwrap();
        let made = self.memory.open(&self.path(to), OpenMode::CreateNew(0o600)).unwrap();
        made.write_at(&bytes[..got], 0).unwrap();
    }

    fn lose(&self, sequence: u64) {
        self.memory.unlink(&self.path(sequence)).unwrap();
    }

    fn chain(&self, reading: Reading) -> Chain {
        let settings = LogSettings {
            generation: LOG,
            segment_bytes: LEN,
            write_mode: WriteMode::Mapped,
            file_mode: 0o600,
            lock_timeout: None,
            sync_interval: std::time::Duration::from_secs(1),
            reading,
        };
        Chain::new(Arc::new(self.memory.clone()), &self.dir, &settings)
    }
}

/// A mark that claims the segment's beginning, made in this incarnation.
fn marked(incarnation: u64) -> Mark {
    Mark { serial: 1, position: FIRST_BLOCK, incarnation, ..Mark::default() }
}

fn unmarked(incarnation: u64) -> Mark {
    Mark { position: 0, ..marked(incarnation) }
}

fn next(chain: &Chain, sequence: u64) -> Result<Next> {
    chain.next(&chain.segment(sequence).unwrap())
}

#[test]
fn what_the_newest_reaches_backwards_is_the_log_and_nothing_else() {
    let p = Place::new();
    let row = p.row(2);
    p.segment(3, Some(row[0]), marked(1));
    let chain = p.chain(Reading::Map);
    assert_eq!(chain.refresh().unwrap(), [0, 3]);
    assert_eq!(chain.sequences().unwrap(), [0, 3]);
    let end = row[0].end;
    assert_eq!(next(&chain, 0).unwrap(), Next::Segment { sequence: 3, end });
    assert_eq!(next(&chain, 1).unwrap(), Next::Superseded);
    assert_eq!(next(&chain, 3).unwrap(), Next::Nothing);
    assert_eq!(chain.successor(&chain.segment(0).unwrap()).unwrap(), (3, end));
    for last in [1, 3] {
        let error = chain.successor(&chain.segment(last).unwrap()).unwrap_err();
        let told = matches!(&error, Error::CorruptData { path, .. } if *path == p.path(last));
        assert!(told, "{error}");
    }
}

#[test]
fn a_copy_of_a_segment_under_the_next_name_is_no_part_of_the_log_and_supersedes_nothing() {
    for of in 0..=2 {
        let place = Place::new();
        place.row(2);
        place.copy(of, 3);
        let chain = place.chain(Reading::Map);
        assert_eq!(chain.refresh().unwrap(), [0, 1, 2], "a copy of {of}");
        let listed = list_segments(&place.memory, &place.dir).unwrap();
        assert_eq!(listed.len(), 4);
        let found = place.chain(Reading::Map).since_last_incarnation(&listed).unwrap();
        assert_eq!(found.whole.last(), Some(&2), "a copy of {of}");
    }
}

#[test]
fn a_segment_that_came_since_is_found_by_who_looks_again() {
    let p = Place::new();
    let row = p.row(1);
    let chain = p.chain(Reading::Map);
    assert!(chain.holds(1).unwrap() && !chain.holds(2).unwrap());
    p.segment(2, Some(row[1]), marked(1));
    assert_eq!(chain.sequences().unwrap(), [0, 1], "as last listed");
    assert_eq!(next(&chain, 1).unwrap(), Next::Segment { sequence: 2, end: row[1].end });
    p.segment(3, Some(Previous { sequence: 2, ..row[1] }), marked(1));
    assert!(!chain.holds(3).unwrap(), "its predecessor has another salt");
}

#[test]
fn who_reads_the_segment_that_was_taken_away_goes_on_with_the_next() {
    let p = Place::new();
    let row = p.row(2);
    let chain = p.chain(Reading::Map);
    let first = chain.segment(0).unwrap();
    p.lose(0);
    assert_eq!(chain.refresh().unwrap(), [1, 2]);
    assert_eq!(chain.next(&first).unwrap(), Next::Segment { sequence: 1, end: row[0].end });
}

#[test]
fn a_segment_that_was_put_away_since_the_last_look_is_looked_past() {
    let p = Place::new();
    let row = p.row(2);
    let chain = p.chain(Reading::Map);
    let first = chain.segment(0).unwrap();
    assert_eq!(chain.refresh().unwrap(), [0, 1, 2]);
    // Superseded, and moved to quarantine by a recovery.
    p.segment(3, Some(row[0]), marked(1));
    [1, 2].iter().for_each(|sequence| p.lose(*sequence));
    enter(&chain.known).headers.clear();
    assert_eq!(chain.next(&first).unwrap(), Next::Segment { sequence: 3, end: row[0].end });
}

#[test]
fn a_segment_that_is_gone_from_the_middle_is_named() {
    let p = Place::new();
    p.row(3);
    p.lose(1);
    let chain = p.chain(Reading::Map);
    assert_eq!(chain.refresh().unwrap(), [0, 2, 3]);
    let error = next(&chain, 0).unwrap_err();
    let told = matches!(&error, Error::CorruptData { path, what, .. }
        if *path == p.path(1) && *what == MISSING);
    assert!(told, "{error}");
    let error = chain.segment(1).unwrap_err();
    assert!(matches!(error, Error::CorruptData { what: MISSING, .. }), "{error}");
}

#[test]
fn a_segment_that_continues_another_one_of_the_same_name_is_damage() {
    let p = Place::new();
    let mut row = p.row(0);
    row[0].salt ^= 1;
    let second = p.segment(1, Some(row[0]), marked(1));
    p.segment(2, Some(second), marked(1));
    let error = next(&p.chain(Reading::Map), 0).unwrap_err();
    let told = matches!(&error, Error::CorruptData { path, .. } if *path == p.path(1));
    assert!(told, "{error}");
}

#[test]
fn a_directory_without_any_segment_is_no_log() {
    let chain = Place::new().chain(Reading::Map);
    for error in [chain.refresh().unwrap_err(), chain.since_last_incarnation(&[]).unwrap_err()] {
        assert!(
            matches!(&error, Error::CorruptData { path, .. } if path == chain.dir()),
            "{error}"
        );
    }
}

#[test]
fn recovery_looks_back_to_a_claim_that_an_earlier_incarnation_made() {
    let looked_at = |marks: &[Mark]| {
        let p = Place::new();
        let mut made = None;
        for (sequence, mark) in (0..).zip(marks) {
            made = Some(p.segment(sequence, made, *mark));
        }
        let listed: Vec<u64> = (0..marks.len() as u64).collect();
        p.chain(Reading::Map).since_last_incarnation(&listed).unwrap().whole
    };
    let unused = Mark { serial: 1, ..Mark::default() };
    assert_eq!(looked_at(&[marked(1)]), [0]);
    assert_eq!(looked_at(&[marked(1), marked(1), marked(1)]), [0, 1, 2], "all of the last one");
    assert_eq!(looked_at(&[marked(1), marked(1), marked(2)]), [1, 2]);
    assert_eq!(looked_at(&[marked(1), unmarked(1), marked(2)]), [0, 1, 2], "it claims nothing");
    assert_eq!(looked_at(&[marked(1), marked(2), unmarked(2)]), [0, 1, 2]);
    assert_eq!(
        looked_at(&[marked(1), marked(2), unused]),
        [0, 1, 2],
        "one of no incarnation says nothing"
    );
    assert_eq!(looked_at(&[marked(1), marked(2), marked(3), unused]), [1, 2, 3]);
}

#[test]
fn a_segment_without_a_sound_mark_does_not_end_the_looking_back() {
    let p = Place::new();
    p.row(2);
    let file = p.memory.open(&p.path(1), OpenMode::ReadWrite).unwrap();
    file.write_at(&[0; 64], marked(1).slot()).unwrap();
    let listed = [0, 1, 2];
    let found = p.chain(Reading::Map).since_last_incarnation(&listed).unwrap();
    assert_eq!((found.whole, found.torn), (listed.to_vec(), Vec::new()));
}

#[test]
fn segments_that_nobody_uses_are_closed_oldest_first_and_those_in_use_stay() {
    let p = Place::new();
    p.row(70);
    let chain = p.chain(Reading::Pread);
    let in_use = [0, 1].map(|sequence| chain.segment(sequence).unwrap());
    for sequence in 2..70 {
        chain.segment(sequence).unwrap();
        chain.segment(2).unwrap();
    }
    let open = enter(&chain.open).sequences();
    assert_eq!(open, [0, 1, 2, 69], "in use, in use, asked for again and again, and the last one");
    drop(in_use);
    chain.forget();
    assert!(enter(&chain.open).sequences().is_empty());
}

#[test]
fn segments_beyond_a_small_cache_stay_mapped_and_are_the_same_when_they_are_asked_for_again() {
    let p = Place::new();
    p.row(199);
    let chain = p.chain(Reading::Map);
    let first: Vec<_> = (0..200).map(|sequence| chain.segment(sequence).unwrap()).collect();
    let weak: Vec<_> = first.iter().map(Arc::downgrade).collect();
    drop(first);
    for (sequence, weak) in (0..).zip(&weak) {
        let again = chain.segment(sequence).unwrap();
        assert!(weak.ptr_eq(&Arc::downgrade(&again)), "{sequence}");
    }
}

#[test]
fn behind_a_reader_few_segments_stay_open_and_one_that_was_asked_for_again_does() {
    let p = Place::new();
    p.row(199);
    let chain = p.chain(Reading::Map);
    for sequence in 0..200 {
        chain.segment(sequence).unwrap();
        if sequence > 0 {
            chain.leave(sequence - 1);
        }
        chain.segment(5).unwrap();
    }
    let open = enter(&chain.open).sequences();
    let expected: Vec<_> = std::iter::once(5).chain(135..200).collect();
    assert_eq!(open, expected, "64 behind it, the one that it is in, and the one that is wanted");
}

#[test]
fn where_the_system_gives_no_map_unused_ones_of_all_logs_are_closed_and_it_is_tried_again() {
    let place = || {
        let p = Place::new();
        p.row(9);
        p
    };
    let (one, other) = (place(), place());
    let (idle, chain) = (one.chain(Reading::Map), other.chain(Reading::Map));
    let in_use = idle.segment(3).unwrap();
    for sequence in 0..10 {
        idle.segment(sequence).unwrap();
        chain.segment(sequence).unwrap();
    }
    for errno in [libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
        let mut tries = 0;
        let opened = with_room(None, || {
            tries += 1;
            if tries < 2 {
                Err(Error::io("map", chain.dir(), libc_error(errno)))
            } else {
                Ok(tries)
            }
        });
        assert_eq!(opened.unwrap(), 2, "{errno}");
        assert_eq!(enter(&idle.open).sequences(), [3], "the one in use");
        assert!(enter(&chain.open).sequences().is_empty());
        (0..10).for_each(|sequence| drop(idle.segment(sequence).unwrap()));
    }
    let denied = || Err::<(), _>(Error::io("map", chain.dir(), libc_error(libc::EACCES)));
    assert!(with_room(None, denied).is_err());
    assert_eq!(enter(&idle.open).sequences().len(), 10, "nothing is closed for another reason");
    drop(in_use);
}

fn libc_error(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

#[test]
fn what_follows_in_a_long_log_is_known_without_a_look_at_all_that_is_behind_it() {
    let p = Place::new();
    let row = p.row(40);
    let chain = p.chain(Reading::Map);
    let first = chain.segment(0).unwrap();
    chain.refresh().unwrap();
    assert_eq!(next(&chain, 0).unwrap(), Next::Segment { sequence: 1, end: row[0].end });
    // A header that says something else when it is read again is an error.
    let changed = SegmentHeader { salt: 77, ..chain.header(20).unwrap() };
    enter(&chain.known).headers.insert(1, changed);
    assert!(enter(&chain.known).linked(&first).is_none());
}

#[test]
fn a_segment_of_which_nothing_is_in_memory_is_shared_by_all_who_ask_for_one() {
    let p = Place::new();
    p.row(0);
    let chain = p.chain(Reading::Pread);
    let first = chain.segment(0).unwrap();
    assert!(Arc::ptr_eq(&chain.reopen_empty(&first).unwrap(), &first), "it is not heavy at all");
    chain.forget();
    let fresh = chain.reopen_empty(&first).unwrap();
    assert!(!Arc::ptr_eq(&fresh, &first));
    assert!(Arc::ptr_eq(&chain.segment(0).unwrap(), &fresh), "the next one gets the same");
}

#[test]
fn segments_in_use_stay_open_however_many_they_are() {
    let p = Place::new();
    p.row(9);
    let chain = p.chain(Reading::Pread);
    let in_use: Vec<_> = (0..10).map(|sequence| chain.segment(sequence).unwrap()).collect();
    for (sequence, segment) in (0..).zip(&in_use) {
        assert!(Arc::ptr_eq(segment, &chain.segment(sequence).unwrap()), "{sequence}");
    }
}
