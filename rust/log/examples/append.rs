//! Append as a native service would: `cargo run --release --example append -- STORE TOPIC COUNT`.
//!
//! Any other process, in Rust or Python, can follow the topic meanwhile.

use falaj::{NewRecord, Store, StoreOptions, Topic, TopicOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: append STORE TOPIC COUNT";
    let path = arguments.next().ok_or(usage)?;
    let name = arguments.next().ok_or(usage)?;
    let count: u64 = arguments.next().ok_or(usage)?.parse()?;

    let store = Store::open(path, &StoreOptions::default())?;
    let topic = Topic::open(&store, &name, &TopicOptions::default())?;
    for i in 0..count {
        let value = format!("record {i} of a native service");
        topic.append(0, &NewRecord::value(value.as_bytes()), None)?;
    }
    topic.flush()?;
    Ok(())
}
