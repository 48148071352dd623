//! Crashes of a history: which are tried, what is done to each, and how the states are counted.
//!
//! A *state* is what is on disk, identified by the hash of all names, lengths and bytes. Each state
//! is judged once for each set of obligations. Invariant: the seed and the effort alone decide
//! which states are visited, not threads or the order of the work. So a violation is found again.

use falaj::internals::format::settings::WriteMode;
use falaj_twin::memory::{Crash, Journal, MemoryStorage};

use crate::actor::Actor;
use crate::cuts::{self, Taken};
use crate::history::History;
use crate::look::{Before, Expected, Looked, look_again, look_once, successors, take_over};
use crate::pick::{self, Selection, selections};
use crate::random::{Random, mix};
use crate::seen::Seen;
use crate::site::{Again, Site};

/// How thoroughly to look.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Probability that a crash point is looked at.
    pub chance: f64,
    /// Images of a crash point that has more than `few` combinations.
    pub images: usize,
    /// Number of combinations up to which all are tried.
    pub few: usize,
    /// Average number of second crashes for each image, inside the recovery and the append that
    /// follow.
    pub deeper: f64,
    /// Probability that the death of all processes is looked at, for each crash point.
    pub deaths: f64,
}

/// Counts of what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories that were run.
    pub histories: u64,
    /// Crash points that were looked at.
    pub points: u64,
    /// Judgements of a state after a first power cut.
    pub first: u64,
    /// … after a second one, during or after recovery from a first.
    pub second: u64,
    /// Judgements after the death of all processes.
    pub deaths: u64,
    /// States that differ on disk.
    pub distinct: u64,
    /// Judgements after a power cut that ran to their end: see [`look_again`].
    pub whole: u64,
}

impl Counts {
    /// All judgements together.
    pub fn judged(&self) -> u64 {
        self.first + self.second + self.deaths
    }

    /// Add the counts of another thread.
    pub fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.points += other.points;
        self.first += other.first;
        self.second += other.second;
        self.deaths += other.deaths;
        self.distinct += other.distinct;
        self.whole += other.whole;
    }
}

/// A promise that was broken, and how to reproduce it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The failure.
    pub what: String,
    /// The site, for `falaj-sim explore --replay`.
    pub site: String,
}

/// Explores the crashes of histories.
pub struct Explorer<'a> {
    seen: &'a Seen,
    seed: u64,
    /// Counts so far.
    pub counts: Counts,
}

impl<'a> Explorer<'a> {
    /// An explorer that skips states that were seen before.
    pub fn new(seen: &'a Seen, seed: u64) -> Self {
        Self { seen, seed, counts: Counts::default() }
    }

    /// Explore crashes at the events of a history's last step.
    ///
    /// # Errors
    /// The first violation.
    pub fn explore(&mut self, history: &History, effort: Effort) -> Result<(), Box<Violation>> {
        self.counts.histories += 1;
        let mut random = Random::new(mix(self.seed, name_hash(&history.name)));
        for crash in history.journal.crashes_from(history.from + 1) {
            if !random.chance(effort.chance) {
                continue;
            }
            self.counts.points += 1;
            self.power_loss(history, &crash, effort, &mut random)?;
            if random.chance(effort.deaths) {
                self.death(history, crash.time())?;
            }
        }
        Ok(())
    }

