//! The immutable contents of a disk: sectors, lengths and names.
//!
//! The module owns the immutable side of the twin: a storage begins with a [`Disk`], and a crash
//! image is made from one. Images share sectors, so an image costs only its differences. Zero
//! sectors are left out everywhere: an absent sector reads as zero.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

/// The unit that a disk writes whole or not at all.
pub(super) const SECTOR: u64 = 512;
/// The unit of allocation and of holes.
pub(super) const PAGE: u64 = 4096;

/// 512 bytes that never change.
pub(super) struct Sector {
    bytes: [u8; SECTOR as usize],
    /// Computed on demand: most versions of a sector are on no image.
    hash: OnceLock<u64>,
}

impl Sector {
    pub(super) fn new(bytes: [u8; SECTOR as usize]) -> Arc<Self> {
        Arc::new(Self { bytes, hash: OnceLock::new() })
    }

    /// Return the sector that stands for every absent one.
    pub(super) fn zero() -> Arc<Self> {
        static ZERO: OnceLock<Arc<Sector>> = OnceLock::new();
        ZERO.get_or_init(|| Self::new([0; SECTOR as usize])).clone()
    }

    pub(super) fn bytes(&self) -> &[u8; SECTOR as usize] {
        &self.bytes
    }

    pub(super) fn is_zero(&self) -> bool {
        self.bytes == [0; SECTOR as usize]
    }

    /// Return this sector's part of a file's fingerprint; 0 when it is zero.
    pub(super) fn print(&self, number: u32) -> u64 {
        if self.is_zero() {
            return 0;
        }
        mix(*self.hash.get_or_init(|| hash(&self.bytes)), u64::from(number))
    }
}

/// A set of pages.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Pages(Vec<u64>);

impl Pages {
    /// Add every page that `[from, to)` touches.
    pub(super) fn add(&mut self, from: u64, to: u64) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            let word = (page / 64) as usize;
            if word >= self.0.len() {
                self.0.resize(word + 1, 0);
            }
            self.0[word] |= 1 << (page % 64);
        }
    }

    /// Remove every page that lies wholly in `[from, to)`.
    pub(super) fn remove(&mut self, from: u64, to: u64) {
        let end = (to / PAGE).min(self.0.len() as u64 * 64);
        for page in from.div_ceil(PAGE)..end {
            self.0[(page / 64) as usize] &= !(1 << (page % 64));
        }
    }

    /// Return true when `[from, to)` lies in pages of the set.
    pub(super) fn cover(&self, from: u64, to: u64) -> bool {
        (from / PAGE..to.div_ceil(PAGE)).all(|page| self.has(page))
    }

    pub(super) fn has(&self, page: u64) -> bool {
        self.0.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Return the first byte at or after `position` that lies in a page of the set.
    pub(super) fn next(&self, position: u64) -> Option<u64> {
        let end = self.0.len() as u64 * 64;
        let page = (position / PAGE..end).find(|page| self.has(*page))?;
        Some((page * PAGE).max(position))
    }

    /// Return a hash of the set.
    pub(super) fn print(&self) -> u64 {
        let used = self.0.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        self.0[..used].iter().fold(0, |sum, word| mix(sum, *word))
    }

    /// Return the bytes of the pages.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() * PAGE
    }
}

/// One file.
#[derive(Clone, Default)]
pub(super) struct DiskFile {
    pub(super) mode: u32,
    pub(super) modified_us: i64,
    pub(super) len: u64,
    pub(super) allocated: Pages,
    /// Sorted by number, none of them zero, none beyond the length.
    pub(super) sectors: Vec<(u32, Arc<Sector>)>,
}

