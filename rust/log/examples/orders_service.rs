//! A service in one process: threads append orders, and one follows them and stops cleanly.
//! `cargo run --release --example orders_service -- STORE`
//!
//! Threads share the handles of a topic. The follower wakes a few times a second to see whether it is to stop; it
//! reads what is left first, so no order is lost.
#![allow(clippy::print_stdout)] // an example shows what it does

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use falaj::{Error, NewRecord, Store, Topic};

const TILLS: u32 = 3;
const ORDERS: u32 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: orders_service STORE")?;
    let store = Store::open(path)?;
    let orders = store.topic_options("orders").partitions(4).open()?;
    let stop = AtomicBool::new(false);

    let seen = thread::scope(|scope| {
        let kitchen = scope.spawn(|| follow(&orders, &stop));
        let tills: Vec<_> = (0..TILLS).map(|till| (till, &orders)).collect();
        let tills: Vec<_> = tills
            .into_iter()
            .map(|(till, orders)| scope.spawn(move || sell(orders, till)))
            .collect();
        let sold = tills.into_iter().try_for_each(|till| till.join().expect("a till's thread"));
        stop.store(true, Ordering::Release);
        sold.and_then(|()| kitchen.join().expect("the kitchen's thread"))
    })?;
    orders.flush()?; // what was sold is on the disk
    println!("{seen} orders");
    Ok(())
}

/// Append the orders of one till. Its name is the key, so that they stay in order.
fn sell(orders: &Topic, till: u32) -> Result<(), Error> {
    let till = format!("till-{till}");
    for number in 0..ORDERS {
        let value = format!("order {number} of {till}");
        orders.append(NewRecord::new(&value).key(&till))?;
    }
    Ok(())
}

/// Handle orders until the service stops and all of them were read.
fn follow(orders: &Topic, stop: &AtomicBool) -> Result<u64, Error> {
    let mut follow = orders.follow(..)?.with_timeout(Some(Duration::from_millis(200)));
    let mut seen = 0;
    loop {
        // Before the look: what was appended until then, the look finds.
        let stops = stop.load(Ordering::Acquire);
        for record in follow.by_ref() {
            seen += u64::from(record?.value().is_some());
        }
        if stops {
            return Ok(seen);
        }
    }
}
