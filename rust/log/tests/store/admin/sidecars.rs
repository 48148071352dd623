//! Files beside the logs: verification finds corruption in a group's or a queue's file, and its
//! remedy helps.

use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, Start, delete_group, list_groups, seek_group};
use falaj::internals::error::{Error, Result};
use falaj::internals::format::consumer::{self, CURSOR_LEN, HEADER_LEN, SECTOR};
use falaj::internals::format::queue::{self, ENDS_LEN};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::queue::{LeasedJob, QueueFile, QueueOptions, overview};
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Finding, Severity, Store, StoreOptions, repair, verify};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{flip, on_both, open, open_to_read, quietly, snapshot, topic};

const LEASE: Duration = Duration::from_secs(3600);

/// A store with a group that has a file of its own, one with its cursor in a log, and a queue.
fn prepare(storage: &Arc<dyn Storage>, root: &Path) -> Result<PathBuf> {
    let path = root.join("store");
    let store = open(storage, &path)?;
    let orders = topic(&store, "orders");
    crate::stores::fill(&orders, 0, 40);
    let mut billing = GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest)?;
    for offset in 1..=5 {
        billing.commit("orders", 0, offset, true)?;
    }
    billing.close()?;
    let mut kept =
        GroupMember::open_in(&store, "kept", from_ref(&orders), Start::Earliest, &orders)?;
    kept.commit("orders", 0, 7, true)?;
    kept.close()?;
    let queue =
        QueueFile::open(&orders, "work", QueueOptions { capacity: 64, ..Default::default() })?;
    let jobs = queue.take(&orders, 9, LEASE)?;
    queue.ack(&orders, &jobs[1..6].iter().map(LeasedJob::to_ack).collect::<Vec<_>>())?;
    queue.nack(&orders, &[jobs[7].lease], Duration::ZERO)?;
    Ok(path)
}

/// Verification's findings about files beside the logs.
fn look(storage: &Arc<dyn Storage>, path: &Path) -> Vec<Finding> {
    let found = verify(storage, path, None, &mut quietly).unwrap();
    let is_beside = |finding: &Finding| {
        ["consumers", "queues"].iter().any(|dir| finding.path.starts_with(path.join(dir)))
    };
    found.findings.into_iter().filter(is_beside).collect()
}

fn write(storage: &Arc<dyn Storage>, path: &Path, position: u64, bytes: &[u8]) {
    storage.open(path, OpenMode::ReadWrite).unwrap().write_at(bytes, position).unwrap();
}

fn bytes_of(storage: &Arc<dyn Storage>, path: &Path) -> Vec<u8> {
    let file = storage.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// Truncate a file.
fn cut(storage: &Arc<dyn Storage>, path: &Path, len: usize) {
    let bytes = bytes_of(storage, path);
    storage.unlink(path).unwrap();
    storage.open(path, OpenMode::CreateNew(0o600)).unwrap().write_at(&bytes[..len], 0).unwrap();
}

/// Corrupt both slots of a cursor.
fn tear(storage: &Arc<dyn Storage>, path: &Path) {
    for sector in [1, 2] {
        write(storage, path, consumer::entry(0) + sector * SECTOR, &[7; 8]);
    }
}

#[test]
fn every_flipped_byte_that_has_a_checksum_is_found_in_its_file() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let path = prepare(&storage, Path::new("/")).unwrap();
    assert_eq!(look(&storage, &path), []);
    let store = open_to_read(&storage, &path).unwrap();
    let cursors = consumer::entry(0) + consumer::at::CURSORS;
    let of_consumer = [
        (0, HEADER_LEN as u64, Severity::Damage),
        (consumer::entry(0), 284, Severity::Rebuildable),
        (cursors, CURSOR_LEN as u64, Severity::Note),
        (cursors + SECTOR, CURSOR_LEN as u64, Severity::Note),
    ];
    let entry = queue::Parts { capacity: 64, ordered: false }.entry(3);
    let of_queue = [
        (0, queue::HEADER_LEN as u64, Severity::Damage),
        (queue::at::ENDS[0], ENDS_LEN as u64, Severity::Note),
        (queue::at::ENDS[1], ENDS_LEN as u64, Severity::Note),
        (entry, queue::ENTRY_LEN, Severity::Note),
    ];
    let files = [("consumers/billing", of_consumer), ("queues/work", of_queue)];
    for (file, ranges) in files {
        let hurt = path.join(file);
        for (from, len, severity) in ranges {
            for position in (from..from + len).step_by(5) {
                flip(&storage, &hurt, position);
                let found = look(&storage, &path);
                let told = found.iter().map(|found| (&found.path, found.severity));
                let newer = Severity::Newer;
                let is_told = told.clone().eq([(&hurt, severity)]) || told.eq([(&hurt, newer)]);
                assert!(is_told, "byte {position} of {file}: {found:?}");
                assert!((from..from + len).contains(&found[0].position), "{position}: {found:?}");
                let consumers = list_groups(&store).unwrap().into_iter();
                let queues = overview(&store).unwrap().into_iter();
                let is_refused = consumers.filter_map(|one| one.cursors.err()).count()
                    + queues.filter_map(|(_, info)| info.err()).count();
                assert_eq!(is_refused > 0, severity == Severity::Damage, "byte {position}");
                flip(&storage, &hurt, position);
            }
        }
    }
    assert_eq!(look(&storage, &path), []);
}

