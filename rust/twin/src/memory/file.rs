//! An open file of the twin, and the two ways in which its maps store.
//!
//! The module owns the *open file*: its lock and its view of failed syncs end with it. As in the
//! kernel, a map keeps its open file alive, and with it the lock.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use falaj::internals::storage::{File, LockKind, Map, MapAccess, Stat, StoreSink};

use super::bytes::private;
use super::world::World;
use super::{Process, SharedMachine};

/// The result of one `open`.
pub(super) struct OpenedFile {
    shared: Arc<SharedMachine>,
    process: Arc<Process>,
    file: u32,
    number: u64,
    writable: bool,
    closed: AtomicBool,
    /// How many failed syncs of the file this open file has reported.
    seen: AtomicU32,
}

impl OpenedFile {
    /// Run a call on the world; `EBADF` once the file is closed or the process dead.
    fn with<T>(&self, call: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        self.shared.pause(&self.process);
        if self.closed.load(Ordering::SeqCst) || !self.process.alive() {
            return Err(Errno::BADF.into());
        }
        self.shared.step(&self.process, call)
    }

    fn for_writing<T>(&self, call: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        self.with(call)
    }

    fn sync(&self) -> io::Result<()> {
        let seen = self.seen.load(Ordering::SeqCst);
        self.with(|world| {
            world.sync(self.file, seen).map_err(|errors| {
                self.seen.store(errors, Ordering::SeqCst);
                Errno::IO.into()
            })
        })
    }
}

impl Drop for OpenedFile {
    fn drop(&mut self) {
        self.shared.world().unlock(self.file, self.number);
    }
}

/// A file of a [`super::MemoryStorage`].
pub struct MemoryFile {
    opened: Mutex<Option<Arc<OpenedFile>>>,
    /// See [`SharedMachine::made_by`].
    made_by: u32,
}

impl std::fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.opened() {
            Ok(opened) => write!(f, "MemoryFile({})", opened.file),
            Err(_) => f.write_str("MemoryFile(closed)"),
        }
    }
}

impl MemoryFile {
    pub(super) fn new(
        shared: Arc<SharedMachine>,
        process: Arc<Process>,
        file: u32,
        (number, errors): (u64, u32),
        writable: bool,
    ) -> Self {
        let (closed, seen) = (AtomicBool::new(false), AtomicU32::new(errors));
        let made_by = shared.made_by;
        let opened = OpenedFile { shared, process, file, number, writable, closed, seen };
        let opened = Mutex::new(Some(Arc::new(opened)));
        Self { opened, made_by }
    }

    fn opened(&self) -> io::Result<Arc<OpenedFile>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or_else(|| Errno::BADF.into())
    }
}

impl File for MemoryFile {
    fn stat(&self) -> io::Result<Stat> {
        let opened = self.opened()?;
        opened.with(|world| Ok(world.stat(opened.file)))
    }

    fn read_some(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(bytes, position)
    }

    /// Read all at once: one step of the machine, not two at the end of the file.
    fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        let opened = self.opened()?;
        opened.with(|world| Ok(world.read(opened.file, bytes, position)))
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let opened = self.opened()?;
        opened.for_writing(|world| world.write(opened.file, bytes, position))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let opened = self.opened()?;
        opened.for_writing(|world| world.allocate(opened.file, len))
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<()> {
        let opened = self.opened()?;
        opened.for_writing(|world| world.punch(opened.file, position, len))
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        let opened = self.opened()?;
        opened.with(|world| Ok(world.next_data(opened.file, position)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.opened()?.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.opened()?.sync()
    }

    fn map(&self, len: u64, access: MapAccess) -> io::Result<Map> {
        let opened = self.opened()?;
        let writable = access != MapAccess::Read;
        if writable && !opened.writable {
            return Err(Errno::ACCESS.into());
        }
        let memory = opened.with(|world| world.map(opened.file, len))?;
        let sink: Option<Arc<dyn StoreSink>> = match access {
            MapAccess::Read => None,
            MapAccess::Write => Some(Arc::new(Journaled(opened.clone()))),
            MapAccess::WriteThrough => Some(Arc::new(MemoryWriteThrough(opened.clone()))),
        };
        Ok(memory.map(len, writable, sink, opened))
    }

    fn private_memory(&self, len: u64) -> io::Result<Map> {
        private(len)
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        let opened = self.opened()?;
        let process = opened.process.number;
        opened.with(|world| Ok(world.try_lock(opened.file, opened.number, process, kind)))
    }

    fn unlock(&self) -> io::Result<()> {
        let opened = self.opened()?;
        opened.with(|world| {
            world.unlock(opened.file, opened.number);
            Ok(())
        })
    }

    fn close(&self) {
        if std::process::id() != self.made_by {
            return;
        }
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(opened) = opened {
            opened.closed.store(true, Ordering::SeqCst);
        }
    }
}

/// Stores into shared memory, each with an event in the journal. The memory outlives `close`, as a
/// real map does; only the death of the process ends its stores.
struct Journaled(Arc<OpenedFile>);

impl Journaled {
    fn store(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let OpenedFile { shared, process, .. } = &*self.0;
        shared.pause(process);
        if !process.alive() {
            return Err(Errno::BADF.into());
        }
        shared.step(process, |world| world.store(self.0.file, bytes, position));
        Ok(())
    }
}

impl StoreSink for Journaled {
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.store(position, bytes)
    }

    fn store_u64(&self, position: u64, value: u64) -> io::Result<()> {
        self.store(position, &value.to_le_bytes())
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn noted(&self, position: u64, _value: u64) {
        let OpenedFile { shared, process, .. } = &*self.0;
        shared.step(process, |world| world.noted(self.0.file, position));
    }
}

/// Stores by `pwrite`.
struct MemoryWriteThrough(Arc<OpenedFile>);

impl StoreSink for MemoryWriteThrough {
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.for_writing(|world| world.write(self.0.file, bytes, position))
    }

    fn store_u64(&self, position: u64, value: u64) -> io::Result<()> {
        self.write(position, &value.to_le_bytes())
    }

    fn shares_memory(&self) -> bool {
        false
    }

    fn noted(&self, _position: u64, _value: u64) {}
}
