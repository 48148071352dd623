//! The first page of a segment: its bytes are those of the format, and no other page is believed.

use super::*;
use crate::format::checksum::crc32;
use crate::format::tests::hex;

fn sample() -> SegmentHeader {
    SegmentHeader {
        log: [9; 16],
        sequence: 7,
        salt: 0xfeed,
        supersedes: true,
        previous: Some(Previous { sequence: 6, salt: 0xbeef, end: 8192 }),
        replaces: Some(Replaces { first: 7, clean_us: 11, compaction: 12 }),
        time_base_us: -5,
    }
}

#[test]
fn headers_come_back() {
    let bare = SegmentHeader { previous: None, replaces: None, supersedes: false, ..sample() };
    for header in [sample(), bare] {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
}

#[test]
fn every_flipped_bit_of_a_header_or_mark_is_noticed() {
    let bytes = sample().encode();
    let mark = Mark { serial: 3, position: FIRST_BLOCK, ..Mark::default() }.encode(1);
    for bit in 0..HEADER_LEN * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&flipped).is_err(), "header bit {bit}");
        if bit < MARK_LEN * 8 {
            let mut flipped = mark;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&flipped, 1), None, "mark bit {bit}");
        }
    }
}

#[test]
fn another_version_is_named() {
    for version in [1, 3] {
        let mut bytes = sample().encode();
        put(&mut bytes, 8, &u32::to_le_bytes(version));
        let crc = crc32(&bytes[..508]);
        put(&mut bytes, 508, &crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(DecodeError::Version(version)));
    }
}

#[test]
fn the_newer_of_two_whole_marks_holds() {
    let mut page = vec![0; FIRST_BLOCK as usize];
    assert_eq!(Mark::newest(&page, 5), None);
    let marks = [1, 2, 3].map(|n| Mark { serial: n, position: FIRST_BLOCK * n, ..Mark::default() });
    for mark in marks {
        put(&mut page, mark.slot() as usize, &mark.encode(5));
        assert_eq!(Mark::newest(&page, 5), Some(mark));
        assert_eq!(Mark::newest(&page, 6), None, "a mark of another segment marks nothing");
    }
    page[marks[2].slot() as usize + 9] ^= 1;
    assert_eq!(Mark::newest(&page, 5), Some(marks[1]), "a torn mark leaves the one before");
}

fn resealed(mut bytes: [u8; HEADER_LEN], at: usize, what: &[u8]) -> Decoded<SegmentHeader> {
    put(&mut bytes, at, what);
    let crc = crc32(&bytes[..HEADER_LEN - 4]);
    put(&mut bytes, HEADER_LEN - 4, &crc.to_le_bytes());
    SegmentHeader::decode(&bytes)
}

#[test]
fn a_flag_of_a_newer_version_is_unknown_and_no_damage() {
    let found = resealed(sample().encode(), 12, &4u32.to_le_bytes());
    assert_eq!(found, Err(DecodeError::Unknown("a segment flag of a newer version")));
    assert!(resealed(sample().encode(), 12, &0u32.to_le_bytes()).is_ok_and(|h| !h.supersedes));
    let short = SegmentHeader::decode(&sample().encode()[..HEADER_LEN - 1]);
    assert!(matches!(short, Err(DecodeError::Damaged(_))));
}

#[test]
fn numbers_that_contradict_each_other_are_damage_whatever_the_checksum_says() {
    let previous = |sequence, end| Some(Previous { sequence, salt: 1, end });
    let with = |sequence, previous| SegmentHeader { sequence, previous, ..sample() };
    let last = MAX_POSITION - MAX_POSITION % 8;
    for (header, sound) in [
        (with(7, previous(6, FIRST_BLOCK)), true),
        (with(7, previous(6, 4088)), false),
        (with(7, previous(6, 4097)), false),
        (with(7, previous(6, last)), true),
        (with(7, previous(6, last + 8)), false),
        (with(7, previous(7, FIRST_BLOCK)), false),
        (with(7, previous(8, FIRST_BLOCK)), false),
        (with(MAX_SEQUENCE, None), true),
        (with(MAX_SEQUENCE + 1, None), false),
        (with(MAX_SEQUENCE + 1, previous(6, FIRST_BLOCK)), false),
    ] {
        let header = SegmentHeader { replaces: None, ..header };
        let found = SegmentHeader::decode(&header.encode());
        assert_eq!(found.is_ok(), sound, "{header:?}: {found:?}");
    }
}

#[test]
fn a_compacted_segment_stands_for_those_up_to_itself_and_behind_what_it_continues() {
    let with = |first| SegmentHeader {
        replaces: Some(Replaces { first, clean_us: 0, compaction: 0 }),
        ..sample()
    };
    for (first, sound) in [(7, true), (6, false), (8, false)] {
        assert_eq!(SegmentHeader::decode(&with(first).encode()).is_ok(), sound, "{first}");
    }
    let alone = SegmentHeader { previous: None, ..with(0) };
    assert_eq!(SegmentHeader::decode(&alone.encode()), Ok(alone));
    assert!(resealed(sample().encode(), 80, &8u64.to_le_bytes()).is_err(), "another's last");
    // Without the flag the numbers mean nothing.
    let found = resealed(sample().encode(), 12, &1u32.to_le_bytes());
    assert_eq!(found, Ok(SegmentHeader { replaces: None, ..sample() }));
}

#[test]
fn a_segment_begins_with_two_snapshots_only_where_a_roll_made_it() {
    let rolled = SegmentHeader { supersedes: false, ..sample() };
    assert_eq!(rolled.snapshots(), 2);
    assert_eq!(sample().snapshots(), 1);
    assert_eq!(SegmentHeader { previous: None, ..rolled }.snapshots(), 1);
}

