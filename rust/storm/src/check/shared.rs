//! The final check of what processes shared: nothing was left out, and each unique step was done
//! once.

use std::collections::BTreeMap;
use std::path::Path;

use falaj::internals::error::Error;
use falaj::internals::sink::last_idempotency_key;
use falaj::internals::store::{Store, StoreOptions, TopicOptions};
use falaj::internals::topic::Topic;

use crate::shared::{KEYS, PARTITIONS, Shared};
use crate::worker::sharer::{NAME, OF_A_JOB, TOPICS};

type Wrong = Box<dyn std::error::Error>;

/// Compare a store that no process writes to any more with the sharers' notes.
pub fn check(store: &Path, shared: &Shared) -> Result<(), Wrong> {
    let store = Store::open_with(store, &StoreOptions::reading())?;
    let open = |name| Topic::open(&store, name, &TopicOptions::default());
    let [jobs, work, steps, sunk, keys, copies] = TOPICS;
    let jobs = open(jobs)?;
    if let Some(left) = (0..jobs.end(0)?).find(|offset| !shared.may_be_done(*offset)) {
        return Err(format!("the queue is done, but no worker acked job {left}").into());
    }
    let work = open(work)?;
    for partition in 0..PARTITIONS {
        let (at, end) = (shared.is_committed_to(partition), work.end(partition)?);
        if at != end {
            return Err(format!("partition {partition} was read up to {at}, not {end}").into());
        }
    }
    check_steps(&open(steps)?, &open(copies)?)?;
    check_sunk(&open(sunk)?)?;
    check_keys(&open(keys)?, shared)
}

fn number(value: Option<&[u8]>) -> Option<u64> {
    Some(u64::from_le_bytes(value?.get(..8)?.try_into().ok()?))
}

/// Each step is in both topics once, and the cursor with its metadata is at the last one's end.
fn check_steps(steps: &Topic, copies: &Topic) -> Result<(), Wrong> {
    let next = count_steps(steps)?;
    let copied = count_steps(copies)?;
    let sequences = steps.producers()?.into_iter().map(|producer| producer.sequence);
    let last = sequences.max().unwrap_or(0);
    if copied != next || last > next {
        let found = format!("of {next} steps {copied} have a copy, and {last} is a sequence");
        return Err(found.into());
    }
    let at = steps.cursor(NAME.as_bytes())?.map_or(0, |cursor| cursor.offset);
    let metadata = steps.cursor_metadata(NAME.as_bytes())?;
    let wanted = if next == 0 { String::new() } else { next.to_string() };
    if at == next && metadata == wanted.as_bytes() {
        return Ok(());
    }
    let metadata = String::from_utf8_lossy(&metadata).into_owned();
    Err(format!("there are {next} steps, and the cursor is at {at} with {metadata:?}").into())
}

fn count_steps(topic: &Topic) -> Result<u64, Wrong> {
    let mut scan = topic.scan_partition(0, 0, None)?;
    let mut next = 0;
    while let Some(record) = scan.next().transpose()? {
        if number(record.value()) != Some(next) {
            let (name, found) = (topic.name(), record.value());
            return Err(format!("instead of step {next} there is {found:?} in {name}").into());
        }
        next += 1;
    }
    Ok(next)
}

/// Each bulk load of the series is there once, whole, in order.
fn check_sunk(sunk: &Topic) -> Result<(), Wrong> {
    let mut scan = sunk.scan_partition(0, 0, None)?;
    let mut found = Vec::new();
    while let Some(record) = scan.next().transpose()? {
        found.extend(number(record.value()));
    }
    let last = last_idempotency_key(sunk, NAME)?.map_or(0, |token| token.version);
    let wanted = (1..=last).flat_map(|version| [version; OF_A_JOB as usize]);
    if wanted.eq(found.iter().copied()) {
        return Ok(());
    }
    Err(format!("loads up to {last} were committed, and these are there: {found:?}").into())
}

/// Each key has a record no older than the newest that was acknowledged.
fn check_keys(keys: &Topic, shared: &Shared) -> Result<(), Wrong> {
    let mut newest = BTreeMap::new();
    let mut scan = keys.scan_partition(0, 0, None)?;
    loop {
        match scan.next().transpose() {
            Ok(Some(record)) => newest.insert(number(record.key()), record.offset() + 1),
            Ok(None) => break,
            Err(error) => return Err(error.into()),
        };
    }
    for key in 0..KEYS {
        let (told, found) = (shared.last_of(key), newest.get(&Some(key)).copied().unwrap_or(0));
        if found < told {
            return Err(format!("key {key} had offset {}, and has {found}", told - 1).into());
        }
    }
    Ok(())
}

/// True if no sharer ever began to make its topics.
pub fn is_empty(store: &Path) -> Result<bool, Error> {
    let store = Store::open_with(store, &StoreOptions::reading())?;
    let names: Vec<_> = store.topics()?.into_iter().map(|(name, _)| name).collect();
    Ok(TOPICS.iter().any(|topic| !names.iter().any(|name| name == topic)))
}
