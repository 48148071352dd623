//! Making the header of a segment anew that lost it, where what it said can be proven.
//!
//! Only for a segment in the middle of a log, before the durable mark: nobody writes to it any more.
//! Its successor names its salt, which its own blocks confirm by their checksums; an end block of its
//! predecessor says what it continues. What is left, the time from which its blocks count, either
//! makes the old checksum come out right, or the index and the successor's snapshot tell it, and
//! agree. Anything less proves nothing, and the segment stays as it is.
//!
//! No byte of the old file is written: a copy with the right header takes its name in one step, and
//! the page as it was found goes to `quarantine/`. See `docs/PROTOCOL.md`, "Verify and repair".

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::block::{Kind, flag};
use crate::format::segment::{HEADER_LEN, Previous, Replaces, SegmentHeader};
use crate::format::state::End;
use crate::format::{DecodeError, PAGE, names, u32_at, u64_at};
use crate::segment::index::{Index, write_file};
use crate::segment::walk::Step;
use crate::segment::{Check, Segment};
use crate::storage::{OpenMode, Storage};

use super::Log;
use super::chain::Chain;
use super::guard::wait_for_flock;
use super::repair::last_written;
use super::repair_report::{RepairKind, RepairStep};
use super::roll::quarantine_dir;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// A segment that lost its header, opened with the one that it had.
pub struct Reheaded {
    pub segment: Arc<Segment>,
    pub step: RepairStep,
}

/// Segments before the durable one whose headers are damaged, with those that they had.
///
/// # Errors
/// `Corrupt` for one whose header cannot be proven.
pub fn headless(
    storage: &dyn Storage,
    chain: &Chain,
    sequences: &[u64],
    durable: u64,
) -> Result<Vec<Reheaded>> {
    let mut found = Vec::new();
    for (i, sequence) in sequences.iter().enumerate() {
        let error = match chain.header(*sequence) {
            Err(error @ Error::Corrupt { position: 0, .. }) => error,
            Err(other) => return Err(other),
            Ok(_) => continue,
        };
        let path = chain.dir().join(names::segment(*sequence));
        let next = sequences.get(i + 1).filter(|_| *sequence < durable);
        let Some(next) = next else { return Err(error) };
        let before = i.checked_sub(1).map(|i| sequences[i]);
        let Ok(segment) = prove(storage, chain, before, *sequence, *next) else {
            return Err(error);
        };
        let why = "the header is damaged, and what it said is proven by its neighbours".to_owned();
        let bytes = storage.stat(&path).map_or(0, |stat| stat.allocated);
        let step = RepairStep { mend: RepairKind::NewHeader, path, position: 0, bytes, why };
        found.push(Reheaded { segment, step });
    }
    Ok(found)
}

/// The segment with the header that it had.
fn prove(
    storage: &dyn Storage,
    chain: &Chain,
    before: Option<u64>,
    sequence: u64,
    next: u64,
) -> Result<Arc<Segment>> {
    let path = chain.dir().join(names::segment(sequence));
    let unproven = || {
        let what = DecodeError::Damaged("a header of which not all can be proven");
        Error::malformed(&path, 0, what)
    };
    let next = chain.segment(next)?;
    let told = next.header().previous.filter(|told| told.sequence == sequence);
    let told = told.ok_or_else(unproven)?;
    let file = storage.open(&path, OpenMode::Read).map_err(|e| Error::io("open", &path, e))?;
    let mut page = [0; HEADER_LEN];
    // Where it cannot be read it says nothing; the neighbours may say all.
    let _ = file.read_at(&mut page, 0);
    let word = |i: usize| u64_at(&page, 32 + 8 * i);
    let base = SegmentHeader {
        log: next.header().log,
        sequence,
        salt: told.salt,
        supersedes: false,
        previous: None,
        replaces: None,
        time_base_us: u64_at(&page, 88) as i64,
    };
    let named = named_by(chain, before, &base, word(4))?;
    let continued = Previous { sequence: word(2), salt: word(3), end: word(4) };
    let superseding = SegmentHeader { supersedes: true, previous: Some(continued), ..base.clone() };
    let replaces = Some(Replaces { first: word(5), clean_us: word(8) as i64 });
    let compacted = [superseding.clone(), base.clone()].map(|it| SegmentHeader { replaces, ..it });
    let by_checksum = |header: &SegmentHeader| {
        let bytes = header.encode();
        u32_at(&bytes, HEADER_LEN - 4) == u32_at(&page, HEADER_LEN - 4)
            && SegmentHeader::decode(&bytes).is_ok()
    };
    let whole = {
        let mut by_page = named.iter().chain([&superseding]).chain(&compacted);
        by_page.find(|header| by_checksum(header)).cloned()
    };
    let open = |header: SegmentHeader| {
        let segment = Segment::without_map(path.clone(), Arc::clone(&file), header, 0)?;
        // Its own blocks bear the salt out.
        segment.opening()?;
        Ok::<_, Error>(segment)
    };
    let header = match (whole, named) {
        (Some(header), _) => header,
        (None, Some(header)) => {
            let segment = open(header.clone())?;
            let time_base_us = time_base(storage, chain.dir(), &segment, &next, told.end);
            SegmentHeader { time_base_us: time_base_us.ok_or_else(unproven)?, ..header }
        }
        (None, None) => return Err(unproven()),
    };
    open(header).map(Arc::new)
}

