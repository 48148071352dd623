//! The knowledge of a walk, also behind corruption.

use super::*;
use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::format::block::HEADER_LEN;
use falaj::internals::segment::Check;
use falaj::internals::segment::walk::{NUMBERS, SegmentWalker, Step, appended_ns};

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
    assert_eq!((bad.position, walk.position), (stranger, stranger), "the walk must not move");
    // An earlier error adds nothing: the base is known, the topic is not.
    walk.bases.set(5, 0);
    let bad = walk.step(&segment, Check::Full).unwrap_err();
    assert_eq!(bad.position, stranger);
}

/// The highest next offset of each topic, after a walk over a corrupt record with these flags.
fn beyond(replaces: Option<Replaces>, flags: u16) -> (Vec<(u32, u64)>, u64) {
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
    assert!(walk.is_sure_of(1), "a later record shows where it continues");
    let state = walk.state_beyond_damage();
    assert_eq!(state.topic(1).map(|topic| topic.next), Some(11));
    (unsure, made.blocks[2] - hurt)
}

#[test]
fn damage_holds_no_more_records_than_bytes_unless_they_may_be_packed() {
    let (unsure, bytes) = beyond(None, 0);
    assert_eq!(unsure, [(0, 10 + bytes)]);
    let (unsure, _) = beyond(Some(Replaces { first: 1, clean_us: 0, compaction: 0 }), 0);
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
    let mut walk = SegmentWalker::new();
    assert_eq!(walk.position, FIRST_BLOCK);
    for (beyond, most) in [(20, 20), (15, 20), (30, 30)] {
        walk.doubt_topic(0, beyond);
        let unsure: Vec<_> = walk.unsure().map(|(number, lost)| (number, lost.beyond)).collect();
        assert_eq!(unsure, [(0, most)]);
        assert!(!walk.is_sure_of(0) && walk.is_sure_of(1) && !walk.is_sure());
    }
    assert!(walk.state_beyond_damage().topic(0).is_none(), "an unknown topic must stay unknown");
}

#[test]
fn a_walk_that_meets_a_newer_version_says_so_and_passes_nothing_over() {
    let mut draft = Draft::new();
    let newer = draft.put(&BlockHeader { flags: 1 << 15, ..data(0, 0, 0, b"\x01a") }, b"\x01a");
    draft.data(0, 1, b"\x01b");
    let made = draft.finish(None);
    let mut segment = Arc::new(made.open(Reading::Map));
    let mut walk = segment.opening().unwrap().clone();
    let error = walk.go_to(&mut segment, made.end).unwrap_err();
    assert!(
        matches!(error, Error::UnsupportedVersion { position: Some(at), .. } if at == newer),
        "{error}"
    );
    assert_eq!(walk.position, newer);
}
