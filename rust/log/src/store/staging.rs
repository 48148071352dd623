//! Files that bulk loads stage beside a log: their places, and their removal.
//!
//! Owns the removal of staged parts, and what verification reports about them. Invariant: a removed
//! file has exactly a name that falaj gives, in the place where falaj puts it. No log ever names a
//! staged file. A commit copies records, so only an uncommitted load can miss a removed part. A
//! process that writes a part holds its lock. Between that and the commit no process does, and a
//! part is removed by the state of its load, or by age. [`crate::sink`] defines the contents of a
//! part. See `docs/PROTOCOL.md`, "Bulk loads".
//!
//! ```text
//! logs/<log>@<generation>/staging/<load>@<topic number>/<part>.<id>.tmp    being written
//!                                                      <part>.<id>.part   whole
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::files;
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::format::checksum::crc32;
use crate::format::part::{self, Frame, PartHeader};
use crate::log::verify::{Finding, Severity};
use crate::storage::{File, LockKind, OpenMode, Storage};

/// How long an unlocked part of an unknown load is kept.
pub const STALE_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Return the directory in which bulk loads stage their parts, by directory of the log.
pub fn staging_dir(log: &Path) -> PathBuf {
    log.join("staging")
}

/// Which parts of a log may be removed.
#[derive(Clone, Copy, Debug)]
pub struct Stale {
    /// Those that were not changed for this long.
    pub older_than: Duration,
    /// Those of bulk loads with this idempotency key, by id of its name, up to this version: topic
    /// number, id, version.
    pub spent: Option<(u32, u64, u64)>,
}

impl Default for Stale {
    fn default() -> Self {
        Self { older_than: STALE_AFTER, spent: None }
    }
}

/// Remove all that a bulk load has staged, even while processes write it; return how many files.
///
/// # Errors
/// `SystemCallFailed`; the next removal tries the rest.
pub fn remove_load(storage: &dyn Storage, dir: &Path) -> Result<u64> {
    let staging = dir.parent().map_or(Ok(false), |staging| files::is_dir(storage, staging))?;
    if !staging {
        return Ok(0);
    }
    let mut removed = 0;
    for name in list(storage, dir)? {
        if part::parse_file_name(&name).is_some() {
            files::unlink(storage, &dir.join(name))?;
            removed += 1;
        }
    }
    files::remove_dir(storage, dir)?;
    Ok(removed)
}

/// Remove all that any load has staged, with the log itself.
///
/// # Errors
/// As [`remove_load`].
pub(super) fn remove_all(storage: &dyn Storage, log: &Path) -> Result<()> {
    let staging = staging_dir(log);
    for name in list(storage, &staging)? {
        if part::parse_load_dir(&name).is_some() {
            remove_load(storage, &staging.join(name))?;
        }
    }
    files::remove_dir(storage, &staging)
}

/// Remove what dead bulk loads left in a log: unlocked, stale parts; return how many.
///
/// # Errors
/// As [`remove_load`].
pub fn sweep_staging(storage: &dyn Storage, log: &Path, stale: &Stale) -> Result<u64> {
    let staging = staging_dir(log);
    let mut removed = 0;
    for name in list(storage, &staging)? {
        let Some((_, number)) = part::parse_load_dir(&name) else { continue };
        let dir = staging.join(&name);
        let files = list(storage, &dir)?;
        for name in files.iter().filter(|name| part::parse_file_name(name).is_some()) {
            removed += u64::from(remove_stale(storage, &dir.join(name), number, stale)?);
        }
        // A process that begins in one just now makes it again.
        files::remove_dir(storage, &dir)?;
    }
    Ok(removed)
}

fn remove_stale(storage: &dyn Storage, path: &Path, number: u32, stale: &Stale) -> Result<bool> {
    let Ok(file) = storage.open(path, OpenMode::ReadWrite) else { return Ok(false) };
    let look = |error| Error::io("look at", path, error);
    let age_us = storage.now_us().saturating_sub(file.stat().map_err(look)?.modified_us);
    let is_old = i128::from(age_us) >= stale.older_than.as_micros() as i128;
    if !(is_old || is_spent(&*file, number, stale)) {
        return Ok(false);
    }
    // A process that writes it holds the lock, for as long as it needs.
    if !file.try_lock(LockKind::Exclusive).doing("lock", path)? {
        return Ok(false);
    }
    files::unlink(storage, path)?;
    Ok(true)
}

