//! The reading of a member: a stream for each of its topics, and the records that were delivered.
//!
//! Owns the streams of a [`GroupMember`], which partitions are paused, and when to commit automatically. Nothing here
//! waits for records: [`super::Consumer`] does, and so does the Python package, in its own way. Invariant: the member
//! knows what was delivered before it is asked to commit, to release a partition or to claim one. Streams are made
//! again when the set of partitions changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::claim::Announcement;
use super::group::Delivery;
use super::log_cursors::Move;
use super::offsets::GroupOffset;
use super::{GroupMember, GroupPartition};
use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::topic::{Follow, RecordBatch, RecordRef, ScanRange, Skipped, Start, Topic};

/// Records of one topic in a row, before another one has its turn.
const TURN: u32 = 4096;
/// Longest and shortest sleep of a member that waits for records.
const LONGEST: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(1);

/// The partitions of one topic that a member has.
#[derive(Debug)]
pub struct TopicStream {
    number: usize,
    name: Arc<str>,
    follow: Follow,
}

impl TopicStream {
    /// Get the topic.
    #[inline]
    pub fn topic(&self) -> &Topic {
        self.follow.topic()
    }

    pub(super) fn deliver<T>(&self, found: T) -> Delivery<T> {
        Delivery { topic: Arc::clone(&self.name), found }
    }
}

