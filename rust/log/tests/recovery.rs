//! Recovery where something stands in its way: a control page that is not the log's, marks that tell
//! nothing, a disk that refuses a look, bytes that arrived without those before them.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod common;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use common::place::{Place, lock_word};
use common::*;
use falaj::error::{Error, Result};
use falaj::format::control::{self, at};
use falaj::format::index::Entry;
use falaj::format::segment::{HEADER_LEN, Header, MARK_LEN, MARKS, Mark};
use falaj::format::settings::WriteMode;
use falaj::format::{VERSION, checksum, names};
use falaj::lock::{Fate, Identity};
use falaj::log::{Log, Member, Mend, Watch, mend, plan};
use falaj::segment::{Check, Reading, Segment};
use falaj::storage::faulty::{Call, Fault, FaultyStorage, How};
use falaj::storage::memory::{MemoryStorage, Undecided};
use falaj::storage::{File, Open, Storage};

fn segment_of(storage: &Arc<dyn Storage>, dir: &Path, sequence: u64) -> Segment {
    Segment::open_to_read(&**storage, dir, LOG, sequence, 0, Reading::Pread).unwrap()
}

fn rewrite(storage: &Arc<dyn Storage>, path: &Path, position: u64, bytes: &[u8]) {
    storage.open(path, Open::ReadWrite).unwrap().write_at(bytes, position).unwrap();
}

fn values_of(log: &Arc<Log>, topic: u32) -> Vec<Vec<u8>> {
    let (found, ended) = read_all(log, topic, 0);
    ended.unwrap();
    assert!(found.iter().zip(0..).all(|((offset, _), n)| *offset == n), "{found:?}");
    found.into_iter().map(|(_, value)| value).collect()
}

// ---- the control page --------------------------------------------------------------------------

/// A log that a process has appended to, synced, and left, in incarnation 1.
fn left() -> Place {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"one"]).unwrap();
    log.sync_clean().unwrap();
    p
}

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
        // Processes of this incarnation may have the page open that was there before.
        let error = open(&p.storage, &p.dir, TestMember::new(1, 1)).unwrap_err();
        if version > VERSION {
            assert!(matches!(error, Error::Newer { .. }), "{error}");
            let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
            assert!(matches!(error, Error::Newer { .. }), "never made anew: {error}");
        } else {
            let replaced =
                matches!(&error, Error::LockFileReplaced { path: named } if *named == path);
            assert!(replaced, "{error}");
        }
        assert_eq!(p.segments(), segments, "nothing was done");
    }
    // In the next one nobody has.
    rewrite(&p.storage, &path, 0, &page(VERSION, 77));
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_control_page_that_was_removed_is_made_anew_by_the_next_incarnation_only() {
    let p = left();
    let path = p.dir.join("control");
    p.storage.unlink(&path).unwrap();
    let error = open(&p.storage, &p.dir, TestMember::new(1, 1)).unwrap_err();
    assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    assert!(p.storage.stat(&path).is_err());
    let told = plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap();
    assert_eq!(told.steps.iter().map(|step| step.mend).collect::<Vec<_>>(), [Mend::NewControl]);
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    append(&log, 0, &[b"two"]).unwrap();
    assert_eq!(values_of(&log, 0).len(), 2);
}

/// Whether a sync failed stands in the page alone; also that one was under way when all were gone.
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
        assert_eq!((save.mend, save.position), (Mend::Save, durable.position()));
        assert_eq!(save.path, p.dir.join(names::segment(durable.sequence())));
        let done = mend(&image, &p.dir, &settings(p.mode), &TestMember::new(0, 2)).unwrap();
        assert_eq!(told.steps, done, "what is told is what is done");
        let log = open(&image, &p.dir, TestMember::new(0, 2)).unwrap();
        assert_eq!(log.durable(), log.committed(), "the new segment is on the medium");
        assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
        append(&log, 0, &[b"four"]).unwrap();
        assert_eq!(values_of(&log, 0).len(), 4);
    }
}

/// A process whose turn at the lock of recovery comes when another one is done.
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
        storage.open(path, Open::ReadWrite)
    }
}

