//! The engine against power cuts and deaths, at every event of every workload of up to three
//! operations.
//!
//! | module | owns |
//! |---|---|
//! | `model` | what was appended, and what of it a reader may and must find |
//! | `world` | operations on one log of a machine in memory |
//! | `deaths` | one process after the other dies in the end block of a roll |
//! | `explore` | the images of a crash, what is done to each, and the count of states |
//! | `workloads` | all workloads, cut short by a power cut or a death |
//! | `latch` | syncs that fail |
//! | `kills` | one of two processes dies at every event |
//!
//! `FALAJ_CRASH_STATES` says how many states the workloads may visit; without it a few seconds'
//! worth. Samples are drawn with seeds that a failure names.
#![cfg(not(loom))]
#![allow(clippy::print_stdout, reason = "how many states were seen is part of the result")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;
mod deaths;
mod explore;
mod model;
mod workloads;
mod world;
