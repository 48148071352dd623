//! The logs that this process has open, each once, however many handles there are.
//!
//! A process takes a log's locks under one identity. So it must not have two objects for one log
//! that could both wait: both would own a lock that was passed to "this process". Closing a log
//! takes locks as well, so a thread that opens it again waits until the previous object is gone
//! completely.
//!
//! The [`Membership`] keeps logs that are open for writing, weakly. Three threads of the process
//! serve them, and end with the membership. The *keeper* syncs what was appended in interval mode,
//! also by processes that died since. It also syncs sealed segments in any mode, and the mark of an
//! idle log. Another thread, which no sync delays, prepares space and pages ahead of the writer.
//! The third, which delays neither, runs [`super::retention`] after a roll. Logs open for reading
//! are not shared: they hold no lock.
//!
//! An idle keeper sets a flag in its logs and sleeps on the store's [`Notifier`]. An append wakes
//! it before it returns, so acknowledged records never wait for the bound of that sleep.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::claim::Claim;
use super::retention::helper::{Helper, Problems};
use super::{Membership, Store, fork, registry};
use crate::error::{IoResult, Result};
use crate::format::address::Address;
use crate::format::settings::{TopicSettings, WriteMode};
use crate::lock::{Fate, Holders, Identity};
use crate::log::{Log, LogSettings, Member, Notifier, Reading, Watch};
use crate::storage::{File, OpenMode, Storage};

/// Longest and shortest nap of the keeper.
const LONGEST_NAP: Duration = Duration::from_millis(100);
const SHORTEST_NAP: Duration = Duration::from_micros(500);
/// Turns after which the mark of a busy log is raised to the durable end.
const UNMARKED_TURNS: u32 = 10;

/// The logs that a process has open for writing.
#[derive(Debug, Default)]
pub(super) struct OpenLogs {
    inner: Mutex<Inner>,
    /// The last error of retention, by directory of the log.
    retention: Mutex<Problems>,
    /// Held for reading by a thread that serves logs, while it holds a handle of any of them.
    pub(super) serving: Arc<RwLock<()>>,
}

/// Belongs to a handle of a log and is dropped right after it. The last one of a log waits until no
/// serving thread holds a handle. So the log is closed when its last handle is gone, not some time
/// later by a serving thread.
#[derive(Clone, Debug)]
pub struct Closing {
    _gate: Arc<ClosingGate>,
}

/// The part that the handles of a log share. It is dropped once, with the last of them, even if two
/// threads drop the last two at the same instant. No count is read and acted upon later.
#[derive(Debug)]
struct ClosingGate {
    serving: Arc<RwLock<()>>,
    epoch: u64,
}

impl Drop for ClosingGate {
    fn drop(&mut self) {
        // A forked child has no serving threads, and may have inherited the lock locked.
        if fork::epoch() == self.epoch {
            drop(self.serving.write());
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    logs: HashMap<PathBuf, OpenedLog>,
    helpers: Option<Helpers>,
}

/// A log, and the means to know that it is gone.
#[derive(Debug)]
struct OpenedLog {
    log: Weak<Log>,
    /// Held by the log until its last handle is dropped *and* it has closed itself.
    place: Weak<LogMembership>,
    /// The part that its handles share.
    gate: Weak<ClosingGate>,
}

/// A membership, as one log holds it.
#[derive(Debug)]
pub(super) struct LogMembership(pub(super) Arc<Membership>);

/// The threads that serve the logs.
#[derive(Debug)]
struct Helpers {
    keeper: Thread,
    pages: Thread,
    retention: Thread,
    bell: Notifier,
}

impl Drop for Helpers {
    fn drop(&mut self) {
        // They sleep until there is work; now they find no membership to serve.
        self.pages.unpark();
        self.retention.unpark();
        self.keeper.unpark();
        self.bell.wake_all();
    }
}

impl OpenLogs {
    fn find_or_open(
        &self,
        member: &Arc<Membership>,
        dir: &Path,
        store: &Store,
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
        // If another store replaced this one, its own members must recover its logs.
        member.verify()?;
        let place = Arc::new(LogMembership(Arc::clone(member)));
        let log = open(Arc::clone(&place) as Arc<dyn Member>)?;
        inner.logs.retain(|_, opened| opened.place.strong_count() > 0);
        let (log_held, place) = (Arc::downgrade(&log), Arc::downgrade(&place));
        let opened = OpenedLog { log: log_held, place, gate: Weak::new() };
        inner.logs.insert(dir.to_path_buf(), opened);
        if inner.helpers.is_none() {
            let bell = store.bell();
            let (logs, mut helper) = (Served::new(member), Helper::new(store));
            let retention = start(dir, "falaj-retention", move || retain(&logs, &mut helper))?;
            let (logs, rung) = (Served::new(member), bell.clone());
            let roused = retention.clone();
            let keeper = start(dir, "falaj-keeper", move || keep(&logs, &rung, &roused))?;
            let logs = Served::new(member);
            let pages = start(dir, "falaj-pages", move || touch_pages(&logs))?;
            inner.helpers = Some(Helpers { keeper, pages, retention, bell });
        }
        if let Some(helpers) = &inner.helpers {
            log.set_helper(helpers.pages.clone());
            // The keeper may be asleep, without a flag in this log.
            helpers.bell.wake_all();
        }
        Ok(log)
    }

    fn closing(&self, dir: &Path) -> Closing {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = inner.logs.get_mut(dir);
        let known = opened.as_ref().and_then(|opened| opened.gate.upgrade());
        let gate = known.unwrap_or_else(|| {
            Arc::new(ClosingGate { serving: Arc::clone(&self.serving), epoch: fork::epoch() })
        });
        if let Some(opened) = opened {
            opened.gate = Arc::downgrade(&gate);
        }
        Closing { _gate: gate }
    }

    /// End the threads that serve the logs: the membership ends.
    pub(super) fn end(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let helpers = inner.helpers.take();
        drop(inner);
        drop(helpers);
    }

    /// Store an error of retention, or clear it.
    pub(super) fn note_retention(&self, dir: &Path, problem: Option<String>) {
        let mut problems = self.retention.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => drop(problems.insert(dir.to_path_buf(), problem)),
            None => drop(problems.remove(dir)),
        }
    }

    /// Return the last error of retention in this process, if its last run failed.
    pub(super) fn retention_problem(&self, dir: &Path) -> Option<String> {
        self.retention.lock().unwrap_or_else(PoisonError::into_inner).get(dir).cloned()
    }

    /// Return the log in a directory, if it is open.
    pub(super) fn in_dir(&self, dir: &Path) -> Option<Arc<Log>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.logs.get(dir).and_then(|opened| opened.log.upgrade())
    }

