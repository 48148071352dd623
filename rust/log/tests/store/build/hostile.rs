//! Pieces that are wrong: each is refused, and nothing outside the builder's directory is written.

use falaj::internals::format::segment::Previous;
use falaj::internals::format::settings::TopicSettings;
use falaj_twin::memory::MemoryStorage;

use super::*;
use crate::stores::{fill, on_both, open, snapshot, topic};

/// A store of three segments, and its pieces.
fn pieces() -> (Arc<dyn Storage>, Taken) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    fill(&topic(&open(&storage, Path::new("/store")).unwrap(), "orders"), 0, 300);
    let taken = take_apart(&*storage, Path::new("/store"));
    assert!(taken.segments.len() >= 3);
    (storage, taken)
}

/// Change a header, and seal it again.
fn reheaded(segment: &TakenSegment, change: impl Fn(&mut SegmentHeader)) -> Vec<u8> {
    let mut header = SegmentHeader::decode(&segment.header).unwrap();
    change(&mut header);
    header.encode().to_vec()
}

/// A build of these pieces must fail for the pieces' sake, name the log, and leave nothing.
fn refused(storage: &Arc<dyn Storage>, taken: &Taken, story: &str) -> Error {
    let before = beside(storage, Path::new("/"));
    let error = build(storage, taken, Path::new("/copy"), 7).expect_err(story);
    assert!(is_corrupt_pieces(&error), "{story}: {error}");
    assert!(error.to_string().contains("/copy/"), "{story}: {error}");
    assert_eq!(beside(storage, Path::new("/")), before, "{story}");
    error
}

#[test]
fn each_flipped_bit_of_a_block_is_found_with_its_log_file_and_position() {
    let (storage, taken) = pieces();
    let mut draws = Draws(11);
    for round in 0..60 {
        let mut bad = taken.clone();
        let which = draws.below(bad.segments.len());
        let segment = &mut bad.segments[which];
        let blocks = segment.bytes.len() - FIRST_BLOCK as usize;
        let at = FIRST_BLOCK as usize + draws.below(blocks);
        // Padding behind a block has no meaning and no checksum, and here it is zero.
        if segment.bytes[at] == 0 {
            continue;
        }
        segment.bytes[at] ^= 1 << draws.below(8);
        let name = format!("/copy/logs/{}/{}", segment.log, names::segment(segment.sequence));
        let story = format!("round {round}: byte {at} of {name}");
        let error = refused(&storage, &bad, &story);
        let Error::CorruptPieces { path, position, .. } = &error else { panic!("{error}") };
        assert_eq!(path.to_str().unwrap(), name, "{story}: {error}");
        assert!(*position <= at as u64 && *position + 600 > at as u64, "{story}: {error}");
    }
}

#[test]
fn a_piece_that_is_missing_is_found_whichever_it_is() {
    let (storage, taken) = pieces();
    for at in 0..taken.segments.len() {
        let mut bad = taken.clone();
        bad.segments.remove(at);
        // Retention deletes the oldest segments, but only behind a trim.
        refused(&storage, &bad, &format!("segment {at} is missing"));
        let mut bad = taken.clone();
        let bytes = &mut bad.segments[at].bytes;
        let (start, end) = (bytes.len() / 2, bytes.len() / 2 + 4096);
        let end = end.min(bytes.len());
        bytes[start..end].fill(0);
        refused(&storage, &bad, &format!("bytes {start} to {end} of segment {at} are missing"));
    }
    let builder = begin(&storage, Path::new("/copy")).unwrap();
    taken.files.iter().for_each(|file| give_file(&builder, file).unwrap());
    for segment in &taken.segments {
        give_segment(&builder, segment).unwrap();
        let len = segment.bytes.len() as u64;
        // A hundred bytes of one segment never come.
        let first = if segment.sequence == 1 { 20_000 } else { 20_100 };
        let parts = [(FIRST_BLOCK, first.min(len)), (len.min(20_100), len)];
        for (start, end) in parts {
            let bytes = &segment.bytes[start as usize..end as usize];
            builder.write(&segment.log, segment.sequence, start, bytes).unwrap();
        }
    }
    let error = builder.finish(None, &mut quietly).unwrap_err().to_string();
    assert!(error.contains("at byte 20000: the bytes from there to 20100 are missing"), "{error}");
    let mut bad = taken.clone();
    bad.segments.clear();
    refused(&storage, &bad, "the log is missing");
    let mut bad = taken.clone();
    bad.files.retain(|file| file.path != "falaj.json");
    let error = build(&storage, &bad, Path::new("/copy"), 1).unwrap_err();
    assert!(
        matches!(&error, Error::InvalidArgument { what } if what.contains("falaj.json")),
        "{error}"
    );
    assert_eq!(beside(&storage, Path::new("/")), ["store"]);
}

