//! The reliability harness of crate `falaj`: it tries to break every promise that can be tried in
//! memory, and plants bugs to see that it would notice.
//!
//! | module | owns |
//! |---|---|
//! | [`op`], [`machine`] | workloads of one process after the other, on a machine in memory |
//! | [`crew`] | processes at once that write to one log, switched after any store |
//! | [`jobs`], [`members`] | processes at once that share the jobs of a queue, and the partitions of a consumer |
//! | [`shared`], [`stores`] | rounds of these, and the stores that they share |
//! | [`turns`] | which of them runs |
//! | [`history`] | what happened, frozen, and what was promised when |
//! | [`truth`], [`look`] | the oracle, and what is done to each machine after a crash |
//! | `reading`, `ask` | what it is asked: all from the beginning, offsets and times in the middle |
//! | [`pick`] | what of the pending things reached the medium |
//! | [`explore`], [`seen`] | the crashes of a history, and which of the states are new |
//! | [`site`], [`mod@replay`] | how a crash is named, and done again |
//! | [`hostile`] | bytes that nobody wrote there |
//! | `canaries` | planted bugs, and who must find them; with `--cfg falaj_canaries` |
//! | [`pool`] | memory that is used again and again |
//! | [`plan`], [`campaign`] | how much is tried, by whom; progress, and going on |
//!
//! What is checked and how to replay it stands in `docs/RELIABILITY.md`.

#![allow(missing_debug_implementations, reason = "nobody prints a harness")]

pub mod actor;
mod ask;
pub mod campaign;
#[cfg(falaj_canaries)]
pub mod canaries;
pub mod crew;
pub mod explore;
pub mod history;
pub mod hostile;
pub mod jobs;
pub mod look;
pub mod machine;
pub mod members;
#[cfg(any(test, falaj_canaries))]
mod noticed;
pub mod op;
pub mod pick;
pub mod plan;
pub mod pool;
pub mod random;
mod reading;
pub mod replay;
pub mod seen;
pub mod shared;
pub mod site;
pub mod stores;
pub mod truth;
pub mod turns;
