//! One log: segments, a control page, one writer at a time, any number of readers.
//!
//! Owns the protocols of `docs/PROTOCOL.md`; each has a file:
//!
//! | file | protocol |
//! |---|---|
//! | `append`, `fast`, `batch` | lock, catch up, place, commit, unlock |
//! | `commit` | the one order of an append's stores |
//! | `metadata` | topics created and deleted, cursors |
//! | `preconditions` | idempotent and conditional appends |
//! | `guard` | the two locks, by word or by file |
//! | `repair` | repair after a writer that died in the middle |
//! | `roll` | the next segment |
//! | `supersede` | a new segment that cuts off all after a point |
//! | `recover`, `recovered_tail` | recovery after an incarnation change; the part left to the first appending process |
//! | `lost_offsets` | appending behind corruption that hides the next offset, or how cursors moved |
//! | `sync`, `latch` | stable storage, and the failed-sync state |
//! | `chain`, `open_segments` | which segments belong to the log; which of them stay open |
//! | `read`, `data_block`, `record_batch` | cursors over committed blocks; one block, many blocks |
//! | `count` | the number of records between two offsets |
//! | `seek` | from an offset, a time or an address to a place |
//! | `follow`, `notifier` | waiting for news, in one log or in many |
//! | `remote` | what has left the machine: acknowledged, waited for |
//! | `prefault` | space and pages made ready ahead of the writer, by a helper thread |
//! | `trim` | recording trims, and removing segments without live records |
//! | `segment_list` | segments with sizes, ages and first offsets, for retention |
//! | `trimmed` | trims as readers learn of them |
//! | `compact`, `seal` | keeping the last record of each key, in segments that replace others; ending one for that |
//! | `cut`, `cut_plan` | what a log held at one moment, while others write |
//! | `copy` | a copy of that |
//! | `pieces` | segments that come from elsewhere, and the segment with which the log goes on |
//! | `extent` | the size of a log, and the owners of its locks |
//! | `header_repair` | restoring a corrupt segment header from its copy |
//! | `index_rebuild` | rebuilding indexes of sealed segments |
//! | `repair_report` | the results of repairs, as values |
//! | [`verify`] | checking a whole log |
//!
//! The unsafe code of the modules below relies on two invariants. No byte at or below a non-zero
//! commit word is written again. A file with a name is never truncated. Only `repair` writes after
//! a death, only `recover` and `latch` cut.

mod append;
mod batch;
mod bulk_load;
mod chain;
mod clock;
mod commit;
mod compact;
mod control;
mod copy;
mod count;
mod create;
mod cut;
mod cut_plan;
mod data_block;
mod expiring;
mod extent;
mod fast;
mod follow;
mod guard;
mod header_repair;
mod index_rebuild;
mod large;
mod latch;
mod lost_offsets;
mod metadata;
mod notifier;
mod open_segments;
mod pieces;
mod preconditions;
mod prefault;
mod read;
mod record_batch;
mod recover;
mod recovered_tail;
mod remote;
mod repair;
mod repair_report;
mod replica;
mod roll;
mod seal;
mod seek;
mod segment_list;
mod supersede;
mod sync;
mod trim;
mod trimmed;
pub mod verify;

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::format::FIRST_BLOCK;
use crate::format::address::Address;
use crate::format::control::at;
use crate::format::names;
use crate::format::settings::WriteMode;
use crate::group_commit::CommitDelay;
use crate::lock::{Fate, Identity};
use crate::storage::{File, Map, MapAccess, Needed, OpenMode, Storage};

pub use crate::segment::Reading;
pub use append::{Appended, NewBlock};
pub use bulk_load::Token;
pub use compact::{Compacted, Compacting, Last};
pub use count::RecordCounts;
pub use create::{LogSpec, create, is_unused, make_rest, mark_deleted, mark_not_deleted};
pub use cut::{CursorMoved, CutAt, LogCut, SegmentCut, is_overtaken};
pub use data_block::DataBlock;
pub use extent::{LockInfo, LogExtent, SegmentInfo};
pub use follow::{Interrupt, Visibility, Wait};
pub use guard::wait_for_flock;
pub use large::{Blocks, Landed, Large, LargeBlock};
pub use metadata::CursorMove;
pub use metadata::TopicEnds;
pub use notifier::Notifier;
pub use pieces::{SegmentPiece, begin_timeline};
pub use preconditions::{Precondition, Producing, Sequences};
pub use read::BlockCursor;
pub(crate) use record_batch::BatchBuilder;
pub use record_batch::{BatchBlock, RecordBatch, RecordRef, RecordRefs};
pub use recover::{Planned, mend, plan};
pub use repair_report::{RepairKind, RepairStep};
pub use replica::ReplicaLog;
pub use segment_list::SegmentList;
pub use trim::{Removable, Removed};

