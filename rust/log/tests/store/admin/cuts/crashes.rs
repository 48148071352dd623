//! Cuts and crashes: a power failure after one, failed syncs, kills.

use falaj_twin::memory::every;

use super::*;

/// A machine whose topics are all in mode `none`: nothing but the cut makes records durable.
fn crashed_after(work: impl Fn(&Store, &mut Vec<Cut>)) {
    let machine = MemoryStorage::new().seeded(3);
    let storage: Arc<dyn Storage> = Arc::new(machine.process());
    let store = open(&storage, Path::new("/store")).unwrap();
    let (mut cuts, mut times): (Vec<Cut>, Vec<usize>) = Default::default();
    for _ in 0..2 {
        work(&store, &mut cuts);
        times.push(machine.events());
    }
    let (mut images, mut restored) = (0, 0);
    let journal = machine.journal();
    let crashes = journal.crashes().filter(|crash| crash.time() >= times[0]);
    let crashes: Vec<_> = crashes.collect();
    for crash in crashes.iter().step_by(every((crashes.len() / 8).max(1))) {
        let done = times.iter().filter(|time| **time <= crash.time()).count();
        images += crash
            .explore(2, 5, |_, image| {
                let image: Arc<dyn Storage> = Arc::new(image);
                let store = open(&image, Path::new("/store")).unwrap();
                for cut in &cuts[..done] {
                    assert_contains(&store, cut, &format!("after event {}", crash.time()));
                }
                let cut = store.cut(None).unwrap();
                let now = ends(&cut);
                for (name, partition, next, _) in ends(&cuts[done - 1]) {
                    let now = now.iter().find(|now| (&now.0, now.1) == (&name, partition));
                    assert!(now.is_some_and(|now| now.2 >= next), "{name} at {next}");
                }
                let mut place = Place::default();
                place.ship(&cut).unwrap();
                // Some of them, since it costs most of the time.
                if restored % every(3) == 0 {
                    check(&place, &cut, &image, Path::new("/restored"));
                }
                restored += 1;
            })
            .images;
    }
    assert!(images >= 10, "{images}");
}

#[test]
fn what_is_in_a_cut_is_there_after_every_power_failure() {
    crashed_after(|store, cuts| {
        let [a, b] = ["a", "b"].map(|name| topic(store, name).with_sync(SyncMode::None));
        let next = a.end(0).unwrap();
        fill(&a, next, next + 20);
        fill(&b, next / 20, next / 20 + 1);
        cuts.push(store.cut(cuts.last()).unwrap());
    });
}

#[test]
fn a_cut_of_compacted_and_trimmed_logs_is_there_after_every_power_failure() {
    crashed_after(|store, cuts| {
        let (orders, prices) = (topic(store, "orders"), compacted(store, "prices", SMALL));
        let orders = orders.with_sync(SyncMode::None);
        let next = orders.end(0).unwrap();
        fill(&orders, next, next + 25);
        orders.log().roll_now().unwrap();
        keyed(&prices, next, next + 25, 5);
        cuts.push(store.cut(cuts.last()).unwrap());
        orders.trim_before(next + 25).unwrap();
        compact(&prices);
        *cuts.last_mut().unwrap() = store.cut(cuts.last()).unwrap();
    });
}

/// A sync fails, and its bytes are carried into another segment; or the process dies at any call of it.
#[test]
fn bytes_that_were_carried_over_count_as_the_same() {
    let machine = MemoryStorage::new().seeded(4);
    let faulty = FaultyStorage::over_memory(machine.clone());
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let store = open(&storage, Path::new("/store")).unwrap();
    let orders = topic(&store, "orders").with_sync(SyncMode::None);
    fill(&orders, 0, 30);
    let first = store.cut(None).unwrap();
    fill(&orders, 30, 60);
    let nth = faulty.count(Call::SyncData) + 1;
    faulty.plan(Fault::at(nth, FailureKind::Errno(libc::EIO)).only(Call::SyncData));
    let second = store.cut(Some(&first)).unwrap();
    assert_eq!(faulty.failed(), 1);
    let sequences = |cut: &Cut| -> Vec<_> {
        cut.logs()[0].segments().iter().map(|segment| segment.header.sequence).collect()
    };
    assert_eq!((sequences(&first), sequences(&second)), (vec![0], vec![0, 1]));
    assert_eq!(ends(&second)[0].2, 60);
    assert_contains(&store, &first, "before");
    let mut place = Place::default();
    place.ship(&first).unwrap();
    place.ship(&second).unwrap();
    check(&place, &second, &storage, Path::new("/copy"));
    let journal = machine.journal();
    for time in machine.events().saturating_sub(60)..journal.len() {
        let killed: Arc<dyn Storage> = Arc::new(journal.killed_at(time));
        let store = open(&killed, Path::new("/store")).unwrap();
        assert_contains(&store, &first, &format!("killed at {time}"));
    }
}
