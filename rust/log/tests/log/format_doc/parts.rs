//! The files that a bulk load stages: the tables of "Staged parts" in `docs/FORMAT.md`.

use falaj::internals::format::part::{self, Frame, Manifest, Owner, PartHeader};

use super::*;

const OWNER: Owner = Owner { log: [1; 16], topic: [2; 16], id: 3 };

#[test]
fn staged_parts_are_as_their_tables_say() {
    let head = PartHeader { owner: OWNER, token: (4, 5) }.encode();
    assert_layout(
        "part header",
        &head,
        &[
            ("magic", part::MAGIC.to_vec()),
            ("version", half(VERSION)),
            ("log", vec![1; 16]),
            ("topic", vec![2; 16]),
            ("id", word(3)),
            ("token", word(4)),
            ("token version", word(5)),
            ("crc", half(crc32(&head[..76]))),
        ],
    );
    let frame = Frame {
        partition: 6,
        count: 7,
        len: 8,
        body_crc: 9,
        highest_ns: Some(-10),
        flags: flag::RICH,
        uses_append_time: true,
    };
    let framed = frame.encode(3, 88);
    let covered = [word(3), word(88), framed[..28].to_vec()].concat();
    assert_eq!(
        table("part frame")[7][3],
        "CRC-32 of the id, the position of the frame in the file as a word, and bytes 0–27"
    );
    let fields = [half(6), half(7), half(8), half(9), (-10i64).to_le_bytes().to_vec()].concat();
    assert_eq!(framed[..24], fields);
    assert_eq!(
        framed[24..],
        [flag::RICH.to_le_bytes().to_vec(), vec![1, 0], half(crc32(&covered))].concat()
    );
    let none = Frame { highest_ns: None, ..frame }.encode(3, 88);
    assert_eq!(none[16..24], i64::MIN.to_le_bytes());

    let manifest = Manifest {
        owner: OWNER,
        load: "nightly".into(),
        part: "7".into(),
        len: 11,
        frames: 12,
        heads_crc: 13,
        records: vec![(6, 14)],
    };
    let listed = manifest.encode();
    assert_layout(
        "manifest",
        &listed[..part::MANIFEST_LEN],
        &[
            ("magic", part::MANIFEST_MAGIC.to_vec()),
            ("version", half(VERSION)),
            ("entries", half(1)),
            ("log", vec![1; 16]),
            ("topic", vec![2; 16]),
            ("id", word(3)),
            ("length", word(11)),
            ("frames", half(12)),
            ("heads", half(13)),
            ("job", vec![7]),
            ("part", vec![1]),
        ],
    );
    let behind = [b"nightly7".to_vec(), half(6), word(14)].concat();
    let sum = half(crc32(&listed[..listed.len() - 4]));
    assert_eq!(listed[part::MANIFEST_LEN..], [behind, sum].concat());
    assert!(says(&format!("1 to {} of the characters", part::MAX_NAME)));
}
