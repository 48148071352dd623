//! A writer that died with the lock: its successor, and readers meanwhile.

use std::sync::Arc;

use crate::log::{Broken, Cursor, Death, Log, Process, Shape, THREE_A_SEGMENT};
use crate::model;
use crate::world::thread;

/// A writer died; the next one takes over while a reader looks.
fn append_after(death: Death, broken: Option<Broken>) {
    model(move || {
        let shape = Shape { mortal: true, segments: 1, broken, ..THREE_A_SEGMENT };
        let log = Arc::new(Log::new(shape));
        assert!(log.append_or_die(&Process::new(0), Some(death)).is_none());
        let heir = Arc::clone(&log);
        let heir = thread::spawn(move || heir.append(&Process::new(1)).0);
        let mut cursor = Cursor::default();
        while log.read(&mut cursor) {}
        assert_eq!(heir.join().unwrap(), if death == Death::Committed { 2 } else { 1 });
        while log.read(&mut cursor) {}
        assert_eq!(cursor.seen, if death == Death::Committed { 2 } else { 1 });
    });
}

#[test]
fn who_takes_over_from_a_dead_writer_mends_what_it_left() {
    for death in [Death::Locked, Death::Dirty, Death::Written, Death::Committed] {
        append_after(death, None);
    }
}

#[test]
#[should_panic]
fn broken_heir_that_mends_nothing_writes_over_a_record_that_was_seen() {
    append_after(Death::Committed, Some(Broken::Unrepaired));
}
