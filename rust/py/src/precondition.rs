//! Arguments: the preconditions of an append.
//!
//! Invariant: a producer is given with a sequence, or neither is.

use falaj::ProducerName;
use falaj::internals::topic::{Precondition, Topic};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{OrRaise, invalid};
use crate::input::{expected, number, text};
use crate::producers::ExpiringProducer;

/// The keyword arguments `producer`, `sequence` and `expect` of append() and extend().
#[derive(Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) producer: Option<(NamedProducer, u64)>,
    pub(crate) expect: Option<u64>,
}

impl Preconditions {
    pub(crate) fn new(
        py: Python<'_>,
        producer: Option<&Bound<'_, PyAny>>,
        sequence: Option<&Bound<'_, PyAny>>,
        expect: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let expect = expected(expect)?;
        let producer = match (producer, sequence) {
            (Some(name), Some(sequence)) => {
                Some((NamedProducer::new(name)?, number(sequence, "a sequence")?))
            }
            (None, None) => None,
            _ => return Err(invalid(py, "producer= and sequence= go together: give both")),
        };
        Ok(Self { producer, expect })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.producer.is_none() && self.expect.is_none()
    }

    /// Append with them to these partitions of a topic.
    pub(crate) fn with<T>(
        &self,
        py: Python<'_>,
        topic: &Topic,
        partitions: &[u32],
        append: impl FnOnce(&[Precondition<'_>]) -> PyResult<T>,
    ) -> PyResult<T> {
        let producer = self.producer.as_ref();
        let once = producer.map(|(name, sequence)| topic.expect_sequence(name.name(), *sequence));
        let offset = match (self.expect, partitions) {
            (Some(_), [_, _, ..]) => {
                let what = "an append that expects an offset goes to one partition: name it";
                return Err(invalid(py, what));
            }
            (Some(offset), [partition]) => Some(topic.expect_offset_in(*partition, offset)),
            _ => None,
        };
        match (once.transpose().or_raise(py)?, offset.transpose().or_raise(py)?) {
            (None, None) => append(&[]),
            (Some(only), None) | (None, Some(only)) => append(&[only]),
            (Some(once), Some(offset)) => append(&[once, offset]),
        }
    }
}

/// The argument `producer=`: a name that was given as text, or as an expiring producer's.
#[derive(Debug)]
pub(crate) struct NamedProducer {
    name: String,
    is_expiring: bool,
}

impl NamedProducer {
    pub(crate) fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(expiring) = given.cast::<ExpiringProducer>() {
            return Ok(Self { name: expiring.get().name().to_owned(), is_expiring: true });
        }
        let name = given.cast::<PyString>().map_err(|_| {
            let kind = given.get_type().name();
            let kind = kind.map_or_else(|_| "that".into(), |name| name.to_string());
            PyTypeError::new_err(format!(
                "producer= is the name of a producer, a str or a falaj.ExpiringProducer, not {kind}"
            ))
        })?;
        Ok(Self { name: text(name, "the name of a producer")?, is_expiring: false })
    }

    pub(crate) fn name(&self) -> ProducerName<'_> {
        if self.is_expiring { ProducerName::expiring(&self.name) } else { (&self.name).into() }
    }
}
