//! Members of a group: a partition has one owner at a time, dead members are replaced, and living
//! ones keep their partitions.

use std::time::Duration;

use falaj::internals::format::consumer::entry;
use falaj::internals::storage::{File, LockKind};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};

use super::*;

/// A process of a machine, with the group open.
struct Process {
    machine: MemoryStorage,
    store: Store,
    orders: Topic,
    billing: GroupMember,
}

impl Process {
    fn on(machine: &MemoryStorage, mode: WriteMode) -> Self {
        Self::on_with(machine, mode, 4)
    }

    fn on_with(machine: &MemoryStorage, mode: WriteMode, partitions: u32) -> Self {
        let machine = machine.process();
        let store = store_in(&machine, mode);
        let orders = topic(&store, partitions);
        let billing = open(&store, &orders);
        Self { machine, store, orders, billing }
    }

    fn has(&self) -> Vec<u32> {
        self.billing.parts().unwrap().iter().map(|part| part.partition).collect()
    }

    /// As a poll does: deliver everything of a partition, or commit it.
    fn hands_out(&mut self, partition: u32, until: u64) {
        let parts = self.billing.parts().unwrap();
        let mut part = *parts.iter().find(|part| part.partition == partition).unwrap();
        part.next = until;
        self.billing.handed_out(&part);
    }

    fn dies(self) {
        self.machine.kill();
        std::mem::forget((self.billing, self.orders, self.store));
    }

    /// Look until it owns so many partitions.
    fn waits_for(&mut self, partitions: usize) {
        for _ in 0..1000 {
            self.billing.refresh().unwrap();
            if self.has().len() == partitions {
                return;
            }
            std::thread::sleep(Duration::from_millis(1)); // sleep: it asks every 20 ms
        }
        panic!("has {:?}, not {partitions}", self.has());
    }
}

/// Let these look, one after the other, until a condition holds; the other members do nothing
/// meanwhile.
fn look_until(members: &mut [&mut Process], is_so: impl Fn(&[&mut Process]) -> bool) {
    for _ in 0..1000 {
        for member in &mut *members {
            member.billing.refresh().unwrap();
        }
        if is_so(members) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1)); // sleep: they ask every 20 ms
    }
    panic!("{:?}", members.iter().map(|member| member.has()).collect::<Vec<_>>());
}

/// Three members that own two of six partitions each.
fn three_on(machine: &MemoryStorage, mode: WriteMode) -> [Process; 3] {
    drop(Process::on_with(machine, mode, 6));
    let mut all = [0; 3].map(|_| Process::on_with(machine, mode, 6));
    let [a, b, c] = &mut all;
    look_until(&mut [a, b, c], |all| all.iter().all(|member| member.has().len() == 2));
    all
}

fn machine_with_orders(mode: WriteMode) -> MemoryStorage {
    let machine = MemoryStorage::new();
    let store = store_in(&machine, mode);
    let orders = topic(&store, 4);
    for partition in 0..4 {
        append(&orders, partition, 5);
    }
    orders.flush().unwrap();
    machine
}

#[test]
fn members_divide_the_partitions_and_hand_over_what_is_settled() {
    for mode in MODES {
        let machine = machine_with_orders(mode);
        let mut first = Process::on(&machine, mode);
        assert_eq!(first.has(), [0, 1, 2, 3]);
        let mut second = Process::on(&machine, mode);
        assert!(second.has().is_empty(), "no partition may be taken");
        assert!(first.billing.is_stale());
        first.billing.refresh().unwrap();
        second.billing.refresh().unwrap();
        let (a, b) = (first.has(), second.has());
        assert_eq!((a.len(), b.len()), (2, 2));
        assert!(a.iter().all(|partition| !b.contains(partition)), "{a:?} {b:?}");
        drop(second);
        first.billing.refresh().unwrap();
        assert_eq!(first.has(), [0, 1, 2, 3]);
    }
}

