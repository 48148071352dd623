//! Tests of whole stores within one process: topics, groups, sinks, retention, compaction,
//! administration.
//!
//! All are one program, since each program is linked alone. So no test may change or count what
//! belongs to the whole process. Such tests are in `tests/processes`, or are a program of their
//! own.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

#[path = "../stores/mod.rs"]
mod stores;

mod acknowledging;
mod admin;
mod bad_files;
mod build;
mod compaction;
mod conditional;
mod consumers;
mod control_flips;
mod damaged_appends;
mod dead_letters;
mod expiring;
mod facade;
mod finished;
mod properties;
mod reading;
mod record_batches;
mod recorded;
mod remote;
mod remote_repeats;
mod retention;
mod sharing;
mod sinks;
mod transactions;
mod trimmed;
mod versions;
mod view;
mod visibility;
mod watch;
