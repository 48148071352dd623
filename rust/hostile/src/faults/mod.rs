//! Failing calls: the k-th storage call of a scene fails, for every k: once, always from then on,
//! or always for its kind.
//!
//! | file | owns |
//! |---|---|
//! | `scenes` | what a process does when its machine fails |
//! | `ledger` | the results of its calls: acknowledged, durable, failed |
//! | `after` | the checks afterwards: read, append again, recover, sweep |
//!
//! Each scene runs with each number of call, each way to fail and each duration of the failure.
//! `--share N` samples one in N, another set for another `--seed`. Any beginning of the order of
//! cases has something of everything. `--state` keeps what the numbers of cases depend on.

mod after;
mod ledger;
mod scenes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use falaj::internals::storage::Storage;
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::campaign::{self, OPTIONS, Outcome, Plan};
use crate::random::Random;
use scenes::{Scene, all};

/// Ways to fail.
const HOWS: [FailureKind; 9] = [
    FailureKind::Errno(libc::EIO),
    FailureKind::Errno(libc::ENOSPC),
    FailureKind::Errno(libc::EDQUOT),
    FailureKind::Errno(libc::EMFILE),
    FailureKind::Errno(libc::EINTR),
    FailureKind::Errno(libc::EACCES),
    FailureKind::Errno(libc::EROFS),
    FailureKind::HalfWritten(libc::ENOSPC),
    FailureKind::ShortRead,
];

const KINDS: [Call; 16] = [
    Call::Open,
    Call::Read,
    Call::Write,
    Call::Allocate,
    Call::Punch,
    Call::Rename,
    Call::Unlink,
    Call::List,
    Call::SyncData,
    Call::SyncAll,
    Call::SyncDir,
    Call::Map,
    Call::Lock,
    Call::Stat,
    Call::CreateDir,
    Call::Random,
];

/// A planned failure.
#[derive(Clone, Copy, Debug)]
struct Planned {
    how: FailureKind,
    nth: u64,
    only: Option<Call>,
    forever: bool,
}

impl Planned {
    fn fault(self) -> Fault {
        let fault = Fault::at(self.nth, self.how);
        let fault = self.only.map_or(fault, |call| fault.only(call));
        if self.forever { fault.forever() } else { fault }
    }
}

/// How many calls a scene makes, and how many of each kind.
struct Counted {
    total: u64,
    kinds: Vec<u64>,
}

impl Counted {
    fn of(scene: &Scene) -> Self {
        let machine = scene.machine();
        let faulty = FaultyStorage::over_memory(machine);
        let mut ledger = scene.ledger.clone();
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        (scene.act)(&storage, &mut ledger).unwrap_or_else(|e| panic!("{}: {e}", scene.name));
        drop(ledger);
        let kinds = KINDS.iter().map(|call| faulty.count(*call)).collect();
        Self { total: faulty.total(), kinds }
    }

    fn to_json(&self, name: &str) -> Value {
        json!({ "scene": name, "total": self.total, "kinds": self.kinds })
    }

    /// Read earlier counts, if they are of this scene.
    fn from_json(told: &Value, name: &str) -> Option<Self> {
        let kinds =
            told["kinds"].as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
        let is_its = told["scene"] == json!(name) && kinds.len() == KINDS.len();
        Some(Self { total: told["total"].as_u64()?, kinds }).filter(|_| is_its)
    }

    /// All plans for a scene.
    ///
    /// Its store's own threads make calls too, so a few more are tried than were counted.
    fn plans(&self) -> Vec<Planned> {
        let mut plans = Vec::new();
        for how in HOWS {
            for nth in 1..=self.total + 2 {
                for forever in [false, true] {
                    plans.push(Planned { how, nth, only: None, forever });
                }
            }
            for (call, count) in KINDS.into_iter().zip(&self.kinds) {
                for nth in 1..=*count {
                    plans.push(Planned { how, nth, only: Some(call), forever: true });
                }
            }
        }
        plans
    }
}

/// The order in which cases run: by steps that meet each of them once.
///
/// Wherever a campaign ends, it has run something of each scene, and of each way to fail.
#[derive(Clone, Copy, Debug)]
struct Order {
    from: u64,
    step: u64,
    count: u64,
}

impl Order {
    fn of(count: u64, seed: u64) -> Self {
        // By the golden section: of all steps its multiples lie most evenly.
        let is_coprime = |step: &u64| gcd(*step, count) == 1;
        let step = (count * 618_034 / 1_000_000..).find(is_coprime).unwrap_or(1);
        Self { from: Random::new(seed).below(count), step, count }
    }

