//! `NewRecord`: a record to be appended, with all its parts.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};

use crate::calling::of_module;
use crate::coding::Coding;
use crate::input::{self, Incoming, Timestamp};
use crate::record::Record;

/// A record to be appended, with all its parts, for `Topic.extend`.
///
/// Args:
///     value: As for `Topic.append`. None is a value, where the codec has one; `NewRecord.tombstone` makes
///         a record without a value.
///     key, headers, timestamp, timestamp_ns: As for `Topic.append`.
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
    /// The value before encoding; `None` for a tombstone.
    #[pyo3(get)]
    value: Option<Py<PyAny>>,
    /// Its key, or None.
    #[pyo3(get)]
    key: Option<Py<PyBytes>>,
    headers: Vec<(String, Option<Py<PyBytes>>)>,
    /// Its time in nanoseconds since 1970, or None for the time of the append.
    #[pyo3(get)]
    timestamp_ns: Option<i64>,
}

impl NewRecord {
    fn of(value: Option<Py<PyAny>>, rest: Incoming<'_>) -> Self {
        let headers = rest.headers.into_iter();
        Self {
            value,
            key: rest.key.map(Bound::unbind),
            headers: headers.map(|(n, v)| (n, v.map(Bound::unbind))).collect(),
            timestamp_ns: rest.event_time_ns,
        }
    }

    /// Convert it for the engine.
    pub(crate) fn incoming<'py>(
        &self,
        py: Python<'py>,
        (coding, partition): (&Coding, Option<u32>),
    ) -> PyResult<Incoming<'py>> {
        let bound = |bytes: &Py<PyBytes>| bytes.bind(py).clone();
        let headers = self.headers.iter();
        let value = self.value.as_ref();
        Ok(Incoming {
            value: value.map(|value| coding.encoded(value.bind(py), partition)).transpose()?,
            key: self.key.as_ref().map(bound),
            headers: headers.map(|(n, v)| (n.clone(), v.as_ref().map(bound))).collect(),
            event_time_ns: self.timestamp_ns,
        })
    }
}

#[pymethods]
impl NewRecord {
    #[new]
    #[pyo3(signature = (value, key=None, *, headers=None, timestamp=None, timestamp_ns=None))]
    fn new(
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (key, headers) = (input::key(key)?, input::headers(headers)?);
        let event_time_ns = Timestamp { moment: timestamp, ns: timestamp_ns }.ns()?;
        let rest = Incoming { value: None, key, headers, event_time_ns };
        Ok(Self::of(Some(value.clone().unbind()), rest))
    }

    /// Make a tombstone: a record without a value, which deletes its key, for `Topic.extend`.
    ///
    /// Args:
    ///     key, headers, timestamp, timestamp_ns: As for `Topic.tombstone`.
    ///
    /// Example:
    ///     >>> prices = store.topic("prices")
    ///     >>> prices.extend([(b"tea", b"3 rials"), falaj.NewRecord.tombstone(b"coffee")])
    ///     range(0, 2)
    ///     >>> [record.is_tombstone for record in prices]
    ///     [False, True]
    #[staticmethod]
    #[pyo3(signature = (key, *, headers=None, timestamp=None, timestamp_ns=None))]
    fn tombstone(
        key: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let timestamp = Timestamp { moment: timestamp, ns: timestamp_ns };
        Ok(Self::of(None, Incoming::tombstone(key, headers, timestamp)?))
    }

    /// Copy a record of a topic unchanged except for its time, for a topic with the codec bytes.
    #[staticmethod]
    fn _of(record: &Bound<'_, Record>, timestamp_ns: i64) -> PyResult<Self> {
        let mut rest = Record::as_it_is(record);
        rest.event_time_ns = Some(timestamp_ns);
        Ok(Self::of(rest.value.take().map(|value| value.into_any().unbind()), rest))
    }

    /// True for the result of `NewRecord.tombstone`.
    #[getter]
    fn is_tombstone(&self) -> bool {
        self.value.is_none()
    }

    /// Names and values, in order.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Vec<(String, Option<Bound<'py, PyBytes>>)> {
        let headers = self.headers.iter();
        headers.map(|(n, v)| (n.clone(), v.as_ref().map(|v| v.bind(py).clone()))).collect()
    }

    /// For pickle and copy.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Py<PyAny>, Bound<'py, PyTuple>)> {
        static RESTORE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let restore = of_module(&RESTORE, py, "falaj._records", "restored")?.clone().unbind();
        let state = (
            self.value.as_ref().map(|value| value.clone_ref(py)),
            self.is_tombstone(),
            self.key.as_ref().map(|key| key.clone_ref(py)),
            self.headers(py),
            self.timestamp_ns,
        );
        Ok((restore, state.into_pyobject(py)?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key = match &self.key {
            None => "None".to_owned(),
            Some(key) => short(key.bind(py).as_any())?,
        };
        match &self.value {
            Some(value) => Ok(format!("NewRecord({}, key={key})", short(value.bind(py))?)),
            None => Ok(format!("NewRecord.tombstone({key})")),
        }
    }
}

/// Most characters of a value in a `repr`.
const SHOWN: usize = 60;

/// Show a value in a message, cut where it is long.
fn short(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let (bytes, all) = (bytes.as_bytes(), bytes.as_bytes().len());
        if all > SHOWN {
            let begin = PyBytes::new(value.py(), &bytes[..SHOWN / 2]).repr()?;
            return Ok(format!("{begin}… {all} bytes"));
        }
    }
    let whole = value.repr()?.to_string();
    Ok(match whole.char_indices().nth(SHOWN) {
        None => whole,
        Some((end, _)) => format!("{}…", &whole[..end]),
    })
}
