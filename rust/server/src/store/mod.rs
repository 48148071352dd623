//! The asynchronous face of a store.
//!
//! The engine blocks: an append may wait for a lock, a read for a disk. So appends run on a thread for each log
//! ([`append`]), reads on a pool of threads within a budget of bytes ([`read`]), and one thread waits for news on behalf
//! of all followers ([`watch`]), and of appends that wait for another machine ([`remote`]). Few calls of a queue run at a time ([`queues`]). Invariant: no thread of the HTTP doors ever
//! calls what blocks in the engine.

pub mod append;
pub mod queues;
pub mod read;
pub mod remote;
pub mod watch;
pub mod workers;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use falaj::{Error, Store, SyncMode, Topic};

use crate::config::{Config, Reading};

/// A store and what serves it.
#[derive(Debug)]
pub struct Served {
    store: Store,
    /// Device and inode of its directory, as far as that could be looked at.
    directory: Option<(u64, u64)>,
    read_only: bool,
    topics: Mutex<HashMap<String, Opened>>,
    queues: queues::Queues,
    /// The last takes of workers.
    pub workers: workers::Workers,
    /// The append threads.
    pub appends: append::Appends,
    /// The thread that waits for news.
    pub watcher: watch::Watcher,
    /// The budget of readers.
    pub reads: read::Reads,
}

/// A topic that was opened, and whether this process knows the name of its codec.
#[derive(Debug)]
struct Opened {
    topic: Topic,
    codec_known: bool,
}

/// Lock, also where a thread panicked while it held the lock: what these locks guard is whole between statements.
pub(crate) fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Served {
    /// Open a store. One that cannot be opened for writing is served for reading only.
    ///
    /// # Errors
    /// Those of opening it for reading.
    pub fn open(config: &Config) -> Result<Arc<Self>, Error> {
        let path = Path::new(&config.store);
        let pread = config.reading == Reading::Pread;
        let open = |read_only| Store::options().read_only(read_only).pread(pread).open(path);
        let (store, read_only) = match open(config.read_only) {
            Ok(store) => (store, config.read_only),
            Err(error) if !config.read_only && cannot_write(&error) => {
                tracing::warn!(%error, "the store is served for reading only");
                (open(true)?, true)
            }
            Err(error) => return Err(error),
        };
        Ok(Arc::new(Self {
            appends: append::Appends::default(),
            watcher: watch::Watcher::start(&store),
            reads: read::Reads::new(config.limits.bytes_in_flight.get()),
            topics: Mutex::default(),
            queues: queues::Queues::default(),
            workers: workers::Workers::new(config.limits.workers),
            read_only,
            directory: identity(store.path()),
            store,
        }))
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// True while the directory that was opened is where it was. Blocks.
    pub fn is_there(&self) -> bool {
        let now = identity(self.store.path());
        now.is_some() && now == self.directory
    }

    /// True if nothing can be appended.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Get a handle of a topic that exists, without syncs: the server decides when to sync. Blocks.
    ///
    /// # Errors
    /// `UnknownTopic` and those of opening it.
    pub fn topic(&self, name: &str) -> Result<Topic, Error> {
        if let Some(topic) = self.known(name) {
            return Ok(topic);
        }
        Ok(self.keep(&self.store.topic_options(name).create(false).open()?))
    }

    /// Get a handle of a topic that was opened before, and whose codec has a name that this process knows. It does not
    /// block, and [`Topic::codec`] of the handle reads no file.
    pub fn known(&self, name: &str) -> Option<Topic> {
        let topics = enter(&self.topics);
        let opened = topics.get(name).filter(|it| it.codec_known && !it.topic.is_deleted())?;
        Some(opened.topic.clone())
    }

    /// As [`Served::topic`], for a topic whose codec no program has named yet: it gets this one. Blocks.
    ///
    /// # Errors
    /// `SettingsMismatch` where another codec was named meanwhile, `UnknownTopic` where it must not be created.
    pub fn topic_with(&self, name: &str, codec: &str, create: bool) -> Result<Topic, Error> {
        Ok(self.keep(&self.store.topic_options(name).codec(codec).create(create).open()?))
    }

    fn keep(&self, topic: &Topic) -> Topic {
        let topic = topic.with_sync(SyncMode::None);
        let codec_known = matches!(topic.codec(), Ok(Some(_)));
        let mut topics = enter(&self.topics);
        // Handles of topics that were deleted elsewhere go at the next opening.
        topics.retain(|_, opened| !opened.topic.is_deleted());
        topics.insert(topic.name().to_owned(), Opened { topic: topic.clone(), codec_known });
        topic
    }
}

/// Tell a directory from another one of its name.
fn identity(directory: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(directory).ok().map(|found| (found.dev(), found.ino()))
}

/// True for errors that reading does not have.
fn cannot_write(error: &Error) -> bool {
    let no_right =
        [rustix::io::Errno::ACCESS, rustix::io::Errno::ROFS].map(rustix::io::Errno::raw_os_error);
    matches!(error, Error::NotWritable { .. } | Error::TooManyWriters { .. })
        || error.os_error().is_some_and(|code| no_right.contains(&code))
}
