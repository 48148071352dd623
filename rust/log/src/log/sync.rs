//! Durable: what is on the medium, for all processes at once.
//!
//! Whoever holds the sync lock syncs every segment that is not wholly on the medium, in order, and
//! says how far that reached: one `fdatasync` serves all who wait. A failure latches the log. It is
//! never tried again on the same bytes, because the kernel forgets: after a failed sync the next one
//! succeeds and the pages are gone. See `docs/PROTOCOL.md`, "Sync" and "Failed sync".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::block::Kind;
use crate::format::control::{at, flag};
use crate::format::segment::Mark;
use crate::format::{FIRST_BLOCK, PAGE};
use crate::lock::stopwatch;
use crate::segment::Segment;
use crate::segment::named::expect_not_removed;

use super::guard::{Guard, Which};
use super::{Control, Log, Member, enter, write_access};

/// How long a process waits for what others sync before it stands in line for the lock, and asks
/// whether its owner lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// How far a mark may lag behind what was synced, bytes. Whatever is shorter lies in the page that was
/// written last, or in the one before it.
const MARK_LAG: u64 = PAGE;

/// From so many bytes to sync on, giving up their pages costs less than what it saves.
const MANY: u64 = 64 << 10;

/// Descriptors kept from before the bytes were written that they are to sync: an error that the
/// kernel met in between is told to them.
#[derive(Debug, Default)]
pub struct Files {
    by_sequence: BTreeMap<u64, (Arc<Segment>, Address)>,
    /// How far this process's last sync came, while no mark on the medium says so.
    unmarked: Option<Address>,
}

impl Files {
    /// Keep the descriptor of a segment; `tail` is the log's end as it was opened.
    pub fn note_open(&mut self, segment: &Arc<Segment>, tail: Address) {
        let known = self.by_sequence.entry(segment.sequence());
        known.or_insert_with(|| (Arc::clone(segment), tail));
    }

    fn forget_before(&mut self, sequence: u64) {
        self.by_sequence = self.by_sequence.split_off(&sequence);
    }

    /// Drop everything, after a cut.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Log {
    /// Return once everything before an address is on the medium.
    ///
    /// # Errors
    /// `SyncFailed` when a sync failed and the bytes could not be saved elsewhere, `FilesRemoved` when
    /// somebody removed the log's files, `LockTimeout`, `TopicDeleted`, `SystemCallFailed`.
    pub fn sync_to(&self, target: Address) -> Result<()> {
        // Of a log that was deleted meanwhile files may be missing, and nobody asks for them.
        self.sync_up_to(target).map_err(|error| self.unless_deleted(error))
    }

    fn sync_up_to(&self, target: Address) -> Result<()> {
        let (control, member) = self.writing()?;
        member.check()?;
        let mut target = target;
        let began = Instant::now();
        loop {
            if control.durable() >= target {
                return Ok(());
            }
            if control.tail() < target {
                // What an append could not say, or nothing: what is not committed is not waited for.
                target = target.min(self.settled_tail(control)?);
                continue;
            }
            let turn = enter(&self.syncer);
            // Who syncs at this moment may be done with our bytes too.
            let patience = PATIENCE.saturating_sub(began.elapsed());
            let guard = if patience.is_zero() || !control.can_wait() {
                self.lock_sync(control, member)?
            } else if let Some(guard) = self.try_lock_sync(control, member, patience) {
                guard
            } else {
                self.crowd.met();
                continue;
            };
            if control.durable() >= target {
                self.crowd.met();
                return Ok(());
            }
            self.crowd.wait_for_peers(behind(control, control.durable()), stopwatch());
            let (guard, synced) = self.sync_under_lock(control, member, guard)?;
            drop(guard);
            drop(turn);
            if synced {
                control.notify(false);
            } else {
                self.clear_latch(self.writer_in(&mut enter(&self.writer), control)?)?;
            }
        }
    }

    /// The log's end, with what a dead or failed append left half done made sound.
    fn settled_tail(&self, control: &Control) -> Result<Address> {
        let mut slot = enter(&self.writer);
        self.repair_tail(self.writer_in(&mut slot, control)?, control)
    }