#[test]
fn a_partition_is_released_when_delivered_records_are_committed_and_not_before() {
    for mode in MODES {
        let machine = machine_with_orders(mode);
        let mut first = Process::on(&machine, mode);
        for partition in 0..4 {
            first.hands_out(partition, 3);
        }
        let mut second = Process::on(&machine, mode);
        for _ in 0..3 {
            first.billing.refresh().unwrap();
            second.billing.refresh().unwrap();
        }
        assert_eq!((first.has().len(), second.has().len()), (4, 0));
        let parts = first.billing.parts().unwrap();
        assert_eq!(parts.iter().filter(|part| part.open).count(), 2, "it must read its own only");
        first.billing.commit_all(false).unwrap();
        first.billing.refresh().unwrap();
        second.billing.refresh().unwrap();
        assert_eq!((first.has().len(), second.has().len()), (2, 2));
        for part in second.billing.parts().unwrap() {
            assert_eq!(part.next, 3, "it must resume at the committed offset");
        }
    }
}

#[test]
fn a_former_owner_that_commits_late_is_refused_and_nothing_moves() {
    for mode in MODES {
        let machine = machine_with_orders(mode);
        let mut first = Process::on(&machine, mode);
        let mut second = Process::on(&machine, mode);
        first.billing.refresh().unwrap();
        second.billing.refresh().unwrap();
        let given = second.has()[0];
        second.billing.commit("orders", given, 4, false).unwrap();
        let error = first.billing.commit("orders", given, 2, false).unwrap_err();
        assert!(matches!(error, Error::PartitionNotAssigned { .. }), "{error}");
        assert_eq!(first.billing.committed("orders", given).unwrap(), 4);
    }
}

#[test]
fn a_dead_members_partitions_soon_have_another_owner_at_the_committed_offset() {
    for mode in MODES {
        let machine = machine_with_orders(mode);
        let mut first = Process::on(&machine, mode);
        let mut second = Process::on(&machine, mode);
        first.billing.refresh().unwrap();
        second.billing.refresh().unwrap();
        let given = second.has()[0];
        second.billing.commit("orders", given, 2, false).unwrap();
        second.hands_out(given, 5);
        second.dies();
        first.waits_for(4);
        assert_eq!(first.billing.next("orders", given).unwrap(), 2);
        assert_eq!(first.billing.due(), None, "no other member is left");
    }
}

#[test]
fn partitions_that_a_member_leaves_go_to_a_polling_one_and_busy_members_keep_theirs() {
    for (mode, dies) in [
        (WriteMode::Mapped, true),
        (WriteMode::Mapped, false),
        (WriteMode::Pwrite, true),
        (WriteMode::Pwrite, false),
    ] {
        let machine = MemoryStorage::new();
        for goes in 0..3 {
            let mut all = Vec::from(three_on(&machine, mode));
            let gone = all.remove(goes);
            let (mut idle, mut busy) = (all.remove(0), all.remove(0));
            let (mine, its, left) = (idle.has(), busy.has(), gone.has());
            if dies {
                gone.dies();
            } else {
                drop(gone);
            }
            look_until(&mut [&mut idle], |all| {
                let has = all[0].has();
                assert!(mine.iter().all(|partition| has.contains(partition)), "{has:?} {mine:?}");
                left.iter().all(|partition| has.contains(partition))
            });
            assert_eq!(busy.has(), its, "no partition may be taken");
            // It comes back, and there are enough partitions for both: only the surplus of one
            // moves.
            look_until(&mut [&mut busy, &mut idle], |all| {
                let (its_now, has) = (all[0].has(), all[1].has());
                assert!(its.iter().all(|partition| its_now.contains(partition)), "{its_now:?}");
                assert!(mine.iter().all(|partition| has.contains(partition)), "{has:?} {mine:?}");
                (its_now.len(), has.len()) == (3, 3)
            });
        }
    }
}

