//! The kernel's files: the storage that falaj ships with.
//!
//! The module owns every descriptor and every system call on one. The modules above rely on its
//! invariants. Descriptors are close-on-exec and never follow a symbolic link in the last
//! component. Only regular files are opened. An interrupted call (`EINTR`) is repeated here,
//! invisible to callers. Every error keeps the kernel's number.
//!
//! | file | owns |
//! |---|---|
//! | [`mod@self`] | paths: open, rename, unlink, directories, kind of file system, clock, random numbers |
//! | `file` | one open file: positional I/O, allocation, sync |
//! | `descriptor` | its number, and when that is returned to the kernel |
//! | `map` | `mmap`, and stores by `pwrite` where memory is not mapped for writing |
//! | `limits` | how many unused maps the process may keep |
//! | `lock` | `flock`, all uses of `fs2` |
//! | [`futex`] | sleeping on a shared word |
//!
//! The modules above decide what a path means, in which order things are synced, and which process
//! may hold which lock (`docs/PROTOCOL.md`).

mod descriptor;
mod file;
pub mod futex;
mod limits;
mod lock;
mod map;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, chmod, fchmod, fstat, fsync, linkat,
    lstat, mkdir, rename, renameat_with, rmdir, statfs, unlink,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

use super::{File, Filesystem, OpenMode, Stat, Storage};

pub use file::RealFile;
pub use limits::spare_maps;
pub use map::private as private_memory;

/// The machine's own files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealStorage;

impl RealStorage {
    /// Return the machine's own files. Costs nothing; all values are alike.
    pub fn new() -> Self {
        Self
    }
}

