//! Two processes that delete the same store's records at once delete no more than the limit
//! requires.

use std::cell::Cell;

use crate::store::{StoreOptions, TopicOptions};
use crate::topic::{NewRecord, SyncMode, Topic};
use crate::twin::memory::MemoryStorage;

use super::*;

/// A process plans by counting, and another one deletes some before or meanwhile.
#[test]
fn who_is_overtaken_by_another_one_takes_no_more_than_there_is_too_much() {
    for overtaken_at in [0, 1] {
        let memory = MemoryStorage::new();
        let store = Store::open_on(Arc::new(memory), "/store", &StoreOptions::default()).unwrap();
        let small = TopicOptions { segment_bytes: Some(64 << 10), ..TopicOptions::default() };
        let orders = Topic::open(&store, "orders", &small).unwrap().with_sync(SyncMode::None);
        for _ in 0..1200 {
            orders.append_to(0, &NewRecord::new(&[7; 500]), None).unwrap();
        }
        orders.flush().unwrap();
        let segment = (64 << 10) as u64;
        let most = store.taken().unwrap() - 2 * segment;
        store.configure(Some(most)).unwrap();
        let mut plans: Vec<LogPlan> = store
            .by_log(&mut Vec::new())
            .unwrap()
            .into_iter()
            .map(|(dir, topics)| {
                store.plan(&dir, store.open_log(&topics[0]).unwrap(), topics).unwrap()
            })
            .collect();
        let (asked, taken_by_other) = (Cell::new(0), Cell::new(0));
        let taken = || {
            let before = store.taken();
            if asked.replace(asked.get() + 1) == overtaken_at {
                store.maintain(false)?;
                taken_by_other.set(orders.first(0)?);
                // At its second count it has noticed; at the first it could not.
                return if overtaken_at == 0 { before } else { store.taken() };
            }
            before
        };
        plan::apply_store(&mut plans, taken, most).unwrap();
        for plan in &plans {
            store.carry_out(plan).unwrap();
        }
        assert!(taken_by_other.get() > 0);
        assert_eq!(orders.first(0).unwrap(), taken_by_other.get(), "overtaken at {overtaken_at}");
        assert!(store.taken().unwrap() + 2 * segment > most);
    }
}
