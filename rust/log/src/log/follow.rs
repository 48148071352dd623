//! Waiting for a log to change, without using the processor.
//!
//! A waiter in a process that may write sleeps on the log's wake counter ([`crate::wake`]); one that
//! may not backs off from 1 to 50 ms. Every sleep is bounded, so that a waker that dies costs a
//! bound, and once a second the control file is compared with its path. See `docs/PROTOCOL.md`,
//! "Follow".

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::format::address::Address;
use crate::format::control::at;
use crate::wake;

use super::Log;

/// Longest sleep before looking again.
const BOUND: Duration = Duration::from_millis(1000);
const BACK_OFF: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Asked each time a sleep ends: true to stop waiting.
pub type Interrupt<'a> = &'a dyn Fn() -> bool;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// There is something new.
    News,
    /// The time is over.
    TimedOut,
    /// The caller asked to stop.
    Interrupted,
}

impl Log {
    /// Wait until something is committed behind an address.
    ///
    /// # Errors
    /// `LockFileReplaced` when the control file is no longer the log's.
    pub fn wait_for_news(
        &self,
        seen: Address,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        self.wait_until(|log| log.committed().is_some_and(|tail| tail > seen), timeout, interrupt)
    }

    /// Wait until everything before an address is on the medium, without syncing.
    ///
    /// # Errors
    /// As [`Log::wait_for_news`].
    pub fn wait_for_durable(
        &self,
        target: Address,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let reached = |log: &Self| log.durable().is_some_and(|durable| durable >= target);
        self.wait_until(reached, timeout, interrupt)
    }

    /// End the sleep of every waiter, so that it asks its interrupt.
    pub fn rouse(&self) {
        if let Some(control) = &self.control {
            if control.can_wait() {
                control.rouse();
            }
        }
    }

    fn wait_until(
        &self,
        done: impl Fn(&Self) -> bool,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let start = Instant::now();
        let mut back_off = BACK_OFF[0];
        let mut checked = start;
        loop {
            let ticket = self.control.as_ref().map(|c| wake::observe(&c.word(at::WAKE)));
            if done(self) {
                return Ok(Wait::News);
            }
            if interrupt() {
                return Ok(Wait::Interrupted);
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(Wait::TimedOut);
            }
            let bound = left.unwrap_or(BOUND).min(BOUND);
            match (&self.control, ticket) {
                (Some(control), Some(ticket)) if control.can_wait() => {
                    let (counter, flag) = (control.word(at::WAKE), control.word(at::WAITING));
                    wake::park(&counter, &flag, ticket, bound, || done(self));
                }
                _ => {
                    // Not allowed to leave a flag: look now and then.
                    std::thread::sleep(back_off.min(bound));
                    back_off = (back_off * 2).min(BACK_OFF[1]);
                }
            }
            if checked.elapsed() >= BOUND {
                checked = Instant::now();
                if let (Some(control), true) = (&self.control, self.is_writable()) {
                    control.check_in_place(&*self.storage)?;
                }
            }
        }
    }
}
