//! `NewRecord`: a record that is to be appended, with all that belongs to it.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::input::{self, Incoming};

/// A record that is to be appended, with all that belongs to it, for `Topic.extend`.
///
/// Args:
///     value: As for `Topic.append`; in a topic of bytes also None, for a tombstone.
///     key, headers, time: As for `Topic.append`.
///
/// Example:
///     >>> orders = store.topic("orders")
///     >>> orders.extend([falaj.NewRecord(b"x", headers=[("trace", b"1"), ("trace", b"2")])])
///     range(0, 1)
///     >>> orders[0].headers
///     (('trace', b'1'), ('trace', b'2'))
#[pyclass(frozen, module = "falaj")]
#[derive(Debug)]
pub struct NewRecord {
    /// The value, not encoded yet.
    #[pyo3(get)]
    value: Py<PyAny>,
    /// Its key, or None.
    #[pyo3(get)]
    key: Option<Py<PyBytes>>,
    headers: Vec<(String, Option<Py<PyBytes>>)>,
    /// Its time in nanoseconds since 1970, or None for that of the append.
    #[pyo3(get)]
    timestamp_ns: Option<i64>,
}

impl NewRecord {
    /// As the engine takes it.
    pub(crate) fn incoming<'py>(
        &self,
        py: Python<'py>,
        encode: Option<&Py<PyAny>>,
    ) -> PyResult<Incoming<'py>> {
        let bound = |bytes: &Py<PyBytes>| bytes.bind(py).clone();
        let headers = self.headers.iter();
        let value = self.value.bind(py);
        // A codec makes of None what it likes; where none is asked, it is no value at all.
        let is_tombstone = encode.is_none() && value.is_none();
        Ok(Incoming {
            value: if is_tombstone { None } else { Some(input::encoded(value, encode)?) },
            key: self.key.as_ref().map(bound),
            headers: headers.map(|(n, v)| (n.clone(), v.as_ref().map(bound))).collect(),
            event_time_ns: self.timestamp_ns,
        })
    }
}

#[pymethods]
impl NewRecord {
    #[new]
    #[pyo3(signature = (value, key=None, headers=None, time=None))]
    fn new(
        value: Py<PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        time: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let headers = input::headers(headers)?;
        Ok(Self {
            value,
            key: input::key(key)?.map(Bound::unbind),
            headers: headers.into_iter().map(|(n, v)| (n, v.map(Bound::unbind))).collect(),
            timestamp_ns: input::time_ns(time)?,
        })
    }

    /// Names and values, in order.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Vec<(String, Option<Bound<'py, PyBytes>>)> {
        let headers = self.headers.iter();
        headers.map(|(n, v)| (n.clone(), v.as_ref().map(|v| v.bind(py).clone()))).collect()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key = self.key.as_ref().map_or_else(
            || Ok("None".into()),
            |key| key.bind(py).repr().map(|repr| repr.to_string()),
        )?;
        Ok(format!("NewRecord({}, key={key})", self.value.bind(py).repr()?))
    }
}
