//! `GilCell`: a value for threads attached to the interpreter, without a lock.
//!
//! A lock costs two locked instructions on each use, a third of the time that an append may take.
//! The interpreter's own lock is held anyway. Invariant: the inner cell is reached only with a
//! [`Python`] token, and a borrow does not outlive the token. A borrow that is held while the
//! thread detaches is still a borrow: another thread may then read, and panics before it changes
//! anything.
#![allow(unsafe_code)]

use std::cell::{Ref, RefCell};
use std::fmt;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A value for attached threads.
pub(crate) struct GilCell<T>(RefCell<T>);

// SAFETY: `Sync` requires that no two threads use the cell at once. The cell is private, and each
// method requires a token of being attached, which also bounds the lifetime of a borrow. The guard
// is not `Send`, so it stays with its thread. One thread at a time is attached. The module says
// `gil_used = true`, its stable ABI is not that of interpreters without a GIL, and [`expect_main`]
// refuses all interpreters but one. Threads use the value in turn (`Send`), and several that are
// detached meanwhile use it through shared borrows (`Sync`).
unsafe impl<T: Send + Sync> Sync for GilCell<T> {}

impl<T> fmt::Debug for GilCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attached")
    }
}

impl<T> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// Borrow the value.
    #[inline(always)]
    pub(crate) fn borrow<'a>(&'a self, _py: Python<'a>) -> Ref<'a, T> {
        self.0.borrow()
    }

    /// Change the value. It must not be borrowed, and `change` runs no Python code.
    pub(crate) fn update(&self, _py: Python<'_>, change: impl FnOnce(&mut T)) {
        change(&mut self.0.borrow_mut());
    }

    /// Replace the value. It must not be borrowed.
    pub(crate) fn replace(&self, _py: Python<'_>, value: T) -> T {
        self.0.replace(value)
    }
}

/// Refuse any interpreter but the main one, before it gets anything of the module. All interpreters
/// of a process would share the module's state, and each has a GIL of its own. Python itself
/// refuses only from 3.12 on, and only interpreters that ask for it.
pub(crate) fn expect_main(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: a thread that is attached, as the token says, has a current interpreter.
    let current = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: it lives as long as the thread is attached to it.
    if unsafe { ffi::PyInterpreterState_GetID(current) } == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "falaj runs only in the main interpreter of a process, and this is a subinterpreter: use another \
         process; under mod_wsgi set \"WSGIApplicationGroup %{GLOBAL}\"",
    ))
}
