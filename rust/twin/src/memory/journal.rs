//! All events of a twin, in order, and their replay up to any point.
//!
//! The module owns the rules of what is durable when. They are those of Linux, at their harshest:
//!
//! | event | on disk |
//! |---|---|
//! | store, allocate, punch | pending: each sector, and the length, on its own |
//! | sync of a file | its bytes and its length, not its name |
//! | create, rename, unlink | pending: each on its own, a rename whole or not at all |
//! | sync of a directory | the names made, renamed and removed in it |
//! | failed sync (`drop_dirty`) | nothing; later syncs forget the pending part |
//!
//! A sector has its last durable content, or its content after any later store: a replay keeps
//! these as *versions*. [`super::crash`] makes images from them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::MemoryStorage;
use super::crash::Crash;
use super::disk::{Disk, DiskFile, Node, SECTOR, Sector, Tree};
use super::world::Settings;

/// One event.
pub(super) enum Event {
    /// A name was made for a new file or directory.
    Link { dir: u32, name: Arc<str>, node: Node, mode: u32 },
    /// A name was moved.
    Rename { from_dir: u32, from_name: Arc<str>, to_dir: u32, to_name: Arc<str>, node: Node },
    /// A name was removed.
    Unlink { dir: u32, name: Arc<str>, node: Node },
    /// Bytes were stored; beyond the length, they extended it.
    Store { file: u32, position: u64, bytes: Box<[u8]> },
    /// Space was allocated from the beginning.
    Allocate { file: u32, len: u64 },
    /// A range was returned to the file system.
    Punch { file: u32, position: u64, len: u64 },
    /// A sync of a file returned success.
    Sync { file: u32 },
    /// A sync of a file failed, and its pages count as clean.
    DropDirty { file: u32 },
    /// A sync of a directory returned success.
    SyncDir { dir: u32 },
}

/// The history of a storage, frozen: see [`MemoryStorage::journal`].
pub struct Journal {
    pub(super) settings: Settings,
    pub(super) base: Arc<Disk>,
    pub(super) events: Vec<Arc<Event>>,
    pub(super) now_us: i64,
    /// Start of the images' random numbers.
    pub(super) random: u64,
}

impl Journal {
    /// Return the number of events. Crash points are `0..=len()`: that many have happened.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Return true when nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Return the possible disk contents when power fails after the first `time` events. The cost
    /// is linear in them; for every point in turn see [`Journal::crashes`].
    ///
    /// # Panics
    /// When there are fewer events.
    pub fn crash_at(&self, time: usize) -> Crash {
        self.replay(time).crash(self)
    }

    /// Do as [`Journal::crash_at`], after all of it: the power fails at the moment when the journal
    /// was taken, whatever other threads have stored since.
    pub fn crash_at_end(&self) -> Crash {
        self.crash_at(self.len())
    }

    /// Iterate over the crashes at all points, in order, each for the cost of one more event.
    pub fn crashes(&self) -> impl Iterator<Item = Crash> + '_ {
        self.crashes_from(0)
    }

    /// Iterate as [`Journal::crashes`], from one point on.
    ///
    /// # Panics
    /// When there are fewer events.
    pub fn crashes_from(&self, time: usize) -> impl Iterator<Item = Crash> + '_ {
        let mut replay = self.replay(time.min(self.events.len()));
        (time..=self.events.len()).map(move |time| {
            if time > replay.time {
                replay.step(&self.events[time - 1]);
            }
            replay.crash(self)
        })
    }

    /// Make the machine that processes see which start after all others were killed at that point.
    /// It has everything that was stored, no lock is held, and the pending part is still pending.
    ///
    /// # Panics
    /// When there are fewer events.
    pub fn killed_at(&self, time: usize) -> MemoryStorage {
        let live = self.replay(time).live();
        MemoryStorage::born(self, self.base.clone(), self.events[..time].to_vec(), live)
    }

    pub(super) fn replay(&self, time: usize) -> Replay {
        let mut replay = Replay::new(&self.base);
        for event in &self.events[..time] {
            replay.step(event);
        }
        replay
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Journal({} events)", self.events.len())
    }
}

/// The possible contents of one sector on disk.
pub(super) struct Versions {
    /// Its certain content, and what was stored since, in order; all of them differ.
    pub(super) picks: Vec<Arc<Sector>>,
    /// The one stored last, which processes see.
    pub(super) latest: usize,
    /// True when the next sync writes it.
    dirty: bool,
}

