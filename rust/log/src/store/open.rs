//! Opening a store, and creating it.
//!
//! Owns the order in which a store is created, and the refusals. It refuses a directory that is no
//! store, a newer version, and a file system on which falaj cannot keep its promises. Invariant:
//! where `falaj.json` exists, the store is whole. An interrupted creation is recognised as such,
//! and the next opening continues it.
//!
//! ```text
//! directory ─> topics (its mode is the store's) ─> claim ─> the other directories, wake page
//!           ─> all synced ─> falaj.json.tmp ─> falaj.json
//! ```
//!
//! Two processes that create at once meet at the claim; the second finds `falaj.json` and adopts
//! it. (`docs/PROTOCOL.md`, "Opening for writing".)

use std::path::Path;
use std::sync::Arc;

use super::claim::{Claim, Patience};
use super::files;
use super::layout::{self, Layout, temporary, top};
use super::modes::Modes;
use super::options::{Access, StoreOptions};
use super::registry::MembershipRef;
use super::sweep;
use super::{Membership, Store, StoreInner};
use crate::error::{DecodedIn, Error, IoResult, Result};
use crate::failpoints::{Point, pass};
use crate::format::settings::{StoreSettings, WriteMode};
use crate::format::wake;
use crate::log::Reading;
use crate::shipper::{Shipper, decode};
use crate::storage::{self, Filesystem, Map, OpenMode, Storage};

/// Open a store on any storage.
pub(super) fn open(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: &StoreOptions,
) -> Result<Store> {
    let root = layout::directory(path)?;
    let opening = Opening { storage, layout: Layout::new(&root), options };
    let (shared, pending) = match options.access {
        Access::Read => (opening.for_reading()?, Vec::new()),
        Access::Write => opening.for_writing()?,
    };
    let store = Store { shared: Arc::new(shared) };
    // As with other leftovers: a later opening tries again after a failure.
    let _ = store.finish_deletions(&pending);
    Ok(store)
}

struct Opening<'a> {
    storage: Arc<dyn Storage>,
    layout: Layout,
    options: &'a StoreOptions,
}

