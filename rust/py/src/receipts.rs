//! `Receipts`: the records that a thread's calls appended, for a program whose signal handlers
//! raise.
//!
//! Python runs a handler after a call has returned and before its result is assigned, so an
//! exception of the handler discards the result. Here the result is noted before the call returns.
//! Invariant: a commit is noted before anything else may raise.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyRange, PyTuple};

use crate::calling::{call, of_module};
use crate::gil_cell::GilCell;
use crate::handle::Shape;

/// How many blocks are open, in all threads: an append checks only this while there are none.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The blocks that this thread is in.
    static BLOCKS: RefCell<Vec<Py<Receipts>>> = const { RefCell::new(Vec::new()) };
}

/// A partition's records that one call appended.
type Receipt = (Arc<Shape>, u32, Range<u64>);

/// Records that the calls of this thread append inside a `with` block.
///
/// A signal handler that raises can discard the result of a call: the exception comes, and the
/// records are in the topic all the same. This object still has the result. It costs nothing while
/// no block is open.
///
/// Example:
///     >>> orders = store.topic("orders")
///     >>> with falaj.Receipts() as receipts:
///     ...     _ = orders.append(b"10 apples")
///     >>> receipts.appended
///     [Receipt(topic='orders', partition=0, offsets=range(0, 1))]
#[pyclass(frozen, module = "falaj")]
pub struct Receipts(GilCell<Vec<Receipt>>);

#[pymethods]
impl Receipts {
    #[new]
    fn new() -> Self {
        Self(GilCell::new(Vec::new()))
    }

    /// The appended records, in order: topic, partition, and the range of offsets.
    #[getter]
    fn appended<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let class = of_module(&CLASS, py, "falaj._records", "Receipt")?;
        // Making one runs Python code, in which another append may be noted.
        let noted = self.0.borrow(py).clone();
        let receipts = noted.into_iter().map(|(shape, partition, offsets)| {
            let offsets = PyRange::new(py, offsets.start as isize, offsets.end as isize)?;
            call(class, (&shape.name, partition, offsets))
        });
        PyList::new(py, receipts.collect::<PyResult<Vec<_>>>()?)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        OPEN.fetch_add(1, Ordering::Relaxed);
        BLOCKS.with_borrow_mut(|blocks| blocks.push(slf.clone().unbind()));
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) {
        let left = BLOCKS.with_borrow_mut(|blocks| {
            let at = blocks.iter().rposition(|block| block.is(slf));
            at.map(|at| blocks.remove(at))
        });
        if left.is_some() {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<falaj.Receipts, {} appended>", self.0.borrow(py).len())
    }
}

impl std::fmt::Debug for Receipts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipts")
    }
}

/// Note appended records, for the thread's open blocks.
#[inline(always)]
pub(crate) fn note(py: Python<'_>, shape: &Arc<Shape>, partition: u32, offsets: Range<u64>) {
    if OPEN.load(Ordering::Relaxed) > 0 {
        note_down(py, shape, partition, &offsets);
    }
}

#[cold]
fn note_down(py: Python<'_>, shape: &Arc<Shape>, partition: u32, offsets: &Range<u64>) {
    BLOCKS.with_borrow(|blocks| {
        for block in blocks {
            block.get().0.update(py, |noted| {
                noted.push((Arc::clone(shape), partition, offsets.clone()));
            });
        }
    });
}
