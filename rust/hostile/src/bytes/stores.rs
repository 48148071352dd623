//! Whole stores, harmed in one or several ways, half of the time with checksums made right again.
//!
//! | harm | what is asked for |
//! |---|---|
//! | one, honest | every answer is right, or an error |
//! | several, honest | every record that is served is the right one |
//! | forged | no panic, no hang, no memory without bound, no error that says nothing |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::format::names;
use falaj::log::Reading;
use falaj::storage::{Open, Storage};

use super::{forge, make};
use crate::answers::{Asking, Trust, Truths, ask_reader, ask_verify, truths};
use crate::campaign::{self, Outcome, Plan};
use crate::example::{Example, Size, VARIANTS, read};
use crate::random::Random;
use crate::writing::{mend, write_on};

const EXAMPLES: u64 = 20_261_122;

pub fn run(plan: &Plan, seed: u64) -> Result<bool, String> {
    let examples: Vec<_> = VARIANTS
        .iter()
        .map(|variant| {
            let example = Example::make(*variant, Size::Small, EXAMPLES);
            let truths = truths(&example);
            (example, truths)
        })
        .collect();
    campaign::run(plan, || (), |(), case| one(&examples, &mut Random::of_case(seed, case)))
}

fn one(examples: &[(Example, Truths)], random: &mut Random) -> Outcome {
    let (example, truths) = random.pick(examples);
    let disk: Arc<dyn Storage> = Arc::new(example.disk.restart());
    let forged = random.once_in(2);
    let harms = if random.once_in(2) { 1 } else { 1 + random.below(3) };
    let mut story = Vec::new();
    for _ in 0..harms {
        story.push(if forged {
            forge_one(&*disk, example, random)
        } else {
            harm(&*disk, example, random)
        });
    }
    // What looks like an older or a shorter log is one, as far as falaj can know.
    let single = harms == 1 && !story[0].starts_with("stale") && !story[0].starts_with("missing");
    let trust = match (forged, single) {
        (true, _) => Trust::Nothing,
        (false, true) => Trust::All,
        (false, false) => Trust::Values,
    };
    let topics: Vec<&str> = example.logs.keys().map(String::as_str).collect();
    let asking = Asking {
        truths,
        topics: &topics,
        reading: *random.pick(&[Reading::Map, Reading::Map, Reading::Pread]),
        stride: 29,
        phase: random.next(),
        may_be_cut: example.variant.killed,
        trust,
        mended: false,
        beside: None,
    };
    let asked = ask(&disk, example, &asking, random);
    let word = match trust {
        Trust::Nothing => "forged",
        Trust::Values => "several",
        Trust::All => "one",
    };
    asked
        .map(|found| format!("{word}, {found}"))
        .map_err(|what| format!("{} {word}: {}: {what}", example.variant.name(), story.join("; ")))
}

fn ask(
    disk: &Arc<dyn Storage>,
    example: &Example,
    asking: &Asking<'_>,
    random: &mut Random,
) -> Result<&'static str, String> {
    let told = ask_reader(disk, asking)?;
    ask_verify(disk, &told, None, asking)?;
    let mended = random.once_in(3);
    if mended {
        mend(disk, example, asking)?;
    }
    write_on(disk, example, &Asking { mended, ..*asking }, !told.is_same())?;
    Ok(if told.is_same() { "harmless" } else { "detected" })
}

fn put(disk: &dyn Storage, path: &Path, bytes: &[u8]) {
    let _ = disk.unlink(path);
    let file = disk.open(path, Open::CreateNew(0o600)).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.allocate(bytes.len() as u64).unwrap();
}

fn any_file<'a>(example: &'a Example, random: &mut Random) -> &'a Path {
    // Most bytes are those of segments; most kinds of files are not.
    loop {
        let (path, len) = random.pick(&example.files);
        if *len > 0 {
            return path;
        }
    }
}

