//! `flock`: all uses of `fs2`, in the only file that names it.
//!
//! A lock belongs to the *open file*, not to the process and not to the descriptor. A forked child
//! shares it, and two opens in one process exclude each other. It ends with the last descriptor or
//! map of that open file. The modules above decide which locks a process may hold, and provide the
//! mutex that threads need (`docs/PROTOCOL.md`).
//!
//! The calls are written in full: since Rust 1.89 `std::fs::File` has methods of the same names.

use std::fs::File;
use std::io;

use super::super::LockKind;

/// Take a lock if that is possible at once; `false` when another holder is in the way. Changing the
/// kind releases the old lock first, even when the new one is then refused.
pub(super) fn try_lock(file: &File, kind: LockKind) -> io::Result<bool> {
    loop {
        let result = match kind {
            LockKind::Shared => fs2::FileExt::try_lock_shared(file),
            LockKind::Exclusive => fs2::FileExt::try_lock_exclusive(file),
        };
        match result {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Release the lock, for every descriptor of this open file.
pub(super) fn unlock(file: &File) -> io::Result<()> {
    fs2::FileExt::unlock(file)
}
