//! Arguments: values, keys, headers, times and modes as Python passes them.
//!
//! Invariant: objects that can change while they are copied are copied under the GIL; `bytes`
//! cannot change, and are used in place.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use falaj::internals::topic::{NewRecord, SyncMode, Visibility};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyUnicodeEncodeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::calling::{call, of_module};
use crate::coding::Coding;
use crate::errors::invalid;
use crate::payload;

const PAIR: &str = "a tuple in extend() is a pair (key, value), whose key is not None. Put a value that \
                    is a tuple (a row, a named tuple) into a NewRecord. Pass a value without a key by itself";
const PAIR_KEY: &str =
    "the first of a pair is its key (a value that is a tuple goes into a NewRecord), which";

const HEADERS: &str = "a dict, or pairs of a name and a value";

/// A header as given.
pub(crate) type HeaderOf<'py> = (String, Option<Bound<'py, PyBytes>>);

/// A record on its way in.
#[derive(Debug)]
pub(crate) struct Incoming<'py> {
    pub(crate) value: Option<Bound<'py, PyBytes>>,
    pub(crate) key: Option<Bound<'py, PyBytes>>,
    pub(crate) headers: Vec<HeaderOf<'py>>,
    pub(crate) event_time_ns: Option<i64>,
}

impl<'py> Incoming<'py> {
    /// Make a record that is only a value.
    pub(crate) fn value(value: Bound<'py, PyBytes>) -> Self {
        Self { value: Some(value), key: None, headers: Vec::new(), event_time_ns: None }
    }

    /// Make a record of a value that a codec encodes, for this partition if it is known.
    #[inline]
    pub(crate) fn encoded(
        value: &Bound<'py, PyAny>,
        (coding, partition): (&Coding, Option<u32>),
        (key, headers): (Option<&Bound<'py, PyAny>>, Option<&Bound<'py, PyAny>>),
        timestamp: Timestamp<'_, 'py>,
    ) -> PyResult<Self> {
        Ok(Self {
            value: Some(coding.encoded(value, partition)?),
            key: self::key(key)?,
            headers: self::headers(headers)?,
            event_time_ns: timestamp.ns()?,
        })
    }

    /// Make a tombstone: a record without a value, which deletes its key.
    pub(crate) fn tombstone(
        key: &Bound<'py, PyAny>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Timestamp<'_, 'py>,
    ) -> PyResult<Self> {
        Ok(Self {
            value: None,
            key: Some(payload::text_or_bytes(key, "the key of a tombstone")?),
            headers: self::headers(headers)?,
            event_time_ns: timestamp.ns()?,
        })
    }

    /// Lend it to the engine.
    pub(crate) fn with_record<T>(&self, use_it: impl FnOnce(&NewRecord<'_>) -> T) -> T {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref().map(PyBytesMethods::as_bytes)))
            .collect();
        use_it(&NewRecord {
            value: self.value.as_ref().map(PyBytesMethods::as_bytes),
            key: self.key.as_ref().map(PyBytesMethods::as_bytes),
            headers: &headers,
            event_time_ns: self.event_time_ns,
        })
    }

    /// Return roughly how many bytes it has.
    #[allow(clippy::redundant_closure_for_method_calls, reason = "its lifetime is too narrow")]
    pub(crate) fn len(&self) -> usize {
        self.with_record(|record| record.max_len())
    }
}

/// Encode a value by the topic's codec, if it has one.
pub(crate) fn encoded<'py>(
    value: &Bound<'py, PyAny>,
    encode: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let Some(encode) = encode else { return payload::bytes(value, payload::VALUE) };
    payload::bytes(&call(encode.bind(value.py()), (value,))?, "what the codec makes of a value")
}

/// Make the error for `in`: it would compare each record, which equals no value, and return False.
#[cold]
pub(crate) fn no_container(what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "`in` does not search {what}: a record equals no value, no key and no offset. Compare what you \
         mean, as in any(record.value == wanted for record in …)"
    ))
}

