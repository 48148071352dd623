//! Forgetting one topic of a consumer group: its committed offsets in all partitions at once.
//!
//! Owns the steps and their order. Invariants: the offsets of all partitions are forgotten together or
//! none is, whichever process dies when. A topic that a living member reads is never forgotten. The
//! entries of other topics are not touched.
//!
//! ```text
//! mark every entry of the topic ─> sync ─> forget cursors in the log ─> wipe the entries ─> sync ─> take the marks away
//!                                   ▲ from here on all are forgotten, and the next process finishes it
//! ```
//!
//! One mark that is on the disk is enough: [`Image::entry`] shows no entry of a topic that has one
//! marked entry. So a power failure that keeps some marks and not others has forgotten all. See
//! `docs/PROTOCOL.md`, "Forgetting a topic".

use std::collections::BTreeSet;
use std::path::Path;

use super::file::Image;
use super::log_cursors;
use super::members::{Who, is_alive};
use super::overview::{home_of, missing};
use crate::error::{Error, IoResult, Result};
use crate::format::consumer::{CursorEntry, ENTRY_LEN, at, entry, mark_of};
use crate::storage::File;
use crate::store::Store;
use crate::topic::Topic;

/// Forget the committed offsets of a consumer group in one topic; return how many partitions had one.
/// This is on the disk on return. The other topics of the group keep their offsets. A member that reads
/// the topic later begins where its `start` says. The topic may have been deleted.
///
/// # Errors
/// `UnknownGroup`; `InvalidArgument` where the group has no committed offset in the topic, and while a living
/// member reads it; `NotWritable`, `CorruptData`, `LockTimeout`, `SystemCallFailed`.
///
/// # Examples
/// ```
/// use falaj::Store;
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path().join("events"))?;
/// for name in ["orders", "refunds"] {
///     store.topic(name)?;
/// }
/// store.consumer("billing", ["orders", "refunds"])?.close()?;
///
/// // From now on it reads orders alone, so retention need not wait for it in refunds.
/// let billing = store.consumer("billing", ["orders"])?;
/// store.forget_topic("billing", "refunds")?;
/// # drop(billing);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn forget_topic(store: &Store, name: &str, topic: &str) -> Result<usize> {
    let path = store.layout().consumer(name)?;
    store.layout().topic_settings(topic)?;
    store.membership()?.check()?;
    let read = || Image::read(store, &path)?.ok_or_else(|| missing(store, name));
    // Before the claim, which opening a topic may need.
    let log = read()?.1.log;
    let home = if log == [0; 16] { None } else { Some(home_of(store, name, &log)?) };
    store.under_claim(|| {
        let (file, image) = read()?;
        if image.log != log {
            let what = format!("consumer group {name:?} was deleted and created again meanwhile");
            return Err(Error::InvalidArgument { what });
        }
        // Finish what another process began.
        finish(name, &path, &*file, &image, home.as_ref())?;
        let image = read()?.1;
        let meant = meant(store, &image, topic);
        expect_no_reader(store, name, topic, &image, &meant)?;
        let Some(marks) = marks_of(&meant) else {
            let what = format!(
                "consumer group {name:?} has no committed offset in topic {topic:?}; \
                 `falaj group list` lists what it reads"
            );
            return Err(Error::InvalidArgument { what });
        };
        mark(&path, &*file, &marks)?;
        let image = read()?.1;
        finish(name, &path, &*file, &image, home.as_ref())?;
        Ok(meant.len())
    })
}

/// Find the entries of a topic, with their places. The topic's name finds them, also after the topic is
/// deleted. The generation finds those whose name is corrupt.
fn meant(store: &Store, image: &Image, topic: &str) -> Vec<(u64, CursorEntry)> {
    let generation = store.topic_settings(topic).ok().map(|settings| settings.generation);
    let is_meant = |entry: &CursorEntry| match &entry.named {
        Some(named) => named.topic == topic,
        None => entry.of().is_some_and(|(of, _)| Some(of) == generation),
    };
    let entries = (0..image.entries()).map(|index| (index, image.entry(index)));
    entries.filter(|(_, entry)| is_meant(entry)).collect()
}

fn expect_no_reader(
    store: &Store,
    name: &str,
    topic: &str,
    image: &Image,
    meant: &[(u64, CursorEntry)],
) -> Result<()> {
    let who = store.membership()?;
    if image.incarnation() != who.incarnation() || !meant.iter().any(|(_, entry)| entry.is_read) {
        return Ok(());
    }
    // All living members read the same topics.
    let Some(alive) = image.members().find(|word| is_alive(&who, *word)) else { return Ok(()) };
    let holder = Who::of(alive).map(|member| who.describe(member.process)).unwrap_or_default();
    let what = format!(
        "{holder} reads topic {topic:?} as a member of consumer group {name:?}; close it there, or open \
         it there without this topic, then forget the topic"
    );
    Err(Error::InvalidArgument { what })
}

/// The marks of entries, each with its place; `None` for no entries.
fn marks_of(meant: &[(u64, CursorEntry)]) -> Option<Vec<(u64, u64)>> {
    let marks = meant.iter().filter_map(|(index, entry)| Some((*index, mark_of(&entry.of()?.0))));
    Some(marks.collect::<Vec<_>>()).filter(|marks| !marks.is_empty())
}

fn mark(path: &Path, file: &dyn File, marks: &[(u64, u64)]) -> Result<()> {
    for (index, mark) in marks {
        write(path, file, entry(*index) + at::FORGOTTEN, &mark.to_le_bytes())?;
    }
    sync(path, file)
}

/// Finish under the claim what a process began: a group that opens must not find an entry that is half
/// forgotten. `home` is a topic of the log that keeps the cursors. Returns true where something was
/// begun.
pub(super) fn finish(
    name: &str,
    path: &Path,
    file: &dyn File,
    image: &Image,
    home: Option<&Topic>,
) -> Result<bool> {
    let is_begun = |entry: &CursorEntry| {
        let of_one = entry.of().is_some_and(|(of, _)| image.forgotten.contains(&of));
        entry.is_marked() || of_one
    };
    let entries = (0..image.entries()).map(|index| (index, image.entry_as_stored(index)));
    let places: Vec<_> = entries.filter(|(_, entry)| is_begun(entry)).collect();
    if places.is_empty() {
        return Ok(false);
    }
    // Also where all are marked: perhaps no mark is on the disk.
    mark(path, file, &marks_of(&places).unwrap_or_default())?;
    if let Some(home) = home {
        let of: BTreeSet<_> = places.iter().filter_map(|(_, entry)| entry.of()).collect();
        log_cursors::forget(home, name, Some(&of.into_iter().collect::<Vec<_>>()))?;
    }
    for (index, _) in &places {
        let start = entry(*index);
        write(path, file, start + at::CURSORS, &[0; (ENTRY_LEN - at::CURSORS) as usize])?;
        write(path, file, start, &[0; at::FORGOTTEN as usize])?;
    }
    sync(path, file)?;
    for (index, _) in &places {
        write(path, file, entry(*index) + at::FORGOTTEN, &[0; 16])?;
    }
    Ok(true)
}

fn write(path: &Path, file: &dyn File, position: u64, bytes: &[u8]) -> Result<()> {
    file.write_at(bytes, position).doing("write", path)
}

fn sync(path: &Path, file: &dyn File) -> Result<()> {
    file.sync_data().doing("sync", path)
}
