//! An allocator for the explorer's threads that reuses memory.
//!
//! Judging a state takes some hundred microseconds and a thousand allocations, all freed at its
//! end. A quarter of the time went to the system's allocator. A thread that called [`keep`] keeps
//! the blocks that it frees in lists by size, and allocates from them first.
//!
//! Invariant: each block is allocated from the system with the size of its class, and returned with
//! that size. So any thread may free what another allocated. A thread's lists are bounded, and
//! returned when it ends.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Blocks up to this size have classes in steps of [`STEP`], larger ones in powers of two.
const FINE: usize = 1024;
const STEP: usize = 16;
/// The largest block that is kept.
const LARGEST: usize = 64 << 10;
const CLASSES: usize = FINE / STEP + 1 + (LARGEST / FINE).ilog2() as usize;
/// Most bytes that one list holds.
const MOST: usize = 1 << 20;

/// The allocator of the program.
#[derive(Debug)]
pub struct Pool;

/// Free blocks of one size; each begins with the address of the next.
struct List {
    first: Cell<*mut u8>,
    bytes: Cell<usize>,
}

thread_local! {
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    static LISTS: [List; CLASSES] = const {
        [const { List { first: Cell::new(null_mut()), bytes: Cell::new(0) } }; CLASSES]
    };
}

/// The number of a layout's list, and the layout of its blocks; `None` if too large or special.
fn class(layout: Layout) -> Option<(usize, Layout)> {
    if layout.align() > STEP || layout.size() > LARGEST {
        return None;
    }
    let size = layout.size().next_multiple_of(STEP);
    let (number, size) = if size <= FINE {
        (size / STEP, size)
    } else {
        let size = size.next_power_of_two();
        (FINE / STEP + (size / FINE).ilog2() as usize, size)
    };
    Some((number, Layout::from_size_align(size, STEP).ok()?))
}

impl List {
    /// The place in a free block that holds the address of the next one.
    #[allow(clippy::cast_ptr_alignment, reason = "blocks are aligned to `STEP`")]
    fn link(block: *mut u8) -> *mut *mut u8 {
        let link = block.cast::<*mut u8>();
        debug_assert!(link.is_aligned());
        link
    }

    fn take(&self, size: usize) -> Option<*mut u8> {
        let first = self.first.get();
        if first.is_null() {
            return None;
        }
        // SAFETY: a block in a list is free and has at least `STEP` aligned bytes. `put` stored the
        // address of the next block in it. No other thread uses this list.
        self.first.set(unsafe { Self::link(first).read() });
        self.bytes.set(self.bytes.get() - size);
        Some(first)
    }

    /// False when the list is full.
    ///
    /// # Safety
    /// The block is free and aligned to `STEP`, and has `size` bytes, at least `STEP`.
    unsafe fn put(&self, block: *mut u8, size: usize) -> bool {
        let bytes = self.bytes.get() + size;
        if bytes > MOST {
            return false;
        }
        // SAFETY: by the caller's contract the block is free, and has space for an address.
        unsafe { Self::link(block).write(self.first.get()) };
        self.first.set(block);
        self.bytes.set(bytes);
        true
    }
}

// SAFETY: blocks come from the system's allocator with the layout of their class, which is at least
// as large as the request. A block that is in use is in no list, and a free one in at most one.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((number, layout)) = class(layout) else {
            // SAFETY: by the caller's contract.
            return unsafe { System.alloc(layout) };
        };
        let kept = LISTS.with(|lists| lists[number].take(layout.size()));
        // SAFETY: the layout of a class has a size, except for requests of size zero, which are not
        // made.
        kept.unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some((number, layout)) = class(layout) else {
            // SAFETY: by the caller's contract; such a block came from the system.
            return unsafe { System.dealloc(block, layout) };
        };
        let keep = |lists: &[List; CLASSES]| {
            // SAFETY: the caller no longer uses the block, which was allocated with the layout of
            // its class.
            unsafe { lists[number].put(block, layout.size()) }
        };
        if KEEPS.get() && LISTS.with(keep) {
            return;
        }
        // SAFETY: the block came from the system with this very layout.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        match (class(layout), class(wanted)) {
            (Some((old, _)), Some((new, _))) if old == new => return block,
            // SAFETY: by the caller's contract; such a block came from the system, and stays such a
            // block.
            (None, None) => return unsafe { System.realloc(block, layout, size) },
            _ => {}
        }
        // SAFETY: by the caller's contract, the size is not zero.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            let len = layout.size().min(size);
            // SAFETY: both blocks hold at least so many bytes, and a new block overlaps no old one.
            unsafe { std::ptr::copy_nonoverlapping(block, moved, len) };
            // SAFETY: the caller no longer uses the old block.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

/// While this lives, its thread keeps what it frees.
#[derive(Debug)]
pub struct Keeping(PhantomData<*mut u8>);

/// Keep what this thread frees, until the guard is dropped.
#[must_use]
pub fn keep() -> Keeping {
    KEEPS.set(true);
    Keeping(PhantomData)
}

impl Drop for Keeping {
    fn drop(&mut self) {
        KEEPS.set(false);
        for size in (1..=FINE / STEP)
            .map(|n| n * STEP)
            .chain((1..=(LARGEST / FINE).ilog2()).map(|doubled| FINE << doubled))
        {
            let Some((number, layout)) = Layout::from_size_align(size, STEP).ok().and_then(class)
            else {
                continue;
            };
            while let Some(block) = LISTS.with(|lists| lists[number].take(size)) {
                // SAFETY: the block came from the system with the layout of its class.
                unsafe { System.dealloc(block, layout) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_class_that_holds_it_and_no_two_share_a_list() {
        let mut sizes = std::collections::HashMap::new();
        for size in 1..=LARGEST {
            let layout = Layout::from_size_align(size, 8).unwrap();
            let (number, block) = class(layout).unwrap();
            assert!(number < CLASSES && block.size() >= size && block.align() >= 8);
            assert_eq!(*sizes.entry(number).or_insert(block.size()), block.size());
            assert_eq!(class(block), Some((number, block)), "a class is its own");
        }
        assert_eq!(class(Layout::from_size_align(LARGEST + 1, 8).unwrap()), None);
        assert_eq!(class(Layout::from_size_align(64, 64).unwrap()), None);
    }

    #[test]
    fn what_is_freed_is_used_again_and_given_back_in_the_end() {
        let layout = Layout::from_size_align(200, 8).unwrap();
        let keeping = keep();
        // SAFETY: the size is not zero.
        let block = unsafe { Pool.alloc(layout) };
        // SAFETY: this test owns the block, of this layout, and does not use it any more.
        unsafe { Pool.dealloc(block, layout) };
        // SAFETY: the size is not zero.
        let again = unsafe { Pool.alloc(Layout::from_size_align(208, 8).unwrap()) };
        assert_eq!(again, block);
        // SAFETY: this test owns the block, of a layout of the same class, and does not use it any
        // more.
        unsafe { Pool.dealloc(again, layout) };
        drop(keeping);
        LISTS.with(|lists| assert!(lists.iter().all(|list| list.first.get().is_null())));
    }
}