/// A kind of corruption: its file, the reported position, a word of the remedy, and the change.
type Hurt = (&'static str, u64, &'static str, fn(&Arc<dyn Storage>, &Path));

const HURT: [Hurt; 8] = [
    ("consumers/billing", 0, "falaj group delete billing", |s, p| write(s, p, 9, &[9])),
    ("consumers/kept", 0, "falaj group delete kept", |s, p| write(s, p, 40, &[9])),
    ("consumers/billing", 8704, "falaj group seek billing orders --partition 0 --to PLACE", tear),
    ("consumers/billing", 8704, "falaj group delete billing", |s, p| {
        tear(s, p);
        write(s, p, consumer::entry(0), &[9; 30]);
    }),
    ("consumers/billing", 9216, "falaj group delete billing", |s, p| {
        cut(s, p, 9216);
    }),
    ("queues/work", 0, "falaj queue reset work", |s, p| write(s, p, 100, &[9])),
    ("queues/work", 512, "falaj queue reset work", |s, p| {
        queue::at::ENDS.iter().for_each(|at| write(s, p, *at, &[9; 3]));
    }),
    ("queues/work", 8192, "falaj queue reset work", |s, p| {
        cut(s, p, 8192);
    }),
];

#[test]
fn verification_reports_corrupt_groups_and_queues_and_its_remedy_helps() {
    let storage: &Arc<dyn Storage> = &(Arc::new(MemoryStorage::new()) as _);
    for (n, (file, position, remedy, damage)) in HURT.into_iter().enumerate() {
        let root = Path::new("/").join(n.to_string());
        storage.create_dir(&root, 0o700).unwrap();
        let path = prepare(storage, &root).unwrap();
        let hurt = path.join(file);
        damage(storage, &hurt);
        let before = snapshot(storage, &path);
        let found = look(storage, &path);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&found[0].path, found[0].position), (&hurt, position), "{found:?}");
        assert_eq!(found[0].severity, Severity::Damage);
        assert!(found[0].remedy.contains(remedy), "{found:?}");
        assert!(snapshot(storage, &path) == before, "verification changed the store");

        let is_it = |problems: &[Error]| match problems {
            [Error::CorruptData { path, position: at, what }] => {
                (path, *at) == (&hurt, position) && what.contains("`falaj ")
            }
            _ => false,
        };
        for dry in [true, false] {
            let options = StoreOptions::default();
            let report = repair(Arc::clone(storage), &path, &options, dry).unwrap();
            assert!(!report.is_complete() && is_it(&report.problems), "{report:?}");
            let store = open(storage, &path).unwrap();
            let done = store.maintain(dry).unwrap();
            assert!(is_it(&done.problems), "{done:?}");
        }
        let store = open(storage, &path).unwrap();
        let report = store.backup(root.join("copy"), &mut quietly).unwrap();
        assert!(is_it(&report.problems), "{report:?}");
        let copied = look(storage, &root.join("copy"));
        assert_eq!(copied.len(), 1, "{copied:?}");
        assert_eq!(copied[0].path, root.join("copy").join(file));

        let name = hurt.file_name().and_then(|name| name.to_str()).unwrap();
        if remedy.contains("seek") {
            seek_group(&store, name, &topic(&store, "orders"), 0, Start::Offset(3)).unwrap();
        } else if remedy.contains("falaj group delete") {
            delete_group(&store, name).unwrap();
        } else {
            falaj::internals::queue::delete(&store, name).unwrap();
        }
        assert_eq!(look(storage, &path), [], "{n}");
        assert!(store.maintain(false).unwrap().problems.is_empty());
    }
}

