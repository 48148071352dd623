//! Two slots for one value, written in turns, so that a torn write leaves the other one whole.
//!
//! Owns the rule of durable marks, committed offsets, and the ends and entries of queues. A version
//! has a serial and a checksum. Among the versions with a matching checksum, the one with the later
//! serial holds. The next version goes to the other slot and has the next serial. Invariant: a
//! writer never stores over the version that holds, so a writer that dies leaves that version or
//! the next one. Serials wrap around; half their range ahead does not count as later. Each value
//! defines its own layout.

/// The contents of two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoubleSlot<T> {
    /// The version that holds; `None` if neither slot has a whole one.
    pub value: Option<T>,
    /// The slot of that version; without one, the slot with the later serial.
    pub slot: usize,
}

impl<T> DoubleSlot<T> {
    /// Decode the slot with the later serial, or else the other one if that one is not whole.
    /// `serials` are those of both slots, valid or not.
    #[inline]
    pub fn read(serials: [u64; 2], decode: impl Fn(usize) -> Option<T>) -> Self {
        let later = usize::from(is_later(serials[1], serials[0]));
        for slot in [later, 1 - later] {
            if let Some(value) = decode(slot) {
                return Self { value: Some(value), slot };
            }
        }
        Self { value: None, slot: later }
    }

    /// Return the slot that the next version goes to.
    #[inline]
    pub const fn other(&self) -> usize {
        1 - self.slot
    }
}

impl<T: Copy> DoubleSlot<T> {
    /// Choose between two versions; `None` means that a version is not whole.
    pub fn of(slots: [Option<T>; 2], serial: impl Fn(T) -> u64) -> Self {
        let serials = slots.map(|version| version.map_or(0, &serial));
        Self::read(serials, |slot| slots[slot])
    }
}

/// Return the slot of a version in a file whose first version, with serial 0, goes to slot 0.
pub const fn slot_of(serial: u64) -> usize {
    (serial % 2) as usize
}

/// Widen a 32-bit serial to 64 bits, so that it wraps where the 32 bits do.
#[inline]
pub const fn widened(serial: u32) -> u64 {
    (serial as u64) << 32
}

/// Return true for a slot that was written and is not whole.
pub fn is_torn<T>(bytes: &[u8], version: Option<&T>) -> bool {
    version.is_none() && bytes.iter().any(|byte| *byte != 0)
}

#[inline]
const fn is_later(serial: u64, than: u64) -> bool {
    serial.wrapping_sub(than) as i64 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(slots: [Option<u64>; 2]) -> (Option<u64>, usize) {
        let found = DoubleSlot::of(slots, |serial| serial);
        assert_eq!(found.other(), 1 - found.slot);
        (found.value, found.slot)
    }

    #[test]
    fn of_two_whole_versions_the_one_with_the_later_serial_holds() {
        assert_eq!(of([Some(4), Some(5)]), (Some(5), 1));
        assert_eq!(of([Some(6), Some(5)]), (Some(6), 0));
        assert_eq!(of([Some(7), Some(7)]), (Some(7), 0), "no version has the serial of another");
    }

    #[test]
    fn a_torn_slot_leaves_the_version_in_the_other_one() {
        for (slots, slot) in [([Some(9), None], 0), ([None, Some(9)], 1)] {
            assert_eq!(of(slots), (Some(9), slot));
        }
        for serial in [0, 1, i64::MAX as u64, u64::MAX] {
            assert_eq!(of([None, Some(serial)]), (Some(serial), 1), "{serial}");
            assert_eq!(of([Some(serial), None]), (Some(serial), 0), "{serial}");
        }
        let torn = |holds: usize| move |slot: usize| (slot == holds).then_some(slot);
        for serials in [[1, 2], [2, 1], [0, u64::MAX], [u64::MAX, 1 << 63]] {
            for holds in [0, 1] {
                let found = DoubleSlot::read(serials, torn(holds));
                assert_eq!((found.value, found.slot), (Some(holds), holds), "{serials:?}");
            }
        }
    }

    #[test]
    fn two_torn_slots_say_nothing_but_which_serial_is_the_later() {
        for (serials, slot) in [([1, 2], 1), ([2, 1], 0), ([3, 3], 0), ([u64::MAX, 0], 1)] {
            let found = DoubleSlot::<u64>::read(serials, |_| None);
            assert_eq!(found, DoubleSlot { value: None, slot });
        }
    }

    #[test]
    fn serials_go_round_and_half_a_round_is_no_step_ahead() {
        assert_eq!(of([Some(u64::MAX), Some(0)]), (Some(0), 1));
        assert_eq!(of([Some(0), Some(u64::MAX)]), (Some(0), 0));
        assert_eq!(of([Some(1 << 62), Some(3 << 62)]), (Some(1 << 62), 0));
        let of = |serials: [u32; 2]| DoubleSlot::read(serials.map(widened), Some).slot;
        assert_eq!((of([u32::MAX, 0]), of([0, u32::MAX]), of([5, 4])), (1, 0, 0));
        assert_eq!((of([0, 1 << 31]), of([0, (1 << 31) - 1])), (0, 1));
    }

    #[test]
    fn a_writer_never_stores_over_the_version_that_holds() {
        let mut slots = [Some(u64::MAX - 3), None];
        for _ in 0..8 {
            let (Some(holds), slot) = of(slots) else { panic!("{slots:?}") };
            let next = 1 - slot;
            slots[next] = None;
            assert_eq!(of(slots), (Some(holds), slot), "the writer died in the middle");
            slots[next] = Some(holds.wrapping_add(1));
            assert_eq!(of(slots), (Some(holds.wrapping_add(1)), next));
        }
        for serial in [0, 1, 2, 7, u64::MAX] {
            assert_eq!(slot_of(serial), 1 - slot_of(serial.wrapping_add(1)));
        }
        assert_eq!(slot_of(0), 0);
    }

    #[test]
    fn a_slot_that_was_never_written_is_not_torn() {
        assert!(!is_torn::<u64>(&[0; 64], None));
        assert!(is_torn::<u64>(&[0, 0, 1], None));
        assert!(!is_torn(&[0, 0, 1], Some(&1)));
    }
}
