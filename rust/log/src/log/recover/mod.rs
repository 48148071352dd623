//! Recovery: what the first process of an incarnation does to a log before anyone writes to it.
//!
//! Since the last incarnation every writer was gone, and the machine may have lost power: pages of
//! the log may be on the medium in any combination. Below the durable mark a bad block is
//! corruption, which is reported and never cut. Above it the first bad one is where the log ends:
//! the log is cut at the head of its group, what lies behind is kept in quarantine, and a new segment
//! goes on. The last thing stored is the incarnation; a crash before that changes nothing, for
//! everything is decided again from the same bytes. See `docs/PROTOCOL.md`, "Recovery".

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::block::{HEADER_LEN, Kind};
use crate::format::control::{at, flag};
use crate::format::segment::{Mark, Previous};
use crate::format::{Malformed, PAGE, names};
use crate::segment::index::Index;
use crate::segment::walk::{Step, Walk};
use crate::segment::{Bad, Check, Reading, Segment};
use crate::storage::{Access, Open, Storage};

use super::append::RESERVE;
use super::chain::{Chain, list_segments};
use super::control::Control;
use super::create::FIRST_ALLOCATION;
use super::guard::wait_for_flock;
use super::latch::publish_end;
use super::mending::{Mend, MendStep};
use super::reindex::bad_index;
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
    recover(storage, dir, settings, member, false).map(drop)
}

/// As opening a log for writing does, but going on also where what was on the medium is lost: the
/// log then ends before it. Says what was done.
///
/// # Errors
/// As opening, but `Corrupt` only when nothing of the log can be read.
pub fn mend(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    member: &dyn Member,
) -> Result<Vec<MendStep>> {
    recover(storage, dir, settings, member, true)
}

fn recover(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    member: &dyn Member,
    by_force: bool,
) -> Result<Vec<MendStep>> {
    let incarnation = member.incarnation();
    if is_current(&**storage, dir, settings, incarnation) {
        return Ok(Vec::new());
    }
    let path = dir.join("lock");
    let file = storage.open(&path, Open::ReadWrite).map_err(|e| Error::io("open", &path, e))?;
    wait_for_flock(&*file, &path, settings.lock_timeout)?;
    let recovered = if is_current(&**storage, dir, settings, incarnation) {
        Ok(Vec::new())
    } else {
        let recovery = Recovery::new(storage, dir, settings, incarnation, by_force);
        recovery.decide().and_then(|decision| recovery.carry_out(decision))
    };
    // The lock also ends with the descriptor.
    let _ = file.unlock();
    recovered
}

/// What [`mend`] would do.
#[derive(Debug)]
pub struct Planned {
    /// Its steps, in their order; indexes of sealed segments included.
    pub steps: Vec<MendStep>,
    /// Offsets behind which each topic would go on, by topic number.
    pub ends: Vec<(u32, u64)>,
}

/// Find out what [`mend`] would do for the first process of an incarnation, and do nothing.
///
/// # Errors
/// As [`mend`].
pub fn plan(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    incarnation: u64,
) -> Result<Planned> {
    let recovery = Recovery::new(storage, dir, settings, incarnation, true);
    let decision = recovery.decide()?;
    let mut steps = decision.steps;
    for sequence in &decision.sequences {
        let segment = decision.chain.segment(*sequence)?;
        if segment.sequence() < decision.end.segment.sequence() {
            steps.extend(bad_index(&**storage, dir, &segment));
        }
    }
    let topics = decision.end.walk.state.topics();
    let ends = topics.map(|(number, topic)| (number, topic.next)).collect();
    Ok(Planned { steps, ends })
}

fn is_current(storage: &dyn Storage, dir: &Path, settings: &LogSettings, incarnation: u64) -> bool {
    let control = Control::open(storage, dir, settings.generation, Access::Read);
    control.is_ok_and(|control| control.incarnation() == incarnation)
}

/// Where the sound part of a log ends.
struct SoundEnd {
    segment: Arc<Segment>,
    walk: Walk,
    /// Why the log cannot go on in this segment, if it cannot.
    cut: Option<&'static str>,
}

/// What is to be done about the control page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    Sound,
    /// The last sync failed, or nobody knows how it ended.
    Doubtful,
    /// There is none that can be used.
    New,
}

/// All that recovery decides before it changes anything.
struct Decision {
    chain: Chain,
    sequences: Vec<u64>,
    page: Page,
    end: SoundEnd,
    durable: Address,
    temporaries: Vec<PathBuf>,
    /// Segments that are not part of the log, highest first.
    strays: Vec<u64>,
    steps: Vec<MendStep>,
}

