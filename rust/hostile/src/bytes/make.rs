//! Input for decoders: well encoded, then corrupted, or nothing but noise.

use falaj::internals::format::block::{self, BlockHeader, Kind, Producer, flag};
use falaj::internals::format::checksum::seed;
use falaj::internals::format::names;
use falaj::internals::format::record::BodyWriter;
use falaj::internals::format::retention::Retention;
use falaj::internals::format::segment;
use falaj::internals::format::settings::{StoreSettings, TopicSettings, WriteMode};
use falaj::internals::format::state::{End, LogState, TopicState};
use falaj::internals::format::{consumer, control, index, part, queue, varint, wake};

use crate::example::{Written, with_records};
use crate::random::Random;

/// Salt and generation of all that is made.
pub const SALT: u64 = 0x0123_4567_89ab_cdef;
pub const LOG: [u8; 16] = [7; 16];
/// Position at which blocks are made to lie.
pub const POSITION: u64 = 8192;

/// Change bytes as bad disks and bad programs do.
pub fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let len = bytes.len() as u64;
        if len == 0 {
            let some = 1 + random.below(64) as usize;
            *bytes = random.bytes(some);
            return;
        }
        let at = random.below(len) as usize;
        match random.below(9) {
            0..3 => bytes[at] ^= 1 << random.below(8),
            3 => bytes.truncate(at),
            4 => bytes.extend(random.bytes(at % 97)),
            5 => {
                let end = bytes.len().min(at + 1 + random.below(32) as usize);
                bytes[at..end].fill(0);
            }
            6 => put_number(random, bytes, at),
            7 => {
                let from = random.below(len) as usize;
                let some = (bytes.len() - at.max(from)).min(1 + random.below(64) as usize);
                bytes.copy_within(from..from + some, at);
            }
            _ => {
                let end = bytes.len().min(at + 1 + random.below(16) as usize);
                let noise = random.bytes(end - at);
                bytes[at..end].copy_from_slice(&noise);
            }
        }
    }
}

/// Put a number of two, four or eight bytes, or a varint, in the place of what is there.
fn put_number(random: &mut Random, bytes: &mut [u8], at: usize) {
    let number = random.edgy(bytes.len() as u64);
    let mut text = number.to_le_bytes().to_vec();
    match random.below(4) {
        0 => text.truncate(2),
        1 => text.truncate(4),
        2 => {
            text.clear();
            varint::put(&mut text, number);
        }
        _ => {}
    }
    let some = text.len().min(bytes.len() - at);
    bytes[at..at + some].copy_from_slice(&text[..some]);
}

/// Mostly corrupted, sometimes valid, sometimes noise.
fn perhaps(random: &mut Random, mut sound: Vec<u8>) -> Vec<u8> {
    match random.below(16) {
        0 => sound,
        1 => {
            let len = random.below(200) as usize;
            random.bytes(len)
        }
        _ => {
            damage(random, &mut sound);
            sound
        }
    }
}

fn written(random: &mut Random) -> Written {
    let bytes = |random: &mut Random, most: u64| {
        let len = random.below(most) as usize;
        random.bytes(len)
    };
    let some = |random: &mut Random, most| (!random.once_in(3)).then(|| bytes(random, most));
    let headers = (0..random.below(3)).map(|i| (format!("h{i}"), some(random, 9))).collect();
    Written {
        key: some(random, 20),
        value: some(random, 60),
        headers,
        event_time_ns: random.once_in(2).then(|| random.next() as i64),
    }
}

/// Six bytes of flags and count, then the body.
pub fn records(random: &mut Random) -> Vec<u8> {
    let mut body = BodyWriter::default();
    let rich = random.once_in(2);
    let records: Vec<_> = (0..1 + random.below(12)).map(|_| written(random)).collect();
    body.begin(rich, rich.then(|| random.next() as i64));
    with_records(&records, |records| {
        for record in records {
            if rich {
                body.push(record);
            } else {
                body.push_value(record.value.unwrap_or_default());
            }
        }
    });
    let mut flags = body.flags();
    if random.once_in(6) {
        flags ^= *random.pick(&[flag::RICH, flag::SPARSE, flag::EVENT_TIME]);
    }
    let count = if random.once_in(6) { random.edgy(12) as u32 } else { body.count() };
    let body = perhaps(random, body.body().to_vec());
    [&flags.to_le_bytes()[..], &count.to_le_bytes(), &body].concat()
}

