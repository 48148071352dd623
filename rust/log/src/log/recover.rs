//! Recovery: what the first process of an incarnation does to a log before anyone writes to it.
//!
//! Since the last incarnation every writer was gone, and the machine may have lost power: pages of
//! the log may be on the medium in any combination. Below the durable mark a bad block is
//! corruption, which is reported and never cut. Above it the first bad one is where the log ends:
//! the log is cut at the head of its group, what lies behind is kept in quarantine, and a new segment
//! goes on. The last thing stored is the incarnation; a crash before that changes nothing, for
//! everything is decided again from the same bytes. See `docs/PROTOCOL.md`, "Recovery".

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::block::{HEADER_LEN, Kind};
use crate::format::control::{at, flag};
use crate::format::segment::{Mark, Previous};
use crate::format::{Malformed, PAGE, names};
use crate::segment::index::Index;
use crate::segment::walk::{Step, Walk};
use crate::segment::{Bad, Check, Segment};
use crate::storage::{Access, Open, Storage};

use super::append::RESERVE;
use super::chain::{Chain, list_segments};
use super::control::Control;
use super::create::FIRST_ALLOCATION;
use super::guard::wait_for_flock;
use super::latch::publish_end;
use super::repair::last_written;
use super::roll::quarantine;
use super::supersede::{Carried, Cut, Maker, NewEnd, collect_between, supersede};
use super::{LogSettings, Member, write_access};

/// Recover a log unless that was done in this incarnation.
///
/// # Errors
/// `Corrupt` when the log cannot be continued without losing what was on the medium, `Newer`,
/// `LockFileReplaced` when the control file was removed or replaced in this incarnation,
/// `LockTimeout`, `Io`, `NoSpace`.
pub fn ensure(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    member: &dyn Member,
) -> Result<()> {
    if is_current(&**storage, dir, settings, member) {
        return Ok(());
    }
    let path = dir.join("lock");
    let file = storage.open(&path, Open::ReadWrite).map_err(|e| Error::io("open", &path, e))?;
    wait_for_flock(&*file, &path, settings.lock_timeout)?;
    let recovered = if is_current(&**storage, dir, settings, member) {
        Ok(())
    } else {
        Recovery { storage, dir, settings, member }.run()
    };
    // The lock also ends with the descriptor.
    let _ = file.unlock();
    recovered
}

fn is_current(
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
    member: &dyn Member,
) -> bool {
    let control = Control::open(storage, dir, settings.generation, Access::Read);
    control.is_ok_and(|control| control.incarnation() == member.incarnation())
}

/// Where the sound part of a log ends.
struct SoundEnd {
    segment: Arc<Segment>,
    walk: Walk,
    /// Why the log cannot go on in this segment, if it cannot.
    cut: bool,
}

struct Recovery<'a> {
    storage: &'a Arc<dyn Storage>,
    dir: &'a Path,
    settings: &'a LogSettings,
    member: &'a dyn Member,
}

