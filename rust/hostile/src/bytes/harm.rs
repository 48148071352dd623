//! Harmed files, as bad disks, other programs and careless copies leave them.
//!
//! Owns the ways of harm, and a description of each; the judgement of a store depends on it.

use std::path::{Path, PathBuf};

use falaj::internals::format::names;
use falaj::internals::storage::{OpenMode, Storage};

use crate::example::{Example, is_beside, read};
use crate::random::Random;

pub fn put(disk: &dyn Storage, path: &Path, bytes: &[u8]) {
    let _ = disk.unlink(path);
    let file = disk.open(path, OpenMode::CreateNew(0o600)).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.allocate(bytes.len() as u64).unwrap();
}

fn any_file<'a>(example: &'a Example, random: &mut Random) -> &'a Path {
    // Most bytes belong to segments, but most kinds of files are small.
    loop {
        let (path, len) = random.pick(&example.files);
        if *len > 0 {
            return path;
        }
    }
}

pub fn of_kind<'a>(example: &'a Example, random: &mut Random, end: &str) -> &'a Path {
    let all: Vec<_> =
        example.files.iter().filter(|(path, _)| path.to_string_lossy().ends_with(end)).collect();
    &random.pick(&all).0
}

/// The harm that was done, and to which file.
#[derive(Debug)]
pub struct Harm {
    pub kind: &'static str,
    pub file: PathBuf,
    pub story: String,
}

impl Harm {
    pub fn new(kind: &'static str, file: &Path, more: &str) -> Self {
        let story = format!("{kind}{more} {}", file.display());
        Self { kind, file: file.to_path_buf(), story }
    }

    /// True where the store looks like an older or shorter one, so that falaj cannot know better.
    pub fn is_stale(&self) -> bool {
        self.kind.starts_with("stale") || self.kind.starts_with("missing")
    }
}

/// Some file, for [`harm`].
pub fn some_file<'a>(example: &'a Example, random: &mut Random) -> &'a Path {
    if random.once_in(2) { of_kind(example, random, ".log") } else { any_file(example, random) }
}

/// Harm a file as bad disks, other programs and careless copies do.
pub fn harm(disk: &dyn Storage, example: &Example, random: &mut Random, path: &Path) -> Harm {
    let Ok(stat) = disk.stat(path) else { return Harm::new("missing", path, "") };
    if stat.len == 0 {
        return Harm::new("empty", path, "");
    }
    let mut bytes = read(disk, path);
    let len = bytes.len() as u64;
    let content = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64 + 1;
    let at = random.below(content) as usize;
    let what = match random.below(11) {
        0 => {
            bytes[at] ^= 1 << random.below(8);
            "flip"
        }
        1 => {
            let end = bytes.len().min(at + 1 + random.below(600) as usize);
            let noise = random.bytes(end - at);
            bytes[at..end].copy_from_slice(&noise);
            "noise"
        }
        2 => {
            let sector = at / 512 * 512;
            let end = bytes.len().min(sector + 512 * (1 + random.below(12) as usize));
            bytes[sector..end].fill(0);
            "hole"
        }
        3 => {
            bytes.truncate(at);
            "truncated"
        }
        4 => {
            bytes.extend(random.bytes(1 + at % 5000));
            "longer"
        }
        5 => swap_sectors(&mut bytes, random, at),
        6 => {
            bytes = random.bytes(len as usize);
            "foreign"
        }
        7 => {
            disk.unlink(path).unwrap();
            return Harm::new("missing", path, "");
        }
        8 | 9 => return copy_over(disk, example, random, path),
        _ => {
            // Writes to the second half never arrived.
            bytes[at..].fill(0);
            "stale"
        }
    };
    put(disk, path, &bytes);
    // A segment without its marks looks like one with a torn end; so this harms two places.
    let is_segment = path.extension().is_some_and(|end| end == "log");
    let marks = is_segment && at < falaj::internals::format::FIRST_BLOCK as usize;
    let kind = if marks && what != "flip" { "stale marks:" } else { what };
    Harm::new(kind, path, &format!(" {what} at {at} of"))
}

fn swap_sectors(bytes: &mut [u8], random: &mut Random, at: usize) -> &'static str {
    let sectors = bytes.len() / 512;
    if sectors > 1 {
        // Not the first page, which holds the marks.
        let b = 8.min(sectors - 1) + random.below((sectors - 8.min(sectors - 1)) as u64) as usize;
        let a = at / 512 % sectors;
        for i in 0..512 {
            bytes.swap(a * 512 + i, b * 512 + i);
        }
    }
    "swapped"
}

/// Put another file of the same kind in a file's place, or beside it under the next number.
fn copy_over(disk: &dyn Storage, example: &Example, random: &mut Random, path: &Path) -> Harm {
    let other = like(example, random, path).to_path_buf();
    let Ok(stat) = disk.stat(&other) else { return Harm::new("missing", &other, "") };
    if stat.len == 0 {
        return Harm::new("empty", &other, "");
    }
    let bytes = read(disk, &other);
    let is_log = path.extension().is_some_and(|end| end == "log");
    let target: PathBuf = if random.once_in(2) && is_log {
        let name = path.file_name().unwrap().to_string_lossy();
        let next = names::parse_segment(&name).unwrap() + 1 + random.below(2);
        path.with_file_name(names::segment(next))
    } else {
        path.to_path_buf()
    };
    let kind = if target == path { "copied" } else { "stale:" };
    put(disk, &target, &bytes);
    Harm::new(kind, &target, &format!(" {} over", other.display()))
}

fn like<'a>(example: &'a Example, random: &mut Random, path: &Path) -> &'a Path {
    if is_beside(path) {
        let all: Vec<_> = example.files.iter().filter(|(other, _)| is_beside(other)).collect();
        return &random.pick(&all).0;
    }
    let end =
        path.extension().map_or("control".into(), |end| format!(".{}", end.to_string_lossy()));
    let end =
        if end == ".json" { path.file_name().unwrap().to_string_lossy().into_owned() } else { end };
    of_kind(example, random, &end)
}
