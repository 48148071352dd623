//! Space for the next append: more allocation, or the next segment.
//!
//! The next segment is prepared whole under a temporary name, outside the lock: allocated, with the
//! bulk of its snapshot, synced, its first pages touched. Under the lock it gets its header and the
//! changes since, which are known only then, its name, and the end block that names it. That is one
//! rename, and stores into existing memory. The end block is the commit point: before it the file
//! is an orphan, whatever its name; after it the log continues there. The first process to enter it
//! makes its index after the unlock ([`super::index_rebuild`]). The next sync syncs the directory,
//! before anything in the new segment counts as durable. See `docs/PROTOCOL.md`, "Roll".

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::{Address, MAX_SEQUENCE};
use crate::format::block::Kind;
use crate::format::control::at;
use crate::format::segment::{Mark, Previous, SegmentHeader};
use crate::format::state::{End, LogState};
use crate::format::{DecodeError, FIRST_BLOCK, PAGE, names};
use crate::segment::create::{Builder, commit, own_header, own_len, put_block};
use crate::segment::index::IndexSampler;
use crate::segment::{BlockError, Segment};
use crate::storage::Storage;

use super::append::{Blocked, RESERVE, Writer, end_len};
use super::clock::BlockClock;
use super::create::{dir_mode, new_segment_len};
use super::guard::{Guard, Which};
use super::prefault::{FARTHEST, NextSegment};
use super::{Control, Log, Member, enter, write_access};

type Outcome = std::result::Result<(), Blocked>;

/// The next segment of a process, complete except for what is known only under the lock.
#[derive(Debug)]
pub struct Prepared {
    builder: Builder,
    state: LogState,
    time_base_us: i64,
    /// The part that the helper may work on meanwhile.
    next: NextSegment,
}

impl Prepared {
    /// Remove the file.
    pub fn discard(self, storage: &dyn Storage) {
        self.builder.discard(storage);
    }
}

impl Log {
    /// Make `needs` bytes fit after the tail. The append lock is not held.
    pub(super) fn make_room(
        &self,
        writer: &mut Writer,
        control: &Control,
        member: &dyn Member,
        needs: u64,
    ) -> Result<()> {
        let required = writer.tail.position() + needs + RESERVE;
        let allocated = control.allocated();
        let active = allocated.sequence() == writer.tail.sequence();
        if active && allocated.position() >= required {
            // Another process, or the helper, was faster.
            return Ok(());
        }
        if required <= self.settings.segment_bytes {
            return self.grow(writer, control, required);
        }
        self.make_segment(writer, control, member, needs)
    }

    /// Make `needs` bytes fit into a new segment. The append lock is not held.
    pub(super) fn make_segment(
        &self,
        writer: &mut Writer,
        control: &Control,
        member: &dyn Member,
        needs: u64,
    ) -> Result<()> {
        match self.roll(writer, control, member, needs) {
            Err(Blocked::Failed(error)) => Err(error),
            // Another process rolled or deleted the log, or a sync failed: the append's next turn
            // handles it.
            _ => Ok(()),
        }
    }

    /// Seal the active segment and continue in a new one, however little it holds.
    ///
    /// # Errors
    /// As [`Log::append`].
    #[doc(hidden)]
    pub fn roll_now(&self) -> Result<()> {
        let (control, member) = self.writing()?;
        member.check()?;
        let mut slot = enter(&self.writer);
        let writer = self.writer_in(&mut slot, control)?;
        let before = control.tail().sequence();
        while control.tail().sequence() == before {
            writer.catch_up(self, control)?;
            if let Err(obstacle) = self.roll(writer, control, member, 0) {
                self.resolve(obstacle, writer, control, member)?;
            }
        }
        Ok(())
    }

    /// Allocate more of the active segment.
    fn grow(&self, writer: &Writer, control: &Control, required: u64) -> Result<()> {
        let segment = &writer.segment;
        let len = segment.file().stat().doing("stat", segment.path())?.len;
        let room = control.allocated().position().clamp(FIRST_BLOCK, len);
        let wanted = self.growth_target(room).max(required);
        let wanted = wanted.next_multiple_of(PAGE).min(self.settings.segment_bytes);
        segment.file().allocate(wanted).doing("allocate", segment.path())?;
        let _guard = self.lock(Which::Append)?;
        control.raise_allocated(Address::new(segment.sequence(), wanted))
    }

