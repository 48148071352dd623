//! Which blocks get an entry, and how few entries a search reads to find one.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::cell::Cell;
use std::sync::Arc;

use super::*;
use crate::format::block::{BlockHeader, Kind, flag};
use crate::segment::Block;
use crate::segment::tests::draft::{BOTH, Draft, LEN, data};
use crate::storage::File;
use crate::twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

const MODE: u32 = 0o600;

/// Make entries of these topics in sequence; the offset of each is the number of its topic's
/// earlier ones.
fn entries(topics: &[u32]) -> Vec<IndexEntry> {
    let mut next = [0; 10];
    let entry = |(i, topic): (u64, &u32)| {
        let offset = &mut next[*topic as usize];
        *offset += 1;
        let position = (i + 1) * STRIDE;
        IndexEntry { topic: *topic, offset: *offset - 1, position, highest_ns: i64::MIN }
    };
    (0..).zip(topics).map(entry).collect()
}

/// Return the result of a search, and how many entries it read. A search without an end fails.
fn search(entries: &[IndexEntry], topic: u32, until: u64) -> (Option<IndexEntry>, usize) {
    let (index, looks) = (Index::Built(entries.to_vec()), Cell::new(0));
    let look = |i| {
        looks.set(looks.get() + 1);
        assert!(looks.get() <= 10_000, "still looking for {until} of topic {topic}");
        index.entry(i)
    };
    let found = index.search(topic, |entry| entry.offset <= until, look);
    if let Some((i, entry)) = found {
        assert_eq!(index.entry(i), Some(entry), "an entry is where it is said to be");
    }
    (found.map(|(_, entry)| entry), looks.get())
}

#[test]
fn of_a_thousand_entries_a_search_looks_at_ten() {
    let entries = entries(&[0; 1000]);
    for until in 0..1100 {
        let (found, looks) = search(&entries, 0, until);
        assert_eq!(found, Some(entries[until.min(999) as usize]));
        assert!(looks <= 10, "{looks} looks for {until}");
    }
}

