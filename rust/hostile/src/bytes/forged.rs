//! Forged files of a store: interesting numbers in them, and checksums made right again.
//!
//! Owns the changes of logs' files and the store's own; `state` owns those of the files beside the
//! logs.

use falaj::internals::storage::Storage;

use super::harm::{Harm, of_kind, put};
use super::{forge, make};
use crate::example::{Example, read};
use crate::random::Random;

/// Forge a file as an attacker who knows the format would.
pub fn forge_one(disk: &dyn Storage, example: &Example, random: &mut Random) -> Harm {
    let kind = *random
        .pick(&[".log", ".log", ".log", ".idx", "control", ".json", "presence", "wake", "slots/0"]);
    let path = of_kind(example, random, kind);
    if disk.stat(path).map_or(0, |stat| stat.len) == 0 {
        return Harm::new("nothing forged in", path, "");
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
    Harm::new("forged", path, &format!(" {what} in"))
}

/// Put an interesting number into a word, or a half or a fourth of one, behind `from`.
pub fn edge_word(bytes: &mut [u8], random: &mut Random, from: usize, align: usize) {
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
        // The same block a second time, or a later one earlier.
        _ => {
            let from = *random.pick(&blocks);
            let some = 512.min(bytes.len() - at.max(from));
            bytes.copy_within(from..from + some, at);
        }
    }
    forge::block(bytes, at, salt);
    "block"
}
