//! A member of a consumer group: what it reads, what it has, what it commits.
//!
//! Owns what is committed, and how. A member commits only in partitions that it has claimed
//! ([`super::claim`]). A member that is dropped releases everything; its cursors stay.

use std::sync::Arc;
use std::time::Instant;

use super::assignment::Sharing;
use super::cursors::{self, PendingPosition};
use super::file::{Attached, ConsumerFile, attach, find};
use super::log_cursors;
use super::members::{self, Who};
use super::overview;
use super::position::Finder;
use super::subscription::Subscription;
use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::format::address::Address;
use crate::format::consumer::{
    CommitMetadata, CursorPosition, Named, StoredCursor, at, cursor_name, entry, member,
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
    /// Index of its topic among those that the group was opened with.
    pub topic: usize,
    /// Number of the partition in its topic.
    pub partition: u32,
    /// Offset of the record to deliver next.
    pub next: u64,
    /// False while the member is about to release it and delivers nothing more from it.
    pub open: bool,
}

#[derive(Debug)]
pub(super) struct AssignedPartition {
    pub(super) topic: usize,
    pub(super) partition: u32,
    pub(super) entry: u64,
    /// To be released once it is settled.
    pub(super) closing: bool,
    /// Its topic was deleted, and the member reads what matches a pattern: it is to leave.
    pub(super) gone: bool,
    /// The last announcement of it, where the caller wants some.
    pub(super) announced: Announced,
    /// How many partitions this member had claimed before it.
    pub(super) taken: u64,
    /// `None` while this member does not own it, or could not read its cursor since it was claimed.
    pub(super) held: Option<Held>,
}

#[derive(Debug)]
pub(super) struct Held {
    /// The committed cursor; where a log keeps it, a note of that log's state.
    pub(super) cursor: StoredCursor,
    /// The state of the cursor in the log that keeps it.
    pub(super) kept: CursorState,
    /// The offset after the last delivered record; an error where the log does not know the committed
    /// offset.
    pub(super) next: std::result::Result<u64, ()>,
    /// The log does not know the committed offset, so the next commit is a change in any case.
    pub(super) rewound: bool,
    pub(super) pending: PendingPosition,
    pub(super) finder: Finder,
}

impl Held {
    /// Get the offset to commit, where that is not the committed one.
    pub(super) fn uncommitted(&self) -> Option<u64> {
        let committed = self.cursor.committed.offset;
        self.next.ok().filter(|next| self.rewound || *next != committed)
    }

    /// Get the offset to commit with this metadata: also the committed one, if it has another.
    pub(super) fn to_commit(&self, metadata: &CommitMetadata) -> Option<u64> {
        let is_new = *metadata != CommitMetadata::NONE && *metadata != self.cursor.metadata;
        self.uncommitted().or_else(|| self.next.ok().filter(|_| is_new))
    }

    pub(super) fn is_settled(&self) -> bool {
        self.uncommitted().is_none()
    }
}

/// The last announcement of a partition to the caller; see [`GroupMember::announcement`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Announced {
    #[default]
    Nothing,
    Assigned,
    Revoked,
}

/// A member of a consumer group.
#[derive(Debug)]
pub struct GroupMember {
    pub(super) group: String,
    pub(super) who: Arc<Membership>,
    pub(super) me: u64,
    /// Tells this process that the member exists.
    _number: Numbered,
    /// `None` once it left.
    pub(super) row: Option<u64>,
    pub(super) file: ConsumerFile,
    gate: Arc<SyncCoalescer>,
    pub(super) topics: Vec<Topic>,
    pub(super) subscription: Subscription,
    pub(super) lanes: Vec<AssignedPartition>,
    /// A topic of the log that keeps the cursors, if the file does not.
    pub(super) home: Option<Topic>,
    /// End of the append that must be on disk before anything is delivered.
    pub(super) unsynced: Option<Address>,
    /// The counter of changes when the rows were last read.
    pub(super) seen: Option<u64>,
    pub(super) others: usize,
    /// When it last checked whether the others live.
    pub(super) asked: Option<Instant>,
    pub(super) sharing: Sharing,
    /// How many partitions it ever claimed.
    pub(super) takes: u64,
    /// It has other partitions than [`GroupMember::refresh`] last reported.
    pub(super) changed: bool,
    /// It releases a partition only once that was announced.
    pub(super) announces: bool,
    /// The text that the next commit leaves beside the offsets.
    pub(super) metadata: CommitMetadata,
}

