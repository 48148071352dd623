//! `Follower`: a `for` that goes on as the topic grows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use falaj::format::address::Address;
use falaj::log::Wait;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::iterate::Reading;
use crate::record::Record;
use crate::wait::{seconds, wait};

/// How often to look where there is no page that says what is committed.
const BLIND: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct State {
    reading: Reading,
    /// What was committed before the last look; what lies behind it is news.
    seen: Address,
}

/// An iterator over records, present and future.
#[pyclass(frozen, module = "falaj._core", generic)]
#[derive(Debug)]
pub struct Follower {
    /// Only tried, never waited for: a second thread gets an error, and so does a forked child that
    /// inherited it held.
    state: Mutex<State>,
    stopped: AtomicBool,
    timeout: Option<Duration>,
    handle: std::sync::Arc<crate::handle::Handle>,
}

impl Follower {
    pub(crate) fn new(reading: Reading, timeout: Option<Duration>) -> Self {
        let handle = reading.handle.clone();
        let state = Mutex::new(State { reading, seen: Address::default() });
        Self { state, stopped: AtomicBool::new(false), timeout, handle }
    }

    #[inline]
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.handle.is_closed()
    }

    #[inline]
    fn turn(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let what = "another thread is reading from this follower; give each its own";
                Err(PyRuntimeError::new_err(what))
            }
        }
    }

    /// The next record if there is one now.
    #[inline]
    fn look<'py>(&self, py: Python<'py>, state: &mut State) -> PyResult<Option<Bound<'py, Record>>> {
        state.seen = state.reading.merge.open().topic.log().committed().unwrap_or_default();
        state.reading.next(py)
    }

    fn wait_for_news(
        &self,
        py: Python<'_>,
        state: &State,
        timeout: Option<Duration>,
    ) -> PyResult<Wait> {
        let open = state.reading.merge.open();
        self.handle.expect_existing(py, open)?;
        let (log, seen) = (open.topic.log(), state.seen);
        wait(
            py,
            timeout,
            || self.is_stopped(),
            |slice, interrupt| {
                if log.committed().is_some() {
                    return log.wait_for_news(seen, Some(slice), interrupt);
                }
                std::thread::sleep(slice.min(BLIND));
                Ok(Wait::News)
            },
        )
    }
}

#[pymethods]
impl Follower {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let mut state = self.turn()?;
        let mut waiting = None;
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            if let Some(record) = self.look(py, &mut state)? {
                return Ok(Some(record));
            }
            let since: &Instant = waiting.get_or_insert_with(Instant::now);
            let left = self.timeout.map(|timeout| timeout.saturating_sub(since.elapsed()));
            if left == Some(Duration::ZERO) || self.wait_for_news(py, &state, left)? != Wait::News {
                return Ok(None);
            }
        }
    }

    /// The next record if there is one now, else None.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Record>>> {
        let mut state = self.turn()?;
        if self.is_stopped() { Ok(None) } else { self.look(py, &mut state) }
    }

    /// True once it was closed, or its topic.
    #[getter]
    fn closed(&self) -> bool {
        self.is_stopped()
    }

    /// Wait up to `timeout` seconds for more than the last look saw.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = seconds(py, Some(timeout))?;
        let state = self.turn()?;
        Ok(self.wait_for_news(py, &state, timeout)? == Wait::News)
    }

    /// End the iteration, from any thread.
    fn close(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.handle.at_once(|topic| topic.log().rouse());
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }
}
