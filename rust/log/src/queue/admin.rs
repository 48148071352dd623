//! The queues of a store: listing them, and deleting the state of one.
//!
//! Owns no state. Invariant: a state file is deleted under the claim and the queue's lock. So a process
//! that has it open finds that out when it gets the lock, at whatever step the deletion ends. See
//! `docs/PROTOCOL.md`, "Queues".

use std::sync::PoisonError;

use super::overview::{QueueInfo, overview};
use super::state::StateFile;
use crate::error::{Error, Result};
use crate::store::Store;

/// Forget what became of the records of a queue; the records stay. A process that has the queue open
/// continues with a new one, in which all records are to be done. Jobs that are in flight can't be
/// acked any more.
///
/// # Errors
/// `InvalidName`, `UnknownQueue`, `NotWritable`, `LockTimeout`, `SystemCallFailed`.
pub fn delete(store: &Store, name: &str) -> Result<()> {
    let (path, member) = (store.layout().queue(name)?, store.membership()?);
    member.check()?;
    let mutex = member.file_mutex(&path);
    let mut open = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    let topic = store.under_claim(|| {
        loop {
            match StateFile::open(store, &path) {
                Ok(None) => {
                    return Err(missing(store, name));
                }
                Ok(Some(file)) if file.remove(store, &member)? => {
                    return Ok(Some(file.header.topic));
                }
                Ok(Some(_)) => {}
                // A process that has it open gets the same error.
                Err(
                    Error::CorruptData { .. }
                    | Error::UnsupportedVersion { .. }
                    | Error::OutdatedFormat { .. },
                ) => {
                    return store.remove_queue_file(&path).map(|()| None);
                }
                Err(error) => return Err(error),
            }
        }
    })?;
    *open = None;
    drop(open);
    // A worker that waits for jobs looks again, and finds all of them.
    let log = topic.map(|name| store.topic_settings(&name)).and_then(Result::ok);
    if let Some(log) = log.and_then(|settings| store.open_log(&settings).ok()) {
        log.wake_all();
    }
    Ok(())
}

/// List the queues of a store by name, each with its topic's name. If the state of a queue is corrupt,
/// its topic's name is empty.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(store: &Store) -> Result<Vec<(String, String)>> {
    let topic_of = |info: Result<QueueInfo>| info.map_or_else(|_| String::new(), |it| it.topic);
    Ok(overview(store)?.into_iter().map(|(name, info)| (name, topic_of(info))).collect())
}

/// Make sure that there is a queue of this name.
///
/// # Errors
/// `UnknownQueue`, which lists the queues there are; `SystemCallFailed`.
pub fn expect(store: &Store, name: &str) -> Result<()> {
    if store.queues()?.iter().any(|known| known == name) {
        Ok(())
    } else {
        Err(missing(store, name))
    }
}

pub(super) fn missing(store: &Store, name: &str) -> Error {
    let queues = store.queues().unwrap_or_default();
    Error::UnknownQueue { name: name.to_owned(), store: store.path().to_path_buf(), queues }
}
