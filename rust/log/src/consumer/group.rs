//! A consumer group as programs use it: one call gives the next record of all partitions that this member has.
//!
//! Owns the streams of a [`GroupMember`]. Invariant: the member knows what was delivered before it is asked to
//! commit, to release a partition or to claim one. Streams are made again when the set of partitions changes.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::builder::Callback;
use super::claim::Announcement;
use super::{GroupMember, GroupPartition};
use crate::error::{Error, Result};
use crate::log::Notifier;
use crate::topic::{Committed, Follow, Record, ScanRange, Start, Transaction};

/// Records of one topic in a row, before another one has its turn.
const TURN: u32 = 4096;
/// Longest sleep before a member looks again.
const LONGEST: Duration = Duration::from_secs(1);

/// A member of a consumer group. Its members, in any process, share the partitions of the group's topics, and the
/// group's committed offsets say where each partition resumes.
///
/// A member claims and releases partitions inside [`Consumer::poll`]. Records that were delivered and not committed
/// are redelivered: to this member after [`Consumer::rewind`], or to another one after this one ended.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use falaj::Store;
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path().join("events"))?;
/// store.topic("orders")?.append(b"two coffees")?;
///
/// let mut billing = store.consumer("billing", ["orders"])?;
/// while let Some(record) = billing.poll(Duration::from_millis(10))? {
///     println!("{} {:?}", record.topic(), record.value());
///     billing.commit()?;
/// }
/// assert_eq!(billing.lag("orders", 0)?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Consumer {
    member: GroupMember,
    notifier: Notifier,
    streams: Vec<Stream>,
    /// The stream whose turn it is, and how many records it has had.
    turn: (usize, u32),
    /// Streams have to be made again before anything is read.
    stale: bool,
    /// Called for new partitions, and before some are released.
    callbacks: (Option<Callback>, Option<Callback>),
}

/// The partitions of one topic that this member has.
#[derive(Debug)]
struct Stream {
    topic: usize,
    name: Arc<str>,
    follow: Follow,
}

/// A record that was delivered to a group's member. It dereferences to its [`Record`].
#[derive(Clone, Debug)]
pub struct Delivery {
    topic: Arc<str>,
    record: Record,
}

impl Delivery {
    /// Get the name of its topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Take the record out.
    pub fn into_record(self) -> Record {
        self.record
    }
}

impl Deref for Delivery {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Consumer {
    pub(super) fn new(
        member: GroupMember,
        notifier: Notifier,
        callbacks: (Option<Callback>, Option<Callback>),
    ) -> Self {
        Self { member, notifier, streams: Vec::new(), turn: (0, 0), stale: true, callbacks }
    }

    /// Get the name of its group.
    pub fn group(&self) -> &str {
        self.member.group()
    }

    /// Get the next record, and wait for one: without a timeout as long as it takes, with [`Duration::ZERO`] not at
    /// all. `None` after the timeout. Partitions are claimed and released here.
    ///
    /// # Errors
    /// As [`Topic::scan`](crate::Topic::scan) for reading. `LogTruncated` where a power failure took records that the group had read.
    /// `OffsetOutOfRange` where retention deleted the next records. After both, [`Consumer::seek`] says where to resume.
    /// `HandleClosed` in a forked child.
    pub fn poll(&mut self, timeout: impl Into<Option<Duration>>) -> Result<Option<Delivery>> {
        let timeout = timeout.into();
        let mut began = None;
        for idle_turns in 0.. {
            self.prepare()?;
            if let Some(found) = self.next()? {
                return Ok(Some(found));
            }
            let began = *began.get_or_insert_with(Instant::now);
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            if left == Some(Duration::ZERO) {
                break;
            }
            self.sleep(left, idle_turns)?;
        }
        Ok(None)
    }

    /// Prepare for the next delivery.
    fn prepare(&mut self) -> Result<()> {
        self.refresh_if_due()?;
        while let Some(announcement) = self.member.announcement() {
            self.announce(&announcement)?;
            self.refresh_if_due()?;
        }
        if self.stale {
            self.rebuild()?;
        }
        Ok(())
    }

