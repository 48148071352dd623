//! Stores and files of other versions of the format: every process refuses them by name, and leaves
//! them unchanged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use falaj::internals::consumer::{GroupMember, Start};
use falaj::internals::error::{Error, Result};
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::names;
use falaj::internals::log::Reading;
use falaj::internals::queue::{QueueFile, QueueOptions};
use falaj::internals::storage::{OpenMode, Storage};
use falaj::internals::store::{Store, StoreOptions, TopicOptions, repair, verify};
use falaj::internals::topic::{NewRecord, Topic};

use crate::stores::{fill, log_dir, on_both, open, open_to_read, quietly, snapshot, topic};

/// A closed store with a topic, a group and a queue.
fn prepare(storage: &Arc<dyn Storage>, root: &Path) -> PathBuf {
    let path = root.join("store");
    let store = open(storage, &path).unwrap();
    let orders = topic(&store, "orders");
    fill(&orders, 0, 300);
    drop(
        GroupMember::open(&store, "billing", std::slice::from_ref(&orders), Start::Earliest)
            .unwrap(),
    );
    drop(QueueFile::open(&orders, "work", QueueOptions::default()).unwrap());
    path
}

/// Give a file another version, with a valid checksum.
fn set_version(storage: &Arc<dyn Storage>, path: &Path, header_len: usize, version: u8) {
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_at(&mut bytes, 0).unwrap();
    if header_len > 0 {
        bytes[8] = version;
        let crc = crc32(&bytes[..header_len - 4]);
        bytes[header_len - 4..header_len].copy_from_slice(&crc.to_le_bytes());
    } else {
        let text = String::from_utf8(bytes).unwrap();
        let (sealed, _) = text.rsplit_once(",\"checksum\"").unwrap();
        let (_, members) = sealed.split_once(',').unwrap();
        let sealed = format!("{{\"format\":{version},{members}");
        bytes = format!("{sealed},\"checksum\":\"{:08x}\"}}\n", crc32(sealed.as_bytes())).into();
    }
    file.write_at(&bytes, 0).unwrap();
}

/// Check that the error names the file, both versions, and a remedy.
fn expect_refusal(error: &Error, path: &Path, version: u8) {
    let said = error.to_string();
    let is_right = match error {
        Error::OutdatedFormat { path: named, version: found } => {
            (named, *found) == (&path.to_path_buf(), u32::from(version))
                && said.contains("version 1, and this falaj reads version 2")
                && said.contains("append them to a new store")
        }
        Error::UnsupportedVersion { path: named, .. } => {
            (named, version) == (&path.to_path_buf(), 3)
                && said.contains("version 3, and this falaj reads 2")
                && said.contains("upgrade")
        }
        _ => false,
    };
    assert!(is_right, "version {version} of {}: {error:?} {said}", path.display());
}

#[test]
fn a_store_of_another_version_is_refused_by_all_and_left_as_it_is() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        for version in [1, 3] {
            let settings = path.join("falaj.json");
            set_version(storage, &settings, 0, version);
            let before = snapshot(storage, &path);
            let refused = |error: Error| {
                expect_refusal(&error, &settings, version);
                assert!(snapshot(storage, &path) == before, "version {version}: files changed");
            };
            refused(open(storage, &path).unwrap_err());
            refused(open_to_read(storage, &path).unwrap_err());
            let pread = StoreOptions { reading: Reading::Pread, ..StoreOptions::reading() };
            refused(Store::open_on(Arc::clone(storage), &path, &pread).unwrap_err());
            refused(verify(storage, &path, None, &mut quietly).unwrap_err());
            for dry_run in [true, false] {
                let options = StoreOptions::default();
                let found = repair(Arc::clone(storage), &path, &options, dry_run);
                refused(found.map(drop).unwrap_err());
            }
            set_version(storage, &settings, 0, 2);
        }
        assert!(open(storage, &path).is_ok());
    });
}

#[test]
fn a_file_of_another_version_is_refused_by_name_and_neither_repaired_nor_replaced() {
    on_both(|storage, root| {
        let path = prepare(storage, root);
        let log = log_dir(storage, &path, "orders");
        let newest = names::segment(storage_newest(storage, &log));
        let files = [
            (path.join("topics/orders/topic.json"), 0),
            (log.join(newest), 512),
            (log.join("control"), 64),
            (path.join("wake"), 64),
            (path.join("consumers/billing"), 64),
            (path.join("queues/work"), 512),
        ];
        for (file, len) in files {
            for version in [1, 3] {
                let sound = read(storage, &file);
                set_version(storage, &file, len, version);
                let changed = read(storage, &file);
                expect_refusal(&use_all(storage, &path).unwrap_err(), &file, version);
                let mended = repair(Arc::clone(storage), &path, &StoreOptions::default(), false);
                drop(mended);
                assert!(read(storage, &file) == changed, "{}: must not change", file.display());
                storage.open(&file, OpenMode::ReadWrite).unwrap().write_at(&sound, 0).unwrap();
            }
        }
        use_all(storage, &path).unwrap();
    });
}

fn storage_newest(storage: &Arc<dyn Storage>, log: &Path) -> u64 {
    let listed = storage.list(log).unwrap();
    listed.iter().filter_map(|name| names::parse_segment(name)).max().unwrap()
}

fn read(storage: &Arc<dyn Storage>, path: &Path) -> Vec<u8> {
    let file = storage.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Open the store, its topic, group and queue for writing, and append.
fn use_all(storage: &Arc<dyn Storage>, path: &Path) -> Result<()> {
    let store = open(storage, path)?;
    let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    orders.append_to(0, &NewRecord::new(b"more"), None)?;
    GroupMember::open(&store, "billing", std::slice::from_ref(&orders), Start::Earliest)?;
    QueueFile::open(&orders, "work", QueueOptions::default())?;
    Ok(())
}
