//! Examples: small stores with one of everything, to be harmed later, and a note of what was
//! written.
//!
//! Owns five topics, made by the same calls from the same seed each time:
//!
//! | topic | log | what is special |
//! |---|---|---|
//! | `orders` | its own | values without keys, singly and in batches, several segments |
//! | `eu` | `shop` | three partitions, groups over them; keys, headers, event times, tombstones |
//! | `us` | its own | rarely written: one segment, mostly empty |
//! | `bulk` | its own | large blocks in segments of 128 KiB |
//! | `prices` | its own | compacted, then written to again |
//!
//! Beside them are two groups, a queue and a bulk load ([`crate::beside`]).
//!
//! A store is left *closed*, or *killed*: everything was stored, nothing recovered, and a part
//! synced.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{CompactOptions, NewRecord, SyncMode, Topic};
use falaj_twin::memory::MemoryStorage;

use crate::beside::{self, Beside};
use crate::random::Random;

/// The store's directory in the memory storage.
pub const ROOT: &str = "/store";

const SEGMENT: u64 = 64 << 10;

/// How a store was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub mode: WriteMode,
    /// Killed, not closed.
    pub killed: bool,
}

pub const VARIANTS: [Variant; 4] = [
    Variant { mode: WriteMode::Mapped, killed: false },
    Variant { mode: WriteMode::Mapped, killed: true },
    Variant { mode: WriteMode::Pwrite, killed: false },
    Variant { mode: WriteMode::Pwrite, killed: true },
];

impl Variant {
    pub fn name(self) -> String {
        format!("{}-{}", self.mode.name(), if self.killed { "killed" } else { "closed" })
    }

    pub fn named(name: &str) -> Option<Self> {
        VARIANTS.into_iter().find(|variant| variant.name() == name)
    }
}

/// One record, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub event_time_ns: Option<i64>,
}

impl Written {
    pub fn record<'a>(&'a self, headers: &'a [(&'a str, Option<&'a [u8]>)]) -> NewRecord<'a> {
        NewRecord {
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers,
            event_time_ns: self.event_time_ns,
        }
    }

    pub fn borrowed(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
    }

    fn plain(random: &mut Random, most: u64) -> Self {
        let len = 1 + random.below(most) as usize;
        Self { value: Some(random.bytes(len)), ..Self::default() }
    }

    fn rich(random: &mut Random, time_us: i64) -> Self {
        let mut record = Self::plain(random, 300);
        if random.once_in(2) {
            record.key = Some(format!("key-{}", random.below(40)).into_bytes());
        }
        if random.once_in(9) {
            record.value = None;
        }
        if random.once_in(3) {
            let value = (!random.once_in(4)).then(|| b"a header's value".to_vec());
            record.headers = vec![("trace".into(), value), ("origin".into(), Some(vec![1, 2]))];
        }
        if random.once_in(2) {
            record.event_time_ns = Some(time_us * 1000 - random.below(5_000_000_000) as i64);
        }
        record
    }
}

/// A store in the memory storage, and what is in it.
#[derive(Debug)]
pub struct Example {
    pub disk: MemoryStorage,
    pub variant: Variant,
    /// Records by topic and partition, by offset.
    pub written: BTreeMap<(String, u32), Vec<Written>>,
    /// How many of them were synced in the end, by topic and partition.
    pub synced: BTreeMap<(String, u32), u64>,
    /// All files with their lengths, sorted.
    pub files: Vec<(PathBuf, u64)>,
    /// Logs, by topic.
    pub logs: BTreeMap<String, PathBuf>,
    /// The parts beside its records.
    pub beside: Beside,
}

/// How much is written.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    /// About 1 MiB of files.
    Full,
    /// A fourth of that, and nothing is compacted.
    Small,
}

pub fn options(mode: WriteMode) -> StoreOptions {
    // A forged lock may name a living process as its holder. Don't wait for it longer than a case
    // lasts.
    let lock_timeout = Duration::from_secs(4);
    StoreOptions { write_mode: Some(mode), lock_timeout, ..StoreOptions::default() }
}

