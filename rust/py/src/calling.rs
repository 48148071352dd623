//! Calls of Python code from Rust, during which the interpreter may shut down.
//!
//! Python code takes the GIL again after a switch of threads or a system call. If the interpreter
//! shuts down meanwhile, versions before 3.14 end a daemon thread there by `pthread_exit`. glibc
//! then unwinds the stack of the thread. The process aborts when the unwinding reaches a Rust frame
//! that catches panics, and each function that Python calls is such a frame. So this module puts
//! the thread to sleep until the process ends, as 3.14 does. pyo3 does the same where a thread
//! attaches again.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::ptr;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyTuple};
use pyo3::{BoundObject, ffi};

// pyo3 declares these functions as ones that never unwind, so with its declarations nothing here
// would run. Link-time optimization merges the two declarations of a function into one that never
// unwinds. So each call goes through a pointer that the optimizer cannot follow (`black_box`).
unsafe extern "C-unwind" {
    fn PyObject_Call(
        callable: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
        named: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    fn PyIter_Next(iterator: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

type Call = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;
type Next = unsafe extern "C-unwind" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

/// Ends the unwinding of a thread: nothing further out runs.
struct Sleep;

impl Drop for Sleep {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Do one call of a function that is declared here. An unwinding out of it ends in [`Sleep`].
#[inline(always)]
fn asleep_at_exit(call: impl FnOnce() -> *mut ffi::PyObject) -> *mut ffi::PyObject {
    let sleep = Sleep;
    let result = call();
    std::mem::forget(sleep);
    result
}

/// Call what may be Python code. No lock may be held that the main thread would wait for.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callable.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?.into_bound();
    let function: Call = black_box(PyObject_Call);
    // SAFETY: the thread is attached, both objects live until the end of this function, and null
    // stands for no named arguments.
    let result = asleep_at_exit(|| unsafe {
        function(callable.as_ptr(), arguments.as_ptr(), ptr::null_mut())
    });
    // SAFETY: it is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// The items of an iterable, which may be a generator.
#[derive(Debug)]
pub(crate) struct Items<'py>(Bound<'py, PyIterator>);

impl<'py> Items<'py> {
    pub(crate) fn of(iterable: &Bound<'py, PyAny>) -> PyResult<Self> {
        iterable.try_iter().map(Self)
    }
}

impl<'py> Iterator for Items<'py> {
    type Item = PyResult<Bound<'py, PyAny>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let py = self.0.py();
        let function: Next = black_box(PyIter_Next);
        // SAFETY: the thread is attached, and the object lives and is an iterator.
        let item = asleep_at_exit(|| unsafe { function(self.0.as_ptr()) });
        // SAFETY: it is a new reference, or null, at the end or with an exception set.
        match unsafe { Bound::from_owned_ptr_or_opt(py, item) } {
            Some(item) => Some(Ok(item)),
            None => PyErr::take(py).map(Err),
        }
    }
}

/// Return what was made before, or make it. Python code may run meanwhile, as a signal handler or another greenlet,
/// and ask for the same in this thread. So no lock is held, and of several that are made at once the first counts.
pub(crate) fn once<'py, T>(
    once: &'py PyOnceLock<T>,
    py: Python<'py>,
    make: impl FnOnce() -> PyResult<T>,
) -> PyResult<&'py T> {
    if let Some(known) = once.get(py) {
        return Ok(known);
    }
    let made = make()?;
    Ok(once.get_or_init(py, || made))
}

/// Import a module, which runs Python code if it is the first import.
pub(crate) fn import<'py>(py: Python<'py>, module: &str) -> PyResult<Bound<'py, PyAny>> {
    static IMPORT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let of_python = || py.import("importlib")?.getattr("import_module").map(Bound::unbind);
    call(once(&IMPORT, py, of_python)?.bind(py), (module,))
}

/// Return something of a module, imported once.
pub(crate) fn of_module<'py>(
    known: &'py PyOnceLock<Py<PyAny>>,
    py: Python<'py>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let found = once(known, py, || import(py, module)?.getattr(name).map(Bound::unbind))?;
    Ok(found.bind(py))
}
