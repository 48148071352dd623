//! The parts of a store beside its records: groups, a queue, an idempotency key, a cursor kept by
//! hand.
//!
//! Owns which of these an [`Example`](crate::example::Example) has, and what a store may answer
//! about them once harmed. A cursor or a finished job may be as it was before its last change, as
//! after a power failure. Where more than a bit was harmed, it may be further back: work is then
//! done twice. Nothing may be further ahead, since that work would be lost. Whatever the files
//! hold, taking jobs must come to an end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, Start, list_groups};
use falaj::internals::error::Error;
use falaj::internals::queue::{QueueFile, QueueOptions, overview};
use falaj::internals::sink::{BulkLoad, last_idempotency_key};
use falaj::internals::store::{Store, TopicOptions};
use falaj::internals::topic::{CursorMove, CursorState, Topic, Transaction};

use crate::answers::{Asking, Told, Trust};

/// A group with cursors in a file of its own, and the topics that it reads.
pub const READER: (&str, &str) = ("reader", "eu");
/// A group with cursors in the log of [`HOME`], and the topics that it reads.
pub const KEPT: (&str, &str) = ("kept", "orders");
pub const QUEUE: (&str, &str) = ("work", "orders");
pub const HOME: &str = "eu";
const TOKEN: (&str, &str, u64) = ("us", "nightly", 7);
const BY_HAND: (&[u8], u64) = (b"by hand", 4711);

/// If more jobs than this are delivered beyond a topic's records, taking does not end: each lease
/// lasts an hour.
const MOST_MORE: u64 = 1000;

/// Topics that a file beside the logs concerns, by its name.
pub fn topic_of(file: &str) -> Option<&'static str> {
    [READER, KEPT, QUEUE].into_iter().find(|(name, _)| *name == file).map(|(_, topic)| topic)
}

/// The state of these parts.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Cursors by group, topic and partition: the last value, and the one before.
    cursors: BTreeMap<(&'static str, &'static str, u32), [u64; 2]>,
    /// Offsets of jobs that are done.
    done: BTreeSet<u64>,
}

/// A topic of an open store.
pub fn topic(store: &Store, name: &str) -> Result<Topic, Error> {
    Topic::open(store, name, &TopicOptions::default())
}

impl Beside {
    /// Make all of it except the bulk load, and note the result.
    pub fn make(store: &Store) -> Result<Self, Error> {
        let mut made = Self::default();
        let (eu, orders) = (topic(store, READER.1)?, topic(store, KEPT.1)?);
        let mut reader =
            GroupMember::open(store, READER.0, std::slice::from_ref(&eu), Start::Earliest)?;
        for (partition, durable) in [(0, false), (1, true), (2, false)] {
            for offset in [10, 20] {
                reader.commit(READER.1, partition, offset, durable)?;
            }
            made.cursors.insert((READER.0, READER.1, partition), [20, 10]);
        }
        reader.close()?;
        let from = std::slice::from_ref(&orders);
        let mut kept = GroupMember::open_in(store, KEPT.0, from, Start::Earliest, &eu)?;
        kept.commit(KEPT.1, 0, 30, true)?;
        kept.close()?;
        made.cursors.insert((KEPT.0, KEPT.1, 0), [30, 30]);
        let to = CursorState { offset: BY_HAND.1, ..CursorState::default() };
        let mut tx = Transaction::new(store);
        tx.keep_cursors_in(&eu)?;
        tx.move_cursor(CursorMove { name: BY_HAND.0, to, from: None, metadata: b"" });
        tx.commit()?;
        made.work(&orders)?;
        Ok(made)
    }

    /// Leave jobs that are done, in flight, given back, and delayed.
    fn work(&mut self, orders: &Topic) -> Result<(), Error> {
        let queue = QueueFile::open(orders, QUEUE.0, queue_options())?;
        let jobs = queue.take(orders, 40, Duration::from_secs(3600))?;
        let acked: Vec<_> = jobs[..20].iter().chain(&jobs[25..35]).collect();
        queue.ack(orders, &acked.iter().map(|job| job.to_ack()).collect::<Vec<_>>())?;
        self.done = acked.iter().map(|job| job.lease.offset).collect();
        queue.nack(orders, &[jobs[20].lease], Duration::ZERO)?;
        queue.nack(orders, &[jobs[21].lease], Duration::from_secs(1))
    }

