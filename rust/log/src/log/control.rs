//! The control page of a log, with names for its words.
//!
//! Owns the mapped page and the meaning of its words; it decides nothing. All of it is derived
//! state: recovery rebuilds it from the segments. In `pwrite` stores the page is mapped for reading
//! and changed by writes. Its lock words then stay zero, and the flock of a file is the lock.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::format::address::Address;
use crate::format::control::{LEN, at, decode_header, encode_header, flag};
use crate::format::u64_in;
use crate::format::wake as bell;
use crate::segment::index::write_file;
use crate::segment::named::expect_in_place;
use crate::shipper;
use crate::storage::real::private_memory;
use crate::storage::{File, Map, MapAccess, OpenMode, Stat, Storage, Word};
use crate::sync::update;
use crate::wake;

/// An open control page.
#[derive(Debug)]
pub struct Control {
    map: Map,
    /// Read at each look if the page is not mapped; `map` then holds the first reading.
    unmapped: Option<Arc<dyn File>>,
    path: PathBuf,
    id: u64,
    stat: Stat,
    stale_tail: Option<Address>,
    /// The store's wake page; its bell wakes processes that wait for several logs.
    bell: OnceLock<Map>,
}

/// A control file as it was read and checked.
struct ControlFile {
    file: Arc<dyn File>,
    path: PathBuf,
    page: Vec<u8>,
    id: u64,
    stat: Stat,
}

impl ControlFile {
    fn read(storage: &dyn Storage, dir: &Path, log: [u8; 16], how: OpenMode) -> Result<Self> {
        let path = dir.join("control");
        let file = storage.open(&path, how).doing("open", &path)?;
        let mut page = vec![0; LEN as usize];
        let got = file.read_at(&mut page, 0).doing("read", &path)?;
        let id = decode_header(&page[..got], log).in_file(&path, 0)?;
        if (got as u64) < LEN {
            return Err(Error::corrupt(&path, got as u64, "the control file was cut off"));
        }
        let stat = file.stat().doing("stat", &path)?;
        Ok(Self { file, path, page, id, stat })
    }
}

impl Control {
    /// Open and check a log's control file.
    ///
    /// # Errors
    /// `SystemCallFailed` when it is missing, `CorruptData` or `UnsupportedVersion` when it cannot be used.
    pub fn open(
        storage: &dyn Storage,
        dir: &Path,
        log: [u8; 16],
        access: MapAccess,
    ) -> Result<Self> {
        let how = if access == MapAccess::Read { OpenMode::Read } else { OpenMode::ReadWrite };
        let ControlFile { file, path, id, stat, .. } = ControlFile::read(storage, dir, log, how)?;
        let map = file.map(LEN, access).doing("map", &path)?;
        let (unmapped, stale_tail, bell) = Default::default();
        Ok(Self { map, unmapped, path, id, stat, stale_tail, bell })
    }

    /// Read once for which incarnation a log's control file is valid; `None` if the file cannot be
    /// used.
    pub fn incarnation_in(storage: &dyn Storage, dir: &Path, log: [u8; 16]) -> Option<u64> {
        let found = ControlFile::read(storage, dir, log, OpenMode::Read).ok()?;
        Some(u64_in(&found.page, at::INCARNATION))
    }

    /// Open as [`Control::open`], for reading without a map.
    ///
    /// # Errors
    /// As [`Control::open`].
    pub fn open_unmapped(storage: &dyn Storage, dir: &Path, log: [u8; 16]) -> Result<Self> {
        let found = ControlFile::read(storage, dir, log, OpenMode::Read)?;
        let ControlFile { file, path, page, id, stat } = found;
        let map = private_memory(LEN).doing("get memory for", &path)?;
        map.write(0, &page).doing("read", &path)?;
        let (stale_tail, bell) = Default::default();
        Ok(Self { map, unmapped: Some(file), path, id, stat, stale_tail, bell })
    }

    #[inline(always)]
    fn load(&self, position: u64) -> u64 {
        match &self.unmapped {
            None => self.map.load(position),
            Some(file) => self.read(&**file, position),
        }
    }

    /// If the page can no longer be read, the first reading counts: it is never beyond the truth.
    #[cold]
    fn read(&self, file: &dyn File, position: u64) -> u64 {
        let mut word = [0; 8];
        match file.read_at(&mut word, position) {
            Ok(8) => u64::from_le_bytes(word),
            _ => self.map.load(position),
        }
    }

    /// Return the page, not to be believed while its tail is this one.
    pub fn doubting(self, stale_tail: Option<Address>) -> Self {
        Self { stale_tail, ..self }
    }

    /// Return the tail, unless it is the doubted one.
    pub fn trusted_tail(&self) -> Option<Address> {
        Some(self.tail()).filter(|tail| self.stale_tail != Some(*tail))
    }

