//! Record batches that become records of a job's part: the reverse of [`crate::fill`].
//!
//! Owns which columns a batch may have, and their types; the names are those of Spark's Kafka sink.
//! Invariant: a batch is checked as a whole before its first row is staged. So a batch with an
//! unknown column stages nothing.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, TimeUnit};
use falaj::internals::error::{Error, Result};
use falaj::internals::sink::StagedPart;
use falaj::internals::topic::NewRecord;

/// The names of the columns that a batch may have.
const COLUMNS: [&str; 5] = ["value", "key", "headers", "timestamp", "partition"];

/// Stage all rows of a batch; return their number.
///
/// # Errors
/// `InvalidArgument` for a column that is missing, unknown, or of another type; nothing was staged
/// then. `InvalidArgument` also for a partition that the topic does not have, and the errors of
/// [`StagedPart::append`].
pub fn stage(part: &mut StagedPart, batch: &RecordBatch) -> Result<u64> {
    let rows = Rows::new(batch)?;
    let mut headers = Vec::new();
    for row in 0..batch.num_rows() {
        headers.clear();
        rows.headers.as_ref().map_or(Ok(()), |all| all.collect(row, &mut headers))?;
        let record = NewRecord {
            value: rows.value.get(row),
            key: rows.key.as_ref().and_then(|key| key.get(row)),
            headers: &headers,
            event_time_ns: rows.time.as_ref().and_then(|time| time.get(row)).transpose()?,
        };
        let partition = rows.partition.as_ref().and_then(|of| of.get(row)).transpose()?;
        part.append_to(&record, partition)?;
    }
    Ok(batch.num_rows() as u64)
}

/// The columns of a batch.
struct Rows<'a> {
    value: Bytes<'a>,
    key: Option<Bytes<'a>>,
    headers: Option<Headers<'a>>,
    time: Option<Times<'a>>,
    partition: Option<Numbers<'a>>,
}

impl<'a> Rows<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self> {
        let schema = batch.schema_ref();
        let unknown =
            schema.fields().iter().find(|field| !COLUMNS.contains(&field.name().as_str()));
        if let Some(field) = unknown {
            return refuse(format!(
                "a record has no column {:?}: it has {}",
                field.name(),
                COLUMNS.join(", ")
            ));
        }
        if let Some(field) = schema.fields().iter().find(|field| twice(batch, field.name())) {
            return refuse(format!("the column {:?} is there twice", field.name()));
        }
        let column = |name: &str| batch.column_by_name(name);
        let Some(value) = column("value") else {
            return refuse("a record has a value: name one column \"value\"".into());
        };
        Ok(Self {
            value: Bytes::new("value", value)?,
            key: column("key").map(|key| Bytes::new("key", key)).transpose()?,
            headers: column("headers").map(Headers::new).transpose()?.flatten(),
            time: column("timestamp").map(Times::new).transpose()?.flatten(),
            partition: column("partition").map(Numbers::new).transpose()?.flatten(),
        })
    }
}

fn twice(batch: &RecordBatch, name: &str) -> bool {
    batch.schema_ref().fields().iter().filter(|field| field.name() == name).count() > 1
}

fn refuse<T>(what: String) -> Result<T> {
    Err(Error::InvalidArgument { what })
}

fn mismatch<T>(name: &str, wanted: &str, found: &DataType) -> Result<T> {
    refuse(format!("the column {name:?} holds {wanted}, not {found}"))
}

/// A column of bytes or text.
struct Bytes<'a>(Box<dyn Fn(usize) -> &'a [u8] + 'a>, &'a dyn Array);

impl<'a> Bytes<'a> {
    fn new(name: &str, array: &'a ArrayRef) -> Result<Self> {
        let get: Box<dyn Fn(usize) -> &'a [u8] + 'a> = match array.data_type() {
            DataType::Binary => of(array.as_binary::<i32>(), |array, row| array.value(row)),
            DataType::LargeBinary => of(array.as_binary::<i64>(), |array, row| array.value(row)),
            DataType::BinaryView => of(array.as_binary_view(), |array, row| array.value(row)),
            DataType::FixedSizeBinary(_) => {
                of(array.as_fixed_size_binary(), |array, row| array.value(row))
            }
            DataType::Utf8 => of(array.as_string::<i32>(), |a, row| a.value(row).as_bytes()),
            DataType::LargeUtf8 => of(array.as_string::<i64>(), |a, row| a.value(row).as_bytes()),
            DataType::Utf8View => of(array.as_string_view(), |a, row| a.value(row).as_bytes()),
            DataType::Null => Box::new(|_| &[]),
            other => return mismatch(name, "bytes or text", other),
        };
        Ok(Self(get, array.as_ref()))
    }

    #[inline]
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        let is_null = self.1.data_type() == &DataType::Null || self.1.is_null(row);
        (!is_null).then(|| (self.0)(row))
    }
}

