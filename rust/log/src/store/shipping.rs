//! Shipping: one process sends what the store holds to a place beyond the machine.
//!
//! Owns the rule that one process may. The word of the wake page that names it
//! ([`crate::shipper`]) is changed under the claim, so two living processes are never named. An
//! acknowledgement raises words of the logs ([`crate::log`]). A process that dies leaves its name;
//! its slot says that it is dead. Python owns what is sent, where, and in which order. See
//! `docs/PROTOCOL.md`, "Shipping".

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Membership, Store, files};
use crate::error::{Error, IoResult, Result};
use crate::format::address::Address;
use crate::format::names;
use crate::format::wake::at;
use crate::lock::{Fate, Holders};
use crate::log::{Log, Notifier};
use crate::shipper::{self, Shipper, decode, encode};
use crate::storage::Map;

/// Says to all processes that this one ships the store, until it is stopped or dropped.
#[derive(Debug)]
pub struct Shipping {
    store: Store,
    member: Arc<Membership>,
    page: Map,
    is_over: AtomicBool,
}

impl Store {
    /// Begin to ship the store: appends in [`SyncMode::Remote`](crate::SyncMode::Remote) wait for
    /// this process from now on. A note that an earlier shipper was fenced is cleared.
    ///
    /// # Errors
    /// `LockTimeout` with the process that ships it already; `NotWritable`; those of the claim.
    #[doc(hidden)]
    pub fn ship(&self) -> Result<Shipping> {
        let member = self.membership()?;
        let path = self.layout().wake();
        let missing = || Error::LockFileReplaced { path: path.clone() };
        let page = self.wake_page().ok_or_else(missing)?.clone();
        self.under_claim(|| {
            let seen = page.load(at::SHIPPER);
            let mut evidence = None;
            if let Shipper::Process(other) = decode(seen) {
                let busy = || Error::LockTimeout {
                    path: path.clone(),
                    waited: Duration::ZERO,
                    holder: format!("{}, which ships the store,", member.describe(other)),
                };
                match member.fate(other).doing("look at", &self.layout().slots())? {
                    Fate::Alive => return Err(busy()),
                    // Held until the word has changed: no other process gets that slot meanwhile.
                    Fate::Dead(dead) => evidence = Some(dead),
                }
            }
            if page.shares_memory() {
                if !shipper::begin(&page.word(at::SHIPPER), member.identity(), seen) {
                    return Err(missing());
                }
            } else {
                let mine = encode(Shipper::Process(member.identity()));
                page.store(at::SHIPPER, mine).doing("write", &path)?;
            }
            drop(evidence);
            Ok(())
        })?;
        let is_over = AtomicBool::new(false);
        Ok(Shipping { store: self.clone(), member, page, is_over })
    }

    /// Return the process that ships the store, as the wake page names it.
    #[doc(hidden)]
    pub fn shipper(&self) -> Shipper {
        self.wake_page().map_or(Shipper::Absent, |page| decode(page.load(at::SHIPPER)))
    }

    /// Note that one place has logs up to these addresses. Otherwise as [`Store::acknowledge_by`].
    ///
    /// # Errors
    /// As [`Store::acknowledge_by`].
    #[doc(hidden)]
    pub fn acknowledge(&self, ends: &[(&str, Address)]) -> Result<()> {
        self.acknowledge_by(1, ends, ends)
    }

