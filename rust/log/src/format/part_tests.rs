//! Staged parts: each byte at its place, and what neither a part nor a manifest has.

use super::*;
use crate::format::block::flag;
use crate::format::tests::{laid_out, sealed};

const OWNER: Owner = Owner { log: [1; 16], topic: [2; 16], id: 3 };

fn manifest() -> Manifest {
    Manifest {
        owner: OWNER,
        load: "nightly".into(),
        part: "7-0".into(),
        len: 400,
        frames: 2,
        heads_crc: 9,
        records: vec![(0, 5), (3, 1 << 40)],
    }
}

#[test]
fn what_was_laid_out_comes_back_and_no_flipped_bit_does() {
    let header = PartHeader { owner: OWNER, token: (4, 5) };
    let frame = Frame {
        partition: 1,
        count: 2,
        len: 3,
        body_crc: 4,
        highest_ns: Some(-5),
        flags: flag::RICH,
        uses_append_time: true,
    };
    let (head, framed, listed) = (header.encode(), frame.encode(3, 80), manifest().encode());
    assert_eq!(PartHeader::decode(&head), Ok(header));
    assert_eq!(Frame::decode(&framed, 3, 80), Ok(frame));
    assert!(Frame::decode(&framed, 3, 88).is_err() && Frame::decode(&framed, 4, 80).is_err());
    assert_eq!(Manifest::decode(&listed), Ok(manifest()));
    for bit in 0..8 * listed.len() {
        let flip = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            bytes
        };
        assert!(Manifest::decode(&flip(&listed)).is_err(), "bit {bit}");
        assert!(bit / 8 >= HEADER_LEN || PartHeader::decode(&flip(&head)).is_err(), "bit {bit}");
        assert!(bit / 8 >= FRAME_LEN || Frame::decode(&flip(&framed), 3, 80).is_err());
    }
    for len in 0..listed.len() {
        assert!(Manifest::decode(&listed[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn only_names_exactly_as_falaj_writes_them_are_its_own() {
    let longest = "x".repeat(MAX_NAME);
    for (job, number) in [("nightly", 0), ("a.b", 9_999), (longest.as_str(), 3)] {
        assert_eq!(parse_load_dir(&load_dir(job, number)), Some((job, number)));
        for whole in [false, true] {
            let name = file_name(job, 0xab, whole);
            assert!(name.len() <= 255);
            assert_eq!(parse_file_name(&name), Some((job, 0xab, whole)));
        }
    }
    for strange in ["nightly", "@1", "a@01", "a@x", "a b@1", "..@1"] {
        assert_eq!(parse_load_dir(strange), None, "{strange}");
    }
    let id = "00000000000000ab";
    for strange in [format!("a.{id}"), "a.AB.part".into(), format!("..{id}.tmp"), id.into()] {
        assert_eq!(parse_file_name(&strange), None, "{strange}");
    }
    assert!(complaint(&"x".repeat(MAX_NAME + 1)).is_some() && complaint("a/b").is_some());
}

/// An owner whose bytes all differ.
const DISTINCT: Owner =
    Owner { log: *b"the log's number", topic: *b"GENERATION of it", id: 0x8807_8605_8403_8201 };

#[test]
fn the_header_stands_where_the_format_says() {
    let header =
        PartHeader { owner: DISTINCT, token: (0x1817_9615_9413_9211, 0xa827_a625_a423_a221) };
    let expected = sealed(
        80,
        &[
            (0, b"FALAJPRT"),
            (8, &[2]),
            (16, b"the log's number"),
            (32, b"GENERATION of it"),
            (48, b"\x01\x82\x03\x84\x05\x86\x07\x88"),
            (56, b"\x11\x92\x13\x94\x15\x96\x17\x18"),
            (64, b"\x21\xa2\x23\xa4\x25\xa6\x27\xa8"),
        ],
    );
    assert_eq!(header.encode().as_slice(), expected);
    assert_eq!(PartHeader::decode(&[expected, vec![7; 9]].concat()), Ok(header), "frames follow");
}

#[test]
fn a_header_that_is_cut_off_newer_or_something_else_is_told_apart() {
    let sound = PartHeader { owner: OWNER, token: (4, 5) }.encode();
    let with =
        |at: usize, what: &[u8]| PartHeader::decode(&sealed(80, &[(0, &sound[..76]), (at, what)]));
    let said = |what| Err(DecodeError::Damaged(what));
    assert_eq!(PartHeader::decode(&sound[..79]), said("a staged part without a whole header"));
    assert_eq!(with(0, &MANIFEST_MAGIC), said("not a staged part"));
    let torn = [&sound[..76], &[0; 4]].concat();
    let other_sum = "the checksum of a staged part's header does not match";
    assert_eq!(PartHeader::decode(&torn), said(other_sum));
    assert_eq!(with(8, &[3]), Err(DecodeError::Version(3)));
}

/// The head of a frame as the format lays it out, with its checksum for a part and a position.
fn frame_bytes(id: u64, position: u64, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let head = laid_out(28, fields);
    let sum = crc32(&[&id.to_le_bytes(), &position.to_le_bytes(), &head[..]].concat());
    [head, sum.to_le_bytes().to_vec()].concat()
}

#[test]
fn a_frame_stands_where_the_format_says() {
    let (id, position) = (0x8807_8605_8403_8201, 0x0102_0304_0506_0708);
    let frame = Frame {
        partition: 0x9413_9211,
        count: 0xa423_a221,
        len: 0xb433_b231,
        body_crc: 0xc443_c241,
        highest_ns: Some(i64::from_le_bytes(*b"Q\xd2S\xd4U\xd6W\xd8")),
        flags: 0x0600,
        uses_append_time: true,
    };
    let fields: [(usize, &[u8]); 7] = [
        (0, b"\x11\x92\x13\x94"),
        (4, b"\x21\xa2\x23\xa4"),
        (8, b"\x31\xb2\x33\xb4"),
        (12, b"\x41\xc2\x43\xc4"),
        (16, b"\x51\xd2\x53\xd4\x55\xd6\x57\xd8"),
        (24, &[0, 6]),
        (26, &[1, 0]),
    ];
    let expected = frame_bytes(id, position, &fields);
    assert_eq!(frame.encode(id, position).as_slice(), expected);
    assert_eq!(Frame::decode(&expected, id, position), Ok(frame));

    let timeless = Frame { highest_ns: None, uses_append_time: false, ..frame };
    let none: [(usize, &[u8]); 2] = [(16, &[0, 0, 0, 0, 0, 0, 0, 0x80]), (26, &[0, 0])];
    let expected = frame_bytes(id, position, &[&fields[..], &none].concat());
    assert_eq!(timeless.encode(id, position).as_slice(), expected);
    assert_eq!(Frame::decode(&expected, id, position), Ok(timeless));
}

#[test]
fn a_frame_of_a_newer_version_is_told_from_one_without_records() {
    let with = |at: usize, what: &[u8]| {
        let sound: [(usize, &[u8]); 2] = [(4, &[1]), (8, &[1])];
        Frame::decode(&frame_bytes(3, 80, &[&sound[..], &[(at, what)]].concat()), 3, 80)
    };
    assert!(with(4, &[1]).is_ok(), "one record of one byte");
    // The flags of a block that belong to its body: RICH is bit 9, EVENT_TIME bit 10.
    for bit in 0..16 {
        let read = with(24, &(1u16 << bit).to_le_bytes());
        let is_known = matches!(read, Ok(frame) if frame.flags == 1 << bit);
        let is_newer = matches!(read, Err(DecodeError::Unknown(_)));
        assert_eq!(
            (is_known, is_newer),
            ([9, 10].contains(&bit), ![9, 10].contains(&bit)),
            "{bit}"
        );
    }
    for (append_time, uses) in [([0, 0], false), ([1, 0], true)] {
        let read = with(26, &append_time).map(|frame| frame.uses_append_time);
        assert_eq!(read, Ok(uses), "{append_time:?}");
    }
    for newer in [[2, 0], [3, 0], [0, 1], [1, 1]] {
        assert!(matches!(with(26, &newer), Err(DecodeError::Unknown(_))), "{newer:?}");
    }
    let empty = Err(DecodeError::Damaged("a staged frame without records"));
    assert_eq!(with(4, &[0]), empty, "no record");
    assert_eq!(with(8, &[0]), empty, "no byte");
    let cut = Frame::decode(&frame_bytes(3, 80, &[(4, &[1])])[..31], 3, 80);
    assert_eq!(cut, Err(DecodeError::Damaged("a staged frame that is cut off")));
}

#[test]
fn a_manifest_stands_where_the_format_says() {
    let manifest = Manifest {
        owner: DISTINCT,
        load: "nightly".into(),
        part: "7-0".into(),
        len: 0x1817_9615_9413_9211,
        frames: 0xa423_a221,
        heads_crc: 0xb433_b231,
        records: vec![(0x0403_0201, 0xc847_c645_c443_c241), (0xd453_d251, 5)],
    };
    let expected = sealed(
        118,
        &[
            (0, b"FALAJMAN"),
            (8, &[2]),
            (12, &[2]),
            (16, b"the log's number"),
            (32, b"GENERATION of it"),
            (48, b"\x01\x82\x03\x84\x05\x86\x07\x88"),
            (56, b"\x11\x92\x13\x94\x15\x96\x17\x18"),
            (64, b"\x21\xa2\x23\xa4"),
            (68, b"\x31\xb2\x33\xb4"),
            (72, &[7, 3]),
            (80, b"nightly"),
            (87, b"7-0"),
            (90, b"\x01\x02\x03\x04"),
            (94, b"\x41\xc2\x43\xc4\x45\xc6\x47\xc8"),
            (102, b"\x51\xd2\x53\xd4"),
            (106, &[5]),
        ],
    );
    assert_eq!(manifest.encode(), expected);
    assert_eq!(Manifest::decode(&expected), Ok(manifest));
}

#[test]
fn a_manifest_that_is_cut_off_newer_or_of_no_part_is_told_apart() {
    let sound = manifest().encode();
    let end = sound.len() - 4;
    let with = |len: usize, at: usize, what: &[u8]| {
        Manifest::decode(&sealed(len, &[(0, &sound[..end.min(len - 4)]), (at, what)]))
    };
    let said = |what| Err(DecodeError::Damaged(what));
    let cut_off = || said("the manifest of a part is cut off");
    let no_name = || said("the manifest of a part names what no part is called");
    assert_eq!(with(end + 4, 0, b""), Ok(manifest()), "nothing was changed");
    assert_eq!(with(end + 4, 0, &MAGIC), said("these bytes are not the manifest of a part"));
    assert_eq!(with(end + 4, 8, &[3]), Err(DecodeError::Version(3)));
    for len in [8, 11] {
        assert_eq!(Manifest::decode(&sound[..len]), cut_off(), "no checksum in {len} bytes");
    }
    assert_eq!(with(79 + 4, 0, b""), cut_off(), "a byte less than its head");
    let nameless: [(usize, &[u8]); 2] = [(0, &sound[..72]), (12, &[0])];
    assert_eq!(Manifest::decode(&sealed(84, &nameless)), no_name(), "a head and nothing else");
    // Two entries of 12 bytes each.
    for (len, entries) in [(end + 3, 2), (end + 5, 2), (end + 4, 1), (end + 4, 3)] {
        assert_eq!(with(len, 12, &[entries]), cut_off(), "{entries} entries in {len} bytes");
    }
    assert_eq!(with(90 + 4, 72, &[11]), cut_off(), "a job's name that leaves the manifest");
    assert_eq!(with(90 + 4, 73, &[4]), cut_off(), "a part's name that leaves it");
    for strange in [&b"/"[..], b"\xff", b" "] {
        assert_eq!(with(end + 4, 80, strange), no_name(), "a job called {strange:?}");
        assert_eq!(with(end + 4, 87, strange), no_name(), "a part called {strange:?}");
    }
}

#[test]
fn jobs_and_parts_have_the_file_names_that_the_format_gives() {
    assert_eq!(load_dir("nightly", 90), "nightly@90");
    assert_eq!(file_name("7-0", 0xab_cdef, true), "7-0.0000000000abcdef.part");
    assert_eq!(file_name("7-0", u64::MAX, false), "7-0.ffffffffffffffff.tmp");
    assert_eq!(parse_load_dir("a@b@4294967295"), None, "no job has an @");
    assert_eq!(parse_load_dir("a@4294967295"), Some(("a", u32::MAX)));
    assert_eq!(parse_load_dir("a@4294967296"), None);
    assert_eq!(parse_load_dir("a@+1"), None);
}

#[test]
fn a_job_or_a_part_has_1_to_200_characters() {
    for (len, is_good) in
        [(0, false), (1, true), (199, true), (200, true), (201, false), (250, false)]
    {
        assert_eq!(complaint(&"x".repeat(len)).is_none(), is_good, "{len} characters");
    }
    let told = "it has at most 200 characters, this one has 201";
    assert_eq!(complaint(&"x".repeat(201)).as_deref(), Some(told));
}
