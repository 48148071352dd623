//! Tests of one log: what it takes, keeps and gives back, alone and among several processes of which
//! each is a thread here, on real files, in memory, and on a storage that fails as planned.
//!
//! One program, as a program for each room would be linked alone. So nothing here may change or count
//! what belongs to the whole process; what has to is in `tests/processes`, or in a program of its own.
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
