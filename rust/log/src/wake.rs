//! Those who sleep until there is news and the writer that wakes them: no CPU while waiting, nothing
//! lost.
//!
//! Owns three kinds of words. A *counter* is what sleepers sleep on (its low half is a futex); each
//! log has one, and the store has one, its *bell*. A log's *flag* says who may be asleep for its
//! sake, so an append that nobody waits for costs one load and no system call.
//!
//! | bit of the flag | asleep on | who |
//! |---|---|---|
//! | [`FOLLOWERS`] | the log's counter | who waits for this log alone |
//! | [`WATCHERS`] | the bell | who waits for several logs of a store in one thread |
//! | [`KEEPERS`] | the bell | who has something to do after an append, and else nothing |
//! | [`SYNC_FOLLOWERS`] | the log's counter | who waits for what is on the medium; appends leave the bit |
//! | [`SYNC_WATCHERS`] | the bell | likewise, for several logs |
//! | [`REMOTE_FOLLOWERS`], [`REMOTE_WATCHERS`] | as these | kept for who waits for what has left the machine; appends leave the bits |
//!
//! ```text
//! sleeper                                 writer
//!   ticket = observe(counter)               store the commit word
//!   nothing new in the log?                 ── full fence ──
//!   flag |= its bit                         none of its bits in the flag?  done
//!   ── full fence ──                        takes them out; none left?  somebody else wakes
//!   still nothing new?                      counter += 1       of each bit that was set
//!   sleep while counter = ticket            wake those of the bit
//! ```
//!
//! An append answers all bits but the four that wait for more than an append, which answers all of them; so who
//! waits for the medium costs appends nothing, and is not woken by them. Who waits for several logs
//! does so with one ticket, taken first, and a flag in each of them. Each bit is a futex mask of its
//! own, so a keeper is not woken for a watcher's sake.
//!
//! Invariant: a sleeper sleeps only if the next writer to publish will find its bit, or if a
//! writer that took its bit has yet to raise the counter past its ticket. The two fences make it so:
//! of a writer and a sleeper at least one sees what the other stored.
//!
//! What this room does not promise: that a waker lives. One that is killed or stopped between
//! taking the flag and waking leaves its sleepers to their bound, so every sleep has one. A
//! sleeper that is killed leaves its bit set, which costs one needless wake. Who may not write cannot
//! set a flag: it may sleep on a counter, and is woken when somebody else could, but must look by itself.
//!
//! Models: `tests/loom`. Prose: `docs/PROTOCOL.md`, "Follow".

use std::time::Duration;

use crate::canary::{Canary, planted};
use crate::sync::{EVERYONE, Ordering, SharedWord, Slept, fence};

/// Bit of a log's flag: somebody may sleep on the log's counter.
pub const FOLLOWERS: u64 = 1;
/// Bit of a log's flag: somebody may sleep on the bell who reads from this log.
pub const WATCHERS: u64 = 2;
/// Bit of a log's flag: somebody may sleep on the bell who has work to do after an append.
pub const KEEPERS: u64 = 4;
/// Bit of a log's flag: somebody may sleep on the log's counter until something is on the medium.
pub const SYNC_FOLLOWERS: u64 = 8;
/// Bit of a log's flag: somebody may sleep on the bell until something of this log is on the medium.
pub const SYNC_WATCHERS: u64 = 16;

/// Bit of a log's flag, kept for who sleeps on the log's counter until something has left the machine.
pub const REMOTE_FOLLOWERS: u64 = 32;
/// Bit of a log's flag, kept for who sleeps on the bell until something of this log has left the machine.
pub const REMOTE_WATCHERS: u64 = 64;

/// Whom an append leaves asleep, as it is no news for them.
const AFTER_SYNC: u64 = SYNC_FOLLOWERS | SYNC_WATCHERS | REMOTE_FOLLOWERS | REMOTE_WATCHERS;
/// The bits of those who sleep on the log's counter; the others sleep on the bell.
const ON_COUNTER: u64 = FOLLOWERS | SYNC_FOLLOWERS | REMOTE_FOLLOWERS;

/// More sleepers than there can be; the kernel counts in `i32`.
const ALL: u32 = i32::MAX as u32;

/// The counter's low half as it was before the log was looked at.
///
/// It is compared by equality, so it would have to be 2³² wakes old to be mistaken for a newer one;
/// the bound of the sleep ends that wait too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// Take a ticket. Do it *before* looking whether there is news.
#[inline]
#[must_use]
pub fn observe(counter: &impl SharedWord) -> Ticket {
    // Acquire pairs with the release of `wake_all`: who has seen the new count also sees the news it
    // was raised for, and does not come back for another round in vain. It also sees that its bit
    // was taken before that count, so a bit that `flag` still finds is one for a later count.
    Ticket(counter.load(Ordering::Acquire) as u32)
}

