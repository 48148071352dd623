//! Lookups: skipped blocks are not believed, and the block that is found is checked.

use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::block::HEADER_LEN;
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::Log;
use falaj::internals::segment::Check;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{OpenMode, Storage};

/// More than two index entries' worth of blocks.
const RECORDS: u64 = 150;
const HURT: u64 = 75;

fn value(i: u64) -> Vec<u8> {
    format!("value {i:04} {}", "x".repeat(20 + (i % 3) as usize)).into_bytes()
}

fn look_up(log: &Arc<Log>, offset: u64, check: Check) -> Result<Vec<u8>, Error> {
    let mut cursor = log.cursor_at(0, offset, check)?;
    let block = cursor.next_block()?.expect("it was written");
    assert!((block.first()..block.end()).contains(&offset), "{offset} is looked up");
    let parts = block.find(offset)?.expect("nothing was compacted");
    Ok(block.body()[parts.value().unwrap()].to_vec())
}

#[test]
fn no_flipped_bit_of_a_header_leads_a_lookup_to_another_record() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(root.path());
    let log = new_log(&storage, &dir);
    let ends: Vec<_> =
        (0..RECORDS).map(|i| append(&log, 0, &[&value(i)]).unwrap().end.position()).collect();
    drop(log);
    let hurt = ends[HURT as usize - 1];
    let file = storage.open(&dir.join("00000000000000000000.log"), OpenMode::ReadWrite).unwrap();
    let mut whole = [0; HEADER_LEN];
    file.read_at(&mut whole, hurt).unwrap();
    for bit in 0..HEADER_LEN * 8 {
        let mut flipped = whole;
        flipped[bit / 8] ^= 1 << (bit % 8);
        file.write_at(&flipped, hurt).unwrap();
        let log = open_to_read(&storage, &dir).unwrap();
        for check in [Check::None, Check::Full] {
            for offset in [0, HURT - 2, HURT - 1, HURT, HURT + 1, HURT + 9, RECORDS - 1] {
                match look_up(&log, offset, check) {
                    Ok(found) => {
                        assert_ne!(offset, HURT, "bit {bit} must be noticed");
                        assert_eq!(found, value(offset), "bit {bit}");
                    }
                    Err(Error::CorruptData { position, .. }) => {
                        assert_eq!(position, hurt, "bit {bit}, offset {offset}");
                        assert_eq!(offset, HURT, "a valid record must be found, bit {bit}");
                    }
                    Err(other) => panic!("bit {bit}: {other}"),
                }
            }
        }
        assert_eq!(log.end_offset(0).unwrap(), RECORDS, "bit {bit}");
    }
}

#[test]
fn a_damaged_index_entry_costs_time_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(root.path());
    let log = new_log(&storage, &dir);
    for i in 0..1000 {
        append(&log, 0, &[&value(i)]).unwrap();
    }
    drop(log);
    let file = storage.open(&dir.join("00000000000000000000.idx"), OpenMode::ReadWrite).unwrap();
    let mut whole = [0; 64 + 12 * 32];
    file.read_at(&mut whole, 0).unwrap();
    for byte in 64..whole.len() {
        let mut damaged = whole;
        damaged[byte] ^= 0x81;
        file.write_at(&damaged, 0).unwrap();
        let log = open_to_read(&storage, &dir).unwrap();
        for offset in (0..1000).step_by(67) {
            assert_eq!(look_up(&log, offset, Check::Full).unwrap(), value(offset), "byte {byte}");
        }
    }
}

/// A log of two topics in which topic 1 is rare: one record of it, many of the other, repeatedly.
///
/// The log rolls `rolls` times in between. Returns the segments of the other topic.
fn with_a_rare_topic(storage: &Arc<dyn Storage>, dir: &Path, segments: u64) -> Arc<Log> {
    create_log(&**storage, dir, 2, WriteMode::Mapped);
    let log = open(storage, dir, TestMember::new(0, 1)).unwrap();
    append(&log, 1, &[b"first"]).unwrap();
    for segment in 0..segments {
        for i in 0..900 {
            append(&log, 0, &[&value(i)]).unwrap();
        }
        if segment + 1 < segments {
            log.roll_now().unwrap();
        }
    }
    append(&log, 1, &[b"second"]).unwrap();
    append(&log, 1, &[b"third"]).unwrap();
    log
}

/// Flip a bit of a block of the other topic in the middle of a segment.
fn hurt(storage: &Arc<dyn Storage>, dir: &Path, sequence: u64) {
    let file = storage.open(&dir.join(names::segment(sequence)), OpenMode::ReadWrite).unwrap();
    let position = 60_000 / 8 * 8;
    let mut bytes = [0; 512];
    file.read_at(&mut bytes, position).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 1);
    file.write_at(&bytes, position).unwrap();
}

#[test]
fn who_reads_a_rare_topic_passes_over_whole_segments_of_others_unseen() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(root.path());
    drop(with_a_rare_topic(&storage, &dir, 5));
    let told = |log: &Arc<Log>, topic| {
        let (found, ended) = read_all(log, topic, 0);
        (found.into_iter().map(|(offset, _)| offset).collect::<Vec<_>>(), ended)
    };
    for sequence in 1..4 {
        hurt(&storage, &dir, sequence);
    }
    let log = open_to_read(&storage, &dir).unwrap();
    let (found, ended) = told(&log, 1);
    ended.expect("corrupt records of another topic must not be read");
    assert_eq!(found, [0, 1, 2]);
    let (found, ended) = told(&log, 0);
    assert!(matches!(ended, Err(Error::CorruptData { .. })), "{ended:?}");
    assert!((900..1800).contains(&found.len()), "all records before must be read");
}

#[test]
fn who_reads_a_rare_topic_jumps_within_a_segment_too() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(root.path());
    drop(with_a_rare_topic(&storage, &dir, 1));
    hurt(&storage, &dir, 0);
    let log = open_to_read(&storage, &dir).unwrap();
    let (found, ended) = read_all(&log, 1, 0);
    ended.expect("the index must lead from one to the next");
    assert_eq!(found.len(), 3);
}

#[test]
fn what_is_passed_over_is_what_would_have_been_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(root.path());
    create_log(&*storage, &dir, 5, WriteMode::Mapped);
    let log = open(&storage, &dir, TestMember::new(0, 1)).unwrap();
    let mut written = vec![Vec::new(); 5];
    let mut state = 7u64;
    for i in 0..4000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Topic 0 has most records, topic 4 nearly none.
        let topic = ((state >> 40) % 4096).checked_ilog2().map_or(4, |bits| 11 - bits.min(11));
        let topic = topic.min(4) as usize;
        append(&log, topic as u32, &[&value(i)]).unwrap();
        written[topic].push(value(i));
        if state % 701 == 0 {
            log.roll_now().unwrap();
        }
    }
    assert!(written.iter().all(|topic| !topic.is_empty()));
    let reader = open_to_read(&storage, &dir).unwrap();
    for (topic, written) in written.iter().enumerate() {
        for from in (0..written.len()).step_by(written.len() / 7 + 1) {
            let (found, ended) = read_all(&reader, topic as u32, from as u64);
            ended.unwrap();
            let expected: Vec<_> = (from as u64..).zip(written[from..].iter().cloned()).collect();
            assert_eq!(found, expected, "topic {topic} from {from}");
        }
    }
}
