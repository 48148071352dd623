//! The control page, as recovery finds it, or a new one if it cannot be used.
//!
//! The page holds nothing that the segments lack, with one exception: whether the last sync failed,
//! or never ended. Invariant: a page that was replaced while processes of this incarnation use the
//! old one is an error, never a second page. See `docs/PROTOCOL.md`, "The control page".

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::control::at;
use crate::segment::Segment;

use super::super::control::Control;
use super::super::write_access;
use super::Recovery;

/// The state of the control page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Sound,
    /// The last sync failed, or its result is unknown.
    Doubtful,
    /// No usable page exists.
    New,
}

impl Recovery<'_> {
    /// Find out whether there is a usable control page, and whether the last sync failed or never
    /// ended.
    pub(super) fn page(&self, newest: &Segment) -> Result<Page> {
        let mark = newest.read_mark()?.filter(|mark| mark.incarnation == self.incarnation);
        let replaced = || Error::LockFileReplaced { path: self.dir.join("control") };
        let is_right = |control: &Control| {
            let named = mark.is_none_or(|mark| mark.control == control.id());
            named || planted(Canary::TwoControlPages)
        };
        match Control::open_unmapped(&**self.storage, self.dir, self.settings.generation) {
            Ok(control) if is_right(&control) => {
                // A held sync lock was held by a dead process: no other could be here.
                let doubtful = control.is_latched() || control.word_value(at::SYNC_LOCK) != 0;
                Ok(if doubtful { Page::Doubtful } else { Page::Sound })
            }
            Ok(_) => Err(replaced()),
            Err(error @ (Error::UnsupportedVersion { .. } | Error::OutdatedFormat { .. })) => {
                Err(error)
            }
            Err(_) if mark.is_some() && !planted(Canary::TwoControlPages) => Err(replaced()),
            Err(_) => Ok(Page::New),
        }
    }

    /// Return the control page, or a new one if none is usable.
    pub(super) fn control(&self, page: Page) -> Result<Control> {
        let (storage, dir) = (&**self.storage, self.dir);
        let (log, access) = (self.settings.generation, write_access(&self.settings));
        if page == Page::New {
            Control::create(storage, dir, log, self.settings.file_mode)?;
            Control::publish(storage, dir)?;
        }
        Control::open(storage, dir, log, access)
    }
}
