//! One store on one file system, through several power cuts.
//!
//! In each turn, processes append until the file system is cut off from its device. They are
//! killed, and the file system is mounted again and replays its journal. The checks: a reader
//! before recovery sees nothing wrong. Recovery, itself cut short at times, keeps all that was
//! reported durable. A loss is a suffix. Appending continues.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj::internals::log::Reading;
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;

use super::mount::{Cut, Image};
use crate::acks::{Acks, RECORDS, STOP, Seen};
use crate::check::{Checker, Loss, Told, told};
use crate::payload::Pool;
use crate::processes::{News, Workers};
use crate::random::Random;
use crate::task::{Layout, Role, Task};
use crate::totals::Totals;
use crate::worker::now_us;

/// Nothing here takes so long, not even on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// An older lost record of interval mode was forgotten: intervals are at most 100 ms, and a busy
/// machine was half a second late.
const INTERVAL_LOST_MS: u64 = 10_000;

/// A store and what is known of it.
pub struct Session<'a> {
    image: &'a mut Image,
    dir: PathBuf,
    layout: Layout,
    seed: u64,
    random: Random,
    checker: Checker,
    workers: Workers,
    writers: BTreeMap<u32, Acks>,
    readers: Vec<Seen>,
    next_id: u32,
    totals: &'a mut Totals,
}

impl<'a> Session<'a> {
    /// Begin with a new store on an image. Accounts are in `dir`, which keeps its power.
    pub fn begin(
        image: &'a mut Image,
        dir: &Path,
        seed: u64,
        totals: &'a mut Totals,
    ) -> Result<Self, String> {
        let failed = |e: std::io::Error| e.to_string();
        let mut random = Random::new(seed, 5);
        let store = image.path().join("store");
        let _ = std::fs::remove_dir_all(&store);
        for name in ["accounts", "said"] {
            let _ = std::fs::remove_dir_all(dir.join(name));
            std::fs::create_dir_all(dir.join(name)).map_err(failed)?;
        }
        std::fs::write(dir.join("pool"), Pool::new(seed).bytes()).map_err(failed)?;
        let layout = Layout {
            store,
            topics: *random.pick(&[1, 1, 2]),
            partitions: *random.pick(&[1, 1, 3]),
            segment_bytes: *random.pick(&[64 << 10, 256 << 10, 1 << 20, 4 << 20]),
            interval_ms: *random.pick(&[5, 20, 100]),
            // On file systems that copy blocks on write, falaj refuses to map.
            pwrite: image.kind() == "btrfs" || random.chance(1, 4),
        };
        let checker = Checker::new(&layout, seed);
        let workers = Workers::new(&dir.join("said"), None).map_err(failed)?;
        let (writers, readers, dir) = (BTreeMap::new(), Vec::new(), dir.to_path_buf());
        let mut session = Self {
            image,
            dir,
            layout,
            seed,
            random,
            checker,
            workers,
            writers,
            readers,
            next_id: 1,
            totals,
        };
        // Otherwise it is a matter of luck whether the store survives its first cut.
        if session.random.chance(3, 4) {
            session.alone(0)?;
        }
        Ok(session)
    }

    /// Do one cut and everything that follows from it.
    pub fn turn(&mut self) -> Result<(), String> {
        self.append_for_a_while()?;
        let how = self.image.a_cut(&mut self.random);
        let told = self.told();
        let loss = Loss::Suffix(now_us());
        self.cut(how)?;
        self.look_before_recovery(&told, loss)?;
        while self.random.chance(1, 4) {
            self.cut_recovery()?;
        }
        self.alone(0)?;
        self.check(&told, loss).map_err(|e| format!("after the cut: {e}"))?;
        let compared = self.checker.check_again(&self.readers, Reading::Map)?;
        self.totals.add("reader_blocks_compared", compared);
        self.readers.clear();
        self.alone(20)?;
        let told = self.told();
        self.check(&told, Loss::Nothing).map_err(|e| format!("after appending again: {e}"))?;
        self.verify()
    }

    fn told(&self) -> Told {
        told(&self.writers, &self.layout)
    }

