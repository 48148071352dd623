//! Recovery where something stands in its way: a control page that is not the log's, marks that tell
//! nothing, a disk that refuses a look, bytes that arrived without those before them.

mod arrivals;
mod carrying;
mod damage;
mod page;

use std::path::Path;
use std::sync::Arc;

use crate::common::place::Place;
use crate::common::{LOG, TestMember, append, read_all};
use falaj::format::settings::WriteMode;
use falaj::log::Log;
use falaj::segment::{Reading, Segment};
use falaj::storage::{Open, Storage};

fn segment_of(storage: &Arc<dyn Storage>, dir: &Path, sequence: u64) -> Segment {
    Segment::open_to_read(&**storage, dir, LOG, sequence, 0, Reading::Pread).unwrap()
}

fn rewrite(storage: &Arc<dyn Storage>, path: &Path, position: u64, bytes: &[u8]) {
    storage.open(path, Open::ReadWrite).unwrap().write_at(bytes, position).unwrap();
}

fn values_of(log: &Arc<Log>, topic: u32) -> Vec<Vec<u8>> {
    let (found, ended) = read_all(log, topic, 0);
    ended.unwrap();
    assert!(found.iter().zip(0..).all(|((offset, _), n)| *offset == n), "{found:?}");
    found.into_iter().map(|(_, value)| value).collect()
}

/// A log that a process has appended to, synced, and left, in incarnation 1.
fn left() -> Place {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    log.sync_clean().unwrap();
    p
}
