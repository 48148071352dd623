//! The chain of a directory that changes, or whose disk fails, while the chain is known.

use super::*;
use crate::format::segment::HEADERS;
use crate::twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

impl Place {
    /// Replace a segment with another one, as compaction does.
    fn replace(&self, sequence: u64, previous: Previous) -> Previous {
        self.lose(sequence);
        self.segment(sequence, Some(previous), marked(1))
    }

    /// A chain that reads with `pread`, and the disk below it.
    fn on_a_bad_disk(&self) -> (FaultyStorage, Chain) {
        let disk = FaultyStorage::over_memory(self.memory.clone());
        let chain = Chain { storage: Arc::new(disk.clone()), ..self.chain(Reading::Pread) };
        (disk, chain)
    }
}

fn changes_by_a_refresh(chain: &Chain) -> u64 {
    let before = chain.changes();
    chain.refresh().unwrap();
    chain.changes() - before
}

#[test]
fn a_directory_that_did_not_change_is_known_as_it_was() {
    let p = Place::new();
    p.row(4);
    let chain = p.chain(Reading::Map);
    assert_eq!(changes_by_a_refresh(&chain), 1, "it was not known at all");
    let open = [1, 3, 4].map(|sequence| chain.segment(sequence).unwrap());
    assert_eq!(changes_by_a_refresh(&chain), 0);
    for segment in open {
        assert!(Arc::ptr_eq(&segment, &chain.segment(segment.sequence()).unwrap()));
    }
}

#[test]
fn a_segment_that_is_open_and_was_replaced_is_opened_anew() {
    for reading in [Reading::Map, Reading::Pread] {
        let p = Place::new();
        let row = p.row(3);
        let chain = p.chain(reading);
        chain.refresh().unwrap();
        let stale = chain.segment(1).unwrap();
        let new = p.replace(1, row[0]);
        assert_eq!(changes_by_a_refresh(&chain), 1);
        let found = chain.segment(1).unwrap();
        assert_eq!((found.salt(), chain.header(1).unwrap().salt), (new.salt, new.salt));
        assert_eq!(changes_by_a_refresh(&chain), 0);
        // A reader of the old one continues in the old one, and no new reader gets it.
        let fresh = chain.reopen_empty(&stale).unwrap();
        assert_eq!(fresh.salt(), stale.salt());
        assert!(!Arc::ptr_eq(&fresh, &found));
        assert!(Arc::ptr_eq(&found, &chain.segment(1).unwrap()));
    }
}

#[test]
fn a_segment_that_took_the_place_of_several_is_what_comes_next() {
    let p = Place::new();
    let row = p.row(4);
    let chain = p.chain(Reading::Map);
    chain.refresh().unwrap();
    p.replace(2, row[0]);
    p.lose(1);
    assert_eq!(chain.refresh().unwrap(), [0, 2, 3, 4]);
    let end = row[0].end;
    assert_eq!(next(&chain, 0).unwrap(), Next::Segment { sequence: 2, end });
}

#[test]
fn a_replacement_that_fills_a_gap_is_a_change_and_the_gap_itself_is_none() {
    let p = Place::new();
    let row = p.row(4);
    p.lose(1);
    let chain = p.chain(Reading::Map);
    assert_eq!(chain.refresh().unwrap(), [0, 2, 3, 4]);
    assert_eq!(changes_by_a_refresh(&chain), 0);
    p.replace(2, row[0]);
    assert_eq!(changes_by_a_refresh(&chain), 1);
    assert_eq!(chain.sequences().unwrap(), [0, 2, 3, 4], "the same names");
}

#[test]
fn segments_that_retention_took_close_nothing_that_is_left() {
    let p = Place::new();
    p.row(4);
    let chain = p.chain(Reading::Map);
    chain.refresh().unwrap();
    let open = [2, 3].map(|sequence| chain.segment(sequence).unwrap());
    [0, 1].iter().for_each(|sequence| p.lose(*sequence));
    assert_eq!(chain.refresh().unwrap(), [2, 3, 4]);
    for segment in open {
        assert!(Arc::ptr_eq(&segment, &chain.segment(segment.sequence()).unwrap()));
    }
}

#[test]
fn a_segment_that_came_since_is_held() {
    let p = Place::new();
    let row = p.row(1);
    let chain = p.chain(Reading::Map);
    assert_eq!(chain.sequences().unwrap(), [0, 1]);
    p.segment(2, Some(row[1]), marked(1));
    assert!(chain.holds(2).unwrap());
}

/// Recovery puts an orphan away, and a roll gives its name to another file.
#[test]
fn what_an_orphan_said_is_not_believed_of_the_segment_that_gets_its_name() {
    let p = Place::new();
    let row = p.row(1);
    p.segment(2, Some(Previous { salt: row[1].salt ^ 1, ..row[1] }), marked(1));
    let chain = p.chain(Reading::Map);
    assert_eq!(chain.refresh().unwrap(), [0, 1]);
    p.replace(2, row[1]);
    assert_eq!(chain.refresh().unwrap(), [0, 1, 2]);
}

