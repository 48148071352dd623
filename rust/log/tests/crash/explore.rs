//! The images of a crash, what is done to each of them, and the count of states.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use falaj::format::settings::WriteMode;
use falaj::storage::memory::{Crash, Journal, MemoryStorage};

use crate::common::TestMember;
use crate::model::{Group, Truth};
use crate::world::{append_group, open, open_to_read};

/// How much is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Images of a crash point; all of them when there are no more than this.
    pub images: usize,
    /// Images, all crash points together, of the recovery and the append that follow; `None` for
    /// each crash point with as many images as the first.
    pub deeper: Option<usize>,
}

/// Looks at images and counts the different ones.
pub struct Explorer {
    mode: WriteMode,
    seed: u64,
    seen: HashSet<(u64, usize, usize)>,
    /// Different states after a first crash.
    pub states: u64,
    /// Different states after a crash inside the recovery of one of those, or after its sync.
    pub deeper: u64,
}

/// What an image is expected to be.
#[derive(Clone, Copy)]
struct Expected<'a> {
    truth: &'a Truth,
    least: usize,
    most: usize,
    /// Incarnation that died.
    incarnation: u64,
    /// What else a reader may see before recovery: by the index it may come to records behind the
    /// place where recovery will cut.
    before: Option<&'a Truth>,
}

impl Expected<'_> {
    fn allowed(&self) -> RangeInclusive<usize> {
        self.least..=self.most
    }
}

impl Explorer {
    pub fn new(mode: WriteMode, seed: u64) -> Self {
        Self { mode, seed, seen: HashSet::new(), states: 0, deeper: 0 }
    }

    /// Lose power and look at images. `least..=most` groups of the truth are to be found.
    ///
    /// # Errors
    /// What was wrong, and with which image.
    pub fn power_loss(
        &mut self,
        crash: &Crash,
        truth: &Truth,
        (least, most): (usize, usize),
        incarnation: u64,
        effort: Effort,
    ) -> Result<(), String> {
        let expected = Expected { truth, least, most, incarnation, before: None };
        let mut random = Random::new(self.seed ^ crash.time() as u64);
        for selection in selections(crash, effort.images, &mut random) {
            if !self.is_new(crash, &selection, expected) {
                continue;
            }
            self.states += 1;
            let image = crash.image(&selection);
            let looked = self.look(&image, expected).and_then(|(truth, all)| {
                let before = Some(expected.truth);
                let expected =
                    Expected { truth: &truth, least: all - 1, most: all, before, ..expected };
                self.look_deeper(&image, expected, effort, &mut random)
            });
            looked.map_err(|e| format!("{e}\n  {}", crash.describe(&selection)))?;
        }
        Ok(())
    }

    /// True when no image with the same bytes and the same obligations was looked at before.
    fn is_new(&mut self, crash: &Crash, selection: &[usize], expected: Expected<'_>) -> bool {
        let Expected { truth, least, most, .. } = expected;
        let last = truth.0.last().and_then(|group| group.0[0].1[0].first()).copied();
        let mark = u64::from(last.unwrap_or(0)).rotate_left(40);
        self.seen.insert((crash.fingerprint(selection) ^ mark, least, most))
    }

    /// Read, recover, append, read: what every image must pass. Returns what the log holds then.
    fn look(
        &self,
        image: &MemoryStorage,
        expected: Expected<'_>,
    ) -> Result<(Truth, usize), String> {
        let Expected { truth, incarnation, .. } = expected;
        let reader = open_to_read(image, self.mode).map_err(|e| format!("open to read: {e}"))?;
        let seen = truth.found_before_recovery(&reader, expected.allowed());
        seen.or_else(|e| match expected.before {
            Some(before) => before.found_before_recovery(&reader, expected.least..=before.0.len()),
            None => Err(e),
        })?;
        let log = open(image, self.mode, TestMember::new(0, incarnation + 1))
            .map_err(|e| format!("recover: {e}"))?;
        let found =
            truth.found(&log, expected.allowed()).map_err(|e| format!("after recovery: {e}"))?;
        let lost = truth.0.get(found).cloned();
        let new = lost.unwrap_or(Group::one(0, vec![vec![b'~'; 40]])).twin(b'~');
        let longer = truth.first(found).and(new);
        self.go_on(&log, &longer)?;
        let again = open_to_read(image, self.mode).map_err(|e| format!("open once more: {e}"))?;
        let all = found + 1;
        let same = longer.found(&again, all..=all);
        same.map_err(|e| format!("a second reader after recovery: {e}"))?;
        let restarted = image.restart();
        let log = open(&restarted, self.mode, TestMember::new(0, incarnation + 2))
            .map_err(|e| format!("recover what was recovered: {e}"))?;
        let same = longer.found(&log, all..=all);
        same.map_err(|e| format!("after recovering what was recovered: {e}"))?;
        Ok((longer, all))
    }

    fn go_on(&self, log: &std::sync::Arc<falaj::log::Log>, longer: &Truth) -> Result<(), String> {
        let all = longer.0.len();
        let new = &longer.0[all - 1];
        let firsts = append_group(log, new).map_err(|e| format!("append after recovery: {e}"))?;
        let wanted: Vec<_> = new.0.iter().map(|(t, _)| longer.count(*t, all - 1)).collect();
        if firsts != wanted {
            return Err(format!("appended at {firsts:?} instead of {wanted:?}"));
        }
        let whole = longer.found(log, all..=all);
        whole.map(drop).map_err(|e| format!("after recovery and an append: {e}"))
    }

