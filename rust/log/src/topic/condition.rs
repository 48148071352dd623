//! Appends that happen under a condition: nobody was faster, or nothing is appended twice.
//!
//! Owns the names that users know the log's demands by ([`Condition`]); whether one is met is decided
//! under the log's lock (`log/demands.rs`).

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::record::{BodyWriter, Record};
use crate::log::{Appended, Demands, Sequenced};

use super::read::named;
use super::{SyncMode, Topic};

/// Longest name of a producer, bytes.
pub const MAX_PRODUCER_NAME: usize = 1 << 10;

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
    /// ([`Log::max_producers`](crate::log::Log::max_producers)). Then nothing was appended.
    ///
    /// # Examples
    /// ```
    /// use falaj::store::{Store, StoreOptions, TopicOptions};
    /// use falaj::topic::{Condition, Record, Topic};
    ///
    /// let place = tempfile::tempdir()?;
    /// let store = Store::open(place.path().join("events"), &StoreOptions::default())?;
    /// let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    /// let (record, once) = (Record::value(b"10 apples"), Condition::once("till-3", 17));
    /// assert_eq!(orders.append_if(0, &record, &once, None)?, 0);
    /// assert_eq!(orders.append_if(0, &record, &once, None)?, 0);
    /// assert_eq!(orders.end(0)?, 1);
    /// assert!(orders.append_if(0, &record, &Condition::expect(0), None).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append_if(
        &self,
        partition: u32,
        record: &Record<'_>,
        condition: &Condition<'_>,
        sync: Option<SyncMode>,
    ) -> Result<u64> {
        let appended = self.commit_if(partition, record, condition, sync)?;
        self.settle(appended, sync).map(|appended| appended.first)
    }

    /// As [`Topic::append_if`], without waiting for the medium, as [`Topic::commit`] does.
    ///
    /// # Errors
    /// As [`Topic::append_if`], but for `DurabilityUnknown`.
    pub fn commit_if(
        &self,
        partition: u32,
        record: &Record<'_>,
        condition: &Condition<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        let demands = self.demands(condition)?;
        let number = self.number(partition)?;
        self.with_block(number, std::slice::from_ref(record), sync, |block| {
            self.log.append_if(&demands, &[block], &mut [0])
        })
        .map_err(|error| named(error, self.name()))
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
        let first = self.settings.number;
        self.log.last_sequence(producer, first..first + self.settings.partitions)
    }

    fn demands(&self, condition: &Condition<'_>) -> Result<Demands> {
        let producer = match condition.producer {
            None => None,
            Some((name, sequence)) => {
                if !(1..=MAX_PRODUCER_NAME).contains(&name.len()) {
                    let what = format!("a producer's name has 1 to {MAX_PRODUCER_NAME} bytes");
                    return Err(Error::Invalid { what });
                }
                let first = self.settings.number;
                Some(Sequenced::new(name, sequence, first..first + self.settings.partitions))
            }
        };
        Ok(Demands { expect: condition.expect, producer })
    }
}
