//! `Queue`: delivering the records of a topic as jobs. `falaj.Queue` derives from it.
//!
//! Owns the code that runs for each job. The Python class decides what becomes of jobs that were tried
//! too often, and documents it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::names::hex;
use falaj::internals::log::{Visibility, Wait};
use falaj::internals::queue::{self as engine, Lease, NOT_BEFORE, QueueFile as Inner};
use falaj::internals::queue::{QueueInfo, QueueOptions};
use falaj::internals::topic::Topic as Engine;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::admin::{dict, list, skipped_in};

use crate::any_topic::AnyTopic;
use crate::errors::{OrRaise, class, invalid, is};
use crate::follow::Watch;
use crate::handle::Handle;
use crate::input;
use crate::queue_job::{BEGUN, Batch, Job, OPEN, SETTLED, call, delay_of, is_over};
use crate::wait::{patiently, seconds, wait};

/// An open queue; see falaj._queue.Queue.
#[pyclass(frozen, subclass, weakref, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Queue {
    inner: Arc<Inner>,
    handle: Arc<Handle>,
    closed: AtomicBool,
}

impl Queue {
    /// Call the engine detached from Python, for as long as it takes to get the lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnMut(&Inner, &Engine) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.expect_unclosed(py)?;
        call(py, &self.inner, &self.handle, work)
    }

    fn expect_unclosed(&self, py: Python<'_>) -> PyResult<()> {
        let closed = || Err(crate::errors::raise(py, &Error::HandleClosed { what: "queue" }));
        if self.closed.load(Ordering::Relaxed) { closed() } else { Ok(()) }
    }

    fn ours(&self, py: Python<'_>, jobs: &Bound<'_, PyAny>) -> PyResult<Vec<Py<Job>>> {
        let takes = "a job, or several";
        let own = |job: Bound<'_, PyAny>| {
            let job = job.cast::<Job>().map_err(|_| input::not_that("jobs", takes, &job))?;
            Ok(job.clone().unbind())
        };
        let jobs: Vec<Py<Job>> = if let Ok(job) = jobs.cast::<Job>() {
            vec![job.clone().unbind()]
        } else if let Ok(list) = jobs.cast::<PyList>() {
            // Not by the batch's own iterator, which begins its jobs.
            list.iter().map(own).collect::<PyResult<_>>()?
        } else {
            {
                let each = jobs.try_iter().map_err(|_| input::not_that("jobs", takes, jobs))?;
                each.map(|job| own(job?)).collect::<PyResult<_>>()?
            }
        };
        match jobs.iter().find(|job| !Arc::ptr_eq(&job.get().batch.queue, &self.inner)) {
            None => Ok(jobs),
            Some(other) => {
                let (offset, name) = (other.get().lease().offset, other.get().batch.queue.name());
                let what = format!(
                    "job {offset} was taken from another handle, of queue {name:?}: settle it by its own \
                     ack() and nack()"
                );
                Err(invalid(py, what))
            }
        }
    }

    /// Give back the jobs that are in `state`.
    fn back(
        &self,
        py: Python<'_>,
        jobs: &[Py<Job>],
        state: u8,
        give_back: impl Fn(&Inner, &Engine, &[Lease]) -> Result<()> + Send + Sync,
    ) -> PyResult<()> {
        let these: Vec<_> = jobs.iter().filter(|job| job.get().is(state)).collect();
        let leases: Vec<_> = these.iter().map(|job| *job.get().lease()).collect();
        if leases.is_empty() {
            return Ok(());
        }
        let given_back = call(py, &self.inner, &self.handle, |q, t| give_back(q, t, &leases));
        if !is_over(py, &given_back) {
            return given_back;
        }
        // A job whose lease is over has returned to the queue already.
        these.iter().for_each(|job| job.get().becomes(SETTLED));
        Ok(())
    }
}

/// Number of dead letters that are put back between two checks for a signal.
const REDRIVE_SLICE: u64 = 256;

fn settle(jobs: &[Py<Job>]) {
    jobs.iter().for_each(|job| job.get().becomes(SETTLED));
}

