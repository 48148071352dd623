//! The state of a log: snapshots and meta blocks say the same, and their limits hold.

use super::*;
use crate::format::block::{Kind, Producer, flag, producer_flag};
use crate::format::tests::hex;

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
    state.note_producer(0, sent(5, 1), 2, 0);
    state.tokens.insert((3, b"job".to_vec()), IdempotencyState { version: 1, committed_ms: 2 });
    let state_of = CursorState { offset: 8, crc: 4, turn: 2 };
    state.keep_cursor(b"billing", Some(kept(state_of, b"invoice 17")));
    state
}

fn kept(state: CursorState, metadata: &[u8]) -> KeptCursor {
    KeptCursor { state, metadata: metadata.into() }
}

fn sent(id: u64, sequence: u64) -> Producer {
    Producer { id, sequence, span: 1, flags: 0 }
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
    let header =
        BlockHeader { topic: 3, count: 2, span: 2, body_crc: 1, ..BlockHeader::new(Kind::Data) };
    assert!(after.apply_data(&header, 7, 100, 0));
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
        let producer = Some(sent(5, sequence));
        let flags = flag::PRODUCER;
        let header = BlockHeader { producer, flags, span: 1, ..BlockHeader::new(Kind::Data) };
        state.apply_data(&header, sequence * 2, 0, 0);
    }
    let known = state.producer(0, 5).unwrap().known().to_vec();
    assert_eq!(known, [(15, 30), (16, 32), (17, 34), (18, 36), (19, 38)]);
}

#[test]
fn a_sequence_is_the_next_a_repeat_an_old_one_or_another_comes_next() {
    let mut state = rich_state();
    let standing = |state: &LogState, sequence: u64| state.standing(6, sequence.into(), 0..3);
    assert_eq!(standing(&state, 77), Standing::Next);
    for sequence in 10..20 {
        state.note_producer((sequence % 2) as u32, sent(6, sequence), sequence * 2, 0);
    }
    state.note_producer(3, sent(6, 500), 0, 0);
    assert_eq!(standing(&state, 9), Standing::Old(19));
    // Five of each partition.
    assert_eq!(standing(&state, 10), Standing::Repeat);
    assert_eq!(standing(&state, 19), Standing::Repeat);
    assert_eq!(standing(&state, 20), Standing::Next);
    assert_eq!(standing(&state, 21), Standing::Other(19));
    state.note_producer(0, sent(6, u64::MAX), 0, 0);
    assert_eq!(standing(&state, u64::MAX), Standing::Repeat);
}

#[test]
fn a_span_of_sequences_is_next_behind_the_previous_one_and_a_repeat_by_its_last() {
    let mut state = rich_state();
    let standing = |state: &LogState, span: SequenceSpan| state.standing(6, span, 0..1);
    assert_eq!(standing(&state, (3..=7).into()), Standing::Next);
    state.note_producer(0, sent(6, 7), 40, 0);
    assert_eq!(standing(&state, (8..=9).into()), Standing::Next);
    assert_eq!(standing(&state, (3..=7).into()), Standing::Repeat);
    assert_eq!(standing(&state, (3..=6).into()), Standing::Old(7));
    // Some of it was appended before, or some before it is missing.
    assert_eq!(standing(&state, (7..=9).into()), Standing::Other(7));
    assert_eq!(standing(&state, (9..=9).into()), Standing::Other(7));
    // Another numbering may begin behind the one that was.
    let jump = SequenceSpan { after: After::Exactly(7), first: 1 << 48, last: (1 << 48) + 4 };
    assert_eq!(standing(&state, jump), Standing::Next);
}

#[test]
fn a_producer_that_is_only_expected_is_not_written_down() {
    let mut state = rich_state();
    let before = state.encode_since(&LogState::default());
    assert!(state.expect_producer(0, 99, usize::MAX));
    assert_eq!(state.encode_since(&LogState::default()), before);
    assert!(state.expect_producer(0, 99, 0), "it is known");
    assert!(!state.expect_producer(0, 100, 0));
    // Two are known by now.
    assert!(!state.expect_producer(0, 100, 2), "it would be a third");
    assert!(state.expect_producer(0, 100, 3));
}

