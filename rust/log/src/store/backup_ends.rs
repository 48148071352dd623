//! Consistent ends of copied logs: no cursor in a copy lies beyond the copied end of what it reads.
//!
//! A log may keep cursors of groups that read other logs, and two logs may keep cursors in each
//! other. The ends are fixed one after the other while others write. So a log that is fixed later
//! may refer to more than another one's copy holds. Such a log is cut back to before the first
//! group of blocks that moves a cursor beyond the copy. That may remove records that a third log's
//! cursors refer to, so it is repeated until nothing changes. Invariant: everything that was
//! committed when the backup began stays in it. The ends at one moment are consistent, since a
//! cursor moves after its records were read. The cutting stops at the highest consistent ends, and
//! only records after that moment are considered (see [`Floors`]). So a cursor that was beyond its log
//! before, as after a loss, cuts nothing. See `docs/PROTOCOL.md`, "Backup".

use std::collections::HashMap;
use std::sync::Arc;

use super::backup::BackupPlan;
use super::{Access, Store};
use crate::error::Result;
use crate::format::address::Address;
use crate::format::consumer;
use crate::format::settings::TopicSettings;
use crate::log::{CopiedMove, Log, TopicEnds};

/// Ends of the logs that keep cursors, before any end was fixed, by generation.
pub(super) type Floors = HashMap<[u8; 16], Address>;

/// Find them; logs that are open for writing stay open as long as the caller keeps them.
pub(super) fn floors(
    store: &Store,
    topics: &[TopicSettings],
    consumers: &[(String, Vec<u8>)],
) -> Result<(Floors, Vec<Arc<Log>>)> {
    let (mut floors, mut held) = (Floors::new(), Vec::new());
    for (_, bytes) in consumers {
        // A corrupt file is copied as it is.
        let Ok(home) = consumer::check_header(bytes, store.settings().id) else { continue };
        let topic = topics.iter().find(|topic| topic.log_generation == home);
        let Some(topic) = topic.filter(|_| !floors.contains_key(&home)) else { continue };
        // A log that cannot be opened is an error of its copy, or was deleted.
        let Ok(log) = store.open_log(topic) else { continue };
        floors.insert(home, log.committed().unwrap_or(Address(u64::MAX)));
        if store.access() == Access::Write {
            held.push(log);
        }
    }
    Ok((floors, held))
}

/// Cut back logs that were not copied yet until all ends are consistent.
///
/// # Errors
/// `CorruptData` when a segment no longer exists, `SystemCallFailed`.
pub(super) fn agree(plan: &mut BackupPlan, store: &Store) -> Result<()> {
    let mut homes = Vec::new();
    for (index, (dir, copy)) in plan.logs.iter().enumerate().skip(plan.copied) {
        let its = |topic: &&TopicSettings| store.log_dir(topic).is_ok_and(|its| its == *dir);
        let generation = plan.topics.iter().find(its).map(|topic| topic.log_generation);
        let floor = generation.and_then(|generation| plan.floors.get(&generation));
        if let Some(floor) = floor {
            let moves = copy.moves_since(*floor)?;
            if !moves.is_empty() {
                homes.push((index, moves));
            }
        }
    }
    let mut ends = EndsOf::default();
    while !homes.is_empty() {
        let mut is_done = true;
        for (home, moves) in &mut homes {
            let beyond = |moved: &&CopiedMove| ends.is_beyond(plan, store, *home, moved);
            let Some(group) = moves.iter().find(beyond).map(|moved| moved.group) else { continue };
            plan.logs[*home].1.end_before(group);
            moves.retain(|moved| moved.group < group);
            ends.0.remove(home);
            is_done = false;
        }
        if is_done {
            return Ok(());
        }
    }
    Ok(())
}

/// Ends of the logs' copies, by their places in the plan; `None` if corruption hides one.
#[derive(Default)]
struct EndsOf(HashMap<usize, Option<TopicEnds>>);

impl EndsOf {
    /// Return true if a cursor in the log `home` lies beyond the copied end of what it reads.
    fn is_beyond(
        &mut self,
        plan: &BackupPlan,
        store: &Store,
        home: usize,
        moved: &CopiedMove,
    ) -> bool {
        let Some((generation, partition)) = consumer::read_by(&moved.name) else { return false };
        let topic = plan.topics.iter().find(|topic| topic.generation == generation);
        let Some(topic) = topic.filter(|topic| partition < topic.partitions) else { return false };
        let Ok(dir) = store.log_dir(topic) else { return false };
        let Some(log) = plan.logs.iter().position(|(its, _)| *its == dir) else { return false };
        let ends = self.0.entry(log).or_insert_with(|| plan.logs[log].1.ends().ok());
        let end = ends.as_ref().map_or(u64::MAX, |ends| ends.get(topic.number + partition));
        log != home && moved.offset > end
    }
}
