//! Views of a place: stores that are read while their segments are elsewhere. The place is a cut of a
//! store of the test.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use falaj::internals::error::Error;
use falaj::internals::format::names;
use falaj::internals::log::SegmentCut;
use falaj::internals::storage::real::RealStorage;
use falaj::internals::storage::{
    Elsewhere, MapAccess, Needed, NewStandIn, OpenMode, Source, Storage,
};
use falaj::internals::store::{
    Cut, PlaceView, SealedSegment, Store, StoreOptions, TopicOptions, ViewSegment,
};
use falaj::internals::topic::{CompactOptions, NewRecord, SyncMode, Topic};

use crate::stores::{assert_holds, fill, quietly, read_until_error, topic};

/// Where the blocks of a segment begin.
const FIRST_BLOCK: u64 = 8192;

/// How the source answers when it is asked for bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Bytes,
    /// It says that it is done, and brought nothing.
    Nothing,
    Error,
}

/// A place: a cut, and what was asked of it.
#[derive(Debug, Default)]
struct Place {
    cut: Option<Cut>,
    view: Weak<PlaceView>,
    answer: Answer,
    asked: Vec<(Option<u64>, Needed)>,
    files: u64,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Place>>);

impl Source for Shared {
    fn bring(&self, path: &Path, needed: Needed) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap();
        let sequence = names::parse_segment(name);
        let mut place = self.0.lock().unwrap();
        place.asked.push((sequence, needed));
        match place.answer {
            Answer::Bytes => place.bring(sequence, needed),
            Answer::Nothing => {}
            Answer::Error => return Err(io::Error::other("the place is out of reach")),
        }
        Ok(())
    }
}

impl Place {
    fn cut(&self) -> &Cut {
        self.cut.as_ref().unwrap()
    }

    fn bring(&mut self, sequence: Option<u64>, needed: Needed) {
        let view = self.view.upgrade().unwrap();
        let Some(sequence) = sequence else { return self.publish(&view) };
        let log = self.cut().logs()[0].directory();
        if needed == Needed::Beginning {
            let bytes = self.cut().read(0, sequence, FIRST_BLOCK..FIRST_BLOCK + 4096).unwrap();
            return view.put_beginning(&log, sequence, &bytes).unwrap();
        }
        let path = self.whole(&view, sequence);
        view.put(&log, sequence, &path).unwrap();
    }

    /// Make a whole file of a segment, and return its path.
    fn whole(&mut self, view: &PlaceView, sequence: u64) -> PathBuf {
        self.files += 1;
        let path = view.path().with_file_name(format!("{}.tmp", self.files));
        let log = &self.cut().logs()[0];
        let segment = log.segments().iter().find(|s| s.header.sequence == sequence).unwrap();
        let header = segment.header.encode();
        let told = ViewSegment {
            header: &header,
            end: segment.end,
            len: segment.len,
            sealed: segment.sealed,
        };
        view.blank(&path, &log.directory(), &told).unwrap();
        let file = RealStorage::new().open(&path, OpenMode::ReadWrite).unwrap();
        for bytes in log.extents(sequence, FIRST_BLOCK).unwrap() {
            let read = self.cut().read(0, sequence, bytes.clone()).unwrap();
            file.write_at(&read, bytes.start).unwrap();
        }
        path
    }

    /// Let readers see the log as the cut has it: stand-ins, and the last segment whole.
    fn publish(&mut self, view: &PlaceView) {
        self.put_last(view);
        self.show(view, &[]);
    }

    fn put_last(&mut self, view: &PlaceView) {
        let log = &self.cut().logs()[0];
        let (name, last) = (log.directory(), log.segments().last().unwrap().header.sequence);
        let path = self.whole(view, last);
        view.put(&name, last, &path).unwrap();
    }

