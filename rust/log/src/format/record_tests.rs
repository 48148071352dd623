//! Records: whatever is put into a body comes back, and a damaged body ends in an error.

use super::*;
use proptest::prelude::*;

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

fn with_borrowed<R>(records: &[Owned], use_them: impl FnOnce(&[Record<'_>]) -> R) -> R {
    type Header<'a> = (&'a str, Option<&'a [u8]>);
    let headers: Vec<Vec<Header<'_>>> = records
        .iter()
        .map(|r| r.2.iter().map(|(n, v)| (n.as_str(), v.as_deref())).collect())
        .collect();
    let borrowed: Vec<_> = records
        .iter()
        .zip(&headers)
        .map(|(r, headers)| Record {
            value: r.0.as_deref(),
            key: r.1.as_deref(),
            headers,
            event_time_ns: r.3,
        })
        .collect();
    use_them(&borrowed)
}

fn encode(records: &[Record<'_>]) -> BodyWriter {
    let mut writer = BodyWriter::default();
    let base = records.iter().find_map(|r| r.event_time_ns);
    writer.begin(records.iter().any(Record::is_rich), base);
    records.iter().for_each(|r| writer.push(r));
    writer
}

proptest! {
    #[test]
    fn records_come_back(records in proptest::collection::vec(any_record(), 1..8)) {
        with_borrowed(&records, |borrowed| {
            let writer = encode(borrowed);
            let body = writer.body();
            prop_assert!(body.len() <= 8 + borrowed.iter().map(Record::max_len).sum::<usize>());
            let mut walk = Walk::new(writer.flags(), writer.count(), body).unwrap();
            for (i, wanted) in borrowed.iter().enumerate() {
                let parts = walk.next(body).unwrap().unwrap();
                prop_assert_eq!(parts.offset_delta as usize, i);
                prop_assert_eq!(parts.value.map(|r| &body[r]), wanted.value);
                prop_assert_eq!(parts.key.map(|r| &body[r]), wanted.key);
                prop_assert_eq!(parts.event_time_ns, wanted.event_time_ns);
                let found: Vec<_> = headers(&body[parts.headers]).collect();
                prop_assert_eq!(found.as_slice(), wanted.headers);
            }
            prop_assert_eq!(walk.next(body).unwrap(), None);
            Ok(())
        })?;
    }

    #[test]
    fn any_bytes_are_walked_without_a_panic(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        flags in any::<u16>(),
        count in any::<u32>(),
    ) {
        if let Ok(mut walk) = Walk::new(flags, count, &body) {
            let mut walked = 0;
            while let Ok(Some(parts)) = walk.next(&body) {
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
        let mut walked = Walk::new(writer.flags(), count, body).unwrap();
        for n in 0..50 {
            let mut skipped = Walk::new(writer.flags(), count, body).unwrap();
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
    fn a_spot_tells_as_much_as_the_parts(
        body in proptest::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..200),
        flags in any::<u16>(),
        count in 0u32..20,
    ) {
        let Ok(mut parts) = Walk::new(flags, count, &body) else { return Ok(()) };
        let mut spots = parts.clone();
        loop {
            let (wanted, found) = (parts.next(&body), spots.next_spot(&body));
            match (wanted, found) {
                (Ok(Some(wanted)), Ok(Some(found))) => {
                    prop_assert_eq!(found.value(), wanted.value.clone());
                    prop_assert_eq!(found.offset_delta, wanted.offset_delta);
                    prop_assert_eq!(spots.parts_of(&body, &found), Ok(wanted));
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
    let record = Record {
        value: Some(b"value"),
        key: Some(b"key"),
        headers: &headers,
        event_time_ns: Some(5),
    };
    let writer = encode(&[record]);
    for cut in 8..writer.body().len() {
        let body = &writer.body()[..cut];
        let mut walk = Walk::new(writer.flags(), 1, body).unwrap();
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
