//! Children: a test that needs a process of its own, with limits or as another user.
//!
//! The test program starts itself again with the name of a role in the environment. The child runs
//! the test `role` of its module, which plays the role, and exits. The parent waits with a
//! deadline, and then kills it by its process id.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "FALAJ_TEST_ROLE";
const STORE: &str = "FALAJ_TEST_STORE";
const LONG: Duration = Duration::from_secs(60);

/// The role that this process is to play, and the store for it.
pub fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(STORE)?.into()))
}

/// Run a role of a module in a child, as a given user if there is one; fail with the child's
/// output.
pub fn play(room: &str, role: &str, store: &Path, user: Option<u32>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let (ended, said) = perform(command, room, role, store);
    assert!(ended.success(), "{role}: {ended:?}\n{said}");
    assert!(said.contains("1 passed"), "{role} was not played:\n{said}");
}

/// A program that starts another one with private mounts, which end with it.
const OWN_MOUNTS: [&str; 5] = ["unshare", "--mount", "--propagation", "private", "--"];

/// Run a role of a module in a child that may mount, if that is possible.
pub fn play_with_mounts(what: &str, room: &str, role: &str, store: &Path) {
    let probe = ["mount", "-t", "tmpfs", "tmpfs", "/mnt"];
    let probed = Command::new(OWN_MOUNTS[0]).args(&OWN_MOUNTS[1..]).args(probe).output();
    if !probed.as_ref().is_ok_and(|probed| probed.status.success()) {
        return not_run(what, &format!("private mounts: {probed:?}"));
    }
    let mut command = Command::new(OWN_MOUNTS[0]);
    command.args(&OWN_MOUNTS[1..]).arg(std::env::current_exe().unwrap());
    let (ended, said) = perform(command, room, role, store);
    assert!(ended.success(), "{role}: {ended:?}\n{said}");
    assert!(said.contains("1 passed"), "{role} was not played:\n{said}");
    // Report here too what it could not do.
    said.lines().filter(|line| line.contains("NOT RUN")).for_each(|line| not_run(what, line));
}

/// Run a role; return how it ended, and its output.
pub fn perform(mut command: Command, room: &str, role: &str, store: &Path) -> (ExitStatus, String) {
    command.args(["--exact", &format!("{room}::role"), "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(STORE, store).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > LONG {
            child.kill().unwrap();
            panic!("{role} hangs");
        }
        // sleep: no event reports a child's end here
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    (ended.status, said)
}

/// Report that a test did not run, where the harness cannot swallow it.
pub fn not_run(what: &str, why: &str) {
    use std::io::Write as _;
    let line = format!("\n*** NOT RUN: {what}: {why} ***\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
