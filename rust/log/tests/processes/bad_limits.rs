//! Disks, inode tables and limits that run out.
//!
//! The error says which, no record is lost, and open stores work again as soon as there is space.
//!
//! Small file systems are mounted for it where this user may. Otherwise the test reports that it
//! did not run.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use falaj::internals::error::{Error, Remedy};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::store::{Store, StoreOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::children::{not_run, play};
use crate::stores::{assert_holds, fill, open_to_read, quietly, topic, value};

/// A small file system, unmounted at the end.
struct Mounted {
    at: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mounted {
    /// Mount a tmpfs with these options.
    fn tmpfs(what: &str, options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("mnt");
        fs::create_dir(&at).unwrap();
        let arguments = ["-t", "tmpfs", "-o", options, "tmpfs"];
        Self::mount(what, dir, at, &arguments)
    }

    /// Mount an ext4 of this many bytes, made with these options, from a file.
    fn ext4(what: &str, bytes: u64, options: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (at, image) = (dir.path().join("mnt"), dir.path().join("image"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).args(options).arg(&image).output();
        if !made.as_ref().is_ok_and(|made| made.status.success()) {
            not_run(what, &format!("mkfs.ext4: {made:?}"));
            return None;
        }
        let image = image.to_string_lossy().into_owned();
        Self::mount(what, dir, at, &["-o", "loop", &image])
    }

    fn mount(what: &str, dir: tempfile::TempDir, at: PathBuf, arguments: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount").args(arguments).arg(&at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { at, _dir: dir }),
            other => {
                not_run(what, &format!("mount: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

fn open_as(path: &Path, write_mode: WriteMode) -> Store {
    let write_mode = Some(write_mode);
    Store::open_with(path, &StoreOptions { write_mode, ..StoreOptions::default() }).unwrap()
}

/// Append until the disk is full; return how many records there are, and the error.
fn append_until_full(topic: &Topic, mut next: u64) -> (u64, Error) {
    loop {
        match topic.append_to(0, &NewRecord::new(&value(next)), None) {
            Ok(offset) => assert_eq!(offset, next),
            Err(error) => return (next, error),
        }
        next += 1;
        assert!(next < 1_000_000, "the disk does not fill");
    }
}

fn assert_no_space(error: &Error, path: &Path) {
    assert_no_room(error, path, "free space");
}

fn assert_no_room(error: &Error, path: &Path, helps: &str) {
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::FixMachine);
    let said = error.to_string();
    assert!(said.contains(&*path.to_string_lossy()) && said.contains(helps), "{said}");
}

/// Fill the disk with appends, check that all records are there, make space, append again.
fn fill_up(root: &Path, write_mode: WriteMode) {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let ballast = root.join("ballast");
    fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let path = root.join("store");
    let store = open_as(&path, write_mode);
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    let (end, error) = append_until_full(&orders, 0);
    assert_no_space(&error, &path);
    assert!(end > 100, "{end}");
    // New readers, backups and topics must work too.
    assert_holds(&orders, end);
    let reader = open_to_read(&storage, &path).unwrap();
    assert_holds(&Topic::open(&reader, "orders", &Default::default()).unwrap(), end);
    let error = reader.backup(root.join("copy"), &mut quietly).unwrap_err();
    assert_no_space(&error, &root.join("copy"));
    let left: Vec<_> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("copy")), "{left:?}");
    // A new topic is smaller than a log's next allocation.
    let rest = root.join("rest");
    let mut left = fs::File::create(&rest).unwrap();
    while left.write_all(&[1; 4096]).is_ok() {}
    let other = Topic::open(&store, "other", &Default::default());
    assert_no_space(&other.unwrap_err(), &path);
    assert!(store.verify(None, &mut quietly).unwrap().is_sound());

    fs::remove_file(&rest).unwrap();
    fs::remove_file(&ballast).unwrap();
    let next = end + 20;
    fill(&orders, end, next);
    let (end, error) = append_until_full(&orders, next);
    assert_no_space(&error, &path);
    drop(orders);
    drop(store);
    let found = falaj::internals::store::verify(&storage, &path, None, &mut quietly).unwrap();
    assert!(found.is_sound(), "{:?}", found.all_findings().collect::<Vec<_>>());
    let reader = open_to_read(&storage, &path).unwrap();
    assert_holds(&Topic::open(&reader, "orders", &Default::default()).unwrap(), end);
}

#[test]
fn a_full_tmpfs_is_an_error_and_appends_go_on_once_there_is_space() {
    for write_mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let Some(disk) = Mounted::tmpfs("a full tmpfs", "size=6m") else { return };
        fill_up(&disk.at, write_mode);
    }
}

#[test]
fn a_full_ext4_is_an_error_and_appends_go_on_once_there_is_space() {
    for write_mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let Some(disk) = Mounted::ext4("a full ext4", 16 << 20, &["-m", "0"]) else { return };
        fill_up(&disk.at, write_mode);
    }
}

#[test]
fn a_store_that_cannot_be_created_for_lack_of_room_is_created_when_there_is() {
    let Some(disk) = Mounted::tmpfs("a disk too full for a store", "size=256k") else { return };
    let ballast = disk.at.join("ballast");
    let mut bytes = 256 << 10;
    while fs::write(&ballast, vec![1; bytes]).is_err() {
        bytes -= 4096;
    }
    let path = disk.at.join("store");
    let error = Store::open_with(&path, &StoreOptions::default()).unwrap_err();
    assert_no_space(&error, &path);
    fs::remove_file(&ballast).unwrap();
    Store::open_with(&path, &StoreOptions::default()).unwrap();
}

/// Use up the inodes with empty files while a store is open.
fn without_inodes(root: &Path) {
    let path = root.join("store");
    let store = Store::open_with(&path, &StoreOptions::default()).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 0, 10);
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    let made = (0..).take_while(|i| fs::write(many.join(i.to_string()), []).is_ok()).count();
    assert!(made > 0);
    let (end, error) = append_until_full(&orders, 10);
    assert_no_space(&error, &path);
    assert_holds(&orders, end);
    let error = Topic::open(&store, "other", &Default::default()).unwrap_err();
    assert_no_space(&error, &path);
    fs::remove_dir_all(&many).unwrap();
    fill(&orders, end, end + 300);
    assert_holds(&orders, end + 300);
    assert!(store.verify(None, &mut quietly).unwrap().is_sound());
}

#[test]
fn a_full_inode_table_is_an_error_and_inodes_are_all_that_is_needed() {
    if let Some(disk) = Mounted::tmpfs("no inodes on tmpfs", "size=64m,nr_inodes=60") {
        without_inodes(&disk.at);
    }
    if let Some(disk) = Mounted::ext4("no inodes on ext4", 48 << 20, &["-N", "64"]) {
        without_inodes(&disk.at);
    }
}

#[test]
fn a_file_system_that_turns_read_only_is_an_error_and_reading_goes_on() {
    let Some(disk) = Mounted::ext4("a read-only remount", 32 << 20, &[]) else { return };
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let path = disk.at.join("store");
    let store = Store::open_with(&path, &StoreOptions::default()).unwrap();
    fill(&topic(&store, "orders"), 0, 100);
    drop(store);
    let remounts = |_| {
        let mount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.at).output();
        let done = mount.unwrap().status.success();
        // The kernel refuses while a child that another test forks has our files open.
        // sleep: until the child has started its program
        std::thread::sleep(Duration::from_millis(if done { 0 } else { 10 }));
        done
    };
    assert!((0..500).any(remounts));
    let error = Store::open_with(&path, &StoreOptions::default()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EROFS), "{error}");
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    let reader = open_to_read(&storage, &path).unwrap();
    assert_holds(&Topic::open(&reader, "orders", &Default::default()).unwrap(), 100);
    assert!(reader.verify(None, &mut quietly).unwrap().is_sound());
    let told = reader.repair(true).unwrap();
    assert!(told.is_complete() && told.steps().next().is_none(), "{told:?}");
    assert!(reader.info().unwrap().topics[0].partitions.is_ok());
}

