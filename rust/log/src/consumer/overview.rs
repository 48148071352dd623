//! Listing all groups of a store, for people; seeking and deleting them.
//!
//! Looking takes no lock and changes nothing, and a store that was opened for reading is enough.
//! Changes here are made under the store's claim, and only where no member lives. Only its owner writes
//! a cursor: a member that knew nothing of a seek would overwrite it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::cursors;
use super::file::{Image, UNFINISHED, sync_names};
use super::log_cursors;
use super::members::Who;
use super::metadata::text_of;
use super::position::Finder;
use crate::error::{Error, IoResult, Result};
use crate::format::consumer::{
    CURSOR_LEN, CommitMetadata, SECTOR, StoredCursor, at, cursor_name, encode_cursor, entry,
    fingerprint,
};
use crate::format::double_slot::slot_of;
use crate::format::names::hex;
use crate::format::settings::TopicSettings;
use crate::format::state::CursorState;
use crate::log::CursorMove;
use crate::store::layout::with_ending;
use crate::store::{Access, SlotInfo, Store, TopicOptions, read_consumer};
use crate::topic::Start;
use crate::topic::Topic;

/// Ending of the file of a group that is being deleted while its cursors are in a log.
const GONE: &str = "@gone";

/// A consumer group as it is now.
#[derive(Debug)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<MemberInfo>,
    /// Name of the log that keeps its cursors, if not its own file does; the log's generation if it was
    /// deleted.
    pub cursor_in: Option<String>,
    /// Its committed offsets; an error where its file is corrupt, or its log deleted.
    pub cursors: Result<Vec<GroupPartitionInfo>>,
}

/// A member of a consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Number of its handle in its process.
    pub handle: u32,
    /// The slot of its process.
    pub slot: u16,
    /// Process number, where it can be found out.
    pub process: Option<u32>,
    /// Whether it lives, where it can be found out.
    pub alive: Option<bool>,
}

/// How far a group has read a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPartitionInfo {
    /// Name that the topic had.
    pub topic: String,
    /// Generation of the topic.
    pub generation: [u8; 16],
    /// Number of the partition.
    pub partition: u32,
    /// The committed offset.
    pub committed: u64,
    /// The text that was committed with it; empty if there was none.
    pub metadata: String,
    /// The offset at which it resumes after a power failure that took more.
    pub safe: u64,
    /// The member that has it.
    pub owner: Option<MemberInfo>,
}

/// List all consumer groups of a store, by name.
///
/// # Errors
/// `SystemCallFailed` when the directory cannot be read. An error in the file of a group stands beside
/// its name.
pub fn list_groups(store: &Store) -> Result<Vec<GroupInfo>> {
    let mut looks = Looks::new(store);
    let mut found = Vec::new();
    for name in group_names(store)? {
        found.extend(looks.by_name(name)?);
    }
    Ok(found)
}

/// Look at one consumer group of a store.
///
/// # Errors
/// `UnknownGroup`. An error in its file is part of what is returned.
pub fn group_info(store: &Store, name: &str) -> Result<GroupInfo> {
    let none = || missing(store, name);
    store.layout().consumer(name).map_err(|_| none())?;
    Looks::new(store).by_name(name.to_owned())?.ok_or_else(none)
}

/// List the names of all consumer groups of a store, sorted.
///
/// # Errors
/// `SystemCallFailed` when the directory cannot be read.
pub fn group_names(store: &Store) -> Result<Vec<String>> {
    let dir = store.layout().consumers();
    let mut names = store.list(&dir)?;
    names.retain(|name| store.layout().consumer(name).is_ok());
    Ok(names)
}

/// A look at all groups of a store.
struct Looks<'a> {
    store: &'a Store,
    slots: Vec<SlotInfo>,
    incarnation: Option<u64>,
    /// Topics that were asked which position holds; `None` for one that cannot say.
    topics: BTreeMap<[u8; 16], Option<Topic>>,
}

impl<'a> Looks<'a> {
    fn new(store: &'a Store) -> Self {
        let (slots, incarnation) = (store.slots(), store.incarnation());
        Self { store, slots, incarnation, topics: BTreeMap::new() }
    }

