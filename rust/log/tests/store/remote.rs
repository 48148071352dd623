//! Shipping: appends that wait for another machine, readers of what has left this one, and what
//! retention keeps meanwhile. The shipper is another process of the machine in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use falaj::internals::error::{Error, Result};
use falaj::internals::format::address::Address;
use falaj::internals::format::control::at;
use falaj::internals::log::Wait;
use falaj::internals::shipper::Shipper;
use falaj::internals::storage::{Filesystem, MapAccess, OpenMode, Storage};
use falaj::internals::store::{RetentionChange, Shipping, Store};
use falaj::internals::topic::{
    CompactOptions, NewRecord, SyncMode, Topic, Transaction, Visibility,
};
use falaj_twin::faulty::{Call, FailureKind, Fault, FaultyStorage};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{fill, log_dir, open, topic, value};

const STORE: &str = "/store";
const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// A store that one process writes to and another ships.
struct Pair {
    machine: MemoryStorage,
    other: MemoryStorage,
    storage: Arc<dyn Storage>,
    orders: Topic,
    shipper: Store,
    shipping: Option<Shipping>,
}

impl Pair {
    fn new() -> Self {
        Self::on(MemoryStorage::new())
    }

    fn on(machine: MemoryStorage) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(machine.clone());
        Self::with(machine, storage)
    }

    fn with(machine: MemoryStorage, storage: Arc<dyn Storage>) -> Self {
        let store = open(&storage, Path::new(STORE)).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None).with_remote_timeout(SOON);
        let other = machine.process();
        let shipper =
            open(&(Arc::new(other.clone()) as Arc<dyn Storage>), Path::new(STORE)).unwrap();
        let shipping = Some(shipper.ship().unwrap());
        Self { machine, other, storage, orders, shipper, shipping }
    }

    fn log_name(&self) -> String {
        let dir = self.orders.log().dir();
        dir.file_name().unwrap().to_string_lossy().into_owned()
    }

    fn acknowledge(&self, end: Address) {
        self.shipper.acknowledge(&[(&self.log_name(), end)]).unwrap();
    }

    fn durable(&self) -> Address {
        self.orders.log().durable().unwrap()
    }

    /// Append one record in the remote mode. Once the record waits, `meanwhile` runs, and may ask
    /// whether the append has returned.
    fn append_asking(&self, meanwhile: impl FnOnce(&dyn Fn() -> bool)) -> Result<u64> {
        let before = self.orders.log().committed().unwrap();
        std::thread::scope(|scope| {
            let orders = self.orders.clone();
            let append = scope
                .spawn(move || orders.append_to(0, &NewRecord::new(b"x"), Some(SyncMode::Remote)));
            // It is durable, so the append waits for the shipper.
            while self.durable() <= before && !append.is_finished() {
                std::thread::yield_now();
            }
            meanwhile(&|| append.is_finished());
            append.join().unwrap()
        })
    }

    fn append_while(&self, meanwhile: impl FnOnce()) -> Result<u64> {
        self.append_asking(|_| meanwhile())
    }
}

fn page(topic: &Topic) -> falaj::internals::storage::Map {
    let path = topic.log().dir().join("control");
    let file = topic.store().storage().open(&path, OpenMode::ReadWrite).unwrap();
    file.map(4096, MapAccess::Write).unwrap()
}

/// The store as processes that write by maps have it, and as those that write by calls do.
fn on_both_modes(test: impl Fn(&Pair)) {
    test(&Pair::new());
    test(&Pair::on(MemoryStorage::new().on(Filesystem::CopyOnWrite("btrfs"))));
}

#[test]
fn an_append_returns_once_its_end_was_acknowledged_and_not_before() {
    on_both_modes(|pair| {
        let early = pair.durable();
        let is_acknowledged = AtomicBool::new(false);
        let before = pair.orders.log().committed().unwrap();
        std::thread::scope(|scope| {
            let append = scope.spawn(|| {
                let end = pair.orders.append_to(0, &NewRecord::new(b"x"), Some(SyncMode::Remote));
                assert!(is_acknowledged.load(Ordering::SeqCst), "it returned too early");
                end
            });
            while pair.durable() <= before {
                std::thread::yield_now();
            }
            // Less than its end wakes it, and does not end its wait.
            pair.acknowledge(early);
            pair.acknowledge(Address(pair.durable().0 - 8));
            is_acknowledged.store(true, Ordering::SeqCst);
            pair.acknowledge(pair.durable());
            assert_eq!(append.join().unwrap().unwrap(), 0);
        });
    });
}

