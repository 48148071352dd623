//! Backup: a consistent copy of a store while others write to it.
//!
//! Owns the copy as a whole: each log up to the end that was committed when the backup began. It
//! also has the settings, the consumer groups and the state of the queues. It is built under a
//! temporary name beside its destination, synced completely, and renamed in one step. After an
//! error nothing has the destination's name, and the next backup of that name removes what a killed
//! one left ([`super::unfinished`]). A copy is the same store, by its id and the generations of its
//! topics, so that checkpoints and cursors stay valid. But no process ever had it open. The first
//! one to open it begins a new incarnation, and makes new lock files, control pages and indexes.
//!
//! [`super::backup_ends`] defines which ends are consistent.
//!
//! ```text
//! ends of all logs ─> dest.<random>.tmp/ filled, synced ─> rename ─> dest/  ─> parent synced
//! ```
//!
//! [`crate::log::LogCopy`] defines the copy of a log. See `docs/PROTOCOL.md`, "Backup".

use std::path::{Path, PathBuf};

use super::backup_ends::{Floors, agree, floors};
use super::layout::{self, Layout, TOPIC_SETTINGS, top};
use super::queue_copy::{self, QueueCopy};
use super::sidecar_check::read_consumer;
use super::unfinished::{Unfinished, is_empty_directory, make_new};
use super::{Access, Store, files, sweep, topics};
use crate::error::{Error, IoResult, Result};
use crate::format::settings::TopicSettings;
use crate::log::verify::Progress;
use crate::log::{LogCopy, is_overtaken};

/// How often a log is planned again after a segment was removed while it was copied.
const TRIES: u32 = 5;

/// The copied parts.
#[derive(Debug, Default)]
pub struct BackupReport {
    /// Topics.
    pub topics: u64,
    /// Logs.
    pub logs: u64,
    /// Their segments.
    pub segments: u64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Errors in files of consumer groups and queues, of this store and so of the copy: they were
    /// copied as they are.
    pub problems: Vec<Error>,
}

impl Store {
    /// Copy the store to a missing or empty directory, while others write to it.
    ///
    /// The copy has what was committed when this was called, durable or not, and is on disk when it
    /// returns. Blocks that no mark shows to be on disk are checked on the way; for all others run
    /// [`Store::verify`] on the copy. `progress` gets the copied and the total bytes; its error
    /// ends the backup. Costs one pass over the store's bytes.
    ///
    /// ```
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, copy) = (dir.path().join("events"), dir.path().join("copy"));
    /// let store = Store::open(&path)?;
    /// store.backup(&copy, &mut |_done, _total| Ok(()))?;
    /// Store::open(&copy)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a destination that is not empty, or inside the store. `NeedsRecovery`
    /// for a store opened for reading that was not recovered since a crash. `CorruptData`,
    /// `NoSpace`, `SystemCallFailed`, and the errors of `progress`. Then nothing has the
    /// destination's name, and the partial copy is removed. The next backup to the same place
    /// removes the `<name>.<random>.tmp` of a killed process.
    pub fn backup(
        &self,
        destination: impl AsRef<Path>,
        progress: Progress<'_>,
    ) -> Result<BackupReport> {
        let destination = layout::directory(destination.as_ref())?;
        let storage = &**self.storage();
        self.refuse_nested(&destination)?;
        let replaces = is_empty_directory(storage, &destination, "a backup")?;
        let plan = BackupPlan::of(self)?;
        let half = Unfinished::begin(storage, &destination, replaces, self.modes())?;
        let report = plan.carry_out(self, half.path(), progress);
        let report = report.and_then(|report| half.publish(storage).map(|()| report));
        if report.is_err() {
            half.discard(storage);
        }
        report
    }

    /// Refuse a copy inside the store, which would never end, and a store inside the copy.
    fn refuse_nested(&self, destination: &Path) -> Result<()> {
        let store =
            self.storage().stat(&self.layout().root_itself()).doing("look at", self.path())?;
        if !self.climb(destination).any(|id| id == store.id()) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{} lies inside the store {}; choose a place outside of it",
            destination.display(),
            self.path().display()
        )))
    }

    /// Return device and inode of a path, if it exists, and of the directories above it. These are
    /// the kernel's parents, which differ from those in the path if it leads through a link.
    fn climb<'a>(&'a self, destination: &Path) -> impl Iterator<Item = (u64, u64)> + 'a {
        let id = |path: &Path| self.storage().stat(path).ok().map(|stat| stat.id());
        let itself = id(&destination.join("."));
        let mut at = destination.parent().unwrap_or(destination).join(".");
        let mut before = None;
        let above = std::iter::from_fn(move || {
            let here = id(&at);
            if here.is_none() || here == before {
                return None;
            }
            before = here;
            // A storage that does not know `..`, such as the memory twin, has no links either.
            let up = at.join("..");
            at = match (id(&up), at.parent()) {
                (None, Some(parent)) => parent.to_path_buf(),
                _ => up,
            };
            here
        });
        itself.into_iter().chain(above)
    }
}

