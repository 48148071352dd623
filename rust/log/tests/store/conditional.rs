//! Conditional transactions: offsets and sequences that the parts of one append require.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use falaj::internals::error::Error;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{
    After, CursorMove, CursorState, NewRecord, SequenceSpan, Topic, Transaction,
};
use falaj_twin::memory::MemoryStorage;

fn store_on(machine: &MemoryStorage) -> Store {
    Store::open_on(Arc::new(machine.clone()), "/store", &StoreOptions::default()).unwrap()
}

fn topic(store: &Store, name: &str, partitions: u32) -> Topic {
    let options = TopicOptions {
        log: Some("shop".into()),
        partitions: Some(partitions),
        segment_bytes: Some(64 << 10),
        ..TopicOptions::default()
    };
    Topic::open(store, name, &options).unwrap()
}

fn cursor(tx: &mut Transaction, offset: u64) {
    let to = CursorState { offset, ..CursorState::default() };
    tx.move_cursor(CursorMove { name: b"billing", to, from: None, metadata: b"" });
}

#[test]
fn a_transaction_is_refused_whole_if_one_of_its_parts_expects_another_offset() {
    let store = store_on(&MemoryStorage::new());
    let (paid, parts) = (topic(&store, "paid", 1), topic(&store, "parts", 3));
    parts.append_to(2, &NewRecord::new(b"other"), None).unwrap();
    let mut tx = Transaction::new(&store);
    tx.append(&paid, NewRecord::new(b"1")).unwrap();
    // The second record of the transaction in its topic.
    tx.expect_offset(&paid, 1).unwrap();
    tx.append(&paid, NewRecord::new(b"2")).unwrap();
    tx.expect_offset_in(&parts, 2, 0).unwrap();
    tx.append_to(&parts, 2, &NewRecord::new(b"3")).unwrap();
    cursor(&mut tx, 9);
    let told = tx.commit().unwrap_err();
    let Error::OffsetConflict { topic, partition, expected, next } = &told else {
        panic!("{told}")
    };
    assert_eq!((topic.as_str(), *partition, *expected, *next), ("parts", 2, 0, 1));
    assert!(told.to_string().contains("topic \"parts\", partition 2,"), "{told}");
    assert_eq!((paid.end(0).unwrap(), paid.cursor(b"billing").unwrap()), (0, None));

    let refused = |told: Result<(), Error>| {
        let told = told.unwrap_err().to_string();
        assert!(told.contains("cannot get offset"), "{told}");
    };
    refused(tx.expect_offset(&paid, 1));
    refused(tx.expect_offset(&paid, 3));
    assert!(tx.expect_offset(&parts, 1).is_err(), "a topic of several partitions");
    tx.expect_offset(&paid, 2).unwrap();

    let mut tx = Transaction::new(&store);
    tx.expect_offset_in(&parts, 2, 1).unwrap();
    assert!(tx.commit().unwrap_err().to_string().contains("nothing to commit"));
    tx.append(&paid, NewRecord::new(b"1")).unwrap();
    tx.expect_offset(&paid, 1).unwrap();
    cursor(&mut tx, 9);
    // Nothing goes to that partition: it must end there.
    assert_eq!(tx.commit().unwrap().parts().len(), 1);
    assert_eq!((paid.end(0).unwrap(), parts.end(2).unwrap()), (1, 1));
    assert!(paid.cursor(b"billing").unwrap().is_some());
}

#[test]
fn a_transaction_of_a_producer_is_appended_once_with_all_its_parts_and_cursors() {
    let machine = MemoryStorage::new();
    for turn in 0..2 {
        let store = store_on(&machine);
        let (paid, parts) = (topic(&store, "paid", 1), topic(&store, "parts", 3));
        let commit = |sequence: u64, at: u64, with_parts: bool| {
            let mut tx = Transaction::new(&store);
            tx.append(&paid, NewRecord::new(b"1")).unwrap();
            tx.expect_sequence(&paid, "till", sequence).unwrap();
            if with_parts {
                tx.append_to(&parts, 1, &NewRecord::new(b"2")).unwrap();
                tx.append_to(&parts, 2, &NewRecord::new(b"3")).unwrap();
                tx.expect_sequence(&parts, "till", sequence).unwrap();
            }
            cursor(&mut tx, at);
            tx.commit().map(|done| {
                (done.offsets(&paid, 0), done.offsets(&parts, 1), done.offsets(&parts, 2))
            })
        };
        let one = |at: u64| (Some(at..at + 1), Some(at..at + 1), Some(at..at + 1));
        if turn == 0 {
            assert_eq!(commit(7, 1, true).unwrap(), one(0));
            assert_eq!(commit(8, 2, true).unwrap(), one(1));
        }
        // A repeat appends nothing and moves no cursor, also after a restart.
        assert_eq!(commit(7, 1, true).unwrap(), one(0));
        assert_eq!(commit(8, 1, true).unwrap(), one(1));
        assert_eq!(paid.cursor(b"billing").unwrap().unwrap().offset, 2);
        let told = commit(10, 3, true).unwrap_err();
        assert!(
            matches!(&told, Error::OutOfOrderSequence { topic, next: 9, .. } if topic == "paid"),
            "{told}"
        );
        let told = commit(6, 3, true).unwrap_err();
        assert!(matches!(told, Error::DuplicateSequence { highest: 8, .. }), "{told}");
        assert_eq!((paid.end(0).unwrap(), parts.end(2).unwrap()), (2, 2));
    }
}

