//! Entries of snapshots and of the log's own blocks: the tables of "Snapshot and meta" in `docs/FORMAT.md`.

use super::*;

/// A body of one entry.
fn entry(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    varint::put(&mut body, kind);
    varint::put(&mut body, payload.len() as u64);
    body.extend_from_slice(payload);
    body
}

fn one_topic() -> (LogState, TopicState) {
    let topic = TopicState {
        generation: *b"0123456789abcdef",
        partition: 2,
        first: 3,
        next: 4,
        last_crc: 5,
        highest_ns: -6,
        finished: false,
    };
    let mut state = LogState::default();
    assert!(state.set_topic(1, topic));
    (state, topic)
}

#[test]
fn snapshot_entries_are_as_their_tables_say() {
    let rows = table("entry types");
    let number_of = |name: &str| number(&rows.iter().find(|row| row[1] == name).unwrap()[0]);
    let (state, topic) = one_topic();
    let written = state.encode_since(&LogState::default());
    assert_layout(
        "topic entry",
        &written[2..],
        &[
            ("number", half(1)),
            ("partition", half(2)),
            ("generation", topic.generation.to_vec()),
            ("first", word(3)),
            ("next", word(4)),
            ("highest", (-6i64).to_le_bytes().to_vec()),
            ("last crc", half(5)),
            ("flags", half(0)),
        ],
    );
    let payload_len = numbers(&rows[0][2])[0];
    assert_eq!(written[..2], entry(number_of("topic"), &vec![0; payload_len as usize])[..2]);

    let apply = |state: &LogState, body: &[u8]| {
        let mut state = state.clone();
        state.apply_body(body, |_, _| ()).map(|()| state)
    };
    let deleted = entry(number_of("topic deleted"), &half(1));
    let gone = apply(&state, &deleted).unwrap();
    assert_eq!(gone.topic(1), None);
    assert_eq!(gone.encode_since(&state), deleted);
    let trimmed = entry(number_of("trimmed"), &[half(1), word(4)].concat());
    assert_eq!(apply(&state, &trimmed).unwrap().topic(1).unwrap().first, 4);
    let kept = [
        ("producer", [half(1), half(1), word(7), word(5), word(8), word(9), half(2)].concat()),
        ("token", [half(0), word(1), word(2), b"job".to_vec()].concat()),
        ("cursor", [word(1), word(2), vec![7, 0], b"billing with metadata".to_vec()].concat()),
    ];
    for (name, payload) in &kept {
        let body = entry(number_of(name), payload);
        let read = apply(&state, &body).unwrap();
        assert_eq!(read.encode_since(&state), body, "{name} must be encoded as it was");
    }
    let wide = [word(1), word(1 << 40 | 7), vec![4, 0], b"name".to_vec()].concat();
    let body = entry(number_of("cursor"), &wide);
    assert_eq!(apply(&state, &body).unwrap().encode_since(&state), body);
    let spent = entry(number_of("token"), &[half(1), word(7), word(8), b"job".to_vec()].concat());
    let spent = apply(&state, &spent).unwrap();
    let token = spent.token(&(1, b"job".to_vec())).unwrap();
    assert_eq!((token.version, token.committed_ms), (7, 8));
    let none = [half(1), word(u64::MAX), word(0), b"job".to_vec()].concat();
    assert_eq!(apply(&spent, &entry(number_of("token"), &none)).unwrap(), state);
    let moved = apply(&state, &entry(number_of("cursor"), &wide)).unwrap();
    let cursor = moved.cursor(b"name").unwrap();
    assert_eq!((cursor.offset, cursor.crc, cursor.turn), (1, 7, 1 << 8));
    let known = apply(&state, &entry(number_of("producer"), &kept[0].1)).unwrap();
    let forgotten = entry(number_of("producer"), &[half(1), half(0), word(7), word(0)].concat());
    assert_eq!(apply(&known, &forgotten).unwrap(), state);
    assert_eq!(state.encode_since(&known), forgotten);
    let none = entry(
        number_of("cursor"),
        &[word(u64::MAX), word(0), vec![4, 0], b"name".to_vec()].concat(),
    );
    assert_eq!(apply(&moved, &none).unwrap(), state);
    assert_eq!(state.encode_since(&moved), none);
    let producer = &rows[3][2];
    assert!(producer.contains(&format!("up to {} times", state::PRODUCER_SEQUENCES)));
    let below = numbers(&table("topic entry")[0][3])[0] as u32;
    let mut full = LogState::default();
    assert!(!full.set_topic(below, topic) && full.set_topic(below - 1, topic));
    let doubt = entry(number_of("doubt"), &word(address::Address::new(3, 4096).0));
    let doubted = apply(&state, &doubt).unwrap();
    assert_eq!(doubted.doubt(), Some(address::Address::new(3, 4096)));
    assert_eq!(doubted.encode_since(&state), doubt);
    assert_eq!(apply(&doubted, &entry(number_of("doubt"), &word(0))).unwrap(), state);
    assert_eq!(state.encode_since(&doubted), state::encode_trust());
    let finished = apply(&state, &entry(number_of("finished"), &half(1))).unwrap();
    assert!(finished.topic(1).unwrap().finished);
    assert_eq!(state::encode_finished(std::iter::once(1)), entry(number_of("finished"), &half(1)));
    assert_eq!(rows.len(), 5 + kept.len());
    let kind = rows.len() as u64 + 1;
    let newer = apply(&state, &entry(kind, b""));
    assert_eq!(newer, Err(DecodeError::UnknownEntry(kind)));
}