impl Versions {
    fn new(durable: Arc<Sector>) -> Self {
        Self { picks: vec![durable], latest: 0, dirty: false }
    }

    fn last(&self) -> &Arc<Sector> {
        &self.picks[self.latest]
    }

    /// Store a sector, which may differ only in `changed`.
    fn store(&mut self, bytes: [u8; SECTOR as usize], changed: Range<usize>) {
        // Most versions differ in the bytes just stored: those are compared first.
        let same = |pick: &[u8; SECTOR as usize]| {
            pick[changed.clone()] == bytes[changed.clone()] && *pick == bytes
        };
        let known = self.picks.iter().position(|pick| same(pick.bytes()));
        self.latest = known.unwrap_or_else(|| {
            self.picks.push(Sector::new(bytes));
            self.picks.len() - 1
        });
        self.dirty = true;
    }
}

/// One file in a replay.
pub(super) struct ReplayFile {
    /// The durable state, without `sectors`.
    pub(super) base: Arc<DiskFile>,
    /// Sectors that were touched since.
    pub(super) sectors: BTreeMap<u32, Versions>,
    /// The durable length, then later ones.
    pub(super) lens: Vec<u64>,
    /// The pages allocated now.
    pub(super) allocated: super::disk::Pages,
}

impl ReplayFile {
    fn new(base: Arc<DiskFile>) -> Self {
        let (lens, allocated) = (vec![base.len], base.allocated.clone());
        Self { base, sectors: BTreeMap::new(), lens, allocated }
    }

    pub(super) fn len(&self) -> u64 {
        *self.lens.last().expect("the durable length is always there")
    }

    fn grow(&mut self, len: u64) {
        if len > self.len() {
            self.lens.push(len);
        }
    }

    fn store(&mut self, position: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = position + done as u64;
            let skip = (at % SECTOR) as usize;
            let take = (SECTOR as usize - skip).min(bytes.len() - done);
            self.change((at / SECTOR) as u32, skip, &bytes[done..done + take]);
            done += take;
        }
    }

    /// Store zeros, but leave sectors of zeros alone.
    fn clear(&mut self, position: u64, len: u64) {
        let end = position + len;
        let mut at = position;
        while at < end {
            let skip = (at % SECTOR) as usize;
            let take = (SECTOR - at % SECTOR).min(end - at);
            if !self.now((at / SECTOR) as u32).is_zero() {
                self.change((at / SECTOR) as u32, skip, &[0; SECTOR as usize][..take as usize]);
            }
            at += take;
        }
    }

    fn now(&self, number: u32) -> Arc<Sector> {
        match self.sectors.get(&number) {
            Some(versions) => versions.last().clone(),
            None => self.base.sector(number),
        }
    }

    fn change(&mut self, number: u32, skip: usize, bytes: &[u8]) {
        let base = &self.base;
        let versions = self.sectors.entry(number);
        let versions = versions.or_insert_with(|| Versions::new(base.sector(number)));
        let mut new = *versions.last().bytes();
        let changed = skip..skip + bytes.len();
        new[changed.clone()].copy_from_slice(bytes);
        versions.store(new, changed);
    }

    fn sync(&mut self) {
        for versions in self.sectors.values_mut().filter(|versions| versions.dirty) {
            *versions = Versions::new(versions.last().clone());
        }
        self.lens = vec![self.len()];
    }

    fn drop_dirty(&mut self) {
        for versions in self.sectors.values_mut() {
            versions.dirty = false;
        }
    }

    /// Return what processes see.
    fn live(&self) -> DiskFile {
        let changed =
            self.sectors.iter().map(|(number, versions)| (*number, versions.last().clone()));
        let mut file = self.base.with(changed.collect(), self.len());
        file.allocated = self.allocated.clone();
        file
    }
}

/// An operation on names that is not yet part of [`Replay::durable`].
#[derive(Clone)]
pub(super) struct NameOp {
    pub(super) event: Arc<Event>,
    /// A sync of its directory came later.
    pub(super) synced: bool,
}

impl NameOp {
    fn touches(&self, dir: u32) -> bool {
        match &*self.event {
            Event::Link { dir: its, .. } | Event::Unlink { dir: its, .. } => *its == dir,
            Event::Rename { from_dir, to_dir, .. } => *from_dir == dir || *to_dir == dir,
            _ => false,
        }
    }

