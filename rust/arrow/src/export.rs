//! Batches of any maker, as an Arrow C stream.
//!
//! Owns how a maker becomes a stream: batches come one by one, and a first error ends them.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ArrowError;
pub use arrow_schema::SchemaRef;

/// Batches as they are asked for.
struct Made<F> {
    schema: SchemaRef,
    /// `None` after the last batch, or an error.
    next: Option<F>,
}

/// Make a stream of what a function returns: batches of this schema, then `None`. An error is a
/// sentence for the consumer.
pub fn stream<F>(schema: SchemaRef, next: F) -> FFI_ArrowArrayStream
where
    F: FnMut() -> Result<Option<RecordBatch>, String> + Send + 'static,
{
    FFI_ArrowArrayStream::new(Box::new(Made { schema, next: Some(next) }))
}

impl<F: FnMut() -> Result<Option<RecordBatch>, String>> Iterator for Made<F> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let made = self.next.as_mut()?();
        if !matches!(made, Ok(Some(_))) {
            self.next = None;
        }
        made.map_err(|said| ArrowError::ExternalError(said.into())).transpose()
    }
}

impl<F: FnMut() -> Result<Option<RecordBatch>, String>> RecordBatchReader for Made<F> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
