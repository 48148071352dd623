//! Arguments: under which condition something is appended.
//!
//! Invariant: a producer is given with a sequence, or neither is.

use falaj::topic::Condition;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::invalid;
use crate::input::{number, text};

/// The keyword arguments of append() and extend() that say under which condition.
#[derive(Debug, Default)]
pub(crate) struct If {
    pub(crate) producer: Option<(String, u64)>,
    pub(crate) expect: Option<u64>,
}

impl If {
    /// `None` where nothing is demanded.
    pub(crate) fn new(
        py: Python<'_>,
        producer: Option<&Bound<'_, PyAny>>,
        sequence: Option<&Bound<'_, PyAny>>,
        expect: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Self>> {
        let expect = expect.map(|offset| number(offset, "what is expected")).transpose()?;
        let producer = match (producer, sequence) {
            (Some(name), Some(sequence)) => {
                Some((producer_name(name)?, number(sequence, "a sequence")?))
            }
            (None, None) => None,
            _ => return Err(invalid(py, "producer= and sequence= go together: give both")),
        };
        let found = Self { producer, expect };
        Ok((found.producer.is_some() || expect.is_some()).then_some(found))
    }

    pub(crate) fn condition(&self) -> Condition<'_> {
        let producer = self.producer.as_ref().map(|(name, sequence)| (name.as_str(), *sequence));
        Condition { expect: self.expect, producer }
    }
}

/// The name of who appends.
pub(crate) fn producer_name(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = given.cast::<PyString>().map_err(|_| {
        let kind = given.get_type().name().map_or_else(|_| "that".into(), |name| name.to_string());
        PyTypeError::new_err(format!("producer= is the name of who appends, a str, not {kind}"))
    })?;
    text(name, "the name of a producer")
}
