//! Questions to a log about places in its middle: the record at an offset, the first offset of a
//! time.
//!
//! Owns the choice of the questions and the judgement of the answers. A read from the first offset
//! uses no index; these questions do. An index may lead past a place that no reader may pass.
//!
//! Invariants: the state decides the questions, so a replay of a site asks the same ones. An answer
//! never says more than the same opener's read did, unless that read ended with `NeedsRecovery`:
//! then it did not know.

use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::log::Log;
use falaj::internals::segment::Check;

use crate::random::mix;
use crate::reading::{Seen, brief, is_record, stopped_at};
use crate::truth::{TOPICS, Truth};

/// A log, what a read from its beginning found, and what it may hold.
pub(crate) struct Asked<'a> {
    pub log: &'a Arc<Log>,
    pub truth: &'a Truth,
    /// The findings of the read, one topic after the other.
    pub seen: &'a [Seen],
    /// How many groups may be there; after recovery all of them are, and no others.
    pub groups: usize,
    /// How many groups may have lost records to compaction, and how many may be trimmed.
    pub compacted: usize,
    pub trimmed: usize,
    /// Chooses the question where there is a choice.
    pub draw: u64,
}

/// The answer to a question about an offset.
enum Answer {
    /// A block: the offset after its last record, its address, and whether it holds the record.
    Block { end: u64, begins: Address, is_there: bool },
    /// The offset lies past the end.
    End,
    /// An error.
    Error(Error),
}

impl Answer {
    fn told(&self) -> String {
        match self {
            Self::Block { end, begins, is_there } => {
                let what = if *is_there { "a record" } else { "a block without it" };
                format!("{what}, up to {end}, at {begins:?}")
            }
            Self::End => "the end".into(),
            Self::Error(error) => error.to_string(),
        }
    }
}

