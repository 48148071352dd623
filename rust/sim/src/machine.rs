//! One machine in memory with one log, the process that runs, and a record of what it did when.
//!
//! Owns the run of a workload. Beside it, it notes the *moments*: from which event on how many
//! groups were begun, committed, durable. They decide what must be found after a crash at any
//! event. [`falaj_twin::memory`] decides what crashes leave.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::record::{BodyWriter, NewRecord};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::format::state::{CursorState, ProducerName, TopicState};
use falaj::internals::log::{
    Appended, Compacted, Compacting, CursorMove, Log, LogSettings, LogSpec, NewBlock, Precondition,
    Token, create,
};
use falaj::internals::segment::Reading;
use falaj::internals::storage::Storage;
use falaj_twin::memory::MemoryStorage;

use crate::actor::Actor;
use crate::cuts::{self, Shipper, Taken};
use crate::history::{Compactions, History, Moments, Trims, at};
use crate::op::{Op, PARTS};
use crate::truth::{
    CURSOR, Gone, Group, JOB, KEYED, ONCE, PART, TOMBSTONE, TOPICS, Truth, record_of,
};

/// Bytes of a segment: small, so that images are cheap and rolls frequent.
pub const SEGMENT: u64 = 16 << 10;
/// Generation of the log.
pub const GENERATION: [u8; 16] = [7; 16];
/// Name of the producer whose appends are idempotent.
pub const PRODUCER: &str = "p";
/// Name of the producer of conditional groups, whose sequences count in each topic alone.
pub const GROUPED: &str = "g";
/// The key that all bulk loads share; a number tells them apart.
pub const SERIES: &str = "j";
/// The log's directory.
pub const DIR: &str = "/log";
/// The log's control page.
pub const CONTROL: &str = "/log/control";

/// One machine with one log, the process that runs, and what it did.
pub struct Machine {
    /// The storage that all its processes see.
    pub storage: MemoryStorage,
    /// How the log is written.
    pub mode: WriteMode,
    /// All groups that were appended.
    pub truth: Truth,
    incarnation: u64,
    slot: u16,
    first: Option<Actor>,
    log: Option<Arc<Log>>,
    begun: Moments,
    committed: Moments,
    durable: Moments,
    trims: Trims,
    compactions: Compactions,
    cuts: Vec<Taken>,
    shipper: Shipper,
}

/// Dropping a machine leaves no process behind that would sync.
impl Drop for Machine {
    fn drop(&mut self) {
        self.all_die();
    }
}

