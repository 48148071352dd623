//! Lookups: what is passed over on the way is not believed, and what is found is checked.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::sync::Arc;

use common::*;
use falaj::error::Error;
use falaj::format::block::HEADER_LEN;
use falaj::log::Log;
use falaj::segment::Check;
use falaj::storage::real::RealStorage;
use falaj::storage::{Open, Storage};

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
    Ok(block.body()[parts.value.unwrap()].to_vec())
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
    let file = storage.open(&dir.join("00000000000000000000.log"), Open::ReadWrite).unwrap();
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
                        assert_ne!(offset, HURT, "bit {bit} is noticed");
                        assert_eq!(found, value(offset), "bit {bit}");
                    }
                    Err(Error::Corrupt { position, .. }) => {
                        assert_eq!(position, hurt, "bit {bit}, offset {offset}");
                        assert!(offset >= HURT, "what lies before is found, bit {bit}");
                    }
                    Err(other) => panic!("bit {bit}: {other}"),
                }
            }
            // From the next entry of the index on nothing leads past it.
            assert_eq!(look_up(&log, RECORDS - 1, check).unwrap(), value(RECORDS - 1));
        }
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
    let file = storage.open(&dir.join("00000000000000000000.idx"), Open::ReadWrite).unwrap();
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
