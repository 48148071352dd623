//! The oracle: what was appended, and what of it a log may and must hold.
//!
//! Owns a model that is as plain as can be: a list of groups in the order of their appends. Owns
//! also the comparison of a log with it. The model knows the engine's reading calls, and nothing of
//! how they work. Invariant: every answer of a log is compared byte for byte.

use std::ops::RangeInclusive;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::log::Log;

use crate::ask::Asked;
use crate::random::mix;
use crate::reading::Seen;

/// Topics of the log under test.
pub const TOPICS: u32 = 2;

/// Records of the groups that are gone.
#[derive(Clone, Copy, Debug)]
pub struct Gone<'a> {
    /// How many groups at the beginning must be trimmed, and how many may be.
    pub trimmed: (usize, usize),
    /// How many groups compaction may have reached: it removes what is not the last of its key.
    pub compacted: usize,
    /// Topics and offsets of records that compaction removed durably.
    pub taken: &'a [(u32, u64)],
}

/// Neither a trim nor a compaction was asked for.
pub const NOTHING: Gone<'static> = Gone { trimmed: (0, 0), compacted: 0, taken: &[] };

impl Gone<'_> {
    /// A hash of all of this.
    pub fn print(&self) -> u64 {
        let (least, most) = self.trimmed;
        let numbers = [least, most, self.compacted].into_iter().map(|number| number as u64);
        let taken = self.taken.iter().map(|(topic, offset)| u64::from(*topic) << 32 | offset);
        numbers.chain(taken).fold(0, mix)
    }
}

/// The content that was found in a log.
#[derive(Clone, Debug)]
pub struct Found {
    /// Number of groups.
    pub groups: usize,
    /// How many of them, at the beginning, are trimmed.
    pub trimmed: usize,
    /// Records of the others that compaction removed.
    pub taken: Vec<(u32, u64)>,
}

/// The cursor that moves with each group of several topics.
pub const CURSOR: &[u8] = b"reader";

/// Bytes of a record that the producer appends.
pub const ONCE: usize = 41;

/// Bytes of a record in a conditional append of several parts.
pub const PART: usize = 91;

/// Bytes of a record that a bulk load commits.
pub const JOB: usize = 43;

/// Bytes of a record with a key, among several.
pub const KEYED: usize = 60;

/// Bytes of a record that is a tombstone.
pub const TOMBSTONE: usize = 33;

/// The key and the value of a record that a value of a group stands for.
///
/// The last of two bytes decides which of two keys it has. A tombstone has the other key.
pub fn record_of(value: &[u8]) -> (Option<[u8; 2]>, Option<&[u8]>) {
    let letter = value.first().copied().unwrap_or(0);
    match value.len() {
        KEYED | ONCE => (Some([b'k', letter % 2]), Some(value)),
        TOMBSTONE => (Some([b'k', (letter + 1) % 2]), None),
        _ => (None, Some(value)),
    }
}

const BEFORE: &str = "before recovery";

/// Most bytes that the header of a block in a group takes, and its body's padding.
const HEADER_MAX: u64 = 48;
/// Bytes that a producer adds to a header.
const PRODUCER: u64 = 24;

/// One append: blocks that are visible together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group(pub Vec<(u32, Vec<Vec<u8>>)>);

impl Group {
    /// A group of one block.
    pub fn one(topic: u32, values: Vec<Vec<u8>>) -> Self {
        Self(vec![(topic, values)])
    }

    /// A group that takes as many bytes in a segment, with other values.
    #[must_use]
    pub fn twin(&self, fill: u8) -> Self {
        let twin = |values: &Vec<Vec<u8>>| values.iter().map(|v| vec![fill; v.len()]).collect();
        Self(self.0.iter().map(|(topic, values)| (*topic, twin(values))).collect())
    }

    /// True for a group that the producer appends with its next sequence.
    ///
    /// Its length tells: so a group that takes its place is one too.
    pub fn is_once(&self) -> bool {
        self.is_record_of(ONCE)
    }

    /// True for a group of a bulk load, with the next number; its length tells.
    pub fn is_job(&self) -> bool {
        self.is_record_of(JOB)
    }

    /// True for a group whose parts expect their offsets and have a producer's next sequence; the
    /// length of its first record tells.
    pub fn is_conditional(&self) -> bool {
        matches!(&self.0[..], [(_, values), _] if values.first().is_some_and(|v| v.len() == PART))
    }

