//! `Opened`: the contents of a topic's handles, before there is a Python class around them.

use std::sync::Arc;
use std::time::Duration;

use falaj::internals::store::TopicOptions;
use falaj::internals::topic::{SyncMode, Topic as Inner, Visibility};
use pyo3::prelude::*;

use crate::coding::LaterCoding;
use crate::handle::{Handle, Shape};
use crate::wait::patiently;

/// The contents of a Topic: an opened topic, or one partition of it.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Clone, Debug)]
pub struct Opened {
    pub(crate) handle: Arc<Handle>,
    /// The partition for all calls, unless there is a choice.
    pub(crate) only: Option<u32>,
    pub(crate) first_number: u32,
    pub(crate) partitions: u32,
    pub(crate) sync: SyncMode,
    pub(crate) visibility: Visibility,
}

/// The arguments for opening a topic.
#[derive(Debug)]
pub(crate) struct Asked<'a, 'py> {
    pub(crate) options: TopicOptions,
    pub(crate) resolve: &'a Bound<'py, PyAny>,
    pub(crate) sync: SyncMode,
    pub(crate) verify: bool,
    pub(crate) visibility: Visibility,
    pub(crate) patience: Duration,
}

impl Opened {
    /// Return the part that it shares with its partitions.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Open a topic. `resolve` makes two callables, or None, from the name of its codec.
    pub(crate) fn open(
        py: Python<'_>,
        store: &falaj::internals::store::Store,
        name: &str,
        asked: &Asked<'_, '_>,
    ) -> PyResult<Self> {
        let options = &asked.options;
        let topic = patiently(py, asked.patience, || Inner::open(store, name, options))?;
        let (sync, verify) = (asked.sync, asked.verify);
        let topic = topic.with_sync(sync).with_verify(verify);
        let settings = topic.settings().clone();
        let coding = LaterCoding::new(py, &settings.name, topic.shared_codec(), asked.resolve)?;
        let (name, generation) = (settings.name, settings.generation);
        let shape = Shape { name, generation, coding };
        Ok(Self {
            only: (settings.partitions == 1).then_some(0),
            first_number: settings.number,
            partitions: settings.partitions,
            sync,
            visibility: asked.visibility,
            handle: Arc::new(Handle::new(topic, shape, asked.patience)),
        })
    }
}

#[pymethods]
impl Opened {
    /// How many partitions the topic has.
    #[getter]
    fn partitions(&self) -> u32 {
        self.partitions
    }

    /// True when it is for one partition: the topic has one, or this is a view of one.
    #[getter]
    fn single(&self) -> bool {
        self.only.is_some()
    }
}