use append::Writer;
use chain::Chain;
use control::Control;

/// The identity of this process among the writers of the store.
pub trait Member: Send + Sync + fmt::Debug {
    /// Return its slot and generation.
    fn identity(&self) -> Identity;
    /// Return the store's incarnation, never zero.
    fn incarnation(&self) -> u64;
    /// Check that this process is still the same: it is not after a fork.
    ///
    /// # Errors
    /// `HandleClosed` when the membership belongs to another process.
    fn check(&self) -> Result<()>;
    /// Return a faster form of [`Member::check`]; without it no append takes the fast path.
    fn watch(&self) -> Option<Watch>;
    /// Find out whether another process lives, see [`crate::lock::Holders`].
    ///
    /// # Errors
    /// When it cannot be found out.
    fn fate(&self, holder: Identity) -> io::Result<Fate<Box<dyn Any>>>;
    /// Describe another process, for a message.
    fn describe(&self, holder: Identity) -> String;
    /// Open a file that will be locked for a moment. A child that is forked meanwhile must not keep
    /// it open, or the lock would outlive its holder.
    ///
    /// # Errors
    /// Those of [`Storage::open`].
    fn open_to_lock(&self, storage: &dyn Storage, path: &Path) -> io::Result<Arc<dyn File>> {
        storage.open(path, OpenMode::ReadWrite)
    }
}

/// A check by one load whether this process is still the one that made it.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    word: &'static AtomicU64,
    value: u64,
}

impl Watch {
    /// Make a watch: the process is the same while the word has this value.
    pub fn new(word: &'static AtomicU64, value: u64) -> Self {
        Self { word, value }
    }

    #[inline(always)]
    fn is_same(&self) -> bool {
        self.word.load(Ordering::Relaxed) == self.value
    }
}

/// The parts of this process that the fast path needs.
#[derive(Debug)]
struct Fast {
    /// This process's identity in lock words.
    me: Identity,
    watch: Watch,
    /// See [`Log::max_group_len`].
    largest: u64,
}

/// The constant properties of a log.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Generation of the log.
    pub generation: [u8; 16],
    /// Bytes at which a segment is full.
    pub segment_bytes: u64,
    /// How processes write to the store.
    pub write_mode: WriteMode,
    /// Permission bits of new files.
    pub file_mode: u32,
    /// How long to wait for a lock whose holder lives.
    pub lock_timeout: Option<Duration>,
    /// Time between syncs of what was appended in interval mode.
    pub sync_interval: Duration,
    /// How segments are read; a writer's own end of the log is mapped in any case.
    pub reading: Reading,
}

/// An open log.
#[derive(Debug)]
pub struct Log {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    settings: LogSettings,
    member: Option<Arc<dyn Member>>,
    /// Present from the beginning if the log is open for writing.
    control: OnceLock<Control>,
    chain: Chain,
    writer: Mutex<Option<Writer>>,
    /// The log's end as recovery found it, until a writer uses it.
    known: Mutex<Option<recovered_tail::RecoveredTail>>,
    syncer: Mutex<()>,
    syncer_files: Mutex<sync::Files>,
    crowd: CommitDelay,
    /// One thread at a time makes an index: they share a temporary name.
    indexer: Mutex<()>,
    ahead: prefault::Prefaulter,
    /// The trims that this process has read so far.
    trims: Mutex<trimmed::Trims>,
    /// Record counts of compacted segments.
    counts: OnceLock<Arc<RecordCounts>>,
    /// One thread at a time acknowledges what was shipped, where words change by writes.
    acknowledging: Mutex<()>,
    /// When a waiter last compared the control file with its path.
    checked: Mutex<Instant>,
    /// How often waiters of this process were woken.
    roused: AtomicU64,
    /// True when this process rolled, and no sync of the sealed segment followed yet.
    rolled: AtomicBool,
    /// True when such a sync was done, and retention has not run since.
    kept: AtomicBool,
    /// Present if locks are words, and a load detects a fork.
    fast: Option<Fast>,
}