impl Machine {
    /// A machine with an empty log that was never opened.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn empty(mode: WriteMode) -> Result<Self> {
        Self::seeded(mode, 7)
    }

    /// As [`Machine::empty`], with other random numbers for salts and ids.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn seeded(mode: WriteMode, seed: u64) -> Result<Self> {
        let storage = MemoryStorage::with_capacity(SEGMENT * 2).seeded(seed);
        let dir = Path::new(DIR);
        let failed = |e| Error::io("create", dir, e);
        storage.create_dir(dir, 0o700).map_err(failed)?;
        let topics = (0..TOPICS).map(|n| (n, TopicState::empty([1; 16], n))).collect();
        let (generation, segment_bytes) = (GENERATION, SEGMENT);
        let spec =
            LogSpec { generation, segment_bytes, topics, write_mode: mode, file_mode: 0o600 };
        create(&storage, dir, &spec)?;
        storage.sync_dir(Path::new("/")).map_err(failed)?;
        Ok(Self::on(storage.restart(), mode))
    }

    fn on(storage: MemoryStorage, mode: WriteMode) -> Self {
        let (truth, begun, committed, durable) = Default::default();
        let (trims, compactions, cuts, shipper) = Default::default();
        let (incarnation, slot, first, log) = (1, 0, None, None);
        Self {
            storage,
            mode,
            truth,
            incarnation,
            slot,
            first,
            log,
            begun,
            committed,
            durable,
            trims,
            compactions,
            cuts,
            shipper,
        }
    }

    /// Make the same machine again.
    ///
    /// # Panics
    /// If the machine was used already.
    #[must_use]
    pub fn again(&self) -> Self {
        assert!(self.truth.0.is_empty() && self.log.is_none(), "the machine was used");
        Self::on(self.storage.restart(), self.mode)
    }

    /// The log of the process that runs, opened at its first use.
    fn log(&mut self) -> Result<Arc<Log>> {
        if let Some(log) = &self.log {
            return Ok(Arc::clone(log));
        }
        let actor = self.another();
        let log = open(&self.storage, self.mode, actor)?;
        self.log = Some(Arc::clone(&log));
        Ok(log)
    }

    /// Start the next process of this incarnation.
    fn another(&mut self) -> Actor {
        self.slot += 1;
        let slot = self.slot;
        self.first().beside(slot)
    }

    fn first(&mut self) -> &Actor {
        self.first.get_or_insert_with(|| Actor::new(self.incarnation))
    }

    /// Freeze what happened; crashes are explored behind `from`.
    pub fn into_history(mut self, name: String, from: usize) -> History {
        let journal = self.storage.journal();
        History {
            name,
            mode: self.mode,
            journal,
            from,
            truth: std::mem::take(&mut self.truth),
            incarnation: self.incarnation,
            slots: self.slot,
            begun: std::mem::take(&mut self.begun),
            committed: std::mem::take(&mut self.committed),
            durable: std::mem::take(&mut self.durable),
            trims: std::mem::take(&mut self.trims),
            compactions: std::mem::take(&mut self.compactions),
            cuts: std::mem::take(&mut self.cuts),
        }
    }

    /// The current incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Records that must be gone by now, and those that may be.
    pub fn gone(&self) -> Gone<'_> {
        self.compactions.gone(&self.trims, self.storage.events())
    }

    /// Run one step.
    ///
    /// # Errors
    /// The engine's errors: none is expected.
    pub fn run(&mut self, op: Op) -> Result<()> {
        match op {
            Op::Append | Op::Expect | Op::Extend | Op::Group | Op::Large => {
                let log = self.log()?;
                self.append(&log, group(op, self.truth.0.len()), false).map(drop)
            }
            Op::Interval => {
                let log = self.log()?;
                self.append(&log, group(Op::Append, self.truth.0.len()), true)?;
                log.sync_interval()?;
                self.is_durable();
                Ok(())
            }
            Op::Durable | Op::Job => {
                let log = self.log()?;
                let appended = self.append(&log, group(op, self.truth.0.len()), false)?;
                log.sync_to(appended.end)?;
                self.is_durable();
                Ok(())
            }
            Op::Other => {
                let actor = self.another();
                let log = open(&self.storage, self.mode, actor.clone())?;
                let appended = self.append(&log, group(Op::Append, self.truth.0.len()), false);
                actor.dies();
                appended.map(drop)
            }
            Op::Roll => self.log()?.roll_now(),
            Op::Sync => {
                self.log()?.sync()?;
                self.is_durable();
                Ok(())
            }
            Op::Cut => self.cut(),
            Op::Seal => self.log()?.sync_sealed(),
            Op::Trim => self.trim(),
            Op::Compact => self.compact(),
            Op::Close => {
                self.log()?.sync_clean()?;
                self.is_durable();
                self.end_incarnation()
            }
            Op::Reopen => {
                self.log()?;
                self.all_die();
                self.end_incarnation()
            }
            Op::DieBegun | Op::DieUncommitted | Op::DieCommitted => self.die_in_append(op),
            Op::Die(what, part) => self.die_in(what.op(), part),
        }
    }

    /// Trim all groups, or all but the last: whichever makes their number odd or even.
    fn trim(&mut self) -> Result<()> {
        let log = self.log()?;
        let all = self.truth.0.len();
        let groups = all - usize::from(all > 0 && all % 2 == 0);
        let firsts: Vec<_> = (0..TOPICS).map(|t| (t, self.truth.count(t, groups))).collect();
        self.trims.begun.push((self.storage.events() + 1, groups));
        log.trim(&firsts)?;
        self.trims.done.push((self.storage.events(), groups));
        // The trim also synced what came before it, unless that was removed already.
        Ok(())
    }

    /// Records that are gone after this must never come back.
    fn compact(&mut self) -> Result<()> {
        let log = self.log()?;
        let all = self.truth.0.len();
        self.compactions.begun.push((self.storage.events() + 1, all));
        compact(&log, all)?;
        let found = self.truth.found(&log, all..=all, self.gone());
        let found = found.map_err(|what| Error::InvalidArgument { what })?;
        self.compactions.done.push((self.storage.events(), found.taken));
        // A compaction begins with a sync.
        self.is_durable();
        Ok(())
    }

    /// Take a cut without a sync, as where a log cannot be synced, and one with it.
    fn cut(&mut self) -> Result<()> {
        let log = self.log()?;
        let wrong = |what| Error::InvalidArgument { what };
        let (mode, all) = (self.mode, self.truth.0.len());
        let ends = self.shipper.cut(&self.storage, mode, &log)?;
        let groups = cuts::groups(&self.truth, ends.map(|(next, _)| next)).map_err(wrong)?;
        // Recovery may have to find out what is on disk.
        let durable = at(&self.durable, self.storage.events()).max(groups);
        self.durable.push((self.storage.events(), durable));
        log.sync()?;
        self.is_durable();
        let ends = self.shipper.cut(&self.storage, mode, &log)?;
        let (time, last) = (self.storage.events(), self.cuts.last());
        let Some(taken) = self.shipper.ship(time, ends, last)? else { return Ok(()) };
        let groups = cuts::groups(&self.truth, taken.nexts()).map_err(wrong)?;
        if groups != all {
            return Err(wrong(format!("a cut has {groups} groups, and not {all}")));
        }
        if self.storage.fingerprint() % BUILT == 0 {
            self.shipper.build(&taken, mode, &self.truth, self.gone()).map_err(wrong)?;
        }
        self.cuts.push(taken);
        Ok(())
    }

    fn is_durable(&mut self) {
        self.durable.push((self.storage.events(), self.truth.0.len()));
    }

    fn end_incarnation(&mut self) -> Result<()> {
        self.log = None;
        self.shipper = Shipper::default();
        self.first = None;
        self.incarnation += 1;
        // The opening belongs to the step: most can go wrong in recovery.
        self.log().map(drop)
    }

    fn append(&mut self, log: &Log, group: Group, interval: bool) -> Result<Appended> {
        self.begun.push((self.storage.events() + 1, self.truth.0.len() + 1));
        self.truth.0.push(group);
        let appended = append_last(log, &self.truth, interval);
        if appended.is_err() {
            self.truth.0.pop();
        }
        let (appended, _) = appended?;
        self.committed.push((self.storage.events(), self.truth.0.len()));
        Ok(appended)
    }

    /// Die in the append of a group, at a given point of it; another process then appends.
    fn die_in_append(&mut self, op: Op) -> Result<()> {
        let log = self.log()?;
        // So that the next events are the append's own.
        let group = group(Op::Group, self.truth.0.len());
        let start = self.storage.events();
        self.append(&log, group, false)?;
        let end = self.storage.events();
        let (time, visible) = match op {
            Op::DieBegun => (start + 2, None),
            Op::DieUncommitted => (self.visible_from(start, end) - 1, Some(false)),
            _ => (self.visible_from(start, end), Some(true)),
        };
        self.die_at(time.min(end), visible)?;
        self.run(Op::Append)
    }

    /// Die in the middle of a step; another process then appends.
    fn die_in(&mut self, op: Op, part: u8) -> Result<()> {
        self.log()?;
        let (start, before) = (self.storage.events(), self.incarnation);
        self.run(op)?;
        let events = self.storage.events() - start;
        if events > 0 {
            let time = start + 1 + (events - 1) * usize::from(part) / usize::from(PARTS);
            self.die_at(time, None)?;
        }
        if self.incarnation != before {
            // No process is left, so a new incarnation begins.
            self.end_incarnation()?;
        }
        self.run(Op::Append)
    }

    /// True when a process that comes after all were killed can read the last group.
    fn is_visible_at(&self, time: usize) -> bool {
        let machine = self.storage.journal().killed_at(time);
        let all = self.truth.0.len();
        let reader = open_to_read(&machine, self.mode);
        let gone = self.compactions.gone(&self.trims, time);
        reader.is_ok_and(|reader| self.truth.found(&reader, all..=all, gone).is_ok())
    }

    /// Find the event from which on the last group is visible, between `start` and `end`.
    ///
    /// A look costs as much as a state, so it tries the first events first, where nearly all
    /// appends become visible.
    fn visible_from(&self, start: usize, end: usize) -> usize {
        let mut time = end.min(start + VISIBLE);
        if self.is_visible_at(time) {
            while time > start + 1 && self.is_visible_at(time - 1) {
                time -= 1;
            }
        } else {
            time = (time + 1..end).find(|&later| self.is_visible_at(later)).unwrap_or(end);
        }
        time
    }

    /// Kill all processes of this incarnation after an event.
    ///
    /// Returns whether the last group is visible then, if that was looked at already.
    fn die_at(&mut self, time: usize, visible: Option<bool>) -> Result<()> {
        let all = self.truth.0.len();
        let unfinished = self.committed.last().is_some_and(|(since, _)| *since > time);
        let is_visible = || visible.unwrap_or_else(|| self.is_visible_at(time));
        if unfinished && at(&self.begun, time) == all && is_visible() {
            self.committed.push((time, all));
        }
        let Trims { begun, done } = &mut self.trims;
        for moments in [&mut self.committed, &mut self.durable, begun, done] {
            moments.retain(|(since, _)| *since <= time);
        }
        self.truth.0.truncate(at(&self.committed, time));
        self.compactions.begun.retain(|(since, _)| *since <= time);
        self.compactions.done.retain(|(since, _)| *since <= time);
        self.cuts.retain(|cut| cut.time <= time);
        let left = self.truth.0.len();
        self.begun.retain(|(since, groups)| *since <= time && *groups <= left);
        self.all_die();
        self.storage = self.storage.journal().killed_at(time);
        with_patience(&self.storage);
        Ok(())
    }

    /// Drop all processes of this incarnation, without an orderly close.
    fn all_die(&mut self) {
        let slot = self.slot;
        let first = self.first();
        (1..=slot).for_each(|slot| first.beside(slot).dies());
        self.log = None;
        self.shipper = Shipper::default();
    }
}