pub fn block(random: &mut Random) -> Vec<u8> {
    let kind =
        *random.pick(&[Kind::Data, Kind::Data, Kind::Void, Kind::Meta, Kind::Snapshot, Kind::End]);
    let mut header = BlockHeader::new(kind);
    if kind == Kind::Data {
        let all =
            [flag::TOPIC, flag::GROUP, flag::MEMBER, flag::SPARSE, flag::PRODUCER, flag::RICH];
        header.flags =
            all.iter().fold(0, |sum, bit| sum | if random.once_in(3) { *bit } else { 0 });
        header.count = random.edgy(9) as u32;
        header.span = header.count.max(random.edgy(9) as u32);
        header.offset = random.edgy(77) as u32;
        header.topic = random.edgy(2) as u32;
        header.producer = (header.flags & flag::PRODUCER != 0).then(|| {
            let (id, sequence) = (random.next(), random.edgy(3));
            Producer { id, sequence, span: random.edgy(3) as u32, flags: random.edgy(2) as u32 }
        });
    }
    header.time = random.next() & block::MAX_RELATIVE_TIME;
    header.len = (header.header_len() as u64 + random.below(300)) as u32;
    header.group_len = (header.padded() + 8 * random.below(9)) as u32;
    if header.flags & flag::SPARSE == 0 {
        header.span = header.count;
    }
    let mut bytes = [0; block::MAX_HEADER_LEN];
    let (word, _) = header.encode(SALT, seed(SALT), POSITION, &mut bytes);
    bytes[..8].copy_from_slice(&word.to_le_bytes());
    let bytes = bytes[..if random.once_in(2) { header.header_len() } else { bytes.len() }].to_vec();
    perhaps(random, bytes)
}

pub fn varints(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(8) {
        let number = random.edgy(300);
        varint::put(&mut bytes, number);
    }
    perhaps(random, bytes)
}

pub fn segment_page(random: &mut Random) -> Vec<u8> {
    let previous = random.once_in(2).then(|| segment::Previous {
        sequence: random.edgy(4),
        salt: random.next(),
        end: random.edgy(4096),
    });
    let header = segment::SegmentHeader {
        supersedes: random.once_in(2),
        log: LOG,
        sequence: random.edgy(5),
        salt: SALT,
        previous,
        replaces: None,
        time_base_us: random.next() as i64,
    };
    let mut page = vec![0; falaj::internals::format::FIRST_BLOCK as usize];
    for at in segment::HEADERS {
        page[at as usize..][..segment::HEADER_LEN].copy_from_slice(&header.encode());
    }
    for at in segment::MARKS {
        let mark = segment::Mark {
            serial: random.edgy(7),
            position: random.edgy(4096) & !7,
            clean: random.once_in(2),
            succeeded: random.once_in(2),
            control: random.next(),
            incarnation: random.next(),
        };
        let at = at as usize;
        page[at..at + segment::MARK_LEN].copy_from_slice(&mark.encode(SALT));
    }
    let mut bytes = perhaps(random, page);
    if bytes.len() >= segment::HEADER_LEN && random.once_in(2) {
        super::forge::segment_header(&mut bytes);
    }
    bytes
}

pub fn index_file(random: &mut Random) -> Vec<u8> {
    let mut bytes = index::encode_header(LOG, 3, SALT).to_vec();
    for _ in 0..random.below(6) {
        let entry = index::IndexEntry {
            topic: random.edgy(2) as u32,
            offset: random.edgy(100),
            position: random.edgy(4096) & !7,
            highest_ns: random.next() as i64,
        };
        bytes.extend(entry.encode(SALT));
    }
    perhaps(random, bytes)
}

pub fn pages(random: &mut Random) -> Vec<u8> {
    let header = match random.below(2) {
        0 => control::encode_header(LOG, 9).to_vec(),
        _ => wake::encode_header(LOG).to_vec(),
    };
    perhaps(random, header)
}

