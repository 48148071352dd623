//! Building a store from pieces: small files, and bytes of segments in any order.
//!
//! Owns a store under construction in a directory that no other program knows yet ([`super::unfinished`]).
//! A caller has the pieces from a place that may be wrong, as after an error there. Invariant: what gets the
//! destination's name is a whole store. Each block of it was checked, and all of it is on disk.
//! Nothing outside the directory is ever written, whatever the pieces say. Any thread may write.
//!
//! ```text
//! file(…), segment(…), write(…) ─> dest.<random>.tmp/ ─> finish: checked, a new timeline, synced ─> dest/
//! ```
//!
//! The store is the one that the pieces came from, by its id and the generations of its topics. But
//! it goes on by itself. Behind each log lies an empty segment with a salt of its own. The file
//! `origin` says where the store came from.
//!
//! | file | owns |
//! |---|---|
//! | `pieces` | which pieces a store may have, and what is known of them |
//! | `open_files` | the files that are being written |
//! | `finish` | the checks, the new timeline, the name |
//!
//! [`crate::log::SegmentPiece`] defines a segment. See `docs/PROTOCOL.md`, "Building a store from pieces".

mod finish;
mod open_files;
mod pieces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::files;
use super::layout::{self, Layout, top};
use super::modes::Modes;
use super::open::{make_first_directory, refuse_filesystem, suitable_mode};
use super::unfinished::{Unfinished, is_empty_directory, make_new};
use crate::error::{Error, IoResult, Result};
use crate::format::settings::WriteMode;
use crate::format::{FIRST_BLOCK, names};
use crate::log::verify::{Subject, prove};
use crate::log::{LogSettings, SegmentPiece};
use crate::storage::Storage;
use crate::storage::real::RealStorage;

pub use finish::{Parent, RestoreReport};
use open_files::OpenFiles;
use pieces::Pieces;
pub(super) use pieces::{SmallFile, log_generation, malformed};

/// How to build a store.
#[derive(Clone, Copy, Debug)]
pub struct PieceOptions {
    /// Permission bits of its directories, as for a new store.
    pub mode: u32,
    /// Build it on a file system on which falaj cannot keep its promises.
    pub allow_network_fs: bool,
}

impl Default for PieceOptions {
    fn default() -> Self {
        Self { mode: 0o700, allow_network_fs: false }
    }
}

/// A store under construction.
///
/// A caller gives all small files and all segments, writes the bytes of the segments, and finishes.
/// Without [`PieceBuilder::finish`] or [`PieceBuilder::discard`] a directory `<name>.<random>.tmp`
/// is left, and the next builder of that name removes it.
#[derive(Debug)]
pub struct PieceBuilder {
    storage: Arc<dyn Storage>,
    destination: PathBuf,
    half: Unfinished,
    layout: Layout,
    modes: Modes,
    write_mode: WriteMode,
    pieces: Mutex<Pieces>,
    open: OpenFiles,
}

impl PieceBuilder {
    /// Begin to build a store at a place that is missing or an empty directory. The directory above
    /// it must exist. How processes will write to the store follows from its file system.
    ///
    /// # Errors
    /// `InvalidArgument` for a place that is taken, or permission bits that no store may have;
    /// `UnsupportedFilesystem`; `NoSpace`, `SystemCallFailed`.
    pub fn begin(destination: impl AsRef<Path>, options: PieceOptions) -> Result<Self> {
        Self::begin_on(Arc::new(RealStorage::new()), destination.as_ref(), options)
    }

    /// Do as [`PieceBuilder::begin`], on another storage than the machine's files.
    ///
    /// # Errors
    /// As [`PieceBuilder::begin`].
    pub fn begin_on(
        storage: Arc<dyn Storage>,
        destination: &Path,
        options: PieceOptions,
    ) -> Result<Self> {
        let destination = layout::directory(destination)?;
        let asked = Modes::asked(options.mode)?;
        let replaces = is_empty_directory(&*storage, &destination, "a store")?;
        let write_mode = choose_mode(&*storage, &destination, replaces, options)?;
        let half = Unfinished::begin(&*storage, &destination, replaces, asked)?;
        let layout = Layout::new(half.path());
        let modes = match make_directories(&*storage, &layout, asked) {
            Ok(modes) => modes,
            Err(error) => {
                half.discard(&*storage);
                return Err(error);
            }
        };
        let (pieces, open) = Default::default();
        Ok(Self { storage, destination, half, layout, modes, write_mode, pieces, open })
    }

