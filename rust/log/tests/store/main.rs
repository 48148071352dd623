//! Tests of whole stores within one process: topics, consumers, sinks, retention, compaction, and those
//! who look after a store.
//!
//! One program, as a program for each room would be linked alone. So nothing here may change or count
//! what belongs to the whole process; what has to is in `tests/processes`, or in a program of its own.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

#[path = "../stores/mod.rs"]
mod stores;

mod admin;
mod bad_files;
mod compaction;
mod consumers;
mod control_flips;
mod damaged_appends;
mod facade;
mod reading;
mod record_batches;
mod recorded;
mod retention;
mod sharing;
mod sinks;
mod transactions;
mod versions;
mod visibility;
mod watch;
