//! `Job`: a record, and the right to work on it; and the batch that it was taken with.
//!
//! Owns what this process did with each job: it began it, settled it, or neither. Invariant: a job that was
//! not begun returns to the queue when its batch is closed, or when the batch's last job is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use falaj::internals::error::Result;
use falaj::internals::queue::{Lease, LeasedJob as Taken, QueueFile as Inner};
use falaj::internals::topic::Topic as Engine;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::errors::is;
use crate::handle::Handle;
use crate::held::Held;
use crate::input;
use crate::queue::Queue;
use crate::record::Record;
use crate::wait::{patiently, seconds};

/// A record, and the right to work on it until the lease is over.
///
/// A context manager: the block begins the work. When the block ends, it acks the job. When an exception
/// leaves the block, it gives the job back, and that counts an attempt. If the code in the block acks the job
/// or gives it back, the end of the block does neither.
///
/// Example:
///     >>> queue = store.queue("jobs")
///     >>> _ = queue.put(b"resize 1.png")
///     >>> [job] = queue.take()
///     >>> job.to_bytes(), job.offset, job.attempt
///     (b'resize 1.png', 0, 1)
///     >>> job.ack()
#[pyclass(frozen, module = "falaj", generic)]
#[derive(Debug)]
pub struct Job {
    pub(crate) batch: Arc<Batch>,
    index: usize,
    mark: u64,
    /// The record that the job is about.
    #[pyo3(get)]
    pub(crate) record: Py<Record>,
    handle: Arc<Handle>,
}

/// A way in which the engine takes jobs back.
pub(crate) type GiveBack = fn(&Inner, &Engine, &[Lease], Duration) -> Result<()>;

/// State of a job whose work was not begun.
pub(crate) const OPEN: u8 = 0;
pub(crate) const BEGUN: u8 = 1;
pub(crate) const SETTLED: u8 = 2;

/// Jobs that were taken together, and what this process did with each. When the last of them is dropped,
/// those that were never begun return to the queue.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) queue: Arc<Inner>,
    leases: Box<[Lease]>,
    states: Box<[AtomicU8]>,
    /// The queue, if it has dead letters or a backoff.
    owner: Option<Py<Queue>>,
    max_attempts: u32,
}

impl Batch {
    pub(crate) fn new(
        queue: &Arc<Inner>,
        jobs: &[Taken],
        owner: Option<Py<Queue>>,
        max_attempts: u32,
    ) -> Self {
        let leases = jobs.iter().map(|job| job.lease).collect();
        let states = jobs.iter().map(|_| AtomicU8::new(OPEN)).collect();
        Self { queue: Arc::clone(queue), leases, states, owner, max_attempts }
    }

    fn open(&self) -> Vec<Lease> {
        let all = self.leases.iter().zip(&self.states);
        all.filter(|(_, state)| state.load(Ordering::Relaxed) == OPEN).map(|(it, _)| *it).collect()
    }

    /// Give back the jobs that were not begun, because the queue or its topic is being closed.
    pub(crate) fn close(&self, topic: &Engine) {
        let open = self.open();
        if !open.is_empty() {
            // Without a delay, no job is refused. If the lock is not available, the leases end.
            let _late = self.queue.put_back(topic, &open, Duration::ZERO);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let open = self.open();
        if !open.is_empty() {
            self.queue.owe(&open);
        }
    }
}

pub(crate) fn delay_of(py: Python<'_>, delay: f64) -> PyResult<Duration> {
    Ok(seconds(py, Some(delay))?.unwrap_or_default())
}

pub(crate) fn call<T: Send>(
    py: Python<'_>,
    queue: &Inner,
    handle: &Handle,
    mut work: impl FnMut(&Inner, &Engine) -> Result<T> + Send,
) -> PyResult<T> {
    let open = handle.open_existing(py)?;
    patiently(py, handle.patience, || work(queue, &open.topic))
}

pub(crate) fn is_late(py: Python<'_>, error: &PyErr) -> bool {
    is(py, error, "LeaseExpired")
}

/// Return true if jobs need nothing more: the call succeeded, or another worker has them. After any other
/// error they are as they were.
pub(crate) fn is_over(py: Python<'_>, done: &PyResult<()>) -> bool {
    done.as_ref().err().is_none_or(|error| is_late(py, error))
}

impl Job {
    /// Make a job of a batch, with its record.
    pub(crate) fn make(
        py: Python<'_>,
        (batch, index): (&Arc<Batch>, usize),
        handle: &Arc<Handle>,
        taken: Taken,
    ) -> PyResult<Py<Self>> {
        let (_, mark) = taken.to_ack();
        let record = Record::make(py, Held::read(py, taken.record, &handle.shape)?)?.unbind();
        let (batch, handle) = (Arc::clone(batch), Arc::clone(handle));
        Py::new(py, Self { batch, index, mark, record, handle })
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.batch.leases[self.index]
    }

