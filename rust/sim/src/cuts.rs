//! Cuts of the log, as a process that ships the store takes them, and what an earlier one obliges to.
//!
//! Owns what is remembered of a cut that was completed, and the checks of every machine behind it:
//!
//! - Each record of the cut is there, and the log says so ([`Log::has_end`]).
//! - A new cut begins nowhere below an earlier one, and ends at or above it in each topic.
//! - A segment with the same identity has the same bytes as in the earlier cut.
//! - In some states, by their hash: the store that is built from the pieces verifies. It has the records
//!   of the cut and no others.
//!
//! Invariant: the calls are those of the shipper, for one log. [`falaj_twin::place`] is the place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::internals::error::{Error, Result};
use falaj::internals::format::address::Address;
use falaj::internals::format::retention::Retention;
use falaj::internals::format::settings::{PARTITIONER, StoreSettings, TopicSettings, WriteMode};
use falaj::internals::log::{Log, LogCut, is_overtaken};
use falaj::internals::storage::Storage;
use falaj::internals::store::{PieceBuilder, PieceOptions};
use falaj_twin::memory::MemoryStorage;
use falaj_twin::place::Place;

use crate::machine::{GENERATION, open_to_read_at, settings};
use crate::random::mix;
use crate::truth::{Gone, TOPICS, Truth};

/// Where each topic ends: the next offset, and the checksum of the last block with records.
type Ends = [(u64, u32); TOPICS as usize];

/// One of so many states with cuts is built from its pieces.
const BUILT: u64 = 24;
/// How often a cut is made again after a compaction replaced a segment meanwhile.
const TRIES: usize = 5;

/// A cut that was completed.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The event after which it was complete.
    pub time: usize,
    ends: Ends,
    end: Address,
    /// The place, when it had got the cut.
    place: Arc<Place>,
}

impl Taken {
    /// The offsets after the last record of each topic.
    pub fn nexts(&self) -> [u64; TOPICS as usize] {
        self.ends.map(|(next, _)| next)
    }

    /// The same, complete at another event.
    #[must_use]
    pub fn at(self, time: usize) -> Self {
        Self { time, ..self }
    }

    /// A hash of what it obliges to.
    fn print(&self) -> u64 {
        self.ends.iter().fold(self.end.0, |sum, (next, crc)| mix(sum, next << 32 | u64::from(*crc)))
    }
}

/// A hash of what some cuts oblige to.
pub fn print(cuts: &[Taken]) -> u64 {
    cuts.iter().fold(0, |sum, cut| mix(sum, cut.print()))
}

/// The cuts that were complete after an event.
pub fn until(cuts: &[Taken], time: usize) -> &[Taken] {
    &cuts[..cuts.iter().take_while(|cut| cut.time <= time).count()]
}

/// A process that takes cuts, one from the other.
#[derive(Default)]
pub struct Shipper {
    before: Option<Arc<LogCut>>,
}

impl Shipper {
    /// Take a cut of what is on the disk.
    ///
    /// # Errors
    /// Those of the engine; `InvalidArgument` for a cut that ends before the last one.
    pub fn cut(&mut self, storage: &MemoryStorage, mode: WriteMode, log: &Log) -> Result<Ends> {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let (settings, before) = (settings(mode), self.before.as_ref());
        let mut tries = 0..TRIES;
        let cut = loop {
            match LogCut::durable(&storage, log, &settings, before) {
                Err(error) if is_overtaken(&error) && tries.next().is_some() => {}
                done => break done?,
            }
        };
        if let Some(before) = before.filter(|before| before.end() > cut.end()) {
            let what =
                format!("a cut ends at {:?}, the one before at {:?}", cut.end(), before.end());
            return Err(Error::InvalidArgument { what });
        }
        let ends = ends(&cut)?;
        self.before = Some(cut);
        Ok(ends)
    }

    /// Ship the last cut, and remember it. `last` is the one that was remembered before.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn ship(&self, time: usize, ends: Ends, last: Option<&Taken>) -> Result<Option<Taken>> {
        let Some(cut) = &self.before else { return Ok(None) };
        let mut place = last.map_or_else(Place::default, |last| (*last.place).clone());
        place.ship_log(&directory(), cut)?;
        Ok(Some(Taken { time, ends, end: cut.end(), place: Arc::new(place) }))
    }

    /// Build a store from what a cut brought, and compare it with the groups that it should have.
    ///
    /// # Errors
    /// The first difference.
    pub fn build(&self, taken: &Taken, mode: WriteMode, truth: &Truth, gone: Gone<'_>) -> Built {
        let groups = groups(truth, taken.nexts())?;
        let Some(cut) = &self.before else { return Ok(()) };
        is_whole(&taken.place, cut, mode, &truth.first(groups), gone)
    }
}

/// Whether a store could be built that is as it should be.
pub type Built = std::result::Result<(), String>;

/// How many groups end where a cut ends.
///
/// # Errors
/// If it ends in the middle of one.
pub fn groups(truth: &Truth, nexts: [u64; TOPICS as usize]) -> std::result::Result<usize, String> {
    let is_end = |groups: &usize| {
        (0..TOPICS).all(|topic| truth.count(topic, *groups) == nexts[topic as usize])
    };
    (0..=truth.0.len())
        .rev()
        .find(is_end)
        .ok_or_else(|| format!("a cut ends at {nexts:?}, where no group ends"))
}

