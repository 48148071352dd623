//! Noticing a fork: without a system call, and early enough to close the parent's lock files.
//!
//! Owns two things. The *epoch* is a number that a forked child does not share with its parent. It
//! lies in a page that the kernel zeroes for a child (`MADV_WIPEONFORK`). So even a child of a bare
//! `clone` is noticed, and a handle compares one word. The *handlers* run around `fork`: they keep
//! the registry of lock files consistent and close the inherited ones in the child. A `flock`
//! belongs to the open file, which parent and child share: without the handlers, an idle child
//! would keep a dead parent's slot alive.
//!
//! ```text
//! fork() ── prepare: take the registry ──┬── parent: release it
//!                                        └── child:  close lock files, new epoch, release it
//! ```
//!
//! Invariant, once `fork` has returned in a child: no lock file of its parent is open there. No
//! handle made before has the current epoch. [`super::membership`] decides what such a handle does.
//! `vfork` and `posix_spawn` run no handlers and need none: lock files are close-on-exec, and stay
//! open a moment longer, until the new program begins. A bare `clone` runs none either; there only
//! the epoch shows it. (`docs/PROTOCOL.md`, "Fork".)
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use super::registry;

const PAGE: usize = 4096;

/// Return this process's epoch: never 0, and higher than every inherited one.
#[inline]
pub fn epoch() -> u64 {
    let word = word();
    match word.load(Ordering::Relaxed) {
        0 => begin(word),
        epoch => epoch,
    }
}

#[cold]
fn begin(word: &AtomicU64) -> u64 {
    // Ordinary memory, which a child inherits: so it never gives a number twice in a line of
    // descent. Siblings may share one, but no handle passes from one to the other.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match word.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => new,
        Err(begun) => begun,
    }
}

/// Return the word that a child finds zeroed, or with an epoch of its own.
#[inline]
pub(super) fn word() -> &'static AtomicU64 {
    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    let known = WORD.load(Ordering::Acquire);
    let word = if known.is_null() { note(&WORD) } else { known };
    // SAFETY: once set it points to an atomic that is never freed or unmapped, see `note`.
    unsafe { &*word }
}

/// Make the word, unless another thread is faster. It uses no lock and no `Once`: a child could
/// inherit them in the middle, and wait for a thread that it does not have.
#[cold]
fn note(place: &AtomicPtr<AtomicU64>) -> *mut AtomicU64 {
    let made = wiped_page().unwrap_or_else(|_| Box::leak(Box::default()));
    let made = ptr::from_ref(made).cast_mut();
    match place.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(others) => others,
    }
}

/// Map a page for the life of the process. If the kernel cannot wipe it (before 4.14), the handlers
/// do, see [`child`].
fn wiped_page() -> io::Result<&'static AtomicU64> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, protection, flags) }?;
    // SAFETY: the range is exactly the mapping made above; the advice changes what children inherit
    // and no byte here.
    let _ = unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) };
    debug_assert!(!page.is_null() && (page as usize) % PAGE == 0);
    // SAFETY: page aligned, zeroed by the kernel, never unmapped, and used as this atomic only.
    Ok(unsafe { AtomicU64::from_ptr(page.cast()) })
}

/// Make the handlers run around every `fork` from now on. Call it before the first lock file and
/// the first use of the registry.
///
/// Two threads may both register them (a lock against that could be inherited locked): handlers
/// that run twice have no further effect.
///
/// # Errors
/// When there is no memory to register them.
pub(super) fn install() -> io::Result<()> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    epoch();
    // SAFETY: the handlers are functions of this library. The C library ties them to it, and
    // unregisters them if it is ever unloaded. They never unwind.
    let failure = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    match failure {
        0 => {
            INSTALLED.store(true, Ordering::Release);
            Ok(())
        }
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

extern "C" fn prepare() {
    registry::before_fork();
}

extern "C" fn parent() {
    registry::after_fork_in_parent();
}

extern "C" fn child() {
    word().store(0, Ordering::Relaxed);
    registry::after_fork_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_stays_while_there_is_no_fork() {
        let before = epoch();
        assert_ne!(before, 0);
        assert!((0..100).all(|_| epoch() == before));
    }

    #[test]
    fn a_wiped_word_begins_a_higher_epoch() {
        let word = AtomicU64::new(0);
        let first = begin(&word);
        assert_eq!(begin(&word), first);
        word.store(0, Ordering::Relaxed);
        assert!(begin(&word) > first);
    }
}
