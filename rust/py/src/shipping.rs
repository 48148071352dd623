//! `Shipping`: this process ships a store, and says so to all others.

use falaj::internals::format::address::Address;
use falaj::internals::store::Shipping as Inner;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::store::Store;
use crate::wait::{patiently, seconds};

/// Says that this process ships a store, until its block ends; `Store._shipping` makes it.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Shipping(Inner);

#[pymethods]
impl Shipping {
    /// Stop, because another store's process claimed the place: waiters get `Fenced`.
    fn fence(&self, py: Python<'_>) {
        py.detach(|| self.0.stop(true));
    }

    /// Stop: waiters get `NoShipper`. A second call changes nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.stop(false));
    }

    /// Return whether a process may be asleep until what it appended has left the machine.
    ///
    /// It looks at the logs that this process has open, which a cut leaves open. Costs some
    /// nanoseconds a log. A waiter that gave up counts until the next acknowledgement.
    fn waiting(&self) -> bool {
        self.0.is_awaited()
    }

    /// Sleep until a process waits, at most for so many seconds; return whether one may.
    ///
    /// It may wait for a log that this process does not have open, so a cut should follow.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let longest = seconds(py, Some(timeout))?.unwrap_or_default();
        Ok(py.detach(|| self.0.wait(longest)))
    }

    /// True once it was stopped.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_over()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> &'static str {
        if self.0.is_over() { "<falaj.Shipping, closed>" } else { "<falaj.Shipping>" }
    }
}

/// Begin to ship a store.
#[pyfunction]
pub(crate) fn _shipping(py: Python<'_>, store: &Store) -> PyResult<Shipping> {
    let inner = store.inner(py)?;
    patiently(py, store.patience(), || inner.ship()).map(Shipping)
}

/// Directories of logs, each with the sequence and the position of an address.
type Ends = Vec<(String, u64, u64)>;

/// Acknowledge what so many places have, and note what all places have; without `shipped` both are
/// the same.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "a list of Python's comes as a vector")]
pub(crate) fn _acknowledge_ends(
    py: Python<'_>,
    store: &Store,
    ends: Ends,
    shipped: Option<Ends>,
    places: u64,
) -> PyResult<()> {
    let inner = store.inner(py)?;
    let remote = addresses(&ends);
    let shipped = shipped.as_ref().map_or_else(|| remote.clone(), addresses);
    patiently(py, store.patience(), || inner.acknowledge_by(places, &remote, &shipped))
}

/// Return how many places must have a record, as the settings of the store say now.
#[pyfunction]
pub(crate) fn _min_sync(py: Python<'_>, store: &Store) -> PyResult<u64> {
    let inner = store.inner(py)?;
    patiently(py, store.patience(), || inner.min_sync())
}

fn addresses(ends: &Ends) -> Vec<(&str, Address)> {
    ends.iter()
        .map(|(log, sequence, position)| (log.as_str(), Address::new(*sequence, *position)))
        .collect()
}