#[test]
fn a_new_member_gets_a_share_from_polling_members_and_a_busy_one_blocks_no_other() {
    for mode in MODES {
        let machine = MemoryStorage::new();
        let [mut idle, busy, gone] = three_on(&machine, mode);
        drop(gone);
        look_until(&mut [&mut idle], |all| all[0].has().len() == 4);
        let mut late = Process::on_with(&machine, mode, 6);
        assert!(late.has().is_empty());
        // It asked at its opening. It does not look again, so its request expires.
        let asks = idle.has();
        look_until(&mut [&mut idle], |all| all[0].has() != asks);
        look_until(&mut [&mut idle], |all| all[0].has() == asks);
        // A member that comes back gets a partition, however rarely it comes: each time the others
        // wait longer for it.
        for _ in 0..40 {
            late.billing.refresh().unwrap();
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(5)); // sleep: it is busy
                idle.billing.refresh().unwrap();
            }
            if late.has().len() == 2 {
                break;
            }
        }
        assert_eq!((late.has().len(), idle.has().len(), busy.has().len()), (2, 2, 2));
        let mut all = [idle.has(), late.has(), busy.has()].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_partition_whose_takeover_failed_is_taken_again_or_released() {
    let machine = MemoryStorage::new();
    let first = Process::on_with(&machine, WriteMode::Mapped, 2);
    let mut second = Process::on_with(&machine, WriteMode::Mapped, 2);
    let file = machine.open(Path::new("/store/consumers/billing"), OpenMode::ReadWrite).unwrap();
    let sectors: Vec<_> =
        [entry(0), entry(1)].iter().flat_map(|at| [at + 512, at + 1024]).collect();
    let mut kept = vec![[0; 512]; 4];
    for (at, kept) in sectors.iter().zip(&mut kept) {
        file.read_at(kept, *at).unwrap();
        file.write_at(&[0xff; 512], *at).unwrap();
    }
    drop(first);
    // The word of both partitions names it, but it has neither open.
    let error = second.billing.refresh().unwrap_err();
    assert!(matches!(error, Error::CorruptData { .. }), "{error}");
    for (at, kept) in sectors.iter().zip(&kept) {
        file.write_at(kept, *at).unwrap();
    }
    let mut third = Process::on_with(&machine, WriteMode::Mapped, 2);
    assert!(third.has().is_empty());
    look_until(&mut [&mut second, &mut third], |all| all.iter().all(|all| all.has().len() == 1));
}

#[test]
fn a_member_that_does_nothing_for_long_loses_nothing_while_it_lives() {
    let machine = machine_with_orders(WriteMode::Mapped);
    let first = Process::on(&machine, WriteMode::Mapped);
    let mut second = Process::on(&machine, WriteMode::Mapped);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(25)); // sleep: so that it asks each time
        second.billing.refresh().unwrap();
    }
    assert_eq!((first.has().len(), second.has().len()), (4, 0));
}

#[test]
fn several_handles_of_one_process_are_several_members() {
    let machine = machine_with_orders(WriteMode::Mapped);
    let store = store(&machine);
    let orders = topic(&store, 4);
    let mut members: Vec<_> = (0..5).map(|_| open(&store, &orders)).collect();
    for _ in 0..2 {
        for member in &mut members {
            member.refresh().unwrap();
        }
    }
    let shares: Vec<_> = members.iter().map(|m| m.parts().unwrap().len()).collect();
    assert_eq!(shares.iter().sum::<usize>(), 4, "{shares:?}");
    assert_eq!(shares.iter().max(), Some(&1), "{shares:?}");
}

#[test]
fn members_that_name_other_topics_are_refused_while_one_lives() {
    let machine = machine_with_orders(WriteMode::Mapped);
    let store = store(&machine);
    let (orders, audit) = (topic(&store, 4), {
        let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
        Topic::open(&store, "audit", &small).unwrap()
    });
    let first = open(&store, &orders);
    let both = [orders.clone(), audit];
    let error = GroupMember::open(&store, "billing", &both, Start::Earliest).unwrap_err();
    assert!(error.to_string().contains("other topics"), "{error}");
    drop(first);
    let opened = GroupMember::open(&store, "billing", &both, Start::Earliest).unwrap();
    assert_eq!(opened.parts().unwrap().len(), 5);
}

#[test]
fn words_of_an_earlier_incarnation_name_no_member() {
    let machine = machine_with_orders(WriteMode::Mapped);
    std::mem::forget(Process::on(&machine, WriteMode::Mapped));
    // All members have ended, and the next process has the same slot. In a copy of the store it may
    // even have the same generation.
    let store = store(&machine.survivor());
    assert_eq!(open(&store, &topic(&store, 4)).parts().unwrap().len(), 4);
}

