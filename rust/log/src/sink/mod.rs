//! Sinks: many processes stage a bulk load for a topic, and one commit makes it visible.
//!
//! Owns the way of a bulk load from records to one atomic append. Each process *stages* parts: it
//! encodes and checksums records there, as bodies of blocks, in a file of its own beside the log. A
//! *manifest* names a finished part: a few hundred bytes that travel to the committing process. The
//! commit checks all given parts, then appends them in one group. An *idempotency key* makes it
//! happen once, however often it is called. Until then no process sees anything; an earlier failure
//! leaves only files that are swept.
//!
//! Invariants: committed bytes were checked against the manifests, bodies included, before the
//! log's lock. A commit that returned is on disk, in every sync mode of the topic. A key and the
//! records of its load are there together or not at all. `log/bulk_load.rs` places the blocks,
//! `store/staging.rs` removes abandoned files. See `docs/PROTOCOL.md`, "Bulk loads".
//!
//! ```
//! use falaj::Store;
//! # let dir = tempfile::tempdir().unwrap();
//! let store = Store::open(dir.path().join("events"))?;
//! let flights = store.topic("flights")?;
//!
//! // In any number of processes, each with parts of its own:
//! let load = flights.bulk_load("import-2026-11-22")?;
//! let mut part = load.stage("0", None)?;
//! part.append(b"EWR to IAH")?;
//! let manifest = part.finish()?;
//!
//! // In one of them, with the manifests of all:
//! let token = Some(("import", 20_261_122));
//! assert_eq!(flights.end_offset()?, 0);
//! let done = load.commit(&[&manifest], token)?;
//! assert!(done.now && done.offsets[&0] == (0..1));
//! assert!(!load.commit(&[&manifest], token)?.now, "that was committed before");
//! assert_eq!(flights.end_offset()?, 1);
//! # Ok::<(), falaj::Error>(())
//! ```

mod commit;
mod part;
mod read;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::part::{Owner, complaint, load_dir};
use crate::format::state::IdempotencyState;
use crate::log::Token;
use crate::store::{Stale, remove_load, staging_dir, sweep_staging};
use crate::topic::Topic;

pub use crate::store::STALE_AFTER;
pub use commit::{BulkLoadReport, Placed, Ready};
pub use part::StagedPart;

/// A bulk load into a topic: parts that any number of processes stage, and one commit. Nothing is
/// written to disk before a part has records.
#[derive(Clone, Debug)]
pub struct BulkLoad {
    topic: Topic,
    name: Arc<str>,
}

impl BulkLoad {
    /// Name the load.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not 1 to 200 of `[A-Za-z0-9._-]`; `NotWritable` for a topic that was
    /// opened for reading.
    #[doc(hidden)]
    pub fn new(topic: &Topic, name: &str) -> Result<Self> {
        expect_name("bulk load", name)?;
        expect_writable(topic)?;
        Ok(Self { topic: topic.clone(), name: name.into() })
    }

    /// Get its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Get the topic that it writes into.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Begin a part. Any number of processes may write parts at once, and a repeated task may write
    /// a part again: only committed parts count. The `token` is the load's idempotency key. With
    /// it, parts of a dead process are deleted as soon as a load with that key is committed.
    ///
    /// # Errors
    /// `InvalidArgument` for a part's name that is not 1 to 200 of `[A-Za-z0-9._-]`;
    /// `SystemCallFailed`.
    pub fn stage(&self, part: &str, token: Option<(&str, u64)>) -> Result<StagedPart> {
        StagedPart::begin(self.clone(), part, token)
    }

    /// Commit the load: append the records of these parts at once, in this order. They are on disk
    /// when this returns, and the staged files are deleted.
    ///
    /// An idempotency key is the name of a series of loads, and the number of this one. If that
    /// number or a higher one was committed before, nothing is appended, and the result says so. So
    /// a load with a key can be committed until one call returns. Without a key a second commit
    /// fails, since the parts are gone.
    ///
    /// # Errors
    /// `InvalidManifest` for one that is corrupt, of another load or topic, or given twice;
    /// `NotStaged` when a part is gone; `CorruptData` when it is corrupt. `AppendTooLarge` for more
    /// than one append may hold; `InvalidArgument` when the log cannot remember another key;
    /// otherwise as [`Topic::append`]. Then nothing was appended, and nothing removed.
    /// `DurabilityUnknown`: it is visible, and perhaps not on disk; with a key commit it again.
    /// `LockTimeout` may be either, and the same helps.
    pub fn commit(
        &self,
        manifests: &[impl AsRef<[u8]>],
        token: Option<(&str, u64)>,
    ) -> Result<BulkLoadReport> {
        let ready = self.ready(manifests, token)?;
        let placed = ready.commit_visible()?;
        ready.finish(&placed)
    }

