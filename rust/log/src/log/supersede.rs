//! A segment that supersedes: how a log continues after a cut.
//!
//! Nothing is truncated and nothing is overwritten. The new segment's header says where its
//! predecessor's content ends, and all after that point is no longer part of the log. Blocks
//! between that point and the log's end may be carried over: their bodies are copied unchanged,
//! checksums included, and their offsets stay. The whole file is synced before it gets its name. So
//! the log changes from the old end to the new one in a single step.

use std::path::Path;
use std::sync::Arc;

use crate::canary::{Canary, planted};
use crate::error::{Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::address::Address;
use crate::format::block::{BlockHeader, Kind, MAX_RELATIVE_TIME};
use crate::format::segment::{Mark, Previous, SegmentHeader};
use crate::format::state::LogState;
use crate::format::{FIRST_BLOCK, PAGE, checksum, names};
use crate::segment::create::{Builder, own_header, own_len};
use crate::segment::index::Index;
use crate::segment::walk::{SegmentWalker, Step, appended_ns};
use crate::segment::{Block, BlockError, Check, NO_BLOCK, Segment};
use crate::storage::Storage;

use super::append::RESERVE;
use super::chain::{Chain, list_segments};
use super::create::FIRST_ALLOCATION;
use super::trim::trims_before;
use super::{LogSettings, write_access};

/// Where a log is cut, and its state there.
#[derive(Clone, Debug)]
pub struct TruncationPoint {
    /// Segment and position after which everything is superseded.
    pub previous: Previous,
    /// The log's state at that point.
    pub state: LogState,
    /// True when everything before that point is on disk.
    pub durable: bool,
}

/// A block to be carried over.
#[derive(Clone, Debug)]
pub struct CarriedBlock {
    segment: Arc<Segment>,
    block: Block,
    first: u64,
}

/// The values of the segment's maker that its mark has.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// Id of the control file.
    pub control: u64,
    /// Incarnation of the store.
    pub incarnation: u64,
}

/// The new end of a log.
#[derive(Clone, Copy, Debug)]
pub struct NewEnd {
    /// Where the next block goes.
    pub tail: Address,
    /// How far the segment is allocated.
    pub allocated: Address,
    /// Entries in its index.
    pub indexed: u64,
    /// After this the segment records no trim.
    pub trimmed: Address,
}

/// Make the segment that continues a log at a cut.
///
/// # Errors
/// `SystemCallFailed`, `NoSpace`, `CorruptData` when a block to be carried is corrupt; then the log
/// is as it was.
pub fn supersede(
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
    cut: &TruncationPoint,
    carried: &[CarriedBlock],
    maker: Maker,
) -> Result<NewEnd> {
    let temporary = dir.join("supersede.tmp");
    let snapshot = cut.state.encode_since(&LogState::default());
    let content: u64 = carried.iter().map(|c| c.block.header.padded()).sum();
    let needs = FIRST_BLOCK + own_len(snapshot.len()) + content + RESERVE;
    let len = FIRST_ALLOCATION.min(settings.segment_bytes).max(needs).next_multiple_of(PAGE);
    let (mode, access) = (settings.file_mode, write_access(settings));
    let mut builder = Builder::new(storage, temporary, len, len, mode, access)?;
    let filled = builder
        .block(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot)
        .and_then(|()| fill(&mut builder, storage, dir, settings, cut, carried, maker));
    let header = match filled {
        Ok(header) => header,
        Err(error) => {
            builder.discard(storage);
            return Err(error);
        }
    };
    let path = dir.join(names::segment(header.sequence));
    pass(Point::SupersedeFilled);
    let named = storage.rename_new(builder.path(), &path);
    if let Err(e) = named {
        let error = Error::io("rename", builder.path(), e);
        builder.discard(storage);
        return Err(error);
    }
    pass(Point::SupersedeNamed);
    adopt(storage, dir, settings, &builder.into_segment(path, header))
}

/// Finish a superseding segment that has its name; also after another process gave it that name and
/// died.
///
/// # Errors
/// As [`supersede`]; the segment is part of the log then, and a caller can try this again.
pub fn adopt(
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
    segment: &Segment,
) -> Result<NewEnd> {
    if !planted(Canary::NoDirectorySync) {
        storage.sync_dir(dir).doing("sync", dir)?;
    }
    let mut walk = segment.opening()?.clone();
    while walk.step(segment, Check::Full).map_err(|bad| segment.error(bad))?.is_some() {}
    let len = segment.file().stat().doing("stat", segment.path())?.len;
    let (bytes, mode) = (settings.segment_bytes, settings.file_mode);
    let indexed = Index::build(segment).save(storage, dir, segment, bytes, mode)?;
    let at = |position| Address::new(segment.sequence(), position);
    let tail = at(walk.position);
    let trimmed = trims_before(tail, &walk.state, segment);
    Ok(NewEnd { tail, allocated: at(len & !7), indexed, trimmed })
}

