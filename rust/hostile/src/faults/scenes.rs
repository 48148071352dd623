//! Scenes: what a process does when its machine fails.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::Result;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::Reading;
use falaj::internals::storage::Storage;
use falaj::internals::store::{Store, StoreOptions, TopicOptions, repair, verify};
use falaj::internals::topic::{SyncMode, Topic};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use super::ledger::Ledger;
use crate::example::ROOT;

/// Directory of backups.
pub const COPY: &str = "/copy";

type Act = fn(&Arc<dyn Storage>, &mut Ledger) -> Result<()>;

/// A scene: a machine as it was left, what is known to be on it, and the acts to run.
pub struct Scene {
    pub name: String,
    left: MemoryStorage,
    pub ledger: Ledger,
    pub act: Act,
}

impl Scene {
    /// A fresh copy of the machine.
    pub fn machine(&self) -> MemoryStorage {
        self.left.survivor()
    }

    /// Its name without the write mode.
    pub fn family(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }
}

pub fn options() -> StoreOptions {
    StoreOptions { lock_timeout: Duration::from_secs(2), ..StoreOptions::default() }
}

fn small() -> TopicOptions {
    TopicOptions {
        segment_bytes: Some(64 << 10),
        sync_interval_ms: Some(3_600_000),
        ..TopicOptions::default()
    }
}

