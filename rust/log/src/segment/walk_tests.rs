//! Walks: the state at each step, where a walk stops, and its errors.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use super::*;
use crate::format::block::BlockHeader;
use crate::format::record::{BodyWriter, NewRecord};
use crate::format::segment::{Previous, Replaces};
use crate::segment::Reading;
use crate::segment::create::{own_header, void_header};
use crate::segment::tests::draft::{BASE_US, BOTH, Draft, data, snapshot};

/// Most offsets of one segment, by `docs/FORMAT.md`, "Limits".
const MOST: u64 = 4_294_967_296;

fn block_at(segment: &Segment, position: u64) -> Block {
    segment.block(position, Check::Header).unwrap().unwrap()
}

fn own(draft: &mut Draft, kind: Kind, body: &[u8]) -> u64 {
    draft.put(&own_header(kind, body, 0), body)
}

fn next_of(walk: &SegmentWalker, topic: u32) -> Option<u64> {
    walk.state.topic(topic).map(|topic| topic.next)
}

#[test]
fn bases_are_those_that_were_set_last_in_whatever_order() {
    let mut bases = Bases::default();
    assert_eq!(bases.get(0), None);
    for (topic, base) in [(5, 50), (2, 20), (6, 60), (0, 0), (5, 51)] {
        bases.set(topic, base);
    }
    let all: Vec<_> = (0..9).map(|topic| bases.get(topic)).collect();
    let known = [Some(0), None, Some(20), None, None, Some(51), Some(60), None, None];
    assert_eq!(all, known);
}

#[test]
fn who_knows_what_a_segment_began_with_goes_on_from_there() {
    let mut draft = Draft::new();
    draft.data(0, 0, b"\x01a");
    let (position, last) = (draft.data(1, 0, b"\x01b"), draft.data(0, 1, b"\x01c"));
    let segment = draft.open(Reading::Map);
    let opening = segment.opening().unwrap();
    let mut walk = SegmentWalker::begun_with(opening.state.clone(), position);
    assert_eq!((walk.position, walk.state.clone()), (position, opening.state.clone()));
    let firsts = [(1, 10), (0, 11)].map(|(topic, first)| (topic, Some(first)));
    for (topic, first) in firsts {
        let step = walk.step(&segment, Check::Full).unwrap();
        let Some(Step::Data { block, first: found, .. }) = step else { panic!("{step:?}") };
        assert_eq!((block.header.topic, Some(found)), (topic, first));
    }
    assert_eq!((walk.position, next_of(&walk, 0)), (block_at(&segment, last).end(), Some(12)));
}

#[test]
fn a_walk_goes_to_where_it_is_told_and_no_further() {
    let mut draft = Draft::new();
    let places: Vec<u64> = (0..4).map(|offset| draft.data(0, offset, b"\x01a")).collect();
    for reading in BOTH {
        let mut segment = Arc::new(draft.open(reading));
        let mut walk = segment.opening().unwrap().clone();
        for (until, next) in [(places[0], 10), (places[2], 12), (places[1], 12), (draft.end(), 14)]
        {
            walk.go_to(&mut segment, until).unwrap();
            assert_eq!(next_of(&walk, 0), Some(next));
        }
        assert_eq!(walk.position, draft.end());
    }
}

/// Make a body of one record with this time and one without any, and the flags of its block.
fn timed(event_time_ns: i64) -> (Vec<u8>, u16) {
    let mut writer = BodyWriter::default();
    writer.begin(true, Some(event_time_ns));
    writer.push(&NewRecord { event_time_ns: Some(event_time_ns), ..NewRecord::new(b"v") });
    writer.push(&NewRecord::new(b"w"));
    (writer.body().to_vec(), flag::RICH | flag::EVENT_TIME)
}

#[test]
fn the_highest_timestamp_is_that_of_a_record_or_of_the_append_for_those_without() {
    let appended = (BASE_US + 77) * 1000;
    let mut draft = Draft::new();
    for (event_time_ns, highest) in
        [(appended + 1, appended + 1), (appended - 1, appended), (i64::MIN, appended)]
    {
        let (body, flags) = timed(event_time_ns);
        let header = BlockHeader { count: 2, span: 2, time: 77, ..data(0, 0, flags, &body) };
        let position = draft.put(&header, &body);
        let segment = draft.open(Reading::Map);
        let block = block_at(&segment, position);
        assert_eq!(appended_ns(&segment, &block), appended);
        assert_eq!(highest_ns(&segment, &block), Ok(highest));
        let short = BlockHeader { count: 3, ..block.header };
        assert!(highest_ns(&segment, &Block { header: short, ..block }).is_err(), "cut off");
    }
}

