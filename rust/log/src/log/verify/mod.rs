//! Verifying a log: what it has, what is corrupt, and what to do about it.
//!
//! Owns a check of a whole log that trusts nothing and changes nothing. Every byte comes by
//! `pread`, so that a bad sector is an error and not a signal. Every checksum is computed.
//! Corruption is noted as a [`Finding`] and passed over. The check works beside writers, on
//! read-only stores, and on logs that no longer open.
//!
//! | file | checks |
//! |---|---|
//! | `mod` | the report; the log's properties, from its control page and its directory |
//! | `survey` | which files belong to the log: headers, the chain between them, missing and left-over files |
//! | `blocks` | the blocks of a segment: checksums, groups, offsets, snapshots |
//! | `proof` | segments that were checked one by one, before their log is whole |
//! | `hints` | the index against the blocks |
//!
//! It decides as readers do. Below the durable mark everything must be there. Up to the committed
//! end everything must be there, unless the log was not recovered since a crash. After that end the
//! first zero ends the log. Recovery (`recover`) and `falaj repair` make repairs. See
//! `docs/PROTOCOL.md`, "The chain" and "Recovery".

mod blocks;
mod hints;
mod proof;
mod survey;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::control::{at, flag};
use crate::format::names;
use crate::format::settings::WriteMode;
use crate::format::state::LogState;
use crate::lock;
use crate::segment::{Reading, UNREAD};
use crate::storage::Storage;

use super::LogSettings;
use super::chain::list_segments;
use super::control::Control;
use super::lost_offsets::doubted;
use super::recover::recovered_end;

pub use proof::{Proof, Proofs, prove};

/// The finding for a topic that the log does not know: it may have been deleted meanwhile.
pub const UNKNOWN_NUMBER: &str = "the log does not know the topic number";

/// The finding for a log that says of itself what corruption may hide.
pub const IN_DOUBT: &str = "from here on corruption may hide newer cursors, idempotency keys and producers: reads of \
                    them fail";

/// The finding for a log whose page calls it deleted: it may have been, meanwhile.
pub const CALLED_DELETED: &str = "the page says that this log was deleted, but a topic names it";

/// The remedy for a corrupt shared page that has no other copy.
pub(crate) const MADE_ANEW: &str = "end all processes that have the store open: the next one that opens it for \
                         writing rebuilds it";

/// Called with the bytes done and all bytes; its error ends the work and is returned.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// The remedy for data that would end a mapped read in a signal.
const NOT_MAPPED: &str = "restore the store from a backup on another disk; opened to be read by `pread` \
                          (`falaj.open(path, read=\"pread\")`) it can read what follows with `skip_damage`";

/// Most findings that are kept of one log, the worst ones; the rest is counted.
const MOST_FINDINGS: usize = 1000;
/// How often a log that changed meanwhile is checked again.
const TRIES: u32 = 3;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is wrong, but it may look strange.
    Note,
    /// Derived data is missing or wrong. It is rebuilt without help.
    Rebuildable,
    /// The end of the log was not recovered after a crash. Recovery will decide about it.
    Unrecovered,
    /// It is valid, and of a newer version than this one reads.
    Newer,
    /// Written data is lost.
    Damage,
}

impl Severity {
    /// Return a word for it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Rebuildable => "rebuildable",
            Severity::Unrecovered => "unrecovered",
            Severity::Newer => "newer",
            Severity::Damage => "damage",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Severity::Note => "nothing needs to be done",
            Severity::Rebuildable => {
                "the next process that opens the store for writing rebuilds it"
            }
            Severity::Unrecovered => "open the store for writing once, or run `falaj repair`",
            Severity::Newer => "upgrade falaj",
            Severity::Damage => {
                "restore the store from a backup, or read what follows (`falaj cat --skip-corrupt`); \
                 `falaj repair` helps where the log no longer opens"
            }
        }
    }
}

