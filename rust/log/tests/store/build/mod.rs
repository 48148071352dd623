//! Stores that are built from pieces: what another store was taken apart into, from a place that may
//! be wrong.

mod contents;
mod crashes;
mod hostile;
mod resumed;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::segment::{Mark, SegmentHeader};
use falaj::internals::format::{FIRST_BLOCK, names};
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Parent, PieceBuilder, PieceOptions, RestoreReport};

use crate::stores::quietly;

/// Bytes of an end block.
const END_BLOCK: u64 = 56;
/// An origin that wrote the pieces.
const PARENT: Parent = Parent { origin: [9; 16], number: 41 };

/// A small file: its path, its length, and what it has.
#[derive(Clone, Debug)]
struct TakenFile {
    path: String,
    len: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

/// A segment of a log.
#[derive(Clone, Debug)]
struct TakenSegment {
    log: String,
    header: Vec<u8>,
    sequence: u64,
    end: u64,
    sealed: bool,
    /// All up to its length.
    bytes: Vec<u8>,
}

/// The pieces of a store.
#[derive(Clone, Debug, Default)]
struct Taken {
    files: Vec<TakenFile>,
    segments: Vec<TakenSegment>,
}

fn read(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; storage.stat(path).unwrap().len as usize];
    storage.open(path, OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Take a store apart that was closed in order.
fn take_apart(storage: &dyn Storage, root: &Path) -> Taken {
    let mut taken = Taken::default();
    let mut paths = vec!["falaj.json".to_owned()];
    for name in storage.list(&root.join("topics")).unwrap() {
        paths.push(format!("topics/{name}/topic.json"));
    }
    for folder in ["consumers", "queues"] {
        for name in storage.list(&root.join(folder)).unwrap_or_default() {
            paths.push(format!("{folder}/{name}"));
        }
    }
    for path in paths {
        let bytes = read(storage, &root.join(&path));
        let len = bytes.len() as u64;
        let pages = (0..).step_by(4096).zip(bytes.chunks(4096));
        let filled = pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        let parts = filled.map(|(at, page)| (at, page.to_vec())).collect();
        taken.files.push(TakenFile { path, len, parts });
    }
    for log in storage.list(&root.join("logs")).unwrap() {
        taken.segments.extend(take_log(storage, &root.join("logs").join(&log), &log));
    }
    taken
}

fn take_log(storage: &dyn Storage, dir: &Path, log: &str) -> Vec<TakenSegment> {
    let listed = storage.list(dir).unwrap();
    let files: BTreeMap<u64, Vec<u8>> = listed
        .iter()
        .filter_map(|name| Some((names::parse_segment(name)?, read(storage, &dir.join(name)))))
        .collect();
    let (newest, bytes) = files.last_key_value().unwrap();
    let salt = SegmentHeader::decode(bytes).unwrap().salt;
    let mark = Mark::newest(bytes, salt).expect("a log that was closed has a mark");
    let (mut at, mut end, mut named) = (*newest, mark.position, false);
    let mut segments = Vec::new();
    loop {
        let bytes = &files[&at];
        let header = SegmentHeader::decode(bytes).unwrap();
        let len = end + if named { END_BLOCK } else { 0 };
        segments.push(TakenSegment {
            log: log.to_owned(),
            header: bytes[..512].to_vec(),
            sequence: at,
            end,
            sealed: at != *newest,
            bytes: bytes[..len as usize].to_vec(),
        });
        let previous = header.previous.filter(|previous| files.contains_key(&previous.sequence));
        let Some(previous) = previous else { break };
        (at, end, named) = (previous.sequence, previous.end, !header.supersedes);
    }
    segments.reverse();
    segments
}

/// Random numbers from a seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

fn begin(storage: &Arc<dyn Storage>, at: &Path) -> Result<PieceBuilder> {
    PieceBuilder::begin_on(Arc::clone(storage), at, PieceOptions::default())
}

fn give_file(builder: &PieceBuilder, file: &TakenFile) -> Result<()> {
    let parts: Vec<_> = file.parts.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
    builder.file(&file.path, file.len, &parts)
}

fn give_segment(builder: &PieceBuilder, segment: &TakenSegment) -> Result<()> {
    let TakenSegment { log, header, end, sealed, bytes, .. } = segment;
    builder.segment(log, header, *end, bytes.len() as u64, *sealed).map(drop)
}

/// Ranges of a segment, of random lengths. In a compacted one, pages with zeros alone are left out, as
/// holes are.
fn chunks(segment: &TakenSegment, draws: &mut Draws) -> Vec<(u64, u64)> {
    let (mut at, len) = (FIRST_BLOCK, segment.bytes.len() as u64);
    let compacted = SegmentHeader::decode(&segment.header).is_ok_and(|h| h.replaces.is_some());
    let is_zero = |page: &u64| {
        let bytes = &segment.bytes[*page as usize..len.min(page + 4096) as usize];
        compacted && bytes.iter().all(|byte| *byte == 0)
    };
    let mut found = Vec::new();
    while at < len {
        let next = at.next_multiple_of(4096);
        let hole = (next..len).step_by(4096).find(is_zero).unwrap_or(len);
        let end = hole.min(at + 1 + draws.next() % 40_000);
        if end > at {
            found.push((at, end));
        }
        at = if end == hole { len.min(hole + 4096) } else { end };
    }
    found
}

/// Give everything, in an order and in sizes that follow from the seed.
fn give_all(builder: &PieceBuilder, taken: &Taken, seed: u64) -> Result<()> {
    let mut draws = Draws(seed);
    let mut files: Vec<_> = taken.files.iter().collect();
    draws.shuffle(&mut files);
    let (early, late) = files.split_at(files.len() / 2);
    early.iter().try_for_each(|file| give_file(builder, file))?;
    let mut segments: Vec<_> = taken.segments.iter().collect();
    draws.shuffle(&mut segments);
    segments.iter().try_for_each(|segment| give_segment(builder, segment))?;
    let mut all: Vec<_> = segments
        .iter()
        .flat_map(|segment| chunks(segment, &mut draws).into_iter().map(move |at| (*segment, at)))
        .collect();
    draws.shuffle(&mut all);
    for (segment, (start, end)) in all {
        let bytes = &segment.bytes[start as usize..end as usize];
        builder.write(&segment.log, segment.sequence, start, bytes)?;
    }
    late.iter().try_for_each(|file| give_file(builder, file))
}

fn build(storage: &Arc<dyn Storage>, taken: &Taken, at: &Path, seed: u64) -> Result<RestoreReport> {
    let builder = begin(storage, at)?;
    match give_all(&builder, taken, seed) {
        Ok(()) => builder.finish(Some(PARENT), &mut quietly),
        Err(error) => {
            builder.discard();
            Err(error)
        }
    }
}

/// The names beside a destination: nothing else may be there.
fn beside(storage: &Arc<dyn Storage>, root: &Path) -> Vec<String> {
    storage.list(root).unwrap()
}

fn is_corrupt_pieces(error: &Error) -> bool {
    matches!(error, Error::CorruptPieces { .. })
}
