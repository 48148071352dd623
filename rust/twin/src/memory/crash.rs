//! The possible disk contents after a power failure, one image at a time.
//!
//! The module owns the *choices*: everything that was not synced at the crash point and may or may
//! not have reached the disk, each independently. An image is one pick for each choice.
//!
//! ```text
//! journal --crash_at(t)--> Crash { what is sure } + [choice, choice, …]
//!                            | image([0, 0, …])  nothing that was pending
//!                            | image(latest)     all of it
//!                            v explore(limit)    all combinations, or a sample
//! ```
//!
//! Sectors are atomic, and so are names; a store over several sectors may arrive in part. The
//! engine's tests interpret images; the campaign belongs to the reliability harness.

use std::sync::Arc;

use super::MemoryStorage;
use super::disk::{Disk, DiskFile, Node, Sector, Tree, mix};
use super::journal::{Event, Journal, NameOp, Replay, ReplayFile};
use super::world::{Settings, inode};

/// The subject of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// One 512-byte sector of a file.
    Sector(u64),
    /// The length of a file.
    Length,
    /// One operation on a name, in words.
    Name(String),
}

/// One thing whose state on disk is undecided. Pick 0 is the state that was certainly there before.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The file's inode number; 0 for names.
    pub inode: u64,
    /// The file's path as processes saw it, or `(unlinked)`; empty for names.
    pub path: Arc<str>,
    /// The undecided thing.
    pub what: Undecided,
    /// The number of different picks, at least two.
    pub arity: usize,
    /// The pick that processes saw.
    pub latest: usize,
}

/// A file with open choices.
struct OpenChoices {
    number: u32,
    /// The certain part.
    base: Arc<DiskFile>,
    /// Choice, sector, picks.
    sectors: Vec<(usize, u32, Vec<Arc<Sector>>)>,
    /// Choice and picks.
    len: Option<(usize, Vec<u64>)>,
}

/// The possible disk contents when power fails at one point: see [`Journal::crash_at`].
pub struct Crash {
    settings: Settings,
    now_us: i64,
    random: u64,
    time: usize,
    choices: Vec<Choice>,
    pinned: Vec<Option<usize>>,
    tree: Tree,
    ops: Vec<(NameOp, Option<usize>)>,
    /// Files without a choice, by number; the others are in `open`.
    sure: Vec<Option<Arc<DiskFile>>>,
    open: Vec<OpenChoices>,
}

/// The extent of a [`Crash::explore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Images that were made.
    pub images: u64,
    /// True when they were all combinations.
    pub complete: bool,
}

impl Crash {
    pub(super) fn new(replay: &Replay, journal: &Journal) -> Self {
        let mut crash = Self {
            settings: journal.settings.clone(),
            now_us: journal.now_us,
            random: journal.random,
            time: replay.time,
            choices: Vec::new(),
            pinned: Vec::new(),
            tree: replay.durable.clone(),
            ops: Vec::new(),
            sure: Vec::new(),
            open: Vec::new(),
        };
        for op in &replay.ops {
            let choice = (!op.synced).then(|| crash.choose_name(op));
            crash.ops.push((op.clone(), choice));
        }
        crash.add_files(replay);
        crash.pinned = vec![None; crash.choices.len()];
        crash
    }

    fn add_files(&mut self, replay: &Replay) {
        // A file that gets no name by any pick is on no image.
        let mut named = vec![false; replay.files.len()];
        let pending = replay.ops.iter().filter_map(NameOp::node);
        for node in self.tree.nodes().chain(pending) {
            if let Node::File(number) = node {
                named[number as usize] = true;
            }
        }
        let mut paths = vec![None; replay.files.len()];
        for (path, node) in replay.names.paths() {
            if let Node::File(number) = node {
                paths[number as usize] = Some(Arc::from(path));
            }
        }
        for (number, file) in replay.files.iter().enumerate() {
            let Some(file) = file.as_ref().filter(|_| named[number]) else {
                self.sure.push(None);
                continue;
            };
            let path = paths[number].take().unwrap_or_else(|| "(unlinked)".into());
            let sure = self.add_file(number as u32, file, &path);
            self.sure.push(sure);
        }
    }

