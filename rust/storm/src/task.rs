//! A worker's task: one JSON object, the same for workers in Rust and in Python.

use std::path::PathBuf;

use falaj::internals::failpoints::Point;
#[cfg(falaj_failpoints)]
use falaj::internals::failpoints::{Action, arm};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::store::{StoreOptions, TopicOptions};
use serde_json::{Value, json};

#[cfg(falaj_failpoints)]
use crate::system;

/// The role of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Appends, one record or many a call, to all topics.
    Writer,
    /// Reads from the beginning, and follows the topics.
    Follower,
    /// Opens, reads from somewhere to the end, and closes, repeatedly.
    Scanner,
    /// Creates and deletes a topic, repeatedly.
    Churner,
    /// Takes jobs of a queue, reads as a member of a group, and does idempotent steps, beside other
    /// sharers.
    Sharer,
    /// As the writer, through the Python package.
    PythonWriter,
    /// As the follower, through the Python package.
    PythonFollower,
}

impl Role {
    /// Its name, also in the worker's command line.
    pub fn name(self) -> &'static str {
        match self {
            Role::Writer => "writer",
            Role::Follower => "follower",
            Role::Scanner => "scanner",
            Role::Churner => "churner",
            Role::Sharer => "sharer",
            Role::PythonWriter => "python-writer",
            Role::PythonFollower => "python-follower",
        }
    }

    /// True for roles that open the store for writing.
    pub fn writes(self) -> bool {
        matches!(self, Role::Writer | Role::Churner | Role::Sharer | Role::PythonWriter)
    }

    /// True for roles that keep an account of appends.
    pub fn appends(self) -> bool {
        matches!(self, Role::Writer | Role::PythonWriter)
    }

    /// True for roles that need an interpreter.
    pub fn is_python(self) -> bool {
        matches!(self, Role::PythonWriter | Role::PythonFollower)
    }
}

const ROLES: [Role; 7] = [
    Role::Writer,
    Role::Follower,
    Role::Scanner,
    Role::Churner,
    Role::Sharer,
    Role::PythonWriter,
    Role::PythonFollower,
];

/// A point to arm, and what happens there.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    /// The point.
    pub point: Point,
    /// The passing at which it snaps, from 1.
    pub nth: u64,
    /// The effect.
    pub snap: Snap,
}

/// The effect of a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snap {
    /// Kills.
    Kills,
    /// Stops.
    Stops,
    /// Forks an idle child, and kills: the child keeps everything that its parent had open.
    Orphans,
}

impl Trap {
    /// Without fail points there is nothing to arm.
    #[cfg(not(falaj_failpoints))]
    pub fn set(self) {}

    /// Arm it.
    #[cfg(falaj_failpoints)]
    pub fn set(self) {
        let action = match self.snap {
            Snap::Kills => Action::Kill,
            Snap::Stops => Action::Stop,
            Snap::Orphans => Action::Call(system::orphan_and_die),
        };
        arm(self.point, self.nth, action);
    }
}

/// The store of a round, as all its workers see it.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The store's directory.
    pub store: PathBuf,
    /// Topics, each with a log of its own.
    pub topics: u16,
    /// Partitions of each.
    pub partitions: u16,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Sync interval.
    pub interval_ms: u64,
    /// Written by `pwrite`.
    pub pwrite: bool,
}

impl Layout {
    /// A topic's name.
    pub fn topic(topic: u16) -> String {
        format!("storm-{topic}")
    }

    /// Every topic and partition.
    pub fn places(&self) -> impl Iterator<Item = (u16, u16)> + use<> {
        let partitions = self.partitions;
        (0..self.topics).flat_map(move |topic| (0..partitions).map(move |p| (topic, p)))
    }

    /// How to open the store for writing.
    pub fn store_options(&self) -> StoreOptions {
        let mode = if self.pwrite { WriteMode::Pwrite } else { WriteMode::Mapped };
        StoreOptions { write_mode: Some(mode), ..StoreOptions::default() }
    }

    /// How to open its topics for writing.
    pub fn topic_options(&self) -> TopicOptions {
        TopicOptions {
            partitions: Some(self.partitions.into()),
            segment_bytes: Some(self.segment_bytes),
            sync_interval_ms: Some(self.interval_ms),
            ..TopicOptions::default()
        }
    }