fn of_kind<'a>(example: &'a Example, random: &mut Random, end: &str) -> &'a Path {
    let all: Vec<_> =
        example.files.iter().filter(|(path, _)| path.to_string_lossy().ends_with(end)).collect();
    &random.pick(&all).0
}

/// As media, strangers and careless copies do it.
fn harm(disk: &dyn Storage, example: &Example, random: &mut Random) -> String {
    let path = if random.once_in(2) {
        of_kind(example, random, ".log")
    } else {
        any_file(example, random)
    };
    let Ok(stat) = disk.stat(path) else { return format!("missing {}", path.display()) };
    if stat.len == 0 {
        return format!("empty {}", path.display());
    }
    let mut bytes = read(disk, path);
    let len = bytes.len() as u64;
    let content = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64 + 1;
    let at = random.below(content) as usize;
    let what = match random.below(11) {
        0 => {
            bytes[at] ^= 1 << random.below(8);
            "flip"
        }
        1 => {
            let end = bytes.len().min(at + 1 + random.below(600) as usize);
            let noise = random.bytes(end - at);
            bytes[at..end].copy_from_slice(&noise);
            "noise"
        }
        2 => {
            let sector = at / 512 * 512;
            let end = bytes.len().min(sector + 512 * (1 + random.below(12) as usize));
            bytes[sector..end].fill(0);
            "hole"
        }
        3 => {
            bytes.truncate(at);
            "truncated"
        }
        4 => {
            bytes.extend(random.bytes(1 + at % 5000));
            "longer"
        }
        5 => swap_sectors(&mut bytes, random, at),
        6 => {
            bytes = random.bytes(len as usize);
            "foreign"
        }
        7 => {
            disk.unlink(path).unwrap();
            return format!("missing {}", path.display());
        }
        8 | 9 => return copy_over(disk, example, random, path),
        _ => {
            // What was written in the second half never arrived.
            bytes[at..].fill(0);
            "stale"
        }
    };
    put(disk, path, &bytes);
    // Without its marks a segment's damage looks like a torn end: that is harm in two places.
    let marks = path.extension().is_some_and(|end| end == "log") && at < 4096;
    let what = if marks && what != "flip" { format!("stale: {what}") } else { what.into() };
    format!("{what} at {at} of {}", path.display())
}

fn swap_sectors(bytes: &mut [u8], random: &mut Random, at: usize) -> &'static str {
    let sectors = bytes.len() / 512;
    if sectors > 1 {
        // Not the first page, which holds the marks.
        let b = 8.min(sectors - 1) + random.below((sectors - 8.min(sectors - 1)) as u64) as usize;
        let a = at / 512 % sectors;
        for i in 0..512 {
            bytes.swap(a * 512 + i, b * 512 + i);
        }
    }
    "swapped"
}

/// Another file of the same kind in a file's place, or beside it under the next number.
fn copy_over(disk: &dyn Storage, example: &Example, random: &mut Random, path: &Path) -> String {
    let end =
        path.extension().map_or("control".into(), |end| format!(".{}", end.to_string_lossy()));
    let end =
        if end == ".json" { path.file_name().unwrap().to_string_lossy().into_owned() } else { end };
    let other = of_kind(example, random, &end).to_path_buf();
    let Ok(stat) = disk.stat(&other) else { return format!("missing {}", other.display()) };
    if stat.len == 0 {
        return format!("empty {}", other.display());
    }
    let bytes = read(disk, &other);
    let target: PathBuf = match (random.once_in(2), end.as_str()) {
        (true, ".log") => {
            let name = path.file_name().unwrap().to_string_lossy();
            let next = names::parse_segment(&name).unwrap() + 1 + random.below(2);
            path.with_file_name(names::segment(next))
        }
        _ => path.to_path_buf(),
    };
    let stale = if target == path { "" } else { "stale: " };
    put(disk, &target, &bytes);
    format!("{stale}{} over {}", other.display(), target.display())
}

