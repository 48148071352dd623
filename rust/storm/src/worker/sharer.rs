//! The sharer: takes jobs of a queue and reads as a member of a group, beside others who do the
//! same.
//!
//! It also does steps that must happen once: a transaction with conditions, records of two topics
//! and a cursor; a sink's bulk load with its idempotency key; a compaction.
//!
//! Every step is noted in [`Shared`], which reports a broken rule.

use std::path::Path;
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, GroupPartition, Start};
use falaj::internals::error::Error;
use falaj::internals::format::segment::SegmentHeader;
use falaj::internals::queue::{LeasedJob, QueueFile, QueueOptions};
use falaj::internals::sink;
use falaj::internals::store::{RetentionChange, Store, TopicOptions};
use falaj::internals::topic::{
    After, CompactOptions, CursorMove, CursorState, NewRecord, SequenceSpan, SyncMode, Topic,
    Transaction,
};

use super::Wrong;
use crate::acks::{Acks, STOP};
use crate::random::Random;
use crate::shared::{COMPACTED, Held, JOBS, KEYS, PARTITIONS, READ, STEPS, SUNK, Shared, now_ms};
use crate::task::{Layout, Task};

/// The topics: with the jobs, for the group, with the cursor kept by hand, of the sink, to be
/// compacted, and with a copy of each step in the log of the steps.
pub const TOPICS: [&str; 6] = ["jobs", "work", "steps", "sunk", "keys", "copies"];
/// Name of the queue, the group, the cursor, and the series of bulk loads.
pub const NAME: &str = "shared";
/// Records of a bulk load.
pub const OF_A_JOB: u64 = 4;
/// As many jobs, or records of a partition, that no worker has had yet are enough.
const ENOUGH: u64 = 300;
const LEASES_MS: [u64; 3] = [20, 100, 400];
/// Pause between two steps, so that other processes get a turn.
const PAUSE: Duration = Duration::from_micros(500);

/// Options of the topics that are shared.
pub fn options(layout: &Layout, name: &str) -> TopicOptions {
    TopicOptions {
        partitions: Some(if name == "work" { PARTITIONS } else { 1 }),
        segment_bytes: Some(64 << 10),
        sync_interval_ms: Some(layout.interval_ms),
        compacted: (name == "keys").then_some(true),
        log: matches!(name, "steps" | "copies").then(|| "steps".to_owned()),
        ..TopicOptions::default()
    }
}

struct Sharer<'a> {
    task: &'a Task,
    shared: Shared,
    store: Store,
    topics: [Topic; 6],
    queue: QueueFile,
    reader: Option<GroupMember>,
    /// Partitions that it owned at the last look.
    mine: Vec<u32>,
    /// Jobs that it took and left open.
    forgotten: Vec<Held>,
    random: Random,
}

/// Share until stopped; with a number of calls, until nothing is left to do.
pub fn share(task: &Task) -> Result<(), Wrong> {
    let acks = Acks::open(&task.account)?;
    let accounts = task.account.parent().unwrap_or(Path::new("."));
    let shared = Shared::open(accounts, task.id)?;
    let store = Store::open_with(&task.layout.store, &task.layout.store_options())?;
    let open = |name| Topic::open(&store, name, &options(&task.layout, name));
    let [jobs, work, steps, sunk, keys, copies] = TOPICS;
    let topics = [open(jobs)?, open(work)?, open(steps)?, open(sunk)?, open(keys)?, open(copies)?];
    let queue = QueueFile::open(&topics[0], NAME, QueueOptions { ordered: None, capacity: 64 })?;
    let random = Random::new(task.seed, u64::from(task.id));
    let (mine, forgotten) = Default::default();
    let mut sharer =
        Sharer { task, shared, store, topics, queue, reader: None, mine, forgotten, random };
    let is_last = task.calls > 0;
    while acks.word(STOP) == 0 && !(is_last && sharer.is_all_done()?) {
        match sharer.random.below(if is_last { 6 } else { 10 }) {
            0..=2 => sharer.work()?,
            3..=5 => sharer.read()?,
            6 | 7 => sharer.count()?,
            8 => sharer.sink()?,
            _ => sharer.tidy()?,
        }
        std::thread::sleep(PAUSE);
    }
    sharer.close()
}

