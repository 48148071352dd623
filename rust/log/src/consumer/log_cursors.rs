//! Cursors that a log keeps, so that they move with the records that are appended there.
//!
//! Owns claiming and moving them. Invariants: no state of a cursor comes twice, as its turn rises with
//! each. Every move says which state it moves from. The append that moves it checks that state under
//! the append lock. Claiming a partition is such a move too. From then on a member that knew the state
//! before is refused, whatever else happens to it. Members and owners are in the group's file as
//! always. The cursors there are then a note for retention, which is never ahead of the log.
//!
//! ```text
//!  log   … turn 4 │ A's records, turn 5 │ B takes: turn 6 │ B's records, turn 7 …
//!                                        ▲ A, from turn 5: refused
//! ```
//!
//! A [`Transaction`] holds the records and positions that move together.
//! Races: `docs/PROTOCOL.md`, "Cursors in a log".

use super::cursors::{self, PendingPosition};
use super::handle::{GroupMember, Held};
use super::position::Finder;
use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::consumer::{
    CommitMetadata, CursorPosition, StoredCursor, cursor_name, cursor_prefix, fingerprint,
};
use crate::format::state::CursorState;
use crate::log::CursorMove;
use crate::topic::{GroupPosition, SyncMode, Topic, Transaction};

/// A position that moves in the log that keeps it.
#[derive(Clone, Debug)]
pub struct Move {
    lane: usize,
    name: Vec<u8>,
    from: CursorState,
    to: CursorState,
    committed: CursorPosition,
    position: GroupPosition,
    metadata: CommitMetadata,
}

impl Move {
    /// Let a transaction move it. `home` is the topic in whose log the group keeps its cursors.
    ///
    /// # Errors
    /// `InvalidArgument` for a transaction that writes to another log.
    pub fn join(&self, home: &Topic, tx: &mut Transaction) -> Result<()> {
        let (from, metadata) = (Some(self.from), self.metadata.as_bytes());
        let moved = CursorMove { name: &self.name, to: self.to, from, metadata };
        tx.move_position(home, moved, self.position.clone())
    }
}

/// Read the state of a cursor; [`CursorState::NONE`] for one that was never claimed.
pub(super) fn read(home: &Topic, name: &[u8]) -> Result<CursorState> {
    Ok(home.cursor(name)?.unwrap_or(CursorState::NONE))
}

