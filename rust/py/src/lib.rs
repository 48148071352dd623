//! `falaj._core`: what Python sees of the crate `falaj`.
//!
//! Thin shells without logic: arguments in, one call, result or exception out. Each class has a file;
//! `errors` is the one mapping of errors; `buffer`, `attached` and `job` are the files with unsafe code.

#![deny(unsafe_code)]

mod admin;
mod appending;
mod arrow;
mod attached;
mod batch;
mod buffer;
mod collect;
mod compact;
mod consumer;
mod consumers;
mod consuming;
mod draft;
mod errors;
mod floor;
mod follow;
mod handle;
mod held;
mod input;
mod iterate;
mod job;
mod only_if;
mod opened;
mod queue;
mod record;
mod retention;
mod seen;
mod signals;
mod store;
mod topic;
mod transaction;
mod turn;
mod wait;

/// The compiled half of falaj; import `falaj` instead.
#[pyo3::pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    use super::{
        admin::{_backup, _info, _repair, _verify},
        arrow::{_arrow, _arrow_of, ArrowBatch, ArrowStream},
        batch::{Batch, BatchRecords, Batches, Values, ValuesIterator},
        buffer::{BatchView, View},
        collect::_expect_record,
        compact::{_compact, _mark_compacted, _tombstone},
        consumer::{Consumed, Consumer},
        consumers::{_consumers, _delete_consumer, _position_of, _reset_cursor, _topic_in_log},
        draft::NewRecord,
        floor::Floor,
        follow::{Bell, Follower, Ticket, Watch},
        iterate::Records,
        job::Part,
        opened::Opened,
        queue::{_delete_queue, _queue_overview, _queues, Job, Queue},
        record::Record,
        retention::{_configure_store, _configure_topic, _maintain},
        store::Store,
        topic::Topic,
        transaction::{_cursor, Transaction},
    };

    /// The version of the workspace: one place, Cargo.toml.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python looks for")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
