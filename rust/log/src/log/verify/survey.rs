//! Which files belong to the log: the chain from its newest segment backwards, checked without
//! trust.
//!
//! A segment belongs to the log if its predecessor's end block names it, or if its own header says
//! that it supersedes. This check bridges a corrupt link by other evidence: a successor's header
//! repeats the salt and the end of the previous segment. So even a segment without a valid header
//! can be checked. Everything else in the directory is reported as left over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::IoResult;
use crate::format::address::Address;
use crate::format::names;
use crate::format::segment::{Previous, SegmentHeader};
use crate::segment::{Segment, corrupt_header, read_header};
use crate::storage::OpenMode;

use super::super::chain::{list_segments, names_successor};
use super::{Finding, Pass, Severity};

/// A segment of the log. It is opened only when it is checked: there may be more segments than a
/// process may open.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) sequence: u64,
    pub(super) path: PathBuf,
    /// The header to read it with; `None` if its salt is unknown.
    pub(super) header: Option<SegmentHeader>,
    /// Where its content ends, as its successor says; `None` for the newest, and if the successor's
    /// header is lost.
    pub(super) end: Option<u64>,
    /// True for the last segment of the log.
    pub(super) newest: bool,
    /// True when an end block there must name the successor.
    pub(super) named: bool,
    /// True when the part before it is missing.
    pub(super) after_gap: bool,
}

/// The headers, by sequence.
type Headers = BTreeMap<u64, SegmentHeader>;

