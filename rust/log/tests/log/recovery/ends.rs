//! Where recovery finds the end of a log: torn or unreadable bytes behind the mark, and bytes that
//! belong to nothing.

use super::*;
use crate::common::{SEGMENT, append_groups, encode, open};
use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::address::Address;
use falaj::internals::format::block::{self, Kind, flag};
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::names;
use falaj::internals::format::segment::Mark;
use falaj::internals::log::verify::{Subject, verify_log};
use falaj::internals::segment::create::{BlockPlace as At, commit, put_block};
use falaj::internals::storage::MapAccess;
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

/// Each of these records has pages to itself.
const LONG: usize = 8000;

/// A log with a record below the mark and three behind it, as killed processes left it.
///
/// Also where these three begin, and where they end.
fn killed() -> (Place, [u64; 4]) {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    let mut at = vec![log.committed().unwrap().position()];
    for value in [b'a', b'b', b'c'] {
        append(&log, 0, &[&[value; LONG]]).unwrap();
        at.push(log.committed().unwrap().position());
    }
    let image = p.memory.survivor();
    (on(image, p), at.try_into().unwrap())
}

/// The same place on another machine.
fn on(memory: MemoryStorage, p: Place) -> Place {
    let faulty = FaultyStorage::over_memory(memory.clone());
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    Place { memory, faulty, storage, ..p }
}

fn path_of(p: &Place, sequence: u64) -> std::path::PathBuf {
    p.dir.join(names::segment(sequence))
}

fn the_cut(p: &Place) -> RepairStep {
    let steps = told(&p.storage, p).steps;
    let mut cuts = steps.into_iter().filter(|step| step.mend == RepairKind::Cut);
    let cut = cuts.next().unwrap();
    assert_eq!(cuts.next(), None);
    cut
}

/// Corrupt a body behind the mark.
fn tear(p: &Place, sequence: u64, position: u64) {
    rewrite(&p.storage, &path_of(p, sequence), position + 100, &[0xee; 4]);
}

/// Bytes that cannot be read may be valid and acknowledged.
///
/// They are in the second record behind the mark, or far behind all records, in space that was
/// never used.
#[test]
fn what_cannot_be_read_behind_the_mark_is_an_end_for_repair_alone() {
    for (record, kept) in [(Some(1), 2), (None, 4)] {
        let (p, at) = killed();
        let path = path_of(&p, 0);
        let bad =
            record.map_or(at[3] + 8192..1 << 30, |record| at[record] + 4096..at[record] + 4104);
        p.faulty.spoil(&path, bad).unwrap();
        let names = p.storage.list(&p.dir).unwrap();
        let refused = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
        assert!(
            matches!(refused, Error::CorruptData { .. } | Error::SystemCallFailed { .. }),
            "{refused}"
        );
        assert_eq!(p.storage.list(&p.dir).unwrap(), names, "nothing may change");
        let well: Arc<dyn Storage> = Arc::new(p.memory.survivor());
        assert!(told(&well, &p).steps.is_empty(), "nothing may be lost");

        let cut = the_cut(&p);
        let end = at[record.unwrap_or(3)];
        assert_eq!((&*cut.path, cut.position, cut.bytes), (&*path, end, SEGMENT - end));
        assert_eq!(cut.why, "the disk could not read these bytes");
        let told = told(&p.storage, &p);
        let (done, log) = repaired(&p.storage, &p);
        assert_eq!(told.steps, done);
        let next = append(&log, 0, &[b"new"]).unwrap().first;
        assert_eq!(told.ends, [(0, next)]);
        assert!(next >= 1 << 32, "{next}: it must be past all that may be there");
        let (found, ended) = read_all(&log, 0, 0);
        assert_eq!(found.len(), kept);
        assert!(ended.is_err(), "the lost record must be an error");
    }
}

/// A disk refuses a few reads in a row, and then returns the bytes.
///
/// Bytes that were not read count neither as torn nor as the end, even if they were read a moment
/// before.
#[test]
fn a_read_that_is_refused_for_a_moment_costs_no_record() {
    for row in 1..4 {
        for nth in 1.. {
            let (p, _) = killed();
            let failing = |nth| Fault::at(nth, FailureKind::Errno(libc::EIO)).only(Call::Read);
            (nth..nth + row).for_each(|nth| p.faulty.plan(failing(nth)));
            let opened = open(&p.storage, &p.dir, TestMember::new(0, 2)).map(drop);
            let struck = p.faulty.failed() > 0;
            p.faulty.heal();
            let log = open(&p.storage, &p.dir, TestMember::new(0, 3)).unwrap();
            assert_eq!(values_of(&log, 0).len(), 4, "from read {nth} on, {row}: {opened:?}");
            if !struck {
                assert!(nth > 10, "only {nth} reads");
                break;
            }
        }
    }
}

