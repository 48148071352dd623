//! The store's bell: one sleep for many logs.
//!
//! Owns the counter of the store's wake page ([`crate::format::wake`]). Writers ring it for
//! processes that have set a flag in their log ([`Log::ask`]). So one thread waits for any number
//! of logs. The bell does not say what is new, or where: a process that wakes asks each of its logs
//! again.
//!
//! ```text
//! ticket = bell.ticket()
//! for each log: log.ask(reach, seen)? ── news: done
//! bell.sleep(ticket, …)
//! ```
//!
//! A read-only process cannot set a flag. It sleeps on the page all the same, for 1 to 50 ms, and
//! wakes when others are woken. Protocol: `docs/PROTOCOL.md`, "Follow"; models: `tests/loom`.
//!
//! [`Log::ask`]: super::Log::request_notification

use std::time::Duration;

use crate::format::wake::at;
use crate::storage::{Map, Word};
use crate::sync::Slept;
use crate::wake::{self, Ticket};

use super::follow::BACK_OFF;

/// Longest sleep before looking again: the cost of a dead waker.
const BOUND: Duration = Duration::from_secs(1);

/// The bell on which processes sleep that wait for several logs of a store.
#[derive(Clone, Debug)]
pub struct Notifier {
    page: Option<Map>,
}

impl Notifier {
    /// Make it on the store's wake page, if that can be mapped.
    pub fn new(page: Option<Map>) -> Self {
        Self { page }
    }

    fn counter(&self) -> Option<Word<'_>> {
        self.page.as_ref().map(|page| page.word(at::COUNTER))
    }

    fn can_notify(&self) -> bool {
        self.page.as_ref().is_some_and(|page| page.writable() && page.shares_memory())
    }

    /// Take a ticket, before asking the logs; `None` if there is nothing to sleep on.
    pub fn ticket(&self) -> Option<Ticket> {
        self.counter().as_ref().map(wake::observe)
    }

    /// Sleep until the bell rings or a thread of this process wakes it. `idle_turns` counts sleeps
    /// without news: a process that cannot set flags then sleeps longer.
    pub fn sleep(&self, ticket: Option<Ticket>, idle_turns: u32) {
        self.sleep_at_most(ticket, idle_turns, BOUND);
    }

    /// Do as [`Notifier::sleep`], at most for this long.
    pub fn sleep_at_most(&self, ticket: Option<Ticket>, idle_turns: u32, longest: Duration) {
        let [first, last] = BACK_OFF;
        let bound = match self.can_notify() {
            true => BOUND,
            false => (first * 2_u32.saturating_pow(idle_turns.min(16))).min(last),
        };
        let who = wake::WATCHERS | wake::SYNC_WATCHERS | wake::REMOTE_WATCHERS;
        self.sleep_as(who, ticket, bound.min(longest));
    }

    /// Sleep until there may be something to sync.
    pub fn sleep_as_syncer(&self, ticket: Option<Ticket>) {
        if self.can_notify() {
            self.sleep_as(wake::KEEPERS, ticket, BOUND);
        } else {
            // No process can ring it; a thread that closes the store unparks this one.
            std::thread::park_timeout(BOUND);
        }
    }

    /// Sleep until a process waits for the one that ships, at most for this long; true if one may.
    pub fn sleep_as_shipper(&self, ticket: Option<Ticket>, longest: Duration) -> bool {
        match (self.counter().filter(|_| self.can_notify()), ticket) {
            (Some(counter), Some(ticket)) => {
                wake::wait_for(&counter, wake::SHIPPER, ticket, longest) == Slept::Woken
            }
            // No process can set a flag either.
            _ => {
                std::thread::sleep(longest);
                false
            }
        }
    }

    fn sleep_as(&self, who: u64, ticket: Option<Ticket>, bound: Duration) {
        match (self.counter(), ticket) {
            (Some(counter), Some(ticket)) => drop(wake::wait_for(&counter, who, ticket, bound)),
            _ => std::thread::sleep(bound),
        }
    }

    /// End the sleep of all that sleep on it, in any process: they look and sleep again.
    pub fn wake_all(&self) {
        if let (true, Some(counter)) = (self.can_notify(), self.counter()) {
            wake::wake_all(&counter);
        }
    }
}