#[test]
fn who_waited_for_another_ones_recovery_does_not_recover_again() {
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

// ---- marks -------------------------------------------------------------------------------------

#[test]
fn a_log_without_a_sound_mark_is_checked_from_its_beginning_and_nothing_of_it_is_lost() {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for i in 0..3u8 {
        append(&log, 0, &[&[i]]).unwrap();
        log.roll_now().unwrap();
    }
    append(&log, 0, &[&[3]]).unwrap();
    log.sync_clean().unwrap();
    drop(log);
    for sequence in p.segments() {
        let path = p.dir.join(names::segment(sequence));
        MARKS.iter().for_each(|at| rewrite(&p.storage, &path, *at, &[0; MARK_LEN]));
    }
    let log = p.open(TestMember::new(0, 2));
    assert_eq!(values_of(&log, 0), [[0], [1], [2], [3]]);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 4);
}

// ---- what arrived and what did not -------------------------------------------------------------

/// A machine whose power goes when one record is in the first segment and one in the next, none of
/// them synced; `lost` says which sectors of which segment did not arrive.
fn cut(lost: impl Fn(u64, u64) -> bool) -> (Arc<dyn Storage>, std::path::PathBuf) {
    let machine = MemoryStorage::new().seeded(5);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let dir = log_dir(Path::new("/"));
    create_log(&*storage, &dir, 1, WriteMode::Mapped);
    let log = open(&storage, &dir, TestMember::new(0, 1)).unwrap();
    for value in [b'a', b'b', b'c'] {
        append(&log, 0, &[&[value; 2000]]).unwrap();
    }
    log.roll_now().unwrap();
    append(&log, 0, &[&[b'd'; 2000]]).unwrap();
    let crash = machine.journal().crash_at_end();
    let selection = crash.choices().iter().map(|choice| {
        let sequence = choice.path.rsplit('/').next().and_then(names::parse_segment);
        match (&choice.what, sequence) {
            (Undecided::Sector(sector), Some(sequence)) if lost(sequence, *sector) => 0,
            _ => choice.latest,
        }
    });
    (Arc::new(crash.image(&selection.collect::<Vec<_>>())), dir)
}

#[test]
fn a_block_that_did_not_arrive_ends_the_log_also_where_the_next_segment_did() {
    // Where the second record's commit word lies: zero is not the end of what follows, nor sound.
    let (whole, dir) = cut(|_, _| false);
    let first = segment_of(&whole, &dir, 0);
    let mut position = 4096;
    let mut blocks = Vec::new();
    while let Some(block) = first.block(position, Check::Full).unwrap() {
        blocks.push(position);
        position = block.end();
    }
    let [_, _, second, third, end] = blocks[..] else { panic!("{blocks:?}") };
    for (lost, kept) in [(second, 1), (third, 2), (end, 3)] {
        let (image, dir) = cut(|sequence, sector| sequence == 0 && sector == lost / 512);
        let told = plan(&image, &dir, &settings(WriteMode::Mapped), 2).unwrap();
        assert!(told.steps.iter().any(|step| step.mend == Mend::SetAside) || kept == 3);
        let log = open(&image, &dir, TestMember::new(0, 2)).unwrap();
        let found = values_of(&log, 0);
        // A sector holds the end of what lies before it as well.
        assert!(found.len() <= kept, "{lost}: {}", found.len());
        assert!(found.iter().zip([b'a', b'b', b'c']).all(|(value, c)| *value == [c; 2000]));
        let next = found.len() as u64;
        assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, next, "{lost}");
        assert_eq!(values_of(&log, 0).len() as u64, next + 1);
    }
}

#[test]
fn a_commit_word_that_did_not_arrive_is_told_as_what_the_log_stops_before() {
    let (image, dir) = cut(|_, _| false);
    let first = segment_of(&image, &dir, 0);
    let introduced = first.block(4096, Check::Full).unwrap().unwrap();
    rewrite(&image, first.path(), introduced.end(), &[0; 8]);
    let told = plan(&image, &dir, &settings(WriteMode::Mapped), 2).unwrap();
    let cut = told.steps.iter().find(|step| step.mend == Mend::Cut).unwrap();
    assert_eq!(cut.why, "the log stops before the next segment");
    assert_eq!((cut.position, &*cut.path), (introduced.end(), first.path()));
    assert!(cut.bytes > 6000, "{cut:?}");
    assert_eq!(told.ends, [(0, 0)]);
    let log = open(&image, &dir, TestMember::new(0, 2)).unwrap();
    assert!(values_of(&log, 0).is_empty());
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 0);
}

