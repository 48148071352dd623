//! How many partitions each member is to have, and what it waits for.
//!
//! Owns the rule. Each member applies it to what it sees, each at another moment. It decides what is
//! *wanted*; the owner's word says which member *has* a partition. The rule takes a partition from no
//! member. No member releases partitions of its share, nor any that no other member asks for.
//!
//! ```text
//! has less than its share  ─> takes what is free ─> nothing is free: asks
//! has more, others ask     ─> releases that many
//! has enough, some is free ─> has patience with members that lack it ─> withdraws their wishes, takes it
//! ```
//!
//! Patience is no lease: it ends a wish, never an ownership. It doubles each time that a withdrawn wish
//! is made again. So a member that does come gets its share, and one that does not holds up no other
//! for long. Races: `docs/PROTOCOL.md`, "Consumers".

use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// Patience with a member that lacks something and did not ask for it.
const BRIEF: Duration = Duration::from_millis(10);
/// How often patience doubles at most: to eleven minutes.
const DOUBLINGS: u64 = 16;

/// A member, as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) word: u64,
    /// Number of the row.
    pub(super) row: u64,
    /// How often it has asked for what it lacks; 0 while it does not ask.
    pub(super) ask: u64,
}

/// The actions of a member, as far as it sees.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AssignmentPlan {
    /// How many partitions it is to take.
    pub(super) lacks: usize,
    /// How many partitions it is to release.
    pub(super) gives: usize,
    /// Other members that lack partitions.
    pub(super) lacking: Vec<Row>,
}

struct Share {
    row: Row,
    has: usize,
    fair: usize,
}

impl AssignmentPlan {
    /// Make the plan of member `me` from the members, sorted by their words, and the words of all
    /// owners. `None` where `me` is not among the members.
    ///
    /// No two shares differ by more than one. The larger ones are for members that have as much
    /// already, then for members that ask.
    pub(super) fn of(me: u64, members: &[Row], owners: &[u64]) -> Option<Self> {
        let mine = members.binary_search_by_key(&me, |row| row.word).ok()?;
        let mut shares: Vec<_> =
            members.iter().map(|row| Share { row: *row, has: 0, fair: 0 }).collect();
        let mut free = 0;
        for owner in owners {
            match members.binary_search_by_key(owner, |row| row.word) {
                Ok(index) => shares[index].has += 1,
                Err(_) => free += 1,
            }
        }
        let (fair, larger) = (owners.len() / members.len(), owners.len() % members.len());
        let mut order: Vec<_> = (0..shares.len()).collect();
        order.sort_by_key(|index| {
            let Share { row, has, .. } = shares[*index];
            // All must agree which members keep more than the smaller share, since these do not ask.
            // Among the others each sees itself first, and one exchange decides.
            let is_here = has > fair || row.ask != 0 || row.word == me;
            (Reverse(has), !is_here, row.word)
        });
        for (rank, index) in order.into_iter().enumerate() {
            shares[index].fair = fair + usize::from(rank < larger);
        }
        let lacks = |share: &Share| share.fair.saturating_sub(share.has);
        let others = || shares.iter().filter(|share| share.row.word != me && lacks(share) > 0);
        let asked: usize = others().filter(|share| share.row.ask != 0).map(lacks).sum();
        let too_much = shares[mine].has.saturating_sub(shares[mine].fair);
        Some(Self {
            lacks: lacks(&shares[mine]),
            gives: too_much.min(asked.saturating_sub(free)),
            lacking: others().map(|share| share.row).collect(),
        })
    }

    /// Get how long free partitions wait for the members that lack them.
    fn patience(&self) -> Duration {
        let asks = self.lacking.iter().map(|row| row.ask).max().unwrap_or(0);
        BRIEF * (1 << asks.min(DOUBLINGS))
    }
}

/// State that a member keeps from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    asks: u64,
    /// Since when it leaves something to others, and for how long.
    patient: Option<(Instant, Duration)>,
}

impl Sharing {
    /// Decide whether a member that has its share may take free partitions beyond it; `left` says how
    /// many those are. Members that still lack partitions then ask again.
    pub(super) fn loses_patience(
        &mut self,
        plan: &AssignmentPlan,
        left: usize,
        now: Instant,
    ) -> bool {
        if left == 0 {
            self.patient = None;
            return false;
        }
        let since = self.patient.map_or(now, |(since, _)| since);
        let patience = plan.patience();
        let is_over = now.saturating_duration_since(since) >= patience;
        self.patient = (!is_over).then_some((since, patience));
        is_over
    }

    /// Compute what to write in the member's own row; `None` where the row says that already.
    pub(super) fn says(&mut self, lacks: bool, ask: u64) -> Option<u64> {
        match (lacks, ask) {
            (true, 0) => {
                self.asks += 1;
                Some(self.asks)
            }
            (true, _) => None,
            (false, _) => {
                self.asks = 0;
                (ask != 0).then_some(0)
            }
        }
    }

    /// Get how long it is still patient, if it is.
    pub(super) fn due(&self) -> Option<Duration> {
        self.patient.map(|(since, patience)| patience.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
mod tests;
