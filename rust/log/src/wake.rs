//! Sleeping until there is news, and waking the sleepers: waiting costs no CPU, and no wake is
//! lost.
//!
//! Owns three kinds of words. A *counter* is what sleepers sleep on (its low half is a futex). Each
//! log has one, and the store has one, its *bell*. A log's *flag* says which kinds of sleepers may
//! wait for the log. An append that no process waits for therefore costs one load and no system
//! call.
//!
//! | bit of the flag | asleep on | waits for |
//! |---|---|---|
//! | [`FOLLOWERS`] | the log's counter | this log alone |
//! | [`WATCHERS`] | the bell | several logs of a store, in one thread |
//! | [`KEEPERS`] | the bell | an append, to do work after it |
//! | [`SYNC_FOLLOWERS`] | the log's counter | stable storage; appends leave the bit |
//! | [`SYNC_WATCHERS`] | the bell | stable storage of several logs; appends leave the bit |
//! | [`REMOTE_FOLLOWERS`], [`REMOTE_WATCHERS`] | likewise | records that have left the machine; appends leave the bits |
//! | [`REMOTE_APPENDERS`] | the log's counter | that its own records have left the machine; appends leave the bit |
//! | none: [`SHIPPER`] | the bell | a process that sets [`REMOTE_APPENDERS`] |
//!
//! ```text
//! sleeper                                 writer
//!   ticket = observe(counter)               store the commit word
//!   nothing new in the log?                 ── full fence ──
//!   flag |= its bit                         none of its bits in the flag?  done
//!   ── full fence ──                        takes them out; none left?  another wakes
//!   still nothing new?                      counter += 1       of each bit that was set
//!   sleep while counter = ticket            wake those of the bit
//! ```
//!
//! An append answers all bits but the five that wait for more than an append; the event that those
//! wait for answers all bits. So a process that waits for stable storage costs appends nothing, and
//! appends do not wake it. A process that waits for several logs takes one ticket first, and then
//! sets a flag in each log. Each bit is a futex mask of its own, so a wake for watchers does not
//! wake keepers.
//!
//! Invariant: a sleeper sleeps only in two cases. In the first, the next writer to publish will
//! find its bit. In the second, a writer took its bit, and has not yet raised the counter past its
//! ticket. The two fences ensure this: of a writer and a sleeper, at least one sees what the other
//! stored.
//!
//! This module does not promise that a waker lives. A waker that is killed or stopped between
//! taking the flag and waking leaves its sleepers to their bound, so every sleep has a bound. A
//! sleeper that is killed leaves its bit set, which costs one needless wake. A read-only process
//! cannot set a flag. It may sleep on a counter, and wakes when others are woken, but must look by
//! itself.
//!
//! Models: `tests/loom`. Prose: `docs/PROTOCOL.md`, "Follow".

use std::time::Duration;

use crate::canary::{Canary, planted};
use crate::sync::{EVERYONE, Ordering, SharedWord, Slept, fence};

/// Bit of a log's flag: a process may sleep on the log's counter.
pub const FOLLOWERS: u64 = 1;
/// Bit of a log's flag: a reader of this log may sleep on the bell.
pub const WATCHERS: u64 = 2;
/// Bit of a log's flag: a process with work to do after an append may sleep on the bell.
pub const KEEPERS: u64 = 4;
/// Bit of a log's flag: a process may sleep on the log's counter until records are on stable
/// storage.
pub const SYNC_FOLLOWERS: u64 = 8;
/// Bit of a log's flag: a process may sleep on the bell until records of this log are on stable
/// storage.
pub const SYNC_WATCHERS: u64 = 16;

/// Bit of a log's flag: a reader may sleep on the log's counter until records have left the machine.
pub const REMOTE_FOLLOWERS: u64 = 32;
/// Bit of a log's flag: a process may sleep on the bell until records of this log have left the
/// machine.
pub const REMOTE_WATCHERS: u64 = 64;
/// Bit of a log's flag: a process may sleep on the log's counter until what it appended has left the
/// machine. The shipper hurries for this one alone.
pub const REMOTE_APPENDERS: u64 = 128;
/// Futex mask of the process that ships, which sleeps on the bell. It is no bit of a flag:
/// [`hurry`] always raises the bell.
pub const SHIPPER: u64 = 256;

/// The bits that an append leaves set, as it is no news for their sleepers.
const AFTER_SYNC: u64 =
    SYNC_FOLLOWERS | SYNC_WATCHERS | REMOTE_FOLLOWERS | REMOTE_WATCHERS | REMOTE_APPENDERS;
/// The bits whose sleepers sleep on the log's counter; the others sleep on the bell.
const ON_COUNTER: u64 = FOLLOWERS | SYNC_FOLLOWERS | REMOTE_FOLLOWERS | REMOTE_APPENDERS;

/// More sleepers than there can be; the kernel counts in `i32`.
const ALL: u32 = i32::MAX as u32;