    /// Return the file if everything about it is certain; otherwise add it to `open`.
    fn add_file(
        &mut self,
        number: u32,
        file: &ReplayFile,
        path: &Arc<str>,
    ) -> Option<Arc<DiskFile>> {
        let (mut sure, mut sectors) = (Vec::new(), Vec::new());
        for (sector, versions) in &file.sectors {
            let picks = &versions.picks;
            if picks.len() > 1 {
                let what = Undecided::Sector(u64::from(*sector));
                let (path, latest) = (path.clone(), versions.latest);
                let choice = self.choose(inode(number), path, what, picks.len(), latest);
                sectors.push((choice, *sector, picks.clone()));
            } else {
                sure.push((*sector, picks[0].clone()));
            }
        }
        let lens = &file.lens;
        let len = (lens.len() > 1).then(|| {
            let latest = lens.len() - 1;
            let what = Undecided::Length;
            (self.choose(inode(number), path.clone(), what, lens.len(), latest), lens.clone())
        });
        let changed = !sure.is_empty() || file.lens[0] != file.base.len;
        let changed = changed || file.allocated != file.base.allocated;
        let base = if changed || len.is_some() || !sectors.is_empty() {
            let mut base = file.base.with(sure, file.len());
            base.allocated = file.allocated.clone();
            Arc::new(base)
        } else {
            file.base.clone()
        };
        if sectors.is_empty() && len.is_none() {
            return Some(base);
        }
        self.open.push(OpenChoices { number, base, sectors, len });
        None
    }

    fn choose(
        &mut self,
        inode: u64,
        path: Arc<str>,
        what: Undecided,
        arity: usize,
        latest: usize,
    ) -> usize {
        self.choices.push(Choice { inode, path, what, arity, latest });
        self.choices.len() - 1
    }

    fn choose_name(&mut self, op: &NameOp) -> usize {
        let what = match &*op.event {
            Event::Link { name, .. } => format!("create {name}"),
            Event::Unlink { name, .. } => format!("unlink {name}"),
            Event::Rename { from_name, to_name, .. } => format!("rename {from_name} to {to_name}"),
            _ => unreachable!("no operation on a name"),
        };
        self.choose(0, "".into(), Undecided::Name(what), 2, 1)
    }

    /// Return how many events had happened.
    pub fn time(&self) -> usize {
        self.time
    }

    /// Return the choices. A selection has one pick for each, in this order.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// Fix some choices, so that exploring varies the others only: the closure returns the pick.
    /// For differences that no test can observe, such as pages of derived state.
    ///
    /// # Panics
    /// When a pick is not below the choice's arity.
    #[must_use]
    pub fn pin(mut self, pick: impl Fn(&Choice) -> Option<usize>) -> Self {
        for (pinned, choice) in self.pinned.iter_mut().zip(&self.choices) {
            *pinned = pick(choice).or(*pinned);
            assert!(pinned.is_none_or(|pick| pick < choice.arity), "no such pick of {choice:?}");
        }
        self
    }

    /// Return the selection in which nothing pending has reached the disk.
    pub fn nothing(&self) -> Vec<usize> {
        self.select(|_, _| 0)
    }

    /// Return the selection in which everything has.
    pub fn everything(&self) -> Vec<usize> {
        self.select(|_, choice| choice.latest)
    }

    /// Make a selection by a closure, with fixed picks kept.
    fn select(&self, mut pick: impl FnMut(usize, &Choice) -> usize) -> Vec<usize> {
        let choices = self.choices.iter().zip(&self.pinned).enumerate();
        choices.map(|(index, (choice, pin))| pin.unwrap_or_else(|| pick(index, choice))).collect()
    }

    /// Return the number of combinations, at most `u64::MAX`.
    pub fn combinations(&self) -> u64 {
        let open = self.choices.iter().zip(&self.pinned).filter(|(_, pin)| pin.is_none());
        open.fold(1, |product: u64, (choice, _)| product.saturating_mul(choice.arity as u64))
    }

    /// Make the machine after the power failure, with this selection on disk: all live content is
    /// durable, and no lock is held.
    ///
    /// # Panics
    /// When the selection does not fit [`Crash::choices`].
    pub fn image(&self, selection: &[usize]) -> MemoryStorage {
        self.machine(self.disk(selection))
    }

    /// Do as [`Crash::image`], only for selections with a wanted fingerprint: most of the cost of a
    /// machine comes after that is known.
    ///
    /// # Panics
    /// As [`Crash::image`].
    pub fn image_if(
        &self,
        selection: &[usize],
        is_wanted: impl FnOnce(u64) -> bool,
    ) -> Option<MemoryStorage> {
        let disk = self.disk(selection);
        is_wanted(disk.fingerprint()).then(|| self.machine(disk))
    }

