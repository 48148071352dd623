//! One number for a place in a log.

/// The place of a byte in a log: segment sequence in the upper half, position divided by eight in
/// the lower. Addresses rise along the log, also across a cut: a segment that supersedes others has
/// a higher sequence than they have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(pub u64);

/// Positions in a segment are multiples of this.
pub const ALIGN: u64 = 8;

/// No segment reaches further than this: what 32 bits of eighths can name.
pub const MAX_POSITION: u64 = (u32::MAX as u64) * ALIGN;

/// Highest sequence of a segment that an address can name.
pub const MAX_SEQUENCE: u64 = u32::MAX as u64;

impl Address {
    /// Make the address of a position in the segment with this sequence.
    ///
    /// # Panics
    /// In debug builds, when the position is unaligned or either number is out of range; callers
    /// check that first.
    #[inline]
    pub fn new(sequence: u64, position: u64) -> Self {
        debug_assert!(position % ALIGN == 0 && position <= MAX_POSITION);
        debug_assert!(sequence <= MAX_SEQUENCE);
        Self((sequence << 32) | (position / ALIGN))
    }

    /// Return the address that many bytes further on. Beyond [`MAX_POSITION`] it is in another
    /// segment.
    #[inline(always)]
    #[must_use]
    pub fn behind(self, bytes: u64) -> Self {
        debug_assert!(bytes % ALIGN == 0);
        Self(self.0.wrapping_add(bytes / ALIGN))
    }

    /// Return the sequence of the segment.
    #[inline]
    pub fn sequence(self) -> u64 {
        self.0 >> 32
    }

    /// Return the position in the segment, bytes.
    #[inline]
    pub fn position(self) -> u64 {
        (self.0 & 0xffff_ffff) * ALIGN
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.sequence(), self.position())
    }
}

/// Round up to where the next block may start.
#[inline]
pub fn align(position: u64) -> u64 {
    (position + (ALIGN - 1)) & !(ALIGN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_rise_with_sequence_then_position() {
        let places = [(0, 4096), (0, MAX_POSITION), (1, 4096), (7, 8), (MAX_SEQUENCE, 0)];
        let addresses: Vec<_> = places.iter().map(|&(s, p)| Address::new(s, p)).collect();
        assert!(addresses.windows(2).all(|pair| pair[0] < pair[1]));
        for (address, place) in addresses.iter().zip(places) {
            assert_eq!((address.sequence(), address.position()), place);
        }
    }

    #[test]
    fn an_address_is_told_as_sequence_and_position() {
        assert_eq!(format!("{:?}", Address::new(3, 4104)), "3:4104");
    }

    #[test]
    fn blocks_start_at_the_next_multiple_of_eight() {
        let starts = [(0, 0), (1, 8), (7, 8), (8, 8), (9, 16), (4095, 4096)];
        for (position, start) in starts {
            assert_eq!(align(position), start);
        }
    }
}
