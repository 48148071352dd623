//! Real power cuts: file systems on loop devices are cut off while processes append.

mod device;
mod mount;
mod session;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};

use crate::options::Options;
use crate::random::Random;
use crate::system::{catch_interrupts, interrupted};
use crate::totals::Totals;
use mount::Image;
use session::Session;

/// Exit code for "this machine cannot do it", as of test programs that did not run.
const SKIPPED: u8 = 77;

/// Cut until there were enough.
pub fn run(options: &Options) -> ExitCode {
    if mount::is_inside() {
        catch_interrupts();
        // The parent may be killed; then everything is cleaned up all the same.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
        return inside(options);
    }
    if !rustix::process::geteuid().is_root() {
        return skip_all(options, "only root may mount");
    }
    // The process inside gets the same signals, and cleans up.
    catch_interrupts();
    match mount::enter() {
        Ok(code) => ExitCode::from(code as u8),
        Err(why) => skip_all(options, &why),
    }
}

fn skip_all(options: &Options, why: &str) -> ExitCode {
    let skipped = json!({ "all": why });
    println!("*** NOT RUN: power cuts: {why} ***");
    summarize(options, &Totals::default(), &skipped, None);
    ExitCode::from(SKIPPED)
}

fn inside(options: &Options) -> ExitCode {
    let seed = options.seed;
    let resumed = options.state.as_deref().and_then(|path| Totals::resume(path, seed));
    let mut totals = resumed.unwrap_or_default();
    println!("falaj-storm power: seed {seed}, from round {}", totals.get("rounds"));
    let dir = options.dir.join(format!("falaj-power-{}", std::process::id()));
    let mut skipped = serde_json::Map::new();
    let mut images = Vec::new();
    for (part, kind) in options.filesystems.iter().enumerate() {
        let device = options.device.as_deref().map(|at| (at, (part, options.filesystems.len())));
        match Image::make(kind, &dir, device) {
            Ok(image) => images.push(image),
            Err(why) => {
                println!("*** NOT RUN: power cuts on {kind}: {why} ***");
                skipped.insert(kind.clone(), json!(why));
            }
        }
    }
    let began = Instant::now();
    let wrong = cut_all(options, &mut images, &dir, &mut totals, began);
    totals.add("seconds", began.elapsed().as_secs());
    summarize(options, &totals, &Value::Object(skipped), wrong.as_ref().map(|(_, w)| w.as_str()));
    let none = images.is_empty();
    if let Some((number, what)) = wrong {
        eprintln!("\nFOUND in round {number} of seed {seed}: {what}");
        drop(images);
        eprintln!("  images and accounts are kept: {}", dir.display());
        eprintln!("  again: falaj-storm power --seed {seed} --round {number}");
        return ExitCode::FAILURE;
    }
    drop(images);
    let _ = std::fs::remove_dir_all(&dir);
    match (none, interrupted()) {
        (true, _) => ExitCode::from(SKIPPED),
        (_, true) => ExitCode::from(130),
        _ => ExitCode::SUCCESS,
    }
}

/// Run the cuts; the error is the round of a finding, and the finding.
fn cut_all(
    options: &Options,
    images: &mut [Image],
    dir: &Path,
    totals: &mut Totals,
    began: Instant,
) -> Option<(u64, String)> {
    if images.is_empty() {
        return None;
    }
    let is_late = || options.time.is_some_and(|time| began.elapsed() >= time);
    while totals.get("cuts") < options.events && !is_late() && !interrupted() {
        let number = options.round.unwrap_or_else(|| totals.get("rounds"));
        let seed = Random::new(options.seed, number).next() >> 12;
        let which = number as usize % images.len();
        let image = &mut images[which];
        let before = totals.clone();
        let done = one(image, dir, seed, totals);
        if interrupted() {
            // Half a round does not count, nor do ends of workers by the same signal.
            *totals = before;
            break;
        }
        if let Err(what) = done {
            return Some((number, what));
        }
        totals.add("rounds", 1);
        println!(
            "{:6.0} s  {} stores  {} cuts, {} of them in recovery  {:.3} M acknowledged  {} lost as \
             allowed",
            began.elapsed().as_secs_f64(),
            totals.get("rounds"),
            totals.get("cuts"),
            totals.get("cuts_in_recovery"),
            totals.get("acknowledged") as f64 / 1e6,
            totals.get("records_lost_as_allowed"),
        );
        if let Some(path) = &options.state {
            if let Err(error) = totals.keep(path, &[("seed", json!(options.seed))]) {
                eprintln!("cannot keep the state in {}: {error}", path.display());
            }
        }
        if options.round.is_some() {
            break;
        }
    }
    None
}

/// Take a store from its creation through a few cuts.
fn one(image: &mut Image, dir: &Path, seed: u64, totals: &mut Totals) -> Result<(), String> {
    let turns = Random::new(seed, 6).between(1, 5);
    let mut session = Session::begin(image, dir, seed, totals)?;
    for _ in 0..turns {
        if interrupted() {
            break;
        }
        session.turn()?;
    }
    Ok(())
}

fn summarize(options: &Options, totals: &Totals, skipped: &Value, wrong: Option<&str>) {
    let summary = totals.encode(&[
        ("what", json!("power")),
        ("seed", json!(options.seed)),
        ("complete", json!(totals.get("cuts") >= options.events)),
        ("skipped", skipped.clone()),
        ("found", json!(wrong)),
    ]);
    println!("\n{summary}");
    if let Some(path) = &options.json {
        if let Err(error) = std::fs::write(path, format!("{summary:#}\n")) {
            eprintln!("cannot write {}: {error}", path.display());
        }
    }
}