/// A finding of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// The file.
    pub path: PathBuf,
    /// Where in the file it begins, bytes.
    pub position: u64,
    /// How many bytes are corrupt; 0 if unknown.
    pub len: u64,
    /// The topic of the lost records, if known.
    pub topic: Option<String>,
    /// Its partition.
    pub partition: Option<u32>,
    /// The lost offsets.
    pub offsets: Option<Range<u64>>,
    /// The finding, in one sentence.
    pub what: String,
    /// The remedy.
    pub remedy: Cow<'static, str>,
}

impl Finding {
    /// Make a finding about a place in a file.
    pub fn new(severity: Severity, path: &Path, position: u64, what: impl Into<String>) -> Self {
        let what = what.into();
        let remedy = match severity {
            Severity::Damage if what == UNREAD => NOT_MAPPED,
            _ => severity.remedy(),
        };
        Self {
            severity,
            path: path.to_path_buf(),
            position,
            len: 0,
            topic: None,
            partition: None,
            offsets: None,
            what,
            remedy: remedy.into(),
        }
    }

    /// Make a finding from an error about a file. Data of a newer version is never corruption.
    pub fn of_error(severity: Severity, path: &Path, error: &Error) -> Self {
        match error {
            Error::CorruptData { path, position, what } => {
                Self::new(severity, path, *position, *what)
            }
            Error::UnsupportedVersion { path, position, what } => {
                let what = format!("written by a newer falaj: {what}");
                Self::new(Severity::Newer, path, position.unwrap_or(0), what)
            }
            Error::SystemCallFailed { what, path, source } => {
                let what = format!("cannot {what} it: {source}");
                let remedy = "see to it that it can be read, then verify again";
                Self { remedy: remedy.into(), ..Self::new(severity, path, 0, what) }
            }
            other => Self::new(severity, path, 0, other.to_string()),
        }
    }
}

/// A topic of a log, by the number in its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTopic {
    /// Its name.
    pub topic: String,
    /// The partition that has this number.
    pub partition: u32,
    /// Its generation.
    pub generation: [u8; 16],
}

/// The expected properties of a log, from the store.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its directory.
    pub dir: PathBuf,
    /// Its generation.
    pub generation: [u8; 16],
    /// Its topics, by number.
    pub topics: BTreeMap<u32, KnownTopic>,
}

/// The extent of a partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicReport {
    /// Name of the topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// Lowest offset that is left.
    pub first: u64,
    /// Offset after the last committed record. In a log that was not recovered after a crash: after
    /// the last one that recovery will keep.
    pub end: u64,
    /// Offset after the last record that was found. Higher than `end` if recovery will cut off
    /// records after a bad place.
    pub found: u64,
    /// Offset after the last record that is known to be on disk.
    pub durable: u64,
}

/// The result of verifying one log.
#[derive(Clone, Debug, Default)]
pub struct LogReport {
    /// Its directory.
    pub dir: PathBuf,
    /// Its topics.
    pub topics: Vec<TopicReport>,
    /// How far it is committed, as it was found: segment and position.
    pub committed: Address,
    /// Where recovery will end it, if it was not recovered after a crash; `None` if no recovery is
    /// due.
    pub recovered: Option<Address>,
    /// How far it is known to be on disk.
    pub durable: Address,
    /// True in the failed-sync state.
    pub latched: bool,
    /// Segments that belong to the log.
    pub segments: u64,
    /// Valid blocks in them.
    pub blocks: u64,
    /// Records in those.
    pub records: u64,
    /// Bytes that were checked.
    pub bytes: u64,
    /// The findings, in the order of the log.
    pub findings: Vec<Finding>,
    /// Number of findings beyond those that were kept.
    pub more_findings: u64,
}