impl Asked<'_> {
    /// Question a recovered log: each answer must equal the read's.
    ///
    /// # Errors
    /// The first answer that differs.
    pub fn after_recovery(&self) -> Result<(), String> {
        for topic in 0..TOPICS {
            let seen = self.of(topic);
            for offset in self.offsets(topic) {
                let answer = self.offset(topic, offset)?;
                let is_right = match answer {
                    Answer::End => offset >= seen.records,
                    _ => seen.has_shown(offset, &answer),
                };
                if !is_right {
                    return Err(self.wrong(topic, offset, &answer));
                }
            }
            let end = self.log.end_offset(topic);
            if !end.as_ref().is_ok_and(|end| *end == seen.records) {
                let read = seen.records;
                return Err(format!("topic {topic} was read up to {read}, its end is {end:?}"));
            }
        }
        let (topic, time) = self.time();
        let (found, wanted) = (self.offset_of(topic, time), self.of(topic).first_from(time));
        if !found.as_ref().is_ok_and(|found| *found == wanted) {
            return Err(wrong_time(topic, time, wanted, found));
        }
        Ok(())
    }

    /// Question a log that may not be recovered yet.
    ///
    /// An answer must find what the read found, and nothing past the end that the read reported.
    /// Where the read stopped at an error, any record found must be whole.
    ///
    /// # Errors
    /// The first answer that breaks one of these rules.
    pub fn before_recovery(&self) -> Result<(), String> {
        for topic in 0..TOPICS {
            for offset in self.offsets(topic) {
                self.offset_before(topic, offset)?;
            }
        }
        let (topic, time) = self.time();
        let (found, wanted) = (self.offset_of(topic, time), self.of(topic).first_from(time));
        let offset = match found {
            Ok(found) if found == wanted => return Ok(()),
            Err(error) if self.keeps_from(topic, wanted, &error) => return Ok(()),
            Ok(Some(offset)) if wanted.is_none() && offset >= self.of(topic).records => offset,
            found => return Err(wrong_time(topic, time, wanted, found)),
        };
        let told = match self.offset_before(topic, offset)? {
            Answer::Block { is_there: true, .. } => return Ok(()),
            // This lies behind corruption, where a read without an index does not come.
            Answer::Error(Error::NeedsRecovery { .. }) if offset == 0 => return Ok(()),
            other => other.told(),
        };
        Err(format!("asked for time {time}, topic {topic} gives offset {offset}, and there {told}"))
    }

    /// True for an error that a lookup by time may meet before recovery: it passes trimmed blocks
    /// too.
    fn keeps_from(&self, topic: u32, wanted: Option<u64>, error: &Error) -> bool {
        let found = wanted.and_then(|offset| self.of(topic).block_of(offset));
        stopped_at(error).is_some_and(|met| found.is_none_or(|found| met < found))
    }

    fn offset_before(&self, topic: u32, offset: u64) -> Result<Answer, String> {
        let (seen, answer) = (self.of(topic), self.offset(topic, offset)?);
        let is_right = match &answer {
            _ if offset < seen.records => seen.has_shown(offset, &answer),
            Answer::Block { begins, .. } => {
                if seen.ended.is_err() {
                    self.check_whole(topic, offset, *begins)?;
                }
                seen.ended.is_err()
            }
            Answer::End | Answer::Error(Error::NeedsRecovery { .. }) => true,
            // A reader that does not know where a topic begins may ask for a trimmed offset.
            Answer::Error(Error::OffsetOutOfRange { .. }) => {
                seen.ended.is_err() && offset < self.truth.count(topic, self.trimmed)
            }
            Answer::Error(_) => false,
        };
        if is_right { Ok(answer) } else { Err(self.wrong(topic, offset, &answer)) }
    }

    /// Check that a reader that finds one topic's part of a group finds the others' too.
    ///
    /// This holds where a block begins with the group. The other topics may also report corruption
    /// before the group.
    fn check_whole(&self, topic: u32, offset: u64, begins: Address) -> Result<(), String> {
        let Some(number) = self.truth.group_of(topic, offset) else { return Ok(()) };
        let group = &self.truth.0[number];
        let begins = group.begins_behind(topic, begins);
        for (other, _) in group.0.iter().filter(|(other, _)| *other != topic) {
            let first = self.truth.count(*other, number);
            if first < self.of(*other).first {
                continue;
            }
            let answer = self.offset(*other, first)?;
            let is_whole = match &answer {
                Answer::Block { .. } => true,
                Answer::Error(error) => stopped_at(error).is_some_and(|at| at < begins),
                Answer::End => false,
            };
            if !is_whole {
                let told = answer.told();
                return Err(format!(
                    "asked for offset {offset}, topic {topic} gives its part of group {number}; asked \
                     for {first}, topic {other} gives {told}"
                ));
            }
        }
        Ok(())
    }

    fn of(&self, topic: u32) -> &Seen {
        &self.seen[topic as usize]
    }

    /// Offsets to ask for: the last possible one, the first of the last group, and a drawn one up
    /// to the end.
    fn offsets(&self, topic: u32) -> impl Iterator<Item = u64> + use<> {
        let (first, end) = (self.of(topic).first, self.truth.count(topic, self.groups));
        let head = end - self.truth.last_of(topic, self.groups);
        let any = first + self.drawn(topic) % (end + 1).saturating_sub(first).max(1);
        let all = [end.saturating_sub(1), head, any];
        let new = move |i: &usize| all[*i] >= first && !all[..*i].contains(&all[*i]);
        (0..all.len()).filter(new).map(move |i| all[i])
    }

    fn drawn(&self, topic: u32) -> u64 {
        mix(self.draw, topic.into()) >> 8
    }

    /// A drawn topic, with the time of one of the blocks that were read, or a later time.
    fn time(&self) -> (u32, i64) {
        let drawn = self.drawn(TOPICS);
        let (topic, later, any) = ((drawn >> 1) as u32 % TOPICS, (drawn & 1) as i64, drawn >> 32);
        let blocks = &self.of(topic).blocks;
        let any = blocks.get(any as usize % blocks.len().max(1));
        (topic, any.map_or(0, |block| block.time_ns + later))
    }

    fn offset_of(&self, topic: u32, time: i64) -> Result<Option<u64>, Error> {
        self.log.offset_at_time(topic, time, Check::Full)
    }

    /// Ask a cursor for an offset: the record there must be the one that was appended.
    fn offset(&self, topic: u32, offset: u64) -> Result<Answer, String> {
        let mut cursor = match self.log.cursor_at(topic, offset, Check::Full) {
            Ok(cursor) => cursor,
            Err(error) => return Ok(Answer::Error(error)),
        };
        let block = match cursor.next_block() {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(Answer::End),
            Err(error) => return Ok(Answer::Error(error)),
        };
        let asked = |what: String| format!("asked for offset {offset}, topic {topic} gives {what}");
        let (first, end) = (block.first(), block.end());
        if !(first..end).contains(&offset) {
            return Err(asked(format!("a block of offsets from {first} up to {end}")));
        }
        let Some(wanted) = self.truth.value(topic, offset) else {
            return Err(asked("what was never appended".into()));
        };
        let found = block.find(offset).map_err(|e| asked(e.to_string()))?;
        let walk = block.records().map_err(|e| asked(e.to_string()))?;
        let layout = found.map(|span| walk.layout_of(block.body(), &span)).transpose();
        let found = layout.map_err(|what| asked(block.damaged(what).to_string()))?;
        let is_there = found.is_some();
        match found {
            Some(parts) if !is_record(&parts, block.body(), wanted) => {
                let value = parts.value.map(|range| &block.body()[range]);
                let (value, wanted) = (brief(value), brief(Some(wanted)));
                Err(asked(format!("{value}, {wanted} was appended")))
            }
            None if offset >= self.truth.count(topic, self.compacted.min(self.groups)) => {
                Err(asked("a block without the record, and compaction may not remove it".into()))
            }
            _ => {
                let begins = Address::new(block.address().sequence(), block.position());
                Ok(Answer::Block { end, begins, is_there })
            }
        }
    }

    fn wrong(&self, topic: u32, offset: u64, answer: &Answer) -> String {
        let (seen, told) = (self.of(topic), answer.told());
        let (first, records, ended) = (seen.first, seen.records, &seen.ended);
        let block = seen.block_of(offset);
        format!(
            "asked for offset {offset}, topic {topic} gives {told}; read from {first} up to {records}, \
             then {ended:?}, it was in {block:?}"
        )
    }
}

