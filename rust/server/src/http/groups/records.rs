//! The records of a poll: taken from the member's consumer, or read again by their offsets.
//!
//! Invariants: a record counts as delivered once an answer has it, and one that an answer has no space for is put back.
//! An answer is written once, as it will be sent. The last one is known by one range of offsets for each partition.

use std::time::Duration;

use axum::http::StatusCode;
use falaj::{Consumer, Error, Record, Start, Topic};
use serde_json::{Value, json};

use super::session_ended;
use super::sessions::{Part, State, Work};
use crate::http::problem::{Problem, exact};
use crate::http::shape::Line;
use crate::store::read::Share;

/// Space for the numbers of an answer.
const FRAME: usize = 128;

/// How much an answer takes.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) member: String,
    pub(super) number: u64,
    pub(super) records: u64,
    pub(super) bytes: usize,
}

/// The outcome of a look.
pub(super) enum Look {
    Answer(Share, Vec<u8>),
    /// There is no record yet in these topics.
    Nothing(Vec<Topic>),
    /// The first record needs a larger share.
    Needs {
        bytes: usize,
        offset: u64,
    },
    Refused(Box<Problem>),
}

/// An answer that is being written.
struct Writer {
    text: Vec<u8>,
    /// Bytes that it may take, without those of its end.
    most: usize,
    records: u64,
}

impl Writer {
    fn new(wanted: &Wanted, most: usize) -> Self {
        let member = Value::from(wanted.member.as_str());
        let head =
            format!("{{\"member\":{member},\"number\":{},\"records\":[", exact(wanted.number));
        Self { text: head.into_bytes(), most, records: 0 }
    }

    /// Write a record; return how many bytes the answer would need, where there is no space for it.
    fn put(&mut self, topic: &Topic, record: Record) -> falaj::Result<Result<(), usize>> {
        let is_json = topic.codec()? == Some("json");
        let (batch, at) = record.into_parts();
        let line = Line { topic: topic.name(), is_json, batch: &batch, at: &at, before: "" };
        let begin = self.text.len() + 1;
        let mut needed = begin + line.most();
        if needed > self.most {
            // The bound is for the quick: this one may well be shorter.
            needed = begin + line.len();
        }
        if needed > self.most {
            return Ok(Err(needed));
        }
        if needed > self.text.capacity() {
            let capacity = needed.max((self.text.capacity() * 2).min(self.most));
            self.text.reserve_exact(capacity - self.text.len());
        }
        if self.records > 0 {
            self.text.push(b',');
        }
        line.write(&mut self.text);
        // Its line end.
        self.text.pop();
        self.records += 1;
        Ok(Ok(()))
    }

    fn finish(mut self, mut share: Share, tail: &str) -> Look {
        self.text.extend_from_slice(tail.as_bytes());
        share.shrink_to(self.text.capacity());
        Look::Answer(share, self.text)
    }
}

/// Find a topic by name.
pub(super) type Find<'a> = &'a dyn Fn(&str) -> falaj::Result<Topic>;

impl Work {
    /// Answer a poll with at most so many bytes, if there is an answer now.
    pub(super) fn look(
        &mut self,
        wanted: &Wanted,
        share: Share,
        bytes: usize,
        is_last: bool,
        find: Find<'_>,
    ) -> falaj::Result<Look> {
        let State::Open(consumer, _) = &mut self.state else {
            return Ok(Look::Refused(session_ended()));
        };
        if wanted.number == self.last {
            return self.again(wanted, share, bytes);
        }
        if wanted.number != self.last + 1 {
            let last = exact(self.last);
            let detail =
                format!("the last poll had the number {last}, and this one has {}", wanted.number);
            let problem = Problem::new(StatusCode::CONFLICT, "poll-number", detail);
            let problem = problem.with("last", last).remedy("send the next number");
            return Ok(Look::Refused(Box::new(problem)));
        }
        let mut writer = Writer::new(wanted, bytes.saturating_sub(tail_most(&self.assigned)));
        let head = writer.text.len();
        let gathered = gather(consumer, wanted, &mut writer, find);
        let assigned = consumer.assignment().into_iter();
        self.assigned = assigned.map(|(topic, partition)| (topic.to_owned(), partition)).collect();
        let parts = match gathered? {
            Gathered::Parts(parts) => parts,
            Gathered::Needs { bytes, offset } => {
                return Ok(Look::Needs { bytes: bytes + tail_most(&self.assigned), offset });
            }
        };
        if writer.records == 0 && !is_last {
            return Ok(Look::Nothing(self.topics(find)));
        }
        (self.last, self.answer, self.bytes) = (wanted.number, parts, writer.text.len() - head);
        self.is_received = false;
        Ok(writer.finish(share, &tail(&self.assigned)))
    }

