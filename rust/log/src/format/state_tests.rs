//! The state of a log: snapshots and meta blocks say the same, and their limits hold.

use super::*;
use crate::format::block::{Kind, flag};

fn rich_state() -> LogState {
    let mut state = LogState::default();
    for number in [0, 3] {
        let topic = TopicState {
            next: 7,
            last_crc: 9,
            highest_ns: -1,
            ..TopicState::empty([number as u8; 16], 1)
        };
        assert!(state.set_topic(number, topic));
    }
    state.note_producer(0, Producer { id: 5, sequence: 1 }, 2);
    state.tokens.insert((3, b"job".to_vec()), TokenState { version: 1, committed_ms: 2 });
    state.cursors.insert(b"billing".to_vec(), CursorState { offset: 8, crc: 4, turn: 2 });
    state
}

#[test]
fn a_snapshot_says_all_that_the_log_knows() {
    let state = rich_state();
    let mut read = LogState::default();
    let mut seen = Vec::new();
    let body = state.encode_since(&LogState::default());
    read.apply_body(&body, |number, topic| seen.push((number, topic.next))).unwrap();
    assert_eq!(read, state);
    assert_eq!(seen, [(0, 7), (3, 7)]);
}

#[test]
fn a_second_snapshot_says_only_what_changed() {
    let before = rich_state();
    let mut after = before.clone();
    let header = Header { topic: 3, count: 2, span: 2, body_crc: 1, ..Header::new(Kind::Data) };
    assert!(after.apply_data(&header, 7, 100));
    assert!(after.forget_topic(0));
    let body = after.encode_since(&before);
    assert!(body.len() < 80, "{} bytes", body.len());
    let mut read = before.clone();
    read.apply_body(&body, |_, _| ()).unwrap();
    assert_eq!(read, after);
    assert_eq!(read.topic(3).unwrap().next, 9);
    assert_eq!(read.topic(0), None);
}

#[test]
fn the_highest_number_is_said_though_its_topic_is_gone() {
    let mut state = rich_state();
    assert!(state.forget_topic(3) && state.forget_topic(0));
    let mut read = LogState::default();
    read.apply_body(&state.encode_since(&LogState::default()), |_, _| ()).unwrap();
    assert_eq!((read.next_number(), read.topics().count()), (4, 0));
    let mut prepared = LogState::default();
    prepared.apply_body(&state.encode_since(&LogState::default()), |_, _| ()).unwrap();
    assert_eq!(prepared, read);
    assert!(state.encode_since(&read).is_empty(), "once is enough");
}

#[test]
fn a_body_that_is_read_for_its_topics_alone_tells_them_and_all_that_is_wrong() {
    let body = rich_state().encode_since(&LogState::default());
    let mut seen = Vec::new();
    topics_of(&body, |number, topic| seen.push((number, topic.next))).unwrap();
    assert_eq!(seen, [(0, 7), (3, 7)]);
    for cut in 0..body.len() {
        let (mut state, cut) = (LogState::default(), &body[..cut]);
        assert_eq!(topics_of(cut, |_, _| ()), state.apply_body(cut, |_, _| ()));
    }
}

#[test]
fn the_last_five_sequences_of_a_producer_are_known() {
    let mut state = rich_state();
    for sequence in 10..20 {
        let producer = Some(Producer { id: 5, sequence });
        let flags = flag::PRODUCER;
        let header = Header { producer, flags, span: 1, ..Header::new(Kind::Data) };
        state.apply_data(&header, sequence * 2, 0);
    }
    let known = state.producer(0, 5).unwrap().known().to_vec();
    assert_eq!(known, [(15, 30), (16, 32), (17, 34), (18, 36), (19, 38)]);
}

#[test]
fn a_sequence_is_the_next_a_repeat_an_old_or_an_early_one() {
    let mut state = rich_state();
    let standing = |state: &LogState, sequence| state.standing(Producer { id: 6, sequence }, 0..3);
    assert_eq!(standing(&state, 77), Standing::Next);
    for sequence in 10..20 {
        state.note_producer((sequence % 2) as u32, Producer { id: 6, sequence }, sequence * 2);
    }
    state.note_producer(3, Producer { id: 6, sequence: 500 }, 0);
    assert_eq!(standing(&state, 9), Standing::Old);
    // Five of each partition.
    assert_eq!(standing(&state, 10), Standing::Repeat);
    assert_eq!(standing(&state, 19), Standing::Repeat);
    assert_eq!(standing(&state, 20), Standing::Next);
    assert_eq!(standing(&state, 21), Standing::Early(20));
    state.note_producer(0, Producer { id: 6, sequence: u64::MAX }, 0);
    assert_eq!(standing(&state, u64::MAX), Standing::Repeat);
}

