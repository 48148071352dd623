//! A consumer group as programs use it: one call gives the next record of all partitions that this member has.
//!
//! Owns waiting for records, and calling the callbacks. [`GroupReader`] does the reading.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::builder::Callback;
use super::claim::Announcement;
use super::handle::GroupMember;
use super::log_cursors::Move;
use super::offsets::GroupOffset;
use super::reader::{GroupReader, Waiting};
use crate::error::Result;
use crate::log::Notifier;
use crate::topic::{Committed, Record, RecordBatch, Skipped, Start, Transaction};

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
    pub(super) reader: GroupReader,
    pub(super) notifier: Notifier,
    /// Called for new partitions, and before some are released.
    pub(super) callbacks: (Option<Callback>, Option<Callback>),
}

/// A record, or a batch of records, that was delivered to a group's member. It dereferences to its [`Record`] or
/// [`RecordBatch`].
#[derive(Clone, Debug)]
pub struct Delivery<T = Record> {
    pub(super) topic: Arc<str>,
    pub(super) found: T,
}

impl<T> Delivery<T> {
    /// Get the name of its topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Take the record or the batch out.
    pub fn into_inner(self) -> T {
        self.found
    }
}

impl<T> Deref for Delivery<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.found
    }
}

impl Consumer {
    /// Get the name of its group.
    pub fn group(&self) -> &str {
        self.reader.member().group()
    }

    /// Get the next record, and wait for one: without a timeout as long as it takes, with [`Duration::ZERO`] not at
    /// all. `None` after the timeout, and behind the last record once all topics are
    /// [finished](crate::Topic::finish). Partitions are claimed and released here.
    ///
    /// # Errors
    /// As [`Topic::scan`](crate::Topic::scan) for reading; after `CorruptData`, [`Consumer::step_over`] continues.
    /// `LogTruncated` where a power failure took records that the group had read. `OffsetOutOfRange` where retention
    /// deleted the next records. After both, [`Consumer::seek`] says where to resume. `TopicDeleted`, unless a pattern
    /// found the topic. `HandleClosed` in a forked child. With [`commit_every`](super::ConsumerBuilder::commit_every)
    /// those of [`Consumer::commit`].
    pub fn poll(&mut self, timeout: impl Into<Option<Duration>>) -> Result<Option<Delivery>> {
        self.wait_for(timeout.into(), |reader| {
            let found = reader.next_ref()?;
            Ok(found.map(|(stream, batch, at)| stream.deliver(Record::new(batch.clone(), at))))
        })
    }

    /// Get the next records of one partition, about this many at most, and wait for them as [`Consumer::poll`] does.
    /// This is the fastest way to read. A commit covers whole batches; [`Consumer::commit_offset`] commits a part.
    ///
    /// # Errors
    /// As [`Consumer::poll`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.extend(["two coffees", "10 apples"])?;
    /// let mut billing = store.consumer("billing", ["orders"])?;
    /// while let Some(batch) = billing.poll_batch(8192, Duration::ZERO)? {
    ///     println!("{} {:?}", batch.topic(), batch.offsets());
    ///     billing.commit()?;
    /// }
    /// assert_eq!(billing.committed("orders", 0)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_batch(
        &mut self,
        records: usize,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Option<Delivery<RecordBatch>>> {
        self.wait_for(timeout.into(), |reader| {
            Ok(reader.next_batch(records)?.map(|(stream, batch)| stream.deliver(batch)))
        })
    }

    fn wait_for<T>(
        &mut self,
        timeout: Option<Duration>,
        mut look: impl FnMut(&mut GroupReader) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut waiting = Waiting::new(timeout);
        loop {
            self.prepare()?;
            if let Some(found) = look(&mut self.reader)? {
                return Ok(Some(found));
            }
            self.reader.commit_if_automatic()?;
            let Some((longest, idle_turns)) = waiting.sleep(&self.reader) else { return Ok(None) };
            // In this order: a record that comes after the ticket ends the sleep.
            let ticket = self.notifier.ticket();
            if !self.reader.has_news()? {
                self.notifier.sleep_at_most(ticket, idle_turns, longest);
            }
        }
    }

    /// Prepare for the next delivery, and call the callbacks that are due.
    fn prepare(&mut self) -> Result<()> {
        while !self.reader.prepare()? {
            if let Some(announcement) = self.reader.announcement() {
                self.announce(&announcement)?;
            }
        }
        Ok(())
    }

