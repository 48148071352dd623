//! Following: reading on as records are appended, and sleeping in between.
//!
//! Owns what a follower has seen of its log, which is what it waits beyond. Invariant: that is taken before
//! a look, which reads as far or further, so nothing comes between a look and a sleep unnoticed. How a
//! wait sleeps is [`crate::log`]'s. See `docs/PROTOCOL.md`, "Follow".

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::format::address::Address;
use crate::log::{Interrupt, RecordBatch, RecordRef, Wait};

use super::read::topic_error;
use super::{Merge, Record, ScanRange, Topic, Visibility};

/// How often to look where there is no page that says what is committed.
const BLIND: Duration = Duration::from_millis(10);

/// Goes through a topic, and waits at its end for more. As an iterator it ends only where it was given a
/// timeout; its errors are those of [`super::Scan`], and as that it stays before them.
#[derive(Debug)]
pub struct Follow {
    topic: Topic,
    merge: Merge,
    seen: Address,
    timeout: Option<Duration>,
}

impl Topic {
    /// Go through a partition from an offset on, and on as it grows.
    ///
    /// ```
    /// # use falaj::{NewRecord, Store, StoreOptions, Topic, TopicOptions};
    /// # use std::time::Duration;
    /// # let directory = tempfile::tempdir().expect("a directory for a test");
    /// # let store = Store::open(directory.path().join("events"), &StoreOptions::default())?;
    /// let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    /// orders.append(0, &NewRecord::value(b"two coffees"), None)?;
    /// let second = Duration::from_secs(1);
    /// for record in orders.follow(0, orders.first(0)?)?.with_timeout(Some(second)) {
    ///     println!("{:?}", record?.value()); // the loop ends when nothing came for a second
    /// }
    /// # Ok::<(), falaj::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Topic::scan`].
    pub fn follow(&self, partition: u32, from: u64) -> Result<Follow> {
        self.follow_merged(&[ScanRange { partition, from, end: None }])
    }

    /// The same for several partitions, merged by timestamp.
    ///
    /// # Errors
    /// As [`Topic::scan`].
    pub fn follow_merged(&self, ranges: &[ScanRange]) -> Result<Follow> {
        let (topic, merge) = (self.clone(), self.merge(ranges)?);
        Ok(Follow { topic, merge, seen: Address::default(), timeout: None })
    }
}

impl Iterator for Follow {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut waiting: Option<Instant> = None;
        loop {
            match self.poll_ref() {
                Ok(Some((batch, at))) => return Some(Ok(Record::new(batch.clone(), at))),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
            let waited = waiting.get_or_insert_with(Instant::now).elapsed();
            let left = self.timeout.map(|timeout| timeout.saturating_sub(waited));
            if left == Some(Duration::ZERO) {
                return None;
            }
            if let Err(error) = self.wait(left, &|| false) {
                return Some(Err(error));
            }
        }
    }
}

impl Follow {
    /// The same, which ends when nothing came for so long. It goes on where it is asked again.
    #[must_use]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// The next record if there is one now, as [`Merge::next_ref`].
    ///
    /// # Errors
    /// As that.
    #[inline]
    pub fn poll_ref(&mut self) -> Result<Option<(&RecordBatch, RecordRef)>> {
        self.note();
        let Some((number, at)) = self.merge.advance()? else {
            self.note_end();
            return Ok(None);
        };
        Ok(self.merge.batch(number).map(|batch| (batch, at)))
    }

    /// The next records of one partition if there are some now, as [`Merge::next_batch`].
    ///
    /// # Errors
    /// As that.
    pub fn poll_batch(&mut self, records: usize) -> Result<Option<RecordBatch>> {
        self.note();
        let batch = self.merge.next_batch(records)?;
        if batch.is_none() {
            self.note_end();
        }
        Ok(batch)
    }

    /// Before a look, which sees as far as that or further.
    #[inline]
    fn note(&mut self) {
        self.seen = self.topic.log().reached(self.topic.visibility).unwrap_or_default();
    }

    /// After a look that found nothing: what a writer that died left behind the end that it did not move
    /// has been read too.
    fn note_end(&mut self) {
        if self.topic.visibility == Visibility::Visible {
            self.seen = self.seen.max(self.merge.reached());
        }
    }

    /// Sleep until there is more than the last look saw. Where no page says so, after a moment.
    ///
    /// # Errors
    /// As [`crate::log::Log::wait_for_news`].
    pub fn wait(&self, timeout: Option<Duration>, interrupt: Interrupt<'_>) -> Result<Wait> {
        let (log, seen) = (self.topic.log(), self.seen);
        let waited = match self.topic.visibility {
            _ if log.committed().is_none() => {
                std::thread::sleep(timeout.map_or(BLIND, |timeout| timeout.min(BLIND)));
                Ok(Wait::News)
            }
            Visibility::Visible => log.wait_for_news(seen, timeout, interrupt),
            Visibility::Durable => log.wait_for_durable(Address(seen.0 + 1), timeout, interrupt),
        };
        waited.map_err(|error| topic_error(error, &self.topic.settings))
    }

    /// Up to where the last look saw the log.
    #[inline]
    pub fn seen(&self) -> Address {
        self.seen
    }

    /// The topic that it reads.
    #[inline]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// What it reads with.
    #[inline]
    pub fn merge(&self) -> &Merge {
        &self.merge
    }

    /// What it reads with, to read without waiting and to step over damage.
    #[inline]
    pub fn merge_mut(&mut self) -> &mut Merge {
        &mut self.merge
    }
}
