//! Waiting detached from the interpreter, so that signals and closing end the wait.
//!
//! Signals concern only the main thread. It first sleeps in one short slice, which costs nothing to
//! begin and is enough for a busy topic. Then it sleeps without a limit, with a [`Looking`].
//! Closing wakes the log's waiters, and each checks whether it is over.
//!
//! While the interpreter shuts down, pyo3 stops a thread that tries to attach again; `calling` does
//! so for Python code. So nothing that the main thread would wait for may be held across a detach.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj::internals::error::{Error, Result};
use falaj::internals::format::address::Address;
use falaj::internals::log::{Interrupt, Log, Wait};
use pyo3::prelude::*;

use crate::errors::{OrRaise, invalid, raise};
use crate::signals::Looking;

/// Longest time between checks for signals, in the main thread without a lookout. A signal ends the
/// sleep of that thread; this is for one that comes in the moment before it sleeps.
const BLIND_SLICE: Duration = Duration::from_millis(40);
/// The same with a lookout, and in other threads, which signals do not concern.
const SLICE: Duration = Duration::from_millis(2000);

/// Longest time that the engine waits for a lock before it returns here, to check for signals.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(50);

/// Checks for signals now and then, while a loop asks for one record after the other. Loops of
/// Python's own check between records; those in C, as in `list(topic)`, do not.
#[derive(Debug, Default)]
pub(crate) struct Pace(u16);

impl Pace {
    /// Note that a record is asked for.
    #[inline]
    pub(crate) fn step(&mut self, py: Python<'_>) -> PyResult<()> {
        self.0 = self.0.wrapping_add(1);
        if self.0 == 0 { py.check_signals() } else { Ok(()) }
    }
}

/// Do work that may have to wait for a lock, at most for `patience`; the store's own is only
/// [`ATTEMPT`]. When it times out it must have had no effect.
pub(crate) fn patiently<T: Send>(
    py: Python<'_>,
    patience: Duration,
    work: impl FnMut() -> Result<T> + Send,
) -> PyResult<T> {
    retry(py, patience, |error| error, |signal| signal, work)
}

/// Do the same after an append: `told` converts errors, including that of waiting too long. The
/// exception of a signal's handler gets a note that says what was appended.
pub(crate) fn patiently_after<T: Send>(
    py: Python<'_>,
    patience: Duration,
    told: impl Fn(Error) -> Error,
    work: impl FnMut() -> Result<T> + Send,
) -> PyResult<T> {
    let noted = |signal: PyErr| match told(Error::Interrupted) {
        Error::DurabilityUnknown { offset, .. } => noted(py, signal, offset),
        _ => signal,
    };
    let done = retry(py, patience, &told, noted, work)?;
    py.check_signals().map_err(noted)?;
    Ok(done)
}

/// Wait after an append, from `offset` on, until the process that ships the store acknowledged it.
/// The exception of a signal's handler gets a note, as above.
pub(crate) fn wait_shipped(
    py: Python<'_>,
    log: &Arc<Log>,
    (target, offset): (Address, u64),
    timeout: Option<Duration>,
) -> PyResult<()> {
    // An error of the engine ends the wait, and is no exception of a handler.
    let failed = Mutex::new(None);
    let attempt = |slice, interrupt: Interrupt<'_>| {
        log.wait_for_shipper(target, Some(slice), interrupt).or_else(|error| {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Ok(Wait::News)
        })
    };
    let start = Instant::now();
    let ended = wait(py, timeout, Some(log), || false, attempt);
    let ended = ended.map_err(|signal| noted(py, signal, offset))?;
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let waited = start.elapsed();
    let error = match (ended, failed) {
        (_, Some(error)) => error,
        (Wait::News, None) => return Ok(()),
        _ => Error::RemoteTimeout { path: log.dir().to_path_buf(), waited, offset: None },
    };
    Err(raise(py, &error.after_append(offset)))
}

/// Add to a handler's exception what was appended.
fn noted(py: Python<'_>, signal: PyErr, offset: u64) -> PyErr {
    let note = format!("falaj: the records were appended, from offset {offset} on");
    let _ = signal.value(py).call_method1("add_note", (note,));
    signal
}

fn retry<T: Send>(
    py: Python<'_>,
    patience: Duration,
    told: impl Fn(Error) -> Error,
    interrupted: impl Fn(PyErr) -> PyErr,
    mut work: impl FnMut() -> Result<T> + Send,
) -> PyResult<T> {
    let start = Instant::now();
    loop {
        match py.detach(&mut work) {
            Err(Error::LockTimeout { path, holder, .. }) => {
                py.check_signals().map_err(&interrupted)?;
                let waited = start.elapsed();
                if waited >= patience {
                    return Err(raise(py, &told(Error::LockTimeout { path, holder, waited })));
                }
            }
            ended => return ended.map_err(told).or_raise(py),
        }
    }
}

/// Wait for news of a log, or of several: then a signal wakes the waiters of `log`, if there is one.
pub(crate) fn wait(
    py: Python<'_>,
    timeout: Option<Duration>,
    log: Option<&Arc<Log>>,
    stop: impl Fn() -> bool + Sync,
    attempt: impl Fn(Duration, Interrupt<'_>) -> Result<Wait> + Sync,
) -> PyResult<Wait> {
    let start = Instant::now();
    let is_main = rustix::process::getpid() == rustix::thread::gettid();
    let mut is_first = true;
    loop {
        let log = log.filter(|_| is_main && !is_first);
        let looking = log.and_then(|log| Looking::begin(py, log));
        py.check_signals()?;
        if stop() {
            return Ok(Wait::Interrupted);
        }
        let longest = if is_main && looking.is_none() { BLIND_SLICE } else { SLICE };
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let slice = left.unwrap_or(longest).min(longest);
        let ended = match &looking {
            Some(looking) => {
                let came = looking.came();
                py.detach(|| attempt(slice, &|| came() || stop()))
            }
            None => py.detach(|| attempt(slice, &stop)),
        };
        drop(looking);
        match ended {
            Ok(Wait::News) => return Ok(Wait::News),
            Ok(_) | Err(Error::LockTimeout { .. }) => {}
            Err(error) => return Err(raise(py, &error)),
        }
        if left == Some(Duration::ZERO) {
            return Ok(Wait::TimedOut);
        }
        is_first = false;
    }
}

/// Convert seconds from Python.
pub(crate) fn seconds(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map(Some).map_err(|_| invalid(py, format!("{seconds:?} is no timeout in seconds")))
}
