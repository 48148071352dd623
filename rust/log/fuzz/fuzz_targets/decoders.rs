//! All decoders behind one target: the first byte chooses, the others are fed. The functions are those
//! of `falaj-hostile bytes`, which checks more than that nothing panics.
#![no_main]

use falaj_hostile::bytes::decoders::TARGETS;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((choice, rest)) = bytes.split_first() {
        (TARGETS[*choice as usize % TARGETS.len()].feed)(rest);
    }
});
