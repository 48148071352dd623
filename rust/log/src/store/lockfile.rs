//! One lock file: opened so that a forked child closes it, with a line that people can read.
//!
//! Owns how a lock file is opened, locked, compared with its path, and its content. A lock excludes
//! only processes that lock the *same* file: [`LockFile::in_place`] compares device and inode of
//! descriptor and path, after locking. Lock files are never deleted, never mapped, never shortened.
//! The line is 128 bytes, its end a CRC-32 of the rest, written at once:
//!
//! ```text
//! generation 5 process 4711 since_us 1763726400000000                     … 1a2b3c4d\n
//! ```
//!
//! [`super::membership`] and [`super::claim`] decide which process may hold which lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::registry;
use crate::error::{Error, IoResult, Result};
use crate::format::checksum::crc32;
use crate::segment::named::expect_in_place;
use crate::storage::{File, LockKind, OpenMode, Storage};

/// Bytes of the line.
const LEN: usize = 128;
/// Bytes of it that the checksum covers.
const COVERED: usize = LEN - 10;

/// The content of a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// None: it was just created.
    Nothing,
    /// Bytes that falaj did not write, or not completely.
    Damaged,
    /// A line.
    Line(String),
}

impl Content {
    /// Return the word after `name` in a line.
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        let Content::Line(line) = self else { return None };
        let mut words = line.split_whitespace();
        words.find(|word| *word == name)?;
        words.next()
    }

    /// Return the number after `name` in a line.
    pub(super) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.word(name)?.parse().ok()
    }
}

/// An open lock file. Dropping it closes it, which ends its lock.
#[derive(Debug)]
pub(super) struct LockFile {
    file: Arc<dyn File>,
    path: PathBuf,
    number: u64,
}

impl LockFile {
    /// Open an existing one; `None` when it does not exist.
    pub(super) fn find(storage: &dyn Storage, path: &Path) -> Result<Option<Self>> {
        Self::open(storage, path, OpenMode::ReadWrite).if_there("open", path)
    }

    /// Open one, or create it.
    pub(super) fn find_or_create(storage: &dyn Storage, path: &Path, mode: u32) -> Result<Self> {
        loop {
            if let Some(file) = Self::find(storage, path)? {
                return Ok(file);
            }
            match Self::open(storage, path, OpenMode::CreateNew(mode)) {
                Ok(file) => return Ok(file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create", path, error)),
            }
        }
    }

    fn open(storage: &dyn Storage, path: &Path, how: OpenMode) -> io::Result<Self> {
        let (number, file) = registry::open(|| storage.open(path, how))?;
        Ok(Self { file, path: path.to_path_buf(), number })
    }

    /// Take a lock if that is possible at once.
    pub(super) fn try_lock(&self, kind: LockKind) -> Result<bool> {
        self.file.try_lock(kind).doing("lock", &self.path)
    }

    /// Return true while the path still leads to this file.
    pub(super) fn in_place(&self, storage: &dyn Storage) -> Result<bool> {
        match self.expect_in_place(storage) {
            Ok(()) => Ok(true),
            Err(Error::LockFileReplaced { .. } | Error::FilesRemoved { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Check that the path still leads to this file.
    pub(super) fn expect_in_place(&self, storage: &dyn Storage) -> Result<()> {
        let here = self.file.stat().doing("look at", &self.path)?;
        expect_in_place(storage, &here, &self.path)
    }

    /// Make the error for a file that cannot be the one that the others have locked.
    pub(super) fn replaced(&self) -> Error {
        Error::LockFileReplaced { path: self.path.clone() }
    }

    /// Read its content.
    pub(super) fn read(&self) -> Result<Content> {
        let mut bytes = [0; LEN + 1];
        let read = self.file.read_at(&mut bytes, 0);
        let len = read.doing("read", &self.path)?;
        Ok(unseal(&bytes[..len]))
    }

    /// Replace its content. The caller holds it exclusively, or holds the claim.
    pub(super) fn write(&self, line: &str) -> Result<()> {
        self.file.write_at(&seal(line), 0).doing("write", &self.path)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        registry::close(self.number);
    }
}

fn seal(line: &str) -> [u8; LEN] {
    debug_assert!(line.len() <= COVERED);
    let mut out = [b' '; LEN];
    let len = line.len().min(COVERED);
    out[..len].copy_from_slice(&line.as_bytes()[..len]);
    let sum = format!(" {:08x}\n", crc32(&out[..COVERED]));
    out[COVERED..].copy_from_slice(sum.as_bytes());
    out
}

fn unseal(bytes: &[u8]) -> Content {
    if bytes.is_empty() {
        return Content::Nothing;
    }
    match bytes.get(..COVERED).map(std::str::from_utf8) {
        Some(Ok(line)) if seal(line) == bytes => Content::Line(line.trim_end().to_owned()),
        _ => Content::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_and_any_flipped_bit_is_found() {
        let line = "generation 1048575 process 4194304 since_us 1763726400000000";
        let sealed = seal(line);
        let content = unseal(&sealed);
        assert_eq!(content, Content::Line(line.into()));
        assert_eq!(content.number("generation"), Some(1_048_575));
        assert_eq!(content.number::<u64>("absent"), None);
        for bit in 0..LEN * 8 {
            let mut flipped = sealed;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&flipped), Content::Damaged, "bit {bit}");
        }
        for cut in 1..LEN {
            assert_eq!(unseal(&sealed[..cut]), Content::Damaged, "cut at {cut}");
        }
        assert_eq!(unseal(&[]), Content::Nothing);
        assert_eq!(unseal(&[0; LEN]), Content::Damaged);
        assert_eq!(unseal(&[sealed.as_slice(), b"x"].concat()), Content::Damaged);
    }
}
