//! Memory that runs out, and a disk that no longer writes: real ones, with real processes.
//!
//! The disk is an ext4 in a file whose own file system stops writing: what the kernel writes back then
//! fails as on a dying disk. It is mounted where nobody else sees it; where this user may not mount, the
//! test says so loudly.

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

/// Run a program; why it could not.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    match Command::new(program).args(arguments).output() {
        Ok(done) if done.status.success() => Ok(()),
        other => Err(format!("{program} {arguments:?}: {other:?}")),
    }
}

/// Address space of this process, bytes.
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

/// Tell the parent.
fn say(what: &str) {
    // Not `eprintln!`: what a test prints is kept from who reads this.
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// Room for what the program itself needs, and for no segment. The store's directory is named after its
/// mode: each mode is a process of its own, so that no thread and no map of another one ends meanwhile.
fn memory_limit(path: &Path) {
    const SEGMENT: u64 = 64 << 20;
    let big = TopicOptions { segment_bytes: Some(SEGMENT), ..TopicOptions::default() };
    let mode = MODES.into_iter().find(|mode| path.ends_with(mode.name())).unwrap();
    let store = open_as(path, mode);
    let orders = Topic::open(&store, "orders", &big).unwrap().with_sync(SyncMode::None);
    fill(&orders, 0, 100);
    // In use, so that it is not closed to make room for another one.
    let held = orders.get_in(0, 99).unwrap();
    limit_memory(address_space() + (16 << 20));
    // What is open goes on; what needs a map of its own is told.
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

/// Bytes of a segment of the long log, of a record in it, and how many records there are.
const LONG: (u64, usize, u64) = (4 << 20, 100 << 10, 1600);

fn long_value(i: u64) -> Vec<u8> {
    let mut value = vec![i as u8; LONG.1];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value
}

/// A log of 40 segments and more.
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

/// Read a long log from its beginning, with an eye on the memory that it takes.
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
    // That of the first record, which is held, the one that is read, and the one before it.
    assert!(most <= 4 * LONG.0, "{most} bytes of {} were resident", LONG.2 * LONG.1 as u64);
    assert!(first.unwrap().value() == Some(&long_value(0)), "a view outlives its pages");
}

/// Read a long log where there is room for a few of its maps, more than once and in any order.
fn few_maps(path: &Path) {
    let topic = open_long(path);
    // The process finds out what it may keep before it may keep next to nothing.
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

/// Open, append and roll with so little memory that anything may be refused; each append that was
/// acknowledged is a byte in a file beside the store.
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
    // In a thread of its own: a stack that cannot grow is a signal, whoever asks for it.
    let ended = std::thread::scope(|scope| scope.spawn(work).join()).unwrap();
    limit_memory(1 << 40);
    if let Err(error) = ended {
        let said = error.to_string();
        let refused = matches!(error.os_error(), Some(libc::ENOMEM | libc::EAGAIN));
        assert!(refused && said.contains(&*path.to_string_lossy()), "{said}");
        say(&format!("refused: {said}"));
    }
}

/// Two ways for a disk to stop writing.
#[derive(Clone, Copy, Debug)]
enum Failing {
    /// It has no more room behind what it promised: `ENOSPC`, when it is too late.
    Full,
    /// Everything that is sent to it is refused: `EIO`.
    Dead,
}

/// An ext4 in a file on a small tmpfs, which gets full, or on an xfs, which is shut down.
struct Disk {
    failing: Failing,
    /// What lies below, mounted first.
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
        // An xfs has a log of 64 MiB at least.
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

    /// From now on it writes nothing that it has not written before.
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

    /// A machine that is started again, its disk well: file systems go through their journals.
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

/// Unmount what nobody uses any more but threads that are about to end, and the kernel.
fn unmount(at: &Path) {
    let mut tries = 0;
    while let Err(why) = run("umount", &[&text(at)]) {
        assert!(tries < 500, "{why}");
        tries += 1;
        // sleep: nobody tells when a file system is let go of
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A topic whose log lies in one segment: it is appending that meets the disk first.
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

/// Append until a sync fails, and go on trying; how many records were told to be durable.
fn fail(disk: &Disk, path: &Path, mode: WriteMode) -> u64 {
    let store = open_as(path, mode);
    let orders = large(&store).with_sync(SyncMode::Durable);
    fill(&orders, 0, 50);
    disk.break_down().unwrap();
    let mut durable = 50;
    let mut failures = Vec::new();
    while failures.len() < 20 {
        let next = orders.end(0).unwrap();
        assert!(next < 50_000, "{mode:?}: the disk does not fail");
        match orders.append_to(0, &NewRecord::new(&value(next)), None) {
            Ok(offset) => {
                assert_eq!(offset, next);
                assert!(failures.is_empty(), "{mode:?}: durable behind what is in doubt");
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
    // The latch: nothing is appended behind what is in doubt, in no mode and by no handle, and no later
    // sync says that all is well.
    let end = orders.end(0).unwrap();
    let lazy = large(&store).with_sync(SyncMode::None);
    lazy.append_to(0, &NewRecord::new(b"x"), None).unwrap_err();
    // The keeper may have met the disk first: then nothing is in doubt, and nothing was appended since.
    assert_eq!(orders.flush().is_ok(), end == durable);
    assert_eq!(orders.durable(0).unwrap(), durable, "of {end}");
    // What is visible is readable, for who is there and for who comes.
    assert_holds(&orders, end);
    for reading in [Reading::Map, Reading::Pread] {
        let options = StoreOptions { reading, ..StoreOptions::reading() };
        let reader = Store::open_with(path, &options).unwrap();
        assert_holds(&Topic::open(&reader, "orders", &Default::default()).unwrap(), end);
    }
    durable
}

/// Not a test of its own: what the others start this program for.
#[test]
fn role() {
    match crate::children::role() {
        Some((role, path)) if role == "memory" => memory_limit(&path),
        Some((role, path)) if role == "starved" => starved(&path),
        Some((role, path)) if role == "scan long" => scan_long(&path),
        Some((role, path)) if role == "few maps" => few_maps(&path),
        Some((role, path)) if role == "failing disks" => failing_disks(&path),
        Some((role, _)) => panic!("no role {role}"),
        None => {}
    }
}

#[test]
fn a_memory_limit_is_an_error_and_memory_is_all_that_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    for mode in MODES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // A heap of its own for each thread, 64 MiB of addresses, would come beside the limit at any time.
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

/// What a program in Rust says that ends for want of memory: in any thread, or in one that just starts.
const ENDS: [&str; 2] = ["memory allocation of", "failed to allocate an alternative stack"];

/// Where even the allocator gets nothing a program in Rust ends; it ends so, and in no other way, and
/// all that was acknowledged is there.
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
        // One more where the process ended between the record and the telling of it.
        assert!((told..=told + 30).contains(&end), "{spare}: {end} records, {told} told");
        assert_holds(&orders, end);
    }
    assert!(refused > 0, "{refused} were refused something, {aborted} ended");
}

#[test]
fn a_disk_that_fails_is_an_error_a_latch_and_no_loss_of_what_was_durable() {
    let dir = tempfile::tempdir().unwrap();
    play_with_mounts("disks that fail", "bad_machine", "failing disks", dir.path());
}
