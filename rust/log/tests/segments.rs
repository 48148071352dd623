//! One segment, block by block: what is asked for beside its blocks, behind its end, through damage and
//! on a disk that does not answer.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::error::Error;
use falaj::format::block::{HEADER_LEN, Header, Kind, flag};
use falaj::format::checksum::crc32;
use falaj::format::index::{ENTRY_LEN, Entry, HEADER_LEN as INDEX_HEADER, STRIDE, file_len};
use falaj::format::segment::{Header as SegmentHeader, Mark};
use falaj::format::state::{LogState, TopicState};
use falaj::format::{Malformed, PAGE, names};
use falaj::segment::create::{Builder, own_header, own_len, void_header};
use falaj::segment::index::{Index, Pacer, write_file};
use falaj::segment::walk::{NUMBERS, Step, Walk, appended_ns};
use falaj::segment::{CANNOT_READ, Check, Reading, Segment};
use falaj::storage::faulty::{Call, Fault, FaultyStorage, How};
use falaj::storage::memory::MemoryStorage;
use falaj::storage::{Access, File, Open, Storage};

const LOG: [u8; 16] = [7; 16];
const LEN: u64 = 64 << 10;
const BASE_US: i64 = 1_000_000;

/// A segment in the making, beginning with a snapshot of topics 0 and 1, whose next offset is 10.
struct Draft {
    memory: MemoryStorage,
    dir: PathBuf,
    builder: Builder,
    /// Positions of its blocks.
    blocks: Vec<u64>,
}

impl Draft {
    fn new() -> Self {
        let (memory, dir) = (MemoryStorage::new(), PathBuf::from("/log"));
        memory.create_dir(&dir, 0o700).unwrap();
        let path = dir.join(names::segment(3));
        let builder = Builder::new(&memory, path, LEN, LEN, 0o600, Access::Write).unwrap();
        let mut draft = Self { memory, dir, builder, blocks: Vec::new() };
        let mut state = LogState::default();
        for number in 0..2 {
            let topic = TopicState { next: 10, ..TopicState::empty([1; 16], number) };
            assert!(state.set_topic(number, topic));
        }
        let snapshot = state.encode_since(&LogState::default());
        draft.put(&own_header(Kind::Snapshot, &snapshot, 0), &snapshot);
        draft
    }

    fn put(&mut self, header: &Header, body: &[u8]) -> u64 {
        let position = self.builder.position();
        self.builder.block(header, body).unwrap();
        self.blocks.push(position);
        position
    }

    fn data(&mut self, topic: u32, offset: u32, body: &[u8]) -> u64 {
        self.put(&data(topic, offset, 0, body), body)
    }

    fn finish(self, replaces: Option<(u64, u64)>) -> Made {
        let header = SegmentHeader {
            log: LOG,
            sequence: 3,
            salt: self.builder.salt(),
            supersedes: false,
            previous: None,
            replaces,
            time_base_us: BASE_US,
        };
        self.builder.header(&header, &Mark { serial: 1, ..Mark::default() }).unwrap();
        self.builder.sync().unwrap();
        let end = self.builder.position();
        Made { memory: self.memory, dir: self.dir, blocks: self.blocks, end }
    }
}

/// Header of a block of one value.
fn data(topic: u32, offset: u32, flags: u16, body: &[u8]) -> Header {
    let flags = flags | if topic == 0 { 0 } else { flag::TOPIC };
    Header {
        len: (Header::len_for(flags) + body.len()) as u32,
        body_crc: crc32(body),
        offset,
        count: 1,
        span: 1,
        flags,
        topic,
        ..Header::new(Kind::Data)
    }
}

struct Made {
    memory: MemoryStorage,
    dir: PathBuf,
    blocks: Vec<u64>,
    end: u64,
}

impl Made {
    fn path(&self) -> PathBuf {
        self.dir.join(names::segment(3))
    }

    fn open(&self, reading: Reading) -> Segment {
        self.open_on(&self.memory, reading)
    }

