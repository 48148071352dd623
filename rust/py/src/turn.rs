//! Turns: one thread at a time uses a consumer, and any thread may close it.
//!
//! Owns the state that a consumer and its closers share. Invariant: a close releases everything.
//! The closing thread does or, if another thread is using the consumer, that one when its call
//! ends. No thread gets a turn any more. A closing thread never waits for a turn: it may be a
//! signal's handler, in the very thread that has it. Callbacks run outside every turn, so that they
//! can use the consumer. The last one runs when it is closed, and its thread may still use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, ThreadId};

use falaj::internals::consumer::{Announcement, CommittedMoves, GroupReader, Move};
use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::log::Notifier;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyWeakrefMethods, PyWeakrefReference};

use crate::calling::call;
use crate::consuming::{Consuming, Known};
use crate::errors::{is, raise};

/// The state that a consumer and its closers share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Only tried, never waited for, as in a follower: see [`crate::follow`]. `None` once it was
    /// released.
    state: Mutex<Option<Consuming>>,
    stopped: AtomicBool,
    pub(crate) bell: Notifier,
    pub(crate) known: Arc<Known>,
    /// The Python object whose callbacks are called, if it has some.
    owner: OnceLock<Py<PyWeakrefReference>>,
    farewell: Mutex<Farewell>,
    /// Moves that transactions committed for it since it was used last.
    moved: Arc<CommittedMoves>,
}

/// The last callback, which runs when the consumer is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Farewell {
    #[default]
    Due,
    /// It runs in this thread.
    Runs(ThreadId),
    Over,
}

/// Call a callback of a consumer, if it has that one. No turn may be taken.
pub(crate) fn announce(consumer: &Bound<'_, PyAny>, announcement: Announcement) -> PyResult<()> {
    let (name, parts) = match announcement {
        Announcement::Assigned(parts) => ("_on_assign", parts),
        Announcement::Revoked(parts) => ("_on_revoke", parts),
    };
    let callback = consumer.getattr(name)?;
    if callback.is_none() { Ok(()) } else { call(&callback, (consumer, parts)).map(drop) }
}

impl Shared {
    pub(crate) fn new(state: Consuming, bell: Notifier) -> Arc<Self> {
        let (known, moved) = (Arc::clone(&state.known), Arc::clone(state.reader.moved()));
        let (state, stopped) = (Mutex::new(Some(state)), AtomicBool::new(false));
        let (owner, farewell) = Default::default();
        Arc::new(Self { state, stopped, bell, known, owner, farewell, moved })
    }

    /// Call the callbacks of this object from now on.
    pub(crate) fn announce_to(&self, owner: &Bound<'_, PyAny>) -> PyResult<()> {
        let weak = PyWeakrefReference::new(owner)?.unbind();
        let _ = self.owner.set(weak);
        self.in_turn(owner.py(), |state| {
            state.reader.settled().announce();
            Ok(())
        })
    }

    fn farewell(&self) -> MutexGuard<'_, Farewell> {
        self.farewell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return true for a thread that may not use it any more.
    #[inline]
    fn is_over(&self) -> bool {
        self.is_closed() && *self.farewell() != Farewell::Runs(thread::current().id())
    }

    /// Return true once it was closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Raise an error once it was closed.
    #[inline]
    pub(crate) fn expect_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_over() {
            Err(raise(py, &Error::HandleClosed { what: "consumer" }))
        } else {
            Ok(())
        }
    }

    /// Return `None` while another thread has it, or this one further up its stack.
    #[inline]
    fn try_state(&self) -> Option<MutexGuard<'_, Option<Consuming>>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Use it. If it is closed meanwhile, it is released afterwards.
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
        // A closing thread is attached, as this one is: it found the turn taken, or its close is
        // seen here.
        if self.is_over() { self.end(py, done) } else { done }
    }

    #[cold]
    fn end<T>(&self, py: Python<'_>, done: PyResult<T>) -> PyResult<T> {
        let left = self.let_go(py);
        done.and_then(|done| left.map(|()| done))
    }

    /// Return the result, or nothing if the consumer was closed meanwhile.
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

    /// Note the moves that a transaction committed: at once or, if another thread is using the
    /// consumer, before that one commits.
    pub(crate) fn moved(&self, moves: Vec<Move>, end: Address) {
        self.moved.note(moves, end);
        if let Ok(mut state) = self.state.try_lock() {
            state.iter_mut().for_each(|state| _ = state.reader.settled());
        }
    }

    /// Release everything, from any thread. If another thread is using it, that one releases it.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stopped.store(true, Ordering::Relaxed);
        self.known.all().iter().for_each(|handle| handle.rouse(py));
        self.bell.wake_all();
        self.let_go(py)
    }

    /// Release everything; what could not be released is left to the next close.
    #[cold]
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        let farewell = self.say_farewell(py);
        if matches!(*self.farewell(), Farewell::Runs(_)) {
            return farewell; // the thread that says it releases everything afterwards
        }
        farewell.and(self.leave(py))
    }

    /// Call the last callback, once and while nothing is released yet.
    fn say_farewell(&self, py: Python<'_>) -> PyResult<()> {
        let Some(owner) = self.owner.get().and_then(|owner| owner.bind(py).upgrade()) else {
            return Ok(());
        };
        let announcement = {
            let Some(mut state) = self.try_state() else { return Ok(()) };
            let Some(state) = state.as_mut() else { return Ok(()) };
            let mut farewell = self.farewell();
            if *farewell != Farewell::Due {
                return Ok(());
            }
            *farewell = Farewell::Runs(thread::current().id());
            state.reader.farewell()
        };
        let said = announcement.map_or(Ok(()), |announcement| announce(&owner, announcement));
        *self.farewell() = Farewell::Over;
        said
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut guard) = self.try_state() else { return Ok(()) };
        let Some(state) = guard.as_mut() else { return Ok(()) };
        state.patiently(py, GroupReader::leave)?;
        let state = guard.take();
        drop(guard);
        if let Some(Consuming { reader, .. }) = state {
            py.detach(|| drop(reader));
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
