//! Variable-length integers: seven bits a byte, lowest first, the top bit says "more" (LEB128).
//!
//! Signed numbers are zigzag-folded first. A `u64` takes at most ten bytes; longer or overflowing
//! forms are refused, so that each number has bounded cost.

/// Longest encoding of a `u64`.
pub const MAX_LEN: usize = 10;

/// Append a number.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Put a number at `*at` in an array and move past it; `None` where there is no space.
#[inline(always)]
pub fn put_at(out: &mut [u8], at: &mut usize, mut value: u64) -> Option<()> {
    while value >= 0x80 {
        *out.get_mut(*at)? = value as u8 | 0x80;
        *at += 1;
        value >>= 7;
    }
    *out.get_mut(*at)? = value as u8;
    *at += 1;
    Some(())
}

/// Read a number at `*at` and move past it; `None` when it is cut off or does not fit 64 bits.
#[inline]
pub fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    get_long(bytes, at)
}

#[inline]
fn get_long(bytes: &[u8], at: &mut usize) -> Option<u64> {
    // Mostly it ends within the next eight bytes, which are read together.
    if let Some(eight) = bytes.get(*at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*eight);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            let len = ends.trailing_zeros() / 8 + 1;
            *at += len as usize;
            return Some(join(word & (u64::MAX >> (64 - 8 * len))));
        }
    }
    get_bytewise(bytes, at)
}

#[cold]
fn get_bytewise(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..MAX_LEN {
        let byte = *bytes.get(*at + i)?;
        let low = u64::from(byte & 0x7f);
        if i == MAX_LEN - 1 && byte > 1 {
            return None;
        }
        value |= low << (7 * i);
        if byte < 0x80 {
            *at += i + 1;
            return Some(value);
        }
    }
    None
}

/// Put the low seven bits of each byte next to each other.
fn join(word: u64) -> u64 {
    let by_7 = word & 0x7f7f_7f7f_7f7f_7f7f;
    let by_14 = (by_7 & 0x007f_007f_007f_007f) | ((by_7 & 0x7f00_7f00_7f00_7f00) >> 1);
    let by_28 = (by_14 & 0x0000_3fff_0000_3fff) | ((by_14 & 0x3fff_0000_3fff_0000) >> 2);
    (by_28 & 0x0fff_ffff) | ((by_28 & 0x0fff_ffff_0000_0000) >> 4)
}

/// Fold a signed number so that small magnitudes stay short.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undo [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::hex;

    #[test]
    fn every_length_comes_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                let mut at = 0;
                assert_eq!(get(&bytes, &mut at), Some(value));
                assert_eq!(at, bytes.len());
                assert!((0..bytes.len()).all(|cut| get(&bytes[..cut], &mut 0).is_none()));
                for other in [0x00, 0x7f, 0x80, 0xff] {
                    bytes.resize(at + 9, other);
                    let mut again = 0;
                    assert_eq!((get(&bytes, &mut again), again), (Some(value), at));
                    bytes.truncate(at);
                }
            }
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused() {
        assert_eq!(get(&[0xff; 10], &mut 0), None);
        let mut most = vec![0xff; 9];
        most.push(1);
        assert_eq!(get(&most, &mut 0), Some(u64::MAX));
        most[9] = 2;
        assert_eq!(get(&most, &mut 0), None);
    }

    #[test]
    fn signs_fold_and_unfold() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        let folded = [0, -1, 1, -2, 2, i64::MAX, i64::MIN].map(zigzag);
        assert_eq!(folded, [0, 1, 2, 3, 4, u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn a_number_is_seven_bits_a_byte_lowest_first() {
        for (value, digits) in [
            (0, "00"),
            (0x7f, "7f"),
            (0x80, "8001"),
            (300, "ac02"),
            (0x3fff, "ff7f"),
            (0x4000, "808001"),
            (0x00fe_dcba_9876_5432, "b2a8d9c3a997b77f"),
            (0x0123_4567_89ab_cdef, "ef9bafcdf8acd19101"),
            (0xfedc_ba98_7654_3210, "90e4d0b287d3aeeefe01"),
            (u64::MAX, "ffffffffffffffffff01"),
        ] {
            let (bytes, mut out) = (hex(digits), vec![0xaa]);
            put(&mut out, value);
            assert_eq!(out[1..], bytes, "{value:#x}");
            // At a place behind others, with and without more behind it.
            for more in [0, 9] {
                let (mut at, found) = (1, &[&out[..], &vec![0xee; more]].concat());
                assert_eq!((get(found, &mut at), at), (Some(value), out.len()), "{value:#x}");
            }
            // In an array that is just long enough, and in one that is not.
            let (mut array, mut at) = (vec![0xaa; out.len()], 1);
            assert_eq!(put_at(&mut array, &mut at, value), Some(()));
            assert_eq!((&array, at), (&out, out.len()), "{value:#x}");
            assert_eq!(put_at(&mut array[..at - 1], &mut 1, value), None, "{value:#x}");
        }
    }

    #[test]
    fn needless_zero_bytes_are_read_up_to_ten_bytes_in_all() {
        for len in 2..=10 {
            let mut bytes = vec![0x85];
            bytes.resize(len - 1, 0x80);
            bytes.push(0);
            for more in [0, 9] {
                let (mut at, found) = (0, [&bytes[..], &vec![1; more]].concat());
                assert_eq!((get(&found, &mut at), at), (Some(5), len));
            }
        }
        let eleven = [&[0x80; 10][..], &[0]].concat();
        assert_eq!(get(&eleven, &mut 0), None);
    }
}