/// Move cursors alone, each from the state that it must have; return the end of that append. It is on
/// disk within the log's interval.
pub(super) fn append(home: &Topic, cursors: &[CursorMove<'_>]) -> Result<Address> {
    let mut tx = Transaction::new(home.store()).with_sync(SyncMode::Interval);
    tx.keep_cursors_in(home)?;
    cursors.iter().for_each(|moved| tx.move_cursor(*moved));
    Ok(tx.commit_visible()?.end())
}

/// Forget the cursors of a group, all or those of some partitions, and wait until that is on disk.
pub(super) fn forget(home: &Topic, consumer: &str, of: Option<&[([u8; 16], u32)]>) -> Result<()> {
    let (prefix, mut names) = (cursor_prefix(consumer), Vec::new());
    for (name, _) in home.log().cursors()? {
        let is_meant = of.is_none_or(|of| {
            of.iter().any(|(generation, part)| cursor_name(consumer, generation, *part) == name)
        });
        if name.starts_with(&prefix) && is_meant {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    let to = CursorState::NONE;
    let gone: Vec<_> =
        names.iter().map(|name| CursorMove { name, to, from: None, metadata: b"" }).collect();
    let end = append(home, &gone)?;
    home.log().sync_to(end).map(drop)
}

/// Find the position of a kept cursor in the topic; `None` where the topic's log differs there. At or
/// below the start offset nothing is compared.
fn recognise(topic: &Topic, partition: u32, kept: CursorState) -> Result<Option<CursorPosition>> {
    let offset = kept.offset;
    if offset > topic.committed(partition)? {
        return Ok(None);
    }
    if offset <= topic.first(partition)? {
        return Ok(Some(CursorPosition { offset, ..CursorPosition::default() }));
    }
    let position = Finder::default().find(topic, partition, offset)?.0;
    let is_it = kept.crc == 0 || position.is_bare() || fingerprint(&position) == kept.crc;
    Ok(is_it.then_some(position))
}

impl GroupMember {
    /// Get the topic in whose log the cursors are kept; `None` where they are in the group's file.
    pub fn home(&self) -> Option<&Topic> {
        self.home.as_ref()
    }

    /// Let a transaction commit what was delivered since the last commit. After the transaction's
    /// commit, call [`GroupMember::moved`].
    ///
    /// # Errors
    /// As [`GroupMember::moves`] and [`Move::join`].
    pub fn commit_in(&mut self, tx: &mut Transaction) -> Result<Vec<Move>> {
        let moves = self.moves()?;
        if let Some(home) = &self.home {
            moves.iter().try_for_each(|moved| moved.join(home, tx))?;
        }
        Ok(moves)
    }

    /// Get the positions to commit: what was delivered since the last commit. They count once a
    /// transaction that they [joined](Move::join) has committed, and [`GroupMember::moved`] was called.
    ///
    /// # Errors
    /// `PartitionNotAssigned`; `InvalidArgument` where the group's file keeps the cursors;
    /// `HandleClosed` in a forked child; `CorruptData`, `SystemCallFailed`.
    pub fn moves(&mut self) -> Result<Vec<Move>> {
        self.check()?;
        self.expect_home()?;
        let mut moves = Vec::new();
        for lane in 0..self.lanes.len() {
            let Some(held) = &self.lanes[lane].held else { continue };
            if let Some(next) = held.to_commit(&self.metadata).filter(|_| !self.is_left(lane)) {
                moves.push(self.move_to(lane, next)?);
            }
        }
        Ok(moves)
    }

    pub(super) fn expect_home(&self) -> Result<()> {
        if self.home.is_none() {
            let what = format!(
                "consumer group {:?} keeps its cursors in a file of its own, and they cannot move with a \
                 transaction: open it with cursor_in= and a topic of the log that is written to",
                self.group
            );
            return Err(Error::InvalidArgument { what });
        }
        Ok(())
    }

    pub(super) fn move_to(&mut self, lane: usize, offset: u64) -> Result<Move> {
        let (topic, partition) = (self.lanes[lane].topic, self.lanes[lane].partition);
        let (topic, group) = (self.topics[topic].clone(), self.group.clone());
        let name = cursor_name(&group, &topic.settings().generation, partition);
        let held = self.held(lane)?;
        let (position, read) = held.finder.find_to_commit(&topic, partition, offset)?;
        let from = held.kept;
        let turn = from.turn.wrapping_add(1);
        let to = CursorState { offset, crc: fingerprint(&position), turn };
        if offset < held.cursor.safe.offset {
            // Before the log has the move: retention must not trim what the cursor goes back to.
            let lower = StoredCursor { safe: position, ..held.cursor };
            self.note(lane, lower)?;
        }
        let committed = position;
        let position = GroupPosition { group, topic, partition, read };
        let metadata = self.metadata;
        Ok(Move { lane, name, from, to, committed, position, metadata })
    }

    /// Note that a transaction, which ends at `end`, committed these positions. If several are for
    /// one cursor, the last counts.
    pub fn moved(&mut self, moves: &[Move], end: Address) {
        self.metadata = CommitMetadata::NONE;
        for moved in moves {
            let Some(held) = self.lanes.get_mut(moved.lane).and_then(|lane| lane.held.as_mut())
            else {
                continue;
            };
            // The partition may have been released and claimed again since. If one append has two moves
            // of a cursor, the log has the last.
            if (moved.to.turn.wrapping_sub(held.kept.turn) as i32) < 0 {
                continue;
            }
            (held.kept, held.rewound) = (moved.to, false);
            held.cursor.metadata = moved.metadata;
            let _ = self.note_kept(moved.lane, moved.committed, end);
        }
    }

    /// Commit these moves alone; with `durable`, wait until they are on disk.
    pub(super) fn commit_moves(&mut self, moves: &[Move], durable: bool) -> Result<()> {
        let Some(home) = self.home.clone() else { return Ok(()) };
        if !moves.is_empty() {
            let sync = if durable { SyncMode::Durable } else { SyncMode::Interval };
            let mut tx = Transaction::new(home.store()).with_sync(sync);
            moves.iter().try_for_each(|moved| moved.join(&home, &mut tx))?;
            let end = tx.commit_visible()?.end();
            self.moved(moves, end);
        }
        if durable { home.flush() } else { Ok(()) }
    }

    /// Claim the cursor of a partition that this member owns: read it, and shut out members that knew
    /// the state before.
    pub(super) fn take_kept(
        &mut self,
        lane: usize,
        home: &Topic,
        cursor: StoredCursor,
    ) -> Result<()> {
        let (topic, partition) = (self.lanes[lane].topic, self.lanes[lane].partition);
        let topic = self.topics[topic].clone();
        let name = cursor_name(&self.group, &topic.settings().generation, partition);
        let (position, kept, end, metadata) = loop {
            let found = read(home, &name)?;
            let is_new = found == CursorState::NONE;
            let place = if is_new {
                // No member ever had it, or a power failure took all states: it begins where it first
                // was to begin.
                let CursorPosition { offset, .. } = cursor.safe;
                CursorState { offset, crc: fingerprint(&cursor.safe), turn: 0 }
            } else {
                found
            };
            let position = recognise(&topic, partition, place)?;
            let kept = CursorState { turn: place.turn.wrapping_add(1), ..place };
            // It belongs to the state that was found: from another one the move is refused.
            let metadata = home.cursor_metadata(&name)?;
            let from = Some(found);
            let taken = CursorMove { name: &name, to: kept, from, metadata: &metadata };
            match append(home, &[taken]) {
                Ok(end) => {
                    self.unsynced = if is_new { Some(end) } else { self.unsynced };
                    break (position, kept, end, metadata);
                }
                // A former owner was faster, for the last time.
                Err(Error::CursorMoved { .. }) => {}
                Err(error) => return Err(error),
            }
        };
        let (pending, finder) = <(PendingPosition, Finder)>::default();
        let next = position.map(|position| position.offset).ok_or(());
        let committed =
            position.unwrap_or(CursorPosition { offset: kept.offset, ..CursorPosition::default() });
        let metadata = CommitMetadata::new(&metadata).unwrap_or_default();
        let cursor = StoredCursor { committed, metadata, ..cursor };
        let rewound = next.is_err();
        self.lanes[lane].held = Some(Held { cursor, kept, next, rewound, pending, finder });
        match position {
            Some(position) => self.note_kept(lane, position, end),
            None => Ok(()),
        }
    }

    /// Note in the group's file, for retention, that the log says this up to `end`.
    fn note_kept(&mut self, lane: usize, committed: CursorPosition, end: Address) -> Result<()> {
        let durable = self.home.as_ref().and_then(|home| home.log().durable()).unwrap_or_default();
        let Some(held) = &mut self.lanes[lane].held else { return Ok(()) };
        let safe = held.cursor.safe;
        let safe = cursors::safe_after(safe, &mut held.pending, (committed, end), durable);
        // This member knows it, even if the note fails.
        held.cursor = StoredCursor { committed, safe, ..held.cursor };
        let cursor = held.cursor;
        self.note(lane, cursor)
    }

    fn note(&mut self, lane: usize, cursor: StoredCursor) -> Result<()> {
        let (serial, incarnation) = (cursor.serial.wrapping_add(1), self.who.incarnation());
        let cursor = StoredCursor { serial, incarnation, ..cursor };
        cursors::store(&self.file, self.lanes[lane].entry, &cursor)?;
        if let Some(held) = &mut self.lanes[lane].held {
            held.cursor = cursor;
        }
        Ok(())
    }

    /// Sync the first state of a cursor to disk before anything is delivered. From then on a state that
    /// the log does not know never existed.
    pub(super) fn sync_first(&mut self) -> Result<()> {
        if let (Some(end), Some(home)) = (self.unsynced, &self.home) {
            home.log().sync_to(end)?;
            self.unsynced = None;
        }
        Ok(())
    }
}
