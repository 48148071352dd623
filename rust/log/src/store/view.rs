//! A view of a place: a directory that is read as a store, for one process.
//!
//! Owns the directory, and the way of each change into it: under a name of its own first, then by a
//! rename. Sealed segments are stand-ins until a reader needs them ([`crate::storage::elsewhere`]).
//! Invariant: readers of its store find all that a reader beside a writer finds. Nothing outside of
//! the directory is written. The caller says what the place has, and in an
//! order in which a writer would make it. [`crate::log::ReplicaLog`] owns the end of a log. See
//! `docs/PROTOCOL.md`, "Reading a place".

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::build::{SmallFile, log_generation, make_directories, malformed};
use super::cut::enter;
use super::layout::{self, Layout, temporary};
use super::modes::Modes;
use super::open::suitable_mode;
use super::unfinished::make_new;
use super::{Access, Store, StoreOptions, files, sweep};
use crate::error::{Error, IoResult, Result};
use crate::format::names;
use crate::format::settings::WriteMode;
use crate::log::{ReplicaLog, SegmentPiece};
use crate::storage::{Changes, Elsewhere, MapAccess, NewStandIn, Source, Storage};

/// A segment as a place has it.
#[derive(Clone, Copy, Debug)]
pub struct ViewSegment<'a> {
    /// Its first 512 bytes.
    pub header: &'a [u8],
    /// Where its content ends.
    pub end: u64,
    /// Where its bytes end.
    pub len: u64,
    /// False for the last one of a log.
    pub sealed: bool,
}

/// A sealed segment as a place has it.
#[derive(Clone, Copy, Debug)]
pub struct SealedSegment<'a> {
    /// The segment.
    pub segment: ViewSegment<'a>,
    /// The first 512 bytes of the one behind it.
    pub next: &'a [u8],
}

/// A view of a place.
#[derive(Debug)]
pub struct PlaceView {
    storage: Arc<Elsewhere>,
    layout: Layout,
    modes: Modes,
    access: MapAccess,
    logs: Mutex<BTreeMap<String, ReplicaLog>>,
}

impl PlaceView {
    /// Make an empty view in a directory that does not exist yet.
    ///
    /// # Errors
    /// `SystemCallFailed`, `NoSpace`.
    pub fn create(path: &Path, source: Box<dyn Source>) -> Result<Self> {
        let storage = Arc::new(Elsewhere::new(source));
        let root = layout::directory(path)?;
        let layout = Layout::new(&root);
        let modes = Modes::asked(0o700)?;
        make_new(&*storage, &root, modes.directory)?;
        let modes = make_directories(&*storage, &layout, modes)?;
        let found = storage.filesystem(&root).doing("look at the file system of", &root)?;
        let access = match suitable_mode(&found) {
            WriteMode::Mapped => MapAccess::Write,
            WriteMode::Pwrite => MapAccess::WriteThrough,
        };
        Ok(Self { storage, layout, modes, access, logs: Mutex::default() })
    }

    /// Return its directory.
    pub fn path(&self) -> &Path {
        self.layout.root()
    }

