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
//! A builder that was stopped or killed leaves its directory. One of the same destination and key goes
//! on there: bytes that are there with the checksum of their piece are not written again.
//!
//! | file | owns |
//! |---|---|
//! | `pieces` | which pieces a store may have, and what is known of them |
//! | `left` | what an earlier builder left |
//! | `open_files` | the files that are being written |
//! | `finish` | the checks, the new timeline, the name |
//!
//! [`crate::log::SegmentPiece`] defines a segment. See `docs/PROTOCOL.md`, "Building a store from pieces".

mod finish;
mod left;
mod open_files;
mod pieces;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::files;
use super::layout::{self, Layout, top};
use super::modes::Modes;
use super::open::{make_first_directory, refuse_filesystem, suitable_mode};
use super::unfinished::{Unfinished, is_empty_directory, make_new};
use crate::error::{Error, IoResult, Result};
use crate::format::checksum::crc32_from;
use crate::format::settings::WriteMode;
use crate::format::{FIRST_BLOCK, names};
use crate::log::verify::{Subject, prove};
use crate::log::{LogSettings, SegmentPiece};
use crate::storage::real::RealStorage;
use crate::storage::{File, Storage};

pub use finish::{Parent, RestoreReport};
use left::Left;
use open_files::OpenFiles;
use pieces::Pieces;
pub(super) use pieces::{SmallFile, log_generation, malformed};

/// Bytes of a segment that is synced while it is checked.
const LARGE: u64 = 4 << 20;

/// How to build a store.
#[derive(Clone, Copy, Debug)]
pub struct PieceOptions {
    /// Permission bits of its directories, as for a new store.
    pub mode: u32,
    /// Build it on a file system on which falaj cannot keep its promises.
    pub allow_network_fs: bool,
    /// Go on where an earlier builder with this key was stopped, such as the id of the origin that
    /// the pieces are of.
    pub resume: Option<[u8; 16]>,
}

impl Default for PieceOptions {
    fn default() -> Self {
        Self { mode: 0o700, allow_network_fs: false, resume: None }
    }
}

/// A store under construction.
///
/// A caller gives all small files and all segments, writes the bytes of the segments, and finishes.
/// Without [`PieceBuilder::finish`] or [`PieceBuilder::discard`] a directory `<name>.<random>.tmp`
/// is left, and the next builder of that name removes it, or goes on with it.
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
    /// Files that an earlier builder left.
    left: Option<Left>,
    resumes: bool,
}

