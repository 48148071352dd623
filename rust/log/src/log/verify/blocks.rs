//! Checking the blocks of a log in order: checksums, groups, offsets, snapshots, ends.
//!
//! Walks each segment as far as it must be valid and on to the first zero. Corruption is noted and
//! passed over. The lost records become known when a later block, or the next segment's snapshot,
//! says with which offset it begins. The place decides the severity: below the durable mark it is
//! corruption, above it the log may simply not have been recovered yet.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Result;
use crate::format::address::{Address, MAX_POSITION};
use crate::format::block::{HEADER_LEN, Kind};
use crate::format::state::{End, LogState};
use crate::format::{DecodeError, FIRST_BLOCK};
use crate::segment::walk::{SegmentWalker, Step};
use crate::segment::{Block, BlockError, Check, NO_BLOCK, Segment};

use super::super::data_block::DataBlock;
use super::hints::Hints;
use super::survey::Link;
use super::{Finding, Pass, Severity};

/// Bytes between two calls of `progress`.
const REPORT_EVERY: u64 = 1 << 20;

/// The state carried from one segment to the next.
#[derive(Default)]
pub(super) struct SegmentCarry {
    /// The log's state at the end of the previous segment; `None` if unknown.
    pub(super) state: Option<LogState>,
    /// Offset of the next record, by topic number.
    pub(super) expected: HashMap<u32, u64>,
    /// Offset that was found first, by topic number.
    pub(super) began: HashMap<u32, u64>,
    /// Corruption whose lost offsets are not known yet.
    pending: Option<PendingCorruption>,
    /// The segment that the previous segment's end block named.
    pub(super) named: Option<End>,
}

impl SegmentCarry {
    /// Return true when no corruption waits for the offsets that it lost.
    pub(super) fn is_sure(&self) -> bool {
        self.pending.is_none()
    }
}

/// Corruption whose lost offsets a later block will tell.
struct PendingCorruption {
    finding: Finding,
    /// True when it was noted, with the offsets of some topic.
    told: bool,
}

impl PendingCorruption {
    fn new(finding: Finding) -> Option<Self> {
        Some(Self { finding, told: false })
    }
}

/// A walk through one segment that continues after corruption.
struct Tour<'t> {
    segment: Arc<Segment>,
    walk: SegmentWalker,
    /// Everything before it must be there.
    must: u64,
    /// Everything before it was on disk.
    durable: u64,
    hints: Hints,
    group_end: u64,
    head: u64,
    /// The error of the previous block, until a valid one follows.
    last_bad: Option<DecodeError>,
    /// True while the walk is in the snapshots at the segment's beginning.
    opening: bool,
    carried: &'t mut SegmentCarry,
}

