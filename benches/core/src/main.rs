//! Rust rows of the benchmark table, each beside its lower bound, interleaved, as JSON on standard
//! output.
//!
//! `benches/README.md` says what is measured, and why. Figures are nanoseconds per record: medians
//! of [`ROUNDS`] rounds in which the contestants take turns.

mod floor;

use std::hint::black_box;
use std::time::Instant;

use falaj::internals::segment::Check;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};

/// Rounds in which every contestant runs once.
const ROUNDS: usize = 7;
/// Records that one round appends or reads.
const RECORDS: u64 = 300_000;
/// Bytes of a value.
const VALUE: usize = 100;

struct Row {
    name: &'static str,
    floor: &'static str,
    ours_ns: Vec<f64>,
    floor_ns: Vec<f64>,
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn per_record(records: u64, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / records as f64
}

fn measure(
    name: &'static str,
    floor: &'static str,
    mut ours: impl FnMut() -> f64,
    mut theirs: impl FnMut() -> f64,
) -> Row {
    let mut row = Row { name, floor, ours_ns: Vec::new(), floor_ns: Vec::new() };
    // The first round touches the memory and is thrown away.
    let _ = (ours(), theirs());
    for _ in 0..ROUNDS {
        row.ours_ns.push(ours());
        row.floor_ns.push(theirs());
    }
    row
}

/// Append records, one per call; return nanoseconds per record.
fn append(topic: &Topic, partition: u32, record: &NewRecord<'_>) -> f64 {
    per_record(RECORDS, || {
        for _ in 0..RECORDS {
            let offset = topic.append_to(partition, black_box(record), Some(SyncMode::None));
            black_box(offset.expect("an append succeeds"));
        }
    })
}

fn append_row(topic: &Topic, floor: &floor::Floor) -> Row {
    let value = [b'v'; VALUE];
    let theirs =
        || per_record(RECORDS, || (0..RECORDS).for_each(|_| floor.append(black_box(&value))));
    let ours = || append(topic, 0, &NewRecord::new(&value));
    measure("rust append, one per call", "compare-and-swap, copy, crc, commit word", ours, theirs)
}

/// As [`append_row`], with a lower bound that finds no page there either.
fn fresh_row(topic: &Topic, place: &std::path::Path) -> Row {
    let value = [b'v'; VALUE];
    let theirs = || {
        let floor = floor::Floor::fresh(&place.join("fresh"), RECORDS);
        per_record(RECORDS, || (0..RECORDS).for_each(|_| floor.append(black_box(&value))))
    };
    let ours = || append(topic, 0, &NewRecord::new(&value));
    measure("rust append, one per call, fresh pages", "the same on fresh pages", ours, theirs)
}

/// Appends of another kind beside those of a plain value to partition 0.
fn kind_row(topic: &Topic, name: &'static str, partition: u32, key: Option<&[u8]>) -> Row {
    let value = [b'v'; VALUE];
    let ours = || append(topic, partition, &NewRecord { key, ..NewRecord::new(&value) });
    let theirs = || append(topic, 0, &NewRecord::new(&value));
    measure(name, "a value alone", ours, theirs)
}

/// Read as services do: by the iterator of a topic, which verifies.
fn scan_row(topic: &Topic, floor: &floor::Floor) -> Row {
    let end = topic.end(0).expect("the end is known");
    let ours = || {
        // The store is opened again, so that no block is verified yet.
        let store = Store::open_with(topic.store().path(), &StoreOptions::reading());
        let store = store.expect("the store opens");
        let fresh = Topic::open(&store, topic.name(), &TopicOptions::default());
        let fresh = fresh.expect("the topic opens");
        let mut seen = 0u64;
        let taken = per_record(end, || {
            for record in fresh.scan_partition(0, 0, None).expect("a scan") {
                let record = record.expect("a record");
                let first = record.value().and_then(<[u8]>::first);
                seen += u64::from(*black_box(first.expect("a value"))) & 1;
                black_box(&seen);
            }
        });
        black_box(seen);
        taken
    };
    let theirs = || per_record(floor.blocks(), || floor.walk());
    measure("rust scan, verified", "bare walk over headers", ours, theirs)
}

/// Walk the blocks of a log without a look at their records: the least work of reading.
fn blocks_row(topic: &Topic, name: &'static str, check: Check, floor: &floor::Floor) -> Row {
    let end = topic.end(0).expect("the end is known");
    let ours = || {
        let mut seen = 0u64;
        let taken = per_record(end, || {
            // The log is opened again, so that no block is verified yet.
            let fresh = topic.reopen_to_read().expect("the log opens");
            let mut cursor = fresh.cursor_at(0, 0, check).expect("a cursor");
            while let Some(block) = cursor.next_block().expect("a block") {
                seen += u64::from(black_box(block.body()[0])) & 1;
                black_box(&seen);
            }
        });
        black_box(seen);
        taken
    };
    let theirs = || per_record(floor.blocks(), || floor.walk());
    measure(name, "bare walk over headers", ours, theirs)
}

fn open(dir: &std::path::Path, name: &str) -> Topic {
    open_with(dir, name, &TopicOptions::default())
}

fn open_with(dir: &std::path::Path, name: &str, options: &TopicOptions) -> Topic {
    let store = Store::open_with(dir, &StoreOptions::default()).expect("the store opens");
    Topic::open(&store, name, options).expect("the topic opens")
}

#[allow(clippy::print_stdout, reason = "the program's result")]
fn main() {
    let place = tempfile::tempdir_in(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let place = place.expect("a directory to work in");
    let floor = floor::Floor::new(&place.path().join("floor"), RECORDS);
    let topic = open(&place.path().join("store"), "single");
    let append = append_row(&topic, &floor);
    // As many records as the scans read: half of a shorter walk would be in the caches.
    let end = topic.end(0).expect("the end is known");
    let walked = floor::Floor::filled(&place.path().join("walked"), end);
    let options = TopicOptions { partitions: Some(4), ..TopicOptions::default() };
    let parted = open_with(&place.path().join("store"), "parted", &options);
    let rows = [
        append,
        fresh_row(&topic, place.path()),
        kind_row(&parted, "rust append, with a key", 0, Some(b"user-42")),
        kind_row(&parted, "rust append, to partition 3", 3, None),
        scan_row(&topic, &walked),
        blocks_row(&topic, "rust blocks, verified", Check::Full, &walked),
        blocks_row(&topic, "rust blocks, unverified", Check::None, &walked),
    ];
    for row in rows {
        let (ours, floor) = (median(&row.ours_ns), median(&row.floor_ns));
        println!(
            "{}",
            serde_json::json!({
                "name": row.name, "floor": row.floor, "ours_ns": ours, "floor_ns": floor,
                "rounds_ns": row.ours_ns, "floor_rounds_ns": row.floor_ns,
            })
        );
    }
}