    /// Try once; the caller overcomes an obstacle.
    fn roll(
        &self,
        writer: &mut Writer,
        control: &Control,
        member: &dyn Member,
        needs: u64,
    ) -> Outcome {
        // Files get their names by path. If another log is at that path, as after a restore of an
        // older copy, they would become a part of that one.
        control.check_in_place(&*self.storage).map_err(|error| self.unless_deleted(error))?;
        self.make_room_to_end(writer, control)?;
        let before = writer.tail.sequence();
        let path = self.dir.join(names::segment(next_sequence(before)?));
        let mut prepared = match writer.prepared.take() {
            Some(prepared) => prepared,
            None => self.prepare(writer, member)?,
        };
        if let Err(error) = prepared.next.sync() {
            let error = Error::io("sync", prepared.builder.path(), error);
            prepared.discard(&*self.storage);
            return Err(error.into());
        }
        pass(Point::RollPrepared);
        // The second snapshot repeats at most all of the first; if that is not enough, the third
        // try has the exact size.
        let most = 2 * prepared.builder.position() - FIRST_BLOCK + needs + RESERVE;
        prepared.builder.grow(most.next_multiple_of(PAGE))?;
        prepared.builder.populate(most);
        let mut changes = Vec::with_capacity(most as usize);
        let guard = self.lock(Which::Append)?;
        pass(Point::RollLocked);
        let ready = writer.under_lock(self, control, &guard);
        if let Err(obstacle) = ready.and_then(|()| self.check_room_to_end(writer, control)) {
            writer.prepared = Some(prepared);
            return Err(obstacle);
        }
        writer.walk.state_beyond_damage().append_since(&prepared.state, &mut changes);
        if prepared.builder.position() + own_len(changes.len()) + needs + RESERVE
            > prepared.builder.allocated()
        {
            // It was prepared too long ago to be of use: the caller's next turn makes another one.
            drop(guard);
            prepared.discard(&*self.storage);
            return Err(Blocked::Moved);
        }
        let header =
            self.hand_over(writer, control, member, &mut prepared, &changes, &path, &guard)?;
        drop(guard);
        pass(Point::RollUnlocked);
        let asked = prepared.next.until;
        let segment = prepared.builder.into_segment(path, header);
        debug_assert!(segment.sequence() > before);
        Ok(self.enter_next(writer, control, segment, asked)?)
    }

    /// Continue in a segment that this process made the next one, and notify the others. The append
    /// lock is not held.
    pub(super) fn enter_next(
        &self,
        writer: &mut Writer,
        control: &Control,
        segment: Segment,
        asked: u64,
    ) -> Result<()> {
        let segment = Arc::new(segment);
        let tail = Address::new(segment.sequence(), segment.opening()?.position);
        enter(&self.syncer_files).note_open(&segment, tail);
        (writer.index, writer.filled) = self.index_to_write(&segment, control);
        pass(Point::RollIndex);
        writer.walk = segment.opening()?.clone();
        (writer.pacer, writer.tail, writer.segment) = (IndexSampler::default(), tail, segment);
        writer.clock = BlockClock::new(writer.segment.header().time_base_us, 0);
        (writer.reach, writer.touched) = (0, tail.position());
        writer.asked.begin_segment(asked);
        // Stored before the wake: the syncing thread then removes what the roll made superfluous.
        self.rolled.store(true, std::sync::atomic::Ordering::Release);
        control.notify(true);
        Ok(())
    }

    /// Allocate the missing space for an end block after the tail: each death inside one uses up as
    /// much.
    pub(super) fn make_room_to_end(&self, writer: &Writer, control: &Control) -> Result<()> {
        let (allocated, limit) = (control.allocated(), self.settings.segment_bytes);
        let required = (writer.tail.position() + RESERVE).min(limit);
        let active = allocated.sequence() == writer.tail.sequence();
        if !active || allocated.position() >= required {
            return Ok(());
        }
        self.grow(writer, control, required)
    }

    /// Check the same under the lock, after the last death: an end block fits, or will after the
    /// next try. In a segment that cannot grow, repair leaves space for one.
    pub(super) fn check_room_to_end(&self, writer: &Writer, control: &Control) -> Outcome {
        let (position, allocated) = (writer.tail.position(), control.allocated().position());
        if position + end_len() <= allocated {
            return Ok(());
        }
        if allocated < self.settings.segment_bytes {
            return Err(Blocked::Moved);
        }
        let what = DecodeError::Damaged("a segment without space for its end block");
        Err(writer.segment.error(BlockError { position, what }).into())
    }

    fn prepare(&self, writer: &Writer, member: &dyn Member) -> Result<Prepared> {
        let storage = &*self.storage;
        let slot = member.identity().slot();
        let path = self.dir.join(names::prepared(slot.into()));
        let state = writer.walk.state.clone();
        let body = state.encode_since(&LogState::default());
        let len = new_segment_len(self.settings.segment_bytes, body.len());
        let (reach, mode) = (self.settings.segment_bytes, self.settings.file_mode);
        let access = write_access(&self.settings);
        let mut builder = Builder::new(storage, path, len, reach, mode, access)?;
        builder.block(&own_header(Kind::Snapshot, &body, 0), &body)?;
        let next = NextSegment::new(Arc::clone(builder.file()), builder.map().clone());
        Ok(Prepared { builder, state, time_base_us: storage.now_us(), next })
    }

    /// Prepare the next segment for a fast writer before the active one is full. It gets as much
    /// space as is touched ahead of the writer, and that is touched. After a failure here, the roll
    /// does it when it is needed, and reports the error then.
    #[cold]
    pub(super) fn prepare_ahead(&self, writer: &mut Writer, member: &dyn Member) {
        // If stores are writes there are no pages to touch.
        if self.fast.is_none() || writer.prepared.is_some() {
            return;
        }
        let Ok(mut prepared) = self.prepare(writer, member) else { return };
        let _ = prepared.builder.grow(FARTHEST);
        prepared.next.until = prepared.builder.allocated();
        self.request_next(prepared.next.clone());
        writer.prepared = Some(prepared);
    }

