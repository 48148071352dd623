//! Tries to break falaj with bytes that nobody wrote and with calls that fail.
//!
//! | module | what it tries |
//! |---|---|
//! | [`flips`] | every single flipped bit of a store is detected or harmless |
//! | [`bytes`] | decoders, and whole stores, fed with structured rubbish |
//! | [`faults`] | the k-th storage call of a scene fails, for every k |
//! | [`push`] | all of these at the size of a push, two at a time |
//!
//! | module | what they share |
//! |---|---|
//! | [`example`] | small stores with one of everything in them |
//! | [`answers`] | all that the API says of a store, held against what was written |
//! | [`writing`] | what a writer does to a store that was harmed |
//! | [`campaign`] | cases on all cores, each watched: panics, aborts, hangs, memory |
//! | [`random`], [`arguments`] | seeds, options |
//!
//! What a run found goes to `docs/RELIABILITY.md`.
#![forbid(unsafe_code)]
// A harness that cannot go on has failed; it is run by nobody but the project.
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
