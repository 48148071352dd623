//! The harness as a program: explores crash states.
//!
//! ```text
//! falaj-sim explore [--states N] [--seed S] [--shard I/N] [--threads T] [--seconds S]
//!                   [--progress] [--json FILE] [--resume FILE]
//! falaj-sim explore --replay SITE
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to people")]

use std::process::ExitCode;
use std::time::Duration;

use falaj_sim::campaign::{self, Order};
use falaj_sim::crew::Crew;
use falaj_sim::explore::replay;
use falaj_sim::history::History;
use falaj_sim::machine::Machine;
use falaj_sim::op::Op;
use falaj_sim::site::Site;

/// What a push tries.
const STATES: u64 = 2_000_000;
const SEED: u64 = 20_260_101;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let done = match words.next().as_deref() {
        Some("explore") => explore(words),
        _ => Err("say what to do: falaj-sim explore".into()),
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
        progress: false,
        resume: None,
        limit: None,
    };
    let mut json = None;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--states" => order.states = number(&value()?)?,
            "--seed" => order.seed = number(&value()?)?,
            "--threads" => order.threads = number(&value()?)?.max(1) as usize,
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
            "--replay" => return replay_site(&value()?),
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

fn number(text: &str) -> Result<u64, String> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    plain.parse().map_err(|_| format!("{text:?} is no number"))
}

fn replay_site(text: &str) -> Result<bool, String> {
    let site: Site = text.parse()?;
    let (mode, name) = site.history();
    let empty = Machine::empty(mode).map_err(|e| e.to_string())?;
    let made = match Crew::named(name) {
        Some(crew) => crew.run(&empty),
        None => {
            let ops: Result<Vec<Op>, String> = name.split(',').map(str::parse).collect();
            History::of(&ops?, &empty)
        }
    };
    match made.and_then(|history| replay(&history, &site)) {
        Ok(()) => {
            println!("{text}: nothing is wrong");
            Ok(true)
        }
        Err(what) => {
            println!("{text}: {what}");
            Ok(false)
        }
    }
}
