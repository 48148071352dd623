//! The two locks of a log, as guards.
//!
//! In mapped stores a lock is a word of the control page ([`crate::lock`]). In `pwrite` stores it
//! is the flock of a file, and waiting is polling, which is slower. Either way the caller holds a
//! mutex of this process first. A process that gets the lock from a dead owner learns that. A flock
//! does not say how its holder ended, so the owner of the sync lock writes its word as well.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::control::at;
use crate::format::settings::WriteMode;
use crate::lock::{self, Acquired, Fate, Holders, Identity, LockError};
use crate::storage::{File, LockKind};

use super::{Control, Log, Member};

/// One of the two locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Its owner may write blocks.
    Append,
    /// Its owner may advance the durable end.
    Sync,
}

impl Which {
    fn word(self) -> u64 {
        match self {
            Which::Append => at::APPEND_LOCK,
            Which::Sync => at::SYNC_LOCK,
        }
    }

    /// Return its lock file, in stores that are written by `pwrite`.
    pub fn file(self) -> &'static str {
        match self {
            Which::Append => "lock.append",
            Which::Sync => "lock.sync",
        }
    }
}

/// A lock that is held until this is dropped.
#[must_use]
pub struct Guard<'a> {
    held: HeldLock<'a>,
    /// True if the previous owner died: its work may be half done.
    pub taken_over: bool,
}

enum HeldLock<'a> {
    Word(&'a Control, Which, Identity),
    File(Arc<dyn File>, &'a Control, Which),
    Abandoned,
}

impl Guard<'_> {
    /// Release it as a dead owner does: the next owner learns that this one did not end well.
    pub fn abandon(mut self) {
        match std::mem::replace(&mut self.held, HeldLock::Abandoned) {
            // Stores into memory cannot fail, so no code gets here; the next owner takes the lock
            // over.
            HeldLock::Word(..) | HeldLock::Abandoned => {}
            // Dropped, so that its descriptor is closed: a full disk may lead here many times.
            HeldLock::File(file, ..) => drop(file.unlock()),
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.held {
            HeldLock::Word(control, Which::Append, me) => {
                lock::unlock(&control.word(at::APPEND_LOCK), *me);
            }
            HeldLock::Word(control, Which::Sync, me) => {
                lock::unlock_to_all(&control.word(at::SYNC_LOCK), *me);
            }
            HeldLock::File(file, control, which) => {
                if *which == Which::Sync {
                    // A word that stays makes the next owner doubt a valid end: that is safe.
                    let _ = control.set(which.word(), 0);
                }
                // Closing releases the flock too, so an error here changes nothing.
                drop(file.unlock());
            }
            HeldLock::Abandoned => {}
        }
    }
}

struct LogHolders<'a>(&'a dyn Member);

impl Holders for LogHolders<'_> {
    type Proof = Box<dyn Any>;

    fn fate(&self, holder: Identity) -> io::Result<Fate<Self::Proof>> {
        self.0.fate(holder)
    }
}

impl Log {
    /// Take a lock. The caller holds the mutex that comes before it.
    ///
    /// # Errors
    /// `LockTimeout` when a living process keeps it, `LockFileReplaced` when the page is not one
    /// that falaj writes.
    #[inline]
    pub(super) fn lock(&self, which: Which) -> Result<Guard<'_>> {
        let (control, member) = self.writing()?;
        if self.settings.write_mode == WriteMode::Pwrite {
            return self.lock_file(which, control, member);
        }
        let word = control.word(which.word());
        let me = member.identity();
        if lock::try_lock(&word, me) {
            let held = HeldLock::Word(control, which, me);
            return Ok(Guard { held, taken_over: false });
        }
        self.lock_contended(which, control, member)
    }

    /// Take the sync lock if it is free, else sleep until its owner is done, at most for `bound`.
    /// `None` does not tell whether it is free now. The caller holds the mutex that comes before
    /// it.
    pub(super) fn try_lock_sync<'a>(
        &self,
        control: &'a Control,
        member: &dyn Member,
        bound: Duration,
    ) -> Option<Guard<'a>> {
        let (word, me) = (control.word(at::SYNC_LOCK), member.identity());
        // Not made before the lock is ours, since dropping it releases the lock.
        let guard = || Guard { held: HeldLock::Word(control, Which::Sync, me), taken_over: false };
        lock::try_lock_or_sleep(&word, me, bound).then(guard)
    }

    #[cold]
    fn lock_contended<'a>(
        &'a self,
        which: Which,
        control: &'a Control,
        member: &dyn Member,
    ) -> Result<Guard<'a>> {
        let me = member.identity();
        let timeout = self.settings.lock_timeout;
        let word = control.word(which.word());
        let got = lock::lock(&word, me, &LogHolders(member), timeout, lock::stopwatch());
        let path = control.path().to_path_buf();
        let acquired = got.map_err(|e| match e {
            LockError::Timeout { holder } => Error::LockTimeout {
                path,
                waited: timeout.unwrap_or_default(),
                holder: member.describe(holder),
            },
            LockError::Damaged { .. } => {
                Error::corrupt(&path, which.word(), "the lock word is not one that falaj writes")
            }
            LockError::Io(source) => Error::io("look for the lock's holder in", &path, source),
        })?;
        let held = HeldLock::Word(control, which, me);
        let taken_over = matches!(acquired, Acquired::TakenOver(_));
        if taken_over {
            pass(Point::TakeOver);
        }
        Ok(Guard { held, taken_over })
    }

    fn lock_file<'a>(
        &'a self,
        which: Which,
        control: &'a Control,
        member: &dyn Member,
    ) -> Result<Guard<'a>> {
        let timeout = self.settings.lock_timeout;
        let path = self.dir.join(which.file());
        let file = member.open_to_lock(&*self.storage, &path);
        let file = file.map_err(|e| match e.kind() {
            // The file is made with the log.
            io::ErrorKind::NotFound => Error::FilesRemoved { path: path.clone() },
            _ => Error::io("open", &path, e),
        })?;
        wait_for_flock(&*file, &path, timeout)?;
        let held = HeldLock::File(file, control, which);
        if which == Which::Append {
            // Unequal ends show how the previous holder ended (see `repair`).
            return Ok(Guard { held, taken_over: false });
        }
        let guard = Guard { held, taken_over: control.word_value(which.word()) != 0 };
        match control.set(which.word(), lock::held_by(member.identity())) {
            Ok(()) => Ok(guard),
            Err(error) => {
                if guard.taken_over {
                    guard.abandon();
                }
                Err(error)
            }
        }
    }
}

/// Poll for the exclusive flock of an open file.
///
/// # Errors
/// `LockTimeout` after `timeout`, `SystemCallFailed`.
pub fn wait_for_flock(
    file: &dyn File,
    path: &std::path::Path,
    timeout: Option<Duration>,
) -> Result<()> {
    let start = Instant::now();
    let mut nap = Duration::from_micros(50);
    while !file.try_lock(LockKind::Exclusive).doing("lock", path)? {
        if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
            let waited = start.elapsed();
            let holder = "another process".to_owned();
            return Err(Error::LockTimeout { path: path.to_path_buf(), waited, holder });
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(5));
    }
    Ok(())
}
