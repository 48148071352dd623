//! Checking the files beside the logs without trust: consumer groups, queues, and the wake page.
//!
//! Owns what verification, repair, `maintain` and backup report about `consumers/` and `queues/`.
//! It takes no lock, changes nothing, and works on stores that do not open. It uses the same checks
//! as the users of the files, so it finds every error that stops one, with its remedy. Invariant: a
//! store in progress by a living process is no corruption. A cursor, an entry and the ends of a
//! queue have two versions, written in turns. So a killed process may have left a torn one: that is
//! a note. Parts that are valid for one incarnation only have no checksum and are not checked,
//! except a queue's lock and the wake page. [`crate::consumer`] and [`crate::queue`] define the
//! contents.

use std::io;
use std::path::Path;

use super::layout::Layout;
use super::membership::incarnation_now;
use super::{Store, files, topics};
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::format::consumer::{self, ENTRIES_MAX, SECTOR, check_header, cut_at, entries, store_in};
use crate::format::queue::{self, ENTRY_LEN, Parts, QueueEnds, QueueHeader, SLOTS, VERSION_LEN};
use crate::format::{u64_at, wake};
use crate::lock;
use crate::log::verify::{Finding, MADE_ANEW, Severity};
use crate::storage::{File, Storage};

/// How often the file of a group with a torn cursor is read again.
const TRIES: u32 = 3;
/// How often that of a queue is read again while a process changes it.
const QUEUE_TRIES: u32 = 64;
/// Bytes of a queue's file before its entries.
const FRONT: usize = Parts::HOLDERS as usize + 8 * SLOTS as usize;
/// Entries of a queue that are read at once.
const AT_ONCE: u64 = 4096;
/// Rounds of the ring from which a version of an entry may be left.
const ROUNDS: u64 = 1024;

/// Read the file of a group while its members store cursors: a cursor that is torn every time is
/// corrupt.
pub(crate) fn read_consumer(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>> {
    let mut tries = 1;
    loop {
        let read = files::read_up_to(storage, path, consumer::entry(ENTRIES_MAX))?;
        let is_torn = |bytes: &Vec<u8>| entries(bytes).any(|entry| entry.complaint().is_some());
        if tries == TRIES || !read.as_ref().is_some_and(is_torn) {
            return Ok(read);
        }
        tries += 1;
        std::thread::yield_now();
    }
}

/// The part of a queue's file before its entries.
pub(crate) struct Front {
    pub(crate) header: QueueHeader,
    pub(crate) ends: QueueEnds,
    pub(crate) bytes: Vec<u8>,
}

impl Front {
    /// Read it, at a moment when no process changes it, if there is one soon.
    ///
    /// # Errors
    /// `CorruptData`, `UnsupportedVersion`, `SystemCallFailed`.
    pub(crate) fn read(file: &dyn File, path: &Path) -> Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            let bytes = files::read_at(file, path, 0, FRONT)?;
            let header = QueueHeader::decode(&bytes).in_file(path, 0)?;
            let len = file.stat().doing("look at", path)?.len;
            if len < header.parts.file_len() {
                return Err(Error::corrupt(path, len, queue::CUT));
            }
            let ends = QueueEnds::newest(QueueEnds::in_page(&bytes, header.id));
            let is_quiet = ends.is_ok() && u64_at(&bytes, queue::at::BUSY as usize) == 0;
            if !is_quiet && tries < QUEUE_TRIES {
                std::thread::yield_now();
                continue;
            }
            let ends = ends.in_file(path, queue::at::ENDS[0])?.0;
            return Ok(Self { header, ends, bytes });
        }
    }

    /// Return how many entries it has.
    fn entries(&self) -> u64 {
        (self.ends.head - self.ends.floor).min(self.header.parts.capacity)
    }

    /// Read all entries, each with its offset and its position; ends at the first error.
    pub(crate) fn each_entry(
        &self,
        file: &dyn File,
        mut each: impl FnMut(u64, u64, &[u8]),
    ) -> io::Result<()> {
        let (parts, mut offset) = (self.header.parts, self.ends.floor);
        let head = offset + self.entries();
        while offset < head {
            let first = parts.place(offset);
            let count = (head - offset).min(parts.capacity - first).min(AT_ONCE);
            let mut bytes = vec![0; (count * ENTRY_LEN) as usize];
            file.read_at(&mut bytes, parts.entry(first))?;
            for (entry, offset) in bytes.chunks_exact(ENTRY_LEN as usize).zip(offset..) {
                each(offset, parts.entry(offset), entry);
            }
            offset += count;
        }
        Ok(())
    }

    /// Return one of the words that processes share.
    pub(crate) fn word(&self, position: u64) -> u64 {
        u64_at(&self.bytes, position as usize)
    }
}

