//! Which logs this process has open: each once, however many handles there are.
//!
//! A process takes part in a log's locks under one identity, so it must not have two objects for one
//! log that could both wait: a lock handed over to "this process" would be had by both. Closing a log
//! takes locks as well, so who opens it anew waits until the object before is gone altogether.
//!
//! Logs open for writing are kept, weakly, by the [`Membership`]. Two threads of the process serve
//! them, and end with the membership: the *keeper* syncs what was appended in interval mode, also by
//! processes that died since, and what was sealed in any mode; another, which no sync may hold up,
//! makes room and pages ahead of the writer. Logs open for reading are not shared: they hold no lock.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::{Membership, Store, fork};
use crate::error::{Error, Result};
use crate::format::settings::{TopicSettings, WriteMode};
use crate::lock::{Fate, Holders, Identity};
use crate::log::{Log, LogSettings, Member, Reading, Watch};

/// Longest nap of the keeper, so that it soon notices that it is no longer needed.
const NAP: Duration = Duration::from_millis(100);

const SHORTEST_NAP: Duration = Duration::from_micros(500);

/// The logs that a process has open for writing.
#[derive(Debug, Default)]
pub(super) struct OpenLogs {
    inner: Mutex<Inner>,
    /// Held for reading by a thread that serves logs, as long as it has any of them in its hands.
    serving: Arc<RwLock<()>>,
}

/// Belongs to a handle of a log and is dropped right behind it. The last one of a log waits until no
/// thread that serves logs has one in its hands: then the log is closed when its last handle is gone,
/// not some time later by the thread that happened to have it too.
#[derive(Clone, Debug)]
pub struct Closing {
    handles: Arc<()>,
    serving: Arc<RwLock<()>>,
    epoch: u64,
}

impl Drop for Closing {
    fn drop(&mut self) {
        // In a forked child nobody serves, and the lock may have been held when it was born.
        if fork::epoch() == self.epoch && Arc::strong_count(&self.handles) == 1 {
            drop(self.serving.write());
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    logs: HashMap<PathBuf, Opened>,
    helpers: Option<Helpers>,
}

/// A log, and what tells that it is gone.
#[derive(Debug)]
struct Opened {
    log: Weak<Log>,
    /// Held by the log until its last handle is dropped *and* it has closed itself.
    place: Weak<Place>,
    /// What its handles share, to know which is the last.
    handles: Weak<()>,
}

/// A membership, as one log has it.
#[derive(Debug)]
pub(super) struct Place(pub(super) Arc<Membership>);

/// The threads that serve the logs.
#[derive(Debug)]
struct Helpers {
    pages: Thread,
}

impl Drop for Helpers {
    fn drop(&mut self) {
        // It sleeps until it is asked for something; now it finds nobody left to serve.
        self.pages.unpark();
    }
}

impl OpenLogs {
    fn find_or_open(
        &self,
        member: &Arc<Membership>,
        dir: &Path,
        open: impl FnOnce(Arc<dyn Member>) -> Result<Arc<Log>>,
    ) -> Result<Arc<Log>> {
        let mut inner = loop {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(opened) = inner.logs.get(dir) else { break inner };
            if let Some(log) = opened.log.upgrade() {
                return Ok(log);
            }
            if opened.place.strong_count() == 0 {
                break inner;
            }
            // Another thread closes it, which takes as long as a sync.
            drop(inner);
            std::thread::sleep(SHORTEST_NAP);
        };
        let place = Arc::new(Place(Arc::clone(member)));
        let log = open(Arc::clone(&place) as Arc<dyn Member>)?;
        inner.logs.retain(|_, opened| opened.place.strong_count() > 0);
        let (log_held, place) = (Arc::downgrade(&log), Arc::downgrade(&place));
        let opened = Opened { log: log_held, place, handles: Weak::new() };
        inner.logs.insert(dir.to_path_buf(), opened);
        if inner.helpers.is_none() {
            start(dir, "falaj-keeper", Arc::downgrade(member), &self.serving, keep)?;
            let pages =
                start(dir, "falaj-pages", Arc::downgrade(member), &self.serving, touch_pages)?;
            inner.helpers = Some(Helpers { pages });
        }
        if let Some(helpers) = &inner.helpers {
            log.set_helper(helpers.pages.clone());
        }
        Ok(log)
    }

    fn closing(&self, dir: &Path) -> Closing {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = inner.logs.get_mut(dir);
        let known = opened.as_ref().and_then(|opened| opened.handles.upgrade());
        let handles = known.unwrap_or_default();
        if let Some(opened) = opened {
            opened.handles = Arc::downgrade(&handles);
        }
        Closing { handles, serving: Arc::clone(&self.serving), epoch: fork::epoch() }
    }

    fn living(&self) -> Vec<Arc<Log>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.logs.values().filter_map(|opened| opened.log.upgrade()).collect()
    }
}

impl Store {
    /// Open the log of a topic; for writing where the store is.
    ///
    /// # Errors
    /// `Corrupt`, `NeedsRecovery`, `Newer`, `LockFileReplaced`, `LockTimeout`, `NoSpace`, `Io`.
    pub fn open_log(&self, topic: &TopicSettings) -> Result<Arc<Log>> {
        let dir = self.log_dir(topic)?;
        let storage = Arc::clone(self.storage());
        let settings = self.log_settings(topic);
        if self.access() == super::Access::Read {
            return Log::open(storage, &dir, settings, None);
        }
        let member = self.membership()?;
        member
            .logs()
            .find_or_open(&member, &dir, |place| Log::open(storage, &dir, settings, Some(place)))
    }
}

impl Store {
    /// What to drop right behind a handle of a log that was opened for writing; `None` for a reader, whose logs
    /// nobody else has.
    ///
    /// # Errors
    /// `Closed` in a forked child.
    pub fn closing(&self, log: &Log) -> Result<Option<Closing>> {
        if self.access() == super::Access::Read {
            return Ok(None);
        }
        Ok(Some(self.membership()?.logs().closing(log.dir())))
    }

