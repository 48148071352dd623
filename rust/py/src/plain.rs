//! Refusing values that the codecs json and msgpack could encode but not return.
//!
//! JSON makes text of a key that is a number, and msgpack writes keys and depths that its reader
//! refuses. Invariant: while a dict is walked, no Python code runs that could change it; checks
//! that must call a method wait until then.

use std::collections::HashSet;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple};

use crate::errors::invalid;
use crate::payload;

/// Most lists and dicts inside one another. A reader needs as many stack frames, and Python has
/// 1000 for everything. JSON readers of other languages begin to refuse here.
const DEEPEST: usize = 128;

/// Whole numbers of this many bits have at most 4300 digits, which Python reads.
const LONGEST: u64 = 14_284;

/// Most lists and dicts in a value, each counted wherever it appears. More are a value that has one
/// list in many places, and never ends.
const MOST: u32 = 1 << 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Msgpack,
}

/// Refuse a value that the codec json would encode but not return. With `whole`, also refuse what
/// the codec itself refuses, in its own words.
#[pyfunction]
pub(crate) fn _expect_json(value: &Bound<'_, PyAny>, whole: bool) -> PyResult<()> {
    expect(value, Form::Json, whole)
}

/// Do the same for the codec msgpack.
#[pyfunction]
pub(crate) fn _expect_msgpack(value: &Bound<'_, PyAny>, whole: bool) -> PyResult<()> {
    expect(value, Form::Msgpack, whole)
}

fn expect(value: &Bound<'_, PyAny>, form: Form, whole: bool) -> PyResult<()> {
    let mut walk = Walk { form, whole, held: 0, later: Vec::new() };
    walk.value(value, 0)?;
    while let Some((value, depth)) = walk.later.pop() {
        match value.cast::<PyDict>() {
            Ok(dict) => walk.other_dict(dict, depth)?,
            Err(_) => walk.other_list(&value, depth)?,
        }
    }
    Ok(())
}

struct Walk<'py> {
    form: Form,
    /// Whether numbers are checked too, which takes longer.
    whole: bool,
    /// Lists and dicts so far.
    held: u32,
    /// Lists, tuples and dicts of other classes, and their depth: both codecs iterate over them.
    later: Vec<(Bound<'py, PyAny>, usize)>,
}

impl<'py> Walk<'py> {
    /// Check a value. The codec itself refuses types that no codec knows.
    fn value(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        if value.is_exact_instance_of::<PyString>() || value.is_none() {
            return Ok(());
        }
        if value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyFloat>() {
            return if self.whole { self.number(value) } else { Ok(()) };
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            let depth = self.deeper(value, depth)?;
            return self.dict(dict, depth);
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            let depth = self.deeper(value, depth)?;
            // A tuple gives its items at a third of the cost.
            return list.to_tuple().iter_borrowed().try_for_each(|item| self.value(&item, depth));
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            let depth = self.deeper(value, depth)?;
            return tuple.iter_borrowed().try_for_each(|item| self.value(&item, depth));
        }
        if is_list(value) || value.is_instance_of::<PyDict>() {
            let depth = self.deeper(value, depth)?;
            self.later.push((value.clone(), depth));
        } else if self.form == Form::Msgpack && value.is_instance_of::<PyMemoryView>() {
            let bytes = payload::bytes(value, "a memoryview in a value")?;
            if !value.eq(&bytes)? {
                let what = "a memoryview in a value has items that are no bytes, and would return as bytes: \
                            give bytes(it)";
                return Err(PyTypeError::new_err(what));
            }
        } else if self.whole {
            self.number(value)?;
        }
        Ok(())
    }