#[test]
fn without_a_shipper_nothing_is_appended() {
    on_both_modes(|pair| {
        pair.shipping.as_ref().unwrap().stop(false);
        let refused = pair.orders.append_to(0, &NewRecord::new(b"x"), Some(SyncMode::Remote));
        let Err(Error::NoShipper { offset: None, store }) = refused else { panic!("{refused:?}") };
        assert_eq!((store.as_path(), pair.orders.end(0).unwrap()), (Path::new(STORE), 0));
        let mut transaction = Transaction::new(pair.orders.store()).with_sync(SyncMode::Remote);
        transaction.append_to(&pair.orders, 0, &NewRecord::new(b"x")).unwrap();
        assert!(matches!(transaction.commit(), Err(Error::NoShipper { offset: None, .. })));
        assert_eq!(pair.orders.end(0).unwrap(), 0);
    });
}

#[test]
fn a_shipper_that_stops_ends_the_wait_at_once_and_the_records_are_here() {
    on_both_modes(|pair| {
        let began = Instant::now();
        let ended = pair.append_while(|| pair.shipping.as_ref().unwrap().stop(false));
        assert!(matches!(ended, Err(Error::NoShipper { offset: Some(0), .. })), "{ended:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(pair.orders.durable(0).unwrap(), 1);
    });
}

#[test]
fn a_shipper_that_was_fenced_says_so_until_another_begins() {
    let pair = Pair::new();
    let ended = pair.append_while(|| pair.shipping.as_ref().unwrap().stop(true));
    assert!(matches!(ended, Err(Error::Fenced { offset: Some(0), .. })), "{ended:?}");
    let refused = pair.orders.append_to(0, &NewRecord::new(b"x"), Some(SyncMode::Remote));
    assert!(matches!(refused, Err(Error::Fenced { offset: None, .. })), "{refused:?}");
    assert_eq!(pair.shipper.shipper(), Shipper::Fenced);
    let _again = pair.shipper.ship().unwrap();
    let done = pair.append_while(|| pair.acknowledge(pair.durable()));
    assert_eq!(done.unwrap(), 1);
}

#[test]
fn a_shipper_that_dies_ends_the_wait_and_another_process_may_begin() {
    on_both_modes(|pair| {
        let ended = pair.append_while(|| pair.other.kill());
        assert!(matches!(ended, Err(Error::NoShipper { offset: Some(0), .. })), "{ended:?}");
        let refused = pair.orders.append_to(0, &NewRecord::new(b"x"), Some(SyncMode::Remote));
        assert!(matches!(refused, Err(Error::NoShipper { offset: None, .. })), "{refused:?}");
        let _next = pair.orders.store().ship().unwrap();
        let dir = pair.log_name();
        let done = pair.append_while(|| {
            pair.orders.store().acknowledge(&[(&dir, pair.durable())]).unwrap();
        });
        assert_eq!(done.unwrap(), 1);
    });
}

#[test]
fn a_second_shipper_is_refused_with_the_process_of_the_first() {
    on_both_modes(|pair| {
        for store in [pair.orders.store(), &pair.shipper] {
            let refused = store.ship().unwrap_err().to_string();
            let process = format!("process {} (slot 1)", std::process::id());
            assert!(refused.contains(&process), "{refused}");
        }
        let dir = pair.log_name();
        let other = pair.orders.store().acknowledge(&[(&dir, pair.durable())]);
        assert!(matches!(other, Err(Error::InvalidArgument { .. })), "{other:?}");
    });
}

#[test]
fn a_wait_that_takes_too_long_says_where_the_records_are() {
    let pair = Pair::new();
    let hasty = pair.orders.with_remote_timeout(Some(Duration::from_millis(20)));
    let late = hasty.append_to(0, &NewRecord::new(b"x"), Some(SyncMode::Remote));
    let Err(Error::RemoteTimeout { offset: Some(0), .. }) = &late else { panic!("{late:?}") };
    let said = late.unwrap_err().to_string();
    assert!(said.contains("on this disk from offset 0 on"), "{said}");
    assert_eq!(pair.orders.durable(0).unwrap(), 1);
}

#[test]
fn an_acknowledgement_counts_no_further_than_this_disk() {
    on_both_modes(|pair| {
        fill(&pair.orders, 0, 5);
        pair.orders.flush().unwrap();
        let durable = pair.durable();
        fill(&pair.orders, 5, 9);
        pair.acknowledge(pair.orders.log().committed().unwrap());
        assert_eq!(pair.orders.log().remote(), Some(durable));
        assert_eq!(pair.orders.remote(0).unwrap(), 5);
    });
}

#[test]
fn a_word_that_is_ahead_of_the_disk_counts_no_further_than_it() {
    let pair = Pair::new();
    fill(&pair.orders, 0, 9);
    let end = pair.orders.log().committed().unwrap();
    page(&pair.orders).store(at::REMOTE, end.0).unwrap();
    assert_eq!(pair.orders.remote(0).unwrap(), 0);
    pair.orders.flush().unwrap();
    assert_eq!(pair.orders.remote(0).unwrap(), 9);
}

#[test]
fn a_roll_between_append_and_acknowledgement_changes_nothing() {
    on_both_modes(|pair| {
        let done = pair.append_while(|| {
            fill_more(&pair.orders, 300);
            pair.orders.flush().unwrap();
            assert!(pair.durable().sequence() > 1);
            pair.acknowledge(pair.durable());
        });
        assert_eq!(done.unwrap(), 0);
    });
}

fn fill_more(orders: &Topic, records: u64) {
    for _ in 0..records {
        orders.append_to(0, &NewRecord::new(&value(1)), None).unwrap();
    }
}

/// A sync fails, and the bytes move to another segment: the address at which they were appended is
/// no longer one of the log.
#[test]
fn an_address_of_a_superseded_segment_acknowledges_nothing() {
    let machine = MemoryStorage::new();
    let faulty = FaultyStorage::new(Arc::new(machine.clone()));
    let pair = Pair::with(machine, Arc::new(faulty.clone()));
    fill(&pair.orders, 0, 3);
    pair.orders.flush().unwrap();
    let kept = pair.durable();
    fill(&pair.orders, 3, 6);
    let old = pair.orders.log().committed().unwrap();
    let next = faulty.count(Call::SyncData) + 1;
    faulty.plan(Fault::at(next, FailureKind::Errno(5)).only(Call::SyncData));
    let done = pair.append_asking(|has_returned| {
        let moved = pair.durable();
        assert!(moved.sequence() > old.sequence(), "{moved:?}");
        pair.acknowledge(old);
        assert_eq!(
            pair.orders.log().remote(),
            Some(kept),
            "up to where that segment's content ends"
        );
        // The beginning of the new segment is behind the old address as a number, and has nothing.
        pair.acknowledge(Address::new(moved.sequence(), 8192));
        assert_eq!(pair.orders.remote(0).unwrap(), 3);
        // sleep: no event reports that an append goes on waiting
        std::thread::sleep(Duration::from_millis(50));
        assert!(!has_returned(), "the place has nothing of the append");
        pair.acknowledge(moved);
    });
    assert_eq!(done.unwrap(), 6);
    assert_eq!(pair.orders.remote(0).unwrap(), 7);
}

#[test]
fn what_left_the_machine_is_proved_again_after_every_incarnation() {
    let pair = Pair::new();
    fill(&pair.orders, 0, 50);
    pair.orders.flush().unwrap();
    pair.acknowledge(pair.durable());
    page(&pair.orders).store(at::UNSHIPPED, 7).unwrap();
    let crashes: Vec<_> = pair.machine.journal().crashes_from(0).collect();
    for crash in crashes.iter().step_by(7).chain(crashes.last()) {
        for selection in [crash.nothing(), crash.everything()] {
            let image: Arc<dyn Storage> = Arc::new(crash.image(&selection).restart());
            let Ok(store) = open(&image, Path::new(STORE)) else { continue };
            if store.topic_names().unwrap().is_empty() {
                continue;
            }
            let orders = topic(&store, "orders").with_visibility(Visibility::Remote);
            assert_eq!(orders.log().remote(), Some(Address(0)));
            assert_eq!((orders.log().shipped(), orders.log().unshipped_bytes()), (Address(0), 0));
            assert_eq!(orders.end(0).unwrap(), orders.first(0).unwrap());
            assert_eq!(store.shipper(), Shipper::Absent);
        }
    }
}

#[test]
fn a_remote_reader_sees_what_was_acknowledged_in_all_that_it_does() {
    on_both_modes(|pair| {
        let remote = pair.orders.with_visibility(Visibility::Remote);
        let mut follow = remote.follow(..).unwrap().with_timeout(Some(Duration::ZERO));
        fill(&pair.orders, 0, 3);
        pair.orders.flush().unwrap();
        assert!(follow.next().is_none());
        assert_eq!((remote.end(0).unwrap(), pair.orders.end(0).unwrap()), (0, 3));
        let three = pair.durable();
        fill(&pair.orders, 3, 5);
        pair.orders.flush().unwrap();
        pair.acknowledge(three);
        assert_eq!((remote.end(0).unwrap(), follow.by_ref().count()), (3, 3));
        assert_eq!(remote.get_in(0, 2).unwrap().offset(), 2);
        let behind = remote.get_in(0, 3).unwrap_err();
        assert!(matches!(behind, Error::OffsetOutOfRange { offset: 3, end: 3, .. }), "{behind}");
        assert_eq!(remote.scan(..).unwrap().count(), 3);
        let last = pair.orders.get_in(0, 4).unwrap().timestamp_ns();
        assert_eq!(remote.offset_at_time(0, last).unwrap().filter(|found| *found > 2), None);
        pair.acknowledge(pair.durable());
        assert_eq!((follow.count(), remote.end(0).unwrap()), (2, 5));
    });
}

#[test]
fn a_remote_follower_sleeps_until_an_acknowledgement_wakes_it() {
    let pair = Pair::new();
    let remote = pair.orders.with_visibility(Visibility::Remote);
    let log = remote.log();
    for _ in 0..3 {
        let seen = log.remote().unwrap();
        std::thread::scope(|scope| {
            let follower =
                scope.spawn(|| log.wait_for_remote(Address(seen.0 + 1), SOON, &|| false).unwrap());
            while page(&pair.orders).load(at::WAITING) & falaj::internals::wake::REMOTE_FOLLOWERS
                == 0
            {
                std::thread::yield_now();
            }
            let before = log.wakes();
            fill_more(&pair.orders, 3);
            assert_eq!(log.wakes(), before, "an append woke a reader that waits for the shipper");
            pair.orders.flush().unwrap();
            let began = Instant::now();
            pair.acknowledge(pair.durable());
            assert_eq!(follower.join().unwrap(), Wait::News);
            // The bound of a sleep is a second.
            assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
        });
    }
}

#[test]
fn a_shipper_sleeps_until_an_append_waits_and_a_reader_does_not_wake_it() {
    const LONG: Duration = Duration::from_secs(60);
    let mut pair = Pair::new();
    let shipping = pair.shipping.take().unwrap();
    // As a cut leaves it.
    let _open = topic(&pair.shipper, "orders");
    let remote = pair.orders.with_visibility(Visibility::Remote);
    let log = remote.log();
    fill(&pair.orders, 0, 3);
    pair.orders.flush().unwrap();
    assert!(!shipping.wait(Duration::ZERO));
    let more = Address(log.remote().unwrap().0 + 1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| log.wait_for_remote(more, SOON, &|| false).unwrap());
        while page(&pair.orders).load(at::WAITING) & falaj::internals::wake::REMOTE_FOLLOWERS == 0 {
            std::thread::yield_now();
        }
        assert!(!shipping.wait(Duration::from_millis(50)), "a reader hurried the shipper");
        let began = Instant::now();
        let appended = pair.append_while(|| {
            assert!(shipping.wait(LONG));
            assert!(began.elapsed() < LONG / 2, "no process woke it");
            pair.acknowledge(pair.durable());
        });
        assert_eq!(appended.unwrap(), 3);
        assert_eq!(reader.join().unwrap(), Wait::News);
    });
    // The acknowledgement took the flag.
    assert!(!shipping.wait(Duration::from_millis(50)));
}

