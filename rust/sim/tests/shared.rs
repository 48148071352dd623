//! Processes at once that share a queue or a consumer: some rounds of those that canaries are let loose on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use falaj_sim::shared::{Shared, one};

/// How much was handed out in all.
fn rounds(what: Shared) -> u64 {
    (0..100)
        .map(|seed| one(what, seed).map_err(|wrong| format!("seed {seed}: {wrong}")).unwrap())
        .sum()
}

/// Left out where `make test-proof` runs beside this, as `make check` has it: it does more of each.
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

/// Who was handed a job first is told so last, after another who was handed it behind that.
#[test]
fn who_is_told_late_what_it_was_handed_has_not_overtaken_anybody() {
    one(Shared::Queue, 867_522_420).unwrap();
}
