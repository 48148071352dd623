//! Record batches of any producer, by the Arrow C data and stream interfaces.
//!
//! Owns the one place where foreign memory becomes a batch. Invariants: this module takes over the
//! struct that it gets and leaves a released one. So the producer's release is called once, here.
//! The layout of the memory is checked before anything reads it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use falaj::internals::error::{Error, Result};

/// Make a batch of an array of structs.
///
/// # Errors
/// `InvalidArgument` for an array of anything else, an array that was taken before, and one with
/// null rows.
///
/// # Safety
/// `schema` and `array` point to an `ArrowSchema` and an `ArrowArray` as the C data interface defines them,
/// which no other code uses meanwhile.
pub unsafe fn batch(schema: NonNull<c_void>, array: NonNull<c_void>) -> Result<RecordBatch> {
    // SAFETY: the caller's obligation. It leaves a released struct, so its maker's
    // destructor finds nothing to do.
    let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr().cast()) };
    // SAFETY: as above.
    let schema = unsafe { FFI_ArrowSchema::from_raw(schema.as_ptr().cast()) };
    if array.is_released() {
        return taken();
    }
    // SAFETY: the caller vouches that both are of one export. They are moved in, and the lengths
    // are checked there against the type.
    let data = unsafe { from_ffi(array, &schema) }.map_err(told)?;
    if !matches!(data.data_type(), DataType::Struct(_)) {
        let what = format!("a record batch is an array of structs, not of {}", data.data_type());
        return Err(Error::InvalidArgument { what });
    }
    let data = with_offsets(data);
    data.validate().map_err(told)?;
    let rows = StructArray::from(data);
    if rows.null_count() > 0 {
        let what = "a record batch has rows that are null as a whole".to_owned();
        return Err(Error::InvalidArgument { what });
    }
    Ok(RecordBatch::from(rows))
}

/// Read a schema.
///
/// # Errors
/// `InvalidArgument` for a schema that is not understood.
///
/// # Safety
/// `schema` points to an `ArrowSchema` as the C data interface defines it, which no other code uses
/// meanwhile.
pub unsafe fn schema(schema: NonNull<c_void>) -> Result<SchemaRef> {
    // SAFETY: the caller's obligation. It leaves a released struct.
    let schema = unsafe { FFI_ArrowSchema::from_raw(schema.as_ptr().cast()) };
    Schema::try_from(&schema).map(Arc::new).map_err(told)
}

/// Iterate over the batches of a stream.
///
/// # Errors
/// `InvalidArgument` for a stream that was consumed before, or whose schema is not understood.
///
/// # Safety
/// `stream` points to an `ArrowArrayStream` as the C stream interface defines it, which no other code uses
/// meanwhile.
pub unsafe fn stream(
    stream: NonNull<c_void>,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send> {
    // SAFETY: the caller's obligation. It leaves a released struct.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr().cast()) };
    let reader = ArrowArrayStreamReader::try_new(stream).map_err(told)?;
    Ok(reader.map(|batch| batch.map_err(told)))
}

/// Replace arrays without rows, at any depth, by valid ones. Offsets begin with a zero, but some
/// producers (Arrow for Java before 18) leave it out for such arrays; any bytes may be there.
fn with_offsets(data: ArrayData) -> ArrayData {
    if data.is_empty() {
        return ArrayData::new_empty(data.data_type());
    }
    if data.child_data().is_empty() {
        return data;
    }
    let children = data.child_data().iter().cloned().map(with_offsets).collect();
    let mended = data.into_builder().child_data(children);
    // SAFETY: only children without rows changed. `validate` refuses an array that looks for rows
    // in such a child, as it did before.
    unsafe { mended.build_unchecked() }
}

fn taken<T>() -> Result<T> {
    Err(Error::InvalidArgument { what: "this record batch was taken before".into() })
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn told(error: ArrowError) -> Error {
    Error::InvalidArgument { what: format!("these are no record batches: {error}") }
}
