//! All parsers of foreign bytes behind one target: the first byte chooses, the others are fed.
#![no_main]

use falaj_server::foreign::TARGETS;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((choice, rest)) = bytes.split_first() {
        (TARGETS[*choice as usize % TARGETS.len()].feed)(rest);
    }
});
