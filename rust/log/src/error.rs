//! Errors: what the caller's situation is, on which path, and what to do next.
//!
//! Owns the one enum that every call of the engine fails with. A caller matches on the situation,
//! not on the place in the code. [`Error::remedy`] groups the situations by what helps. Invariant:
//! a message tells a person in short sentences what happened and what to do. An error of the kernel
//! keeps its number ([`Error::os_error`]), and a full disk has a variant of its own. The bindings
//! choose the Python exception for each variant; `docs/GUARANTEES.md` says what a user may rely on
//! after each.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::format::{DecodeError, VERSION};

/// Result with falaj's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error, described as the caller's situation.
#[derive(Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a variant's sentence says what its fields are")]
pub enum Error {
    /// The operating system refused. Next: what its message says.
    SystemCallFailed { what: &'static str, path: PathBuf, source: io::Error },
    /// The disk, quota or inode table is full, or a file-size limit was reached. Nothing committed
    /// is lost. Next: free space or raise the limit, as the message says. Appends then succeed
    /// again without reopening.
    NoSpace { what: &'static str, path: PathBuf, source: io::Error },
    /// The path is not a falaj store. Next: check the path, or open it for writing to create one.
    NotAStore { path: PathBuf, why: String },
    /// There is no store at the path, and none was created. Next: check the path, create its directory,
    /// or open it for writing.
    StoreNotFound { path: PathBuf, why: String },
    /// Written by a newer version. Next: upgrade falaj.
    UnsupportedVersion { path: PathBuf, position: Option<u64>, what: String },
    /// Written in an older version of the format. Next: copy its records with the falaj that wrote it.
    OutdatedFormat { path: PathBuf, version: u32 },
    /// Bytes are not what was written. Next: run `falaj verify` to see the extent; readers may skip
    /// it.
    CorruptData { path: PathBuf, position: u64, what: &'static str },
    /// The pieces for a new store are not what a store consists of. Nothing was built. Next: read
    /// them again from where they came, or take an earlier state.
    CorruptPieces { path: PathBuf, position: u64, what: String },
    /// The end of the log was not recovered after a crash. Next: open the store for writing once,
    /// or run `falaj repair`.
    NeedsRecovery { path: PathBuf, position: u64, what: &'static str },
    /// A sync failed and the bytes could not be saved elsewhere. Reads succeed, appends do not.
    /// Next: free or replace the disk, then append again, or run `falaj repair`.
    SyncFailed { path: PathBuf, why: String },
    /// The lock was not acquired in time. Next: wait longer, or look at the process that holds it.
    LockTimeout { path: PathBuf, waited: Duration, holder: String },
    /// A lock or control file was replaced while in use. Next: restore the store from a backup made
    /// by `falaj backup`, or stop all its processes and open it again.
    LockFileReplaced { path: PathBuf },
    /// A file of the store was removed, or the store was moved away, while in use. Next: open the
    /// store again where it is now, or restore a backup. Records that no backup has are only in the
    /// removed files.
    FilesRemoved { path: PathBuf },
    /// All slots for writing processes are taken. Next: close some process.
    TooManyWriters { path: PathBuf, limit: u32 },
    /// The file system cannot keep falaj's promises. Next: use a local one, or force it knowingly.
    UnsupportedFilesystem { path: PathBuf, kind: String },
    /// A name that no topic, log, consumer group or queue may have. Next: choose another.
    InvalidName { what: &'static str, name: String, why: String },
    /// An argument that cannot be right. Next: do as the message says.
    InvalidArgument { what: String },
    /// A record or batch is larger than a block may be. Next: split it, or choose larger segments.
    AppendTooLarge { bytes: u64, limit: u64 },
    /// There is no topic of this name; `topics` lists the existing ones. Next: check the name, or
    /// create the topic by opening it for writing.
    UnknownTopic { name: String, store: PathBuf, topics: Vec<String> },
    /// The topic was deleted while in use. Next: open it again, which creates it.
    TopicDeleted { name: String },
    /// The topic is finished: no record comes after those that are there. Nothing was appended.
    /// Next: append to another topic.
    TopicFinished { topic: String, partition: u32 },
    /// The topic, or the store at this path, exists with other settings. Next: open it without
    /// settings, or with the stored ones.
    SettingsMismatch { topic: String, setting: &'static str, stored: String, asked: String },
    /// No record has this offset. Next: read from `first`, or wait for the offset to be written. An
    /// error about a log has the log's name, and as the partition the topic's number in that log.
    OffsetOutOfRange { topic: String, partition: u32, offset: i128, first: u64, end: u64 },
    /// Compaction removed this record; a newer one has its key. Next: read the next offset.
    RecordCompacted { topic: String, offset: u64 },
    /// An append through a store or topic that was opened for reading. Next: open it for writing.
    NotWritable { path: PathBuf },
    /// The handle was closed. Next: open a new one.
    HandleClosed { what: &'static str },
    /// The append may be visible, but it is not known to be on stable storage. Next: read back from
    /// `offset` before you append it again.
    DurabilityUnknown { offset: u64, source: Box<Error> },
    /// No process ships the store. Without an `offset` nothing was appended; with one, the records
    /// from there on are on this disk, and whether they left the machine is unknown. Next: start a
    /// process that ships the store.
    NoShipper { store: PathBuf, offset: Option<u64> },
    /// The process that shipped the store stopped, because another store's process claimed the
    /// place. `offset` as for `NoShipper`. Next: find out which of the two stores is to continue.
    Fenced { store: PathBuf, offset: Option<u64> },
    /// The records from `offset` on are on this disk, and did not leave the machine in time, as far
    /// as is known. Next: wait for them, and do not append them again.
    RemoteTimeout { path: PathBuf, waited: Duration, offset: Option<u64> },
    /// The record would get the offset `next` instead of the expected one: another append came
    /// first, or the expected offset lies beyond the end. Nothing was appended. Next: read the
    /// records up to `next`, and decide again.
    OffsetConflict { topic: String, partition: u32, expected: u64, next: u64 },
    /// A producer skipped sequences: `next` must come first, one above the highest known. Nothing
    /// was appended. Next: append what is missing.
    OutOfOrderSequence { topic: String, partition: u32, producer: String, sequence: u64, next: u64 },
    /// The sequence is older than all that the log remembers of this producer. Either it repeats an
    /// append whose offset is no longer known, or it is from before the first one. Nothing was
    /// appended. Next: continue with the sequence after the highest one.
    DuplicateSequence {
        topic: String,
        partition: u32,
        producer: String,
        sequence: u64,
        highest: u64,
    },
    /// The log no longer holds what the group had read: it lost its end, or is an older copy. Next:
    /// seek to choose where to resume.
    LogTruncated { group: String, topic: String, partition: u32, offset: u64, end: u64 },
    /// The partition is not assigned to this member, but to another one or to none. Nothing was
    /// committed. Next: continue with the assigned partitions. The partition's next owner resumes
    /// from its committed offset.
    PartitionNotAssigned { group: String, topic: String, partition: u32, holder: String },
    /// A cursor that a log keeps is not where the move was to begin: another process moved it.
    /// Nothing was appended. Next: read where it is, and begin again from there.
    CursorMoved { name: Vec<u8> },
    /// There is no consumer group of this name. Next: check the name; the first member creates the
    /// group.
    UnknownGroup { name: String, store: PathBuf, groups: Vec<String> },
    /// There is no queue of this name, and none was created. Next: check the name, or let it be
    /// created.
    UnknownQueue { name: String, store: PathBuf, queues: Vec<String> },
    /// This process does not, or no longer, hold the lease of a job: another worker may have the
    /// job. Nothing changed for it. Next: drop the result, or take longer leases.
    LeaseExpired { queue: String, offset: u64, why: &'static str },
    /// The manifest of a part is corrupt, or belongs to another load or topic. Nothing was
    /// committed. Next: stage the part again, and commit with the new manifest.
    InvalidManifest { load: String, why: String },
    /// A staged part no longer exists: its load was committed or aborted, or the part was swept.
    /// Nothing was committed. Next: stage it again.
    NotStaged { load: String, part: String, path: PathBuf },
    /// The caller asked to stop waiting.
    Interrupted,
}

/// Adds to an I/O error which operation failed, and on which path.
pub(crate) trait IoResult<T> {
    /// Convert the error by [`Error::io`].
    fn doing(self, what: &'static str, path: &Path) -> Result<T>;

    /// Convert the error likewise; return `None` if the path does not exist.
    fn if_there(self, what: &'static str, path: &Path) -> Result<Option<T>>;
}

impl<T> IoResult<T> for io::Result<T> {
    #[inline]
    fn doing(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::io(what, path, error))
    }

    fn if_there(self, what: &'static str, path: &Path) -> Result<Option<T>> {
        match self {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some).doing(what, path),
        }
    }
}

/// Adds to a decoding error its file and position.
pub(crate) trait DecodedIn<T> {
    /// Convert the error by [`Error::malformed`].
    fn in_file(self, path: &Path, position: u64) -> Result<T>;
}

impl<T> DecodedIn<T> for std::result::Result<T, DecodeError> {
    fn in_file(self, path: &Path, position: u64) -> Result<T> {
        self.map_err(|what| Error::malformed(path, position, what))
    }
}

/// A group of errors with the same remedy, for callers that decide by it. In Python each is a base
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Wait, then repeat the call. Python: `RetryableError`.
    Retry,
    /// The state that the call relied on has changed: read it again and decide again. Python:
    /// `ConflictError`.
    LookAgain,
    /// Change the call or its data. Python: `UsageError`.
    FixInput,
    /// Free space, fix the machine or install what is missing, then continue. Python:
    /// `MachineError`.
    FixMachine,
    /// Verify, restore a backup, or repair. Python: `CorruptionError`.
    Repair,
}

impl Error {
    /// Convert an operating system error; a full disk gets a variant of its own.
    #[cold]
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                Error::NoSpace { what, path, source }
            }
            _ => Error::SystemCallFailed { what, path, source },
        }
    }

    /// Bytes at a place in a file that are not what was written.
    #[cold]
    pub(crate) fn corrupt(path: &Path, position: u64, what: &'static str) -> Self {
        Error::CorruptData { path: path.to_path_buf(), position, what }
    }

    /// Pieces of a store that are not what a store consists of, at a place in a file of it.
    #[cold]
    pub(crate) fn corrupt_pieces(path: &Path, position: u64, what: impl Into<String>) -> Self {
        Error::CorruptPieces { path: path.to_path_buf(), position, what: what.into() }
    }

    /// An argument that cannot be right, with what helps.
    #[cold]
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::InvalidArgument { what: what.into() }
    }

    /// Metadata of a committed offset that has too many bytes.
    #[cold]
    pub(crate) fn long_metadata(bytes: usize) -> Self {
        Self::invalid(format!(
            "the metadata of a committed offset has at most {} bytes of UTF-8, and this has {bytes}: keep \
             the rest elsewhere, and name its place",
            crate::format::state::MAX_METADATA
        ))
    }

    /// Convert what a decoder found wrong at a place in a file.
    pub fn malformed(path: &Path, position: u64, what: DecodeError) -> Self {
        let path = path.to_path_buf();
        match what {
            DecodeError::Damaged(what) => Error::CorruptData { path, position, what },
            DecodeError::Version(version) if version < VERSION => {
                Error::OutdatedFormat { path, version }
            }
            newer => {
                let position = newer.is_newer().then_some(position);
                Error::UnsupportedVersion { path, position, what: newer.to_string() }
            }
        }
    }

    /// Convert a sync's error for an append that is already visible: its durability is unknown. The
    /// exceptions are a deleted topic and removed files, where all records are gone.
    #[must_use]
    pub fn after_append(self, offset: u64) -> Self {
        let offset_of_them = Some(offset);
        match self {
            Error::NoShipper { store, .. } => Error::NoShipper { store, offset: offset_of_them },
            Error::Fenced { store, .. } => Error::Fenced { store, offset: offset_of_them },
            Error::RemoteTimeout { path, waited, .. } => {
                Error::RemoteTimeout { path, waited, offset: offset_of_them }
            }
            Error::TopicDeleted { .. } | Error::FilesRemoved { .. } => self,
            source => Error::DurabilityUnknown { offset, source: Box::new(source) },
        }
    }

    /// Return the topic and partition that an append or a look-up named. In an error about a log
    /// these are the log's name and the topic's number in it.
    pub(crate) fn part_mut(&mut self) -> Option<(&mut String, &mut u32)> {
        match self {
            Error::OffsetOutOfRange { topic, partition, .. }
            | Error::OffsetConflict { topic, partition, .. }
            | Error::OutOfOrderSequence { topic, partition, .. }
            | Error::DuplicateSequence { topic, partition, .. }
            | Error::TopicFinished { topic, partition } => Some((topic, partition)),
            _ => None,
        }
    }

    /// Return what helps against this error.
    pub fn remedy(&self) -> Remedy {
        match self {
            Error::LockTimeout { .. } | Error::NeedsRecovery { .. } | Error::Interrupted => {
                Remedy::Retry
            }
            Error::OffsetConflict { .. }
            | Error::CursorMoved { .. }
            | Error::PartitionNotAssigned { .. }
            | Error::LeaseExpired { .. }
            | Error::TopicFinished { .. }
            | Error::TopicDeleted { .. } => Remedy::LookAgain,
            Error::InvalidName { .. }
            | Error::InvalidArgument { .. }
            | Error::AppendTooLarge { .. }
            | Error::NotAStore { .. }
            | Error::StoreNotFound { .. }
            | Error::UnknownTopic { .. }
            | Error::UnknownGroup { .. }
            | Error::UnknownQueue { .. }
            | Error::LogTruncated { .. }
            | Error::SettingsMismatch { .. }
            | Error::OffsetOutOfRange { .. }
            | Error::RecordCompacted { .. }
            | Error::OutOfOrderSequence { .. }
            | Error::DuplicateSequence { .. }
            | Error::InvalidManifest { .. }
            | Error::NotStaged { .. }
            | Error::NotWritable { .. }
            | Error::HandleClosed { .. }
            | Error::UnsupportedFilesystem { .. } => Remedy::FixInput,
            // An append is visible whatever the source says: a retry would append it twice.
            Error::DurabilityUnknown { .. }
            | Error::NoShipper { .. }
            | Error::Fenced { .. }
            | Error::RemoteTimeout { .. }
            | Error::SystemCallFailed { .. }
            | Error::NoSpace { .. }
            | Error::SyncFailed { .. }
            | Error::TooManyWriters { .. }
            | Error::UnsupportedVersion { .. }
            | Error::OutdatedFormat { .. }
            | Error::FilesRemoved { .. }
            | Error::LockFileReplaced { .. } => Remedy::FixMachine,
            Error::CorruptData { .. } | Error::CorruptPieces { .. } => Remedy::Repair,
        }
    }

    /// True where the operating system says that there is nothing at the path.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Error::SystemCallFailed { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Return the operating system's error number, if the error has one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Error::SystemCallFailed { source, .. } | Error::NoSpace { source, .. } => {
                source.raw_os_error()
            }
            Error::DurabilityUnknown { source, .. } => source.os_error(),
            _ => None,
        }
    }
}