/// Return true for an entry of a deleted topic: no member needs its cursor any more.
fn is_forgotten(storage: &dyn Storage, layout: &Layout, entry: &consumer::CursorEntry) -> bool {
    let named = entry.named.as_ref();
    named.is_some_and(|named| topics::is_gone(storage, layout, &named.topic, &named.generation))
}

impl Store {
    /// Return true for an entry of a group's file whose topic was deleted.
    pub(crate) fn is_forgotten(&self, entry: &consumer::CursorEntry) -> bool {
        is_forgotten(self.storage().as_ref(), self.layout(), entry)
    }

    /// Return the errors that stop users of a consumer group or a queue, now or at the next
    /// opening.
    pub(super) fn problems_beside(&self) -> Vec<Error> {
        let (storage, id) = (self.storage().as_ref(), self.settings().id);
        let found = look(storage, self.layout(), Some(id), &mut |_| Ok(()));
        found.map_or_else(|error| vec![error], |found| found.problems)
    }
}

/// The result of the check.
#[derive(Debug, Default)]
pub(super) struct SidecarReport {
    /// All findings.
    pub(super) findings: Vec<Finding>,
    /// Those of them that stop users of a consumer group or a queue.
    pub(super) problems: Vec<Error>,
}

/// Check all files. `id` is the store's, if known; `tell` gets the number of bytes read, and its
/// error ends the check.
///
/// # Errors
/// `SystemCallFailed` when a directory cannot be listed, and the errors of `tell`.
pub(super) fn look(
    storage: &dyn Storage,
    layout: &Layout,
    id: Option<[u8; 16]>,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<SidecarReport> {
    let mut look = Look { storage, layout, id, found: SidecarReport::default() };
    for name in files::list_if_there(storage, &layout.consumers())? {
        if let Ok(path) = layout.consumer(&name) {
            tell(look.consumer(&name, &path))?;
        }
    }
    for name in files::list_if_there(storage, &layout.queues())? {
        if let Ok(path) = layout.queue(&name) {
            tell(look.queue(&name, &path))?;
        }
    }
    tell(look.wake_page())?;
    Ok(look.found)
}

struct Look<'a> {
    storage: &'a dyn Storage,
    layout: &'a Layout,
    id: Option<[u8; 16]>,
    found: SidecarReport,
}