impl LogReport {
    /// Return true when no written data is missing.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Unrecovered)
    }

    fn note_all(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.note(finding));
    }

    fn note(&mut self, finding: Finding) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding);
            return;
        }
        self.more_findings += 1;
        // A copy has no index at all: its missing ones must not crowd out corruption.
        let mildest = self.findings.iter().enumerate().min_by_key(|(_, kept)| kept.severity);
        if let Some((at, _)) = mildest.filter(|(_, kept)| kept.severity < finding.severity) {
            self.findings.remove(at);
            self.findings.push(finding);
        }
    }
}

/// The ends in the control page, as far as they are credible.
#[derive(Clone, Copy, Debug, Default)]
struct ControlEnds {
    tail: Address,
    durable: Address,
    latched: bool,
}

/// Verify a log.
///
/// `done` is how many bytes of `total` were verified before, for `progress`; this raises it.
///
/// # Errors
/// `SystemCallFailed` when the directory cannot be listed, and the errors of `progress`. All else
/// is a finding.
pub fn verify_log(
    storage: &Arc<dyn Storage>,
    subject: &Subject,
    done: &mut u64,
    total: u64,
    progress: Progress<'_>,
) -> Result<LogReport> {
    verify_with(storage, subject, &Proofs::new(), done, total, progress)
}

/// Do as [`verify_log`], and walk no segment that was checked before and fits.
///
/// # Errors
/// As [`verify_log`].
pub fn verify_with(
    storage: &Arc<dyn Storage>,
    subject: &Subject,
    proofs: &Proofs,
    done: &mut u64,
    total: u64,
    progress: Progress<'_>,
) -> Result<LogReport> {
    let mut tries = 1;
    loop {
        let mut pass = Pass::new(storage, subject, *done, total, progress, proofs);
        let before = pass.run()?;
        let (report, reached) = (pass.report, pass.done);
        // Missing segments were put away or replaced meanwhile: the findings may be about them.
        let changed =
            before.iter().any(|(sequence, file)| identity(storage, subject, *sequence) != *file);
        if !changed || report.is_sound() || tries == TRIES {
            *done = reached;
            return Ok(report);
        }
        tries += 1;
    }
}

/// Device and inode of a file; `None` if it does not exist.
type FileIdentity = Option<(u64, u64)>;

fn identity(storage: &Arc<dyn Storage>, subject: &Subject, sequence: u64) -> FileIdentity {
    storage.stat(&subject.dir.join(names::segment(sequence))).ok().map(|stat| stat.id())
}

/// Return roughly how many bytes a verification of a log has to check.
pub fn content_len(storage: &dyn Storage, dir: &Path) -> u64 {
    let sequences = list_segments(storage, dir).unwrap_or_default();
    let lens = sequences.iter().map(|sequence| {
        let path = dir.join(names::segment(*sequence));
        storage.stat(&path).map_or(0, |stat| stat.allocated.min(stat.len))
    });
    lens.sum()
}

/// One check of a log.
struct Pass<'a> {
    storage: &'a Arc<dyn Storage>,
    subject: &'a Subject,
    report: LogReport,
    ends: Option<ControlEnds>,
    /// The log's state at its durable end.
    state_at_durable: Option<LogState>,
    /// Offsets with which the oldest segment begins, by topic number.
    bases: Option<BTreeMap<u32, u64>>,
    /// The segment that the oldest one continues.
    before_oldest: Option<PathBuf>,
    done: u64,
    total: u64,
    progress: Progress<'a>,
    proofs: &'a Proofs,
}

impl<'a> Pass<'a> {
    fn new(
        storage: &'a Arc<dyn Storage>,
        subject: &'a Subject,
        done: u64,
        total: u64,
        progress: Progress<'a>,
        proofs: &'a Proofs,
    ) -> Self {
        let report = LogReport { dir: subject.dir.clone(), ..LogReport::default() };
        Self {
            storage,
            subject,
            report,
            ends: None,
            state_at_durable: None,
            bases: None,
            before_oldest: None,
            done,
            total,
            progress,
            proofs,
        }
    }