#[test]
fn segments_that_do_not_continue_each_other_are_refused() {
    let (storage, taken) = pieces();
    type Change = (&'static str, fn(&mut Vec<TakenSegment>));
    let changes: [Change; 7] = [
        ("another salt before", |all| {
            all[1].header = reheaded(&all[1], |header| {
                header.previous = header.previous.map(|p| Previous { salt: p.salt ^ 1, ..p });
            });
        }),
        ("another end before", |all| {
            all[1].header = reheaded(&all[1], |header| {
                header.previous = header.previous.map(|p| Previous { end: p.end - 8, ..p });
            });
        }),
        ("the first of a log behind another one", |all| {
            all[1].header = reheaded(&all[1], |header| header.previous = None);
        }),
        ("not sealed, and not the last", |all| {
            let end = all[1].end as usize;
            all[1].sealed = false;
            all[1].bytes.truncate(end);
        }),
        ("sealed, and the last", |all| all.last_mut().unwrap().sealed = true),
        ("an end before the last block", |all| {
            let last = all.last_mut().unwrap();
            last.end -= 528;
            last.bytes.truncate(last.end as usize);
        }),
        ("an end behind the last block", |all| {
            let last = all.last_mut().unwrap();
            last.end += 528;
            last.bytes.resize(last.end as usize, 0);
        }),
    ];
    for (story, change) in changes {
        let mut bad = taken.clone();
        change(&mut bad.segments);
        refused(&storage, &bad, story);
    }
}

#[test]
fn a_segment_that_was_cut_short_is_found_by_its_blocks_or_by_the_offsets_of_the_next_one() {
    let (storage, taken) = pieces();
    let mut gaps = 0;
    for cut in (8..=1024).step_by(8) {
        let mut bad = taken.clone();
        let segment = &mut bad.segments[1];
        segment.end -= cut;
        segment.bytes.truncate(segment.end as usize);
        let end = segment.end;
        // As after a recovery that cut it short, which needs no end block.
        bad.segments[2].header = reheaded(&bad.segments[2], |header| {
            header.supersedes = true;
            header.previous = header.previous.map(|previous| Previous { end, ..previous });
        });
        let error = refused(&storage, &bad, &format!("{cut} bytes are missing")).to_string();
        let next = names::segment(bad.segments[2].sequence);
        gaps += u32::from(error.contains("offsets with a gap") && error.contains(&next));
    }
    // Where whole blocks are missing, nothing in the segment itself tells.
    assert!(gaps > 0);
}

#[test]
fn headers_and_numbers_that_no_segment_of_the_log_can_have_are_refused_at_once() {
    let (storage, taken) = pieces();
    let builder = begin(&storage, Path::new("/copy")).unwrap();
    let good = &taken.segments[1];
    let (log, header, end, len) = (&good.log, &good.header, good.end, good.bytes.len() as u64);
    let other = format!("orders@{}", "0".repeat(32));
    let far = reheaded(good, |header| header.sequence = u64::from(u32::MAX));
    let flipped = [&header[..40], &[header[40] ^ 1], &header[41..]].concat();
    let newer = {
        let mut sector = header.clone();
        sector[8] = 9;
        let crc = falaj::internals::format::checksum::crc32(&sector[..508]);
        sector[508..].copy_from_slice(&crc.to_le_bytes());
        sector
    };
    for (log, header, end, len, sealed) in [
        (log, &header[..511].to_vec(), end, len, true),
        (log, &[&header[..], b"x"].concat(), end, len, true),
        (log, &Vec::new(), end, len, true),
        (log, &flipped, end, len, true),
        (log, &newer, end, len, true),
        (log, &far, end, len, true),
        (&other, header, end, len, true),
        (log, header, 0, len, true),
        (log, header, FIRST_BLOCK, len, true),
        (log, header, end + 4, len, true),
        (log, header, end, len, false),
        (log, header, end, len + 8, true),
        (log, header, end, end - 8, true),
        (log, header, u64::MAX - 7, u64::MAX - 7, true),
        (log, header, (1 << 40) - 56, 1 << 40, true),
    ] {
        let error = builder.segment(log, header, end, len, sealed).unwrap_err();
        let expected =
            is_corrupt_pieces(&error) || matches!(error, Error::UnsupportedVersion { .. });
        assert!(expected, "{error}");
        assert!(error.to_string().contains("/copy/logs/orders@"), "{error}");
    }
    let up = format!("../orders@{}", "0".repeat(32));
    for bad in ["", "orders", "..", "/etc", up.as_str(), "orders@0"] {
        let error = builder.segment(bad, header, end, len, true).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
    builder.discard();
    assert_eq!(beside(&storage, Path::new("/")), ["store"]);
}

#[test]
fn settings_of_other_topics_or_beyond_the_limits_are_refused() {
    let (storage, taken) = pieces();
    let topic_file = taken.files.iter().find(|file| file.path.starts_with("topics/")).unwrap();
    let settings = TopicSettings::decode(&topic_file.parts[0].1).unwrap();
    let changed = |change: fn(&mut TopicSettings)| {
        let mut other = settings.clone();
        change(&mut other);
        other.encode().into_bytes()
    };
    let builder = begin(&storage, Path::new("/copy")).unwrap();
    for bytes in [
        changed(|topic| topic.name = "other".into()),
        changed(|topic| topic.partitions = 10_001),
        changed(|topic| (topic.number, topic.partitions) = (u32::MAX, u32::MAX)),
        changed(|topic| topic.segment_bytes = 7),
        changed(|topic| topic.log = "../../x".into()),
        b"{}".to_vec(),
        topic_file.parts[0].1[..40].to_vec(),
    ] {
        let parts: &[(u64, &[u8])] = &[(0, &bytes)];
        let refused = builder.file("topics/orders/topic.json", bytes.len() as u64, parts);
        let error = refused.unwrap_err();
        assert!(is_corrupt_pieces(&error) && error.to_string().contains("topic.json"), "{error}");
    }
    builder.discard();
    // Settings that decode, and that the log does not know.
    for change in [
        (|topic: &mut TopicSettings| topic.generation = [1; 16]) as fn(&mut TopicSettings),
        |topic| topic.partitions = 2,
        |topic| topic.number = 1,
        |topic| topic.log_generation = [1; 16],
    ] {
        let mut bad = taken.clone();
        let bytes = changed(change);
        let file = bad.files.iter_mut().find(|file| file.path.starts_with("topics/")).unwrap();
        (file.len, file.parts) = (bytes.len() as u64, vec![(0, bytes)]);
        refused(&storage, &bad, "settings that the log does not know");
    }
    let mut bad = taken.clone();
    let twin = changed(|topic| topic.name = "twin".into());
    let parts = vec![(0, twin.clone())];
    bad.files.push(TakenFile {
        path: "topics/twin/topic.json".into(),
        len: twin.len() as u64,
        parts,
    });
    let error = refused(&storage, &bad, "two topics with one number");
    assert!(error.to_string().contains("the same number"), "{error}");
}

#[test]
fn whatever_is_given_nothing_outside_the_builders_directory_changes() {
    on_both(|storage, root| {
        fill(&topic(&open(storage, &root.join("store")).unwrap(), "orders"), 0, 20);
        let taken = take_apart(&**storage, &root.join("store"));
        let before = snapshot(storage, root);
        let builder = begin(storage, &root.join("copy")).unwrap();
        let absolute = root.join("outside").display().to_string();
        for path in [
            "../outside",
            "topics/../../outside/topic.json",
            "consumers/../../outside",
            "queues/..",
            "queues/a/../../../outside",
            &absolute,
            "logs/x",
            "slots/0",
            "claim",
            "origin",
            "ship.json",
            "topics/a/other.json",
            "server/token",
            "consumers/a\0b",
            "topics/\n/topic.json",
        ] {
            let error = builder.file(path, 1, &[(0, b"x")]).unwrap_err();
            let expected =
                matches!(error, Error::InvalidArgument { .. } | Error::InvalidName { .. });
            assert!(expected, "{path:?}: {error}");
        }
        for (path, len, parts) in [
            ("consumers/a", u64::MAX, vec![]),
            ("queues/a", 1 << 40, vec![]),
            ("falaj.json", 65_537, vec![]),
            ("consumers/a", 4, vec![(0, &b"12345"[..])]),
            ("consumers/a", 8, vec![(4, &b"1234"[..]), (0, b"1234")]),
            ("consumers/a", 8, vec![(0, &b"1234"[..]), (3, b"1234")]),
            ("consumers/a", 8, vec![(u64::MAX, &b"1"[..])]),
        ] {
            let error = builder.file(path, len, &parts).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{path}: {error}");
        }
        builder.discard();
        assert!(before == snapshot(storage, root));
        drop(taken);
    });
}

#[test]
fn what_is_given_twice_or_to_a_segment_that_was_not_begun_is_refused() {
    let (storage, taken) = pieces();
    let builder = begin(&storage, Path::new("/copy")).unwrap();
    let is_invalid = |refused: Result<()>, why: &str| {
        let error = refused.unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument { what } if what.contains(why)), "{error}");
    };
    let good = &taken.segments[0];
    let write = |at: u64, bytes: &[u8]| builder.write(&good.log, good.sequence, at, bytes);
    is_invalid(write(FIRST_BLOCK, b"12345678"), "was not begun");
    give_segment(&builder, good).unwrap();
    is_invalid(give_segment(&builder, good), "begun before");
    let len = good.bytes.len() as u64;
    for at in [0, 512, FIRST_BLOCK - 1, len - 7, len, u64::MAX, u64::MAX - 7] {
        is_invalid(write(at, b"12345678"), "outside of its blocks");
    }
    is_invalid(builder.write(&good.log, 99, FIRST_BLOCK, b"1"), "was not begun");
    is_invalid(builder.write("orders", 0, FIRST_BLOCK, b"1"), "was not begun");
    write(FIRST_BLOCK + 8, b"12345678").unwrap();
    for at in [FIRST_BLOCK + 1, FIRST_BLOCK + 8, FIRST_BLOCK + 15] {
        is_invalid(write(at, b"12345678"), "written before");
    }
    write(FIRST_BLOCK, b"12345678").unwrap();
    write(FIRST_BLOCK + 16, b"").unwrap();
    let file = &taken.files[0];
    give_file(&builder, file).unwrap();
    is_invalid(give_file(&builder, file), "given before");
    builder.discard();
}