#[test]
fn where_no_record_has_a_time_of_its_own_none_is_looked_at() {
    let mut draft = Draft::new();
    // Neither has the record that it claims.
    for flags in [0, flag::RICH] {
        let position = draft.data(0, 0, b"");
        let segment = draft.open(Reading::Map);
        let block = block_at(&segment, position);
        let header = BlockHeader { flags, ..block.header };
        assert_eq!(highest_ns(&segment, &Block { header, ..block }), Ok(BASE_US * 1000));
    }
}

/// `docs/FORMAT.md`: a reader passes over such a block by its header.
#[test]
fn a_block_of_a_codec_to_come_is_stepped_over_whatever_its_body_holds() {
    for codec in [1, 2, 8, 15] {
        let mut draft = Draft::new();
        let body = [0xff; 40];
        let flags = flag::RICH | flag::EVENT_TIME | codec;
        let position = draft.put(&data(0, 0, flags, &body), &body);
        for reading in BOTH {
            let segment = draft.open(reading);
            let block = block_at(&segment, position);
            assert_eq!(highest_ns(&segment, &block), Ok(appended_ns(&segment, &block)));
            let mut walk = SegmentWalker::through_snapshot(&segment).unwrap();
            assert!(matches!(walk.step(&segment, Check::Full), Ok(Some(Step::Data { .. }))));
            assert_eq!((walk.position, next_of(&walk, 0)), (draft.end(), Some(11)), "{codec}");
        }
    }
}

#[test]
fn a_time_that_no_clock_tells_is_the_farthest_one() {
    let draft = Draft::of(|header| header.time_base_us = i64::MAX - 1);
    let segment = draft.open(Reading::Map);
    assert_eq!([0, 1, 2, 1 << 40].map(|time| ns_of(&segment, time)), [i64::MAX; 4]);
    let draft = Draft::of(|header| header.time_base_us = -5);
    let segment = draft.open(Reading::Map);
    assert_eq!([0, 4, 7].map(|time| ns_of(&segment, time)), [-5000, -1000, 2000]);
}

#[test]
fn a_block_that_is_checked_is_one_that_a_step_would_take_and_nothing_changes() {
    let mut draft = Draft::new();
    let good = [
        draft.data(0, 0, b"\x01a"),
        own(&mut draft, Kind::Meta, &snapshot(20)),
        own(&mut draft, Kind::Snapshot, &snapshot(20)),
    ];
    let torn = &snapshot(20)[..snapshot(20).len() - 1];
    let bad = [
        own(&mut draft, Kind::Meta, torn),
        own(&mut draft, Kind::Snapshot, torn),
        draft.data(7, 0, b"\x01x"),
        draft.put(&data(0, 0, flag::EVENT_TIME, b"short"), b"short"),
    ];
    let from = draft.end();
    let void = draft.put(&void_header(from, from + 64), &[9; 32]);
    let segment = draft.open(Reading::Map);
    let walk = segment.opening().unwrap().clone();
    for position in good.into_iter().chain([void]) {
        let block = block_at(&segment, position);
        assert_eq!(walk.check(&segment, &block), Ok(()), "{:?}", block.header.kind);
        let mut step = SegmentWalker { position, ..walk.clone() };
        assert!(step.step(&segment, Check::Header).is_ok());
    }
    for position in bad {
        let block = block_at(&segment, position);
        let told = walk.check(&segment, &block).unwrap_err();
        assert_eq!(told.position, position);
        let mut step = SegmentWalker { position, ..walk.clone() };
        assert_eq!(step.step(&segment, Check::Header).unwrap_err(), told);
    }
}

#[test]
fn a_topic_of_which_only_the_base_is_known_cannot_be_stepped_over() {
    let mut draft = Draft::new();
    let position = draft.data(7, 0, b"\x01x");
    let segment = draft.open(Reading::Map);
    let mut walk = segment.opening().unwrap().clone();
    walk.bases.set(7, 0);
    assert_eq!(walk.check(&segment, &block_at(&segment, position)).unwrap_err().position, position);
}

#[test]
fn offsets_are_counted_from_the_base_and_none_is_beyond_64_bits() {
    let mut draft = Draft::new();
    let position = draft.data(0, 5, b"\x01a");
    let segment = draft.open(Reading::Map);
    let (mut walk, block) = (SegmentWalker::new(), block_at(&segment, position));
    assert!(walk.first_offset(&block).is_err(), "no block said where the topic begins");
    for (base, first) in [(0, Some(5)), (37, Some(42)), (u64::MAX - 6, Some(u64::MAX - 1))] {
        walk.bases.set(0, base);
        assert_eq!(walk.first_offset(&block).ok(), first);
    }
    for base in [u64::MAX - 5, u64::MAX - 4, u64::MAX] {
        walk.bases.set(0, base);
        assert!(walk.first_offset(&block).is_err(), "{base}");
    }
}

