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

use super::{Control, Log, enter};

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
    /// Wait until something is committed behind an address: where a cursor found the end.
    ///
    /// # Errors
    /// `LockFileReplaced` when the control file is no longer the log's, `TopicDeleted`.
    pub fn wait_for_news(
        &self,
        seen: Address,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let moved = |log: &Self| log.committed().is_some_and(|tail| tail > seen);
        self.wait_until(|log| moved(log) || log.has_block_at(seen), timeout, interrupt)
    }

    /// True when there is a block, though the tail may not say so: a writer that died behind its
    /// commit word wakes nobody, and what it wrote is there for everybody who looks.
    fn has_block_at(&self, place: Address) -> bool {
        let segment = self.chain.segment(place.sequence());
        segment.is_ok_and(|segment| segment.word(place.position()) != 0)
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
        if let Some(control) = self.control.get() {
            if control.can_wait() {
                control.rouse();
            }
        }
    }

    /// True once a second for all who wait, however short the turns are in which they do.
    fn is_check_due(&self) -> bool {
        let mut checked = enter(&self.checked);
        let is_due = checked.elapsed() >= BOUND;
        if is_due {
            *checked = Instant::now();
        }
        is_due
    }

    fn wait_until(
        &self,
        done: impl Fn(&Self) -> bool,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let start = Instant::now();
        let mut back_off = BACK_OFF[0];
        loop {
            let control = self.control();
            let ticket = control.map(|c| wake::observe(&c.word(at::WAKE)));
            if done(self) {
                return Ok(Wait::News);
            }
            if control.is_some_and(Control::is_deleted) {
                return Err(self.deleted());
            }
            if interrupt() {
                return Ok(Wait::Interrupted);
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(Wait::TimedOut);
            }
            let bound = left.unwrap_or(BOUND).min(BOUND);
            match (control, ticket) {
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
            if self.is_check_due() {
                // Also for readers: nobody would ever wake them through a page that was replaced.
                control.map_or(Ok(()), |control| control.check_in_place(&*self.storage))?;
            }
        }
    }
}
