//! Campaigns: cases on all cores, each watched for panics, aborts, hangs and unbounded memory.
//!
//! Owns how a campaign runs: a *worker* process runs the cases, and this program watches it. The
//! worker catches a panic. It ends itself when a case takes longer than `HANG`. An abort, a signal
//! or an allocation beyond `MEMORY` kills it. The number of the case is known each time, and is
//! enough to replay it. A file keeps the progress, so an interrupted campaign resumes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Value, json};

use crate::arguments::Arguments;

/// Longest time of one case: cases take milliseconds.
const HANG: Duration = Duration::from_secs(60);
/// Default of [`Plan::room`]. Threads of stores end a moment after their store, and maps are as
/// long as files may get.
const MEMORY: u64 = 1 << 30;
/// Most memory that a worker may have used, in bytes.
const PEAK: u64 = 512 << 20;
/// Cases between two writes of the file of progress.
const ROUND: u64 = 16_384;
/// Most findings to print; more would repeat them.
const MOST_TOLD: usize = 200;
/// Names the directory in which a worker notes its current cases.
const WORKER: &str = "FALAJ_HOSTILE_WORKER";

/// The plan of a campaign.
#[derive(Debug)]
pub struct Plan {
    pub name: String,
    /// Cases, by number.
    pub from: u64,
    pub to: u64,
    pub threads: usize,
    /// Stop after this time, whatever is left.
    pub seconds: Option<f64>,
    /// File of progress.
    pub state: Option<PathBuf>,
    /// File for the result.
    pub json: Option<PathBuf>,
    /// Data that the numbers of cases depend on and a later run cannot find out again; kept with
    /// the progress, for [`Plan::kept`].
    pub basis: Value,
    /// Address space that cases may take beyond what was in use at the beginning, in bytes.
    pub room: u64,
}

/// Options of every campaign.
pub const OPTIONS: [&str; 7] = ["from", "to", "threads", "seconds", "state", "json", "seed"];

impl Plan {
    /// The plan that the options give, with a default number of cases.
    pub fn of(name: String, arguments: &Arguments, cases: u64) -> Result<Self, String> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(Self {
            name,
            from: arguments.get("from", 0)?,
            to: arguments.get("to", cases)?,
            threads: arguments.get("threads", cores)?,
            seconds: arguments.maybe("seconds")?,
            state: arguments.path("state"),
            json: arguments.path("json"),
            basis: Value::Null,
            room: MEMORY,
        })
    }

    /// Read the `basis` of an earlier run, if that left progress in this file.
    pub fn kept(state: Option<&Path>) -> Result<Option<Value>, String> {
        let told = state.map(progress).transpose()?.flatten();
        Ok(told.map(|mut told| told["basis"].take()).filter(|basis| !basis.is_null()))
    }
}

/// The progress that an earlier run left, if any.
fn progress(path: &Path) -> Result<Option<Value>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map(Some).map_err(|e| format!("{}: {e}", path.display()))
}

/// Result of a case: a word for the statistics, or the finding.
pub type Outcome = Result<String, String>;

/// Counts and findings.
#[derive(Debug, Default)]
struct Tally {
    next: u64,
    cases: u64,
    seconds: f64,
    outcomes: BTreeMap<String, u64>,
    findings: Vec<String>,
}

impl Tally {
    /// Resume the tally of an earlier run of the same plan.
    fn resume(plan: &Plan) -> Result<Self, String> {
        let fresh = Self { next: plan.from, ..Self::default() };
        let Some(path) = &plan.state else { return Ok(fresh) };
        let Some(told) = progress(path)? else { return Ok(fresh) };
        let same = told["name"] == json!(plan.name) && told["from"] == json!(plan.from);
        if !same || told["to"] != json!(plan.to) || told["basis"] != plan.basis {
            return Err(format!("{} is of another campaign: {told}", path.display()));
        }
        let outcomes = told["outcomes"].as_object().into_iter().flatten();
        let texts = told["findings"].as_array().into_iter().flatten();
        Ok(Self {
            next: told["next"].as_u64().unwrap_or(plan.from),
            cases: told["cases"].as_u64().unwrap_or(0),
            seconds: told["seconds"].as_f64().unwrap_or(0.0),
            outcomes: outcomes.map(|(k, v)| (k.clone(), v.as_u64().unwrap_or(0))).collect(),
            findings: texts.filter_map(|text| text.as_str().map(Into::into)).collect(),
        })
    }

    fn to_json(&self, plan: &Plan) -> Value {
        json!({
            "name": plan.name, "from": plan.from, "to": plan.to, "next": self.next,
            "cases": self.cases, "seconds": self.seconds, "outcomes": self.outcomes,
            "findings": self.findings, "peak_bytes": peak(), "basis": plan.basis,
        })
    }