/// The counter's low half, read before looking at the log.
///
/// It is compared by equality, so only a ticket 2³² wakes old could be mistaken for a newer one.
/// The bound of the sleep ends that wait too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// Take a ticket. Do it *before* looking for news.
#[inline]
#[must_use]
pub fn observe(counter: &impl SharedWord) -> Ticket {
    // Acquire pairs with the release of `wake_all`. A sleeper that has seen the new count also sees
    // the news it was raised for, and does not sleep again in vain. It also sees that its bit was
    // taken before that count, so a bit that `flag` still finds is one for a later count.
    Ticket(counter.load(Ordering::Acquire) as u32)
}

/// Sleep until a writer notifies, at most for `bound`; return at once if `has_news`. `who` is one
/// of the bits for the log's counter.
///
/// Whatever this returns, the caller looks at the log again. [`Slept::Changed`] means news that
/// came before the sleep; the others are hints.
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
        // The bit stays set: another sleeper may need it too. It costs the next writer one wake.
        return Slept::Changed;
    }
    counter.sleep(ticket.0, who as u32, bound)
}

/// Set a bit of a log's flag. Then look whether the log has news; if not, [`wait_for`].
pub fn register_waiter(flag: &impl SharedWord, who: u64) {
    let mut now = flag.load(Ordering::Relaxed);
    while now & who == 0 {
        // Release only helps the reader of this code. A sleep that begins after a waker took this
        // bit ends because of the acquire of `observe`.
        match flag.compare_exchange(now, now | who, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(other) => now = other,
        }
    }
    // Set the bit, then load the log. Without a full fence the machine may reorder this pair, and
    // also the writer's pair (store the log, then load the flag). Each side would then miss the
    // other.
    fence(Ordering::SeqCst);
}

/// Sleep until the bell rings for `who`, at most for `bound`. The caller has set a flag in each log
/// that matters and looked at the log again.
pub fn wait_for(bell: &impl SharedWord, who: u64, ticket: Ticket, bound: Duration) -> Slept {
    bell.sleep(ticket.0, who as u32, bound)
}

/// Return true when there are sleepers to wake by [`notify`], after a sync or other news for all.
#[inline]
#[must_use]
pub fn is_awaited(flag: &impl SharedWord) -> bool {
    // The counterpart of the fence in `register_waiter`.
    fence(Ordering::SeqCst);
    // Relaxed: the fence before it orders it, and the swap decides.
    flag.load(Ordering::Relaxed) != 0
}

/// Return true when there are sleepers to wake by [`notify_appended`], after an append whose last
/// step was [`lock::unlock`](crate::lock::unlock).
///
/// A locked read-modify-write then lies between the store of the commit word and this load of the
/// flag. On x86-64 no load or store is ever reordered with one (Intel SDM vol. 3, "Loads and stores
/// are not reordered with locked instructions"); only the compiler has to be held back. Elsewhere,
/// and in the models, there is a fence as in `is_awaited`. The language's memory model promises
/// nothing of that kind, not even for a sequentially consistent exchange.
#[inline(always)]
#[must_use]
pub fn is_awaited_after_unlock(flag: &impl SharedWord) -> bool {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    fence(Ordering::SeqCst);
    flag.load(Ordering::Relaxed) & !AFTER_SYNC != 0
}

/// Take a log's flag and wake the sleepers of its bits. Without a bell, sleepers on the bell wait
/// for their bound.
#[cold]
pub fn notify<W: SharedWord>(counter: &W, flag: &W, bell: Option<&W>) {
    wake_those(flag.swap(0, Ordering::Acquire), counter, bell);
}

/// Do as [`notify`] after an append: waiters for a sync sleep on, and their bits stay.
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

/// One waker wakes all. A writer that finds no bit relies on the one that took it, with acquire. A
/// process that had left a bit there already had its ticket.
fn wake_those<W: SharedWord>(taken: u64, counter: &W, bell: Option<&W>) {
    let (on_counter, on_bell) = (taken & ON_COUNTER, taken & !ON_COUNTER);
    if on_counter != 0 {
        wake_masked(counter, on_counter as u32);
    }
    if let (true, Some(bell)) = (on_bell != 0, bell) {
        wake_masked(bell, on_bell as u32);
    }
}

/// Wake the process that ships, after [`REMOTE_APPENDERS`] was set. It takes its ticket before it
/// looks at the flags, so either it finds the bit, or its sleep ends.
pub fn hurry(bell: &impl SharedWord) {
    wake_masked(bell, SHIPPER as u32);
}

/// Wake all that sleep on a counter, flag or not: for closing a handle while one of its threads
/// sleeps.
pub fn wake_all(counter: &impl SharedWord) {
    wake_masked(counter, EVERYONE);
}

/// Wake all that sleep on a counter now, without raising it: for read-only processes. A process
/// that is about to sleep sleeps until its bound.
pub fn wake_without_bump(counter: &impl SharedWord) {
    counter.wake(ALL, EVERYONE);
}

fn wake_masked(counter: &impl SharedWord, who: u32) {
    // Raised before the wake: the kernel turns back a process that is about to sleep on the old
    // value. Release pairs with `observe`.
    counter.fetch_add(1, Ordering::Release);
    counter.wake(ALL, who);
}
