//! Which member is to have how many partitions, and what it waits for.
//!
//! Owns the rule, which each member applies to what it sees, each at another moment. It decides what is
//! *wanted*; who *has* a partition its owner's word says, and nobody is robbed for the rule's sake.
//! Nobody gives up anything that it has up to its share, nor anything that nobody asks for.
//!
//! ```text
//! has less than its share ─> takes what is free ─> nothing is free: asks
//! has more, somebody asks ─> lets go of that many
//! has enough, some is free ─> has patience with those who lack it ─> withdraws what they asked, takes it
//! ```
//!
//! Patience is no lease: it ends a wish, never an ownership. It doubles each time that a wish was
//! withdrawn and is made again, so who comes at all gets its share, and who does not holds up nobody for
//! long. Races: `docs/PROTOCOL.md`, "Consumers".

use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// Patience with a member that lacks something and did not ask for it.
const BRIEF: Duration = Duration::from_millis(10);
/// Doublings of it at most: eleven minutes.
const DOUBLINGS: u64 = 16;

/// A member, as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) word: u64,
    /// Which of the rows.
    pub(super) row: u64,
    /// How often it has asked for what it lacks; 0 while it does not ask.
    pub(super) ask: u64,
}

/// What a member is to do, as far as it sees.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AssignmentPlan {
    /// How many it is to take.
    pub(super) lacks: usize,
    /// How many it is to let go of.
    pub(super) gives: usize,
    /// Others that lack something.
    pub(super) lacking: Vec<Row>,
}

struct Share {
    row: Row,
    has: usize,
    fair: usize,
}

impl AssignmentPlan {
    /// Of members sorted by their words, and the words of all owners; `None` for who is not among them.
    ///
    /// No two shares differ by more than one. The larger ones are for those who have as much already,
    /// then for those who ask.
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
            // Who has more than the smaller share is to be the same for all: none of them asks. Of the
            // others each sees itself first, and one exchange decides.
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

    /// How long what is free waits for those who lack it.
    fn patience(&self) -> Duration {
        let asks = self.lacking.iter().map(|row| row.ask).max().unwrap_or(0);
        BRIEF * (1 << asks.min(DOUBLINGS))
    }
}

/// What a member remembers from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    asks: u64,
    /// Since when something is left to others, and for how long.
    patient: Option<(Instant, Duration)>,
}

impl Sharing {
    /// Whether what is free beyond the own share may be taken, by one that has its own; `left` says how
    /// much that is. Then those who lack it ask anew, if they are there.
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

    /// What is to be said in the own row, where that is something else than what stands there.
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

    /// How long it has patience yet, if it has to have any.
    pub(super) fn due(&self) -> Option<Duration> {
        self.patient.map(|(since, patience)| patience.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
mod tests;
