//! The worked example of `docs/FORMAT.md`: written by the code, compared with the page, read back.

use super::*;

const SALT: u64 = 0x0123_4567_89ab_cdef;
const TIME_BASE_US: i64 = 1_795_219_200_000_000;
const TIME_US: u64 = 1_500_000;

/// The example's segment, a page longer than its content.
fn segment_file() -> Vec<u8> {
    let log: [u8; 16] = std::array::from_fn(|i| i as u8);
    let generation: [u8; 16] = std::array::from_fn(|i| 0x10 + i as u8);
    let mut state = LogState::default();
    assert!(state.set_topic(0, TopicState::empty(generation, 0)));
    let snapshot = state.encode_since(&LogState::default());
    let mut body = falaj::internals::format::record::BodyWriter::default();
    body.begin(false, None);
    body.push(&NewRecord::new(b"falaj"));

    let header = segment::SegmentHeader {
        log,
        sequence: 0,
        salt: SALT,
        supersedes: false,
        previous: None,
        replaces: None,
        time_base_us: TIME_BASE_US,
    };
    let data = BlockHeader {
        count: 1,
        span: 1,
        flags: body.flags(),
        ..own_header(Kind::Data, body.body(), TIME_US)
    };
    let snapshot_header = own_header(Kind::Snapshot, &snapshot, 0);
    let first = FIRST_BLOCK + snapshot_header.padded();
    let mark = Mark {
        serial: 1,
        position: first,
        clean: true,
        succeeded: false,
        control: 0xc0de,
        incarnation: 7,
    };
    let mut file = vec![0; (FIRST_BLOCK + PAGE) as usize];
    let mut put = |at: u64, bytes: &[u8]| {
        file[at as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    segment::HEADERS.iter().for_each(|at| put(*at, &header.encode()));
    put(mark.slot(), &mark.encode(SALT));
    for (at, header, body) in
        [(FIRST_BLOCK, snapshot_header, &snapshot[..]), (first, data, body.body())]
    {
        put(at, &encoded(&header, SALT, at));
        put(at + header.header_len() as u64, body);
    }
    file
}

/// Sixteen bytes a line; runs of zero lines become one `*`.
fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut skipped = false;
    for (i, line) in bytes.chunks(16).enumerate() {
        if line.iter().all(|b| *b == 0) {
            out += if skipped { "" } else { "*\n" };
            skipped = true;
            continue;
        }
        skipped = false;
        let hex: Vec<_> = line.iter().map(|b| format!("{b:02x}")).collect();
        let text = line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' });
        let text: String = text.collect();
        out += &format!("{:08x}  {}  {}  {text}\n", 16 * i, hex[..8].join(" "), hex[8..].join(" "));
    }
    out
}

/// The bytes that the page shows.
fn shown() -> (String, Vec<u8>) {
    let page = page();
    let shown = page.split("<!-- example -->\n```\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap().to_owned();
    let mut bytes = vec![0; (FIRST_BLOCK + PAGE) as usize];
    for line in shown.lines().filter(|line| *line != "*") {
        let at = usize::from_str_radix(&line[..8], 16).unwrap();
        for (i, hex) in line[8..].split_whitespace().take(16).enumerate() {
            bytes[at + i] = u8::from_str_radix(hex, 16).unwrap();
        }
    }
    (shown, bytes)
}

#[test]
fn the_example_is_what_the_code_writes() {
    let written = dump(&segment_file());
    let (shown, bytes) = shown();
    assert!(shown == written, "FORMAT.md should show\n{written}");
    assert_eq!(bytes, segment_file());
    for row in rows() {
        assert!(page().contains(&row), "FORMAT.md should say\n{row}");
    }
}

/// The table below the dump.
fn rows() -> Vec<String> {
    let word = |len, kind, at| CommitWord { len, kind }.pack(SALT, at);
    let (snapshot, data) =
        (word(90, Kind::Snapshot, FIRST_BLOCK), word(38, Kind::Data, FIRST_BLOCK + 96));
    let time: Vec<_> = TIME_US.to_le_bytes()[..6].iter().map(|b| format!("{b:02x}")).collect();
    vec![
        "| 0 | | segment header; `previous` and `replaces` are all ones: none |".into(),
        "| 4096 | | the same header again |".into(),
        "| 4608 | | durable mark with serial 1, so in slot 1; all before position 8288 is on the \
         disk, and it is clean |"
            .into(),
        format!(
            "| 8192 | 90, padded to 96 | snapshot block; the commit word is `0x{snapshot:016x}`: \
             length {} = `0x5a`, kind 4 |",
            0x5a
        ),
        format!("| 8224 | {} | its body: type 1, length 56, topic entry of topic 0", 2 + 56),
        format!(
            "| 8288 | 38, padded to 40 | data block; the commit word is `0x{data:016x}`: length \
             {} = `0x26`, kind 1 |",
            0x26
        ),
        format!(
            "| 8304 | 16 | relative offset 0, count 1, time 1,500,000 µs (`{}`), flags 0 |",
            time.join(" ")
        ),
        "| 8320 | 6 | its body: length 5, `falaj` |".into(),
        "| 8328 | | zero: the log ends here |".into(),
    ]
}

#[test]
fn the_example_reads_as_the_page_tells_it() {
    let (_, bytes) = shown();
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join(names::segment(0)), &bytes).unwrap();
    let log: [u8; 16] = std::array::from_fn(|i| i as u8);
    let storage = RealStorage::new();
    let segment = Segment::open(&storage, root.path(), log, 0, MapAccess::Read, 0).unwrap();
    assert_eq!(segment.header().time_base_us, TIME_BASE_US);
    let mark = segment.mark().unwrap();
    assert_eq!((mark.serial, mark.position, mark.clean), (1, 8288, true));

    let mut walk = SegmentWalker::through_snapshot(&segment).unwrap();
    assert_eq!((walk.position, walk.bases.get(0)), (8288, Some(0)));
    let step = walk.step(&segment, Check::Full).unwrap();
    let Some(Step::Data { block, first: 0, highest_before_ns: i64::MIN }) = step else {
        panic!("the example's data block reads as {step:?}");
    };
    assert_eq!(segment.body(&block), b"\x05falaj");
    assert_eq!(highest_ns(&segment, &block).unwrap(), 1_795_219_201_500_000_000);
    assert_eq!(walk.position, 8328);
    assert!(walk.step(&segment, Check::Full).unwrap().is_none(), "the log ends here");
}
