//! Bulk loads that cannot be committed are refused before anything changes.

use std::time::Duration;

use falaj::internals::storage::OpenMode;

use super::*;

fn flip(topic: &Topic, path: &Path, position: u64) {
    let file = topic.store().storage().open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, position).unwrap();
    file.write_at(&[byte[0] ^ 1], position).unwrap();
}

/// A commit is refused with it, and its error points to verification.
#[test]
fn every_flipped_byte_of_a_staged_part_is_found_by_verification_with_what_helps() {
    let machine = machine();
    let store = open(&machine);
    let flights = topic(&store, 1);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let part = stage(&job, "0", 0..4);
    // A part that is being written need not be whole.
    let _open = job.stage("1", None).unwrap();
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "part");
    let whole = staged(&flights).into_iter().find(is_whole).unwrap();
    let look = || store.verify(None, &mut |_, _| Ok(())).unwrap();
    let found = |what: &str| look().findings.into_iter().filter(|f| f.what.contains(what)).count();
    assert!(look().worst().is_none());
    let len = machine.stat(&whole).unwrap().len;
    for position in (0..len).step_by(7) {
        flip(&flights, &whole, position);
        let told = look().findings;
        assert_eq!(told.len(), 1, "byte {position}: {told:?}");
        assert_eq!(told[0].path, whole);
        assert!(told[0].remedy.contains("stage this part of load j again"), "{told:?}");
        flip(&flights, &whole, position);
    }
    flip(&flights, &whole, len - 1);
    let error = job.commit(&[&part], None).unwrap_err();
    assert!(matches!(error, Error::CorruptData { .. }), "{error}");
    assert_eq!(found("staged records"), 1);
    job.abort().unwrap();
    assert!(look().worst().is_none());
}

#[test]
fn a_manifest_that_is_not_of_the_job_is_refused_and_nothing_changes() {
    let machine = machine();
    let store = open(&machine);
    let flights = topic(&store, 1);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let part = stage(&job, "0", 0..10);
    let of_another_job = stage(&BulkLoad::new(&flights, "k").unwrap(), "0", 0..10);
    let mut damaged = part.clone();
    damaged[70] ^= 1;
    let refused = |parts: &[&[u8]], why: &str| {
        let error = job.commit(parts, Some(("n", 1))).unwrap_err();
        assert!(matches!(error, Error::InvalidManifest { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&[&part, &damaged], "checksum");
    refused(&[b"something else"], "not the manifest of a part");
    refused(&[&of_another_job], "\"k\"");
    refused(&[&part, &part], "twice");
    assert_eq!((flights.end(0).unwrap(), last_idempotency_key(&flights, "n").unwrap()), (0, None));
    assert!(job.commit(&[&part], Some(("n", 1))).unwrap().now, "the part must be unchanged");

    let left = stage(&job, "0", 0..10);
    drop((job, flights));
    store.delete_topic("flights").unwrap();
    let flights = topic(&store, 1);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let error = job.commit(&[left], None).unwrap_err();
    assert!(error.to_string().contains("for another topic than the present"), "{error}");
    let logs = store.storage().list(&Path::new(ROOT).join("logs")).unwrap();
    assert_eq!(logs.len(), 1, "the staged parts must go with the topic");
}

#[test]
fn no_flipped_bit_of_a_part_is_committed() {
    for records in SIZES {
        let machine = machine();
        let store = open(&machine);
        let flights = topic(&store, 2);
        let job = BulkLoad::new(&flights, "j").unwrap();
        let part = stage(&job, "0", 0..records);
        let path = staged(&flights).remove(0);
        let len = store.storage().stat(&path).unwrap().len;
        let tail = flights.log().committed();
        for position in (0..len).step_by(1 + len as usize / 400) {
            flip(&flights, &path, position);
            let error = job.commit(&[&part], Some(("n", 1))).unwrap_err();
            assert!(matches!(error, Error::CorruptData { .. }), "byte {position}: {error}");
            assert!(error.to_string().contains(".part"), "{error}");
            flip(&flights, &path, position);
        }
        let file = store.storage().open(&path, OpenMode::ReadWrite).unwrap();
        file.write_at(b"more", len).unwrap();
        assert!(matches!(job.commit(&[&part], None), Err(Error::CorruptData { .. })));
        assert_eq!((flights.log().committed(), flights.end(0).unwrap()), (tail, 0));
        assert_eq!(last_idempotency_key(&flights, "n").unwrap(), None);
        job.abort().unwrap();
        is_sound(&store);
    }
}

#[test]
fn a_job_that_was_aborted_or_committed_cannot_be_committed_without_its_parts() {
    for records in SIZES {
        let machine = machine();
        let flights = topic(&open(&machine), 1);
        let job = BulkLoad::new(&flights, "j").unwrap();
        let part = stage(&job, "0", 0..records);
        let mut late = job.stage("1", None).unwrap();
        for number in 0..6_000 {
            late.append_to(&NewRecord::new(&value(number)), None).unwrap();
        }
        job.abort().unwrap();
        job.abort().unwrap();
        assert_eq!(staged(&flights), NOTHING);
        let gone = |error: Error| {
            assert!(matches!(error, Error::NotStaged { .. }), "{error}");
            assert!(error.to_string().contains("stage it again"), "{error}");
        };
        gone(job.commit(&[&part], Some(("n", 1))).unwrap_err());
        gone(late.finish().unwrap_err());
        let part = stage(&job, "0", 0..records);
        assert!(job.commit(&[&part], None).unwrap().now);
        gone(job.commit(&[&part], None).unwrap_err());
        job.abort().unwrap();
        assert_eq!(flights.end(0).unwrap(), records, "an abort must undo nothing");
    }
}

#[test]
fn names_records_and_handles_that_cannot_be_right_are_refused() {
    let machine = machine();
    let store = open(&machine);
    let flights = topic(&store, 2);
    for bad in ["", "a/b", "..", "ä", &"x".repeat(201)] {
        assert!(
            matches!(BulkLoad::new(&flights, bad), Err(Error::InvalidArgument { .. })),
            "{bad:?}"
        );
        let job = BulkLoad::new(&flights, "j").unwrap();
        assert!(matches!(job.stage(bad, None), Err(Error::InvalidArgument { .. })), "{bad:?}");
    }
    let job = BulkLoad::new(&flights, "j").unwrap();
    let mut part = job.stage("0", None).unwrap();
    let no_such = part.append_to(&NewRecord::new(b"x"), Some(2)).unwrap_err();
    assert!(no_such.to_string().contains("no partition 2"), "{no_such}");
    let large = vec![0; SEGMENT as usize / 4];
    assert!(matches!(
        part.append_to(&NewRecord::new(&large), None),
        Err(Error::AppendTooLarge { .. })
    ));
    assert_eq!(part.count(), 0);
    let readers = Store::open_on(store.storage().clone(), ROOT, &StoreOptions::reading()).unwrap();
    let read = Topic::open(&readers, "flights", &TopicOptions::default()).unwrap();
    assert!(matches!(BulkLoad::new(&read, "j"), Err(Error::NotWritable { .. })));
    assert!(matches!(read.forget_idempotency_key("n"), Err(Error::NotWritable { .. })));
    assert!(matches!(read.sweep_bulk_loads(Duration::ZERO), Err(Error::NotWritable { .. })));
}
