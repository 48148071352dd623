//! Reading a staged part back: every byte is checked against its frame, and the whole against the
//! manifest.
//!
//! Invariant: once the last frame was read without an error, the part is what its writer finished,
//! and what the manifest names. Until then nothing of it may be believed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::BulkLoad;
use crate::error::{Error, IoResult, Result};
use crate::format::DecodeError;
use crate::format::checksum::{crc32, crc32_from};
use crate::format::part::{FRAME_LEN, Frame, HEADER_LEN, Manifest, PartHeader, file_name};
use crate::storage::{File, OpenMode};

/// A part that is being read.
#[derive(Debug)]
pub(super) struct PartReader<'a> {
    manifest: &'a Manifest,
    file: Arc<dyn File>,
    path: PathBuf,
    position: u64,
    frames: u32,
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
        let file = match storage.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (load, part) = (load.name().to_owned(), manifest.part.clone());
                return Err(Error::NotStaged { load, part, path });
            }
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        file.read_ahead();
        let found = file.stat().doing("look at", &path)?.len;
        let (frames, heads_crc, records) = Default::default();
        let position = HEADER_LEN as u64;
        let reader = Self { manifest, file, path, position, frames, heads_crc, records };
        if found != manifest.len {
            return Err(reader.damaged(found.min(manifest.len), "a part of the wrong length"));
        }
        let mut head = [0; HEADER_LEN];
        reader.read(&mut head, 0)?;
        let header = PartHeader::decode(&head).map_err(|what| reader.malformed(0, what))?;
        if header.owner != manifest.owner {
            return Err(reader.damaged(0, "a part of another load or topic"));
        }
        Ok(reader)
    }

    /// Return the next frame, its body stored into `body`; `None` after the last, when all was
    /// valid.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub(super) fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<Frame>> {
        let at = self.position;
        if at >= self.manifest.len {
            return self.expect_whole().map(|()| None);
        }
        let mut head = [0; FRAME_LEN];
        self.read(&mut head, at)?;
        let frame = Frame::decode(&head, self.manifest.owner.id, at);
        let frame = frame.map_err(|what| self.malformed(at, what))?;
        let begin = at + FRAME_LEN as u64;
        let end = begin + u64::from(frame.len);
        if end > self.manifest.len {
            return Err(self.damaged(at, "a staged frame that is cut off"));
        }
        body.resize(frame.len as usize, 0);
        self.read(body, begin)?;
        if crc32(body) != frame.body_crc {
            return Err(self.damaged(begin, "the checksum of staged records does not match"));
        }
        self.heads_crc = crc32_from(self.heads_crc, &head);
        self.frames += 1;
        *self.records.entry(frame.partition).or_default() += u64::from(frame.count);
        self.position = end;
        Ok(Some(frame))
    }

    fn expect_whole(&self) -> Result<()> {
        let wanted = (self.manifest.frames, self.manifest.heads_crc);
        let records = self.records.iter().map(|(partition, records)| (*partition, *records));
        if (self.frames, self.heads_crc) != wanted || !records.eq(self.manifest.records.clone()) {
            return Err(self.damaged(0, "a part that differs from its manifest"));
        }
        Ok(())
    }

    fn read(&self, bytes: &mut [u8], position: u64) -> Result<()> {
        let got = self.file.read_at(bytes, position);
        if got.doing("read", &self.path)? < bytes.len() {
            return Err(self.damaged(position, "a part that ends too early"));
        }
        Ok(())
    }

    fn malformed(&self, position: u64, what: DecodeError) -> Error {
        Error::malformed(&self.path, position, what)
    }

    fn damaged(&self, position: u64, what: &'static str) -> Error {
        self.malformed(position, DecodeError::Damaged(what))
    }
}
