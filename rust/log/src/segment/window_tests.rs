//! Windows: what is read from a file, what of it is held, and what a bad disk hides.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::format::PAGE;
use crate::segment::tests::draft::{Draft, LEN, REACH};
use crate::storage::{OpenMode, Storage};
use crate::twin::faulty::{Call, FaultyStorage};

/// Make a window of this many bytes on a segment. A test that reads without end fails, and does not
/// hang.
fn window_of(draft: &Draft, storage: &dyn Storage, len: u64) -> Window {
    let calls = AtomicUsize::new(0);
    draft.memory.watch(move |_| assert!(calls.fetch_add(1, Ordering::Relaxed) < 10_000));
    let file = storage.open(&draft.path(), OpenMode::Read).unwrap();
    let memory = file.private_memory(len).unwrap();
    Window::new(file, memory, draft.builder.salt())
}

fn window(draft: &Draft) -> Window {
    window_of(draft, &draft.memory, LEN)
}

/// Make a window on a disk that can go bad.
fn on_disk(draft: &Draft) -> (Window, FaultyStorage) {
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    (window_of(draft, &faulty, LEN), faulty)
}

fn in_file(draft: &Draft, position: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    draft.file().read_at(&mut bytes, position).unwrap();
    bytes
}

fn in_window(window: &Window, position: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    window.memory.copy(position, &mut bytes);
    bytes
}

fn word_in_file(draft: &Draft, position: u64) -> u64 {
    word_at(&in_file(draft, position, 8), 0)
}

fn ranges(window: &Window) -> Vec<(u64, u64)> {
    window.held().ranges.iter().map(|(start, end)| (*start, *end)).collect()
}

#[test]
fn the_first_run_holds_what_goes_on_from_its_beginning_without_a_gap() {
    let run = WindowRun::default();
    assert!(!run.holds(0, 8));
    run.extend(96, 200);
    run.extend(200, 304);
    run.extend(400, 504);
    for (from, to) in [(96, 104), (96, 200), (192, 208), (96, 304), (296, 304)] {
        assert!(run.holds(from, to), "{from}..{to}");
    }
    for (from, to) in [(88, 96), (88, 104), (0, 504), (296, 312), (304, 312), (400, 408)] {
        assert!(!run.holds(from, to), "{from}..{to}");
    }
}

#[test]
fn a_window_is_large_when_it_holds_more_than_64_mib() {
    let window = window(&Draft::new());
    for (bytes, large) in [(0, false), (64 << 20, false), ((64 << 20) + 1, true), (1 << 40, true)] {
        window.resident.store(bytes, Ordering::Relaxed);
        assert_eq!(window.is_large(), large, "{bytes}");
    }
}

#[test]
fn what_is_fetched_is_what_the_file_has_and_nothing_else_is_held() {
    let mut draft = Draft::new();
    draft.builder.grow(REACH).unwrap();
    let bytes: Vec<u8> = (0..REACH - 8192).map(|i| (i % 251) as u8).collect();
    draft.file().write_at(&bytes, 8192).unwrap();
    let window = window_of(&draft, &draft.memory, REACH);
    let mut held = 0;
    // The first takes more than one read; the third lies around the second.
    for (position, len, new) in [
        (8192, 90_000, 90_000),
        (110_000, 200, 200),
        (108_000, 4008, 3808),
        (98_184, 8, 0),
        (98_184, 24, 16),
    ] {
        assert!(window.fetch(position, len), "{position}");
        assert!(in_window(&window, position, len) == in_file(&draft, position, len));
        held += new;
        assert_eq!(window.resident.load(Ordering::Relaxed), held, "what is held is not read again");
    }
    assert_eq!(ranges(&window), [(8192, 98_208), (108_000, 112_008)]);
    assert_eq!(in_window(&window, 98_208, 64), [0; 64], "these were not requested");
}

#[test]
fn a_piece_takes_as_many_reads_as_there_are_64_kib_in_it() {
    let mut draft = Draft::new();
    draft.builder.grow(REACH).unwrap();
    for (position, len, reads) in [(4096, 4096, 1), (4096, 64 << 10, 1), (8192, 100 << 10, 2)] {
        let faulty = FaultyStorage::over_memory(draft.memory.clone());
        let window = window_of(&draft, &faulty, REACH);
        let before = faulty.count(Call::Read);
        assert!(window.fetch(position, len) && window.fetch(position + 8, len - 8));
        assert_eq!(faulty.count(Call::Read) - before, reads, "{len}");
    }
}

#[test]
fn bytes_beyond_the_file_or_beyond_the_memory_are_not_there() {
    let draft = Draft::new();
    let longer = window_of(&draft, &draft.memory, REACH);
    for (position, len, there) in [(LEN - 8, 8, true), (LEN - 16, 24, false), (LEN, 8, false)] {
        assert_eq!(longer.fetch(position, len), there, "{position}");
        assert_eq!(longer.failed_at(position), !there, "{position}");
    }
    let window = window_of(&draft, &draft.memory, LEN / 2);
    for (position, len) in [(LEN / 2 - 8, 16), (LEN / 2, 8), (4096, u64::MAX), (4096, LEN)] {
        assert!(!window.fetch(position, len), "{position}");
        assert!(window.failed_at(position) && ranges(&window).is_empty());
    }
    assert!(window.fetch(LEN / 2 - 8, 8));
}