    fn is_record_of(&self, len: usize) -> bool {
        matches!(&self.0[..], [(0, values)] if matches!(&values[..], [value] if value.len() == len))
    }

    /// Where this group moves the cursor, if it does: a number that the group's content gives.
    pub fn cursor(&self) -> Option<u64> {
        (self.0.len() > 1).then(|| Truth(vec![self.clone()]).print())
    }

    /// A lower bound for the address of its block of a topic, and the most bytes that lie between.
    ///
    /// The bound is at or before the group's beginning, and past any other block's. The distance is
    /// less than one block more.
    pub(crate) fn begins_behind(&self, topic: u32, block: Address) -> Address {
        let before = self.0.iter().take_while(|(other, _)| *other != topic);
        let bytes = |values: &Vec<Vec<u8>>| values.iter().map(|v| v.len() as u64 + 8).sum::<u64>();
        let header = HEADER_MAX + if self.is_conditional() { PRODUCER } else { 0 };
        let most: u64 = before.map(|(_, values)| header + bytes(values)).sum();
        Address::new(block.sequence(), block.position().saturating_sub(most.next_multiple_of(8)))
    }

    fn of(&self, topic: u32) -> impl Iterator<Item = &Vec<u8>> {
        self.0.iter().filter(move |(t, _)| *t == topic).flat_map(|(_, values)| values)
    }
}

/// Groups in the order of their appends.
#[derive(Clone, Debug, Default)]
pub struct Truth(pub Vec<Group>);

impl Truth {
    pub(crate) fn values(&self, topic: u32) -> impl Iterator<Item = &Vec<u8>> {
        self.0.iter().flat_map(move |group| group.of(topic))
    }

    /// The value that stands for the record at an offset.
    pub(crate) fn value(&self, topic: u32, offset: u64) -> Option<&[u8]> {
        self.values(topic).nth(offset as usize).map(Vec::as_slice)
    }

    /// The number of the group that has an offset.
    pub(crate) fn group_of(&self, topic: u32, offset: u64) -> Option<usize> {
        (0..self.0.len()).find(|number| self.count(topic, number + 1) > offset)
    }

    /// How many records of a topic the last non-empty one among the first groups holds.
    pub(crate) fn last_of(&self, topic: u32, groups: usize) -> u64 {
        let mut records = self.0[..groups].iter().rev().map(|group| group.of(topic).count() as u64);
        records.find(|records| *records > 0).unwrap_or(0)
    }

    /// How many records of a topic the first groups hold.
    pub fn count(&self, topic: u32, groups: usize) -> u64 {
        self.0[..groups].iter().map(|group| group.of(topic).count() as u64).sum()
    }

    /// The last group of the producer among the first ones, by number, with its sequence.
    pub fn last_once(&self, groups: usize) -> Option<(usize, u64)> {
        let once = (0..groups).filter(|number| self.0[*number].is_once());
        once.zip(0..).last()
    }

    /// The last conditional group among the first ones, by number, with its sequence.
    pub fn last_conditional(&self, groups: usize) -> Option<(usize, u64)> {
        let conditional = (0..groups).filter(|number| self.0[*number].is_conditional());
        conditional.zip(0..).last()
    }

    /// How many bulk loads are among the first groups: the last one's number.
    pub fn jobs(&self, groups: usize) -> u64 {
        self.0[..groups].iter().filter(|group| group.is_job()).count() as u64
    }

    /// Where the cursor is after the first groups.
    fn cursor(&self, groups: usize) -> Option<u64> {
        self.0[..groups].iter().rev().find_map(Group::cursor)
    }

    /// Check that the cursor is where one of so many groups left it, with the metadata of that move.
    fn check_cursor(
        &self,
        log: &Arc<Log>,
        mut allowed: RangeInclusive<usize>,
        when: &str,
    ) -> Result<(), String> {
        let stands = match log.cursor_of(CURSOR) {
            Ok(stands) => stands.map(|cursor| cursor.offset),
            Err(Error::NeedsRecovery { .. }) if when == BEFORE => return Ok(()),
            Err(error) => return Err(format!("{when} the cursor: {error}")),
        };
        let beside = log.cursor_metadata_of(CURSOR).map_err(|error| format!("{when} {error}"))?;
        if beside != stands.map_or(Vec::new(), |offset| offset.to_le_bytes().to_vec()) {
            return Err(format!("{when} the cursor at {stands:?} has the metadata {beside:?}"));
        }
        let all = allowed.clone();
        if allowed.any(|groups| self.cursor(groups) == stands) {
            return Ok(());
        }
        Err(format!("{when} the cursor is at {stands:?}, where none of {all:?} groups left it"))
    }

