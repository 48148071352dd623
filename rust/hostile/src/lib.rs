//! Hostile tests: tries to break falaj with bytes that it did not write, and with failing calls.
//!
//! | module | what it tries |
//! |---|---|
//! | [`flips`] | each single flipped bit of a store must be detected or harmless |
//! | [`bytes`] | decoders, and whole stores, fed with structured garbage |
//! | [`faults`] | the k-th storage call of a scene fails, for every k |
//! | [`push`] | a small run of all these for each push, two at a time |
//!
//! | module | what they share |
//! |---|---|
//! | [`example`] | small stores with one of everything in them |
//! | [`answers`] | the API's answers about a store, compared with what was written |
//! | [`writing`] | a writer on a harmed store |
//! | [`campaign`] | cases on all cores, each watched: panics, aborts, hangs, memory |
//! | [`random`], [`arguments`] | seeds, options |
//!
//! `docs/RELIABILITY.md` lists the findings of runs.
#![forbid(unsafe_code)]
// A harness that cannot go on has failed; only the project runs it.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, clippy::missing_errors_doc)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to people")]

pub mod answers;
pub mod arguments;
pub mod beside;
pub mod bytes;
pub mod campaign;
pub mod example;
pub mod faults;
pub mod flips;
pub mod push;
pub mod random;
pub mod writing;
