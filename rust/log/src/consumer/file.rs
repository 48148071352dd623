//! The file of a consumer group: created whole, opened, given entries.
//!
//! Owns its life, and how members change a word in it. Where the file is mapped for writing they use
//! compare-and-swap. Where `pwrite` writes it they hold the store's claim. A change that others must
//! notice raises the counter *after* the word. So a member that loads the counter and then the words
//! misses none. Invariants: a file that has its name is whole. An entry has a cursor before it names
//! its partition, and both are on disk before a member uses it. An entry is reused only when its topic
//! is deleted, no member has it, and no other member lives. Opening a file and giving it entries happens under the store's
//! claim.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{forgetting, members};
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::format::consumer::{
    CURSOR_LEN, CUT, CommitMetadata, CursorEntry, CursorPosition, ENTRIES_MAX, ENTRY_LEN, HEAD_LEN,
    LOST, MEMBERS_MAX, Named, SECTOR, StoredCursor, TORN, ask, at, check_header, cut_at,
    encode_cursor, encode_header, encode_named, entries_in, entry, forgotten_in, member,
};
use crate::format::u64_in;
use crate::segment::index::write_file;
use crate::storage::{File, OpenMode};
use crate::store::layout::with_ending;
use crate::store::sidecar::Sidecar;
use crate::store::{Membership, Store};
use crate::sync::{Ordering, SharedWord};
use crate::topic::Topic;

/// Ending of the file until it is whole. No group's name has an `@`, but one may end in `.tmp`.
pub(crate) const UNFINISHED: &str = "@tmp";

/// An open file of a consumer group. Its header says which log keeps the cursors.
#[derive(Debug)]
pub(super) struct ConsumerFile {
    pub(super) file: Arc<dyn File>,
    mapped: Sidecar<[u8; 16]>,
    pub(super) store: Store,
}

impl Deref for ConsumerFile {
    type Target = Sidecar<[u8; 16]>;

    fn deref(&self) -> &Self::Target {
        &self.mapped
    }
}

/// A whole file, read at one moment.
#[derive(Debug)]
pub(super) struct Image {
    bytes: Vec<u8>,
    /// Generation of the log that keeps the cursors; zeros where they are in the file.
    pub(super) log: [u8; 16],
    /// Generations of the topics that are being forgotten.
    pub(super) forgotten: BTreeSet<[u8; 16]>,
}

impl Image {
    /// Read and check a group's file; `None` where there is none.
    pub(super) fn read(store: &Store, path: &Path) -> Result<Option<(Arc<dyn File>, Self)>> {
        let how = match store.access() {
            crate::store::Access::Write => OpenMode::ReadWrite,
            crate::store::Access::Read => OpenMode::Read,
        };
        let Some(file) = store.open_sidecar(path, how)? else { return Ok(None) };
        let len = file.stat().doing("look at", path)?.len;
        let mut bytes = vec![0; len.min(entry(ENTRIES_MAX)) as usize];
        let got = file.read_at(&mut bytes, 0).doing("read", path)?;
        bytes.truncate(got);
        Ok(Some((file, Self::of(store, path, bytes)?)))
    }

    /// Check the bytes of a group's file.
    pub(super) fn of(store: &Store, path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let log = check_header(&bytes, store.settings().id).in_file(path, 0);
        let log = log.map_err(|error| store.replaced_or(error))?;
        if let Some(position) = cut_at(&bytes) {
            return Err(Error::CorruptData { path: path.to_path_buf(), position, what: CUT });
        }
        Ok(Self { log, forgotten: forgotten_in(&bytes), bytes })
    }

    pub(super) fn entries(&self) -> u64 {
        entries_in(self.bytes.len() as u64)
    }

    pub(super) fn incarnation(&self) -> u64 {
        u64_in(&self.bytes, at::INCARNATION)
    }

    /// Get the word of the member in a row, and what its subscription reads.
    pub(super) fn member(&self, row: u64) -> (u64, u64) {
        (u64_in(&self.bytes, member(row)), u64_in(&self.bytes, member(row) + 8))
    }