    /// Lose power again, inside what [`Explorer::look`] did, and after a sync.
    fn look_deeper(
        &mut self,
        image: &MemoryStorage,
        expected: Expected<'_>,
        effort: Effort,
        random: &mut Random,
    ) -> Result<(), String> {
        let journal = image.journal();
        match effort.deeper {
            None => {
                for crash in journal.crashes() {
                    self.second(&crash, expected, effort.images, random)?;
                }
            }
            Some(count) => {
                for _ in 0..count {
                    let crash = journal.crash_at(random.below(journal.len() + 1));
                    self.second(&crash, expected, 1, random)?;
                }
            }
        }
        self.sync_and_look(image, expected, random)
    }

    fn second(
        &mut self,
        crash: &Crash,
        expected: Expected<'_>,
        images: usize,
        random: &mut Random,
    ) -> Result<(), String> {
        for selection in selections(crash, images, random) {
            if !self.is_new(crash, &selection, expected) {
                continue;
            }
            self.deeper += 1;
            let expected = Expected { incarnation: expected.incarnation + 2, ..expected };
            let looked = self.look(&crash.image(&selection), expected);
            looked.map_err(|e| format!("{e}\n  second {}", crash.describe(&selection)))?;
        }
        Ok(())
    }

    fn sync_and_look(
        &mut self,
        image: &MemoryStorage,
        expected: Expected<'_>,
        random: &mut Random,
    ) -> Result<(), String> {
        let heir = TestMember::new(0, expected.incarnation + 1).beside(1);
        let log = open(image, self.mode, heir).map_err(|e| format!("open beside: {e}"))?;
        log.sync().map_err(|e| format!("sync after recovery: {e}"))?;
        let expected = Expected { least: expected.most, ..expected };
        let crash = now(&image.journal());
        self.second(&crash, expected, 2, random).map_err(|e| format!("{e} (synced)"))
    }

    /// All processes die after an event, but the machine goes on: everything committed is there,
    /// for an heir of the same incarnation and for one of the next, and a sync makes it durable.
    ///
    /// # Errors
    /// What was wrong.
    pub fn death(
        &mut self,
        journal: &Journal,
        time: usize,
        heir: TestMember,
        truth: &Truth,
        (least, most): (usize, usize),
    ) -> Result<(), String> {
        let incarnation = falaj::log::Member::incarnation(&heir);
        let members = [heir, TestMember::new(0, incarnation + 1)];
        for (member, whose) in members.into_iter().zip(["an heir", "the next incarnation"]) {
            let survivor = journal.killed_at(time);
            let expected = Expected { truth, least, most, incarnation, before: None };
            let taken_over = self.take_over(&survivor, member, expected);
            taken_over.map_err(|e| format!("{whose} after a death at event {time}: {e}"))?;
        }
        Ok(())
    }

    fn take_over(
        &mut self,
        survivor: &MemoryStorage,
        member: TestMember,
        expected: Expected<'_>,
    ) -> Result<(), String> {
        let Expected { truth, .. } = expected;
        let reader = open_to_read(survivor, self.mode).map_err(|e| format!("open to read: {e}"))?;
        truth.found_before_recovery(&reader, expected.allowed())?;
        let log = open(survivor, self.mode, member).map_err(|e| format!("open: {e}"))?;
        let found = truth.found(&log, expected.allowed())?;
        let new = Group::one(0, vec![vec![b'~'; 40]]);
        let longer = truth.first(found).and(new);
        self.go_on(&log, &longer)?;
        let all = found + 1;
        log.sync().map_err(|e| format!("sync: {e}"))?;
        let crash = now(&survivor.journal());
        let expected = Expected { truth: &longer, least: all, most: all, ..expected };
        let mut random = Random::new(self.seed ^ all as u64);
        self.second(&crash, expected, 2, &mut random)
    }
}

fn now(journal: &Journal) -> Crash {
    journal.crash_at(journal.len())
}

/// All combinations, or so many of them: nothing and everything that was pending, each choice alone
/// arrived or alone missing, and others by chance.
fn selections(crash: &Crash, limit: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let choices = crash.choices();
    if crash.combinations() <= limit as u64 {
        return all(choices.iter().map(|choice| choice.arity).collect());
    }
    let mut picked = Vec::with_capacity(limit);
    if limit >= 2 {
        picked.extend([crash.nothing(), crash.everything()]);
    }
    while picked.len() < limit {
        let one = random.below(choices.len());
        let style = random.below(6);
        let by_choice = choices.iter().enumerate().map(|(i, choice)| match style {
            0 => {
                if i == one {
                    choice.latest
                } else {
                    0
                }
            }
            1 => {
                if i == one {
                    0
                } else {
                    choice.latest
                }
            }
            2 => {
                if random.below(8) == 0 {
                    0
                } else {
                    choice.latest
                }
            }
            3 => {
                if random.below(8) == 0 {
                    choice.latest
                } else {
                    0
                }
            }
            4 => {
                if random.below(2) == 0 {
                    0
                } else {
                    choice.latest
                }
            }
            _ => random.below(choice.arity),
        });
        picked.push(by_choice.collect());
    }
    picked
}

fn all(arities: Vec<usize>) -> Vec<Vec<usize>> {
    let mut combinations = vec![Vec::new()];
    for arity in arities {
        let longer = |head: &Vec<usize>| {
            let head = head.clone();
            (0..arity).map(move |pick| [head.as_slice(), &[pick]].concat())
        };
        combinations = combinations.iter().flat_map(longer).collect();
    }
    combinations
}

/// Random numbers from a seed: splitmix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        for shift in [30, 27] {
            mixed = (mixed ^ mixed >> shift).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }
}