/// Holds the store's claim until dropped.
fn claimed(machine: &MemoryStorage) -> Arc<dyn File> {
    let claim = machine.process().open(Path::new("/store/claim"), OpenMode::ReadWrite).unwrap();
    assert!(claim.try_lock(LockKind::Exclusive).unwrap());
    claim
}

fn hurried(storage: Arc<dyn Storage>) -> Store {
    let (write_mode, lock_timeout) = (Some(WriteMode::Pwrite), Duration::from_millis(1));
    let options = StoreOptions { write_mode, lock_timeout, ..StoreOptions::default() };
    Store::open_on(storage, ROOT, &options).unwrap()
}

#[test]
fn a_member_that_cannot_leave_while_the_claim_is_busy_leaves_when_it_is_free() {
    let machine = machine_with_orders(WriteMode::Pwrite);
    let store = hurried(Arc::new(machine.process()));
    let mut billing = open(&store, &topic(&store, 4));
    let mut other = Process::on(&machine, WriteMode::Pwrite);
    let claim = claimed(&machine);
    for _ in 0..2 {
        assert!(matches!(billing.leave().unwrap_err(), Error::LockTimeout { .. }));
    }
    drop(claim);
    assert_eq!(list_groups(&store).unwrap()[0].members.len(), 2);
    billing.leave().unwrap();
    billing.leave().unwrap();
    assert_eq!(list_groups(&store).unwrap()[0].members.len(), 1);
    for refused in [billing.commit("orders", 0, 1, false), billing.commit_all(true)] {
        assert!(matches!(refused.unwrap_err(), Error::HandleClosed { .. }));
    }
    assert!(matches!(billing.refresh().unwrap_err(), Error::HandleClosed { .. }));
    other.waits_for(4);
}

#[test]
fn a_member_that_ended_and_could_not_leave_counts_as_gone_in_its_own_process() {
    let machine = machine_with_orders(WriteMode::Pwrite);
    let store = hurried(Arc::new(machine.process()));
    let orders = topic(&store, 4);
    let (gone, mut stays) = (open(&store, &orders), open(&store, &orders));
    stays.refresh().unwrap();
    assert_eq!(stays.parts().unwrap(), []);
    let claim = claimed(&machine);
    drop(gone);
    drop(claim);
    assert_eq!(list_groups(&store).unwrap()[0].members.len(), 2);
    for _ in 0..1000 {
        stays.refresh().unwrap();
        if stays.parts().unwrap().len() == 4 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1)); // sleep: it looks every 20 ms
    }
    assert_eq!(stays.parts().unwrap().len(), 4);
    assert_eq!(list_groups(&store).unwrap()[0].members.len(), 1);
    // The next process sees it too.
    let claim = claimed(&machine);
    drop(stays);
    drop(claim);
    let other = open(&store, &orders);
    assert_eq!(other.parts().unwrap().len(), 4);
    drop(other);
    seek_group(&store, "billing", &orders, 0, Start::Latest).unwrap();
}

#[test]
fn an_opening_that_fails_anywhere_leaves_no_member_without_a_process() {
    for nth in 1.. {
        let machine = machine_with_orders(WriteMode::Pwrite);
        let faulty = FaultyStorage::over_memory(machine.process());
        let store = hurried(Arc::new(faulty.clone()));
        let orders = topic(&store, 4);
        let locks = faulty.count(Call::Lock);
        faulty.plan(Fault::at(locks + nth, FailureKind::Errno(5)).only(Call::Lock).forever());
        let opened = GroupMember::open(&store, "billing", from_ref(&orders), Start::Earliest);
        faulty.heal();
        if opened.is_ok() {
            assert!(nth > 5, "the row and four partitions take the claim, not {nth} times");
            break;
        }
        let opened = open(&store, &orders);
        assert_eq!(opened.parts().unwrap().len(), 4, "the {nth}. lock failed");
        assert_eq!(list_groups(&store).unwrap()[0].members.len(), 1);
    }
}
