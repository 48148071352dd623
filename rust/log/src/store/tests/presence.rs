//! Presence: slots, generations, incarnations, and corrupt files of them.

use super::*;

#[test]
fn two_opens_in_one_process_share_a_slot() {
    let machine = machine();
    let (one, two) = (open(&machine).unwrap(), open(&machine).unwrap());
    let (a, b) = (one.membership().unwrap(), two.membership().unwrap());
    assert!(Arc::ptr_eq(&a, &b));
    assert_eq!(list(&machine, "slots"), ["0"]);
    drop((one, a));
    assert_eq!(two.membership().unwrap().identity(), b.identity());
}

#[test]
fn threads_that_open_at_once_end_up_in_one_slot() {
    let machine = machine();
    let stores: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&machine).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let identities: BTreeSet<_> =
        stores.iter().map(|store| store.membership().unwrap().identity().bits()).collect();
    assert_eq!(identities.len(), 1);
}

#[test]
fn two_processes_have_different_slots_and_one_incarnation() {
    let (one, two) = (machine(), machine());
    let other = one.process();
    let (a, b, stranger) = (open(&one).unwrap(), open(&other).unwrap(), open(&two).unwrap());
    let [a, b, stranger] = [a, b, stranger].map(|store| store.membership().unwrap());
    assert_eq!((a.identity().slot(), b.identity().slot()), (0, 1));
    assert_eq!(a.incarnation(), b.incarnation());
    assert!(!Arc::ptr_eq(&a, &stranger));
}

#[test]
fn a_new_incarnation_begins_only_when_nobody_is_there() {
    let machine = machine();
    let incarnation = |store: &Store| store.membership().unwrap().incarnation();
    let one = open(&machine).unwrap();
    let first = incarnation(&one);
    let two = open(&machine.process()).unwrap();
    drop(one);
    let three = open(&machine.process()).unwrap();
    assert_eq!((incarnation(&two), incarnation(&three)), (first, first));
    drop((two, three));
    let four = open(&machine).unwrap();
    assert_ne!(incarnation(&four), first);
    assert_ne!(incarnation(&four), 0);
}

#[test]
fn a_process_is_alive_until_its_slot_is_free() {
    let me = machine();
    let victim = me.process();
    let here = open(&me).unwrap();
    let there = open(&victim).unwrap().membership().unwrap();
    let here = here.membership().unwrap();
    let dead = there.identity();
    assert!(matches!(here.fate(dead), Ok(Fate::Alive)));
    assert!(matches!(here.fate(here.identity()), Ok(Fate::Alive)));
    victim.kill();
    let proof = here.fate(dead).unwrap();
    assert!(matches!(proof, Fate::Dead(_)));
    // While the evidence is kept no process claims the slot; the next one claims another.
    let third = open(&me.process()).unwrap();
    assert_eq!(third.membership().unwrap().identity().slot(), 2);
    drop(proof);
    let fourth = open(&me.process()).unwrap().membership().unwrap();
    assert_eq!(fourth.identity().slot(), dead.slot());
    assert_eq!(fourth.identity().generation(), dead.generation() + 1);
    // Its slot is locked again, and it is dead all the same.
    assert!(matches!(here.fate(dead), Ok(Fate::Dead(_))));
    assert!(matches!(here.fate(fourth.identity()), Ok(Fate::Alive)));
    assert!(here.describe(dead).contains("has ended"));
    assert!(here.describe(fourth.identity()).starts_with("process "));
}

#[test]
fn a_slots_generation_goes_round_past_the_highest() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let spare = store.layout().slot(1);
    let file = lockfile::LockFile::find_or_create(&machine, &spare, 0o600).unwrap();
    file.write(&format!("generation {GENERATION_MAX} process 1 since_us 1")).unwrap();
    drop(file);
    let slots = slots::Slots::new(&storage, store.layout());
    let old = Identity::new(1, GENERATION_MAX).unwrap();
    let (_file, identity) = slots.take(store.modes(), 1).unwrap();
    assert_eq!((identity.slot(), identity.generation()), (1, 1));
    assert!(matches!(slots.fate(old), Ok(Fate::Dead(_))));
    assert!(matches!(slots.fate(identity), Ok(Fate::Alive)));
}

