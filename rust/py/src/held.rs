//! `Held`: where a record lies, and what keeps it there.
//!
//! Records that are read one after the other refer to the [`Batch`] that they were read in: an object
//! of Python, whose counter costs a plain increment. A record that was asked for by its offset holds
//! its own block. Invariant: either holds the map of its segment, so that what is shown of it stays.

use std::sync::Arc;

use falaj::error::Result;
use falaj::format::record::{RecordLayout, headers};
use falaj::topic::{Record as LogRecord, RecordRef};
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::handle::Shape;

/// A record, by what holds it.
#[derive(Debug)]
pub(crate) enum Held {
    Within { batch: Py<Batch>, place: RecordRef },
    Alone(Box<Alone>),
}

/// A record with a block of its own.
#[derive(Debug)]
pub(crate) struct Alone {
    record: LogRecord,
    partition: u32,
    shape: Arc<Shape>,
}

impl Held {
    pub(crate) fn alone(record: LogRecord, partition: u32, shape: &Arc<Shape>) -> Self {
        Self::Alone(Box::new(Alone { record, partition, shape: Arc::clone(shape) }))
    }

    /// Its payload; `None` for a tombstone.
    #[inline]
    pub(crate) fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Within { batch, place } => batch.get().run.value(place),
            Self::Alone(alone) => alone.record.value(),
        }
    }

    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::Within { batch, place } => batch.get().run.offset(place),
            Self::Alone(alone) => alone.record.offset(),
        }
    }

    #[inline]
    pub(crate) fn partition(&self) -> u32 {
        match self {
            Self::Within { batch, .. } => batch.get().partition,
            Self::Alone(alone) => alone.partition,
        }
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Self::Within { batch, .. } => &batch.get().shape,
            Self::Alone(alone) => &alone.shape,
        }
    }

    /// All that it has, and the bytes in which that lies.
    pub(crate) fn parts(&self) -> Result<(RecordLayout, &[u8])> {
        Ok(match self {
            Self::Within { batch, place } => {
                let run = &batch.get().run;
                (run.parts(place)?, run.body_of(place))
            }
            Self::Alone(alone) => (alone.record.parts().clone(), alone.record.block().body()),
        })
    }

    pub(crate) fn key(&self) -> Result<Option<&[u8]>> {
        let (parts, body) = self.parts()?;
        Ok(parts.key.map(|key| &body[key]))
    }

    pub(crate) fn headers(&self) -> Result<impl Iterator<Item = (&str, Option<&[u8]>)>> {
        let (parts, body) = self.parts()?;
        Ok(headers(&body[parts.headers]))
    }

    /// When it happened, or else was appended: nanoseconds since 1970.
    pub(crate) fn timestamp_ns(&self) -> Result<i64> {
        Ok(match self {
            Self::Within { batch, place } => {
                let run = &batch.get().run;
                run.parts(place)?.event_time_ns.unwrap_or_else(|| run.appended_ns(place))
            }
            Self::Alone(alone) => alone.record.timestamp_ns(),
        })
    }
}
