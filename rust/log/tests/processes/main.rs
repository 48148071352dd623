//! Tests that start processes: members of a store that die, limits and users of their own, private
//! threads.
//!
//! They are a program of their own. A process that is being started briefly holds all its parent's
//! open files, and their locks. Each test here tolerates that of the others.
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