    /// Put a small file: `falaj.json`, `topics/<topic>/topic.json`, `consumers/<group>` or
    /// `queues/<queue>`. It has `len` bytes; those that no part has are zero. A corrupt file of a
    /// group or a queue is put as it is, and reported by [`PieceBuilder::finish`].
    ///
    /// # Errors
    /// `InvalidArgument` or `InvalidName` for another path, a file that was given already, parts
    /// beyond its length, and a length beyond the limits of the format. `CorruptPieces` and
    /// `UnsupportedVersion` for corrupt settings. `NoSpace`, `SystemCallFailed`.
    pub fn file(&self, path: &str, len: u64, parts: &[(u64, &[u8])]) -> Result<()> {
        let file = SmallFile::of(&self.layout, path)?;
        file.expect_fitting(path, len, parts)?;
        // Held to the end: a second file of that name must not come in between.
        let mut pieces = self.pieces();
        if !pieces.expects(path) {
            return Err(Error::invalid(format!("{path:?} was given before; give each file once")));
        }
        self.put(&file, path, len, parts, &mut pieces)?;
        pieces.note(path);
        Ok(())
    }

    /// Begin a segment of a log: `log` is the name of its directory, `header` its first 512 bytes.
    /// Its content ends at `end`, and its bytes at `len`. The last segment of a log is the only one
    /// that is not sealed.
    ///
    /// # Errors
    /// `InvalidArgument` for a log that no store can have, and a segment that was begun before.
    /// `CorruptPieces` or `UnsupportedVersion` for a header or numbers that no segment of the log
    /// can have. `NoSpace`, `SystemCallFailed`.
    pub fn segment(
        &self,
        log: &str,
        header: &[u8],
        end: u64,
        len: u64,
        sealed: bool,
    ) -> Result<()> {
        let generation = pieces::log_generation(log)?;
        let piece = SegmentPiece::new(generation, header, end, len, sealed)
            .map_err(|what| pieces::malformed(&self.shown(log, None), what))?;
        let mut pieces = self.pieces();
        let dir = self.layout.logs().join(log);
        if !pieces.knows_log(log) {
            make_new(self.storage(), &dir, self.modes.directory)?;
            pieces.add_log(log, generation);
        }
        let sequence = piece.sequence();
        if pieces.segment(log, sequence).is_some() {
            return Err(Error::invalid(format!(
                "segment {sequence} of {log:?} was begun before; begin each one once"
            )));
        }
        let file = piece.create(self.storage(), &dir, self.modes.file)?;
        pieces.add_segment(log, piece);
        drop(pieces);
        self.open.keep(&dir.join(names::segment(sequence)), file)
    }

    /// Write bytes of a segment that was begun, once each. They lie between its header pages and its
    /// length. Only a compacted segment may keep holes, which read as zero.
    ///
    /// # Errors
    /// `InvalidArgument` for a segment that was not begun, and for bytes outside of it or written
    /// before. `NoSpace`, `SystemCallFailed`: then the call may be repeated. If a sync failed,
    /// [`PieceBuilder::finish`] fails, too.
    pub fn write(&self, log: &str, sequence: u64, position: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let range = position..position.saturating_add(data.len() as u64);
        let refuse = |why: &str| {
            Err(Error::invalid(format!(
                "bytes {position} to {} of segment {sequence} of {log:?} cannot be written: {why}",
                range.end
            )))
        };
        {
            let mut pieces = self.pieces();
            let Some(segment) = pieces.segment(log, sequence) else {
                return refuse("the segment was not begun");
            };
            if position < FIRST_BLOCK || range.end > segment.piece.bytes() {
                return refuse("they lie outside of its blocks");
            }
            if !segment.written.add(range.clone()) {
                return refuse("some of them were written before");
            }
            segment.writing += 1;
        }
        let path = self.layout.logs().join(log).join(names::segment(sequence));
        let file = self.open.get(self.storage(), &path);
        let written = file.and_then(|file| file.write_at(data, position).doing("write", &path));
        let whole = self.pieces().segment(log, sequence).and_then(|segment| {
            segment.writing -= 1;
            if written.is_err() {
                segment.written.remove(range);
            }
            segment.became_whole()
        });
        written?;
        whole.map_or(Ok(()), |piece| self.settle(log, &piece, &path))
    }