#[pymethods]
impl Queue {
    #[new]
    fn new(
        py: Python<'_>,
        topic: &Bound<'_, AnyTopic>,
        name: &Bound<'_, PyString>,
        ordered: Option<bool>,
    ) -> PyResult<Self> {
        let handle = Arc::clone(topic.get().opened.handle());
        let options = QueueOptions { ordered, ..QueueOptions::default() };
        let (open, name) = (handle.open_existing(py)?, name.to_string_lossy());
        let inner = patiently(py, handle.patience, || Inner::open(&open.topic, &name, options))?;
        Ok(Self { inner: Arc::new(inner), handle, closed: AtomicBool::new(false) })
    }

    /// The queue's name.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// Raise an error once the queue or its topic was closed.
    fn _expect_open(&self, py: Python<'_>) -> PyResult<()> {
        self.expect_unclosed(py)?;
        self.handle.open(py).map(drop)
    }

    /// True once the queue or its topic was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) || self.handle.is_closed()
    }

    /// Take jobs that may be worked on now. Add those that were tried too often before to `worn`, and the others to
    /// `jobs`. `has_policy` says that the queue has dead letters or a backoff.
    #[allow(clippy::too_many_arguments, reason = "Queue.take calls it")]
    fn _take(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        jobs: &Bound<'_, PyList>,
        worn: &Bound<'_, PyList>,
        #[pyo3(from_py_with = input::most)] n: usize,
        #[pyo3(from_py_with = input::lease)] lease: f64,
        #[pyo3(from_py_with = input::timeout)] timeout: Option<f64>,
        max_attempts: u32,
        has_policy: bool,
    ) -> PyResult<()> {
        let this = slf.get();
        let (lease, timeout) = (delay_of(py, lease)?, seconds(py, timeout)?);
        let mut waited = false;
        let taken = loop {
            let taken = match this.call(py, |queue, topic| queue.take(topic, n, lease)) {
                // As at the end of the time: the next call raises this.
                Err(error) if waited && this.closed() && is(py, &error, "HandleClosed") => {
                    break Vec::new();
                }
                taken => taken?,
            };
            if !taken.is_empty() || n == 0 || timeout == Some(Duration::ZERO) {
                break taken;
            }
            waited = true;
            let open = match this.handle.open_existing(py) {
                Err(_) if this.closed() => break Vec::new(),
                open => open?,
            };
            let stop = || this.closed() || open.topic.log().is_deleted();
            let ended = wait(py, timeout, Some(open.topic.log()), stop, |slice, interrupt| {
                this.inner.wait(&open.topic, Some(slice), interrupt)
            })?;
            match ended {
                Wait::News => {}
                Wait::TimedOut => break Vec::new(),
                Wait::Interrupted => {} // closed, or the topic was deleted: the next take says which
            }
        };
        let owner = has_policy.then(|| slf.clone().unbind());
        let batch = Arc::new(Batch::new(&this.inner, &taken, owner, max_attempts));
        if !taken.is_empty() {
            this.handle.lends(&batch);
        }
        for (index, job) in taken.into_iter().enumerate() {
            let is_worn = job.lease.attempt > max_attempts;
            (if is_worn { worn } else { jobs }).append(Job::make(
                py,
                (&batch, index),
                &this.handle,
                job,
            )?)?;
        }
        Ok(())
    }

    /// Say that jobs are done: their records are never delivered again.
    ///
    /// Args:
    ///     jobs: A job, or any number of them, taken from this handle.
    ///
    /// Raises:
    ///     LeaseExpired: The lease of one of them is over, and another worker may have it. The others were
    ///         acked.
    ///     InvalidArgument: A job was taken from another handle; nothing was acked.
    fn ack(&self, py: Python<'_>, jobs: &Bound<'_, PyAny>) -> PyResult<()> {
        let jobs = self.ours(py, jobs)?;
        let to_ack: Vec<_> = jobs.iter().map(|job| job.get().to_ack()).collect();
        let acked = self.call(py, |queue, topic| queue.ack(topic, &to_ack));
        if is_over(py, &acked) {
            settle(&jobs);
        }
        acked
    }

    /// Return the jobs that are not settled to the queue. Those that have begun count an attempt, and without a delay
    /// they wait as the queue's backoff says. The others are delivered again after the delay, if one is given. If
    /// `failed`, one of those that have begun failed. If there are several, each is delivered alone.
    #[pyo3(signature = (jobs, delay, reason=None, *, failed=false))]
    fn _release(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        jobs: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = input::optional_delay)] delay: Option<f64>,
        reason: Option<&Bound<'_, PyAny>>,
        failed: bool,
    ) -> PyResult<()> {
        let reason = input::reason(reason)?;
        let this = slf.get();
        let jobs = this.ours(py, jobs)?;
        let same = delay_of(py, delay.unwrap_or(0.0))?;
        this.back(py, &jobs, OPEN, |queue, topic, leases| queue.put_back(topic, leases, same))?;
        let backs_off = delay.is_none() && !slf.getattr("_backoff")?.is_none();
        let begun = jobs.iter().filter(|job| job.get().is(BEGUN)).count();
        let give_back = if failed && begun > 1 { Inner::suspect } else { Inner::nack };
        // Dead letters, and jobs that wait for different times, are settled one by one.
        let alone = |job: &Job| job.is(BEGUN) && (backs_off || job.is_last());
        for job in jobs.iter().filter(|job| alone(job.get())) {
            let returned = Job::fail(job.bind(py), delay, reason, give_back);
            if !is_over(py, &returned) {
                returned?;
            }
        }
        this.back(py, &jobs, BEGUN, |queue, topic, leases| give_back(queue, topic, leases, same))
    }

    /// Give back jobs that were not begun, to be delivered again at once or after a delay. They count no
    /// attempt.
    fn _put_back(
        &self,
        py: Python<'_>,
        jobs: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = input::delay)] delay: f64,
    ) -> PyResult<()> {
        let (jobs, delay) = (self.ours(py, jobs)?, delay_of(py, delay)?);
        self.back(py, &jobs, OPEN, |queue, topic, leases| queue.put_back(topic, leases, delay))
    }

    /// Extend the leases of jobs: each ends `lease` seconds after now. Return the jobs whose leases were not
    /// over.
    fn _keep<'py>(
        &self,
        py: Python<'py>,
        jobs: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = input::lease)] lease: f64,
    ) -> PyResult<Bound<'py, PyList>> {
        let (mut jobs, lease) = (self.ours(py, jobs)?, delay_of(py, lease)?);
        let leases: Vec<_> = jobs.iter().map(|job| *job.get().lease()).collect();
        let mut kept = self.call(py, |queue, topic| queue.keep(topic, &leases, lease))?.into_iter();
        jobs.retain(|_| kept.next() == Some(true));
        PyList::new(py, jobs)
    }

    /// Write dead letters of jobs to another topic, on the disk, and count the jobs as dead. Return false if the lease
    /// of one was over: another worker has it.
    #[pyo3(signature = (jobs, dead, reason=None))]
    fn _bury(
        &self,
        py: Python<'_>,
        jobs: &Bound<'_, PyAny>,
        dead: &Bound<'_, AnyTopic>,
        reason: Option<&Bound<'_, PyString>>,
    ) -> PyResult<bool> {
        let (jobs, letters) = (self.ours(py, jobs)?, dead_letters_of(py, dead.get())?);
        let taken: Vec<_> = jobs.iter().map(|job| job.get().taken(py)).collect();
        let reason = reason.map(|reason| reason.to_string_lossy());
        let all = self.call(py, |queue, topic| {
            queue.dead_letter(topic, &taken, reason.as_deref(), &letters)
        })?;
        if all {
            settle(&jobs);
        }
        Ok(all)
    }

    /// Give up the jobs that block the queue because their records are corrupt.
    ///
    /// These are the jobs that returned because they cannot be read, and the next ones that were never
    /// delivered. They count as dead. They have no dead letters, as there is nothing to write. With
    /// `order="key"` the queue cannot know their keys, so the jobs behind them continue without them.
    ///
    /// This reads the jobs that returned.
    ///
    /// Returns:
    ///     For each corrupt place `topic`, `partition`, `offsets`, `path` and `position`; empty if nothing
    ///     is corrupt. `offsets` are the first offset that was given up, and the one after the last.
    ///
    /// Raises:
    ///     TopicDeleted: The topic was deleted.
    ///
    /// Example:
    ///     >>> queue = store.queue("jobs")
    ///     >>> queue.skip_damage()
    ///     []
    fn skip_damage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let told = self.call(py, Inner::skip_damage)?;
        list(py, told, |py, lost| {
            let lost = skipped_in(py, 0, &lost)?;
            lost.set_item("topic", &self.handle.shape.name)?;
            Ok(lost)
        })
    }

    /// Return the queue in numbers.
    fn _info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = self.call(py, Inner::info)?;
        info_in(py, self.inner.name(), Ok(&info))
    }

    /// Name of the header with the time before which no worker gets the record.
    #[classattr]
    const _NOT_BEFORE: &'static str = NOT_BEFORE;

    /// Return a watch, which asks for news of the topic.
    fn _watch(&self, py: Python<'_>) -> PyResult<Watch> {
        Ok(Watch::new(self.handle.open_existing(py)?.seen(Visibility::Visible).clone()))
    }

    /// Return the offset up to which the topic reaches, and the seconds after which to look again even if no
    /// record comes.
    fn _next(&self, py: Python<'_>) -> PyResult<(u64, Option<f64>)> {
        let (seen, due) = self.call(py, |queue, topic| {
            let seen = topic.log().committed().unwrap_or_default();
            queue.due(topic).map(|due| (seen, due))
        })?;
        Ok((seen.0, due.map(|due| due.as_secs_f64())))
    }

    /// Close the queue, from any thread: calls that wait for jobs end. Jobs that were not begun return to the
    /// queue. Those that were begun stay in flight; settle them with their own `ack` and `nack`.
    fn close(&self, py: Python<'_>) {
        self.closed.store(true, Ordering::Relaxed);
        self.handle.take_back(py, |batch| Arc::ptr_eq(&batch.queue, &self.inner));
        // Return the jobs that the last take owes the queue; if this fails, their leases end.
        let _late = call(py, &self.inner, &self.handle, Inner::settle);
        self.inner.rest();
        self.handle.rouse(py);
    }
}

