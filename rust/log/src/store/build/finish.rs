//! Finishing a store that was built from pieces.
//!
//! Owns the checks of the whole: each log has all its segments, each block in them is right, and the
//! log knows its topics. Then the new timeline: an empty segment behind each log, and `origin`.
//! Invariant: `falaj.json` comes last, and the name after all is on disk. So whatever fails,
//! nothing has the destination's name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::catalog::CatalogLog;
use super::super::logs::settings_to_read;
use super::super::verify::{Finding, Severity};
use super::super::{files, sidecar_check, sweep};
use super::pieces::{LogPieces, Pieces, Written};
use super::{Error, FIRST_BLOCK, Layout, LogSettings, PieceBuilder, Result, SegmentPiece};
use crate::format::origin::{Origin, OriginEnd, ParentOrigin};
use crate::format::settings::{StoreSettings, TopicSettings};
use crate::format::state::LogState;
use crate::log::verify::{IN_DOUBT, Progress, Proof, Proofs, verify_log, verify_with};
use crate::log::{begin_timeline, make_rest};

/// The state that the pieces are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The origin that wrote it.
    pub origin: [u8; 16],
    /// Its number in the place that has it.
    pub number: u64,
}

/// The parts of a store that was built.
#[derive(Debug, Default)]
pub struct RestoreReport {
    /// Topics.
    pub topics: u64,
    /// Logs.
    pub logs: u64,
    /// Segments that came.
    pub segments: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Id of the store as the origin of what it will write.
    pub origin: [u8; 16],
    /// Errors in files of consumer groups and queues, which were put as they came, and facts that the
    /// logs themselves call doubtful.
    pub problems: Vec<Error>,
}

/// A log, its topics and its segments, oldest first.
struct WholeLog<'a> {
    dir: PathBuf,
    generation: [u8; 16],
    topics: Vec<TopicSettings>,
    segments: Vec<&'a SegmentPiece>,
    /// Segments that were checked while the pieces came.
    proofs: &'a Proofs,
}

impl PieceBuilder {
    /// Check everything, let each log go on with a new salt, sync all of it, and give the store its
    /// name. `parent` says which state the pieces are of. `progress` gets the checked and the total
    /// bytes; its error ends the call. Costs one pass over the store's bytes.
    ///
    /// A log that no topic names is left out.
    ///
    /// # Errors
    /// `InvalidArgument` without `falaj.json`. `CorruptPieces` for whatever does not check, with the log, the file
    /// and the position; `UnsupportedVersion` for blocks of a newer version. `NoSpace`,
    /// `SystemCallFailed`, and the errors of `progress`. Then nothing has the destination's name,
    /// and what was built is removed. A builder that goes on keeps it after `NoSpace` and errors of
    /// `progress`.
    pub fn finish(self, parent: Option<Parent>, progress: Progress<'_>) -> Result<RestoreReport> {
        let done = self.complete(parent, progress);
        let done = done.and_then(|report| self.half.publish(self.storage()).map(|()| report));
        match done {
            Ok(mut report) => {
                report.problems.extend(self.problems_beside());
                Ok(report)
            }
            Err(error) => {
                match error {
                    Error::Interrupted | Error::NoSpace { .. } => self.leave(),
                    _ => self.discard(),
                }
                Err(error)
            }
        }
    }

    /// Return the errors that users of groups and queues will meet, with the paths that they will see.
    fn problems_beside(&self) -> Vec<Error> {
        let id = self.pieces().settings.as_ref().map(|settings| settings.id);
        let layout = Layout::new(&self.destination);
        let found = sidecar_check::look(self.storage(), &layout, id, &mut |_| Ok(()));
        found.map_or_else(|error| vec![error], |found| found.problems)
    }

