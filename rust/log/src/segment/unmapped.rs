//! Segments that are read without a map: into memory of this process.
//!
//! Owns how such a segment is opened, and when a fresh start saves memory. [`super::window`] fills the
//! memory, and keeps the invariant. [`super::Segment`] works on it as on a map.

use std::path::PathBuf;
use std::sync::Arc;

use super::Segment;
use super::window::Window;
use crate::error::{IoResult, Result};
use crate::format::PAGE;
use crate::format::segment::SegmentHeader;
use crate::storage::{File, Map};

impl Segment {
    /// Read a file whose header is known without mapping it.
    ///
    /// # Errors
    /// `SystemCallFailed` when there is no memory.
    pub fn without_map(
        path: PathBuf,
        file: Arc<dyn File>,
        header: SegmentHeader,
        reach: u64,
    ) -> Result<Self> {
        let len = file.stat().doing("stat", &path)?.len;
        let reach = reach.max(len).next_multiple_of(PAGE);
        let memory = file.private_memory(reach).doing("get memory for", &path)?;
        Ok(Self::in_memory(path, file, header, memory, len))
    }

    /// Do as [`Segment::without_map`], to walk all of it.
    ///
    /// # Errors
    /// As that one.
    pub fn to_walk(path: PathBuf, file: Arc<dyn File>, header: SegmentHeader) -> Result<Self> {
        let len = file.stat().doing("stat", &path)?.len;
        let memory = file.memory_to_fill(len.next_multiple_of(PAGE));
        let memory = memory.doing("get memory for", &path)?;
        Ok(Self::in_memory(path, file, header, memory, len))
    }

    fn in_memory(
        path: PathBuf,
        file: Arc<dyn File>,
        header: SegmentHeader,
        memory: Map,
        len: u64,
    ) -> Self {
        let window = Window::new(Arc::clone(&file), memory.clone(), header.salt);
        let segment = Self::from_map(path, file, header, memory, len);
        Self { window: Some(window), ..segment }
    }

    /// Return true when so much was read without a map that a fresh start saves memory.
    #[inline]
    pub fn exceeds_cache(&self) -> bool {
        self.window.as_ref().is_some_and(Window::is_large)
    }

    /// Open the same file again, with none of it read yet.
    ///
    /// # Errors
    /// As [`Segment::without_map`].
    pub fn reopen_empty(&self) -> Result<Self> {
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        Self::without_map(path, file, self.header.clone(), self.map.len())
    }
}
