//! Creating a whole log: its directory is filled under a name that no other process knows yet.

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, IoResult, Result};
use crate::format::block::Kind;
use crate::format::segment::{Mark, SegmentHeader};
use crate::format::settings::WriteMode;
use crate::format::state::{LogState, TopicState};
use crate::format::{FIRST_BLOCK, PAGE, control::flag, names};
use crate::segment::create::{Builder, own_header, own_len};
use crate::segment::index::{Index, write_file};
use crate::segment::{Reading, Segment};
use crate::storage::{MapAccess, OpenMode, Storage};

use super::append::RESERVE;
use super::chain::list_segments;
use super::control::Control;
use super::guard::{Which, wait_for_flock};

/// Bytes allocated for a new segment.
pub const FIRST_ALLOCATION: u64 = 256 << 10;

/// Return the most bytes of one append in segments of this size, headers included.
pub fn max_group_len(segment_bytes: u64) -> u64 {
    (segment_bytes / 4).min(64 << 20)
}

/// Return the bytes to allocate for a new segment, by the bulk of its snapshot. The changes since
/// may need as much again, and the largest group must fit after them. If the log's segment size is
/// too small for that, the segment is larger, and whole from the beginning: others map what they
/// find.
pub fn new_segment_len(segment_bytes: u64, snapshot: usize) -> u64 {
    let own = FIRST_BLOCK + 2 * own_len(snapshot) + RESERVE;
    let len = if own + max_group_len(segment_bytes) <= segment_bytes {
        FIRST_ALLOCATION.min(segment_bytes).max(own)
    } else {
        own + segment_bytes
    };
    len.next_multiple_of(PAGE)
}

/// How long a deletion waits for a sync that is under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// The properties of a new log.
#[derive(Clone, Debug)]
pub struct LogSpec {
    /// Its generation.
    pub generation: [u8; 16],
    /// Bytes at which a segment is full.
    pub segment_bytes: u64,
    /// Topics that it begins with, by number.
    pub topics: Vec<(u32, TopicState)>,
    /// How processes write to the store.
    pub write_mode: WriteMode,
    /// Permission bits of its files.
    pub file_mode: u32,
}

/// Fill an existing, empty directory with a log, and sync everything in it. The caller syncs the
/// directory's own name. The first recovery makes the control page.
///
/// # Errors
/// `SystemCallFailed` or `NoSpace`; the directory is then half filled and must be removed.
pub fn create(storage: &dyn Storage, dir: &Path, spec: &LogSpec) -> Result<()> {
    let mut state = LogState::default();
    for (number, topic) in &spec.topics {
        if !state.set_topic(*number, *topic) {
            return Err(Error::invalid(format!(
                "a log holds at most {} topics",
                crate::format::state::MAX_TOPICS
            )));
        }
    }
    let snapshot = state.encode_since(&LogState::default());
    let len = new_segment_len(spec.segment_bytes, snapshot.len());
    let path = dir.join(names::segment(0));
    let access = MapAccess::WriteThrough;
    let mut segment = Builder::new(storage, path.clone(), len, len, spec.file_mode, access)?;
    segment.block(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot)?;
    let header = SegmentHeader {
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
    let segment = segment.into_segment(path, header);
    Index::replace(storage, dir, &segment, spec.segment_bytes, &[], spec.file_mode)?;
    make_rest(storage, dir, spec.write_mode, spec.file_mode)?;
    // Last, and together: a journaling file system then writes its journal once for all new files.
    segment.file().sync_all().doing("sync", segment.path())?;
    storage.sync_dir(dir).doing("sync", dir)
}

/// Make what a log has beside its segments, all of it empty: files to be locked, and a place for what is
/// set aside.
///
/// # Errors
/// `SystemCallFailed` or `NoSpace`.
pub fn make_rest(storage: &dyn Storage, dir: &Path, how: WriteMode, file_mode: u32) -> Result<()> {
    let by_file = ["lock.append", "lock.sync"];
    let by_file = by_file.into_iter().filter(|_| how == WriteMode::Pwrite);
    for lock in ["lock"].into_iter().chain(by_file) {
        write_file(storage, &dir.join(lock), &[], 0, lock_mode(file_mode))?;
    }
    let quarantine = dir.join("quarantine");
    storage.create_dir(&quarantine, dir_mode(file_mode)).doing("create", &quarantine)
}

/// Return the permission bits of a lock file: a user without write permission must not be able to
/// lock out writers.
pub fn lock_mode(file_mode: u32) -> u32 {
    let writers = file_mode & 0o222;
    writers | writers << 1
}

/// Return the permission bits of a directory for files of this mode: users that may read may enter.
pub fn dir_mode(file_mode: u32) -> u32 {
    file_mode | (file_mode & 0o444) >> 2
}

/// Mark a log deleted for all processes that have it open. A log without a usable control page, or
/// with an unfinished directory, is open nowhere.
///
/// # Errors
/// `SystemCallFailed` when the page cannot be written, `LockTimeout` when a sync takes very long.
pub fn mark_deleted(storage: &dyn Storage, dir: &Path) -> Result<()> {
    say_deleted(storage, dir, true)
}

/// Clear the flag that [`mark_deleted`] set. The caller knows that no process deletes the log.
///
/// # Errors
/// As [`mark_deleted`].
pub fn mark_not_deleted(storage: &dyn Storage, dir: &Path) -> Result<()> {
    say_deleted(storage, dir, false)
}

fn say_deleted(storage: &dyn Storage, dir: &Path, deleted: bool) -> Result<()> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let Some((_, generation)) = names::parse_log_dir(&name) else { return Ok(()) };
    // Only stores that are written by `pwrite` have lock files; there no other process may store
    // flags meanwhile.
    let path = dir.join(Which::Sync.file());
    let lock = storage.open(&path, OpenMode::ReadWrite).ok();
    let access = if lock.is_some() { MapAccess::WriteThrough } else { MapAccess::Write };
    let control = match Control::open(storage, dir, generation, access) {
        Ok(control) => control,
        // A process that has it open would continue. So it stays for the next sweep, which marks it
        // first.
        Err(error) if error.os_error().is_some_and(|errno| errno != libc::ENOENT) => {
            return Err(error);
        }
        Err(_) => return Ok(()),
    };
    if let Some(lock) = &lock {
        wait_for_flock(&**lock, &path, Some(PATIENCE))?;
    }
    control.set_flag(flag::DELETED, deleted)?;
    control.wake_all();
    Ok(())
}

/// Return true for a log that was never used, or was deleted: its removal loses nothing. In doubt
/// false.
pub fn is_unused(storage: &dyn Storage, dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let Some((_, generation)) = names::parse_log_dir(&name) else { return false };
    match Control::open_unmapped(storage, dir, generation) {
        Ok(control) => control.is_deleted(),
        Err(error) if error.is_not_found() => is_empty(storage, dir, generation).unwrap_or(false),
        Err(_) => false,
    }
}

/// Return true for a log that has only its first snapshot.
fn is_empty(storage: &dyn Storage, dir: &Path, generation: [u8; 16]) -> Result<bool> {
    match list_segments(storage, dir)?[..] {
        [] => Ok(true),
        [0] => {
            let segment = Segment::open_to_read(storage, dir, generation, 0, 0, Reading::Pread)?;
            let snapshot = segment.opening()?;
            Ok(segment.word(snapshot.position) == 0)
        }
        _ => Ok(false),
    }
}