/// After a look at a topic that found nothing, return why. A deleted topic has nothing more, which is an error unless a
/// pattern found the topic.
#[cold]
fn nothing_in(topic: &Topic, error: Option<Error>, member: &mut GroupMember) -> Result<()> {
    let deleted = || Error::TopicDeleted { name: topic.name().to_owned() };
    match topic.is_deleted().then(deleted).or(error) {
        Some(error) if !member.is_gone(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Moves that transactions committed for a member, from any thread, until the member notes them.
#[derive(Debug, Default)]
pub struct CommittedMoves(Mutex<Vec<(Vec<Move>, Address)>>);

impl CommittedMoves {
    /// Note moves, and where their transaction ends. The lock is held for moments.
    pub fn note(&self, moves: Vec<Move>, end: Address) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((moves, end));
    }

    fn take(&self) -> Vec<(Vec<Move>, Address)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A member of a group with the streams that it reads.
#[derive(Debug)]
pub struct GroupReader {
    member: GroupMember,
    streams: Vec<TopicStream>,
    /// Paused partitions, by generation and number.
    paused: BTreeSet<([u8; 16], u32)>,
    /// The stream whose turn it is, and how many records it has had.
    turn: (usize, u32),
    /// Streams have to be made again before anything is read.
    stale: bool,
    /// It has to ask for more than [`GroupMember::is_stale`] before each record.
    looks: bool,
    announcement: Option<Announcement>,
    automatic: Option<Duration>,
    committed_at: Instant,
    moved: Arc<CommittedMoves>,
}

impl GroupReader {
    /// Read with a member. `automatic` says how often to commit automatically.
    pub fn new(member: GroupMember, automatic: Option<Duration>) -> Self {
        Self {
            member,
            streams: Vec::new(),
            paused: BTreeSet::new(),
            turn: (0, 0),
            stale: true,
            looks: true,
            announcement: None,
            automatic,
            committed_at: Instant::now(),
            moved: Arc::default(),
        }
    }

    /// Get the member. It may not know yet what was delivered.
    #[inline]
    pub fn member(&self) -> &GroupMember {
        &self.member
    }

    /// Get where transactions that other threads commit note its moves.
    pub fn moved(&self) -> &Arc<CommittedMoves> {
        &self.moved
    }

    /// True if the next record can be read at once; otherwise [`GroupReader::prepare`] has work.
    ///
    /// # Errors
    /// As [`GroupMember::check`].
    #[inline]
    pub fn is_ready(&self) -> Result<bool> {
        self.member.check()?;
        let has_work = self.stale || self.member.is_stale() || (self.looks && self.is_due());
        Ok(!has_work)
    }

    fn is_due(&self) -> bool {
        let commits = self.automatic.is_some_and(|every| self.committed_at.elapsed() >= every);
        commits || self.member.due() == Some(Duration::ZERO)
    }

    /// Prepare for the next delivery: commit automatically, claim and release partitions, make streams. False while
    /// there is an [`GroupReader::announcement`], which the caller takes first.
    ///
    /// # Errors
    /// As [`GroupMember::refresh`], [`GroupMember::parts`], [`GroupReader::commit_all`] and
    /// [`Topic::scan`](crate::Topic::scan). After each of them it may be called again.
    #[inline]
    pub fn prepare(&mut self) -> Result<bool> {
        if self.is_ready()? { Ok(true) } else { self.look_after() }
    }

    #[inline(never)]
    fn look_after(&mut self) -> Result<bool> {
        if self.announcement.is_some() {
            return Ok(false);
        }
        let changes = self.member.is_stale() || self.member.due() == Some(Duration::ZERO);
        if changes || self.is_due() {
            self.commit_if_automatic()?;
        }
        if changes {
            match self.tend() {
                // Another process changes the store at this moment; the next call tries again.
                Err(Error::LockTimeout { .. }) => {}
                tended => tended?,
            }
        }
        self.looks = self.automatic.is_some() || self.member.due().is_some();
        self.announcement = self.member.announcement();
        if self.announcement.is_some() {
            self.forget_streams();
            return Ok(false);
        }
        if self.stale {
            self.rebuild()?;
        }
        Ok(true)
    }

    /// True while there is an announcement: nothing is delivered before the caller has taken it.
    pub fn announces(&self) -> bool {
        self.announcement.is_some()
    }

    /// Take the announcement that [`GroupReader::prepare`] found; see [`GroupMember::announcement`].
    pub fn announcement(&mut self) -> Option<Announcement> {
        self.announcement.take()
    }

    /// Claim and release the partitions that are due.
    ///
    /// # Errors
    /// As [`GroupMember::refresh`].
    pub fn tend(&mut self) -> Result<()> {
        self.settle();
        let refreshed = self.member.refresh();
        if !matches!(refreshed, Ok(false)) {
            // The streams count topics as they were before.
            self.drop_streams();
        }
        refreshed.map(drop)
    }

    /// Tell the member what was committed for it, and what was delivered.
    fn settle(&mut self) {
        for (moves, end) in self.moved.take() {
            self.member.moved(&moves, end);
        }
        for stream in &self.streams {
            for range in stream.follow.merge().ranges() {
                let (topic, partition, next) = (stream.number, range.partition, range.from);
                self.member.handed_out(&GroupPartition { topic, partition, next, open: true });
            }
        }
    }

    /// Make the streams again before the next read.
    fn forget_streams(&mut self) {
        self.settle();
        self.drop_streams();
    }

    /// Do the same once the member knows what was delivered.
    fn drop_streams(&mut self) {
        self.streams.clear();
        self.stale = true;
    }

    fn rebuild(&mut self) -> Result<()> {
        self.streams.clear();
        let parts = self.member.parts()?;
        for number in 0..self.member.topics().len() {
            let topic = self.member.topics()[number].clone();
            let generation = topic.settings().generation;
            let is_its = |part: &&GroupPartition| part.topic == number && part.open;
            let mut ranges = Vec::new();
            for &GroupPartition { partition, next: from, .. } in parts.iter().filter(is_its) {
                if !self.paused.contains(&(generation, partition)) {
                    ranges.push(ScanRange { partition, from, end: None });
                }
            }
            if ranges.is_empty() {
                continue;
            }
            match topic.follow_ranges(&ranges) {
                Ok(follow) if !topic.is_deleted() => {
                    let name = topic.name().into();
                    self.streams.push(TopicStream { number, name, follow });
                }
                made => nothing_in(&topic, made.err(), &mut self.member)?,
            }
        }
        self.stale = false;
        Ok(())
    }

    /// Get the next record with its stream, as its batch and its place in it, if there is one now. Call
    /// [`GroupReader::prepare`] first.
    ///
    /// # Errors
    /// As [`Follow::poll_ref`]; `TopicDeleted`.
    #[inline]
    pub fn next_ref(&mut self) -> Result<Option<(&TopicStream, &RecordBatch, RecordRef)>> {
        let (mut at, count) = self.turn;
        if count >= TURN && self.streams.len() > 1 {
            at += 1;
            self.turn.1 = 0;
        }
        for _ in 0..self.streams.len() {
            at = if at < self.streams.len() { at } else { 0 };
            let error = match self.streams[at].follow.advance() {
                Ok(Some((number, place))) => {
                    self.turn = (at, self.turn.1 + 1);
                    let stream = &self.streams[at];
                    let Some(batch) = stream.follow.merge().batch(number) else { break };
                    return Ok(Some((stream, batch, place)));
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            nothing_in(self.streams[at].topic(), error, &mut self.member)?;
            at += 1;
            self.turn.1 = 0;
        }
        Ok(None)
    }

    /// Get at most this many next records of one partition with its stream, if there are some now. Call
    /// [`GroupReader::prepare`] first.
    ///
    /// # Errors
    /// As [`GroupReader::next_ref`].
    pub fn next_batch(&mut self, records: usize) -> Result<Option<(&TopicStream, RecordBatch)>> {
        for _ in 0..self.streams.len() {
            let at = self.turn.0 % self.streams.len();
            self.turn = (at + 1, 0);
            let stream = &mut self.streams[at];
            let found = stream.follow.poll_batch(records);
            if let Ok(Some(batch)) = found {
                return Ok(Some((&self.streams[at], batch)));
            }
            nothing_in(stream.topic(), found.err(), &mut self.member)?;
        }
        Ok(None)
    }

    /// Step over corruption in every partition whose next record is corrupt. Return the topic and
    /// partition of each, and the lost offsets, which count as delivered. Call
    /// [`GroupReader::prepare`] first.
    ///
    /// # Errors
    /// As [`Scan::step_over`](crate::Scan::step_over), when nothing was stepped over.
    pub fn step_over(&mut self) -> Result<Vec<(String, u32, Skipped)>> {
        let mut lost = Vec::new();
        for stream in &mut self.streams {
            let skipped = match stream.follow.merge_mut().step_over() {
                Err(_) if !lost.is_empty() => break, // the next call returns it
                skipped => skipped?,
            };
            let name = stream.topic().name();
            lost.extend(skipped.into_iter().map(|(part, lost)| (name.to_owned(), part, lost)));
        }
        Ok(lost)
    }

    /// Go back to records that a caller could not get. Each is a topic's generation, a partition and an offset; the last
    /// of a partition counts.
    pub fn put_back(&mut self, records: impl IntoIterator<Item = ([u8; 16], u32, u64)>) {
        self.forget_streams();
        for (generation, partition, next) in records {
            let is_its = |topic: &Topic| topic.settings().generation == generation;
            if let Some(topic) = self.member.topics().iter().position(is_its) {
                self.member.handed_out(&GroupPartition { topic, partition, next, open: true });
            }
        }
    }

    /// True if only records that the reader already sees are left, and no more will come. That is
    /// so if all topics are finished, and the group has read the partitions that other members
    /// have, or had.
    pub fn is_over(&self) -> bool {
        let topics = self.member.topics();
        // Another topic may join a pattern later.
        let may_grow = self.member.pattern().is_some() || !self.paused.is_empty();
        if may_grow || !topics.iter().all(Topic::is_finished) {
            return false;
        }
        let is_own = |topic: usize, partition: u32| {
            let mut own = self.streams.iter().filter(|stream| stream.number == topic);
            own.any(|stream| stream.follow.merge().ranges().any(|r| r.partition == partition))
        };
        let is_read = |topic: usize, partition: u32| {
            let of = &topics[topic];
            let committed = self.member.committed(of.name(), partition);
            matches!((committed, of.committed(partition)), (Ok(read), Ok(end)) if read >= end)
        };
        let of = |topic: usize| (0..topics[topic].partitions()).map(move |part| (topic, part));
        let mut all = (0..topics.len()).flat_map(of);
        self.streams.iter().all(|stream| stream.follow.is_over())
            && all.all(|(topic, partition)| is_own(topic, partition) || is_read(topic, partition))
    }

    /// Ask for a wake on the store's bell when there may be something to do. True when there is already.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub fn has_news(&self) -> Result<bool> {
        for (topic, seen) in self.watched() {
            // The next look says that a topic was deleted.
            let log = topic.log();
            if topic.is_deleted() || log.request_notification(topic.visibility(), seen)? {
                return Ok(true);
            }
        }
        Ok(self.member.is_stale())
    }

    /// List the topics that it reads from, and how far the last look saw the log of each.
    pub fn watched(&self) -> impl Iterator<Item = (&Topic, Address)> {
        self.streams.iter().map(|stream| (stream.topic(), stream.follow.seen()))
    }

    /// Commit what was delivered; `durable` as for [`GroupMember::commit`].
    ///
    /// # Errors
    /// As [`GroupMember::commit_all`].
    pub fn commit_all(&mut self, durable: bool) -> Result<()> {
        self.settle();
        self.committed_at = Instant::now();
        self.member.commit_all(durable)
    }

    /// Commit what was delivered if that is automatic: a caller that asks for more is done with what it got.
    ///
    /// # Errors
    /// As [`GroupMember::commit_all`].
    pub fn commit_if_automatic(&mut self) -> Result<()> {
        if self.automatic.is_some() { self.commit_all(false) } else { Ok(()) }
    }

    /// Commit up to an offset. If it is ahead of what was delivered, reading resumes there.
    ///
    /// # Errors
    /// As [`GroupMember::commit`].
    pub fn commit_to(&mut self, part: (&str, u32), offset: u64, durable: bool) -> Result<()> {
        let (topic, partition) = part;
        self.settle();
        let before = self.member.next(topic, partition).ok();
        let done = self.member.commit(topic, partition, offset, durable);
        if self.member.next(topic, partition).ok() != before {
            self.drop_streams();
        }
        done
    }

    /// Do with the member what commits these offsets. Where one is ahead of what was delivered, reading resumes there.
    ///
    /// # Errors
    /// Those of the call.
    pub fn at_offsets<T>(
        &mut self,
        offsets: &[GroupOffset<'_>],
        commit: impl FnOnce(&mut GroupMember) -> Result<T>,
    ) -> Result<T> {
        self.settle();
        let next = |member: &GroupMember| {
            let each = offsets.iter().map(|at| member.next(at.topic, at.partition).ok());
            each.collect::<Vec<_>>()
        };
        let before = next(&self.member);
        let done = commit(&mut self.member);
        if next(&self.member) != before {
            self.drop_streams();
        }
        done
    }

    /// Leave a text beside the offsets of the next commit, as [`GroupMember::set_metadata`].
    ///
    /// # Errors
    /// As [`GroupMember::set_metadata`].
    pub fn set_metadata(&mut self, metadata: &str) -> Result<()> {
        self.member.set_metadata(metadata)
    }

    /// Get the member, which knows what was delivered.
    pub fn settled(&mut self) -> &mut GroupMember {
        self.settle();
        &mut self.member
    }

    /// Resume elsewhere in all chosen partitions, as [`GroupMember::seek_all`].
    ///
    /// # Errors
    /// As [`GroupMember::seek_all`].
    pub fn seek(&mut self, topic: Option<&str>, partition: Option<u32>, to: Start) -> Result<()> {
        self.forget_streams();
        self.member.seek_all(topic, partition, to)
    }

    /// Go back to the committed offsets.
    pub fn rewind(&mut self) {
        self.forget_streams();
        self.member.rewind();
    }

    /// Stop delivering from the chosen partitions, or resume it.
    ///
    /// # Errors
    /// As [`GroupMember::meant`].
    pub fn set_paused(&mut self, meant: (Option<&str>, Option<u32>), paused: bool) -> Result<()> {
        for (topic, partition) in self.member.meant(meant.0, meant.1)? {
            let part = (self.member.topics()[topic].settings().generation, partition);
            self.paused.remove(&part);
            self.paused.extend(paused.then_some(part));
        }
        self.forget_streams();
        Ok(())
    }

    /// Get the last announcement, while nothing is released yet.
    pub fn farewell(&mut self) -> Option<Announcement> {
        self.announcement = None;
        self.settled().farewell()
    }

    /// Release everything, as [`GroupMember::leave`].
    ///
    /// # Errors
    /// As [`GroupMember::leave`].
    pub fn leave(&mut self) -> Result<()> {
        self.member.leave()
    }
}

/// One wait for records: how long to sleep between two looks, and when to stop.
#[derive(Debug)]
pub struct Waiting {
    timeout: Option<Duration>,
    since: Option<Instant>,
    is_over: bool,
    idle_turns: u32,
}

impl Waiting {
    /// Begin at the first look that finds nothing; wait without a limit if there is no timeout.
    pub fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, since: None, is_over: false, idle_turns: 0 }
    }

    /// After a look that found nothing, return how long to sleep at most before the next one, and how many sleeps there
    /// were. `None` when the time is over, or nothing can come any more.
    pub fn sleep(&mut self, reader: &GroupReader) -> Option<(Duration, u32)> {
        // The last records may have come since that look: look once more.
        let was_over = std::mem::replace(&mut self.is_over, reader.is_over());
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let left = self.timeout.map(|timeout| timeout.saturating_sub(waited));
        if self.is_over {
            return (!was_over).then_some((Duration::ZERO, 0));
        }
        if left == Some(Duration::ZERO) {
            return None;
        }
        let due = reader.member.due().unwrap_or(LONGEST).clamp(SHORTEST, LONGEST);
        let idle_turns = self.idle_turns;
        self.idle_turns = idle_turns.saturating_add(1);
        Some((left.map_or(due, |left| left.min(due)), idle_turns))
    }
}
