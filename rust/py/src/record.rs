//! `Record`: what reading yields. Lazy: nothing is decoded or copied before it is asked for.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use falaj::topic::RecordView;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};

use crate::buffer::{View, memoryview};
use crate::handle::Shape;
use crate::input::Incoming;

/// A committed record of a topic.
///
/// Nothing is decoded or copied before it is asked for. It stays valid after its topic was closed or
/// deleted, and so does every view of it: they hold the map of their segment. It exports its payload:
/// `memoryview(record)`, and `bytes(record)` copies it.
///
/// Example:
///     >>> orders = store.topic("orders")
///     >>> _ = orders.append(b"10 apples", key=b"eu", time="2026-11-20T08:00:00Z")
///     >>> record = orders[0]
///     >>> record
///     <Record orders[0] b'10 apples'>
///     >>> record.key, record.offset, record.timestamp.isoformat()
///     (b'eu', 0, '2026-11-20T08:00:00+00:00')
///     >>> record.value[3:].tobytes()
///     b'apples'
#[pyclass(frozen, extends = View, module = "falaj", generic)]
pub struct Record {
    shape: Arc<Shape>,
    /// Number of its partition.
    #[pyo3(get)]
    partition: u32,
    decoded: PyOnceLock<Py<PyAny>>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record of {}", self.shape.name)
    }
}

impl Record {
    /// Make one of what the engine read.
    #[inline]
    pub(crate) fn make<'py>(
        py: Python<'py>,
        record: RecordView,
        partition: u32,
        shape: &Arc<Shape>,
    ) -> PyResult<Bound<'py, Self>> {
        let own = Self { shape: Arc::clone(shape), partition, decoded: PyOnceLock::new() };
        Bound::new(py, PyClassInitializer::from(View { record }).add_subclass(own))
    }

    fn id(slf: &Bound<'_, Self>) -> ([u8; 16], u32, u64) {
        let own = slf.get();
        (own.shape.generation, own.partition, view(slf).offset())
    }

    /// As the engine takes it: the bytes as they are, and its own time if it has one.
    pub(crate) fn incoming<'py>(slf: &Bound<'py, Self>) -> Incoming<'py> {
        let (py, record) = (slf.py(), view(slf));
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        let headers = record.headers().map(|(n, v)| (n.to_owned(), v.map(bytes)));
        Incoming {
            value: record.value().map(bytes),
            key: record.key().map(bytes),
            headers: headers.collect(),
            event_time_ns: record.parts().event_time_ns,
        }
    }
}

#[inline]
fn view<'a>(slf: &'a Bound<'_, Record>) -> &'a RecordView {
    &slf.as_super().get().record
}

#[pymethods]
impl Record {
    /// What the topic's codec makes of the payload, decoded once; a read-only memoryview without a
    /// codec. None for a tombstone, as compacted topics hold them.
    #[getter]
    fn value<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, own) = (slf.py(), slf.get());
        let Some(decode) = &own.shape.decode else { return Self::raw(slf) };
        let Some(payload) = view(slf).value() else { return Ok(None) };
        let decoded =
            own.decoded.get_or_try_init(py, || decode.call1(py, (PyBytes::new(py, payload),)))?;
        Ok(Some(decoded.bind(py).clone()))
    }

    /// The payload as a read-only memoryview of the mapped segment; None for a tombstone.
    #[getter]
    fn raw<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if view(slf).value().is_none() {
            return Ok(None);
        }
        memoryview(slf.as_any()).map(|view| Some(view.into_any()))
    }

    /// A copy of the payload.
    fn bytes<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        PyBytes::new(slf.py(), view(slf).value().unwrap_or_default())
    }

    fn __bytes__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        Self::bytes(slf)
    }

    /// What the record is about, or None.
    #[getter]
    fn key<'py>(slf: &Bound<'py, Self>) -> Option<Bound<'py, PyBytes>> {
        view(slf).key().map(|key| PyBytes::new(slf.py(), key))
    }

    /// Names and values, in order; a name may stand twice.
    #[getter]
    fn headers<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        let headers: Vec<_> = view(slf).headers().map(|(n, v)| (n, v.map(bytes))).collect();
        PyTuple::new(py, headers)
    }

    /// Its number in its partition.
    #[getter]
    #[inline]
    fn offset(slf: &Bound<'_, Self>) -> u64 {
        view(slf).offset()
    }

    /// When it happened or else was appended, nanoseconds since 1970.
    #[getter]
    fn timestamp_ns(slf: &Bound<'_, Self>) -> i64 {
        view(slf).timestamp_ns()
    }

    /// The same as a datetime in UTC, of microseconds.
    #[getter]
    fn timestamp<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static FROM_NS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let from_ns = FROM_NS.import(slf.py(), "falaj.times", "from_ns")?;
        from_ns.call1((view(slf).timestamp_ns(),))
    }

    /// Name of its topic.
    #[getter]
    fn topic(&self) -> &str {
        &self.shape.name
    }

    /// Bytes of the payload.
    fn __len__(slf: &Bound<'_, Self>) -> usize {
        view(slf).value().map_or(0, <[u8]>::len)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| Self::id(slf) == Self::id(other))
    }

    fn __hash__(slf: &Bound<'_, Self>) -> u64 {
        let mut hasher = DefaultHasher::new();
        Self::id(slf).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (own, record) = (slf.get(), view(slf));
        let payload = match record.value() {
            None => "no value".into(),
            Some(value) if value.len() <= 40 => PyBytes::new(slf.py(), value).repr()?.to_string(),
            Some(value) => {
                format!("{}… {} bytes", PyBytes::new(slf.py(), &value[..32]).repr()?, value.len())
            }
        };
        let partition =
            if own.partition > 0 { format!("/{}", own.partition) } else { String::new() };
        Ok(format!("<Record {}{partition}[{}] {payload}>", own.shape.name, record.offset()))
    }
}
