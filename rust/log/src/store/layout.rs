//! Every path inside a store, made in one place.
//!
//! Invariant: a path that this module makes lies inside the store. Names of topics and consumer
//! groups are checked here, before a path is made of them, so no caller can forget to. The other
//! modules of the store define what is at the paths, and when it is made (`docs/FORMAT.md`,
//! "Directories").
//!
//! ```text
//! store/
//!   falaj.json                       settings of the store; made last
//!   claim  presence  slots/<n>       lock files, never deleted
//!   wake                             page on which waiting processes sleep
//!   origin                           which of the copies of the store this is
//!   ship.json                        exists once this one was shipped
//!   settled                          exists except while a process changes topics or logs
//!   topics/<name>/topic.json         settings of a topic; made last
//!   logs/<log>@<generation>/…        one log; with `.tmp` while it is being made
//!   consumers/<name>
//!   queues/<name>                    state of a work queue; with `~` while it is being made
//! ```

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoResult, Result};
use crate::format::names;
use crate::format::settings::TopicSettings;

/// Ending of a name that is under construction. A rename removes it; sweeping removes leftovers.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Ending of a name that was renamed away to be deleted.
pub(crate) const DELETED: &str = ".deleted";

/// Names at the top of a store.
pub(crate) mod top {
    pub const SETTINGS: &str = "falaj.json";
    pub const CLAIM: &str = "claim";
    pub const PRESENCE: &str = "presence";
    pub const WAKE: &str = "wake";
    pub const SETTLED: &str = "settled";
    pub const ORIGIN: &str = "origin";
    /// Made by the process that ships the store, once a place is claimed.
    pub const SHIP: &str = "ship.json";
    pub const SLOTS: &str = "slots";
    pub const TOPICS: &str = "topics";
    pub const LOGS: &str = "logs";
    pub const CONSUMERS: &str = "consumers";
    /// Made with the first queue.
    pub const QUEUES: &str = "queues";
    /// Directories, in the order in which creation makes them after [`SLOTS`].
    pub const DIRECTORIES: [&str; 3] = [TOPICS, LOGS, CONSUMERS];
}

/// Name of a topic's settings file in its directory.
pub(crate) const TOPIC_SETTINGS: &str = "topic.json";

/// Directories in a log's directory.
pub(crate) mod in_log {
    pub const QUARANTINE: &str = "quarantine";
}

/// Return the absolute path of a directory that a caller names.
///
/// # Errors
/// [`Error::InvalidArgument`] for an empty path, or one with a zero byte.
pub(super) fn directory(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Error::invalid(
            "an empty path names no directory; `.` is the one that this process is in",
        ));
    }
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(Error::invalid(format!("no path has a zero byte in it, as {path:?} has")));
    }
    std::path::absolute(path).doing("find", path)
}

/// The paths of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Make the paths of the store in a directory.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// Return the store's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Return the file that exists except during changes.
    pub(crate) fn settled(&self) -> PathBuf {
        self.root.join(top::SETTLED)
    }

    /// Return the directory itself, even if the path to it is a symbolic link: `link/.` is the
    /// link's target. Links *inside* a store are never followed.
    pub(crate) fn root_itself(&self) -> PathBuf {
        self.root.join(".")
    }

    /// Return the parent of the store's directory.
    pub(crate) fn parent(&self) -> &Path {
        match self.root.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => &self.root,
        }
    }

    /// Return `falaj.json`.
    pub fn settings(&self) -> PathBuf {
        self.root.join(top::SETTINGS)
    }

    /// Return the lock file for creating, deleting and joining.
    pub fn claim(&self) -> PathBuf {
        self.root.join(top::CLAIM)
    }

    /// Return the lock file that every writing process holds shared.
    pub fn presence(&self) -> PathBuf {
        self.root.join(top::PRESENCE)
    }

    /// Return the page on which waiting processes of the store sleep.
    pub fn wake(&self) -> PathBuf {
        self.root.join(top::WAKE)
    }

    /// Return the file that says which of the copies of the store this is.
    pub fn origin(&self) -> PathBuf {
        self.root.join(top::ORIGIN)
    }

    /// Return the file that exists once the store was shipped from here.
    pub fn ship(&self) -> PathBuf {
        self.root.join(top::SHIP)
    }

    /// Return the directory of the slot files.
    pub fn slots(&self) -> PathBuf {
        self.root.join(top::SLOTS)
    }

    /// Return the lock file that one writing process holds.
    pub fn slot(&self, slot: u16) -> PathBuf {
        self.slots().join(slot.to_string())
    }

    /// Return the directory of the topics.
    pub fn topics(&self) -> PathBuf {
        self.root.join(top::TOPICS)
    }

    /// Return the directory of a topic.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn topic(&self, name: &str) -> Result<PathBuf> {
        checked("topic", name)?;
        Ok(self.topics().join(name))
    }

    /// Return `topic.json` of a topic.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn topic_settings(&self, name: &str) -> Result<PathBuf> {
        Ok(self.topic(name)?.join(TOPIC_SETTINGS))
    }

    /// Return the directory of the logs.
    pub fn logs(&self) -> PathBuf {
        self.root.join(top::LOGS)
    }

    /// Return the directory of a topic's log.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for settings that are from no file.
    pub fn log(&self, topic: &TopicSettings) -> Result<PathBuf> {
        checked("log", &topic.log)?;
        Ok(self.logs().join(topic.log_dir()))
    }

    /// Return the directory of the consumer groups.
    pub fn consumers(&self) -> PathBuf {
        self.root.join(top::CONSUMERS)
    }

    /// Return the file of a consumer group.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn consumer(&self, name: &str) -> Result<PathBuf> {
        checked("consumer", name)?;
        Ok(self.consumers().join(name))
    }

    /// Return the directory of the queues.
    pub fn queues(&self) -> PathBuf {
        self.root.join(top::QUEUES)
    }

    /// Return the state file of a queue.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn queue(&self, name: &str) -> Result<PathBuf> {
        checked("queue", name)?;
        Ok(self.queues().join(name))
    }
}

