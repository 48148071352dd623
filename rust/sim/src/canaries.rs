//! The canaries: each planted bug is let loose, and something must notice.
//!
//! Owns who is to catch which. The catchers know nothing of canaries: the explorer and the hostile
//! bytes judge what they see, a test of the engine fails or does not. Each catcher must be content
//! while no canary is alive, or its word means nothing. A canary that survives fails the run.

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
/// Different states that must be without fault while no canary is alive.
const SOUND: u64 = 4_000;

/// Rounds of processes that share something, in each of which another seed decides: for one canary at
/// most, and while none is alive.
const SHARED: (u64, u64) = (4_000, 400);

/// Who catches a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Catcher {
    Explorer,
    /// The explorer's processes at once, alone: what needs two is found by nothing else.
    Crews,
    ChangedBytes,
    ForeignBlocks,
    /// Processes that share a queue.
    Jobs,
    /// Processes that share a consumer.
    Members,
    /// A test of crate `falaj`: its program, its name, and what it says when it notices. That it fails
    /// is not enough: a busy machine can do that too.
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
            "who took the slot of a dead one is taken for that",
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
        Canary::NoDoubt => Catcher::Test(
            "log",
            "doubt::what_damage_may_have_set_back_is_refused_until_repair",
            "what damage may have set back was believed",
        ),
        Canary::LostLeaseAcked
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

/// What came of one canary.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name, or what was to be content without one.
    pub canary: &'static str,
    /// Who was to catch it.
    pub catcher: String,
    /// What was noticed.
    pub noticed: Option<String>,
    /// How many states or logs were judged until then; 1 for a test.
    pub judged: u64,
    /// How long it took.
    pub seconds: f64,
    /// Whether that is as it should be.
    pub good: bool,
}

/// Let all canaries loose, or those of which the name holds a word, one after the other.
///
/// # Errors
/// What keeps a catcher from doing its work.
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
    // What was found must be found again by the name that it was given.
    let Violation { what, site } = violation;
    if replay::replay(site)?.is_none() {
        return Err(format!("{site}: {what}; but nothing is wrong when it is done again"));
    }
    plant(None);
    match replay::replay(site) {
        // Without the canary there may be no such place: the history is another.
        Ok(Some(what)) if !sound => Err(format!("{site}: {what}, with no canary alive: a bug")),
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

/// Run one test of the engine with a canary alive in it; all that it said. It is built where this program
/// was, a model beside it.
fn test(program: &str, name: &str, canary: &str, loom: bool) -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(&root).args(["test", "-q", "--locked", "-p", "falaj", "--test", program]);
    cargo.env("FALAJ_CANARY", canary).env("RUSTFLAGS", "--cfg falaj_canaries");
    if loom {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
        cargo.args(["--profile", "models"]).env("RUSTFLAGS", "--cfg loom --cfg falaj_canaries");
        cargo.env("CARGO_TARGET_DIR", Path::new(&target).join("loom"));
    }
    cargo.args(["--", "--exact", name]);
    let done = cargo.output().map_err(|e| format!("start cargo: {e}"))?;
    Ok((String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr)).into_owned())
}

/// For files.
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
