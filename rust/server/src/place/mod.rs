//! A place: objects in a directory, for the stores of other machines.
//!
//! Owns the files below its root. It keeps the promises of `DirectoryPlace` in the Python package, and shares its
//! layout: an object is a file, drafts lie in `.new`, and the lock of a draft tells whether its writer lives. So both
//! may use one directory, also at the same time. Invariant: an object that a read or a listing shows, or whose create
//! is answered, is on stable storage, with its name and its folders. No symbolic link below the root is followed.
//! Everything here blocks; the HTTP door calls it on the pool. Prose: docs/PLACE.md, "Places".

mod key;
mod list;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{self, Errno};
use tokio::sync::Notify;

use crate::config::Config;
use crate::store::enter;

pub use key::{KEY_BYTES_MAX, check_key, check_prefix};
pub use list::Listed;

/// Drafts lie here.
const NEW: &str = ".new";
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The root itself may be a symbolic link.
const ROOT: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const OBJECT: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const DRAFT: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// As Python's: the user's mask takes away the rest.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);
/// Folders that are remembered as synced; beyond that all are synced once more.
const REMEMBERED: usize = 10_000;

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The directory or its `.new` is gone: its disk is not mounted.
    Gone(PathBuf),
    /// An object has the name of a folder of this key.
    Taken(String),
    /// There is a folder of this name. An empty one stays, since other processes may be filling it.
    Folder(String),
    /// Another process took the draft for that of a dead one.
    Swept,
    /// The file system makes no hard links.
    NoLinks(PathBuf),
    /// A call of the operating system.
    Call(PathBuf, Errno),
}

/// The answer of a call.
pub type Found<T> = Result<T, Failure>;

/// Objects in a directory.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    synced: Mutex<Synced>,
    waiting: Mutex<HashMap<String, (Arc<Notify>, usize)>>,
    /// Syncs and links, in their order.
    #[cfg(test)]
    steps: Mutex<Vec<String>>,
}

/// Folders that are known to be on stable storage.
#[derive(Debug, Default)]
struct Synced {
    /// Folders whose own names are.
    named: HashSet<String>,
    /// Folders whose entries are, as of some moment of this process.
    filled: HashSet<String>,
    /// Creates by folder that may have linked a name which is not.
    linking: HashMap<String, u64>,
}

/// An object that is open.
#[derive(Debug)]
pub struct Object {
    file: OwnedFd,
    /// Its bytes.
    pub size: u64,
}

impl Object {
    /// Read from a position; less than asked for where the object ends.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn read(&self, start: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        let mut at = 0;
        while at < len {
            match io::pread(&self.file, &mut bytes[at..], start + at as u64)? {
                0 => break,
                read => at += read,
            }
        }
        bytes.truncate(at);
        Ok(bytes)
    }
}

/// An object that is being written. It has no name yet, and is gone when this is dropped.
#[derive(Debug)]
pub struct Draft {
    file: OwnedFd,
    gone: Gone,
    path: PathBuf,
}

/// Deletes a draft's file, on the pool where an asynchronous thread drops it.
#[derive(Debug)]
struct Gone(Option<(OwnedFd, String)>);

impl Gone {
    /// Delete it on this thread.
    fn now(mut self) {
        if let Some((folder, name)) = self.0.take() {
            let _ = fs::unlinkat(&folder, name, AtFlags::empty());
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        let Some((folder, name)) = self.0.take() else { return };
        let unlink = move || {
            let _ = fs::unlinkat(&folder, name, AtFlags::empty());
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(unlink)),
            Err(_) => unlink(),
        }
    }
}

