//! Every interleaving of the lock-free modules: of two threads all, of more threads those with up
//! to two preemptions, or three on request.
//!
//! The functions under test are the shipped ones, compiled over a word of loom's. `log` combines
//! them into a small log, with rolls, syncs and failed syncs. Run `make test-loom`; `FALAJ_LOOM=all
//! make test-loom` explores everything, and takes ten times as long. A model that cannot fail shows
//! nothing. So each model has broken copies of single steps beside it, which must fail, also with
//! fewer preemptions.
#![cfg(loom)]

mod deaths;
mod durable;
mod follow;
mod latch;
mod lock;
#[allow(dead_code, reason = "parts of it are used by shuttle only")]
mod log;
mod processes;
mod publish;
mod remote;
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

/// Preemptions of three threads in `make test`: each broken step fails with one less.
const PREEMPTIONS: usize = 2;
/// The same if everything is explored, and for two threads with very many interleavings.
const MORE_PREEMPTIONS: usize = 3;
const FOREVER: Duration = Duration::from_secs(3600);

/// Whether slow models explore everything.
fn all() -> bool {
    std::env::var("FALAJ_LOOM").is_ok_and(|told| told == "all")
}

/// Every interleaving, for two threads that allow it in reasonable time.
fn every(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    builder.check(body);
}

/// Every interleaving with up to so many preemptions; three threads have too many others.
///
/// A thread that sleeps or ends is not preempted.
fn bounded(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// [`bounded`], with the usual number.
fn model(body: impl Fn() + Sync + Send + 'static) {
    bounded(if all() { MORE_PREEMPTIONS } else { PREEMPTIONS }, body);
}

/// [`every`] on request, else [`bounded`]: for two threads that take long.
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