    /// Take the sync lock. What a syncer that died was told of errors died with it: either this
    /// process is told as well, at once, or what is not durable is in doubt.
    pub(super) fn lock_sync<'a>(
        &'a self,
        control: &'a Control,
        member: &dyn Member,
    ) -> Result<Guard<'a>> {
        let guard = self.lock(Which::Sync)?;
        if !guard.taken_over || control.is_latched() {
            return Ok(guard);
        }
        if self.knows_of_errors_since(control.durable(), control.tail()) {
            return self.sync_under_lock(control, member, guard).map(|(guard, _)| guard);
        }
        self.latch(control, guard)
    }

    /// Put everything committed so far on the medium.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn sync(&self) -> Result<Address> {
        let (control, _) = self.writing()?;
        let mut tail = control.tail();
        if self.has_block_at(tail) {
            // Committed, and its writer died, or is about to say so.
            tail = self.settled_tail(control).map_err(|error| self.unless_deleted(error))?;
        }
        let was_durable = control.durable() >= tail;
        self.sync_to(tail)?;
        if was_durable {
            // No sync was needed, so none looked.
            self.expect_active(control, tail).map_err(|error| self.unless_deleted(error))?;
        }
        Ok(tail)
    }

    /// Make sure that the segment in which the log goes on was not removed.
    fn expect_active(&self, control: &Control, tail: Address) -> Result<()> {
        let known = enter(&self.syncer_files).by_sequence.get(&tail.sequence()).cloned();
        let Some((segment, _)) = known else { return control.check_in_place(&*self.storage) };
        match self.expect_not_removed(&segment) {
            // Retention removes segments before the one that holds the durable end.
            Err(_) if control.durable().sequence() != tail.sequence() => Ok(()),
            found => found,
        }
    }

    pub(super) fn expect_not_removed(&self, segment: &Segment) -> Result<()> {
        expect_not_removed(&*self.storage, &**segment.file(), segment.path())
    }

    /// Sync everything and leave a clean mark: nothing needs checking when the log is opened next.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn sync_clean(&self) -> Result<()> {
        let tail = self.sync()?;
        let (control, member) = self.writing()?;
        let _turn = enter(&self.syncer);
        let guard = self.lock_sync(control, member)?;
        if control.tail() != tail || control.is_latched() {
            return Ok(());
        }
        let segment = self.synced_segment(tail.sequence(), control)?;
        let before = segment.mark().unwrap_or_default();
        if before.clean && before.position == tail.position() {
            return Ok(());
        }
        let mark = Mark { clean: true, ..next_mark(before, tail.position(), control, member) };
        self.put_mark(&segment, &mark, control, guard)
    }

    /// Have a mark on the medium say how far this process's last sync came, if nobody synced since:
    /// else it would lag as long as nobody appends.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn sync_mark(&self) -> Result<()> {
        if enter(&self.syncer_files).unmarked.is_none() {
            return Ok(());
        }
        let (control, member) = self.writing()?;
        let _turn = enter(&self.syncer);
        let guard = self.lock_sync(control, member)?;
        let unmarked = enter(&self.syncer_files).unmarked.take();
        let Some(durable) = unmarked.filter(|end| *end == control.durable()) else { return Ok(()) };
        if control.is_latched() {
            return Ok(());
        }
        let segment = self.synced_segment(durable.sequence(), control)?;
        let before = segment.mark().unwrap_or_default();
        let mark = next_mark(before, durable.position(), control, member);
        self.put_mark(&segment, &mark, control, guard)
    }

    /// Have a mark on the medium say how far everything is there, whoever synced it: damage before it is
    /// then damage for whoever comes after a crash, and never a torn tail.
    pub(super) fn mark_durable(&self, control: &Control, member: &dyn Member) -> Result<()> {
        let _turn = enter(&self.syncer);
        let guard = self.lock_sync(control, member)?;
        let durable = control.durable();
        let segment = self.synced_segment(durable.sequence(), control)?;
        let before = segment.mark().unwrap_or_default();
        if control.is_latched() || before.position >= durable.position() {
            return Ok(());
        }
        let mark = next_mark(before, durable.position(), control, member);
        self.put_mark(&segment, &mark, control, guard)
    }

    /// True when [`Log::sync_mark`] has something to do.
    pub fn lacks_mark(&self) -> bool {
        enter(&self.syncer_files).unmarked.is_some()
    }

    /// Store a mark and sync it by itself.
    fn put_mark(
        &self,
        segment: &Segment,
        mark: &Mark,
        control: &Control,
        guard: Guard<'_>,
    ) -> Result<()> {
        segment.set_mark(mark)?;
        pass(Point::CleanMark);
        let synced = segment.file().sync_data();
        let synced = synced.map_err(|error| Error::io("sync", segment.path(), error));
        let Err(error) = synced.and_then(|()| self.expect_not_removed(segment)) else {
            enter(&self.syncer_files).unmarked = None;
            return Ok(());
        };
        // Others may have appended meanwhile, and this descriptor is not told again.
        drop(self.latch(control, guard)?);
        Err(error)
    }

    /// One sync. `false` when the log is, or now got, latched.
    fn sync_under_lock<'a>(
        &self,
        control: &Control,
        member: &dyn Member,
        guard: Guard<'a>,
    ) -> Result<(Guard<'a>, bool)> {
        let (from, to) = (control.durable(), control.tail());
        if control.is_latched() {
            return Ok((guard, false));
        }
        pass(Point::SyncLocked);
        let segments = match self.segments_between(from, to, control) {
            Ok(segments) => segments,
            Err(error) => {
                if guard.taken_over {
                    drop(self.latch(control, guard)?);
                }
                return Err(error);
            }
        };
        if planted(Canary::MarkEarly) {
            for (segment, end) in &segments {
                let before = segment.mark().unwrap_or_default();
                segment.set_mark(&next_mark(before, *end, control, member))?;
            }
        }
        leave_pages(&segments, from);
        let sync = || self.sync_segments(&segments);
        if self.crowd.timed(sync, behind(control, from), stopwatch()).is_err() {
            return self.latch(control, guard).map(|guard| (guard, false));
        }
        // The last of them may be removed by nobody who keeps to the protocol: it holds the durable end.
        let kept = segments.last().map_or(Ok(()), |(active, _)| self.expect_not_removed(active));
        if let Err(error) = kept {
            if !control.is_deleted() {
                drop(self.latch(control, guard)?);
            }
            return Err(error);
        }
        for (segment, end) in &segments {
            let succeeded = segment.sequence() != to.sequence();
            let before = segment.mark().unwrap_or_default();
            // The page of the mark is one more that the next sync has to write.
            if succeeded || end.saturating_sub(before.position) >= MARK_LAG {
                let mark = next_mark(before, *end, control, member);
                segment.set_mark(&Mark { succeeded, ..mark })?;
                pass(Point::SyncMark);
            }
            if succeeded {
                punch_rest(segment, *end);
            }
        }
        control.set(at::DURABLE, to.0)?;
        pass(Point::SyncDurable);
        let mut files = enter(&self.syncer_files);
        files.forget_before(to.sequence());
        files.unmarked = Some(to);
        drop(files);
        Ok((guard, true))
    }

    /// True when this process's descriptors are older than all that is not yet durable: an error that
    /// a dead syncer was told is then told to this process as well.
    fn knows_of_errors_since(&self, from: Address, to: Address) -> bool {
        let files = enter(&self.syncer_files);
        let known = files.by_sequence.range(from.sequence()..=to.sequence());
        let old = known.filter(|(_, (_, opened))| *opened <= from.max(first_of(*opened))).count();
        let listed = self.chain.refresh().unwrap_or_default();
        let unsynced =
            listed.iter().filter(|s| (from.sequence()..=to.sequence()).contains(s)).count();
        unsynced > 0 && old >= unsynced
    }

    /// The segments that hold `[from, to)`, oldest first, each with the end of its content.
    fn segments_between(
        &self,
        from: Address,
        to: Address,
        control: &Control,
    ) -> Result<Vec<(Arc<Segment>, u64)>> {
        let mut segments = Vec::new();
        let mut sequence = from.sequence();
        while sequence != to.sequence() {
            let segment = self.synced_segment(sequence, control)?;
            let (next, end) = self.chain.successor(&segment)?;
            segments.push((segment, end));
            sequence = next;
        }
        segments.push((self.synced_segment(sequence, control)?, to.position()));
        Ok(segments)
    }

    fn synced_segment(&self, sequence: u64, control: &Control) -> Result<Arc<Segment>> {
        if let Some((segment, _)) = enter(&self.syncer_files).by_sequence.get(&sequence) {
            return Ok(Arc::clone(segment));
        }
        let access = write_access(&self.settings);
        let (generation, reach) = (self.settings.generation, self.settings.segment_bytes);
        let storage = &*self.storage;
        let opened = Segment::open(storage, &self.dir, generation, sequence, access, reach);
        // By path: where somebody removed the log, or put another there, it is not this log's.
        control.check_in_place(storage)?;
        let segment = Arc::new(opened?);
        // Read after the opening: of an error before it this descriptor is not told.
        enter(&self.syncer_files).note_open(&segment, control.tail());
        Ok(segment)
    }

    fn sync_segments(&self, segments: &[(Arc<Segment>, u64)]) -> std::io::Result<()> {
        for (i, (segment, _)) in segments.iter().enumerate() {
            if i == 1 && !planted(Canary::NoDirectorySync) {
                // The names of all later segments, before anything in them counts.
                self.storage.sync_dir(&self.dir)?;
                pass(Point::SyncDirectory);
            }
            let left_out = planted(Canary::SyncActiveOnly) && i + 1 < segments.len();
            if !left_out {
                segment.file().sync_data()?;
            }
            pass(Point::SyncFile);
        }
        Ok(())
    }

    /// Set the latch, for all processes. Where even that fails, the lock is left like a dead one's,
    /// so that the next one knows.
    fn latch<'a>(&self, control: &Control, guard: Guard<'a>) -> Result<Guard<'a>> {
        // What a descriptor was told it is not told again.
        enter(&self.syncer_files).clear();
        if let Err(error) = control.set_flag(flag::LATCHED, true) {
            guard.abandon();
            return Err(error);
        }
        pass(Point::LatchSet);
        control.wake_all();
        Ok(guard)
    }
}