/// One of so many cuts is built from its pieces.
const BUILT: u64 = 4;
/// Events until an append to two topics is visible, when it neither rolls nor repairs.
const VISIBLE: usize = 10;
/// Calls after which a loop counts as endless: a thousand times what a machine needs.
const ENDLESS: u64 = 100_000;

/// Make an endless loop on a machine panic.
///
/// # Panics
/// In the thread that calls the machine, not here.
pub fn with_patience(storage: &MemoryStorage) {
    let calls = AtomicU64::new(0);
    storage.watch(move |_| {
        let now = calls.fetch_add(1, Ordering::Relaxed) + 1;
        // More than once, since a caller that is thrown out of one loop may begin another. Never
        // while unwinding.
        assert!(now % ENDLESS != 0 || std::thread::panicking(), "no end after {now} calls");
    });
}

/// The group that a step appends as number `number`.
pub fn group(op: Op, number: usize) -> Group {
    let fill = b'a' + (number % 26) as u8;
    match op {
        Op::Extend => Group::one(0, vec![vec![fill; KEYED], vec![fill; 7], vec![fill; TOMBSTONE]]),
        Op::Group => Group(vec![(1, vec![vec![fill; PART]]), (0, vec![vec![fill; 400]])]),
        Op::Large => Group::one(0, vec![vec![fill; 1100]]),
        Op::Durable => Group::one(0, vec![vec![fill; ONCE]]),
        Op::Job => Group::one(0, vec![vec![fill; JOB]]),
        _ => Group::one(0, vec![vec![fill; 40]]),
    }
}