    /// Let readers see the log as the cut has it, without these segments.
    fn show(&self, view: &PlaceView, gone: &[u64]) {
        let log = &self.cut().logs()[0];
        let headers: Vec<_> = log.segments().iter().map(|s| s.header.encode()).collect();
        let told: Vec<_> = log.segments().iter().zip(&headers).map(told).collect();
        let sealed: Vec<_> = told
            .iter()
            .zip(&headers[1..])
            .map(|(segment, next)| SealedSegment { segment: *segment, next })
            .collect();
        view.publish(&log.directory(), told.last().unwrap(), &sealed, gone).unwrap();
    }
}

fn told<'a>((segment, header): (&SegmentCut, &'a [u8; 512])) -> ViewSegment<'a> {
    ViewSegment { header, end: segment.end, len: segment.len, sealed: segment.sealed }
}

/// A store, and a view of what it held.
struct Pair {
    store: Store,
    orders: Topic,
    place: Shared,
    view: Arc<PlaceView>,
    _dir: tempfile::TempDir,
}

impl Pair {
    /// Append so many records, and begin a view of them.
    fn new(records: u64) -> Self {
        Self::of(topic, |orders| fill(orders, 0, records))
    }

    /// Make a topic, fill it, and begin a view of it.
    fn of(make: impl Fn(&Store, &str) -> Topic, begin: impl Fn(&Topic)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let orders = make(&store, "orders").with_sync(SyncMode::None);
        begin(&orders);
        let place = Shared::default();
        let view = PlaceView::create(&dir.path().join("view"), Box::new(place.clone())).unwrap();
        let view = Arc::new(view);
        place.0.lock().unwrap().view = Arc::downgrade(&view);
        let pair = Self { store, orders, place, view, _dir: dir };
        pair.cut();
        for file in pair.place.0.lock().unwrap().cut().files() {
            let parts: Vec<_> = file.parts.iter().map(|(at, b)| (*at, &b[..])).collect();
            pair.view.file(&file.path, file.len, &parts).unwrap();
        }
        pair.view.begin_log(&pair.log()).unwrap();
        pair
    }

    fn cut(&self) {
        let cut = self.store.cut(None).unwrap();
        self.place.0.lock().unwrap().cut = Some(cut);
    }

    fn log(&self) -> String {
        self.place.0.lock().unwrap().cut().logs()[0].directory()
    }

    fn reader(&self) -> Topic {
        let store = self.view.open(&StoreOptions::default()).unwrap();
        store.topic("orders").unwrap()
    }

    fn answer(&self, answer: Answer) {
        self.place.0.lock().unwrap().answer = answer;
    }

    fn asked(&self) -> Vec<(Option<u64>, Needed)> {
        std::mem::take(&mut self.place.0.lock().unwrap().asked)
    }

    /// The last segment as the cut has it, with its header.
    fn last(&self) -> (Vec<u8>, u64, u64) {
        let place = self.place.0.lock().unwrap();
        let last = place.cut().logs()[0].segments().last().unwrap().clone();
        (last.header.encode().to_vec(), last.header.sequence, last.end)
    }

    fn read(&self, sequence: u64, bytes: std::ops::Range<u64>) -> Vec<u8> {
        self.place.0.lock().unwrap().cut().read(0, sequence, bytes).unwrap()
    }
}

const RECORDS: u64 = 3_000;

#[test]
fn a_view_has_all_records_and_asks_for_each_segment_once() {
    let pair = Pair::new(RECORDS);
    let reader = pair.reader();
    assert_eq!(reader.committed(0).unwrap(), RECORDS);
    assert_eq!(pair.asked(), [(None, Needed::Whole)], "it asked for bytes that no reader wanted");
    assert_holds(&reader, RECORDS);
    let mut asked: Vec<_> = pair.asked();
    assert!(asked.len() > 3, "{asked:?}");
    let all = asked.len();
    asked.dedup();
    asked.sort_by_key(|one| one.0);
    asked.dedup();
    assert_eq!(asked.len(), all);
    assert_holds(&pair.reader(), RECORDS);
    assert!(pair.asked().is_empty());
}

