//! Permission bits of the store's files and directories, derived from the store's mode.
//!
//! Invariant: a user that may read a lock file may also write the store. An exclusive `flock` needs
//! no more than a descriptor. So a lock file that a mere reader could open would let that reader
//! stop every writer (`docs/PROTOCOL.md`, "Lock files").

use crate::error::{Error, Result};

/// Permission bits for everything in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Directories.
    pub directory: u32,
    /// Files that readers read.
    pub file: u32,
    /// Lock files: readable only for users that may write.
    pub lock: u32,
}

impl Modes {
    /// Derive them from the permission bits of the store's directories.
    pub fn of(directory: u32) -> Self {
        let directory = directory & 0o777;
        let lock = [6, 3, 0].iter().fold(0, |mode, shift| {
            let may_write = directory >> shift & 0o2 != 0;
            if may_write { mode | 0o6 << shift } else { mode }
        });
        Self { directory, file: directory & 0o666, lock }
    }

    /// Derive them from the mode that a user requested.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other modes: the owner must have all rights, the others read
    /// and enter, or write as well, or nothing.
    pub fn asked(directory: u32) -> Result<Self> {
        let digit = |shift: u32| directory >> shift & 0o7;
        let sound = digit(6) == 7 && [3, 0].iter().all(|shift| matches!(digit(*shift), 0 | 5 | 7));
        if sound && directory <= 0o777 {
            return Ok(Self::of(directory));
        }
        Err(Error::invalid(format!(
            "{directory:#05o} is no mode for a store. Its first digit is 7; the others are 0 \
                 (nothing), 5 (read) or 7 (read and write), as in 0o700, 0o750 or 0o770"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_files_are_for_those_only_who_may_write() {
        for (directory, file, lock) in [
            (0o700, 0o600, 0o600),
            (0o750, 0o640, 0o600),
            (0o755, 0o644, 0o600),
            (0o770, 0o660, 0o660),
            (0o775, 0o664, 0o660),
            (0o777, 0o666, 0o666),
        ] {
            assert_eq!(Modes::asked(directory).unwrap(), Modes { directory, file, lock });
        }
    }

    #[test]
    fn modes_that_make_no_store_are_refused() {
        for mode in [0, 0o600, 0o500, 0o740, 0o730, 0o701, 0o1700, 0o2770, u32::MAX] {
            assert!(matches!(Modes::asked(mode), Err(Error::InvalidArgument { .. })), "{mode:o}");
        }
    }
}
