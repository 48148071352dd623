//! A consumer group as programs use it: one call gives the next record of all partitions that this member has.
//!
//! Owns the streams of a [`GroupMember`]. Invariant: the member knows what was delivered before it is asked to
//! commit, to release a partition or to claim one. Streams are made again when the set of partitions changes.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{GroupInfo, GroupMember, GroupPartition};
use super::{delete_group, forget_topic, list_groups};
use crate::error::{Error, Result};
use crate::log::Notifier;
use crate::store::Store;
use crate::topic::{Committed, Follow, Record, ScanRange, Start, Topic, Transaction, Visibility};

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

/// How to join a consumer group; [`Store::consumer_options`] makes one.
#[derive(Clone, Debug)]
#[must_use = "`open` joins the group"]
pub struct ConsumerBuilder {
    store: Store,
    name: String,
    topics: Vec<String>,
    start: Start,
    visibility: Visibility,
    home: Option<Topic>,
}

impl Store {
    /// Join a consumer group that reads these topics. The first member creates the group, which begins with the
    /// oldest records.
    ///
    /// # Errors
    /// As [`ConsumerBuilder::open`].
    pub fn consumer<T: AsRef<str>>(
        &self,
        name: &str,
        topics: impl IntoIterator<Item = T>,
    ) -> Result<Consumer> {
        self.consumer_options(name, topics).open()
    }

    /// Choose how to join a consumer group.
    pub fn consumer_options<T: AsRef<str>>(
        &self,
        name: &str,
        topics: impl IntoIterator<Item = T>,
    ) -> ConsumerBuilder {
        let topics = topics.into_iter().map(|topic| topic.as_ref().to_owned()).collect();
        let (store, name) = (self.clone(), name.to_owned());
        let (start, visibility) = (Start::Earliest, Visibility::default());
        ConsumerBuilder { store, name, topics, start, visibility, home: None }
    }

    /// List the consumer groups with their members and committed offsets.
    ///
    /// # Errors
    /// `SystemCallFailed` when the directory cannot be read. An error in the file of a group stands beside its name.
    pub fn groups(&self) -> Result<Vec<GroupInfo>> {
        list_groups(self)
    }

    /// Delete a consumer group and its committed offsets. It must have no living member.
    ///
    /// # Errors
    /// `InvalidArgument` where there is none, or a member lives; `NotWritable`, `LockTimeout`, `SystemCallFailed`.
    pub fn delete_group(&self, group: &str) -> Result<()> {
        delete_group(self, group)
    }

    /// Let a group forget a topic that it no longer reads, so that retention does not wait for it.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no such group, or it reads the topic; `NotWritable`, `LockTimeout`, `CorruptData`, `SystemCallFailed`.
    pub fn forget_topic(&self, name: &str, topic: &str) -> Result<()> {
        forget_topic(self, name, topic).map(drop)
    }
}

impl ConsumerBuilder {
    /// Begin here in partitions in which the group has no committed offset.
    pub fn start(self, start: impl Into<Start>) -> Self {
        Self { start: start.into(), ..self }
    }

    /// Read all that is visible, which is the default, or what is on the disk.
    pub fn visibility(self, visibility: Visibility) -> Self {
        Self { visibility, ..self }
    }

    /// Keep the committed offsets in the log of this topic, so that [`Consumer::commit_with`] moves them together with
    /// records. A group keeps what it was created with.
    pub fn offsets_in(self, home: &Topic) -> Self {
        Self { home: Some(home.clone()), ..self }
    }

    /// Join the group.
    ///
    /// # Errors
    /// `InvalidArgument` for no topic, one named twice, or other topics than those of a living member. `OffsetOutOfRange`
    /// for a start that is none. `InvalidName`, `UnknownTopic`, `NotWritable`, `LockTimeout`, `CorruptData`,
    /// `UnsupportedVersion`, `NoSpace`, `SystemCallFailed`.
    pub fn open(self) -> Result<Consumer> {
        let topic = |name: &String| Ok(self.store.topic(name)?.with_visibility(self.visibility));
        let topics: Vec<Topic> = self.topics.iter().map(topic).collect::<Result<_>>()?;
        let (store, name, start) = (&self.store, &self.name, self.start);
        let member = match &self.home {
            None => GroupMember::open(store, name, &topics, start)?,
            Some(home) => GroupMember::open_in(store, name, &topics, start, home)?,
        };
        let (notifier, streams) = (self.store.bell(), Vec::new());
        Ok(Consumer { member, notifier, streams, turn: (0, 0), stale: true })
    }
}

impl Consumer {
    /// Get the name of its group.
    pub fn group(&self) -> &str {
        self.member.group()
    }

    /// Get the next record, and wait for one: without a timeout as long as it takes, with [`Duration::ZERO`] not at
    /// all. `None` after the timeout. Partitions are claimed and released here.
    ///
    /// # Errors
    /// As [`Topic::scan`] for reading. `LogTruncated` where a power failure took records that the group had read.
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
        self.member.check()?;
        let is_due = self.member.is_stale() || self.member.due() == Some(Duration::ZERO);
        if is_due {
            self.settle();
            self.stale |= match self.member.refresh() {
                // Another process changes the store at this moment; the next call tries again.
                Err(Error::LockTimeout { .. }) => false,
                refreshed => refreshed?,
            };
        }
        if self.stale {
            self.settle();
            self.rebuild()?;
        }
        Ok(())
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
        let parts = self.member.parts()?;
        for (topic, of) in self.member.topics().iter().enumerate() {
            let its = parts.iter().filter(|part| part.open && part.topic == topic);
            let range = |part: &GroupPartition| {
                let (partition, from) = (part.partition, part.next);
                ScanRange { partition, from, end: None }
            };
            let ranges: Vec<_> = its.map(range).collect();
            if !ranges.is_empty() {
                let follow = of.follow_ranges(&ranges)?;
                self.streams.push(Stream { topic, name: of.name().into(), follow });
            }
        }
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
            if let Some((batch, place)) = stream.follow.poll_ref()? {
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
    fn sleep(&self, left: Option<Duration>, idle_turns: u32) -> Result<()> {
        let due = self.member.due().unwrap_or(LONGEST).clamp(Duration::from_millis(1), LONGEST);
        // In this order: a record that comes after the ticket ends the sleep.
        let ticket = self.notifier.ticket();
        for stream in &self.streams {
            let (topic, seen) = (stream.follow.topic(), stream.follow.seen());
            if topic.log().request_notification(topic.visibility(), seen)? {
                return Ok(());
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
    /// together. The group keeps its [offsets](ConsumerBuilder::offsets_in) in the log that the transaction writes to.
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
    /// `LockTimeout`, `SystemCallFailed`.
    pub fn close(self) -> Result<()> {
        self.member.close()
    }
}
