//! Queues in numbers, for people and for monitoring.
//!
//! Owns no state. Looking takes no lock and changes nothing, and a store that is open read-only is enough. So counts
//! that other processes change meanwhile may be of two moments. Jobs of dead holders count as ready, because the next
//! take delivers them.

use std::io;

use super::admin;
use crate::error::{IoResult, Result};
use crate::format::queue::{JobEntry, Parts, SLOTS, State, VERSION_LEN, at};
use crate::format::u64_at;
use crate::lock::Identity;
use crate::storage::{File, OpenMode};
use crate::store::{CountFrom, Front, Store};

/// A queue in numbers. A job is ready, delayed, in flight, done or dead; dead jobs and trimmed ones count as done too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Its topic.
    pub topic: String,
    /// Generation of that topic: a topic of the same name that was created later has other jobs.
    pub generation: [u8; 16],
    /// True when records of one key keep their order.
    pub ordered: bool,
    /// All records before this offset are done.
    pub floor: u64,
    /// No record from this offset on was ever delivered.
    pub head: u64,
    /// Jobs that a worker may get now, or when the job before it of the same key is done. A job that was put with a
    /// delay counts here until a take first reaches it.
    pub ready: u64,
    /// Jobs that no worker gets before a time.
    pub delayed: u64,
    /// Jobs that workers have, reserved ones included.
    pub in_flight: u64,
    /// Offsets of jobs that are done, counted from the beginning of the topic. Offsets that compaction removed count.
    pub done: u64,
    /// Jobs that were dead-lettered, or given up because their records are corrupt.
    pub dead: u64,
    /// Records that were trimmed before they were done.
    pub trimmed: u64,
    /// Processes that have jobs, as `process 4711 (slot 3)`, and how many. A reserved job is no process's.
    pub holders: Vec<(String, u64)>,
    /// Places in its state file.
    pub capacity: u64,
}

/// Look at all queues of a store, by name. Each name comes with the numbers of its queue, or with the error in its
/// file. This does not look at topics, so it does not count records from `head` on, which are ready as well.
///
/// # Errors
/// When the directory cannot be read.
pub fn overview(store: &Store) -> Result<Vec<(String, Result<QueueInfo>)>> {
    let names = store.queues()?;
    let named = |name: String| look(store, &name).transpose().map(|info| (name, info));
    Ok(names.into_iter().filter_map(named).collect())
}

/// Find the name of a queue's topic; `None` if there is no such queue.
///
/// # Errors
/// `InvalidName`, `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
pub fn topic_of(store: &Store, name: &str) -> Result<Option<String>> {
    let path = store.layout().queue(name)?;
    let opened = store.storage().open(&path, OpenMode::Read).if_there("open", &path)?;
    opened.map(|file| Ok(Front::read(&*file, &path)?.header.topic)).transpose()
}

/// Look at one queue in the same way; return `None` if there is none.
///
/// # Errors
/// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
pub fn look(store: &Store, name: &str) -> Result<Option<QueueInfo>> {
    let Ok(path) = store.layout().queue(name) else { return Ok(None) };
    let opened = store.storage().open(&path, OpenMode::Read).if_there("open", &path)?;
    let Some(file) = opened else { return Ok(None) };
    let front = Front::read(&*file, &path)?;
    let current = store.incarnation() == Some(front.word(at::INCARNATION));
    // In another incarnation all holders are dead, and the derived state does not count.
    let holders = if current { holders(&front.bytes, store) } else { Vec::new() };
    let in_flight: u64 = holders.iter().map(|(_, jobs)| jobs).sum();
    let (floor, head) = (front.ends.floor, front.ends.head);
    let left = |done: u64| (head - floor).saturating_sub(in_flight + done);
    let (mut done, mut delayed, mut reserved) = (front.word(at::DONE), 0, 0);
    if !current || left(done) > 0 {
        let now = store.storage().now_us().max(0) as u64;
        let counted = count(&*file, &front, now).doing("read", &path)?;
        (delayed, reserved) = (counted.delayed, counted.reserved);
        done = if current { done } else { counted.done };
    }
    Ok(Some(QueueInfo {
        name: name.to_owned(),
        topic: front.header.topic,
        generation: front.header.generation,
        ordered: front.header.parts.ordered,
        floor,
        head,
        ready: left(done + delayed + reserved),
        delayed,
        in_flight: in_flight + reserved,
        done: floor.saturating_add(done),
        dead: front.ends.dead,
        trimmed: front.ends.trimmed,
        holders,
        capacity: front.header.parts.capacity,
    }))
}

impl Store {
    /// Get a queue in numbers without opening it. A store that is open for reading only is enough.
    ///
    /// # Errors
    /// `UnknownQueue`, which lists the queues there are; `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn queue_info(&self, name: &str) -> Result<QueueInfo> {
        let mut info = look(self, name)?.ok_or_else(|| admin::missing(self, name))?;
        let (topic, generation, offset) = (info.topic.clone(), info.generation, info.head);
        let undelivered = self.count_from(&[CountFrom { topic, generation, partition: 0, offset }]);
        info.ready += undelivered.into_iter().flatten().sum::<u64>();
        Ok(info)
    }
}

/// Return the living processes that have jobs, and how many each has.
fn holders(front: &[u8], store: &Store) -> Vec<(String, u64)> {
    let word = |slot: u64| u64_at(front, (Parts::HOLDERS + 8 * slot) as usize);
    let held = |word: u64| {
        Some((Identity::from_bits((word >> 32) as u32)?, word & 0xffff_ffff))
            .filter(|(_, jobs)| *jobs > 0)
    };
    let held: Vec<_> = (0..SLOTS).filter_map(|slot| held(word(slot))).collect();
    if held.is_empty() {
        return Vec::new();
    }
    let slots = store.slots();
    let named = |(identity, jobs): (Identity, u64)| {
        let number = identity.slot();
        let slot = slots.iter().find(|known| known.slot == number);
        let same = slot.filter(|known| known.generation == Some(identity.generation()));
        let is_dead = slot.is_some() && same.is_none_or(|known| known.alive == Some(false));
        let name = match same.and_then(|known| known.process) {
            Some(process) => format!("process {process} (slot {number})"),
            None => format!("an unknown process (slot {number})"),
        };
        (!is_dead).then_some((name, jobs))
    };
    held.into_iter().filter_map(named).collect()
}

/// Numbers of jobs by their entries.
#[derive(Default)]
struct Counted {
    done: u64,
    delayed: u64,
    reserved: u64,
}

fn count(file: &dyn File, front: &Front, now: u64) -> io::Result<Counted> {
    let mut counted = Counted::default();
    front.each_entry(file, |offset, _, entry| {
        let versions = [0, VERSION_LEN as usize]
            .map(|half| std::array::from_fn(|word| u64_at(entry, half + 8 * word)));
        let newest = JobEntry::newest(&versions, front.header.id, offset).value;
        match newest {
            Some(entry) if entry.state == State::Done => counted.done += 1,
            Some(entry) if entry.state != State::Delayed || entry.when <= now => {}
            Some(entry) if entry.is_reserved() => counted.reserved += 1,
            Some(_) => counted.delayed += 1,
            None => {}
        }
    })?;
    Ok(counted)
}