/// Return the numbers in the files of all queues of a store, or of one queue, as dicts. This does not look at
/// how far their topics reach.
#[pyfunction]
#[pyo3(signature = (store, name=None))]
pub(crate) fn _queue_overview<'py>(
    py: Python<'py>,
    store: &crate::store::Store,
    name: Option<&Bound<'py, PyString>>,
) -> PyResult<Bound<'py, PyList>> {
    let inner = store.inner(py)?;
    let name = name.map(|name| name.to_string_lossy());
    let found: Vec<_> = match &name {
        Some(name) => {
            let found = py.detach(|| engine::look(&inner, name)).transpose();
            found.map(|info| (name.to_string(), info)).into_iter().collect()
        }
        None => py.detach(|| engine::overview(&inner)).or_raise(py)?,
    };
    list(py, &found, |py, (name, info)| {
        let told = info_in(py, name, info.as_ref())?;
        told.set_item("head", info.as_ref().map_or(0, |info| info.head))?;
        Ok(told)
    })
}

/// Return a queue in numbers, or the error in its file.
fn info_in<'py>(
    py: Python<'py>,
    name: &str,
    info: std::result::Result<&QueueInfo, &Error>,
) -> PyResult<Bound<'py, PyDict>> {
    let number = |of: fn(&QueueInfo) -> u64| info.map_or(0, of);
    let holders = PyDict::new(py);
    for (holder, jobs) in info.map_or(&[][..], |info| &info.holders) {
        holders.set_item(holder, jobs)?;
    }
    Ok(dict!(py,
        "name": name,
        "topic": info.ok().map(|info| &info.topic),
        "generation": info.ok().map(|info| hex(&info.generation)),
        "order": info.ok().and_then(|info| info.ordered.then_some("key")),
        "ready": number(|info| info.ready),
        "delayed": number(|info| info.delayed),
        "in_flight": number(|info| info.in_flight),
        "done": number(|info| info.done),
        "dead": number(|info| info.dead),
        "trimmed": number(|info| info.trimmed),
        "floor": number(|info| info.floor),
        "holders": holders,
        "error": info.err().map(ToString::to_string),
        "error_class": info.err().map(class),
    ))
}