    fn power_loss(
        &mut self,
        history: &History,
        crash: &Crash,
        effort: Effort,
        random: &mut Random,
    ) -> Result<(), Box<Violation>> {
        let (truth, incarnation) = (&history.truth, history.incarnation);
        let (least, most) = history.after_power_loss(crash.time());
        let gone = history.gone(crash.time());
        let cuts = history.cuts(crash.time());
        let expected = Expected { truth, least, most, gone, incarnation, cuts, before: None };
        for selection in selections(crash, effort.few, effort.images, random) {
            let Some((image, seed)) = self.new_image(crash, &selection, expected) else { continue };
            self.counts.first += 1;
            let site = |again| Site::power_loss(history, crash, &selection, again);
            let looked = guarded(|| self.look(&image, history.mode, expected))
                .map_err(|what| violation(what, &site(None), &[(crash, &selection)]))?;
            let mut random = Random::new(seed);
            let whole = effort.deeper as usize;
            let times = whole + usize::from(random.chance(effort.deeper.fract()));
            if times > 0 {
                let before = Before { truth, gone };
                let first = First { mode: history.mode, before, cuts, incarnation, site: &site };
                self.deeper(&image, &looked, &first, times, &mut random)?;
            }
        }
        Ok(())
    }

    /// Judge as [`crate::look::look`] does, but skip what equal bytes have passed already.
    fn look(
        &mut self,
        image: &MemoryStorage,
        mode: WriteMode,
        expected: Expected<'_>,
    ) -> Result<Looked, String> {
        let looked = look_once(image, mode, expected)?;
        let restarted = image.restart();
        let left = mix(restarted.fingerprint_with_space(), looked.truth.print());
        let left = mix(left, looked.gone().print());
        let left = mix(left, mix(looked.incarnation, u64::from(mode == WriteMode::Pwrite)));
        let left = mix(left, cuts::print(expected.cuts));
        if self.seen.insert_left(left) {
            self.counts.whole += 1;
            look_again(image, &restarted, mode, &looked, expected.cuts)?;
        }
        Ok(looked)
    }

    /// A state, and a seed for what follows from it; `None` if the same bytes were judged before
    /// with the same obligations.
    fn new_image(
        &mut self,
        crash: &Crash,
        selection: &[usize],
        expected: Expected<'_>,
    ) -> Option<(MemoryStorage, u64)> {
        let mut seed = None;
        let image = crash.image_if(selection, |print| {
            seed = self.is_new(print, expected);
            seed.is_some()
        });
        image.zip(seed)
    }

    fn is_new(&mut self, print: u64, expected: Expected<'_>) -> Option<u64> {
        let Expected { truth, least, most, gone, cuts, .. } = expected;
        let last = truth.0.last().and_then(|group| group.0[0].1[0].first()).copied();
        let end = [least, most, truth.0.len(), usize::from(last.unwrap_or(0))];
        let obliged = end.into_iter().fold(print, |sum, number| mix(sum, number as u64));
        let obliged = mix(mix(obliged, gone.print()), cuts::print(cuts));
        let (new, distinct) = self.seen.insert(print, obliged);
        self.counts.distinct += u64::from(distinct);
        new.then_some(mix(self.seed, obliged))
    }

    /// Cut the power again, at points inside what [`look_once`] did and after a sync.
    fn deeper(
        &mut self,
        image: &MemoryStorage,
        looked: &Looked,
        first: &First<'_>,
        times: usize,
        random: &mut Random,
    ) -> Result<(), Box<Violation>> {
        let journal = image.journal();
        for _ in 0..times {
            let time = random.below(journal.len() + 1);
            let again = match random.below(4) {
                0 => Again::Died { time },
                _ => Again::Within { time, picks: None },
            };
            self.again(&journal, &again, looked, first, random)?;
        }
        if random.below(2) == 0 {
            let synced = looked.process.log.sync();
            synced.map_err(|e| {
                let what = format!("sync after recovery: {e}");
                violation(what, &(first.site)(None), &[])
            })?;
            let again = Again::Synced { picks: None };
            self.again(&image.journal(), &again, looked, first, random)?;
        }
        Ok(())
    }

