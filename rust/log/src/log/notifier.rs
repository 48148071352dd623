//! The store's bell: one sleep for the sake of many logs.
//!
//! Owns the counter of the store's wake page ([`crate::format::wake`]). Writers ring it for those who
//! left word with their log ([`Log::ask`]); so one thread of a process waits for as many logs as it
//! likes. What is new, and where, the bell does not say: who is woken asks each of its logs again.
//!
//! ```text
//! ticket = bell.ticket()
//! for each log: log.ask(reach, seen)? ── news: done
//! bell.sleep(ticket, …)
//! ```
//!
//! Who may not write the page cannot leave word. It sleeps on the page all the same, for 1 to 50 ms,
//! and hears what is rung for others. Protocol: `docs/PROTOCOL.md`, "Follow"; models: `tests/loom`.
//!
//! [`Log::ask`]: super::Log::request_notification

use std::time::Duration;

use crate::format::wake::at;
use crate::storage::{Map, Word};
use crate::wake::{self, Ticket};

use super::follow::BACK_OFF;

/// Longest sleep before looking again: what a waker that died costs.
const BOUND: Duration = Duration::from_secs(1);

/// What those sleep on who wait for several logs of a store.
#[derive(Clone, Debug)]
pub struct Notifier {
    page: Option<Map>,
}

impl Notifier {
    /// On the store's wake page, if it can be mapped.
    pub fn new(page: Option<Map>) -> Self {
        Self { page }
    }

    fn counter(&self) -> Option<Word<'_>> {
        self.page.as_ref().map(|page| page.word(at::COUNTER))
    }

    fn can_notify(&self) -> bool {
        self.page.as_ref().is_some_and(|page| page.writable() && page.shares_memory())
    }

    /// Take a ticket, before asking the logs; `None` where there is nothing to sleep on.
    pub fn ticket(&self) -> Option<Ticket> {
        self.counter().as_ref().map(wake::observe)
    }

    /// Sleep until the bell is rung or roused. How often nothing had come before is for those who must
    /// look by themselves: they sleep the longer.
    pub fn sleep(&self, ticket: Option<Ticket>, idle_turns: u32) {
        self.sleep_at_most(ticket, idle_turns, BOUND);
    }

    /// As [`Notifier::sleep`], no longer than this.
    pub fn sleep_at_most(&self, ticket: Option<Ticket>, idle_turns: u32, longest: Duration) {
        let [first, last] = BACK_OFF;
        let bound = match self.can_notify() {
            true => BOUND,
            false => (first * 2_u32.saturating_pow(idle_turns.min(16))).min(last),
        };
        self.sleep_as(wake::WATCHERS | wake::SYNC_WATCHERS, ticket, bound.min(longest));
    }

    /// Sleep until there may be something to keep.
    pub fn sleep_as_syncer(&self, ticket: Option<Ticket>) {
        if self.can_notify() {
            self.sleep_as(wake::KEEPERS, ticket, BOUND);
        } else {
            // Nobody can ring; who closes the store unparks.
            std::thread::park_timeout(BOUND);
        }
    }

    fn sleep_as(&self, who: u64, ticket: Option<Ticket>, bound: Duration) {
        match (self.counter(), ticket) {
            (Some(counter), Some(ticket)) => drop(wake::wait_for(&counter, who, ticket, bound)),
            _ => std::thread::sleep(bound),
        }
    }

    /// End the sleep of all who sleep on it, in any process: they look and sleep again.
    pub fn wake_all(&self) {
        if let (true, Some(counter)) = (self.can_notify(), self.counter()) {
            wake::wake_all(&counter);
        }
    }
}