impl Draft {
    /// Write more bytes.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&mut self, mut bytes: &[u8]) -> Found<()> {
        while !bytes.is_empty() {
            let written = io::write(&self.file, bytes).map_err(|errno| self.told(errno))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    fn told(&self, errno: Errno) -> Failure {
        Failure::Call(self.path.clone(), errno)
    }
}

impl Place {
    /// Open the place that the settings name, if they name one. It is made in a directory that exists.
    ///
    /// # Errors
    /// A sentence for standard error.
    pub fn open(config: &Config) -> Result<Option<Arc<Self>>, String> {
        if config.place.is_empty() {
            return Ok(None);
        }
        let root = real(Path::new(&config.place));
        refuse_secrets(&root, config)?;
        let told = |errno: Errno| {
            format!(
                "place = {}: {errno}; a place is made in a directory that exists",
                root.display()
            )
        };
        Self::begin(root.clone()).map(|place| Some(Arc::new(place))).map_err(told)
    }

    fn begin(root: PathBuf) -> Result<Self, Errno> {
        match fs::mkdir(&root, FOLDER_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let opened = fs::open(&root, ROOT, Mode::empty())?;
        match fs::mkdirat(&opened, NEW, FOLDER_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        fs::fsync(&opened)?;
        if let Some(above) = root.parent() {
            fs::fsync(fs::open(above, ROOT, Mode::empty())?)?;
        }
        sweep(&fs::openat(&opened, NEW, FOLDER, Mode::empty())?)?;
        Ok(Self {
            root,
            synced: Mutex::default(),
            waiting: Mutex::default(),
            #[cfg(test)]
            steps: Mutex::default(),
        })
    }

    // --- Reading -----------------------------------------------------------------------------------------------------

    /// Open an object, or say that there is none under this key.
    ///
    /// # Errors
    /// Each [`Failure`].
    pub fn get(&self, key: &str) -> Found<Option<Object>> {
        self.told(key, || {
            let (path, name) = split(key);
            let Some(folder) = self.folder(path)? else { return Ok(None) };
            let file = match fs::openat(&folder, name, OBJECT, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(None),
                file => file?,
            };
            let status = fs::fstat(&file)?;
            if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
                return Ok(None);
            }
            self.settle(path, &folder)?;
            Ok(Some(Object { file, size: u64::try_from(status.st_size).unwrap_or(0) }))
        })
    }

    /// List at most so many objects below a folder (see [`check_prefix`]), in order of their keys.
    ///
    /// # Errors
    /// Each [`Failure`].
    pub fn list(&self, prefix: &str, after: &str, most: usize) -> Found<Vec<Listed>> {
        self.told(prefix, || {
            let path = prefix.strip_suffix('/').unwrap_or(prefix);
            let mut found = Vec::new();
            if let Some(folder) = self.folder(path)? {
                list::walk(&folder, prefix, after, most, &mut found)?;
            }
            Ok(found)
        })
    }

    /// Watch a key: the notice comes at each create of this process. Look at the object after the watch began.
    pub fn watch(self: &Arc<Self>, key: &str) -> Watch {
        let mut waiting = enter(&self.waiting);
        let (notify, watchers) = waiting.entry(key.to_owned()).or_default();
        *watchers += 1;
        Watch { place: Arc::clone(self), key: key.to_owned(), notify: Arc::clone(notify) }
    }

    /// Open a folder, or say that there is none. Its name is on stable storage then.
    fn folder(&self, path: &str) -> Found<Option<OwnedFd>> {
        let mut at = self.open_root()?;
        for (whole, part) in folders(path) {
            let Some(folder) = open_folder(&at, part, whole)? else { return Ok(None) };
            self.name(whole, at.as_fd())?;
            at = folder;
        }
        Ok(Some(at))
    }

    fn open_root(&self) -> Found<OwnedFd> {
        let gone = |errno| match errno {
            Errno::NOENT => Failure::Gone(self.root.clone()),
            errno => errno.into(),
        };
        let root = fs::open(&self.root, ROOT, Mode::empty()).map_err(gone)?;
        fs::statat(&root, NEW, AtFlags::SYMLINK_NOFOLLOW).map_err(gone)?;
        Ok(root)
    }

    /// Sync the name of a folder once: the process that made it may have been killed before it did.
    fn name(&self, path: &str, above: BorrowedFd<'_>) -> Found<()> {
        if enter(&self.synced).named.contains(path) {
            return Ok(());
        }
        self.sync(above, || format!("names of {}", split(path).0))?;
        remember(&mut enter(&self.synced).named, path);
        Ok(())
    }

    /// Sync the entries of a folder where some may not be on stable storage: what is shown must stay.
    fn settle(&self, path: &str, folder: &OwnedFd) -> Found<()> {
        let is_settled = {
            let synced = enter(&self.synced);
            synced.filled.contains(path) && !synced.linking.contains_key(path)
        };
        if !is_settled {
            self.sync(folder.as_fd(), || format!("entries of {path}"))?;
            remember(&mut enter(&self.synced).filled, path);
        }
        Ok(())
    }

    // --- Writing -----------------------------------------------------------------------------------------------------

    /// Begin an object.
    ///
    /// # Errors
    /// Each [`Failure`].
    pub fn draft(&self) -> Found<Draft> {
        self.told(NEW, || {
            let root = self.open_root()?;
            let new = fs::openat(&root, NEW, FOLDER, Mode::empty())?;
            let mut random = [0; 16];
            getrandom::fill(&mut random).map_err(|_| Errno::AGAIN)?;
            let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            let file = fs::openat(&new, &name, DRAFT, FILE_MODE)?;
            let path = self.root.join(NEW).join(&name);
            // Without locks no other process deletes it.
            let _ = fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            Ok(Draft { file, gone: Gone(Some((new, name))), path })
        })
    }

    /// Give a draft its name, unless there is an object under this key: true if it got it. Then or otherwise, the object
    /// under this key is on stable storage.
    ///
    /// # Errors
    /// Each [`Failure`]. After some of them the object may be there, and not on stable storage.
    pub fn publish(&self, draft: Draft, key: &str) -> Found<bool> {
        let published = self.publish_kept(&draft, key);
        draft.gone.now();
        published
    }

    fn publish_kept(&self, draft: &Draft, key: &str) -> Found<bool> {
        let (path, _) = split(key);
        let created = self.told(key, || {
            self.sync(draft.file.as_fd(), || "draft".to_owned())?;
            let folder = self.made(path)?;
            *enter(&self.synced).linking.entry(path.to_owned()).or_default() += 1;
            let created = self.link(draft, &folder, key);
            // Where this fails, each read of the folder syncs it from now on.
            self.sync(folder.as_fd(), || format!("entries of {path}"))?;
            let mut synced = enter(&self.synced);
            if let Some(linking) = synced.linking.get_mut(path) {
                *linking -= 1;
                if *linking == 0 {
                    synced.linking.remove(path);
                }
            }
            remember(&mut synced.filled, path);
            created
        })?;
        if created && let Some((notify, _)) = enter(&self.waiting).get(key) {
            notify.notify_waiters();
        }
        Ok(created)
    }

    fn link(&self, draft: &Draft, folder: &OwnedFd, key: &str) -> Found<bool> {
        let Some((new, draft)) = &draft.gone.0 else { return Err(Failure::Swept) };
        let (_, name) = split(key);
        #[cfg(test)]
        enter(&self.steps).push("link".to_owned());
        match fs::linkat(new, draft.as_str(), folder, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(it) if FileType::from_raw_mode(it.st_mode) == FileType::Directory => {
                    Err(Failure::Folder(key.to_owned()))
                }
                _ => Ok(false),
            },
            Err(Errno::NOENT) => Err(Failure::Swept),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                Err(Failure::NoLinks(self.root.clone()))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Open a folder, making what is missing. Its name is on stable storage then.
    fn made(&self, path: &str) -> Found<OwnedFd> {
        let mut at = self.open_root()?;
        for (whole, part) in folders(path) {
            let folder = match open_folder(&at, part, whole)? {
                None => {
                    enter(&self.synced).named.remove(whole);
                    match fs::mkdirat(&at, part, FOLDER_MODE) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    fs::openat(&at, part, FOLDER, Mode::empty())?
                }
                Some(folder) => folder,
            };
            self.name(whole, at.as_fd())?;
            at = folder;
        }
        Ok(at)
    }

    /// Delete an object; one that is not there is no error.
    ///
    /// # Errors
    /// Each [`Failure`].
    pub fn delete(&self, key: &str) -> Found<()> {
        self.told(key, || {
            let (path, name) = split(key);
            let Some(folder) = self.folder(path)? else { return Ok(()) };
            match fs::unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        })
    }

    // --- Calls -------------------------------------------------------------------------------------------------------

    #[cfg_attr(not(test), allow(clippy::unused_self, unused_variables))]
    fn sync(&self, file: BorrowedFd<'_>, what: impl FnOnce() -> String) -> Found<()> {
        #[cfg(test)]
        enter(&self.steps).push(format!("sync {}", what()));
        Ok(fs::fsync(file)?)
    }

    /// Name the path of a failed call.
    fn told<T>(&self, key: &str, call: impl FnOnce() -> Found<T>) -> Found<T> {
        call().map_err(|failure| match failure {
            Failure::Call(path, errno) if path.as_os_str().is_empty() => {
                Failure::Call(self.root.join(key), errno)
            }
            other => other,
        })
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Call(PathBuf::new(), errno)
    }
}

/// A key that somebody waits for.
#[derive(Debug)]
pub struct Watch {
    place: Arc<Place>,
    key: String,
    notify: Arc<Notify>,
}

impl Watch {
    /// It is notified at a create.
    pub fn notify(&self) -> &Notify {
        &self.notify
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut waiting = enter(&self.place.waiting);
        if let Some((_, watchers)) = waiting.get_mut(&self.key) {
            *watchers -= 1;
            if *watchers == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

/// Open a folder, or say that there is none.
fn open_folder(at: &OwnedFd, part: &str, path: &str) -> Found<Option<OwnedFd>> {
    match fs::openat(at, part, FOLDER, Mode::empty()) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => {
            let is_object = fs::statat(at, part, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::RegularFile);
            if is_object { Err(Failure::Taken(path.to_owned())) } else { Err(errno.into()) }
        }
    }
}

fn remember(folders: &mut HashSet<String>, path: &str) {
    if folders.len() >= REMEMBERED {
        folders.clear();
    }
    folders.insert(path.to_owned());
}

/// Folder and name of a key.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// The folders on the way to this one, and itself: the path and the name of each.
fn folders(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.filter(|end| *end > 0).map(|end| (&path[..end], split(&path[..end]).1))
}

/// Delete drafts of processes that no longer run: their locks are free.
fn sweep(new: &OwnedFd) -> Result<(), Errno> {
    for entry in Dir::read_from(new)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(file) = fs::openat(new, name, OBJECT, Mode::empty()) else { continue };
        if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::unlinkat(new, name, AtFlags::empty());
        }
    }
    Ok(())
}

/// The path without symbolic links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for above in whole.ancestors() {
        if let Ok(found) = above.canonicalize() {
            let rest = whole.strip_prefix(above).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { found } else { found.join(rest) };
        }
    }
    whole
}

/// Refuse a place that would give away what lies in it: a client that may read objects reads all of it.
fn refuse_secrets(root: &Path, config: &Config) -> Result<(), String> {
    let place = root.display();
    let store = real(Path::new(&config.store));
    if store.starts_with(root) || root.starts_with(&store) {
        return Err(format!(
            "place = {place}: a place and the store {} lie side by side, neither within the other",
            store.display()
        ));
    }
    for (name, path) in [
        ("access.principals", &config.access.principals),
        ("tls.certificate", &config.tls.certificate),
        ("tls.key", &config.tls.key),
    ] {
        if !path.is_empty() && real(Path::new(path)).starts_with(root) {
            return Err(format!(
                "place = {place}: {name} lies in it, where clients read and write; move that file"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