#[test]
fn room_for_producers_that_appended_nothing_is_given_up_and_who_appended_stays() {
    let mut state = rich_state();
    assert!(state.expect_producer(3, 6, usize::MAX));
    assert!(state.expects_producer(0, 5) && state.expects_producer(3, 6));
    assert!(!state.expects_producer(3, 5) && !state.expects_producer(0, 6), "others of the topics");
    let expecting = state.clone();
    state.drop_expected();
    assert_eq!(state, rich_state());
    assert!(!state.expects_producer(3, 6));
    assert!(state.encode_since(&expecting).is_empty(), "who was never known is not forgotten");
}

#[test]
fn a_sequence_that_comes_again_is_told_the_offset_that_it_got() {
    let mut producer = ProducerState::default();
    assert_eq!(producer.first_of(1), None);
    for (sequence, first) in [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)] {
        producer.note(sent(1, sequence), first);
        assert_eq!(producer.first_of(sequence), Some(first));
    }
    assert_eq!((producer.first_of(1), producer.first_of(6)), (Some(10), None));
    producer.note(sent(1, 6), 60);
    assert_eq!((producer.first_of(1), producer.first_of(2)), (None, Some(20)), "five are known");
    producer.note(sent(1, 6), 61);
    assert_eq!(producer.first_of(6), Some(61), "of two the later one");
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
    assert_eq!(result, Err(DecodeError::UnknownEntry(99)));
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
    assert!(matches!(End::decode(&staged), Err(DecodeError::Unknown(_))));
    assert!(matches!(End::decode(&staged[..20]), Err(DecodeError::Damaged(_))));
}

#[test]
fn an_end_block_has_24_bytes_and_a_longer_one_is_of_a_newer_version() {
    let end = End { sequence: 0x0807_0605_0403_0201, salt: 0x1817_1615_1413_1211 };
    let body = hex("0102030405060708 1112131415161718 0000000000000000");
    assert_eq!(end.encode().as_slice(), body);
    assert_eq!(End::decode(&body), Ok(end));
    assert!(matches!(End::decode(&body[..23]), Err(DecodeError::Damaged(_))));
    let longer = [&body[..], &[0]].concat();
    assert!(matches!(End::decode(&longer), Err(DecodeError::Unknown(_))));
    for at in 16..24 {
        let mut staged = body.clone();
        staged[at] = 1;
        assert!(matches!(End::decode(&staged), Err(DecodeError::Unknown(_))), "byte {at}");
    }
}

// One fact of each type. All its bytes differ, except where a number must be small.
const TOPIC: &str = "01 38  01100000 02030405 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf 060708090b0c0d0e \
                     1112131415161718 21222324252627f8 31323334 00000000";
const DELETED: &str = "02 04  02100000";
const TRIMMED: &str = "03 0c  01100000 4142434445464748";
const PRODUCER: &str = "04 40  01100000 01000000 5152535455565758 0000000000000000 \
                        6162636465666768 7172737475767778 3a3b3c3d \
                        818283848586878b 919293949596979b 4a4b4c4d";
const FORGOTTEN: &str = "04 18  01100000 00000000 5152535455565758 0000000000000000";
const FINISHED_FACT: &str = "08 04  01100000";
const TOKEN: &str = "05 17  01100000 b1b2b3b4b5b6b7b8 c1c2c3c4c5c6c7f9 6a6f62";
const CURSOR: &str = "06 15  d1d2d3d4d5d6d7d8 e1e2e3e4 f1f2f3f4 0300 62696c";
const DOUBT: &str = "07 08  1a1b1c1d1e1f2a2b";
const TRUST: &str = "07 08  0000000000000000";