    fn open_on(&self, storage: &dyn Storage, reading: Reading) -> Segment {
        Segment::open_to_read(storage, &self.dir, LOG, 3, 0, reading).unwrap()
    }

    fn file(&self) -> Arc<dyn File> {
        self.memory.open(&self.path(), Open::ReadWrite).unwrap()
    }

    fn hurt(&self, position: u64) {
        let mut byte = [0];
        self.file().read_at(&mut byte, position).unwrap();
        self.file().write_at(&[byte[0] ^ 0x55], position).unwrap();
    }
}

const BOTH: [Reading; 2] = [Reading::Map, Reading::Pread];

/// Three records of topic 0 and one of topic 1 between them.
fn four_records() -> Made {
    let mut draft = Draft::new();
    draft.data(0, 0, b"\x01a");
    draft.data(1, 0, b"\x01b");
    draft.data(0, 1, &[&[0xf4, 3][..], &[7; 500]].concat());
    draft.data(0, 2, b"\x01d");
    draft.finish(None)
}

// ---- where there is no block -------------------------------------------------------------------

#[test]
fn beside_a_block_behind_the_end_and_beyond_the_file_there_is_none() {
    let made = four_records();
    for reading in BOTH {
        let segment = made.open(reading);
        assert_eq!(segment.reading(), reading);
        for position in [made.end, LEN - 8, LEN, LEN + 8, u64::MAX - 7, u64::MAX] {
            assert_eq!(segment.word(position), 0, "{position}");
            assert!(segment.block(position, Check::Full).unwrap().is_none(), "{position}");
            assert!(segment.plain(position, Check::Full).is_none(), "{position}");
            assert_eq!(segment.kind(position), Ok(None), "{position}");
            assert!(segment.sound(position).unwrap().is_none(), "{position}");
        }
        for uneven in 1..8 {
            assert_eq!(segment.word(made.blocks[1] + uneven), 0);
            assert!(segment.plain(made.blocks[1] + uneven, Check::None).is_none());
        }
        let beside = made.blocks[1] + 8;
        assert!(segment.block(beside, Check::None).is_err() && segment.kind(beside).is_err());
        assert!(segment.sound(beside).unwrap().is_none());
    }
}

#[test]
fn the_last_word_of_a_file_is_part_of_it() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    made.file().write_at(&7u64.to_le_bytes(), LEN - 8).unwrap();
    assert_eq!(segment.word(LEN - 8), 7);
}

#[test]
fn a_block_is_found_whole_with_its_body_and_by_its_extent() {
    let made = four_records();
    let bodies: [&[u8]; 3] = [b"\x01a", b"\x01b", &[&[0xf4, 3][..], &[7; 500]].concat()];
    for reading in BOTH {
        let segment = made.open(reading);
        for (position, body) in made.blocks[1..].iter().zip(bodies) {
            let block = segment.block(*position, Check::Full).unwrap().unwrap();
            assert_eq!(segment.kind(*position), Ok(Some(Kind::Data)));
            assert_eq!(segment.body(&block), body);
            let extent = segment.extent(&block);
            assert_eq!((extent.block(), extent.flags()), (*position, block.header.flags));
            assert_eq!(segment.bytes(&extent), body);
            assert_eq!(block.body() - position, block.header.header_len() as u64);
            assert!(block.end() >= block.body() + body.len() as u64 && block.end() % 8 == 0);
        }
    }
}

#[test]
fn the_quick_look_at_a_block_says_what_the_thorough_one_says_or_nothing() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    for position in &made.blocks {
        let block = segment.block(*position, Check::Full).unwrap().unwrap();
        let quick = [Check::None, Check::Header, Check::Full].map(|c| segment.plain(*position, c));
        let plain = block.header.kind == Kind::Data && block.header.flags == 0;
        for quick in quick {
            assert_eq!(quick.map(Header::from), plain.then_some(block.header));
        }
    }
    let unmapped = made.open(Reading::Pread);
    assert!(made.blocks.iter().all(|position| unmapped.plain(*position, Check::None).is_none()));
}

