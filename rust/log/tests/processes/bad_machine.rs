//! Memory that runs out, and a disk that stops writing: real ones, with real processes.
//!
//! The disk is an ext4 in a file whose own file system stops writing. So the kernel's write-back
//! fails as on a dying disk. It is mounted in a namespace of its own. Where this user may not
//! mount, the test reports that it did not run.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use falaj::internals::error::{Error, Remedy};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::Reading;
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::children::{not_run, perform, play_with_mounts};
use crate::stores::{assert_holds, fill, open, open_to_read, quietly, topic, value};

const MODES: [WriteMode; 2] = [WriteMode::Mapped, WriteMode::Pwrite];

fn open_as(path: &Path, write_mode: WriteMode) -> Store {
    let write_mode = Some(write_mode);
    Store::open_with(path, &StoreOptions { write_mode, ..StoreOptions::default() }).unwrap()
}

/// Run a program; the error says why that failed.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    match Command::new(program).args(arguments).output() {
        Ok(done) if done.status.success() => Ok(()),
        other => Err(format!("{program} {arguments:?}: {other:?}")),
    }
}

/// Address space of this process, in bytes.
fn address_space() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn limit_memory(to: u64) {
    let now = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(to), maximum: now.maximum }).unwrap();
}

fn assert_no_memory(error: &Error, path: &Path) {
    let said = error.to_string();
    assert_eq!(error.os_error(), Some(libc::ENOMEM), "{said}");
    assert_eq!(error.remedy(), Remedy::FixMachine, "{said}");
    assert!(said.contains(&*path.to_string_lossy()), "{said}");
}

