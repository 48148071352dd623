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

fn get_long(bytes: &[u8], at: &mut usize) -> Option<u64> {
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
        assert_eq!(zigzag(-1), 1);
    }
}
