//! A segment larger than the cache of a reader without maps: it drops the cache on the way, with
//! the same result.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{LOG, TestMember, append, create_log_of, log_dir, settings};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::log::{Log, LogSettings, Member};
use falaj::internals::segment::index::Index;
use falaj::internals::segment::walk::SegmentWalker;
use falaj::internals::segment::{Check, Reading, Segment};
use falaj::internals::storage::Storage;
use falaj::internals::storage::real::RealStorage;

const SEGMENT: u64 = 256 << 20;
const RECORD: usize = 2 << 20;
/// More than twice the size of the cache.
const RECORDS: u64 = 70;

fn open(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    reading: Reading,
    member: Option<TestMember>,
) -> Arc<Log> {
    let settings = settings(WriteMode::Mapped);
    let settings = LogSettings { segment_bytes: SEGMENT, reading, ..settings };
    let member = member.map(|member| Arc::new(member) as Arc<dyn Member>);
    Log::open(Arc::clone(storage), dir, settings, member).unwrap()
}

/// Values begin with their number.
fn value(i: u64) -> Vec<u8> {
    let mut value = vec![i as u8; RECORD];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value
}

/// A log of one large segment with a mark near its beginning; its writer was killed.
fn killed(root: &Path) -> (Arc<dyn Storage>, PathBuf) {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    let dir = log_dir(root);
    create_log_of(&*storage, &dir, 1, WriteMode::Mapped, SEGMENT);
    let member = TestMember::new(0, 1);
    let dies = member.obituary();
    let log = open(&storage, &dir, Reading::Map, Some(member));
    for i in 0..RECORDS {
        append(&log, 0, &[&value(i)]).unwrap();
    }
    dies();
    drop(log);
    (storage, dir)
}

#[test]
fn a_reader_without_maps_drops_its_cache_and_finds_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (storage, dir) = killed(root.path());
    let segment =
        |reading| Segment::open_to_read(&*storage, &dir, LOG, 0, SEGMENT, reading).unwrap();

    // A walk, and the building of an index.
    let mapped = segment(Reading::Map);
    let mut whole = SegmentWalker::new();
    while whole.step(&mapped, Check::Header).unwrap().is_some() {}
    let mut unmapped = Arc::new(segment(Reading::Pread));
    let first = Arc::clone(&unmapped);
    let mut walk = SegmentWalker::new();
    walk.go_to(&mut unmapped, whole.position).unwrap();
    assert_eq!((walk.position, &walk.state), (whole.position, &whole.state));
    assert!(walk.is_sure());
    assert!(
        first.exceeds_cache() && !unmapped.exceeds_cache(),
        "another reader must have replaced it"
    );
    assert!(!mapped.exceeds_cache(), "a mapped reader has no such cache");
    let [index, other] = [&mapped, &segment(Reading::Pread)].map(|s| Index::build(s).encode(s));
    assert!(index == other);

    // Recovery reads everything, bodies too; so does a cursor.
    let log = open(&storage, &dir, Reading::Pread, Some(TestMember::new(0, 2)));
    let mut cursor = log.cursor_at(0, 0, Check::Full).unwrap();
    for i in 0..RECORDS {
        let block = cursor.next_block().unwrap().unwrap();
        assert_eq!(block.first(), i);
        // The length of the value comes first.
        assert!(block.body()[block.body().len() - RECORD..] == value(i), "{i}");
    }
    assert!(cursor.next_block().unwrap().is_none());
    // The second cursor finds the segment as the first one left it.
    let mut cursor = log.cursor_at(0, RECORDS - 1, Check::Full).unwrap();
    assert_eq!(
        cursor.next_block().unwrap().map(falaj::internals::log::DataBlock::first),
        Some(RECORDS - 1)
    );
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, RECORDS);
}
