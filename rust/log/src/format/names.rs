//! Names of topics and of files.
//!
//! A topic's name becomes part of a path, so it is checked before any path is made. It has 1 to 249
//! of `[A-Za-z0-9._-]`, and is neither `.` nor `..`; Kafka accepts the same. File names that are
//! not exactly as this module writes them are not falaj's, and it leaves them alone.

use std::fmt::Write as _;

/// Longest name of a topic or log, bytes.
pub const MAX_NAME: usize = 249;

/// Most bytes of a log's name in the name of its directory. With the generation and an ending it
/// must stay within the 255 bytes that file systems allow.
pub const MAX_IN_DIR: usize = 200;

/// Say what is wrong with a name, `None` when it is valid.
pub fn complaint(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("a name needs at least one character".into());
    }
    if name.len() > MAX_NAME {
        return Some(format!(
            "a name has at most {MAX_NAME} characters, this one has {}",
            name.len()
        ));
    }
    if name == "." || name == ".." {
        return Some("`.` and `..` are directories, not names".into());
    }
    let strange = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c)))?;
    Some(format!(
        "{strange:?} is not among the letters, digits, `.`, `_` and `-` that a name may hold"
    ))
}

/// Write a random id as 32 hexadecimal digits.
pub fn hex(id: &[u8; 16]) -> String {
    id.iter().fold(String::with_capacity(32), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Read what [`hex`] wrote.
pub fn unhex(text: &str) -> Option<[u8; 16]> {
    let canonical =
        text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    canonical.then(|| u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)).flatten()
}

/// Return the directory of a log: `<name>@<generation>`, with the first [`MAX_IN_DIR`] bytes of a
/// long name. The generation identifies the log; the name is for people.
pub fn log_dir(name: &str, generation: &[u8; 16]) -> String {
    let shown = name.get(..MAX_IN_DIR).unwrap_or(name);
    format!("{shown}@{}", hex(generation))
}

/// Split the name of a log's directory into the shown part of the log's name, and the generation.
pub fn parse_log_dir(dir: &str) -> Option<(&str, [u8; 16])> {
    let (name, generation) = dir.rsplit_once('@')?;
    complaint(name).is_none().then(|| unhex(generation).map(|id| (name, id))).flatten()
}

/// Return the file name of a segment: twenty digits and `.log`.
pub fn segment(sequence: u64) -> String {
    numbered(sequence, ".log")
}

/// Return the file name of a segment's index.
pub fn index(sequence: u64) -> String {
    numbered(sequence, ".idx")
}

/// Write twenty digits and an ending. `format!` would take longer than opening the file from
/// memory.
fn numbered(sequence: u64, ending: &str) -> String {
    let mut name = *b"00000000000000000000";
    let mut left = sequence;
    for digit in name.iter_mut().rev() {
        *digit += (left % 10) as u8;
        left /= 10;
    }
    [std::str::from_utf8(&name).unwrap_or_default(), ending].concat()
}

/// Read the sequence from a segment's file name; `None` for any other file.
pub fn parse_segment(file: &str) -> Option<u64> {
    parse_numbered(file, ".log")
}

/// Read the sequence from an index's file name; `None` for any other file.
pub fn parse_index(file: &str) -> Option<u64> {
    parse_numbered(file, ".idx")
}

fn parse_numbered(file: &str, ending: &str) -> Option<u64> {
    let digits = file.strip_suffix(ending)?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// Return the file name of a segment that the process in a slot prepared.
pub fn prepared(slot: u32) -> String {
    format!("next.{slot}.tmp")
}

/// Return the file name of an index that the process in a slot rebuilds.
pub fn reindexed(slot: u32) -> String {
    format!("reindex.{slot}.tmp")
}

/// Name of the file whose flock a compacting process holds; it exists once a compaction ran.
pub const COMPACTION_LOCK: &str = "lock.compact";

/// Name of the segment that the owner of that lock writes.
pub const COMPACTED: &str = "compact.tmp";

/// Return true for exactly the names that falaj gives to files in a log's directory.
pub fn is_log_file(name: &str) -> bool {
    let whole = name.strip_suffix(".tmp").unwrap_or(name);
    ["control", "lock", "lock.append", "lock.sync", COMPACTION_LOCK].contains(&whole)
        || ["supersede.tmp", COMPACTED].contains(&name)
        || parse_segment(whole).is_some()
        || parse_index(whole).is_some()
        || is_prepared(name)
}

/// Return true for `next.<slot>.tmp` or `reindex.<slot>.tmp`, with the slot written as falaj writes
/// it.
fn is_prepared(name: &str) -> bool {
    [("next.", prepared as fn(u32) -> String), ("reindex.", reindexed)].into_iter().any(
        |(prefix, written)| {
            let slot = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(".tmp"));
            slot.is_some_and(|digits| digits.parse().is_ok_and(|slot| written(slot) == name))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segments_file_has_twenty_digits() {
        for sequence in [0, 7, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(segment(sequence), format!("{sequence:020}.log"));
            assert_eq!(parse_segment(&segment(sequence)), Some(sequence));
            assert_eq!(index(sequence), format!("{sequence:020}.idx"));
        }
    }

    #[test]
    fn names_that_could_leave_the_store_are_refused() {
        let long = "x".repeat(250);
        for bad in ["", ".", "..", "a/b", "a\0b", "a b", "ä", "a\\b", "a@b", "a\n", &long] {
            assert!(complaint(bad).is_some(), "{bad:?}");
        }
        for good in ["a", "...", "-", "A.b_c-9", &long[..249]] {
            assert_eq!(complaint(good), None, "{good:?}");
        }
    }

    #[test]
    fn only_names_exactly_as_falaj_writes_them_are_its_own() {
        let segment = segment(7);
        let plain = ["control", "lock", "lock.append", "lock.sync", "control.tmp", "supersede.tmp"];
        for ours in
            plain.into_iter().chain(["next.0.tmp", "next.1023.tmp", "reindex.7.tmp", &segment])
        {
            assert!(is_log_file(ours), "{ours}");
        }
        for other in
            ["Control", "next.01.tmp", "next.x.tmp", "7.log", "notes.txt", "quarantine", ".tmp"]
        {
            assert!(!is_log_file(other), "{other}");
        }
    }

    #[test]
    fn file_names_come_back_and_strange_ones_are_left_alone() {
        assert_eq!(parse_segment(&segment(u64::MAX)), Some(u64::MAX));
        assert_eq!(parse_index(&index(5)), Some(5));
        for strange in [
            "5.log",
            "x0000000000000000005.log",
            "00000000000000000005.idx",
            "99999999999999999999.log",
        ] {
            assert_eq!(parse_segment(strange), None, "{strange}");
        }
        let id = [0xa5; 16];
        assert_eq!(parse_log_dir(&log_dir("a.b", &id)), Some(("a.b", id)));
        assert_eq!(parse_log_dir("a@A5"), None);
        assert!(log_dir(&"x".repeat(MAX_NAME), &id).len() + ".deleted".len() <= 255);
        assert_eq!(unhex(&hex(&id).to_uppercase()), None);
    }

    #[test]
    fn an_id_is_32_lower_case_digits_in_the_order_of_its_bytes() {
        let id = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xab, 0xcd, 0xef, 0xf0, 0x5a, 0xff];
        let text = "00010203040506070809abcdeff05aff";
        assert_eq!(hex(&id), text);
        assert_eq!(unhex(text), Some(id));
        let strange = ["", "ab", &text[1..], &format!("{text}0"), &text.replace('e', "g")];
        for strange in strange.into_iter().chain(["+0010203040506070809abcdeff05aff"]) {
            assert_eq!(unhex(strange), None, "{strange:?}");
        }
    }

    #[test]
    fn a_logs_directory_shows_200_bytes_of_its_name_and_its_generation() {
        let id = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xab, 0xcd, 0xef, 0xf0, 0x5a, 0xff];
        let digits = "00010203040506070809abcdeff05aff";
        for (len, shown) in [(1, 1), (199, 199), (200, 200), (201, 200), (249, 200)] {
            let dir = log_dir(&"x".repeat(len), &id);
            assert_eq!(dir, format!("{}@{digits}", "x".repeat(shown)), "{len} bytes");
            assert_eq!(parse_log_dir(&dir), Some((&*"x".repeat(shown), id)));
        }
        let endless = "x".repeat(250);
        for name in ["", "..", "a b", "a@b", &endless] {
            assert_eq!(
                parse_log_dir(&format!("{name}@{digits}")),
                None,
                "no log is called {name:?}"
            );
        }
        for dir in [digits, "a", &format!("a@{digits}.deleted")] {
            assert_eq!(parse_log_dir(dir), None, "{dir}");
        }
    }

    #[test]
    fn a_number_of_another_length_or_with_a_sign_names_no_segment() {
        for digits in ["0000000000000000007", "000000000000000000007", "+0000000000000000007", ""] {
            assert_eq!(parse_segment(&format!("{digits}.log")), None, "{digits:?}");
            assert_eq!(parse_index(&format!("{digits}.idx")), None, "{digits:?}");
        }
        assert_eq!(parse_segment("00000000000000000700.log"), Some(700));
        assert_eq!(parse_index("00000000000000000700.idx"), Some(700));
        assert_eq!(parse_index("00000000000000000700.log"), None);
    }

    #[test]
    fn each_file_that_the_format_lists_is_a_logs_own() {
        assert_eq!([prepared(0), prepared(1023)], ["next.0.tmp", "next.1023.tmp"]);
        assert_eq!([reindexed(0), reindexed(1023)], ["reindex.0.tmp", "reindex.1023.tmp"]);
        for ours in ["00000000000000000007.idx", "lock.compact", "compact.tmp", "reindex.0.tmp"] {
            assert!(is_log_file(ours), "{ours}");
        }
        for other in ["compact", "supersede", "next.+1.tmp", "next.1", "reindex.01.tmp", "7.idx"] {
            assert!(!is_log_file(other), "{other}");
        }
    }
}
