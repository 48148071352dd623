//! Syncing: bringing records to stable storage, for all processes at once.
//!
//! The owner of the sync lock syncs every segment that is not wholly on disk, in order, and
//! publishes how far that reached. One `fdatasync` serves all waiters. A failure puts the log into
//! the failed-sync state. It is never tried again on the same bytes, because the kernel forgets.
//! After a failed sync the next one succeeds and the pages are gone. See `docs/PROTOCOL.md`, "Sync"
//! and "Failed sync".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::canary::{Canary, planted};
use crate::error::{IoResult, Result};
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

/// How long a process waits for the syncs of others before it queues for the lock, and checks
/// whether its owner lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// How far a mark may lag behind the last sync, bytes. A shorter part lies in the page that was
/// written last, or in the one before it.
const MARK_LAG: u64 = PAGE;

/// From this many synced bytes on, releasing their pages saves more than it costs.
const MANY: u64 = 64 << 10;

/// Descriptors opened before the bytes that they sync were written: they get every error that the
/// kernel met since.
#[derive(Debug, Default)]
pub struct Files {
    by_sequence: BTreeMap<u64, (Arc<Segment>, Address)>,
    /// How far this process's last sync came, while no mark on disk says so.
    unmarked: Option<Address>,
}

impl Files {
    /// Keep the descriptor of a segment; `tail` is the log's end when it was opened.
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
    /// Return once everything before an address is on disk.
    ///
    /// # Errors
    /// `SyncFailed` when a sync failed and the bytes could not be saved elsewhere, `FilesRemoved`
    /// when the log's files were removed. `LockTimeout`, `TopicDeleted`, `SystemCallFailed`.
    pub fn sync_to(&self, target: Address) -> Result<()> {
        // Files of a log that was deleted meanwhile may be missing, and no caller needs them.
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
                // The tail may lag behind, or `target` may lie beyond the end: it does not wait for
                // uncommitted bytes.
                target = target.min(self.settled_tail(control)?);
                continue;
            }
            let turn = enter(&self.syncer);
            // The process that syncs now may cover our bytes too.
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

    /// Return the log's end, after completing or covering what a dead or failed append left half
    /// done.
    fn settled_tail(&self, control: &Control) -> Result<Address> {
        let mut slot = enter(&self.writer);
        self.repair_tail(self.writer_in(&mut slot, control)?, control)
    }

    /// Take the sync lock. Errors that a dead syncer got died with it: either this process gets
    /// them too, at once, or what is not durable is in doubt.
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

    /// Sync everything committed so far.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn sync(&self) -> Result<Address> {
        let (control, _) = self.writing()?;
        let mut tail = control.tail();
        if self.has_block_at(tail) {
            // It is committed, and its writer died, or will store the tail soon.
            tail = self.settled_tail(control).map_err(|error| self.unless_deleted(error))?;
        }
        let was_durable = control.durable() >= tail;
        self.sync_to(tail)?;
        if was_durable {
            // No sync was needed, so none checked this.
            self.expect_active(control, tail).map_err(|error| self.unless_deleted(error))?;
        }
        Ok(tail)
    }

    /// Check that the segment in which the log continues was not removed.
    fn expect_active(&self, control: &Control, tail: Address) -> Result<()> {
        let known = enter(&self.syncer_files).by_sequence.get(&tail.sequence()).cloned();
        let Some((segment, _)) = known else { return control.check_in_place(&*self.storage) };
        match self.expect_not_removed(&segment) {
            // Retention removes segments before the one with the durable end.
            Err(_) if control.durable().sequence() != tail.sequence() => Ok(()),
            found => found,
        }
    }

    pub(super) fn expect_not_removed(&self, segment: &Segment) -> Result<()> {
        expect_not_removed(&*self.storage, &**segment.file(), segment.path())
    }

    /// Sync everything and leave a clean mark: the next opening then needs no checks.
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

    /// Store a mark on disk that says how far this process's last sync came, if none has since.
    /// Otherwise the mark would lag until the next append.
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

    /// Store a mark on disk that says how far everything is there, whichever process synced it.
    /// After a crash, a bad block before it then counts as corruption, and never as a torn tail.
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

    /// Return true when [`Log::sync_mark`] has something to do.
    pub fn lacks_mark(&self) -> bool {
        enter(&self.syncer_files).unmarked.is_some()
    }

    /// Store a mark and sync it alone.
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
        let synced = synced.doing("sync", segment.path());
        let Err(error) = synced.and_then(|()| self.expect_not_removed(segment)) else {
            enter(&self.syncer_files).unmarked = None;
            return Ok(());
        };
        // Others may have appended meanwhile, and this descriptor gets an error only once.
        drop(self.latch(control, guard)?);
        Err(error)
    }

    /// Sync once. `false` when the log is in the failed-sync state, before or after.
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
        // The protocol removes no segment with the durable end, so the last one must exist.
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
            // The page of the mark is one more for the next sync to write.
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

    /// Return true when this process's descriptors are older than all that is not yet durable. An
    /// error that a dead syncer got is then reported to this process as well.
    fn knows_of_errors_since(&self, from: Address, to: Address) -> bool {
        let files = enter(&self.syncer_files);
        let known = files.by_sequence.range(from.sequence()..=to.sequence());
        let old = known.filter(|(_, (_, opened))| *opened <= from.max(first_of(*opened))).count();
        let listed = self.chain.refresh().unwrap_or_default();
        let unsynced =
            listed.iter().filter(|s| (from.sequence()..=to.sequence()).contains(s)).count();
        unsynced > 0 && old >= unsynced
    }

    /// Return the segments that hold `[from, to)`, oldest first, each with the end of its content.
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
        // Opened by path: if the log was removed or replaced, that is not this log's file.
        control.check_in_place(storage)?;
        let segment = Arc::new(opened?);
        // Read after the opening: this descriptor gets no error from before it.
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

    /// Begin the failed-sync state, for all processes. If even that fails, the lock is left like a
    /// dead owner's, so that the next owner knows.
    fn latch<'a>(&self, control: &Control, guard: Guard<'a>) -> Result<Guard<'a>> {
        // A descriptor gets an error only once.
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

/// Return the address at which a segment opened by its maker begins.
fn first_of(opened: Address) -> Address {
    Address::new(opened.sequence(), FIRST_BLOCK)
}

/// Return how much of the log lies after a place; across segments, more than one segment can hold.
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

/// Release the pages that no writer stores to any more, if there are many: see [`Map::leave`].
///
/// [`Map::leave`]: crate::storage::Map::leave
fn leave_pages(segments: &[(Arc<Segment>, u64)], from: Address) {
    for (segment, end) in segments {
        let is_first = segment.sequence() == from.sequence();
        // Earlier pages were released when they were synced.
        let begin = if is_first { from.position() & !(PAGE - 1) } else { 0 };
        if end.saturating_sub(begin) >= MANY {
            segment.map().leave(begin, *end);
        }
    }
}

/// Return the unused rest of a sealed segment to the file system. This only saves space: errors
/// change nothing. Readers may hold views of bytes after a cut, so those stay.
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
