//! Forged checksums: made right again after the harm, so that the checks behind them are reached.
//!
//! Written from `docs/FORMAT.md`. A process that can write the files can do this, so no answer
//! counts as right. Calls need only end soon, without a panic, and with a message in each error.

use falaj::internals::format::checksum::{crc32, crc32_from, seed};
use falaj::internals::format::crc32c::crc32c_from;
use falaj::internals::format::segment::{HEADER_LEN, MARK_LEN, MARKS};
use falaj::internals::format::{block, consumer, index, queue};

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(word)
}

fn put_crc(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Salt of a segment or an index.
pub fn salt_of(bytes: &[u8]) -> Option<u64> {
    (bytes.len() >= 64).then(|| number(bytes, 40, 8))
}

pub fn segment_header(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_LEN {
        put_crc(bytes, 508, crc32(&bytes[..508]));
    }
}

pub fn marks(bytes: &mut [u8], salt: u64) {
    for at in MARKS {
        let at = at as usize;
        if bytes.len() >= at + MARK_LEN {
            put_crc(bytes, at + 60, crc32_from(seed(salt), &bytes[at..at + 60]));
        }
    }
}

/// Make the checksums and the tag of the block at a position right; false if that is impossible.
pub fn block(bytes: &mut [u8], position: usize, salt: u64) -> bool {
    if position + block::HEADER_LEN > bytes.len() {
        return false;
    }
    let word = number(bytes, position, 8);
    let tag = (salt ^ position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let word = word & 0xff_ffff_ffff | tag << 40;
    bytes[position..position + 8].copy_from_slice(&word.to_le_bytes());
    let flags = number(bytes, position + 30, 2) as u16;
    let header_len = block::BlockHeader::len_for(flags);
    let end = position + (word as u32 as usize);
    if position + header_len > bytes.len() {
        return false;
    }
    if position + header_len <= end && end <= bytes.len() {
        put_crc(bytes, position + 8, crc32(&bytes[position + header_len..end]));
    }
    put_crc(bytes, position + 12, (position / 8) as u32);
    let crc = crc32c_from(seed(salt), &bytes[position..position + header_len]);
    put_crc(bytes, position + 12, crc);
    true
}

/// Positions of a segment's blocks, as far as their lengths lead.
pub fn blocks(bytes: &[u8]) -> Vec<usize> {
    let (mut found, mut position) = (Vec::new(), falaj::internals::format::FIRST_BLOCK as usize);
    while position + block::HEADER_LEN <= bytes.len() {
        let len = number(bytes, position, 4) as usize;
        if number(bytes, position, 8) == 0 || len < block::HEADER_LEN {
            break;
        }
        found.push(position);
        position += len.next_multiple_of(8);
    }
    found
}

pub fn index(bytes: &mut [u8]) {
    let Some(salt) = salt_of(bytes) else { return };
    put_crc(bytes, 60, crc32(&bytes[..60]));
    for entry in bytes[index::HEADER_LEN..].chunks_exact_mut(index::ENTRY_LEN) {
        if entry.iter().any(|byte| *byte != 0) {
            put_crc(entry, 0, crc32_from(seed(salt), &entry[4..]));
        }
    }
}

/// The first sector of a control or wake page.
pub fn page(bytes: &mut [u8]) {
    if bytes.len() >= 64 {
        put_crc(bytes, 60, crc32(&bytes[..60]));
    }
}

/// The checksum at the end of a JSON file.
pub fn settings(bytes: &mut Vec<u8>) {
    const LAST: &[u8] = b",\"checksum\":\"";
    let found = bytes.windows(LAST.len()).rposition(|window| window == LAST);
    let Some(at) = found else { return };
    let crc = crc32(&bytes[..at]);
    bytes.truncate(at);
    bytes.extend(LAST);
    bytes.extend(format!("{crc:08x}\"}}\n").bytes());
}

/// The checksum of a lock file's line.
pub fn lock_file(bytes: &mut [u8]) {
    if bytes.len() == 128 {
        let crc = format!("{:08x}", crc32(&bytes[..118]));
        bytes[118] = b' ';
        bytes[119..127].copy_from_slice(crc.as_bytes());
        bytes[127] = b'\n';
    }
}

/// The header of a group's file, its entries' subjects, and their cursors.
pub fn consumer(bytes: &mut [u8]) {
    page(bytes);
    let entries = bytes.get_mut(consumer::HEAD_LEN as usize..).unwrap_or_default();
    for (i, sector) in entries.chunks_exact_mut(consumer::SECTOR as usize).enumerate() {
        let len = if i % 3 == 0 { 280 } else { 100 };
        if sector[..len].iter().any(|byte| *byte != 0) {
            put_crc(sector, len, crc32(&sector[..len]));
        }
    }
}

/// The number of slots that a queue's file claims, if it is a possible one.
pub fn places(bytes: &[u8]) -> u64 {
    let told = if bytes.len() < queue::HEADER_LEN { 0 } else { number(bytes, 40, 8) };
    told.clamp(queue::CAPACITY_MIN, 1 << 20).next_power_of_two()
}

/// The header of a queue's file, its ends, and its entries, for the offsets that the ends give
/// them.
pub fn queue(bytes: &mut [u8]) {
    if bytes.len() < 4096 {
        return;
    }
    put_crc(bytes, 508, crc32(&bytes[..508]));
    let id = number(bytes, 32, 8);
    let sum = |of: u64, words: &[u8]| {
        let all = [&id.to_le_bytes()[..], &of.to_le_bytes(), words].concat();
        crc32(&all)
    };
    let mut newest = (0, 0);
    for at in queue::at::ENDS.map(|at| at as usize) {
        let crc = sum(u64::MAX, &bytes[at..at + 56]);
        bytes[at + 56..at + 64].copy_from_slice(&u64::from(crc).to_le_bytes());
        newest = newest.max((number(bytes, at, 8), number(bytes, at + 8, 8)));
    }
    let parts = queue::Parts { capacity: places(bytes), ordered: true };
    let (floor, len) = (newest.1, queue::VERSION_LEN as usize);
    for offset in (0..parts.capacity).map(|i| floor.wrapping_add(i)) {
        let position = parts.entry(offset) as usize;
        for version in [position, position + len] {
            let Some(words) = bytes.get_mut(version..version + len) else { continue };
            if words.iter().any(|byte| *byte != 0) {
                words[28..].fill(0);
                let crc = sum(offset, words);
                put_crc(words, 28, crc);
            }
        }
    }
}