impl Opening<'_> {
    fn storage(&self) -> &dyn Storage {
        self.storage.as_ref()
    }

    fn for_reading(self) -> Result<StoreInner> {
        let Some(settings) = self.settings()? else {
            return Err(self.missing("open it for writing to create one")?);
        };
        self.check_settings(&settings)?;
        let modes = self.modes()?;
        // A process that may not even read the page, or finds none, looks from time to time
        // instead.
        let mapped = self.options.reading == Reading::Map;
        let wake = mapped.then(|| self.wake_page(&settings).ok().flatten()).flatten();
        Ok(self.finish(settings, modes, wake, None))
    }

    /// Open the store; also return topics whose deletion must be continued.
    fn for_writing(self) -> Result<(StoreInner, Vec<String>)> {
        let patience = Patience::new(self.options.lock_timeout);
        Modes::asked(self.options.mode)?;
        let settings = match self.settings()? {
            Some(settings) => settings,
            None if !self.options.create => {
                return Err(self.missing("check the path, or let this call create a store")?);
            }
            None => self.create(patience)?,
        };
        self.check_settings(&settings)?;
        let modes = self.modes()?;
        let mut pending = Vec::new();
        let alone = |claim: &Claim| {
            self.restore_wake_page(&settings, modes)?;
            self.forget_shipper(&settings)?;
            // Leftovers only use space: a later opening tries again to remove them.
            pending = sweep::sweep_if_interrupted(self.storage(), &self.layout, claim, modes.file)
                .unwrap_or_default();
            Ok(())
        };
        let member = Membership::join(&self.storage, &self.layout, modes, patience, alone)?;
        let wake = self.wake_page(&settings)?;
        let wake = wake.ok_or_else(|| Error::LockFileReplaced { path: self.layout.wake() })?;
        Ok((self.finish(settings, modes, Some(wake), Some(MembershipRef::new(member))), pending))
    }

    fn finish(
        self,
        settings: StoreSettings,
        modes: Modes,
        wake: Option<Map>,
        seat: Option<MembershipRef>,
    ) -> StoreInner {
        let Self { storage, layout, options } = self;
        let (lock_timeout, reading) = (options.lock_timeout, options.reading);
        let (siblings, counts, cuts) = Default::default();
        StoreInner {
            storage,
            layout,
            settings,
            modes,
            wake,
            seat,
            lock_timeout,
            reading,
            siblings,
            counts,
            cuts,
        }
    }

    /// Read `falaj.json`; `None` when it does not exist.
    fn settings(&self) -> Result<Option<StoreSettings>> {
        let path = self.layout.settings();
        let bytes = match files::read(self.storage(), &path) {
            Err(error) if error.os_error() == Some(libc::ENOTDIR) => {
                return Err(self.no_store("it is not a directory"));
            }
            other => other?,
        };
        bytes.map(|bytes| StoreSettings::decode(&bytes)).transpose().in_file(&path, 0)
    }

    /// Refuse a store whose place or write mode cannot work.
    fn check_settings(&self, settings: &StoreSettings) -> Result<()> {
        let stored = settings.write_mode;
        if let Some(asked) = self.options.write_mode.filter(|asked| *asked != stored) {
            return Err(Error::SettingsMismatch {
                topic: self.layout.root().display().to_string(),
                setting: "write_mode",
                stored: stored.name().into(),
                asked: asked.name().into(),
            });
        }
        let writes = (self.options.access == Access::Write).then_some(stored);
        self.check_filesystem(self.filesystem(&self.layout.root_itself())?, writes)
    }

    fn filesystem(&self, path: &Path) -> Result<Filesystem> {
        self.storage.filesystem(path).doing("look at the file system of", path)
    }

    fn check_filesystem(&self, found: Filesystem, writes: Option<WriteMode>) -> Result<()> {
        if self.options.allow_network_fs {
            return Ok(());
        }
        refuse_filesystem(found, writes, self.layout.root())
    }

    /// Return the permission bits of the store, taken from the directory that was made first.
    fn modes(&self) -> Result<Modes> {
        files::expect_dir(self.storage(), &self.layout.logs())?;
        Ok(Modes::of(files::expect_dir(self.storage(), &self.layout.topics())?.mode))
    }

    fn root_exists(&self) -> Result<bool> {
        Ok(files::stat(self.storage(), &self.layout.root_itself())?.is_some())
    }

    /// Make the error for a directory without `falaj.json`, in which none may be created.
    fn missing(&self, remedy: &str) -> Result<Error> {
        if self.root_exists()? {
            return Ok(self.no_store("it holds no falaj.json"));
        }
        Ok(self.no_directory().unwrap_or_else(|| Error::StoreNotFound {
            path: self.layout.root().to_path_buf(),
            why: format!("the directory does not exist; {remedy}"),
        }))
    }

    /// Make the error for a missing parent of the store's directory.
    fn no_directory(&self) -> Option<Error> {
        let parent = self.layout.parent();
        let found = files::stat(self.storage(), parent);
        matches!(found, Ok(None)).then(|| Error::StoreNotFound {
            path: self.layout.root().to_path_buf(),
            why: format!("directory {} does not exist; create it first", parent.display()),
        })
    }

    fn no_store(&self, why: &str) -> Error {
        Error::NotAStore { path: self.layout.root().to_path_buf(), why: why.to_owned() }
    }

    /// Create the store, or adopt one that another process creates meanwhile.
    fn create(&self, patience: Patience) -> Result<StoreSettings> {
        let asked = Modes::asked(self.options.mode)?;
        if let Some(error) = self.no_directory() {
            return Err(error);
        }
        let write_mode = self.choose_write_mode()?;
        self.make_root(asked)?;
        if let Some(why) = self.stranger()? {
            // A strange directory may be a store that was finished just now.
            return self.settings()?.ok_or_else(|| self.no_store(&why));
        }
        let modes = make_first_directory(self.storage(), &self.layout, asked)?;
        let claim = Claim::take(&self.storage, &self.layout, modes.lock, patience)?;
        if let Some(adopted) = self.settings()? {
            return Ok(adopted);
        }
        if let Some(why) = self.stranger()? {
            return Err(self.no_store(&why));
        }
        let root = self.layout.root();
        for name in top::DIRECTORIES {
            files::make_dir(self.storage(), &root.join(name), modes.directory)?;
        }
        pass(Point::StoreDirectories);
        let id = files::random_id(self.storage(), root)?;
        let settings = StoreSettings {
            id,
            created_us: self.storage.now_us(),
            write_mode,
            retention_bytes: None,
            ship_backlog_bytes: None,
            ship_min_sync: None,
            revision: 0,
        };
        // This syncs all names in the store's directory; the store's own name is next.
        self.make_wake_page(&settings, modes)?;
        pass(Point::StoreWake);
        files::sync_dir(self.storage(), self.layout.parent())?;
        claim.verify()?;
        let text = settings.encode();
        files::put_new(self.storage(), &self.layout.settings(), text.as_bytes(), modes.file)?;
        pass(Point::StoreSettings);
        Ok(settings)
    }

    fn choose_write_mode(&self) -> Result<WriteMode> {
        let at = if self.root_exists()? {
            self.layout.root_itself()
        } else {
            self.layout.parent().into()
        };
        let found = self.filesystem(&at)?;
        let chosen = self.options.write_mode.unwrap_or_else(|| suitable_mode(&found));
        self.check_filesystem(found, Some(chosen))?;
        Ok(chosen)
    }

    fn make_root(&self, modes: Modes) -> Result<()> {
        if self.root_exists()? {
            return Ok(());
        }
        files::make_dir(self.storage(), self.layout.root(), modes.directory).map(|_| ())
    }

    /// Say why a directory without `falaj.json` is no interrupted creation. Anything in the
    /// directories means that there was a store: it must not become another one.
    fn stranger(&self) -> Result<Option<String>> {
        let root = self.layout.root();
        for name in files::list(self.storage(), &self.layout.root_itself())? {
            if top::DIRECTORIES.contains(&name.as_str()) || name == top::SLOTS {
                let inside = root.join(&name);
                files::expect_dir(self.storage(), &inside)?;
                if !files::list(self.storage(), &inside)?.is_empty() {
                    return Ok(Some(format!("falaj.json is missing, but {name}/ is not empty")));
                }
            } else if !is_made_by_creation(&name) {
                return Ok(Some(format!("it holds no falaj.json, but {name:?}")));
            }
        }
        Ok(None)
    }

    fn make_wake_page(&self, settings: &StoreSettings, modes: Modes) -> Result<()> {
        let path = self.layout.wake();
        let header = wake::encode_header(settings.id);
        let made = files::prepare(self.storage(), &path, &header, wake::LEN, modes.file)?;
        // An existing one is from an interrupted creation, or corrupt.
        self.storage.rename_over(&made, &path).doing("rename to", &path)?;
        files::sync_parent(self.storage(), &path)
    }

    /// Make the missing wake page of a store that was restored from a backup. No process is there
    /// that could sleep on another one.
    fn restore_wake_page(&self, settings: &StoreSettings, modes: Modes) -> Result<()> {
        match self.wake_page(settings) {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(Error::CorruptData { .. }) => self.make_wake_page(settings, modes),
            Err(error) => Err(error),
        }
    }

    /// Forget a shipper of an earlier incarnation, which is dead. That the last one was fenced is
    /// kept, for people.
    fn forget_shipper(&self, settings: &StoreSettings) -> Result<()> {
        let Some(page) = self.wake_page(settings)? else { return Ok(()) };
        match decode(page.load(wake::at::SHIPPER)) {
            Shipper::Fenced => Ok(()),
            Shipper::Absent | Shipper::Process(_) => {
                page.store(wake::at::SHIPPER, 0).doing("write", &self.layout.wake())
            }
        }
    }

    /// Map the wake page; `None` when it does not exist.
    fn wake_page(&self, settings: &StoreSettings) -> Result<Option<Map>> {
        let path = self.layout.wake();
        let (how, access) = match (self.options.access, settings.write_mode) {
            (Access::Read, _) => (OpenMode::Read, storage::MapAccess::Read),
            (Access::Write, WriteMode::Mapped) => (OpenMode::ReadWrite, storage::MapAccess::Write),
            (Access::Write, WriteMode::Pwrite) => {
                (OpenMode::ReadWrite, storage::MapAccess::WriteThrough)
            }
        };
        if files::stat(self.storage(), &path)?.is_none() {
            return Ok(None);
        }
        let file = self.storage.open(&path, how).doing("open", &path)?;
        let len = file.stat().doing("look at", &path)?.len;
        let mut header = [0; wake::HEADER_LEN];
        file.read_at(&mut header, 0).doing("read", &path)?;
        wake::check_header(&header, settings.id).in_file(&path, 0)?;
        if len != wake::LEN {
            return Err(Error::corrupt(&path, len, wake::OTHER_LEN));
        }
        file.map(wake::LEN, access).map(Some).doing("map", &path)
    }
}