impl Recovery<'_> {
    fn run(&self) -> Result<()> {
        self.sweep()?;
        let chain = Chain::new(Arc::clone(self.storage), self.dir, self.settings);
        let sequences = chain.refresh()?;
        let newest = chain.segment(sequences[sequences.len() - 1])?;
        self.check_nothing_durable_is_missing(&newest)?;
        let (control, doubtful) = self.control(&newest)?;
        let (marked, mark) = newest_mark(&chain, &sequences)?;
        let end = self.sound_end(&chain, &sequences, marked, mark)?;
        let maker = Maker { control: control.id(), incarnation: self.member.incarnation() };
        let durable = Address::new(sequences[marked], mark.position.max(PAGE));

        let found = list_segments(&**self.storage, self.dir)?;
        let is_part = |s: &u64| *s <= end.segment.sequence() && sequences.contains(s);
        for sequence in found.into_iter().rev().filter(|s| *s >= sequences[0] && !is_part(s)) {
            self.put_away(sequence)?;
        }
        let (new_end, durable) = if doubtful {
            // Nobody knows how the last sync ended: everything since the mark is written anew.
            let found = Address::new(end.segment.sequence(), end.walk.position);
            let (cut, carried) = collect_between(&chain, durable, found)?;
            let moved = self.supersede(&cut, &carried, maker)?;
            (moved, moved.tail)
        } else if end.cut {
            let moved = self.supersede(&cut_at(&end), &[], maker)?;
            (moved, durable)
        } else {
            (self.go_on(&end, maker)?, durable)
        };
        publish_end(&control, new_end, durable)?;
        // Whatever was acknowledged in interval mode is before that end.
        control.set(at::WANTED, new_end.tail.0)?;
        control.set_flag(flag::LATCHED, false)?;
        control.set(at::APPEND_LOCK, 0)?;
        control.set(at::SYNC_LOCK, 0)?;
        control.set(at::WAITING, 0)?;
        control.set(at::INCARNATION, self.member.incarnation())?;
        control.rouse();
        Ok(())
    }

    /// Temporary files are leftovers: whoever made them is dead, or waits for this recovery.
    fn sweep(&self) -> Result<()> {
        let names = self.storage.list(self.dir).map_err(|e| Error::io("list", self.dir, e))?;
        for name in names.iter().filter(|name| name.ends_with(".tmp")) {
            let path = self.dir.join(name);
            self.storage.unlink(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        Ok(())
    }

    /// A mark that says the next segment was on the medium, and no next segment: that is a loss, not
    /// a torn tail.
    fn check_nothing_durable_is_missing(&self, newest: &Segment) -> Result<()> {
        if newest.mark().is_some_and(|mark| mark.succeeded) {
            return Err(Error::Corrupt {
                path: self.dir.join(names::segment(newest.sequence() + 1)),
                position: 0,
                what: "the segment is missing or damaged, and it was on the medium",
            });
        }
        Ok(())
    }

    /// The control page, made anew where there is none that can be used; and whether the last sync
    /// failed or never ended.
    fn control(&self, newest: &Segment) -> Result<(Control, bool)> {
        let (storage, dir) = (&**self.storage, self.dir);
        let (log, access) = (self.settings.generation, write_access(self.settings));
        let mark = newest.mark().filter(|mark| mark.incarnation == self.member.incarnation());
        let replaced = || Error::LockFileReplaced { path: dir.join("control") };
        match Control::open(storage, dir, log, access) {
            Ok(control) if mark.is_none_or(|mark| mark.control == control.id()) => {
                // A sync lock that is held now was held by the dead: nobody else could be here.
                let doubtful = control.is_latched() || control.word_value(at::SYNC_LOCK) != 0;
                Ok((control, doubtful))
            }
            Ok(_) => Err(replaced()),
            Err(Error::Newer { path, position, what }) => {
                Err(Error::Newer { path, position, what })
            }
            Err(_) if mark.is_some() => Err(replaced()),
            Err(_) => {
                Control::create(storage, dir, log, self.settings.file_mode)?;
                Control::publish(storage, dir)?;
                Ok((Control::open(storage, dir, log, access)?, false))
            }
        }
    }

    /// Check everything from the durable mark on, and find where it ends.
    fn sound_end(
        &self,
        chain: &Chain,
        sequences: &[u64],
        marked: usize,
        mark: Mark,
    ) -> Result<SoundEnd> {
        let mut before = None;
        for (i, sequence) in sequences.iter().enumerate().skip(marked) {
            let segment = chain.segment(*sequence)?;
            let limit = match sequences.get(i + 1) {
                Some(next) => chain.header(*next)?.previous.map(|previous| previous.end),
                None => None,
            };
            let durable = if i == marked { mark.position } else { 0 };
            let clean = mark.clean && i == marked && limit.is_none();
            let check =
                if clean && segment.word(mark.position) == 0 { Check::Header } else { Check::Full };
            let (walk, stopped) = walk_sound(&segment, limit, durable, check)?;
            let whole = limit.is_some_and(|limit| walk.position == limit);
            if !whole {
                if let Some(before) = before.filter(|_| !is_introduced(&segment, &walk)) {
                    return Ok(before);
                }
                let cut = stopped || limit.is_some() || !reads_zero(&segment, walk.position)?;
                return Ok(SoundEnd { segment, walk, cut });
            }
            before = Some(SoundEnd { segment, walk, cut: true });
        }
        Err(Error::Corrupt { path: self.dir.into(), position: 0, what: "a log without an end" })
    }

    /// Let the log go on where it ends.
    fn go_on(&self, end: &SoundEnd, maker: Maker) -> Result<NewEnd> {
        let (storage, dir) = (&**self.storage, self.dir);
        let (access, settings) = (write_access(self.settings), self.settings);
        let sequence = end.segment.sequence();
        let reach = settings.segment_bytes;
        let segment = Segment::open(storage, dir, settings.generation, sequence, access, reach)?;
        let position = end.walk.position;
        let stat = segment.file().stat().map_err(|e| Error::io("stat", segment.path(), e))?;
        let wanted = stat.len.max(position + RESERVE);
        let wanted =
            wanted.max(FIRST_ALLOCATION.min(settings.segment_bytes)).next_multiple_of(PAGE);
        // Also what looks allocated: a power cut may have kept the length and not the blocks.
        let grown = segment.file().allocate(wanted);
        grown.map_err(|e| Error::io("allocate", segment.path(), e))?;
        let index = Index::build(&end.segment);
        let (bytes, mode) = (settings.segment_bytes, settings.file_mode);
        let indexed = index.save(storage, dir, &segment, bytes, mode)?;
        let before = segment.mark().unwrap_or_default();
        let Maker { control, incarnation } = maker;
        let mark = Mark { serial: before.serial + 1, control, incarnation, ..before };
        segment.set_mark(&mark)?;
        let tail = Address::new(sequence, position);
        Ok(NewEnd { tail, allocated: Address::new(sequence, wanted), indexed })
    }

    fn supersede(&self, cut: &Cut, carried: &[Carried], maker: Maker) -> Result<NewEnd> {
        supersede(&**self.storage, self.dir, self.settings, cut, carried, maker)
    }

    /// Move a segment that is no longer part of the log out of the way; its bytes are kept.
    fn put_away(&self, sequence: u64) -> Result<()> {
        let path = self.dir.join(names::segment(sequence));
        quarantine(&**self.storage, &path, self.settings.file_mode)?;
        // An index without its segment is never read.
        let _ = self.storage.unlink(&self.dir.join(names::index(sequence)));
        for dir in [self.dir.join("quarantine"), self.dir.to_path_buf()] {
            self.storage.sync_dir(&dir).map_err(|e| Error::io("sync", &dir, e))?;
        }
        Ok(())
    }
}

/// True when a walk came past what a segment begins with. A roll syncs the bulk of the snapshot and
/// not what changed since: where that is torn nobody can tell the offsets that go on here.
fn is_introduced(segment: &Segment, walk: &Walk) -> bool {
    let header = segment.header();
    if header.supersedes || header.previous.is_none() {
        return true;
    }
    let Ok(Some(bulk)) = segment.block(PAGE, Check::Full) else { return false };
    walk.position > bulk.end() && segment.kind(bulk.end()) == Ok(Some(Kind::Snapshot))
}

fn cut_at(end: &SoundEnd) -> Cut {
    let (sequence, salt) = (end.segment.sequence(), end.segment.salt());
    let previous = Previous { sequence, salt, end: end.walk.position };
    Cut { previous, state: end.walk.state.clone(), durable: false }
}

/// Index of the newest segment whose mark claims something, and that mark. Everything before it is
/// on the medium.
fn newest_mark(chain: &Chain, sequences: &[u64]) -> Result<(usize, Mark)> {
    for (i, sequence) in sequences.iter().enumerate().rev() {
        let mark = chain.segment(*sequence)?.mark();
        if let Some(mark) = mark.filter(|mark| mark.position > 0) {
            return Ok((i, mark));
        }
    }
    Ok((0, Mark::default()))
}

/// Walk a segment as far as it is sound, group by group: up to `limit`, to the first zero, or to the
/// first bad block, which the second result tells. Damage below `durable` is passed over: it is
/// reported to whoever reads it, and what follows it stays.
fn walk_sound(
    segment: &Segment,
    limit: Option<u64>,
    durable: u64,
    check: Check,
) -> Result<(Walk, bool)> {
    let mut walk = Walk::new();
    let reached = |walk: &Walk| limit.is_some_and(|limit| walk.position >= limit);
    while !reached(&walk) {
        let position = walk.position;
        match sound_step(segment, &mut walk, check) {
            Ok(Some(Step::End { .. })) => {
                walk.position = position;
                return Ok((walk, true));
            }
            Ok(Some(_)) => {}
            Ok(None) if position >= durable => return Ok((walk, false)),
            Err(bad) if matches!(bad.what, Malformed::Unknown(_)) => return Err(segment.error(bad)),
            Err(_) if position >= durable => return Ok((walk, true)),
            Ok(None) | Err(_) => {
                // The first block behind the mark will do: its header tells the next offset.
                let limit = durable + HEADER_LEN as u64;
                let sound = segment.next_sound(position + 8, limit);
                walk.position = sound.ok_or_else(|| unbridgeable(segment, position))?;
            }
        }
    }
    Ok((walk, false))
}

/// A block, or a whole group when it is the head of one. On failure the walk is where it was.
fn sound_step(
    segment: &Segment,
    walk: &mut Walk,
    check: Check,
) -> std::result::Result<Option<Step>, Bad> {
    let Some(head) = segment.block(walk.position, check)? else { return Ok(None) };
    if head.header.group_len == 0 {
        return walk.step(segment, check);
    }
    segment.check_group(&head)?;
    let end = head.position + u64::from(head.header.group_len);
    let mut ahead = walk.clone();
    let mut step = None;
    while ahead.position < end {
        step = ahead.step(segment, check)?;
    }
    *walk = ahead;
    Ok(step)
}

fn unbridgeable(segment: &Segment, position: u64) -> Error {
    let what = Malformed::Damaged(
        "nothing sound follows before the durable mark, so the next offset is unknown",
    );
    segment.error(Bad { position, what })
}

/// True when everything from a position to the end of the file reads as zero.
fn reads_zero(segment: &Segment, position: u64) -> Result<bool> {
    Ok(last_written(segment, position)? == position)
}
