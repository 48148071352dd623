//! The bytes of a store after recorded operations equal the recorded bytes.
//!
//! Operations are drawn from a seed and run on a machine whose clock and random numbers the test
//! sets. One machine is in memory, where stores pass through a sink; the other has real files,
//! which are mapped. `recorded.txt` has a checksum of each file that others may read for years:
//! block bodies and headers, indexes, cursors, settings. An encoder that changes one byte fails
//! here. When the format is meant to change, `FALAJ_RECORD=1` writes the checksums again.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::checksum::{crc32, crc32_from};
use falaj::internals::format::names;
use falaj::internals::log::{self, NewBlock};
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{File, Filesystem, OpenMode, Stat, Storage};
use falaj::internals::store::{Store, TopicOptions};
use falaj::internals::topic::{
    BodyWriter, CompactOptions, CursorMove, CursorState, NewRecord, Precondition, SyncMode, Topic,
};
use falaj_twin::memory::MemoryStorage;

use super::stores::{open, quietly, snapshot};

/// Start of the clock: 2026-01-01, in microseconds.
const NOW_US: i64 = 1_767_225_600_000_000;
const SEEDS: u64 = 8;
const STEPS: u64 = 300;
/// Bytes at the beginning of a segment's page that identify the segment; marks follow them.
const IDENTITY: usize = 288;

/// A machine whose clock stands still, and whose random numbers are counted.
#[derive(Debug)]
struct Fixed {
    inner: Arc<dyn Storage>,
    now_us: AtomicI64,
    random: AtomicU64,
}

impl Storage for Fixed {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Arc<dyn File>> {
        self.inner.open(path, how)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename_new(from, to)
    }
    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename_over(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)
    }
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.inner.create_dir(path, mode)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }
    fn filesystem(&self, path: &Path) -> io::Result<Filesystem> {
        self.inner.filesystem(path)
    }
    fn now_us(&self) -> i64 {
        self.now_us.load(Ordering::SeqCst)
    }
    fn random(&self) -> io::Result<u64> {
        Ok(mixed(self.random.fetch_add(1, Ordering::SeqCst)))
    }
    fn process_number(&self) -> u64 {
        self.inner.process_number()
    }
}

fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0) % bound
    }

    fn bytes(&mut self, longest: u64) -> Vec<u8> {
        let len = self.below(longest + 1);
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// A record that owns its data.
struct Owned {
    value: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    event_time_ns: Option<i64>,
}

impl Owned {
    fn plain(draw: &mut Draw) -> Self {
        // Both sides of the limits for checksums within the header, and for each length prefix.
        let longest = [0, 5, 60, 127, 128, 1000, 1030, 3000][draw.below(8) as usize];
        let value = Some(draw.bytes(longest));
        Self { value, key: None, headers: Vec::new(), event_time_ns: None }
    }

    fn any(draw: &mut Draw) -> Self {
        let mut record = Self::plain(draw);
        if draw.below(3) > 0 {
            record.key = Some(format!("key-{}", draw.below(20)).into_bytes());
        }
        if draw.below(5) == 0 {
            record.value = None;
        }
        for i in 0..draw.below(4) {
            let value = (draw.below(4) > 0).then(|| draw.bytes(30));
            record.headers.push((format!("h{i}"), value));
        }
        if draw.below(3) == 0 {
            record.event_time_ns = Some(NOW_US * 1000 + draw.below(1 << 40) as i64 - (1 << 39));
        }
        record
    }

    fn lent<T>(records: &[Self], use_them: impl FnOnce(&[NewRecord<'_>]) -> T) -> T {
        let headers: Vec<Vec<_>> = records
            .iter()
            .map(|r| r.headers.iter().map(|(name, v)| (name.as_str(), v.as_deref())).collect())
            .collect();
        let lent: Vec<_> = records
            .iter()
            .zip(&headers)
            .map(|(record, headers)| NewRecord {
                value: record.value.as_deref(),
                key: record.key.as_deref(),
                headers,
                event_time_ns: record.event_time_ns,
            })
            .collect();
        use_them(&lent)
    }
}

/// A topic with its own log, two topics that share a log, and a compacted one.
fn topics(store: &Store) -> [Topic; 4] {
    let open = |name: &str, log: Option<&str>, partitions: u32, compacted: bool| {
        let options = TopicOptions {
            log: log.map(Into::into),
            partitions: Some(partitions),
            segment_bytes: Some(64 << 10),
            compacted: Some(compacted),
            ..TopicOptions::default()
        };
        Topic::open(store, name, &options).unwrap()
    };
    [
        open("own", None, 1, false),
        open("wide", Some("shared"), 4, false),
        open("beside", Some("shared"), 2, false),
        open("last", None, 2, true),
    ]
}

/// The state that changes from step to step.
struct Running {
    machine: Arc<Fixed>,
    path: PathBuf,
    store: Store,
    topics: [Topic; 4],
    producer: [u64; 4],
    cursor: u64,
}

impl Running {
    fn start(inner: Arc<dyn Storage>, path: &Path) -> Self {
        let (now_us, random) = (AtomicI64::new(NOW_US), AtomicU64::new(1));
        let machine = Arc::new(Fixed { inner, now_us, random });
        let storage: Arc<dyn Storage> = machine.clone();
        let path = path.join("store");
        let store = open(&storage, &path).unwrap();
        let topics = topics(&store);
        Self { machine, path, store, topics, producer: [7; 4], cursor: 0 }
    }

    /// One step, drawn from the seed alone, never from the store's content.
    fn step(&mut self, draw: &mut Draw) {
        let number = draw.below(4) as usize;
        let topic = self.topics[number].clone();
        let partition = draw.below(topic.partitions().into()) as u32;
        let sync = [None, Some(SyncMode::Interval), Some(SyncMode::Durable)];
        let sync = sync[(draw.below(12) as usize).saturating_sub(9)];
        self.machine.now_us.fetch_add(draw.below(2000) as i64 - 100, Ordering::SeqCst);
        match draw.below(16) {
            0..4 => self.append(&topic, partition, &Owned::plain(draw), sync),
            4..7 => self.append(&topic, partition, &Owned::any(draw), sync),
            7 => {
                let records: Vec<_> = (0..1 + draw.below(10)).map(|_| Owned::plain(draw)).collect();
                Owned::lent(&records, |r| topic.extend_to(partition, r, sync).unwrap());
            }
            8 => {
                let records: Vec<_> = (0..1 + draw.below(9)).map(|_| Owned::any(draw)).collect();
                Owned::lent(&records, |r| topic.extend_to(partition, r, sync).unwrap());
            }
            9 => {
                let records = [Owned::any(draw), Owned::plain(draw), Owned::plain(draw)];
                Owned::lent(&records, |r| {
                    let several = [(1, &r[..2]), (0, &r[2..])];
                    let parts = if topic.partitions() > 1 { &several[..] } else { &several[1..] };
                    topic.extend_partitions(parts, sync).unwrap();
                });
            }
            10 => {
                let expected =
                    topic.expect_offset_in(partition, topic.end(partition).unwrap()).unwrap();
                self.append_if(&topic, partition, &Owned::any(draw), expected, sync);
            }
            11 => {
                self.producer[number] += draw.below(2);
                let once = topic.expect_sequence("till", self.producer[number]).unwrap();
                self.append_if(&topic, partition, &Owned::any(draw), once, sync);
            }
            12 | 13 => self.transact(draw, sync),
            14 => topic.flush().unwrap(),
            _ => self.rarely(draw, &topic, partition),
        }
    }

    fn append(&self, topic: &Topic, partition: u32, record: &Owned, sync: Option<SyncMode>) {
        Owned::lent(std::slice::from_ref(record), |records| {
            topic.append_to(partition, &records[0], sync).unwrap();
        });
    }

    fn append_if(
        &self,
        topic: &Topic,
        partition: u32,
        record: &Owned,
        precondition: Precondition<'_>,
        sync: Option<SyncMode>,
    ) {
        Owned::lent(std::slice::from_ref(record), |records| {
            // A repeat with another partition than the first time is refused.
            let _ = topic.append_if_to(partition, &records[0], &[precondition], sync);
        });
    }

    /// Append records for up to two topics of the shared log, and move a cursor, at once.
    fn transact(&mut self, draw: &mut Draw, sync: Option<SyncMode>) {
        let [_, wide, beside, _] = &self.topics;
        let mut bodies = [BodyWriter::default(), BodyWriter::default()];
        for body in &mut bodies {
            let records: Vec<_> = (0..1 + draw.below(4)).map(|_| Owned::any(draw)).collect();
            body.begin(true, records.iter().find_map(|record| record.event_time_ns));
            Owned::lent(&records, |records| records.iter().for_each(|r| body.push(r)));
        }
        let is_interval = sync.unwrap_or_default() == SyncMode::Interval;
        let block = |topic: &Topic, partition, body| block(topic, partition, body, is_interval);
        let both = [block(wide, 2, &bodies[0]), block(beside, 1, &bodies[1])];
        let blocks = &both[..draw.below(3) as usize];
        let from = (self.cursor > 0)
            .then(|| CursorState { offset: self.cursor, ..CursorState::default() });
        self.cursor += 1 + draw.below(5);
        let to = CursorState { offset: self.cursor, ..CursorState::default() };
        let moved =
            [log::Precondition::Cursor(CursorMove { name: b"billing", to, from, metadata: b"" })];
        let with_cursor = blocks.is_empty() || draw.below(2) == 0;
        if !with_cursor {
            self.cursor = from.map_or(0, |from| from.offset);
        }
        let moved = if with_cursor { &moved[..] } else { &[] };
        let mut firsts = vec![0; blocks.len()];
        let appended = wide.log().append_if(moved, blocks, is_interval, &mut firsts).unwrap();
        if sync == Some(SyncMode::Durable) {
            wide.log().sync_to(appended.end).unwrap();
        }
    }

    fn rarely(&mut self, draw: &mut Draw, topic: &Topic, partition: u32) {
        match draw.below(6) {
            0 => topic.log().roll_now().unwrap(),
            1 => {
                let end = topic.end(partition).unwrap();
                topic.trim(&[(partition, draw.below(end / 2 + 1))]).unwrap();
            }
            2 => {
                let options = CompactOptions::default().seal(true);
                self.topics[3].compact(&options, &mut quietly).unwrap();
            }
            3 => {
                let start = Start::Earliest;
                let own = std::slice::from_ref(&self.topics[0]);
                let mut group = GroupMember::open(&self.store, "readers", own, start).unwrap();
                let reached = group.committed("own", 0).unwrap();
                let end = self.topics[0].end(0).unwrap();
                let next = reached + draw.below(end - reached + 1);
                let first = self.topics[0].first(0).unwrap();
                group.commit("own", 0, next.max(first), true).unwrap();
                group.close().unwrap();
            }
            _ => self.reopen(),
        }
    }

    fn reopen(&mut self) {
        let storage: Arc<dyn Storage> = self.machine.clone();
        let other = open(&storage, &self.path).unwrap();
        let topics = topics(&other);
        (self.store, self.topics) = (other, topics);
    }

    /// Close, and list each file with the checksum of its lasting part.
    fn finish(self) -> Vec<(String, u32)> {
        let Self { machine, path, store, topics, .. } = self;
        topics.iter().for_each(|topic| topic.flush().unwrap());
        drop(topics);
        drop(store);
        let storage: Arc<dyn Storage> = machine;
        let files = snapshot(&storage, &path);
        let named = files.iter().filter_map(|(file, bytes)| {
            let name = file.strip_prefix(&path).unwrap().to_str().unwrap().to_owned();
            let last = file.file_name().unwrap().to_str().unwrap();
            let lasts = names::parse_segment(last).is_some()
                || names::parse_index(last).is_some()
                || last.ends_with(".json")
                || name.starts_with("consumers/");
            let is_segment = names::parse_segment(last).is_some();
            lasts.then(|| (name, if is_segment { segment_crc(bytes) } else { crc32(bytes) }))
        });
        named.collect()
    }
}

fn block<'a>(topic: &Topic, partition: u32, body: &'a BodyWriter, interval: bool) -> NewBlock<'a> {
    let (highest_event_ns, uses_append_time) = body.times();
    NewBlock {
        topic: topic.settings().number + partition,
        flags: body.flags(),
        count: body.count(),
        body: body.body(),
        lead: &[],
        body_crc: Some(crc32(body.body())),
        highest_event_ns,
        uses_append_time,
        interval,
    }
}

/// Marks are excluded: they depend on when a background thread synced.
fn segment_crc(bytes: &[u8]) -> u32 {
    let body = &bytes[FIRST_BLOCK as usize..];
    let end = body.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    crc32_from(crc32(&bytes[..IDENTITY]), &body[..end])
}

fn run(inner: Arc<dyn Storage>, path: &Path, seed: u64) -> String {
    let mut draw = Draw(seed << 32);
    let mut running = Running::start(inner, path);
    for _ in 0..STEPS {
        running.step(&mut draw);
    }
    let mut text = String::new();
    for (name, crc) in running.finish() {
        writeln!(text, "{seed} {name} {crc:08x}").unwrap();
    }
    text
}

#[test]
fn recorded_operations_leave_the_recorded_bytes() {
    let (mut in_memory, mut in_files) = (String::new(), String::new());
    for seed in 0..SEEDS {
        let memory = MemoryStorage::new();
        memory.create_dir(Path::new("/t"), 0o700).unwrap();
        in_memory += &run(Arc::new(memory), Path::new("/t"), seed);
        let directory = tempfile::tempdir().unwrap();
        in_files += &run(Arc::new(RealStorage::new()), directory.path(), seed);
    }
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/recorded.txt");
    if std::env::var_os("FALAJ_RECORD").is_some() {
        std::fs::write(&recorded, &in_memory).unwrap();
    }
    let recorded = std::fs::read_to_string(recorded).unwrap();
    for (what, found) in [("memory", &in_memory), ("files", &in_files)] {
        let differs = found.lines().zip(recorded.lines()).find(|(found, old)| found != old);
        assert_eq!(differs, None, "in {what}: found and recorded checksums");
        assert_eq!(found.lines().count(), recorded.lines().count(), "in {what}");
    }
}
