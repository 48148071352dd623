//! Appends that wait until they have left the machine.
//!
//! ```text
//! append, synced --its log's durable end--> wait for news of REMOTE --shipper acknowledged it--> answer
//! ```
//!
//! Another process ships the store. Such a request holds no thread: the watcher's thread waits on behalf of all, and asks
//! the shipper to flush at once. Invariant: a wait ends when the shipper does, since it looks after the shipper from time to
//! time.

use std::time::Duration;

use falaj::internals::shipper::Shipper;
use falaj::{Error, Store, Topic, Visibility};
use tokio::time::{Instant, sleep_until};

use super::Served;
use super::read::blocking;

/// How often a wait looks whether the shipper lives: a process that dies wakes no other.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Check that a process ships the store, before a topic is created for an append that needs one.
///
/// # Errors
/// `NoShipper`.
pub fn expect_shipper(store: &Store) -> Result<(), Error> {
    match store.info()?.shipper {
        Shipper::Process(_) => Ok(()),
        _ => Err(Error::NoShipper { store: store.path().to_path_buf(), offset: None }),
    }
}

/// An append that waits.
#[derive(Debug)]
pub struct Wait<'a> {
    /// Its topic.
    pub topic: &'a Topic,
    /// A partition that it went to.
    pub partition: u32,
    /// Its first offset there.
    pub first: u64,
    /// When it began.
    pub begun: Instant,
    /// How long it waits; `None` for no bound.
    pub end: Option<Instant>,
}

/// Wait until everything that the log has on disk now has left the machine.
///
/// # Errors
/// `NoShipper`, `Fenced`, and `RemoteTimeout` once `end` has come, or the server stops.
pub async fn until_shipped(
    served: &Served,
    wait: Wait<'_>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let Wait { partition, first, begun, end, .. } = wait;
    let topic = wait.topic.with_visibility(Visibility::Remote);
    let log = topic.log();
    let target = log.durable().unwrap_or_default();
    let mut news = served.watcher.subscribe(&topic, partition);
    tokio::pin!(stop);
    loop {
        if log.is_remote(target) {
            return Ok(());
        }
        let asked = topic.clone();
        match blocking(move || asked.log().expect_shipper()).await {
            Ok(()) => {}
            // It acknowledged this, and then stopped.
            Err(_) if log.is_remote(target) => return Ok(()),
            Err(Error::Interrupted) => return Err(timed_out(&topic, first, begun)),
            Err(error) => return Err(error.after_append(first)),
        }
        let soon = Instant::now() + ASK_EVERY;
        let again = end.map_or(soon, |end| end.min(soon));
        tokio::select! {
            () = news.wait() => {}
            () = sleep_until(again) => {}
            () = &mut stop => return Err(timed_out(&topic, first, begun)),
        }
        if end.is_some_and(|end| Instant::now() >= end) && !log.is_remote(target) {
            return Err(timed_out(&topic, first, begun));
        }
    }
}

fn timed_out(topic: &Topic, first: u64, begun: Instant) -> Error {
    let path = topic.log().dir().to_path_buf();
    Error::RemoteTimeout { path, waited: begun.elapsed(), offset: Some(first) }
}
