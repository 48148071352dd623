//! Trimming: saying what is no longer there, and removing the segments of which nothing is.
//!
//! Owns the two steps of retention and their order. First a meta block raises the lowest offsets of
//! topics, committed under the append lock like any block, and is made durable, a mark included; only
//! then files go: whole segments which every topic of the log was trimmed past, lowest first, the
//! directory synced after each. So whoever finds that the oldest segments are gone also finds who said
//! so, after any crash, and the files that are left never have a gap. What a crash leaves undone is
//! found and done by the next who removes. The append lock is not held while files go; what readers
//! have mapped stays. How readers learn of it is told in [`super::trimmed`]. See `docs/PROTOCOL.md`,
//! "Retention".

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::names;
use crate::format::state::{LogState, encode_trims};
use crate::segment::Segment;

use super::chain::segments_of;
use super::metadata::FACTS_OF_A_BLOCK;
use super::{Control, Log, Member, enter};

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Segments.
    pub segments: u64,
    /// Bytes that they and their indexes took on the disk.
    pub bytes: u64,
}

/// What can be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removable {
    /// Sequences of the segments, lowest first.
    pub sequences: Vec<u64>,
    /// Bytes that they and their indexes take on the disk.
    pub bytes: u64,
}

impl Log {
    /// Raise the lowest offsets of topics, and remove the segments of which nothing is left then. On
    /// the medium when it returns. An offset that is no higher than what was said before changes
    /// nothing.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset beyond a topic's end, `InvalidArgument` for a topic that the log does
    /// not know: nothing changed. Else as [`Log::append`] and [`Log::sync_to`]; a removal that fails
    /// is done by the next one.
    pub fn trim(&self, firsts: &[(u32, u64)]) -> Result<Removed> {
        self.say_trimmed(firsts)?;
        self.remove_trimmed()
    }

    /// The first half of [`Log::trim`]: what is gone is gone for everybody, durably, and no file was
    /// removed.
    ///
    /// # Errors
    /// As [`Log::trim`].
    pub fn say_trimmed(&self, firsts: &[(u32, u64)]) -> Result<()> {
        let (control, member) = self.writing()?;
        member.check()?;
        self.check_trim(control, firsts)?;
        for part in firsts.chunks(FACTS_OF_A_BLOCK) {
            let noted = self.note_trim(control, member, part);
            noted.map_err(|error| self.unless_deleted(error))?;
        }
        if !planted(Canary::UnlinkBeforeTrim) {
            self.sync()?;
        }
        Ok(())
    }

    /// Remove the segments which every topic was trimmed past: what a trim does in the end, for who
    /// comes after one that could not.
    ///
    /// # Errors
    /// As [`Log::sync_to`]; `SystemCallFailed`, `CorruptData`.
    pub fn remove_trimmed(&self) -> Result<Removed> {
        self.remove_some(usize::MAX)
    }

    /// As [`Log::remove_trimmed`], but at most so many segments of the log: for who has other things to
    /// do as well, and comes again as long as that many went.
    ///
    /// # Errors
    /// As [`Log::remove_trimmed`].
    pub fn remove_some(&self, most: usize) -> Result<Removed> {
        let (control, member) = self.writing()?;
        member.check()?;
        if control.is_deleted() {
            return Ok(Removed::default());
        }
        let mut removable = self.removable(&[])?;
        removable.sequences.truncate(most);
        let Some(last) = removable.sequences.last() else {
            self.remove_indexes()?;
            return Ok(Removed::default());
        };
        if !planted(Canary::UnlinkBeforeTrim) {
            self.sync()?;
            self.mark_durable(control, member)?;
        }
        pass(Point::TrimDurable);
        let of_log = self.chain.sequences()?;
        let next = of_log.iter().copied().find(|sequence| sequence > last);
        // It holds what is durable, so that those before it hold none of the end.
        match next.filter(|next| *next <= control.durable().sequence()) {
            Some(next) => {
                // Who compacts gives segments names meanwhile, or waits.
                let lock = self.lock_names(member)?;
                let removed = self.remove_before(control, next, &of_log);
                let _ = lock.unlock();
                removed
            }
            None => Ok(Removed::default()),
        }
    }