    fn case(self, place: u64) -> usize {
        ((self.from + place * self.step) % self.count) as usize
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Count the calls of each scene.
///
/// A store's threads make some of them, so two runs count a few more or fewer. A resumed campaign
/// uses the counts that it began with; else its cases would be others.
fn counted(scenes: &[Scene], kept: Option<&Value>) -> Result<Vec<Counted>, String> {
    let told = kept.and_then(|kept| kept["scenes"].as_array());
    // A file with another order of cases is refused as another campaign's on resumption.
    let Some(told) = told else { return Ok(scenes.iter().map(Counted::of).collect()) };
    let told = Some(told).filter(|told| told.len() == scenes.len());
    let told = told.into_iter().flatten().zip(scenes);
    let told: Vec<_> = told.map_while(|(t, scene)| Counted::from_json(t, &scene.name)).collect();
    if told.len() == scenes.len() {
        return Ok(told);
    }
    Err("the state file is of other scenes".into())
}

/// The program `faults`.
pub fn main(words: impl Iterator<Item = String>) -> Result<bool, String> {
    let arguments = Arguments::read(words, &[&OPTIONS[..], &["only", "share"]].concat())?;
    let only = arguments.text("only");
    let share = arguments.get("share", 1u64)?.max(1);
    let mut scenes = all();
    scenes.retain(|scene| only.is_none_or(|only| scene.name.starts_with(only)));
    if scenes.is_empty() {
        return Err(format!("there is no scene {}", only.unwrap_or_default()));
    }
    let kept = Plan::kept(arguments.path("state").as_deref())?;
    let counted = counted(&scenes, kept.as_ref())?;
    let cases: Vec<(usize, Planned)> = counted
        .iter()
        .enumerate()
        .flat_map(|(i, counted)| counted.plans().into_iter().map(move |plan| (i, plan)))
        .collect();
    let seed = arguments.get("seed", 0)?;
    let order = Order::of(cases.len() as u64, seed);
    let mut plan = Plan::of("faults".into(), &arguments, order.count / share)?;
    let numbers = scenes.iter().zip(&counted).map(|(s, counted)| counted.to_json(&s.name));
    // A case opens a store a dozen times, and on a busy machine each store's threads keep its maps
    // for a while. No file here is forged to be long. Memory in use is limited as everywhere.
    plan.room *= 8;
    plan.basis = json!({ "seed": seed, "scenes": Vec::from_iter(numbers) });
    campaign::run(
        &plan,
        || (),
        |(), case| {
            let (scene, planned) = &cases[order.case(case)];
            // Calls of a store's own threads shift the numbers, so a panic is reported with its
            // plan.
            let caught = catch_unwind(AssertUnwindSafe(|| one(&scenes[*scene], *planned)));
            caught.unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                Err(format!("{}, {planned:?}: panicked: {said}", scenes[*scene].name))
            })
        },
    )
}

fn one(scene: &Scene, planned: Planned) -> Outcome {
    let told = |what: String| format!("{}, {planned:?}: {what}", scene.name);
    let machine = scene.machine();
    let faulty = FaultyStorage::over_memory(machine.process());
    faulty.plan(planned.fault());
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let mut ledger = scene.ledger.clone();
    let ended = (scene.act)(&storage, &mut ledger);
    let struck = faulty.failed() > 0;
    if let Err(error) = &ended {
        if !struck {
            return Err(told(format!("it fails without a fault: {error}")));
        }
        after::judge_error(error, planned.how).map_err(told)?;
    }
    let told = |what: String| told(format!("{ended:?}; then {what}"));
    after::read_by_others(&machine, &ledger).map_err(told)?;
    after::after_power_cut(&machine, &ledger).map_err(told)?;
    faulty.heal();
    after::goes_on(&machine, &storage, &mut ledger).map_err(told)?;
    // Records that a failed sync left in doubt are on disk by now, by a later sync.
    let told = |what: String| told(format!("all works again, and {what}"));
    after::after_power_cut(&machine, &ledger).map_err(told)?;
    let word = match (struck, ended.is_ok()) {
        (false, _) => "not struck",
        (true, true) => "overcome",
        (true, false) => "refused",
    };
    Ok(format!("{} {word}", scene.family()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Order;

    #[test]
    fn every_case_is_met_once_and_every_beginning_meets_all_parts() {
        for (count, seed) in [(1, 0), (2, 7), (8, 3), (282_736, 0), (277_632, 9)] {
            let order = Order::of(count, seed);
            let all: BTreeSet<_> = (0..count).map(|place| order.case(place)).collect();
            assert_eq!(all.len() as u64, count, "{order:?}");
            // A hundredth of the cases has some of each two-hundredth.
            let some: Vec<_> = (0..count / 100).map(|place| order.case(place)).collect();
            let meets = |part: u64| {
                let within = |case: &&usize| **case as u64 * 200 / count == part;
                some.iter().filter(within).count()
            };
            assert!(some.len() < 200 || (0..200).all(|part| meets(part) > 2), "{order:?}");
        }
    }

    #[test]
    fn another_seed_is_another_sample() {
        let sample = |seed| {
            let order = Order::of(280_602, seed);
            (0..6844).map(|place| order.case(place)).collect::<BTreeSet<_>>()
        };
        assert!(sample(1).intersection(&sample(2)).count() < 6844 / 2);
    }
}