/// Convert headers: a mapping or pairs, ordered; names are text, values text, bytes or None.
pub(crate) fn headers<'py>(given: Option<&Bound<'py, PyAny>>) -> PyResult<Vec<HeaderOf<'py>>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if let Some(headers) = given.cast_exact::<PyDict>().ok().and_then(ready_headers) {
        return Ok(headers);
    }
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        return Err(not_that("headers", HEADERS, given));
    }
    let pairs = match given.cast::<PyDict>() {
        Ok(dict) => dict.items().into_any(),
        Err(_) => given.clone(),
    };
    let pair = |pair: PyResult<Bound<'py, PyAny>>| {
        let (name, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            pair?.extract().map_err(|_| not_a_header())?;
        header(&name, &value)
    };
    let pairs = pairs.try_iter().map_err(|_| not_that("headers", HEADERS, given))?;
    pairs.map(pair).collect()
}

/// Convert headers that need no conversion of items, which could run code that changes the dict.
fn ready_headers<'py>(dict: &Bound<'py, PyDict>) -> Option<Vec<HeaderOf<'py>>> {
    let ready = |(name, value): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
        let name = name.cast_exact::<PyString>().ok()?.to_str().ok()?.to_owned();
        let value = if value.is_none() { None } else { Some(value.cast_into_exact().ok()?) };
        Some((name, value))
    };
    dict.iter().map(ready).collect()
}

fn header<'py>(name: &Bound<'py, PyAny>, value: &Bound<'py, PyAny>) -> PyResult<HeaderOf<'py>> {
    let name = text(name.cast::<PyString>().map_err(|_| not_a_header())?, "the name of a header")?;
    if value.is_none() {
        return Ok((name, None));
    }
    Ok((name, Some(payload::text_or_bytes(value, "the value of a header")?)))
}

fn not_a_header() -> PyErr {
    PyTypeError::new_err("a header is a pair of a name (str) and a value: str, bytes or None")
}

/// Convert a key.
pub(crate) fn key<'py>(given: Option<&Bound<'py, PyAny>>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    given.map(|key| payload::text_or_bytes(key, payload::KEY)).transpose()
}

/// The two ways to say when a record happened: `timestamp=` and `timestamp_ns=`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamp<'a, 'py> {
    pub(crate) moment: Option<&'a Bound<'py, PyAny>>,
    pub(crate) ns: Option<&'a Bound<'py, PyAny>>,
}

impl Timestamp<'_, '_> {
    /// Return nanoseconds since 1970, if a time was given.
    pub(crate) fn ns(self) -> PyResult<Option<i64>> {
        static TO_NS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static EXPECT_NS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (given, to_ns) = match (self.moment, self.ns) {
            (None, None) => return Ok(None),
            (Some(moment), None) => {
                (moment, of_module(&TO_NS, moment.py(), "falaj._time", "to_ns")?)
            }
            (None, Some(ns)) => match ns.is_exact_instance_of::<PyInt>().then(|| ns.extract()) {
                // A number of Python's own needs no module.
                Some(Ok(found)) if found != i64::MIN => return Ok(Some(found)),
                _ => (ns, of_module(&EXPECT_NS, ns.py(), "falaj._time", "expect_ns")?),
            },
            (Some(both), Some(_)) => {
                let what =
                    "timestamp= and timestamp_ns= both say when it happened: give one of them";
                return Err(invalid(both.py(), what));
            }
        };
        call(to_ns, (given,))?.extract().map(Some)
    }
}

/// Show an argument in an error: short text and numbers as they are, else the type.
#[cold]
pub(crate) fn named(given: &Bound<'_, PyAny>) -> String {
    let is_plain = given.is_none()
        || given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyFloat>()
        || given.is_instance_of::<PyInt>();
    let repr = is_plain.then(|| given.repr().ok().map(|repr| repr.to_string())).flatten();
    repr.filter(|repr| repr.len() <= 80).unwrap_or_else(|| {
        given.get_type().name().map_or_else(|_| "that".into(), |name| name.to_string())
    })
}

