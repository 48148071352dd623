//! Small files and directories, made completely or not at all.
//!
//! Owns the one way in which the store makes a file that others may find. The steps are temporary
//! name, content, `fsync`, rename without replacing, `fsync` of the directory. After a crash at any
//! point the file is whole or does not exist; [`super::sweep`] knows the names of leftovers. All
//! writes here happen under the claim.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::temporary;
use crate::error::{Error, IoResult, Result};
use crate::segment::index::write_file;
use crate::storage::{File, OpenMode, Stat, Storage};

/// More than any settings file has.
pub(super) const MAX_SETTINGS: usize = 64 << 10;

/// Read a settings file; `None` when it does not exist.
pub(super) fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>> {
    let file = open_to_read(storage, path)?;
    file.map(|file| read_at(&*file, path, 0, MAX_SETTINGS)).transpose()
}

/// Read the beginning of a file that may be large; `None` when it does not exist.
pub(super) fn read_up_to(storage: &dyn Storage, path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let Some(file) = open_to_read(storage, path)? else { return Ok(None) };
    let len = file.stat().doing("look at", path)?.len;
    read_at(&*file, path, 0, len.min(most) as usize).map(Some)
}

/// Read bytes of a file; fewer if it ends before.
pub(super) fn read_at(file: &dyn File, path: &Path, position: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let got = file.read_at(&mut bytes, position).doing("read", path)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Open a file; `None` when it does not exist.
pub(super) fn open_to_read(storage: &dyn Storage, path: &Path) -> Result<Option<Arc<dyn File>>> {
    storage.open(path, OpenMode::Read).if_there("open", path)
}

/// Make a file that does not exist yet, durable when this returns.
pub(super) fn put_new(storage: &dyn Storage, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let temporary = prepare(storage, path, bytes, bytes.len() as u64, mode)?;
    rename_new(storage, &temporary, path)
}

/// Make the temporary file, `len` bytes long and allocated, and sync it.
pub(super) fn prepare(
    storage: &dyn Storage,
    path: &Path,
    bytes: &[u8],
    len: u64,
    mode: u32,
) -> Result<PathBuf> {
    let (temporary, file) = begin(storage, path, bytes, len, mode)?;
    sync(&*file, &temporary)?;
    Ok(temporary)
}

/// Make it as [`prepare`], but do not sync it yet.
pub(super) fn begin(
    storage: &dyn Storage,
    path: &Path,
    bytes: &[u8],
    len: u64,
    mode: u32,
) -> Result<(PathBuf, Arc<dyn File>)> {
    let temporary = temporary(path);
    // An existing one is a dead process's: only the holder of the claim makes it.
    let file = write_file(storage, &temporary, bytes, len, mode)?;
    Ok((temporary, file))
}

/// Make a file of `len` bytes that does not exist yet, and sync it. Bytes that no part
/// has are zero, and a hole where the file system has them. The caller syncs the directory. After an error
/// there is no file.
pub(super) fn put_parts(
    storage: &dyn Storage,
    path: &Path,
    len: u64,
    parts: &[(u64, &[u8])],
    mode: u32,
) -> Result<()> {
    let file = storage.open(path, OpenMode::CreateNew(mode)).doing("create", path)?;
    let end = parts.last().map_or(0, |(position, bytes)| position + bytes.len() as u64);
    // Only its last byte gives a file its length.
    let last: &[_] = if end < len { &[(len - 1, &[0][..])] } else { &[] };
    let mut all = parts.iter().chain(last);
    let written = all.try_for_each(|(position, bytes)| file.write_at(bytes, *position));
    let written = written.doing("write", path).and_then(|()| sync(&*file, path));
    if written.is_err() {
        let _ = storage.unlink(path);
    }
    written
}

/// Sync a file.
pub(super) fn sync(file: &dyn File, path: &Path) -> Result<()> {
    file.sync_all().doing("sync", path)
}

/// Rename without replacing, and sync that.
pub(super) fn rename_new(storage: &dyn Storage, from: &Path, to: &Path) -> Result<()> {
    storage.rename_new(from, to).doing("rename to", to)?;
    sync_parent(storage, to)
}

/// Sync the directory that has a path.
pub(super) fn sync_parent(storage: &dyn Storage, path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), |directory| sync_dir(storage, directory))
}

/// Sync a directory.
pub(super) fn sync_dir(storage: &dyn Storage, path: &Path) -> Result<()> {
    storage.sync_dir(path).doing("sync", path)
}

/// Make a directory, unless it exists; return true when it was made.
pub(crate) fn make_dir(storage: &dyn Storage, path: &Path, mode: u32) -> Result<bool> {
    match storage.create_dir(path, mode) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            expect_dir(storage, path).map(|_| false)
        }
        Err(error) => Err(Error::io("create", path, error)),
    }
}

/// Look at a path; `None` if it does not exist.
pub(super) fn stat(storage: &dyn Storage, path: &Path) -> Result<Option<Stat>> {
    storage.stat(path).if_there("look at", path)
}

/// Return true for an existing directory that is no link.
pub(super) fn is_dir(storage: &dyn Storage, path: &Path) -> Result<bool> {
    Ok(stat(storage, path)?.is_some_and(|stat| stat.is_dir))
}

/// Look at a directory of a store: it must exist, and be no symbolic link.
pub(super) fn expect_dir(storage: &dyn Storage, path: &Path) -> Result<Stat> {
    let stat = storage.stat(path).doing("look at", path)?;
    if stat.is_dir {
        return Ok(stat);
    }
    Err(Error::io("use", path, io::Error::from_raw_os_error(libc::ENOTDIR)))
}

/// Check that a path leads through directories of the store alone: a symbolic link in place of one
/// would lead out of it. Missing parts lead nowhere.
pub(super) fn expect_inside(storage: &dyn Storage, root: &Path, path: &Path) -> Result<()> {
    for directory in path.ancestors().skip(1).take_while(|directory| *directory != root) {
        match expect_dir(storage, directory) {
            Err(error) if error.is_not_found() => {}
            looked => drop(looked?),
        }
    }
    Ok(())
}

/// List the names in a directory.
pub(super) fn list(storage: &dyn Storage, path: &Path) -> Result<Vec<String>> {
    storage.list(path).doing("list", path)
}

/// List the names in a directory; none if it does not exist.
pub(super) fn list_if_there(storage: &dyn Storage, path: &Path) -> Result<Vec<String>> {
    Ok(storage.list(path).if_there("list", path)?.unwrap_or_default())
}

/// Remove a file if it exists.
pub(super) fn unlink(storage: &dyn Storage, path: &Path) -> Result<()> {
    storage.unlink(path).if_there("remove", path).map(drop)
}

/// Remove a directory if it exists and is empty.
pub(super) fn remove_dir(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.remove_dir(path) {
        Err(error) if holds_something(&error) => Ok(()),
        removed => removed.if_there("remove", path).map(drop),
    }
}

fn holds_something(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST))
}

/// Draw sixteen random bytes.
pub(super) fn random_id(storage: &dyn Storage, for_what: &Path) -> Result<[u8; 16]> {
    let mut id = [0; 16];
    for half in id.chunks_exact_mut(8) {
        let drawn = storage.random().doing("draw a random id for", for_what)?;
        half.copy_from_slice(&drawn.to_le_bytes());
    }
    Ok(id)
}
