//! A file system in a file or on a part of a device, mounted where no other process sees it, and
//! always removed.
//!
//! The mounts live in a namespace of this process's own, and loop devices release their file with
//! the last mount. So the kernel takes both back however this process ends. Mapped parts of a
//! device end with the machine, which is a guest ([`super::device`]).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::device::Mapped;
use crate::random::Random;
use crate::system::{interrupted, shut_down};

/// Bytes of an image; sparse.
const LEN: u64 = 1 << 30;
/// Set for the process that has its own mounts.
const INSIDE: &str = "FALAJ_STORM_HAS_MOUNTS";

/// True when this process has mounts of its own, see [`enter`].
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Run this very program again in a mount namespace of its own; return its exit code.
pub fn enter() -> Result<i32, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]);
    command.arg(exe).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let mut child = command.spawn().map_err(|e| format!("unshare: {e}"))?;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status.code().unwrap_or(130));
        }
        if interrupted() && !told {
            // Ctrl-C reaches both; a signal to the parent's number alone is passed on.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            told = true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A way to cut a file system off from its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// By its own shutdown, with its journal written first: names and sizes are there, data may be
    /// missing.
    LogFlushed,
    /// By its own shutdown, with nothing more written: as if the power failed.
    NoLogFlush,
    /// The device drops all writes, and reports success.
    Dropped,
    /// The device fails all writes.
    Failed,
    /// The same, but for a moment only writes to some sectors fail, and no flush arrives.
    Torn,
}

impl Cut {
    /// Its name in the summary.
    pub fn name(self) -> &'static str {
        match self {
            Cut::LogFlushed => "cuts_with_journal_flushed",
            Cut::NoLogFlush => "cuts_without_journal",
            Cut::Dropped => "cuts_with_writes_dropped",
            Cut::Failed => "cuts_with_writes_failed",
            Cut::Torn => "cuts_with_writes_torn",
        }
    }
}

/// One image, mounted or not.
pub struct Image {
    kind: String,
    file: PathBuf,
    at: PathBuf,
    mounted: bool,
    device: Option<Mapped>,
}

impl Image {
    /// Make the file system and its mount, on a part of a device or in a file.
    ///
    /// The error says why this machine cannot.
    pub fn make(
        kind: &str,
        dir: &Path,
        device: Option<(&Path, (usize, usize))>,
    ) -> Result<Self, String> {
        let at = dir.join(format!("on-{kind}"));
        let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
        std::fs::create_dir_all(&at).map_err(failed)?;
        let device = device.map(|(below, part)| Mapped::make(below, part, kind)).transpose()?;
        let file = device.as_ref().map_or_else(|| dir.join(format!("{kind}.img")), Mapped::path);
        if device.is_none() {
            File::create(&file).and_then(|made| made.set_len(LEN)).map_err(failed)?;
        }
        let quiet = if kind == "ext4" { ["-q", "-F"] } else { ["-q", "-f"] };
        run(Command::new(format!("mkfs.{kind}")).args(quiet).arg(&file))?;
        let mut image = Self { kind: kind.to_owned(), file, at, mounted: false, device };
        image.mount()?;
        Ok(image)
    }

    /// The kind of file system.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Mount it; the file system replays its journal.
    pub fn mount(&mut self) -> Result<(), String> {
        if let Some(device) = &mut self.device {
            device.renew()?;
        }
        let options = ["-o", if self.device.is_some() { "rw" } else { "loop" }, "-t", &self.kind];
        run(Command::new("mount").args(options).arg(&self.file).arg(&self.at))?;
        self.mounted = true;
        Ok(())
    }

    /// Draw a way to cut it.
    pub fn a_cut(&self, random: &mut Random) -> Cut {
        let rare = random.chance(1, 4);
        match &self.device {
            None if rare => Cut::LogFlushed,
            None => Cut::NoLogFlush,
            Some(_) => *random.pick(&[Cut::Dropped, Cut::Failed, Cut::Torn, Cut::Torn]),
        }
    }

    /// Cut it off from its device.
    pub fn cut(&self, how: Cut, random: &mut Random) -> Result<(), String> {
        if let Some(device) = &self.device {
            return device.cut(how, random);
        }
        let failed = |e: std::io::Error| format!("shutdown of {}: {e}", self.kind);
        let directory = File::open(&self.at).map_err(failed)?;
        shut_down(&directory, how == Cut::LogFlushed).map_err(failed)
    }

    /// Unmount it. Its users have ended, but the kernel may still be closing their files.
    pub fn unmount(&mut self) -> Result<(), String> {
        let mut last = Ok(());
        for _ in 0..100 {
            last = run(Command::new("umount").arg(&self.at));
            if last.is_ok() {
                self.mounted = false;
                return last;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        last
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            let _ = run(Command::new("umount").arg("-l").arg(&self.at));
        }
    }
}

pub(super) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|e| format!("{name}: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&done.stderr).trim()))
}
