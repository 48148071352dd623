//! `falaj._core`: the part of the crate `falaj` that Python sees.
//!
//! Thin wrappers without logic: arguments in, one call, result or exception out. Each class has a
//! file; `errors` is the one mapping of errors; `buffer`, `gil_cell`, `bulk_load` and `calling` are the
//! files with unsafe code.

#![deny(unsafe_code)]

mod admin;
mod any_topic;
mod appending;
mod arrow;
mod batch;
mod buffer;
mod build;
mod bulk_load;
mod calling;
mod checksum;
mod coding;
mod collect;
mod compact;
mod consumed;
mod consumer;
mod consumers;
mod consuming;
mod cut;
mod detached;
mod draft;
mod errors;
mod floor;
mod follow;
mod gil_cell;
mod handle;
mod held;
mod input;
mod iterate;
mod leaving;
mod lookup;
mod module;
mod opened;
mod partitioned_topic;
mod payload;
mod plain;
mod precondition;
mod producers;
mod queue;
mod queue_job;
mod receipts;
mod record;
mod retention;
mod seen;
mod shipping;
mod signals;
mod store;
mod topic;
mod transaction;
mod turn;
mod view;
mod wait;
