//! Information about a store.

use falaj::internals::store::PartitionInfo;
use falaj::internals::topic::SyncMode;

use crate::stores::{fill, flip, on_both, open, open_to_read, topic};

#[test]
fn info_tells_offsets_sizes_locks_and_slots() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        let orders = topic(&store, "orders").with_sync(SyncMode::None);
        fill(&orders, 0, 300);
        orders.flush().unwrap();
        fill(&orders, 300, 310);
        for looking in [&store, &open_to_read(storage, &path).unwrap()] {
            let info = looking.info().unwrap();
            assert_eq!((info.format, info.path.as_path()), (2, path.as_path()));
            let partitions = info.topics[0].partitions.as_ref().unwrap();
            let expected =
                PartitionInfo { partition: 0, first: 0, end: 310, durable: 300, finished: false };
            assert_eq!(partitions[..], [expected]);
            let log = &info.logs[0];
            assert_eq!((log.name.as_str(), &log.topics[..]), ("orders", &["orders".into()][..]));
            let extent = log.extent.as_ref().unwrap();
            assert!(extent.committed > extent.durable && !extent.latched && !extent.deleted);
            assert!(extent.segments.len() > 2 && extent.live > 310 * 500);
            assert!(extent.reserved >= extent.live, "{extent:?}");
            assert!(!extent.append_lock.held && !extent.sync_lock.held);
            let member = store.membership().unwrap();
            assert_eq!(info.incarnation, Some(member.incarnation()));
            assert_eq!(extent.incarnation, member.incarnation());
            let [slot] = info.slots[..] else { panic!("{:?}", info.slots) };
            assert_eq!((slot.slot, slot.alive), (0, Some(true)));
            assert_eq!(slot.process, Some(std::process::id()));
            assert_eq!(slot.generation, Some(member.identity().generation()));
        }
        drop((orders, store));
        let info = open_to_read(storage, &path).unwrap().info().unwrap();
        assert_eq!(info.slots[0].alive, Some(false));
    });
}

#[test]
fn a_damaged_topic_hides_no_other() {
    on_both(|storage, root| {
        let path = root.join("store");
        let store = open(storage, &path).unwrap();
        fill(&topic(&store, "orders"), 0, 3);
        topic(&store, "paid");
        flip(storage, &path.join("topics/paid/topic.json"), 20);
        let info = store.info().unwrap();
        assert!(info.topics[0].partitions.is_ok() && info.topics[0].settings.is_ok());
        assert!(info.topics[1].settings.is_err());
    });
}