fn told_topic() -> TopicState {
    TopicState {
        generation: std::array::from_fn(|at| 0xa0 + at as u8),
        partition: 0x0504_0302,
        first: 0x0e0d_0c0b_0908_0706,
        next: 0x1817_1615_1413_1211,
        last_crc: 0x3433_3231,
        highest_ns: 0xf827_2625_2423_2221_u64 as i64,
        finished: false,
    }
}

const TOLD_PRODUCER: u64 = 0x5857_5655_5453_5251;
const TOLD_SEQUENCES: [(u64, u64); 2] = [
    (0x6867_6665_6463_6261, 0x7877_7675_7473_7271),
    (0x8b87_8685_8483_8281, 0x9b97_9695_9493_9291),
];
const TOLD_SPANS: [u32; 2] = [0x3d3c_3b3a, 0x4d4c_4b4a];
const TOLD_TOKEN: IdempotencyState = IdempotencyState {
    version: 0xb8b7_b6b5_b4b3_b2b1,
    committed_ms: 0xf9c7_c6c5_c4c3_c2c1_u64 as i64,
};
const TOLD_CURSOR: CursorState =
    CursorState { offset: 0xd8d7_d6d5_d4d3_d2d1, crc: 0xe4e3_e2e1, turn: 0xf4f3_f2f1 };
const TOLD_DOUBT: Address = Address(0x2b2a_1f1e_1d1c_1b1a);

#[test]
fn every_fact_is_written_as_the_format_lays_it_out() {
    let mut producing = LogState::default();
    for ((sequence, first), span) in TOLD_SEQUENCES.into_iter().zip(TOLD_SPANS) {
        let flags = producer_flag::EXPIRING;
        let sent = Producer { id: TOLD_PRODUCER, sequence, span, flags };
        producing.note_producer(0x1001, sent, first, 0);
    }
    let mut doubting = LogState::default();
    doubting.doubt_facts(TOLD_DOUBT);
    let nothing = LogState::default();
    for (name, body, bytes) in [
        ("topic", encode_new_topics([(0x1001, told_topic())].into_iter()), TOPIC),
        ("deleted", encode_deletions([0x1002].into_iter()), DELETED),
        ("trimmed", encode_trims([(0x1001, 0x4847_4645_4443_4241)].into_iter()), TRIMMED),
        ("producer", producing.encode_since(&nothing), PRODUCER),
        ("forgotten", encode_forgotten([(0x1001, TOLD_PRODUCER)].into_iter()), FORGOTTEN),
        ("finished", encode_finished([0x1001].into_iter()), FINISHED_FACT),
        ("token", encode_tokens(0x1001, b"job", TOLD_TOKEN), TOKEN),
        ("cursor", encode_cursors([(&b"bil"[..], TOLD_CURSOR, &b""[..])].into_iter()), CURSOR),
        ("doubt", doubting.encode_since(&nothing), DOUBT),
        ("trust", encode_trust(), TRUST),
    ] {
        assert_eq!(body, hex(bytes), "{name}");
    }
    let two = encode_deletions([0x1002, 0x1003].into_iter());
    assert_eq!(two, hex("02 04 02100000 02 04 03100000"), "one behind the other");
}