impl Example {
    /// Make an example. The same arguments make the same bytes.
    pub fn make(variant: Variant, size: Size, seed: u64) -> Self {
        let disk = MemoryStorage::with_capacity(4 * SEGMENT).seeded(seed);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let mut maker = Maker {
            random: Random::new(seed),
            disk: disk.clone(),
            now_us: 1_790_000_000_000_000,
            written: BTreeMap::new(),
        };
        let store = Store::open_on(storage, ROOT, &options(variant.mode)).unwrap();
        let rounds = match size {
            Size::Full => 6,
            Size::Small => 1,
        };
        let topics = Topics::open(&store);
        for _ in 0..rounds {
            maker.round(&topics);
        }
        let beside = maker.beside(&store, &topics);
        topics.flush();
        let synced: BTreeMap<_, _> =
            maker.written.iter().map(|(place, all)| (place.clone(), all.len() as u64)).collect();
        let mut logs = BTreeMap::new();
        for topic in topics.all() {
            logs.insert(topic.name().to_owned(), topic.log().dir().to_path_buf());
        }
        let disk = if variant.killed {
            maker.tail(&topics);
            let survivor = disk.survivor();
            drop((topics, store));
            survivor.restart()
        } else {
            drop((topics, store));
            disk.restart()
        };
        let mut files = Vec::new();
        walk(&disk, Path::new(ROOT), &mut files);
        let written = maker.written;
        Self { disk, variant, written, synced, files, logs, beside }
    }

    /// Number of bits in all files.
    pub fn bits(&self) -> u64 {
        self.files.iter().map(|(_, len)| len * 8).sum()
    }

    /// File, position and bit of the `n`-th bit.
    pub fn bit(&self, n: u64) -> (&Path, u64, u8) {
        let mut left = n;
        for (path, len) in &self.files {
            if left < len * 8 {
                return (path, left / 8, (left % 8) as u8);
            }
            left -= len * 8;
        }
        panic!("there are {} bits, none numbered {n}", self.bits());
    }

    /// The file of a group or a queue.
    pub fn beside_file(&self, name: &str) -> &Path {
        let is_it = |path: &&PathBuf| is_beside(path) && path.ends_with(name);
        self.files.iter().map(|(path, _)| path).find(is_it).unwrap()
    }

    /// Topics that a file concerns; all if it is the store's own.
    pub fn topics_of(&self, file: &Path) -> Vec<&str> {
        if is_beside(file) {
            let name = file.file_name().and_then(|name| name.to_str());
            return name.and_then(beside::topic_of).into_iter().collect();
        }
        let of_topic = |name: &str, log: &Path| {
            file.starts_with(log) || file.starts_with(Path::new(ROOT).join("topics").join(name))
        };
        let own = self.logs.iter().filter(|(name, log)| of_topic(name, log));
        let own: Vec<&str> = own.map(|(name, _)| name.as_str()).collect();
        if own.is_empty() { self.logs.keys().map(String::as_str).collect() } else { own }
    }
}

/// Whether a file is a group's or a queue's.
pub fn is_beside(file: &Path) -> bool {
    ["consumers", "queues"].iter().any(|dir| file.starts_with(Path::new(ROOT).join(dir)))
}

/// All files below a directory with their lengths, sorted.
pub fn walk(storage: &dyn Storage, dir: &Path, files: &mut Vec<(PathBuf, u64)>) {
    for name in storage.list(dir).unwrap() {
        let path = dir.join(name);
        let stat = storage.stat(&path).unwrap();
        if stat.is_dir {
            walk(storage, &path, files);
        } else {
            files.push((path, stat.len));
        }
    }
}

