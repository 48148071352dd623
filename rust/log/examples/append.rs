//! Append as a native service would: `cargo run --release --example append -- STORE TOPIC COUNT`.
//!
//! Any other process, in Rust or Python, can follow the topic meanwhile.

use falaj::Store;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: append STORE TOPIC COUNT";
    let path = arguments.next().ok_or(usage)?;
    let name = arguments.next().ok_or(usage)?;
    let count: u64 = arguments.next().ok_or(usage)?.parse()?;

    let topic = Store::open(path)?.topic(&name)?;
    for i in 0..count {
        topic.append(&format!("record {i} of a native service"))?;
    }
    topic.flush()?;
    Ok(())
}
