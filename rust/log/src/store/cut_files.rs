//! The small files of a cut: settings, consumer groups, the state of queues.
//!
//! Owns which files beside the logs are in a cut, and which of their bytes. Cursors are small files
//! with checksums of their own, so a copy that is made during a write is as good as the previous version.
//! A queue's file has its header, its ends, and the entries between them. Derived parts, lock and leases
//! belong to the processes that have the queue open, and are left out. Each version of an entry has a
//! checksum of its own, and the process that opens a copy checks it like any other file
//! ([`crate::queue`]). Invariant: cursors and queues are read before the ends of the logs are. So no
//! cursor lies beyond its log, and no job is done whose record its log lacks. See `docs/PROTOCOL.md`,
//! "Cut".

use std::collections::BTreeSet;
use std::path::Path;

use super::layout::{TOPIC_SETTINGS, top};
use super::sidecar_check::{Front, read_consumer};
use super::unfinished::make_new;
use super::{Store, files};
use crate::error::{IoResult, Result};
use crate::format::PAGE;
use crate::format::queue::{ENTRY_LEN, QueueHeader, at};
use crate::format::settings::TopicSettings;
use crate::storage::{File, OpenMode};

/// A file of a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// Its path in the store, with slashes.
    pub path: String,
    /// Its length.
    pub len: u64,
    /// Its bytes, each with their position; all between is zero.
    pub parts: Vec<(u64, Vec<u8>)>,
    /// True for a file that processes lock and change in place.
    is_shared: bool,
}

impl CutFile {
    fn whole(path: String, bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        Self { path, len, parts: vec![(0, bytes)], is_shared: false }
    }

    /// Return the file of a topic's settings.
    pub(super) fn of_topic(topic: &TopicSettings) -> Self {
        let path = format!("{}/{}/{TOPIC_SETTINGS}", top::TOPICS, topic.name);
        Self::whole(path, topic.encode().into_bytes())
    }

    /// Return the file of the store's settings.
    pub(super) fn of_store(store: &Store) -> Result<Self> {
        Ok(Self::whole(top::SETTINGS.into(), store.stored_settings()?.encode().into_bytes()))
    }

    /// Return the first part: all of a file that processes do not change in place.
    pub(super) fn bytes(&self) -> &[u8] {
        self.parts.first().map_or(&[], |(_, bytes)| bytes)
    }

    /// Write it below the root of another store, and sync it; the caller syncs the directory.
    pub(super) fn put(&self, store: &Store, root: &Path) -> Result<()> {
        let (storage, path) = (&**store.storage(), root.join(&self.path));
        if !self.is_shared {
            return files::put_new(storage, &path, self.bytes(), store.modes().file);
        }
        let file = storage.open(&path, OpenMode::CreateNew(store.modes().lock));
        let file = file.doing("create", &path)?;
        file.allocate(self.len).doing("allocate", &path)?;
        for (position, bytes) in &self.parts {
            file.write_at(bytes, *position).doing("write", &path)?;
        }
        file.sync_all().doing("sync", &path)
    }
}

/// Write files into directories of another store, make those that are missing, and sync them.
pub(super) fn put_all<'a>(
    files: impl Iterator<Item = &'a CutFile>,
    store: &Store,
    root: &Path,
) -> Result<()> {
    let storage = &**store.storage();
    let mut unsynced = BTreeSet::new();
    for file in files {
        let path = root.join(&file.path);
        let directory = path.parent().unwrap_or(root);
        if files::stat(storage, directory)?.is_none() {
            make_new(storage, directory, store.modes().directory)?;
            unsynced.extend(directory.parent().map(Path::to_path_buf));
        }
        file.put(store, root)?;
        if file.is_shared {
            unsynced.insert(directory.to_path_buf());
        }
    }
    unsynced.iter().try_for_each(|directory| files::sync_dir(storage, directory))
}

/// Read the files of consumer groups.
pub(super) fn consumers(store: &Store) -> Result<Vec<CutFile>> {
    let storage = &**store.storage();
    let mut read = Vec::new();
    for name in files::list(storage, &store.layout().consumers())? {
        let Ok(from) = store.layout().consumer(&name) else { continue };
        if let Some(bytes) = read_consumer(storage, &from)? {
            read.push(CutFile::whole(format!("{}/{name}", top::CONSUMERS), bytes));
        }
    }
    Ok(read)
}

/// Read the files of all queues. A corrupt one is in the cut as it is: the process that opens a copy
/// gets the error.
pub(super) fn queues(store: &Store) -> Result<Vec<CutFile>> {
    let mut read = Vec::new();
    for name in store.queues()? {
        let from = store.layout().queue(&name)?;
        if let Some(file) = files::open_to_read(&**store.storage(), &from)? {
            let (len, parts) = queue(&*file, &from)?;
            let path = format!("{}/{name}", top::QUEUES);
            read.push(CutFile { path, len, parts, is_shared: true });
        }
    }
    Ok(read)
}

/// Bytes of a file, with their positions.
type Parts = Vec<(u64, Vec<u8>)>;

fn queue(file: &dyn File, path: &Path) -> Result<(u64, Parts)> {
    // At a moment when no process changes it, if there is one soon.
    let (page, ends) = match Front::read(file, path) {
        Ok(front) => (front.bytes[..PAGE as usize].to_vec(), Some(front.ends)),
        Err(_) => (files::read_at(file, path, 0, PAGE as usize)?, None),
    };
    let Ok(header) = QueueHeader::decode(&page) else {
        return Ok((page.len() as u64, vec![(0, page)]));
    };
    let found = file.stat().doing("look at", path)?.len;
    let capacity = header.parts.capacity;
    let (floor, head) = ends.map_or((0, capacity), |ends| (ends.floor, ends.head));
    // They lie in a ring: a range beyond its end continues at its beginning.
    let (first, count) = (header.parts.place(floor), (head - floor).min(capacity));
    let up_to_end = count.min(capacity - first);
    let mut parts = vec![(0, page)];
    parts[0].1.get_mut(at::LOCK as usize..).unwrap_or_default().fill(0);
    for (place, count) in [(first, up_to_end), (0, count - up_to_end)] {
        let position = header.parts.entry(place);
        let len = (count * ENTRY_LEN) as usize;
        parts.push((position, files::read_at(file, path, position, len)?));
    }
    // Only its length tells that it was cut off.
    Ok((header.parts.file_len().min(found), parts))
}
