//! Headers that are made anew: which are proven and by what, and the copy that takes the segment's name.

use super::*;
use crate::common::{append_groups, create_log_of, log_dir, open};
use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::format::control::at;
use falaj::internals::format::names;
use falaj::internals::format::segment::{HEADER_LEN, Replaces, SegmentHeader};
use falaj::internals::log::LogSettings;
use falaj::internals::storage::faulty::{Call, FaultyStorage};
use falaj::internals::storage::memory::MemoryStorage;

/// When the first record of these logs was appended; each append is later than the one before.
const BEGAN: i64 = 2_000_000_000_000_000;

/// Records of two topics, as groups, in segments of which the last was closed.
fn rising(segments: i64) -> Place {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for i in 0..segments {
        for j in 1..4 {
            p.memory.set_now_us(BEGAN + 100 * i + 10 * j);
            append_groups(&log, &[(0, &[b"a"]), (1, &[b"b", b"c"])]).unwrap();
        }
        if i + 1 < segments {
            log.roll_now().unwrap();
        }
    }
    log.sync_clean().unwrap();
    drop(log);
    p
}

fn path_of(p: &Place, sequence: u64) -> std::path::PathBuf {
    p.dir.join(names::segment(sequence))
}

/// All of a header is lost, or only its first bytes.
fn lose(p: &Place, sequence: u64, len: usize) {
    rewrite(&p.storage, &path_of(p, sequence), 0, &vec![0; len]);
}

fn header_of(p: &Place, sequence: u64) -> SegmentHeader {
    segment_of(&p.storage, &p.dir, sequence).header().clone()
}

/// The segment is told as one whose header is made anew, and that is done.
fn is_made_anew(p: &Place, sequence: u64, was: &SegmentHeader) {
    let told = told(&p.storage, p).steps;
    assert_eq!(kinds(&told), [RepairKind::NewHeader], "{told:?}");
    assert_eq!(told[0].path, path_of(p, sequence));
    assert_eq!(told, repaired(&p.storage, p).0);
    assert_eq!(header_of(p, sequence), *was);
}

/// It is told as damage, and no byte of it is touched.
fn is_left(p: &Place, sequence: u64) {
    let path = path_of(p, sequence);
    let page = || {
        let mut page = vec![0; 4096];
        p.storage.open(&path, OpenMode::Read).unwrap().read_at(&mut page, 0).unwrap();
        page
    };
    let before = page();
    let refused = plan(&p.storage, &p.dir, &settings(p.mode), 2).map(|told| told.steps);
    let log = p.open(TestMember::new(0, 2));
    for error in [refused.unwrap_err(), log.mend_headers().unwrap_err()] {
        assert!(matches!(&error, Error::Corrupt { path: named, .. } if *named == path), "{error}");
    }
    assert!(page() == before);
}

/// It continues nothing, so nobody names it. What came before the oldest one that retention left did.
#[test]
fn only_the_first_segment_of_a_log_is_known_to_continue_nothing() {
    let p = rising(4);
    let was = header_of(&p, 0);
    lose(&p, 0, HEADER_LEN);
    is_made_anew(&p, 0, &was);
    let p = rising(4);
    p.storage.unlink(&path_of(&p, 0)).unwrap();
    lose(&p, 1, HEADER_LEN);
    is_left(&p, 1);
}

/// No end block names it: what is left of its header tells what it continues, and the old checksum that
/// this is true.
#[test]
fn a_superseding_header_is_proven_by_its_old_checksum() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"two"]).unwrap();
    p.set_latch();
    append(&log, 0, &[b"three"]).unwrap();
    for _ in 0..2 {
        log.roll_now().unwrap();
        append(&log, 0, &[b"more"]).unwrap();
    }
    log.sync_clean().unwrap();
    drop(log);
    let was = header_of(&p, 1);
    assert!(was.supersedes);
    lose(&p, 1, 8);
    is_made_anew(&p, 1, &was);
}

/// In the middle of the log, and where it begins: what it replaced is known to its own header alone.
#[test]
fn a_compacted_header_is_proven_by_its_old_checksum() {
    for sequence in [0, 1] {
        let p = rising(4);
        let replaces = Some(Replaces { first: sequence, clean_us: BEGAN });
        let supersedes = sequence > 0;
        let was = SegmentHeader { supersedes, replaces, ..header_of(&p, sequence) };
        // As compaction leaves it: it stands for a single segment.
        rewrite(&p.storage, &path_of(&p, sequence), 0, &was.encode());
        lose(&p, sequence, 8);
        is_made_anew(&p, sequence, &was);
    }
}

