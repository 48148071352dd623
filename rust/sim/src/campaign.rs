//! A campaign of exploration: threads that work on units, progress lines, and a file to resume
//! from.
//!
//! Decides neither what is tried (`plan`) nor how it is judged (`look`). After each unit it writes
//! down which units of the round are done, and the counts. So an interrupted soak loses at most one
//! unit of each thread. Shards divide the units of each round among them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use falaj::internals::format::settings::WriteMode;
use serde_json::{Value, json};

use crate::crew::Crew;
use crate::explore::{Counts, Explorer, Violation, guarded};
use crate::history::History;
use crate::machine::Machine;
use crate::op::workload;
use crate::plan::{Kind, STATES_OF_A_ROUND, Unit, units};
use crate::pool;
use crate::random::{Random, mix};
use crate::seen::Seen;
use crate::site::name_of;

/// Time between two progress lines, and between two writes of the file to resume from.
const TURN: Duration = Duration::from_secs(2);

/// The order of a campaign.
#[derive(Clone, Debug)]
pub struct Order {
    /// Different states to visit. Only whole rounds are run, so a campaign may visit more.
    pub states: u64,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Number of this shard, and how many there are.
    pub shard: (usize, usize),
    /// Threads at work.
    pub threads: usize,
    /// Judgements to remember one by one, so that they are not made again.
    pub remember: usize,
    /// Whether to print progress lines on the standard error output.
    pub progress: bool,
    /// File to resume from, and to write progress to.
    pub resume: Option<PathBuf>,
    /// Longest time to run, whether the work is done or not.
    pub limit: Option<Duration>,
    /// Number of violations after which to stop.
    pub enough: usize,
    /// Filter of the units to run; all of them if there is none.
    pub filter: Option<fn(&Unit) -> bool>,
}

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The counts, those before interruptions included.
    pub counts: Counts,
    /// Different states; an estimate by the sketch where they were too many to remember.
    pub distinct: u64,
    /// Seconds of work.
    pub seconds: f64,
    /// Whole rounds.
    pub rounds: u64,
    /// True when the campaign reached its number of states.
    pub complete: bool,
    /// The promises that were broken.
    pub violations: Vec<Violation>,
}

/// The parts that change while a campaign runs.
#[derive(Default)]
struct Progress {
    counts: Counts,
    round: u64,
    done: BTreeSet<usize>,
    next: usize,
    before: f64,
    violations: Vec<Violation>,
    saved: Option<Instant>,
    told: Option<Instant>,
}

struct Campaign {
    order: Order,
    share: f64,
    units: Vec<(usize, Unit)>,
    seen: Seen,
    empty: [Machine; 2],
    began: Instant,
    /// True when some states are no longer remembered one by one.
    resumed: OnceLock<()>,
    /// True when a unit was done.
    worked: OnceLock<()>,
    progress: Mutex<Progress>,
}

/// Run a campaign.
///
/// # Errors
/// A mistake in the order, or in the file to resume from.
pub fn run(order: &Order) -> Result<Summary, String> {
    let campaign = Campaign::new(order)?;
    let mut complete = false;
    while !complete {
        std::thread::scope(|scope| {
            for _ in 0..order.threads {
                scope.spawn(|| {
                    let _keeping = pool::keep();
                    while campaign.work() {}
                });
            }
        });
        complete = campaign.end_round()?;
        if campaign.is_over() {
            break;
        }
    }
    campaign.save(true)?;
    Ok(campaign.summary(complete))
}

