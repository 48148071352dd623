//! A listing: the objects below a folder in order of their keys, a page at a time.
//!
//! A folder sorts by its name with a slash, so its objects stand where their keys belong. Memory is bounded by the
//! page: of a folder's entries only the smallest behind the last one are kept, and it is read again for more.

use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode};
use rustix::io::Errno;

use super::FOLDER;
use super::key::is_name;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written, microseconds since 1970.
    pub modified_us: i64,
}

/// Append the objects of a folder and of those below it whose keys are greater than `after`, until there are `most`.
pub(super) fn walk(
    folder: &OwnedFd,
    prefix: &str,
    after: &str,
    most: usize,
    found: &mut Vec<Listed>,
) -> Result<(), Errno> {
    let mut last: Option<String> = None;
    while found.len() < most {
        let kept = most - found.len();
        let names = smallest(folder, kept, |name| {
            let key = format!("{prefix}{name}");
            let is_behind = last.as_deref().is_none_or(|last| name > last);
            is_behind && (key.as_str() > after || after.starts_with(&key))
        })?;
        let is_all = names.len() < kept;
        for name in names {
            if found.len() == most {
                return Ok(());
            }
            one(folder, &name, prefix, after, most, found)?;
            last = Some(name);
        }
        if is_all {
            break;
        }
    }
    Ok(())
}

/// Append an object, or those of a folder; what was deleted meanwhile is left out.
fn one(
    folder: &OwnedFd,
    name: &str,
    prefix: &str,
    after: &str,
    most: usize,
    found: &mut Vec<Listed>,
) -> Result<(), Errno> {
    let key = format!("{prefix}{name}");
    if let Some(name) = name.strip_suffix('/') {
        return match fs::openat(folder, name, FOLDER, Mode::empty()) {
            Err(Errno::NOENT) => Ok(()),
            below => walk(&below?, &key, after, most, found),
        };
    }
    if key.as_str() <= after {
        return Ok(());
    }
    let status = match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        status => status?,
    };
    if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile {
        let size = u64::try_from(status.st_size).unwrap_or(0);
        let ns = i64::try_from(status.st_mtime_nsec).unwrap_or(0);
        let modified_us = status.st_mtime.saturating_mul(1_000_000).saturating_add(ns / 1_000);
        found.push(Listed { key, size, modified_us });
    }
    Ok(())
}

/// The smallest names of a folder that pass, in order; that of a folder with a slash.
fn smallest(
    folder: &OwnedFd,
    most: usize,
    passes: impl Fn(&str) -> bool,
) -> Result<Vec<String>, Errno> {
    let mut names = BinaryHeap::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().ok().filter(|name| is_name(name)) else {
            continue;
        };
        let kind = match entry.file_type() {
            FileType::Unknown => match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                status => FileType::from_raw_mode(status?.st_mode),
            },
            kind => kind,
        };
        let name = if kind == FileType::Directory { format!("{name}/") } else { name.to_owned() };
        if passes(&name) {
            names.push(name);
            if names.len() > most {
                names.pop();
            }
        }
    }
    Ok(names.into_sorted_vec())
}