/// A process prepares a segment, another one appends, and the first goes on with its roll: of the new
/// segment all arrives but what changed since it was prepared. A disk that refuses a look meanwhile
/// does not make half a beginning a whole one.
#[test]
fn half_a_beginning_is_not_believed_by_who_is_refused_a_look_at_it() {
    let image = with_half_a_beginning();
    let dir = log_dir(Path::new("/"));
    let kept = [(0, b"kept".to_vec())];
    for errno in [libc::EIO, libc::EMFILE] {
        for nth in 1.. {
            let faulty = FaultyStorage::over_memory(image.survivor());
            faulty.plan(Fault::at(nth, How::Errno(errno)));
            let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
            if let Ok(log) = open(&storage, &dir, TestMember::new(0, 2)) {
                let (found, _) = read_all(&log, 0, 0);
                assert!(found.is_empty() || found == kept, "call {nth}: {found:?}");
            }
            let struck = faulty.failed() > 0;
            faulty.heal();
            let log = open(&storage, &dir, TestMember::new(0, 3)).unwrap();
            assert_eq!(read_all(&log, 0, 0).0, kept, "call {nth}");
            assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 1, "call {nth}");
            if !struck {
                assert!(nth > 20, "only {nth} calls");
                break;
            }
        }
    }
}

fn with_half_a_beginning() -> MemoryStorage {
    let machine = MemoryStorage::new().seeded(3);
    let dir = log_dir(Path::new("/"));
    create_log(&machine, &dir, 1, WriteMode::Mapped);
    let [first, second] = [0, 1].map(|_| machine.process());
    let member = TestMember::new(0, 1);
    let processes = [(&first, member.beside(0)), (&second, member.beside(1))];
    let [rolling, appending] = processes.map(|(process, member)| {
        open(&(Arc::new(process.clone()) as Arc<dyn Storage>), &dir, member).unwrap()
    });
    let (waits, prepared) = (AtomicBool::new(true), dir.join(names::prepared(0)));
    let (number, world, other) = (first.process_number(), machine.clone(), Arc::clone(&appending));
    machine.watch(move |process| {
        let now = process == number && world.stat(&prepared).is_ok();
        if now && waits.swap(false, Ordering::SeqCst) {
            append(&other, 0, &[b"kept"]).unwrap();
        }
    });
    rolling.roll_now().unwrap();
    let journal = machine.journal();
    (0..2).for_each(|slot| member.beside(slot).dies());
    let crash = journal.crash_at_end();
    let selection = crash.choices().iter().map(|choice| match choice.what {
        Undecided::Sector(8..) if choice.path.ends_with(&names::segment(1)) => 0,
        _ => choice.latest,
    });
    crash.image(&selection.collect::<Vec<_>>())
}

// ---- a damaged beginning, told by the segment before -------------------------------------------

/// A closed log of two segments, and the positions of the blocks of each.
fn two_segments() -> (Place, [Vec<u64>; 2]) {
    let p = Place::new(2, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"a"]).unwrap();
    append(&log, 1, &[b"b"]).unwrap();
    log.roll_now().unwrap();
    append(&log, 0, &[b"c"]).unwrap();
    append(&log, 1, &[b"d"]).unwrap();
    log.sync_clean().unwrap();
    drop(log);
    let blocks = [0, 1].map(|sequence| {
        let segment = segment_of(&p.storage, &p.dir, sequence);
        let (mut position, mut found) = (4096, Vec::new());
        while let Some(block) = segment.block(position, Check::Full).unwrap() {
            found.push(position);
            position = block.end();
        }
        found
    });
    (p, blocks)
}

