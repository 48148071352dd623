//! The storm: kills, stops and forks real processes that use falaj, and cuts their power.
//!
//! `falaj-storm kill` runs writers and readers, in Rust and Python. It ends them at random moments
//! and at named points of the protocols. Then it compares what is left with accounts that the
//! writers keep outside. `falaj-storm power` does so on file systems that are cut off from their
//! device. `docs/RELIABILITY.md` says what is checked, and how to reproduce a failure.
//!
//! The engine must have its fail points: `--cfg falaj_failpoints`, which the Makefile sets.
#![deny(unsafe_code)]
#![cfg_attr(not(falaj_failpoints), allow(dead_code, reason = "refused in `main`"))]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program: this is how it tells")]

mod acks;
mod check;
mod kill;
mod options;
mod payload;
mod plan;
mod power;
mod processes;
mod random;
mod round;
mod shared;
mod system;
mod task;
mod totals;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    if !cfg!(falaj_failpoints) {
        eprintln!("built without --cfg falaj_failpoints: run make proof-programs");
        return ExitCode::from(2);
    }
    let mut args = std::env::args().skip(1);
    let subcommand = args.next().unwrap_or_default();
    if subcommand == "worker" {
        let task = args.next().and_then(|text| task::Task::decode(&text));
        return task.map_or(ExitCode::from(2), |task| worker::run(&task));
    }
    let run = match subcommand.as_str() {
        "kill" => kill::run,
        "power" => power::run,
        _ => {
            eprintln!("{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match options::Options::read(args) {
        Ok(options) => run(&options),
        Err(wrong) => {
            eprintln!("{wrong}\n{}", options::USAGE);
            ExitCode::from(2)
        }
    }
}
