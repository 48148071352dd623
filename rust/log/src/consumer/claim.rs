//! Claiming partitions, and releasing them.
//!
//! Owns the order: a member claims a partition before it reads the cursor, and writes the cursor before
//! it releases the partition. Invariants: an owner's word changes by one exchange; only a living owner
//! itself gives its word up. A partition whose word names this member counts as its own, also while it
//! cannot read the cursor. [`super::assignment`] says how many it is to have. A member releases a
//! partition at its next [`GroupMember::refresh`], once the records that it delivered are committed.
//! Until then it reads no further. A caller that wants [announcements](GroupMember::announcement) gets
//! one before the partition is released.

use std::time::{Duration, Instant};

use super::assignment::{AssignmentPlan, Row};
use super::cursors;
use super::handle::{Announced, AssignedPartition, GroupMember, Held};
use super::members::{self, fate};
use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::consumer::{ask, at, entry};
use crate::lock::Fate;

/// How often a member that waits, or waits for a partition, checks whether the others live.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Partitions that a member got, or is about to lose; see [`GroupMember::announcement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// The member has these from now on.
    Assigned(Vec<(String, u32)>),
    /// The member still has these, delivers no more from them, and is about to release them.
    Revoked(Vec<(String, u32)>),
}

impl GroupMember {
    /// True when others joined, left, asked for a partition or released one since the last
    /// [`GroupMember::refresh`]. One load.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.seen != Some(self.file.changes())
    }

    /// Get the longest time until the next [`GroupMember::refresh`] is due, if nothing else happens.
    /// `None` where it has no other member to look after.
    pub fn due(&self) -> Option<Duration> {
        let looks = self.others > 0 || self.lanes.iter().any(|lane| lane.held.is_none());
        let left = |asked: Instant| ASK_EVERY.saturating_sub(asked.elapsed());
        let due = self.asked.map_or(Duration::ZERO, left);
        let looks = looks.then(|| self.sharing.due().map_or(due, |patience| patience.min(due)));
        self.subscription.due().into_iter().chain(looks).min()
    }

    /// Announce partitions from now on: none is released before [`GroupMember::announcement`] has
    /// announced that, so the caller can still commit.
    pub fn announce(&mut self) {
        self.announces = true;
    }

    /// Get the next announcement after a [`GroupMember::refresh`], if there is one. First come
    /// partitions that the next refresh releases, once delivered records are committed. Then come
    /// new partitions.
    pub fn announcement(&mut self) -> Option<Announcement> {
        if !self.announces {
            return None;
        }
        let revoked = self.announce_as(Announced::Revoked, |lane| {
            lane.closing && lane.announced == Announced::Assigned
        });
        if !revoked.is_empty() {
            // The next refresh is due at once: others wait for these.
            self.seen = None;
            return Some(Announcement::Revoked(revoked));
        }
        let assigned = self.announce_as(Announced::Assigned, |lane| {
            lane.held.is_some() && !lane.closing && lane.announced == Announced::Nothing
        });
        (!assigned.is_empty()).then_some(Announcement::Assigned(assigned))
    }

    /// Announce, before the member leaves, that it gives all its partitions up.
    pub fn farewell(&mut self) -> Option<Announcement> {
        let all =
            self.announce_as(Announced::Revoked, |lane| lane.announced == Announced::Assigned);
        (!all.is_empty()).then_some(Announcement::Revoked(all))
    }

    fn announce_as(
        &mut self,
        announced: Announced,
        is_meant: impl Fn(&AssignedPartition) -> bool,
    ) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        for lane in self.lanes.iter_mut().filter(|lane| is_meant(lane)) {
            lane.announced = announced;
            found.push((self.topics[lane.topic].name().to_owned(), lane.partition));
        }
        found
    }

    /// Claim free partitions: at once up to this member's share, and beyond it where no other member
    /// comes for them. Release settled partitions beyond the share that others ask for. True when this
    /// member has other partitions than before, or may deliver from others. Costs two loads where
    /// nothing changed. Where there are others, it checks every 20 ms whether they live.
    ///
    /// # Errors
    /// `HandleClosed` in a forked child, and once it left; `CorruptData`, `SystemCallFailed`,
    /// `LockTimeout`. Cursors that it has read stay, and the next call retries the others.
    pub fn refresh(&mut self) -> Result<bool> {
        self.check()?;
        self.sync_first()?;
        if self.subscription.due().is_some_and(|due| due.is_zero() || self.is_stale()) {
            self.find_topics()?;
        }
        if self.is_stale() || self.due() == Some(Duration::ZERO) {
            self.look()?;
        } else {
            self.let_go()?;
        }
        self.sync_first()?;
        Ok(std::mem::take(&mut self.changed))
    }

    fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= ASK_EVERY) {
            self.asked = Some(now);
            if members::bury(&self.file, &self.who)? {
                self.rouse();
            }
        }
        // Load the counter first: the next look sees changes after it. Load rows before owners: a
        // member that joins in between is not among the rows, and its process lives.
        self.seen = Some(self.file.changes());
        let rows = members::living(&self.file);
        let owners: Vec<_> = self.lanes.iter().map(|lane| self.owner(lane.entry)).collect();
        let plan = AssignmentPlan::of(self.me, &rows, &owners).ok_or_else(|| self.replaced())?;
        self.others = rows.len() - 1;
        let is_free = |owner: &u64| rows.binary_search_by_key(owner, |row| row.word).is_err();
        let free: Vec<_> = (0..owners.len()).filter(|lane| is_free(&owners[*lane])).collect();
        let taken = self.take_of(&free, &plan, now)?;
        self.say(taken < plan.lacks)?;
        self.choose(plan.gives);
        self.let_go()?;
        self.read_taken()
    }

    fn owner(&self, index: u64) -> u64 {
        self.file.load(entry(index) + at::OWNER)
    }

    #[cold]
    pub(super) fn replaced(&self) -> Error {
        Error::LockFileReplaced { path: self.file.path.clone() }
    }

    /// Wake the other members, so that they look.
    pub(super) fn rouse(&self) {
        self.topics.iter().for_each(|topic| topic.log().wake_all());
    }

    /// Claim as many free partitions as this member lacks, and the rest where no member came for them
    /// in time. Returns how many of those that it lacks it claimed.
    fn take_of(&mut self, free: &[usize], plan: &AssignmentPlan, now: Instant) -> Result<usize> {
        let (mut taken, mut left) = (0, Vec::new());
        for lane in free {
            if taken == plan.lacks {
                left.push(*lane);
            } else if self.exchange(*lane)? {
                taken += 1;
            }
        }
        if self.sharing.loses_patience(plan, left.len(), now) {
            for Row { row, ask: asked, .. } in &plan.lacking {
                if *asked != 0 {
                    self.file.replace(ask(*row), *asked, 0, false)?;
                }
            }
            for lane in left {
                self.exchange(lane)?;
            }
        }
        Ok(taken)
    }

    /// Replace the word 0, or the word of a dead member, by this member's.
    fn exchange(&mut self, number: usize) -> Result<bool> {
        let owner = entry(self.lanes[number].entry) + at::OWNER;
        let file = &self.file;
        let before = file.load(owner);
        let taken = match before {
            _ if planted(Canary::TwoOwners) => file.set(owner, self.me).map(|()| true)?,
            0 => file.replace(owner, 0, self.me, false)?,
            _ => match fate(&self.who, before)? {
                Fate::Alive => false,
                // Hold the slot of the dead member until the word has changed.
                Fate::Dead(_slot) => file.replace(owner, before, self.me, false)?,
            },
        };
        if taken {
            self.takes += 1;
            self.lanes[number].taken = self.takes;
        }
        Ok(taken)
    }

    /// Ask for lacking partitions, or say that none is lacking.
    fn say(&mut self, lacks: bool) -> Result<()> {
        let (file, row) = (&self.file, self.row()?);
        let said = file.load(ask(row));
        if let Some(ask_now) = self.sharing.says(lacks, said) {
            if file.replace(ask(row), said, ask_now, lacks)? && lacks {
                self.rouse();
            }
        }
        Ok(())
    }

    /// Choose the partitions to release: first those whose release is certain, and those that it could not read, then settled ones, then
    /// those already closing. Among equals, the last claimed comes first.
    fn choose(&mut self, gives: usize) {
        let leaves = |lane: &AssignedPartition| lane.gone || lane.announced == Announced::Revoked;
        if gives == 0 && !self.lanes.iter().any(|lane| lane.closing && !leaves(lane)) {
            return;
        }
        let mine =
            (0..self.lanes.len()).filter(|lane| self.owner(self.lanes[*lane].entry) == self.me);
        let mut order: Vec<_> = mine.collect();
        order.sort_by_key(|lane| {
            let lane = &self.lanes[*lane];
            let settled = lane.held.as_ref().map(Held::is_settled);
            let rank = match settled {
                _ if leaves(lane) => 0,
                None => 0,
                Some(true) => 1,
                Some(false) => 2 + u8::from(!lane.closing),
            };
            (rank, std::cmp::Reverse(lane.taken))
        });
        for (rank, number) in order.into_iter().enumerate() {
            let lane = &mut self.lanes[number];
            let closing = rank < gives || leaves(lane);
            self.changed |= lane.held.is_some() && lane.closing != closing;
            lane.closing = closing;
        }
    }

    /// Release the partitions that are closing and settled.
    pub(super) fn let_go(&mut self) -> Result<()> {
        let (mut gave, announces) = (false, self.announces);
        let may_go = |lane: &&mut AssignedPartition| {
            lane.closing && !(announces && lane.announced == Announced::Assigned)
        };
        for lane in self.lanes.iter_mut().filter(may_go) {
            if lane.held.as_ref().is_none_or(Held::is_settled) {
                let owner = entry(lane.entry) + at::OWNER;
                gave |= self.file.replace(owner, self.me, 0, true)?;
                self.changed |= lane.held.is_some();
                (lane.held, lane.closing) = (None, false);
                lane.announced = Announced::Nothing;
            }
        }
        if gave {
            self.rouse();
        }
        Ok(())
    }

    /// Read the cursor of each claimed partition; return the first error.
    fn read_taken(&mut self) -> Result<()> {
        let mut told = Ok(());
        for number in 0..self.lanes.len() {
            let lane = &self.lanes[number];
            if lane.held.is_none() && self.owner(lane.entry) == self.me {
                let read = self.read(number);
                self.changed |= self.lanes[number].held.is_some();
                told = told.and(read);
            }
        }
        told
    }

    fn read(&mut self, number: usize) -> Result<()> {
        let lane = &self.lanes[number];
        let cursor = self.noted(lane)?;
        if let Some(home) = self.home.clone() {
            return self.take_kept(number, &home, cursor);
        }
        let standing = cursors::standing(&self.topics[lane.topic], lane.partition, &cursor)?;
        // Reading reports this error, so that the caller can still seek.
        let next = standing.map(|position| position.offset).ok_or(());
        // For all that follows, an offset that a power failure took was never committed.
        let cursor = cursor.standing_at(standing.unwrap_or(cursor.committed));
        let (rewound, (kept, pending, finder)) = (next.is_err(), Default::default());
        self.lanes[number].held = Some(Held { cursor, kept, next, rewound, pending, finder });
        Ok(())
    }
}