/// Open both topics, and keep the handles in the ledger.
pub fn open(storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Result<[Topic; 2]> {
    let store = Store::open_on(Arc::clone(storage), ROOT, &options())?;
    let orders = Topic::open(&store, "orders", &small())?.with_sync(SyncMode::None);
    let eu = TopicOptions { partitions: Some(3), ..small() };
    let eu = Topic::open(&store, "eu", &eu)?.with_sync(SyncMode::None);
    ledger.open = Some((store, vec![orders.clone(), eu.clone()]));
    Ok([orders, eu])
}

fn write_some(storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Result<()> {
    let [orders, eu] = open(storage, ledger)?;
    for _ in 0..3 {
        ledger.append(&orders, 0, SyncMode::None)?;
    }
    ledger.append(&orders, 0, SyncMode::Durable)?;
    ledger.group(&eu, &[2, 0], SyncMode::None)?;
    ledger.group(&eu, &[1, 0], SyncMode::Durable)?;
    ledger.append(&orders, 0, SyncMode::Interval)?;
    orders.flush()?;
    ledger.flushed(&orders);
    ledger.append(&orders, 0, SyncMode::None).map(|_| ())
}

fn roll(storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Result<()> {
    let [orders, eu] = open(storage, ledger)?;
    ledger.append(&orders, 0, SyncMode::None)?;
    orders.log().roll_now()?;
    ledger.append(&orders, 0, SyncMode::Durable)?;
    orders.log().roll_now()?;
    eu.log().roll_now()?;
    ledger.group(&eu, &[0, 1, 2], SyncMode::Durable)?;
    ledger.append(&orders, 0, SyncMode::None).map(|_| ())
}

fn read(storage: &Arc<dyn Storage>, _: &mut Ledger) -> Result<()> {
    for reading in [Reading::Map, Reading::Pread] {
        let options = StoreOptions { reading, ..StoreOptions::reading() };
        let store = Store::open_on(Arc::clone(storage), ROOT, &options)?;
        for (name, partitions) in [("orders", 1), ("eu", 3)] {
            let topic = Topic::open(&store, name, &TopicOptions::default())?;
            for partition in 0..partitions {
                let mut scan = topic.scan_partition(partition, topic.first(partition)?, None)?;
                while scan.next().transpose()?.is_some() {}
                let end = topic.end(partition)?;
                topic.get_in(partition, end - 1)?;
                topic.offset_at_time(partition, 0)?;
                topic.durable(partition)?;
            }
        }
        store.info()?;
    }
    verify(storage, Path::new(ROOT), None, &mut |_, _| Ok(())).map(|_| ())
}

fn mend(storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Result<()> {
    for dry_run in [true, false] {
        let report = repair(Arc::clone(storage), Path::new(ROOT), &options(), dry_run)?;
        if let Some(error) = report.logs.into_iter().find_map(|log| log.problem) {
            return Err(error);
        }
    }
    let [orders, _] = open(storage, ledger)?;
    ledger.append(&orders, 0, SyncMode::Durable).map(|_| ())
}

fn backup(storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Result<()> {
    let [orders, _] = open(storage, ledger)?;
    ledger.append(&orders, 0, SyncMode::None)?;
    orders.store().backup(COPY, &mut |_, _| Ok(())).map(|_| ())
}

fn delete(storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Result<()> {
    let [orders, _] = open(storage, ledger)?;
    ledger.doomed = Some("eu".into());
    orders.store().delete_topic("eu")?;
    ledger.append(&orders, 0, SyncMode::Durable).map(|_| ())
}

fn close(storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Result<()> {
    let [orders, eu] = open(storage, ledger)?;
    ledger.append(&orders, 0, SyncMode::None)?;
    ledger.group(&eu, &[0, 1], SyncMode::None)?;
    orders.sync_clean()?;
    eu.sync_clean()?;
    ledger.flushed(&orders);
    ledger.flushed(&eu);
    ledger.open = None;
    drop((orders, eu));
    let [orders, _] = open(storage, ledger)?;
    ledger.append(&orders, 0, SyncMode::None).map(|_| ())
}

/// A machine after these acts of one process, which was then killed or closed its store.
fn left(mode: WriteMode, acts: &[Act], closed: bool) -> (MemoryStorage, Ledger) {
    let machine = MemoryStorage::with_capacity(256 << 10).seeded(7);
    let storage: Arc<dyn Storage> = Arc::new(machine.process());
    let mut ledger = Ledger::default();
    let options = StoreOptions { write_mode: Some(mode), ..options() };
    drop(Store::open_on(Arc::clone(&storage), ROOT, &options).unwrap());
    acts.iter().for_each(|act| act(&storage, &mut ledger).unwrap());
    if closed {
        ledger.open = None;
        return (machine.restart(), ledger);
    }
    let survivor = machine.survivor();
    ledger.open = None;
    (survivor, ledger)
}

/// As [`left`], killed after a sync had failed.
fn latched(mode: WriteMode) -> (MemoryStorage, Ledger) {
    let (machine, mut ledger) = left(mode, &[write_some], true);
    let faulty = FaultyStorage::over_memory(machine.process());
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let [orders, _] = open(&storage, &mut ledger).unwrap();
    for call in [Call::SyncData, Call::SyncAll] {
        faulty.plan(Fault::at(1, FailureKind::Errno(libc::EIO)).only(call).forever());
    }
    ledger.append(&orders, 0, SyncMode::Durable).unwrap_err();
    let survivor = machine.survivor();
    faulty.heal();
    ledger.open = None;
    (survivor, ledger)
}

pub fn all() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let mut add = |name: &str, (left, ledger): (MemoryStorage, Ledger), act: Act| {
            scenes.push(Scene { name: format!("{name} {}", mode.name()), left, ledger, act });
        };
        let empty = || (MemoryStorage::with_capacity(256 << 10).seeded(8), Ledger::default());
        if mode == WriteMode::Mapped {
            add("create", empty(), write_some);
        }
        let settled: &[Act] = &[write_some, roll];
        add("append", left(mode, settled, true), write_some);
        add("roll", left(mode, settled, true), roll);
        add("recover", left(mode, settled, false), write_some);
        add("read", left(mode, settled, true), read);
        add("read-killed", left(mode, settled, false), read);
        add("repair", left(mode, settled, false), mend);
        add("backup", left(mode, settled, true), backup);
        add("delete", left(mode, settled, true), delete);
        add("close", left(mode, settled, true), close);
        add("latched", latched(mode), write_some);
        add("latched-repair", latched(mode), mend);
    }
    scenes
}
