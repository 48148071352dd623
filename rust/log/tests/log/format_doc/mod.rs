//! `docs/FORMAT.md` compared with the code: each of its tables, and its worked example.
//!
//! A comment, `<!-- table: name -->`, marks each table. The tests compare it with the code's
//! layout: they encode samples whose fields all differ, and look up every row in them. A number
//! that changes on one side only fails a test; so does a table that no test reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use falaj::internals::format::block::{self, BlockHeader, CommitWord, Kind, Producer, flag};
use falaj::internals::format::checksum::{crc32, crc32_from, seed};
use falaj::internals::format::crc32c::crc32c_from;
use falaj::internals::format::origin::{Origin, OriginEnd, ParentOrigin};
use falaj::internals::format::record::{NewRecord, attribute};
use falaj::internals::format::retention::Retention;
use falaj::internals::format::segment::{self, Mark, Previous};
use falaj::internals::format::settings::{StoreSettings, TopicSettings, WriteMode};
use falaj::internals::format::state::{self, End, LogState, TopicState};
use falaj::internals::format::{
    DecodeError, FIRST_BLOCK, PAGE, VERSION, address, control, index, names, varint,
};
use falaj::internals::lock::{self, Identity};
use falaj::internals::segment::create::own_header;
use falaj::internals::segment::walk::{SegmentWalker, Step, highest_ns};
use falaj::internals::segment::{Check, Segment};
use falaj::internals::storage::MapAccess;
use falaj::internals::storage::real::RealStorage;

mod entries;
mod example;
mod parts;
mod readers;

/// Tables that are compared by a test beside the code they describe.
const HELD_ELSEWHERE: [&str; 1] = ["wake page"];

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
    std::fs::read_to_string(path).unwrap()
}

/// True if the page has this text, wherever its lines break.
fn says(text: &str) -> bool {
    page().split_whitespace().collect::<Vec<_>>().join(" ").contains(text)
}

type Rows = Vec<Vec<String>>;

/// All marked tables of the page, without their heads.
fn tables() -> BTreeMap<String, Rows> {
    let page = page();
    let mut found = BTreeMap::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("<!-- table: ") else { continue };
        let name = name.strip_suffix(" -->").unwrap().to_owned();
        let rows = lines.by_ref().skip(2).take_while(|line| line.starts_with('|'));
        let cells = |row: &str| {
            let cells = row.trim().trim_matches('|').split('|');
            cells.map(|cell| cell.replace('`', "").trim().to_owned()).collect::<Vec<_>>()
        };
        assert!(found.insert(name, rows.map(cells).collect::<Rows>()).is_none(), "{line} twice");
    }
    found
}

fn table(name: &str) -> Rows {
    tables().remove(name).unwrap_or_else(|| panic!("FORMAT.md has no table {name:?}"))
}

fn number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no number: {text:?}"))
}

/// Every number in a text.
fn numbers(text: &str) -> Vec<u64> {
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == ','));
    words.filter(|w| w.starts_with(|c: char| c.is_ascii_digit())).map(number).collect()
}

/// Compare a table of (offset, size, name, content) with a sample, byte for byte and gap for gap.
fn assert_layout(name: &str, sample: &[u8], fields: &[(&str, Vec<u8>)]) {
    let mut end = 0;
    let mut seen = Vec::new();
    for row in table(name) {
        let (offset, size, field) = (number(&row[0]) as usize, number(&row[1]) as usize, &row[2]);
        assert_eq!(offset, end, "{name}: {field} leaves a gap or overlaps");
        end = offset + size;
        let bytes = &sample[offset..end];
        if field == "reserved" {
            assert!(bytes.iter().all(|b| *b == 0), "{name}: reserved bytes at {offset}");
            continue;
        }
        let expected = fields.iter().find(|(known, _)| known == field);
        let (_, expected) = expected.unwrap_or_else(|| panic!("{name}: no field {field}"));
        assert_eq!(bytes, expected, "{name}: {field} at {offset}");
        if field == "magic" {
            assert_eq!(row[3].as_bytes(), bytes, "{name}: magic");
        }
        if field == "version" {
            assert_eq!(number(&row[3]), u64::from(VERSION), "{name}: version");
        }
        if field == "crc" {
            let covered = numbers(row[3].split("bytes").nth(1).unwrap());
            let others = if offset > 0 { [0, offset - 1] } else { [end, sample.len() - 1] };
            assert_eq!(
                covered,
                others.map(|at| at as u64),
                "{name}: the bytes that the checksum covers"
            );
        }
        seen.push(field.clone());
    }
    assert_eq!(end, sample.len(), "{name}: its length");
    assert_eq!(seen.len(), fields.len(), "{name}: fields {seen:?}");
}

