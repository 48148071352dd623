//! Checks after a call failed.
//!
//! | when | what |
//! |---|---|
//! | at once | the error is typed, names a path, and says what helps |
//! | for other processes, at once | everything acknowledged is there, and nothing else |
//! | after a power cut | everything that was acknowledged as durable is there |
//! | once the machine works again | the same process or another one appends, or `repair` helps |
//! | after another power cut | everything that was acknowledged as durable, before and since, is there |
//! | at the end | no temporary name is left, and `verify` finds nothing wrong |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::internals::error::{Error, Remedy};
use falaj::internals::storage::Storage;
use falaj::internals::store::{Store, StoreOptions, TopicOptions, repair, verify};
use falaj::internals::topic::{SyncMode, Topic};
use falaj_twin::faulty::FailureKind;
use falaj_twin::memory::MemoryStorage;

use super::ledger::{Entry, Ledger};
use super::scenes::{COPY, open, options};
use crate::example::{ROOT, walk};

type Judged = Result<(), String>;

/// Errors about bytes that the disk does not return.
const UNREADABLE: [&str; 3] = [
    "the disk could not read these bytes",
    "the commit word's tag is not this place's",
    "the segment is missing or corrupt, and it was on disk",
];

pub fn judge_error(error: &Error, how: FailureKind) -> Judged {
    let source = match error {
        Error::DurabilityUnknown { source, .. } => source,
        other => other,
    };
    let fits = match source {
        Error::SystemCallFailed { .. } | Error::NoSpace { .. } | Error::SyncFailed { .. } => true,
        Error::CorruptData { what, .. } | Error::NeedsRecovery { what, .. } => {
            UNREADABLE.contains(what)
        }
        _ => false,
    };
    let said = error.to_string();
    // The store's directory is in `/`, which is synced when the directory is created.
    let names = said.contains(ROOT) || said.contains(COPY) || said.contains(" /: ");
    // A log that awaits recovery may be read later.
    let waits = matches!(source, Error::NeedsRecovery { .. }) && error.remedy() == Remedy::Retry;
    let helps = waits || matches!(error.remedy(), Remedy::FixMachine | Remedy::Repair);
    // A reader whose read ended early reads on later.
    if fits && names && helps && how != FailureKind::ShortRead {
        return Ok(());
    }
    Err(format!("not an error for a failing machine: {said} ({:?})", error.remedy()))
}

/// Values of a partition, up to a regular end.
fn values(topic: &Topic, partition: u32) -> Result<Vec<Vec<u8>>, Error> {
    let mut scan = topic.scan_partition(partition, 0, None)?;
    let mut found = Vec::new();
    while let Some(record) = scan.next().transpose()? {
        found.push(record.value().unwrap_or_default().to_vec());
    }
    Ok(found)
}