/// Check that a log has all that earlier cuts had, and says so.
///
/// # Errors
/// The end that is missing.
pub fn holds(log: &Arc<Log>, cuts: &[Taken]) -> std::result::Result<(), String> {
    for cut in cuts {
        for (topic, (next, crc)) in (0..).zip(cut.ends) {
            match log.has_end(topic, next, crc) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(format!("a cut had topic {topic} up to {next}: it is another"));
                }
                Err(error) => return Err(format!("a cut had topic {topic} up to {next}: {error}")),
            }
        }
    }
    Ok(())
}

/// Check that a log does not take a record for the lost one whose place it has.
///
/// # Errors
/// The topic whose lost end the log says it has.
pub fn misses(log: &Arc<Log>, lost: &[(u32, u64, u32)]) -> std::result::Result<(), String> {
    for (topic, next, crc) in lost {
        match log.has_end(*topic, *next, *crc) {
            Ok(false) => {}
            Ok(true) => {
                return Err(format!("topic {topic} up to {next} was lost, and counts as there"));
            }
            Err(error) => return Err(format!("topic {topic} up to {next}: {error}")),
        }
    }
    Ok(())
}

/// Take a cut as the first process of another incarnation does, and compare it with the earlier ones.
///
/// # Errors
/// The first mistake in it.
pub fn rises(
    storage: &MemoryStorage,
    mode: WriteMode,
    log: &Arc<Log>,
    truth: &Truth,
    gone: Gone<'_>,
    cuts: &[Taken],
) -> std::result::Result<(), String> {
    let Some(last) = cuts.last() else { return Ok(()) };
    let failed = |error: Error| format!("a cut after recovery: {error}");
    log.sync().map_err(failed)?;
    let mut shipper = Shipper::default();
    let ends = shipper.cut(storage, mode, log).map_err(failed)?;
    let Some(cut) = &shipper.before else { return Ok(()) };
    let name = directory();
    for before in cuts {
        let fell = ends.iter().zip(before.ends).any(|(now, was)| now.0 < was.0);
        if fell || cut.end() < before.end {
            return Err(format!("a cut after recovery ends at {ends:?}, an earlier at {before:?}"));
        }
    }
    let differs = last.place.differs(&name, cut).map_err(failed)?;
    if let Some(sequence) = differs {
        return Err(format!("segment {sequence} is the same as in a cut, with other bytes"));
    }
    let all = truth.0.len();
    let found = groups(truth, ends.map(|(next, _)| next))?;
    if found != all {
        return Err(format!("a cut after recovery has {found} groups, and not {all}"));
    }
    if storage.fingerprint() % BUILT == 0 {
        let taken = shipper.ship(0, ends, Some(last)).map_err(failed)?;
        if let Some(taken) = taken {
            return is_whole(&taken.place, cut, mode, truth, gone);
        }
    }
    Ok(())
}

fn ends(cut: &LogCut) -> Result<Ends> {
    let walk = cut.state()?;
    let end = |topic| walk.state.topic(topic).map_or((0, 0), |topic| (topic.next, topic.last_crc));
    Ok(std::array::from_fn(|topic| end(topic as u32)))
}

/// The name that the log has in a store.
fn directory() -> String {
    topic_settings().log_dir()
}

fn topic_settings() -> TopicSettings {
    TopicSettings {
        name: "t".into(),
        generation: [1; 16],
        log: "t".into(),
        log_generation: GENERATION,
        partitions: TOPICS,
        number: 0,
        codec: "bytes".into(),
        codec_unnamed: false,
        partitioner: PARTITIONER.into(),
        properties: BTreeMap::new(),
        // The least that a topic may have.
        segment_bytes: 64 << 10,
        sync_interval_ms: 100,
        compacted: true,
        created_us: 0,
        retention: Retention::default(),
        revision: 0,
    }
}

/// Build a store from the pieces of a cut; it must verify and have these groups.
fn is_whole(place: &Place, cut: &LogCut, mode: WriteMode, truth: &Truth, gone: Gone<'_>) -> Built {
    let storage = MemoryStorage::with_capacity(1 << 20).seeded(truth.print());
    let built = build(place, cut, &storage, mode);
    let dir = built.map_err(|error| format!("the store of a cut: {error}"))?;
    let reader = open_to_read_at(&storage, mode, &dir);
    let reader = reader.map_err(|error| format!("open the store of a cut: {error}"))?;
    let all = truth.0.len();
    let found = truth.found(&reader, all..=all, gone);
    found.map(drop).map_err(|what| format!("in the store of a cut: {what}"))
}

fn build(place: &Place, cut: &LogCut, storage: &MemoryStorage, mode: WriteMode) -> Result<PathBuf> {
    let (to, topic) = (Path::new("/copy"), topic_settings());
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let builder = PieceBuilder::begin_on(storage, to, PieceOptions::default())?;
    let store = StoreSettings {
        id: [2; 16],
        created_us: 0,
        write_mode: mode,
        retention_bytes: None,
        ship_backlog_bytes: None,
        ship_min_sync: None,
        revision: 0,
    };
    let files = [("falaj.json", store.encode()), ("topics/t/topic.json", topic.encode())];
    for (path, text) in files {
        builder.file(path, text.len() as u64, &[(0, text.as_bytes())])?;
    }
    place.give(&builder, &topic.log_dir(), cut.segments())?;
    builder.finish(None, &mut |_, _| Ok(()))?;
    Ok(to.join("logs").join(topic.log_dir()))
}