/// Make the error for an argument of a wrong type.
#[cold]
pub(crate) fn not_that(what: &str, takes: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{what} is {takes}, not {}", named(given)))
}

/// Take text that names something; its letters are checked later.
fn name<'py>(given: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyString>> {
    given.cast::<PyString>().cloned().map_err(|_| not_that(what, "text", given))
}

/// Take the name of a bulk load.
pub(crate) fn load_name<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    name(given, "the name of a bulk load")
}

/// Take the name of a part of a bulk load.
pub(crate) fn part_name<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    name(given, "the name of a part")
}

/// Take the name of a producer.
pub(crate) fn producer_name<'a, 'py>(
    given: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, PyString>> {
    given.cast::<PyString>().map_err(|_| not_that("the name of a producer", "text", given))
}

/// Take the name of a series of bulk loads.
pub(crate) fn series_name<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    name(given, "the name of a series")
}

/// Take a whole number as Python's own, including objects that only have an index, as numbers of
/// NumPy; never a bool.
pub(crate) fn whole<'py>(given: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyAny>> {
    static INDEX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if given.is_exact_instance_of::<PyInt>() {
        return Ok(given.clone());
    }
    if given.is_instance_of::<PyBool>() {
        return Err(not_that(what, "a whole number", given));
    }
    call(of_module(&INDEX, given.py(), "operator", "index")?, (given,)).map_err(|error| {
        let is_none = error.is_instance_of::<PyTypeError>(given.py());
        if is_none { not_that(what, "a whole number", given) } else { error }
    })
}

/// Take whether columns are views.
pub(crate) fn views(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    given.extract().map_err(|_| not_that("views", "True or False", given))
}

/// Take a number, which may be negative or too large in Python.
pub(crate) fn number<'py, T>(given: &Bound<'py, PyAny>, what: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    whole(given, what)?.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(given.py()) {
            return error;
        }
        let given_as = shown(given);
        let most = (1u128 << (8 * size_of::<T>())) - 1;
        invalid(given.py(), format!("{what} is a number from 0 to {most}, not {given_as}"))
    })
}

/// Take an index into a list.
pub(crate) fn index(given: &Bound<'_, PyAny>) -> PyResult<isize> {
    given.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(given.py()) {
            return error;
        }
        PyIndexError::new_err(format!("nothing has so many values as {}", shown(given)))
    })
}

/// Show a number in a sentence; Python makes no text of one with thousands of digits.
fn shown(given: &Bound<'_, PyAny>) -> String {
    given.repr().map_or_else(|_| "a number of thousands of digits".into(), |repr| repr.to_string())
}

/// Make the error for a number that is neither an offset nor a partition.
pub(crate) fn no_offset(given: &Bound<'_, PyAny>) -> PyErr {
    invalid(given.py(), format!("no partition and no offset is {}", shown(given)))
}

/// Take text that is stored as given. A name that is checked letter by letter does not need this:
/// invalid characters are replaced by ones that no name may have.
pub(crate) fn text(given: &Bound<'_, PyString>, what: &str) -> PyResult<String> {
    given.to_str().map(str::to_owned).map_err(|_| {
        let given_as = given.repr().map_or_else(|_| "it".into(), |repr| repr.to_string());
        invalid(
            given.py(),
            format!("{what} is text, and {given_as} is not UTF-8: it holds half a character"),
        )
    })
}

/// Take a path, which may have any bytes but zeros.
pub(crate) fn path(given: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(PathBuf::from(OsStr::from_bytes(bytes.as_bytes())));
    }
    given.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyTypeError>(given.py()) {
            return not_that("a path", "text, bytes or os.PathLike", given);
        }
        if !error.is_instance_of::<PyUnicodeEncodeError>(given.py()) {
            return error;
        }
        let what = format!("no path is {}: it holds half a character", shown(given));
        invalid(given.py(), what)
    })
}