    fn deeper(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<usize> {
        self.held += 1;
        if depth < DEEPEST && self.held < MOST {
            return Ok(depth + 1);
        }
        let what = format!(
            "the value holds itself, or lists and dicts more than {DEEPEST} deep or {MOST} in all, \
             which readers refuse"
        );
        Err(invalid(value.py(), what))
    }

    fn dict(&mut self, dict: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        let mut are_plain = true;
        for (key, value) in dict.iter() {
            if !key.is_exact_instance_of::<PyString>() {
                self.key(&key)?;
                are_plain = false;
            }
            self.value(&value, depth)?;
        }
        if are_plain { Ok(()) } else { distinct(dict.iter().map(|(key, _)| key)) }
    }

    /// Check a list or tuple of another class. Its iteration and length may be its own, and what it
    /// shows by them is encoded; what compares equal is what it holds.
    fn other_list(&mut self, list: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        let holds = match list.cast::<PyList>() {
            Ok(list) => list.to_tuple(),
            Err(_) => list.cast::<PyTuple>()?.clone(),
        };
        let shown: Vec<_> = list.try_iter()?.collect::<PyResult<_>>()?;
        let mut is_same = list.len()? == shown.len() && holds.len() == shown.len();
        for (held, shown) in holds.iter_borrowed().zip(&shown) {
            is_same = is_same && same(&held, shown)?;
        }
        if !is_same {
            return Err(shows_other(list, "list")?);
        }
        shown.iter().try_for_each(|item| self.value(item, depth))
    }

    /// Do the same for a dict of another class.
    fn other_dict(&mut self, dict: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        let items = dict.call_method0(pyo3::intern!(dict.py(), "items"))?;
        let items: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> =
            items.try_iter()?.map(|item| item?.extract()).collect::<PyResult<_>>()?;
        let mut is_same = dict.as_any().len()? == items.len() && dict.len() == items.len();
        for (key, value) in &items {
            self.key(key)?;
            is_same = is_same
                && match dict.get_item(key)? {
                    Some(held) => same(&held, value)?,
                    None => false,
                };
        }
        if !is_same {
            return Err(shows_other(dict, "dict")?);
        }
        items.iter().try_for_each(|(_, value)| self.value(value, depth))?;
        distinct(items.into_iter().map(|(key, _)| key))
    }

    fn key(&self, key: &Bound<'py, PyAny>) -> PyResult<()> {
        let (name, keys) = match self.form {
            _ if key.is_instance_of::<PyString>() => return Ok(()),
            Form::Msgpack if key.is_instance_of::<PyBytes>() => return Ok(()),
            Form::Json => ("json", "text"),
            Form::Msgpack => ("msgpack", "text or bytes"),
        };
        let kind = key.get_type().name()?.to_string();
        let what = format!(
            "in a topic of {name} the keys of a dict are {keys}, not {kind}: {} would not be read \
             back; make it text",
            key.repr()?
        );
        Err(PyTypeError::new_err(what))
    }

    fn number(&self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        if let Ok(number) = value.cast::<PyInt>() {
            return self.whole(number);
        }
        match value.cast::<PyFloat>() {
            Ok(number) => self.float(number),
            Err(_) => Ok(()),
        }
    }

    fn whole(&self, number: &Bound<'py, PyInt>) -> PyResult<()> {
        if number.extract::<i64>().is_ok() {
            return Ok(());
        }
        let py = number.py();
        match self.form {
            Form::Msgpack if number.extract::<u64>().is_ok() => Ok(()),
            Form::Msgpack => {
                let what = "msgpack has whole numbers from -2**63 to 2**64 - 1, and the value holds \
                            one beyond: give it as text";
                Err(invalid(py, what))
            }
            Form::Json => {
                // The type's method, since a subclass may have another.
                let bits = py.get_type::<PyInt>().call_method1("bit_length", (number,))?;
                if bits.extract::<u64>()? <= LONGEST {
                    return Ok(());
                }
                let what = "Python reads whole numbers of up to 4300 digits from JSON, and the value \
                            holds a longer one: give it as text";
                Err(invalid(py, what))
            }
        }
    }

    fn float(&self, number: &Bound<'py, PyFloat>) -> PyResult<()> {
        if self.form == Form::Msgpack || number.value().is_finite() {
            return Ok(());
        }
        let what = format!("JSON has no {}: give None or text instead", number.value());
        Err(invalid(number.py(), what))
    }
}

fn is_list(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()
}

/// Compare as lists and dicts compare what they hold.
fn same(held: &Bound<'_, PyAny>, shown: &Bound<'_, PyAny>) -> PyResult<bool> {
    if held.is(shown) { Ok(true) } else { held.eq(shown) }
}

#[cold]
fn shows_other(value: &Bound<'_, PyAny>, plain: &str) -> PyResult<PyErr> {
    let class = value.get_type().name()?.to_string();
    let what = format!(
        "{class} derives from {plain} and shows other items than it holds, so reading would not \
         give it back: give {plain}(value)"
    );
    Ok(invalid(value.py(), what))
}

/// Refuse keys that differ in their dict but are written alike.
fn distinct<'py>(keys: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<()> {
    let mut known = HashSet::new();
    for key in keys {
        let (bytes, is_text) = match key.cast::<PyString>() {
            Ok(text) => (text.to_str()?.as_bytes().to_vec(), true),
            Err(_) => (key.extract::<Vec<u8>>()?, false),
        };
        if !known.insert((bytes, is_text)) {
            let what = format!("two keys of a dict would both be written as {}", key.str()?);
            return Err(invalid(key.py(), what));
        }
    }
    Ok(())
}
