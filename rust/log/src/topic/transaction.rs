//! Transactions: records for several topics of one log, and cursors, that become visible together
//! or not at all.
//!
//! Owns the contents of a transaction, and how its commit is one append. All of it goes to one log,
//! the records of a partition are one block, and one commit word makes everything visible.
//! Invariant: before [`Transaction::commit`] nothing has happened, so a dropped transaction leaves
//! nothing. A commit that failed has appended nothing, and keeps the contents. [`crate::consumer`]
//! owns the positions of consumer groups. See `docs/PROTOCOL.md`, "Transactions".

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::checksum::crc32;
use crate::format::record::{BodyWriter, NewRecord};
use crate::format::state::{CursorState, ProducerName, SequenceSpan};
use crate::log::{Appended, CursorMove, Log, NewBlock, Precondition};
use crate::store::Store;

use super::append::new_block;
use super::preconditions::checked;
use super::read::topic_error;
use super::{SyncMode, Topic};

/// Records for several topics of one log, and cursors, that become visible together.
///
/// ```
/// use falaj::Store;
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path().join("events"))?;
/// let paid = store.topic_options("paid").log("shop").open()?;
/// let audit = store.topic_options("audit").log("shop").open()?;
///
/// let mut tx = store.transaction();
/// tx.append(&paid, b"order 17")?;
/// tx.append(&audit, b"paid: order 17")?;
/// assert_eq!(paid.end_offset()?, 0);
///
/// let committed = tx.commit()?;
/// assert_eq!(committed.offsets(&audit, 0), Some(0..1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transaction {
    store: Store,
    sync: Option<SyncMode>,
    parts: Vec<Part>,
    /// A topic of its log, unless its first record names one.
    home: Option<Topic>,
    conditions: BTreeMap<u32, Condition>,
    /// Topics that it finishes.
    finished: Vec<Topic>,
    cursors: BTreeMap<Vec<u8>, Cursor>,
}

/// The requirements of a commit for the topics whose numbers begin at its key.
#[derive(Debug)]
struct Condition {
    topic: Topic,
    /// The offset that the first record of the one partition gets.
    offset: Option<u64>,
    /// The name of the producer, whether it expires, its sequences, and the topics that they count in.
    producer: Option<(String, bool, SequenceSpan, Range<u32>)>,
}

/// Records for one partition of a topic.
#[derive(Debug)]
struct Part {
    topic: Topic,
    partition: u32,
    body: BodyWriter,
}

#[derive(Debug)]
struct Cursor {
    to: CursorState,
    from: Option<CursorState>,
    metadata: Box<[u8]>,
    position: Option<Box<GroupPosition>>,
}

/// A cursor that is the position of a consumer group in a partition.
#[derive(Clone, Debug)]
pub(crate) struct GroupPosition {
    pub(crate) group: String,
    pub(crate) topic: Topic,
    pub(crate) partition: u32,
    /// The group has read up to here, in the log of the topic.
    pub(crate) read: Address,
}

/// The offsets of a transaction's records.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    parts: Vec<(Topic, u32, Range<u64>)>,
    end: Address,
    is_repeat: bool,
}

impl Committed {
    /// List the partitions with records, in the order of their first record: topic, partition,
    /// offsets.
    pub fn parts(&self) -> &[(Topic, u32, Range<u64>)] {
        &self.parts
    }

    /// Get the offsets of the records of a partition; `None` without any.
    pub fn offsets(&self, topic: &Topic, partition: u32) -> Option<Range<u64>> {
        let number = topic.settings.number;
        let is_its = |it: &&(Topic, u32, _)| it.0.settings.number == number && it.1 == partition;
        self.parts.iter().find(is_its).map(|(.., offsets)| offsets.clone())
    }

    /// Return where it ends in the log: it is durable once the log is durable up to there.
    #[doc(hidden)]
    pub fn end(&self) -> Address {
        self.end
    }

    /// Return true if it repeated a transaction of its producer. A repeat appends nothing and moves no cursor.
    #[doc(hidden)]
    pub fn is_repeat(&self) -> bool {
        self.is_repeat
    }

    /// Return the first offset of its first part.
    #[doc(hidden)]
    pub fn first(&self) -> u64 {
        self.parts.first().map_or(0, |(.., offsets)| offsets.start)
    }
}

