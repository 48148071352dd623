//! Concurrent processes that share a queue or a group: a few of the rounds that must notice
//! canaries.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use falaj_sim::shared::{Shared, one};

/// How much was delivered in all.
fn rounds(what: Shared) -> u64 {
    (0..100)
        .map(|seed| one(what, seed).map_err(|wrong| format!("seed {seed}: {wrong}")).unwrap())
        .sum()
}

/// Left out where `make test-proof` runs beside this, as in `make check`: that does more of each.
mod small_budget {
    use super::{Shared, rounds};

    #[test]
    fn processes_that_share_a_queue_have_each_job_alone_and_lose_none() {
        assert!(rounds(Shared::Queue) > 400);
    }

    #[test]
    fn processes_that_share_a_consumer_have_each_partition_alone() {
        assert!(rounds(Shared::Consumer) > 400);
    }
}

/// The process that got a job first may learn of it last, after another process got it behind that.
#[test]
fn a_process_that_learns_late_of_its_jobs_has_not_overtaken_another() {
    one(Shared::Queue, 867_522_420).unwrap();
}
