//! A process as a log sees it: its identity, and which other processes are dead.
//!
//! Stands in for a store's membership. All actors of one incarnation share the list of the dead.
//! The list plays the kernel's part: only the kernel knows which processes are dead.

use std::any::Any;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use falaj::internals::error::{Error, Result};
use falaj::internals::lock::{Fate, Identity};
use falaj::internals::log::{Member, Watch};

/// A process of one incarnation.
#[derive(Clone, Debug)]
pub struct Actor {
    identity: Identity,
    incarnation: u64,
    dead: Arc<Mutex<HashSet<u32>>>,
}

impl Actor {
    /// The first process of an incarnation.
    pub fn new(incarnation: u64) -> Self {
        Self { identity: identity(0), incarnation, dead: Arc::default() }
    }

    /// Another process of the same incarnation.
    #[must_use]
    pub fn beside(&self, slot: u16) -> Self {
        Self { identity: identity(slot), ..self.clone() }
    }

    fn dead(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when a lock word names this process.
    pub fn is(&self, identity: Identity) -> bool {
        self.identity == identity
    }

    /// Mark this process dead: it never runs again.
    pub fn dies(&self) {
        self.dead().insert(self.identity.bits());
    }
}

fn identity(slot: u16) -> Identity {
    Identity::new(slot, 1).expect("few slots are used")
}

impl Member for Actor {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn check(&self) -> Result<()> {
        let dead = self.dead().contains(&self.identity.bits());
        if dead { Err(Error::HandleClosed { what: "store" }) } else { Ok(()) }
    }

    fn watch(&self) -> Option<Watch> {
        // A simulated process does not fork, and its dead ones do not append.
        static SAME: AtomicU64 = AtomicU64::new(1);
        Some(Watch::new(&SAME, 1))
    }

    fn fate(&self, holder: Identity) -> io::Result<Fate<Box<dyn Any>>> {
        let dead = self.dead().contains(&holder.bits());
        Ok(if dead { Fate::Dead(Box::new(())) } else { Fate::Alive })
    }

    fn describe(&self, holder: Identity) -> String {
        format!("process in {holder}")
    }
}
