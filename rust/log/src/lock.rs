//! The lock of a log: one word in a shared page, many processes, no coordinator.
//!
//! Owns the eight bytes of a lock word and the algorithm over them. The append lock and the sync
//! lock of a log are two such words. It keeps three promises. Two processes never own the lock at
//! once. An owner that lives never loses the lock, however long it takes. An owner that died is
//! replaced, and its successor gets [`Acquired::TakenOver`], because the dead owner's work may be
//! half done.
//!
//! ```text
//!  63 62 61                 32 31                  2   1        0
//! ┌─────┬─────────────────────┬─────────────────────┬─────────┬──────┐
//! │  0  │ owner (identity)    │ heir (identity)     │ sleepers│ held │   0 = free
//! └─────┴─────────────────────┴─────────────────────┴─────────┴──────┘
//!                              └───────── the half waiters sleep on ──┘
//!
//!             try_lock                    a waiter: sleepers, then heir = itself
//!   free ────────────────> held by A ───────────────────────────────> held by A, heir B
//!    ^                        │  │                                          │
//!    └────────── unlock ──────┘  └─ A dies: take-over by a waiter           │ unlock: hand-over
//!      (wakes one sleeper)          (evidence of death, one exchange)        v
//!                                                                       held by B (wakes B)
//! ```
//!
//! The one word holds all that matters, so its modification order decides every race. Free is
//! exactly zero: a word that is not held has neither owner, heir nor sleepers. An heir implies
//! sleepers. No clock decides who owns the lock; clocks only decide when a waiter asks and when it
//! gives up.
//!
//! Left to others: which processes live ([`Holders`], a slot's flock in production), what a
//! successor must repair, and **exclusion inside a process**. A process has one identity, so its
//! threads take a mutex before the word. At most one thread of an identity holds, waits or unlocks
//! at a time. This module relies on it: two threads with one identity would take each other's
//! hand-over.
//!
//! Models: `tests/loom`, `tests/shuttle`; real threads: `tests/log/lock_stress.rs`. Prose: `docs/PROTOCOL.md`, "Locks
//! of a log".

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::canary::{Canary, planted};
use crate::sync::{EVERYONE, Ordering, SharedWord};

/// How many slots there are, hence how many processes may write to a store at once.
pub const SLOTS: u16 = 1 << SLOT_BITS;
/// The highest generation of a slot; the next one starts over at 1.
pub const GENERATION_MAX: u32 = (1 << GENERATION_BITS) - 1;
/// A waiter asks whether the owner lives after waiting this long, and again after each such time.
pub const ASK_EVERY: Duration = Duration::from_millis(10);
/// A waiter makes itself heir after waiting this long.
pub const HEIR_AFTER: Duration = Duration::from_micros(500);

const SLOT_BITS: u32 = 10;
const GENERATION_BITS: u32 = 20;
const IDENTITY_MASK: u32 = (1 << (SLOT_BITS + GENERATION_BITS)) - 1;

const FREE: u64 = 0;
const HELD: u64 = 0b01;
const SLEEPERS: u64 = 0b10;
const HEIR_SHIFT: u32 = 2;
const OWNER_SHIFT: u32 = 32;

/// How often a waiter tries the lock before its first sleep. An append holds the lock for far less
/// time than a sleep and a wake cost. Models need no spinning: each try is the same exchange again.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };
/// More sleepers than there can be; the kernel counts in `i32`.
const ALL: u32 = i32::MAX as u32;

const _: () = assert!(HEIR_SHIFT + SLOT_BITS + GENERATION_BITS == OWNER_SHIFT);

/// A writing process: its slot, and the generation of the slot when it was claimed.
///
/// The generation distinguishes a process from a later one in the same slot. Without it, a dead
/// owner would look alive while another process uses its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity(u32);

impl Identity {
    /// Make an identity; `None` unless the slot is below [`SLOTS`] and the generation in
    /// 1..=[`GENERATION_MAX`].
    #[must_use]
    pub fn new(slot: u16, generation: u32) -> Option<Self> {
        let fits = slot < SLOTS && (1..=GENERATION_MAX).contains(&generation);
        fits.then(|| Self((u32::from(slot) << GENERATION_BITS) | generation))
    }

