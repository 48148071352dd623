//! A storage whose k-th call fails, around any other storage.
//!
//! The module owns the *plan*: which calls fail, how, and for how long. It also owns the counters
//! by which a test finds out how many calls there are to fail. Its invariant: a call that is
//! planned to fail has no effect below, except what [`FailureKind`] says.
//!
//! ```text
//! let faulty = FaultyStorage::new(inner);      // counts
//! run(&faulty);
//! for k in 1..=faulty.total() {                // fail each of them, once
//!     let faulty = FaultyStorage::new(fresh());
//!     faulty.plan(Fault::at(k, How::Errno(libc::EIO)));
//!     run(&faulty);                            // a typed error, nothing lost
//! }
//! ```
//!
//! Parts of files may be bad for good ([`FaultyStorage::spoil`]): reads of them fail. Stores into
//! memory are no calls and never fail; stores by `pwrite` count as [`Call::Write`]. Unlocking,
//! closing and the clock never fail. Over a [`MemoryStorage`] a failed sync of a file has the
//! effect that it has on Linux ([`MemoryStorage::drop_dirty`]).

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::memory::MemoryStorage;
use falaj::internals::storage::{
    File, Filesystem, LockKind, Map, MapAccess, OpenMode, Stat, Storage, StoreSink,
};

/// A kind of call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `open`, including creation.
    Open,
    /// `read_some`, which `read_at` calls as often as it needs, and `next_data`.
    Read,
    /// `write_at`, and stores by `pwrite` through a map.
    Write,
    /// `allocate`.
    Allocate,
    /// `punch`.
    Punch,
    /// `rename_new` and `rename_over`.
    Rename,
    /// `unlink` and `remove_dir`.
    Unlink,
    /// `list`.
    List,
    /// `sync_data`.
    SyncData,
    /// `sync_all`.
    SyncAll,
    /// `sync_dir`.
    SyncDir,
    /// `map`.
    Map,
    /// `try_lock`.
    Lock,
    /// `stat` of a path or an open file, and `filesystem`.
    Stat,
    /// `create_dir`.
    CreateDir,
    /// `random`.
    Random,
}

/// The number of kinds.
const KINDS: usize = Call::Random as usize + 1;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// With this error number, and no effect.
    Errno(i32),
    /// A read stops after half of its bytes, which is no end of the file; any other call succeeds.
    ShortRead,
    /// A write stores its first half, then fails with this error number, as on a disk that gets
    /// full. Any other call fails without effect.
    HalfWritten(i32),
}

/// One planned failure.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    call: Option<Call>,
    nth: u64,
    forever: bool,
    how: FailureKind,
}

impl Fault {
    /// Fail the `nth` call since the storage's beginning, counted from 1.
    pub fn at(nth: u64, how: FailureKind) -> Self {
        Self { call: None, nth, forever: false, how }
    }

    /// Count, and fail, only calls of this kind.
    #[must_use]
    pub fn only(self, call: Call) -> Self {
        Self { call: Some(call), ..self }
    }

    /// Fail that call and all later ones.
    #[must_use]
    pub fn forever(self) -> Self {
        Self { forever: true, ..self }
    }

    fn strikes(&self, call: Call, counted: &Counted) -> bool {
        if self.call.is_some_and(|only| only != call) {
            return false;
        }
        let now = self.call.map_or(counted.total, |only| counted.kinds[only as usize]);
        now == self.nth || (self.forever && now > self.nth)
    }
}

#[derive(Default)]
struct Counted {
    total: u64,
    kinds: [u64; KINDS],
    failed: u64,
    faults: Vec<Fault>,
    /// Bytes of files, by inode, on bad places of the disk.
    bad: Vec<(u64, Range<u64>)>,
}

/// Plan and counters, shared with the files.
struct FaultPlan {
    counted: Mutex<Counted>,
    memory: Option<MemoryStorage>,
}