    /// Look at the group of a name; `None` where there is none.
    fn by_name(&mut self, name: String) -> Result<Option<GroupInfo>> {
        let path = self.store.layout().consumer(&name)?;
        let read = read_consumer(self.store.storage().as_ref(), &path);
        match read.and_then(|read| read.map(|read| Image::of(self.store, &path, read)).transpose())
        {
            Ok(None) => Ok(None),
            Ok(Some(image)) => Ok(Some(self.at(name, &image))),
            Err(error) => {
                let (members, cursor_in) = (Vec::new(), None);
                Ok(Some(GroupInfo { name, members, cursor_in, cursors: Err(error) }))
            }
        }
    }

    fn at(&mut self, name: String, image: &Image) -> GroupInfo {
        let members: Vec<_> = image.members().filter_map(|word| self.member(word)).collect();
        let is_in_file = image.log == [0; 16];
        let mut cursors = Vec::new();
        let mut torn = None;
        for (index, entry) in (0..image.entries()).map(|index| (index, image.entry(index))) {
            let Some(cursor) = entry.cursor() else {
                // An entry that was never begun is none. An entry of a deleted topic is not needed.
                let what = || entry.complaint().filter(|_| !self.store.is_forgotten(&entry));
                torn = torn.or_else(|| Some((index, what()?)));
                continue;
            };
            // The name is for people, and may be corrupt: the cursor names the topic as well.
            let topic = entry.named.map(|named| named.topic);
            let topic = topic.unwrap_or_else(|| self.name_of(&cursor.generation));
            let cursor = if is_in_file { self.told(&topic, cursor) } else { cursor };
            cursors.push(GroupPartitionInfo {
                topic,
                generation: cursor.generation,
                partition: cursor.partition,
                committed: cursor.committed.offset,
                metadata: text_of(cursor.metadata.as_bytes()),
                safe: cursor.safe.offset,
                owner: self.member(entry.owner),
            });
        }
        cursors.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        let cursors = match torn {
            Some((index, what)) => {
                self.store.layout().consumer(&name).and_then(|path| Err(torn_at(path, index, what)))
            }
            None => Ok(cursors),
        };
        if is_in_file {
            return GroupInfo { name, members, cursor_in: None, cursors };
        }
        let home = home_of(self.store, &name, &image.log);
        let log = home.as_ref().map(|home| home.settings().log.clone());
        let cursor_in = Some(log.unwrap_or_else(|_| hex(&image.log)));
        let cursors = cursors.and_then(|cursors| kept_in(&home?, &name, cursors));
        GroupInfo { name, members, cursor_in, cursors }
    }

    /// Find the name of the topic of a generation; the generation itself where there is none.
    #[cold]
    fn name_of(&self, generation: &[u8; 16]) -> String {
        let mut topics = self.store.topics().unwrap_or_default().into_iter();
        let is_it = |settings: &TopicSettings| settings.generation == *generation;
        let found = topics.find(|(_, settings)| settings.as_ref().is_ok_and(is_it));
        found.map_or_else(|| hex(generation), |(name, _)| name)
    }

    /// Decode a member; `None` for no member, and for one that is known to be dead.
    fn member(&self, word: u64) -> Option<MemberInfo> {
        let member = Who::of(word).map(|who| member_info(who, &self.slots));
        member.filter(|member| member.alive != Some(false))
    }

    /// Get the cursor with the committed offset that holds. Where the topic cannot say what a power failure took: as
    /// stored.
    fn told(&mut self, topic: &str, cursor: StoredCursor) -> StoredCursor {
        if Some(cursor.incarnation) == self.incarnation {
            return cursor;
        }
        let open = || {
            let found = self.store.topic_settings(topic).ok()?;
            let is_it = found.generation == cursor.generation;
            is_it.then(|| Topic::existing(self.store, found).ok()).flatten()
        };
        let topic = self.topics.entry(cursor.generation).or_insert_with(open);
        let told = topic.as_ref().and_then(|topic| {
            cursors::group_error(topic, cursor.partition, &cursor, self.incarnation).ok()
        });
        told.map_or(cursor, |told| cursor.standing_at(told))
    }
}

/// Report an entry without a valid cursor.
fn torn_at(path: PathBuf, index: u64, what: &'static str) -> Error {
    Error::CorruptData { path, position: entry(index) + at::CURSORS, what }
}

/// Open a topic of the log that keeps the cursors of a group.
pub(super) fn home_of(store: &Store, name: &str, log: &[u8; 16]) -> Result<Topic> {
    if let Some(topic) = store.topic_in_generation(log)? {
        return Topic::open(store, &topic.name, &TopicOptions::default());
    }
    // A topic that cannot be read may belong to that log.
    for (_, settings) in store.topics()? {
        settings?;
    }
    Err(Error::InvalidArgument {
        what: format!(
            "consumer group {name:?} kept its cursors in a log that was deleted; delete the group, and open it again to begin at the start"
        ),
    })
}