impl Campaign {
    fn new(order: &Order) -> Result<Self, String> {
        let (shard, shards) = order.shard;
        if shard >= shards {
            return Err(format!("there is no shard {shard} of {shards}: shards count from 0"));
        }
        let units = units().into_iter().enumerate();
        let units = units.filter(|(number, _)| number % shards == shard);
        let wanted = |unit: &Unit| order.filter.is_none_or(|filter| filter(unit));
        let units: Vec<_> = units.filter(|(_, unit)| wanted(unit)).collect();
        let empty = |mode| Machine::empty(mode).map_err(|e| format!("create a log: {e}"));
        let campaign = Self {
            order: order.clone(),
            share: (order.states as f64 / STATES_OF_A_ROUND as f64).min(1.0),
            units,
            seen: Seen::of(order.remember),
            empty: [empty(WriteMode::Mapped)?, empty(WriteMode::Pwrite)?],
            began: Instant::now(),
            resumed: OnceLock::new(),
            worked: OnceLock::new(),
            progress: Mutex::default(),
        };
        campaign.go_on()?;
        Ok(campaign)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many states this shard is to visit.
    fn goal(&self) -> u64 {
        self.order.states.div_ceil(self.order.shard.1 as u64)
    }

    /// True when the number of states is reached and the exhaustive part is done.
    fn is_reached(&self) -> bool {
        self.progress().round > 0 && self.distinct() >= self.goal()
    }

    fn is_over(&self) -> bool {
        let late = self.order.limit.is_some_and(|limit| self.began.elapsed() >= limit);
        late || self.progress().violations.len() >= self.order.enough
    }

    /// Do a unit that is not done yet; false when there is none left.
    fn work(&self) -> bool {
        let (place, round) = {
            let mut progress = self.progress();
            while progress.done.contains(&progress.next) {
                progress.next += 1;
            }
            progress.next += 1;
            (progress.next - 1, progress.round)
        };
        let Some((_, unit)) = self.units.get(place) else { return false };
        // However short the time is, each piece of a soak does at least one unit.
        if (self.is_over() && self.worked.get().is_some()) || self.is_reached() {
            return false;
        }
        let mut explorer = Explorer::new(&self.seen, mix(self.order.seed, round));
        let outcome = self.explore(unit, round, &mut explorer);
        let mut progress = self.progress();
        progress.counts.add(&explorer.counts);
        progress.done.insert(place);
        self.worked.get_or_init(|| ());
        let violation = outcome.err();
        let violated = violation.is_some();
        progress.violations.extend(violation.map(|violation| *violation));
        self.tell(&mut progress);
        drop(progress);
        // A piece of a soak may be killed at any moment, so a violation is written at once. If that
        // fails now, it is written or reported at the end.
        let _ = self.save(violated);
        true
    }

    fn explore(
        &self,
        unit: &Unit,
        round: u64,
        explorer: &mut Explorer<'_>,
    ) -> Result<(), Box<Violation>> {
        let effort = unit.effort(round, self.share);
        let empty = &self.empty[usize::from(unit.mode == WriteMode::Pwrite)];
        let seed = self.order.seed;
        let run = |explorer: &mut Explorer<'_>, made: Result<History, String>, name: &str| {
            let history = made.map_err(|what| {
                let site = format!("{}/{name}/0/all", name_of(unit.mode));
                Box::new(Violation { what, site })
            })?;
            explorer.explore(&history, effort)
        };
        match unit.kind {
            Kind::Short { len, first } => {
                let mut random = Random::new(mix(mix(seed, round), first as u64));
                let share = unit.run(round, self.share);
                for number in Unit::numbers(len, first).filter(|_| random.chance(share)) {
                    let ops = workload(len, number);
                    run(explorer, guarded(|| History::of(&ops, empty)), &History::name_of(&ops))?;
                }
            }
            Kind::Long(number) => {
                for ops in Unit::long(seed, round, number, self.share) {
                    run(explorer, guarded(|| History::of(&ops, empty)), &History::name_of(&ops))?;
                }
            }
            Kind::Crew(number) => {
                for seed in Unit::crews(seed, round, number, self.share) {
                    let crew = Crew::drawn(seed);
                    run(explorer, guarded(|| crew.run(empty)), &crew.name())?;
                }
            }
        }
        Ok(())
    }

    /// End a round after its last unit; true when the campaign is complete.
    fn end_round(&self) -> Result<bool, String> {
        let mut progress = self.progress();
        if progress.done.len() < self.units.len() {
            drop(progress);
            return Ok(self.is_reached());
        }
        progress.round += 1;
        progress.done.clear();
        progress.next = 0;
        drop(progress);
        self.save(true)?;
        // A small budget is one round: its crash points were thinned out to fit.
        Ok(self.share < 1.0 || self.distinct() >= self.goal())
    }

    fn distinct(&self) -> u64 {
        let counts = self.progress().counts;
        if self.resumed.get().is_none() && counts.judged() < self.order.remember as u64 / 2 {
            return counts.distinct;
        }
        self.seen.sketch().count()
    }

