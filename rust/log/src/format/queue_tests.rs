//! A queue's file: each byte at its place, and which of two versions is believed.

use super::*;
use crate::format::tests::{laid_out, sealed};

const TOPIC: [u8; 16] = *b"generation of it";

fn header() -> QueueHeader {
    let parts = Parts { capacity: 1024, ordered: true };
    QueueHeader { generation: [9; 16], id: 77, parts, counts_begun: true, topic: "jobs".into() }
}

#[test]
fn a_header_says_what_was_written_and_every_flipped_bit_is_noticed() {
    let bytes = header().encode();
    assert_eq!(QueueHeader::decode(&bytes), Ok(header()));
    for bit in 0..HEADER_LEN * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(QueueHeader::decode(&flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn an_entry_is_its_own_records_and_every_flipped_bit_is_noticed() {
    let entry = JobEntry {
        state: State::InFlight,
        begun: true,
        suspect: true,
        attempts: 3,
        deliveries: 4,
        holder: 5,
        serial: 8,
        when: 13,
        mark: 21,
    };
    let words = entry.encode(77, 1000);
    assert_eq!(JobEntry::decode(&words, 77, 1000), Some(entry));
    assert_eq!(JobEntry::decode(&words, 78, 1000), None, "another file's");
    assert_eq!(JobEntry::decode(&words, 77, 1000 + 1024), None, "another record's");
    assert_eq!(JobEntry::decode(&[0; 4], 0, 0), None, "never written");
    for bit in 0..256 {
        let mut flipped = words;
        flipped[bit / 64] ^= 1 << (bit % 64);
        assert_eq!(JobEntry::decode(&flipped, 77, 1000), None, "bit {bit}");
    }
}

#[test]
fn ends_are_noticed_when_a_bit_is_flipped() {
    let ends = QueueEnds { serial: 4, floor: 10, head: 20, trimmed: 1, dead: 2 };
    let words = ends.encode(77);
    assert_eq!(QueueEnds::decode(&words, 77), Some(ends));
    assert_eq!(QueueEnds::decode(&[0; 8], 77), None);
    for bit in 0..512 {
        let mut flipped = words;
        flipped[bit / 64] ^= 1 << (bit % 64);
        assert_eq!(QueueEnds::decode(&flipped, 77), None, "bit {bit}");
    }
}

#[test]
fn parts_lie_behind_each_other_and_end_where_the_file_does() {
    for ordered in [false, true] {
        let parts = Parts { capacity: 1024, ordered };
        assert_eq!(parts.entry(1023) + ENTRY_LEN, parts.link(0));
        assert_eq!(parts.link(1023) + 16, parts.heap(0));
        let last = if ordered { parts.lane(1023) } else { parts.heap(1023) };
        assert_eq!((last + 16).next_multiple_of(PAGE), parts.file_len());
    }
}

#[test]
fn the_header_stands_where_the_format_says() {
    for (ordered, counts_begun, flags) in
        [(false, false, 0), (true, false, 1), (false, true, 2), (true, true, 3)]
    {
        let parts = Parts { capacity: 0x0200_0000, ordered };
        let id = 0x8807_8605_8403_8201;
        let header =
            QueueHeader { generation: TOPIC, id, parts, counts_begun, topic: "orders".into() };
        let expected = sealed(
            512,
            &[
                (0, b"FALAJQUE"),
                (8, &[2]),
                (12, &[flags]),
                (16, &TOPIC),
                (32, b"\x01\x82\x03\x84\x05\x86\x07\x88"),
                (40, &[0, 0, 0, 2]),
                (48, &[6]),
                (49, b"orders"),
            ],
        );
        assert_eq!(header.encode().as_slice(), expected);
        assert_eq!(QueueHeader::decode(&expected), Ok(header.clone()));
        let page = [expected, vec![0xff; 3584]].concat();
        assert_eq!(QueueHeader::decode(&page), Ok(header), "what follows it is not read");
    }
}

#[test]
fn a_header_that_is_cut_off_newer_or_of_no_queue_is_told_apart() {
    let sound = header().encode();
    let with = |at: usize, what: &[u8]| {
        QueueHeader::decode(&sealed(512, &[(0, &sound[..508]), (at, what)]))
    };
    let no_queue = "not the state of a queue; `falaj queue reset` creates a new one";
    let strange = "a header that no queue has; `falaj queue reset` creates a new one";
    let flipped =
        "the checksum of the queue's header does not match; `falaj queue reset` creates a new one";
    assert_eq!(QueueHeader::decode(&sound[..511]), Err(DecodeError::Damaged(no_queue)), "cut off");
    assert_eq!(with(0, b"FALAJCON"), Err(DecodeError::Damaged(no_queue)));
    let torn = [&sound[..508], &[0; 4]].concat();
    assert_eq!(QueueHeader::decode(&torn), Err(DecodeError::Damaged(flipped)));
    assert_eq!(with(8, &[3]), Err(DecodeError::Version(3)));
    assert_eq!(with(8, &[1]), Err(DecodeError::Version(1)));
    for flags in [4, 5, 8, 0xff] {
        assert!(matches!(with(12, &[flags]), Err(DecodeError::Unknown(_))), "flags {flags}");
    }
    assert_eq!(with(49, b"\xff"), Err(DecodeError::Damaged(strange)), "a name that is no text");
    assert_eq!(with(48, &[249]).map(|header| header.topic.len()), Ok(249), "the longest name");
    assert_eq!(with(48, &[250]), Err(DecodeError::Damaged(strange)), "a name that no topic has");
    let of = |places: u64| with(40, &places.to_le_bytes()).map(|header| header.parts.capacity);
    for places in [64, 128, 33_554_432, 67_108_864] {
        assert_eq!(of(places), Ok(places));
    }
    for places in [0, 1, 32, 63, 65, 96, 67_108_863, 67_108_865, 134_217_728] {
        assert_eq!(of(places), Err(DecodeError::Damaged(strange)), "{places} places");
    }
}

#[test]
fn each_part_lies_where_the_format_says() {
    let places = |capacity, ordered| Parts { capacity, ordered };
    let parts = places(128, true);
    // Behind 1,024 words at 4096: 64 bytes for each place, then 16 for each, three times.
    assert_eq!([0, 1, 2, 127].map(|at| parts.entry(at)), [12_288, 12_352, 12_416, 20_416]);
    assert_eq!([0, 1, 2, 127].map(|at| parts.link(at)), [20_480, 20_496, 20_512, 22_512]);
    assert_eq!([0, 1, 2, 127].map(|at| parts.heap(at)), [22_528, 22_544, 22_560, 24_560]);
    assert_eq!([0, 1, 2, 127].map(|at| parts.lane(at)), [24_576, 24_592, 24_608, 26_608]);
    assert_eq!(places(128, false).file_len(), 24_576, "a whole number of pages as it is");
    assert_eq!(places(128, true).file_len(), 28_672);
    assert_eq!([false, true].map(|ordered| places(64, ordered).file_len()), [20_480; 2]);
    assert_eq!([false, true].map(|ordered| places(1024, ordered).file_len()), [110_592, 126_976]);
}

#[test]
fn a_place_is_the_offset_modulo_their_number() {
    let parts = Parts { capacity: 128, ordered: true };
    for (offset, place) in [(0, 0), (127, 127), (128, 0), (129, 1), (300, 44), (u64::MAX, 127)] {
        assert_eq!(parts.place(offset), place, "offset {offset}");
        assert_eq!(parts.entry(offset), parts.entry(place), "offset {offset}");
    }
    for (around, same) in [(128, 0), (300, 44)] {
        assert_eq!(parts.link(around), parts.link(same));
        assert_eq!(parts.heap(around), parts.heap(same));
        assert_eq!(parts.lane(around), parts.lane(same));
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let word = |at: usize| bytes[8 * at..].first_chunk().copied().unwrap();
    std::array::from_fn(|at| u64::from_le_bytes(word(at)))
}

fn ends_bytes(ends: &QueueEnds, id: u64) -> Vec<u8> {
    ends.encode(id).iter().flat_map(|word| word.to_le_bytes()).collect()
}

const ID: u64 = 0x1f2e_3d4c_5b6a_7988;

#[test]
fn ends_stand_where_the_format_says() {
    let ends = QueueEnds {
        serial: 0x8807_8605_8403_8201,
        floor: 0x1817_9615_9413_9211,
        head: 0x2827_a625_a423_a221,
        trimmed: 0xb837_b635_b433_b231,
        dead: 0xc847_c645_c443_c241,
    };
    let fields: [(usize, &[u8]); 5] = [
        (0, b"\x01\x82\x03\x84\x05\x86\x07\x88"),
        (8, b"\x11\x92\x13\x94\x15\x96\x17\x18"),
        (16, b"\x21\xa2\x23\xa4\x25\xa6\x27\x28"),
        (24, b"\x31\xb2\x33\xb4\x35\xb6\x37\xb8"),
        (32, b"\x41\xc2\x43\xc4\x45\xc6\x47\xc8"),
    ];
    let covered = [&ID.to_le_bytes()[..], &[0xff; 8], &laid_out(56, &fields)].concat();
    let sum = crc32_from(0, &covered).to_le_bytes();
    let expected = laid_out(64, &[&fields[..], &[(56, &sum)]].concat());
    assert_eq!(ends_bytes(&ends, ID), expected);
    assert_eq!(QueueEnds::decode(&words(&expected), ID), Some(ends));
    assert_eq!(QueueEnds::decode(&words(&expected), ID + 1), None, "another file's");
}

#[test]
fn a_floor_beyond_the_head_is_none_that_a_queue_has() {
    for (floor, head, sound) in [(9, 10, true), (10, 10, true), (11, 10, false)] {
        let ends = QueueEnds { serial: 4, floor, head, trimmed: 0, dead: 0 };
        assert_eq!(
            QueueEnds::decode(&ends.encode(ID), ID),
            sound.then_some(ends),
            "{floor} {head}"
        );
    }
}

#[test]
fn ends_that_need_more_places_than_there_are_are_none_that_a_queue_has() {
    for (places, floor, head, sound) in [
        (64, 0, 64, true),
        (64, 0, 65, false),
        (128, 9, 137, true),
        (128, 9, 138, false),
        (67_108_864, 9, u64::MAX, false),
        (0, 9, 9, true),
        (0, 9, 10, false),
    ] {
        let ends = QueueEnds { serial: 4, floor, head, trimmed: 0, dead: 0 };
        assert_eq!(ends.fit(places), sound, "{ends:?} of {places}");
        let slot = ends_bytes(&ends, ID);
        let page = laid_out(4096, &[(40, &places.to_le_bytes()), (512, &slot), (1024, &slot)]);
        assert_eq!(
            QueueEnds::in_page(&page, ID),
            [sound.then_some(ends); 2],
            "{ends:?} of {places}"
        );
        assert_eq!(QueueEnds::torn_in(&page, ID), (!sound).then_some(0), "{ends:?} of {places}");
    }
    assert!(!QueueEnds { floor: 9, head: 8, ..QueueEnds::default() }.fit(u64::MAX));
}

#[test]
fn the_slots_of_the_ends_are_at_512_and_1024() {
    let [first, second] = [2, 3].map(|serial| QueueEnds { serial, ..QueueEnds::default() });
    let slots = [first, second].map(|ends| ends_bytes(&ends, ID));
    let page = laid_out(4096, &[(512, &slots[0]), (1024, &slots[1])]);
    assert_eq!(QueueEnds::in_page(&page, ID), [Some(first), Some(second)]);
    assert_eq!(QueueEnds::in_page(&page, ID + 1), [None; 2], "another file's");
    for (len, found) in [
        (1088, [Some(first), Some(second)]),
        (1087, [Some(first), None]),
        (576, [Some(first), None]),
        (575, [None; 2]),
    ] {
        assert_eq!(QueueEnds::in_page(&page[..len], ID), found, "{len} bytes");
    }
}

/// Fields of a page, each at its place.
type Fields<'a> = &'a [(usize, &'a [u8])];

#[test]
fn a_torn_slot_of_the_ends_is_told_from_one_that_was_never_written() {
    let slots = [2, 3].map(|serial| ends_bytes(&QueueEnds { serial, ..QueueEnds::default() }, ID));
    let cases: [(Fields<'_>, _, _); 8] = [
        (&[(512, &slots[0]), (1024, &slots[1])], None, "both are whole"),
        (&[], None, "neither was ever written"),
        (&[(1024, &slots[1])], None, "one was never written"),
        (&[(512, &slots[0])], None, "nor was the other"),
        (&[(512, &slots[0]), (1087, &[7])], Some(1), "the last byte of the second"),
        (&[(512, &[7]), (1024, &slots[1])], Some(0), "the first byte of the first"),
        (&[(511, &[7]), (1024, &slots[1])], None, "before the first"),
        (&[(512, &slots[0]), (1088, &[7])], None, "behind the second"),
    ];
    for (fields, torn, what) in cases {
        assert_eq!(QueueEnds::torn_in(&laid_out(4096, fields), ID), torn, "{what}");
    }
}

#[test]
fn the_ends_are_those_of_the_later_serial_and_two_torn_slots_are_corruption() {
    let with = |serial| Some(QueueEnds { serial, ..QueueEnds::default() });
    for (slots, holds) in [([with(4), with(5)], 5), ([with(5), with(4)], 5), ([with(4), None], 4)] {
        let (ends, slot) = QueueEnds::newest(slots).unwrap();
        assert_eq!((ends.serial, slots[slot]), (holds, Some(ends)));
    }
    assert!(matches!(QueueEnds::newest([None; 2]), Err(DecodeError::Damaged(_))));
}

/// A version of an entry as the format lays it out, with its checksum for a file and an offset.
fn version(id: u64, offset: u64, fields: &[(usize, &[u8])]) -> [u64; 4] {
    let covered = laid_out(32, fields);
    let words_before = [id.to_le_bytes(), offset.to_le_bytes()].concat();
    let sum = crc32_from(0, &[words_before, covered.clone()].concat()).to_le_bytes();
    words(&[&covered[..28], &sum].concat())
}

#[test]
fn an_entry_stands_where_the_format_says() {
    let offset = 0x9807_9605_9403_9201;
    for (number, state, flags) in [
        (1, State::Ready, 32),
        (2, State::InFlight, 0),
        (2, State::InFlight, 16),
        (2, State::InFlight, 48),
        (3, State::Delayed, 0),
        (4, State::Done, 0),
    ] {
        let expected = version(
            ID,
            offset,
            &[
                (0, b"\x01\x82\x03\x84\x05\x86\x07\x88"),
                (8, b"\x11\x92\x13\x94"),
                (12, b"\x21\xa2\x23\xa4"),
                (16, b"\x31\xb2\x33\xb4\x35\xb6\x37\xb8"),
                (24, &[number | flags, 0x41, 0xc2, 0x83]),
            ],
        );
        // A lane and the deliveries share the word that a block's mark fills.
        let (mark, deliveries) = match state {
            State::Done => (0xb837_b635_b433_b231, 0),
            _ => (0x0000_0001_b433_b231, 0x5c1b_db1a),
        };
        let entry = JobEntry {
            state,
            begun: flags & 16 != 0,
            suspect: flags & 32 != 0,
            attempts: 0x0083_c241,
            deliveries,
            holder: 0x9413_9211,
            serial: 0xa423_a221,
            when: 0x8807_8605_8403_8201,
            mark,
        };
        assert_eq!(entry.encode(ID, offset), expected, "{state:?}");
        assert_eq!(JobEntry::decode(&expected, ID, offset), Some(entry), "{state:?}");
        assert_eq!(serial(&expected), 0xa423_a221);
    }
    for number in [0, 5, 8, 64 | 2, 128 | 2, 0xff] {
        let strange = version(ID, 9, &[(24, &[number])]);
        assert_eq!(JobEntry::decode(&strange, ID, 9), None, "there is no state {number}");
    }
}

#[test]
fn attempts_are_counted_up_to_what_three_bytes_hold() {
    for (attempts, counted) in [
        (16_777_214, 16_777_214),
        (16_777_215, 16_777_215),
        (16_777_216, 16_777_215),
        (u32::MAX, 16_777_215),
    ] {
        let entry = JobEntry { attempts, ..JobEntry::FRESH };
        let expected = JobEntry { attempts: counted, ..JobEntry::FRESH };
        assert_eq!(JobEntry::decode(&entry.encode(ID, 9), ID, 9), Some(expected), "{attempts}");
    }
}
