//! Whether an open segment is the one that has its name, and whether compaction made it.

use super::*;
use crate::format::segment::Replaces;
use crate::segment::pack::Packer;
use crate::segment::tests::draft::{BOTH, Draft};
use crate::twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

#[test]
fn a_segment_has_its_name_until_another_file_has_it_or_none() {
    for reading in BOTH {
        let draft = Draft::new();
        let segment = draft.open(reading);
        let has_its_name = || segment.has_its_name(&draft.memory).unwrap();
        assert!(has_its_name());
        let other = draft.dir.join("other");
        let packer = Packer::new(&draft.memory, other.clone(), 1, 0o600).unwrap();
        assert!(packer.has_its_name(&draft.memory).unwrap() && has_its_name());
        draft.memory.rename_over(&other, &draft.path()).unwrap();
        assert!(!has_its_name(), "another file has it");
        assert!(!packer.has_its_name(&draft.memory).unwrap(), "it has another");
        draft.memory.unlink(&draft.path()).unwrap();
        assert!(!has_its_name(), "nothing has it");
    }
}

#[test]
fn a_file_with_the_same_number_on_another_device_is_another_file() {
    let [one, other] = [Draft::new(), Draft::new()];
    let [here, there] = [&one, &other].map(|draft| draft.memory.stat(&draft.path()).unwrap());
    assert!(here.inode == there.inode && here.device != there.device);
    let segment = one.open(BOTH[0]);
    assert!(!segment.has_its_name(&other.memory).unwrap());
}

#[test]
fn who_cannot_find_out_whether_a_segment_has_its_name_is_told_so() {
    let draft = Draft::new();
    let faulty = FaultyStorage::over_memory(draft.memory.clone());
    let segment = draft.open_on(&faulty, BOTH[0]);
    // The file itself is asked first, and then the name.
    for nth in [1, 2] {
        let asked = faulty.count(Call::Stat);
        faulty.plan(Fault::at(asked + nth, FailureKind::Errno(libc::EIO)).only(Call::Stat));
        let told = segment.has_its_name(&faulty);
        assert!(matches!(&told, Err(Error::SystemCallFailed { .. })), "{nth}: {told:?}");
    }
    assert!(segment.has_its_name(&faulty).unwrap());
}

#[test]
fn a_segment_is_compacted_when_its_header_says_that_it_stands_for_others() {
    for (replaces, is_compacted) in
        [(None, false), (Some(Replaces { first: 1, clean_us: 0, compaction: 0 }), true)]
    {
        let draft = Draft::of(|header| header.replaces = replaces);
        assert!(BOTH.iter().all(|reading| draft.open(*reading).is_compacted() == is_compacted));
    }
}
