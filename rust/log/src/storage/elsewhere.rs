//! The machine's files, among them files that only stand for bytes elsewhere.
//!
//! Owns which files these are, and what of them can be read. A *stand-in* has the length and the
//! header pages of its segment, its end block, and perhaps the beginning of its blocks. A
//! [`Source`] fetches the rest, and gives the file's name to a whole one. Invariants: a byte that is not here is never
//! read as zero, but is an error. A file is opened and renamed under one lock, so an open file knows
//! which of the two it is. A listing leaves out files that a change has put, until readers may come
//! to all of them. No lock is held while the source works.
//!
//! `store::view` makes the files; `log` brings a segment before it reads it. See
//! `docs/PROTOCOL.md`, "Reading a place".

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::format::FIRST_BLOCK;

use super::real::RealStorage;
use super::{File, Filesystem, LockKind, Map, MapAccess, OpenMode, Stat, Storage};

/// Beginnings that are kept in memory.
const BEGINNINGS: usize = 16;
/// How often a file is asked for that is given up again at once.
const TRIES: u32 = 16;

/// How much of a file a caller is about to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// The first of its blocks.
    Beginning,
    /// Any of it.
    Whole,
}

/// Fetches files that are elsewhere.
pub trait Source: Send + Sync + fmt::Debug {
    /// Bring a segment: call [`Elsewhere::put_whole`], or [`Elsewhere::put_beginning`]. Or bring what a
    /// log ends with, and [`Elsewhere::stand_for_log`] says that the directory has it now.
    ///
    /// # Errors
    /// Whatever prevented it; the caller gets it as it is.
    fn bring(&self, path: &Path, needed: Needed) -> io::Result<()>;
}

/// Changes of the files of a directory, which happen at one moment.
#[derive(Debug, Default)]
pub struct Changes {
    /// Stand-ins that get their names.
    pub stand_ins: Vec<NewStandIn>,
    /// Files that go.
    pub removed: Vec<PathBuf>,
}

/// A stand-in that was made, and does not have its name yet.
#[derive(Clone, Debug)]
pub struct NewStandIn {
    /// Where it lies.
    pub from: PathBuf,
    /// The name that it gets.
    pub path: PathBuf,
    /// Where its content ends.
    pub end: u64,
}

/// The part of a file elsewhere that is here.
#[derive(Clone, Debug)]
struct StandIn {
    /// Where its content ends, and its end block begins.
    end: u64,
    /// Bytes from its first block on.
    beginning: Option<Arc<[u8]>>,
}

type StandIns = HashMap<PathBuf, StandIn>;

/// The machine's files, with stand-ins among them.
#[derive(Debug)]
pub struct Elsewhere {
    real: RealStorage,
    stand_ins: RwLock<StandIns>,
    /// For each directory the last of its numbered files that a listing shows.
    shown: RwLock<HashMap<PathBuf, PathBuf>>,
    source: Box<dyn Source>,
}

impl Elsewhere {
    /// Make a storage without a stand-in.
    pub fn new(source: Box<dyn Source>) -> Self {
        let (stand_ins, shown) = Default::default();
        Self { real: RealStorage::new(), stand_ins, shown, source }
    }

    fn read(&self) -> RwLockReadGuard<'_, StandIns> {
        self.stand_ins.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, StandIns> {
        self.stand_ins.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keep others from opening files while some get their names.
    pub fn names(&self) -> Names<'_> {
        Names { real: &self.real, stand_ins: self.write() }
    }

    /// Rename a whole file over what has the path.
    ///
    /// # Errors
    /// Those of [`Storage::rename_over`].
    pub fn put_whole(&self, from: &Path, path: &Path) -> io::Result<()> {
        let mut stand_ins = self.write();
        self.real.rename_over(from, path)?;
        stand_ins.remove(path);
        Ok(())
    }

    /// Keep the first bytes of the blocks of a stand-in. If the file is whole by now they are not
    /// needed.
    pub fn put_beginning(&self, path: &Path, bytes: &[u8]) {
        let mut stand_ins = self.write();
        if stand_ins.values().filter(|known| known.beginning.is_some()).count() >= BEGINNINGS {
            stand_ins.values_mut().for_each(|known| known.beginning = None);
        }
        if let Some(known) = stand_ins.get_mut(path) {
            known.beginning = Some(bytes.into());
        }
    }

    /// Let a directory stand for a log that is elsewhere, or no longer.
    pub fn stand_for_log(&self, directory: &Path, stands: bool) {
        let known = StandIn { end: u64::MAX, beginning: None };
        if stands {
            self.write().insert(directory.to_path_buf(), known);
        } else {
            self.write().remove(directory);
        }
    }

