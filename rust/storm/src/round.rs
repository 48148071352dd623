//! One round of the kill storm: a store from its creation to its last check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj::internals::log::Reading;
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;
use rustix::process::Pid;

use crate::acks::{Acks, CALLS, FORKS, RECORDS, REFUSED, STOP, Seen, TRIMS};
use crate::check::shared::{check as check_shared, is_empty};
use crate::check::{Checker, Loss, told};
use crate::payload::Pool;
use crate::plan::{Plan, Start, trap};
use crate::processes::{News, Workers};
use crate::random::Random;
use crate::shared::{COUNTS, Shared};
use crate::system::interrupted;
use crate::task::{Role, Snap, Task};
use crate::totals::Totals;

const TICK: Duration = Duration::from_millis(4);
/// A round stalls when no worker was stopped for so long, and yet nothing was acknowledged.
const STALL: Duration = Duration::from_secs(40);
/// Longest time of a round that does not reach its numbers.
const ROUND: Duration = Duration::from_secs(60);
/// How long a stalled worker is looked at, to see whether it gets on.
const LOOK: Duration = Duration::from_secs(2);

/// A round that is running.
pub struct Round<'a> {
    plan: Plan,
    seed: u64,
    dir: PathBuf,
    random: Random,
    workers: Workers,
    checker: Checker,
    writers: BTreeMap<u32, Acks>,
    readers: Vec<Seen>,
    due: Vec<(Instant, Role, u64)>,
    next_id: u32,
    acknowledged: u64,
    kills: u64,
    totals: &'a mut Totals,
}

/// Run a round in a directory of its own; the error is the finding.
pub fn run(
    plan: Plan,
    seed: u64,
    dir: &Path,
    python: Option<(PathBuf, PathBuf)>,
    totals: &mut Totals,
) -> Result<(), String> {
    let failed = |e: std::io::Error| e.to_string();
    for name in ["accounts", "said"] {
        std::fs::create_dir_all(dir.join(name)).map_err(failed)?;
    }
    std::fs::write(dir.join("pool"), Pool::new(seed).bytes()).map_err(failed)?;
    let workers = Workers::new(&dir.join("said"), python).map_err(failed)?;
    let checker = Checker::new(&plan.layout, seed);
    let mut round = Round {
        plan,
        seed,
        dir: dir.into(),
        random: Random::new(seed, 1),
        workers,
        checker,
        writers: BTreeMap::new(),
        readers: Vec::new(),
        due: Vec::new(),
        next_id: 1,
        acknowledged: 0,
        kills: 0,
        totals,
    };
    let now = Instant::now();
    let wanted = round.plan.roles.iter().copied().zip(round.plan.syncs.iter().copied());
    round.due = wanted.map(|(role, sync)| (now, role, sync)).collect();
    round.storm()?;
    round.end()
}