    /// Words of the members.
    pub(super) fn members(&self) -> impl Iterator<Item = u64> {
        (0..MEMBERS_MAX).map(|row| u64_in(&self.bytes, member(row))).filter(|word| *word != 0)
    }

    /// Get an entry as readers see it: blank where there is none, and where its topic is being
    /// forgotten.
    pub(super) fn entry(&self, index: u64) -> CursorEntry {
        self.entry_as_stored(index).unless_forgotten(&self.forgotten)
    }

    /// Get an entry as stored, also where its topic is being forgotten.
    pub(super) fn entry_as_stored(&self, index: u64) -> CursorEntry {
        let start = entry(index) as usize;
        let bytes = self.bytes.get(start..start + ENTRY_LEN as usize);
        bytes.map_or_else(CursorEntry::default, CursorEntry::decode)
    }
}

/// A file that was opened.
pub(super) struct Attached {
    pub(super) file: ConsumerFile,
    /// The entry of each wanted partition.
    pub(super) places: Vec<u64>,
    /// Partitions, by generation and number, whose cursors no member needs any more.
    pub(super) gone: Vec<([u8; 16], u32)>,
}

#[cold]
fn kept_elsewhere(store: &Store, name: &str, log: [u8; 16]) -> Error {
    let what = match store.topic_in_generation(&log) {
        _ if log == [0; 16] => format!(
            "consumer group {name:?} keeps its cursors in a file of its own; open it without cursor_in, or delete \
             it first"
        ),
        Ok(Some(topic)) => format!(
            "consumer group {name:?} keeps its cursors in the log {0:?}; open it with cursor_in={0:?}, or delete \
             it first",
            topic.log
        ),
        _ => format!(
            "consumer group {name:?} kept its cursors in a log that was deleted; delete the group to begin \
             again"
        ),
    };
    Error::InvalidArgument { what }
}

/// A group's file before an opening changes it.
pub(super) struct Found {
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    pub(super) image: Image,
}

/// Find a group's file; the caller holds the claim. Finishes a forgetting that a process began, and changes
/// nothing else.
///
/// # Errors
/// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`. `InvalidArgument` where the cursors are neither in the log
/// of `home` nor, without `home`, in the file.
pub(super) fn find(store: &Store, name: &str, home: Option<&Topic>) -> Result<Found> {
    let path = store.layout().consumer(name)?;
    let log = home.map_or([0; 16], |home| home.settings().log_generation);
    let mut found = Image::read(store, &path)?;
    if let Some((_, image)) = found.as_ref().filter(|(_, image)| image.log != log) {
        return Err(kept_elsewhere(store, name, image.log));
    }
    if let Some((file, image)) = &found {
        if forgetting::finish(name, &path, &**file, image, home)? {
            found = Image::read(store, &path)?;
        }
    }
    let (file, image) = found.map(|(file, image)| (Some(file), image)).unwrap_or_else(|| {
        let image = Image { bytes: Vec::new(), log, forgotten: BTreeSet::new() };
        (None, image)
    });
    Ok(Found { path, file, image })
}