#[test]
fn what_a_damaged_snapshot_said_is_made_up_from_nothing_less_than_certainty() {
    let (sound, [before, after]) = two_segments();
    // What is hurt beside the snapshot, and whether the log can still be told where it went on.
    let index_of_1 = sound.dir.join(names::index(1));
    let cases: [(&str, &[(u64, u64)], bool); 6] = [
        ("nothing else", &[], true),
        ("the snapshot before", &[(0, before[0] + 40)], false),
        ("a header before", &[(0, before[1] + 12)], false),
        ("the second snapshot", &[(1, after[1] + 12)], true),
        ("the record behind it", &[(1, after[2] + 12)], true),
        ("both of these", &[(1, after[1] + 12), (1, after[2] + 12)], true),
    ];
    for (what, hurts, certain) in cases {
        for forged_index in [false, true] {
            let image: Arc<dyn Storage> = Arc::new(sound.memory.survivor());
            let flip = |sequence: u64, position: u64| {
                let path = sound.dir.join(names::segment(sequence));
                rewrite(&image, &path, position, &[0xee; 4]);
            };
            flip(1, after[0] + 40);
            hurts.iter().for_each(|(sequence, position)| flip(*sequence, *position));
            let first_is_there = hurts.iter().all(|hurt| *hurt != (1, after[2] + 12));
            if forged_index {
                // It says of a sound block that it has another offset than the segment before tells.
                let salt = segment_of(&image, &sound.dir, 1).salt();
                let entry = Entry { topic: 0, offset: 7, position: after[2], highest_ns: 1 };
                rewrite(&image, &index_of_1, 64, &entry.encode(salt));
            }
            let contradicted = forged_index && first_is_there;
            let log = open(&image, &sound.dir, TestMember::new(0, 2));
            if !certain || contradicted {
                let error = log.unwrap_err();
                assert!(matches!(error, Error::Corrupt { .. }), "{what}: {error}");
                continue;
            }
            let log = log.unwrap_or_else(|error| panic!("{what}, {forged_index}: {error}"));
            for topic in 0..2 {
                let given = append(&log, topic, &[b"new"]).unwrap().first;
                assert!((2..1000).contains(&given), "{what}: topic {topic} goes on with {given}");
            }
        }
    }
}

/// All that was in it is damaged, so that only its mark tells how much there was.
#[test]
fn a_segment_of_which_nothing_is_left_gives_no_offset_again() {
    let (p, [_, after]) = two_segments();
    for position in &after {
        rewrite(&p.storage, &p.dir.join(names::segment(1)), *position, &[0xee; 16]);
    }
    let log = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap();
    for topic in 0..2 {
        let given = append(&log, topic, &[b"new"]).unwrap().first;
        assert!(given >= 2, "topic {topic} goes on with {given}");
    }
}

// ---- headers -----------------------------------------------------------------------------------

/// A closed log of four segments, with a record in each.
fn closed() -> Place {
    let p = Place::new(1, WriteMode::Mapped);
    let log = p.open(TestMember::new(0, 1));
    for value in [b"a", b"b", b"c"] {
        append(&log, 0, &[value]).unwrap();
        log.roll_now().unwrap();
    }
    append(&log, 0, &[b"d"]).unwrap();
    log.sync_clean().unwrap();
    p
}

/// Wherever it stands: an older falaj that took it for damage would put the end of the log aside.
#[test]
fn a_segment_of_a_newer_version_is_refused_by_name_and_left_where_it_is() {
    for sequence in 0..4 {
        let p = closed();
        let path = p.dir.join(names::segment(sequence));
        let mut bytes = segment_of(&p.storage, &p.dir, sequence).header().encode();
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let crc = checksum::crc32(&bytes[..HEADER_LEN - 4]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        rewrite(&p.storage, &path, 0, &bytes);
        let before = p.storage.list(&p.dir).unwrap();
        let newer = |error: Error| {
            let named = matches!(&error, Error::Newer { path: named, .. } if *named == path);
            assert!(named, "segment {sequence}: {error}");
        };
        newer(plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap_err());
        if sequence >= 2 {
            // The others lie before what the last incarnation wrote: who reads them is told.
            let member = TestMember::new(0, 2);
            newer(mend(&p.storage, &p.dir, &settings(p.mode), &member).unwrap_err());
            newer(open(&p.storage, &p.dir, member).unwrap_err());
        }
        assert_eq!(p.storage.list(&p.dir).unwrap(), before, "segment {sequence}");
    }
}

/// Its successor tells another salt than its predecessor's end block: nothing of that is proof.
#[test]
fn a_header_about_which_its_neighbours_disagree_is_not_made_anew() {
    let p = closed();
    let [path, next] = [1, 2].map(|sequence| p.dir.join(names::segment(sequence)));
    let header = segment_of(&p.storage, &p.dir, 2).header().clone();
    let mut previous = header.previous.unwrap();
    previous.salt ^= 1;
    rewrite(&p.storage, &next, 0, &Header { previous: Some(previous), ..header }.encode());
    rewrite(&p.storage, &path, 0, &[0; HEADER_LEN]);
    let error = plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path: named, .. } if *named == path), "{error}");
}

