//! Encoding the records of `extend`: one body for each partition.
//!
//! Records go straight from the iterable into the body.

use std::cell::RefCell;
use std::collections::BTreeMap;

use falaj::internals::error::Error;
use falaj::internals::topic::{BodyWriter, NewRecord as Outgoing};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMapping, PyMemoryView, PyString};

use crate::any_topic::AnyTopic;
use crate::calling::Items;
use crate::coding::Coding;
use crate::draft::NewRecord;
use crate::errors::raise;
use crate::input::{self, HeaderOf, Incoming};
use crate::payload;
use crate::record::Record;

/// Bytes of memory that a thread keeps for encoding.
const KEPT: usize = 1 << 20;

thread_local! {
    static BODY: RefCell<BodyWriter> = RefCell::default();
}

/// Encoded records by partition.
#[derive(Debug)]
pub(crate) struct Bodies(pub(crate) Vec<(u32, BodyWriter)>);

impl Drop for Bodies {
    fn drop(&mut self) {
        if let Some((_, mut body)) = self.0.pop() {
            body.shrink(KEPT);
            BODY.set(body);
        }
    }
}

/// Encodes records.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    pub(crate) coding: &'a Coding,
    /// The partition that all of them go to, if that is known.
    pub(crate) partition: Option<u32>,
    /// Most bytes of one append.
    pub(crate) limit: u64,
    /// Headers that each record gets, in place of its own of the same names.
    pub(crate) headers: &'a [HeaderOf<'a>],
}

impl<'a> Collector<'a> {
    /// Encode an iterable for one partition.
    pub(crate) fn single(&self, items: &Bound<'_, PyAny>, partition: u32) -> PyResult<Bodies> {
        let mut body = BODY.take();
        body.begin(false, None);
        let is_plain = self.coding.encode.is_none() && self.headers.is_empty();
        if let (Ok(list), true) = (items.cast_exact::<PyList>(), is_plain) {
            if self.values(list, &mut body)? {
                return Ok(Bodies(vec![(partition, body)]));
            }
            body.begin(false, None);
        }
        for item in iterate(items)? {
            let item = item?;
            match (item.cast_exact::<PyBytes>(), is_plain) {
                (Ok(value), true) => body.push_any(&Outgoing::new(value.as_bytes())),
                _ => self.incoming(&item)?.with_record(|record| body.push_any(record)),
            }
            self.check(items.py(), body.body().len())?;
        }
        Ok(Bodies(vec![(partition, body)]))
    }

    /// Encode a list of nothing but `bytes`, which most are; false for any other list. No Python
    /// code runs meanwhile.
    fn values(&self, list: &Bound<'_, PyList>, body: &mut BodyWriter) -> PyResult<bool> {
        for item in list {
            let Ok(value) = item.cast_exact::<PyBytes>() else { return Ok(false) };
            body.push_value(value.as_bytes());
            self.check(list.py(), body.body().len())?;
        }
        Ok(true)
    }

    /// Encode an iterable by partition, as its keys decide.
    pub(crate) fn spread(
        &self,
        items: &Bound<'_, PyAny>,
        mut partition_of: impl FnMut(Option<&[u8]>) -> PyResult<u32>,
    ) -> PyResult<Bodies> {
        let mut by_partition = BTreeMap::<u32, BodyWriter>::new();
        let mut bytes = 0;
        for item in iterate(items)? {
            let record = self.incoming(&item?)?;
            bytes += record.len();
            self.check(items.py(), bytes)?;
            let partition = partition_of(record.key.as_ref().map(PyBytesMethods::as_bytes))?;
            let body = by_partition.entry(partition).or_default();
            record.with_record(|record| body.push_any(record));
        }
        Ok(Bodies(by_partition.into_iter().collect()))
    }

    /// Collect an iterable, not yet encoded into a body.
    pub(crate) fn each<'py>(&self, items: &Bound<'py, PyAny>) -> PyResult<Vec<Incoming<'py>>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        for item in iterate(items)? {
            let record = self.incoming(&item?)?;
            bytes += record.len();
            self.check(items.py(), bytes)?;
            records.push(record);
        }
        Ok(records)
    }

    fn incoming<'py>(&self, item: &Bound<'py, PyAny>) -> PyResult<Incoming<'py>> {
        let mut record = self.read(item)?;
        if !self.headers.is_empty() {
            let is_given = |name: &str| self.headers.iter().any(|(given, _)| given == name);
            record.headers.retain(|(name, _)| !is_given(name));
            let bound = |value: &Bound<'_, PyBytes>| value.clone().unbind().into_bound(item.py());
            let given = self.headers.iter();
            record.headers.extend(given.map(|(n, v)| (n.clone(), v.as_ref().map(bound))));
        }
        Ok(record)
    }

    fn read<'py>(&self, item: &Bound<'py, PyAny>) -> PyResult<Incoming<'py>> {
        let into = (self.coding, self.partition);
        if let Some((key, value)) = input::pair(item)? {
            let value = self.coding.encoded(&value, self.partition)?;
            return Ok(Incoming { key: Some(key), ..Incoming::value(value) });
        }
        if let Ok(draft) = item.cast::<NewRecord>() {
            return draft.get().incoming(item.py(), into);
        }
        if let Ok(record) = item.cast::<Record>() {
            return Record::incoming(record, self.coding);
        }
        self.coding.encoded(item, self.partition).map(Incoming::value)
    }

    /// Stop at an iterable without end before it fills the memory.
    #[inline]
    fn check(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        let (bytes, limit) = (bytes as u64, self.limit);
        if bytes > limit { Err(raise(py, &Error::AppendTooLarge { bytes, limit })) } else { Ok(()) }
    }
}

/// Raise an error for a record that `extend` would refuse.
#[pyfunction]
pub(crate) fn _expect_record(topic: &AnyTopic, record: &Bound<'_, PyAny>) -> PyResult<()> {
    let limit = topic.opened.handle.open(record.py())?.topic.log().max_group_len();
    let py = record.py();
    let shape = &topic.opened.handle.shape;
    let expect = |coding: &Coding| {
        let collector = Collector { coding, partition: topic.opened.only, limit, headers: &[] };
        let record_len = collector.incoming(record)?.len();
        collector.check(py, record_len)
    };
    match shape.coding.known(py)? {
        Some(coding) => expect(coding),
        None => expect(&shape.coding.supposed(py)?),
    }
}

fn iterate<'py>(items: &Bound<'py, PyAny>) -> PyResult<Items<'py>> {
    if items.is_exact_instance_of::<PyList>() {
        return Items::of(items);
    }
    let kind = items.get_type();
    let is_one = items.is_instance_of::<PyString>()
        || items.is_instance_of::<PyMemoryView>()
        || payload::is_bytes(items)?
        || items.cast::<PyMapping>().is_ok();
    let remedy = if is_one {
        "append() takes one"
    } else if items.is_instance_of::<Record>() || items.is_instance_of::<NewRecord>() {
        "give [record] for one"
    } else if kind.hasattr(pyo3::intern!(items.py(), "columns"))? {
        "for the rows of a table: topic.extend_arrow(table)"
    } else {
        match Items::of(items) {
            Err(error) if error.is_instance_of::<PyTypeError>(items.py()) => "give [value] for one",
            found => return found,
        }
    };
    let what = format!("extend() takes an iterable of records, not {}; {remedy}", kind.name()?);
    Err(PyTypeError::new_err(what))
}