#[test]
fn a_repeat_of_a_part_of_another_append_is_refused_and_so_is_a_part_without_a_producer() {
    let store = store_on(&MemoryStorage::new());
    let (paid, parts) = (topic(&store, "paid", 1), topic(&store, "parts", 3));
    let mut tx = Transaction::new(&store);
    tx.append(&paid, NewRecord::new(b"1")).unwrap();
    tx.expect_sequence(&paid, "till", 1).unwrap();
    tx.commit().unwrap();
    tx.append(&paid, NewRecord::new(b"1")).unwrap();
    tx.expect_sequence(&paid, "till", 1).unwrap();
    tx.append_to(&parts, 1, &NewRecord::new(b"2")).unwrap();
    assert!(tx.commit().unwrap_err().to_string().contains("one producer for each topic"));
    tx.expect_sequence_in(&parts, 1, "till", 1).unwrap();
    assert!(tx.commit().unwrap_err().to_string().contains("the rest of this append"));
    assert_eq!((paid.end(0).unwrap(), parts.end(1).unwrap()), (1, 0));
}

/// Random numbers that a seed gives.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The last five appends of a producer to a partition: the last sequence and the first offset.
type Known = VecDeque<(u64, u64)>;

/// The answer to a transaction that a plain list of all appends gives.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Appended(Vec<u64>),
    Next(usize, u64),
    Gap(usize, u64),
    Old(usize, u64),
    Other,
}

struct Model {
    ends: [u64; 4],
    known: HashMap<(usize, &'static str), Known>,
}

struct Wanted {
    part: usize,
    records: u64,
    offset: Option<u64>,
    producer: Option<(&'static str, SequenceSpan, Range<usize>)>,
}

impl Model {
    fn highest(&self, name: &'static str, scope: Range<usize>) -> Option<u64> {
        let last = |part| self.known.get(&(part, name))?.back().map(|(last, _)| *last);
        scope.filter_map(last).max()
    }

    fn first_of(&self, part: usize, name: &'static str, last: u64) -> Option<u64> {
        let known = self.known.get(&(part, name))?;
        known.iter().rev().find(|(known, _)| *known == last).map(|(_, first)| *first)
    }

    fn answer(&mut self, parts: &[Wanted]) -> Answer {
        let (mut refused, mut wrong, mut fresh, mut repeats) = (None, None, 0, 0);
        // A refusal names the first of the conditions, by the number of the part where each begins.
        let mut checks: Vec<_> = parts.iter().map(|of| (of.part, false, of)).collect();
        for of in parts {
            let Some((.., scope)) = &of.producer else { continue };
            if !checks.iter().any(|(part, is_once, _)| *is_once && *part == scope.start) {
                checks.push((scope.start, true, of));
            }
        }
        checks.sort_by_key(|(part, is_once, _)| (*part, *is_once));
        for (_, is_once, of) in checks {
            let Some((name, span, scope)) = of.producer.clone().filter(|_| is_once) else {
                if !is_once && of.offset.is_some_and(|offset| offset != self.ends[of.part]) {
                    refused = refused.or(Some(Answer::Next(of.part, self.ends[of.part])));
                }
                continue;
            };
            let highest = self.highest(name, scope.clone());
            let comes_next = match (highest, span.after) {
                (None, _) => true,
                (Some(_), After::Nothing) => false,
                (Some(highest), After::Exactly(before)) => highest == before,
                (Some(highest), After::Below(bound)) => highest < bound,
            };
            let is_known = scope.clone().any(|part| self.first_of(part, name, span.last).is_some());
            let bad = match highest {
                _ if comes_next => {
                    fresh += 1;
                    continue;
                }
                Some(highest) if highest < span.last => Answer::Gap(scope.start, highest + 1),
                _ if is_known => {
                    repeats += 1;
                    continue;
                }
                highest => Answer::Old(scope.start, highest.unwrap_or(0)),
            };
            wrong = wrong.or(Some(bad.clone()));
            refused = refused.or(Some(bad));
        }
        let first_time = |of: &Wanted| {
            let (name, span, _) = of.producer.clone()?;
            self.first_of(of.part, name, span.last)
        };
        if repeats > 0 {
            let firsts: Option<Vec<_>> = parts.iter().map(first_time).collect();
            return match (wrong, fresh, firsts) {
                (Some(wrong), ..) => wrong,
                (None, 0, Some(firsts)) => Answer::Appended(firsts),
                _ => Answer::Other,
            };
        }
        refused.unwrap_or_else(|| Answer::Appended(self.append(parts)))
    }

