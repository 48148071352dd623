//! Behaviour of the kernel itself: forked children, descriptors and their numbers, links, FIFOs.
//!
//! A program of its own: a forked child keeps its parent's open files, and so the locks of other
//! tests.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]
#![allow(unsafe_code, reason = "a test that calls the system the way other programs do")]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{File, Filesystem, LockKind, MapAccess, OpenMode, Storage};

fn create(path: &Path) -> Arc<dyn File> {
    RealStorage::new().open(path, OpenMode::CreateNew(0o600)).unwrap()
}

/// A child inherits all open files, so tests that fork take turns.
static FORKING: Mutex<()> = Mutex::new(());

/// A forked child that runs `then`, reports, and sleeps until it is killed.
struct Child(libc::pid_t);

impl Child {
    fn idle_after(then: impl FnOnce()) -> Self {
        let mut pipe = [0; 2];
        // SAFETY: `pipe` has space for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the child calls only `then`, which makes only system calls, and the calls below.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: asks for a signal at the parent's end, so that a failing test leaves no
            // child.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            then();
            // SAFETY: writes one byte of a live buffer.
            unsafe { libc::write(pipe[1], [1u8].as_ptr().cast(), 1) };
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        let mut told = [0u8];
        // SAFETY: reads one byte into a live buffer.
        assert_eq!(unsafe { libc::read(pipe[0], told.as_mut_ptr().cast(), 1) }, 1);
        for end in pipe {
            // SAFETY: both are ours, and not used again.
            unsafe { libc::close(end) };
        }
        Self(child)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, and not yet waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: as above; the status is not needed.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

#[test]
fn a_child_that_closed_keeps_no_lock_when_the_parent_is_gone() {
    let _turn = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slot");
    let other = |path: &Path| RealStorage::new().open(path, OpenMode::ReadWrite).unwrap();
    let holder = create(&path);
    assert!(holder.try_lock(LockKind::Exclusive).unwrap());
    let idle = Child::idle_after(|| {});
    holder.close();
    assert!(
        !other(&path).try_lock(LockKind::Exclusive).unwrap(),
        "the child holds it: this is the trap"
    );
    drop(idle);
    assert!(other(&path).try_lock(LockKind::Exclusive).unwrap());

    let holder = other(&path);
    assert!(holder.try_lock(LockKind::Exclusive).unwrap());
    let _idle = Child::idle_after(|| holder.close());
    assert!(
        !other(&path).try_lock(LockKind::Exclusive).unwrap(),
        "closing there must free nothing"
    );
    holder.close();
    assert!(other(&path).try_lock(LockKind::Exclusive).unwrap());
}

#[test]
fn a_child_forked_in_the_middle_of_calls_can_close() {
    let _turn = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slot");
    let holder = create(&path);
    holder.write_at(&[1; 4096], 0).unwrap();
    assert!(holder.try_lock(LockKind::Exclusive).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let busy = {
        let (holder, stop) = (holder.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                drop(holder.read_at(&mut [0; 4096], 0));
                drop(holder.sync_data());
            }
        })
    };
    let idle: Vec<_> = (0..20).map(|_| Child::idle_after(|| holder.close())).collect();
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    holder.close();
    let other = RealStorage::new().open(&path, OpenMode::ReadWrite).unwrap();
    assert!(other.try_lock(LockKind::Exclusive).unwrap(), "twenty idle children must hold nothing");
    drop(idle);
}

#[test]
fn a_call_that_races_with_close_never_lands_in_another_file() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..200 {
        let victim = create(&directory.path().join(format!("victim{round}")));
        let writer = {
            let victim = victim.clone();
            std::thread::spawn(move || while victim.write_at(b"victim", 0).is_ok() {})
        };
        std::thread::yield_now();
        victim.close();
        let others: Vec<_> = (0..4)
            .map(|other| create(&directory.path().join(format!("other{round}-{other}"))))
            .collect();
        writer.join().unwrap();
        for other in others {
            assert_eq!(other.stat().unwrap().len, 0, "a foreign write in round {round}");
        }
    }
}