    /// Check the log; return the segments that were found, and which files those are.
    fn run(&mut self) -> Result<Vec<(u64, FileIdentity)>> {
        // The page comes first: the segment with the end exists by the time of the list.
        self.ends = self.control();
        let listed = list_segments(&**self.storage, &self.subject.dir)?;
        let identity = |sequence: &u64| identity(self.storage, self.subject, *sequence);
        let files = listed.iter().map(|sequence| (*sequence, identity(sequence))).collect();
        let links = self.survey(&listed);
        self.report.segments = links.len() as u64;
        self.report.latched = self.ends.is_some_and(|ends| ends.latched);
        let marked = self.durable_by_marks(&links);
        let claimed = self.ends.map_or(marked, |ends| ends.durable.min(ends.tail));
        self.report.durable = marked.max(claimed);
        let last = self.blocks(&links, marked)?;
        self.doubted(&last);
        let kept = self.recovered();
        self.reach(&last, kept.as_ref());
        Ok(files)
    }

    /// Find the log's state where recovery will end it, if one is due, as recovery does.
    fn recovered(&mut self) -> Option<LogState> {
        let due = |finding: &Finding| finding.severity == Severity::Unrecovered;
        if !self.report.findings.iter().any(due) {
            return None;
        }
        let settings = LogSettings {
            generation: self.subject.generation,
            segment_bytes: 0,
            write_mode: WriteMode::Mapped,
            file_mode: 0,
            lock_timeout: None,
            sync_interval: Duration::ZERO,
            reading: Reading::Pread,
        };
        // If recovery would fail, the reason was found already.
        let (end, state) = recovered_end(self.storage, &self.subject.dir, &settings).ok()?;
        self.report.recovered = Some(end);
        Some(state)
    }

    /// Note records of a topic that recovery will cut off.
    fn will_be_cut(&mut self, number: u32, offsets: Range<u64>) {
        let Some(end) = self.report.recovered else { return };
        let path = self.subject.dir.join(names::segment(end.sequence()));
        let what = "records that recovery will cut off: something before them did not arrive";
        let (topic, partition) = self.name(number);
        let found = Finding::new(Severity::Unrecovered, &path, end.position(), what);
        self.report.note(Finding { topic, partition, offsets: Some(offsets), ..found });
    }

    /// Note that cursors, idempotency keys and producers are in doubt: the corruption that hid them
    /// may be gone by now.
    fn doubted(&mut self, last: &LogState) {
        let Some(step) = doubted(&self.subject.dir, last) else { return };
        let found = Finding::new(Severity::Damage, &step.path, step.position, IN_DOUBT);
        let remedy = "restore the store from a backup, or run `falaj repair`, which declares the known ones valid: work \
                      that was done since may be done again";
        self.report.note(Finding { remedy: remedy.into(), ..found });
    }

    /// Read the control page; `None` when there is no usable one.
    fn control(&mut self) -> Option<ControlEnds> {
        let (dir, generation) = (&self.subject.dir, self.subject.generation);
        match Control::open_unmapped(&**self.storage, dir, generation) {
            // A page that was made and never used says nothing.
            Ok(control) if control.incarnation() == 0 => None,
            Ok(control) => {
                self.words(&control);
                Some(ControlEnds {
                    // In this order: durable data is committed, even if both ends move meanwhile.
                    durable: control.durable(),
                    tail: control.tail(),
                    latched: control.flags() & flag::LATCHED != 0,
                })
            }
            Err(error) if error.is_not_found() => {
                let path = dir.join("control");
                let what = "there is no control page, as in a fresh log or a restored backup";
                self.report.note(Finding::new(Severity::Note, &path, 0, what));
                None
            }
            Err(error) => {
                let path = dir.join("control");
                let mut found = Finding::of_error(Severity::Rebuildable, &path, &error);
                if matches!(error, Error::CorruptData { .. }) {
                    found.remedy = MADE_ANEW.into();
                }
                self.report.note(found);
                None
            }
        }
    }

