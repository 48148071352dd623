//! Queues: opened once, called by few threads at a time, and waited for by one request each.
//!
//! A process that is stopped while it holds a queue's lock stops all calls of that queue. So few calls of a queue run at
//! the same time, and those that wait for their turn hold no thread. The requests that wait for a job stand in a line:
//! the first looks for it, so a new job wakes one of them. Nothing of a job is kept
//! here. Jobs that workers have are reserved in the store, and outlive the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use falaj::report::QueueInfo;
use falaj::{Error, Queue, Store};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore};

use super::append::Failure;
use super::read::blocking;
use super::watch::News;
use super::{Served, enter};

/// Most calls of one queue at the same time; and most queues that are being opened.
const CALLS: usize = 2;
const OPENINGS: usize = 4;
/// How long a request waits for its call to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time until a request that waits looks again: another server may have given a job back.
const LOOK: Duration = Duration::from_secs(1);

/// The queues that requests have used.
#[derive(Debug)]
pub struct Queues {
    open: Mutex<HashMap<String, Arc<OpenQueue>>>,
    openings: Arc<Semaphore>,
}

impl Default for Queues {
    fn default() -> Self {
        Self { open: Mutex::default(), openings: Arc::new(Semaphore::new(OPENINGS)) }
    }
}

/// An open queue.
#[derive(Debug)]
pub struct OpenQueue {
    queue: Queue,
    calls: Arc<Semaphore>,
    turn: Arc<tokio::sync::Mutex<()>>,
    returned: Notify,
}

impl Served {
    /// Get a queue. A missing one is created if that is allowed, over the topic of its name.
    ///
    /// # Errors
    /// `UnknownQueue` and those of opening it; `TimedOut` while too many others are being opened.
    pub async fn queue(
        self: &Arc<Self>,
        name: &str,
        may_create: bool,
    ) -> Result<Arc<OpenQueue>, Failure> {
        let known = enter(&self.queues.open).get(name).cloned();
        if let Some(open) = known.filter(|open| !open.queue.topic().is_deleted()) {
            return Ok(open);
        }
        let (served, name) = (Arc::clone(self), name.to_owned());
        let opened = call(&self.queues.openings, move || served.open_queue(&name, may_create));
        opened.await
    }

    /// Create a queue over a topic, by default that of its name, which may be created too. A queue that is there keeps
    /// its topic. Returns whether it was there, and what it is now.
    ///
    /// # Errors
    /// `UnknownTopic`; `SettingsMismatch` for a queue with another topic or order; those of opening it.
    pub async fn create_queue(
        self: &Arc<Self>,
        name: &str,
        topic: Option<String>,
        ordered: Option<bool>,
        may_make_topic: bool,
    ) -> Result<(bool, QueueInfo), Failure> {
        let (served, name) = (Arc::clone(self), name.to_owned());
        let create = move || {
            let found = served.store().queue_info(&name).ok();
            let existed = found.is_some();
            let over = topic.or(found.map(|found| found.topic)).unwrap_or_else(|| name.clone());
            let over = match served.topic(&over) {
                Err(Error::UnknownTopic { .. }) if may_make_topic => {
                    served.keep(&served.store().topic(&over)?)
                }
                topic => topic?,
            };
            let mut options = served.store().queue_options(&name).topic(&over);
            if let Some(ordered) = ordered {
                options = options.ordered(ordered);
            }
            options.open()?;
            Ok((existed, served.store().queue_info(&name)?))
        };
        call(&self.queues.openings, create).await
    }

    /// Delete the state of a queue.
    ///
    /// # Errors
    /// `UnknownQueue` and those of deleting it.
    pub async fn delete_queue(self: &Arc<Self>, name: &str) -> Result<(), Failure> {
        let (served, name) = (Arc::clone(self), name.to_owned());
        let delete = move || {
            served.store().delete_queue(&name)?;
            enter(&served.queues.open).remove(&name);
            Ok(())
        };
        call(&self.queues.openings, delete).await
    }

    fn open_queue(&self, name: &str, may_create: bool) -> Result<Arc<OpenQueue>, Error> {
        let topic = match self.store().queue_info(name) {
            Ok(info) => self.topic(&info.topic)?,
            Err(Error::UnknownQueue { .. }) if may_create => match self.topic(name) {
                Err(Error::UnknownTopic { .. }) => self.keep(&self.store().topic(name)?),
                topic => topic?,
            },
            Err(error) => return Err(error),
        };
        let queue = self.store().queue_options(name).topic(&topic).open()?;
        let open = Arc::new(OpenQueue {
            queue,
            calls: Arc::new(Semaphore::new(CALLS)),
            turn: Arc::default(),
            returned: Notify::new(),
        });
        let mut all = enter(&self.queues.open);
        // Queues of topics that were deleted go at the next opening.
        all.retain(|_, open| !open.queue.topic().is_deleted());
        // Requests that opened it at the same time share the turn of the first.
        Ok(Arc::clone(all.entry(name.to_owned()).or_insert(open)))
    }
}

impl OpenQueue {
    /// Get the queue, for its name and its topic.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Get the store.
    pub fn store(&self) -> &Store {
        self.queue.topic().store()
    }

    /// Call the engine on the pool, when it is this call's turn.
    ///
    /// # Errors
    /// Those of the call; `TimedOut` where other calls hold the queue for too long.
    pub async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Queue) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Failure> {
        let this = Arc::clone(self);
        call(&self.calls, move || run(&this.queue)).await
    }

    /// Wait behind the other requests that wait for a job of this queue.
    pub async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Wait until there may be a job: for a new one, for one that returns, for the end of a delay or of a lease.
    ///
    /// # Errors
    /// As [`OpenQueue::call`].
    pub async fn wait(self: &Arc<Self>, news: &mut News) -> Result<(), Failure> {
        let mut returned = std::pin::pin!(self.returned.notified());
        // Before the look: a job that returns after it is noticed.
        returned.as_mut().enable();
        let due = self.call(Queue::due).await?;
        let nap = due.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK);
        tokio::select! {
            () = news.wait() => {}
            () = returned => {}
            () = tokio::time::sleep(nap) => {}
        }
        Ok(())
    }

    /// Say that jobs returned to the queue, or are done and free others.
    pub fn tell(&self) {
        self.returned.notify_waiters();
    }
}

/// Run on the pool once there is a permit, which is held to the end of the call and not of the request.
async fn call<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    run: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Failure> {
    let waiting = tokio::time::timeout(PATIENCE, Arc::clone(permits).acquire_owned());
    let Ok(Ok(permit)) = waiting.await else { return Err(Failure::TimedOut) };
    let called = blocking(move || {
        let _until_the_end = permit;
        run()
    });
    called.await.map_err(Failure::Refused)
}
