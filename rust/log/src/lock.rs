//! The lock of a log: one word in a shared page, many processes, nobody in charge.
//!
//! Owns the eight bytes of a lock word and the algorithm over them; the append lock and the sync
//! lock of a log are two such words. It keeps three promises: two owners never overlap; an owner
//! that lives is never robbed, however long it takes; one that died is replaced, and its successor
//! is told ([`Acquired::TakenOver`]), because it may have died half-way.
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
//!      (wakes one sleeper)          (proof of death, then one exchange)     v
//!                                                                       held by B (wakes B)
//! ```
//!
//! All that matters is in the one word, so its modification order decides every race. Free is
//! exactly zero: a word that is not held has neither owner, heir nor sleepers. An heir implies
//! sleepers. No clock decides who owns the lock; clocks only say when to ask and when to give up.
//!
//! Left to others: who is alive ([`Holders`], a slot's flock in production), what a successor must
//! repair, and **exclusion inside a process**. Identities are one a process, so a mutex of the
//! process stands before the word: of one identity at most one thread holds, waits or unlocks at a
//! time. This room relies on it (two threads with one identity would take each other's hand-over).
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
/// A waiter puts itself down as heir after waiting this long.
pub const HEIR_AFTER: Duration = Duration::from_micros(500);

const SLOT_BITS: u32 = 10;
const GENERATION_BITS: u32 = 20;
const IDENTITY_MASK: u32 = (1 << (SLOT_BITS + GENERATION_BITS)) - 1;

const FREE: u64 = 0;
const HELD: u64 = 0b01;
const SLEEPERS: u64 = 0b10;
const HEIR_SHIFT: u32 = 2;
const OWNER_SHIFT: u32 = 32;

/// Looks at the word before the first sleep. An append holds the lock for far less than a sleep and
/// a wake cost. Models need no spinning: it is the same exchange again.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };
/// More sleepers than there can be; the kernel counts in `i32`.
const ALL: u32 = i32::MAX as u32;

const _: () = assert!(HEIR_SHIFT + SLOT_BITS + GENERATION_BITS == OWNER_SHIFT);

/// A process that writes: its slot and how often that slot had been claimed when it was.
///
/// The generation tells a process from a later one in the same slot: without it, a dead owner would
/// look alive for as long as its slot is in use again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity(u32);

impl Identity {
    /// `None` when the slot is not below [`SLOTS`] or the generation not in 1..=[`GENERATION_MAX`].
    #[must_use]
    pub fn new(slot: u16, generation: u32) -> Option<Self> {
        let fits = slot < SLOTS && (1..=GENERATION_MAX).contains(&generation);
        fits.then(|| Self((u32::from(slot) << GENERATION_BITS) | generation))
    }

    /// `None` for numbers that are no identity: those with generation 0 or past 30 bits.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits & !IDENTITY_MASK == 0 && bits & GENERATION_MAX != 0).then_some(Self(bits))
    }

    /// 30 bits, never 0.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The slot file's number.
    #[must_use]
    pub fn slot(self) -> u16 {
        (self.0 >> GENERATION_BITS) as u16
    }

    /// Which claim of the slot, from 1.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.0 & GENERATION_MAX
    }

    /// The bit under which this process sleeps. Every 32nd slot shares it; who is woken in vain
    /// looks and sleeps again.
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

/// A lock word that is not free, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWord {
    /// Who has the lock.
    pub owner: Identity,
    /// Who gets it next.
    pub heir: Option<Identity>,
    /// Somebody may be asleep.
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

/// Take a lock word apart; `None` when it is free.
///
/// # Errors
/// [`LockError::Damaged`] for a word that this room never writes.
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

/// What has become of an owner.
#[derive(Debug)]
pub enum Fate<P> {
    /// It lives, or cannot be shown to be dead.
    Alive,
    /// It will never run again. The proof is kept until the lock has changed hands.
    Dead(P),
}

/// Knows which processes live.
pub trait Holders {
    /// What shows that a process is dead: the flock of its slot, had on a descriptor of our own
    /// (nobody can claim the slot anew while we hold it), or a later generation in the slot file.
    type Proof;

    /// Find out what has become of `holder`.
    ///
    /// [`Fate::Dead`] must be final, and what the dead one stored must be visible to the caller
    /// afterwards: the kernel lets go of a flock after the last instruction of its process, and
    /// taking it orders us after that. When in doubt the answer is [`Fate::Alive`]. It may be asked
    /// while another waiter has the proof; that one's flock then makes the dead look alive for a
    /// moment, which is harmless: the word is about to change.
    ///
    /// # Errors
    /// When it cannot be found out: the wait ends with [`LockError::Io`].
    fn fate(&self, holder: Identity) -> io::Result<Fate<Self::Proof>>;
}

/// How the lock was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Acquired {
    /// The owner before gave it back.
    Clean,
    /// The owner before died, or a thread of this process left the lock behind: what it was doing
    /// may be half done.
    TakenOver(Identity),
}