    /// A hash of the groups: each value is one byte, repeated.
    pub fn print(&self) -> u64 {
        let blocks = self.0.iter().flat_map(|group| &group.0);
        blocks.fold(self.0.len() as u64, |sum, (topic, values)| {
            values.iter().fold(mix(sum, u64::from(*topic)), |sum, value| {
                let fill = value.first().copied().unwrap_or(0);
                mix(sum, (value.len() as u64) << 8 | u64::from(fill))
            })
        })
    }

    /// The first groups alone.
    #[must_use]
    pub fn first(&self, groups: usize) -> Self {
        Self(self.0[..groups].to_vec())
    }

    /// These groups and one more.
    #[must_use]
    pub fn and(&self, group: Group) -> Self {
        let mut longer = self.clone();
        longer.0.push(group);
        longer
    }

    /// Find how many groups a log holds that must hold an allowed number and nothing else.
    ///
    /// Also finds what is gone, within the bounds of the last argument.
    ///
    /// # Errors
    /// The other content that the log holds.
    pub fn found(
        &self,
        log: &Arc<Log>,
        allowed: RangeInclusive<usize>,
        gone: Gone<'_>,
    ) -> Result<Found, String> {
        self.read_all(log, allowed, gone).map(|(found, _)| found)
    }

    /// The same, and question every fourth log in its middle too (see `rust/sim/src/ask.rs`).
    ///
    /// `draw` decides which logs, and where.
    ///
    /// # Errors
    /// The other content that the log holds, or its wrong answer.
    pub fn found_and_asked(
        &self,
        log: &Arc<Log>,
        allowed: RangeInclusive<usize>,
        gone: Gone<'_>,
        draw: u64,
    ) -> Result<Found, String> {
        let (found, seen) = self.read_all(log, allowed, gone)?;
        if draw % 4 == 0 {
            self.asked(log, &seen, found.groups, gone, draw).after_recovery()?;
        }
        Ok(found)
    }

