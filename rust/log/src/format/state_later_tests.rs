//! Parts of the format for later versions: each is refused by name, or kept as it is.

use super::*;

#[test]
fn a_cursors_name_has_1_to_512_bytes_and_up_to_384_bytes_of_metadata_behind_it() {
    let told = |name: usize, length: usize, metadata: usize| {
        let head = [&[7; 16][..], &(length as u16).to_le_bytes()].concat();
        let payload = [head, vec![b'n'; name], vec![b'm'; metadata]].concat();
        applied(kind::CURSOR, &payload).0
    };
    let wrong = Err(WRONG_LENGTH);
    for name in [1, 2, 511, 512] {
        assert_eq!(told(name, name, 0), Ok(()), "{name} bytes");
        for metadata in [1, 384] {
            assert_eq!(told(name, name, metadata), Ok(()), "{name}, {metadata}");
        }
        assert_eq!(told(name, name, 385), wrong, "{name} bytes");
        assert_eq!(told(name, name + 1, 0), wrong, "{name} bytes");
    }
    assert_eq!([told(0, 0, 0), told(513, 513, 0)], [wrong, wrong]);
}

#[test]
fn what_is_kept_for_later_versions_is_refused_by_name() {
    let refused = |bytes: &str| {
        let found = LogState::default().apply_body(&hex(bytes), |_, _| ());
        assert!(matches!(found, Err(DecodeError::Unknown(_))), "{bytes}: {found:?}");
        assert_eq!(topics_of(&hex(bytes), |_, _| ()), found);
    };
    let topic = TOPIC.strip_suffix("00000000").unwrap();
    for flags in ["02000000", "03000000", "00000080"] {
        refused(&format!("{topic}{flags}"));
    }
    for flags in ["02000000", "00000080"] {
        refused(&PRODUCER.replacen("01100000 01000000", &format!("01100000 {flags}"), 1));
    }
}

#[test]
fn an_entry_of_a_kind_that_is_not_known_is_refused_with_the_number_of_the_kind() {
    for kind in [0, 9, 200, u64::MAX] {
        let refused = applied(kind, &[1]).0.unwrap_err();
        assert_eq!(refused, DecodeError::UnknownEntry(kind));
        assert!(refused.is_newer());
        assert_eq!(refused.to_string(), format!("an entry of kind {kind}"));
    }
}

#[test]
fn when_a_producer_was_used_last_stays_until_it_is_used_again() {
    let used = PRODUCER.replacen("0000000000000000", "1500000000000000", 1);
    let mut state = LogState::default();
    state.apply_body(&hex(&used), |_, _| ()).unwrap();
    assert_eq!(state.producer(0x1001, TOLD_PRODUCER).unwrap().used_us(), Some(0x15));
    assert_eq!(state.encode_since(&LogState::default()), hex(&used));
    state.note_producer(0x1001, sent(TOLD_PRODUCER, u64::MAX), 1, 0);
    assert_eq!(state.producer(0x1001, TOLD_PRODUCER).unwrap().used_us(), None, "not noted");
}