/// As somebody does it who knows the format.
fn forge_one(disk: &dyn Storage, example: &Example, random: &mut Random) -> String {
    let kind = *random
        .pick(&[".log", ".log", ".log", ".idx", "control", ".json", "presence", "wake", "slots/0"]);
    let path = of_kind(example, random, kind);
    if disk.stat(path).map_or(0, |stat| stat.len) == 0 {
        return format!("nothing to forge in {}", path.display());
    }
    let mut bytes = read(disk, path);
    let what = match kind {
        ".log" => forge_segment(&mut bytes, random),
        ".idx" => {
            for _ in 0..1 + random.below(4) {
                edge_word(&mut bytes, random, 0, 8);
            }
            forge::index(&mut bytes);
            "index"
        }
        "control" | "wake" => {
            for _ in 0..1 + random.below(3) {
                let at = if random.once_in(4) { 0 } else { 64 };
                edge_word(&mut bytes, random, at, 8);
            }
            forge::page(&mut bytes);
            "page"
        }
        ".json" => {
            make::damage(random, &mut bytes);
            forge::settings(&mut bytes);
            "settings"
        }
        _ => {
            let noise = random.below(118) as usize;
            bytes[noise] = b"0123456789 abcdef-"[random.below(18) as usize];
            forge::lock_file(&mut bytes);
            "lock file"
        }
    };
    put(disk, path, &bytes);
    format!("forged {what} in {}", path.display())
}

/// Put an interesting number into a word, a half or a fourth of one, behind `from`.
fn edge_word(bytes: &mut [u8], random: &mut Random, from: usize, align: usize) {
    let room = (bytes.len().min(from + 1024) - from) / align;
    if room == 0 {
        return;
    }
    let at = from + random.below(room as u64) as usize * align;
    let mut word = [0; 8];
    let end = bytes.len().min(at + 8);
    word[..end - at].copy_from_slice(&bytes[at..end]);
    let new = random.edgy(u64::from_le_bytes(word)).to_le_bytes();
    let some = (*random.pick(&[2, 4, 8])).min(end - at);
    bytes[at..at + some].copy_from_slice(&new[..some]);
}

fn forge_segment(bytes: &mut [u8], random: &mut Random) -> &'static str {
    let Some(salt) = forge::salt_of(bytes) else { return "nothing" };
    match random.below(4) {
        0 => {
            let at = 8 * (1 + random.below(11) as usize);
            edge_word(&mut bytes[at..at + 8], random, 0, 4);
            forge::segment_header(bytes);
            return "segment header";
        }
        1 => {
            let at = *random.pick(&[512, 1024]) + 8 * (1 + random.below(5) as usize);
            edge_word(&mut bytes[at..at + 8], random, 0, 4);
            forge::marks(bytes, salt);
            return "mark";
        }
        _ => {}
    }
    let blocks = forge::blocks(bytes);
    if blocks.is_empty() {
        return "nothing";
    }
    let at = *random.pick(&blocks);
    match random.below(6) {
        // Length and kind.
        0 => edge_word(&mut bytes[at..at + 5], random, 0, 1),
        // Offset, count, time, flags.
        1 | 2 => edge_word(&mut bytes[at + 16..at + 32], random, 0, 2),
        // Extensions, or the beginning of the body.
        3 => {
            let end = bytes.len().min(at + 64);
            edge_word(&mut bytes[at + 32..end], random, 0, 4);
        }
        4 => {
            let end = bytes.len().min(at + 400);
            let mut body = bytes[at + 32..end].to_vec();
            let len = body.len();
            make::damage(random, &mut body);
            body.resize(len, 0);
            bytes[at + 32..end].copy_from_slice(&body);
        }
        // The same block once more, or a later one earlier.
        _ => {
            let from = *random.pick(&blocks);
            let some = 512.min(bytes.len() - at.max(from));
            bytes.copy_within(from..from + some, at);
        }
    }
    forge::block(bytes, at, salt);
    "block"
}