/// Open a group's file, creating it where there is none, with an entry for each partition. Returns the
/// entries. The caller holds the claim. `start` says where to begin in a partition that has no cursor.
/// It runs before anything is changed.
///
/// # Errors
/// Those of `start`; `NoSpace`, `SystemCallFailed`. `CorruptData` where an entry is lost. `InvalidArgument` when all
/// entries are used.
pub(super) fn attach(
    store: &Store,
    (who, me): (&Membership, u64),
    Found { path, file: found, image }: Found,
    wanted: &[Named],
    start: impl Fn(usize) -> Result<CursorPosition>,
) -> Result<Attached> {
    let places = place(store, (who, me), &path, &image, wanted)?;
    let replaced = |(named, index): (&Named, &u64)| {
        image.entry(*index).of().filter(|of| *of != (named.generation, named.partition))
    };
    let gone = wanted.iter().zip(&places).filter_map(replaced).collect();
    let mut starts = Vec::new();
    for (number, (named, index)) in wanted.iter().zip(&places).enumerate() {
        let is_fresh = image.entry(*index).is_fresh_for(named);
        starts.push(is_fresh.then(|| start(number)).transpose()?);
    }
    let file = match found {
        Some(file) => {
            // No process has used it yet: its creator died, or failed, before its name was on disk.
            if image.incarnation() == 0 {
                sync_names(store)?;
            }
            file
        }
        None => make(store, &path, image.log)?,
    };
    let last = places.iter().copied().max().map_or(0, |last| last + 1).max(image.entries());
    let mapped = Sidecar::over(store, &*file, image.log, &path, entry(last))?;
    let opened = ConsumerFile { file, mapped, store: store.clone() };
    opened.begin_incarnation(who.incarnation(), last)?;
    let mut changed = false;
    for ((named, index), start) in wanted.iter().zip(&places).zip(&starts) {
        changed |= opened.fill(*index, named, &image.entry(*index), *start, who.incarnation())?;
    }
    if changed {
        opened.file.sync_all().doing("sync", &opened.path)?;
    }
    Ok(Attached { file: opened, places, gone })
}

fn make(store: &Store, path: &Path, log: [u8; 16]) -> Result<Arc<dyn File>> {
    let storage = &**store.storage();
    let unfinished = with_ending(path, UNFINISHED);
    let header = encode_header(store.settings().id, log);
    let file = write_file(storage, &unfinished, &header, HEAD_LEN, store.modes().file)?;
    file.sync_all().doing("sync", &unfinished)?;
    storage.rename_new(&unfinished, path).doing("rename to", path)?;
    sync_names(store)?;
    Ok(file)
}

/// Sync the names of consumer groups to disk.
pub(super) fn sync_names(store: &Store) -> Result<()> {
    let parent = store.layout().consumers();
    store.storage().sync_dir(&parent).doing("sync", &parent)
}

/// Choose the entry of each partition: the one that it has, one that is free, or a new one.
fn place(
    store: &Store,
    (who, me): (&Membership, u64),
    path: &Path,
    image: &Image,
    wanted: &[Named],
) -> Result<Vec<u64>> {
    let is_ours = image.incarnation() == who.incarnation();
    let has_others =
        is_ours && image.members().any(|word| word != me && members::is_alive(who, word));
    let entries: Vec<_> = (0..image.entries()).map(|index| image.entry(index)).collect();
    let mut used = BTreeSet::new();
    let mut places = Vec::new();
    for wanted in wanted {
        let key = (wanted.generation, wanted.partition);
        let found = entries.iter().position(|entry| entry.of() == Some(key));
        used.extend(found);
        places.push(found);
    }
    let lost = entries.iter().position(|entry| entry.complaint() == Some(LOST));
    if let Some(lost) = lost.filter(|_| places.contains(&None)) {
        // It may be this partition's: a new entry could then pass over records that no member has read.
        let position = entry(lost as u64) + at::CURSORS;
        return Err(Error::CorruptData { path: path.to_path_buf(), position, what: LOST });
    }
    let mut next = entries.len();
    let mut free = entries.iter().enumerate().filter_map(|(index, entry)| {
        let is_free = !used.contains(&index) && is_free(store, who, image, entry, has_others);
        is_free.then_some(index)
    });
    let places = places.into_iter().map(|found| {
        let index = found.or_else(|| free.next()).unwrap_or_else(|| {
            next += 1;
            next - 1
        }) as u64;
        let what = format!(
            "{} has entries for {ENTRIES_MAX} partitions, and all are used; use another group",
            path.display()
        );
        if index < ENTRIES_MAX { Ok(index) } else { Err(Error::InvalidArgument { what }) }
    });
    places.collect()
}