    fn machine(&self, disk: Disk) -> MemoryStorage {
        let disk = Arc::new(disk);
        let live = (*disk).clone();
        let journal = Journal {
            settings: self.settings.clone(),
            base: disk.clone(),
            events: Vec::new(),
            now_us: self.now_us,
            random: self.random,
        };
        MemoryStorage::born(&journal, disk, Vec::new(), live)
    }

    /// Return the image's fingerprint without building a storage.
    pub fn fingerprint(&self, selection: &[usize]) -> u64 {
        self.disk(selection).fingerprint()
    }

    fn disk(&self, selection: &[usize]) -> Disk {
        assert_eq!(selection.len(), self.choices.len(), "one pick for each choice");
        let mut tree = self.tree.clone();
        for (op, choice) in &self.ops {
            if choice.is_none_or(|choice| selection[choice] == 1) {
                op.apply(&mut tree);
            }
        }
        let mut files = self.sure.clone();
        for file in &self.open {
            files[file.number as usize] = Some(Arc::new(file.picked(selection)));
        }
        Disk { files, tree }
    }

    /// Describe for a failing test how this selection differs from everything.
    pub fn describe(&self, selection: &[usize]) -> String {
        let mut words = format!("power failed after event {}", self.time);
        for (choice, pick) in self.choices.iter().zip(selection) {
            if *pick != choice.latest {
                let Choice { path, what, arity, latest, .. } = choice;
                words += &format!("; {path} {what:?}: {pick} of {arity}, latest {latest}");
            }
        }
        words
    }

    /// Visit images: all combinations when there are at most `limit`, else `limit` of them drawn
    /// with `seed`. The sample always includes nothing, everything, each choice alone arrived, and
    /// each choice alone missing, even when these are more than `limit`.
    pub fn explore(
        &self,
        limit: u64,
        seed: u64,
        mut visit: impl FnMut(&[usize], MemoryStorage),
    ) -> Explored {
        let complete = self.combinations() <= limit;
        let mut images = 0;
        let mut visit = |selection: &[usize]| {
            visit(selection, self.image(selection));
            images += 1;
        };
        if complete {
            self.combine(&mut visit);
        } else {
            self.sample(limit, seed, &mut visit);
        }
        Explored { images, complete }
    }

    fn combine(&self, visit: &mut impl FnMut(&[usize])) {
        let mut selection = self.nothing();
        loop {
            visit(&selection);
            // Count up, the first open choice fastest; a wrapped one carries to the next.
            let open = (0..selection.len()).filter(|index| self.pinned[*index].is_none());
            let mut carried = true;
            for index in open {
                selection[index] = (selection[index] + 1) % self.choices[index].arity;
                carried = selection[index] == 0;
                if !carried {
                    break;
                }
            }
            if carried {
                return;
            }
        }
    }

    fn sample(&self, limit: u64, seed: u64, visit: &mut impl FnMut(&[usize])) {
        visit(&self.nothing());
        visit(&self.everything());
        let mut visited = 2;
        for (one, _) in self.pinned.iter().enumerate().filter(|(_, pin)| pin.is_none()) {
            // Pick 0 is the latest if a sector was changed and changed back.
            let other = |choice: &Choice| if choice.latest == 0 { 1 } else { choice.latest };
            visit(&self.select(|index, choice| if index == one { other(choice) } else { 0 }));
            let lost = |choice: &Choice| usize::from(choice.latest == 0);
            visit(&self.select(
                |index, choice| {
                    if index == one { lost(choice) } else { choice.latest }
                },
            ));
            visited += 2;
        }
        let mut random = Random(seed);
        for _ in visited..limit {
            // Some samples lose nearly everything, some nearly nothing; most toss a coin.
            let bias = [128, 128, 16, 240][random.below(4)];
            visit(&self.select(|_, choice| match random.below(256) < bias {
                true if random.below(2) == 0 => random.below(choice.arity),
                true => choice.latest,
                false => 0,
            }));
        }
    }
}

impl std::fmt::Debug for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crash(after event {}, {} choices)", self.time, self.choices.len())
    }
}

impl OpenChoices {
    fn picked(&self, selection: &[usize]) -> DiskFile {
        let sectors = self.sectors.iter();
        let picks =
            sectors.map(|(choice, number, picks)| (*number, picks[selection[*choice]].clone()));
        let len = match &self.len {
            Some((choice, lens)) => lens[selection[*choice]],
            None => self.base.len,
        };
        self.base.with(picks.collect(), len)
    }
}

/// Random numbers for samples.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0, 0) % end as u64) as usize
    }
}
