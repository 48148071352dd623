//! The control page, and a process that meets another one's recovery.

use std::any::Any;
use std::io;
use std::sync::OnceLock;

use super::*;
use crate::common::place::lock_word;
use crate::common::{open, settings};
use falaj::internals::error::{Error, Result};
use falaj::internals::format::control::{self, at};
use falaj::internals::format::{VERSION, checksum, names};
use falaj::internals::lock::{Fate, Identity};
use falaj::internals::log::{Member, RepairKind, Watch, mend, plan};
use falaj::internals::storage::File;

#[test]
fn a_page_of_another_log_or_version_in_place_of_the_control_page_is_no_second_one() {
    let p = left();
    let path = p.dir.join("control");
    let page = |version: u32, id: u64| {
        let mut page = vec![0; control::LEN as usize];
        let header = &mut page[..control::HEADER_LEN];
        header.copy_from_slice(&control::encode_header(LOG, id));
        header[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = checksum::crc32(&header[..control::HEADER_LEN - 4]);
        header[control::HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        page
    };
    let segments = p.segments();
    for (version, id) in [(VERSION, 77), (VERSION + 1, 77)] {
        rewrite(&p.storage, &path, 0, &page(version, id));
        // Processes of this incarnation may have the former page open.
        let error = open(&p.storage, &p.dir, TestMember::new(1, 1)).unwrap_err();
        if version > VERSION {
            assert!(matches!(error, Error::UnsupportedVersion { .. }), "{error}");
            let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
            assert!(
                matches!(error, Error::UnsupportedVersion { .. }),
                "it must not be replaced: {error}"
            );
        } else {
            let replaced =
                matches!(&error, Error::LockFileReplaced { path: named } if *named == path);
            assert!(replaced, "{error}");
        }
        assert_eq!(p.segments(), segments, "nothing may be done");
    }
    // In the next incarnation no process has it open.
    rewrite(&p.storage, &path, 0, &page(VERSION, 77));
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_removed_control_page_is_created_again_by_the_next_incarnation_only() {
    let p = left();
    let path = p.dir.join("control");
    p.storage.unlink(&path).unwrap();
    let error = open(&p.storage, &p.dir, TestMember::new(1, 1)).unwrap_err();
    assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    assert!(p.storage.stat(&path).is_err());
    let told = plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap();
    assert_eq!(
        told.steps.iter().map(|step| step.mend).collect::<Vec<_>>(),
        [RepairKind::NewControl]
    );
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    assert_eq!(values_of(&log, 0).len(), 2);
}

/// Only the page says that a sync failed, or that one was running when all processes ended.
#[test]
fn what_a_sync_left_in_doubt_is_written_anew_and_told_before() {
    for in_doubt in [at::FLAGS, at::SYNC_LOCK] {
        let p = left();
        let log = p.open(TestMember::new(0, 1));
        let durable = log.durable().unwrap();
        append(&log, 0, &[b"two"]).unwrap();
        append(&log, 0, &[b"three"]).unwrap();
        match in_doubt {
            at::FLAGS => p.set_latch(),
            _ => p.page().store(at::SYNC_LOCK, lock_word(0)).unwrap(),
        }
        let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
        let told = plan(&image, &p.dir, &settings(p.mode), 2).unwrap();
        let [save] = &told.steps[..] else { panic!("{:?}", told.steps) };
        assert_eq!((save.mend, save.position), (RepairKind::Save, durable.position()));
        assert_eq!(save.path, p.dir.join(names::segment(durable.sequence())));
        let done = mend(&image, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap();
        assert_eq!(told.steps, done, "a dry run must list what a repair does");
        let log = open(&image, &p.dir, TestMember::new(0, 2)).unwrap();
        assert_eq!(log.durable(), log.committed(), "the new segment must be durable");
        assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
        append(&log, 0, &[b"four"]).unwrap();
        assert_eq!(values_of(&log, 0).len(), 4);
    }
}

/// A process that gets the recovery lock when another one has finished.
#[derive(Debug)]
struct Late {
    member: TestMember,
    dir: std::path::PathBuf,
    storage: Arc<dyn Storage>,
    other: OnceLock<Arc<Log>>,
}

impl Member for Late {
    fn identity(&self) -> Identity {
        self.member.identity()
    }
    fn incarnation(&self) -> u64 {
        self.member.incarnation()
    }
    fn check(&self) -> Result<()> {
        self.member.check()
    }
    fn watch(&self) -> Option<Watch> {
        self.member.watch()
    }
    fn fate(&self, holder: Identity) -> io::Result<Fate<Box<dyn Any>>> {
        self.member.fate(holder)
    }
    fn describe(&self, holder: Identity) -> String {
        self.member.describe(holder)
    }
    fn open_to_lock(&self, storage: &dyn Storage, path: &Path) -> io::Result<Arc<dyn File>> {
        self.other.get_or_init(|| {
            let log = open(&self.storage, &self.dir, self.member.beside(7)).unwrap();
            append(&log, 0, &[b"acknowledged since"]).unwrap();
            log
        });
        storage.open(path, OpenMode::ReadWrite)
    }
}

#[test]
fn a_process_that_waited_for_a_recovery_does_not_recover_again() {
    let p = left();
    let late = Late {
        member: TestMember::new(0, 2),
        dir: p.dir.clone(),
        storage: Arc::clone(&p.storage),
        other: OnceLock::new(),
    };
    let marks = || segment_of(&p.storage, &p.dir, 0).mark().unwrap().serial;
    let before = marks();
    let log =
        Log::open(Arc::clone(&p.storage), &p.dir, settings(p.mode), Some(Arc::new(late))).unwrap();
    assert_eq!(marks(), before + 1, "one recovery, one mark");
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"acknowledged since".to_vec()]);
}
