//! Appending records: encode outside the lock, append, and sync as the mode says.

use std::cell::RefCell;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::checksum::{crc32, crc32_of};
use crate::format::record::{BodyWriter, NewRecord, RecordLead};
use crate::log::{self, Appended, Log, NewBlock, Wait};

use super::read::topic_error;
use super::{Precondition, SyncMode, Topic};

/// Bytes that a thread keeps for encoding; it frees what a large block needed beyond them.
const KEPT: usize = 1 << 20;

/// Values up to this length are checksummed together with their header, in bytes.
const SHORT: usize = 1 << 10;

thread_local! {
    static BODY: RefCell<BodyWriter> = RefCell::default();
}

/// Records for one partition, encoded. Several attempts may append them.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a>(NewBlock<'a>);

impl Encoded<'_> {
    /// Make the block of these records for a topic of the log.
    #[inline(always)]
    pub(super) fn block(&self, topic: u32, interval: bool) -> NewBlock<'_> {
        NewBlock { topic, interval, ..self.0 }
    }
}

/// Encode records, and use the result.
#[inline(always)]
pub fn with_encoded<T>(records: &[NewRecord<'_>], use_them: impl FnOnce(&Encoded<'_>) -> T) -> T {
    if let [record] = records {
        if let Some(lead) = RecordLead::empty().encode(record) {
            return use_them(&Encoded(lone_block(0, lead, record, false)));
        }
    }
    with_body(records, |body| {
        use_them(&Encoded(new_block(0, body, long_crc(&[], body.body()), false)))
    })
}

/// Compute the checksum of a long body, so that other threads of the process need not wait for it.
#[inline(always)]
fn long_crc(lead: &[u8], rest: &[u8]) -> Option<u32> {
    (rest.len() > SHORT).then(|| crc32_of(lead, rest))
}

/// Make a block of one record, given the bytes before its value. The value is copied once, to its
/// final place.
#[inline(always)]
fn lone_block<'a>(
    topic: u32,
    lead: &'a RecordLead,
    record: &NewRecord<'a>,
    interval: bool,
) -> NewBlock<'a> {
    let body = record.value.unwrap_or_default();
    NewBlock {
        topic,
        flags: lead.flags(),
        count: 1,
        lead: lead.bytes(),
        body,
        body_crc: long_crc(lead.bytes(), body),
        highest_event_ns: record.event_time_ns,
        uses_append_time: record.event_time_ns.is_none(),
        interval,
    }
}

