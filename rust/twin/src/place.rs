//! A place that gets from each cut only what it does not have yet.
//!
//! Owns the bytes of segments as a shipper brings them, in memory, and the way back: the pieces of a
//! store. Invariant: the bytes of a segment that the place has never change. It asks for the bytes
//! behind them alone, as `docs/PLACE.md` has it. Tests of cuts and the crash explorer share it;
//! [`falaj::internals::store::PieceBuilder`] checks what comes out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::log::{LogCut, SegmentCut};
use falaj::internals::storage::Storage;
use falaj::internals::store::{Cut, PieceBuilder, PieceOptions, RestoreReport};

/// Log, sequence, salt and compaction.
type Identity = (String, u64, u64, u64);

/// The bytes that cuts brought.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Bytes of each segment from the first block on.
    segments: BTreeMap<Identity, Arc<Vec<u8>>>,
    /// How many bytes came.
    pub bytes: u64,
}

fn identity(log: &str, segment: &SegmentCut) -> Identity {
    let header = &segment.header;
    (log.to_owned(), header.sequence, header.salt, header.compaction())
}

impl Place {
    /// Take what is new in a cut of a store.
    ///
    /// # Errors
    /// Those of the cut's reads.
    pub fn ship(&mut self, cut: &Cut) -> Result<()> {
        for (at, log) in cut.logs().iter().enumerate() {
            self.take(
                &log.directory(),
                log.segments(),
                |sequence, start| log.extents(sequence, start),
                |sequence, extent| cut.read(at, sequence, extent),
            )?;
        }
        Ok(())
    }

    /// Take what is new in a cut of one log.
    ///
    /// # Errors
    /// Those of the cut's reads.
    pub fn ship_log(&mut self, name: &str, cut: &LogCut) -> Result<()> {
        self.take(
            name,
            cut.segments(),
            |sequence, start| cut.extents(sequence, start),
            |sequence, extent| read(cut, sequence, extent),
        )
    }

    fn take(
        &mut self,
        log: &str,
        segments: &[SegmentCut],
        extents: impl Fn(u64, u64) -> Result<Vec<Range<u64>>>,
        read: impl Fn(u64, Range<u64>) -> Result<Vec<u8>>,
    ) -> Result<()> {
        for segment in segments {
            let had = Arc::make_mut(self.segments.entry(identity(log, segment)).or_default());
            let sequence = segment.header.sequence;
            for extent in extents(sequence, FIRST_BLOCK + had.len() as u64)? {
                self.bytes += extent.end - extent.start;
                had.resize((extent.start - FIRST_BLOCK) as usize, 0);
                had.extend(read(sequence, extent)?);
            }
            let end = (segment.len - FIRST_BLOCK) as usize;
            if had.len() < end {
                had.resize(end, 0);
            }
        }
        Ok(())
    }

    /// Return the segment of a cut of one log whose bytes differ from those that the place has of it.
    ///
    /// # Errors
    /// Those of the cut's reads.
    pub fn differs(&self, name: &str, cut: &LogCut) -> Result<Option<u64>> {
        for segment in cut.segments() {
            let Some(had) = self.segments.get(&identity(name, segment)) else { continue };
            let sequence = segment.header.sequence;
            // The bytes behind that are not in both.
            let end = segment.len.min(FIRST_BLOCK + had.len() as u64);
            for extent in cut.extents(sequence, FIRST_BLOCK)? {
                let extent = extent.start..extent.end.min(end);
                if extent.is_empty() {
                    continue;
                }
                let at = (extent.start - FIRST_BLOCK) as usize;
                let wanted = &had[at..at + (extent.end - extent.start) as usize];
                if read(cut, sequence, extent)? != wanted {
                    return Ok(Some(sequence));
                }
            }
        }
        Ok(None)
    }

    /// Give the segments of a cut to a builder.
    ///
    /// # Errors
    /// Those of the builder; `InvalidArgument` if the cut was not shipped to this place.
    pub fn give(&self, builder: &PieceBuilder, log: &str, segments: &[SegmentCut]) -> Result<()> {
        for segment in segments {
            let missing = || Error::InvalidArgument { what: "the place never got this cut".into() };
            let had = self.segments.get(&identity(log, segment)).ok_or_else(missing)?;
            let blocks = had.get(..(segment.len - FIRST_BLOCK) as usize).ok_or_else(missing)?;
            let header = &segment.header;
            builder.segment(log, &header.encode(), segment.end, segment.len, segment.sealed)?;
            builder.write(log, header.sequence, FIRST_BLOCK, blocks)?;
        }
        Ok(())
    }

    /// Build the store of a cut, from the bytes that the place has.
    ///
    /// # Errors
    /// As [`Place::give`], and what the builder finds wrong.
    pub fn build(&self, cut: &Cut, storage: &Arc<dyn Storage>, to: &Path) -> Result<RestoreReport> {
        let builder = PieceBuilder::begin_on(Arc::clone(storage), to, PieceOptions::default())?;
        for file in cut.files() {
            let parts: Vec<_> = file.parts.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
            builder.file(&file.path, file.len, &parts)?;
        }
        for log in cut.logs() {
            self.give(&builder, &log.directory(), log.segments())?;
        }
        builder.finish(None, &mut |_, _| Ok(()))
    }
}

fn read(cut: &LogCut, sequence: u64, extent: Range<u64>) -> Result<Vec<u8>> {
    cut.expect_blocks(sequence, &extent)?;
    let (file, path) = cut.file(sequence)?;
    let mut bytes = vec![0; (extent.end - extent.start) as usize];
    let failed = |source| Error::io("read", &path, source);
    let got = file.read_at(&mut bytes, extent.start).map_err(failed)?;
    if got < bytes.len() {
        return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(bytes)
}