impl GroupMember {
    /// Join a consumer group, creating it where there is none, and claim the partitions that no member
    /// has.
    ///
    /// Where the group has no cursor in a partition, this makes one at `start`. It is on disk on
    /// return, so `start` counts once and not with each opening. A topic that was deleted and created
    /// again is another topic, in which the group has no cursor. The topics' visibility says how far
    /// they are read, and what the end is.
    ///
    /// # Errors
    /// `InvalidName`; `NotWritable`; `OffsetOutOfRange` for a `start` that is none. `InvalidArgument`
    /// for no topic, one named twice, one of another store, or other topics than those of a living
    /// member. `LockTimeout`, `CorruptData`, `UnsupportedVersion`, `NoSpace`, `SystemCallFailed`.
    /// [`GroupMember::refresh`] reports a cursor that its log does not know any more.
    pub fn open(store: &Store, group: &str, topics: &[Topic], start: Start) -> Result<Self> {
        Self::open_in(store, group, topics, start, None)
    }

    /// Join a group as [`GroupMember::open`] does, with the cursors kept in the log of a topic of the
    /// store, if there is one. So they can move with what is appended there ([`GroupMember::moves`]). A group's choice
    /// of where to keep them is permanent. That log notes each claim of a partition.
    ///
    /// # Errors
    /// As [`GroupMember::open`] and [`Topic::append`]. `InvalidArgument` for a topic of another store,
    /// for a group whose cursors are kept elsewhere, and for more cursors than the log keeps.
    pub fn open_in<'a>(
        store: &Store,
        group: &str,
        topics: &[Topic],
        start: Start,
        home: impl Into<Option<&'a Topic>>,
    ) -> Result<Self> {
        Self::join(store, group, Subscription::Topics, topics.to_vec(), start, home.into())
    }

    pub(super) fn join(
        store: &Store,
        group: &str,
        subscription: Subscription,
        mut topics: Vec<Topic>,
        start: Start,
        home: Option<&Topic>,
    ) -> Result<Self> {
        store.layout().consumer(group)?;
        expect_home(store, group, home)?;
        overview::finish_deletion(store, group)?;
        topics.sort_by_key(|topic| topic.settings().generation);
        if matches!(subscription, Subscription::Topics) {
            expect_topics(store, group, &topics)?;
        }
        let who = store.membership()?;
        let number = who.number();
        let me = Who { process: who.identity(), handle: number.number }.word();
        let (mut lanes, wanted) = (lanes_of(&topics), wanted_of(&topics));
        let begin = begin(&topics, &lanes, start);
        let (file, places, row) = store.under_claim(|| {
            if let Some(home) = home {
                expect_room(home, group, &wanted)?;
            }
            let found = find(store, group, home)?;
            let reads = subscription.checksum(&topics);
            let room = members::room(&found.image, &who, (group, reads))?;
            let Attached { file, places, gone } = attach(store, (&who, me), found, &wanted, begin)?;
            if let Some(home) = home.filter(|_| !gone.is_empty()) {
                log_cursors::forget(home, group, Some(&gone))?;
            }
            let row = members::join(&file, me, room, (reads, &places))?;
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
            subscription,
            lanes,
            home: home.cloned(),
            unsynced: None,
            seen: None,
            others: 0,
            asked: None,
            sharing: Sharing::default(),
            takes: 0,
            changed: false,
            announces: false,
            metadata: CommitMetadata::NONE,
        };
        opened.rouse();
        opened.refresh()?;
        Ok(opened)
    }

    /// Get the name of its group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Get the topics that it reads, in the order that [`GroupPartition::topic`] counts.
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// Make sure that this is still the process that opened it, and that it did not leave. One load.
    ///
    /// # Errors
    /// `HandleClosed` in a forked child, which opens the group again, and after the member left.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.row().map(drop)
    }

    #[inline]
    pub(super) fn row(&self) -> Result<u64> {
        self.who.check()?;
        self.row.ok_or(Error::HandleClosed { what: "consumer" })
    }

    /// Get the partitions that this member has.
    ///
    /// # Errors
    /// `LogTruncated` when the log of one does not know its cursor any more: [`GroupMember::seek`] says
    /// where to resume.
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
            let is_it = lane.partition == partition && self.topics[lane.topic].name() == topic;
            is_it && !lane.gone
        });
        found.ok_or_else(|| Error::InvalidArgument {
            what: format!(
                "consumer group {:?} does not read partition {partition} of topic {topic:?}",
                self.group
            ),
        })
    }

    /// True for a partition of a deleted topic that a pattern found: it is about to leave the member.
    pub(super) fn is_left(&self, number: usize) -> bool {
        let lane = &self.lanes[number];
        lane.gone || (self.pattern().is_some() && self.topics[lane.topic].is_deleted())
    }

    /// Get this member's state of a partition; the file is asked each time whether it still owns it.
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
            holder: holder.unwrap_or_else(|| "no member, at this moment,".into()),
        }
    }

    /// Get the offset of the next record to deliver from a partition.
    ///
    /// # Errors
    /// `PartitionNotAssigned`; `LogTruncated`; `InvalidArgument` for a partition that it does not read.
    pub fn next(&self, topic: &str, partition: u32) -> Result<u64> {
        let number = self.number(topic, partition)?;
        let lane = &self.lanes[number];
        let held = lane.held.as_ref().ok_or_else(|| self.not_owner(number))?;
        held.next.or_else(|()| Err(self.rewound(lane, held)?))
    }

    /// Note that all records before an offset were delivered.
    pub fn handed_out(&mut self, part: &GroupPartition) {
        let lane = self
            .lanes
            .iter_mut()
            .find(|lane| (lane.topic, lane.partition) == (part.topic, part.partition));
        if let Some(held) = lane.filter(|lane| !lane.gone).and_then(|lane| lane.held.as_mut()) {
            held.next = held.next.map(|_| part.next);
        }
    }

    /// Get the chosen partitions, whichever member has them: of all topics or one, all or one.
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

    /// Get the partitions that this member has, whatever it knows of their cursors.
    pub fn held_parts(&self) -> Vec<(usize, u32)> {
        let held = self.lanes.iter().filter(|lane| lane.held.is_some());
        held.map(|lane| (lane.topic, lane.partition)).collect()
    }

    /// Commit the records delivered from all partitions; `durable` as for [`GroupMember::commit`].
    ///
    /// # Errors
    /// As [`GroupMember::commit`]; offsets that were committed before the error stay.
    pub fn commit_all(&mut self, durable: bool) -> Result<()> {
        self.check()?;
        if self.home.is_some() {
            let moves = self.moves()?;
            return self.commit_moves(&moves, durable);
        }
        for number in 0..self.lanes.len() {
            let Some(held) = &self.lanes[number].held else { continue };
            if self.is_left(number) {
                continue;
            }
            // A durable commit stores an unchanged offset again: it may not be on disk.
            let again = held.next.ok().filter(|_| durable);
            if let Some(next) = held.to_commit(&self.metadata).or(again) {
                self.put(number, next, durable)?;
            }
        }
        self.metadata = CommitMetadata::NONE;
        if durable { self.sync() } else { Ok(()) }
    }

    /// Commit that the records before an offset are done. Every process sees it when this returns, and
    /// it survives the death of any process. After a power failure the cursor may be lower, but is
    /// never ahead of the log. With `durable` it is where it was when this returned: first the records
    /// before it are synced, then it. An offset that a trim or a limit has passed meanwhile is
    /// committed as well; the next read raises `OffsetOutOfRange`.
    ///
    /// # Errors
    /// `PartitionNotAssigned`, `OffsetOutOfRange` beyond the end, `InvalidArgument` for a partition
    /// that it does not read, `HandleClosed` in a forked child: nothing was committed. `SyncFailed`,
    /// `LockTimeout`, `SystemCallFailed`: it may be committed.
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
        self.metadata = CommitMetadata::NONE;
        if let Some(held) = &mut self.lanes[number].held {
            held.next = Ok(held.next.unwrap_or(offset).max(offset));
        }
        if durable && self.home.is_none() { self.sync() } else { Ok(()) }
    }

    pub(super) fn put(&mut self, number: usize, offset: u64, durable: bool) -> Result<()> {
        let (topic, partition) = (self.lanes[number].topic, self.lanes[number].partition);
        let (index, incarnation) = (self.lanes[number].entry, self.who.incarnation());
        let (topic, metadata) = (self.topics[topic].clone(), self.metadata);
        let held = self.held(number)?;
        let (committed, address) = held.finder.find_to_commit(&topic, partition, offset)?;
        // Where no position is known to be safe, this one must be.
        let synced = durable || held.rewound;
        if synced && topic.log().durable().is_none_or(|durable| durable < address) {
            topic.log().sync_to(address)?;
        }
        let on_medium = topic.log().durable().unwrap_or_default();
        let safe = held.cursor.safe;
        let mut pending = held.pending;
        let safe = cursors::safe_after(safe, &mut pending, (committed, address), on_medium);
        let serial = held.cursor.serial.wrapping_add(1);
        let early = StoredCursor { serial, metadata, ..held.cursor };
        let cursor = StoredCursor { committed, safe, incarnation, ..early };
        if planted(Canary::MetadataBeforeOffset) {
            cursors::store(&self.file, index, &early)?;
        }
        cursors::store(&self.file, index, &cursor)?;
        if let Some(held) = &mut self.lanes[number].held {
            (held.cursor, held.pending, held.rewound) = (cursor, pending, false);
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        let (file, path) = (&*self.file.file, &self.file.path);
        self.gate.sync(|| file.sync_data()).doing("sync", path)?;
        expect_not_removed(&**self.who.storage(), file, path)
    }

    /// Get the committed offset of a partition, whichever member has it.
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

    /// Load the cursor of a partition from the file.
    pub(super) fn noted(&self, lane: &AssignedPartition) -> Result<StoredCursor> {
        let generation = self.topics[lane.topic].settings().generation;
        cursors::load(&self.file, lane.entry, (generation, lane.partition))
    }

    /// Count the records at or after the committed offset of a partition, whichever member has it; see
    /// [`Topic::count`].
    ///
    /// # Errors
    /// As [`GroupMember::committed`].
    pub fn lag(&self, topic: &str, partition: u32) -> Result<u64> {
        let lane = &self.lanes[self.number(topic, partition)?];
        self.topics[lane.topic].count_in(partition, self.committed(topic, partition)?, None)
    }

    /// Get what was delivered and is not committed, for a caller that commits it elsewhere. Each item
    /// is the cursor's name (`docs/FORMAT.md`, "Cursor names"), the offset, and the checksum of the
    /// block before it.
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

    /// Leave the group, releasing everything. The committed offsets stay.
    ///
    /// # Errors
    /// As [`GroupMember::leave`]. The rest is then released when the process ends, or when it next
    /// looks at the group's members.
    pub fn close(mut self) -> Result<()> {
        self.leave()
    }

    /// Release everything; after an error, call it again for the rest. It then commits and delivers
    /// nothing more. In a forked child, and once it left, it does nothing.
    ///
    /// # Errors
    /// Those of `pwrite`, in a store that is written by `pwrite`; `LockTimeout` there: it is a member
    /// still.
    pub fn leave(&mut self) -> Result<()> {
        // In a forked child the partitions are the parent's.
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
        // After an error, this process finds that its handle's number is unused, and others find that
        // it ended.
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

/// Check, before anything is made, that a log can keep so many more cursors.
pub(super) fn expect_room(home: &Topic, group: &str, wanted: &[Named]) -> Result<()> {
    let names = wanted.iter().map(|part| cursor_name(group, &part.generation, part.partition));
    let names: Vec<_> = names.collect();
    home.log().expect_room_for_cursors(&names)
}

/// The partitions of topics, in order.
fn parts_of(topics: &[Topic]) -> impl Iterator<Item = (usize, &Topic, u32)> {
    let numbered = topics.iter().enumerate();
    numbered.flat_map(|(number, topic)| {
        (0..topic.partitions()).map(move |partition| (number, topic, partition))
    })
}

pub(super) fn wanted_of(topics: &[Topic]) -> Vec<Named> {
    let named = |(_, topic, partition): (usize, &Topic, u32)| {
        let (generation, topic) = (topic.settings().generation, topic.name().to_owned());
        Named { generation, partition, topic }
    };
    parts_of(topics).map(named).collect()
}

pub(super) fn lanes_of(topics: &[Topic]) -> Vec<AssignedPartition> {
    let lane = |(topic, _, partition)| AssignedPartition {
        topic,
        partition,
        entry: 0,
        closing: false,
        gone: false,
        announced: Announced::Nothing,
        taken: 0,
        held: None,
    };
    parts_of(topics).map(lane).collect()
}

/// Where a group begins in a partition that it never read.
pub(super) fn begin<'a>(
    topics: &'a [Topic],
    lanes: &'a [AssignedPartition],
    start: Start,
) -> impl Fn(usize) -> Result<CursorPosition> + use<'a> {
    move |number| {
        let (topic, partition) = (&topics[lanes[number].topic], lanes[number].partition);
        let offset = start.offset(topic, partition)?;
        Ok(Finder::default().find(topic, partition, offset)?.0)
    }
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
