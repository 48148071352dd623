//! Exactly once from one topic to others: `cargo run --release --example transaction -- STORE`.
//!
//! The group's offsets and the results become visible together. A process that is killed at any point leaves either
//! both or neither, so that each order is counted once.
#![allow(clippy::print_stdout)] // an example shows what it does

use std::time::Duration;

use falaj::{NewRecord, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: transaction STORE")?;
    let store = Store::open(path)?;
    store.topic("orders")?.extend(["7", "3", "5"])?;

    // Topics that are written together share a log; it keeps the group's offsets too.
    let sums = store.topic_options("sums").log("books").open()?;
    let audit = store.topic_options("audit").log("books").open()?;
    let mut adder = store.consumer_options("adder", ["orders"]).offsets_in(&sums).open()?;

    while let Some(order) = adder.poll(Duration::from_millis(50))? {
        let mut tx = store.transaction();
        let value = order.value().unwrap_or_default();
        tx.append(&sums, NewRecord::new(value).key("all"))?;
        tx.append(&audit, &format!("order {} was counted", order.offset()))?;
        let committed = adder.commit_with(&mut tx)?;
        println!("{:?}", committed.offsets(&sums, 0));
    }
    assert_eq!(sums.count(..)?, store.topic("orders")?.count(..)?);
    Ok(())
}