    /// Read an identity; `None` for generation 0 or more than 30 bits.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits & !IDENTITY_MASK == 0 && bits & GENERATION_MAX != 0).then_some(Self(bits))
    }

    /// Return the identity as 30 bits, never 0.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Return the slot file's number.
    #[must_use]
    pub fn slot(self) -> u16 {
        (self.0 >> GENERATION_BITS) as u16
    }

    /// Return which claim of the slot this is, counted from 1.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.0 & GENERATION_MAX
    }

    /// The bit under which this process sleeps. Every 32nd slot shares it; a process that is woken
    /// in vain looks and sleeps again.
    fn mask(self) -> u32 {
        1 << (self.slot() % 32)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}.{})", self.slot(), self.generation())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} (generation {})", self.slot(), self.generation())
    }
}

/// The parts of a lock word that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWord {
    /// The owner of the lock.
    pub owner: Identity,
    /// The next owner.
    pub heir: Option<Identity>,
    /// Whether a process may be asleep on the word.
    pub sleepers: bool,
}

impl LockWord {
    fn by(owner: Identity) -> Self {
        Self { owner, heir: None, sleepers: false }
    }

    fn bits(self) -> u64 {
        let heir = self.heir.map_or(0, |heir| u64::from(heir.bits()) << HEIR_SHIFT);
        let sleepers = if self.sleepers { SLEEPERS } else { 0 };
        (u64::from(self.owner.bits()) << OWNER_SHIFT) | heir | sleepers | HELD
    }
}

/// Decode a lock word; `None` when it is free.
///
/// # Errors
/// [`LockError::Damaged`] for a word that this module never writes.
pub fn decode(word: u64) -> Result<Option<LockWord>, LockError> {
    if word == FREE {
        return Ok(None);
    }
    let heir_bits = (word as u32) >> HEIR_SHIFT;
    let heir = Identity::from_bits(heir_bits);
    let sleepers = word & SLEEPERS != 0;
    let heir_is_sound = heir_bits == 0 || (heir.is_some() && sleepers);
    match Identity::from_bits((word >> OWNER_SHIFT) as u32) {
        Some(owner) if word & HELD != 0 && heir_is_sound => {
            Ok(Some(LockWord { owner, heir, sleepers }))
        }
        _ => Err(LockError::Damaged { word }),
    }
}

/// Whether an owner is alive.
#[derive(Debug)]
pub enum Fate<P> {
    /// It lives, or cannot be shown to be dead.
    Alive,
    /// It will never run again. The evidence is kept until the lock has changed hands.
    Dead(P),
}

/// Finds out which processes live.
pub trait Holders {
    /// Evidence that a process is dead. It is the flock of its slot, acquired on a descriptor of
    /// our own: no process can claim the slot while we hold that. Or it is a later generation in
    /// the slot file.
    type Proof;

    /// Find out whether `holder` lives.
    ///
    /// [`Fate::Dead`] must be final, and the dead process's stores must be visible to the caller
    /// afterwards. The kernel releases a flock after the last instruction of its process, and
    /// acquiring it orders us after that. When in doubt the answer is [`Fate::Alive`]. A waiter may
    /// ask while another waiter holds the evidence. The flock of that other waiter then makes the
    /// dead process look alive for a moment, which is harmless: the word is about to change.
    ///
    /// # Errors
    /// When it cannot find out: the wait ends with [`LockError::Io`].
    fn fate(&self, holder: Identity) -> io::Result<Fate<Self::Proof>>;
}

/// How the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Acquired {
    /// The previous owner released it.
    Clean,
    /// The previous owner died, or a thread of this process left the lock held: its work may be
    /// half done.
    TakenOver(Identity),
}

/// Why the lock was not acquired. The modules above add the path of the log.
#[derive(Debug)]
pub enum LockError {
    /// The time given is over; `holder` was alive then.
    Timeout {
        /// The owner of the lock.
        holder: Identity,
    },
    /// The word is not a state of a lock: the control page was overwritten. Waiting would never
    /// end. The store's other processes must close before recovery makes a new page.
    Damaged {
        /// The word that was found.
        word: u64,
    },
    /// Whether the owner lives could not be found out.
    Io(io::Error),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { holder } => {
                write!(f, "the lock is still held by the process in {holder}")
            }
            Self::Damaged { word } => {
                write!(f, "the lock word holds {word:#018x}, which no process writes")
            }
            Self::Io(source) => {
                write!(f, "cannot find out whether the lock's holder is alive: {source}")
            }
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            Self::Timeout { .. } | Self::Damaged { .. } => None,
        }
    }
}

