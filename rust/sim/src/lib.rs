//! The reliability harness of crate `falaj`: it tries to break every promise that can be tried in
//! memory.
//!
//! It also plants bugs, to see that it would notice them.
//!
//! | module | owns |
//! |---|---|
//! | [`cuts`] | cuts as a shipper takes them, and what they oblige to |
//! | [`op`], [`machine`] | workloads of processes one after another, on a machine in memory |
//! | [`crew`] | concurrent processes that write to one log, switched after any store |
//! | [`jobs`], [`members`] | concurrent processes that share a queue's jobs, and a group's partitions |
//! | [`shared`], [`stores`] | rounds of concurrent processes, and the stores that they share |
//! | [`turns`] | which process runs |
//! | [`history`] | what happened, frozen, and what was promised when |
//! | [`truth`], [`look`] | the oracle, and the checks of a machine after a crash |
//! | `reading`, `ask` | questions to a log: a read from its beginning, offsets and times in its middle |
//! | [`pick`] | which pending changes reached the disk |
//! | [`explore`], [`seen`] | the crashes of a history, and which states are new |
//! | [`site`], [`mod@replay`] | the name of a crash, and its replay |
//! | [`hostile`] | bytes that we did not write |
//! | `canaries` | planted bugs, and what must notice them; with `--cfg falaj_canaries` |
//! | [`pool`] | an allocator that reuses memory |
//! | [`plan`], [`campaign`] | what a campaign consists of; its progress and resumption |
//!
//! `docs/RELIABILITY.md` says what is checked, and how to replay a finding.

#![allow(missing_debug_implementations, reason = "nobody prints a harness")]

pub mod actor;
mod ask;
pub mod campaign;
#[cfg(falaj_canaries)]
pub mod canaries;
pub mod crew;
pub mod cuts;
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
