//! A consumer's file: each byte at its place, and what of it is believed after a tear.

use super::*;
use crate::format::tests::{laid_out, sealed};
use crate::format::{DecodeError, VERSION};

const STORE: [u8; 16] = *b"id of that store";
const TOPIC: [u8; 16] = *b"generation of it";

fn cursor() -> StoredCursor {
    let committed = CursorPosition { offset: 9, crc: 7, time_us: -1 };
    let safe = CursorPosition { offset: 5, crc: u32::MAX, time_us: 1 };
    let metadata = CommitMetadata::NONE;
    let (generation, partition, serial, incarnation) = ([3; 16], 2, 4, 77);
    StoredCursor { generation, partition, serial, committed, safe, incarnation, metadata }
}

#[test]
fn a_cursor_comes_back_and_any_flipped_bit_takes_it() {
    let bytes = encode_cursor(&cursor());
    assert_eq!(decode_cursor(&bytes), Some(cursor()));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode_cursor(&flipped), None, "bit {bit}");
    }
    assert_eq!(decode_cursor(&[0; CURSOR_LEN]), None, "nothing is no cursor");
    assert_eq!(decode_cursor(&bytes[1..]), None);
}

#[test]
fn a_cursors_name_tells_what_it_reads_and_other_names_do_not() {
    let name = cursor_name("billing", &[0xab; 16], 70);
    assert_eq!(read_by(&name), Some(([0xab; 16], 70)));
    for other in [&name[1..20], b"billing", b"\xff\0\0", &[&name[..], b"\0"].concat()] {
        assert_eq!(read_by(other), None, "{other:?}");
    }
}

#[test]
fn what_an_entry_is_of_comes_back_and_any_flipped_bit_takes_it() {
    for topic in ["a", &"x".repeat(MAX_NAME)] {
        let named = Named { generation: [9; 16], partition: 3, topic: topic.to_owned() };
        let bytes = encode_named(&named);
        assert_eq!(decode_named(&bytes).as_ref(), Some(&named));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_named(&flipped), None, "bit {bit}");
        }
    }
    assert_eq!(decode_named(&[0; SECTOR as usize]), None);
}

#[test]
fn a_consumers_file_is_its_own_stores_only() {
    let header = encode_header([3; 16], [5; 16]);
    assert_eq!(check_header(&header, [3; 16]), Ok([5; 16]));
    assert!(check_header(&header, [4; 16]).is_err());
    assert!(check_header(&header[..HEADER_LEN - 1], [3; 16]).is_err());
    let mut newer = header;
    put(&mut newer, 8, &(VERSION + 1).to_le_bytes());
    let crc = crc32(&newer[..HEADER_LEN - 4]);
    put(&mut newer, HEADER_LEN - 4, &crc.to_le_bytes());
    assert_eq!(check_header(&newer, [3; 16]), Err(DecodeError::Version(VERSION + 1)));
}

#[test]
fn the_header_tells_the_store_and_the_log_where_the_format_says() {
    let log = *b"log with cursors";
    let header = encode_header(STORE, log);
    let expected = [(0, &b"FALAJCON\x02\0\0\0"[..]), (16, &STORE), (32, &log)];
    assert_eq!(header.as_slice(), sealed(64, &expected));
    assert_eq!(check_header(&header, STORE), Ok(log));
}

#[test]
fn rows_questions_and_entries_lie_where_the_format_says() {
    assert_eq!([0, 1, 2, 255].map(member), [4096, 4112, 4128, 8176], "16 bytes a row");
    assert_eq!([0, 1, 2, 255].map(ask), [2048, 2056, 2064, 4088], "8 bytes for each row");
    assert_eq!([0, 1, 2, 8191].map(entry), [8192, 9728, 11264, 12_589_568], "1,536 bytes each");
}

#[test]
fn what_an_entry_is_of_stands_where_the_format_says() {
    let named = Named { generation: TOPIC, partition: 0x8303_8201, topic: "orders".into() };
    let fields = [(0, &TOPIC[..]), (16, b"\x01\x82\x03\x83"), (20, &[6]), (24, b"orders")];
    let expected = sealed(284, &fields);
    assert_eq!(encode_named(&named).as_slice(), expected);
    assert_eq!(decode_named(&expected), Some(named));
}