/// Return the word of a lock that this process holds, for stores where a flock is the lock and the
/// word only names its owner.
#[must_use]
pub fn held_by(me: Identity) -> u64 {
    LockWord::by(me).bits()
}

/// Make a clock for [`lock`] that starts at its first reading, so that an uncontended lock reads no
/// clock.
pub fn stopwatch() -> impl FnMut() -> Duration {
    let mut start = None;
    move || start.get_or_insert_with(Instant::now).elapsed()
}

/// Take the lock if it is free: one exchange, no system call.
#[inline(always)]
#[must_use]
pub fn try_lock(word: &impl SharedWord, me: Identity) -> bool {
    // Acquire pairs with the release of `unlock`: we see all that the previous owner stored. A
    // failed attempt relies on nothing that it read.
    word.compare_exchange(FREE, LockWord::by(me).bits(), Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Take the lock, waiting for it at most `timeout` (`None`: for as long as its owner lives).
///
/// `waited` returns how long this call has been waiting, see [`stopwatch`]. Allocates nothing.
///
/// # Errors
/// See [`LockError`]. A caller that gets one neither holds the lock nor is its heir.
#[inline]
pub fn lock<H: Holders>(
    word: &impl SharedWord,
    me: Identity,
    holders: &H,
    timeout: Option<Duration>,
    waited: impl FnMut() -> Duration,
) -> Result<Acquired, LockError> {
    if try_lock(word, me) {
        return Ok(Acquired::Clean);
    }
    lock_contended(word, me, holders, timeout, waited)
}

#[cold]
fn lock_contended<W: SharedWord, H: Holders>(
    word: &W,
    me: Identity,
    holders: &H,
    timeout: Option<Duration>,
    waited: impl FnMut() -> Duration,
) -> Result<Acquired, LockError> {
    // The word names this process, though none of its threads holds the lock: a thread that held it
    // unwound. No other process would ever release it, and that thread's work may be half done.
    if decode(word.load(Ordering::Acquire))?.is_some_and(|held| held.owner == me) {
        return Ok(Acquired::TakenOver(me));
    }
    if spin(word, me) {
        return Ok(Acquired::Clean);
    }
    let place = HeirPlace { word, me };
    let outcome = wait(word, me, holders, timeout, waited);
    std::mem::forget(place);
    outcome
}

fn spin(word: &impl SharedWord, me: Identity) -> bool {
    (0..SPINS).any(|_| {
        std::hint::spin_loop();
        word.load(Ordering::Relaxed) == FREE && try_lock(word, me)
    })
}

/// A waiter's place as heir; dropped only if [`Holders`] or the clock panics. An heir that left
/// without withdrawing would get the lock and never release it.
struct HeirPlace<'a, W: SharedWord> {
    word: &'a W,
    me: Identity,
}

impl<W: SharedWord> Drop for HeirPlace<'_, W> {
    fn drop(&mut self) {
        if withdraw(self.word, self.me) {
            unlock(self.word, self.me);
        }
    }
}

fn wait<H: Holders>(
    word: &impl SharedWord,
    me: Identity,
    holders: &H,
    timeout: Option<Duration>,
    mut waited: impl FnMut() -> Duration,
) -> Result<Acquired, LockError> {
    let mut ask_at = ASK_EVERY;
    let mut slept = false;
    loop {
        // Acquire: if the word names us as owner, an `unlock` passed the lock to us, and this pairs
        // with its release. Waiters change the word meanwhile by read-modify-writes only, which
        // carry that release on.
        let bits = word.load(Ordering::Acquire);
        let Some(seen) = decode(bits)? else {
            // Others may sleep on. `unlock` cleared the bit and woke only one process, so the woken
            // one sets the bit for the others. Acquire as in `try_lock`.
            let mine = LockWord { sleepers: slept, ..LockWord::by(me) }.bits();
            if word.compare_exchange(FREE, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Ok(Acquired::Clean);
            }
            continue;
        };
        if seen.owner == me {
            return Ok(Acquired::Clean);
        }

        // This comes before anything that may end the wait. The wake that brought us here was
        // perhaps the only one. So a waiter that leaves must first set the bit for those that sleep
        // on.
        let now = waited();
        let heir = if now >= HEIR_AFTER { seen.heir.or(Some(me)) } else { seen.heir };
        let marked = LockWord { heir, sleepers: true, ..seen };
        // Relaxed: it publishes nothing; `unlock` reads it in the same word, or its exchange fails.
        let marked_bits = marked.bits();
        if bits != marked_bits
            && word
                .compare_exchange(bits, marked_bits, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            continue;
        }

        let overdue = timeout.is_some_and(|timeout| now >= timeout);
        if overdue || now >= ask_at {
            ask_at = now + ASK_EVERY;
            if overdue && planted(Canary::LockStolen) && take_over(word, me, seen.owner, &()) {
                return Ok(Acquired::TakenOver(seen.owner));
            }
            let failure = match holders.fate(seen.owner) {
                Ok(Fate::Dead(proof)) => {
                    let taken = take_over(word, me, seen.owner, &proof);
                    drop(proof);
                    if taken {
                        return Ok(Acquired::TakenOver(seen.owner));
                    }
                    continue;
                }
                Ok(Fate::Alive) if overdue => Some(LockError::Timeout { holder: seen.owner }),
                Ok(Fate::Alive) => None,
                Err(source) => Some(LockError::Io(source)),
            };
            if let Some(error) = failure {
                // As heir we may have got the lock just now: then we own it.
                return if withdraw(word, me) { Ok(Acquired::Clean) } else { Err(error) };
            }
        }

        // The kernel compares the low half before it puts us to sleep. A hand-over clears the heir
        // and a release clears all, so both change the half. If the owner changed and the half did
        // not, the lock is held and our bit is in it. This sleep relies on no more than that.
        word.sleep(marked_bits as u32, me.mask(), nap(now, ask_at, timeout));
        slept = true;
    }
}

