//! Numbers that look random, and are the same for the same seed.

/// SplitMix64: small, fast, and good enough to draw plans from.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream for a seed and a purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut mixed = Self(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed.next();
        mixed
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// One of `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `part` of `of` cases.
    pub fn chance(&mut self, part: u64, of: u64) -> bool {
        self.below(of) < part
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }

    /// From 1 to `2^bits`, each magnitude with the same probability.
    pub fn magnitude(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits + 1);
        1 + self.below(1 << bits)
    }
}