#[test]
fn a_slot_is_had_by_one_and_when_all_are_taken_that_is_said() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let slots = slots::Slots::new(&storage, store.layout());
    let taken: Vec<_> = (1..SLOTS).map(|_| slots.take(store.modes(), 0).unwrap()).collect();
    let distinct: BTreeSet<_> = taken.iter().map(|(_, identity)| identity.slot()).collect();
    assert_eq!(distinct.len(), usize::from(SLOTS) - 1);
    let full = open(&machine.process()).unwrap_err();
    assert!(matches!(full, Error::TooManyWriters { limit: 1024, .. }), "{full}");
}

#[test]
fn a_claim_that_is_not_had_in_time_is_an_error_that_names_the_holder() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let claim =
        Claim::take(store.storage(), store.layout(), 0o600, Patience::new(Duration::ZERO)).unwrap();
    let error = open_with(&machine.process(), &impatient()).unwrap_err();
    let named = format!("process {}", std::process::id());
    assert!(
        matches!(&error, Error::LockTimeout { holder, .. } if holder.starts_with(&named)),
        "{error}"
    );
    drop(claim);
    open_with(&machine.process(), &impatient()).unwrap();
}

#[test]
fn a_replaced_presence_file_is_noticed_while_somebody_is_there() {
    let machine = machine();
    let store = open(&machine).unwrap();
    for content in [b"".as_slice(), &read(&machine, &store.layout().presence())] {
        overwrite(&machine, &store.layout().presence(), content);
        let error = open(&machine.process()).unwrap_err();
        assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    }
    let member = store.membership().unwrap();
    assert!(matches!(member.verify(), Err(Error::LockFileReplaced { .. })));
    machine.unlink(&store.layout().presence()).unwrap();
    assert!(matches!(open(&machine.process()), Err(Error::LockFileReplaced { .. })));
    // No process is there: a new one loses nothing.
    drop((store, member));
    open(&machine).unwrap();
}

#[test]
fn damaged_presence_is_refused_among_others_and_written_anew_alone() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let path = store.layout().presence();
    machine.open(&path, OpenMode::ReadWrite).unwrap().write_at(b"x", 3).unwrap();
    let error = open(&machine.process()).unwrap_err();
    assert!(matches!(error, Error::LockFileReplaced { .. }), "{error}");
    drop(store);
    open(&machine).unwrap();
}

#[test]
fn a_slot_file_that_is_gone_or_emptied_is_noticed() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let holder = open(&machine.process()).unwrap().membership().unwrap();
    let me = store.membership().unwrap();
    let path = store.layout().slot(holder.identity().slot());
    overwrite(&machine, &path, b"");
    assert!(me.fate(holder.identity()).is_err(), "an empty slot file proves nothing");
    assert!(matches!(holder.verify(), Err(Error::LockFileReplaced { .. })));
    assert!(matches!(open(&machine.process()), Err(Error::LockFileReplaced { .. })));
    machine.unlink(&path).unwrap();
    assert!(me.fate(holder.identity()).is_err(), "a missing slot file proves nothing");
    assert!(matches!(open(&machine.process()), Err(Error::LockFileReplaced { .. })));
}

#[test]
fn a_damaged_slot_file_is_passed_over_while_its_holder_may_live() {
    let machine = machine();
    let store = open(&machine).unwrap();
    let victim = machine.process();
    let holder = open(&victim).unwrap().membership().unwrap();
    let path = store.layout().slot(1);
    machine.open(&path, OpenMode::ReadWrite).unwrap().write_at(b"x", 3).unwrap();
    let me = store.membership().unwrap();
    assert!(matches!(me.fate(holder.identity()), Ok(Fate::Alive)));
    victim.kill();
    assert!(me.fate(holder.identity()).is_err());
    assert_eq!(open(&machine.process()).unwrap().membership().unwrap().identity().slot(), 2);
}
