//! Segment headers with one corrupt copy, or two.

use super::*;
use crate::common::append_groups;
use falaj::internals::error::Error;
use falaj::internals::format::names;
use falaj::internals::format::segment::{HEADER_LEN, HEADERS, Replaces, SegmentHeader};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

/// Records of two topics in four segments; the last segment was closed.
fn four_segments() -> Place {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for i in 0..4 {
        append_groups(&log, &[(0, &[b"a"]), (1, &[b"b", b"c"])]).unwrap();
        if i < 3 {
            log.roll_now().unwrap();
        }
    }
    log.sync_clean().unwrap();
    drop(log);
    p
}

fn path_of(p: &Place, sequence: u64) -> std::path::PathBuf {
    p.dir.join(names::segment(sequence))
}

fn header_of(p: &Place, sequence: u64) -> SegmentHeader {
    segment_of(&p.storage, &p.dir, sequence).header().clone()
}

fn sector(p: &Place, sequence: u64, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    let file = p.storage.open(&path_of(p, sequence), OpenMode::Read).unwrap();
    file.read_at(&mut bytes, at).unwrap();
    bytes
}

/// Check that the log reads as before, a dry run lists the corrupt sector, and repair restores it.
fn is_restored(p: &Place, sequence: u64, at: u64, was: &SegmentHeader) {
    let steps = told(&p.storage, p).steps;
    assert_eq!(kinds(&steps), [RepairKind::RestoreHeader], "{steps:?}");
    assert_eq!((&steps[0].path, steps[0].position), (&path_of(p, sequence), at));
    let (done, log) = repaired(&p.storage, p);
    assert_eq!(steps, done, "a dry run must list what a repair does");
    assert!(log.headers_to_restore().unwrap().is_empty());
    for copy in HEADERS {
        assert!(sector(p, sequence, copy)[..] == was.encode()[..], "at {copy}");
    }
}

#[test]
fn a_log_reads_on_by_the_valid_copy_of_a_header_and_repair_restores_the_other() {
    let harms: [fn(&mut [u8]); 4] = [
        |sector| sector.fill(0),
        |sector| sector[..8].fill(0),
        |sector| sector[40] ^= 1,
        |sector| sector[511] ^= 0x80,
    ];
    for sequence in 0..4 {
        for at in HEADERS {
            for harm in harms {
                let p = four_segments();
                let was = header_of(&p, sequence);
                let mut bytes = sector(&p, sequence, at);
                harm(&mut bytes);
                rewrite(&p.storage, &path_of(&p, sequence), at, &bytes);
                assert_eq!(header_of(&p, sequence), was);
                let log = crate::common::open_to_read(&p.storage, &p.dir).unwrap();
                assert_eq!([0, 1].map(|topic| values_of(&log, topic).len()), [4, 8]);
                drop(log);
                is_restored(&p, sequence, at, &was);
            }
        }
    }
}

/// Only the header holds these facts.
#[test]
fn headers_of_superseding_and_of_compacted_segments_are_restored_as_well() {
    for at in HEADERS {
        let p = left();
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"two"]).unwrap();
        p.set_latch();
        append(&log, 0, &[b"three"]).unwrap();
        log.sync_clean().unwrap();
        drop(log);
        let was = header_of(&p, 1);
        assert!(was.supersedes);
        rewrite(&p.storage, &path_of(&p, 1), at, &[0; HEADER_LEN]);
        is_restored(&p, 1, at, &was);

        let p = four_segments();
        let replaces = Some(Replaces { first: 1, clean_us: 7, compaction: 0 });
        let was = SegmentHeader { supersedes: true, replaces, ..header_of(&p, 1) };
        rewrite_header(&p.storage, &path_of(&p, 1), &was.encode());
        rewrite(&p.storage, &path_of(&p, 1), at, &[0; HEADER_LEN]);
        is_restored(&p, 1, at, &was);
    }
}

#[test]
fn a_segment_with_two_corrupt_headers_is_named_and_left_as_it_is() {
    for sequence in 0..2 {
        let p = four_segments();
        let path = path_of(&p, sequence);
        rewrite_header(&p.storage, &path, &[0; HEADER_LEN]);
        let refused = plan(&p.storage, &p.dir, &settings(p.mode), LATER).map(|told| told.steps);
        let log = p.open(TestMember::new(0, LATER));
        for error in [refused.unwrap_err(), log.restore_headers().unwrap_err()] {
            let named = matches!(&error, Error::CorruptData { path: named, .. } if *named == path);
            assert!(named, "{error}");
        }
        assert!(HEADERS.iter().all(|at| sector(&p, sequence, *at) == [0; HEADER_LEN]));
    }
}

#[test]
fn a_repair_that_fails_leaves_the_valid_copy() {
    for at in HEADERS {
        let p = four_segments();
        let was = header_of(&p, 1);
        rewrite(&p.storage, &path_of(&p, 1), at, &[0xee; HEADER_LEN]);
        for call in [Call::Write, Call::SyncData] {
            let faulty = FaultyStorage::over_memory(p.memory.clone());
            let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
            let log = open_as(&storage, &p.dir, TestMember::new(0, LATER), p.mode).unwrap();
            let fault = Fault::at(faulty.count(call) + 1, FailureKind::Errno(libc::EIO));
            faulty.plan(fault.only(call));
            log.restore_headers().unwrap_err();
            assert_eq!(header_of(&p, 1), was, "{call:?}");
        }
        is_restored_later(&p, at, &was);
    }
}

fn is_restored_later(p: &Place, at: u64, was: &SegmentHeader) {
    let (_, log) = repaired(&p.storage, p);
    assert!(log.headers_to_restore().unwrap().is_empty());
    assert!(sector(p, 1, at)[..] == was.encode()[..]);
}