impl DiskFile {
    /// Return the sector with that number.
    pub(super) fn sector(&self, number: u32) -> Arc<Sector> {
        match self.sectors.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(found) => self.sectors[found].1.clone(),
            Err(_) => Sector::zero(),
        }
    }

    /// Copy out `[position, position + into.len())`.
    pub(super) fn read(&self, position: u64, into: &mut [u8]) {
        into.fill(0);
        let end = position + into.len() as u64;
        let first = self
            .sectors
            .partition_point(|(number, _)| (u64::from(*number) + 1) * SECTOR <= position);
        for (number, sector) in &self.sectors[first..] {
            let start = u64::from(*number) * SECTOR;
            if start >= end {
                break;
            }
            let (from, to) = (start.max(position), (start + SECTOR).min(end));
            into[(from - position) as usize..(to - position) as usize]
                .copy_from_slice(&sector.bytes()[(from - start) as usize..(to - start) as usize]);
        }
    }

    /// Make this file with changed sectors, cut at a length: contents and allocation beyond it are
    /// lost.
    pub(super) fn with(&self, mut changed: Vec<(u32, Arc<Sector>)>, len: u64) -> Self {
        changed.sort_by_key(|(number, _)| *number);
        let mut sectors = Vec::with_capacity(self.sectors.len() + changed.len());
        let mut old = self.sectors.iter().cloned().peekable();
        for (number, sector) in changed {
            while let Some(kept) = old.next_if(|(other, _)| *other < number) {
                sectors.push(kept);
            }
            old.next_if(|(other, _)| *other == number);
            sectors.push((number, sector));
        }
        sectors.extend(old);
        sectors.retain(|(_, sector)| !sector.is_zero());
        let mut file = Self {
            mode: self.mode,
            modified_us: self.modified_us,
            len,
            allocated: self.allocated.clone(),
            sectors,
        };
        file.cut();
        file
    }

    fn cut(&mut self) {
        let len = self.len;
        self.allocated.remove(len.next_multiple_of(PAGE), u64::MAX);
        self.sectors.retain(|(number, _)| u64::from(*number) * SECTOR < len);
        let Some((number, last)) = self.sectors.last_mut() else { return };
        let keep = len - u64::from(*number) * SECTOR;
        if keep < SECTOR {
            let mut bytes = *last.bytes();
            bytes[keep as usize..].fill(0);
            *last = Sector::new(bytes);
        }
        if last.is_zero() {
            self.sectors.pop();
        }
    }

    /// Return the pages that have non-zero bytes.
    pub(super) fn data(&self) -> Pages {
        let mut pages = Pages::default();
        for (number, _) in &self.sectors {
            let start = u64::from(*number) * SECTOR;
            pages.add(start, start + SECTOR);
        }
        pages
    }

    /// Return a hash of the bytes.
    pub(super) fn print(&self) -> u64 {
        self.sectors.iter().fold(0, |sum, (number, sector)| sum.wrapping_add(sector.print(*number)))
    }
}

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Node {
    File(u32),
    Dir(u32),
}

/// One directory.
#[derive(Clone, Default)]
pub(super) struct Directory {
    pub(super) mode: u32,
    pub(super) names: BTreeMap<Arc<str>, Node>,
}

/// All directories by number; number 0 is the root.
#[derive(Clone)]
pub(super) struct Tree(pub(super) Vec<Arc<Directory>>);

impl Tree {
    pub(super) fn new() -> Self {
        Self(vec![Arc::new(Directory { mode: 0o755, names: BTreeMap::new() })])
    }

    /// Add an empty directory without a name.
    pub(super) fn add(&mut self, mode: u32) -> u32 {
        self.0.push(Arc::new(Directory { mode, names: BTreeMap::new() }));
        self.0.len() as u32 - 1
    }

    pub(super) fn names(&self, dir: u32) -> &BTreeMap<Arc<str>, Node> {
        &self.0[dir as usize].names
    }

    pub(super) fn names_mut(&mut self, dir: u32) -> &mut BTreeMap<Arc<str>, Node> {
        &mut Arc::make_mut(&mut self.0[dir as usize]).names
    }

    pub(super) fn get(&self, dir: u32, name: &str) -> Option<Node> {
        self.names(dir).get(name).copied()
    }

    /// List every file that a path leads to, with its path, in a fixed order; directories end with
    /// `/`.
    pub(super) fn paths(&self) -> Vec<(String, Node)> {
        let mut found = Vec::new();
        self.collect(0, "/", &mut found);
        found
    }

    fn collect(&self, dir: u32, path: &str, found: &mut Vec<(String, Node)>) {
        for (name, node) in self.names(dir) {
            match node {
                Node::File(_) => found.push((format!("{path}{name}"), *node)),
                Node::Dir(inner) => {
                    let path = format!("{path}{name}/");
                    found.push((path.clone(), *node));
                    self.collect(*inner, &path, found);
                }
            }
        }
    }