/// The address at which a segment opened by its maker begins.
fn first_of(opened: Address) -> Address {
    Address::new(opened.sequence(), FIRST_BLOCK)
}

/// How much of the log lies behind a place; of different segments more than there can be in one.
fn behind(control: &Control, durable: Address) -> impl Fn() -> u64 {
    move || control.tail().0.saturating_sub(durable.0)
}

fn next_mark(before: Mark, end: u64, control: &Control, member: &dyn Member) -> Mark {
    Mark {
        serial: before.serial.wrapping_add(1),
        position: end.max(before.position),
        clean: false,
        succeeded: false,
        control: control.id(),
        incarnation: member.incarnation(),
    }
}

/// Give up the pages that nobody stores to any more, where there are many: see [`Map::leave`].
///
/// [`Map::leave`]: crate::storage::Map::leave
fn leave_pages(segments: &[(Arc<Segment>, u64)], from: Address) {
    for (segment, end) in segments {
        let is_first = segment.sequence() == from.sequence();
        // What lies before was left when it was synced.
        let begin = if is_first { from.position() & !(PAGE - 1) } else { 0 };
        if end.saturating_sub(begin) >= MANY {
            segment.map().leave(begin, *end);
        }
    }
}

/// Give the unused rest of a sealed segment back. Only a saving: errors change nothing. Behind a cut
/// lies what readers may hold views of, so that stays.
pub(super) fn punch_rest(segment: &Segment, end: u64) {
    if segment.kind(end) != Ok(Some(Kind::End)) {
        return;
    }
    let from = (end + super::append::end_len()).next_multiple_of(PAGE);
    if let Ok(stat) = segment.file().stat() {
        if stat.len > from {
            let _ = segment.file().punch(from, stat.len - from);
        }
    }
}