/// Take a duration in seconds from 0 on: a number, which may be too large, a timedelta, or text
/// such as "5m".
fn seconds(given: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    static SECONDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let takes = "a number of seconds from 0 on, a timedelta or text such as \"5m\"";
    let is_number = given.is_instance_of::<PyFloat>() || given.is_exact_instance_of::<PyInt>();
    let found: f64 = match given.extract() {
        Ok(found) if is_number => found,
        _ => call(of_module(&SECONDS, given.py(), "falaj._time", "seconds")?, (given, what))?
            .extract()?,
    };
    if Duration::try_from_secs_f64(found).is_ok() {
        return Ok(found);
    }
    let takes = if found.is_finite() && found > 0.0 { "below 2**64 seconds" } else { takes };
    Err(invalid(given.py(), format!("{what} is {takes}, not {}", shown(given))))
}

/// Take seconds to wait, or `None` to wait without a limit.
pub(crate) fn timeout(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if given.is_none() { Ok(None) } else { lock_timeout(given).map(Some) }
}

/// Take seconds to wait for a lock.
pub(crate) fn lock_timeout(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    seconds(given, "a timeout")
}

/// Take how long a worker has a job.
pub(crate) fn lease(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    seconds(given, "a lease")
}

/// Take how long a job waits.
pub(crate) fn delay(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    seconds(given, "a delay")
}

/// Take the same, or None for the queue's own.
pub(crate) fn optional_delay(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if given.is_none() { Ok(None) } else { delay(given).map(Some) }
}

/// Take how old something is.
pub(crate) fn older_than(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    seconds(given, "older_than")
}

fn numbered<'py, T>(given: &Bound<'py, PyAny>, what: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if given.is_none() { Ok(None) } else { number(given, what).map(Some) }
}

/// Take the number of a partition.
pub(crate) fn partition_number(given: &Bound<'_, PyAny>) -> PyResult<u32> {
    number(given, "a partition")
}

/// Take an offset.
pub(crate) fn offset_number(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    number(given, "an offset")
}

/// Take an offset of any size, which may count from the end.
pub(crate) fn any_offset(given: &Bound<'_, PyAny>) -> PyResult<i128> {
    whole(given, "an offset")?.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(given.py()) { no_offset(given) } else { error }
    })
}

/// Take a number of bytes.
pub(crate) fn bytes_of_memory(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    number(given, "memory")
}

/// Take a partition.
pub(crate) fn partition(given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    numbered(given, "a partition")
}

/// Take the name of a topic.
pub(crate) fn topic_name(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let Ok(name) = given.cast::<PyString>() else {
        let kind = given.get_type().name()?;
        return Err(PyTypeError::new_err(format!("the name of a topic is text, not {kind}")));
    };
    Ok(name.to_string_lossy().into_owned())
}

/// Take text that names something, or None.
fn optional_text<'a, 'py>(
    given: Option<&'a Bound<'py, PyAny>>,
    what: &str,
    takes: &str,
) -> PyResult<Option<&'a Bound<'py, PyString>>> {
    let text = |given: &'a Bound<'py, PyAny>| {
        given.cast::<PyString>().map_err(|_| not_that(what, takes, given))
    };
    given.map(text).transpose()
}