    /// Answer the last poll again.
    fn again(&self, wanted: &Wanted, share: Share, bytes: usize) -> falaj::Result<Look> {
        let mut writer = Writer::new(wanted, usize::MAX);
        let tail = tail(&self.assigned);
        let needed = writer.text.len() + self.bytes + tail.len();
        if needed > bytes {
            let offset = self.answer.first().map_or(0, |part| part.offsets.start);
            return Ok(Look::Needs { bytes: needed, offset });
        }
        writer.most = bytes - tail.len();
        for part in &self.answer {
            let topic = part.topic.partition(part.partition)?;
            // Records that retention deleted meanwhile are no more.
            let first = part.offsets.start.max(topic.start_offset()?);
            for record in topic.scan(first..part.offsets.end.max(first))? {
                if let Err(needed) = writer.put(&topic, record?)? {
                    return Ok(Look::Needs { bytes: needed + tail.len(), offset: first });
                }
            }
        }
        Ok(writer.finish(share, &tail))
    }

    /// The topics that a member which waits is woken by.
    fn topics(&self, find: Find<'_>) -> Vec<Topic> {
        let mut names: Vec<_> = self.assigned.iter().map(|(topic, _)| topic).collect();
        names.dedup();
        // One that was deleted shows at the next look.
        names.into_iter().filter_map(|name| find(name).ok()).collect()
    }
}

enum Gathered {
    Parts(Vec<Part>),
    Needs { bytes: usize, offset: u64 },
}

/// Take the next records of a consumer into an answer, as long as they fit.
fn gather(
    consumer: &mut Consumer,
    wanted: &Wanted,
    writer: &mut Writer,
    find: Find<'_>,
) -> falaj::Result<Gathered> {
    let mut parts: Vec<Part> = Vec::new();
    while writer.records < wanted.records {
        let delivered = match consumer.poll(Duration::ZERO) {
            Ok(Some(delivered)) => delivered,
            Ok(None) => break,
            // The next poll has the error, and these records are not lost.
            Err(_) if writer.records > 0 => break,
            Err(error) => return Err(error),
        };
        let (name, partition) = (delivered.topic().to_owned(), delivered.partition());
        let offset = delivered.offset();
        let known =
            parts.iter().rposition(|part| part.partition == partition && part.topic.name() == name);
        let put = match known {
            Some(at) => Ok(parts[at].topic.clone()),
            None => find(&name),
        }
        .and_then(|topic| Ok((writer.put(&topic, delivered.into_inner())?, topic)));
        match (put, known) {
            (Ok((Ok(()), _)), Some(at)) => parts[at].offsets.end = offset + 1,
            (Ok((Ok(()), topic)), None) => {
                parts.push(Part { topic, partition, offsets: offset..offset + 1 });
            }
            (Ok((Err(bytes), _)), _) => {
                put_back(consumer, &name, partition, offset)?;
                if writer.records == 0 {
                    return Ok(Gathered::Needs { bytes, offset });
                }
                break;
            }
            (Err(error), _) => {
                put_back(consumer, &name, partition, offset)?;
                if writer.records == 0 {
                    return Err(error);
                }
                break;
            }
        }
    }
    Ok(Gathered::Parts(parts))
}

/// Let the next poll deliver a record again; if retention deleted it meanwhile, the next one.
fn put_back(
    consumer: &mut Consumer,
    topic: &str,
    partition: u32,
    offset: u64,
) -> falaj::Result<()> {
    match consumer.seek(topic, partition, offset..) {
        Err(Error::OffsetOutOfRange { .. }) => {
            consumer.seek(topic, partition, Start::Earliest).map(drop)
        }
        sought => sought.map(drop),
    }
}

/// The end of an answer: the partitions that the member has.
fn tail(assigned: &[(String, u32)]) -> String {
    let each =
        |(topic, partition): &(String, u32)| json!({ "topic": topic, "partition": partition });
    let all: Value = assigned.iter().map(each).collect();
    format!("],\"assigned\":{all}}}\n")
}

/// A bound of its length, also with some partitions more.
fn tail_most(assigned: &[(String, u32)]) -> usize {
    FRAME + assigned.iter().map(|(topic, _)| topic.len() + FRAME / 2).sum::<usize>()
}