    /// Make a control file under its temporary name, valid for no incarnation yet.
    /// [`Control::publish`] gives it its name.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`.
    pub fn create(storage: &dyn Storage, dir: &Path, log: [u8; 16], mode: u32) -> Result<u64> {
        let id = storage.random().doing("draw a random number for", dir)?;
        let temporary = dir.join("control.tmp");
        write_file(storage, &temporary, &encode_header(log, id), LEN, mode)?;
        Ok(id)
    }

    /// Give a created control file its name.
    ///
    /// # Errors
    /// `SystemCallFailed`.
    pub fn publish(storage: &dyn Storage, dir: &Path) -> Result<()> {
        let temporary = dir.join("control.tmp");
        let renamed = storage.rename_over(&temporary, &dir.join("control"));
        renamed.doing("rename", &temporary)
    }

    /// Return its random id, which the segments' marks repeat.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Return its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Check that the path still leads to this file.
    ///
    /// # Errors
    /// `LockFileReplaced` when it leads to another, `FilesRemoved` when it leads nowhere.
    pub fn check_in_place(&self, storage: &dyn Storage) -> Result<()> {
        expect_in_place(storage, &self.stat, &self.path)
    }

    /// Return the incarnation for which the page is valid.
    pub fn incarnation(&self) -> u64 {
        self.load(at::INCARNATION)
    }

    /// Return where the next block goes.
    #[inline]
    pub fn tail(&self) -> Address {
        Address(self.load(at::TAIL))
    }

    /// Return how far the lock's owner may have stored bytes.
    #[inline]
    pub fn dirty(&self) -> Address {
        Address(self.load(at::DIRTY))
    }

    /// Return how far everything is on disk.
    #[inline]
    pub fn durable(&self) -> Address {
        Address(self.load(at::DURABLE))
    }

    /// Return how far everything has left the machine, as its shipper said.
    #[inline]
    pub fn remote(&self) -> Address {
        Address(self.load(at::REMOTE))
    }

    /// Return how far retention need not keep anything for the shipper.
    pub fn shipped(&self) -> Address {
        Address(self.load(at::SHIPPED))
    }

    /// Return the word that names the process that ships the store; 0 for a reader, which has no
    /// wake page here.
    pub fn shipper(&self) -> u64 {
        self.bell.get().map_or(0, |page| page.load(bell::at::SHIPPER))
    }

    /// Raise a word, and never lower it. If words cannot be changed in place, no other thread of
    /// this process does so, and no other process may.
    ///
    /// # Errors
    /// As [`Control::set`].
    pub fn raise(&self, position: u64, to: Address) -> Result<()> {
        if self.map.shares_memory() {
            shipper::raise(&self.word(position), to.0);
        } else if self.load(position) < to.0 {
            self.set(position, to.0)?;
        }
        Ok(())
    }

    /// Return how far the active segment is allocated.
    #[inline]
    pub fn allocated(&self) -> Address {
        Address(self.load(at::ALLOCATED))
    }

    /// Return how far interval mode wants everything on disk.
    #[inline]
    pub fn wanted(&self) -> Address {
        Address(self.load(at::WANTED))
    }

    /// Return how far the active segment may record trims.
    #[inline]
    pub fn trimmed(&self) -> Address {
        Address(self.load(at::TRIMMED))
    }

    /// Return the same, where the page is mapped.
    #[inline(always)]
    pub fn mapped_trimmed(&self) -> Option<Address> {
        self.unmapped.is_none().then(|| Address(self.map.load(at::TRIMMED)))
    }

    /// Return the number of entries in the active segment's index.
    #[inline]
    pub fn indexed(&self) -> u64 {
        self.load(at::INDEXED)
    }

    /// Return a word by its position.
    pub fn word_value(&self, position: u64) -> u64 {
        self.load(position)
    }

    /// Return the flags, see [`flag`].
    #[inline]
    pub fn flags(&self) -> u64 {
        self.load(at::FLAGS)
    }

    /// Return true in the failed-sync state: what is not durable must be written again.
    pub fn is_latched(&self) -> bool {
        self.flags() & flag::LATCHED != 0
    }

    /// Refuse flags that this version does not know, as it cannot wait for their end.
    ///
    /// # Errors
    /// `CorruptData` when there are any.
    pub fn refuse_unknown_flags(&self) -> Result<()> {
        if self.flags() & !(flag::LATCHED | flag::DELETED) == 0 {
            return Ok(());
        }
        Err(Error::corrupt(&self.path, at::FLAGS, "an unknown flag is set"))
    }

