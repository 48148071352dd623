//! Appends: one thread for each log, so that a stopped holder of a log's lock stalls that log alone.
//!
//! ```text
//! request --queue--> thread of the log: append, append, append --one sync for all that asked for it--> answers
//! ```
//!
//! Appends are never merged, since merged appends would merge their refusals; only syncs are. A request that gives up
//! before its append began is never appended. A thread without work ends.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use falaj::{Error, Topic};
use tokio::sync::oneshot;

use super::enter;

/// Most requests that wait for one log.
const QUEUE: usize = 1_024;
/// How long a thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Why nothing was appended, as far as is known.
#[derive(Debug)]
pub enum Failure {
    /// The engine refused.
    Refused(Error),
    /// Too many requests wait for this log already.
    Busy,
    /// The time was over before the append began: nothing was appended.
    TimedOut,
    /// The append panicked: whether anything was appended is unknown.
    Lost,
}

/// An append that every reader sees.
#[derive(Debug)]
pub struct Appended<T> {
    /// The value that it returned.
    pub value: T,
    /// Why it may not be on the disk, where the sync that it asked for failed.
    pub unsynced: Option<Arc<Error>>,
}

/// All threads that append.
#[derive(Debug, Default)]
pub struct Appends {
    logs: Arc<Mutex<Queues>>,
}

/// The queues of the logs that have a thread, by the logs' names.
type Queues = HashMap<String, Arc<LogQueue>>;

/// The requests of one log.
#[derive(Debug, Default)]
struct LogQueue {
    waiting: Mutex<VecDeque<Request>>,
    arrived: Condvar,
}

/// A request in a queue.
struct Request {
    state: Arc<AtomicU8>,
    /// The topic to sync, if it asked for that.
    sync: Option<Topic>,
    append: Box<dyn FnOnce() -> Answer + Send>,
}

/// Sends an answer, once it is known how the sync ended.
type Answer = Box<dyn FnOnce(Option<&Arc<Error>>) + Send>;

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({:?})", self.state)
    }
}

const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Appends {
    /// Run an append on the thread of a topic's log, and sync afterwards if it is to be durable.
    ///
    /// The future may be dropped: an append that did not begin then never does.
    ///
    /// # Errors
    /// Each [`Failure`].
    pub async fn run<T: Send + 'static>(
        &self,
        topic: &Topic,
        durable: bool,
        patience: Duration,
        run: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<Appended<T>, Failure> {
        let (sender, mut answered) = oneshot::channel();
        let state = Arc::new(AtomicU8::new(WAITS));
        let _dropped = GiveUp(Arc::clone(&state));
        let append = Box::new(move || -> Answer {
            let done = run();
            Box::new(move |failed| {
                let whole = done.map(|value| Appended { value, unsynced: failed.cloned() });
                // A client that went away takes no answer.
                let _ = sender.send(whole);
            })
        });
        let sync = durable.then(|| topic.clone());
        self.enqueue(topic.log_name(), Request { state: Arc::clone(&state), sync, append })?;
        let answer = tokio::select! {
            answer = &mut answered => answer,
            () = tokio::time::sleep(patience) => match give_up(&state) {
                true => return Err(Failure::TimedOut),
                // It is being appended: its outcome is worth the wait.
                false => answered.await,
            },
        };
        answer.map_err(|_| Failure::Lost)?.map_err(Failure::Refused)
    }

    /// Requests that wait or are being served, for the metrics.
    pub fn waiting(&self) -> usize {
        enter(&self.logs).values().map(|queue| enter(&queue.waiting).len()).sum()
    }

    fn enqueue(&self, log: &str, request: Request) -> Result<(), Failure> {
        let mut logs = enter(&self.logs);
        if let Some(queue) = logs.get(log) {
            let mut waiting = enter(&queue.waiting);
            if waiting.len() >= QUEUE {
                return Err(Failure::Busy);
            }
            waiting.push_back(request);
            queue.arrived.notify_one();
            return Ok(());
        }
        let queue =
            Arc::new(LogQueue { waiting: Mutex::new([request].into()), arrived: Condvar::new() });
        let (all, name, served) = (Arc::clone(&self.logs), log.to_owned(), Arc::clone(&queue));
        let thread = std::thread::Builder::new().name("append".to_owned());
        match thread.spawn(move || serve(&all, &name, &served)) {
            Ok(_) => drop(logs.insert(log.to_owned(), queue)),
            Err(error) => {
                tracing::error!(%error, "no thread to append with");
                return Err(Failure::Busy);
            }
        }
        Ok(())
    }
}