impl Look<'_> {
    /// Note an error that stops users, and its remedy.
    fn hurt(&mut self, path: &Path, error: Error, remedy: String) -> &mut Finding {
        let mut finding = Finding::of_error(Severity::Damage, path, &error);
        if matches!(error, Error::CorruptData { .. }) {
            // The remedy here replaces the general one in the error.
            finding.what.truncate(finding.what.find("; `falaj ").unwrap_or(finding.what.len()));
            finding.remedy = remedy.into();
        }
        self.found.problems.push(error);
        let at = self.found.findings.len();
        self.found.findings.push(finding);
        &mut self.found.findings[at]
    }

    fn note(&mut self, severity: Severity, path: &Path, position: u64, words: [&'static str; 2]) {
        let [what, remedy] = words;
        let finding = Finding::new(severity, path, position, what);
        self.found.findings.push(Finding { remedy: remedy.into(), ..finding });
    }

    /// Check a group's file; return how many bytes were read.
    fn consumer(&mut self, name: &str, path: &Path) -> u64 {
        let bytes = match read_consumer(self.storage, path) {
            Ok(Some(bytes)) => bytes,
            // It was deleted meanwhile.
            Ok(None) => return 0,
            Err(error) => {
                self.hurt(path, error, String::new());
                return 0;
            }
        };
        let forget = format!(
            "restore the file from a backup, or let `falaj group delete {name}` forget \
             the group, which then begins again"
        );
        let header = check_header(&bytes, self.id.unwrap_or_else(|| store_in(&bytes))).err();
        let cut = || cut_at(&bytes).map(|len| Error::corrupt(path, len, consumer::CUT));
        match header.map(|what| Error::malformed(path, 0, what)).or_else(cut) {
            Some(error) => drop(self.hurt(path, error, forget)),
            None => self.entries(name, path, &bytes, &forget),
        }
        bytes.len() as u64
    }

    fn entries(&mut self, name: &str, path: &Path, bytes: &[u8], forget: &str) {
        for (index, entry) in (0..).zip(entries(bytes)) {
            let at = consumer::entry(index);
            if let Some(what) = entry.complaint() {
                if is_forgotten(self.storage, self.layout, &entry) {
                    continue;
                }
                let position = at + consumer::at::CURSORS;
                let error = Error::corrupt(path, position, what);
                let remedy = entry.named.as_ref().map(|of| {
                    format!(
                        "end its members, then choose where it resumes: `falaj group seek {name} {} \
                         --partition {} --to PLACE`",
                        of.topic, of.partition
                    )
                });
                let finding = self.hurt(path, error, remedy.unwrap_or_else(|| forget.to_owned()));
                finding.len = 2 * SECTOR;
                finding.topic = entry.named.as_ref().map(|of| of.topic.clone());
                finding.partition = entry.named.as_ref().map(|of| of.partition);
                continue;
            }
            if entry.cursor().is_none() {
                continue;
            }
            if entry.named.is_none() && entry.is_named {
                let what = "the name of this entry is corrupt; its cursor has it as well";
                let remedy = "the next member that opens the group rebuilds it";
                self.note(Severity::Rebuildable, path, at, [what, remedy]);
            }
            // Its owner may be storing it just now.
            let torn = entry.torn.iter().position(|torn| *torn).filter(|_| entry.owner == 0);
            if let Some(half) = torn {
                let what = "one of the two versions of this cursor is not whole: a process was killed \
                            while it stored it, or it is corrupt";
                let remedy = "the other one counts, and the next commits write both; if this was \
                              the last commit, its records are delivered again";
                let at = at + consumer::at::CURSORS + half as u64 * SECTOR;
                self.note(Severity::Note, path, at, [what, remedy]);
            }
        }
    }

    /// Check the wake page: a bad one stops a process that opens the store while others have it
    /// open. Return how many bytes were read.
    fn wake_page(&mut self) -> u64 {
        let path = self.layout.wake();
        // A missing one, as in a restored backup, is made.
        let Ok(Some(bytes)) = files::read_up_to(self.storage, &path, wake::LEN + 1) else {
            return 0;
        };
        let len = bytes.len() as u64;
        let header = wake::check_header(&bytes, self.id.unwrap_or_else(|| store_in(&bytes))).err();
        let error = header.map(|what| Error::malformed(&path, 0, what));
        let long = || (len != wake::LEN).then(|| Error::corrupt(&path, len, wake::OTHER_LEN));
        if let Some(error) = error.or_else(long) {
            let finding = Finding::of_error(Severity::Rebuildable, &path, &error);
            self.found.findings.push(match finding.severity {
                Severity::Rebuildable => Finding { remedy: MADE_ANEW.into(), ..finding },
                _ => finding,
            });
        }
        len
    }

    /// Check a queue's file; return how many bytes were read.
    fn queue(&mut self, name: &str, path: &Path) -> u64 {
        let file = match files::open_to_read(self.storage, path) {
            Ok(Some(file)) => file,
            Ok(None) => return 0,
            // A lock file: only users that may write the store may read it.
            Err(Error::SystemCallFailed { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                let what = "this queue's file is for users that may write to the store: it was not \
                            checked";
                let remedy = "verify the store as such a user";
                self.note(Severity::Note, path, 0, [what, remedy]);
                return 0;
            }
            Err(error) => {
                self.hurt(path, error, String::new());
                return 0;
            }
        };
        let forget = || {
            format!(
                "restore the file from a backup while no process has the store open, or let `falaj \
                 queue reset {name}` start again: all its jobs are then ready"
            )
        };
        let front = match Front::read(&*file, path) {
            Ok(front) => front,
            Err(error) => {
                self.hurt(path, error, forget());
                return FRONT as u64;
            }
        };
        self.lock_of(path, &front);
        let mut torn = torn_in_queue(&*file, &front);
        if !torn.is_empty() {
            // A store that was in progress is whole by now.
            let again = Front::read(&*file, path);
            let again = again.map(|again| torn_in_queue(&*file, &again)).unwrap_or_default();
            torn.retain(|position| again.contains(position));
            self.notes_of(path, &torn);
        }
        FRONT as u64 + ENTRY_LEN * front.entries()
    }

    /// Check the lock word; one of an earlier incarnation has no owner.
    fn lock_of(&mut self, path: &Path, front: &Front) {
        let now = incarnation_now(self.storage, self.layout);
        let is_current = now == Some(front.word(queue::at::INCARNATION));
        if !is_current || lock::decode(front.word(queue::at::LOCK)).is_ok() {
            return;
        }
        let (position, what) = (queue::at::LOCK, queue::NO_LOCK_WORD);
        self.note(Severity::Rebuildable, path, position, [what, MADE_ANEW]);
    }

    fn notes_of(&mut self, path: &Path, torn: &[u64]) {
        const HELPS: &str = "the other one counts, and the next changes write both; at worst a job \
                             that was done is delivered again";
        let (of_ends, of_jobs): (Vec<_>, Vec<_>) =
            torn.iter().partition(|position| queue::at::ENDS.contains(position));
        if let Some(first) = of_ends.first() {
            let what = "one of the two versions of the queue's ends is not whole: a process was killed \
                        while it stored them, or it is corrupt";
            self.note(Severity::Note, path, *first, [what, HELPS]);
        }
        let Some(first) = of_jobs.first() else { return };
        let what = "one of the two versions of a job's state is not whole: a process was killed while \
                    it stored it, or it is corrupt";
        self.note(Severity::Note, path, *first, [what, HELPS]);
        if let Some(finding) = self.found.findings.last_mut().filter(|_| of_jobs.len() > 1) {
            finding.what = format!("{what}; {} more of this queue", of_jobs.len() - 1);
        }
    }
}

/// List the positions of ends and versions of entries that are torn. Versions from another round of
/// the ring, and stores in progress, are not.
fn torn_in_queue(file: &dyn File, front: &Front) -> Vec<u64> {
    if front.word(queue::at::BUSY) != 0 {
        // A process changes it, or died in the middle.
        return Vec::new();
    }
    let (parts, id) = (front.header.parts, front.header.id);
    let ends = QueueEnds::torn_in(&front.bytes, id);
    let mut found: Vec<_> = ends.iter().map(|slot| queue::at::ENDS[*slot]).collect();
    // Unreadable bytes are not known to be torn; a process that opens the queue gets the error.
    let _ = front.each_entry(file, |offset, position, entry| {
        for (half, version) in (0..).zip(entry.chunks_exact(VERSION_LEN as usize)) {
            let words: [u64; 4] = std::array::from_fn(|word| u64_at(version, 8 * word));
            if words != [0; 4] && !is_of_a_round(&words, id, offset, parts.capacity) {
                found.push(position + half * VERSION_LEN);
            }
        }
    });
    found
}

/// Return true for a version of the record of this offset, or of another record in the same place.
fn is_of_a_round(words: &[u64; 4], id: u64, offset: u64, capacity: u64) -> bool {
    let is_of = |offset| queue::JobEntry::decode(words, id, offset).is_some();
    let before = (1..ROUNDS).map_while(|round| offset.checked_sub(round.checked_mul(capacity)?));
    // The ends may be older than the entries, as after a power failure.
    let behind = (1..ROUNDS).map_while(|round| offset.checked_add(round.checked_mul(capacity)?));
    std::iter::once(offset).chain(before).chain(behind).any(is_of)
}
