//! The interface between falaj and the machine: files, maps, locks, clocks, random numbers.
//!
//! All code above this module touches the outside world through [`Storage`] and [`File`], and every
//! store into a map goes through [`Map`]. So one engine runs on the kernel's files ([`real`]) and, in
//! tests, on the twins of crate `falaj-twin`. One in memory remembers what would survive a power
//! failure; a faulty one fails the k-th call.
//!
//! The module knows nothing of segments or topics. Errors are plain [`std::io::Error`]s with the
//! kernel's number kept (`raw_os_error`); the modules above add path, position and remedy.

pub mod elsewhere;
pub mod map;
pub mod raw_map;
pub mod real;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use elsewhere::{Changes, Elsewhere, Names, Needed, NewStandIn, Source};
pub use map::{Map, StoreSink, Word};
pub use raw_map::{RawMap, StoreTarget};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading only.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A file that must not exist yet, for reading and writing, with these permission bits. The
    /// umask does not change them: they are the store's, for all that share it.
    CreateNew(u32),
}

/// The result of `stat` for a path or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device number.
    pub device: u64,
    /// Inode number: with `device`, the identity of a file.
    pub inode: u64,
    /// Length in bytes.
    pub len: u64,
    /// Bytes allocated on disk.
    pub allocated: u64,
    /// Permission bits.
    pub mode: u32,
    /// True for a directory.
    pub is_dir: bool,
    /// Last modification, microseconds since 1970.
    pub modified_us: i64,
    /// How many names the file has: none once it was removed while a process has it open.
    pub links: u64,
}

