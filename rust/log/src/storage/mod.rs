//! The seam between falaj and the machine: files, maps, locks, clocks, random numbers.
//!
//! Everything above this room touches the outside world through [`Storage`] and [`File`], and every
//! byte that is stored into a map goes through [`Map`]. That is what lets one engine run on a real
//! disk, on an in-memory twin that remembers what would survive a power cut, and on a faulty twin
//! that fails the k-th call.
//!
//! | implementation | for |
//! |---|---|
//! | [`real`] | the kernel's files, `mmap`, `flock`, `futex` |
//! | [`memory`] | crash images: live and durable bytes apart, in 512-byte sectors |
//! | [`faulty`] | any of the two, with errors planted at the k-th call |
//!
//! The room knows nothing of segments or topics. Errors are plain [`std::io::Error`]s with the
//! kernel's number kept (`raw_os_error`); the rooms above add path, position and remedy.

pub mod faulty;
pub mod map;
pub mod memory;
pub mod raw_map;
pub mod real;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use map::{Map, StoreSink, Word};
pub use raw_map::{RawMap, StoreTarget};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading only.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A file that must not exist yet, for reading and writing, with these permission bits, whatever
    /// the umask says: they are the store's, for all who share it.
    CreateNew(u32),
}

/// What `stat` tells about a path or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device number.
    pub device: u64,
    /// Inode number: with `device`, the identity of a file.
    pub inode: u64,
    /// Length in bytes.
    pub len: u64,
    /// Bytes that are allocated on the medium.
    pub allocated: u64,
    /// Permission bits.
    pub mode: u32,
    /// True for a directory.
    pub is_dir: bool,
    /// Last modification, microseconds since 1970.
    pub modified_us: i64,
    /// How many names the file has: none once it was removed while somebody has it open.
    pub links: u64,
}

/// What kind of file system a path lies on, as far as falaj cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// Allocation is a promise: a mapped store into allocated space cannot fail.
    Promises(&'static str),
    /// Copy-on-write or layered: allocation is no promise, so nothing is mapped for writing.
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
    /// Rename over whatever is at the target.
    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Remove a file's name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Make one directory with these permission bits, whatever the umask says.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Remove one empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory, sorted, without `.` and `..`. Names that are not UTF-8 are left out:
    /// falaj makes none.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// `fsync` of a directory: names made, renamed and removed in it are on the medium afterwards.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// What is at a path; `NotFound` where nothing is. Symbolic links are not followed.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// The kind of file system a directory lies on.
    fn filesystem(&self, path: &Path) -> io::Result<Filesystem>;
    /// Wall clock, microseconds since 1970. May jump; no correctness decision reads it.
    fn now_us(&self) -> i64;
    /// Wall clock as of the kernel's last tick (1 to 10 ms ago), microseconds since 1970: several
    /// times cheaper than [`Storage::now_us`].
    fn tick_us(&self) -> i64 {
        self.now_us()
    }
    /// A clock that nobody sets, microseconds since some moment that is the same for all processes of
    /// the machine until it starts anew; it stands still while the machine sleeps.
    fn steady_us(&self) -> i64 {
        self.now_us()
    }
    /// A random number, from the kernel on a real machine, from a seed in tests.
    fn random(&self) -> io::Result<u64>;
    /// Which of the processes that the memory twin imitates this is; 0 where there is nothing to
    /// imitate.
    fn process_number(&self) -> u64 {
        0
    }
}

/// An open file. Every call fails with the kernel's error number.
#[allow(clippy::missing_errors_doc, reason = "said once, for all calls")]
pub trait File: Send + Sync + std::fmt::Debug {
    /// What `fstat` tells.
    fn stat(&self) -> io::Result<Stat>;
    /// One read at a position, which may stop anywhere: returns how many bytes came, at least one
    /// before the end of the file, none there. For who implements a storage; all others ask
    /// [`File::read_at`].
    fn read_some(&self, bytes: &mut [u8], position: u64) -> io::Result<usize>;
    /// Read at a position, reads that stop early continued; returns how many bytes came. Fewer than
    /// asked for means one thing: the file ends there, whatever was said of its length before.
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
    /// Let the kernel fetch what lies behind that which is read, as for a file that is read from end to
    /// end. It is opened without: what a read brings in behind the end of a log lies in the page cache
    /// in pieces of up to 256 KiB, and a writer's sync then writes such a piece for each record. So this
    /// is for files to which nobody appends any more.
    fn read_ahead(&self) {}
    /// Write all of `bytes` at a position, short writes continued.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Allocate `[0, len)` for real (`fallocate`, the kernel's error number kept); the file's
    /// length becomes at least `len`. Costs nothing for what is allocated already.
    ///
    /// A real one that a signal interrupts is begun again, as often as that happens: where signals
    /// come faster than the file system allocates, and it undoes its half (`tmpfs` does), the call
    /// lasts until they cease.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Give `[position, position + len)` back to the file system; the length stays, the range reads
    /// as zero.
    fn punch(&self, position: u64, len: u64) -> io::Result<()>;
    /// First position at or after `position` that may hold something other than a hole
    /// (`SEEK_DATA`); `None` when only holes follow.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>>;
    /// `fdatasync`: bytes and the length are on the medium afterwards.
    fn sync_data(&self) -> io::Result<()>;
    /// `fsync`: also the rest of the metadata.
    fn sync_all(&self) -> io::Result<()>;
    /// Copy `[position, position + len)` of another file to the same place of this one without the
    /// bytes passing through this process, perhaps by sharing them; returns how many from the
    /// beginning were copied. Fewer, also none, is no error: the caller copies the rest itself.
    fn copy_from(&self, _source: &dyn File, _position: u64, _len: u64) -> io::Result<u64> {
        Ok(0)
    }
    /// The descriptor, where there is one, for calls of the kernel's that take two.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Map `[0, len)`, which may reach beyond the end of the file: only allocated bytes may be
    /// touched.
    fn map(&self, len: u64, access: MapAccess) -> io::Result<Map>;
    /// Memory of this process alone, as long as a copy of the file may get, for who reads it by
    /// [`File::read_at`] and keeps what came at the place that it has in the file. Nothing may be read of
    /// it that was not stored before: it need not be zero.
    fn private_memory(&self, len: u64) -> io::Result<Map> {
        real::private_memory(len)
    }
    /// Take a lock if that is possible at once; `false` when somebody else's is in the way.
    fn try_lock(&self, kind: LockKind) -> io::Result<bool>;
    /// Give the lock back (it also ends with the last descriptor of this open file).
    fn unlock(&self) -> io::Result<()>;
    /// Close the descriptor now, whoever else holds the `Arc`; later calls fail with `EBADF`. A
    /// forked child calls it for lock files, so that a dead parent's locks end with the parent.
    fn close(&self);
}

/// What a map may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAccess {
    /// Loads only.
    Read,
    /// Loads and direct stores: the memory is mapped for writing.
    Write,
    /// Loads from a map, stores by `pwrite`: for file systems where allocation is no promise.
    WriteThrough,
}
