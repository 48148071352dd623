//! Bulk loads too large for a group: each becomes the log's next segment, beside any other writers.

use falaj::internals::error::Result;
use falaj::internals::format::checksum::crc32;
use falaj::internals::format::record::BodyWriter;
use falaj::internals::log::{Blocks, Large, LargeBlock, Token};
use falaj_twin::faulty::{FailureKind, Fault, FaultyStorage};

use super::*;

/// Blocks of ten records of 100 bytes for one topic, and an action before each block is delivered.
struct Source<'a> {
    number: u32,
    blocks: u64,
    at: u64,
    begun: u32,
    meanwhile: &'a mut dyn FnMut(u32),
}

impl Blocks for Source<'_> {
    fn rewind(&mut self) {
        (self.at, self.begun) = (0, self.begun + 1);
    }

    fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<LargeBlock>> {
        if self.at == self.blocks {
            return Ok(None);
        }
        if self.at == self.blocks / 2 {
            (self.meanwhile)(self.begun);
        }
        let mut records = BodyWriter::default();
        records.begin(false, None);
        let first = self.at * 10;
        (first..first + 10).for_each(|n| records.push(&NewRecord::new(&value(n))));
        self.at += 1;
        body.clear();
        body.extend_from_slice(records.body());
        let body_crc = crc32(body);
        Ok(Some(LargeBlock { topic: self.number, flags: 0, count: 10, body_crc }))
    }
}

/// Commit 400 records as a segment, and run an action while it is filled.
///
/// The action gets the number of the attempt. Returns the offsets.
fn commit(topic: &Topic, meanwhile: &mut dyn FnMut(u32)) -> Result<Option<std::ops::Range<u64>>> {
    let number = topic.settings().number;
    let mut source = Source { number, blocks: 40, at: 0, begun: 0, meanwhile };
    let path = topic.log().dir().join("next.1000.tmp");
    let mut large = Large { blocks: &mut source, bytes: 100 << 10, path };
    let token = Token::new(number, "n", 1).unwrap();
    let landed = topic.log().commit_large(&mut large, Some(&token))?;
    assert!(topic.store().storage().stat(&topic.log().dir().join("next.1000.tmp")).is_err());
    Ok(landed.map(|mut landed| landed.offsets.remove(&number).unwrap()))
}

#[test]
fn others_append_and_roll_while_a_segment_is_filled_and_keep_their_places() {
    for mode in MODES {
        let machine = machine();
        let store = open_in(&machine, mode);
        let flights = topic(&store, 1);
        let theirs = topic(&open_in(&machine.process(), mode), 1);
        let mut next = 0;
        let mut append = |topic: &Topic, records: u64| {
            for _ in 0..records {
                assert_eq!(topic.append_to(0, &NewRecord::new(&value(next)), None).unwrap(), next);
                next += 1;
            }
        };
        append(&flights, 3);
        let offsets = commit(&flights, &mut |_| append(&theirs, 1_000)).unwrap().unwrap();
        assert_eq!(offsets, 1_003..1_403);
        next = 1_403;
        let mut append = |topic: &Topic, records: u64| {
            for _ in 0..records {
                assert_eq!(topic.append_to(0, &NewRecord::new(&value(next)), None).unwrap(), next);
                next += 1;
            }
        };
        append(&theirs, 5);
        append(&flights, 1_000);
        let expected: Vec<_> = (0..1_003).chain(0..400).chain(1_403..2_408).collect();
        assert_eq!(held(&flights, 0), expected, "{mode:?}");
        assert_eq!(held(&theirs, 0), expected);
        for offset in (0..2_408).step_by(7) {
            let record = theirs.get_in(0, offset).unwrap();
            let found = u64::from_le_bytes(record.value().unwrap()[..8].try_into().unwrap());
            assert_eq!(found, expected[offset as usize]);
        }
        is_sound(&store);
        drop((flights, theirs, store));
        let store = open_in(&machine.restart(), mode);
        assert_eq!(held(&topic(&store, 1), 0), expected);
        is_sound(&store);
    }
}

