//! Sessions: members of consumer groups that clients hold by polling.
//!
//! ```text
//! poll 1 --begins--> session (a native consumer) <--poll 2, commit, seek-- …   no request for `session` --> it leaves the group
//! ```
//!
//! Owns the consumers, and when they leave. Invariants: a session belongs to its principal. At most one thread uses a
//! consumer, and no thread of the HTTP doors does. A session that is in use does not end by time. The server keeps no
//! record for a session: its last answer is known by its offsets.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use falaj::{Consumer, Topic};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::store::enter;
use crate::store::read::blocking;

/// How often the server looks for sessions whose time is over.
const LOOK: Duration = Duration::from_millis(100);

/// The name of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::http) struct Key {
    pub(super) group: String,
    pub(super) principal: String,
    pub(super) member: String,
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    all: Mutex<HashMap<Key, Arc<Session>>>,
}

/// A member that a client holds.
#[derive(Debug)]
pub(in crate::http) struct Session {
    pub(super) key: Key,
    /// How long it lives without a request.
    span: Duration,
    work: Arc<tokio::sync::Mutex<Work>>,
    used: Mutex<Used>,
    /// Bumped when partitions may have come or gone in this group. Its sessions share it.
    pub(super) changes: Arc<watch::Sender<()>>,
}

#[derive(Debug)]
struct Used {
    requests: usize,
    since: Instant,
}

/// The state of a session. One request at a time has it.
#[derive(Debug, Default)]
pub(in crate::http) struct Work {
    pub(super) state: State,
    /// The number of the last answered poll; 0 before the first one.
    pub(super) last: u64,
    pub(super) answer: Vec<Part>,
    /// The client has that answer: it committed or sought since.
    pub(super) is_received: bool,
    /// Bytes of the records of that answer.
    pub(super) bytes: usize,
    /// The partitions that it had when it last looked.
    pub(super) assigned: Vec<(String, u32)>,
    /// A topic of the log that keeps the group's offsets, if one does.
    pub(super) home: Option<Topic>,
}

impl Work {
    /// True if a poll with the number 1 may be a repeat of the first one.
    pub(super) fn is_first(&self) -> bool {
        self.last <= 1 && !self.is_received
    }
}

/// How far a session has come.
#[derive(Debug, Default)]
pub(in crate::http) enum State {
    #[default]
    New,
    /// It is a member of the group, and reads this.
    Open(Box<Consumer>, Subscription),
    Ended,
}

/// The topics that a session reads, and how it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct Subscription {
    pub(super) topics: Vec<String>,
    pub(super) pattern: Option<String>,
    pub(super) home: Option<String>,
}

/// The records of one partition in an answer.
#[derive(Clone, Debug)]
pub(in crate::http) struct Part {
    pub(super) topic: Topic,
    pub(super) partition: u32,
    pub(super) offsets: Range<u64>,
}

/// A session while a request uses it: it does not end by time.
#[derive(Debug)]
pub(in crate::http) struct InUse(pub(super) Arc<Session>);

impl std::ops::Deref for InUse {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut used = enter(&self.0.used);
        (used.requests, used.since) = (used.requests - 1, Instant::now());
    }
}

impl Session {
    fn take(self: &Arc<Self>) -> InUse {
        enter(&self.used).requests += 1;
        InUse(Arc::clone(self))
    }

    fn is_over(&self) -> bool {
        let used = enter(&self.used);
        used.requests == 0 && used.since.elapsed() >= self.span
    }

    /// Wait for its state. Only short work holds it, never a poll that waits for records.
    pub(super) async fn work(&self) -> OwnedMutexGuard<Work> {
        Arc::clone(&self.work).lock_owned().await
    }

    /// Wait for its state, unless it has ended or not begun.
    pub(super) async fn open(&self) -> Option<OwnedMutexGuard<Work>> {
        let work = self.work().await;
        matches!(work.state, State::Open(..)).then_some(work)
    }
}

impl Sessions {
    /// Count the sessions.
    pub fn len(&self) -> usize {
        enter(&self.all).len()
    }

    /// Return true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// List the members of a group.
    pub(super) fn members(&self, group: &str) -> Vec<String> {
        let all = enter(&self.all);
        let mut found: Vec<_> =
            all.keys().filter(|key| key.group == group).map(|key| key.member.clone()).collect();
        found.sort();
        found
    }

    /// Get a session, if there is one.
    pub(super) fn get(&self, key: &Key) -> Option<InUse> {
        enter(&self.all).get(key).map(Session::take)
    }

    /// Get a session, or a new one; `None` where there are so many already.
    pub(super) fn get_or_new(
        self: &Arc<Self>,
        key: &Key,
        span: Duration,
        most: usize,
    ) -> Option<InUse> {
        let mut all = enter(&self.all);
        if let Some(session) = all.get(key) {
            return Some(session.take());
        }
        if all.len() >= most {
            return None;
        }
        if all.is_empty() {
            tokio::spawn(sweep(Arc::clone(self)));
        }
        let of_group = all.values().find(|session| session.key.group == key.group);
        let changes = of_group.map(|session| Arc::clone(&session.changes));
        let session = Arc::new(Session {
            key: key.clone(),
            span,
            work: Arc::default(),
            used: Mutex::new(Used { requests: 0, since: Instant::now() }),
            changes: changes.unwrap_or_else(|| Arc::new(watch::channel(()).0)),
        });
        all.insert(key.clone(), Arc::clone(&session));
        Some(session.take())
    }

    /// Forget a session, if this one is still it.
    fn remove(&self, session: &Arc<Session>) {
        let mut all = enter(&self.all);
        if all.get(&session.key).is_some_and(|found| Arc::ptr_eq(found, session)) {
            all.remove(&session.key);
        }
    }

    /// End a session: its member leaves the group, and others get its partitions.
    pub(super) async fn end(&self, session: &Arc<Session>) {
        self.end_with(session, session.work().await).await;
    }

    /// Do so with its state.
    pub(super) async fn end_with(&self, session: &Arc<Session>, mut work: OwnedMutexGuard<Work>) {
        self.remove(session);
        let left = std::mem::replace(&mut work.state, State::Ended);
        let closing = blocking(move || {
            let closed = match left {
                State::Open(consumer, _) => consumer.close(),
                State::New | State::Ended => Ok(()),
            };
            drop(work);
            closed
        });
        if let Err(error) = closing.await {
            tracing::warn!(%error, group = session.key.group, "a member did not leave in order");
        }
        session.changes.send_replace(());
    }

    /// End all sessions.
    pub async fn end_all(&self) {
        let all: Vec<_> = enter(&self.all).values().cloned().collect();
        for session in all {
            self.end(&session).await;
        }
    }

    /// Forget the sessions whose time is over, and return them.
    fn take_over(&self) -> Vec<Arc<Session>> {
        let mut all = enter(&self.all);
        let over: Vec<_> = all.values().filter(|session| session.is_over()).cloned().collect();
        for session in &over {
            all.remove(&session.key);
        }
        over
    }
}

/// End sessions whose time is over, as long as there are sessions.
async fn sweep(sessions: Arc<Sessions>) {
    loop {
        tokio::time::sleep(LOOK).await;
        for session in sessions.take_over() {
            tracing::debug!(group = session.key.group, "the time of a session is over");
            let sessions = Arc::clone(&sessions);
            // Each for itself: one that waits for a disk keeps no other in its group.
            tokio::spawn(async move { sessions.end(&session).await });
        }
        if sessions.is_empty() {
            return;
        }
    }
}