/// Compare a table of (bit, name, …) with constants.
fn assert_bits(name: &str, known: &[(&str, u64)]) {
    let rows = table(name);
    let named: Vec<_> = rows.iter().filter(|row| row[1] != "–").collect();
    assert_eq!(named.len(), known.len(), "{name}");
    let mut all = 0;
    for row in &named {
        let bits = numbers(&row[0]);
        let mask = bits_between(bits[0], *bits.last().unwrap());
        let constant = known.iter().find(|(known, _)| *known == row[1]);
        assert_eq!(constant.map(|(_, c)| *c), Some(mask), "{name}: {}", row[1]);
        all |= mask;
    }
    for row in rows.iter().filter(|row| row[1] == "–") {
        let bits = numbers(&row[0]);
        assert_eq!(all, bits_between(0, bits[0] - 1), "{name}: the remaining bits");
        assert_eq!((bits[1] + 1) % 8, 0, "{name}: where the field ends");
    }
}

fn bits_between(first: u64, last: u64) -> u64 {
    (first..=last).fold(0, |mask, bit| mask | 1 << bit)
}

#[test]
fn every_table_is_looked_at() {
    let source = [
        include_str!("mod.rs"),
        include_str!("entries.rs"),
        include_str!("parts.rs"),
        include_str!("readers.rs"),
    ]
    .concat();
    let looked_at = |name: &String| {
        let uses = [format!("(\"{name}\""), format!("(\n        \"{name}\"")];
        uses.iter().any(|used| source.contains(used))
    };
    let tables: BTreeSet<_> = tables().into_keys().collect();
    let missed: Vec<_> = tables.iter().filter(|name| !looked_at(name)).collect();
    assert_eq!(missed, HELD_ELSEWHERE.iter().collect::<Vec<_>>());
}

#[test]
fn the_checksum_is_the_one_that_its_parameters_say() {
    let page = page();
    let parameter = |name: &str| {
        let row = page.lines().find(|line| line.starts_with(&format!("| {name}"))).unwrap();
        let hex: Vec<_> = row.split("0x").skip(1).map(|rest| &rest[..8]).collect();
        hex.iter().map(|hex| u32::from_str_radix(hex, 16).unwrap()).collect::<Vec<_>>()
    };
    let polynomial = parameter("polynomial");
    let [normal, reversed] = [[0, 2], [1, 3]].map(|of| of.map(|i| polynomial[i]));
    assert_eq!(normal.map(u32::reverse_bits), reversed);
    let (init, last) = (parameter("initial register"), parameter("final exclusive-or"));
    assert_eq!((&init, &last), (&vec![u32::MAX; 2], &vec![u32::MAX; 2]));
    let by_hand = |which: usize, from: u32, bytes: &[u8]| {
        let step = |register: u32, byte: &u8| {
            (0..8).fold(register ^ u32::from(*byte), |register, _| {
                let low = register & 1;
                (register >> 1) ^ (reversed[which] * low)
            })
        };
        bytes.iter().fold(from ^ init[which], step) ^ last[which]
    };
    assert_eq!(parameter("check"), [0, 1].map(|which| by_hand(which, 0, b"123456789")));
    for bytes in [&b""[..], b"\0", b"123456789", &[0xff; 300]] {
        assert_eq!(crc32(bytes), by_hand(0, 0, bytes));
        let salted = [&7u64.to_le_bytes(), bytes].concat();
        assert_eq!(crc32_from(seed(7), bytes), by_hand(0, 0, &salted), "seeded with a salt");
        assert_eq!(crc32c_from(0, bytes), by_hand(1, 0, bytes));
        assert_eq!(crc32c_from(seed(7), bytes), by_hand(1, seed(7), bytes), "seeded with a salt");
    }
}