#[test]
fn what_a_newer_version_wrote_is_told_as_that() {
    on_both(|storage, root| {
        let path = prepare(storage, root).unwrap();
        for file in ["consumers/billing", "queues/work"] {
            let hurt = path.join(file);
            let len = if file.starts_with('c') { HEADER_LEN } else { queue::HEADER_LEN };
            let mut header = bytes_of(storage, &hurt)[..len].to_vec();
            header[8] += 1;
            let crc = crc32fast::hash(&header[..len - 4]);
            header[len - 4..].copy_from_slice(&crc.to_le_bytes());
            write(storage, &hurt, 0, &header);
        }
        let found = look(storage, &path);
        assert!(found.iter().all(|found| found.severity == Severity::Newer), "{found:?}");
        assert!(found.iter().all(|found| found.remedy == "upgrade falaj"), "{found:?}");
        assert_eq!(found.len(), 2);
        let options = StoreOptions::default();
        let report = repair(Arc::clone(storage), &path, &options, true).unwrap();
        assert!(
            report.problems.iter().all(|error| matches!(error, Error::UnsupportedVersion { .. }))
        );
        assert_eq!(report.problems.len(), 2);
    });
}

#[test]
fn a_store_that_lost_its_settings_has_its_consumers_looked_at_all_the_same() {
    on_both(|storage, root| {
        let path = prepare(storage, root).unwrap();
        storage.unlink(&path.join("falaj.json")).unwrap();
        assert_eq!(look(storage, &path), []);
        tear(storage, &path.join("consumers/billing"));
        assert_eq!(look(storage, &path).len(), 1);
    });
}

/// Its word is invalid, so a process that waited for it would wait without end.
#[test]
fn an_invalid_lock_word_is_found_and_is_gone_when_all_have_closed() {
    on_both(|storage, root| {
        let path = prepare(storage, root).unwrap();
        let hurt = path.join("queues/work");
        let queue = |store: &Store| {
            let orders = topic(store, "orders");
            let queue = QueueFile::open(&orders, "work", QueueOptions::default())?;
            queue.take(&orders, 1, LEASE)
        };
        let store = open(storage, &path).unwrap();
        assert_eq!(queue(&store).unwrap().len(), 1);
        write(storage, &hurt, queue::at::LOCK, &[2]);
        let refused = queue(&store).unwrap_err();
        assert!(
            matches!(refused, Error::CorruptData { position: queue::at::LOCK, .. }),
            "{refused}"
        );
        let found = look(storage, &path);
        assert_eq!((found.len(), found[0].position), (1, queue::at::LOCK), "{found:?}");
        assert!(found[0].remedy.contains("end all processes"), "{found:?}");
        drop(store);
        assert_eq!(queue(&open(storage, &path).unwrap()).unwrap().len(), 1);
        assert_eq!(look(storage, &path), []);
    });
}

