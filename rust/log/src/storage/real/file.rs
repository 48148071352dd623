//! One open file, and a `close` that is safe at any moment, in a forked child too.
//!
//! The room owns the descriptor. Its invariant: a descriptor number is given back to the kernel only
//! when nobody can use it any more, so that a call that runs while another thread closes never lands
//! in a foreign file that got the same number.
//!
//! `close` therefore does not close the number. It lays an *inert* descriptor over it (`dup3` of an
//! `O_PATH` one, which refuses reads, writes, locks and maps with `EBADF`): the kernel drops the open
//! file behind it at once, its locks too, while the number stays taken until the last owner is gone.
//!
//! ```text
//! open ----> number -> open file ----close (dup3)----> number -> inert ----last drop----> free
//! ```
//!
//! There is no lock and no counter in it, so a child forked while another thread was in the middle of
//! a call can close as well: that thread does not exist there and is not waited for. A call that was
//! under way ends on the file it began on.
//!
//! A *map* keeps its open file alive in the kernel, locks included: lock files are never mapped.
#![allow(unsafe_code)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, copy_file_range, fallocate, fstat, seek};
use rustix::io::{DupFlags, Errno, dup3, pread, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::super::{Access, File, LockKind, Map, Stat};
use super::{lock, map, told};

/// A file of the kernel's.
#[derive(Debug)]
pub struct RealFile {
    descriptor: Arc<Descriptor>,
}

impl RealFile {
    pub(super) fn new(file: OwnedFd, writable: bool) -> io::Result<Self> {
        inert()?;
        let closed = AtomicBool::new(false);
        let descriptor = Descriptor { file: file.into(), writable, closed };
        Ok(Self { descriptor: Arc::new(descriptor) })
    }
}

impl File for RealFile {
    fn stat(&self) -> io::Result<Stat> {
        self.descriptor.with(|file| Ok(told(&retry_on_intr(|| fstat(file))?)))
    }

    fn read_some(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        self.descriptor.with(|file| Ok(retry_on_intr(|| pread(file, &mut *bytes, position))?))
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        within_limit(position, bytes.len() as u64)?;
        self.descriptor.with(|file| file.write_all_at(bytes, position))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        within_limit(0, len)?;
        self.descriptor
            .with(|file| Ok(retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, len))?))
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let how = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        self.descriptor.with(|file| Ok(retry_on_intr(|| fallocate(file, how, position, len))?))
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        // Moves the shared file position, which nothing else here uses.
        self.descriptor.with(|file| match retry_on_intr(|| seek(file, SeekFrom::Data(position))) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(other) => Err(other.into()),
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.descriptor.with(|file| Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.descriptor.with(|file| Ok(retry_on_intr(|| rustix::fs::fsync(file))?))
    }

    fn copy_from(&self, source: &dyn File, position: u64, len: u64) -> io::Result<u64> {
        let Some(from) = source.descriptor() else { return Ok(0) };
        within_limit(position, len)?;
        self.descriptor.with(|file| Ok(copy_range(from, file, position, len)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.file.as_fd())
    }

    fn map(&self, len: u64, access: Access) -> io::Result<Map> {
        map::map(&self.descriptor, len, access)
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        self.descriptor.with(|file| lock::try_lock(file, kind))
    }

    fn unlock(&self) -> io::Result<()> {
        self.descriptor.with(lock::unlock)
    }

    fn close(&self) {
        self.descriptor.close();
    }
}

/// A descriptor number, held until the last owner is gone, and what lies behind it.
#[derive(Debug)]
pub(super) struct Descriptor {
    file: std::fs::File,
    writable: bool,
    closed: AtomicBool,
}

impl Descriptor {
    /// True when the file was opened for writing.
    pub(super) fn writable(&self) -> bool {
        self.writable
    }

    /// Run a call on the open file; `EBADF` once it is closed.
    pub(super) fn with<T>(
        &self,
        call: impl FnOnce(&std::fs::File) -> io::Result<T>,
    ) -> io::Result<T> {
        // The inert descriptor refuses most calls anyway; this holds where laying it down failed, too.
        if self.closed.load(Ordering::SeqCst) {
            return Err(Errno::BADF.into());
        }
        let result = call(&self.file);
        // The call may have met the inert descriptor, of which `fstat` tells happily.
        if self.closed.load(Ordering::SeqCst) && result.is_ok() {
            return Err(Errno::BADF.into());
        }
        result
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let Ok(inert) = inert() else { return };
        let number = self.file.as_raw_fd();
        // SAFETY: `self.file` owns this open number and outlives `target`, which never closes it
        // (`ManuallyDrop`); `dup3` replaces what lies behind the number without freeing it.
        let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        // EBADF is left: somebody closed our numbers behind our back, and the lock is gone with them.
        let _ = retry_on_intr(|| dup3(inert, &mut target, DupFlags::CLOEXEC));
    }
}

/// The descriptor that closed ones turn into: made with the first file, so that closing in a forked
/// child neither allocates nor waits.
fn inert() -> io::Result<&'static OwnedFd> {
    static INERT: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(made) = INERT.get() {
        return Ok(made);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let made = retry_on_intr(|| rustix::fs::open("/", flags, Mode::empty()))?;
    Ok(INERT.get_or_init(|| made))
}

/// Stay within the process's file-size limit. The kernel would answer with SIGXFSZ, which ends a
/// process that did not think of it; `EFBIG` is an error like others.
pub(super) fn within_limit(position: u64, len: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize).current;
    let fits = position.checked_add(len).is_some_and(|end| limit.is_none_or(|limit| end <= limit));
    if fits { Ok(()) } else { Err(Errno::FBIG.into()) }
}

fn copy_range(from: BorrowedFd<'_>, to: &std::fs::File, position: u64, len: u64) -> u64 {
    let mut done = 0;
    while done < len {
        let (mut source, mut target) = (position + done, position + done);
        let left = usize::try_from(len - done).unwrap_or(usize::MAX);
        let copied = copy_file_range(from, Some(&mut source), to, Some(&mut target), left);
        match copied {
            Err(Errno::INTR) => {}
            Ok(more) if more > 0 => done += more as u64,
            // Not between these file systems, in this kernel or sandbox, or the source is shorter than
            // it was, or a disk fails: who copies the rest byte by byte finds out which.
            Ok(_) | Err(_) => break,
        }
    }
    done
}