    fn append(&mut self, parts: &[Wanted]) -> Vec<u64> {
        let mut firsts = Vec::new();
        for of in parts {
            firsts.push(self.ends[of.part]);
            if let Some((name, span, _)) = &of.producer {
                let known = self.known.entry((of.part, *name)).or_default();
                known.push_back((span.last, self.ends[of.part]));
                if known.len() > 5 {
                    known.pop_front();
                }
            }
            self.ends[of.part] += of.records;
        }
        firsts
    }

    /// Draw sequences near what the producer has: the next, a repeat, a gap, an older one, another
    /// epoch, or the last numbers there are.
    fn span(&self, draws: &mut Draws, name: &'static str, scope: Range<usize>) -> SequenceSpan {
        let highest = self.highest(name, scope).unwrap_or(0);
        let first = match draws.below(12) {
            0 => highest.saturating_add(2),
            1..=4 => highest.saturating_sub(draws.below(9)),
            5 => {
                let epoch = (highest >> 48).saturating_add(1).min(0xffff) << 48;
                let last = epoch + draws.below(3);
                return SequenceSpan { after: After::Below(epoch), first: epoch, last };
            }
            6 if draws.below(40) == 0 => u64::MAX - draws.below(4),
            _ => highest.saturating_add(1),
        };
        let last = first.saturating_add(draws.below(3));
        match draws.below(5) {
            0 => SequenceSpan { after: After::Below(first), first, last },
            _ => (first..=last).into(),
        }
    }
}

/// Append to partition 0 of `one` and partitions 0 to 2 of `many`, numbered 0 to 3.
#[test]
fn conditions_hold_for_all_parts_of_an_append_as_a_plain_list_of_them_says() {
    let machine = MemoryStorage::new();
    let mut draws = Draws(0x5eed_0f5e_9001);
    let mut model = Model { ends: [0; 4], known: HashMap::new() };
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..30 {
        let store = store_on(&machine);
        let (single, many) = (topic(&store, "one", 1), topic(&store, "many", 3));
        let place = |part: usize| match part {
            0 => (&single, 0),
            _ => (&many, part as u32 - 1),
        };
        for _ in 0..100 {
            let has_producer = draws.below(3) > 0;
            // Sequences run over a topic, or over each of its partitions alone.
            let (name, is_wide) = [("wide", true), ("narrow", false)][draws.below(2) as usize];
            let mut wide: HashMap<usize, SequenceSpan> = HashMap::new();
            let mut parts = Vec::new();
            for part in 0..4 {
                if draws.below(2) == 0 {
                    continue;
                }
                let scope = match part {
                    0 => 0..1,
                    _ if is_wide => 1..4,
                    _ => part..part + 1,
                };
                let fresh = model.span(&mut draws, name, scope.clone());
                let span = if is_wide { *wide.entry(scope.start).or_insert(fresh) } else { fresh };
                let wrong = u64::from(draws.below(6) == 0);
                let offset = (draws.below(4) == 0).then(|| model.ends[part] + wrong);
                let producer = has_producer.then_some((name, span, scope));
                parts.push(Wanted { part, records: 1 + draws.below(2), offset, producer });
            }
            if parts.is_empty() {
                continue;
            }
            let mut tx = Transaction::new(&store);
            for of in &parts {
                let (topic, partition) = place(of.part);
                if let Some(offset) = of.offset {
                    tx.expect_offset_in(topic, partition, offset).unwrap();
                }
                match &of.producer {
                    Some((name, span, _)) if is_wide => tx.expect_sequence(topic, *name, *span),
                    Some((name, span, _)) => tx.expect_sequence_in(topic, partition, *name, *span),
                    None => Ok(()),
                }
                .unwrap();
                for _ in 0..of.records {
                    tx.append_to(topic, partition, &NewRecord::new(&[b'x'; 100])).unwrap();
                }
            }
            // The topics of the parts that a refusal names.
            let part_of = |topic: &str, partition: u32| match topic {
                "one" => 0,
                _ => 1 + partition as usize,
            };
            let (found, what) = match tx.commit() {
                Ok(done) => {
                    let first = |(.., offsets): &(_, _, Range<u64>)| offsets.start;
                    (Answer::Appended(done.parts().iter().map(first).collect()), "appended")
                }
                Err(Error::OffsetConflict { topic, partition, next, .. }) => {
                    (Answer::Next(part_of(&topic, partition), next), "next")
                }
                Err(Error::OutOfOrderSequence { topic, partition, next, .. }) => {
                    (Answer::Gap(part_of(&topic, partition), next), "gap")
                }
                Err(Error::DuplicateSequence { topic, partition, highest, .. }) => {
                    (Answer::Old(part_of(&topic, partition), highest), "old")
                }
                Err(Error::InvalidArgument { .. }) => (Answer::Other, "other"),
                Err(error) => panic!("{error}"),
            };
            assert_eq!(found, model.answer(&parts));
            *seen.entry(what).or_default() += 1;
            let ends = [0, 1, 2, 3].map(|part| {
                let (topic, partition) = place(part);
                topic.end(partition).unwrap()
            });
            assert_eq!(ends, model.ends);
        }
    }
    assert!(seen.len() == 5 && seen.values().all(|times| *times > 50), "{seen:?}");
}
