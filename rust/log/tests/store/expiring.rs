//! Expiring producers: how long a log remembers them, and what it forgets for others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread;

use falaj::internals::error::Error;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::{NewRecord, ProducerName, SyncMode, Topic};
use falaj_twin::memory::MemoryStorage;

const HOUR: i64 = 3_600_000_000;
const BEGIN: i64 = 1_767_225_600_000_000;

fn options(segment_bytes: u64) -> TopicOptions {
    TopicOptions { segment_bytes: Some(segment_bytes), ..TopicOptions::default() }
}

fn topic_on(machine: &MemoryStorage) -> Topic {
    let machine = Arc::new(machine.clone());
    let store = Store::open_on(machine, "/store", &StoreOptions::default()).unwrap();
    Topic::open(&store, "jobs", &options(64 << 10)).unwrap()
}

fn once<'a>(
    topic: &Topic,
    producer: impl Into<ProducerName<'a>>,
    sequence: u64,
) -> Result<u64, Error> {
    let once = [topic.expect_sequence(producer, sequence)?];
    topic.append_if_to(0, &NewRecord::new(b"x"), &once, Some(SyncMode::None))
}

fn door(i: u64) -> String {
    format!("door-{i}")
}

#[test]
fn a_hundred_thousand_starts_of_expiring_producers_leave_a_log_that_appends() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let store = Store::open_with(place.path(), &StoreOptions::default()).unwrap();
        Topic::open(&store, "jobs", &options(1 << 20)).unwrap()
    };
    let starts = 100_000;
    let topic = open();
    once(&topic, "named", 7).unwrap();
    for i in 1..=starts {
        let name = door(i);
        assert_eq!(once(&topic, ProducerName::expiring(&name), 0).unwrap(), i);
    }
    let limit = topic.log().max_producers() as u64;
    drop(topic);
    let topic = open();
    let known = topic.producers().unwrap();
    assert!(known.len() as u64 <= limit && known.len() as u64 > limit / 2, "{}", known.len());
    assert_eq!(known.iter().filter(|known| !known.expiring).count(), 1);
    assert_eq!(once(&topic, "named", 7).unwrap(), 0, "a named producer was forgotten");
    let last = door(starts);
    assert_eq!(once(&topic, ProducerName::expiring(&last), 0).unwrap(), starts);
    assert_eq!(once(&topic, "another", 0).unwrap(), starts + 1, "one that is named finds a place");
}

#[test]
fn an_expiring_producer_and_a_named_one_of_its_name_are_two() {
    let topic = topic_on(&MemoryStorage::new());
    let expiring = ProducerName::expiring("p");
    assert_eq!(once(&topic, "p", 3).unwrap(), 0);
    assert_eq!(once(&topic, expiring, 3).unwrap(), 1);
    assert_eq!(once(&topic, "p", 4).unwrap(), 2);
    assert_eq!(topic.last_sequence("p").unwrap(), Some(4));
    assert_eq!(topic.last_sequence(expiring).unwrap(), Some(3));
    assert!(topic.forget_producer(expiring).unwrap());
    assert_eq!(topic.last_sequence(expiring).unwrap(), None);
    assert_eq!(once(&topic, "p", 3).unwrap(), 0);
    assert!(once(&topic, ProducerName::expiring(""), 1).is_err());
}