pub fn entries(random: &mut Random) -> Vec<u8> {
    let mut state = LogState::default();
    for _ in 0..random.below(5) {
        let mut topic = TopicState::empty(LOG, random.below(3) as u32);
        topic.first = random.edgy(9);
        topic.next = random.edgy(99);
        topic.highest_ns = random.next() as i64;
        state.set_topic(random.below(12) as u32, topic);
    }
    let mut body = state.encode_since(&LogState::default());
    if random.once_in(2) {
        let kind = random.below(8);
        let len = *random.pick(&[0, 4, 12, 16, 28, 44, 56]) + random.below(5);
        varint::put(&mut body, kind);
        varint::put(&mut body, if random.once_in(5) { random.edgy(len) } else { len });
        let mut payload = random.bytes(len as usize);
        if let (true, Some(number)) = (random.once_in(2), payload.get_mut(..4)) {
            number.copy_from_slice(&(random.below(12) as u32).to_le_bytes());
        }
        body.extend(payload);
    }
    perhaps(random, body)
}

pub fn end(random: &mut Random) -> Vec<u8> {
    let end = End { sequence: random.edgy(4), salt: random.next() };
    perhaps(random, end.encode().to_vec())
}

pub fn settings(random: &mut Random) -> Vec<u8> {
    let mode = *random.pick(&[WriteMode::Mapped, WriteMode::Pwrite]);
    let text = match random.below(2) {
        0 => StoreSettings {
            id: LOG,
            created_us: random.next() as i64,
            write_mode: mode,
            retention_bytes: random.once_in(2).then(|| random.edgy(9)),
            ship_backlog_bytes: random.once_in(4).then(|| random.edgy(9)),
            ship_min_sync: random.once_in(4).then(|| random.edgy(9)),
            revision: random.edgy(2),
        }
        .encode(),
        _ => topic(random).encode(),
    };
    let mut bytes = text.into_bytes();
    if random.once_in(3) {
        let words =
            ["true", "null", "-1", "1e99", "{}", "[", "\"\"", "\\u0000", "18446744073709551616"];
        let at = random.below(bytes.len() as u64) as usize;
        let word = random.pick(&words).bytes();
        bytes.splice(at..at, word);
    }
    let mut bytes = perhaps(random, bytes);
    if random.once_in(2) {
        super::forge::settings(&mut bytes);
    }
    bytes
}

fn topic(random: &mut Random) -> TopicSettings {
    TopicSettings {
        name: (*random.pick(&["orders", "", "..", "ä", "a/b", "\"", "\\"])).into(),
        generation: LOG,
        log: "orders".into(),
        log_generation: LOG,
        partitions: random.edgy(3) as u32,
        number: random.edgy(3) as u32,
        codec: "bytes".into(),
        codec_unnamed: random.once_in(2),
        partitioner: (*random.pick(&["crc32", "", "murmur2"])).into(),
        properties: (0..random.below(3)).map(|n| (n.to_string(), "\"".into())).collect(),
        segment_bytes: random.edgy(65_536),
        sync_interval_ms: random.edgy(100),
        compacted: random.once_in(2),
        created_us: random.next() as i64,
        retention: Retention {
            bytes: random.once_in(2).then(|| random.edgy(9)),
            age_ms: random.once_in(2).then(|| random.edgy(9)),
            records: random.once_in(2).then(|| random.edgy(9)),
            waits: random.once_in(2),
            protected: random.once_in(2),
        },
        revision: random.edgy(2),
    }
}

pub fn name(random: &mut Random) -> Vec<u8> {
    let text = match random.below(6) {
        0 => names::segment(random.edgy(9)),
        1 => names::index(random.edgy(9)),
        2 => names::log_dir("orders", &LOG),
        3 => "a".repeat(random.below(260) as usize),
        4 => (*random.pick(&[".", "..", "a/../b", "a\0b", "", "-", "é", "a\n"])).into(),
        _ => names::hex(&LOG),
    };
    perhaps(random, text.into_bytes())
}