/// The beginning of a segment cannot be read; the segment was synced before its mark arrived.
#[test]
fn a_segment_that_begins_with_bytes_that_cannot_be_read_is_left_out_by_repair_alone() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"two"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"acknowledged"]).unwrap();
    log.sync().unwrap();
    let crash = p.memory.journal().crash_at_end();
    let p = on(crash.image(&crash.nothing()), p);
    p.faulty.spoil(&path_of(&p, 1), FIRST_BLOCK..FIRST_BLOCK + 4096).unwrap();
    let refused = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
    assert!(
        matches!(refused, Error::CorruptData { .. } | Error::SystemCallFailed { .. }),
        "{refused}"
    );
    let well: Arc<dyn Storage> = Arc::new(p.memory.survivor());
    assert_eq!(told(&well, &p).ends, [(0, 3)], "nothing may be lost by that");
    assert_eq!(the_cut(&p).path, path_of(&p, 0));
    let (_, log) = repaired(&p.storage, &p);
    assert_eq!(read_all(&log, 0, 0).0, [(0, b"one".to_vec()), (1, b"two".to_vec())]);
    let next = append(&log, 0, &[b"new"]).unwrap().first;
    assert!(next >= 3, "{next}: an acknowledged offset is used again");
}

/// If the length behind a cut cannot be read, only repair cuts.
#[test]
fn a_torn_record_before_bytes_that_cannot_be_read_is_cut_off_by_repair_alone() {
    let (p, at) = killed();
    tear(&p, 0, at[0]);
    let next = at[1] + 4096;
    p.faulty.spoil(&path_of(&p, 0), next..next + 8).unwrap();
    let names = p.storage.list(&p.dir).unwrap();
    let refused = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
    assert!(matches!(refused, Error::SystemCallFailed { .. }), "{refused}");
    assert_eq!(p.storage.list(&p.dir).unwrap(), names, "nothing may change");
    let cut = the_cut(&p);
    assert_eq!((cut.position, cut.bytes), (at[0], SEGMENT - at[0]));
    assert_eq!(values_of(&repaired(&p.storage, &p).1, 0).len(), 1);
}

/// Verification reports it as recovery does.
#[test]
fn a_torn_record_is_where_the_log_ends_whoever_is_asked() {
    let (p, at) = killed();
    tear(&p, 0, at[1]);
    let cut = the_cut(&p);
    assert_eq!((cut.path, cut.position, cut.bytes), (path_of(&p, 0), at[1], at[3] - at[1]));
    assert_eq!(cut.why, "the block body's checksum does not match");
    let subject = Subject { dir: p.dir.clone(), generation: LOG, topics: Default::default() };
    let report = verify_log(&p.storage, &subject, &mut 0, 0, &mut |_, _| Ok(())).unwrap();
    assert_eq!(report.recovered, Some(Address::new(0, at[1])));
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(values_of(&log, 0).len(), 2);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 2);
}

/// Each mark lies behind everything in the next segment, so that segment has nothing at its
/// position. A mark speaks of its own segment alone.
#[test]
fn a_mark_spares_the_bodies_of_no_segment_but_its_own() {
    for clean in [true, false] {
        let p = Place::new(1, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[&[b'a'; LONG]]).unwrap();
        log.sync_clean().unwrap();
        log.roll_now().unwrap();
        let torn = log.committed().unwrap().position();
        append(&log, 0, &[&[b'b'; 200]]).unwrap();
        let p = on(p.memory.survivor(), p);
        let marked = Segment::open(&*p.storage, &p.dir, LOG, 0, MapAccess::Write, SEGMENT).unwrap();
        let mark = marked.mark().unwrap();
        assert!(mark.clean && mark.position > torn + 1000);
        marked.set_mark(&Mark { serial: mark.serial + 1, clean, ..mark }).unwrap();
        tear(&p, 1, torn);
        let cut = the_cut(&p);
        assert_eq!((cut.path, cut.position), (path_of(&p, 1), torn), "clean: {clean}");
        let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
        assert_eq!(values_of(&log, 0).len(), 1);
    }
}

/// The segment's beginning did arrive: the log ends in it, and not before it.
#[test]
fn a_segment_whose_first_record_is_torn_is_cut_behind_its_beginning() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    log.roll_now().unwrap();
    let first = log.committed().unwrap().position();
    append(&log, 0, &[&[b'b'; 200]]).unwrap();
    let p = on(p.memory.survivor(), p);
    tear(&p, 1, first);
    let cut = the_cut(&p);
    assert_eq!((cut.path, cut.position), (path_of(&p, 1), first));
    assert_eq!(cut.why, "the block body's checksum does not match");
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 1);
}