impl Transaction {
    /// Begin a transaction on topics of a store.
    #[doc(hidden)]
    pub fn new(store: &Store) -> Self {
        let (parts, conditions, finished, cursors) = Default::default();
        Self { store: store.clone(), sync: None, home: None, parts, conditions, finished, cursors }
    }

    /// Commit with this mode. Otherwise the strongest mode of its topics counts.
    #[must_use]
    pub fn with_sync(self, sync: SyncMode) -> Self {
        Self { sync: Some(sync), ..self }
    }

    /// Append a record when the transaction commits. Its key chooses the partition; records without a key take
    /// turns. Returns the partition.
    ///
    /// # Errors
    /// `InvalidArgument` for a topic of another log, or of another store, than the transaction
    /// writes to.
    #[inline]
    pub fn append<'a>(&mut self, topic: &Topic, record: impl Into<NewRecord<'a>>) -> Result<u32> {
        let record = record.into();
        let partition = topic.partition_for(&record);
        self.append_to(topic, partition, &record).map(|()| partition)
    }

    /// Append a record to this partition of a topic when the transaction commits.
    ///
    /// # Errors
    /// As [`Transaction::append`]; `InvalidArgument` for a missing partition.
    #[doc(hidden)]
    pub fn append_to(
        &mut self,
        topic: &Topic,
        partition: u32,
        record: &NewRecord<'_>,
    ) -> Result<()> {
        let number = topic.number(partition)?;
        self.expect_log_of(topic)?;
        let is_its = |part: &Part| part.topic.settings.number + part.partition == number;
        let found = self.parts.iter().rposition(is_its);
        let at = found.unwrap_or_else(|| {
            let mut body = BodyWriter::default();
            body.begin(false, None);
            self.parts.push(Part { topic: topic.clone(), partition, body });
            self.parts.len() - 1
        });
        self.parts[at].body.push_any(record);
        Ok(())
    }

    /// Require that the next record that the transaction appends to the topic gets this offset.
    /// Otherwise its commit fails with `OffsetConflict`, which names the topic and the partition.
    /// The transaction may also append nothing to that topic: then the topic must end there.
    ///
    /// # Errors
    /// As [`Transaction::append`]. `InvalidArgument` if the topic has several partitions and the
    /// handle is for all of them. Also for an offset that no record of the transaction can get.
    ///
    /// # Examples
    /// ```
    /// use falaj::{Error, Store};
    /// # let dir = tempfile::tempdir()?;
    /// let store = Store::open(dir.path().join("events"))?;
    /// let paid = store.topic_options("paid").log("shop").open()?;
    /// let audit = store.topic_options("audit").log("shop").open()?;
    /// audit.append(b"opened")?;
    ///
    /// let mut tx = store.transaction();
    /// tx.expect_offset(&audit, 0)?;
    /// tx.append(&paid, b"order 17")?;
    /// let refused = tx.commit().unwrap_err();
    /// assert!(matches!(refused, Error::OffsetConflict { topic, next: 1, .. } if topic == "audit"));
    /// assert_eq!(paid.end_offset()?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expect_offset(&mut self, topic: &Topic, offset: u64) -> Result<()> {
        self.expect_offset_in(topic, topic.one("expect an offset")?, offset)
    }

    /// Do as [`Transaction::expect_offset`], in this partition.
    ///
    /// # Errors
    /// As [`Transaction::expect_offset`]; `InvalidArgument` for a missing partition.
    #[doc(hidden)]
    pub fn expect_offset_in(&mut self, topic: &Topic, partition: u32, offset: u64) -> Result<()> {
        let number = topic.number(partition)?;
        self.write_to_log_of(topic)?;
        let is_its = |part: &&Part| part.topic.settings.number + part.partition == number;
        let before = self.parts.iter().find(is_its).map_or(0, |part| u64::from(part.body.count()));
        let known = self.conditions.get(&number).and_then(|condition| condition.offset);
        let first = offset.checked_sub(before);
        if first.is_none() || known.is_some_and(|known| Some(known) != first) {
            return Err(Error::invalid(format!(
                "the next record of this transaction to topic {:?}, partition {partition}, cannot get \
                 offset {offset}: {before} records come before it, and they expect other offsets",
                topic.name()
            )));
        }
        self.condition(topic, number).offset = first;
        Ok(())
    }

    /// Finish a topic when the transaction commits, after its records: see [`Topic::finish`].
    ///
    /// # Errors
    /// As [`Transaction::append`].
    pub fn finish(&mut self, topic: &Topic) -> Result<()> {
        self.write_to_log_of(topic)?;
        self.finished.push(topic.clone());
        Ok(())
    }

    /// Give all records of the transaction for a topic a sequence of a producer, or several, as
    /// [`Topic::expect_sequence`]. If the transaction writes to several topics, each of them needs
    /// this. A repeat appends nothing and moves no cursor: its commit returns the offsets of the first time.
    ///
    /// # Errors
    /// As [`Transaction::append`] and [`Topic::expect_sequence`].
    pub fn expect_sequence<'a>(
        &mut self,
        topic: &Topic,
        producer: impl Into<ProducerName<'a>>,
        sequences: impl Into<SequenceSpan>,
    ) -> Result<()> {
        self.expect_sequence_of(topic, topic.numbers(), producer.into(), sequences.into())
    }

    /// Do as [`Transaction::expect_sequence`], with sequences that rise in this partition alone.
    ///
    /// # Errors
    /// As [`Transaction::expect_sequence`]; `InvalidArgument` for a missing partition.
    pub fn expect_sequence_in<'a>(
        &mut self,
        topic: &Topic,
        partition: u32,
        producer: impl Into<ProducerName<'a>>,
        sequences: impl Into<SequenceSpan>,
    ) -> Result<()> {
        let number = topic.number(partition)?;
        self.expect_sequence_of(topic, number..number + 1, producer.into(), sequences.into())
    }

    fn expect_sequence_of(
        &mut self,
        topic: &Topic,
        numbers: Range<u32>,
        producer: ProducerName<'_>,
        span: SequenceSpan,
    ) -> Result<()> {
        let (producer, span) = checked(producer, span)?;
        self.write_to_log_of(topic)?;
        let condition = self.condition(topic, numbers.start);
        condition.producer =
            Some((producer.name().to_owned(), producer.is_expiring(), span, numbers));
        Ok(())
    }

    fn condition(&mut self, topic: &Topic, number: u32) -> &mut Condition {
        let made = || Condition { topic: topic.clone(), offset: None, producer: None };
        self.conditions.entry(number).or_insert_with(made)
    }

    /// Move a cursor when the transaction commits, in the log that it writes to. If a cursor moves
    /// twice, the last move counts. A transaction without records must [name the
    /// log](Transaction::keep_cursors_in).
    #[doc(hidden)]
    pub fn move_cursor(&mut self, moved: CursorMove<'_>) {
        self.cursors.insert(moved.name.to_vec(), Cursor::of(moved, None));
    }

    /// Move the position of a consumer group, which a topic's log keeps.
    pub(crate) fn move_position(
        &mut self,
        home: &Topic,
        moved: CursorMove<'_>,
        position: GroupPosition,
    ) -> Result<()> {
        self.write_to_log_of(home)?;
        let cursor = Cursor::of(moved, Some(Box::new(position)));
        self.cursors.insert(moved.name.to_vec(), cursor);
        Ok(())
    }

    /// Keep its cursors in the log of this topic.
    ///
    /// # Errors
    /// As [`Transaction::append`].
    #[doc(hidden)]
    pub fn keep_cursors_in(&mut self, home: &Topic) -> Result<()> {
        self.write_to_log_of(home)
    }

    /// Return the log that it writes to, once that is known.
    #[doc(hidden)]
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.home().map(|home| &home.log)
    }

    /// Count its records.
    pub fn records(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.body.count())).sum()
    }

    /// Return how a commit syncs: all records of one append are synced together.
    #[doc(hidden)]
    pub fn sync_mode(&self) -> SyncMode {
        let of_parts = self.parts.iter().map(|part| part.topic.sync).max();
        let of_home = || self.home().map(|home| home.sync);
        self.sync.or(of_parts).or_else(of_home).unwrap_or_default()
    }

    /// Commit it, and wait as its mode requires. Without records, cursors and conditions it does
    /// nothing. Then it is empty, and can be used again.
    ///
    /// # Errors
    /// `OffsetConflict`, `OutOfOrderSequence`, `DuplicateSequence` for a condition that fails; they
    /// name the topic and the partition. `AppendTooLarge` for more than one append may have; `TopicDeleted`; `PartitionNotAssigned`
    /// for the position of a consumer group that another member has by now. `CursorMoved` for
    /// another cursor. `InvalidArgument` for cursors without a log, or more of them than it keeps.
    /// Also for conditions without anything to append, and for records without the producer that
    /// others of the transaction have;
    /// otherwise as [`Topic::append`]. Nothing was appended then, and it can be committed again.
    /// `DurabilityUnknown`: it is visible, and perhaps not on disk.
    pub fn commit(&mut self) -> Result<Committed> {
        let (sync, home) = (self.sync_mode(), self.home().cloned());
        let committed = self.commit_visible()?;
        if let Some(home) = home {
            let Committed { end, is_repeat, .. } = committed;
            let appended = Appended { first: committed.first(), end, is_repeat };
            home.await_durability(appended, Some(sync))?;
        }
        Ok(committed)
    }

    /// Commit as [`Transaction::commit`], without waiting for the disk.
    ///
    /// # Errors
    /// As [`Transaction::commit`], without `DurabilityUnknown`.
    #[doc(hidden)]
    pub fn commit_visible(&mut self) -> Result<Committed> {
        let refused = match self.home() {
            Some(home) if self.sync_mode() == SyncMode::Remote => home.log.expect_shipper().err(),
            _ => None,
        };
        self.commit_unless(refused)
    }

    /// Return what this transaction committed before, if it repeats one of its producer. Appends
    /// nothing: a new transaction is refused, with the given error.
    ///
    /// # Errors
    /// The refusal; as [`Transaction::commit_visible`].
    #[doc(hidden)]
    pub fn repeat_or<E: From<Error>>(&mut self, refused: E) -> std::result::Result<Committed, E> {
        self.commit_unless(Some(refused))
    }

    /// Commit, or accept nothing but a repeat.
    fn commit_unless<E: From<Error>>(
        &mut self,
        refused: Option<E>,
    ) -> std::result::Result<Committed, E> {
        if self.parts.is_empty() && self.cursors.is_empty() && self.finished.is_empty() {
            if !self.conditions.is_empty() {
                return Err(Error::invalid(
                    "a transaction that expects something and appends nothing has nothing to commit: \
                            append a record, or read the topic's end",
                )
                .into());
            }
            self.home = None;
            return Ok(Committed::default());
        }
        let Some(home) = self.home() else {
            return Err(Error::invalid(
                "a transaction that moves a cursor and appends nothing has to know the log that keeps \
                        it: name a topic of that log (in Python: into=)",
            )
            .into());
        };
        let sync = self.sync_mode();
        if sync >= SyncMode::Durable {
            let positions = self.cursors.values().filter_map(|cursor| cursor.position.as_ref());
            positions.into_iter().try_for_each(|position| position.sync_input(home))?;
        }
        let interval = sync == SyncMode::Interval;
        let mut blocks: Vec<NewBlock<'_>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            part.topic.expect_codec()?;
            let (number, body) = (part.topic.number(part.partition)?, &part.body);
            blocks.push(new_block(number, body, Some(crc32(body.body())), interval));
        }
        let moves = self.cursors.iter().map(|(name, cursor)| {
            let Cursor { to, from, metadata, .. } = cursor;
            Precondition::Cursor(CursorMove { name, to: *to, from: *from, metadata })
        });
        let conditions = self.conditions.iter().flat_map(|(number, of)| of.preconditions(*number));
        let finished = self.finished.iter();
        let finished = finished.map(|topic| Precondition::Finish { topics: topic.numbers() });
        let preconditions: Vec<_> = conditions.chain(moves).chain(finished).collect();
        let mut firsts = vec![0; blocks.len()];
        let (log, firsts_of) = (&home.log, &mut firsts);
        let appended = match refused {
            None => log.append_if(&preconditions, &blocks, interval, firsts_of).map(Ok),
            Some(refused) => log
                .repeated(&preconditions, &blocks, firsts_of)
                .map(|repeated| repeated.ok_or(refused)),
        };
        let Appended { end, is_repeat, .. } =
            appended.map_err(|error| self.named(home, error))??;
        let ends = firsts.into_iter().zip(self.parts.drain(..));
        let parts = ends.map(|(first, part)| {
            (part.topic, part.partition, first..first + u64::from(part.body.count()))
        });
        let committed = Committed { parts: parts.collect(), end, is_repeat };
        self.cursors.clear();
        self.conditions.clear();
        self.finished.clear();
        self.home = None;
        Ok(committed)
    }

    /// Add to a commit's error the topic that was deleted or whose condition failed, or the
    /// position that another member has.
    #[cold]
    fn named(&self, home: &Topic, mut error: Error) -> Error {
        if let Some((_, number)) = error.part_mut() {
            let number = *number;
            let conditions = self.conditions.values().map(|of| &of.topic);
            let mut topics = conditions.chain(self.parts.iter().map(|part| &part.topic));
            let topic = topics.find(|topic| topic.numbers().contains(&number)).unwrap_or(home);
            return topic_error(error, &topic.settings);
        }
        if let Error::CursorMoved { name } = &error {
            let cursor = self.cursors.get(name);
            return match cursor.and_then(|cursor| cursor.position.as_ref()) {
                Some(position) => position.not_owner(),
                None => error,
            };
        }
        let deleted = self.parts.iter().map(|part| &part.topic).find(|topic| topic.is_deleted());
        topic_error(error, &deleted.unwrap_or(home).settings)
    }

    /// Return a topic of the log that it writes to, once that is known.
    fn home(&self) -> Option<&Topic> {
        self.home.as_ref().or_else(|| self.parts.first().map(|part| &part.topic))
    }

    /// Write to the log of this topic, if the transaction writes to no other.
    fn write_to_log_of(&mut self, topic: &Topic) -> Result<()> {
        self.expect_log_of(topic)?;
        self.home.get_or_insert_with(|| topic.clone());
        Ok(())
    }

    /// Fail for a topic of another log than the transaction writes to.
    fn expect_log_of(&self, topic: &Topic) -> Result<()> {
        let name = topic.name();
        let what = match self.home() {
            Some(home) if Arc::ptr_eq(&topic.log, &home.log) => return Ok(()),
            _ if topic.store.path() != self.store.path() => format!(
                "topic {name:?} is in the store {}, and a transaction writes to one store: take the topic \
                 from {}",
                topic.store.path().display(),
                self.store.path().display()
            ),
            Some(home) if topic.log.dir() == home.log.dir() => return Ok(()),
            Some(home) => format!(
                "topics {:?} and {name:?} live in different logs, but a transaction writes to one log. \
                 Create topics that belong together with the same log=\"…\"",
                home.name()
            ),
            None => return Ok(()),
        };
        Err(Error::invalid(what))
    }
}

