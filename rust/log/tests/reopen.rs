//! A log that is opened again while its last handle is just being dropped, by another thread.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stores;

use std::sync::atomic::{AtomicU64, Ordering};

use falaj::topic::{Record, SyncMode};

use stores::{on_both, open, topic};

#[test]
fn a_process_has_one_object_for_a_log_at_a_time_also_while_one_is_being_dropped() {
    on_both(|storage, root| {
        let store = open(storage, &root.join("store")).unwrap();
        drop(topic(&store, "orders"));
        let appended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..200 {
                        let sync = if i % 3 == 0 { SyncMode::Durable } else { SyncMode::None };
                        let orders = topic(&store, "orders");
                        orders.append(0, &Record::value(b"x"), Some(sync)).unwrap();
                        appended.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(topic(&store, "orders").end(0).unwrap(), appended.into_inner());
    });
}
