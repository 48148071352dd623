//! Settings files: their text is the one that the format gives, and what is not is refused.

use super::*;
use crate::format::retention::MAX_LIMIT;

fn topic() -> TopicSettings {
    TopicSettings {
        name: "orders".into(),
        generation: [1; 16],
        log: "shop".into(),
        log_generation: [2; 16],
        partitions: 3,
        number: 4,
        codec: "json".into(),
        codec_unnamed: false,
        partitioner: PARTITIONER.into(),
        properties: BTreeMap::new(),
        segment_bytes: 1 << 26,
        sync_interval_ms: 100,
        compacted: false,
        created_us: 5,
        retention: Retention::default(),
        revision: 0,
    }
}

fn store(write_mode: WriteMode) -> StoreSettings {
    let (id, retention_bytes, ship_backlog_bytes, revision) = ([3; 16], None, None, 0);
    let (created_us, ship_min_sync) = (-1, None);
    StoreSettings {
        id,
        created_us,
        write_mode,
        retention_bytes,
        ship_backlog_bytes,
        ship_min_sync,
        revision,
    }
}

#[test]
fn settings_come_back() {
    for write_mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let store = store(write_mode);
        assert_eq!(StoreSettings::decode(store.encode().as_bytes()), Ok(store));
    }
    assert_eq!(TopicSettings::decode(topic().encode().as_bytes()), Ok(topic()));
    let unnamed = TopicSettings { codec: "bytes".into(), codec_unnamed: true, ..topic() };
    assert_eq!(TopicSettings::decode(unnamed.encode().as_bytes()), Ok(unnamed));
}

#[test]
fn what_nobody_asked_for_stands_nowhere_and_what_somebody_did_comes_back() {
    let plain = topic().encode();
    assert!(!plain.contains("retention") && !plain.contains("revision"), "{plain}");
    let (bytes, age_ms, records) = (Some(1), Some(2), Some(MAX_LIMIT));
    let retention = Retention { bytes, age_ms, records, waits: true, protected: true };
    let kept = TopicSettings { retention, revision: 9, ..topic() };
    assert_eq!(TopicSettings::decode(kept.encode().as_bytes()), Ok(kept.clone()));
    let limits =
        StoreSettings { retention_bytes: Some(7), revision: 1, ..store(WriteMode::Mapped) };
    let store = StoreSettings { ship_backlog_bytes: Some(8), ship_min_sync: Some(2), ..limits };
    assert_eq!(StoreSettings::decode(store.encode().as_bytes()), Ok(store));
    let text = kept.encode();
    for wrong in ["\"retention_bytes\":\"1\"", "\"retention_bytes\":-1", "\"retention_bytes\":null"]
    {
        let body = text.split(CHECKSUM).next().unwrap().replace("\"retention_bytes\":1", wrong);
        assert_eq!(TopicSettings::decode(sealed(&body).as_bytes()), Err(WRONG_MEMBER), "{wrong}");
    }
}

/// Retention by a limit of 0 would take everything.
#[test]
fn a_limit_that_nobody_could_set_is_damage() {
    for (limit, is_one) in [(0, false), (1, true), (MAX_LIMIT, true), (MAX_LIMIT + 1, false)] {
        let retention_bytes = Some(limit);
        let store = StoreSettings { retention_bytes, ..store(WriteMode::Mapped) };
        let expected = if is_one { Ok(store.clone()) } else { Err(NO_LIMIT) };
        assert_eq!(StoreSettings::decode(store.encode().as_bytes()), expected, "{limit}");
        let retention = Retention { records: retention_bytes, ..Retention::default() };
        let topic = TopicSettings { retention, ..topic() };
        let expected = if is_one { Ok(topic.clone()) } else { Err(NO_LIMIT) };
        assert_eq!(TopicSettings::decode(topic.encode().as_bytes()), expected, "{limit}");
    }
}