impl Pass<'_> {
    /// Find the chain, oldest segment first, and note what is wrong with it.
    pub(super) fn survey(&mut self, listed: &[u64]) -> Vec<Link> {
        let headers: Headers =
            listed.iter().filter_map(|s| self.header(*s).map(|header| (*s, header))).collect();
        let Some(newest) =
            listed.iter().rev().copied().find(|s| self.belongs(*s, listed, &headers))
        else {
            let what = "a log without any segment";
            self.report.note(Finding::new(Severity::Damage, &self.subject.dir, 0, what));
            return Vec::new();
        };
        self.check_tail(newest, headers.get(&newest));
        let mut links = vec![self.link(newest, headers.get(&newest).cloned(), None, false)];
        links[0].newest = true;
        let mut current = newest;
        loop {
            let header = headers.get(&current);
            let lower = listed[..listed.partition_point(|s| *s < current)].last().copied();
            let previous = header.and_then(|header| header.previous);
            let (next, told) = match (previous, lower) {
                (None, _) if header.is_some() => break,
                (_, None) => {
                    self.first_of_log(&mut links, previous);
                    break;
                }
                (Some(told), Some(_)) if listed.binary_search(&told.sequence).is_ok() => {
                    (told.sequence, Some(told))
                }
                (Some(told), Some(lower)) => {
                    self.missing(told.sequence, &mut links);
                    (lower, None)
                }
                // A segment without a header continues the previous one, most likely.
                (None, Some(lower)) => (lower, None),
            };
            let named = told.is_some() && header.is_some_and(|header| !header.supersedes);
            let own = self.vouched(next, headers.get(&next), told);
            links.push(self.link(next, own, told.map(|told| told.end), named));
            current = next;
        }
        links.reverse();
        self.leftovers(listed, &links);
        links
    }

    fn header(&mut self, sequence: u64) -> Option<SegmentHeader> {
        let path = self.subject.dir.join(names::segment(sequence));
        let file = self.storage.open(&path, OpenMode::Read).doing("open", &path);
        let header = file.and_then(|file| {
            let header = read_header(&*file, &path)?;
            let corrupt = corrupt_header(&*file, &header, &path)?;
            Ok((header, corrupt))
        });
        let found = match header {
            Ok((header, corrupt))
                if header.log == self.subject.generation && header.sequence == sequence =>
            {
                let found = corrupt.map(|position| one_header(&path, position));
                self.report.note_all(found);
                return Some(header);
            }
            Ok(_) => {
                let what = "a segment of another log, or under another's name";
                Finding::new(Severity::Damage, &path, 0, what)
            }
            Err(error) => Finding::of_error(Severity::Damage, &path, &error),
        };
        self.report.note(found);
        None
    }

    /// Return true when a segment is part of the log, by any evidence.
    fn belongs(&self, sequence: u64, listed: &[u64], headers: &Headers) -> bool {
        if listed.first() == Some(&sequence) {
            return true;
        }
        if self.ends.is_some_and(|ends| ends.tail.sequence() >= sequence) {
            return true;
        }
        let Some(header) = headers.get(&sequence) else { return false };
        let Some(segment) = self.open(header) else { return false };
        if segment.mark().is_some_and(|mark| mark.position > 0) {
            return true;
        }
        let Some(previous) = header.previous else { return false };
        let Some(before) = headers.get(&previous.sequence) else { return false };
        before.salt == previous.salt
            && (header.supersedes
                || self.open(before).is_some_and(|before| {
                    names_successor(&before, previous.end, header).is_ok_and(|named| named)
                }))
    }

    /// Check that the newest segments exist. The control page names one that must exist, and so
    /// does a mark that says that its successor is on disk.
    fn check_tail(&mut self, newest: u64, header: Option<&SegmentHeader>) {
        let mark = header.and_then(|header| self.open(header)?.mark());
        let promised = mark.is_some_and(|mark| mark.succeeded) && !self.is_followed(newest);
        let tail = self.ends.map_or(0, |ends| ends.tail.sequence());
        if tail <= newest && !promised {
            return;
        }
        let path = self.subject.dir.join(names::segment(tail.max(newest + 1)));
        let what = "the segment that the log's end lies in is missing";
        // A power failure may lose what was not on disk: recovery ends the log before it.
        let lost = promised || self.ends.is_some_and(|ends| ends.durable.sequence() > newest);
        let severity = if lost { Severity::Damage } else { Severity::Unrecovered };
        self.report.note(Finding::new(severity, &path, 0, what));
    }

    /// Return true when a later segment exists by now, made while this one was checked.
    fn is_followed(&self, newest: u64) -> bool {
        let now = list_segments(&**self.storage, &self.subject.dir).unwrap_or_default();
        now.last().is_some_and(|last| *last > newest)
    }

    /// Return the header to read a segment with: its own, or one made from its successor's.
    fn vouched(
        &mut self,
        sequence: u64,
        own: Option<&SegmentHeader>,
        told: Option<Previous>,
    ) -> Option<SegmentHeader> {
        let Some(told) = told else { return own.cloned() };
        match own {
            Some(own) if own.salt == told.salt => return Some(own.clone()),
            Some(_) => {
                let path = self.subject.dir.join(names::segment(sequence));
                let what = "another segment than the one that the next segment continues";
                self.report.note(Finding::new(Severity::Damage, &path, 0, what));
                return own.cloned();
            }
            None => {}
        }
        Some(self.made_up(sequence, told.salt))
    }

    /// Make a header for a segment that lost its own.
    pub(super) fn made_up(&self, sequence: u64, salt: u64) -> SegmentHeader {
        SegmentHeader {
            log: self.subject.generation,
            sequence,
            salt,
            supersedes: false,
            previous: None,
            replaces: None,
            time_base_us: 0,
        }
    }

    /// Open a segment to be read without a map.
    pub(super) fn open(&self, header: &SegmentHeader) -> Option<Arc<Segment>> {
        let path = self.subject.dir.join(names::segment(header.sequence));
        let file = self.storage.open(&path, OpenMode::Read).ok()?;
        Segment::to_walk(path, file, header.clone()).ok().map(Arc::new)
    }

    fn link(
        &self,
        sequence: u64,
        header: Option<SegmentHeader>,
        end: Option<u64>,
        named: bool,
    ) -> Link {
        let path = self.subject.dir.join(names::segment(sequence));
        Link { sequence, path, header, end, newest: false, named, after_gap: false }
    }

    /// Note the oldest segment: retention or a loss removed the one that it continues. The trims
    /// show later which of the two.
    fn first_of_log(&mut self, links: &mut [Link], previous: Option<Previous>) {
        if let (Some(oldest), Some(previous)) = (links.last_mut(), previous) {
            oldest.after_gap = true;
            let name = names::segment(previous.sequence);
            self.before_oldest = Some(self.subject.dir.join(name));
        }
    }

    fn missing(&mut self, sequence: u64, links: &mut [Link]) {
        let path = self.subject.dir.join(names::segment(sequence));
        let what = "the segment is missing";
        self.report.note(Finding::new(Severity::Damage, &path, 0, what));
        if let Some(after) = links.last_mut() {
            after.after_gap = true;
        }
    }

    /// Note files in the directory that are not part of the log.
    fn leftovers(&mut self, listed: &[u64], links: &[Link]) {
        let part: BTreeSet<_> = links.iter().map(|link| link.sequence).collect();
        for sequence in listed {
            if !part.contains(sequence) {
                let path = self.subject.dir.join(names::segment(*sequence));
                let what = "a segment that the log does not reach; recovery sets it aside";
                self.report.note(Finding::new(Severity::Note, &path, 0, what));
            }
        }
        let quarantine = self.subject.dir.join("quarantine");
        for name in self.storage.list(&quarantine).unwrap_or_default() {
            let what = "set aside by an earlier recovery or repair";
            let remedy = "look at it, keep it elsewhere or remove it";
            let path = quarantine.join(name);
            self.report.note(Finding {
                remedy: remedy.into(),
                ..Finding::new(Severity::Note, &path, 0, what)
            });
        }
    }

    /// Find how far the segments' marks show the log to be on disk.
    pub(super) fn durable_by_marks(&self, links: &[Link]) -> Address {
        let marks = links.iter().rev().filter_map(|link| {
            let segment = self.open(link.header.as_ref()?)?;
            let mark = segment.mark().filter(|mark| mark.position > 0)?;
            Some(Address::new(link.sequence, mark.position))
        });
        marks.into_iter().next().unwrap_or_default()
    }
}

/// Make the finding for one corrupt header of the two, which loses nothing.
fn one_header(path: &Path, position: u64) -> Finding {
    let what = "one of the two copies of the segment's header is corrupt; the other is valid";
    let remedy = "`falaj repair` restores it from the other copy".into();
    Finding { remedy, ..Finding::new(Severity::Rebuildable, path, position, what) }
}
