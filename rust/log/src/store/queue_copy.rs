//! Copying the state of queues for a backup.
//!
//! Owns which parts of a state file are copied: header, ends, and the entries between them. Derived
//! parts, lock and leases belong to the processes that have the queue open, and are not copied.
//! Others change the file meanwhile. But each version of an entry has a checksum of its own. And
//! the process that opens the copy checks it like any other file ([`crate::queue`]). Invariant: it
//! is read before the ends of the logs are, so no job of the copy is done whose record its log
//! lacks.

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
    /// The length of the file.
    len: u64,
    /// Its beginning, and then the entries, each with its place.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl QueueCopy {
    /// Read the files of all queues. A corrupt one is copied as it is: the process that opens it
    /// gets the error.
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
        // At a moment when no process changes it, if there is one soon.
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
        // They lie in a ring: a range beyond its end continues at its beginning.
        let (first, count) = (header.parts.place(floor), (head - floor).min(capacity));
        let up_to_end = count.min(capacity - first);
        let mut pieces = vec![(0, page)];
        pieces[0].1.get_mut(at::LOCK as usize..).unwrap_or_default().fill(0);
        for (place, count) in [(first, up_to_end), (0, count - up_to_end)] {
            let position = header.parts.entry(place);
            let len = (count * ENTRY_LEN) as usize;
            pieces.push((position, files::read_at(file, path, position, len)?));
        }
        // Only its length tells that it was cut off.
        Ok(Self { name, len: header.parts.file_len().min(found), pieces })
    }

    /// Write it into another store and sync it; the caller syncs the directory.
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

/// Make the directory and write all of them there.
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