/// True when a segment of the topic's log replaced the records behind a cut.
fn was_carried_over(topic: &Topic) -> bool {
    let files = std::fs::read_dir(topic.log().dir()).into_iter().flatten().flatten();
    let segments = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
    let header =
        |file: std::fs::DirEntry| SegmentHeader::decode(&std::fs::read(file.path()).ok()?).ok();
    segments.filter_map(header).any(|header| header.supersedes)
}

fn durable(random: &mut Random) -> SyncMode {
    if random.chance(1, 20) { SyncMode::Durable } else { SyncMode::None }
}

impl Sharer<'_> {
    fn is_all_done(&mut self) -> Result<bool, Wrong> {
        let info = self.queue.info(&self.topics[0])?;
        // Not the lower bound of the queue: that waits for records to be on disk, which needs a\n        // sync.
        if info.ready + info.in_flight + info.delayed > 0 {
            return Ok(false);
        }
        let work = &self.topics[1];
        for partition in 0..PARTITIONS {
            if self.shared.is_committed_to(partition) < work.end(partition)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Take jobs, and settle each in some way.
    fn work(&mut self) -> Result<(), Wrong> {
        let jobs = &self.topics[0];
        let end = jobs.end(0)?;
        if self.task.calls == 0 && end < JOBS && self.queue.info(jobs)?.ready < ENOUGH {
            for _ in 0..self.random.magnitude(5).min(JOBS - end) {
                let sync = durable(&mut self.random);
                jobs.append_to(0, &NewRecord::new(b"a job"), Some(sync))?;
            }
        }
        let lease_ms = *self.random.pick(&LEASES_MS);
        let (many, began) = (self.random.between(1, 20) as usize, now_ms());
        let taken = self.queue.take(jobs, many, Duration::from_millis(lease_ms))?;
        let called = (began, now_ms() + 1);
        let mut sorted: [Vec<(Held, LeasedJob)>; 4] = Default::default();
        for job in taken {
            let held = Held { offset: job.lease.offset, attempt: job.lease.delivery };
            self.shared.took(held, called, lease_ms, &|| was_carried_over(jobs))?;
            sorted[[0, 0, 0, 0, 0, 0, 1, 1, 2, 3][self.random.below(10) as usize]]
                .push((held, job));
        }
        let [acked, given, longer, left] = sorted;
        self.extend(longer)?;
        if lease_ms == LEASES_MS[0] && self.random.chance(1, 10) {
            // Too late: other workers have them, or they are to be delivered.
            std::thread::sleep(Duration::from_millis(2 * lease_ms));
        }
        self.give_back(&given)?;
        self.forgotten.extend(left.iter().map(|(held, _)| *held));
        self.ack(&acked, began + lease_ms)
    }

    fn ack(&self, jobs: &[(Held, LeasedJob)], until_ms: u64) -> Result<(), Wrong> {
        let (sure, late): (Vec<_>, Vec<_>) =
            jobs.iter().partition(|(held, _)| self.shared.acks(*held));
        for (held, job) in late {
            match self.queue.ack(&self.topics[0], &[job.to_ack()]) {
                Err(Error::LeaseExpired { .. }) => {}
                Ok(()) => return Err(format!("{held:?} is another's, and was acked").into()),
                Err(error) => return Err(error.into()),
            }
        }
        let acks: Vec<_> = sure.iter().map(|(_, job)| job.to_ack()).collect();
        match self.queue.ack(&self.topics[0], &acks) {
            Ok(()) => Ok(sure.iter().try_for_each(|(held, _)| self.shared.acked(*held))?),
            // Some of them were acked; which ones is not reported.
            Err(Error::LeaseExpired { .. }) if now_ms() >= until_ms => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn give_back(&mut self, jobs: &[(Held, LeasedJob)]) -> Result<(), Wrong> {
        jobs.iter().for_each(|(held, _)| self.shared.leaves(*held));
        let leases: Vec<_> = jobs.iter().map(|(_, job)| job.lease).collect();
        let delay = Duration::from_millis(self.random.below(3) * 20);
        match self.queue.nack(&self.topics[0], &leases, delay) {
            Ok(()) | Err(Error::LeaseExpired { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Extend a lease, and then ack within it.
    fn extend(&mut self, jobs: Vec<(Held, LeasedJob)>) -> Result<(), Wrong> {
        let lease_ms = *self.random.pick(&LEASES_MS);
        for job in jobs {
            let (held, lease) = (job.0, job.1.lease);
            self.shared.extends(held);
            let began = now_ms();
            let longer = Duration::from_millis(lease_ms);
            match self.queue.extend(&self.topics[0], &[lease], longer) {
                Ok(()) => {
                    self.shared.extended(held, began, lease_ms);
                    if lease_ms > LEASES_MS[1] && self.random.chance(1, 4) {
                        // Longer than the shorter leases.
                        std::thread::sleep(Duration::from_millis(LEASES_MS[1]));
                    }
                    self.ack(&[job], began + lease_ms)?;
                }
                Err(Error::LeaseExpired { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Read on as a member of the group; leave it at times.
    fn read(&mut self) -> Result<(), Wrong> {
        let work = self.topics[1].clone();
        if self.task.calls == 0 {
            self.append_work(&work)?;
        }
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                GroupMember::open(&self.store, NAME, std::slice::from_ref(&work), Start::Earliest)?
            }
        };
        self.mine.iter().for_each(|partition| self.shared.may_lose(*partition));
        reader.refresh()?;
        let before = std::mem::take(&mut self.mine);
        for part in reader.parts()? {
            let is_new = !before.contains(&part.partition);
            self.shared.has(part.partition, is_new.then_some(part.next))?;
            self.mine.push(part.partition);
            if part.open {
                self.read_part(&mut reader, &work, part)?;
            }
        }
        if self.random.chance(1, 100) {
            self.leave(reader)
        } else {
            self.reader = Some(reader);
            Ok(())
        }
    }

    fn append_work(&mut self, work: &Topic) -> Result<(), Wrong> {
        let partition = self.random.below(PARTITIONS.into()) as u32;
        if work.end(partition)? >= self.shared.is_committed_to(partition) + ENOUGH {
            return Ok(());
        }
        for _ in 0..self.random.magnitude(4) {
            let sync = durable(&mut self.random);
            work.append_to(partition, &NewRecord::new(b"work"), Some(sync))?;
        }
        Ok(())
    }

    fn read_part(
        &mut self,
        reader: &mut GroupMember,
        work: &Topic,
        part: GroupPartition,
    ) -> Result<(), Wrong> {
        let GroupPartition { partition, mut next, .. } = part;
        let mut scan = work.scan_partition(partition, next, None)?;
        for _ in 0..self.random.magnitude(6) {
            let Some(record) = scan.next().transpose()? else { break };
            if record.offset() != next {
                let found = record.offset();
                return Err(format!("partition {partition}: {found} came instead of {next}").into());
            }
            next += 1;
        }
        reader.handed_out(&GroupPartition { next, ..part });
        // Where it might lose the partition otherwise, and at times.
        if next > part.next && (self.task.calls > 0 || self.random.chance(3, 4)) {
            self.shared.commits(partition, next);
            reader.commit(work.name(), partition, next, self.random.chance(1, 20))?;
            self.shared.committed(partition, next);
            self.shared.add(READ, next - part.next);
        }
        Ok(())
    }

    fn leave(&mut self, reader: GroupMember) -> Result<(), Wrong> {
        let mine = std::mem::take(&mut self.mine);
        mine.iter().for_each(|partition| self.shared.may_lose(*partition));
        Ok(reader.close()?)
    }

    /// Do one more step, once: a record in each of two topics, and a cursor with metadata. All or nothing.
    ///
    /// The cursor's place or the expected offsets refuse a step that another worker did. Half of
    /// the steps have a sequence too, so such a step may be answered as a repeat.
    fn count(&mut self) -> Result<(), Wrong> {
        let [_, _, steps, _, _, copies] = &self.topics;
        let name = NAME.as_bytes();
        let (from, metadata) = (steps.cursor(name)?, steps.cursor_metadata(name)?);
        let step = from.map_or(0, |cursor| cursor.offset);
        // Unless another worker did a step between the two looks.
        if step > 0 && metadata != step.to_string().as_bytes() && steps.cursor(name)? == from {
            let metadata = String::from_utf8_lossy(&metadata).into_owned();
            return Err(format!("the cursor at {step} has metadata {metadata:?}").into());
        }
        let mut tx = Transaction::new(steps.store()).with_sync(durable(&mut self.random));
        let (by_cursor, by_sequence) = (self.random.chance(1, 2), self.random.chance(1, 2));
        for topic in [steps, copies] {
            if !by_cursor {
                tx.expect_offset_in(topic, 0, step)?;
            }
            if by_sequence {
                let (after, number) = (After::Below(step + 1), step + 1);
                let span = SequenceSpan { after, first: number, last: number };
                tx.expect_sequence(topic, NAME, span)?;
            }
            tx.append_to(topic, 0, &NewRecord::new(&step.to_le_bytes()))?;
        }
        let to = CursorState { offset: step + 1, ..CursorState::default() };
        let from = by_cursor.then(|| from.unwrap_or(CursorState::NONE));
        let metadata = (step + 1).to_string();
        tx.move_cursor(CursorMove {
            name: NAME.as_bytes(),
            to,
            from,
            metadata: metadata.as_bytes(),
        });
        match tx.commit() {
            Ok(committed) => {
                for topic in [steps, copies] {
                    let placed = committed.offsets(topic, 0);
                    if placed != Some(step..step + 1) {
                        return Err(
                            format!("step {step} of {} went to {placed:?}", topic.name()).into()
                        );
                    }
                }
                self.shared.add(STEPS, 1);
            }
            Err(
                Error::CursorMoved { .. }
                | Error::OffsetConflict { .. }
                | Error::OutOfOrderSequence { .. }
                | Error::DuplicateSequence { .. },
            ) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Commit the next bulk load of a series, which other workers commit too; small, or as large as
    /// a segment.
    fn sink(&mut self) -> Result<(), Wrong> {
        let sunk = &self.topics[3];
        let version = sink::last_idempotency_key(sunk, NAME)?.map_or(1, |token| token.version + 1);
        let job = sink::BulkLoad::new(sunk, &format!("{NAME}-{version}-{}", self.task.id))?;
        let token = Some((NAME, version));
        let len = if self.random.chance(1, 8) { 12 << 10 } else { 8 };
        let mut value = vec![b'x'; len];
        value[..8].copy_from_slice(&version.to_le_bytes());
        let mut manifests = Vec::new();
        for name in ["0", "1"] {
            let mut part = job.stage(name, token.filter(|_| self.random.chance(1, 2)))?;
            for _ in 0..OF_A_JOB / 2 {
                part.append_to(&NewRecord::new(&value), Some(0))?;
            }
            match part.finish() {
                Ok(manifest) => manifests.push(manifest),
                // A faster worker removed what was staged with the key.
                Err(Error::NotStaged { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        let committed = job.commit(&manifests, token)?;
        self.shared.add(SUNK, u64::from(committed.now));
        Ok(())
    }

    /// Append under keys, at times compact, or change a setting.
    fn tidy(&mut self) -> Result<(), Wrong> {
        let keys = &self.topics[4];
        for _ in 0..self.random.magnitude(6) {
            let key = self.random.below(KEYS);
            let (name, value) = (key.to_le_bytes(), [b'v'; 200]);
            let record = NewRecord { key: Some(&name), ..NewRecord::new(&value) };
            self.shared.keyed(key, keys.append_to(0, &record, None)?);
        }
        if self.random.chance(1, 8) {
            let seal = self.random.chance(1, 2);
            let options = CompactOptions::default().seal(seal);
            keys.compact(&options, &mut |_, _| Ok(()))?;
            self.shared.add(COMPACTED, 1);
        }
        if self.random.chance(1, 8) {
            let many = RetentionChange::default().records(1 << 40);
            self.store.configure_topic(keys.name(), &many, None)?;
        }
        Ok(())
    }

    fn close(mut self) -> Result<(), Wrong> {
        // From here on other workers may take what was only left.
        self.forgotten.iter().for_each(|held| self.shared.leaves(*held));
        match self.reader.take() {
            Some(reader) => self.leave(reader),
            None => Ok(()),
        }
    }
}
