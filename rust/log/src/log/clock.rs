//! The times of blocks.
//!
//! Owns the rule that times never fall. A block gets the time of its append. After a step of the
//! machine's clock backwards, it gets the time of the previous block, which is later. Invariant:
//! the time in nanoseconds is the time in microseconds from the segment's base.

/// Gives each block of a segment its time.
#[derive(Clone, Debug)]
pub struct BlockClock {
    /// The base of relative times, in microseconds since 1970.
    base_us: i64,
    /// The moment of the last call.
    asked_us: i64,
    /// The time of the last block, microseconds from the base.
    time: u64,
    /// The same, nanoseconds since 1970.
    ns: i64,
}

impl BlockClock {
    /// Make a clock for a segment with this time base, whose last block has this time.
    pub fn new(base_us: i64, time: u64) -> Self {
        let mut clock = Self { base_us, asked_us: i64::MIN, time, ns: 0 };
        clock.raise(time);
        clock
    }

    /// Return the time of a block that is appended at this moment: relative to the segment's base,
    /// and as a timestamp. The kernel's tick lasts for thousands of appends, so mostly the time is
    /// the previous one.
    #[inline(always)]
    pub fn at(&mut self, now_us: i64) -> (u64, i64) {
        if now_us != self.asked_us {
            self.ask(now_us);
        }
        (self.time, self.ns)
    }

    #[inline(never)]
    fn ask(&mut self, now_us: i64) {
        self.asked_us = now_us;
        self.raise(now_us.saturating_sub(self.base_us).max(0) as u64);
    }

    /// Take a block with this time into account.
    pub fn raise(&mut self, time: u64) {
        self.time = self.time.max(time);
        self.ns = self.base_us.saturating_add_unsigned(self.time).saturating_mul(1000);
    }

    /// Return the time of the last block, from the segment's base.
    #[cfg(test)]
    pub fn last(&self) -> u64 {
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_blocks_never_fall() {
        let mut clock = BlockClock::new(1_000, 5);
        assert_eq!(clock.at(900), (5, 1_005_000));
        assert_eq!(clock.at(1_005), (5, 1_005_000));
        assert_eq!([clock.at(1_009), clock.at(1_009)], [(9, 1_009_000); 2]);
        assert_eq!(clock.at(1_006), (9, 1_009_000));
        // Another process appended meanwhile, in the same tick of this one.
        clock.raise(20);
        assert_eq!([clock.at(1_006), clock.at(1_021)], [(20, 1_020_000), (21, 1_021_000)]);
        clock.raise(3);
        assert_eq!((clock.at(1_021), clock.last()), ((21, 1_021_000), 21));
    }

    #[test]
    fn times_beyond_all_that_is_counted_stay_at_the_highest() {
        let mut clock = BlockClock::new(i64::MAX - 1, 0);
        assert_eq!(clock.at(i64::MAX), (1, i64::MAX));
        assert_eq!(BlockClock::new(i64::MIN, 0).at(i64::MAX), (i64::MAX as u64, -1_000));
    }
}