/// Take the offsets from the log that keeps them; those in the file may be older.
fn kept_in(
    home: &Topic,
    name: &str,
    mut cursors: Vec<GroupPartitionInfo>,
) -> Result<Vec<GroupPartitionInfo>> {
    let kept = home.log().kept_offsets()?;
    for cursor in &mut cursors {
        let named = cursor_name(name, &cursor.generation, cursor.partition);
        let kept = kept.get(&named);
        cursor.committed = kept.map_or(cursor.safe, |kept| kept.offset);
        cursor.metadata = kept.map(|kept| text_of(&kept.metadata)).unwrap_or_default();
        cursor.safe = cursor.safe.min(cursor.committed);
    }
    Ok(cursors)
}

fn member_info(who: Who, slots: &[SlotInfo]) -> MemberInfo {
    let slot = slots.iter().find(|slot| slot.slot == who.process.slot());
    let same = slot.filter(|slot| slot.generation == Some(who.process.generation()));
    MemberInfo {
        handle: who.handle,
        slot: who.process.slot(),
        process: same.and_then(|slot| slot.process),
        alive: match (slot, same) {
            (Some(_), None) => Some(false),
            (_, same) => same.and_then(|slot| slot.alive),
        },
    }
}

/// Set the committed offset of a group without living members, and wait until it is on disk; return the
/// offset. Works also where the cursor is corrupt, or its log lost its end. The group must know the
/// partition already.
///
/// # Errors
/// `UnknownGroup`, `OffsetOutOfRange`, `NotWritable`; `InvalidArgument` while a member lives, and for a
/// partition that it never read: nothing was changed. `CorruptData`, `LockTimeout`, `SystemCallFailed`.
pub fn seek_group(
    store: &Store,
    name: &str,
    topic: &Topic,
    partition: u32,
    to: Start,
) -> Result<u64> {
    let path = store.layout().consumer(name)?;
    let offset = to.offset(topic, partition)?;
    let committed = Finder::default().find(topic, partition, offset)?.0;
    let incarnation = store.membership()?.incarnation();
    let (_, image) = Image::read(store, &path)?.ok_or_else(|| missing(store, name))?;
    // Before the claim, which opening a topic may need.
    let home = match image.log {
        log if log == [0; 16] => None,
        log => Some(home_of(store, name, &log)?),
    };
    store.under_claim(|| {
        let (file, image) = Image::read(store, &path)?.ok_or_else(|| missing(store, name))?;
        if home.as_ref().map_or([0; 16], |home| home.settings().log_generation) != image.log {
            let what = format!("consumer group {name:?} was deleted and created again meanwhile");
            return Err(Error::InvalidArgument { what });
        }
        expect_nobody(store, name, &image, ", or seek there")?;
        let generation = topic.settings().generation;
        let found = (0..image.entries())
            .map(|index| (index, image.entry(index)))
            .find(|(_, entry)| entry.of() == Some((generation, partition)));
        let (index, found) = found.ok_or_else(|| Error::InvalidArgument {
            what: format!(
                "consumer group {name:?} never read partition {partition} of topic {:?}; `falaj group list` \
                 lists what it reads",
                topic.name()
            ),
        })?;
        let serial = found.cursor().map_or(2, |cursor| cursor.serial.wrapping_add(1));
        // It is also the safe position, since the caller wants the group there. So wait for the records
        // below it.
        topic.flush()?;
        let (safe, metadata) = (committed, CommitMetadata::NONE);
        let cursor = StoredCursor { generation, partition, serial, committed, safe, incarnation, metadata };
        let place = |serial| entry(index) + at::CURSORS + slot_of(serial) as u64 * SECTOR;
        let mut bytes = [0; CURSOR_LEN];
        bytes.copy_from_slice(&encode_cursor(&cursor));
        let note = || {
            file.write_at(&bytes, place(serial)).doing("write", &path)?;
            if found.cursor().is_none() {
                // The other slot is cleared, so that a later look reports no corruption.
                let cleared = file.write_at(&[0; CURSOR_LEN], place(serial.wrapping_add(1)));
                cleared.doing("write", &path)?;
            }
            file.sync_data().doing("sync", &path)
        };
        let Some(home) = &home else { return note() };
        let in_log = cursor_name(name, &generation, partition);
        let found = log_cursors::read(home, &in_log)?;
        // Retention goes by the note, which must never be ahead of the log.
        if offset < found.offset {
            note()?;
        }
        let turn = found.turn.wrapping_add(1);
        let to = CursorState { offset, crc: fingerprint(&committed), turn };
        let end = log_cursors::append(home, &[CursorMove { name: &in_log, to, from: Some(found), metadata: b"" }])?;
        home.log().sync_to(end)?;
        if offset < found.offset { Ok(()) } else { note() }
    })?;
    Ok(offset)
}