impl Log {
    /// Open a log for reading and, with a member, for writing. A log that was not recovered since
    /// the store's incarnation changed is recovered first.
    ///
    /// # Errors
    /// `SystemCallFailed`, `CorruptData`, `UnsupportedVersion`, `LockFileReplaced`, `LockTimeout`,
    /// from recovery and file operations.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        settings: LogSettings,
        member: Option<Arc<dyn Member>>,
    ) -> Result<Arc<Self>> {
        let (control, mut known) = (OnceLock::new(), None);
        storage.bring(dir, Needed::Whole).doing("fetch", dir)?;
        if let Some(member) = &member {
            let (opened, recovered) = match recover::ensure(&storage, dir, &settings, &**member)? {
                Some(recovered) => recovered,
                None => {
                    let access = write_access(&settings);
                    (Control::open(&*storage, dir, settings.generation, access)?, None)
                }
            };
            control.get_or_init(|| opened);
            known = recovered;
        }
        let chain = Chain::new(Arc::clone(&storage), dir, &settings);
        let dir = dir.to_path_buf();
        let writer = Mutex::new(None);
        let (syncer, syncer_files, crowd, indexer, ahead, trims) = Default::default();
        let (checked, roused) = (Mutex::new(Instant::now()), AtomicU64::new(0));
        let fast = match settings.write_mode {
            WriteMode::Mapped => member.as_ref().and_then(|member| {
                let (me, watch) = (member.identity(), member.watch()?);
                Some(Fast { me, watch, largest: create::max_group_len(settings.segment_bytes) })
            }),
            WriteMode::Pwrite => None,
        };
        let log = Self {
            storage,
            dir,
            settings,
            member,
            control,
            chain,
            writer,
            known: Mutex::new(known),
            syncer,
            syncer_files,
            crowd,
            indexer,
            ahead,
            trims,
            counts: OnceLock::new(),
            acknowledging: Mutex::default(),
            checked,
            roused,
            rolled: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            fast,
        };
        log.check_control()?;
        Ok(Arc::new(log))
    }

    /// Check the control page of a log that is open for writing: it must be the one that the active
    /// segment's mark names.
    fn check_control(&self) -> Result<()> {
        let (Some(control), Some(member)) = (self.control(), &self.member) else { return Ok(()) };
        let active = self.chain.segment(control.tail().sequence())?;
        let replaced = active.mark().is_some_and(|mark| {
            mark.incarnation == member.incarnation() && mark.control != control.id()
        });
        if replaced && !planted(Canary::TwoControlPages) {
            return Err(Error::LockFileReplaced { path: control.path().to_path_buf() });
        }
        Ok(())
    }

    /// Return its constant properties.
    pub fn settings(&self) -> &LogSettings {
        &self.settings
    }

    /// Return its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Return true when it can be appended to.
    pub fn is_writable(&self) -> bool {
        self.member.is_some()
    }

    /// Return true once the log was deleted. Readers ask this; appends fail by themselves.
    pub fn is_deleted(&self) -> bool {
        self.control().is_some_and(Control::is_deleted)
    }

    fn writing(&self) -> Result<(&Control, &dyn Member)> {
        let (Some(control), Some(member)) = (self.control.get(), &self.member) else {
            return Err(Error::NotWritable { path: self.dir.clone() });
        };
        Ok((control, &**member))
    }

    /// Return the control page. A reader may come before there is one, and looks for it again.
    fn control(&self) -> Option<&Control> {
        match self.control.get() {
            Some(control) => Some(control),
            None => self.find_control(),
        }
    }

    #[cold]
    fn find_control(&self) -> Option<&Control> {
        let storage = &*self.storage;
        let found = open_control_to_read(storage, &self.dir, &self.settings).ok()?;
        if found.incarnation() == 0 {
            // Recovery is making it just now: none of it may be believed yet.
            return None;
        }
        let stale_tail = contradicted(&found, &self.chain);
        Some(self.control.get_or_init(|| found.doubting(stale_tail)))
    }

    /// Convert an error of a deleted log: missing files are then no corruption.
    #[cold]
    fn unless_deleted(&self, error: Error) -> Error {
        let is_missing = |path: &Path| {
            let stat = self.storage.stat(path);
            stat.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if self.is_deleted() {
            return self.deleted();
        }
        // A reader may come so late that it never saw the page. A log's directory is removed only
        // with its topic, and its name is never given again; or with the whole store.
        if self.control.get().is_some() || !is_missing(&self.dir) {
            return error;
        }
        if self.dir.parent().is_some_and(is_missing) {
            return Error::FilesRemoved { path: self.dir.clone() };
        }
        self.deleted()
    }

    /// Make the error for a log that was deleted while in use.
    fn deleted(&self) -> Error {
        Error::TopicDeleted { name: self.name() }
    }

    /// Return its name, for messages.
    fn name(&self) -> String {
        let dir = self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        names::parse_log_dir(&dir).map_or(dir.clone(), |(name, _)| name.to_owned())
    }

    /// Return the address up to which everything is committed. In an unrecovered log without a
    /// control page, a reader's cursor finds the end itself.
    pub fn committed(&self) -> Option<Address> {
        self.control().and_then(Control::trusted_tail)
    }

    /// Return the address up to which everything is on disk, as far as this process can know.
    pub fn durable(&self) -> Option<Address> {
        let Some(control) = self.control() else { return self.marked() };
        // In an unrecovered page the word may have any value; a writer's tail may lag behind it.
        let most = if self.member.is_some() { Address(u64::MAX) } else { control.tail() };
        Some(control.durable().min(most))
    }

    /// Return how far the newest mark shows everything on disk, for a log without a control page.
    #[cold]
    fn marked(&self) -> Option<Address> {
        let sequences = self.chain.sequences().ok()?;
        sequences.iter().rev().find_map(|sequence| {
            let mark = self.chain.segment(*sequence).ok()?.mark()?;
            (mark.position > 0).then(|| Address::new(*sequence, mark.position))
        })
    }

    /// Sync what any process appended in interval mode and what is not on disk yet.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn sync_interval(&self) -> Result<()> {
        let (control, _) = self.writing()?;
        // A failed append may have wanted more than there is.
        let wanted = control.wanted().min(control.tail());
        if wanted <= control.durable() { Ok(()) } else { self.sync_to(wanted) }
    }

    /// Return true when [`Log::sync_interval`], [`Log::sync_sealed`] or [`Log::sync_mark`] has
    /// something to do.
    pub fn needs_background_sync(&self) -> bool {
        let Some(control) = self.control() else { return false };
        let (tail, durable) = (control.tail(), control.durable());
        let unsynced = control.wanted().min(tail) > durable;
        unsynced || Address::new(tail.sequence(), FIRST_BLOCK) > durable || self.lacks_mark()
    }

    /// Set the store's wake page for waiters that have set a flag. The first one set stays.
    pub fn set_notifier(&self, page: Map) {
        if let Some(control) = self.control.get() {
            control.set_notifier(page);
        }
    }

    /// Sync sealed segments that are not on disk yet, in every mode. Recovery then checks at most
    /// the last two, and one sync never has many segments to write.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn sync_sealed(&self) -> Result<()> {
        let (control, _) = self.writing()?;
        // Read before the tail: a later roll is left to the next call.
        let rolled = self.rolled.swap(false, Ordering::AcqRel);
        let active = Address::new(control.tail().sequence(), FIRST_BLOCK);
        let kept = if active <= control.durable() { Ok(()) } else { self.sync_to(active) };
        // Limits count from the durable end, so retention would look too early if it ran before.
        if rolled {
            self.kept.store(true, Ordering::Release);
        }
        kept
    }

    /// Return true when [`Log::take_retention_due`] would.
    pub fn has_retention_due(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Return true once after this process rolled and [`Log::sync_sealed`] made that durable:
    /// records may then be beyond their limits.
    pub fn take_retention_due(&self) -> bool {
        self.has_retention_due() && self.kept.swap(false, Ordering::AcqRel)
    }

    /// Return a number that changes with every wake, and whenever waiters of this process are
    /// woken.
    pub fn wakes(&self) -> u64 {
        use crate::sync::SharedWord as _;
        let wakes = self.control().map_or(0, |c| c.word(at::WAKE).load(Ordering::Relaxed));
        wakes.wrapping_add(self.roused.load(Ordering::Acquire))
    }
}