/// Lower a limit of this process; only in roles.
fn limit(resource: Resource, to: u64) {
    let now = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), maximum: now.maximum }).unwrap();
}

fn file_size_limit(path: &Path) {
    for (name, write_mode) in [("mapped", WriteMode::Mapped), ("pwrite", WriteMode::Pwrite)] {
        let store = open_as(&path.join(name), write_mode);
        let orders = Topic::open(&store, "orders", &Default::default()).unwrap();
        let orders = orders.with_sync(SyncMode::None);
        fill(&orders, 0, 10);
        limit(Resource::Fsize, 2 << 20);
        let (end, error) = append_until_full(&orders, 10);
        assert_no_room(&error, path, "ulimit -f");
        assert_eq!(error.os_error(), Some(libc::EFBIG), "{error}");
        assert_holds(&orders, end);
        limit(Resource::Fsize, 1 << 30);
        fill(&orders, end, end + 100);
        assert_holds(&orders, end + 100);
        assert!(store.verify(None, &mut quietly).unwrap().is_sound());
    }
}

fn descriptor_limit(path: &Path) {
    let store = Store::open_with(path, &StoreOptions::default()).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 0, 10);
    let mut hoard = Vec::new();
    limit(Resource::Nofile, 64);
    while let Ok(file) = fs::File::open("/dev/null") {
        hoard.push(file);
    }
    let error =
        Store::open_with(path.with_file_name("other"), &StoreOptions::default()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EMFILE), "{error}");
    let (end, error) = append_until_full(&orders, 10);
    assert_eq!(error.os_error(), Some(libc::EMFILE), "{error}");
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    assert_eq!(error.remedy(), Remedy::FixMachine);
    drop(hoard);
    fill(&orders, end, end + 300);
    assert_holds(&orders, end + 300);
}

/// Not a test of its own: the entry point for the roles of the other tests.
#[test]
fn role() {
    match crate::children::role() {
        Some((role, path)) if role == "file size" => file_size_limit(&path),
        Some((role, path)) if role == "descriptors" => descriptor_limit(&path),
        Some((role, _)) => panic!("unknown role {role}"),
        None => {}
    }
}

#[test]
fn a_file_size_limit_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    play("bad_limits", "file size", dir.path(), None);
}

#[test]
fn a_descriptor_limit_is_an_error_and_descriptors_are_all_that_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    play("bad_limits", "descriptors", &dir.path().join("store"), None);
}