    /// Open it as a store, for reading.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, options: &StoreOptions) -> Result<Store> {
        let options = StoreOptions { access: Access::Read, ..*options };
        Store::open_on(Arc::clone(&self.storage) as Arc<dyn Storage>, self.path(), &options)
    }

    /// Put a small file, or another one in its place, as [`super::PieceBuilder::file`].
    ///
    /// # Errors
    /// As that one.
    pub fn file(&self, path: &str, len: u64, parts: &[(u64, &[u8])]) -> Result<()> {
        let file = SmallFile::of(&self.layout, path)?;
        file.expect_fitting(path, len, parts)?;
        let to = self.layout.root().join(path);
        if let Some(directory) = to.parent().filter(|directory| *directory != self.path()) {
            files::make_dir(self.storage(), directory, self.modes.directory)?;
        }
        let half = temporary(&to);
        files::put_parts(self.storage(), &half, len, parts, self.modes.file)?;
        self.storage.rename_over(&half, &to).doing("rename to", &to)
    }

    /// Remove a small file.
    ///
    /// # Errors
    /// `InvalidArgument`, `InvalidName` for a path that no such file has; `SystemCallFailed`.
    pub fn remove_file(&self, path: &str) -> Result<()> {
        let file = SmallFile::of(&self.layout, path)?;
        let to = self.layout.root().join(path);
        files::unlink(self.storage(), &to)?;
        match (file, to.parent()) {
            (SmallFile::Topic(_), Some(directory)) => files::remove_dir(self.storage(), directory),
            _ => Ok(()),
        }
    }

    /// Make a file for a segment at any path, with its header pages. The caller writes the rest.
    ///
    /// # Errors
    /// `InvalidArgument`, `CorruptPieces`, `UnsupportedVersion` as [`super::PieceBuilder::segment`];
    /// `SystemCallFailed`, `NoSpace`.
    pub fn blank(&self, path: &Path, log: &str, segment: &ViewSegment<'_>) -> Result<()> {
        let piece = self.piece(log, segment)?;
        piece.create_at(self.storage(), path, self.modes.file, &[0; 8]).map(drop)
    }

    /// Let a stand-in take the place of a whole segment that readers know.
    ///
    /// # Errors
    /// As [`PlaceView::blank`].
    pub fn give_up(&self, log: &str, segment: &SealedSegment<'_>) -> Result<()> {
        let made = self.make_stand_in(log, segment)?;
        self.storage.names().put_stand_in(&made).doing("rename to", &made.path)
    }

    fn make_stand_in(&self, log: &str, sealed: &SealedSegment<'_>) -> Result<NewStandIn> {
        let piece = self.piece(log, &sealed.segment)?;
        let next = SegmentPiece::header_of(log_generation(log)?, sealed.next);
        let next = next.map_err(|what| malformed(&self.dir(log), what))?;
        let path = self.segment_path(log, piece.sequence())?;
        let from = temporary(&path);
        files::unlink(self.storage(), &from)?;
        let last = piece.end_block(&next);
        piece.create_at(self.storage(), &from, self.modes.file, &last)?;
        Ok(NewStandIn { from, path, end: piece.end() })
    }

    /// Rename a whole file of a segment into its place.
    ///
    /// # Errors
    /// `InvalidArgument`, `SystemCallFailed`.
    pub fn put(&self, log: &str, sequence: u64, from: &Path) -> Result<()> {
        let to = self.segment_path(log, sequence)?;
        self.storage.put_whole(from, &to).doing("rename to", &to)
    }

    /// Keep the first bytes of the blocks of a stand-in in memory.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn put_beginning(&self, log: &str, sequence: u64, bytes: &[u8]) -> Result<()> {
        self.storage.put_beginning(&self.segment_path(log, sequence)?, bytes);
        Ok(())
    }

    /// Return true if a segment is a stand-in now.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn stands_in(&self, log: &str, sequence: u64) -> Result<bool> {
        Ok(self.storage.stands_in(&self.segment_path(log, sequence)?))
    }

    /// Store bytes of the segment in which a log ends, behind the end that readers see.
    ///
    /// # Errors
    /// `InvalidArgument` for a log that was not published; `SystemCallFailed`, `NoSpace`.
    pub fn store(&self, log: &str, position: u64, data: &[u8]) -> Result<()> {
        match enter(&self.logs).get_mut(log) {
            Some(known) => known.store(position, data),
            None => Err(Error::invalid(format!("{log:?} was not published"))),
        }
    }

    /// Let readers see that a log ends in this segment, and all that was stored before. At that
    /// moment stand-ins for these sealed segments take their names, and others are removed.
    ///
    /// # Errors
    /// As [`PlaceView::blank`].
    pub fn publish(
        &self,
        log: &str,
        last: &ViewSegment<'_>,
        sealed: &[SealedSegment<'_>],
        gone: &[u64],
    ) -> Result<()> {
        let piece = self.piece(log, last)?;
        let stand_ins =
            sealed.iter().map(|one| self.make_stand_in(log, one)).collect::<Result<_>>()?;
        let removed = gone.iter().map(|one| self.segment_path(log, *one)).collect::<Result<_>>()?;
        let changes = Changes { stand_ins, removed };
        let mut logs = enter(&self.logs);
        if let Some(known) = logs.get_mut(log) {
            return known.publish(&self.storage, piece, &changes);
        }
        let dir = self.dir(log);
        let modes = (self.access, self.modes.file);
        let begun = ReplicaLog::begin(&self.storage, &dir, piece, &changes, modes)?;
        logs.insert(log.to_owned(), begun);
        self.storage.stand_for_log(&dir, false);
        Ok(())
    }

    /// Say that compaction may leave out records of a log.
    ///
    /// # Errors
    /// `SystemCallFailed`, `NoSpace`.
    pub fn allow_compaction(&self, log: &str) -> Result<()> {
        log_generation(log)?;
        let path = self.dir(log).join(names::COMPACTION_LOCK);
        if files::stat(self.storage(), &path)?.is_some() {
            return Ok(());
        }
        files::put_parts(self.storage(), &path, 0, &[], self.modes.file)
    }

    /// Make the directory of a log, which stands for it until [`PlaceView::publish`].
    ///
    /// # Errors
    /// `InvalidArgument`, `SystemCallFailed`.
    pub fn begin_log(&self, log: &str) -> Result<()> {
        log_generation(log)?;
        let dir = self.dir(log);
        make_new(self.storage(), &dir, self.modes.directory)?;
        self.storage.stand_for_log(&dir, true);
        Ok(())
    }

    /// Tell readers that a log was deleted, and remove it.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub fn remove_log(&self, log: &str) -> Result<()> {
        log_generation(log)?;
        let known = enter(&self.logs).remove(log);
        if let Some(known) = known {
            known.say_deleted(self.storage())?;
        }
        let dir = self.dir(log);
        self.storage.stand_for_log(&dir, false);
        self.storage.show_all(&dir);
        for name in files::list(self.storage(), &dir)? {
            if names::parse_segment(&name).is_some() {
                let path = dir.join(name);
                self.storage.names().remove(&path).if_there("remove", &path)?;
            }
        }
        sweep::remove_log(self.storage(), &dir)
    }

    fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    fn piece(&self, log: &str, segment: &ViewSegment<'_>) -> Result<SegmentPiece> {
        let ViewSegment { header, end, len, sealed } = *segment;
        let generation = log_generation(log)?;
        SegmentPiece::new(generation, header, end, len, sealed)
            .map_err(|what| malformed(&self.dir(log), what))
    }

    fn dir(&self, log: &str) -> PathBuf {
        self.layout.logs().join(log)
    }

    fn segment_path(&self, log: &str, sequence: u64) -> Result<PathBuf> {
        log_generation(log)?;
        Ok(self.dir(log).join(names::segment(sequence)))
    }
}
