//! `Floor`: the least cost of an append from Python, for the benchmarks.
//!
//! It takes bytes, does a compare-and-swap, copies, checksums and stores a commit word. The mapped
//! file's pages were touched before, and it wraps around in place. It has no log, no readers, no
//! promises.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use falaj::internals::format::checksum::crc32;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{Map, MapAccess, OpenMode, Storage};
use falaj::internals::sync::SharedWord;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// Bytes of the file that are written in a circle.
const ROOM: u64 = 64 << 20;
/// Where the first block begins; the lock word lies before it.
const FIRST: u64 = falaj::internals::format::FIRST_BLOCK;
/// Bytes of a header; only its commit word and checksum are written.
const HEADER: u64 = 32;

/// For benches/ only.
#[pyclass(frozen, module = "falaj._core")]
#[derive(Debug)]
pub struct Floor {
    map: Map,
    at: AtomicU64,
    /// The buffer in which a batch is gathered.
    body: Mutex<Vec<u8>>,
}

impl Floor {
    #[inline]
    fn put(&self, body: &[u8]) -> std::io::Result<u64> {
        let lock = self.map.word(0);
        if lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let len = HEADER + body.len() as u64;
        let mut at = self.at.load(Ordering::Relaxed);
        if at + len > ROOM {
            at = FIRST;
        }
        self.map.write(at + HEADER, body)?;
        self.map.write(at + 8, &crc32(body).to_le_bytes())?;
        self.map.store(at, len)?;
        self.at.store((at + len).next_multiple_of(8), Ordering::Relaxed);
        lock.store(0, Ordering::Release);
        Ok(at)
    }
}

#[pymethods]
impl Floor {
    /// Make a file to write to.
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "pyo3 makes a path of what it is given")]
    fn new(path: PathBuf) -> PyResult<Self> {
        let file = RealStorage::new().open(&path, OpenMode::CreateNew(0o600))?;
        file.allocate(ROOM)?;
        let map = file.map(ROOM, MapAccess::Write)?;
        map.populate(0, ROOM);
        Ok(Self { map, at: AtomicU64::new(FIRST), body: Mutex::default() })
    }

    /// Do the least work of one append.
    fn append(&self, value: &Bound<'_, PyBytes>) -> PyResult<u64> {
        Ok(self.put(value.as_bytes())?)
    }

    /// Do the least work of one extend.
    fn extend(&self, values: &Bound<'_, PyList>) -> PyResult<u64> {
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        body.clear();
        for value in values {
            let value = value.cast_exact::<PyBytes>()?.as_bytes();
            body.extend_from_slice(&(value.len() as u64).to_le_bytes()[..1]);
            body.extend_from_slice(value);
        }
        Ok(self.put(&body)?)
    }
}
