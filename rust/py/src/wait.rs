//! Waiting: detached from the interpreter, in slices, so that signals and closing end it.
//!
//! A thread that comes back while the interpreter is being taken down is stopped by pyo3 where it
//! attaches again. So nothing here may be held across a detach that the main thread would wait for.

use std::cell::Cell;
use std::time::{Duration, Instant};

use falaj::error::{Error, Result};
use falaj::log::{Interrupt, Wait};
use pyo3::prelude::*;

use crate::errors::{OrRaise, invalid, raise};

/// Longest time without a look at signals, in the main thread, where Python handles them. A signal
/// ends the sleep of that thread; this is for one that comes in the moment before it sleeps.
const MAIN_SLICE: Duration = Duration::from_millis(40);
/// The same in other threads, which no signal concerns.
const SLICE: Duration = Duration::from_millis(2000);

fn longest_slice() -> Duration {
    let main = rustix::process::getpid() == rustix::thread::gettid();
    if main { MAIN_SLICE } else { SLICE }
}

/// Longest time that the engine waits for a lock before it comes back here, to look at signals.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(50);

/// Do something that may have to wait for a lock, at most as long as `patience` is; the store's own
/// is only [`ATTEMPT`]. When it times out it must not have done anything.
pub(crate) fn patiently<T: Send>(
    py: Python<'_>,
    patience: Duration,
    mut work: impl FnMut() -> Result<T> + Send,
) -> PyResult<T> {
    let start = Instant::now();
    loop {
        match py.detach(&mut work) {
            Err(Error::LockTimeout { path, holder, .. }) => {
                py.check_signals()?;
                let waited = start.elapsed();
                if waited >= patience {
                    return Err(raise(py, &Error::LockTimeout { path, holder, waited }));
                }
            }
            ended => return ended.or_raise(py),
        }
    }
}

/// Wait for news. Any wake that brings none ends a slice, so that a signal is seen at once.
pub(crate) fn wait(
    py: Python<'_>,
    timeout: Option<Duration>,
    stop: impl Fn() -> bool + Sync,
    attempt: impl Fn(Duration, Interrupt<'_>) -> Result<Wait> + Sync,
) -> PyResult<Wait> {
    let (start, longest) = (Instant::now(), longest_slice());
    loop {
        py.check_signals()?;
        if stop() {
            return Ok(Wait::Interrupted);
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let slice = left.unwrap_or(longest).min(longest);
        let ended = py.detach(|| {
            let looked = Cell::new(false);
            attempt(slice, &|| looked.replace(true) || stop())
        });
        match ended {
            Ok(Wait::News) => return Ok(Wait::News),
            Ok(_) | Err(Error::LockTimeout { .. }) => {}
            Err(error) => return Err(raise(py, &error)),
        }
        if left == Some(Duration::ZERO) {
            return Ok(Wait::TimedOut);
        }
    }
}

/// Seconds from Python.
pub(crate) fn seconds(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map(Some).map_err(|_| invalid(py, format!("{seconds} is no timeout in seconds")))
}