    /// Note that so many places have logs up to the addresses in `remote`, and wake those that wait
    /// for it. All places that the store is shipped to have them up to those in `shipped`. Each log
    /// is given by the name of its directory. A log that is gone is left out.
    ///
    /// # Errors
    /// `InvalidArgument` unless this process ships the store ([`Store::ship`]). So it is where the
    /// settings ask for more places now. `NotWritable`, `HandleClosed`, `CorruptData`,
    /// `SystemCallFailed`, and those of opening a log.
    #[doc(hidden)]
    pub fn acknowledge_by(
        &self,
        places: u64,
        remote: &[(&str, Address)],
        shipped: &[(&str, Address)],
    ) -> Result<()> {
        let member = self.membership()?;
        if self.shipper() != Shipper::Process(member.identity()) {
            return Err(Error::invalid(
                "this process does not ship the store, so it can acknowledge nothing: begin with \
                 _shipping()",
            ));
        }
        // Read after the cut, so an append that began after a change of the setting obeys it.
        let wanted = self.min_sync()?;
        if places < wanted {
            return Err(Error::invalid(format!(
                "ship_min_sync of the store is {wanted}, and {places} of its places acknowledged: \
                 ship it to more places, or lower that setting"
            )));
        }
        // Closing a log syncs it. It stays open, so nothing counts that became durable in between.
        let mut open = Vec::with_capacity(shipped.len());
        for (dir, end) in shipped {
            if let Some(log) = self.log_in(&member, dir)? {
                log.note_shipped(*end)?;
                open.push(log);
            }
        }
        for (dir, end) in remote {
            if let Some(log) = self.log_in(&member, dir)? {
                log.acknowledge(*end)?;
            }
        }
        Ok(())
    }

    /// Return how many places must have a record before an append in
    /// [`SyncMode::Remote`](crate::SyncMode::Remote) returns, as the settings say now.
    ///
    /// # Errors
    /// Those of reading the settings.
    #[doc(hidden)]
    pub fn min_sync(&self) -> Result<u64> {
        Ok(self.stored_settings()?.ship_min_sync.unwrap_or(1))
    }

    /// Return whether the store was ever shipped. Retention then keeps what was not shipped yet.
    pub(super) fn is_shipped(&self) -> Result<bool> {
        Ok(files::stat(self.shared.storage(), &self.layout().ship())?.is_some())
    }

    /// Return the log with this directory below `logs/`; `None` for one without a topic.
    fn log_in(&self, member: &Membership, dir: &str) -> Result<Option<Arc<Log>>> {
        let Some((_, generation)) = names::parse_log_dir(dir) else {
            return Err(Error::invalid(format!("{dir:?} is not the directory of a log")));
        };
        if let Some(open) = member.logs().in_dir(&self.layout().logs().join(Path::new(dir))) {
            return Ok(Some(open));
        }
        let topics = self.topics()?.into_iter().filter_map(|(_, topic)| topic.ok());
        for topic in topics.filter(|topic| topic.log_generation == generation) {
            match self.open_log(&topic) {
                // It was deleted since the topics were listed.
                Err(_) if self.is_gone(&topic) => {}
                log => return log.map(Some),
            }
        }
        Ok(None)
    }
}

impl Shipping {
    /// Stop: waiters get `NoShipper` at once, or `Fenced` when another store's process claimed the
    /// place. A second call changes nothing.
    pub fn stop(&self, fenced: bool) {
        // A forked child does not ship, and its parent goes on.
        if self.member.check().is_err() || self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = self.member.identity();
        if self.page.shares_memory() {
            shipper::end(&self.page.word(at::SHIPPER), me, fenced);
        } else if self.store.shipper() == Shipper::Process(me) {
            let next = if fenced { Shipper::Fenced } else { Shipper::Absent };
            // If it fails, this process counts as the shipper while it lives, and no longer.
            let _ = self.page.store(at::SHIPPER, encode(next));
        }
        self.member.notify_remote();
    }

    /// Return true if a process may be asleep until what it appended has left the machine. It looks at
    /// the logs that this process has open, which a cut leaves open. A waiter that gave up counts until
    /// the next acknowledgement. Readers do not count: they see what comes, and hurry no shipper.
    pub fn is_awaited(&self) -> bool {
        self.member.logs().living().iter().any(|log| log.is_remote_awaited())
    }

    /// Sleep until a process waits, at most for this long; true if one may. It may wait for a log that
    /// this process does not have open, so a cut should follow.
    pub fn wait(&self, longest: Duration) -> bool {
        let bell = Notifier::new(Some(self.page.clone()));
        let end = Instant::now() + longest;
        loop {
            // The ticket comes first: a process that sets its flag after the look ends the sleep.
            let ticket = bell.ticket();
            if self.is_awaited() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_over() {
                return false;
            }
            if bell.sleep_as_shipper(ticket, left) {
                return true;
            }
        }
    }

    /// Return true once it was stopped.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Shipping {
    fn drop(&mut self) {
        self.stop(false);
    }
}