#[test]
fn a_mark_says_what_was_said_and_claims_places_of_a_segment_only() {
    for (position, sound) in [
        (0, true),
        (8, false),
        (4088, false),
        (FIRST_BLOCK, true),
        (4100, false),
        (MAX_POSITION, true),
        (MAX_POSITION + 8, false),
    ] {
        for (clean, succeeded) in [(false, true), (true, false)] {
            let mark = Mark { serial: 9, position, clean, succeeded, control: 4, incarnation: 5 };
            let found = Mark::decode(&mark.encode(6), 6);
            assert_eq!(found, sound.then_some(mark), "{position}");
        }
    }
    let bytes = Mark { serial: 1, position: FIRST_BLOCK, ..Mark::default() }.encode(6);
    assert_eq!(Mark::decode(&bytes[..MARK_LEN - 1], 6), None);
}

// Its last four bytes, and those of the mark, are zlib's.
fn laid_out(numbers: &str, crc: &str) -> Vec<u8> {
    let mut bytes = hex(numbers);
    assert_eq!(bytes.len(), 112, "what stands before the reserved bytes");
    bytes.resize(508, 0);
    bytes.extend(hex(crc));
    bytes
}

#[test]
fn every_number_of_a_header_stands_where_the_format_says() {
    let previous =
        Previous { sequence: 0x3433_3231, salt: 0x7877_7675_7473_7271, end: 0x07_6543_2118 };
    let whole = SegmentHeader {
        log: std::array::from_fn(|at| 0x10 + at as u8),
        sequence: 0x5453_5251,
        salt: 0x6867_6665_6463_6261,
        supersedes: true,
        previous: Some(previous),
        replaces: Some(Replaces {
            first: 0x4443_4241,
            clean_us: 0xa8a7_a6a5_a4a3_a2a1_u64 as i64,
            compaction: 0xb8b7_b6b5_b4b3_b2b1,
        }),
        time_base_us: 0x9897_9695_9493_9291_u64 as i64,
    };
    let bytes = "46414c414a534547 02000000 03000000 101112131415161718191a1b1c1d1e1f
        5152535400000000 6162636465666768 3132333400000000 7172737475767778 1821436507000000
        4142434400000000 5152535400000000 9192939495969798 a1a2a3a4a5a6a7a8
        b1b2b3b4b5b6b7b8";
    let bytes = laid_out(bytes, "152e570a");
    assert_eq!(whole.encode().as_slice(), bytes);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(whole));
}

#[test]
fn what_a_first_segment_does_not_have_is_all_ones() {
    let first = SegmentHeader {
        log: std::array::from_fn(|at| 0x10 + at as u8),
        sequence: 0x5453_5251,
        salt: 0x6867_6665_6463_6261,
        supersedes: false,
        previous: None,
        replaces: None,
        time_base_us: 0x1897_9695_9493_9291,
    };
    let bytes = "46414c414a534547 02000000 00000000 101112131415161718191a1b1c1d1e1f
        5152535400000000 6162636465666768 ffffffffffffffff 0000000000000000 0000000000000000
        ffffffffffffffff ffffffffffffffff 9192939495969718 0000000000000000 0000000000000000";
    let bytes = laid_out(bytes, "7d47ccb9");
    assert_eq!(first.encode().as_slice(), bytes);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(first));
}

#[test]
fn every_flag_of_a_header_stands_for_itself() {
    for (flags, supersedes, is_compacted) in
        [(0u32, false, false), (1, true, false), (2, false, true), (3, true, true)]
    {
        let replaces = sample().replaces.filter(|_| is_compacted);
        let header = SegmentHeader { supersedes, replaces, ..sample() };
        assert_eq!(header.encode()[12..16], flags.to_le_bytes());
        assert_eq!(resealed(sample().encode(), 12, &flags.to_le_bytes()), Ok(header), "{flags}");
    }
}

#[test]
fn every_number_of_a_mark_stands_where_the_format_says() {
    let mark = Mark {
        serial: 0x1817_1615_1413_1211,
        position: 0x07_6543_2118,
        clean: false,
        succeeded: true,
        control: 0x4847_4645_4443_4241,
        incarnation: 0x5857_5655_5453_5251,
    };
    let bytes = hex("46414c414a4d524b 1112131415161718 1821436507000000 0200000000000000
        4142434445464748 5152535455565758 000000000000000000000000 d63824d0");
    assert_eq!(mark.encode(0x6867_6665_6463_6261).as_slice(), bytes);
    assert_eq!(Mark::decode(&bytes, 0x6867_6665_6463_6261), Some(mark));
    for (serial, slot) in [(0, 512), (1, 4608), (2, 512), (3, 4608), (u64::MAX, 4608)] {
        assert_eq!(Mark { serial, ..mark }.slot(), slot, "its lowest bit is the slot: {serial}");
    }
}

#[test]
fn flags_of_a_mark_that_are_not_known_are_ignored() {
    let mark = Mark { serial: 1, position: FIRST_BLOCK, ..Mark::default() };
    for flags in 0..8u64 {
        let mut bytes = mark.encode(5);
        put(&mut bytes, 24, &(flags | 1 << 63).to_le_bytes());
        let crc = crc32_from(seed(5), &bytes[..60]);
        put(&mut bytes, 60, &crc.to_le_bytes());
        let wanted = Mark { clean: flags % 2 == 1, succeeded: flags / 2 % 2 == 1, ..mark };
        assert_eq!(Mark::decode(&bytes, 5), Some(wanted), "{flags:#b}");
    }
}
