//! One log in the memory storage, with planned faults and a control page to inspect and change.

use std::path::PathBuf;
use std::sync::Arc;

use falaj::internals::format::control::{at, flag};
use falaj::internals::format::names;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::lock::Identity;
use falaj::internals::log::Log;
use falaj::internals::storage::{File, Map, MapAccess, OpenMode, Storage};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use super::{TestMember, create_log, open_as};

pub struct Place {
    pub memory: MemoryStorage,
    pub faulty: FaultyStorage,
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub mode: WriteMode,
}

impl Place {
    /// A new log with this many topics that was never opened.
    pub fn new(topics: u32, mode: WriteMode) -> Self {
        let memory = MemoryStorage::new();
        let faulty = FaultyStorage::over_memory(memory.clone());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let dir = PathBuf::from("/log");
        create_log(&*storage, &dir, topics, mode);
        Self { memory, faulty, storage, dir, mode }
    }

    pub fn open(&self, member: TestMember) -> Arc<Log> {
        open_as(&self.storage, &self.dir, member, self.mode).unwrap()
    }

    /// The control page, to imitate a process that died or a sync that failed.
    pub fn page(&self) -> Map {
        let file = self.storage.open(&self.dir.join("control"), OpenMode::ReadWrite).unwrap();
        file.map(4096, MapAccess::Write).unwrap()
    }

    pub fn is_latched(&self) -> bool {
        self.page().load(at::FLAGS) & flag::LATCHED != 0
    }

    /// Set the failed-sync state, as a failed sync would.
    pub fn set_latch(&self) {
        let page = self.page();
        page.store(at::FLAGS, page.load(at::FLAGS) | flag::LATCHED).unwrap();
    }

    pub fn segment(&self, sequence: u64) -> Arc<dyn File> {
        self.storage.open(&self.dir.join(names::segment(sequence)), OpenMode::ReadWrite).unwrap()
    }

    pub fn segments(&self) -> Vec<u64> {
        let names = self.storage.list(&self.dir).unwrap();
        names.iter().filter_map(|name| names::parse_segment(name)).collect()
    }

    /// Fail the `nth` call of a kind from now on, once.
    pub fn fail(&self, call: Call, nth: u64, errno: i32) {
        let nth = self.faulty.count(call) + nth;
        self.faulty.plan(Fault::at(nth, FailureKind::Errno(errno)).only(call));
    }

    pub fn fail_next_sync(&self) {
        self.fail(Call::SyncData, 1, libc::EIO);
    }

    /// The storage after a power cut that keeps only what was synced.
    pub fn after_power_cut(&self) -> Arc<dyn Storage> {
        let crash = self.memory.journal().crash_at_end();
        Arc::new(crash.image(&crash.nothing()))
    }
}

/// The lock word of the first process in this slot.
pub fn lock_word(slot: u16) -> u64 {
    falaj::internals::lock::held_by(Identity::new(slot, 1).unwrap())
}
