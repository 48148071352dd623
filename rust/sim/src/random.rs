//! Random numbers from a seed: splitmix64, the same on every machine.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        finish(self.0)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// True with a probability of `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        (self.below(1 << 30) as f64) < share * f64::from(1 << 30)
    }

    /// Draw one of several.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

/// Mix two numbers, so that a change of either changes the whole result.
pub fn mix(a: u64, b: u64) -> u64 {
    finish((a.rotate_left(23) ^ b).wrapping_add(STEP))
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
