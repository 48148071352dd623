//! Every decoder of the format, fed with arbitrary bytes.
//!
//! Each function takes any bytes. It must neither panic nor loop without end. Its result must lie
//! within its input, and must be the same bytes when encoded again. The fuzzer in `rust/log/fuzz`
//! calls the same functions.

use falaj::internals::format::block::{self, BlockHeader, CommitWord, Kind, PlainHeader};
use falaj::internals::format::checksum::seed;
use falaj::internals::format::record::{RecordCursor, headers};
use falaj::internals::format::segment::{self, Mark};
use falaj::internals::format::settings::{StoreSettings, TopicSettings};
use falaj::internals::format::state::{End, LogState};
use falaj::internals::format::{consumer, control, index, names, part, queue, varint, wake};

use super::make::{self, LOG, POSITION, SALT};
use crate::random::Random;

/// Inputs of one case: one input alone takes less than a microsecond.
pub const BATCH: u64 = 64;

/// A decoder, and a generator of input for it.
#[derive(Debug)]
pub struct Target {
    pub name: &'static str,
    pub feed: fn(&[u8]),
    pub make: fn(&mut Random) -> Vec<u8>,
}

pub const TARGETS: [Target; 13] = [
    Target { name: "block", feed: block, make: make::block },
    Target { name: "records", feed: records, make: make::records },
    Target { name: "varint", feed: varints, make: make::varints },
    Target { name: "segment", feed: segment_page, make: make::segment_page },
    Target { name: "index", feed: index_file, make: make::index_file },
    Target { name: "pages", feed: pages, make: make::pages },
    Target { name: "entries", feed: entries, make: make::entries },
    Target { name: "end", feed: end, make: make::end },
    Target { name: "settings", feed: settings, make: make::settings },
    Target { name: "names", feed: name, make: make::name },
    Target { name: "consumer", feed: consumer_file, make: make::consumer_file },
    Target { name: "queue", feed: queue_page, make: make::queue_page },
    Target { name: "part", feed: staged_part, make: make::staged_part },
];

pub fn block(bytes: &[u8]) {
    let Some(first) = bytes.first_chunk::<8>() else { return };
    let word = u64::from_le_bytes(*first);
    if let Some(len) = CommitWord::data_len(word, SALT, POSITION) {
        assert_eq!(CommitWord::parse(word, SALT, POSITION).unwrap().len, len);
    }
    let Ok(parsed) = CommitWord::parse(word, SALT, POSITION) else { return };
    if bytes.len() < block::MAX_HEADER_LEN.min(parsed.len as usize) {
        return;
    }
    let Ok(header) = BlockHeader::parse(parsed, bytes) else { return };
    assert!(header.header_len() <= block::MAX_HEADER_LEN);
    assert!(header.span >= header.count || header.flags & block::flag::SPARSE == 0);
    if header.header_len() > bytes.len() || header.header_len() > header.len as usize {
        return;
    }
    assert!(header.body_len() <= header.len as usize);
    let _ = (header.codec(), header.refuse_newer(), header.padded());
    let sound = header.verify(word, bytes, seed(SALT), POSITION);
    if let Some(words) = bytes.get(8..32) {
        let word_at = |i: usize| u64::from_le_bytes(words[8 * i..8 * i + 8].try_into().unwrap());
        let words = [word_at(0), word_at(1), word_at(2)];
        if let Some(plain) = PlainHeader::parse(parsed.len, words) {
            if parsed.kind == Kind::Data {
                let quick = PlainHeader::is_sound(word, words, seed(SALT), POSITION);
                assert_eq!(quick, header.verify(word, bytes, seed(SALT), POSITION));
            }
            assert_eq!((plain.offset, plain.count), (header.offset, header.count));
        }
    }
    if sound && header.refuse_newer().is_ok() {
        let mut again = [0; block::MAX_HEADER_LEN];
        let (same, _) = header.encode(SALT, seed(SALT), POSITION, &mut again);
        assert_eq!(same, word);
        assert_eq!(again[8..header.header_len()], bytes[8..header.header_len()]);
    }
}

/// A manifest, the header of a part, and a frame: the first byte says which.
pub fn staged_part(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 3 {
        0 => {
            let Ok(manifest) = part::Manifest::decode(bytes) else { return };
            assert_eq!(manifest.encode(), bytes, "a manifest is encoded as it was");
            let name = part::file_name(&manifest.part, manifest.owner.id, true);
            assert!(part::parse_file_name(&name).is_some() && !name.contains('/'));
        }
        1 => {
            let Ok(header) = part::PartHeader::decode(bytes) else { return };
            assert_eq!(header.encode()[..72], bytes[..72]);
        }
        _ => {
            let Ok(frame) = part::Frame::decode(bytes, SALT, POSITION) else { return };
            assert_eq!(frame.encode(SALT, POSITION)[..], bytes[..part::FRAME_LEN]);
            assert!(frame.count > 0 && frame.len > 0);
        }
    }
}