/// Sleep until somebody notifies, for at most `bound`; return at once if `has_news`. `who` is one of
/// the bits for the log's counter.
///
/// Whatever the answer, the caller looks at the log again: [`Slept::Changed`] stands for news that
/// came before the sleep, the others are hints.
pub fn park<W: SharedWord>(
    counter: &W,
    flag: &W,
    who: u64,
    ticket: Ticket,
    bound: Duration,
    has_news: impl FnOnce() -> bool,
) -> Slept {
    register_waiter(flag, who);
    if !planted(Canary::LostWakeup) && has_news() {
        // The bit stays set: it may stand for others too. It costs the next writer one wake.
        return Slept::Changed;
    }
    counter.sleep(ticket.0, who as u32, bound)
}

/// Set a bit of a log's flag. Then look whether the log has news; if not, [`wait_for`].
pub fn register_waiter(flag: &impl SharedWord, who: u64) {
    let mut now = flag.load(Ordering::Relaxed);
    while now & who == 0 {
        // Release is for the reader's peace of mind: what makes a sleep end that begins after a
        // waker took this bit is the acquire of `observe`.
        match flag.compare_exchange(now, now | who, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(other) => now = other,
        }
    }
    // Set the bit, then load the log. Without a full fence both this pair and the writer's
    // (store the log, then load the flag) may be turned around, and each side misses the other.
    fence(Ordering::SeqCst);
}

/// Sleep until it is rung for `who`, for at most `bound`, having left word with each log that matters
/// and looked at it again.
pub fn wait_for(bell: &impl SharedWord, who: u64, ticket: Ticket, bound: Duration) -> Slept {
    bell.sleep(ticket.0, who as u32, bound)
}

/// After a sync, or anything that may be news for all: true when somebody is to be woken, by [`notify`].
#[inline]
#[must_use]
pub fn is_awaited(flag: &impl SharedWord) -> bool {
    // The counterpart of the fence in `register_waiter`.
    fence(Ordering::SeqCst);
    // Relaxed: the fence before it orders it, and the swap decides.
    flag.load(Ordering::Relaxed) != 0
}

/// After an append, for a caller whose last step was [`lock::unlock`](crate::lock::unlock): true when
/// somebody is to be woken, by [`notify_appended`].
///
/// Between the store of the commit word and this load of the flag lies then a locked
/// read-modify-write, and on x86-64 no load or store is ever reordered with one (Intel SDM vol. 3,
/// "Loads and stores are not reordered with locked instructions"); only the compiler has to be held
/// back. Elsewhere, and in the models, there is a fence as in `is_awaited`: the language's memory model
/// promises nothing of that kind, not even for a sequentially consistent exchange.
#[inline(always)]
#[must_use]
pub fn is_awaited_after_unlock(flag: &impl SharedWord) -> bool {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    fence(Ordering::SeqCst);
    flag.load(Ordering::Relaxed) & !AFTER_SYNC != 0
}

/// Take a log's flag and wake those it stands for. Without a bell, who sleeps on one is left to its
/// bound.
#[cold]
pub fn notify<W: SharedWord>(counter: &W, flag: &W, bell: Option<&W>) {
    wake_those(flag.swap(0, Ordering::Acquire), counter, bell);
}

/// As [`notify`], after an append: who waits for a sync sleeps on, and so does its bit.
#[cold]
pub fn notify_appended<W: SharedWord>(counter: &W, flag: &W, bell: Option<&W>) {
    let mut now = flag.load(Ordering::Relaxed);
    while now & !AFTER_SYNC != 0 {
        match flag.compare_exchange(now, now & AFTER_SYNC, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return wake_those(now & !AFTER_SYNC, counter, bell),
            Err(other) => now = other,
        }
    }
}

/// One waker for all: who finds no bit relies on the one that took it, with acquire, because what was
/// left there before was left by who had its ticket already.
fn wake_those<W: SharedWord>(taken: u64, counter: &W, bell: Option<&W>) {
    let (on_counter, on_bell) = (taken & ON_COUNTER, taken & !ON_COUNTER);
    if on_counter != 0 {
        wake_masked(counter, on_counter as u32);
    }
    if let (true, Some(bell)) = (on_bell != 0, bell) {
        wake_masked(bell, on_bell as u32);
    }
}

/// Wake everybody who sleeps on a counter, flag or not: for closing a handle while a thread of it
/// sleeps.
pub fn wake_all(counter: &impl SharedWord) {
    wake_masked(counter, EVERYONE);
}

/// Wake everybody who sleeps on a counter at this moment, without raising it: for who may not write.
/// Whoever is about to sleep does, until its bound.
pub fn wake_without_bump(counter: &impl SharedWord) {
    counter.wake(ALL, EVERYONE);
}

fn wake_masked(counter: &impl SharedWord, who: u32) {
    // Raised before the wake: who is about to sleep on the old value is turned back by the kernel.
    // Release pairs with `observe`.
    counter.fetch_add(1, Ordering::Release);
    counter.wake(ALL, who);
}