#[inline(never)]
fn with_body<T>(records: &[NewRecord<'_>], use_it: impl FnOnce(&BodyWriter) -> T) -> T {
    // Taken while it is in use: the closure may come here again.
    let mut body = BODY.take();
    encode(&mut body, records);
    let result = use_it(&body);
    body.shrink(KEPT);
    BODY.set(body);
    result
}

impl Topic {
    /// Append a record; return its offset. `sync` overrides the topic's mode.
    ///
    /// # Errors
    /// `AppendTooLarge`, `NoSpace`, `SystemCallFailed`, `LockTimeout`, `SyncFailed`,
    /// `TopicDeleted`, `NotWritable`, `HandleClosed` in a forked child: nothing was appended.
    /// `DurabilityUnknown`: it is visible, and perhaps not on disk. With [`SyncMode::Remote`] also
    /// `NoShipper`, `Fenced` and `RemoteTimeout`, with an offset if it was appended.
    #[inline]
    #[doc(hidden)]
    pub fn append_to(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Result<u64> {
        let appended = self.commit(partition, record, sync)?;
        self.await_durability(appended, sync).map(|appended| appended.first)
    }

    /// Append a record without waiting for the disk, in every mode. A caller that wants to wait
    /// later calls [`Log::sync_to`](crate::log::Log::sync_to) with the end.
    ///
    /// # Errors
    /// As [`Topic::append`], without `DurabilityUnknown`.
    #[inline]
    #[doc(hidden)]
    pub fn commit(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        self.expect_ready(sync)?;
        let mut room = RecordLead::empty();
        let Some(lead) = room.encode(record) else {
            return self.commit_long(partition, record, sync);
        };
        let (number, interval) = (self.number(partition)?, self.is_interval(sync));
        let block = lone_block(number, lead, record, interval);
        self.log.append_block(&block).map_err(|error| topic_error(error, &self.settings))
    }

    #[inline(never)]
    fn commit_long(
        &self,
        partition: u32,
        record: &NewRecord<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        let records = std::slice::from_ref(record);
        with_encoded(records, |encoded| self.commit_encoded(partition, encoded, sync))
    }

    /// Commit encoded records, as [`Topic::commit`].
    ///
    /// # Errors
    /// As [`Topic::commit`]; `InvalidArgument` when there are none.
    #[doc(hidden)]
    #[inline(always)]
    pub fn commit_encoded(
        &self,
        partition: u32,
        records: &Encoded<'_>,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        self.expect_ready(sync)?;
        let block = records.block(self.number(partition)?, self.is_interval(sync));
        self.log.append_block(&block).map_err(|error| topic_error(error, &self.settings))
    }

    /// Commit as [`Topic::commit_encoded`] if no waiting is needed: no other thread or process
    /// holds the log, and the segment has space. `None` otherwise, or for an error, which that call
    /// then returns; nothing was appended.
    #[doc(hidden)]
    #[inline]
    pub fn try_commit(
        &self,
        partition: u32,
        records: &Encoded<'_>,
        sync: Option<SyncMode>,
    ) -> Option<Appended> {
        let number = self.number(partition).ok().filter(|_| self.has_codec())?;
        self.log.try_append(&records.block(number, self.is_interval(sync)))
    }

    /// Do as [`Topic::try_commit`] for a value alone, in the partition with this number in the log;
    /// return its offset. Not for durable appends.
    #[doc(hidden)]
    #[inline]
    pub fn try_append_value(&self, number: u32, value: &[u8], interval: bool) -> Option<u64> {
        if !self.has_codec() {
            return None;
        }
        let record = NewRecord::new(value);
        let mut room = RecordLead::empty();
        let block = lone_block(number, room.encode(&record)?, &record, interval);
        self.log.try_append(&block).map(|appended| appended.first)
    }

    /// Append bodies that the caller encoded, each to a partition of its own: all become visible
    /// together. Returns the offsets in each, and the end. Like [`Topic::commit`] it does not wait
    /// for the disk.
    ///
    /// # Errors
    /// As [`Topic::commit`]; `InvalidArgument` when a body is empty, or there is none.
    #[doc(hidden)]
    pub fn commit_bodies(
        &self,
        parts: &[(u32, &BodyWriter)],
        sync: Option<SyncMode>,
    ) -> Result<(Vec<Range<u64>>, Appended)> {
        self.commit_bodies_if(parts, &[], sync)
    }

    /// Do as [`Topic::commit_bodies`], if these preconditions hold. A repeat returns the ranges
    /// that the records got the first time.
    ///
    /// # Errors
    /// As [`Topic::commit_bodies`] and [`Topic::append_if`].
    #[doc(hidden)]
    pub fn commit_bodies_if(
        &self,
        parts: &[(u32, &BodyWriter)],
        preconditions: &[Precondition<'_>],
        sync: Option<SyncMode>,
    ) -> Result<(Vec<Range<u64>>, Appended)> {
        if parts.is_empty() || parts.iter().any(|(_, body)| body.count() == 0) {
            return Err(nothing());
        }
        let preconditions = self.own(preconditions)?;
        let refused = self.refusal(sync)?;
        let interval = self.is_interval(sync);
        let mut blocks = Vec::with_capacity(parts.len());
        for (i, (partition, body)) in parts.iter().enumerate() {
            if parts[..i].iter().any(|(other, _)| other == partition) {
                return Err(Error::invalid(format!(
                    "partition {partition} appears twice in one append"
                )));
            }
            blocks.push(new_block(
                self.number(*partition)?,
                body,
                Some(crc32(body.body())),
                interval,
            ));
        }
        let mut firsts = vec![0; blocks.len()];
        let appended = append_or_repeat(&self.log, refused, &preconditions, &blocks, &mut firsts);
        let appended = appended.map_err(|error| topic_error(error, &self.settings))?;
        let ranges = firsts.iter().zip(&blocks);
        let ranges = ranges.map(|(first, block)| *first..first + u64::from(block.count));
        Ok((ranges.collect(), appended))
    }

    /// Append records to one partition as one block; return their offsets.
    ///
    /// # Errors
    /// As [`Topic::append`]; `InvalidArgument` when there are none.
    #[doc(hidden)]
    pub fn extend_to(
        &self,
        partition: u32,
        records: &[NewRecord<'_>],
        sync: Option<SyncMode>,
    ) -> Result<Range<u64>> {
        if records.is_empty() {
            return Err(nothing());
        }
        let commit = |encoded: &Encoded<'_>| self.commit_encoded(partition, encoded, sync);
        let appended = self.await_durability(with_encoded(records, commit)?, sync)?;
        Ok(appended.first..appended.first + records.len() as u64)
    }

    /// Append records to several partitions at once: all become visible together. Returns the
    /// offsets in each. A partition may appear once.
    ///
    /// # Errors
    /// As [`Topic::extend`].
    #[doc(hidden)]
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

    pub(super) fn is_interval(&self, sync: Option<SyncMode>) -> bool {
        sync.unwrap_or(self.sync) == SyncMode::Interval
    }

    /// Wait as the mode requires.
    #[inline]
    pub(super) fn await_durability(
        &self,
        appended: Appended,
        sync: Option<SyncMode>,
    ) -> Result<Appended> {
        match sync.unwrap_or(self.sync) {
            SyncMode::Durable => self.make_durable(appended)?,
            SyncMode::Remote => self.make_remote(appended)?,
            SyncMode::None | SyncMode::Interval => {}
        }
        Ok(appended)
    }

    /// Check before an append that it can end as its mode requires.
    #[inline(always)]
    pub(super) fn expect_ready(&self, sync: Option<SyncMode>) -> Result<()> {
        self.expect_codec()?;
        if sync.unwrap_or(self.sync) == SyncMode::Remote {
            return self.log.expect_shipper();
        }
        Ok(())
    }

    /// Return why an append cannot end as its mode requires. It may still be a repeat of one that
    /// happened before, which needs no shipper to be answered.
    pub(super) fn refusal(&self, sync: Option<SyncMode>) -> Result<Option<Error>> {
        self.expect_codec()?;
        Ok(self.expect_ready(sync).err())
    }

    #[inline(never)]
    fn make_durable(&self, appended: Appended) -> Result<()> {
        let (offset, end) = (appended.first, appended.end);
        self.log.sync_to(end).map_err(|error| error.after_append(offset))
    }

    #[cold]
    fn make_remote(&self, appended: Appended) -> Result<()> {
        let (log, timeout) = (&self.log, self.remote_timeout);
        let waited = log
            .durable_address_of(appended.end)
            .and_then(|end| log.wait_for_shipper(end, timeout, &|| false));
        match waited.map_err(|error| error.after_append(appended.first))? {
            Wait::News => Ok(()),
            Wait::TimedOut | Wait::Interrupted => Err(Error::RemoteTimeout {
                path: log.dir().to_path_buf(),
                waited: timeout.unwrap_or_default(),
                offset: Some(appended.first),
            }),
        }
    }
}

pub(super) fn nothing() -> Error {
    Error::invalid("there is nothing to append: give at least one record")
}

fn encode(body: &mut BodyWriter, records: &[NewRecord<'_>]) {
    let rich = records.iter().any(NewRecord::is_rich);
    body.begin(rich, records.iter().find_map(|record| record.event_time_ns));
    records.iter().for_each(|record| body.push(record));
}

#[inline(always)]
pub(super) fn new_block(
    topic: u32,
    body: &BodyWriter,
    body_crc: Option<u32>,
    interval: bool,
) -> NewBlock<'_> {
    let (highest_event_ns, uses_append_time) = body.times();
    NewBlock {
        topic,
        flags: body.flags(),
        count: body.count(),
        lead: &[],
        body: body.body(),
        body_crc,
        highest_event_ns,
        uses_append_time,
        interval,
    }
}

/// Append as [`Log::append_if`]; where the append was refused, accept nothing but a repeat.
///
/// # Errors
/// As that one; the refusal, unless it is a repeat.
pub(super) fn append_or_repeat(
    log: &Log,
    refused: Option<Error>,
    preconditions: &[log::Precondition<'_>],
    blocks: &[NewBlock<'_>],
    firsts: &mut [u64],
) -> Result<Appended> {
    match refused {
        None if preconditions.is_empty() => log.append(blocks, firsts),
        None => log.append_if(preconditions, blocks, false, firsts),
        Some(refused) => log.repeated(preconditions, blocks, firsts)?.ok_or(refused),
    }
}
