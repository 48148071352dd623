//! One log of a machine in memory, and the operations that workloads are made of.

use std::path::Path;
use std::sync::Arc;

use falaj::error::Result;
use falaj::format::settings::WriteMode;
use falaj::log::{Log, LogSettings};
use falaj::storage::Storage;
use falaj::storage::memory::MemoryStorage;

use crate::common::{LOG, TestMember, append_groups, create_log_of, settings};
use crate::model::{Group, TOPICS, Truth};

/// Bytes of a segment: small, so that images are cheap.
pub const SEGMENT: u64 = 16 << 10;
pub const DIR: &str = "/log";

/// What a process can do, or what can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Append one small record.
    Append,
    /// Append several records as one block.
    Extend,
    /// Append to two topics as one group.
    Group,
    /// Append a record that spans sectors.
    Large,
    /// Go on in a new segment.
    Roll,
    Sync,
    /// Sync, leave a clean mark; the next operation begins a new incarnation.
    Close,
    /// The next operation begins a new incarnation, without any sync.
    Reopen,
    /// Another process of the same incarnation appends.
    Other,
    /// The process dies while it appends: having stored the dirty end only.
    DieBegun,
    /// … having stored everything but the commit word.
    DieUncommitted,
    /// … having stored the commit word and nothing after it.
    DieCommitted,
}

pub const OPS: [Op; 12] = [
    Op::Append,
    Op::Extend,
    Op::Group,
    Op::Large,
    Op::Roll,
    Op::Sync,
    Op::Close,
    Op::Reopen,
    Op::Other,
    Op::DieBegun,
    Op::DieUncommitted,
    Op::DieCommitted,
];

/// A point of time, and how many groups were safe from then on.
type Moments = Vec<(usize, usize)>;

fn at(moments: &Moments, time: usize) -> usize {
    moments.iter().rev().find(|(since, _)| *since <= time).map_or(0, |(_, groups)| *groups)
}

/// One machine with one log, the process at work, and what it did.
pub struct World {
    pub storage: MemoryStorage,
    pub mode: WriteMode,
    pub truth: Truth,
    incarnation: u64,
    slot: u16,
    member: Option<TestMember>,
    log: Option<Arc<Log>>,
    begun: Moments,
    committed: Moments,
    durable: Moments,
}

impl World {
    /// A machine with an empty log that was never opened.
    pub fn empty(mode: WriteMode) -> Self {
        let storage = MemoryStorage::with_capacity(SEGMENT * 2).seeded(7);
        create_log_of(&storage, Path::new(DIR), TOPICS, mode, SEGMENT);
        Self::on(storage.restart(), mode)
    }

    fn on(storage: MemoryStorage, mode: WriteMode) -> Self {
        let (truth, begun, committed, durable) = Default::default();
        let (incarnation, slot, member, log) = (1, 0, None, None);
        Self { storage, mode, truth, incarnation, slot, member, log, begun, committed, durable }
    }

    /// The same machine once more; only before anything was done.
    pub fn again(&self) -> Self {
        assert!(self.truth.0.is_empty() && self.log.is_none());
        Self::on(self.storage.restart(), self.mode)
    }

    pub fn log(&mut self) -> Arc<Log> {
        if let Some(log) = &self.log {
            return Arc::clone(log);
        }
        let member = self.new_member();
        let log = open(&self.storage, self.mode, member).unwrap();
        self.log = Some(Arc::clone(&log));
        log
    }

    /// The member of the next process of this incarnation.
    fn new_member(&mut self) -> TestMember {
        self.slot += 1;
        let first = self.member.get_or_insert_with(|| TestMember::new(0, self.incarnation));
        first.beside(self.slot)
    }

    /// Groups that a reader must find, and those that it may, when everything after an event is
    /// lost with the power.
    pub fn after_power_loss(&self, time: usize) -> (usize, usize) {
        (at(&self.durable, time), at(&self.begun, time))
    }

