//! The columns of a topic: those of Spark's Kafka source, by its names and in its types.
//!
//! Owns names, order and Arrow types. A [`Columns`] is a choice of columns: each at most once, in
//! any order. A column that is not chosen is never decoded.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use falaj::internals::error::Error;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The key; null where a record has none.
    Key,
    /// The value; null for a tombstone.
    Value,
    /// Name of the topic.
    Topic,
    /// Number of the partition.
    Partition,
    /// Offset in it.
    Offset,
    /// Event time, or when it was appended: microseconds since 1970, UTC.
    Timestamp,
    /// 0, Kafka's number for "the producer's clock".
    TimestampType,
    /// Names and values, in order; null where a record has none.
    Headers,
}

impl Column {
    /// All, in the order of Spark's Kafka source.
    pub const ALL: [Self; 8] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::TimestampType => "timestampType",
            Self::Headers => "headers",
        }
    }

    fn field(self, views: bool) -> Field {
        let bytes = if views { DataType::BinaryView } else { DataType::Binary };
        let (kind, nullable) = match self {
            Self::Key | Self::Value => (bytes, true),
            Self::Topic => (DataType::Utf8, false),
            Self::Partition | Self::TimestampType => (DataType::Int32, false),
            Self::Offset => (DataType::Int64, false),
            Self::Timestamp => {
                (DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false)
            }
            Self::Headers => (DataType::List(header_field()), true),
        };
        Field::new(self.name(), kind, nullable)
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Column {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|column| column.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::InvalidArgument {
                what: format!("a topic has no column {name:?}: it has {known}"),
            }
        })
    }
}

/// Fields of one header.
pub(crate) fn header_fields() -> Fields {
    let name = Field::new("key", DataType::Utf8, true);
    Fields::from(vec![name, Field::new("value", DataType::Binary, true)])
}

/// An element of the column `headers`.
pub(crate) fn header_field() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(header_fields()), true))
}

/// Columns that are wanted, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    wanted: Vec<Column>,
    views: bool,
}

impl Columns {
    /// These columns; keys and values as views of the mapped segments, or copied.
    ///
    /// # Errors
    /// `InvalidArgument` when one of them is there twice.
    pub fn new(wanted: Vec<Column>, views: bool) -> Result<Self, Error> {
        let twice = wanted.iter().enumerate().find(|(i, column)| wanted[..*i].contains(column));
        if let Some((_, column)) = twice {
            let what = format!("the column {column} is named twice");
            return Err(Error::InvalidArgument { what });
        }
        Ok(Self { wanted, views })
    }

    /// Which they are.
    pub fn wanted(&self) -> &[Column] {
        &self.wanted
    }

    /// Whether this one is among them.
    pub fn has(&self, column: Column) -> bool {
        self.wanted.contains(&column)
    }

    /// True where keys and values are views of the mapped segments.
    pub fn views(&self) -> bool {
        self.views
    }

    /// Their schema.
    pub fn schema(&self) -> SchemaRef {
        let fields: Vec<_> = self.wanted.iter().map(|column| column.field(self.views)).collect();
        Arc::new(Schema::new(fields))
    }

    /// The same by the Arrow C data interface.
    ///
    /// # Errors
    /// None for these types.
    pub fn c_schema(&self) -> Result<FFI_ArrowSchema, Error> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema());
        schema.map_err(|error| Error::InvalidArgument { what: error.to_string() })
    }
}
