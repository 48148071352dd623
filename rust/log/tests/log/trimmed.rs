//! Reports of a trim before the log is recovered, or while it is in the failed-sync state.

use std::path::Path;
use std::sync::Arc;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::error::Error;
use falaj::internals::format::control::at;
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::Log;
use falaj::internals::segment::Check;
use falaj::internals::storage::Storage;
use falaj_twin::faulty::Call;
use falaj_twin::memory::MemoryStorage;

const MODES: [WriteMode; 2] = [WriteMode::Mapped, WriteMode::Pwrite];

/// The first offset, as far as it is known: an unrecovered log may not know more.
///
/// All records and the end must be readable from there.
fn told(storage: &Arc<dyn Storage>, dir: &Path, mode: WriteMode) -> Option<u64> {
    let log = Log::open(Arc::clone(storage), dir, settings(mode), None).unwrap();
    let needs_recovery = |error: &Error| matches!(error, Error::NeedsRecovery { .. });
    let first = match log.first_offset(0) {
        Ok(first) => first,
        Err(error) if needs_recovery(&error) => return None,
        Err(error) => panic!("{error}"),
    };
    let (_, ended) = read_all(&log, 0, first);
    for ended in [ended, log.end_offset(0).map(drop), log.last_offset(0).map(drop)] {
        assert!(ended.as_ref().err().is_none_or(needs_recovery), "{ended:?}");
    }
    Some(first)
}

/// Clear a failed sync, and leave the page as a process does that dies before it publishes the new
/// segment.
fn die_while_clearing(p: &Place, log: &Log) {
    let words = [at::ALLOCATED, at::INDEXED, at::TRIMMED, at::TAIL, at::DIRTY, at::DURABLE];
    let page = p.page();
    let before = words.map(|word| page.load(word));
    log.sync().unwrap();
    assert_eq!(p.segments(), [0, 1]);
    for (word, value) in words.iter().zip(before) {
        page.store(*word, value).unwrap();
    }
    p.set_latch();
}

/// A process died after it named the segment that saves the records in doubt, and before it
/// published it.
///
/// The trim is recorded behind that segment's beginning, and the page does not show it.
#[test]
fn a_trim_stays_known_when_a_process_dies_while_it_clears_a_failed_sync() {
    for mode in MODES {
        let p = Place::new(1, mode);
        let log = p.open(TestMember::new(0, 1));
        let beside = p.open(TestMember::new(0, 1).beside(1));
        append(&log, 0, &[b"0", b"1", b"2", b"3", b"4"]).unwrap();
        p.fail_next_sync();
        p.fail(Call::Rename, 1, libc::EIO);
        assert!(log.trim(&[(0, 3)]).is_err());
        assert!(p.is_latched());
        die_while_clearing(&p, &log);
        assert_eq!(told(&p.storage, &p.dir, mode), Some(3));
        assert_eq!((log.first_offset(0).unwrap(), beside.first_offset(0).unwrap()), (3, 3));
        append(&beside, 0, &[b"more"]).unwrap();
        assert_eq!((log.first_offset(0).unwrap(), beside.first_offset(0).unwrap()), (3, 3));
        assert_eq!(told(&p.storage, &p.dir, mode), Some(3));
    }
}

/// A process died while it cleared a failed sync, or in a recovery: the segment that replaces others
/// has its name, and the page still shows the end in one that it replaced.
#[test]
fn after_such_a_death_readers_do_not_list_the_segments_again_for_each_look() {
    for mode in MODES {
        let p = Place::new(1, mode);
        let log = p.open(TestMember::new(0, 1));
        let open = || Log::open(Arc::clone(&p.storage), &p.dir, settings(mode), None).unwrap();
        let before = open();
        append(&log, 0, &[b"0", b"1", b"2", b"3", b"4"]).unwrap();
        assert_eq!(before.end_offset(0).unwrap(), 5);
        p.fail_next_sync();
        p.fail(Call::Rename, 1, libc::EIO);
        assert!(log.sync().is_err());
        die_while_clearing(&p, &log);
        for log in [before, open()] {
            assert_eq!((log.first_offset(0).unwrap(), log.end_offset(0).unwrap()), (0, 5));
            assert_eq!(read_all(&log, 0, 0).0.len(), 5);
            let listed = p.faulty.count(Call::List);
            for offset in (0..5).cycle().take(100) {
                let block =
                    log.cursor_at(0, offset, Check::Full).unwrap().next_block().unwrap().cloned();
                assert_eq!(block.map(|block| block.first()), Some(0));
                assert_eq!((log.first_offset(0).unwrap(), log.end_offset(0).unwrap()), (0, 5));
                assert_eq!(log.trimmed(0), 0);
            }
            assert_eq!(p.faulty.count(Call::List) - listed, 0, "{mode:?}");
        }
    }
}

/// Loses each pending change alone, at each moment of a trim.
///
/// A record of several sectors ends near the end of one. A reader before recovery must not see a
/// later beginning than recovery finds. No byte may count as a newer version's.
#[test]
fn a_reader_before_recovery_sees_no_later_trim_than_recovery_finds() {
    for mode in MODES {
        for filler in (0..512).step_by(8) {
            let p = Place::new(1, mode);
            let log = p.open(TestMember::new(0, 1));
            append(&log, 0, &[b"first"]).unwrap();
            log.sync().unwrap();
            append(&log, 0, &[&vec![b'l'; 1200 + filler]]).unwrap();
            // The beginnings of one record's sector, and of the next one where the record's last
            // bytes are.
            if (9..456).contains(&(log.committed().unwrap().position() % 512)) {
                continue;
            }
            let begun = p.memory.journal().len();
            log.trim(&[(0, 1)]).unwrap();
            let journal = p.memory.journal();
            for crash in journal.crashes_from(begun) {
                for lost in 0..crash.choices().len() {
                    let mut selection = crash.everything();
                    selection[lost] = 0;
                    let image: MemoryStorage = crash.image(&selection);
                    let storage: Arc<dyn Storage> = Arc::new(image);
                    let before = told(&storage, &p.dir, mode).unwrap_or(0);
                    let log = open_as(&storage, &p.dir, TestMember::new(0, 2), mode).unwrap();
                    let after = log.first_offset(0).unwrap();
                    assert!(
                        before <= after,
                        "{before} before recovery, {after} after it: {}",
                        crash.describe(&selection)
                    );
                }
            }
        }
    }
}
