//! Waiting for news of many topics in one thread.
//!
//! Owns no wait of its own: it leaves a request with each log and sleeps on the store's notifier. Invariant: what is
//! appended after [`Topic::watched`] looked is reported, however it falls together with a wait. Protocol:
//! `docs/PROTOCOL.md`, "Follow".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::format::address::Address;
use crate::log::Notifier;
use crate::store::Store;

use super::Topic;

/// Waits for any of many topics, so that one thread serves as many followers as it likes. [`Store::watch`] makes it.
///
/// Clones are one watch: [`Watch::wake`] of one ends the wait of another.
#[derive(Clone, Debug)]
pub struct Watch {
    notifier: Notifier,
    woken: Arc<AtomicBool>,
}

/// A topic in a [`Watch`], and how far its log had come when it was looked at.
#[derive(Clone, Debug)]
pub struct Watched {
    topic: Topic,
    seen: Address,
    /// True once news was reported that `seen` cannot express. The topic was deleted, or a writer
    /// died between a block and the tail that covers it.
    reported: bool,
}

impl Watched {
    /// Get the topic.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// True if there is news; from then on it counts as seen. Asks the log to ring the notifier for what comes next.
    fn has_news(&mut self) -> bool {
        let (log, visibility) = (self.topic.log(), self.topic.visibility());
        // An error is news as well: the call that follows reports it.
        let asked = log.request_notification(visibility, self.seen);
        let news = asked.unwrap_or(true) || self.topic.is_deleted();
        let reached = reached(&self.topic);
        if reached > self.seen {
            (self.seen, self.reported) = (reached, false);
            return true;
        }
        news && !std::mem::replace(&mut self.reported, true)
    }
}

fn reached(topic: &Topic) -> Address {
    topic.log().reached(topic.visibility()).unwrap_or(Address(0))
}

impl Topic {
    /// Begin to watch the topic: what is appended from now on is news. The topic's
    /// [visibility](Topic::with_visibility) says whether an append counts or only a sync.
    ///
    /// Look at the topic after this call and before the first wait, since what is there already is no news.
    pub fn watched(&self) -> Watched {
        Watched { seen: reached(self), reported: false, topic: self.clone() }
    }
}

impl Store {
    /// Make a watch over topics of this store.
    pub fn watch(&self) -> Watch {
        Watch { notifier: self.bell(), woken: Arc::default() }
    }
}

impl Watch {
    /// Wait until the log of some of these topics has news, and return the topics' places in the slice. Topics that share a
    /// log have news together. A topic that was deleted, or whose log cannot be asked, has news once: the next call on it
    /// returns the error.
    ///
    /// Returns an empty list when the time is over or [`Watch::wake`] was called. The thread sleeps in the kernel. Where
    /// the store was opened for reading only, it looks again every 1 to 50 ms.
    ///
    /// A wait costs one look for each topic, and another one for each append that ends its sleep.
    pub fn wait(&self, watched: &mut [Watched], timeout: Duration) -> Vec<usize> {
        let start = Instant::now();
        let mut idle_turns = 0;
        loop {
            let ticket = self.notifier.ticket();
            let all = watched.iter_mut().enumerate();
            let news: Vec<_> = all.filter_map(|(i, one)| one.has_news().then_some(i)).collect();
            let left = timeout.saturating_sub(start.elapsed());
            if !news.is_empty() || self.woken.swap(false, Ordering::Acquire) || left.is_zero() {
                return news;
            }
            self.notifier.sleep_at_most(ticket, idle_turns, left);
            idle_turns += 1;
        }
    }

    /// End the wait of another thread, or the next wait if no thread waits.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.notifier.wake_all();
    }
}