    /// How the log of a topic is opened.
    pub(super) fn log_settings(&self, topic: &TopicSettings) -> LogSettings {
        LogSettings {
            file_mode: self.modes().file,
            lock_timeout: Some(self.shared.lock_timeout),
            reading: self.shared.reading,
            ..settings_to_read(topic, self.settings().write_mode)
        }
    }
}

/// How the log of a topic is opened by who only looks, and by `pread` only.
pub(super) fn settings_to_read(topic: &TopicSettings, write_mode: WriteMode) -> LogSettings {
    LogSettings {
        generation: topic.log_generation,
        segment_bytes: topic.segment_bytes,
        write_mode,
        file_mode: 0o600,
        lock_timeout: None,
        sync_interval: Duration::from_millis(topic.sync_interval_ms),
        reading: Reading::Pread,
    }
}

/// Start a thread that serves a membership's logs.
fn start(
    dir: &Path,
    name: &str,
    member: Weak<Membership>,
    serving: &Arc<RwLock<()>>,
    work: fn(&Weak<Membership>, &RwLock<()>),
) -> Result<Thread> {
    let thread = std::thread::Builder::new().name(name.into());
    let serving = Arc::clone(serving);
    let started = thread.spawn(move || work(&member, &serving));
    started
        .map(|thread| thread.thread().clone())
        .map_err(|e| Error::io("start a thread for", dir, e))
}

fn touch_pages(member: &Weak<Membership>, serving: &RwLock<()>) {
    loop {
        std::thread::park();
        let _gate = serving.read();
        let Some(member) = member.upgrade() else { return };
        let logs = member.logs().living();
        drop(member);
        logs.iter().for_each(|log| log.touch());
    }
}

fn keep(member: &Weak<Membership>, serving: &RwLock<()>) {
    let mut synced: HashMap<PathBuf, Instant> = HashMap::new();
    let mut nap = NAP;
    loop {
        std::thread::park_timeout(nap);
        let _gate = serving.read();
        let Some(member) = member.upgrade() else { return };
        let logs = member.logs().living();
        drop(member);
        nap = NAP;
        for log in logs {
            // A failure latches the log: whoever appends next is told.
            let _ = log.keep_sealed();
            let interval = log.settings().sync_interval;
            let last = synced.entry(log.dir().to_path_buf()).or_insert_with(Instant::now);
            if last.elapsed() >= interval {
                *last = Instant::now();
                // A failure latches the log: whoever appends next is told.
                let _ = log.keep_interval();
            }
            nap = nap.min(interval.saturating_sub(last.elapsed())).max(SHORTEST_NAP);
        }
    }
}

impl Member for Place {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn incarnation(&self) -> u64 {
        self.0.incarnation()
    }

    #[inline]
    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn watch(&self) -> Option<Watch> {
        Some(self.0.watch())
    }

    fn fate(&self, holder: Identity) -> io::Result<Fate<Box<dyn Any>>> {
        Ok(match Holders::fate(&*self.0, holder)? {
            Fate::Alive => Fate::Alive,
            Fate::Dead(proof) => Fate::Dead(Box::new(proof)),
        })
    }

    fn describe(&self, holder: Identity) -> String {
        self.0.describe(holder)
    }
}
