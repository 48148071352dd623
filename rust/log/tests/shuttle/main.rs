//! Long random schedules of the lock-free modules, with more threads and steps than loom can
//! explore.
//!
//! The functions under test are the shipped ones, and the small log that loom explores
//! (`tests/loom/log`). Shuttle gives each step to a random thread. It has one order of all steps,
//! so only loom finds what weaker orderings show. Half of the schedules are uniformly random. The
//! other half give threads priorities that change a few times; these find bugs that need one thread
//! to pause for long.
//!
//! Run `make test-shuttle`. A failure prints its seed. `FALAJ_SHUTTLE_SEED=… make test-shuttle`
//! runs the same schedules again; `FALAJ_SHUTTLE_SCHEDULES=…` is the number for each model.
#![cfg(shuttle)]

#[allow(dead_code, reason = "parts of it are used by loom only")]
#[path = "../loom/log/mod.rs"]
mod log;
mod long;
#[allow(dead_code, reason = "parts of it are used by loom only")]
#[path = "../loom/processes.rs"]
mod processes;
#[allow(dead_code, reason = "parts of it are used by loom only")]
#[path = "../loom/word.rs"]
mod word;
mod world;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// The seed of the schedules unless another is given.
const SEED: u64 = 20_251_121;
/// How many schedules a model gets in `make test`.
const SCHEDULES: usize = 1_000;
/// How often priorities change.
const CHANGES: usize = 4;

fn asked(name: &str, otherwise: u64) -> u64 {
    let told = std::env::var(name).ok().filter(|told| !told.is_empty());
    told.map_or(otherwise, |told| told.replace('_', "").parse().expect(name))
}

/// Run as many schedules as the environment says.
fn long(body: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = asked("FALAJ_SHUTTLE_SCHEDULES", SCHEDULES as u64) as usize;
    let seed = asked("FALAJ_SHUTTLE_SEED", SEED);
    println!("{schedules} schedules, FALAJ_SHUTTLE_SEED={seed}");

    run(RandomScheduler::new_from_seed(seed, schedules.div_ceil(2)), body.clone());
    run(PctScheduler::new_from_seed(seed, CHANGES, schedules / 2), body);
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true; // of weaker orderings: see above
    Runner::new(scheduler, config).run(body);
}