    /// Delete all that the load staged. Committed records stay.
    ///
    /// # Errors
    /// `SystemCallFailed`; a later sweep removes the rest.
    pub fn abort(&self) -> Result<()> {
        let storage = self.topic.store().storage();
        remove_load(&**storage, &self.dir()).map(drop)
    }

    /// Return the directory of its staged parts.
    fn dir(&self) -> PathBuf {
        staging_dir(self.topic.log().dir()).join(load_dir(&self.name, self.topic.settings().number))
    }

    fn owner(&self, id: u64) -> Owner {
        let settings = self.topic.settings();
        Owner { log: settings.log_generation, topic: settings.generation, id }
    }

    fn token(&self, token: Option<(&str, u64)>) -> Result<Option<Token>> {
        let number = self.topic.settings().number;
        token.map(|(name, version)| Token::new(number, name, version)).transpose()
    }
}

/// Return the last load of a series that was committed to a topic: its version, and when. Visible
/// as soon as it is committed, perhaps before it is on disk.
///
/// # Errors
/// As [`Log::cursor_of`](crate::log::Log::cursor_of).
pub fn last_idempotency_key(topic: &Topic, name: &str) -> Result<Option<IdempotencyState>> {
    let found = topic.log().token_of(topic.settings().number, name);
    found.map_err(|error| topic.topic_error(error))
}

/// Forget an idempotency key, on disk when this returns: a log remembers 1,024 of them. A bulk load
/// of the series could be committed twice then. True if it was known.
///
/// # Errors
/// As [`Topic::append`].
pub fn forget_idempotency_key(topic: &Topic, name: &str) -> Result<bool> {
    expect_writable(topic)?;
    let forgotten = topic.log().forget_idempotency_key(topic.settings().number, name);
    match forgotten.map_err(|error| topic.topic_error(error))? {
        Some(appended) => topic.log().sync_to(appended.end).map(|()| true),
        None => Ok(false),
    }
}

fn expect_writable(topic: &Topic) -> Result<()> {
    let log = topic.log();
    if log.is_writable() { Ok(()) } else { Err(Error::NotWritable { path: log.dir().into() }) }
}

/// Remove abandoned parts of bulk loads in the topic's log: those that no process writes, unchanged
/// for this long; return how many. Commits and [`Store::maintain`](crate::store::Store::maintain)
/// use [`STALE_AFTER`].
///
/// # Errors
/// `SystemCallFailed`; `NotWritable` for a topic that was opened for reading.
pub fn sweep(topic: &Topic, older_than: Duration) -> Result<u64> {
    expect_writable(topic)?;
    let stale = Stale { older_than, ..Stale::default() };
    sweep_staging(&**topic.store().storage(), topic.log().dir(), &stale)
}

impl Topic {
    /// Name a bulk load: records that any number of processes stage, and one commit makes visible.
    /// A load of the same name is the same load, in every process.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not 1 to 200 of `[A-Za-z0-9._-]`; `NotWritable` for a topic that was opened for
    /// reading.
    pub fn bulk_load(&self, name: &str) -> Result<BulkLoad> {
        BulkLoad::new(self, name)
    }

    /// Get the number of the last bulk load that was committed under this idempotency key; `None`
    /// without one.
    ///
    /// # Errors
    /// `TopicDeleted`, `CorruptData`, `SystemCallFailed`.
    pub fn last_idempotency_key(&self, name: &str) -> Result<Option<u64>> {
        Ok(last_idempotency_key(self, name)?.map(|state| state.version))
    }

    /// Forget an idempotency key; false if it is not known. A log remembers 1,024 of them. A bulk
    /// load with this key could be committed twice afterwards.
    ///
    /// # Errors
    /// As [`Topic::append`].
    pub fn forget_idempotency_key(&self, name: &str) -> Result<bool> {
        forget_idempotency_key(self, name)
    }

    /// Delete parts of bulk loads that no process is writing, unchanged for this long; return how
    /// many.
    ///
    /// # Errors
    /// `SystemCallFailed`; `NotWritable` for a topic that was opened for reading.
    pub fn sweep_bulk_loads(&self, older_than: Duration) -> Result<u64> {
        sweep(self, older_than)
    }
}

fn expect_name(of: &str, name: &str) -> Result<()> {
    match complaint(name) {
        Some(why) => Err(Error::invalid(format!("{name:?} cannot name a {of}: {why}"))),
        None => Ok(()),
    }
}
