//! Backup: a consistent copy of a store while others write to it.
//!
//! Owns the copy as a whole: a cut ([`super::cut`]) carried out into a directory. The cut is built
//! under a temporary name beside its destination, synced completely, and renamed in one step. After an
//! error nothing has the destination's name, and the next backup of that name removes what a killed
//! one left ([`super::unfinished`]). A copy is the same store, by its id and the generations of its
//! topics, so that checkpoints and cursors stay valid. But no process ever had it open. The first
//! one to open it begins a new incarnation, and makes new lock files, control pages and indexes.
//!
//! ```text
//! cut ─> dest.<random>.tmp/ filled, synced ─> rename ─> dest/  ─> parent synced
//! ```
//!
//! [`crate::log::LogCut`] defines the copy of a log. See `docs/PROTOCOL.md`, "Backup".

use std::path::Path;
use std::sync::Arc;

use super::cut::{Cut, Reach, TRIES, as_they_are, is_gone, plan_log};
use super::cut_ends::agree;
use super::cut_files::{self, CutFile};
use super::layout::{self, Layout, top};
use super::unfinished::{Unfinished, is_empty_directory, make_new};
use super::{Store, files, sweep};
use crate::error::{Error, IoResult, Result};
use crate::log::is_overtaken;
use crate::log::verify::Progress;

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
        let problems = self.problems_beside();
        let cut = Cut::make(self, Reach::Committed)?;
        let half = Unfinished::begin(storage, &destination, replaces, self.modes())?;
        let report = cut.carry_out(self, half.path(), progress);
        let report = report.and_then(|report| half.publish(storage).map(|()| report));
        if report.is_err() {
            half.discard(storage);
        }
        report.map(|report| BackupReport { problems, ..report })
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

impl Cut {
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
        files::sync_dir(storage, &layout.logs())?;
        let topics: Vec<_> = self.topics.iter().map(CutFile::of_topic).collect();
        let parts = topics.iter().chain(&self.consumers).chain(&self.queues);
        cut_files::put_all(parts, store, root)?;
        CutFile::of_store(store)?.put(store, root)?;
        Ok(report)
    }

    /// Copy one log. If it was deleted since the cut was made, its topics are left out. If a
    /// segment is gone because a failed-sync state ended, or compaction replaced it, the cut of the
    /// log is made again.
    fn copy_log(
        &mut self,
        store: &Store,
        layout: &Layout,
        report: &mut BackupReport,
        progress: Progress<'_>,
    ) -> Result<()> {
        let storage = &**store.storage();
        let (dir, generation) =
            (self.logs[self.copied].dir.clone(), self.logs[self.copied].generation);
        let to = layout.logs().join(dir.file_name().unwrap_or_default());
        let before = report.bytes;
        for attempt in 1.. {
            make_new(storage, &to, store.modes().directory)?;
            let total = self.logs.iter().map(|log| log.cut.bytes()).sum();
            let cut = &self.logs[self.copied].cut;
            let copied = cut.carry_out(storage, &to, &mut report.bytes, total, progress);
            let Err(error) = copied else { break };
            if !is_overtaken(&error) {
                return Err(error);
            }
            sweep::remove_log(storage, &to)?;
            report.bytes = before;
            let (its, others): (Vec<_>, Vec<_>) =
                self.topics.iter().cloned().partition(|topic| topic.log_generation == generation);
            let Some(topic) = its.iter().find(|topic| !is_gone(store, topic)) else {
                self.topics = Arc::new(others);
                return Ok(());
            };
            if attempt == TRIES {
                return Err(error);
            }
            self.logs[self.copied].cut = Arc::new(plan_log(store, topic, &dir)?);
            agree(self)?;
            let its = as_they_are(store, its.into_iter());
            self.topics = Arc::new(others.into_iter().chain(its).collect());
        }
        report.logs += 1;
        report.segments += self.logs[self.copied].cut.segments().len() as u64;
        Ok(())
    }
}