    /// Which segments could be removed if topics were trimmed to these offsets, beside what was
    /// trimmed already; nothing is changed.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub fn removable(&self, firsts: &[(u32, u64)]) -> Result<Removable> {
        self.with_segments(|list| {
            let asked =
                |number| firsts.iter().filter(move |(n, _)| *n == number).map(|(_, to)| *to);
            let active = list.sequences().len() - 1;
            let topics = list.opening(active)?.state.topics();
            let firsts: Vec<(u32, u64)> = topics
                .map(|(n, topic)| {
                    let first = topic.first.max(self.trimmed(n));
                    (n, asked(n).fold(first, u64::max))
                })
                .collect();
            let mut removable = Removable::default();
            for i in 0..active {
                let bases = &list.opening(i + 1)?.bases;
                let is_past =
                    |(n, first): &(u32, u64)| bases.get(*n).is_none_or(|base| base <= *first);
                if !firsts.iter().all(is_past) {
                    break;
                }
                removable.sequences.push(list.sequences()[i]);
                removable.bytes += list.bytes(i);
            }
            Ok(removable)
        })
    }

    /// Bytes that a segment and its index take on the disk.
    pub(super) fn allocated_for(&self, sequence: u64) -> u64 {
        let paths = [names::segment(sequence), names::index(sequence)];
        let allocated =
            |name: &String| self.storage.stat(&self.dir.join(name)).map_or(0, |s| s.allocated);
        paths.iter().map(allocated).sum()
    }

    fn check_trim(&self, control: &Control, firsts: &[(u32, u64)]) -> Result<()> {
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        writer.catch_up(self, control)?;
        for (number, to) in firsts {
            let Some(topic) = writer.walk.state.topic(*number) else {
                let dir = self.dir.display();
                let what = format!("no topic of {dir} has the number {number}");
                return Err(Error::InvalidArgument { what });
            };
            if *to > topic.next {
                let (name, partition) = (self.name(), *number);
                let (offset, first, end) = (i128::from(*to), topic.first, topic.next);
                return Err(Error::OffsetOutOfRange { topic: name, partition, offset, first, end });
            }
        }
        Ok(())
    }

    /// Say it, in a block that is committed when this returns, and not yet durable.
    fn note_trim(
        &self,
        control: &Control,
        member: &dyn Member,
        firsts: &[(u32, u64)],
    ) -> Result<()> {
        self.append_metadata(control, member, |known| {
            let raises = |(n, to): &&(u32, u64)| known.topic(*n).is_some_and(|t| t.first < *to);
            encode_trims(firsts.iter().filter(raises).copied())
        })
    }

    /// Remove all segments below one of the log. First those that the log does not reach, for what they
    /// hold stands in others: were they left when what both continue is gone, they would look like the
    /// log. Then the log's, lowest first. After each the directory is synced: were two removals on
    /// their way at once, a power cut could keep the lower file and leave a gap. Before the first, too:
    /// somebody else may have removed such ones, of whom nobody knows whether he synced it.
    fn remove_before(&self, control: &Control, until: u64, of_log: &[u64]) -> Result<Removed> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        let names = storage.list(dir).doing("list", dir)?;
        let mut removed = Removed::default();
        let before = segments_of(&names).into_iter().filter(|sequence| *sequence < until);
        let (whole, strays): (Vec<_>, Vec<_>) =
            before.partition(|sequence| of_log.binary_search(sequence).is_ok());
        storage.sync_dir(dir).doing("sync", dir)?;
        for sequence in strays.into_iter().chain(whole) {
            // By path: where another log was put, as when an older copy was restored, it is not ours.
            control.check_in_place(storage).map_err(|error| self.unless_deleted(error))?;
            let path = dir.join(names::segment(sequence));
            let bytes = self.allocated_for(sequence);
            // Where it is not there, somebody else is at it.
            if storage.unlink(&path).if_there("remove", &path)?.is_some() {
                removed.segments += 1;
                removed.bytes += bytes;
            }
            pass(Point::TrimUnlinked);
            storage.sync_dir(dir).doing("sync", dir)?;
            pass(Point::TrimSegment);
        }
        self.remove_indexes()?;
        self.chain.refresh()?;
        Ok(removed)
    }

    /// Remove the indexes of segments that are gone, also those that somebody left who died.
    fn remove_indexes(&self) -> Result<()> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        let names = storage.list(dir).doing("list", dir)?;
        let Some(oldest) = segments_of(&names).first().copied() else { return Ok(()) };
        for name in &names {
            if names::parse_index(name).is_some_and(|sequence| sequence < oldest) {
                // It is never read: what fails here is done by the next one.
                let _ = storage.unlink(&dir.join(name));
            }
        }
        Ok(())
    }
}

/// Up to where readers have to look for trims, and for topics that came or went, in a segment that the
/// log goes on in at `tail`, knowing this.
pub fn trims_before(tail: Address, state: &LogState, segment: &Segment) -> Address {
    let begun = segment.opening();
    let same = begun.is_ok_and(|begun| {
        let first = |number| begun.state.topic(number).map(|topic| topic.first);
        let numbers = 0..state.next_number().max(begun.state.next_number());
        numbers.into_iter().all(|n| first(n) == state.topic(n).map(|topic| topic.first))
    });
    if same { Address(0) } else { tail }
}
