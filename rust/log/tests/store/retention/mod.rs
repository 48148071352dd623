//! Retention by limits: records beyond a limit are deleted automatically, and no others.

mod configure;
mod limits;
pub(crate) mod rolling;
mod tenants;
mod whole;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::names;
use falaj::internals::storage::Storage;
use falaj::internals::store::{RetentionChange, Store};
use falaj::internals::topic::{SyncMode, Topic};

use crate::stores::{fill, log_dir, open, topic, value};

/// A store with a topic of so many records of 500 bytes, in segments of about 120 records.
///
/// It was closed and opened again, so that no roll is waiting for retention.
fn filled(storage: &Arc<dyn Storage>, path: &Path, records: u64) -> (Store, Topic) {
    let store = open(storage, path).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 0, records);
    orders.sync_clean().unwrap();
    drop((orders, store));
    let store = open(storage, path).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    (store, orders)
}

fn bytes(limit: u64) -> RetentionChange {
    RetentionChange::default().bytes(limit)
}

fn age(age_ms: u64) -> RetentionChange {
    RetentionChange::default().age(Duration::from_millis(age_ms))
}

fn records(limit: u64) -> RetentionChange {
    RetentionChange::default().records(limit)
}

fn segments(storage: &Arc<dyn Storage>, store: &Path, topic: &str) -> Vec<u64> {
    let names = storage.list(&log_dir(storage, store, topic)).unwrap();
    names.iter().filter_map(|name| names::parse_segment(name)).collect()
}

/// Bytes of a log's segments and their indexes.
fn taken(storage: &Arc<dyn Storage>, store: &Path, topic: &str) -> u64 {
    let dir = log_dir(storage, store, topic);
    let names = storage.list(&dir).unwrap();
    let counts =
        |name: &&String| names::parse_segment(name).is_some() || names::parse_index(name).is_some();
    // Retention may be running now.
    let stats = names.iter().filter(counts).map(|name| storage.stat(&dir.join(name)));
    stats.map(|stat| stat.map_or(0, |stat| stat.allocated)).sum()
}

/// Check that all records from the first offset on are as appended.
fn assert_whole(topic: &Topic) {
    let (mut next, end) = (topic.first(0).unwrap(), topic.end(0).unwrap());
    while let Err(gone) = read_on(topic, &mut next, end) {
        // Retention may be running now; then the error says where to resume.
        let Error::OffsetOutOfRange { first, .. } = gone else { panic!("{gone}") };
        assert!(next < first && first <= topic.first(0).unwrap(), "{gone}");
        next = first;
    }
}

/// Read from an offset, which advances, to the end.
fn read_on(topic: &Topic, next: &mut u64, end: u64) -> Result<()> {
    let mut scan = topic.scan_partition(0, *next, None)?;
    for i in *next..end {
        *next = i;
        let record = scan.next().transpose()?.unwrap();
        assert_eq!((record.offset(), record.value()), (i, Some(value(i).as_slice())));
    }
    assert!(scan.next().transpose()?.is_none());
    Ok(())
}
