//! What is asked of the kernel beyond safe Rust: shared maps, bare forks, signals, a file system's
//! sudden end. The only file of this crate that holds unsafe.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::{MmapMut, MmapOptions};
use rustix::process::Signal;

/// Map a file for reading and writing, shared: what is stored outlives this process, however it ends.
pub fn map_shared(path: &Path, len: u64) -> io::Result<MmapMut> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    // SAFETY: the file is the storm's own, nobody shortens it; other processes store into it while
    // we read, which the readers of these files expect: they look at each place after its state.
    unsafe { MmapOptions::new().len(len as usize).map_mut(&file) }
}

/// The words of a shared map.
pub fn words(map: &MmapMut) -> &[AtomicU64] {
    // SAFETY: a map begins at a page, so it is aligned; it is as long as it says and lives as long as
    // the slice; other processes load and store these words as atomics too, and nobody borrows its
    // bytes otherwise.
    unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / 8) }
}

/// Fork a child that does nothing until standard input ends, and then ends without a word. It keeps
/// everything that it inherited for that long.
pub fn fork_idle() -> io::Result<i32> {
    // SAFETY: the child calls nothing but `read` and `_exit`, which are safe after a fork in a
    // process of many threads.
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
    // SAFETY: ends the child at once, without running anything that the parent has noted down.
    unsafe { libc::_exit(0) }
}

/// Leave an idle child behind and die, in the middle of whatever was going on.
pub fn orphan_and_die() {
    let _ = fork_idle();
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C and its like are only noted, so that children, mounts and files are put away.
pub fn catch_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler = note_interrupt as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores into an atomic, which is safe at any moment.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// True once somebody wants this process to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// `EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`: `_IOR('X', 125, __u32)`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;

/// How a file system is cut off from its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its journal is written out first: names and sizes are there, data may be missing.
    LogFlushed = 1,
    /// Nothing more is written: as if the power were gone.
    NoLogFlush = 2,
}

/// Cut the file system off on which an open directory lies. Nothing reaches its device any more, and
/// every call on it fails.
pub fn shut_down(directory: &File, cut: Cut) -> io::Result<()> {
    let flags = cut as u32;
    // SAFETY: the call reads four bytes at the address given, which are `flags`.
    let done = unsafe { libc::ioctl(directory.as_raw_fd(), SHUTDOWN, &raw const flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
