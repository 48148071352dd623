//! `View`: the buffer of a value in a mapped segment, and the only unsafe code of these bindings.
//!
//! A view holds its block and so, by reference count, the map of the segment. Invariant: what is
//! exported are bytes below the committed end, which nobody writes again, in a map that lives as long
//! as the exporting object, which the buffer's consumer holds.
#![allow(unsafe_code)]

use std::ffi::c_int;

use falaj::topic::RecordView;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// The bytes of a value, where they lie.
#[pyclass(frozen, subclass, module = "falaj._core")]
#[derive(Debug)]
pub struct View {
    pub(crate) record: RecordView,
}

/// A read-only memoryview of what an object exports.
#[inline]
pub(crate) fn memoryview<'py>(exporter: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(exporter)
}

#[pymethods]
impl View {
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let Some(value) = slf.get().record.value() else {
            return Err(PyBufferError::new_err("a record without a value has no bytes to view"));
        };
        let (start, len) = (value.as_ptr().cast_mut().cast(), value.len().cast_signed());
        debug_assert!(!view.is_null());
        // SAFETY: `view` is the interpreter's, to be filled. `start..len` are bytes of a committed
        // block: no process writes them again (invariants 1 and 2 of docs/ARCHITECTURE.md), and they
        // are exported as read-only (the 1). They stay mapped while `slf` lives, to which the filled
        // view holds a reference of its own. On failure an exception is set.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