#[test]
fn a_segment_of_a_job_has_an_index_that_others_go_on_with() {
    let machine = machine();
    let store = open(&machine);
    let flights = topic(&store, 1);
    assert_eq!(commit(&flights, &mut |_| ()).unwrap(), Some(0..400));
    let sequence = flights.log().committed().unwrap().sequence();
    let path = flights.log().dir().join(falaj::internals::format::names::index(sequence));
    let entries = || {
        let file = store.storage().open(&path, falaj::internals::storage::OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.stat().unwrap().len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes[64..].chunks(32).take_while(|entry| entry.iter().any(|byte| *byte != 0)).count()
    };
    let filled = entries();
    assert!(filled >= 8, "{filled} for 40 KiB");
    let theirs = topic(&open(&machine.process()), 1);
    for number in 0..200 {
        let of = if number % 2 == 0 { &flights } else { &theirs };
        of.append_to(0, &NewRecord::new(&value(number)), None).unwrap();
    }
    assert!(entries() > filled, "no entry may be overwritten");
    is_sound(&store);
}

#[test]
fn a_token_that_is_spent_while_a_segment_is_filled_commits_nothing() {
    let machine = machine();
    let flights = topic(&open(&machine), 1);
    let theirs = topic(&open(&machine.process()), 1);
    let mut spend = |_| {
        let job = BulkLoad::new(&theirs, "j").unwrap();
        let part = stage(&job, "0", 0..5);
        assert!(job.commit(&[part], Some(("n", 1))).unwrap().now);
    };
    assert_eq!(commit(&flights, &mut spend).unwrap(), None);
    assert_eq!(held(&flights, 0), [0, 1, 2, 3, 4]);
}

#[test]
fn a_topic_that_is_deleted_while_a_segment_is_filled_takes_the_job_with_it() {
    let machine = machine();
    let store = open(&machine);
    let others = open(&machine.process());
    for log in [None, Some("shop".to_owned())] {
        let options = TopicOptions { log, segment_bytes: Some(SEGMENT), ..TopicOptions::default() };
        let [flights, other] =
            ["flights", "other"].map(|name| Topic::open(&store, name, &options).unwrap());
        other.append_to(0, &NewRecord::new(&value(1)), None).unwrap();
        let error = commit(&flights, &mut |_| others.delete_topic("flights").unwrap()).unwrap_err();
        assert!(matches!(error, Error::TopicDeleted { .. }), "{error}");
        assert_eq!(held(&other, 0), [1]);
        other.append_to(0, &NewRecord::new(&value(2)), None).unwrap();
        is_sound(&store);
        drop(other);
        store.delete_topic("other").unwrap();
    }
}

#[test]
fn what_does_not_fit_the_room_for_changes_begins_a_segment_anew() {
    let machine = MemoryStorage::with_capacity(8 << 20).seeded(7);
    let store = open(&machine);
    let shop = |partitions| TopicOptions {
        log: Some("shop".into()),
        segment_bytes: Some(SEGMENT),
        partitions: Some(partitions),
        ..TopicOptions::default()
    };
    let flights = Topic::open(&store, "flights", &shop(1)).unwrap();
    let others = open(&machine.process());
    let mut begun = 0;
    let mut grow = |times| {
        begun = times;
        if times == 1 {
            drop(Topic::open(&others, "wide", &shop(3_000)).unwrap());
        }
    };
    assert_eq!(commit(&flights, &mut grow).unwrap(), Some(0..400));
    assert_eq!(begun, 2);
    assert_eq!(held(&flights, 0), (0..400).collect::<Vec<_>>());
    is_sound(&store);
}

/// Commit 400 records under an idempotency key, over a storage whose k-th call fails; return how
/// many calls there were.
fn with_fault(mode: WriteMode, nth: Option<u64>, how: FailureKind) -> u64 {
    let faulty = FaultyStorage::over_memory(machine());
    let options = StoreOptions { write_mode: Some(mode), ..StoreOptions::default() };
    let store = Store::open_on(Arc::new(faulty.clone()), ROOT, &options).unwrap();
    let flights = topic(&store, 1);
    flights.append_to(0, &NewRecord::new(&value(0)), Some(SyncMode::Durable)).unwrap();
    let job = BulkLoad::new(&flights, "j").unwrap();
    let part = stage(&job, "0", 0..400);
    let before = faulty.total();
    if let Some(nth) = nth {
        faulty.plan(Fault::at(before + nth, how));
    }
    let done = job.commit(&[&part], Some(("n", 1)));
    let calls = faulty.total() - before;
    faulty.heal();
    let committed = last_idempotency_key(&flights, "n").unwrap().is_some();
    assert_eq!(flights.end(0).unwrap(), if committed { 401 } else { 1 }, "call {nth:?}");
    match &done {
        Ok(done) => assert!(done.now && committed, "call {nth:?}"),
        Err(Error::DurabilityUnknown { .. }) => assert!(committed, "call {nth:?}"),
        Err(error) => assert!(!committed, "call {nth:?}: committed, but it failed: {error}"),
    }
    let again = job.commit(&[&part], Some(("n", 1))).unwrap();
    assert_eq!(again.now, !committed, "call {nth:?}: {done:?}");
    let expected: Vec<_> = [0].into_iter().chain(0..400).collect();
    assert_eq!(held(&flights, 0), expected, "call {nth:?}");
    flights.append_to(0, &NewRecord::new(&value(9)), Some(SyncMode::Durable)).unwrap();
    is_sound(&store);
    calls
}

#[test]
fn a_commit_that_fails_at_any_call_is_whole_or_nothing_and_the_next_one_finishes_it() {
    for mode in MODES {
        let calls = with_fault(mode, None, FailureKind::Errno(libc_eio()));
        assert!(calls > 30, "{calls}");
        for nth in 1..=calls {
            with_fault(mode, Some(nth), FailureKind::Errno(libc_eio()));
        }
    }
}

fn libc_eio() -> i32 {
    5
}