/// The parts to copy, as they were at one moment.
pub(super) struct BackupPlan {
    pub(super) topics: Vec<TopicSettings>,
    pub(super) logs: Vec<(PathBuf, LogCopy)>,
    consumers: Vec<(String, Vec<u8>)>,
    queues: Vec<QueueCopy>,
    problems: Vec<Error>,
    /// See [`super::backup_ends`].
    pub(super) floors: Floors,
    /// How many of the logs were copied: their ends stay.
    pub(super) copied: usize,
    total: u64,
}

impl BackupPlan {
    fn of(store: &Store) -> Result<Self> {
        for _ in 1..TRIES {
            match Self::try_of(store) {
                Err(error) if is_overtaken(&error) => {}
                done => return done,
            }
        }
        Self::try_of(store)
    }

    fn try_of(store: &Store) -> Result<Self> {
        // Before the logs: then no cursor of the copy lies beyond the end of its log.
        let (consumers, queues) = (read_consumers(store)?, QueueCopy::of_all(store)?);
        let problems = store.problems_beside();
        let mut topics: Vec<TopicSettings> = Vec::new();
        for (_, topic) in store.topics()? {
            topics.push(topic?);
        }
        let mut logs: Vec<(PathBuf, LogCopy)> = Vec::new();
        let mut gone = Vec::new();
        // Before any log's end is fixed, and open until all are.
        let (floors, _held) = floors(store, &topics, &consumers)?;
        for topic in &topics {
            let dir = store.log_dir(topic)?;
            if logs.iter().any(|(other, _)| *other == dir) {
                continue;
            }
            match plan_log(store, topic, &dir) {
                Ok(copy) => logs.push((dir, copy)),
                // It was deleted since the topics were listed.
                Err(_) if is_gone(store, topic) => gone.push(topic.generation),
                Err(error) => return Err(error),
            }
        }
        // Also from a shared log: a topic with settings now had not been deleted in the copied part
        // of its log.
        topics.retain(|topic| !gone.contains(&topic.generation));
        let topics = as_they_are(store, topics);
        let (copied, total) = (0, 0);
        let mut plan = Self { topics, logs, consumers, queues, problems, floors, copied, total };
        agree(&mut plan, store)?;
        plan.total = plan.logs.iter().map(|(_, copy)| copy.bytes()).sum();
        Ok(plan)
    }

    fn carry_out(
        mut self,
        store: &Store,
        root: &Path,
        progress: Progress<'_>,
    ) -> Result<BackupReport> {
        let (storage, modes) = (&**store.storage(), store.modes());
        let layout = Layout::new(root);
        for name in top::DIRECTORIES {
            make_new(storage, &root.join(name), modes.directory)?;
        }
        let mut report = BackupReport::default();
        while self.copied < self.logs.len() {
            self.copy_log(store, &layout, &mut report, progress)?;
            self.copied += 1;
        }
        report.topics = self.topics.len() as u64;
        report.problems = self.problems;
        files::sync_dir(storage, &layout.logs())?;
        for topic in &self.topics {
            make_new(storage, &layout.topic(&topic.name)?, modes.directory)?;
            let path = layout.topic_settings(&topic.name)?;
            debug_assert_eq!(path.file_name().and_then(|name| name.to_str()), Some(TOPIC_SETTINGS));
            files::put_new(storage, &path, topic.encode().as_bytes(), modes.file)?;
        }
        files::sync_dir(storage, &layout.topics())?;
        for (name, bytes) in &self.consumers {
            files::put_new(storage, &layout.consumer(name)?, bytes, modes.file)?;
        }
        files::sync_dir(storage, &layout.consumers())?;
        queue_copy::put_all(&self.queues, store, &layout)?;
        let settings = store.stored_settings()?.encode();
        files::put_new(storage, &layout.settings(), settings.as_bytes(), modes.file)?;
        Ok(report)
    }

