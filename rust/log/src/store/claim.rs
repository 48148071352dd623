//! The claim: one process at a time creates, deletes, joins.
//!
//! Owns the `claim` lock file and the bounded wait for it. Invariant: the store's directories, the
//! incarnation and the set of taken slots change only under the claim. Living processes hold it for
//! moments (the kernel releases it with a process), and others wait for it with a deadline. The
//! other modules of the store define the work under it (`docs/PROTOCOL.md`, "Opening for writing").

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::layout::Layout;
use super::lockfile::LockFile;
use crate::error::{Error, Result};
use crate::storage::{LockKind, Storage};

/// First pause between two tries; they double.
const FIRST_NAP: Duration = Duration::from_micros(200);
/// Longest pause between two tries.
const LONGEST_NAP: Duration = Duration::from_millis(5);

/// A bounded wait, made of short sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    began: Instant,
    limit: Duration,
    nap: Duration,
}

impl Patience {
    /// Begin to wait, at most for `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        Self { began: Instant::now(), limit, nap: FIRST_NAP }
    }

    /// Return how long it has waited.
    pub(super) fn waited(&self) -> Duration {
        self.began.elapsed()
    }

    /// Sleep a little; return false when the time is over.
    pub(super) fn rest(&mut self) -> bool {
        let left = self.limit.saturating_sub(self.waited());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(self.nap.min(left));
        self.nap = (self.nap * 2).min(LONGEST_NAP);
        true
    }
}

/// The claim, held until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    storage: Arc<dyn Storage>,
    file: LockFile,
}

impl Claim {
    /// Wait for the claim.
    ///
    /// A store that was restored from a backup has no lock files, so a missing one is created. Two
    /// openers then meet at the same file, as creation is exclusive.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] when others held it all the time, [`Error::LockFileReplaced`] when
    /// the path keeps leading elsewhere, [`Error::SystemCallFailed`] when the user may not write
    /// the store.
    pub(super) fn take(
        storage: &Arc<dyn Storage>,
        layout: &Layout,
        mode: u32,
        mut patience: Patience,
    ) -> Result<Self> {
        let mut file = LockFile::find_or_create(storage.as_ref(), &layout.claim(), mode)?;
        loop {
            if file.try_lock(LockKind::Exclusive)? {
                if file.in_place(storage.as_ref())? {
                    break;
                }
                // It was replaced between opening and locking: the present file is as good.
                file = LockFile::find_or_create(storage.as_ref(), &layout.claim(), mode)?;
            }
            if !patience.rest() {
                return Err(timeout(&file, layout.claim(), patience.waited()));
            }
        }
        // This explains the wait to others; a full disk is no reason to stop here.
        let _ = file.write(&format!("process {}", std::process::id()));
        Ok(Self { storage: storage.clone(), file })
    }

    /// Check at the end that this was the claim that all others waited for.
    ///
    /// # Errors
    /// [`Error::LockFileReplaced`].
    pub(super) fn verify(&self) -> Result<()> {
        self.file.expect_in_place(self.storage.as_ref())
    }
}

fn timeout(file: &LockFile, path: PathBuf, waited: Duration) -> Error {
    let process = file.read().ok().and_then(|content| content.number::<u32>("process"));
    let holder = match process {
        Some(process) => format!("process {process}, which opens or changes the store,"),
        None => "another process, which opens or changes the store,".into(),
    };
    Error::LockTimeout { path, waited, holder }
}