fn all_of(store: &Store, name: &str, partition: u32) -> Result<Option<Vec<Vec<u8>>>, Error> {
    // A writer would create it.
    if !store.topics()?.iter().any(|(there, _)| there == name) {
        return Ok(None);
    }
    match Topic::open(store, name, &TopicOptions::default()) {
        Ok(topic) => values(&topic, partition).map(Some),
        Err(Error::UnknownTopic { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn held(found: &[Vec<u8>], right: &[Entry]) -> bool {
    found.len() <= right.len()
        && found.iter().zip(right).all(|(found, entry)| *found == entry.value)
}

/// Check that everything acknowledged is there, and nothing else.
fn all_there(store: &Store, ledger: &Ledger, who: &str) -> Judged {
    for ((name, partition), right) in &ledger.records {
        let found = all_of(store, name, *partition);
        match found.map_err(|error| format!("{who} cannot read {name} {partition}: {error}"))? {
            None if ledger.doomed.as_ref() == Some(name) => {}
            None => return Err(format!("{who} finds no topic {name}")),
            Some(found) if found.len() == right.len() && held(&found, right) => {}
            Some(found) => {
                let (is, must) = (found.len(), right.len());
                return Err(format!("{who} finds {is} records of {must} in {name} {partition}"));
            }
        }
    }
    Ok(())
}

/// Read at once in another process, whose machine works.
pub fn read_by_others(machine: &MemoryStorage, ledger: &Ledger) -> Judged {
    if ledger.records.is_empty() {
        return Ok(());
    }
    let storage: Arc<dyn Storage> = Arc::new(machine.process());
    let store = Store::open_on(storage, ROOT, &StoreOptions::reading());
    let store = store.map_err(|error| format!("another process cannot open it: {error}"))?;
    all_there(&store, ledger, "another process")
}

/// Cut the power now: nothing that was not synced has reached the disk.
pub fn after_power_cut(machine: &MemoryStorage, ledger: &Ledger) -> Judged {
    let crash = machine.journal().crash_at_end();
    for image in [crash.nothing(), crash.everything()] {
        let storage: Arc<dyn Storage> = Arc::new(crash.image(&image));
        recovered(&storage, ledger)?;
    }
    Ok(())
}

fn recovered(storage: &Arc<dyn Storage>, ledger: &Ledger) -> Judged {
    let durable = |all: &[Entry]| all.iter().rposition(|entry| entry.durable).map_or(0, |i| i + 1);
    if ledger.records.values().all(|all| durable(all) == 0) {
        return Ok(());
    }
    let said = |error: Error| format!("after a power cut: {error}");
    let store = Store::open_on(Arc::clone(storage), ROOT, &options()).map_err(said)?;
    for ((name, partition), right) in &ledger.records {
        let Some(found) = all_of(&store, name, *partition).map_err(said)? else {
            if ledger.doomed.as_ref() == Some(name) || durable(right) == 0 {
                continue;
            }
            return Err(format!("after a power cut there is no topic {name}"));
        };
        if found.len() < durable(right) || !held(&found, right) {
            let (is, must) = (found.len(), durable(right));
            return Err(format!("after a power cut {name} {partition} has {is} of {must} records"));
        }
    }
    Ok(())
}

/// Let the machine work again: the same process continues, then another one comes.
pub fn goes_on(machine: &MemoryStorage, storage: &Arc<dyn Storage>, ledger: &mut Ledger) -> Judged {
    if let Some((store, topics)) = ledger.open.take() {
        for topic in &topics {
            go_on_with(topic, ledger)?;
        }
        all_there(&store, ledger, "the same process, afterwards,")?;
        drop((store, topics));
    } else {
        // It came to nothing, so try again.
        let again = open(storage, ledger).map_err(|error| format!("opening again: {error}"))?;
        for topic in &again {
            go_on_with(topic, ledger)?;
        }
        ledger.open = None;
    }
    // All processes have ended; the next one finds everything and sweeps.
    let next: Arc<dyn Storage> = Arc::new(machine.process());
    let mended = repair(Arc::clone(&next), Path::new(ROOT), &options(), false);
    let mended = mended.map_err(|error| format!("repair: {error}"))?;
    if !mended.is_complete() {
        return Err(format!("repair leaves {mended:?}"));
    }
    let deleting = ledger.doomed.is_some();
    if let Some(doomed) = ledger.doomed.take() {
        let store = Store::open_on(Arc::clone(&next), ROOT, &StoreOptions::reading());
        let there = store.and_then(|store| store.topics()).map_err(|e| format!("to list: {e}"))?;
        if !there.iter().any(|(name, _)| *name == doomed) {
            ledger.records.retain(|(name, _), _| *name != doomed);
        }
    }
    let [orders, _] = open(&next, ledger).map_err(|error| format!("who comes later: {error}"))?;
    ledger.append(&orders, 0, SyncMode::Durable).map_err(|e| format!("who comes later: {e}"))?;
    if ledger.records.keys().any(|(name, _)| name == "orders") {
        let copied = orders.store().backup(COPY, &mut |_, _| Ok(()));
        if let Err(error) = copied {
            if !matches!(error, Error::InvalidArgument { .. }) {
                return Err(format!("a backup afterwards: {error}"));
            }
        }
    }
    all_there(orders.store(), ledger, "who comes later")?;
    ledger.open = None;
    drop(orders);
    nothing_is_left(machine, &next, deleting)
}

fn go_on_with(topic: &Topic, ledger: &mut Ledger) -> Judged {
    match ledger.append(topic, 0, SyncMode::Durable) {
        Ok(_) => Ok(()),
        // The topic is being deleted, or is gone.
        Err(_) if ledger.doomed.as_deref() == Some(topic.name()) => Ok(()),
        Err(error) => Err(format!("the machine works again, and {} fails: {error}", topic.name())),
    }
}

fn nothing_is_left(machine: &MemoryStorage, storage: &Arc<dyn Storage>, deleting: bool) -> Judged {
    // Open and close once more, alone: a process that is alone sweeps.
    let mut ledger = Ledger::default();
    open(storage, &mut ledger).map_err(|error| format!("to sweep: {error}"))?;
    ledger.open = None;
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    walk(machine, Path::new("/"), &mut files);
    let left = |path: &Path| {
        let text = path.to_string_lossy();
        // A copy that could be neither finished nor removed is beside the store, not in it.
        text.starts_with(ROOT) && (text.contains(".tmp") || text.contains(".deleted"))
    };
    if let Some((path, _)) = files.iter().find(|(path, _)| left(path)) {
        return Err(format!("{} is left", path.display()));
    }
    let found = verify(storage, Path::new(ROOT), None, &mut |_, _| Ok(()));
    let found = found.map_err(|error| format!("verify: {error}"))?;
    let worst = found.all_findings().max_by_key(|finding| finding.severity);
    // Parts of a log whose removal failed half-way may be left; `verify` reports them.
    let remains = |what: &str| deleting && what.starts_with("no topic names this log");
    if !found.is_sound() && !worst.is_some_and(|finding| remains(&finding.what)) {
        return Err(format!("verify finds {worst:?}"));
    }
    Ok(())
}
