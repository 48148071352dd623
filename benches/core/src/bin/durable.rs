//! Durable appends of one thread beside F, interleaved, as a line of JSON on standard output.
//!
//! F is a store into a mapped file, allocated as a segment is, followed by fdatasync. Each store
//! goes into new space, as in a log. The first sync of a page that was only allocated costs the
//! file system more than one of a page that was written before. So a wrapping file would be faster
//! than any log can be. Figures are nanoseconds per record.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{File, Map, MapAccess, OpenMode, Storage};
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};

/// Rounds in which both run once; one more before them is thrown away.
const ROUNDS: usize = 7;
/// Turns of each in a round: a disk has good and bad moments, and both must meet them all.
const TURNS: usize = 10;
/// A round ends early on a disk so slow that it would take longer than this.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// Records that one turn appends.
const RECORDS: u64 = 50;
/// Bytes of a value, and of the block that it makes.
const VALUE: usize = 100;
const BLOCK: u64 = 136;
/// Bytes of F's file: those of a segment.
const FILE: u64 = 64 << 20;
/// Position of its first block.
const FIRST: u64 = 4096;

struct Floor {
    file: Arc<dyn File>,
    map: Map,
    at: u64,
}

impl Floor {
    fn new(path: &Path) -> Self {
        let file = RealStorage::new().open(path, OpenMode::CreateNew(0o600)).expect("a file");
        file.allocate(FILE).expect("room");
        file.sync_data().expect("a sync");
        let map = file.map(FILE, MapAccess::Write).expect("a map");
        Self { file, map, at: FIRST }
    }

    fn append(&mut self, value: &[u8]) {
        self.map.write(self.at + 32, value).expect("a store");
        self.map.store(self.at, BLOCK).expect("a store");
        self.file.sync_data().expect("a sync");
        self.at += BLOCK;
    }
}

fn per_record(mut append: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..RECORDS).for_each(|_| append());
    start.elapsed().as_nanos() as f64 / RECORDS as f64
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[allow(clippy::print_stdout, reason = "the program's result")]
fn main() {
    let place = tempfile::tempdir_in(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let place = place.expect("a directory to work in");
    let mut floor = Floor::new(&place.path().join("floor"));
    let store = Store::open_with(place.path().join("store"), &StoreOptions::default());
    let store = store.expect("the store opens");
    let topic = Topic::open(&store, "durable", &TopicOptions::default()).expect("the topic opens");
    let value = [b'v'; VALUE];
    let (mut ours_ns, mut floor_ns) = (Vec::new(), Vec::new());
    let mut ours = || {
        let appended = topic.append_to(0, &NewRecord::new(&value), Some(SyncMode::Durable));
        appended.expect("an append succeeds");
    };
    for _ in 0..=ROUNDS {
        let (mut our_sum, mut floor_sum, mut turns) = (0.0, 0.0, 0);
        let start = Instant::now();
        while turns < TURNS && start.elapsed() < ROUND_MAX {
            floor_sum += per_record(|| floor.append(&value));
            our_sum += per_record(&mut ours);
            turns += 1;
        }
        ours_ns.push(our_sum / turns as f64);
        floor_ns.push(floor_sum / turns as f64);
    }
    let (ours_ns, floor_ns) = (&ours_ns[1..], &floor_ns[1..]);
    let (ours, least) = (median(ours_ns), median(floor_ns));
    println!(
        "{}",
        serde_json::json!({
            "name": "rust durable append, fresh pages", "floor": "mapped store + fdatasync",
            "ours_ns": ours, "floor_ns": least, "ratio": least / ours, "rounds_ns": ours_ns,
            "floor_rounds_ns": floor_ns,
        })
    );
}
