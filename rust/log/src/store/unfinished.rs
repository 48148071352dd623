//! The directory in which a copy is built, how it gets its name, and leftovers of dead builders.
//!
//! Owns the directories `<name>.<random>.tmp` beside a destination. Invariant: a process that
//! builds in such a directory holds the flock of the `claim` in it. It holds the lock from before
//! the first byte until the copy has its name; the kernel releases it when the process dies. So a
//! directory with a free lock has no builder, and the next builder of the same name removes it. But a
//! builder that can go on takes over what another one with the same key left.
//! [`super::backup`] and [`super::build`] define the contents. See `docs/PROTOCOL.md`, "Backup".

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
            // Errors name what was asked for, and no directory beside it.
            storage.create_dir(&path, modes.directory).doing("create", destination)?;
            match hold(storage, &path, modes.lock) {
                Ok(Held::Ours(_claim)) => {
                    let destination = destination.to_path_buf();
                    return Ok(Self { path, destination, replaces, _claim });
                }
                Ok(Held::Theirs | Held::Gone) => {}
                Err(error) => {
                    remove(storage, &path);
                    return Err(error);
                }
            }
        }
        Err(busy(destination))
    }

    /// Do as [`Unfinished::begin`], in a directory whose name follows from the destination and a key.
    /// If a dead builder left it, take it over as it is; then the result says true.
    ///
    /// Where locks do not show who lives, or other users could have made the directory, it is a new
    /// one with a random name. The result says `None` then: no later builder goes on.
    ///
    /// # Errors
    /// As that one, and `LockTimeout` while another builder works in the directory.
    pub(super) fn go_on(
        storage: &dyn Storage,
        destination: &Path,
        replaces: bool,
        modes: Modes,
        key: u32,
    ) -> Result<(Self, Option<bool>)> {
        let path = named(destination, key);
        if !path.parent().is_some_and(|parent| is_ours_to_sweep(storage, parent)) {
            return Self::begin(storage, destination, replaces, modes).map(|new| (new, None));
        }
        sweep_but(storage, destination, Some(&path));
        for _ in 0..TRIES {
            let is_left = match storage.create_dir(&path, modes.directory) {
                Ok(()) => false,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => true,
                Err(error) => return Err(Error::io("create", destination, error)),
            };
            let Some(stat) = files::stat(storage, &path)? else { continue };
            // A link leads to another owner's directory.
            if !stat.is_dir {
                return Self::begin(storage, destination, replaces, modes).map(|new| (new, None));
            }
            match hold(storage, &path, modes.lock)? {
                // It was made for other permissions.
                Held::Ours(_claim) if is_left && stat.mode != modes.directory => {
                    remove(storage, &path);
                }
                Held::Ours(_claim) => {
                    let destination = destination.to_path_buf();
                    return Ok((Self { path, destination, replaces, _claim }, Some(is_left)));
                }
                Held::Theirs => {
                    let holder = "another process that makes the same store".to_owned();
                    return Err(Error::LockTimeout { path, waited: Duration::ZERO, holder });
                }
                Held::Gone => {}
            }
        }
        Err(busy(destination))
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

fn busy(destination: &Path) -> Error {
    Error::io("build a copy beside", destination, std::io::Error::from(ErrorKind::ResourceBusy))
}

/// Choose a name beside the destination that no other process uses.
fn place(storage: &dyn Storage, destination: &Path) -> Result<PathBuf> {
    let random = storage.random().doing("draw a number for", destination)?;
    Ok(named(destination, random as u32))
}

/// Return the name beside a destination that has a number.
fn named(destination: &Path, number: u32) -> PathBuf {
    let mut name = destination.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{number:08x}{TEMPORARY}"));
    destination.with_file_name(name)
}

/// Return true for the names that [`place`] makes for a destination.
fn is_place(name: &str, of: &str) -> bool {
    let random = name.strip_prefix(of).and_then(|rest| rest.strip_prefix('.'));
    let random = random.and_then(|rest| rest.strip_suffix(TEMPORARY)).unwrap_or_default();
    random.len() == 8 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The lock of a directory.
enum Held {
    Ours(LockFile),
    /// Another builder has it, or a sweep that is about to remove the directory.
    Theirs,
    /// The directory was removed, or its lock.
    Gone,
}

/// Take the lock of a directory.
fn hold(storage: &dyn Storage, path: &Path, mode: u32) -> Result<Held> {
    let claim = match LockFile::find_or_create(storage, &path.join(top::CLAIM), mode) {
        Err(error) if error.is_not_found() => return Ok(Held::Gone),
        other => other?,
    };
    match claim.try_lock(LockKind::Exclusive) {
        Ok(false) => Ok(Held::Theirs),
        Ok(true) if !claim.in_place(storage)? => Ok(Held::Gone),
        // A file system without locks: no other process gets one either, so nothing is swept.
        Ok(true) | Err(_) => Ok(Held::Ours(claim)),
    }
}

/// Remove leftovers. An obstacle leaves them in place, where they do no harm.
fn sweep(storage: &dyn Storage, destination: &Path) {
    sweep_but(storage, destination, None);
}

/// Do as [`sweep`], and leave one of them as it is.
fn sweep_but(storage: &dyn Storage, destination: &Path, kept: Option<&Path>) {
    let (Some(parent), Some(name)) = (destination.parent(), destination.file_name()) else {
        return;
    };
    let Some(name) = name.to_str().filter(|_| is_ours_to_sweep(storage, parent)) else { return };
    let names = storage.list(parent).unwrap_or_default();
    for path in names.iter().filter(|left| is_place(left, name)).map(|left| parent.join(left)) {
        if Some(&*path) == kept {
            continue;
        }
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
pub(super) fn remove(storage: &dyn Storage, path: &Path) {
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
