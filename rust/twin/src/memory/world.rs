//! The live side of the twin: what processes see now, and the journal of all changes.
//!
//! The module owns the names, the files and the locks behind one mutex. Its invariant, on which
//! crash images rely: every change is journaled under the same mutex, in its order. Reads equal the
//! replay of the journal over the base.
//!
//! It is as strict as the kernel where bad code could go unnoticed. A mapped store beyond the end
//! of a file or into a hole, which may be SIGBUS on a real machine, panics.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use falaj::internals::storage::{Filesystem, LockKind, Stat};

use super::bytes::Memory;
use super::disk::{Disk, DiskFile, Node, PAGE, Pages, SECTOR, Sector, Tree, fingerprint, mix};
use super::journal::Event;

/// The constant properties of a storage, which its images inherit.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Most bytes a file can hold, a multiple of the page size.
    pub(super) capacity: u64,
    pub(super) filesystem: Filesystem,
    /// Permission bits that files lose.
    pub(super) lost_modes: u32,
}

/// A lock that is held.
struct HeldLocks {
    open: u64,
    process: u64,
    kind: LockKind,
}

/// One file as it is now.
struct Live {
    /// Its content until `memory` exists.
    begun: Arc<DiskFile>,
    memory: Option<Arc<Memory>>,
    mode: u32,
    len: u64,
    modified_us: i64,
    allocated: Pages,
    data: Pages,
    locks: Vec<HeldLocks>,
    /// How many syncs of this file have failed.
    errors: u32,
}

impl Live {
    fn new(begun: Arc<DiskFile>) -> Self {
        Self {
            memory: None,
            mode: begun.mode,
            len: begun.len,
            modified_us: begun.modified_us,
            allocated: begun.allocated.clone(),
            data: begun.data(),
            locks: Vec::new(),
            errors: 0,
            begun,
        }
    }

    fn memory(&mut self, capacity: u64) -> io::Result<Arc<Memory>> {
        if let Some(memory) = &self.memory {
            return Ok(memory.clone());
        }
        let memory = Arc::new(Memory::new(capacity)?);
        for (number, sector) in &self.begun.sectors {
            memory.write(u64::from(*number) * SECTOR, sector.bytes());
        }
        self.memory = Some(memory.clone());
        Ok(memory)
    }

    /// Return its present content, sharing unchanged parts.
    fn frozen(&self) -> Arc<DiskFile> {
        let Some(memory) = &self.memory else {
            if self.len == self.begun.len && self.allocated == self.begun.allocated {
                return self.begun.clone();
            }
            return Arc::new(self.with(self.begun.sectors.clone()));
        };
        let (mut sectors, mut next) = (Vec::with_capacity(self.begun.sectors.len() + 8), 0);
        while let Some(page) = self.data.next(next) {
            next = page + PAGE;
            for position in (page..next).step_by(SECTOR as usize) {
                let (number, mut bytes) = ((position / SECTOR) as u32, [0; SECTOR as usize]);
                memory.read(position, &mut bytes);
                let begun = self.begun.sector(number);
                let sector = if *begun.bytes() == bytes { begun } else { Sector::new(bytes) };
                if !sector.is_zero() {
                    sectors.push((number, sector));
                }
            }
        }
        Arc::new(self.with(sectors))
    }

    fn with(&self, sectors: Vec<(u32, Arc<Sector>)>) -> DiskFile {
        let (mode, modified_us, len) = (self.mode, self.modified_us, self.len);
        DiskFile { mode, modified_us, len, allocated: self.allocated.clone(), sectors }
    }

    fn print(&self) -> u64 {
        let Some(memory) = &self.memory else { return self.begun.print() };
        let (mut sum, mut next) = (0u64, 0);
        while let Some(page) = self.data.next(next) {
            next = page + PAGE;
            for position in (page..next).step_by(SECTOR as usize) {
                let mut bytes = [0; SECTOR as usize];
                memory.read(position, &mut bytes);
                sum = sum.wrapping_add(Sector::new(bytes).print((position / SECTOR) as u32));
            }
        }
        sum
    }
}

/// The present state.
pub(super) struct World {
    pub(super) settings: Settings,
    /// The disk at the beginning of this storage.
    pub(super) base: Arc<Disk>,
    /// The events since.
    pub(super) events: Vec<Arc<Event>>,
    pub(super) now_us: i64,
    device: u64,
    tree: Tree,
    files: Vec<Option<Live>>,
    opened: u64,
}