    /// … when all processes die after an event.
    pub fn after_death(&self, time: usize) -> (usize, usize) {
        (at(&self.committed, time), at(&self.begun, time))
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub fn run(&mut self, op: Op) {
        match op {
            Op::Append | Op::Extend | Op::Group | Op::Large => {
                let log = self.log();
                self.append(&log, self.group(op));
            }
            Op::Other => {
                let member = self.new_member();
                let log = open(&self.storage, self.mode, member).unwrap();
                self.append(&log, self.group(Op::Append));
            }
            Op::Roll => self.log().roll_now().unwrap(),
            Op::Sync => {
                self.log().sync().unwrap();
                self.durable.push((self.storage.events(), self.truth.0.len()));
            }
            Op::Close => {
                self.log().sync_clean().unwrap();
                self.durable.push((self.storage.events(), self.truth.0.len()));
                self.end_incarnation();
            }
            Op::Reopen => {
                self.log();
                self.end_incarnation();
            }
            Op::DieBegun | Op::DieUncommitted | Op::DieCommitted => self.die(op),
        }
    }

    fn end_incarnation(&mut self) {
        self.log = None;
        self.member = None;
        self.incarnation += 1;
        // Opening belongs to the operation: recovery is where most can go wrong.
        self.log();
    }

    fn append(&mut self, log: &Log, group: Group) {
        self.begun.push((self.storage.events() + 1, self.truth.0.len() + 1));
        append_group(log, &group).unwrap();
        self.truth.0.push(group);
        self.committed.push((self.storage.events(), self.truth.0.len()));
    }

    fn group(&self, op: Op) -> Group {
        let fill = b'a' + (self.truth.0.len() % 26) as u8;
        match op {
            Op::Extend => Group::one(0, vec![vec![fill; 60], vec![fill; 7], vec![fill; 33]]),
            Op::Group => Group(vec![(1, vec![vec![fill; 90]]), (0, vec![vec![fill; 400]])]),
            Op::Large => Group::one(0, vec![vec![fill; 1100]]),
            _ => Group::one(0, vec![vec![fill; 40]]),
        }
    }

    /// Die in an append of a group, at a certain point of it, and let another process append.
    fn die(&mut self, op: Op) {
        let log = self.log();
        // So that nothing but the append itself happens next.
        let group = self.group(Op::Group);
        let start = self.storage.events();
        self.append(&log, group);
        let end = self.storage.events();
        drop(log);
        let journal = self.storage.journal();
        let visible = |time: &usize| {
            let reader = open_to_read(&journal.killed_at(*time), self.mode).unwrap();
            self.truth.found(&reader, 0..=self.truth.0.len()) == Ok(self.truth.0.len())
        };
        let committed = (start..=end).find(visible).expect("an append ends in a commit");
        let time = match op {
            Op::DieBegun => start + 2,
            Op::DieUncommitted => committed - 1,
            _ => committed,
        };
        self.storage = journal.killed_at(time);
        self.log = None;
        if op != Op::DieCommitted {
            self.truth.0.pop();
            for moments in [&mut self.begun, &mut self.committed] {
                moments.pop();
            }
        } else {
            self.committed.pop();
            self.committed.push((time, self.truth.0.len()));
        }
        self.all_die();
        let log = self.log();
        self.append(&log, self.group(Op::Append));
    }

    fn all_die(&mut self) {
        let first = TestMember::new(0, self.incarnation);
        (1..=self.slot).for_each(|slot| first.beside(slot).dies());
        self.member = Some(first);
    }

    /// A process of the same incarnation on a machine where all others of this one are dead.
    pub fn heir(&self) -> TestMember {
        let first = TestMember::new(0, self.incarnation);
        (1..=self.slot).for_each(|slot| first.beside(slot).dies());
        first.beside(self.slot + 1)
    }
}

pub fn settings_of(mode: WriteMode) -> LogSettings {
    LogSettings { segment_bytes: SEGMENT, generation: LOG, ..settings(mode) }
}

pub fn open(storage: &MemoryStorage, mode: WriteMode, member: TestMember) -> Result<Arc<Log>> {
    open_on(Arc::new(storage.clone()), mode, member)
}

pub fn open_on(storage: Arc<dyn Storage>, mode: WriteMode, member: TestMember) -> Result<Arc<Log>> {
    Log::open(storage, Path::new(DIR), settings_of(mode), Some(Arc::new(member)))
}

pub fn open_to_read(storage: &MemoryStorage, mode: WriteMode) -> Result<Arc<Log>> {
    Log::open(Arc::new(storage.clone()), Path::new(DIR), settings_of(mode), None)
}

pub fn append_group(log: &Log, group: &Group) -> Result<Vec<u64>> {
    let parts: Vec<Vec<&[u8]>> =
        group.0.iter().map(|(_, values)| values.iter().map(Vec::as_slice).collect()).collect();
    let parts: Vec<(u32, &[&[u8]])> = group
        .0
        .iter()
        .zip(&parts)
        .map(|((topic, _), values)| (*topic, values.as_slice()))
        .collect();
    append_groups(log, &parts).map(|(_, firsts)| firsts)
}