#[test]
fn a_producer_that_is_only_expected_is_not_written_down() {
    let mut state = rich_state();
    let before = state.encode_since(&LogState::default());
    assert!(state.expect_producer(0, 99, usize::MAX));
    assert_eq!(state.encode_since(&LogState::default()), before);
    assert!(state.expect_producer(0, 99, 0), "it is known");
    assert!(!state.expect_producer(0, 100, 0));
}

// Values of the FNV reference.
#[test]
fn a_producers_id_is_the_hash_of_its_name() {
    assert_eq!(Producer::id_of(""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(Producer::id_of("a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(Producer::id_of("foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn a_trim_only_rises() {
    let mut state = rich_state();
    let trim = |first: u64| {
        let mut body = Vec::new();
        let payload = [&0u32.to_le_bytes()[..], &first.to_le_bytes()].concat();
        entry(&mut body, kind::TRIMMED, &payload);
        body
    };
    state.apply_body(&trim(5), |_, _| ()).unwrap();
    state.apply_body(&trim(3), |_, _| ()).unwrap();
    assert_eq!(state.topic(0).unwrap().first, 5);
}

#[test]
fn cut_and_newer_bodies_are_told_apart() {
    let body = rich_state().encode_since(&LogState::default());
    let whole: Vec<usize> = entry_ends(&body);
    for cut in 0..body.len() {
        let result = LogState::default().apply_body(&body[..cut], |_, _| ());
        assert_eq!(result.is_ok(), cut == 0 || whole.contains(&cut), "cut at {cut}");
    }
    let mut newer = Vec::new();
    entry(&mut newer, 99, b"?");
    let result = LogState::default().apply_body(&newer, |_, _| ());
    assert!(matches!(result, Err(Malformed::Unknown(_))));
}

fn entry_ends(body: &[u8]) -> Vec<usize> {
    let (mut at, mut ends) = (0, Vec::new());
    while at < body.len() {
        varint::get(body, &mut at).unwrap();
        at += varint::get(body, &mut at).unwrap() as usize;
        ends.push(at);
    }
    ends
}

#[test]
fn an_end_block_with_staged_segments_is_refused_as_newer() {
    let end = End { sequence: 4, salt: 5 };
    assert_eq!(End::decode(&end.encode()), Ok(end));
    let mut staged = end.encode();
    staged[16] = 1;
    assert!(matches!(End::decode(&staged), Err(Malformed::Unknown(_))));
    assert!(matches!(End::decode(&staged[..20]), Err(Malformed::Damaged(_))));
}

fn applied(kind: u64, payload: &[u8]) -> (Decoded<()>, LogState) {
    let (mut body, mut state) = (Vec::new(), rich_state());
    entry(&mut body, kind, payload);
    let result = state.apply_body(&body, |_, _| ());
    (result, state)
}

#[test]
fn a_fact_of_the_wrong_length_is_damage() {
    let lens = [
        (kind::TOPIC, vec![TOPIC_LEN]),
        (kind::TOPIC_DELETED, vec![4]),
        (kind::TRIMMED, vec![12]),
        (kind::PRODUCER, vec![12, 28, 44, 60]),
        (kind::TOKEN, (20..64).collect()),
        (kind::CURSOR, (16..64).collect()),
    ];
    for (kind, sound) in lens {
        for len in 0..64 {
            let (result, _) = applied(kind, &vec![0; len]);
            assert_eq!(result.is_ok(), sound.contains(&len), "kind {kind}, {len} bytes");
            assert!(!matches!(result, Err(Malformed::Unknown(_))), "kind {kind}, {len} bytes");
        }
    }
}

#[test]
fn topics_beyond_the_limit_are_refused_and_unknown_ones_change_nothing() {
    let topic = TopicState::empty([5; 16], 0);
    assert!(applied(kind::TOPIC, &encode_topic(MAX_TOPICS - 1, &topic)).0.is_ok());
    let beyond = Err(Malformed::Damaged("a topic number beyond the limit"));
    let (result, _) = applied(kind::TOPIC, &encode_topic(MAX_TOPICS, &topic));
    assert_eq!(result, beyond);
    assert_eq!(applied(kind::TOPIC_DELETED, &MAX_TOPICS.to_le_bytes()).0, beyond);
    for number in [1u32, 4, 77] {
        let (result, state) = applied(kind::TOPIC_DELETED, &number.to_le_bytes());
        assert_eq!(result, Ok(()), "topic {number}");
        assert!(state.topics().eq(rich_state().topics()), "topic {number}");
        assert_eq!(state.next_number(), 4.max(number + 1), "it is not given again");
        let trim = [&number.to_le_bytes()[..], &9u64.to_le_bytes()].concat();
        assert_eq!(applied(kind::TRIMMED, &trim), (Ok(()), rich_state()), "topic {number}");
        let header = Header { topic: number, span: 2, ..Header::new(Kind::Data) };
        let mut state = rich_state();
        assert!(!state.apply_data(&header, 7, 0));
        assert_eq!(state, rich_state());
    }
}

#[test]
fn a_block_moves_its_topics_end_and_never_its_time_backwards() {
    let mut state = rich_state();
    let header = Header { topic: 3, count: 2, span: 5, body_crc: 77, ..Header::new(Kind::Data) };
    assert!(state.apply_data(&header, 7, 100));
    let topic = *state.topic(3).unwrap();
    assert_eq!((topic.next, topic.last_crc, topic.highest_ns), (12, 77, 100));
    assert!(state.apply_data(&header, 12, 50));
    let topic = *state.topic(3).unwrap();
    assert_eq!((topic.next, topic.highest_ns), (17, 100));
    assert_eq!(state.topic(0), rich_state().topic(0), "and no other topic's");
}

#[test]
fn a_producer_that_is_known_no_more_is_said_to_be_forgotten() {
    let before = rich_state();
    let body = encode_forgotten([(0, 5)].into_iter());
    let mut after = before.clone();
    after.apply_body(&body, |_, _| ()).unwrap();
    assert_eq!(after.producer(0, 5), None);
    assert_eq!(after.encode_since(&before), body);
    // Also where somebody made room for it since.
    assert!(after.expect_producer(0, 5, usize::MAX));
    assert_eq!(after.encode_since(&before), body);
    let mut read = LogState::default();
    read.apply_body(&after.encode_since(&LogState::default()), |_, _| ()).unwrap();
    assert!(!read.expects_producer(0, 5));
}

#[test]
fn what_did_not_change_is_not_said_again() {
    let before = rich_state();
    assert!(before.encode_since(&before).is_empty());
    let mut after = before.clone();
    after.tokens.insert((3, b"job".to_vec()), TokenState { version: 9, committed_ms: 2 });
    after.cursors.insert(b"more".to_vec(), CursorState { offset: 1, crc: u32::MAX, turn: 0 });
    after.note_producer(3, Producer { id: 6, sequence: 4 }, 8);
    let mut said = vec![0xaa];
    after.append_since(&before, &mut said);
    assert_eq!(said[0], 0xaa, "what is in front stays");
    assert_eq!(entry_ends(&said[1..]).len(), 3, "one for each of what changed");
    let mut read = before;
    read.apply_body(&said[1..], |_, _| ()).unwrap();
    assert_eq!(read, after);
}

#[test]
fn a_token_is_forgotten_when_it_is_said_and_with_its_topic() {
    let before = rich_state();
    assert_eq!(before.token(&(3, b"job".to_vec())).map(|token| token.version), Some(1));
    assert_eq!(
        (before.token(&(0, b"job".to_vec())), before.token(&(3, b"other".to_vec()))),
        (None, None)
    );
    let mut read = before.clone();
    read.apply_body(&encode_tokens(3, b"job", TokenState::NONE), |_, _| ()).unwrap();
    assert_eq!(read.tokens().count(), 0);
    assert_eq!(read.encode_since(&before), encode_tokens(3, b"job", TokenState::NONE));
    let mut read = before;
    assert!(read.forget_topic(3));
    assert_eq!(read.tokens().count(), 0);
}