impl FaultPlan {
    fn counted(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Count a call, and return how it fails, if it does.
    fn strike(&self, call: Call) -> Option<FailureKind> {
        let mut counted = self.counted();
        counted.total += 1;
        counted.kinds[call as usize] += 1;
        let how = counted.faults.iter().find(|fault| fault.strikes(call, &counted))?.how;
        counted.failed += 1;
        Some(how)
    }

    /// Return how many of these bytes of a file can be read before a bad place.
    fn readable(&self, inode: u64, position: u64, len: usize) -> usize {
        let end = position + len as u64;
        let counted = self.counted();
        let bad = counted.bad.iter().filter(|(of, _)| *of == inode).map(|(_, range)| range);
        let met = bad.filter(|range| range.start < end && range.end > position);
        let first = met.map(|range| range.start.max(position)).min().unwrap_or(end);
        (first - position) as usize
    }

    /// Count a call that fails completely or not at all.
    fn check(&self, call: Call) -> io::Result<()> {
        match self.strike(call) {
            Some(FailureKind::Errno(errno) | FailureKind::HalfWritten(errno)) => {
                Err(io::Error::from_raw_os_error(errno))
            }
            Some(FailureKind::ShortRead) | None => Ok(()),
        }
    }

    fn write(&self, bytes: &[u8], write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self.strike(Call::Write) {
            Some(FailureKind::Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(FailureKind::HalfWritten(errno)) => {
                write(&bytes[..bytes.len() / 2])?;
                Err(io::Error::from_raw_os_error(errno))
            }
            Some(FailureKind::ShortRead) | None => write(bytes),
        }
    }
}

/// A storage with planned failures.
#[derive(Clone)]
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    plan: Arc<FaultPlan>,
}

impl std::fmt::Debug for FaultyStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStorage({:?}, {} calls)", self.inner, self.total())
    }
}

impl FaultyStorage {
    /// Wrap any storage; nothing fails until it is planned.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        let plan = FaultPlan { counted: Mutex::default(), memory: None };
        Self { inner, plan: Arc::new(plan) }
    }

    /// Wrap the memory twin, so that a failed sync loses dirty pages.
    pub fn over_memory(inner: MemoryStorage) -> Self {
        let plan = FaultPlan { counted: Mutex::default(), memory: Some(inner.clone()) };
        Self { inner: Arc::new(inner), plan: Arc::new(plan) }
    }

    /// Add a failure. If several apply at once, the first planned one counts.
    pub fn plan(&self, fault: Fault) {
        self.plan.counted().faults.push(fault);
    }

    /// Make every read of these bytes of a file fail with `EIO`, as a bad place of a disk does.
    /// Maps are not affected.
    ///
    /// # Errors
    /// When the file does not exist.
    pub fn spoil(&self, path: &Path, bytes: Range<u64>) -> io::Result<()> {
        let inode = self.inner.stat(path)?.inode;
        self.plan.counted().bad.push((inode, bytes));
        Ok(())
    }

    /// Forget all planned failures and bad places: the disk works again.
    pub fn heal(&self) {
        let mut counted = self.plan.counted();
        counted.faults.clear();
        counted.bad.clear();
    }

    /// Return the number of calls, failed ones included.
    pub fn total(&self) -> u64 {
        self.plan.counted().total
    }

    /// Return the number of calls of a kind, failed ones included.
    pub fn count(&self, call: Call) -> u64 {
        self.plan.counted().kinds[call as usize]
    }

    /// Return the number of failed calls: a test without any has tested nothing.
    pub fn failed(&self) -> u64 {
        self.plan.counted().failed
    }
}

