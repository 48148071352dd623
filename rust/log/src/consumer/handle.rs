//! A member of a consumer: what it reads, what it has, what it commits.
//!
//! Owns what is committed, and how: of partitions that are the member's, which it took
//! ([`super::claim`]). Dropped, it lets everything go; its cursors stay.

use std::sync::Arc;
use std::time::Instant;

use super::assignment::Sharing;
use super::cursors::{self, PendingPosition};
use super::file::{Attached, ConsumerFile, attach};
use super::log_cursors;
use super::members::{self, Who};
use super::overview;
use super::position::Finder;
use crate::error::{Error, IoResult, Result};
use crate::format::address::Address;
use crate::format::checksum::crc32;
use crate::format::consumer::{
    CursorPosition, Named, StoredCursor, at, cursor_name, entry, member,
};
use crate::format::state::CursorState;
use crate::segment::named::expect_not_removed;
use crate::store::handles::Numbered;
use crate::store::sync_coalescer::SyncCoalescer;
use crate::store::{Membership, Store};
use crate::topic::{Start, Topic};

/// A partition, as a member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPartition {
    /// Which of the topics that the consumer was opened with.
    pub topic: usize,
    /// Which of its partitions.
    pub partition: u32,
    /// Offset of the record to hand out next.
    pub next: u64,
    /// False while it is about to be given up: nothing more is to be handed out of it.
    pub open: bool,
}

#[derive(Debug)]
pub(super) struct AssignedPartition {
    pub(super) topic: usize,
    pub(super) partition: u32,
    pub(super) entry: u64,
    /// It is to be let go once it is settled.
    pub(super) closing: bool,
    /// How many this member had taken before it.
    pub(super) taken: u64,
    /// `None` while it is not this member's, or could not be read since it was taken.
    pub(super) held: Option<Held>,
}

#[derive(Debug)]
pub(super) struct Held {
    /// As committed; where a log keeps it, a note of what that says.
    pub(super) cursor: StoredCursor,
    /// What the log says that keeps it.
    pub(super) kept: CursorState,
    /// What was handed out lies before it; an error where nobody knows where to go on.
    pub(super) next: std::result::Result<u64, ()>,
    /// The log does not know what was committed, so that whatever is committed next is another place.
    pub(super) rewound: bool,
    pub(super) pending: PendingPosition,
    pub(super) finder: Finder,
}

impl Held {
    /// What was handed out, where that is not what is committed.
    pub(super) fn uncommitted(&self) -> Option<u64> {
        let committed = self.cursor.committed.offset;
        self.next.ok().filter(|next| self.rewound || *next != committed)
    }

    pub(super) fn is_settled(&self) -> bool {
        self.uncommitted().is_none()
    }
}

/// A member of a consumer.
#[derive(Debug)]
pub struct GroupMember {
    pub(super) group: String,
    pub(super) who: Arc<Membership>,
    pub(super) me: u64,
    /// That there is such a member, for its own process.
    _number: Numbered,
    /// `None` once it left.
    pub(super) row: Option<u64>,
    pub(super) file: ConsumerFile,
    gate: Arc<SyncCoalescer>,
    pub(super) topics: Vec<Topic>,
    pub(super) lanes: Vec<AssignedPartition>,
    /// In whose log the cursors are kept, if not in the file.
    pub(super) home: Option<Topic>,
    /// Up to where that has to be on the medium before anything is handed out.
    pub(super) unsynced: Option<Address>,
    /// The counter of changes when the rows were last read.
    pub(super) seen: Option<u64>,
    pub(super) others: usize,
    /// When it last asked whether the others live.
    pub(super) asked: Option<Instant>,
    pub(super) sharing: Sharing,
    /// How many partitions it ever took.
    pub(super) takes: u64,
    /// It has other partitions than [`GroupMember::refresh`] told of.
    pub(super) changed: bool,
}

impl GroupMember {
    /// Become a member of a consumer, which is made where there is none, and take the partitions that
    /// nobody has.
    ///
    /// Where it has no cursor in a partition, one is made at `start` and is on the medium when this
    /// returns, so that it begins there once and not with each opening. A topic that was deleted and
    /// created anew is another topic, in which it has no cursor. The topics' visibility says how far
    /// they are read, and what the end is.
    ///
    /// # Errors
    /// `InvalidName`; `InvalidArgument` for no topic, one named twice, one of another store, or other topics
    /// than those of a living member; `NotWritable`; `OffsetOutOfRange` for a `start` that is none;
    /// `LockTimeout`, `CorruptData`, `UnsupportedVersion`, `NoSpace`, `SystemCallFailed`. What becomes of a
    /// cursor that its log does not know any more [`GroupMember::refresh`] tells.
    pub fn open(store: &Store, group: &str, topics: &[Topic], start: Start) -> Result<Self> {
        Self::join(store, group, topics, start, None)
    }