#[test]
fn damage_is_passed_up_to_the_next_sound_block_or_to_the_limit() {
    let mut draft = Draft::new();
    // Its header is valid and its body is not: the walk passes it once, and must not find it again.
    let hurt = own(&mut draft, Kind::Meta, &snapshot(20));
    let (next, last) = (draft.data(0, 0, b"\x01a"), draft.data(0, 1, b"\x01b"));
    draft.hurt(hurt + HEADER_LEN as u64);
    for reading in BOTH {
        let segment = draft.open(reading);
        let opening = segment.opening().unwrap();
        // A limit in the next block, and one too near for a header.
        for (limit, at) in [(draft.end(), next), (next, next), (next - 8, next - 8)] {
            let mut walk = opening.clone();
            walk.pass_damage(&segment, limit);
            assert_eq!((walk.position, walk.is_sure()), (at, false), "{limit}");
        }
        let mut walk = opening.clone();
        walk.pass_damage(&segment, draft.end());
        walk.go_to(&mut Arc::new(draft.open(reading)), last).unwrap();
        assert_eq!((walk.position, walk.is_sure_of(0), walk.is_sure_of(1)), (last, true, false));
    }
}

#[test]
fn no_topic_goes_on_beyond_what_one_segment_can_number() {
    let replaces = Some(Replaces { first: 1, clean_us: 0, compaction: 0 });
    let mut draft = Draft::of(|header| header.replaces = replaces);
    let hurt = draft.data(0, 0, b"\x01a");
    draft.hurt(hurt + 16);
    let mut segment = Arc::new(draft.open(Reading::Map));
    let mut walk = segment.opening().unwrap().clone();
    walk.go_to(&mut segment, draft.end()).unwrap();
    let lost = OffsetGap { position: hurt, beyond: 10 + MOST };
    assert_eq!(walk.unsure().collect::<Vec<_>>(), [0, 1, 2].map(|topic| (topic, lost)));
    let state = walk.state_beyond_damage();
    assert_eq!(state.topic(2).map(|topic| topic.next), Some(10 + MOST));
}

#[test]
fn once_blocks_were_packed_all_damage_behind_them_may_hide_as_many_records() {
    let mut draft = Draft::new();
    let sparse = BlockHeader { span: 5, ..data(0, 0, flag::SPARSE, b"\x00\x01a") };
    draft.put(&sparse, b"\x00\x01a");
    draft.data(1, 0, b"\x01b");
    let hurt = draft.data(1, 1, b"\x01c");
    draft.hurt(hurt + 16);
    let mut segment = Arc::new(draft.open(Reading::Map));
    let mut walk = segment.opening().unwrap().clone();
    walk.go_to(&mut segment, draft.end()).unwrap();
    assert!(walk.unsure().all(|(_, lost)| lost.beyond == 10 + MOST));
    assert_eq!((walk.unsure().count(), next_of(&walk, 0)), (3, Some(15)));
}

/// Open a segment: return where the walk is then, or what is wrong and where.
fn opened(draft: &Draft, reading: Reading) -> std::result::Result<u64, (u64, &'static str)> {
    match draft.open(reading).opening() {
        Ok(walk) => Ok(walk.position),
        Err(Error::CorruptData { position, what, .. }) => Err((position, what)),
        Err(e) => panic!("{e}"),
    }
}

const MISSING: &str = "a segment without all of its snapshot";

#[test]
fn a_segment_that_a_roll_made_begins_with_two_snapshots_and_both_are_needed() {
    let previous = Some(Previous { sequence: 2, salt: 1, end: FIRST_BLOCK });
    for reading in BOTH {
        let mut draft = Draft::of(|header| header.previous = previous);
        let second = draft.end();
        assert_eq!(opened(&draft, reading), Err((second, MISSING)));
        let third = {
            own(&mut draft, Kind::Snapshot, &snapshot(20));
            draft.end()
        };
        assert_eq!(opened(&draft, reading), Ok(third));
        let segment = draft.open(reading);
        assert_eq!(next_of(segment.opening().unwrap(), 0), Some(20), "what came last holds");
        let mut other = Draft::of(|header| header.previous = previous);
        other.data(0, 0, b"\x01a");
        assert_eq!(opened(&other, reading), Err((second, MISSING)), "records are no snapshot");
    }
}

#[test]
fn a_segment_whose_snapshot_is_hurt_cannot_be_opened_and_what_follows_it_may_be_hurt() {
    for reading in BOTH {
        let mut draft = Draft::new();
        let behind = draft.data(0, 0, b"\x01a");
        // The tag in the commit word.
        draft.hurt(behind + 7);
        assert_eq!(opened(&draft, reading), Ok(behind), "a later read gets the error");
        draft.hurt(FIRST_BLOCK + 7);
        let tag = "the commit word's tag is not this place's";
        assert_eq!(opened(&draft, reading), Err((FIRST_BLOCK, tag)));
        draft.hurt(FIRST_BLOCK + 7);
        draft.hurt(FIRST_BLOCK + HEADER_LEN as u64);
        let body = "the block body's checksum does not match";
        assert_eq!(opened(&draft, reading), Err((FIRST_BLOCK, body)));
    }
}