/// Delete a group without living members, with its cursors.
///
/// # Errors
/// `UnknownGroup`; `InvalidArgument` while a member lives; `NotWritable`, `LockTimeout`, `SystemCallFailed`.
pub fn delete_group(store: &Store, name: &str) -> Result<()> {
    let path = store.layout().consumer(name)?;
    let was_begun = finish_deletion(store, name)?;
    store.under_claim(|| {
        let storage = store.storage();
        if storage.stat(&path).is_err() {
            return if was_begun { Ok(()) } else { Err(missing(store, name)) };
        }
        let is_in_log = match Image::read(store, &path) {
            Ok(Some((_, image))) => {
                expect_nobody(store, name, &image, "")?;
                image.log != [0; 16]
            }
            // A corrupt file may be deleted: no member can have opened it. It does not say which log
            // keeps its cursors.
            Err(error) => matches!(error, Error::CorruptData { .. }),
            Ok(None) => false,
        };
        if is_in_log {
            let away = gone(store, name)?;
            storage.rename_new(&path, &away).doing("rename", &path)?;
            return sync_names(store);
        }
        let _ = storage.unlink(&with_ending(&path, UNFINISHED));
        storage.unlink(&path).doing("remove", &path)?;
        sync_names(store)
    })?;
    finish_deletion(store, name).map(drop)
}

/// Name the file of a group while the log that keeps its cursors forgets them.
fn gone(store: &Store, name: &str) -> Result<PathBuf> {
    Ok(with_ending(&store.layout().consumer(name)?, GONE))
}

/// Finish a deletion that a process began. A group of that name that is created again must not find the
/// cursors of the one before. True where a deletion was begun.
pub(super) fn finish_deletion(store: &Store, name: &str) -> Result<bool> {
    let (away, storage) = (gone(store, name)?, store.storage());
    let open = |home: &TopicSettings| Topic::open(store, &home.name, &TopicOptions::default());
    // Before the claim, which opening a topic may need.
    let homes: Vec<_> = match Image::read(store, &away) {
        Ok(None) => return Ok(false),
        Ok(Some((_, image))) => {
            let home = store.topic_in_generation(&image.log)?;
            home.iter().map(open).collect::<Result<_>>()?
        }
        // Any log may have them; if a log cannot be opened, no process can use its cursors.
        Err(Error::CorruptData { .. }) => {
            let topics = store.topics()?.into_iter().filter_map(|(_, topic)| topic.ok());
            let by_log: BTreeMap<_, _> =
                topics.map(|topic| (topic.log_generation, topic)).collect();
            by_log.values().filter_map(|topic| open(topic).ok()).collect()
        }
        Err(error) => return Err(error),
    };
    store.under_claim(|| {
        if storage.stat(&away).is_err() {
            return Ok(());
        }
        homes.iter().try_for_each(|home| log_cursors::forget(home, name, None))?;
        storage.unlink(&away).doing("remove", &away)?;
        sync_names(store)
    })?;
    Ok(true)
}

pub(super) fn missing(store: &Store, name: &str) -> Error {
    let groups = group_names(store).unwrap_or_default();
    Error::UnknownGroup { name: name.to_owned(), store: store.path().to_path_buf(), groups }
}

/// Refuse while a member lives; `or` says what helps beside closing it.
fn expect_nobody(store: &Store, name: &str, image: &Image, or: &str) -> Result<()> {
    debug_assert_eq!(store.access(), Access::Write);
    let who = store.membership()?;
    if image.incarnation() != who.incarnation() {
        return Ok(());
    }
    let Some(alive) = image.members().find(|word| super::members::is_alive(&who, *word)) else {
        return Ok(());
    };
    let holder = Who::of(alive).map(|member| who.describe(member.process)).unwrap_or_default();
    Err(Error::InvalidArgument {
        what: format!("consumer group {name:?} is open in {holder}; close it there first{or}"),
    })
}