    /// Longest value that always fits, alone and in a batch.
    pub fn value_max(&self) -> usize {
        crate::payload::MAX_VALUE.min(self.batch_max() - 256)
    }

    /// Most bytes of one call.
    pub fn batch_max(&self) -> usize {
        (self.segment_bytes / 4) as usize - 512
    }
}

/// All that a worker needs to know.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its role.
    pub role: Role,
    /// The store.
    pub layout: Layout,
    /// Its number in the run, which its records carry.
    pub id: u32,
    /// Seed of the round.
    pub seed: u64,
    /// Its account: of appends, or of what it saw.
    pub account: PathBuf,
    /// The pool of bytes that values are cut from.
    pub pool: PathBuf,
    /// Sync mode of most appends: 0 none, 1 interval, 2 durable.
    pub sync: u64,
    /// A point at which it dies or stops.
    pub trap: Option<Trap>,
    /// Milliseconds between forks; 0 for none.
    pub fork_ms: u64,
    /// Calls after which it ends; 0 for no limit.
    pub calls: u64,
    /// Errors end it silently: the disk is about to be cut off.
    pub tolerant: bool,
    /// Reads by `pread` instead of maps.
    pub pread: bool,
    /// Topic, partition, and the highest offset that it may trim to: all before was checked.
    pub may_trim: Vec<(u16, u16, u64)>,
    /// Process id of its parent, which must live.
    pub parent: u32,
}

impl Task {
    /// As text.
    pub fn encode(&self) -> String {
        let layout = &self.layout;
        let trap = self.trap.map(|trap| json!([trap.point.name(), trap.nth, trap.snap as u8]));
        json!({
            "role": self.role.name(), "id": self.id, "seed": self.seed, "sync": self.sync,
            "account": self.account, "pool": self.pool, "store": layout.store,
            "topics": layout.topics, "partitions": layout.partitions,
            "segment_bytes": layout.segment_bytes, "interval_ms": layout.interval_ms,
            "pwrite": layout.pwrite, "trap": trap, "fork_ms": self.fork_ms, "calls": self.calls,
            "tolerant": self.tolerant, "pread": self.pread, "parent": self.parent,
            "may_trim": self.may_trim,
            "value_max": layout.value_max(), "batch_max": layout.batch_max(),
        })
        .to_string()
    }

    /// From text.
    pub fn decode(text: &str) -> Option<Self> {
        let told: Value = serde_json::from_str(text).ok()?;
        let number = |name: &str| told[name].as_u64();
        let path = |name: &str| told[name].as_str().map(PathBuf::from);
        let flag = |name: &str| told[name].as_bool();
        let trap = match &told["trap"] {
            Value::Array(parts) => Some(Trap {
                point: *Point::ALL.iter().find(|point| Some(point.name()) == parts[0].as_str())?,
                nth: parts[1].as_u64()?,
                snap: [Snap::Kills, Snap::Stops, Snap::Orphans][parts[2].as_u64()? as usize % 3],
            }),
            _ => None,
        };
        let trims = told["may_trim"].as_array()?.iter().map(|limit| {
            Some((limit[0].as_u64()? as u16, limit[1].as_u64()? as u16, limit[2].as_u64()?))
        });
        let layout = Layout {
            store: path("store")?,
            topics: number("topics")? as u16,
            partitions: number("partitions")? as u16,
            segment_bytes: number("segment_bytes")?,
            interval_ms: number("interval_ms")?,
            pwrite: flag("pwrite")?,
        };
        Some(Self {
            role: ROLES.into_iter().find(|role| Some(role.name()) == told["role"].as_str())?,
            layout,
            id: number("id")? as u32,
            seed: number("seed")?,
            account: path("account")?,
            pool: path("pool")?,
            sync: number("sync")?,
            trap,
            fork_ms: number("fork_ms")?,
            calls: number("calls")?,
            tolerant: flag("tolerant")?,
            pread: flag("pread")?,
            may_trim: trims.collect::<Option<_>>()?,
            parent: number("parent")? as u32,
        })
    }
}