    /// Change which files a directory has, and do what lets readers come to later ones. Show those up
    /// to `last` in listings. Whatever is opened or listed is of before all of this, or of after it.
    ///
    /// # Errors
    /// Those of `change`; then listings show what they did.
    pub fn show_until<E>(
        &self,
        last: &Path,
        change: impl FnOnce(&mut Names<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut self.names())?;
        if let Some(directory) = last.parent() {
            shown.insert(directory.to_path_buf(), last.to_path_buf());
        }
        Ok(())
    }

    /// Show all files of a directory.
    pub fn show_all(&self, directory: &Path) {
        self.shown.write().unwrap_or_else(PoisonError::into_inner).remove(directory);
    }

    /// Return true for a stand-in.
    pub fn stands_in(&self, path: &Path) -> bool {
        self.read().contains_key(path)
    }

    fn lacks(&self, path: &Path, needed: Needed) -> bool {
        self.read().get(path).is_some_and(|known| match needed {
            Needed::Beginning => known.beginning.is_none(),
            Needed::Whole => true,
        })
    }
}

/// The names of files, while no other thread opens one.
#[derive(Debug)]
pub struct Names<'a> {
    real: &'a RealStorage,
    stand_ins: RwLockWriteGuard<'a, StandIns>,
}

impl Names<'_> {
    /// Rename a stand-in over what has its path.
    ///
    /// # Errors
    /// Those of [`Storage::rename_over`].
    pub fn put_stand_in(&mut self, made: &NewStandIn) -> io::Result<()> {
        self.real.rename_over(&made.from, &made.path)?;
        self.stand_ins.insert(made.path.clone(), StandIn { end: made.end, beginning: None });
        Ok(())
    }

    /// Remove a file.
    ///
    /// # Errors
    /// Those of [`Storage::unlink`].
    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.real.unlink(path)?;
        self.stand_ins.remove(path);
        Ok(())
    }
}

impl Storage for Elsewhere {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Arc<dyn File>> {
        let stand_ins = self.read();
        let file = self.real.open(path, how)?;
        Ok(match stand_ins.get(path) {
            Some(known) => Arc::new(StandInFile { file, known: known.clone() }),
            None => file,
        })
    }

    fn is_elsewhere(&self) -> bool {
        true
    }

    fn bring(&self, path: &Path, needed: Needed) -> io::Result<()> {
        for _ in 0..TRIES {
            if !self.lacks(path, needed) {
                return Ok(());
            }
            self.source.bring(path, needed)?;
        }
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename_new(from, to)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename_over(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.real.unlink(path)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.real.create_dir(path, mode)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.real.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = self.real.list(path)?;
        if let Some(last) = shown.get(path) {
            names.retain(|name| {
                let name = path.join(name);
                name.extension() != last.extension() || name <= *last
            });
        }
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.real.stat(path)
    }

    fn filesystem(&self, path: &Path) -> io::Result<Filesystem> {
        self.real.filesystem(path)
    }

    fn now_us(&self) -> i64 {
        self.real.now_us()
    }

    fn tick_us(&self) -> i64 {
        self.real.tick_us()
    }

    fn steady_us(&self) -> i64 {
        self.real.steady_us()
    }

    fn random(&self) -> io::Result<u64> {
        self.real.random()
    }
}

/// An open stand-in.
#[derive(Debug)]
struct StandInFile {
    file: Arc<dyn File>,
    known: StandIn,
}

/// The error for bytes that are not here.
fn not_here() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

impl File for StandInFile {
    fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    fn read_some(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        if position >= self.known.end {
            return self.file.read_some(bytes, position);
        }
        if position < FIRST_BLOCK {
            let here = bytes.len().min((FIRST_BLOCK - position) as usize);
            return self.file.read_some(&mut bytes[..here], position);
        }
        let beginning = self.known.beginning.as_deref().unwrap_or_default();
        let from = (position - FIRST_BLOCK) as usize;
        let Some(there) = beginning.get(from..).filter(|there| !there.is_empty()) else {
            return Err(not_here());
        };
        let len = there.len().min(bytes.len());
        bytes[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    fn is_stand_in(&self) -> bool {
        true
    }

    fn write_at(&self, _bytes: &[u8], _position: u64) -> io::Result<()> {
        Err(not_here())
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        Err(not_here())
    }

    fn punch(&self, _position: u64, _len: u64) -> io::Result<()> {
        Err(not_here())
    }

    fn next_data(&self, _position: u64) -> io::Result<Option<u64>> {
        Err(not_here())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, _len: u64, _access: MapAccess) -> io::Result<Map> {
        Err(not_here())
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        self.file.try_lock(kind)
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }

    fn close(&self) {
        self.file.close();
    }
}