#[test]
fn a_name_longer_than_names_are_is_none() {
    for (length, topic) in [(249, true), (250, false), (256, false), (u32::MAX, false)] {
        let fields = [(20, &length.to_le_bytes()[..]), (24, &[b'x'; 256])];
        assert_eq!(decode_named(&sealed(284, &fields)).is_some(), topic, "{length} bytes");
    }
}

#[test]
fn a_cursor_stands_where_the_format_says() {
    let committed = CursorPosition {
        offset: 0x8807_8605_8403_8201,
        time_us: 0x1817_9615_9413_9211,
        crc: 0xa423_a221,
    };
    let safe = CursorPosition {
        offset: 0x3837_b635_b433_b231,
        time_us: i64::from_le_bytes(*b"A\xc2C\xc4E\xc6G\xc8"),
        crc: 0xd453_d251,
    };
    let (partition, serial) = (0x6463_e261, 0xf877_f675_f473_f271);
    let incarnation = 0x0f0e_0d0c_0b0a_0908;
    let metadata = CommitMetadata::new(b"note").unwrap();
    let cursor = StoredCursor {
        generation: TOPIC,
        partition,
        serial,
        committed,
        safe,
        incarnation,
        metadata,
    };
    let expected = sealed(
        512,
        &[
            (0, &TOPIC),
            (16, b"\x61\xe2\x63\x64"),
            (24, b"\x71\xf2\x73\xf4\x75\xf6\x77\xf8"),
            (32, b"\x01\x82\x03\x84\x05\x86\x07\x88"),
            (40, b"\x11\x92\x13\x94\x15\x96\x17\x18"),
            (48, b"\x21\xa2\x23\xa4"),
            (56, b"\x31\xb2\x33\xb4\x35\xb6\x37\x38"),
            (64, b"\x41\xc2\x43\xc4\x45\xc6\x47\xc8"),
            (72, b"\x51\xd2\x53\xd4"),
            (80, b"\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"),
            (100, b"\x04\x00"),
            (104, b"note"),
        ],
    );
    assert_eq!(encode_cursor(&cursor).as_slice(), expected);
    assert_eq!(decode_cursor(&expected), Some(cursor));
}

#[test]
fn up_to_384_bytes_of_metadata_stand_behind_a_cursor_with_their_length() {
    let with = |len: u16| {
        let filled: Vec<u8> = (0..len).map(|at| at as u8 | 1).take(404).collect();
        let mut bytes = encode_cursor(&cursor()).to_vec();
        put(&mut bytes, 100, &len.to_le_bytes());
        put(&mut bytes, 104, &filled);
        seal(&mut bytes);
        (bytes, filled)
    };
    for len in [0, 1, 384] {
        let (bytes, filled) = with(len);
        let metadata = CommitMetadata::new(&filled).unwrap();
        let told = StoredCursor { metadata, ..cursor() };
        assert_eq!(decode_cursor(&bytes), Some(told), "{len} bytes");
        assert_eq!(encode_cursor(&told).as_slice(), bytes, "{len} bytes");
    }
    for len in [385, 404, u16::MAX] {
        let (bytes, filled) = with(len);
        assert_eq!(decode_cursor(&bytes), None, "{len} bytes");
        assert_eq!(CommitMetadata::new(&filled), None, "{len} bytes");
    }
}

#[test]
fn a_position_is_recognised_by_the_block_before_it_if_anything_is_known_of_that() {
    let before = |crc, time_us| CursorPosition { offset: 9, crc, time_us };
    // Checksums by zlib, of four bytes and eight.
    let known = [(7, -1, 0x4b2b_2f95), (0, 1, 0xb77f_c6f1), (1, 0, 0xe070_8a00)];
    for (crc, time_us, sum) in known {
        assert!(!before(crc, time_us).is_bare(), "{crc} {time_us}");
        assert_eq!(fingerprint(&before(crc, time_us)), sum, "{crc} {time_us}");
    }
    assert!(before(0, 0).is_bare());
    assert_eq!(fingerprint(&before(0, 0)), 0, "nothing is known");
    let sums_to_zero = before(0x91a4_b6db, 0x0c0b_0a09_0807_0605);
    assert_eq!(fingerprint(&sums_to_zero), 1, "0 is kept for where nothing is known");
}