#[test]
fn an_append_to_a_log_that_the_shipper_has_not_open_ends_its_sleep() {
    let mut pair = Pair::new();
    let shipping = pair.shipping.take().unwrap();
    // In this process no log is open, so it cannot look at flags: only the wake tells.
    assert!(!shipping.wait(Duration::ZERO));
    let appended = std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| shipping.wait(Duration::from_secs(60)));
        pair.append_asking(|_| {
            assert!(sleeping.join().unwrap());
            pair.acknowledge(pair.durable());
        })
    });
    assert_eq!(appended.unwrap(), 0);
}

#[test]
fn a_watch_over_remote_topics_reports_acknowledgements_only() {
    let pair = Pair::new();
    let remote = pair.orders.with_visibility(Visibility::Remote);
    let (watch, mut watched) = (pair.orders.store().watch(), [remote.watched()]);
    fill(&pair.orders, 0, 3);
    pair.orders.flush().unwrap();
    assert!(watch.wait(&mut watched, Duration::ZERO).is_empty());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| watch.wait(&mut watched, SOON.unwrap()));
        pair.acknowledge(pair.durable());
        assert_eq!(waiter.join().unwrap(), [0]);
    });
}

#[test]
fn waiting_for_records_by_offset_ends_with_the_acknowledgement() {
    let pair = Pair::new();
    fill(&pair.orders, 0, 3);
    let now = Some(Duration::ZERO);
    let wait = |offset, timeout| pair.orders.wait_remote_in(0, offset, timeout, &|| false);
    assert_eq!(wait(3, now).unwrap(), Wait::TimedOut);
    assert!(matches!(wait(4, now), Err(Error::OffsetOutOfRange { offset: 3, .. })));
    pair.acknowledge(pair.durable());
    assert_eq!(wait(3, now).unwrap(), Wait::News);
    pair.shipping.as_ref().unwrap().stop(false);
    assert_eq!(wait(3, now).unwrap(), Wait::News, "known without a shipper");
    fill(&pair.orders, 3, 4);
    assert!(matches!(wait(4, SOON), Err(Error::NoShipper { .. })));
}