impl Cursor {
    fn of(moved: CursorMove<'_>, position: Option<Box<GroupPosition>>) -> Self {
        Self { to: moved.to, from: moved.from, metadata: moved.metadata.into(), position }
    }
}

impl Condition {
    fn preconditions(&self, topic: u32) -> impl Iterator<Item = Precondition<'_>> {
        let offset = self.offset.map(|offset| Precondition::NextOffset { topic, offset });
        let producer = self.producer.as_ref();
        let producer = producer.map(|(name, is_expiring, span, topics)| {
            let name = if *is_expiring { ProducerName::expiring(name) } else { name.into() };
            Precondition::producer(name, *span, topics.clone())
        });
        offset.into_iter().chain(producer)
    }
}

impl GroupPosition {
    /// Sync what the group has read, if that is in another log than the cursor: a durable cursor
    /// may only follow durable records.
    fn sync_input(&self, home: &Topic) -> Result<()> {
        let log = self.topic.log();
        let is_there = log.durable().is_some_and(|durable| durable >= self.read);
        if is_there || log.dir() == home.log.dir() {
            return Ok(());
        }
        log.sync_to(self.read).map(drop)
    }

    fn not_owner(&self) -> Error {
        Error::PartitionNotAssigned {
            group: self.group.clone(),
            topic: self.topic.name().to_owned(),
            partition: self.partition,
            holder: "another member, or a process that moved its cursor since,".into(),
        }
    }
}