/// How processes of a machine open the log.
pub fn settings(mode: WriteMode) -> LogSettings {
    LogSettings {
        generation: GENERATION,
        segment_bytes: SEGMENT,
        write_mode: mode,
        file_mode: 0o600,
        // Don't wait for an answer whether a process lives: an actor that holds a lock is not
        // running.
        lock_timeout: Some(Duration::ZERO),
        sync_interval: Duration::from_millis(100),
        reading: Reading::Map,
    }
}

/// Open the machine's log as a process, for writing.
///
/// # Errors
/// Those of the engine.
pub fn open(storage: &MemoryStorage, mode: WriteMode, actor: Actor) -> Result<Arc<Log>> {
    let storage = Arc::new(storage.clone());
    Log::open(storage, Path::new(DIR), settings(mode), Some(Arc::new(actor)))
}

/// Open the machine's log as a reader.
///
/// # Errors
/// Those of the engine.
pub fn open_to_read(storage: &MemoryStorage, mode: WriteMode) -> Result<Arc<Log>> {
    open_to_read_at(storage, mode, Path::new(DIR))
}

/// Open a log of the same generation in another directory as a reader.
///
/// # Errors
/// Those of the engine.
pub fn open_to_read_at(storage: &MemoryStorage, mode: WriteMode, dir: &Path) -> Result<Arc<Log>> {
    Log::open(Arc::new(storage.clone()), dir, settings(mode), None)
}