impl Drop for Log {
    /// Closing syncs. Callers that need the result call [`Log::sync_clean`] before.
    fn drop(&mut self) {
        let ours = self.member.as_ref().is_some_and(|member| member.check().is_ok());
        if !ours {
            return;
        }
        // If the mark lags behind the durable end, corruption between them would count as a torn
        // tail.
        if self.durable() != self.committed() || self.lacks_mark() {
            let _ = self.sync_clean();
        }
        if let Some(prepared) = enter(&self.writer).take().and_then(|writer| writer.prepared) {
            prepared.discard(&*self.storage);
        }
    }
}

fn open_control_to_read(
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
) -> Result<Control> {
    match settings.reading {
        Reading::Map => Control::open(storage, dir, settings.generation, MapAccess::Read),
        Reading::Pread => Control::open_unmapped(storage, dir, settings.generation),
    }
}

/// Return the tail in a control page, when the log reaches further. Then a later segment is part of
/// it, or a mark shows that more is on disk. A reader may be the first to see the page after a
/// crash, or after a bit of it flipped. It must not believe the page until a process has recovered
/// the log.
fn contradicted(control: &Control, chain: &Chain) -> Option<Address> {
    let tail = control.tail();
    let newest = chain.refresh().ok()?.last().copied()?;
    let marked = chain.segment(newest).ok().and_then(|segment| segment.mark());
    let reached = Address::new(newest, marked.map_or(0, |mark| mark.position));
    (reached > tail).then_some(tail)
}

fn write_access(settings: &LogSettings) -> MapAccess {
    match settings.write_mode {
        WriteMode::Mapped => MapAccess::Write,
        WriteMode::Pwrite => MapAccess::WriteThrough,
    }
}

/// Lock a mutex of this process. A panic elsewhere does not poison the log: its half-done work is
/// repaired like a dead writer's (the lock word still names this process).
fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