/// How long to sleep: until it is time to ask, to become heir, or to give up.
fn nap(now: Duration, ask_at: Duration, timeout: Option<Duration>) -> Duration {
    let heir_at = if now < HEIR_AFTER { HEIR_AFTER } else { ask_at };
    let until = ask_at.min(heir_at).min(timeout.unwrap_or(ask_at));
    until.saturating_sub(now)
}

/// Replace a dead owner; false if another waiter did. `_proof` stays alive meanwhile.
fn take_over<P>(word: &impl SharedWord, me: Identity, dead: Identity, _proof: &P) -> bool {
    loop {
        // Read again now that the death is certain: the owner may have released the lock before it
        // died, or another waiter was faster. An identity does not come back, so while the word
        // names it, no process has the lock. The heir stays, unless it is us: an owner that is its
        // own heir would pass the lock to itself.
        let bits = word.load(Ordering::Relaxed);
        let Ok(Some(seen)) = decode(bits) else { return false };
        if seen.owner != dead {
            return false;
        }
        let mine =
            LockWord { owner: me, heir: seen.heir.filter(|heir| *heir != me), ..seen }.bits();
        // Acquire pairs with the last `unlock` before the dead owner's turn. If the dead owner was
        // heir, that `unlock` passed the lock to it. The load in `wait` that showed us the dead
        // owner does so already. The evidence of its death orders what the dead owner stored.
        if word.compare_exchange(bits, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
}

/// Stop being heir; true if the lock was passed to us before we could.
fn withdraw(word: &impl SharedWord, me: Identity) -> bool {
    loop {
        // Acquire as in `wait`: it may turn out to be ours.
        let bits = word.load(Ordering::Acquire);
        let Ok(Some(seen)) = decode(bits) else { return false };
        if seen.owner == me {
            return true;
        }
        if seen.heir != Some(me) {
            return false;
        }
        let without = LockWord { heir: None, ..seen }.bits();
        if word.compare_exchange(bits, without, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return false;
        }
    }
}

/// Pass the lock to the heir, or free it and wake one sleeper. One exchange when no process waits.
///
/// False, with no effect, if `me` is not the owner. That is a bug of the caller: debug builds
/// panic. In release builds, the true owner must not lose the lock to that bug.
#[inline(always)]
pub fn unlock(word: &impl SharedWord, me: Identity) -> bool {
    // Release: all that was done under the lock is visible to the next owner.
    let alone = LockWord::by(me).bits();
    match word.compare_exchange(alone, FREE, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => true,
        Err(bits) => unlock_contended(word, me, bits),
    }
}

/// Take the lock if it is free; otherwise sleep until its owner calls [`unlock_to_all`], at most
/// for `bound`. This suits callers to which the owner's work is as useful as the lock. When the
/// owner is done, all of them look again instead of acquiring the lock one after the other.
///
/// True when the lock was acquired. False means nothing: the caller looks again.
pub fn try_lock_or_sleep(word: &impl SharedWord, me: Identity, bound: Duration) -> bool {
    if try_lock(word, me) {
        return true;
    }
    // Relaxed: the kernel compares, and the caller looks again. A word that changed hands meanwhile
    // may look the same; its new owner then wakes us.
    let seen = word.load(Ordering::Relaxed);
    if seen != FREE {
        word.sleep(seen as u32, EVERYONE, bound);
    }
    false
}

/// Do as [`unlock`], and wake all that sleep on the word. Every owner of a lock that is used with
/// [`try_lock_or_sleep`] calls this.
pub fn unlock_to_all(word: &impl SharedWord, me: Identity) -> bool {
    let unlocked = unlock(word, me);
    // After the word has changed: the kernel turns back a process that is about to sleep on the old
    // one.
    word.wake(ALL, EVERYONE);
    unlocked
}

#[cold]
fn unlock_contended(word: &impl SharedWord, me: Identity, mut bits: u64) -> bool {
    loop {
        let held = match decode(bits) {
            Ok(Some(held)) if held.owner == me => held,
            other => {
                debug_assert!(false, "{me} unlocks what it does not own: {other:?}");
                return false;
            }
        };
        let next =
            held.heir.map_or(FREE, |heir| LockWord { owner: heir, heir: None, ..held }.bits());
        match word.compare_exchange(bits, next, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => wake_after(word, held.heir),
            Err(now) => {
                bits = now;
                continue;
            }
        }
        return true;
    }
}

/// A process that dies before this wake costs the sleepers their bound: the word has changed hands
/// already.
fn wake_after(word: &impl SharedWord, heir: Option<Identity>) {
    match heir {
        // Wakes all that share the heir's bit; to wake one could wake another than the heir.
        Some(heir) => word.wake(ALL, heir.mask()),
        // An uncontended owner releases its word by one exchange, without coming here.
        None => word.wake(1, EVERYONE),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn identities_keep_slot_and_generation() {
        for (slot, generation) in [(0, 1), (7, 42), (SLOTS - 1, GENERATION_MAX)] {
            let identity = Identity::new(slot, generation).unwrap();
            assert_eq!((identity.slot(), identity.generation()), (slot, generation));
            assert_eq!(Identity::from_bits(identity.bits()), Some(identity));
            assert!(identity.bits() != 0 && identity.bits() < 1 << 30);
        }
        assert_eq!(Identity::new(SLOTS, 1), None);
        assert_eq!(Identity::new(0, 0), None);
        assert_eq!(Identity::new(0, GENERATION_MAX + 1), None);
    }

    #[test]
    fn words_come_apart_as_they_were_put_together() {
        let owner = Identity::new(1023, GENERATION_MAX).unwrap();
        let heir = Identity::new(512, 3);
        for held in [
            LockWord::by(owner),
            LockWord { sleepers: true, ..LockWord::by(owner) },
            LockWord { owner, heir, sleepers: true },
        ] {
            assert_eq!(decode(held.bits()).unwrap(), Some(held));
        }
        assert_eq!(decode(FREE).unwrap(), None);
    }

    #[test]
    fn words_that_no_process_writes_are_damaged() {
        let owner = u64::from(Identity::new(4, 9).unwrap().bits()) << OWNER_SHIFT;
        let no_generation = 1 << (GENERATION_BITS + HEIR_SHIFT);
        let heir_without_sleepers = 1 << HEIR_SHIFT;
        for word in [
            HELD,
            SLEEPERS,
            owner,
            owner | SLEEPERS,
            owner | HELD | 1 << 63,
            owner | HELD | SLEEPERS | no_generation,
            owner | HELD | heir_without_sleepers,
            u64::MAX,
        ] {
            let found = decode(word);
            assert!(
                matches!(found, Err(LockError::Damaged { word: w }) if w == word),
                "{word:#x}: {found:?}"
            );
        }
    }

    #[test]
    fn sleeps_end_when_there_is_something_to_do() {
        let ms = Duration::from_millis;
        let us = Duration::from_micros;
        assert_eq!(nap(us(100), ms(10), None), us(400));
        assert_eq!(nap(us(500), ms(10), None), us(9_500));
        assert_eq!(nap(us(500), ms(10), Some(ms(2))), us(1_500));
        assert_eq!(nap(ms(10), ms(20), Some(ms(60_000))), ms(10));
        assert_eq!(nap(ms(10), ms(20), Some(ms(5))), Duration::ZERO);
    }
}
