//! The snapshot at a segment's beginning: large ones in small segments, and torn ones.

use std::path::Path;
use std::sync::Arc;

use crate::common::place::Place;
use crate::common::*;
use falaj::internals::format::control::{at, flag};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::segment::walk::SegmentWalker;
use falaj::internals::segment::{Check, Segment};
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{MapAccess, OpenMode, Storage};

const MANY: u32 = 600;

fn latch(storage: &Arc<dyn Storage>, dir: &Path) {
    let file = storage.open(&dir.join("control"), OpenMode::ReadWrite).unwrap();
    file.map(4096, MapAccess::Write).unwrap().store(at::FLAGS, flag::LATCHED).unwrap();
}

/// The snapshot takes most of a segment, and so does what changed since it was prepared.
#[test]
fn many_topics_fit_small_segments() {
    for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let root = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
        let dir = log_dir(root.path());
        create_log(&*storage, &dir, MANY, mode);
        let member = TestMember::new(0, 1);
        let other = member.beside(1);
        let logs = [member, other].map(|m| open_as(&storage, &dir, m, mode).unwrap());
        for round in 0..4 {
            for topic in 0..MANY {
                append(&logs[round % 2], topic, &[b"some value"]).unwrap();
            }
            if round % 2 == 0 {
                // Sets the failed-sync state with the next segment prepared, and keeps that
                // segment.
                latch(&storage, &dir);
            }
            logs[1].roll_now().unwrap();
        }
        let reader = open_to_read(&storage, &dir).unwrap();
        for topic in (0..MANY).step_by(50) {
            let (seen, ended) = read_all(&reader, topic, 0);
            assert_eq!((seen.len(), ended.is_ok()), (4, true), "topic {topic}");
        }
        let limit = logs[0].max_group_len();
        append(&logs[0], 0, &[&vec![1; limit as usize - 100]]).unwrap();
        drop(logs);
        let log = open_as(&storage, &dir, TestMember::new(0, 2), mode).unwrap();
        assert_eq!(append(&log, 1, &[b"some value"]).unwrap().first, 4);
    }
}

#[test]
fn segments_with_large_snapshots_hold_as_much_beside_them() {
    let p = Place::new(MANY, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for i in 0..2000 {
        append(&log, i % MANY, &[b"some value"]).unwrap();
    }
    let segments = p.segments().len();
    assert!(segments <= 5, "{segments} segments for 2000 records");
}

/// A roll syncs only most of a snapshot before the rename.
///
/// If a power cut takes the rest, the segment's offsets are unknown. The log then continues from
/// the segment before.
#[test]
fn a_snapshot_that_is_torn_never_takes_offsets_back() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    // Sets the failed-sync state with the next segment prepared, and keeps that segment.
    p.set_latch();
    log.roll_now().unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    log.sync().unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"three"]).unwrap();
    let newest = *p.segments().last().unwrap();
    assert_eq!(log.committed().unwrap().sequence(), newest);
    std::mem::forget(log);

    let reach = SEGMENT;
    let segment = Segment::open(&*p.storage, &p.dir, LOG, newest, MapAccess::Read, reach).unwrap();
    let mut walk = SegmentWalker::new();
    walk.step(&segment, Check::Full).unwrap().unwrap();
    assert_eq!(
        walk.state.topic(0).unwrap().next,
        1,
        "the synced part is older than the second record"
    );
    for torn in [vec![0; 8], vec![0xff; 8], vec![0; 4096]] {
        let image: Arc<dyn Storage> = Arc::new(p.memory.survivor());
        let path = p.dir.join(falaj::internals::format::names::segment(newest));
        let file = image.open(&path, OpenMode::ReadWrite).unwrap();
        file.write_at(&torn, walk.position).unwrap();
        let log = open(&image, &p.dir, TestMember::new(0, 2)).unwrap();
        assert_eq!(append(&log, 0, &[b"again"]).unwrap().first, 2);
        let (seen, ended) = read_all(&log, 0, 0);
        assert_eq!((seen.len(), ended.is_ok()), (3, true));
    }
}