impl World {
    /// Make a world whose live content is `live`, which `events` made from `base`.
    pub(super) fn new(
        settings: Settings,
        device: u64,
        base: Arc<Disk>,
        events: Vec<Arc<Event>>,
        live: Disk,
    ) -> Self {
        let files = live.files.into_iter().map(|file| file.map(Live::new)).collect();
        let tree = live.tree;
        Self { settings, base, events, now_us: 0, device, tree, files, opened: 0 }
    }

    /// Return all that processes see.
    pub(super) fn frozen(&self) -> Disk {
        let files = self.files.iter().map(|file| file.as_ref().map(Live::frozen)).collect();
        Disk { files, tree: self.tree.clone() }
    }

    fn note(&mut self, event: Event) {
        self.events.push(Arc::new(event));
    }

    fn live(&mut self, file: u32) -> &mut Live {
        self.files[file as usize].as_mut().expect("an open file exists")
    }

    fn file(&self, file: u32) -> &Live {
        self.files[file as usize].as_ref().expect("an open file exists")
    }

    /// Return a number for an open file, and the file's count of failed syncs.
    pub(super) fn opened(&mut self, file: u32) -> (u64, u32) {
        self.opened += 1;
        (self.opened, self.file(file).errors)
    }

    /// Return the file at a path.
    pub(super) fn find(&self, path: &Path) -> io::Result<u32> {
        match self.tree.find(path)? {
            Node::File(file) => Ok(file),
            Node::Dir(_) => Err(Errno::ISDIR.into()),
        }
    }

    /// Return the file with an inode number.
    pub(super) fn by_inode(&self, inode: u64) -> io::Result<u32> {
        let number = inode.checked_sub(INODE_FILE).and_then(|number| u32::try_from(number).ok());
        let known = |number: &u32| matches!(self.files.get(*number as usize), Some(Some(_)));
        Ok(number.filter(known).ok_or(Errno::NOENT)?)
    }

    /// Make an empty file.
    pub(super) fn create(&mut self, path: &Path, mode: u32) -> io::Result<u32> {
        let (dir, name) = self.tree.split(path)?;
        if self.tree.get(dir, &name).is_some() {
            return Err(Errno::EXIST.into());
        }
        let file = self.files.len() as u32;
        let mode = mode & 0o7777 & !self.settings.lost_modes;
        let begun = DiskFile { mode, modified_us: self.now_us, ..DiskFile::default() };
        self.files.push(Some(Live::new(Arc::new(begun))));
        self.tree.names_mut(dir).insert(name.clone(), Node::File(file));
        self.note(Event::Link { dir, name, node: Node::File(file), mode });
        Ok(file)
    }

    /// Make an empty directory.
    pub(super) fn create_dir(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        if self.tree.find(path).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let (dir, name) = self.tree.split(path)?;
        let mode = mode & 0o7777 & !self.settings.lost_modes;
        let node = Node::Dir(self.tree.add(mode));
        self.tree.names_mut(dir).insert(name.clone(), node);
        self.note(Event::Link { dir, name, node, mode });
        Ok(())
    }

    /// Rename, over an existing target only if `replace`.
    pub(super) fn rename(&mut self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        let (from_dir, from_name) = self.tree.split(from)?;
        let node = self.tree.get(from_dir, &from_name).ok_or(Errno::NOENT)?;
        let (to_dir, to_name) = self.tree.split(to)?;
        match (self.tree.get(to_dir, &to_name), node) {
            (None, _) => {}
            (Some(_), _) if !replace => return Err(Errno::EXIST.into()),
            (Some(old), _) if old == node => return Ok(()),
            (Some(Node::File(_)), Node::File(_)) => {}
            (Some(Node::Dir(old)), Node::Dir(_)) if self.tree.names(old).is_empty() => {}
            (Some(Node::Dir(_)), Node::Dir(_)) => return Err(Errno::NOTEMPTY.into()),
            (Some(Node::Dir(_)), Node::File(_)) => return Err(Errno::ISDIR.into()),
            (Some(Node::File(_)), Node::Dir(_)) => return Err(Errno::NOTDIR.into()),
        }
        if matches!(node, Node::Dir(_)) && to.starts_with(from) {
            return Err(Errno::INVAL.into());
        }
        self.tree.names_mut(from_dir).remove(&from_name);
        self.tree.names_mut(to_dir).insert(to_name.clone(), node);
        self.note(Event::Rename { from_dir, from_name, to_dir, to_name, node });
        Ok(())
    }

