//! Acknowledgements of shipped logs while topics come and go.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use falaj::internals::format::address::Address;
use falaj::internals::storage::Storage;
use falaj_twin::memory::MemoryStorage;

use crate::stores::{open, topic};

#[test]
fn logs_of_topics_that_are_deleted_meanwhile_are_left_out() {
    let machine = MemoryStorage::new();
    let process = |machine: MemoryStorage| {
        let storage: Arc<dyn Storage> = Arc::new(machine);
        open(&storage, Path::new("/store")).unwrap()
    };
    let (store, shipper) = (process(machine.clone()), process(machine.process()));
    let (_shipping, is_over) = (shipper.ship().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                topic(&store, "passing").append(b"x").unwrap();
                store.delete_topic("passing").unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            let listed = shipper.topics().unwrap().into_iter();
            for settings in listed.filter_map(|(_, topic)| topic.ok()) {
                shipper.acknowledge(&[(&settings.log_dir(), Address(0))]).unwrap();
            }
        }
    });
}
