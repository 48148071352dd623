//! The run for each push: every target for a minute, two at a time, and one report of the findings.
//!
//! Owns the list of targets and the report. Each target is this program again, with one thread and
//! its own watcher. Its output is kept until it ends, so that the lines of targets do not mix.

use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use crate::arguments::Arguments;
use crate::bytes::WHOLE;
use crate::bytes::decoders::TARGETS;

/// The targets, the longest first, so that none runs alone at the end.
fn targets(seconds: &str, share: &str, seed: Option<u64>) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let timed = ["--seconds", seconds, "--threads", "1"];
    let mut all: Vec<Vec<String>> =
        vec![words(&["faults", "--share", share, "--threads", "1"]), words(&["flips"])];
    all[1].extend(words(&timed));
    for name in TARGETS.iter().map(|target| target.name).chain(WHOLE) {
        all.push(words(&[&["bytes", "--only", name][..], &timed].concat()));
    }
    let seed = seed.map(|seed| ["--seed".to_owned(), seed.to_string()]);
    all.iter_mut().for_each(|target| target.extend(seed.iter().flatten().cloned()));
    all
}

/// The program `push`.
pub fn main(words: impl Iterator<Item = String>) -> Result<ExitCode, String> {
    let arguments = Arguments::read(words, &["seconds", "share", "jobs", "seed"])?;
    let seconds: f64 = arguments.get("seconds", 60.0)?;
    let share: u64 = arguments.get("share", 41)?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let jobs: usize = arguments.get("jobs", cores)?;
    // Each push runs the same cases, so the change has caused any new finding.
    let seed = arguments.maybe("seed")?;
    let targets = targets(&seconds.to_string(), &share.to_string(), seed);
    let (next, bad) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (telling, began) = (Mutex::new(()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, SeqCst)) {
                    let started = Instant::now();
                    let done = Command::new(std::env::current_exe().unwrap()).args(target).output();
                    let _one_at_a_time = telling.lock();
                    if !tell(target, done, started) {
                        bad.fetch_add(1, SeqCst);
                    }
                }
            });
        }
    });
    let (bad, all, took) = (bad.into_inner(), targets.len(), began.elapsed().as_secs());
    println!("push: {all} targets, {took} s, {bad} of them found something");
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Print the result of a target; false if it found something or did not end well.
fn tell(target: &[String], done: std::io::Result<Output>, started: Instant) -> bool {
    let took = started.elapsed().as_secs();
    let said = match done {
        Ok(done) => {
            print!("{}", String::from_utf8_lossy(&done.stdout));
            if done.status.success() {
                return true;
            }
            format!("{}\n{}", done.status, String::from_utf8_lossy(&done.stderr))
        }
        Err(error) => error.to_string(),
    };
    println!("FAILED after {took} s: falaj-hostile {}: {said}", target.join(" "));
    false
}
