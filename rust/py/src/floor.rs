//! `Floor`: what an append from Python costs at least, for the benchmarks.
//!
//! Takes bytes, does a compare-and-swap, copies, checksums and stores a commit word, in plain memory
//! that was touched before; no log, no readers, no promises.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use falaj::format::checksum::crc32;

/// Bytes of the memory that is written round and round.
const ROOM: usize = 64 << 20;
/// Bytes of a header that is not written but for its commit word.
const HEADER: usize = 32;

/// For benches/ only.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Floor {
    memory: Mutex<(Vec<u8>, usize)>,
    committed: AtomicU64,
}

impl Floor {
    #[inline]
    fn put(&self, body: &[&[u8]], len: usize) -> u64 {
        let mut turn = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (memory, at) = &mut *turn;
        if *at + HEADER + len > ROOM {
            *at = 0;
        }
        let start = *at + HEADER;
        let mut end = start;
        for part in body {
            memory[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        let sum = crc32(&memory[start..end]);
        memory[start - 8..start - 4].copy_from_slice(&sum.to_le_bytes());
        *at = end.next_multiple_of(8);
        self.committed.fetch_add(1, Ordering::Release)
    }
}

#[pymethods]
impl Floor {
    #[new]
    fn new() -> Self {
        // Not zero, so that every page is touched.
        Self { memory: Mutex::new((vec![1; ROOM], 0)), committed: AtomicU64::new(0) }
    }

    /// What one append costs at least.
    fn append(&self, value: &Bound<'_, PyBytes>) -> u64 {
        let value = value.as_bytes();
        self.put(&[value], value.len())
    }

    /// What one extend costs at least.
    fn extend(&self, values: &Bound<'_, PyList>) -> PyResult<u64> {
        let values: Vec<Bound<'_, PyAny>> = values.iter().collect();
        let mut parts = Vec::with_capacity(values.len());
        for value in &values {
            parts.push(value.cast::<PyBytes>()?.as_bytes());
        }
        let len = parts.iter().map(|part| part.len()).sum();
        Ok(self.put(&parts, len))
    }
}