    pub(super) fn living(&self) -> Vec<Arc<Log>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.logs.values().filter_map(|opened| opened.log.upgrade()).collect()
    }
}

impl Store {
    /// Open the log of a topic; for writing if the store is open for writing.
    ///
    /// # Errors
    /// `CorruptData`, `NeedsRecovery`, `UnsupportedVersion`, `LockFileReplaced`, `LockTimeout`, `NoSpace`, `SystemCallFailed`.
    #[doc(hidden)]
    pub fn open_log(&self, topic: &TopicSettings) -> Result<Arc<Log>> {
        let log = self.open_log_as_it_is(topic)?;
        if log.is_writable() && log.is_deleted() {
            self.doubt_deletion(topic, &log)?;
        }
        Ok(log)
    }

    /// Open as [`Store::open_log`]; the caller holds the claim.
    pub(super) fn open_log_under(&self, claim: &Claim, topic: &TopicSettings) -> Result<Arc<Log>> {
        let log = self.open_log_as_it_is(topic)?;
        if log.is_deleted() {
            self.doubt_deletion_under(claim, topic, &log)?;
        }
        Ok(log)
    }

    fn open_log_as_it_is(&self, topic: &TopicSettings) -> Result<Arc<Log>> {
        let dir = self.log_dir(topic)?;
        let storage = Arc::clone(self.storage());
        let settings = self.log_settings(topic);
        if self.access() == super::Access::Read {
            let log = Log::open(storage, &dir, settings, None)?;
            log.share_counts(&self.shared.counts);
            return Ok(log);
        }
        let member = self.membership()?;
        member.logs().find_or_open(&member, &dir, self, |place| {
            let log = Log::open(storage, &dir, settings, Some(place))?;
            self.wake_page().into_iter().for_each(|page| log.set_notifier(page.clone()));
            log.share_counts(&self.shared.counts);
            Ok(log)
        })
    }
}

impl Store {
    /// Return what to drop right after a handle of a log that was opened for writing; `None` for a
    /// reader, whose logs are its own.
    ///
    /// # Errors
    /// `HandleClosed` in a forked child.
    #[doc(hidden)]
    pub fn closing(&self, log: &Log) -> Result<Option<Closing>> {
        if self.access() == super::Access::Read {
            return Ok(None);
        }
        Ok(Some(self.membership()?.logs().closing(log.dir())))
    }

    /// Return how the log of a topic is opened.
    pub(super) fn log_settings(&self, topic: &TopicSettings) -> LogSettings {
        LogSettings {
            file_mode: self.modes().file,
            lock_timeout: Some(self.shared.lock_timeout),
            reading: self.shared.reading,
            ..settings_to_read(topic, self.settings().write_mode)
        }
    }
}

/// Return how to open the log of a topic only to look at it, by `pread`.
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
fn start(dir: &Path, name: &str, work: impl FnOnce() + Send + 'static) -> Result<Thread> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map(|thread| thread.thread().clone()).doing("start a thread for", dir)
}

