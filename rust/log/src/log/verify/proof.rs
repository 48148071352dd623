//! Segments that are checked one by one, before their log is whole.
//!
//! Owns what is known of such a segment, so that a check of the log need not walk it again. A store
//! that is built from pieces gets them from several threads. The thread that writes the last
//! missing bytes of a segment checks it while others still write. Invariant: a [`Proof`] is only of a
//! segment in which nothing is wrong, by the walk that checks any segment. Its ties to the segment
//! before it are compared when the log is checked. No process may write to the segment
//! meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::format::address::Address;
use crate::format::names;
use crate::format::state::{End, LogState};
use crate::storage::Storage;

use super::super::pieces::SegmentPiece;
use super::blocks::SegmentCarry;
use super::survey::Link;
use super::{Finding, Pass, Severity, Subject};

/// A segment in which nothing is wrong.
#[derive(Debug)]
pub struct Proof {
    salt: u64,
    /// Where its content ends; `None` for the newest.
    end: Option<u64>,
    /// True when its end block was checked.
    named: bool,
    /// The segment that this one names.
    names: Option<End>,
    /// Offsets with which topics begin in it, and go on behind it.
    began: HashMap<u32, u64>,
    expected: HashMap<u32, u64>,
    bases: Option<BTreeMap<u32, u64>>,
    /// The log's state at its end, and where it is durable; kept of the newest alone.
    state: Option<LogState>,
    state_at_durable: Option<LogState>,
    /// Derived data that is missing.
    findings: Vec<Finding>,
    blocks: u64,
    records: u64,
    bytes: u64,
    reached: u64,
}

impl Proof {
    /// Return the log's state at its end, of the newest segment.
    pub fn state(&self) -> Option<&LogState> {
        self.state.as_ref()
    }
}

/// Segments of a log that were checked before, by sequence.
pub type Proofs = BTreeMap<u64, Proof>;

/// Check a segment by itself; `None` if anything is wrong, which a check of the log then reports.
pub fn prove(
    storage: &Arc<dyn Storage>,
    subject: &Subject,
    piece: &SegmentPiece,
) -> Option<Box<Proof>> {
    let (mut quiet, none) = (|_, _| Ok(()), Proofs::new());
    let mut pass = Pass::new(storage, subject, 0, 0, &mut quiet, &none);
    let (sequence, sealed) = (piece.sequence(), !piece.is_last());
    let link = Link {
        sequence,
        path: subject.dir.join(names::segment(sequence)),
        header: Some(piece.header().clone()),
        end: sealed.then_some(piece.end()),
        newest: !sealed,
        named: piece.bytes() > piece.end(),
        after_gap: false,
    };
    let segment = pass.open(piece.header())?;
    let marked = Address::new(sequence, piece.end());
    pass.report.durable = marked;
    let mut carried = SegmentCarry::default();
    let reached = pass.segment(&link, segment, marked, &mut carried).ok()?.position();
    pass.flush(&mut carried);
    let (report, bases, state_at_durable) = (pass.report, pass.bases, pass.state_at_durable);
    let is_fault = |finding: &Finding| finding.severity > Severity::Rebuildable;
    if report.more_findings > 0 || report.findings.iter().any(is_fault) {
        return None;
    }
    Some(Box::new(Proof {
        salt: piece.header().salt,
        end: link.end,
        named: link.named,
        names: carried.named,
        began: carried.began,
        expected: carried.expected,
        bases,
        state: carried.state.filter(|_| !sealed),
        state_at_durable: state_at_durable.filter(|_| !sealed),
        findings: report.findings,
        blocks: report.blocks,
        records: report.records,
        bytes: report.bytes,
        reached,
    }))
}

impl Pass<'_> {
    /// Pass over a segment that was checked before, if it continues what came before it. Return where
    /// it ends, and the bytes of it.
    pub(super) fn proved(
        &mut self,
        link: &Link,
        carried: &mut SegmentCarry,
    ) -> Option<(Address, u64)> {
        let proof = self.proofs.get(&link.sequence)?;
        let salt = link.header.as_ref().map(|header| header.salt);
        let is_same = salt == Some(proof.salt) && link.end == proof.end;
        let is_named = proof.named || !link.named;
        // The walk reports what does not fit, with the place.
        let goes_on = proof.began.iter().all(|(topic, first)| {
            carried.expected.get(topic).is_none_or(|expected| expected == first)
        });
        if !(is_same && is_named && goes_on && carried.is_sure()) {
            return None;
        }
        carried.named = proof.names.filter(|_| link.named || link.end.is_none());
        carried.state.clone_from(&proof.state);
        carried.expected.extend(&proof.expected);
        self.bases = self.bases.take().or_else(|| proof.bases.clone());
        if self.state_at_durable.is_none() && self.report.durable.sequence() == link.sequence {
            self.state_at_durable.clone_from(&proof.state_at_durable);
        }
        self.report.note_all(proof.findings.iter().cloned());
        self.report.blocks += proof.blocks;
        self.report.records += proof.records;
        Some((Address::new(link.sequence, proof.reached), proof.bytes))
    }
}
