//! Stores shared by real processes: slots, deaths, forks, races.
//!
//! Each test starts this same program again, with a role in the environment ([`role`] plays it),
//! and exchanges lines with it. Processes are killed by the process ids of their start, never by
//! name.
#![allow(unsafe_code)]
#![allow(clippy::print_stdout, reason = "how a child reports to its parent")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use falaj::internals::error::Error;
use falaj::internals::lock::{Fate, Holders, Identity};
use falaj::internals::store::{Store, StoreOptions, TopicOptions};

const ROLE: &str = "FALAJ_TEST_ROLE";
const STORE: &str = "FALAJ_TEST_STORE";
/// Long enough for a busy machine; no wait here takes so long when all is well.
const LONG: Duration = Duration::from_secs(20);

/// Another process of this program.
struct Actor {
    process: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Actor {
    fn start(role: &str, store: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut process = Command::new(program)
            .args(["--exact", "store_processes::role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(STORE, store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(process.stdout.take().unwrap());
        let hears = process.stdin.take().unwrap();
        Self { process, says, hears }
    }

    /// The words of the next line from the role.
    fn line(&mut self) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert_ne!(self.says.read_line(&mut line).unwrap(), 0, "the other process ended");
            // The test harness prints too, even before ours on the same line.
            if let Some((_, said)) = line.split_once("@@") {
                return said.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    fn tell(&mut self) {
        self.hears.write_all(b"go\n").unwrap();
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A role's report of its membership.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    identity: Identity,
    incarnation: u64,
}

impl Place {
    fn of(store: &Store) -> Self {
        let member = store.membership().unwrap();
        Self { identity: member.identity(), incarnation: member.incarnation() }
    }

    fn say(&self) -> String {
        format!("{} {}", self.identity.bits(), self.incarnation)
    }

    fn heard(words: &[String]) -> Self {
        let identity = Identity::from_bits(words[0].parse().unwrap()).unwrap();
        Self { identity, incarnation: words[1].parse().unwrap() }
    }
}

fn open(path: &Path) -> Store {
    Store::open_with(path, &StoreOptions::default()).unwrap()
}

fn say(what: &str) {
    println!("@@ {what}");
    std::io::stdout().flush().unwrap();
}

fn wait_for_word() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Run `in_child` in a forked child, which then ends without unwinding into the test harness;
/// return its process id.
fn fork(in_child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child uses the C library's allocator, which glibc keeps usable after a fork of a
    // process with threads. It uses only locks that no other thread of a role holds, and ends in
    // `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child)).is_ok();
        // SAFETY: ends this process; nothing else runs in it.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    child
}

fn kill(process: libc::pid_t) {
    // SAFETY: the process id of a child that a role of this test forked and reported.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

/// The roles of other processes. In an ordinary run of the tests it does nothing.
#[test]
fn role() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(STORE)) else { return };
    let path = Path::new(&path);
    match role.as_str() {
        "hold" => hold(path),
        "race" => race(path),
        "fork an idle child" => fork_an_idle_child(path),
        "fork a working child" => fork_a_working_child(path),
        "clone past the handlers" => clone_past_the_handlers(path),
        "fork amid openings" => fork_amid_openings(path),
        "come and go" => come_and_go(path),
        other => panic!("unknown role {other:?}"),
    }
}

fn hold(path: &Path) {
    let store = open(path);
    say(&Place::of(&store).say());
    wait_for_word();
}

fn race(path: &Path) {
    say("ready");
    wait_for_word();
    let store = open(path);
    let topic = store.open_topic("orders", &TopicOptions::default()).unwrap();
    let ids = [store.settings().id, topic.generation, topic.log_generation];
    let ids = ids.map(|id| u128::from_be_bytes(id).to_string()).join(" ");
    say(&format!("{} {ids}", Place::of(&store).say()));
    wait_for_word();
}

fn fork_an_idle_child(path: &Path) {
    let store = open(path);
    // sleep: the child is idle until it is killed
    let child = fork(|| std::thread::sleep(LONG * 3));
    say(&format!("{} {child}", Place::of(&store).say()));
    wait_for_word();
}

/// Three generations: each finds that it is another process, and becomes a member of its own.
fn fork_a_working_child(path: &Path) {
    let store = open(path);
    let inherited = store.membership().unwrap();
    let parents = Place::of(&store);
    let child = fork(|| {
        assert!(matches!(inherited.check(), Err(Error::HandleClosed { .. })));
        assert!(inherited.fate(parents.identity).is_err());
        let mine = Place::of(&store);
        assert_ne!(mine.identity, parents.identity);
        assert_eq!(mine.incarnation, parents.incarnation);
        let member = store.membership().unwrap();
        assert!(matches!(member.fate(parents.identity), Ok(Fate::Alive)));
        store.open_topic("of-the-child", &TopicOptions::default()).unwrap();
        assert_eq!(Place::of(&open(path)), mine);
        let grandchild = fork(|| {
            assert!(member.check().is_err());
            assert_ne!(Place::of(&store).identity, mine.identity);
        });
        assert!(ended_well(grandchild));
        assert_eq!(Place::of(&store), mine);
    });
    assert!(ended_well(child));
    // The parent lost nothing when its child closed and opened the store.
    inherited.verify().unwrap();
    assert_eq!(Place::of(&store), parents);
    store.topic_settings("of-the-child").unwrap();
    say(&parents.say());
    wait_for_word();
}

/// A process made by the bare system call, unknown to the C library and its handlers.
fn clone_past_the_handlers(path: &Path) {
    let store = open(path);
    let member = store.membership().unwrap();
    // SAFETY: as `fork`, except for the handlers; the child only reads memory and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(child >= 0);
    if child == 0 {
        let refused = member.check().is_err();
        // SAFETY: ends this process; nothing else runs in it.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    assert!(ended_well(child as libc::pid_t));
    member.check().unwrap();
    say("done");
    wait_for_word();
}

/// Fork repeatedly while other threads are joining and leaving.
fn fork_amid_openings(path: &Path) {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(open(path));
                }
            });
        }
        for _ in 0..60 {
            let child = fork(|| {
                Place::of(&open(path));
            });
            assert!(ended_well(child));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    say("done");
    wait_for_word();
}

fn ended_well(child: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: waits for a child of this process and writes its status to a live variable.
    unsafe { libc::waitpid(child, &mut status, 0) };
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn come_and_go(path: &Path) {
    loop {
        let store = open(path);
        say(&Place::of(&store).say());
        drop(store);
    }
}

/// Ask until the answer is that it is dead: the kernel takes a moment to close a dead process's
/// files.
fn await_death(store: &Store, identity: Identity) -> Duration {
    dies(store, identity).expect("still alive")
}

/// As [`await_death`]; `None` if it still counts as alive after a long time.
fn dies(store: &Store, identity: Identity) -> Option<Duration> {
    let member = store.membership().unwrap();
    let began = Instant::now();
    loop {
        match member.fate(identity).unwrap() {
            Fate::Dead(_) => return Some(began.elapsed()),
            Fate::Alive if began.elapsed() > LONG => return None,
            Fate::Alive => {}
        }
        // sleep: asks again until the kernel has closed the files, with a bound above
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A directory for one test, and its turn: these tests run one after the other.
///
/// A program that another thread is starting has copies of all our descriptors until it begins, and
/// our locks with them. The assertions hold only when there is none.
struct Turn(tempfile::TempDir, #[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn store_dir() -> (Turn, std::path::PathBuf) {
    static TURNS: Mutex<()> = Mutex::new(());
    let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    (Turn(dir, turn), path)
}

#[test]
fn processes_have_slots_of_their_own() {
    let (_dir, path) = store_dir();
    let store = open(&path);
    let mut actors: Vec<_> = (0..3).map(|_| Actor::start("hold", &path)).collect();
    let mut places: Vec<_> = actors.iter_mut().map(|actor| Place::heard(&actor.line())).collect();
    let member = store.membership().unwrap();
    for (actor, place) in actors.iter().zip(&places) {
        assert!(matches!(member.fate(place.identity), Ok(Fate::Alive)));
        let described = member.describe(place.identity);
        assert_eq!(
            described,
            format!("process {} (slot {})", actor.process.id(), place.identity.slot())
        );
    }
    places.push(Place::of(&store));
    let slots: BTreeSet<_> = places.iter().map(|place| place.identity.slot()).collect();
    let incarnations: BTreeSet<_> = places.iter().map(|place| place.incarnation).collect();
    assert_eq!((slots.len(), incarnations.len()), (4, 1));
}

#[test]
fn a_killed_holder_is_dead_and_stays_dead_when_its_slot_is_taken_again() {
    let (_dir, path) = store_dir();
    let store = open(&path);
    let mut victim = Actor::start("hold", &path);
    let dead = Place::heard(&victim.line()).identity;
    assert!(matches!(store.membership().unwrap().fate(dead), Ok(Fate::Alive)));
    victim.kill();
    await_death(&store, dead);
    let mut next = Actor::start("hold", &path);
    let alive = Place::heard(&next.line()).identity;
    assert_eq!(alive.slot(), dead.slot());
    // Check the result first: the number is only how it is done.
    let fate = store.membership().unwrap().fate(dead);
    let is_dead = matches!(fate, Ok(Fate::Dead(_)));
    assert!(is_dead, "the next process in a dead one's slot counts as that one");
    assert_eq!(alive.generation(), dead.generation() + 1);
    assert!(matches!(store.membership().unwrap().fate(alive), Ok(Fate::Alive)));
}

#[test]
fn an_idle_child_of_a_killed_parent_does_not_keep_its_slot() {
    let (_dir, path) = store_dir();
    let store = open(&path);
    let mut parent = Actor::start("fork an idle child", &path);
    let said = parent.line();
    let dead = Place::heard(&said).identity;
    let child: libc::pid_t = said[2].parse().unwrap();
    parent.kill();
    if dies(&store, dead).is_none() {
        kill(child);
        // A slow machine is another matter.
        await_death(&store, dead);
        panic!("an idle child kept the slot of its parent");
    }
    // The child caused it, not its end.
    assert!(Path::new(&format!("/proc/{child}")).exists());
    drop(store);
    let alone = Actor::start("hold", &path).line();
    assert_eq!(Place::heard(&alone).identity.slot(), 0, "the idle child must not keep the slot");
    kill(child);
}

#[test]
fn a_forked_child_refuses_what_it_inherited_and_becomes_a_member_of_its_own() {
    let (_dir, path) = store_dir();
    let mut actor = Actor::start("fork a working child", &path);
    Place::heard(&actor.line());
    actor.tell();
    assert!(actor.process.wait().unwrap().success());
}

#[test]
fn a_child_that_no_handler_saw_refuses_what_it_inherited() {
    let (_dir, path) = store_dir();
    assert_eq!(Actor::start("clone past the handlers", &path).line(), ["done"]);
}

#[test]
fn a_child_forked_in_the_middle_of_other_threads_openings_can_open() {
    let (_dir, path) = store_dir();
    assert_eq!(Actor::start("fork amid openings", &path).line(), ["done"]);
    let alone = Actor::start("hold", &path).line();
    assert_eq!(Place::heard(&alone).identity.slot(), 0, "no process may keep a slot");
}

#[test]
fn of_eight_processes_that_create_at_once_one_does_and_the_others_adopt() {
    for _ in 0..5 {
        let (_dir, path) = store_dir();
        let mut actors: Vec<_> = (0..8).map(|_| Actor::start("race", &path)).collect();
        actors.iter_mut().for_each(|actor| assert_eq!(actor.line(), ["ready"]));
        actors.iter_mut().for_each(Actor::tell);
        let said: Vec<_> = actors.iter_mut().map(Actor::line).collect();
        let identities: BTreeSet<_> = said.iter().map(|words| words[0].clone()).collect();
        assert_eq!(identities.len(), 8);
        let shared: BTreeSet<_> = said.iter().map(|words| words[1..].to_vec()).collect();
        assert_eq!(shared.len(), 1, "incarnation, store, topic or log differ: {shared:?}");
        assert_eq!(std::fs::read_dir(path.join("logs")).unwrap().count(), 1);
    }
}

#[test]
fn an_incarnation_lasts_as_long_as_one_of_its_members_whoever_is_killed() {
    let (_dir, path) = store_dir();
    let store = open(&path);
    let ours = Place::of(&store);
    for round in 0..6 {
        let mut actors: Vec<_> = (0..4).map(|_| Actor::start("come and go", &path)).collect();
        for actor in &mut actors {
            for _ in 0..10 + round {
                let place = Place::heard(&actor.line());
                assert_eq!(place.incarnation, ours.incarnation);
                assert_ne!(place.identity, ours.identity);
            }
            // During whatever it is doing.
            actor.kill();
        }
    }
    assert_eq!(Place::of(&store), ours);
    drop(store);
    assert_ne!(Place::of(&open(&path)).incarnation, ours.incarnation);
}

#[test]
fn replaced_lock_files_are_noticed_between_processes() {
    let (_dir, path) = store_dir();
    let mut holder = Actor::start("hold", &path);
    let held = Place::heard(&holder.line()).identity;
    let replace = |name: &str| {
        let path = path.join(name);
        std::fs::copy(&path, path.with_extension("copy")).unwrap();
        std::fs::rename(path.with_extension("copy"), &path).unwrap();
    };
    replace("presence");
    let error = Store::open_with(&path, &StoreOptions::default()).unwrap_err();
    assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    drop(holder);
    let store = open(&path);
    let member = store.membership().unwrap();
    member.verify().unwrap();
    replace("slots/0");
    assert!(matches!(member.verify(), Err(Error::LockFileReplaced { .. })));
    assert_eq!(held.slot(), member.identity().slot());
}

#[test]
fn symbolic_links_in_a_store_are_not_followed_and_one_to_it_is() {
    use std::os::unix::fs::symlink;
    let (Turn(dir, _turn), path) = store_dir();
    let store = open(&path);
    let topic = store.open_topic("orders", &TopicOptions::default()).unwrap();
    let log = store.log_dir(&topic).unwrap();
    drop(store);
    for inside in [
        path.join("claim"),
        path.join("topics"),
        path.join("logs"),
        path.join("slots"),
        log.clone(),
        path.join("presence"),
        path.join("falaj.json"),
        path.join("wake"),
        path.join("topics/orders"),
        path.join("topics/orders/topic.json"),
        path.join("slots/0"),
    ] {
        let moved = dir.path().join("moved");
        std::fs::rename(&inside, &moved).unwrap();
        symlink(&moved, &inside).unwrap();
        let opened = Store::open_with(&path, &StoreOptions::default())
            .and_then(|store| store.open_topic("orders", &TopicOptions::default()));
        assert!(opened.is_err(), "{} was followed", inside.display());
        std::fs::remove_file(&inside).unwrap();
        std::fs::rename(&moved, &inside).unwrap();
    }
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    let (direct, linked) = (open(&path), open(&link));
    assert_eq!(Place::of(&direct), Place::of(&linked));
    assert_eq!(linked.topic_settings("orders").unwrap(), topic);
}

#[test]
fn what_is_no_directory_is_no_store() {
    let (Turn(dir, _turn), _) = store_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for options in [StoreOptions::default(), StoreOptions::reading()] {
        let error = Store::open_with(&file, &options).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
        let beyond = Store::open_with(dir.path().join("missing/store"), &options).unwrap_err();
        assert!(beyond.to_string().contains("missing"), "{beyond}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn lock_files_are_closed_in_programs_that_are_started() {
    let (_dir, path) = store_dir();
    let _store = open(&path);
    let root = path.to_str().unwrap().to_owned();
    let output = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stdout).contains(&root));
}