/// Nothing follows it that could prove what it said.
#[test]
fn the_header_of_the_newest_segment_is_never_made_up() {
    let p = closed();
    let path = p.dir.join(names::segment(3));
    rewrite(&p.storage, &path, 0, &[0; HEADER_LEN]);
    let error = open(&p.storage, &p.dir, TestMember::new(0, 2)).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path: named, .. } if *named == path), "{error}");
    let told = plan(&p.storage, &p.dir, &settings(p.mode), 2).unwrap();
    assert!(told.steps.iter().all(|step| step.mend != Mend::NewHeader), "{:?}", told.steps);
    assert_eq!(told.ends, [(0, 3 + (1 << 32))], "beyond what the lost one can have held");
}

// ---- carrying over -----------------------------------------------------------------------------

#[test]
fn a_block_that_was_damaged_after_it_was_checked_is_not_carried_over() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"seen and sound"]).unwrap();
    let durable = log.durable().unwrap();
    assert_eq!(values_of(&log, 0).len(), 2, "each block is checked once by this process");
    p.segment(0).write_at(b"X", durable.position() + 40).unwrap();
    p.set_latch();
    let names = p.storage.list(&p.dir).unwrap();
    let error = append(&log, 0, &[b"more"]).unwrap_err();
    assert!(matches!(error, Error::Latched { .. }), "{error}");
    assert!(error.to_string().contains("cannot be carried over"), "{error}");
    assert!(p.is_latched());
    assert_eq!(p.storage.list(&p.dir).unwrap(), names, "what was begun is removed");
}

#[test]
fn a_segment_that_does_not_get_its_name_leaves_the_log_as_it_was() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"two"]).unwrap();
    p.set_latch();
    let names = p.storage.list(&p.dir).unwrap();
    p.fail(Call::Rename, 1, libc::EIO);
    let error = append(&log, 0, &[b"three"]).unwrap_err();
    assert!(matches!(error, Error::Latched { .. }), "{error}");
    assert_eq!(p.storage.list(&p.dir).unwrap(), names, "what was begun is removed");
    append(&log, 0, &[b"three"]).unwrap();
    assert!(!p.is_latched());
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
}

/// The topic's last durable record is damaged, and what is carried over tells where it went on.
#[test]
fn what_is_carried_over_tells_with_which_offset_a_damaged_topic_goes_on() {
    let p = Place::new(2, WriteMode::Mapped);
    let member = TestMember::new(0, 1);
    let other = member.beside(1);
    let log = p.open(member);
    append(&log, 1, &[b"z"]).unwrap();
    let hurt = log.committed().unwrap().position();
    append(&log, 0, &[b"lost"]).unwrap();
    append(&log, 1, &[b"y"]).unwrap();
    log.sync().unwrap();
    append(&log, 0, &[b"in doubt"]).unwrap();
    append(&log, 0, &[b"in doubt too"]).unwrap();
    p.set_latch();
    p.segment(0).write_at(&[0xee; 8], hurt).unwrap();
    drop(log);
    let log = p.open(other);
    assert_eq!(append(&log, 0, &[b"new"]).unwrap().first, 3);
    assert_eq!(append(&log, 1, &[b"new"]).unwrap().first, 2);
    let (found, ended) = read_all(&log, 0, 1);
    ended.unwrap();
    let found: Vec<_> = found.into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(found, [1, 2, 3]);
    assert!(read_all(&log, 0, 0).1.is_err(), "the lost one is told");
}

#[test]
fn a_mark_of_a_superseding_segment_claims_what_is_on_the_medium_and_no_more() {
    let p = left();
    let log = p.open(TestMember::new(0, 1));
    append(&log, 0, &[b"two"]).unwrap();
    p.set_latch();
    append(&log, 0, &[b"three"]).unwrap();
    let made = log.committed().unwrap().sequence();
    let mark: Mark = segment_of(&p.storage, &p.dir, made).mark().unwrap();
    assert_eq!((mark.clean, mark.succeeded, mark.incarnation), (false, false, 1));
    assert!(mark.position > 4096 && mark.control != 0, "{mark:?}");
    let image = p.after_power_cut();
    let log = open(&image, &p.dir, TestMember::new(0, 2)).unwrap();
    assert_eq!(values_of(&log, 0), [b"one".to_vec(), b"two".to_vec()], "as the clearing synced");
}
