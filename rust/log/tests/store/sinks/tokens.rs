//! Idempotency keys: a bulk load is committed once, whatever happens to the log meanwhile.

use falaj::internals::sink::forget_idempotency_key;

use super::*;

fn version(topic: &Topic, name: &str) -> Option<u64> {
    last_idempotency_key(topic, name).unwrap().map(|token| token.version)
}

/// Commit records of 100 bytes under an idempotency key.
fn commit(topic: &Topic, records: u64, token: (&str, u64)) -> BulkLoadReport {
    let job = BulkLoad::new(topic, &format!("{}-{}", token.0, token.1)).unwrap();
    let part = stage(&job, "0", 0..records);
    job.commit(&[part], Some(token)).unwrap()
}

#[test]
fn a_version_that_is_not_higher_is_not_committed_again() {
    for records in SIZES {
        let machine = machine();
        let store = open(&machine);
        let flights = topic(&store, 1);
        assert!(commit(&flights, records, ("import", 7)).now);
        for again in [7, 6, 0] {
            let done = commit(&flights, records, ("import", again));
            assert!(!done.now && done.records == 0 && done.offsets.is_empty(), "{again}");
        }
        assert_eq!(staged(&flights), NOTHING, "parts of earlier loads must be gone too");
        assert!(commit(&flights, records, ("export", 7)).now, "another series");
        assert!(commit(&flights, records, ("import", 9)).now);
        assert_eq!(flights.end(0).unwrap(), 3 * records);
        assert_eq!([version(&flights, "import"), version(&flights, "export")], [Some(9), Some(7)]);
        assert_eq!(version(&flights, "other"), None);
        let readers = Store::open_on(store.storage().clone(), ROOT, &StoreOptions::reading());
        let read = Topic::open(&readers.unwrap(), "flights", &TopicOptions::default()).unwrap();
        assert_eq!(version(&read, "import"), Some(9), "readers must know it too");
    }
}

/// The load that uses a key first removes what others staged with it.
#[test]
fn a_load_that_is_overtaken_with_the_same_key_learns_that_it_was_committed() {
    for records in SIZES {
        let machine = machine();
        let flights = topic(&open(&machine), 1);
        let token = Some(("import", 7));
        let job = BulkLoad::new(&flights, "slower").unwrap();
        let mut part = job.stage("0", token).unwrap();
        (0..records).for_each(|n| part.append_to(&NewRecord::new(&value(n)), Some(0)).unwrap());
        let manifest = part.finish().unwrap();
        let ready = job.ready(&[manifest], token).unwrap();
        assert!(commit(&flights, records, ("import", 7)).now);
        assert_eq!(staged(&flights), NOTHING);
        let placed = ready.commit_visible().unwrap();
        assert!(!ready.finish(&placed).unwrap().now);
        assert_eq!(flights.end(0).unwrap(), records);
    }
}

#[test]
fn a_token_without_records_counts_and_a_job_without_both_is_nothing() {
    let machine = machine();
    let flights = topic(&open(&machine), 1);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let empty = job.stage("0", None).unwrap().finish().unwrap();
    assert!(job.commit(&[&empty], Some(("n", 3))).unwrap().now);
    assert!(!job.commit(&[&empty], Some(("n", 3))).unwrap().now);
    let tail = flights.log().committed();
    assert!(job.commit(&[&empty], None).unwrap().now);
    assert_eq!((flights.log().committed(), flights.end(0).unwrap()), (tail, 0));
}

#[test]
fn a_token_outlives_rolls_trims_restarts_and_a_backup() {
    for (mode, records) in MODES.into_iter().flat_map(|mode| SIZES.map(|size| (mode, size))) {
        let machine = machine();
        let store = open_in(&machine, mode);
        let flights = topic(&store, 1);
        commit(&flights, records, ("import", 7));
        for number in 0..2_000 {
            flights.append_to(0, &NewRecord::new(&value(number)), None).unwrap();
        }
        flights.flush().unwrap();
        let removed = flights.trim(&[(0, records + 1_500)]).unwrap();
        assert!(removed.segments > 1, "the load's segment must be among them");
        assert_eq!(version(&flights, "import"), Some(7));
        store.backup(Path::new("/copy"), &mut |_, _| Ok(())).unwrap();
        drop((flights, store));
        let machine = machine.restart();
        let flights = topic(&open_in(&machine, mode), 1);
        assert!(!commit(&flights, records, ("import", 7)).now);
        let copied =
            Store::open_on(Arc::new(machine.clone()), "/copy", &StoreOptions::default()).unwrap();
        assert!(!commit(&topic(&copied, 1), records, ("import", 7)).now);
    }
}

#[test]
fn a_log_says_when_it_remembers_no_more_tokens_and_has_room_for_those_that_are_forgotten() {
    let machine = machine();
    let flights = topic(&open(&machine), 1);
    let limit = flights.log().max_tokens();
    assert_eq!(limit, 15, "keys take an eighth of a small segment");
    for n in 0..limit {
        assert!(commit(&flights, 1, (&format!("series-{n}"), 1)).now);
    }
    for records in SIZES {
        let job = BulkLoad::new(&flights, "more").unwrap();
        let part = stage(&job, "0", 0..records);
        let refused = job.commit(&[&part], Some(("more", 1))).unwrap_err();
        assert!(refused.to_string().contains("remembers 15 idempotency keys"), "{refused}");
        assert!(refused.to_string().contains("forget"), "{refused}");
        assert_eq!(flights.end(0).unwrap(), limit as u64, "nothing may be committed");
    }
    assert!(commit(&flights, 1, ("series-3", 2)).now, "a known series must continue");
    assert!(forget_idempotency_key(&flights, "series-3").unwrap());
    assert!(!flights.forget_idempotency_key("series-3").unwrap());
    assert_eq!(version(&flights, "series-3"), None);
    assert!(commit(&flights, 1, ("more", 1)).now);
    drop(flights);
    let flights = topic(&open(&machine.restart()), 1);
    assert_eq!([version(&flights, "series-3"), version(&flights, "more")], [None, Some(1)]);
}

#[test]
fn names_and_versions_that_no_token_has_are_refused() {
    let machine = machine();
    let flights = topic(&open(&machine), 1);
    let job = BulkLoad::new(&flights, "j").unwrap();
    let long = "x".repeat(513);
    for token in [("", 1), (long.as_str(), 1), ("n", u64::MAX)] {
        let refused = job.commit(&[[0u8; 0]; 0], Some(token)).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
        assert!(matches!(job.stage("0", Some(token)), Err(Error::InvalidArgument { .. })));
    }
    assert!(job.commit(&[[0u8; 0]; 0], Some((&long[..512], u64::MAX - 1))).unwrap().now);
}
