//! Records: a body returns exactly the records put into it, and a corrupt body ends in an error.

use super::*;
use crate::format::tests::hex;
use proptest::prelude::*;

#[path = "record_growing_tests.rs"]
mod growing;

type Owned = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>, Option<i64>);

fn any_record() -> impl Strategy<Value = Owned> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let header = (".{0,8}", proptest::option::of(bytes()));
    (
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        proptest::collection::vec(header, 0..4),
        proptest::option::of(any::<i64>()),
    )
}

fn with_borrowed<R>(records: &[Owned], use_them: impl FnOnce(&[NewRecord<'_>]) -> R) -> R {
    type Header<'a> = (&'a str, Option<&'a [u8]>);
    let headers: Vec<Vec<Header<'_>>> = records
        .iter()
        .map(|r| r.2.iter().map(|(n, v)| (n.as_str(), v.as_deref())).collect())
        .collect();
    let borrowed: Vec<_> = records
        .iter()
        .zip(&headers)
        .map(|(r, headers)| NewRecord {
            value: r.0.as_deref(),
            key: r.1.as_deref(),
            headers,
            event_time_ns: r.3,
        })
        .collect();
    use_them(&borrowed)
}

fn encode(records: &[NewRecord<'_>]) -> BodyWriter {
    let mut writer = BodyWriter::default();
    let base = records.iter().find_map(|r| r.event_time_ns);
    writer.begin(records.iter().any(NewRecord::is_rich), base);
    records.iter().for_each(|r| writer.push(r));
    writer
}

proptest! {
    #[test]
    fn records_come_back(records in proptest::collection::vec(any_record(), 1..8)) {
        with_borrowed(&records, |borrowed| {
            let writer = encode(borrowed);
            let body = writer.body();
            prop_assert!(body.len() <= 8 + borrowed.iter().map(NewRecord::max_len).sum::<usize>());
            let mut walk = RecordCursor::new(writer.flags(), writer.count(), body).unwrap();
            let mut before = 0;
            for (i, wanted) in borrowed.iter().enumerate() {
                let parts = walk.next(body).unwrap().unwrap();
                prop_assert_eq!(parts.offset_delta as usize, i);
                prop_assert!(parts.end > before);
                before = parts.end;
                prop_assert_eq!(parts.value.map(|r| &body[r]), wanted.value);
                prop_assert_eq!(parts.key.map(|r| &body[r]), wanted.key);
                prop_assert_eq!(parts.event_time_ns, wanted.event_time_ns);
                let found: Vec<_> = headers(&body[parts.headers]).collect();
                prop_assert_eq!(found.as_slice(), wanted.headers);
            }
            prop_assert_eq!(walk.next(body).unwrap(), None);
            prop_assert_eq!(before, body.len());
            Ok(())
        })?;
    }

    #[test]
    fn the_short_way_finds_what_the_long_one_does_or_nothing(
        records in proptest::collection::vec(any_record(), 1..8),
        plain in proptest::collection::vec(any::<bool>(), 8),
        cut in 0usize..4,
    ) {
        // Half of them are of the kind that it is for.
        let likely = |(i, mut record): (usize, Owned)| {
            if plain[i] {
                record.2.clear();
                record.0.get_or_insert_default();
                if let Some(key) = &mut record.1 {
                    key.truncate(130);
                }
            }
            record
        };
        let records: Vec<_> = records.into_iter().enumerate().map(likely).collect();
        with_borrowed(&records, |borrowed| {
            let writer = encode(borrowed);
            let body = &writer.body()[..writer.body().len().saturating_sub(cut)];
            let Ok(mut walk) = RecordCursor::new(writer.flags(), writer.count(), body) else { return Ok(()) };
            for record in borrowed {
                let mut short = walk.clone();
                let (found, told) = (short.next_keyed(body, 7), walk.next(body));
                let Ok(Some(parts)) = told else {
                    prop_assert_eq!(found, None);
                    return Ok(());
                };
                let is_short = borrowed.iter().any(NewRecord::is_rich)
                    && record.headers.is_empty()
                    && record.value.is_some()
                    && record.key.is_none_or(|key| key.len() < 128);
                prop_assert_eq!(found.is_some(), is_short);
                let Some(found) = found else { continue };
                prop_assert_eq!(found.offset_delta, parts.offset_delta);
                prop_assert_eq!(found.key, KeyedPlace::of(parts.key));
                prop_assert_eq!(found.value, KeyedPlace::of(parts.value));
                prop_assert_eq!(found.value.bytes(body), record.value);
                prop_assert_eq!(found.key.bytes(body), record.key);
                prop_assert_eq!(found.time_ns, record.event_time_ns.unwrap_or(7));
                prop_assert_eq!(format!("{short:?}"), format!("{walk:?}"));
            }
            prop_assert_eq!(walk.next_keyed(body, 7), None);
            Ok(())
        })?;
    }

    #[test]
    fn any_bytes_are_walked_without_a_panic(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        flags in any::<u16>(),
        count in any::<u32>(),
    ) {
        if let Ok(mut walk) = RecordCursor::new(flags, count, &body) {
            let mut walked = 0;
            let mut short = walk.clone();
            while let Ok(Some(parts)) = walk.next(&body) {
                if let Some(found) = short.next_keyed(&body, 7) {
                    let time_ns = parts.event_time_ns.unwrap_or(7);
                    let (key, value) = (KeyedPlace::of(parts.key.clone()), KeyedPlace::of(parts.value.clone()));
                    let offset_delta = parts.offset_delta;
                    prop_assert_eq!(found, KeyedRecord { offset_delta, key, value, time_ns });
                    prop_assert!(parts.headers.is_empty());
                }
                short = walk.clone();
                prop_assert!(parts.end <= body.len());
                headers(&body[parts.headers]).for_each(drop);
                walked += 1;
                if walked > 1000 { break; }
            }
        }
    }
}

proptest! {
    #[test]
    fn values_passed_over_are_values_walked(
        lens in proptest::collection::vec(prop_oneof![Just(5usize), 0usize..300], 0..40),
        cut in 0usize..4,
        count in 0u32..45,
    ) {
        let mut writer = BodyWriter::default();
        writer.begin(false, None);
        lens.iter().for_each(|len| writer.push_value(&vec![7; *len]));
        let body = &writer.body()[..writer.body().len().saturating_sub(cut)];
        let mut walked = RecordCursor::new(writer.flags(), count, body).unwrap();
        for n in 0..50 {
            let mut skipped = RecordCursor::new(writer.flags(), count, body).unwrap();
            let passed = skipped.skip_plain(body, n);
            prop_assert_eq!(passed, walked.index == n, "{} of {:?}", n, lens);
            if passed {
                prop_assert_eq!((skipped.at, skipped.index), (walked.at, walked.index));
                walked.next_plain(body);
            } else {
                prop_assert_eq!((skipped.at, skipped.index), (0, 0));
            }
        }
    }

    #[test]
    fn a_span_tells_as_much_as_the_parts(
        body in proptest::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..200),
        flags in any::<u16>(),
        count in 0u32..20,
    ) {
        let Ok(mut parts) = RecordCursor::new(flags, count, &body) else { return Ok(()) };
        let mut spans = parts.clone();
        loop {
            let (wanted, found) = (parts.next(&body), spans.next_span(&body));
            match (wanted, found) {
                (Ok(Some(wanted)), Ok(Some(found))) => {
                    prop_assert_eq!(found.value(), wanted.value.clone());
                    prop_assert_eq!(found.key(), wanted.key.clone());
                    prop_assert_eq!(found.offset_delta, wanted.offset_delta);
                    prop_assert_eq!(spans.layout_of(&body, &found), Ok(wanted));
                }
                (Ok(None), Ok(None)) => break,
                (wanted, found) => {
                    prop_assert_eq!(wanted.err(), found.err());
                    break;
                }
            }
        }
    }
}

#[test]
fn a_record_cut_off_anywhere_is_damage_not_a_shorter_record() {
    let headers = [("trace", Some(b"1".as_slice())), ("none", None)];
    let record = NewRecord {
        value: Some(b"value"),
        key: Some(b"key"),
        headers: &headers,
        event_time_ns: Some(5),
    };
    let writer = encode(&[record]);
    for cut in 8..writer.body().len() {
        let body = &writer.body()[..cut];
        let mut walk = RecordCursor::new(writer.flags(), 1, body).unwrap();
        assert!(walk.next(body).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_plain_record_of_100_bytes_costs_one_byte_beside_its_value() {
    let mut writer = BodyWriter::default();
    writer.begin(false, None);
    writer.push_value(&[7; 100]);
    assert_eq!((writer.body().len(), writer.flags()), (101, 0));
}

proptest! {
    #[test]
    fn the_only_record_of_a_block_is_the_one_that_a_walk_finds(
        value in proptest::collection::vec(any::<u8>(), 0..200),
        flags in prop_oneof![Just(0u16), Just(flag::TOPIC | flag::GROUP), any::<u16>()],
        cut in 0usize..3,
    ) {
        let mut writer = BodyWriter::default();
        writer.begin(false, None);
        writer.push_value(&value);
        let body = &writer.body()[..writer.body().len().saturating_sub(cut)];
        let alone = RecordSpan::alone(flags, body);
        let plain = flags & (flag::RICH | flag::SPARSE | flag::EVENT_TIME) == 0;
        prop_assert_eq!(alone.is_some(), plain && value.len() < 0x80 && cut == 0);
        if let Some(alone) = alone {
            let mut walk = RecordCursor::new(flags, 1, body).unwrap();
            prop_assert_eq!(walk.next_span(body), Ok(Some(alone)));
            prop_assert_eq!(&body[alone.value().unwrap()], &value);
        }
    }
}

#[test]
fn a_body_without_a_byte_has_no_record() {
    assert_eq!(RecordSpan::alone(0, &[]), None);
}

#[test]
fn a_way_is_found_from_the_beginning_only_and_not_beyond_the_end() {
    let mut writer = BodyWriter::default();
    writer.begin(false, None);
    (0..100u8).for_each(|i| writer.push_value(&vec![i; usize::from(i) * 3]));
    let body = writer.body();
    let walk = || RecordCursor::new(0, 100, body).unwrap();
    for wanted in 0..=100u32 {
        let mut way = Vec::new();
        let (mut along, mut plain) = (walk(), walk());
        assert!(along.skip_plain_along(body, wanted, &mut way));
        assert!(plain.skip_plain(body, wanted));
        assert_eq!((along.at, along.left()), (plain.at, plain.left()));
        assert_eq!(way.len(), (wanted / WAY) as usize);
        let places = (1..=way.len() as u32).map(|n| {
            let mut there = walk();
            assert!(there.skip_plain(body, n * WAY));
            there.at as u32
        });
        assert!(way.iter().copied().eq(places), "{wanted}: {way:?}");
    }
    // A way that somebody went before leads there, too, wherever it ends.
    let mut way = Vec::new();
    for wanted in [33, 0, 31, 32, 64, 63, 95, 40, 100, 96, 1] {
        let (mut along, mut plain) = (walk(), walk());
        assert!(along.skip_plain_along(body, wanted, &mut way));
        assert!(plain.skip_plain(body, wanted));
        assert_eq!((along.at, along.left()), (plain.at, plain.left()), "{wanted}");
    }
    assert_eq!(way.len(), 3);
    let mut way = Vec::new();
    let mut begun = walk();
    begun.next_plain(body).unwrap();
    assert!(!begun.skip_plain_along(body, 50, &mut way), "it does not stand at the beginning");
    assert!(!walk().skip_plain_along(body, 101, &mut way), "there are fewer");
    assert!(way.is_empty());
    let cut = &body[..2000];
    assert!(!walk().skip_plain_along(cut, 100, &mut way), "a value is cut off");
    assert!(way.iter().all(|at| *at as usize <= cut.len()));
}

#[test]
fn memory_of_a_large_block_is_freed_and_that_of_a_small_one_kept() {
    let mut writer = BodyWriter::default();
    writer.begin(false, None);
    writer.push_value(&[7; 5000]);
    let before = writer.room();
    assert!((5002..5100).contains(&before), "it holds little more than is filled: {before}");
    writer.shrink(before);
    assert_eq!(writer.body().len(), 5002, "no more than is kept: all stays");
    writer.shrink(100);
    assert!(writer.body().is_empty() && (100..5000).contains(&writer.room()));
}

#[test]
fn a_writer_tells_the_highest_time_and_who_goes_by_the_time_of_the_append() {
    let timed = |ns| NewRecord { event_time_ns: Some(ns), ..NewRecord::new(b"v") };
    let keyed = NewRecord { key: Some(b"k"), ..NewRecord::new(b"v") };
    type Case<'a> = (&'a [NewRecord<'a>], (Option<i64>, bool));
    let cases: [Case<'_>; 5] = [
        (&[NewRecord::new(b"v")], (None, true)),
        (&[timed(5), timed(9), timed(-7)], (Some(9), false)),
        (&[timed(-5), keyed], (Some(-5), true)),
        (&[keyed], (None, true)),
        (&[timed(i64::MIN), timed(i64::MAX)], (Some(i64::MAX), false)),
    ];
    for (records, times) in cases {
        let writer = encode(records);
        assert_eq!(writer.times(), times);
        assert_eq!(writer.count() as usize, records.len());
    }
    let mut writer = encode(&[timed(5)]);
    writer.begin(false, None);
    assert_eq!((writer.times(), writer.count(), writer.body().len()), ((None, false), 0, 0));
}

#[test]
fn a_record_is_rich_by_any_part_beside_its_value() {
    let plain = NewRecord::new(b"v");
    assert!(!plain.is_rich());
    let headers = [("h", None)];
    for rich in [
        NewRecord { key: Some(b""), ..plain },
        NewRecord { headers: &headers, ..plain },
        NewRecord { event_time_ns: Some(0), ..plain },
        NewRecord { value: None, ..plain },
    ] {
        assert!(rich.is_rich(), "{rich:?}");
        let writer = encode(&[rich]);
        assert!(writer.body().len() <= rich.max_len() + 8);
    }
}

#[test]
fn attributes_of_a_newer_version_are_unknown_and_no_damage() {
    for bit in 0..8 {
        let body = [1 << bit, 0, 0, 0, 0];
        let found = RecordCursor::new(flag::RICH, 1, &body).unwrap().next(&body);
        let newer = Err(DecodeError::Unknown("a record attribute of a newer version"));
        assert_eq!(found == newer, bit >= 4, "bit {bit}");
    }
}

#[test]
fn sparse_records_have_the_offsets_that_they_tell() {
    let mut body = Vec::new();
    for delta in [0u64, 3, 1 << 20] {
        varint::put(&mut body, delta);
        varint::put(&mut body, 2);
        body.extend(*b"ab");
    }
    let mut walk = RecordCursor::new(flag::SPARSE, 3, &body).unwrap();
    assert!(!walk.is_plain());
    // One of them is how many records there are: it is no place in a row.
    let mut spans = walk.clone();
    for delta in [0, 3, 1 << 20] {
        let span = spans.next_span(&body).unwrap().unwrap();
        assert_eq!(span.offset_delta, delta);
        assert_eq!(spans.layout_of(&body, &span).unwrap().offset_delta, delta);
    }
    let found: Vec<_> = std::iter::from_fn(|| walk.next(&body).unwrap()).collect();
    assert_eq!(found.iter().map(|parts| parts.offset_delta).collect::<Vec<_>>(), [0, 3, 1 << 20]);
    assert!(found.iter().all(|parts| &body[parts.value.clone().unwrap()] == b"ab"));
    assert_eq!(walk.left(), 0);
}

/// Holds a body to its bytes, and what is read of them to the records.
fn is_laid_out(name: &str, base: Option<i64>, records: &[NewRecord<'_>], flags: u16, bytes: &str) {
    let mut writer = BodyWriter::default();
    writer.begin(flags & 0x200 != 0, base);
    records.iter().for_each(|record| writer.push(record));
    let body = hex(bytes);
    assert_eq!((writer.body(), writer.flags()), (&body[..], flags), "{name}");
    let mut walk = RecordCursor::new(flags, records.len() as u32, &body).unwrap();
    let mut spans = walk.clone();
    let mut end = 0;
    for (i, record) in records.iter().enumerate() {
        let parts = walk.next(&body).unwrap().unwrap();
        assert_eq!(walk.left() as usize, records.len() - i - 1, "{name}");
        assert_eq!(parts.offset_delta as usize, i, "{name}");
        assert_eq!(parts.value.clone().map(|value| &body[value]), record.value, "{name}");
        assert_eq!(parts.key.clone().map(|key| &body[key]), record.key, "{name}");
        assert_eq!(parts.event_time_ns, record.event_time_ns, "{name}");
        assert!(headers(&body[parts.headers.clone()]).eq(record.headers.iter().copied()), "{name}");
        let span = spans.next_span(&body).unwrap().unwrap();
        assert_eq!((span.value(), span.offset_delta), (parts.value.clone(), i as u32), "{name}");
        end = parts.end;
        assert_eq!(spans.layout_of(&body, &span), Ok(parts), "{name}");
    }
    assert_eq!((walk.next(&body), spans.next_span(&body)), (Ok(None), Ok(None)), "{name}");
    assert_eq!(end, body.len(), "{name}");
}

#[test]
fn a_body_without_attributes_is_its_values_and_their_lengths() {
    let values = [&b"ab"[..], b"", b"c"].map(NewRecord::new);
    is_laid_out("values", None, &values, 0, "02 6162  00  01 63");
    let long = [7; 300];
    let bytes = format!("ac02 {}", "07".repeat(300));
    is_laid_out("a long value", None, &[NewRecord::new(&long)], 0, &bytes);
    // This writer makes no such body, but a reader knows what it is.
    let body = hex("1112131415161718 02 6162 00");
    let mut walk = RecordCursor::new(0x400, 2, &body).unwrap();
    let found = [(); 2].map(|()| walk.next(&body).unwrap().unwrap());
    assert_eq!(
        found.map(|parts| (parts.value, parts.end)),
        [(Some(9..11), 11), (Some(12..12), 12)]
    );
}

#[test]
fn a_record_with_attributes_has_its_parts_in_the_formats_order() {
    let headers = [("na", Some(&b"val"[..])), ("n", None), ("", Some(b"")), ("n", Some(b"w"))];
    let base = 0x1817_1615_1413_1211;
    let all = NewRecord {
        value: Some(b"xyz"),
        key: Some(b"ke"),
        headers: &headers,
        event_time_ns: Some(base + 300),
    };
    let bytes = "1112131415161718 \
                 07  02 6b65  d804  04 02 6e61 04 76616c  01 6e 00  00 01  01 6e 02 77  03 78797a \
                 00  01 76 \
                 04  01  00 \
                 09  00 \
                 0a  04 02 6e61 04 76616c  01 6e 00  00 01  01 6e 02 77";
    let records = [
        all,
        NewRecord::new(b"v"),
        NewRecord { event_time_ns: Some(base - 1), ..NewRecord::new(b"") },
        NewRecord { key: Some(b""), ..NewRecord::default() },
        // Nothing follows its last header.
        NewRecord { headers: &headers, ..NewRecord::default() },
    ];
    is_laid_out("with a base", Some(base), &records, 0x600, bytes);
    let keyed = NewRecord { key: Some(b"ke"), ..NewRecord::new(b"v") };
    is_laid_out("without times", None, &[keyed], 0x200, "01  02 6b65  01 76");
}

#[test]
fn an_event_time_counts_from_the_base_from_0_without_one_and_wraps() {
    let timed = |ns| [NewRecord { event_time_ns: Some(ns), ..NewRecord::new(b"v") }];
    is_laid_out("no base", None, &timed(-2), 0x200, "04 03 01 76");
    let most = "ffffffffffffff7f";
    is_laid_out("beyond", Some(i64::MAX), &timed(i64::MIN), 0x600, &format!("{most} 04 02 01 76"));
    assert_eq!(RecordCursor::new(0x400, 1, &[0; 7]).err(), Some(CUT_OFF), "a base has eight bytes");
}

#[test]
fn a_headers_name_is_text() {
    for (bytes, sound) in [("02 01 02 c3a4 00 00", true), ("02 01 02 a4c3 00 00", false)] {
        let body = hex(bytes);
        let found = RecordCursor::new(0x200, 1, &body).unwrap().next(&body);
        assert_eq!(found.is_ok(), sound, "{bytes}");
    }
}

#[test]
fn a_record_takes_at_most_ten_bytes_for_each_number_and_one_for_its_attributes() {
    let headers = [("abc", Some(&b"value"[..])), ("", None)];
    let whole = NewRecord {
        value: Some(b"1234567"),
        key: Some(b"ke"),
        headers: &headers,
        ..NewRecord::default()
    };
    assert_eq!(NewRecord::default().max_len(), 41);
    assert_eq!(NewRecord::new(b"1234567").max_len(), 48);
    assert_eq!(NewRecord { key: Some(b"ke"), ..NewRecord::default() }.max_len(), 43);
    assert_eq!(whole.max_len(), 50 + 3 + 5 + 20 + 20);
    let many = [("", None); 50];
    let record = NewRecord { headers: &many, ..NewRecord::default() };
    assert!(encode(&[record]).body().len() <= record.max_len());
}

#[test]
fn a_record_is_alone_where_its_block_has_neither_deltas_nor_attributes_nor_a_base() {
    let short = [&[127][..], &[7; 127]].concat();
    for flags in 0..=u16::MAX {
        let is_plain = flags & 0x80 == 0 && flags & 0x200 == 0 && flags & 0x400 == 0;
        let found = RecordSpan::alone(flags, &short).and_then(|span| span.value());
        assert_eq!(found, is_plain.then_some(1..128), "{flags:#x}");
    }
    let long = [&[0x80, 1][..], &[7; 128]].concat();
    for (body, value) in [
        (&[0][..], Some(1..1)),
        (&[0, 7], Some(1..1)),
        (&[2, 7, 7], Some(1..3)),
        (&[2, 7], None),
        (&[2], None),
        (&[1], None),
        (&long, None),
    ] {
        assert_eq!(RecordSpan::alone(0, body).and_then(|span| span.value()), value, "{body:?}");
    }
}

#[test]
fn offsets_in_a_body_with_gaps_rise_or_are_damage() {
    for (deltas, is_sound) in [([1, 5], true), ([5, 1], false), ([5, 5], false)] {
        let body = deltas.map(|delta: u8| [delta, 1, b'x']).concat();
        let mut walk = RecordCursor::new(flag::SPARSE, 2, &body).unwrap();
        let first = walk.next_span(&body).unwrap().unwrap();
        assert_eq!(walk.clone().next(&body).is_ok(), is_sound, "{deltas:?}");
        assert_eq!(walk.next_span(&body).is_ok(), is_sound, "{deltas:?}");
        // A reader can return to one that it has passed.
        assert_eq!(walk.layout_of(&body, &first).unwrap().offset_delta, u32::from(deltas[0]));
    }
}
