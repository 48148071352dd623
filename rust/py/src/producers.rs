//! The producers that a topic remembers: for `Topic.producers` and related calls.
//!
//! Owns how their names become ids. The engine knows the producers, and forgets them.

use falaj::report::KnownProducer;
use pyo3::prelude::*;

use crate::input::{self, text};
use crate::opened::Opened;
use crate::precondition::NamedProducer;
use crate::wait::patiently;

/// A producer that a log forgets by itself a day after its last append; for `producer=`.
///
/// It is for producers that get a new name at each start, such as one for each process or request.
/// A log that is full of producers forgets those that appended longest ago. It forgets a producer
/// that is given as text only when you call `forget_producer`.
///
/// Args:
///     name: Its name. A producer that is given as text is another one, even with the same name.
///
/// Example:
///     >>> orders = store.topic("orders")
///     >>> session = falaj.ExpiringProducer("web-7f3a")
///     >>> orders.append(b"2 pears", producer=session, sequence=0)
///     0
///     >>> orders.append(b"2 pears", producer=session, sequence=0)
///     0
#[pyclass(frozen, eq, hash, module = "falaj")]
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExpiringProducer {
    /// Its name.
    #[pyo3(get)]
    name: String,
}

#[pymethods]
impl ExpiringProducer {
    #[new]
    fn new(name: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { name: text(input::producer_name(name)?, "the name of a producer")? })
    }

    fn __repr__(&self) -> String {
        format!("ExpiringProducer({:?})", self.name)
    }

    fn __getnewargs__(&self) -> (&str,) {
        (&self.name,)
    }
}

impl ExpiringProducer {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Id, last sequence, its partition, its offset, when it was appended, and whether it expires.
pub(crate) type Row = (u64, u64, u32, u64, Option<i64>, bool);

/// Return the highest sequence of a producer.
pub(crate) fn last_sequence(
    py: Python<'_>,
    opened: &Opened,
    producer: &Bound<'_, PyAny>,
) -> PyResult<Option<u64>> {
    let producer = NamedProducer::new(producer)?;
    let topic = &opened.handle.open(py)?.topic;
    patiently(py, opened.handle.patience, || topic.last_sequence(producer.name()))
}

/// List all producers that the topic remembers.
pub(crate) fn known(py: Python<'_>, opened: &Opened) -> PyResult<Vec<Row>> {
    let topic = &opened.handle.open_existing(py)?.topic;
    let known = patiently(py, opened.handle.patience, || topic.producers())?;
    let row =
        |p: &KnownProducer| (p.id, p.sequence, p.partition, p.offset, p.appended_ns, p.expiring);
    Ok(known.iter().map(row).collect())
}

/// Forget producers, by name or by id. Returns how many were known.
pub(crate) fn forget(
    py: Python<'_>,
    opened: &Opened,
    names: Vec<Bound<'_, PyAny>>,
    mut ids: Vec<u64>,
) -> PyResult<usize> {
    let topic = &opened.handle.open_existing(py)?.topic;
    for name in names {
        ids.push(NamedProducer::new(&name)?.name().id());
    }
    patiently(py, opened.handle.patience, || topic.forget_producers(&ids))
}