fn is_spent(file: &dyn File, number: u32, stale: &Stale) -> bool {
    let Some((topic, id, version)) = stale.spent else { return false };
    let mut bytes = [0; part::HEADER_LEN];
    if topic != number || file.read_at(&mut bytes, 0).ok() != Some(bytes.len()) {
        return false;
    }
    PartHeader::decode(&bytes).is_ok_and(|head| head.token.0 == id && head.token.1 <= version)
}

/// Check each whole part that is staged in a log; `tell` gets the number of bytes read, and its
/// error ends the check. Parts that disappear meanwhile were committed, aborted or swept.
///
/// # Errors
/// `SystemCallFailed` when a directory cannot be listed, and the errors of `tell`.
pub(super) fn look(
    storage: &dyn Storage,
    log: &Path,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Vec<Finding>> {
    let (staging, mut found) = (staging_dir(log), Vec::new());
    for load in list(storage, &staging)? {
        let Some((name, _)) = part::parse_load_dir(&load) else { continue };
        for file in list(storage, &staging.join(&load))? {
            // A part that is being written need not be whole.
            let Some((_, id, true)) = part::parse_file_name(&file) else { continue };
            let path = staging.join(&load).join(&file);
            let Some(part) = files::open_to_read(storage, &path)? else { continue };
            let Err(error) = check(part, &path, id, tell) else { continue };
            let finding = Finding::of_error(Severity::Damage, &path, &error);
            let remedy = format!(
                "stage this part of load {name} again, or abort the load: nothing of it was committed"
            );
            found.push(match error {
                Error::CorruptData { .. } => Finding { remedy: remedy.into(), ..finding },
                Error::UnsupportedVersion { .. } => finding,
                Error::SystemCallFailed { path: of, .. } if of == path => finding,
                other => return Err(other),
            });
        }
    }
    Ok(found)
}

/// Check every byte of a part against its frame.
fn check(
    file: Arc<dyn File>,
    path: &Path,
    id: u64,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut frames = FrameReader::new(file, path.to_path_buf(), id)?;
    frames.header()?;
    let mut body = Vec::new();
    while let Some((_, head)) = frames.next(&mut body)? {
        tell((head.len() + body.len()) as u64)?;
    }
    Ok(())
}

/// Reads the frames of a staged part, each checked.
#[derive(Debug)]
pub struct FrameReader {
    file: Arc<dyn File>,
    path: PathBuf,
    id: u64,
    position: u64,
    len: u64,
}

impl FrameReader {
    /// Begin with the first frame of the part with this id.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub fn new(file: Arc<dyn File>, path: PathBuf, id: u64) -> Result<Self> {
        let len = file.stat().doing("look at", &path)?.len;
        Ok(Self { file, path, id, position: part::HEADER_LEN as u64, len })
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Read what the file begins with.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn header(&self) -> Result<PartHeader> {
        let head = files::read_at(&*self.file, &self.path, 0, part::HEADER_LEN)?;
        PartHeader::decode(&head).in_file(&self.path, 0)
    }

    /// Read the next frame with its head, its body into `body`; `None` behind the last.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<(Frame, [u8; part::FRAME_LEN])>> {
        let (at, begin) = (self.position, self.position + part::FRAME_LEN as u64);
        if at >= self.len {
            return Ok(None);
        }
        let mut head = [0; part::FRAME_LEN];
        let cut_off = "a staged frame that is cut off";
        self.read(&mut head, at, cut_off)?;
        let frame = Frame::decode(&head, self.id, at).in_file(&self.path, at)?;
        let end = begin + u64::from(frame.len);
        if end > self.len {
            return Err(self.corrupt(at, cut_off));
        }
        body.resize(frame.len as usize, 0);
        self.read(body, begin, "a part that ends too early")?;
        if crc32(body) != frame.body_crc {
            return Err(self.corrupt(begin, "the checksum of staged records does not match"));
        }
        self.position = end;
        Ok(Some((frame, head)))
    }

    fn read(&self, bytes: &mut [u8], position: u64, short: &'static str) -> Result<()> {
        let got = self.file.read_at(bytes, position).doing("read", &self.path)?;
        if got < bytes.len() { Err(self.corrupt(position, short)) } else { Ok(()) }
    }

    /// The error for bytes that are corrupt.
    pub fn corrupt(&self, position: u64, what: &'static str) -> Error {
        Error::corrupt(&self.path, position, what)
    }
}

/// List the names in a directory; none if it is missing or a link.
fn list(storage: &dyn Storage, dir: &Path) -> Result<Vec<String>> {
    if !files::is_dir(storage, dir)? {
        return Ok(Vec::new());
    }
    files::list_if_there(storage, dir)
}
