//! Retention: which records of a topic may go by themselves, as `topic.json` has it.
//!
//! Owns the values and their limits. What is not limited is kept for ever, and that is what nobody
//! asked for. What a limit means is `docs/PROTOCOL.md`, "Retention by limits"; who acts on it is left
//! to `crate::store`.

/// Limits of what a topic keeps; `None` is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Bytes that the segments may take which hold something of it, with their indexes.
    pub bytes: Option<u64>,
    /// Milliseconds since the newest record of a segment, after which the segment may go.
    pub age_ms: Option<u64>,
    /// Records of each partition.
    pub records: Option<u64>,
    /// True when what a registered consumer still needs is kept, whatever the limits say.
    pub waits: bool,
    /// True when the store's limit takes nothing from it.
    pub protected: bool,
}

/// Largest limit of any kind: what every language can hold.
pub const MAX_LIMIT: u64 = i64::MAX as u64;

impl Retention {
    /// True when a limit of its own is set.
    pub fn is_limited(&self) -> bool {
        self.bytes.is_some() || self.age_ms.is_some() || self.records.is_some()
    }

    /// True when all limits are such as can be set.
    pub fn is_within_limits(&self) -> bool {
        [self.bytes, self.age_ms, self.records].into_iter().flatten().all(is_limit)
    }
}

/// True for a number that can be a limit.
pub fn is_limit(limit: u64) -> bool {
    (1..=MAX_LIMIT).contains(&limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one limit of each kind, and nothing else.
    fn alone(limit: u64) -> [Retention; 3] {
        let (none, limit) = (Retention::default(), Some(limit));
        [
            Retention { bytes: limit, ..none },
            Retention { age_ms: limit, ..none },
            Retention { records: limit, ..none },
        ]
    }

    #[test]
    fn a_limit_is_1_to_what_63_bits_hold() {
        const MOST: u64 = 0x7fff_ffff_ffff_ffff;
        for (limit, is_one) in [(0, false), (1, true), (2, true), (MOST, true), (MOST + 1, false)] {
            assert_eq!(is_limit(limit), is_one, "{limit}");
            for retention in alone(limit) {
                assert_eq!(retention.is_within_limits(), is_one, "{retention:?}");
            }
        }
        assert!(Retention::default().is_within_limits(), "no limit is beyond any");
        let one_of_three =
            Retention { bytes: Some(1), age_ms: Some(0), records: Some(1), ..alone(1)[0] };
        assert!(!one_of_three.is_within_limits());
    }

    #[test]
    fn any_of_three_limits_limits_a_topic_and_nothing_else_does() {
        for retention in alone(9) {
            assert!(retention.is_limited(), "{retention:?}");
        }
        let others = Retention { waits: true, protected: true, ..Retention::default() };
        assert!(!others.is_limited() && !Retention::default().is_limited());
    }
}