/// Return the names of all queues of a store and of their topics, sorted.
#[pyfunction]
pub(crate) fn _queues(
    py: Python<'_>,
    store: &crate::store::Store,
) -> PyResult<Vec<(String, String)>> {
    let inner = store.inner(py)?;
    py.detach(|| engine::list(&inner)).or_raise(py)
}

/// Put dead letters of a queue back into its topic, and count them.
#[pyfunction]
pub(crate) fn _redrive(
    py: Python<'_>,
    queue: &Bound<'_, PyString>,
    topic: &Bound<'_, AnyTopic>,
    letters: &Bound<'_, AnyTopic>,
    limit: Option<u64>,
    dry_run: bool,
) -> PyResult<u64> {
    let handle = topic.get().opened.handle();
    let (open, letters) = (handle.open_existing(py)?, dead_letters_of(py, letters.get())?);
    let (queue, limit) = (queue.to_string_lossy(), limit.unwrap_or(u64::MAX));
    let mut done = 0;
    loop {
        // Check for a signal after each slice.
        let slice = if dry_run { limit } else { limit.min(done + REDRIVE_SLICE) };
        patiently(py, handle.patience, || {
            let counted = if dry_run { &mut 0 } else { &mut done };
            engine::redrive(&queue, &open.topic, &letters, slice, dry_run, counted)?;
            Ok(*counted)
        })
        .map(|counted| done = counted)?;
        py.check_signals()?;
        if dry_run || done < slice || done == limit {
            return Ok(done);
        }
    }
}