/// The clock went back when it was begun: its records are not the latest of their topics, and from when
/// their times count nobody tells.
#[test]
fn where_no_timestamp_rose_in_a_segment_its_time_is_not_made_up() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for back in [0, 1000, 2000, 3000] {
        p.memory.set_now_us(BEGAN - back);
        append(&log, 0, &[b"a"]).unwrap();
        append(&log, 0, &[b"b"]).unwrap();
        if back < 3000 {
            log.roll_now().unwrap();
        }
    }
    log.sync_clean().unwrap();
    drop(log);
    lose(&p, 1, HEADER_LEN);
    is_left(&p, 1);
}

/// What lies behind the place where the next one continues it is no part of the log, and tells nothing.
#[test]
fn the_header_of_a_segment_that_was_cut_is_proven_by_what_lies_before_the_cut() {
    let p = rising(1);
    let log = p.open(TestMember::new(0, 1));
    p.memory.set_now_us(BEGAN + 100);
    let torn = log.committed().unwrap().position();
    append(&log, 0, &[b"torn"]).unwrap();
    let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
    let p = Place { storage: image, ..p };
    rewrite(&p.storage, &path_of(&p, 0), torn + 12, &[0xee; 4]);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    append(&log, 0, &[b"behind the cut"]).unwrap();
    log.roll_now().unwrap();
    log.sync_clean().unwrap();
    drop(log);
    assert_eq!(header_of(&p, 1).previous.unwrap().end, torn);
    let was = header_of(&p, 0);
    lose(&p, 0, HEADER_LEN);
    is_made_anew(&p, 0, &was);
}

/// Its successor has a mark, and still who made that has not said that all of it is durable.
#[test]
fn a_header_that_is_not_before_what_is_known_as_durable_is_left() {
    let p = rising(3);
    lose(&p, 0, 8);
    let log = p.open(TestMember::new(0, 2));
    assert_eq!(kinds(&log.headers_to_mend().unwrap()), [RepairKind::NewHeader]);
    p.page().store(at::DURABLE, Address::new(0, 4096).0).unwrap();
    for error in [log.headers_to_mend().unwrap_err(), log.mend_headers().unwrap_err()] {
        let path = path_of(&p, 0);
        assert!(matches!(&error, Error::Corrupt { path: named, .. } if *named == path), "{error}");
    }
}

/// A segment of several pieces that are copied one after the other, of a file that keeps room behind its
/// last block and of one that does not.
#[test]
fn the_copy_with_the_right_header_holds_every_byte_of_the_segment() {
    const LARGE: u64 = 4 << 20;
    for keeps_room in [true, false] {
        let memory = MemoryStorage::with_capacity(8 * LARGE);
        let faulty = FaultyStorage::over_memory(memory.clone());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let dir = log_dir(Path::new("/"));
        create_log_of(&*storage, &dir, 1, WriteMode::Mapped, LARGE);
        let settings = LogSettings { segment_bytes: LARGE, ..settings(WriteMode::Mapped) };
        let open = |incarnation| {
            let member = Some(Arc::new(TestMember::new(0, incarnation)) as _);
            Log::open(Arc::clone(&storage), &dir, settings.clone(), member).unwrap()
        };
        let log = open(1);
        for i in 0..10u8 {
            let value: Vec<u8> = (0..250_000u32).map(|at| (at * 7 / 5) as u8 ^ i).collect();
            append(&log, 0, &[&value]).unwrap();
        }
        for _ in 0..2 {
            log.roll_now().unwrap();
            append(&log, 0, &[b"more"]).unwrap();
        }
        log.sync_clean().unwrap();
        let values = values_of(&log, 0);
        drop(log);
        let path = dir.join(names::segment(0));
        let bytes = |path: &Path| {
            let mut bytes = vec![0; storage.stat(path).unwrap().len as usize];
            storage.open(path, OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
            let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            bytes.truncate(end.next_multiple_of(4096));
            bytes
        };
        let sound = bytes(&path);
        if !keeps_room {
            storage.unlink(&path).unwrap();
            storage.open(&path, OpenMode::CreateNew(0o600)).unwrap().write_at(&sound, 0).unwrap();
        }
        rewrite(&storage, &path, 0, &[0; 8]);
        let hurt = bytes(&path);
        let log = open(2);
        let told = log.headers_to_mend().unwrap();
        assert_eq!(kinds(&told), [RepairKind::NewHeader]);
        let reads = faulty.count(Call::Read);
        assert_eq!(log.mend_headers().unwrap(), told);
        // Some to prove it, and then one for each piece and not for each byte.
        assert!(faulty.count(Call::Read) - reads < 1000);
        assert!(bytes(&path)[HEADER_LEN..] == sound[HEADER_LEN..]);
        assert!(bytes(&path)[..HEADER_LEN] == sound[..HEADER_LEN]);
        assert!(values_of(&log, 0) == values);
        let kept = dir.join("quarantine").join(format!("{}.header.0", names::segment(0)));
        assert!(bytes(&kept)[..] == hurt[..4096], "the page as it was found");
    }
}