    fn again(
        &mut self,
        journal: &Journal,
        again: &Again,
        looked: &Looked,
        first: &First<'_>,
        random: &mut Random,
    ) -> Result<(), Box<Violation>> {
        let expected = expected_again(again, looked, (first.before, first.cuts), first.incarnation);
        if let Again::Died { time } = again {
            self.counts.deaths += 1;
            let died = guarded(|| died(journal, *time, first, expected));
            return died.map_err(|what| violation(what, &(first.site)(Some(again.clone())), &[]));
        }
        let crash = journal.crash_at(again.time(journal.len()));
        for selection in selections(&crash, 0, 1, random) {
            let Some((image, _)) = self.new_image(&crash, &selection, expected) else { continue };
            self.counts.second += 1;
            guarded(|| self.look(&image, first.mode, expected)).map_err(|what| {
                let picks = pick::written(&crash, &selection);
                let site = (first.site)(Some(again.with(picks)));
                violation(what, &site, &[(&crash, &selection)])
            })?;
        }
        Ok(())
    }

    /// Kill all processes after an event, while the machine runs on.
    fn death(&mut self, history: &History, time: usize) -> Result<(), Box<Violation>> {
        for (actor, whose) in successors(history.heir()) {
            let survivor = history.journal.killed_at(time);
            let (least, most) = history.after_death(time);
            let (truth, incarnation) = (&history.truth, history.incarnation);
            let gone = history.gone(time);
            let cuts = history.cuts(time);
            let expected = Expected { truth, least, most, gone, incarnation, cuts, before: None };
            self.counts.deaths += 1;
            let site = |again| Site::death(history, time, whose, again);
            let looked = guarded(|| take_over(&survivor, history.mode, actor, expected))
                .map_err(|what| violation(what, &site(None), &[]))?;
            let mut random = Random::new(mix(self.seed, survivor.fingerprint()));
            let before = Before { truth, gone };
            let first = First { mode: history.mode, before, cuts, incarnation, site: &site };
            let again = Again::Synced { picks: None };
            self.again(&survivor.journal(), &again, &looked, &first, &mut random)?;
        }
        Ok(())
    }
}

/// The facts  about the crash before a second one.
struct First<'a> {
    mode: WriteMode,
    before: Before<'a>,
    cuts: &'a [Taken],
    incarnation: u64,
    site: &'a dyn Fn(Option<Again>) -> Site,
}

fn died(
    journal: &Journal,
    time: usize,
    first: &First<'_>,
    expected: Expected<'_>,
) -> Result<(), String> {
    let heir = heir_of_recovery(first.incarnation);
    take_over(&journal.killed_at(time), first.mode, heir, expected).map(drop)
}

/// A process of the same incarnation, after its first process died during recovery.
pub(crate) fn heir_of_recovery(incarnation: u64) -> Actor {
    let dead = Actor::new(incarnation + 1);
    dead.dies();
    dead.beside(1)
}

/// The groups that must be found after a second crash.
pub(crate) fn expected_again<'a>(
    again: &Again,
    looked: &'a Looked,
    (before, cuts): (Before<'a>, &'a [Taken]),
    incarnation: u64,
) -> Expected<'a> {
    let all = looked.truth.0.len();
    let (least, most) = match again {
        // Recovery decides the same from the same bytes.
        Again::Within { time, .. } | Again::Died { time } if *time <= looked.recovered => {
            (all - 1, all - 1)
        }
        Again::Within { .. } | Again::Died { .. } => (all - 1, all),
        Again::Synced { .. } => (all, all),
    };
    let (truth, incarnation) = (&looked.truth, incarnation + 2);
    let (gone, before) = (looked.gone(), Some(before));
    Expected { truth, least, most, gone, incarnation, cuts, before }
}

fn violation(what: String, site: &Site, lost: &[(&Crash, &Selection)]) -> Box<Violation> {
    let lost = lost.iter().map(|(crash, selection)| format!("; {}", crash.describe(selection)));
    Box::new(Violation { what: what + &lost.collect::<String>(), site: site.to_string() })
}

/// Run a call and report a panic as a violation.
///
/// # Errors
/// The call's own error, or the message of its panic.
pub fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("no message")))
    })
}

fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0, |sum, byte| mix(sum, u64::from(byte)))
}
