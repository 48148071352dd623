//! Every single flipped bit of a store is detected or harmless.
//!
//! A case is one bit of one file of an [`Example`]. With it flipped, a reader asks everything of the
//! topics that the file has to do with; for some, which their number chooses, also a reader without
//! maps, `verify`, a writer who recovers, appends and reads again, and `repair`.
//! Without `--all` the bits are chosen by a seed; with it, case `n` is bit `n`.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::log::Reading;
use falaj::internals::storage::memory::MemoryStorage;
use falaj::internals::storage::{OpenMode, Storage};

use crate::answers::{Asking, Trust, Truths, ask_reader, ask_verify, truths};
use crate::arguments::Arguments;
use crate::campaign::{self, OPTIONS, Outcome, Plan};
use crate::example::{Example, Size, VARIANTS, Variant, is_beside};
use crate::random::{Random, mix};
use crate::writing::{mend, write_on};

const SEED: u64 = 20_261_121;
/// Flips on one bench before it is made anew: each is an event in its journal.
const RENEW: u64 = 128;

/// A store that one thread flips bits of.
#[derive(Debug)]
pub struct Bench {
    /// As it was left.
    example: Arc<(Example, Truths)>,
    disk: MemoryStorage,
    uses: u64,
}

impl Bench {
    pub fn new(example: &Arc<(Example, Truths)>) -> Self {
        Self { example: Arc::clone(example), disk: example.0.disk.restart(), uses: 0 }
    }

    fn renewed(&mut self) {
        self.uses += 1;
        if self.uses % RENEW == 0 {
            self.disk = self.example.0.disk.restart();
        }
    }
}

fn flip(disk: &MemoryStorage, path: &Path, position: u64, bit: u8) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, position).unwrap(), 1);
    file.write_at(&[byte[0] ^ 1 << bit], position).unwrap();
}

/// The program `flips`.
pub fn main(words: impl Iterator<Item = String>) -> Result<bool, String> {
    let known = [&OPTIONS[..], &["variant", "all", "list"]].concat();
    let arguments = Arguments::read(words, &known)?;
    let seed = arguments.get("seed", SEED)?;
    let variants: Vec<Variant> = match arguments.text("variant") {
        None => VARIANTS.to_vec(),
        Some(name) => vec![Variant::named(name).ok_or_else(|| format!("no variant {name}"))?],
    };
    let examples: Vec<_> = variants.iter().map(|variant| example(*variant)).collect();
    if arguments.has("list") {
        for (example, _) in examples.iter().map(|example| &**example) {
            println!("{}: {} bits", example.variant.name(), example.bits());
            for (path, len) in &example.files {
                println!("  {len:>8} {}", path.display());
            }
        }
        return Ok(true);
    }
    let all = arguments.has("all");
    let bits: u64 = examples.iter().map(|example| example.0.bits()).sum();
    let cases = if all { bits } else { u64::MAX };
    let seconds = (!all && !arguments.has("seconds") && !arguments.has("to")).then_some(60.0);
    let name =
        format!("flips{}", arguments.text("variant").map_or(String::new(), |v| format!("-{v}")));
    let plan = Plan::of(name, &arguments, cases)?;
    let plan = Plan { seconds: plan.seconds.or(seconds), ..plan };
    let benches = || examples.iter().map(Bench::new).collect::<Vec<_>>();
    campaign::run(&plan, benches, |benches, case| {
        let bit = if all { case } else { Random::of_case(seed, case).below(bits) };
        let mut left = bit;
        for bench in benches {
            let own = bench.example.0.bits();
            if left < own {
                return one(bench, left);
            }
            left -= own;
        }
        unreachable!("a bit below their number")
    })
}

fn example(variant: Variant) -> Arc<(Example, Truths)> {
    let example = Example::make(variant, Size::Full, SEED);
    let truths = truths(&example);
    Arc::new((example, truths))
}

/// Flip one bit, and ask.
pub fn one(bench: &mut Bench, bit: u64) -> Outcome {
    bench.renewed();
    let example = Arc::clone(&bench.example);
    let (path, position, shift) = example.0.bit(bit);
    let disk = bench.disk.clone();
    flip(&disk, path, position, shift);
    let outcome = judge(&disk, &example.0, &example.1, path, bit);
    flip(&disk, path, position, shift);
    outcome.map_err(|what| {
        let variant = example.0.variant.name();
        format!("{variant}: bit {shift} of byte {position} of {}: {what}", path.display())
    })
}

/// True for files of which a bit may have to do with one offset alone: one entry of an index, one word
/// of what processes share. Who looks up few offsets passes by that one.
fn hurts_few(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "idx") || path.ends_with("control")
}

fn judge(
    disk: &MemoryStorage,
    example: &Example,
    truths: &Truths,
    path: &Path,
    bit: u64,
) -> Outcome {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    // Which of the dear things are done for this bit.
    let chance = mix(77, bit);
    let topics = example.topics_of(path);
    let own = topics.len() < example.logs.len();
    let beside = is_beside(path);
    let asking = Asking {
        truths,
        topics: &topics,
        reading: if chance % 4 == 0 { Reading::Pread } else { Reading::Map },
        stride: if chance % 32 == 1 || hurts_few(path) { 1 } else { 41 },
        phase: chance >> 8,
        may_be_cut: example.variant.killed,
        trust: Trust::All,
        mended: false,
        beside: Some((&example.beside, Trust::All)),
    };
    // Records have nothing to do with cursors and queues, but for who goes on with them.
    let passed = beside && chance >> 48 & 7 != 0;
    let read = Asking { topics: if passed { &[] } else { &topics }, ..asking };
    let told = ask_reader(&storage, &read)?;
    let mut word = String::from(if told.is_all_same() { "harmless" } else { "detected" });
    if chance >> 16 & 7 == 0 {
        let topic = (own && !beside).then(|| topics[0]);
        ask_verify(&storage, &told, topic, &asking)?;
    }
    // What is small decides much: the store's files, the page that processes share.
    let often = if beside {
        12
    } else if !own || path.ends_with("control") {
        3
    } else {
        16
    };
    if (chance >> 24) % often == 0 {
        let fresh: Arc<dyn Storage> = Arc::new(disk.restart());
        let mended = chance >> 32 & 3 == 0;
        if mended {
            mend(&fresh, example, &asking)?;
        }
        let asking = Asking { mended, ..asking };
        word.push_str(write_on(&fresh, example, &asking, !told.is_same())?);
    }
    Ok(word)
}