#[test]
fn a_place_that_is_taken_is_refused_and_an_empty_directory_is_filled() {
    on_both(|storage, root| {
        fill(&topic(&open(storage, &root.join("store")).unwrap(), "orders"), 0, 20);
        let taken = take_apart(&**storage, &root.join("store"));
        let refused = begin(storage, &root.join("store")).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
        storage.create_dir(&root.join("empty"), 0o700).unwrap();
        build(storage, &taken, &root.join("empty"), 1).unwrap();
        open(storage, &root.join("empty")).unwrap();
        // Another process takes the name meanwhile.
        let builder = begin(storage, &root.join("copy")).unwrap();
        give_all(&builder, &taken, 1).unwrap();
        build(storage, &taken, &root.join("copy-2"), 1).unwrap();
        storage.rename_new(&root.join("copy-2"), &root.join("copy")).unwrap();
        builder.finish(None, &mut quietly).unwrap_err();
        open(storage, &root.join("copy")).unwrap();
        assert_eq!(beside(storage, root), ["copy", "empty", "store"]);
    });
}

#[test]
fn corrupt_files_of_groups_and_queues_are_put_as_they_are_and_reported() {
    let (storage, taken) = pieces();
    let mut bad = taken.clone();
    for path in ["consumers/billing", "queues/jobs"] {
        bad.files.push(TakenFile { path: path.into(), len: 5000, parts: vec![(3, b"x".to_vec())] });
    }
    let report = build(&storage, &bad, Path::new("/copy"), 1).unwrap();
    let told: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    for path in ["consumers/billing", "queues/jobs"] {
        assert!(told.iter().any(|problem| problem.contains(path)), "{told:?}");
    }
    assert!(told.iter().all(|problem| problem.contains("/copy/")), "{told:?}");
}
