//! Reading a staged part back: every byte is checked against its frame, and the whole against the
//! manifest.
//!
//! Invariant: once the last frame was read without an error, the part is what its writer finished,
//! and what the manifest names. Until then nothing of it may be believed.

use std::collections::BTreeMap;

use super::BulkLoad;
use crate::error::{Error, IoResult, Result};
use crate::format::checksum::crc32_from;
use crate::format::part::{Frame, Manifest, file_name};
use crate::storage::OpenMode;
use crate::store::FrameReader;

/// A part that is being read.
#[derive(Debug)]
pub(super) struct PartReader<'a> {
    manifest: &'a Manifest,
    frames: FrameReader,
    /// Frames so far.
    seen: u32,
    heads_crc: u32,
    records: BTreeMap<u32, u64>,
}

impl<'a> PartReader<'a> {
    /// Open a part that has a file, and check its header.
    ///
    /// # Errors
    /// `NotStaged` when it is gone; `CorruptData` when it is another, longer, or shorter; `SystemCallFailed`.
    pub(super) fn open(load: &BulkLoad, manifest: &'a Manifest) -> Result<Self> {
        let path = load.dir().join(file_name(&manifest.part, manifest.owner.id, true));
        load.topic().store().expect_inside(&path)?;
        let storage = load.topic().store().storage();
        let Some(file) = storage.open(&path, OpenMode::Read).if_there("open", &path)? else {
            let (load, part) = (load.name().to_owned(), manifest.part.clone());
            return Err(Error::NotStaged { load, part, path });
        };
        file.read_ahead();
        let frames = FrameReader::new(file, path, manifest.owner.id)?;
        let found = frames.file_len();
        if found != manifest.len {
            return Err(frames.corrupt(found.min(manifest.len), "a part of the wrong length"));
        }
        if frames.header()?.owner != manifest.owner {
            return Err(frames.corrupt(0, "a part of another load or topic"));
        }
        let (seen, heads_crc, records) = Default::default();
        Ok(Self { manifest, frames, seen, heads_crc, records })
    }

    /// Return the next frame, its body stored into `body`; `None` after the last, when all was
    /// valid.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub(super) fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<Frame>> {
        let Some((frame, head)) = self.frames.next(body)? else {
            return self.expect_whole().map(|()| None);
        };
        self.heads_crc = crc32_from(self.heads_crc, &head);
        self.seen += 1;
        *self.records.entry(frame.partition).or_default() += u64::from(frame.count);
        Ok(Some(frame))
    }

    fn expect_whole(&self) -> Result<()> {
        let wanted = (self.manifest.frames, self.manifest.heads_crc);
        let records = self.records.iter().map(|(partition, records)| (*partition, *records));
        if (self.seen, self.heads_crc) != wanted || !records.eq(self.manifest.records.clone()) {
            return Err(self.frames.corrupt(0, "a part that differs from its manifest"));
        }
        Ok(())
    }
}
