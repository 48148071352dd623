//! The locks of a log, as a waiter meets them: a living holder, an invalid word, and a holder whose
//! state cannot be found out.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::common::place::{Place, lock_word};
use crate::common::{TestMember, append, settings};
use falaj::internals::error::{Error, Result};
use falaj::internals::format::control::at;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::lock::{Fate, Identity};
use falaj::internals::log::{Log, LogSettings, Member, Watch};
use falaj::internals::storage::{LockKind, OpenMode, Storage};
use falaj_twin::faulty::Call;

const SHORT: Duration = Duration::from_millis(30);

/// A process that cannot find out about others.
#[derive(Debug)]
struct Blind(TestMember);

impl Member for Blind {
    fn identity(&self) -> Identity {
        self.0.identity()
    }
    fn incarnation(&self) -> u64 {
        self.0.incarnation()
    }
    fn check(&self) -> Result<()> {
        self.0.check()
    }
    fn watch(&self) -> Option<Watch> {
        self.0.watch()
    }
    fn fate(&self, _: Identity) -> io::Result<Fate<Box<dyn Any>>> {
        Err(io::Error::from_raw_os_error(libc::EMFILE))
    }
    fn describe(&self, holder: Identity) -> String {
        self.0.describe(holder)
    }
}

/// Open a log whose lock timeout is short enough for a test.
fn open(p: &Place, member: impl Member + 'static) -> Arc<Log> {
    let settings = LogSettings { lock_timeout: Some(SHORT), ..settings(p.mode) };
    Log::open(Arc::clone(&p.storage), &p.dir, settings, Some(Arc::new(member))).unwrap()
}

#[test]
fn a_lock_that_a_living_process_keeps_is_not_had_and_its_holder_is_named() {
    for word in [at::APPEND_LOCK, at::SYNC_LOCK] {
        let p = Place::new(1, WriteMode::Mapped);
        let log = open(&p, TestMember::new(0, 1));
        append(&log, 0, &[b"a"]).unwrap();
        p.page().store(word, lock_word(5)).unwrap();
        let got = append(&log, 0, &[b"b"]).map(drop).and_then(|()| log.sync());
        let error = got.unwrap_err();
        let Error::LockTimeout { path, waited, holder } = &error else { panic!("{error}") };
        assert_eq!((path, *waited), (&p.dir.join("control"), SHORT));
        assert_eq!(holder, "process in slot 5 (generation 1)");
        let left = falaj::internals::lock::decode(p.page().load(word)).unwrap().unwrap();
        assert_eq!(
            (left.owner.slot(), left.heir),
            (5, None),
            "the lock must stay with its owner, without an heir"
        );
    }
}

#[test]
fn an_invalid_lock_word_is_corruption_at_its_position() {
    for word in [at::APPEND_LOCK, at::SYNC_LOCK] {
        let p = Place::new(1, WriteMode::Mapped);
        let log = open(&p, TestMember::new(0, 1));
        append(&log, 0, &[b"a"]).unwrap();
        p.page().store(word, 0xdead_beef).unwrap();
        let got = append(&log, 0, &[b"b"]).map(drop).and_then(|()| log.sync());
        let error = got.unwrap_err();
        assert!(
            matches!(&error, Error::CorruptData { path, position, .. }
                if *path == p.dir.join("control") && *position == word),
            "{error}"
        );
        assert_eq!(p.page().load(word), 0xdead_beef);
    }
}

#[test]
fn a_waiter_that_cannot_check_the_holder_gets_the_reason() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = open(&p, Blind(TestMember::new(0, 1)));
    p.page().store(at::APPEND_LOCK, lock_word(5)).unwrap();
    let error = append(&log, 0, &[b"a"]).unwrap_err();
    assert!(matches!(error, Error::SystemCallFailed { .. }), "{error}");
    assert_eq!(error.os_error(), Some(libc::EMFILE));
    assert!(error.to_string().contains("control"), "{error}");
}

#[test]
fn the_lock_file_of_a_pwrite_store_is_waited_for_no_longer_than_asked() {
    for name in ["lock.append", "lock.sync"] {
        let p = Place::new(1, WriteMode::Pwrite);
        let log = open(&p, TestMember::new(0, 1));
        append(&log, 0, &[b"a"]).unwrap();
        let other = p.memory.process();
        let path = p.dir.join(name);
        let file = other.open(&path, OpenMode::ReadWrite).unwrap();
        assert!(file.try_lock(LockKind::Exclusive).unwrap());
        let got = append(&log, 0, &[b"b"]).map(drop).and_then(|()| log.sync());
        let error = got.unwrap_err();
        let Error::LockTimeout { path: named, waited, .. } = &error else { panic!("{error}") };
        assert_eq!(named, &path);
        assert!(*waited >= SHORT, "{waited:?}");
        file.unlock().unwrap();
        append(&log, 0, &[b"c"]).unwrap();
        log.sync().unwrap();
    }
}

/// The word of a sync lock keeps its dead holder's identity until another process has made sure of
/// what it left.
#[test]
fn a_death_with_the_sync_lock_is_not_forgotten_where_the_word_cannot_be_stored() {
    let p = Place::new(1, WriteMode::Pwrite);
    let log = open(&p, TestMember::new(0, 1));
    append(&log, 0, &[b"a"]).unwrap();
    let dead = lock_word(5);
    p.page().store(at::SYNC_LOCK, dead).unwrap();
    // The store of the new holder fails; later stores arrive.
    p.fail(Call::Write, 1, libc::EIO);
    log.sync().unwrap_err();
    assert_eq!(p.faulty.failed(), 1);
    assert_eq!(p.page().load(at::SYNC_LOCK), dead, "the next process must doubt the sync");
    log.sync().unwrap();
    assert_eq!(p.page().load(at::SYNC_LOCK), 0);
    assert_eq!(log.durable(), log.committed());
}