    fn complete(&self, parent: Option<Parent>, progress: Progress<'_>) -> Result<RestoreReport> {
        let pieces = self.pieces();
        let Some(settings) = &pieces.settings else {
            return Err(Error::invalid("a store cannot be built without its falaj.json: give it"));
        };
        let logs = self.whole_logs(&pieces)?;
        if let Some(left) = &self.left {
            left.remove(self.storage());
        }
        self.leave_out(&pieces, &logs)?;
        self.open.sync_all()?;
        let mut report = RestoreReport { logs: logs.len() as u64, ..RestoreReport::default() };
        let segments = || logs.iter().flat_map(|log| &log.segments);
        report.topics = pieces.topics.len() as u64;
        report.segments = segments().count() as u64;
        report.bytes = segments().map(|piece| piece.bytes()).sum();
        let total = segments().map(|piece| piece.end()).sum();
        let mut done = 0;
        for log in &logs {
            self.verify(log, &mut done, total, progress, &mut report.problems)?;
        }
        let mut ends = Vec::new();
        for log in &logs {
            make_rest(self.storage(), &log.dir, self.write_mode, self.modes.file)?;
            let last = log.segments[log.segments.len() - 1];
            let known = log.proofs.get(&last.sequence()).and_then(Proof::state);
            let settings = self.log_settings(log);
            let state = begin_timeline(self.storage(), &log.dir, &settings, last, known)?;
            ends.extend(log.topics.iter().flat_map(|topic| ends_of(topic, &state)));
        }
        self.sync_directories()?;
        report.origin = files::random_id(self.storage(), self.layout.root())?;
        self.put_last(settings, report.origin, parent, ends)?;
        Ok(report)
    }