impl Storage for FaultyStorage {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Arc<dyn File>> {
        self.plan.check(Call::Open)?;
        let inner = self.inner.open(path, how)?;
        Ok(Arc::new(FaultyFile { inner, plan: self.plan.clone() }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plan.check(Call::Rename)?;
        self.inner.rename_new(from, to)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plan.check(Call::Rename)?;
        self.inner.rename_over(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Call::Unlink)?;
        self.inner.unlink(path)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.plan.check(Call::CreateDir)?;
        self.inner.create_dir(path, mode)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Call::Unlink)?;
        self.inner.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.plan.check(Call::List)?;
        self.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.plan.check(Call::SyncDir)?;
        self.inner.sync_dir(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.plan.check(Call::Stat)?;
        self.inner.stat(path)
    }

    fn filesystem(&self, path: &Path) -> io::Result<Filesystem> {
        self.plan.check(Call::Stat)?;
        self.inner.filesystem(path)
    }

    fn now_us(&self) -> i64 {
        self.inner.now_us()
    }

    fn tick_us(&self) -> i64 {
        self.inner.tick_us()
    }

    fn steady_us(&self) -> i64 {
        self.inner.steady_us()
    }

    fn random(&self) -> io::Result<u64> {
        self.plan.check(Call::Random)?;
        self.inner.random()
    }

    fn process_number(&self) -> u64 {
        self.inner.process_number()
    }
}

/// A file of a [`FaultyStorage`].
struct FaultyFile {
    inner: Arc<dyn File>,
    plan: Arc<FaultPlan>,
}

impl std::fmt::Debug for FaultyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyFile({:?})", self.inner)
    }
}

impl FaultyFile {
    fn sync(&self, call: Call, sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let Err(planned) = self.plan.check(call) else { return sync() };
        if let Some(memory) = &self.plan.memory {
            memory.drop_dirty(self.inner.stat()?.inode)?;
            // This open file gets its error now: the twin's own EIO replaces the planned error.
            drop(sync());
        }
        Err(planned)
    }
}

impl File for FaultyFile {
    fn stat(&self) -> io::Result<Stat> {
        self.plan.check(Call::Stat)?;
        self.inner.stat()
    }

    fn read_some(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        let wanted = match self.plan.strike(Call::Read) {
            Some(FailureKind::Errno(errno) | FailureKind::HalfWritten(errno)) => {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Some(FailureKind::ShortRead) => bytes.len().div_ceil(2),
            None => bytes.len(),
        };
        let readable = self.plan.readable(self.inner.stat()?.inode, position, wanted);
        if readable == 0 && wanted > 0 {
            self.plan.counted().failed += 1;
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.inner.read_some(&mut bytes[..readable], position)
    }

    fn read_ahead(&self) {
        self.inner.read_ahead();
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.plan.write(bytes, |bytes| self.inner.write_at(bytes, position))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.plan.check(Call::Allocate)?;
        self.inner.allocate(len)
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<()> {
        self.plan.check(Call::Punch)?;
        self.inner.punch(position, len)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        self.plan.check(Call::Read)?;
        self.inner.next_data(position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(Call::SyncData, || self.inner.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(Call::SyncAll, || self.inner.sync_all())
    }

    fn map(&self, len: u64, access: MapAccess) -> io::Result<Map> {
        self.plan.check(Call::Map)?;
        let map = self.inner.map(len, access)?;
        if access != MapAccess::WriteThrough {
            return Ok(map);
        }
        Ok(map.with_sink(|inner| Arc::new(FaultySink { inner, plan: self.plan.clone() })))
    }

    fn private_memory(&self, len: u64) -> io::Result<Map> {
        self.inner.private_memory(len)
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        self.plan.check(Call::Lock)?;
        self.inner.try_lock(kind)
    }

    fn unlock(&self) -> io::Result<()> {
        self.inner.unlock()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// Stores by `pwrite` that can fail.
struct FaultySink {
    inner: Arc<dyn StoreSink>,
    plan: Arc<FaultPlan>,
}

impl StoreSink for FaultySink {
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.plan.write(bytes, |bytes| self.inner.write(position, bytes))
    }

    fn store_u64(&self, position: u64, value: u64) -> io::Result<()> {
        self.plan.check(Call::Write)?;
        self.inner.store_u64(position, value)
    }

    fn shares_memory(&self) -> bool {
        self.inner.shares_memory()
    }

    fn noted(&self, position: u64, value: u64) {
        self.inner.noted(position, value);
    }
}