impl Stat {
    /// Device and inode number: two that have the same are one file.
    pub fn id(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The kind of a path's file system, as far as falaj cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// Allocation reserves space: a mapped store into allocated space cannot fail.
    Promises(&'static str),
    /// Copy-on-write or layered: allocation reserves no space, so nothing is mapped for writing.
    CopyOnWrite(&'static str),
    /// Network or user-space: locks and maps of other machines are not coherent.
    Remote(&'static str),
    /// Unknown magic number: treated like [`Filesystem::CopyOnWrite`].
    Unknown(i64),
}

/// A kind of `flock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of holders.
    Shared,
    /// One holder.
    Exclusive,
}

/// The machine as falaj sees it. Every call fails with the kernel's error number.
#[allow(clippy::missing_errors_doc, reason = "said once, for all calls")]
pub trait Storage: Send + Sync + std::fmt::Debug + 'static {
    /// Open a file. Symbolic links are not followed in the last component; descriptors are
    /// close-on-exec.
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Rename; the target must not exist (`AlreadyExists` otherwise).
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Rename over anything that has the target's name.
    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Remove a file's name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Make one directory with these permission bits, whatever the umask is.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Remove one empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// List the names in a directory, sorted, without `.` and `..`. Names that are not UTF-8 are
    /// left out: falaj makes none.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// `fsync` a directory: names made, renamed and removed in it are on disk afterwards.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Look at a path; `NotFound` if it does not exist. Symbolic links are not followed.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Return the kind of a directory's file system.
    fn filesystem(&self, path: &Path) -> io::Result<Filesystem>;
    /// Return the wall clock, microseconds since 1970. It may jump; no correctness decision reads
    /// it.
    fn now_us(&self) -> i64;
    /// Return the wall clock at the kernel's last tick (1 to 10 ms ago), microseconds since 1970:
    /// several times cheaper than [`Storage::now_us`].
    fn tick_us(&self) -> i64 {
        self.now_us()
    }
    /// Return a clock that cannot be set, in microseconds. It counts from one moment for all
    /// processes of the machine until it restarts, and stops while the machine sleeps.
    fn steady_us(&self) -> i64 {
        self.now_us()
    }
    /// Return a random number, from the kernel on a real machine, from a seed in tests.
    fn random(&self) -> io::Result<u64>;
    /// Return true if files may stand for bytes that are elsewhere, see [`Storage::bring`].
    fn is_elsewhere(&self) -> bool {
        false
    }
    /// Bring what a caller is about to read of a file to this machine. It may take long and run a
    /// program's code, so no lock is held meanwhile. Costs nothing if all files are here.
    fn bring(&self, _path: &Path, _needed: Needed) -> io::Result<()> {
        Ok(())
    }
    /// Return which process of the memory twin this is; 0 for a real machine.
    fn process_number(&self) -> u64 {
        0
    }
}

/// An open file. Every call fails with the kernel's error number.
#[allow(clippy::missing_errors_doc, reason = "said once, for all calls")]
pub trait File: Send + Sync + std::fmt::Debug {
    /// `fstat` the file.
    fn stat(&self) -> io::Result<Stat>;
    /// Read once at a position; the read may stop anywhere. Returns how many bytes came: at least
    /// one before the end of the file, none there. For implementations of a storage; all others
    /// call [`File::read_at`].
    fn read_some(&self, bytes: &mut [u8], position: u64) -> io::Result<usize>;
    /// Read at a position, continuing after short reads; return how many bytes came. Fewer than
    /// requested means one thing: the file ends there, whatever its length was before.
    fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.read_some(&mut bytes[done..], position + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        Ok(done)
    }
    /// Return true for a file that only stands for bytes elsewhere: most of it cannot be read.
    fn is_stand_in(&self) -> bool {
        false
    }
    /// Let the kernel read ahead, for a file that is read from end to end. It is off by default.
    /// Read-ahead after the end of a log fills the page cache in pieces of up to 256 KiB. A
    /// writer's sync then writes such a piece for each record. So this is for files without further
    /// appends.
    fn read_ahead(&self) {}
    /// Write all of `bytes` at a position, continuing after short writes.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Allocate `[0, len)` on disk (`fallocate`, the kernel's error number kept); the file's length
    /// becomes at least `len`. Costs nothing for the part that is allocated already.
    ///
    /// A real file repeats a call that a signal interrupts. Signals may come faster than the file
    /// system allocates, and the file system may undo its half each time (`tmpfs` does). Then the
    /// call lasts until the signals stop.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Return `[position, position + len)` to the file system; the length stays, the range reads as
    /// zero.
    fn punch(&self, position: u64, len: u64) -> io::Result<()>;
    /// Return the first position at or after `position` that may hold something other than a hole
    /// (`SEEK_DATA`); `None` when only holes follow.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>>;
    /// `fdatasync` the file: bytes and the length are on disk afterwards.
    fn sync_data(&self) -> io::Result<()>;
    /// `fsync` the file: also the rest of the metadata.
    fn sync_all(&self) -> io::Result<()>;
    /// Copy `[position, position + len)` of another file to the same place of this one, without
    /// passing the bytes through this process; the kernel may share them. Returns how many from the
    /// beginning were copied. Fewer, or none, is no error: the caller copies the rest itself.
    fn copy_from(&self, _source: &dyn File, _position: u64, _len: u64) -> io::Result<u64> {
        Ok(0)
    }
    /// Return the descriptor, if there is one, for kernel calls with two files.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Map `[0, len)`, which may reach beyond the end of the file: only allocated bytes may be
    /// touched.
    fn map(&self, len: u64, access: MapAccess) -> io::Result<Map>;
    /// Return memory of this process alone, as long as a copy of the file may become. A caller
    /// fills it by [`File::read_at`], each byte at its place in the file. The caller reads only
    /// what it stored: the memory need not be zero.
    fn private_memory(&self, len: u64) -> io::Result<Map> {
        real::private_memory(len)
    }
    /// Do as [`File::private_memory`], for a caller that soon fills all of it.
    ///
    /// # Errors
    /// As that one.
    fn memory_to_fill(&self, len: u64) -> io::Result<Map> {
        self.private_memory(len)
    }
    /// Take a lock if that is possible at once; `false` when another holder is in the way.
    fn try_lock(&self, kind: LockKind) -> io::Result<bool>;
    /// Release the lock (it also ends with the last descriptor of this open file).
    fn unlock(&self) -> io::Result<()>;
    /// Close the descriptor now, even if others hold the `Arc`; later calls fail with `EBADF`. A
    /// forked child calls it for lock files, so that a dead parent's locks end with the parent.
    fn close(&self);
}

/// The allowed uses of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAccess {
    /// Loads only.
    Read,
    /// Loads and direct stores: the memory is mapped for writing.
    Write,
    /// Loads from a map, stores by `pwrite`: for file systems where allocation reserves no space.
    WriteThrough,
}