/// Compaction gives a durable segment other blocks under the same number.
#[test]
fn compaction_lets_no_remote_reader_see_what_was_not_shipped() {
    let pair = Pair::new();
    let prices = pair.orders.store().topic_options("prices");
    let prices = prices.compacted(true).segment_bytes(64 << 10);
    let prices = prices.open().unwrap().with_sync(SyncMode::None);
    let put = |i: u64| {
        let key = format!("{}", i % 2);
        prices.append_to(0, &NewRecord::new(&[7; 300]).key(&key), None).unwrap();
    };
    (0..40).for_each(put);
    prices.flush().unwrap();
    let dir = prices.log().dir().file_name().unwrap().to_string_lossy().into_owned();
    let shipped = prices.log().durable().unwrap();
    pair.shipper.acknowledge(&[(&dir, shipped)]).unwrap();
    (40..80).for_each(put);
    prices.flush().unwrap();
    let remote = prices.with_visibility(Visibility::Remote);
    assert_eq!(remote.end(0).unwrap(), 40);
    let options = CompactOptions::default().seal(true);
    assert!(prices.compact(&options, &mut |_, _| Ok(())).unwrap().removed > 70);
    assert!(remote.end(0).unwrap() <= 40, "{}", remote.end(0).unwrap());
    pair.shipper.acknowledge(&[(&dir, prices.log().durable().unwrap())]).unwrap();
    assert_eq!(remote.end(0).unwrap(), 80);
}

