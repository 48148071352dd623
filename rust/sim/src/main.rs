//! The harness as a program: `explore` crash states, `share` work among processes, plant
//! `canaries`.
//!
//! ```text
//! falaj-sim explore [--states N] [--seed S] [--shard I/N] [--threads T] [--seconds S]
//!                   [--remember N] [--progress] [--json FILE] [--resume FILE]
//! falaj-sim explore --replay SITE
//! falaj-sim share [--rounds N] [--seed S]
//! falaj-sim canaries [--only WORD] [--seed S] [--threads T] [--json FILE]
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to people")]

use std::process::ExitCode;
use std::time::Duration;

use falaj_sim::campaign::{self, Order};
use falaj_sim::replay::replay;
use falaj_sim::seen::Seen;
use falaj_sim::shared::{self, Shared};

#[global_allocator]
static POOL: falaj_sim::pool::Pool = falaj_sim::pool::Pool;

/// Different states that `make check` visits.
const STATES: u64 = 2_000_000;
const SEED: u64 = 20_260_101;
/// Rounds of sharing; each takes some ten milliseconds.
const ROUNDS: u64 = 2_000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let done = match words.next().as_deref() {
        Some("explore") => explore(words),
        Some("share") => share(words),
        #[cfg(falaj_canaries)]
        Some("canaries") => canaries(words),
        #[cfg(not(falaj_canaries))]
        Some("canaries") => {
            Err("built without --cfg falaj_canaries: run make proof-canaries".into())
        }
        _ => Err("say what to do: falaj-sim explore, share, or canaries".into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("falaj-sim: {what}");
            ExitCode::from(2)
        }
    }
}

fn explore(mut words: impl Iterator<Item = String>) -> Result<bool, String> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut order = Order {
        states: STATES,
        seed: SEED,
        shard: (0, 1),
        threads,
        remember: Seen::LIMIT,
        progress: false,
        resume: None,
        limit: None,
        enough: 5,
        filter: None,
    };
    let mut json = None;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--states" => order.states = number(&value()?)?,
            "--seed" => order.seed = number(&value()?)?,
            "--threads" => order.threads = number(&value()?)?.max(1) as usize,
            "--remember" => order.remember = number(&value()?)?.max(1) as usize,
            "--seconds" => order.limit = Some(Duration::from_secs(number(&value()?)?)),
            "--shard" => {
                let (i, n) = value()?
                    .split_once('/')
                    .map(|(i, n)| (number(i), number(n)))
                    .ok_or("a shard is I/N, counted from 0")?;
                order.shard = (i? as usize, n? as usize);
            }
            "--progress" => order.progress = true,
            "--json" => json = Some(value()?),
            "--resume" => order.resume = Some(value()?.into()),
            "--replay" => return again(&value()?),
            other => return Err(format!("explore knows no {other}")),
        }
    }
    println!("explore: seed {}, {} states, shard {:?}", order.seed, order.states, order.shard);
    let summary = campaign::run(&order)?;
    if let Some(path) = json {
        let text = format!("{:#}\n", summary.json(&order));
        std::fs::write(&path, text).map_err(|e| format!("write {path}: {e}"))?;
    }
    let counts = summary.counts;
    println!(
        "explore: {} different states in {:.0} s; {} judged: {} after a power cut, {} after a second \
         one, {} after the death of all; {} histories, {} crash points; {}",
        summary.distinct,
        summary.seconds,
        counts.judged(),
        counts.first,
        counts.second,
        counts.deaths,
        counts.histories,
        counts.points,
        if summary.complete { "complete" } else { "interrupted" },
    );
    for violation in &summary.violations {
        eprintln!(
            "VIOLATION (seed {}): {}\n  again: falaj-sim explore --replay '{}'",
            order.seed, violation.what, violation.site
        );
    }
    Ok(summary.violations.is_empty())
}

fn share(mut words: impl Iterator<Item = String>) -> Result<bool, String> {
    let (mut rounds, mut seed) = (ROUNDS, SEED);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--rounds" => rounds = number(&value()?)?,
            "--seed" => seed = number(&value()?)?,
            other => return Err(format!("share knows no {other}")),
        }
    }
    // The dead run on after a round is judged, and may stumble over later changes. So panics are
    // silenced; a living process's panic is part of the violation.
    std::panic::set_hook(Box::new(|_| {}));
    let mut good = true;
    for what in [Shared::Queue, Shared::Consumer] {
        let (done, wrong) = shared::rounds(what, seed, rounds);
        println!("share: {done} rounds of a shared {what} from seed {seed}");
        if let Some(wrong) = wrong {
            eprintln!("VIOLATION ({what}): {wrong}");
            good = false;
        }
    }
    Ok(good)
}

#[cfg(falaj_canaries)]
fn canaries(mut words: impl Iterator<Item = String>) -> Result<bool, String> {
    let (mut only, mut seed, mut threads, mut json) = (String::new(), SEED, 2, None);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--only" => only = value()?,
            "--seed" => seed = number(&value()?)?,
            "--threads" => threads = number(&value()?)?.max(1) as usize,
            "--json" => json = Some(value()?),
            other => return Err(format!("canaries knows no {other}")),
        }
    }
    // The table says what each planted bug did.
    std::panic::set_hook(Box::new(|_| {}));
    println!(
        "{:<24} | {:<16} | {:>9} | {:>7} | noticed",
        "canary", "caught by", "judged", "seconds"
    );
    let outcomes = falaj_sim::canaries::run(&only, seed, threads, |o| {
        let noticed = o.noticed.as_deref().unwrap_or("nothing").lines().next().unwrap_or_default();
        let noticed: String = noticed.chars().take(150).collect();
        let bad = if o.good { "" } else { "NOT GOOD: " };
        println!(
            "{:<24} | {:<16} | {:>9} | {:>7.1} | {bad}{noticed}",
            o.canary, o.catcher, o.judged, o.seconds
        );
    })?;
    if let Some(path) = json {
        let text = format!("{:#}\n", falaj_sim::canaries::json(&outcomes));
        std::fs::write(&path, text).map_err(|e| format!("write {path}: {e}"))?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.good))
}

fn number(text: &str) -> Result<u64, String> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    plain.parse().map_err(|_| format!("{text:?} is no number"))
}

fn again(site: &str) -> Result<bool, String> {
    let broken = replay(site)?;
    println!("{site}: {}", broken.as_deref().unwrap_or("nothing is wrong"));
    Ok(broken.is_none())
}