#[test]
fn every_fact_is_read_as_the_format_lays_it_out() {
    let mut state = LogState::default();
    let body = [TOPIC, DELETED, TRIMMED, PRODUCER, TOKEN, CURSOR, DOUBT].concat();
    state.apply_body(&hex(&body), |_, _| ()).unwrap();
    let trimmed = TopicState { first: 0x4847_4645_4443_4241, ..told_topic() };
    assert!(state.topics().eq([(0x1001, &trimmed)]));
    assert_eq!(state.next_number(), 0x1003, "the deleted one's is not given again");
    let known: Vec<_> = state.producers(0..u32::MAX).map(|(id, n, p)| (id, n, p.known())).collect();
    assert_eq!(known, [(TOLD_PRODUCER, 0x1001, &TOLD_SEQUENCES[..])]);
    let producer = state.producer(0x1001, TOLD_PRODUCER).unwrap();
    assert_eq!((producer.spans(), producer.is_expiring()), (&TOLD_SPANS[..], true));
    assert_eq!(producer.used_us(), None);
    assert!(state.tokens().eq([(0x1001, &b"job"[..], TOLD_TOKEN)]));
    assert!(state.cursors().eq([(&b"bil"[..], TOLD_CURSOR)]));
    assert_eq!(state.doubt(), Some(TOLD_DOUBT));
    state.apply_body(&hex(&[FORGOTTEN, TRUST, FINISHED_FACT].concat()), |_, _| ()).unwrap();
    let finished = TopicState { finished: true, ..trimmed };
    assert!(state.topics().eq([(0x1001, &finished)]));
    let whole = hex(&TOPIC.replace("31323334 00000000", "31323334 01000000"));
    let told =
        encode_new_topics([(0x1001, TopicState { finished: true, ..told_topic() })].into_iter());
    assert_eq!(told, whole);
    let mut again = LogState::default();
    again.apply_body(&whole, |_, _| ()).unwrap();
    assert!(again.topic(0x1001).unwrap().finished);
    assert_eq!((state.producers(0..u32::MAX).count(), state.doubt()), (0, None));
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
        (kind::PRODUCER, vec![24, 44, 64, 84, 104, 124]),
        (kind::TOKEN, (21..=532).collect()),
        (kind::DOUBT, vec![8]),
    ];
    for (kind, sound) in lens {
        for len in 0..600 {
            let (result, _) = applied(kind, &vec![0; len]);
            assert_eq!(result.is_ok(), sound.contains(&len), "kind {kind}, {len} bytes");
            assert!(!matches!(result, Err(DecodeError::Unknown(_))), "kind {kind}, {len} bytes");
        }
    }
}

#[test]
fn topics_beyond_the_limit_are_refused_and_unknown_ones_change_nothing() {
    let topic = TopicState::empty([5; 16], 0);
    assert!(applied(kind::TOPIC, &encode_topic(MAX_TOPICS - 1, &topic)).0.is_ok());
    let beyond = Err(DecodeError::Damaged("a topic number beyond the limit"));
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
        let header = BlockHeader { topic: number, span: 2, ..BlockHeader::new(Kind::Data) };
        let mut state = rich_state();
        assert!(!state.apply_data(&header, 7, 0, 0));
        assert_eq!(state, rich_state());
    }
}

#[test]
fn a_body_that_is_read_for_its_topics_alone_has_topics_up_to_the_limit() {
    let topic = TopicState::empty([5; 16], 0);
    let beyond = Err(DecodeError::Damaged("a topic number beyond the limit"));
    for (number, told) in [(9_999u32, Ok(())), (10_000, beyond), (10_001, beyond)] {
        let mut seen = Vec::new();
        let body = encode_new_topics([(number, topic)].into_iter());
        assert_eq!(topics_of(&body, |number, _| seen.push(number)), told, "{number}");
        assert_eq!(seen.len(), usize::from(told.is_ok()), "{number}");
        let body = encode_deletions([number].into_iter());
        assert_eq!(topics_of(&body, |_, _| ()), told, "{number} was deleted");
    }
}

#[test]
fn a_block_moves_its_topics_end_and_never_its_time_backwards() {
    let mut state = rich_state();
    let header =
        BlockHeader { topic: 3, count: 2, span: 5, body_crc: 77, ..BlockHeader::new(Kind::Data) };
    assert!(state.apply_data(&header, 7, 100, 0));
    let topic = *state.topic(3).unwrap();
    assert_eq!((topic.next, topic.last_crc, topic.highest_ns), (12, 77, 100));
    assert!(state.apply_data(&header, 12, 50, 0));
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
    // The same holds after space was made for it again.
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
    after.tokens.insert((3, b"job".to_vec()), IdempotencyState { version: 9, committed_ms: 2 });
    let more = CursorState { offset: 1, crc: u32::MAX, turn: 0 };
    after.keep_cursor(b"more", Some(kept(more, b"")));
    after.note_producer(3, sent(6, 4), 8, 0);
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
    read.apply_body(&encode_tokens(3, b"job", IdempotencyState::NONE), |_, _| ()).unwrap();
    assert_eq!(read.tokens().count(), 0);
    assert_eq!(read.encode_since(&before), encode_tokens(3, b"job", IdempotencyState::NONE));
    let mut read = before;
    assert!(read.forget_topic(3));
    assert_eq!(read.tokens().count(), 0);
}

