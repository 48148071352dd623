//! What all consumers of a store say, for people; resetting and deleting them.
//!
//! Looking takes no lock and changes nothing, and a store that was opened for reading is enough. What
//! is changed here is changed under the store's claim, and only where no member lives: a cursor is
//! written by its owner, and a reset that a member did not hear of would be written over by it.

use super::file::{Image, UNFINISHED};
use super::handle::Start;
use super::members::Who;
use super::places::Finder;
use crate::error::{Error, Result};
use crate::format::consumer::{CURSOR_LEN, Cursor, Named, SECTOR, at, encode_cursor, entry};
use crate::store::{Access, SlotInfo, Store};
use crate::topic::Topic;

/// A consumer as it is now.
#[derive(Debug)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<MemberInfo>,
    /// How far it has read; an error where its file is damaged.
    pub cursors: Result<Vec<CursorInfo>>,
}

/// A member of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Which handle of its process.
    pub handle: u32,
    /// The slot of its process.
    pub slot: u16,
    /// Process number, where it can be found out.
    pub process: Option<u32>,
    /// Whether it lives, where it can be found out.
    pub alive: Option<bool>,
}

/// How far a consumer has read a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorInfo {
    /// Name that the topic had.
    pub topic: String,
    /// Generation of the topic.
    pub generation: [u8; 16],
    /// Which partition.
    pub partition: u32,
    /// Offset up to which it was committed.
    pub committed: u64,
    /// Where it goes on after a loss of power that took more.
    pub safe: u64,
    /// Who has it.
    pub owner: Option<MemberInfo>,
}

/// All consumers of a store, by name.
///
/// # Errors
/// `Io` when the directory cannot be read. What is wrong with one stands beside its name.
pub fn list_consumers(store: &Store) -> Result<Vec<ConsumerInfo>> {
    let slots = store.slots();
    let mut found = Vec::new();
    for name in names(store)? {
        match Image::read(store, &store.layout().consumer(&name)?) {
            Ok(None) => {}
            Ok(Some((_, image))) => found.push(look(name, &image, &slots)),
            Err(error) => {
                found.push(ConsumerInfo { name, members: Vec::new(), cursors: Err(error) });
            }
        }
    }
    Ok(found)
}

fn names(store: &Store) -> Result<Vec<String>> {
    let dir = store.layout().consumers();
    let mut names = store.storage().list(&dir).map_err(|error| Error::io("list", &dir, error))?;
    names.retain(|name| store.layout().consumer(name).is_ok());
    Ok(names)
}

fn look(name: String, image: &Image, slots: &[SlotInfo]) -> ConsumerInfo {
    let member = |word: u64| Who::of(word).map(|who| member_info(who, slots));
    let lives = |member: &MemberInfo| member.alive != Some(false);
    let members = image.members().filter_map(member).filter(lives).collect();
    let cursors = (0..image.entries()).filter_map(|index| {
        let entry = image.entry(index);
        let cursor = entry.cursor()?;
        Some(CursorInfo {
            topic: entry.named?.topic,
            generation: cursor.generation,
            partition: cursor.partition,
            committed: cursor.committed.offset,
            safe: cursor.safe.offset,
            owner: member(entry.owner).filter(lives),
        })
    });
    let mut cursors: Vec<_> = cursors.collect();
    cursors.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    ConsumerInfo { name, members, cursors: Ok(cursors) }
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

/// Set the cursor of a consumer that nobody has open, on the medium; returns the offset. Also where it
/// is damaged, or its log was rewound. It has to know the partition already.
///
/// # Errors
/// `NoSuchConsumer`, `OffsetOutOfRange`, `ReadOnly`; `Invalid` while a member lives, and for a
/// partition that it never read: nothing was changed. `Corrupt`, `LockTimeout`, `Io`.
pub fn reset_cursor(
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
    store.under_claim(|| {
        let (file, image) = Image::read(store, &path)?.ok_or_else(|| missing(store, name))?;
        expect_nobody(store, name, &image)?;
        let generation = topic.settings().generation;
        let named = Named { generation, partition, topic: topic.name().to_owned() };
        let found = (0..image.entries())
            .map(|index| (index, image.entry(index)))
            .find(|(_, entry)| entry.named.as_ref() == Some(&named));
        let (index, found) = found.ok_or_else(|| Error::Invalid {
            what: format!(
                "consumer {name:?} never read partition {partition} of topic {:?}; `falaj consumers` \
                 lists what it reads",
                topic.name()
            ),
        })?;
        let serial = found.cursor().map_or(2, |cursor| cursor.serial + 1);
        // Safe, too: who resets it wants it to be there. What it stands for is waited for.
        topic.flush()?;
        let cursor = Cursor { generation, partition, serial, committed, safe: committed, incarnation };
        let at = entry(index) + at::CURSORS + (serial & 1) * SECTOR;
        let mut bytes = [0; CURSOR_LEN];
        bytes.copy_from_slice(&encode_cursor(&cursor));
        file.write_at(&bytes, at).map_err(|error| Error::io("write", &path, error))?;
        file.sync_data().map_err(|error| Error::io("sync", &path, error))
    })?;
    Ok(offset)
}

/// Delete a consumer that nobody has open, with its cursors.
///
/// # Errors
/// `NoSuchConsumer`; `Invalid` while a member lives; `ReadOnly`, `LockTimeout`, `Io`.
pub fn delete_consumer(store: &Store, name: &str) -> Result<()> {
    let path = store.layout().consumer(name)?;
    store.under_claim(|| {
        let storage = store.storage();
        if storage.stat(&path).is_err() {
            return Err(missing(store, name));
        }
        // One that is damaged may go: nobody can have opened it.
        if let Ok(Some((_, image))) = Image::read(store, &path) {
            expect_nobody(store, name, &image)?;
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(UNFINISHED);
        let _ = storage.unlink(std::path::Path::new(&unfinished));
        storage.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
        let dir = store.layout().consumers();
        storage.sync_dir(&dir).map_err(|error| Error::io("sync", &dir, error))
    })
}

fn missing(store: &Store, name: &str) -> Error {
    Error::NoSuchConsumer { name: name.to_owned(), store: store.path().to_path_buf() }
}

fn expect_nobody(store: &Store, name: &str, image: &Image) -> Result<()> {
    debug_assert_eq!(store.access(), Access::Write);
    let who = store.membership()?;
    if image.incarnation() != who.incarnation() {
        return Ok(());
    }
    let Some(alive) = image.members().find(|word| super::members::is_alive(&who, *word)) else {
        return Ok(());
    };
    let holder = Who::of(alive).map(|member| who.describe(member.process)).unwrap_or_default();
    Err(Error::Invalid {
        what: format!("consumer {name:?} is open in {holder}; close it there first, or seek there"),
    })
}