    /// As [`GroupMember::open`], with the cursors kept in the log of a topic of the store, so that they
    /// can move with what is appended there ([`GroupMember::moves`]). Where they are kept is a consumer's
    /// for ever. Each taking of a partition is noted in that log.
    ///
    /// # Errors
    /// As [`GroupMember::open`]; `InvalidArgument` for a topic of another store, for a consumer whose cursors are
    /// kept elsewhere, and for more cursors than the log keeps; as [`Topic::append`].
    pub fn open_in(
        store: &Store,
        group: &str,
        topics: &[Topic],
        start: Start,
        home: &Topic,
    ) -> Result<Self> {
        Self::join(store, group, topics, start, Some(home))
    }

    fn join(
        store: &Store,
        group: &str,
        topics: &[Topic],
        start: Start,
        home: Option<&Topic>,
    ) -> Result<Self> {
        store.layout().consumer(group)?;
        expect_home(store, group, home)?;
        overview::finish_deletion(store, group)?;
        let mut topics = topics.to_vec();
        topics.sort_by_key(|topic| topic.settings().generation);
        expect_topics(store, group, &topics)?;
        let who = store.membership()?;
        let number = who.number();
        let me = Who { process: who.identity(), handle: number.number }.word();
        let mut wanted = Vec::new();
        let mut lanes = Vec::new();
        for (number, topic) in topics.iter().enumerate() {
            for partition in 0..topic.partitions() {
                let generation = topic.settings().generation;
                let named = Named { generation, partition, topic: topic.name().to_owned() };
                wanted.push(named);
                let (entry, closing, taken, held) = Default::default();
                lanes.push(AssignedPartition {
                    topic: number,
                    partition,
                    entry,
                    closing,
                    taken,
                    held,
                });
            }
        }
        let begin = |number: usize| {
            let (topic, partition) = (&topics[lanes[number].topic], lanes[number].partition);
            let offset = start.offset(topic, partition)?;
            Ok(Finder::default().find(topic, partition, offset)?.0)
        };
        let (file, places, row) = store.under_claim(|| {
            if let Some(home) = home {
                expect_room(home, group, &wanted)?;
            }
            let Attached { file, places, gone } = attach(store, &who, group, &wanted, home, begin)?;
            if let Some(home) = home.filter(|_| !gone.is_empty()) {
                log_cursors::forget(home, group, Some(&gone))?;
            }
            let row = members::join(&file, &who, me, (reads(&topics), &places))?;
            Ok((file, places, row))
        })?;
        for (lane, entry) in lanes.iter_mut().zip(places) {
            lane.entry = entry;
        }
        let gate = who.sync_coalescer(&file.path);
        let mut opened = Self {
            group: group.to_owned(),
            who,
            me,
            _number: number,
            row: Some(row),
            file,
            gate,
            topics,
            lanes,
            home: home.cloned(),
            unsynced: None,
            seen: None,
            others: 0,
            asked: None,
            sharing: Sharing::default(),
            takes: 0,
            changed: false,
        };
        opened.rouse();
        opened.refresh()?;
        Ok(opened)
    }

