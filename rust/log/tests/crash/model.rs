//! What was appended, and what of it a reader may and must find.

use std::ops::RangeInclusive;
use std::sync::Arc;

use falaj::error::Error;
use falaj::log::Log;

use crate::common::read_all;

pub const TOPICS: u32 = 2;

/// One append: blocks that are there together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group(pub Vec<(u32, Vec<Vec<u8>>)>);

impl Group {
    pub fn one(topic: u32, values: Vec<Vec<u8>>) -> Self {
        Self(vec![(topic, values)])
    }

    /// A group that takes the same bytes in a segment, with other values.
    pub fn twin(&self, fill: u8) -> Self {
        let twin = |values: &Vec<Vec<u8>>| values.iter().map(|v| vec![fill; v.len()]).collect();
        Self(self.0.iter().map(|(topic, values)| (*topic, twin(values))).collect())
    }

    fn of(&self, topic: u32) -> impl Iterator<Item = &Vec<u8>> {
        self.0.iter().filter(move |(t, _)| *t == topic).flat_map(|(_, values)| values)
    }
}

/// Groups in the order of their appends.
#[derive(Clone, Debug, Default)]
pub struct Truth(pub Vec<Group>);

impl Truth {
    fn records(&self, topic: u32, groups: usize) -> Vec<(u64, Vec<u8>)> {
        let values = self.0[..groups].iter().flat_map(|group| group.of(topic));
        (0..).zip(values.cloned()).collect()
    }

    /// How many records of a topic the first groups hold.
    pub fn count(&self, topic: u32, groups: usize) -> u64 {
        self.0[..groups].iter().map(|group| group.of(topic).count() as u64).sum()
    }

    /// These groups, and no more.
    pub fn first(&self, groups: usize) -> Self {
        Self(self.0[..groups].to_vec())
    }

    /// These groups and one more.
    pub fn and(&self, group: Group) -> Self {
        let mut longer = self.clone();
        longer.0.push(group);
        longer
    }

    /// How many groups a log holds that must hold so many of them, and nothing else.
    pub fn found(&self, log: &Arc<Log>, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let mut found = Vec::new();
        for topic in 0..TOPICS {
            let (records, ended) = read_all(log, topic, 0);
            ended.map_err(|e| format!("topic {topic} after {} records: {e}", records.len()))?;
            found.push(records);
        }
        let holds = |groups: &usize| {
            (0..TOPICS).zip(&found).all(|(t, records)| *records == self.records(t, *groups))
        };
        let groups = (0..=self.0.len()).find(holds).ok_or_else(|| no_prefix(&found))?;
        if !allowed.contains(&groups) {
            return Err(format!("{groups} groups, but {allowed:?} were to be found"));
        }
        Ok(groups)
    }

    /// Checks what a reader finds in a log that may not be recovered yet: a prefix of whole groups,
    /// as long as it must be, and an end that it may have.
    pub fn found_before_recovery(
        &self,
        log: &Arc<Log>,
        allowed: RangeInclusive<usize>,
    ) -> Result<(), String> {
        for topic in 0..TOPICS {
            let (records, ended) = read_all(log, topic, 0);
            if let Err(error) = ended {
                if !matches!(error, Error::NeedsRecovery { .. }) {
                    return Err(format!("reading topic {topic} before recovery: {error}"));
                }
            }
            if !allowed.clone().any(|groups| self.records(topic, groups) == records) {
                return Err(format!(
                    "before recovery topic {topic} holds {} records, none of {allowed:?} groups",
                    records.len()
                ));
            }
        }
        Ok(())
    }
}

fn no_prefix(found: &[Vec<(u64, Vec<u8>)>]) -> String {
    let brief = |records: &Vec<(u64, Vec<u8>)>| {
        let brief = |(offset, value): &(u64, Vec<u8>)| {
            format!("{offset}:{}×{}", value.len(), value.first().map_or('-', |b| char::from(*b)))
        };
        records.iter().map(brief).collect::<Vec<_>>().join(" ")
    };
    let topics: Vec<_> = found.iter().map(brief).collect();
    format!("no prefix of whole groups: {topics:?}")
}