#[test]
fn a_search_finds_the_last_entry_that_fits_wherever_its_topic_has_some() {
    let rows: [&[u32]; 7] = [
        &[],
        &[1],
        &[0, 0, 0, 0, 1],
        &[1, 0, 0, 0, 0, 0],
        &[1, 0, 0, 0, 1, 1, 0, 0],
        &[0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 2, 1],
        &[2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
    ];
    for topics in rows {
        let entries = entries(topics);
        for topic in 0..4 {
            for until in 0..10 {
                let fits = |entry: &&IndexEntry| entry.topic == topic && entry.offset <= until;
                let last = entries.iter().rfind(fits).copied();
                assert_eq!(
                    search(&entries, topic, until).0,
                    last,
                    "{until} of {topic} in {topics:?}"
                );
            }
        }
    }
}

/// Make a segment and the file of its index, which has three entries and space for more.
fn three_entries() -> (Draft, Vec<IndexEntry>, Arc<dyn File>) {
    let draft = Draft::new();
    let (segment, three) = (draft.open(Reading::Map), entries(&[0, 1, 0]));
    Index::replace(&draft.memory, &draft.dir, &segment, LEN, &three, MODE).unwrap();
    let path = draft.dir.join(names::index(segment.sequence()));
    let file = draft.memory.open(&path, OpenMode::ReadWrite).unwrap();
    (draft, three, file)
}

#[test]
fn an_index_is_filled_up_to_the_first_place_without_a_sound_entry() {
    let (draft, three, file) = three_entries();
    let filled = || {
        BOTH.map(|reading| {
            let segment = draft.open(reading);
            let opened = Index::open_existing(&draft.memory, &draft.dir, &segment);
            opened.map_or(0, |index| index.filled())
        })
    };
    assert_eq!(filled(), [3, 3]);
    assert_eq!(Index::Built(three).filled(), 3);
    assert_eq!(Index::Built(Vec::new()).filled(), 0);
    file.write_at(&[9], entry_position(1) + 8).unwrap();
    // A reader without a map gets the error for corruption; see `Index::load`.
    assert_eq!(filled(), [1, 0]);
}

#[test]
fn what_was_written_to_an_index_is_what_is_loaded_from_it() {
    let (draft, three, file) = three_entries();
    let load = || Index::load(&draft.memory, &draft.dir, &draft.open(Reading::Map)).unwrap();
    assert_eq!(load(), three);
    file.write_at(&[0; ENTRY_LEN], entry_position(1)).unwrap();
    assert_eq!(load(), three[..1], "what was never written ends it");
}

#[test]
fn the_longest_index_that_a_segment_can_have_is_read_whole_and_no_memory_is_asked_for_more() {
    // Its length by `docs/FORMAT.md`, for the last possible position.
    let longest = 64 + (34_359_738_360 / 4096 + 2) * 32;
    assert!((longest..300 << 20).contains(&MAX_FILE), "{MAX_FILE}");
}

/// Make a step over a block of a topic.
fn step(topic: u32, flags: u16, position: u64, time: u64) -> Step {
    let header = BlockHeader { time, ..data(topic, 0, flags, b"\x01a") };
    Step::Data { block: Block { position, header }, first: position, highest_before_ns: -7 }
}

#[test]
fn an_entry_points_at_the_head_of_its_group() {
    let mut noted = IndexBuild::default();
    let (group, member) = (flag::GROUP, flag::MEMBER);
    for (topic, flags, position) in
        [(0, group, 4096), (1, member, 4200), (0, member, 4300), (2, 0, 4400), (3, group, 4500)]
    {
        noted.note(&step(topic, flags, position, 0));
    }
    let told: Vec<_> = noted.entries.iter().map(|e| (e.topic, e.position, e.offset)).collect();
    // Offsets are those of the topic's own block.
    assert_eq!(told, [(0, 4096, 4096), (1, 4096, 4200), (2, 4400, 4400), (3, 4500, 4500)]);
    assert!(noted.entries.iter().all(|entry| entry.highest_ns == -7));
}

#[test]
fn the_latest_time_of_all_blocks_is_noted_whatever_clocks_did() {
    let mut noted = IndexBuild::default();
    for (time, latest) in [(5, 5), (9, 9), (3, 9), (10, 10)] {
        noted.note(&step(0, 0, 4096, time));
        assert_eq!(noted.time, latest);
    }
    let own =
        Block { position: 5000, header: BlockHeader { time: 77, ..BlockHeader::new(Kind::Meta) } };
    noted.note(&Step::Other(own));
    assert_eq!((noted.time, noted.entries.len()), (10, 1), "blocks of records alone");
}

#[test]
fn a_topic_that_had_no_entry_for_long_gets_one_between_those_of_others() {
    let due = |position: u64| {
        let mut pacer = IndexSampler::default();
        assert!(pacer.is_due(0, 4096));
        // One block of another topic in each stride, the last of them right before.
        (2..).map(|i| i * 4096).take_while(|at| *at < position).for_each(|at| pacer.note(1, at));
        assert!(!pacer.wants(1, position));
        pacer.is_due(0, position)
    };
    assert!(!due(4096 + 65_536 - 8) && due(4096 + 65_536 + 8));
}

#[test]
fn no_topic_gets_one_between_when_there_are_more_entries_than_strides() {
    let due = |topics: u32, position: u64| {
        let mut pacer = IndexSampler::default();
        (0..topics).for_each(|topic| assert!(pacer.is_due(topic, 4096), "the first of each"));
        // One more, so that the topic's turn does not come by the stride.
        pacer.note(1, position - 8);
        pacer.is_due(0, position)
    };
    // 31 entries, for which there has to be more than 31 strides.
    assert!(!due(30, 31 * 4096) && due(30, 31 * 4096 + 8));
    assert!(due(10, 31 * 4096));
}

/// A segment so large that its index has pages which are not needed at first.
#[test]
fn the_blocks_of_an_index_are_allocated_when_entries_come() {
    const LARGE: u64 = 8 << 20;
    let draft = Draft::new();
    let segment = draft.open(Reading::Map);
    Index::replace(&draft.memory, &draft.dir, &segment, LARGE, &[], MODE).unwrap();
    let path = draft.dir.join(names::index(segment.sequence()));
    let allocated = || draft.memory.stat(&path).unwrap().allocated;
    let len = file_len(LARGE);
    assert_eq!(draft.memory.stat(&path).unwrap().len, len, "it is as long as it will be");
    assert!(allocated() < len / 4, "{} of {len}", allocated());
    let access = MapAccess::Write;
    let index = Index::open_file(&draft.memory, &draft.dir, &segment, access).unwrap();
    let entries = entries(&[0; 2000]);
    assert!(index.put(0, &entries[0]).unwrap());
    assert!(allocated() < len / 4, "a page is enough for the first");
    // The twin refuses stores into unallocated space.
    for (i, entry) in (1..).zip(&entries[1..]) {
        assert!(index.put(i, entry).unwrap(), "{i}");
    }
    assert!(allocated() >= len);
    assert_eq!(index.filled(), 2000);
}

#[test]
fn an_entry_for_which_the_disk_has_no_room_is_left_out() {
    let draft = Draft::new();
    let segment = draft.open(Reading::Map);
    Index::replace(&draft.memory, &draft.dir, &segment, LEN, &[], MODE).unwrap();
    let disk = FaultyStorage::over_memory(draft.memory.clone());
    let access = MapAccess::Write;
    let index = Index::open_file(&disk, &draft.dir, &segment, access).unwrap();
    let entries = entries(&[0, 0]);
    disk.plan(Fault::at(1, FailureKind::Errno(libc::ENOSPC)).only(Call::Allocate).forever());
    assert!(!index.put(0, &entries[0]).unwrap());
    assert_eq!(index.filled(), 0);
    disk.heal();
    assert!(index.put(0, &entries[0]).unwrap());
    assert_eq!(index.position(0), Some(entries[0].position));
}