pub fn consumer_file(random: &mut Random) -> Vec<u8> {
    let (generation, partition) = (LOG, random.edgy(3) as u32);
    let topic = "t".repeat(1 + random.below(names::MAX_NAME as u64) as usize);
    let named = consumer::Named { generation, partition, topic };
    let mut entry = vec![0; consumer::ENTRY_LEN as usize];
    let bytes = consumer::encode_named(&named);
    entry[..bytes.len()].copy_from_slice(&bytes);
    for at in [512, 1024] {
        let place = |random: &mut Random| consumer::CursorPosition {
            offset: random.edgy(9),
            crc: random.next() as u32,
            time_us: random.next() as i64,
        };
        let (committed, safe) = (place(random), place(random));
        let (serial, incarnation) = (random.edgy(7), random.next());
        let filled = [b'm'; 384];
        let metadata = consumer::CommitMetadata::new(&filled[..random.below(385) as usize]);
        let metadata = metadata.unwrap_or_default();
        let cursor = consumer::StoredCursor {
            generation,
            partition,
            serial,
            committed,
            safe,
            incarnation,
            metadata,
        };
        entry[at..at + consumer::CURSOR_LEN].copy_from_slice(&consumer::encode_cursor(&cursor));
    }
    let log = [random.below(2) as u8; 16];
    let head = perhaps(random, consumer::encode_header(LOG, log).to_vec());
    if head.len() == consumer::HEADER_LEN {
        return [head, perhaps(random, entry)].concat();
    }
    head
}

pub fn staged_part(random: &mut Random) -> Vec<u8> {
    let owner = part::Owner { log: LOG, topic: [9; 16], id: SALT };
    let which = random.below(3) as u8;
    let bytes = match which {
        0 => {
            let records = (0..random.below(5)).map(|p| (p as u32, random.edgy(100))).collect();
            let (job, part) = ("nightly".into(), "7-0".into());
            let (len, frames, heads_crc) =
                (random.edgy(1 << 40), random.next() as u32, random.next() as u32);
            part::Manifest { owner, load: job, part, len, frames, heads_crc, records }.encode()
        }
        1 => part::PartHeader { owner, token: (random.next(), random.edgy(9)) }.encode().to_vec(),
        _ => {
            let frame = part::Frame {
                partition: random.below(9) as u32,
                count: random.edgy(100) as u32,
                len: random.edgy(1000) as u32,
                body_crc: random.next() as u32,
                highest_ns: random.once_in(2).then(|| random.next() as i64),
                flags: *random.pick(&[0, flag::RICH, flag::RICH | flag::EVENT_TIME, u16::MAX]),
                uses_append_time: random.once_in(2),
            };
            frame.encode(SALT, POSITION).to_vec()
        }
    };
    let mut all = vec![which];
    all.extend(perhaps(random, bytes));
    all
}

pub fn queue_page(random: &mut Random) -> Vec<u8> {
    let parts = queue::Parts { capacity: 64 << random.below(4), ordered: random.once_in(2) };
    let header = queue::QueueHeader {
        generation: LOG,
        id: SALT,
        parts,
        counts_begun: random.once_in(2),
        topic: "jobs".into(),
    };
    let mut page = vec![0; 4096];
    page[..queue::HEADER_LEN].copy_from_slice(&header.encode());
    let put = |page: &mut [u8], at: usize, words: &[u64]| {
        for (word, bytes) in words.iter().zip(page[at..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    };
    for at in queue::at::ENDS {
        let floor = random.edgy(9);
        let head = floor.saturating_add(random.below(64));
        let (serial, trimmed, dead) = (random.edgy(2), random.edgy(3), random.edgy(4));
        let ends = queue::QueueEnds { serial, floor, head, trimmed, dead };
        put(&mut page, at as usize, &ends.encode(SALT));
    }
    let state = *random.pick(&[
        queue::State::Ready,
        queue::State::InFlight,
        queue::State::Delayed,
        queue::State::Done,
    ]);
    let entry = queue::JobEntry {
        state,
        begun: random.once_in(2),
        suspect: random.once_in(2),
        attempts: random.edgy(3) as u32,
        deliveries: random.edgy(3) as u32,
        holder: random.next() as u32,
        serial: random.edgy(2) as u32,
        when: random.edgy(1000),
        mark: random.next(),
    };
    put(&mut page, 3200, &entry.encode(SALT, 100));
    perhaps(random, page)
}