impl PieceBuilder {
    /// Begin to build a store at a place that is missing or an empty directory. The directory above
    /// it must exist. How processes will write to the store follows from its file system.
    ///
    /// # Errors
    /// `InvalidArgument` for a place that is taken, or permission bits that no store may have.
    /// `UnsupportedFilesystem`. `LockTimeout` while another builder works for the same destination and
    /// key; `NoSpace`, `SystemCallFailed`.
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
        let (half, going_on) = match options.resume {
            None => (Unfinished::begin(&*storage, &destination, replaces, asked)?, None),
            Some([a, b, c, d, ..]) => {
                let key = u32::from_be_bytes([a, b, c, d]);
                Unfinished::go_on(&*storage, &destination, replaces, asked, key)?
            }
        };
        let (is_left, resumes) = (going_on == Some(true), going_on.is_some());
        let layout = Layout::new(half.path());
        let made = || {
            let aside = || Left::set_aside(&*storage, &layout, asked.directory);
            let left = is_left.then(aside).transpose()?;
            Ok((left, make_directories(&*storage, &layout, asked)?))
        };
        let (left, modes) = match made() {
            Ok(made) => made,
            // More space helps, and what is there helps then.
            Err(error @ Error::NoSpace { .. }) if is_left => return Err(error),
            Err(error) => {
                half.discard(&*storage);
                return Err(error);
            }
        };
        let (pieces, open) = Default::default();
        Ok(Self {
            storage,
            destination,
            half,
            layout,
            modes,
            write_mode,
            pieces,
            open,
            left,
            resumes,
        })
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
    /// Returns true if an earlier builder left bytes of it, for [`PieceBuilder::keep`].
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
    ) -> Result<bool> {
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
        let path = dir.join(names::segment(sequence));
        let left = match &self.left {
            None => None,
            Some(left) => left.take(self.storage(), log, &piece, &path, self.modes.file)?,
        };
        let is_left = left.is_some();
        let file = match left {
            Some(file) => file,
            None => piece.create(self.storage(), &dir, self.modes.file)?,
        };
        pieces.add_segment(log, piece, is_left);
        drop(pieces);
        self.open.keep(&path, file).map(|()| is_left)
    }

    /// Write bytes of a segment that was begun, once each. They lie between its header pages and its
    /// length. Only a compacted segment may keep holes, which read as zero.
    ///
    /// # Errors
    /// `InvalidArgument` for a segment that was not begun, and for bytes outside of it or written
    /// before. `NoSpace`, `SystemCallFailed`: then the call may be repeated. If a sync failed,
    /// [`PieceBuilder::finish`] fails, too.
    pub fn write(&self, log: &str, sequence: u64, position: u64, data: &[u8]) -> Result<()> {
        let write = |file: &dyn File, path: &Path| {
            file.write_at(data, position).doing("write", path).map(|()| true)
        };
        self.fill(log, sequence, position, data.len() as u64, &write).map(drop)
    }

    /// Write bytes as [`PieceBuilder::write`] does, if they have this CRC-32. False if not: then they do
    /// not count as written.
    ///
    /// # Errors
    /// As [`PieceBuilder::write`].
    pub fn write_checked(
        &self,
        log: &str,
        sequence: u64,
        position: u64,
        data: &[u8],
        crc: u32,
    ) -> Result<bool> {
        let write = |file: &dyn File, path: &Path| {
            let (mut at, mut found) = (position, 0);
            // Bytes that the checksum just read are in the processor's cache for the copy.
            for chunk in data.chunks(left::CHUNK) {
                found = crc32_from(found, chunk);
                file.write_at(chunk, at).doing("write", path)?;
                at += chunk.len() as u64;
            }
            Ok(found == crc)
        };
        self.fill(log, sequence, position, data.len() as u64, &write)
    }

    /// Count bytes as written that an earlier builder wrote, if they have this CRC-32. False if not:
    /// then [`PieceBuilder::write`] takes them. Any thread may call it.
    ///
    /// # Errors
    /// As [`PieceBuilder::write`].
    pub fn keep(
        &self,
        log: &str,
        sequence: u64,
        position: u64,
        len: u64,
        crc: u32,
    ) -> Result<bool> {
        if !self.pieces().segment(log, sequence).is_some_and(|segment| segment.left) {
            return Ok(false);
        }
        let compare = |file: &dyn File, _: &Path| Ok(left::is_there(file, position, len, crc));
        self.fill(log, sequence, position, len, &compare)
    }

    /// Count bytes of a segment as written if `work` returns true; nothing else writes them meanwhile.
    fn fill(
        &self,
        log: &str,
        sequence: u64,
        position: u64,
        len: u64,
        work: &dyn Fn(&dyn File, &Path) -> Result<bool>,
    ) -> Result<bool> {
        if len == 0 {
            return Ok(true);
        }
        let range = position..position.saturating_add(len);
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
        let done = file.and_then(|file| work(&*file, &path));
        let mut many = false;
        let whole = self.pieces().segment(log, sequence).and_then(|segment| {
            segment.writing -= 1;
            if matches!(done, Ok(true)) {
                many = segment.note_dirty(len);
            } else {
                segment.written.remove(range);
            }
            segment.became_whole()
        });
        let done = done?;
        match whole {
            Some(piece) => self.settle(log, &piece, &path)?,
            // The disk begins early, so that little is left for the sync at the end.
            None if many => self.open.sync_some(self.storage(), &path)?,
            None => {}
        }
        Ok(done)
    }

    /// Sync and check a segment that is whole, in the thread that wrote its last bytes, while others go
    /// on. [`PieceBuilder::finish`] reports what is wrong.
    fn settle(&self, log: &str, piece: &SegmentPiece, path: &Path) -> Result<()> {
        let generation = pieces::log_generation(log)?;
        let dir = self.layout.logs().join(log);
        let subject = Subject { dir, generation, topics: BTreeMap::new() };
        let check = || prove(&self.storage, &subject, piece);
        let proof = if piece.bytes() < LARGE {
            self.open.close(path)?;
            check()
        } else {
            // The disk is at work meanwhile, and the processor is not.
            thread::scope(|scope| {
                let synced = scope.spawn(|| self.open.close(path));
                let proof = check();
                let synced = synced.join().unwrap_or_else(|panic| resume_unwind(panic));
                synced.map(|()| proof)
            })?
        };
        if let Some(proof) = proof {
            if let Some(known) = self.pieces().logs.get_mut(log) {
                known.proofs.insert(piece.sequence(), *proof);
            }
        }
        Ok(())
    }

    /// End here. A builder that goes on keeps what it has for the next one of its key; else this is
    /// [`PieceBuilder::discard`].
    pub fn leave(self) {
        // After a sync that failed the kernel may show bytes that are not on the disk.
        if !self.resumes || self.open.lost_some() {
            self.discard();
        }
    }

    /// Remove what was built.
    pub fn discard(self) {
        let Self { storage, half, open, .. } = self;
        drop(open);
        half.discard(&*storage);
    }

    /// Return the directory in which it is built meanwhile.
    pub fn workplace(&self) -> &Path {
        self.half.path()
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
