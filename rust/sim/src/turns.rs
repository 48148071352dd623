//! Turns: which of several concurrent processes runs.
//!
//! Each process is a thread, and only the one whose turn it is runs. The storage asks after each
//! step whether that is still so. So a seed decides the interleaving, and time does not. One of the
//! processes may die at a step: it does not run again while the round is judged. Threads of the
//! engine itself run freely.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use falaj::internals::error::{Error, Result};
use falaj::internals::storage::Storage;
use falaj_twin::memory::MemoryStorage;

use crate::explore::guarded;
use crate::random::Random;

/// Steps after which a process counts as endless.
const ENDLESS: usize = 100_000;
/// Lengths of a turn, in steps.
const TURNS: [usize; 8] = [1, 1, 2, 3, 5, 8, 20, 60];

thread_local! {
    /// The process that this thread plays.
    static SEATED: Cell<Option<usize>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runs,
    Dead,
    Done,
}

struct Turn {
    /// The process that runs; none when all are done, or when all may run.
    whose: Option<usize>,
    left: usize,
    steps: Vec<usize>,
    status: Vec<Status>,
    released: bool,
    random: Random,
}

/// A process that may die.
pub struct Mortal {
    storage: MemoryStorage,
    told: Box<dyn Fn() + Send + Sync>,
}

impl Mortal {
    /// The process of a storage; `told` is called when it dies.
    pub fn new(storage: &MemoryStorage, told: impl Fn() + Send + Sync + 'static) -> Self {
        Self { storage: storage.clone(), told: Box::new(told) }
    }
}

/// Which process runs.
pub struct Turns {
    turn: Mutex<Turn>,
    changed: Condvar,
    mortals: Vec<Mortal>,
    /// The process that dies, and after how many of its own steps.
    death: Option<(usize, usize)>,
}

/// Lock a mutex, even after a panic of its holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    /// Turns of so many processes, drawn from a seed; one process may die after one of its steps.
    pub fn new(seed: u64, mortals: Vec<Mortal>, death: Option<(usize, usize)>) -> Self {
        let count = mortals.len();
        let turn = Turn {
            whose: Some(0),
            left: 1,
            steps: vec![0; count],
            status: vec![Status::Runs; count],
            released: false,
            random: Random::new(!seed),
        };
        Self { turn: Mutex::new(turn), changed: Condvar::new(), mortals, death }
    }

    /// Note that a process did a step, or is about to: perhaps the turn passes on.
    ///
    /// # Panics
    /// In the thread of a process that never ends.
    pub fn step(&self, process: u64) {
        let number = |mortal: &Mortal| mortal.storage.process_number();
        let seat = self.mortals.iter().position(|mortal| number(mortal) == process);
        let Some(me) = seat.filter(|seat| SEATED.get() == Some(*seat)) else { return };
        let mut turn = lock(&self.turn);
        if turn.released || turn.status[me] != Status::Runs {
            return;
        }
        turn.steps[me] += 1;
        if turn.steps[me] % ENDLESS == 0 && !std::thread::panicking() {
            drop(turn);
            panic!("no end after {ENDLESS} calls");
        }
        if self.death == Some((me, turn.steps[me])) {
            turn.status[me] = Status::Dead;
            self.mortals[me].storage.kill();
            (self.mortals[me].told)();
            self.pass(&mut turn);
        } else {
            turn.left = turn.left.saturating_sub(1);
            if turn.left == 0 {
                self.pass(&mut turn);
            }
        }
        self.wait(me, turn);
    }

    /// Give the turn to one of the processes that can run.
    fn pass(&self, turn: &mut Turn) {
        let runs = |i: &usize| turn.status[*i] == Status::Runs;
        let ready: Vec<_> = (0..turn.status.len()).filter(runs).collect();
        turn.whose = if ready.is_empty() { None } else { Some(*turn.random.pick(&ready)) };
        turn.left = *turn.random.pick(&TURNS);
        self.changed.notify_all();
    }

    fn wait(&self, me: usize, mut turn: MutexGuard<'_, Turn>) {
        while !turn.released && turn.whose != Some(me) {
            turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Play a process on this thread from here on, once it is its turn.
    pub fn sit_down(&self, me: usize) {
        SEATED.set(Some(me));
        self.wait(me, lock(&self.turn));
    }

    /// Repeat a call until no living process is in the way.
    ///
    /// # Errors
    /// The call's own errors, except `LockTimeout`.
    pub fn patiently<T>(&self, me: usize, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(Error::LockTimeout { .. }) if !self.is_dead(me) => self.step_aside(me),
                done => return done,
            }
        }
    }

    /// Pass the turn: another process has what this one needs.
    fn step_aside(&self, me: usize) {
        let mut turn = lock(&self.turn);
        let others = (0..turn.status.len()).filter(|i| *i != me);
        let others: Vec<_> = others.filter(|i| turn.status[*i] == Status::Runs).collect();
        if turn.released || turn.status[me] != Status::Runs || others.is_empty() {
            return;
        }
        turn.whose = Some(*turn.random.pick(&others));
        turn.left = *turn.random.pick(&TURNS);
        self.changed.notify_all();
        self.wait(me, turn);
    }

    /// Whether a process died.
    pub fn is_dead(&self, me: usize) -> bool {
        lock(&self.turn).status[me] == Status::Dead
    }

    /// Run a process in its turns, until it ends or dies and drops all that it holds.
    ///
    /// A dead process's result is ignored; any other error goes to `says`.
    pub fn play<H>(
        &self,
        me: usize,
        mut hand: H,
        play: impl FnOnce(&mut H) -> std::result::Result<(), String>,
        says: impl FnOnce(String),
    ) {
        self.sit_down(me);
        let played = guarded(|| play(&mut hand));
        let gone = guarded(|| {
            drop(hand);
            Ok(())
        });
        if let (Err(what), false) = (played.and(gone), self.is_dead(me)) {
            says(what);
        }
        self.leave(me);
    }

    /// Note that a process is done.
    pub fn leave(&self, me: usize) {
        let mut turn = lock(&self.turn);
        if turn.status[me] == Status::Runs {
            turn.status[me] = Status::Done;
            self.pass(&mut turn);
        }
    }

    /// Wait until no process runs any more.
    pub fn await_all(&self) {
        let mut turn = lock(&self.turn);
        while turn.whose.is_some() {
            turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Let all processes run freely from here on.
    pub fn release(&self) {
        lock(&self.turn).released = true;
        self.changed.notify_all();
    }
}
