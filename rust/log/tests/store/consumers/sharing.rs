//! Members: a partition has one owner at a time, the dead are replaced, the living never robbed.

use std::time::Duration;

use super::*;

/// A process of a machine, with the consumer open.
struct Process {
    machine: MemoryStorage,
    store: Store,
    orders: Topic,
    billing: Consumer,
}

impl Process {
    fn on(machine: &MemoryStorage, mode: WriteMode) -> Self {
        let machine = machine.process();
        let store = store_in(&machine, mode);
        let orders = topic(&store, 4);
        let billing = open(&store, &orders);
        Self { machine, store, orders, billing }
    }

    fn has(&self) -> Vec<u32> {
        self.billing.parts().unwrap().iter().map(|part| part.partition).collect()
    }

    /// As a poll does: hand out everything of a partition, or settle it.
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

    /// Look until it has so many partitions.
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
        assert!(second.has().is_empty(), "nobody is robbed");
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
fn a_partition_is_given_up_when_what_was_handed_out_is_committed_and_not_before() {
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
        assert_eq!(parts.iter().filter(|part| part.open).count(), 2, "it reads on in its own only");
        first.billing.commit_all(false).unwrap();
        first.billing.refresh().unwrap();
        second.billing.refresh().unwrap();
        assert_eq!((first.has().len(), second.has().len()), (2, 2));
        for part in second.billing.parts().unwrap() {
            assert_eq!(part.next, 3, "it goes on behind what was committed");
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
        assert!(matches!(error, Error::NotOwner { .. }), "{error}");
        assert_eq!(first.billing.committed("orders", given).unwrap(), 4);
    }
}

#[test]
fn what_a_dead_member_had_another_has_soon_and_goes_on_where_that_one_committed() {
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
        assert_eq!(first.billing.others(), 0);
    }
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
    let error = Consumer::open(&store, "billing", &both, Start::Earliest).unwrap_err();
    assert!(error.to_string().contains("other topics"), "{error}");
    drop(first);
    let opened = Consumer::open(&store, "billing", &both, Start::Earliest).unwrap();
    assert_eq!(opened.parts().unwrap().len(), 5);
}

#[test]
fn words_of_an_earlier_incarnation_name_nobody() {
    let machine = machine_with_orders(WriteMode::Mapped);
    std::mem::forget(Process::on(&machine, WriteMode::Mapped));
    // All are gone, and the next process has the same slot and, in a copy, perhaps the same generation.
    let store = store(&machine.survivor());
    assert_eq!(open(&store, &topic(&store, 4)).parts().unwrap().len(), 4);
}
