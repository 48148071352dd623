//! How far a partition was read: the one place where cursors of the file are read and written.
//!
//! Owns the choice between the two positions that a cursor keeps, and the order in which they are
//! stored. Cursors that are kept in a log are [`super::log_cursors`]'s. Invariants: the newer sector is never written over, so a death in the middle
//! of a store leaves the cursor before; *safe* never passes what was on the medium when it was stored.
//!
//! ```text
//!            death of the process        loss of power
//! committed  stands                      stands if the log still has what lies before it
//! safe                                   else this one, which lies before what the log kept
//! ```

use super::file::ConsumerFile;
use super::position::is_recognised;
use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::address::Address;
use crate::format::consumer::{
    CURSOR_LEN, CursorPosition, SECTOR, StoredCursor, TORN, at, decode_cursor, encode_cursor, entry,
};
use crate::format::double_slot::{DoubleSlot, slot_of};
use crate::topic::Topic;

/// Looks at a cursor that somebody may be writing; it is written in turns, so one is enough.
const LOOKS: u32 = 100;

/// What is known of a position that is not on the medium yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingPosition(Option<(CursorPosition, Address)>);

/// The newest cursor of an entry that is whole, and of the generation and partition that the entry is of:
/// bytes of another place say nothing here, however whole they are.
///
/// # Errors
/// `CorruptData` when there is none.
pub(super) fn load(file: &ConsumerFile, index: u64, of: ([u8; 16], u32)) -> Result<StoredCursor> {
    for _ in 0..LOOKS {
        let sector = |n: u64| {
            let mut bytes = [0; CURSOR_LEN];
            file.map.copy(entry(index) + at::CURSORS + n * SECTOR, &mut bytes);
            decode_cursor(&bytes)
        };
        let is_own = |cursor: &StoredCursor| (cursor.generation, cursor.partition) == of;
        let slots = [0, 1].map(|n| sector(n).filter(is_own));
        if let Some(newest) = DoubleSlot::of(slots, |cursor| cursor.serial).value {
            return Ok(newest);
        }
    }
    let position = entry(index) + at::CURSORS;
    Err(Error::CorruptData { path: file.path.clone(), position, what: TORN })
}

/// Store a cursor in the place of the older one.
///
/// # Errors
/// Those of `pwrite`, where the store is written so.
pub(super) fn store(file: &ConsumerFile, index: u64, cursor: &StoredCursor) -> Result<()> {
    let slot = if planted(Canary::CursorInPlace) { 0 } else { slot_of(cursor.serial) };
    file.write(entry(index) + at::CURSORS + slot as u64 * SECTOR, &encode_cursor(cursor))
}

/// Where a cursor stands: what was committed, or what is safe where a power cut took what lay before
/// that; `None` where the log has neither.
///
/// # Errors
/// `CorruptData`, `SystemCallFailed`.
pub(super) fn standing(
    topic: &Topic,
    partition: u32,
    cursor: &StoredCursor,
) -> Result<Option<CursorPosition>> {
    for position in [&cursor.committed, &cursor.safe] {
        if is_recognised(topic, partition, position)? {
            return Ok(Some(*position));
        }
    }
    Ok(None)
}

/// What is told of a cursor by who does not have the partition: where it stands, or what was committed
/// where the log has neither. One of the incarnation that is now stands, as no power was lost since.
///
/// # Errors
/// As [`standing`].
pub(super) fn group_error(
    topic: &Topic,
    partition: u32,
    cursor: &StoredCursor,
    incarnation: Option<u64>,
) -> Result<CursorPosition> {
    if Some(cursor.incarnation) == incarnation {
        return Ok(cursor.committed);
    }
    Ok(standing(topic, partition, cursor)?.unwrap_or(cursor.committed))
}

/// What is safe once a position is committed before which everything lies at or below an address.
pub(super) fn safe_after(
    before: CursorPosition,
    pending: &mut PendingPosition,
    (committed, address): (CursorPosition, Address),
    durable: Address,
) -> CursorPosition {
    if address <= durable || planted(Canary::CursorPastDurable) {
        *pending = PendingPosition(None);
        return committed;
    }
    if committed.offset < before.offset {
        // What lies before `before` is on the medium, and this lies before that.
        *pending = PendingPosition(None);
        return committed;
    }
    let mut safe = before;
    match pending.0 {
        Some((reached, at)) if at <= durable && reached.offset <= committed.offset => {
            safe = reached;
            pending.0 = Some((committed, address));
        }
        Some((waiting, _)) if waiting.offset <= committed.offset => {}
        _ => pending.0 = Some((committed, address)),
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_safe_follows_what_is_durable_and_never_passes_it() {
        let at = |offset: u64| (CursorPosition { offset, crc: 1, time_us: 1 }, Address(offset));
        let (mut safe, mut pending) = (CursorPosition::default(), PendingPosition::default());
        let mut durable = Address(0);
        for offset in 1..1000 {
            if offset % 7 == 0 {
                durable = Address(offset - 3);
            }
            safe = safe_after(safe, &mut pending, at(offset), durable);
            assert!(Address(safe.offset) <= durable, "{safe:?} at {offset}, durable {durable:?}");
            assert!(offset < 20 || safe.offset + 20 > offset, "{safe:?} lags at {offset}");
        }
        // Back, for whatever reason.
        safe = safe_after(safe, &mut pending, at(5), durable);
        assert_eq!(safe.offset, 5);
        safe = safe_after(safe, &mut pending, at(2000), durable);
        assert_eq!(safe.offset, 5);
        assert_eq!(safe_after(safe, &mut pending, at(2001), Address(2001)).offset, 2001);
    }
}