/// Where a deleted topic would continue is unknown, and not needed.
#[test]
fn a_cursor_of_a_topic_that_was_deleted_is_nothing_to_tell_of() {
    on_both(|storage, root| {
        let path = prepare(storage, root).unwrap();
        let store = open(storage, &path).unwrap();
        tear(storage, &path.join("consumers/billing"));
        assert!(list_groups(&store).unwrap()[0].cursors.is_err());
        store.delete_topic("orders").unwrap();
        assert_eq!(look(storage, &path), []);
        assert_eq!(list_groups(&store).unwrap()[0].cursors.as_ref().unwrap(), &[]);
        let orders = topic(&store, "orders");
        let billing = GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest);
        assert_eq!(billing.unwrap().next("orders", 0).unwrap(), 0);
    });
}

/// The lost entry may be this group's: starting at the end would skip records that were not read.
#[test]
fn a_group_whose_entry_is_lost_does_not_start_over_by_itself() {
    on_both(|storage, root| {
        let path = prepare(storage, root).unwrap();
        let (store, hurt) = (open(storage, &path).unwrap(), path.join("consumers/billing"));
        tear(storage, &hurt);
        write(storage, &hurt, consumer::entry(0), &[9; 30]);
        let orders = topic(&store, "orders");
        let opened = GroupMember::open(&store, "billing", from_ref(&orders), Start::Latest);
        assert!(matches!(opened, Err(Error::CorruptData { position: 8704, .. })), "{opened:?}");
        let needs = store.needs(&orders.settings().generation).unwrap_err();
        assert!(matches!(needs, Error::CorruptData { position: 8704, .. }), "{needs}");
    });
}

#[test]
fn a_store_whose_members_and_workers_are_busy_has_nothing_to_tell() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let directory = tempfile::tempdir().unwrap();
        let (path, storage) = (directory.path().join("store"), RealStorage::new());
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let options = StoreOptions { write_mode: Some(mode), ..StoreOptions::default() };
        let store = Store::open_on(Arc::clone(&storage), &path, &options).unwrap();
        let orders = topic(&store, "orders");
        crate::stores::fill(&orders, 0, 20);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (is_over, orders, store) = (&is_over, &orders, &store);
            scope.spawn(move || {
                let mut billing =
                    GroupMember::open(store, "billing", from_ref(orders), Start::Earliest).unwrap();
                for offset in (0..20).cycle() {
                    billing.commit("orders", 0, offset, false).unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            scope.spawn(move || {
                let options = QueueOptions { capacity: 64, ..Default::default() };
                let queue = QueueFile::open(orders, "work", options).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    for job in queue.take(orders, 3, LEASE).unwrap() {
                        queue.nack(orders, &[job.lease], Duration::ZERO).unwrap();
                    }
                }
            });
            let found: Vec<_> = (0..60).map(|_| look(&storage, &path)).collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(found.concat(), [], "{mode:?}");
        });
    }
}

/// One of two slots is valid. The other may be half stored by a process that is writing it.
#[test]
fn what_a_living_process_may_be_storing_is_nothing_to_tell_of() {
    on_both(|storage, root| {
        let path = prepare(storage, root).unwrap();
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders");
        let (of_consumer, of_queue) = (path.join("consumers/billing"), path.join("queues/work"));
        let billing =
            GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest).unwrap();
        write(storage, &of_consumer, consumer::entry(0) + SECTOR, &[7; 8]);
        assert_eq!(look(storage, &path), []);
        billing.close().unwrap();
        assert_eq!(look(storage, &path).len(), 1);

        let entry = queue::Parts { capacity: 64, ordered: false }.entry(3);
        write(storage, &of_queue, queue::at::BUSY, &[1]);
        write(storage, &of_queue, queue::at::ENDS[0], &[7; 8]);
        write(storage, &of_queue, entry, &[7; 8]);
        assert_eq!(look(storage, &path).len(), 1);
        write(storage, &of_queue, queue::at::BUSY, &[0]);
        assert_eq!(look(storage, &path).len(), 3);
    });
}
