//! A reader's batches hold all records, whatever their form and order, cut at the limits. Runs of
//! common records take another path than records with headers, without a value, or with long keys.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use falaj::internals::format::record::NewRecord;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::Topic;
use falaj_arrow::columns::{Column, Columns};
use falaj_arrow::fill::Limits;
use falaj_arrow::filter::Filter;
use falaj_arrow::reader::{Lane, Reader};

type Bytes = Option<Vec<u8>>;

/// A record as a batch shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    offset: i64,
    us: i64,
    key: Bytes,
    value: Bytes,
    headers: Vec<(String, Bytes)>,
}

/// Numbers that look random, the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        // Around the twelve bytes that lie in a view, more often than not.
        let len = if self.below(3) == 0 { self.below(most) } else { 8 + self.below(9) };
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    fn row(&mut self, plain: bool) -> Row {
        let common = self.below(8) != 0;
        let key =
            (!plain && self.below(4) != 0).then(|| self.bytes(if common { 128 } else { 300 }));
        let value = (common || plain || self.below(2) == 0).then(|| self.bytes(400));
        let headers = if common || plain { 0 } else { self.below(3) };
        let header = |n| (format!("h{n}"), (n > 0).then(|| vec![n as u8; 3]));
        let us = if plain || self.below(4) == 0 { i64::MIN } else { self.time() };
        Row { offset: 0, us, key, value, headers: (0..headers).map(header).collect() }
    }

    /// Microseconds, also before 1970.
    fn time(&mut self) -> i64 {
        (self.below(2_000_000_000) as i64 - 1_000_000_000) * 1_000
    }
}

/// Append so many blocks of drawn records; what a reader is to find.
fn fill(topic: &Topic, draw: &mut Draw, blocks: usize) -> Vec<Row> {
    let mut all = Vec::new();
    for _ in 0..blocks {
        let plain = draw.below(5) == 0;
        let rows: Vec<Row> = (0..=draw.below(300)).map(|_| draw.row(plain)).collect();
        let headers: Vec<Vec<_>> = rows
            .iter()
            .map(|row| row.headers.iter().map(|(n, v)| (n.as_str(), v.as_deref())).collect())
            .collect();
        let records: Vec<_> = rows
            .iter()
            .zip(&headers)
            .map(|(row, headers)| NewRecord {
                value: row.value.as_deref(),
                key: row.key.as_deref(),
                headers,
                // Nanoseconds that no microsecond tells are cut off downwards.
                event_time_ns: (row.us != i64::MIN).then(|| row.us * 1000 + 999),
            })
            .collect();
        topic.extend_to(0, &records, None).unwrap();
        all.extend(rows);
    }
    all.iter_mut().enumerate().for_each(|(at, row)| row.offset = at as i64);
    all
}

fn bytes_of(column: &ArrayRef, row: usize) -> Bytes {
    column.is_valid(row).then(|| match column.as_binary_opt::<i32>() {
        Some(copied) => copied.value(row).to_vec(),
        None => column.as_binary_view().value(row).to_vec(),
    })
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let headers_of = |row: usize| {
        let lists = batch.column(4).as_list::<i32>();
        if lists.is_null(row) {
            return Vec::new();
        }
        let entries: StructArray = lists.value(row).as_struct().clone();
        let (names, values) = (entries.column(0).as_string::<i32>(), entries.column(1));
        let entry = |at| (names.value(at).to_owned(), bytes_of(values, at));
        (0..entries.len()).map(entry).collect()
    };
    (0..batch.num_rows())
        .map(|row| Row {
            key: bytes_of(batch.column(0), row),
            value: bytes_of(batch.column(1), row),
            offset: batch.column(2).as_primitive::<Int64Type>().value(row),
            us: batch.column(3).as_primitive::<TimestampMicrosecondType>().value(row),
            headers: headers_of(row),
        })
        .collect()
}

/// The batches that limits make of records, by their word.
fn cut(rows: &[Row], limits: Limits, keys: Option<&[Bytes]>) -> Vec<Vec<Row>> {
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for row in rows {
        if batch.len() >= limits.rows || bytes >= limits.bytes {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        let len = |bytes: &Bytes| bytes.as_ref().map_or(0, Vec::len);
        if keys.is_some_and(|keys| !keys.contains(&row.key)) {
            bytes += len(&row.value) + 1;
            continue;
        }
        bytes += len(&row.key) + len(&row.value);
        // One byte for their number, of each name and value its length too.
        let headers = row.headers.iter().map(|(name, value)| name.len() + 2 + len(value));
        bytes += headers.clone().count().min(1) + headers.sum::<usize>();
        batch.push(row.clone());
    }
    if !batch.is_empty() || bytes >= limits.bytes {
        batches.push(batch);
    }
    batches
}

#[test]
fn batches_hold_the_records_and_end_where_the_limits_say() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open_with(place.path().join("store"), &StoreOptions::default()).unwrap();
    let topic = Topic::open(&store, "t", &TopicOptions::default()).unwrap();
    let mut draw = Draw(20_261_123);
    let mut all = fill(&topic, &mut draw, 24);
    let all_columns =
        vec![Column::Key, Column::Value, Column::Offset, Column::Timestamp, Column::Headers];
    let read = |offsets: Range<u64>, limits, filter: &Filter, views| {
        let columns = Columns::new(all_columns.clone(), views).unwrap();
        let lanes = vec![Lane { partition: 0, offsets }];
        let mut reader =
            Reader::new(topic.clone(), lanes, columns, limits, filter.clone(), None).unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            batches.push(rows_of(&batch));
        }
        batches
    };
    let end = all.len() as u64;
    // A record without a time has that of the append, which differs for each block: it is taken as it is.
    let most = Limits { rows: Limits::ROWS_MAX, bytes: Limits::BYTES_MAX };
    for (row, found) in all.iter_mut().zip(read(0..end, most, &Filter::ALL, false).concat()) {
        if row.us == i64::MIN {
            assert!(found.us > 1_000_000_000_000_000);
            row.us = found.us;
        }
    }
    let some_keys: Vec<Bytes> = all.iter().step_by(7).map(|row| row.key.clone()).collect();
    for turn in 0..120 {
        let from = draw.below(end);
        let offsets = from..from + draw.below(end - from + 1);
        let limits = match turn % 3 {
            0 => Limits { rows: 1 + draw.below(200) as usize, bytes: Limits::BYTES_MAX },
            1 => {
                Limits { rows: 1 + draw.below(900) as usize, bytes: 1 + draw.below(9_000) as usize }
            }
            _ => most,
        };
        let keys = (turn % 4 == 3).then_some(some_keys.as_slice());
        let filter = Filter::new(i64::MIN..=i64::MAX, keys.map(<[Bytes]>::to_vec));
        let rows = &all[offsets.start as usize..offsets.end as usize];
        let found = read(offsets.clone(), limits, &filter, turn % 2 == 0);
        assert_eq!(found, cut(rows, limits, keys), "turn {turn}: {offsets:?}, {limits:?}");
    }
}
