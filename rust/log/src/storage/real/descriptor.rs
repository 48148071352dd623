//! A descriptor, and a `close` of it that is safe at any moment, in a forked child too.
//!
//! The module owns the numbers. Its invariant: a number returns to the kernel only when it has no
//! user any more. So a call that runs while another thread closes never reaches a foreign file that
//! got the same number.
//!
//! `close` therefore does not close the number. It puts an *inert* descriptor in its place: `dup3`
//! of an `O_PATH` one, which refuses reads, writes, locks and maps with `EBADF`. The kernel drops
//! the open file at once, its locks too, while the number stays reserved until the last owner is
//! gone.
//!
//! ```text
//! open ----> number -> open file ----close (dup3)----> number -> inert ----last drop----> free
//! ```
//!
//! It has no lock and no counter. So a child that was forked while another thread was in the middle
//! of a call can close as well. That thread does not exist there, and the child does not wait for
//! it. A call in progress ends on the file it began on.
//!
//! A *map* keeps its open file alive in the kernel, locks included: lock files are never mapped.
#![allow(unsafe_code)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, Errno, dup3, retry_on_intr};
use rustix::process::{Resource, getrlimit};

/// A descriptor number, kept until the last owner is gone, and its open file.
#[derive(Debug)]
pub(super) struct Descriptor {
    file: std::fs::File,
    writable: bool,
    closed: AtomicBool,
}

impl Descriptor {
    /// Take over an open file.
    pub(super) fn new(file: OwnedFd, writable: bool) -> io::Result<Self> {
        inert()?;
        Ok(Self { file: file.into(), writable, closed: AtomicBool::new(false) })
    }

    /// Return the open file, or the inert one in its place.
    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// True when the file was opened for writing.
    pub(super) fn writable(&self) -> bool {
        self.writable
    }

    /// Run a call on the open file; `EBADF` once it is closed.
    pub(super) fn with<T>(
        &self,
        call: impl FnOnce(&std::fs::File) -> io::Result<T>,
    ) -> io::Result<T> {
        // The inert descriptor refuses most calls anyway; this also holds if it could not be put in
        // place.
        if self.closed.load(Ordering::SeqCst) {
            return Err(Errno::BADF.into());
        }
        let result = call(&self.file);
        // The call may have met the inert descriptor, on which `fstat` succeeds.
        if self.closed.load(Ordering::SeqCst) && result.is_ok() {
            return Err(Errno::BADF.into());
        }
        result
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let Ok(inert) = inert() else { return };
        let number = self.file.as_raw_fd();
        // SAFETY: `self.file` owns this open number and outlives `target`, which never closes it
        // (`ManuallyDrop`). `dup3` replaces the open file of the number without freeing the number.
        let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        // EBADF remains: other code in this process closed our numbers, and the lock is gone with
        // them.
        let _ = retry_on_intr(|| dup3(inert, &mut target, DupFlags::CLOEXEC));
    }
}

/// Return the descriptor that replaces closed ones: made with the first file, so that closing in a
/// forked child neither allocates nor waits.
fn inert() -> io::Result<&'static OwnedFd> {
    static INERT: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(made) = INERT.get() {
        return Ok(made);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let made = retry_on_intr(|| rustix::fs::open("/", flags, Mode::empty()))?;
    Ok(INERT.get_or_init(|| made))
}

/// Check the process's file-size limit. The kernel would answer with SIGXFSZ, which kills a process
/// that does not handle it; `EFBIG` is an ordinary error.
pub(super) fn within_limit(position: u64, len: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize).current;
    let fits = position.checked_add(len).is_some_and(|end| limit.is_none_or(|limit| end <= limit));
    if fits { Ok(()) } else { Err(Errno::FBIG.into()) }
}
