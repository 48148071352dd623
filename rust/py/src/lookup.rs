//! `topic[i]`: finding the record of an index.
//!
//! Owns the forms of an index: an offset, a number from the end, or either after a partition.
//! `seen` decides what a handle sees, and Python handles slices.

use falaj::internals::topic::ScanRange;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::any_topic::AnyTopic;
use crate::errors::OrRaise;
use crate::held::Held;
use crate::input;
use crate::iterate::Reading;
use crate::record::Record;

/// Clamp a number to the range of offsets.
pub(crate) fn clamped(number: i128) -> u64 {
    u64::try_from(number).unwrap_or(if number < 0 { 0 } else { u64::MAX })
}

impl AnyTopic {
    /// Make the reading for iteration over these ranges, as this handle sees the topic.
    pub(crate) fn reading(&self, py: Python<'_>, ranges: &[ScanRange]) -> PyResult<Reading> {
        Reading::new(py, &self.opened.handle, self.opened.visibility, ranges)
    }

    /// Return the record of an index of the one partition.
    pub(crate) fn record_at<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Record>> {
        let py = index.py();
        let place = input::whole(index, "an offset").and_then(|place| place.extract());
        let place: i128 = place.map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(py) {
                return input::no_offset(index);
            }
            wrong_index(index, "topic[i] takes an offset or a slice of them")
        })?;
        self.read_one(py, self.one(py)?, place)
    }

    /// Return the record at a position: a partition, and an offset or a number from the end in it.
    pub(crate) fn record_at_position<'py>(
        &self,
        position: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Record>> {
        let py = position.py();
        let wrong = |error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(py) {
                return input::no_offset(position);
            }
            let takes = "each partition has offsets of its own: a partitioned topic takes a position \
                         (partition, offset)";
            wrong_index(position, takes)
        };
        let whole = |part: &Bound<'py, PyAny>, what| input::whole(part, what);
        let pair = position.cast::<PyTuple>().map_err(PyErr::from).map_err(wrong)?;
        let (partition, offset): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            pair.extract().map_err(wrong)?;
        let partition =
            whole(&partition, "a partition").and_then(|p| p.extract()).map_err(wrong)?;
        let offset = whole(&offset, "an offset").and_then(|o| o.extract()).map_err(wrong)?;
        self.target(py, Some(partition), (None, None))?;
        self.read_one(py, partition, offset)
    }

    fn read_one<'py>(
        &self,
        py: Python<'py>,
        partition: u32,
        index: i128,
    ) -> PyResult<Bound<'py, Record>> {
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
        let held = Held::read(py, record, &self.opened.handle.shape)?;
        Record::make(py, held)
    }
}

#[cold]
fn wrong_index(index: &Bound<'_, PyAny>, takes: &str) -> PyErr {
    let kind = index.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
    PyTypeError::new_err(format!("{takes}, not {kind}"))
}
