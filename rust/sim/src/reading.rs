//! A read of a topic from its beginning that compares each record with what was appended.
//!
//! Owns what a read has seen. [`crate::truth`] judges that as a whole, and [`crate::ask`] compares
//! other answers with it. Invariant: each byte that counts as read equals the truth's.

use std::ops::Range;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::format::address::Address;
use falaj::internals::format::record::RecordLayout;
use falaj::internals::log::Log;
use falaj::internals::segment::Check;

use crate::truth::{Truth, record_of};

/// The result of reading one topic.
pub(crate) struct Seen {
    /// The offset at which the log says the topic begins.
    pub first: u64,
    /// Records up to the last one that was read, trimmed ones included; each that was read equals
    /// the truth's.
    pub records: u64,
    /// How many of these the log calls durable.
    pub durable: u64,
    /// Offsets before that which have no record.
    pub missing: Vec<u64>,
    /// The blocks that it read.
    pub blocks: Vec<SeenBlock>,
    /// How the read ended.
    pub ended: Result<(), Error>,
}

/// A block that was read.
pub(crate) struct SeenBlock {
    /// The offset after its last record.
    pub end: u64,
    /// Its address.
    pub begins: Address,
    /// When it was appended: the time of its records, since none here has a time of its own.
    pub time_ns: i64,
    /// Its first record that is there and not trimmed.
    pub first: Option<u64>,
}

impl Seen {
    /// The address of the block with this offset, if the read came to it.
    pub fn block_of(&self, offset: u64) -> Option<Address> {
        self.blocks.iter().find(|block| block.end > offset).map(|block| block.begins)
    }

    /// The address where the read could not go on.
    pub fn stopped(&self) -> Option<Address> {
        self.ended.as_ref().err().and_then(stopped_at)
    }
}

/// The address at which a reader stopped because it must wait for recovery.
pub(crate) fn stopped_at(error: &Error) -> Option<Address> {
    let Error::NeedsRecovery { path, position, .. } = error else { return None };
    let sequence = path.file_stem()?.to_str()?.parse().ok()?;
    Some(Address::new(sequence, *position))
}

impl Truth {
    /// Read a topic from its beginning, and compare each record.
    pub(crate) fn read(
        &self,
        log: &Arc<Log>,
        topic: u32,
        durable: Option<Address>,
    ) -> Result<Seen, String> {
        let (missing, blocks) = (Vec::new(), Vec::new());
        let mut seen = Seen { first: 0, records: 0, durable: 0, missing, blocks, ended: Ok(()) };
        match log.first_offset(topic) {
            Ok(first) => (seen.first, seen.records) = (first, first),
            Err(error) => return Ok(Seen { ended: Err(error), ..seen }),
        }
        let mut wanted = (0..).zip(self.values(topic)).skip(seen.first as usize).peekable();
        let mut cursor = match log.cursor_at(topic, seen.first, Check::Full) {
            Ok(cursor) => cursor,
            Err(error) => return Ok(Seen { ended: Err(error), ..seen }),
        };
        loop {
            let block = match cursor.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => return Ok(seen),
                Err(error) => return Ok(Seen { ended: Err(error), ..seen }),
            };
            let mut records = block.records().map_err(|e| format!("a block's records: {e}"))?;
            let (body, mut first) = (block.body(), None);
            while let Some(parts) = records.next(body).map_err(|e| format!("a record: {e:?}"))? {
                let offset = block.first() + u64::from(parts.offset_delta);
                if offset < seen.first {
                    continue;
                }
                while let Some((at, _)) = wanted.next_if(|(at, _)| *at < offset) {
                    seen.missing.push(at);
                }
                let expected = wanted.next();
                let is_it =
                    |(at, value): (u64, &Vec<u8>)| at == offset && is_record(&parts, body, value);
                if !expected.is_some_and(is_it) {
                    let value = brief(parts.value.map(|range| &body[range]));
                    let expected = expected.map(|(_, value)| brief(record_of(value).1));
                    return Err(format!(
                        "topic {topic}, offset {offset} holds {value}, {expected:?} was appended"
                    ));
                }
                first = first.or(Some(offset));
                seen.records = offset + 1;
            }
            while let Some((at, _)) = wanted.next_if(|(at, _)| *at < block.end()) {
                seen.missing.push(at);
            }
            seen.records = seen.records.max(block.end());
            let begins = Address::new(block.address().sequence(), block.position());
            let (end, time_ns) = (block.end(), block.appended_ns());
            seen.blocks.push(SeenBlock { end, begins, time_ns, first });
            if durable.is_some_and(|durable| cursor.address() <= durable) {
                seen.durable = seen.records;
            }
        }
    }
}

/// True for the record that a value in a group stands for.
pub(crate) fn is_record(parts: &RecordLayout, body: &[u8], value: &[u8]) -> bool {
    let (key, value) = record_of(value);
    let found = |range: &Option<Range<usize>>| range.clone().map(|range| &body[range]);
    key.as_ref().map(<[u8; 2]>::as_slice) == found(&parts.key) && value == found(&parts.value)
}

pub(crate) fn brief(value: Option<&[u8]>) -> String {
    value.map_or("nothing".into(), |v| {
        format!("{} × {:?}", v.len(), v.first().map(|b| char::from(*b)))
    })
}
