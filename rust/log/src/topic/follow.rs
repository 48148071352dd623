//! Following: reading on as records are appended, and sleeping in between.
//!
//! Owns what a follower has seen of its log, beyond which it waits. Invariant: that place is noted
//! before a look, which reads as far or further, so nothing between a look and a sleep goes
//! unnoticed. [`crate::log`] implements the sleep. See `docs/PROTOCOL.md`, "Follow".

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::format::address::Address;
use crate::log::{Interrupt, RecordBatch, RecordRef, Wait};

use super::read::topic_error;
use super::{Record, Scan, ScanRange, Topic, Visibility};

/// How often to look without a page that has the committed end.
const BLIND: Duration = Duration::from_millis(10);

/// Reads a topic, and waits at its end for more. [`Topic::follow`] makes it.
///
/// The iterator ends with a timeout, and continues at the next call. It also ends behind the last
/// record of a topic that is [finished](Topic::finish). After an error it stays where it is, as
/// [`Scan`] does.
#[derive(Debug)]
pub struct Follow {
    topic: Topic,
    merge: Scan,
    seen: Address,
    timeout: Option<Duration>,
}

impl Topic {
    /// Follow these ranges, merged by timestamp.
    ///
    /// # Errors
    /// As [`Topic::scan`].
    #[doc(hidden)]
    pub fn follow_ranges(&self, ranges: &[ScanRange]) -> Result<Follow> {
        let (topic, merge) = (self.clone(), self.scan_ranges(ranges)?);
        Ok(Follow { topic, merge, seen: Address::default(), timeout: None })
    }
}

impl Iterator for Follow {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut waiting, mut is_over): (Option<Instant>, _) = (None, false);
        loop {
            match self.poll_ref() {
                Ok(Some((batch, at))) => return Some(Ok(Record::new(batch.clone(), at))),
                Ok(None) if is_over => return None,
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
            // Its last records may have come since that look: look once more.
            is_over = self.is_over();
            if is_over {
                continue;
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
    /// End the iteration when nothing came for this long; `None` never ends it.
    #[must_use]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// Get the next record if there is one now, as [`Scan::next_ref`].
    ///
    /// # Errors
    /// As [`Scan::next_ref`].
    #[inline]
    pub fn poll_ref(&mut self) -> Result<Option<(&RecordBatch, RecordRef)>> {
        let Some((number, at)) = self.advance()? else { return Ok(None) };
        Ok(self.merge.batch(number).map(|batch| (batch, at)))
    }

    /// Return the next record with the number of its stream in [`Follow::merge`].
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<(usize, RecordRef)>> {
        self.note();
        let found = self.merge.advance()?;
        if found.is_none() {
            self.note_end();
        }
        Ok(found)
    }

    /// Return true if only records that the follower already sees are left, and no more will come.
    /// That is so if the topic is finished, and all of it is visible to this follower.
    #[doc(hidden)]
    pub fn is_over(&self) -> bool {
        let is_visible = |partition| match self.topic.visibility {
            Visibility::Visible => true,
            Visibility::Durable | Visibility::Remote => {
                let ends = (self.topic.end(partition), self.topic.committed(partition));
                matches!(ends, (Ok(seen), Ok(end)) if seen >= end)
            }
        };
        let read = || self.merge.ranges().map(|range| range.partition);
        let is_its =
            |partition| self.topic.number(partition).is_ok_and(|n| self.topic.log().is_finished(n));
        read().all(|partition| is_its(partition) && is_visible(partition))
            && !self.topic.is_deleted()
    }

    /// Get the next records of one partition if there are some now, as [`Scan::next_batch`].
    ///
    /// # Errors
    /// As [`Scan::next_ref`].
    pub fn poll_batch(&mut self, records: usize) -> Result<Option<RecordBatch>> {
        self.note();
        let batch = self.merge.next_batch(records)?;
        if batch.is_none() {
            self.note_end();
        }
        Ok(batch)
    }

    /// Note the end before a look, which sees as far as that or further.
    #[inline]
    fn note(&mut self) {
        self.seen = self.topic.log().reached(self.topic.visibility).unwrap_or_default();
    }

    /// Note the end after a look that found nothing: it has read blocks that a dead writer left
    /// beyond the tail, too.
    fn note_end(&mut self) {
        if self.topic.visibility == Visibility::Visible {
            self.seen = self.seen.max(self.merge.reached());
        }
    }

    /// Sleep until there is more than the last look saw. Without a page that tells, sleep for a
    /// moment.
    ///
    /// # Errors
    /// As [`crate::log::Log::wait_for_news`].
    #[doc(hidden)]
    pub fn wait(&self, timeout: Option<Duration>, interrupt: Interrupt<'_>) -> Result<Wait> {
        let (log, seen) = (self.topic.log(), self.seen);
        let waited = match self.topic.visibility {
            _ if log.committed().is_none() => {
                std::thread::sleep(timeout.map_or(BLIND, |timeout| timeout.min(BLIND)));
                Ok(Wait::News)
            }
            Visibility::Visible => log.wait_for_news(seen, timeout, interrupt),
            Visibility::Durable => log.wait_for_durable(Address(seen.0 + 1), timeout, interrupt),
            Visibility::Remote => log.wait_for_remote(Address(seen.0 + 1), timeout, interrupt),
        };
        waited.map_err(|error| topic_error(error, &self.topic.settings))
    }

    /// Return how far the last look saw the log.
    #[doc(hidden)]
    #[inline]
    pub fn seen(&self) -> Address {
        self.seen
    }

    /// Get the topic that it reads.
    #[inline]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Return the scan that it reads with.
    #[doc(hidden)]
    #[inline]
    pub fn merge(&self) -> &Scan {
        &self.merge
    }

    /// Return the scan that it reads with, to read without waiting and to step over corruption.
    #[doc(hidden)]
    #[inline]
    pub fn merge_mut(&mut self) -> &mut Scan {
        &mut self.merge
    }
}
