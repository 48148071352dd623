//! `Consumed`: a loop over a consumer.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::consumer::Consumer;
use crate::input;
use crate::record::Record;

/// An iterator over the records that a consumer reads.
#[pyclass(frozen, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Consumed {
    pub(crate) consumer: Py<Consumer>,
    pub(crate) timeout: Option<Duration>,
}

#[pymethods]
impl Consumed {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("what is read one after the other"))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<falaj.Consumed of {}>", self.consumer.get().__repr__(py))
    }

    #[inline]
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let consumer = self.consumer.get();
        let found = match consumer.with(py, |state| state.next(py)) {
            Ok(Some(record)) => return Ok(Some(record)),
            Ok(None) => Consumer::wait_for(self.consumer.bind(py), self.timeout, |s| s.next(py)),
            found => found,
        };
        if let (Ok(Some(record)), Err(signal)) = (&found, py.check_signals()) {
            consumer._put_back(py, &PyList::new(py, [record])?)?;
            return Err(signal);
        }
        consumer.shared.unless_closed(py, found)
    }
}
