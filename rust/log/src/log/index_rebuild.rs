//! Making indexes: the first one of a new segment, and that of a sealed one again if it is missing
//! or corrupt.
//!
//! A new segment begins without an index. Each writer that enters it makes one before it appends
//! there, and the first to name it wins. So a writer that finds no index has appended nothing yet,
//! and looks again next time. A sealed segment never changes, so its index stays valid. A process
//! that may write makes it when a lookup meets a bad index; readers keep in memory what they built.
//! A new file is written and then renamed, so no half index ever has the name. A failure only costs
//! time, so no caller gets an error. See `docs/FORMAT.md`, "Index".

use std::io::ErrorKind;

use crate::error::{Error, IoResult, Result};
use crate::format::index::{ENTRY_LEN, HEADER_LEN, file_len};
use crate::format::names;
use crate::segment::Segment;
use crate::segment::index::{Index, write_file, write_sparse};
use crate::storage::{OpenMode, Storage};

use super::open_segments::with_room;
use super::repair_report::{RepairKind, RepairStep};
use super::{Control, Log, enter, write_access};

/// The index of a segment without any entry yet.
static NOTHING: Index = Index::Built(Vec::new());

impl Log {
    /// Return the index of a segment, opened or built once; rebuilt on disk if this process may
    /// write.
    pub(super) fn index_of<'s>(&self, segment: &'s Segment) -> &'s Index {
        // Before recovery a hole in the newest segment is its end, and no entry may point past it.
        if self.committed().is_none() && !matches!(self.limit(segment), Ok(Some(_))) {
            return &NOTHING;
        }
        if let Some(kept) = segment.index() {
            return kept;
        }
        let open = || Index::open_existing(&*self.storage, &self.dir, segment);
        if let Ok(opened) = with_room(None, open) {
            return segment.keep_index(opened);
        }
        let built = Index::build(segment);
        if self.is_sealed(segment.sequence()) {
            // A hint that cannot be stored is built again at the next lookup.
            let _ = self.save_index(segment, &built);
        } else if built.is_empty() {
            // Another process may be making it just now, and adds the next entries.
            return &NOTHING;
        }
        segment.keep_index(built)
    }

    /// Return the index of the active segment, for writing. It is made if there is none and no
    /// entry was counted yet. Otherwise the missing entries are left out, and readers walk. The
    /// second result is how many entries it has that the control page does not count.
    pub(super) fn index_to_write(&self, segment: &Segment, control: &Control) -> (Index, u64) {
        let (storage, access) = (&*self.storage, write_access(&self.settings));
        let open = || Index::open_file(storage, &self.dir, segment, access);
        let opened = match open() {
            Err(error) if error.is_not_found() && control.indexed() == 0 => {
                self.make_index(segment).and_then(|()| open())
            }
            opened => opened,
        };
        let index = opened.unwrap_or(Index::Built(Vec::new()));
        let filled = if control.indexed() == 0 { index.filled() } else { 0 };
        (index, filled)
    }

    /// Make the index of a new segment, with entries only for its first blocks, unless another
    /// process is faster. Nothing was appended to it yet.
    fn make_index(&self, segment: &Segment) -> Result<()> {
        let (_, member) = self.writing()?;
        let _one = enter(&self.indexer);
        let storage = &*self.storage;
        let temporary = self.dir.join(names::reindexed(member.identity().slot().into()));
        let bytes = Index::build(segment).encode(segment);
        let len = file_len(self.settings.segment_bytes.max(segment.map().len()));
        write_sparse(storage, &temporary, &bytes, len, self.settings.file_mode)?;
        let path = self.dir.join(names::index(segment.sequence()));
        storage.rename_new(&temporary, &path).or_else(|error| {
            let _ = storage.unlink(&temporary);
            let lost = error.kind() == ErrorKind::AlreadyExists;
            if lost { Ok(()) } else { Err(Error::io("rename", &temporary, error)) }
        })
    }

    fn is_sealed(&self, sequence: u64) -> bool {
        self.writing().is_ok_and(|(control, _)| control.tail().sequence() > sequence)
    }

    fn save_index(&self, segment: &Segment, built: &Index) -> Result<()> {
        let (_, member) = self.writing()?;
        member.check()?;
        let _one = enter(&self.indexer);
        let storage = &*self.storage;
        let temporary = self.dir.join(names::reindexed(member.identity().slot().into()));
        let bytes = built.encode(segment);
        write_file(storage, &temporary, &bytes, bytes.len() as u64, self.settings.file_mode)?;
        let file = storage.open(&temporary, OpenMode::ReadWrite);
        let synced = file.and_then(|file| file.sync_data());
        synced.doing("sync", &temporary)?;
        let path = self.dir.join(names::index(segment.sequence()));
        storage.rename_over(&temporary, &path).doing("rename", &temporary)
    }

    /// List what rebuilding the bad indexes of sealed segments would do.
    ///
    /// # Errors
    /// `SystemCallFailed`, and `CorruptData` for a segment that does not open.
    pub fn indexes_to_mend(&self) -> Result<Vec<RepairStep>> {
        let sequences = self.chain.sequences()?;
        let sealed = &sequences[..sequences.len() - 1];
        let steps = sealed.iter().map(|sequence| {
            let segment = self.chain.segment(*sequence)?;
            Ok(bad_index(&*self.storage, &self.dir, &segment))
        });
        steps.filter_map(Result::transpose).collect()
    }

    /// Rebuild all bad indexes of sealed segments.
    ///
    /// # Errors
    /// `NotWritable`, `SystemCallFailed`, `NoSpace`, and `CorruptData` for a segment that does not open.
    pub fn mend_indexes(&self) -> Result<Vec<RepairStep>> {
        let steps = self.indexes_to_mend()?;
        for step in &steps {
            let name = step.path.file_name().unwrap_or_default().to_string_lossy();
            let Some(sequence) = names::parse_index(&name) else { continue };
            let segment = self.chain.segment(sequence)?;
            self.save_index(&segment, &Index::build(&segment))?;
        }
        Ok(steps)
    }
}

/// Return the step that rebuilds a bad index; `None` for a good one.
pub(super) fn bad_index(
    storage: &dyn Storage,
    dir: &std::path::Path,
    segment: &Segment,
) -> Option<RepairStep> {
    let why = match Index::load(storage, dir, segment) {
        Ok(entries) if !entries.is_empty() => return None,
        Ok(_) if Index::build(segment).len() < 2 => return None,
        Ok(_) => "the index is empty".to_owned(),
        Err(error) if error.is_not_found() => "the index is missing".to_owned(),
        Err(Error::CorruptData { what, .. }) => what.to_owned(),
        Err(other) => other.to_string(),
    };
    let path = dir.join(names::index(segment.sequence()));
    let bytes = (HEADER_LEN as u64) + Index::build(segment).len() * ENTRY_LEN as u64;
    Some(RepairStep { mend: RepairKind::Reindex, path, position: 0, bytes, why })
}
