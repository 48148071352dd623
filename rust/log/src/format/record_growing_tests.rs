//! Bodies that take records of any kind, one by one.

use super::*;

proptest! {
    #[test]
    fn a_body_that_takes_records_as_they_come_is_that_of_one_that_knew_them(
        records in proptest::collection::vec(any_record(), 1..8),
        plain in proptest::collection::vec(0u8..3, 8),
    ) {
        // Values alone, values with a key, and any.
        let likely = |(i, (value, key, headers, time)): (usize, Owned)| match plain[i] {
            0 => (Some(value.unwrap_or_default()), None, Vec::new(), None),
            1 => (value, key, headers, None),
            _ => (value, key, headers, time),
        };
        let records: Vec<_> = records.into_iter().enumerate().map(likely).collect();
        with_borrowed(&records, |borrowed| {
            let mut writer = BodyWriter::default();
            borrowed.iter().for_each(|record| writer.push_any(record));
            let knew = encode(borrowed);
            prop_assert_eq!(writer.body(), knew.body());
            prop_assert_eq!(
                (writer.flags(), writer.count(), writer.times()),
                (knew.flags(), knew.count(), knew.times())
            );
            Ok(())
        })?;
    }
}

#[test]
fn a_writer_takes_what_its_body_has_room_for() {
    let cases = [
        (false, None, 0, [true, false, false, false]),
        (true, None, 0x200, [true, false, true, false]),
        (false, Some(5), 0x400, [true, true, false, false]),
        (true, Some(5), 0x600, [true; 4]),
    ];
    for (rich, base, flags, wanted) in cases {
        let mut writer = BodyWriter::default();
        writer.begin(rich, base);
        assert_eq!((writer.is_rich(), writer.flags()), (rich, flags));
        let asked = [(false, false), (false, true), (true, false), (true, true)];
        let taken = asked.map(|(is_rich, has_time)| writer.takes(is_rich, has_time));
        assert_eq!(taken, wanted, "rich: {rich}, base: {base:?}");
    }
}