#[test]
fn a_cursor_in_a_log_is_called_by_consumer_generation_and_partition() {
    let generation = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xab, 0xcd, 0xef, 0xf0, 0x5a, 0xff];
    let name = cursor_name("billing", &generation, 1070);
    assert_eq!(name, b"billing\x0000010203040506070809abcdeff05aff\x001070");
    assert_eq!(cursor_prefix("billing"), b"billing\0");
    assert_eq!(read_by(&name), Some((generation, 1070)));
}

/// An entry of 1,536 bytes, as the format lays it out.
fn entry_bytes(named: Option<&Named>, owner: u64, cursors: [Option<StoredCursor>; 2]) -> Vec<u8> {
    let named = named.map_or(vec![], |named| encode_named(named).to_vec());
    let [even, odd] = cursors.map(|one| one.map_or(vec![], |one| encode_cursor(&one).to_vec()));
    laid_out(1536, &[(0, &named), (504, &owner.to_le_bytes()), (512, &even), (1024, &odd)])
}

fn named() -> Named {
    Named { generation: [3; 16], partition: 2, topic: "orders".into() }
}

#[test]
fn an_entry_has_its_owner_at_504_and_its_cursors_at_512_and_1024() {
    let (even, odd) = (cursor(), StoredCursor { serial: 5, ..cursor() });
    let owner = 0x8877_6655_4433_2211;
    let read = CursorEntry::decode(&entry_bytes(Some(&named()), owner, [Some(even), Some(odd)]));
    assert_eq!((read.named.as_ref(), read.owner), (Some(&named()), owner));
    assert_eq!(read.cursors, [Some(even), Some(odd)]);
    assert_eq!((read.is_named, read.torn), (true, [false; 2]));
    let nothing = CursorEntry::decode(&[0; 1536]);
    assert_eq!((nothing.named, nothing.owner, nothing.cursors), (None, 0, [None; 2]));
    assert_eq!((nothing.is_named, nothing.torn), (false, [false; 2]));
}

#[test]
fn a_cursor_is_torn_where_its_bytes_are_neither_whole_nor_zero() {
    let whole = entry_bytes(Some(&named()), 7, [Some(cursor()), Some(cursor())]);
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        CursorEntry::decode(&bytes).torn
    };
    for (at, torn) in [(512, [true, false]), (1023, [true, false]), (1535, [false, true])] {
        assert_eq!(with(at, 0x10), torn, "a bit at {at}");
    }
    for at in [503, 504, 511] {
        assert_eq!(with(at, 0x10), [false; 2], "no cursor has a byte at {at}");
    }
    for (at, torn) in [(512, [true, false]), (1023, [true, false]), (1024, [false, true])] {
        let begun = CursorEntry::decode(&laid_out(1536, &[(at, &[1])]));
        assert_eq!((begun.torn, begun.cursors), (torn, [None; 2]), "one byte at {at}");
        assert!(!begun.is_named);
    }
}

#[test]
fn an_entry_is_named_where_any_of_284_bytes_says_so() {
    for (at, is_named) in [(0, true), (283, true), (284, false), (504, false)] {
        let read = CursorEntry::decode(&laid_out(1536, &[(at, &[1])]));
        assert_eq!((read.is_named, read.named), (is_named, None), "a byte at {at}");
    }
}

#[test]
fn the_newest_whole_cursor_of_the_entrys_own_partition_holds() {
    let (old, new) = (cursor(), StoredCursor { serial: 5, ..cursor() });
    let of =
        |named: Option<Named>, cursors| CursorEntry { named, cursors, ..CursorEntry::default() };
    for cursors in [[Some(old), Some(new)], [Some(new), Some(old)], [None, Some(new)]] {
        assert_eq!(of(Some(named()), cursors).cursor(), Some(new), "{cursors:?}");
        assert_eq!(of(None, cursors).cursor(), Some(new), "no other name contradicts {cursors:?}");
    }
    assert_eq!(of(Some(named()), [None; 2]).cursor(), None);
    let others = [Named { generation: [4; 16], ..named() }, Named { partition: 3, ..named() }];
    for other in others {
        let entry = of(Some(other.clone()), [Some(new), None]);
        assert_eq!(entry.cursor(), None, "a cursor of something else than {other:?}");
        assert_eq!(entry.of(), Some((other.generation, other.partition)), "the name holds");
    }
    let other = StoredCursor { generation: [8; 16], serial: 7, ..cursor() };
    let used_anew = of(Some(named()), [Some(old), Some(other)]);
    assert_eq!(used_anew.cursor(), Some(old), "though another topic's has a higher serial");
    assert_eq!(of(None, [None, Some(new)]).of(), Some(([3; 16], 2)), "the cursor says it as well");
    assert_eq!(of(None, [None; 2]).of(), None);
}