    /// Remove a file's name.
    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.tree.split(path)?;
        let node = self.tree.get(dir, &name).ok_or(Errno::NOENT)?;
        if matches!(node, Node::Dir(_)) {
            return Err(Errno::ISDIR.into());
        }
        self.tree.names_mut(dir).remove(&name);
        self.note(Event::Unlink { dir, name, node });
        Ok(())
    }

    /// Remove an empty directory.
    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.tree.split(path)?;
        let node = self.tree.get(dir, &name).ok_or(Errno::NOENT)?;
        let Node::Dir(inner) = node else { return Err(Errno::NOTDIR.into()) };
        if !self.tree.names(inner).is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.tree.names_mut(dir).remove(&name);
        self.note(Event::Unlink { dir, name, node });
        Ok(())
    }

    /// List the names in a directory, sorted.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.tree.names(self.tree.dir(path)?).keys().map(ToString::to_string).collect())
    }

    /// Make the names of a directory durable.
    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.tree.dir(path)?;
        self.note(Event::SyncDir { dir });
        Ok(())
    }

    pub(super) fn stat_path(&self, path: &Path) -> io::Result<Stat> {
        match self.tree.find(path)? {
            Node::File(file) => Ok(self.stat(file)),
            Node::Dir(dir) => Ok(Stat {
                device: self.device,
                inode: INODE_DIR + u64::from(dir),
                len: PAGE,
                allocated: PAGE,
                mode: self.tree.0[dir as usize].mode,
                is_dir: true,
                modified_us: self.now_us,
                links: 1,
            }),
        }
    }

    pub(super) fn stat(&self, number: u32) -> Stat {
        let file = self.file(number);
        Stat {
            device: self.device,
            inode: INODE_FILE + u64::from(number),
            len: file.len,
            allocated: file.allocated.bytes(),
            mode: file.mode,
            is_dir: false,
            modified_us: file.modified_us,
            links: self.tree.links(number),
        }
    }

    pub(super) fn read(&self, number: u32, bytes: &mut [u8], position: u64) -> usize {
        let file = self.file(number);
        let len = file.len.saturating_sub(position).min(bytes.len() as u64) as usize;
        let bytes = &mut bytes[..len];
        match &file.memory {
            None => file.begun.read(position, bytes),
            Some(memory) => {
                let mut done = 0;
                while done < len {
                    let at = position + done as u64;
                    let take = ((PAGE - at % PAGE) as usize).min(len - done);
                    let piece = &mut bytes[done..done + take];
                    if file.data.has(at / PAGE) {
                        memory.read(at, piece);
                    } else {
                        piece.fill(0);
                    }
                    done += take;
                }
            }
        }
        len
    }

    /// Store by `pwrite`: the file grows as far as it must.
    pub(super) fn write(&mut self, number: u32, bytes: &[u8], position: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = self.within(position, bytes.len() as u64)?;
        let capacity = self.settings.capacity;
        let file = self.live(number);
        file.memory(capacity)?.write(position, bytes);
        file.len = file.len.max(end);
        file.allocated.add(position, end);
        self.changed(number, position, bytes.into());
        Ok(())
    }

    /// Store into a map.
    pub(super) fn store(&mut self, number: u32, bytes: &[u8], position: u64) {
        if bytes.is_empty() {
            return;
        }
        self.assert_mapped(number, position, bytes.len() as u64);
        let memory = self.file(number).memory.as_ref().expect("a mapped file has memory");
        memory.write(position, bytes);
        self.changed(number, position, bytes.into());
    }

    /// Note that a word was changed in place. It is read again here, so that the last of two racing
    /// events has the content of memory.
    pub(super) fn noted(&mut self, number: u32, position: u64) {
        let memory = self.file(number).memory.as_ref().expect("a mapped file has memory");
        memory.touch(position, 8);
        self.assert_mapped(number, position, 8);
        let value = memory.word(position).to_le_bytes();
        self.changed(number, position, value.into());
    }

    fn assert_mapped(&self, number: u32, position: u64, len: u64) {
        let file = self.file(number);
        let (end, stat) = (position + len, self.stat(number));
        assert!(
            end <= file.len,
            "mapped store at {position}..{end} beyond the end: SIGBUS; {stat:?}"
        );
        let solid = file.allocated.cover(position, end);
        assert!(
            solid,
            "mapped store at {position}..{end} into a hole: SIGBUS on a full disk; {stat:?}"
        );
    }

    fn changed(&mut self, number: u32, position: u64, bytes: Box<[u8]>) {
        let now = self.now_us;
        let file = self.live(number);
        file.data.add(position, position + bytes.len() as u64);
        file.modified_us = now;
        self.note(Event::Store { file: number, position, bytes });
    }

    /// `fallocate`.
    pub(super) fn allocate(&mut self, number: u32, len: u64) -> io::Result<()> {
        self.within(0, len)?;
        let file = self.live(number);
        if len <= file.len && file.allocated.cover(0, len) {
            return Ok(());
        }
        file.allocated.add(0, len);
        file.len = file.len.max(len);
        self.note(Event::Allocate { file: number, len });
        Ok(())
    }

    /// Return a range to the file system; it reads as zero.
    pub(super) fn punch(&mut self, number: u32, position: u64, len: u64) -> io::Result<()> {
        let capacity = self.settings.capacity;
        let end = position.saturating_add(len).min(capacity);
        if position >= end {
            return Ok(());
        }
        let file = self.live(number);
        let memory = file.memory(capacity)?;
        let mut next = position;
        while let Some(start) = file.data.next(next).filter(|start| *start < end) {
            next = ((start / PAGE + 1) * PAGE).min(end);
            memory.write(start, &[0; PAGE as usize][..(next - start) as usize]);
        }
        file.allocated.remove(position, end);
        file.data.remove(position, end);
        self.note(Event::Punch { file: number, position, len: end - position });
        Ok(())
    }

    pub(super) fn next_data(&self, number: u32, position: u64) -> Option<u64> {
        let file = self.file(number);
        file.data.next(position).filter(|found| *found < file.len)
    }

    /// Make bytes and length durable, unless a sync failed that this open file has not reported
    /// (`seen` counts the reported ones).
    pub(super) fn sync(&mut self, number: u32, seen: u32) -> Result<(), u32> {
        let errors = self.file(number).errors;
        if errors != seen {
            return Err(errors);
        }
        self.note(Event::Sync { file: number });
        Ok(())
    }

    /// Note that a sync failed: see `MemoryStorage::drop_dirty`.
    pub(super) fn drop_dirty(&mut self, number: u32) {
        self.live(number).errors += 1;
        self.note(Event::DropDirty { file: number });
    }

    /// Return the memory of a file, for a map of `len` bytes.
    pub(super) fn map(&mut self, number: u32, len: u64) -> io::Result<Arc<Memory>> {
        let capacity = self.settings.capacity;
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        if len > capacity {
            return Err(Errno::NOMEM.into());
        }
        self.live(number).memory(capacity)
    }

    pub(super) fn try_lock(
        &mut self,
        number: u32,
        open: u64,
        process: u64,
        kind: LockKind,
    ) -> bool {
        let locks = &mut self.live(number).locks;
        let mine = locks.iter().position(|held| held.open == open);
        if mine.is_some_and(|mine| locks[mine].kind == kind) {
            return true;
        }
        // As in the kernel: this open file's old lock is released before the other kind is tried.
        locks.retain(|held| held.open != open);
        let free = match kind {
            LockKind::Exclusive => locks.is_empty(),
            LockKind::Shared => locks.iter().all(|held| held.kind == LockKind::Shared),
        };
        if free {
            locks.push(HeldLocks { open, process, kind });
        }
        free
    }

    pub(super) fn unlock(&mut self, number: u32, open: u64) {
        self.live(number).locks.retain(|held| held.open != open);
    }

    /// Release the locks of a dead process.
    pub(super) fn unlock_all(&mut self, process: u64) {
        for file in self.files.iter_mut().flatten() {
            file.locks.retain(|held| held.process != process);
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        fingerprint(&self.tree, |number| (self.file(number).len, self.file(number).print()))
    }

    pub(super) fn fingerprint_with_space(&self) -> u64 {
        fingerprint(&self.tree, |number| {
            let file = self.file(number);
            (mix(file.len, file.allocated.print()), file.print())
        })
    }

    fn within(&self, position: u64, len: u64) -> io::Result<u64> {
        let end = position.checked_add(len).ok_or(Errno::FBIG)?;
        if end > self.settings.capacity {
            return Err(Errno::NOSPC.into());
        }
        Ok(end)
    }
}

/// Start of directories' inode numbers: files and directories count apart.
const INODE_DIR: u64 = 1;
const INODE_FILE: u64 = 1 << 32;

/// Return the inode number of a file.
pub(super) fn inode(file: u32) -> u64 {
    INODE_FILE + u64::from(file)
}
