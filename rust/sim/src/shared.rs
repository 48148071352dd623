//! Rounds of concurrent processes that share something, each decided by a seed of its own.

use std::fmt;

use falaj::internals::format::settings::WriteMode;

use crate::{jobs, members};

/// The thing that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// The jobs of a queue.
    Queue,
    /// The partitions of a consumer group.
    Consumer,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Consumer => "consumer",
        })
    }
}

/// Run rounds until one fails; return how many were run, and the broken promise.
///
/// The message names the seed to start from to see it again.
pub fn rounds(what: Shared, seed: u64, count: u64) -> (u64, Option<String>) {
    for round in 0..count {
        let seed = seed.wrapping_add(round);
        if let Err(wrong) = one(what, seed) {
            return (round + 1, Some(format!("seed {seed}: {wrong}")));
        }
    }
    (count, None)
}

/// Run the round of a seed, which decides how the store is written too; return how much was
/// delivered in it.
///
/// # Errors
/// The promise that was broken.
pub fn one(what: Shared, seed: u64) -> Result<u64, String> {
    let mode = if seed % 2 == 0 { WriteMode::Mapped } else { WriteMode::Pwrite };
    match what {
        Shared::Queue => jobs::run(seed, mode),
        Shared::Consumer => members::run(seed, mode),
    }
}
