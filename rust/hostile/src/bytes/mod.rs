//! Structured garbage for every decoder, and for whole stores.
//!
//! | file | what it feeds |
//! |---|---|
//! | `decoders` | functions of `falaj::internals::format`, one after another |
//! | `make` | input for them: encoded well, then corrupted |
//! | `stores` | whole stores, harmed in one or several ways |
//! | `harm` | harm by bad disks, other programs and careless copies |
//! | `forged`, `state` | harm by an attacker who knows the format: logs, and the files beside them |
//! | `forge` | checksums made right again after the harm |
//!
//! A case is a number: it seeds the input, so a case can be replayed alone.

pub mod decoders;
pub mod forge;
mod forged;
mod harm;
pub mod make;
mod state;
pub mod stores;

use crate::arguments::Arguments;
use crate::campaign::{self, OPTIONS, Plan};
use crate::random::Random;
use stores::Where;

const SEED: u64 = 20_261_121;
/// The target that harms groups and queues while another process works with them.
const AT_WORK: &str = "at-work";
/// Targets whose input is a whole store.
pub const WHOLE: [&str; 2] = ["stores", AT_WORK];

/// The program `bytes`.
pub fn main(words: impl Iterator<Item = String>) -> Result<bool, String> {
    let arguments = Arguments::read(words, &[&OPTIONS[..], &["only", "replay"]].concat())?;
    let seed = arguments.get("seed", SEED)?;
    let only = arguments.text("only");
    if let Some(file) = arguments.path("replay") {
        let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let target = decoders::TARGETS.iter().find(|target| Some(target.name) == only);
        (target.ok_or("say which decoder: --only NAME")?.feed)(&bytes);
        return Ok(true);
    }
    let names = decoders::TARGETS.iter().map(|target| target.name).chain(WHOLE);
    let chosen: Vec<&str> = names.filter(|name| only.is_none_or(|only| only == *name)).collect();
    if chosen.is_empty() {
        return Err(format!("there is no target {}", only.unwrap_or_default()));
    }
    let mut sound = true;
    for name in chosen {
        let plan = Plan::of(format!("bytes-{name}"), &arguments, u64::MAX)?;
        let endless = plan.seconds.is_none() && plan.to == u64::MAX;
        let plan = Plan { seconds: if endless { Some(60.0) } else { plan.seconds }, ..plan };
        // One file for each target.
        let beside = |path: std::path::PathBuf| path.with_extension(format!("{name}.json"));
        let plan = Plan { state: plan.state.map(beside), json: plan.json.map(beside), ..plan };
        sound &= match decoders::TARGETS.iter().find(|target| target.name == name) {
            Some(target) => campaign::run(
                &plan,
                || (),
                |(), case| {
                    let mut random = Random::of_case(seed, case);
                    for _ in 0..decoders::BATCH {
                        (target.feed)(&(target.make)(&mut random));
                    }
                    Ok("fed".into())
                },
            )?,
            None if name == AT_WORK => stores::run(&plan, seed, Where::AtWork)?,
            None => stores::run(&plan, seed, Where::Left)?,
        };
    }
    Ok(sound)
}
