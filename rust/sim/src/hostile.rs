//! Hostile bytes: what a disk or a file system may return instead of what we wrote.
//!
//! Two small judges beside the crash states, which cannot produce these. *Changed* bytes are bit
//! flips in a whole log. *Foreign* blocks lie behind a log's end, as on a file system that reuses a
//! deleted file's blocks without clearing them. Each read must return what was appended, or an
//! error.

use crate::truth::NOTHING;
use std::path::{Path, PathBuf};

use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::{OpenMode, Storage};
use falaj_twin::memory::MemoryStorage;

use crate::look::{Expected, look};
use crate::machine::{DIR, Machine, open_to_read};
use crate::op::Op;

/// Masks that change a byte: every change of the lowest bits, and some others.
const CHANGES: [u8; 9] = [1, 2, 3, 4, 5, 6, 7, 0x80, 0xff];

/// Change each byte of each segment of a small log; return how many logs were read.
///
/// # Errors
/// A change after which a reader returns wrong records without an error.
pub fn changed_bytes(mode: WriteMode) -> Result<u64, String> {
    let ops =
        [Op::Append, Op::Group, Op::DieUncommitted, Op::Roll, Op::Append, Op::Large, Op::Sync];
    // The records have keys, so that compaction removes some of them from blocks that keep others.
    let compacted =
        [Op::Extend, Op::Durable, Op::Roll, Op::Extend, Op::Extend, Op::Roll, Op::Compact];
    Ok(changed_in(mode, &ops)? + changed_in(mode, &compacted)?)
}

fn changed_in(mode: WriteMode, ops: &[Op]) -> Result<u64, String> {
    let machine = run(Machine::empty(mode), ops)?;
    let gone = machine.gone();
    let all = machine.truth.0.len();
    let whole = machine.storage.restart();
    let mut reads = 0;
    for path in segments(&whole)? {
        let bytes = content(&whole, &path)?;
        for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            for change in CHANGES {
                let changed = whole.restart();
                put(&changed, &path, at, &[byte ^ change])?;
                reads += 1;
                let Ok(reader) = open_to_read(&changed, mode) else { continue };
                let found = machine.truth.found_or_told(&reader, all, gone);
                let place = format!("{} at {at}, {byte:#x} ^ {change:#x}", path.display());
                found.map_err(|what| format!("{place}: {what}"))?;
            }
        }
    }
    Ok(reads)
}

/// Put blocks of another log's segment behind a log's end, sector by sector; return how many logs
/// were judged.
///
/// # Errors
/// A log that shows records that were never appended to it, or loses its own.
pub fn foreign_blocks(mode: WriteMode) -> Result<u64, String> {
    let ops = [Op::Append, Op::Append, Op::Group, Op::Extend, Op::Append, Op::Sync];
    let other = run(Machine::seeded(mode, 8), &ops)?;
    let mut looks = 0;
    for len in 1..ops.len() - 1 {
        let machine = run(Machine::seeded(mode, 7), &ops[..len])?;
        let whole = machine.storage.restart();
        let path = segments(&whole)?.pop().ok_or("a log without a segment")?;
        let (ours, theirs) = (content(&whole, &path)?, content(&other.storage, &path)?);
        let end = ours.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last + 8) & !7);
        put(&whole, &path, end, theirs.get(end..).unwrap_or_default())?;
        let all = machine.truth.0.len();
        let (truth, incarnation) = (&machine.truth, machine.incarnation());
        let expected = Expected {
            truth,
            least: all,
            most: all,
            gone: NOTHING,
            incarnation,
            cuts: &[],
            before: None,
        };
        look(&whole, mode, expected).map_err(|what| format!("behind {len} appends: {what}"))?;
        looks += 1;
    }
    Ok(looks)
}

fn run(machine: falaj::internals::error::Result<Machine>, ops: &[Op]) -> Result<Machine, String> {
    let failed = |e: falaj::internals::error::Error| format!("without any harm: {e}");
    let mut machine = machine.map_err(failed)?;
    ops.iter().try_for_each(|op| machine.run(*op)).map_err(failed)?;
    Ok(machine)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(e: std::io::Error) -> String {
    format!("the machine in memory: {e}")
}

fn segments(storage: &MemoryStorage) -> Result<Vec<PathBuf>, String> {
    let names = storage.list(Path::new(DIR)).map_err(failed)?;
    let segments = names.iter().filter(|name| name.ends_with(".log"));
    Ok(segments.map(|name| Path::new(DIR).join(name)).collect())
}

fn content(storage: &MemoryStorage, path: &Path) -> Result<Vec<u8>, String> {
    let file = storage.open(path, OpenMode::Read).map_err(failed)?;
    let mut bytes = vec![0; file.stat().map_err(failed)?.len as usize];
    file.read_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

fn put(storage: &MemoryStorage, path: &Path, at: usize, bytes: &[u8]) -> Result<(), String> {
    let file = storage.open(path, OpenMode::ReadWrite).map_err(failed)?;
    file.write_at(bytes, at as u64).map_err(failed)
}
