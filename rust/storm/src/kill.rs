//! The kill storm: rounds until there were enough kills and records.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use crate::options::Options;
use crate::plan::Plan;
use crate::random::Random;
use crate::round;
use crate::system::{catch_interrupts, interrupted};
use crate::totals::Totals;

/// The source of the worker in Python.
const WORKER: &str = include_str!("../../../tests/storm_worker.py");

/// Run rounds.
pub fn run(options: &Options) -> ExitCode {
    catch_interrupts();
    let seed = options.seed;
    let resumed = options.state.as_deref().and_then(|path| Totals::resume(path, seed));
    let mut totals = resumed.unwrap_or_default();
    println!("falaj-storm kill: seed {seed}, from round {}", totals.get("rounds"));
    let dir = options.dir.join(format!("falaj-storm-{}", std::process::id()));
    let began = Instant::now();
    let mut wrong = None;
    while wrong.is_none() && !is_done(options, &totals, began) && !interrupted() {
        let number = options.round.unwrap_or_else(|| totals.get("rounds"));
        let before = totals.clone();
        let result = one(options, number, &dir, &mut totals);
        if interrupted() {
            // Half a round does not count: it is run again.
            totals = before;
            break;
        }
        totals.add("rounds", 1);
        match result {
            Ok(()) => drop(std::fs::remove_dir_all(&dir)),
            Err(what) => wrong = Some((number, what)),
        }
        progress(&totals, began);
        keep(options, &totals);
        if options.round.is_some() {
            break;
        }
    }
    totals.add("seconds", began.elapsed().as_secs());
    let complete = is_reached(options, &totals);
    summarize(options, &totals, complete, wrong.as_ref().map(|(_, what)| what.as_str()));
    keep(options, &totals);
    if let Some((number, what)) = wrong {
        eprintln!("\nFOUND in round {number} of seed {seed}: {what}");
        eprintln!("  the store is kept: {}", dir.join("store").display());
        eprintln!("  look:  falaj verify {}", dir.join("store").display());
        eprintln!("  again: falaj-storm kill --seed {seed} --round {number}");
        return ExitCode::FAILURE;
    }
    let _ = std::fs::remove_dir_all(&dir);
    if interrupted() { ExitCode::from(130) } else { ExitCode::SUCCESS }
}

fn one(options: &Options, number: u64, dir: &Path, totals: &mut Totals) -> Result<(), String> {
    let failed = |e: std::io::Error| e.to_string();
    std::fs::create_dir_all(dir).map_err(failed)?;
    let python: Option<(PathBuf, PathBuf)> = match &options.python {
        None => None,
        Some(interpreter) => {
            let source = dir.join("worker.py");
            std::fs::write(&source, WORKER).map_err(failed)?;
            Some((interpreter.clone(), source))
        }
    };
    let seed = Random::new(options.seed, number).next() >> 12;
    let mut random = Random::new(seed, 9);
    let mut plan = Plan::draw(&mut random, &dir.join("store"), python.is_some());
    if options.events < plan.kills {
        // A short run has short rounds.
        plan.kills = options.events;
        plan.records = plan.records.min(options.records);
    }
    round::run(plan, seed, dir, python, totals)
}

fn is_reached(options: &Options, totals: &Totals) -> bool {
    totals.get("kills") >= options.events && totals.get("acknowledged") >= options.records
}

fn is_done(options: &Options, totals: &Totals, began: Instant) -> bool {
    let is_late = options.time.is_some_and(|time| began.elapsed() >= time);
    is_late || (options.round.is_none() && is_reached(options, totals))
}

fn progress(totals: &Totals, began: Instant) {
    let line = format!(
        "{:6.0} s  {} rounds  {} kills, {} at {} points  {:.3} M acknowledged  {:.3} M read",
        began.elapsed().as_secs_f64(),
        totals.get("rounds"),
        totals.get("kills"),
        totals.get("kills_at_points"),
        totals.points_met(),
        totals.get("acknowledged") as f64 / 1e6,
        totals.get("records_read") as f64 / 1e6,
    );
    let mut out = std::io::stdout();
    let end = if out.is_terminal() { '\r' } else { '\n' };
    let _ = write!(out, "{line}{end}").and_then(|()| out.flush());
}

fn keep(options: &Options, totals: &Totals) {
    if let Some(path) = &options.state {
        if let Err(error) = totals.keep(path, &[("seed", json!(options.seed))]) {
            eprintln!("cannot keep the state in {}: {error}", path.display());
        }
    }
}

fn summarize(options: &Options, totals: &Totals, complete: bool, wrong: Option<&str>) {
    let summary = totals.encode(&[
        ("what", json!("kill")),
        ("seed", json!(options.seed)),
        ("complete", json!(complete)),
        ("python", json!(options.python.is_some())),
        ("found", json!(wrong)),
    ]);
    println!("\n{summary}");
    if let Some(path) = &options.json {
        if let Err(error) = std::fs::write(path, format!("{summary:#}\n")) {
            eprintln!("cannot write {}: {error}", path.display());
        }
    }
}
