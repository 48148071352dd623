//! The checksum of bytes, for what the package sends and fetches.
//!
//! It is that of `zlib.crc32`, as the engine computes it: several times as fast.

use falaj::internals::format::checksum::crc32_from;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Compute the CRC-32 of a part of some bytes, as of `zlib.crc32`. If `value` is the checksum of what
/// came before, it is that of both.
///
/// Raises:
///     IndexError: The part lies outside of the bytes.
#[pyfunction]
#[pyo3(signature = (data, start = 0, stop = None, value = 0))]
pub(crate) fn _crc32(
    data: &Bound<'_, PyBytes>,
    start: usize,
    stop: Option<usize>,
    value: u32,
) -> PyResult<u32> {
    let bytes = data.as_bytes();
    let part = bytes.get(start..stop.unwrap_or(bytes.len()));
    let part = part.ok_or_else(|| {
        PyIndexError::new_err(format!("the part lies outside of {} bytes", bytes.len()))
    })?;
    Ok(data.py().detach(|| crc32_from(value, part)))
}