    fn refresh_if_due(&mut self) -> Result<()> {
        self.member.check()?;
        if !self.member.is_stale() && self.member.due() != Some(Duration::ZERO) {
            return Ok(());
        }
        self.settle();
        let refreshed = self.member.refresh();
        if !matches!(refreshed, Ok(false)) {
            // The streams count topics as they were before.
            self.forget_streams();
        }
        match refreshed {
            // Another process changes the store at this moment; the next call tries again.
            Err(Error::LockTimeout { .. }) => Ok(()),
            refreshed => refreshed.map(drop),
        }
    }

    fn announce(&mut self, announcement: &Announcement) -> Result<()> {
        let (on_assign, on_revoke) = &self.callbacks;
        let (callback, parts) = match announcement {
            Announcement::Assigned(parts) => (on_assign.clone(), parts),
            Announcement::Revoked(parts) => (on_revoke.clone(), parts),
        };
        callback.map_or(Ok(()), |callback| callback.call(self, parts))
    }

    /// Tell the member what was delivered.
    fn settle(&mut self) {
        for stream in &self.streams {
            for range in stream.follow.merge().ranges() {
                let (topic, partition, next) = (stream.topic, range.partition, range.from);
                self.member.handed_out(&GroupPartition { topic, partition, next, open: true });
            }
        }
    }