    /// Let processes append in all modes for a moment.
    fn append_for_a_while(&mut self) -> Result<(), String> {
        for mode in [0, 1, 2] {
            if mode > 0 || self.random.chance(1, 2) {
                self.start(Role::Writer, mode, true, None)?;
            }
        }
        self.start(Role::Follower, 0, true, None)?;
        let began = Instant::now();
        while self.writers.values().all(|acks| acks.word(RECORDS) == 0) {
            self.expect_alive()?;
            if began.elapsed() > LONG {
                return Err("nobody appends".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(self.random.magnitude(9)));
        if self.random.chance(1, 4) {
            // One of them may be dead: others sync what it appended.
            self.workers.kill(0);
            self.totals.add("kills", 1);
            std::thread::sleep(Duration::from_millis(self.random.magnitude(8)));
        }
        self.expect_alive()
    }

    /// Before the cut no process has a reason to end.
    fn expect_alive(&mut self) -> Result<(), String> {
        for (task, news) in self.workers.news().map_err(|e| e.to_string())? {
            if !matches!(news, News::Killed) {
                let said = self.dir.join("said").join(format!("{}.{}", task.id, task.role.name()));
                let said = std::fs::read_to_string(said).unwrap_or_default();
                return Err(format!("{} {} ended: {news:?}: {said}", task.role.name(), task.id));
            }
        }
        Ok(())
    }

    /// Cut the power and restore it.
    fn cut(&mut self, how: Cut) -> Result<(), String> {
        self.image.cut(how, &mut self.random)?;
        self.totals.add("cuts", 1);
        self.totals.add(&format!("cuts_{}", self.image.kind()), 1);
        self.totals.add(how.name(), 1);
        self.workers.kill_all().map_err(|e| e.to_string())?;
        self.image.unmount()?;
        self.image.mount()
    }

    /// Look first with a process that only reads: everything below the durable offset is there.
    fn look_before_recovery(&mut self, told: &Told, loss: Loss) -> Result<(), String> {
        let reading = if self.random.chance(1, 2) { Reading::Pread } else { Reading::Map };
        let asked = self.checker.look_before_recovery(&self.writers, told, loss, reading)?;
        self.totals.add("needs_recovery_said", asked);
        Ok(())
    }

    /// Cut the power again during recovery.
    fn cut_recovery(&mut self) -> Result<(), String> {
        self.start(Role::Writer, 2, true, Some(0))?;
        std::thread::sleep(Duration::from_millis(self.random.magnitude(5)));
        self.totals.add("cuts_in_recovery", 1);
        let how = self.image.a_cut(&mut self.random);
        self.cut(if how == Cut::LogFlushed { Cut::NoLogFlush } else { how })
    }

    /// Run a process that opens everything for writing, makes some calls, and closes.
    ///
    /// With no calls it only recovers.
    fn alone(&mut self, calls: u64) -> Result<(), String> {
        self.start(Role::Writer, 2, false, Some(calls))?;
        let began = Instant::now();
        while !self.workers.alive.is_empty() {
            for (_, news) in self.workers.news().map_err(|e| e.to_string())? {
                if let News::Failed(said) = news {
                    return Err(format!("recovering and going on: {said}"));
                }
            }
            if began.elapsed() > LONG {
                return Err("recovery does not end".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Start a worker: without an end, for some calls, or only to open everything and close it.
    fn start(
        &mut self,
        role: Role,
        sync: u64,
        tolerant: bool,
        calls: Option<u64>,
    ) -> Result<(), String> {
        let failed = |e: std::io::Error| e.to_string();
        let id = self.next_id;
        self.next_id += 1;
        let account = self.dir.join("accounts").join(id.to_string());
        if role == Role::Writer {
            let mut acks = Acks::open(&account).map_err(failed)?;
            acks.set_word(STOP, u64::from(calls == Some(0)));
            self.writers.insert(id, acks);
        } else {
            self.readers.push(Seen::open(&account).map_err(failed)?);
        }
        let task = Task {
            role,
            layout: self.layout.clone(),
            id,
            seed: self.seed,
            account,
            pool: self.dir.join("pool"),
            sync,
            trap: None,
            fork_ms: 0,
            calls: calls.unwrap_or(0),
            tolerant,
            pread: false,
            may_trim: Vec::new(),
            parent: std::process::id(),
        };
        self.workers.start(task).map_err(failed)
    }

    fn check(&mut self, told: &Told, loss: Loss) -> Result<(), String> {
        let reading = if self.random.chance(1, 2) { Reading::Pread } else { Reading::Map };
        let found = self.checker.check(&self.writers, told, loss, reading)?;
        self.totals.add("acknowledged", found.acknowledged);
        self.totals.add("records_checked", found.records);
        self.totals.add("records_lost_as_allowed", found.lost);
        self.totals.add("checks", 1);
        self.totals.raise("oldest_interval_record_lost_ms", found.lost_age_ms);
        if found.lost_age_ms > INTERVAL_LOST_MS {
            return Err(format!(
                "a record of interval mode was lost after {} ms, with an interval of {} ms",
                found.lost_age_ms, self.layout.interval_ms
            ));
        }
        for id in std::mem::take(&mut self.writers).into_keys() {
            let _ = std::fs::remove_file(self.dir.join("accounts").join(id.to_string()));
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<(), String> {
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
        let found =
            falaj::internals::store::verify(&storage, &self.layout.store, None, &mut |_, _| Ok(()));
        let found = found.map_err(|e| e.to_string())?;
        if found.is_sound() {
            self.totals.add("verified", 1);
            return Ok(());
        }
        let all: Vec<String> = found.all_findings().map(|finding| format!("{finding:?}")).collect();
        Err(format!("verification: {}", all.join("\n")))
    }
}