    fn add(&mut self, case: u64, outcome: Outcome) {
        self.cases += 1;
        match outcome {
            Ok(word) => *self.outcomes.entry(word).or_default() += 1,
            Err(what) => {
                *self.outcomes.entry("WRONG".into()).or_default() += 1;
                if self.findings.len() < MOST_TOLD {
                    self.findings.push(format!("case {case}: {what}"));
                }
            }
        }
    }
}

/// Write a file that is there whole or not at all.
fn put(path: &Path, value: &Value) -> Result<(), String> {
    let half = path.with_extension("tmp");
    std::fs::write(&half, format!("{value:#}\n"))
        .and_then(|()| std::fs::rename(&half, path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// A file in which one thread notes its current case, for the watcher.
struct Desk {
    case: AtomicU64,
    begun: AtomicU64,
    note: Option<File>,
}

impl Desk {
    fn new(thread: usize) -> Self {
        let note = std::env::var_os(WORKER).map(|dir| Path::new(&dir).join(thread.to_string()));
        let note = note.map(|path| File::create(path).unwrap());
        Self { case: AtomicU64::new(0), begun: AtomicU64::new(u64::MAX), note }
    }

    fn begin(&self, case: u64, start: Instant) {
        self.case.store(case, SeqCst);
        self.begun.store(start.elapsed().as_millis() as u64, SeqCst);
        if let Some(note) = &self.note {
            if let Err(error) = note.write_all_at(&case.to_le_bytes(), 0) {
                // A panic here would look like a case without an end.
                eprintln!("case {case} cannot be noted in the temporary directory: {error}");
                std::process::exit(2);
            }
        }
    }

    fn end(&self) {
        self.begun.store(u64::MAX, SeqCst);
    }

    fn hangs(&self, start: Instant) -> bool {
        let begun = self.begun.load(SeqCst);
        (start.elapsed().as_millis() as u64).saturating_sub(begun) > HANG.as_millis() as u64
            && begun != u64::MAX
    }
}

/// Run all cases; true if nothing was found. Each thread runs its cases on a bench of its own.
pub fn run<B: Send>(
    plan: &Plan,
    bench: impl Fn() -> B + Sync,
    case: impl Fn(&mut B, u64) -> Outcome + Sync,
) -> Result<bool, String> {
    let start = Instant::now();
    let mut tally = Tally::resume(plan)?;
    let before = tally.seconds;
    let desks: Vec<Desk> = (0..plan.threads).map(Desk::new).collect();
    let benches: Vec<Mutex<B>> = desks.iter().map(|_| Mutex::new(bench())).collect();
    limit_memory(plan.room);
    let over = AtomicBool::new(false);
    let doing = Doing { bench: &bench, case: &case };
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&desks, start, &over));
        // Panics are reported with their case, at the end.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let done = rounds(plan, &mut tally, (start, before), &desks, &benches, &doing);
        std::panic::set_hook(hook);
        over.store(true, SeqCst);
        done
    })?;
    finish(plan, &mut tally)
}

/// How a bench is made, and how a case runs on it.
struct Doing<'a, B> {
    bench: &'a (dyn Fn() -> B + Sync),
    case: &'a (dyn Fn(&mut B, u64) -> Outcome + Sync),
}

fn rounds<B: Send>(
    plan: &Plan,
    tally: &mut Tally,
    (start, before): (Instant, f64),
    desks: &[Desk],
    benches: &[Mutex<B>],
    doing: &Doing<'_, B>,
) -> Result<(), String> {
    let left = || plan.seconds.is_none_or(|most| start.elapsed().as_secs_f64() < most);
    while tally.next < plan.to {
        let until = plan.to.min(tally.next + ROUND);
        let next = AtomicU64::new(tally.next);
        let shared = Mutex::new(&mut *tally);
        std::thread::scope(|scope| {
            for (desk, bench) in desks.iter().zip(benches) {
                let (next, shared, left) = (&next, &shared, &left);
                scope.spawn(move || {
                    let mut bench = bench.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut own = Tally::default();
                    loop {
                        let number = next.fetch_add(1, SeqCst);
                        if number >= until {
                            break;
                        }
                        desk.begin(number, start);
                        let outcome = guarded(&mut *bench, number, doing);
                        desk.end();
                        own.add(number, outcome);
                        // Not before the first case: however busy the machine is, something runs.
                        if !left() {
                            break;
                        }
                    }
                    merge(&mut shared.lock().unwrap(), own);
                });
            }
        });
        tally.next = next.load(SeqCst).min(until);
        tally.seconds = before + start.elapsed().as_secs_f64();
        if let Some(path) = &plan.state {
            put(path, &tally.to_json(plan))?;
        }
        if plan.to - plan.from > ROUND {
            let (done, all) = (tally.next - plan.from, plan.to - plan.from);
            eprintln!("{}: {done} of {all}, {:.0} s", plan.name, tally.seconds);
        }
        if !left() {
            break;
        }
    }
    Ok(())
}

