//! Appends that happen under a condition: nobody was faster, or nothing is appended twice.
//!
//! Owns the names that users know the log's demands by ([`Condition`]); whether one is met is decided
//! under the log's lock (`log/demands.rs`).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::block::Producer;
use crate::format::record::{BodyWriter, NewRecord};
use crate::log::{Appended, Preconditions, Sequenced};

use super::read::topic_error;
use super::{SyncMode, Topic};

/// Longest name of a producer, bytes.
pub const MAX_PRODUCER_NAME: usize = 1 << 10;

/// What is known of a producer: the last of its appends to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownProducer {
    /// Hash of its name ([`Producer::id_of`]); the name itself is not kept.
    pub id: u64,
    /// Its last sequence.
    pub sequence: u64,
    /// The partition that this went to; of several the first.
    pub partition: u32,
    /// The first offset that it got there.
    pub offset: u64,
    /// When it was appended, nanoseconds since 1970; `None` where that record is not there any more.
    pub appended_ns: Option<i64>,
}

/// What must be so for an append to happen; both may be asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Condition<'a> {
    /// The first record gets this offset, or else `Conflict`: nobody appended to the partition since it
    /// was looked at.
    pub expect: Option<u64>,
    /// Name and sequence of a producer. A sequence that was appended before is not appended again, and
    /// the offset that it got then is the answer, as long as it is one of the last five; sequences rise
    /// by one, whatever the partition, and begin anywhere.
    pub producer: Option<(&'a str, u64)>,
}

impl<'a> Condition<'a> {
    /// Only if the first record gets this offset.
    pub fn expect(offset: u64) -> Self {
        Self { expect: Some(offset), ..Self::default() }
    }

    /// Only if the producer of this name has not appended this sequence before.
    pub fn once(producer: &'a str, sequence: u64) -> Self {
        Self { producer: Some((producer, sequence)), ..Self::default() }
    }
}