    /// Its consumer group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The topics that it reads, in the order that [`GroupPartition::topic`] counts.
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// Make sure that this is still the process that opened it, and that it did not leave. One load.
    ///
    /// # Errors
    /// `HandleClosed` in a forked child, which opens the consumer again, and after the member left.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.row().map(drop)
    }

    #[inline]
    pub(super) fn row(&self) -> Result<u64> {
        self.who.check()?;
        self.row.ok_or(Error::HandleClosed { what: "consumer" })
    }

    /// The partitions that this member has.
    ///
    /// # Errors
    /// `LogTruncated` when the log of one does not know its cursor any more: [`GroupMember::seek`] says where
    /// to go on.
    pub fn parts(&self) -> Result<Vec<GroupPartition>> {
        let mut parts = Vec::new();
        for lane in &self.lanes {
            let Some(held) = &lane.held else { continue };
            let next = held.next.or_else(|()| Err(self.rewound(lane, held)?))?;
            let (topic, partition) = (lane.topic, lane.partition);
            parts.push(GroupPartition { topic, partition, next, open: !lane.closing });
        }
        Ok(parts)
    }

    fn rewound(&self, lane: &AssignedPartition, held: &Held) -> Result<Error> {
        let topic = &self.topics[lane.topic];
        let (group, offset) = (self.group.clone(), held.cursor.committed.offset);
        let (name, end) = (topic.name().to_owned(), topic.committed(lane.partition)?);
        let partition = lane.partition;
        Ok(Error::LogTruncated { group, topic: name, partition, offset, end })
    }

    pub(super) fn number(&self, topic: &str, partition: u32) -> Result<usize> {
        let found = self.lanes.iter().position(|lane| {
            lane.partition == partition && self.topics[lane.topic].name() == topic
        });
        found.ok_or_else(|| Error::InvalidArgument {
            what: format!(
                "consumer group {:?} does not read partition {partition} of topic {topic:?}",
                self.group
            ),
        })
    }

    /// What this member has of a partition: looked up in the file each time.
    pub(super) fn held(&mut self, number: usize) -> Result<&mut Held> {
        let owner = self.file.load(entry(self.lanes[number].entry) + at::OWNER);
        if owner != self.me || self.lanes[number].held.is_none() {
            return Err(self.not_owner(number));
        }
        let path = &self.file.path;
        let held = self.lanes[number].held.as_mut();
        held.ok_or_else(|| Error::LockFileReplaced { path: path.clone() })
    }

    #[cold]
    fn not_owner(&self, number: usize) -> Error {
        let lane = &self.lanes[number];
        let owner = self.file.load(entry(lane.entry) + at::OWNER);
        let holder = Who::of(owner).map(|owner| self.who.describe(owner.process));
        Error::PartitionNotAssigned {
            group: self.group.clone(),
            topic: self.topics[lane.topic].name().to_owned(),
            partition: lane.partition,
            holder: holder.unwrap_or_else(|| "nobody, at this moment,".into()),
        }
    }

    /// Offset of the record that is to be handed out next of a partition.
    ///
    /// # Errors
    /// `PartitionNotAssigned`; `LogTruncated`; `InvalidArgument` for a partition that it does not read.
    pub fn next(&self, topic: &str, partition: u32) -> Result<u64> {
        let number = self.number(topic, partition)?;
        let lane = &self.lanes[number];
        let held = lane.held.as_ref().ok_or_else(|| self.not_owner(number))?;
        held.next.or_else(|()| Err(self.rewound(lane, held)?))
    }

    /// Note down that what lies before an offset was handed out.
    pub fn handed_out(&mut self, part: &GroupPartition) {
        let lane = self
            .lanes
            .iter_mut()
            .find(|lane| (lane.topic, lane.partition) == (part.topic, part.partition));
        if let Some(held) = lane.and_then(|lane| lane.held.as_mut()) {
            held.next = held.next.map(|_| part.next);
        }
    }

    /// The partitions that are meant, whoever has them: of all topics or one, all or one.
    ///
    /// # Errors
    /// `InvalidArgument` where it reads none of those.
    pub fn meant(&self, topic: Option<&str>, partition: Option<u32>) -> Result<Vec<(usize, u32)>> {
        if let (Some(topic), partition) = (topic, partition.unwrap_or(0)) {
            self.number(topic, partition)?;
        }
        let is_meant = |lane: &&AssignedPartition| {
            topic.is_none_or(|topic| self.topics[lane.topic].name() == topic)
                && partition.is_none_or(|partition| lane.partition == partition)
        };
        Ok(self.lanes.iter().filter(is_meant).map(|lane| (lane.topic, lane.partition)).collect())
    }

    /// The partitions that this member has, whatever is known of their cursors.
    pub fn held_parts(&self) -> Vec<(usize, u32)> {
        let held = self.lanes.iter().filter(|lane| lane.held.is_some());
        held.map(|lane| (lane.topic, lane.partition)).collect()
    }

    /// Commit the records delivered from all partitions; `durable` as for [`GroupMember::commit`].
    ///
    /// # Errors
    /// As [`GroupMember::commit`]; what was committed before the error stays.
    pub fn commit_all(&mut self, durable: bool) -> Result<()> {
        self.check()?;
        if self.home.is_some() {
            let moves = self.moves()?;
            return self.commit_moves(&moves, durable);
        }
        for number in 0..self.lanes.len() {
            let Some(held) = &self.lanes[number].held else { continue };
            // A durable one also where it stands already: it may not be on the medium.
            let again = held.next.ok().filter(|_| durable);
            if let Some(next) = held.uncommitted().or(again) {
                self.put(number, next, durable)?;
            }
        }
        if durable { self.sync() } else { Ok(()) }
    }

    /// Commit that what lies before an offset is done with. Every process sees it when this returns, and
    /// no death takes it. After a loss of power the cursor may stand further back, never further on than
    /// the log; with `durable` it stands where it was when this returned: first the records before it
    /// are put on the disk, then it. An offset that a trim or a limit has passed meanwhile is committed as
    /// well; the next read raises `OffsetOutOfRange`.
    ///
    /// # Errors
    /// `PartitionNotAssigned`, `OffsetOutOfRange` beyond the end, `InvalidArgument` for a partition that it does not read, `HandleClosed` in a
    /// forked child: nothing was committed. `SyncFailed`, `LockTimeout`, `SystemCallFailed`: perhaps it was.
    pub fn commit(
        &mut self,
        topic: &str,
        partition: u32,
        offset: u64,
        durable: bool,
    ) -> Result<()> {
        self.check()?;
        let number = self.number(topic, partition)?;
        let reads = &self.topics[self.lanes[number].topic];
        if offset > reads.end(partition)? {
            return Err(reads.out_of_range(partition, offset.into())?);
        }
        if self.home.is_some() {
            let moved = self.move_to(number, offset)?;
            self.commit_moves(&[moved], durable)?;
        } else {
            self.put(number, offset, durable)?;
        }
        if let Some(held) = &mut self.lanes[number].held {
            held.next = Ok(held.next.unwrap_or(offset).max(offset));
        }
        if durable && self.home.is_none() { self.sync() } else { Ok(()) }
    }

    fn put(&mut self, number: usize, offset: u64, durable: bool) -> Result<()> {
        let (topic, partition) = (self.lanes[number].topic, self.lanes[number].partition);
        let (index, incarnation) = (self.lanes[number].entry, self.who.incarnation());
        let topic = self.topics[topic].clone();
        let held = self.held(number)?;
        let (committed, address) = held.finder.find_to_commit(&topic, partition, offset)?;
        // Where nothing is known to be safe, this has to be.
        let synced = durable || held.rewound;
        if synced && topic.log().durable().is_none_or(|durable| durable < address) {
            topic.log().sync_to(address)?;
        }
        let on_medium = topic.log().durable().unwrap_or_default();
        let safe = held.cursor.safe;
        let mut pending = held.pending;
        let safe = cursors::safe_after(safe, &mut pending, (committed, address), on_medium);
        let serial = held.cursor.serial.wrapping_add(1);
        let cursor = StoredCursor { serial, committed, safe, incarnation, ..held.cursor };
        cursors::store(&self.file, index, &cursor)?;
        if let Some(held) = &mut self.lanes[number].held {
            (held.cursor, held.pending, held.rewound) = (cursor, pending, false);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let (file, path) = (&*self.file.file, &self.file.path);
        self.gate.sync(|| file.sync_data()).doing("sync", path)?;
        expect_not_removed(&**self.who.storage(), file, path)
    }

    /// Offset up to which a partition was committed, whoever has it.
    ///
    /// # Errors
    /// `CorruptData`; `InvalidArgument` for a partition that it does not read.
    pub fn committed(&self, topic: &str, partition: u32) -> Result<u64> {
        let lane = &self.lanes[self.number(topic, partition)?];
        let topic = &self.topics[lane.topic];
        if let Some(home) = &self.home {
            let name = cursor_name(&self.group, &topic.settings().generation, partition);
            if let Some(kept) = home.cursor(&name)? {
                return Ok(kept.offset);
            }
            return Ok(self.noted(lane)?.safe.offset);
        }
        if let Some(held) = &lane.held {
            return Ok(held.cursor.committed.offset);
        }
        let cursor = self.noted(lane)?;
        let now = Some(self.who.incarnation());
        cursors::group_error(topic, partition, &cursor, now).map(|told| told.offset)
    }

    /// What the file says of how far a partition was read.
    pub(super) fn noted(&self, lane: &AssignedPartition) -> Result<StoredCursor> {
        let generation = self.topics[lane.topic].settings().generation;
        cursors::load(&self.file, lane.entry, (generation, lane.partition))
    }

    /// How many records are there at or after the committed offset of a partition, whichever member has
    /// it; see [`Topic::count`].
    ///
    /// # Errors
    /// As [`GroupMember::committed`].
    pub fn lag(&self, topic: &str, partition: u32) -> Result<u64> {
        let lane = &self.lanes[self.number(topic, partition)?];
        self.topics[lane.topic].count_in(partition, self.committed(topic, partition)?, None)
    }

    /// What was handed out and is not committed, for who commits it elsewhere: the cursor's name
    /// (`docs/FORMAT.md`, "Cursor names"), the offset, the checksum of the block before it.
    ///
    /// # Errors
    /// As [`GroupMember::commit`].
    pub fn uncommitted(&mut self) -> Result<Vec<(Vec<u8>, u64, u32)>> {
        let mut found = Vec::new();
        for number in 0..self.lanes.len() {
            let (topic, partition) = (self.lanes[number].topic, self.lanes[number].partition);
            let topic = self.topics[topic].clone();
            let name = cursor_name(&self.group, &topic.settings().generation, partition);
            let Some(held) = &mut self.lanes[number].held else { continue };
            if let Some(next) = held.uncommitted() {
                let (CursorPosition { offset, crc, .. }, _) =
                    held.finder.find_to_commit(&topic, partition, next)?;
                found.push((name, offset, crc));
            }
        }
        Ok(found)
    }

    /// Let go of everything. The cursors stay where they were committed.
    ///
    /// # Errors
    /// As [`GroupMember::leave`]; then what is left goes with the process, or when that looks next at the
    /// members of the consumer.
    pub fn close(mut self) -> Result<()> {
        self.leave()
    }

    /// Let go of everything; again, where that failed, of the rest. It commits nothing more then, and
    /// hands out nothing. Nothing happens in a forked child, and once it left.
    ///
    /// # Errors
    /// Those of `pwrite`, where the store is written so; `LockTimeout` there: it is a member still.
    pub fn leave(&mut self) -> Result<()> {
        // In a forked child they are the parent's.
        let Some(row) = self.row.filter(|_| self.who.check().is_ok()) else { return Ok(()) };
        for lane in &mut self.lanes {
            lane.held = None;
            let owner = entry(lane.entry) + at::OWNER;
            if self.file.load(owner) == self.me {
                self.file.replace(owner, self.me, 0, false)?;
            }
        }
        self.file.replace(member(row), self.me, 0, true)?;
        self.row = None;
        self.rouse();
        Ok(())
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        // Where it cannot be said, this process sees that its number is nobody's, and others its end.
        let _ = self.leave();
    }
}

