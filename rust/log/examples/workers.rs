//! Workers that share a queue: `cargo run --release --example workers -- STORE`.
//!
//! Start it in several processes at once: each job goes to one worker, and a job whose worker dies is delivered again.
#![allow(clippy::print_stdout)] // an example shows what it does

use std::thread;
use std::time::Duration;

use falaj::{Error, Job, Queue, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: workers STORE")?;
    let store = Store::open(path)?;
    let letters = store.topic("emails.dead")?;
    let emails = store.queue_options("emails").lease(Duration::from_secs(30));
    let emails = emails.dead_letters(3, &letters).open()?;
    for name in ["ann", "bob", "", "cid"] {
        emails.put(name)?;
    }
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| work(&emails))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker's thread"))
    })?;
    let info = emails.info()?;
    println!("dead: {}", info.dead);
    Ok(())
}

/// Take jobs until there are none for a while.
fn work(emails: &Queue) -> Result<(), Error> {
    loop {
        let mut idle = true;
        for job in emails.take(10, Duration::from_millis(200))? {
            let job = job?;
            idle = false;
            match send(&job) {
                Ok(()) => job.ack()?,
                Err(reason) => job.nack(Duration::from_millis(10), reason)?,
            }
        }
        if idle {
            return Ok(());
        }
    }
}

fn send(job: &Job) -> Result<(), &'static str> {
    match job.value() {
        Some(b"") | None => Err("no address"),
        Some(_) => Ok(()),
    }
}
