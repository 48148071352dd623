//! One sync for all threads of a process that wait for the same file.
//!
//! A thread that stored something asks for a sync. The first one syncs for all that asked before
//! its sync began, and the others find it done. Invariant: a sync counts only for bytes that were
//! stored before it began, and each thread that it would have served gets its failure. The kernel
//! forgets such bytes, so no later sync may count for them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The meeting point of a process's threads that wait for one file.
#[derive(Debug, Default)]
pub(crate) struct SyncCoalescer {
    asked: AtomicU64,
    passed: Mutex<Passed>,
}

/// The ticket up to which syncs are done.
#[derive(Debug, Default)]
struct Passed {
    done: u64,
    failed: u64,
    why: Option<i32>,
}

impl SyncCoalescer {
    /// Return once everything that this thread stored before the call is on disk.
    ///
    /// # Errors
    /// Those of `sync`, even if another thread called it for this one.
    pub(crate) fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.failed >= mine {
            let why = passed.why.map(io::Error::from_raw_os_error);
            return Err(why.unwrap_or_else(|| io::ErrorKind::Other.into()));
        }
        if passed.done >= mine {
            return Ok(());
        }
        let covers = self.asked.load(Ordering::SeqCst);
        let synced = sync();
        match &synced {
            Ok(()) => passed.done = covers,
            Err(error) => {
                passed.failed = covers;
                passed.why = error.raw_os_error();
            }
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Run three threads that ask while a fourth syncs.
    fn three_beside_a_running_sync(fails: bool) -> (Vec<bool>, u64) {
        let (gate, syncs) = (SyncCoalescer::default(), AtomicU64::new(0));
        let (began, begun) = channel();
        let may_end = Barrier::new(2);
        let outcome = |_: i32| {
            gate.sync(|| {
                syncs.fetch_add(1, Ordering::SeqCst);
                if fails { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
            })
            .is_ok()
        };
        let ended = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                gate.sync(|| {
                    began.send(()).unwrap();
                    may_end.wait();
                    Ok(())
                })
            });
            begun.recv().unwrap();
            let asking: Vec<_> = (0..3).map(|n| scope.spawn(move || outcome(n))).collect();
            while gate.asked.load(Ordering::SeqCst) < 4 {
                std::thread::sleep(Duration::from_millis(1)); // sleep: until all three have asked
            }
            may_end.wait();
            first.join().unwrap().unwrap();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        (ended, syncs.load(Ordering::SeqCst))
    }

    #[test]
    fn one_sync_serves_all_who_asked_before_it_began_and_no_earlier_one_does() {
        assert_eq!(three_beside_a_running_sync(false), (vec![true; 3], 1));
    }

    #[test]
    fn a_failed_sync_is_told_to_all_whom_it_would_have_served() {
        assert_eq!(three_beside_a_running_sync(true), (vec![false; 3], 1));
    }
}