/// A plain list of all uses, and the last five appends of each producer.
#[derive(Default)]
struct Plain {
    uses: Vec<(i64, ProducerName<'static>)>,
    known: BTreeMap<(bool, &'static str), VecDeque<(u64, u64)>>,
}

impl Plain {
    /// Add up the hours since a producer's last use. A step between two uses counts one hour at
    /// most.
    fn age(&self, of: ProducerName<'static>) -> i64 {
        let Some(last) = self.uses.iter().rposition(|(_, user)| *user == of) else { return 0 };
        let steps = self.uses[last..].windows(2).map(|two| two[1].0 - two[0].0);
        steps.map(|step| step.clamp(0, HOUR)).sum()
    }

    fn entry(&mut self, of: ProducerName<'static>) -> &mut VecDeque<(u64, u64)> {
        self.known.entry((of.is_expiring(), of.name())).or_default()
    }
}

#[test]
fn producers_that_expire_are_known_for_a_day_after_each_use_as_a_plain_list_says() {
    const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let machine = MemoryStorage::new();
    let (mut plain, mut now, mut draw) = (Plain::default(), BEGIN, 0x5eed_0e1fu64);
    let mut below = |bound: u64| {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        draw % bound
    };
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..60 {
        let topics = [topic_on(&machine), topic_on(&machine)];
        for _ in 0..60 {
            let step = [0, HOUR / 60, HOUR / 2, HOUR, 30 * HOUR, -40 * HOUR];
            now +=
                step[below(40).saturating_sub(34) as usize] + HOUR / 4 + below(HOUR as u64) as i64;
            machine.set_now_us(now);
            // Two producers append mostly, so that the others grow old.
            let name = NAMES[if below(9) > 0 { below(2) } else { below(12) } as usize];
            let of = if below(4) > 0 { ProducerName::expiring(name) } else { name.into() };
            let topic = &topics[below(2) as usize];
            let highest = topic.last_sequence(of).unwrap();
            let age = plain.age(of);
            if highest.is_none() && plain.known.contains_key(&(of.is_expiring(), name)) {
                assert!(of.is_expiring(), "the named producer {name:?} was forgotten");
                assert!(age >= 24 * HOUR, "{name:?} was forgotten too early, after {age} µs");
                *seen.entry("forgotten").or_default() += 1;
                plain.entry(of).clear();
            }
            let known = plain.entry(of).clone();
            assert_eq!(highest, known.back().map(|(last, _)| *last));
            let next = highest.map_or(below(9), |highest| highest + 1);
            let sequence = match below(8) {
                0 => next + 1,
                1..=3 => next.saturating_sub(1 + below(7)),
                _ => next,
            };
            let end = topic.end(0).unwrap();
            let first = known.iter().find(|(known, _)| *known == sequence).map(|(_, first)| *first);
            let answer = match (once(topic, of, sequence), highest) {
                (Ok(at), Some(highest)) if sequence <= highest => {
                    assert_eq!(Some(at), first, "a repeat of {sequence} is elsewhere");
                    "repeated"
                }
                (Ok(at), _) => {
                    assert!(highest.is_none() || sequence == next);
                    assert_eq!(at, end);
                    let known = plain.entry(of);
                    known.push_back((sequence, at));
                    known.drain(..known.len().saturating_sub(5));
                    if of.is_expiring() {
                        // Blocks of a segment have times that never fall.
                        let at = topic.get_in(0, at).unwrap().block().appended_ns() / 1000;
                        plain.uses.push((at, of));
                    }
                    "appended"
                }
                (Err(Error::OutOfOrderSequence { next: told, .. }), Some(_)) => {
                    assert!(told == next && sequence > next);
                    "gap"
                }
                (Err(Error::DuplicateSequence { .. }), Some(highest)) => {
                    assert!(sequence < highest && first.is_none());
                    "old"
                }
                (other, _) => panic!("{other:?}"),
            };
            assert_eq!(topic.end(0).unwrap(), end + u64::from(answer == "appended"));
            *seen.entry(answer).or_default() += 1;
            if answer == "appended" && highest.is_none() {
                // A process looks for those whose time is over when a new one comes, an hour after
                // its last look.
                for name in NAMES {
                    let old = ProducerName::expiring(name);
                    if plain.age(old) >= 26 * HOUR {
                        assert_eq!(topic.last_sequence(old).unwrap(), None, "{name:?} must go");
                        plain.entry(old).clear();
                    }
                }
            }
        }
    }
    assert!(seen.len() == 5 && seen.values().all(|times| *times > 20), "{seen:?}");
}

#[test]
fn a_full_log_forgets_the_expiring_producers_that_were_used_longest_ago() {
    let machine = MemoryStorage::new();
    let topics = [topic_on(&machine), topic_on(&machine)];
    let limit = topics[0].log().max_producers() as u64;
    once(&topics[0], "named", 0).unwrap();
    for i in 1..limit {
        machine.set_now_us(BEGIN + i as i64);
        once(&topics[(i % 2) as usize], ProducerName::expiring(&door(i)), 0).unwrap();
    }
    machine.set_now_us(BEGIN + 1000);
    once(&topics[0], ProducerName::expiring(&door(1)), 1).unwrap();
    once(&topics[1], ProducerName::expiring("one more"), 0).unwrap();
    let is_known = |i| topics[0].last_sequence(ProducerName::expiring(&door(i))).unwrap().is_some();
    let gone: Vec<_> = (1..limit).filter(|i| !is_known(*i)).collect();
    assert!(
        gone.len() as u64 <= limit / 16 && gone == (2..2 + gone.len() as u64).collect::<Vec<_>>()
    );
    // Named producers take the places of all others, and then one more is refused.
    for i in 1..limit {
        once(&topics[0], &door(i), 0).unwrap();
    }
    for name in ["one more".into(), ProducerName::expiring("one more")] {
        let told = once(&topics[1], name, 0).unwrap_err().to_string();
        assert!(told.contains(&format!("remembers {limit} producers")), "{told}");
    }
    assert_eq!(once(&topics[1], "named", 0).unwrap(), 0);
}

#[test]
fn after_a_power_cut_while_a_log_forgets_no_other_producer_is_forgotten() {
    let machine = MemoryStorage::new();
    let topic = topic_on(&machine);
    let limit = topic.log().max_producers() as u64;
    once(&topic, "named", 0).unwrap();
    for i in 1..limit {
        machine.set_now_us(BEGIN + i as i64);
        once(&topic, ProducerName::expiring(&door(i)), 0).unwrap();
    }
    topic.log().sync().unwrap();
    let begun = machine.events();
    once(&topic, ProducerName::expiring("one more"), 0).unwrap();
    topic.log().sync().unwrap();
    let journal = machine.journal();
    let mut seen = BTreeSet::new();
    for crash in journal.crashes_from(begun) {
        for choice in [crash.nothing(), crash.everything()] {
            let topic = topic_on(&crash.image(&choice));
            let end = topic.end(0).unwrap();
            assert_eq!(once(&topic, "named", 0).unwrap(), 0);
            let kept = |i: &u64| {
                let name = door(*i);
                topic.last_sequence(ProducerName::expiring(&name)).unwrap() == Some(0)
            };
            let gone = (1..limit).filter(|i| !kept(i)).count() as u64;
            assert!(gone <= limit / 16 && (1..=gone).all(|i| !kept(&i)), "{gone}");
            assert!(end == limit || gone > 0, "a producer more than the log remembers");
            let again = once(&topic, ProducerName::expiring(&door(limit - 1)), 0).unwrap();
            assert_eq!(again, limit - 1);
            assert_eq!(once(&topic, ProducerName::expiring("one more"), 0).unwrap(), limit);
            seen.insert((end, gone > 0));
        }
    }
    assert_eq!(seen, [(limit, false), (limit, true), (limit + 1, true)].into());
}

#[test]
fn processes_that_start_producers_on_a_full_log_append_each_record_once() {
    let place = tempfile::tempdir().unwrap();
    let workers: Vec<_> = (0..4u64)
        .map(|worker| {
            let at = place.path().to_owned();
            thread::spawn(move || {
                let store = Store::open_with(at, &StoreOptions::default()).unwrap();
                let topic = Topic::open(&store, "jobs", &options(1 << 20)).unwrap();
                let limit = topic.log().max_producers() as u64;
                for start in 0..1000u64 {
                    let name = format!("{worker} {start}");
                    let of = ProducerName::expiring(&name);
                    let first = once(&topic, of, 0).unwrap();
                    // Where others took nearly all places meanwhile, it may be new again.
                    let again = once(&topic, of, 0).unwrap();
                    let others = again - first;
                    assert!(others == 0 || others > limit / 2, "{name} is there twice");
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let store = Store::open_with(place.path(), &StoreOptions::default()).unwrap();
    let topic = Topic::open(&store, "jobs", &TopicOptions::default()).unwrap();
    let limit = topic.log().max_producers();
    assert!(topic.end(0).unwrap() >= 4000 && topic.producers().unwrap().len() <= limit);
}