impl Storage for RealStorage {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Arc<dyn File>> {
        let (access, mode) = match how {
            OpenMode::Read => (OFlags::RDONLY, 0),
            OpenMode::ReadWrite => (OFlags::RDWR, 0),
            OpenMode::CreateNew(mode) => (OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode),
        };
        // Without NONBLOCK a planted FIFO would hang the opener; on regular files it has no effect.
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(mode)))?;
        let found = fstat(&file)?.st_mode;
        match FileType::from_raw_mode(found) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        if let OpenMode::CreateNew(mode) = how {
            give_back(&file, found, mode).inspect_err(|_| unlink(path).unwrap_or(()))?;
        }
        Ok(Arc::new(RealFile::new(file, how != OpenMode::Read)?))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match retry_on_intr(|| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)) {
            // Some file systems lack that flag: a second name is refused if one exists, too.
            Err(Errno::INVAL | Errno::NOSYS) => {
                retry_on_intr(|| linkat(CWD, from, CWD, to, AtFlags::empty()))?;
                Ok(retry_on_intr(|| unlink(from))?)
            }
            other => Ok(other?),
        }
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rename(from, to))?)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| unlink(path))?)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        retry_on_intr(|| mkdir(path, Mode::from_raw_mode(mode)))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |how| retry_on_intr(|| rustix::fs::open(path, flags | how, Mode::empty()));
        let made = match open(OFlags::RDONLY) {
            // The umask removed even the owner's read permission.
            Err(Errno::ACCESS) => open(OFlags::PATH).and_then(|found| {
                let of_this_process = format!("/proc/self/fd/{}", found.as_raw_fd());
                retry_on_intr(|| chmod(&*of_this_process, Mode::from_raw_mode(mode)))
            }),
            opened => {
                opened.and_then(|directory| give_back(&directory, fstat(&directory)?.st_mode, mode))
            }
        };
        Ok(made.inspect_err(|_| rmdir(path).unwrap_or(()))?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rmdir(path))?)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        for entry in Dir::new(directory)? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // A link is followed only here: the store itself may be one, and a sync changes nothing.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        Ok(retry_on_intr(|| fsync(&directory))?)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(told(&retry_on_intr(|| lstat(path))?))
    }

    fn filesystem(&self, path: &Path) -> io::Result<Filesystem> {
        // The width of `f_type` differs between libraries; every magic number fits 32 bits.
        #[allow(clippy::cast_sign_loss, reason = "a bit pattern, not a number")]
        Ok(kind(retry_on_intr(|| statfs(path))?.f_type as u32))
    }

    fn now_us(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
        }
    }

    #[inline]
    fn tick_us(&self) -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        now.tv_sec.wrapping_mul(1_000_000).wrapping_add(now.tv_nsec / 1000)
    }

    fn steady_us(&self) -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec.wrapping_mul(1_000_000).wrapping_add(now.tv_nsec / 1000)
    }

    fn random(&self) -> io::Result<u64> {
        let mut bytes = [0u8; 8];
        // Up to 256 bytes come whole or not at all.
        retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Give a new file or directory the permission bits that the umask removed.
fn give_back(made: &impl AsFd, found: u32, asked: u32) -> Result<(), Errno> {
    if found & asked == asked {
        return Ok(());
    }
    retry_on_intr(|| fchmod(made, Mode::from_raw_mode(found & 0o7777 | asked)))
}

/// Convert the kernel's `stat` to ours.
#[allow(clippy::useless_conversion, reason = "the width of `st_nlink` differs between machines")]
fn told(stat: &rustix::fs::Stat) -> Stat {
    let microseconds = i64::try_from(stat.st_mtime_nsec / 1_000).unwrap_or(0);
    Stat {
        device: stat.st_dev,
        inode: stat.st_ino,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        allocated: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
        mode: stat.st_mode & 0o7777,
        is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        modified_us: stat.st_mtime * 1_000_000 + microseconds,
        links: u64::from(stat.st_nlink),
    }
}

/// Interpret a magic number of `statfs` (`man 2 statfs`, `linux/magic.h`).
fn kind(magic: u32) -> Filesystem {
    use Filesystem::{CopyOnWrite, Promises, Remote, Unknown};
    match magic {
        0x0000_ef53 => Promises("ext2/ext3/ext4"),
        0x5846_5342 => Promises("xfs"),
        0x0102_1994 => Promises("tmpfs"),
        0xf2f5_2010 => Promises("f2fs"),
        0x9123_683e => CopyOnWrite("btrfs"),
        0x2fc1_2fc1 => CopyOnWrite("zfs"),
        0xca45_1a4e => CopyOnWrite("bcachefs"),
        0x794c_7630 => CopyOnWrite("overlayfs"),
        0x0000_6969 => Remote("nfs"),
        0xff53_4d42 => Remote("cifs"),
        0xfe53_4d42 => Remote("smb2"),
        0x0000_517b => Remote("smb"),
        0x0102_1997 => Remote("9p"),
        0x6573_5546 => Remote("fuse"),
        0x6a65_6a63 => Remote("virtiofs"),
        0x00c3_6400 => Remote("ceph"),
        0x0bd0_0bd0 => Remote("lustre"),
        0x5346_414f | 0x6b41_4653 => Remote("afs"),
        0x0116_1970 => Remote("gfs2"),
        0x7461_636f => Remote("ocfs2"),
        0x7375_7245 => Remote("coda"),
        0x4750_4653 => Remote("gpfs"),
        0x2003_0528 => Remote("orangefs"),
        0x1983_0326 => Remote("beegfs"),
        0xaad7_aaea => Remote("panfs"),
        0x786f_4256 => Remote("vboxsf"),
        0xbacb_acbc => Remote("vmhgfs"),
        0x7c7c_6673 => Remote("prl_fs"),
        0x5346_4846 => Remote("wslfs"),
        other => Unknown(i64::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_file_system_is_recognised_by_its_number() {
        assert!(matches!(kind(0xef53), Filesystem::Promises("ext2/ext3/ext4")));
        assert!(matches!(kind(0x9123_683e), Filesystem::CopyOnWrite("btrfs")));
        assert!(matches!(kind(0x6573_5546), Filesystem::Remote("fuse")));
        assert_eq!(kind(0x1234_5678), Filesystem::Unknown(0x1234_5678));
    }

    #[test]
    fn random_numbers_differ_and_the_clock_is_past_2020() {
        let machine = RealStorage::new();
        assert_ne!(machine.random().unwrap(), machine.random().unwrap());
        assert!(machine.now_us() > 1_577_836_800_000_000);
    }
}
