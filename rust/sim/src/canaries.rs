//! The canaries: the harness plants each known bug, and something must notice it.
//!
//! Owns which catcher must notice which canary. Catchers know nothing of canaries: the explorer and
//! the hostile bytes judge what they see, and a test of the engine passes or fails. With no canary
//! planted, each catcher must find nothing; else its findings mean nothing. A canary that no
//! catcher notices fails the run.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use falaj::internals::canary::{Canary, plant};
use falaj::internals::format::settings::WriteMode;
use serde_json::{Value, json};

use crate::campaign::{self, Order};
use crate::explore::Violation;
use crate::hostile::{changed_bytes, foreign_blocks};
use crate::noticed::noticed;
use crate::plan::{STATES_OF_A_ROUND, Unit};
use crate::replay;
use crate::seen::Seen;
use crate::shared::{self, Shared};

/// Longest time that the explorer gets for one canary.
const LIMIT: Duration = Duration::from_secs(240);
/// Different states in which the explorer must find no fault while no canary is planted.
const SOUND: u64 = 4_000;

/// Rounds of processes that share something, each with a seed of its own: the most for one canary,
/// and the number without a canary.
const SHARED: (u64, u64) = (4_000, 400);

/// The check that must notice a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Catcher {
    Explorer,
    /// Only the explorer's concurrent processes: a bug that needs two processes shows nowhere else.
    Crews,
    ChangedBytes,
    ForeignBlocks,
    /// Processes that share a queue.
    Jobs,
    /// Processes that share a consumer.
    Members,
    /// A test of crate `falaj`: its program or "lib", its name, and what it says when it notices.
    ///
    /// A failure is not enough: a busy machine can cause that too.
    Test(&'static str, &'static str, &'static str),
    /// A model, by its name, and what loom says.
    Loom(&'static str, &'static str),
}

fn catcher(canary: Canary) -> Catcher {
    match canary {
        Canary::CrcWithoutSalt => Catcher::ForeignBlocks,
        Canary::CrcWithoutCommitWord => Catcher::ChangedBytes,
        Canary::RelaxedCommitWord => {
            Catcher::Loom("publish::who_sees_the_commit_word_sees_the_bytes", "Causality violation")
        }
        Canary::LostWakeup => Catcher::Loom("follow::a_follower_is_never_left_asleep", "deadlock"),
        Canary::NoGeneration => Catcher::Test(
            "processes",
            "store_processes::a_killed_holder_is_dead_and_stays_dead_when_its_slot_is_taken_again",
            "the next process in a dead one's slot counts as that one",
        ),
        Canary::SlotKeptByChild => Catcher::Test(
            "processes",
            "store_processes::an_idle_child_of_a_killed_parent_does_not_keep_its_slot",
            "an idle child kept the slot of its parent",
        ),
        Canary::TwoControlPages => Catcher::Test(
            "log",
            "promises::a_control_page_that_was_replaced_makes_no_second_writer",
            "called `Result::unwrap_err()` on an `Ok` value",
        ),
        Canary::CursorInPlace => Catcher::Test(
            "store",
            "consumers::damage_to_one_cursor_costs_that_commit_and_to_both_is_an_error_that_a_reset_ends",
            "neither of the two cursors is whole",
        ),
        Canary::CursorPastDurable => Catcher::Test(
            "store",
            "consumers::crashes::after_a_power_cut_at_any_event_of_commits_no_record_is_left_out",
            "consumer group \"billing\" had read",
        ),
        Canary::UnfencedCursor => Catcher::Test(
            "store",
            "consumers::log_cursors::a_late_transaction_of_a_former_owner_is_refused_and_nothing_of_it_is_appended",
            "called `Result::unwrap_err()` on an `Ok` value",
        ),
        Canary::FinishedAppended => Catcher::Test(
            "store",
            "finished::no_record_comes_after_the_end_by_any_way_or_process_also_after_rolls_and_restarts",
            "a record came after the end",
        ),
        Canary::ExpiredInUse => Catcher::Test(
            "store",
            "expiring::producers_that_expire_are_known_for_a_day_after_each_use_as_a_plain_list_says",
            "was forgotten too early",
        ),
        Canary::NoDoubt => Catcher::Test(
            "log",
            "doubt::what_damage_may_have_set_back_is_refused_until_repair",
            "what damage may have set back was believed",
        ),
        Canary::TicketWithoutMark => Catcher::Test(
            "lib",
            "queue::tests::reserved::a_ticket_settles_no_record_that_took_the_place_of_a_lost_one",
            "a ticket counts for the record that took the place of its own",
        ),
        Canary::MetadataBeforeOffset => Catcher::Test(
            "store",
            "consumers::metadata::after_a_power_cut_at_any_event_of_commits_an_offset_has_its_own_metadata",
            "an offset has another one's metadata",
        ),
        Canary::PropertiesOneByOne => Catcher::Test(
            "store",
            "properties::a_power_cut_leaves_all_properties_of_a_change_or_none_and_all_once_it_returned",
            "a part of a change was kept",
        ),
        // The explorer finds it too, after a hundred thousand states or two.
        Canary::UnlinkBeforeSwap => Catcher::Test(
            "store",
            "compaction::crashes::a_power_cut_that_undoes_the_swap_finds_all_that_it_replaces_whatever_names_reached_the_medium",
            "the segment is missing",
        ),
        Canary::ReservationReclaimed
        | Canary::ReservationUnsuspected
        | Canary::LostLeaseAcked
        | Canary::HolderRobbed
        | Canary::ExtensionForgotten
        | Canary::CountedAtTake
        | Canary::FloorPastJob
        | Canary::FloorPastDurable => Catcher::Jobs,
        Canary::TwoOwners => Catcher::Members,
        Canary::LockStolen | Canary::ExpectBeforeLock => Catcher::Crews,
        _ => Catcher::Explorer,
    }
}

