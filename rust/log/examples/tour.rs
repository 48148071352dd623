//! A tour of the crate, piece by piece as README.md and docs/guide/rust.md show it:
//! `cargo run --release --example tour -- STORE`.
#![allow(clippy::print_stdout)] // an example shows what it reads

use std::time::Duration;

use falaj::{Backoff, Error, NewRecord, Remedy, Store, SyncMode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: tour STORE")?;
    std::env::set_current_dir(path)?;
    begin()?;
    append()?;
    once()?;
    together()?;
    group()?;
    queue()?;
    follow(Duration::from_millis(100))?;
    misuse()?;
    Ok(())
}

fn begin() -> Result<(), Error> {
    let store = Store::open("events")?;
    let orders = store.topic("orders")?.with_sync(SyncMode::Durable);
    orders.append(b"two coffees")?;
    for record in orders.scan(..)? {
        let record = record?;
        println!("{} {:?}", record.offset(), record.value());
    }
    Ok(())
}

fn append() -> Result<(), Error> {
    let store = Store::open("events")?;
    let clicks = store.topic_options("clicks").partitions(4).sync(SyncMode::None).open()?;

    let home = NewRecord::new("home").key("ann").headers(&[("trace", Some(b"8c1f"))]);
    let at = clicks.append(home)?;
    let offsets = clicks.extend(["cart", "pay"].map(|page| NewRecord::new(page).key("ann")))?;
    assert_eq!(offsets[&at.partition], at.offset + 1..at.offset + 3);

    let anns = clicks.partition(clicks.partition_of(b"ann"))?;
    anns.flush()?;
    assert_eq!(anns.durable_offset()?, anns.end_offset()?);

    for record in clicks.scan(..)? {
        let record = record?;
        println!("{} {} {:?}", record.partition(), record.offset(), record.value());
    }

    let record = anns.get(at.offset)?;
    drop((anns, clicks, store));
    assert_eq!(record.value(), Some(b"home".as_slice())); // it holds its map
    Ok(())
}

fn once() -> Result<(), Error> {
    let store = Store::open("events")?;
    let orders = store.topic("orders")?;

    let once = [orders.expect_sequence("till-3", 17)?];
    let first = orders.append_if(b"one cake", &once)?;
    assert_eq!(orders.append_if(b"one cake", &once)?, first); // a repeat is not appended again
    let late = orders.append_if(b"one tea", &[orders.expect_offset(first.offset)?]);
    assert!(matches!(late, Err(Error::OffsetConflict { .. })));
    Ok(())
}

fn together() -> Result<(), Error> {
    let store = Store::open("events")?;
    let paid = store.topic_options("paid").log("shop").open()?;
    let audit = store.topic_options("audit").log("shop").open()?;

    let mut tx = store.transaction();
    tx.append(&paid, NewRecord::new("order 17").key("ann"))?;
    tx.append(&audit, "paid: order 17")?;
    let committed = tx.commit()?;
    assert_eq!(committed.offsets(&audit, 0), Some(0..1));
    Ok(())
}

fn group() -> Result<(), Error> {
    let store = Store::open("events")?;
    let mut billing = store.consumer("billing", ["orders"])?;
    while let Some(record) = billing.poll(Duration::ZERO)? {
        println!("{} {:?}", record.topic(), record.value());
        billing.commit()?;
    }
    let audit = store.consumer_matching("audit", "eu.*");
    audit.on_revoke(|audit, _partitions| audit.commit()).open()?.close()?;
    let reports = store.consumer_options("reports", ["orders"]);
    let mut reports = reports.commit_every(Duration::from_secs(1)).open()?;
    while let Some(batch) = reports.poll_batch(8192, Duration::ZERO)? {
        println!("{} {:?}", batch.topic(), batch.offsets());
    }
    reports.close()?;
    Ok(())
}

fn queue() -> Result<(), Error> {
    let store = Store::open("events")?;
    let emails = store.queue("emails")?;
    emails.put(b"welcome ann")?;
    for job in emails.take(10, Duration::from_secs(1))? {
        let job = job?;
        println!("{:?}", job.value());
        job.ack()?;
    }
    let dead = store.topic("letters.dead")?;
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
    let letters = store.queue_options("letters").backoff(backoff).dead_letters(5, &dead).open()?;
    for job in letters.take(10, Duration::ZERO)? {
        job?.nack(None, "no address")?;
    }
    letters.redrive(None)?;
    emails.put(b"welcome bob")?;
    let reserved = emails.take(10, Duration::ZERO)?.reserve(10, Duration::from_secs(60))?;
    for (ticket, _) in &reserved {
        let text = ticket.to_string();
        if let Some(job) = emails.reserved(&text.parse()?)? {
            job.ack()?;
        }
    }
    Ok(())
}

fn follow(idle: Duration) -> Result<(), Error> {
    let store = Store::open("events")?;
    let orders = store.topic("orders")?;
    for record in orders.follow(..)?.with_timeout(Some(idle)) {
        println!("{:?}", record?.value());
    }
    Ok(())
}

fn misuse() -> Result<(), Error> {
    let store = Store::options().read_only(true).open("events")?;
    let orders = store.topic("orders")?;
    match orders.append(b"one tea") {
        Err(error) if error.remedy() == Remedy::FixInput => println!("{error}"),
        other => panic!("a store opened for reading took an append: {other:?}"),
    }
    Ok(())
}