#[test]
fn the_one_that_was_asked_for_last_is_closed_last() {
    let p = Place::new();
    p.row(9);
    let chain = p.chain(Reading::Pread);
    for sequence in [1, 2, 3, 4, 1, 5] {
        chain.segment(sequence).unwrap();
    }
    let open = enter(&chain.open).sequences();
    assert_eq!(open, [1, 3, 4, 5]);
}

#[test]
fn a_gap_is_named_wherever_it_is_and_what_lies_before_it_is_read() {
    let p = Place::new();
    let row = p.row(4);
    p.lose(2);
    let chain = p.chain(Reading::Map);
    assert_eq!(next(&chain, 0).unwrap(), Next::Segment { sequence: 1, end: row[0].end });
    let error = next(&chain, 1).unwrap_err();
    assert!(
        is_missing(&error) && error.to_string().contains(names::segment(2).as_str()),
        "{error}"
    );
    assert_eq!(next(&chain, 3).unwrap(), Next::Segment { sequence: 4, end: row[3].end });
}

#[test]
fn a_header_that_is_damaged_is_no_end_of_the_log() {
    let p = Place::new();
    p.row(4);
    let file = p.memory.open(&p.path(2), OpenMode::ReadWrite).unwrap();
    HEADERS.iter().for_each(|at| file.write_at(&[0xee; 64], *at).unwrap());
    let chain = p.chain(Reading::Map);
    let error = next(&chain, 1).unwrap_err();
    let told = matches!(&error, Error::CorruptData { path, .. } if *path == p.path(2));
    assert!(told, "{error}");
}

/// Make segments without a mark that claims anything: a power failure may have lost any of them.
fn unmarked_row(p: &Place) -> Vec<Previous> {
    let mut made: Vec<Previous> = Vec::new();
    for sequence in 0..=3 {
        made.push(p.segment(sequence, made.last().copied(), unmarked(1)));
    }
    made
}

#[test]
fn behind_all_marks_the_log_goes_as_far_as_one_segment_follows_the_other() {
    let p = Place::new();
    unmarked_row(&p);
    let found = p.chain(Reading::Map).connected(&[0, 1, 2, 3]).unwrap();
    assert_eq!((found.whole, found.torn), (vec![0, 1, 2, 3], vec![]));
    p.lose(1);
    let found = p.chain(Reading::Map).connected(&[0, 2, 3]).unwrap();
    assert_eq!((found.whole, found.torn), (vec![0], vec![2, 3]));
}

#[test]
fn a_segment_that_went_since_it_was_listed_is_not_called_torn() {
    let p = Place::new();
    unmarked_row(&p);
    p.lose(1);
    let found = p.chain(Reading::Map).connected(&[0, 1, 2, 3]).unwrap();
    assert_eq!((found.whole, found.torn), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn a_beginning_that_the_disk_does_not_give_back_is_not_called_torn() {
    let p = Place::new();
    unmarked_row(&p);
    let (disk, chain) = p.on_a_bad_disk();
    disk.spoil(&p.path(1), 0..LEN).unwrap();
    let found = chain.connected(&[0, 1, 2, 3]).unwrap();
    assert_eq!((found.whole, found.torn), (vec![0, 1, 2, 3], vec![]));
    assert!(disk.failed() > 0);
}

#[test]
fn a_segment_that_cannot_be_opened_is_not_called_missing() {
    let p = Place::new();
    p.row(1);
    let (disk, chain) = p.on_a_bad_disk();
    disk.plan(Fault::at(1, FailureKind::Errno(libc::EMFILE)).only(Call::Open).forever());
    for error in [chain.segment(0).unwrap_err(), chain.header(0).unwrap_err()] {
        assert!(matches!(error, Error::SystemCallFailed { .. }), "{error}");
    }
    disk.heal();
    assert_eq!(chain.refresh().unwrap(), [0, 1]);
}

/// Otherwise recovery would put the end of the log aside, for a disk that may work again tomorrow.
#[test]
fn what_the_disk_does_not_give_back_does_not_disconnect_the_newest() {
    for lost in [2, 3] {
        let p = Place::new();
        p.row(3);
        let (disk, chain) = p.on_a_bad_disk();
        disk.spoil(&p.path(lost), 0..LEN).unwrap();
        let found = chain.connected(&[0, 1, 2, 3]);
        let told = found.as_ref().map(|found| found.whole.clone());
        assert!(!matches!(&told, Ok(whole) if !whole.contains(&3)), "{lost}: {told:?}");
        assert!(disk.failed() > 0, "{lost}: it was not read");
    }
}
