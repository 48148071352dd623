//! The files that readers keep beside the logs: the tables of queues and groups in
//! `docs/FORMAT.md`.

use falaj::internals::format::{consumer, queue};

use super::*;

#[test]
fn the_state_of_a_queue_is_as_its_tables_say() {
    let parts = queue::Parts { capacity: 64, ordered: true };
    let generation = *b"0123456789abcdef";
    let header =
        queue::QueueHeader { generation, id: 9, parts, counts_begun: true, topic: "jobs".into() };
    let header = header.encode();
    let mut name = b"jobs".to_vec();
    name.resize(459, 0);
    assert_layout(
        "queue header",
        &header,
        &[
            ("magic", queue::MAGIC.to_vec()),
            ("version", half(VERSION)),
            ("flags", half(3)),
            ("topic", generation.to_vec()),
            ("id", word(9)),
            ("places", word(64)),
            ("length", vec![4]),
            ("name", name),
            ("crc", half(crc32(&header[..508]))),
        ],
    );
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    let ends = queue::QueueEnds { serial: 3, floor: 4, head: 5, trimmed: 6, dead: 7 };
    let slot = bytes(&ends.encode(9));
    let covered = [word(9), vec![255; 8], slot[..56].to_vec()].concat();
    assert_layout(
        "queue ends",
        &slot,
        &[
            ("serial", word(3)),
            ("floor", word(4)),
            ("head", word(5)),
            ("trimmed", word(6)),
            ("dead", word(7)),
            ("crc", word(crc32(&covered).into())),
        ],
    );
    let state = queue::State::InFlight;
    let (begun, suspect, deliveries) = (true, true, 5);
    let entry = queue::JobEntry {
        state,
        begun,
        suspect,
        attempts: 258,
        deliveries,
        holder: 1,
        serial: 2,
        when: 3,
        mark: 4,
    };
    let version = bytes(&entry.encode(9, 77));
    let covered = [word(9), word(77), version[..28].to_vec(), vec![0; 4]].concat();
    assert_layout(
        "queue entry",
        &version,
        &[
            ("when", word(3)),
            ("holder", half(1)),
            ("serial", half(2)),
            ("mark", word(4 | 5 << 33)),
            ("state", vec![2 | 16 | 32]),
            ("attempts", vec![2, 1, 0]),
            ("crc", half(crc32(&covered))),
        ],
    );
    assert_eq!((version.len() as u64, queue::ENTRY_LEN), (queue::VERSION_LEN, 64));
    assert_eq!(queue::at::ENDS, [512, 1024]);
    let words = [
        (queue::at::LOCK, "LOCK"),
        (queue::at::INCARNATION, "INCARNATION"),
        (queue::at::BUSY, "BUSY"),
        (queue::at::REPLACED, "REPLACED"),
        (queue::at::HEAP, "HEAP"),
        (queue::at::IN_FLIGHT, "IN_FLIGHT"),
        (queue::at::DONE, "DONE"),
        (queue::at::CHANGES, "CHANGES"),
    ];
    let rows = table("queue words");
    let documented: Vec<_> = rows.iter().map(|row| (number(&row[0]), row[1].as_str())).collect();
    assert_eq!(documented, words);
}

#[test]
fn the_file_of_a_consumer_is_as_its_tables_say() {
    let header = consumer::encode_header(*b"0123456789abcdef", *b"fedcba9876543210");
    assert_layout(
        "consumer header",
        &header,
        &[
            ("magic", consumer::MAGIC.to_vec()),
            ("version", half(VERSION)),
            ("store", b"0123456789abcdef".to_vec()),
            ("log", b"fedcba9876543210".to_vec()),
            ("crc", half(crc32(&header[..60]))),
        ],
    );
    let documented = |rows: Rows| {
        let words = rows.iter().map(|row| (number(&row[0]), row[1].clone()));
        words.collect::<Vec<_>>()
    };
    let words = [
        (consumer::at::INCARNATION, "INCARNATION".to_owned()),
        (consumer::at::CHANGES, "CHANGES".to_owned()),
        (consumer::at::ASKS, "ASKS".to_owned()),
    ];
    assert_eq!(documented(table("consumer words")), words);
    let words = [
        (consumer::at::READ, "READ".to_owned()),
        (consumer::at::FORGOTTEN, "FORGOTTEN".to_owned()),
        (consumer::at::OWNER, "OWNER".to_owned()),
    ];
    assert_eq!(documented(table("consumer entry words")), words);
    let (generation, partition) = ([7; 16], 3);
    let named = consumer::Named { generation, partition, topic: "orders".into() };
    let entry = consumer::encode_named(&named);
    let mut name = b"orders".to_vec();
    name.resize(249, 0);
    assert_layout(
        "consumer entry",
        &entry,
        &[
            ("generation", generation.to_vec()),
            ("partition", half(3)),
            ("length", half(6)),
            ("topic", name),
            ("crc", half(crc32(&entry[..280]))),
        ],
    );
    let committed = consumer::CursorPosition { offset: 9, crc: 7, time_us: -1 };
    let safe = consumer::CursorPosition { offset: 5, crc: 6, time_us: 1 };
    let cursor = consumer::StoredCursor {
        generation,
        partition,
        serial: 4,
        committed,
        safe,
        incarnation: 77,
        metadata: consumer::CommitMetadata::new(&[5; 384]).unwrap(),
    };
    let cursor = consumer::encode_cursor(&cursor);
    assert_layout(
        "consumer cursor",
        &cursor,
        &[
            ("generation", generation.to_vec()),
            ("partition", half(3)),
            ("serial", word(4)),
            ("committed", word(9)),
            ("committed time", word(u64::MAX)),
            ("committed crc", half(7)),
            ("safe", [word(5), word(1), half(6), half(0)].concat()),
            ("incarnation", word(77)),
            ("length", 384u16.to_le_bytes().to_vec()),
            ("metadata", vec![5; falaj::internals::format::state::MAX_METADATA]),
            ("crc", half(crc32(&cursor[..508]))),
        ],
    );
    let page = page();
    assert!(page.contains("Rows begin at 4096, entries at 8192") && page.contains("at most 8,192"));
    assert_eq!((consumer::at::MEMBERS, consumer::HEAD_LEN), (4096, 8192));
    assert_eq!(
        (consumer::ENTRIES_MAX, consumer::MEMBERS_MAX, consumer::MEMBER_LEN),
        (8192, 256, 16)
    );
    assert!(page.contains("three sectors, 1,536 bytes"));
    assert_eq!((consumer::ENTRY_LEN, consumer::at::CURSORS), (1536, 512));
    assert_eq!(consumer::mark_of(&[2; 16]), 0x0202_0202_0202_0203);
}
