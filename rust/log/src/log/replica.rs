//! A log that one process keeps as another place has it, for readers in the same process.
//!
//! Owns the two things by which readers learn that there is more: the commit word behind the end
//! that they see, and the control page. Invariant: whatever lies behind a new commit word is stored
//! before it, and each segment that the tail leads to has its name before. No listing shows a
//! segment before that word, and none that compaction replaced is opened in its new form before. So
//! readers use the log as one that a writer of this machine appends to. No other process may read it.
//! `store::view` decides what the log has; this module writes no block of its own. See
//! `docs/PROTOCOL.md`, "Reading a place".

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{IoResult, Result};
use crate::format::address::Address;
use crate::format::control::at;
use crate::format::segment::Mark;
use crate::format::{PAGE, names};
use crate::storage::{Changes, Elsewhere, File, MapAccess, Names, OpenMode, Storage};

use super::Control;
use super::pieces::SegmentPiece;

/// The replica of a log, as its only writer has it.
#[derive(Debug)]
pub struct ReplicaLog {
    dir: PathBuf,
    control: Control,
    /// The segment in which the log ends, and its file.
    last: SegmentPiece,
    file: Arc<dyn File>,
    serial: u64,
    /// The commit word at the end that readers see, once it came.
    word: Option<u64>,
}

impl ReplicaLog {
    /// Let readers see a log with some changes. It ends in `last`, which has its name.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`.
    pub fn begin(
        storage: &Elsewhere,
        dir: &Path,
        last: SegmentPiece,
        changes: &Changes,
        (access, mode): (MapAccess, u32),
    ) -> Result<Self> {
        let generation = last.header().log;
        Control::create(storage, dir, generation, mode)?;
        Control::publish(storage, dir)?;
        let control = Control::open(storage, dir, generation, access)?;
        let file = open_last(storage, dir, &last)?;
        let log = Self { dir: dir.to_path_buf(), control, last, file, serial: 1, word: None };
        storage.show_until(&log.path(), |names| {
            apply(changes, names)?;
            say_end(&log.control, &log.last)
        })?;
        // Last: until then no reader believes the page.
        log.control.set(at::INCARNATION, 1)?;
        Ok(log)
    }

    /// Return the segment in which it ends.
    pub fn last(&self) -> &SegmentPiece {
        &self.last
    }

    /// Store bytes of the last segment, behind the end that readers see. They do not see them yet.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes before that end. `SystemCallFailed` or `NoSpace`.
    pub fn store(&mut self, position: u64, data: &[u8]) -> Result<()> {
        let end = self.last.end();
        let path = self.path();
        if position < end {
            let what = format!("bytes at {position} of a segment that is read up to {end}");
            return Err(crate::error::Error::invalid(what));
        }
        let first = if position == end { data.first_chunk::<8>() } else { None };
        let Some(first) = first else {
            return self.file.write_at(data, position).doing("write", &path);
        };
        // The word gets its space now, and its value once all else is there.
        self.file.write_at(&data[8..], position + 8).doing("write", &path)?;
        self.file.write_at(&[0; 8], position).doing("write", &path)?;
        self.word = Some(u64::from_le_bytes(*first));
        Ok(())
    }

    /// Let readers see what was stored, some changes, and that the log now ends in `last`, which has
    /// its name. A reader that finds one of these finds all of them.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`.
    pub fn publish(
        &mut self,
        storage: &Elsewhere,
        last: SegmentPiece,
        changes: &Changes,
    ) -> Result<()> {
        let moves_on = last.sequence() != self.last.sequence();
        let next = if moves_on { Some(open_last(storage, &self.dir, &last)?) } else { None };
        // A reader that sees a block looks for trims up to here.
        self.control.set(at::TRIMMED, address(&last).0)?;
        let end = match self.word {
            Some(word) => {
                let len = (self.last.end() + 8).next_multiple_of(PAGE);
                let map = self.file.map(len, MapAccess::WriteThrough).doing("map", &self.path())?;
                Some((map, self.last.end(), word))
            }
            None => None,
        };
        // A segment that supersedes is part of the log as soon as it is listed; another one once the
        // word is there. Readers find both or none, whichever they ask for first.
        storage.show_until(&self.path_of(&last), |names| {
            apply(changes, names)?;
            if let Some((map, position, word)) = end {
                map.store(position, word).doing("write", &self.path())?;
            }
            say_end(&self.control, &last)
        })?;
        // Not before: after an error the caller makes all of the change again.
        (self.last, self.word) = (last, None);
        if let Some(file) = next {
            (self.file, self.serial) = (file, 1);
        }
        self.serial += 1;
        let mark = Mark { serial: self.serial, ..self.last.mark(0, false) };
        let bytes = mark.encode(self.last.header().salt);
        self.file.write_at(&bytes, mark.slot()).doing("write", &self.path())?;
        self.control.wake_all();
        Ok(())
    }

    /// Tell all readers that the log was deleted.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub fn say_deleted(&self, storage: &dyn Storage) -> Result<()> {
        super::mark_deleted(storage, &self.dir)?;
        self.control.wake_all();
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.path_of(&self.last)
    }

    fn path_of(&self, segment: &SegmentPiece) -> PathBuf {
        self.dir.join(names::segment(segment.sequence()))
    }
}

fn say_end(control: &Control, last: &SegmentPiece) -> Result<()> {
    let end = address(last);
    let words = [at::TRIMMED, at::TAIL, at::DURABLE, at::REMOTE];
    words.into_iter().try_for_each(|word| control.set(word, end.0))
}

fn apply(changes: &Changes, names: &mut Names<'_>) -> Result<()> {
    for made in &changes.stand_ins {
        names.put_stand_in(made).doing("rename to", &made.path)?;
    }
    for path in &changes.removed {
        names.remove(path).if_there("remove", path)?;
    }
    Ok(())
}

fn address(last: &SegmentPiece) -> Address {
    Address::new(last.sequence(), last.end())
}

fn open_last(storage: &dyn Storage, dir: &Path, last: &SegmentPiece) -> Result<Arc<dyn File>> {
    let path = dir.join(names::segment(last.sequence()));
    storage.open(&path, OpenMode::ReadWrite).doing("open", &path)
}
