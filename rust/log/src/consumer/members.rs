//! Members of a consumer group: their rows, and whether they live.
//!
//! A member is a handle of a process: `identity of the process | number of the handle`. Invariant: only
//! the member itself takes away the word of a living member. A dead member's word is taken away by any
//! process that holds the flock of its slot, which shows that the member is dead. If a handle is closed
//! and could not take its word away, its own process does. No clock decides, and no process number.
//!
//! ```text
//!  63 62 61                 32 31             0
//! ┌─────┬─────────────────────┬────────────────┐
//! │  0  │ process (identity)  │ handle, from 1 │   0 = no member
//! └─────┴─────────────────────┴────────────────┘
//! ```

use std::collections::BTreeSet;

use super::assignment::Row;
use super::file::{ConsumerFile, Image};
use crate::error::{Error, IoResult, Result};
use crate::format::consumer::{MEMBERS_MAX, ask, at, entry, member};
use crate::lock::{Fate, Holders, Identity};
use crate::store::{DeadSlot, Membership};

/// A member, as its word names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) process: Identity,
    pub(super) handle: u32,
}

impl Who {
    pub(super) fn word(self) -> u64 {
        (u64::from(self.process.bits()) << 32) | u64::from(self.handle)
    }

    /// Decode a word; `None` for 0, and for a word that no member writes.
    pub(super) fn of(word: u64) -> Option<Self> {
        let process = Identity::from_bits((word >> 32) as u32)?;
        Some(Self { process, handle: word as u32 })
    }
}

/// The row of a member that may join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    row: u64,
    /// No other member lives.
    is_alone: bool,
}

/// Find out whether a member lives. A word that no member writes counts as dead.
pub(super) fn fate(who: &Membership, word: u64) -> Result<Fate<Option<DeadSlot>>> {
    let Some(member) = Who::of(word) else { return Ok(Fate::Dead(None)) };
    if member.process == who.identity() && who.check().is_ok() && !who.has(member.handle) {
        // Each number is used once, so no later handle is this member.
        return Ok(Fate::Dead(None));
    }
    let asked = who.fate(member.process);
    let asked = asked.doing("find out about a member in", &who.slots())?;
    Ok(match asked {
        Fate::Alive => Fate::Alive,
        Fate::Dead(proof) => Fate::Dead(Some(proof)),
    })
}

/// True unless the member is known to be dead.
pub(super) fn is_alive(who: &Membership, word: u64) -> bool {
    word != 0 && !matches!(fate(who, word), Ok(Fate::Dead(_)))
}

/// List the rows of all members, sorted by their words.
pub(super) fn living(file: &ConsumerFile) -> Vec<Row> {
    let rows = (0..MEMBERS_MAX).map(|row| (file.load(member(row)), row));
    let rows = rows.filter(|(word, _)| *word != 0);
    let mut living: Vec<_> =
        rows.map(|(word, row)| Row { word, row, ask: file.load(ask(row)) }).collect();
    living.sort_unstable();
    living
}

/// Clear the rows of dead members; true when there were any.
pub(super) fn bury(file: &ConsumerFile, who: &Membership) -> Result<bool> {
    let mut buried = false;
    for row in 0..MEMBERS_MAX {
        let word = file.load(member(row));
        if word == 0 {
            continue;
        }
        if let Fate::Dead(_proof) = fate(who, word)? {
            buried |= file.replace(member(row), word, 0, true)?;
        }
    }
    Ok(buried)
}

/// Check that a member with this subscription may join, and return its row; the caller holds the
/// claim. `reads` differs between members with different subscriptions.
///
/// # Errors
/// `InvalidArgument` when a living member has another subscription, or there are too many.
pub(super) fn room(image: &Image, who: &Membership, (group, reads): (&str, u64)) -> Result<Room> {
    let (mut row, mut is_alone) = (None, true);
    // Words of another incarnation may name processes of this one, and none of them lives.
    let is_ours = image.incarnation() == who.incarnation();
    for index in 0..MEMBERS_MAX {
        let (word, its) = image.member(index);
        if !is_ours || !is_alive(who, word) {
            row = row.or(Some(index));
        } else if its != reads {
            let other = Who::of(word).map(|other| who.describe(other.process));
            let what = format!(
                "{} has consumer group {group:?} open with other topics or another pattern. All members \
                 of a group read the same topics; use another group to read others",
                other.unwrap_or_default()
            );
            return Err(Error::InvalidArgument { what });
        } else {
            is_alone = false;
        }
    }
    let row = row.ok_or_else(|| Error::InvalidArgument {
        what: format!("consumer group {group:?} has {MEMBERS_MAX} members; close one"),
    })?;
    Ok(Room { row, is_alone })
}

/// Enter a member in this row; the caller holds the claim. The member reads what the entries at these
/// `places` name.
pub(super) fn join(
    file: &ConsumerFile,
    me: u64,
    Room { row, is_alone }: Room,
    (reads, places): (u64, &[u64]),
) -> Result<u64> {
    if file.load(member(row)) != 0 {
        file.set(member(row), 0)?;
    }
    // Before the row: a living member's entries are always marked as read.
    note_read(file, places, is_alone)?;
    file.set(ask(row), 0)?;
    file.set(member(row) + 8, reads)?;
    file.set(member(row), me)?;
    file.tell_under_claim()?;
    Ok(row)
}

/// Note that members read these entries, and with `alone` that they read no others; the caller holds
/// the claim. Another member with the same pattern may know a topic already that this one does not.
pub(super) fn note_read(file: &ConsumerFile, places: &[u64], alone: bool) -> Result<()> {
    let places: BTreeSet<_> = places.iter().copied().collect();
    for index in 0..file.entries() {
        let (position, is_read) = (entry(index) + at::READ, places.contains(&index));
        if file.load(position) != u64::from(is_read) && (is_read || alone) {
            file.set(position, is_read.into())?;
        }
    }
    Ok(())
}
