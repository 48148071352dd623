//! Backup, verification, repair and information: what those who look after a store rely on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod info;
mod repair;

#[path = "../stores/mod.rs"]
mod stores;
mod trimmed;
mod verify;
