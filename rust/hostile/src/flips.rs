//! Flipped bits: each single flipped bit of a store must be detected or harmless.
//!
//! A case flips one bit of one file of an [`Example`]. Then a reader asks everything of the topics
//! that the file concerns. For some cases, chosen by number, more follows: a reader without maps,
//! `verify`, a writer that recovers, appends and reads again, and `repair`. Without `--all` a seed
//! chooses the bits; with it, case `n` is bit `n`.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::log::Reading;
use falaj::internals::storage::{OpenMode, Storage};
use falaj_twin::memory::MemoryStorage;

use crate::answers::{Asking, Trust, Truths, ask_reader, ask_verify, truths};
use crate::arguments::Arguments;
use crate::campaign::{self, OPTIONS, Outcome, Plan};
use crate::example::{Example, Size, VARIANTS, Variant, is_beside};
use crate::random::{Random, mix};
use crate::writing::{mend, write_on};

const SEED: u64 = 20_261_121;
/// Flips on one bench before it is made again: each flip is an event in its journal.
const RENEW: u64 = 128;

/// A store in which one thread flips bits.
#[derive(Debug)]
pub struct Bench {
    /// The store as it was left.
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

/// True for files in which a bit may concern one offset alone: an entry of an index, a word of
/// shared memory.
///
/// A reader that looks up few offsets would miss it.
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
    // Which of the expensive checks are done for this bit.
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
    // Records do not depend on cursors and queues, unless a process resumes with them.
    let passed = beside && chance >> 48 & 7 != 0;
    let read = Asking { topics: if passed { &[] } else { &topics }, ..asking };
    let told = ask_reader(&storage, &read)?;
    let mut word = String::from(if told.is_all_same() { "harmless" } else { "detected" });
    if chance >> 16 & 7 == 0 {
        let topic = (own && !beside).then(|| topics[0]);
        ask_verify(&storage, &told, topic, &asking)?;
    }
    // Small files decide much: the store's own, and the page that processes share.
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