#[test]
fn a_look_finds_what_it_was_asked_to_check_and_no_more() {
    let made = four_records();
    let (body, header) = (made.blocks[1], made.blocks[4]);
    made.hurt(body + HEADER_LEN as u64 + 1);
    made.hurt(header + 16);
    for reading in BOTH {
        let sound = |position, check| made.open(reading).block(position, check).is_ok();
        let quick = |position, check| made.open(Reading::Map).plain(position, check).is_some();
        for (check, body_passes, header_passes) in
            [(Check::None, true, true), (Check::Header, true, false), (Check::Full, false, false)]
        {
            assert_eq!(sound(body, check), body_passes, "{check:?}");
            assert_eq!(sound(header, check), header_passes, "{check:?}");
            assert_eq!(quick(body, check), body_passes, "{check:?}");
            assert_eq!(quick(header, check), header_passes, "{check:?}");
        }
        assert!(made.open(reading).sound(body).unwrap().is_none());
    }
}

#[test]
fn a_void_block_is_sound_whatever_it_covers() {
    let mut draft = Draft::new();
    let (from, covered) = (draft.builder.position(), [0x5a; 64]);
    let header = void_header(from, from + 96);
    draft.put(&header, &covered);
    assert_eq!((header.kind, header.len), (Kind::Void, 96));
    assert_eq!(void_header(from, from + 8).len, HEADER_LEN as u32, "at least a header");
    let made = draft.finish(None);
    made.hurt(from + 40);
    for reading in BOTH {
        let block = made.open(reading).block(from, Check::Full).unwrap().unwrap();
        assert_eq!(block.end(), from + 96);
    }
}

#[test]
fn a_segment_of_another_log_or_number_is_refused() {
    let made = four_records();
    for reading in BOTH {
        let other = Segment::open_to_read(&made.memory, &made.dir, [8; 16], 3, 0, reading);
        assert!(matches!(other, Err(Error::Corrupt { position: 0, .. })), "{other:?}");
        made.memory.unlink(&made.dir.join(names::segment(4))).ok();
        let copy = made.dir.join(names::segment(4));
        let mut bytes = vec![0; LEN as usize];
        made.file().read_at(&mut bytes, 0).unwrap();
        write_file(&made.memory, &copy, &bytes, LEN, 0o600).unwrap();
        let other = Segment::open_to_read(&made.memory, &made.dir, LOG, 4, 0, reading);
        assert!(matches!(other, Err(Error::Corrupt { position: 0, .. })), "{other:?}");
        assert!(format!("{:?}", made.open(reading)).contains("00000000000000000003.log"));
    }
}

#[test]
fn a_file_cut_off_in_its_first_page_is_not_mapped_for_writing() {
    let made = four_records();
    let (header, path) = (made.open(Reading::Map).header().clone(), made.dir.join("short"));
    for (len, sound) in [(PAGE - 1, false), (PAGE, true)] {
        write_file(&made.memory, &path, &header.encode(), len, 0o600).unwrap();
        let file = made.memory.open(&path, Open::ReadWrite).unwrap();
        if file.stat().unwrap().len != len {
            // The twin allocates whole pages: this length cannot be had.
            continue;
        }
        let segment = Segment::from_file(path.clone(), file, header.clone(), Access::Write, LEN);
        assert_eq!(segment.is_ok(), sound, "{len}");
    }
    let short = made.memory.open(&path, Open::ReadWrite).unwrap();
    let empty = made.dir.join("empty");
    let none = made.memory.open(&empty, Open::CreateNew(0o600)).unwrap();
    drop(short);
    let segment = Segment::from_file(empty.clone(), none, header, Access::Write, LEN);
    let told = matches!(&segment, Err(Error::Corrupt { path, position: 0, .. }) if *path == empty);
    assert!(told, "{segment:?}");
}

// ---- groups ------------------------------------------------------------------------------------

