//! The churner: creates a topic, uses it, deletes it.
//!
//! The topic has a log of its own, or is in a log that keeps the numbers of all its former topics.

use falaj::internals::error::Error;
use falaj::internals::store::{Store, TopicOptions};
use falaj::internals::topic::{NewRecord, ProducerName, Topic};

use super::Wrong;
use crate::acks::{Acks, STOP};
use crate::random::Random;
use crate::task::Task;

/// Names that no writer uses. A topic that a killed churner left is used or deleted.
const NAMES: [&str; 2] = ["passing", "passing-in-a-log"];
const PRODUCER: &str = "passer";

/// Create, append, read back, delete, until stopped.
pub fn churn(task: &Task) -> Result<(), Wrong> {
    let acks = Acks::open(&task.account)?;
    let store = Store::open_with(&task.layout.store, &task.layout.store_options())?;
    let mut random = Random::new(task.seed, u64::from(task.id));
    let own = TopicOptions { segment_bytes: Some(1 << 16), ..TopicOptions::default() };
    let shared = TopicOptions { log: Some("passengers".into()), ..own.clone() };
    while acks.word(STOP) == 0 {
        let which = random.below(2) as usize;
        let (name, options) = (NAMES[which], [&own, &shared][which]);
        let topic = Topic::open(&store, name, options)?;
        if topic.is_finished() {
            // By a process that was killed before it deleted the topic.
            store.delete_topic(name)?;
            continue;
        }
        pass_once(&topic)?;
        let first = topic.end(0)?;
        let count = random.between(1, 2_000);
        for i in 0..count {
            topic.append_to(0, &NewRecord::new(&i.to_le_bytes()), None)?;
        }
        let read = topic.get_in(0, first + count - 1)?;
        if read.value() != Some((count - 1).to_le_bytes().as_slice()) {
            return Err("the passing topic holds something else".into());
        }
        if random.chance(1, 4) {
            topic.finish()?;
            match topic.append_to(0, &NewRecord::new(b"too late"), None) {
                Err(Error::TopicFinished { .. }) if topic.is_finished() => {}
                other => return Err(format!("a finished topic returned {other:?}").into()),
            }
        }
        // A topic that is finished goes, and the next one of its name is another.
        if topic.is_finished() || random.chance(3, 4) {
            store.delete_topic(name)?;
            match topic.append_to(0, &NewRecord::new(b"too late"), None) {
                Err(Error::TopicDeleted { .. }) => {}
                other => return Err(format!("a deleted topic returned {other:?}").into()),
            }
        }
    }
    Ok(())
}

/// Append a record, repeat the append, and forget the producer.
fn pass_once(topic: &Topic) -> Result<(), Wrong> {
    // Half of them are producers that falaj may forget by itself.
    let is_expiring = topic.end(0)? % 2 == 0;
    let producer = if is_expiring { ProducerName::expiring(PRODUCER) } else { PRODUCER.into() };
    let sequence = topic.last_sequence(producer)?.map_or(0, |last| last + 1);
    let say = || {
        let once = [topic.expect_sequence(producer, sequence)?];
        topic.append_if_to(0, &NewRecord::new(b"once"), &once, None)
    };
    let first = say()?;
    if say()? != first || topic.end(0)? != first + 1 {
        return Err("a repeated append is there twice".into());
    }
    if sequence > 4 {
        topic.forget_producer(producer)?;
    }
    Ok(())
}
