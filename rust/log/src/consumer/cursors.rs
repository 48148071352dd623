//! How far a partition was read: this module alone reads and writes cursors in the file.
//!
//! Owns the choice between the two positions that a cursor keeps, and the order in which they are
//! stored. [`super::log_cursors`] owns cursors that a log keeps. Invariants: the newer sector is never
//! overwritten, so a death in the middle of a store leaves the cursor before. *Safe* never passes what
//! was on disk when it was stored.
//!
//! ```text
//!            death of the process        power failure
//! committed  holds                       holds if the log still has what lies before it
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

/// How often to look at a cursor that may be changing; the two slots alternate, so one look is enough.
const LOOKS: u32 = 100;

/// A position that is not known to be on disk yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingPosition(Option<(CursorPosition, Address)>);

/// Load the newest valid cursor of an entry. It must name the generation and partition of the entry;
/// bytes of another place do not count, even if they are whole.
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

/// Store a cursor in the slot of the older one.
///
/// # Errors
/// Those of `pwrite`, in a store that is written by `pwrite`.
pub(super) fn store(file: &ConsumerFile, index: u64, cursor: &StoredCursor) -> Result<()> {
    let slot = if planted(Canary::CursorInPlace) { 0 } else { slot_of(cursor.serial) };
    file.write(entry(index) + at::CURSORS + slot as u64 * SECTOR, &encode_cursor(cursor))
}

/// Choose the position that holds: the committed one, or the safe one where a power failure took
/// records before the committed one. `None` where the log has neither.
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

/// Get the committed position for a caller that does not have the partition. That is the position that
/// holds, or the committed one where the log has neither. A cursor of this incarnation holds, since no
/// power failed since.
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

/// Compute the safe position after a commit; all records before it lie at or below an address.
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
        // The records before `before` are on disk, and this position is lower.
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
        // Back, for any reason.
        safe = safe_after(safe, &mut pending, at(5), durable);
        assert_eq!(safe.offset, 5);
        safe = safe_after(safe, &mut pending, at(2000), durable);
        assert_eq!(safe.offset, 5);
        assert_eq!(safe_after(safe, &mut pending, at(2001), Address(2001)).offset, 2001);
    }
}