    fn announce(&mut self, announcement: &Announcement) -> Result<()> {
        let (on_assign, on_revoke) = &self.callbacks;
        let (callback, parts) = match announcement {
            Announcement::Assigned(parts) => (on_assign.clone(), parts),
            Announcement::Revoked(parts) => (on_revoke.clone(), parts),
        };
        callback.map_or(Ok(()), |callback| callback.call(self, parts))
    }

    /// Step over corruption after a `CorruptData`, in every partition that is at some. Returns the topic and partition
    /// of each, and what is lost to the group: it counts as delivered, and the next commit covers it.
    ///
    /// # Errors
    /// As [`Scan::step_over`](crate::Scan::step_over), when nothing was stepped over.
    pub fn step_over(&mut self) -> Result<Vec<(String, u32, Skipped)>> {
        self.prepare()?;
        self.reader.step_over()
    }

    /// Commit what was delivered. Every process sees it when this returns. A power failure may cause some records to be
    /// redelivered; [`Consumer::commit_durable`] excludes that.
    ///
    /// # Errors
    /// `PartitionNotAssigned` where another member has a partition by now; `CorruptData`, `LockTimeout`, `SystemCallFailed`.
    pub fn commit(&mut self) -> Result<()> {
        self.reader.commit_all(false)
    }

    /// Commit what was delivered, and wait until that is on the disk.
    ///
    /// # Errors
    /// As [`Consumer::commit`].
    pub fn commit_durable(&mut self) -> Result<()> {
        self.reader.commit_all(true)
    }

    /// Commit the records before an offset of one partition, as after a part of a batch. If the offset is ahead of what
    /// was delivered, reading resumes there.
    ///
    /// # Errors
    /// As [`Consumer::commit`]; `OffsetOutOfRange` beyond the end; `InvalidArgument` for a partition that the group does
    /// not read.
    pub fn commit_offset(&mut self, topic: &str, partition: u32, offset: u64) -> Result<()> {
        self.reader.commit_to((topic, partition), offset, false)
    }

