//! Written segments: a walk finds every block up to the end, in any mixture.

use super::*;
use crate::format::block::{CommitWord, Kind};
use crate::storage::real::RealStorage;
use crate::twin::faulty::{Call, FaultyStorage};
use crate::twin::memory::MemoryStorage;

const SALT: u64 = 77;
const MODE: u32 = 0o600;

fn block(body: &[u8]) -> BlockHeader {
    let len = (HEADER_LEN + body.len()) as u32;
    BlockHeader { len, body_crc: checksum::crc32(body), ..BlockHeader::new(Kind::Data) }
}

/// Store it as a sealed segment without a predecessor, marked to its end.
fn finish(mut packer: Packer, len: u64) {
    let header = SegmentHeader {
        log: [1; 16],
        sequence: 3,
        salt: SALT,
        supersedes: false,
        previous: None,
        replaces: None,
        time_base_us: 0,
    };
    let (position, control, incarnation) = (packer.position(), 1, 1);
    let mark = Mark { serial: 1, position, clean: true, succeeded: true, control, incarnation };
    packer.finish(&header, &mark, len).unwrap();
}

/// Return kinds and places of all blocks of a segment, and where the last one ends.
fn walked(path: &Path, from: u64, blocks: usize) -> (Vec<(Kind, u64)>, u64) {
    let file = RealStorage.open(path, OpenMode::Read).unwrap();
    let (mut at, mut found) = (from, Vec::new());
    for _ in 0..blocks {
        let mut head = [0; MAX_HEADER_LEN];
        let read = file.read_at(&mut head[..HEADER_LEN], at).unwrap();
        let word = u64::from_le_bytes(head[..8].try_into().unwrap());
        let word = CommitWord::parse(word, SALT, at).unwrap();
        assert!(
            read == HEADER_LEN && BlockHeader::parse(word, &head[..read]).unwrap().padded() > 0
        );
        found.push((word.kind, at));
        at += word.padded();
    }
    (found, at)
}

#[test]
fn more_than_is_written_at_once_is_walked_to_its_end_and_takes_what_was_counted() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("packed");
    let mut packer = Packer::new(&RealStorage, path.clone(), SALT, MODE).unwrap();
    let mut counting = Packer::counting();
    let bodies: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; 60_000 + usize::from(n)]).collect();
    let mut places = Vec::new();
    for body in &bodies {
        places.push((Kind::Data, packer.position()));
        packer.block(&block(body), body).unwrap();
        counting.block(&block(body), body).unwrap();
        assert_eq!(packer.position(), counting.position());
        assert!(packer.buffer.len() < PIECE, "no more waits than is written at once");
    }
    let end = packer.position();
    assert!(end > 2 * PIECE as u64);
    // The file reaches to there already.
    finish(packer, end);
    assert_eq!(walked(&path, FIRST_BLOCK, bodies.len()), (places.clone(), end));
    let file = RealStorage.open(&path, OpenMode::Read).unwrap();
    assert_eq!(file.stat().unwrap().len, end);
    for (body, (_, at)) in bodies.iter().zip(places) {
        let mut found = vec![0; body.len()];
        assert_eq!(file.read_at(&mut found, at + HEADER_LEN as u64).unwrap(), body.len());
        assert_eq!(&found, body);
    }
}

#[test]
fn small_blocks_are_written_together_and_a_long_one_at_once() {
    let faulty = FaultyStorage::over_memory(MemoryStorage::with_capacity(4 << 20));
    let mut packer = Packer::new(&faulty, PathBuf::from("/packed"), SALT, MODE).unwrap();
    let written = || faulty.count(Call::Write);
    for _ in 0..15 {
        packer.block(&block(&[1; 60_000]), &[1; 60_000]).unwrap();
    }
    assert_eq!(written(), 0, "less than is written at once");
    (0..10).for_each(|_| packer.block(&block(&[1; 60_000]), &[1; 60_000]).unwrap());
    assert_eq!(written(), 1);
    let long = vec![2; PIECE];
    packer.block(&block(&long), &long).unwrap();
    assert_eq!((written(), packer.buffer.len()), (2, 0), "and what waited before it with it");
}

#[test]
fn a_gap_that_is_too_long_for_one_void_block_is_covered_by_several() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("packed");
    let mut packer = Packer::new(&RealStorage, path.clone(), SALT, MODE).unwrap();
    packer.block(&block(b"alone"), b"alone").unwrap();
    let (from, until) = (packer.position(), 2 * LONGEST + 2 * FIRST_BLOCK);
    packer.cover(until).unwrap();
    assert_eq!(packer.position(), until);
    finish(packer, until);
    let half = LONGEST / 2;
    let voids = [0, half, 2 * half, 3 * half].map(|passed| (Kind::Void, from + passed));
    assert_eq!(walked(&path, from, voids.len()), (voids.to_vec(), until));
    // Only the non-empty parts of this need space.
    let told = RealStorage.open(&path, OpenMode::Read).unwrap().stat().unwrap();
    assert!(told.len == until && told.allocated < 1 << 20, "{told:?}");
}

#[test]
fn a_gap_as_long_as_the_longest_void_block_is_covered_by_one_and_where_there_is_none_by_none() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("packed");
    let mut packer = Packer::new(&RealStorage, path.clone(), SALT, MODE).unwrap();
    packer.cover(FIRST_BLOCK + (1 << 30)).unwrap();
    let end = packer.position();
    packer.cover(end).unwrap();
    packer.block(&block(b"behind"), b"behind").unwrap();
    finish(packer, end + 4096);
    assert_eq!(walked(&path, FIRST_BLOCK, 2).0, [(Kind::Void, FIRST_BLOCK), (Kind::Data, end)]);
}

#[test]
fn a_packed_segment_outlives_a_loss_of_power_and_is_as_long_as_it_was_to_be() {
    for len in [FIRST_BLOCK + 200, FIRST_BLOCK + 40, FIRST_BLOCK] {
        let machine = MemoryStorage::new();
        let path = PathBuf::from("/packed");
        let mut packer = Packer::new(&machine, path.clone(), SALT, MODE).unwrap();
        packer.block(&block(b"12345678"), b"12345678").unwrap();
        let end = packer.position();
        machine.sync_dir(Path::new("/")).unwrap();
        finish(packer, len);
        let crash = machine.journal().crash_at_end();
        let file = crash.image(&crash.nothing()).open(&path, OpenMode::Read).unwrap();
        assert_eq!(file.stat().unwrap().len, len.max(end));
        let mut body = [0; 8];
        file.read_at(&mut body, end - 8).unwrap();
        assert_eq!(&body, b"12345678", "{len}");
    }
}

#[test]
fn what_only_counts_stores_nothing_and_has_no_name() {
    let mut counting = Packer::counting();
    counting.cover(1 << 20).unwrap();
    assert_eq!(counting.position(), 1 << 20);
    assert!(!counting.has_its_name(&RealStorage).unwrap());
    finish(counting, 1 << 21);
}
