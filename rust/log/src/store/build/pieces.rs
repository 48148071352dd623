//! Which pieces a store may have, and what is known of those that came.
//!
//! Owns the checks of what a caller says before anything is written: shapes of paths, lengths by the
//! limits of the format, settings that decode. Invariant: a path in a [`SmallFile`] lies inside the
//! store, since [`Layout`] made it from a checked name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::layout::{Layout, TOPIC_SETTINGS, top};
use super::super::{files, topics};
use crate::error::{Error, Result};
use crate::format::consumer::{self, ENTRIES_MAX};
use crate::format::queue::{CAPACITY_MAX, Parts};
use crate::format::settings::{StoreSettings, TopicSettings};
use crate::format::{DecodeError, FIRST_BLOCK, names};
use crate::log::SegmentPiece;
use crate::log::verify::Proofs;

/// Bytes of a segment after which they are synced, while others come.
const DIRTY_MOST: u64 = 16 << 20;

/// A small file, by the shape of its path.
#[derive(Debug)]
pub(in crate::store) enum SmallFile {
    /// `falaj.json`.
    Settings,
    /// `topic.json` of the topic with this name.
    Topic(String),
    /// A group's file, with its path.
    Consumer(PathBuf),
    /// A queue's file, with its path.
    Queue(PathBuf),
}

impl SmallFile {
    /// Recognise a path.
    pub(in crate::store) fn of(layout: &Layout, path: &str) -> Result<Self> {
        let parts: Vec<_> = path.split('/').collect();
        match parts[..] {
            [top::SETTINGS] => Ok(Self::Settings),
            [top::TOPICS, name, TOPIC_SETTINGS] => {
                layout.topic(name).map(|_| Self::Topic(name.to_owned()))
            }
            [top::CONSUMERS, name] => layout.consumer(name).map(Self::Consumer),
            [top::QUEUES, name] => layout.queue(name).map(Self::Queue),
            _ => Err(Error::invalid(format!(
                "{path:?} is no file that a store is built from: those are falaj.json, \
                 topics/<topic>/topic.json, consumers/<group> and queues/<queue>"
            ))),
        }
    }

    /// Return the most bytes that it may have.
    fn most(&self) -> u64 {
        match self {
            Self::Settings | Self::Topic(_) => files::MAX_SETTINGS as u64,
            Self::Consumer(_) => consumer::entry(ENTRIES_MAX),
            Self::Queue(_) => Parts { capacity: CAPACITY_MAX, ordered: true }.file_len(),
        }
    }

