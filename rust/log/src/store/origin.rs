//! The file `origin`: which of the copies of a store this is.
//!
//! Owns making and reading it. The first call that asks makes it, under the claim, so two processes get
//! one origin. Invariant: an origin that a caller got is on disk, so no power failure gives the store
//! another one. [`super::backup`] leaves the file out. [`crate::format::origin`] owns its text. See
//! `docs/PROTOCOL.md`, "Cut".

use super::{Access, Store, files};
use crate::error::{DecodedIn, Result};
use crate::format::origin::Origin;

/// More than the file has with the ends of all topics that logs may hold.
const MAX_ORIGIN: u64 = 64 << 20;

impl Store {
    /// Return the store's origin; make it if there is none yet.
    ///
    /// # Errors
    /// `NotWritable` for a store opened for reading that has none. `CorruptData`,
    /// `UnsupportedVersion`; `LockTimeout`, `NoSpace`, `SystemCallFailed`.
    #[doc(hidden)]
    pub fn origin(&self) -> Result<Origin> {
        let (storage, path) = (&**self.storage(), self.layout().origin());
        if let Some(origin) = self.read_origin()? {
            if self.access() == Access::Write {
                // Its maker may not have synced its name yet, or have died before.
                files::sync_parent(storage, &path)?;
            }
            return Ok(origin);
        }
        self.under_claim(|| {
            if let Some(origin) = self.read_origin()? {
                return Ok(origin);
            }
            let origin = Origin { id: files::random_id(storage, &path)?, parent: None };
            files::put_new(storage, &path, origin.encode().as_bytes(), self.modes().file)?;
            Ok(origin)
        })
    }

    fn read_origin(&self) -> Result<Option<Origin>> {
        let path = self.layout().origin();
        let bytes = files::read_up_to(&**self.storage(), &path, MAX_ORIGIN)?;
        bytes.map(|bytes| Origin::decode(&bytes)).transpose().in_file(&path, 0)
    }
}
