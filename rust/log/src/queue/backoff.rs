//! Backoff: how long a job waits that failed.
//!
//! Owns no state. Delays grow with the attempts, and vary so that jobs that failed together do not come back together.

use std::time::Duration;

use crate::error::{Error, Result};

/// Delays before failed jobs are delivered again: doubled with each attempt up to the longest, each shortened by up to a
/// half at random.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use falaj::Backoff;
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// let delays = (1..8).map(|attempt| backoff.longest_delay(attempt).as_secs());
/// assert_eq!(delays.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Back off by so much at first, and never by more than the longest delay.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// Get the delay after so many attempts, before it is shortened.
    pub fn longest_delay(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// Get a delay after so many attempts: at least half of the longest one, by a random number.
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        let longest = self.longest_delay(attempt);
        let part = (random >> 32) as f64 / f64::from(u32::MAX);
        longest - (longest / 2).mul_f64(part)
    }

    /// Make sure that a job may wait so long.
    ///
    /// # Errors
    /// `InvalidArgument` for delays of more than 136 years, and for a longest delay below the first one.
    pub fn check(&self) -> Result<()> {
        if self.longest < self.first {
            let (first, longest) = (self.first, self.longest);
            return Err(Error::invalid(format!(
                "the longest delay of a backoff is at least its first, and {longest:?} is below {first:?}"
            )));
        }
        if self.longest.as_secs() < 1 << 32 {
            return Ok(());
        }
        let what =
            format!("a job cannot wait for {:?}; a delay has less than 2^32 seconds", self.longest);
        Err(Error::InvalidArgument { what })
    }
}

impl Default for Backoff {
    /// A second at first, and five minutes at most.
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(300))
    }
}
