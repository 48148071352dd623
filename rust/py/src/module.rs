//! The contents of `falaj._core`, for the main interpreter only.

use pyo3::prelude::*;

use crate::{
    admin, any_topic, arrow, batch, buffer, build, bulk_load, checksum, collect, compact, consumed,
    consumer, consumers, cut, draft, floor, follow, gil_cell, iterate, leaving, opened,
    partitioned_topic, payload, plain, producers, queue, queue_job, receipts, record, retention,
    shipping, store, topic, transaction, view,
};

/// Add classes or functions to a module.
macro_rules! add {
    ($module:ident, add_class: $($class:path),*) => {
        $($module.add_class::<$class>()?;)*
    };
    ($module:ident, add_function: $($function:path),*) => {
        $($module.add_function(pyo3::wrap_pyfunction!($function, $module)?)?;)*
    };
}

/// The compiled half of falaj; import `falaj` instead.
#[pyo3::pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // First: classes are made once a process, and must not be a subinterpreter's.
    gil_cell::expect_main(module.py())?;
    add!(module, add_class:
        any_topic::AnyTopic, partitioned_topic::PartitionedTopic,
        arrow::ArrowBatch, arrow::ArrowStream, batch::Batch, batch::BatchRecords, batch::Batches,
        batch::Values, batch::ValuesIterator, buffer::BatchView, buffer::View, build::StoreBuilder, consumed::Consumed,
        consumer::Consumer, cut::Cut, cut::CutEnd, cut::CutFile, cut::CutLog, cut::CutSegment, draft::NewRecord,
        floor::Floor, follow::Bell, follow::Follower,
        follow::Ticket, follow::Watch, iterate::Records, bulk_load::Part, opened::Opened, producers::ExpiringProducer,
        queue::Queue,
        queue_job::Job, receipts::Receipts, record::Record, shipping::Shipping, store::Store, topic::Topic,
        transaction::Transaction, view::PlaceView);
    add!(module, add_function:
        admin::_backup, admin::_count_from, admin::_info, admin::_repair, admin::_topic_info,
        admin::_verify,
        arrow::_arrow, arrow::_arrow_of, arrow::_arrow_stream, checksum::_crc32, collect::_expect_record, compact::_compact,
        compact::_mark_compacted, consumers::_delete_group,
        consumers::_forget_topic, consumers::_group_names, consumers::_groups, consumers::_position_of,
        consumers::_seek_group, consumers::_topic_in_log, payload::_text_or_bytes, plain::_expect_json,
        plain::_expect_msgpack, queue::_backoff, queue::_delete_queue, queue::_expect_queue,
        queue::_queue_overview, queue::_queues, queue::_redrive, queue::_topic_of_queue, queue_job::_reason_of,
        retention::_configure_min_sync, retention::_configure_shipping,
        retention::_configure_store,
        retention::_configure_topic, retention::_maintain, retention::_set_properties,
        shipping::_acknowledge_ends, shipping::_min_sync, shipping::_shipping, transaction::_cursor);
    leaving::register(module.py())?;
    // The version of the workspace: one place, Cargo.toml.
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