/// Take the name of a topic that a consumer reads.
pub(crate) fn consumed_topic<'a, 'py>(
    given: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<&'a Bound<'py, PyString>>> {
    optional_text(given, "topic", "the name of a topic")
}

/// Take the name of the topic that is verified.
pub(crate) fn verified_topic<'a, 'py>(
    given: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<&'a Bound<'py, PyString>>> {
    optional_text(given, "topic", "the name of a topic, or None for all")
}

/// Take the name of the log that a topic lives in.
pub(crate) fn log_name<'a, 'py>(
    given: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<&'a Bound<'py, PyString>>> {
    optional_text(given, "log", "text, the name of a log")
}

/// Take the reason why a job failed.
pub(crate) fn reason<'a, 'py>(
    given: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<&'a Bound<'py, PyString>>> {
    optional_text(given, "reason", "text")
}

/// Take the text beside committed offsets; empty without one.
pub(crate) fn metadata(given: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    optional_text(given, "metadata", "text")?
        .map_or_else(|| Ok(String::new()), |given| text(given, "metadata"))
}

/// Take permission bits.
pub(crate) fn permissions(given: &Bound<'_, PyAny>) -> PyResult<u32> {
    number(given, "permissions")
}

/// Take a number of partitions.
pub(crate) fn partitions(given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    numbered(given, "partitions")
}

/// Take the size of a log's file.
pub(crate) fn segment_bytes(given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    numbered(given, "segment_bytes")
}

/// Take the time between syncs.
pub(crate) fn sync_interval_ms(given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    numbered(given, "sync_interval_ms")
}

/// Take an offset to wait for.
pub(crate) fn offset(given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    numbered(given, "an offset")
}

/// Take how many are delivered at once.
pub(crate) fn most(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    number(given, "how many there are to be")
}

/// The phrase for the name of an idempotency key.
pub(crate) const SERIES: &str = "the name of a series of bulk loads";

/// Take manifests of parts.
pub(crate) fn manifests<'py>(given: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    given
        .extract()
        .map_err(|_: PyErr| not_that("parts", "a list of manifests, which are bytes", given))
}

/// Take an idempotency key: the name of a series of bulk loads, and the number of one in it.
pub(crate) fn idempotency_key(given: &Bound<'_, PyAny>) -> PyResult<Option<(String, u64)>> {
    if given.is_none() {
        return Ok(None);
    }
    let takes = "a pair of the name of a series and a number, such as (\"nightly\", 20261127)";
    let wrong = |_: PyErr| not_that("idempotency_key", takes, given);
    let (name, given): (Bound<'_, PyString>, Bound<'_, PyAny>) = given.extract().map_err(wrong)?;
    Ok(Some((text(&name, SERIES)?, number(&given, "the number of a bulk load")?)))
}

/// Take the name of a sync mode.
pub(crate) fn sync_mode(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<SyncMode>> {
    let Some(given) = given else { return Ok(None) };
    let name = given.cast::<PyString>().ok().and_then(|name| name.to_str().ok());
    match name {
        Some("none") => Ok(Some(SyncMode::None)),
        Some("interval") => Ok(Some(SyncMode::Interval)),
        Some("durable") => Ok(Some(SyncMode::Durable)),
        Some("remote") => Ok(Some(SyncMode::Remote)),
        _ => {
            let what = format!(
                "sync is \"none\", \"interval\", \"durable\" or \"remote\", not {}",
                named(given)
            );
            Err(invalid(given.py(), what))
        }
    }
}

/// Take a visibility.
pub(crate) fn visibility(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Visibility>> {
    let Some(given) = given else { return Ok(None) };
    let name = given.cast::<PyString>().ok().and_then(|name| name.to_str().ok());
    match name {
        Some("visible") => Ok(Some(Visibility::Visible)),
        Some("durable") => Ok(Some(Visibility::Durable)),
        Some("remote") => Ok(Some(Visibility::Remote)),
        _ => {
            let what = format!(
                "visibility is \"visible\", \"durable\" or \"remote\", not {}",
                named(given)
            );
            Err(invalid(given.py(), what))
        }
    }
}

/// Return the key and the value of a pair. Rows of a table are tuples too: one that cannot be a
/// pair is refused, so that it loses no column.
pub(crate) fn pair<'py>(
    item: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyAny>)>> {
    let Ok(tuple) = item.cast::<PyTuple>() else { return Ok(None) };
    let pair: PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> = tuple.extract();
    match pair {
        Ok((key, value)) if tuple.is_exact_instance_of::<PyTuple>() && !key.is_none() => {
            Ok(Some((payload::text_or_bytes(&key, PAIR_KEY)?, value)))
        }
        _ => Err(PyTypeError::new_err(PAIR)),
    }
}

/// Read the argument `expect`: the offset that a record must get.
pub(crate) fn expected(offset: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    offset.map(|offset| number(offset, "expect")).transpose()
}