/// Names and values of a settings file, in the order in which they are written.
fn members(text: &str) -> Vec<(String, String)> {
    let inner = text.trim_end().trim_start_matches('{').trim_end_matches('}');
    let members = inner.split(",\"").map(|member| member.trim_start_matches('"'));
    members.map(|m| m.split_once("\":").map(|(n, v)| (n.into(), v.into())).unwrap()).collect()
}

fn assert_members(name: &str, text: &str) {
    let mut written = members(text);
    assert_eq!(written.pop().unwrap().0, "checksum");
    let rows = table(name);
    let documented: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(written.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>(), documented, "{name}");
    for (row, (member, value)) in rows.iter().zip(&written) {
        let is = match row[1].as_str() {
            "number" => value.parse::<i64>().is_ok(),
            "boolean" => value.parse::<bool>().is_ok(),
            "id" => names::unhex(value.trim_matches('"')).is_some(),
            "object" => value.starts_with('{'),
            "array" => value.starts_with('['),
            "text" => value.starts_with('"') && names::unhex(value.trim_matches('"')).is_none(),
            other => panic!("{name}: a type {other:?}"),
        };
        assert!(is, "{name}: {member} is no {}", row[1]);
    }
    assert_eq!(numbers(&table("falaj.json")[0][2])[0], u64::from(VERSION));
}

#[test]
fn settings_have_the_members_that_their_tables_name() {
    let (id, write_mode, retention_bytes) = ([3; 16], WriteMode::Pwrite, Some(1 << 30));
    let (created_us, ship_backlog_bytes, ship_min_sync, revision) = (1, Some(1 << 20), Some(2), 2);
    let store = StoreSettings {
        id,
        created_us,
        write_mode,
        retention_bytes,
        ship_backlog_bytes,
        ship_min_sync,
        revision,
    };
    assert_members("falaj.json", &store.encode());
    let topic = TopicSettings {
        name: "orders".into(),
        generation: [1; 16],
        log: "shop".into(),
        log_generation: [2; 16],
        partitions: 3,
        number: 4,
        codec: "json".into(),
        codec_unnamed: true,
        partitioner: "crc32".into(),
        properties: [("a".into(), "b".into())].into(),
        segment_bytes: 1 << 26,
        sync_interval_ms: 100,
        compacted: false,
        created_us: 5,
        retention: Retention {
            bytes: Some(1 << 30),
            age_ms: Some(1000),
            records: Some(5),
            waits: true,
            protected: true,
        },
        revision: 6,
    };
    assert_members("topic.json", &topic.encode());
    let ends = vec![OriginEnd { topic: [1; 16], partition: 2, next: 3, checksum: 4 }];
    let parent = Some(ParentOrigin { origin: [4; 16], number: 5, ends });
    assert_members("origin", &Origin { id: [5; 16], parent }.encode());
}

