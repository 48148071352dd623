//! A block device that can be cut, by the kernel's device mapper.
//!
//! It maps a part of a device of our own, under a name of its own. It passes everything on until it
//! is cut. Then writes are dropped or fail. Or for a moment they fail in places and arrive in
//! others, as when a disk was in the middle of them. Invariant: no flush arrives after a cut, so a
//! file system's later promises of durability do not count.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::mount::{Cut, run};
use crate::random::Random;

/// Sectors of a stripe that arrives or fails as a whole, in a torn moment.
const STRIPE_BITS: u64 = 9;
/// Sectors that are left free at the beginning of a device.
const ALIGNED: u64 = 2048;

/// A part of a device, mapped.
#[derive(Debug)]
pub struct Mapped {
    name: String,
    below: PathBuf,
    begin: u64,
    sectors: u64,
    mapped: bool,
}

impl Mapped {
    /// Map one of so many equal parts.
    pub fn make(below: &Path, (part, of): (usize, usize), name: &str) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", below.display());
        let len = File::open(below).and_then(|mut file| file.seek(SeekFrom::End(0)));
        let sectors = (len.map_err(failed)? / 512 - ALIGNED) / of as u64 / 8 * 8;
        let begin = ALIGNED + part as u64 * sectors;
        let name = format!("falaj-{name}");
        let mut device = Self { name, below: below.into(), begin, sectors, mapped: false };
        device.renew()?;
        Ok(device)
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }

    /// A stripe that passes writes on, or treats them as the feature says.
    fn stripe(&self, begin: u64, sectors: u64, feature: Option<&str>) -> String {
        let at =
            format!("{begin} {sectors} flakey {} {}", self.below.display(), self.begin + begin);
        match feature {
            None => format!("{at} 1 0\n"),
            Some(feature) => format!("{at} 0 1 1 {feature}\n"),
        }
    }

    /// Start over, passing everything on; the kernel forgets what it had in memory.
    pub fn renew(&mut self) -> Result<(), String> {
        self.remove()?;
        let table = self.stripe(0, self.sectors, None);
        dmsetup(&["create", "--noudevsync", "--noudevrules", &self.name], Some(&table))?;
        self.mapped = true;
        dmsetup(&["mknodes", &self.name], None)
    }

    /// Cut it.
    pub fn cut(&self, how: Cut, random: &mut Random) -> Result<(), String> {
        let (dropped, failed) = ("drop_writes", "error_writes");
        if how == Cut::Torn {
            let (mut table, mut at) = (String::new(), 0);
            while at < self.sectors {
                let sectors = random.magnitude(STRIPE_BITS).min(self.sectors - at);
                let feature = random.chance(1, 2).then_some(failed);
                table += &self.stripe(at, sectors, feature);
                at += sectors;
            }
            self.swap(&table)?;
            std::thread::sleep(Duration::from_millis(random.magnitude(5)));
        }
        let feature = if how == Cut::Dropped { dropped } else { failed };
        self.swap(&self.stripe(0, self.sectors, Some(feature)))
    }

    /// Swap the table, from one moment to the next: requests under way are awaited, nothing is
    /// flushed.
    fn swap(&self, table: &str) -> Result<(), String> {
        let name = self.name.as_str();
        dmsetup(&["load", name], Some(table))?;
        dmsetup(&["suspend", "--nolockfs", "--noflush", name], None)?;
        dmsetup(&["resume", "--noudevsync", name], None)
    }

    fn remove(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.mapped) {
            return Ok(());
        }
        dmsetup(&["remove", "--noudevsync", "--retry", &self.name], None)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

fn dmsetup(words: &[&str], table: Option<&str>) -> Result<(), String> {
    let mut command = Command::new("dmsetup");
    command.args(words);
    let Some(table) = table else { return run(&mut command) };
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|e| format!("dmsetup: {e}"))?;
    let told = child.stdin.take().map_or(Ok(()), |mut to| to.write_all(table.as_bytes()));
    let done = child.wait_with_output().map_err(|e| format!("dmsetup: {e}"))?;
    if done.status.success() && told.is_ok() {
        return Ok(());
    }
    Err(format!("dmsetup {words:?}: {}", String::from_utf8_lossy(&done.stderr).trim()))
}
