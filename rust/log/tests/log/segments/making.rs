//! Segments in the making, which no reader sees yet.

use std::path::Path;

use super::*;
use falaj::internals::error::Error;
use falaj::internals::format::FIRST_BLOCK;
use falaj::internals::segment::create::own_len;
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

#[test]
fn a_segment_in_the_making_grows_and_does_not_shrink() {
    let (memory, path) = (MemoryStorage::new(), Path::new("/new").to_path_buf());
    let mut builder =
        Builder::new(&memory, path.clone(), 12_288, LEN, 0o600, MapAccess::Write).unwrap();
    assert_eq!((builder.allocated(), builder.position()), (12_288, FIRST_BLOCK));
    for (asked, len) in [(12_288, 12_288), (4096, 12_288), (16_384, 16_384), (8192, 16_384)] {
        builder.grow(asked).unwrap();
        assert_eq!(builder.allocated(), len);
        assert_eq!(memory.stat(&path).unwrap().len, len);
    }
    let before = builder.position();
    builder.block(&own_header(Kind::Meta, b"12345", 9), b"12345").unwrap();
    assert_eq!(builder.position() - before, own_len(5));
    assert_eq!(own_len(5), 40);
    builder.discard(&memory);
    assert!(memory.stat(&path).is_err());
}

#[test]
fn a_segment_that_cannot_be_begun_leaves_nothing_behind() {
    for call in [Call::Random, Call::Open, Call::Allocate, Call::Map] {
        let memory = MemoryStorage::new();
        let faulty = FaultyStorage::over_memory(memory.clone());
        faulty.plan(Fault::at(1, FailureKind::Errno(libc::ENOSPC)).only(call));
        let path = Path::new("/new").to_path_buf();
        let begun = Builder::new(&faulty, path.clone(), 8192, LEN, 0o600, MapAccess::Write);
        assert!(matches!(begun, Err(Error::NoSpace { .. })), "{call:?}: {begun:?}");
        assert!(memory.stat(&path).is_err(), "{call:?}");
    }
}
