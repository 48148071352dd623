//! Consistent ends of the logs of a cut: no cursor lies beyond the end of what it reads.
//!
//! A log may keep cursors of groups that read other logs, and two logs may keep cursors in each
//! other. The ends are fixed one after the other while others write. So a log that is fixed later
//! may refer to more than another one's cut holds. Such a log is cut back to before the first
//! group of blocks that moves a cursor beyond the cut. That may remove records that a third log's
//! cursors refer to, so it is repeated until nothing changes. Invariant: everything that was
//! committed when the cut began stays in it. The ends at one moment are consistent, since a
//! cursor moves after its records were read. The cutting stops at the highest consistent ends, and
//! only records after that moment are considered (see [`LowerBounds`]). So a cursor that was beyond its
//! log before, as after a loss, cuts nothing. Where a log cannot be synced, the moment is that of the
//! earlier cut, whose ends are consistent too. See `docs/PROTOCOL.md`, "Cut".

use std::collections::HashMap;
use std::sync::Arc;

use super::cut::{Cut, CutLog};
use super::cut_files::CutFile;
use super::{Access, Store};
use crate::error::Result;
use crate::format::address::Address;
use crate::format::consumer;
use crate::format::settings::TopicSettings;
use crate::log::{CursorMoved, Log};
use crate::segment::walk::SegmentWalker;

/// Ends of the logs that keep cursors, before any end was fixed, by generation.
pub(super) type LowerBounds = HashMap<[u8; 16], Address>;

/// Find them; logs that are open for writing stay open as long as the caller keeps them.
pub(super) fn lower_bounds(
    store: &Store,
    topics: &[TopicSettings],
    consumers: &[CutFile],
) -> (LowerBounds, Vec<Arc<Log>>) {
    let (mut bounds, mut held) = (LowerBounds::new(), Vec::new());
    for file in consumers {
        // A corrupt file is copied as it is.
        let home = consumer::check_header(file.bytes(), store.settings().id);
        let Ok(home) = home else { continue };
        let topic = topics.iter().find(|topic| topic.log_generation == home);
        let Some(topic) = topic.filter(|_| !bounds.contains_key(&home)) else { continue };
        // A log that cannot be opened is an error of its cut, or was deleted.
        let Ok(log) = store.open_log(topic) else { continue };
        bounds.insert(home, log.committed().unwrap_or(Address(u64::MAX)));
        if store.access() == Access::Write {
            held.push(log);
        }
    }
    (bounds, held)
}

/// Cut back logs that were not copied yet until all ends are consistent.
///
/// # Errors
/// `CorruptData` when a segment no longer exists, `SystemCallFailed`.
pub(super) fn agree(cut: &mut Cut) -> Result<()> {
    let mut homes = Vec::new();
    for (index, log) in cut.logs.iter().enumerate().skip(cut.copied) {
        if let Some(bound) = cut.lower_bounds.get(&log.generation) {
            let moves = log.cut.moves_since(*bound)?;
            if !moves.is_empty() {
                homes.push((index, moves));
            }
        }
    }
    let mut ends = EndsOf::default();
    while !homes.is_empty() {
        let mut is_done = true;
        for (home, moves) in &mut homes {
            let beyond = |moved: &&CursorMoved| ends.is_beyond(cut, *home, moved);
            let Some(group) = moves.iter().find(beyond).map(|moved| moved.group) else { continue };
            let log = &mut cut.logs[*home].cut;
            *log = Arc::new(log.ended_before(group));
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

/// States of logs at the ends of their cuts, by their places; `None` if corruption hides one.
#[derive(Default)]
struct EndsOf(HashMap<usize, Option<Arc<SegmentWalker>>>);

impl EndsOf {
    /// Return true if a cursor in the log `home` lies beyond the end of what it reads.
    fn is_beyond(&mut self, cut: &Cut, home: usize, moved: &CursorMoved) -> bool {
        let Some((generation, partition)) = consumer::read_by(&moved.name) else { return false };
        let topic = cut.topics.iter().find(|topic| topic.generation == generation);
        let Some(topic) = topic.filter(|topic| partition < topic.partitions) else { return false };
        let is_its = |log: &CutLog| log.generation == topic.log_generation;
        let Some(log) = cut.logs.iter().position(is_its) else { return false };
        let ends = self.0.entry(log).or_insert_with(|| cut.logs[log].cut.state().ok());
        let number = topic.number + partition;
        let next = |end: &Arc<SegmentWalker>| end.state.topic(number).map_or(0, |t| t.next);
        log != home && moved.offset > ends.as_ref().map_or(u64::MAX, next)
    }
}