    /// Copy one log. If it was deleted since the plan was made, its topics are left out. If a
    /// segment is gone because a failed-sync state ended, the log is planned again.
    fn copy_log(
        &mut self,
        store: &Store,
        layout: &Layout,
        report: &mut BackupReport,
        progress: Progress<'_>,
    ) -> Result<()> {
        let storage = &**store.storage();
        let dir = self.logs[self.copied].0.clone();
        let to = layout.logs().join(dir.file_name().unwrap_or_default());
        let before = report.bytes;
        for attempt in 1.. {
            make_new(storage, &to, store.modes().directory)?;
            let copy = &self.logs[self.copied].1;
            let copied = copy.carry_out(storage, &to, &mut report.bytes, self.total, progress);
            let Err(error) = copied else { break };
            let is_its = |topic: &TopicSettings| store.log_dir(topic).is_ok_and(|its| its == dir);
            let lives = |topic: &TopicSettings| is_its(topic) && !is_gone(store, topic);
            let missing = match &error {
                Error::CorruptData { path, .. } => files::stat(storage, path)?.is_none(),
                _ => false,
            };
            if !missing {
                return Err(error);
            }
            sweep::remove_log(storage, &to)?;
            report.bytes = before;
            let Some(topic) = self.topics.iter().find(|topic| lives(topic)) else {
                self.topics.retain(|topic| store.log_dir(topic).map_or(true, |its| its != dir));
                return Ok(());
            };
            if attempt == TRIES {
                return Err(error);
            }
            let topic = topic.clone();
            self.logs[self.copied].1 = plan_log(store, &topic, &dir)?;
            agree(self, store)?;
            let (its, others) = self.topics.drain(..).partition(is_its);
            self.topics = others;
            self.topics.extend(as_they_are(store, its));
        }
        report.logs += 1;
        report.segments += self.logs[self.copied].1.segments();
        Ok(())
    }
}

fn plan_log(store: &Store, topic: &TopicSettings, dir: &Path) -> Result<LogCopy> {
    let recovered = store.access() == Access::Write;
    // Held until the plan is made: opening for writing recovers.
    let _log = recovered.then(|| store.open_log(topic)).transpose()?;
    LogCopy::plan(store.storage(), dir, &store.log_settings(topic), recovered)
}

fn is_gone(store: &Store, topic: &TopicSettings) -> bool {
    topics::is_gone(&**store.storage(), store.layout(), &topic.name, &topic.generation)
}

/// Return the settings of topics as they are once the ends of their logs are known, without those that were deleted.
/// A codec is named before the first append, so that records in the copy have a named codec there too.
fn as_they_are(store: &Store, topics: Vec<TopicSettings>) -> Vec<TopicSettings> {
    let now = |topic: TopicSettings| match topics::read_settings(
        &**store.storage(),
        store.layout(),
        &topic.name,
    ) {
        Ok(now) => now.filter(|now| now.generation == topic.generation),
        Err(_) => Some(topic),
    };
    topics.into_iter().filter_map(now).collect()
}

/// Read the cursors. They are small files with checksums of their own. So a copy that is made
/// during a write is as good as the previous version.
fn read_consumers(store: &Store) -> Result<Vec<(String, Vec<u8>)>> {
    let storage = &**store.storage();
    let mut read = Vec::new();
    for name in files::list(storage, &store.layout().consumers())? {
        let Ok(from) = store.layout().consumer(&name) else { continue };
        if let Some(bytes) = read_consumer(storage, &from)? {
            read.push((name, bytes));
        }
    }
    Ok(read)
}
