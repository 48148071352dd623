//! A new log, whole: its directory is filled under a name that nobody knows yet.

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::block::Kind;
use crate::format::control::at;
use crate::format::segment::{Header, Mark};
use crate::format::settings::WriteMode;
use crate::format::state::{LogState, TopicState};
use crate::format::{control::flag, names};
use crate::segment::create::{Builder, own_header, own_len};
use crate::segment::index::{Index, write_file};
use crate::storage::{Access, Storage};

use super::append::RESERVE;
use super::control::Control;

/// Bytes that a new segment is allocated with.
pub const FIRST_ALLOCATION: u64 = 1 << 20;

/// What a new log is to be.
#[derive(Clone, Debug)]
pub struct LogSpec {
    /// Its generation.
    pub generation: [u8; 16],
    /// Bytes at which a segment is full.
    pub segment_bytes: u64,
    /// Topics that it begins with, by number.
    pub topics: Vec<(u32, TopicState)>,
    /// How the store is written to.
    pub write_mode: WriteMode,
    /// Permission bits of its files.
    pub file_mode: u32,
}

/// Fill an existing, empty directory with a log, and sync everything in it. The caller syncs the
/// directory's own name. The control page is made by the first recovery.
///
/// # Errors
/// `Io` or `NoSpace`; the directory is then half filled and must be thrown away.
pub fn create(storage: &dyn Storage, dir: &Path, spec: &LogSpec) -> Result<()> {
    let mut state = LogState::default();
    for (number, topic) in &spec.topics {
        if !state.set_topic(*number, *topic) {
            let what = format!("a log holds at most {} topics", crate::format::state::MAX_TOPICS);
            return Err(Error::Invalid { what });
        }
    }
    let snapshot = state.encode_since(&LogState::default());
    let len =
        FIRST_ALLOCATION.min(spec.segment_bytes).max(4096 + own_len(snapshot.len()) + RESERVE);
    let path = dir.join(names::segment(0));
    let access = Access::WriteThrough;
    let mut segment = Builder::new(storage, path.clone(), len, len, spec.file_mode, access)?;
    segment.block(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot)?;
    let header = Header {
        log: spec.generation,
        sequence: 0,
        salt: segment.salt(),
        supersedes: false,
        previous: None,
        replaces: None,
        time_base_us: storage.now_us(),
    };
    let mark = Mark { serial: 1, position: segment.position(), clean: true, ..Mark::default() };
    segment.header(&header, &mark)?;
    segment.sync()?;
    let segment = segment.into_segment(path, header);
    Index::replace(storage, dir, &segment, spec.segment_bytes, &[], spec.file_mode)?;
    let mut locks = vec!["lock"];
    if spec.write_mode == WriteMode::Pwrite {
        locks.extend(["lock.append", "lock.sync"]);
    }
    for lock in locks {
        write_file(storage, &dir.join(lock), &[], 0, lock_mode(spec.file_mode))?;
    }
    let quarantine = dir.join("quarantine");
    let made = storage.create_dir(&quarantine, dir_mode(spec.file_mode));
    made.map_err(|e| Error::io("create", &quarantine, e))?;
    storage.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

/// Permission bits of a lock file: who may not write must not be able to lock out those who may.
pub fn lock_mode(file_mode: u32) -> u32 {
    let writers = file_mode & 0o222;
    writers | writers << 1
}

/// Permission bits of a directory beside files of this mode: who may read may enter.
pub fn dir_mode(file_mode: u32) -> u32 {
    file_mode | (file_mode & 0o444) >> 2
}

/// Tell all processes that have the log open that it was deleted. A log without a usable control
/// page, or whose directory was never finished, is open nowhere.
///
/// # Errors
/// `Io` when the page cannot be written.
pub fn mark_deleted(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let Some((_, generation)) = names::parse_log_dir(&name) else { return Ok(()) };
    let opened = Control::open(storage, dir, generation, Access::WriteThrough);
    let Ok(control) = opened else { return Ok(()) };
    control.set(at::FLAGS, control.flags() | flag::DELETED)?;
    control.rouse();
    Ok(())
}
