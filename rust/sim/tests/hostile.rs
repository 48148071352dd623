//! Hostile bytes on a small log of each mode.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use falaj::internals::format::settings::WriteMode;
use falaj_sim::hostile::{changed_bytes, foreign_blocks};

/// Left out where `make test-proof` runs beside this, as in `make check`: that does more of each.
mod small_budget {
    use super::{WriteMode, changed_bytes};

    #[test]
    fn no_changed_byte_is_taken_for_what_was_appended() {
        assert!(changed_bytes(WriteMode::Mapped).unwrap() > 5_000);
    }
}

#[test]
fn blocks_of_another_log_are_not_taken_for_ours() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        assert_eq!(foreign_blocks(mode).unwrap(), 4);
    }
}