    pub(crate) fn is(&self, state: u8) -> bool {
        self.batch.states[self.index].load(Ordering::Relaxed) == state
    }

    pub(crate) fn becomes(&self, state: u8) {
        self.batch.states[self.index].store(state, Ordering::Relaxed);
    }

    /// Mark the job as settled if the call `ended` leaves nothing to do; return the result of the call.
    fn ended(&self, py: Python<'_>, ended: PyResult<()>) -> PyResult<()> {
        if is_over(py, &ended) {
            self.becomes(SETTLED);
        }
        ended
    }

    /// Return true if no attempt is left.
    pub(crate) fn is_last(&self) -> bool {
        self.lease().attempt >= self.batch.max_attempts
    }

    /// Make the engine's job of this one.
    pub(crate) fn taken(&self, py: Python<'_>) -> Taken {
        let record = Record::of_engine(self.record.bind(py));
        let record = record.expect("a job's record was read from its topic");
        Taken { lease: *self.lease(), record }
    }

    pub(crate) fn to_ack(&self) -> (Lease, u64) {
        (*self.lease(), self.mark)
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnMut(&Inner, &Engine) -> Result<T> + Send,
    ) -> PyResult<T> {
        call(py, &self.batch.queue, &self.handle, work)
    }

    /// Give a job back that failed: to the dead letters after its last attempt, else to the queue by `give_back`.
    pub(crate) fn fail(
        slf: &Bound<'_, Self>,
        delay: Option<f64>,
        reason: Option<&Bound<'_, PyString>>,
        give_back: GiveBack,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let given = delay.map(|delay| delay_of(py, delay)).transpose()?;
        let mut backoff = None;
        if let Some(owner) = &this.batch.owner {
            let owner = owner.bind(py);
            // A job that was settled before has no lease, which is said below.
            if this.is_last() && !this.settled() {
                let buried = owner.call_method1("_give_up_on", (slf, reason));
                if this.settled() {
                    return Ok(());
                }
                buried?;
            }
            if given.is_none() {
                backoff = owner.call_method1("_delay", (this.attempt(),))?.extract()?;
            }
        }
        let delay = given.map_or_else(|| delay_of(py, backoff.unwrap_or(0.0)), Ok)?;
        let given_back =
            this.call(py, |queue, topic| give_back(queue, topic, &[*this.lease()], delay));
        this.ended(py, given_back)
    }
}

#[pymethods]
impl Job {
    /// Begin work on the job: from here on this counts as an attempt, however it ends. Iterating over the
    /// batch, indexing it and `with job:` do so, too. Once the job was begun or settled, this does nothing.
    ///
    /// Raises:
    ///     LeaseExpired: Its lease is over: another worker may have it, so leave it alone.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        if self.is(OPEN) {
            self.call(py, |queue, topic| queue.begin(topic, &[*self.lease()]))?;
            self.becomes(BEGUN);
        }
        Ok(())
    }

    /// Begin work on the job when its batch reaches it; return false if its lease is over.
    fn _reach(&self, py: Python<'_>) -> PyResult<bool> {
        match self.begin(py) {
            Err(error) if is_late(py, &error) => Ok(false),
            begun => begun.map(|()| true),
        }
    }

    /// Say that the job is done: its record is never delivered again.
    ///
    /// Raises:
    ///     LeaseExpired: Its lease is over, or it was settled before; another worker may have it.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        let acked = self.call(py, |queue, topic| queue.ack(topic, &[self.to_ack()]));
        self.ended(py, acked)
    }

    /// Return the job to the queue because it failed. This counts as an attempt. The queue delivers it again, to any
    /// worker.
    ///
    /// After the last attempt, by `max_attempts`, it becomes a dead letter at once, on the disk. If the dead letter
    /// cannot be written, the job returns to the queue, and a later `take` writes the dead letter.
    ///
    /// Args:
    ///     delay: Seconds before it is delivered again; by default as the queue's `backoff` says, else at once.
    ///     reason: Why it failed. The dead letter keeps up to 1,000 bytes of it in its header `falaj-reason`.
    ///
    /// Raises:
    ///     LeaseExpired: As for `ack`.
    #[pyo3(signature = (delay=None, *, reason=None))]
    fn nack(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = input::optional_delay)] delay: Option<f64>,
        reason: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::fail(slf, delay, input::reason(reason)?, Inner::nack)
    }

    /// Keep the job for longer.
    ///
    /// Args:
    ///     lease: Seconds from now until its lease is over.
    ///
    /// Raises:
    ///     LeaseExpired: As for `ack`.
    #[pyo3(signature = (lease=30.0))]
    fn extend(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = input::lease)] lease: f64,
    ) -> PyResult<()> {
        let lease = delay_of(py, lease)?;
        self.call(py, |queue, topic| queue.extend(topic, &[*self.lease()], lease))
    }

    /// The record's payload, decoded by the topic's codec.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.record.bind(py).getattr("value")
    }

    /// A copy of the record's payload.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        Record::to_bytes(self.record.bind(py))
    }

    /// The record's key, or None.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.record.bind(py).getattr("key")
    }

    /// The record's offset.
    #[getter]
    fn offset(&self) -> u64 {
        self.lease().offset
    }

    /// The number of attempts, this one included.
    #[getter]
    fn attempt(&self) -> u32 {
        self.lease().attempt
    }

    /// True once the job was acked or given back through this object.
    #[getter]
    fn settled(&self) -> bool {
        self.is(SETTLED)
    }

    /// Refuse pickle and copy.
    fn __reduce__(&self) -> PyResult<()> {
        let what = "a job cannot be pickled or copied, because its lease is this process's: give other processes \
                    its record, or let them take jobs themselves";
        Err(PyTypeError::new_err(what))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().begin(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        if slf.get().settled() {
            return Ok(());
        }
        let Some(error) = exception.get_item(1).ok().filter(|error| !error.is_none()) else {
            return slf.get().ack(py);
        };
        let reason = reason_of(&error);
        match Self::fail(slf, None, Some(&reason), Inner::nack) {
            Err(error) if is_late(py, &error) => Ok(()),
            given_back => given_back,
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let record = self.record.bind(py).repr()?;
        Ok(format!("<Job of {:?}, attempt {}: {record}>", self.batch.queue.name(), self.attempt()))
    }
}

/// Return the class and the text of an exception.
fn reason_of<'py>(error: &Bound<'py, PyAny>) -> Bound<'py, PyString> {
    let (py, kind) = (error.py(), error.get_type());
    let name = kind.name().map(|name| name.to_string()).unwrap_or_default();
    let text = error.str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    PyString::new(py, &if text.is_empty() { name } else { format!("{name}: {text}") })
}

/// Return why a job failed, as its dead letter keeps it.
#[pyfunction]
pub(crate) fn _reason_of<'py>(error: &Bound<'py, PyAny>) -> Bound<'py, PyString> {
    reason_of(error)
}