    /// Return the file or directory whose name it is.
    pub(super) fn node(&self) -> Option<Node> {
        match &*self.event {
            Event::Link { node, .. } | Event::Unlink { node, .. } | Event::Rename { node, .. } => {
                Some(*node)
            }
            _ => None,
        }
    }

    /// Apply it to a tree that may lack some earlier operations: a node keeps one name.
    pub(super) fn apply(&self, tree: &mut Tree) {
        match &*self.event {
            Event::Link { dir, name, node, .. } => {
                tree.names_mut(*dir).insert(name.clone(), *node);
            }
            Event::Unlink { dir, name, node } if tree.get(*dir, name) == Some(*node) => {
                tree.names_mut(*dir).remove(name);
            }
            Event::Rename { from_dir, from_name, to_dir, to_name, node } => {
                if tree.get(*from_dir, from_name) == Some(*node) {
                    tree.names_mut(*from_dir).remove(from_name);
                } else if let Some((dir, name)) = tree.place(*node) {
                    tree.names_mut(dir).remove(&name);
                }
                tree.names_mut(*to_dir).insert(to_name.clone(), *node);
            }
            _ => {}
        }
    }
}

/// The state after some events: the certainly durable part, and the pending part.
pub(super) struct Replay {
    /// Names that are certainly on disk, without `ops`.
    pub(super) durable: Tree,
    /// Operations on names, in order; the first is never synced.
    pub(super) ops: Vec<NameOp>,
    pub(super) files: Vec<Option<ReplayFile>>,
    /// Names as processes see them.
    pub(super) names: Tree,
    /// How many events were replayed.
    pub(super) time: usize,
}

impl Replay {
    fn new(base: &Disk) -> Self {
        let files = base.files.iter().map(|file| file.clone().map(ReplayFile::new)).collect();
        let (durable, names) = (base.tree.clone(), base.tree.clone());
        Self { durable, ops: Vec::new(), files, names, time: 0 }
    }

    fn file(&mut self, file: u32) -> &mut ReplayFile {
        self.files[file as usize].as_mut().expect("the journal names files that exist")
    }

    fn step(&mut self, event: &Arc<Event>) {
        self.time += 1;
        match &**event {
            Event::Link { node, mode, .. } => {
                self.make(*node, *mode);
                self.name(event);
            }
            Event::Rename { .. } | Event::Unlink { .. } => self.name(event),
            Event::Store { file, position, bytes } => {
                let file = self.file(*file);
                let end = position + bytes.len() as u64;
                file.store(*position, bytes);
                file.allocated.add(*position, end);
                file.grow(end);
            }
            Event::Allocate { file, len } => {
                let file = self.file(*file);
                file.allocated.add(0, *len);
                file.grow(*len);
            }
            Event::Punch { file, position, len } => {
                let file = self.file(*file);
                file.clear(*position, *len);
                file.allocated.remove(*position, *position + *len);
            }
            Event::Sync { file } => self.file(*file).sync(),
            Event::DropDirty { file } => self.file(*file).drop_dirty(),
            Event::SyncDir { dir } => self.sync_dir(*dir),
        }
    }

    /// Make an inode without a name.
    fn make(&mut self, node: Node, mode: u32) {
        match node {
            Node::File(file) => {
                debug_assert_eq!(file as usize, self.files.len());
                let empty = DiskFile { mode, ..DiskFile::default() };
                self.files.push(Some(ReplayFile::new(Arc::new(empty))));
            }
            Node::Dir(dir) => {
                let made = (self.durable.add(mode), self.names.add(mode));
                debug_assert_eq!(made, (dir, dir));
            }
        }
    }

    fn name(&mut self, event: &Arc<Event>) {
        let op = NameOp { event: event.clone(), synced: false };
        op.apply(&mut self.names);
        self.ops.push(op);
    }

    fn sync_dir(&mut self, dir: u32) {
        for op in self.ops.iter_mut().filter(|op| op.touches(dir)) {
            op.synced = true;
        }
        // Synced operations before any pending one are final, so their order need not be kept.
        let done = self.ops.iter().take_while(|op| op.synced).count();
        for op in self.ops.drain(..done) {
            op.apply(&mut self.durable);
        }
    }

    /// Return what processes see, including files without a name.
    pub(super) fn live(&self) -> Disk {
        let files = self.files.iter().map(|file| Some(Arc::new(file.as_ref()?.live()))).collect();
        Disk { files, tree: self.names.clone() }
    }

    fn crash(&self, journal: &Journal) -> Crash {
        Crash::new(self, journal)
    }
}