/// An entry with its name or without, a whole cursor or none, and a torn one or none.
fn state_of(is_named: bool, has_cursor: bool, is_torn: bool) -> CursorEntry {
    CursorEntry {
        named: is_named.then(named),
        cursors: [has_cursor.then(cursor), None],
        torn: [false, is_torn],
        is_named,
        owner: 0,
        is_read: false,
        mark: 0,
    }
}

#[test]
fn only_what_was_begun_and_lost_is_complained_of() {
    // Name, cursor, tear: complaint, and whether nothing is said at all.
    let states = [
        ([false, false, false], None, true),
        ([false, false, true], Some(LOST), false),
        ([false, true, false], None, false),
        ([false, true, true], None, false),
        ([true, false, false], None, false),
        ([true, false, true], Some(TORN), false),
        ([true, true, false], None, false),
        ([true, true, true], None, false),
    ];
    for (state @ [is_named, has_cursor, is_torn], complaint, is_blank) in states {
        let entry = state_of(is_named, has_cursor, is_torn);
        assert_eq!(entry.complaint(), complaint, "{state:?}");
        assert_eq!(entry.is_blank(), is_blank, "{state:?}");
        assert_eq!(entry.is_torn(), is_torn, "{state:?}");
    }
    for torn in [[true, false], [true, true]] {
        assert!(CursorEntry { torn, ..CursorEntry::default() }.is_torn(), "{torn:?}");
    }
}

#[test]
fn a_partition_begins_anew_where_no_cursor_of_it_was_ever_there() {
    for (has_cursor, is_torn, is_fresh) in
        [(false, false, true), (false, true, false), (true, false, false), (true, true, false)]
    {
        let entry = state_of(true, has_cursor, is_torn);
        assert_eq!(entry.is_fresh_for(&named()), is_fresh, "{has_cursor} {is_torn}");
        let other = Named { partition: 3, ..named() };
        assert!(entry.is_fresh_for(&other), "it says nothing of another partition");
    }
    assert!(!state_of(false, true, false).is_fresh_for(&named()), "the cursor says what it is of");
    assert!(state_of(false, false, true).is_fresh_for(&named()), "nothing says what it is of");
}

#[test]
fn a_file_has_as_many_entries_as_fit_its_length() {
    let lengths = [0, 8191, 8192, 9727, 9728, 9729, 11263, 11264, 12_589_568];
    assert_eq!(lengths.map(entries_in), [0, 0, 0, 0, 1, 1, 1, 2, 8191]);
    let second = Named { partition: 9, ..named() };
    let [first, then] = [named(), second].map(|named| entry_bytes(Some(&named), 0, [None; 2]));
    let file = [vec![0; 8192], first, then.clone(), then[..1535].to_vec()].concat();
    let partitions = |len| {
        let found = entries(&file[..len]).map(|entry| entry.named.map(|named| named.partition));
        found.collect::<Vec<_>>()
    };
    assert_eq!(partitions(file.len()), [Some(2), Some(9)], "and the beginning of a third");
    assert_eq!(partitions(9728), [Some(2)]);
    for none in [9727, 8192, 8191, 0] {
        assert_eq!(partitions(none), [], "{none} bytes");
    }
}

#[test]
fn a_file_is_cut_off_where_its_head_or_what_was_written_of_an_entry_ends() {
    for len in [0, 8191] {
        assert_eq!(cut_at(&vec![0; len]), Some(len as u64), "its head ends at 8192");
    }
    for len in [8192, 8193, 9727, 9728, 9729, 11264] {
        assert_eq!(cut_at(&vec![0; len]), None, "{len} bytes that were never written");
        let is_whole = (len - 8192) % 1536 == 0;
        let cut = (!is_whole).then_some(len as u64);
        assert_eq!(cut_at(&vec![1; len]), cut, "{len} bytes that were written");
    }
    let last = [vec![1; 9728], vec![0; 700], vec![1]].concat();
    assert_eq!(cut_at(&last), Some(10_429), "the last byte of a second entry's beginning");
}
