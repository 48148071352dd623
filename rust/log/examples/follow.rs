//! Follow as a native service would: `cargo run --release --example follow -- STORE TOPIC [IDLE_MS]`.
//!
//! Prints the value of each record, from the beginning and as processes append, in Rust or Python.
//! Ends when nothing came for so long.

use std::io::Write as _;
use std::time::Duration;

use falaj::Store;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: follow STORE TOPIC [IDLE_MS]";
    let path = arguments.next().ok_or(usage)?;
    let name = arguments.next().ok_or(usage)?;
    let idle = arguments.next().map(|ms| ms.parse().map(Duration::from_millis)).transpose()?;

    let topic = Store::options().read_only(true).open(path)?.topic(&name)?;
    let mut out = std::io::stdout().lock();
    for record in topic.follow(..)?.with_timeout(idle) {
        out.write_all(record?.value().unwrap_or_default())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