/// List names in words, at most the first ten.
fn listed(what: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!("the store has no {what}");
    }
    let shown: Vec<_> = names.iter().take(10).map(|name| format!("{name:?}")).collect();
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("check the name: the store has {}{more}", shown.join(", "))
}

/// Suggest what helps where the operating system refused.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => {
            "check the path: it, or a directory on the way to it, is not there"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "give this user permission, or run as the user that has it"
        }
        Some(libc::EROFS) => "remount it for writing, or open the store for reading only",
        Some(libc::EMFILE) => "raise the limit `ulimit -n`, or close what this process has open",
        Some(libc::ENFILE) => {
            "raise the machine's limit `fs.file-max`, or close files that other processes have open"
        }
        Some(libc::ELOOP) => "falaj needs a file here, not a link: replace the link by its file",
        Some(libc::ENOMEM) => "free memory, or raise the limits `ulimit -v` and `vm.max_map_count`",
        Some(libc::ENAMETOOLONG) => "choose a shorter path",
        Some(libc::EIO) => {
            "the disk may be failing: `falaj verify` lists what cannot be read, and a store \
             opened to be read by `pread` reads the rest"
        }
        _ => "fix that, then retry",
    }
}

/// Suggest what helps where there is no space.
fn room(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EFBIG) => "raise the limit on the size of files, `ulimit -f`,",
        Some(libc::EDQUOT) => "free space within this user's quota, or have it raised,",
        _ => "free space",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::SystemCallFailed { what, path, source } => {
                write!(f, "cannot {what} {}: {source}; {}", path.display(), hint(source))
            }
            Error::NoSpace { what, path, source } => write!(
                f,
                "cannot {what} {}: {source}; nothing committed is lost, {} and retry",
                path.display(),
                room(source)
            ),
            Error::NotAStore { path, why } => write!(
                f,
                "{} is not a falaj store: {why}; check the path, or create one by opening a new or \
                 empty directory for writing",
                path.display()
            ),
            Error::StoreNotFound { path, why } => {
                write!(f, "there is no store at {}: {why}", path.display())
            }
            Error::UnsupportedVersion { path, position, what } => {
                write!(f, "{}", path.display())?;
                if let Some(position) = position {
                    write!(f, " at byte {position}")?;
                }
                write!(f, " needs a newer falaj ({what}): upgrade to read it")
            }
            Error::OutdatedFormat { path, version } => write!(
                f,
                "{} has format version {version}, and this falaj reads version {VERSION}. Print its \
                 records with the falaj that wrote it (`falaj cat --json`), and append them to a \
                 new store",
                path.display()
            ),
            Error::CorruptData { path, position, what } => write!(
                f,
                "{} is corrupt at byte {position}: {what}; run `falaj verify` to see the extent",
                path.display()
            ),
            Error::CorruptPieces { path, position, what } => write!(
                f,
                "the pieces of {} are corrupt at byte {position}: {what}; nothing was built; read them \
                 again from where they came, or take an earlier state",
                path.display()
            ),
            Error::NeedsRecovery { path, position, what } => write!(
                f,
                "the end of {} cannot be read yet, byte {position}: {what}. If a process writes to it \
                 now, try again. After a crash, open the store for writing once, or run `falaj repair`",
                path.display()
            ),
            Error::SyncFailed { path, why } => write!(
                f,
                "{} takes no appends after a failed sync ({why}); its records stay readable; \
                 free or replace the disk and append again, or run `falaj repair`",
                path.display()
            ),
            Error::LockTimeout { path, waited, holder } => write!(
                f,
                "the lock of {} was not free within {:.3} s: {holder} holds it; wait longer or look \
                 at that process",
                path.display(),
                waited.as_secs_f64()
            ),
            Error::LockFileReplaced { path } => write!(
                f,
                "{} was replaced while in use; stop all processes of this store and open it again, \
                 or restore a backup",
                path.display()
            ),
            Error::FilesRemoved { path } => write!(
                f,
                "{} was removed, or moved away, while in use. Records since the last successful sync \
                 are only in the removed files; open the store again, or restore a backup",
                path.display()
            ),
            Error::TooManyWriters { path, limit } => write!(
                f,
                "all {limit} slots for writing processes in {} are taken; close one of them",
                path.display()
            ),
            Error::UnsupportedFilesystem { path, kind } => write!(
                f,
                "{} lies on {kind}, where falaj cannot keep its promises; use a local disk, or allow it \
                 with allow_network_fs if only one machine uses the store",
                path.display()
            ),
            Error::InvalidName { what, name, why } => {
                write!(f, "{name:?} cannot name a {what}: {why}")
            }
            Error::InvalidArgument { what } => f.write_str(what),
            Error::AppendTooLarge { bytes, limit } => write!(
                f,
                "{bytes} bytes are more than the {limit} that one append may hold. Append fewer records at a \
                 time, write them as a bulk load, or create the topic with a larger segment_bytes"
            ),
            Error::UnknownTopic { name, store, topics } => {
                let listed = listed("topics", topics);
                write!(f, "there is no topic {name:?} in {}; {listed}", store.display())
            }
            Error::TopicDeleted { name } => {
                write!(f, "topic {name:?} was deleted; open it again to create a new one")
            }
            Error::SettingsMismatch { topic, setting, stored, asked } => {
                write!(f, "{topic:?} has {setting} = {stored}, not {asked}; open it ")?;
                f.write_str(match setting.starts_with("retention_") || *setting == "compacted" {
                    true => "without that setting, and change the setting with configure()",
                    false => "without that setting or with the stored one",
                })
            }
            Error::OffsetOutOfRange { topic, partition, offset, first, end } => {
                write!(f, "topic {topic:?}")?;
                if *partition > 0 {
                    write!(f, ", partition {partition},")?;
                }
                write!(f, " has no record {offset}: it ")?;
                match end.checked_sub(1) {
                    Some(last) if last >= *first => write!(f, "holds offsets {first} to {last}"),
                    _ => write!(f, "is empty, and its next offset is {end}"),
                }
            }
            Error::RecordCompacted { topic, offset } => write!(
                f,
                "record {offset} of topic {topic:?} was removed by compaction; read the next one"
            ),
            Error::NotWritable { path } => {
                write!(
                    f,
                    "{} was opened for reading; open it for writing",
                    store_of(path).display()
                )
            }
            Error::HandleClosed { what } => write!(f, "this {what} is closed; open it again"),
            Error::DurabilityUnknown { offset, source } => write!(
                f,
                "the append is visible from offset {offset} on, but not known to be on stable storage: \
                 {source}"
            ),
            Error::NoShipper { store, offset: None } => write!(
                f,
                "no process ships {}, so nothing was appended: start one, or append with another \
                 sync mode",
                store.display()
            ),
            Error::NoShipper { store, offset: Some(offset) } => write!(
                f,
                "the process that shipped {} has ended. The append is on this disk from offset {offset} \
                 on, and whether it left the machine is unknown. Start a process that ships the store, \
                 and wait for those records",
                store.display()
            ),
            Error::Fenced { store, offset } => {
                write!(
                    f,
                    "{} is no longer shipped: a process of another store claimed its place. ",
                    store.display()
                )?;
                match offset {
                    None => f.write_str("Nothing was appended")?,
                    Some(offset) => write!(
                        f,
                        "The append is on this disk from offset {offset} on, and whether it left the \
                         machine is unknown"
                    )?,
                }
                f.write_str("; find out which of the two stores is to continue")
            }
            Error::RemoteTimeout { path, waited, offset } => {
                match offset {
                    Some(offset) => {
                        write!(f, "the append is on this disk from offset {offset} on")?;
                    }
                    None => f.write_str("the records are on this disk")?,
                }
                write!(
                    f,
                    ", and it is not known that it left the machine: {} was not shipped that far within \
                     {:.3} s. Wait for it, and do not append it again",
                    path.display(),
                    waited.as_secs_f64()
                )
            }
            Error::OffsetConflict { topic, partition, expected, next } if expected > next => {
                write!(
                    f,
                    "the next offset of {} is {next}, not {expected}, which lies beyond the end: nothing was \
                     appended; read up to the end and decide again",
                    part(topic, *partition)
                )
            }
            Error::OffsetConflict { topic, partition, expected, next } => write!(
                f,
                "another append to {} came first: the next offset is {next}, not {expected}; read what \
                 came from {expected} on and decide again",
                part(topic, *partition)
            ),
            Error::TopicFinished { topic, partition } => write!(
                f,
                "{} is finished, so nothing was appended: no record comes after those that are there; \
                 append to another topic",
                part(topic, *partition)
            ),
            Error::OutOfOrderSequence { topic, partition, producer, sequence, next } => write!(
                f,
                "producer {producer:?} appends to {} from sequence {sequence} on, but {next} comes next: \
                 nothing was appended; append from {next} on",
                part(topic, *partition)
            ),
            Error::DuplicateSequence { topic, partition, producer, sequence, highest } => write!(
                f,
                "sequence {sequence} of producer {producer:?} in {} is older than the last five, which are \
                 remembered up to {highest}. It was appended before, and its offset is no longer known; or \
                 the producer began with a later one. Nothing was appended now",
                part(topic, *partition)
            ),
            Error::LogTruncated { group, topic, partition, offset, end } => write!(
                f,
                "consumer group {group:?} had read topic {topic:?}, partition {partition}, up to offset \
                 {offset}. The log, which ends at {end}, has other records there: it lost its end, \
                 or is an older copy. Choose where to resume: seek to \"earliest\", \"latest\", a time or \
                 an offset"
            ),
            Error::PartitionNotAssigned { group, topic, partition, holder } => write!(
                f,
                "partition {partition} of topic {topic:?} is not assigned to this member of consumer \
                 group {group:?}: {holder} has it. Nothing was committed, and its next owner resumes \
                 from its committed offset"
            ),
            Error::CursorMoved { name } => write!(
                f,
                "another process moved the cursor {:?}: nothing was appended; read where it is and begin \
                 again from there",
                String::from_utf8_lossy(name)
            ),
            Error::UnknownGroup { name, store, groups } => {
                let listed = listed("consumer groups", groups);
                write!(f, "there is no consumer group {name:?} in {}; {listed}", store.display())
            }
            Error::UnknownQueue { name, store, queues } => {
                let listed = listed("queues", queues);
                write!(f, "there is no queue {name:?} in {}; {listed}", store.display())
            }
            Error::LeaseExpired { queue, offset, why } => {
                write!(f, "job {offset} of queue {queue:?} is not yours to settle: {why}")
            }
            Error::InvalidManifest { load, why } => {
                write!(f, "bulk load {load:?} was not committed: {why}; stage that part again")
            }
            Error::NotStaged { load, part, path } => write!(
                f,
                "part {part:?} of bulk load {load:?} is no longer in {}: the load was committed or aborted, \
                 or the part was swept; stage it again",
                path.display()
            ),
            Error::Interrupted => f.write_str("the wait was interrupted"),
        }
    }
}

/// Return the store of a log's directory, which is `<store>/logs/<log>@<generation>`; users do not know
/// that one. Any other path stays.
fn store_of(path: &Path) -> &Path {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_log = name.rsplit_once('@').is_some_and(|(_, generation)| generation.len() == 32);
    let logs = path.parent().filter(|logs| is_log && logs.ends_with("logs"));
    logs.and_then(Path::parent).unwrap_or(path)
}

/// Name a partition of a topic.
fn part(topic: &str, partition: u32) -> String {
    match partition {
        0 => format!("topic {topic:?}"),
        _ => format!("topic {topic:?}, partition {partition},"),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::SystemCallFailed { source, .. } | Error::NoSpace { source, .. } => Some(source),
            Error::DurabilityUnknown { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
