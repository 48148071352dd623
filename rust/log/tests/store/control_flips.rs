//! Any flipped bit of a control page that no process has open: harmless, or an error, for each
//! process that comes.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use falaj::internals::error::Error;
use falaj::internals::format::control::{self, at};
use falaj::internals::format::settings::WriteMode;
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Store, StoreOptions};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};
use falaj_twin::memory::MemoryStorage;

use crate::stores::{fill, log_dir, open, open_to_read, read_until_error, topic, value};

const RECORDS: u64 = 150;
const PATH: &str = "/store";

/// A closed store whose log has two segments.
fn prepare() -> MemoryStorage {
    let machine = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    fill(&topic(&open(&storage, Path::new(PATH)).unwrap(), "orders"), 0, RECORDS);
    machine.restart()
}

fn flip(storage: &Arc<dyn Storage>, position: u64, bit: u8) {
    let control = log_dir(storage, Path::new(PATH), "orders").join("control");
    let file = storage.open(&control, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, position).unwrap();
    file.write_at(&[byte[0] ^ 1 << bit], position).unwrap();
}

fn orders(store: &Store) -> falaj::internals::error::Result<Topic> {
    Topic::open(store, "orders", &Default::default())
}

/// Bits of the words that are used; the other bits have no meaning.
fn bits() -> impl Iterator<Item = (u64, u8)> {
    control::WORDS
        .into_iter()
        .flat_map(|word| (word..word + 8).flat_map(|byte| (0..8).map(move |b| (byte, b))))
}

#[test]
fn a_reader_gets_the_true_end_or_an_error_whatever_bit_of_the_page_flipped() {
    let storage: Arc<dyn Storage> = Arc::new(prepare());
    for (position, bit) in bits() {
        flip(&storage, position, bit);
        let story = format!("bit {bit} of byte {position}");
        let orders = orders(&open_to_read(&storage, Path::new(PATH)).unwrap()).unwrap();
        let ended = orders.end(0);
        assert!(ended.as_ref().map_or(true, |end| *end == RECORDS), "{story}: {ended:?}");
        let durable = orders.durable(0);
        assert!(durable.as_ref().is_ok_and(|end| *end <= RECORDS), "{story}: {durable:?}");
        let (found, error) = read_until_error(&orders);
        assert!(error.is_some() || found.len() as u64 == RECORDS, "{story}");
        flip(&storage, position, bit);
    }
}

#[test]
fn a_writer_recovers_and_appends_whatever_bit_of_the_page_flipped() {
    let machine = prepare();
    let (tell, told) = channel();
    let work = move || {
        for (position, bit) in bits() {
            let storage: Arc<dyn Storage> = Arc::new(machine.restart());
            flip(&storage, position, bit);
            let orders = orders(&open(&storage, Path::new(PATH)).unwrap()).unwrap();
            let appended =
                orders.append_to(0, &NewRecord::new(&value(RECORDS)), Some(SyncMode::Durable));
            tell.send((position, bit, appended.is_ok_and(|offset| offset == RECORDS))).unwrap();
        }
    };
    let worker = std::thread::spawn(work);
    for (position, bit) in bits() {
        let ended = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(
            ended,
            Ok((position, bit, true)),
            "bit {bit} of byte {position}: the call must end"
        );
    }
    worker.join().unwrap();
}

/// The page's bit says that the log was deleted, and `topic.json` that it was not.
///
/// A deletion removes `topic.json` before it sets the bit.
#[test]
fn a_flag_of_deletion_is_believed_only_of_a_topic_that_is_gone() {
    for write_mode in [WriteMode::Mapped, WriteMode::Pwrite] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = StoreOptions { write_mode: Some(write_mode), ..StoreOptions::default() };
        let open = || Store::open_on(Arc::clone(&storage), PATH, &options).unwrap();
        fill(&topic(&open(), "orders"), 0, RECORDS);
        flip(&storage, at::FLAGS, 1);
        let store = open();
        let topic = orders(&store).unwrap();
        assert_eq!(
            topic.append_to(0, &NewRecord::new(b"x"), None).unwrap(),
            RECORDS,
            "{write_mode:?}"
        );
        // In use already: no process looks again, until one opens it again.
        flip(&storage, at::FLAGS, 1);
        assert!(matches!(
            topic.append_to(0, &NewRecord::new(b"y"), None),
            Err(Error::TopicDeleted { .. })
        ));
        drop(topic);
        let topic = orders(&store).unwrap();
        assert_eq!(topic.append_to(0, &NewRecord::new(b"z"), None).unwrap(), RECORDS + 1);
        // If the topic was deleted, the bit is believed.
        store.delete_topic("orders").unwrap();
        assert!(matches!(
            topic.append_to(0, &NewRecord::new(b"y"), None),
            Err(Error::TopicDeleted { .. })
        ));
    }
}

/// A flag that this version does not know appears while a process has the log open.
///
/// Appends raise an error, and do not loop.
#[test]
fn an_unknown_flag_in_a_page_in_use_is_an_error_and_no_endless_loop() {
    let storage: Arc<dyn Storage> = Arc::new(prepare());
    let store = open(&storage, Path::new(PATH)).unwrap();
    let topic = orders(&store).unwrap();
    topic.append_to(0, &NewRecord::new(b"before"), None).unwrap();
    let (tell, told) = channel();
    flip(&storage, at::FLAGS, 5);
    let other = topic.clone();
    std::thread::spawn(move || {
        tell.send(other.append_to(0, &NewRecord::new(b"x"), None).map(drop))
    });
    let ended = told.recv_timeout(Duration::from_secs(20)).expect("the call must end");
    let said = ended.unwrap_err().to_string();
    assert!(said.contains("an unknown flag is set") && said.contains("control"), "{said}");
    flip(&storage, at::FLAGS, 5);
    assert_eq!(topic.append_to(0, &NewRecord::new(b"x"), None).unwrap(), RECORDS + 1);
}