    /// Check the words that stop every process that meets them. They hold for one incarnation, and
    /// are reset for the next.
    fn words(&mut self, control: &Control) {
        let path = self.subject.dir.join("control");
        let is_none = |word: &u64| lock::decode(control.word_value(*word)).is_err();
        let lock = [at::APPEND_LOCK, at::SYNC_LOCK].into_iter().find(is_none);
        let lock = lock.map(|position| (position, "the lock word is not one that falaj writes"));
        let flags = control.refuse_unknown_flags().is_err();
        let flags = flags.then_some((at::FLAGS, "an unknown flag is set"));
        for (position, what) in lock.into_iter().chain(flags) {
            let found = Finding::new(Severity::Rebuildable, &path, position, what);
            self.report.note(Finding { len: 8, remedy: MADE_ANEW.into(), ..found });
        }
        let named = self.subject.topics.values().next().filter(|_| control.is_deleted());
        if let Some(named) = named {
            let found = Finding::new(Severity::Rebuildable, &path, at::FLAGS, CALLED_DELETED);
            self.report.note(Finding { topic: Some(named.topic.clone()), ..found });
        }
    }

    /// Report how far each topic reaches.
    fn reach(&mut self, last: &LogState, kept: Option<&LogState>) {
        let durable = self.state_at_durable.take();
        for (number, known) in &self.subject.topics {
            let path = &self.subject.dir;
            let Some(state) = last.topic(*number) else {
                let what = format!("{UNKNOWN_NUMBER} {number}");
                let found = Finding {
                    topic: Some(known.topic.clone()),
                    partition: Some(known.partition),
                    ..Finding::new(Severity::Damage, path, 0, what)
                };
                self.report.note(found);
                continue;
            };
            if state.generation != known.generation {
                let what = "the log holds this topic number for another topic";
                let found = Finding {
                    topic: Some(known.topic.clone()),
                    ..Finding::new(Severity::Damage, path, 0, what)
                };
                self.report.note(found);
            }
            let base = self.bases.as_ref().and_then(|bases| bases.get(number)).copied();
            let first = state.first.max(base.unwrap_or(0));
            if let Some(lost) = self.before_oldest.as_ref().filter(|_| first > state.first) {
                // Retention records a trim before it removes a segment.
                let found = Finding {
                    topic: Some(known.topic.clone()),
                    partition: Some(known.partition),
                    offsets: Some(state.first..first),
                    ..Finding::new(Severity::Damage, lost, 0, "the segment is missing")
                };
                self.report.note(found);
            }
            let durable = durable.as_ref().and_then(|state| state.topic(*number));
            let kept = kept.and_then(|kept| kept.topic(*number)).map_or(state.next, |t| t.next);
            if kept < state.next {
                self.will_be_cut(*number, kept..state.next);
            }
            self.report.topics.push(TopicReport {
                topic: known.topic.clone(),
                partition: known.partition,
                first,
                end: kept.min(state.next),
                found: state.next,
                durable: durable.map_or(0, |topic| topic.next),
            });
        }
    }

    /// Return the topic of a number, for a finding.
    fn name(&self, number: u32) -> (Option<String>, Option<u32>) {
        let known = self.subject.topics.get(&number);
        (known.map(|known| known.topic.clone()), known.map(|known| known.partition))
    }

    fn tell(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        self.report.bytes += bytes;
        (self.progress)(self.done, self.total.max(self.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_behind_a_thousand_missing_indexes_is_not_crowded_out() {
        let mut report = LogReport::default();
        let finding = |severity| Finding::new(severity, Path::new("/s/0.log"), 0, "a finding");
        report.note_all((0..1500).map(|_| finding(Severity::Rebuildable)));
        assert!(report.is_sound());
        report.note(finding(Severity::Damage));
        report.note(finding(Severity::Note));
        assert!(!report.is_sound());
        assert_eq!((report.findings.len(), report.more_findings), (1000, 502));
        assert_eq!(report.findings.last().map(|found| found.severity), Some(Severity::Damage));
    }
}
