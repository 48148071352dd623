//! Workers: which jobs each one's last take had, so that a repeated take has the same answer.
//!
//! Kept in memory alone: a server that starts again knows no worker, and each begins again. Invariant: no more workers
//! are kept than the limit allows. One is forgotten for another once its request and its leases are over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use falaj::Ticket;

use super::enter;

/// The names of a worker. Those of one principal mean nothing to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The principal.
    pub principal: String,
    /// The queue.
    pub queue: String,
    /// The worker, as it calls itself.
    pub worker: String,
}

/// The last take of a worker that was answered.
#[derive(Debug, Default)]
pub struct Last {
    /// Its number; 0 before the first.
    pub number: u64,
    /// The jobs that it had.
    pub tickets: Vec<Ticket>,
}

/// A worker's last take. It is locked while a take of this worker goes on.
pub type Worker = Arc<tokio::sync::Mutex<Last>>;

/// All workers.
#[derive(Debug)]
pub struct Workers {
    all: Mutex<HashMap<Name, Known>>,
    most: usize,
}

#[derive(Debug)]
struct Known {
    last: Worker,
    /// When its leases are over.
    until: Instant,
}

/// Why there is no worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWorker {
    /// It is not known, and does not begin.
    Unknown,
    /// There are as many as there may be.
    Full,
}

impl Workers {
    /// Keep so many workers.
    pub fn new(most: u64) -> Self {
        Self { all: Mutex::default(), most: usize::try_from(most).unwrap_or(usize::MAX) }
    }

    /// Get a worker, and know it at least for so long. One that is not known is added if it begins.
    ///
    /// # Errors
    /// Each [`NoWorker`].
    pub fn get(&self, name: &Name, begins: bool, time: Duration) -> Result<Worker, NoWorker> {
        let (mut all, now) = (enter(&self.all), Instant::now());
        let until = now.checked_add(time).unwrap_or(now);
        if let Some(known) = all.get_mut(name) {
            known.until = known.until.max(until);
            return Ok(Arc::clone(&known.last));
        }
        if !begins {
            return Err(NoWorker::Unknown);
        }
        if all.len() >= self.most {
            all.retain(|_, known| known.until > now || Arc::strong_count(&known.last) > 1);
        }
        if all.len() >= self.most {
            return Err(NoWorker::Full);
        }
        let last = Worker::default();
        all.insert(name.clone(), Known { last: Arc::clone(&last), until });
        Ok(last)
    }

    /// How many are known.
    pub fn count(&self) -> usize {
        enter(&self.all).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(worker: &str) -> Name {
        let own = |text: &str| text.to_owned();
        Name { principal: own("local"), queue: own("emails"), worker: own(worker) }
    }

    #[test]
    fn a_worker_is_forgotten_for_another_only_when_its_leases_and_its_requests_are_over() {
        let workers = Workers::new(2);
        let long = Duration::from_secs(60);
        assert_eq!(workers.get(&name("a"), false, long).unwrap_err(), NoWorker::Unknown);
        let a = workers.get(&name("a"), true, long).unwrap();
        let b = workers.get(&name("b"), true, Duration::ZERO).unwrap();
        assert_eq!(workers.get(&name("c"), true, long).unwrap_err(), NoWorker::Full);
        drop((a, b));
        workers.get(&name("c"), true, Duration::ZERO).unwrap();
        assert_eq!(workers.get(&name("b"), false, long).unwrap_err(), NoWorker::Unknown);
        workers.get(&name("a"), false, long).unwrap();
        assert_eq!(workers.count(), 2);
    }
}
