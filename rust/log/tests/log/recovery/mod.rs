//! Recovery with an obstacle: a wrong control page, marks that say nothing, a disk that refuses
//! reads, bytes that arrived alone.
//!
//! Also what a dry run lists before a repair.

mod arrivals;
mod carrying;
mod damage;
mod deciding;
mod ends;
mod headers;
mod page;

use std::path::Path;
use std::sync::Arc;

use crate::common::place::Place;
use crate::common::{LOG, TestMember, append, open_as, read_all, settings};
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::segment::HEADERS;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, Planned, RepairKind, RepairStep, mend, plan};
use falaj::internals::segment::{Check, Reading, Segment};
use falaj::internals::storage::{OpenMode, Storage};

fn segment_of(storage: &Arc<dyn Storage>, dir: &Path, sequence: u64) -> Segment {
    Segment::open_to_read(&**storage, dir, LOG, sequence, 0, Reading::Pread).unwrap()
}

fn rewrite(storage: &Arc<dyn Storage>, path: &Path, position: u64, bytes: &[u8]) {
    storage.open(path, OpenMode::ReadWrite).unwrap().write_at(bytes, position).unwrap();
}

/// Put a header into both of its places.
fn rewrite_header(storage: &Arc<dyn Storage>, path: &Path, sector: &[u8]) {
    HEADERS.iter().for_each(|at| rewrite(storage, path, *at, sector));
}

fn values_of(log: &Arc<Log>, topic: u32) -> Vec<Vec<u8>> {
    let (found, ended) = read_all(log, topic, 0);
    ended.unwrap();
    assert!(found.iter().zip(0..).all(|((offset, _), n)| *offset == n), "{found:?}");
    found.into_iter().map(|(_, value)| value).collect()
}

/// A log that a process of incarnation 1 has appended to, synced, and left.
fn left() -> Place {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    log.sync_clean().unwrap();
    p
}

/// Positions of the blocks that a segment holds, up to the first zero.
fn blocks_of(storage: &Arc<dyn Storage>, dir: &Path, sequence: u64) -> Vec<u64> {
    let segment = segment_of(storage, dir, sequence);
    let (mut position, mut found) = (FIRST_BLOCK, Vec::new());
    while let Some(block) = segment.block(position, Check::Header).unwrap() {
        found.push(position);
        position = block.end();
    }
    found
}

/// An incarnation without any process when the log was left.
const LATER: u64 = 9;

/// The steps that a repair of the log would do.
fn told(storage: &Arc<dyn Storage>, p: &Place) -> Planned {
    plan(storage, &p.dir, &settings(p.mode), LATER).unwrap()
}

/// Repair the log, in the order of `falaj repair`; return all steps, and the log.
fn repaired(storage: &Arc<dyn Storage>, p: &Place) -> (Vec<RepairStep>, Arc<Log>) {
    let member = TestMember::new(0, LATER);
    let mut steps = mend(storage, &p.dir, &settings(p.mode), &member).unwrap();
    let log = open_as(storage, &p.dir, member, p.mode).unwrap();
    steps.extend(log.mend_latch().unwrap());
    steps.extend(log.mend_offsets().unwrap());
    steps.extend(log.restore_headers().unwrap());
    steps.extend(log.mend_indexes().unwrap());
    (steps, log)
}

fn kinds(steps: &[RepairStep]) -> Vec<RepairKind> {
    steps.iter().map(|step| step.mend).collect()
}
