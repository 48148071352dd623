//! Numbers that look random, and are the same for a seed on every machine and in every version.

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begin with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of one case of a campaign: cases can be replayed alone.
    pub fn of_case(seed: u64, case: u64) -> Self {
        let mut random = Self(seed ^ case.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Some bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// A number of the kinds that hostile files hold: small, huge, at the edge of a type, or a
    /// neighbour of `near`.
    pub fn edgy(&mut self, near: u64) -> u64 {
        match self.below(8) {
            0 => self.below(8),
            1 => near.wrapping_add(self.below(17)).wrapping_sub(8),
            2 => near.wrapping_mul(2),
            3 => (1 << self.below(64)) - self.below(2),
            4 => u64::from(u32::MAX) + self.below(3) - 1,
            5 => u64::MAX - self.below(9),
            6 => 1 << 63,
            _ => self.next(),
        }
    }
}

/// Mix a number into a sum. Equal sums mean equal numbers in equal order, as far as 64 bits can
/// tell.
pub fn mix(sum: u64, value: u64) -> u64 {
    Random(sum.rotate_left(25) ^ value).next()
}