struct Recovery<'a> {
    storage: &'a Arc<dyn Storage>,
    dir: &'a Path,
    settings: LogSettings,
    incarnation: u64,
    by_force: bool,
}

impl<'a> Recovery<'a> {
    fn new(
        storage: &'a Arc<dyn Storage>,
        dir: &'a Path,
        settings: &LogSettings,
        incarnation: u64,
        by_force: bool,
    ) -> Self {
        // Whatever the reader prefers: a bad disk must not kill who mends a log.
        let settings = LogSettings { reading: Reading::Pread, ..settings.clone() };
        Self { storage, dir, settings, incarnation, by_force }
    }

    fn decide(&self) -> Result<Decision> {
        let temporaries = self.temporaries()?;
        let chain = Chain::new(Arc::clone(self.storage), self.dir, &self.settings);
        let sequences = chain.refresh()?;
        let newest = chain.segment(sequences[sequences.len() - 1])?;
        if !self.by_force {
            self.check_nothing_durable_is_missing(&newest)?;
        }
        let page = self.page(&newest)?;
        let (marked, mark) = newest_mark(&chain, &sequences)?;
        let end = self.sound_end(&chain, &sequences, marked, mark)?;
        let durable = Address::new(sequences[marked], mark.position.max(PAGE));
        let found = list_segments(&**self.storage, self.dir)?;
        let is_part = |s: &u64| *s <= end.segment.sequence() && sequences.contains(s);
        let strays =
            found.into_iter().rev().filter(|s| *s >= sequences[0] && !is_part(s)).collect();
        let steps = Vec::new();
        let mut decision =
            Decision { chain, sequences, page, end, durable, temporaries, strays, steps };
        decision.steps = self.steps(&decision)?;
        Ok(decision)
    }

    /// The decision in words.
    fn steps(&self, decision: &Decision) -> Result<Vec<MendStep>> {
        let file_len = |path: &Path| self.storage.stat(path).map_or(0, |stat| stat.allocated);
        let step = |mend, path: PathBuf, why: &str| {
            let (bytes, why) = (file_len(&path), why.to_owned());
            MendStep { mend, path, position: 0, bytes, why }
        };
        let mut steps = Vec::new();
        for path in &decision.temporaries {
            steps.push(step(Mend::RemoveTemporary, path.clone(), "somebody ended before using it"));
        }
        if decision.page == Page::New {
            let why = "it is missing or damaged, and holds nothing that the segments do not say";
            steps.push(step(Mend::NewControl, self.dir.join("control"), why));
        }
        for sequence in &decision.strays {
            let path = self.dir.join(names::segment(*sequence));
            steps.push(step(Mend::SetAside, path, "it is not reached by what is sound of the log"));
        }
        let (segment, position) = (&decision.end.segment, decision.end.walk.position);
        if let Some(why) = decision.end.cut {
            let bytes = last_written(segment, position)? - position;
            let path = segment.path().to_path_buf();
            steps.push(MendStep { mend: Mend::Cut, path, position, bytes, why: why.into() });
        }
        let end = Address::new(segment.sequence(), position);
        if decision.page == Page::Doubtful && end > decision.durable {
            let why = "a sync failed, or its outcome is unknown";
            let path = self.dir.join(names::segment(decision.durable.sequence()));
            let position = decision.durable.position();
            let mend = Mend::Save;
            steps.push(MendStep { mend, path, position, bytes: 0, why: why.into() });
        }
        Ok(steps)
    }

