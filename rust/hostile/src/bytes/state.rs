//! Forged files of groups and queues, also while a process works with them.
//!
//! Owns the changes of these files. The parts of a queue's file that are derived from its entries
//! have no checksum. A process believes them while one of its incarnation has the file open. So a
//! [`Neighbour`] opens it first, and then its heap, links and lanes are forged. Whatever they hold,
//! taking must end, and no process may panic.

use std::ops::Range;
use std::time::Duration;

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::error::Error;
use falaj::internals::format::consumer;
use falaj::internals::format::queue::{Parts, VERSION_LEN, at};
use falaj::internals::queue::{LeasedJob, QueueFile};
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::Store;
use falaj::internals::topic::Topic;
use falaj_twin::memory::MemoryStorage;

use super::forged::edge_word;
use super::harm::{Harm, put};
use super::{forge, make};
use crate::beside::{HOME, KEPT, QUEUE, READER, queue_options, take_until_empty, topic};
use crate::example::{Example, ROOT, options, read};
use crate::random::Random;

/// Forging makes no file longer than this: on the disk they hold 256 KiB.
const LONG: usize = 160 << 10;
/// Most slots of a queue whose file fits the disk.
const PLACES_MAX: u64 = 1024;

/// Forge one of these files: in place, as a process with a bad pointer would, or as a new file.
pub fn forge_one(disk: &dyn Storage, example: &Example, random: &mut Random) -> Harm {
    let is_queue = random.once_in(2);
    let name = if is_queue { QUEUE.0 } else { random.pick(&[READER, KEPT]).0 };
    let path = example.beside_file(name);
    let mut bytes = read(disk, path);
    let what =
        if is_queue { forge_queue(&mut bytes, random) } else { forge_consumer(&mut bytes, random) };
    if random.once_in(4) {
        put(disk, path, &bytes);
    } else {
        let file = disk.open(path, OpenMode::ReadWrite).unwrap();
        file.write_at(&bytes, 0).unwrap();
        file.allocate(bytes.len() as u64).unwrap();
    }
    Harm::new("forged", path, &format!(" {what} in"))
}

/// Change words of a part of a file: to an extreme value, or to another word of the part.
fn muddle(bytes: &mut [u8], random: &mut Random, part: Range<u64>) {
    let part = part.start as usize..bytes.len().min(part.end as usize);
    let Some(part) = bytes.get_mut(part) else { return };
    for _ in 0..1 + random.below(4) {
        let words = part.len() as u64 / 8;
        if random.once_in(2) && words > 0 {
            let (from, to) = (8 * random.below(words) as usize, 8 * random.below(words) as usize);
            part.copy_within(from..from + 8, to);
        } else {
            let room = part.len() as u64 / 8 + 1;
            let at = (8 * random.below(room) as usize).min(part.len());
            edge_word(&mut part[at..], random, 0, 8);
        }
    }
}

fn forge_consumer(bytes: &mut Vec<u8>, random: &mut Random) -> &'static str {
    let entry = consumer::entry(random.below(consumer::entries_in(bytes.len() as u64).max(1)));
    let what = match random.below(8) {
        0 => {
            muddle(bytes, random, 8..60);
            "header"
        }
        1 => {
            let part = random.pick(&[64..136, 2048..4096, 4096..8192]).clone();
            muddle(bytes, random, part);
            "words"
        }
        2 => {
            muddle(bytes, random, entry..entry + 512);
            "name"
        }
        3 => {
            // More entries, some of them for the same partition.
            let end = bytes.len().min((entry + consumer::ENTRY_LEN) as usize);
            let more = bytes[bytes.len().min(entry as usize)..end].to_vec();
            for _ in 0..random.below(100) {
                if bytes.len() < LONG {
                    bytes.extend(&more);
                }
            }
            "entries"
        }
        4 => {
            make::damage(random, bytes);
            "bytes"
        }
        _ => {
            let cursor = entry + *random.pick(&[512, 1024]);
            muddle(bytes, random, cursor..cursor + consumer::CURSOR_LEN as u64);
            "cursor"
        }
    };
    forge::consumer(bytes);
    what
}