/// Why the lock was not had. The rooms above add the path of the log.
#[derive(Debug)]
pub enum LockError {
    /// The time given is over; `holder` was alive when it was.
    Timeout {
        /// Who has the lock.
        holder: Identity,
    },
    /// The word is none that a lock can be in: the control page was overwritten. Waiting would
    /// never end; the store's other processes must close before recovery makes a new page.
    Damaged {
        /// What was found.
        word: u64,
    },
    /// It could not be found out whether the owner lives.
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

/// The word of a lock that this process has, for stores where a flock is the lock and the word only
/// says who had it.
#[must_use]
pub fn held_by(me: Identity) -> u64 {
    LockWord::by(me).bits()
}

/// A clock for [`lock`] that starts when it is first read, so that a lock had at once reads none.
pub fn stopwatch() -> impl FnMut() -> Duration {
    let mut start = None;
    move || start.get_or_insert_with(Instant::now).elapsed()
}

/// Take the lock if it is free: one exchange, no system call.
#[inline(always)]
#[must_use]
pub fn try_lock(word: &impl SharedWord, me: Identity) -> bool {
    // Acquire pairs with the release of `unlock`: the owner before us is visible. A failed attempt
    // learns nothing it relies on.
    word.compare_exchange(FREE, LockWord::by(me).bits(), Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Take the lock, waiting for it at most `timeout` (`None`: for as long as its owner lives).
///
/// `waited` tells how long this call has been waiting, see [`stopwatch`]. Allocates nothing.
///
/// # Errors
/// See [`LockError`]. A caller that gets one does not have the lock and is nobody's heir.
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
    // Ours already, though no thread of this process has it: one that had it unwound. Nobody else
    // will ever end that, and its work may be half done.
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

/// A waiter's place; dropped only if [`Holders`] or the clock panics. An heir that went away
/// without a word would be handed a lock that it never gives back.
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
        // Acquire: if it shows us as owner, it was handed to us, and this pairs with the release of
        // the `unlock` that did (what waiters change in the word meanwhile are read-modify-writes,
        // which carry that release on).
        let bits = word.load(Ordering::Acquire);
        let Some(seen) = decode(bits)? else {
            // Others may sleep on: who was woken keeps the bit for them, as `unlock` cleared it and
            // woke only one. Acquire as in `try_lock`.
            let mine = LockWord { sleepers: slept, ..LockWord::by(me) }.bits();
            if word.compare_exchange(FREE, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Ok(Acquired::Clean);
            }
            continue;
        };
        if seen.owner == me {
            return Ok(Acquired::Clean);
        }

        // Before anything that may end the wait: the wake that brought us here was perhaps the only
        // one, so whoever leaves has left the bit behind for those who sleep on.
        let now = waited();
        let heir = if now >= HEIR_AFTER { seen.heir.or(Some(me)) } else { seen.heir };
        let marked = LockWord { heir, sleepers: true, ..seen };
        // Relaxed: it publishes nothing; `unlock` reads it in the same word or loses its exchange.
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
                // An heir may have been handed the lock just now: then it has it.
                return if withdraw(word, me) { Ok(Acquired::Clean) } else { Err(error) };
            }
        }

        // The kernel compares the low half before it lets us sleep: a hand-over clears the heir, a
        // release clears all. If the owner changed and the half did not, the lock is held and our
        // bit is in it, which is all that this sleep relies on.
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

/// Replace a dead owner; false if somebody else did. `_proof` is kept meanwhile.
fn take_over<P>(word: &impl SharedWord, me: Identity, dead: Identity, _proof: &P) -> bool {
    loop {
        // Read again, after the death was proven: the owner may have given the lock back before it
        // died, or another waiter was faster. An identity does not come back, so as long as the
        // word names it, nobody has the lock. The heir stays, unless that is us: an owner that is
        // its own heir would hand the lock to itself.
        let bits = word.load(Ordering::Relaxed);
        let Ok(Some(seen)) = decode(bits) else { return false };
        if seen.owner != dead {
            return false;
        }
        let mine =
            LockWord { owner: me, heir: seen.heir.filter(|heir| *heir != me), ..seen }.bits();
        // Acquire pairs with the last `unlock` before the dead one (or, if the dead one was heir,
        // the one that handed over to it); the load in `wait` that showed us the dead owner does so
        // already. What the dead one stored is ordered by its proof.
        if word.compare_exchange(bits, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
}

/// Stop being heir; true if the lock was handed to us before we could.
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

/// Give the lock to the heir, or free it and wake one who sleeps. One exchange when nobody waits.
///
/// False, and nothing changed, if `me` is not the owner. That is a bug of the caller: debug builds
/// panic. In a shipped one, whoever does own the lock must not lose it to that bug.
#[inline(always)]
pub fn unlock(word: &impl SharedWord, me: Identity) -> bool {
    // Release: all that was done under the lock is visible to the next owner.
    let alone = LockWord::by(me).bits();
    match word.compare_exchange(alone, FREE, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => true,
        Err(bits) => unlock_contended(word, me, bits),
    }
}

/// Take a lock that is free; one that is not, see given back with [`unlock_to_all`], for at most
/// `bound`. For those who want what its owner does at least as much as the lock: when it is done all
/// of them look again, instead of getting the lock one after the other.
///
/// True with the lock. False says nothing: the caller looks again.
pub fn try_lock_or_sleep(word: &impl SharedWord, me: Identity, bound: Duration) -> bool {
    if try_lock(word, me) {
        return true;
    }
    // Relaxed: the kernel compares, and the caller looks again. A word that changed hands meanwhile
    // may look the same; then its new owner wakes us.
    let seen = word.load(Ordering::Relaxed);
    if seen != FREE {
        word.sleep(seen as u32, EVERYONE, bound);
    }
    false
}

/// [`unlock`], and wake all who sleep on the word. For locks on which [`try_lock_or_sleep`] is used,
/// by every owner.
pub fn unlock_to_all(word: &impl SharedWord, me: Identity) -> bool {
    let unlocked = unlock(word, me);
    // After the word has changed: who is about to sleep on the old one is turned back by the kernel.
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

/// Dying before this wake costs the sleepers their bound: the word has changed hands already.
fn wake_after(word: &impl SharedWord, heir: Option<Identity>) {
    match heir {
        // All that share the heir's bit, lest the one that is woken be another.
        Some(heir) => word.wake(ALL, heir.mask()),
        // The word of an owner that is alone is given back by one exchange, without coming here.
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
