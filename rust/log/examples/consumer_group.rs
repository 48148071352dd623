//! A consumer group whose members share the partitions of a topic: `cargo run --release --example consumer_group -- STORE`.
//!
//! Start it in several processes at once: each partition is read by one of them, and the committed offsets say where
//! the next one goes on.
#![allow(clippy::print_stdout)] // an example shows what it does

use std::time::Duration;

use falaj::{NewRecord, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: consumer_group STORE")?;
    let store = Store::open(path)?;
    let clicks = store.topic_options("clicks").partitions(4).open()?;
    for user in ["ann", "bob", "cid", "dan"] {
        clicks.append(NewRecord::new("home").key(user))?;
    }

    let mut pages = store.consumer("pages", ["clicks"])?;
    let mut since_commit = 0;
    while let Some(record) = pages.poll(Duration::from_millis(200))? {
        println!("{} {} {:?}", record.topic(), record.partition(), record.key());
        since_commit += 1;
        if since_commit == 100 {
            pages.commit()?;
            since_commit = 0;
        }
    }
    pages.commit_durable()?;
    println!("{:?}", pages.assignment());
    pages.close()?;
    Ok(())
}