    /// Check its length, and that its parts rise and lie in it.
    pub(in crate::store) fn expect_fitting(
        &self,
        path: &str,
        len: u64,
        parts: &[(u64, &[u8])],
    ) -> Result<()> {
        let most = self.most();
        if len > most {
            let what = format!("{path:?} cannot have {len} bytes: it has at most {most}");
            return Err(Error::invalid(what));
        }
        let mut behind = 0;
        for (position, bytes) in parts {
            let end = position.checked_add(bytes.len() as u64).filter(|end| *end <= len);
            match end.filter(|_| *position >= behind) {
                Some(end) => behind = end,
                None => {
                    return Err(Error::invalid(format!(
                        "a part of {path:?} at byte {position} does not lie behind the one before \
                         it and in the {len} bytes of the file"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Return the generation of a log by the name of its directory.
pub(in crate::store) fn log_generation(log: &str) -> Result<[u8; 16]> {
    let parsed = names::parse_log_dir(log);
    let own = parsed.filter(|(name, generation)| names::log_dir(name, generation) == log);
    own.map(|(_, generation)| generation).ok_or_else(|| {
        let what = "is no directory of a log: it has a name, `@` and 32 hexadecimal digits";
        Error::invalid(format!("{log:?} {what}"))
    })
}

/// Put a file together; what its parts leave out is zero.
pub(super) fn whole(len: u64, parts: &[(u64, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    for (position, part) in parts {
        bytes[*position as usize..][..part.len()].copy_from_slice(part);
    }
    bytes
}

/// Decode `falaj.json`.
pub(super) fn store_settings(bytes: &[u8], path: &Path) -> Result<StoreSettings> {
    StoreSettings::decode(bytes).map_err(|what| malformed(path, what))
}

/// Decode the `topic.json` of a topic.
pub(super) fn topic_settings(bytes: &[u8], name: &str, path: &Path) -> Result<TopicSettings> {
    topics::decode_settings(bytes, name, path).map_err(|error| match error {
        Error::CorruptData { path, position, what } => Error::corrupt_pieces(&path, position, what),
        other => other,
    })
}

/// Convert what a decoder found wrong: corruption here is a fault of the pieces.
pub(in crate::store) fn malformed(path: &Path, what: DecodeError) -> Error {
    match what {
        DecodeError::Damaged(what) => Error::corrupt_pieces(path, 0, what),
        newer => Error::malformed(path, 0, newer),
    }
}

/// The pieces that came.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// `falaj.json`; it is written last.
    pub(super) settings: Option<StoreSettings>,
    pub(super) topics: Vec<TopicSettings>,
    pub(super) logs: BTreeMap<String, LogPieces>,
    files: BTreeSet<String>,
}

/// Segments of a log, by sequence.
#[derive(Debug)]
pub(super) struct LogPieces {
    pub(super) generation: [u8; 16],
    pub(super) segments: BTreeMap<u64, Written>,
    /// Segments that were checked when they were whole.
    pub(super) proofs: Proofs,
}

/// A segment, and which of its bytes were written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) piece: SegmentPiece,
    pub(super) written: Ranges,
    /// Threads that write to it now.
    pub(super) writing: u32,
    /// True for a file that an earlier builder left.
    pub(super) left: bool,
    /// Bytes that were written since the last sync that did not wait for the segment.
    dirty: u64,
    settled: bool,
}

impl Written {
    /// Count bytes that were written; true if there are many that no sync was begun for.
    pub(super) fn note_dirty(&mut self, len: u64) -> bool {
        self.dirty += len;
        let many = self.dirty >= DIRTY_MOST;
        if many {
            self.dirty = 0;
        }
        many
    }

    /// Return the segment once: when its last missing bytes are written. One that may have holes is
    /// never known to be whole.
    pub(super) fn became_whole(&mut self) -> Option<SegmentPiece> {
        let is_whole = self.writing == 0
            && !self.piece.is_compacted()
            && self.written.gap(FIRST_BLOCK..self.piece.bytes()).is_none();
        (is_whole && !std::mem::replace(&mut self.settled, true)).then(|| self.piece.clone())
    }
}

impl Pieces {
    /// Return true for a file that did not come yet.
    pub(super) fn expects(&self, path: &str) -> bool {
        !self.files.contains(path)
    }

    pub(super) fn note(&mut self, path: &str) {
        self.files.insert(path.to_owned());
    }

    pub(super) fn knows_log(&self, log: &str) -> bool {
        self.logs.contains_key(log)
    }

    pub(super) fn add_log(&mut self, log: &str, generation: [u8; 16]) {
        let (segments, proofs) = Default::default();
        self.logs.insert(log.to_owned(), LogPieces { generation, segments, proofs });
    }

    pub(super) fn segment(&mut self, log: &str, sequence: u64) -> Option<&mut Written> {
        self.logs.get_mut(log)?.segments.get_mut(&sequence)
    }

    pub(super) fn add_segment(&mut self, log: &str, piece: SegmentPiece, left: bool) {
        if let Some(log) = self.logs.get_mut(log) {
            let written = Ranges::default();
            let written = Written { piece, written, writing: 0, left, dirty: 0, settled: false };
            log.segments.insert(written.piece.sequence(), written);
        }
    }
}

/// Ranges that do not touch each other, by their beginnings.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Add a range; false, and no change, if it overlaps one that is there.
    pub(super) fn add(&mut self, range: Range<u64>) -> bool {
        let before = self.0.range(..range.end).next_back().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, end)| end > range.start) {
            return false;
        }
        let start = match before.filter(|(_, end)| *end == range.start) {
            Some((start, _)) => start,
            None => range.start,
        };
        let end = self.0.remove(&range.end).unwrap_or(range.end);
        self.0.insert(start, end);
        true
    }

    /// Return the first part of a range that was not added; `None` if all of it was.
    pub(super) fn gap(&self, range: Range<u64>) -> Option<Range<u64>> {
        let found = self.0.range(..=range.start).next_back();
        let start = found.map_or(range.start, |(_, end)| range.start.max(*end));
        let next = self.0.range(start..).next().map_or(range.end, |(start, _)| *start);
        (start < range.end).then(|| start..next.min(range.end))
    }

    /// Remove a range that was added.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        let found = self.0.range(..=range.start).next_back().map(|(start, end)| (*start, *end));
        let Some((start, end)) = found.filter(|(_, end)| *end >= range.end) else { return };
        self.0.remove(&start);
        if start < range.start {
            self.0.insert(start, range.start);
        }
        if range.end < end {
            self.0.insert(range.end, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_added_once_and_again_after_it_was_removed() {
        let mut ranges = Ranges::default();
        assert!(ranges.add(10..20) && ranges.add(30..40) && ranges.add(20..30));
        assert_eq!(ranges.0.iter().collect::<Vec<_>>(), [(&10, &40)]);
        for overlapping in [0..11, 10..20, 15..16, 25..35, 39..50, 0..100] {
            assert!(!ranges.add(overlapping.clone()), "{overlapping:?}");
        }
        assert_eq!((ranges.gap(10..40), ranges.gap(15..20)), (None, None));
        ranges.remove(20..30);
        let gaps = [ranges.gap(10..40), ranges.gap(25..40), ranges.gap(0..15), ranges.gap(35..50)];
        assert_eq!(gaps, [Some(20..30), Some(25..30), Some(0..10), Some(40..50)]);
        assert!(!ranges.add(19..21) && !ranges.add(29..31));
        assert!(ranges.add(20..30) && ranges.add(0..10) && ranges.add(40..41));
        assert_eq!(ranges.0.iter().collect::<Vec<_>>(), [(&0, &41)]);
    }

    #[test]
    fn only_shapes_of_paths_that_a_store_has_are_taken() {
        let layout = Layout::new(Path::new("/s"));
        for good in ["falaj.json", "topics/a/topic.json", "consumers/a", "queues/a.b-c"] {
            assert!(SmallFile::of(&layout, good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "falaj.json/",
            "./falaj.json",
            "../falaj.json",
            "topics/a",
            "origin",
            "topics/a/../../topic.json",
            "topics/../topic.json",
            "topics/a/b/topic.json",
            "claim",
            "topics//topic.json",
            "consumers/",
            "consumers/..",
            "consumers/a/b",
            "queues/a~",
            "wake",
            "consumers/a@gone",
            "logs/a@00112233445566778899aabbccddeeff/x",
            "queues/a\0",
            "TOPICS/a/topic.json",
        ] {
            let refused = SmallFile::of(&layout, bad);
            let expected = |error: &Error| {
                matches!(error, Error::InvalidArgument { .. } | Error::InvalidName { .. })
            };
            assert!(refused.as_ref().is_err_and(expected), "{bad:?}: {refused:?}");
        }
    }

    #[test]
    fn only_names_that_directories_of_logs_have_are_taken() {
        let digits = "00112233445566778899aabbccddeeff";
        assert!(log_generation(&format!("orders@{digits}")).is_ok());
        let long = format!("{}@{digits}", "x".repeat(201));
        for bad in [
            "",
            "orders",
            digits,
            &format!("@{digits}"),
            &format!("../x@{digits}"),
            &format!("a/b@{digits}"),
            &long,
            &format!("orders@{digits}.tmp"),
            &format!("orders@{}", digits.to_uppercase()),
            &format!("..@{digits}"),
        ] {
            assert!(log_generation(bad).is_err(), "{bad:?}");
        }
    }
}