fn checked(what: &'static str, name: &str) -> Result<()> {
    match names::complaint(name) {
        Some(why) => Err(Error::InvalidName { what, name: name.to_owned(), why }),
        None => Ok(()),
    }
}

/// Return the path of something under construction.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    with_ending(path, TEMPORARY)
}

/// Return the path of something that is being deleted.
pub(crate) fn deleted(path: &Path) -> PathBuf {
    with_ending(path, DELETED)
}

/// Append an ending to a path's name.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Read the number of a slot file; `None` for any other file.
pub(crate) fn parse_slot(name: &str) -> Option<u16> {
    let slot: u16 = name.parse().ok()?;
    (slot.to_string() == name && slot < crate::lock::SLOTS).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_makes_a_path_outside_the_store() {
        let layout = Layout::new(Path::new("/s"));
        let long = "x".repeat(250);
        for bad in ["", ".", "..", "../x", "a/b", "/etc", "a\0", "a b", "ä", "a@b", "a\n", &long] {
            for made in [
                layout.topic(bad),
                layout.topic_settings(bad),
                layout.consumer(bad),
                layout.queue(bad),
            ] {
                assert!(matches!(made, Err(Error::InvalidName { .. })), "{bad:?}");
            }
        }
        let longest = "x".repeat(249);
        for good in ["a", "...", "-", "a.tmp", "topic.json", &longest] {
            let path = layout.topic(good).unwrap();
            assert_eq!(path.parent(), Some(layout.topics().as_path()), "{good:?}");
        }
    }

    #[test]
    fn only_slots_exactly_as_falaj_writes_them_are_its_own() {
        assert_eq!(parse_slot("1023"), Some(1023));
        for other in ["1024", "01", "-1", "+1", "x", ""] {
            assert_eq!(parse_slot(other), None, "{other}");
        }
    }

    #[test]
    fn a_path_that_names_no_directory_is_refused_before_the_system_is_asked() {
        for (path, why) in [("", "an empty path"), ("a\0b", r#""a\0b""#)] {
            let error = directory(Path::new(path)).unwrap_err();
            assert!(
                matches!(&error, Error::InvalidArgument { what } if what.contains(why)),
                "{error}"
            );
        }
        assert_eq!(directory(Path::new("/a/b")).unwrap(), Path::new("/a/b"));
    }

    #[test]
    fn a_refused_name_is_told_with_what_it_was_to_name() {
        let layout = Layout::new(Path::new("/s"));
        for (made, what) in [
            (layout.topic("a b"), "topic"),
            (layout.consumer("a b"), "consumer"),
            (layout.queue("a b"), "queue"),
        ] {
            let said = made.unwrap_err().to_string();
            assert!(said.starts_with(&format!(r#""a b" cannot name a {what}: "#)), "{said}");
        }
    }

    #[test]
    fn a_store_in_the_working_directory_has_a_parent_too() {
        assert_eq!(Layout::new(Path::new("events")).parent(), Path::new("."));
        assert_eq!(Layout::new(Path::new("/a/b")).parent(), Path::new("/a"));
        assert_eq!(Layout::new(Path::new("/")).parent(), Path::new("/"));
    }
}
