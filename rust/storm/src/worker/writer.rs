//! The writer: appends half of its records singly, the others in batches of any size.

use falaj::internals::error::Error;
use falaj::internals::topic::{NewRecord, Topic};

use super::{Wrong, now_us, open_for_writing, sync_mode};
use crate::acks::{Acks, BARE, CALLS, LINES, Line, RECORDS, STOP, State, TRIMS};
use crate::payload::{Made, Pool, crc_on, length};
use crate::random::Random;
use crate::task::Task;

/// The place for the headers of a record.
type Headers<'a> = [(&'a str, Option<&'a [u8]>); 1];

struct Writer<'a> {
    task: &'a Task,
    acks: Acks,
    pool: Pool,
    topics: Vec<Topic>,
    random: Random,
    seq: u64,
    batch: Vec<Made>,
    calls: u64,
}

/// Append until stopped, or for a number of calls.
pub fn write(task: &Task) -> Result<(), Wrong> {
    let acks = Acks::open(&task.account)?;
    let (_store, topics) = open_for_writing(&task.layout)?;
    let random = Random::new(task.seed, u64::from(task.id));
    let (pool, batch) = (Pool::new(task.seed), Vec::new());
    let mut writer = Writer { task, acks, pool, topics, random, seq: 0, batch, calls: 0 };
    while writer.goes_on() {
        let singles = writer.random.magnitude(8);
        for _ in 0..singles {
            if writer.goes_on() {
                writer.append_one()?;
            }
        }
        let mut left = singles as usize;
        while left > 0 && writer.goes_on() {
            let count = (writer.random.magnitude(7) as usize).min(left);
            left -= count;
            writer.append_many(count)?;
        }
        writer.look_back()?;
    }
    Ok(())
}

