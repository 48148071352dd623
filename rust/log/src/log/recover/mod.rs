//! Recovery: the first process of an incarnation repairs a log before any process writes to it.
//!
//! All writers of the last incarnation are gone, and the machine may have lost power: any
//! combination of the log's pages may be on disk. Below the durable mark a bad block is corruption,
//! which is reported and never cut. Above it the first bad block is the end of the log. The log is
//! cut at the head of that block's group, what follows is kept in quarantine, and a new segment
//! continues the log. The incarnation is stored last. A crash before that changes nothing, since
//! everything is decided again from the same bytes. See `docs/PROTOCOL.md`, "Recovery".
//!
//! | file | owns |
//! |---|---|
//! | `mod` | deciding, then doing, and reporting |
//! | `end` | the end of the valid part of the log |
//! | `page` | the control page, found or made |

mod end;
mod page;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::control::{at, flag};
use crate::format::segment::{Mark, Previous};
use crate::format::{FIRST_BLOCK, PAGE, names};
use crate::segment::index::{Index, IndexBuild};
use crate::segment::{Reading, Segment};
use crate::storage::Storage;

use super::append::RESERVE;
use super::chain::{Chain, Connected, segments_of};
use super::compact::is_replaced;
use super::control::Control;
use super::create::FIRST_ALLOCATION;
use super::guard::wait_for_flock;
use super::header_repair::bad_header;
use super::index_rebuild::bad_index;
use super::latch::publish_end;
use super::lost_offsets::{doubted, leaps};
use super::recovered_tail::RecoveredTail;
use super::repair::last_written;
use super::repair_report::{RepairKind, RepairStep};
use super::roll::quarantine;
use super::supersede::{CarriedBlock, Maker, NewEnd, TruncationPoint, collect_between, supersede};
use super::trim::trims_before;
use super::{LogSettings, Member, write_access};

pub use end::recovered_end;
pub(super) use end::sound_step;
use end::{SoundEnd, Unread, go_beyond_loss, newest_mark, sound_end};
use page::Page;

/// Recover a log unless that was done in this incarnation. Return the control page, open for
/// writing, if recovery needed it, and the log's end.
///
/// # Errors
/// `CorruptData` when the log cannot continue without losing what was on disk. `LockFileReplaced`
/// when the control file was removed or replaced in this incarnation. `UnsupportedVersion`,
/// `LockTimeout`, `SystemCallFailed`, `NoSpace`.
pub fn ensure(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    member: &dyn Member,
) -> Result<Option<(Control, Option<RecoveredTail>)>> {
    let recovered = recover(storage, dir, settings, member, false)?;
    Ok(recovered.map(|recovered| (recovered.control, recovered.known)))
}

/// Recover as opening a log for writing does, but also if data on disk is lost or the log's end is
/// unreadable. The log then ends before it. Returns what was done.
///
/// # Errors
/// As opening, but `CorruptData` only when nothing of the log can be read.
pub fn mend(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    member: &dyn Member,
) -> Result<Vec<RepairStep>> {
    let recovered = recover(storage, dir, settings, member, true)?;
    Ok(recovered.map_or_else(Vec::new, |recovered| recovered.steps))
}

fn recover(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    settings: &LogSettings,
    member: &dyn Member,
    by_force: bool,
) -> Result<Option<Recovered>> {
    let incarnation = member.incarnation();
    if is_current(&**storage, dir, settings, incarnation) {
        return Ok(None);
    }
    let path = dir.join("lock");
    let file = member.open_to_lock(&**storage, &path).doing("open", &path)?;
    wait_for_flock(&*file, &path, settings.lock_timeout)?;
    let recovered = if is_current(&**storage, dir, settings, incarnation) {
        Ok(None)
    } else {
        let recovery = Recovery::new(storage, dir, settings, incarnation, by_force);
        pass(Point::RecoverLocked);
        recovery.decide().and_then(|decision| recovery.carry_out(decision)).map(Some)
    };
    // The lock also ends with the descriptor.
    let _ = file.unlock();
    recovered
}

/// The steps that [`mend`] would take.
#[derive(Debug)]
pub struct Planned {
    /// Its steps, in their order; indexes of sealed segments included.
    pub steps: Vec<RepairStep>,
    /// Offsets with which each topic would continue, by topic number.
    pub ends: Vec<(u32, u64)>,
}