/// A group of two blocks whose length is told as `told` more than it is, the second with these flags.
fn group(told: i64, second: u16) -> (Made, u64) {
    let mut draft = Draft::new();
    let own = |flags| data(1, 0, flags, b"\x01x");
    let (head, member) = (own(flag::GROUP), own(second));
    let whole = head.padded() + member.padded();
    let group_len = (whole as i64 + told) as u32;
    let at = draft.put(&Header { group_len, ..head }, b"\x01x");
    draft.put(&member, b"\x01x");
    draft.data(0, 0, b"\x01y");
    (draft.finish(None), at)
}

#[test]
fn a_group_is_its_members_up_to_its_end_and_nothing_else() {
    for reading in BOTH {
        let check = |told, second| {
            let (made, at) = group(told, second);
            let segment = made.open(reading);
            let head = segment.block(at, Check::Full).unwrap().unwrap();
            (segment.check_group(&head).map_err(|bad| bad.position), made.blocks)
        };
        assert_eq!(check(0, flag::MEMBER).0, Ok(()));
        let (stranger, blocks) = check(0, 0);
        assert_eq!(stranger, Err(blocks[2]), "a block that is no member");
        let (short, blocks) = check(-8, flag::MEMBER);
        assert_eq!(short, Err(blocks[2]), "a member that reaches beyond the group");
        let (long, blocks) = check(8, flag::MEMBER);
        assert_eq!(long, Err(blocks[3]), "the next append");
        let (made, at) = group(0, flag::MEMBER);
        made.file().write_at(&[0; 8], made.blocks[2]).unwrap();
        let segment = made.open(reading);
        let head = segment.block(at, Check::Full).unwrap().unwrap();
        let bad = segment.check_group(&head).unwrap_err();
        assert_eq!(
            (bad.position, bad.what),
            (made.blocks[2], Malformed::Damaged("a group that is not whole"))
        );
    }
}

// ---- behind damage -----------------------------------------------------------------------------

#[test]
fn behind_damage_the_next_sound_block_is_found_wherever_one_begins_to_look() {
    let (made, head) = group(0, flag::MEMBER);
    let [snapshot, _, member, last] = made.blocks[..] else { panic!("{:?}", made.blocks) };
    for reading in BOTH {
        let segment = made.open(reading);
        for (from, any, group) in [
            (0, snapshot, snapshot),
            (snapshot, snapshot, snapshot),
            (snapshot + 1, head, head),
            (head + 1, member, last),
            (member, member, last),
            (last, last, last),
        ] {
            assert_eq!(segment.next_block(from, LEN), Some(any), "from {from}");
            assert_eq!(segment.next_sound(from, LEN), Some(group), "from {from}");
        }
        assert_eq!(segment.next_block(last + 1, u64::MAX), None);
        assert_eq!(segment.next_block(last, last + HEADER_LEN as u64), Some(last));
        assert_eq!(segment.next_block(last, last + HEADER_LEN as u64 - 1), None);
    }
}

/// Pages that a disk refuses hide what is in them, and nothing behind them.
#[test]
fn a_sound_block_is_found_behind_pages_that_cannot_be_read() {
    let mut draft = Draft::new();
    draft.data(0, 0, &[9; 2 * PAGE as usize]);
    let behind = draft.data(0, 1, b"\x01z");
    let made = draft.finish(None);
    for refused in [1, 2] {
        let faulty = FaultyStorage::over_memory(made.memory.clone());
        let segment = made.open_on(&faulty, Reading::Pread);
        let reads = faulty.count(Call::Read);
        for nth in 1..=refused {
            let eio = How::Errno(libc::EIO);
            faulty.plan(Fault::at(reads + nth, eio).only(Call::Read));
        }
        assert_eq!(segment.next_block(made.blocks[1] + 8, LEN), Some(behind), "{refused}");
        assert_eq!(faulty.failed(), refused);
    }
}

