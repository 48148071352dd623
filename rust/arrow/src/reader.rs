//! One batch after the other.
//!
//! A [`Reader`] goes through ranges of partitions in turn. Each batch holds records of one range,
//! in the order of their offsets. Invariant: the ranges are fixed when the reader is made, so a
//! second reading gives the same. A corrupt record ends the reading with the error that names its
//! place. If the caller asked for it, the reader skips the record and notes it instead.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi::{FFI_ArrowArray, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array as _, RecordBatch, StructArray};
use arrow_schema::SchemaRef;
use arrow_schema::ffi::FFI_ArrowSchema;
use falaj::internals::error::{Error, Result};
use falaj::internals::topic::{PartitionScan, RecordBatch as Run, Skipped, Topic};

use crate::ahead::Ahead;
use crate::columns::Columns;
use crate::export;
use crate::fill::{Fill, Limits, Rest};
use crate::filter::Filter;

/// A range of records of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its number.
    pub partition: u32,
    /// Its offsets.
    pub offsets: Range<u64>,
}

/// A record batch.
pub type Batch = RecordBatch;

/// Export a batch by the Arrow C data interface: a struct array of its columns, and its schema.
///
/// # Errors
/// None for these types.
pub fn c_batch(batch: &Batch) -> Result<(FFI_ArrowArray, FFI_ArrowSchema)> {
    let rows = StructArray::from(batch.clone());
    to_ffi(&rows.into_data()).map_err(|error| Error::InvalidArgument { what: error.to_string() })
}

/// Make Arrow batches of the records of a batch that was read. That batch holds the records, so
/// this needs only the name of their topic. The limits decide how many batches it makes.
///
/// # Errors
/// `CorruptData` for a corrupt record, and the errors of [`Limits::check`].
pub fn of_batch(batch: &Run, topic: &str, columns: &Columns, limits: Limits) -> Result<Vec<Batch>> {
    limits.check()?;
    let (filter, mut made, mut told) = (Filter::ALL, Vec::new(), 0);
    let mut rest = Rest::new(batch.clone())?;
    loop {
        let mut fill = Fill::new(columns, limits, &filter, (batch.len() - told) as u64);
        let ended = fill.add(&mut rest)?;
        told += fill.rows();
        if fill.rows() > 0 {
            let filled = fill.finish(columns, &columns.schema(), topic, batch.partition());
            made.push(filled.map_err(|error| Error::InvalidArgument { what: error.to_string() })?);
        }
        if ended {
            return Ok(made);
        }
    }
}

/// The offsets that were skipped, as they are found.
pub type Losses = Arc<Mutex<Vec<(u32, Skipped)>>>;

/// Reads ranges of a topic's partitions as record batches.
#[derive(Debug)]
pub struct Reader {
    topic: Topic,
    lanes: VecDeque<Lane>,
    columns: Columns,
    schema: SchemaRef,
    limits: Limits,
    filter: Filter,
    /// Skip corruption, and note the lost offsets here; `None` ends with an error.
    losses: Option<Losses>,
    now: Option<Place>,
    ahead: Option<Ahead>,
}

/// How many records are read at once.
const AHEAD: usize = 512;

/// The current position.
#[derive(Debug)]
struct Place {
    partition: u32,
    /// Most records that the lane can have.
    records: u64,
    scan: PartitionScan,
    rest: Option<Rest>,
}

impl Reader {
    /// Read the records of these lanes that pass a filter, one lane after the other.
    ///
    /// # Errors
    /// As [`Limits::check`].
    pub fn new(
        topic: Topic,
        lanes: Vec<Lane>,
        columns: Columns,
        limits: Limits,
        filter: Filter,
        losses: Option<Losses>,
    ) -> Result<Self> {
        limits.check()?;
        let (schema, lanes) = (columns.schema(), lanes.into());
        Ok(Self { topic, lanes, columns, schema, limits, filter, losses, now: None, ahead: None })
    }

