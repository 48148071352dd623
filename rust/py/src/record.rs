//! `Record`: the result of reading. Lazy: nothing is decoded or copied before it is needed.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use falaj::internals::topic::Record as LogRecord;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};

use crate::buffer::{View, memoryview};
use crate::calling::{call, of_module, once};
use crate::coding::Coding;
use crate::detached::{Detached, Headers};
use crate::errors::{invalid, is_of_codec, not_decoded, shown};
use crate::handle::Shape;
use crate::held::Held;
use crate::input::{self, Incoming};

/// A committed record of a topic.
///
/// Nothing is decoded or copied before it is needed. It stays valid after its topic was closed or
/// deleted, and so does every view of it: they hold the map of their segment. It exports its
/// payload: `memoryview(record)`, and `bytes(record)` copies it.
///
/// `pickle`, `copy.copy` and `copy.deepcopy` make a detached record: it has its own bytes and holds
/// no map. It is equal to this one. A pickle names the function that decodes, so a codec of your
/// own must have one that pickles: a function of a module.
///
/// Example:
///     >>> orders = store.topic("orders")
///     >>> _ = orders.append(b"10 apples", key=b"eu", timestamp="2026-11-20T08:00:00Z")
///     >>> record = orders[0]
///     >>> record
///     <Record orders[0] b'10 apples'>
///     >>> record.key, record.offset, record.timestamp.isoformat()
///     (b'eu', 0, '2026-11-20T08:00:00+00:00')
///     >>> record.value[3:].tobytes()
///     b'apples'
#[pyclass(frozen, extends = View, module = "falaj", generic)]
pub struct Record {
    decoded: PyOnceLock<Py<PyAny>>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Record")
    }
}

impl Record {
    /// Make one from a record of the engine.
    #[inline]
    pub(crate) fn make(py: Python<'_>, held: Held) -> PyResult<Bound<'_, Self>> {
        let own = Self { decoded: PyOnceLock::new() };
        Bound::new(py, PyClassInitializer::from(View { held }).add_subclass(own))
    }

    /// Make the engine's record of it; `None` for a detached one.
    pub(crate) fn of_engine(slf: &Bound<'_, Self>) -> Option<LogRecord> {
        held(slf).place().map(|(run, at)| LogRecord::new(run.clone(), *at))
    }

    pub(crate) fn id(slf: &Bound<'_, Self>) -> ([u8; 16], u32, u64) {
        let held = held(slf);
        (held.shape().generation, held.partition(), held.offset())
    }

    /// Convert it for appending to a topic. Its bytes stay unchanged if that topic has the same
    /// codec, or none; otherwise that topic's codec encodes the value. A class must read them.
    pub(crate) fn incoming<'py>(slf: &Bound<'py, Self>, into: &Coding) -> PyResult<Incoming<'py>> {
        let mut record = Self::as_it_is(slf);
        if record.value.is_some() && into.encode.is_some() {
            let from = held(slf).shape().coding.of_records(slf.py())?;
            if !into.reads_all_of(from, slf.py())? {
                record.value = Some(Self::encoded(slf, from, into)?);
            }
        }
        Ok(record)
    }

    /// Convert it unchanged: its bytes, and its own time if it has one.
    pub(crate) fn as_it_is<'py>(slf: &Bound<'py, Self>) -> Incoming<'py> {
        let (py, held) = (slf.py(), held(slf));
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        let headers = held.headers().into_iter().map(|(n, v)| (n.to_owned(), v.map(bytes)));
        Incoming {
            value: held.value().map(bytes),
            key: held.key().map(bytes),
            headers: headers.collect(),
            event_time_ns: held.event_time_ns(),
        }
    }

    /// Return the value, or raise the error of the codec.
    fn decoded<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, held) = (slf.py(), held(slf));
        let coding = held.shape().coding.of_records(py)?;
        let Some(decode) = &coding.decode else { return Self::raw(slf) };
        let Some(payload) = held.value() else { return Ok(None) };
        let decoded = once(&slf.get().decoded, py, || {
            call(decode.bind(py), (PyBytes::new(py, payload),)).map(Bound::unbind)
        })?;
        Ok(Some(decoded.bind(py).clone()))
    }

    fn encoded<'py>(
        slf: &Bound<'py, Self>,
        from: &Coding,
        into: &Coding,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = slf.py();
        let refused = |why: &str, error: PyErr| {
            if !is_of_codec(py, &error) {
                return error;
            }
            let place = shown(Some(held(slf).partition()));
            let what = format!(
                "record {} of topic {:?}{place} (codec {}) does not go into topic {:?} (codec {}): {why}",
                Self::offset(slf),
                held(slf).shape().name,
                from.name,
                into.topic,
                into.name,
            );
            let refused = invalid(py, what);
            refused.set_cause(py, Some(error));
            refused
        };
        let bytes = Self::to_bytes(slf);
        if from.name == into.name {
            let Some(decode) = &into.decode else { return Ok(bytes) };
            let read = call(decode.bind(py), (&bytes,));
            return read.map(|_| bytes).map_err(|error| {
                refused(&format!("the class of that topic cannot read it ({error})"), error)
            });
        }
        let value = match Self::decoded(slf) {
            Ok(Some(value)) if from.decode.is_some() => value,
            // Codecs read bytes, and not all of them read views.
            Ok(_) => bytes.into_any(),
            Err(error) => {
                let why = format!("it cannot be read ({error}); copy it to a topic of bytes");
                return Err(refused(&why, error));
            }
        };
        input::encoded(&value, into.encode.as_ref())
            .map_err(|error| refused(&error.value(py).to_string(), error))
    }
}