/// The header of a segment that a roll made, or of a log's first one: what it continues is what an
/// end block says that names it.
fn named_by(
    chain: &Chain,
    before: Option<u64>,
    header: &SegmentHeader,
    end_found: u64,
) -> Result<Option<SegmentHeader>> {
    let Some(before) = before else {
        return Ok((header.sequence == 0).then(|| header.clone()));
    };
    let before = chain.segment(before)?;
    let marked = before.mark().map_or(PAGE, |mark| mark.position);
    let names = |end: &u64| {
        let block = before.block(*end, Check::Full).ok().flatten();
        let own = block.filter(|block| block.header.kind == Kind::End);
        let named = own.and_then(|block| End::decode(before.body(&block)).ok());
        named == Some(End { sequence: header.sequence, salt: header.salt })
    };
    let end = [marked, end_found].into_iter().find(|end| end % 8 == 0 && names(end));
    let previous =
        end.map(|end| Previous { sequence: before.sequence(), salt: before.salt(), end });
    Ok(previous.map(|previous| SegmentHeader { previous: Some(previous), ..header.clone() }))
}

/// The time from which a segment's blocks count, as index and successor tell. They hold the highest
/// timestamp of a topic at some block; where that was raised in this segment, and no record brought a
/// time of its own, it is the time looked for and the relative one of the topic's block before, for
/// those never fall. `None` where nothing tells, or what tells disagrees.
fn time_base(
    storage: &dyn Storage,
    dir: &Path,
    segment: &Segment,
    next: &Segment,
    end: u64,
) -> Option<i64> {
    let began = segment.opening().ok()?;
    let entries = Index::load(storage, dir, segment).unwrap_or_default();
    let entries: BTreeMap<_, _> =
        entries.iter().map(|entry| ((entry.position, entry.topic), entry.highest_ns)).collect();
    let (mut walk, mut head) = (began.clone(), PAGE);
    let (mut last, mut told): (BTreeMap<u32, u64>, BTreeSet<i64>) = Default::default();
    let mut hear = |topic: u32, at: Option<&u64>, highest_ns: i64| {
        let known = began.state.topic(topic).map_or(i64::MIN, |topic| topic.highest_ns);
        if let Some(time) = at.filter(|_| highest_ns > known) {
            told.insert(highest_ns / 1000 - *time as i64);
        }
    };
    let mut light: Option<Segment> = None;
    while walk.position < end {
        let segment = light.as_ref().unwrap_or(segment);
        if segment.exceeds_cache() {
            light = Some(segment.reopen_empty().ok()?);
            continue;
        }
        let block = match walk.step(segment, Check::Header) {
            Ok(Some(Step::Data { block, .. })) => block,
            Ok(Some(_)) => continue,
            Ok(None) | Err(_) => return None,
        };
        let header = &block.header;
        head = if header.is_member() { head } else { block.position };
        if let Some(highest) = entries.get(&(head, header.topic)) {
            hear(header.topic, last.get(&header.topic), *highest);
        }
        if header.flags & flag::EVENT_TIME != 0 {
            // Its highest timestamp may be anybody's.
            return None;
        }
        last.insert(header.topic, header.time);
    }
    for (topic, state) in next.opening().ok()?.state.topics() {
        hear(topic, last.get(&topic), state.highest_ns);
    }
    told.first().copied().filter(|_| told.len() == 1)
}

