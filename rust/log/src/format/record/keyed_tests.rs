//! The short way through records: what it takes, what it leaves to the long one.

use super::*;
use crate::format::tests::hex;

#[test]
fn keys_times_and_values_are_found_one_record_after_the_other() {
    // A key and a time, a value alone, a key alone, a time alone; then one that is no longer counted.
    let body = hex(
        "1112131415161718  05 02 6b65 d804 03 78797a  00 02 7677  01 00 00  04 01 01 75  00 00",
    );
    let base = 0x1817_1615_1413_1211;
    let mut walk = RecordCursor::new(0x600, 4, &body).unwrap();
    type Told<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, i64);
    let wanted: [Told<'_>; 4] = [
        (Some(b"ke"), Some(b"xyz"), base + 300),
        (None, Some(b"vw"), -7),
        (Some(b""), Some(b""), -7),
        (None, Some(b"u"), base - 1),
    ];
    for (i, (key, value, time_ns)) in wanted.into_iter().enumerate() {
        let found = walk.next_keyed(&body, -7).unwrap();
        assert_eq!((found.offset_delta as usize, found.time_ns), (i, time_ns));
        assert_eq!((found.key.bytes(&body), found.value.bytes(&body)), (key, value));
        assert_eq!(walk.left() as usize, 3 - i);
    }
    assert_eq!(walk.next_keyed(&body, -7), None, "there are four, whatever follows them");
}

#[test]
fn a_key_of_128_bytes_is_left_to_the_long_way() {
    for (len, digits) in [(0, "00"), (127, "7f"), (128, "8001"), (129, "8101")] {
        // Any of its bytes could be the length of a value.
        let body = hex(&format!("01 {digits} {} 01 76", "00".repeat(len)));
        let mut walk = RecordCursor::new(0x200, 1, &body).unwrap();
        let found = walk.next_keyed(&body, 0);
        let key = found.map(|found| found.key.len() as usize);
        assert_eq!(key, (len < 128).then_some(len), "{len} bytes");
        // Nothing was passed over.
        assert_eq!(walk.left(), u32::from(len >= 128), "{len} bytes");
    }
}

#[test]
fn a_body_of_another_kind_is_left_to_the_long_way() {
    let body = [0; 8];
    for (flags, is_found) in [(0x200, true), (0, false), (0x80, false), (0x280, false)] {
        let mut walk = RecordCursor::new(flags, 1, &body).unwrap();
        assert_eq!(walk.next_keyed(&body, 0).is_some(), is_found, "{flags:#x}");
    }
    for attributes in 0..=u8::MAX {
        let body = [attributes, 0, 0, 0, 0];
        let found = RecordCursor::new(0x200, 1, &body).unwrap().next_keyed(&body, 0);
        assert_eq!(found.is_some(), [0, 1, 4, 5].contains(&attributes), "{attributes:#x}");
    }
}

#[test]
fn a_value_ends_where_the_body_does_and_not_behind_it() {
    for (body, is_found) in
        [(&[0, 2, 7, 7][..], true), (&[0, 2, 7, 7, 7], true), (&[0, 2, 7], false)]
    {
        let found = RecordCursor::new(0x200, 1, body).unwrap().next_keyed(body, 0);
        assert_eq!(found.is_some(), is_found, "{body:?}");
    }
}

#[test]
fn no_place_and_a_place_without_bytes_are_told_apart() {
    let body = b"abcdef";
    for (range, is_some, is_empty, bytes) in [
        (None, false, true, None),
        (Some(4..4), true, true, Some(&b""[..])),
        (Some(4..5), true, false, Some(b"e")),
        (Some(2..6), true, false, Some(b"cdef")),
    ] {
        let place = KeyedPlace::of(range.clone());
        assert_eq!((place.is_some(), place.is_empty()), (is_some, is_empty), "{range:?}");
        assert_eq!(place.len() as usize, bytes.map_or(0, <[u8]>::len), "{range:?}");
        assert_eq!(place.bytes(body), bytes, "{range:?}");
    }
}

#[test]
fn a_place_found_the_short_way_is_that_of_the_long_one() {
    let bytes = [b'b'; 300];
    let mut body = super::super::BodyWriter::default();
    body.begin(true, Some(5));
    let lens = [0, 1, 126, 127, 128, 300];
    let mut put = |key: Option<usize>, value: usize, event_time_ns| {
        let (key, value) = (key.map(|len| &bytes[..len]), Some(&bytes[..value]));
        body.push(&super::super::NewRecord { value, key, event_time_ns, headers: &[] });
    };
    for value in lens {
        for key in [None, Some(0), Some(7), Some(127)] {
            put(key, value, None);
            put(key, value, Some(1_000));
        }
    }
    let records = || RecordCursor::new(body.flags(), body.count(), body.body()).unwrap();
    let (mut short, mut long) = (records(), records());
    for _ in 0..body.count() {
        let found = short.next_keyed_span(body.body());
        assert!(found.is_some());
        assert_eq!(long.next_span(body.body()), Ok(found));
    }
    assert_eq!((short.next_keyed_span(body.body()), long.next_span(body.body())), (None, Ok(None)));
}
