//! An in-memory twin of a machine's files, for tests: it remembers what a power failure would
//! leave.
//!
//! The module owns the [`Storage`] side: paths, processes, a clock that stands still and random
//! numbers from a seed. Every change is journaled ([`Journal`]); the journal makes the images:
//!
//! | after | what remains | made by |
//! |---|---|---|
//! | power failure | all that was synced, and any choice of the rest | [`Journal::crash_at`] → [`Crash::image`] |
//! | death of all processes | everything that was stored, no lock held | [`MemoryStorage::survivor`], [`Journal::killed_at`] |
//! | an orderly restart | everything, durable | [`MemoryStorage::restart`] |
//! | death of one process | its locks are free | [`MemoryStorage::process`], [`MemoryStorage::kill`] |
//!
//! | file | owns |
//! |---|---|
//! | `world` | the present: names, files, locks, under one mutex |
//! | `bytes` | memory that maps share |
//! | `file` | open files and their maps |
//! | `disk` | immutable sectors, lengths, names |
//! | `journal` | the events, and the rules of what is durable when |
//! | `crash` | choices and images |
//!
//! The twin does not imitate permissions, symbolic links, or space shared between files: each file
//! has a capacity of its own. Loads beyond the end of a file read as zero, where the kernel raises
//! SIGBUS.

mod bytes;
mod crash;
mod disk;
mod file;
mod journal;
mod world;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;

use falaj::internals::storage::{File, Filesystem, OpenMode, Stat, Storage};

use disk::{Disk, PAGE, mix};
use journal::Event;
use world::{Settings, World};

pub use crash::{Choice, Crash, Explored, Undecided};
pub use file::MemoryFile;
pub use journal::Journal;

/// Return the step between crash points for tests that crash at many points: `usual`, or 1 if the
/// environment variable `FALAJ_CRASHES` is `all` (`make proof-crashes`).
pub fn every(usual: usize) -> usize {
    match std::env::var("FALAJ_CRASHES") {
        Ok(which) if which == "all" => 1,
        _ => usual,
    }
}

/// Capacity of a file by default.
const CAPACITY: u64 = 1 << 20;
/// The clock's default: 2026-01-01.
const NOW_US: i64 = 1_767_225_600_000_000;

/// Called by each process, with its number, before its calls and after each of its changes.
type Gate = Box<dyn Fn(u64) + Send + Sync>;

/// The state that all processes of one machine share.
struct SharedMachine {
    world: Mutex<World>,
    gate: OnceLock<Gate>,
    /// Called after changes alone.
    event_gate: OnceLock<Gate>,
    random: AtomicU64,
    processes: AtomicU64,
    /// The real process that has the machine. A forked child has a copy of the machine, whose
    /// mutexes may be held by a thread that the child lacks.
    made_by: u32,
}

impl SharedMachine {
    /// A panic elsewhere (a store that would be SIGBUS) leaves the world whole.
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take a step of a process, which may have to wait at its end, without a lock of this module.
    fn step<T>(&self, process: &Process, step: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world();
        let before = world.events.len();
        let done = step(&mut world);
        let changed = world.events.len() > before;
        drop(world);
        if changed {
            self.pause(process);
            if let Some(gate) = self.event_gate.get() {
                gate(process.number);
            }
        }
        done
    }

    fn pause(&self, process: &Process) {
        if let Some(gate) = self.gate.get() {
            gate(process.number);
        }
    }
}

/// One process of the machine.
struct Process {
    number: u64,
    dead: AtomicBool,
}

impl Process {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, dead: AtomicBool::new(false) })
    }

    fn alive(&self) -> bool {
        !self.dead.load(Ordering::SeqCst)
    }
}

/// Files in memory, as one process sees them. A clone is the same process.
#[derive(Clone)]
pub struct MemoryStorage {
    shared: Arc<SharedMachine>,
    process: Arc<Process>,
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryStorage(process {})", self.process.number)
    }
}

impl MemoryStorage {
    /// Make an empty machine: the directory `/`, files of up to 1 MiB.
    pub fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    /// Make an empty machine whose files hold up to `capacity` bytes each; beyond that the disk is
    /// full. No map can be longer.
    pub fn with_capacity(capacity: u64) -> Self {
        let capacity = capacity.next_multiple_of(PAGE);
        let filesystem = Filesystem::Promises("memory");
        let settings = Settings { capacity, filesystem, lost_modes: 0 };
        let disk = Arc::new(Disk::new());
        let (now_us, random) = (NOW_US, 0);
        let journal = Journal { settings, base: disk.clone(), events: Vec::new(), now_us, random };
        let live = (*disk).clone();
        Self::born(&journal, disk, Vec::new(), live)
    }

    /// Make a machine that continues from a journal.
    fn born(journal: &Journal, base: Arc<Disk>, events: Vec<Arc<Event>>, live: Disk) -> Self {
        // A number of its own: registries keyed by (device, inode) never confuse two machines.
        static DEVICES: AtomicU64 = AtomicU64::new(1);
        let device = DEVICES.fetch_add(1, Ordering::Relaxed);
        let mut world = World::new(journal.settings.clone(), device, base, events, live);
        world.now_us = journal.now_us;
        let shared = SharedMachine {
            world: Mutex::new(world),
            gate: OnceLock::new(),
            event_gate: OnceLock::new(),
            random: AtomicU64::new(journal.random),
            processes: AtomicU64::new(1),
            made_by: std::process::id(),
        };
        Self { shared: Arc::new(shared), process: Process::new(0) }
    }