/// Otherwise an old block could come back behind what is appended there.
#[test]
fn a_log_goes_on_in_a_new_segment_where_anything_lies_behind_its_end() {
    let (p, at) = killed();
    let dirt = at[3] + 9000;
    rewrite(&p.storage, &path_of(&p, 0), dirt, &[1]);
    let cut = the_cut(&p);
    assert_eq!(cut.why, "bytes that belong to no block follow the end");
    let behind = (dirt + 1).next_multiple_of(8) - at[3];
    assert_eq!((cut.position, cut.bytes), (at[3], behind));
    let (_, log) = repaired(&p.storage, &p);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 4);
    assert_eq!(log.committed().unwrap().sequence(), 1);
    assert_eq!(values_of(&log, 0).len(), 5);
}

/// Store blocks behind the end of a log, as their writer would; return where the last of them ends.
fn store(p: &Place, mut position: u64, blocks: &[(block::BlockHeader, &[u8])]) -> u64 {
    let segment = Segment::open(&*p.storage, &p.dir, LOG, 0, MapAccess::Write, SEGMENT).unwrap();
    let (map, salt, seed) = (segment.map(), segment.salt(), segment.seed());
    for (header, body) in blocks {
        let place = At { map, position, salt, seed };
        commit(place, put_block(place, header, body).unwrap()).unwrap();
        position += header.padded();
    }
    position
}

fn header(kind: Kind, flags: u16, body: &[u8]) -> block::BlockHeader {
    let len = (block::BlockHeader::len_for(flags) + body.len()) as u32;
    block::BlockHeader { flags, len, body_crc: crc32(body), ..block::BlockHeader::new(kind) }
}

/// It may be valid, and acknowledged by the version that wrote it.
#[test]
fn a_block_of_a_newer_version_behind_the_mark_is_never_cut_off() {
    let (p, at) = killed();
    store(&p, at[3], &[(header(Kind::Newer, 0, b"who knows"), b"who knows")]);
    let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
    let place = |error: &Error| match error {
        Error::UnsupportedVersion { path, position, .. } => Some((path.clone(), *position)),
        _ => None,
    };
    assert_eq!(place(&error), Some((path_of(&p, 0), Some(at[3]))), "{error}");
    let error = mend(&p.storage, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap_err();
    assert!(place(&error).is_some(), "not by repair either: {error}");
    assert_eq!(p.segments(), [0]);
}

/// The last of three groups of two topics may be torn, in any of its blocks.
#[test]
fn a_group_behind_the_mark_is_there_as_a_whole_or_not_at_all() {
    for torn in [None, Some(0), Some(1)] {
        let p = Place::new(2, WriteMode::Mapped);
        let log = p.open(TestMember::new(0, 1));
        append(&log, 0, &[b"marked"]).unwrap();
        log.sync_clean().unwrap();
        for _ in 0..3 {
            append_groups(&log, &[(0, &[&[b'a'; 200]]), (1, &[&[b'b'; 200], &[b'c'; 200]])])
                .unwrap();
        }
        let p = on(p.memory.survivor(), p);
        let blocks = blocks_of(&p.storage, &p.dir, 0);
        let [head, member] = blocks[blocks.len() - 2..] else { panic!("{blocks:?}") };
        if let Some(torn) = torn {
            tear(&p, 0, [head, member][torn]);
            assert_eq!(the_cut(&p).position, head);
        } else {
            assert!(told(&p.storage, &p).steps.is_empty());
        }
        let groups = if torn.is_some() { 2 } else { 3 };
        let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
        let found = [0, 1].map(|topic| values_of(&log, topic).len());
        assert_eq!(found, [1 + groups, 2 * groups], "{torn:?}");
        let (_, firsts) = append_groups(&log, &[(0, &[b"d"]), (1, &[b"e"])]).unwrap();
        assert_eq!(firsts, found.map(|count| count as u64));
    }
}

/// All its blocks are valid, but the log cannot accept one of them: it has no such topic.
#[test]
fn a_group_of_which_one_block_means_nothing_is_cut_off_as_a_whole() {
    let (p, at) = killed();
    let own = encode(&[b"of this log"]);
    let other = encode(&[b"of another"]);
    let member = header(Kind::Data, flag::MEMBER | flag::TOPIC, other.body());
    let member = block::BlockHeader { topic: 9, count: 1, span: 1, ..member };
    let head = header(Kind::Data, flag::GROUP, own.body());
    let group_len = (head.padded() + member.padded()) as u32;
    let head = block::BlockHeader { group_len, offset: 4, count: 1, span: 1, ..head };
    let end = store(&p, at[3], &[(head, own.body()), (member, other.body())]);
    let cut = the_cut(&p);
    assert_eq!((cut.position, cut.bytes), (at[3], end - at[3]));
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(values_of(&log, 0).len(), 4);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 4);
}
