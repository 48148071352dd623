//! `Follower`: a `for` that continues as the topic grows.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::log::Wait;
use falaj::internals::topic::Topic;
use falaj::internals::{log, wake};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;

use crate::errors::{OrRaise, raise};
use crate::handle::Handle;
use crate::input;
use crate::iterate::Reading;
use crate::record::Record;
use crate::wait::wait;

/// An iterator over records, present and future, as `Topic.follow` yields it.
///
/// One thread at a time may read from it; `close` ends it from any thread. A forked child may
/// continue it.
///
/// Example:
///     >>> orders = store.topic("orders")
///     >>> with orders.follow(timeout=0) as follower:
///     ...     _ = orders.append(b"x")
///     ...     next(follower)
///     <Record orders[0] b'x'>
#[pyclass(frozen, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Follower {
    /// Only tried, never waited for: a second thread gets an error, and so does a forked child that
    /// inherited it held.
    reading: Mutex<Reading>,
    stopped: AtomicBool,
    timeout: Option<Duration>,
    handle: Arc<Handle>,
}

impl Follower {
    pub(crate) fn new(reading: Reading, timeout: Option<Duration>) -> Self {
        let (handle, stopped) = (Arc::clone(&reading.handle), AtomicBool::new(false));
        Self { reading: Mutex::new(reading), stopped, timeout, handle }
    }

    #[inline]
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.handle.is_closed()
    }

    #[inline]
    fn turn(&self) -> PyResult<MutexGuard<'_, Reading>> {
        match self.reading.try_lock() {
            Ok(reading) => Ok(reading),
            Err(TryLockError::Poisoned(reading)) => Ok(reading.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let what = "another thread is reading from this follower; give each its own";
                Err(PyRuntimeError::new_err(what))
            }
        }
    }

    fn wait_for_news(
        &self,
        py: Python<'_>,
        reading: &Reading,
        timeout: Option<Duration>,
    ) -> PyResult<Wait> {
        let (open, follow) = (&reading.open, &reading.follow);
        let stop = || self.is_stopped() || open.topic.is_deleted();
        let ended = wait(py, timeout, Some(open.topic.log()), stop, |slice, interrupt| {
            follow.wait(Some(slice), interrupt)
        })?;
        if ended == Wait::Interrupted && !self.is_stopped() {
            self.handle.expect_existing(py, open)?;
        }
        Ok(ended)
    }

    /// Return None as there is nothing now, or raise the error of a deleted topic, which never has
    /// more.
    fn nothing_more<T>(&self, py: Python<'_>, reading: &Reading) -> PyResult<Option<T>> {
        self.handle.expect_existing(py, &reading.open)?;
        Ok(None)
    }
}

#[pymethods]
impl Follower {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __contains__(&self, _item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(input::no_container("a follower, and would never end"))
    }

    /// Refuse pickle and copy.
    fn __reduce__(&self) -> PyResult<()> {
        let what = "a follower cannot be pickled or copied: give the other process the path and the \
                    topic's name, and call falaj.open(path).topic(name).follow() there";
        Err(PyTypeError::new_err(what))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let mut reading = self.turn()?;
        let (mut waiting, mut is_over) = (None, false);
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            if let Some(record) = reading.next(py)? {
                return Ok(Some(record));
            }
            if is_over {
                return Ok(None);
            }
            // The last records may have come since that look: look once more.
            is_over = reading.follow.is_over();
            if is_over {
                continue;
            }
            let since: &Instant = waiting.get_or_insert_with(Instant::now);
            let left = self.timeout.map(|timeout| timeout.saturating_sub(since.elapsed()));
            if left == Some(Duration::ZERO) {
                return self.nothing_more(py, &reading);
            }
            if self.wait_for_news(py, &reading, left)? != Wait::News {
                return Ok(None);
            }
        }
    }

    /// Return the next record if there is one now, else None.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let mut reading = self.turn()?;
        if self.is_stopped() {
            return Ok(None);
        }
        match reading.next(py)? {
            Some(record) => Ok(Some(record)),
            None => self.nothing_more(py, &reading),
        }
    }

    /// True once it, or its topic, was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.is_stopped()
    }

    /// True if nothing comes after all that a look from now on finds: the topic is finished.
    #[getter]
    fn _over(&self) -> PyResult<bool> {
        Ok(self.turn()?.follow.is_over())
    }

    /// Return how far the last look saw the log, as an address.
    #[getter]
    fn _seen(&self) -> PyResult<u64> {
        Ok(self.turn()?.follow.seen().0)
    }

    /// Return what waits for news on its behalf.
    fn _watch(&self, py: Python<'_>) -> PyResult<Watch> {
        let reach = self.turn()?.visibility;
        Ok(Watch::new(self.handle.open_existing(py)?.seen(reach).clone()))
    }

    /// End the iteration, from any thread.
    fn close(&self, py: Python<'_>) {
        self.stopped.store(true, Ordering::Relaxed);
        self.handle.rouse(py);
    }

    fn __repr__(&self) -> String {
        let name = &self.handle.shape.name;
        let what = match self.turn() {
            _ if self.is_stopped() => format!("{name:?}, closed"),
            Ok(reading) => reading.shown(),
            Err(_) => format!("{name:?}, in use"),
        };
        format!("<falaj.Follower of {what}>")
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}

/// Asks one log for news, on behalf of any number of followers.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Watch(Topic);

impl Watch {
    /// Make one for a topic, as far as it sees.
    pub(crate) fn new(topic: Topic) -> Self {
        Self(topic)
    }
}

#[pymethods]
impl Watch {
    /// Return a key that is the same for all that wait for the same news.
    #[getter]
    fn key(&self) -> (OsString, &'static str) {
        (self.0.log().dir().into(), self.0.visibility().name())
    }

    /// Return the path of its log's store: one sleep can serve several logs of a store.
    #[getter]
    fn store(&self) -> OsString {
        self.0.store().path().into()
    }

    /// Return the bell that wakes it.
    fn bell(&self) -> Bell {
        Bell(self.0.store().bell())
    }

    /// Return how often waiters for the log were woken, for any reason.
    #[getter]
    fn wakes(&self) -> u64 {
        self.0.log().wakes()
    }

    /// Ask for a wake on the bell when there is more than up to an address. True when there is
    /// already; an error when the topic is deleted.
    fn ask(&self, py: Python<'_>, seen: u64) -> PyResult<bool> {
        if self.0.is_deleted() {
            let name = self.0.name().to_owned();
            return Err(raise(py, &Error::TopicDeleted { name }));
        }
        self.0.log().request_notification(self.0.visibility(), Address(seen)).or_raise(py)
    }
}

/// The bell for one sleep that serves several logs of a store.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Bell(log::Notifier);

/// The state of a bell before the logs were asked.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Ticket(Option<wake::Ticket>);

#[pymethods]
impl Bell {
    /// Name the calling thread, for people who look at a process's threads.
    #[staticmethod]
    fn name_thread() {
        let _unnamed = rustix::thread::set_name(c"falaj-watcher");
    }

    /// Take a ticket, before the logs are asked.
    fn ticket(&self) -> Ticket {
        Ticket(self.0.ticket())
    }

    /// Sleep until a wake, a second at most. The sleep is shorter if no process can ring the bell,
    /// and grows with each turn without news.
    fn sleep(&self, py: Python<'_>, ticket: &Ticket, idle_turns: u32) {
        py.detach(|| self.0.sleep(ticket.0, idle_turns));
    }

    /// End the sleep of all that sleep on it.
    fn rouse(&self) {
        self.0.wake_all();
    }
}
