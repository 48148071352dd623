//! A process's account of its appends: what must be true afterwards.

use std::collections::BTreeMap;

use falaj::internals::error::{Error, Result};
use falaj::internals::store::Store;
use falaj::internals::topic::{NewRecord, SyncMode, Topic};

/// One record that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Vec<u8>,
    pub durable: bool,
}

/// The records that must be there, by topic and partition, and the handles of the process.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub records: BTreeMap<(String, u32), Vec<Entry>>,
    /// A topic that is being deleted: it is there as it was, or not at all.
    pub doomed: Option<String>,
    /// Handles that outlive the scene.
    pub open: Option<(Store, Vec<Topic>)>,
}

impl Ledger {
    /// A value that is written once only.
    fn value(&self, name: &str, partition: u32, i: u64) -> Vec<u8> {
        let next = self.count(name, partition) + i;
        let mut value = format!("{name} {partition} {next} ").into_bytes();
        value.resize(40 + (next as usize * 37) % 300, b'.');
        value
    }

    pub fn count(&self, name: &str, partition: u32) -> u64 {
        self.records.get(&(name.to_owned(), partition)).map_or(0, |all| all.len() as u64)
    }

    fn note(&mut self, name: &str, partition: u32, value: Vec<u8>, durable: bool) {
        self.records
            .entry((name.to_owned(), partition))
            .or_default()
            .push(Entry { value, durable });
    }

    /// Append one record, and note the result.
    ///
    /// A durable record makes all earlier records of its log durable too; a power cut later checks
    /// that.
    pub fn append(&mut self, topic: &Topic, partition: u32, sync: SyncMode) -> Result<u64> {
        let (name, value) = (topic.name().to_owned(), self.value(topic.name(), partition, 0));
        let appended = topic.append_to(partition, &NewRecord::new(&value), Some(sync));
        match &appended {
            Ok(_) => self.note(&name, partition, value, sync == SyncMode::Durable),
            // Visible, and perhaps lost.
            Err(Error::DurabilityUnknown { .. }) => self.note(&name, partition, value, false),
            Err(_) => {}
        }
        appended
    }

    /// Append to several partitions at once.
    pub fn group(&mut self, topic: &Topic, partitions: &[u32], sync: SyncMode) -> Result<()> {
        let name = topic.name().to_owned();
        let values: Vec<[Vec<u8>; 2]> = partitions
            .iter()
            .map(|partition| [0, 1].map(|i| self.value(&name, *partition, i)))
            .collect();
        let records: Vec<[NewRecord<'_>; 2]> =
            values.iter().map(|two| [NewRecord::new(&two[0]), NewRecord::new(&two[1])]).collect();
        let parts: Vec<(u32, &[NewRecord<'_>])> = partitions
            .iter()
            .zip(&records)
            .map(|(partition, two)| (*partition, &two[..]))
            .collect();
        let appended = topic.extend_partitions(&parts, Some(sync));
        if matches!(&appended, Ok(_) | Err(Error::DurabilityUnknown { .. })) {
            let durable = appended.is_ok() && sync == SyncMode::Durable;
            for (partition, two) in partitions.iter().zip(values) {
                two.into_iter().for_each(|value| self.note(&name, *partition, value, durable));
            }
        }
        appended.map(|_| ())
    }

    /// A flush returned: all records of these topics are on disk.
    pub fn flushed(&mut self, topic: &Topic) {
        let of_topic = self.records.iter_mut().filter(|((name, _), _)| name == topic.name());
        of_topic.flat_map(|(_, all)| all).for_each(|entry| entry.durable = true);
    }
}
