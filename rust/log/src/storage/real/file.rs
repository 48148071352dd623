//! One open file: positional I/O, allocation, sync, locks.
//!
//! The module owns the kernel calls on an open file; [`super::map`] owns its maps, and
//! [`super::descriptor`] its number. Its invariant: no call uses the file's own position but the
//! search for data, and none exceeds the process's file-size limit.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{
    Advice, FallocateFlags, SeekFrom, copy_file_range, fadvise, fallocate, fstat, seek,
};
use rustix::io::{Errno, pread, retry_on_intr};

use super::super::{File, LockKind, Map, MapAccess, Stat};
use super::descriptor::{Descriptor, within_limit};
use super::{lock, map, told};

/// A file of the kernel.
#[derive(Debug)]
pub struct RealFile {
    descriptor: Arc<Descriptor>,
}

impl RealFile {
    pub(super) fn new(file: OwnedFd, writable: bool) -> io::Result<Self> {
        // See `File::read_ahead`. It is advice: a file system without it reads as well.
        let _ = fadvise(&file, 0, None, Advice::Random);
        Ok(Self { descriptor: Arc::new(Descriptor::new(file, writable)?) })
    }
}

impl File for RealFile {
    fn stat(&self) -> io::Result<Stat> {
        self.descriptor.with(|file| Ok(told(&retry_on_intr(|| fstat(file))?)))
    }

    fn read_some(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        self.descriptor.with(|file| Ok(retry_on_intr(|| pread(file, &mut *bytes, position))?))
    }

    fn read_ahead(&self) {
        let _ = self.descriptor.with(|file| Ok(fadvise(file, 0, None, Advice::Normal)?));
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        within_limit(position, bytes.len() as u64)?;
        self.descriptor.with(|file| file.write_all_at(bytes, position))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        within_limit(0, len)?;
        self.descriptor
            .with(|file| Ok(retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, len))?))
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let how = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        self.descriptor.with(|file| Ok(retry_on_intr(|| fallocate(file, how, position, len))?))
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        // This moves the shared file position, which nothing else here uses.
        self.descriptor.with(|file| match retry_on_intr(|| seek(file, SeekFrom::Data(position))) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(other) => Err(other.into()),
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.descriptor.with(|file| Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.descriptor.with(|file| Ok(retry_on_intr(|| rustix::fs::fsync(file))?))
    }

    fn copy_from(&self, source: &dyn File, position: u64, len: u64) -> io::Result<u64> {
        let Some(from) = source.descriptor() else { return Ok(0) };
        within_limit(position, len)?;
        self.descriptor.with(|file| Ok(copy_range(from, file, position, len)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.borrow())
    }

    fn memory_to_fill(&self, len: u64) -> io::Result<Map> {
        map::private_to_fill(len)
    }

    fn map(&self, len: u64, access: MapAccess) -> io::Result<Map> {
        map::map(&self.descriptor, len, access)
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        self.descriptor.with(|file| lock::try_lock(file, kind))
    }

    fn unlock(&self) -> io::Result<()> {
        self.descriptor.with(lock::unlock)
    }

    fn close(&self) {
        self.descriptor.close();
    }
}

fn copy_range(from: BorrowedFd<'_>, to: &std::fs::File, position: u64, len: u64) -> u64 {
    let mut done = 0;
    while done < len {
        let (mut source, mut target) = (position + done, position + done);
        let left = usize::try_from(len - done).unwrap_or(usize::MAX);
        let copied = copy_file_range(from, Some(&mut source), to, Some(&mut target), left);
        match copied {
            Err(Errno::INTR) => {}
            Ok(more) if more > 0 => done += more as u64,
            // The kernel or sandbox may not copy between these file systems, the source may be
            // shorter than before, or a disk may fail. The caller copies the rest byte by byte and
            // finds out which.
            Ok(_) | Err(_) => break,
        }
    }
    done
}
