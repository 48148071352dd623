//! Threads that play processes: their identities, whether they live, and their clocks.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst}; // the file's, which no model looks into
use std::time::Duration;

use falaj::internals::lock::{Fate, Holders, Identity};

use crate::world::{Mutex, MutexGuard};

/// The slots of processes.
///
/// A mutex is held for life and released by death, like the kernel's flock. Beside it is how often
/// the slot was claimed, as in its file.
#[derive(Debug)]
pub struct Slots([(Mutex<()>, AtomicU32); 4]);

impl Slots {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| (Mutex::new(()), AtomicU32::new(0))))
    }
    /// Live until the guard is dropped.
    pub fn live(&self, who: Identity) -> MutexGuard<'_, ()> {
        let (flock, generation) = &self.0[usize::from(who.slot())];
        // A waiter that asks about a process that does not exist yet finds none, as in a real
        // store.
        let life = flock.lock().unwrap();
        generation.store(who.generation(), SeqCst);
        life
    }
}

impl<'a> Holders for &'a Slots {
    type Proof = Option<MutexGuard<'a, ()>>;
    fn fate(&self, holder: Identity) -> io::Result<Fate<Self::Proof>> {
        let (flock, generation) = &self.0[usize::from(holder.slot())];
        Ok(match flock.try_lock() {
            Ok(proof) => Fate::Dead(Some(proof)),
            Err(_) if generation.load(SeqCst) > holder.generation() => Fate::Dead(None),
            Err(_) => Fate::Alive,
        })
    }
}

/// No process may be asked about: in these models none waits long enough.
pub struct Nobody;

impl Holders for Nobody {
    type Proof = ();
    fn fate(&self, holder: Identity) -> io::Result<Fate<()>> {
        panic!("asked for {holder}")
    }
}

pub fn process(slot: u16) -> Identity {
    Identity::new(slot, 1).unwrap()
}

pub fn word_of(owner: Identity, heir: Option<Identity>, sleepers: bool) -> u64 {
    let heir = heir.map_or(0, Identity::bits);
    u64::from(owner.bits()) << 32 | u64::from(heir) << 2 | u64::from(sleepers) << 1 | 1
}

/// A clock that always shows the same time.
pub fn always(millis: u64) -> impl FnMut() -> Duration {
    move || Duration::from_millis(millis)
}

/// A clock that advances each time it is read.
pub fn ticking(millis: u64) -> impl FnMut() -> Duration {
    let mut now = Duration::ZERO;
    move || {
        now += Duration::from_millis(millis);
        now
    }
}
