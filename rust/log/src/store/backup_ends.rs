//! Ends of copied logs that agree: no cursor in a copy lies behind the copied end of what it reads.
//!
//! A log may keep cursors of consumers that read other logs, and two may keep cursors in each other. The
//! ends are fixed one after the other while others write, so a log that is fixed later may say more than
//! another one's copy holds. Such a log is cut back, to before the first group that moves a cursor beyond
//! what is copied; that may take away what a third one's cursors count on, so it is done until nothing
//! changes. Invariant: whatever was committed when the backup began stays in it. For what was committed at
//! one moment agrees, a cursor being moved behind what was read; of all ends that agree the cutting stops
//! at the highest, and only what came after that moment is looked at (the *floors*). So a cursor that was
//! beyond its log before, as after a loss, cuts nothing. See `docs/PROTOCOL.md`, "Backup".

use std::collections::HashMap;
use std::sync::Arc;

use super::backup::BackupPlan;
use super::{Access, Store};
use crate::error::Result;
use crate::format::address::Address;
use crate::format::consumer;
use crate::format::settings::TopicSettings;
use crate::log::{CopiedMove, Log, TopicEnds};

/// Where logs that keep cursors of consumers ended before any end was fixed, by generation.
pub(super) type Floors = HashMap<[u8; 16], Address>;

/// Find them; the logs, where they are open for writing, stay so as long as the caller keeps them.
pub(super) fn floors(
    store: &Store,
    topics: &[TopicSettings],
    consumers: &[(String, Vec<u8>)],
) -> Result<(Floors, Vec<Arc<Log>>)> {
    let (mut floors, mut held) = (Floors::new(), Vec::new());
    for (_, bytes) in consumers {
        // One that is damaged is copied as it is.
        let Ok(home) = consumer::check_header(bytes, store.settings().id) else { continue };
        let topic = topics.iter().find(|topic| topic.log_generation == home);
        let Some(topic) = topic.filter(|_| !floors.contains_key(&home)) else { continue };
        // What cannot be opened is for whoever copies it, or was deleted.
        let Ok(log) = store.open_log(topic) else { continue };
        floors.insert(home, log.committed().unwrap_or(Address(u64::MAX)));
        if store.access() == Access::Write {
            held.push(log);
        }
    }
    Ok((floors, held))
}

/// Cut logs that were not copied yet back until all agree.
///
/// # Errors
/// `CorruptData` when a segment is not there any more, `SystemCallFailed`.
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

/// Where the copies of logs end, by their places in the plan; `None` where damage hides it.
#[derive(Default)]
struct EndsOf(HashMap<usize, Option<TopicEnds>>);

impl EndsOf {
    /// True where a cursor in the log `home` lies behind the copied end of what it reads.
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
