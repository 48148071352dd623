//! The harness as a program.
//!
//! ```text
//! falaj-hostile flips  [--all] [--variant mapped-closed|mapped-killed|pwrite-closed|pwrite-killed] [--list]
//! falaj-hostile bytes  [--only TARGET] [--only at-work] [--only DECODER --replay FILE]
//! falaj-hostile faults [--only SCENE] [--share N]
//! falaj-hostile push   [--seconds S] [--share N] [--jobs J] [--seed S]
//!          all but push: [--from N] [--to N] [--seconds S] [--threads T] [--seed S]
//!                           [--state FILE] [--json FILE]
//! ```
//!
//! Exit codes: 0 nothing found, 1 a finding, 2 misuse, 4 a case hangs, 5 the worker died. `--from N
//! --to N+1` with the same other options runs a case again, alone.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a program talks to people")]

use std::process::ExitCode;

use falaj_hostile::{bytes, campaign, faults, flips, push};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let what = words.next();
    // Each of its targets has a watcher process of its own.
    if what.as_deref() == Some("push") {
        return push::main(words).unwrap_or_else(|what| misused(&what));
    }
    if let Some(code) = campaign::supervise() {
        return code;
    }
    let done = match what.as_deref() {
        Some("flips") => flips::main(words),
        Some("bytes") => bytes::main(words),
        Some("faults") => faults::main(words),
        _ => Err("say what to do: flips, bytes, faults or push".into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => misused(&what),
    }
}

fn misused(what: &str) -> ExitCode {
    eprintln!("falaj-hostile: {what}");
    ExitCode::from(2)
}
