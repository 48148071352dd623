//! The view of a reader after a power cut, before recovery.
//!
//! Everything that was reported durable is there: checked records as they were, newer ones as their
//! writer made them, at the acknowledged offset. Past it, every record is a writer's. The worst
//! allowed error is `NeedsRecovery`.

use std::collections::BTreeMap;

use falaj::internals::error::Error;
use falaj::internals::log::Reading;
use falaj::internals::topic::{Record, Topic};

use super::{Checker, Known, Loss, Told, is_durable, written_by};
use crate::acks::{Acks, BARE, Line};
use crate::payload::{BLOCK, Made, Pool, crc_on};

impl Checker {
    /// Look at all partitions before recovery; return how often a reader got `NeedsRecovery`.
    pub fn look_before_recovery(
        &self,
        writers: &BTreeMap<u32, Acks>,
        told: &Told,
        loss: Loss,
        reading: Reading,
    ) -> Result<u64, String> {
        let mut asked = 0;
        let topics = self.open(reading).map_err(|e| format!("before recovery: {e}"))?;
        for place in self.layout.places() {
            let failed = |e: String| format!("before recovery, {place:?}: {e}");
            let durable = durable_of(writers, place, loss);
            let told = told.get(&place).copied().unwrap_or_default();
            let known = self.known.get(&place).cloned().unwrap_or_default();
            let due = durable.values().map(|(_, line)| line.offset + u64::from(line.count));
            let due = due.fold(told.max(known.next), u64::max);
            let Some(topic) = &topics[usize::from(place.0)] else {
                if due > 0 {
                    return Err(failed("the topic is gone".into()));
                }
                continue;
            };
            let made = Made::default();
            let mut look = Look { pool: &self.pool, known: &known, durable, made, next: 0, crc: 0 };
            asked += u64::from(look.partition(topic, place.1.into()).map_err(failed)?);
            if look.next < due {
                return Err(failed(format!("only {} of {due} durable records", look.next)));
            }
        }
        Ok(asked)
    }
}

/// Records of a partition that were acknowledged as durable: the writer and the line, by the first
/// offset.
fn durable_of(
    writers: &BTreeMap<u32, Acks>,
    place: (u16, u16),
    loss: Loss,
) -> BTreeMap<u64, (u32, Line)> {
    let mut durable = BTreeMap::new();
    for (id, acks) in writers {
        let lines = (0..).map_while(|i| acks.line(i));
        let told = lines.filter(|line| line.place == place && is_durable(line, loss));
        durable.extend(told.map(|line| (line.offset, (*id, line))));
    }
    durable
}

/// A look at one partition.
struct Look<'a> {
    pool: &'a Pool,
    known: &'a Known,
    durable: BTreeMap<u64, (u32, Line)>,
    made: Made,
    next: u64,
    crc: u32,
}