    /// Set or clear one of the [`flag`]s, and leave the others as they are. If words cannot be
    /// changed in place, the caller holds the sync lock's file.
    ///
    /// # Errors
    /// As [`Control::set`].
    pub fn set_flag(&self, bit: u64, raised: bool) -> Result<()> {
        let with = |flags: u64| if raised { flags | bit } else { flags & !bit };
        if !self.map.shares_memory() {
            return self.set(at::FLAGS, with(self.flags()));
        }
        update(&self.word(at::FLAGS), |flags| Some(with(flags)));
        Ok(())
    }

    /// Record that a segment is allocated further than was known, if it is still the active one. If
    /// words can be changed in place, this needs no lock. The allocation is a fact whichever
    /// process records it, and the word of another segment, which a roll stores, stays. Otherwise
    /// the caller owns the append lock.
    ///
    /// # Errors
    /// As [`Control::set`].
    pub fn raise_allocated(&self, grown: Address) -> Result<()> {
        let raised = |now| {
            let now = Address(now);
            (now.sequence() == grown.sequence() && now < grown).then_some(grown.0)
        };
        if self.map.shares_memory() {
            update(&self.word(at::ALLOCATED), raised);
        } else if let Some(value) = raised(self.allocated().0) {
            self.set(at::ALLOCATED, value)?;
        }
        Ok(())
    }

    /// Return true when the log was deleted.
    pub fn is_deleted(&self) -> bool {
        self.flags() & flag::DELETED != 0
    }

    /// Store one of the words that only the owner of a lock changes.
    ///
    /// # Errors
    /// `SystemCallFailed` or `NoSpace`, if stores are writes.
    #[inline]
    pub fn set(&self, position: u64, value: u64) -> Result<()> {
        self.map.store(position, value).map_err(|e| self.failed(e))
    }

    #[cold]
    fn failed(&self, source: std::io::Error) -> Error {
        Error::io("write", &self.path, source)
    }

    /// Return a word that processes change by compare-and-swap; only in mapped stores.
    #[inline]
    pub fn word(&self, position: u64) -> Word<'_> {
        self.map.word(position)
    }

    /// Return the page.
    #[inline(always)]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Return true when waiters can set a flag and writers can wake them.
    #[inline]
    pub fn can_wait(&self) -> bool {
        self.unmapped.is_none() && self.map.writable() && self.map.shares_memory()
    }

    /// Set the store's wake page, for processes that wait for several logs. The first one set
    /// stays.
    pub fn set_notifier(&self, page: Map) {
        // Another would be a page of the same store.
        let _ = self.bell.set(page);
    }

    fn notifier(&self) -> Option<Word<'_>> {
        self.bell.get().map(|page| page.word(bell::at::COUNTER))
    }

    /// Wake all that may be sleeping for the log's sake.
    pub fn wake_all(&self) {
        if self.can_wait() {
            wake::wake_all(&self.word(at::WAKE));
            self.notifier().iter().for_each(wake::wake_all);
        } else {
            // In a store without maps for writing no process can set a flag; sleepers have bounds.
            let _ = self.set(at::WAKE, self.map.load(at::WAKE).wrapping_add(1));
        }
    }

    /// Return the word that followers sleep on; `None` if the page is not mapped.
    pub fn counter(&self) -> Option<Word<'_>> {
        self.unmapped.is_none().then(|| self.word(at::WAKE))
    }

    /// Set a flag for a process that will sleep on the store's bell for this log's sake; false if
    /// that is not possible. Look at the log afterwards, then sleep.
    pub fn register_waiter(&self, who: u64) -> bool {
        let can_wait = self.can_wait();
        if can_wait {
            wake::register_waiter(&self.word(at::WAITING), who);
        }
        can_wait
    }

    /// Return whether a process may be asleep until what it appended has left the machine.
    pub fn is_remote_awaited(&self) -> bool {
        self.word_value(at::WAITING) & wake::REMOTE_APPENDERS != 0
    }

    /// Wake the process that ships, for one that has set [`wake::REMOTE_APPENDERS`].
    pub fn hurry(&self) {
        self.notifier().iter().for_each(wake::hurry);
    }

    /// Wake the waiters after an append whose lock was just released, or else after a sync.
    #[inline(always)]
    pub fn notify(&self, appended: bool) {
        if !self.can_wait() {
            return;
        }
        let flag = self.word(at::WAITING);
        if appended {
            if wake::is_awaited_after_unlock(&flag) {
                self.wake_waiters();
            }
        } else if wake::is_awaited(&flag) {
            wake::notify(&self.word(at::WAKE), &flag, self.notifier().as_ref());
        }
    }

    /// Wake the waiters that have set a flag for appends.
    #[cold]
    pub fn wake_waiters(&self) {
        wake::notify_appended(
            &self.word(at::WAKE),
            &self.word(at::WAITING),
            self.notifier().as_ref(),
        );
    }
}