/// Find out what [`mend`] would do for the first process of an incarnation, without doing it.
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
    let (chain, end) = (&decision.chain, &decision.end);
    let part = decision.sequences.iter().copied();
    let part = part.filter(|sequence| *sequence <= end.segment.sequence());
    if end.cut.is_none() && decision.page != Page::Doubtful {
        steps.extend(leaps(&end.segment, &end.walk));
    }
    steps.extend(doubted(dir, &end.walk.state));
    for sequence in part {
        let segment = chain.segment(sequence)?;
        steps.extend(bad_header(&segment)?);
        if sequence < end.segment.sequence() {
            steps.extend(bad_index(&**storage, dir, &segment));
        }
    }
    let state = decision.end.walk.state_beyond_damage();
    let topics = state.topics();
    let ends = topics.map(|(number, topic)| (number, topic.next)).collect();
    Ok(Planned { steps, ends })
}

/// A recovered log.
struct Recovered {
    control: Control,
    steps: Vec<RepairStep>,
    known: Option<RecoveredTail>,
}

fn is_current(storage: &dyn Storage, dir: &Path, settings: &LogSettings, incarnation: u64) -> bool {
    Control::incarnation_in(storage, dir, settings.generation) == Some(incarnation)
}

/// All decisions of a recovery, made before it changes anything.
struct Decision {
    chain: Chain,
    sequences: Vec<u64>,
    page: Page,
    end: SoundEnd,
    durable: Address,
    temporaries: Vec<PathBuf>,
    /// Segments that are not part of the log, highest first.
    strays: Vec<u64>,
    /// Those of them that were part of it, or are connected with it.
    cut_off: Vec<u64>,
    steps: Vec<RepairStep>,
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
        // Whatever the reader prefers: a bad disk must not kill a process that repairs a log.
        let settings = LogSettings { reading: Reading::Pread, ..settings.clone() };
        Self { storage, dir, settings, incarnation, by_force }
    }

    fn decide(&self) -> Result<Decision> {
        match self.decide_by(Unread::Fails) {
            // Everything is read again, from the beginning: the disk may now return what it refused
            // before, and only unreadable data is lost.
            Err(_) if self.by_force => self.decide_by(Unread::Ends),
            decided => decided,
        }
    }

    fn decide_by(&self, unread: Unread) -> Result<Decision> {
        // Listed once: no other process changes the directory.
        let names = self.storage.list(self.dir).doing("list", self.dir)?;
        let found = segments_of(&names);
        let temporaries = self.temporaries(&names, &found);
        let chain = Chain::new(Arc::clone(self.storage), self.dir, &self.settings);
        // A forced repair reads all of the log.
        let Connected { whole: sequences, torn } = if self.by_force {
            chain.connected(&found)?
        } else {
            chain.since_last_incarnation(&found)?
        };
        let newest = chain.segment(sequences[sequences.len() - 1])?;
        let lacks_durable = lacks_durable(&newest)?;
        if lacks_durable && !self.by_force {
            let path = self.dir.join(names::segment(newest.sequence() + 1));
            let what = "the segment is missing or corrupt, and it was on disk";
            return Err(Error::corrupt(&path, 0, what));
        }
        let page = self.page(&newest)?;
        let (marked, mark) = newest_mark(&chain, &sequences)?;
        let mut end = sound_end(&**self.storage, &chain, &sequences, (marked, mark), unread)?;
        let durable = Address::new(sequences[marked], mark.position.max(FIRST_BLOCK));
        let last = end.segment.sequence();
        let is_part = |s: &u64| *s <= last && sequences.contains(s);
        let strays: Vec<_> =
            found.into_iter().rev().filter(|s| *s >= sequences[0] && !is_part(s)).collect();
        let cut_off: Vec<_> = sequences.iter().copied().filter(|s| *s > last).chain(torn).collect();
        if lacks_durable || end.is_unread() {
            go_beyond_loss(&chain, &strays, &mut end);
        }
        let steps = Vec::new();
        let mut decision =
            Decision { chain, sequences, page, end, durable, temporaries, strays, cut_off, steps };
        decision.steps = self.steps(&decision)?;
        Ok(decision)
    }

    /// Describe the decision as steps.
    fn steps(&self, decision: &Decision) -> Result<Vec<RepairStep>> {
        let file_len = |path: &Path| self.storage.stat(path).map_or(0, |stat| stat.allocated);
        let step = |mend, path: PathBuf, why: &str| {
            let (bytes, why) = (file_len(&path), why.to_owned());
            RepairStep { mend, path, position: 0, bytes, why }
        };
        let mut steps = Vec::new();
        for path in &decision.temporaries {
            steps.push(step(
                RepairKind::RemoveTemporary,
                path.clone(),
                "a process ended before using it",
            ));
        }
        if decision.page == Page::New {
            let why = "it is missing or corrupt, and can be rebuilt from the segments";
            steps.push(step(RepairKind::NewControl, self.dir.join("control"), why));
        }
        for sequence in &decision.strays {
            let path = self.dir.join(names::segment(*sequence));
            let (mend, why) = if is_replaced(&decision.chain, &decision.sequences, *sequence) {
                (RepairKind::RemoveTemporary, "a compacted segment replaced it")
            } else {
                (RepairKind::SetAside, "the valid part of the log does not reach it")
            };
            steps.push(step(mend, path, why));
        }
        let (segment, position) = (&decision.end.segment, decision.end.walk.position);
        if let Some(why) = decision.end.cut {
            let behind = match last_written(segment, position) {
                Err(Error::SystemCallFailed { .. }) if self.by_force => segment.map().len(),
                behind => behind?,
            };
            let bytes = behind - position;
            let path = segment.path().to_path_buf();
            steps.push(RepairStep {
                mend: RepairKind::Cut,
                path,
                position,
                bytes,
                why: why.into(),
            });
        }
        // A segment that supersedes begins with offsets beyond all corruption.
        if decision.end.cut.is_some() || decision.page == Page::Doubtful {
            steps.extend(leaps(segment, &decision.end.walk));
        }
        let end = Address::new(segment.sequence(), position);
        if decision.page == Page::Doubtful && end > decision.durable {
            let why = "a sync failed, or its outcome is unknown";
            let path = self.dir.join(names::segment(decision.durable.sequence()));
            let position = decision.durable.position();
            let mend = RepairKind::Save;
            steps.push(RepairStep { mend, path, position, bytes: 0, why: why.into() });
        }
        Ok(steps)
    }

    fn carry_out(&self, decision: Decision) -> Result<Recovered> {
        let Decision { chain, sequences, page, end, durable, temporaries, strays, cut_off, steps } =
            decision;
        let (cut_off, loose): (Vec<_>, Vec<_>) =
            strays.into_iter().partition(|sequence| cut_off.contains(sequence));
        pass(Point::RecoverDecided);
        for path in temporaries {
            self.storage.unlink(&path).doing("remove", &path)?;
        }
        pass(Point::RecoverSwept);
        let control = self.control(page)?;
        pass(Point::RecoverControl);
        let maker = Maker { control: control.id(), incarnation: self.incarnation };
        let loose = self.remove_replaced(&chain, &sequences, loose)?;
        self.put_away(&loose)?;
        let moved = if page == Page::Doubtful {
            // The result of the last sync is unknown: everything since the mark is written again.
            let found = Address::new(end.segment.sequence(), end.walk.position);
            let (cut, carried) = collect_between(&chain, durable, found)?;
            let moved = self.supersede(&cut, &carried, maker)?;
            Some((moved, moved.tail))
        } else if end.cut.is_some() {
            Some((self.supersede(&cut_at(&end), &[], maker)?, durable))
        } else {
            None
        };
        // Only after another segment holds the chain together: a death in between must leave the
        // next recovery what this one found.
        self.put_away(&cut_off)?;
        let (new_end, durable, known) = match moved {
            Some((end, durable)) => (end, durable, None),
            None => {
                let (new_end, known) = self.go_on(end, maker)?;
                (new_end, durable, known)
            }
        };
        pass(Point::RecoverEnd);
        if planted(Canary::RecoveryNotCrashSafe) {
            control.set(at::INCARNATION, self.incarnation)?;
        }
        publish_end(&control, new_end, durable)?;
        pass(Point::RecoverPublished);
        // All that was acknowledged in interval mode lies before that end.
        control.set(at::WANTED, new_end.tail.0)?;
        // Unknown bits are corruption, or from a newer version whose processes are gone.
        control.set_flag(!flag::DELETED, false)?;
        control.set(at::APPEND_LOCK, 0)?;
        control.set(at::SYNC_LOCK, 0)?;
        control.set(at::WAITING, 0)?;
        // These were true of the log before it. The shipper compares this one with its place.
        for word in [at::REMOTE, at::SHIPPED, at::UNSHIPPED] {
            control.set(word, 0)?;
        }
        pass(Point::RecoverLocks);
        control.set(at::INCARNATION, self.incarnation)?;
        pass(Point::RecoverDone);
        control.wake_all();
        Ok(Recovered { control, steps, known })
    }

    /// List leftovers: temporary files, whose makers are dead or wait for this recovery, and
    /// indexes without a segment. Then the next segment of that number finds its index's name free.
    fn temporaries(&self, names: &[String], segments: &[u64]) -> Vec<PathBuf> {
        let has_segment = |sequence| segments.binary_search(&sequence).is_ok();
        let alone = |name: &str| names::parse_index(name).is_some_and(|s| !has_segment(s));
        let is_temporary = |name: &str| name.ends_with(".tmp") && names::is_log_file(name);
        let left = names.iter().filter(|name| is_temporary(name) || alone(name));
        left.map(|name| self.dir.join(name)).collect()
    }

    /// Let the log continue at its end.
    fn go_on(&self, end: SoundEnd, maker: Maker) -> Result<(NewEnd, Option<RecoveredTail>)> {
        let (storage, dir) = (&**self.storage, self.dir);
        let (access, settings) = (write_access(&self.settings), &self.settings);
        let sequence = end.segment.sequence();
        let reach = settings.segment_bytes;
        let segment = Segment::open(storage, dir, settings.generation, sequence, access, reach)?;
        let position = end.walk.position;
        let stat = segment.file().stat().doing("stat", segment.path())?;
        let wanted = stat.len.max(position + RESERVE);
        let wanted =
            wanted.max(FIRST_ALLOCATION.min(settings.segment_bytes)).next_multiple_of(PAGE);
        // Also if it looks allocated: a power failure may have kept the length and lost the blocks.
        segment.file().allocate(wanted).doing("allocate", segment.path())?;
        let (bytes, mode) = (settings.segment_bytes, settings.file_mode);
        let indexed = match &end.noted {
            Some(IndexBuild { entries, .. }) => {
                Index::replace(storage, dir, &segment, bytes, entries, mode)?;
                entries.len() as u64
            }
            None => Index::build(&end.segment).save(storage, dir, &segment, bytes, mode)?,
        };
        pass(Point::RecoverIndex);
        let before = segment.mark().unwrap_or_default();
        let Maker { control, incarnation } = maker;
        let serial = before.serial.wrapping_add(1);
        let mark = Mark { serial, control, incarnation, ..before };
        segment.set_mark(&mark)?;
        let tail = Address::new(sequence, position);
        let trimmed = trims_before(tail, &end.walk.state, &end.segment);
        let (salt, walk) = (segment.salt(), end.walk);
        let known = end.noted.map(|noted| RecoveredTail { salt, walk, noted });
        let allocated = Address::new(sequence, wanted);
        Ok((NewEnd { tail, allocated, indexed, trimmed }, known))
    }

    fn supersede(
        &self,
        cut: &TruncationPoint,
        carried: &[CarriedBlock],
        maker: Maker,
    ) -> Result<NewEnd> {
        supersede(&**self.storage, self.dir, &self.settings, cut, carried, maker)
    }

    /// Remove the segments that compaction replaced; return the others.
    fn remove_replaced(&self, chain: &Chain, of_log: &[u64], strays: Vec<u64>) -> Result<Vec<u64>> {
        let replaced = |sequence: &u64| is_replaced(chain, of_log, *sequence);
        let (replaced, others): (Vec<_>, Vec<_>) = strays.into_iter().partition(replaced);
        for sequence in replaced {
            // The replacement's name is on disk before these are removed.
            self.storage.sync_dir(self.dir).doing("sync", self.dir)?;
            let path = self.dir.join(names::segment(sequence));
            self.storage.unlink(&path).doing("remove", &path)?;
            let _ = self.storage.unlink(&self.dir.join(names::index(sequence)));
            pass(Point::CompactRemoved);
        }
        Ok(others)
    }

    /// Move segments that are not part of the log to quarantine, each move synced; their bytes are
    /// kept.
    fn put_away(&self, sequences: &[u64]) -> Result<()> {
        for sequence in sequences {
            let path = self.dir.join(names::segment(*sequence));
            quarantine(&**self.storage, &path, self.settings.file_mode)?;
            // An index without its segment is never read.
            let _ = self.storage.unlink(&self.dir.join(names::index(*sequence)));
            for dir in [self.dir.join("quarantine"), self.dir.to_path_buf()] {
                self.storage.sync_dir(&dir).doing("sync", &dir)?;
            }
            pass(Point::RecoverStray);
        }
        Ok(())
    }
}

/// Return true when a mark says that the next segment was on disk, and there is none: that is a
/// loss, not a torn tail.
fn lacks_durable(newest: &Segment) -> Result<bool> {
    Ok(newest.read_mark()?.is_some_and(|mark| mark.succeeded))
}

fn cut_at(end: &SoundEnd) -> TruncationPoint {
    let (sequence, salt) = (end.segment.sequence(), end.segment.salt());
    let previous = Previous { sequence, salt, end: end.walk.position };
    TruncationPoint { previous, state: end.walk.state_beyond_damage().into_owned(), durable: false }
}
