//! Places where a store cannot be used: no permission, network file systems, no free slot.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::{Error, Remedy};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::lock::SLOTS;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{Filesystem, Storage};
use falaj::internals::store::{Store, StoreOptions};
use falaj::internals::topic::Topic;
use falaj_twin::memory::MemoryStorage;

use crate::children::{not_run, play};
use crate::stores::{assert_holds, fill, open, open_to_read, quietly, topic};

/// A user who is not root and owns nothing here.
const STRANGER: u32 = 65_534;

/// A store of root's with these permission bits; everyone may enter its directory.
fn store_for_strangers(what: &str, mode: u32) -> Option<tempfile::TempDir> {
    if !rustix::process::getuid().is_root() {
        not_run(what, "only root can act as another user");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let options = StoreOptions { mode, ..StoreOptions::default() };
    let store = Store::open_with(dir.path().join("store"), &options).unwrap();
    fill(&topic(&store, "orders"), 0, 100);
    Some(dir)
}

fn assert_not_permitted(error: &Error, path: &Path) {
    assert_eq!(error.os_error(), Some(libc::EACCES), "{error}");
    assert_eq!(error.remedy(), Remedy::FixMachine);
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
}

fn stranger_who_may_read(path: &Path) {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    assert_not_permitted(&Store::open_with(path, &StoreOptions::default()).unwrap_err(), path);
    let store = open_to_read(&storage, path).unwrap();
    assert_holds(&Topic::open(&store, "orders", &Default::default()).unwrap(), 100);
    assert!(store.verify(None, &mut quietly).unwrap().is_sound());
    assert!(store.info().unwrap().topics[0].partitions.is_ok());
    let told = store.repair(true).unwrap();
    assert_eq!((told.in_use, told.is_complete()), (None, true), "{told:?}");
    assert_not_permitted(
        &store.backup(path.with_file_name("copy"), &mut quietly).unwrap_err(),
        path.parent().unwrap(),
    );
    let error = store.repair(false).unwrap_err();
    assert!(matches!(error, Error::NotWritable { .. }), "{error}");
}

fn stranger_who_may_nothing(path: &Path) {
    for options in [StoreOptions::default(), StoreOptions::reading()] {
        assert_not_permitted(&Store::open_with(path, &options).unwrap_err(), path);
    }
    let beside = path.with_file_name("beside");
    let error = Store::open_with(&beside, &StoreOptions::default()).unwrap_err();
    assert_not_permitted(&error, &beside);
}

/// Not a test of its own: the entry point for the roles of the other tests.
#[test]
fn role() {
    match crate::children::role() {
        Some((role, path)) if role == "may read" => stranger_who_may_read(&path),
        Some((role, path)) if role == "may nothing" => stranger_who_may_nothing(&path),
        Some((role, _)) => panic!("unknown role {role}"),
        None => {}
    }
}

#[test]
fn a_user_with_read_permission_reads_and_gets_an_error_for_writing() {
    let what = "a store that another user may read";
    let Some(dir) = store_for_strangers(what, 0o755) else { return };
    play("bad_places", "may read", &dir.path().join("store"), Some(STRANGER));
}

#[test]
fn a_user_without_any_permission_gets_that_error() {
    let what = "a store that another user may not read";
    let Some(dir) = store_for_strangers(what, 0o700) else { return };
    play("bad_places", "may nothing", &dir.path().join("store"), Some(STRANGER));
}

#[test]
fn network_file_systems_and_fuse_are_refused_unless_forced() {
    for kind in ["nfs", "cifs", "9p", "fuse", "virtiofs"] {
        let machine = MemoryStorage::new().on(Filesystem::Remote(kind));
        let storage: Arc<dyn Storage> = Arc::new(machine);
        let path = Path::new("/store");
        let error = open(&storage, path).unwrap_err();
        assert!(matches!(error, Error::UnsupportedFilesystem { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains(kind) && said.contains("/store") && said.contains("allow_network_fs"),
            "{said}"
        );
        assert!(storage.stat(path).is_err(), "a refused store must not be created");
        let forced = StoreOptions { allow_network_fs: true, ..StoreOptions::default() };
        let store = Store::open_on(Arc::clone(&storage), path, &forced).unwrap();
        assert_eq!(store.settings().write_mode, WriteMode::Pwrite);
        fill(&topic(&store, "orders"), 0, 10);
        let error = open_to_read(&storage, path).unwrap_err();
        assert!(
            matches!(error, Error::UnsupportedFilesystem { .. }),
            "readers must be refused too: {error}"
        );
    }
}

#[test]
fn when_all_slots_are_taken_that_is_said_and_one_that_gets_free_is_enough() {
    let machine = MemoryStorage::new();
    let path = Path::new("/store");
    let stores: Vec<_> = (0..SLOTS)
        .map(|_| {
            let process: Arc<dyn Storage> = Arc::new(machine.process());
            open(&process, path).unwrap()
        })
        .collect();
    let storage: Arc<dyn Storage> = Arc::new(machine.process());
    let error = open(&storage, path).unwrap_err();
    assert!(
        matches!(error, Error::TooManyWriters { limit, .. } if limit == u32::from(SLOTS)),
        "{error}"
    );
    assert!(error.to_string().contains("/store/slots"), "{error}");
    assert_eq!(error.remedy(), Remedy::FixMachine);
    assert!(open_to_read(&storage, path).is_ok(), "readers need no slot");
    let info = stores[0].info().unwrap();
    let alive = info.slots.iter().filter(|slot| slot.alive == Some(true)).count();
    assert_eq!(alive, usize::from(SLOTS));
    drop(stores.into_iter().nth(77));
    let store = open(&storage, path).unwrap();
    fill(&topic(&store, "orders"), 0, 10);
}
