//! Whole stores, harmed in one or several ways, half of the time with forged checksums.
//!
//! | harm | what must hold |
//! |---|---|
//! | one, honest | every answer is right, or an error |
//! | several, honest | every record that is returned is the right one |
//! | forged | no panic, no hang, no unbounded memory, no error without a message |
//!
//! One case in four harms only the files beside the logs, those of groups and queues. There every
//! record must be right, whatever was harmed. In a target of its own, another process works with
//! these files meanwhile, so their derived parts are believed.

use std::sync::Arc;

use falaj::internals::log::Reading;
use falaj::internals::storage::Storage;
use falaj_twin::memory::MemoryStorage;

use super::harm::{Harm, harm, some_file};
use super::state::Neighbour;
use super::{forged, state};
use crate::answers::{Asking, Trust, Truths, ask_reader, ask_verify, truths};
use crate::beside::{KEPT, QUEUE, READER};
use crate::campaign::{self, Outcome, Plan};
use crate::example::{Example, Size, VARIANTS, is_beside};
use crate::random::Random;
use crate::writing::{mend, write_on};

const EXAMPLES: u64 = 20_261_122;

/// The place of the harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// A store that no process has open.
    Left,
    /// Groups and queues that another process works with.
    AtWork,
}

pub fn run(plan: &Plan, seed: u64, harmed: Where) -> Result<bool, String> {
    let examples: Vec<_> = VARIANTS
        .iter()
        .map(|variant| {
            let example = Example::make(*variant, Size::Small, EXAMPLES);
            let truths = truths(&example);
            (example, truths)
        })
        .collect();
    let one = |case| {
        let random = &mut Random::of_case(seed, case);
        match harmed {
            Where::AtWork => beside(&examples, true, random),
            // The other cases stay as they were before these existed, since seeds of findings are
            // kept.
            Where::Left if case % 4 == 2 => beside(&examples, false, random),
            Where::Left => anywhere(&examples, random),
        }
    };
    campaign::run(plan, || (), |(), case| one(case))
}

fn anywhere(examples: &[(Example, Truths)], random: &mut Random) -> Outcome {
    let (example, truths) = random.pick(examples);
    let disk: Arc<dyn Storage> = Arc::new(example.disk.restart());
    let forged = random.once_in(2);
    let count = if random.once_in(2) { 1 } else { 1 + random.below(3) };
    let mut harms = Vec::new();
    for _ in 0..count {
        harms.push(if forged {
            forged::forge_one(&*disk, example, random)
        } else {
            let path = some_file(example, random);
            harm(&*disk, example, random, path)
        });
    }
    // A log that looks older or shorter counts as one: falaj cannot know better.
    let single = count == 1 && !harms[0].is_stale();
    let trust = match (forged, single) {
        (true, _) => Trust::Nothing,
        (false, true) => Trust::All,
        (false, false) => Trust::Values,
    };
    let topics: Vec<&str> = example.logs.keys().map(String::as_str).collect();
    let asking = Asking {
        truths,
        topics: &topics,
        reading: *random.pick(&[Reading::Map, Reading::Map, Reading::Pread]),
        stride: 29,
        phase: random.next(),
        may_be_cut: example.variant.killed,
        trust,
        mended: false,
        beside: Some((&example.beside, trust.min(trust_beside(&harms)))),
    };
    let asked = ask(&disk, example, &asking, random);
    told(example, word(trust), &harms, asked)
}

/// How strictly to judge the files beside the logs, after this harm.
fn trust_beside(harms: &[Harm]) -> Trust {
    let of_one = |harm: &Harm| match harm.kind {
        _ if !is_beside(&harm.file) => Trust::All,
        "nothing forged in" | "empty" | "flip" => Trust::All,
        "forged" => Trust::Nothing,
        // Jobs whose state is not known count as not done, and all are delivered.
        _ if harm.file.ends_with(QUEUE.0) => Trust::Behind,
        "noise" | "longer" | "foreign" => Trust::Behind,
        // If a group or an entry is gone, falaj cannot know that it existed. An entry with another
        // one's cursors looks as if its own had never reached the disk.
        _ => Trust::Values,
    };
    harms.iter().map(of_one).min().unwrap_or(Trust::All)
}

/// Harm only files beside the logs.
fn beside(examples: &[(Example, Truths)], lives: bool, random: &mut Random) -> Outcome {
    let (example, truths) = random.pick(examples);
    let disk = example.disk.restart();
    let forged = lives || random.once_in(2);
    let neighbour = if lives { Some(Neighbour::come(&disk, example)) } else { None };
    let neighbour = neighbour.transpose().map_err(|error| format!("a neighbour: {error}"))?;
    let mut harms = Vec::new();
    for _ in 0..1 + random.below(3) {
        harms.push(if forged {
            state::forge_one(&disk, example, random)
        } else {
            let name = random.pick(&[QUEUE, READER, KEPT]).0;
            harm(&disk, example, random, example.beside_file(name))
        });
    }
    let asking = Asking {
        truths,
        topics: &[QUEUE.1, READER.1],
        reading: Reading::Map,
        stride: 29,
        phase: random.next(),
        may_be_cut: example.variant.killed,
        trust: Trust::All,
        mended: false,
        beside: Some((&example.beside, trust_beside(&harms))),
    };
    let asked = ask_beside(&disk, example, &asking, (neighbour, random));
    let how = if forged { "beside, forged" } else { "beside" };
    told(example, how, &harms, asked)
}

fn ask_beside(
    disk: &MemoryStorage,
    example: &Example,
    asking: &Asking<'_>,
    (neighbour, random): (Option<Neighbour>, &mut Random),
) -> Result<&'static str, String> {
    let storage: Arc<dyn Storage> = Arc::new(disk.process());
    let Some(neighbour) = neighbour else { return ask(&storage, example, asking, random) };
    if random.once_in(2) {
        neighbour.go_on(random)?;
        return ask(&storage, example, asking, random);
    }
    // The neighbour stays open, so that the next process is of its incarnation and believes the
    // file.
    let found = ask(&storage, example, asking, random)?;
    neighbour.go_on(random).map(|()| found)
}

fn word(trust: Trust) -> &'static str {
    match trust {
        Trust::Nothing => "forged",
        Trust::Values | Trust::Behind => "several",
        Trust::All => "one",
    }
}

fn told(
    example: &Example,
    word: &str,
    harms: &[Harm],
    asked: Result<&'static str, String>,
) -> Outcome {
    let story = || harms.iter().map(|harm| harm.story.as_str()).collect::<Vec<_>>().join("; ");
    asked
        .map(|found| format!("{word}, {found}"))
        .map_err(|what| format!("{} {word}: {}: {what}", example.variant.name(), story()))
}

fn ask(
    disk: &Arc<dyn Storage>,
    example: &Example,
    asking: &Asking<'_>,
    random: &mut Random,
) -> Result<&'static str, String> {
    let told = ask_reader(disk, asking)?;
    ask_verify(disk, &told, None, asking)?;
    let mended = random.once_in(3);
    if mended {
        mend(disk, example, asking)?;
    }
    write_on(disk, example, &Asking { mended, ..*asking }, !told.is_same())?;
    Ok(if told.is_all_same() { "harmless" } else { "detected" })
}
