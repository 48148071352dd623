//! The directory in which a copy is built, how it gets its name, and leftovers of dead builders.
//!
//! Owns the directories `<name>.<random>.tmp` beside a destination. Invariant: a process that
//! builds in such a directory holds the flock of the `claim` in it. It holds the lock from before
//! the first byte until the copy has its name; the kernel releases it when the process dies. So a
//! directory with a free lock has no builder, and the next builder of the same name removes it.
//! [`super::backup`] and [`super::build`] define the contents. See `docs/PROTOCOL.md`, "Backup".

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::files;
use super::layout::{TEMPORARY, top};
use super::lockfile::LockFile;
use super::modes::Modes;
use crate::error::{Error, IoResult, Result};
use crate::storage::{Filesystem, LockKind, Storage};

/// How often another name is tried when a sweep removes a new directory as a dead one's.
const TRIES: usize = 8;

/// A directory in which a copy is built.
#[derive(Debug)]
pub(super) struct Unfinished {
    path: PathBuf,
    destination: PathBuf,
    /// True if the destination is an empty directory.
    replaces: bool,
    _claim: LockFile,
}

impl Unfinished {
    /// Remove leftovers beside a destination, and make a new directory. `replaces` is the result of
    /// [`is_empty_directory`].
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub(super) fn begin(
        storage: &dyn Storage,
        destination: &Path,
        replaces: bool,
        modes: Modes,
    ) -> Result<Self> {
        sweep(storage, destination);
        for _ in 0..TRIES {
            let path = place(storage, destination)?;
            make_new(storage, &path, modes.directory)?;
            match hold(storage, &path, modes.lock) {
                Ok(Some(_claim)) => {
                    let destination = destination.to_path_buf();
                    return Ok(Self { path, destination, replaces, _claim });
                }
                Ok(None) => {}
                Err(error) => {
                    remove(storage, &path);
                    return Err(error);
                }
            }
        }
        let busy = std::io::Error::from(ErrorKind::ResourceBusy);
        Err(Error::io("build a copy beside", destination, busy))
    }

    /// Return the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Give the directory, which is synced completely, the name of its destination.
    ///
    /// # Errors
    /// `SystemCallFailed`, also when another process took the name meanwhile.
    pub(super) fn publish(&self, storage: &dyn Storage) -> Result<()> {
        if self.replaces {
            files::remove_dir(storage, &self.destination)?;
        }
        let renamed = storage.rename_new(&self.path, &self.destination);
        renamed.doing("rename to", &self.destination)?;
        files::sync_parent(storage, &self.destination)
    }

    /// Remove it.
    pub(super) fn discard(self, storage: &dyn Storage) {
        remove(storage, &self.path);
    }
}

/// Return true for an empty directory, false for a missing one. `what` is to be built there.
///
/// # Errors
/// `InvalidArgument` for anything else.
pub(super) fn is_empty_directory(storage: &dyn Storage, path: &Path, what: &str) -> Result<bool> {
    let Some(stat) = files::stat(storage, path)? else { return Ok(false) };
    if stat.is_dir && files::list(storage, path)?.is_empty() {
        return Ok(true);
    }
    Err(Error::invalid(format!(
        "{} exists already; {what} needs a place that is missing or an empty directory",
        path.display()
    )))
}

/// Choose a name beside the destination that no other process uses.
fn place(storage: &dyn Storage, destination: &Path) -> Result<PathBuf> {
    let random = storage.random().doing("draw a number for", destination)?;
    let mut name = destination.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:08x}{TEMPORARY}", random as u32));
    Ok(destination.with_file_name(name))
}

/// Return true for the names that [`place`] makes for a destination.
fn is_place(name: &str, of: &str) -> bool {
    let random = name.strip_prefix(of).and_then(|rest| rest.strip_prefix('.'));
    let random = random.and_then(|rest| rest.strip_suffix(TEMPORARY)).unwrap_or_default();
    random.len() == 8 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Take the lock of a new directory; `None` when a sweep came in between and removes it.
fn hold(storage: &dyn Storage, path: &Path, mode: u32) -> Result<Option<LockFile>> {
    let claim = match LockFile::find_or_create(storage, &path.join(top::CLAIM), mode) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let ours = match claim.try_lock(LockKind::Exclusive) {
        Ok(locked) => locked && claim.in_place(storage)?,
        // A file system without locks: no other process gets one either, so nothing is swept.
        Err(_) => true,
    };
    Ok(ours.then_some(claim))
}

/// Remove leftovers. An obstacle leaves them in place, where they do no harm.
fn sweep(storage: &dyn Storage, destination: &Path) {
    let (Some(parent), Some(name)) = (destination.parent(), destination.file_name()) else {
        return;
    };
    let Some(name) = name.to_str().filter(|_| is_ours_to_sweep(storage, parent)) else { return };
    let names = storage.list(parent).unwrap_or_default();
    for path in names.iter().filter(|left| is_place(left, name)).map(|left| parent.join(left)) {
        // A link leads to another owner's directory.
        if !storage.stat(&path).is_ok_and(|stat| stat.is_dir) {
            continue;
        }
        match LockFile::find(storage, &path.join(top::CLAIM)) {
            Ok(Some(claim)) => {
                let free = claim.try_lock(LockKind::Exclusive).unwrap_or(false);
                if free && claim.in_place(storage).unwrap_or(false) {
                    remove(storage, &path);
                }
            }
            // Just begun, or nearly removed. An empty one is removed, and its builder begins again.
            Ok(None) => drop(storage.remove_dir(&path)),
            Err(_) => {}
        }
    }
}

/// Return true if locks show which builders live, and no other user can replace what is removed.
fn is_ours_to_sweep(storage: &dyn Storage, parent: &Path) -> bool {
    let local = matches!(
        storage.filesystem(parent),
        Ok(Filesystem::Promises(_) | Filesystem::CopyOnWrite(_))
    );
    local && storage.stat(&parent.join(".")).is_ok_and(|stat| stat.mode & 0o002 == 0)
}

/// Remove a directory and all in it, its lock last: until then it is recognised for what it is.
fn remove(storage: &dyn Storage, path: &Path) {
    for name in storage.list(path).unwrap_or_default() {
        let inside = path.join(&name);
        if storage.stat(&inside).is_ok_and(|stat| stat.is_dir) {
            remove(storage, &inside);
        } else if name != top::CLAIM {
            let _ = storage.unlink(&inside);
        }
    }
    let _ = storage.unlink(&path.join(top::CLAIM));
    let _ = storage.remove_dir(path);
}

/// Make a directory that does not exist yet.
pub(super) fn make_new(storage: &dyn Storage, path: &Path, mode: u32) -> Result<()> {
    storage.create_dir(path, mode).doing("create", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_of_the_same_name_are_swept() {
        assert!(is_place("copy.0123abcd.tmp", "copy"));
        for other in
            ["copy", "copy.tmp", "copy.0123ABCD.tmp", "copy.0123abc.tmp", "copy2.0123abcd.tmp"]
        {
            assert!(!is_place(other, "copy"), "{other}");
        }
    }
}