/// Report a panic as a finding; its bench is not used again.
fn guarded<B>(bench: &mut B, number: u64, doing: &Doing<'_, B>) -> Outcome {
    let caught = catch_unwind(AssertUnwindSafe(|| (doing.case)(bench, number)));
    caught.unwrap_or_else(|panic| {
        *bench = (doing.bench)();
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", said.unwrap_or_default()))
    })
}

fn merge(all: &mut Tally, own: Tally) {
    all.cases += own.cases;
    for (word, count) in own.outcomes {
        *all.outcomes.entry(word).or_default() += count;
    }
    let room = MOST_TOLD.saturating_sub(all.findings.len());
    all.findings.extend(own.findings.into_iter().take(room));
}

fn watch(desks: &[Desk], start: Instant, over: &AtomicBool) {
    while !over.load(SeqCst) {
        // sleep: the watcher looks for progress that does not come
        std::thread::sleep(Duration::from_millis(20));
        if let Some(desk) = desks.iter().find(|desk| desk.hangs(start)) {
            eprintln!("case {} does not end", desk.case.load(SeqCst));
            std::process::exit(4);
        }
    }
}

fn finish(plan: &Plan, tally: &mut Tally) -> Result<bool, String> {
    if peak() > PEAK {
        tally.findings.push(format!("it took {} MiB of memory", peak() >> 20));
    }
    for finding in &tally.findings {
        eprintln!("{}: {finding}", plan.name);
    }
    if let Some(path) = &plan.json {
        put(path, &tally.to_json(plan))?;
    }
    println!(
        "{}: {} cases ({}..{} of {}..{}), {:.1} s, {} MiB at most: {:?}",
        plan.name,
        tally.cases,
        plan.from,
        tally.next,
        plan.from,
        plan.to,
        tally.seconds,
        peak() >> 20,
        tally.outcomes
    );
    if tally.cases == 0 && plan.to > plan.from {
        return Err("no case was run".into());
    }
    Ok(tally.findings.is_empty())
}

/// A line of `/proc/self/status` in kB, as bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok());
    kib.unwrap_or(0u64) << 10
}

fn peak() -> u64 {
    status("VmHWM:")
}

fn limit_memory(room: u64) {
    if std::env::var_os(WORKER).is_some() {
        let most = status("VmSize:") + room;
        let limit = Rlimit { current: Some(most), maximum: None };
        setrlimit(Resource::As, limit).unwrap();
    }
}

/// Run this program again as a worker and watch it; `None` in the worker itself.
pub fn supervise() -> Option<ExitCode> {
    if std::env::var_os(WORKER).is_some() {
        return None;
    }
    let desks = std::env::temp_dir().join(format!("falaj-hostile-{}", std::process::id()));
    std::fs::create_dir_all(&desks).unwrap();
    let mut worker = Command::new(std::env::current_exe().unwrap());
    // Arenas and stacks of each store's threads would take most of the address space.
    worker.env("MALLOC_ARENA_MAX", "2").env("RUST_MIN_STACK", "524288");
    // Memory that a case frees is kept for the next one: giving it to the kernel and back took a
    // tenth of the time.
    worker.env("MALLOC_TRIM_THRESHOLD_", "33554432").env("MALLOC_MMAP_THRESHOLD_", "4194304");
    worker.args(std::env::args_os().skip(1)).env(WORKER, &desks);
    let ended = worker.status().unwrap();
    let code = match ended.code() {
        Some(code) => code as u8,
        None => {
            tell_death(&desks, ended);
            5
        }
    };
    let _ = std::fs::remove_dir_all(&desks);
    Some(ExitCode::from(code))
}

fn tell_death(desks: &Path, ended: ExitStatus) {
    eprintln!("the worker died ({ended}); it was running one of these cases:");
    for desk in std::fs::read_dir(desks).unwrap().flatten() {
        let bytes = std::fs::read(desk.path()).unwrap_or_default();
        if let Ok(case) = <[u8; 8]>::try_from(bytes) {
            eprintln!(
                "  --from {0} --to {1}",
                u64::from_le_bytes(case),
                u64::from_le_bytes(case) + 1
            );
        }
    }
}