    fn carry_out(&self, decision: Decision) -> Result<Vec<MendStep>> {
        let Decision { chain, page, end, durable, temporaries, strays, steps, .. } = decision;
        for path in temporaries {
            self.storage.unlink(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        let control = self.control(page)?;
        let maker = Maker { control: control.id(), incarnation: self.incarnation };
        for sequence in strays {
            self.put_away(sequence)?;
        }
        let (new_end, durable) = if page == Page::Doubtful {
            // Nobody knows how the last sync ended: everything since the mark is written anew.
            let found = Address::new(end.segment.sequence(), end.walk.position);
            let (cut, carried) = collect_between(&chain, durable, found)?;
            let moved = self.supersede(&cut, &carried, maker)?;
            (moved, moved.tail)
        } else if end.cut.is_some() {
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
        control.set(at::INCARNATION, self.incarnation)?;
        control.rouse();
        Ok(steps)
    }

    /// Leftovers: temporary files, whose makers are dead or wait for this recovery, and indexes whose
    /// segment is not there, so that the next segment of that number finds its index's name free.
    fn temporaries(&self) -> Result<Vec<PathBuf>> {
        let names = self.storage.list(self.dir).map_err(|e| Error::io("list", self.dir, e))?;
        let has_segment = |sequence| names.contains(&names::segment(sequence));
        let alone = |name: &str| names::parse_index(name).is_some_and(|s| !has_segment(s));
        let left = names.iter().filter(|name| name.ends_with(".tmp") || alone(name));
        Ok(left.map(|name| self.dir.join(name)).collect())
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

    /// Whether there is a control page that can be used, and whether the last sync failed or never
    /// ended.
    fn page(&self, newest: &Segment) -> Result<Page> {
        let mark = newest.mark().filter(|mark| mark.incarnation == self.incarnation);
        let replaced = || Error::LockFileReplaced { path: self.dir.join("control") };
        match Control::open_unmapped(&**self.storage, self.dir, self.settings.generation) {
            Ok(control) if mark.is_none_or(|mark| mark.control == control.id()) => {
                // A sync lock that is held now was held by the dead: nobody else could be here.
                let doubtful = control.is_latched() || control.word_value(at::SYNC_LOCK) != 0;
                Ok(if doubtful { Page::Doubtful } else { Page::Sound })
            }
            Ok(_) => Err(replaced()),
            Err(Error::Newer { path, position, what }) => {
                Err(Error::Newer { path, position, what })
            }
            Err(_) if mark.is_some() => Err(replaced()),
            Err(_) => Ok(Page::New),
        }
    }

    /// The control page, made anew where there is none that can be used.
    fn control(&self, page: Page) -> Result<Control> {
        let (storage, dir) = (&**self.storage, self.dir);
        let (log, access) = (self.settings.generation, write_access(&self.settings));
        if page == Page::New {
            Control::create(storage, dir, log, self.settings.file_mode)?;
            Control::publish(storage, dir)?;
        }
        Control::open(storage, dir, log, access)
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
            let (walk, stopped) = walk_sound(&segment, limit, durable, check, self.by_force)?;
            let whole = limit.is_some_and(|limit| walk.position == limit);
            if !whole {
                if let Some(before) = before.filter(|_| !is_introduced(&segment, &walk)) {
                    return Ok(before);
                }
                let cut = match stopped {
                    Some(why) => Some(why),
                    None if limit.is_some() => Some("the log stops before the next segment"),
                    None if reads_zero(&segment, walk.position)? => None,
                    None => Some("bytes that belong to no block lie behind the end"),
                };
                return Ok(SoundEnd { segment, walk, cut });
            }
            before = Some(SoundEnd {
                segment,
                walk,
                cut: Some("what the next segment begins with is torn"),
            });
        }
        Err(Error::Corrupt { path: self.dir.into(), position: 0, what: "a log without an end" })
    }

    /// Let the log go on where it ends.
    fn go_on(&self, end: &SoundEnd, maker: Maker) -> Result<NewEnd> {
        let (storage, dir) = (&**self.storage, self.dir);
        let (access, settings) = (write_access(&self.settings), &self.settings);
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
        supersede(&**self.storage, self.dir, &self.settings, cut, carried, maker)
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
/// reported to whoever reads it, and what follows it stays. By force, the log is cut also there when
/// nothing follows.
fn walk_sound(
    segment: &Arc<Segment>,
    limit: Option<u64>,
    durable: u64,
    check: Check,
    by_force: bool,
) -> Result<(Walk, Option<&'static str>)> {
    let mut walk = Walk::new();
    let mut segment = Arc::clone(segment);
    let reached = |walk: &Walk| limit.is_some_and(|limit| walk.position >= limit);
    while !reached(&walk) {
        let position = walk.position;
        if segment.is_heavy() {
            segment = Arc::new(segment.afresh()?);
        }
        match sound_step(&segment, &mut walk, check) {
            Ok(Some(Step::End { .. })) => {
                walk.position = position;
                return Ok((walk, Some("the next segment is not there")));
            }
            Ok(Some(_)) => {}
            Ok(None) if position >= durable => return Ok((walk, None)),
            Err(bad) if matches!(bad.what, Malformed::Unknown(_)) => return Err(segment.error(bad)),
            Err(bad) if position >= durable => return Ok((walk, Some(said(bad)))),
            Ok(None) | Err(_) => {
                // The first block behind the mark will do: its header tells the next offset.
                let limit = durable + HEADER_LEN as u64;
                let Some(sound) = segment.next_sound(position + 8, limit) else {
                    if by_force {
                        return Ok((walk, Some("what was on the medium here cannot be read")));
                    }
                    return Err(unbridgeable(&segment, position));
                };
                walk.position = sound;
            }
        }
    }
    Ok((walk, None))
}

fn said(bad: Bad) -> &'static str {
    match bad.what {
        Malformed::Damaged(what) | Malformed::Unknown(what) => what,
        Malformed::Newer(_) => "a newer version",
    }
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
