//! The origin: made once, kept through crashes, and no part of a copy.

use super::*;

#[test]
fn every_process_gets_one_origin_and_a_copy_has_none() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
    store.open_topic("orders", &small).unwrap();
    let reading = || open_with(&machine.process(), &StoreOptions::reading()).unwrap();
    assert!(matches!(reading().origin(), Err(Error::NotWritable { .. })));
    let origin = store.origin().unwrap();
    assert_eq!(origin.parent, None);
    assert_eq!(open(&machine.process()).unwrap().origin().unwrap(), origin);
    assert_eq!(reading().origin().unwrap(), origin);
    drop(store);
    let store = open(&machine).unwrap();
    assert_eq!(store.origin().unwrap(), origin);
    store.backup("/copy", &mut |_, _| Ok(())).unwrap();
    let copy: Arc<dyn Storage> = Arc::new(machine.clone());
    let copy = Store::open_on(copy, "/copy", &StoreOptions::default()).unwrap();
    assert_eq!(copy.settings().id, store.settings().id);
    assert_ne!(copy.origin().unwrap(), origin, "a copy is another origin");
}

#[test]
fn a_corrupt_origin_is_an_error_and_is_not_replaced() {
    let machine = machine();
    let store = open(&machine).unwrap();
    store.origin().unwrap();
    let path = store.layout().origin();
    let mut bytes = read(&machine, &path);
    bytes[20] ^= 1;
    overwrite(&machine, &path, &bytes);
    let error = store.origin().unwrap_err();
    assert!(matches!(&error, Error::CorruptData { path: at, .. } if *at == path), "{error}");
    assert_eq!(read(&machine, &path), bytes);
}

#[test]
fn an_origin_that_a_caller_got_outlives_every_power_failure() {
    let machine = machine();
    drop(open(&machine).unwrap());
    let store = open(&machine).unwrap();
    let origin = store.origin().unwrap();
    let got = machine.events();
    let mut images = 0;
    for crash in machine.journal().crashes().filter(|crash| crash.time() >= got) {
        images += crash
            .explore(8, 5, |_, image| {
                assert_eq!(open(&image).unwrap().origin().unwrap(), origin);
            })
            .images;
    }
    assert!(images > 0);
}

/// The maker died after the file got its name, and before that was on the disk.
#[test]
fn an_origin_that_another_process_made_is_on_disk_before_a_caller_gets_it() {
    let machine = machine();
    drop(open(&machine).unwrap());
    let began = machine.events();
    open(&machine).unwrap().origin().unwrap();
    let journal = machine.journal();
    let mut found = 0;
    for time in began..journal.len() {
        let killed = journal.killed_at(time);
        let path = Layout::new(Path::new(ROOT)).origin();
        if killed.stat(&path).is_err() {
            continue;
        }
        found += 1;
        let origin = open(&killed).unwrap().origin().unwrap();
        let got = killed.events();
        for crash in killed.journal().crashes().filter(|crash| crash.time() >= got) {
            crash.explore(8, 5, |_, image| {
                assert_eq!(open(&image).unwrap().origin().unwrap(), origin, "killed at {time}");
            });
        }
    }
    assert!(found > 0);
}

#[test]
fn an_origin_that_could_not_be_made_is_made_by_the_next_call() {
    let machine = machine();
    drop(open(&machine).unwrap());
    let mut failed = 0;
    for nth in 1.. {
        let faulty = FaultyStorage::over_memory(machine.clone());
        let store = Store::open_on(Arc::new(faulty.clone()), ROOT, &StoreOptions::default());
        let store = store.unwrap();
        faulty.plan(Fault::at(faulty.total() + nth, FailureKind::Errno(libc::EIO)));
        let made = store.origin();
        if made.is_ok() && faulty.failed() == 0 {
            break;
        }
        failed += u64::from(made.is_err());
        let again = store.origin().unwrap();
        assert!(made.is_err() || made.is_ok_and(|made| made == again), "call {nth}");
        machine.unlink(&store.layout().origin()).unwrap();
    }
    assert!(failed > 5, "{failed}");
}
