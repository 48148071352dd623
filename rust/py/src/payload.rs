//! Bytes as arguments: values, keys and the values of headers.
//!
//! Invariant: memory counts as bytes only if its owner says that it is contiguous bytes. Numbers,
//! arrays of them and NumPy's text have memory too, which other programs would read as something
//! else.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use crate::draft::NewRecord;
use crate::input::text;
use crate::record::Record;

pub(crate) const VALUE: &str = "a value";
pub(crate) const KEY: &str = "a key";

/// Return `bytes` unchanged, or a copy of another object's bytes.
pub(crate) fn bytes<'py>(given: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyBytes>> {
    match given.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => copied(given)?.ok_or_else(|| refused(given, what, "bytes")),
    }
}

/// Do the same, and encode text as UTF-8.
pub(crate) fn text_or_bytes<'py>(
    given: &Bound<'py, PyAny>,
    what: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if let Ok(given) = given.cast::<PyString>() {
        return Ok(PyBytes::new(given.py(), text(given, what)?.as_bytes()));
    }
    copied(given)?.ok_or_else(|| refused(given, what, "text or bytes"))
}

/// Return the bytes of a key or a name, as an append takes them.
#[pyfunction]
pub(crate) fn _text_or_bytes<'py>(
    given: &Bound<'py, PyAny>,
    what: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    text_or_bytes(given, what)
}

/// Say whether an object counts as bytes.
pub(crate) fn is_bytes(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_exact = given.is_instance_of::<PyBytes>();
    Ok(is_exact || memory_of(given).map_or(Ok(false), |memory| counts(given, &memory))?)
}

fn counts(given: &Bound<'_, PyAny>, memory: &PyUntypedBuffer) -> PyResult<bool> {
    let format = memory.format().to_bytes();
    let item = format.strip_prefix(b"<").unwrap_or(format);
    Ok(memory.dimensions() == 1 && matches!(item, b"B" | b"b" | b"c") && !is_more(given)?)
}

/// Copy contiguous bytes, as of a bytearray or a map of a file; `None` for anything else.
fn copied<'py>(given: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let py = given.py();
    let Some(buffer) = memory_of(given) else { return Ok(None) };
    if !counts(given, &buffer)? {
        return Ok(None);
    }
    if let Ok(bytes) = buffer.as_typed::<u8>() {
        let copy = |to: &mut [u8]| bytes.copy_to_slice(py, to);
        return PyBytes::new_with(py, buffer.len_bytes(), copy).map(Some);
    }
    let view = PyMemoryView::from(given)?;
    Ok(Some(view.call_method0(pyo3::intern!(py, "tobytes"))?.cast_into()?))
}

/// Return the memory of an object. That of ctypes does not say how far apart its items are; its
/// memoryview does.
fn memory_of(given: &Bound<'_, PyAny>) -> Option<PyUntypedBuffer> {
    let own = PyUntypedBuffer::get(given).ok();
    own.or_else(|| PyUntypedBuffer::get(PyMemoryView::from(given).ok()?.as_any()).ok())
}

/// Return true for a NumPy date, which is a number and shows its bytes. Also for a record, which
/// has more than the bytes of its value.
fn is_more(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    if given.is_exact_instance_of::<PyByteArray>() || given.is_exact_instance_of::<PyMemoryView>() {
        return Ok(false);
    }
    if given.is_instance_of::<Record>() {
        return Ok(true);
    }
    let dimensions = given.getattr_opt(pyo3::intern!(given.py(), "ndim"))?;
    Ok(dimensions.is_some_and(|n| n.extract::<u32>().is_ok_and(|n| n == 0)))
}

#[cold]
fn refused(given: &Bound<'_, PyAny>, what: &str, takes: &str) -> PyErr {
    let of_a_tombstone = match given.cast::<Record>() {
        _ if what != VALUE => None,
        Ok(record) => Record::is_tombstone(record).then_some("a tombstone has no value"),
        Err(_) => given.is_none().then_some("None is no value of a topic without a codec"),
    };
    if let Some(what) = of_a_tombstone {
        let remedy =
            "to delete a key, call tombstone(key), or give extend() a NewRecord.tombstone(key)";
        return PyTypeError::new_err(format!("{what}: {remedy}"));
    }
    let kind = given.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
    let is_record = given.is_instance_of::<Record>() || given.is_instance_of::<NewRecord>();
    let has_memory = memory_of(given).is_some_and(|buffer| buffer.dimensions() > 0);
    let remedy = if is_record && what == VALUE {
        "extend([record]) takes all of it, and record.value is its value alone"
    } else if has_memory && is_more(given).is_ok_and(|is_more| !is_more) {
        "its items are no single bytes in one row; give .tobytes() to keep its memory as it is"
    } else if what != VALUE {
        return PyTypeError::new_err(format!("{what} is {takes}, not {kind}: give {takes}"));
    } else if given.is_instance_of::<PyString>() {
        "call .encode() on it, or open the topic with codec=\"str\""
    } else {
        "encode it, or open the topic with a codec, such as codec=\"json\""
    };
    PyTypeError::new_err(format!("{what} is {takes}, not {kind}: {remedy}"))
}
