//! Rounds of processes at once that share something: each decided by a seed of its own.

use std::fmt;

use falaj::internals::format::settings::WriteMode;

use crate::{jobs, members};

/// What they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// The jobs of a queue.
    Queue,
    /// The partitions of a consumer.
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

/// Run so many rounds, or up to the first that ends badly: how many were run, and what was promised and is
/// not so. The seed that it names is the one to begin with to see it again.
pub fn rounds(what: Shared, seed: u64, count: u64) -> (u64, Option<String>) {
    for round in 0..count {
        let seed = seed.wrapping_add(round);
        if let Err(wrong) = one(what, seed) {
            return (round + 1, Some(format!("seed {seed}: {wrong}")));
        }
    }
    (count, None)
}

/// The round of a seed, which decides how the store is written, too; how much was handed out in it.
///
/// # Errors
/// What was promised and is not so.
pub fn one(what: Shared, seed: u64) -> Result<u64, String> {
    let mode = if seed % 2 == 0 { WriteMode::Mapped } else { WriteMode::Pwrite };
    match what {
        Shared::Queue => jobs::run(seed, mode),
        Shared::Consumer => members::run(seed, mode),
    }
}