/// Append the last group, as its producer or its bulk load would.
///
/// Returns where it went, and its first offset in each topic.
///
/// # Errors
/// Those of the engine.
pub fn append_last(log: &Log, truth: &Truth, interval: bool) -> Result<(Appended, Vec<u64>)> {
    let all = truth.0.len();
    let group = &truth.0[all - 1];
    match truth.last_once(all) {
        Some((number, sequence)) if number + 1 == all => {
            append_once(log, group, sequence).map(|appended| (appended, vec![appended.first]))
        }
        _ if group.is_conditional() => {
            let (_, sequence) = truth.last_conditional(all).unwrap_or_default();
            let expected = group.0.iter().map(|(topic, _)| truth.count(*topic, all - 1)).collect();
            append_parts(log, group, sequence, (Some(expected), interval))
        }
        _ if group.is_job() => {
            let committed = commit(log, group, truth.jobs(all))?;
            let spent =
                || Error::InvalidArgument { what: "a token was spent that was never seen".into() };
            let (appended, first) = committed.ok_or_else(spent)?;
            Ok((appended, vec![first]))
        }
        _ => append(log, group, interval),
    }
}

/// Append a group, or repeat it, as the producer's append with this sequence.
///
/// # Errors
/// Those of the engine.
pub fn append_once(log: &Log, group: &Group, sequence: u64) -> Result<Appended> {
    let body = encode(&group.0[0].1);
    let block = outgoing(group.0[0].0, &body, false);
    let once = [Precondition::producer(PRODUCER, sequence, 0..1)];
    log.append_if(&once, &[block], false, &mut [0])
}

/// Append a group, or repeat it, if each part gets its expected offset and is the producer's with
/// this sequence there. A repeat asks for another place of the cursor, which it must not get.
///
/// # Errors
/// Those of the engine.
pub fn append_parts(
    log: &Log,
    group: &Group,
    sequence: u64,
    (expected, interval): (Option<Vec<u64>>, bool),
) -> Result<(Appended, Vec<u64>)> {
    let bodies: Vec<_> = group.0.iter().map(|(_, values)| encode(values)).collect();
    let parts = group.0.iter().zip(&bodies);
    let blocks: Vec<_> = parts.map(|((topic, _), body)| outgoing(*topic, body, interval)).collect();
    let offset = group.cursor().unwrap_or(0).wrapping_add(u64::from(expected.is_none()));
    let to = CursorState { offset, crc: offset as u32, turn: 0 };
    let metadata = &offset.to_le_bytes();
    let moved = CursorMove { name: CURSOR, to, from: None, metadata };
    let mut conditions = vec![Precondition::Cursor(moved)];
    for (block, offset) in blocks.iter().zip(expected.iter().flatten()) {
        conditions.push(Precondition::NextOffset { topic: block.topic, offset: *offset });
    }
    for block in &blocks {
        let producer = ProducerName::expiring(GROUPED);
        conditions.push(Precondition::producer(producer, sequence, block.topic..block.topic + 1));
    }
    let mut firsts = vec![0; blocks.len()];
    log.append_if(&conditions, &blocks, interval, &mut firsts).map(|a| (a, firsts))
}

