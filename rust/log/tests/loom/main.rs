//! Every interleaving of the lock-free rooms: of two threads all, of more as far as two preemptions
//! reach, or three where all is asked for.
//!
//! The functions under test are the shipped ones, compiled over a word of loom's; `log` puts them
//! together to a log in small, with rolls, syncs and latches. Run with `make test-loom`;
//! `FALAJ_LOOM=all make test-loom` is all of it, and takes ten times as long. A model that cannot fail
//! proves nothing, so next to the models stand broken copies of single steps, which must fail, with the
//! fewer preemptions too.
#![cfg(loom)]

mod deaths;
mod durable;
mod follow;
mod latch;
mod lock;
#[allow(dead_code, reason = "some of it is for shuttle")]
mod log;
mod processes;
mod publish;
mod roll;
mod sync;
mod watch;
mod word;
mod world;

use std::sync::Arc;
use std::time::Duration;

use falaj::internals::{lock as shipped, wake};

use crate::follow::{Log, turn};
use crate::processes::{Nobody, always, process};
use crate::world::thread;

/// As far as three threads are gone through in `make test`: each broken step was found with one less.
const PREEMPTIONS: usize = 2;
/// The same where all is asked for; and as far as two threads are that have very many interleavings.
const MORE_PREEMPTIONS: usize = 3;
const FOREVER: Duration = Duration::from_secs(3600);

/// Whether models that take long are to do so.
fn all() -> bool {
    std::env::var("FALAJ_LOOM").is_ok_and(|told| told == "all")
}

/// Every interleaving. For two threads, where that can be waited for.
fn every(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    builder.check(body);
}

/// Every interleaving with up to so many preemptions: of three threads there are too many others. A
/// thread that sleeps or ends is none.
fn bounded(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// [`bounded`], as is usual.
fn model(body: impl Fn() + Sync + Send + 'static) {
    bounded(if all() { MORE_PREEMPTIONS } else { PREEMPTIONS }, body);
}

/// [`every`], or where not all is asked for, [`bounded`]: for two threads that take long.
fn nearly_every(body: impl Fn() + Sync + Send + 'static) {
    if all() { every(body) } else { bounded(MORE_PREEMPTIONS, body) }
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
                    wake::notify(&log.counter, &log.flag, None);
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