fn forge_queue(bytes: &mut Vec<u8>, random: &mut Random) -> &'static str {
    let places = forge::places(bytes);
    let what = if random.once_in(12) {
        // Another size or order, and a file of that length.
        let capacity = *random.pick(&[64, 128, PLACES_MAX]);
        bytes[40..48].copy_from_slice(&capacity.to_le_bytes());
        bytes[12] ^= random.below(2) as u8;
        let len = Parts { capacity, ordered: true }.file_len() as usize;
        bytes.resize(bytes.len().max(len), 0);
        "size"
    } else {
        let (what, part) = part_of_queue(places, random);
        muddle(bytes, random, part);
        what
    };
    forge::queue(bytes);
    what
}

/// One of the parts of a queue's file.
fn part_of_queue(places: u64, random: &mut Random) -> (&'static str, Range<u64>) {
    const WORDS: [u64; 7] =
        [at::LOCK, at::BUSY, at::REPLACED, at::HEAP, at::IN_FLIGHT, at::DONE, at::CHANGES];
    let parts = Parts { capacity: places, ordered: true };
    let [links, heap, lanes] = [parts.link(0), parts.heap(0), parts.lane(0)];
    match random.below(11) {
        0 => ("header", 8..508),
        1 | 2 => {
            let slot = *random.pick(&at::ENDS);
            ("ends", slot..slot + 56)
        }
        3 | 4 => {
            let version = parts.entry(random.below(places)) + VERSION_LEN * random.below(2);
            ("entry", version..version + 28)
        }
        5 | 6 => {
            let word = *random.pick(&WORDS);
            ("word", word..word + 8)
        }
        7 => ("holders", Parts::HOLDERS..Parts::HOLDERS + 64),
        8 => ("links", links..heap),
        // Few slots are in use, and the first ones decide.
        9 => ("heap", heap..heap + 16 * (1 + random.below(16))),
        _ => ("lanes", lanes..lanes + 16 * places),
    }
}

/// Another process, which opened the files before the harm and stays.
#[derive(Debug)]
pub struct Neighbour {
    orders: Topic,
    queue: QueueFile,
    jobs: Vec<LeasedJob>,
    readers: Vec<GroupMember>,
    _store: Store,
}

impl Neighbour {
    /// Open the files, take some jobs, and join the groups.
    pub fn come(disk: &MemoryStorage, example: &Example) -> Result<Self, Error> {
        let storage = std::sync::Arc::new(disk.process());
        let store = Store::open_on(storage, ROOT, &options(example.variant.mode))?;
        let (orders, home) = (topic(&store, QUEUE.1)?, topic(&store, HOME)?);
        let queue = QueueFile::open(&orders, QUEUE.0, queue_options())?;
        let jobs = queue.take(&orders, 6, Duration::from_secs(3600))?;
        let of = |name: &str| topic(&store, name).map(|topic| [topic]);
        let readers = vec![
            GroupMember::open(&store, READER.0, &of(READER.1)?, Start::Earliest)?,
            GroupMember::open_in(&store, KEPT.0, &of(KEPT.1)?, Start::Earliest, &home)?,
        ];
        Ok(Self { orders, queue, jobs, readers, _store: store })
    }

    /// Continue on the harmed files.
    ///
    /// Its answers are not judged, since the memory that processes share has no checksum. But every
    /// call must end.
    pub fn go_on(mut self, random: &mut Random) -> Result<(), String> {
        let (orders, queue) = (&self.orders, &self.queue);
        let leases: Vec<_> = self.jobs.iter().map(|job| job.lease).collect();
        let _ = queue.extend(orders, &leases, Duration::from_secs(7200));
        let _ = queue.nack(orders, &leases[..2], Duration::from_secs(random.below(2)));
        let acks: Vec<_> = self.jobs[2..].iter().map(LeasedJob::to_ack).collect();
        let _ = queue.ack(orders, &acks);
        let _ = queue.info(orders);
        let _ = queue.due(orders);
        let _ = queue.wait(orders, Some(Duration::ZERO), &|| false);
        let end = orders.end(0).unwrap_or_default();
        let _ = take_until_empty(queue, orders, end)?;
        for (reader, (_, of)) in self.readers.iter_mut().zip([READER, KEPT]) {
            let _ = reader.refresh();
            let _ = reader.commit(of, 0, 25 + random.below(9), random.once_in(2));
            let _ = reader.parts();
            let _ = reader.lag(of, 0);
        }
        Ok(())
    }
}