fn limit(bytes: u64) -> RetentionChange {
    RetentionChange::default().bytes(bytes)
}

/// A pair with a topic of several files that are beyond its limit.
fn beyond_limits() -> Pair {
    let pair = Pair::new();
    fill(&pair.orders, 0, 900);
    pair.orders.flush().unwrap();
    pair.orders.set_retention(&limit(130 << 10)).unwrap();
    pair
}

fn mark_as_shipped(pair: &Pair) {
    pair.storage.open(&Path::new(STORE).join("ship.json"), OpenMode::CreateNew(0o600)).unwrap();
}

#[test]
fn retention_keeps_what_was_not_shipped_and_deletes_it_once_it_was() {
    let pair = beyond_limits();
    mark_as_shipped(&pair);
    pair.orders.store().maintain(false).unwrap();
    assert_eq!(pair.orders.first(0).unwrap(), 0, "nothing was shipped yet");
    let half = pair.orders.log().durable().unwrap();
    let middle = Address::new(half.sequence() / 2, 8192);
    pair.acknowledge(middle);
    pair.orders.store().maintain(false).unwrap();
    let first = pair.orders.first(0).unwrap();
    assert!(first > 0, "what was shipped goes");
    assert!(first <= pair.orders.remote(0).unwrap(), "and no more");
    pair.acknowledge(pair.durable());
    pair.orders.store().maintain(false).unwrap();
    assert!(pair.orders.first(0).unwrap() > first);
    assert_eq!(pair.orders.log().unshipped_bytes(), 0);
}

