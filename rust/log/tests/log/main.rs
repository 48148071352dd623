//! Tests of one log: appends and reads, alone and among several processes (each is a thread).
//!
//! They run on real files, in memory, and on a storage with planned faults.
//!
//! All are one program, since each program is linked alone. So no test may change or count what
//! belongs to the whole process. Such tests are in `tests/processes`, or are a program of their
//! own.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod common;

mod ahead;
mod append_errors;
mod cursor;
mod damage;
mod deaths;
mod doubt;
mod engine;
mod format_doc;
mod heavy;
mod latch;
mod lock_stress;
mod lock_words;
mod locks;
mod pread;
mod preconditions;
mod promises;
mod recovery;
mod roll;
mod seek;
mod segments;
mod snapshots;
mod torn_header;
mod trim;
mod trimmed;