impl Topic {
    /// Append a record under a condition; returns its offset, or that of the one that it repeats.
    /// `sync` overrides the topic's mode; of a repeat, too, it is waited for the medium.
    ///
    /// # Errors
    /// As [`Topic::append`]; `Conflict`, `OutOfSequence`, `DuplicateUnknownOffset`; `Invalid` for a
    /// producer without a name, with one that is too long, or with one more than the log remembers
    /// ([`Log::max_producers`](crate::log::Log::max_producers)): [`Topic::forget_producer`] makes room. Then
    /// nothing was appended.
    ///
    /// # Examples
    /// ```
    /// use falaj::store::{Store, StoreOptions, TopicOptions};
    /// use falaj::topic::{Condition, NewRecord, Topic};
    ///
    /// let place = tempfile::tempdir()?;
    /// let store = Store::open(place.path().join("events"), &StoreOptions::default())?;
    /// let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    /// let (record, once) = (NewRecord::value(b"10 apples"), Condition::once("till-3", 17));
    /// assert_eq!(orders.append_if(0, &record, &once, None)?, 0);
    /// assert_eq!(orders.append_if(0, &record, &once, None)?, 0);
    /// assert_eq!(orders.end(0)?, 1);
    /// assert!(orders.append_if(0, &record, &Condition::expect(0), None).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append_if(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        condition: &Condition<'_>,
        sync: Option<SyncMode>,
    ) -> Result<u64> {
        let appended = self.commit_if(partition, record, condition, sync)?;
        self.await_durability(appended, sync).map(|appended| appended.first)
    }

    /// As [`Topic::append_if`], without waiting for the medium, as [`Topic::commit`] does.
    ///
    /// # Errors
    /// As [`Topic::append_if`], but for `DurabilityUnknown`.
    pub fn commit_if(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        condition: &Condition<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        let demands = self.demands(condition)?;
        let number = self.number(partition)?;
        self.with_block(number, std::slice::from_ref(record), sync, |block| {
            self.log.append_if(&demands, &[block], &mut [0])
        })
        .map_err(|error| topic_error(error, &self.settings))
    }

    /// As [`Topic::commit_bodies`], under a condition. Of a repeat the ranges are those that the records
    /// got the first time.
    ///
    /// # Errors
    /// As [`Topic::commit_bodies`] and [`Topic::append_if`]; `Invalid` for an offset that is expected of
    /// several partitions.
    pub fn commit_bodies_if(
        &self,
        parts: &[(u32, &BodyWriter)],
        condition: &Condition<'_>,
        sync: Option<SyncMode>,
    ) -> Result<(Vec<Range<u64>>, Appended)> {
        self.commit_parts(parts, &self.demands(condition)?, sync)
    }

    /// The highest sequence that a producer of this name appended up to now; `None` where the log does
    /// not know it. With it a producer that starts anew knows where it is.
    ///
    /// # Errors
    /// `ReadOnly` for a topic that was opened for reading; `TopicDeleted`, `Corrupt`, `Io`.
    pub fn last_sequence(&self, producer: &str) -> Result<Option<u64>> {
        self.log.last_sequence(producer, self.numbers())
    }

    /// The producers that are known in this topic, by id. Looks the last record of each up, to tell when
    /// it was appended.
    ///
    /// # Errors
    /// `TopicDeleted`, `Corrupt`, `Io`.
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
            };
            let last = last.entry(known.id).or_insert(found);
            if known.sequence > last.sequence {
                *last = found;
            }
        }
        let with_time = |known: KnownProducer| {
            let record = self.get(known.partition, known.offset);
            // What retention took, or damage, says nothing of when.
            KnownProducer { appended_ns: record.ok().map(|r| r.block().appended_ns()), ..known }
        };
        Ok(last.into_values().map(with_time).collect())
    }

    /// Forget a producer: the next append under this name is a new one's, whatever its sequence, and what
    /// it appended before is not known as a repeat. On the medium when it returns; says whether it was
    /// known.
    ///
    /// # Errors
    /// `ReadOnly` for a topic that was opened for reading; as [`Topic::append`] and [`Topic::flush`].
    ///
    /// # Examples
    /// ```
    /// # use falaj::store::{Store, StoreOptions, TopicOptions};
    /// # use falaj::topic::{Condition, NewRecord, Topic};
    /// # let place = tempfile::tempdir()?;
    /// # let store = Store::open(place.path().join("events"), &StoreOptions::default())?;
    /// let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    /// let (record, once) = (NewRecord::value(b"10 apples"), Condition::once("till-3", 17));
    /// orders.append_if(0, &record, &once, None)?;
    /// assert!(orders.forget_producer("till-3")?);
    /// assert_eq!(orders.append_if(0, &record, &once, None)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget_producer(&self, name: &str) -> Result<bool> {
        Ok(self.forget_producers(&[Producer::id_of(name)])? > 0)
    }

    /// As [`Topic::forget_producer`], for many, by their ids; says how many of them were known.
    ///
    /// # Errors
    /// As [`Topic::forget_producer`]; some may be forgotten then.
    pub fn forget_producers(&self, ids: &[u64]) -> Result<usize> {
        let forgotten = self.log.forget_producers(ids, self.numbers());
        forgotten.map_err(|error| topic_error(error, &self.settings))
    }

    /// Numbers of its partitions in the log.
    fn numbers(&self) -> Range<u32> {
        let first = self.settings.number;
        first..first + self.settings.partitions
    }

    fn demands(&self, condition: &Condition<'_>) -> Result<Preconditions> {
        let producer = match condition.producer {
            None => None,
            Some((name, sequence)) => {
                if !(1..=MAX_PRODUCER_NAME).contains(&name.len()) {
                    let what = format!("a producer's name has 1 to {MAX_PRODUCER_NAME} bytes");
                    return Err(Error::Invalid { what });
                }
                Some(Sequenced::new(name, sequence, self.numbers()))
            }
        };
        Ok(Preconditions { expect: condition.expect, producer })
    }
}
