//! `Lookout`: no sleep outlasts a signal, although a sleeping thread does not check for signals.
//!
//! Python's handler of a signal only notes it. The main thread runs the Python handler when it
//! comes back to the interpreter. A signal ends the sleep of the main thread. But there is a moment
//! between its last check and its sleep, and the kernel may deliver the signal to another thread.
//! So while the main thread sleeps, Python writes each signal to a pipe of ours
//! (`signal.set_wakeup_fd`, made for this). A thread that does nothing else reads the pipe and
//! wakes the log's waiters.
//!
//! ```text
//! main thread                        handler, in any thread     this module's thread
//!   set_wakeup_fd(pipe)                note the signal            wait for the pipe
//!   before = count                     write to the pipe          count += 1
//!   look for signals                                              rouse the log
//!   ticket; pipe empty and                                        empty the pipe
//!   count = before? sleep
//! ```
//!
//! Invariant: a signal that the check did not see is written to the pipe after the pipe was set.
//! Once the pipe is empty again, `count` has risen since `before` was read. If it was written
//! before the last comparison, the thread does not sleep. If after it, the wake comes after the
//! ticket, and ends the sleep. If a log's waiters cannot be woken, the sleep lasts 50 ms at most. A
//! descriptor that other code has set is left alone: then there is no lookout, and the caller
//! sleeps in short turns.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use falaj::internals::log::Log;
use falaj::internals::store::fork;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::gil_cell::GilCell;

/// The lookout of this process, made at its first use.
static LOOKOUT: GilCell<Option<Lookout>> = GilCell::new(None);

#[derive(Debug)]
struct Lookout {
    /// A forked child needs a thread, and a pipe, of its own.
    epoch: u64,
    write: OwnedFd,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pipe: OwnedFd,
    /// Signals so far.
    count: AtomicU64,
    /// The log on which the main thread sleeps.
    asleep: Mutex<Weak<Log>>,
}

impl Shared {
    fn asleep(&self) -> MutexGuard<'_, Weak<Log>> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return true when a signal was written; wait for one, or only check.
    fn is_written(&self, timeout: Option<&Timespec>) -> Result<bool, Errno> {
        let mut pipe = [PollFd::new(&self.pipe, PollFlags::IN)];
        poll(&mut pipe, timeout).map(|ready| ready > 0)
    }

    fn serve(&self) {
        loop {
            match self.is_written(None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            self.count.fetch_add(1, Ordering::Release);
            self.rouse();
            // Last: a check finds the pipe as it was, or the count raised.
            if matches!(read(&self.pipe, &mut [0; 64]), Ok(0)) {
                return;
            }
        }
    }

    /// Wake the log's waiters. The log is released before the main thread can continue, so it is
    /// never closed here.
    fn rouse(&self) {
        let asleep = self.asleep();
        if let Some(log) = asleep.upgrade() {
            log.wake_all();
        }
    }
}

impl Lookout {
    fn new() -> std::io::Result<Self> {
        let (pipe, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Python requires it, and is right: a handler must not wait for us.
        fcntl_setfl(&write, OFlags::NONBLOCK)?;
        let (count, asleep) = Default::default();
        let shared = Arc::new(Shared { pipe, count, asleep });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("falaj-signals".into());
        thread.spawn(move || served.serve())?;
        Ok(Self { epoch: fork::epoch(), write, shared })
    }
}

/// While it exists every signal ends the sleep on a log.
pub(crate) struct Looking<'py> {
    py: Python<'py>,
    shared: Arc<Shared>,
    fd: i32,
    before: u64,
}

impl<'py> Looking<'py> {
    /// Begin, in the main thread, before it checks for signals; `None` if that is not possible.
    pub(crate) fn begin(py: Python<'py>, log: &Arc<Log>) -> Option<Self> {
        let stale = LOOKOUT.borrow(py).as_ref().map(|lookout| lookout.write.as_raw_fd());
        let ours = LOOKOUT.borrow(py).as_ref().is_some_and(|l| l.epoch == fork::epoch());
        let mut replaced = None;
        if !ours {
            replaced = LOOKOUT.replace(py, Some(Lookout::new().ok()?));
        }
        let (fd, shared) = {
            let lookout = LOOKOUT.borrow(py);
            let lookout = lookout.as_ref()?;
            (lookout.write.as_raw_fd(), Arc::clone(&lookout.shared))
        };
        let other = set_wakeup_fd(py, fd)?;
        // Closed only now: a child may have been forked with it set.
        drop(replaced);
        if other != -1 && Some(other) != stale {
            set_wakeup_fd(py, other);
            return None;
        }
        *shared.asleep() = Arc::downgrade(log);
        let before = shared.count.load(Ordering::Acquire);
        Some(Self { py, shared, fd, before })
    }

    /// Return a function that tells whether a signal came since.
    pub(crate) fn came(&self) -> impl Fn() -> bool + Sync + use<> {
        let (shared, before) = (Arc::clone(&self.shared), self.before);
        let now = Timespec::default();
        move || {
            // The pipe first: it is emptied after the count was raised.
            let written = shared.is_written(Some(&now)).unwrap_or(true);
            written || shared.count.load(Ordering::Acquire) != before
        }
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        *self.shared.asleep() = Weak::new();
        let now = set_wakeup_fd(self.py, -1);
        // A handler that ran meanwhile may have set its own.
        if let Some(other) = now.filter(|now| ![-1, self.fd].contains(now)) {
            set_wakeup_fd(self.py, other);
        }
    }
}

/// Set the descriptor to which Python writes signals, and return the previous one. `None` if that
/// is refused, as in a thread that is not the interpreter's main one.
fn set_wakeup_fd(py: Python<'_>, fd: i32) -> Option<i32> {
    let options = PyDict::new(py);
    options.set_item("warn_on_full_buffer", false).ok()?;
    let signal = py.import("signal").ok()?;
    signal.call_method("set_wakeup_fd", (fd,), Some(&options)).ok()?.extract().ok()
}
