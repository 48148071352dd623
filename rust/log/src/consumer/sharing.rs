//! Which member is to have which partition.
//!
//! Owns the rule, which everybody computes alike from the same rows: members and partitions are sorted,
//! and the j-th partition is for the member with rank j modulo their number. It decides what is
//! *wanted*; who *has* a partition its owner's word says, and nobody is robbed for the rule's sake.

/// Rank of a member among all, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    rank: usize,
    members: usize,
}

impl Rank {
    /// `None` for one that is not among them.
    pub(super) fn of(me: u64, sorted: &[u64]) -> Option<Self> {
        let rank = sorted.iter().position(|word| *word == me)?;
        Some(Self { rank, members: sorted.len() })
    }

    /// Whether the partition with this number, of all that are shared, is for this member.
    pub(super) fn wants(self, partition: usize) -> bool {
        partition % self.members == self.rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_for_exactly_one_member_and_none_has_two_more_than_another() {
        for members in 1..9 {
            let sorted: Vec<_> = (10..10 + members).collect();
            let ranks: Vec<_> = sorted.iter().map(|me| Rank::of(*me, &sorted).unwrap()).collect();
            for partitions in 0..20 {
                let has = |rank: &Rank| (0..partitions).filter(|p| rank.wants(*p)).count();
                let shares: Vec<_> = ranks.iter().map(has).collect();
                assert_eq!(shares.iter().sum::<usize>(), partitions);
                assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
            }
        }
        assert_eq!(Rank::of(9, &[1, 2]), None);
    }
}