    fn tell(&self, progress: &mut Progress) {
        if !self.order.progress || progress.told.is_some_and(|told| told.elapsed() < TURN) {
            return;
        }
        progress.told = Some(Instant::now());
        let (counts, seconds) = (progress.counts, self.began.elapsed().as_secs_f64());
        let part = 100.0 * progress.done.len() as f64 / self.units.len() as f64;
        let line = format!(
            "explore: round {}, {part:.0} %; {} states judged, {} different; {} crash points, \
             {} deaths, {} violations; {seconds:.0} s",
            progress.round + 1,
            counts.judged(),
            counts.distinct,
            counts.points,
            counts.deaths,
            progress.violations.len(),
        );
        // Ignored: the line only informs.
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    /// The key of the work: a campaign resumes only from a file with the same key.
    fn key(&self) -> Value {
        let Order { states, seed, shard, .. } = &self.order;
        json!({ "states": states, "seed": seed, "shard": shard.0, "shards": shard.1,
                "version": env!("CARGO_PKG_VERSION") })
    }

    fn save(&self, now: bool) -> Result<(), String> {
        let Some(path) = &self.order.resume else { return Ok(()) };
        let text = {
            let mut progress = self.progress();
            if !now && progress.saved.is_some_and(|saved| saved.elapsed() < TURN) {
                return Ok(());
            }
            progress.saved = Some(Instant::now());
            let seconds = progress.before + self.began.elapsed().as_secs_f64();
            let done: Vec<_> = progress.done.iter().collect();
            json!({ "order": self.key(), "round": progress.round, "done": done,
                    "counts": written(&progress.counts), "seconds": seconds,
                    "violations": violations(&progress.violations),
                    "sketch": self.seen.sketch().written() })
            .to_string()
        };
        let temporary = path.with_extension("tmp");
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, path))
            .map_err(|e| format!("write {}: {e}", path.display()))
    }

    fn go_on(&self) -> Result<(), String> {
        let Some(path) = &self.order.resume else { return Ok(()) };
        let Ok(text) = std::fs::read_to_string(path) else { return Ok(()) };
        let wrong = |what: &str| format!("{}: {what}; remove it to begin again", path.display());
        let saved: Value = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
        if saved["order"] != self.key() {
            return Err(wrong("belongs to another order"));
        }
        self.resumed.get_or_init(|| ());
        let mut progress = self.progress();
        progress.round = saved["round"].as_u64().unwrap_or(0);
        let done = saved["done"].as_array().into_iter().flatten();
        progress.done = done.filter_map(|n| Some(n.as_u64()? as usize)).collect();
        progress.counts = read(&saved["counts"]);
        progress.before = saved["seconds"].as_f64().unwrap_or(0.0);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for violation in saved["violations"].as_array().into_iter().flatten() {
            let (what, site) = (text(&violation["what"]), text(&violation["site"]));
            progress.violations.push(Violation { what, site });
        }
        if !self.seen.sketch().take_in(saved["sketch"].as_str().unwrap_or_default()) {
            return Err(wrong("holds no sketch"));
        }
        Ok(())
    }

    fn summary(&self, complete: bool) -> Summary {
        let distinct = self.distinct();
        let progress = self.progress();
        Summary {
            counts: progress.counts,
            distinct,
            seconds: progress.before + self.began.elapsed().as_secs_f64(),
            rounds: progress.round,
            complete,
            violations: progress.violations.clone(),
        }
    }
}

impl Summary {
    /// The summary as JSON, for files.
    pub fn json(&self, order: &Order) -> Value {
        json!({
            "harness": "explore", "version": env!("CARGO_PKG_VERSION"), "seed": order.seed,
            "shard": format!("{}/{}", order.shard.0, order.shard.1), "rounds": self.rounds,
            "complete": self.complete, "distinct": self.distinct, "counts": written(&self.counts),
            "seconds": self.seconds, "violations": violations(&self.violations),
        })
    }
}

fn violations(all: &[Violation]) -> Value {
    all.iter().map(|v| json!({ "what": v.what, "site": v.site })).collect()
}

fn written(counts: &Counts) -> Value {
    json!({ "histories": counts.histories, "points": counts.points, "first": counts.first,
            "second": counts.second, "deaths": counts.deaths, "distinct": counts.distinct,
            "whole": counts.whole })
}

fn read(value: &Value) -> Counts {
    let number = |name: &str| value[name].as_u64().unwrap_or(0);
    Counts {
        histories: number("histories"),
        points: number("points"),
        first: number("first"),
        second: number("second"),
        deaths: number("deaths"),
        distinct: number("distinct"),
        whole: number("whole"),
    }
}