pub fn records(bytes: &[u8]) {
    let Some((head, body)) = bytes.split_at_checked(6) else { return };
    let flags = u16::from_le_bytes([head[0], head[1]]);
    let count = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
    let Ok(walk) = RecordCursor::new(flags, count, body) else { return };
    let (mut slow, mut quick) = (walk.clone(), walk.clone());
    let (mut last, mut seen) = (0, 0u64);
    loop {
        let (parts, spot) = (slow.next(body), quick.next_span(body));
        assert_eq!(parts.is_ok(), spot.is_ok(), "both ways through a body must agree");
        let (Ok(parts), Ok(spot)) = (parts, spot) else { break };
        assert_eq!(parts.is_some(), spot.is_some());
        let (Some(parts), Some(spot)) = (parts, spot) else { break };
        assert_eq!((parts.offset_delta, &parts.value), (spot.offset_delta, &spot.value()));
        assert_eq!(walk.layout_of(body, &spot).unwrap(), parts);
        assert!(parts.end >= last && parts.end <= body.len(), "a record is behind the last one");
        for part in [&parts.value, &parts.key, &Some(parts.headers.clone())].into_iter().flatten() {
            assert!(part.start <= part.end && part.end <= body.len());
        }
        let listed = headers(&body[parts.headers.clone()]).count();
        assert!(listed <= body.len());
        last = parts.end;
        seen += 1;
        // Each record has a byte at least.
        assert!(seen <= body.len() as u64 + 1, "more records than bytes");
    }
    if walk.is_plain() && seen > 0 && seen < u64::from(count) {
        let mut skipping = walk;
        let skipped = skipping.skip_plain(body, seen as u32);
        assert!(skipped, "records that were walked can be skipped");
    }
}

pub fn varints(bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let Some(number) = varint::get(bytes, &mut at) else { break };
        assert!(at > start && at <= bytes.len() && at - start <= varint::MAX_LEN);
        let mut again = Vec::new();
        varint::put(&mut again, number);
        assert!(again.len() <= at - start);
        assert_eq!(varint::get(&again, &mut 0), Some(number));
        assert_eq!(varint::zigzag(varint::unzigzag(number)), number);
    }
}

pub fn segment_page(bytes: &[u8]) {
    if let Ok(header) = segment::SegmentHeader::in_pages(bytes) {
        let again = segment::SegmentHeader::decode(&header.encode()).unwrap();
        assert_eq!(format!("{header:?}"), format!("{again:?}"));
    }
    for at in segment::MARKS {
        let slot = bytes.get(at as usize..).unwrap_or_default();
        if let Some(mark) = Mark::decode(slot, SALT) {
            assert!(
                mark.position == 0
                    || mark.position >= falaj::internals::format::FIRST_BLOCK
                        && mark.position % 8 == 0
            );
            assert_eq!(
                format!("{:?}", Mark::decode(&mark.encode(SALT), SALT)),
                format!("Some({mark:?})")
            );
        }
    }
    let newest = Mark::newest(bytes, SALT);
    assert!(newest.is_none_or(|mark| mark.slot() < falaj::internals::format::FIRST_BLOCK));
}

pub fn index_file(bytes: &[u8]) {
    let _ = index::check_header(bytes, LOG, 3, SALT);
    let entries = bytes.get(index::HEADER_LEN..).unwrap_or_default();
    for bytes in entries.chunks(index::ENTRY_LEN) {
        if let Some(entry) = index::IndexEntry::decode(bytes, SALT) {
            assert_eq!(entry.encode(SALT)[..], *bytes);
        }
    }
}

pub fn pages(bytes: &[u8]) {
    if let Ok(id) = control::decode_header(bytes, LOG) {
        assert_eq!(control::encode_header(LOG, id)[32..40], bytes[32..40]);
    }
    let _ = wake::check_header(bytes, LOG);
}