/// Write the carried blocks after the snapshot, then header and mark; then sync all of it.
fn fill(
    builder: &mut Builder,
    storage: &dyn Storage,
    dir: &Path,
    settings: &LogSettings,
    cut: &TruncationPoint,
    carried: &[CarriedBlock],
    maker: Maker,
) -> Result<SegmentHeader> {
    let header = SegmentHeader {
        log: settings.generation,
        sequence: next_sequence(storage, dir)?,
        salt: builder.salt(),
        supersedes: true,
        previous: Some(cut.previous),
        replaces: None,
        time_base_us: time_base(carried).unwrap_or_else(|| storage.now_us()),
    };
    for block in carried {
        carry(builder, block, &cut.state, header.time_base_us)?;
    }
    // Everything in this file is on disk before it has a name. Earlier bytes may not be, so the
    // mark claims something only if the cut is at a durable point.
    let position = if cut.durable { builder.position() } else { 0 };
    let Maker { control, incarnation } = maker;
    let mark = Mark { serial: 1, position, control, incarnation, ..Mark::default() };
    builder.header(&header, &mark)?;
    builder.sync()?;
    Ok(header)
}

/// Choose the time from which a segment's block times count, so that the latest of these keeps its
/// own. If the clock jumped by years among them, and not all can, the early ones are moved up.
fn time_base(carried: &[CarriedBlock]) -> Option<i64> {
    let earliest = carried.iter().map(|c| c.segment.header().time_base_us).min()?;
    let data = carried.iter().filter(|c| c.block.header.kind == Kind::Data);
    let appended = data.map(|c| appended_ns(&c.segment, &c.block) / 1000);
    Some(appended.max().map_or(earliest, |latest| earliest.max(latest - MAX_RELATIVE_TIME as i64)))
}

fn carry(
    builder: &mut Builder,
    carried: &CarriedBlock,
    base: &LogState,
    time_base_us: i64,
) -> Result<()> {
    let CarriedBlock { segment, block, first } = carried;
    let body = segment.body(block);
    let damaged = |what| {
        let what = crate::format::DecodeError::Damaged(what);
        segment.error(crate::segment::BlockError { position: block.position, what })
    };
    if checksum::crc32(body) != block.header.body_crc {
        return Err(damaged("a block that cannot be carried over: its checksum does not match"));
    }
    let mut header: BlockHeader = block.header;
    if header.kind == Kind::Data {
        let appended_us = appended_ns(segment, block) / 1000;
        header.time = appended_us.saturating_sub(time_base_us).max(0) as u64;
        let base = base.topic(header.topic).map_or(0, |topic| topic.next);
        let relative = first.checked_sub(base).and_then(|offset| u32::try_from(offset).ok());
        header.offset =
            relative.ok_or_else(|| damaged("an offset that does not fit its segment"))?;
    }
    builder.block(&header, body)
}

/// Return a sequence that no segment has or had, according to the directory and the quarantine.
fn next_sequence(storage: &dyn Storage, dir: &Path) -> Result<u64> {
    let kept = storage.list(&dir.join("quarantine")).unwrap_or_default();
    let kept = kept.iter().filter_map(|name| names::parse_segment(name.get(..24)?));
    let highest = list_segments(storage, dir)?.into_iter().chain(kept).max();
    Ok(highest.map_or(0, |highest| highest + 1))
}

/// Return the log's state at a durable address, and the blocks from there to another one.
///
/// # Errors
/// `CorruptData` when one of them is corrupt, or a segment in between is missing.
pub fn collect_between(
    chain: &Chain,
    from: Address,
    to: Address,
) -> Result<(TruncationPoint, Vec<CarriedBlock>)> {
    let mut segment = chain.segment(from.sequence())?;
    let mut walk = segment.opening()?.clone();
    walk.go_to(&mut Arc::clone(&segment), from.position())?;
    let previous = Previous { sequence: from.sequence(), salt: segment.salt(), end: walk.position };
    let at_cut = walk.clone();
    let mut carried = Vec::new();
    while segment.sequence() != to.sequence() {
        let (next, end) = chain.successor(&segment)?;
        // Not further: all after the end was cut away, whatever it looks like.
        collect(&segment, &mut walk, end, &mut carried)?;
        segment = chain.segment(next)?;
        walk = segment.opening()?.clone();
    }
    collect(&segment, &mut walk, to.position(), &mut carried)?;
    let cut = TruncationPoint { previous, state: state_at(&at_cut, &carried), durable: true };
    Ok((cut, carried))
}

/// Return the log's state at a cut. If corruption hides a topic's last records before it, the
/// carried blocks tell with which offset it continues.
fn state_at(cut: &SegmentWalker, carried: &[CarriedBlock]) -> LogState {
    let mut state = cut.state_beyond_damage().into_owned();
    for (number, _) in cut.unsure() {
        let own =
            |c: &&CarriedBlock| c.block.header.kind == Kind::Data && c.block.header.topic == number;
        if let (Some(next), Some(topic)) = (carried.iter().find(own), state.topic_mut(number)) {
            topic.next = next.first;
        }
    }
    state
}

/// Collect the blocks of a segment from a position up to another, to be carried over. `walk` must
/// have reached the first; it ends at the second.
fn collect(
    segment: &Arc<Segment>,
    walk: &mut SegmentWalker,
    until: u64,
    into: &mut Vec<CarriedBlock>,
) -> Result<()> {
    while walk.position < until {
        let position = walk.position;
        let missing = BlockError { position, what: NO_BLOCK };
        let step = walk.step(segment, Check::Full).and_then(|step| step.ok_or(missing));
        match step.map_err(|bad| segment.error(bad))? {
            Step::Data { block, first, .. } => {
                into.push(CarriedBlock { segment: Arc::clone(segment), block, first });
            }
            Step::Other(block) if block.header.kind == Kind::Meta => {
                into.push(CarriedBlock { segment: Arc::clone(segment), block, first: 0 });
            }
            Step::Other(_) => {}
            Step::End { .. } => return Ok(()),
        }
    }
    Ok(())
}
