//! `View` and `BatchView`: buffers of values in a mapped segment.
//!
//! A view holds its batch, and so, by reference count, the map of the segment. Invariant: the
//! exported bytes lie below the committed end, where no process writes again. Their map lives as
//! long as the exporting object, which the buffer's consumer holds.
#![allow(unsafe_code)]

use std::ffi::c_int;

use falaj::internals::topic::RecordRef;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::batch::Batch;
use crate::gil_cell::GilCell;
use crate::held::Held;

/// The bytes of a value, at their place in the map; a detached record has its own.
#[pyclass(frozen, subclass, module = "falaj._core")]
#[derive(Debug)]
pub struct View {
    pub(crate) held: Held,
}

/// Make a read-only memoryview of what an object exports.
#[inline]
pub(crate) fn memoryview<'py>(exporter: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(exporter)
}

#[pymethods]
impl View {
    #[allow(clippy::needless_pass_by_value, reason = "the signature that pyo3 asks for")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        match slf.get().held.value() {
            Some(value) => export(slf.as_any(), value, view, flags),
            None => Err(PyBufferError::new_err("a record without a value has no bytes to view")),
        }
    }
}

/// Exports values of a batch in sequence: an object for each would cost as much as the rest of its
/// memoryview.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct BatchView {
    batch: Py<Batch>,
    shown: GilCell<Option<RecordRef>>,
}

impl BatchView {
    pub(crate) fn new(batch: Py<Batch>) -> Self {
        Self { batch, shown: GilCell::new(None) }
    }

    /// Make a memoryview of the value of one of the batch's records. Only the code that made this
    /// object calls it, and does nothing else until it returns.
    #[inline]
    pub(crate) fn show<'py>(
        slf: &Bound<'py, Self>,
        place: RecordRef,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        slf.get().shown.replace(slf.py(), Some(place));
        memoryview(slf.as_any())
    }

    #[inline]
    fn shown(&self, py: Python<'_>) -> Option<&[u8]> {
        let place = (*self.shown.borrow(py))?;
        self.batch.get().run.value(&place)
    }
}

#[pymethods]
impl BatchView {
    #[allow(clippy::needless_pass_by_value, reason = "the signature that pyo3 asks for")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let value = slf.get().shown(slf.py());
        let value = value.ok_or_else(|| PyBufferError::new_err("no value to view"))?;
        export(slf.as_any(), value, view, flags)
    }
}

/// Fill the interpreter's view with bytes of a block, or of a detached record, that `exporter` keeps alive.
#[inline]
fn export(
    exporter: &Bound<'_, PyAny>,
    value: &[u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let (start, len) = (value.as_ptr().cast_mut().cast(), value.len() as ffi::Py_ssize_t);
    debug_assert!(!view.is_null());
    // No process writes these bytes again: they are committed (invariants 1 and 2 of
    // docs/ARCHITECTURE.md), or a frozen detached record owns them.
    // SAFETY: the interpreter owns `view`, to be filled. The bytes are exported as read-only (the 1)
    // and stay readable while `exporter` lives, to which the view holds a reference. A failure sets
    // an exception.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, exporter.as_ptr(), start, len, 1, flags) };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(exporter.py())) }
}
