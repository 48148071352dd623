//! Every interleaving of the lock-free rooms, as far as three preemptions reach.
//!
//! The functions under test are the shipped ones, compiled over a word of loom's. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p falaj --release --test loom`. A model that cannot fail
//! proves nothing, so next to the models stand broken copies of single steps, which must fail.
#![cfg(loom)]

mod follow;
mod lock;
mod publish;
mod sync;
mod watch;
mod word;

use std::sync::Arc;
use std::time::Duration;

use falaj::{lock as shipped, wake};
use loom::thread;

use crate::follow::{Log, turn};
use crate::lock::{Nobody, always, process};

const PREEMPTIONS: usize = 3;
const FOREVER: Duration = Duration::from_secs(3600);

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(body);
}

#[test]
fn an_append_is_seen_by_a_sleeping_follower() {
    model(|| {
        let log = Arc::new(Log::new());
        let writers = [0, 1].map(|block| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let me = process(block as u16);
                shipped::lock(&log.lock, me, &Nobody, None, always(0)).map(|_| ()).unwrap();
                log.append(block);
                assert!(shipped::unlock(&log.lock, me));
                if wake::is_awaited_after_unlock(&log.flag) {
                    wake::ring(&log.counter, &log.flag, None);
                }
            })
        });
        while !turn(&log, 1) {}
        assert_eq!(log.bytes[1].read(), 5);
        for writer in writers {
            writer.join().unwrap();
        }
    });
}