impl Pass<'_> {
    /// Walk all segments. Returns the log's state at its end.
    pub(super) fn blocks(&mut self, links: &[Link], marked: Address) -> Result<LogState> {
        let mut carried = SegmentCarry::default();
        let mut committed = Address::default();
        for link in links {
            if link.after_gap {
                // The next snapshot tells how much is missing.
                carried.state = None;
            }
            if let Some((end, bytes)) = self.proved(link, &mut carried) {
                committed = end;
                self.tell(bytes)?;
                continue;
            }
            let hint = carried.named.take().filter(|end| end.sequence == link.sequence);
            let made_up = hint.map(|end| self.made_up(link.sequence, end.salt));
            let segment = link.header.as_ref().or(made_up.as_ref()).and_then(|h| self.open(h));
            let Some(segment) = segment else {
                let what = "nothing in it can be checked: what ties its blocks to it is lost";
                self.flush(&mut carried);
                let found = Finding::new(Severity::Damage, &link.path, 0, what);
                carried.pending = PendingCorruption::new(found);
                carried.state = None;
                continue;
            };
            committed = self.segment(link, segment, marked, &mut carried)?;
        }
        self.flush(&mut carried);
        self.report.committed = committed.max(self.ends.map_or(committed, |ends| ends.tail));
        if self.state_at_durable.is_none() {
            self.state_at_durable.clone_from(&carried.state);
        }
        Ok(carried.state.unwrap_or_default())
    }

    pub(super) fn segment(
        &mut self,
        link: &Link,
        segment: Arc<Segment>,
        marked: Address,
        carried: &mut SegmentCarry,
    ) -> Result<Address> {
        let within = |address: Address| {
            let sequence = address.sequence();
            if sequence > link.sequence {
                u64::MAX
            } else if sequence == link.sequence {
                address.position()
            } else {
                0
            }
        };
        let tail = self.ends.map_or(0, |ends| within(ends.tail));
        let must = link.end.unwrap_or_else(|| tail.max(within(marked)).min(MAX_POSITION));
        let hints = Hints::load(&**self.storage, &self.subject.dir, &segment);
        let mut tour = Tour {
            segment,
            walk: SegmentWalker::new(),
            must,
            durable: within(marked),
            hints,
            group_end: 0,
            head: FIRST_BLOCK,
            last_bad: None,
            opening: true,
            carried,
        };
        self.tour(link, &mut tour)?;
        let position = tour.walk.position;
        if let Some(end) = link.end.filter(|_| link.named) {
            self.check_end(&mut tour, end);
        }
        self.report.note_all(tour.hints.verdict(link.end));
        tour.carried.state = Some(tour.walk.state);
        Ok(Address::new(link.sequence, position))
    }

    fn tour(&mut self, link: &Link, tour: &mut Tour<'_>) -> Result<()> {
        let mut told = 0;
        let durable = self.report.durable;
        loop {
            let position = tour.walk.position;
            if self.state_at_durable.is_none()
                && durable.sequence() == link.sequence
                && position >= durable.position()
            {
                self.state_at_durable = Some(tour.walk.state.clone());
            }
            if link.end.is_some_and(|end| position >= end) {
                break;
            }
            Segment::refresh(&mut tour.segment)?;
            let kind = if tour.opening { tour.segment.kind(position) } else { Ok(None) };
            if tour.opening && kind.is_ok_and(|kind| kind != Some(Kind::Snapshot)) {
                self.end_snapshots(tour);
            }
            match tour.walk.step(&tour.segment, Check::Full) {
                Ok(Some(Step::End { end, .. })) if position >= tour.must || ends_here(link) => {
                    tour.carried.named = Some(end);
                    tour.walk.position = position;
                    break;
                }
                Ok(Some(Step::Data { block, first, .. })) => self.data(tour, &block, first),
                Ok(Some(Step::Other(block) | Step::End { block, .. })) => self.other(tour, &block),
                Ok(None) if position >= tour.must => break,
                Ok(None) => {
                    if !self.bad(tour, BlockError { position, what: NO_BLOCK }) {
                        break;
                    }
                }
                Err(bad) => {
                    if !self.bad(tour, bad) {
                        break;
                    }
                }
            }
            if tour.walk.position - told >= REPORT_EVERY {
                self.tell(tour.walk.position - told)?;
                told = tour.walk.position;
            }
        }
        self.tell(tour.walk.position - told)
    }

    fn data(&mut self, tour: &mut Tour<'_>, block: &Block, first: u64) {
        let position = block.position;
        if block.header.is_member() {
            if position >= tour.group_end {
                self.odd(tour, position, "a part of a group whose beginning is missing");
            }
        } else {
            if position < tour.group_end {
                self.odd(tour, position, "a group that is not whole");
            }
            tour.head = position;
            tour.group_end = position + u64::from(block.header.group_len);
        }
        tour.last_bad = None;
        let topic = block.header.topic;
        tour.hints.saw(tour.head, topic, first);
        self.expect(tour, topic, first, first + u64::from(block.header.span), position);
        self.report.blocks += 1;
        self.report.records += u64::from(block.header.count);
        self.check_records(tour, block, first);
    }

    /// Check the records of a block: valid bytes may still be records that no reader understands.
    fn check_records(&mut self, tour: &Tour<'_>, block: &Block, first: u64) {
        let data = DataBlock { segment: Arc::clone(&tour.segment), block: *block, first };
        let Err(error) = data.check() else { return };
        let (topic, partition) = self.name(block.header.topic);
        let found = Finding::of_error(Severity::Damage, tour.segment.path(), &error);
        self.report.note(Finding {
            len: block.end() - block.position,
            topic,
            partition,
            offsets: Some(first..data.end()),
            ..found
        });
    }

    fn other(&mut self, tour: &mut Tour<'_>, block: &Block) {
        tour.last_bad = None;
        self.report.blocks += 1;
        // The early snapshot and its update count once both were read.
        let counts = !(tour.opening && block.header.kind == Kind::Snapshot);
        if counts && matches!(block.header.kind, Kind::Meta | Kind::Snapshot) {
            self.compare_state(tour, block.position);
        }
    }

    /// End the snapshots of a segment, which tell with which offsets it begins.
    fn end_snapshots(&mut self, tour: &mut Tour<'_>) {
        tour.opening = false;
        if self.bases.is_none() {
            let topics = tour.walk.state.topics();
            self.bases = Some(topics.map(|(number, topic)| (number, topic.next)).collect());
        }
        if tour.walk.position > FIRST_BLOCK {
            self.compare_state(tour, FIRST_BLOCK);
            // All topics are known here: no later block tells more about earlier corruption.
            self.flush(tour.carried);
        }
    }

    fn compare_state(&mut self, tour: &mut Tour<'_>, at: u64) {
        let topics: Vec<_> = tour.walk.state.topics().map(|(n, topic)| (n, topic.next)).collect();
        for (number, next) in topics {
            self.expect(tour, number, next, next, at);
        }
    }

    /// Compare the offsets of a topic's block, `first` up to `next`, with what came before.
    fn expect(&mut self, tour: &mut Tour<'_>, topic: u32, first: u64, next: u64, at: u64) {
        let expected = tour.carried.expected.insert(topic, next);
        if expected.is_none() {
            tour.carried.began.insert(topic, first);
        }
        let Some(expected) = expected.filter(|expected| *expected != first) else { return };
        let (name, partition) = self.name(topic);
        let finding = match &mut tour.carried.pending {
            Some(pending) => {
                pending.told = true;
                pending.finding.clone()
            }
            None if expected < first => {
                Finding::new(Severity::Damage, tour.segment.path(), at, "offsets with a gap")
            }
            None => {
                let what = "offsets that appeared before";
                Finding::new(Severity::Damage, tour.segment.path(), at, what)
            }
        };
        let offsets = (expected < first).then_some(expected..first);
        self.report.note(Finding { topic: name, partition, offsets, ..finding });
    }

    /// Note corruption that was found and not reported yet.
    pub(super) fn flush(&mut self, carried: &mut SegmentCarry) {
        let pending = carried.pending.take().filter(|pending| !pending.told);
        self.report.note_all(pending.map(|pending| pending.finding));
    }

    fn odd(&mut self, tour: &mut Tour<'_>, position: u64, what: &str) {
        let severity = severity(tour, position);
        self.report.note(Finding::new(severity, tour.segment.path(), position, what));
    }

    /// Note bytes that are no block, and continue after them. False when nothing follows.
    fn bad(&mut self, tour: &mut Tour<'_>, bad: BlockError) -> bool {
        let severity = severity(tour, bad.position);
        let limit = tour.must.min(tour.segment.map().len());
        let behind = tour.segment.next_sound(bad.position + 8, limit + HEADER_LEN as u64);
        let behind = behind.filter(|behind| *behind < tour.must);
        let to = behind.unwrap_or_else(|| tour.must.max(bad.position).min(limit.max(bad.position)));
        let error = tour.segment.error(bad);
        tour.hints.hurt(bad.position, to);
        let before = tour.carried.pending.as_mut().filter(|_| tour.last_bad == Some(bad.what));
        if let Some(pending) = before {
            // No valid block came in between: it is the same corruption.
            pending.finding.len = to - pending.finding.position;
        } else {
            self.flush(tour.carried);
            let found = Finding::of_error(severity, tour.segment.path(), &error);
            tour.carried.pending =
                PendingCorruption::new(Finding { len: to - bad.position, ..found });
        }
        tour.last_bad = Some(bad.what);
        if tour.opening {
            bridge_snapshot(tour);
        }
        tour.walk.position = to.max(bad.position);
        behind.is_some()
    }

    /// Check that an end block at the end of a segment names the next one.
    fn check_end(&mut self, tour: &mut Tour<'_>, end: u64) {
        let found = tour.segment.block(end, Check::Full);
        let named = match found {
            Ok(Some(block)) if block.header.kind == Kind::End => {
                End::decode(tour.segment.body(&block)).ok()
            }
            _ => None,
        };
        match named {
            Some(end) => tour.carried.named = Some(end),
            None => {
                let what = "the end block that names the next segment is corrupt or missing";
                self.odd(tour, end, what);
            }
        }
    }
}

/// Return true when only the end block itself says where a segment ends.
fn ends_here(link: &Link) -> bool {
    !link.newest && link.end.is_none()
}

/// Begin a segment with a corrupt snapshot where the previous one ended.
fn bridge_snapshot(tour: &mut Tour<'_>) {
    tour.opening = false;
    let Some(state) = tour.carried.state.clone() else { return };
    for (number, topic) in state.topics() {
        tour.walk.bases.set(number, topic.next);
    }
    tour.walk.state = state;
}

fn severity(tour: &Tour<'_>, position: u64) -> Severity {
    if position < tour.durable { Severity::Damage } else { Severity::Unrecovered }
}
