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

/// The encoding of a length, in a register: what stands before a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LengthPrefix {
    word: u64,
    len: usize,
}

impl LengthPrefix {
    /// Encode a length; `None` for one that takes more than eight bytes, which no memory has.
    #[inline(always)]
    pub fn of(value: usize) -> Option<Self> {
        if value < 0x80 {
            return Some(Self { word: value as u64, len: 1 });
        }
        Self::long(value as u64)
    }

    #[inline(never)]
    fn long(mut value: u64) -> Option<Self> {
        let mut lead = Self::default();
        while lead.len < 8 {
            let more = if value >= 0x80 { 0x80 } else { 0 };
            lead.word |= (value & 0x7f | more) << (8 * lead.len);
            lead.len += 1;
            value >>= 7;
            if more == 0 {
                return Some(lead);
            }
        }
        None
    }

    /// How many bytes it is.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// True for one that stands before nothing: a body that has its lengths in itself.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Its bytes, lowest first; those behind them are zero.
    #[inline(always)]
    pub fn word(self) -> u64 {
        self.word
    }

    /// Use its bytes.
    #[inline(always)]
    pub fn with_bytes<T>(self, use_them: impl FnOnce(&[u8]) -> T) -> T {
        use_them(&self.word.to_le_bytes()[..self.len.min(8)])
    }
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
    // Mostly it ends within the next eight bytes, which are looked at together.
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
    fn a_length_in_a_register_has_the_bytes_that_are_stored() {
        for value in [0, 1, 0x7f, 0x80, 300, 0x3fff, 0x4000, u32::MAX as usize, (1 << 56) - 1] {
            let mut stored = Vec::new();
            put(&mut stored, value as u64);
            let lead = LengthPrefix::of(value).unwrap();
            lead.with_bytes(|bytes| assert_eq!(bytes, stored, "{value}"));
            assert_eq!((lead.len(), lead.is_empty()), (stored.len(), false));
        }
        assert_eq!(LengthPrefix::of(1 << 56), None);
        assert!(LengthPrefix::default().is_empty());
    }

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
            if let Some(lead) = LengthPrefix::of(value as usize) {
                let mut word = bytes;
                word.resize(8, 0);
                assert_eq!(lead.word().to_le_bytes().as_slice(), word, "{value:#x}");
            }
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