#[test]
fn what_cannot_be_read_is_told_from_what_is_damaged() {
    let made = four_records();
    let faulty = FaultyStorage::over_memory(made.memory.clone());
    let segment = made.open_on(&faulty, Reading::Pread);
    let reads = faulty.count(Call::Read);
    faulty.plan(Fault::at(reads + 1, How::Errno(libc::EIO)).only(Call::Read).forever());
    let bad = segment.block(made.blocks[3], Check::Full).unwrap_err();
    assert_eq!((bad.position, bad.what), (made.blocks[3], CANNOT_READ));
    assert!(segment.sound(made.blocks[3]).is_err(), "it may be sound");
    assert!(segment.read_mark().is_err() && segment.mark().is_none());
    faulty.heal();
    assert!(segment.sound(made.blocks[3]).unwrap().is_some());
    assert!(segment.read_mark().unwrap().is_some() && segment.mark().is_some());
}

// ---- walking -----------------------------------------------------------------------------------

#[test]
fn a_walk_knows_offsets_and_ends_at_the_first_zero() {
    let made = four_records();
    for reading in BOTH {
        let segment = made.open(reading);
        let mut walk = segment.opening().unwrap().clone();
        assert_eq!(walk.position, made.blocks[1]);
        let mut found = Vec::new();
        while let Some(step) = walk.step(&segment, Check::Full).unwrap() {
            let Step::Data { block, first, .. } = step else { panic!("{step:?}") };
            found.push((block.header.topic, first));
            assert_eq!(appended_ns(&segment, &block), BASE_US * 1000);
        }
        assert_eq!(found, [(0, 10), (1, 10), (0, 11), (0, 12)]);
        assert_eq!(walk.position, made.end);
        assert_eq!(walk.state.topic(0).map(|topic| topic.next), Some(13));
        assert!(walk.is_sure() && walk.unsure().next().is_none());
    }
}

#[test]
fn a_record_of_a_topic_that_the_segment_does_not_introduce_is_no_record() {
    let mut draft = Draft::new();
    let stranger = draft.data(5, 0, b"\x01x");
    let made = draft.finish(None);
    let segment = made.open(Reading::Map);
    let mut walk = segment.opening().unwrap().clone();
    let bad = walk.step(&segment, Check::Full).unwrap_err();
    assert_eq!((bad.position, walk.position), (stranger, stranger), "the walk stays");
    // What went wrong before says no more of it: base known, topic not.
    walk.bases.set(5, 0);
    let bad = walk.step(&segment, Check::Full).unwrap_err();
    assert_eq!(bad.position, stranger);
}

/// How far the topics go on, at most, after a walk over a hurt record with these flags.
fn beyond(replaces: Option<(u64, u64)>, flags: u16) -> (Vec<(u32, u64)>, u64) {
    let mut draft = Draft::new();
    let hurt = draft.data(0, 0, b"\x01a");
    draft.put(&data(1, 0, flags, b"\x01b"), b"\x01b");
    let made = draft.finish(replaces);
    made.hurt(hurt + 16);
    let mut segment = Arc::new(made.open(Reading::Map));
    let mut walk = segment.opening().unwrap().clone();
    walk.go_to(&mut segment, made.end).unwrap();
    let unsure = walk.unsure().map(|(number, lost)| (number, lost.beyond)).collect();
    assert!(walk.unsure().all(|(_, lost)| lost.position == hurt));
    assert_eq!(walk.is_sure_of(0), walk.is_sure());
    assert!(walk.is_sure_of(1), "a later record of it tells where it went on");
    let state = walk.state_beyond_damage();
    assert_eq!(state.topic(1).map(|topic| topic.next), Some(11));
    (unsure, made.blocks[2] - hurt)
}

#[test]
fn damage_holds_no_more_records_than_bytes_unless_they_may_be_packed() {
    let (unsure, bytes) = beyond(None, 0);
    assert_eq!(unsure, [(0, 10 + bytes)]);
    let (unsure, _) = beyond(Some((1, 2)), 0);
    assert_eq!(unsure, [(0, 10 + NUMBERS)], "a compacted segment");
}