    fn asked<'a>(
        &'a self,
        log: &'a Arc<Log>,
        seen: &'a [Seen],
        groups: usize,
        gone: Gone<'_>,
        draw: u64,
    ) -> Asked<'a> {
        let trimmed = gone.trimmed.1.min(self.0.len());
        Asked { log, truth: self, seen, groups, compacted: gone.compacted, trimmed, draw }
    }

    fn read_all(
        &self,
        log: &Arc<Log>,
        allowed: RangeInclusive<usize>,
        gone: Gone<'_>,
    ) -> Result<(Found, Vec<Seen>), String> {
        let (mut counts, mut firsts) = ([0; TOPICS as usize], [0; TOPICS as usize]);
        let mut all = Vec::with_capacity(TOPICS as usize);
        for topic in 0..TOPICS {
            let mut seen = self.read(log, topic, None)?;
            let ended = std::mem::replace(&mut seen.ended, Ok(()));
            ended.map_err(|e| format!("topic {topic} after {} records: {e}", seen.records))?;
            (counts[topic as usize], firsts[topic as usize]) = (seen.records, seen.first);
            all.push(seen);
        }
        let trimmed = self.trimmed(firsts, gone.trimmed)?;
        let mut sums = [0; TOPICS as usize];
        let mut groups = 0;
        while sums != counts {
            let Some(group) = self.0.get(groups) else {
                return Err(format!("{counts:?} records are not those of whole groups"));
            };
            for topic in 0..TOPICS {
                sums[topic as usize] += group.of(topic).count() as u64;
            }
            groups += 1;
        }
        if !allowed.contains(&groups) {
            return Err(format!("{groups} groups, but {allowed:?} were expected"));
        }
        self.check_cursor(log, groups..=groups, "with the records that are there")?;
        let mut taken = Vec::new();
        for (topic, seen) in (0..).zip(&all) {
            self.check_taken(topic, seen, groups, gone)?;
            taken.extend(seen.missing.iter().map(|offset| (topic, *offset)));
        }
        Ok((Found { groups, trimmed, taken }, all))
    }

    /// Check that compaction could remove each record that is missing in a topic.
    ///
    /// It removes each record that is not the last of its key. It removes the last one too if it is
    /// a tombstone that hides nothing any more. Nothing that was removed may come back.
    fn check_taken(
        &self,
        topic: u32,
        seen: &Seen,
        groups: usize,
        gone: Gone<'_>,
    ) -> Result<(), String> {
        let is_there = |at: u64| {
            (seen.first..seen.records).contains(&at) && seen.missing.binary_search(&at).is_err()
        };
        let back = gone.taken.iter().find(|(of, at)| *of == topic && is_there(*at));
        if let Some((_, at)) = back {
            return Err(format!(
                "topic {topic}, offset {at} was compacted away, and is there again"
            ));
        }
        let looked_at = self.count(topic, groups.min(gone.compacted));
        let keyed: Vec<_> = (0..).zip(self.values(topic).map(|value| record_of(value))).collect();
        for &at in &seen.missing {
            let wrong = |what| Err(format!("topic {topic}, offset {at} is gone{what}"));
            let (_, (key, value)) = keyed[at as usize];
            if key.is_none() || at >= looked_at {
                return wrong(", and compaction may not remove it");
            }
            let mut same = keyed.iter().filter(|(_, (other, _))| *other == key);
            let is_hidden = same.clone().any(|(other, _)| (at + 1..looked_at).contains(other));
            let hides = same.any(|(other, _)| *other < at && is_there(*other));
            if !is_hidden && (value.is_some() || hides) {
                return wrong(" and was the last of its key");
            }
        }
        Ok(())
    }

    /// How many groups are trimmed when the topics begin at these offsets.
    fn trimmed(
        &self,
        firsts: [u64; TOPICS as usize],
        (least, most): (usize, usize),
    ) -> Result<usize, String> {
        let begins = |groups: &usize| {
            (0..TOPICS).all(|topic| self.count(topic, *groups) == firsts[topic as usize])
        };
        let most = most.min(self.0.len());
        (least..=most).rev().find(begins).ok_or_else(|| {
            format!("the topics begin at {firsts:?}: not {least} to {most} groups trimmed")
        })
    }

    /// Check what a reader finds in a log that may not be recovered yet.
    ///
    /// It must find a prefix of whole groups, long enough, and an end that is allowed. Where `draw`
    /// decides, it is also questioned in the middle. Returns how many records of each topic the
    /// reader saw as durable.
    ///
    /// # Errors
    /// The other content that the log holds.
    pub fn found_before_recovery(
        &self,
        log: &Arc<Log>,
        allowed: RangeInclusive<usize>,
        gone: Gone<'_>,
        draw: u64,
    ) -> Result<[u64; TOPICS as usize], String> {
        let (mut durable, mut found) = ([0; TOPICS as usize], Vec::new());
        let end = log.durable();
        let (_, most_trimmed) = gone.trimmed;
        for topic in 0..TOPICS {
            let seen = self.read(log, topic, end)?;
            let told = match &seen.ended {
                Ok(()) => "and no more".to_owned(),
                Err(error @ Error::NeedsRecovery { .. }) => format!("and then: {error}"),
                Err(error) => {
                    return Err(format!("reading topic {topic} before recovery: {error}"));
                }
            };
            let mut fitting = allowed.clone().rev();
            let Some(groups) = fitting.find(|groups| self.count(topic, *groups) == seen.records)
            else {
                let found = seen.records;
                return Err(format!(
                    "before recovery topic {topic} holds {found} records, none of {allowed:?} groups, {told}"
                ));
            };
            self.check_taken(topic, &seen, groups, gone).map_err(|e| format!("{BEFORE}: {e}"))?;
            // A page from before the crash may not show the last trim yet.
            if seen.first > self.count(topic, most_trimmed.min(self.0.len())) {
                return Err(format!("before recovery topic {topic} begins at {}", seen.first));
            }
            durable[topic as usize] = seen.durable;
            found.push(seen);
        }
        let most = *allowed.end();
        self.check_whole(&found, most)?;
        self.check_cursor(log, allowed, BEFORE)?;
        let asked = self.asked(log, &found, most.min(self.0.len()), gone, draw);
        asked.before_recovery().map_err(|e| format!("{BEFORE}, {e}"))?;
        Ok(durable)
    }

    /// Check that no group is there for one topic and missing for another that was read so far.
    ///
    /// If the other topic cannot be read up to the group, nothing is wrong: the first may have come
    /// there by the index.
    fn check_whole(&self, found: &[Seen], most: usize) -> Result<(), String> {
        for number in 0..most.min(self.0.len()) {
            let topics = || (0..TOPICS).filter(|topic| self.0[number].of(*topic).next().is_some());
            let has =
                |topic: u32, groups| found[topic as usize].records >= self.count(topic, groups);
            let with = topics().find(|topic| has(*topic, number + 1));
            let without = topics().find(|topic| has(*topic, number) && !has(*topic, number + 1));
            let (Some(with), Some(without)) = (with, without) else { continue };
            let begins = found[with as usize].block_of(self.count(with, number));
            let begins = begins.map(|block| self.0[number].begins_behind(with, block));
            let stopped = found[without as usize].stopped();
            let cannot_know = stopped.zip(begins).is_some_and(|(stopped, begins)| stopped < begins);
            if !cannot_know {
                return Err(format!(
                    "{BEFORE} group {number} is there for topic {with}, and not for topic {without}"
                ));
            }
        }
        Ok(())
    }

    /// Check that a log holds so many groups, or reports an error: whatever it returns equals what
    /// was appended.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn found_or_told(
        &self,
        log: &Arc<Log>,
        groups: usize,
        gone: Gone<'_>,
    ) -> Result<(), String> {
        for topic in 0..TOPICS {
            let seen = self.read(log, topic, None)?;
            let (found, all) = (seen.records, self.count(topic, groups));
            self.check_taken(topic, &seen, groups, gone)?;
            if seen.ended.is_ok() && found != all {
                return Err(format!("{found} records of topic {topic} instead of {all}, no error"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use falaj::internals::format::settings::WriteMode;

    use super::*;
    use crate::history::History;
    use crate::machine::{Machine, open_to_read};
    use crate::op::Op;

    /// Bytes of the shortest block: its header and a body of one record.
    const BLOCK_MIN: u64 = 40;

    /// Else half a group would count as one that cannot be read up to, or the other way round.
    #[test]
    fn where_a_group_begins_is_told_by_its_later_blocks_to_less_than_a_block() {
        for mode in [WriteMode::Mapped, WriteMode::Pwrite] {
            let empty = Machine::empty(mode).unwrap();
            let ops = [Op::Append, Op::Group, Op::Large, Op::Group];
            let history = History::of(&ops, &empty).unwrap();
            let image = history.journal.killed_at(history.journal.len());
            let (log, truth) = (open_to_read(&image, mode).unwrap(), &history.truth);
            let seen: Vec<_> =
                (0..TOPICS).map(|topic| truth.read(&log, topic, None).unwrap()).collect();
            let place = |topic: u32, groups| {
                seen[topic as usize].block_of(truth.count(topic, groups)).unwrap()
            };
            let groups = truth.0.iter().enumerate().filter(|(_, group)| group.0.len() > 1);
            for (number, group) in groups {
                let [(head, _), (later, _)] = &group.0[..] else { unreachable!() };
                let (head, later) =
                    (place(*head, number), group.begins_behind(*later, place(*later, number)));
                assert!(later <= head, "{later:?} is behind {head:?}");
                assert!(head.position() - later.position() < BLOCK_MIN);
            }
        }
    }

    #[test]
    fn truths_that_differ_in_a_group_a_topic_a_length_or_a_byte_have_prints_that_differ() {
        let group = |topic, len, fill| Group::one(topic, vec![vec![fill; len]]);
        let one = |topic, len, fill| Truth(vec![group(topic, len, fill)]);
        let two = |values| Truth(vec![Group::one(0, values)]);
        let all = [
            Truth::default(),
            one(0, 40, b'a'),
            one(1, 40, b'a'),
            one(0, 41, b'a'),
            one(0, 40, b'b'),
            one(0, 40, b'a').and(group(0, 40, b'a')),
            two(vec![vec![b'a'; 40]; 2]),
        ];
        let prints: std::collections::HashSet<_> = all.iter().map(Truth::print).collect();
        assert_eq!(prints.len(), all.len());
    }
}