#[test]
fn a_store_that_was_never_shipped_keeps_nothing_for_a_shipper() {
    let pair = beyond_limits();
    pair.orders.store().maintain(false).unwrap();
    assert!(pair.orders.first(0).unwrap() > 0);
    assert_eq!(pair.orders.log().unshipped_bytes(), 0);
}

#[test]
fn a_backlog_beyond_the_cap_is_deleted_and_counted() {
    let pair = beyond_limits();
    mark_as_shipped(&pair);
    pair.orders.store().configure_shipping(Some(300 << 10)).unwrap();
    pair.orders.store().maintain(false).unwrap();
    let first = pair.orders.first(0).unwrap();
    assert!(first > 0, "more waits than the cap");
    let dir = log_dir(&pair.storage, Path::new(STORE), "orders");
    let left: u64 = pair
        .storage
        .list(&dir)
        .unwrap()
        .iter()
        .filter(|name| name.ends_with(".log") || name.ends_with(".idx"))
        .map(|name| pair.storage.stat(&dir.join(name)).unwrap().allocated)
        .sum();
    assert!((130 << 10..=364 << 10).contains(&left), "{left}");
    let gap = pair.orders.log().unshipped_bytes();
    assert!(gap >= 64 << 10, "{gap}");
    assert_eq!(pair.orders.store().info().unwrap().logs[0].extent.as_ref().unwrap().unshipped, gap);
    pair.orders.store().maintain(false).unwrap();
    assert_eq!(pair.orders.log().unshipped_bytes(), gap, "a gap counts once");
}

#[test]
fn the_limit_of_the_store_keeps_what_was_not_shipped_too() {
    let pair = beyond_limits();
    mark_as_shipped(&pair);
    pair.orders.set_retention(&RetentionChange::default().bytes(None)).unwrap();
    pair.orders.store().configure(Some(100 << 10)).unwrap();
    pair.orders.store().maintain(false).unwrap();
    assert_eq!(pair.orders.first(0).unwrap(), 0);
    pair.acknowledge(pair.durable());
    pair.orders.store().maintain(false).unwrap();
    assert!(pair.orders.first(0).unwrap() > 0);
}

#[test]
fn a_trim_by_hand_waits_for_no_shipper() {
    let pair = beyond_limits();
    mark_as_shipped(&pair);
    pair.orders.trim_before(700).unwrap();
    assert_eq!(pair.orders.first(0).unwrap(), 700);
    assert_eq!(pair.orders.log().unshipped_bytes(), 0);
}
