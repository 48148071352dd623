//! Memory of the twin that is used again.

use super::*;

#[test]
fn memory_that_is_used_again_is_zero() {
    // A size that no other test uses, so that none takes it. But others may fill the pool
    // meanwhile, which then cannot take it, so there are several tries.
    const CAPACITY: u64 = 77 * PAGE;
    const TRIES: u32 = 1000;
    let address = |memory: &Memory| memory.raw().as_ptr() as usize;
    let is_used_again = || {
        spare().pop();
        let first = Memory::new(CAPACITY).unwrap();
        first.write(70 * PAGE - 3, b"across");
        first.write(0, &[1; 9]);
        let place = address(&first);
        drop(first);
        let is_kept = spare().iter().any(|spare| spare.as_ptr() as usize == place);
        let again = Memory::new(CAPACITY).unwrap();
        assert!((0..CAPACITY / 8).all(|word| again.word(word * 8) == 0));
        is_kept && address(&again) == place
    };
    assert!((0..TRIES).any(|_| is_used_again()), "none of {TRIES} was used again");
}
