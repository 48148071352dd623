//! `Coding`: the callables of a topic's codec. A handle that was opened before the codec was named finds them later.
//!
//! Invariant: no value is encoded or decoded by another codec than the topic's. The name is read before a value is
//! decoded, and appends name the codec that encoded the value; see [`TopicCodec`].

use std::sync::{Arc, OnceLock};

use falaj::internals::store::TopicCodec;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use crate::calling::{call, of_module};
use crate::errors::{OrRaise, not_encoded};
use crate::input;

/// A codec: its name, and what it calls.
#[derive(Debug)]
pub(crate) struct Coding {
    /// The topic's name, for errors.
    pub(crate) topic: String,
    pub(crate) name: String,
    pub(crate) encode: Option<Py<PyAny>>,
    pub(crate) decode: Option<Py<PyAny>>,
    /// Whether values are the payloads, as `bytes`.
    pub(crate) gives_bytes: bool,
}

impl Coding {
    fn of(py: Python<'_>, topic: &str, name: String, resolve: &Py<PyAny>) -> PyResult<Self> {
        let (encode, decode): (_, Option<Bound<'_, PyAny>>) =
            call(resolve.bind(py), (&name,))?.extract()?;
        let gives_bytes = decode.as_ref().is_some_and(|decode| decode.is(py.get_type::<PyBytes>()));
        let (topic, decode) = (topic.to_owned(), decode.map(Bound::unbind));
        Ok(Self { topic, name, encode, decode, gives_bytes })
    }

    /// Return whether this codec reads all that the other one wrote. A class of the user has the codec "json", and
    /// does not read all JSON.
    pub(crate) fn reads_all_of(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Some(decode) = self.decode.as_ref().filter(|_| self.name == "json") else {
            return Ok(self.name == other.name);
        };
        let is_same = other.decode.as_ref().is_some_and(|other| other.is(decode));
        Ok(self.name == other.name
            && (is_same || decode.is(of_module(&LOADS, py, "json", "loads")?)))
    }

    /// Encode a value, if the topic has a codec. The partition is the one that it goes to, if that is known.
    #[inline]
    pub(crate) fn encoded<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        partition: Option<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        input::encoded(value, self.encode.as_ref())
            .map_err(|cause| not_encoded(cause, value, self, partition))
    }
}

/// The coding of a topic, from the moment when its codec is named.
#[derive(Debug)]
pub(crate) struct LaterCoding {
    /// The codec, and what makes two callables, or None, from its name. A detached record has none.
    source: Option<(Arc<TopicCodec>, Py<PyAny>)>,
    topic: String,
    known: OnceLock<Coding>,
}

impl From<Coding> for LaterCoding {
    fn from(coding: Coding) -> Self {
        Self { source: None, topic: coding.topic.clone(), known: coding.into() }
    }
}

impl LaterCoding {
    /// Find the coding of an opened topic, if its codec is named.
    pub(crate) fn new(
        py: Python<'_>,
        topic: &str,
        codec: &Arc<TopicCodec>,
        resolve: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let source = Some((Arc::clone(codec), resolve.clone().unbind()));
        let later = Self { source, topic: topic.to_owned(), known: OnceLock::new() };
        later.known(py)?;
        Ok(later)
    }

    /// Return the coding if it was found before.
    #[inline(always)]
    pub(crate) fn at_once(&self) -> Option<&Coding> {
        self.known.get()
    }

    /// Return the coding; `None` as long as no program has named the codec.
    #[inline]
    pub(crate) fn known(&self, py: Python<'_>) -> PyResult<Option<&Coding>> {
        if let Some(coding) = self.known.get() {
            return Ok(Some(coding));
        }
        let Some((codec, resolve)) = &self.source else { return Ok(None) };
        let name = py.detach(|| codec.read().map(|name| name.map(str::to_owned)));
        let Some(name) = name.or_raise(py)? else { return Ok(None) };
        let coding = Coding::of(py, &self.topic, name, resolve)?;
        Ok(Some(self.known.get_or_init(|| coding)))
    }

    /// Return the coding of a record: where there is one, the codec is named.
    #[inline]
    pub(crate) fn of_records(&self, py: Python<'_>) -> PyResult<&Coding> {
        if let Some(coding) = self.known(py)? {
            return Ok(coding);
        }
        let coding = self.supposed(py)?;
        Ok(self.known.get_or_init(|| coding))
    }

    /// Make the coding that an append of this handle would name.
    pub(crate) fn supposed(&self, py: Python<'_>) -> PyResult<Coding> {
        let none = py.None();
        let resolve = self.source.as_ref().map_or(&none, |(_, resolve)| resolve);
        Coding::of(py, &self.topic, self.name(py), resolve)
    }

    /// Return the name of the codec, or the one that an append of this handle would name.
    pub(crate) fn name(&self, py: Python<'_>) -> String {
        match (self.known.get(), &self.source) {
            (Some(coding), _) => coding.name.clone(),
            (None, Some((codec, _))) => py.detach(|| codec.name_or_default().to_owned()),
            (None, None) => String::new(),
        }
    }
}