impl Writer<'_> {
    fn goes_on(&self) -> bool {
        let is_told = self.calls % 64 == 0 && self.acks.word(STOP) != 0;
        let is_full = self.acks.word(crate::acks::BEGUN) as usize + 8 >= LINES;
        let is_done = self.task.calls > 0 && self.calls >= self.task.calls;
        !is_told && !is_full && !is_done
    }

    fn a_place(&mut self) -> (u16, u16) {
        let layout = &self.task.layout;
        let topic = self.random.below(layout.topics.into()) as u16;
        (topic, self.random.below(layout.partitions.into()) as u16)
    }

    /// Mostly this worker's own mode; at times a durable append among others.
    fn a_mode(&mut self) -> u64 {
        if self.random.chance(1, 2_000) { 2 } else { self.task.sync }
    }

    fn append_one(&mut self) -> Result<(), Wrong> {
        let (place, mode) = (self.a_place(), self.a_mode());
        let bare = self.random.chance(1, 500);
        let mut made = self.batch.pop().unwrap_or_default();
        if bare {
            made.fill_bare();
        } else {
            let len = length(&mut self.random, self.task.layout.value_max());
            let rich = self.random.chance(1, 50);
            made.fill(&self.pool, self.task.id, self.seq, len, rich);
        }
        let crc = crc_on(0, made.key.as_deref(), &made.value);
        let line = line(1, self.seq, crc, place, if bare { BARE } else { 0 }, mode);
        let i = self.acks.intend(&line);
        let topic = &self.topics[usize::from(place.0)];
        let mut headers = [("", None)];
        let record = made.record(&mut headers);
        let sync = Some(sync_mode(mode));
        let appended = topic.append_to(place.1.into(), &record, sync);
        self.batch.push(made);
        self.seq += u64::from(!bare);
        self.note(&[i], 1, mode, appended.map(|offset| vec![offset]))
    }

    /// Append a batch to one partition, or to several of a topic at once.
    fn append_many(&mut self, count: usize) -> Result<(), Wrong> {
        let (place, mode) = (self.a_place(), self.a_mode());
        let count = self.make(count);
        let partitions = usize::from(self.task.layout.partitions);
        let spread = partitions > 1 && count >= partitions && self.random.chance(1, 3);
        let parts = if spread { partitions } else { 1 };
        let per_part = count.div_ceil(parts);
        let made = std::mem::take(&mut self.batch);
        let chunks: Vec<&[Made]> = made[..count].chunks(per_part).collect();
        let group = if chunks.len() > 1 { self.acks.word(crate::acks::BEGUN) + 1 } else { 0 };
        let mut lines = Vec::new();
        let mut seq = self.seq;
        for (part, chunk) in chunks.iter().enumerate() {
            let at = if spread { (place.0, part as u16) } else { place };
            let crc = chunk.iter().fold(0, |crc, m| crc_on(crc, m.key.as_deref(), &m.value));
            lines.push(self.acks.intend(&line(chunk.len(), seq, crc, at, group, mode)));
            seq += chunk.len() as u64;
        }
        self.seq = seq;
        let topic = &self.topics[usize::from(place.0)];
        let appended = append_chunks(topic, &chunks, spread, place.1, mode);
        self.batch = made;
        self.note(&lines, count as u64, mode, appended)
    }

    /// Make records that fit one call; return how many.
    fn make(&mut self, count: usize) -> usize {
        let mut room = self.task.layout.batch_max();
        for i in 0..count {
            let len = length(&mut self.random, self.task.layout.value_max());
            if len + 64 > room {
                return i.max(1);
            }
            room -= len + 64;
            if self.batch.len() <= i {
                self.batch.push(Made::default());
            }
            let rich = self.random.chance(1, 100);
            self.batch[i].fill(&self.pool, self.task.id, self.seq + i as u64, len, rich);
        }
        count
    }

    fn note(
        &mut self,
        lines: &[usize],
        records: u64,
        mode: u64,
        appended: Result<Vec<u64>, Error>,
    ) -> Result<(), Wrong> {
        self.calls += 1;
        match appended {
            Ok(firsts) => {
                let now = now_us();
                for (i, first) in lines.iter().zip(firsts) {
                    self.acks.acknowledge(*i, first, mode, now);
                }
                self.acks.add(CALLS, 1);
                self.acks.add(RECORDS, records);
                Ok(())
            }
            // Visible, and perhaps not for long: the line stays as it is.
            Err(Error::DurabilityUnknown { source, .. }) => match *source {
                Error::LockTimeout { .. } => Ok(()),
                other => Err(other.into()),
            },
            Err(error) => {
                lines.iter().for_each(|i| self.acks.refuse(*i));
                let waits = matches!(error, Error::LockTimeout { .. });
                if waits { Ok(()) } else { Err(error.into()) }
            }
        }
    }

    /// Trim some of what was checked already.
    fn trim(&mut self, place: (u16, u16)) -> Result<(), Wrong> {
        let of_it = |limit: &&(u16, u16, u64)| (limit.0, limit.1) == place;
        let limit = self.task.may_trim.iter().find(of_it).map_or(0, |limit| limit.2);
        let to = limit.saturating_sub(self.random.magnitude(14));
        if to == 0 {
            return Ok(());
        }
        match self.topics[usize::from(place.0)].trim(&[(place.1.into(), to)]) {
            Ok(_) => self.acks.add(TRIMS, 1),
            Err(Error::LockTimeout { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// At times, check that the last acknowledged record is there, and note what is durable.
    fn look_back(&mut self) -> Result<(), Wrong> {
        let place = self.a_place();
        let topic = &self.topics[usize::from(place.0)];
        let partition = place.1.into();
        match self.random.below(24) {
            0 => {
                let end = topic.end(partition)?;
                topic.flush()?;
                self.acks.told_durable(place, end);
            }
            1..4 => self.acks.told_durable(place, topic.durable(partition)?),
            // This deletes files at times, or leaves them if the process dies of it.
            5 => self.trim(place)?,
            4 => {
                let last = self.acks.line((self.acks.word(crate::acks::BEGUN) as usize).max(1) - 1);
                let Some(last) = last.filter(|last| last.state == State::Acknowledged) else {
                    return Ok(());
                };
                let topic = &self.topics[usize::from(last.place.0)];
                let mut crc = 0;
                for offset in last.offset..last.offset + u64::from(last.count) {
                    let record = topic.get_in(last.place.1.into(), offset)?;
                    crc = crc_on(crc, record.key(), record.value().unwrap_or_default());
                }
                if crc != last.crc {
                    return Err(format!("an acknowledged record reads otherwise: {last:?}").into());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn append_chunks(
    topic: &Topic,
    chunks: &[&[Made]],
    spread: bool,
    partition: u16,
    mode: u64,
) -> Result<Vec<u64>, Error> {
    let mut headers: Vec<Vec<Headers<'_>>> =
        chunks.iter().map(|chunk| vec![[("", None)]; chunk.len()]).collect();
    let records: Vec<Vec<NewRecord<'_>>> = chunks
        .iter()
        .zip(&mut headers)
        .map(|(chunk, places)| chunk.iter().zip(places).map(|(m, p)| m.record(p)).collect())
        .collect();
    let sync = Some(sync_mode(mode));
    if spread {
        let parts: Vec<(u32, &[NewRecord<'_>])> =
            records.iter().enumerate().map(|(p, r)| (p as u32, r.as_slice())).collect();
        return topic
            .extend_partitions(&parts, sync)
            .map(|ranges| ranges.iter().map(|range| range.start).collect());
    }
    topic.extend_to(partition.into(), &records[0], sync).map(|range| vec![range.start])
}

fn line(count: usize, seq: u64, crc: u32, place: (u16, u16), group: u64, mode: u64) -> Line {
    let (state, offset, time_us) = (State::Intended, 0, 0);
    Line { state, count: count as u32, seq, offset, crc, place, group, mode, time_us }
}
