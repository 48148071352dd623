//! Conditional and idempotent appends: only at an expected offset, and only once.
//!
//! Owns the preconditions by the names that users of a topic know: partitions and producers. The log checks
//! them under its lock ([`crate::log::Precondition`]). Invariant: a topic takes its own preconditions alone, since the
//! log knows topics by numbers, and those of another log mean other topics.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::record::NewRecord;
use crate::format::state::{After, ProducerName, SequenceSpan};
use crate::log::{self, Appended};

use super::append::{append_or_repeat, with_encoded};
use super::read::topic_error;
use super::{SyncMode, Topic, partition_for_key};

/// Longest name of a producer, bytes.
pub const MAX_PRODUCER_NAME: usize = 1 << 10;

/// A known producer: the last of its appends to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownProducer {
    /// Hash of its name; the name itself is not stored.
    pub id: u64,
    /// Its last sequence.
    pub sequence: u64,
    /// The partition of that sequence; the first of several.
    pub partition: u32,
    /// The first offset of that sequence.
    pub offset: u64,
    /// When it was appended, nanoseconds since 1970; `None` if that record is gone.
    pub appended_ns: Option<i64>,
    /// The log forgets it by itself ([`ProducerName::expiring`]).
    pub expiring: bool,
}

/// A condition of an append to a topic. [`Topic::expect_offset`] and [`Topic::expect_sequence`] make it, and no other
/// topic takes it.
#[derive(Clone, Debug)]
pub struct Precondition<'a> {
    /// Generation of the topic that made it.
    generation: [u8; 16],
    /// The partition that it names, or which its producer chooses for records without a key.
    pub(super) partition: u32,
    it: log::Precondition<'a>,
}