#[test]
fn where_packed_blocks_were_met_a_segments_numbers_are_the_bound() {
    for flags in [flag::SPARSE, 1] {
        let mut draft = Draft::new();
        draft.put(&data(1, 0, flags, b"\x01b"), b"\x01b");
        let hurt = draft.data(0, 0, b"\x01a");
        let made = draft.finish(None);
        made.hurt(hurt + 16);
        let mut segment = Arc::new(made.open(Reading::Map));
        let mut walk = segment.opening().unwrap().clone();
        walk.go_to(&mut segment, made.end).unwrap();
        let unsure: Vec<_> = walk.unsure().map(|(number, lost)| (number, lost.beyond)).collect();
        assert_eq!(unsure, [(0, 10 + NUMBERS), (1, 10 + NUMBERS)], "{flags:#x}");
    }
}

#[test]
fn a_hurt_body_costs_no_doubt() {
    let made = four_records();
    made.hurt(made.blocks[1] + HEADER_LEN as u64 + 1);
    let segment = made.open(Reading::Map);
    let mut walk = segment.opening().unwrap().clone();
    walk.pass_damage(&segment, made.end);
    assert!(walk.is_sure());
    assert_eq!((walk.position, walk.state.topic(0).unwrap().next), (made.blocks[2], 11));
}

#[test]
fn a_topic_that_is_doubted_twice_goes_on_beyond_both() {
    let mut walk = Walk::new();
    assert_eq!(walk.position, PAGE);
    for (beyond, most) in [(20, 20), (15, 20), (30, 30)] {
        walk.doubt_topic(0, beyond);
        let unsure: Vec<_> = walk.unsure().map(|(number, lost)| (number, lost.beyond)).collect();
        assert_eq!(unsure, [(0, most)]);
        assert!(!walk.is_sure_of(0) && walk.is_sure_of(1) && !walk.is_sure());
    }
    assert!(walk.state_beyond_damage().topic(0).is_none(), "a topic that nobody knows stays so");
}

#[test]
fn a_walk_that_meets_a_newer_version_says_so_and_passes_nothing_over() {
    let mut draft = Draft::new();
    let newer = draft.put(&Header { flags: 1 << 15, ..data(0, 0, 0, b"\x01a") }, b"\x01a");
    draft.data(0, 1, b"\x01b");
    let made = draft.finish(None);
    let mut segment = Arc::new(made.open(Reading::Map));
    let mut walk = segment.opening().unwrap().clone();
    let error = walk.go_to(&mut segment, made.end).unwrap_err();
    assert!(matches!(error, Error::Newer { position: Some(at), .. } if at == newer), "{error}");
    assert_eq!(walk.position, newer);
}

// ---- the index ---------------------------------------------------------------------------------

fn many_records() -> Made {
    let mut draft = Draft::new();
    for i in 0..40u32 {
        draft.data(i % 2, i / 2, &[&[0xe8, 7][..], &[i as u8; 1000]].concat());
    }
    draft.finish(None)
}

#[test]
fn an_index_has_each_topics_first_block_and_one_in_so_many_bytes() {
    let made = many_records();
    let segment = made.open(Reading::Map);
    let index = Index::build(&segment);
    let positions: Vec<_> = (0..index.len()).map(|i| index.position(i).unwrap()).collect();
    assert_eq!(positions[..2], made.blocks[1..3], "of each topic the first");
    let far = positions[1..].windows(2).map(|pair| pair[1] - pair[0]);
    assert!(far.clone().all(|bytes| bytes >= STRIDE), "{positions:?}");
    assert!(far.clone().all(|bytes| bytes < STRIDE + 1100), "{positions:?}");
    assert_eq!(index.position(index.len()), None);
    assert!(!index.is_empty() && Index::Built(Vec::new()).is_empty());
    let unmapped = Index::build(&made.open(Reading::Pread));
    assert_eq!(index.encode(&segment), unmapped.encode(&segment));
}