/// Put a copy with the right header in the place of a segment.
fn put_in_place(storage: &dyn Storage, dir: &Path, segment: &Segment, mode: u32) -> Result<()> {
    let path = segment.path();
    let failed = |e| Error::io("copy", path, e);
    let mut page = vec![0; PAGE as usize];
    let _ = segment.file().read_at(&mut page, 0);
    keep(storage, path, &page, mode)?;
    page[..HEADER_LEN].copy_from_slice(&segment.header().encode());
    let temporary = dir.join(format!("{}.tmp", names::segment(segment.sequence())));
    let end = last_written(segment, PAGE)?.next_multiple_of(PAGE);
    write_file(storage, &temporary, &page, end, mode)?;
    let copy = storage.open(&temporary, OpenMode::ReadWrite).map_err(failed)?;
    let mut piece = vec![0; PIECE];
    let mut at = PAGE;
    let there = end.min(segment.file().stat().map_err(failed)?.len);
    while at < there {
        let wanted = piece.len().min((there - at) as usize);
        let got = segment.file().read_at(&mut piece[..wanted], at).map_err(failed)?;
        if got < wanted {
            return Err(segment.ends_at(at + got as u64));
        }
        copy.write_at(&piece[..got], at).map_err(failed)?;
        at += got as u64;
    }
    copy.sync_data().map_err(failed)?;
    storage.rename_over(&temporary, path).map_err(failed)?;
    storage.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

/// Keep the first page as it was found.
fn keep(storage: &dyn Storage, path: &Path, page: &[u8], mode: u32) -> Result<()> {
    let dir = quarantine_dir(storage, path, mode)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept = storage.list(&dir).map_err(|e| Error::io("list", &dir, e))?;
    let free = |n: &u32| !kept.contains(&format!("{name}.header.{n}"));
    let Some(n) = (0u32..).find(free) else { return Ok(()) };
    let target = dir.join(format!("{name}.header.{n}"));
    write_file(storage, &target, page, PAGE, mode)?;
    let file = storage.open(&target, OpenMode::ReadWrite);
    file.and_then(|file| file.sync_data()).map_err(|e| Error::io("sync", &target, e))?;
    storage.sync_dir(&dir).map_err(|e| Error::io("sync", &dir, e))
}

impl Log {
    fn headless(&self) -> Result<Vec<Reheaded>> {
        let durable = self.durable().unwrap_or_default().sequence();
        headless(&*self.storage, &self.chain, &self.chain.refresh()?, durable)
    }

    /// What [`Log::mend_headers`] would do.
    ///
    /// # Errors
    /// `Corrupt` for a damaged header that cannot be proven, `Io`.
    pub fn headers_to_mend(&self) -> Result<Vec<RepairStep>> {
        Ok(self.headless()?.into_iter().map(|reheaded| reheaded.step).collect())
    }

    /// Make the headers of segments anew that lost them; says what was done.
    ///
    /// # Errors
    /// As [`Log::headers_to_mend`]; `ReadOnly`, `NoSpace`, `LockTimeout`.
    pub fn mend_headers(&self) -> Result<Vec<RepairStep>> {
        let (_, member) = self.writing()?;
        member.check()?;
        if self.headless()?.is_empty() {
            return Ok(Vec::new());
        }
        // One at a time, as recovery, which removes temporary files.
        let path = self.dir.join("lock");
        let lock = self.storage.open(&path, OpenMode::ReadWrite);
        let lock = lock.map_err(|e| Error::io("open", &path, e))?;
        wait_for_flock(&*lock, &path, self.settings.lock_timeout)?;
        let found = self.headless()?;
        for reheaded in &found {
            let (storage, mode) = (&*self.storage, self.settings.file_mode);
            put_in_place(storage, &self.dir, &reheaded.segment, mode)?;
        }
        self.chain.forget();
        Ok(found.into_iter().map(|reheaded| reheaded.step).collect())
    }
}
