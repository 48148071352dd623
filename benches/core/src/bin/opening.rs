//! Time to open a store and one of its topics and to append, as lines of JSON on standard output.
//!
//! One log holds as many topics as a log takes, partitions counted, each with a record before and
//! one after the others. The other log has one topic, whose active segment is nearly full of
//! records appended singly. The lower bound is a log of one topic without records, in turns. The
//! process that opens is the only one, so it recovers the log each time. Closing is not timed.
//! Figures are nanoseconds per opening.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};

/// Rounds in which both are opened once; one more before them is thrown away.
const ROUNDS: usize = 15;
/// Topics that share a log, and partitions of each: as many as a log takes.
const TOPICS: u32 = 100;
const PARTITIONS: u32 = 100;
/// Bytes in the active segment of the other log.
const CONTENT: usize = 63 << 20;
/// Bytes of its values.
const VALUE: usize = 100;

fn fill_many(dir: &Path) -> String {
    let store = Store::open_with(dir, &StoreOptions::default()).expect("the store opens");
    let options = TopicOptions {
        log: Some("shop".into()),
        partitions: Some(PARTITIONS),
        ..TopicOptions::default()
    };
    let name = |number| format!("topic-{number}");
    let open = |number| Topic::open(&store, &name(number), &options).expect("the topic opens");
    let topics: Vec<_> = (0..TOPICS).map(open).collect();
    for partition in (0..PARTITIONS).chain(0..PARTITIONS) {
        for topic in &topics {
            append(topic, partition);
        }
    }
    name(TOPICS / 2)
}

fn append(topic: &Topic, partition: u32) {
    let value = NewRecord::new(black_box(&[b'v'; VALUE]));
    let appended = topic.append_to(partition, &value, Some(SyncMode::None));
    black_box(appended.expect("an append succeeds"));
}

fn fill_one(dir: &Path, bytes: usize) -> String {
    let store = Store::open_with(dir, &StoreOptions::default()).expect("the store opens");
    let topic = Topic::open(&store, "one", &TopicOptions::default()).expect("the topic opens");
    let block = VALUE + 36;
    for _ in 0..bytes / block {
        append(&topic, 0);
    }
    "one".into()
}

fn open(dir: &Path, name: &str) -> f64 {
    let start = Instant::now();
    let store = Store::open_with(dir, &StoreOptions::default()).expect("the store opens");
    let topic = Topic::open(&store, name, &TopicOptions::default()).expect("the topic opens");
    append(&topic, 0);
    start.elapsed().as_nanos() as f64
}

fn measure(ours: (&Path, &str), floor: (&Path, &str)) -> (Vec<f64>, Vec<f64>) {
    let _ = (open(ours.0, ours.1), open(floor.0, floor.1));
    (0..ROUNDS).map(|_| (open(ours.0, ours.1), open(floor.0, floor.1))).unzip()
}

fn main() {
    let place = tempfile::tempdir_in(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let place = place.expect("a directory to work in");
    let within = |name: &str| -> PathBuf { place.path().join(name) };
    let (many, large, empty) = (within("many"), within("large"), within("empty"));
    let none = fill_one(&empty, 0);
    let rows = [
        ("rust open, 10,000 topics in a log", fill_many(&many), many),
        ("rust open, a full active segment", fill_one(&large, CONTENT), large),
    ];
    for (title, name, dir) in &rows {
        print(title, &measure((dir, name), (&empty, &none)));
    }
}

#[allow(clippy::print_stdout, reason = "the program's result")]
fn print(name: &str, (ours, floor): &(Vec<f64>, Vec<f64>)) {
    let median = |samples: &[f64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    println!(
        "{}",
        serde_json::json!({
            "name": name, "floor": "a log without records",
            "ours_ns": median(ours), "floor_ns": median(floor),
            "rounds_ns": ours, "floor_rounds_ns": floor,
        })
    );
}
