//! Parts of batches that Python cannot see. These are records without a value, as a native service
//! appends them, the space that columns take, and limits as Rust gives them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use arrow_array::Array as _;
use falaj::internals::error::Error;
use falaj::internals::format::record::NewRecord;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::Topic;
use falaj_arrow::columns::{Column, Columns};
use falaj_arrow::fill::Limits;
use falaj_arrow::filter::Filter;
use falaj_arrow::reader::{Lane, Reader};

#[test]
fn a_record_without_a_value_is_null_copied_and_viewed() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open_with(place.path().join("store"), &StoreOptions::default()).unwrap();
    let topic = Topic::open(&store, "t", &TopicOptions::default()).unwrap();
    let gone = NewRecord { key: Some(b"k"), ..NewRecord::default() };
    topic.extend_to(0, &[NewRecord::new(b"first"), gone, NewRecord::new(b"last")], None).unwrap();
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

#[test]
fn a_batch_takes_room_for_what_there_is_and_limits_have_a_bound() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open_with(place.path().join("store"), &StoreOptions::default()).unwrap();
    let topic = Topic::open(&store, "t", &TopicOptions::default()).unwrap();
    topic.extend_to(0, &[NewRecord::new(b"some bytes"); 10], None).unwrap();
    let open = |views, rows, bytes| {
        let all = vec![Column::Key, Column::Value, Column::Offset, Column::Timestamp];
        let columns = Columns::new(all, views).unwrap();
        let lanes = vec![Lane { partition: 0, offsets: 0..10 }];
        let limits = Limits { rows, bytes };
        Reader::new(topic.clone(), lanes, columns, limits, Filter::ALL, None)
    };
    for views in [false, true] {
        let mut reader = open(views, Limits::ROWS_MAX, Limits::BYTES_MAX).unwrap();
        let batch = reader.next_batch().unwrap().unwrap();
        assert_eq!(batch.num_rows(), 10);
        let own = if views { &[0, 2, 3][..] } else { &[0, 1, 2, 3] };
        let bytes: usize = own.iter().map(|&at| batch.column(at).get_buffer_memory_size()).sum();
        assert!(bytes < 4096, "{bytes} bytes for ten records");
    }
    for (rows, bytes) in [(0, 1), (1, 0), (Limits::ROWS_MAX + 1, 1), (1, Limits::BYTES_MAX + 1)] {
        assert!(matches!(open(false, rows, bytes), Err(Error::InvalidArgument { .. })));
    }
}
