//! The churner: creates a topic, uses it, deletes it.

use falaj::error::Error;
use falaj::store::{Store, TopicOptions};
use falaj::topic::{Record, Topic};

use super::Wrong;
use crate::acks::{Acks, STOP};
use crate::random::Random;
use crate::task::Task;

/// A name that a writer never uses. What a killed churner left there is gone on with or deleted.
pub const NAME: &str = "passing";

/// Create, append, read back, delete, until told to stop.
pub fn churn(task: &Task) -> Result<(), Wrong> {
    let acks = Acks::open(&task.account)?;
    let store = Store::open(&task.layout.store, &task.layout.store_options())?;
    let mut random = Random::new(task.seed, u64::from(task.id));
    let options = TopicOptions { segment_bytes: Some(1 << 16), ..TopicOptions::default() };
    while acks.word(STOP) == 0 {
        let topic = Topic::open(&store, NAME, &options)?;
        let first = topic.end(0)?;
        let count = random.between(1, 2_000);
        for i in 0..count {
            topic.append(0, &Record::value(&i.to_le_bytes()), None)?;
        }
        let read = topic.get(0, first + count - 1)?;
        if read.value() != Some((count - 1).to_le_bytes().as_slice()) {
            return Err("the passing topic holds something else".into());
        }
        if random.chance(3, 4) {
            store.delete_topic(NAME)?;
            match topic.append(0, &Record::value(b"too late"), None) {
                Err(Error::TopicDeleted { .. }) => {}
                other => return Err(format!("a deleted topic said {other:?}").into()),
            }
        }
    }
    Ok(())
}
