//! Arguments: under which condition something is appended.
//!
//! Invariant: a producer is given with a sequence, or neither is.

use falaj::topic::Condition;
use pyo3::prelude::*;

use crate::errors::invalid;
use crate::input::number;

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
                Some((name.extract()?, number(sequence, "a sequence")?))
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
