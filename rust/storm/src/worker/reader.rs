//! Readers: they read, check that offsets are dense, and hash what they saw.

use std::time::Duration;

use falaj::internals::error::Error;
use falaj::internals::log::Reading;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{PartitionScan, Topic};

use super::Wrong;
use crate::acks::Seen;
use crate::payload::{BLOCK, crc_on};
use crate::random::Random;
use crate::task::{Layout, Task};

/// A reader's place in a partition, and the hash of its current block.
struct Stand {
    place: (u16, u16),
    scan: PartitionScan,
    next: u64,
    crc: u32,
    whole: bool,
}

impl Stand {
    /// Begin at an offset, or at the first one that is left.
    fn begin(topic: &Topic, place: (u16, u16), from: u64) -> Result<Self, Error> {
        let mut from = from;
        let scan = loop {
            match topic.scan_partition(place.1.into(), from, None) {
                Err(Error::OffsetOutOfRange { first, .. }) if first > from => from = first,
                scan => break scan?,
            }
        };
        Ok(Self { place, scan, next: from, crc: 0, whole: from % BLOCK == 0 })
    }

    /// Read on to the current end; return the number of records.
    ///
    /// If the next ones were trimmed, continue at the first that is left.
    fn read_on(&mut self, topic: &Topic, seen: &mut Seen) -> Result<u64, Wrong> {
        match self.try_read_on(seen) {
            Err(wrong) => match wrong.downcast_ref::<Error>() {
                Some(Error::OffsetOutOfRange { first, .. }) if *first > self.next => {
                    *self = Self::begin(topic, self.place, *first)?;
                    Ok(1)
                }
                _ => Err(wrong),
            },
            read => read,
        }
    }

    fn try_read_on(&mut self, seen: &mut Seen) -> Result<u64, Wrong> {
        let began = self.next;
        let mut counted = began;
        while let Some(record) = self.scan.next().transpose()? {
            if record.offset() != self.next {
                let (next, found, place) = (self.next, record.offset(), self.place);
                return Err(format!("{place:?}: offset {found} came instead of {next}").into());
            }
            self.crc = crc_on(self.crc, record.key(), record.value().unwrap_or_default());
            self.next += 1;
            if self.next % BLOCK == 0 {
                if self.whole {
                    seen.note(self.place, self.next / BLOCK - 1, self.crc)?;
                }
                (self.crc, self.whole) = (0, true);
                // At once, so that a stalled one is seen to stand still.
                seen.add(self.next - counted);
                counted = self.next;
            }
        }
        seen.add(self.next - counted);
        Ok(self.next - began)
    }
}

/// Follow all topics from the beginning.
pub fn follow(task: &Task) -> Result<(), Wrong> {
    let mut seen = Seen::open(&task.account)?;
    let Some((_store, topics)) = patiently(task, &seen)? else { return Ok(()) };
    let mut random = Random::new(task.seed, u64::from(task.id));
    let mut readings = Vec::new();
    for place in task.layout.places() {
        readings.push(Stand::begin(&topics[usize::from(place.0)], place, 0)?);
    }
    while !seen.is_to_stop() {
        let mut news = 0;
        for reading in &mut readings {
            news += reading.read_on(&topics[usize::from(reading.place.0)], &mut seen)?;
        }
        if news == 0 {
            let reading = random.pick(&readings);
            let log = topics[usize::from(reading.place.0)].log();
            let bound = Some(Duration::from_millis(50));
            log.wait_for_news(reading.scan.cursor().address(), bound, &|| false)?;
        }
    }
    Ok(())
}

/// Open, read from somewhere to the end, close; repeatedly.
pub fn scan_again_and_again(task: &Task) -> Result<(), Wrong> {
    let mut seen = Seen::open(&task.account)?;
    let mut random = Random::new(task.seed, u64::from(task.id));
    while !seen.is_to_stop() {
        let Some((_store, topics)) = patiently(task, &seen)? else { return Ok(()) };
        for place in task.layout.places() {
            let topic = &topics[usize::from(place.0)];
            let end = topic.end(place.1.into())?;
            let back = random.magnitude(17).min(end);
            Stand::begin(topic, place, end - back)?.read_on(topic, &mut seen)?;
        }
        // Give writers a chance.
        std::thread::sleep(Duration::from_millis(random.below(40)));
    }
    Ok(())
}

/// Open for reading once a writer has made the store and its topics; `None` if stopped before.
fn patiently(task: &Task, seen: &Seen) -> Result<Option<(Store, Vec<Topic>)>, Wrong> {
    let reading = if task.pread { Reading::Pread } else { Reading::Map };
    let options = StoreOptions { reading, ..StoreOptions::reading() };
    while !seen.is_to_stop() {
        match open(task, &options) {
            Err(
                Error::StoreNotFound { .. } | Error::NotAStore { .. } | Error::UnknownTopic { .. },
            ) => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return Ok(Some(opened?)),
        }
    }
    Ok(None)
}

fn open(task: &Task, options: &StoreOptions) -> Result<(Store, Vec<Topic>), Error> {
    let store = Store::open_with(&task.layout.store, options)?;
    let topic = |t| Topic::open(&store, &Layout::topic(t), &TopicOptions::default());
    let topics = (0..task.layout.topics).map(topic).collect::<Result<_, _>>()?;
    Ok((store, topics))
}