#[test]
fn bytes_that_did_not_come_are_an_error_and_no_end() {
    let pair = Pair::new(RECORDS);
    let reader = pair.reader();
    assert_eq!(reader.committed(0).unwrap(), RECORDS);
    pair.answer(Answer::Nothing);
    let (found, error) = read_until_error(&reader);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(error.unwrap().os_error(), Some(libc::ESTALE));
    assert!(pair.asked().len() <= 1_000, "it asks without end");
    pair.answer(Answer::Bytes);
    assert_holds(&reader, RECORDS);
}

#[test]
fn an_error_of_the_source_reaches_the_reader() {
    let pair = Pair::new(RECORDS);
    let reader = pair.reader();
    assert_eq!(reader.committed(0).unwrap(), RECORDS);
    pair.answer(Answer::Error);
    let error = read_until_error(&reader).1.unwrap();
    assert!(error.to_string().contains("out of reach"), "{error}");
    pair.answer(Answer::Bytes);
    assert_holds(&reader, RECORDS);
}

#[test]
fn a_reader_sees_what_was_stored_only_once_it_is_published() {
    let pair = Pair::new(10);
    let reader = pair.reader();
    assert_holds(&reader, 10);
    let (log, (_, sequence, before)) = (pair.log(), pair.last());
    fill(&pair.orders, 10, 20);
    pair.cut();
    let (header, same, end) = pair.last();
    assert_eq!(same, sequence);
    let bytes = pair.read(sequence, before..end);
    // The end comes before the beginning: the order of the pieces is no promise.
    let half = (bytes.len() / 2) & !7;
    pair.view.store(&log, before + half as u64, &bytes[half..]).unwrap();
    assert_holds(&reader, 10);
    pair.view.store(&log, before, &bytes[..half]).unwrap();
    assert_holds(&reader, 10);
    assert_holds(&pair.reader(), 10);
    let told = ViewSegment { header: &header, end, len: end, sealed: false };
    pair.view.publish(&log, &told, &[], &[]).unwrap();
    assert_holds(&reader, 20);
    assert_holds(&pair.reader(), 20);
    assert_eq!(reader.durable(0).unwrap(), 20);
    assert_eq!(reader.remote(0).unwrap(), 20);
}

#[test]
fn a_log_goes_on_in_its_next_segment() {
    let pair = Pair::new(10);
    let reader = pair.reader();
    assert_holds(&reader, 10);
    let (log, (header, sequence, before)) = (pair.log(), pair.last());
    fill(&pair.orders, 10, 10 + RECORDS);
    pair.cut();
    let segments = pair.place.0.lock().unwrap().cut().logs()[0].segments().to_vec();
    let old = segments.iter().find(|segment| segment.header.sequence == sequence).unwrap();
    assert!(old.sealed);
    let rest = pair.read(sequence, before..old.len);
    pair.view.store(&log, before, &rest).unwrap();
    let headers: Vec<_> = segments.iter().map(|s| s.header.encode()).collect();
    let pieces: Vec<_> = segments.iter().zip(&headers).map(told).collect();
    let sealed: Vec<_> = (1..pieces.len() - 1)
        .map(|i| SealedSegment { segment: pieces[i], next: &headers[i + 1] })
        .collect();
    let (next, newest, end) = pair.last();
    assert_ne!(next, header);
    let path = pair.place.0.lock().unwrap().whole(&pair.view, newest);
    pair.view.put(&log, newest, &path).unwrap();
    assert_holds(&reader, 10);
    let last = ViewSegment { header: &next, end, len: end, sealed: false };
    // A change that fails is not seen, and can be made again from its beginning.
    let in_the_way =
        pair.view.path().join("logs").join(&log).join(names::segment(segments[1].header.sequence));
    std::fs::create_dir(&in_the_way).unwrap();
    let error = pair.view.publish(&log, &last, &sealed, &[]).unwrap_err();
    assert!(matches!(error, Error::SystemCallFailed { .. }), "{error}");
    assert_holds(&reader, 10);
    std::fs::remove_dir(&in_the_way).unwrap();
    pair.view.store(&log, before, &rest).unwrap();
    pair.view.publish(&log, &last, &sealed, &[]).unwrap();
    assert_holds(&reader, 10 + RECORDS);
    // The mark of the last segment says as much as the page, for readers that come later.
    let file = pair.view.path().join("logs").join(&log).join(names::segment(newest));
    assert!(file.is_file());
}

