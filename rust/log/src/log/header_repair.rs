//! Restoring the corrupt one of a segment header's two copies from the valid one.
//!
//! A header never changes once its segment has its name, so a valid copy is what both said. Readers
//! use whichever is valid, so nothing is lost before it is restored. Invariant: only the corrupt
//! sector is written, so a process that dies here leaves the valid one. See `docs/PROTOCOL.md`,
//! "Verify and repair".

use crate::error::{IoResult, Result};
use crate::format::segment::HEADER_LEN;
use crate::segment::{Segment, corrupt_header};
use crate::storage::{OpenMode, Storage};

use super::Log;
use super::guard::wait_for_flock;
use super::repair_report::{RepairKind, RepairStep};

/// Return the step that restores a corrupt header or its copy; `None` if both are valid.
///
/// # Errors
/// `SystemCallFailed`.
pub(super) fn bad_header(segment: &Segment) -> Result<Option<RepairStep>> {
    let path = segment.path();
    let position = corrupt_header(&**segment.file(), segment.header(), path)?;
    Ok(position.map(|position| RepairStep {
        mend: RepairKind::RestoreHeader,
        path: path.to_path_buf(),
        position,
        bytes: HEADER_LEN as u64,
        why: "one of the two copies of the segment's header is corrupt; the other is valid".into(),
    }))
}

fn restore(storage: &dyn Storage, segment: &Segment, step: &RepairStep) -> Result<()> {
    let file = storage.open(&step.path, OpenMode::ReadWrite);
    let file = file.doing("open", &step.path)?;
    let written = file.write_at(&segment.header().encode(), step.position);
    let synced = written.and_then(|()| file.sync_data());
    synced.doing("write the header of", &step.path)
}

impl Log {
    /// List what [`Log::restore_headers`] would do.
    ///
    /// # Errors
    /// `CorruptData` for a segment whose copies are both corrupt, `SystemCallFailed`.
    pub fn headers_to_restore(&self) -> Result<Vec<RepairStep>> {
        let steps = self.chain.refresh()?.into_iter().map(|sequence| {
            let segment = self.chain.segment(sequence)?;
            bad_header(&segment)
        });
        steps.filter_map(Result::transpose).collect()
    }

    /// Restore segment headers with one corrupt copy; return what was done.
    ///
    /// # Errors
    /// As [`Log::headers_to_restore`]; `NotWritable`, `LockTimeout`.
    pub fn restore_headers(&self) -> Result<Vec<RepairStep>> {
        let (_, member) = self.writing()?;
        member.check()?;
        if self.headers_to_restore()?.is_empty() {
            return Ok(Vec::new());
        }
        // A process that removes or replaces segments holds this lock.
        let path = self.dir.join("lock");
        let lock = self.storage.open(&path, OpenMode::ReadWrite);
        let lock = lock.doing("open", &path)?;
        wait_for_flock(&*lock, &path, self.settings.lock_timeout)?;
        self.chain.forget();
        let steps = self.headers_to_restore()?;
        for step in &steps {
            let name = step.path.file_name().unwrap_or_default().to_string_lossy();
            let Some(sequence) = crate::format::names::parse_segment(&name) else { continue };
            let segment = self.chain.segment(sequence)?;
            restore(&*self.storage, &segment, step)?;
        }
        Ok(steps)
    }
}