fn of<'a, A>(
    array: &'a A,
    get: impl Fn(&'a A, usize) -> &'a [u8] + 'a,
) -> Box<dyn Fn(usize) -> &'a [u8] + 'a> {
    Box::new(move |row| get(array, row))
}

/// A column of lists of names and values.
struct Headers<'a> {
    lists: &'a ArrayRef,
    names: Bytes<'a>,
    values: Bytes<'a>,
}

impl<'a> Headers<'a> {
    fn new(lists: &'a ArrayRef) -> Result<Option<Self>> {
        let wanted = "lists of structs of a key (text) and a value (bytes)";
        let entries = match lists.data_type() {
            DataType::Null => return Ok(None),
            DataType::List(_) => lists.as_list::<i32>().values(),
            DataType::LargeList(_) => lists.as_list::<i64>().values(),
            other => return mismatch("headers", wanted, other),
        };
        let Some(entries) = entries.as_any().downcast_ref::<StructArray>() else {
            return mismatch("headers", wanted, lists.data_type());
        };
        let (names, values) = (entries.column_by_name("key"), entries.column_by_name("value"));
        let (Some(names), Some(values)) = (names, values) else {
            return mismatch("headers", wanted, lists.data_type());
        };
        let (names, values) = (Bytes::new("headers", names)?, Bytes::new("headers", values)?);
        Ok(Some(Self { lists, names, values }))
    }

    fn collect(&self, row: usize, into: &mut Vec<(&'a str, Option<&'a [u8]>)>) -> Result<()> {
        if self.lists.is_null(row) {
            return Ok(());
        }
        let entries = match self.lists.data_type() {
            DataType::LargeList(_) => {
                let ends = self.lists.as_list::<i64>().value_offsets();
                ends[row] as usize..ends[row + 1] as usize
            }
            _ => {
                let ends = self.lists.as_list::<i32>().value_offsets();
                ends[row] as usize..ends[row + 1] as usize
            }
        };
        for entry in entries {
            let name = self.names.get(entry).map(std::str::from_utf8);
            let Some(Ok(name)) = name else {
                return refuse(format!("row {row} has a header whose key is no text"));
            };
            into.push((name, self.values.get(entry)));
        }
        Ok(())
    }
}

/// A column of times.
struct Times<'a>(&'a ArrayRef, TimeUnit);

impl<'a> Times<'a> {
    fn new(array: &'a ArrayRef) -> Result<Option<Self>> {
        match array.data_type() {
            DataType::Null => Ok(None),
            DataType::Timestamp(unit, Some(_)) => Ok(Some(Self(array, *unit))),
            other => mismatch("timestamp", "timestamps with a time zone", other),
        }
    }

    /// Nanoseconds since 1970.
    #[inline]
    fn get(&self, row: usize) -> Option<Result<i64>> {
        let (found, scale) = match self.1 {
            TimeUnit::Second => (number::<TimestampSecondType>(self.0, row), 1_000_000_000),
            TimeUnit::Millisecond => (number::<TimestampMillisecondType>(self.0, row), 1_000_000),
            TimeUnit::Microsecond => (number::<TimestampMicrosecondType>(self.0, row), 1_000),
            TimeUnit::Nanosecond => (number::<TimestampNanosecondType>(self.0, row), 1),
        };
        let fits = |time: i64| match time.checked_mul(scale) {
            Some(time) => Ok(time),
            None => refuse(format!("row {row} has a time that nanoseconds since 1970 cannot tell")),
        };
        found.map(fits)
    }
}

/// A column of partition numbers.
struct Numbers<'a>(&'a ArrayRef);

impl<'a> Numbers<'a> {
    fn new(array: &'a ArrayRef) -> Result<Option<Self>> {
        match array.data_type() {
            DataType::Null => Ok(None),
            kind if kind.is_integer() => Ok(Some(Self(array))),
            other => mismatch("partition", "integers", other),
        }
    }

    #[inline]
    fn get(&self, row: usize) -> Option<Result<u32>> {
        let found: Option<i128> = match self.0.data_type() {
            DataType::Int8 => number::<Int8Type>(self.0, row).map(Into::into),
            DataType::Int16 => number::<Int16Type>(self.0, row).map(Into::into),
            DataType::Int32 => number::<Int32Type>(self.0, row).map(Into::into),
            DataType::UInt8 => number::<UInt8Type>(self.0, row).map(Into::into),
            DataType::UInt16 => number::<UInt16Type>(self.0, row).map(Into::into),
            DataType::UInt32 => number::<UInt32Type>(self.0, row).map(Into::into),
            DataType::UInt64 => number::<UInt64Type>(self.0, row).map(Into::into),
            _ => number::<Int64Type>(self.0, row).map(Into::into),
        };
        let fits = |number: i128| match u32::try_from(number) {
            Ok(number) => Ok(number),
            Err(_) => refuse(format!("row {row} names partition {number}, which no topic has")),
        };
        found.map(fits)
    }
}

#[inline]
fn number<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> Option<T::Native> {
    let array = array.as_primitive::<T>();
    array.is_valid(row).then(|| array.value(row))
}