    /// Iterate over the targets of all names, reachable or not.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.0.iter().flat_map(|dir| dir.names.values().copied())
    }

    /// Count the names of a file.
    pub(super) fn links(&self, file: u32) -> u64 {
        self.nodes().filter(|node| *node == Node::File(file)).count() as u64
    }

    /// Return the place of a node's name: it has one at most.
    pub(super) fn place(&self, node: Node) -> Option<(u32, Arc<str>)> {
        (0..self.0.len() as u32).find_map(|dir| {
            let (name, _) = self.names(dir).iter().find(|(_, other)| **other == node)?;
            Some((dir, name.clone()))
        })
    }

    /// Split a path into the directory that holds its last name, and that name.
    pub(super) fn split(&self, path: &std::path::Path) -> Result<(u32, Arc<str>), Errno> {
        let (dir, last) = self.walk(path)?;
        Ok((dir, last.ok_or(Errno::BUSY)?.into()))
    }

    /// Return the target of a path.
    pub(super) fn find(&self, path: &std::path::Path) -> Result<Node, Errno> {
        let (dir, last) = self.walk(path)?;
        let Some(last) = last else { return Ok(Node::Dir(0)) };
        self.get(dir, last).ok_or(Errno::NOENT)
    }

    /// Return the directory of a path.
    pub(super) fn dir(&self, path: &std::path::Path) -> Result<u32, Errno> {
        let (dir, last) = self.walk(path)?;
        last.map_or(Ok(dir), |last| self.enter(dir, last))
    }

    /// Return the directory of a path's last name, and that name; none for the root.
    fn walk<'a>(&self, path: &'a std::path::Path) -> Result<(u32, Option<&'a str>), Errno> {
        let path = path.to_str().filter(|path| !path.contains('\0')).ok_or(Errno::INVAL)?;
        let (mut dir, mut last) = (0, None);
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            if name == ".." {
                return Err(Errno::INVAL);
            }
            if name.len() > 255 {
                return Err(Errno::NAMETOOLONG);
            }
            if let Some(before) = last.replace(name) {
                dir = self.enter(dir, before)?;
            }
        }
        Ok((dir, last))
    }

    fn enter(&self, dir: u32, name: &str) -> Result<u32, Errno> {
        match self.get(dir, name) {
            Some(Node::Dir(inner)) => Ok(inner),
            Some(Node::File(_)) => Err(Errno::NOTDIR),
            None => Err(Errno::NOENT),
        }
    }
}

/// Files and names.
#[derive(Clone)]
pub(super) struct Disk {
    /// By number; a number is never used twice.
    pub(super) files: Vec<Option<Arc<DiskFile>>>,
    pub(super) tree: Tree,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self { files: Vec::new(), tree: Tree::new() }
    }

    /// See [`fingerprint`].
    pub(super) fn fingerprint(&self) -> u64 {
        fingerprint(&self.tree, |number| match &self.files[number as usize] {
            Some(file) => (file.len, file.print()),
            None => (0, 0),
        })
    }
}

/// Hash names, lengths and bytes: `file` returns length and bytes of a file by its number.
pub(super) fn fingerprint(tree: &Tree, mut file: impl FnMut(u32) -> (u64, u64)) -> u64 {
    tree.paths().iter().fold(0, |sum, (path, node)| {
        let sum = mix(sum, hash(path.as_bytes()));
        match node {
            Node::File(number) => {
                let (len, bytes) = file(*number);
                mix(mix(sum, len), bytes)
            }
            Node::Dir(_) => sum,
        }
    })
}

/// Compute a hash to distinguish states; it is stored nowhere.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let add = |sum: u64, chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum, u64::from_le_bytes(word))
    };
    // Four at a time: a round takes the processor long, but it can do several at once.
    let mut lanes = [bytes.len() as u64, 1, 2, 3];
    let (whole, rest) = bytes.split_at(bytes.len() & !31);
    for words in whole.chunks_exact(32) {
        for (lane, word) in lanes.iter_mut().zip(words.chunks_exact(8)) {
            *lane = add(*lane, word);
        }
    }
    let sum = lanes.into_iter().fold(0, mix);
    rest.chunks(8).fold(sum, add)
}

/// Mix a value into a hash (a round of splitmix64).
pub(super) fn mix(sum: u64, value: u64) -> u64 {
    let mut z = (sum.rotate_left(23) ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