/// The content of a file.
pub fn read(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    let file = storage.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

struct Topics {
    orders: Topic,
    eu: Topic,
    us: Topic,
    bulk: Topic,
    prices: Topic,
}

impl Topics {
    fn open(store: &Store) -> Self {
        let open = |name: &str, log: Option<&str>, partitions, segment_bytes| {
            let options = TopicOptions {
                log: log.map(Into::into),
                partitions: Some(partitions),
                segment_bytes: Some(segment_bytes),
                sync_interval_ms: Some(3_600_000),
                compacted: Some(name == "prices"),
                ..TopicOptions::default()
            };
            Topic::open(store, name, &options).unwrap().with_sync(SyncMode::None)
        };
        Self {
            orders: open("orders", None, 1, SEGMENT),
            eu: open("eu", Some("shop"), 3, SEGMENT),
            us: open("us", None, 1, SEGMENT),
            bulk: open("bulk", None, 1, 2 * SEGMENT),
            prices: open("prices", None, 1, SEGMENT),
        }
    }

    fn all(&self) -> [&Topic; 5] {
        [&self.orders, &self.eu, &self.us, &self.bulk, &self.prices]
    }

    fn flush(&self) {
        self.all().iter().for_each(|topic| topic.flush().unwrap());
    }
}

struct Maker {
    random: Random,
    disk: MemoryStorage,
    now_us: i64,
    written: BTreeMap<(String, u32), Vec<Written>>,
}

impl Maker {
    fn round(&mut self, topics: &Topics) {
        for i in 0..120 {
            self.one(&topics.orders, 0, false);
            if i % 12 == 0 {
                self.many(&topics.orders, 0, 9, false);
            }
        }
        for i in 0..60 {
            self.one(&topics.eu, i % 3, true);
            if i % 4 == 0 {
                self.group(&topics.eu);
            }
            if i % 9 == 0 {
                self.many(&topics.us, 0, 3, i % 2 == 0);
            }
        }
        self.many(&topics.bulk, 0, 60, false);
        self.many(&topics.bulk, 0, 90, true);
        for _ in 0..30 {
            self.one(&topics.prices, 0, true);
        }
    }

    /// Compact, and make the parts beside the records.
    fn beside(&mut self, store: &Store, topics: &Topics) -> Beside {
        let options = CompactOptions::default().seal(true);
        assert!(topics.prices.compact(&options, &mut |_, _| Ok(())).unwrap().removed > 0);
        for i in 0..6 {
            self.one(&topics.prices, 0, i % 2 == 0);
        }
        topics.flush();
        let made = self.make(4, true);
        with_records(&made, |records| Beside::job(store, records).unwrap());
        self.note(&topics.us, 0, made);
        Beside::make(store).unwrap()
    }

    /// Append a little more, without a sync.
    fn tail(&mut self, topics: &Topics) {
        for i in 0..5 {
            self.one(&topics.orders, 0, false);
            self.group(&topics.eu);
            self.one(&topics.us, 0, i % 2 == 0);
        }
        self.many(&topics.bulk, 0, 20, false);
    }

    fn make(&mut self, count: usize, rich: bool) -> Vec<Written> {
        self.now_us += 1 + self.random.below(3_000_000) as i64;
        self.disk.set_now_us(self.now_us);
        let now_us = self.now_us;
        let one = |_| match rich {
            true => Written::rich(&mut self.random, now_us),
            false => Written::plain(&mut self.random, 500),
        };
        (0..count).map(one).collect()
    }

    fn note(&mut self, topic: &Topic, partition: u32, records: Vec<Written>) {
        self.written.entry((topic.name().to_owned(), partition)).or_default().extend(records);
    }

    fn one(&mut self, topic: &Topic, partition: u32, rich: bool) {
        let made = self.make(1, rich);
        topic.append_to(partition, &made[0].record(&made[0].borrowed()), None).unwrap();
        self.note(topic, partition, made);
    }

    fn many(&mut self, topic: &Topic, partition: u32, count: usize, rich: bool) {
        let made = self.make(count, rich);
        with_records(&made, |records| topic.extend_to(partition, records, None).unwrap());
        self.note(topic, partition, made);
    }

    fn group(&mut self, topic: &Topic) {
        let parts: Vec<_> =
            (0..3).rev().map(|partition| (partition, self.make(2, partition > 0))).collect();
        with_records(&parts[0].1, |zero| {
            with_records(&parts[1].1, |one| {
                with_records(&parts[2].1, |two| {
                    let all = [(parts[0].0, zero), (parts[1].0, one), (parts[2].0, two)];
                    topic.extend_partitions(&all, None).unwrap();
                });
            });
        });
        for (partition, made) in parts {
            self.note(topic, partition, made);
        }
    }
}

/// Lend records in the form that the engine takes.
pub fn with_records<T>(written: &[Written], use_them: impl FnOnce(&[NewRecord<'_>]) -> T) -> T {
    let headers: Vec<_> = written.iter().map(Written::borrowed).collect();
    let records: Vec<_> =
        written.iter().zip(&headers).map(|(record, headers)| record.record(headers)).collect();
    use_them(&records)
}
