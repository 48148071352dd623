//! Steps of a workload: what a process can do, and what can happen to it.

use std::fmt;
use std::str::FromStr;

/// One step of a workload.
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
    /// Append one small record if the log ends where it was seen to end.
    Expect,
    /// Append in interval mode, then let the interval pass.
    Interval,
    /// Append in durable mode: the record is on disk before the call returns.
    Durable,
    /// Commit a bulk load with its idempotency key: it is on disk before the call returns.
    Job,
    /// Roll to a new segment.
    Roll,
    /// Flush: everything committed is on disk.
    Sync,
    /// Take cuts of the log as a shipper does: of what is on disk by now, and of everything.
    Cut,
    /// Sync sealed segments, as the background thread does in every mode.
    Seal,
    /// Trim all topics, wholly or up to the last group.
    Trim,
    /// Keep the last record of each key, in sealed segments or in all.
    Compact,
    /// Sync and leave a clean mark; the next incarnation begins.
    Close,
    /// The next incarnation begins, without a sync.
    Reopen,
    /// Another process of the same incarnation appends, and dies.
    Other,
    /// The process dies during an append, after it stored the dirty end only; another takes over.
    DieBegun,
    /// … after it stored everything but the commit word.
    DieUncommitted,
    /// … after it stored the commit word, and nothing more.
    DieCommitted,
    /// The process dies during another step, after so many sixteenths of its events.
    Die(Deadly, u8),
}

/// The step in which a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadly {
    /// A large append.
    Large,
    /// A roll.
    Roll,
    /// A sync.
    Sync,
    /// A cut.
    Cut,
    /// A durable append.
    Durable,
    /// The commit of a bulk load.
    Job,
    /// A trim.
    Trim,
    /// A compaction.
    Compact,
    /// The recovery of the next incarnation, after a clean end.
    Close,
    /// The same, after a crash of all processes.
    Reopen,
}

impl Deadly {
    /// The same step without the death.
    pub fn op(self) -> Op {
        match self {
            Self::Large => Op::Large,
            Self::Roll => Op::Roll,
            Self::Sync => Op::Sync,
            Self::Cut => Op::Cut,
            Self::Durable => Op::Durable,
            Self::Job => Op::Job,
            Self::Trim => Op::Trim,
            Self::Compact => Op::Compact,
            Self::Close => Op::Close,
            Self::Reopen => Op::Reopen,
        }
    }
}

/// The steps of short workloads. A cut leaves what a sync leaves, and asks for more; so it stands for
/// both.
pub const SHORT: [Op; 16] = [
    Op::Append,
    Op::Extend,
    Op::Group,
    Op::Large,
    Op::Interval,
    Op::Durable,
    Op::Job,
    Op::Roll,
    Op::Cut,
    Op::Trim,
    Op::Close,
    Op::Reopen,
    Op::Other,
    Op::DieBegun,
    Op::DieUncommitted,
    Op::DieCommitted,
];

/// The steps in which a process of a longer workload may die.
pub const DEADLY: [Deadly; 10] = [
    Deadly::Large,
    Deadly::Roll,
    Deadly::Sync,
    Deadly::Cut,
    Deadly::Durable,
    Deadly::Job,
    Deadly::Trim,
    Deadly::Compact,
    Deadly::Close,
    Deadly::Reopen,
];

/// Steps of workloads about compaction: some have keys, some make segments.
pub const COMPACTING: [Op; 9] = [
    Op::Extend,
    Op::Extend,
    Op::Durable,
    Op::Job,
    Op::Roll,
    Op::Cut,
    Op::Compact,
    Op::Compact,
    Op::Reopen,
];

/// Sixteenths in [`Op::Die`].
pub const PARTS: u8 = 16;

const NAMES: [(Op, &str); 20] = [
    (Op::Append, "append"),
    (Op::Extend, "extend"),
    (Op::Group, "group"),
    (Op::Large, "large"),
    (Op::Expect, "expect"),
    (Op::Interval, "interval"),
    (Op::Durable, "durable"),
    (Op::Job, "job"),
    (Op::Roll, "roll"),
    (Op::Sync, "sync"),
    (Op::Cut, "cut"),
    (Op::Seal, "seal"),
    (Op::Trim, "trim"),
    (Op::Compact, "compact"),
    (Op::Close, "close"),
    (Op::Reopen, "reopen"),
    (Op::Other, "other"),
    (Op::DieBegun, "die-begun"),
    (Op::DieUncommitted, "die-uncommitted"),
    (Op::DieCommitted, "die-committed"),
];

fn name(op: Op) -> &'static str {
    NAMES.iter().find(|(other, _)| *other == op).map_or("die", |(_, name)| name)
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Die(what, part) => write!(f, "die-{}-{part}", name(what.op())),
            op => f.write_str(name(*op)),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((op, _)) = NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(*op);
        }
        let parts = text.strip_prefix("die-").and_then(|rest| rest.rsplit_once('-'));
        let deadly = parts.and_then(|(what, part)| {
            let what = DEADLY.into_iter().find(|deadly| name(deadly.op()) == what)?;
            Some(Op::Die(what, part.parse().ok().filter(|part| *part < PARTS)?))
        });
        deadly.ok_or_else(|| format!("no step is called {text:?}"))
    }
}

/// The workload of a length with a number.
pub fn workload(len: u32, number: usize) -> Vec<Op> {
    (0..len).map(|place| SHORT[number / SHORT.len().pow(place) % SHORT.len()]).collect()
}

/// How many workloads of a length there are.
pub fn workloads(len: u32) -> usize {
    SHORT.len().pow(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_read_back_from_what_it_is_written_as() {
        let deadly = DEADLY.into_iter().flat_map(|what| (0..PARTS).map(move |p| Op::Die(what, p)));
        for op in NAMES.into_iter().map(|(op, _)| op).chain(deadly) {
            assert_eq!(op.to_string().parse(), Ok(op));
        }
        assert!("die-nothing-3".parse::<Op>().is_err());
    }

    #[test]
    fn every_short_workload_has_a_number() {
        let mut all: Vec<_> = (0..workloads(2)).map(|n| format!("{:?}", workload(2, n))).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), SHORT.len() * SHORT.len());
    }
}