/// Print a line for the parent.
fn say(what: &str) {
    // Not `eprintln!`: the harness captures what a test prints that way.
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// Leave memory for the program itself, and for no segment.
///
/// The store's directory is named after its mode. Each mode has a process of its own, so that no
/// thread or map of another mode ends meanwhile.
fn memory_limit(path: &Path) {
    const SEGMENT: u64 = 64 << 20;
    let big = TopicOptions { segment_bytes: Some(SEGMENT), ..TopicOptions::default() };
    let mode = MODES.into_iter().find(|mode| path.ends_with(mode.name())).unwrap();
    let store = open_as(path, mode);
    let orders = Topic::open(&store, "orders", &big).unwrap().with_sync(SyncMode::None);
    fill(&orders, 0, 100);
    // In use, so that it is not closed to free memory for another one.
    let held = orders.get_in(0, 99).unwrap();
    limit_memory(address_space() + (16 << 20));
    // Open logs still work; a call that needs a new map gets an error.
    fill(&orders, 100, 200);
    assert_holds(&orders, 200);
    assert_no_memory(&orders.log().roll_now().unwrap_err(), path);
    fill(&orders, 200, 250);
    assert_no_memory(&Topic::open(&store, "other", &big).unwrap_err(), path);
    for reading in [Reading::Map, Reading::Pread] {
        let options = StoreOptions { reading, ..StoreOptions::reading() };
        let reader = Store::open_with(path, &options).unwrap();
        let read = Topic::open(&reader, "orders", &Default::default())
            .and_then(|topic| topic.get_in(0, 249));
        assert_no_memory(&read.unwrap_err(), path);
    }
    limit_memory(1 << 40);
    assert_eq!(held.value(), Some(value(99).as_slice()));
    fill(&orders, 250, 300);
    orders.log().roll_now().unwrap();
    fill(&orders, 300, 350);
    assert_holds(&orders, 350);
    Topic::open(&store, "other", &big).unwrap().append_to(0, &NewRecord::new(b"x"), None).unwrap();
    assert!(store.verify(None, &mut quietly).unwrap().is_sound());
}

/// Bytes of a segment of the long log, bytes of a record in it, and its number of records.
const LONG: (u64, usize, u64) = (4 << 20, 100 << 10, 1600);

fn long_value(i: u64) -> Vec<u8> {
    let mut value = vec![i as u8; LONG.1];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value
}

/// A log of more than 40 segments.
fn make_long(path: &Path) {
    let store = Store::open_with(path, &StoreOptions::default()).unwrap();
    let options = TopicOptions { segment_bytes: Some(LONG.0), ..TopicOptions::default() };
    let topic = Topic::open(&store, "long", &options).unwrap().with_sync(SyncMode::None);
    for i in 0..LONG.2 {
        topic.append_to(0, &NewRecord::new(&long_value(i)), None).unwrap();
    }
}

fn open_long(path: &Path) -> Topic {
    let store = Store::open_with(path, &StoreOptions::reading()).unwrap();
    Topic::open(&store, "long", &Default::default()).unwrap()
}

/// Bytes of files that are resident in this process by its maps.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Read a long log from its beginning, and watch how much memory that takes.
fn scan_long(path: &Path) {
    let topic = open_long(path);
    let (before, mut most) = (resident(), 0);
    let (mut scan, mut first) = (topic.scan_partition(0, 0, None).unwrap(), None);
    for i in 0..LONG.2 {
        let record = scan.next().transpose().unwrap().unwrap();
        assert!(record.value() == Some(&long_value(i)), "{i}");
        first.get_or_insert(record);
        if i % 16 == 0 {
            most = most.max(resident().saturating_sub(before));
        }
    }
    assert!(scan.next().transpose().unwrap().is_none());
    // The segment of the first record, which is held, of the current record, and the one before.
    assert!(most <= 4 * LONG.0, "{most} bytes of {} were resident", LONG.2 * LONG.1 as u64);
    assert!(first.unwrap().value() == Some(&long_value(0)), "a view must outlive its pages");
}

/// Read a long log with memory for a few of its maps, repeatedly and in any order.
fn few_maps(path: &Path) {
    let topic = open_long(path);
    // The process learns how many maps it may keep before it may keep nearly none.
    topic.get_in(0, 0).unwrap();
    limit_memory(address_space() + 10 * LONG.0);
    let held = topic.get_in(0, 1).unwrap();
    for round in 0..3 {
        for i in (0..LONG.2).map(|i| i * 617 % LONG.2) {
            assert!(topic.get_in(0, i).unwrap().value() == Some(&long_value(i)), "{round} {i}");
        }
    }
    assert!(held.value() == Some(&long_value(1)));
}

/// Open, append and roll with so little memory that any call may fail.
///
/// Each acknowledged append is a byte in a file beside the store.
fn starved(path: &Path) {
    let (told, spare) = (path.with_extension("told"), path.with_extension("spare"));
    let spare: u64 = fs::read_to_string(spare).unwrap().parse().unwrap();
    let mut told = fs::OpenOptions::new().append(true).create(true).open(told).unwrap();
    let work = move || -> Result<(), Error> {
        limit_memory(address_space() + spare);
        let store = Store::open_with(path, &StoreOptions::default())?;
        let options = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
        let orders = Topic::open(&store, "orders", &options)?.with_sync(SyncMode::None);
        let next = orders.end(0)?;
        for i in next..next + 200 {
            orders.append_to(0, &NewRecord::new(&value(i)), None)?;
            told.write_all(b".").unwrap();
        }
        Ok(())
    };
    // In a thread of its own: a stack that cannot grow raises a signal, whichever call needs it.
    let ended = std::thread::scope(|scope| scope.spawn(work).join()).unwrap();
    limit_memory(1 << 40);
    if let Err(error) = ended {
        let said = error.to_string();
        let refused = matches!(error.os_error(), Some(libc::ENOMEM | libc::EAGAIN));
        assert!(refused && said.contains(&*path.to_string_lossy()), "{said}");
        say(&format!("refused: {said}"));
    }
}

/// The ways in which a disk stops writing.
#[derive(Clone, Copy, Debug)]
enum Failing {
    /// It has no space left for what it promised: `ENOSPC`, when it is too late.
    Full,
    /// It refuses everything that is sent to it: `EIO`.
    Dead,
}

/// An ext4 in a file on a small tmpfs, which fills up, or on an xfs, which is shut down.
struct Disk {
    failing: Failing,
    /// The file system below, mounted first.
    below: PathBuf,
    outer: PathBuf,
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn make(root: &Path, failing: Failing) -> Result<Self, String> {
        let dir = |name: &str| {
            fs::create_dir_all(root.join(name)).unwrap();
            root.join(name)
        };
        let (below, outer, at) = (dir("below"), dir("outer"), dir("disk"));
        // An xfs has a log of at least 64 MiB.
        let (image, size) = match failing {
            Failing::Full => (below.join("image"), "size=32m"),
            Failing::Dead => (outer.join("image"), "size=160m"),
        };
        let disk = Self { failing, below, outer, image, at };
        run("mount", &["-t", "tmpfs", "-o", size, "tmpfs", &text(&disk.below)])?;
        if matches!(failing, Failing::Dead) {
            fs::File::create(disk.foundation()).unwrap().set_len(320 << 20).unwrap();
            run("mkfs.xfs", &["-q", "-f", &text(&disk.foundation())])?;
            run("mount", &["-o", "loop", &text(&disk.foundation()), &text(&disk.outer)])?;
        }
        fs::File::create(&disk.image).unwrap().set_len(64 << 20).unwrap();
        let whole = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", whole, &text(&disk.image)])?;
        disk.mount()?;
        Ok(disk)
    }

    fn foundation(&self) -> PathBuf {
        self.below.join("foundation")
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop", &text(&self.image), &text(&self.at)])
    }

    /// Stop writing anything that was not written before.
    fn break_down(&self) -> Result<(), String> {
        match self.failing {
            Failing::Full => {
                let mut full = fs::File::create(self.below.join("ballast")).unwrap();
                while full.write_all(&[1; 4096]).is_ok() {}
                Ok(())
            }
            Failing::Dead => run("xfs_io", &["-x", "-c", "shutdown", &text(&self.outer)]),
        }
    }

    /// Restart the machine with a working disk: file systems replay their journals.
    fn replace(&self) {
        unmount(&self.at);
        match self.failing {
            Failing::Full => fs::remove_file(self.below.join("ballast")).unwrap(),
            Failing::Dead => {
                unmount(&self.outer);
                let arguments = ["-o", "loop", &text(&self.foundation()), &text(&self.outer)];
                run("mount", &arguments).unwrap();
            }
        }
        self.mount().unwrap();
    }
}

/// Unmount what only ending threads and the kernel still use.
fn unmount(at: &Path) {
    let mut tries = 0;
    while let Err(why) = run("umount", &[&text(at)]) {
        assert!(tries < 500, "{why}");
        tries += 1;
        // sleep: no event reports that a file system is no longer used
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A topic whose log is one segment, so that an append is the first call to meet the disk.
fn large(store: &Store) -> Topic {
    let options = TopicOptions { segment_bytes: Some(8 << 20), ..TopicOptions::default() };
    Topic::open(store, "orders", &options).unwrap()
}

fn failing_disks(path: &Path) {
    for (failing, mode) in
        [Failing::Full, Failing::Dead].into_iter().flat_map(|f| MODES.map(|mode| (f, mode)))
    {
        let story = format!("{failing:?}, {mode:?}");
        let disk = match Disk::make(&path.join(mode.name()).join(format!("{failing:?}")), failing) {
            Ok(disk) => disk,
            Err(why) => {
                not_run(&story, &why);
                continue;
            }
        };
        let store = disk.at.join("store");
        let durable = fail(&disk, &store, mode);
        disk.replace();
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
        let writer = open(&storage, &store).unwrap();
        let orders = large(&writer);
        let end = orders.end(0).unwrap();
        assert!(end >= durable, "{story}: {end} of {durable} durable records");
        assert_holds(&orders, end);
        fill(&orders, end, end + 100);
        orders.flush().unwrap();
        assert!(writer.verify(None, &mut quietly).unwrap().is_sound(), "{story}");
    }
}

/// Append until a sync fails, and keep trying; return how many records were reported durable.
fn fail(disk: &Disk, path: &Path, mode: WriteMode) -> u64 {
    let store = open_as(path, mode);
    let orders = large(&store).with_sync(SyncMode::Durable);
    fill(&orders, 0, 50);
    disk.break_down().unwrap();
    let mut durable = 50;
    let mut failures = Vec::new();
    while failures.len() < 20 {
        let next = orders.end(0).unwrap();
        assert!(next < 50_000, "{mode:?}: the disk must fail");
        match orders.append_to(0, &NewRecord::new(&value(next)), None) {
            Ok(offset) => {
                assert_eq!(offset, next);
                assert!(
                    failures.is_empty(),
                    "{mode:?}: records behind those in doubt were reported durable"
                );
                durable = next + 1;
            }
            Err(error) => failures.push(error),
        }
    }
    for error in &failures {
        let said = error.to_string();
        assert!(said.contains(&*path.to_string_lossy()), "{said}");
        assert!(matches!(error.remedy(), Remedy::FixMachine | Remedy::Repair), "{said}");
    }
    let (first, last) = (&failures[0], &failures[19]);
    say(&format!("{:?}, {mode:?}: {durable} durable; {first}; then {last}", disk.failing));
    // The failed-sync state: no mode and no handle appends behind the records in doubt, and no
    // later sync succeeds.
    let end = orders.end(0).unwrap();
    let lazy = large(&store).with_sync(SyncMode::None);
    lazy.append_to(0, &NewRecord::new(b"x"), None).unwrap_err();
    // The background thread may have met the disk first. Then nothing is in doubt, and nothing was
    // appended since.
    assert_eq!(orders.flush().is_ok(), end == durable);
    assert_eq!(orders.durable(0).unwrap(), durable, "of {end}");
    // Visible records are readable, for open and for new readers.
    assert_holds(&orders, end);
    for reading in [Reading::Map, Reading::Pread] {
        let options = StoreOptions { reading, ..StoreOptions::reading() };
        let reader = Store::open_with(path, &options).unwrap();
        assert_holds(&Topic::open(&reader, "orders", &Default::default()).unwrap(), end);
    }
    durable
}

/// Not a test of its own: the entry point for the roles of the other tests.
#[test]
fn role() {
    match crate::children::role() {
        Some((role, path)) if role == "memory" => memory_limit(&path),
        Some((role, path)) if role == "starved" => starved(&path),
        Some((role, path)) if role == "scan long" => scan_long(&path),
        Some((role, path)) if role == "few maps" => few_maps(&path),
        Some((role, path)) if role == "failing disks" => failing_disks(&path),
        Some((role, _)) => panic!("unknown role {role}"),
        None => {}
    }
}

#[test]
fn a_memory_limit_is_an_error_and_memory_is_all_that_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    for mode in MODES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // A heap of its own for each thread, 64 MiB of addresses, could break the limit at any
        // time.
        command.env("MALLOC_ARENA_MAX", "1");
        let path = dir.path().join(mode.name());
        let (ended, said) = perform(command, "bad_machine", "memory", &path);
        assert!(ended.success() && said.contains("1 passed"), "{mode:?}: {ended:?}\n{said}");
    }
}

/// A process of its own, so that nothing else is mapped in it.
fn of_a_long_log(role: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    make_long(&path);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("MALLOC_ARENA_MAX", "1");
    let (ended, said) = perform(command, "bad_machine", role, &path);
    assert!(ended.success() && said.contains("1 passed"), "{ended:?}\n{said}");
}

#[test]
fn a_scan_keeps_a_few_segments_in_memory_however_long_the_log_is_and_views_stay() {
    of_a_long_log("scan long");
}

#[test]
fn where_no_more_maps_can_be_had_reading_goes_on_with_fewer() {
    of_a_long_log("few maps");
}

/// Messages of a Rust program that ends for lack of memory: in any thread, or in one that is
/// starting.
const ENDS: [&str; 2] = ["memory allocation of", "failed to allocate an alternative stack"];

/// When even the allocator gets no memory, a Rust program ends.
///
/// It must end in this way and no other, and all acknowledged records are there.
#[test]
fn however_little_memory_there_is_what_was_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(topic(&Store::open_with(&path, &StoreOptions::default()).unwrap(), "orders"));
    let (mut refused, mut aborted) = (0, 0);
    let little = (0..16).map(|i| i * (16 << 10));
    for spare in little.chain((0..14).map(|i| (256 << 10) + i * (300 << 10))) {
        fs::write(path.with_extension("spare"), spare.to_string()).unwrap();
        let (ended, said) = perform(
            Command::new(std::env::current_exe().unwrap()),
            "bad_machine",
            "starved",
            &path,
        );
        match (ended.code(), ended.signal()) {
            (Some(0), _) => refused += usize::from(said.contains("refused: ")),
            (_, Some(libc::SIGABRT)) if ENDS.iter().any(|end| said.contains(end)) => aborted += 1,
            _ => panic!("{spare} bytes to spare: {ended:?}\n{said}"),
        }
        let told = fs::metadata(path.with_extension("told")).map_or(0, |told| told.len());
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
        let reader = open_to_read(&storage, &path).unwrap();
        let orders = Topic::open(&reader, "orders", &Default::default()).unwrap();
        let end = orders.end(0).unwrap();
        // One more where the process ended between the record and its acknowledgement.
        assert!((told..=told + 30).contains(&end), "{spare}: {end} records, {told} acknowledged");
        assert_holds(&orders, end);
    }
    assert!(refused > 0, "{refused} got an error, {aborted} ended");
}

#[test]
fn a_disk_that_fails_is_an_error_a_latch_and_no_loss_of_what_was_durable() {
    let dir = tempfile::tempdir().unwrap();
    play_with_mounts("disks that fail", "bad_machine", "failing disks", dir.path());
}