/// The logs of a membership, for a thread that serves them. It keeps neither alive: the thread may
/// hold the membership only through a log's handle, which waits for the thread.
pub(super) struct Served {
    member: Weak<Membership>,
    logs: Weak<OpenLogs>,
    serving: Arc<RwLock<()>>,
}

impl Served {
    pub(super) fn new(member: &Arc<Membership>) -> Self {
        let (logs, serving) = (member.logs(), Arc::clone(&member.logs().serving));
        Self { member: Arc::downgrade(member), logs: Arc::downgrade(logs), serving }
    }

    /// Return true when the membership is gone.
    fn is_over(&self) -> bool {
        self.member.strong_count() == 0
    }

    /// Do work with them; `None` when the membership is gone.
    pub(super) fn with<T>(&self, work: impl FnOnce(Vec<Arc<Log>>) -> T) -> Option<T> {
        let _gate = self.serving.read();
        if self.is_over() {
            return None;
        }
        let logs = self.logs.upgrade()?.living();
        Some(work(logs))
    }

    /// Do the same with the membership too: only while there are logs, which hold it as well. It
    /// must be gone with the last handle of the last log.
    pub(super) fn with_member(
        &self,
        work: impl FnOnce(&Arc<Membership>, &[Arc<Log>]) -> bool,
    ) -> Option<bool> {
        self.with(|logs| {
            if logs.is_empty() {
                return false;
            }
            self.member.upgrade().is_some_and(|member| work(&member, &logs))
        })
    }
}

fn touch_pages(logs: &Served) {
    loop {
        std::thread::park();
        if logs.with(|logs| logs.iter().for_each(|log| log.prefault())).is_none() {
            return;
        }
    }
}

/// Run retention after a roll.
fn retain(logs: &Served, helper: &mut Helper) {
    loop {
        std::thread::park();
        loop {
            let turn = logs.with_member(|member, logs| helper.turn(member, logs));
            match turn {
                None => return,
                Some(false) => break,
                // A thread that closes a log gets in here.
                Some(true) => std::thread::yield_now(),
            }
        }
    }
}

fn keep(logs: &Served, bell: &Notifier, retention: &Thread) {
    let mut keeper = BackgroundSyncer::default();
    loop {
        // Before the logs are checked: later news ends the sleep.
        let ticket = bell.ticket();
        let Some(rest) = logs.with(|logs| keeper.turn(&logs)) else { return };
        if rest.rolled {
            retention.unpark();
        }
        if rest.asleep {
            bell.sleep_as_syncer(ticket);
            // The store's end may have sent the wake that this sleep took.
            if logs.is_over() {
                return;
            }
        }
        // After a wake too: at most one wake for each nap, however many appends.
        std::thread::park_timeout(rest.nap);
    }
}

/// The rest of a keeper before its next turn.
struct IdleTurn {
    /// Sleep until an append.
    asleep: bool,
    /// Afterwards, or instead, wait this long.
    nap: Duration,
    /// This process rolled a log.
    rolled: bool,
}

/// A keeper's memory of its logs.
#[derive(Default)]
struct BackgroundSyncer {
    kept: HashMap<PathBuf, Kept>,
}

struct Kept {
    synced: Instant,
    tail: Option<Address>,
    /// Turns since the mark fell behind.
    unmarked: u32,
}

impl BackgroundSyncer {
    fn turn(&mut self, logs: &[Arc<Log>]) -> IdleTurn {
        let mut rest = IdleTurn { asleep: true, nap: LONGEST_NAP, rolled: false };
        for log in logs {
            // Failures begin the failed-sync state: the next append gets the error.
            let _ = log.sync_sealed();
            rest.rolled |= log.has_retention_due();
            let interval = log.settings().sync_interval;
            let fresh = || Kept { synced: Instant::now(), tail: None, unmarked: 0 };
            let kept = self.kept.entry(log.dir().to_path_buf()).or_insert_with(fresh);
            if kept.synced.elapsed() >= interval {
                kept.synced = Instant::now();
                let _ = log.sync_interval();
            }
            let tail = log.committed();
            kept.unmarked = if log.lacks_mark() { kept.unmarked + 1 } else { 0 };
            if kept.unmarked > 0 && (tail == kept.tail || kept.unmarked >= UNMARKED_TURNS) {
                let _ = log.sync_mark();
                kept.unmarked = 0;
            }
            kept.tail = tail;
            rest.asleep &= log.request_sync_notification();
            let left = interval.saturating_sub(kept.synced.elapsed());
            rest.nap = rest.nap.min(left).max(SHORTEST_NAP);
        }
        rest
    }
}

impl Member for LogMembership {
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

    fn open_to_lock(&self, storage: &dyn Storage, path: &Path) -> io::Result<Arc<dyn File>> {
        registry::open_for_a_moment(|| storage.open(path, OpenMode::ReadWrite))
    }
}