fn expect_home(store: &Store, group: &str, home: Option<&Topic>) -> Result<()> {
    let Some(home) = home.filter(|home| home.store().path() != store.path()) else { return Ok(()) };
    let what = format!(
        "topic {:?}, in whose log the cursors of consumer group {group:?} are to be kept, is in the store {}; \
         take one of the consumer's own store",
        home.name(),
        home.store().path().display()
    );
    Err(Error::InvalidArgument { what })
}

/// See to it that a log keeps so many cursors more, before anything is made.
fn expect_room(home: &Topic, group: &str, wanted: &[Named]) -> Result<()> {
    let names = wanted.iter().map(|part| cursor_name(group, &part.generation, part.partition));
    let names: Vec<_> = names.collect();
    home.log().expect_room_for_cursors(&names)
}

fn reads(topics: &[Topic]) -> u64 {
    let all: Vec<u8> = topics.iter().flat_map(|topic| topic.settings().generation).collect();
    (u64::from(crc32(&all)) << 32) | topics.len() as u64
}

fn expect_topics(store: &Store, group: &str, sorted: &[Topic]) -> Result<()> {
    let what = if sorted.is_empty() {
        format!("consumer group {group:?} has to read at least one topic")
    } else if let Some(twice) = sorted
        .windows(2)
        .find(|pair| pair[0].settings().generation == pair[1].settings().generation)
    {
        format!(
            "consumer group {group:?} is to read topic {:?} twice; name it once",
            twice[0].name()
        )
    } else if let Some(other) = sorted.iter().find(|topic| topic.store().path() != store.path()) {
        format!(
            "topic {:?} is in the store {}, consumer group {group:?} in {}; a consumer reads topics of its \
             own store",
            other.name(),
            other.store().path().display(),
            store.path().display()
        )
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument { what })
}
