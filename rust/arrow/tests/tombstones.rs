//! What only a native service can append yet: records without a value.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use arrow_array::Array as _;
use falaj::format::record::Record;
use falaj::store::{Store, StoreOptions, TopicOptions};
use falaj::topic::Topic;
use falaj_arrow::columns::{Column, Columns};
use falaj_arrow::fill::Limits;
use falaj_arrow::filter::Filter;
use falaj_arrow::reader::{Lane, Reader};

#[test]
fn a_record_without_a_value_is_null_copied_and_viewed() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(place.path().join("store"), &StoreOptions::default()).unwrap();
    let topic = Topic::open(&store, "t", &TopicOptions::default()).unwrap();
    let gone = Record { key: Some(b"k"), ..Record::default() };
    topic.extend(0, &[Record::value(b"first"), gone, Record::value(b"last")], None).unwrap();
    for views in [false, true] {
        let columns = Columns::new(vec![Column::Value, Column::Key], views).unwrap();
        let lanes = vec![Lane { partition: 0, offsets: 0..3 }];
        let limits = Limits { rows: 100, bytes: 100 };
        let mut reader =
            Reader::new(topic.clone(), lanes, columns, limits, Filter::ALL, None).unwrap();
        let batch = reader.next_batch().unwrap().unwrap();
        let nulls = |column: usize| (0..3).map(move |row| (column, row)).collect::<Vec<_>>();
        let null = |(column, row): (usize, usize)| batch.column(column).is_null(row);
        assert_eq!(nulls(0).into_iter().map(null).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(nulls(1).into_iter().map(null).collect::<Vec<_>>(), [true, false, true]);
        assert!(reader.next_batch().unwrap().is_none());
    }
}
