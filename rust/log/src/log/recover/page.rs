//! The control page, as recovery finds it, and a new one where it cannot be used.
//!
//! The page holds nothing that the segments do not say, but for one thing: whether the last sync
//! failed, or never ended. Invariant: a page that was replaced while processes of this incarnation
//! use the old one is an error, never a second page. See `docs/PROTOCOL.md`, "The control page".

use crate::canary::{Canary, planted};
use crate::error::{Error, Result};
use crate::format::control::at;
use crate::segment::Segment;

use super::super::control::Control;
use super::super::write_access;
use super::Recovery;

/// What is to be done about the control page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Sound,
    /// The last sync failed, or nobody knows how it ended.
    Doubtful,
    /// There is none that can be used.
    New,
}

impl Recovery<'_> {
    /// Whether there is a control page that can be used, and whether the last sync failed or never
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
                // A sync lock that is held now was held by the dead: nobody else could be here.
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

    /// The control page, made anew where there is none that can be used.
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