impl Round<'_> {
    fn storm(&mut self) -> Result<(), String> {
        let began = Instant::now();
        let mut kill_at = began + self.soon(self.plan.kill_ms);
        let mut stop_at = began + self.soon(self.plan.stop_ms);
        let (mut progress, mut progressed) = (0, began);
        while !self.is_done(began) && !interrupted() {
            let now = Instant::now();
            self.hear(false)?;
            self.start_due(now)?;
            let woken = self.workers.wake_stopped(now);
            self.note_kills("stopped", woken);
            if now >= kill_at {
                // Killed often enough: now let them append.
                let rest = if self.kills < self.plan.kills { 1 } else { 10 };
                kill_at = now + self.soon(self.plan.kill_ms * rest);
                self.kill_somebody()?;
            }
            if now >= stop_at {
                stop_at = now + self.soon(self.plan.stop_ms);
                self.stop_somebody(now);
            }
            let records = self.records();
            if records != progress {
                (progress, progressed) = (records, now);
            } else if progressed.elapsed() > STALL {
                return Err(self.describe_stall());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn is_done(&self, began: Instant) -> bool {
        let reached = self.kills >= self.plan.kills && self.records() >= self.plan.records;
        reached || began.elapsed() > ROUND
    }

    fn records(&self) -> u64 {
        self.acknowledged + self.writers.values().map(|acks| acks.word(RECORDS)).sum::<u64>()
    }

    fn soon(&mut self, mean_ms: u64) -> Duration {
        Duration::from_millis(self.random.below(2 * mean_ms + 1))
    }

    /// Note that a worker ended or stopped: count it, and start a successor soon.
    fn hear(&mut self, is_end: bool) -> Result<(), String> {
        for (task, news) in self.workers.news().map_err(|e| e.to_string())? {
            self.take(&task, news, is_end)?;
        }
        Ok(())
    }

    fn take(&mut self, task: &Task, news: News, is_end: bool) -> Result<(), String> {
        match news {
            News::Failed(said) => return Err(said),
            News::TrappedStopped(trap) => {
                self.totals.at_point(trap.point.name());
                self.totals.add("stops_at_points", 1);
                let until = Instant::now() + self.soon(100);
                let then_kill = self.random.chance(1, 2);
                let worker = self.workers.alive.iter_mut().find(|worker| worker.task.id == task.id);
                if let Some(worker) = worker {
                    worker.stopped = Some((until, then_kill));
                }
                return Ok(());
            }
            News::Trapped(trap) => {
                self.totals.at_point(trap.point.name());
                self.note_kills("at_points", 1);
                self.totals.add("orphans_at_points", u64::from(trap.snap == Snap::Orphans));
            }
            News::Killed | News::Done => {}
        }
        if !is_end {
            let after = Instant::now() + self.soon(20);
            self.due.push((after, task.role, task.sync));
        }
        Ok(())
    }

    fn note_kills(&mut self, kind: &str, kills: u64) {
        self.kills += kills;
        self.totals.add("kills", kills);
        self.totals.add(&format!("kills_{kind}"), kills);
    }

    fn start_due(&mut self, now: Instant) -> Result<(), String> {
        let mut i = 0;
        while i < self.due.len() {
            if self.due[i].0 > now {
                i += 1;
                continue;
            }
            let (_, role, sync) = self.due.swap_remove(i);
            let others = self.workers.alive.iter().any(|worker| worker.task.role.writes());
            let start = match (self.plan.layout.store.join("falaj.json").exists(), others) {
                (false, _) => Start::Creating,
                (true, false) => Start::Alone,
                (true, true) => Start::Among,
            };
            let trap = trap(&mut self.random, role, start);
            self.start(role, sync, trap, 0)?;
        }
        Ok(())
    }

    fn start(
        &mut self,
        role: Role,
        sync: u64,
        trap: Option<crate::task::Trap>,
        calls: u64,
    ) -> Result<(), String> {
        let id = self.next_id;
        self.next_id += 1;
        let account = self.dir.join("accounts").join(id.to_string());
        let failed = |e: std::io::Error| e.to_string();
        let task = Task {
            role,
            layout: self.plan.layout.clone(),
            id,
            seed: self.seed,
            account: account.clone(),
            pool: self.dir.join("pool"),
            sync,
            trap,
            fork_ms: if role.writes() { self.plan.fork_ms } else { 0 },
            calls,
            tolerant: false,
            pread: self.random.chance(1, 4),
            may_trim: if role == Role::Writer { self.checker.may_trim() } else { Vec::new() },
            parent: std::process::id(),
        };
        if role.writes() {
            // A churner's account has no lines, but a word that stops it.
            self.writers.insert(id, Acks::open(&account).map_err(failed)?);
        } else {
            self.readers.push(Seen::open(&account).map_err(failed)?);
        }
        self.workers.start(task).map_err(failed)
    }

    fn kill_somebody(&mut self) -> Result<(), String> {
        if self.random.chance(self.plan.massacres, 100) {
            return self.massacre();
        }
        let alive = self.workers.alive.len() as u64;
        if alive > 0 {
            let victim = self.random.below(alive) as usize;
            if !self.workers.alive[victim].killed {
                self.workers.kill(victim);
                self.note_kills("at_random", 1);
            }
        }
        Ok(())
    }

    fn stop_somebody(&mut self, now: Instant) {
        let alive = self.workers.alive.len() as u64;
        if alive > 0 {
            let i = self.random.below(alive) as usize;
            let (until, then_kill) = (now + self.soon(150), self.random.chance(1, 2));
            self.workers.stop(i, until, then_kill);
            self.totals.add("stops", 1);
        }
    }

    /// Kill all writers at once, and look at what they leave before recovery.
    fn massacre(&mut self) -> Result<(), String> {
        let mut kills = 0;
        for i in 0..self.workers.alive.len() {
            let worker = &self.workers.alive[i];
            if worker.task.role.writes() && !worker.killed {
                self.workers.kill(i);
                kills += 1;
            }
        }
        self.note_kills("of_all_writers", kills);
        self.totals.add("massacres", 1);
        while self.workers.alive.iter().any(|worker| worker.task.role.writes()) {
            self.hear(false)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        self.check("before recovery")
    }

    /// Compare the store with the accounts, once all writers have ended.
    fn check(&mut self, when: &str) -> Result<(), String> {
        let reading = if self.random.chance(1, 4) { Reading::Pread } else { Reading::Map };
        for (id, acks) in &self.writers {
            self.totals.add("calls", acks.word(CALLS));
            self.totals.add("refused", acks.word(REFUSED));
            self.totals.add("forks", acks.word(FORKS));
            self.totals.add("trims", acks.word(TRIMS));
            self.acknowledged += acks.word(RECORDS);
            let _ = std::fs::remove_file(self.dir.join("said").join(format!("{id}.writer")));
        }
        let told = told(&self.writers, &self.plan.layout);
        let found = self.checker.check(&self.writers, &told, Loss::Nothing, reading);
        let found = found.map_err(|e| format!("{when}: {e}"))?;
        self.totals.add("acknowledged", found.acknowledged);
        self.totals.add("records_checked", found.records);
        self.totals.add("unacknowledged_but_there", found.unacknowledged);
        self.totals.add("checks", 1);
        for id in std::mem::take(&mut self.writers).into_keys() {
            let _ = std::fs::remove_file(self.dir.join("accounts").join(id.to_string()));
        }
        Ok(())
    }

    /// End the round, normally or by kills; then check, append with one more writer, verify, and
    /// read all again.
    fn end(&mut self) -> Result<(), String> {
        if interrupted() {
            return Ok(());
        }
        self.due.clear();
        self.workers.wake_all();
        if self.random.chance(1, 2) {
            self.close_all()?;
            self.totals.add("orderly_ends", 1);
        } else {
            for (task, news) in self.workers.kill_all().map_err(|e| e.to_string())? {
                self.take(&task, news, true)?;
            }
        }
        self.check("at the end")?;
        self.start(Role::Writer, 2, None, 20)?;
        self.wait_for_all("the last writer")?;
        self.check("after the last writer")?;
        self.check_shared()?;
        self.verify()?;
        let compared = self.checker.check_again(&self.readers, Reading::Map)?;
        self.totals.add("reader_blocks_compared", compared);
        self.totals.add("records_read", self.readers.iter().map(Seen::records).sum());
        Ok(())
    }

    /// Let a last sharer finish what is left of the shared work, and check that all is done.
    fn check_shared(&mut self) -> Result<(), String> {
        let store = self.plan.layout.store.clone();
        let failed = |e: &dyn std::fmt::Display| format!("what was shared: {e}");
        if !self.plan.roles.contains(&Role::Sharer) || is_empty(&store).map_err(|e| failed(&e))? {
            return Ok(());
        }
        self.start(Role::Sharer, 0, None, 1)?;
        self.wait_for_all("the last sharer")?;
        let shared = Shared::open(&self.dir.join("accounts"), 0).map_err(|e| failed(&e))?;
        check_shared(&store, &shared).map_err(|e| failed(&e))?;
        COUNTS.iter().enumerate().for_each(|(i, name)| self.totals.add(name, shared.count(i)));
        self.check("after the last sharer")
    }

    fn close_all(&mut self) -> Result<(), String> {
        for acks in self.writers.values_mut() {
            acks.set_word(STOP, 1);
        }
        self.readers.iter_mut().for_each(Seen::stop);
        self.wait_for_all("closing")
    }

    fn wait_for_all(&mut self, what: &str) -> Result<(), String> {
        let began = Instant::now();
        while !self.workers.alive.is_empty() {
            self.hear(true)?;
            self.workers.wake_stopped(Instant::now());
            if began.elapsed() > STALL {
                return Err(format!("{what} does not end: {}", self.describe_stall()));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<(), String> {
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
        let found = falaj::internals::store::verify(
            &storage,
            &self.plan.layout.store,
            None,
            &mut |_, _| Ok(()),
        );
        let found = found.map_err(|e| e.to_string())?;
        if found.is_sound() {
            self.totals.add("verified", 1);
            return Ok(());
        }
        let all: Vec<String> = found.all_findings().map(|finding| format!("{finding:?}")).collect();
        Err(format!("verification: {}", all.join("\n")))
    }

    /// Say of each living worker where it is, and whether it gets on.
    fn describe_stall(&self) -> String {
        let mut said = format!("nothing was acknowledged for {} s; alive:", STALL.as_secs());
        let read: Vec<_> = self.readers.iter().map(Seen::records).collect();
        let used: Vec<_> = self.workers.alive.iter().map(|worker| used_ticks(worker.pid)).collect();
        std::thread::sleep(LOOK);
        for (worker, used) in self.workers.alive.iter().zip(used) {
            let pid = worker.pid.as_raw_nonzero();
            let proc = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
            let (wchan, stack) = (proc("wchan").unwrap_or_default(), proc("stack"));
            said += &format!(
                "\n{} {} (process {pid}, stopped {:?}, killed {}) in {wchan}, {used} ticks of \
                 processor and {} more within {} s\n{}",
                worker.task.role.name(),
                worker.task.id,
                worker.stopped,
                worker.killed,
                used_ticks(worker.pid).saturating_sub(used),
                LOOK.as_secs(),
                stack.unwrap_or_default()
            );
        }
        for (reader, before) in self.readers.iter().zip(read) {
            said += &format!("\na reader has read {before} records, and now {}", reader.records());
        }
        said
    }
}

/// Processor time of a process, in ticks of the kernel; 0 if that cannot be read.
fn used_ticks(pid: Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let stat = stat.unwrap_or_default();
    // Its name, in brackets, may have spaces.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).map(|word| word.parse().unwrap_or(0));
    ticks.sum()
}