impl Catcher {
    fn name(self) -> String {
        match self {
            Self::Explorer => "explorer".into(),
            Self::Crews => "explorer (crews)".into(),
            Self::ChangedBytes => "changed bytes".into(),
            Self::ForeignBlocks => "foreign blocks".into(),
            Self::Jobs => "shared queue".into(),
            Self::Members => "shared consumer".into(),
            Self::Test(program, name, _) => format!("{program}::{name}"),
            Self::Loom(name, _) => format!("loom {name}"),
        }
    }
}

/// The result of one canary.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the canary, or of the check that must pass without one.
    pub canary: &'static str,
    /// Name of the catcher.
    pub catcher: String,
    /// The finding.
    pub noticed: Option<String>,
    /// How many states or logs were judged before that; 1 for a test.
    pub judged: u64,
    /// How long it took.
    pub seconds: f64,
    /// Whether this is the expected result.
    pub good: bool,
}

/// Plant each canary whose name contains a word, one after the other.
///
/// # Errors
/// A catcher that cannot run.
pub fn run(
    word: &str,
    seed: u64,
    threads: usize,
    tell: impl Fn(&Outcome),
) -> Result<Vec<Outcome>, String> {
    let chosen: Vec<_> = Canary::ALL.into_iter().filter(|(_, name)| name.contains(word)).collect();
    let mut outcomes = Vec::new();
    let mut catchers: Vec<_> = chosen.iter().map(|(canary, _)| catcher(*canary)).collect();
    catchers.dedup();
    catchers.sort_by_key(|catcher| catcher.name());
    catchers.dedup();
    let mut note = |outcome: Outcome| {
        tell(&outcome);
        outcomes.push(outcome);
    };
    for catcher in catchers {
        plant(None);
        note(attempt(catcher, "", seed, threads)?);
    }
    for (canary, name) in chosen {
        plant(Some(canary));
        let outcome = attempt(catcher(canary), name, seed, threads);
        plant(None);
        note(outcome?);
    }
    Ok(outcomes)
}

