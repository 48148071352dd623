//! The derived part: the heap of places by time, the lanes of keys, the leases of each process.
//!
//! Owns that part of a state file. With it a take costs the same whether ten jobs are delayed or a
//! million. It changes under the queue's lock and between the stores to BUSY. If a process did not
//! reach the second store, it is rebuilt from the entries ([`super::rebuild`]). It has no checksum. A
//! link that leads nowhere stays as it is, and BUSY gets the note [`SPOILT`] for the next process.
//!
//! A place is in the heap while its record is not done and no record of its key comes before it. Its
//! time is the machine's steady clock: 0 for a job that is due at once, a deadline, the end of a delay.

use crate::error::Result;
use crate::format::queue::{Parts, SLOTS, at};
use crate::lock::Identity;

use super::state::StateFile;

/// Value of BUSY: the derived part was found corrupt. The next process that gets the lock rebuilds it.
const SPOILT: u64 = 2;

/// The derived part of a locked file.
#[derive(Clone, Copy)]
pub(super) struct TimerHeap<'a>(pub(super) &'a StateFile);

/// A link that leads to another place, or out of the heap.
#[derive(PartialEq, Eq)]
struct Astray;

impl TimerHeap<'_> {
    fn parts(self) -> Parts {
        self.0.parts()
    }

    fn len(self) -> u64 {
        self.0.load(at::HEAP).min(self.parts().capacity)
    }

    fn at(self, index: u64) -> (u64, u64) {
        let position = self.parts().heap(index);
        (self.0.load(position), self.0.load(position + 8))
    }

    fn set(self, index: u64, (time, place): (u64, u64)) -> Result<()> {
        let position = self.parts().heap(index);
        self.0.set(position, time)?;
        self.0.set(position + 8, place)?;
        self.0.set(self.parts().link(place), index + 1)
    }

    /// Note that the next process with the lock must rebuild this part. Until then changes have no
    /// effect.
    #[cold]
    pub(super) fn spoil(self) -> Result<()> {
        self.0.set(at::BUSY, SPOILT)
    }

    /// True after [`TimerHeap::spoil`].
    pub(super) fn is_spoilt(self) -> bool {
        self.0.load(at::BUSY) == SPOILT
    }

    /// Find a place's index in the heap; `Err` where it is not where its link says.
    fn find(self, place: u64) -> std::result::Result<Option<u64>, Astray> {
        match self.0.load(self.parts().link(place)) {
            0 => Ok(None),
            link if link <= self.len() && self.at(link - 1).1 == place => Ok(Some(link - 1)),
            _ => Err(Astray),
        }
    }

    /// Say whether the earliest place can be moved or removed, so that another one comes up.
    pub(super) fn is_rooted(self, place: u64) -> bool {
        place < self.parts().capacity && self.find(place) == Ok(Some(0))
    }

    /// Get the earliest time, and its place.
    pub(super) fn earliest(self) -> Option<(u64, u64)> {
        (self.len() > 0).then(|| self.at(0))
    }

    /// Say whether a place comes up at some time.
    pub(super) fn has(self, place: u64) -> bool {
        self.0.load(self.parts().link(place)) != 0
    }

    /// Set the time of a place, whether it is in the heap already or not.
    pub(super) fn put(self, place: u64, time: u64) -> Result<()> {
        let index = match self.find(place) {
            Ok(Some(index)) => index,
            Ok(None) if self.len() < self.parts().capacity => {
                let len = self.len();
                self.0.set(at::HEAP, len + 1)?;
                len
            }
            _ => return self.spoil(),
        };
        self.sift(index, (time, place))
    }

    /// Remove a place.
    pub(super) fn remove(self, place: u64) -> Result<()> {
        let index = match self.find(place) {
            Ok(Some(index)) => index,
            Ok(None) => return Ok(()),
            Err(Astray) => return self.spoil(),
        };
        let last = self.len() - 1;
        let moved = self.at(last);
        self.0.set(at::HEAP, last)?;
        self.0.set(self.parts().link(place), 0)?;
        if index == last {
            return Ok(());
        }
        self.sift(index, moved)
    }

    /// Store an element where it belongs; the given index is free.
    fn sift(self, mut index: u64, element: (u64, u64)) -> Result<()> {
        while index > 0 {
            let parent = (index - 1) / 2;
            let above = self.at(parent);
            if above.0 <= element.0 {
                break;
            }
            self.set(index, above)?;
            index = parent;
        }
        let len = self.len();
        loop {
            let left = 2 * index + 1;
            if left >= len {
                break;
            }
            let mut child = (left, self.at(left));
            if left + 1 < len {
                let right = self.at(left + 1);
                if right.0 < child.1.0 {
                    child = (left + 1, right);
                }
            }
            if child.1.0 >= element.0 {
                break;
            }
            self.set(index, child.1)?;
            index = child.0;
        }
        self.set(index, element)
    }

    /// Append a record to those of its key; true if it is the first, and may be delivered. Records
    /// without a key have lane 0, and no order.
    pub(super) fn join(self, place: u64, lane: u64) -> Result<bool> {
        if lane == 0 || !self.parts().ordered {
            return Ok(true);
        }
        let position = self.parts().lane(lane);
        let [first, last] = [self.0.load(position), self.0.load(position + 8)];
        if (first == 0) != (last == 0) || first.max(last) > self.parts().capacity {
            return self.spoil().map(|()| false);
        }
        self.0.set(self.parts().link(place) + 8, 0)?;
        if first == 0 {
            self.0.set(position, place + 1)?;
        } else {
            self.0.set(self.parts().link(last - 1) + 8, place + 1)?;
        }
        self.0.set(position + 8, place + 1)?;
        Ok(first == 0)
    }

    /// Remove the first record of a lane; return the place that is first now.
    pub(super) fn leave(self, place: u64, lane: u64) -> Result<Option<u64>> {
        if lane == 0 || !self.parts().ordered {
            return Ok(None);
        }
        let position = self.parts().lane(lane);
        if self.0.load(position) != place + 1 {
            return Ok(None);
        }
        let next = self.0.load(self.parts().link(place) + 8);
        if next > self.parts().capacity {
            return self.spoil().map(|()| None);
        }
        self.0.set(position, next)?;
        if next == 0 {
            self.0.set(position + 8, 0)?;
        }
        Ok(next.checked_sub(1))
    }

    /// Change the number of leases of a process.
    pub(super) fn count(self, holder: u32, change: i64) -> Result<()> {
        let Some(identity) = Identity::from_bits(holder) else { return Ok(()) };
        let position = Parts::HOLDERS + 8 * u64::from(identity.slot());
        let word = self.0.load(position);
        let is_same = word >> 32 == u64::from(holder);
        let after = if is_same { word & 0xffff_ffff } else { 0 }.saturating_add_signed(change);
        if is_same || change > 0 {
            self.0.set(position, if after == 0 { 0 } else { u64::from(holder) << 32 | after })?;
        }
        self.add(at::IN_FLIGHT, change)
    }

    /// Find the process that had this one's slot before, is therefore dead, and still has leases. These
    /// must be reclaimed before this process is counted in its place.
    pub(super) fn holder_before(self, me: Identity) -> Option<Identity> {
        let word = self.0.load(Parts::HOLDERS + 8 * u64::from(me.slot()));
        Identity::from_bits((word >> 32) as u32).filter(|holder| *holder != me)
    }

    /// Change a count.
    pub(super) fn add(self, position: u64, change: i64) -> Result<()> {
        self.0.set(position, self.0.load(position).saturating_add_signed(change))
    }

    /// List the processes that have leases, except one.
    pub(super) fn holders(self, but: Identity) -> Vec<Identity> {
        if self.0.load(at::IN_FLIGHT) == 0 {
            return Vec::new();
        }
        let words = (0..SLOTS).map(|slot| self.0.load(Parts::HOLDERS + 8 * slot));
        let holders = words.filter_map(|word| Identity::from_bits((word >> 32) as u32));
        holders.filter(|holder| *holder != but).collect()
    }

    /// Clear all: no lease and nothing in the heap.
    pub(super) fn clear(self) -> Result<()> {
        let parts = self.parts();
        let write = |position, len| self.0.write(position, &vec![0; len as usize]);
        write(Parts::HOLDERS, 8 * SLOTS)?;
        write(parts.link(0), 16 * parts.capacity)?;
        if parts.ordered {
            write(parts.lane(0), 16 * parts.capacity)?;
        }
        for word in [at::HEAP, at::IN_FLIGHT, at::DONE] {
            self.0.set(word, 0)?;
        }
        Ok(())
    }
}