/// Gives a request up where its client went away.
struct GiveUp(Arc<AtomicU8>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        give_up(&self.0);
    }
}

/// True if the append has not begun, and now never will.
fn give_up(state: &AtomicU8) -> bool {
    leave(state, GIVEN_UP)
}

fn leave(state: &AtomicU8, to: u8) -> bool {
    state.compare_exchange(WAITS, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Serve one log until no request came for a while.
fn serve(logs: &Mutex<Queues>, name: &str, queue: &LogQueue) {
    loop {
        let batch = next_batch(queue);
        if batch.is_empty() {
            let mut logs = enter(logs);
            // Requests are queued under the lock of the map, so none can come between the look and the removal.
            if enter(&queue.waiting).is_empty() {
                logs.remove(name);
                return;
            }
            continue;
        }
        let (mut sync, mut answers) = (None, Vec::with_capacity(batch.len()));
        for request in batch {
            if !leave(&request.state, BEGUN) {
                continue;
            }
            let append = std::panic::AssertUnwindSafe(request.append);
            // The answer of an append that panicked is dropped with it, which tells its client; the thread goes on.
            if let Ok(answer) = std::panic::catch_unwind(append) {
                answers.push((answer, request.sync.is_some()));
                sync = request.sync.or(sync);
            }
        }
        // One sync covers all topics of the log.
        let failed = sync.and_then(|topic| topic.flush().err()).map(Arc::new);
        for (answer, waited) in answers {
            answer(failed.as_ref().filter(|_| waited));
        }
    }
}

/// Take all that waits; an empty batch after a while without any.
fn next_batch(queue: &LogQueue) -> VecDeque<Request> {
    let waiting = enter(&queue.waiting);
    let waited = queue.arrived.wait_timeout_while(waiting, IDLE, |waiting| waiting.is_empty());
    let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *waiting)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use falaj::Store;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        (dir, store)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_log_that_is_stuck_stalls_no_other_and_what_waits_for_it_is_given_up_cleanly() {
        let (_dir, store) = store();
        let (stuck, free) = (store.topic("stuck").unwrap(), store.topic("free").unwrap());
        let appends = Arc::new(Appends::default());
        let (release, held) = mpsc::channel::<()>();
        let (entered, holding) = mpsc::channel::<()>();
        let holder = tokio::spawn({
            let (appends, stuck) = (Arc::clone(&appends), stuck.clone());
            async move {
                let hold = move || {
                    entered.send(()).unwrap();
                    let _ = held.recv();
                    Ok(())
                };
                appends.run(&stuck, false, LONG, hold).await
            }
        });
        tokio::task::spawn_blocking(move || holding.recv().unwrap()).await.unwrap();
        let append = |topic: &Topic| {
            let topic = topic.clone();
            move || topic.append(b"x").map(|position| position.offset)
        };
        let refused = appends.run(&stuck, false, Duration::from_millis(10), append(&stuck)).await;
        assert!(matches!(refused, Err(Failure::TimedOut)), "{refused:?}");
        assert_eq!(appends.run(&free, true, LONG, append(&free)).await.unwrap().value, 0);
        release.send(()).unwrap();
        holder.await.unwrap().unwrap();
        // The append that was given up never happened.
        assert_eq!(appends.run(&stuck, true, LONG, append(&stuck)).await.unwrap().value, 0);
    }

    #[tokio::test]
    async fn a_refusal_of_one_append_is_its_own_and_a_panic_is_told_to_its_client_alone() {
        let (_dir, store) = store();
        let topic = store.topic("t").unwrap();
        let appends = Appends::default();
        let ok = || {
            let topic = topic.clone();
            move || topic.append(b"x").map(|position| position.offset)
        };
        let (first, refused, lost, second) = tokio::join!(
            appends.run(&topic, true, LONG, ok()),
            appends.run(&topic, true, LONG, || Err::<u64, _>(Error::Interrupted)),
            appends.run(&topic, true, LONG, || -> Result<u64, Error> { panic!("planted") }),
            appends.run(&topic, true, LONG, ok()),
        );
        assert_eq!((first.unwrap().value, second.unwrap().value), (0, 1));
        assert!(matches!(refused, Err(Failure::Refused(Error::Interrupted))), "{refused:?}");
        assert!(matches!(lost, Err(Failure::Lost)), "{lost:?}");
        assert_eq!(topic.durable_offset().unwrap(), 2);
    }
}