impl Look<'_> {
    /// Read a partition; true if it ends in `NeedsRecovery`.
    fn partition(&mut self, topic: &Topic, partition: u32) -> Result<bool, String> {
        let stopped = match topic.scan_partition(partition, 0, None) {
            Ok(mut scan) => loop {
                match scan.next().transpose() {
                    Ok(Some(record)) => self.record(&record)?,
                    Ok(None) => return Ok(false),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        match stopped {
            Error::NeedsRecovery { .. } => Ok(true),
            error => Err(error.to_string()),
        }
    }

    fn record(&mut self, record: &Record) -> Result<(), String> {
        let offset = record.offset();
        if offset != self.next {
            return Err(format!("offset {offset} instead of {}", self.next));
        }
        self.next += 1;
        let written = written_by(record, self.pool, &mut self.made)?;
        if offset < self.known.next {
            return self.expect_known(record);
        }
        self.expect_acknowledged(offset, written)
    }

    /// Check that offsets below the last check's end are as they were.
    fn expect_known(&mut self, record: &Record) -> Result<(), String> {
        self.crc = crc_on(self.crc, record.key(), record.value().unwrap_or_default());
        let (next, known) = (self.next, self.known);
        let (is_block, is_last) = (next % BLOCK == 0, next == known.next);
        let due = match (is_block, is_last) {
            (true, _) => known.blocks.get((next / BLOCK - 1) as usize).copied(),
            (false, true) => Some(known.crc),
            (false, false) => return Ok(()),
        };
        if due != Some(self.crc) {
            return Err(format!("offsets before {next} are not what they were"));
        }
        self.crc = 0;
        Ok(())
    }

    /// Check that a durable record is at its acknowledged offset.
    fn expect_acknowledged(&self, offset: u64, written: Option<(u32, u64)>) -> Result<(), String> {
        let line = self.durable.range(..=offset).next_back().map(|(_, line)| line);
        let Some((writer, line)) = line else { return Ok(()) };
        if offset >= line.offset + u64::from(line.count) {
            return Ok(());
        }
        let due = (line.group != BARE).then(|| (*writer, line.seq + (offset - line.offset)));
        if written == due {
            return Ok(());
        }
        Err(format!("at {offset} is {written:?} instead of {due:?}: {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use falaj::internals::store::{Store, StoreOptions, TopicOptions};
    use falaj::internals::topic::SyncMode;

    use super::*;
    use crate::acks::State;
    use crate::task::Layout;

    const SEED: u64 = 7;
    const PLACE: (u16, u16) = (0, 0);

    /// A directory for a store and an account, removed at the end.
    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("falaj-storm-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&place).unwrap();
            Self(place)
        }

        fn layout(&self) -> Layout {
            let (store, topics, partitions) = (self.0.join("store"), 1, 1);
            let (segment_bytes, interval_ms, pwrite) = (1 << 20, 20, false);
            Layout { store, topics, partitions, segment_bytes, interval_ms, pwrite }
        }

        /// Append the records with these numbers, durably.
        fn append(&self, numbers: &[u64]) {
            let store = Store::open_with(self.layout().store, &StoreOptions::default()).unwrap();
            let topic = Topic::open(&store, &Layout::topic(0), &TopicOptions::default()).unwrap();
            let (pool, mut made) = (Pool::new(SEED), Made::default());
            for number in numbers {
                made.fill(&pool, 1, *number, 40, false);
                let mut headers = [("", None)];
                let record = made.record(&mut headers);
                topic.append_to(0, &record, Some(SyncMode::Durable)).unwrap();
            }
        }

        /// The account of the writer that appended them.
        fn account(&self, numbers: &[u64]) -> BTreeMap<u32, Acks> {
            let _ = std::fs::remove_file(self.0.join("account"));
            let mut acks = Acks::open(&self.0.join("account")).unwrap();
            let (pool, mut made) = (Pool::new(SEED), Made::default());
            for (offset, seq) in (0..).zip(numbers) {
                made.fill(&pool, 1, *seq, 40, false);
                let crc = crc_on(0, made.key.as_deref(), &made.value);
                let (state, count, seq, time_us) = (State::Intended, 1, *seq, 0);
                let (place, group, mode) = (PLACE, 0, 2);
                let line = Line { state, count, seq, offset, crc, place, group, mode, time_us };
                let line = acks.intend(&line);
                acks.acknowledge(line, offset, 2, 1);
            }
            BTreeMap::from([(1, acks)])
        }

        fn checker(&self) -> Checker {
            Checker::new(&self.layout(), SEED)
        }
    }

    fn look(checker: &Checker, writers: &BTreeMap<u32, Acks>) -> Result<u64, String> {
        checker.look_before_recovery(writers, &Told::new(), Loss::Suffix(9), Reading::Map)
    }

    #[test]
    fn durable_records_are_looked_for_at_their_acknowledged_offsets() {
        let place = Place::new("told");
        place.append(&[1, 2, 4]);
        assert_eq!(look(&place.checker(), &place.account(&[1, 2, 4])), Ok(0));
        let other = look(&place.checker(), &place.account(&[1, 2, 3])).unwrap_err();
        assert!(other.contains("at 2 is Some((1, 4)) instead of Some((1, 3))"), "{other}");
        let lost = look(&place.checker(), &place.account(&[1, 2, 4, 5])).unwrap_err();
        assert!(lost.contains("only 3 of 4 durable records"), "{lost}");
    }

    #[test]
    fn what_was_checked_before_is_looked_for_as_it_was() {
        let place = Place::new("known");
        place.append(&[1, 2]);
        let (mut checker, writers) = (place.checker(), place.account(&[1, 2]));
        checker.check(&writers, &Told::new(), Loss::Nothing, Reading::Map).unwrap();
        assert_eq!(look(&checker, &BTreeMap::new()), Ok(0));
        std::fs::remove_dir_all(place.layout().store).unwrap();
        place.append(&[1, 3]);
        let other = look(&checker, &BTreeMap::new()).unwrap_err();
        assert!(other.contains("offsets before 2 are not what they were"), "{other}");
    }
}