/// Return how processes write to a new store on a file system.
pub(super) fn suitable_mode(found: &Filesystem) -> WriteMode {
    match found {
        Filesystem::Promises(_) => WriteMode::Mapped,
        _ => WriteMode::Pwrite,
    }
}

/// Refuse a file system on which falaj cannot keep its promises. `writes` is the mode in which
/// processes write there, if any do.
pub(super) fn refuse_filesystem(
    found: Filesystem,
    writes: Option<WriteMode>,
    root: &Path,
) -> Result<()> {
    let kind = match (found, writes) {
        (Filesystem::Remote(kind), _) => kind.to_owned(),
        (Filesystem::CopyOnWrite(kind), Some(WriteMode::Mapped)) => {
            format!("{kind}, and was made to be written through maps, not with `pwrite`,")
        }
        (Filesystem::Unknown(kind), Some(WriteMode::Mapped)) => {
            format!("an unknown file system ({kind:#x})")
        }
        _ => return Ok(()),
    };
    Err(Error::UnsupportedFilesystem { path: root.to_path_buf(), kind })
}

/// Make the directory whose permission bits define the store's. A file system that does not keep
/// them would make another store than requested.
pub(super) fn make_first_directory(
    storage: &dyn Storage,
    layout: &Layout,
    asked: Modes,
) -> Result<Modes> {
    let path = layout.topics();
    let made = files::make_dir(storage, &path, asked.directory)?;
    let modes = Modes::of(files::expect_dir(storage, &path)?.mode);
    if made && modes != asked {
        // It is empty, so no process has built on it yet; if one has, this removes nothing.
        files::remove_dir(storage, &path)?;
        return Err(Error::invalid(format!(
            "mode {:#o} became {:#o} on this file system; ask for that mode, or choose another place",
            asked.directory, modes.directory
        )));
    }
    Ok(modes)
}

/// Return true for files at the top that an interrupted creation leaves.
fn is_made_by_creation(name: &str) -> bool {
    let is_temporary = |of: &str| temporary(Path::new(of)) == Path::new(name);
    matches!(name, top::SETTINGS | top::CLAIM | top::PRESENCE | top::WAKE)
        || is_temporary(top::SETTINGS)
        || is_temporary(top::WAKE)
}