    /// Commit a bulk load of these records with an idempotency key, and leave another one staged.
    pub fn job(
        store: &Store,
        records: &[falaj::internals::topic::NewRecord<'_>],
    ) -> Result<(), Error> {
        let us = topic(store, TOKEN.0)?;
        for (name, is_committed) in [("import", true), ("left", false)] {
            let job = BulkLoad::new(&us, name)?;
            let token = Some((TOKEN.1, TOKEN.2));
            let mut part = job.stage("0", token.filter(|_| is_committed))?;
            for record in records {
                part.append_to(record, Some(0))?;
            }
            let manifest = part.finish()?;
            if is_committed {
                job.commit(&[manifest], token)?;
            }
        }
        Ok(())
    }

    /// Ask an open store about all this.
    pub fn ask(&self, store: &Store, asking: &Asking<'_>) -> Result<Told, String> {
        let mut told = Told::default();
        match list_groups(store) {
            Ok(found) => {
                for (name, of) in [READER, KEPT] {
                    let one = found.iter().find(|one| one.name == name);
                    let Some(one) = one else {
                        asking.wrong(Trust::All, || format!("no consumer {name} is listed"))?;
                        continue;
                    };
                    match &one.cursors {
                        Ok(cursors) => {
                            for partition in 0..asking.truths[of].len() as u32 {
                                let is_it =
                                    |c: &&falaj::internals::consumer::GroupPartitionInfo| {
                                        (c.topic.as_str(), c.partition) == (of, partition)
                                    };
                                let at = cursors.iter().find(is_it).map(|c| c.committed);
                                self.judge((name, of, partition), at, Trust::Values, asking)?;
                            }
                        }
                        Err(error) => asking.error(&mut told, error, name)?,
                    }
                }
            }
            Err(error) => asking.error(&mut told, &error, "consumers")?,
        }
        self.ask_queue(store, asking, &mut told)?;
        let known = topic(store, TOKEN.0).and_then(|us| last_idempotency_key(&us, TOKEN.1));
        self.right(
            known.map(|known| known.map(|known| known.version)),
            TOKEN.2,
            "token",
            asking,
            &mut told,
        )?;
        let by_hand = topic(store, HOME).and_then(|eu| eu.cursor(BY_HAND.0));
        let by_hand = by_hand.map(|found| found.map(|found| found.offset));
        self.right(by_hand, BY_HAND.1, "cursor by hand", asking, &mut told)?;
        Ok(told)
    }

    fn right(
        &self,
        found: Result<Option<u64>, Error>,
        right: u64,
        what: &str,
        asking: &Asking<'_>,
        told: &mut Told,
    ) -> Result<(), String> {
        match found {
            Ok(found) if found == Some(right) => Ok(()),
            Ok(found) => {
                asking.wrong(Trust::All, || format!("{what}: {found:?} instead of {right}"))
            }
            Err(error) => asking.error(told, &error, what),
        }
    }

    fn judge(
        &self,
        of: (&'static str, &'static str, u32),
        found: Option<u64>,
        never_ahead: Trust,
        asking: &Asking<'_>,
    ) -> Result<(), String> {
        let right = &self.cursors[&of];
        if found.is_some_and(|found| right.contains(&found)) {
            return Ok(());
        }
        let is_ahead = found.is_some_and(|found| found > right[0]);
        let needs = if is_ahead { never_ahead } else { Trust::All };
        asking.wrong(needs, || format!("cursor {of:?} at {found:?}, not {right:?}"))
    }

    fn ask_queue(&self, store: &Store, asking: &Asking<'_>, told: &mut Told) -> Result<(), String> {
        let found = match overview(store) {
            Ok(found) => found,
            Err(error) => return asking.error(told, &error, "queues"),
        };
        let Some((_, queue)) = found.into_iter().find(|(name, _)| name == QUEUE.0) else {
            return asking.wrong(Trust::All, || "the queue is not listed".into());
        };
        match queue {
            // The first that is not done.
            Ok(info) if info.topic == QUEUE.1 && !info.ordered && info.floor <= 20 => Ok(()),
            Ok(info) => asking.wrong(Trust::All, || format!("the queue is {info:?}")),
            Err(error) => asking.error(told, &error, "queue"),
        }
    }

    /// Resume: jobs that are not done are delivered, and a group resumes where it was.
    pub fn go_on(&self, store: &Store, asking: &Asking<'_>, told: &mut Told) -> Result<(), String> {
        if asking.topics.contains(&QUEUE.1) {
            self.take_all(store, asking, told)?;
        }
        for (name, of) in [READER, KEPT] {
            if !asking.topics.contains(&of) {
                continue;
            }
            // A group that starts over at the end would skip records that it has not read.
            let open = || {
                let (from, home) = ([topic(store, of)?], topic(store, HOME)?);
                match name {
                    "kept" => GroupMember::open_in(store, name, &from, Start::Latest, &home),
                    _ => GroupMember::open(store, name, &from, Start::Latest),
                }
            };
            let member = match open() {
                Ok(member) => member,
                Err(error) => {
                    asking.error(told, &error, name)?;
                    continue;
                }
            };
            for partition in 0..asking.truths[of].len() as u32 {
                match member.committed(of, partition) {
                    Ok(at) => {
                        self.judge((name, of, partition), Some(at), Trust::Behind, asking)?;
                    }
                    Err(error) => asking.error(told, &error, name)?,
                }
            }
        }
        Ok(())
    }

    fn take_all(&self, store: &Store, asking: &Asking<'_>, told: &mut Told) -> Result<(), String> {
        let queue = || {
            let orders = topic(store, QUEUE.1)?;
            let end = orders.end(0)?;
            let queue = QueueFile::open(&orders, QUEUE.0, queue_options())?;
            Ok((orders, end, queue))
        };
        let (orders, end, queue) = match queue() {
            Ok(found) => found,
            Err(error) => return asking.error(told, &error, "queue"),
        };
        let taken = match take_until_empty(&queue, &orders, end)? {
            Ok(taken) => taken,
            Err(error) => return asking.error(told, &error, "take"),
        };
        if let Some((n, _)) = taken.iter().find(|(_, times)| **times > 1) {
            asking.wrong(Trust::Behind, || format!("job {n} is delivered twice"))?;
        }
        // One of the jobs is not delivered again before a second has passed.
        let undone = |n: &u64| !self.done.contains(n) && *n != 21 && !taken.contains_key(n);
        match (0..end).find(undone) {
            None => Ok(()),
            Some(n) => asking.wrong(Trust::Behind, || format!("job {n} is not delivered")),
        }
    }
}

/// A queue of the smallest size.
pub fn queue_options() -> QueueOptions {
    QueueOptions { capacity: 64, ..QueueOptions::default() }
}

/// Take all jobs of a queue over a topic of so many records; return how often each was delivered.
///
/// An endless delivery is a finding, whatever was harmed.
pub fn take_until_empty(
    queue: &QueueFile,
    topic: &Topic,
    end: u64,
) -> Result<Result<BTreeMap<u64, u64>, Error>, String> {
    let (mut taken, mut count) = (BTreeMap::new(), 0);
    loop {
        let jobs = match queue.take(topic, 500, Duration::from_secs(3600)) {
            Ok(jobs) if jobs.is_empty() => return Ok(Ok(taken)),
            Ok(jobs) => jobs,
            Err(error) => return Ok(Err(error)),
        };
        count += jobs.len() as u64;
        if count > end + MOST_MORE {
            return Err(format!("{count} jobs of {end} records are delivered, and no end"));
        }
        jobs.iter().for_each(|job| *taken.entry(job.lease.offset).or_default() += 1);
    }
}