#[test]
fn an_edited_or_cut_file_is_found_out() {
    let text = topic().encode();
    let edited = text.replace("orders", "arders");
    assert!(matches!(TopicSettings::decode(edited.as_bytes()), Err(DecodeError::Damaged(_))));
    for cut in 0..text.len() - 1 {
        assert!(TopicSettings::decode(&text.as_bytes()[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn members_and_versions_of_the_future_are_refused_by_name() {
    for version in [1, 3] {
        let other = seal(&[("format", version.into())]);
        let refused = Err(DecodeError::Version(version));
        assert_eq!(StoreSettings::decode(other.as_bytes()), refused);
    }
    let text = topic().encode();
    let body = text.split(CHECKSUM).next().unwrap().to_owned() + ",\"colour\":\"red\"";
    let text = format!("{body}{CHECKSUM}{:08x}\"}}\n", crc32(body.as_bytes()));
    assert!(matches!(TopicSettings::decode(text.as_bytes()), Err(DecodeError::Unknown(_))));
}

fn sealed(body: &str) -> String {
    format!("{body}{CHECKSUM}{:08x}\"}}\n", crc32(body.as_bytes()))
}

fn edited(old: &str, new: &str) -> Decoded<TopicSettings> {
    let text = topic().encode();
    assert!(text.contains(old), "{text}");
    let body = text.split(CHECKSUM).next().unwrap().replace(old, new);
    TopicSettings::decode(sealed(&body).as_bytes())
}

#[test]
fn a_topic_has_sound_names_and_a_partition_at_least() {
    assert!(edited("orders", "order-s").is_ok());
    for (old, new) in [
        ("\"topic\":\"orders\"", "\"topic\":\"or/ders\""),
        ("\"log\":\"shop\"", "\"log\":\"..\""),
        ("\"partitions\":3", "\"partitions\":0"),
        ("\"partitions\":3", "\"partitions\":4294967296"),
        ("\"number\":4", "\"number\":-1"),
        ("\"compacted\":false", "\"compacted\":0"),
        ("\"codec\":\"json\"", "\"codec\":7"),
        ("\"created_us\":5", "\"created_us\":\"5\""),
        ("\"created_us\":5", "\"created_us\":5,\"codec_unnamed\":1"),
        (&names::hex(&[1; 16]), "01"),
    ] {
        assert_eq!(edited(old, new), Err(WRONG_MEMBER), "{new}");
    }
}

#[test]
fn the_log_of_a_topic_lies_where_its_name_and_generation_say() {
    assert_eq!(topic().log_dir(), format!("shop@{}", names::hex(&[2; 16])));
}

#[test]
fn a_write_mode_of_the_future_is_refused_and_not_guessed() {
    let store = store(WriteMode::Mapped);
    let body = store.encode().split(CHECKSUM).next().unwrap().replace("mapped", "direct");
    let found = StoreSettings::decode(sealed(&body).as_bytes());
    assert_eq!(found, Err(DecodeError::Unknown("a write mode of a newer version")));
}

#[test]
fn text_that_is_sealed_and_no_object_is_damage() {
    for body in ["[1", "\"a\"", "{\"a\":"] {
        let found = TopicSettings::decode(sealed(body).as_bytes());
        assert!(matches!(found, Err(DecodeError::Damaged(_))), "{body}: {found:?}");
    }
    assert!(matches!(TopicSettings::decode(&[0xff, 0xfe]), Err(DecodeError::Damaged(_))));
}

// Lines that zlib has summed: no checksum here comes from this module.
const STORE: &str = concat!(
    r#"{"format":2,"store":"000102030405060708090a0b0c0d0e0f","created_us":-1234567890123,"#,
    r#""write_mode":"mapped","retention_bytes":9876543210,"revision":1,"#,
    r#""checksum":"c2835e55"}"#,
);
const BARE_STORE: &str = concat!(
    r#"{"format":2,"store":"000102030405060708090a0b0c0d0e0f","created_us":-1234567890123,"#,
    r#""write_mode":"pwrite","checksum":"9e130273"}"#,
);
const TOPIC: &str = concat!(
    r#"{"format":2,"topic":"orders","generation":"101112131415161718191a1b1c1d1e1f","#,
    r#""log":"shop","log_generation":"202122232425262728292a2b2c2d2e2f","partitions":3,"#,
    r#""number":40,"codec":"json \"5\"","partitioner":"crc32","segment_bytes":67108864,"sync_interval_ms":100,"#,
    r#""compacted":true,"created_us":1795219200000000,"retention_bytes":5,"#,
    r#""retention_age_ms":6,"retention_records":7,"retention_waits":true,"#,
    r#""retention_protected":true,"properties":{"a":"\"","b":"2"},"revision":8,"checksum":"ab3a1558"}"#,
);

#[test]
fn a_stores_file_is_one_line_with_its_members_in_order() {
    let whole = StoreSettings {
        id: std::array::from_fn(|at| at as u8),
        created_us: -1_234_567_890_123,
        write_mode: WriteMode::Mapped,
        retention_bytes: Some(9_876_543_210),
        ship_backlog_bytes: None,
        ship_min_sync: None,
        revision: 1,
    };
    let (write_mode, retention_bytes, revision) = (WriteMode::Pwrite, None, 0);
    let bare = StoreSettings { write_mode, retention_bytes, revision, ..whole };
    for (settings, line) in [(whole, STORE), (bare, BARE_STORE)] {
        assert_eq!(settings.encode(), format!("{line}\n"));
        assert_eq!(StoreSettings::decode(line.as_bytes()), Ok(settings));
    }
}

#[test]
fn properties_are_texts_by_name_and_nothing_else() {
    let with = |properties: &str| {
        let body = topic().encode().split(CHECKSUM).next().unwrap().to_owned();
        let text = sealed(&format!("{body},\"properties\":{properties}"));
        TopicSettings::decode(text.as_bytes()).map(|topic| topic.properties)
    };
    let expected = [("content-type".to_owned(), "text/plain".to_owned())].into();
    assert_eq!(with("{\"content-type\":\"text/plain\"}"), Ok(expected));
    assert_eq!(with("{}"), Ok(BTreeMap::new()));
    for wrong in ["[]", "\"a\"", "7", "{\"a\":7}", "{\"a\":null}", "{\"a\":{}}"] {
        assert_eq!(with(wrong), Err(WRONG_MEMBER), "{wrong}");
    }
}

#[test]
fn a_partitioner_that_nobody_knows_is_read_as_it_stands() {
    let other = TopicSettings { partitioner: "murmur2".into(), ..topic() };
    assert_eq!(TopicSettings::decode(other.encode().as_bytes()), Ok(other));
}

#[test]
fn a_topics_file_is_one_line_with_its_members_in_order() {
    let (bytes, age_ms, records) = (Some(5), Some(6), Some(7));
    let topic = TopicSettings {
        generation: std::array::from_fn(|at| 0x10 + at as u8),
        log_generation: std::array::from_fn(|at| 0x20 + at as u8),
        number: 40,
        codec: "json \"5\"".into(),
        codec_unnamed: false,
        properties: [("b", "2"), ("a", "\"")].map(|(k, v)| (k.into(), v.into())).into(),
        compacted: true,
        created_us: 1_795_219_200_000_000,
        retention: Retention { bytes, age_ms, records, waits: true, protected: true },
        revision: 8,
        ..topic()
    };
    assert_eq!(topic.encode(), format!("{TOPIC}\n"));
    assert_eq!(TopicSettings::decode(TOPIC.as_bytes()), Ok(topic));
}

#[test]
fn members_may_stand_in_any_order_with_the_checksum_last() {
    let body = BARE_STORE.split(CHECKSUM).next().unwrap();
    let mut members: Vec<_> = body[1..].split(',').collect();
    for _ in 0..members.len() {
        members.rotate_left(1);
        let text = sealed(&format!("{{{}", members.join(",")));
        let found = StoreSettings::decode(text.as_bytes());
        assert_eq!(found, StoreSettings::decode(BARE_STORE.as_bytes()), "{text}");
    }
}

#[test]
fn white_space_may_stand_behind_the_brace_and_nothing_else() {
    for behind in ["", "\n", "\r\n", " \t\n\n"] {
        assert!(StoreSettings::decode(format!("{STORE}{behind}").as_bytes()).is_ok(), "{behind:?}");
    }
    for behind in ["}", "\0", "\nx", " {}", ","] {
        let found = StoreSettings::decode(format!("{STORE}{behind}").as_bytes());
        assert!(matches!(found, Err(DecodeError::Damaged(_))), "{behind:?}");
    }
}

#[test]
fn each_member_that_is_not_optional_has_to_be_there() {
    let without = |line: &str, at: usize| {
        let mut members: Vec<_> = line.split(CHECKSUM).next().unwrap()[1..].split(',').collect();
        let gone = members.remove(at);
        (gone.to_owned(), sealed(&format!("{{{}", members.join(","))))
    };
    for at in 0..6 {
        let (gone, text) = without(STORE, at);
        let is_optional = at >= 4;
        assert_eq!(StoreSettings::decode(text.as_bytes()).is_ok(), is_optional, "{gone}");
    }
    for at in 0..18 {
        let (gone, text) = without(&TOPIC.replace(",\"b\":\"2\"", ""), at);
        let is_optional = at >= 13;
        assert_eq!(TopicSettings::decode(text.as_bytes()).is_ok(), is_optional, "{gone}");
    }
}
