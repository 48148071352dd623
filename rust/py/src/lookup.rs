//! `topic[i]`: finding the record of an index.
//!
//! Owns the forms of an index: an offset, a number from the end, or either after a partition.
//! `seen` decides what a handle sees, and Python handles slices.

use falaj::internals::topic::ScanRange;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::OrRaise;
use crate::held::Held;
use crate::input;
use crate::iterate::Reading;
use crate::record::Record;
use crate::topic::Topic;

/// Clamp a number to the range of offsets.
pub(crate) fn clamped(number: i128) -> u64 {
    u64::try_from(number).unwrap_or(if number < 0 { 0 } else { u64::MAX })
}

impl Topic {
    /// Make the reading for iteration over these ranges, as this handle sees the topic.
    pub(crate) fn reading(&self, py: Python<'_>, ranges: &[ScanRange]) -> PyResult<Reading> {
        Reading::new(py, &self.opened.handle, self.opened.visibility, ranges)
    }

    /// Return the record of an index.
    pub(crate) fn record_at<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Record>> {
        let py = index.py();
        let wrong = |error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(py) {
                return input::no_offset(index);
            }
            let kind = index.get_type().name().map_or_else(|_| String::new(), |n| n.to_string());
            PyTypeError::new_err(format!("topic[i] takes an offset or a slice of them, not {kind}"))
        };
        let (partition, index): (u32, i128) = match index.cast::<PyTuple>() {
            Ok(position) => {
                let (partition, index): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
                    position.extract().map_err(wrong)?;
                let partition = input::whole(&partition, "a partition")
                    .and_then(|p| p.extract())
                    .map_err(wrong)?;
                let index =
                    input::whole(&index, "an offset").and_then(|i| i.extract()).map_err(wrong)?;
                self.target(py, Some(partition), None)?;
                (partition, index)
            }
            Err(_) => {
                let index =
                    input::whole(index, "an offset").and_then(|i| i.extract()).map_err(wrong)?;
                (self.one(py)?, index)
            }
        };
        let open = self.opened.handle.open_existing(py)?;
        let topic = self.seen(&open);
        // If the last offset has a record, nothing needs to be counted.
        let last = (index == -1).then(|| topic.end(partition).ok()?.checked_sub(1)).flatten();
        let record = match last.map(|last| topic.get_in(partition, last)) {
            Some(Ok(record)) => record,
            _ => {
                let offset = self.absolute(py, &open, partition, index)?;
                topic.get_in(partition, offset).or_raise(py)?
            }
        };
        let held = Held::alone(py, record, &self.opened.handle.shape)?;
        Record::make(py, held)
    }
}