pub fn entries(bytes: &[u8]) {
    let mut state = LogState::default();
    if state.apply_body(bytes, |_, _| {}).is_err() {
        return;
    }
    assert!(state.topics().count() <= bytes.len() / 56 + 1);
    let body = state.encode_since(&LogState::default());
    let mut again = LogState::default();
    again.apply_body(&body, |_, _| {}).expect("decoded entries can be encoded and decoded");
    assert_eq!(format!("{:?}", state.topics().collect::<Vec<_>>()), {
        format!("{:?}", again.topics().collect::<Vec<_>>())
    });
}

pub fn end(bytes: &[u8]) {
    if let Ok(end) = End::decode(bytes) {
        assert_eq!(end.encode()[..16], bytes[..16]);
    }
}

pub fn settings(bytes: &[u8]) {
    if let Ok(settings) = StoreSettings::decode(bytes) {
        let again = StoreSettings::decode(settings.encode().as_bytes()).unwrap();
        assert_eq!(format!("{settings:?}"), format!("{again:?}"));
    }
    if let Ok(settings) = TopicSettings::decode(bytes) {
        let again = TopicSettings::decode(settings.encode().as_bytes()).unwrap();
        assert_eq!(format!("{settings:?}"), format!("{again:?}"));
    }
}

pub fn name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if names::complaint(text).is_none() {
        assert!(!text.is_empty() && text.len() <= names::MAX_NAME && text != "." && text != "..");
        assert!(!text.contains('/') && !text.contains('\0'));
        let dir = names::log_dir(text, &LOG);
        assert!(dir.len() <= 255, "a name that a file system accepts");
        assert!(names::parse_log_dir(&dir).is_some_and(|(_, id)| id == LOG));
    }
    if let Some(sequence) = names::parse_segment(text) {
        assert_eq!(names::segment(sequence), text);
    }
    if let Some(sequence) = names::parse_index(text) {
        assert_eq!(names::index(sequence), text);
    }
    if let Some(id) = names::unhex(text) {
        assert_eq!(names::hex(&id), text);
    }
    let _ = names::parse_log_dir(text);
}

/// The head of a group's file, cut to what is decoded, then an entry.
pub fn consumer_file(bytes: &[u8]) {
    let _ = consumer::check_header(bytes, LOG);
    let Some(bytes) = bytes.get(consumer::HEADER_LEN..) else { return };
    let entry = consumer::CursorEntry::decode(bytes);
    if let Some(named) = &entry.named {
        let again = consumer::encode_named(named);
        assert_eq!(consumer::decode_named(&again).as_ref(), Some(named));
        assert!(entry.of() == Some((named.generation, named.partition)));
    }
    for (cursor, at) in entry.cursors.iter().zip([512, 1024]) {
        let Some(cursor) = cursor else { continue };
        let again = consumer::encode_cursor(cursor);
        assert_eq!(consumer::decode_cursor(&again).as_ref(), Some(cursor));
        assert!(bytes.len() >= at + consumer::CURSOR_LEN, "no cursor behind the end");
    }
    let ours = entry.cursors.into_iter().flatten().filter(|cursor| {
        entry.named.is_none() || entry.of() == Some((cursor.generation, cursor.partition))
    });
    // Serial numbers wrap around.
    let later = |a: u64, b: u64| if b.wrapping_sub(a) as i64 > 0 { b } else { a };
    let newest = ours.map(|cursor| cursor.serial).reduce(later);
    assert_eq!(entry.cursor().map(|cursor| cursor.serial), newest);
}

/// The first page of a queue's file, then an entry.
pub fn queue_page(bytes: &[u8]) {
    let header = queue::QueueHeader::decode(bytes);
    if let Ok(header) = &header {
        let parts = header.parts;
        assert_eq!(queue::QueueHeader::decode(&header.encode()).as_ref(), Ok(header));
        assert!(parts.entry(parts.capacity - 1) + queue::ENTRY_LEN <= parts.file_len());
    }
    let id = header.map_or(SALT, |header| header.id);
    let slots = queue::QueueEnds::in_page(bytes, id);
    for ends in slots.into_iter().flatten() {
        assert!(ends.floor <= ends.head);
        assert_eq!(queue::QueueEnds::decode(&ends.encode(id), id), Some(ends));
    }
    assert_eq!(queue::QueueEnds::newest(slots).is_err(), slots == [None, None]);
    for (offset, words) in (0..).zip(bytes.chunks_exact(32)) {
        let words = std::array::from_fn(|i| {
            u64::from_le_bytes(words[8 * i..8 * i + 8].try_into().unwrap())
        });
        if let Some(entry) = queue::JobEntry::decode(&words, id, offset) {
            assert_eq!(queue::JobEntry::decode(&entry.encode(id, offset), id, offset), Some(entry));
        }
    }
}
