//! Tests that start processes: members of a store that die, limits and users of their own, threads
//! that nobody else has.
//!
//! They are a program of their own because a process that is being started holds, for a moment, what
//! its parent has open, and every lock on it: here each test bears that of the others.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

#[path = "../stores/mod.rs"]
mod stores;

mod bad_limits;
mod bad_machine;
mod bad_places;
mod children;
mod notifier;
mod removed;
mod store_processes;
