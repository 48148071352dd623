//! A short storm and a few cuts on every run of the tests, and deaths that a storm once found.
//!
//! `make test-proof` runs the large ones; these show that they work.
#![cfg(falaj_failpoints)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use falaj::internals::store::{Store, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use serde_json::{Value, json};

const STORM: &str = env!("CARGO_BIN_EXE_falaj-storm");
/// Long enough for a busy machine; no wait here takes so long when all is well.
const LONG: Duration = Duration::from_secs(60);

/// A test's own directory, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn storm(args: &[&str], dir: &Path) -> (Output, Value) {
    let summary = dir.join("summary.json");
    let mut command = Command::new(STORM);
    command.args(args).arg("--dir").arg(dir).arg("--json").arg(&summary);
    if let Some(python) = python() {
        command.arg("--python").arg(python);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = std::fs::read_to_string(&summary).unwrap_or_default();
    (output, serde_json::from_str(&text).unwrap_or_default())
}

/// The interpreter of the Makefile's environment, if the package is built for it.
fn python() -> Option<String> {
    let python = std::env::var("PYO3_PYTHON").ok()?;
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut asked = Command::new(&python);
    asked.args(["-c", "import falaj"]).current_dir(package).stderr(Stdio::null());
    if asked.status().is_ok_and(|status| status.success()) {
        return Some(python);
    }
    not_run("workers in Python", "the package is not built yet");
    None
}

/// Report that something did not run, where the harness cannot swallow it.
fn not_run(what: &str, why: &str) {
    let line = format!("\n*** NOT RUN: {what}: {why} ***\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}\n{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[test]
fn processes_that_are_killed_all_the_time_lose_nothing() {
    let scratch = Scratch::new("kill");
    let args = ["kill", "--kills", "20", "--records", "5000", "--seed", "20261121"];
    let (output, summary) = storm(&args, &scratch.0);
    assert!(output.status.success(), "{}", said(&output));
    assert!(summary["kills"].as_u64() >= Some(20), "{summary}");
    assert!(summary["acknowledged"].as_u64() >= Some(5000), "{summary}");
    assert!(summary["checks"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn power_cuts_take_a_suffix_and_nothing_that_was_durable() {
    let scratch = Scratch::new("power");
    let (output, summary) = storm(&["power", "--cuts", "4", "--seed", "20261121"], &scratch.0);
    if output.status.code() == Some(77) {
        return not_run("power cuts", &said(&output));
    }
    assert!(output.status.success(), "{}", said(&output));
    assert!(summary["cuts"].as_u64() >= Some(4), "{summary}");
    for (kind, why) in summary["skipped"].as_object().unwrap() {
        not_run(&format!("power cuts on {kind}"), &why.to_string());
    }
}

/// A worker of the storm, started by hand.
struct Worker(Child);

impl Worker {
    fn start(dir: &Path, id: u32, pwrite: bool, trap: &Value) -> Self {
        Self::play("writer", dir, id, pwrite, trap)
    }

    fn play(role: &str, dir: &Path, id: u32, pwrite: bool, trap: &Value) -> Self {
        let task = json!({
            "role": role, "id": id, "seed": 1, "sync": 0, "account": dir.join(id.to_string()),
            "pool": dir.join("pool"), "store": dir.join("store"), "topics": 1, "partitions": 1,
            "segment_bytes": 65536, "interval_ms": 100, "pwrite": pwrite, "trap": trap,
            "fork_ms": 0, "calls": 3000, "tolerant": false, "pread": false,
            "may_trim": [],
            "parent": std::process::id(),
        });
        let mut command = Command::new(STORM);
        command.arg("worker").arg(task.to_string()).stdin(Stdio::piped());
        Self(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Wait for its end; `None` if it was killed.
    fn end(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < LONG, "a worker does not end");
            // sleep: no event reports a child's end here
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn said(&mut self) -> String {
        std::io::read_to_string(self.0.stderr.take().unwrap()).unwrap()
    }
}

/// The idle child ends when the pipe at its standard input is closed, with the worker's handle.
fn an_orphan_keeps_no_lock(name: &str, pwrite: bool, point: &str) {
    let scratch = Scratch::new(name);
    let nothing = Value::Null;
    assert_eq!(Worker::start(&scratch.0, 1, pwrite, &nothing).end(), Some(0));
    let mut parent = Worker::start(&scratch.0, 2, pwrite, &json!([point, 1, 2]));
    assert_eq!(parent.end(), None, "{}", parent.said());
    let mut next = Worker::start(&scratch.0, 3, pwrite, &nothing);
    assert_eq!(next.end(), Some(0), "{}", next.said());
    drop(parent);
}

#[test]
fn an_idle_child_of_a_parent_killed_while_it_recovers_does_not_keep_the_log_from_being_recovered() {
    an_orphan_keeps_no_lock("orphan-recovery", false, "recovery-locked");
}

#[test]
fn an_idle_child_of_a_parent_killed_in_an_append_does_not_keep_the_lock_of_a_pwrite_store() {
    an_orphan_keeps_no_lock("orphan-append", true, "append-dirty-end-stored");
}

#[test]
fn an_idle_child_of_a_parent_killed_in_a_sync_does_not_keep_the_lock_of_a_pwrite_store() {
    an_orphan_keeps_no_lock("orphan-sync", true, "sync-locked");
}

#[test]
fn an_idle_child_of_a_parent_killed_with_a_mapped_lock_does_not_keep_it() {
    an_orphan_keeps_no_lock("orphan-mapped", false, "append-dirty-end-stored");
    an_orphan_keeps_no_lock("orphan-mapped-sync", false, "sync-locked");
    an_orphan_keeps_no_lock("orphan-roll", false, "roll-locked");
}

/// Unsynced records stay unsynced while a process of the incarnation lives.
///
/// That may be a child in the moment between the fork and its closing of inherited files.
#[test]
fn a_worker_that_finishes_the_jobs_ends_although_nothing_is_synced() {
    let scratch = Scratch::new("unsynced");
    let store = Store::open(scratch.0.join("store")).unwrap();
    let options = TopicOptions {
        partitions: Some(1),
        segment_bytes: Some(65536),
        sync_interval_ms: Some(100),
        ..TopicOptions::default()
    };
    let jobs = Topic::open(&store, "jobs", &options).unwrap();
    for _ in 0..10 {
        jobs.append_to(0, &NewRecord::new(b"a job"), Some(SyncMode::None)).unwrap();
    }
    assert_eq!(jobs.durable(0).unwrap(), 0, "somebody synced");
    let mut last = Worker::play("sharer", &scratch.0, 1, false, &Value::Null);
    assert_eq!(last.end(), Some(0), "{}", last.said());
}