    /// Sync and check a segment that is whole, in the thread that wrote its last bytes, while others go
    /// on. [`PieceBuilder::finish`] reports what is wrong.
    fn settle(&self, log: &str, piece: &SegmentPiece, path: &Path) -> Result<()> {
        self.open.close(path)?;
        let generation = pieces::log_generation(log)?;
        let dir = self.layout.logs().join(log);
        let subject = Subject { dir, generation, topics: BTreeMap::new() };
        if let Some(proof) = prove(&self.storage, &subject, piece) {
            if let Some(known) = self.pieces().logs.get_mut(log) {
                known.proofs.insert(piece.sequence(), *proof);
            }
        }
        Ok(())
    }

    /// Remove what was built.
    pub fn discard(self) {
        let Self { storage, half, open, .. } = self;
        drop(open);
        half.discard(&*storage);
    }

    /// Return the place at which the store is built.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    fn put(
        &self,
        file: &SmallFile,
        path: &str,
        len: u64,
        parts: &[(u64, &[u8])],
        pieces: &mut Pieces,
    ) -> Result<()> {
        let (storage, modes) = (self.storage(), self.modes);
        let shown = self.destination.join(path);
        match file {
            SmallFile::Settings => {
                let settings = pieces::store_settings(&pieces::whole(len, parts), &shown)?;
                pieces.settings = Some(settings);
            }
            SmallFile::Topic(name) => {
                let topic = pieces::topic_settings(&pieces::whole(len, parts), name, &shown)?;
                make_new(storage, &self.layout.topic(name)?, modes.directory)?;
                let to = self.layout.topic_settings(name)?;
                files::put_new(storage, &to, topic.encode().as_bytes(), modes.file)?;
                pieces.topics.push(topic);
            }
            SmallFile::Consumer(to) => files::put_parts(storage, to, len, parts, modes.file)?,
            SmallFile::Queue(to) => {
                files::make_dir(storage, &self.layout.queues(), modes.directory)?;
                files::put_parts(storage, to, len, parts, modes.lock)?;
            }
        }
        Ok(())
    }

    fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// A thread that panics while it holds the lock has changed nothing of it halfway.
    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return the path that a log, or a segment of it, will have: errors name it.
    fn shown(&self, log: &str, sequence: Option<u64>) -> PathBuf {
        let dir = self.destination.join(top::LOGS).join(log);
        sequence.map_or(dir.clone(), |sequence| dir.join(names::segment(sequence)))
    }
}

/// Choose how processes will write to the store: the file system decides, not the store that the
/// pieces come from.
fn choose_mode(
    storage: &dyn Storage,
    destination: &Path,
    exists: bool,
    options: PieceOptions,
) -> Result<WriteMode> {
    let at = if exists {
        destination.join(".")
    } else {
        Layout::new(destination).parent().to_path_buf()
    };
    let found = storage.filesystem(&at).doing("look at the file system of", &at)?;
    let chosen = suitable_mode(&found);
    if !options.allow_network_fs {
        refuse_filesystem(found, Some(chosen), destination)?;
    }
    Ok(chosen)
}

/// Make the directories that every store has; return the permission bits that the file system kept.
pub(super) fn make_directories(
    storage: &dyn Storage,
    layout: &Layout,
    asked: Modes,
) -> Result<Modes> {
    let modes = make_first_directory(storage, layout, asked)?;
    for name in top::DIRECTORIES.into_iter().filter(|name| *name != top::TOPICS) {
        make_new(storage, &layout.root().join(name), modes.directory)?;
    }
    Ok(modes)
}
