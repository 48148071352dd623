//! Appending records: encode outside the lock, append, and sync as the mode says.

use std::cell::RefCell;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::checksum::{crc32, crc32_from};
use crate::format::record::{BodyWriter, NewRecord};
use crate::format::varint::LengthPrefix;
use crate::log::{Appended, NewBlock, Precondition};

use super::read::topic_error;
use super::{SyncMode, Topic};

/// Memory that a thread keeps for encoding, bytes; what one large block took beyond it is freed.
const KEPT: usize = 1 << 20;

/// Values up to this length are checksummed together with their header, which overlaps; bytes.
const SHORT: usize = 1 << 10;

thread_local! {
    static BODY: RefCell<BodyWriter> = RefCell::default();
}

impl Topic {
    /// Append a record; returns its offset. `sync` overrides the topic's mode.
    ///
    /// # Errors
    /// `AppendTooLarge`, `NoSpace`, `SystemCallFailed`, `LockTimeout`, `SyncFailed`, `TopicDeleted`,
    /// `NotWritable`, `HandleClosed` in a forked child: nothing was appended. `DurabilityUnknown`: it is
    /// visible, and perhaps not on the medium.
    #[inline]
    pub fn append(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Result<u64> {
        let appended = match self.try_alone(partition, record, sync) {
            Some(appended) => appended,
            None => self.commit_slowly(partition, record, sync)?,
        };
        self.await_durability(appended, sync).map(|appended| appended.first)
    }

    /// Append a record without waiting for the medium, whatever the mode. Who wants to do so in turns
    /// of his own calls [`Log::sync_to`](crate::log::Log::sync_to) with the end.
    ///
    /// # Errors
    /// As [`Topic::append`], but for `DurabilityUnknown`.
    #[inline]
    pub fn commit(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        match self.try_alone(partition, record, sync) {
            Some(appended) => Ok(appended),
            None => self.commit_slowly(partition, record, sync),
        }
    }

    /// Most records are a value alone, and meet nothing in their way.
    #[inline(always)]
    fn try_alone(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Option<Appended> {
        let value = record.value.filter(|_| !record.is_rich())?;
        let number = (partition < self.settings.partitions).then(|| self.settings.number)?;
        self.try_value(number + partition, value, self.is_interval(sync))
    }

    #[inline(never)]
    fn commit_slowly(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        let number = self.number(partition)?;
        self.with_block(number, std::slice::from_ref(record), sync, |block| {
            match self.log.try_append(LengthPrefix::default(), &block, Some(block.body_crc)) {
                Some(appended) => Ok(appended),
                None => self.log.append(&[block], &mut [0]),
            }
        })
        .map_err(|error| topic_error(error, &self.settings))
    }

    /// Append a value if that needs no waiting: no other thread or process has the log, and there is
    /// room. `None` when it does; nothing was appended then. Not for durable appends. What is wrong,
    /// if anything, [`Topic::append`] says.
    #[inline]
    pub fn try_append_value(&self, number: u32, value: &[u8], interval: bool) -> Option<u64> {
        self.try_value(number, value, interval).map(|appended| appended.first)
    }

    #[inline(always)]
    fn try_value(&self, number: u32, value: &[u8], interval: bool) -> Option<Appended> {
        let lead = LengthPrefix::of(value.len())?;
        let block = NewBlock {
            topic: number,
            flags: 0,
            count: 1,
            body: value,
            body_crc: 0,
            highest_event_ns: None,
            uses_append_time: true,
            interval,
        };
        // For the checksum of a long one other threads of the process need not wait.
        let known = (value.len() > SHORT).then(|| lead.with_bytes(|b| crc32_from(crc32(b), value)));
        self.log.try_append(lead, &block, known)
    }

    /// Append a record if that needs no waiting, as [`Topic::try_append_value`] does. Whatever the
    /// mode, it is not waited for the medium.
    ///
    /// # Errors
    /// As [`Topic::append`].
    pub fn try_append(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Option<Appended>> {
        let number = self.number(partition)?;
        self.with_block(number, std::slice::from_ref(record), sync, |block| {
            Ok(self.log.try_append(LengthPrefix::default(), &block, Some(block.body_crc)))
        })
    }

    /// Append bodies that the caller encoded, each to a partition of its own: all become visible
    /// together. Returns the offsets in each, and the end. Like [`Topic::commit`] it does not wait
    /// for the medium.
    ///
    /// # Errors
    /// As [`Topic::commit`]; `InvalidArgument` when a body is empty, or there is none.
    pub fn commit_bodies(
        &self,
        parts: &[(u32, &BodyWriter)],
        sync: Option<SyncMode>,
    ) -> Result<(Vec<Range<u64>>, Appended)> {
        self.commit_bodies_if(parts, &[], sync)
    }

    /// As [`Topic::commit_bodies`], if these preconditions hold. For a repeat the ranges are those that the
    /// records got the first time.
    ///
    /// # Errors
    /// As [`Topic::commit_bodies`] and [`Topic::append_if`].
    pub fn commit_bodies_if(
        &self,
        parts: &[(u32, &BodyWriter)],
        preconditions: &[Precondition<'_>],
        sync: Option<SyncMode>,
    ) -> Result<(Vec<Range<u64>>, Appended)> {
        if parts.is_empty() || parts.iter().any(|(_, body)| body.count() == 0) {
            return Err(nothing());
        }
        let interval = self.is_interval(sync);
        let mut blocks = Vec::with_capacity(parts.len());
        for (i, (partition, body)) in parts.iter().enumerate() {
            if parts[..i].iter().any(|(other, _)| other == partition) {
                let what = format!("partition {partition} stands twice in one append");
                return Err(Error::InvalidArgument { what });
            }
            blocks.push(new_block(self.number(*partition)?, body, interval));
        }
        let mut firsts = vec![0; blocks.len()];
        let appended = self.log.append_if(preconditions, &blocks, false, &mut firsts);
        let appended = appended.map_err(|error| topic_error(error, &self.settings))?;
        let ranges = firsts.iter().zip(&blocks);
        let ranges = ranges.map(|(first, block)| *first..first + u64::from(block.count));
        Ok((ranges.collect(), appended))
    }

    /// Append records to one partition as one block; returns their offsets.
    ///
    /// # Errors
    /// As [`Topic::append`]; `InvalidArgument` when there are none.
    pub fn extend(
        &self,
        partition: u32,
        records: &[NewRecord<'_>],
        sync: Option<SyncMode>,
    ) -> Result<Range<u64>> {
        let number = self.number(partition)?;
        if records.is_empty() {
            return Err(nothing());
        }
        self.with_block(number, records, sync, |block| {
            let appended = self.log.append(&[block], &mut [0]);
            let appended = appended.map_err(|error| topic_error(error, &self.settings))?;
            let first = self.await_durability(appended, sync)?.first;
            Ok(first..first + u64::from(block.count))
        })
    }

    /// Append records to several partitions at once: all become visible together. Returns the
    /// offsets in each. A partition may stand once.
    ///
    /// # Errors
    /// As [`Topic::extend`].
    pub fn extend_partitions(
        &self,
        parts: &[(u32, &[NewRecord<'_>])],
        sync: Option<SyncMode>,
    ) -> Result<Vec<Range<u64>>> {
        let bodies: Vec<_> = parts
            .iter()
            .map(|(partition, records)| {
                let mut body = BodyWriter::default();
                encode(&mut body, records);
                (*partition, body)
            })
            .collect();
        let borrowed: Vec<_> = bodies.iter().map(|(partition, body)| (*partition, body)).collect();
        let (ranges, appended) = self.commit_bodies(&borrowed, sync)?;
        self.await_durability(appended, sync).map(|_| ranges)
    }

    pub(super) fn with_block<T>(
        &self,
        number: u32,
        records: &[NewRecord<'_>],
        sync: Option<SyncMode>,
        use_it: impl FnOnce(NewBlock<'_>) -> Result<T>,
    ) -> Result<T> {
        // Taken out while it is in use: what happens inside may come here again.
        let mut body = BODY.take();
        encode(&mut body, records);
        let result = use_it(new_block(number, &body, self.is_interval(sync)));
        shrink(&mut body);
        BODY.set(body);
        result
    }

    pub(super) fn is_interval(&self, sync: Option<SyncMode>) -> bool {
        sync.unwrap_or(self.sync) == SyncMode::Interval
    }

    /// Wait for what the mode promises.
    #[inline]
    pub(super) fn await_durability(
        &self,
        appended: Appended,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        if sync.unwrap_or(self.sync) == SyncMode::Durable {
            self.make_durable(appended)?;
        }
        Ok(appended)
    }

    #[inline(never)]
    fn make_durable(&self, appended: Appended) -> Result<()> {
        let (offset, end) = (appended.first, appended.end);
        self.log.sync_to(end).map_err(|error| error.after_append(offset))
    }
}

pub(super) fn nothing() -> Error {
    Error::InvalidArgument { what: "there is nothing to append: give at least one record".into() }
}

fn encode(body: &mut BodyWriter, records: &[NewRecord<'_>]) {
    let rich = records.iter().any(NewRecord::is_rich);
    body.begin(rich, records.iter().find_map(|record| record.event_time_ns));
    records.iter().for_each(|record| body.push(record));
}

fn shrink(body: &mut BodyWriter) {
    body.shrink(KEPT);
}

#[inline(always)]
pub(super) fn new_block(topic: u32, body: &BodyWriter, interval: bool) -> NewBlock<'_> {
    let (highest_event_ns, uses_append_time) = body.times();
    NewBlock {
        topic,
        flags: body.flags(),
        count: body.count(),
        body: body.body(),
        body_crc: crc32(body.body()),
        highest_event_ns,
        uses_append_time,
        interval,
    }
}
