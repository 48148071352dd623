//! The plan of a campaign: rounds of units, each decided by the seed and its number.
//!
//! One *round* runs all workloads of up to four steps, longer random ones, and crews, in both
//! modes. It looks at every crash point of each. A round of full effort visits about
//! [`STATES_OF_A_ROUND`] different states.
//!
//! A smaller budget thins the crash points out. A larger one runs more rounds, the later ones with
//! more images of each crash. The states that short workloads leave are soon all known. So from the
//! third round on few short workloads are run, and more of the others.

use falaj::internals::format::settings::WriteMode;

use crate::explore::Effort;
use crate::op::{COMPACTING, DEADLY, Deadly, Op, PARTS, SHORT, workloads};
use crate::random::{Random, mix};

/// Length up to which all workloads are run.
pub const EXHAUSTIVE: u32 = 4;
/// Number of different states that the first round of full effort visits, about.
pub const STATES_OF_A_ROUND: u64 = 2_000_000;
/// Images of a crash in later rounds, for each image in the first.
const LATER: usize = 8;
/// Short workloads of a unit.
const CHUNK: usize = 256;
/// Random workloads and crews of a unit: in the first round (mostly short workloads), in the
/// second, in later ones.
const DRAWN: [usize; 3] = [7, 20, 160];
/// Share of the short workloads of more than two steps that each later round runs.
const AGAIN: f64 = 0.125;
/// Units of random workloads in a round, for each mode.
const RANDOM: usize = 100;
/// Units of crews in a round, for each mode.
const CREWS: usize = 100;

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// How the log is written.
    pub mode: WriteMode,
    /// The workloads that are run.
    pub kind: Kind,
}

/// The workloads of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All workloads of a length, from a number on.
    Short {
        /// Steps of each.
        len: u32,
        /// Number of the first.
        first: usize,
    },
    /// Random workloads.
    Long(usize),
    /// Processes at once.
    Crew(usize),
}

/// All units of a round, the kinds mixed.
pub fn units() -> Vec<Unit> {
    let mut units = Vec::new();
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        for len in 1..=EXHAUSTIVE {
            let firsts = (0..workloads(len)).step_by(CHUNK);
            units.extend(firsts.map(|first| Unit { mode, kind: Kind::Short { len, first } }));
        }
        units.extend((0..RANDOM).map(|n| Unit { mode, kind: Kind::Long(n) }));
        units.extend((0..CREWS).map(|n| Unit { mode, kind: Kind::Crew(n) }));
    }
    let mut random = Random::new(0);
    for place in 1..units.len() {
        units.swap(place, random.below(place + 1));
    }
    units
}

impl Unit {
    /// The share of its workloads that a unit runs, in a round with this share of the crash points.
    ///
    /// Running a workload costs as much as some states.
    pub fn run(&self, round: u64, share: f64) -> f64 {
        match (self.kind, round) {
            (Kind::Short { len: 3.., .. }, 0 | 1) => (share * 8.0).min(1.0),
            (Kind::Short { len: 3.., .. }, _) => AGAIN,
            _ => 1.0,
        }
    }

    /// How thoroughly to look, in a round with this share of the crash points.
    pub fn effort(&self, round: u64, share: f64) -> Effort {
        let later = if round == 0 { 1 } else { LATER };
        let (images, few, deeper, deaths) = match self.kind {
            Kind::Short { len: 1 | 2, .. } => (8, 16, 1.0, 1.0),
            Kind::Short { len: 3, .. } => (2, 4, 0.5, 0.3),
            Kind::Short { .. } => (2, 2, 0.1, 0.02),
            Kind::Long(_) => (2, 4, 0.5, 0.1),
            Kind::Crew(_) => (2, 4, 0.5, 0.1),
        };
        let chance = if round < 2 { share / self.run(round, share) } else { share };
        Effort { chance, images: images * later, few: few * later, deeper, deaths }
    }

    /// Whether it runs concurrent processes.
    pub fn is_crew(&self) -> bool {
        matches!(self.kind, Kind::Crew(_))
    }

    /// Numbers of the short workloads that it runs.
    pub fn numbers(len: u32, first: usize) -> std::ops::Range<usize> {
        first..(first + CHUNK).min(workloads(len))
    }

    /// The random workloads of a unit.
    pub fn long(seed: u64, round: u64, number: usize, share: f64) -> Vec<Vec<Op>> {
        let mut random = Random::new(mix(mix(seed, round), number as u64));
        (0..drawn(round, share)).map(|_| long(&mut random)).collect()
    }

    /// The seeds of a unit's crews.
    pub fn crews(seed: u64, round: u64, number: usize, share: f64) -> Vec<u64> {
        let mut random = Random::new(mix(mix(seed, round), !(number as u64)));
        (0..drawn(round, share)).map(|_| random.draw() >> 16).collect()
    }
}

fn drawn(round: u64, share: f64) -> usize {
    let count = DRAWN[round.min(2) as usize];
    ((count as f64 * share.sqrt()).ceil() as usize).max(1)
}

fn long(random: &mut Random) -> Vec<Op> {
    let len = 5 + random.below(8);
    if random.below(4) == 0 {
        return compacting(len, random);
    }
    (0..len)
        .map(|_| match random.below(20) {
            0..3 => Op::Die(*random.pick(&DEADLY), random.below(PARTS.into()) as u8),
            3 => *random.pick(&[Op::Seal, Op::Sync]),
            _ => *random.pick(&SHORT),
        })
        .collect()
}

/// A workload in which many records have keys, so that compaction removes many.
fn compacting(len: usize, random: &mut Random) -> Vec<Op> {
    (0..len)
        .map(|_| match random.below(12) {
            0 => Op::Die(Deadly::Compact, random.below(PARTS.into()) as u8),
            1 => *random.pick(&SHORT),
            _ => *random.pick(&COMPACTING),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_short_workloads_are_run_twice_and_then_others_get_the_time() {
        for unit in units() {
            let is_long_to_run = matches!(unit.kind, Kind::Short { len: 3.., .. });
            for round in 0..4 {
                let run = unit.run(round, 1.0);
                let wanted = if is_long_to_run && round > 1 { AGAIN } else { 1.0 };
                assert_eq!(
                    (run, unit.effort(round, 1.0).chance),
                    (wanted, 1.0),
                    "{unit:?} {round}"
                );
            }
            // A small budget runs more workloads than its share, and looks at fewer crash points of
            // each.
            let (run, chance) = (unit.run(0, 0.01), unit.effort(0, 0.01).chance);
            assert!((0.01..=1.0).contains(&run) && (run * chance - 0.01).abs() < 1e-9, "{unit:?}");
        }
        let drawn = |round| Unit::long(1, round, 0, 1.0).len();
        assert!(drawn(2) == 8 * drawn(1) && drawn(3) == drawn(2));
    }
}