fn attempt(
    catcher: Catcher,
    canary: &'static str,
    seed: u64,
    threads: usize,
) -> Result<Outcome, String> {
    let began = Instant::now();
    let sound = canary.is_empty();
    let rounds = if sound { SHARED.1 } else { SHARED.0 };
    let (judged, noticed) = match catcher {
        Catcher::Explorer => explore(sound, seed, threads, None)?,
        Catcher::Crews => explore(sound, seed, threads, Some(Unit::is_crew))?,
        Catcher::ChangedBytes => judge(changed_bytes),
        Catcher::ForeignBlocks => judge(foreign_blocks),
        Catcher::Jobs => shared::rounds(Shared::Queue, seed, rounds),
        Catcher::Members => shared::rounds(Shared::Consumer, seed, rounds),
        Catcher::Test(program, name, says) => {
            (1, noticed(says, &test(program, name, canary, false)?)?)
        }
        Catcher::Loom(name, says) => (1, noticed(says, &test("loom", name, canary, true)?)?),
    };
    let (seconds, good) = (began.elapsed().as_secs_f64(), noticed.is_none() == sound);
    let (catcher, canary) = (catcher.name(), if sound { "none" } else { canary });
    Ok(Outcome { canary, catcher, noticed, judged, seconds, good })
}

fn explore(
    sound: bool,
    seed: u64,
    threads: usize,
    filter: Option<fn(&Unit) -> bool>,
) -> Result<(u64, Option<String>), String> {
    let order = Order {
        states: if sound { SOUND } else { STATES_OF_A_ROUND },
        seed,
        shard: (0, 1),
        threads,
        remember: Seen::LIMIT,
        progress: false,
        resume: None,
        limit: Some(LIMIT),
        enough: 1,
        filter,
    };
    let summary = campaign::run(&order)?;
    let Some(violation) = summary.violations.first() else {
        return Ok((summary.counts.judged(), None));
    };
    // A finding must show again when its site is replayed.
    let Violation { what, site } = violation;
    if replay::replay(site)?.is_none() {
        return Err(format!("{site}: {what}; but a replay of it finds nothing wrong"));
    }
    plant(None);
    match replay::replay(site) {
        // Without the canary the site may not exist, since the history differs.
        Ok(Some(what)) if !sound => Err(format!("{site}: {what}, without a canary: a bug")),
        _ => Ok((summary.counts.judged(), Some(format!("{site}: {what}")))),
    }
}

fn judge(judge: impl Fn(WriteMode) -> Result<u64, String>) -> (u64, Option<String>) {
    let mut judged = 0;
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        match judge(mode) {
            Ok(count) => judged += count,
            Err(what) => return (judged + 1, Some(what)),
        }
    }
    (judged, None)
}

/// Run one test of the engine with a canary planted in it, and return all its output.
///
/// The test is built in this program's target directory, a model beside it.
fn test(program: &str, name: &str, canary: &str, loom: bool) -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(&root).args(["test", "-q", "--locked", "-p", "falaj"]);
    match program {
        "lib" => cargo.arg("--lib"),
        program => cargo.args(["--test", program]),
    };
    cargo.env("FALAJ_CANARY", canary).env("RUSTFLAGS", "--cfg falaj_canaries");
    if !canary.is_empty() {
        // A mistake that shows at a few points must not hide between them. Without one,
        // `make proof-crashes` visits them all.
        cargo.env("FALAJ_CRASHES", "all");
    }
    if loom {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
        cargo.args(["--profile", "models"]).env("RUSTFLAGS", "--cfg loom --cfg falaj_canaries");
        cargo.env("CARGO_TARGET_DIR", Path::new(&target).join("loom"));
    }
    cargo.args(["--", "--exact", name]);
    let done = cargo.output().map_err(|e| format!("start cargo: {e}"))?;
    Ok((String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr)).into_owned())
}

/// The outcomes as JSON, for files.
pub fn json(outcomes: &[Outcome]) -> Value {
    let outcomes: Value = outcomes
        .iter()
        .map(|o| {
            json!({ "canary": o.canary, "catcher": o.catcher, "noticed": o.noticed,
                    "judged": o.judged, "seconds": o.seconds, "good": o.good })
        })
        .collect();
    json!({ "harness": "canaries", "version": env!("CARGO_PKG_VERSION"), "outcomes": outcomes })
}
