//! Waiting for a log to change, without using the processor.
//!
//! A waiter in a process that may write sleeps on the log's wake counter ([`crate::wake`]). In a
//! read-only process it backs off from 1 to 50 ms. Every sleep is bounded, so that a dead waker
//! costs one bound. Once a second the waiter compares the control file with its path. A process
//! that waits for several logs sleeps on the store's bell ([`super::Notifier`]) and asks each log
//! here. See `docs/PROTOCOL.md`, "Follow".

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::format::address::Address;
use crate::format::control::at;
use crate::storage::real::futex;
use crate::sync::EVERYONE;
use crate::wake;

use super::{Control, Log, enter};

/// Longest sleep before looking again.
const BOUND: Duration = Duration::from_millis(1000);
/// How often a read-only waiter looks: at first, and at last.
pub const BACK_OFF: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// A callback after each sleep: true to stop waiting.
pub type Interrupt<'a> = &'a dyn Fn() -> bool;

/// Which records readers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Visibility {
    /// All committed records.
    #[default]
    Visible,
    /// Records on disk, which no power failure can lose.
    Durable,
    /// Records that are on disk and have left the machine: the process that ships the store said so.
    Remote,
}

impl Visibility {
    /// Get its name, as settings have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Visible => "visible",
            Self::Durable => "durable",
            Self::Remote => "remote",
        }
    }
}

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
    /// Wait until something is committed after an address: where a cursor found the end.
    ///
    /// # Errors
    /// `LockFileReplaced` when the control file is no longer the log's, `TopicDeleted`.
    pub fn wait_for_news(
        &self,
        seen: Address,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        self.wait_until(wake::FOLLOWERS, |log| log.has_news(seen), timeout, interrupt)
    }

    /// Return true when there is a block, though the tail may not include it. A writer that died
    /// after its commit word wakes no process, and every reader sees its block.
    pub(super) fn has_block_at(&self, place: Address) -> bool {
        let segment = self.chain.segment(place.sequence());
        segment.is_ok_and(|segment| segment.word(place.position()) != 0)
    }

    /// Wait until everything before an address is on disk, without syncing.
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
        self.wait_until(wake::SYNC_FOLLOWERS, reached, timeout, interrupt)
    }

    /// Return how far the log reaches now; `None` without a page that says it.
    #[inline]
    pub fn reached(&self, reach: Visibility) -> Option<Address> {
        match reach {
            Visibility::Visible => self.committed(),
            Visibility::Durable => self.durable(),
            Visibility::Remote => self.remote(),
        }
    }

    /// Ask for a wake on the store's bell when there is more than an address, for a caller that
    /// waits for several logs at once. True when there is more already. Each request is answered
    /// once: a process that wakes asks again. If no flag can be set, this only looks.
    ///
    /// # Errors
    /// As [`Log::wait_for_news`].
    pub fn request_notification(&self, reach: Visibility, seen: Address) -> Result<bool> {
        if let Some(control) = self.control() {
            control.register_waiter(match reach {
                Visibility::Visible => wake::WATCHERS,
                Visibility::Durable => wake::SYNC_WATCHERS,
                Visibility::Remote => wake::REMOTE_WATCHERS,
            });
            if control.is_deleted() {
                return Err(self.deleted());
            }
            if self.is_check_due() {
                let in_place = control.check_in_place(&*self.storage);
                in_place.map_err(|error| self.unless_deleted(error))?;
            }
        }
        Ok(match reach {
            Visibility::Visible => self.has_news(seen),
            Visibility::Durable | Visibility::Remote => {
                self.reached(reach).is_some_and(|reached| reached > seen)
            }
        })
    }

    /// Ask for a wake on the store's bell after the next append, for a caller that then syncs.
    /// False when there is something to sync already, or no process could wake it.
    pub fn request_sync_notification(&self) -> bool {
        let asked = self.control().is_some_and(|control| control.register_waiter(wake::KEEPERS));
        asked && !self.needs_background_sync()
    }

    fn has_news(&self, seen: Address) -> bool {
        self.committed().is_some_and(|tail| tail > seen) || self.has_block_at(seen)
    }

    /// End the sleep of every waiter, so that it calls its interrupt.
    pub fn wake_all(&self) {
        self.roused.fetch_add(1, Ordering::Release);
        if let Some(control) = self.control.get() {
            match control.counter() {
                _ if control.can_wait() => control.wake_all(),
                Some(counter) => wake::wake_without_bump(&counter),
                None => {}
            }
        }
    }

    /// Return true once a second for all waiters together, however short their turns are.
    fn is_check_due(&self) -> bool {
        let mut checked = enter(&self.checked);
        let is_due = checked.elapsed() >= BOUND;
        if is_due {
            *checked = Instant::now();
        }
        is_due
    }

    pub(super) fn wait_until(
        &self,
        who: u64,
        done: impl Fn(&Self) -> bool,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        self.wait_while_sensible(who, done, (BOUND, || false, || Ok(())), timeout, interrupt)
    }

    /// Wait likewise, while `check` finds no reason to give up. It is asked at each turn, which is
    /// at most `longest` away, and `stirred` says at once that it should be asked.
    pub(super) fn wait_while_sensible(
        &self,
        who: u64,
        done: impl Fn(&Self) -> bool,
        (longest, stirred, check): (Duration, impl Fn() -> bool, impl Fn() -> Result<()>),
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<Wait> {
        let start = Instant::now();
        let mut back_off = BACK_OFF[0];
        loop {
            let control = self.control();
            let ticket = control.and_then(Control::counter).as_ref().map(wake::observe);
            if done(self) {
                return Ok(Wait::News);
            }
            if control.is_some_and(Control::is_deleted) {
                return Err(self.deleted());
            }
            if interrupt() {
                return Ok(Wait::Interrupted);
            }
            check()?;
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(Wait::TimedOut);
            }
            let bound = left.unwrap_or(longest).min(longest);
            match (control, ticket) {
                (Some(control), Some(ticket)) if control.can_wait() => {
                    let (counter, flag) = (control.word(at::WAKE), control.word(at::WAITING));
                    let has_news = || {
                        if who == wake::REMOTE_APPENDERS {
                            control.hurry();
                        }
                        done(self) || stirred()
                    };
                    wake::park(&counter, &flag, who, ticket, bound, has_news);
                }
                (control, ticket) => {
                    // It may not set a flag: look now and then.
                    sleep_without_registration(control, who, ticket, back_off.min(bound));
                    back_off = (back_off * 2).min(BACK_OFF[1]);
                }
            }
            if self.is_check_due() {
                // Readers check too: no process would ever wake them through a page that was
                // replaced.
                let in_place =
                    control.map_or(Ok(()), |control| control.check_in_place(&*self.storage));
                in_place.map_err(|error| self.unless_deleted(error))?;
            }
        }
    }
}

/// Sleep without setting a flag. If the page is mapped, sleep on it: that needs no write
/// permission, and a wake for others wakes this process too.
fn sleep_without_registration(
    control: Option<&Control>,
    who: u64,
    ticket: Option<wake::Ticket>,
    bound: Duration,
) {
    match (control.and_then(Control::counter), ticket) {
        (Some(counter), Some(ticket)) => {
            wake::wait_for(&counter, who, ticket, bound);
        }
        // A signal ends this sleep too.
        _ => drop(futex::sleep(&AtomicU32::new(0), 0, EVERYONE, bound)),
    }
}
