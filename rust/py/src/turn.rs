//! Turns: one thread at a time uses a consumer, and any may close it.
//!
//! Owns what a consumer and those who close it share. Invariant: of what was closed everything is let
//! go, by whoever closed it or, where a thread is at work in it, by that one when its call ends; and
//! nobody has a turn any more. Who closes never waits for a turn: it may be a signal's handler, in the
//! very thread that has it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use falaj::internals::consumer::Move;
use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::log::Notifier;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::consuming::{Consuming, Moved};
use crate::errors::{is, raise};
use crate::handle::Handle;
use crate::wait::patiently;

/// What a consumer and those who close it share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Only tried, never waited for, as a follower's: see [`crate::follow`]. `None` once it was let go.
    state: Mutex<Option<Consuming>>,
    stopped: AtomicBool,
    pub(crate) bell: Notifier,
    pub(crate) first: Arc<Handle>,
    /// What transactions committed for it since it was used last.
    moved: Arc<Moved>,
}

impl Shared {
    pub(crate) fn new(
        state: Consuming,
        bell: Notifier,
        first: Arc<Handle>,
        moved: Arc<Moved>,
    ) -> Arc<Self> {
        let (state, stopped) = (Mutex::new(Some(state)), AtomicBool::new(false));
        Arc::new(Self { state, stopped, bell, first, moved })
    }

    /// True once it was closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Complain once it was closed.
    #[inline]
    pub(crate) fn expect_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed() {
            Err(raise(py, &Error::HandleClosed { what: "consumer" }))
        } else {
            Ok(())
        }
    }

    /// `None` while another thread has it, or this one further up.
    #[inline]
    fn try_state(&self) -> Option<MutexGuard<'_, Option<Consuming>>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Use it. Where it is closed meanwhile it is let go behind that.
    #[inline]
    pub(crate) fn in_turn<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Consuming) -> PyResult<T>,
    ) -> PyResult<T> {
        self.expect_open(py)?;
        let Some(mut state) = self.try_state() else { return Err(in_use()) };
        let done = match state.as_mut() {
            Some(state) => work(state),
            None => Err(raise(py, &Error::HandleClosed { what: "consumer" })),
        };
        drop(state);
        // Who closes it is attached, as this thread is: it found the turn taken, or it is seen here.
        if self.is_closed() { self.end(py, done) } else { done }
    }

    #[cold]
    fn end<T>(&self, py: Python<'_>, done: PyResult<T>) -> PyResult<T> {
        let left = self.let_go(py);
        done.and_then(|done| left.map(|()| done))
    }

    /// What was found, or nothing where it was closed on the way.
    #[inline]
    pub(crate) fn unless_closed<T>(
        &self,
        py: Python<'_>,
        found: PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        match found {
            Err(error) if self.is_closed() && is(py, &error, "HandleClosed") => Ok(None),
            found => found,
        }
    }

    /// Note what a transaction committed: at once, or where another thread is using the consumer before
    /// that commits.
    pub(crate) fn moved(&self, moves: Vec<Move>, end: Address) {
        self.moved.note(moves, end);
        if let Ok(mut state) = self.state.try_lock() {
            state.iter_mut().for_each(Consuming::settle_moved);
        }
    }

    /// Let everything go, from any thread. Where one is at work in it, that one does.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stopped.store(true, Ordering::Relaxed);
        self.first.rouse(py);
        self.bell.wake_all();
        self.let_go(py)
    }

    /// What could not be let go stays, to be let go when it is closed again.
    #[cold]
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut guard) = self.try_state() else { return Ok(()) };
        let Some(Consuming { member, .. }) = guard.as_mut() else { return Ok(()) };
        patiently(py, self.first.patience, || member.leave())?;
        let state = guard.take();
        drop(guard);
        if let Some(Consuming { member, .. }) = state {
            py.detach(|| drop(member));
        }
        Ok(())
    }
}

#[cold]
fn in_use() -> PyErr {
    let what =
        "another thread is using this consumer; give each its own: they share the partitions";
    PyRuntimeError::new_err(what)
}
