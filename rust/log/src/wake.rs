//! Followers asleep and the writer that wakes them: no CPU while waiting, nothing lost.
//!
//! Owns two words, one pair per log and one per store. `counter` is what followers sleep on (its
//! low half is a futex); `flag` says that somebody may be asleep, so an append with no follower
//! costs one load and no system call.
//!
//! ```text
//! follower                                writer
//!   ticket = observe(counter)               store the commit word
//!   nothing new in the log?                 ── full fence ──
//!   flag = 1                                flag = 0?  done
//!   ── full fence ──                        swap(flag, 0) was 0?  somebody else wakes
//!   still nothing new?                      counter += 1
//!   sleep while counter = ticket            wake all
//! ```
//!
//! Invariant: a follower sleeps only if the next writer to publish will find its flag, or if a
//! writer that took its flag has yet to raise `counter` past its ticket. The two fences make it so:
//! of a writer and a follower at least one sees what the other stored.
//!
//! What this room does not promise: that a waker lives. One that is killed or stopped between
//! taking the flag and waking leaves its sleepers to their bound, so every sleep has one. A
//! follower that is killed leaves the flag set, which costs one needless wake. Followers that may
//! not write cannot set the flag and poll instead; they do not come here.
//!
//! Models: `tests/loom`. Prose: `docs/PROTOCOL.md`, "Follow".

use std::time::Duration;

use crate::sync::{EVERYONE, Ordering, SharedWord, Slept, fence};

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
    // Acquire pairs with the release of `rouse`: who has seen the new count also sees the news it
    // was raised for, and does not come back for another round in vain.
    Ticket(counter.load(Ordering::Acquire) as u32)
}

/// Sleep until somebody notifies, for at most `bound`; return at once if `has_news`.
///
/// Whatever the answer, the caller looks at the log again: [`Slept::Changed`] stands for news that
/// came before the sleep, the others are hints.
pub fn park<W: SharedWord>(
    counter: &W,
    flag: &W,
    ticket: Ticket,
    bound: Duration,
    has_news: impl FnOnce() -> bool,
) -> Slept {
    // Release pairs with the acquire of the waker's swap: the waker that takes this flag raises the
    // counter after this thread's ticket was taken, so the sleep below cannot outlast it. (The
    // acquire of `observe` with the release of `rouse` implies the same; either would do.)
    flag.store(1, Ordering::Release);
    // Store the flag, then load the log. Without a full fence both this pair and the writer's
    // (store the log, then load the flag) may be turned around, and each side misses the other.
    fence(Ordering::SeqCst);
    if has_news() {
        // The flag stays set: it may stand for others too. It costs the next writer one wake.
        return Slept::Changed;
    }
    counter.sleep(ticket.0, EVERYONE, bound)
}

/// Wake the followers, if there are any, after something was published.
#[inline]
pub fn notify<W: SharedWord>(counter: &W, flag: &W) {
    // The counterpart of the fence in `park`.
    fence(Ordering::SeqCst);
    ring(counter, flag);
}

/// As [`notify`], for a caller whose last step was [`lock::unlock`](crate::lock::unlock).
///
/// Between the store of the commit word and this load of the flag lies then a locked
/// read-modify-write, and on x86-64 no load or store is ever reordered with one (Intel SDM vol. 3,
/// "Loads and stores are not reordered with locked instructions"); only the compiler has to be held
/// back. Elsewhere, and in the models, this *is* `notify`: the language's memory model promises
/// nothing of that kind, not even for a sequentially consistent exchange.
#[inline(always)]
pub fn notify_after_unlock<W: SharedWord>(counter: &W, flag: &W) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    fence(Ordering::SeqCst);
    ring(counter, flag);
}

/// Wake every follower, flag or not: for closing a handle while a thread of it sleeps.
pub fn rouse(counter: &impl SharedWord) {
    // Raised before the wake: who is about to sleep on the old value is turned back by the kernel.
    // Release pairs with `observe`.
    counter.fetch_add(1, Ordering::Release);
    counter.wake(ALL, EVERYONE);
}

#[inline(always)]
fn ring<W: SharedWord>(counter: &W, flag: &W) {
    // Relaxed: the fence before it orders it, and the swap decides.
    if flag.load(Ordering::Relaxed) != 0 {
        take_flag_and_rouse(counter, flag);
    }
}

#[cold]
fn take_flag_and_rouse<W: SharedWord>(counter: &W, flag: &W) {
    // One waker for all: who gets 0 relies on the one that got the flag. Acquire, see `park`.
    if flag.swap(0, Ordering::Acquire) != 0 {
        rouse(counter);
    }
}
