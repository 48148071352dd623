//! The state of queues, as a backup copies it.
//!
//! Owns what of a state file goes into a copy: header, ends, and the entries between them. What is
//! derived, lock and leases too, is of the processes that have the queue open, and of no copy. Others go
//! on changing the file meanwhile: each version of an entry has a checksum of its own, and whoever opens
//! the copy looks it over like a file of any age ([`crate::queue`]). Invariant: it is read before the
//! ends of the logs are, so that nothing of a copy is done that its log does not hold.

use std::path::Path;

use super::layout::Layout;
use super::sidecar_check::Front;
use super::{Store, files};
use crate::error::{IoResult, Result};
use crate::format::PAGE;
use crate::format::queue::{ENTRY_LEN, QueueHeader, at};
use crate::storage::{File, OpenMode};

/// A state file as it was read.
pub(super) struct QueueCopy {
    name: String,
    /// How long the file is.
    len: u64,
    /// Its beginning, and then the entries, each with its place.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl QueueCopy {
    /// Read what there is of all queues. One that is damaged is copied as it is: whoever opens it is told.
    pub(super) fn of_all(store: &Store) -> Result<Vec<Self>> {
        let mut copies = Vec::new();
        for name in store.queues()? {
            let path = store.layout().queue(&name)?;
            if let Some(file) = files::open_to_read(store.storage().as_ref(), &path)? {
                copies.push(Self::of(name, &*file, &path)?);
            }
        }
        Ok(copies)
    }

    fn of(name: String, file: &dyn File, path: &Path) -> Result<Self> {
        // At a moment at which nobody changes it, if there is one soon.
        let (page, ends) = match Front::read(file, path) {
            Ok(front) => (front.bytes[..PAGE as usize].to_vec(), Some(front.ends)),
            Err(_) => (files::read_at(file, path, 0, PAGE as usize)?, None),
        };
        let Ok(header) = QueueHeader::decode(&page) else {
            return Ok(Self { name, len: page.len() as u64, pieces: vec![(0, page)] });
        };
        let found = file.stat().doing("look at", path)?.len;
        let capacity = header.parts.capacity;
        let (floor, head) = ends.map_or((0, capacity), |ends| (ends.floor, ends.head));
        // They lie in a ring: what reaches over its end goes on at its beginning.
        let (first, count) = (header.parts.place(floor), (head - floor).min(capacity));
        let up_to_end = count.min(capacity - first);
        let mut pieces = vec![(0, page)];
        pieces[0].1.get_mut(at::LOCK as usize..).unwrap_or_default().fill(0);
        for (place, count) in [(first, up_to_end), (0, count - up_to_end)] {
            let position = header.parts.entry(place);
            let len = (count * ENTRY_LEN) as usize;
            pieces.push((position, files::read_at(file, path, position, len)?));
        }
        // Of one that was cut off nothing else tells that it was.
        Ok(Self { name, len: header.parts.file_len().min(found), pieces })
    }

    /// Write it into another store, on the medium but for the directory.
    pub(super) fn put(&self, store: &Store, layout: &Layout) -> Result<()> {
        let path = layout.queue(&self.name)?;
        let file = store
            .storage()
            .open(&path, OpenMode::CreateNew(store.modes().lock))
            .doing("create", &path)?;
        file.allocate(self.len).doing("allocate", &path)?;
        for (position, bytes) in &self.pieces {
            file.write_at(bytes, *position).doing("write", &path)?;
        }
        file.sync_all().doing("sync", &path)
    }
}

/// Make the directory and put all of them there.
pub(super) fn put_all(copies: &[QueueCopy], store: &Store, layout: &Layout) -> Result<()> {
    if copies.is_empty() {
        return Ok(());
    }
    files::make_dir(store.storage().as_ref(), &layout.queues(), store.modes().directory)?;
    for copy in copies {
        copy.put(store, layout)?;
    }
    files::sync_dir(store.storage().as_ref(), &layout.queues())
}
