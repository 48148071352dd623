//! The lock files and memberships that this process holds.
//!
//! Each process has one registry, behind one mutex that is held for moments only, never during a
//! wait. It keeps two promises. A lock file is in the registry from before its descriptor exists
//! until after it is gone. So a forked child closes all of them ([`super::fork`] takes the mutex
//! around every `fork`). And one process has one [`Membership`] of a store, however often it opens
//! it. It is found by device and inode of the store's directory, as paths may differ.
//!
//! It is also where a handle keeps its membership ([`MembershipRef`]). A child could inherit a
//! mutex in the handle in its locked state, but not this one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::fork;
use super::membership::Membership;
use crate::canary::{Canary, planted};
use crate::storage::File;

/// The store and the process. The last number is 0 except for the memory twin, which imitates
/// several processes in one.
pub(super) type Key = (u64, u64, u64);

struct Registry {
    lock_files: BTreeMap<u64, Arc<dyn File>>,
    /// Files that are locked for a moment, and closed by the code that opened them.
    passing: Vec<Weak<dyn File>>,
    members: BTreeMap<Key, Weak<Membership>>,
    seats: BTreeMap<u64, Arc<Membership>>,
    last: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    lock_files: BTreeMap::new(),
    passing: Vec::new(),
    members: BTreeMap::new(),
    seats: BTreeMap::new(),
    last: 0,
});

/// No call below leaves the registry half changed, so a panic elsewhere does not poison it.
///
/// A caller that holds this must not drop a membership or a lock file: both come back here.
fn registry() -> MutexGuard<'static, Registry> {
    // If that fails, opening a lock file fails too.
    let _ = fork::install();
    locked()
}

fn locked() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// Open a lock file and register it, with no fork in between.
pub(super) fn open(
    open: impl FnOnce() -> io::Result<Arc<dyn File>>,
) -> io::Result<(u64, Arc<dyn File>)> {
    fork::install()?;
    let mut registry = registry();
    let file = open()?;
    let number = registry.number();
    registry.lock_files.insert(number, file.clone());
    Ok((number, file))
}

/// Open a file that will be locked for a moment, with no fork in between. It is closed by dropping
/// it, after unlocking: a child that is forked in between shares only an open file.
pub(super) fn open_for_a_moment(
    open: impl FnOnce() -> io::Result<Arc<dyn File>>,
) -> io::Result<Arc<dyn File>> {
    fork::install()?;
    let mut registry = registry();
    let file = open()?;
    registry.passing.retain(|other| other.strong_count() > 0);
    registry.passing.push(Arc::downgrade(&file));
    Ok(file)
}

/// Close a lock file, with no fork in between.
pub(super) fn close(number: u64) {
    let mut registry = registry();
    if let Some(file) = registry.lock_files.remove(&number) {
        file.close();
    }
}

/// Return the living membership of a store, if this process has one.
pub(super) fn member(key: Key) -> Option<Arc<Membership>> {
    let found = registry().members.get(&key).and_then(Weak::upgrade);
    // Checked, and perhaps dropped, after the registry is released. The number of a deleted
    // directory may soon be another's: then the lock files are not in place.
    found.filter(|member| member.verify().is_ok())
}

/// Register a membership as this process's, unless another thread was faster: then return that
/// one's.
pub(super) fn adopt(key: Key, fresh: Arc<Membership>) -> Arc<Membership> {
    let mut registry = registry();
    let other = registry.members.get(&key).and_then(Weak::upgrade);
    let faster = other.as_ref().is_some_and(|other| other.verify().is_ok());
    if !faster {
        registry.members.insert(key, Arc::downgrade(&fresh));
    }
    registry.members.retain(|_, member| member.strong_count() > 0);
    drop(registry);
    other.filter(|_| faster).unwrap_or(fresh)
}

/// A handle's place for its membership.
#[derive(Debug)]
pub(super) struct MembershipRef(u64);

impl MembershipRef {
    /// Make a place with a membership.
    pub(super) fn new(member: Arc<Membership>) -> Self {
        let mut registry = registry();
        let number = registry.number();
        registry.seats.insert(number, member);
        Self(number)
    }

    /// Return the membership.
    pub(super) fn get(&self) -> Option<Arc<Membership>> {
        registry().seats.get(&self.0).cloned()
    }

    /// Replace the membership.
    pub(super) fn set(&self, member: Arc<Membership>) {
        let before = registry().seats.insert(self.0, member);
        drop(before);
    }
}

impl Drop for MembershipRef {
    fn drop(&mut self) {
        let member = registry().seats.remove(&self.0);
        drop(member);
    }
}

thread_local! {
    /// The registry, held by the thread that forks, from before the fork until after it.
    static HELD: RefCell<Option<MutexGuard<'static, Registry>>> = const { RefCell::new(None) };
}

/// Take the registry: no lock file is half opened and no entry half made when the fork happens.
pub(super) fn before_fork() {
    // A thread at its very end has no such variables left, and cannot hold the registry. Two
    // handlers may be registered: the second finds it held.
    let _ = HELD.try_with(|held| {
        held.borrow_mut().get_or_insert_with(locked);
    });
}

/// Release it.
pub(super) fn after_fork_in_parent() {
    let guard = HELD.try_with(RefCell::take).ok().flatten();
    drop(guard);
}

/// Close the inherited files, and release the registry. It closes and never unlocks: the lock is
/// the parent's. Nothing is dropped or allocated here.
pub(super) fn after_fork_in_child() {
    let guard = HELD.try_with(RefCell::take).ok().flatten();
    if let Some(registry) = guard.as_ref().filter(|_| !planted(Canary::SlotKeptByChild)) {
        registry.lock_files.values().for_each(|file| file.close());
        for file in registry.passing.iter().filter_map(Weak::upgrade) {
            file.close();
            std::mem::forget(file);
        }
    }
}