#[test]
fn closing_gives_the_number_back_with_the_last_handle() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("many");
    drop(create(&path));
    // More than the usual limit of descriptors.
    for _ in 0..3_000 {
        RealStorage::new().open(&path, OpenMode::Read).unwrap().close();
    }
}

#[test]
fn descriptors_are_not_inherited_by_other_programs() {
    let directory = tempfile::tempdir().unwrap();
    let (open, closed) = (create(&directory.path().join("open")), directory.path().join("closed"));
    let closed = create(&closed);
    closed.close();
    let listed = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(!listed.contains(directory.path().to_str().unwrap()), "{listed}");
    assert!(!listed.contains("-> /\n"), "not even the inert descriptor: {listed}");
    drop((open, closed));
}

#[test]
fn symbolic_links_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (target, link) = (directory.path().join("target"), directory.path().join("link"));
    create(&target).write_at(b"secret", 0).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let storage = RealStorage::new();
    for how in [OpenMode::Read, OpenMode::ReadWrite] {
        assert_eq!(storage.open(&link, how).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }
    let taken = storage.open(&link, OpenMode::CreateNew(0o600)).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(libc::EEXIST));
    assert!(storage.stat(&link).unwrap().len != 6, "stat must describe the link itself");
    std::os::unix::fs::symlink(directory.path(), directory.path().join("d")).unwrap();
    let refused = storage.list(&directory.path().join("d")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOTDIR));
    // A store may be reached through a link; syncing a directory changes nothing in it.
    storage.sync_dir(&directory.path().join("d")).unwrap();
}

#[test]
fn a_planted_fifo_is_refused_without_waiting_for_its_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("00000000000000000000.log");
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let storage = RealStorage::new();
    for how in [OpenMode::Read, OpenMode::ReadWrite] {
        assert_eq!(storage.open(&path, how).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn a_full_disk_tells_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let file = create(&directory.path().join("huge"));
    // More than any disk has: the kernel returns "no space" or "too big", never success (trap 10).
    let refused = file.allocate(1 << 60).unwrap_err().raw_os_error();
    assert!(matches!(refused, Some(libc::ENOSPC | libc::EFBIG)), "{refused:?}");
}

/// Number of a file's pages in the page cache.
fn cached_pages(file: &dyn File, len: u64) -> usize {
    let map = file.map(len, MapAccess::Read).unwrap();
    let mut pages = vec![0u8; len.div_ceil(4096) as usize];
    let base = map.address(0, len);
    // SAFETY: the whole of a live map, and a byte for each of its pages.
    let told = unsafe { libc::mincore(base.cast_mut().cast(), len as usize, pages.as_mut_ptr()) };
    assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
    pages.iter().filter(|page| **page & 1 == 1).count()
}

// Read-ahead puts large pieces into the page cache.
//
// If a small append goes into such a piece, each sync writes the whole piece.
#[test]
fn a_read_brings_nothing_in_from_behind_it_until_that_is_asked_for() {
    const LEN: u64 = 1 << 20;
    let place = tempfile::tempdir().unwrap();
    let file = create(&place.path().join("file"));
    file.write_at(&[0], LEN - 1).unwrap();
    file.sync_all().unwrap();
    let before = cached_pages(&*file, LEN);
    for at in [0, 4096, 8192, 12288] {
        file.read_at(&mut [0; 4096], at).unwrap();
    }
    let read = cached_pages(&*file, LEN);
    assert!(read <= before + 4, "{before} pages were cached, {read} after four were read");
    if file_system_reads_ahead(place.path()) {
        file.read_ahead();
        for at in [16384, 20480, 24576, 28672] {
            file.read_at(&mut [0; 4096], at).unwrap();
        }
        assert!(cached_pages(&*file, LEN) > read + 4, "more pages must be read ahead");
    }
}

fn file_system_reads_ahead(place: &Path) -> bool {
    let kind = RealStorage::new().filesystem(place).unwrap();
    matches!(kind, Filesystem::Promises("ext2/ext3/ext4" | "xfs"))
}
