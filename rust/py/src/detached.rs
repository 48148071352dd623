//! `Detached`: a record that was pickled or copied, with bytes of its own.
//!
//! It holds no map, no batch and no topic. The properties that records of a topic share are its
//! own, too.

use pyo3::prelude::*;

use crate::handle::Shape;

/// Names and values, in order.
pub(crate) type Headers = Vec<(String, Option<Vec<u8>>)>;

/// All parts of a record. An object, since a record is dropped faster if all that it holds is one.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub(crate) struct Detached {
    pub(crate) shape: Shape,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) timestamp_ns: i64,
    /// Whether the time was given with the record.
    pub(crate) is_event_time: bool,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: Headers,
}