impl Topic {
    /// Require that the next record of a partition gets this offset: no other append came since its
    /// end was read. Otherwise the append fails with `OffsetConflict`.
    ///
    /// # Errors
    /// `InvalidArgument` for a missing partition.
    #[doc(hidden)]
    pub fn expect_offset_in(&self, partition: u32, offset: u64) -> Result<Precondition<'static>> {
        let it = log::Precondition::NextOffset { topic: self.number(partition)?, offset };
        Ok(Precondition { generation: self.settings.generation, partition, it })
    }

    /// Give an append a sequence of a producer, or several. A repeated sequence is not appended
    /// again. The append then returns the offset of the first time, if that is one of the
    /// producer's last five appends. Sequences begin anywhere and rise by one, across all
    /// partitions.
    ///
    /// # Errors
    /// `InvalidArgument` for a producer without a name, or with too long a name. Also for a span
    /// without a sequence, or one that does not come after its previous one.
    pub fn expect_sequence<'a>(
        &self,
        producer: impl Into<ProducerName<'a>>,
        sequences: impl Into<SequenceSpan>,
    ) -> Result<Precondition<'a>> {
        let producer = producer.into();
        let partition = partition_for_key(producer.name().as_bytes(), self.partitions());
        self.sequence((producer, sequences.into()), self.numbers(), partition)
    }

    /// Do as [`Topic::expect_sequence`], with sequences that rise in this partition alone.
    ///
    /// # Errors
    /// As [`Topic::expect_sequence`]; `InvalidArgument` for a missing partition.
    pub fn expect_sequence_in<'a>(
        &self,
        partition: u32,
        producer: impl Into<ProducerName<'a>>,
        sequences: impl Into<SequenceSpan>,
    ) -> Result<Precondition<'a>> {
        let number = self.number(partition)?;
        self.sequence((producer.into(), sequences.into()), number..number + 1, partition)
    }

    fn sequence<'a>(
        &self,
        (producer, span): (ProducerName<'a>, SequenceSpan),
        numbers: Range<u32>,
        partition: u32,
    ) -> Result<Precondition<'a>> {
        let (producer, span) = checked(producer, span)?;
        let it = log::Precondition::producer(producer, span, numbers);
        Ok(Precondition { generation: self.settings.generation, partition, it })
    }

    /// Return preconditions of this topic as its log knows them.
    ///
    /// # Errors
    /// `InvalidArgument` for one of another topic.
    pub(super) fn own<'a>(
        &self,
        preconditions: &[Precondition<'a>],
    ) -> Result<Vec<log::Precondition<'a>>> {
        let own = |of: &Precondition<'a>| match of.generation == self.settings.generation {
            true => Ok(of.it.clone()),
            false => Err(Error::invalid(format!(
                "one of these preconditions is another topic's, and topic {:?} takes its own alone: call its \
                 expect_offset or expect_sequence; for several topics use a transaction",
                self.name()
            ))),
        };
        preconditions.iter().map(own).collect()
    }

    /// Append a record if these preconditions hold; return its offset, or that of the record it
    /// repeats. `sync` overrides the topic's mode; a repeat, too, waits for the disk.
    ///
    /// # Errors
    /// As [`Topic::append`]; `OffsetConflict`, `OutOfOrderSequence`, `DuplicateSequence`,
    /// `CursorMoved`. `InvalidArgument` when the log cannot remember another producer
    /// ([`Log::max_producers`](crate::log::Log::max_producers)): [`Topic::forget_producer`] makes
    /// space. Then nothing was appended.
    #[doc(hidden)]
    pub fn append_if_to(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        preconditions: &[Precondition<'_>],
        sync: Option<SyncMode>,
    ) -> Result<u64> {
        let appended = self.commit_if(partition, record, preconditions, sync)?;
        self.await_durability(appended, sync).map(|appended| appended.first)
    }

    /// Append as [`Topic::append_if`], without waiting for the disk, as [`Topic::commit`] does.
    ///
    /// # Errors
    /// As [`Topic::append_if`], without `DurabilityUnknown`.
    #[doc(hidden)]
    pub fn commit_if(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        preconditions: &[Precondition<'_>],
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        let preconditions = self.own(preconditions)?;
        let refused = self.refusal(sync)?;
        let number = self.number(partition)?;
        with_encoded(std::slice::from_ref(record), |encoded| {
            // Its checksum must not be computed under the lock.
            let block = encoded.block(number, self.is_interval(sync)).sealed();
            append_or_repeat(&self.log, refused, &preconditions, &[block], &mut [0])
        })
        .map_err(|error| topic_error(error, &self.settings))
    }

    /// Get the highest sequence of the producer of this name; `None` if the log does not know it. A
    /// producer that starts again resumes from there.
    ///
    /// # Errors
    /// `NotWritable` for a topic that was opened for reading; `TopicDeleted`, `CorruptData`, `SystemCallFailed`.
    pub fn last_sequence<'a>(&self, producer: impl Into<ProducerName<'a>>) -> Result<Option<u64>> {
        self.log.last_sequence(producer, self.numbers())
    }

    /// List the known producers of this topic, by id. Reads the last record of each, to find when
    /// it was appended.
    ///
    /// # Errors
    /// `TopicDeleted`, `CorruptData`, `SystemCallFailed`.
    pub fn producers(&self) -> Result<Vec<KnownProducer>> {
        let mut last: BTreeMap<u64, KnownProducer> = BTreeMap::new();
        for known in
            self.log.producers(self.numbers()).map_err(|e| topic_error(e, &self.settings))?
        {
            let found = KnownProducer {
                id: known.id,
                sequence: known.sequence,
                partition: known.topic - self.settings.number,
                offset: known.first,
                appended_ns: None,
                expiring: known.expiring,
            };
            let last = last.entry(known.id).or_insert(found);
            if known.sequence > last.sequence {
                *last = found;
            }
        }
        let with_time = |known: KnownProducer| {
            let record = self.get_in(known.partition, known.offset);
            // A record that retention or corruption removed has no time.
            KnownProducer { appended_ns: record.ok().map(|r| r.block().appended_ns()), ..known }
        };
        Ok(last.into_values().map(with_time).collect())
    }

    /// Forget a producer: the next append under this name is a new one's, whatever its sequence,
    /// and its earlier appends are not recognised as repeats. Returns whether it was known, once
    /// that is on disk.
    ///
    /// # Errors
    /// `NotWritable` for a topic that was opened for reading; as [`Topic::append`] and [`Topic::flush`].
    ///
    /// # Examples
    /// ```
    /// # use falaj::Store;
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::open(dir.path().join("events"))?;
    /// let orders = store.topic("orders")?;
    /// let once = [orders.expect_sequence("till-3", 17)?];
    /// let first = orders.append_if(b"10 apples", &once)?;
    /// assert!(orders.forget_producer("till-3")?);
    /// assert_ne!(orders.append_if(b"10 apples", &once)?, first);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget_producer<'a>(&self, producer: impl Into<ProducerName<'a>>) -> Result<bool> {
        Ok(self.forget_producers(&[producer.into().id()])? > 0)
    }

    /// Forget many producers by their ids, as [`Topic::forget_producer`]; return how many were
    /// known.
    ///
    /// # Errors
    /// As [`Topic::forget_producer`]; some may be forgotten then.
    #[doc(hidden)]
    pub fn forget_producers(&self, ids: &[u64]) -> Result<usize> {
        let forgotten = self.log.forget_producers(ids, self.numbers());
        forgotten.map_err(|error| topic_error(error, &self.settings))
    }

    /// Return the numbers of its partitions in the log.
    pub(super) fn numbers(&self) -> Range<u32> {
        let first = self.settings.number;
        first..first + self.settings.partitions
    }
}

/// Check the name of a producer and its sequences.
pub(super) fn checked(
    producer: ProducerName<'_>,
    span: SequenceSpan,
) -> Result<(ProducerName<'_>, SequenceSpan)> {
    if !(1..=MAX_PRODUCER_NAME).contains(&producer.name().len()) {
        return Err(Error::invalid(format!(
            "a producer's name has 1 to {MAX_PRODUCER_NAME} bytes"
        )));
    }
    let rises = match span.after {
        After::Nothing => true,
        After::Exactly(before) => before < span.first,
        After::Below(bound) => bound <= span.first,
    };
    if span.first > span.last || !rises {
        return Err(Error::invalid(
            "the sequences of an append rise from its first to its last, and all are above what comes \
                    before it",
        ));
    }
    Ok((producer, span))
}
