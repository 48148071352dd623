//! Trimming: recording which records are deleted, and removing segments without live records.
//!
//! Owns the two steps of retention and their order. First a meta block raises the lowest offsets of
//! topics, committed under the append lock like any block, and is made durable, a mark included.
//! Only then files are removed. These are whole segments past which every topic of the log was
//! trimmed, lowest first, with a sync of the directory after each. So after any crash, a process
//! that finds the oldest segments gone also finds the trim, and the remaining files never have a
//! gap. The next removal finds and does what a crash left undone. The append lock is not held while
//! files are removed; mapped segments stay readable. [`super::trimmed`] has how readers learn of
//! it. See `docs/PROTOCOL.md`, "Retention".

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

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Segments.
    pub segments: u64,
    /// Bytes of them and their indexes on disk.
    pub bytes: u64,
}

/// The segments that can be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removable {
    /// Sequences of the segments, lowest first.
    pub sequences: Vec<u64>,
    /// Bytes of them and their indexes on disk.
    pub bytes: u64,
}

impl Log {
    /// Raise the lowest offsets of topics, and remove the segments without live records. On disk
    /// when it returns. An offset that is no higher than an earlier trim changes nothing.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset beyond a topic's end, `InvalidArgument` for a topic that
    /// the log does not know: nothing changed. Otherwise as [`Log::append`] and [`Log::sync_to`];
    /// the next call finishes a removal that failed.
    pub fn trim(&self, firsts: &[(u32, u64)]) -> Result<Removed> {
        self.say_trimmed(firsts)?;
        self.remove_trimmed()
    }

    /// Do the first half of [`Log::trim`]: the records are gone for all processes, durably, and no
    /// file was removed.
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

    /// Remove the segments past which every topic was trimmed: the second half of a trim, to finish
    /// one that was interrupted.
    ///
    /// # Errors
    /// As [`Log::sync_to`]; `SystemCallFailed`, `CorruptData`.
    pub fn remove_trimmed(&self) -> Result<Removed> {
        self.remove_some(usize::MAX)
    }

    /// Do as [`Log::remove_trimmed`], but remove at most this many segments of the log. For a
    /// caller with other work, which calls again while that many were removed.
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
        // The last kept segment has the durable end, so those before it have none of the end.
        match next.filter(|next| *next <= control.durable().sequence()) {
            Some(next) => {
                // A compaction that renames segments meanwhile makes this wait, or waits.
                let lock = self.lock_names(member)?;
                let removed = self.remove_before(control, next, &of_log);
                let _ = lock.unlock();
                removed
            }
            None => Ok(Removed::default()),
        }
    }

    /// List the segments that could be removed if topics were trimmed to these offsets, in addition
    /// to earlier trims; nothing is changed.
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

    /// Return the bytes of a segment and its index on disk.
    pub(crate) fn allocated_for(&self, sequence: u64) -> u64 {
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
                return Err(Error::invalid(format!("no topic of {dir} has the number {number}")));
            };
            if *to > topic.next {
                let (name, partition) = (self.name(), *number);
                let (offset, first, end) = (i128::from(*to), topic.first, topic.next);
                return Err(Error::OffsetOutOfRange { topic: name, partition, offset, first, end });
            }
        }
        Ok(())
    }

    /// Record it in a block that is committed when this returns, and not yet durable.
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

    /// Remove all segments below one of the log. First those that the log does not reach, since
    /// others hold their content. Left alone after the removal of their predecessor, they would
    /// look like the log. Then the log's, lowest first. The directory is synced after each: with
    /// two unsynced removals, a power failure could keep the lower file and leave a gap. It is
    /// synced before the first, too: another process may have removed some without a sync.
    fn remove_before(&self, control: &Control, until: u64, of_log: &[u64]) -> Result<Removed> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        let names = storage.list(dir).doing("list", dir)?;
        let mut removed = Removed::default();
        let before = segments_of(&names).into_iter().filter(|sequence| *sequence < until);
        let (whole, strays): (Vec<_>, Vec<_>) =
            before.partition(|sequence| of_log.binary_search(sequence).is_ok());
        storage.sync_dir(dir).doing("sync", dir)?;
        for sequence in strays.into_iter().chain(whole) {
            // Removed by path: if another log is there, as after a restore of an older copy, it is
            // not ours.
            control.check_in_place(storage).map_err(|error| self.unless_deleted(error))?;
            let path = dir.join(names::segment(sequence));
            let bytes = self.allocated_for(sequence);
            // If it is gone, another process is removing too.
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

    /// Remove the indexes of removed segments, including those that a dead process left.
    fn remove_indexes(&self) -> Result<()> {
        let (storage, dir) = (&*self.storage, &*self.dir);
        let names = storage.list(dir).doing("list", dir)?;
        let Some(oldest) = segments_of(&names).first().copied() else { return Ok(()) };
        for name in &names {
            if names::parse_index(name).is_some_and(|sequence| sequence < oldest) {
                // It is never read: the next removal tries again after a failure.
                let _ = storage.unlink(&dir.join(name));
            }
        }
        Ok(())
    }
}

/// Return how far readers have to look for trims, and for created, finished and deleted topics. The log
/// continues in this segment at `tail` with this state. The word rises with each segment: readers
/// compare it with the one that they saw.
pub fn trims_before(tail: Address, state: &LogState, segment: &Segment) -> Address {
    let begun = segment.opening();
    let position = begun.as_ref().map_or(0, |begun| begun.position);
    let same = begun.is_ok_and(|begun| {
        let told = |state: &LogState, number| {
            state.topic(number).map(|topic| (topic.first, topic.finished))
        };
        let numbers = 0..state.next_number().max(begun.state.next_number());
        numbers.into_iter().all(|number| told(&begun.state, number) == told(state, number))
    });
    if same { Address::new(segment.sequence(), position) } else { tail }
}
