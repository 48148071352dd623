//! Calls to the kernel beyond safe Rust: shared maps, bare forks, signals, a file system's sudden
//! shutdown.
//!
//! The only file of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::{MmapMut, MmapOptions};
use rustix::process::Signal;

/// Map a file for reading and writing, shared: what is stored outlives this process, however it
/// ends.
pub fn map_shared(path: &Path, len: u64) -> io::Result<MmapMut> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    // SAFETY: the file is the storm's own, and no process shortens it. Other processes store into
    // it while we read; readers expect that, and look at each place after its state.
    unsafe { MmapOptions::new().len(len as usize).map_mut(&file) }
}

/// The words of a shared map.
pub fn words(map: &MmapMut) -> &[AtomicU64] {
    // SAFETY: a map begins at a page, so it is aligned. It is as long as it says and lives as long
    // as the slice. Other processes also access these words as atomics, and nothing borrows its
    // bytes otherwise.
    unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / 8) }
}

/// Fork a child that does nothing until standard input ends, and then exits silently.
///
/// Until then it keeps everything that it inherited.
pub fn fork_idle() -> io::Result<i32> {
    // SAFETY: the child calls only `read` and `_exit`, which are safe after a fork in a process of
    // many threads.
    let child = unsafe { libc::fork() };
    if child != 0 {
        return if child > 0 { Ok(child) } else { Err(io::Error::last_os_error()) };
    }
    let mut byte = 0u8;
    loop {
        // SAFETY: one byte of our own stack; descriptor 0 is open or the call fails.
        let got = unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
        if got == 0 || (got < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR)) {
            break;
        }
    }
    // SAFETY: ends the child at once, without running the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

/// Leave an idle child behind and die, in the middle of whatever is running.
pub fn orphan_and_die() {
    let _ = fork_idle();
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Only note Ctrl-C and the like from now on, so that children, mounts and files are cleaned up.
pub fn catch_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler = note_interrupt as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores into an atomic, which is safe at any moment.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// True once this process was asked to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// `EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`: `_IOR('X', 125, __u32)`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;

/// Cut off the file system of an open directory, with its journal written first or not.
///
/// Nothing reaches its device any more, and every call on it fails.
pub fn shut_down(directory: &File, flush_journal: bool) -> io::Result<()> {
    let flags: u32 = if flush_journal { 1 } else { 2 };
    // SAFETY: the call reads four bytes at the address given, which are `flags`.
    let done = unsafe { libc::ioctl(directory.as_raw_fd(), SHUTDOWN, &raw const flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
