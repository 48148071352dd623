//! Threads of other libraries that call Python, at the end of the process.
//!
//! The libraries pyarrow and `DuckDB` read a stream of Python's in threads of their own. When the
//! interpreter ends, it stops such a thread where that asks for the GIL. Then pyarrow waits for the
//! thread, and the process never ends. So such a thread asks for the GIL during a [`Visit`] alone.
//! `close`, which Python's `atexit` calls, admits no more visits, and waits for those that began.
//!
//! Invariant: no visit of this process is left once `close` returned, and none begins. A forked
//! child begins without visits, since it has none of the threads that made them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use falaj::internals::store::fork;
use pyo3::prelude::*;

/// The process's epoch from bit 33 on, whether visits are refused, and how many there are.
static STATE: AtomicU64 = AtomicU64::new(0);
const CLOSED: u64 = 1 << 32;
const COUNT: u64 = CLOSED - 1;
const PAUSE: Duration = Duration::from_millis(1);

/// A thread's permission to ask for the GIL, until it is dropped.
#[derive(Debug)]
pub(crate) struct Visit(());

/// Begin a visit; `None` once the process ends.
pub(crate) fn visit() -> Option<Visit> {
    change(|state| (state & CLOSED == 0).then_some(state + 1)).then_some(Visit(()))
}

impl Drop for Visit {
    fn drop(&mut self) {
        // A child that was forked during a visit has no visit to end.
        change(|state| (state & COUNT > 0).then(|| state - 1));
    }
}

/// Change the state of this process; false if the function refuses.
fn change(next: impl Fn(u64) -> Option<u64>) -> bool {
    let mine = fork::epoch() << 33;
    let current = |state: u64| if state & !(CLOSED | COUNT) == mine { state } else { mine };
    STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| next(current(state))).is_ok()
}

/// Refuse visits, and wait for those that began. A signal's handler may end the wait by an error.
#[pyfunction]
fn _close(py: Python<'_>) -> PyResult<()> {
    change(|state| Some(state | CLOSED));
    while change(|state| (state & COUNT > 0).then_some(state)) {
        py.detach(|| thread::sleep(PAUSE));
        py.check_signals()?;
    }
    Ok(())
}

/// Have Python call `close` at its end: after the functions that programs register later.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let close = pyo3::wrap_pyfunction!(_close, py)?;
    py.import("atexit")?.call_method1("register", (close,)).map(drop)
}