    /// Bring topics, logs and segments together.
    fn whole_logs<'a>(&self, pieces: &'a Pieces) -> Result<Vec<WholeLog<'a>>> {
        let mut topics: BTreeMap<String, Vec<TopicSettings>> = BTreeMap::new();
        for topic in &pieces.topics {
            topics.entry(topic.log_dir()).or_default().push(topic.clone());
        }
        let whole = |(name, topics): (String, Vec<TopicSettings>)| {
            let shown = self.shown(&name, None);
            let Some(log) = pieces.logs.get(&name) else {
                let what =
                    format!("topic {:?} lives in this log, and it has no segment", topics[0].name);
                return Err(Error::corrupt_pieces(&shown, 0, what));
            };
            if let Some(pair) = shared_numbers(&topics) {
                let what =
                    format!("topics {:?} and {:?} have the same number in it", pair[0], pair[1]);
                return Err(Error::corrupt_pieces(&shown, 0, what));
            }
            let segments = self.linked(&name, log)?;
            let (dir, generation) = (self.layout.logs().join(&name), log.generation);
            Ok(WholeLog { dir, generation, topics, segments, proofs: &log.proofs })
        };
        topics.into_iter().map(whole).collect()
    }

    /// Return the segments of a log, oldest first, if each is whole and continues the one before it.
    fn linked<'a>(&self, name: &str, log: &'a LogPieces) -> Result<Vec<&'a SegmentPiece>> {
        let at = |piece: &SegmentPiece| self.shown(name, Some(piece.sequence()));
        for Written { piece, written, .. } in log.segments.values() {
            let gap = written.gap(FIRST_BLOCK..piece.bytes());
            // The blocks of a compacted one say where its holes are.
            if let Some(gap) = gap.filter(|_| !piece.is_compacted()) {
                let what = format!("the bytes from there to {} are missing", gap.end);
                return Err(Error::corrupt_pieces(&at(piece), gap.start, what));
            }
        }
        let segments: Vec<_> = log.segments.values().map(|Written { piece, .. }| piece).collect();
        for pair in segments.windows(2) {
            if let Some(what) = pair[0].not_continued_by(pair[1]) {
                return Err(Error::corrupt_pieces(&at(pair[1]), 0, what));
            }
        }
        match segments.last() {
            Some(last) if last.is_last() => Ok(segments),
            Some(last) => {
                let what =
                    "the segment behind it is missing: a log ends with one that is not sealed";
                Err(Error::corrupt_pieces(&at(last), last.end(), what))
            }
            None => Err(Error::corrupt_pieces(&self.shown(name, None), 0, "it has no segment")),
        }
    }

    /// Remove logs that no topic names, as of a topic that was deleted.
    fn leave_out(&self, pieces: &Pieces, logs: &[WholeLog<'_>]) -> Result<()> {
        for name in pieces.logs.keys() {
            let dir = self.layout.logs().join(name);
            if !logs.iter().any(|log| log.dir == dir) {
                sweep::remove_log(self.storage(), &dir)?;
            }
        }
        Ok(())
    }

    /// Check every block of a log, but those of segments that were checked when they were whole. Facts
    /// that it calls doubtful itself are no fault of the pieces.
    fn verify(
        &self,
        log: &WholeLog<'_>,
        done: &mut u64,
        total: u64,
        progress: Progress<'_>,
        problems: &mut Vec<Error>,
    ) -> Result<()> {
        let (generation, topics) = (log.generation, log.topics.clone());
        let subject = CatalogLog { generation, topics, exists: true }.subject(&log.dir);
        let before = *done;
        let report = verify_with(&self.storage, &subject, log.proofs, done, total, progress)?;
        let is_fault = |finding: &&Finding| {
            finding.severity > Severity::Rebuildable && finding.what != IN_DOUBT
        };
        if let Some(finding) = report.findings.iter().find(is_fault) {
            // A walk from the log's beginning knows best what is lost, and where.
            *done = before;
            let walked = verify_log(&self.storage, &subject, done, total, progress)?;
            let found = walked.findings.iter().find(is_fault);
            return Err(self.fault(found.unwrap_or(finding)));
        }
        let doubt = report.findings.iter().find(|finding| finding.what == IN_DOUBT);
        problems.extend(
            doubt.map(|found| Error::corrupt(&self.outside(&found.path), found.position, IN_DOUBT)),
        );
        Ok(())
    }

    fn fault(&self, finding: &Finding) -> Error {
        let path = self.outside(&finding.path);
        if finding.severity == Severity::Newer {
            let (position, what) = (Some(finding.position), finding.what.clone());
            return Error::UnsupportedVersion { path, position, what };
        }
        Error::corrupt_pieces(&path, finding.position, finding.what.clone())
    }

    /// Return the path that a file will have.
    fn outside(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(self.layout.root()) {
            Ok(inside) => self.destination.join(inside),
            Err(_) => path.to_path_buf(),
        }
    }

    fn log_settings(&self, log: &WholeLog<'_>) -> LogSettings {
        let read = settings_to_read(&log.topics[0], self.write_mode);
        LogSettings { file_mode: self.modes.file, ..read }
    }

    fn sync_directories(&self) -> Result<()> {
        let layout = &self.layout;
        for directory in [layout.logs(), layout.topics(), layout.consumers()] {
            files::sync_dir(self.storage(), &directory)?;
        }
        if files::is_dir(self.storage(), &layout.queues())? {
            files::sync_dir(self.storage(), &layout.queues())?;
        }
        Ok(())
    }

    /// Put `origin` and `falaj.json`, and sync the store's directory with them.
    fn put_last(
        &self,
        settings: &StoreSettings,
        id: [u8; 16],
        parent: Option<Parent>,
        ends: Vec<OriginEnd>,
    ) -> Result<()> {
        let parent = parent.map(|Parent { origin, number }| ParentOrigin { origin, number, ends });
        let origin = Origin { id, parent }.encode();
        files::put_new(self.storage(), &self.layout.origin(), origin.as_bytes(), self.modes.file)?;
        let settings = StoreSettings { write_mode: self.write_mode, ..settings.clone() }.encode();
        files::put_new(
            self.storage(),
            &self.layout.settings(),
            settings.as_bytes(),
            self.modes.file,
        )
    }
}

/// Return the names of two topics of a log that have a number in common.
fn shared_numbers(topics: &[TopicSettings]) -> Option<[&str; 2]> {
    let mut sorted: Vec<_> = topics.iter().collect();
    sorted.sort_by_key(|topic| topic.number);
    let overlap = |pair: &&[&TopicSettings]| pair[0].number + pair[0].partitions > pair[1].number;
    sorted.windows(2).find(overlap).map(|pair| [pair[0], pair[1]].map(|topic| topic.name.as_str()))
}

/// Return where the partitions of a topic end.
fn ends_of<'a>(
    topic: &'a TopicSettings,
    state: &'a LogState,
) -> impl Iterator<Item = OriginEnd> + 'a {
    (0..topic.partitions).filter_map(|partition| {
        let found = state.topic(topic.number + partition)?;
        let (next, checksum) = (found.next, found.last_crc);
        Some(OriginEnd { topic: topic.generation, partition, next, checksum })
    })
}