    /// Restart the random numbers with a seed.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        self.shared.random.store(seed, Ordering::SeqCst);
        self
    }

    /// Pretend another kind of file system, such as one where allocation reserves no space.
    #[must_use]
    pub fn on(self, filesystem: Filesystem) -> Self {
        self.shared.world().settings.filesystem = filesystem;
        self
    }

    /// Drop these permission bits of all created files, as some file systems do.
    #[must_use]
    pub fn losing_modes(self, bits: u32) -> Self {
        self.shared.world().settings.lost_modes = bits;
        self
    }

    /// Set the clock, which otherwise stands still.
    pub fn set_now_us(&self, now_us: i64) {
        self.shared.world().now_us = now_us;
    }

    /// Make another process of the same machine, with locks of its own.
    #[must_use]
    pub fn process(&self) -> Self {
        let number = self.shared.processes.fetch_add(1, Ordering::Relaxed);
        Self { shared: self.shared.clone(), process: Process::new(number) }
    }

    /// Kill this process: its locks are free, and its later calls fail with `EBADF`.
    pub fn kill(&self) {
        self.process.dead.store(true, Ordering::SeqCst);
        self.shared.world().unlock_all(self.process.number);
    }

    /// Call `gate` before each call of any process, and after each event of one, in its thread and
    /// with its number. A process that does not return from it has stopped there. The first gate
    /// given stays.
    pub fn watch(&self, gate: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.shared.gate.set(Box::new(gate));
    }

    /// Do as [`MemoryStorage::watch`], after each event alone. A process that stops there is
    /// between changes that others see, but never in a call that has changed nothing. Such a call
    /// could keep threads waiting that are no process of the machine.
    pub fn watch_events(&self, gate: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.shared.event_gate.set(Box::new(gate));
    }

    /// Return how many events have happened: the crash point "now".
    pub fn events(&self) -> usize {
        self.shared.world().events.len()
    }

    /// Images draw other random numbers than this machine's later ones, or salts would repeat.
    fn images_random(&self) -> u64 {
        mix(self.shared.random.load(Ordering::SeqCst), 0x00f0_1da7)
    }

    /// Return the journal so far. It has no later events.
    pub fn journal(&self) -> Journal {
        let random = self.images_random();
        let world = self.shared.world();
        Journal {
            settings: world.settings.clone(),
            base: world.base.clone(),
            events: world.events.clone(),
            now_us: world.now_us,
            random,
        }
    }

    /// Make the machine as processes see it which start after all present ones were killed, without
    /// a power failure. The pending part is still pending. This machine continues separately.
    #[must_use]
    pub fn survivor(&self) -> Self {
        let journal = self.journal();
        journal.killed_at(journal.len())
    }

    /// Make the machine after an orderly restart: all that was stored is durable, no lock is held.
    /// This machine continues separately.
    #[must_use]
    pub fn restart(&self) -> Self {
        let random = self.images_random();
        let world = self.shared.world();
        let (settings, now_us, live) = (world.settings.clone(), world.now_us, world.frozen());
        drop(world);
        let base = Arc::new(live.clone());
        let journal = Journal { settings, base, events: Vec::new(), now_us, random };
        Self::born(&journal, journal.base.clone(), Vec::new(), live)
    }

    /// Imitate a failed sync of this file on Linux. Dirty pages count as clean, so later syncs
    /// succeed without writing them, and their state on disk stays unknown until they are stored
    /// again. Each open file reports the error once, by an `EIO` from its next sync.
    ///
    /// # Errors
    /// `ENOENT` when no file has this inode number.
    pub fn drop_dirty(&self, inode: u64) -> io::Result<()> {
        let mut world = self.shared.world();
        let file = world.by_inode(inode)?;
        world.drop_dirty(file);
        Ok(())
    }

    /// Return a hash over names, lengths and bytes, to distinguish states.
    pub fn fingerprint(&self) -> u64 {
        self.shared.world().fingerprint()
    }

    /// Do as [`MemoryStorage::fingerprint`], including allocation: two machines with the same value
    /// look the same to all programs.
    pub fn fingerprint_with_space(&self) -> u64 {
        self.shared.world().fingerprint_with_space()
    }

    fn with<T>(&self, call: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        self.shared.pause(&self.process);
        if !self.process.alive() {
            return Err(Errno::BADF.into());
        }
        self.shared.step(&self.process, call)
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Arc<dyn File>> {
        let (file, opened) = self.with(|world| {
            let file = match how {
                OpenMode::CreateNew(mode) => world.create(path, mode)?,
                OpenMode::Read | OpenMode::ReadWrite => world.find(path)?,
            };
            Ok((file, world.opened(file)))
        })?;
        let (shared, process) = (self.shared.clone(), self.process.clone());
        Ok(Arc::new(MemoryFile::new(shared, process, file, opened, how != OpenMode::Read)))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|world| world.rename(from, to, false))
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with(|world| world.rename(from, to, true))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.with(|world| world.unlink(path))
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.with(|world| world.create_dir(path, mode))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.with(|world| world.remove_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.with(|world| world.list(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.with(|world| world.sync_dir(path))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.with(|world| world.stat_path(path))
    }

    fn filesystem(&self, path: &Path) -> io::Result<Filesystem> {
        self.with(|world| {
            world.stat_path(path)?;
            Ok(world.settings.filesystem.clone())
        })
    }

    fn now_us(&self) -> i64 {
        self.shared.world().now_us
    }

    fn random(&self) -> io::Result<u64> {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        Ok(mix(self.shared.random.fetch_add(STEP, Ordering::SeqCst), STEP))
    }

    fn process_number(&self) -> u64 {
        self.process.number
    }
}