#[inline]
fn held<'a>(slf: &'a Bound<'_, Record>) -> &'a Held {
    &slf.as_super().get().held
}

/// Value, key and headers of a pickle.
type Content = (Option<Vec<u8>>, Option<Vec<u8>>, Headers);

#[pymethods]
impl Record {
    /// The value, as the topic's codec reads the payload. A topic of "raw" gives a read-only
    /// memoryview, one of "bytes" gives bytes; the result of another codec is cached. None for a
    /// tombstone, and for a value that is None, such as JSON's null: `is_tombstone` distinguishes
    /// them.
    ///
    /// Raises:
    ///     DecodeFailed: The codec cannot read the payload; `raw` and `to_bytes()` return it unchanged.
    #[getter]
    fn value<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // The fast path of "bytes": nothing is cached, and no view is made.
        if held(slf).shape().coding.at_once().is_some_and(|coding| coding.gives_bytes) {
            return Ok(held(slf).value().map(|value| PyBytes::new(slf.py(), value).into_any()));
        }
        Self::decoded(slf).map_err(|error| {
            let (held, shape) = (held(slf), held(slf).shape());
            let place = (&*shape.name, held.partition(), held.offset());
            match shape.coding.at_once() {
                Some(coding) => not_decoded(slf.py(), error, &coding.name, place),
                None => error,
            }
        })
    }

    /// The payload as a read-only memoryview of the mapped segment; None for a tombstone.
    #[getter]
    fn raw<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if held(slf).value().is_none() {
            return Ok(None);
        }
        memoryview(slf.as_any()).map(|view| Some(view.into_any()))
    }

    /// True for a record without a value, which deletes its key; see `Topic.tombstone`.
    #[getter]
    pub(crate) fn is_tombstone(slf: &Bound<'_, Self>) -> bool {
        held(slf).value().is_none()
    }

    /// A copy of the payload.
    pub(crate) fn to_bytes<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        PyBytes::new(slf.py(), held(slf).value().unwrap_or_default())
    }

    fn __bytes__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        Self::to_bytes(slf)
    }

    /// The key, or None.
    #[getter]
    fn key<'py>(slf: &Bound<'py, Self>) -> Option<Bound<'py, PyBytes>> {
        held(slf).key().map(|key| PyBytes::new(slf.py(), key))
    }

    /// Names and values, in order; a name may appear twice.
    #[getter]
    fn headers<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, held) = (slf.py(), held(slf));
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        let headers = held.headers().into_iter();
        let headers: Vec<_> = headers.map(|(n, v)| (n, v.map(bytes))).collect();
        PyTuple::new(py, headers)
    }

    /// Its number in its partition.
    #[getter]
    #[inline]
    fn offset(slf: &Bound<'_, Self>) -> u64 {
        held(slf).offset()
    }

    /// Number of its partition.
    #[getter]
    fn partition(slf: &Bound<'_, Self>) -> u32 {
        held(slf).partition()
    }

    /// When it happened, or otherwise was appended, in nanoseconds since 1970.
    #[getter]
    fn timestamp_ns(slf: &Bound<'_, Self>) -> i64 {
        held(slf).timestamp_ns()
    }

    /// The same as a datetime in UTC, in microseconds.
    #[getter]
    fn timestamp<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static FROM_NS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let from_ns = of_module(&FROM_NS, slf.py(), "falaj._time", "from_ns")?;
        call(from_ns, (Self::timestamp_ns(slf),))
    }

    /// Name of its topic.
    #[getter]
    fn topic<'a>(slf: &'a Bound<'_, Self>) -> &'a str {
        &held(slf).shape().name
    }

    /// Bytes of the payload.
    fn __len__(slf: &Bound<'_, Self>) -> usize {
        held(slf).value().map_or(0, <[u8]>::len)
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

    /// For pickle and copy: all parts. The result has its own bytes, and holds no map.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        static RESTORE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static PORTABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, held) = (slf.py(), held(slf));
        let restore = of_module(&RESTORE, py, "falaj._records", "restored_record")?.clone();
        let shape = held.shape();
        let coding = shape.coding.of_records(py)?;
        let topic = (&*shape.name, PyBytes::new(py, &shape.generation), &*coding.name);
        let portable = of_module(&PORTABLE, py, "falaj._records", "portable")?;
        let decode = coding.decode.as_ref().map(|decode| call(portable, (decode,))).transpose()?;
        let place = (held.partition(), held.offset());
        let time = (held.timestamp_ns(), held.event_time_ns().is_some());
        let value = held.value().map(|value| PyBytes::new(py, value));
        let content = (value, Self::key(slf), Self::headers(slf)?);
        let state = (topic, decode, place, time, content);
        Ok((restore, state.into_pyobject(py)?))
    }

    /// Make one from the parts of `__reduce__`.
    #[staticmethod]
    #[pyo3(signature = (topic, decode, place, time, content))]
    fn _restored<'py>(
        py: Python<'py>,
        topic: (String, [u8; 16], String),
        decode: Option<Py<PyAny>>,
        place: (u32, u64),
        time: (i64, bool),
        content: Content,
    ) -> PyResult<Bound<'py, Self>> {
        let ((topic, generation, name), (partition, offset)) = (topic, place);
        let ((timestamp_ns, is_event_time), (value, key, headers)) = (time, content);
        let gives_bytes = decode.as_ref().is_some_and(|it| it.is(py.get_type::<PyBytes>()));
        let coding =
            Coding { topic: topic.clone(), name, encode: None, decode, gives_bytes }.into();
        let shape = Shape { name: topic, generation, coding };
        let own =
            Detached { shape, partition, offset, timestamp_ns, is_event_time, value, key, headers };
        Self::make(py, Held::Alone(Py::new(py, own)?))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let held = held(slf);
        let payload = match held.value() {
            None => "no value".into(),
            Some(value) if value.len() <= 40 => PyBytes::new(slf.py(), value).repr()?.to_string(),
            Some(value) => {
                format!("{}… {} bytes", PyBytes::new(slf.py(), &value[..32]).repr()?, value.len())
            }
        };
        let partition = match held.partition() {
            0 => String::new(),
            partition => format!("/{partition}"),
        };
        Ok(format!("<Record {}{partition}[{}] {payload}>", held.shape().name, held.offset()))
    }
}