    /// Let so many threads read ahead. Records and their order stay the same; a batch may also end
    /// where the piece of a thread ends. Each thread holds a few batches at a time.
    ///
    /// # Errors
    /// `SystemCallFailed` if the system cannot start a thread.
    pub fn ahead(mut self, threads: usize) -> Result<Self> {
        let lanes = std::mem::take(&mut self.lanes);
        let (topic, columns, limits) = (self.topic.clone(), self.columns.clone(), self.limits);
        let (filter, losses) = (self.filter.clone(), self.losses.clone());
        let open = move |lane| {
            let (topic, columns, filter) = (topic.clone(), columns.clone(), filter.clone());
            Self::new(topic, vec![lane], columns, limits, filter, losses.clone())
        };
        self.ahead = Some(Ahead::start(lanes, self.limits.rows, threads, open)?);
        Ok(self)
    }

    /// Export the reader by the Arrow C stream interface, for code that is not linked with this
    /// crate.
    pub fn into_c_stream(mut self) -> FFI_ArrowArrayStream {
        let schema = Arc::clone(&self.schema);
        export::stream(schema, move || self.next_batch().map_err(|error| error.to_string()))
    }

    /// Get the next batch; `None` at the end of the last lane. A batch has no rows if a filter left
    /// out all records in as many bytes as a batch may have. So a waiting caller can do something
    /// else meanwhile.
    ///
    /// # Errors
    /// As [`PartitionScan::next_batch`]; `OffsetOutOfRange` for a lane that begins before the partition.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(ahead) = &mut self.ahead {
            return ahead.next_batch();
        }
        loop {
            if self.now.is_none() {
                let Some(lane) = self.lanes.pop_front() else { return Ok(None) };
                let Lane { partition, offsets } = lane;
                if offsets.is_empty() {
                    continue;
                }
                let scan =
                    self.topic.scan_partition(partition, offsets.start, Some(offsets.end))?;
                let records = offsets.end - offsets.start;
                self.now = Some(Place { partition, records, scan, rest: None });
            }
            let Some(place) = &mut self.now else { continue };
            let mut fill = Fill::new(&self.columns, self.limits, &self.filter, place.records);
            let ended = place.fill(&mut fill, self.losses.as_ref())?;
            let partition = place.partition;
            if ended {
                self.now = None;
            }
            if fill.rows() > 0 || !ended {
                let name = self.topic.name();
                let batch = fill.finish(&self.columns, &self.schema, name, partition);
                return batch.map(Some).map_err(|e| Error::InvalidArgument { what: e.to_string() });
            }
        }
    }
}

impl Place {
    /// Fill a batch; true if nothing comes after it. An error after records that were read comes
    /// with the next call.
    fn fill(&mut self, fill: &mut Fill<'_>, losses: Option<&Losses>) -> Result<bool> {
        while !fill.is_full() {
            match self.step(fill) {
                Ok(Some(())) => {}
                Ok(None) => return Ok(true),
                Err(Error::CorruptData { .. }) if losses.is_some() => self.pass_damage(losses)?,
                Err(_) if fill.rows() > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn step(&mut self, fill: &mut Fill<'_>) -> Result<Option<()>> {
        if self.rest.is_none() {
            let Some(batch) = self.scan.next_batch(AHEAD)? else { return Ok(None) };
            self.rest = Some(Rest::new(batch)?);
        }
        // A trim may have come since they were read.
        if let Some(next) = self.rest.as_ref().map(Rest::next) {
            self.scan.expect_kept(next)?;
        }
        if let Some(rest) = &mut self.rest
            && fill.add(rest)?
        {
            self.rest = None;
        }
        Ok(Some(()))
    }

    #[cold]
    fn pass_damage(&mut self, losses: Option<&Losses>) -> Result<()> {
        let skipped = match self.rest.take() {
            // A block that is what its writer committed, with a record that cannot be read.
            Some(rest) => {
                let (lost, more) = rest.skip_block()?;
                self.rest = more;
                lost
            }
            None => self.scan.skip_damage()?,
        };
        if let Some(losses) = losses {
            let mut losses = losses.lock().unwrap_or_else(PoisonError::into_inner);
            losses.push((self.partition, skipped));
        }
        Ok(())
    }
}
