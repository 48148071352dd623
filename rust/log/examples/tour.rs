//! A tour of the crate, piece by piece as README.md and docs/guide/rust.md show it:
//! `cargo run --release --example tour -- STORE`.
#![allow(clippy::print_stdout)] // an example shows what it reads

use std::time::Duration;

use falaj::{
    Error, NewRecord, Remedy, ScanRange, Store, StoreOptions, SyncMode, Topic, TopicOptions,
    Transaction,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: tour STORE")?;
    std::env::set_current_dir(path)?;
    begin()?;
    append()?;
    once()?;
    together()?;
    follow(Duration::from_millis(100))?;
    misuse()?;
    Ok(())
}

fn begin() -> Result<(), Error> {
    let store = Store::open("events", &StoreOptions::default())?;
    let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    orders.append(0, &NewRecord::value(b"two coffees"), Some(SyncMode::Durable))?;
    for record in orders.scan(0, orders.first(0)?, None)? {
        let record = record?;
        println!("{} {:?}", record.offset(), record.value());
    }
    Ok(())
}

fn append() -> Result<(), Error> {
    let store = Store::open("events", &StoreOptions::default())?;
    let options = TopicOptions { partitions: Some(4), ..TopicOptions::default() };
    let clicks = Topic::open(&store, "clicks", &options)?.with_sync(SyncMode::None);

    let (key, headers) = (b"ann", [("trace", Some(b"8c1f".as_slice()))]);
    let home = NewRecord { key: Some(key), headers: &headers, ..NewRecord::value(b"home") };
    let partition = clicks.partition_of(key);
    let offset = clicks.append(partition, &home, None)?;
    let offsets =
        clicks.extend(partition, &[NewRecord::value(b"cart"), NewRecord::value(b"pay")], None)?;
    assert_eq!((offset, offsets), (0, 1..3));

    clicks.flush()?;
    assert_eq!(clicks.durable(partition)?, clicks.end(partition)?);

    let all = |partition| ScanRange { partition, from: 0, end: None };
    for record in clicks.merge(&[all(0), all(1), all(2), all(3)])? {
        let record = record?;
        println!("{} {} {:?}", record.partition(), record.offset(), record.value());
    }

    let record = clicks.get(partition, offset)?;
    drop((clicks, store));
    assert_eq!(record.value(), Some(b"home".as_slice())); // it holds its map
    Ok(())
}

fn once() -> Result<(), Error> {
    let store = Store::open("events", &StoreOptions::default())?;
    let orders = Topic::open(&store, "orders", &TopicOptions::default())?;

    let (record, next) = (NewRecord::value(b"one cake"), orders.end(0)?);
    let once = [orders.expect_sequence("till-3", 17)?];
    assert_eq!(orders.append_if(0, &record, &once, None)?, next);
    assert_eq!(orders.append_if(0, &record, &once, None)?, next); // a repeat
    let late = orders.append_if(0, &record, &[orders.expect_offset(0, next)?], None);
    assert!(matches!(late, Err(Error::OffsetConflict { .. })));
    Ok(())
}

fn together() -> Result<(), Error> {
    let store = Store::open("events", &StoreOptions::default())?;
    let shop = TopicOptions { log: Some("shop".into()), ..TopicOptions::default() };
    let (paid, audit) = (Topic::open(&store, "paid", &shop)?, Topic::open(&store, "audit", &shop)?);

    let mut tx = Transaction::new(&store);
    tx.append(&paid, &NewRecord { key: Some(b"ann"), ..NewRecord::value(b"order 17") })?;
    tx.append(&audit, &NewRecord::value(b"paid: order 17"))?;
    let committed = tx.commit()?;
    assert_eq!(committed.offsets(&audit, 0), Some(0..1));
    Ok(())
}

fn follow(idle: Duration) -> Result<(), Error> {
    let store = Store::open("events", &StoreOptions::default())?;
    let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    let first = orders.first(0)?;
    for record in orders.follow(0, first)?.with_timeout(Some(idle)) {
        println!("{:?}", record?.value());
    }
    Ok(())
}

fn misuse() -> Result<(), Error> {
    let store = Store::open("events", &StoreOptions::reading())?;
    let orders = Topic::open(&store, "orders", &TopicOptions::default())?;
    match orders.append(0, &NewRecord::value(b"one tea"), None) {
        Err(error) if error.remedy() == Remedy::FixInput => println!("{error}"),
        other => panic!("a store opened for reading took an append: {other:?}"),
    }
    Ok(())
}