    fn rebuild(&mut self) -> Result<()> {
        self.forget_streams();
        let (parts, mut streams) = (self.member.parts()?, Vec::new());
        for (topic, of) in self.member.topics().iter().enumerate() {
            let its = parts.iter().filter(|part| part.open && part.topic == topic);
            let range = |part: &GroupPartition| {
                let (partition, from) = (part.partition, part.next);
                ScanRange { partition, from, end: None }
            };
            let ranges: Vec<_> = its.map(range).collect();
            if ranges.is_empty() {
                continue;
            }
            match of.follow_ranges(&ranges) {
                Ok(follow) => streams.push(Stream { topic, name: of.name().into(), follow }),
                Err(Error::TopicDeleted { .. }) if self.member.pattern().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        self.streams = streams;
        self.stale = false;
        Ok(())
    }

    /// Make the streams again before the next read; the member knows what was delivered.
    fn forget_streams(&mut self) {
        self.streams.clear();
        self.stale = true;
    }

    /// Get the next record, if there is one now.
    fn next(&mut self) -> Result<Option<Delivery>> {
        let (mut at, count) = self.turn;
        if count >= TURN && self.streams.len() > 1 {
            at += 1;
            self.turn.1 = 0;
        }
        for _ in 0..self.streams.len() {
            at = if at < self.streams.len() { at } else { 0 };
            let stream = &mut self.streams[at];
            let found = match stream.follow.poll_ref() {
                Err(error) if self.member.is_gone(&error) => {
                    self.prepare()?;
                    return self.next();
                }
                found => found?,
            };
            if let Some((batch, place)) = found {
                let record = Record::new(batch.clone(), place);
                self.turn = (at, self.turn.1 + 1);
                return Ok(Some(Delivery { topic: Arc::clone(&stream.name), record }));
            }
            at += 1;
            self.turn.1 = 0;
        }
        Ok(None)
    }

    /// Sleep until there may be something to do.
    fn sleep(&mut self, left: Option<Duration>, idle_turns: u32) -> Result<()> {
        let due = self.member.due().unwrap_or(LONGEST).clamp(Duration::from_millis(1), LONGEST);
        // In this order: a record that comes after the ticket ends the sleep.
        let ticket = self.notifier.ticket();
        for stream in &self.streams {
            let (topic, seen) = (stream.follow.topic(), stream.follow.seen());
            match topic.log().request_notification(topic.visibility(), seen) {
                Ok(false) => {}
                Err(error) if self.member.is_gone(&error) => return Ok(()),
                has_news => return has_news.map(drop),
            }
        }
        if !self.member.is_stale() {
            self.notifier.sleep_at_most(ticket, idle_turns, left.map_or(due, |left| left.min(due)));
        }
        Ok(())
    }

    /// Commit what was delivered. Every process sees it when this returns. A power failure may cause some records to be
    /// redelivered; [`Consumer::commit_durable`] excludes that.
    ///
    /// # Errors
    /// `PartitionNotAssigned` where another member has a partition by now; `CorruptData`, `LockTimeout`, `SystemCallFailed`.
    pub fn commit(&mut self) -> Result<()> {
        self.settle();
        self.member.commit_all(false)
    }

    /// Commit what was delivered, and wait until that is on the disk.
    ///
    /// # Errors
    /// As [`Consumer::commit`].
    pub fn commit_durable(&mut self) -> Result<()> {
        self.settle();
        self.member.commit_all(true)
    }

    /// Commit a transaction together with what was delivered: the records and the group's offsets become visible
    /// together. The group keeps its [offsets](super::ConsumerBuilder::offsets_in) in the log that the transaction writes to.
    ///
    /// # Errors
    /// As [`Transaction::commit`] and [`Consumer::commit`]. After `PartitionNotAssigned` another member has the partition: drop the
    /// transaction, and poll on.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.append(b"7")?;
    /// let sums = store.topic("sums")?;
    /// let mut adder = store.consumer_options("adder", ["orders"]).offsets_in(&sums).open()?;
    /// while let Some(order) = adder.poll(Duration::ZERO)? {
    ///     let mut tx = store.transaction();
    ///     tx.append(&sums, order.value().unwrap_or_default())?;
    ///     adder.commit_with(&mut tx)?; // both, or none
    /// }
    /// assert_eq!((adder.lag("orders", 0)?, sums.end_offset()?), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_with(&mut self, tx: &mut Transaction) -> Result<Committed> {
        self.settle();
        let moves = self.member.commit_in(tx)?;
        let committed = tx.commit()?;
        self.member.moved(&moves, committed.end());
        Ok(committed)
    }

    /// Resume from another offset in a partition that this member has, and return that offset. The next commit commits
    /// it.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, `PartitionNotAssigned`, `InvalidArgument` for a partition that the group does not read.
    pub fn seek(&mut self, topic: &str, partition: u32, to: impl Into<Start>) -> Result<u64> {
        self.settle();
        let offset = self.member.seek(topic, partition, to.into());
        self.forget_streams();
        offset
    }

    /// Go back to the committed offsets: records that were delivered since are redelivered.
    pub fn rewind(&mut self) {
        self.member.rewind();
        self.forget_streams();
    }

    /// Get the partitions that this member has, as names of topics and numbers.
    pub fn assignment(&self) -> Vec<(&str, u32)> {
        let topics = self.member.topics();
        let held = self.member.held_parts().into_iter();
        held.map(|(topic, partition)| (topics[topic].name(), partition)).collect()
    }

    /// Get the committed offset of a partition, whichever member has it.
    ///
    /// # Errors
    /// `CorruptData`; `InvalidArgument` for a partition that the group does not read.
    pub fn committed(&self, topic: &str, partition: u32) -> Result<u64> {
        self.member.committed(topic, partition)
    }

    /// Count the records of a partition from the committed offset on.
    ///
    /// # Errors
    /// As [`Consumer::committed`].
    pub fn lag(&self, topic: &str, partition: u32) -> Result<u64> {
        self.member.lag(topic, partition)
    }

    /// Leave the group. The committed offsets stay, and other members claim the partitions. A consumer that is dropped
    /// leaves too, but cannot return an error.
    ///
    /// # Errors
    /// `LockTimeout`, `SystemCallFailed`, and the error of [`ConsumerBuilder::on_revoke`](super::ConsumerBuilder::on_revoke).
    pub fn close(mut self) -> Result<()> {
        self.settle();
        let announced = match self.member.farewell() {
            Some(farewell) => self.announce(&farewell),
            None => Ok(()),
        };
        self.member.leave()?;
        announced
    }
}