    /// Finish the prepared segment, name it, and end the active one. The caller holds the append
    /// lock.
    #[allow(
        clippy::too_many_arguments,
        reason = "made before the lock, so that nothing is made here"
    )]
    fn hand_over(
        &self,
        writer: &Writer,
        control: &Control,
        member: &dyn Member,
        prepared: &mut Prepared,
        changes: &[u8],
        path: &Path,
        guard: &Guard<'_>,
    ) -> std::result::Result<SegmentHeader, Blocked> {
        let Prepared { builder, time_base_us, .. } = prepared;
        builder.block(&own_header(Kind::Snapshot, changes, 0), changes)?;
        self.name_next(writer, (control, member), builder, *time_base_us, path, guard)
    }

    /// Give a segment that has all its blocks its header and its name, and end the active one. The
    /// caller holds the append lock.
    pub(super) fn name_next(
        &self,
        writer: &Writer,
        (control, member): (&Control, &dyn Member),
        builder: &Builder,
        time_base_us: i64,
        path: &Path,
        _guard: &Guard<'_>,
    ) -> std::result::Result<SegmentHeader, Blocked> {
        let tail = writer.tail;
        let sequence = tail.sequence() + 1;
        let (salt, end) = (writer.segment.salt(), tail.position());
        let header = SegmentHeader {
            log: self.settings.generation,
            sequence,
            salt: builder.salt(),
            supersedes: false,
            previous: Some(Previous { sequence: tail.sequence(), salt, end }),
            replaces: None,
            time_base_us,
        };
        let (control_id, incarnation) = (control.id(), member.incarnation());
        let mark = Mark { serial: 1, control: control_id, incarnation, ..Mark::default() };
        builder.header(&header, &mark)?;
        name_segment(&*self.storage, builder.path(), path, self.settings.file_mode)?;
        pass(Point::RollSegment);

        let next = Address::new(sequence, builder.position());
        let allocated = Address::new(sequence, builder.allocated());
        let place = writer.place_at(tail.position());
        control.set(at::DIRTY, Address::new(tail.sequence(), tail.position() + end_len()).0)?;
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        pass(Point::RollDirty);
        let body = End { sequence, salt: header.salt }.encode();
        let stored = put_block(place, &own_header(Kind::End, &body, 0), &body);
        stored.and_then(|word| commit(place, word)).map_err(|e| writer.failed(e))?;
        pass(Point::RollEnd);
        // It is the next segment now, for all processes. If a word cannot be stored, the next owner
        // of the lock finds the ends unequal and finishes this.
        let rest = || {
            control.set(at::ALLOCATED, allocated.0)?;
            pass(Point::RollAllocated);
            control.set(at::INDEXED, 0)?;
            control.set(at::TAIL, next.0)?;
            pass(Point::RollTail);
            control.set(at::DIRTY, next.0)
        };
        let _ = rest();
        Ok(header)
    }
}

/// Return the next sequence.
pub(super) fn next_sequence(sequence: u64) -> Result<u64> {
    if sequence < MAX_SEQUENCE {
        return Ok(sequence + 1);
    }
    Err(Error::invalid("the log has used all its segment numbers: create a new topic"))
}

/// Give a prepared segment its name. An existing file of that name is the orphan of a roll that
/// died before its commit point, and moves to quarantine. As in repair, the next owner of the lock
/// spends the time for a death.
fn name_segment(storage: &dyn Storage, from: &Path, to: &Path, mode: u32) -> Result<()> {
    for _ in 0..2 {
        match storage.rename_new(from, to) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => quarantine(storage, to, mode)?,
            other => return other.doing("rename", from),
        }
    }
    let source = std::io::Error::from(ErrorKind::AlreadyExists);
    Err(Error::io("rename", from, source))
}

/// Move a file of a log to `quarantine/` beside it; its bytes are kept.
pub fn quarantine(storage: &dyn Storage, path: &Path, file_mode: u32) -> Result<()> {
    let dir = quarantine_dir(storage, path, file_mode)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for attempt in 0u32.. {
        let target = if attempt == 0 { name.clone() } else { format!("{name}.{attempt}") };
        match storage.rename_new(path, &dir.join(target)) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            other => return other.doing("quarantine", path),
        }
    }
    Ok(())
}

/// Return the directory for quarantined files of a log.
pub fn quarantine_dir(
    storage: &dyn Storage,
    path: &Path,
    file_mode: u32,
) -> Result<std::path::PathBuf> {
    let dir = path.parent().unwrap_or(Path::new(".")).join("quarantine");
    match storage.create_dir(&dir, dir_mode(file_mode)) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(Error::io("create", &dir, e)),
        // The existing name may be a link to a directory that is not falaj's.
        Err(_) if storage.stat(&dir).is_ok_and(|stat| !stat.is_dir) => {
            Err(Error::io("use", &dir, ErrorKind::NotADirectory.into()))
        }
        _ => Ok(dir),
    }
}