    /// Commit these offsets of several partitions, and with `durable` wait until they are on the disk. They are all
    /// checked before the first one is committed.
    ///
    /// # Errors
    /// As [`Consumer::commit_offset`]; `InvalidArgument` for a partition that is named twice.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use falaj::{GroupOffset, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.extend(["two coffees", "10 apples"])?;
    /// let mut billing = store.consumer("billing", ["orders"])?;
    /// billing.poll(Duration::ZERO)?;
    /// billing.commit_offsets(&[GroupOffset::new("orders", 0, 1).metadata("invoice 17")], true)?;
    /// assert_eq!((billing.committed("orders", 0)?, billing.metadata("orders", 0)?), (1, "invoice 17".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_offsets(&mut self, offsets: &[GroupOffset<'_>], durable: bool) -> Result<()> {
        self.reader.at_offsets(offsets, |member| member.commit_offsets(offsets, durable))
    }

    /// Leave a text beside the offsets of the next commit, of at most 384 bytes: with the offset, or not
    /// at all. [`Consumer::metadata`] returns it, in any process. A commit without one leaves none.
    ///
    /// # Errors
    /// `InvalidArgument` for a longer text.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// # use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// store.topic("orders")?.append(b"7")?;
    /// let mut billing = store.consumer("billing", ["orders"])?;
    /// billing.poll(Duration::ZERO)?;
    /// billing.set_metadata("invoice 17")?;
    /// billing.commit()?;
    /// assert_eq!((billing.committed("orders", 0)?, billing.metadata("orders", 0)?), (1, "invoice 17".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_metadata(&mut self, metadata: &str) -> Result<()> {
        self.reader.set_metadata(metadata)
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
        let member = self.reader.settled();
        let moves = member.commit_in(tx)?;
        commit_moved(member, tx, &moves)
    }

    /// Commit a transaction together with these offsets, as [`Consumer::commit_with`] does with what was delivered.
    ///
    /// # Errors
    /// As [`Consumer::commit_with`] and [`Consumer::commit_offsets`].
    pub fn commit_offsets_with(
        &mut self,
        tx: &mut Transaction,
        offsets: &[GroupOffset<'_>],
    ) -> Result<Committed> {
        self.reader.at_offsets(offsets, |member| {
            let moves = member.moves_to(offsets)?;
            if let Some(home) = member.home() {
                moves.iter().try_for_each(|moved| moved.join(home, tx))?;
            }
            let committed = commit_moved(member, tx, &moves)?;
            if !committed.is_repeat() {
                member.resume_behind(offsets)?;
            }
            Ok(committed)
        })
    }

    /// Resume from another offset in a partition that this member has, and return that offset. The next commit commits
    /// it. A program that could not process a record goes back to it so.
    ///
    /// # Errors
    /// `OffsetOutOfRange`, `PartitionNotAssigned`, `InvalidArgument` for a partition that the group does not read.
    pub fn seek(&mut self, topic: &str, partition: u32, to: impl Into<Start>) -> Result<u64> {
        self.reader.seek(Some(topic), Some(partition), to.into())?;
        self.reader.member().next(topic, partition)
    }

    /// Go back to the committed offsets: records that were delivered since are redelivered.
    pub fn rewind(&mut self) {
        self.reader.rewind();
    }

    /// Stop delivering from a partition until [`Consumer::resume`]. The member keeps it.
    ///
    /// # Errors
    /// `InvalidArgument` for a partition that the group does not read.
    pub fn pause(&mut self, topic: &str, partition: u32) -> Result<()> {
        self.reader.set_paused((Some(topic), Some(partition)), true)
    }

    /// Deliver from a paused partition again.
    ///
    /// # Errors
    /// As [`Consumer::pause`].
    pub fn resume(&mut self, topic: &str, partition: u32) -> Result<()> {
        self.reader.set_paused((Some(topic), Some(partition)), false)
    }

    /// Get the partitions that this member has, as names of topics and numbers.
    pub fn assignment(&self) -> Vec<(&str, u32)> {
        let topics = self.reader.member().topics();
        let held = self.reader.member().held_parts().into_iter();
        held.map(|(topic, partition)| (topics[topic].name(), partition)).collect()
    }

    /// Get the offset of the next record to be delivered from a partition that this member has.
    ///
    /// # Errors
    /// `PartitionNotAssigned`; `LogTruncated`; `InvalidArgument` for a partition that the group does not read.
    pub fn position(&mut self, topic: &str, partition: u32) -> Result<u64> {
        self.reader.settled().next(topic, partition)
    }

    /// Get the committed offset of a partition, whichever member has it.
    ///
    /// # Errors
    /// `CorruptData`; `InvalidArgument` for a partition that the group does not read.
    pub fn committed(&self, topic: &str, partition: u32) -> Result<u64> {
        self.reader.member().committed(topic, partition)
    }

    /// Get the text that was committed with the offset of a partition; empty if there was none.
    ///
    /// # Errors
    /// As [`Consumer::committed`].
    pub fn metadata(&self, topic: &str, partition: u32) -> Result<String> {
        self.reader.member().metadata(topic, partition)
    }

    /// Count the records of a partition from the committed offset on.
    ///
    /// # Errors
    /// As [`Consumer::committed`].
    pub fn lag(&self, topic: &str, partition: u32) -> Result<u64> {
        self.reader.member().lag(topic, partition)
    }

    /// Leave the group. The committed offsets stay, and other members claim the partitions. Delivered
    /// records are committed first where [that is automatic](super::ConsumerBuilder::commit_every). A consumer that is dropped
    /// leaves too, but cannot return an error, and commits nothing.
    ///
    /// # Errors
    /// `LockTimeout`, `SystemCallFailed`, those of [`Consumer::commit`], and the error of
    /// [`ConsumerBuilder::on_revoke`](super::ConsumerBuilder::on_revoke).
    pub fn close(mut self) -> Result<()> {
        let committed = self.reader.commit_if_automatic();
        let announced = match self.reader.farewell() {
            Some(farewell) => self.announce(&farewell),
            None => Ok(()),
        };
        self.reader.leave()?;
        committed.and(announced)
    }
}

/// Commit a transaction that has these moves, and note them unless it was a repeat.
fn commit_moved(
    member: &mut GroupMember,
    tx: &mut Transaction,
    moves: &[Move],
) -> Result<Committed> {
    let committed = tx.commit()?;
    if !committed.is_repeat() {
        member.moved(moves, committed.end());
    }
    Ok(committed)
}
