//! Follow as a native service would: `cargo run --release --example follow -- STORE TOPIC`.
//!
//! Prints every record, from the first on, and sleeps in the kernel until another process, in Rust or
//! Python, appends more. Opened for reading: it creates nothing and takes no lock.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use falaj::store::{Store, StoreOptions, TopicOptions};
use falaj::topic::Topic;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: follow STORE TOPIC";
    let path = arguments.next().ok_or(usage)?;
    let name = arguments.next().ok_or(usage)?;

    let store = Store::open(path, &StoreOptions::reading())?;
    let topic = Topic::open(&store, &name, &TopicOptions::default())?;
    let mut scan = topic.scan(0, topic.first(0)?, None)?;
    loop {
        while let Some(record) = scan.next_record()? {
            let value = String::from_utf8_lossy(record.value().unwrap_or_default());
            println!("{}\t{value}", record.offset());
        }
        topic.log().wait_for_news(scan.cursor().address(), None, &|| false)?;
    }
}
