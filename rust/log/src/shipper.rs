//! Which process ships the store, and how far what it shipped counts.
//!
//! Owns the word of the wake page that names the shipper, and the rule by which REMOTE and DURABLE
//! of a log count together. It keeps three promises. Two living processes are never named at once.
//! A word of a log only rises. Nothing counts as remote that is not on this disk.
//!
//! ```text
//!  63      33    32    31 30 29                0
//! ┌──────────┬────────┬─────┬───────────────────┐
//! │    0     │ fenced │  0  │ identity, or 0    │   0 = no process ships
//! └──────────┴────────┴─────┴───────────────────┘
//!
//!          begin                      end
//!   0 ──────────────> identity of A ────────> 0
//!   ^                   │   │  end, fenced
//!   │ begin             │   └──────────────> fenced ── begin ──> identity of B
//!   └── A dies: the word stays, and its slot says that A is dead
//! ```
//!
//! Left to others: whether a process lives ([`crate::lock::Holders`]), and sleeping and waking
//! ([`crate::wake`]). Models: `tests/loom/remote.rs`. Prose: `docs/PROTOCOL.md`, "Shipping".

use crate::lock::Identity;
use crate::sync::{Ordering, SharedWord, update};

/// Bit of the word: the last shipper stopped because another process claimed the place.
pub const FENCED: u64 = 1 << 32;

/// The meaning of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipper {
    /// No process ships the store.
    Absent,
    /// No process ships it: the last one met the claim of another store's process.
    Fenced,
    /// This process ships it, if it lives.
    Process(Identity),
}

/// Decode the word. A value that no process writes names no shipper.
#[must_use]
pub fn decode(word: u64) -> Shipper {
    match u32::try_from(word).ok().and_then(Identity::from_bits) {
        Some(process) => Shipper::Process(process),
        None if word == FENCED => Shipper::Fenced,
        None => Shipper::Absent,
    }
}

/// Encode what [`decode`] reads.
#[must_use]
pub fn encode(shipper: Shipper) -> u64 {
    match shipper {
        Shipper::Absent => 0,
        Shipper::Fenced => FENCED,
        Shipper::Process(process) => process.bits().into(),
    }
}

/// Name this process, if the word still has the value that was `seen`. The caller knows that the
/// process in that value is dead.
#[must_use]
pub fn begin(word: &impl SharedWord, me: Identity, seen: u64) -> bool {
    let mine = encode(Shipper::Process(me));
    // Release: who sees the name may ask for this process's slot, which was taken before.
    word.compare_exchange(seen, mine, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Stop naming this process. False when the word names another one by now, which then stays.
pub fn end(word: &impl SharedWord, me: Identity, fenced: bool) -> bool {
    let next = encode(if fenced { Shipper::Fenced } else { Shipper::Absent });
    let mine = encode(Shipper::Process(me));
    // Release: a waiter that sees the end sees all that was acknowledged before it.
    word.compare_exchange(mine, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Raise a word of a log to an address. It never falls.
pub fn raise(word: &impl SharedWord, to: u64) {
    update(word, |now| (now < to).then_some(to));
}

/// Return how far a log counts as remote: never further than it is durable here.
#[inline]
#[must_use]
pub fn reached(remote: u64, durable: u64) -> u64 {
    remote.min(durable)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::PAGE;
    use crate::storage::real::private_memory;

    fn process(slot: u16) -> Identity {
        Identity::new(slot, 7).expect("an identity")
    }

    #[test]
    fn the_word_names_one_process_or_says_why_none() {
        for shipper in [Shipper::Absent, Shipper::Fenced, Shipper::Process(process(1023))] {
            assert_eq!(decode(encode(shipper)), shipper);
        }
        let corrupt = [1 << 30, FENCED | 5, FENCED << 1, u64::MAX];
        assert!(corrupt.into_iter().all(|word| decode(word) == Shipper::Absent));
    }

    #[test]
    fn a_process_begins_only_where_it_looked_and_ends_only_itself() {
        let map = private_memory(PAGE).expect("memory");
        let word = map.word(0);
        let (one, two) = (process(1), process(2));
        assert!(begin(&word, one, 0));
        assert!(!begin(&word, two, 0) && !end(&word, two, true));
        assert_eq!(decode(map.load(0)), Shipper::Process(one));
        assert!(end(&word, one, true) && !end(&word, one, false));
        assert_eq!(decode(map.load(0)), Shipper::Fenced);
        assert!(begin(&word, two, FENCED) && end(&word, two, false));
        assert_eq!(map.load(0), 0);
    }

    #[test]
    fn a_word_of_a_log_only_rises_and_counts_up_to_the_durable_end() {
        let map = private_memory(PAGE).expect("memory");
        for (to, now) in [(7, 7), (3, 7), (9, 9)] {
            raise(&map.word(0), to);
            assert_eq!(map.load(0), now);
        }
        assert_eq!((reached(9, 4), reached(4, 9)), (4, 4));
    }
}
