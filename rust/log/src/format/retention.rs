//! Retention limits of a topic, as `topic.json` stores them.
//!
//! Owns the values and their range. Without a limit, records stay until they are trimmed; that is
//! the default. `docs/PROTOCOL.md`, "Retention by limits", defines what each limit means;
//! `crate::store` enforces them.

/// Limits of what a topic keeps; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Most bytes of the segments that have records of the topic, with their indexes.
    pub bytes: Option<u64>,
    /// Milliseconds after the newest record of a segment, when the segment may be deleted.
    pub age_ms: Option<u64>,
    /// Most records of each partition.
    pub records: Option<u64>,
    /// True to keep what a registered consumer group still needs, whatever the limits say.
    pub waits: bool,
    /// True to keep the topic out of the store's limit.
    pub protected: bool,
}

/// Largest limit of any kind: the largest that every language can represent.
pub const MAX_LIMIT: u64 = i64::MAX as u64;

impl Retention {
    /// Return true when the topic has a limit of its own.
    pub fn is_limited(&self) -> bool {
        self.bytes.is_some() || self.age_ms.is_some() || self.records.is_some()
    }

    /// Return true when all limits are in range.
    pub fn is_within_limits(&self) -> bool {
        [self.bytes, self.age_ms, self.records].into_iter().flatten().all(is_limit)
    }
}

/// Return true for a number that can be a limit.
pub fn is_limit(limit: u64) -> bool {
    (1..=MAX_LIMIT).contains(&limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Make settings with one limit of each kind.
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