#[test]
fn a_topic_that_is_deleted_takes_its_producers_and_tokens_and_nobody_elses() {
    let mut state = rich_state();
    state.note_producer(3, sent(6, 4), 8, 0);
    state.tokens.insert((0, b"other".to_vec()), IdempotencyState { version: 8, committed_ms: 9 });
    state.apply_body(&encode_deletions([3].into_iter()), |_, _| ()).unwrap();
    assert_eq!((state.producer(3, 6), state.token(&(3, b"job".to_vec()))), (None, None));
    assert!(state.producer(0, 5).is_some(), "another topic's producer");
    let left: Vec<_> =
        state.tokens().map(|(topic, name, token)| (topic, name, token.version)).collect();
    assert_eq!(left, [(0, &b"other"[..], 8)]);
    assert!(state.cursor(b"billing").is_some(), "cursors are of no topic");
}

#[test]
fn what_is_known_is_told_by_name_and_as_a_whole() {
    let mut state = rich_state();
    let cursor = CursorState { offset: 8, crc: 4, turn: 2 };
    assert_eq!((state.cursor(b"billing"), state.cursor(b"bill")), (Some(cursor), None));
    assert!(state.cursors().eq([(&b"billing"[..], cursor)]));
    assert_eq!(
        state.topics().map(|(number, topic)| (number, topic.next)).collect::<Vec<_>>(),
        [(0, 7), (3, 7)]
    );
    assert_eq!(
        state.tokens().map(|(topic, name, _)| (topic, name)).collect::<Vec<_>>(),
        [(3, &b"job"[..])]
    );
    state.note_producer(3, sent(5, 4), 8, 0);
    assert!(state.expect_producer(0, 6, usize::MAX));
    let told = |topics| {
        state.producers(topics).map(|(id, n, p)| (id, n, p.known()[0])).collect::<Vec<_>>()
    };
    assert_eq!(told(0..4), [(5, 0, (1, 2)), (5, 3, (4, 8))], "not who is only expected");
    assert_eq!(told(0..3), [(5, 0, (1, 2))]);
    assert_eq!(told(1..4), [(5, 3, (4, 8))]);
}

#[test]
fn a_cursor_that_is_moved_to_none_is_forgotten_and_said_to_be() {
    let before = rich_state();
    let gone = encode_cursors([(&b"billing"[..], CursorState::NONE, &b""[..])].into_iter());
    let mut after = before.clone();
    after.apply_body(&gone, |_, _| ()).unwrap();
    assert_eq!((after.cursor(b"billing"), after.cursors().count()), (None, 0));
    assert_eq!(after.encode_since(&before), gone);
}

#[test]
fn of_several_doubts_the_first_counts_until_somebody_says_that_all_is_as_it_is_known() {
    let mut state = rich_state();
    let sure = state.clone();
    assert_eq!(state.doubt(), None);
    state.doubt_facts(Address(0x2_0000_0300));
    state.doubt_facts(Address(0x2_0000_0200));
    assert_eq!(state.doubt(), Some(Address(0x2_0000_0300)));
    let doubting = state.clone();
    let mut read = sure.clone();
    read.apply_body(&doubting.encode_since(&sure), |_, _| ()).unwrap();
    assert_eq!(read, doubting);
    state.apply_body(&encode_trust(), |_, _| ()).unwrap();
    assert_eq!(state, sure);
    assert_eq!(
        sure.encode_since(&doubting),
        encode_trust(),
        "also a snapshot says that it is over"
    );
}

#[path = "state_later_tests.rs"]
mod later;