#[test]
fn an_index_in_its_file_says_what_the_one_in_memory_says() {
    let made = many_records();
    let segment = made.open(Reading::Map);
    let built = Index::build(&segment);
    let entries = built.save(&made.memory, &made.dir, &segment, LEN, 0o600).unwrap();
    assert_eq!(entries, built.len());
    let path = made.dir.join(names::index(3));
    assert_eq!(made.memory.stat(&path).unwrap().len, file_len(LEN));
    let opened = [Reading::Map, Reading::Pread]
        .map(|reading| Index::open_existing(&made.memory, &made.dir, &made.open(reading)).unwrap());
    for index in opened.iter().chain([&built]) {
        for topic in 0..2 {
            for offset in 10..30 {
                let found = index.find(topic, |entry| entry.offset <= offset).unwrap();
                assert!(found.topic == topic && found.offset <= offset);
                let next = (0..built.len())
                    .filter_map(|i| built.position(i))
                    .filter(|position| *position > found.position)
                    .filter_map(|position| segment.block(position, Check::Full).unwrap())
                    .find(|block| block.header.topic == topic);
                let next = next.map(|block| 10 + u64::from(block.header.offset));
                assert!(next.is_none_or(|next| next > offset), "the last one that fits");
            }
            assert_eq!(index.find(topic, |entry| entry.offset < 10), None);
        }
        assert_eq!(index.find(7, |_| true), None);
        assert_eq!(index.encode(&segment), built.encode(&segment));
    }
}

#[test]
fn a_damaged_entry_leads_nobody_astray() {
    let made = many_records();
    let segment = made.open(Reading::Map);
    let built = Index::build(&segment);
    built.save(&made.memory, &made.dir, &segment, LEN, 0o600).unwrap();
    let path = made.dir.join(names::index(3));
    let file = made.memory.open(&path, Open::ReadWrite).unwrap();
    for i in 0..built.len() {
        for byte in [4, 8, 16, 24] {
            let at = INDEX_HEADER as u64 + i * ENTRY_LEN as u64 + byte;
            let mut kept = [0];
            file.read_at(&mut kept, at).unwrap();
            file.write_at(&[kept[0] ^ 0x41], at).unwrap();
            let index = Index::open_existing(&made.memory, &made.dir, &segment).unwrap();
            for offset in [10, 17, 29] {
                let found = index.find(0, |entry| entry.offset <= offset);
                let sound = found.is_none_or(|found| {
                    let block = segment.block(found.position, Check::Full).unwrap().unwrap();
                    found.topic == 0 && found.offset == 10 + u64::from(block.header.offset)
                });
                assert!(sound, "entry {i}, byte {byte}: {found:?}");
            }
            let read = Index::load(&made.memory, &made.dir, &segment);
            assert!(matches!(read, Err(Error::Corrupt { position, .. }) if position == at - byte));
            file.write_at(&kept, at).unwrap();
        }
    }
    assert_eq!(Index::load(&made.memory, &made.dir, &segment).unwrap().len() as u64, built.len());
}

#[test]
fn an_entry_that_there_is_no_room_for_is_left_out() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    Index::replace(&made.memory, &made.dir, &segment, 0, &[], 0o600).unwrap();
    let open = || Index::open_file(&made.memory, &made.dir, &segment, Access::Write).unwrap();
    let index = open();
    assert_eq!(index.len(), 2, "as few as there can be");
    let entry = |i: u64| Entry { topic: 0, offset: i, position: made.blocks[1], highest_ns: 0 };
    let stored: Vec<_> = (0..4).map(|i| index.put(i, &entry(i)).unwrap()).collect();
    assert_eq!(stored, [true, true, false, false]);
    for index in [index, open()] {
        assert_eq!([0, 1, 2].map(|i| index.position(i).is_some()), [true, true, false]);
        assert_eq!(index.find(0, |_| true), Some(entry(1)));
        assert_eq!(index.find(0, |entry| entry.offset < 1), Some(entry(0)));
    }
    assert!(!Index::Built(Vec::new()).put(0, &entry(0)).unwrap(), "it has no file");
}