/// True for a blank entry, and for one of a deleted topic that no member has. While other members live
/// they may still know such an entry as the deleted topic's, so it is not free.
fn is_free(
    store: &Store,
    who: &Membership,
    image: &Image,
    entry: &CursorEntry,
    has_others: bool,
) -> bool {
    if entry.is_blank() || has_others {
        return entry.is_blank();
    }
    let owned = image.incarnation() == who.incarnation() && members::is_alive(who, entry.owner);
    let Some(named) = entry.named.as_ref().filter(|_| !owned) else { return false };
    match store.topic_settings(&named.topic) {
        Ok(topic) => topic.generation != named.generation,
        Err(error) => matches!(error, Error::UnknownTopic { .. }),
    }
}

impl ConsumerFile {
    /// Count its entries, as far as it is mapped.
    pub(super) fn entries(&self) -> u64 {
        entries_in(self.map.len())
    }

    /// Clear the members and owners of an earlier incarnation: they name processes that are dead.
    fn begin_incarnation(&self, incarnation: u64, entries: u64) -> Result<()> {
        if self.load(at::INCARNATION) == incarnation {
            return Ok(());
        }
        let rows = (0..MEMBERS_MAX).flat_map(|row| [member(row), member(row) + 8, ask(row)]);
        let owners = (0..entries).map(|index| entry(index) + at::OWNER);
        for position in rows.chain(owners) {
            if self.load(position) != 0 {
                self.set(position, 0)?;
            }
        }
        self.set(at::INCARNATION, incarnation)
    }

    /// Fill an entry for a partition; true when that had to be written.
    fn fill(
        &self,
        index: u64,
        named: &Named,
        found: &CursorEntry,
        start: Option<CursorPosition>,
        incarnation: u64,
    ) -> Result<bool> {
        let (generation, partition) = (named.generation, named.partition);
        if let Some(committed) = start {
            let (serial, safe) = (2, committed);
            let metadata = CommitMetadata::NONE;
            let first = StoredCursor {
                generation,
                partition,
                serial,
                committed,
                safe,
                incarnation,
                metadata,
            };
            self.write(entry(index) + at::CURSORS, &encode_cursor(&first))?;
            self.write(entry(index) + at::CURSORS + SECTOR, &[0; CURSOR_LEN])?;
            self.set(entry(index) + at::OWNER, 0)?;
        } else if found.cursor().is_none() {
            let (path, position) = (self.path.clone(), entry(index) + at::CURSORS);
            return Err(Error::CorruptData { path, position, what: TORN });
        }
        if found.named.as_ref() != Some(named) {
            self.write(entry(index), &encode_named(named))?;
        }
        Ok(start.is_some() || found.named.as_ref() != Some(named))
    }

    /// Read how often members joined, left, asked for a partition or released one. One load.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.load(at::CHANGES)
    }

    /// Raise the counter, with the claim held.
    pub(super) fn tell_under_claim(&self) -> Result<()> {
        if self.map.shares_memory() {
            self.map.word(at::CHANGES).fetch_add(1, Ordering::AcqRel);
            return Ok(());
        }
        self.set(at::CHANGES, self.changes().wrapping_add(1))
    }

    /// Put `new` in the place of `old`; false when something else was there. With `tells` it raises the
    /// counter, so that others look.
    pub(super) fn replace(&self, position: u64, old: u64, new: u64, tells: bool) -> Result<bool> {
        if !self.map.shares_memory() {
            return self.store.under_claim(|| self.replace_under_claim(position, old, new, tells));
        }
        // Acquire: we see what the owner before stored. Release: the next owner sees what we stored.
        let word = self.map.word(position);
        let replaced = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if replaced && tells {
            self.map.word(at::CHANGES).fetch_add(1, Ordering::AcqRel);
        }
        Ok(replaced)
    }

    fn replace_under_claim(&self, position: u64, old: u64, new: u64, tells: bool) -> Result<bool> {
        if self.load(position) != old {
            return Ok(false);
        }
        self.set(position, new)?;
        if tells {
            self.tell_under_claim()?;
        }
        Ok(true)
    }
}