/// Return the engine's topic of dead letters. A handle of one partition gets all of them there.
fn dead_letters_of(py: Python<'_>, dead: &AnyTopic) -> PyResult<Engine> {
    let open = dead.opened.handle().open_existing(py)?;
    match dead.opened.only {
        Some(only) => open.topic.partition(only).or_raise(py),
        None => Ok(open.topic.clone()),
    }
}

/// Return the seconds before a job that failed its attempt is delivered again. The delay doubles with each attempt, and
/// is shortened by up to a half at random.
#[pyfunction]
pub(crate) fn _backoff(
    py: Python<'_>,
    #[pyo3(from_py_with = input::delay)] first: f64,
    #[pyo3(from_py_with = input::delay)] longest: f64,
    attempt: u32,
    random: u64,
) -> PyResult<f64> {
    let backoff = engine::Backoff::new(delay_of(py, first)?, delay_of(py, longest)?);
    Ok(backoff.delay(attempt, random).as_secs_f64())
}

/// Make sure that there is a queue of this name.
#[pyfunction]
pub(crate) fn _expect_queue(
    py: Python<'_>,
    store: &crate::store::Store,
    name: &Bound<'_, PyString>,
) -> PyResult<()> {
    let (inner, name) = (store.inner(py)?, name.to_string_lossy());
    py.detach(|| engine::expect(&inner, &name)).or_raise(py)
}

/// Find the name of a queue's topic; None where there is no such queue.
#[pyfunction]
pub(crate) fn _topic_of_queue(
    py: Python<'_>,
    store: &crate::store::Store,
    name: &Bound<'_, PyString>,
) -> PyResult<Option<String>> {
    let (inner, name) = (store.inner(py)?, name.to_string_lossy());
    py.detach(|| engine::topic_of(&inner, &name)).or_raise(py)
}

/// Forget what became of the records of a queue.
#[pyfunction]
pub(crate) fn _delete_queue(
    py: Python<'_>,
    store: &crate::store::Store,
    name: &Bound<'_, PyString>,
) -> PyResult<()> {
    let (inner, name) = (store.inner(py)?, name.to_string_lossy());
    py.detach(|| engine::delete(&inner, &name)).or_raise(py)
}