fn word(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn half(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

#[test]
fn the_segment_page_is_as_its_tables_say() {
    let header = segment::SegmentHeader {
        log: *b"0123456789abcdef",
        sequence: 7,
        salt: 0xfeed,
        supersedes: true,
        previous: Some(Previous { sequence: 6, salt: 0xbeef, end: 8192 }),
        replaces: Some(segment::Replaces { first: 7, clean_us: 11, compaction: 12 }),
        time_base_us: -5,
    };
    let bytes = header.encode();
    assert_layout(
        "segment header",
        &bytes,
        &[
            ("magic", segment::MAGIC.to_vec()),
            ("version", half(VERSION)),
            ("flags", half(3)),
            ("log", header.log.to_vec()),
            ("sequence", word(7)),
            ("salt", word(0xfeed)),
            ("previous.sequence", word(6)),
            ("previous.salt", word(0xbeef)),
            ("previous.end", word(8192)),
            ("replaces.first", word(7)),
            ("replaces.last", word(7)),
            ("time base", (-5i64).to_le_bytes().to_vec()),
            ("clean since", 11i64.to_le_bytes().to_vec()),
            ("compaction", word(12)),
            ("crc", half(crc32(&bytes[..508]))),
        ],
    );
    let mark = Mark {
        serial: 3,
        position: FIRST_BLOCK,
        clean: true,
        succeeded: true,
        control: 5,
        incarnation: 6,
    };
    let bytes = mark.encode(9);
    assert_layout(
        "durable mark",
        &bytes,
        &[
            ("magic", b"FALAJMRK".to_vec()),
            ("serial", word(3)),
            ("position", word(FIRST_BLOCK)),
            ("flags", word(3)),
            ("control", word(5)),
            ("incarnation", word(6)),
            ("crc", half(crc32_from(seed(9), &bytes[..60]))),
        ],
    );
    let clean = Mark { succeeded: false, ..mark }.encode(9);
    assert_eq!(clean[24], 1, "bit 0 is clean");
    assert_eq!(numbers(&table("segment header")[2][3]), [0, 1], "supersedes, compacted");
    assert_eq!(segment::flag::KNOWN, 0b11);
    assert_eq!(numbers(&table("durable mark")[3][3]), [0, 1], "bits of clean and succeeded");
    for (row, at) in table("mark slots").iter().zip(segment::MARKS) {
        assert_eq!(number(&row[1]), at);
        let serial = number(&row[0]) + 2;
        assert_eq!(Mark { serial, ..mark }.slot(), at, "the lowest bit is the slot");
    }
    assert_eq!((table("mark slots").len(), PAGE), (segment::MARKS.len(), 4096));
    assert!(says("at position 0, and the same bytes again at position 4096"));
    assert_eq!(segment::HEADERS, [0, 4096]);
    assert!(says("The first block starts at position 8192") && FIRST_BLOCK == 8192);
}

fn full_header() -> BlockHeader {
    let flags = flag::KNOWN & !flag::MEMBER & !flag::CODEC | 8;
    BlockHeader {
        len: 200,
        body_crc: 0xdead_beef,
        offset: 77,
        count: 3,
        span: 9,
        time: 0x0605_0403_0201,
        flags,
        topic: 42,
        group_len: 4096,
        producer: Some(Producer { id: 7, sequence: 8, span: 9, flags: 1 }),
        ..BlockHeader::new(Kind::Data)
    }
}

fn encoded(header: &BlockHeader, salt: u64, position: u64) -> Vec<u8> {
    let mut out = [0; block::MAX_HEADER_LEN];
    let (word, len) = header.encode(salt, seed(salt), position, &mut out);
    out[..8].copy_from_slice(&word.to_le_bytes());
    out[..len].to_vec()
}

#[test]
fn a_block_header_is_as_its_tables_say() {
    let header = full_header();
    let (salt, position) = (0xabcd_ef01_2345_6789, 8192);
    let bytes = encoded(&header, salt, position);
    let commit = CommitWord { len: 200, kind: Kind::Data }.pack(salt, position);
    let mut covered = bytes.clone();
    covered[12..16].copy_from_slice(&((position / 8) as u32).to_le_bytes());
    assert_layout(
        "block header",
        &bytes[..block::HEADER_LEN],
        &[
            ("commit word", word(commit)),
            ("body crc", half(0xdead_beef)),
            ("header crc", half(crc32c_from(seed(salt), &covered))),
            ("offset", half(77)),
            ("count", half(3)),
            ("time", vec![1, 2, 3, 4, 5, 6]),
            ("flags", header.flags.to_le_bytes().to_vec()),
        ],
    );
    let at = block::at::FLAGS as u64;
    assert_eq!(number(&table("block header")[6][0]), at, "the code's position of the field");

    let flags = table("flags");
    let contents = [half(42), half(4096), half(9), [word(7), word(8), half(9), half(1)].concat()];
    let mut end = block::HEADER_LEN;
    for (i, row) in table("extensions").iter().enumerate() {
        let size = number(&row[2]) as usize;
        assert_eq!(number(&row[0]), i as u64 + 1);
        assert_eq!(bytes[end..end + size], contents[i], "extension {}", row[1]);
        end += size;
        let bit = flags.iter().find(|flag| flag[1] == row[1]).map(|flag| number(&flag[0])).unwrap();
        assert_eq!(
            BlockHeader::len_for(1 << bit),
            block::HEADER_LEN + size,
            "extension {}",
            row[1]
        );
    }
    assert_eq!((end, table("extensions").len()), (bytes.len(), contents.len()));
    assert_eq!(end, block::MAX_HEADER_LEN);
}

#[test]
fn flags_codecs_and_kinds_are_those_of_their_tables() {
    let flags = [
        ("CODEC", flag::CODEC),
        ("TOPIC", flag::TOPIC),
        ("GROUP", flag::GROUP),
        ("MEMBER", flag::MEMBER),
        ("SPARSE", flag::SPARSE),
        ("PRODUCER", flag::PRODUCER),
        ("RICH", flag::RICH),
        ("EVENT_TIME", flag::EVENT_TIME),
    ];
    assert_bits("flags", &flags.map(|(name, bits)| (name, bits.into())));
    let attributes = [
        ("KEY", attribute::KEY),
        ("HEADERS", attribute::HEADERS),
        ("EVENT_TIME", attribute::EVENT_TIME),
        ("NO_VALUE", attribute::NO_VALUE),
    ];
    assert_bits("attributes", &attributes.map(|(name, bits)| (name, bits.into())));
    let flags = [("LATCHED", control::flag::LATCHED), ("DELETED", control::flag::DELETED)];
    assert_bits("control flags", &flags);

    let codecs: Vec<_> = table("codecs").iter().map(|row| number(&row[0]) as u16).collect();
    for number in 0..16u16 {
        let header = BlockHeader { flags: number, ..BlockHeader::new(Kind::Data) };
        let known = header.codec().map(block::Codec::number);
        assert_eq!(known.ok(), codecs.contains(&number).then_some(number), "codec {number}");
    }
    let kinds = table("kinds");
    for kind in [Kind::Data, Kind::Void, Kind::Meta, Kind::Snapshot, Kind::End] {
        let row = kinds.iter().find(|row| number(&row[0]) == kind as u64).unwrap();
        assert_eq!(row[1], format!("{kind:?}").to_lowercase());
    }
    for kind in 0..=255u64 {
        let parsed = CommitWord::parse(
            CommitWord { len: 32, kind: Kind::Data }.pack(1, 0) & !(0xff << 32) | kind << 32,
            1,
            0,
        );
        let known = parsed.is_ok_and(|word| word.kind != Kind::Newer);
        assert_eq!(known, kinds.iter().any(|row| number(&row[0]) == kind), "kind {kind}");
    }
}

#[test]
fn a_commit_word_is_put_together_as_its_table_says() {
    let rows = table("commit word");
    let shifts: Vec<u64> = rows.iter().map(|row| numbers(&row[0])[0]).collect();
    let ends: Vec<u64> = rows.iter().map(|row| numbers(&row[0])[1]).collect();
    assert_eq!((ends[0] + 1, ends[1] + 1, ends[2]), (shifts[1], shifts[2], 63));
    let formula = &rows[2][1];
    let factor = formula.split("0x").nth(1).and_then(|rest| rest.get(..16)).unwrap();
    let factor = u64::from_str_radix(factor, 16).unwrap();
    let told = format!("tag: ((salt xor position) × 0x{factor:016X} mod 2^64) >> 40");
    assert_eq!(*formula, told);
    let shift = number(formula.split(">> ").nth(1).unwrap());
    for (salt, position, len) in [
        (0x0123_4567_89ab_cdef, 4096, 32),
        (u64::MAX, 1 << 34, u32::MAX),
        (0xfedc_ba98 << 32, 8, 1000),
    ] {
        let tag = (salt ^ position).wrapping_mul(factor) >> shift;
        let word = u64::from(len) << shifts[0] | 3 << shifts[1] | tag << shifts[2];
        assert_eq!(CommitWord { len, kind: Kind::Meta }.pack(salt, position), word);
    }
    let least = *numbers(&rows[0][1]).last().unwrap() as u32;
    assert_eq!(least as usize, block::HEADER_LEN);
    let of = |len| CommitWord::parse(CommitWord { len, kind: Kind::Data }.pack(1, 0), 1, 0);
    assert!(of(least).is_ok() && of(least - 1).is_err());
}

#[test]
fn an_end_block_is_as_its_table_says() {
    let bytes = End { sequence: 5, salt: 6 }.encode();
    let fields = [("sequence", word(5)), ("salt", word(6)), ("staged", word(0))];
    assert_layout("end block", &bytes, &fields);
    let at = number(&table("end block")[2][0]) as usize;
    let mut staged = bytes;
    staged[at] = 1;
    assert!(matches!(End::decode(&staged), Err(DecodeError::Unknown(_))));
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(matches!(End::decode(&longer), Err(DecodeError::Unknown(_))));
}

#[test]
fn an_index_is_as_its_tables_say() {
    let header = index::encode_header(*b"0123456789abcdef", 7, 8);
    assert_layout(
        "index header",
        &header,
        &[
            ("magic", index::MAGIC.to_vec()),
            ("version", half(VERSION)),
            ("log", b"0123456789abcdef".to_vec()),
            ("sequence", word(7)),
            ("salt", word(8)),
            ("crc", half(crc32(&header[..60]))),
        ],
    );
    let entry =
        index::IndexEntry { topic: 3, offset: 4, position: 4096, highest_ns: -7 }.encode(11);
    assert_layout(
        "index entry",
        &entry,
        &[
            ("crc", half(crc32_from(seed(11), &entry[4..]))),
            ("topic", half(3)),
            ("offset", word(4)),
            ("position", word(4096)),
            ("highest before", (-7i64).to_le_bytes().to_vec()),
        ],
    );
    assert_eq!(entry.len(), index::ENTRY_LEN);
    assert_eq!(index::file_len(1 << 20), 64 + ((1 << 20) / 4096 + 2) * 32);
    assert!(says("`64 + (segment_bytes / 4096 + 2) × 32` bytes"));
}

#[test]
fn a_control_page_is_as_its_tables_say() {
    let header = control::encode_header(*b"0123456789abcdef", 9);
    assert_layout(
        "control header",
        &header,
        &[
            ("magic", control::MAGIC.to_vec()),
            ("version", half(VERSION)),
            ("log", b"0123456789abcdef".to_vec()),
            ("id", word(9)),
            ("crc", half(crc32(&header[..60]))),
        ],
    );
    let words = [
        (control::at::INCARNATION, "INCARNATION"),
        (control::at::APPEND_LOCK, "APPEND_LOCK"),
        (control::at::SYNC_LOCK, "SYNC_LOCK"),
        (control::at::DIRTY, "DIRTY"),
        (control::at::TAIL, "TAIL"),
        (control::at::INDEXED, "INDEXED"),
        (control::at::WANTED, "WANTED"),
        (control::at::TRIMMED, "TRIMMED"),
        (control::at::DURABLE, "DURABLE"),
        (control::at::REMOTE, "REMOTE"),
        (control::at::SHIPPED, "SHIPPED"),
        (control::at::UNSHIPPED, "UNSHIPPED"),
        (control::at::FLAGS, "FLAGS"),
        (control::at::ALLOCATED, "ALLOCATED"),
        (control::at::WAKE, "WAKE"),
        (control::at::WAITING, "WAITING"),
    ];
    let rows = table("control words");
    let documented: Vec<_> = rows.iter().map(|row| (number(&row[0]), row[1].as_str())).collect();
    assert_eq!(documented, words);
    assert!(says("`control` has 4,096 bytes") && control::LEN == 4096);
}

#[test]
fn a_lock_word_is_as_its_table_says() {
    let rows = table("lock word");
    let bits: Vec<Vec<u64>> = rows.iter().map(|row| numbers(&row[0])).collect();
    let owner = Identity::new(1023, 5).unwrap();
    let heir = Identity::new(511, 6).unwrap();
    let word = 1 << bits[0][0]
        | 1 << bits[1][0]
        | u64::from(heir.bits()) << bits[2][0]
        | u64::from(owner.bits()) << bits[3][0];
    let held = lock::decode(word).unwrap().unwrap();
    assert_eq!((held.owner, held.heir, held.sleepers), (owner, Some(heir), true));
    assert_eq!(bits, [vec![0], vec![1], vec![2, 31], vec![32, 61], vec![62, 63]]);
    for bit in bits[4][0]..=bits[4][1] {
        assert!(lock::decode(word | 1 << bit).is_err(), "bit {bit} is always 0");
    }
    assert!(says("`slot << 20 | generation`"));
    assert_eq!(owner.bits(), 1023 << 20 | 5);
}

#[test]
fn limits_are_those_of_the_code() {
    let rows = table("limits");
    let limit = |what: &str| {
        let row = rows.iter().find(|row| row[0].starts_with(what));
        numbers(&row.unwrap_or_else(|| panic!("no limit {what:?}"))[1])
    };
    assert_eq!(limit("sequence"), [address::MAX_SEQUENCE]);
    assert_eq!(limit("position"), [address::MAX_POSITION]);
    let most = address::MAX_POSITION / PAGE * PAGE;
    assert_eq!(limit("bytes of a segment"), [64 << 10, most, PAGE]);
    assert_eq!(limit("offset of a block"), [u64::from(u32::MAX)]);
    assert_eq!(limit("relative time")[0], block::MAX_RELATIVE_TIME);
    assert_eq!(limit("absolute offset"), [64]);
    assert_eq!(limit("topics"), [u64::from(state::MAX_TOPICS)]);
    let producers = [state::MAX_PRODUCERS as u64, 126, state::PRODUCER_SEQUENCES as u64];
    assert_eq!(limit("producers"), producers);
    let token = state::MAX_TOKEN_NAME as u64 + 24;
    assert_eq!(limit("idempotency keys"), [state::MAX_TOKENS as u64, token]);
    assert_eq!(limit("cursors"), [state::MAX_CURSORS as u64, state::cursor_len(b"", b"")]);
    assert_eq!(limit("writing processes"), [u64::from(lock::SLOTS)]);
    assert_eq!(limit("name of a topic"), [names::MAX_NAME as u64]);
    assert_eq!(limit("varint"), [varint::MAX_LEN as u64]);
    assert_eq!(rows.len(), 14);

    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn falaj::internals::storage::Storage> = Arc::new(RealStorage::new());
    let dir = crate::common::log_dir(root.path());
    crate::common::create_log(&*storage, &dir, 1, WriteMode::Mapped);
    let small = crate::common::open(&storage, &dir, crate::common::TestMember::new(0, 1)).unwrap();
    assert_eq!(small.max_group_len(), crate::common::SEGMENT / 4);
    let settings =
        falaj::internals::log::LogSettings { segment_bytes: 1 << 30, ..small.settings().clone() };
    let large = falaj::internals::log::Log::open(storage, &dir, settings, None).unwrap();
    assert_eq!(limit("block, group"), [large.max_group_len()]);
    let contradiction = ["sequence is above 4,294,967,295", "8192..=34,359,738,360"];
    assert!(contradiction.iter().all(|text| says(text)));
}