#[test]
fn the_last_word_of_a_file_is_read_and_behind_it_is_none() {
    let draft = Draft::new();
    let window = window_of(&draft, &draft.memory, REACH);
    assert_eq!([window.word(LEN - 8), window.word(LEN)], [0, UNREADABLE]);
    assert_eq!([LEN - 8, LEN].map(|at| window.failed_at(at)), [false, true]);
    // Twice, since a place with a zero word is read differently.
    assert_eq!(window.word(LEN - 8), 0);
    draft.file().write_at(&77u64.to_le_bytes(), LEN - 8).unwrap();
    assert_eq!(window.word(LEN - 8), 77);
}

#[test]
fn of_a_file_without_bytes_not_even_the_first_word_is_read() {
    // A place that was zero before, as the first one is for every window.
    let draft = Draft::new();
    let file = draft.memory.open(&draft.dir.join("empty"), OpenMode::CreateNew(0o600)).unwrap();
    let memory = file.private_memory(LEN).unwrap();
    let window = Window::new(file, memory, draft.builder.salt());
    assert_eq!((window.word(0), window.failed_at(0)), (UNREADABLE, true));
}

#[test]
fn a_word_is_what_the_file_has_there_until_it_is_held() {
    let mut draft = Draft::new();
    let first = draft.data(0, 0, b"\x01a");
    let (window, faulty) = on_disk(&draft);
    assert_eq!(window.word(first), word_in_file(&draft, first));
    let end = draft.end();
    assert!(window.fetch(first, end - first) && window.fetch(end + 800, 80));
    assert_eq!(window.word(end), 0, "what follows that which is held is not held");
    let next = draft.data(0, 1, b"\x01b");
    assert_eq!((next, window.word(end)), (end, word_in_file(&draft, end)));
    // Held bytes are available after the disk is gone: in the first run, and in others.
    let (one, other) = (window.word(first), window.word(end + 808));
    faulty.spoil(&draft.path(), 0..LEN).unwrap();
    assert_eq!((window.word(first), window.word(end + 808)), (one, other));
    assert_eq!((window.word(end + 792), window.failed_at(end + 792)), (UNREADABLE, true));
}

#[test]
fn who_waits_for_a_word_is_not_told_of_a_bad_place_behind_it() {
    let mut draft = Draft::new();
    let (window, faulty) = on_disk(&draft);
    let end = draft.end();
    assert_eq!(window.word(end), 0);
    faulty.spoil(&draft.path(), end + 8..end + 16).unwrap();
    assert_eq!(window.word(end), 0);
    faulty.heal();
    let next = draft.data(0, 0, b"\x01a");
    assert_eq!(window.word(next), word_in_file(&draft, next));
}

#[test]
fn a_word_before_a_bad_place_in_the_next_page_is_read() {
    let mut draft = Draft::new();
    draft.data(0, 0, &[1; 700]);
    let position = draft.data(0, 1, &[2; 2 * PAGE as usize]);
    let (window, faulty) = on_disk(&draft);
    let bad = position.next_multiple_of(PAGE);
    faulty.spoil(&draft.path(), bad..bad + 8).unwrap();
    assert_eq!(window.word(position), word_in_file(&draft, position));
    assert!(!window.failed_at(position) && window.word(bad) == UNREADABLE);
    assert!(!window.fetch(position, bad + 8 - position) && window.failed_at(position));
    assert!(window.fetch(position, bad - position));
}

#[test]
fn blocks_that_came_along_whole_are_kept_and_one_that_is_cut_off_is_not() {
    let mut draft = Draft::new();
    let first = draft.data(0, 0, &[1; 100]);
    draft.data(0, 1, &[2; 100]);
    let cut_off = draft.data(0, 2, &[3; 5000]);
    let (window, faulty) = on_disk(&draft);
    assert_eq!(window.word(first), word_in_file(&draft, first));
    assert_eq!(ranges(&window), [(first, cut_off)]);
    faulty.spoil(&draft.path(), 0..LEN).unwrap();
    assert!(window.fetch(first, cut_off - first));
    assert_eq!(in_window(&window, first, cut_off - first), in_file(&draft, first, cut_off - first));
}

#[test]
fn of_blocks_that_reach_beyond_the_memory_none_is_kept() {
    let mut draft = Draft::new();
    draft.builder.leave(LEN / 2 - 200 - draft.end());
    let (inside, across) = (draft.data(0, 0, &[1; 100]), draft.data(0, 1, &[2; 100]));
    let window = window_of(&draft, &draft.memory, LEN / 2);
    for position in [inside, across] {
        assert_eq!(window.word(position), word_in_file(&draft, position));
        assert!(ranges(&window).is_empty());
    }
    assert!(window.fetch(inside, across - inside), "it can be asked for on its own");
}

#[test]
fn who_goes_on_is_read_ahead_for_more_each_time_up_to_64_kib() {
    let mut draft = Draft::new();
    draft.builder.grow(REACH).unwrap();
    let ahead = |len| {
        let window = window_of(&draft, &draft.memory, len);
        let at = |i: u64| draft.end() + i * 8;
        (0..7).map(|i| (window.word(at(i)), window.held().ahead >> 10).1).collect::<Vec<_>>()
    };
    assert_eq!(ahead(REACH), [4, 8, 16, 32, 64, 64, 64]);
    assert_eq!(ahead(16 << 10), [4, 8, 16, 16, 16, 16, 16], "of a small one what there is");
}
