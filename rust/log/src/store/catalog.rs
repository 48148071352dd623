//! The contents of a store, read without trust, for programs that do not open it.
//!
//! Owns the list of settings, topics and logs as the directory has them, each with its errors.
//! Unlike opening it stops only at a directory that is no store: verification and repair begin
//! here, with stores that are corrupt. It reads small files by `pread` and changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files;
use super::layout::{self, Layout, top};
use super::sidecar_check::{self, SidecarReport};
use super::topics::read_settings;
use crate::error::{DecodedIn, Error, Result};
use crate::format::settings::{StoreSettings, TopicSettings, WriteMode};
use crate::format::{DecodeError, names};
use crate::log::verify::{KnownTopic, Subject};
use crate::storage::Storage;

/// A store as its directory has it.
#[derive(Debug)]
pub(super) struct Catalog {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) layout: Layout,
    /// The contents of `falaj.json`.
    pub(super) settings: Result<StoreSettings>,
    /// Topics by name, or the error in their settings.
    pub(super) topics: Vec<(String, Result<TopicSettings>)>,
    /// Logs by directory.
    pub(super) logs: BTreeMap<PathBuf, CatalogLog>,
}

/// A log, and its topics.
#[derive(Debug)]
pub(super) struct CatalogLog {
    /// Its generation.
    pub(super) generation: [u8; 16],
    /// Topics that name it; none if no topic does, or if that is unknown.
    pub(super) topics: Vec<TopicSettings>,
    /// False when a topic names it and it does not exist.
    pub(super) exists: bool,
}

impl Catalog {
    /// Read a store.
    ///
    /// # Errors
    /// `StoreNotFound` when there is no directory. `NotAStore` when it has neither `falaj.json` nor
    /// other parts of a store.
    /// `SystemCallFailed` when a directory cannot be listed. `UnsupportedVersion` or
    /// `OutdatedFormat` for a store of another format version.
    pub(super) fn read(storage: &Arc<dyn Storage>, root: &Path) -> Result<Self> {
        let layout = Layout::new(&layout::directory(root)?);
        let settings = match read_store_settings(&**storage, &layout)? {
            Some(settings) => settings,
            None => no_settings(&**storage, &layout)?,
        };
        let topics = topics(&**storage, &layout)?;
        let logs = logs(&**storage, &layout, &topics)?;
        Ok(Self { storage: Arc::clone(storage), layout, settings, topics, logs })
    }

    /// Check the files beside the logs; `tell` gets the number of bytes read.
    ///
    /// # Errors
    /// `SystemCallFailed` when a directory cannot be listed, and the errors of `tell`.
    pub(super) fn look_beside(
        &self,
        tell: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<SidecarReport> {
        let id = self.settings.as_ref().ok().map(|settings| settings.id);
        sidecar_check::look(&*self.storage, &self.layout, id, tell)
    }

    /// Return how processes write to the store; if unknown, the most common mode.
    pub(super) fn write_mode(&self) -> WriteMode {
        self.settings.as_ref().map_or(WriteMode::Mapped, |settings| settings.write_mode)
    }

    /// Return true when some `topic.json` cannot be read: an unnamed log may be its.
    pub(super) fn has_unknown_topics(&self) -> bool {
        self.topics.iter().any(|(_, topic)| topic.is_err())
    }
}

impl CatalogLog {
    /// Describe the log for verification.
    pub(super) fn subject(&self, dir: &Path) -> Subject {
        let mut topics = BTreeMap::new();
        for topic in &self.topics {
            for partition in 0..topic.partitions {
                let (name, generation) = (topic.name.clone(), topic.generation);
                let known = KnownTopic { topic: name, partition, generation };
                topics.insert(topic.number + partition, known);
            }
        }
        Subject { dir: dir.to_path_buf(), generation: self.generation, topics }
    }
}

/// Read `falaj.json`, or its error; `None` when it does not exist.
fn read_store_settings(
    storage: &dyn Storage,
    layout: &Layout,
) -> Result<Option<Result<StoreSettings>>> {
    let path = layout.settings();
    let not_a_directory = |error: &Error| error.os_error() == Some(libc::ENOTDIR);
    let bytes = match files::read(storage, &path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(error) if not_a_directory(&error) => {
            let (path, why) = (layout.root().to_path_buf(), "it is not a directory".to_owned());
            return Err(Error::NotAStore { path, why });
        }
        Err(error) => return Ok(Some(Err(error))),
    };
    match StoreSettings::decode(&bytes) {
        // This version knows nothing about the store's other files.
        Err(other @ DecodeError::Version(_)) => Err(Error::malformed(&path, 0, other)),
        settings => Ok(Some(settings.in_file(&path, 0))),
    }
}

/// Report lost settings for a directory that has topics and logs.
fn no_settings(storage: &dyn Storage, layout: &Layout) -> Result<Result<StoreSettings>> {
    let root = layout.root();
    let holds = |name| files::stat(storage, &root.join(name)).ok().flatten().is_some();
    if holds(top::TOPICS) && holds(top::LOGS) {
        return Ok(Err(Error::corrupt(&layout.settings(), 0, "falaj.json is missing")));
    }
    let path = root.to_path_buf();
    Err(match files::stat(storage, &layout.root_itself())? {
        Some(_) => Error::NotAStore { path, why: "it holds no falaj.json".to_owned() },
        None => {
            let why = "the directory does not exist; check the path".to_owned();
            Error::StoreNotFound { path, why }
        }
    })
}

fn topics(storage: &dyn Storage, layout: &Layout) -> Result<Vec<(String, Result<TopicSettings>)>> {
    let names = files::list(storage, &layout.topics())?;
    let names = names.into_iter().filter(|name| layout.topic(name).is_ok());
    let read = |name: String| {
        let topic = read_settings(storage, layout, &name).transpose()?;
        Some((name, topic))
    };
    Ok(names.filter_map(read).collect())
}

fn logs(
    storage: &dyn Storage,
    layout: &Layout,
    topics: &[(String, Result<TopicSettings>)],
) -> Result<BTreeMap<PathBuf, CatalogLog>> {
    let mut logs = BTreeMap::new();
    for name in files::list(storage, &layout.logs())? {
        let path = layout.logs().join(&name);
        let is_dir = files::is_dir(storage, &path)?;
        if let Some((_, generation)) = names::parse_log_dir(&name).filter(|_| is_dir) {
            logs.insert(path, CatalogLog { generation, topics: Vec::new(), exists: true });
        }
    }
    for (_, topic) in topics {
        let Ok(topic) = topic else { continue };
        let generation = topic.log_generation;
        let missing = CatalogLog { generation, topics: Vec::new(), exists: false };
        logs.entry(layout.log(topic)?).or_insert(missing).topics.push(topic.clone());
    }
    Ok(logs)
}