/// Append a group if its first record gets the expected offset; return its place and that offset.
///
/// # Errors
/// The engine's errors: `OffsetConflict` if another process was faster.
pub fn append_at(log: &Log, group: &Group, expected: u64) -> Result<(Appended, u64)> {
    let body = encode(&group.0[0].1);
    let block = outgoing(group.0[0].0, &body, false);
    let expected = [Precondition::NextOffset { topic: block.topic, offset: expected }];
    let mut first = [0];
    log.append_if(&expected, &[block], false, &mut first).map(|appended| (appended, first[0]))
}

/// Commit a group as the bulk load of this number.
///
/// Returns its place and first offset, or `None` if that load was committed already.
///
/// # Errors
/// Those of the engine.
pub fn commit(log: &Log, group: &Group, version: u64) -> Result<Option<(Appended, u64)>> {
    let body = encode(&group.0[0].1);
    let block = outgoing(group.0[0].0, &body, true);
    let (token, mut first) = (Token::new(0, SERIES, version)?, [0]);
    let committed = log.commit_load(&[block], Some(&token), &mut first)?;
    Ok(committed.map(|appended| (appended, first[0])))
}

/// Append a group, and move the cursor if the group does so; return its place and its first offset
/// in each topic.
///
/// # Errors
/// Those of the engine.
pub fn append(log: &Log, group: &Group, interval: bool) -> Result<(Appended, Vec<u64>)> {
    let bodies: Vec<_> = group.0.iter().map(|(_, values)| encode(values)).collect();
    let parts = group.0.iter().zip(&bodies);
    let blocks: Vec<_> = parts.map(|((topic, _), body)| outgoing(*topic, body, interval)).collect();
    let mut firsts = vec![0; blocks.len()];
    // As a topic's append does: first the fast path, then the one that can wait.
    if let [block] = blocks[..] {
        if let Some(appended) = log.try_append(&block) {
            return Ok((appended, vec![appended.first]));
        }
    }
    let offset = group.cursor().unwrap_or(0);
    let to = CursorState { offset, crc: offset as u32, turn: 0 };
    let metadata = &offset.to_le_bytes();
    let moved = [Precondition::Cursor(CursorMove { name: CURSOR, to, from: None, metadata })];
    let moves: &[_] = if group.cursor().is_some() { &moved } else { &[] };
    log.append_if(moves, &blocks, interval, &mut firsts).map(|a| (a, firsts))
}

fn outgoing(topic: u32, body: &BodyWriter, interval: bool) -> NewBlock<'_> {
    NewBlock {
        topic,
        flags: body.flags(),
        count: body.count(),
        body: body.body(),
        lead: &[],
        body_crc: Some(crc32(body.body())),
        highest_event_ns: None,
        uses_append_time: true,
        interval,
    }
}

/// Keep the last record of each key; `number` decides which segments are compacted, and in how much
/// memory.
///
/// # Errors
/// Those of the engine.
pub fn compact(log: &Arc<Log>, number: usize) -> Result<Compacted> {
    let how = Compacting {
        topics: &(0..TOPICS),
        tombstones_us: 0,
        memory: if number % 3 == 0 { 100 } else { 1 << 20 },
        seal: number % 4 != 0,
        last: None,
    };
    log.compact(&how, &mut |_, _| Ok(()))
}

/// Where a group ends in each of its topics, and the checksum of its block there.
pub fn ends_of(truth: &Truth, number: usize) -> Vec<(u32, u64, u32)> {
    let end = |(topic, values): &(u32, Vec<Vec<u8>>)| {
        (*topic, truth.count(*topic, number + 1), crc32(encode(values).body()))
    };
    truth.0[number].0.iter().map(end).collect()
}

fn encode(values: &[Vec<u8>]) -> BodyWriter {
    let mut body = BodyWriter::default();
    let records: Vec<_> = values.iter().map(|value| record_of(value)).collect();
    body.begin(records.iter().any(|(key, _)| key.is_some()), None);
    for (key, value) in records {
        body.push(&NewRecord {
            value,
            key: key.as_ref().map(<[u8; 2]>::as_slice),
            ..NewRecord::default()
        });
    }
    body
}
