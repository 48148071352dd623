//! Waiting: detached from the interpreter, in slices, so that signals and closing end it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use falaj::error::Result;
use falaj::log::{Interrupt, Wait};
use pyo3::prelude::*;

use crate::errors::{OrRaise, invalid};

/// Longest time without a look at signals: Ctrl-C ends a wait within 50 ms even when another thread
/// than the waiting one was interrupted.
const SLICE: Duration = Duration::from_millis(40);

/// Wait for news. Any wake that brings none ends a slice, so that a signal is seen at once.
pub(crate) fn wait(
    py: Python<'_>,
    timeout: Option<Duration>,
    stop: impl Fn() -> bool + Sync,
    attempt: impl Fn(Duration, Interrupt<'_>) -> Result<Wait> + Sync,
) -> PyResult<Wait> {
    let start = Instant::now();
    loop {
        py.check_signals()?;
        if stop() {
            return Ok(Wait::Interrupted);
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let slice = left.unwrap_or(SLICE).min(SLICE);
        let ended = py.detach(|| {
            let looked = Cell::new(false);
            attempt(slice, &|| looked.replace(true) || stop())
        });
        if ended.or_raise(py)? == Wait::News {
            return Ok(Wait::News);
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