/// Append two records with one key; compaction drops the first.
fn put_twice(orders: &Topic) {
    let key = Some(&b"key"[..]);
    for _ in 0..2 {
        let record = NewRecord { key, value: Some(b"last"), ..NewRecord::default() };
        orders.append_to(0, &record, None).unwrap();
    }
}

fn compacted(store: &Store, name: &str) -> Topic {
    let options = TopicOptions {
        segment_bytes: Some(64 << 10),
        compacted: Some(true),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap()
}

/// The place has no state between one in which a segment has its beginning only, and one in which it
/// is sealed and compacted.
#[test]
fn a_reader_goes_on_in_the_compacted_form_of_the_segment_that_it_knows_the_beginning_of() {
    for removed in [0, 12] {
        let pair = Pair::of(compacted, |orders| {
            if removed == 0 {
                put_twice(orders);
            }
            fill(orders, orders.end(0).unwrap(), 10);
        });
        let reader = pair.reader();
        let mut scan = reader.scan_partition(0, 0, None).unwrap();
        for wanted in 0..10 {
            assert_eq!(scan.next().transpose().unwrap().unwrap().offset(), wanted);
        }
        assert!(scan.next().transpose().unwrap().is_none());
        fill(&pair.orders, 10, 12);
        if removed == 12 {
            put_twice(&pair.orders);
        }
        fill(&pair.orders, pair.orders.end(0).unwrap(), RECORDS);
        pair.orders.flush().unwrap();
        let done = pair.orders.compact(&CompactOptions::default(), &mut quietly).unwrap();
        assert_eq!(done.removed, 1);
        pair.cut();
        pair.view.allow_compaction(&pair.log()).unwrap();
        // Until the end of the change all is as before, also for readers that open the files now.
        pair.place.0.lock().unwrap().put_last(&pair.view);
        assert!(scan.next().transpose().unwrap().is_none());
        for seen in [&reader, &pair.reader()] {
            assert_eq!((seen.end(0).unwrap(), seen.durable(0).unwrap()), (10, 10));
            let (found, error) = read_until_error(seen);
            assert!(error.is_none() && found == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "{found:?}");
        }
        pair.place.0.lock().unwrap().show(&pair.view, &[]);
        for seen in [&reader, &pair.reader()] {
            assert_eq!((seen.end(0).unwrap(), seen.durable(0).unwrap()), (RECORDS, RECORDS));
        }
        for wanted in (10..RECORDS).filter(|offset| *offset != removed) {
            let record = scan.next().transpose().unwrap().unwrap();
            assert_eq!(record.offset(), wanted, "with {removed} removed");
        }
        assert!(scan.next().transpose().unwrap().is_none());
    }
}

#[test]
fn segments_that_compaction_merged_are_gone_as_soon_as_the_merged_one_is_there() {
    let put = |orders: &Topic, records: u64| {
        let (key, value) = (Some(&b"key"[..]), vec![1; 500]);
        for _ in 0..records {
            let record = NewRecord { key, value: Some(&value), ..NewRecord::default() };
            orders.append_to(0, &record, None).unwrap();
        }
    };
    let pair = Pair::of(compacted, |orders| put(orders, RECORDS));
    let reader = pair.reader();
    assert_eq!(read_until_error(&reader).0.len() as u64, RECORDS);
    let listed = |place: &Shared| -> Vec<u64> {
        place.0.lock().unwrap().cut().logs()[0]
            .segments()
            .iter()
            .map(|s| s.header.sequence)
            .collect()
    };
    let before = listed(&pair.place);
    put(&pair.orders, 10);
    pair.orders.flush().unwrap();
    let done = pair.orders.compact(&CompactOptions::default(), &mut quietly).unwrap();
    assert!(done.segments_removed > 10, "{done:?}");
    pair.cut();
    let after = listed(&pair.place);
    let gone: Vec<_> = before.into_iter().filter(|one| !after.contains(one)).collect();
    assert!(gone.contains(&0) && gone.len() > 10);
    pair.view.allow_compaction(&pair.log()).unwrap();
    pair.place.0.lock().unwrap().put_last(&pair.view);
    assert_eq!(read_until_error(&pair.reader()).0.len() as u64, RECORDS);
    pair.place.0.lock().unwrap().show(&pair.view, &gone);
    for seen in [&reader, &pair.reader()] {
        assert_eq!((seen.first(0).unwrap(), seen.end(0).unwrap()), (0, RECORDS + 10));
        let (found, error) = read_until_error(seen);
        assert!(error.is_none() && found.len() < RECORDS as usize / 2, "{error:?}");
        assert_eq!(found.last(), Some(&(RECORDS + 9)));
    }
    let dir = pair.view.path().join("logs").join(pair.log());
    assert!(gone.iter().all(|one| !dir.join(names::segment(*one)).exists()));
}

#[test]
fn what_readers_see_is_not_written_again() {
    let pair = Pair::new(10);
    let reader = pair.reader();
    assert_holds(&reader, 10);
    let (log, (_, _, end)) = (pair.log(), pair.last());
    let error = pair.view.store(&log, end - 8, &[0; 16]).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let error = pair.view.store("orders@nothing", end, &[0; 16]).unwrap_err();
    assert!(error.to_string().contains("was not published"), "{error}");
    assert_holds(&pair.reader(), 10);
}

#[test]
fn a_log_that_was_deleted_is_deleted_for_its_readers() {
    let pair = Pair::new(RECORDS);
    let reader = pair.reader();
    assert_eq!(reader.committed(0).unwrap(), RECORDS);
    let settings: Vec<_> = {
        let place = pair.place.0.lock().unwrap();
        place.cut().files().map(|file| file.path.clone()).collect()
    };
    let settings = settings.iter().find(|path| path.starts_with("topics/")).unwrap();
    pair.view.remove_file(settings).unwrap();
    pair.view.remove_log(&pair.log()).unwrap();
    let error = read_until_error(&reader).1.unwrap();
    assert!(matches!(error, Error::TopicDeleted { .. }), "{error}");
    assert_eq!(std::fs::read_dir(pair.view.path().join("logs")).unwrap().count(), 0);
}

#[test]
fn names_from_a_place_lead_to_no_file_outside_of_the_view() {
    let pair = Pair::new(10);
    let outside = pair.view.path().with_file_name("outside");
    std::fs::create_dir(&outside).unwrap();
    let (header, _, end) = pair.last();
    let told = ViewSegment { header: &header, end, len: end, sealed: false };
    for log in ["../../outside", "..", "", "/tmp", "orders", "a/b@00000000000000000000000000000000"]
    {
        assert!(pair.view.begin_log(log).is_err(), "{log}");
        assert!(pair.view.remove_log(log).is_err(), "{log}");
        assert!(pair.view.allow_compaction(log).is_err(), "{log}");
        assert!(pair.view.put(log, 0, &outside).is_err(), "{log}");
        let sealed = SealedSegment { segment: told, next: &header };
        assert!(pair.view.publish(log, &told, &[], &[]).is_err(), "{log}");
        assert!(pair.view.give_up(log, &sealed).is_err(), "{log}");
    }
    for path in ["../outside/x", "topics/../../outside/x", "logs/x", "/tmp/x", "wake", "lock"] {
        assert!(pair.view.file(path, 0, &[]).is_err(), "{path}");
        assert!(pair.view.remove_file(path).is_err(), "{path}");
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert_holds(&pair.reader(), 10);
}

fn put_stand_in(storage: &Elsewhere, from: &Path, path: &Path, end: u64) {
    let made = NewStandIn { from: from.to_path_buf(), path: path.to_path_buf(), end };
    storage.names().put_stand_in(&made).unwrap();
}

#[test]
fn a_stand_in_has_its_header_its_beginning_and_its_end_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (from, path) = (dir.path().join("from"), dir.path().join("stand-in"));
    let storage = Elsewhere::new(Box::new(Shared::default()));
    let end = 64 << 10;
    std::fs::write(&from, vec![7; end as usize + 56]).unwrap();
    put_stand_in(&storage, &from, &path, end);
    let read = |len: usize, position| {
        let mut bytes = vec![0; len];
        let got = storage.open(&path, OpenMode::Read).unwrap().read_at(&mut bytes, position)?;
        Ok::<_, io::Error>(bytes[..got].to_vec())
    };
    let stale = |result: io::Result<Vec<u8>>| result.unwrap_err().raw_os_error();
    assert_eq!(read(512, 0).unwrap(), [7; 512]);
    assert_eq!(read(56, end).unwrap(), [7; 56]);
    for (len, position) in [(8, FIRST_BLOCK), (16, FIRST_BLOCK - 8), (16, end - 8), (1, end - 1)] {
        assert_eq!(stale(read(len, position)), Some(libc::ESTALE), "{len} at {position}");
    }
    storage.put_beginning(&path, &[9; 100]);
    assert_eq!(read(100, FIRST_BLOCK).unwrap(), [9; 100]);
    assert_eq!(read(16, FIRST_BLOCK - 8).unwrap(), [[7; 8], [9; 8]].concat());
    assert_eq!(stale(read(8, FIRST_BLOCK + 96)), Some(libc::ESTALE));
    let file = storage.open(&path, OpenMode::ReadWrite).unwrap();
    assert!(file.is_stand_in());
    assert!(file.map(4096, MapAccess::Read).is_err());
    assert!(file.write_at(&[1], 0).is_err());
    assert!(file.next_data(FIRST_BLOCK).is_err());
    // A file that was opened before stays what it was; one that is opened later has all.
    std::fs::write(&from, vec![5; end as usize + 56]).unwrap();
    storage.put_whole(&from, &path).unwrap();
    assert!(file.is_stand_in());
    assert_eq!(read(16, end - 8).unwrap(), [5; 16]);
    assert!(!storage.stands_in(&path));
}

#[test]
fn few_beginnings_are_kept_and_a_file_that_is_gone_is_no_stand_in() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Elsewhere::new(Box::new(Shared::default()));
    let mut paths = BTreeMap::new();
    for number in 0..40 {
        let (from, path) = (dir.path().join("from"), dir.path().join(number.to_string()));
        std::fs::write(&from, vec![0; 16 << 10]).unwrap();
        put_stand_in(&storage, &from, &path, 16 << 10);
        storage.put_beginning(&path, &[9; 8]);
        paths.insert(number, path);
    }
    let has_beginning = |path: &PathBuf| {
        let file = storage.open(path, OpenMode::Read).unwrap();
        file.read_at(&mut [0; 8], FIRST_BLOCK).is_ok()
    };
    let kept = paths.values().filter(|path| has_beginning(path)).count();
    assert!((1..=16).contains(&kept), "{kept}");
    assert!(has_beginning(&paths[&39]), "the newest is there");
    storage.names().remove(&paths[&39]).unwrap();
    assert!(!storage.stands_in(&paths[&39]));
    assert!(storage.names().remove(&paths[&39]).is_err());
}