#[test]
fn an_index_of_another_segment_is_refused_and_one_that_cannot_be_made_leaves_nothing() {
    let made = four_records();
    let segment = made.open(Reading::Map);
    let index = Index::build(&segment);
    index.save(&made.memory, &made.dir, &segment, LEN, 0o600).unwrap();
    let path = made.dir.join(names::index(3));
    made.memory.open(&path, Open::ReadWrite).unwrap().write_at(&[9], 40).unwrap();
    for found in [
        Index::open_existing(&made.memory, &made.dir, &segment).err(),
        Index::load(&made.memory, &made.dir, &segment).err(),
    ] {
        assert!(matches!(&found, Some(Error::Corrupt { path: p, .. }) if *p == path), "{found:?}");
    }
    let before = made.memory.list(&made.dir).unwrap();
    for call in [Call::Open, Call::Allocate, Call::Write] {
        let faulty = FaultyStorage::over_memory(made.memory.clone());
        faulty.plan(Fault::at(1, How::Errno(libc::ENOSPC)).only(call));
        let saved = index.save(&faulty, &made.dir, &segment, LEN, 0o600);
        assert!(matches!(saved, Err(Error::NoSpace { .. })), "{call:?}");
        assert_eq!(made.memory.list(&made.dir).unwrap(), before, "{call:?}");
    }
}

#[test]
fn entries_are_paced_by_bytes_and_by_topics_not_seen_yet() {
    let mut pacer = Pacer::default();
    assert!(pacer.is_far(0) && !pacer.has_seen(0));
    assert!(pacer.is_due(0, 4096), "the first of all");
    assert!(!pacer.is_due(0, 4096 + STRIDE - 1));
    assert!(pacer.is_due(70, 4100), "the first of its topic");
    assert!(pacer.has_seen(70) && !pacer.has_seen(6) && !pacer.has_seen(71));
    assert!(!pacer.is_far(4100 + STRIDE - 1) && pacer.is_far(4100 + STRIDE));
    pacer.note(0, 20_000);
    pacer.note(0, 10_000);
    assert!(!pacer.is_due(0, 20_000 + STRIDE - 1), "an older one takes nothing back");
    assert!(pacer.is_due(0, 20_000 + STRIDE));
}

// ---- making one --------------------------------------------------------------------------------

#[test]
fn a_segment_in_the_making_grows_and_does_not_shrink() {
    let (memory, path) = (MemoryStorage::new(), Path::new("/new").to_path_buf());
    let mut builder = Builder::new(&memory, path.clone(), 8192, LEN, 0o600, Access::Write).unwrap();
    assert_eq!((builder.allocated(), builder.position()), (8192, PAGE));
    for (asked, len) in [(8192, 8192), (4096, 8192), (12_288, 12_288), (8192, 12_288)] {
        builder.grow(asked).unwrap();
        assert_eq!(builder.allocated(), len);
        assert_eq!(memory.stat(&path).unwrap().len, len);
    }
    let before = builder.position();
    builder.block(&own_header(Kind::Meta, b"12345", 9), b"12345").unwrap();
    assert_eq!(builder.position() - before, own_len(5));
    assert_eq!(own_len(5), 40);
    builder.discard(&memory);
    assert!(memory.stat(&path).is_err());
}

#[test]
fn a_segment_that_cannot_be_begun_leaves_nothing_behind() {
    for call in [Call::Random, Call::Open, Call::Allocate, Call::Map] {
        let memory = MemoryStorage::new();
        let faulty = FaultyStorage::over_memory(memory.clone());
        faulty.plan(Fault::at(1, How::Errno(libc::ENOSPC)).only(call));
        let path = Path::new("/new").to_path_buf();
        let begun = Builder::new(&faulty, path.clone(), 8192, LEN, 0o600, Access::Write);
        assert!(matches!(begun, Err(Error::NoSpace { .. })), "{call:?}: {begun:?}");
        assert!(memory.stat(&path).is_err(), "{call:?}");
    }
}