impl Seen {
    /// True when this is the answer for an offset that was read.
    fn has_shown(&self, offset: u64, answer: &Answer) -> bool {
        // Addresses may differ: a segment that was created again holds the same records a second
        // time, and a later reader may find those.
        let Answer::Block { is_there, .. } = answer else { return false };
        *is_there != self.missing.contains(&offset)
    }

    /// The first record that was read with this time or a later one.
    fn first_from(&self, time: i64) -> Option<u64> {
        let mut from = self.blocks.iter().filter(|block| block.time_ns >= time);
        from.find_map(|block| block.first)
    }
}

fn wrong_time(
    topic: u32,
    time: i64,
    wanted: Option<u64>,
    found: Result<Option<u64>, Error>,
) -> String {
    let found = found.map_or_else(|e| e.to_string(), |found| format!("{found:?}"));
    format!(
        "asked for time {time}, topic {topic} gives offset {found}; by the read it is {wanted:?}"
    )
}

#[cfg(test)]
mod tests {
    use falaj::internals::format::settings::WriteMode;

    use super::*;
    use crate::history::History;
    use crate::machine::{Machine, open_to_read};
    use crate::op::Op;
    use crate::truth::Group;

    const DRAWS: u64 = 64;

    fn log_of(ops: &[Op]) -> (Arc<Log>, Truth, Vec<Seen>) {
        let empty = Machine::empty(WriteMode::Mapped).unwrap();
        let history = History::of(ops, &empty).unwrap();
        let image = history.journal.killed_at(history.journal.len());
        let log = open_to_read(&image, WriteMode::Mapped).unwrap();
        let seen = (0..TOPICS).map(|topic| history.truth.read(&log, topic, None).unwrap());
        let seen = seen.collect();
        (log, history.truth, seen)
    }

    fn asked<'a>(log: &'a Arc<Log>, truth: &'a Truth, seen: &'a [Seen], draw: u64) -> Asked<'a> {
        Asked { log, truth, seen, groups: truth.0.len(), compacted: 0, trimmed: 0, draw }
    }

    fn needs_recovery() -> Result<(), Error> {
        let path = "/log/00000000000000000000.log".into();
        Err(Error::NeedsRecovery { path, position: 4096, what: "damage" })
    }

    const OPS: [Op; 6] = [Op::Append, Op::Group, Op::Roll, Op::Large, Op::Extend, Op::Group];

    #[test]
    fn a_log_answers_in_its_middle_what_reading_it_shows() {
        let (log, truth, seen) = log_of(&OPS);
        for draw in 0..DRAWS {
            let asked = asked(&log, &truth, &seen, draw);
            assert_eq!((asked.after_recovery(), asked.before_recovery()), (Ok(()), Ok(())));
        }
    }

    #[test]
    fn a_record_that_a_cursor_or_a_time_gives_otherwise_than_a_read_is_noticed() {
        let is_noticed = |change: fn(&mut Seen)| {
            let (log, truth, mut seen) = log_of(&OPS);
            seen.iter_mut().for_each(change);
            let wrong = |draw: &u64| {
                let asked = asked(&log, &truth, &seen, *draw);
                asked.after_recovery().is_err() && asked.before_recovery().is_err()
            };
            (0..DRAWS).filter(wrong).count()
        };
        assert_eq!(is_noticed(|seen| seen.missing.push(seen.records - 1)), DRAWS as usize);
        assert!(is_noticed(|seen| seen.missing.push(0)) > 0, "any offset must be asked for");
        let time = |seen: &mut Seen| seen.blocks.first_mut().unwrap().first = Some(1);
        assert!(is_noticed(time) > 0, "no question asked for the changed time");
    }

    /// An index may lead past corruption that stopped a read, but not past the end that a read
    /// reported.
    #[test]
    fn behind_the_end_that_a_read_came_to_nothing_is_to_be_found_before_recovery() {
        let (log, truth, mut seen) = log_of(&OPS);
        for seen in &mut seen {
            seen.blocks.pop();
            seen.records = seen.blocks.last().unwrap().end;
        }
        for draw in 0..DRAWS {
            let told = asked(&log, &truth, &seen, draw).before_recovery().unwrap_err();
            assert!(told.starts_with("asked for "), "{told}");
        }
        seen.iter_mut().for_each(|seen| seen.ended = needs_recovery());
        for draw in 0..DRAWS {
            assert_eq!(asked(&log, &truth, &seen, draw).before_recovery(), Ok(()));
        }
    }

    #[test]
    fn half_a_group_behind_damage_is_noticed() {
        let (log, mut truth, mut seen) = log_of(&[Op::Append]);
        let [Group(blocks)] = &mut truth.0[..] else { unreachable!() };
        blocks.push((1, vec![vec![b'a'; 40]]));
        (seen[0].records, seen[0].ended) = (0, needs_recovery());
        seen[0].blocks.clear();
        let told = asked(&log, &truth, &seen, 0).before_recovery().unwrap_err();
        assert!(told.contains("gives its part of group 0"), "{told}");
    }
}
